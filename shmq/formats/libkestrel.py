"""
libkestrel: a journal of puts in segments, and one small checkpoint file per reader.

A queue `Q` in a folder is `Q.<number>` (segments) and `Q.read.<reader>` (checkpoints). Both are little-endian
records behind four magic bytes: a command byte (command in the high half, header words in the low half), the header,
and data for commands of 8 and more. The format's page, with every difference between its document and the real
program, is docs/formats/libkestrel.md.

The reader is not the real program: it honours the ids that a reader confirmed out of order (the program stores and
then ignores them), and a reader whose checkpoint is lost starts at the oldest item (the program starts it at the
newest). `as_program=True` gives the program's view of both.
"""

from __future__ import annotations

import re
import struct
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import _files, _follow
from shmq.formats.model import MS, Entry, Place, Problem, Repair, State, make_entry

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

NAME = "libkestrel"
KEEPS = frozenset({"payload", "index", "time_ns", "expires_ns", "attempts"})
"""What a PUT can hold. Times are kept to the millisecond."""

WRITER_MAGIC = b"\x27\x64\x26\x03"
READER_MAGIC = b"\x26\x3c\x26\x03"

PUT, PUT_EXPIRING = 0x86, 0x88
READ_HEAD, READ_DONE = 0x02, 0x91
MAX_ITEM = 16 << 20
"""The record layer's limit for one data block; a larger size is damage."""

JOURNAL_BYTES = 16 << 20
"""The real program's default segment size."""

_PUT_FIXED = 25
_PUT_EXPIRING_FIXED = 33
_FAST = struct.Struct("<Biiqq")
_WHOLE_PUT = struct.Struct("<Biiqqq")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_QUEUE = re.compile(r"[A-Za-z0-9:_-]+\Z")
_SEGMENT = re.compile(r"(?P<queue>[A-Za-z0-9:_-]+)\.(?P<number>[0-9]+)(?P<more>\..*)?\Z", re.DOTALL)
_TORN = "the file ends inside a record; its whole records were kept"


