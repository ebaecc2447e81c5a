"""
Names of queues as they stand in a URI, and the directories that they are: below one root, and nowhere else.

A name is one to four parts, `orders` or `shop/orders`, percent-decoded once. It is walked part by part, through no
link, through no directory that others can write to, and through no queue. Whatever is wrong with a name, the answer is
the same: there is no such queue.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from urllib.parse import unquote

from shmq import errors

PARTS = 4
_PART = re.compile(r"[^\x00-\x20./\\\x7f][^\x00-\x1f/\\\x7f]{0,99}")
_SHOWN = 200
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.EROFS}
)
"""What says that there is no such directory for us."""
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class NoQueue(errors.NotFound):
    """What was asked for is not there, for whoever asked: the text has the name as it was given, and nothing else."""


def not_found(name: str) -> NoQueue:
    """The one answer: it tells the name that was asked for, and nothing of the disk."""
    return NoQueue(f"there is no queue {name[:_SHOWN]!r}")


def parts_of(name: str) -> tuple[str, ...]:
    """
    Return the parts of *name*.

    Raises:
        NotFound: it has none or more than four, or one that no queue here can have.
    """
    parts = tuple(unquote(part, errors="strict") for part in _split(name))
    if not all(_PART.fullmatch(part) for part in parts):
        raise not_found(name)
    return parts


def _split(name: str) -> list[str]:
    parts = name.split("/")
    if not 1 <= len(parts) <= PARTS or len(name) > 1 << 12:
        raise not_found(name)
    try:
        for part in parts:
            unquote(part, errors="strict")
            part.encode()
    except UnicodeError:
        raise not_found(name) from None
    return parts


def path_of(root: str, name: str, *, make: bool = False) -> str:
    """
    Return the path of the directory called *name* below *root*, which is there; with *make*, all above it is.

    Nobody but us (and root) can write to any directory on the way, so what it leads to does not change behind us.

    Raises:
        NotFound: there is none, or not one that may be served.
        OSError: that cannot be found out now.
    """
    parts = parts_of(name)
    above = os.open(root, _FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts[:-1]:
            if make:
                _make(part, above)
            below = os.open(part, _FLAGS, dir_fd=above)
            os.close(above)
            above = below
            _check(above, name)
            if any(entry in _QUEUES or entry.endswith(_FOREIGN) for entry in os.listdir(above)):
                raise not_found(name)
        if not make:
            last = os.open(parts[-1], _FLAGS, dir_fd=above)
            try:
                _check(last, name)
            finally:
                os.close(last)
    except OSError as problem:
        if problem.errno not in _ABSENT:  # it may be there: this machine cannot look now
            raise
        raise not_found(name) from None
    finally:
        os.close(above)
    return os.path.join(root, *parts)


_QUEUES = frozenset({"queue.shmq", "deleted.shmq"})
_FOREIGN = (".cq4", ".cq4t")


def _make(part: str, above: int) -> None:
    try:
        os.mkdir(part, 0o700, dir_fd=above)
    except FileExistsError:
        return


def _check(directory: int, name: str) -> None:
    """
    Refuse a directory that is somebody else's, or that others can write to.

    Raises:
        NotFound: it is.
    """
    info = os.fstat(directory)
    if info.st_uid not in (os.geteuid(), 0) or info.st_mode & _WRITABLE:
        raise not_found(name)
