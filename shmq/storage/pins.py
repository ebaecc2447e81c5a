"""
What holds chunks back under every kind of retention: something with a place, behind which nothing is retired.

    consumers/<name>.pin     a reader's: 8 bytes, the index that it has not passed; its process holds an OFD lock on
                             it. Without that lock it is nobody's, and whoever retires next removes it
    consumers/<name>.hold    of a consumer name: 8 bytes that say so; its checkpoint is the place, whether anybody has
                             it open or not. Or 8 others, which say that it holds nothing: neither retention nor bounds
                             look at it, so it releases nothing either

They are made under the administrative lock, which who retires holds too: no floor is computed without one that is just
being made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import files, sync
from shmq.storage.paths import CONSUMERS, FOLLOWERS, check_consumer_name

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

_PLACE = struct.Struct("<Q")
_PIN, _HOLD = ".pin", ".hold"
_HOLDS, _NOTHING = b"shmqhold", b"shmqnone"
NOTHING = "nothing"


class Pin:
    """The place of one reader, from `take` to `close`. For one thread at a time."""

    def __init__(self, home: Directory, name: str | None) -> None:
        """It holds nothing back yet."""
        self._home = home
        self.name = f"{os.getpid()}-{os.urandom(6).hex()}" if name is None else check_consumer_name(name)
        self._file = f"{self.name}{_PIN}"
        self._pid = os.getpid()
        self._map: _native.FileMap | None = None
        self._inode = -1
        self._lock: _native.Lock | None = None

    def take(self) -> None:
        """
        Hold back everything that is there now.

        Raises:
            Busy: another reader has a pin of that name.
        """
        home = self._home
        with home.admin():
            if _in_use(home, self._file):
                raise errors.Busy(f"cannot pin {home.path} as {self.name!r}: another reader has a pin of that name")
            where = f"{home.path}/{CONSUMERS}"
            fd = files.new_file(home.consumers, _PLACE.size, where)
            self._map = _native.map_alone(fd, _PLACE.size, writable=True)
            self._inode = os.fstat(fd).st_ino
            self._lock = _native.Lock(fd)  # of an opening of its own, which no child has
            self._lock.take()
            self._lock.keep()
            files.link_file(fd, home.consumers, self._file, where)

    def move(self, index: int) -> None:
        """What comes before *index* may go."""
        assert self._map is not None  # noqa: S101  # it was taken
        try:
            self._map[: _PLACE.size] = _PLACE.pack(index)
        except ValueError:  # another thread has closed it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def close(self) -> None:
        """Hold nothing back any more. In a forked child it stays the parent's."""
        if self._map is None:
            return
        if self._lock is not None and not self._lock.is_free():
            if os.getpid() == self._pid and self._is_mine():
                os.unlink(self._file, dir_fd=self._home.consumers)
            self._lock.free()
        self._map.close()

    def _is_mine(self) -> bool:
        """Whether the file of that name is ours: it has none before we give it one, and none when we took it away."""
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(self._file, dir_fd=self._home.consumers, follow_symlinks=False)
            return there.st_ino == self._inode
        return False


def _in_use(home: Directory, file: str) -> bool:
    """Whether somebody holds that pin; one that nobody holds is removed. Under the administrative lock."""
    try:
        lock = _native.Lock(home.open(home.consumers, file, writable=True)[0])
    except FileNotFoundError:
        return False
    try:
        if not lock.take():
            return True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=home.consumers)
        return False
    finally:
        lock.free()


def floor(home: Directory, dropped: int, there: list[str] | None = None) -> int | None:
    """
    The first index that must not be retired; None when nothing is held back. Under the administrative lock.

    *dropped*: what lies before it is dropped for every name. *there*: what lies in the folder of names, for whoever
    has listed it under that lock.

    For a follower, the chunk with the last message that it has stays until it has one behind that: it may not have the
    SEAL yet, without which it never learns what comes next.
    """
    places = []
    for file in files.names_in(home.consumers) if there is None else there:
        name, ending = os.path.splitext(file)
        if ending == _PIN and _in_use(home, file):
            with contextlib.suppress(FileNotFoundError):
                stored = home.read(home.consumers, file, _PLACE.size)
                places.append(_PLACE.unpack(stored)[0] if len(stored) == _PLACE.size else 0)  # damaged: all it may need
        elif ending == _HOLD:
            with contextlib.suppress(FileNotFoundError):
                if holds(home, name) == NOTHING:
                    continue
                checkpoint = home.readable_checkpoint(name)
                place = dropped if checkpoint is None else checkpoint.floor(dropped)
                places.append(max(place - 1, dropped) if name.startswith(FOLLOWERS) else place)
    return min(places, default=None)


# ---------------------------------------------------------------- of consumer names
def holds(home: Directory, name: str) -> bool | str:
    """Whether that name holds back what it has not finished under every retention; or NOTHING."""
    content = hold_file(home, name)
    return NOTHING if content == _NOTHING else content is not None


def hold_name(name: str) -> str:
    """The file that says so."""
    return f"{name}{_HOLD}"


def hold_file(home: Directory, name: str) -> bytes | None:
    """What says so; None where nothing does. One that is damaged or not to be trusted is taken for one that holds."""
    if not files.is_there(home.consumers, f"{name}{_HOLD}"):
        return None  # as most have none, and an error that says so takes five times as long
    try:
        content = home.read(home.consumers, f"{name}{_HOLD}", len(_HOLDS))
    except FileNotFoundError:
        return None
    except errors.Unsafe:
        return _HOLDS
    return content if content == _NOTHING else _HOLDS


def check_hold(home: Directory, name: str) -> None:
    """
    Look at what says so, if anything does.

    Raises:
        Corrupt: it says neither that the name holds back what it has not finished, nor that it holds nothing.
        Unsafe: it is not to be trusted.
    """
    with contextlib.suppress(FileNotFoundError):
        if home.read(home.consumers, f"{name}{_HOLD}", len(_HOLDS)) not in (_HOLDS, _NOTHING):
            raise errors.Corrupt(
                f"cannot read {home.path}/{CONSUMERS}/{name}{_HOLD}: it does not say whether the name holds back what "
                "it has not finished; it is taken for one that does"
            )


def set_hold(home: Directory, name: str, *, hold: bool | str) -> None:
    """Have it do so, or not any more. Under the administrative lock."""
    file = f"{name}{_HOLD}"
    if hold == holds(home, name):
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file, dir_fd=home.consumers)
    if hold:
        path = f"{home.path}/{CONSUMERS}"
        content = _NOTHING if hold == NOTHING else _HOLDS
        files.make_file(home.consumers, file, content, path)
        sync.directory(home.consumers, "consumers")
