"""Messages as they were read, made into batches that one claim can take."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats.model import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shmq.formats.model import Entry

_BATCH, _BATCH_BYTES = 4096, 8 << 20
_FEW = 1024
"""A batch of fewer messages is not worth the claim, if there are more."""


def _joined(batch: Sequence[Entry], more: Sequence[Entry]) -> Sequence[Entry]:
    """Return both, as a run where they are one."""
    if not (batch and more):
        return batch or more
    if isinstance(batch, Run) and isinstance(more, Run) and batch.is_followed_by(more):
        return Run(batch.payloads + more.payloads, batch.first, batch.extra)
    return [*batch, *more]


class Batches:
    """Lists of entries as they were read, in batches of neither few nor many."""

    def __init__(self, lists: Iterable[Sequence[Entry]]) -> None:
        """Nothing is read yet."""
        self.damage: Corrupt | None = None
        """What ended the reading; it is raised once all before it was given out."""
        self._lists = iter(lists)
        self._rest: Sequence[Entry] = []

    def back(self, batch: Sequence[Entry]) -> None:
        """Take back a batch, or the end of one: it comes next."""
        self._rest = _joined(batch, self._rest)

    def some(self, most: int | None = None) -> Iterator[Sequence[Entry]]:
        """Batches of the next *most* entries in all, or of all that are left."""
        left = sys.maxsize if most is None else most
        while left > 0:
            batch = self._next(min(left, _BATCH))
            if not batch:
                return
            left -= len(batch)
            yield batch

    def _next(self, most: int) -> Sequence[Entry]:
        """Between 1 and *most* of them, none at the end: what was read at once, and more if that was little."""
        batch, self._rest = self._rest, []
        size = 0
        while len(batch) < _FEW and size < _BATCH_BYTES:
            found = self._read()
            if found is None:
                break
            if len(found) == 1:  # only alone may one be larger than the window it was read through
                size += len(found[0][0])
            batch = _joined(batch, found)
        if not batch and self.damage is not None:
            raise self.damage
        if len(batch) > most:
            batch, self._rest = batch[:most], batch[most:]
        return batch

    def _read(self) -> Sequence[Entry] | None:
        """What is read next; None at the end, and at damage."""
        try:
            return next(self._lists, None)
        except Corrupt as problem:
            self.damage = problem
            return None
