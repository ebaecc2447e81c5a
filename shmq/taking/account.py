"""
A member's account: the messages that it was handed and has not finished, and the verbs that finish them.

The ring's word of a message says who has it, in all processes; this says which object in this process it was handed out
as. So what was handed out twice (its lease ended, and it came again) is settled only by the one that has it now, and a
verb that a signal's handler interrupts can be repeated.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shmq import _native, errors, given, later
from shmq.storage import ring as rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmq._native import Message
    from shmq.durability import Syncer
    from shmq.locks import Lock
    from shmq.membership import Membership
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory
    from shmq.taking.joining import Asked

_FOREVER = 1e9
"""Seconds beyond which nobody can tell whether a lease ended."""


class Account:
    """
    What one member of a group was handed.

    Attributes:
        held: the messages that it has and has not finished.
        closed: whether the member has left.
        explicit: whether messages are finished by their verbs, and not by being handed out.
        ring: the member's seat in the ring.
        lock: what the member's threads take turns by.
        called: the group, or the lone consumer, as messages to people say it.
        member: who has it open, likewise.
    """

    home: Directory
    explicit: bool
    ring: _native.Ring
    chain: Chain

    def __init__(self, asked: Asked, lock: Lock) -> None:
        """Of a member that is to be opened as *asked*."""
        self.name = asked.name
        self.called = asked.called
        self.member = asked.member
        self.lock = lock
        self.held = _native.Held()
        self.closed = False
        self._syncer: Syncer | None = None

    def of_name(self, home: Directory, membership: Membership, checkpoint: _native.Checkpoint) -> None:
        """How the group acknowledges is known from now on."""
        self.home = home
        self._membership = membership
        self._checkpoint = checkpoint
        self.explicit = checkpoint.explicit
        self._syncs = self.explicit and home.options.durability.kind == "sync"

    def in_ring(self, ring: _native.Ring, chain: Chain) -> None:
        """Nothing is held there yet."""
        self.ring, self.chain = ring, chain

    def growing(self, call: Callable[..., int], *arguments: Any) -> int:
        """What that call of the ring answers, once as much of the ring is mapped as it needs."""
        code = call(*arguments)
        while code == _native.GROW:
            rings.grow(self.home, self.name, self.ring)
            code = call(*arguments)
        return code

    # ---- what is held
    def hold(self, messages: list[Message]) -> None:
        """They were handed out."""
        if self.explicit:
            for message in messages:
                self.held.add(message)

    def give_back_all(self, others: Iterable[Message]) -> None:
        """What is held goes to the others of the group, and those as well."""
        for message in others:
            self.growing(self.ring.give_back, _native.taken_of(message))
        while (held := self.held.first()) is not None:
            self.growing(self.ring.give_back, _native.taken_at(held))
            self.held.drop_first()

    def check_mine(self, message: Message, what: str) -> None:
        """
        Refuse *what* for a message of the parent process, or of a member that has left.

        Raises:
            Forked, Closed: it is one.
        """
        pid = _native.parts(message)[-1]
        if os.getpid() != pid:
            raise errors.Forked(
                f"cannot {what} message {message.index} of {self.home.path}: it was handed to the parent process {pid}"
            )
        if self.closed:
            raise errors.Closed(
                f"cannot {what} message {message.index}: {self.member} of {self.home.path} was closed, and the "
                "message comes again"
            )

    def has(self, message: Message, what: str) -> bool:
        """
        Whether this member has it; False when it was ended already, or finished by being handed out.

        Raises:
            Mismatch: what is asked for means nothing where everything is finished by being handed out.
            LeaseLost: it was handed out again, to this member or another, or the group was moved.
        """
        self.check_mine(message, what)
        if not self.explicit and what != "acknowledge":
            raise errors.Mismatch(
                f"cannot {what} message {message.index} of {self.home.path}: {self.called} acknowledges what it "
                'hands out (ack="auto"), so it is finished; a group that may have it again is made with ack="explicit"'
            )
        if _native.is_over(message) or not self.explicit:
            self.held.drop(message)  # if a signal's handler kept us from that
            return False
        if not self.held.has(message):
            raise errors.LeaseLost(
                f"cannot {what} message {message.index} of {self.home.path}: it was handed out again meanwhile, or "
                "given back"
            )
        return True

    # ---- finishing
    def ack(self, message: Message) -> None:
        """As `Message.ack`."""
        try:
            self.finish_one(message)
        except errors.LeaseLost:
            self.persist()
            raise
        self.persist()

    def finish_one(self, message: Message) -> None:
        """Acknowledge it in memory."""
        self.settle(message, "acknowledge", self.ring.ack)

    def finish(self, messages: Iterable[Message]) -> None:
        """
        Acknowledge them in memory.

        Raises:
            LeaseLost: one was given to somebody else meanwhile; the others are finished.
        """
        lost = None
        for message in messages:
            try:
                self.finish_one(message)
            except errors.LeaseLost as problem:
                lost = problem
        if lost is not None:
            raise lost

    def finish_what_is_left(self, messages: list[Message]) -> list[Message]:
        """
        Finish these; those that are finished with that. The others were lost with their leases, and come again.

        Raises:
            LeaseLost: all of them were.
        """
        try:
            self.finish(messages)
        except errors.LeaseLost:
            messages = [message for message in messages if _native.is_over(message)]
            if not messages:
                raise
        return messages

    def settle(self, message: Message, what: str, call: Any, *, keeps: bool = False) -> None:
        """
        Do *what* to it, which *call* of the ring does.

        Raises:
            LeaseLost: it was given to somebody else meanwhile.
            Closed, Forked, Mismatch: as `has`.
        """
        with self.lock:
            if not self.has(message, what):
                return
            code = self.growing(call, _native.taken_of(message))
            # First that it is over: an ack that is interrupted, and repeated, must not say that it was lost.
            _native.over(message, code == 0 and not keeps)
            if code != 0 or not keeps:
                self.held.drop(message)
            if code != 0:
                self._refuse_retired(what, message.index)
                raise _native.error(code, f"cannot {what} message {message.index} of {self.home.path}")

    def _refuse_retired(self, what: str, *indexes: int) -> None:
        """Say so, if what was lost was not given to anybody else."""
        first = self.chain.first_index()
        retired = [index for index in indexes if index < first]
        if retired:
            raise errors.LeaseLost(
                f"cannot {what} message {retired[0]} of {self.home.path}: it was retired before it was finished (what "
                f"comes before {first} has gone, retention={self.home.options.retention!r}); nobody else has it"
            )

    def extend(self, message: Message, seconds: float) -> None:
        """As `Message.extend`."""
        seconds = given.seconds("seconds", seconds)
        ends = _native.boottime_ns() + int(min(seconds, _FOREVER) * 1e9)
        self.settle(message, "keep", lambda taken: self.ring.extend_lease(taken, ends), keeps=True)

    def persist(self) -> None:
        """With Durability.SYNC an explicit ack is on the disk when it returns."""
        if self._syncs and not self.closed:
            if self._syncer is None:
                later.ready("shmq.durability")
                from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

                self._syncer = Syncer(self.home, self._membership)
            self._syncer.acknowledge(self.name, self._checkpoint)
