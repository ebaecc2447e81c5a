"""
Names of queues as clients say them, and the directories that they are: below one root, and nowhere else.

A name is one to four parts, `orders` or `shop/orders`. It is walked part by part, through no link, no queue, and no
directory to which others can write. Whatever is wrong with a name, the answer is the same: there is no such queue.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from shmq import errors

PARTS = 4
MARK = "queue.shmq"
MOST = 10_000
"""Names in one list."""
_PART = re.compile(r"[A-Za-z0-9_@+=,:-][A-Za-z0-9_@+=,:. -]{0,199}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SHOWN = 200


class NoSuchQueue(errors.NotFound):
    """There is no queue of that name, or none for whoever asks. The text has the name, and nothing of the disk."""


def not_found(name: str) -> NoSuchQueue:
    """The one answer."""
    return NoSuchQueue(f"there is no queue {name[:_SHOWN]!r} here")


def no_right(right: str, name: str) -> NoSuchQueue:
    """For whoever may do something with it, and not that."""
    return NoSuchQueue(f"that needs the right {right!r} to {name[:_SHOWN]!r}, and you have it not")


def parts_of(name: str) -> list[str]:
    """
    What a name consists of.

    Raises:
        NotFound: no queue can be called so.
    """
    parts = name.split("/")
    if len(parts) > PARTS or not all(map(_PART.fullmatch, parts)):
        raise not_found(name)
    return parts


def path_of(root: str, name: str) -> str:
    """
    The directory of the queue called *name* below *root*, which is absolute.

    Raises:
        NotFound: there is none, or none that may be served.
    """
    parts = parts_of(name)
    above = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if _is_queue(above) or os.fstat(above).st_mode & _OTHERS:
                raise not_found(name)
            below = os.open(part, _DIRECTORY, dir_fd=above)
            os.close(above)
            above = below
        if not _is_queue(above):
            raise not_found(name)
    except OSError:
        raise not_found(name) from None
    finally:
        os.close(above)
    return f"{root}/{'/'.join(parts)}"


def below(root: str, name: str) -> list[str]:
    """
    The queue *name* itself, or all queues below a directory of that name; "" is the root. In order.

    Raises:
        NotFound: there is no such directory.
        TooMany: there are more than `MOST`.
    """
    parts = parts_of(name) if name else []
    found: list[str] = []
    try:
        top = _walk(os.open(root, _DIRECTORY & ~os.O_NOFOLLOW), parts)
    except OSError:
        raise not_found(name) from None
    _collect(top, parts, found)
    return sorted(found)


def _walk(above: int, parts: list[str]) -> int:
    """The directory at the end of the way. Closes what it is given."""
    for part in parts:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=above)
        finally:
            os.close(above)
        above = below
    return above


def _collect(at: int, parts: list[str], found: list[str]) -> None:
    """Add what is there and below. Closes *at*."""
    try:
        if _is_queue(at):
            found.append("/".join(parts))
        elif len(parts) < PARTS and not os.fstat(at).st_mode & _OTHERS:
            for part in sorted(filter(_PART.fullmatch, os.listdir(at))):
                with contextlib.suppress(NotADirectoryError, FileNotFoundError, PermissionError, OSError):
                    _collect(os.open(part, _DIRECTORY, dir_fd=at), [*parts, part], found)
    finally:
        os.close(at)
    if len(found) > MOST:
        raise errors.TooMany(f"there are more than {MOST:,} queues here: ask for those below one name")


def _is_queue(at: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(MARK, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
