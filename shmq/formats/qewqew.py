"""
QewQew: a linked list of memory-mapped chunk files behind a two-byte header file.

The header file `P` holds the id of the first chunk (0: empty); `P.<id>` is a chunk: head-ptr, tail-ptr, next-ref,
then elements of a 16-bit length and data. All of it is big-endian. One process writes and reads; what has been
taken is gone. The format's page is docs/formats/qewqew.md.

The reader is not the real program: it never creates, cuts or locks a file, it checks every pointer, and a chunk that
was linked but never initialised is read from its first element (the program delivers its header bytes as elements;
`as_program=True` does the same).
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import _files, _follow
from shmq.formats.model import Entry, Place, Problem, Repair, State, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAME = "qewqew"
KEEPS = frozenset({"payload"})
"""An element is its bytes and nothing else."""

CHUNK_BYTES = 1 << 20
"""Our default chunk size. The real program has none: whoever opens a queue says it, and it is stored nowhere."""

MAX_ELEMENT = 0xFFFF
LAST_ID = 65534
"""Ids run 1 .. 65534 and start again; 65535 is never used."""

_CHUNK = struct.Struct(">iiH")
_U16 = struct.Struct(">H")
_FIRST = _CHUNK.size
_MOST_PROBLEMS = 1000
_WINDOW = 1 << 17
"""Bytes read at a time: any element fits into it."""


# ---------------------------------------------------------------------------------------------- verbs


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    chunk_bytes: int | None = None,
) -> Iterator[Entry]:
    """
    Deliver the elements of the queue with the header file *path*, oldest first; only `payload` and `extra` are set.

    *path* may also be the folder, with the header's name as *queue* if there are several. A *path* of a header file
    that is not there, in a folder that is, is the empty queue: the program deletes all its files when it closes one.

    A chunk whose pointers make no sense, or an element that runs past the tail, ends that chunk; the next one goes
    on, since its reference is not part of the damage. A missing chunk ends the queue. *strict* raises Corrupt there.

    With *as_program*, *chunk_bytes* is the chunk size that the program is told when it opens the queue (default: the
    longest chunk file): it sees that many bytes of each file, zeros where the file is shorter.

    Raises:
        NotFound: the folder is not there either, or holds nothing of that *queue*.
        BadFormat: with *follow*: a QewQew has one process, which takes what it reads; nobody else can look on.
    """
    del timeout
    if follow:
        msg = f"cannot follow {os.fspath(path)}: a QewQew belongs to one process, and what that one takes is gone"
        raise BadFormat(msg)
    walk = _Walk(_header(path, queue), as_program=as_program, strict=strict, chunk_bytes=chunk_bytes)
    return _follow.once(walk)


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(_Walk(_header(path, queue), as_program=False, strict=strict))


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk the chunks and return what they say. There are no named consumers and no open transactions.

    Chunk files that no reference leads to are among the problems, with the number of elements in each.
    """
    header = _header(path, queue)
    walk = _Walk(header, as_program=as_program, strict=False)
    with closing(walk):
        count = sum(map(len, walk.lists()))
    problems = walk.problems
    for chunk in _orphans(header, walk.seen):
        name = f"{header.name}.{chunk}"
        number = sum(map(len, _Walk(header, as_program=False, strict=False).elements(chunk)))
        problems.append(Problem(name, 0, f"no reference leads to this chunk; {number} elements are out of reach"))
    files = [header.name] * header.is_file() + [f"{header.name}.{chunk}" for chunk in walk.files]
    return State(NAME, header.name, {}, {}, problems, count, None, None, files)


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem of the queue: those of `state`, which looks at everything there is."""
    return state(path, queue).problems


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    first_chunk: int = 1,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write the payloads of *entries* as a QewQew with the header file *path*, and return how many.

    Every chunk file is *chunk_bytes* long, as the program makes it, and must be opened with that size. The first
    chunk is *first_chunk*. No entry gives a header file that says "empty".

    Raises:
        TooLarge: a payload over min(65,535, *chunk_bytes* - 12) bytes; more than 65,534 chunks.
        Unsafe: the queue is already there; or an entry has a time, an expiry, a key, a type or attempts, or there
            are consumers, none of which QewQew can hold, and *lossy* is not set. Nothing is left behind.
    """
    header = Path(path) / queue if queue is not None else Path(path)
    if not _FIRST + 2 <= chunk_bytes < 1 << 31 or not 1 <= first_chunk <= LAST_ID:
        msg = (
            f"cannot write chunks of {chunk_bytes} bytes from id {first_chunk}: sizes are 12 .. 2^31-1, ids 1 .. 65534"
        )
        raise BadFormat(msg)
    if consumers and not lossy:
        msg = f"cannot write the consumers {sorted(consumers)} to QewQew, which has one nameless reader"
        raise Unsafe(msg)
    if not header.parent.is_dir():
        msg = f"cannot write {header}: there is no directory {header.parent}"
        raise NotFound(msg)
    if header.exists() or _chunk_ids(header):
        msg = f"cannot write {header}: files of that queue are there; nothing was changed"
        raise Unsafe(msg)
    with _files.Stage(header.parent, mode) as stage:
        writer = _Writer(stage, header.name, chunk_bytes, first_chunk, lossy=lossy)
        for entry in entries:
            writer.put(entry)
        writer.close()
        stage.publish(last=[header.name])
    return writer.count


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    orphans: bool | None = None,
) -> Repair:
    """
    Write what is whole as a clean queue with the header file *to* (default: `<path>.repaired`).

    When a chunk is missing, the chunks behind it that nothing else refers to follow in the order of their
    references: that is what a crash between deleting a chunk and updating the header leaves. *orphans* True takes
    unreferenced chunks also when the header says that the queue is empty (a `clear` followed by a put leaves that,
    but so does a crash in the middle of a `clear`); False never takes any.
    """
    header = _header(path, queue)
    problems = verify(header)
    target = Path(to) if to is not None else _files.beside(header)
    sizes = [_size(header, chunk) for chunk in _chunk_ids(header)]
    chunk_bytes = min(max([*sizes, _FIRST + 2]), (1 << 31) - 1)
    walk = _Walk(header, as_program=False, strict=False)

    def whole() -> Iterator[Entry]:
        for found in walk.lists():
            yield from found
        if orphans or (orphans is None and walk.cut_off):
            for chunk in _in_order(header, _orphans(header, walk.seen)):
                for found in walk.elements(chunk):
                    yield from found

    with closing(walk):
        count = write(target, whole(), chunk_bytes=chunk_bytes)
    if not in_place:
        return Repair(target, count, problems, None)
    names = [f"{header.name}.{chunk}" for chunk in _chunk_ids(header)] + [header.name] * header.is_file()
    kept = _files.set_aside(header.parent, names, header.name)
    for chunk in _chunk_ids(target):
        target.with_name(f"{target.name}.{chunk}").rename(header.with_name(f"{header.name}.{chunk}"))
    target.rename(header)
    return Repair(header, count, problems, kept)


