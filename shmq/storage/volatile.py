"""
Volatile queues: the same directory as any queue's, in POSIX shared memory, gone with its last user.

    /dev/shm/shmq-<uid>/         mode 0700: names in /dev/shm can be guessed, so nobody else may be able to make ours
        NAME.users               an empty file; whoever uses the queue holds a read lock on it
        NAME.queue/              the queue's home, as directory.py describes it
    /dev/shm/shmq-g<gid>/        the same for a group of users, mode 2770: nobody outside can make one of that group

A lock goes with its process, however that ends. Whoever gets the write lock knows that nobody uses the queue: the last
one that leaves, the next that opens the name, and `gc`. It takes the home away, and NAME.users last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import weakref

from shmq import _native, errors, given, user_group
from shmq.hints import TYPE_CHECKING
from shmq.options import Options
from shmq.storage import files, shm, spares

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PREFIX = "shm:"
FIRST_CHUNK = 256 << 10
"""Chunks grow from here: shared memory is often small. Those of anonymous queues begin as small as a chunk can be."""
SHARE = 8
"""A chunk takes up to this part of what is free, if its message allows."""
_NAME_LENGTH = 200
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


def place_of(place: str | None, group: int | None) -> str:
    """
    The name of a volatile queue, shm:NAME, or shm:GROUP:NAME with a group's number; a new one for None.

    Raises:
        ValueError: it is no name, or names another group than *group*, or one that this machine does not know.
    """
    name = f"{shm.ANONYMOUS}{os.urandom(16).hex()}" if place is None else place.removeprefix(PREFIX)
    named, colon, rest = name.rpartition(":")
    if colon:
        shared = user_group.number(int(named) if named.isdecimal() and named.isascii() else named)
        if group not in (None, shared):
            raise ValueError(f"{place!r} names {user_group.told(shared)}, and group={group} was given")
        group = shared
    made = f"{PREFIX}{rest}" if group is None else f"{PREFIX}{group}:{rest}"
    home_of(made)  # refuses what is no name
    if place is None:
        sweep()
    return made


def group_of(place: str) -> int | None:
    """The group of users that shares the volatile queue of that name; None for one user's."""
    group, colon, _ = place.removeprefix(PREFIX).rpartition(":")
    return int(group) if colon and group.isdecimal() else None


def shared_by(options: Options | None, group: int | None) -> Options | None:
    """What to make a queue with that its place says is that group's."""
    if group is None or (options is not None and options.group is not None):
        return options
    return Options(group=group) if options is None else options.shared_by(group)


def beside(place: str, name: str) -> str:
    """The volatile queue of that name, of the same user or group as *place*."""
    name = name.removeprefix(PREFIX)
    group = group_of(place)
    return f"{PREFIX}{name}" if group is None or ":" in name else f"{PREFIX}{group}:{name}"


def home_of(place: str) -> str:
    """
    The directory of the volatile queue *place*.

    Raises:
        ValueError: it is no name.
    """
    group, colon, name = place.removeprefix(PREFIX).rpartition(":")
    if not given.is_name(name, _NAME_LENGTH) or (colon and not group.isdecimal()):
        raise ValueError(
            f"{place!r} names no volatile queue: shm: and 1 to 200 of A-Z a-z 0-9 _ . - , no dot in front; or "
            "shm:GROUP: and such a name"
        )
    return f"{shm.base(int(group) if colon else None)}/{name}{_QUEUE}"


def _open_base(base: str, *, create: bool) -> _native.Fd | None:
    """A descriptor of that directory, ours or our group's alone; None when there is none."""
    group = shm.group_of(base)
    if create:
        try:
            files.make_directory(base, group=group)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot make {base}: this machine has no {shm.ROOT}") from None
    try:
        fd = files.open_directory(base, group=group)
    except errors.NotFound:
        return None
    except errors.BadFormat as problem:
        raise errors.Unsafe(str(problem)) from None
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    wanted = 0o700 if group is None else user_group.DIRECTORY_MODE
    if (mode if group is not None else mode & 0o777) != wanted:
        fd.close()
        raise errors.Unsafe(f"cannot use {base}: its mode is {mode:#o}, and must be {wanted:#o}; it was not touched")
    return fd


