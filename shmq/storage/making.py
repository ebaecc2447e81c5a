"""Making a queue in a directory, and deleting it: whatever a kill leaves half done, the next one finishes."""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors, user_group
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, files, shm, small_json, sync
from shmq.storage.admin import admin_lock
from shmq.storage.directory import CEILING_AHEAD
from shmq.storage.paths import (
    ADMIN,
    ASIDE,
    CHUNKS,
    CONSUMERS,
    CONTROL,
    DEDUP,
    DEDUP_NEW,
    DELETED,
    FORWARDED,
    FORWARDED_NEW,
    LEDGER,
    LEDGER_NEW,
    MARKS,
    QUEUE,
    STAGING,
    UPSTREAM,
    UPSTREAM_NEW,
)

if TYPE_CHECKING:
    from shmq.options import Options
    from shmq.storage.directory import Directory

_REST = (LEDGER, LEDGER_NEW, DEDUP, DEDUP_NEW, FORWARDED, FORWARDED_NEW, UPSTREAM, UPSTREAM_NEW, MARKS)
_OURS = {QUEUE, CONTROL, ADMIN, CHUNKS, CONSUMERS, DELETED, STAGING, ASIDE, *_REST}


def create(path: str, options: Options) -> None:
    """
    Make a queue at *path*, unless there is one. Several processes may do this at once; one of them makes it.

    Raises:
        NotFound: the directory above is missing.
        BadFormat: the path is taken by something else.
        DiskFull, Unsafe: as they say.
        PermissionError: it is to be shared by a group that this process is not in.
    """
    try:
        made = _make_home(path, options.group)
        try:
            _create(path, options)
        except errors.DiskFull:
            if made:  # and empty again, unless somebody else is making one there
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            raise
    except errors.DiskFull as full:
        raise files.not_created(path, full) from None


def _make_home(path: str, group: int | None) -> bool:
    """Make its directory; False when it is there."""
    try:
        files.new_directory(path, group=group)
    except FileExistsError:
        return False
    except FileNotFoundError:
        raise errors.NotFound(f"cannot create {path}: the directory above it does not exist") from None
    except NotADirectoryError:
        raise errors.NotFound(f"cannot create {path}: something above it is a file") from None
    return True


def _create(path: str, options: Options) -> None:
    """In the directory that is there."""
    if options.group is not None:
        _share(path, options.group)
    directory = files.open_directory(path, group=options.group)
    with directory:
        refuse_strangers(directory, path)
        if files.group_of(directory) != options.group:
            raise errors.Unsafe(
                f"cannot create a queue in {path}: "
                + (
                    f"{user_group.told(os.fstat(directory).st_gid)} shares its directory: say group=, or chmod 0700 it"
                    if options.group is None
                    else f"its directory is there, and not shared by {user_group.told(options.group)}: chmod 2770 it"
                )
            )
        with admin_lock(directory, path):
            if QUEUE not in files.names_in(directory):
                if options.group is None and os.fstat(directory).st_mode & 0o077:  # it was there: now it is a queue's
                    os.fchmod(directory, 0o700)
                try:
                    _make_queue(directory, path, options)
                except errors.DiskFull:
                    _unmake(directory)
                    raise


def _unmake(directory: int) -> None:
    """
    What was made of a queue that does not exist yet goes again. Under the administrative lock, whose file goes last.

    Whatever has something in it, or cannot be taken away, stays, and the files with it: whoever creates here finds it.
    """
    with contextlib.suppress(OSError):
        for folder in (CHUNKS, CONSUMERS):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder, dir_fd=directory)
        for name in (CONTROL, ADMIN):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _share(path: str, group: int) -> None:
    """Where a directory of ours was there, and is empty: from now on it is a queue's, which that group shares."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):  # whoever opens it next says what is wrong
        fd = _native.Fd.of(os.open, path, flags)
        with fd:
            info = os.fstat(fd)
            mine = info.st_uid == os.geteuid() and not info.st_mode & 0o002
            if mine and files.group_of(fd) != group and not files.names_in(fd):
                files.give_rights(fd, group, path)


def refuse_strangers(directory: int, path: str) -> None:
    """
    Refuse to make a queue beside files of somebody else.

    Raises:
        BadFormat: there are some.
    """
    strange = _strange(directory)
    if strange:
        raise errors.BadFormat(
            f"cannot create a queue in {path}: there are other files in it ({', '.join(strange[:3])}"
            f"{', ...' if len(strange) > 3 else ''}); they were not touched. Use an empty or a new directory"
        )


def _strange(directory: int) -> list[str]:
    """What lies there and is not of a queue; what a kill has left of a folder that was being made is."""
    return sorted(name for name in files.names_in(directory) if name.partition(files.MAKING)[0] not in _OURS)


def _refuse_content(directory: int, name: str, path: str) -> None:
    """A creation that was killed leaves empty folders only: whatever lies in one is somebody's."""
    fd = files.open_directory(f"{path}/{name}", above=directory)
    with fd:
        content = files.names_in(fd)
    if content:
        raise errors.Corrupt(
            f"cannot create a queue in {path}: there is no {QUEUE}, but {len(content)} files lie in {name}/. "
            f"If this was a queue, put its {QUEUE} back; nothing was touched"
        )


