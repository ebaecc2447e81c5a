"""
A queue from its newest message to its oldest, in memory that stays flat.

A file can be read forward only. So it is cut into stretches of some tens of KiB, by the messages that its index knows
or, where it has no index, by one walk over its words; each stretch is read forward and turned round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.chronicle.store import MAX_PAYLOAD, Store, Why
from shmq.formats.chronicle.walk import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.formats.chronicle.folder import Folder
    from shmq.formats.model import Entry

_STRETCH = _files.WINDOW
"""Bytes of a stretch, about: what is read at once."""

_CUTS = 1024
"""Stretches that a file or a part of it is cut into at a time."""

_OPEN = 1 << 63
"""More than any sequence: to the end of the file."""

Mark = tuple[int, int]
"""(sequence, position) of a message."""


class Backward(Listener):
    """The messages of a queue, newest first, from a place (cycle, sequence) on."""

    def __init__(
        self,
        folder: Folder,
        start: tuple[int, int],
        *,
        strict: bool = False,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        """Begin at *start*, or at what comes next on the way down."""
        super().__init__(folder, strict=strict)
        self._start = start
        self._max_payload = max_payload
        self._store: Store | None = None

    def lists(self) -> Iterator[list[Entry]]:
        """Deliver the messages in lists, the newest first in each and in all."""
        self.begins()
        for cycle, name in reversed(self.folder.listing()):
            if cycle > self._start[0]:
                continue
            self.close()
            self._store = self.folder.store(cycle, name, max_payload=self._max_payload, report=self.hear)
            top = self._start[1] if cycle == self._start[0] else None
            if self._store.ready() is not None:
                yield from _turned(self._store, top)

    def close(self) -> None:
        """Close the open file."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _turned(store: Store, top: int | None) -> Iterator[list[Entry]]:
    """Deliver the messages of one file in lists, newest first, from sequence *top* on (None: from its end)."""
    last = (1 << store.roll.shift) - 1
    end = _OPEN if top is None else top + 1
    stop: Mark | None = None
    for low in store.marks(last if top is None else top, apart=_STRETCH):
        # What lies before a known message must lead up to it.
        behind = (end, store.source.size()) if stop is None else stop
        for begin, before in _stretches(store, low, behind):
            found = _forward(store, begin, before, sure=stop is not None or before != end)
            if found:
                found.reverse()
                yield found
        stop = low


def _stretches(store: Store, low: Mark, stop: Mark) -> Iterator[tuple[Mark, int]]:
    """
    Deliver (first message, sequence to end before) of what lies between *low* and *stop*, the last stretch first.

    What no index cuts is cut by a walk over it, into so many parts at a time that few marks need be kept.
    """
    nbytes = stop[1] - low[1]
    if nbytes <= 2 * _STRETCH:
        yield low, stop[0]
        return
    step = max(_STRETCH, nbytes // _CUTS)
    cuts = [low]
    store.sequence, store.position = low
    while store.walk(stop[0], store.position + step) and store.sequence < stop[0]:
        cuts.append((store.sequence, store.position))
    cuts.append((stop[0], store.position))
    for begin, end in zip(reversed(cuts[:-1]), reversed(cuts[1:]), strict=True):
        if step > _STRETCH:
            yield from _stretches(store, begin, end)
        else:
            yield begin, end[0]


def _forward(store: Store, begin: Mark, end: int, *, sure: bool) -> list[Entry]:
    """Return the messages from *begin* to before the sequence *end*; *sure* if all of them must be there."""
    store.sequence, store.position = begin
    found: list[Entry] = []
    wanted = end - begin[0]
    for entries in store.lists():
        found += entries
        if len(found) >= wanted:
            break
    if len(found) < wanted and sure and store.end is not None and store.end.why is not Why.TORN:
        store.problem(store.end.at, f"message {store.sequence} should be here, and is not")
    del found[wanted:]
    return found
