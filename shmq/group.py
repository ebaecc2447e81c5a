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
import time
from typing import TYPE_CHECKING, Any, Self

from shmq import _native, errors, locks, names
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.access import Access
from shmq.dead import Mover, path_of, why
from shmq.message import Message
from shmq.storage import acks, space
from shmq.storage import ring as rings
from shmq.storage.directory import CONSUMERS, check_consumer_name
from shmq.walk import SPINS, Walk, deadline_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from shmq.durability import Syncer
    from shmq.queue import Queue
    from shmq.storage.directory import Directory

_BATCH = 1024
_SNAPSHOT_EVERY, _SNAPSHOT_EVERY_PROCESS = 1.0, 10.0
"""Seconds between two snapshots of what is done, which count after a power cut; with Durability.PROCESS."""
_TRY_AGAIN_NS = 1_000_000_000
"""After a move to another queue that failed."""
_GROUP_WINDOW = _native.RING_WINDOW
DEFAULTS: dict[str, Any] = {
    "lease": None,
    "max_attempts": None,
    "dead_letter": None,
    "expire_to": None,
    "ordered_by": None,
}


class GroupWalk(Walk):
    """A member's own way through the chunks; the ring says which messages are taken already."""

    ring: _native.Ring

    def _begin_at(self, first: int) -> None:
        self.ring.raise_head(first)
        super()._begin_at(first)

    def _advance(self) -> bool:
        """Go on in the next chunk; False while there is none, or while indexes between the two cannot be passed yet."""
        if self.chunk is None:
            return self._find()
        end = self.chunk.base + int(self.reader.ordinal)
        try:
            following = self.chain.after(self.chunk)
        except errors.Gone as gone:
            first = self.chain.first_index() if gone.first_index is None else gone.first_index
            finished = 0 if self._checkpoint is None else self._checkpoint.head
            self.ring.raise_head(first)
            self.seek(first)
            if first <= max(end, finished):  # others have finished what was retired: nothing is lost
                return self._find()
            raise
        if following is None or (following.base > end and not self.ring.skip(end, following.base)):
            return False
        self._enter(following)
        del following
        self.ring.floor()
        self.membership.forget_retired()
        space.retire(self.home, self.chain, self.membership.control)
        return True

    def _pass_damage(self) -> bool:
        """Go on behind what is damaged, for the whole group; False when that must wait for what is before it."""
        assert self.chunk is not None  # noqa: S101  # it was read from
        position, ordinal = int(self.reader.position), int(self.reader.ordinal)
        behind = _native.resync(self.chunk, position, ordinal)
        if behind is None:
            return self._leap(self.chunk.sequence, self.chunk.base + ordinal)
        if not self.ring.skip(self.chunk.base + ordinal, self.chunk.base + behind[1]):
            return False
        return super()._pass_damage()

    def _leap(self, sequence: int, index: int) -> bool:
        for later, base in self.chain.listed():
            if later > sequence and base >= index:
                if not self.ring.skip(index, base):
                    return False
                with contextlib.suppress(errors.Corrupt, FileNotFoundError):
                    chunk = self.chain.open(later, base)
                    self._count(index, base)
                    self._start = max(self._start, base)
                    self._enter(chunk)
                    return True
        return False

    def claim(self, limit: int, spins: int, taken: Any) -> int:
        """Claim up to *limit* messages that nobody has had: how many, or EMPTY, WAITING, EDGE or GROW."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        while True:
            if self.chunk is None and not advance():
                return int(_native.EMPTY)
            count = self.ring.take(self.chunk, self.reader, limit, spins, taken)  # type: ignore[arg-type]
            if count > 0:
                return count
            if count == _native.ROLL:
                if advance():
                    continue
                return int(_native.EMPTY)
            if count == _native.CORRUPT and self.skip_corrupt:
                if self._pass_damage():
                    continue
                return int(_native.EDGE)
            if count in (_native.EMPTY, _native.WAITING, _native.EDGE, _native.GROW):
                return count
            raise _native.error(count, f"cannot read {self.home.path}")


class _Batch:
    """Messages handed out together: where the core keeps what finishes them, and whose they are."""

    __slots__ = ("group", "messages", "pid", "taken", "whole")

    def __init__(self, group: GroupConsumer, limit: int) -> None:
        self.group = group
        self.taken = _native.taken_array(limit)
        self.pid = os.getpid()
        self.messages: list[GroupMessage] = []
        self.whole = False
        """Whether none of them was settled alone."""

    def forget(self) -> None:
        """They are not settled together any more."""
        self.messages, self.whole = [], False


class GroupMessage(Message):
    """A message as a member of a group has it. `attempts` counts how often it was handed out, in all processes."""

    __slots__ = ("_at", "_batch")

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

    @property
    def _group(self) -> GroupConsumer:
        return self._batch.group

    def ack(self) -> None:
        """
        Say that this message is finished: it will not come again. A second time it does nothing.

        Raises:
            LeaseLost: it was given to somebody else meanwhile; nothing was changed.
            Closed: its consumer was closed; the message is handed out again.
            Forked: it was handed to the parent process.
        """
        self._group.ack(self)

    def nack(self, delay: float = 0.0) -> None:
        """
        Give it back: it comes again behind what is in the queue now, to whoever comes first, *delay* seconds from now.

        Raises:
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._group._nack(self, delay)  # noqa: SLF001

    def reject(self, reason: object = "") -> None:
        """
        Move it to the dead letters, with *reason* (words, or an exception), and finish it here.

        The traceback of the exception that is being handled goes with it.

        Raises:
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._group._reject(self, reason)  # noqa: SLF001

    def extend(self, seconds: float) -> None:
        """
        Keep it for *seconds* from now on. Needed only where the group has a lease.

        Raises:
            LeaseLost, Closed, Forked: as `ack`.
        """
        self._group._extend(self, seconds)  # noqa: SLF001


class GroupConsumer:
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
        queue: Queue,
        name: str,
        *,
        ack: str,
        start: str | int | datetime.datetime,
        given: dict[str, Any],
        window: int | None = None,
        skip_corrupt: bool = False,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        if ack not in ("auto", "explicit"):
            raise ValueError(f'ack={ack!r}: "auto" or "explicit"')
        self.name = name
        self.ack_mode = ack
        self._explicit = ack == "explicit"
        self._queue = queue
        self._given = check_options(given, explicit=self._explicit)
        self._window = window
        self._skip_corrupt = skip_corrupt
        self._skipped = 0
        self._lock = locks.Lock()
        self._closed = False
        self._decode = queue._codec.decode  # noqa: SLF001
        self._open(start)

    # ---- opening
    def _open(self, start: str | int | datetime.datetime) -> None:
        self._pid = os.getpid()
        self._held: dict[int, GroupMessage] = {}
        self._movers: dict[str, Mover] = {}
        self._syncer: Syncer | None = None
        self._home, self._membership = self._queue._lend()  # noqa: SLF001
        process = self._home.options.durability.kind == "process"
        self._snapshot_every = _SNAPSHOT_EVERY_PROCESS if process else _SNAPSHOT_EVERY
        self._snapshot_at = time.monotonic() + self._snapshot_every
        try:
            self._checkpoint, self._name_lock = self._enter_name(start)
            try:
                self._enter_ring()
            except BaseException:
                self._name_lock.free()
                raise
        except BaseException:
            self._closed = True
            self._membership.leave()
            self._home.close()
            raise
        self._syncs = self._explicit and self._home.options.durability.kind == "sync"

    def _enter_name(self, start: str | int | datetime.datetime) -> tuple[_native.Checkpoint, _native.Lock]:
        file = f"{self.name}.checkpoint"
        if self.name not in self._home.consumer_names():
            with self._home.admin():
                if self.name not in self._home.consumer_names():
                    self._make(start)
        fd, size = self._home.open(self._home.consumers, file, writable=True)
        try:
            path = f"{self._home.path}/{CONSUMERS}/{file}"
            checkpoint = _native.Checkpoint(fd, size, self._home.queue_id, self.name, path)
            if not checkpoint.group:
                raise errors.Mismatch(
                    f"cannot open consumer {self.name!r} of {self._home.path} as a group: it was made without "
                    "group=True, for one process at a time; use another name"
                )
            self.options = self._agreed(checkpoint)
            lock = _native.Lock(os.dup(fd))
            try:
                self._share_name(lock, fd)
            except BaseException:
                lock.free()
                raise
        finally:
            os.close(fd)
        return checkpoint, lock

    def _make(self, start: str | int | datetime.datetime) -> None:
        options = {**DEFAULTS, **self._given, "ack": self.ack_mode}
        index = names.start_index(self._queue, start)
        rings.make(self._home, self.name, options, _GROUP_WINDOW if self._window is None else self._window)
        names.make_checkpoint(self._home, self.name, index, explicit=self._explicit, group=True)

    def _agreed(self, checkpoint: _native.Checkpoint) -> dict[str, Any]:
        stored = rings.options(self._home, self.name)
        stored["ack"] = "explicit" if checkpoint.explicit else "auto"
        for name, mine in {**self._given, "ack": self.ack_mode}.items():
            if stored.get(name) != mine:
                raise errors.Mismatch(
                    f"cannot join group {self.name!r} of {self._home.path} with {name}={mine!r}: "
                    f"it was made with {name}={stored.get(name)!r}; leave the option out, or use another name"
                )
        return stored

    def _share_name(self, lock: _native.Lock, fd: int) -> None:
        if not lock.share():
            raise errors.Busy(f"group {self.name!r} of {self._home.path} is being dropped")
        names.check_not_dropped(self._home, self.name, fd, "group")

    def _enter_ring(self) -> None:
        memory = rings.map_ring(self._home, self.name, writable=True)
        rings.fresh(self._home, self.name, memory, self._checkpoint)
        self._lease_ns = int((self.options.get("lease") or 0) * 1e9)
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
        while self._ring.join() == _native.GROW:
            rings.grow(self._home, self.name, self._ring)
        self._walk = GroupWalk(self._home, self._membership, self._checkpoint)
        self._walk.ring = self._ring
        self._walk.skip_corrupt = self._skip_corrupt
        self._walk.seek(self._checkpoint.head)
        self._access = Access(self._home, self._membership, self._decode)

    # ---- getting
    def get(self, timeout: float | None = None) -> GroupMessage:
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
        message: GroupMessage = self._get(1, timeout)[0]
        return message

    def get_many(self, limit: int, timeout: float | None = None) -> list[GroupMessage]:
        """
        Between 1 and *limit* messages: those that are there now, or the first that comes.

        Args and Raises: as `get`.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: at least 1")
        return self._get(min(limit, _BATCH), timeout)

    def take(self, timeout: float | None = None) -> Any:
        """
        The next payload, decoded, acknowledged at once.

        Args and Raises: as `get`.
        """
        return self._get(1, timeout, payloads=True)[0]

    def take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """
        Between 1 and *limit* payloads, acknowledged at once.

        Args and Raises: as `get`.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: at least 1")
        return self._get(min(limit, _BATCH), timeout, payloads=True)

    def peek(self) -> Message | None:
        """
        The next message that nobody has, without taking it; None when there is none.

        What waits for its time, or was given back, is not looked at. Another member may take it at any moment.
        """
        with self._lock:
            self._check_usable()
            index, end = self._ring.peek(0), self._access.next_index()
            while 0 <= index < end:
                with contextlib.suppress(IndexError):  # padding, or not committed yet
                    message = self._access.message(index)
                    if not message.expired():
                        return message
                index = self._ring.peek(index + 1)
            return None

    def _get(self, limit: int, timeout: float | None, *, payloads: bool = False) -> list[Any]:
        deadline = deadline_of(timeout)
        self._check_usable()
        found, _ = self._look(limit, SPINS if timeout != 0 else 0, idle=False, payloads=payloads)
        while not found:
            # Not under the lock: other threads acknowledge while this one sleeps.
            seen = self._membership.member.wait_begin()
            found, due = self._look(limit, 0, idle=True, payloads=payloads)
            if found:
                break
            reason = self._ended()
            if reason is not None:
                raise reason
            if deadline >= 0 and _native.monotonic_ns() >= deadline:
                raise errors.Empty(self._nothing())
            try:
                self._membership.sleep(seen, _sooner(deadline, due))
            except OSError:
                if not self._closed:  # by another thread, and with it the last handle of this process
                    raise
            found, _ = self._look(limit, SPINS, idle=False, payloads=payloads)
        return found

    def _look(self, limit: int, spins: int, *, idle: bool, payloads: bool) -> tuple[list[Any], int | None]:
        """What is there for this member now, and when to look again (since boot) for what is due by then."""
        with self._lock:
            self._check_usable()
            if time.monotonic() >= self._snapshot_at:
                self._snapshot()
            batch = _Batch(self, limit)
            try:
                found, due = self._claim(batch, limit, spins, idle=idle, payloads=payloads)
            except BaseException:
                self._undo(batch, limit)
                raise
            if found is None:
                rings.grow(self._home, self.name, self._ring)
                return self._look(limit, spins, idle=idle, payloads=payloads)
            return found, due

    def _claim(
        self, batch: _Batch, limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any] | None, int | None]:
        """As `_look`; None when the side table must grow first."""
        count, due = self._ring.retake(limit, batch.taken, idle=idle)
        if count > 0:
            messages = self._again(batch, count)
            return (self._payloads(messages) if payloads else messages), due
        if count != _native.GROW:
            count = self._last = self._walk.claim(limit, 0 if due is not None else spins, batch.taken)
        if count == _native.GROW:
            return None, due
        return (self._fresh(batch, count, payloads=payloads) if count > 0 else []), due

    def _undo(self, batch: _Batch, limit: int) -> None:
        """Interrupted between claiming and handing out: what nobody was handed goes back."""
        for at, (index, _, _, word, *_) in enumerate(_native.taken_rows(batch.taken, limit)):
            if word and self._explicit:
                self._held.pop(index, None)
                self._growing(self._ring.give_back, batch.taken + at)

    def _fresh(self, batch: _Batch, count: int, *, payloads: bool) -> list[Any]:
        """What was claimed just now, all in one chunk; as *payloads* it is finished at once."""
        chunk, decode = self._walk.chunk, self._decode
        rows = _native.taken_rows(batch.taken, count)
        if payloads and not any(row[6] for row in rows):
            memory = chunk.map  # type: ignore[union-attr]
            data = [memory[(at := row[1] >> LENGTH_BITS) : at + (row[1] & LENGTH_MASK)] for row in rows]
            if self._explicit:
                self._growing(self._ring.ack_many, count, batch.taken)
            return data if decode is None else list(map(decode, data))
        messages = [
            GroupMessage(batch, at, chunk, index, record, place, decode, attempts)
            for at, (index, place, record, _, _, attempts, _) in enumerate(rows)
        ]
        if any(row[6] for row in rows):
            messages = [each for each, row in zip(messages, rows, strict=True) if not self._too_old(each, row[6])]
        elif self._explicit and count > 1:
            batch.messages, batch.whole = messages, True
        return self._hold(messages, payloads=payloads)

    def _again(self, batch: _Batch, count: int) -> list[GroupMessage]:
        """Messages that came back, looked up by their indexes."""
        messages = []
        for at, (index, _, _, _, _, attempts, kind) in enumerate(_native.taken_rows(batch.taken, count)):
            try:
                known = self._access.message(index)
            except IndexError:  # retired by age or size since it was handed out
                self._growing(self._ring.ack, batch.taken + at)
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
        return self._hold(messages, payloads=False)

    def _too_early(self, message: GroupMessage) -> bool:
        """Whether it was put to come later, which a power cut has made the ring forget; then it waits again."""
        due_ns = message.due_ns() if message.attempts == 1 else 0
        if not due_ns or due_ns <= time.time_ns():
            return False
        due = _native.boottime_ns() + due_ns - time.time_ns()
        return self._growing(self._ring.nack, message._batch.taken + message._at, due, 0) == 0  # noqa: SLF001

    def _hold(self, messages: list[GroupMessage], *, payloads: bool) -> list[Any]:
        if self._explicit:
            self._held.update((message.index, message) for message in messages)
        return self._payloads(messages) if payloads else messages

    def _payloads(self, messages: list[GroupMessage]) -> list[Any]:
        """Of these messages, which are finished with that."""
        data = [message.payload for message in messages]
        if self._explicit:
            self._finish(tuple(messages))
        return data

    # ---- moving to other queues
    def _too_old(self, message: GroupMessage, kind: int) -> bool:
        if kind:
            self._move(message, "expired", "it was not handed out before its time to live had passed")
        return bool(kind)

    def _disposed_of(self, message: GroupMessage, kind: int) -> bool:
        """Whether a message that came back is not to be worked at any more; then it has gone where it belongs."""
        most = self.options.get("max_attempts")
        if kind == _native.TAKEN_MOVING:
            self._move(message, self._cause(message), "whoever moved it died meanwhile", again=True)
        elif message.expired():
            reason = "it was not finished before its time to live had passed"
            self._move(message, "expired", reason, finished=not self._explicit)
        elif self._explicit and most is not None and message.attempts > most:
            message.attempts -= 1  # this time it is not handed out
            self._move(message, "attempts", f"it was handed out {message.attempts} times and never finished")
        else:
            return False
        return True

    def _cause(self, message: GroupMessage) -> str:
        """Why somebody who died was moving it."""
        if not self.options.get("expire_to") or not message.expired():
            return "rejected"
        if not os.path.exists(path_of(self._queue, self.options.get("dead_letter"), self.name)):
            return "expired"
        letters = self._target("rejected")
        return "rejected" if letters is not None and letters.has(message) else "expired"

    def _target(self, cause: str) -> Mover | None:
        """Where messages go for that cause; None when they are dropped."""
        if cause == "expired" and not self.options.get("expire_to"):
            return None
        option = "expire_to" if cause == "expired" else "dead_letter"
        known = self._movers.get(option)
        if known is None:
            path = path_of(self._queue, self.options.get(option), self.name)
            known = Mover(self._queue, path, self.name, letters=option == "dead_letter")
            self._movers[option] = known
        return known

    def _move(
        self,
        message: GroupMessage,
        cause: str,
        reason: str,
        text: str = "",
        *,
        again: bool = False,
        finished: bool = False,
    ) -> None:
        """
        Mark it, copy it, finish it. Killed in between, somebody else does it again, and it is copied once.

        *again*: it is marked already, by somebody who died. *finished*: it was, by being handed out.
        """
        taken = message._batch.taken + message._at  # noqa: SLF001
        if not finished and not again:
            code = self._growing(self._ring.moving, taken)
            if code != 0:
                raise _native.error(code, f"cannot move message {message.index} of {self._home.path}")
        try:
            target = self._target(cause)
            if target is not None:
                target.put(message, cause, reason, text, again=again)
        except BaseException:
            if not finished:  # it comes again, and is tried again
                self._growing(self._ring.nack, taken, _native.boottime_ns() + _TRY_AGAIN_NS, 0)
            raise
        if not finished:
            self._growing(self._ring.ack, taken)
        self._ring.count_moved(expired=cause == "expired")

    def _reject(self, message: GroupMessage, reason: object) -> None:
        words, text = why(reason)
        with self._lock:
            self._check_mine(message, "reject")
            if self._held.pop(message.index, None) is message:
                message._batch.forget()  # noqa: SLF001
                self._move(message, "rejected", words, text)
        self._persist()

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
        if self._membership.control.is_shut_down() and self._walk.at_end():
            figures = self._ring.figures()
            if not (figures.claimed or figures.returned or figures.parked or figures.waiting):
                return errors.ShutDown(f"{self._home.path} was shut down, and group {self.name!r} has drained it")
        return None

    def _check_usable(self) -> None:
        if self._closed:
            raise errors.Closed(f"group consumer {self.name!r} of {self._home.path} was closed")
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    self._open("earliest")

    def __iter__(self) -> Iterator[GroupMessage]:
        """Messages as they come; ends when the queue is shut down and drained, or this consumer is closed."""
        while True:
            try:
                message = self.get()
            except (errors.ShutDown, errors.Closed):
                return
            yield message

    # ---- finishing
    def ack(self, *messages: GroupMessage) -> None:
        """
        Say that these messages are finished. Cheapest for all those that one `get_many` returned.

        Raises:
            LeaseLost: one was given to somebody else meanwhile; the others are finished.
            Closed, Forked: as `Message.ack`.
        """
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

    def skip(self, *indexes: int) -> None:
        """
        Finish messages that nobody has been handed, as whoever brings a group over from elsewhere does.

        They are never handed out. Those that were handed out, or are finished, are left as they are.

        Raises:
            TooMany: one is further ahead than the window reaches; none was skipped.
            ValueError: there is no such index yet; none was skipped.
        """
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
            for index in sorted(indexes):
                if not self._ring.skip(index, index + 1):
                    raise errors.TooMany(f"cannot skip index {index} of {self._home.path}: beyond the window")
            self._ring.floor()

    def _persist(self) -> None:
        """With Durability.SYNC an explicit ack is on the disk when it returns."""
        if self._syncs and not self._closed:
            if self._syncer is None:
                from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

                self._syncer = Syncer(self._home, self._membership)
            self._syncer.acknowledge(self.name, self._checkpoint)

    def _ack_batch(self, messages: tuple[GroupMessage, ...]) -> bool:
        """All of one batch, in one call; False when they are not, or when one of them was lost."""
        batch, count = messages[0]._batch, len(messages)  # noqa: SLF001
        with self._lock:
            self._check_mine(messages[0], "acknowledge")
            if not batch.whole or batch.group is not self or list(messages) != batch.messages or not self._explicit:
                return False
            batch.forget()
            finished = self._growing(self._ring.ack_many, count, batch.taken)
            for message in messages:
                del self._held[message.index]
            if finished != count:
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

    def _settle(self, message: GroupMessage, what: str, call: Any, *, keeps: bool = False) -> None:
        with self._lock:
            self._check_mine(message, what)
            if self._held.get(message.index) is not message:
                return  # finished before, or by being handed out
            message._batch.forget()  # noqa: SLF001
            code = self._growing(call, message._batch.taken + message._at)  # noqa: SLF001
            if code != 0 or not keeps:
                del self._held[message.index]
            if code != 0:
                raise _native.error(code, f"cannot {what} message {message.index} of {self._home.path}")

    def _growing(self, call: Callable[..., int], *given: Any) -> int:
        """What that call of the ring answers, once as much of the ring is mapped as it needs."""
        code = call(*given)
        while code == _native.GROW:
            rings.grow(self._home, self.name, self._ring)
            code = call(*given)
        return code

    def _nack(self, message: GroupMessage, delay: float) -> None:
        if not delay >= 0:
            raise ValueError(f"delay={delay!r}: seconds from now")
        due = _native.boottime_ns() + int(min(delay, 1e9) * 1e9) if delay else 0
        behind = 0 if delay else self._walk.chain.next_index()
        self._settle(message, "give back", lambda taken: self._ring.nack(taken, due, behind))

    def _extend(self, message: GroupMessage, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"extend({seconds!r}): seconds from now, more than none")
        ends = _native.boottime_ns() + int(min(seconds, 1e9) * 1e9)
        self._settle(message, "keep", lambda taken: self._ring.extend_lease(taken, ends), keeps=True)

    # ---- looking
    @property
    def head(self) -> int:
        """Every message below it is finished, or parked for later."""
        return self._checkpoint.head

    @property
    def lag(self) -> int:
        """How many indexes the head is behind the end of the queue, padding included."""
        return max(self._walk.chain.next_index() - self._checkpoint.head, 0)

    @property
    def pending(self) -> int:
        """How many messages this member holds and has not finished."""
        return len(self._held)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes this member passed over because what was there is damaged."""
        return self._skipped + self._walk.skipped

    # ---- moving
    def seek(self, to: str | int | datetime.datetime) -> None:
        """
        Have the whole group go on from there: "earliest", "latest", an index, or the first message of a time or later.

        What was finished behind it comes again, what was not and is before it does not; attempts begin anew. What this
        member holds is forgotten. Only for its only member.

        Raises:
            Busy: somebody else is in the group.
            IndexError: it is beyond the end of the queue, or negative.
        """
        with self._lock:
            self._check_usable()
            index = names.start_index(self._queue, to)
            end = self._walk.chain.next_index()
            if index > end:
                raise IndexError(f"cannot seek to {index}: {self._home.path} has indexes up to {end}")
            if not self._name_lock.take():
                raise errors.Busy(f"cannot move group {self.name!r} of {self._home.path}: somebody else is in it")
            try:
                with self._home.admin():
                    rings.restart(self._home, self.name, index)
            finally:
                self._held.clear()
                self._enter_ring()
                self._name_lock.share()
        self._membership.control.recount()
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back

    # ---- closing
    def _snapshot(self) -> None:
        """Write down what is done, unless somebody else is at it."""
        self._snapshot_at = time.monotonic() + self._snapshot_every
        with contextlib.suppress(OSError):  # dropped meanwhile; or the disk refused, and the one there is still counts
            acks.of_member(self._home, self._membership.member, self.name, self._checkpoint, self._ring)

    def close(self) -> None:
        """Leave the group. What was handed out and not acknowledged goes to the others. Closing twice is fine."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._membership.control.wake()  # another thread may be waiting in here
        with self._lock:
            for message in self._held.values():
                self._growing(self._ring.give_back, message._batch.taken + message._at)  # noqa: SLF001
            self._held.clear()
            for mover in self._movers.values():
                mover.close()
            self._ring.floor()
            self._snapshot()
            self._name_lock.free()
        self._membership.leave()
        self._home.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Close, unless this is a forked child's copy."""
        with contextlib.suppress(AttributeError):  # never finished opening
            self.close()


