"""
Volatile queues: the same directory as any queue's, in POSIX shared memory, gone with its last user.

    /dev/shm/shmq-<uid>/         mode 0700: names in /dev/shm can be guessed, so nobody else may be able to make ours
        NAME.users               an empty file; whoever uses the queue holds a read lock on it
        NAME.queue/              the queue's home, as directory.py describes it

A lock goes with its process, however that ends. Whoever gets the write lock knows that nobody uses the queue: the last
one that leaves, the next that opens the name, and `gc`. It takes the home away, and NAME.users last.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import weakref
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import files, shm, spares

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "shm:"
FIRST_CHUNK = 256 << 10
"""Chunks grow from here: shared memory is often small."""
SHARE = 8
"""A chunk takes up to this part of what is free, if its message allows."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_ANONYMOUS = "anonymous."
_USERS, _QUEUE = ".users", ".queue"
QUEUE_FILE = "queue.shmq"
_TO, _FOR = "to", "for"
"""What a line in NAME.users begins with, behind the byte that is locked: a queue that this one moves messages to, or
one, with its id, that moves messages here."""
SWEEP_SECONDS = 60.0
"""How often a process that makes anonymous queues looks for those that nobody uses any more."""
_NOTES_MAX = 1 << 20
_PATIENCE = 30.0
_PAUSE = 0.002


def is_volatile(place: str | None) -> bool:
    """Whether that is the name of a volatile queue, or asks for an anonymous one."""
    return place is None or place.startswith(PREFIX)


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
        raise ValueError(f"{place!r} names no volatile queue: shm: and 1 to 200 of A-Z a-z 0-9 _ . - , no dot in front")
    return f"{shm.base()}/{name}{_QUEUE}"


def _open_base(*, create: bool) -> _native.Fd | None:
    """A descriptor of `base`, ours alone; None when there is none."""
    path = shm.base()
    if create:
        try:
            files.make_directory(path)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot make {path}: this machine has no {shm.ROOT}") from None
    try:
        fd = files.open_directory(path)
    except errors.NotFound:
        return None
    except errors.BadFormat as problem:
        raise errors.Unsafe(str(problem)) from None
    mode = os.fstat(fd).st_mode & 0o777
    if mode != 0o700:
        fd.close()
        raise errors.Unsafe(f"cannot use {path}: its mode is {mode:#o}, and must be 0o700; it was not touched")
    return fd


class Hold:
    """One user of a volatile queue: a process's opening of it. A context of its own in nobody; see `leave`."""

    def __init__(self, place: str) -> None:
        """No user yet: see `enter`."""
        self.place = place
        self.path = home_of(place)
        self._name = os.path.basename(self.path).removesuffix(_QUEUE)
        self._base: _native.Fd | None = None
        self._users: _native.Fd | None = None
        self.gone: list[str] = []
        """Other queues that went with this one."""
        self.alone = False

    def enter(self, *, create: bool) -> None:
        """
        Become a user of *place*.

        With *create*, whoever finds nobody there is `alone` until it calls `settle`: what dead users left is gone, and
        it makes the queue.

        Raises:
            NotFound: nobody uses it, so there is none, and it was not to be made.
            Unsafe: something about its place could be somebody else's doing.
            Busy: it was being made or taken away all the time.
        """
        self._base = _open_base(create=create)
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
                files.make_file(self._base, self._name + _USERS, b"\0", 0o600, shm.base())
        try:
            self._users = files.open_file(self._base, self._name + _USERS, shm.base(), writable=True)[0]
        except FileNotFoundError:
            if create:
                return False
            raise self._nothing() from None
        if spares.lock_alone(self._fd):
            if self._is_named():
                if self._is_kept():
                    spares.lock_as_mapper(self._fd)
                    return True
                self._remove_home()
                self._release_targets()
                os.ftruncate(self._fd, 1)
                if create:
                    self.alone = True
                    return True
                os.unlink(self._name + _USERS, dir_fd=self._base)
                raise self._nothing()
        elif spares.lock_as_mapper(self._fd) and self._is_named() and os.path.isdir(self.path):
            return True
        self._users.close()
        return False

    @property
    def _fd(self) -> _native.Fd:
        assert self._users is not None  # noqa: S101  # it has tried to enter
        return self._users

    def fileno(self) -> int:
        """The descriptor by which it is locked, for whoever is to share the lock."""
        return self._fd.fileno()

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
        if self._base is None:
            return
        # A forked child shares this lock and may go on, so whether anybody is left is asked through a new opening.
        if self._users is not None:
            self._users.close()
        with contextlib.suppress(OSError, errors.ShmqError):
            self._take_away()
        self._close()

    def _take_away(self) -> bool:
        """Take the queue away, if nobody uses it: whether that was so."""
        assert self._base is not None  # noqa: S101  # somebody has been in
        self._users = files.open_file(self._base, self._name + _USERS, shm.base(), writable=True)[0]
        with self._users:  # nobody can come in as long as it is locked, also when a signal's handler raises here
            if not spares.lock_alone(self._fd) or not self._is_named() or self._is_kept():
                return False
            self._remove_home()
            os.unlink(self._name + _USERS, dir_fd=self._base)
            self._release_targets()
            return True

    # ---- queues that last as long as others
    def _notes(self, kind: str) -> list[list[str]]:
        """What `attach` has written of that kind."""
        written = os.pread(self._fd, _NOTES_MAX, 1).decode("ascii", "replace")
        return [words[1:] for line in written.splitlines() if (words := line.split()) and words[0] == kind]

    def _is_kept(self) -> bool:
        """Whether a queue that is used moves messages here: then this one lasts, though nobody has it open."""
        return os.path.isdir(self.path) and any(len(note) == 2 and _is_used(*note) for note in self._notes(_FOR))

    def _release_targets(self) -> None:
        """The queues that lasted as long as this one, which is gone, go too, unless somebody uses them."""
        for name, *_ in self._notes(_TO):
            with contextlib.suppress(OSError, ValueError, errors.ShmqError):
                target = _Dead(PREFIX + name)
                if target.taken_away():
                    self.gone += [target.place, *target.gone]

    def _close(self) -> None:
        for fd in (self._users, self._base):
            if fd is not None:
                fd.close()
        self._base = None

    def leave_with(self, user: object) -> None:
        """Leave when *user* is collected or the interpreter ends, if not before."""
        weakref.finalize(user, self.leave)


