"""
Locks between threads that a forked child finds open, whoever held them in the parent.

Not the queue's locks: those are the kernel's, on bytes of files, and the core's business.
"""

from __future__ import annotations

import os
import weakref

from shmq import _native

_all: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock(_native.Mutex):
    """A reentrant lock. Another thread may have held it when this process was forked; here, that thread is gone."""

    def __init__(self) -> None:
        """Open."""
        _all.add(self)


def _renew_all() -> None:
    for lock in list(_all):
        lock._renew()  # noqa: SLF001  # ours


os.register_at_fork(after_in_child=_renew_all)
