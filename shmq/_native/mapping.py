"""Files mapped into memory, and the few calls of the kernel that Python has no word for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from shmq._core import ffi, lib
from shmq._native.core import Fd, FileMap, error
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator


_FLOCK = struct.Struct("hhqqi4x")
_TRIED = 1 << 60
"""No lock of ours is beyond it."""


def start_writing(fd: int) -> None:
    """Have the kernel begin to write what is dirty in a file. Nothing is promised, and nothing waited for."""
    lib.shmq_start_writing(fd)


@contextlib.contextmanager
def _naming(fd: int) -> Iterator[None]:
    """Have a refusal of the kernel name the file, which costs no descriptor: it knows only ours of it."""
    try:
        yield
    except OSError as problem:
        problem.filename = os.readlink(f"/proc/self/fd/{fd}")
        raise


_keeping: dict[tuple[int, int], bool] = {}
"""Of each file system, by device and identifier, whether what is mapped from its files keeps their locks."""


def keeps_locks(fd: int) -> bool:
    """
    Whether a mapping of that file keeps the locks of the open file it was made from, without a descriptor.

    Most file systems map the open file itself, which lives as long as that; others, such as overlayfs, map one below
    it. So it is tried, once for each file system, with a lock that nobody else has. The number of a device alone may
    be another one's, once that is unmounted.
    """
    system = os.fstat(fd).st_dev, os.fstatvfs(fd).f_fsid
    known = _keeping.get(system)
    if known is None:
        known = _keeping[system] = _try_whether_it_keeps(fd)
    return known


def _try_whether_it_keeps(fd: int) -> bool:
    byte = _TRIED + int.from_bytes(os.urandom(16)[:6], "little")
    with _naming(fd):
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    with again:
        fcntl.fcntl(again, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))
        memory = FileMap.of(again, 1, False, False, None)
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    memory.close()
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _map_shared(fd: int, size: int, kept: object, *, writable: bool) -> FileMap:
    with _naming(fd):
        return FileMap.of(fd, size, writable, False, kept)


def map_file(fd: int, size: int, *, writable: bool) -> FileMap:
    """Map a whole file, shared. The mapping keeps the open file, and its locks, until the last view of it is gone."""
    return _map_shared(fd, size, None if keeps_locks(fd) else Fd.of(os.dup, fd), writable=writable)


def holder(fd: int) -> object:
    """
    What keeps the open file of *fd*, and its locks, as long as anybody has it: in every forked child, too.

    A mapping of one page, or where that does not keep them, a descriptor.
    """
    with _naming(fd):
        return FileMap.of(fd, 1, False, False, None) if keeps_locks(fd) else Fd.of(os.dup, fd)


def map_held(fd: int, size: int, *, writable: bool) -> FileMap:
    """
    As `map_file`, but that the locks can be let go of, and others kept, while it stays mapped: see `FileMap.keep`.

    So it is made through an opening of its own, with the same access: what is mapped to be read may be made writable
    for a moment, where the file was opened for that.
    """
    with _naming(fd):
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", access | os.O_CLOEXEC)
    with again:
        return _map_shared(again, size, holder(fd), writable=writable)


def map_private(fd: int, size: int) -> FileMap:
    """Map a whole file, read-only, so that what is written there is seen by nobody else and never reaches the file."""
    with _naming(fd):
        return FileMap.of(fd, size, True, True, None if keeps_locks(fd) else Fd.of(os.dup, fd))


def map_alone(fd: int, size: int, *, writable: bool) -> FileMap:
    """
    Map a whole file, shared, without keeping a lock of *fd*.

    A mapping keeps the open file it was made from, in every forked child too, and with it whatever lock that carries.
    The locks of seats and names must end with their holder, so their files are mapped through an opening of their own.
    """
    with _naming(fd):
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    with again:
        return _map_shared(again, size, None, writable=writable)


def sync_pages(memory: mmap.mmap, first: int, size: int) -> None:
    """As `mmap.flush`, which would keep all other threads of the process waiting meanwhile."""
    answer = lib.shmq_sync_mapped(ffi.from_buffer(memory) + first, size)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))


def rename_new(directory: int, old: str, new: str) -> bool:
    """Rename a file within *directory*; False when the new name is taken."""
    code = lib.shmq_rename_new(directory, os.fsencode(old), os.fsencode(new))
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot give a file its name")
    return bool(code == lib.SHMQ_OK)
