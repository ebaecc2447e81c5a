"""
The files that are the current journal of a queue, one after another: its program writes to no other.

A rotation gives the file another name and begins an empty one. A rewrite writes the items that are left to a file of
its own and puts that in the place of all others. So what was added to a queue is what was added to each of these
generations in turn, except that one which a rewrite has made begins with what is repeated. Packs repeat, too, and
never become the current journal: who reads the generations need not know of them.

Names do not tell which file has followed which: after two rewrites there is one file, as after one. The kernel does,
by what it keeps of what happened to the names (`_inotify.Names`). Every generation is opened at the first look that
finds it, and held: its program may delete it long before it was read. One that came and went between two looks is
`gone`, and what was in it is unknown; so is what follows a change of names that no program of Kestrel makes.
"""

from __future__ import annotations

import enum
import itertools
import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats import _files
from shmq.formats._inotify import CREATED, DELETED, MOVED_FROM, MOVED_TO, Names, Told
from shmq.formats.kestrel.files import ATTEMPTS, MOST_HELD, Held, hold, identity_of, let_go
from shmq.formats.kestrel.names import in_replay_order, place_of

if TYPE_CHECKING:
    from pathlib import Path

    from shmq.formats.model import Problem

_NAP = 0.01
_NAPS = 20
"""So often it is looked again whether a rewrite is at its end, before the files are taken as they are."""


class Begins(enum.Enum):
    """What a generation begins with."""

    EMPTY = enum.auto()
    """Nothing: the one before was rotated."""
    REPEATED = enum.auto()
    """The items that were left: a rewrite has made it."""
    ANEW = enum.auto()
    """Nothing, and there is nothing before it any more: the queue was deleted."""
    UNKNOWN = enum.auto()
    """Something that no program of Kestrel has put there."""


@dataclass(slots=True, eq=False)
class Generation:
    """One file that is, or was, the current journal."""

    begins: Begins
    name: str | None
    """Its name now; None when it has none any more."""
    source: _files.Source | None = None
    """Open, once a look has found it."""


