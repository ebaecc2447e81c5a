"""
Waiting for a directory to change: inotify, which the standard library does not have, and a bounded nap without it.

This is only ever a hint. A write through a shared mapping raises no event, a network file system raises none for
other machines, and a machine may be out of watches; so every wait ends after a short while and the caller looks.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_EVENTS = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE

_NAP = 0.02
"""Seconds between looks when there is no inotify."""


class Watch:
    """Directories to watch, and a wait that ends when one of them changes or the time is up."""

    def __init__(self) -> None:
        """Start without a directory. Never fails: without inotify, `wait` naps."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        if hasattr(self._libc, "inotify_init1"):
            self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watched: set[Path] = set()
        self._blind = self._fd < 0

    def add(self, directory: Path) -> None:
        """Watch *directory* from now on; again is free."""
        if directory in self._watched or self._fd < 0:
            return
        if self._libc.inotify_add_watch(self._fd, os.fsencode(directory), _EVENTS) < 0:
            self._blind = True  # out of watches, or it has just gone: look often instead
            return
        self._watched.add(directory)

    def wait(self, seconds: float) -> bool:
        """Wait at most *seconds*; True when something may have changed."""
        if self._blind:
            time.sleep(min(seconds, _NAP))
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return False
        self._drain()
        return True

    def _drain(self) -> None:
        # What changed is not asked: the caller looks at everything it follows anyway.
        try:
            while os.read(self._fd, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Stop watching; again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._blind = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
