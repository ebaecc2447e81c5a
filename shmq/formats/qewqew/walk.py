"""From the header through the chunks: every element, with care for whatever may stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats import _files
from shmq.formats.model import Entry, Problem, make_entry
from shmq.formats.qewqew.chunk import FIRST, HEAD, LAST_ID, U16, Head, head_of, size_of
from shmq.formats.qewqew.names import chunk_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_PROBLEMS = 1000
_WINDOW = 1 << 17
"""Bytes read at a time: any element fits into it."""


class Walk:
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
            data = source.read(0, FIRST)
            if len(data) < FIRST:
                self._report(name, 0, f"{len(data)} bytes are not a chunk")
                if not self._as_program:
                    return
            it = Head(*HEAD.unpack(data.ljust(FIRST, b"\0")))
            self._last_next = it.next
            if self._as_program:
                yield from ([entry] for entry in self._as_the_program(source, it, chunk))
            else:
                yield from self._checked(source, it, chunk)

    def _checked(self, source: _files.Source, it: Head, chunk: int) -> Iterator[list[Entry]]:
        limit = min(it.tail, source.size())
        start = it.head
        if not 0 <= it.head <= it.tail or it.tail < FIRST:
            # 0, 0 is what the program itself creates in the place of a chunk that is missing.
            self._report(
                source.name, 0, f"head {it.head} and tail {it.tail} are not part of a chunk; it is passed over"
            )
            return
        if it.tail > limit:
            self._report(source.name, 4, f"tail {it.tail} is past the end of the file at {limit}")
        if start < FIRST:
            # A put that failed links a chunk whose head was never written; the elements begin where they always do.
            whole = it.tail == limit and _ends_at(source, FIRST, limit)
            what = "its elements are taken from the first one" if whole else "and its elements do not add up"
            self._report(source.name, 0, f"head {start} is inside the chunk's own header; {what}")
            if not whole:
                return
            start = FIRST
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

    def _as_the_program(self, source: _files.Source, it: Head, chunk: int) -> Iterator[Entry]:
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
                stop += U16.unpack(self._patched(source, it, it.head, 2))[0]
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
            self._chunk_bytes = max((size_of(self._header, chunk) for chunk in chunk_ids(self._header)), default=0)
        return self._chunk_bytes

    def _patched(self, source: _files.Source, it: Head, position: int, length: int) -> bytes:
        data = source.read(position, length).ljust(length, b"\0")
        if position >= FIRST:
            return data
        front = (HEAD.pack(it.head, it.tail, it.next)[position:])[:length]
        return front + data[len(front) :]

    def _first_chunk(self) -> int:
        if not self._header.is_file():
            return 0
        with _files.Source(self._header) as source:
            data = source.read(0, 2)
            if source.size() != 2:
                self._report(self._header.name, 0, f"{source.size()} bytes where 2 are a header")
        return int(U16.unpack(data.ljust(2, b"\0"))[0])

    def _refuse_cycles(self, chunk: int) -> None:
        """Do as the program does with a cycle: it locks the same file twice, and the open fails."""
        seen = set[int]()
        while chunk and chunk not in seen:
            seen.add(chunk)
            chunk = 0 if (it := head_of(self._header, chunk)) is None else it.next
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


def orphans(header: Path, seen: set[int]) -> list[int]:
    """Return the chunks that are there and were not *seen*."""
    return [chunk for chunk in chunk_ids(header) if chunk not in seen]


def in_order(header: Path, chunks: list[int]) -> Iterator[int]:
    """Return unreferenced chunks so that each comes before the one it refers to; chains by their smallest id."""
    left = dict.fromkeys(chunks)
    nexts = {chunk: it.next if (it := head_of(header, chunk)) else 0 for chunk in chunks}
    begins = [chunk for chunk in chunks if chunk not in set(nexts.values())]
    for begin in [*begins, *chunks]:
        chunk = begin
        while chunk in left:
            del left[chunk]
            yield chunk
            chunk = nexts[chunk]
