"""
Following a queue that another program writes: its last file as it grows, and the files that come after it.

Java writes through mappings, which raise no event: the file is looked at again and again, soon after something came
and then less often. A file is left when its EOF mark is there; without one only when later files have messages, its
place is still empty, and no writer that lives holds the lock. What is then written behind the follower is heard.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shmq.errors import NotFound
from shmq.formats.chronicle.lock import alive, pid_of
from shmq.formats.chronicle.store import Store, Why
from shmq.formats.chronicle.table import UNLOCKED, WRITE_LOCK, read_table
from shmq.formats.chronicle.walk import Walk
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shmq.formats.chronicle.folder import Folder
    from shmq.formats.model import Entry

_SOONEST, _LATEST = 0.001, 0.05
"""Seconds from one look to the next: right after something came, and when nothing has come for a while."""

_PATIENCE = 15.0
"""Seconds that a file without an EOF mark may have its lock held. Java's writers give up after as many."""

_COARSE = 0.1
"""More seconds than a tick of the clock that files have their times from: two changes within it may have one time."""

_REFRESH = 60.0
"""Seconds after which a directory is listed again in any case: some file systems have coarser clocks."""

_SELDOM = 0.5
"""Seconds from one listing to the next while the current file has no EOF mark, and no next file is to be expected."""

_LEFT = 8
"""Files without an EOF mark that are still looked at after they were left."""

_LAST_LOOKED_AT = 3
"""Of the files after one without an EOF mark, so many of the last are asked whether they have messages."""

_GONE = 0.25
"""Seconds that a lock stays as it is when whoever holds it is gone."""


