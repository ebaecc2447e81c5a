"""All journals of one queue: replayed once, to know what is left, and read once more, to deliver it."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import eq
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats.kestrel.files import ATTEMPTS, Held, let_go, open_all
from shmq.formats.kestrel.journal import Journal
from shmq.formats.kestrel.replay import Replay
from shmq.formats.model import Entry, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmq.formats.kestrel.journal import Rules

MOST_PROBLEMS = 1000


@dataclass(slots=True)
class Known:
    """A file that was replayed: how far, and the ordinal of its first item."""

    file: Held
    first: int
    end: int
    limit: int | None

    @property
    def name(self) -> str:
        """Its name when it was opened."""
        return self.file.name


class Journals:
    """A queue's journals: replayed once, and delivered."""

    def __init__(self, folder: Path, queue: str, rules: Rules, *, growing: bool = False) -> None:
        self._folder = folder
        self._queue = queue
        self._rules = rules
        self._growing = growing
        self._replay = Replay(as_program=rules.as_program)
        self._known: list[Known] = []
        self._held: list[Held] = []
        self._at_hand: tuple[Known, Journal] | None = None
        """The file of the last single item that was fetched: the next one is likely there too."""
        self._started = False
        self.problems: list[Problem] = []

    # -- replay

    def names(self) -> list[str]:
        """Return the files that were replayed, in order."""
        return [known.name for known in self._known]

    def live(self) -> int:
        """Return how many entries there are to deliver."""
        return self._replay.live()

    def replay(self) -> None:
        """Do every operation of every file, and remember how far each went."""
        for attempt in range(ATTEMPTS):
            try:
                self._replay_all()
            except NotFound:  # of so many files that they are not held, one was taken away
                self._let_go()
                if attempt == ATTEMPTS - 1:
                    raise
                self._replay = Replay(as_program=self._rules.as_program)
                self._known.clear()
                self.problems.clear()
            else:
                return

    def _open(self) -> tuple[list[Held], list[Problem]]:
        return open_all(self._folder, self._queue, as_program=self._rules.as_program)

    def _replay_all(self) -> None:
        self._held, problems = self._open()
        for problem in problems:
            self._report(problem)
        cut: int | None = None
        for file in self._held:
            last = file is self._held[-1]
            limit = cut if file.name == self._queue else None
            first = self._replay.added
            with closing(self._journal(file, limit, growing=self._growing and last)) as journal:
                self._replay_file(journal)
                self._known.append(Known(file, first, journal.position, limit))
                if journal.problem is not None:
                    self._report(journal.problem)
                    if self._rules.as_program:
                        # The real program cuts the current file, whichever one is broken.
                        cut = journal.position if cut is None else min(cut, journal.position)
            if last:
                self._replayed(journal)

    def _replayed(self, last: Journal) -> None:
        """The *last* file was replayed, too."""

    def _journal(self, file: Held, limit: int | None, *, growing: bool = False) -> Journal:
        """Read *file* from its beginning."""
        path = self._folder / file.name
        journal = Journal(path, self._rules, growing=growing, limit=limit, source=file.source)
        if journal.source.identity() != file.identity:
            journal.close()
            msg = f"{path}: replaced while it was being read"
            raise NotFound(msg)
        return journal

    def _replay_file(self, journal: Journal) -> None:
        apply = self._replay.apply
        for one in journal.operations():
            apply(one)
            if self._replay.twice is not None:
                reason = f"transaction {self._replay.twice} was opened while it was open; the item it had is gone"
                self._report(Problem(journal.name, one.begin, reason))
                self._replay.twice = None

    # -- delivery

    def opened(self) -> Iterator[tuple[int, Entry]]:
        """Deliver the open transactions, lowest id first."""
        places = self._positions(set(self._replay.open.values()))
        for xid in sorted(self._replay.open):
            entry = self._at(places[self._replay.open[xid]])
            yield xid, entry._replace(extra={**(entry.extra or {}), "xid": xid})

    def put_back(self) -> Iterator[Entry]:
        """Deliver what was open and was put back, the next one first."""
        places = self._positions(set(self._replay.front))
        return (self._at(places[ordinal]) for ordinal in self._replay.front)

    def lists(self) -> Iterator[list[Entry]]:
        """Deliver what is in the queue, in lists of what was read at once."""
        if not self._started:
            self._started = True
            self.replay()
        replay = self._replay
        front = list(replay.front)
        places = self._positions({*replay.open.values(), *front})
        for xid in sorted(replay.open):
            entry = self._at(places[replay.open[xid]])
            yield [entry._replace(extra={**(entry.extra or {}), "xid": xid})]
        for ordinal in front:
            yield [self._at(places[ordinal])]
        del places
        yield from self.run()

    def payloads(self, skip: int) -> Iterator[list[bytes]]:
        """Deliver the payloads of what is in the queue, but the first *skip*, once it was replayed."""
        replay = self._replay
        single = [replay.open[xid] for xid in sorted(replay.open)] + list(replay.front)
        places = self._positions(set(single[skip:]))
        for ordinal in single[skip:]:
            yield [self._at(places[ordinal]).payload]
        first = replay.next + max(0, skip - len(single))
        if first < replay.added:
            for known in self._from(first):
                with closing(self._reopen(known)) as journal:
                    yield from journal.payloads(max(0, first - known.first), known.end)

    def run(self) -> Iterator[list[Entry]]:
        """The items that were never taken: the run at the end."""
        first = self._replay.next
        if first < self._replay.added:
            for known in self._from(first):
                with closing(self._reopen(known)) as journal:
                    yield from journal.added(max(0, first - known.first), known.end)

    def _positions(self, wanted: set[int]) -> dict[int, tuple[Known, int]]:
        """Find the *wanted* ordinals: the files and positions of the records that added them."""
        if not wanted:
            return {}
        found: dict[int, tuple[Known, int]] = {}
        for known, ordinal, position in self._seek(wanted):
            found[ordinal] = known, position
            if len(found) == len(wanted):
                break
        return found

    def _seek(self, wanted: set[int]) -> Iterator[tuple[Known, int, int]]:
        highest = max(wanted) + 1
        for known in self._from(min(wanted)):
            if known.first >= highest:
                return
            with closing(self._reopen(known)) as journal:
                for ordinal, position in journal.positions(known.first, wanted, known.end):
                    yield known, ordinal, position

    def _from(self, ordinal: int) -> list[Known]:
        """Return the files that hold *ordinal* and what comes after it."""
        firsts = [known.first for known in self._known]
        return self._known[max(0, bisect_right(firsts, ordinal) - 1) :]

    def _at(self, place: tuple[Known, int]) -> Entry:
        known, position = place
        if self._at_hand is None or self._at_hand[0] is not known:
            if self._at_hand is not None:
                self._at_hand[1].close()
            self._at_hand = known, self._reopen(known)
        journal = self._at_hand[1]
        journal.position = position
        one = journal.one()
        if one is None:
            msg = f"{self._folder / known.name} at {position}: the record that was there is gone"
            raise Corrupt(msg)
        return journal.entry(one)

    def _reopen(self, known: Known) -> Journal:
        try:
            return self._journal(known.file, known.limit)
        except NotFound as error:
            path = self._folder / known.name
            msg = f"{path}: replaced while it was being read; what was delivered is whole: read again"
            raise Corrupt(msg) from error

    # -- the rest

    def _report(self, problem: Problem) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        if self._rules.strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; nothing was delivered"
            raise Corrupt(msg)

    def _let_go(self) -> None:
        if self._at_hand is not None:
            self._at_hand[1].close()
            self._at_hand = None
        let_go(self._held)
        self._held = []

    def close(self) -> None:
        """Close the files that are held."""
        self._let_go()


def place_of_child(parent: Journals, child: Journals) -> Place:
    """Return how many of the parent's entries come before the child's, if the child has the parent's last ones."""
    ahead = parent.live() - child.live()
    if ahead < 0:
        return None, ()
    theirs = chain.from_iterable(parent.payloads(ahead))
    mine = chain.from_iterable(child.payloads(0))
    return (ahead if all(map(eq, mine, theirs)) else None), ()
