"""
How shmq opens and makes files: one door, below a directory that was checked, never through a link.

What is opened must be a regular file of ours with one name and no rights for others. What is made begins nameless,
gets its space and its content, and is linked into place whole; whoever comes second is told so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat

from shmq import errors
from shmq.storage import sync

NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs"}
NETWORK |= {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs", "virtiofs"}
LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.exfat"}
"""What is known to be only this machine's. Any other FUSE may be a network; `fuseblk` is a disk by its name."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def open_directory(path: str, *, trust_owner: bool = False, above: int | None = None) -> int:
    """
    A descriptor of the directory at *path*, after checking who may write there; by its last name in *above*, if given.

    Raises:
        NotFound: there is nothing.
        Unsafe: it is a link, not ours, or writable by others.
        BadFormat: it is not a directory.
    """
    try:
        name = path if above is None else os.path.basename(path)
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        raise errors.NotFound(f"cannot open {path}: there is no such directory") from None
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
            raise errors.Unsafe(f"cannot open {path}: it is a symbolic link; name the directory itself") from None
        if problem.errno == errno.ENOTDIR and not os.path.lexists(path):
            raise errors.NotFound(f"cannot open {path}: something above it is a file") from None
        if problem.errno == errno.ENOTDIR:
            raise errors.BadFormat(
                f"cannot open {path}: it is not a directory, as a queue and its folders are; it was not touched"
            ) from None
        raise
    try:
        _check_directory(os.fstat(fd), path, trust_owner=trust_owner)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_directory(info: os.stat_result, path: str, *, trust_owner: bool) -> None:
    if info.st_uid != os.geteuid() and not trust_owner:
        raise errors.Unsafe(f"cannot open {path}: it belongs to user {info.st_uid}, and this is user {os.geteuid()}")
    if info.st_mode & 0o022:
        raise errors.Unsafe(
            f"cannot open {path}: others may write there (mode {stat.S_IMODE(info.st_mode):#o}); "
            "chmod go-w it if they must not, or use another directory"
        )


def explained(problem: OSError, path: str, name: str) -> Exception:
    """What the kernel said about the file *name* in *path*: as one of our errors, where we have one for it."""
    if problem.errno == errno.ELOOP:
        return errors.Unsafe(f"cannot open {path}/{name}: it is a symbolic link")
    if problem.errno in (errno.EISDIR, errno.ENXIO, errno.ENODEV):
        return errors.Unsafe(f"cannot open {path}/{name}: it is not a regular file")
    if problem.errno in _NO_ROOM:
        return disk_full(path, 0, problem)
    problem.filename = f"{path}/{name}"
    return problem


def names_in(directory: int) -> list[str]:
    """
    What is in the directory of this descriptor, read through an opening of its own.

    A descriptor has one place in its directory for all its users: threads, and forked children. One that is killed
    while it reads would leave the place at the end, and the next reader would find the directory empty.
    """
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def open_file(directory: int, name: str, path: str, *, writable: bool, trust_owner: bool = False) -> tuple[int, int]:
    """
    A descriptor of the file *name* below *directory*, and its size.

    Raises:
        FileNotFoundError: there is none; for the caller to interpret.
        Unsafe: it is a link, has a second name, is not ours, or others have rights to it.
    """
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, dir_fd=directory)
    except OSError as problem:
        raise explained(problem, path, name) from None
    try:
        info = os.fstat(fd)
    except OSError as problem:
        os.close(fd)
        raise explained(problem, path, name) from None
    reason = ""
    if not stat.S_ISREG(info.st_mode):
        reason = "it is not a regular file"
    elif info.st_nlink != 1:
        reason = f"it has {info.st_nlink} names; a file of a queue has one"
    elif info.st_uid != os.geteuid() and not trust_owner:
        reason = f"it belongs to user {info.st_uid}, and this is user {os.geteuid()}"
    elif info.st_mode & 0o077:
        reason = f"others have rights to it (mode {stat.S_IMODE(info.st_mode):#o})"
    if reason:
        os.close(fd)
        raise errors.Unsafe(f"cannot open {path}/{name}: {reason}")
    return fd, info.st_size


