"""
A file of a queue that is mapped and written to while other programs do the same.

Whoever stores into a hole of a mapped file on a disk without room is killed by the kernel (SIGBUS). So every store is
into blocks that were asked for before, which answers with an error that can be told.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Busy, Corrupt, DiskFull, NotFound
from shmq.foreign import SharedWords
from shmq.formats.chronicle.words import LONG, WORD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
_WHOLE = (0, (1 << 63) - 1)
"""What Java locks while a file grows: (first byte, length)."""

_UNIT = 1 << 14
"""Bytes of the disk that are asked for at once."""

_MOST_UNITS = 1 << 12
_LOCK_SECONDS = 10.0
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_SUCH_CALL = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Mapped:
    """One file, mapped whole; it only ever grows."""

    def __init__(self, path: Path) -> None:
        """
        Open and map what is at *path*.

        Raises:
            NotFound: nothing is.
            BadFormat: it is no regular file.
        """
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError as error:
            msg = f"cannot open {path}: there is no such file"
            raise NotFound(msg) from error
        self._memory: mmap.mmap | None = None
        self._words: SharedWords | None = None
        self._reserved: set[int] = set()
        self.size = 0
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                msg = f"cannot append to {path}: it is not a regular file"
                raise BadFormat(msg)
            self.remap()
        except BaseException:
            self.close()
            raise

    def identity(self) -> tuple[int, int]:
        """What stays the same when the file is renamed."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def refuse_gone(self) -> None:
        """
        See that the file is still the one that others open by its name, and as long as it was.

        Raises:
            NotFound: it was removed, or another one was put in its place.
            Corrupt: it was cut.
        """
        found = os.fstat(self._fd)
        if found.st_nlink == 0:
            msg = (
                f"cannot append to {self.path}: the file that was opened is not there any more; nothing was written, "
                "and a new appender opens what is there now"
            )
            raise NotFound(msg)
        if found.st_size < self.size:
            msg = f"{self.path} became shorter than the {self.size} bytes that were mapped; nothing was written"
            raise Corrupt(msg)

    # ------------------------------------------------------------ how long it is
    def remap(self) -> None:
        """Map the file as long as it is now."""
        size = os.fstat(self._fd).st_size
        if size == self.size:
            return
        if size < self.size:
            msg = f"{self.path} became shorter than the {self.size} bytes that were mapped; nothing was written"
            raise Corrupt(msg)
        self._unmap()
        self._memory = mmap.mmap(self._fd, size)
        self._words = SharedWords(self._memory)
        self.size = size

    def grow(self, size: int) -> None:
        """Have the file *size* bytes long, or longer, as Java does it: while the whole of it is locked."""
        if self.size >= size:
            return
        with self.locked(*_WHOLE):
            if os.fstat(self._fd).st_size < size:
                try:
                    os.ftruncate(self._fd, size)
                except OSError as error:
                    raise no_room(self.path, error, f"{size} bytes long") from error
        self.remap()

    @contextmanager
    def locked(self, first: int, length: int) -> Iterator[None]:
        """
        Hold the file's bytes from *first* on locked against whoever locks them too.

        Through an opening of its own: such a lock, unlike the one Java takes, is not lost when another part of this
        process closes the file; and each of the two keeps out the other.
        """
        fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            wait = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, length, 0)
            pause = 0.0005
            while True:
                try:
                    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wait)
                    break
                except OSError as error:
                    if error.errno not in {errno.EAGAIN, errno.EACCES}:
                        raise
                if time.monotonic() > deadline:
                    msg = (
                        f"cannot change {self.path}: another process has had it locked for {_LOCK_SECONDS:.0f} s "
                        "(fcntl); nothing was changed"
                    )
                    raise Busy(msg)
                time.sleep(pause)
                pause = min(0.05, pause * 2)
            yield
        finally:
            os.close(fd)

    def reserve(self, start: int, stop: int) -> None:
        """
        Have blocks of the disk for the bytes from *start* to *stop*.

        Raises:
            DiskFull: there are none.
        """
        first, last = start // _UNIT, (stop - 1) // _UNIT
        while first <= last and last in self._reserved:
            last -= 1
        while first <= last and first in self._reserved:
            first += 1
        if first > last:
            return
        at = first * _UNIT
        try:
            os.posix_fallocate(self._fd, at, min((last + 1) * _UNIT, self.size) - at)
        except OSError as error:
            if error.errno not in _NO_SUCH_CALL:
                raise no_room(self.path, error, f"hold {stop - start} bytes more at {start}") from error
        if len(self._reserved) > _MOST_UNITS:
            self._reserved.clear()
        self._reserved.update(range(first, last + 1))

    # ------------------------------------------------------------ what is in it
    @property
    def words(self) -> SharedWords:
        """Its words; nobody holds on to them, for they move when it grows."""
        if self._words is None:
            msg = f"{self.path} is empty"
            raise Corrupt(msg)
        return self._words

    # What was not reserved is read through the file and not through the mapping: a look into a hole of a file in memory
    # (tmpfs) takes a page of it, and where there is none the kernel kills whoever looks.

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from *start* to *stop*, as far as they are there."""
        return os.pread(self._fd, max(0, min(stop, self.size) - start), start)

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Store *data* at *at*, in blocks that were reserved."""
        if self._memory is not None:
            self._memory[at : at + len(data)] = data

    def load32(self, at: int) -> int:
        """Return the word at *at*; behind the end of the file is nothing, as in a hole."""
        if at // _UNIT in self._reserved:
            return self.words.load32(at)
        data = os.pread(self._fd, 4, at)
        return int(WORD.unpack(data)[0]) if len(data) == WORD.size else 0

    def load64(self, at: int) -> int:
        """Return the number at *at*; behind the end of the file it is 0."""
        if at // _UNIT in self._reserved:
            return self.words.load64(at)
        data = os.pread(self._fd, 8, at)
        return int(LONG.unpack(data)[0]) if len(data) == LONG.size else 0

    def cas32(self, at: int, expected: int, desired: int) -> bool:
        """Change the word at *at*, in a reserved block."""
        return self.words.cas32(at, expected, desired)

    def cas64(self, at: int, expected: int, desired: int) -> bool:
        """Change the number at *at*, in a reserved block."""
        return self.words.cas64(at, expected, desired)

    def store64(self, at: int, value: int) -> None:
        """Store the number at *at*, in a reserved block."""
        self.words.store64(at, value)

    def raise64(self, at: int, value: int) -> None:
        """Have the number at *at* no smaller than *value*."""
        while (seen := self.load64(at)) < value and not self.cas64(at, seen, value):
            pass

    def lower64(self, at: int, value: int) -> None:
        """Have the number at *at* no larger than *value*."""
        while (seen := self.load64(at)) > value and not self.cas64(at, seen, value):
            pass

    def add64(self, at: int, value: int) -> None:
        """Add *value* to the number at *at*."""
        while (seen := self.load64(at)) is not None and not self.cas64(at, seen, seen + value):
            pass

    def data_after(self, position: int) -> int | None:
        """Return the first position from *position* on that is not in a hole; None if there is none."""
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else position

    def sync(self) -> None:
        """Have everything in it on the disk."""
        os.fdatasync(self._fd)

    # ------------------------------------------------------------ the end
    def _unmap(self) -> None:
        if self._words is not None:
            self._words.close()
            self._words = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self.size = 0

    def close(self) -> None:
        """Let go of the file; again is harmless."""
        self._unmap()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def no_room(path: Path, error: OSError, what: str) -> Exception:
    """Return what to raise for *error*: DiskFull where it says that."""
    if error.errno not in _NO_ROOM:
        return error
    return DiskFull(f"cannot make {path} {what}: {error.strerror}; nothing was published, and the queue is whole")
