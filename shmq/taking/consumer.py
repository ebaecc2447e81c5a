"""
A consumer: a name with a checkpoint. Every name sees every message; one process holds a name at a time.

With ack="auto" the head moves before a message is handed out: at most once. With ack="explicit" it moves when the
messages up to it have been acknowledged: at least once. The head lives in the mapped checkpoint, so the death of the
process loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Never, NoReturn

from shmq import _native, codec, ending, errors, given, habits, later, locks
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.deadlines import deadline_of
from shmq.loan import Loan
from shmq.message import Message, no_message, of_record, payloads_of
from shmq.reading.access import Access
from shmq.reading.walk import Walk
from shmq.session import Handle
from shmq.storage import pins, space
from shmq.storage.paths import CONSUMERS, check_consumer_name
from shmq.taking import backlog, names
from shmq.where import says_where

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Sequence

    from shmq.durability import Syncer
    from shmq.session import Session

_BATCH = 1024
_NOT_YET = (_native.EMPTY, _native.WAITING)


@says_where("_home.path", "_persist", "seek", "close")
class Consumer(_native.Head, Handle):
    """
    One name's way through the queue. Made by `Queue.consumer`; a context manager; iterates until shutdown.

    Attributes:
        name: the name.
        ack_mode: "auto" or "explicit".
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        ack: str | None,
        start: str | float | datetime.datetime,
        skip_corrupt: bool = False,
        hold: bool | str | None = None,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        names.check_ack(ack)
        self.name = name
        self._ack = ack
        self._session = session
        self._skip_corrupt = skip_corrupt
        self._hold = hold
        self._pid = os.getpid()
        self._lock = locks.Lock()
        self._closed = False
        self._opened = False
        self._decode = session.codec.decode
        self._pending: dict[int, bool] = {}  # handed out and not below the head; True once acknowledged
        self._again: list[Message] = []  # pending, but an interrupted call kept them from whoever asked
        self._acking = 0
        self._syncer: Syncer | None = None
        self._name_lock: _native.Lock | None = None
        self._loan = Loan()
        try:
            self._borrow()
            self._open(start)
        except BaseException:
            self.close()
            raise

    # ---- opening
    def _open(self, start: str | float | datetime.datetime) -> None:
        path = f"{self._home.path}/{CONSUMERS}/{self.name}.checkpoint"
        self._open_checkpoint(path, start)
        self._explicit = self._checkpoint.explicit
        self.ack_mode = "explicit" if self._explicit else "auto"
        self._syncs = self._explicit and self._home.options.durability.kind == "sync"
        self._walk = Walk(self._home, self._membership, self._checkpoint, auto_ack=not self._explicit)
        self._walk.skip_corrupt = self._skip_corrupt
        if not self._explicit:  # explicit acks keep accounts in Python
            self._code_with(self._decode)
            self._walk.lead(self)
        self._stand_at_head(path)
        self._handed_before = self._checkpoint.handed
        self._tell_room = self._membership.control.tell_room
        self._opened = True
        self._checkpoint.holder = self._membership.member.owner

    def _open_checkpoint(self, path: str, start: str | float | datetime.datetime) -> None:
        file = f"{self.name}.checkpoint"
        if self.name not in self._home.consumer_names():
            with self._home.admin():
                if self.name not in self._home.consumer_names():
                    pins.set_hold(self._home, self.name, hold=self._hold or False)
                    index = names.start_index(self._session, start)
                    names.make_checkpoint(self._home, self.name, index, explicit=self._ack == "explicit", group=False)
        self._membership.control.recount()  # each time: whoever made it may have been killed before that
        fd, size = self._home.open(self._home.consumers, file, writable=True)
        with fd:
            self._checkpoint = _native.Checkpoint(fd, size, self._home.queue_id, self.name, path)
            if self._checkpoint.group:
                raise errors.Mismatch(
                    f"cannot open consumer {self.name!r} of {self._home.path} for this process alone: it is a "
                    "group; open it with group=True, or use another name"
                )
            self._name_lock = _native.Lock(fd)
            self._take_name(self._name_lock, fd)
        stored = "explicit" if self._checkpoint.explicit else "auto"
        if self._ack not in (None, stored):
            raise errors.Mismatch(
                f"cannot open consumer {self.name!r} of {self._home.path} with ack={self._ack!r}: "
                f"it was made with ack={stored!r}; leave it out, or use another name"
            )
        self._take_up_hold()

    def _take_up_hold(self) -> None:
        """Have it hold chunks back or not, as was asked for; of a name that is there, nobody else changes it now."""
        if self._hold is not None and self._hold != pins.holds(self._home, self.name):
            with self._home.admin():
                pins.set_hold(self._home, self.name, hold=self._hold)
            self._membership.control.recount()

    def _take_name(self, lock: _native.Lock, fd: int) -> None:
        if not names.patiently(self._home, lock.take):
            raise errors.Busy(
                f"consumer {self.name!r} of {self._home.path} is held by {self._holder(self._checkpoint)}; "
                "use another name, or wait until it is closed"
            )
        names.check_not_dropped(self._home, self.name, fd, "consumer")

    def _holder(self, checkpoint: _native.Checkpoint) -> str:
        slot = checkpoint.holder >> 11
        for seat, generation, pid, *_ in self._membership.control.participants():
            if seat == slot and generation == checkpoint.holder & 0x7FF:
                return "this process (close it first)" if pid == os.getpid() else f"process {pid}"
        return "another process"

    def _stand_at_head(self, path: str) -> None:
        head, handed = self._checkpoint.head, self._checkpoint.handed
        end = self._session.next_index
        if max(head, handed) > end:
            warnings.warn(
                f"{path} stood at index {head} and had handed out up to {handed}, beyond the end of the queue "
                f"at {end}; it was moved back to the end",
                RuntimeWarning,
                stacklevel=6,
            )
            self._checkpoint.head = head = min(head, end)
            self._checkpoint.handed = min(handed, end)
            self._membership.control.recount()
        cursor = self._checkpoint.cursor()
        if cursor and cursor[3] <= head:
            sequence, position, ordinal, _ = cursor
            if self._walk.resume(sequence, position, ordinal, head):
                return
        self._walk.seek(head)

    # ---- getting
    def _take(self, timeout: float | None = None) -> Any:
        """What `take` does where the built-in does not: waiting, explicit acks, errors."""
        given.timeout(timeout)
        if self._explicit:
            return self._take_explicit(1, timeout)[0]
        with self._lock:
            data = self._payload(self._next(timeout))
            chunk, index = self._walk.chunk, self._walk.which.index
        if self._decode is None:
            return data
        return codec.decode_all(self._decode, (data,), chunk, lambda _: index)[0]  # type: ignore[arg-type]

    _take.__qualname__ = "Consumer.take"  # which is what a wrong argument is told about

    def _take_explicit(
        self, limit: int, timeout: float | None, form: Callable[[list[Message]], Any] = payloads_of
    ) -> Any:
        """Of up to so many *form*: what cannot be decoded, or is interrupted, is not acknowledged, and comes again."""
        messages = self._hand_out(limit, timeout)
        try:
            data = form(messages)
            taken = messages[: len(data)]  # what comes behind is met again by the next call
            with self._lock:
                self._pending.update((message.index, True) for message in taken if message.index in self._pending)
                self._move_head()
                self._again[:0] = messages[len(data) :]
        except BaseException:
            self._again[:0] = messages
            raise
        return data

    def _payload(self, place: int) -> bytes:
        start = place >> LENGTH_BITS
        return self._walk.chunk.map[start : start + (place & LENGTH_MASK)]  # type: ignore[union-attr]

    def _get(self, timeout: float | None = None, *_: Never, **keywords: Never) -> Message:
        """What `get` does where the built-in does not."""
        if _ or keywords:
            given.no_block("get", _, keywords)
        if timeout is not None:
            given.timeout(timeout)
        if self._explicit:
            return self._hand_out(1, timeout)[0]
        with self._lock:
            place = self._next(timeout)
            which = self._walk.which
            return self._message(place, which.index, which.record)

    _get.__qualname__ = "Consumer.get"

    def _hand_out(self, limit: int, timeout: float | None) -> list[Message]:
        """
        Of a name with explicit acks. What a signal's handler ends by an exception hands out nothing: what was read is
        read again, and what was about to be returned comes first next time.
        """
        messages: list[Message] = []
        try:
            with self._lock:
                if self._again:
                    self._check_usable()
                    messages += self._again[:limit]
                    del self._again[:limit]
                else:
                    self._read(messages, limit, timeout)
            return messages  # noqa: TRY300  # what raises behind it is meant
        except BaseException:
            self._again[:0] = messages
            raise

    def _read(self, messages: list[Message], limit: int, timeout: float | None) -> None:
        """Up to so many, from where the walk stands."""
        mark = self._walk.mark()
        try:
            messages += self._messages(limit, timeout)
        except errors.ShmqError:
            raise
        except BaseException:
            if not messages:
                self._walk.back_to(mark)
            raise

    def _messages(self, limit: int, timeout: float | None) -> list[Message]:
        if limit == 1:
            place = self._next(timeout)
            which = self._walk.which
            return [self._message(place, which.index, which.record)]
        places, records = self._many(limit, timeout)
        chunk: Any = self._walk.chunk
        return [
            self._message(place, chunk.index_of(record), record) for place, record in zip(places, records, strict=True)
        ]

    def _take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """What `take_many` does where the built-in does not."""
        limit = _check_many(limit, timeout)
        if self._explicit:
            taken: list[Any] = self._take_explicit(limit, timeout)
            return taken  # nothing is called on the way: a signal's handler that raises behind it would lose them
        with self._lock:
            places, records = self._many(limit, timeout)
            chunk: Any = self._walk.chunk
            data = [chunk.map[(at := place >> LENGTH_BITS) : at + (place & LENGTH_MASK)] for place in places]
        if self._decode is None:
            return data
        return codec.decode_all(self._decode, data, chunk, lambda at: chunk.index_of(records[at]))

    _take_many.__qualname__ = "Consumer.take_many"

    def _undecodable(self, keep: tuple[Any, ...], record: int, problem: Exception) -> Never:
        """What the built-ins do when their codec cannot read the message of that record."""
        chunk = keep[0]
        codec.explain(problem, chunk.index_of(record), chunk)
        raise problem

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
        the first that comes.

        A batch has the messages of one chunk file. Every message's checksum is looked at, whatever the columns.

        Args:
            columns: as in `Queue.read_arrow`, and "attempts" (uint16): 2 for what may have been handed out before.
            max_bytes: as in `Queue.read_arrow`.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            Otherwise as `take`.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading import arrow  # noqa: PLC0415  # only who uses it pays for it

        given.timeout(timeout)
        names = arrow.check_columns(columns, attempts=True)
        handed = {"handed_before": self._handed_before, "checked": True}
        plan = arrow.plan(names, rows=arrow.check_rows("limit", limit), max_bytes=max_bytes, **handed)
        if self._again:  # what an interrupted call kept from whoever asked
            return self._take_explicit(limit, timeout, lambda messages: arrow.of_messages(names, messages))
        with self._lock:
            self._check_usable()
            mark = self._walk.mark()
            try:
                gathered = self._gather(plan, timeout)
            except errors.ShmqError:
                raise
            except BaseException:
                if self._explicit:
                    self._walk.back_to(mark)
                raise
        return arrow.batch(gathered, names)

    def _gather(self, plan: Any, timeout: float | None) -> _native.Gathered:
        found: list[_native.Gathered] = []

        def look(_: int) -> int:
            gathered = self._walk.gather(plan)
            if isinstance(gathered, int):
                return gathered
            found.append(gathered)
            return 0

        if look(0) < 0:
            self._walk.wait(deadline_of(timeout), self._ended, look)
        if self._explicit:
            self._finished(found[0])
        return found[0]

    def _finished(self, gathered: _native.Gathered) -> None:
        """What was gathered is acknowledged; earlier messages may still be pending."""
        if self._pending:
            self._pending.update(dict.fromkeys(range(gathered.first, gathered.last + 1), True))
            self._move_head()
        else:
            self._checkpoint.head = gathered.last + 1

    def _get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """What `get_many` does where the built-in does not."""
        limit = _check_many(limit, timeout)
        if self._explicit:
            return self._hand_out(limit, timeout)
        with self._lock:
            return self._messages(limit, timeout)

    _get_many.__qualname__ = "Consumer.get_many"

    def peek(self) -> Message | None:
        """
        The next message, without taking it; None when a get would find none now: it may be delayed.

        Raises:
            Corrupt: it is damaged.
            Gone: as `take`.
        """
        with self._lock:
            self._check_usable()
            if self._again:
                return self._again[0]
            place = self._walk.glance()
            if place < 0:
                if place in _NOT_YET:
                    return None
                raise _native.error(place, f"cannot read {self._home.path}")
            chunk: Any = self._walk.chunk
            which = self._walk.which
            return of_record(chunk, int(which.index), int(which.record), place, self._decode)

    def _many(self, limit: int, timeout: float | None) -> tuple[list[int], list[int]]:
        """Places and records of what is there, after waiting for the first; all in one chunk."""
        first = self._next(timeout)
        reader, chunk = self._walk.reader, self._walk.chunk
        assert chunk is not None  # noqa: S101  # there is a first message in it
        found, records = [first], [int(self._walk.which.record)]
        places, positions = _native.place_arrays(min(limit, _BATCH))
        while len(found) < limit:
            room = min(limit - len(found), _BATCH)
            count = _native.next_many(chunk.handle, reader, room, places, positions)
            if count <= 0:
                break  # whatever it is, the next call meets it again
            found += _native.unpack(places, count)
            records += _native.unpack(positions, count)
        return found, records

    def _next(self, timeout: float | None) -> int:
        """The next message's place, by way of everything that is not the fast path."""
        self._check_usable()
        self._walk.go_on_leading()
        place = self._walk.look()
        if place < 0:
            place = self._walk.wait(deadline_of(timeout), self._ended)
        if self._explicit and not self._pending:
            self._finish_before(int(self._walk.reader.index))
        return place

    def _has_something(self) -> bool:
        """Whether a get would answer at once: with a message, or with why there will be none."""
        self._check_forked()
        with self._lock:
            return bool(self._again) or self._ended() is not None or self._walk.glance() not in _NOT_YET

    def _pass(self) -> None:
        """What was passed and needs nobody is finished, also when nothing behind it is handed out."""
        if self._walk.chunk is not None and not self._pending:
            self._finish_before(self._walk.index())

    def _finish_before(self, index: int) -> None:
        """What lies before it was passed (it had expired, or was dropped), and nothing is held."""
        if index > self._checkpoint.head:
            self._checkpoint.raise_head(index)
            self._tell_room()

    def _due_ns(self) -> int | None:
        """When to look again, as it was found by the last look; since boot."""
        return self._walk.due_ns()

    def _waited(self) -> None:
        """A wait for several, in which this one was looked at, has ended."""

    def _ended(self) -> Exception | None:
        self._pass()
        if self._closed:
            return errors.Closed(f"consumer {self.name!r} of {self._home.path} was closed")
        control = self._membership.control
        if control.is_shut_down_at_once():
            return errors.ShutDown(f"{self._home.path} was shut down at once; what is left in it stays there")
        if ending.over(self._home, control) and self._walk.at_end():
            return errors.ShutDown(
                f"{self._home.path} {ending.words(control)}, and consumer {self.name!r} has drained it"
            )
        return None

    def _check_usable(self) -> None:
        self._check_forked()
        if self._closed:
            raise errors.Closed(f"consumer {self.name!r} of {self._home.path} was closed")

    def _check_forked(self) -> None:
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"consumer {self.name!r} of {self._home.path} belongs to the parent process {self._pid}; "
                "open one under another name in this child"
            )

    def _message(self, place: int, index: int, record: int) -> Message:
        chunk: Any = self._walk.chunk
        if not self._explicit:
            return of_record(chunk, index, record, place, self._decode)
        self._pending[index] = False
        attempts = 2 if index < self._handed_before else 1
        return _native.message(chunk, chunk.address, index, record, place, self._decode, self, attempts)

    def _next_message(self) -> Message:
        """The next message of a loop, which ends when the queue is over and drained, or this is closed."""
        try:
            return self._get()
        except (errors.ShutDown, errors.Closed):
            raise StopIteration from None

    # ---- acknowledging
    def ack(self, *messages: Message) -> None:
        """
        Say that these messages are finished. The head moves over all that are finished from it on. For those that are
        finished already it does nothing.

        Raises:
            Closed, Forked: as `Message.ack`.
        """
        for message in messages:
            if not isinstance(message, Message):
                raise no_message(message)
        self._acking = threading.get_ident()
        try:
            for message in messages:
                message.ack()
        finally:
            self._acking = 0
        self._persist()

    def _ack_one(self, message: Message) -> None:
        """As `Message.ack`."""
        with self._lock:
            self._check_usable()
            if message.index in self._pending:
                self._pending[message.index] = True
                self._move_head(message)
        if self._acking != threading.get_ident():  # else once, after the last one
            self._persist()

    def _persist(self) -> None:
        """With Durability.SYNC an explicit ack is on the disk when it returns."""
        if self._syncs:
            newest = self._checkpoint.newest_snapshot()
            if (
                newest is None
                or newest.sequence != self._checkpoint.snapshot_synced()
                or newest.head != self._checkpoint.head
            ):
                self._to_the_disk()

    def _to_the_disk(self) -> None:
        if self._syncer is None:
            later.ready("shmq.durability")
            from shmq.durability import Syncer  # noqa: PLC0415  # only who needs the disk pays for it

            self._syncer = Syncer(self._home, self._membership)
        self._syncer.acknowledge(self.name, self._checkpoint)

    def _move_head(self, message: Message | None = None) -> None:
        """Over everything finished; what was handed out later stays pending."""
        pending = self._pending
        finished, head = [], -1
        for index, done in pending.items():
            head = index  # not the reader's place: it may be in a new chunk, where it has read nothing
            if not done:
                break
            finished.append(index)
            head = index + 1
        if not finished:
            return
        # First the head: what is interrupted in between is forgotten by the next one.
        try:
            self._checkpoint.head = head
            for index in finished:
                del pending[index]
        finally:
            self._tell_room()  # no function in Python, at whose beginning a signal's handler could keep it from that
        if message is not None and message.index % 256 == 0:
            chunk, record, *_ = _native.parts(message)
            self._checkpoint.save_cursor(chunk.sequence, record, message.index - chunk.base, message.index)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes were passed over because what was there is damaged."""
        self._check_forked()
        return self._walk.skipped

    @property
    def head(self) -> int:
        """The next index this name has not finished."""
        return self._checkpoint.head

    @property
    def lag(self) -> int:
        """
        How many messages this name has not finished: handed out or not, also what is delayed or has expired meanwhile.

        What its holder acknowledged out of order it knows alone: `Queue.consumers` counts from the head on.
        """
        self._check_forked()
        with self._lock:
            end = self._walk.chain.next_index()
            at = self._walk.index() if self._pending and self._walk.chunk is not None else 0
            first = self._walk.chain.first_index()  # what retention has taken is behind nobody
            held = sum(not done and index >= first for index, done in self._pending.items()) if at else 0
            return held + backlog.of_name(self._home, self._membership, self._checkpoint, end, at).lag

    @property
    def pending(self) -> int:
        """How many messages are handed out and not acknowledged."""
        self._check_forked()
        return sum(not done for done in self._pending.values())

    def seek(self, to: str | float | datetime.datetime) -> None:
        """
        Go on from there, forward or back: "earliest", "latest", an index, or the first message of a time or later.

        What is pending is forgotten, and attempts are counted anew. Going back is on the disk when it returns, where
        the disk has that more is finished: a power cut does not undo it.

        Args:
            to: a time is a datetime (local when it names no zone) or a float of seconds since 1970.

        Raises:
            IndexError: it is beyond the end of the queue, or negative.
            ValueError: it means no index.
            SyncFailed, OSError: the disk refused. The name stands there all the same; a power cut may undo that.
        """
        with self._lock:
            self._check_usable()
            access = Access(self._home, self._membership, self._decode)
            index, end = access.index_of(to, "to"), access.next_index()
            if not 0 <= index <= end:
                raise IndexError(
                    f"cannot seek to {index}: {self._home.path} has indexes from "
                    f"{self._walk.chain.first_index()} to {end}"
                )
            self._pending.clear()
            self._again.clear()
            self._walk.seek(index)
            # Nothing behind it is: what is purged meanwhile is dropped, and attempts are counted anew.
            self._checkpoint.handed = self._handed_before = min(self._checkpoint.handed, index)
            self._checkpoint.head = index
            self._membership.control.recount()
            synced = self._checkpoint.newest_snapshot()
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back
        if synced is not None and synced.head > index:
            self._to_the_disk()

    # ---- closing
    def close(self) -> None:
        """Give the name back. What was handed out and not acknowledged comes again. Closing twice is fine."""
        self._closed = True
        if self._loan.is_over() or os.getpid() != self._pid:
            return
        if self._opened:
            self._walk.stop()
            self._membership.control.wake()  # another thread may be waiting in here
        with self._lock:
            self._leave_name()
        if self._opened and self._home.options.durability.kind != "process":
            with contextlib.suppress(errors.ShmqError, OSError, ImportError):  # forgotten after a power cut, at worst
                self._to_the_disk()
        self._loan.give_back()

    def _leave_name(self) -> None:
        """Give the name to whoever wants it. A second time it is not ours any more."""
        if self._name_lock is None or self._name_lock.is_free():
            return
        if self._opened:
            reader, chunk = self._walk.reader, self._walk.chunk
            if chunk is not None and not self._pending:
                position, ordinal = int(reader.position), int(reader.ordinal)
                self._checkpoint.save_cursor(chunk.sequence, position, ordinal, chunk.base + ordinal)
            self._checkpoint.holder = 0
        self._name_lock.free()

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its queue does."""
        raise given.no_pickle(self, f"consumer {self.name!r} of {self._home.path}", f"consumer({self.name!r})")

    def __dir__(self) -> list[str]:
        """What it has, without the names that only say what to use instead (shmq/habits.py)."""
        return [name for name in super().__dir__() if name not in habits.OF_CONSUMERS]

    def __repr__(self) -> str:
        """Name, queue, ack mode, and how far it is, for people."""
        state = "closed" if self._closed else f"ack={self.ack_mode}, head {self._checkpoint.head}"
        return f"<shmq.Consumer {self.name!r} of {self._session.place} ({state})>"

    def __del__(self) -> None:
        """Close, unless this is a forked child's copy."""
        with contextlib.suppress(AttributeError):  # never finished opening
            self.close()


habits.tell(Consumer, habits.OF_CONSUMERS)


def _check_many(limit: int, timeout: float | None) -> int:
    """How many at most, after a look at both."""
    given.timeout(timeout)
    return given.whole("limit", limit, 1)
