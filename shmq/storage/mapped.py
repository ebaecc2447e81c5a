"""Chunks that a process keeps mapped for random access: the ones used last, and none that was retired."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shmq import _native, locks

if TYPE_CHECKING:
    from shmq._native import Chunk

LIMIT = min(max(os.sysconf("SC_OPEN_MAX") // 4, 128), 4096)
"""Mappings at most. Each also holds a descriptor: a quarter of what the process may have."""

_LAST = (1 << 64) - 1


class Mapped:
    """By sequence. Safe to share between threads: whoever got a chunk keeps it mapped himself."""

    def __init__(self) -> None:
        """Empty."""
        self._chunks: dict[int, Chunk] = {}
        self._lock = locks.Lock()
        self.get = self._chunks.get
        """get(sequence): the chunk, or None. Plain, for those who ask often."""
        self.shelf = _native.Shelf()
        """Those of them that the built-in for q[i] knows; never one that is not kept."""

    def show(self, chunk: Chunk, end: int | None) -> None:
        """Have the built-in find what is in a chunk that is kept, before the index *end*; None while it is the last."""
        with self._lock:
            if self._chunks.get(chunk.sequence) is chunk:
                last = _LAST if end is None else end
                self.shelf.put(chunk.base, last, chunk.sequence, chunk.address, chunk)

    def keep(self, chunk: Chunk) -> None:
        """Keep one; the one unused for longest goes when there are too many."""
        with self._lock:
            self.shelf.drop(chunk.sequence, chunk.sequence)
            self._chunks[chunk.sequence] = chunk
            while len(self._chunks) > LIMIT:
                self._drop(next(iter(self._chunks)))

    def _drop(self, sequence: int) -> None:
        self.shelf.drop(sequence, sequence)
        self._chunks.pop(sequence, None)  # what a finalizer does may have come first

    def use(self, chunk: Chunk) -> None:
        """It is the one used last, now. Only worth a call when some have to go."""
        if len(self._chunks) >= LIMIT:
            with self._lock:
                if self._chunks.pop(chunk.sequence, None) is not None:
                    self._chunks[chunk.sequence] = chunk

    def forget_below(self, sequence: int) -> None:
        """Let go of what was retired, so that its space can be used again."""
        with self._lock:
            for known in [known for known in self._chunks if known < sequence]:
                self._drop(known)

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self.shelf.drop(0, _LAST)
            self._chunks.clear()
