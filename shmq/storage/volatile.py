"""
Volatile queues: the same directory as any queue's, in POSIX shared memory, gone with its last user.

    /dev/shm/shmq-<uid>/         mode 0700: names in /dev/shm can be guessed, so nobody else may be able to make ours
        NAME.users               an empty file; whoever uses the queue holds a read lock on it
        NAME.queue/              the queue's home, as directory.py describes it

A lock goes with its process, however that ends. Whoever gets the write lock knows that nobody uses the queue: the last
one that leaves, the next that opens the name, and `gc`. He takes the home away, and NAME.users last.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import weakref
from typing import TYPE_CHECKING

from shmq import errors
from shmq.storage import files, spares

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "/dev/shm"  # noqa: S108  # ours below it is checked
PREFIX = "shm:"
FIRST_CHUNK = 256 << 10
"""Chunks grow from here: shared memory is often small."""
SHARE = 8
"""A chunk takes up to this part of what is free, if its message allows."""
REMEDY = "; /dev/shm is full: take messages, or make it larger (docker run --shm-size=2g, or mount -o remount,size=2g)"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_ANONYMOUS = "anonymous."
_USERS, _QUEUE = ".users", ".queue"
_PATIENCE = 30.0
_PAUSE = 0.002


def base() -> str:
    """The directory of this user's volatile queues."""
    return f"{ROOT}/shmq-{os.geteuid()}"


def is_volatile(place: str | None) -> bool:
    """Whether that is the name of a volatile queue, or asks for an anonymous one."""
    return place is None or place.startswith(PREFIX)


def is_inside(path: str) -> bool:
    """Whether that path is in the home of a volatile queue."""
    return path.startswith(f"{base()}/")


def new_name() -> str:
    """A name that nobody can guess."""
    return f"{PREFIX}{_ANONYMOUS}{os.urandom(16).hex()}"


def home_of(place: str) -> str:
    """
    The directory of the volatile queue *place*.

    Raises:
        ValueError: it is no name.
    """
    name = place.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise ValueError(f"{place!r} names no volatile queue: shm: and 1 to 64 of A-Z a-z 0-9 _ . - , no dot in front")
    return f"{base()}/{name}{_QUEUE}"


def _open_base(*, create: bool) -> int | None:
    """A descriptor of `base`, ours alone; None when there is none."""
    path = base()
    if create:
        try:
            files.make_directory(path)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot make {path}: this machine has no {ROOT}") from None
    try:
        fd = files.open_directory(path)
    except errors.NotFound:
        return None
    except errors.BadFormat as problem:
        raise errors.Unsafe(str(problem)) from None
    mode = os.fstat(fd).st_mode & 0o777
    if mode != 0o700:
        os.close(fd)
        raise errors.Unsafe(f"cannot use {path}: its mode is {mode:#o}, and must be 0o700; it was not touched")
    return fd