class Hold:
    """One user of a volatile queue: a process's opening of it. A context of its own in nobody; see `leave`."""

    def __init__(self, place: str) -> None:
        """No user yet: see `enter`."""
        self.place = place
        self.path = home_of(place)
        self._where = os.path.dirname(self.path)
        self._name = os.path.basename(self.path).removesuffix(_QUEUE)
        self._base: _native.Fd | None = None
        self._users: _native.Fd | None = None
        self._held: object = None
        """What keeps our lock on NAME.users, here and in every child that is forked, when no descriptor does."""
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
        self._base = _open_base(self._where, create=create)
        end = time.monotonic() + _PATIENCE
        while not self._try_enter(create=create):
            if time.monotonic() > end:
                raise errors.Busy(f"cannot open {self.place}: others keep making it and taking it away")
            time.sleep(_PAUSE)

    def _try_enter(self, *, create: bool) -> bool:
        if self._base is None:
            raise self._nothing()
        if create:
            with contextlib.suppress(FileExistsError):
                files.make_file(self._base, self._name + _USERS, b"", self._where)
        try:
            self._users = files.open_file(self._base, self._name + _USERS, self._where, writable=True)[0]
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
                os.ftruncate(self._fd, 0)
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

    def again(self) -> _native.Fd:
        """A descriptor that carries a lock of its own, for whoever is to hold one, too."""
        with self._opened_base() as base:
            fd = files.open_file(base, self._name + _USERS, self._where, writable=True)[0]
        spares.lock_as_mapper(fd)  # as ours, beside which it can be
        return fd

    def _nothing(self) -> errors.NotFound:
        return errors.NotFound(f"cannot open {self.place}: there is no such volatile queue; it ends with its last user")

    def _is_named(self) -> bool:
        """Whether the file that is locked is the one of that name."""
        with contextlib.suppress(FileNotFoundError):
            now = os.stat(self._name + _USERS, dir_fd=self._base, follow_symlinks=False)
            return now.st_ino == os.fstat(self._fd).st_ino
        return False

    def _remove_home(self) -> None:
        """Below a directory that only we, or our group, can write to. Nobody uses it, as the lock says."""
        assert self._base is not None  # noqa: S101  # it has tried to enter
        with contextlib.suppress(OSError, errors.ShmqError):  # we look what is left
            files.remove_all(self._base, self._where, os.path.basename(self.path))
        if os.path.lexists(self.path):
            raise errors.Unsafe(f"cannot take {self.path} away, which nobody uses")

    def settle(self) -> None:
        """The queue is made: others may come in. From here on no descriptor is needed."""
        if self.alone:
            spares.lock_as_mapper(self._fd)
            self.alone = False
        if _native.keeps_locks(self._fd):
            self._held = _native.holder(self._fd)
            self._close()

    def leave(self) -> None:
        """One user fewer; with the last one the queue is gone. Forked children count as long as they live."""
        if self._base is None and self._held is None:
            return
        if self._base is None:
            with contextlib.suppress(OSError, errors.ShmqError):
                self._base = _open_base(self._where, create=False)
        # A forked child shares this lock and may go on, so whether anybody is left is asked through a new opening.
        self._held = None
        if self._users is not None:
            self._users.close()
        take_back()
        if self._base is not None:
            with contextlib.suppress(OSError, errors.ShmqError):
                self._take_away()
        self._close()

    def _opened_base(self) -> _native.Fd:
        base = _open_base(self._where, create=False)
        if base is None:
            raise self._nothing()
        return base

    def _take_away(self) -> bool:
        """Take the queue away, if nobody uses it: whether that was so."""
        assert self._base is not None  # noqa: S101  # somebody has been in
        self._users = files.open_file(self._base, self._name + _USERS, self._where, writable=True)[0]
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
        return os.path.isdir(self.path) and any(len(note) == 2 and self._is_used(*note) for note in self._notes(_FOR))

    def _is_used(self, name: str, queue_id: str) -> bool:
        """Whether somebody has the queue of that name and id open."""
        assert self._base is not None  # noqa: S101  # it has tried to enter
        with contextlib.suppress(OSError, ValueError, errors.ShmqError):
            home = home_of(beside(self.place, name))
            users, _ = files.open_file(self._base, f"{name}{_USERS}", self._where, writable=False)
            with users, files.open_directory(home, above=self._base) as folder:
                file, _ = files.open_file(folder, QUEUE_FILE, home, writable=False)
                with file:
                    found, _ = _native.check_queue(os.pread(file, _native.PAGE_BYTES, 0), home)
                    return spares.is_locked(users.fileno()) and found.hex() == queue_id
        return False

    def _release_targets(self) -> None:
        """The queues that lasted as long as this one, which is gone, go too, unless somebody uses them."""
        for name, *_ in self._notes(_TO):
            with contextlib.suppress(OSError, ValueError, errors.ShmqError):
                target = _Dead(beside(self.place, name))
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


# ---------------------------------------------------------------- to processes that are started
_lent: list[tuple[weakref.ref[Any], _native.Fd]] = []


