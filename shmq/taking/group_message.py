"""A message as a member of a group has it, and the batch it was handed out with, which says who holds it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from shmq import _native
from shmq.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable


class Holder(Protocol):
    """Whose account a message is on."""

    def ack(self, message: GroupMessage) -> None:
        """As `GroupMessage.ack`."""

    def finish_one(self, message: GroupMessage) -> None:
        """Acknowledge it in memory."""

    def persist(self) -> None:
        """Have that on the disk, where it has to be there when an acknowledgement returns."""

    def extend(self, message: GroupMessage, seconds: float) -> None:
        """As `GroupMessage.extend`."""


class Returner(Protocol):
    """By whom a message comes again, or goes elsewhere."""

    def nack(self, message: GroupMessage, delay: float) -> None:
        """As `GroupMessage.nack`."""

    def reject(self, message: GroupMessage, reason: object) -> None:
        """As `GroupMessage.reject`."""


class Batch:
    """Messages handed out together: where the core keeps what finishes them, and whose they are."""

    __slots__ = ("claimed", "holder", "member", "messages", "over", "pid", "returner", "taken", "whole")

    def __init__(self, member: object, holder: Holder, returner: Returner, limit: int) -> None:
        """Of up to so many messages, none of which is claimed yet, of that member, which lives as long as they do."""
        self.member = member
        self.holder = holder
        self.returner = returner
        self.taken = _native.taken_array(limit)
        self.pid = os.getpid()
        self.claimed = 0
        self.over = bytearray(limit)
        """Of each message, whether its holder has ended it."""
        self.messages: tuple[GroupMessage, ...] = ()  # not the list that was returned, which is its receiver's
        self.whole = False
        """Whether none of them was settled alone."""

    def forget(self) -> None:
        """They are not settled together any more."""
        self.messages, self.whole = (), False


class GroupMessage(Message):
    """A message as a member of a group has it. `attempts` counts how often it was handed out, in all processes."""

    __slots__ = ("_at", "_batch")

    def __init__(
        self,
        batch: Batch,
        at: int,
        chunk: Any,
        index: int,
        record: int,
        place: int,
        decode: Callable[[Any], Any] | None,
        attempts: int,
    ) -> None:
        """Number *at* of its batch."""
        self.index = index
        self.attempts = attempts
        self._chunk = chunk
        self._record = record
        self._place = place
        self._decode = decode
        self._acknowledge = None
        self._fields = None
        self._batch = batch
        self._at = at

    def ack(self) -> None:
        """
        Say that this message is finished: it will not come again.

        What its holder has ended already (by `ack`, `nack` or `reject`) stays as it is, and this does nothing: so a
        verb that was interrupted can be repeated.

        Raises:
            LeaseLost: it was handed out again meanwhile, to whomever; nothing was changed.
            Closed: its consumer was closed; the message is handed out again.
            Forked: it was handed to the parent process.
        """
        self._batch.holder.ack(self)

    def nack(self, delay: float = 0.0) -> None:
        """
        Give it back: it comes again behind what is in the queue now, to whoever comes first, *delay* seconds from now.

        What its holder has ended already stays as it is, as with `ack`: a nack behind an ack brings nothing back.

        Raises:
            Mismatch: the group acknowledges what it hands out (ack="auto").
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._batch.returner.nack(self, delay)

    def reject(self, reason: object = "") -> None:
        """
        Move it to the dead letters, with *reason* (words, or an exception), and finish it here.

        The traceback of the exception that is being handled goes with it. It never waits for room there, but up to ten
        seconds for the disk. What its holder has ended already stays as it is, as with `ack`. Where a signal's handler
        raises, that comes out; the letter is put soon, unless the message is still held: then nothing has happened.

        Raises:
            Full: the queue of dead letters has no room (DiskFull: nor has its disk). The message is still held, as
                before: reject it again later, or `nack` or `ack` it.
            SyncPending, SyncFailed: the letter is there, at `index` of that queue, and it is not known whether it is on
                the disk: somebody there is stopped, or the disk refuses. The message is still held: reject it again,
                which puts no second letter. Whoever acknowledges it instead leaves the letter where it is. Where
                `index` is None, nothing was put, since that disk refused before.
            Mismatch: as `nack`.
            LeaseLost, Closed, Forked: as `ack`.
            Otherwise whatever hinders opening that queue, or putting into it; the message is still held then, too.
        """
        self._batch.returner.reject(self, reason)

    def extend(self, seconds: float) -> None:
        """
        Keep it for *seconds* from now on. Needed only where the group has a lease. What its holder has ended already
        stays as it is, as with `ack`: this keeps nothing then.

        Raises:
            Mismatch: as `nack`.
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._batch.holder.extend(self, seconds)


def place_of(message: GroupMessage) -> tuple[Batch, int]:
    """The batch that it was handed out with, and which one of that it is."""
    return message._batch, message._at  # noqa: SLF001  # a user of the message has no use for it
