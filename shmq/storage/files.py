"""
How shmq opens and makes files: one door, below a directory that was checked, never through a link.

What is opened must be a regular file of ours with one name and no rights for others; below a directory that a group of
users shares, one of that group with exactly its rights. What is made begins nameless, gets its rights, its space and
its content, and is linked into place whole; whoever comes second is told so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from shmq import _native, errors, later, user_group
from shmq.hints import TYPE_CHECKING
from shmq.storage import blocks, shm, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs"}
NETWORK |= {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs", "virtiofs"}
PLAIN = {"ext2", "ext3", "ext4", "tmpfs", "xfs"}
"""File systems of this machine whose device has one type, and no other one below it."""
LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.exfat"}
"""What is known to be only this machine's. Any other FUSE may be a network; `fuseblk` is a disk by its name."""
_REMEDY = "; make room on that disk, or have messages finished: what all names have finished is given back"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FICLONE = 0x40049409
_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
MAKING = ".making-"
"""In the name of what is being made, before what it ends with; a kill may leave one, empty."""
_MODE = 0o600
_TRIES = 100
"""How often to ask for a name whose file was unlinked each time between our opening it and our looking at it."""


DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = tuple(access | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK for access in (os.O_RDONLY, os.O_RDWR))
"""To open a file to read it, and to write."""
NO_DIRECTORY = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""What the kernel answers with these flags where there is no directory any more."""


def open_directory(
    path: str, *, trust_owner: bool = False, above: int | None = None, group: int | None = None
) -> _native.Fd:
    """
    A descriptor of the directory at *path*, after checking who may write there; by its last name in *above*, if given.

    *group*: users of that group may write there, too, and may have made it. Below *above*, its group.

    Raises:
        NotFound: there is nothing.
        Unsafe: it is a link, not ours, or writable by others.
        BadFormat: it is not a directory.
        PermissionError: it is shared by a group that this process is not in.
    """
    if above is not None:
        group = group_of(above)
    try:
        name = path if above is None else os.path.basename(path)
        fd = _native.Fd.of(os.open, name, DIRECTORY_FLAGS, dir_fd=above)
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
        if problem.errno == errno.EACCES:
            _refuse_outsider(path, group)
        problem.filename = path
        raise
    if above is not None and group is not None:
        reason = _misfit(fd, user_group.DIRECTORY_MODE, group)
        if reason:
            raise errors.Unsafe(f"cannot open {path}: {reason}")
    else:
        _check_directory(fd, path, trust_owner=trust_owner, group=group)
    return fd


def group_of(directory: int) -> int | None:
    """The group of users that shares this directory, and whatever is in it; None where it is one user's alone."""
    return user_group.of_directory(os.fstat(directory))


def _refuse_outsider(path: str, group: int | None) -> None:
    """
    For when the kernel does not let us in there: say whose it is, where that can be seen.

    Raises:
        PermissionError: it is shared by a group that this process is not in.
        Unsafe: it is not of *group*.
    """
    try:
        shared = user_group.of_directory(os.lstat(path))
    except OSError:
        return  # something above it is closed to us, too
    if group is not None and shared is not None and group != shared:
        raise errors.Unsafe(f"cannot open {path}: {_of_another(shared, group)}") from None
    reason = "" if shared is None else user_group.refusal(shared)
    if reason:
        raise PermissionError(f"cannot open {path}: {reason}") from None


