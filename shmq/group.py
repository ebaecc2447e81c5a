"""
A group: any number of processes share one consumer name, and every message goes to one of them.

The ring (cffi_build/src/ring.c) says who has what; a claim and an acknowledgement are one CAS each. With ack="auto" a
message is finished when it is handed out (at most once), with "explicit" when it is acknowledged (at least once). What
a dead member held goes to the others at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Never, NoReturn

from shmq import _native, backlog, codec, ending, errors, group_options, habits, later, locks, names
from shmq import given as _given
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.access import Access
from shmq.dead import Move, Moving, check_paths, why
from shmq.loan import Loan
from shmq.message import Message, no_message, payloads_of
from shmq.session import Handle
from shmq.storage import acks, space, warm
from shmq.storage import ring as rings
from shmq.storage.directory import CONSUMERS, check_consumer_name
from shmq.walk import SPINS, Walk, deadline_of, sooner
from shmq.worker import Worker

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Sequence

    from shmq.durability import Syncer
    from shmq.session import Session

_BATCH = 1024
_SNAPSHOT_EVERY, _SNAPSHOT_EVERY_PROCESS = 1.0, 10.0
"""Seconds between two snapshots of what is done, which count after a power cut; with Durability.PROCESS."""
_FOREVER = 1e9
"""Seconds beyond which nobody can tell whether a lease ended."""
_TRY_AGAIN_NS = 1_000_000_000
"""After a move to another queue that failed."""
_ASIDE_SECONDS = 0.05
"""How long messages that are to be moved wait for more of them, so that one sync of the other queue serves many."""


class GroupWalk(Walk):
    """A member's own way through the chunks; the ring says which messages are taken already."""

    ring: _native.Ring
    _name: str
    _stopped: int
    """Why there is no going on to the next chunk, as `claim` answers it."""

    def lead_group(self, name: str, ring: _native.Ring) -> None:
        """Walk for that group, whose ring this is."""
        self._name, self.ring = name, ring

    def _begin_at(self, first: int) -> None:
        self._start = first
        lost = self.pass_retired(first)
        if lost and not self.only_finished_goes():
            raise self._gone(lost, first)

    def pass_retired(self, first: int) -> int:
        """Have the group go on at *first*, since nothing before it is there any more: how much of that it loses."""
        while (lost := self.ring.retire(first)) == _native.GROW:
            rings.grow(self.home, self._name, self.ring)
        return lost

    def _gone(self, lost: int, first: int) -> errors.Gone:
        self.ring.count_retired(lost)
        return errors.Gone(
            f"{lost} messages of {self.home.path} were retired before group {self._name!r} had finished them; the next "
            f"get goes on at {first}",
            first,
        )

    def _advance(self) -> bool:
        """Go on in the next chunk; False while there is none, or while indexes between the two cannot be passed yet."""
        if self.chunk is None:
            return self._find()
        end = self.chunk.base + int(self.reader.ordinal)
        try:
            following = self.chain.after(self.chunk)
        except errors.Gone as gone:
            first = self.chain.first_index() if gone.first_index is None else gone.first_index
            lost = self.pass_retired(first)
            self.seek(first)
            if not lost:  # others have finished what was retired, or were told
                return self._find()
            raise self._gone(lost, first) from None
        if following is None or (following.base > end and not self._pass(end, following.base)):
            return False
        self._enter(following)
        del following
        self.ring.floor()
        self.membership.forget_retired()
        warm.settle()  # also where somebody else retires: what stays locked here, nobody can use again
        space.retire(self.home, self.chain, self.membership.control)
        return True

    def _pass(self, index: int, following: int) -> bool:
        """Whether indexes that will never be messages are passed; if not, `claim` tells why."""
        code = self.ring.pass_gap(index, following)
        if code != 0:
            self._stopped = code
        return code == 0

    def _pass_damage(self) -> bool:
        """Go on behind what is damaged, for the whole group; False when that must wait for what is before it."""
        assert self.chunk is not None  # noqa: S101  # it was read from
        damage = _native.resync(self.chunk, self.reader)
        if damage is None:
            return self._leap(self.chunk.sequence, self.chunk.base + int(self.reader.ordinal))
        if not self._pass(self.chunk.base + damage.ordinal, self.chunk.base + damage.end_ordinal):
            return False
        return super()._pass_damage()

    def _leap(self, sequence: int, index: int) -> bool:
        for following, base in self.chain.listed():
            if following > sequence and base >= index:
                if not self._pass(index, base):
                    return False
                with contextlib.suppress(errors.Corrupt, FileNotFoundError):
                    chunk = self.chain.open(following, base)
                    self._enter(chunk, start=max(self._start, base), skipped=self._damaged(index, base))
                    return True
        return False

    def claim(self, limit: int, spins: int, taken: Any) -> int:
        """Claim up to *limit* messages that nobody has had: how many, or EMPTY, WAITING, EDGE or GROW."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        self._stopped = _native.EMPTY
        while True:
            if self.chunk is None and not advance():
                return self._stopped
            count = self.ring.take(self.chunk, self.reader, limit, spins, taken)  # type: ignore[arg-type]
            if count > 0:
                return count
            if count == _native.ROLL:
                if advance():
                    continue
                return self._stopped
            if count == _native.CORRUPT and self.skip_corrupt:
                self._stopped = _native.EDGE
                if self._pass_damage():
                    continue
                return self._stopped
            if count in (_native.EMPTY, _native.WAITING, _native.EDGE, _native.GROW):
                return count
            raise _native.error(count, f"cannot read {self.home.path}")

    def look_ahead(self) -> int:
        """Whether `claim` would have something, or an error: 1, or 0, or GROW. Nothing is handed out."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        self._stopped = _native.EMPTY
        while self.chunk is not None or advance():
            code = self.ring.glance(self.chunk, self.reader)  # type: ignore[arg-type]
            if code == _native.ROLL:
                if not advance():
                    break
            elif code == _native.CORRUPT and self.skip_corrupt:
                if not self._pass_damage():
                    break
            elif code in (_native.EMPTY, _native.WAITING, _native.EDGE):
                self._stopped = code
                break
            else:
                return int(_native.GROW) if code == _native.GROW else 1
        return int(_native.GROW) if self._stopped == _native.GROW else 0  # before indexes that cannot be passed yet


class _Batch:
    """Messages handed out together: where the core keeps what finishes them, and whose they are."""

    __slots__ = ("claimed", "group", "messages", "pid", "taken", "whole")

    def __init__(self, group: GroupConsumer, limit: int) -> None:
        self.group = group
        self.taken = _native.taken_array(limit)
        self.pid = os.getpid()
        self.claimed = 0
        self.messages: tuple[GroupMessage, ...] = ()  # not the list that was returned, which is its receiver's
        self.whole = False
        """Whether none of them was settled alone."""

    def forget(self) -> None:
        """They are not settled together any more."""
        self.messages, self.whole = (), False


