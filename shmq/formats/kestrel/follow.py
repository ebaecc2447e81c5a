"""Following a queue whose program is at work: through what it adds, its rotations and its rewrites."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats.kestrel.journal import Journal
from shmq.formats.kestrel.names import identity, in_replay_order
from shmq.formats.kestrel.queue import ATTEMPTS, Journals
from shmq.formats.kestrel.records import ADDS
from shmq.formats.kestrel.replay import Replay
from shmq.formats.model import MS, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmq.formats.kestrel.journal import Rules


class Tail(Journals):
    """A queue's journals: replayed once, delivered, and then followed."""

    tick = 1.0

    def __init__(self, folder: Path, queue: str, rules: Rules) -> None:
        super().__init__(folder, queue, rules, growing=True)
        self._latest_ms = 0
        self._at_latest: list[int] = []
        """Hashes of the payloads that were delivered with the latest add time: the clock counts only milliseconds."""
        self._restated = False
        """Whether the current file took the place of one that was gone, so that the next may repeat it, too."""
        self._carried = 0
        """At most so many entries delivered from files before the current one may still be in the queue."""
        self._skip = 0

    def available(self) -> Iterator[Entry]:
        """Deliver what is in the queue; when called again, what was added since."""
        if not self._started:
            for found in self.lists():
                for entry in found:
                    self._note(entry)
                    yield entry
        yield from self._added_since()

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self._folder]

    def _note(self, entry: Entry) -> None:
        """Remember what is needed to know *entry* again in a file that was rewritten."""
        added_ms = (entry.time_ns or 0) // MS
        if added_ms > self._latest_ms:
            self._latest_ms = added_ms
            self._at_latest.clear()
        if added_ms == self._latest_ms:
            self._at_latest.append(hash(entry.payload))

    def _added_since(self) -> Iterator[Entry]:
        """
        Deliver what the current file has gained, and go on to its successors.

        A file is left only after it was read once more behind the look that showed its successor: its program
        writes no more to it then, so that nothing can be missed.
        """
        while True:
            if self._current is not None:
                yield from self._gained(self._current)
            successor, rewritten = self._successor()
            if successor is None:
                return
            if self._current is not None:
                yield from self._gained(self._current)
                self._current.source.close()
            if rewritten or self._restated:
                self._carried += self._replay.live()
                self._skip = self._carried
            if rewritten:
                self._replay = Replay(as_program=False)
            self._restated = rewritten
            self._current = successor

    def _gained(self, journal: Journal) -> Iterator[Entry]:
        if journal.size() < journal.position:
            msg = f"{self._folder / journal.name}: became shorter than the {journal.position} bytes that were read"
            raise Corrupt(msg)
        while (one := journal.one()) is not None:
            self._replay.apply(one)
            if one.op not in ADDS:
                continue
            entry = journal.entry(one)
            if self._skip and self._delivered_before(entry):
                self._skip -= 1
                self._carried = 0  # the file does repeat what is left: its own replay counts that from now on
                continue
            self._skip = 0
            self._note(entry)
            yield entry
        if journal.problem is not None:
            problem = journal.problem
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}"
            raise Corrupt(msg)

    def _delivered_before(self, entry: Entry) -> bool:
        """Whether *entry*, at the beginning of a file that may repeat others, came from one of those."""
        added_ms = (entry.time_ns or 0) // MS
        if added_ms != self._latest_ms:
            return added_ms < self._latest_ms
        return hash(entry.payload) in self._at_latest

    def _successor(self) -> tuple[Journal | None, bool]:
        """
        Open the file to go on with, if the current one is not the current one any more; and say if it is a rewrite.

        A rotated file keeps its identity under a new name: its successors are the higher numbers, then `Q`. A file
        that is gone was replaced by a rewrite, which begins with the items that are left: those were delivered, and
        are passed over by their number and their add times. In the middle of a rewrite, though, what stands first may
        be a file that repeats nothing, and the next one the rewrite; or the rewrite, and the next one what it repeats.
        """
        files = self._files()
        if not files:
            return None, False
        if self._current is None:
            return self._follow_on(*files[0]), False
        mine = self._current.source.identity()
        at = next((at for at, (_, identity) in enumerate(files, 1) if identity == mine), 0)
        if at:
            return (self._follow_on(*files[at]) if at < len(files) else None), False
        if os.fstat(self._current.source.fd).st_nlink:
            return None, False  # between two names
        return self._follow_on(*files[0]), True

    def _files(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the names in replay order with the files they name; none while they change from look to look."""
        seen = None
        for _ in range(ATTEMPTS):
            names, _ = in_replay_order(self._folder, self._queue, as_program=False)
            files = [(name, identity(self._folder / name)) for name in names]
            if files == seen:
                return files
            seen = files
        return []

    def _follow_on(self, name: str, identity: tuple[int, int] | None) -> Journal | None:
        """Open *name*, unless it has become the name of another file than the one of that *identity*."""
        with suppress(NotFound):
            journal = Journal(self._folder / name, self._rules, growing=True)
            if journal.source.identity() == identity:
                return journal
            journal.source.close()
        return None