def _make_queue(directory: int, path: str, options: Options) -> None:
    """Everything but the queue file is made first; with its link the queue exists."""
    if DELETED in files.names_in(directory):
        _remove_content(directory, path)  # whoever was deleting a queue here was killed
    for name in (CHUNKS, CONSUMERS):
        files.make_directory(f"{path}/{name}", directory)
        _refuse_content(directory, name, path)
    with contextlib.suppress(FileNotFoundError):  # of a creation that was killed; nobody has seen it
        os.unlink(CONTROL, dir_fd=directory)
    queue_id = os.urandom(16)
    small = shm.is_anonymous(path)
    files.make_file(directory, CONTROL, _native.format_control(queue_id, small=small), path, "control")
    control = os.stat(CONTROL, dir_fd=directory, follow_symlinks=False)
    journal = _native.Journal(
        sequence=1,
        epoch=1,
        ceiling=CEILING_AHEAD,
        first_live=0,
        first_index=0,
        max_messages=options.max_messages or 0,
        max_bytes=options.max_bytes or 0,
        dropped=0,
        device=control.st_dev,
        inode=control.st_ino,
        flags=0,
        boot_id=boots.boot_id(),
    )
    stored = small_json.dumps(options.to_json())
    content = _native.format_queue(queue_id, time.time_ns(), stored) + _native.format_journal(journal)
    sync.directory(directory, "home")  # with the queue's own name, everything that belongs to it is there
    # Of an anonymous one nobody writes the watermark. A second journal slot is written where there is no room, too.
    content = content.ljust(3 * _native.PAGE_BYTES if small else _native.QUEUE_BYTES, b"\0")
    files.make_file(directory, QUEUE, content, path, "queue", _native.QUEUE_BYTES)
    # In every mode: a chunk whose name is kept when the queue's own is lost would be in the way of making it again.
    sync.directory(directory, "home")
    with files.open_plainly(os.path.dirname(path)) as above:
        sync.directory(above, "above")


def delete(directory: Directory) -> None:
    """
    Remove everything of this queue. With the first step it does not exist any more.

    Killed or interrupted behind it, what is left is nobody's: whoever deletes again, or creates a queue here, finishes
    the work first.
    """
    directory.refuse_moved("delete")
    strange = _strange(directory.fd)
    if strange:
        raise errors.Unsafe(
            f"cannot delete {directory.path}: {strange[0]!r} lies in it"
            f"{f', and {len(strange) - 1} more,' if strange[1:] else ''} and is not of the queue; nothing was deleted"
        )
    os.rename(QUEUE, DELETED, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    _remove(directory.fd, directory.path)


def finish_deletion(path: str, group: int | None = None) -> bool:
    """Whether there was something left of a queue that was deleted at *path*: it is gone now."""
    try:
        directory = files.open_directory(path, group=group)
    except errors.ShmqError:
        return False
    with directory:
        if not _is_remnant(directory):
            return False
        with admin_lock(directory, path):
            if not _is_remnant(directory):
                return False  # somebody makes one here
            _remove(directory, path)
            return True


def _is_remnant(directory: int) -> bool:
    names = set(files.names_in(directory))
    return QUEUE not in names and (DELETED in names or names == {ADMIN})


def _remove(directory: int, path: str) -> None:
    """Everything, under the administrative lock. Before the lock's own file goes, the mark does."""
    _remove_content(directory, path, CHUNKS, CONSUMERS)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ADMIN, dir_fd=directory)
    os.rmdir(path)


def _remove_content(directory: int, path: str, *folders: str) -> None:
    """Of a queue that was deleted, and those folders with it: the mark that says so goes last."""
    for folder in (CHUNKS, CONSUMERS):
        with contextlib.suppress(errors.NotFound):
            fd = files.open_directory(f"{path}/{folder}", above=directory)
            with fd:
                for name in files.names_in(fd):
                    os.unlink(name, dir_fd=fd)
    for folder in (STAGING, ASIDE):
        files.remove_all(directory, path, folder)
    for name in files.names_in(directory):
        if files.MAKING in name:
            os.rmdir(name, dir_fd=directory)  # empty, of whoever was killed when it made a folder
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder, dir_fd=directory)
    for name in (CONTROL, *_REST, DELETED):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