# ---------------------------------------------------------------------------------------------- reading


@dataclass(slots=True)
class _Head:
    """A chunk's own words about itself."""

    head: int
    tail: int
    next: int


class _Walk:
    """From the header through the chunks; each is visited once, whatever the references say."""

    def __init__(self, header: Path, *, as_program: bool, strict: bool, chunk_bytes: int | None = None) -> None:
        self._header = header
        self._as_program = as_program
        self._strict = strict
        self._chunk_bytes = chunk_bytes
        """With as_program, how many bytes of each chunk file the program maps."""
        self._last_next = 0
        """The reference that the last chunk held."""
        self.seen: set[int] = set()
        self.files: list[int] = []
        self.problems: list[Problem] = []
        self.cut_off = False
        """A reference led to a chunk that is not there."""

    def lists(self) -> Iterator[list[Entry]]:
        """Deliver everything, chunk by chunk."""
        chunk = self._first_chunk()
        if self._as_program:
            self._refuse_cycles(chunk)
        while chunk:
            name = self._name_of(chunk)
            if chunk in self.seen:
                self._report(name, 8, "a reference leads back to this chunk: a cycle")
                return
            self.seen.add(chunk)
            if not (self._header.parent / name).is_file():
                self.cut_off = True
                self._report(name, 0, "is referred to and missing; what followed it is out of reach")
                return
            self.files.append(chunk)
            yield from self.elements(chunk)
            chunk = self._last_next

    def _name_of(self, chunk: int) -> str:
        # The program takes every id modulo 65535, also the one that it never gives out itself.
        return f"{self._header.name}.{chunk % (LAST_ID + 1) if self._as_program else chunk}"

    def elements(self, chunk: int) -> Iterator[list[Entry]]:
        """Deliver the elements of one chunk, and remember its reference."""
        self._last_next = 0
        name = self._name_of(chunk)
        with _files.Source(self._header.parent / name, name) as source:
            data = source.read(0, _FIRST)
            if len(data) < _FIRST:
                self._report(name, 0, f"{len(data)} bytes are no chunk")
                if not self._as_program:
                    return
            it = _Head(*_CHUNK.unpack(data.ljust(_FIRST, b"\0")))
            self._last_next = it.next
            if self._as_program:
                yield from ([entry] for entry in self._as_the_program(source, it, chunk))
            else:
                yield from self._checked(source, it, chunk)

    def _checked(self, source: _files.Source, it: _Head, chunk: int) -> Iterator[list[Entry]]:
        limit = min(it.tail, source.size())
        start = it.head
        if not 0 <= it.head <= it.tail or it.tail < _FIRST:
            # 0, 0 is what the program itself creates in the place of a chunk that is missing.
            self._report(source.name, 0, f"head {it.head} and tail {it.tail} are no part of a chunk; it is passed over")
            return
        if it.tail > limit:
            self._report(source.name, 4, f"tail {it.tail} is past the end of the file at {limit}")
        if start < _FIRST:
            # A put that failed links a chunk whose head was never written; the elements begin where they always do.
            whole = it.tail == limit and _ends_at(source, _FIRST, limit)
            what = "its elements are taken from the first one" if whole else "and its elements do not add up"
            self._report(source.name, 0, f"head {start} is inside the chunk's own header; {what}")
            if not whole:
                return
            start = _FIRST
        yield from self._elements(source, start, limit, {"chunk": chunk})

    def _elements(self, source: _files.Source, start: int, limit: int, extra: dict[str, int]) -> Iterator[list[Entry]]:
        position = start
        make, most = make_entry, _files.LIST
        while position < limit:
            data = source.read(position, min(_WINDOW, limit - position))
            last = len(data) - 2
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= last and len(found) < most:
                stop = at + 2 + (data[at] << 8 | data[at + 1])
                if stop > last + 2:
                    break
                add(make((data[at + 2 : stop], None, None, None, None, None, None, extra)))
                at = stop
            if not at:
                # An element is smaller than a window, so it is the limit that cuts this one.
                self._report(source.name, position, f"an element runs past the tail at {limit}")
                return
            position += at
            yield found

    def _as_the_program(self, source: _files.Source, it: _Head, chunk: int) -> Iterator[Entry]:
        """
        Deliver as the real program does: no checks, and a head that is written back before the next element.

        It looks for an element in each chunk but the last, also where head and tail say that there is none. Where
        that is outside of what it has mapped it fails, now and whenever it is asked again: that ends the queue.
        """
        size = self._mapped()
        extra = {"chunk": chunk}
        only = it.next == 0
        while it.head < it.tail or not only:
            stop = it.head + 2
            if 0 <= it.head <= size - 2:
                stop += _U16.unpack(self._patched(source, it, it.head, 2))[0]
            if not 2 <= stop <= size:
                self._last_next = 0
                return
            yield Entry(self._patched(source, it, it.head + 2, stop - it.head - 2), extra=extra)
            it.head = stop
            if it.head >= it.tail:
                return

    def _mapped(self) -> int:
        """Return how many bytes of each chunk the program maps; of a file that is shorter the rest are zeros."""
        if self._chunk_bytes is None:
            self._chunk_bytes = max((_size(self._header, chunk) for chunk in _chunk_ids(self._header)), default=0)
        return self._chunk_bytes

    def _patched(self, source: _files.Source, it: _Head, position: int, length: int) -> bytes:
        data = source.read(position, length).ljust(length, b"\0")
        if position >= _FIRST:
            return data
        front = (_CHUNK.pack(it.head, it.tail, it.next)[position:])[:length]
        return front + data[len(front) :]

    def _first_chunk(self) -> int:
        if not self._header.is_file():
            return 0
        with _files.Source(self._header) as source:
            data = source.read(0, 2)
            if source.size() != 2:
                self._report(self._header.name, 0, f"{source.size()} bytes where 2 are a header")
        return int(_U16.unpack(data.ljust(2, b"\0"))[0])

    def _refuse_cycles(self, chunk: int) -> None:
        """Do as the program does with a cycle: it locks the same file twice, and the open fails."""
        seen = set[int]()
        while chunk and chunk not in seen:
            seen.add(chunk)
            chunk = 0 if (it := _head_of(self._header, chunk)) is None else it.next
        if chunk:
            msg = f"{self._header}: chunk {chunk} is referred to twice; the real program cannot open this queue"
            raise Corrupt(msg)

    def _report(self, name: str, position: int, reason: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(name, position, reason))
        if self._strict:
            msg = f"{self._header.parent / name} at {position}: {reason}; every element delivered so far is whole"
            raise Corrupt(msg)

    def close(self) -> None:
        """Nothing is held between chunks."""


