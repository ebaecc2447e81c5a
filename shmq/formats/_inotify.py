"""
Waiting for a directory to change: inotify, which the standard library does not have, and a bounded nap without it.

This is only ever a hint. A write through a shared mapping raises no event, a network file system raises none for
other machines, and a machine may be out of watches; so every wait ends after a short while and the caller looks.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_EVENTS = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE

CREATED, DELETED, MOVED_FROM, MOVED_TO = _CREATE, _DELETE, _MOVED_FROM, _MOVED_TO
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_HEAD = struct.Struct("iIII")
"""The kernel's `struct inotify_event`: watch, mask, cookie, length of the name behind it."""

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


class Told(NamedTuple):
    """One thing that happened to a name."""

    what: int
    """CREATED, DELETED, MOVED_FROM or MOVED_TO."""
    name: str
    cookie: int
    """The same for both names of one renaming."""


class Names:
    """
    What the names of a directory go through, in order, also while nobody listens: the kernel keeps up to 16,384 of it.

    Here it is no hint: either nothing is missing, or `deaf` says why that is not known.
    """

    def __init__(self, directory: Path) -> None:
        """Listen from now on. Never fails: `deaf` tells."""
        self.deaf = ""
        """Why it is not known what has happened, if it is not."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(libc, "inotify_init1") else -1
        wanted = CREATED | DELETED | MOVED_FROM | MOVED_TO
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(directory), wanted) < 0:
            self.deaf = f"inotify does not tell ({os.strerror(ctypes.get_errno())})"

    def new(self) -> list[Told]:
        """Return what has happened since the last time; one system call when that is nothing."""
        found: list[Told] = []
        with suppress(BlockingIOError):
            while not self.deaf:
                self._take(os.read(self._fd, 1 << 16), found)
        return found

    def _take(self, data: bytes, found: list[Told]) -> None:
        at = 0
        while at < len(data):
            _, mask, cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            if mask & (_OVERFLOW | _IGNORED):
                self.deaf = "more happened than the kernel keeps" if mask & _OVERFLOW else "the folder is gone"
                return
            found.append(Told(mask & 0xFFF, os.fsdecode(data[at - length : at].rstrip(b"\0")), cookie))

    def close(self) -> None:
        """Listen no more; again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.deaf = "it is closed"
