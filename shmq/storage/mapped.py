"""
Chunks that a process keeps mapped for random access: the ones used last, and none that was retired.

A process may have only so many mappings (65,530, unless the machine says otherwise), so all its queues have one budget.
A queue that wants one more when it is used up takes it from the one that keeps most.
"""

from __future__ import annotations

import weakref

from shmq import _native, locks
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from shmq._native import Chunk

LIMIT = 4096
"""Mappings of a process at most."""

_LAST = (1 << 64) - 1


_all: weakref.WeakSet[Mapped] = weakref.WeakSet()
_lock = locks.Lock()
_crowded = False
"""Whether some have to go when one more is kept."""


class Mapped:
    """By sequence. Safe to share between threads: whoever got a chunk keeps it mapped itself."""

    def __init__(self) -> None:
        """Empty."""
        self._chunks: dict[int, Chunk] = {}
        self.get = self._chunks.get
        """get(sequence): the chunk, or None. Plain, for those who ask often."""
        self.shelf = _native.Shelf()
        """Those of them that the built-in for q[i] knows; never one that is not kept."""
        self._first = 0
        """What lies below it was let go of, or is kept by whoever is about to find that it was retired."""
        with _lock:
            _all.add(self)

    def show(self, chunk: Chunk, end: int | None) -> None:
        """Have the built-in find what is in a chunk that is kept, before the index *end*; None while it is the last."""
        with _lock:
            if self._chunks.get(chunk.sequence) is chunk:
                last = _LAST if end is None else end
                self.shelf.put(chunk.base, last, chunk.sequence, chunk.address, chunk)

    def keep(self, chunk: Chunk) -> None:
        """Keep one; when there are too many, one goes of the queue that keeps most: the one unused for longest."""
        global _crowded  # noqa: PLW0603
        with _lock:
            self.shelf.drop(chunk.sequence, chunk.sequence)
            self._chunks[chunk.sequence] = chunk
            count = sum(map(len, _all))
            _crowded = count >= LIMIT
            for _ in range(count - LIMIT):
                max(_all, key=len).drop_oldest()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._chunks)

    def drop_oldest(self) -> None:
        """Let go of the one unused for longest."""
        self._drop(next(iter(self._chunks)))

    def _drop(self, sequence: int) -> None:
        self.shelf.drop(sequence, sequence)
        self._chunks.pop(sequence, None)  # what a finalizer does may have come first

    def use(self, chunk: Chunk) -> None:
        """It is the one used last, now. Only worth a call when some have to go."""
        if _crowded:
            with _lock:
                if self._chunks.pop(chunk.sequence, None) is not None:
                    self._chunks[chunk.sequence] = chunk

    def forget_below(self, sequence: int) -> None:
        """Let go of what was retired, so that its space can be used again."""
        if sequence == self._first or not self._chunks:
            return
        with _lock:
            self._first = sequence
            for known in [known for known in self._chunks if known < sequence]:
                self._drop(known)

    def clear(self) -> None:
        """Let go of all."""
        with _lock:
            self.shelf.drop(0, _LAST)
            self._chunks.clear()
