"""All segments of one queue, in the order of their first ids: all that `read` and `follow` need to know."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats.libkestrel.names import magic_of, segment_files
from shmq.formats.libkestrel.records import READER_MAGIC, WRITER_MAGIC
from shmq.formats.libkestrel.segment import Segment
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmq.formats.model import Entry

_MOST_PROBLEMS = 1000
"""Problems kept: a hostile file must not fill the memory with complaints."""


class Tail:
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
        self._segment: Segment | None = None
        self._taken: set[str] = set()
        self._reported: set[Problem] = set()
        self._last: int | None = None
        self._highest: int | None = None
        self.lowest: int | None = None
        """The smallest id that was delivered."""
        self.problems: list[Problem] = []
        self.files: list[str] = []

    @property
    def highest(self) -> int | None:
        """The largest id that was delivered."""
        return self._last if self._last is None or self._highest is None else max(self._last, self._highest)

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self._folder]

    def available(self) -> Iterator[Entry]:
        """Deliver what is there, from where the last call ended."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists of what was read at once."""
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
                    self._segment = Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
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

    def _of(self, segment: Segment) -> Iterator[list[Entry]]:
        if segment.problem is not None:
            return
        for found in segment.lists():
            last = -(1 << 63) - 1 if self._last is None else self._last
            if self.lowest is None:
                self.lowest = found[0][1]
            begin = 0
            for at, entry in enumerate(found):
                index: int = entry[1]  # type: ignore[assignment]  # all of them have one
                if index <= last:
                    # What came before is delivered before this is said.
                    self._last = last
                    if at > begin:
                        yield found[begin:at]
                    begin = at
                    self._descends(index, last)
                    self._report(Problem(segment.name, segment.position, f"id {index} comes after id {last}"))
                last = index
            self._last = last
            yield found[begin:] if begin else found
        if segment.problem is not None:
            self._report(segment.problem)

    def _descends(self, index: int, last: int) -> None:
        """Remember the largest and the smallest id, which are not the last and the first: *index* is behind *last*."""
        self._highest = last if self._highest is None else max(self._highest, last)
        self.lowest = index if self.lowest is None else min(self.lowest, index)

    def _next_segments(self) -> list[str]:
        by_first: dict[int, str] = {}
        for _, name in sorted(segment_files(self._folder, self._queue, as_program=self._as_program)):
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
        magic = magic_of(self._folder / name)
        if magic != WRITER_MAGIC:
            what = "a read checkpoint's magic" if magic == READER_MAGIC else "no libkestrel magic"
            if not self._growing:
                self._report(Problem(name, 0, f"{what}: the file is ignored"))
            return None
        segment = Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
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
        if len(self.problems) < _MOST_PROBLEMS:
            self._reported.add(problem)
            self.problems.append(problem)
        if self._strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; what came before is whole"
            raise Corrupt(msg)

    def close(self) -> None:
        """Close the open segment."""
        if self._segment is not None:
            self._segment.source.close()
