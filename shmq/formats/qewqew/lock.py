"""
The lock of a queue: on all of its header file, as the real program holds it as long as a queue is open.

That one locks a range of the file (fcntl), for its process. So is this one, but for one open file: it is in the way of
the program and of any other process, of another `held` in this one, too, and is not lost when the file is closed
elsewhere in the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from shmq.errors import Busy
from shmq.formats import _locks

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

_LOCK = struct.Struct("hhqqi4x")
"""The kernel's `struct flock`: type, whence, start, length, pid."""


@contextlib.contextmanager
def held(header: Path, what: str, mode: int = 0o600) -> Iterator[int]:
    """
    Hold the lock of *header*, which is made if it is not there; the file, open. *what* says what that is for.

    Raises:
        Busy: somebody has the queue open.
    """
    file, pid = _take(header, what, mode), os.getpid()
    try:
        yield file.fileno()
    finally:
        # A child that was forked meanwhile has the open file, too: it neither goes on holding this, nor gives it back.
        if os.getpid() == pid:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        file.close()


def _take(header: Path, what: str, mode: int) -> io.FileIO:
    while True:
        file = _locks.lock_file(header, mode)
        fd = file.fileno()
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), header.stat()):
                    return file
        except OSError as error:
            who = _holder(fd)
            file.close()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            msg = f"cannot {what}: {who} has it open (the lock of {header} is held); nothing was changed"
            raise Busy(msg) from error
        file.close()  # its holder has deleted it since it was opened, as the program does with an empty queue


def _holder(fd: int) -> str:
    """Say who holds the lock, as far as the kernel tells: it does of other programs, in sight."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    return f"process {pid}" if kind != fcntl.F_UNLCK and pid > 0 else "somebody"
