"""
Locks between threads that a forked child finds open, whoever held them in the parent.

Not the queue's locks: those are the kernel's, on bytes of files, and the core's business.
"""

from __future__ import annotations

import _thread
import os
import weakref

_all: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock(_thread.RLock):  # type: ignore[misc]  # final for type checkers alone
    """
    A reentrant lock. Another thread may have held it when this process was forked; here, that thread is gone.

    Taking it is one step of the interpreter, without a line of Python: what a signal's handler raises finds it taken by
    a `with` that will let go, or not taken.
    """

    def __init__(self) -> None:
        """Open."""
        _all.add(self)


def _renew_all() -> None:
    for lock in list(_all):
        # What `threading` uses for the same. The thread that forked goes on, and lets go of its locks itself.
        if not lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001


os.register_at_fork(after_in_child=_renew_all)