class Hold:
    """One user of a volatile queue: a process's opening of it. A context of its own in nobody; see `leave`."""

    def __init__(self, place: str, *, create: bool) -> None:
        """
        Become a user of *place*.

        With *create*, whoever finds nobody there is `alone` until he calls `settle`: what dead users left is gone, and
        he makes the queue.

        Raises:
            NotFound: nobody uses it, so there is none, and it was not to be made.
            Unsafe: something about its place could be somebody else's doing.
            Busy: it was being made or taken away all the time.
        """
        self.place = place
        self.path = home_of(place)
        self._name = os.path.basename(self.path).removesuffix(_QUEUE)
        self._base = _open_base(create=create)
        self._fd = -1
        self.alone = False
        try:
            self._enter(create=create)
        except BaseException:
            self._close()
            raise

    def _enter(self, *, create: bool) -> None:
        end = time.monotonic() + _PATIENCE
        while not self._try_enter(create=create):
            if time.monotonic() > end:
                raise errors.Busy(f"cannot open {self.place}: it has been made or taken away by others all the time")
            time.sleep(_PAUSE)

    def _try_enter(self, *, create: bool) -> bool:
        if self._base is None:
            raise self._nothing()
        if create:
            with contextlib.suppress(FileExistsError):
                files.make_file(self._base, self._name + _USERS, b"\0", 0o600, base())
        try:
            self._fd, _ = files.open_file(self._base, self._name + _USERS, base(), writable=True)
        except FileNotFoundError:
            if create:
                return False
            raise self._nothing() from None
        if spares.lock_alone(self._fd):
            if self._is_named():
                self._remove_home()
                if create:
                    self.alone = True
                    return True
                os.unlink(self._name + _USERS, dir_fd=self._base)
                raise self._nothing()
        elif spares.lock_as_mapper(self._fd) and self._is_named() and os.path.isdir(self.path):
            return True
        os.close(self._fd)
        self._fd = -1
        return False

    def _nothing(self) -> errors.NotFound:
        return errors.NotFound(f"cannot open {self.place}: there is no such volatile queue; it ends with its last user")

    def _is_named(self) -> bool:
        """Whether the file that is locked is the one of that name."""
        with contextlib.suppress(FileNotFoundError):
            now = os.stat(self._name + _USERS, dir_fd=self._base, follow_symlinks=False)
            return now.st_ino == os.fstat(self._fd).st_ino
        return False

    def _remove_home(self) -> None:
        """Below a directory that only we can write to. Nobody uses it, as the lock says."""
        if not os.path.islink(self.path):
            self._remove_content()
        if os.path.lexists(self.path):
            raise errors.Unsafe(f"cannot take {self.path} away, which nobody uses")

    def _remove_content(self) -> None:
        # Without shutil: it costs everybody who imports us, and cannot be imported when the interpreter ends.
        with contextlib.suppress(OSError):  # the caller looks what is left
            for folder, folders, names in os.walk(self.path, topdown=False):
                for name in names:
                    os.unlink(f"{folder}/{name}")
                for name in folders:
                    os.rmdir(f"{folder}/{name}")
            os.rmdir(self.path)

    def settle(self) -> None:
        """The queue is made: others may come in."""
        if self.alone:
            spares.lock_as_mapper(self._fd)
            self.alone = False

    def leave(self) -> None:
        """One user fewer; with the last one the queue is gone. Forked children count as long as they live."""
        if self._fd < 0:
            return
        # A forked child shares this lock and may go on, so whether anybody is left is asked through a new opening.
        os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(OSError, errors.ShmqError):
            self._take_away()
        self._close()

    def _take_away(self) -> bool:
        """Take the queue away, if nobody uses it: whether that was so."""
        assert self._base is not None  # noqa: S101  # somebody has been in
        self._fd, _ = files.open_file(self._base, self._name + _USERS, base(), writable=True)
        if not spares.lock_alone(self._fd) or not self._is_named():
            return False
        self._remove_home()
        os.unlink(self._name + _USERS, dir_fd=self._base)
        return True

    def _close(self) -> None:
        for fd in (self._fd, self._base):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._fd, self._base = -1, None

    def leave_with(self, user: object) -> None:
        """Leave when *user* is collected or the interpreter ends, if not before."""
        weakref.finalize(user, self.leave)


def _names() -> Iterator[str]:
    fd = _open_base(create=False)
    if fd is not None:
        try:
            yield from sorted(name.removesuffix(_USERS) for name in files.names_in(fd) if name.endswith(_USERS))
        finally:
            os.close(fd)


def names() -> list[str]:
    """Every volatile queue of this user, as `shmq.open` takes it; also those that nobody uses any more."""
    return [PREFIX + name for name in _names()]


def gc(*, anonymous_only: bool = False) -> list[str]:
    """Take away what nobody uses any more, because its users were killed: its names."""
    gone = []
    for place in names():
        if anonymous_only and not place.startswith(PREFIX + _ANONYMOUS):
            continue
        with contextlib.suppress(FileNotFoundError, ValueError):
            if _Dead(place).taken_away():
                gone.append(place)
    return gone


class _Dead(Hold):
    """A queue that may have no users."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.path = home_of(place)
        self._name = os.path.basename(self.path).removesuffix(_QUEUE)
        self._base = _open_base(create=False)
        self._fd = -1

    def taken_away(self) -> bool:
        """Take it away, if nobody uses it: whether that was so."""
        try:
            return self._base is not None and self._take_away()
        finally:
            self._close()
