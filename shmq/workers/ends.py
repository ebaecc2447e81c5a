"""
The starters' ends of the pipes to their workers: a process that is forked meanwhile must not keep one.

It would hold the pipe open when the starter is gone, and the worker would never hear of that.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

gate = threading.RLock()
"""Held while a worker is started, and across every fork: no fork sees an end that is not in `_all` yet."""


class _End(Protocol):
    def let_go(self) -> None: ...


_all: weakref.WeakSet[_End] = weakref.WeakSet()


def keep(end: _End) -> None:
    """Have its `let_go` called in every process that is forked from now on."""
    _all.add(end)


def _in_child() -> None:
    with contextlib.suppress(RuntimeError):  # the handler of a signal kept the fork from taking it
        gate.release()
    for each in list(_all):
        each.let_go()


# In the parent by one step of the interpreter, for a signal's handler that raised before it would leave the gate shut.
os.register_at_fork(before=gate.acquire, after_in_parent=gate.release, after_in_child=_in_child)
