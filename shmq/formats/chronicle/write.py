"""`write`: entries become the data files and the table that the Java program would have left."""

from __future__ import annotations

import os
import re
import struct
import time
from array import array
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmq.errors import BadFormat, TooLarge, Unsafe
from shmq.formats import _files
from shmq.formats.chronicle import cycles, fresh, words
from shmq.formats.chronicle.folder import place_of
from shmq.formats.chronicle.table import TABLE, UNLOCKED
from shmq.formats.model import MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shmq.formats.model import Entry, Place

NAME = re.compile(r"[ -~\xa0-\xff]{1,100}")
"""What a named tailer may be called here: the table has a byte for each character. Case makes no difference in it."""

EMPTINESS = "emptiness"
"""What an empty payload loses: it becomes a document of one byte."""

_LATEST = 1 << 17
"""Bytes held of a data file before they are written."""

_ROLL_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{3}))?)?", re.ASCII)


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    roll_cycle: str | cycles.RollCycle = cycles.DEFAULT,
    epoch: int = 0,
    roll_time: str | None = None,
    index_count: int | None = None,
    index_spacing: int | None = None,
    source_id: int = 0,
    block_bytes: int | None = None,
    anew: bool = False,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as the Chronicle queue in the directory *path* (with *queue*, in that directory of it).

    An entry with an index keeps its cycle and its sequence, which must follow one another in each cycle: the format
    counts, it does not leave gaps. One without goes into the cycle of its time, or of now if it has none, but never
    into an earlier cycle than the one before it. *anew* takes no heed of the indices. An entry whose extra says
    `meta` becomes a meta-data document: in the file of extra["cycle"], of its time, or of the entry before it. No
    entry at all gives a queue without data files.

    *roll_cycle* is one of `cycles.CYCLES`, and *epoch* (in ms) or *roll_time* ("HH:MM", in UTC) say when a cycle
    begins. *index_count* and *index_spacing* are the roll cycle's own unless given. *consumers* is {name: (the next
    index to read, or None for the beginning, ())}, which become named tailers.

    *block_bytes* is how much the program is told to map at a time, which decides how long the files are and how
    large a message may be. By default messages may be as large as Java's own default allows (16 MiB), and the files
    are as long as its smallest blocks make them: a program with other blocks makes them longer when it opens them.

    Raises:
        BadFormat: a roll cycle, index, name or table that Chronicle has not.
        TooLarge: a payload that does not fit the block; more messages than a cycle's index holds, but for the one
            more that Java stores, where entries have their indices; a cycle outside 31 bits.
        Unsafe: a queue is there already, the indices leave gaps, or something would be lost and *lossy* is not set:
            an expiry, a key, a type, attempts, an empty payload (which becomes the byte 8F), a consumer's messages
            done out of order. With *lossy* gaps are closed.
    """
    target = place_of(path, queue)
    refuse_to_replace(target)
    cycle, epoch = rolling(roll_cycle, epoch, roll_time)
    if not 0 <= source_id < 1 << 31:
        msg = f"cannot write the source id {source_id}: Chronicle's are 0 .. 2^31-1"
        raise BadFormat(msg)
    store = fresh.store(index_count or cycle.index_count, index_spacing or cycle.index_spacing)
    places = tailers(consumers or {}, lossy=lossy)
    head = fresh.table_head(cycle, epoch, roll_time, source_id)
    fresh.table(head, {**fresh.table_values(0, 0, 0), **places})  # Whether it has room is seen before anything is done.
    with _parent(Path(path), queue), _files.Stage(target, mode) as stage:
        writer = Writer(stage, cycle, epoch, store, block_bytes, anew=anew, lossy=lossy)
        for entry in entries:
            writer.put(entry)
        writer.close()
        values = fresh.table_values(writer.first, writer.last, 1 + 2 * writer.files)
        file = stage.create(TABLE)
        file.write(fresh.table(head, {**values, **places}).ljust(fresh.TABLE_BYTES, b"\0"))
        stage.publish(last=[TABLE])
    return writer.count


@contextmanager
def _parent(folder: Path, queue: str | None) -> Iterator[None]:
    """Have a directory for the directory of the queue, if it is to be in one; what was made is gone if that fails."""
    made = bool(queue) and not folder.exists()
    if made:
        folder.mkdir()
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


def refuse_to_replace(target: Path) -> None:
    """
    Go on only where no Chronicle queue is.

    Raises:
        Unsafe: one is.
    """
    if target.is_dir():
        found = [name for name in _files.regular_files(target) if name.endswith((".cq4", ".cq4t"))]
        if found:
            msg = f"cannot write a Chronicle queue to {target}: {found[0]} is there; nothing was changed"
            raise Unsafe(msg)


def rolling(roll_cycle: str | cycles.RollCycle, epoch: int, roll_time: str | None) -> tuple[cycles.RollCycle, int]:
    """Return the cycle and the epoch, in ms, that the options mean."""
    cycle = cycles.CYCLES.get(roll_cycle) if isinstance(roll_cycle, str) else roll_cycle
    if cycle is None:
        msg = f"cannot write the roll cycle {roll_cycle!r}: those known are {', '.join(cycles.CYCLES)}"
        raise BadFormat(msg)
    if roll_time is None:
        if not -(1 << 63) <= epoch < 1 << 63:
            msg = f"cannot write the epoch {epoch}: it is a number of 64 bits, in milliseconds"
            raise BadFormat(msg)
        return cycle, epoch
    found = _ROLL_TIME.fullmatch(roll_time)
    if found is None or epoch:
        msg = f"cannot roll at {roll_time!r} with the epoch {epoch}: it is HH:MM, in UTC, and makes the epoch itself"
        raise BadFormat(msg)
    hours, minutes, seconds, ms = (int(each or 0) for each in found.groups())
    return cycle, ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms


def tailers(consumers: Mapping[str, Place], *, lossy: bool) -> dict[str, int]:
    """
    Return the numbers of the table in which named tailers keep where they stand.

    Raises:
        BadFormat: a name that a tailer cannot have here, or two that differ by their case only.
        TooLarge: an index of more than 64 bits.
        Unsafe: messages are done out of order, and *lossy* is not set.
    """
    found: list[tuple[str, int]] = []
    for name, (head, done) in consumers.items():
        if not NAME.fullmatch(name):
            msg = f"cannot write the named tailer {name!r}: 1 to 100 printable characters of Latin-1 have a place"
            raise BadFormat(msg)
        if done and not lossy:
            msg = f"cannot write the named tailer {name!r}: {len(done)} messages are done out of order; it has no place"
            raise Unsafe(msg)
        if head is not None and not -(1 << 63) <= head < 1 << 63:
            msg = f"cannot write the named tailer {name!r} at {head}: an index has 64 bits"
            raise TooLarge(msg)
        found.append((f"index.{name}", head or 0))
        if name.startswith("replicated:"):
            found += [(f"index.{name}.version", 0), (f"index.{name}.lock", UNLOCKED)]
    if len({key.lower() for key, _ in found}) < len(found):
        msg = f"cannot write the named tailers {sorted(consumers)}: two keys differ by case only, or not at all"
        raise BadFormat(msg)
    return dict(found)


def losses(entry: Entry) -> list[str]:
    """
    Name what *entry* has and Chronicle has no place for; its time is not among it, which says the cycle.

    "emptiness" is one: a document has at least one byte, so an empty payload would come back as the byte 8F.
    """
    found = ["expiry"] if entry.expires_ns is not None else []
    found += [name for name in ("key", "type", "attempts") if getattr(entry, name)]
    return found if entry.payload else [*found, EMPTINESS]


def refuse_loss(entry: Entry, number: int) -> None:
    """
    Go on only where *entry*, the one of that *number*, has nothing that Chronicle has no place for.

    Raises:
        Unsafe: it has.
    """
    lost = losses(entry)
    if not lost:
        return
    has = [each for each in lost if each != EMPTINESS]
    what = [f"it has {' and '.join(has)}"] if has else []
    if EMPTINESS in lost:
        what.append("it is empty, and would come back as the byte 8F")
    msg = f"cannot write entry {number} to Chronicle: {' and '.join(what)}, which this format cannot hold"
    raise Unsafe(msg)


class Writer:
    """Puts entries into data files, one for each cycle."""

    def __init__(
        self,
        stage: _files.Stage,
        cycle: cycles.RollCycle,
        epoch: int,
        store: fresh.Store,
        block_bytes: int | None,
        *,
        anew: bool,
        lossy: bool,
    ) -> None:
        self._stage = stage
        self._cycle = cycle
        self._epoch = epoch
        self._store = store
        self._block = None if block_bytes is None else fresh.block_of(block_bytes, store.index_count)
        self._most = fresh.most_payload(self._block or fresh.block_of(fresh.DEFAULT_BLOCK, store.index_count))
        self._capacity = cycle.capacity(store.index_count, store.index_spacing)
        self._anew = anew
        self._lossy = lossy
        self._now = time.time_ns()
        self._file: DataFile | None = None
        self.first: int | None = None
        self.last: int | None = None
        self.files = 0
        self.count = 0

    def put(self, entry: Entry) -> None:
        """Append one entry, in the next file if its cycle is another."""
        payload, index, time_ns, expires_ns, key, kind, attempts, extra = entry
        meta = extra is not None and bool(extra.get("meta"))
        if (expires_ns is not None or key or kind or attempts or not payload) and not self._lossy:
            refuse_loss(entry, self.count)
        if not payload:
            payload = fresh.EMPTY
        if len(payload) > self._most:
            msg = (
                f"cannot write entry {self.count} to Chronicle: {len(payload)} bytes, and {self._most} are the most "
                "that blocks of this size take"
            )
            raise TooLarge(msg)
        if meta:
            self._put_meta(payload, time_ns, extra)
            return
        file = self._file
        if index is None or self._anew:
            file = self._in(self._cycle_of(time_ns))
        else:
            cycle, sequence = self._cycle.split(index)
            if file is None or cycle != self.last:
                file = self._in(cycle)
            if sequence != file.sequence and not self._lossy:
                self._refuse_gap(index, sequence, file.sequence)
        # Java stores one message more than the index of a file can hold, and throws: a queue that has it is made again.
        room = self._capacity + (index is not None and not self._anew)
        if file.sequence >= room:
            msg = (
                f"cannot write entry {self.count} to Chronicle: cycle {self.last} of {self._cycle.name} is full with "
                f"{self._capacity} messages; take a roll cycle that is shorter or holds more. Nothing was written"
            )
            raise TooLarge(msg)
        file.add(payload, 0)
        self.count += 1

    def _put_meta(self, payload: bytes, time_ns: int | None, extra: Mapping[str, Any] | None) -> None:
        """Append one meta-data document, which has no index to say where."""
        cycle = extra.get("cycle") if extra is not None and not self._anew else None
        file = self._file
        if isinstance(cycle, int):
            file = self._in(cycle)
        elif file is None or time_ns is not None:
            file = self._in(self._cycle_of(time_ns))
        file.add(payload, words.META)

    def begin(self, cycle: int, store: fresh.Store) -> DataFile:
        """Begin the file of *cycle*, with an index of its own, and return it: for whoever fills it without `put`."""
        self._store = store
        return self._in(cycle)

    def close(self, *, eof: bool = False) -> None:
        """Finish the last file. It gets no EOF unless that is wished for: the queue goes on there."""
        if self._file is not None:
            self._file.finish(self._block, eof=eof)

    def _cycle_of(self, time_ns: int | None) -> int:
        cycle = self._cycle.cycle_at((self._now if time_ns is None else time_ns) // MS, self._epoch)
        return cycle if self.last is None else max(cycle, self.last)

    def _in(self, cycle: int) -> DataFile:
        """Return the file of *cycle*, which may be a new one."""
        if self._file is not None:
            if cycle == self.last:
                return self._file
            self._file.finish(self._block, eof=True)
        if not 0 <= cycle <= cycles.MAX_CYCLE:
            msg = f"cannot write entry {self.count} to Chronicle: its cycle is {cycle}, and they are 0 .. 2^31-1"
            raise TooLarge(msg)
        if self.last is not None and cycle < self.last:
            msg = f"cannot write cycle {cycle} after cycle {self.last}: cycles ascend; anew=True takes no heed of them"
            raise Unsafe(msg)
        self.first = cycle if self.first is None else self.first
        self.last = cycle
        self.files += 1
        self._file = DataFile(self._stage, self._cycle.file_name(cycle, self._epoch), self._store)
        return self._file

    def _refuse_gap(self, index: int, sequence: int, following: int) -> None:
        msg = (
            f"cannot write index {index:#x} to Chronicle: it is message {sequence} of its cycle and {following} is "
            "next; anew=True numbers all anew, lossy=True closes gaps"
        )
        raise Unsafe(msg)


class DataFile:
    """One `.cq4` that is being written from its beginning to its end; its index pages are filled in behind."""

    def __init__(self, stage: _files.Stage, name: str, store: fresh.Store) -> None:
        self._stage = stage
        self._name = name
        self._store = store
        self._fd = stage.create(name).fileno()
        self._held = bytearray()
        self._base = store.start
        """The position of the first byte held."""
        self._last = 0
        """The position of the last message."""
        self._last_document = 0
        self._largest = 0
        self._spacing_mask = store.index_spacing - 1
        self._pages = array("q", [store.first_page])
        self._slots = array("q")
        self._page = store.first_page
        self.sequence = 0

    def add(self, payload: bytes, kind: int) -> None:
        """Append a document; messages are counted and indexed, meta-data is neither."""
        held = self._held
        length = len(payload)
        position = self._base + len(held)
        held += words.WORD.pack(length | kind)
        held += payload
        if length & 3:
            held += b"\0\0\0"[: -length & 3]
        if length > self._largest:  # noqa: PLR1730  a call of max() for each message costs a tenth
            self._largest = length
        self._last_document = position
        if not kind:
            self._last = position
            sequence = self.sequence
            self.sequence = sequence + 1
            if not sequence & self._spacing_mask:
                self._index(position)
        if len(held) > _LATEST:
            self._flush()

    def _index(self, position: int) -> None:
        """Put the message just added at *position* into its page, which may be a new one behind it."""
        if len(self._slots) == self._store.index_count:
            if len(self._pages) == self._store.index_count:
                return  # A repaired file may hold more messages than its index: Java appends one too many.
            self._finish_page()
            page = self._base + len(self._held)
            self._held += fresh.index_document(page, "index", self._store.index_count)
            self._flush()
            self._base += 8 * self._store.index_count
            self._pages.append(page)
            self._page = self._last_document = page
            self._slots = array("q")
        self._slots.append(position)

    def _finish_page(self) -> None:
        self._flush()
        used = array("q", [len(self._slots)]) + self._slots
        self._pwrite(_little(used), fresh.slots_of(self._page, "index") - 8)

    def _flush(self) -> None:
        self._pwrite(self._held, self._base)
        self._base += len(self._held)
        self._held.clear()

    def _pwrite(self, data: bytes | bytearray, position: int) -> None:
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], position + done)

    def finish(self, block: int | None, *, eof: bool) -> None:
        """Write what is held, the indices and the header, and give the file its length."""
        store = self._store
        end = self._base + len(self._held)
        if eof:
            self._held += words.WORD.pack(words.EOF) + words.EOF_TAIL
        front = bytearray(store.whole()[: store.page_slots - 8])
        numbers = ((store.write_position_at, self._last), (store.sequence_at, self._encoded()))
        for at, number in (*numbers, (store.last_index_at, self._next_indexed())):
            struct.pack_into("<Q", front, at, number)
        used = array("q", [len(self._pages)]) + self._pages
        at = store.index2index_slots - 8
        front[at : at + 8 * len(used)] = _little(used)
        self._pwrite(front, 0)
        self._finish_page()
        block = self._smallest_block() if block is None else block
        os.ftruncate(self._fd, max(fresh.file_bytes(self._last_document, block), end + 8))
        self._stage.finish(self._name)

    def _encoded(self) -> int:
        return ((self._last << self._store.shift) + self.sequence - 1) & 0xFFFFFFFFFFFFFFFF if self.sequence else 0

    def _next_indexed(self) -> int:
        count = self._store.index_count
        indexed = min(self.sequence, count * count * self._store.index_spacing)
        return (indexed + self._spacing_mask) & ~self._spacing_mask

    def _smallest_block(self) -> int:
        block = fresh.block_of(0, self._store.index_count)
        while fresh.most_payload(block) < self._largest:
            block *= 2
        return block


def _little(numbers: array[int]) -> bytes:
    """Return *numbers* as the file has them, on whatever machine."""
    return struct.pack(f"<{len(numbers)}q", *numbers)
