"""
Retired chunk files, zeroed and used again: touching fresh pages costs many times what zeroing used ones does.

Every mapping of a chunk holds a read lock on its file until its last view is gone, so a write lock proves that nobody
looks at it any more, not even a process that was declared dead. A file is named spare-* only once it is all zeros; a
kill in between leaves a retired-* file that is zeroed again or unlinked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from typing import TYPE_CHECKING, Self

from shmq import _native
from shmq.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEEP = 2
"""Spare files to keep, of whatever size; more are unlinked, unless all together are small."""
KEEP_BYTES = 64 << 20
"""What small is."""
WORTH_KEEPING = 4 << 20
"""A smaller file is not worth a name of its own; a spare of this size serves even where a larger chunk would be due."""
_RETIRED, _SPARE = "retired-", "spare-"
_ZEROS = bytes(256 << 10)
_HINT_AT, _SEAL = 128, 5  # layout.h: of struct chunk_header; the state of a SEAL
_FLOCK = struct.Struct("hhqqi4x")


def _lock(fd: int, kind: int) -> bool:
    """An open-file lock on byte 0; False when somebody else's forbids it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def lock_as_mapper(fd: int) -> bool:
    """Take the lock that every mapping holds; False when the file is being zeroed for somebody else."""
    return _lock(fd, fcntl.F_RDLCK)


def lock_alone(fd: int) -> bool:
    """Take a lock that nobody else may hold meanwhile; False when somebody does."""
    return _lock(fd, fcntl.F_WRLCK)


def unlock(fd: int) -> None:
    """Give the lock back; for whoever knows that his mapping has no more views."""
    _lock(fd, fcntl.F_UNLCK)


class Spare:
    """A file that nobody else maps or will use. A context manager: closes, whatever it has become."""

    def __init__(self, directory: int, name: str, fd: int, size: int) -> None:
        """Locked already."""
        self._directory = directory
        self._name = name
        self.fd = fd
        self.size = size

    def become(self, name: str) -> bool:
        """Take its place under *name*; False when somebody was faster, and it stays a spare."""
        return _native.rename_new(self._directory, self._name, name)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the descriptor and its lock."""
        os.close(self.fd)


def _names(directory: int, prefix: str) -> list[str]:
    return [name for name in files.names_in(directory) if name.startswith(prefix)]


def _locked(directory: int, prefix: str) -> Iterator[Spare]:
    """Each file of that prefix that nobody else holds."""
    for name in _names(directory, prefix):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            spare = None
            try:
                if _lock(fd, fcntl.F_WRLCK) and os.stat(name, dir_fd=directory).st_ino == os.fstat(fd).st_ino:
                    spare = Spare(directory, name, fd, os.fstat(fd).st_size)
            finally:
                if spare is None:
                    os.close(fd)
            if spare is not None:
                yield spare


def take(directory: int, at_least: int, normal: int, known: Callable[[int, int], bool]) -> Spare | None:
    """A spare of a fitting size, locked; one whose (device, inode) is *known*, if there is. None when there is none."""
    second = None
    for spare in _locked(directory, _SPARE):
        if not at_least <= spare.size <= max(at_least, normal):
            os.close(spare.fd)
            continue
        try:
            info = os.fstat(spare.fd)
        except OSError:
            os.close(spare.fd)
            continue
        if known(info.st_dev, info.st_ino):
            if second is not None:
                os.close(second.fd)
            return spare
        if second is not None:
            os.close(second.fd)
        second = spare
    return second


def retire(directory: int, name: str) -> None:
    """Take a chunk's name away. Its mappings stay whole; its file may serve again when they are gone."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{_RETIRED}{os.urandom(8).hex()}", src_dir_fd=directory, dst_dir_fd=directory)


def drop(directory: int) -> int:
    """Unlink what serves nobody at the moment, because room is wanted: how many."""
    dropped = 0
    for prefix in (_SPARE, _RETIRED):
        for spare in _locked(directory, prefix):
            with spare, contextlib.suppress(FileNotFoundError):
                os.unlink(spare._name, dir_fd=directory)  # noqa: SLF001  # ours
                dropped += 1
    return dropped


def reclaim(directory: int, worth: int | None = None) -> None:
    """
    Zero what nobody maps any more, up to KEEP files; unlink the rest of it. Under the administrative lock only.

    *worth*: the size from which on a file is worth keeping.
    """
    worth = WORTH_KEEPING if worth is None else worth
    have, kept = 0, 0
    for name in _names(directory, _SPARE):
        with contextlib.suppress(FileNotFoundError):
            kept += os.stat(name, dir_fd=directory).st_size
            have += 1
    for retired in _locked(directory, _RETIRED):
        with retired:
            if retired.size >= worth and (have < KEEP or kept + retired.size <= KEEP_BYTES):
                _zero(retired)
                retired.become(_SPARE + os.urandom(8).hex())
                have, kept = have + 1, kept + retired.size
            else:
                os.unlink(retired._name, dir_fd=directory)  # noqa: SLF001  # ours


def _zero(file: Spare) -> None:
    """By writing, not through a mapping: the pages are there, and mapping them costs more than zeroing them."""
    end, at = _used(file), 0
    while at < end:
        at += os.pwrite(file.fd, memoryview(_ZEROS)[: end - at], at)


def _used(file: Spare) -> int:
    """How far a retired chunk was written: to its SEAL, if the hint in its header leads there; else all of it."""
    position = int.from_bytes(os.pread(file.fd, 8, _HINT_AT), "little") >> 36 << 3
    word = int.from_bytes(os.pread(file.fd, 8, position), "little")
    return min(position + 8, file.size) if word >> 61 == _SEAL else file.size
