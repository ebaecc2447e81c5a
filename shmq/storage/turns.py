"""
Whose turn it is to make the next chunk, where many producers come to the end of one at once.

Each may make it, and the first link wins (shmq/storage/chain.py). But a new file of some MiB takes a millisecond, and
what the others have made by then goes away again. So one of them makes it, and the rest wait a moment for it: by a lock
on the folder that ends with its holder, and never for longer than that takes, for its holder may be stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import time

from shmq.hints import TYPE_CHECKING
from shmq.storage import files

if TYPE_CHECKING:
    from shmq import _native

_PATIENCE = 0.1
"""Seconds that a new file takes at most where many processes share a processor."""
_AGAIN = 1.0
"""Seconds in which nobody is waited for after a wait in vain: whoever has its turn is stopped."""
_PAUSE = 0.0001
"""Seconds between two looks for what another one is making."""

_vain_until = 0.0


class Turn:
    """A context manager: whether the file is still to be made, by whoever entered it."""

    def __init__(self, folder: _native.Fd, name: str) -> None:
        """*folder*: where it is to be *name*; an opening of this process's own."""
        self._folder = folder
        self._name = name

    def __enter__(self) -> bool:
        """True when nobody has made it, and nobody is about to, or not for so long that it may be for ever."""
        try:
            return self._is_mine() and not files.is_there(self._folder, self._name)
        except BaseException:  # of a signal's handler, too
            self._free()
            raise

    def __exit__(self, *_: object) -> None:
        """The next one may look whether it is there."""
        self._free()

    def _is_mine(self) -> bool:
        """Whether it is nobody else's, before the file is there."""
        global _vain_until  # noqa: PLW0603  # of this process
        now = time.monotonic()
        until = now + _PATIENCE if now >= _vain_until else 0.0
        while not self._take():
            if files.is_there(self._folder, self._name):
                return False
            now = time.monotonic()
            if now >= until:
                _vain_until = max(_vain_until, now + _AGAIN) if until else _vain_until
                return True
            time.sleep(_PAUSE)
        return True

    def _take(self) -> bool:
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without such locks: each for itself
        return True

    def _free(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._folder, fcntl.LOCK_UN)
