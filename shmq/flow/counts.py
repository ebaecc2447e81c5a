"""How far each stage is, and what a run came to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from shmq.flow.place import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.flow.place import Place
    from shmq.flow.plan import Stage


@dataclasses.dataclass(frozen=True)
class StageSummary:
    """
    How far a stage is.

    Attributes:
        name: its name.
        items: how many items came to it.
        waiting: how many of them are not finished.
        dead: how many it has given up; they are in its dead letters.
    """

    name: str
    items: int
    waiting: int
    dead: int

    @property
    def done(self) -> int:
        """How many items it has finished, those that were given up included."""
        return self.items - self.waiting


@dataclasses.dataclass(frozen=True)
class Summary:
    """
    What a run came to.

    Attributes:
        items: how many the source had.
        stages: of each stage, in order, the sink included.
        seconds: how long the run took that ended it; those that were interrupted before are not counted.
    """

    items: int
    stages: tuple[StageSummary, ...]
    seconds: float

    @property
    def dead(self) -> int:
        """How many items were given up, in all stages."""
        return sum(each.dead for each in self.stages)

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """As it was kept."""
        stages = tuple(StageSummary(**each) for each in kept["stages"])
        return cls(kept["items"], stages, kept["seconds"])


def count(place: Place, stages: Sequence[Stage]) -> tuple[StageSummary, ...]:
    """How far each stage is now."""
    found = []
    for number, stage in enumerate(stages):
        with place.queue(number, stage) as queue:
            stats = queue.stats()
            name = stats.consumers.get(GROUP)
            waiting = len(queue) if name is None else name.lag
        found.append(StageSummary(stage.name, stats.next_index - stats.padded, waiting, place.letters(number, stage)))
    return tuple(found)