def lend(hold: Hold, process: Any) -> int:
    """
    A descriptor with a lock like that of *hold*, to be passed on to that process, a Popen of multiprocessing's.

    It is closed here as soon as somebody looks whether the process has begun: at the latest when a hold ends.
    """
    take_back()
    fd = hold.again()
    _lent.append((weakref.ref(process), fd))
    return fd.fileno()


def take_back() -> None:
    """Close what was lent to processes that have begun, and have it themselves by now."""
    _lent[:] = [(to, fd) for to, fd in _lent if (process := to()) is not None and process.finalizer is None]


os.register_at_fork(after_in_child=_lent.clear)


def exists(place: str) -> bool:
    """Whether there is a queue of that name, used or kept or left behind."""
    return os.path.isdir(home_of(place))


def attach(target: str, source: str, queue_id: str) -> None:
    """
    Have the queue *target* last as long as *source*, of that id, has users; both are open here.

    Both say so behind the byte that is locked: the target, so that it is not taken away before; and the source, so that
    whoever takes it away takes the target, too.
    """
    where = os.path.dirname(home_of(target))
    if where != os.path.dirname(home_of(source)):
        raise errors.Mismatch(f"cannot have {target} last as long as {source}: they are not of the same user or group")
    to, of = (os.path.basename(home_of(each)).removesuffix(_QUEUE) for each in (target, source))
    base = _open_base(where, create=False)
    if base is None:
        raise errors.NotFound(f"cannot open {target}: its directory was removed")
    with base:
        for name, note in ((of, f"{_TO} {to}\n"), (to, f"{_FOR} {of} {queue_id}\n")):
            fd, _ = files.open_file(base, f"{name}{_USERS}", where, writable=True)
            with fd:
                if note.encode() not in os.pread(fd, _NOTES_MAX, 1):
                    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
                    os.write(fd, b"\n" + note.encode())  # the first byte is the one that is locked


def _bases() -> Iterator[str]:
    """The directories of this user's volatile queues, and of those of the groups it is in."""
    yield shm.base()
    with contextlib.suppress(FileNotFoundError), files.open_plainly(shm.ROOT) as fd:
        for name in sorted(files.names_in(fd)):
            group = shm.group_of(f"{shm.ROOT}/{name}")
            if group is not None and not user_group.refusal(group):
                yield f"{shm.ROOT}/{name}"


def _names(base: str) -> Iterator[str]:
    fd = _open_base(base, create=False)
    if fd is not None:
        group = shm.group_of(base)
        prefix = PREFIX if group is None else f"{PREFIX}{group}:"
        with fd:
            for name in sorted(files.names_in(fd)):
                if name.endswith(_USERS):
                    yield prefix + name.removesuffix(_USERS)


def names() -> list[str]:
    """Every volatile queue of this user and its groups, as `shmq.open` takes it; also what nobody uses any more."""
    found: list[str] = []
    for base in _bases():
        with contextlib.suppress(*(() if shm.group_of(base) is None else (errors.Unsafe, PermissionError))):
            found += _names(base)
    return found


def gc(*, anonymous_only: bool = False) -> list[str]:
    """Take away what nobody uses any more, because its users were killed: its names."""
    gone = []
    for place in names():
        if anonymous_only and not place.rpartition(":")[2].startswith(shm.ANONYMOUS):
            continue
        with contextlib.suppress(FileNotFoundError, ValueError):
            dead = _Dead(place)
            if dead.taken_away():
                gone += [place, *dead.gone]
    return gone


def unused() -> list[str]:
    """The names that `gc` would take away now."""
    found = []
    for place in names():
        with contextlib.suppress(FileNotFoundError, ValueError):
            if _Dead(place).is_unused():
                found.append(place)
    return found


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


def _forget_sweep() -> None:
    """In a forked child, which is a process of its own."""
    global _swept_at  # noqa: PLW0603
    _swept_at = None


os.register_at_fork(after_in_child=_forget_sweep)


class _Dead(Hold):
    """A queue that may have no users."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._base = _open_base(self._where, create=False)

    def is_unused(self) -> bool:
        """Whether `taken_away` would take it away now."""
        try:
            if self._base is None:
                return False
            self._users = files.open_file(self._base, self._name + _USERS, self._where, writable=False)[0]
            return not spares.is_locked(self._fd.fileno()) and self._is_named() and not self._is_kept()
        finally:
            self._close()

    def taken_away(self) -> bool:
        """Take it away, if nobody uses it: whether that was so."""
        try:
            return self._base is not None and self._take_away()
        finally:
            self._close()
