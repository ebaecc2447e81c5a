"""What a bridge needs of the far end: a target that says where it is, a source whose messages have numbers."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmq.errors import ShmqError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq.bridge.carried import Carried

BATCH = 500
"""Messages that travel together at most."""
BATCH_BYTES = 1 << 20
"""Bytes of payload after which a batch takes no further message."""
CONNECT_WITHIN = 3.0
"""Seconds for a server to take a connection."""
ANSWER_WITHIN = 10.0
"""Seconds for a server to answer; one that is slower is taken to be away."""
LOOK = 0.5
"""Seconds that a bridge waits before it looks whether it is to end."""
UNKNOWN: Final = -1
"""A target's place when it has had messages and cannot say which: they are gone, or it keeps no numbers."""


class Refused(ShmqError):
    """The far end refused, and would refuse again. What it has confirmed is there; nothing else was changed."""


class Unreachable(Exception):
    """The far end is away, or somebody was quicker: a bridge connects anew, asks where it is, and goes on there."""


class Stopped(Exception):
    """The bridge is to end, and this was not done."""


class Outgoing(NamedTuple):
    """One message on its way out, and *at* which index it is."""

    at: int
    message: Carried


def too_large(each: Outgoing, where: str, limit: int | None = None) -> TooLarge:
    """The error for a message that the far end does not take, where all before it arrive."""
    most = "less" if limit is None else f"{limit:,} at most"
    return TooLarge(
        f"message {each.at} has {len(each.message.payload):,} bytes, and {where} takes {most}; all before it are there"
    )


class Target(abc.ABC):
    """
    Where messages of one queue go. Made without connecting; after `Unreachable` a bridge closes it and makes another.

    Attributes:
        batch: how many messages it takes at once.
    """

    batch = BATCH

    @abc.abstractmethod
    def place(self) -> int | None:
        """
        Connect, and say which index of this queue was the last to arrive; None when none has, or `UNKNOWN`.

        Raises:
            Unreachable: the server is away.
            Mismatch: what is there is from another queue, or from somebody else.
            Refused: the server wants none of this.
        """

    @abc.abstractmethod
    def send(self, batch: Sequence[Outgoing]) -> None:
        """
        Have all of them there, in order, behind what `place` said and what was sent since; return when that is so.

        Raises:
            Unreachable: it is unknown how many arrived, but they are the first ones.
            Stopped: likewise.
            TooLarge: one is larger than the far end takes.
            Refused: likewise, for another reason.
        """

    def idle(self) -> None:  # noqa: B027  # most have nothing to do
        """Called now and then while there is nothing to send: the time to answer what a server asks."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the connection. It may be broken, and closing twice is fine."""


class Numbered(NamedTuple):
    """One message on its way in, and its number there; None where the far end has none."""

    number: int | None
    message: Carried


class Batch(NamedTuple):
    """
    Messages in order of their numbers, and what to confirm them by.

    *producer* tells this stream from any other, also from one that is made at the same place later.
    """

    producer: str
    messages: Sequence[Numbered]
    receipt: Any = None


class Source(abc.ABC):
    """Where messages come from. Made without connecting; after `Unreachable` a bridge closes it and makes another."""

    @abc.abstractmethod
    def begin(self, known: Callable[[str], int | None]) -> None:
        """
        Connect, and stand behind what the queue has.

        Args:
            known: the number of the last message that the queue has of a producer, None when it has none.

        Raises:
            NotFound: there is no such stream.
            Unreachable, Refused: as for a target.
        """

    @abc.abstractmethod
    def read(self, timeout: float) -> Batch | None:
        """
        What comes next, up to `BATCH` messages; none while something is on its way, and None when there is nothing in
        time. Some of it may be known.

        Raises:
            Unreachable: the server is away, or the stream was made anew.
        """

    @abc.abstractmethod
    def confirm(self, batch: Batch) -> None:
        """Tell the far end that the queue has these. It may be lost on the way."""

    def give_back(self, batch: Batch) -> None:  # noqa: B027  # most come again by themselves
        """Called for what was read and not put because the bridge ends, where that would be lost."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the connection. It may be broken, and closing twice is fine."""