class GroupMessage(Message):
    """A message as a member of a group has it. `attempts` counts how often it was handed out, in all processes."""

    __slots__ = ("_at", "_batch", "_over")

    def __init__(
        self,
        batch: _Batch,
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
        self._over = False  # its holder has ended it

    @property
    def _group(self) -> GroupConsumer:
        return self._batch.group

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
        self._group.ack(self)

    def nack(self, delay: float = 0.0) -> None:
        """
        Give it back: it comes again behind what is in the queue now, to whoever comes first, *delay* seconds from now.

        What its holder has ended already stays as it is, as with `ack`: a nack behind an ack brings nothing back.

        Raises:
            Mismatch: the group acknowledges what it hands out (ack="auto").
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._group._nack(self, delay)  # noqa: SLF001

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
        self._group._reject(self, reason)  # noqa: SLF001

    def extend(self, seconds: float) -> None:
        """
        Keep it for *seconds* from now on. Needed only where the group has a lease. What its holder has ended already
        stays as it is, as with `ack`: this keeps nothing then.

        Raises:
            Mismatch: as `nack`.
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._group._extend(self, seconds)  # noqa: SLF001


class GroupConsumer(Handle):
    """
    One member of a group. Made by `Queue.consumer(..., group=True)`; safe to share between threads.

    In a forked child it becomes a member of its own at first use; the messages it held are the parent's.

    Attributes:
        name: the group's name.
        ack_mode: "auto" or "explicit".
        options: what the group was made with.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        ack: str | None,
        start: str | float | datetime.datetime,
        given: dict[str, Any],
        window: int | None = None,
        skip_corrupt: bool = False,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        names.check_ack(ack)
        self.name = name
        self._ack = ack
        self._session = session
        self._given = group_options.check_options(given)
        group_options.check_order(self._given, explicit=ack != "auto")
        self._window = group_options.check_window(window)
        self._skip_corrupt = skip_corrupt
        self._lock = locks.Lock()
        self._moving_lock = locks.Lock()
        """Held by whoever moves messages to other queues, which may take time; taken before the other one."""
        self._closed = False
        self._loan = Loan()
        self._decode = session.codec.decode
        self._open(start)

    # ---- opening
    def _open(self, start: str | float | datetime.datetime) -> None:
        self._pid = os.getpid()
        self._held: dict[int, GroupMessage] = {}
        self._skipped = 0
        self._look_again_ns: int | None = None
        self._at_end: set[int] = set()
        """Threads that wait in here for the end of the stream."""
        self._gone = 0  # messages that retention took, and nobody was told of yet
        self._last = int(_native.EMPTY)
        self._aside: list[Move] = []
        self._copied: list[Move] = []
        """Of what was set aside: copied, though perhaps not to the disk. The mover tries again."""
        self._timer: Worker | None = None
        self._timer_over = False
        self._syncer: Syncer | None = None
        self._name_lock: _native.Lock | None = None
        self._opened = False
        try:
            self._borrow()
            self._enter(start)
        except BaseException:
            self._close()
            raise

    def _enter(self, start: str | float | datetime.datetime) -> None:
        process = self._home.options.durability.kind == "process"
        self._snapshot_every = _SNAPSHOT_EVERY_PROCESS if process else _SNAPSHOT_EVERY
        self._snapshot_at = time.monotonic() + self._snapshot_every
        self._enter_name(start)
        self._moving = Moving(self._session, self.name, self.options)
        self._enter_ring()

    def _enter_name(self, start: str | float | datetime.datetime) -> None:
        file = f"{self.name}.checkpoint"
        check_paths(self._session, self.name, self._given, named_here=self._given)
        if self.name not in self._home.consumer_names():
            with self._home.admin():
                if self.name not in self._home.consumer_names():
                    group_options.make(
                        self._session,
                        self.name,
                        explicit=self._ack == "explicit",
                        start=start,
                        options=self._given,
                        window=self._window,
                    )
        self._membership.control.recount()  # each time: whoever made it may have been killed before that
        fd, size = self._home.open(self._home.consumers, file, writable=True)
        with fd:
            path = f"{self._home.path}/{CONSUMERS}/{file}"
            self._checkpoint = _native.Checkpoint(fd, size, self._home.queue_id, self.name, path)
            if not self._checkpoint.group:
                raise errors.Mismatch(
                    f"cannot open consumer {self.name!r} of {self._home.path} as a group: it was made without "
                    "group=True, for one process at a time; use another name"
                )
            self.options = self._agreed(self._checkpoint)
            self.ack_mode: str = self.options["ack"]
            self._explicit = self._checkpoint.explicit
            self._syncs = self._explicit and self._home.options.durability.kind == "sync"
            self._name_lock = _native.Lock(fd)
            self._share_name(self._name_lock, fd)

    def _agreed(self, checkpoint: _native.Checkpoint) -> dict[str, Any]:
        stored = rings.options(self._home, self.name)
        try:
            group_options.check_order(group_options.check_options(stored), explicit=checkpoint.explicit)
        except (ValueError, TypeError) as problem:
            raise errors.Corrupt(
                f"cannot open {self._home.path}/{CONSUMERS}/{self.name}.group: {problem}; "
                f"drop_consumer({self.name!r}) removes it"
            ) from None
        stored["ack"] = "explicit" if checkpoint.explicit else "auto"
        given = self._given if self._ack is None else {**self._given, "ack": self._ack}
        for name, mine in given.items():
            if stored.get(name) != mine:
                raise errors.Mismatch(
                    f"cannot join group {self.name!r} of {self._home.path} with {name}={mine!r}: "
                    f"it was made with {name}={stored.get(name)!r}; leave the option out, or use another name"
                )
        check_paths(self._session, self.name, stored, named_here=self._given)
        return stored

    def _share_name(self, lock: _native.Lock, fd: int) -> None:
        if not names.patiently(self._home, lock.share):
            raise errors.Busy(f"group {self.name!r} of {self._home.path} is being dropped, renamed or moved")
        names.check_not_dropped(self._home, self.name, fd, "group")

    def _enter_ring(self) -> None:
        memory = rings.map_ring(self._home, self.name, writable=True)
        rings.fresh(self._home, self.name, memory, self._checkpoint)
        self._lease_ns = int(min(self.options.get("lease") or 0, _FOREVER) * 1e9)
        self._ring = _native.Ring(
            memory,
            self._home.queue_id,
            self._checkpoint,
            self._membership.member,
            f"{self._home.path}/{CONSUMERS}/{self.name}.ring",
            lease_ns=self._lease_ns,
            finish=not self._explicit,
            keep_expired=bool(self.options.get("expire_to")),
        )
        if self._window is not None and self._window != (window := self._ring.figures().window):
            raise errors.Mismatch(
                f"cannot join group {self.name!r} of {self._home.path} with window={self._window}: it was made with "
                f"window={window}; leave the option out, or use another name"
            )
        dropped = self._dropped("control.shmq", self._membership.control.bounds().dropped)
        self._dropped(f"{CONSUMERS}/{self.name}.ring", self._ring.figures().dropped_to)
        while self._ring.join() == _native.GROW:
            rings.grow(self._home, self.name, self._ring)
        if self._checkpoint.written_floor() < dropped:  # what a reboot may have brought back
            self._growing(self._ring.drop, dropped)
        self._walk = GroupWalk(self._home, self._membership, self._checkpoint)
        self._walk.lead_group(self.name, self._ring)
        self._walk.skip_corrupt = self._skip_corrupt
        self._walk.seek(self._checkpoint.head)
        self._access = Access(self._home, self._membership, self._decode)
        self._membership.members_of(self.name).handles.add(self)
        self._opened = True

    def _dropped(self, file: str, mark: int) -> int:
        """The mark, which what will be put lies behind."""
        end = self._session.next_index
        if mark > end:
            raise errors.Corrupt(
                f"cannot join group {self.name!r} of {self._home.path}: {file} says that all before {mark} is dropped, "
                f"and the queue ends before {end}"
            )
        return mark

    # ---- getting
    def get(self, timeout: float | None = None, *_: Never, **keywords: Never) -> GroupMessage:
        """
        The next message that nobody else has. With ack="explicit", call its `ack()` when it is finished.

        Args:
            timeout: seconds to wait; None for as long as it takes, 0 for not at all.

        Raises:
            Empty: nothing came in time.
            ShutDown: the queue was shut down, and nothing is left for this group.
            Closed: this consumer was closed.
            Corrupt: the next message is damaged.
            Gone: messages were retired before the group came to them; the next call goes on behind them.
        """
        if _ or keywords:
            _given.no_block("get", _, keywords)
        message: GroupMessage = self._get(1, timeout)[0]
        return message

    def get_many(self, limit: int, timeout: float | None = None) -> list[GroupMessage]:
        """
        Between 1 and *limit* messages: those that are there now, or the first that comes.

        Args and Raises: as `get`.
        """
        return self._get(min(_given.whole("limit", limit, 1), _BATCH), timeout)

    def take(self, timeout: float | None = None) -> Any:
        """
        The next payload, decoded, acknowledged at once.

        Args: as `get`.

        Raises:
            LeaseLost: its lease ended before that; it comes again. Of several, those that were not lost are returned.
            Otherwise as `get`.
        """
        return self._get(1, timeout, payloads=True)[0]

    def take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """
        Between 1 and *limit* payloads, acknowledged at once.

        Args and Raises: as `take`.
        """
        return self._get(min(_given.whole("limit", limit, 1), _BATCH), timeout, payloads=True)

    def take_arrow(
        self,
        limit: int,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        """
        Between 1 and *limit* messages as one pyarrow record batch, acknowledged at once: those that are there now, or
        the first that comes. Payloads are the bytes as they were put, whatever the codec.

        Args:
            columns: as in `Queue.read_arrow`, and "attempts" (uint16).
            max_bytes: of keys, payloads and headers, 16 MiB by default: nothing more is taken once they are reached.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            Otherwise as `take`.
        """
        later.ready("shmq.arrow")
        from shmq import arrow  # noqa: PLC0415  # only who uses it pays for it

        _given.timeout(timeout)
        wanted = arrow.check_columns(columns, attempts=True)
        arrow.plan(wanted, rows=arrow.check_rows("limit", limit), max_bytes=max_bytes)  # refuses what means nothing
        messages = self._get(1, timeout)
        try:
            self._gather(messages, limit, arrow.BYTES if max_bytes is None else max_bytes)
            batch = arrow.of_messages(wanted, messages)
        except BaseException:
            for message in messages if self._explicit else ():
                with contextlib.suppress(errors.LeaseLost):
                    self._settle(message, "give back", self._ring.give_back)
            raise
        if self._explicit:
            kept = self._still_had(messages)
            self._persist()
            return batch if len(kept) == len(messages) else arrow.of_messages(wanted, kept)
        return batch

    def _still_had(self, messages: list[GroupMessage]) -> list[GroupMessage]:
        """
        Finish these; those that are finished with that. The others were lost with their leases, and come again.

        Raises:
            LeaseLost: all of them were.
        """
        try:
            self._finish(tuple(messages))
        except errors.LeaseLost:
            messages = [message for message in messages if message._over]  # noqa: SLF001
            if not messages:
                raise
        return messages

    def _gather(self, messages: list[GroupMessage], limit: int, most: int) -> None:
        """More messages that are there now, about as many as have *most* bytes with those."""
        size = largest = messages[0].weight
        while len(messages) < limit and size < most:
            some = min(limit - len(messages), _BATCH, max((most - size) // (8 * largest), 1))
            batches: list[_Batch] = []
            try:
                more, _ = self._look(batches, some, 0, idle=False, payloads=False)
            except errors.ShmqError:  # the next call meets it again
                return
            except BaseException:
                with self._lock:
                    for batch in batches:
                        self._undo(batch, some)
                raise
            if not more:
                return
            weights = [message.weight for message in more]
            size, largest = size + sum(weights), max(largest, *weights)
            messages += more

    def _has_something(self) -> bool:
        """Whether a get would answer at once: with a message, or with why there will be none."""
        self._check_usable()
        if self._ended() is not None:
            return True
        while True:
            with self._lock:
                self._check_usable()
                code = self._growing(self._has_fresh_or_back)
            if code != _native.TO_BE_MOVED:
                return code != 0
            if self._moves_what_is_left():
                return True

    def _moves_what_is_left(self) -> bool:
        """Move one that nobody is handed any more, as a get would on its way; whether another came meanwhile."""
        batches: list[_Batch] = []
        try:
            found, *_ = self._look_once(batches, 1, 0, idle=True, payloads=False)
            self._move_aside()
        except errors.ShmqError:
            raise
        except BaseException:
            self._give_back(batches)
            raise
        if found:  # it was only looked for
            self._give_back(batches)
        return bool(found)

    def _give_back(self, batches: list[_Batch]) -> None:
        with self._lock:
            for batch in batches:
                self._undo(batch, 1)

    def _has_fresh_or_back(self) -> int:
        if self._has_fresh():
            return 1
        code, self._look_again_ns = self._ring.glance_back(self.options.get("max_attempts") or 0)
        return code

    def _has_fresh(self) -> bool:
        """Whether there is something that nobody has had."""
        code = self._growing(self._walk.look_ahead)
        if self._walk._stopped == _native.EDGE:  # noqa: SLF001
            self._ring.holds(len(self._held), None)
        return code != 0

    def _due_ns(self) -> int | None:
        """When to look again, as it was found by the last look; since boot."""
        return self._look_again_ns

    def _waited(self) -> None:
        """A wait for several, in which this one was looked at, has ended."""
        self._goes_on()

    def peek(self) -> Message | None:
        """
        The next message that nobody has, without taking it; None when there is none.

        What waits for its time, or was given back, is not looked at. Another member may take it at any moment.
        """
        with self._lock:
            self._check_usable()
            if self.options.get("ordered_by"):  # what waits for its key is known when a walker has met it
                self._has_fresh()
            index, end = self._ring.peek(0), self._access.next_index()
            while 0 <= index < end:
                with contextlib.suppress(IndexError):  # padding, or not committed yet
                    message = self._access.message(index)
                    if not message.expired and message.due_ns <= time.time_ns():
                        return message
                index = self._ring.peek(index + 1)
            return None

    def _get(self, limit: int, timeout: float | None, *, payloads: bool = False) -> list[Any]:
        found = self._wait_for(limit, timeout, payloads=payloads)
        if found.__class__ is not list:  # no call, behind which a signal's handler could keep it from who asked
            try:
                raise found  # type: ignore[misc]
            finally:  # its traceback leads here, and from here to it
                del found
        return found

    def _wait_for(self, limit: int, timeout: float | None, *, payloads: bool) -> list[Any] | Exception:
        """What there is, or why there will be nothing. What an exception keeps from who asked goes back."""
        batches: list[_Batch] = []
        try:
            try:
                return self._wait(batches, limit, timeout, payloads=payloads)
            finally:
                self._goes_on()
        except errors.ShmqError:
            raise
        except BaseException:
            with self._lock:
                for batch in batches:
                    self._undo(batch, limit)
            raise

    def _wait(
        self, batches: list[_Batch], limit: int, timeout: float | None, *, payloads: bool
    ) -> list[Any] | Exception:
        deadline = deadline_of(timeout)
        self._check_usable()
        found, _ = self._look(batches, limit, SPINS if timeout != 0 else 0, idle=False, payloads=payloads)
        while not found:
            # Not under the lock: other threads acknowledge while this one sleeps.
            seen = self._membership.member.wait_begin()
            found, due = self._look(batches, limit, 0, idle=True, payloads=payloads)
            if found:
                break
            reason = self._ended()
            if reason is not None:
                return reason
            if deadline >= 0 and _native.monotonic_ns() >= deadline:
                raise errors.Empty(self._nothing())
            try:
                self._membership.sleep(seen, sooner(deadline, due))
            except OSError:
                if not self._closed:  # by another thread, and with it the last handle of this process
                    raise
            found, _ = self._look(batches, limit, SPINS, idle=False, payloads=payloads)
        return found

    def _look(
        self, batches: list[_Batch], limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any], int | None]:
        """
        What is there for this member now, and when to look again (since boot) for what is due by then.

        What is to be moved to another queue is set aside on the way; nothing is there when nothing is behind that.
        """
        while True:
            found, due, more = self._look_once(batches, limit, spins, idle=idle, payloads=payloads)
            if found:
                if self._aside:
                    self._move_soon()
                return found, due
            if self._aside and (not more or len(self._aside) >= _BATCH):
                self._move_aside()
            elif not more:
                return found, due

    def _look_once(
        self, batches: list[_Batch], limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any], int | None, bool]:
        """As `_look`, and whether there was something, though not for this member."""
        with self._lock:
            self._check_usable()
            self._tell_gone()
            if time.monotonic() >= self._snapshot_at:
                self._snapshot()
            batches[:] = [batch := _Batch(self, limit)]
            try:
                found, due = self._claim(batch, limit, spins, idle=idle, payloads=payloads)
            except BaseException:
                self._undo(batch, limit)
                raise
            if found is None:
                rings.grow(self._home, self.name, self._ring)
            return found or [], due, found is None or batch.claimed > len(found)

    def _retired(self, finished: bool) -> None:
        """One came back, or was due, after retention had taken it: all that went with it is told together."""
        lost = finished + self._walk.pass_retired(self._walk.chain.first_index())
        self._ring.count_retired(lost)
        self._gone += lost

    def _tell_gone(self) -> None:
        """Say once how many messages came back, or were due, or waited, after retention had taken them."""
        if self._gone:
            gone, self._gone = self._gone, 0
            which = "a message" if gone == 1 else f"{gone} messages"
            raise errors.Gone(
                f"{which} of {self._home.path} would come again to group {self.name!r}, but what comes before "
                f"{(first := self._walk.chain.first_index())} was retired; the next get goes on",
                first,
            )

    def _claim(
        self, batch: _Batch, limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any] | None, int | None]:
        """As `_look`; None when the side table must grow first."""
        count, due = self._ring.retake(limit, batch.taken, idle=idle)
        if count > 0:
            batch.claimed = count
            messages = self._again(batch, count)
            return (self._payloads(messages) if payloads else messages), due
        if count != _native.GROW:
            count = self._last = self._walk.claim(limit, 0 if due is not None else spins, batch.taken)
            if count == _native.EDGE:
                due = self._ring.holds(len(self._held), due)
        if count == _native.GROW:
            return None, due
        batch.claimed = max(count, 0)
        return (self._fresh(batch, count, payloads=payloads) if count > 0 else []), due

    def _undo(self, batch: _Batch, limit: int) -> None:
        """Interrupted between claiming and handing out: what nobody was handed goes back."""
        # Not what was set aside: it is marked, and perhaps copied already.
        aside = {move.message._at for move in self._aside if move.message._batch is batch}  # noqa: SLF001
        for at, (index, _, _, word, *_) in enumerate(_native.taken_rows(batch.taken, limit)):
            if word and self._explicit and at not in aside:
                self._held.pop(index, None)
                self._growing(self._ring.undo, batch.taken + at)
        self._move_soon()

    def _fresh(self, batch: _Batch, count: int, *, payloads: bool) -> list[Any]:
        """What was claimed just now, all in one chunk; as *payloads* it is finished at once."""
        chunk, decode = self._walk.chunk, self._decode
        rows = _native.taken_rows(batch.taken, count)
        if payloads and not any(row[6] for row in rows):
            memory = chunk.map  # type: ignore[union-attr]
            data = [memory[(at := row[1] >> LENGTH_BITS) : at + (row[1] & LENGTH_MASK)] for row in rows]
            payload = data
            if decode is not None:
                payload = self._decoded(batch, decode, data)
            if self._explicit:  # behind it: what cannot be decoded goes back
                self._growing(self._ring.ack_many, len(payload), batch.taken)
                if len(payload) < count:
                    self._undo(batch, count)
            return payload
        messages = [
            GroupMessage(batch, at, chunk, index, record, place, decode, attempts)
            for at, (index, place, record, _, _, attempts, _) in enumerate(rows)
        ]
        if any(row[6] for row in rows):
            reason = "it was not handed out before its time to live had passed"
            for each, row in zip(messages, rows, strict=True):
                if row[6]:
                    self._set_aside(Move(each, "expired", reason))
            messages = [each for each, row in zip(messages, rows, strict=True) if not row[6]]
        elif self._explicit and count > 1:
            batch.messages, batch.whole = tuple(messages), True
        return self._hold(messages, payloads=payloads)

    def _again(self, batch: _Batch, count: int) -> list[GroupMessage]:
        """Messages that came back, looked up by their indexes."""
        messages = []
        for at, (index, _, _, _, _, attempts, kind) in enumerate(_native.taken_rows(batch.taken, count)):
            try:
                known = self._access.message(index)
            except IndexError:  # retired by age or size since it was handed out, or put aside
                finished = self._growing(self._ring.ack, batch.taken + at) == 0
                # Or a power cut took it, and left the group's snapshot: that nobody had promised.
                retired = index < self._walk.chain.first_index()
                if retired and not self._walk.only_finished_goes():
                    self._retired(finished)
                continue
            except errors.Corrupt:
                if not self._skip_corrupt:
                    raise
                self._growing(self._ring.ack, batch.taken + at)
                self._skipped += 1
                continue
            chunk, record, place = known._chunk, known._record, known._place  # noqa: SLF001
            message = GroupMessage(batch, at, chunk, index, record, place, self._decode, attempts)
            if not self._too_early(message) and not self._disposed_of(message, kind):
                messages.append(message)
        if not self._explicit:  # finished now: they might have been too old, or have come too early
            taken = batch.taken
            messages = [each for each in messages if self._growing(self._ring.ack, taken + each._at) == 0]  # noqa: SLF001
        return self._hold(messages, payloads=False)

    def _too_early(self, message: GroupMessage) -> bool:
        """Whether it was put to come later, which a power cut has made the ring forget; then it waits again."""
        due_ns = message.due_ns if message.attempts == 1 else 0
        if not due_ns or due_ns <= time.time_ns():
            return False
        due = _native.boottime_ns() + due_ns - time.time_ns()
        return self._growing(self._ring.nack, message._batch.taken + message._at, due, 0) == 0  # noqa: SLF001

    def _decoded(self, batch: _Batch, decode: Callable[[Any], Any], data: list[bytes]) -> list[Any]:
        """What was claimed just now, up to a payload that the codec cannot read; if that is the first, an attempt."""
        chunk: Any = self._walk.chunk
        rows = _native.taken_rows(batch.taken, len(data))
        try:
            return codec.decode_all(decode, data, chunk, lambda at: rows[at][0], first=self._explicit)
        except errors.Corrupt:
            if self._explicit:
                self._growing(self._ring.give_back, batch.taken)
            raise

    def _hold(self, messages: list[GroupMessage], *, payloads: bool) -> list[Any]:
        if self._explicit:
            self._held.update((message.index, message) for message in messages)
        return self._payloads(messages) if payloads else messages

    def _payloads(self, messages: list[GroupMessage]) -> list[Any]:
        """Of these messages, which are finished with that."""
        if not self._explicit:
            return [message.payload for message in messages]
        try:
            data = payloads_of(messages)
        except errors.Corrupt:
            self._settle(messages[0], "give back", self._ring.give_back)  # an attempt; the others come again uncounted
            raise
        try:
            kept = self._still_had(messages[: len(data)])
        finally:
            for message in messages[len(data) :]:
                with contextlib.suppress(errors.LeaseLost):
                    self._settle(message, "give back", self._ring.undo)
        if len(kept) == len(data):
            return data
        return [each for each, message in zip(data, messages, strict=False) if message._over]  # noqa: SLF001

    # ---- moving to other queues
    def _disposed_of(self, message: GroupMessage, kind: int) -> bool:
        """Whether a message that came back is not to be worked at any more; then it goes where it belongs."""
        most = self.options.get("max_attempts")
        if kind == _native.TAKEN_MOVING:
            self._set_aside(Move(message, None, "whoever moved it died meanwhile", again=True))
        elif message.expired:
            self._set_aside(Move(message, "expired", "it was not finished before its time to live had passed"))
        elif self._explicit and most is not None and message.attempts > most:
            message.attempts = most  # this time it is not handed out, and perhaps it was tried to move it before
            reason = f"it was handed out {most} times and never finished"
            self._set_aside(Move(message, "attempts", reason))
        else:
            return False
        return True

    def _set_aside(self, move: Move) -> None:
        """
        It is handed to nobody any more, and will be moved. Under the lock.

        It is marked, so that whoever comes across it when we have died moves it.
        """
        message = move.message
        taken = message._batch.taken + message._at  # noqa: SLF001
        if move.cause == "expired" and not self.options.get("expire_to"):
            if self._explicit:
                self._growing(self._ring.ack, taken)
            self._ring.count_moved(expired=True)
            return
        resting_ns = self._moving.resting_ns(move.cause)
        if resting_ns:
            if self._growing(self._ring.nack, taken, _native.boottime_ns() + resting_ns, 0) == 0:
                self._ring.count_unmoved()
        elif move.again or self._growing(self._ring.moving, taken) == 0:  # else its lease has ended
            self._aside.append(move)

    def _move_soon(self) -> None:
        """
        Have what was set aside moved, although whoever called goes on with something else.

        By a thread, since that may take hours; and not at once, for more of them may come.
        """
        with self._lock:
            if (self._aside or self._copied) and not self._closed:
                if self._timer is None or self._timer_over:
                    self._timer, self._timer_over = Worker(self._move_later, "shmq-mover"), False
                self._timer.start()  # also one that an interrupted call has left behind

    def _move_later(self) -> None:
        timer = self._timer
        while timer is not None and not timer.pause(_ASIDE_SECONDS):
            try:
                self._take_up_copied()
                self._move_now()
            except BaseException:
                self._timer_over = True
                raise
            with self._lock:
                if not self._aside and not self._copied:
                    self._timer_over = True  # what is set aside from now on has a thread of its own
                    return

    def _take_up_copied(self) -> None:
        with self._lock:
            self._aside += self._copied
            self._copied.clear()

    def _move_aside(self) -> None:
        """
        Move what was set aside. What cannot be moved now is tried again later; only a warning says so.

        What a signal's handler raises comes out, and what it has interrupted is done soon, by a thread.
        """
        try:
            self._move_now()
        except BaseException:
            self._move_soon()
            raise
        if self._copied:
            self._move_soon()

    def _move_now(self) -> None:
        with self._moving_lock:
            with self._lock:
                if self._closed or os.getpid() != self._pid:
                    return
                moves = list(self._aside)
            outcomes: dict[int, Exception | None] = {}
            try:
                self._moving.carry_out(moves, outcomes)
            finally:
                with self._lock:
                    for at, outcome in outcomes.items():
                        self._moved(moves[at], outcome)
                    # Interrupted: of the others nobody knows whether they were copied.
                    left = [move._replace(again=True) for at, move in enumerate(moves) if at not in outcomes]
                    self._aside[: len(moves)] = left
                    # No other member may copy what perhaps is not on the disk as if it were the first.
                    self._copied += [moves[at]._replace(again=True) for at in outcomes if self._is_copied(moves[at])]
        self._moving.warn()

    def _is_copied(self, move: Move) -> bool:
        return self._moving.is_unsure(move.message.index)

    def _moved(self, move: Move, outcome: Exception | None) -> None:
        """Finish it, or have it tried again. Under the lock."""
        taken = move.message._batch.taken + move.message._at  # noqa: SLF001
        if outcome is None:
            self._growing(self._ring.ack, taken)
            self._ring.count_moved(expired=move.cause == "expired")
        else:
            self._ring.count_unmoved()
            if not self._is_copied(move):
                due = _native.boottime_ns() + max(self._moving.resting_ns(move.cause), _TRY_AGAIN_NS)
                self._growing(self._ring.nack, taken, due, 0)

    def _reject(self, message: GroupMessage, reason: object) -> None:
        words, text = why(reason)
        with self._moving_lock:
            with self._lock:
                if not self._has(message, "reject"):
                    return
                message._batch.forget()  # noqa: SLF001
                taken = message._batch.taken + message._at  # noqa: SLF001
                code = self._growing(self._ring.moving, taken)
                if code != 0:
                    self._drop(message)
                    raise _native.error(code, f"cannot reject message {message.index} of {self._home.path}")
            move = Move(message, "rejected", words, text)
            again = move._replace(again=True)
            outcomes: dict[int, Exception | None] = {}
            try:
                with self._lock:
                    self._drop(message)
                self._moving.carry_out([move], outcomes)
            finally:
                with self._lock:
                    # Interrupted, then or here: it is a letter, as was asked for, at the next opportunity.
                    message._over = True  # noqa: SLF001
                    self._aside.append(again)
                    problem = self._rejected(move, taken, outcomes)
        if problem is not None:
            raise problem
        self._persist()

    def _rejected(self, move: Move, taken: Any, outcomes: dict[int, Exception | None]) -> Exception | None:
        """What to raise after a try to move a message: it is finished, or held as before. Under the lock."""
        message = move.message
        if not outcomes:
            self._drop(message)
            self._move_soon()
            return None
        problem = outcomes[0]
        if problem is None:
            self._moved(move, None)
            self._aside.pop()
            return None
        if self._growing(self._ring.extend_lease, taken, _native.boottime_ns() + self._lease_ns) == 0:
            self._held[message.index] = message
        message._over = False  # noqa: SLF001
        self._aside.pop()
        what = f"{problem.args[0] if problem.args else problem}; message {message.index} of {self._home.path}"
        still = (
            f"{what} is a dead letter now, and this consumer still holds it: reject it again, which puts no second one"
            if isinstance(problem, (errors.SyncPending, errors.SyncFailed)) and problem.index is not None
            else f"{what} is no dead letter yet, and this consumer still holds it: reject it again later, give it back "
            "or acknowledge it"
        )
        problem.args = (still, *problem.args[1:]) if isinstance(problem, errors.ShmqError) else problem.args
        return problem

    def _nothing(self) -> str:
        if self._last != _native.EDGE and not self.options.get("ordered_by"):
            return self._walk._nothing(self._last)  # noqa: SLF001
        figures = self._ring.figures()
        nothing = f"nothing to get from group {self.name!r} of {self._home.path} in time"
        mine = f"; this consumer holds {len(self._held)} itself" if self._held else ""
        keyed = f"{figures.waiting} wait for their keys, until those before them are finished"
        if self._last == _native.EDGE:
            waits = f", {keyed}" if figures.waiting else ""
            return (
                f"{nothing}: its window is full, {figures.claimed} of {figures.window} messages are handed out and "
                f"not acknowledged{waits}{mine}"
            )
        if figures.waiting:
            return f"{nothing}: {keyed}{mine}"
        return self._walk._nothing(self._last)  # noqa: SLF001

    def _ended(self) -> Exception | None:
        if self._closed:
            return errors.Closed(f"group consumer {self.name!r} of {self._home.path} was closed")
        control = self._membership.control
        if control.is_shut_down_at_once():
            return errors.ShutDown(f"{self._home.path} was shut down at once; what is left in it stays there")
        if ending.over(self._home, control) and self._walk.at_end() and self._drained():
            mine = f", but for {len(self._held)} messages that this consumer holds itself" if self._held else ""
            return errors.ShutDown(
                f"{self._home.path} {ending.words(control)}, and group {self.name!r} has drained it{mine}"
            )
        return None

    def _drained(self) -> bool:
        """
        Whether nothing is left that may still come to this member.

        Who holds messages while it waits says so, so that two such do not wait for each other.
        """
        with self._lock:
            self._at_end.add(threading.get_ident())
            rests = self._rest()
            return self._ring.drained(holding=rests and bool(self._held))

    def _rest(self) -> bool:
        """Say whether all handles of this process that hold messages of the group wait for the end; whether they do."""
        members = self._membership.members_of(self.name)
        with members.lock:
            holders = [each for each in list(members.handles) if each._held]  # noqa: SLF001  # ours
            rests = all(each._at_end for each in holders)  # noqa: SLF001
            self._ring.rest(on=rests and bool(holders))
        return rests

    def _goes_on(self) -> None:
        """This thread does not wait for the end any more."""
        if self._at_end:
            with self._lock:
                self._at_end.discard(threading.get_ident())
                if not self._closed:
                    self._rest()

    def _check_usable(self) -> None:
        if self._closed:
            raise errors.Closed(f"group consumer {self.name!r} of {self._home.path} was closed")
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    self._open("earliest")

    def __iter__(self) -> Iterator[GroupMessage]:
        """
        Messages as they come; ends when the queue is over and drained (`shutdown`, `finish`), or this is closed.

        Messages that this consumer holds do not keep its loop from ending: acknowledge them behind it.
        """
        while not self._closed:
            try:
                found = self._wait_for(1, None, payloads=False)
            except errors.Closed:
                if self._closed:
                    return
                raise  # another queue, where a message was to go
            if found.__class__ is not list:
                return
            yield found[0]

    # ---- finishing
    def ack(self, *messages: GroupMessage) -> None:
        """
        Say that these messages are finished. Cheapest for all those that one `get_many` returned. Those that their
        holder has ended already stay as they are.

        Raises:
            LeaseLost: one was given to somebody else meanwhile; the others are finished.
            Closed, Forked: as `Message.ack`.
        """
        for message in messages:
            if not isinstance(message, GroupMessage):
                raise no_message(message)
        try:
            self._finish(messages)
        except errors.LeaseLost:
            self._persist()
            raise
        for group in {message._group for message in messages}:  # noqa: SLF001
            group._persist()  # noqa: SLF001

    def _finish(self, messages: tuple[GroupMessage, ...]) -> None:
        """In memory."""
        if len(messages) > 1 and self._ack_batch(messages):
            return
        lost = None
        for message in messages:
            try:
                message._group._settle(message, "acknowledge", message._group._ring.ack)  # noqa: SLF001
            except errors.LeaseLost as problem:
                lost = problem
        if lost is not None:
            raise lost

    def skip(self, *indexes: int) -> Skipped:
        """
        Finish messages that nobody has been handed, as whoever brings a group over from elsewhere does.

        They are never handed out. Those that were handed out, or are finished, are left as they are. It returns how
        many it finished, and which are left to somebody.

        Raises:
            TooMany: one is further ahead than the window reaches; none was skipped.
            ValueError: there is no such index yet; none was skipped.
        """
        for index in indexes:
            _given.whole("index", index, 0)
        with self._lock:
            self._check_usable()
            end, reach = self._access.next_index(), self._checkpoint.head + self._ring.figures().window
            last = max(indexes, default=0)
            if last >= end and indexes:
                raise ValueError(f"cannot skip index {last} of {self._home.path}: the next one is {end}")
            if last >= reach:
                raise errors.TooMany(
                    f"cannot skip index {last} for group {self.name!r} of {self._home.path}: its window ends at {reach}"
                )
            codes = {index: self._growing(self._ring.skip_one, index) for index in sorted(indexes)}
            self._ring.floor()
        finished = sum(code == 0 for code in codes.values())
        return Skipped(finished, tuple(index for index, code in codes.items() if code == _native.LOST))

    def _persist(self) -> None:
        """With Durability.SYNC an explicit ack is on the disk when it returns."""
        if self._syncs and not self._closed:
            if self._syncer is None:
                later.ready("shmq.durability")
                from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

                self._syncer = Syncer(self._home, self._membership)
            self._syncer.acknowledge(self.name, self._checkpoint)

    def _ack_batch(self, messages: tuple[GroupMessage, ...]) -> bool:
        """All of one batch, in one call; False when they are not, or when one of them was lost."""
        batch, count = messages[0]._batch, len(messages)  # noqa: SLF001
        with self._lock:
            self._check_mine(messages[0], "acknowledge")
            if not batch.whole or batch.group is not self or messages != batch.messages or not self._explicit:
                return False
            batch.forget()
            finished = self._growing(self._ring.ack_many, count, batch.taken)
            whole = finished == count
            for message in messages:
                message._over = True  # noqa: SLF001
                self._drop(message)
            if not whole:
                for message, row in zip(messages, _native.taken_rows(batch.taken, count), strict=True):
                    message._over = row[3] == 0  # noqa: SLF001  # the word of what was finished is cleared
                self._refuse_retired("acknowledge", *(message.index for message in messages))
                raise errors.LeaseLost(
                    f"{count - finished} of {count} messages of {self._home.path} were given to somebody else "
                    f"meanwhile; the other {finished} are acknowledged"
                )
            return True

    def _check_mine(self, message: GroupMessage, what: str) -> None:
        if os.getpid() != message._batch.pid:  # noqa: SLF001
            raise errors.Forked(
                f"cannot {what} message {message.index} of {self._home.path}: it was handed to the parent process "
                f"{message._batch.pid}"  # noqa: SLF001
            )
        if self._closed:
            raise errors.Closed(
                f"cannot {what} message {message.index}: group consumer {self.name!r} of {self._home.path} was closed, "
                "and the message goes to somebody else"
            )

    def _has(self, message: GroupMessage, what: str) -> bool:
        """
        Whether this member has it; False when it was ended already, or finished by being handed out.

        Raises:
            Mismatch: what is asked for means nothing where everything is finished by being handed out.
            LeaseLost: it was handed out again, to this member or another, or the group was moved.
        """
        self._check_mine(message, what)
        if not self._explicit and what != "acknowledge":
            raise errors.Mismatch(
                f"cannot {what} message {message.index} of {self._home.path}: group {self.name!r} acknowledges what it "
                'hands out (ack="auto"), so it is finished; a group that may have it again is made with ack="explicit"'
            )
        if message._over or not self._explicit:  # noqa: SLF001
            self._drop(message)  # if a signal's handler kept us from that
            return False
        if self._held.get(message.index) is not message:
            raise errors.LeaseLost(
                f"cannot {what} message {message.index} of {self._home.path}: it was handed out again meanwhile, or "
                "given back"
            )
        return True

    def _drop(self, message: GroupMessage) -> None:
        """It is not held any more; one of the same index that was handed out later is."""
        if self._held.get(message.index) is message:
            del self._held[message.index]

    def _settle(self, message: GroupMessage, what: str, call: Any, *, keeps: bool = False) -> None:
        with self._lock:
            if not self._has(message, what):
                return
            message._batch.forget()  # noqa: SLF001
            code = self._growing(call, message._batch.taken + message._at)  # noqa: SLF001
            # First that it is over: an ack that is interrupted, and repeated, must not say that it was lost.
            message._over = code == 0 and not keeps  # noqa: SLF001
            if code != 0 or not keeps:
                self._drop(message)
            if code != 0:
                self._refuse_retired(what, message.index)
                raise _native.error(code, f"cannot {what} message {message.index} of {self._home.path}")

    def _refuse_retired(self, what: str, *indexes: int) -> None:
        """Say so, if what was lost was not given to anybody else."""
        first = self._walk.chain.first_index()
        retired = [index for index in indexes if index < first]
        if retired:
            raise errors.LeaseLost(
                f"cannot {what} message {retired[0]} of {self._home.path}: it was retired before it was finished (what "
                f"comes before {first} has gone, retention={self._home.options.retention!r}); nobody else has it"
            )

    def _growing(self, call: Callable[..., int], *given: Any) -> int:
        """What that call of the ring answers, once as much of the ring is mapped as it needs."""
        code = call(*given)
        while code == _native.GROW:
            rings.grow(self._home, self.name, self._ring)
            code = call(*given)
        return code

    def _nack(self, message: GroupMessage, delay: float) -> None:
        delay = _given.seconds("delay", delay, none=True)
        most = self.options.get("max_attempts")
        if self._explicit and most is not None and message.attempts >= most:
            self._give_up(message, f"it was handed out {most} times and never finished")
            return
        due = _native.boottime_ns() + int(min(delay, 1e9) * 1e9) if delay else 0
        behind = 0 if delay else self._access.next_index()
        self._settle(message, "give back", lambda taken: self._ring.nack(taken, due, behind))

    def _give_up(self, message: GroupMessage, reason: str) -> None:
        """Given back for the last time it is a dead letter at once; if that cannot be now, it is tried again later."""
        with self._lock:
            self._check_mine(message, "give back")
            if not self._has(message, "give back"):
                return
            message._batch.forget()  # noqa: SLF001
            taken = message._batch.taken + message._at  # noqa: SLF001
            resting_ns = self._moving.resting_ns("attempts")
            if resting_ns:
                code = self._growing(self._ring.nack, taken, _native.boottime_ns() + resting_ns, 0)
            else:
                code = self._growing(self._ring.moving, taken)
            if code != 0:
                self._drop(message)
                raise _native.error(code, f"cannot give back message {message.index} of {self._home.path}")
            # First the one, then the other: what is interrupted in between can be repeated.
            if not resting_ns and all(move.message is not message for move in self._aside):
                self._aside.append(Move(message, "attempts", reason))
            message._over = True  # noqa: SLF001
            self._drop(message)
            if resting_ns:
                self._ring.count_unmoved()
                return
        self._move_aside()
        self._persist()

    def _extend(self, message: GroupMessage, seconds: float) -> None:
        seconds = _given.seconds("seconds", seconds)
        ends = _native.boottime_ns() + int(min(seconds, 1e9) * 1e9)
        self._settle(message, "keep", lambda taken: self._ring.extend_lease(taken, ends), keeps=True)

    # ---- looking
    def _join_in_child(self) -> None:
        """What its parent holds and has passed is not this member's."""
        if not self._closed:
            self._check_usable()

    @property
    def head(self) -> int:
        """Every message below it is finished, or parked for later."""
        return self._checkpoint.head

    @property
    def lag(self) -> int:
        """
        How many messages the group has not finished: those that nobody has had, that are handed out, parked or waiting.

        What is finished above the head does not count, nor what never became a message.
        """
        return self._backlog().lag

    @property
    def floor(self) -> int:
        """The first index that is not finished, parked messages included; the next put's when all is finished."""
        return self._backlog().floor

    def _backlog(self) -> backlog.Backlog:
        with self._lock:
            self._check_usable()
            if self._ring.side_blocks() > self._ring.blocks:
                rings.grow(self._home, self.name, self._ring)
            return backlog.of_group(self._home, self._membership, self._ring, self._walk.chain.next_index())

    @property
    def pending(self) -> int:
        """How many messages this member holds and has not finished."""
        self._join_in_child()
        return len(self._held)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes this member passed over because what was there is damaged."""
        self._join_in_child()
        return self._skipped + self._walk.skipped

    # ---- moving
    def seek(self, to: str | float | datetime.datetime) -> None:
        """
        Have the whole group go on from there: "earliest", "latest", an index, or the first message of a time or later.

        What was finished behind it comes again, what was not and is before it does not; attempts begin anew. What this
        member holds is forgotten. Only for its only member. A time is given as in `Queue.at`.

        Raises:
            Busy: somebody else is in the group.
            IndexError: it is beyond the end of the queue, or negative.
        """
        with self._lock:
            self._check_usable()
            index = self._access.index_of(to, "to")
            end = self._access.next_index()
            if not 0 <= index <= end:
                raise IndexError(
                    f"cannot seek to {index}: {self._home.path} has indexes from {self._access.first_index()} to {end}"
                )
            with self._home.admin():  # first: who joins meanwhile waits for it
                assert self._name_lock is not None  # noqa: S101  # it is open
                if not self._name_lock.take():
                    raise errors.Busy(f"cannot move group {self.name!r} of {self._home.path}: somebody else is in it")
                try:
                    rings.restart(self._home, self.name, group_options.there(self._session, index))
                finally:
                    self._name_lock.share()
            self._held.clear()
            self._aside.clear()
            self._copied.clear()
            self._enter_ring()
        self._membership.control.recount()
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back

    # ---- closing
    def _snapshot(self) -> None:
        """Write down what is done, unless somebody else is at it."""
        self._snapshot_at = time.monotonic() + self._snapshot_every
        # Dropped or removed meanwhile; or the disk refused, and the one there is still counts.
        with contextlib.suppress(OSError, errors.NotFound):
            acks.of_member(self._home, self._membership.member, self.name, self._checkpoint, self._ring)

    def close(self) -> None:
        """Leave the group. What was handed out and not acknowledged goes to the others. Closing twice is fine."""
        if os.getpid() != self._pid:
            return
        self._take_up_copied()
        if self._aside and not self._closed:
            self._move_aside()
        self._close()

    def _close(self) -> None:
        self._closed = True
        if self._loan.is_over():
            return
        if self._opened:
            self._membership.control.wake()  # another thread may be waiting in here
        timer = self._timer
        if timer is not None:
            timer.end(self._membership.control.wake)
        with self._moving_lock, self._lock:
            if self._opened:
                self._moving.close()
            self._leave_name()
        self._loan.give_back()

    def _leave_name(self) -> None:
        """Hold nothing any more, nor the name. Each step can be repeated, but when the name is not ours any more."""
        if self._name_lock is None or self._name_lock.is_free():
            return
        if self._opened:
            self._take_up_copied()
            for message in [*self._held.values(), *(move.message for move in self._aside)]:
                self._growing(self._ring.give_back, message._batch.taken + message._at)  # noqa: SLF001
            self._held.clear()
            self._aside.clear()
            self._membership.members_of(self.name).handles.discard(self)
            self._rest()
            self._ring.floor()
            self._snapshot()
        self._name_lock.free()

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its queue does."""
        raise _given.no_pickle(self, f"consumer {self.name!r} of {self._home.path}", f"consumer({self.name!r})")

    def __dir__(self) -> list[str]:
        """What it has, without the names that only say what to use instead (shmq/habits.py)."""
        return [name for name in super().__dir__() if name not in habits.OF_CONSUMERS]

    def __repr__(self) -> str:
        """Name, queue, ack mode, and what it holds, for people."""
        state = "closed" if self._closed else f"ack={self.ack_mode}, head {self.head}, holds {len(self._held)}"
        return f"<shmq.GroupConsumer {self.name!r} of {self._session.place} ({state})>"

    def __del__(self) -> None:
        """Close, unless this is a forked child's copy. What was set aside is left to others: no time for the disk."""
        with contextlib.suppress(AttributeError):  # never finished opening
            if os.getpid() == self._pid:
                self._close()


habits.tell(GroupConsumer, habits.OF_CONSUMERS)


@dataclasses.dataclass(frozen=True)
class Skipped:
    """
    What `GroupConsumer.skip` did.

    Attributes:
        finished: how many messages it finished.
        left: the indexes of those that somebody has, or had and gave back; they are not finished.
    """

    finished: int
    left: tuple[int, ...]