def _ends_at(source: _files.Source, position: int, limit: int) -> bool:
    """Say whether the elements from *position* on end exactly at *limit*."""
    while position < limit:
        data = source.read(position, min(_WINDOW, limit - position))
        at = 0
        while at + 2 <= len(data):
            at += 2 + (data[at] << 8 | data[at + 1])
        if at == 0:
            return False
        position += at
    return position == limit


def _head_of(header: Path, chunk: int) -> _Head | None:
    with suppress(NotFound, BadFormat), _files.Source(header.with_name(f"{header.name}.{chunk}")) as source:
        data = source.read(0, _FIRST)
        if len(data) == _FIRST:
            return _Head(*_CHUNK.unpack(data))
    return None


def _size(header: Path, chunk: int) -> int:
    return header.with_name(f"{header.name}.{chunk}").stat().st_size


def _orphans(header: Path, seen: set[int]) -> list[int]:
    return [chunk for chunk in _chunk_ids(header) if chunk not in seen]


def _in_order(header: Path, chunks: list[int]) -> Iterator[int]:
    """Return unreferenced chunks so that each comes before the one it refers to; chains by their smallest id."""
    left = dict.fromkeys(chunks)
    nexts = {chunk: it.next if (it := _head_of(header, chunk)) else 0 for chunk in chunks}
    begins = [chunk for chunk in chunks if chunk not in set(nexts.values())]
    for begin in [*begins, *chunks]:
        chunk = begin
        while chunk in left:
            del left[chunk]
            yield chunk
            chunk = nexts[chunk]


