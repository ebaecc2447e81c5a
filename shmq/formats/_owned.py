"""
A foreign queue that is ours alone for a while: what each call on one has in common.

One call at a time, of one thread, in the process that opened it; and whatever ends a call in the middle, the next one
begins with what is in the files.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from shmq.errors import Closed, Forked

if TYPE_CHECKING:
    from collections.abc import Iterator


class Owned:
    """What is opened in place: read its files, work on them, give them back."""

    def __init__(self, what: str) -> None:
        """*what* is how errors call it."""
        self._what = what
        self._pid = os.getpid()
        self._one_at_a_time = threading.Lock()
        self._fresh = False
        """Whether what is in memory is what is in the files."""
        self._closed = False

    def _load(self) -> None:
        """Read what the files say, in the place of what was read before."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            msg = f"{self._what} was opened in process {self._pid}: whoever was forked opens it anew"
            raise Forked(msg)
        with self._one_at_a_time:
            if self._closed:
                msg = f"{self._what} is closed"
                raise Closed(msg)
            try:
                if not self._fresh:
                    self._load()
                self._fresh = False
                yield
            except OSError as error:
                if error.errno is not None and error.filename is None:
                    error.filename = self._what
                raise
            self._fresh = True


def write_whole(fd: int, data: bytes, position: int) -> None:
    """Write all of *data* there, or raise OSError: of a disk that is full, a part may be written."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, position)
        view, position = view[done:], position + done


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Force the names in a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
