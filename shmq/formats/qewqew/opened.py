"""
`open`: a queue in place, under its lock, for whoever is its one process for a while.

Every step leaves what the real program opens. An element, or a chunk, is whole on the disk before a pointer leads to
it, and a pointer leads on before a chunk is deleted: who is stopped in between leaves bytes behind the tail or a chunk
that nothing leads to, which the program never sees. (The program itself deletes first, and a stop there loses all.)
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, TooMany
from shmq.formats._owned import Owned, sync_directory, write_whole
from shmq.formats.qewqew.chunk import CHUNK_BYTES, FIRST, HEAD, LAST_ID, MAX_ELEMENT, U16, Head, head_of, size_of
from shmq.formats.qewqew.lock import held
from shmq.formats.qewqew.names import chunk_ids, header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shmq.formats.model import Entry

_TAIL_AT, _NEXT_AT = 4, 8


@contextlib.contextmanager
def open(  # noqa: A001  as shmq.open
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    chunk_bytes: int | None = None,
    sync: bool = True,
    mode: int = 0o600,
) -> Iterator[Opened]:
    """
    Open the queue with the header file *path* to put and take elements, under its lock; it is made if it is not there.

    *chunk_bytes* is the chunk size that its program is told; by default the length of its longest chunk, or 1 MiB.
    With *sync* what was done is on the disk before a call returns, as in the program.

    Raises:
        Busy: somebody has it open.
        Corrupt: a chunk is missing or makes no sense: `repair` it first. Nothing was changed.
        BadFormat: *chunk_bytes* is no size, or elements are behind it.
    """
    header = Path(path) / queue if queue is not None else header_of(path, None)
    if not header.parent.is_dir():
        msg = f"cannot open {header}: there is no directory {header.parent}"
        raise NotFound(msg)
    if chunk_bytes is not None and not FIRST + 2 <= chunk_bytes < 1 << 31:
        msg = f"cannot open {header} with chunks of {chunk_bytes} bytes: sizes are 12 .. 2^31-1"
        raise BadFormat(msg)
    with held(header, f"open {header}", mode) as fd:
        opened = Opened(header, fd, chunk_bytes, sync=sync, mode=mode)
        try:
            opened.peek()
            yield opened
        finally:
            opened.close()


@dataclass(slots=True)
class _Chunk:
    id: int
    fd: int
    it: Head


class Opened(Owned):
    """A queue that is ours as long as it is open; made by `open`."""

    def __init__(self, header: Path, fd: int, chunk_bytes: int | None, *, sync: bool, mode: int) -> None:
        """The lock of *header*, open as *fd*, is held."""
        super().__init__(os.fspath(header))
        self.chunk_bytes = chunk_bytes or 0
        """The chunk size, which is to be told to its program."""
        self._header = header
        self._fd = fd
        self._given = chunk_bytes
        self._sync = sync
        self._mode = mode
        self._ids: deque[int] = deque()
        """All chunks, in order."""
        self._first: _Chunk | None = None
        self._last: _Chunk | None = None
        """The same one, of a queue that has one."""

    # -- the calls

    def put(self, payload: bytes) -> None:
        """
        Append an element.

        Raises:
            TooLarge: it has more than min(65,535, `chunk_bytes` - 12) bytes.
            TooMany: all ids of chunks are taken.
        """
        self.put_many([payload])

    def put_many(self, payloads: Iterable[bytes]) -> None:
        """Append elements, as many at once as fit into a chunk; stopped in the middle, those in front are in."""
        most = min(MAX_ELEMENT, self.chunk_bytes - FIRST - 2)
        with self._call():
            run, room = bytearray(), 0
            for payload in payloads:
                if len(payload) > most:
                    self._append(run)
                    msg = (
                        f"cannot put {len(payload)} bytes into {self._header}: with these chunks the limit is {most}; "
                        "what was before it is in"
                    )
                    raise TooLarge(msg)
                if len(run) + 2 + len(payload) > room:
                    self._append(run)
                    run.clear()
                    room = self._room_for(2 + len(payload))
                run += U16.pack(len(payload)) + payload
            self._append(run)

    def peek(self) -> bytes | None:
        """Return the oldest element, which stays; None if there is none."""
        with self._call():
            return None if (chunk := self._front()) is None else self._element(chunk)

    def take(self) -> bytes | None:
        """Remove the oldest element and return it; None if there is none."""
        with self._call():
            chunk = self._front()
            if chunk is None:
                return None
            found = self._element(chunk)
            stop = chunk.it.head + 2 + len(found)
            if stop < chunk.it.tail:
                self._point(chunk, 0, stop.to_bytes(4))
                chunk.it.head = stop
            elif chunk.it.next:
                self._drop_first()
            else:
                self._reset(chunk)
            return found

    # -- reading

    def _load(self) -> None:
        self._close_chunks()
        chunks = self._walk()
        sizes = [size_of(self._header, chunk) for chunk, _ in chunks]
        self.chunk_bytes = self._given or max([*sizes, 0]) or CHUNK_BYTES
        beyond = max((it.tail for _, it in chunks), default=0)
        if beyond > self.chunk_bytes:
            msg = f"cannot open {self._header} with chunks of {self.chunk_bytes} bytes: it has elements up to {beyond}"
            raise BadFormat(msg)
        self._ids = deque(chunk for chunk, _ in chunks)
        if chunks:
            self._first = self._open_chunk(*chunks[0])
            self._last = self._first if len(chunks) == 1 else self._open_chunk(*chunks[-1])
        if os.fstat(self._fd).st_size != U16.size:
            os.ftruncate(self._fd, U16.size)
        if self._last is not None and self._last.it.tail == 0:
            # What its program leaves that is stopped before it writes a new chunk's pointers: it would then put the
            # next element over them.
            self._reset(self._last)

    def _walk(self) -> list[tuple[int, Head]]:
        """All chunks with their own words; nothing is changed."""
        found: list[tuple[int, Head]] = []
        seen: set[int] = set()
        chunk = U16.unpack(os.pread(self._fd, 2, 0).ljust(2, b"\0"))[0]
        while chunk:
            it = None if chunk in seen or chunk > LAST_ID else head_of(self._header, chunk)
            seen.add(chunk)
            new = it is not None and it.head == it.tail == it.next == 0
            if it is None or not (new or FIRST <= it.head <= it.tail <= size_of(self._header, chunk)):
                msg = (
                    f"cannot open {self._header}: chunk {chunk} is missing or damaged: repair it first; nothing was "
                    "changed"
                )
                raise Corrupt(msg)
            found.append((chunk, it))
            chunk = it.next
        return found

    def _open_chunk(self, chunk: int, it: Head) -> _Chunk:
        return _Chunk(chunk, os.open(self._path(chunk), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), it)

    def _path(self, chunk: int) -> Path:
        return self._header.with_name(f"{self._header.name}.{chunk}")

    def _front(self) -> _Chunk | None:
        """The first chunk that has an element; emptied ones before it are dropped."""
        while self._first is not None and self._first.it.head >= self._first.it.tail:
            if not self._first.it.next:
                return None
            self._drop_first()
        return self._first

    def _element(self, chunk: _Chunk) -> bytes:
        length = U16.unpack(os.pread(chunk.fd, 2, chunk.it.head).ljust(2, b"\0"))[0]
        if chunk.it.head + 2 + length > chunk.it.tail:
            msg = (
                f"{self._path(chunk.id)} at {chunk.it.head}: an element runs past the tail at {chunk.it.tail}: repair "
                "the queue; nothing was taken"
            )
            raise Corrupt(msg)
        return os.pread(chunk.fd, length, chunk.it.head + 2)

    # -- writing

    def _room_for(self, nbytes: int) -> int:
        """How many bytes fit into the chunk that the next *nbytes* go into: the last one, or one without an element."""
        room = 0 if self._last is None else self.chunk_bytes - self._last.it.tail
        return room if room >= nbytes else self.chunk_bytes - FIRST

    def _append(self, run: bytes | bytearray) -> None:
        """Append elements that fit into one chunk."""
        if not run:
            return
        last = self._last
        if last is not None and last.it.tail + len(run) > self.chunk_bytes and last.it.head >= last.it.tail > FIRST:
            self._reset(last)  # a chunk without an element is never followed by one
        if last is None or last.it.tail + len(run) > self.chunk_bytes:
            self._add_chunk(bytes(run))
            return
        write_whole(last.fd, bytes(run), last.it.tail)
        self._force(last.fd)
        tail = last.it.tail + len(run)
        self._point(last, _TAIL_AT, tail.to_bytes(4))
        last.it.tail = tail

    def _add_chunk(self, run: bytes) -> None:
        """Make a chunk that holds *run*, and then lead to it."""
        chunk = self._free_id()
        fd = os.open(self._path(chunk), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
        try:
            write_whole(fd, HEAD.pack(FIRST, FIRST + len(run), 0) + run, 0)
            os.ftruncate(fd, self.chunk_bytes)
            if self._sync:
                os.fsync(fd)
                sync_directory(self._header.parent)
            if self._last is None:
                self._lead_to(chunk)
            else:
                self._point(self._last, _NEXT_AT, U16.pack(chunk))
        except BaseException:
            os.close(fd)
            if not self._leads_to(chunk):
                self._path(chunk).unlink()
            raise
        new = _Chunk(chunk, fd, Head(FIRST, FIRST + len(run), 0))
        if self._last is None:
            self._first = new
        else:
            self._last.it.next = chunk
            if self._last is not self._first:
                os.close(self._last.fd)
        self._last = new
        self._ids.append(chunk)

    def _leads_to(self, chunk: int) -> bool:
        if self._last is None:
            return os.pread(self._fd, 2, 0) == U16.pack(chunk)
        return os.pread(self._last.fd, 2, _NEXT_AT) == U16.pack(chunk)

    def _free_id(self) -> int:
        """The next id that no file has: one that nothing leads to is left for `repair`."""
        chunk = self._ids[-1] % LAST_ID + 1 if self._ids else 1
        taken = set(chunk_ids(self._header)) if self._path(chunk).exists() else set()
        for _ in range(LAST_ID):
            if chunk not in taken:
                return chunk
            chunk = chunk % LAST_ID + 1
        msg = f"cannot put into {self._header}: {LAST_ID} chunks are there, and there are no more ids"
        raise TooMany(msg)

    def _drop_first(self) -> None:
        """Lead to the second chunk, and delete the first."""
        first, last = self._first, self._last
        assert first is not None  # noqa: S101  it was emptied just now
        assert last is not None  # noqa: S101
        second = first.it.next
        self._lead_to(second)
        self._first = last if second == last.id else None
        self._ids.popleft()
        os.close(first.fd)
        self._path(first.id).unlink()
        if self._first is None:
            it = head_of(self._header, second)
            if it is None:
                msg = f"{self._path(second)} is gone, and its lock was held: repair the queue"
                raise Corrupt(msg)
            self._first = self._open_chunk(second, it)

    def _reset(self, chunk: _Chunk) -> None:
        self._point(chunk, 0, HEAD.pack(FIRST, FIRST, 0))
        chunk.it = Head(FIRST, FIRST, 0)

    def _lead_to(self, chunk: int) -> None:
        write_whole(self._fd, U16.pack(chunk), 0)
        self._force(self._fd)

    def _point(self, chunk: _Chunk, position: int, data: bytes) -> None:
        write_whole(chunk.fd, data, position)
        self._force(chunk.fd)

    def _force(self, fd: int) -> None:
        if self._sync:
            os.fdatasync(fd)

    # -- the end

    def _close_chunks(self) -> None:
        for chunk in {id(each): each for each in (self._first, self._last) if each is not None}.values():
            os.close(chunk.fd)
        self._first = self._last = None
        self._ids.clear()

    def close(self) -> None:
        """Give it back, as leaving the block does, but for the lock; again is harmless."""
        if os.getpid() == self._pid:
            self._closed = True
        self._close_chunks()


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> int:
    """Put the payloads of *entries* at the end of the queue, under its lock, so that there is nothing to *tell*."""
    del tell
    count = 0

    def payloads() -> Iterator[bytes]:
        nonlocal count
        for entry in entries:
            yield entry.payload
            count += 1

    with open(path, queue) as opened:
        opened.put_many(payloads())
    return count