# ---------------------------------------------------------------------------------------------- verbs


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the libkestrel queues in the folder *path*: those with a file that has a libkestrel magic."""
    folder = _files.directory(path)
    found = set()
    for name in _files.regular_files(folder):
        queue, dot, rest = name.partition(".")
        if not dot or "~" in name or not _QUEUE.match(queue):
            continue
        if (rest.startswith("read.") or rest.partition(".")[0].isdigit()) and _magic(folder / name) is not None:
            found.add(queue)
    return sorted(found)


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    start: int | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    now_ns: int | None = None,
) -> Iterator[Entry]:
    """
    Deliver the items of *queue* in the folder *path*, oldest first: by first id of the segment, then by position.

    Without *consumer*: every item that the segments hold, or those from the id *start* on. With it: what that reader
    has still to see, which is every id above its head that it has not confirmed (the real program delivers those
    again: `as_program`).
    A segment with damage is read up to the damage, as the program would cut it; then the next one. *strict* raises
    Corrupt at that place instead. *follow* waits for more, at most *timeout* seconds for each item. Expired items
    are delivered with their `expires_ns`; given *now_ns*, those that have expired by then are dropped.

    Raises:
        NotFound: no such folder, queue or reader.
        BadFormat: *path* is no directory, or holds several queues and none was named.
    """
    folder, queue = _at(path, queue)
    head, done = (None, frozenset[int]()) if consumer is None else _start_of(folder, queue, consumer, as_program)
    tail = _Tail(folder, queue, as_program=as_program, growing=follow, strict=strict, head=head)
    entries = _follow.follow(tail, timeout) if follow else _follow.once(tail)
    if now_ns is not None:
        entries = (entry for entry in entries if entry.expires_ns is None or entry.expires_ns > now_ns)
    if start is not None:
        entries = (entry for entry in entries if entry.index is not None and entry.index >= start)
    if head is None:
        return entries
    return (entry for entry in entries if entry.index > head and entry.index not in done)  # type: ignore[operator]


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(_Tail(*_at(path, queue), as_program=False, growing=False, strict=strict))


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk all of *queue* and return what its files say.

    A consumer's head is the id of the last item it has consumed (0: none yet), moved into what the segments hold,
    as recovery does it; done are the higher ids it has confirmed. Open reads are not stored by this format.
    """
    folder, queue = _at(path, queue)
    problems: list[Problem] = []
    tail = _Tail(folder, queue, as_program=as_program, growing=False, strict=False)
    count, first, last = 0, None, None
    with closing(tail):
        for entries in tail.lists():
            count += len(entries)
            first = entries[0].index if first is None else first
            last = entries[-1].index
        problems += tail.problems
        files = tail.files
    readers, broken = _checkpoints(folder, queue)
    problems += broken
    consumers = {
        name: _clamp(place, first, last, as_program=as_program, have_items=count > 0) for name, place in readers.items()
    }
    if as_program and not readers:
        consumers[""] = (last or 0, ())
    return State(NAME, queue, consumers, {}, problems, count, first, last, [*files, *_reader_files(folder, queue)])


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {reader: (id of the last item consumed, ids confirmed above it)}, as the checkpoints have it."""
    folder, queue = _at(path, queue)
    readers, broken = _checkpoints(folder, queue)
    if broken:
        msg = f"cannot read {folder}/{broken[0].file}: {broken[0].reason}"
        raise Corrupt(msg)
    return {name: place for name, place in readers.items() if place is not None}


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem of *queue*: those of `state`, and bytes hidden behind an end mark, stray and odd files."""
    folder, queue = _at(path, queue)
    found = state(folder, queue)
    problems = list(found.problems)
    for name in found.files:
        if not name.startswith(f"{queue}.read."):
            problems += _hidden_bytes(folder, name)
    for name in _files.regular_files(folder):
        if name.startswith(f"{queue}.read.") and "~~" in name:
            problems.append(Problem(name, 0, "a checkpoint that was never finished; the program deletes it unread"))
        elif (match := _SEGMENT.match(name)) and match["queue"] == queue and match["more"] and "~" not in name:
            problems.append(Problem(name, 0, "the program takes this copy for a segment, because of the number in it"))
    for name, (head, done) in found.consumers.items():
        if done and head is not None and done[0] <= head:
            problems.append(Problem(f"{queue}.read.{name}", 0, f"confirmed ids at or below the head {head}"))
    return problems


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    first: int | None = None,
    journal_bytes: int = JOURNAL_BYTES,
    name_ms: int | None = None,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as the libkestrel queue *queue* into the folder *path*, and return how many.

    Ids are the entries' own (1, 2, ... where they have none); *first* numbers them anew from there. A put that does
    not fit the segment starts the next one, as the program does with `journalSize` = *journal_bytes*. Segments are
    named *name_ms*, *name_ms* + 1, ... (default: now). *consumers* is {reader: (last consumed id, confirmed ids)};
    None writes the default reader, placed before the first item, because without any checkpoint the program would
    start at the newest item and skip them all.

    Raises:
        TooLarge: a payload over 16 MiB, or one that does not fit *journal_bytes*; an id outside 1 .. 2^63-1.
        Unsafe: the queue is already there, ids do not ascend, or an entry has something that this format cannot
            hold (key, type) and *lossy* is not set. Nothing is left behind.
    """
    if queue is None or not _QUEUE.match(queue):
        msg = f"cannot write a libkestrel queue named {queue!r}: the name must be letters, digits, ':', '_' or '-'"
        raise BadFormat(msg)
    folder = Path(path)
    if folder.is_dir() and _is_there(folder, queue):
        msg = f"cannot write {queue} into {folder}: files of that queue are there; nothing was changed"
        raise Unsafe(msg)
    with _files.Stage(folder, mode) as stage:
        writer = _Writer(stage, queue, journal_bytes, name_ms, first, lossy=lossy)
        for entry in entries:
            writer.put(entry)
        if consumers is None:
            consumers = {"": ((writer.first or 1) - 1, ())}
        for name, place in consumers.items():
            _write_checkpoint(stage, queue, name, place)
        writer.close()
        stage.publish()
    return writer.count


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Repair:
    """
    Write what is whole as a clean queue: same ids and readers, no damage, no temporary files.

    Where ids are missing, what comes behind them is numbered anew and the readers move with it: the real program's
    readers stop at a hole between two segments, and their heads before any hole.

    It goes to the new directory *to* (default: `<path>.repaired`); the original is not touched. With *in_place* the
    clean files take the place of the damaged ones, which move into a hidden folder beside them.
    """
    folder, queue = _at(path, queue)
    problems = verify(folder, queue)
    found = state(folder, queue)
    target = Path(to) if to is not None else _files.beside(folder)
    numbers = [int(name.split(".")[1]) for name in found.files if not name.startswith(f"{queue}.read.")]
    moved = _without_holes(folder, queue, found)
    count = write(
        target,
        _ascending(read(folder, queue)),
        queue,
        moved or found.consumers or None,
        first=found.first if moved is not None else None,
        name_ms=min(numbers, default=1),
    )
    if not in_place:
        return Repair(target, count, problems, None)
    kept = _files.set_aside(folder, _names_of(folder, queue), queue)
    for name in _files.regular_files(target):
        (target / name).rename(folder / name)
    target.rmdir()
    return Repair(folder, count, problems, kept)


# ---------------------------------------------------------------------------------------------- reading


class _Segment:
    """One writer file, read record by record from a position that it remembers."""

    def __init__(self, folder: Path, name: str, *, as_program: bool, growing: bool) -> None:
        self.source = _files.Source(folder / name)
        self.name = name
        self.position = len(WRITER_MAGIC)
        self.problem: Problem | None = None
        self._extra = {"segment": name}
        self._as_program = as_program
        self._growing = growing

    def lists(self) -> Iterator[list[Entry]]:  # noqa: C901  one loop on purpose: a call per record would cost more
        """Deliver the puts from here to the end of what is whole; say in `problem` why it ended, if not well."""
        unpack, make, extra = _FAST.unpack_from, make_entry, self._extra
        window = _files.WINDOW
        while True:
            if self.source.size() < self.position:
                self._stop(self.position, "the file became shorter than what was already read")
                return
            data = self.source.read(self.position, window)
            last = len(data) - _PUT_EXPIRING_FIXED
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= last:
                command, size, errors, index, added = unpack(data, at)
                start = at + _PUT_FIXED
                expires = None
                if command != PUT:
                    if command != PUT_EXPIRING:
                        skipped = _length_of_unknown(command, size)
                        if not skipped or at + skipped > len(data):
                            break
                        at += skipped
                        continue
                    expires = _I64.unpack_from(data, start)[0] * MS
                    start += 8
                stop = start + size
                if not 0 <= size <= MAX_ITEM or stop > len(data):
                    break
                at = stop
                add(make((data[start:stop], index, added * MS, expires, None, None, errors, extra)))
            self.position += at
            if found:
                yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            more = self._slowly()
            if isinstance(more, Entry):
                yield [more]
            elif not more:
                return

    def entries(self) -> Iterator[Entry]:
        """As `lists`, one by one."""
        for found in self.lists():
            yield from found

    def _slowly(self) -> Entry | bool:  # noqa: PLR0911  one way out per kind of damage
        """
        Take the one record that the fast loop left: a rare one, a large one, or one on the window's edge.

        Returns its entry, True if it was skipped, or False at the end.
        """
        data = self.source.read(self.position, 1 + 4 * 15)
        if not data:
            return False
        command, words = data[0] >> 4, data[0] & 15
        if data[0] == 0:
            return False  # Segments are allocated full of zeros: this is the live end.
        header = 1 + 4 * words
        if len(data) < header:
            return self._torn("truncated header")
        if command < 8:
            self.position += header  # Unknown, and READ_HEAD in the wrong kind of file: skipped by its own length.
            return True
        if words == 0:
            return self._stop(self.position, "a command with data, but without a header to hold its size")
        size = _I32.unpack_from(data, 1)[0]
        if not 0 <= size <= MAX_ITEM:
            return self._stop(self.position, f"a data size of {size} bytes")
        if self.position + header + size > self.source.size() and not self._misread(command, words):
            return self._torn("truncated entry")
        if command == READ_DONE >> 4 and size % 8:
            return self._stop(self.position, f"a READ_DONE of {size} bytes, which are no whole ids")
        if command != PUT >> 4:
            self.position += header + size
            return True
        return self._put(words, size)

    def _misread(self, command: int, words: int) -> bool:
        return self._as_program and command == PUT >> 4 and words not in (6, 8)

    def _put(self, words: int, size: int) -> Entry | bool:
        """Take one PUT. The document knows headers of 6 and 8 words; the program takes any, and misreads them."""
        if words not in (6, 8) and not self._as_program:
            return self._stop(self.position, f"a PUT with a header of {words} words; 6 or 8 are defined")
        fixed = _PUT_EXPIRING_FIXED if words > 6 else _PUT_FIXED
        data = self.source.read(self.position, fixed + size)
        if len(data) < fixed + size:
            return self._torn("truncated entry")
        _, _, errors, index, added = _FAST.unpack_from(data, 0)
        expires = _I64.unpack_from(data, _PUT_FIXED)[0] * MS if words > 6 else None
        self.position += fixed + size
        return Entry(data[fixed:], index, added * MS, expires, None, None, errors, self._extra)

    def _torn(self, reason: str) -> bool:
        # While its program writes, a file may end inside a record: the rest is to come.
        return False if self._growing else self._stop(self.position, f"{reason}: {_TORN}")

    def _stop(self, position: int, reason: str) -> bool:
        self.problem = Problem(self.name, position, reason)
        return False


def _length_of_unknown(command: int, size: int) -> int:
    """Return how long a record other than a PUT is, or 0 if that takes a closer look."""
    if command < 0x80:
        return 1 + 4 * (command & 15) if command else 0
    if command < 0x90 or not command & 15 or not 0 <= size <= MAX_ITEM or (command < 0xA0 and size % 8):
        return 0
    return 1 + 4 * (command & 15) + size


class _Tail:
    """All segments of a queue in order of their first ids, and a place among them."""

    tick = 0.05  # The program writes through a mapping, which inotify does not see.

    def __init__(
        self, folder: Path, queue: str, *, as_program: bool, growing: bool, strict: bool, head: int | None = None
    ) -> None:
        self._folder = folder
        self._head = head
        """Where the reader stands that is read for; with as_program that says where it begins."""
        self._queue = queue
        self._as_program = as_program
        self._growing = growing
        self._strict = strict
        self._segment: _Segment | None = None
        self._taken: set[str] = set()
        self._reported: set[Problem] = set()
        self._last: int | None = None
        self.problems: list[Problem] = []
        self.files: list[str] = []

    def directories(self) -> list[Path]:
        return [self._folder]

    def available(self) -> Iterator[Entry]:
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        if self._segment is not None:
            yield from self._of(self._segment)
        while names := self._next_segments():
            for name in names:
                if self._as_program and not self._goes_on_in(name, names):
                    self._taken.add(name)
                    continue
                # A segment is left behind only when a newer one is there; the last one may still grow.
                if self._segment is not None:
                    yield from self._of(self._segment)
                    self._segment.source.close()
                try:
                    self._segment = _Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
                except NotFound:
                    self._segment = None  # Consumed everywhere and deleted since we listed it.
                    continue
                finally:
                    self._taken.add(name)
                self.files.append(name)
                yield from self._of(self._segment)

    def _goes_on_in(self, name: str, names: list[str]) -> bool:
        """
        Say whether the real program's reader would go on in the segment *name*, of those that are left.

        It begins in the one that holds its head, and looks for the last that begins at or before the id it wants next.
        So it stops for good before a gap between two, and passes over one when a later one begins soon enough, too.
        """
        begun = self._last is not None
        if not begun and self._head is None:
            return name == names[0]
        known = [last for last in (self._last, self._head) if last is not None]
        limit = max(known) + begun
        behind = names[names.index(name) :]
        firsts = [first for first in map(self._first_id, behind) if first is not None and first <= limit]
        if not begun and not firsts:
            return name == names[0]
        return len(firsts) == 1 and self._first_id(name) == firsts[0]

    def _of(self, segment: _Segment) -> Iterator[list[Entry]]:
        if segment.problem is not None:
            return
        for found in segment.lists():
            last = -(1 << 63) if self._last is None else self._last
            begin = 0
            for at, entry in enumerate(found):
                index: int = entry[1]  # type: ignore[assignment]  # all of them have one
                if index <= last:
                    # What came before is delivered before this is said.
                    self._last = last
                    if at > begin:
                        yield found[begin:at]
                    begin = at
                    self._report(Problem(segment.name, segment.position, f"id {index} comes after id {last}"))
                last = index
            self._last = last
            yield found[begin:] if begin else found
        if segment.problem is not None:
            self._report(segment.problem)

    def _next_segments(self) -> list[str]:
        by_first: dict[int, str] = {}
        for _, name in sorted(_segment_files(self._folder, self._queue, as_program=self._as_program)):
            if name in self._taken:
                continue
            first = self._first_id(name)
            if first is None:
                continue
            if first in by_first:
                self._report(Problem(by_first[first], 0, f"begins with id {first}, as {name} does, which is used"))
                self._taken.add(by_first[first])
            by_first[first] = name
        return [by_first[first] for first in sorted(by_first)]

    def _first_id(self, name: str) -> int | None:
        """Return the first id in the segment *name*, or None if it has no put (yet)."""
        magic = _magic(self._folder / name)
        if magic != WRITER_MAGIC:
            what = "a read checkpoint's magic" if magic == READER_MAGIC else "no libkestrel magic"
            if not self._growing:
                self._report(Problem(name, 0, f"{what}: the file is ignored"))
            return None
        segment = _Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
        with closing(segment.source):
            entry = next(segment.entries(), None)
            if entry is None:
                if segment.problem is not None:
                    self._report(segment.problem)
                if not self._growing:
                    self._taken.add(name)
                    self.files.append(name)
                return None
            return entry.index

    def _report(self, problem: Problem) -> None:
        if problem in self._reported:
            return
        self._reported.add(problem)
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        if self._strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; what came before is whole"
            raise Corrupt(msg)

    def close(self) -> None:
        if self._segment is not None:
            self._segment.source.close()


_MOST_PROBLEMS = 1000
"""Problems kept: a hostile file must not fill the memory with complaints."""


def _ascending(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Drop what a clean queue cannot hold: ids that do not ascend."""
    last = 0
    for entry in entries:
        if entry.index is not None and entry.index > last:
            last = entry.index
            yield entry