# ---------------------------------------------------------------------------------------------- writing


class _Writer:
    """Elements into chunks; the header file comes last."""

    def __init__(self, stage: _files.Stage, name: str, chunk_bytes: int, first_chunk: int, *, lossy: bool) -> None:
        self._stage = stage
        self._name = name
        self._chunk_bytes = chunk_bytes
        self._first_chunk = first_chunk
        self._lossy = lossy
        self._chunk = 0
        self._chunks = 0
        self._tail = 0
        self._file: BinaryIO | None = None
        self.count = 0

    def put(self, entry: Entry) -> None:
        """Append one element, in a new chunk if it does not fit."""
        payload, _, when, expires, key, kind, attempts, _ = entry
        if not self._lossy and (when is not None or expires is not None or key or kind or attempts):
            msg = f"cannot write entry {self.count} to QewQew: it has more than a payload, which is all QewQew holds"
            raise Unsafe(msg)
        size = len(payload)
        if size > MAX_ELEMENT or _FIRST + 2 + size > self._chunk_bytes:
            limit = min(MAX_ELEMENT, self._chunk_bytes - _FIRST - 2)
            msg = f"cannot write entry {self.count} to QewQew: {size} bytes; with these chunks the limit is {limit}"
            raise TooLarge(msg)
        if self._file is None or self._tail + 2 + size > self._chunk_bytes:
            self._roll()
        assert self._file is not None  # noqa: S101  `_roll` has just opened it
        self._file.write(_U16.pack(size) + payload)
        self._tail += 2 + size
        self.count += 1

    def _roll(self) -> None:
        if self._chunks == LAST_ID:
            msg = f"cannot write more than {LAST_ID} chunks of {self._chunk_bytes} bytes: take larger ones"
            raise TooLarge(msg)
        following = self._chunk % LAST_ID + 1 if self._chunk else self._first_chunk
        self._finish(following)
        self._chunk = following
        self._chunks += 1
        self._tail = _FIRST
        self._file = self._stage.create(f"{self._name}.{following}")
        self._file.write(bytes(_FIRST))

    def _finish(self, following: int) -> None:
        if self._file is None:
            return
        self._file.truncate(self._chunk_bytes)
        self._file.seek(0)
        self._file.write(_CHUNK.pack(_FIRST, self._tail, following))
        self._stage.finish(f"{self._name}.{self._chunk}")

    def close(self) -> None:
        """Finish the last chunk and write the header file."""
        self._finish(0)
        self._stage.create(self._name).write(_U16.pack(self._first_chunk if self._chunks else 0))


