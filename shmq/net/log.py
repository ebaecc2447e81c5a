"""A queue as the RFC's services see it: messages with ascending indexes, an end, and readers. All of it may block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Tail(Protocol):
    """A place in a queue. Used by one thread at a time."""

    def read(self, index: int | None, count: int, nbytes: int, *, raw: bool) -> tuple[int, list[Any]]:
        """
        Return (index of the first, values) of up to *count* messages with *index* and those that follow it, unbroken.

        None goes on behind the last ones. An index below the first is the first; one that is missing is the next that
        is there. At most *nbytes* of payload, but one message at least; with *raw* each is its bytes. None at the end.

        Raises:
            IndexError: it is beyond the end.
        """

    def arm(self, call: Callable[[], object]) -> bool:
        """
        Have *call* called, in another thread, when more may be there than the last `read` found; after `watch`.

        False when something may be there already, or nobody can tell: look again soon.
        """

    def watch(self, call: Callable[[], object]) -> None:
        """Before a `read` that may find nothing: what comes from now on calls."""

    def disarm(self) -> None:
        """Do not call any more."""

    def close(self) -> None:
        """Read no more."""


class Log(Protocol):
    """One queue, open. Safe to share between threads."""

    slow: bool
    """Whether an append waits for a disk or for another process's lock."""

    def span(self) -> tuple[int, int]:
        """Return the first index that can be read, and the one behind the last; the same when it is empty."""

    def last(self) -> int:
        """Return the index of the last message; -1 when there is none."""

    def append(self, values: list[Any]) -> list[int | Exception]:
        """Append *values* in order and return the index of each, or why it has none."""

    def sync(self) -> None:
        """Return when all that was appended is on the disk."""

    def tail(self) -> Tail:
        """Return a place at the beginning."""

    def close(self) -> None:
        """Let go of it."""
