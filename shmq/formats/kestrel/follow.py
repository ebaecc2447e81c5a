"""
Following a queue whose program is at work: through what it adds, its rotations, its rewrites and its packs.

What is left is delivered first, of files that are held open, so that they may be packed away meanwhile; then what each
current journal gains, one after another (`generations`). A rewrite begins with the items that were left: those are
passed over, and each must be the one that is expected there, for their number alone would not show that the program
has recovered something else in between.
"""

from __future__ import annotations

import time
from array import array
from itertools import chain, count
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats.kestrel.generations import Begins, Generation, Generations
from shmq.formats.kestrel.journal import Journal
from shmq.formats.kestrel.queue import Journals
from shmq.formats.kestrel.records import ADDS
from shmq.formats.kestrel.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmq.formats.kestrel.files import Held
    from shmq.formats.kestrel.journal import Rules
    from shmq.formats.model import Entry, Problem

_LOOK_SECONDS = 0.002
"""So often it is looked, at most, between two entries."""


class Tail(Journals):
    """A queue's journals: replayed once, delivered, and then followed."""

    tick = 1.0

    def __init__(self, folder: Path, queue: str, rules: Rules) -> None:
        super().__init__(folder, queue, rules, growing=True)
        self._generations = Generations(folder, queue)
        self._current: Journal | None = None
        self._looked = 0.0
        self._marks = Marks()
        self._repeated: Iterator[int | None] = iter(())
        """The marks of the items that were left before a rewrite, in the order in which it repeats them."""
        self._to_repeat = 0
        self._suspect: set[int] = set()
        """The marks of what was delivered, until the first item behind those that a rewrite repeats is none of them."""

    def available(self) -> Iterator[Entry]:
        """Deliver what is in the queue; when called again, what was added since."""
        if not self._started:
            yield from self._left()
        while True:
            if self._current is not None:
                yield from self._gained(self._current)
            self._generations.look()
            following = self._generations.following()
            if following is None:
                return
            if self._current is not None:
                # Once more behind that look: its program writes no more to it, so that nothing can be missed.
                yield from self._gained(self._current)
                self._finish(self._current)
            self._go_on(following)

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self._folder]

    def _look_now_and_then(self) -> None:
        """Hold what was rotated while somebody worked on an entry: it may be packed away before it is its turn."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._generations.look()
            self._looked = time.monotonic()

    # -- what is left

    def _open(self) -> tuple[list[Held], list[Problem]]:
        return self._generations.begin()

    def _replayed(self, last: Journal) -> None:
        self._current = Journal(self._folder / last.name, self._rules, growing=True, source=last.source)
        self._current.position = last.position

    def _left(self) -> Iterator[Entry]:
        """Deliver what is in the queue, and let go of all files but the last one."""
        ordinals: Iterator[int] = iter(())
        for found in self.lists():
            if not self._marks:
                ordinals = self._left_ordinals()
            for entry, ordinal in zip(found, ordinals, strict=False):
                self._marks.put(ordinal, entry)
                yield entry
                self._look_now_and_then()
        *held, last = self._held
        self._held = held
        self._let_go()
        self._held = [last]
        self._known.clear()

    def _left_ordinals(self) -> Iterator[int]:
        """The numbers of the items that are left, in the order in which they are delivered."""
        replay = self._replay
        return chain([replay.open[xid] for xid in sorted(replay.open)], list(replay.front), count(replay.next))

    # -- what is added

    def _gained(self, journal: Journal) -> Iterator[Entry]:
        if journal.size() < journal.position:
            msg = f"{self._folder / journal.name}: became shorter than the {journal.position} bytes that were read"
            raise Corrupt(msg)
        replay, marks = self._replay, self._marks
        while (one := journal.one()) is not None:
            replay.apply(one)
            if one.op not in ADDS:
                continue
            entry = journal.entry(one)
            marks.put(replay.added - 1, entry)
            if self._to_repeat:
                self._pass_over(entry, journal)
                continue
            if self._suspect:
                if mark(entry) in self._suspect:
                    raise self._other_items(journal)
                self._suspect = set()
            yield entry
            self._look_now_and_then()
        if journal.problem is not None:
            problem = journal.problem
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}"
            raise Corrupt(msg)
        if self._to_repeat:
            raise self._other_items(journal)

    def _finish(self, journal: Journal) -> None:
        if journal.position < journal.size() and not journal.ended:
            msg = f"{self._folder / journal.name} at {journal.position}: ends inside a record, and was left so"
            raise Corrupt(msg)
        journal.source.close()

    def _go_on(self, following: Generation) -> None:
        path = self._folder / (following.name or self._queue)
        self._current = Journal(path, self._rules, growing=True, source=following.source)
        if following.begins is Begins.EMPTY:
            return
        if following.begins is Begins.UNKNOWN:
            msg = (
                f"{path}: was put there by another hand than its program's, so nothing tells what of it is new; "
                "what was delivered is whole: read again from the beginning"
            )
            raise Corrupt(msg)
        if following.begins is Begins.REPEATED:
            if self._generations.torn:
                raise self._other_items(self._current)
            replay, marks = self._replay, self._marks
            opened = [replay.open[xid] for xid in sorted(replay.open, reverse=True)]
            left = chain(opened, replay.front, range(replay.next, replay.added))
            self._repeated, self._to_repeat = map(marks.get, left), replay.live()
            if self._generations.packed:
                self._suspect = marks.all()
                self._generations.packed = False
        self._replay, self._marks = Replay(as_program=False), Marks()

    def _pass_over(self, entry: Entry, journal: Journal) -> None:
        """Take *entry* for one of those that a rewrite repeats."""
        expected = next(self._repeated)
        if expected is not None and expected != mark(entry):
            raise self._other_items(journal)
        self._to_repeat -= 1

    def _other_items(self, journal: Journal) -> Corrupt:
        return Corrupt(
            f"{self._folder / journal.name}: its program has rewritten it with other items than were left by what was "
            "read, as after a stop in the middle of a rewrite; what was delivered is whole: read again from the "
            "beginning"
        )

    def close(self) -> None:
        """Close the files that are held."""
        super().close()
        if self._current is not None:
            self._current.source.close()
        self._generations.close()


def mark(entry: Entry) -> int:
    """Return what an item is known by again."""
    return hash((entry.payload, entry.time_ns, entry.expires_ns))


class Marks:
    """The marks of the newest items, and of the few that were open when it began: a queue may have millions of them."""

    most = 1 << 20

    def __init__(self) -> None:
        self._first = -1
        self._newest = array("q")
        self._early: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._newest or self._early)

    def put(self, ordinal: int, entry: Entry) -> None:
        """Remember an item; those that are added have one number after the other."""
        marks = self._newest
        if not marks:
            self._first = ordinal
        elif ordinal != self._first + len(marks):
            # What is left begins with the items that are open or were put back, whose numbers do not ascend.
            self._early.update(enumerate(marks, self._first))
            del marks[:]
            self._first = ordinal
        marks.append(mark(entry))
        if len(marks) >= 2 * self.most:
            del marks[: self.most]
            self._first += self.most

    def all(self) -> set[int]:
        """Return the marks of all items that are known."""
        return {*self._newest, *self._early.values()}

    def get(self, ordinal: int) -> int | None:
        """Return the mark of an item; None if it is not known any more."""
        at = ordinal - self._first
        return self._newest[at] if 0 <= at < len(self._newest) else self._early.get(ordinal)