# ---------------------------------------------------------------------------------------------- names


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the header files in the folder *path*."""
    return headers(_files.directory(path))


def headers(folder: Path) -> list[str]:
    """Return the names of the header files in *folder*: two bytes, and saying "empty" or having chunks beside them."""
    return [name for name in _files.regular_files(folder) if not name.startswith(".") and detect_file(folder / name)]


def detect_file(path: Path) -> bool:
    """Say whether *path* is a QewQew header file."""
    with suppress(NotFound, BadFormat, PermissionError), _files.Source(path) as source:
        if source.size() == 2:
            return source.read(0, 2) == b"\0\0" or bool(_chunk_ids(path))
    return False


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder*, whose files are *names*, holds a QewQew."""
    del names
    return bool(headers(folder))


def _header(path: str | os.PathLike[str], queue: str | None) -> Path:
    place = Path(path)
    if queue is not None:
        folder, place = _files.directory(place), place / queue
        if not place.is_file() and not _chunk_ids(place):
            msg = f"no QewQew {queue!r} in {folder}; there are {headers(folder)}"
            raise NotFound(msg)
    elif place.is_dir():
        place = place / _files.only_queue(place, headers(place), NAME)
    if not place.parent.is_dir():
        msg = f"cannot read {place}: there is no directory {place.parent}"
        raise NotFound(msg)
    return place


def _chunk_ids(header: Path) -> list[int]:
    """Return the ids of all chunk files beside *header*, referred to or not, ascending."""
    pattern = re.compile(re.escape(header.name) + r"\.([1-9][0-9]{0,4})\Z")
    found = (pattern.match(name) for name in _files.regular_files(header.parent))
    return sorted(int(match[1]) for match in found if match and int(match[1]) <= MAX_ELEMENT)
