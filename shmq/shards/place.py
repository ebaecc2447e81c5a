"""The directory of the shards, and the lock under which its map is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.shards import map as maps

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "queue.shmq"
"""The file that makes a directory a queue; see docs/format.md."""
_LOCK = "shards.lock"
MEMBERS = "members"
_A_SHARD = re.compile(r"(?:[A-Za-z0-9_-]{1,64}\.)?[0-9a-f]\.[0-9a-f]{3}")
_OWN = {_LOCK, MEMBERS, maps.FILE, f"{maps.FILE}.new"}


class _Turns:
    """Whose turn it is among the threads of this process: the kernel's lock does not tell them apart."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def renew(self) -> None:
        """In a forked child whoever had it is gone."""
        self.lock = threading.Lock()


_turns = _Turns()
os.register_at_fork(after_in_child=_turns.renew)

_REMOTE = ("csp:", "csp+unix:", "acsp:", "acsp+unix:")
"""How a place at a server begins."""


def checked(path: object) -> str:
    """
    The directory that is meant, absolute.

    Raises:
        TypeError, ValueError: it is no path, or that of a volatile queue or of a server.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={path!r}: the path of a directory is wanted, not {type(path).__name__}")
    place = os.fspath(path)
    if not isinstance(place, str) or not place or place.startswith("shm:"):
        raise ValueError(f"path={place!r}: the path of a directory is wanted; there are no volatile shards")
    if place.startswith(_REMOTE):
        raise ValueError(
            f"path={place!r}: that is at a server, where shmq.open opens one queue; all shards are opened on "
            "the machine where their directory lies"
        )
    return os.path.abspath(os.path.expanduser(place))


def bit_of(shards: object) -> int:
    """
    The number of bits that so many shards have.

    Raises:
        TypeError, ValueError: there cannot be so many.
    """
    if not isinstance(shards, int) or isinstance(shards, bool):
        raise TypeError(f"shards={shards!r}: an int is wanted, not {type(shards).__name__}")
    if not 1 <= shards <= 1 << maps.BIT_MAX or shards & (shards - 1):
        raise ValueError(f"shards={shards}: a power of two from 1 to {1 << maps.BIT_MAX}")
    return shards.bit_length() - 1


def make(path: str) -> None:
    """
    Make the directory, if it is missing.

    Raises:
        NotFound: the directory above it is missing.
        BadFormat: there is a queue, or something that is no directory.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            maps.sync_directory(os.path.dirname(path))
        os.scandir(path).close()
    except FileNotFoundError:
        raise shmq.NotFound(f"cannot make {path}: the directory above it does not exist") from None
    except NotADirectoryError:
        raise shmq.BadFormat(f"cannot make {path}: something is there that is not a directory") from None
    if os.path.exists(os.path.join(path, MARK)):
        raise shmq.BadFormat(f"cannot make shards in {path}: it is a queue already; take another directory")


def check_empty(path: str, prefix: str, bit: int) -> None:
    """
    Refuse a directory without a map in which there is anything but queues that are to be its shards.

    Raises:
        BadFormat: so it is, or other shards are there; nothing was changed.
    """
    wanted = {maps.directory(prefix, bit, index) for index in range(1 << bit)}
    if any(name not in wanted for name in orphans(path)):
        raise no_map(path)
    for name in sorted(os.listdir(path)):
        if name not in _OWN and name not in wanted:
            raise shmq.BadFormat(
                f"cannot make {1 << bit} shards in {path}: there is something else, {name!r} among it; nothing was "
                "changed"
            )


def orphans(path: str) -> list[str]:
    """The queues at *path* that are called as shards are."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = sorted(filter(_A_SHARD.fullmatch, os.listdir(path)))
        return [name for name in names if os.path.exists(os.path.join(path, name, MARK))]
    return []


def no_map(path: str) -> shmq.BadFormat:
    """The error where shards are without the file that says what they are."""
    return shmq.BadFormat(
        f"cannot open {path}: shards of queues are there ({', '.join(orphans(path)[:4])}) without their map, "
        f"{maps.FILE}; nothing was changed: put that file back from a copy, or open each of the queues by itself and "
        "copy what is in it into other shards"
    )


def check_safe(path: str) -> None:
    """
    Refuse what others could have changed.

    Raises:
        Unsafe: so they could.
    """
    found = os.stat(path)
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise shmq.Unsafe(f"cannot open {path}: it is somebody else's directory, or others may write there")


@contextlib.contextmanager
def locked(path: str, *, wait: bool = True) -> Iterator[bool]:
    """As the only one that changes the map; yields False, where it is not to *wait*, and somebody else does."""
    turns = _turns.lock
    if not turns.acquire(blocking=wait):
        yield False
        return
    try:
        fd = maps.open_file(path, _LOCK, os.O_RDWR | os.O_CREAT)
        try:
            yield _lock(fd, wait=wait)
        finally:
            os.close(fd)
    finally:
        turns.release()


def _lock(fd: int, *, wait: bool) -> bool:
    """Whether this process has the lock now: it, and no child that is forked meanwhile."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError):
        return False
    return True


def queues_in(path: str) -> list[str]:
    """
    Every queue there: shards, their dead letters, the seats of groups.

    Raises:
        Unsafe: something else is there.
    """
    found = []
    for folder in (path, os.path.join(path, MEMBERS)):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            place = os.path.join(folder, name)
            if name in _OWN and folder == path:
                continue
            if not os.path.exists(os.path.join(place, MARK)) and os.listdir(place):
                raise shmq.Unsafe(f"cannot delete {path}: there is something else, {name!r}; nothing was deleted")
            found.append(place)
    return found


def remove(path: str) -> None:
    """Take away the directory, in which no queue is any more. The map goes last, so that it can be called again."""
    for folder in (os.path.join(path, MEMBERS), path):
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name not in _OWN:
                os.rmdir(os.path.join(folder, name))  # of a deletion that was interrupted an empty one may stay
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(os.path.join(path, MEMBERS))
    for name in (f"{maps.FILE}.new", maps.FILE, _LOCK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, name))
    os.rmdir(path)
