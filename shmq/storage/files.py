"""
How shmq opens and makes files: one door, below a directory that was checked, never through a link.

What is opened must be a regular file of ours with one name and no rights for others. What is made begins nameless,
gets its space and its content, and is linked into place whole; whoever comes second is told so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import blocks, shm, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs"}
NETWORK |= {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs", "virtiofs"}
LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.exfat"}
"""What is known to be only this machine's. Any other FUSE may be a network; `fuseblk` is a disk by its name."""
_REMEDY = "; make room on that disk, or have messages finished: what all names have finished is given back"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FICLONE = 0x40049409
_TRIES = 100
"""How often to ask for a name whose file was unlinked each time between our opening it and our looking at it."""


def open_directory(path: str, *, trust_owner: bool = False, above: int | None = None) -> _native.Fd:
    """
    A descriptor of the directory at *path*, after checking who may write there; by its last name in *above*, if given.

    Raises:
        NotFound: there is nothing.
        Unsafe: it is a link, not ours, or writable by others.
        BadFormat: it is not a directory.
    """
    try:
        name = path if above is None else os.path.basename(path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = _native.Fd.of(os.open, name, flags, dir_fd=above)
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
        problem.filename = path
        raise
    _check_directory(os.fstat(fd), path, trust_owner=trust_owner)
    return fd


def open_plainly(path: str) -> _native.Fd:
    """A descriptor of a directory that need not be ours."""
    return _native.Fd.of(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


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


@contextlib.contextmanager
def _opened_to_read(directory: int) -> Iterator[int]:
    """
    An opening of its own of the directory of this descriptor, to read what is in it.

    A descriptor has one place in its directory for all its users: threads, and forked children. One that is killed
    while it reads would leave the place at the end, and the next reader would find the directory empty. And on btrfs a
    descriptor never lists a name that is younger than itself. So nothing else here reads a directory.
    """
    try:
        fd = _native.Fd.of(os.open, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        with fd:
            yield fd
    except OSError as problem:
        problem.filename = os.readlink(f"/proc/self/fd/{directory}")
        raise


def inodes_in(directory: int) -> dict[str, int]:
    """What is in the directory of this descriptor, by name, with its inode."""
    with _opened_to_read(directory) as fd, os.scandir(fd) as entries:
        return {entry.name: entry.inode() for entry in entries}


def names_in(directory: int) -> list[str]:
    """
    The names in it.

    In one call, for a signal's handler that raises between two would leave the reading open for a while.
    """
    with _opened_to_read(directory) as fd:
        return os.listdir(fd)


def refuse_removed(directory: int, path: str) -> None:
    """
    For when something went wrong there: tell whether the directory itself was removed under whoever has it open.

    Raises:
        NotFound: it was; nothing is made again in its place.
    """
    if os.fstat(directory).st_nlink == 0:
        raise errors.NotFound(
            f"cannot use {path}: the directory was removed while it was open. What is mapped here can still be read; "
            "nothing was put, and nothing was made again in its place"
        )


def open_file(
    directory: int, name: str, path: str, *, writable: bool, trust_owner: bool = False
) -> tuple[_native.Fd, int]:
    """
    A descriptor of the file *name* below *directory*, and its size.

    Raises:
        FileNotFoundError: there is none; for the caller to interpret.
        Unsafe: it is a link, has a second name, is not ours, or others have rights to it.
    """
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_TRIES):
        try:
            fd = _native.Fd.of(os.open, name, flags, dir_fd=directory)
            info = os.fstat(fd)
        except OSError as problem:
            raise explained(problem, path, name) from None
        if info.st_nlink and _is_still(info, directory, name):
            break
        fd.close()  # unlinked or replaced between the calls: what has that name now?
    else:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{path}/{name}")
    reason = _refusal(info, trust_owner=trust_owner)
    if reason:
        raise errors.Unsafe(f"cannot open {path}/{name}: {reason}")
    return fd, info.st_size


def _is_still(info: os.stat_result, directory: int, name: str) -> bool:
    """
    Whether that file has that name still, and where it should have one name, no other by now.

    A link to somebody else's file that was taken away before its names were counted had one name then.
    """
    try:
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (info.st_dev, info.st_ino) and now.st_nlink == info.st_nlink


def _refusal(info: os.stat_result, *, trust_owner: bool) -> str:
    """Why a file is not one of ours; nothing, if it is."""
    if not stat.S_ISREG(info.st_mode):
        return "it is not a regular file"
    if info.st_nlink != 1:
        return f"it has {info.st_nlink} names; a file of a queue has one"
    if info.st_uid != os.geteuid() and not trust_owner:
        return f"it belongs to user {info.st_uid}, and this is user {os.geteuid()}"
    if info.st_mode & 0o077:
        return f"others have rights to it (mode {stat.S_IMODE(info.st_mode):#o})"
    return ""


def has_free(directory: int, size: int) -> bool:
    """Whether that file system has so many bytes left; also where it does not say how many it has."""
    at = os.fstatvfs(directory)
    return at.f_blocks == 0 or at.f_bavail * at.f_frsize >= size


def new_file(directory: int, size: int, mode: int, path: str) -> _native.Fd:
    """
    A nameless file of *size* zero bytes that the disk has promised.

    Raises:
        DiskFull: it has not; nothing was made.
        UnsafeFilesystem: this file system has no nameless files.
    """
    try:
        fd = _native.Fd.of(os.open, ".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as problem:
        refuse_removed(directory, path)
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
        blocks.write_in_place(fd)
        os.posix_fallocate(fd, 0, size)
    except OSError as problem:
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
    with contextlib.suppress(FileExistsError):
        new_directory(path, above)


def new_directory(path: str, above: int | None = None) -> None:
    """
    Make a directory for us alone, whatever the umask; by its last name in *above*, if given.

    Raises:
        FileExistsError: there is something of that name.
        DiskFull: there is no room for it.
    """
    name = path if above is None else os.path.basename(path)
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except OSError as problem:
        if above is not None:
            refuse_removed(above, os.path.dirname(path))
        if problem.errno in _NO_ROOM:
            raise disk_full(os.path.dirname(path), 0, problem) from None
        problem.filename = path
        raise
    try:  # O_PATH, since the umask may have left no right to open it
        fd = _native.Fd.of(os.open, name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as problem:
        problem.filename = path
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=above)
        raise
    with fd:
        if os.fstat(fd).st_uid == os.geteuid():
            os.chmod(f"/proc/self/fd/{fd}", 0o700)


def disk_full(path: str, size: int, problem: OSError) -> errors.DiskFull:
    """The error for a place without room, with how much there is."""
    free = "?"
    with contextlib.suppress(OSError):
        room = os.statvfs(path)
        free = f"{room.f_bavail * room.f_frsize:,}"
    what = f"get {size:,} bytes" if size else "make a file"
    remedy = shm.REMEDY if shm.is_inside(path) else _REMEDY
    return errors.DiskFull(
        f"cannot {what} in {path}: {problem.strerror} ({free} bytes free); nothing was lost, and the queue can still "
        f"be read{remedy}"
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
        refuse_removed(directory, path)
        if problem.errno in _NO_ROOM:
            raise disk_full(path, 0, problem) from None
        problem.filename, problem.filename2 = f"{path}/{name}", None
        raise
    return True


def make_file(directory: int, name: str, content: bytes, mode: int, path: str, synced_as: str = "") -> bool:
    """Make a file with this content, on the disk before it has a name if *synced_as*; False when somebody was first."""
    fd = new_file(directory, len(content), mode, path)
    with fd:
        try:
            sync.write(fd, content, 0, synced_as)
            if synced_as:
                sync.data(fd, synced_as)
        except OSError as problem:
            raise explained(problem, path, name) from None
        return link_file(fd, directory, name, path)


def filesystem_type(path: str, mounts: str | None = None) -> str:
    """
    The type of the file system at *path*, by the longest mount point above it; *mounts* as in mountinfo.

    Of an overlay, that of what is written to below it, where that can be seen from here.
    """
    if mounts is None:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = os.fsdecode(file.read())
    real = os.path.realpath(path)
    best, kind, upper = "", "unknown", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split(" ", 5)[4]
        if "\\" in mount:
            mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount)
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
            upper = after.partition("upperdir=")[2].partition(",")[0]
    if kind == "overlay" and upper and os.path.isdir(upper) and not upper.startswith(best.rstrip("/") + "/"):
        return filesystem_type(upper, mounts)
    return kind


def refuse_network(path: str, existing: str) -> str:
    """
    The type of the file system there.

    One that several machines may share is refused: their processes do not share its memory.

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
    return kind


def transfer(source: int, target: int, count: int, *, whole: bool) -> None:
    """Copy the first *count* bytes of a file; all of it at once, without any copying, where the file system can."""
    if whole:
        with contextlib.suppress(OSError):
            fcntl.ioctl(target, _FICLONE, source)
            return
    # Not copy_file_range, which shares blocks where it can: the newest chunk's next writes would need others.
    for at in range(0, count, 1 << 20):
        content = os.pread(source, min(count - at, 1 << 20), at)
        if len(content) < min(count - at, 1 << 20):
            raise errors.Corrupt("a chunk was cut short while it was copied")
        sync.write(target, content, at, "copy")


def remove_all(directory: int, path: str, name: str) -> None:
    """Remove that folder of *directory*, which is *path*, with everything in it: of a queue that is being deleted."""
    with contextlib.suppress(errors.NotFound):
        folder = open_directory(f"{path}/{name}", above=directory)
        with folder:
            for entry in names_in(folder):
                try:
                    os.unlink(entry, dir_fd=folder)
                except IsADirectoryError:
                    remove_all(folder, f"{path}/{name}", entry)
        os.rmdir(name, dir_fd=directory)
