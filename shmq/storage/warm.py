"""
Mappings that a process keeps when it has left a chunk, for when the same file comes back as another chunk.

A queue whose consumers keep up lives in a few files that go round. Having the pages of a file mapped anew costs more
than copying into them, so a mapping that nobody uses any more waits here for a while. While it waits it holds no lock:
the file may be zeroed, and its next life begins with a new lock. A process that forks keeps nothing, for a child
shares the locks and may still look.
"""

from __future__ import annotations

import contextlib
import os
import sys

from shmq import _native, locks
from shmq.storage import spares

IDLE = 8
"""Mappings that may wait here."""
IDLE_BYTES = 128 << 20
"""What they may have together. They cost address space: the files are there anyway."""
KNOWN = 64
"""Mappings that are watched at most."""
_ALONE = 2
"""References to a mapping that only its entry holds, as sys.getrefcount counts them."""


class _Entry:
    """A mapping, as `map_held` makes it: beside it lives what carries its lock."""

    __slots__ = ("idle", "keeps", "key", "map", "queue")

    def __init__(self, key: tuple[int, int, bool], memory: _native.FileMap, queue: bytes) -> None:
        self.key = key
        self.map = memory
        self.queue = queue
        self.idle = False
        self.keeps: bool | None = None
        """Whether mappings of its file keep locks: its file system is mounted as long as it is mapped."""

    def lock(self, fd: int, *, locked: bool) -> bool:
        if not (locked or spares.lock_as_mapper(fd)):
            return False
        if self.keeps is None:
            self.keeps = _native.keeps_locks(fd)
        self.map.keep(_native.holder(fd, keeps=self.keeps))
        return True

    def unlock(self) -> None:
        self.map.keep(None)


_entries: list[_Entry] = []
"""What is mapped by this process, in the order in which it fell idle; what is in use stands anywhere."""
_lock = locks.Lock()


def take(key: tuple[int, int, bool], fd: int, *, locked: bool = False) -> _native.FileMap | None:
    """
    A waiting mapping of that (device, inode, writable), locked as every mapping is; None when there is none.

    *fd*: an opening of that file which carries no lock yet, or is *locked* as a mapping is.

    One that has just been left, and is locked still, is as good: who comes to one chunk again and again maps it once.
    """
    with _lock:
        for entry in _entries:
            if entry.key == key and (
                entry.lock(fd, locked=locked) if entry.idle else sys.getrefcount(entry.map) == _ALONE
            ):
                entry.idle = False
                return entry.map
    return None


def idle(queue: bytes) -> dict[tuple[int, int, bool], _native.FileMap]:
    """
    What waits here of that *queue*, mapped for writing, by (device, inode, True): what was used last comes first.

    It is not locked: for whoever holds its file alone otherwise.
    """
    with _lock:
        return {
            entry.key: entry.map for entry in reversed(_entries) if entry.idle and entry.key[2] and entry.queue == queue
        }


def keep(key: tuple[int, int, bool], memory: _native.FileMap, queue: bytes) -> None:
    """Note a new mapping of that *queue*, for when it falls idle."""
    if len(memory) <= IDLE_BYTES:
        with _lock:
            if len(_entries) < KNOWN:
                _entries.append(_Entry(key, memory, queue))


def settle() -> None:
    """Unlock what fell idle; let go of the oldest of it. A file that is unlinked gives its space back all the same."""
    with _lock:
        fallen = [entry for entry in _entries if not entry.idle and sys.getrefcount(entry.map) == _ALONE]
        for entry in fallen:
            if _without(entry):
                entry.unlock()
                entry.idle = True
                _entries.append(entry)
        if fallen:
            _let_go_of_the_oldest()


def _let_go_of_the_oldest() -> None:
    idle = [entry for entry in _entries if entry.idle]
    size = sum(len(entry.map) for entry in idle)
    for number, entry in enumerate(idle):
        if len(idle) - number <= IDLE and size <= IDLE_BYTES:
            break
        size -= len(entry.map)
        _without(entry)


def _without(entry: _Entry) -> bool:
    """Take it away; False when a signal's handler has forked, and with that it was forgotten."""
    with contextlib.suppress(ValueError):
        _entries.remove(entry)
        return True
    return False


def forget(queue: bytes) -> None:
    """
    Keep nothing of that queue, which this process leaves.

    What is in use stays mapped and locked until its last view is gone, as if this module were not.
    """
    with _lock:
        _entries[:] = [entry for entry in _entries if entry.queue != queue]


def _before_fork() -> None:
    # Parent and child share the locks, and neither may give back what the other still looks at.
    _lock.acquire()
    _entries.clear()


def _after_fork() -> None:
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
