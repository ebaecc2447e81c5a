"""
A consumer: a name with a checkpoint. Every name sees every message; one process holds a name at a time.

With ack="auto" the head moves before a message is handed out: at most once. With ack="explicit" it moves when the
messages up to it have been acknowledged: at least once. The head lives in the mapped checkpoint, so the death of the
process loses nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

from shmq import _native, errors, locks, names
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.access import Access
from shmq.message import Message
from shmq.storage import pins, space
from shmq.storage.directory import CONSUMERS, check_consumer_name
from shmq.walk import Walk, deadline_of
from shmq.where import says_where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from shmq.durability import Syncer
    from shmq.queue import Queue

_BATCH = 1024


@says_where("_home.path", "_persist", "seek", "close")
class Consumer(_native.Head):
    """
    One name's way through the queue. Made by `Queue.consumer`; a context manager; iterates until shutdown.

    Attributes:
        name: the name.
        ack_mode: "auto" or "explicit".
    """

    def __init__(
        self,
        queue: Queue,
        name: str,
        *,
        ack: str,
        start: str | int | datetime.datetime,
        skip_corrupt: bool = False,
        hold: bool | None = None,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        if ack not in ("auto", "explicit"):
            raise ValueError(f'ack={ack!r}: "auto" or "explicit"')
        self.name = name
        self.ack_mode = ack
        self._explicit = ack == "explicit"
        self._queue = queue
        self._skip_corrupt = skip_corrupt
        self._hold = hold
        self._pid = os.getpid()
        self._lock = locks.Lock()
        self._closed = False
        self._decode = queue._codec.decode  # noqa: SLF001
        self._pending: dict[int, bool] = {}  # handed out and not below the head; True once acknowledged
        self._home, self._membership = queue._lend()  # noqa: SLF001
        self._acking = 0
        self._syncer: Syncer | None = None
        self._syncs = self._explicit and self._home.options.durability.kind == "sync"
        try:
            self._open(start)
        except BaseException:
            self._closed = True
            self._membership.leave()
            self._home.close()
            raise

    # ---- opening
    def _open(self, start: str | int | datetime.datetime) -> None:
        path = f"{self._home.path}/{CONSUMERS}/{self.name}.checkpoint"
        self._checkpoint, self._name_lock = self._open_checkpoint(path, start)
        try:
            self._walk = Walk(self._home, self._membership, self._checkpoint, auto_ack=not self._explicit)
            self._walk.skip_corrupt = self._skip_corrupt
            if not self._explicit:  # explicit acks keep accounts in Python
                self._code_with(self._decode)
                self._walk.lead(self)
            self._stand_at_head(path)
        except BaseException:
            self._name_lock.free()
            raise
        self._handed_before = self._checkpoint.handed
        self._checkpoint.holder = self._membership.member.owner

    def _open_checkpoint(
        self, path: str, start: str | int | datetime.datetime
    ) -> tuple[_native.Checkpoint, _native.Lock]:
        file = f"{self.name}.checkpoint"
        if self.name not in self._home.consumer_names():
            with self._home.admin():
                if self.name not in self._home.consumer_names():
                    pins.set_hold(self._home, self.name, on=bool(self._hold))
                    index = names.start_index(self._queue, start)
                    names.make_checkpoint(self._home, self.name, index, explicit=self._explicit, group=False)
                    self._membership.control.recount()
        fd, size = self._home.open(self._home.consumers, file, writable=True)
        try:
            checkpoint = _native.Checkpoint(fd, size, self._home.queue_id, self.name, path)
        except BaseException:
            os.close(fd)
            raise
        lock = _native.Lock(os.dup(fd))
        try:
            if checkpoint.group:
                raise errors.Mismatch(
                    f"cannot open consumer {self.name!r} of {self._home.path} for this process alone: it is a group; "
                    "open it with group=True, or use another name"
                )
            self._take_name(lock, fd, checkpoint)
        except BaseException:
            lock.free()
            raise
        finally:
            os.close(fd)
        if checkpoint.explicit != self._explicit:
            lock.free()
            stored = "explicit" if checkpoint.explicit else "auto"
            raise errors.Mismatch(
                f"cannot open consumer {self.name!r} of {self._home.path} with ack={self.ack_mode!r}: "
                f"it was made with ack={stored!r}"
            )
        try:
            self._take_up_hold()
        except BaseException:
            lock.free()
            raise
        return checkpoint, lock

    def _take_up_hold(self) -> None:
        """Have it hold chunks back or not, as was asked for; of a name that is there, nobody else changes it now."""
        if self._hold not in (None, pins.holds(self._home, self.name)):
            with self._home.admin():
                pins.set_hold(self._home, self.name, on=bool(self._hold))

    def _take_name(self, lock: _native.Lock, fd: int, checkpoint: _native.Checkpoint) -> None:
        if not lock.take():
            raise errors.Busy(
                f"consumer {self.name!r} of {self._home.path} is held by {self._holder(checkpoint)}; "
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
        end = self._queue.next_index
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
        with self._lock:
            place = self._next(timeout)
            if self._explicit:
                self._pending[self._walk.reader.index] = True
                self._move_head()
            data = self._payload(place)
        return data if self._decode is None else self._decode(data)

    def _payload(self, place: int) -> bytes:
        start = place >> LENGTH_BITS
        return self._walk.chunk.map[start : start + (place & LENGTH_MASK)]  # type: ignore[union-attr]

    def get(self, timeout: float | None = None) -> Message:
        """
        The next message, with everything it carries. With ack="explicit", call its `ack()` when it is finished.

        Args and Raises: as `take`.
        """
        with self._lock:
            place = self._next(timeout)
            return self._message(place, self._walk.reader.index, self._walk.reader.record)

    def _take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """What `take_many` does where the built-in does not."""
        with self._lock:
            places, _, first = self._many(limit, timeout)
            if self._explicit:
                self._pending.update(dict.fromkeys(range(first, self._walk.reader.index + 1), True))
                self._move_head()
            chunk_map = self._walk.chunk.map  # type: ignore[union-attr]
            data = [chunk_map[(at := place >> LENGTH_BITS) : at + (place & LENGTH_MASK)] for place in places]
        return data if self._decode is None else list(map(self._decode, data))

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
        from shmq import arrow  # noqa: PLC0415  # only who uses it pays for it

        names = arrow.check_columns(columns, attempts=True)
        handed = {"handed_before": self._handed_before, "checked": True}
        plan = arrow.plan(names, rows=limit, max_bytes=max_bytes, **handed)
        with self._lock:
            self._check_usable()
            gathered = self._gather(plan, timeout)
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

    def get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """
        Between 1 and *limit* messages: those that are there now, or the first that comes.

        Args and Raises: as `take`.
        """
        with self._lock:
            places, records, _ = self._many(limit, timeout)
            chunk: Any = self._walk.chunk
            ordinals = (int.from_bytes(chunk.map[record + 16 : record + 20], "little") for record in records)
            return [
                self._message(place, chunk.base + ordinal, record)
                for place, record, ordinal in zip(places, records, ordinals, strict=True)
            ]

    def peek(self) -> Message | None:
        """The next message, without taking it; None when there is none."""
        with self._lock:
            self._check_usable()
            access = Access(self._home, self._membership, self._decode)
            for message in access.forward(self._walk.index(), access.next_index()):
                if not message.expired():
                    return message
            return None

    def _many(self, limit: int, timeout: float | None) -> tuple[list[int], list[int], int]:
        """Places and records of what is there, after waiting for the first; all in one chunk."""
        if limit < 1:
            raise ValueError(f"limit={limit}: at least 1")
        first = self._next(timeout)
        reader, chunk = self._walk.reader, self._walk.chunk
        assert chunk is not None  # noqa: S101  # there is a first message in it
        found, records = [first], [int(reader.record)]
        first_index = int(reader.index)
        places, positions = _native.place_arrays(min(limit, _BATCH))
        while len(found) < limit:
            room = min(limit - len(found), _BATCH)
            count = _native.next_many(chunk.handle, reader, room, places, positions)
            if count <= 0:
                break  # whatever it is, the next call meets it again
            found += _native.unpack(places, count)
            records += _native.unpack(positions, count)
        return found, records, first_index

    def _next(self, timeout: float | None) -> int:
        """The next message's place, by way of everything that is not the fast path."""
        self._check_usable()
        place = self._walk.look()
        if place < 0:
            place = self._walk.wait(deadline_of(timeout), self._ended)
        if self._explicit and not self._pending and self._membership.control.bounds().dropped:
            self._checkpoint.head = int(self._walk.reader.index)  # over what was dropped before it
        return place

    def _has_something(self) -> bool:
        """Whether a get would answer at once: with a message, or with why there will be none."""
        self._check_forked()
        with self._lock:
            return self._ended() is not None or self._walk.glance()

    def _ended(self) -> Exception | None:
        if self._closed:
            return errors.Closed(f"consumer {self.name!r} of {self._home.path} was closed")
        if self._membership.control.is_shut_down() and self._walk.at_end():
            return errors.ShutDown(f"{self._home.path} was shut down, and consumer {self.name!r} has drained it")
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
            return Message(chunk, index, record, place, self._decode)
        self._pending[index] = False
        attempts = 2 if index < self._handed_before else 1
        return Message(chunk, index, record, place, self._decode, self._acknowledge, attempts)

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come; ends when the queue is shut down and drained, or this consumer is closed."""
        while True:
            try:
                message = self.get()
            except (errors.ShutDown, errors.Closed):
                return
            yield message

    # ---- acknowledging
    def ack(self, *messages: Message) -> None:
        """
        Say that these messages are finished. The head moves over all that are finished from it on.

        Raises:
            Closed, Forked: as `Message.ack`.
        """
        self._acking = threading.get_ident()
        try:
            for message in messages:
                message.ack()
        finally:
            self._acking = 0
        self._persist()

    def _acknowledge(self, message: Message) -> None:
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
            from shmq.durability import Syncer  # noqa: PLC0415  # only who needs the disk pays for it

            self._syncer = Syncer(self._home, self._membership)
        self._syncer.acknowledge(self.name, self._checkpoint)

    def _move_head(self, message: Message | None = None) -> None:
        """Over everything finished; what was handed out later stays pending."""
        pending = self._pending
        finished = -1
        while pending:
            first = next(iter(pending))
            if not pending[first]:
                break
            del pending[first]
            finished = first
        if finished < 0:
            return
        # Not the reader's place: it may be in a new chunk, where it has read nothing.
        self._checkpoint.head = next(iter(pending), finished + 1)
        self._membership.control.room()
        if message is not None and message.index % 256 == 0:
            chunk, record = message._chunk, message._record  # noqa: SLF001
            self._checkpoint.save_cursor(chunk.sequence, record, message.index - chunk.base, message.index)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes were passed over because what was there is damaged."""
        return self._walk.skipped

    @property
    def head(self) -> int:
        """The next index this name has not finished."""
        return self._checkpoint.head

    @property
    def lag(self) -> int:
        """How many indexes the head is behind the end of the queue, padding included."""
        return max(self._walk.chain.next_index() - self._checkpoint.head, 0)

    @property
    def pending(self) -> int:
        """How many messages are handed out and not acknowledged."""
        return sum(not done for done in self._pending.values())

    def seek(self, index: int | datetime.datetime) -> None:
        """
        Go on from *index*, forward or back; from the first message of that time or later, if it is a datetime.

        What is pending is forgotten.

        Raises:
            IndexError: it is beyond the end of the queue, or negative.
        """
        with self._lock:
            self._check_usable()
            if isinstance(index, datetime.datetime):
                index = Access(self._home, self._membership, self._decode).at(index, before_claims=True)
            end = self._walk.chain.next_index()
            if not 0 <= index <= end:
                raise IndexError(
                    f"cannot seek to {index}: {self._home.path} has indexes from "
                    f"{self._walk.chain.first_index()} to {end}"
                )
            self._pending.clear()
            self._walk.seek(index)
            self._checkpoint.head = index
            self._membership.control.recount()
            self._handed_before = self._checkpoint.handed
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back

    # ---- closing
    def close(self) -> None:
        """Give the name back. What was handed out and not acknowledged comes again. Closing twice is fine."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._walk.stop()
        self._membership.control.wake()  # another thread may be waiting in here
        with self._lock:
            reader, chunk = self._walk.reader, self._walk.chunk
            if chunk is not None and not self._pending:
                position, ordinal = int(reader.position), int(reader.ordinal)
                self._checkpoint.save_cursor(chunk.sequence, position, ordinal, chunk.base + ordinal)
            self._checkpoint.holder = 0
            self._name_lock.free()
        if self._home.options.durability.kind != "process":
            with contextlib.suppress(errors.ShmqError, OSError, ImportError):  # forgotten after a power cut, at worst
                self._to_the_disk()
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
