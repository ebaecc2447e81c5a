"""Chunks that a process keeps mapped for random access: the ones used last, and none that was retired."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shmq import locks

if TYPE_CHECKING:
    from shmq._native import Chunk

LIMIT = min(max(os.sysconf("SC_OPEN_MAX") // 4, 128), 4096)
"""Mappings at most. Each also holds a descriptor: a quarter of what the process may have."""


class Mapped:
    """By sequence. Safe to share between threads: whoever got a chunk keeps it mapped himself."""

    def __init__(self) -> None:
        """Empty."""
        self._chunks: dict[int, Chunk] = {}
        self._lock = locks.Lock()
        self.get = self._chunks.get
        """get(sequence): the chunk, or None. Plain, for those who ask a million times a second."""

    def keep(self, chunk: Chunk) -> None:
        """Keep one; the one unused for longest goes when there are too many."""
        with self._lock:
            self._chunks[chunk.sequence] = chunk
            while len(self._chunks) > LIMIT:
                del self._chunks[next(iter(self._chunks))]

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
                del self._chunks[known]

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._chunks.clear()
