"""One or many sej directories as one stream, merged by time: all that `read` and `follow` need to know."""

from __future__ import annotations

import heapq
from operator import attrgetter
from typing import TYPE_CHECKING

from shmq.errors import ShmqError
from shmq.formats import _files
from shmq.formats.sej.journal import Journal
from shmq.formats.sej.names import directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shmq.formats.model import Entry, Problem

_MOST_MERGED = 256
"""Directories read side by side; more than these are read one after another, to stay within open files."""


class Root:
    """One or many sej directories as one tail; many are merged by time, each keeping its own order."""

    tick = 1.0

    def __init__(
        self,
        root: Path,
        queue: str | None,
        labels: list[str],
        start: int,
        *,
        growing: bool,
        as_program: bool,
        strict: bool,
        max_payload: int,
        fixed: bool,
        tell: Callable[[Problem], object] | None = None,
    ) -> None:
        self._root = root
        self._queue = queue
        self._fixed = fixed or labels == [""]
        self._labelled = labels != [""]
        self._start = start
        self._options = {"growing": growing, "as_program": as_program, "strict": strict}
        self._max_payload = max_payload
        self._tell = tell
        self._journals: dict[str, Journal] = {}
        self._add(labels)

    def _add(self, labels: list[str]) -> None:
        for label in labels:
            if label not in self._journals:
                self._journals[label] = Journal(
                    self._root,
                    label,
                    self._start,
                    labelled=self._labelled,
                    max_payload=self._max_payload,
                    tell=self._tell,
                    **self._options,
                )

    def directories(self) -> list[Path]:
        """Return what to watch: each directory's journal, and the root, where new shards appear."""
        if not self._fixed:
            self._add(directories(self._root, self._queue))
        found = [self._root / label / "jnl" for label in self._journals]
        return found if self._fixed else [self._root, *found]

    def available(self) -> Iterator[Entry]:
        """Deliver what is there in all directories."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists."""
        journals = list(self._journals.values())
        if len(journals) == 1:
            yield from journals[0].lists()
        elif len(journals) <= _MOST_MERGED:
            merged = heapq.merge(*(journal.available() for journal in journals), key=attrgetter("time_ns"))
            # What is followed does not wait until a list is full.
            yield from _gathered(merged, 1 if self._options["growing"] else _files.LIST)
        else:
            for journal in journals:
                yield from journal.lists()
                if not self._options["growing"]:
                    journal.close()

    def close(self) -> None:
        """Close every open segment."""
        for journal in self._journals.values():
            journal.close()


def _gathered(entries: Iterable[Entry], many: int) -> Iterator[list[Entry]]:
    """Deliver entries in lists of *many*; what came before an error is delivered before it."""
    found: list[Entry] = []
    try:
        for entry in entries:
            found.append(entry)
            if len(found) >= many:
                yield found
                found = []
    except ShmqError:
        if found:
            yield found
        raise
    if found:
        yield found
