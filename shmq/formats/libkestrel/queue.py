"""
All segments of one queue, in the order of their first ids: all that `read` and `follow` need to know.

A listing of many names is not atomic: it may show a segment and not one that was created before it. So what seems to be
missing before a segment is looked for again, by a listing that begins after that segment was seen.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats.libkestrel.names import magic_of, segment_files
from shmq.formats.libkestrel.records import READER_MAGIC, WRITER_MAGIC
from shmq.formats.libkestrel.segment import Segment
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shmq.formats.model import Entry

_MOST_PROBLEMS = 1000
"""Problems kept: a hostile file must not fill the memory with complaints."""


class Tail:
    """All segments of a queue in order of their first ids, and a place among them."""

    tick = 0.05  # The program writes through a mapping, which inotify does not see.

    def __init__(
        self,
        folder: Path,
        queue: str,
        *,
        as_program: bool,
        growing: bool,
        strict: bool,
        since: int | None = None,
        tell: Callable[[Problem], object] | None = None,
    ) -> None:
        """
        *tell* is given what a growing queue leaves out behind the id *since*; without it, that raises Corrupt.

        *as_program*: the segments that the program takes for some, and records as it reads them.
        """
        self._folder = folder
        self._since = since
        self._tell = tell
        self._queue = queue
        self._as_program = as_program
        self._growing = growing
        self._strict = strict
        self._segment: Segment | None = None
        self._taken: set[str] = set()
        self._firsts: dict[str, int] = {}
        """The first id of each segment that was seen with a put."""
        self._certain: int | None = None
        """The highest first id seen before the last listing began: that one has all that were made before it."""
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
                # A segment is left behind only when a newer one is there; the last one may still grow.
                if self._segment is not None:
                    yield from self._of(self._segment)
                if not self._is_next(name):
                    break
                self._open(name)
                if self._segment is not None:
                    yield from self._of(self._segment)

    def _is_next(self, name: str) -> bool:
        """Say whether no segment can be missing before *name* that is there; if not, a new listing tells."""
        first = self._firsts[name]
        if self._certain is not None and first <= self._certain:
            return True
        return self.highest is not None and first <= self.highest + 1

    def _open(self, name: str) -> None:
        if self._segment is not None:
            self._segment.source.close()
        self._taken.add(name)
        first = self._firsts[name]
        known = [last for last in (self.highest, self._since) if last is not None]
        if self._growing and self.highest is not None and first > max(known) + 1:
            what = "what is between is missing, or was consumed everywhere and deleted"
            self._lose(Problem(name, 0, f"begins with id {first}, but {max(known) + 1} is next: {what}"))
        try:
            self._segment = Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
        except NotFound:
            # Consumed everywhere and deleted since we listed it; whoever follows hears of the gap.
            if self._segment is not None and not self._growing:
                self._report(Problem(name, 0, "was deleted while the queue was read: its program is at work"))
            self._segment = None
        else:
            self.files.append(name)

    def _of(self, segment: Segment) -> Iterator[list[Entry]]:
        if segment.problem is not None:
            return
        yield from self._whole(segment)
        if segment.problem is not None:
            self._lose(segment.problem)

    def _whole(self, segment: Segment) -> Iterator[list[Entry]]:
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

    def _descends(self, index: int, last: int) -> None:
        """Remember the largest and the smallest id, which are not the last and the first: *index* is behind *last*."""
        self._highest = last if self._highest is None else max(self._highest, last)
        self.lowest = index if self.lowest is None else min(self.lowest, index)

    def _next_segments(self) -> list[str]:
        by_first: dict[int, str] = {}
        self._certain = max(self._firsts.values(), default=None)
        for _, name in sorted(segment_files(self._folder, self._queue, as_program=self._as_program)):
            if name in self._taken:
                continue
            first = self._first_id(name)
            if first is None:
                continue
            if first in by_first:
                self._lose(Problem(by_first[first], 0, f"begins with id {first}, as {name} does, which is used"))
                self._taken.add(by_first[first])
            by_first[first] = name
        return [by_first[first] for first in sorted(by_first)]

    def _first_id(self, name: str) -> int | None:
        """Return the first id in the segment *name*, or None if it has no put (yet)."""
        if name not in self._firsts:
            first = self._look_for_first_id(name)
            if first is None:
                return None
            self._firsts[name] = first
        return self._firsts[name]

    def _look_for_first_id(self, name: str) -> int | None:
        magic = magic_of(self._folder / name)
        if magic != WRITER_MAGIC:
            what = "a read checkpoint's magic" if magic == READER_MAGIC else "no libkestrel magic"
            if not self._growing:
                self._report(Problem(name, 0, f"{what}: the file is ignored"))
            return None
        try:
            segment = Segment(self._folder, name, as_program=self._as_program, growing=self._growing)
        except NotFound:
            return None  # deleted since we listed it
        with closing(segment.source):
            entry = next(segment.entries(), None)
            if entry is None:
                if segment.problem is not None:
                    self._taken.add(name)
                    self._lose(segment.problem)
                if not self._growing and name not in self.files:
                    self.files.append(name)  # but its first put may come while we read
                return None
            return entry.index

    def _lose(self, problem: Problem) -> None:
        """Report what is left out. Whoever follows hears of it, now."""
        known = problem in self._reported
        self._report(problem)
        if not self._growing or known:
            return
        if self._tell is None:
            self._refuse(problem)
        else:
            self._tell(problem)

    def _report(self, problem: Problem) -> None:
        if problem in self._reported:
            return
        if len(self.problems) < _MOST_PROBLEMS:
            self._reported.add(problem)
            self.problems.append(problem)
        if self._strict:
            self._refuse(problem)

    def _refuse(self, problem: Problem) -> None:
        msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; what came before is whole"
        raise Corrupt(msg)

    def close(self) -> None:
        """Close the open segment."""
        if self._segment is not None:
            self._segment.source.close()
