"""
A member's account: the messages that it was handed and has not finished, and the verbs that finish them.

The ring's word of a message says who has it, in all processes; this says which object in this process it was handed out
as. So what was handed out twice (its lease ended, and it came again) is settled only by the one that has it now, and a
verb that a signal's handler interrupts can be repeated.
"""

from __future__ import annotations

import contextlib
import os

from shmq import _native, errors, given, later
from shmq.hints import TYPE_CHECKING
from shmq.storage import ring as rings
from shmq.storage import sources

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterable
    from typing import Any

    from shmq._native import Message
    from shmq.durability import Syncer
    from shmq.locks import Lock
    from shmq.membership import Membership
    from shmq.putting.producer import Producer
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
    forwards_first: weakref.WeakMethod[Callable[[], None]]
    """Called before the first of them is forwarded. The member has this, so it must not have the member: a cycle."""
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
        self._forwarding: list[weakref.ref[object]] = []
        self._at_end: Callable[[], None] | None = None
        self._source: sources.Source | None = None
        self._syncer: Syncer | None = None

    def of_name(self, home: Directory, membership: Membership, checkpoint: _native.Checkpoint) -> None:
        """How the group acknowledges is known from now on."""
        self.home = home
        self._membership = membership
        self.control = membership.control
        self._checkpoint = checkpoint
        self.explicit = checkpoint.explicit
        self.syncs = self.explicit and home.options.durability.waits

    def in_ring(self, ring: _native.Ring, chain: Chain) -> None:
        """Nothing is held there yet."""
        self.ring, self.chain = ring, chain
        self._source = None
        self._met: set[str] = set()

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
        if self._is_forwarding() and _native.forwards(_native.taken_of(message)):
            raise errors.Busy(
                f"cannot {what} message {message.index} of {self.home.path}: another thread is just forwarding it"
            )
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
            # At once: what dies here may run a finalizer, and that has the core tell of something else.
            refused = (
                _native.error(code, f"cannot {what} message {message.index} of {self.home.path}") if code else None
            )
            # First that it is over: an ack that is interrupted, and repeated, must not say that it was lost.
            _native.over(message, code == 0 and not keeps)
            if code != 0 or not keeps:
                self.held.drop(message)
            if refused is None:
                self._count(what)
                return
            try:
                self._refuse_retired(what, message.index)
                raise refused
            finally:  # its traceback leads here, and from here to it
                del refused

    def _count(self, what: str) -> None:
        if what == "acknowledge":
            self.control.count_acked()
        elif what == "give back":
            self.control.count_nacked()

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

    # ---- forwarding
    def source(self, target: str | None = None) -> sources.Source:
        """What the group is known by where it puts what it forwards; *target* is one of these places from now on."""
        if self._source is None:
            forwards_first = self.forwards_first()
            assert forwards_first is not None  # noqa: S101  # of whoever calls
            forwards_first()
            self._source = sources.of(self.home, self.name)
        if target is not None and target not in self._source.targets:
            self._source = sources.add(self.home, self.name, target)
        return self._source

    def has_met(self, place: str) -> bool:
        """Whether it has put into that queue before."""
        return place in self._met

    def meets(self, place: str, below: int) -> None:
        """
        Before it puts into that queue for the first time, which knows that all *below* is done for good.

        Raises:
            Mismatch: it is not, as this queue has it.
        """
        if below > (head := self._checkpoint.head):
            raise errors.Mismatch(
                f"cannot forward from {self.called} of {self.home.path} to {place}: that queue was told that all "
                f"before index {below} is done, and here it is done up to {head}: this is an old copy. Have it go on "
                f"behind that, or seek() to where it is to begin anew; nothing was put"
            )
        self._met.add(place)

    def leads_to(self, message: Message, producer: Producer[Any]) -> None:
        """What is forwarded to there needs nothing more from here, as long as the group is what it is."""
        with self.lock:
            if self._source is not None and producer.place in self._met:
                _native.leads(message, self._source.incarnation, producer, producer.path)

    def forwards(self, going: weakref.ref[object]) -> None:
        """
        One more of its threads is putting what it forwards, as long as that object lives.

        Not a count: whatever interrupts that thread, and wherever, an object that only it has goes with it.
        """
        with self.lock:
            self._forwarding.append(going)

    def forwarded(self) -> None:
        """One fewer; the last one closes what was closed meanwhile."""
        end = None
        with self.lock:
            if not self._is_forwarding():
                end, self._at_end = self._at_end, None
        if end is not None:
            end()

    def _is_forwarding(self) -> bool:
        if self._forwarding:
            self._forwarding = [each for each in self._forwarding if each() is not None]
        return bool(self._forwarding)

    def closes_later(self, end: Callable[[], None]) -> bool:
        """Whether a thread is just putting what it forwards: then it calls *end* when it has done so."""
        with self.lock:
            if self._is_forwarding():
                self._at_end = end
                return True
            return False

    def begin_forward(self, message: Message, begun: set[int], deadline_ns: int = _native.FOREVER) -> bool:
        """
        It is forwarded from now on, which no lease ends: whether an earlier try may have put something.

        Its id is among those *begun* before that is so, whatever interrupts this.

        Raises:
            LeaseLost: it is not this member's any more, or was finished.
            SyncFailed, SyncPending: with SYNC: it is not on the disk, or nobody knows.
        """
        self._have_on_disk(message.index, deadline_ns)
        with self.lock:
            if not self.has(message, "forward"):
                raise errors.LeaseLost(
                    f"cannot forward message {message.index} of {self.home.path}: it was finished, or given back; "
                    "nothing was put"
                )
            begun.add(id(message))
            code = self.growing(self.ring.forward, _native.taken_of(message))
            if code != 0:
                begun.discard(id(message))
                self.held.drop(message)
                self._refuse_retired("forward", message.index)
                raise _native.error(code, f"cannot forward message {message.index} of {self.home.path}")
            return self.ring.again

    def _have_on_disk(self, index: int, deadline_ns: int) -> None:
        """
        With SYNC, what comes of a message must not outlive it in a power cut: who puts it again, as it may, makes
        another one of it, and what comes of that is put, too. It is handed out before its producer knows it synced.
        """
        if self.syncs and self._membership.control.durable() <= index:
            self._syncing().wait(None, index, deadline_ns)

    def keep_on(self, message: Message) -> None:
        """Nothing was put: it is held as before."""
        with self.lock:
            if self.ring.unforward(_native.taken_of(message)) != 0:
                self.held.drop(message)

    def end_forward(self, message: Message) -> None:
        """
        All that comes of it was put: it is finished.

        Raises:
            LeaseLost: this process lost its seat meanwhile, or retention has taken the message.
        """
        with self.lock:
            code = self.growing(self.ring.ack, _native.taken_of(message))
            _native.over(message, code == 0)
            self.held.drop(message)
            if code == 0:
                self._count("acknowledge")
            else:
                self._refuse_retired("finish", message.index)
                raise _native.error(
                    code,
                    f"cannot finish message {message.index} of {self.home.path}; what came of it was put, and is not "
                    "put twice when it comes again",
                )

    def break_forward(self, message: Message, due_ns: int) -> None:
        """Have it come again, if it is still being forwarded."""
        taken = _native.taken_of(message)
        if _native.forwards(taken):
            with self.lock:
                code = self.growing(self.ring.nack, taken, due_ns, 0)
                _native.over(message, code == 0)
                self.held.drop(message)

    def check_seat(self) -> None:
        """
        Refuse to put what others may be putting, since this process has lost its seat.

        Raises:
            LeaseLost: it has.
        """
        if not self._membership.member.is_seated():
            raise errors.LeaseLost(
                f"cannot forward from {self.home.path}: this process has lost its seat there (somebody closed or "
                "unmapped its lock), and what it was handed goes to others; nothing was put"
            )

    def persist(self) -> None:
        """With Durability.SYNC an explicit ack is on the disk when it returns."""
        if self.syncs and not self.closed:
            self._syncing().acknowledge(self.name, self._checkpoint)

    def _syncing(self) -> Syncer:
        if self._syncer is None:
            later.ready("shmq.durability")
            from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

            self._syncer = Syncer(self.home, self._membership)
        return self._syncer


def account_of(message: Message) -> Account:
    """Of the member that was handed it."""
    account: Account = _native.parts(message)[4]._account  # noqa: SLF001  # of ours
    return account


def give_back_unseen(messages: Iterable[Message]) -> None:
    """
    Give back *messages* that a consumer which acknowledges was handed, and that nobody has seen: no attempt is counted.
    Those that it does not hold any more are passed over.
    """
    for message in messages:
        account = account_of(message)
        with contextlib.suppress(errors.LeaseLost):
            account.settle(message, "give back", account.ring.undo)
