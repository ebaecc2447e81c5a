"""The directory of the levels: a queue for each, named 0, 1, ..., and `levels.json`, which says how many there are."""

from __future__ import annotations

import contextlib
import json
import os
import stat

import shmq

LEVELS_MAX = 8
_FILE = "levels.json"
_VERSION = 1

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
        raise ValueError(f"path={place!r}: the path of a directory is wanted; there are no volatile priorities")
    if place.startswith(_REMOTE):
        raise ValueError(
            f"path={place!r}: that is at a server, where shmq.open opens one queue; all levels are opened on "
            "the machine where their directory lies"
        )
    return os.path.abspath(os.path.expanduser(place))


def check_levels(levels: object) -> int:
    """*levels*, if so many can be made."""
    if not isinstance(levels, int) or isinstance(levels, bool):
        raise TypeError(f"levels={levels!r}: an int is wanted, not {type(levels).__name__}")
    if not 2 <= levels <= LEVELS_MAX:
        raise ValueError(f"levels={levels}: from 2 to {LEVELS_MAX}; for one level take shmq.open")
    return levels


def level_of(path: str, level: int) -> str:
    """The path of that level's queue."""
    return os.path.join(path, str(level))


def find(path: str, levels: int | None, *, create: bool) -> int:
    """
    How many levels there are at *path*; made there, if there is nothing and it is to be made.

    Who makes it, and is killed at any moment, has made it or has not; two at the same time make one.

    Raises:
        NotFound: there is nothing, and it was not to be made.
        Mismatch: there is another number of levels than *levels*.
        BadFormat: something else is there, or what a newer shmq has made.
        Unsafe: the directory is somebody else's, or others may write there.
    """
    found = _read(path)
    if found is None:
        if not create:
            raise shmq.NotFound(f"cannot open {path}: there are no priorities, and create=False")
        _make(path, 3 if levels is None else levels)
        found = _read(path)
        assert found is not None  # noqa: S101  # just linked
    if levels is not None and levels != found:
        raise shmq.Mismatch(
            f"cannot open {path} with levels={levels}: it was made with levels={found}; leave the argument out, or use "
            "another path"
        )
    return found


def _read(path: str) -> int | None:
    try:
        with open(os.path.join(path, _FILE), "rb") as file:
            _check_safe(path)
            content = file.read(4096)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        told = json.loads(content)
        version, levels = told["version"], told["levels"]
    except (ValueError, KeyError, TypeError):
        raise shmq.BadFormat(f"cannot open {path}: its {_FILE} does not say how many levels there are") from None
    if version != _VERSION or not isinstance(levels, int) or not 2 <= levels <= LEVELS_MAX:
        raise shmq.BadFormat(f"cannot open {path}: its {_FILE} is of version {version!r}, with levels {levels!r}")
    return levels


def _check_safe(path: str) -> None:
    found = os.stat(path)
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise shmq.Unsafe(f"cannot open {path}: it is somebody else's directory, or others may write there")


def _make(path: str, levels: int) -> None:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        strange = [name for name in os.listdir(path) if name != _FILE and not name.startswith(f"{_FILE}.")]
    except FileNotFoundError:
        raise shmq.NotFound(f"cannot make {path}: the directory above it does not exist") from None
    except NotADirectoryError:
        raise shmq.BadFormat(f"cannot make {path}: something is there that is not a directory") from None
    if strange:
        raise shmq.BadFormat(
            f"cannot make {path}: there is something else, {min(strange)!r} among it; nothing was changed"
        )
    _check_safe(path)
    _link(path, json.dumps({"version": _VERSION, "levels": levels}).encode())


def _link(path: str, content: bytes) -> None:
    """Write the file under another name, and link it whole; whoever comes second uses the first one's."""
    name = os.path.join(path, f"{_FILE}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, content)
            os.fsync(fd)
        finally:
            os.close(fd)
        with contextlib.suppress(FileExistsError):
            os.link(name, os.path.join(path, _FILE))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    _sync(path)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def queues_in(path: str, levels: int) -> list[str]:
    """
    Every queue there, the levels and their dead letters.

    Raises:
        Unsafe: something else is there.
    """
    found = []
    own = {str(level) for level in range(levels)}
    for name in sorted(os.listdir(path)):
        if name == _FILE or name.startswith(f"{_FILE}."):
            continue
        place = os.path.join(path, name)
        if name.partition(".")[0] not in own and not os.path.exists(os.path.join(place, "queue.shmq")):
            raise shmq.Unsafe(f"cannot delete {path}: there is something else, {name!r}; nothing was deleted")
        found.append(place)
    return found


def remove(path: str) -> None:
    """Take away the directory, in which no queue is any more, and what the killed have left there."""
    for name in os.listdir(path):
        if name.startswith(f"{_FILE}."):
            os.unlink(os.path.join(path, name))
        elif name != _FILE:
            os.rmdir(os.path.join(path, name))  # of a deletion that was interrupted an empty directory may stay
    os.unlink(os.path.join(path, _FILE))
    os.rmdir(path)
