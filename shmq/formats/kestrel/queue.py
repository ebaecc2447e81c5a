"""All journals of one queue: replayed once, to know what is left, and read once more, to deliver it."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats.kestrel.journal import Journal
from shmq.formats.kestrel.names import in_replay_order
from shmq.formats.kestrel.replay import Replay
from shmq.formats.model import Entry, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.formats.kestrel.journal import Rules

MOST_PROBLEMS = 1000
ATTEMPTS = 10
"""How often a journal that changes under the reader is begun again."""


@dataclass(slots=True)
class Known:
    """A file that was replayed: how far, and the ordinal of its first item."""

    name: str
    identity: tuple[int, int]
    first: int
    end: int
    limit: int | None


class Journals:
    """A queue's journals: replayed once, and delivered."""

    def __init__(self, folder: Path, queue: str, rules: Rules, *, growing: bool = False) -> None:
        self._folder = folder
        self._queue = queue
        self._rules = rules
        self._growing = growing
        self._replay = Replay(as_program=rules.as_program)
        self._known: list[Known] = []
        self._current: Journal | None = None
        self._at_hand: Reopened | None = None
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
        names, problems = in_replay_order(self._folder, self._queue, as_program=self._rules.as_program)
        for problem in problems:
            self._report(problem)
        cut: int | None = None
        for name in names:
            last = name == names[-1]
            limit = cut if name == self._queue else None
            journal = Journal(self._folder / name, self._rules, growing=self._growing and last, limit=limit)
            first = self._replay.added
            try:
                self._replay_file(journal)
                self._known.append(Known(name, journal.source.identity(), first, journal.position, limit))
                if journal.problem is not None:
                    self._report(journal.problem)
                    if self._rules.as_program:
                        # The real program cuts the current file, whichever one is broken.
                        cut = journal.position if cut is None else min(cut, journal.position)
            except BaseException:
                journal.source.close()
                raise
            if last:
                self._current = journal
            else:
                journal.source.close()

    def _replay_steadily(self) -> None:
        """Replay, and again from the beginning if a rotation or a rewrite took a file away meanwhile."""
        for attempt in range(ATTEMPTS):
            try:
                self.replay()
            except NotFound:
                if attempt == ATTEMPTS - 1:
                    raise
                self._replay = Replay(as_program=self._rules.as_program)
                self._known.clear()
                self.problems.clear()
            else:
                return

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

    def lists(self) -> Iterator[list[Entry]]:
        """Deliver what is in the queue, in lists of what was read at once."""
        if not self._started:
            self._started = True
            self._replay_steadily()
        replay = self._replay
        front = list(replay.front)
        places = self._positions({*replay.open.values(), *front})
        for xid in sorted(replay.open):
            entry = self._at(places[replay.open[xid]])
            yield [entry._replace(extra={**(entry.extra or {}), "xid": xid})]
        for ordinal in front:
            yield [self._at(places[ordinal])]
        del places
        yield from self._run()

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

    def _run(self) -> Iterator[list[Entry]]:
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
        journal = self._at_hand
        if journal is None or journal.source.identity() != known.identity:
            if journal is not None:
                journal.close()
            journal = self._at_hand = self._reopen(known)
        journal.position = position
        one = journal.one()
        if one is None:
            msg = f"{self._folder / known.name} at {position}: the record that was there is gone"
            raise Corrupt(msg)
        return journal.entry(one)

    def _reopen(self, known: Known) -> Reopened:
        current = self._current
        if current is not None and current.source.identity() == known.identity:
            path = Path(f"/proc/self/fd/{current.source.fd}")  # also when it was renamed meanwhile
        else:
            path = self._folder / known.name
        try:
            journal = Reopened(path, self._rules, limit=known.limit)
        except NotFound as error:
            raise self._changed(known.name) from error
        journal.name = known.name
        if journal.source.identity() != known.identity:
            journal.close()
            raise self._changed(known.name)
        return journal

    def _changed(self, name: str) -> Corrupt:
        return Corrupt(
            f"{self._folder / name}: replaced while it was being read; what was delivered is whole: read again"
        )

    # -- the rest

    def _report(self, problem: Problem) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        if self._rules.strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; nothing was delivered"
            raise Corrupt(msg)

    def close(self) -> None:
        """Close the files that are held."""
        if self._current is not None:
            self._current.source.close()
        if self._at_hand is not None:
            self._at_hand.close()


class Reopened(Journal):
    """A journal that was replayed before and is read again."""

    def close(self) -> None:
        """Close it."""
        self.source.close()


def place_of_child(parent: Journals, child: Journals) -> Place:
    """Return how many of the parent's entries come before the child's, if the child has the parent's last ones."""
    ahead = parent.live() - child.live()
    if ahead < 0:
        return None, ()
    theirs = chain.from_iterable(parent.payloads(ahead))
    mine = chain.from_iterable(child.payloads(0))
    return (ahead if all(map(eq, mine, theirs)) else None), ()
