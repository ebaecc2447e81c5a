"""All files of one queue, cycle by cycle from a place that is remembered: all that reading at rest needs to know."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NoReturn

from shmq.errors import Corrupt, NotFound
from shmq.formats.chronicle.store import MAX_PAYLOAD, Store, Why
from shmq.formats.model import Entry, Problem, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.formats.chronicle.folder import Folder

_MOST_PROBLEMS = 1000
"""Problems kept: a hostile file must not fill the memory with complaints."""


class Listener:
    """Whoever reads a queue's files, and hears what is wrong with them."""

    def __init__(self, folder: Folder, *, strict: bool) -> None:
        """Hear of problems in *folder*; with *strict*, raise Corrupt at the first."""
        self.folder = folder
        self.strict = strict
        self.problems: list[Problem] = []
        self._reported: set[Problem] = set()

    def hear(self, problem: Problem) -> None:
        """Take note of *problem*, once."""
        if problem in self._reported:
            return
        if len(self.problems) < _MOST_PROBLEMS:
            self._reported.add(problem)
            self.problems.append(problem)
        if self.strict:
            self.refuse(problem)

    def begins(self) -> None:
        """With strict, raise for what is wrong before any message is read."""
        if self.strict:
            for problem in (*self.folder.problems, *self.folder.stray_problems()):
                self.refuse(problem)

    def refuse(self, problem: Problem) -> NoReturn:
        """Raise Corrupt for *problem*."""
        file, position, reason = problem
        msg = f"{self.folder.path / file} at {position}: {reason}; every message delivered so far is whole"
        raise Corrupt(msg)


class Walk(Listener):
    """A place in a queue, and what is there from it on."""

    def __init__(
        self,
        folder: Folder,
        start: tuple[int, int] = (0, 0),
        *,
        as_program: bool = False,
        strict: bool = False,
        meta: bool = False,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        """Begin at *start*, (cycle, sequence), or at what comes next."""
        super().__init__(folder, strict=strict)
        self.begin_at(start)
        self._as_program = as_program
        self._meta = meta
        self._max_payload = max_payload
        self._listed: list[tuple[int, str]] = []
        self._store: Store | None = None
        self._over = False
        self.files: list[str] = []

    def begin_at(self, start: tuple[int, int]) -> None:
        """Begin at *start*, (cycle, sequence); nothing has been read yet."""
        self._start = start
        self._wanted = start[0]
        """The lowest cycle that the next file may have."""

    def available(self) -> Iterator[Entry]:
        """Deliver what is whole from here on, through all files that are there."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists of what was read at once."""
        for found in self.runs():
            yield found.entries() if isinstance(found, Run) else found

    def runs(self) -> Iterator[Run | list[Entry]]:
        """As `lists`; messages without meta-data between them are a `Run`."""
        self.begins()
        while not self._over:
            if self._store is not None:
                yield from self._messages(self._store)
            following = self._following()
            if following is None:
                self._at_the_end()
                return
            if self._store is not None:
                # It may have grown between our last look and the listing that showed its successor.
                yield from self._messages(self._store)
                if not self._leaves(self._store):
                    return
            self._open(*following)

    def _following(self) -> tuple[int, str] | None:
        """Return the next file: the first one from the start on, or the one after the current."""
        for listed in (self._listed, None):
            if listed is None:
                self._listed = self._list()
            at = bisect_left(self._listed, (self._wanted, ""))
            if at < len(self._listed):
                return self._listed[at]
        return None

    def _list(self) -> list[tuple[int, str]]:
        return self.folder.listing()

    def _open(self, cycle: int, name: str) -> None:
        before = self._store
        try:
            self._store = self.folder.store(
                cycle, name, meta=self._meta, max_payload=self._max_payload, report=self.hear
            )
        except NotFound:  # deleted since it was listed
            self._listed = [each for each in self._listed if each[0] != cycle]
            return
        if before is not None:
            self._put_away(before)
        self._wanted = cycle + 1
        self.files.append(name)

    def _put_away(self, store: Store) -> None:
        store.close()

    def _messages(self, store: Store) -> Iterator[Run | list[Entry]]:
        """Deliver what is in *store* from its place on; the place is the start's if that lies in it."""
        if store.ready() is None:
            return
        if store.cycle == self._start[0] and store.sequence < self._start[1]:
            found = store.walk(self._start[1]) if store.last[0] >= 0 or store.sequence else store.seek(self._start[1])
            if not found and store.sequence < self._start[1]:
                # There may be more of them one day, and none of those is wanted.
                store.settle()
                return
        yield from store.runs()

    def _leaves(self, store: Store) -> bool:
        """Judge a file that has a successor; False where the real program's tailer would not go on."""
        end = store.end
        if end is None or end.why is Why.EOF:
            return True
        if not store.damaged:
            what = "its header was never finished" if end.why is Why.NO_HEADER else "no EOF mark is here"
            self.hear(Problem(store.name, end.at, f"{what}, and later files are: Java's tailers wait here"))
        self._over = self._as_program
        return not self._over

    def _at_the_end(self) -> None:
        """Judge the end of the last file; what is damaged has been said."""
        store = self._store
        if store is None or store.end is None or store.damaged:
            return
        if store.end.why is Why.NOT_READY:
            reason = f"a document that was never finished (word {store.end.word:08x}): the next writer writes over it"
            self.hear(Problem(store.name, store.end.at, reason))
        elif store.end.why is Why.NO_HEADER:
            self.hear(Problem(store.name, 0, "a file whose header was never finished: a writer moves it aside"))

    def close(self) -> None:
        """Close the open file."""
        if self._store is not None:
            self._store.close()
