"""What a stage is made with."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmq

AHEAD = 16
"""How many items a worker of an ordered stage has done before those before them are."""
WINDOW = 1024
"""How many items of a stage may be in flight: enough for all workers, and few enough to be looked through at once."""


@dataclass(frozen=True)
class Stage:
    """
    One stage. Its function is None where what comes to it goes into the queue *target* as it is.

    Attributes:
        name: of its queue's directory, behind its number.
        function: what its workers call.
        workers: how many.
        ordered: whether what comes of items leaves in their order.
        batch: how many items the function is given at once, in a list; None for one, by itself.
        attempts: how often an item is tried, before it goes to the dead letters.
        backoff: seconds before the second try; doubled for each further one.
        bound: how many items may wait for it, before those that put wait.
        sink: whether nothing comes behind it.
        target: of the last stage: the queue that outputs go into.
    """

    name: str
    function: Callable[[Any], Any] | None
    workers: int = 1
    ordered: bool = False
    batch: int | None = None
    attempts: int = 3
    backoff: float = 0.1
    bound: int = WINDOW
    sink: bool = False
    target: shmq.Queue[Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        if self.function is not None and not callable(self.function):
            also = ", or a queue that is open," if self.sink else ""
            raise TypeError(f"stage {self.name!r}: a function{also} is wanted, not {type(self.function).__name__}")
        for name, least in (("workers", 1), ("attempts", 1), ("bound", 1)):
            _whole(self.name, name, getattr(self, name), least)
        if self.batch is not None:
            _whole(self.name, "batch", self.batch, 1)
        for name in ("ordered", "sink"):
            if getattr(self, name) not in (True, False):
                raise TypeError(f"stage {self.name!r}: {name}={getattr(self, name)!r}: True or False is wanted")
        if isinstance(self.backoff, bool) or not isinstance(self.backoff, (int, float)) or not self.backoff >= 0:
            raise ValueError(f"stage {self.name!r}: backoff={self.backoff!r}: seconds, 0 or more")
        if self.ordered and self.batch is not None:
            raise ValueError(f"stage {self.name!r}: ordered=True and batch= do not go together; give one of the two")
        if self.ordered and self.sink and self.workers > 1:
            raise ValueError(f"sink {self.name!r}: ordered=True is for one worker: items are given to it in turn")

    def check_sent(self, method: str) -> None:
        """
        Refuse a function that a start method cannot send to workers, before anything is started.

        Raises:
            TypeError: it cannot be sent.
        """
        if method == "fork":
            return
        try:
            pickle.dumps(self.function)
        except Exception as problem:
            raise TypeError(
                f"stage {self.name!r}: {self.function!r} cannot be sent to workers of method {method!r} ({problem}); "
                "take a function of a module, by its name, not a lambda or one within another"
            ) from problem


def _whole(stage: str, name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"stage {stage!r}: {name}={value!r}: an int is wanted")
    if value < least:
        raise ValueError(f"stage {stage!r}: {name}={value}: {least} or more")