def _is_used(name: str, queue_id: str) -> bool:
    """Whether somebody has the queue of that name and id open."""
    with contextlib.suppress(OSError, ValueError, errors.ShmqError):
        home = home_of(PREFIX + name)
        with open(f"{shm.base()}/{name}{_USERS}", "rb") as users, open(f"{home}/{QUEUE_FILE}", "rb") as file:
            found, _ = _native.check_queue(file.read(_native.PAGE_BYTES), home)
            return spares.is_locked(users.fileno()) and found.hex() == queue_id
    return False


def exists(place: str) -> bool:
    """Whether there is a queue of that name, used or kept or left behind."""
    return os.path.isdir(home_of(place))


def attach(target: str, source: str, queue_id: str) -> None:
    """
    Have the queue *target* last as long as *source*, of that id, has users; both are open here.

    Both say so behind the byte that is locked: the target, so that it is not taken away before; and the source, so that
    whoever takes it away takes the target, too.
    """
    to, source = target.removeprefix(PREFIX), source.removeprefix(PREFIX)
    for name, note in ((source, f"{_TO} {to}\n"), (to, f"{_FOR} {source} {queue_id}\n")):
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = _native.Fd.of(os.open, f"{shm.base()}/{name}{_USERS}", flags)
        with fd:
            if note.encode() not in os.pread(fd, _NOTES_MAX, 1):
                os.write(fd, note.encode())


def _names() -> Iterator[str]:
    fd = _open_base(create=False)
    if fd is not None:
        with fd:
            yield from sorted(name.removesuffix(_USERS) for name in files.names_in(fd) if name.endswith(_USERS))


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
            dead = _Dead(place)
            if dead.taken_away():
                gone += [place, *dead.gone]
    return gone


_swept_at: float | None = None


def sweep() -> None:
    """
    Take away anonymous queues that nobody uses any more: once a process, and then once in SWEEP_SECONDS.

    Whoever makes one calls it. To look at all there are each time would make many of them quadratic.
    """
    global _swept_at  # noqa: PLW0603
    now = time.monotonic()
    if _swept_at is None or now - _swept_at >= SWEEP_SECONDS:
        _swept_at = now
        gc(anonymous_only=True)


class _Dead(Hold):
    """A queue that may have no users."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._base = _open_base(create=False)

    def taken_away(self) -> bool:
        """Take it away, if nobody uses it: whether that was so."""
        try:
            return self._base is not None and self._take_away()
        finally:
            self._close()