def open_plainly(path: str) -> _native.Fd:
    """A descriptor of a directory that need not be ours."""
    return _native.Fd.of(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _check_directory(fd: int, path: str, *, trust_owner: bool, group: int | None) -> None:
    info = os.fstat(fd)
    mine, shared = info.st_uid == os.geteuid(), user_group.of_directory(info)
    mode = stat.S_IMODE(info.st_mode)
    if shared is not None and (mine or trust_owner or group is not None):
        reason = _misfit(fd, user_group.DIRECTORY_MODE, shared if group is None else group)
        if reason:
            raise errors.Unsafe(f"cannot open {path}: {reason}")
        reason = "" if trust_owner else user_group.refusal(shared)
        if reason:
            raise PermissionError(f"cannot open {path}: {reason}")
        return
    if not (mine or trust_owner):
        hint = ""
        if shared is not None:
            hint = f". {user_group.told(shared).capitalize()} shares it: group={shared} says that you mean it"
        raise errors.Unsafe(
            f"cannot open {path}: it belongs to user {info.st_uid}, and this is user {os.geteuid()}{hint}"
        )
    if mode & 0o022:
        hint = f". What a group shares has mode {user_group.DIRECTORY_MODE:#o}" if mode & 0o772 == 0o770 else ""
        raise errors.Unsafe(
            f"cannot open {path}: others may write there (mode {mode:#o}); chmod go-w it if they must not, or use "
            f"another directory{hint}"
        )


def _of_another(theirs: int, group: int) -> str:
    return f"it is of {user_group.told(theirs)}, and belongs among files of {user_group.told(group)}"


def _misfit(fd: int, mode: int, group: int) -> str:
    """Why a file or a directory is not as that group shares it; nothing, if it is."""
    info = os.fstat(fd)
    if info.st_gid != group:
        return _of_another(info.st_gid, group)
    if stat.S_IMODE(info.st_mode) != mode:
        lost = "; the setgid bit was lost" if stat.S_IMODE(info.st_mode) == mode & 0o777 else ""
        return f"its mode is {stat.S_IMODE(info.st_mode):#o}, and {mode:#o} what its group shares{lost}"
    for name in _ACLS:
        try:
            os.getxattr(fd, name)
        except OSError as problem:
            if problem.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise
        else:
            return f"an access control list gives others rights to it (setfacl -b takes {name} away)"
    return ""


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


def is_there(directory: int, name: str) -> bool:
    """Whether there is anything of that name in it."""
    return _native.is_there(directory, name)


def refuse_removed(directory: int, path: str) -> None:
    """
    For when something went wrong there: tell whether the directory itself was removed under whoever has it open.

    Raises:
        NotFound: it was; nothing is made again in its place.
    """
    if os.fstat(directory).st_nlink == 0:
        raise removed(path)


def removed(path: str) -> errors.NotFound:
    """For the directory *path* of a queue that is open: it is not there any more, or another one is."""
    return errors.NotFound(
        f"cannot use {path}: the directory was removed while it was open. What is mapped here can still be read; "
        "nothing was put, and nothing was made again in its place"
    )


def open_plain(directory: int, name: str, *, writable: bool) -> tuple[_native.Fd, int] | None:
    """As `open_file`, for a file that is as it should be; of any other, or where there is none, None."""
    try:
        fd = _native.Fd.of(os.open, name, _FILE_FLAGS[writable], dir_fd=directory)
    except OSError:
        return None
    plain = fd.plain(directory, name, os.geteuid())
    if plain is None:
        fd.close()
        return None
    return fd, plain


def open_file(
    directory: int, name: str, path: str, *, writable: bool, trust_owner: bool = False
) -> tuple[_native.Fd, int]:
    """
    A descriptor of the file *name* below *directory*, and its size.

    Raises:
        FileNotFoundError: there is none; for the caller to interpret.
        Unsafe: it is a link, has a second name, is not ours, or others have rights to it.
    """
    for _ in range(_TRIES):
        try:
            fd = _native.Fd.of(os.open, name, _FILE_FLAGS[writable], dir_fd=directory)
            plain = fd.plain(directory, name, os.geteuid())
            if plain is not None:
                return fd, plain
            info = os.fstat(fd)
        except OSError as problem:
            raise explained(problem, path, name) from None
        if info.st_nlink and _is_still(info, directory, name):
            break
        fd.close()  # unlinked or replaced between the calls: what has that name now?
    else:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{path}/{name}")
    group = group_of(directory)
    reason = _refusal(info) or (
        _foreign(info, trust_owner=trust_owner) if group is None else _misfit(fd, user_group.FILE_MODE, group)
    )
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


def _refusal(info: os.stat_result) -> str:
    """Why it is no file of a queue, whosever; nothing, if it may be one."""
    if not stat.S_ISREG(info.st_mode):
        return "it is not a regular file"
    if info.st_nlink != 1:
        return f"it has {info.st_nlink} names; a file of a queue has one"
    return ""


def _foreign(info: os.stat_result, *, trust_owner: bool) -> str:
    """Why a file is not ours alone; nothing, if it is."""
    if info.st_uid != os.geteuid() and not trust_owner:
        return f"it belongs to user {info.st_uid}, and this is user {os.geteuid()}"
    if info.st_mode & 0o077:
        return f"others have rights to it (mode {stat.S_IMODE(info.st_mode):#o})"
    return ""


def has_free(directory: int, size: int) -> bool:
    """Whether that file system has so many bytes left; also where it does not say how many it has."""
    at = os.fstatvfs(directory)
    return at.f_blocks == 0 or at.f_bavail * at.f_frsize >= size


def new_file(directory: int, size: int, path: str) -> _native.Fd:
    """
    A nameless file of *size* zero bytes that the disk has promised, with the rights that its directory says.

    Raises:
        DiskFull: it has not; nothing was made.
        UnsafeFilesystem: this file system has no nameless files.
        Unsafe: it would not be shared as its directory is.
    """
    group = group_of(directory)
    mode = _MODE if group is None else user_group.FILE_MODE
    try:
        fd = _native.Fd.of(os.open, ".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, _MODE, dir_fd=directory)
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
        if size:
            os.posix_fallocate(fd, 0, size)
        reason = "" if group is None else _misfit(fd, mode, group)
    except OSError as problem:
        if problem.errno in _NO_ROOM:
            raise disk_full(path, size, problem) from None
        problem.filename = path
        raise
    if reason:
        raise errors.Unsafe(f"cannot make a file in {path}: {reason}; nothing was made")
    return fd


def make_directory(path: str, above: int | None = None, group: int | None = None) -> None:
    """
    Make a directory, if there is nothing of that name; see `new_directory`.

    Raises:
        DiskFull: there is no room for it.
    """
    with contextlib.suppress(FileExistsError):
        new_directory(path, above, group)


def new_directory(path: str, above: int | None = None, group: int | None = None) -> None:
    """
    Make a directory, whatever the umask; by its last name in *above*, if given.

    It is for us alone; or for that *group* of users, or the one that shares *above*. Such a one gets its name when it
    has its rights: nobody else could give it those.

    Raises:
        FileExistsError: there is something of that name.
        DiskFull: there is no room for it.
        Unsafe: it would not be shared.
        PermissionError: we are not in that group.
    """
    name = path if above is None else os.path.basename(path)
    group = group if above is None else group_of(above)
    if group is None:
        _make_directory(name, path, above, None)
        return
    reason = user_group.refusal(group)
    if reason:
        raise PermissionError(f"cannot make {path}: {reason}")
    making = f"{name}{MAKING}{os.urandom(4).hex()}"
    fd = _make_directory(making, path, above, group)
    with fd:
        try:
            if _native.rename_new(-1 if above is None else above, making, name):
                return
        except BaseException:
            os.rmdir(making, dir_fd=above)
            raise
        os.rmdir(making, dir_fd=above)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _make_directory(name: str, path: str, above: int | None, group: int | None) -> _native.Fd:
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
        with contextlib.ExitStack() as opened:
            opened.enter_context(fd)
            if os.fstat(fd).st_uid == os.geteuid():
                give_rights(fd, group, path)
            opened.pop_all()
    except (OSError, errors.Unsafe) as problem:
        if isinstance(problem, OSError):
            problem.filename = path
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=above)
        raise
    return fd


def give_rights(fd: int, group: int | None, path: str) -> None:
    """
    Have a directory of ours be for us alone, or for that group of users.

    Raises:
        Unsafe: its file system would not have it shared.
    """
    door = f"/proc/self/fd/{fd}"
    if group is None:
        os.chmod(door, 0o700)
        return
    os.chown(door, -1, group)
    os.chmod(door, user_group.DIRECTORY_MODE)
    with open_plainly(door) as there:
        reason = _misfit(there, user_group.DIRECTORY_MODE, group)
    if reason:
        raise errors.Unsafe(f"cannot make {path}: {reason}; nothing was made")


def disk_full(path: str, size: int, problem: OSError) -> errors.DiskFull:
    """The error for a place without room, with how much there is."""
    free = _free_at(path)
    what = f"get {size:,} bytes" if size else "make a file"
    remedy = shm.REMEDY if shm.is_inside(path) else _REMEDY
    return errors.DiskFull(
        f"cannot {what} in {path}: {problem.strerror} ({free}); nothing was lost, and the queue can still "
        f"be read{remedy}"
    )


def not_created(path: str, full: errors.DiskFull) -> errors.DiskFull:
    """The same for whoever wanted a queue at *path*, of which nothing is there: there is nothing to be read either."""
    refused = full.__context__
    why = refused.strerror if isinstance(refused, OSError) else os.strerror(errno.ENOSPC)
    remedy = shm.REMEDY if shm.is_inside(path) else "; make room on that disk"
    return errors.DiskFull(
        f"cannot create a queue in {path}: {why} ({_free_at(os.path.dirname(path))}); nothing was made{remedy}"
    )


def _free_at(path: str) -> str:
    free = "? bytes free"
    with contextlib.suppress(OSError):
        room = os.statvfs(path)
        free = f"{room.f_bavail * room.f_frsize:,} bytes free"
        if room.f_files and not room.f_favail:  # not all file systems count them
            free += ", but no inode for one more file"
    return free


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


def make_file(directory: int, name: str, content: bytes, path: str, synced_as: str = "", size: int = 0) -> bool:
    """
    Make a file with this content, on the disk before it has a name if *synced_as*; False when somebody was first.

    *size*: how long it is, where that is more: what lies behind the content reads as zeros, and has no room promised.
    """
    fd = new_file(directory, len(content), path)
    with fd:
        try:
            sync.write(fd, content, 0, synced_as)
            if size > len(content):
                os.ftruncate(fd, size)
            if synced_as:
                sync.data(fd, synced_as)
        except OSError as problem:
            raise explained(problem, path, name) from None
        return link_file(fd, directory, name, path)


def small_file(path: str) -> bytes:
    """What is in a file of the kernel's. Half the calls of what `open` would do: each opening of a queue reads some."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while piece := os.read(fd, 1 << 16):
            content += piece
        return content
    finally:
        os.close(fd)


def filesystem_type(path: str, mounts: str | None = None) -> str:
    """
    The type of the file system at *path*, by the longest mount point above it; *mounts* as in mountinfo.

    Of an overlay, that of what is written to below it, where that can be seen from here.
    """
    if mounts is None:
        content = small_file("/proc/self/mountinfo")
        device = os.stat(path).st_dev
        number = b"%d:%d" % (os.major(device), os.minor(device))
        lines = (line for line in content.splitlines() if line.split(b" ", 3)[2] == number)
        kind = os.fsdecode(next(lines, b" - ?").partition(b" - ")[2].split(b" ", 1)[0])
        if kind in PLAIN:  # the number of its device alone says which one it is
            return kind
        mounts = os.fsdecode(content)
    real = os.path.realpath(path)
    best, kind, upper = "", "unknown", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split(" ", 5)[4]
        if "\\" in mount:
            later.ready("re")
            import re  # noqa: PLC0415  # of what lies below a folder with a strange name

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


def _removed_empty(directory: int, name: str) -> bool:
    """Whether that folder was empty, and is gone: what another user was making may not even be looked into."""
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        return False
    return True


def remove_all(directory: int, path: str, name: str) -> None:
    """Remove that folder of *directory*, which is *path*, with everything in it: of a queue that is being deleted."""
    with contextlib.suppress(errors.NotFound):
        folder = open_directory(f"{path}/{name}", above=directory)
        with folder:
            for entry in names_in(folder):
                try:
                    os.unlink(entry, dir_fd=folder)
                except IsADirectoryError:
                    if not _removed_empty(folder, entry):
                        remove_all(folder, f"{path}/{name}", entry)
        os.rmdir(name, dir_fd=directory)