def new_file(directory: int, size: int, mode: int, path: str) -> int:
    """
    A nameless file of *size* zero bytes that the disk has promised.

    Raises:
        DiskFull: it has not; nothing was made.
        UnsafeFilesystem: this file system has no nameless files.
    """
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as problem:
        if problem.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            raise errors.UnsafeFilesystem(
                f"cannot make files in {path}: its file system has no nameless files (O_TMPFILE)"
            ) from None
        if problem.errno in _NO_ROOM:
            raise disk_full(path, size, problem) from None
        problem.filename = path
        raise
    try:
        os.fchmod(fd, mode)  # not left to the umask
        os.posix_fallocate(fd, 0, size)
    except OSError as problem:
        os.close(fd)
        if problem.errno in _NO_ROOM:
            raise disk_full(path, size, problem) from None
        problem.filename = path
        raise
    return fd


def make_directory(path: str, above: int | None = None) -> None:
    """
    Make a directory for us alone, if there is nothing of that name; by its last name in *above*, if given.

    Raises:
        DiskFull: there is no room for it.
    """
    try:
        os.mkdir(path if above is None else os.path.basename(path), 0o700, dir_fd=above)
    except FileExistsError:
        pass
    except OSError as problem:
        if problem.errno in _NO_ROOM:
            raise disk_full(os.path.dirname(path), 0, problem) from None
        raise


def disk_full(path: str, size: int, problem: OSError) -> errors.DiskFull:
    """The error for a place without room, with how much there is."""
    free = "?"
    with contextlib.suppress(OSError):
        room = os.statvfs(path)
        free = f"{room.f_bavail * room.f_frsize:,}"
    what = f"get {size:,} bytes" if size else "make a file"
    from shmq.storage import volatile  # noqa: PLC0415  # it knows this module

    return errors.DiskFull(
        f"cannot {what} in {path}: {problem.strerror} ({free} bytes free); "
        f"nothing was put, and the queue can still be read{volatile.REMEDY if volatile.is_inside(path) else ''}"
    )


def link_file(fd: int, directory: int, name: str, path: str) -> bool:
    """
    Give a nameless file its name; False when somebody else was first.

    Raises:
        DiskFull: there is no room for one more name.
    """
    try:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory, follow_symlinks=True)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno in _NO_ROOM:
            raise disk_full(path, 0, problem) from None
        raise
    return True


def make_file(directory: int, name: str, content: bytes, mode: int, path: str, synced_as: str = "") -> bool:
    """Make a file with this content, on the disk before it has a name if *synced_as*; False when somebody was first."""
    fd = new_file(directory, len(content), mode, path)
    try:
        try:
            sync.write(fd, content, 0, synced_as)
            if synced_as:
                sync.data(fd, synced_as)
        except OSError as problem:
            raise explained(problem, path, name) from None
        return link_file(fd, directory, name, path)
    finally:
        os.close(fd)


def filesystem_type(path: str, mounts: str | None = None) -> str:
    """The type of the file system at *path*, by the longest mount point above it; *mounts* as in mountinfo."""
    if mounts is None:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = os.fsdecode(file.read())
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
    return kind


def refuse_network(path: str, existing: str) -> None:
    """
    Refuse a file system that several machines may share: their processes do not share its memory.

    Args:
        path: what is to be opened or made.
        existing: itself, or the directory above it.

    Raises:
        UnsafeFilesystem: it is one.
    """
    kind = filesystem_type(existing)
    unknown = (kind == "fuse" or kind.startswith("fuse.")) and kind not in LOCAL_FUSE
    if kind in NETWORK or unknown:
        what = "perhaps a network file system" if unknown and kind not in NETWORK else "a network file system"
        raise errors.UnsafeFilesystem(
            f"cannot use {path}: it is on {kind}, {what}, where processes do not share memory and locks; nothing was "
            "touched. Use a local directory, or pass unsafe_filesystem=True if only this machine uses it"
        )