class Generations:
    """The current journal of a queue from now on, and those that follow it."""

    def __init__(self, folder: Path, queue: str) -> None:
        """Listen to what happens in *folder*."""
        self._folder = folder
        self._queue = queue
        self._names = Names(folder)
        self._newest = Generation(Begins.EMPTY, None)
        self._next: deque[Generation] = deque()
        """Those behind the one that is read."""
        self._wanting = False
        """Whether one of them is not open yet."""
        self._erased = False
        """Whether the newest one was deleted with all of the queue."""
        self._rewriting: str | None = None
        """The name of the pack that a rewrite is about to put in the place of all files."""
        self._moving: dict[int, tuple[str, Generation | None]] = {}
        """By their cookies, names that files had before they got another."""
        self.torn = False
        """Whether a rewrite has ended in the middle: its program has more or fewer items since than it had."""
        self.packed = False
        """
        Whether a rotated journal may be a pack. A program that starts with one may have items again that were taken,
        for a pack puts open ones in another order than the journals behind it name them.
        """

    # -- the beginning

    def begin(self) -> tuple[list[Held], list[Problem]]:
        """
        Open all files of the queue as they are at one time, not in the middle of a rewrite, and listen from there.

        Raises:
            NotFound: they were renamed or deleted at each of several attempts.
        """
        naps = 0
        for attempt in range(ATTEMPTS + _NAPS):
            self._names.new()
            names, problems = in_replay_order(self._folder, self._queue, as_program=False)
            held: list[Held] = []
            try:
                hold(self._folder, names, held)
                # To list them again waits for whoever is renaming one, so that it has been told.
                same = in_replay_order(self._folder, self._queue, as_program=False)[0] == names
                same = same and not any(self._is_ours(told.name) for told in self._names.new())
                between = same and naps < _NAPS and _between(held, self._queue)
                if (same and not between) or attempt == ATTEMPTS + _NAPS - 1:
                    last = held[-1]
                    self._newest = Generation(Begins.EMPTY, last.name, last.source)
                    self.packed = len(held) > 1
                    return held, problems
            except (NotFound, IndexError):
                if attempt == ATTEMPTS + _NAPS - 1:
                    raise
                between = False
            except BaseException:
                let_go(held)
                raise
            let_go(held)
            if between:
                naps += 1
                time.sleep(_NAP)
        raise AssertionError  # pragma: no cover  the last attempt returns or raises

    def _is_ours(self, name: str) -> bool:
        return name == self._queue or name.startswith(f"{self._queue}.")

    # -- looking

    def look(self) -> None:
        """Take note of what has happened, and hold what has come. A system call when that is nothing."""
        told = self._note()
        for _ in range(ATTEMPTS):
            if not told and not self._wanting:
                return
            told = self._hold()

    def following(self) -> Generation | None:
        """
        Take the next generation, if there is one that can be read: then the one before it is finished.

        Raises:
            Corrupt: there was one, and it is gone.
        """
        if self._names.deaf:
            return self._listed()
        if not self._next:
            self._check()
            return None
        first = self._next[0]
        if first.source is not None:
            return self._next.popleft()
        if first.name is None:
            raise self._lost("a journal was rotated or rewritten, and packed away, between two looks")
        return None  # it is renamed all the time: the next look finds it

    def _hold(self) -> bool:
        """Open what is not open yet, if its name is still its own then; whether anything was told meanwhile."""
        found: list[tuple[Generation, str, _files.Source]] = []
        self._wanting = False
        for one in itertools.islice(self._next, MOST_HELD):
            if one.source is None and one.name is not None:
                self._wanting = True
                with suppress(NotFound):
                    found.append((one, one.name, _files.Source(self._folder / one.name)))
        if not found:
            return self._note()
        # Whoever changes names holds the folder until it is told: so what was opened above has been told after this.
        with suppress(StopIteration), os.scandir(self._folder) as entries:
            next(entries)
        told = self._names.new()
        changed = {each.name for each in told}
        for one, name, source in found:
            if name in changed or self._names.deaf:
                source.close()
            else:
                one.source = source
        self._wanting = any(one.source is None for one in itertools.islice(self._next, MOST_HELD))
        return self._apply_all(told)

    def _check(self) -> None:
        """Notice when the current journal is another file and nobody has told: some file systems do not."""
        source = self._newest.source
        there = identity_of(self._folder / self._queue)
        if source is None or there is None or self._newest.name != self._queue or there == source.identity():
            return
        with suppress(StopIteration), os.scandir(self._folder) as entries:
            next(entries)
        if not self._note():
            self._names.deaf = "this file system does not tell"

    # -- what was told

    def _note(self) -> bool:
        """Apply what was told since the last time; whether it was anything of this queue."""
        return self._apply_all(self._names.new()) or bool(self._names.deaf)

    def _apply_all(self, found: list[Told]) -> bool:
        ours = False
        for told in found:
            ours = self._apply(told) or ours
        return ours

    def _apply(self, told: Told) -> bool:
        what, name, cookie = told
        if what & MOVED_FROM:
            self._moving[cookie] = name, self._leave(name)
            return self._is_ours(name)
        before, moved = self._moving.pop(cookie, ("", None)) if what & MOVED_TO else ("", None)
        if name == self._queue:
            self._current(what, before)
        elif name.startswith(f"{self._queue}."):
            self._numbered(what, name, before, moved)
        else:
            return False
        if not what & MOVED_TO:
            self._moving.clear()  # of files that have left the folder
        return True

    def _leave(self, name: str) -> Generation | None:
        """Whatever generation has this name has it no more."""
        for one in (self._newest, *self._next):
            if one.name == name:
                one.name = None
                return one
        return None

    def _current(self, what: int, before: str) -> None:
        """Something happened to the current journal's name; a file that has got it was called *before*."""
        if what & DELETED:
            self._erased = self._rewriting is None
            self._leave(self._queue)
            return
        self._leave(self._queue)
        if what & CREATED:
            begins = Begins.ANEW if self._erased else Begins.EMPTY
        else:
            # 1.x renames its temporary file at once.
            place = place_of(before, self._queue)
            rewritten = before.startswith(f"{self._queue}~~") or (place is not None and not place[1])
            begins = Begins.REPEATED if rewritten else Begins.UNKNOWN
        self._newest = Generation(begins, self._queue)
        self._next.append(self._newest)
        self._wanting = True
        self._erased = False
        self._rewriting = None

    def _numbered(self, what: int, name: str, before: str, moved: Generation | None) -> None:
        """Something happened to the name of a rotated journal, or of a pack."""
        if what & DELETED:
            self._leave(name)
            return
        place = place_of(name, self._queue)
        if place is not None and place[1] and what & CREATED:  # only a rewrite makes a pack of a number of its own
            self.torn = self.torn or self._rewriting is not None
            self._rewriting = name
        if what & MOVED_TO:
            self.packed = self.packed or (place is not None and place[1] and name != self._rewriting)
            if before == self._queue:
                self.torn = self.torn or self._rewriting is not None
                self._rewriting = None
            self._leave(name)
            if moved is not None:
                moved.name = name

    # -- when nobody tells

    def _listed(self) -> Generation | None:
        """
        Find the next generation among the files that are there: those with a higher number, then the current one.

        That is sure as long as the newest one known is among them. When it is gone, nothing tells what was between.
        """
        while self._next and self._next[0].source is not None:
            return self._next.popleft()
        self._next.clear()
        names, _ = in_replay_order(self._folder, self._queue, as_program=False)
        files = [(name, identity_of(self._folder / name)) for name in names]
        again, _ = in_replay_order(self._folder, self._queue, as_program=False)
        if again != names or any(name.endswith(".pack") for name in names):
            return None  # in the middle of something
        known = self._newest.source
        mine = None if known is None else known.identity()
        at = next((at for at, (_, each) in enumerate(files, 1) if each == mine), 0)
        if not at:
            if known is None or not os.fstat(known.fd).st_nlink:
                raise self._lost(f"a journal was replaced, and {self._names.deaf}")
            return None
        if at == len(files):
            return None
        name, identity = files[at]
        with suppress(NotFound):
            source = _files.Source(self._folder / name)
            if source.identity() == identity:
                self._newest = Generation(Begins.EMPTY, name, source)
                return self._newest
            source.close()
        return None

    def _lost(self, what: str) -> Corrupt:
        return Corrupt(
            f"{self._folder / self._queue}: {what}, so entries may be missing here; what was delivered is whole and in "
            "order: read again from the beginning"
        )

    def close(self) -> None:
        """Give back what is held, but for what was taken."""
        for one in self._next:
            if one.source is not None:
                one.source.close()
        self._next.clear()
        self._names.close()


def _between(held: list[Held], queue: str) -> bool:
    """
    Whether a rewrite or a rotation may be on its way: until it has ended, the files hold items twice, or not at all.

    There is a pack, or no current journal, or a rotated one that is not older than it: only what a rewrite has made is
    written after the current journal was closed.
    """
    *rotated, last = held
    if last.name != queue or any(one.name.endswith(".pack") for one in held):
        return True
    if not rotated or rotated[-1].source is None or last.source is None:
        return False
    written = os.fstat(rotated[-1].source.fd).st_mtime_ns
    return written > 0 and written >= os.fstat(last.source.fd).st_mtime_ns
