"""Files mapped into memory, and the few calls of the kernel that Python has no word for."""

from __future__ import annotations

import fcntl
import functools
import os
import struct

from shmq._core import ffi, lib
from shmq._native.core import Fd, FileMap, error
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap


_FLOCK = struct.Struct("hhqqi4x")
_TRIED = 1 << 60
"""No lock of ours is beyond it."""


def start_writing(fd: int) -> None:
    """Have the kernel begin to write what is dirty in a file. Nothing is promised, and nothing waited for."""
    lib.shmq_start_writing(fd)


def _name(problem: OSError, fd: int) -> None:
    """Have a refusal of the kernel name the file, which costs no descriptor: it knows only ours of it."""
    problem.filename = os.readlink(f"/proc/self/fd/{fd}")


_DISKS = "", "ext4", "xfs"


def disk_type(fd: int, path: str | None = None) -> str:
    """
    The type of the file system of that file, by its descriptor, or by its *path* if that is given, where it lies on a
    disk of this machine, ext4 for ext2 and ext3, too; "" where it does not, or the kernel does not say so by itself.
    """
    return _DISKS[lib.shmq_disk_type(fd, ffi.NULL if path is None else os.fsencode(path))]


def in_memory(fd: int) -> bool:
    """Whether that file lies in memory (tmpfs), for whoever knows that it is on this machine."""
    return bool(lib.shmq_in_memory(fd))


_keeping: dict[tuple[int, int], bool] = {}
"""Of each file system, by device and identifier, whether what is mapped from its files keeps their locks."""


def keeps_locks(fd: int) -> bool:
    """
    Whether a mapping of that file keeps the locks of the open file it was made from, without a descriptor.

    Most file systems map the open file itself, which lives as long as that: those of a plain disk do. Others, such as
    overlayfs, map one below it. So it is tried, once for each of the rest, with a lock that nobody else has. The number
    of a device alone may be another one's, once that is unmounted.
    """
    if disk_type(fd):
        return True
    system = os.fstat(fd).st_dev, os.fstatvfs(fd).f_fsid
    known = _keeping.get(system)
    if known is None:
        known = _keeping[system] = _try_whether_it_keeps(fd)
    return known


def _try_whether_it_keeps(fd: int) -> bool:
    byte = _TRIED + int.from_bytes(os.urandom(16)[:6], "little")
    try:
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        _name(problem, fd)
        raise
    with again:
        fcntl.fcntl(again, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))
        memory = FileMap.of(again, 1, False, False, None)
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    memory.close()
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _map_shared(fd: int, size: int, kept: object, *, writable: bool) -> FileMap:
    try:
        return FileMap.of(fd, size, writable, False, kept)
    except OSError as problem:
        _name(problem, fd)
        raise


def map_file(fd: int, size: int, *, writable: bool) -> FileMap:
    """Map a whole file, shared. The mapping keeps the open file, and its locks, until the last view of it is gone."""
    return _map_shared(fd, size, None if keeps_locks(fd) else Fd.of(os.dup, fd), writable=writable)


def holder(fd: int, *, keeps: bool | None = None) -> object:
    """
    What keeps the open file of *fd*, and its locks, as long as anybody has it: in every forked child, too.

    A mapping of one page, or where that does not keep them, a descriptor. *keeps*: which it is, where that is known.
    """
    return _holder(fd, keeps=keeps_locks(fd) if keeps is None else keeps)


def _holder(fd: int, *, keeps: bool) -> object:
    try:
        return FileMap.of(fd, 1, False, False, None) if keeps else Fd.of(os.dup, fd)
    except OSError as problem:
        _name(problem, fd)
        raise


def map_held(fd: int, size: int, *, writable: bool) -> FileMap:
    """
    As `map_file`, but that the locks can be let go of, and others kept, while it stays mapped: see `FileMap.keep`.

    So it is made through an opening of its own, with the same access: what is mapped to be read may be made writable
    for a moment, where the file was opened for that.
    """
    if keeps_locks(fd):
        try:
            return FileMap.held(fd, size, writable)
        except OSError as problem:
            _name(problem, fd)
            raise
    try:
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", access | os.O_CLOEXEC)
    except OSError as problem:
        _name(problem, fd)
        raise
    with again:
        return _map_shared(again, size, holder(fd), writable=writable)


def map_private(fd: int, size: int) -> FileMap:
    """Map a whole file, read-only, so that what is written there is seen by nobody else and never reaches the file."""
    keeps = keeps_locks(fd)
    try:
        return FileMap.of(fd, size, True, True, None if keeps else Fd.of(os.dup, fd))
    except OSError as problem:
        _name(problem, fd)
        raise


def map_alone(fd: int, size: int, *, writable: bool) -> FileMap:
    """
    Map a whole file, shared, by an opening that carries no lock, now or later.

    A mapping keeps the open file it was made from, in every forked child too, and with it whatever lock that carries.
    The locks of seats and names must end with their holder: so each is on an opening of its own (member.py, Lock).
    """
    return _map_shared(fd, size, None, writable=writable)


def sync_pages(memory: mmap.mmap, first: int, size: int) -> None:
    """As `mmap.flush`, which would keep all other threads of the process waiting meanwhile."""
    answer = lib.shmq_sync_mapped(ffi.from_buffer(memory) + first, size)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))


def is_there(directory: int, name: str) -> bool:
    """Whether anything has that name in *directory*."""
    code = lib.shmq_is_there(directory, os.fsencode(name))
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot tell whether there is a file")
    return bool(code == lib.SHMQ_OK)


_new_named = functools.partial(ffi.new, ffi.typeof("shmq_named[]"))


def numbered(directory: int, name: str, count: int) -> list[tuple[int, int, int, int, int]]:
    """
    What has which of *count* names in *directory*: *name* and a number in hexadecimal.

    Of each file its number, its bytes, when it was last changed in ns, its device and its inode.
    """
    found = _new_named(count)
    there = lib.shmq_numbered(directory, os.fsencode(name), count, found)
    if there < 0:
        raise error(there, "cannot tell which files there are")
    return [(each.number, each.bytes, each.changed_ns, each.device, each.inode) for each in found[0:there]]


def rename_numbered(directory: int, old: str, name: str, count: int) -> bool:
    """
    Rename to one of *count* numbered names that nobody has: that of the file's inode, if it can be.

    False when all are taken, or there is no such file.
    """
    code = lib.shmq_rename_numbered(directory, os.fsencode(old), os.fsencode(name), count)
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot give a file its name")
    return bool(code == lib.SHMQ_OK)


def rename_new(directory: int, old: str, new: str) -> bool:
    """Rename a file within *directory*; False when the new name is taken."""
    code = lib.shmq_rename_new(directory, os.fsencode(old), os.fsencode(new))
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot give a file its name")
    return bool(code == lib.SHMQ_OK)
