"""
A consumer: a name with a checkpoint. Every name sees every message; one process holds a name at a time.

The head moves before a message is handed out: at most once. It lives in the mapped checkpoint, so the death of the
process loses nothing. Whoever acknowledges what it has (ack="explicit") is another thing: lone.py.
"""

from __future__ import annotations

import collections
import contextlib
import os
import warnings

from shmq import _native, codec, ending, errors, given, habits, later, locks
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.alarm import Awaited
from shmq.deadlines import deadline_of
from shmq.hints import TYPE_CHECKING, T
from shmq.loan import Loan
from shmq.message import Message, no_message, of_record
from shmq.patience import Patience
from shmq.reading.access import Access
from shmq.reading.walk import Walk
from shmq.session import Handle
from shmq.storage import departures, pins, space
from shmq.storage.paths import CONSUMERS, check_consumer_name
from shmq.storage.subscriptions import EVERYTHING
from shmq.taking import names, subscribing
from shmq.where import says_where

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Sequence
    from typing import Any, Never, NoReturn

    from shmq.filter import Filter
    from shmq.session import Session
    from shmq.storage.subscriptions import Subscription

_BATCH = 1024
_NOT_YET = (_native.EMPTY, _native.WAITING)


@says_where("_home.path", "seek", "close")
class Consumer(_native.Head[T], Awaited, Handle):
    """
    One name's way through the queue, where each message is finished when it is handed out. Made by `Queue.consumer`.

    A context manager; iterates until shutdown.

    Attributes:
        name: the name.
        ack_mode: "auto".
    """

    ack_mode = "auto"

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        ack: str | None,
        start: str | float | datetime.datetime,
        skip_corrupt: bool = False,
        hold: bool | str | None = None,
        wait: str = "hybrid",
        subscription: Subscription = EVERYTHING,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        names.check_ack(ack)
        self._patience = Patience(wait)
        self.name = name
        self._session = session
        self._skip_corrupt = skip_corrupt
        self._hold = hold
        self._asked = subscription
        self._pid = os.getpid()
        self._lock = locks.Lock()
        self._closed = False
        self._unread: collections.deque[Exception] = collections.deque()
        """Of what was finished with others and cannot be read: why, for the calls to come."""
        self._opened = False
        self._remembered = -1
        """The sequence of the chunk that its checkpoint says it stands in."""
        self._decode = session.codec.decode
        self._name_lock: _native.Lock | None = None
        self._loan = Loan()
        try:
            self._borrow()
            with self._home.at_hand():
                self._open(ack, start)
        except BaseException:
            self.close()
            raise

    # ---- opening
    def _open(self, ack: str | None, start: str | float | datetime.datetime) -> None:
        path = f"{self._home.path}/{CONSUMERS}/{self.name}.checkpoint"
        names.persistently(self._asked, lambda: self._open_checkpoint(path, ack, start), self._let_go)
        self._wants = self.filter.compiled() if self.filter else None
        self._walk = Walk(self._home, self._membership, self._checkpoint, patience=self._patience, wants=self._wants)
        self._walk.skip_corrupt = self._skip_corrupt
        self._code_with(self._decode)
        self._walk.lead(self)
        self._wait_with(self._lock, self._patience.spins)
        self._stand_at_head(path)
        self._tell_room = self._membership.control.tell_room
        self._opened = True
        self._checkpoint.holder = self._membership.member.owner

    def _open_checkpoint(self, path: str, ack: str | None, start: str | float | datetime.datetime) -> None:
        file = f"{self.name}.checkpoint"
        names.let_go(self._home, self.name)
        if not self._home.has_consumer(self.name):
            with self._home.admin():
                if not self._home.has_consumer(self.name):
                    pins.set_hold(self._home, self.name, hold=self._hold or False)
                    index = names.start_index(self._session, start)
                    self._name_lock = names.make_checkpoint(
                        self._home,
                        self.name,
                        index,
                        explicit=False,
                        kind=_native.CHECKPOINT_EXCLUSIVE,
                        subscription=self._asked,
                    )
        self._membership.control.recount()  # each time: whoever made it may have been killed before that
        fd, size = self._home.open(self._home.consumers, file, writable=True)
        with fd:
            self._checkpoint = _native.Checkpoint(fd, size, self._home.queue_id, self.name, path)
            if self._checkpoint.ring or self._checkpoint.explicit:
                if ack is None and self._checkpoint.kind == _native.CHECKPOINT_LONE:
                    raise names.IsLone
                later.ready("shmq.taking.joining")
                from shmq.taking import joining  # noqa: PLC0415  # groups have it, and who is refused

                raise joining.is_no_plain_name(self._home, self.name, ack, self._checkpoint)
            self._name_lock = self._name_lock or _native.Lock(fd)
            names.hold_alone(self._home, self.name, self._checkpoint, self._name_lock, self._membership.control)
            names.check_not_dropped(self._home, self.name, fd, "consumer")
        self._name_lock.keep()
        called = f"consumer {self.name!r}"
        self._subscription = subscribing.agreed(self._home, self.name, called, self._checkpoint, self._asked)
        departures.holds(self._checkpoint)
        names.take_up_hold(self._home, self.name, self._membership.control, hold=self._hold)

    def _let_go(self) -> None:
        if self._name_lock is not None:
            self._name_lock.free()
        self._name_lock = None

    def _stand_at_head(self, path: str) -> None:
        head, handed = self._checkpoint.head, self._checkpoint.handed
        if not self._walk.chain.is_passed(max(head, handed)) and max(head, handed) > (end := self._session.next_index):
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
            sequence, position, ordinal, index = cursor
            self._walk.chain.remembered = sequence, index - ordinal
            if self._walk.resume(sequence, position, ordinal, head):
                return
        self._walk.seek(head)

    # ---- getting
    def _take(self, timeout: float | None = None) -> Any:
        """What `take` does where the built-in does not: waiting, errors."""
        given.timeout(timeout)
        with self._lock:
            data = self._payload(self._next(timeout))
            chunk, index = self._walk.chunk, self._walk.which.index
        if self._decode is None:
            return data
        return codec.decode_all(self._decode, (data,), chunk, lambda _: index)[0]  # type: ignore[arg-type]

    _take.__qualname__ = "Consumer.take"  # which is what a wrong argument is told about

    def _payload(self, place: int) -> bytes:
        start = place >> LENGTH_BITS
        return self._walk.chunk.map[start : start + (place & LENGTH_MASK)]  # type: ignore[union-attr]

    def _get(self, timeout: float | None = None, *_: Never, **keywords: Never) -> Message:
        """What `get` does where the built-in does not."""
        if _ or keywords:
            given.no_block("get", _, keywords)
        if timeout is not None:
            given.timeout(timeout)
        with self._lock:
            place = self._next(timeout)
            which = self._walk.which
            return self._message(place, which.index, which.record)

    _get.__qualname__ = "Consumer.get"

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
        with self._lock:
            places, records = self._many(limit, timeout)
            chunk: Any = self._walk.chunk
            data = [chunk.map[(at := place >> LENGTH_BITS) : at + (place & LENGTH_MASK)] for place in places]
        if self._decode is None:
            return data
        done, problems = codec.decode_readable(self._decode, data, chunk, lambda at: chunk.index_of(records[at]))
        return self._passed_over(problems, done) if problems else done

    _take_many.__qualname__ = "Consumer.take_many"

    def _passed_over(self, problems: list[Exception], payloads: list[Any]) -> list[Any]:
        """Of a batch that is finished: what could be read; the next calls tell of what could not."""
        with self._lock:
            self._unread.extend(problems if payloads else problems[1:])
            self._walk.stop()  # or the built-ins went on
        if not payloads:
            raise problems[0]
        return payloads

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
            columns: as in `Queue.read_arrow`, and "attempts" (uint16), which is 1.
            max_bytes: as in `Queue.read_arrow`.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            Otherwise as `take`.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading import arrow  # noqa: PLC0415  # only who uses it pays for it

        given.timeout(timeout)
        wanted = arrow.check_columns(columns, attempts=True)
        rows = arrow.check_rows("limit", limit)
        plan = arrow.plan(wanted, rows=rows, max_bytes=max_bytes, checked=True)
        with self._lock:
            self._check_usable()
            gathered = self._gather(plan, timeout)
        return arrow.batch(gathered, wanted)

    def _gather(self, plan: Any, timeout: float | None) -> _native.Gathered:
        found: list[_native.Gathered] = []

        def look(_: int) -> int:
            gathered = self._walk.gather(plan)
            if isinstance(gathered, int):
                return gathered
            found.append(gathered)
            return 0

        if look(0) < 0:
            self._wait(timeout, look)
        self._membership.control.count_taken(found[0].rows)
        return found[0]

    def _get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """What `get_many` does where the built-in does not."""
        limit = _check_many(limit, timeout)
        with self._lock:
            return self._messages(limit, timeout)

    _get_many.__qualname__ = "Consumer.get_many"

    def peek(self) -> Message[T] | None:
        """
        The next message, without taking it; None when a get would find none now: it may be delayed.

        Raises:
            Corrupt: it is damaged.
            Gone: as `take`.
        """
        with self._lock:
            self._check_usable()
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
            self._membership.control.count_taken(count)
            found += _native.unpack(places, count)
            records += _native.unpack(positions, count)
            chunk.timed(count, chunk.index_of(records[-1]), records[-1])
        return found, records

    def _next(self, timeout: float | None) -> int:
        """The next message's place, by way of everything that is not the fast path."""
        self._check_usable()
        if self._unread:
            raise self._unread.popleft()
        self._walk.go_on_leading()
        if self._walk.chunk is None:
            with self._home.at_hand():  # it is found first, by some looks into the folder of chunks
                place = self._walk.look()
        else:
            place = self._walk.look()
        place = place if place >= 0 else self._wait(timeout, None)
        chunk, which = self._walk.chunk, self._walk.which
        assert chunk is not None  # noqa: S101  # the message is in it
        if chunk.sequence != self._remembered:
            self._remember(chunk)
        self._membership.control.count_taken(1)
        chunk.timed(1, int(which.index), int(which.record))
        return place

    def _remember(self, chunk: _native.Chunk) -> None:
        """Once a chunk: whoever opens the name behind a kill finds it there, and lists no thousands of names."""
        self._checkpoint.save_cursor(chunk.sequence, chunk.first_position(), 0, chunk.base)
        self._remembered = chunk.sequence

    def _wait(self, timeout: float | None, look: Callable[[int], int] | None) -> int:
        try:
            return self._walk.wait(deadline_of(timeout), self._ended, look)
        except errors.Empty:
            self._is_empty()
            raise

    def _has_something(self) -> bool:
        """Whether a get would answer at once: with a message, or with why there will be none."""
        self._check_forked()
        with self._lock:
            return self._ended() is not None or self._walk.glance() not in _NOT_YET

    def _pass(self) -> None:
        """What was passed and needs nobody is finished, also when nothing behind it is handed out."""
        if self._walk.chunk is not None:
            self._finish_before(self._walk.index())

    def _finish_before(self, index: int) -> None:
        """What lies before it was passed: it had expired, or was dropped."""
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
                f"{self._home.path} {ending.words(self._home, control)}, and consumer {self.name!r} has drained it"
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
        return of_record(chunk, index, record, place, self._decode)

    def _next_message(self) -> Message:
        """The next message of a loop, which ends when the queue is over and drained, or this is closed."""
        try:
            return self._get()
        except (errors.ShutDown, errors.Closed):
            raise StopIteration from None

    # ---- acknowledging
    def ack(self, *messages: Message) -> None:
        """
        Do nothing for messages of this consumer, which were finished when they were handed out.

        Raises:
            As `Message.ack`, of another consumer's.
        """
        for message in messages:
            if not isinstance(message, Message):
                raise no_message(message)
        for message in messages:
            message.ack()

    def _to_the_disk(self) -> None:
        later.ready("shmq.durability")
        from shmq.durability import Syncer  # noqa: PLC0415  # only who needs the disk pays for it

        Syncer(self._home, self._membership).acknowledge(self.name, self._checkpoint)

    @property
    def filter(self) -> Filter | None:
        """Which messages this name wants; None for all."""
        return self._subscription.filter

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
        How many messages this name has not had, including what is delayed or has expired meanwhile.

        With a filter those that match, which takes a walk over what is behind; see `behind`.
        """
        self._check_forked()
        with self._lock:
            end = self._walk.chain.next_index()
            later.ready("shmq.taking.backlog")
            from shmq.taking import backlog  # noqa: PLC0415  # only who asks pays for it

            return backlog.of_name(self._home, self._membership, self._checkpoint, end, self._wants).lag

    @property
    def behind(self) -> int:
        """How many indexes lie between this name and the end of the queue, whatever is there: `lag` at most."""
        self._check_forked()
        with self._lock:
            return max(self._walk.chain.next_index() - self._checkpoint.head, 0)

    @property
    def pending(self) -> int:
        """How many messages are handed out and not acknowledged: none."""
        self._check_forked()
        return 0

    def seek(self, to: str | float | datetime.datetime) -> None:
        """
        Go on from there, forward or back: "earliest", "latest", an index, or the first message of a time or later.

        Going back is on the disk when it returns, where the disk has that more is finished: a power cut does not undo
        it.

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
            self._walk.seek(index)
            self._checkpoint.handed = min(self._checkpoint.handed, index)  # what is purged meanwhile is dropped
            self._checkpoint.head = index
            self._membership.control.recount()
            synced = self._checkpoint.newest_snapshot()
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back
        if synced is not None and synced.head > index:
            self._to_the_disk()

    # ---- closing
    def close(self) -> None:
        """Give the name back. Closing twice is fine."""
        self._closed = True
        self._close_ready()
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
            if chunk is not None:
                position, ordinal = int(reader.position), int(reader.ordinal)
                self._checkpoint.save_cursor(chunk.sequence, position, ordinal, chunk.base + ordinal)
            self._checkpoint.holder = 0
        self._name_lock.free()
        if self._opened:
            names.leave(self._home, self.name, self._subscription, self._membership.control, self._walk.chain)

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
        self._end_quietly(self.close)


habits.tell(Consumer, habits.OF_CONSUMERS)


def _check_many(limit: int, timeout: float | None) -> int:
    """How many at most, after a look at both."""
    given.timeout(timeout)
    return given.whole("limit", limit, 1)
