"""
The real program's reader, step by step: what it delivers of ids that do not ascend by one, with all of its bugs.

It knows the first id of every segment, and the last id of the segment with the highest first id: the *tail*. It reads
from its head on until an id is behind the tail, filters nothing, and looks for the segment of the next id when one
ends. So it stops at a gap between two segments, and reads again and again where ids lead back.
"""

from __future__ import annotations

import bisect
from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats import _files
from shmq.formats.libkestrel.names import magic_of, segment_files
from shmq.formats.libkestrel.records import WRITER_MAGIC
from shmq.formats.libkestrel.segment import Segment
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmq.formats.model import Entry

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class Program:
    """What the real program's reader delivers that stands at *head*; of a queue that may grow."""

    tick = 0.05

    def __init__(
        self, folder: Path, queue: str, head: int | None, *, growing: bool = False, strict: bool = False
    ) -> None:
        """None is a head before everything; *strict* raises Corrupt at damage."""
        self._folder = folder
        self._queue = queue
        self._head = _LOWEST if head is None else head
        self._growing = growing
        self._strict = strict
        self._firsts: dict[str, int | None] = {}
        self._map: dict[int, str] = {}
        self._newest: Segment | None = None
        self._segment: Segment | None = None
        self._entries: Iterator[Entry] = iter(())
        self._next = 0
        self._begun: set[str] = set()
        self._over = False
        self.tail = 0
        """The last id in the segment with the highest first id: what the program takes for the newest."""
        self.problems: list[Problem] = []
        self.files: list[str] = []

    @property
    def earliest(self) -> int:
        """The lowest first id; 1 in an empty queue, which is the id of the first put to come."""
        return min(self._map, default=1)

    @property
    def newest(self) -> int:
        """The highest first id; the tail in an empty queue."""
        return max(self._map, default=self.tail)

    @property
    def number(self) -> int:
        """The highest number of a segment."""
        return max((int(name.split(".")[1]) for name in self._firsts), default=0)

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self._folder]

    def available(self) -> Iterator[Entry]:
        """Deliver what is there, from where the last call ended."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists."""
        found: list[Entry] = []
        for entry in self._steps():
            found.append(entry)
            if len(found) >= _files.LIST:
                yield found
                found = []
        if found:
            yield found

    def _steps(self) -> Iterator[Entry]:
        self.look()
        if self._segment is None and not self._begin():
            return
        while not self._over and self._next <= self.tail:
            entry = self._read()
            if entry is not None:
                self._next = _wrapped((entry.index or 0) + 1)
                yield entry
            elif not self._go_on():
                return

    def _read(self) -> Entry | None:
        entry = next(self._entries, None)
        if entry is None and self._segment is not None:
            if self._segment.problem is not None:
                self._report(self._segment.problem)
            self._entries = self._segment.entries()  # goes on from its position, when there is more
        return entry

    def look(self) -> None:
        """Learn which segments there are, and where the newest one ends."""
        for _, name in sorted(segment_files(self._folder, self._queue, as_program=True)):
            if self._firsts.get(name) is None:
                first = self._firsts[name] = self._first_of(name)
                if first is not None:
                    self._map[first] = name
        if not self._map:
            return
        name = self._map[max(self._map)]
        if self._newest is None or self._newest.name != name:
            if self._newest is not None:
                self._newest.source.close()
            self._newest = self._open(name)
        for found in self._newest.lists():
            self.tail = found[-1].index or 0

    def _first_of(self, name: str) -> int | None:
        if magic_of(self._folder / name) != WRITER_MAGIC:
            return None
        segment = self._open(name)
        with closing(segment.source):
            entry = next(segment.entries(), None)
        return None if entry is None else entry.index

    def _begin(self) -> bool:
        """Go to where a reader begins: to the first id from its head on, in the segment that should hold it."""
        if not self._map:
            return False
        earliest = self.earliest
        self._head = max(min(self._head, self.tail), _wrapped(earliest - 1))
        self._go_to(self._holder(self._head) or self._map[earliest])
        last = -1
        while self._head >= earliest and last < self._head:
            entry = self._read()
            last = _HIGHEST if entry is None else entry.index or 0
        self._next = _wrapped(self._head + 1)
        return True

    def _holder(self, index: int) -> str | None:
        """Return the last segment that begins at or before *index*."""
        firsts = sorted(self._map)
        at = bisect.bisect_right(firsts, index)
        return self._map[firsts[at - 1]] if at else None

    def _go_on(self) -> bool:
        """Go on in the segment of the next id; False if that is the one that has just ended, or there is none."""
        name = self._holder(self._next)
        if name is None or (self._segment is not None and name == self._segment.name):
            return False
        if name in self._begun:
            # From its beginning it leads to where it has led before.
            self._report(Problem(name, 0, "the real program would read this segment again and again"))
            self._over = True
            return False
        self._begun.add(name)
        self._go_to(name)
        return True

    def _go_to(self, name: str) -> None:
        if self._segment is not None:
            self._segment.source.close()
        self._segment = self._open(name)
        self._entries = self._segment.entries()
        if name not in self.files:
            self.files.append(name)

    def _report(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
        if self._strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; what came before is whole"
            raise Corrupt(msg)

    def _open(self, name: str) -> Segment:
        return Segment(self._folder, name, as_program=True, growing=self._growing)

    def close(self) -> None:
        """Close what is open."""
        for segment in (self._segment, self._newest):
            if segment is not None:
                segment.source.close()


def _wrapped(index: int) -> int:
    """Return what an i64 makes of *index*."""
    return (index - _LOWEST) % (1 << 64) + _LOWEST
