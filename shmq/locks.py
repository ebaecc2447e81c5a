"""
Locks between threads that a forked child finds open, whoever held them in the parent.

Not the queue's locks: those are the kernel's, on bytes of files, and the core's business.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

_all: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A reentrant lock. Another thread may have held it when this process was forked; here, that thread is gone."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        """Open."""
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Open, whoever held it."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Take it; wait for whoever holds it."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Let go."""
        with contextlib.suppress(RuntimeError):  # held across a fork: the child's is new
            self._lock.release()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