class Follower(Walk):
    """A place in a queue that grows."""

    def __init__(self, folder: Folder, start: Callable[[], tuple[int, int]], **options: Any) -> None:
        """Begin at *start*, which is asked once it is known how the queue is cut; the options are those of `Walk`."""
        super().__init__(folder, start() if folder.settled else (0, 0), **options)
        self._ask_for_start = start
        self.tick = _SOONEST
        """The time to wait for an event before the next look."""
        self._waiting_since = 0.0
        self._holder, self._held_since = UNLOCKED, 0.0
        self._changed = 0
        self._listed_at = -_REFRESH
        self._seen: set[int] = set()
        self._left: deque[Store] = deque()
        """Files that were left without an EOF mark, or came late: nothing may be added to them unheard."""

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self.folder.path]

    def available(self) -> Iterator[Entry]:
        """Deliver what is there, from where the last call ended."""
        came = False
        for found in self.lists() if self._settled() else ():
            came = True
            yield from found
        if came:
            self.tick = _SOONEST
        else:
            self.tick = min(2 * self.tick, _LATEST)
            self._look_round()

    def _settled(self) -> bool:
        """Say whether it is known how the queue is cut; its maker may be about to write that."""
        if not self.folder.settled:
            self.folder.settle()
            if self.folder.settled:
                self.begin_at(self._ask_for_start())
        return self.folder.settled

    # ------------------------------------------------------------ from file to file
    def _list(self) -> list[tuple[int, str]]:
        """List the directory, unless it is as it was."""
        try:
            changed = self.folder.path.stat().st_mtime_ns
        except FileNotFoundError as error:
            msg = f"cannot follow {self.folder.path}: the directory is gone"
            raise NotFound(msg) from error
        now, store = time.monotonic(), self._store
        since = now - self._listed_at
        if changed == self._changed and since < _REFRESH:
            return self._listed
        if store is not None and store.end is not None and store.end.why is not Why.EOF and since < _SELDOM:
            return self._listed
        self._changed = changed if abs(time.time() - changed / 1e9) > _COARSE else 0
        self._listed_at = now
        found = super()._list()
        for cycle, name in found:
            if self._start[0] <= cycle < self._wanted and cycle not in self._seen:
                self._watch_late(cycle, name)
        self._seen.update(cycle for cycle, _ in found)
        return found

    def _following(self) -> tuple[int, str] | None:
        """Look for the very next cycle by its name, once its turn has come: thousands of files take long to list."""
        store, folder = self._store, self.folder
        if store is not None and store.end is not None and store.end.why is Why.EOF and folder.only is None:
            name = folder.roll.file_name(self._wanted, folder.epoch)
            if (folder.path / name).is_file():
                self._seen.add(self._wanted)
                return self._wanted, name
        return super()._following()

    def _leaves(self, store: Store) -> bool:
        end = store.end
        if end is None or end.why is Why.EOF or store.damaged:
            return super()._leaves(store)
        if (
            self._as_program
            or not self._later_messages(store)
            or (self._lock_is_held() and not self._patience_is_over())
        ):
            return False
        # Its writer may have gone on until a moment ago.
        if _news(store) or (store.end is not None and store.end.why is Why.EOF):
            return False
        self._waiting_since = 0.0
        return super()._leaves(store)

    def _put_away(self, store: Store) -> None:
        if store.end is None or store.end.why is Why.EOF:
            store.close()
        else:
            self._watch_left(store)

    def _at_the_end(self) -> None:
        """Refuse damage in the newest file: what comes behind it could not be told from it."""
        store = self._store
        if store is not None and store.damaged and store.end is not None:
            self.refuse(Problem(store.name, store.end.at, store.end.why.value))

    def _patience_is_over(self) -> bool:
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        return now - self._waiting_since > _PATIENCE

    def _lock_is_held(self) -> bool:
        """Say whether a process that lives, as far as can be seen, holds the write lock."""
        table = self.folder.table
        if table is None:
            return False
        try:
            holder = read_table(self.folder.path, table.name).value(WRITE_LOCK, UNLOCKED)
        except NotFound:
            return False
        if holder == UNLOCKED or alive(pid_of(holder)):
            return holder != UNLOCKED
        # In another container it may live all the same: but who lives gives the lock back in no time.
        now = time.monotonic()
        if holder != self._holder:
            self._holder, self._held_since = holder, now
        return now - self._held_since < _GONE

    def _later_messages(self, store: Store) -> bool:
        """Say whether a file after *store* has a message: the next one, or one of the last."""
        later = [each for each in self._listed if each[0] > store.cycle]
        return any(self._has_messages(cycle, name) for cycle, name in later[:1] + later[1:][-_LAST_LOOKED_AT:])

    def _has_messages(self, cycle: int, name: str) -> bool:
        try:
            other = self.folder.store(cycle, name)
        except NotFound:
            return False
        try:
            return _news(other)
        finally:
            other.close()

    # ------------------------------------------------------------ behind the reader
    def _watch_left(self, store: Store) -> None:
        self._left.append(store)
        if len(self._left) > _LEFT:
            self._left.popleft().close()

    def _watch_late(self, cycle: int, name: str) -> None:
        with suppress(NotFound):
            self._watch_left(self.folder.store(cycle, name))

    def _look_round(self) -> None:
        """Look, when nothing comes, whether something came where nobody reads any more."""
        for store in list(self._left):
            if _news(store):
                self.refuse(Problem(store.name, store.position, "a message was written here after it had been passed"))
            if store.end is not None and store.end.why is Why.EOF:
                self._left.remove(store)
                store.close()
        if self._store is not None:
            self._look_at(self._store)

    def _look_at(self, store: Store) -> None:
        """See that the file that is read is still the one of its name, and that what was read is still there."""
        begun = store.last[0] >= 0
        if begun and store.changed():
            self.refuse(Problem(store.name, store.last[0], "what was read here is no longer here"))
        try:
            found = store.path.stat()
        except FileNotFoundError:
            return  # deleted when it was done with, or moved aside: another may come in its place
        if (found.st_dev, found.st_ino) == store.source.identity():
            return
        if begun:
            self.refuse(Problem(store.name, store.position, "the file was replaced by another of its name"))
        store.close()
        self._store, self._wanted, self._listed, self._changed = None, store.cycle, [], 0
        self.files.remove(store.name)

    def close(self) -> None:
        """Close every open file."""
        super().close()
        while self._left:
            self._left.pop().close()


def _news(store: Store) -> bool:
    """Say whether there is a message at the place of *store*; if not, `end` says why."""
    if store.ready() is None:
        return False
    if store.walk(store.sequence):
        return True
    store.settle()
    return False
