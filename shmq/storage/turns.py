"""
Whose turn it is to make the next chunk, where many producers come to the end of one at once.

Each may make it, and the first link wins (shmq/storage/chain.py). But a new file of some MiB takes a millisecond, and
what the others have made by then goes away again. So one of them makes it, and the rest wait a moment for it: by a lock
on the folder that ends with its holder, and never for longer than that takes, for its holder may be stopped.

The lock is that of an opening of its own, an object of C: it is let go of by closing that, without a line of Python.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time

from shmq import _native
from shmq.storage import files

_PATIENCE = 0.1
"""Seconds that a new file takes at most where many processes share a processor."""
_AGAIN = 1.0
"""Seconds in which nobody is waited for after a wait in vain: whoever has its turn is stopped."""
_PAUSE = 0.0001
"""Seconds between two looks for what another one is making."""

_vain_until = 0.0
_opened: dict[int, list[_native.Fd]] = {}
"""What each thread has opened: one, and more where a signal's handler puts in the middle of somebody's turn."""


def opened(folder: _native.Fd) -> _native.Fd:
    """An opening of that folder for `is_mine`; whoever closes it gives the turn back."""
    fd = _native.Fd.of(os.open, ".", files.DIRECTORY_FLAGS, dir_fd=folder)
    thread = threading.get_ident()
    _opened[thread] = [each for each in _opened.get(thread, ()) if each.fileno() >= 0] + [fd]
    return fd


def is_mine(turn: _native.Fd, name: str, deadline_ns: int = _native.FOREVER) -> bool:
    """
    Whether whoever has opened the folder as *turn* is to make the file *name* there.

    False when it is there. True when nobody is about to make it, or not for so long that it may be for ever. A signal's
    handler does not wait: whoever it has interrupted may have the turn, and goes on behind it. Nor does anybody beyond
    *deadline_ns*, when the put must be done.
    """
    global _vain_until  # noqa: PLW0603  # of this process
    now = time.monotonic()
    nested = len(_opened.get(threading.get_ident(), ())) > 1
    patience = now + _PATIENCE if now >= _vain_until and not nested else 0.0
    until = patience if deadline_ns < 0 else min(patience, deadline_ns / 1e9)
    while not _taken(turn):
        if files.is_there(turn, name):
            return False
        now = time.monotonic()
        if now >= until:
            _vain_until = max(_vain_until, now + _AGAIN) if 0.0 < patience <= now else _vain_until
            break
        time.sleep(_PAUSE)
    return not files.is_there(turn, name)


def _taken(turn: _native.Fd) -> bool:
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without such locks: each for itself
    return True


def _close_in_child() -> None:
    for fd in [each for some in _opened.values() for each in some]:
        fd.close()
    _opened.clear()


os.register_at_fork(after_in_child=_close_in_child)
