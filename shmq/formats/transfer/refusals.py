"""Why something is not transferred, and what would have it done: in the words of Python, or in others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.errors import Corrupt, Full, Mismatch, ShmqError, TooLarge, TooMany, Unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PYTHON = {
    "lossy": "lossy=True",
    "resume": "resume=True",
    "again": "again=True",
    "alone": "consumers=False",
    "repair": "shmq.formats.repair",
    "part": "part",
    "blocks": "block_bytes",
}


class Refused(ShmqError):
    """
    A queue was not imported, exported or converted as it was asked for. The text says why, what is so, and what helps.

    It is an `Unsafe` too where something would be lost, a `Corrupt` where the source is damaged, and a `Mismatch` where
    what was asked for contradicts what is in the queue: the source was imported before, or has changed, or a consumer
    of that name is there. It is a `TooLarge` where a message does not fit, and a `TooMany`, `TooLarge` or `Full` where
    the bounds of the queue have no room for all of it at once.
    """

    def __init__(self, fact: str, remedy: str) -> None:
        """Keep what is so, and what would help; that names options in braces, as `PYTHON` has them."""
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        """The whole text, with the options of the Python calls."""
        return self.told(PYTHON)

    def told(self, words: Mapping[str, str]) -> str:
        """The whole text, for whoever calls the options otherwise: {"lossy": "--lossy", ...}."""
        return self.fact + self.remedy.format_map(words)


class Loss(Refused, Unsafe):
    """Something would be lost, and that was not allowed."""


class Damage(Refused, Corrupt):
    """The source is damaged, and that was not allowed."""


class Clash(Refused, Mismatch):
    """The queue, or another of its consumers, is in the way."""


class Size(Refused, TooLarge):
    """A message does not fit its field, or all of them do not fit the bounds."""


class Number(Refused, TooMany):
    """All of them are more than the bounds of the queue ever have room for."""


class Room(Refused, Full):
    """The bounds of the queue have no room for all of it now."""


def no_room(problem: TooLarge | TooMany | Full, kept: str) -> Refused:
    """The same, with what is *kept*, and what helps."""
    kind = Size if isinstance(problem, TooLarge) else Number if isinstance(problem, TooMany) else Room
    return kind(
        f"{problem}. {kept}",
        ". {resume} with a {part} that the bounds have room for goes on as often as consumers have made room",
    )


def refuse_losses(
    losses: list[str], *, lossy: bool, tell: Callable[[str], object], kept: str = "Nothing was written"
) -> None:
    """
    Go on only where nothing is lost, or that is allowed: then it is told.

    Raises:
        Refused: neither.
    """
    if losses and not lossy:
        raise Loss(f"this would be lost: {'; '.join(losses)}. {kept}", "; {lossy} does it all the same")
    for loss in losses:
        tell(f"lost: {loss}")


def nobody(*_: object) -> None:
    """Who is told where nobody listens."""