def _without_holes(folder: Path, queue: str, found: State) -> dict[str, Place] | None:
    """Return where the readers stand once ids follow one another from the first on; None if they do."""
    holes = False
    heads = dict.fromkeys(found.consumers, 0)
    dones: dict[str, list[int]] = {name: [] for name in found.consumers}
    places = {name: (head or 0, frozenset(done)) for name, (head, done) in found.consumers.items()}
    first = found.first or 1
    for count, entry in enumerate(_ascending(read(folder, queue))):
        index = entry.index or 0
        holes = holes or index != first + count
        for name, (head, done) in places.items():
            if index <= head:
                heads[name] += 1
            elif index in done:
                dones[name].append(first + count)
    return {name: (first - 1 + heads[name], tuple(dones[name])) for name in places} if holes else None


# ---------------------------------------------------------------------------------------------- checkpoints


def _checkpoints(folder: Path, queue: str) -> tuple[dict[str, Place | None], list[Problem]]:
    """Return every reader's place as its file has it, None where the file is broken; and what is broken."""
    readers: dict[str, Place | None] = {}
    problems = []
    for name in _reader_files(folder, queue):
        reader = name[len(queue) + len(".read.") :]
        try:
            readers[reader] = _read_checkpoint(folder / name)
        except _BrokenCheckpointError as broken:
            readers[reader] = None
            problems.append(Problem(name, broken.position, broken.reason))
    return readers, problems


