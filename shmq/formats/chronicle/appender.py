"""
Appending to a queue while Java appends to it too.

    with chronicle.Appender("/data/orders", roll_cycle="FAST_HOURLY") as appender:
        index = appender.append(chronicle.encode("hello"))
        appender.commit("billing", index + 1)

Under the write lock that Java takes, one batch at a time. Who is killed, wherever it is, leaves a queue that both
programs go on with: docs/formats/chronicle.md says what each step leaves behind.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Busy, Closed, Corrupt, Forked, Full, Mismatch, NotFound, ShutDown, TooLarge, Unsafe
from shmq.formats import _files
from shmq.formats.chronicle import cycles, fresh, words
from shmq.formats.chronicle.folder import place_of
from shmq.formats.chronicle.live import Live
from shmq.formats.chronicle.lock import TIMEOUT, WriteLock, alive, pid_of
from shmq.formats.chronicle.mapped import Mapped
from shmq.formats.chronicle.table import APPEND_LOCK, TABLE, UNLOCKED, WRITE_LOCK
from shmq.formats.chronicle.table_writer import LiveTable, make_table, publish_new
from shmq.formats.chronicle.write import NAME, refuse_loss, rolling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from shmq.formats.model import Entry

    Payload = bytes | bytearray | memoryview

_NORMALISED = "normalisedEOFsTo"

_BATCH_BYTES = 1 << 18
_BATCH = 4096
"""So much goes into one batch of `append_many`: others wait for the lock meanwhile."""

_HEADER_SECONDS = 10.0
"""How long a file may take to become ready, as Java has it."""


class Appender:
    """
    One place to append to a queue from; as many as wanted may be open, here and in Java, and threads may share one.

    It belongs to the process that opened it: in a forked child every call but `close` raises Forked.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        queue: str | None = None,
        *,
        create: bool = True,
        roll_cycle: str | cycles.RollCycle | None = None,
        epoch: int = 0,
        roll_time: str | None = None,
        index_count: int | None = None,
        index_spacing: int | None = None,
        source_id: int = 0,
        block_bytes: int = fresh.DEFAULT_BLOCK,
        timeout: float = TIMEOUT,
        clock: Callable[[], int] | None = None,
        mode: int = 0o600,
    ) -> None:
        """
        Open the queue in the directory *path* (with *queue*, in that directory of it), or with *create* a new one.

        What a queue was made with stays: *roll_cycle*, *epoch* and *roll_time* are for a new one, and so is
        *source_id*; *index_count* and *index_spacing* are for its new files. *block_bytes* is how much the program is
        told to map at a time, which bounds a message (16 MiB by default); all who use the queue should have the same.
        *timeout* is how many seconds a lock held by the living is waited for. *clock* returns the time in ms.

        Raises:
            NotFound: there is no queue, and *create* is not set.
            Mismatch: the queue rolls otherwise than *roll_cycle* says.
            Busy: somebody who lives holds the write lock.
            BadFormat: the queue is of version 4.
            Corrupt: its table cannot be read.
            Unsafe: it is read-only, or not ours to write (that is an OSError, too).
        """
        self.path = place_of(path, queue)
        self._pid = os.getpid()
        self._closed = False
        self._timeout = timeout
        self._clock = clock or _now_ms
        self._mode = mode
        self._store: Live | None = None
        self._discarded = -1
        self._given = (index_count, index_spacing)
        with _files.writing(f"append to {self.path}"):
            if create:
                self._create(roll_cycle, epoch, roll_time, source_id)
            self._table = _open_table(self.path, timeout)
        try:
            self.roll_cycle = self._rolling(roll_cycle)
            self.epoch = self._table.roll.epoch
            self._block = fresh.block_of(block_bytes, index_count or self.roll_cycle.index_count)
            self._most = fresh.most_payload(self._block)
            self._append_lock = self._table.acquire(APPEND_LOCK)
            self._lock = WriteLock(self._table.file, self._table.acquire(WRITE_LOCK))
            self._begin()
        except BaseException:
            self._table.close()
            raise

    # ------------------------------------------------------------ opening
    def _create(
        self, roll_cycle: str | cycles.RollCycle | None, epoch: int, roll_time: str | None, source_id: int
    ) -> None:
        if (self.path / TABLE).exists():
            return
        if self.path.exists() and not self.path.is_dir():
            msg = f"cannot append to {self.path}: it is not a directory"
            raise BadFormat(msg)
        names = _files.regular_files(self.path) if self.path.is_dir() else []
        found = next((name for name in names if name.endswith((".cq4", ".cq4t"))), None)
        if found is not None:
            msg = (
                f"cannot append to {self.path}: {found} is there and no {TABLE}; a queue of version 4 is converted "
                "(shmq.formats.convert_queue), and one of version 5 gets its table back by shmq.formats.repair"
            )
            raise BadFormat(msg)
        cycle, epoch = rolling(roll_cycle or cycles.DEFAULT, epoch, roll_time)
        fresh.store(self._given[0] or cycle.index_count, self._given[1] or cycle.index_spacing)
        if not 0 <= source_id < 1 << 31:
            msg = f"cannot make a queue with the source id {source_id}: Chronicle's are 0 .. 2^31-1"
            raise BadFormat(msg)
        self.path.mkdir(mode=0o777 & (self._mode | self._mode >> 2 & 0o111), parents=True, exist_ok=True)
        make_table(self.path, fresh.table_head(cycle, epoch, roll_time, source_id), self._mode)

    def _rolling(self, wanted: str | cycles.RollCycle | None) -> cycles.RollCycle:
        roll = self._table.roll
        found = cycles.by_format(roll.format, roll.length_ms)
        if found is None:
            msg = (
                f"cannot append to {self.path}: it rolls every {roll.length_ms} ms into files {roll.format!r}, which "
                f"is none of {', '.join(cycles.CYCLES)}"
            )
            raise BadFormat(msg)
        name = wanted.name if isinstance(wanted, cycles.RollCycle) else wanted
        if name is not None and name != found.name:
            msg = f"{self.path} rolls as {found.name} and not as {name}, and that cannot be changed"
            raise Mismatch(msg)
        return found

    def _begin(self) -> None:
        """See that the lock can be had, and take it from the dead at once, as Java does on opening."""
        try:
            self._lock.acquire(self._timeout, self._check)
        finally:
            self._lock.release()

    # ------------------------------------------------------------ appending
    def append(self, payload: Payload, *, meta: bool = False) -> int:
        """
        Append one message and return its index; it is there for all readers when this returns.

        With *meta* it is a meta-data document, which has no index: returned is that of the message it stands before.
        An empty one becomes the byte 8F, as in Java, and is read as that byte: who must have it refused asks
        `chronicle.losses`, as the verb `append` does.

        Raises:
            TooLarge: it does not fit the overlap of a block. Nothing was written.
            Full: the cycle holds no more messages (Java appends one more, without an entry in the index, and throws),
                or DiskFull: the disk does not.
            Busy: another process holds the write lock and lives, or the append lock is held.
            ShutDown: the file of this cycle has its EOF: a program whose clock is ahead rolled past it.
            Corrupt: the file contradicts itself, or somebody else wrote though we held the lock.
        """
        if len(payload) > self._most:
            self._refuse_size(len(payload))
        return self._locked([payload or fresh.EMPTY], meta=meta)

    def append_many(self, payloads: Iterable[Payload]) -> list[int]:
        """
        Append messages in order, many under one lock, and return their indices; an empty one is the byte 8F.

        They become visible in batches of up to 4096 messages or 256 KiB, each at once. What raises leaves the batches
        before it appended.
        """
        found: list[int] = []
        batch: list[Payload] = []
        size = 0
        for payload in payloads:
            length = len(payload)
            if length > self._most:
                self._refuse_size(length)
            if batch and (size + length > _BATCH_BYTES or len(batch) >= _BATCH):
                self._append_batch(batch, found)
                batch, size = [], 0
            batch.append(payload or fresh.EMPTY)
            size += length
        if batch:
            self._append_batch(batch, found)
        return found

    def _append_batch(self, batch: list[Payload], found: list[int]) -> None:
        first = self._locked(batch)
        found.extend(range(first, first + len(batch)))

    def _locked(self, payloads: list[Payload], *, meta: bool = False) -> int:
        self._check()
        lock = self._lock
        lock.refuse_nested()
        try:
            lock.acquire(self._timeout, self._check)
            self._table.file.refuse_gone()
            self._respect_append_lock(meta=meta)
            store = self._current()
            store.file.refuse_gone()
            at, sequence = self._end_of(store)
            if meta:
                store.append_meta(at, payloads[0], self._block)
            else:
                if sequence + len(payloads) > store.capacity:
                    self._refuse_capacity(store, sequence, len(payloads))
                store.append(at, sequence, payloads, self._block)
            return self.roll_cycle.index(store.cycle, sequence)
        finally:
            try:
                lock.release()
            finally:  # once more, if a signal's handler raised before the first came to it
                lock.release()
                if self._closed:  # below us, by a signal's handler, which left that to us
                    self.close()

    def _end_of(self, store: Live) -> tuple[int, int]:
        at, sequence = store.end()
        word = store.file.load32(at)
        if word == words.EOF:
            msg = (
                f"cannot append to {store.file.path}: it has its EOF already, so somebody whose clock is ahead of this "
                "one's rolled past it; nothing was written"
            )
            raise ShutDown(msg)
        if word:
            store.make_ready(at, word)
        if self._lock.robbed:
            store.clean(at, fresh.overlap_of(self._block) + _BATCH_BYTES)
            self._lock.robbed = False
        return at, sequence

    def _respect_append_lock(self, *, meta: bool) -> None:
        value = self._table.file.load64(self._append_lock)
        if value == UNLOCKED or (meta and value == self._pid):
            return
        owner = pid_of(value)
        what = "lives" if alive(owner) else "is dead"
        msg = (
            f"cannot append to {self.path}: {APPEND_LOCK} is held by process {owner}, which {what}: the queue is the "
            "sink of a replication, and only that appends to it. Nothing was written"
        )
        raise Busy(msg)

    def _refuse_size(self, length: int) -> None:
        msg = (
            f"cannot append {length} bytes to {self.path}: {self._most} are the most that fit the overlap of blocks of "
            f"{self._block} bytes; nothing was written"
        )
        raise TooLarge(msg)

    def _refuse_capacity(self, store: Live, sequence: int, many: int) -> None:
        msg = (
            f"cannot append {many} to {store.file.path}: it holds {sequence} of the {store.capacity} messages that "
            f"{self.roll_cycle.name} has room for; nothing was written, and there is room when the next cycle begins"
        )
        raise Full(msg)

    # ------------------------------------------------------------ cycles
    def _current(self) -> Live:
        """Return the file that is appended to now, which may be a new one."""
        cycle = self.roll_cycle.cycle_at(self._clock(), self.epoch)
        highest = self._table.highest()
        if highest is not None:
            cycle = max(cycle, highest)
        if self._store is not None and self._store.cycle == cycle:
            return self._store
        if not 0 <= cycle <= cycles.MAX_CYCLE:
            msg = f"cannot append to {self.path}: by the clock and its epoch the cycle is {cycle}"
            raise BadFormat(msg)
        lowest = self._close_older(cycle)
        with _files.writing(f"append to {self.path}"):
            store = self._open(cycle, create=True)
        try:
            self._table.list(lowest, cycle, changes=1 if highest == cycle else 2)
        except BaseException:
            store.close()
            raise
        self._use(store)
        return store

    def _use(self, store: Live) -> None:
        if self._store is not None:
            self._store.close()
        self._store = store

    def _close_older(self, cycle: int) -> int:
        """
        Have an EOF in every file before *cycle*, as far as nobody has seen to that before.

        Returned is the lowest cycle that there is, *cycle* itself among them.
        """
        key = self._table.at(_NORMALISED)
        done = -1 if key is None else self._table.file.load64(key)
        name_of = self.roll_cycle.cycle_of
        found = ((name_of(name, self.epoch), name) for name in _files.regular_files(self.path))
        before = sorted((each, name) for each, name in found if each is not None and each < cycle)
        older = [(each, name) for each, name in before if each >= done]
        for each, name in older:
            try:
                store = Live(self.path, name, each, self.roll_cycle)
                try:
                    store.finish(self._timeout)
                finally:
                    store.close()
            except (NotFound, BadFormat, Corrupt):  # gone, or not one that an EOF has a place in: `verify` names it
                continue
        if older:
            at = self._table.acquire(_NORMALISED, older[0][0])
            self._table.file.raise64(at, older[-1][0])
        return before[0][0] if before else cycle

    def _open(self, cycle: int, *, create: bool = False) -> Live:
        """Open the file of *cycle*; with *create* it is made if it is not there, or not whole."""
        name = self.roll_cycle.file_name(cycle, self.epoch)
        path = self.path / name
        if create and not path.exists():
            self._make(path)
        deadline = time.monotonic() + min(_HEADER_SECONDS, self._timeout)
        while not self._is_ready(path, create=create):
            if time.monotonic() < deadline:
                time.sleep(0.005)
                continue
            if not create or self._discarded == cycle:
                msg = f"cannot append to {path}: its header is not ready, and whoever makes it does not go on"
                raise Corrupt(msg)
            self._discarded = cycle
            path.rename(path.with_name(f"{name}-{_now_ms()}.discard"))
            self._make(path)
        return Live(self.path, name, cycle, self.roll_cycle)

    def _make(self, path: Path) -> None:
        """Make the file of a new cycle, whole at once; or take the one that was made before its time."""
        before = path.with_suffix(".precreated")
        if before.exists():
            with suppress(FileExistsError, FileNotFoundError):
                os.link(before, path)
                before.unlink()
            return
        publish_new(path, self._fresh().whole(), fresh.file_bytes(0, self._block), self._mode)

    def _fresh(self) -> fresh.Store:
        return fresh.store(
            self._given[0] or self.roll_cycle.index_count, self._given[1] or self.roll_cycle.index_spacing
        )

    def _is_ready(self, path: Path, *, create: bool) -> bool:
        """Say whether the file has its header; with *create* one that nobody has begun gets it here."""
        file = Mapped(path)
        try:
            word = file.load32(0)
            if word == 0 and create:
                data = self._fresh().whole()
                file.grow(fresh.file_bytes(0, self._block))
                file.reserve(0, len(data))
                if not file.cas32(0, 0, words.NOT_READY):
                    return False
                file.write(4, data[4:])
                return file.cas32(0, words.NOT_READY, words.WORD.unpack_from(data)[0])
            return word != 0 and word < words.NOT_READY
        finally:
            file.close()

    # ------------------------------------------------------------ the table
    def commit(self, name: str, index: int) -> None:
        """
        Have the named tailer *name* read the message *index* next; 0 is the first there is.

        As in Java without a lock: of two who commit one name at a time, the last counts.

        Raises:
            BadFormat: a name that a tailer cannot have, one of a replicated tailer, or one more than the table holds.
            TooLarge: an index of more than 64 bits.
        """
        self._check()
        if not NAME.fullmatch(name) or name.lower().startswith("replicated:"):
            msg = (
                f"cannot commit the tailer {name!r}: a name has 1 to 100 printable characters of Latin-1, and "
                "'replicated:' ones are kept by versions that only their own program counts"
            )
            raise BadFormat(msg)
        if not -(1 << 63) <= index < 1 << 63:
            msg = f"cannot commit the tailer {name!r} at {index}: an index has 64 bits"
            raise TooLarge(msg)
        with self._lock.nobody_else():
            self._check()
            self._table.file.refuse_gone()
            self._table.file.store64(self._table.acquire(f"index.{name}", 0), index)

    def sync(self) -> None:
        """Have everything that was appended to the current file on the disk, and tell so in the table."""
        self._check()
        self._lock.refuse_nested()
        try:
            self._lock.acquire(self._timeout, self._check)
            store = self._store
            if store is None:
                return
            store.file.refuse_gone()
            _, sequence = store.end()
            store.file.sync()
            if sequence:
                at = self._table.acquire(fresh.LAST_SYNCED, -1)
                self._table.file.raise64(at, self.roll_cycle.index(store.cycle, sequence - 1))
            self._table.file.sync()
        finally:
            self._lock.release()

    # ------------------------------------------------------------ the end
    def _check(self) -> None:
        if os.getpid() != self._pid:
            msg = f"this appender of {self.path} belongs to process {self._pid}; open another one in this one"
            raise Forked(msg)
        if self._closed:
            msg = f"this appender of {self.path} was closed; open another one"
            raise Closed(msg)

    def close(self) -> None:
        """
        Let go of the files, when no thread of this process is in a call any more; again is harmless. What was appended
        is there already.
        """
        self._closed = True
        with self._lock.nobody_else() as nested:
            if nested:
                return
            if self._store is not None:
                self._store.close()
                self._store = None
            self._table.close()

    def __enter__(self) -> Self:
        """Return the appender itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.close()


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    *,
    lossy: bool = False,
    tell: Callable[[str], object] | None = None,
    timeout: float = TIMEOUT,
    block_bytes: int = fresh.DEFAULT_BLOCK,
) -> int:
    """
    Append *entries* to the queue at *path*, which others may have open, and return how many; see `Appender`.

    They get the indices that come next, in the cycle of now. One whose extra says `meta` becomes meta-data.

    Raises:
        Unsafe: an entry has what Chronicle cannot hold, as in `write`, and *lossy* is not set. Those before it are in.
    """
    del tell  # There is a lock.
    count = 0
    held: list[Payload] = []
    with Appender(path, queue, create=False, timeout=timeout, block_bytes=block_bytes) as appender:
        try:
            for entry in entries:
                if not lossy:
                    refuse_loss(entry, count + len(held))
                meta = entry.extra is not None and bool(entry.extra.get("meta"))
                if not meta:
                    held.append(entry.payload)
                if meta or len(held) >= _BATCH:
                    count += len(appender.append_many(held))
                    held = []
                if meta:
                    appender.append(entry.payload, meta=True)
        finally:
            count += len(appender.append_many(held))
    return count


def commit(
    path: str | os.PathLike[str],
    consumer: str,
    head: int,
    done: Iterable[int] = (),
    queue: str | None = None,
    *,
    tell: Callable[[str], object] | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """
    Have the named tailer *consumer* read the message *head* next; see `Appender.commit`.

    Raises:
        Unsafe: there are *done* ones, which a tailer has no place for.
    """
    del tell
    if next(iter(done), None) is not None:
        msg = f"cannot commit the tailer {consumer!r} with messages done out of order: it has one index, and no more"
        raise Unsafe(msg)
    with Appender(path, queue, create=False, timeout=timeout) as appender:
        appender.commit(consumer, head)


def unlock(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, int]:
    """
    Free the write lock and the append lock of the queue at *path*, whoever holds them, and return {lock: process id}.

    As Java's UnlockMain. If a holder lives (in another container, say) and goes on, the queue is damaged: that nobody
    appends has to be known.

    Raises:
        NotFound: there is no queue of version 5.
        Corrupt: its table cannot be read.
        Unsafe: it is read-only, or not ours to write (that is an OSError, too).
    """
    folder = place_of(path, queue)
    with _files.writing(f"unlock {folder}"):
        table = _open_table(folder, 0.0, "unlock")
    found: dict[str, int] = {}
    try:
        for key in (WRITE_LOCK, APPEND_LOCK):
            at = table.at(key)
            value = UNLOCKED if at is None else table.file.load64(at)
            if at is not None and value != UNLOCKED and table.file.cas64(at, value, UNLOCKED):
                found[key] = pid_of(value)
    finally:
        table.close()
    return found


def _open_table(folder: Path, timeout: float, what: str = "append to") -> LiveTable:
    if not folder.is_dir():
        msg = f"cannot {what} {folder}: there is no such directory"
        raise NotFound(msg)
    try:
        return LiveTable(folder, timeout, what)
    except NotFound as error:
        msg = f"cannot {what} {folder}: it has no {TABLE}, so it is not a queue of version 5"
        raise NotFound(msg) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