@dataclasses.dataclass(frozen=True)
class GroupPlace:
    """
    Where a group stands, message by message.

    Attributes:
        head: everything below it is finished.
        done: the indexes above it that are finished, ascending; at most a window of them.
        open: those that somebody has and has not finished.
    """

    head: int
    done: tuple[int, ...]
    open: tuple[int, ...]


def place_of(home: Directory, name: str, checkpoint: _native.Checkpoint) -> GroupPlace:
    """As `Queue.group_place`, which is how to call it."""
    head, states = rings.states(home, name, checkpoint)
    done = tuple(head + at for at, state in enumerate(states) if state == _native.RING_DONE)
    opened = tuple(head + at for at, state in enumerate(states) if state == _native.RING_CLAIMED)
    return GroupPlace(head, done, opened)


def _sooner(deadline_ns: int, due_ns: int | None) -> int:
    """The earlier of a monotonic deadline (FOREVER for none) and a moment since boot, as a monotonic deadline."""
    if due_ns is None:
        return deadline_ns
    due = _native.monotonic_ns() + max(due_ns - _native.boottime_ns(), 0)
    return due if deadline_ns < 0 else min(deadline_ns, due)


def check_options(given: dict[str, Any], *, explicit: bool) -> dict[str, Any]:
    """The options that were given, after refusing what means nothing."""
    options = {name: value for name, value in given.items() if value is not None}
    lease, attempts = options.get("lease"), options.get("max_attempts")
    if lease is not None and not (isinstance(lease, int | float) and lease > 0):
        raise ValueError(f"lease={lease!r}: seconds, more than none; None to keep messages for ever")
    if attempts is not None and not (isinstance(attempts, int) and 1 <= attempts < 1 << 16):
        raise ValueError(f"max_attempts={attempts!r}: from 1 to 65535")
    if options.get("ordered_by", "key") != "key":
        raise ValueError(f'ordered_by={options["ordered_by"]!r}: "key", or None for no order')
    if "ordered_by" in options and not explicit:
        raise ValueError(
            'ordered_by="key" needs ack="explicit": with "auto" a message is finished when it is handed out, and the '
            "next of its key would go to another worker at once"
        )
    for name in ("dead_letter", "expire_to"):
        if not isinstance(options.get(name, ""), str):
            raise TypeError(f"{name}={options[name]!r}: the path of a queue")
    return options