class _BrokenCheckpointError(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = f"{reason}; this reader's place is lost"


def _read_checkpoint(path: Path) -> Place:  # noqa: C901  one check per kind of damage
    """Read one reader's file. No record at all is a valid place: nothing consumed."""
    with _files.Source(path) as source:
        if source.read(0, 4) != READER_MAGIC:
            raise _BrokenCheckpointError(0, "no read checkpoint's magic")
        head, done = 0, set[int]()
        position = 4
        while first := source.read(position, 1 + 4 * 15):
            command, words = first[0] >> 4, first[0] & 15
            header = 1 + 4 * words
            if first[0] == 0:
                break
            if len(first) < header:
                raise _BrokenCheckpointError(position, "truncated header")
            size = 0
            if command >= 8:
                size = _I32.unpack_from(first, 1)[0] if words else -1
                if not 0 <= size <= MAX_ITEM:
                    raise _BrokenCheckpointError(position, f"a data size of {size} bytes")
                if position + header + size > source.size():
                    raise _BrokenCheckpointError(position, "truncated entry")
            if command == READ_HEAD >> 4:
                if words < 2:
                    raise _BrokenCheckpointError(position, "a READ_HEAD without room for an id")
                head = _I64.unpack_from(first, 1)[0]
            elif command == READ_DONE >> 4:
                if size % 8:
                    raise _BrokenCheckpointError(position, f"a READ_DONE of {size} bytes, which are no whole ids")
                done.update(struct.unpack(f"<{size // 8}q", source.read(position + header, size)))
            position += header + size
    return head, tuple(sorted(done))


def _clamp(place: Place | None, first: int | None, last: int | None, *, as_program: bool, have_items: bool) -> Place:
    """Move a place into what the segments hold, as recovery does: not past the newest, not before the oldest."""
    newest = last or 0
    oldest = (first - 1) if have_items and first is not None else 0
    if place is None:
        return (newest if as_program else oldest), ()
    head = max(min(place[0] or 0, newest), oldest)
    return head, tuple(index for index in place[1] if head < index <= newest)


def _start_of(folder: Path, queue: str, consumer: str, as_program: bool) -> tuple[int, frozenset[int]]:
    """Return where *consumer* goes on: the last consumed id, and the ids above it that are done."""
    name = f"{queue}.read.{consumer}"
    nothing = -(1 << 63)
    everything = (1 << 63) - 1
    lost = (everything if as_program else nothing), frozenset[int]()
    if not (folder / name).is_file():
        others = sorted(_checkpoints(folder, queue)[0])
        if consumer or others:
            msg = f"no reader {consumer!r} of {queue} in {folder}; there are {others}"
            raise NotFound(msg)
        return lost
    try:
        head, done = _read_checkpoint(folder / name)
    except _BrokenCheckpointError:
        return lost
    return head or 0, frozenset(() if as_program else done)


# ---------------------------------------------------------------------------------------------- writing


@dataclass(slots=True)
class _Open:
    """The segment that is being written."""

    name: str
    file: BinaryIO
    length: int


class _Writer:
    """Puts into segments, rolled by size as the program rolls them."""

    def __init__(
        self,
        stage: _files.Stage,
        queue: str,
        journal_bytes: int,
        name_ms: int | None,
        first: int | None,
        *,
        lossy: bool,
    ) -> None:
        self._stage = stage
        self._queue = queue
        self._journal_bytes = journal_bytes
        self._number = time.time_ns() // MS if name_ms is None else name_ms
        self._next = first
        self._lossy = lossy
        self._now = time.time_ns()
        self._last = 0
        self.first: int | None = None
        self.count = 0
        self._segment = self._roll()

    def put(self, entry: Entry) -> None:
        _, index, _, _, key, kind, _, _ = entry
        if index is None or self._next is not None or not self._last < index < 1 << 63:
            index = self._index(entry)
        if (key or kind) and not self._lossy:
            msg = f"cannot write entry {index} to libkestrel: it has a key or a type, which this format cannot hold"
            raise Unsafe(msg)
        record = self._record(entry, index)
        segment = self._segment
        length = segment.length + len(record)
        if length > self._journal_bytes:
            if index != self._last + 1 and self.count:
                self._refuse_gap(index)
            segment = self._segment = self._roll()
            length = segment.length + len(record)
        segment.file.write(record)
        segment.length = length
        self._last = index
        if self.first is None:
            self.first = index
        self.count += 1

    def _index(self, entry: Entry) -> int:
        if self._next is not None:
            index = self._next
            self._next += 1
        else:
            index = self._last + 1 if entry.index is None else entry.index
        if not 0 < index < 1 << 63:
            msg = f"cannot write id {index}: libkestrel's ids are 1 .. 2^63-1; number them anew with first=1"
            raise TooLarge(msg)
        if index <= self._last:
            msg = f"cannot write id {index} after id {self._last}: ids ascend; number them anew with first=1"
            raise Unsafe(msg)
        return index

    def _refuse_gap(self, index: int) -> None:
        msg = (
            f"cannot write id {index} after id {self._last} into the next segment: the real program looks there for "
            f"id {self._last + 1} and would stop; number them anew with first=1, or take a larger journal_bytes"
        )
        raise Unsafe(msg)

    def _record(self, entry: Entry, index: int) -> bytes:
        payload, _, time_ns, expires_ns, _, _, attempts, _ = entry
        size = len(payload)
        errors = attempts or 0
        added = _ms(self._now if time_ns is None else time_ns)
        fixed = _PUT_FIXED if expires_ns is None else _PUT_EXPIRING_FIXED
        if size > MAX_ITEM or 4 + fixed + size > self._journal_bytes:
            limit = min(MAX_ITEM, self._journal_bytes - 4 - fixed)
            msg = f"cannot write entry {index} to libkestrel: {size} bytes; this queue's limit is {limit}"
            raise TooLarge(msg)
        try:
            if expires_ns is None:
                return _FAST.pack(PUT, size, errors, index, added) + payload
            return _WHOLE_PUT.pack(PUT_EXPIRING, size, errors, index, added, _ms(expires_ns)) + payload
        except struct.error as error:
            msg = f"cannot write entry {index} to libkestrel: {error}"
            raise TooLarge(msg) from error

    def _roll(self) -> _Open:
        if self.count:
            self._stage.finish(self._segment.name)
        name = f"{self._queue}.{self._number}"
        self._number += 1
        file = self._stage.create(name)
        file.write(WRITER_MAGIC)
        return _Open(name, file, len(WRITER_MAGIC))

    def close(self) -> None:
        self._stage.finish(self._segment.name)


def checkpoint(head: int, done: Iterable[int] = ()) -> bytes:
    """Return the bytes of a read checkpoint: magic, READ_HEAD, READ_DONE (also when empty), 18 + 8 per id."""
    ids = sorted(done)
    return (
        READER_MAGIC
        + struct.pack("<Bq", READ_HEAD, head)
        + struct.pack("<Bi", READ_DONE, 8 * len(ids))
        + struct.pack(f"<{len(ids)}q", *ids)
    )


def _write_checkpoint(stage: _files.Stage, queue: str, reader: str, place: Place) -> None:
    if "/" in reader or "\0" in reader or "~" in reader:
        msg = f"cannot write the reader {reader!r}: '/' and '~' have no place in a reader's file name"
        raise BadFormat(msg)
    head, done = place
    if 8 * len(done) > MAX_ITEM:
        msg = f"cannot write the reader {reader!r}: {len(done)} confirmed ids, and 2,097,152 are the limit"
        raise TooLarge(msg)
    name = f"{queue}.read.{reader}"
    stage.create(name).write(checkpoint(head or 0, done))
    stage.finish(name)


def _ms(ns: int) -> int:
    return ns // MS


# ---------------------------------------------------------------------------------------------- names


def _at(path: str | os.PathLike[str], queue: str | None) -> tuple[Path, str]:
    """Return the folder and the queue that are meant; the path of one of its files will do."""
    place = Path(path)
    if queue is None and place.is_file():
        place, queue = place.parent, place.name.partition(".")[0]
    folder = _files.directory(place)
    return folder, _queue(folder, queue)


def _queue(folder: Path, queue: str | None) -> str:
    if queue is None:
        return _files.only_queue(folder, queues(folder), NAME)
    if not _QUEUE.match(queue):
        msg = f"cannot read a libkestrel queue named {queue!r}: letters, digits, ':', '_' and '-' make a name"
        raise BadFormat(msg)
    if not _is_there(folder, queue):
        msg = f"no libkestrel queue {queue!r} in {folder}; there are {queues(folder)}"
        raise NotFound(msg)
    return queue


def _is_there(folder: Path, queue: str) -> bool:
    return bool(_reader_files(folder, queue)) or bool(_segment_files(folder, queue, as_program=False))


def _segment_files(folder: Path, queue: str, *, as_program: bool) -> list[tuple[int, str]]:
    """Return (number, name) of the segments. The program also takes names with more behind the number."""
    found = []
    for name in _files.regular_files(folder):
        match = _SEGMENT.match(name)
        if match and match["queue"] == queue and "~" not in name and (as_program or not match["more"]):
            found.append((int(match["number"]), name))
    return found


def _reader_files(folder: Path, queue: str) -> list[str]:
    prefix = f"{queue}.read."
    return [name for name in _files.regular_files(folder) if name.startswith(prefix) and "~" not in name]


def _names_of(folder: Path, queue: str) -> list[str]:
    """Return every file that the program would take for a part of *queue*, temporary ones too."""
    names = {name for _, name in _segment_files(folder, queue, as_program=True)}
    names.update(name for name in _files.regular_files(folder) if name.startswith(f"{queue}.read."))
    return sorted(names)


def _magic(path: Path) -> bytes | None:
    """Return the magic of *path* if it is one of the two, else None."""
    try:
        with _files.Source(path) as source:
            found = source.read(0, 4)
    except (NotFound, BadFormat, PermissionError):
        return None
    return found if found in (WRITER_MAGIC, READER_MAGIC) else None


def _hidden_bytes(folder: Path, name: str) -> list[Problem]:
    """Find what stands behind the zero byte that ends a segment's data: torn records, or items hidden for ever."""
    segment = _Segment(folder, name, as_program=False, growing=False)
    with closing(segment.source) as source:
        for _ in segment.entries():
            pass
        position, size = segment.position, source.size()
        while segment.problem is None and (position := source.next_data(position)) < size:
            data = source.read(position, _files.WINDOW)
            rest = data.lstrip(b"\0")
            if rest:
                where = position + len(data) - len(rest)
                reason = f"bytes behind the end of the data at {segment.position}: a put that was never finished"
                return [Problem(name, where, reason)]
            position += len(data)
    return []


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder*, whose files are *names*, holds a libkestrel queue."""
    return any("." in name for name in names) and bool(queues(folder))


def detect_file(path: Path) -> bool:
    """Say whether *path* is one file of a libkestrel queue."""
    return _magic(path) is not None
