"""
A page that all have mapped, and look at before each task: whether there is news in a queue that is mostly empty.

Each slot holds a stamp that nobody has written before. Whoever puts into such a queue changes its stamp afterwards;
whoever sees another one than before reads the queue to its end. A stamp is written by one store.
"""

from __future__ import annotations

import mmap
import os

CANCELS, HIGH, PURGED = range(3)
"""News in those two queues; and that what was cancelled before is no task's any more."""
_BYTES = 4096


class Page:
    """The stamps of one directory."""

    def __init__(self, fd: int) -> None:
        """*fd*: its file, which stays the caller's."""
        if os.fstat(fd).st_size < _BYTES:
            os.posix_fallocate(fd, 0, _BYTES)  # a full disk says so here, and not when the page is touched
        self._memory = mmap.mmap(fd, _BYTES)
        self.stamps = memoryview(self._memory).cast("Q")

    def change(self, slot: int) -> None:
        """There is news."""
        self.stamps[slot] = int.from_bytes(os.urandom(8), "little")

    def close(self) -> None:
        """Let go of it."""
        self.stamps.release()
        self._memory.close()
