"""
What holds chunks back under every kind of retention: something with a place, behind which nothing is retired.

    consumers/<name>.pin     a reader's: 8 bytes, the index that it has not passed; its process holds an OFD lock on
                             it. Without that lock it is nobody's, and whoever retires next removes it
    consumers/<name>.hold    of a consumer name: 8 bytes that say so; its checkpoint is the place, whether anybody has
                             it open or not

They are made under the administrative lock, which who retires holds too: no floor is computed without one that is just
being made.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import files, sync
from shmq.storage.directory import CONSUMERS, check_consumer_name

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

_PLACE = struct.Struct("<Q")
_PIN, _HOLD = ".pin", ".hold"
HOLD = b"shmqhold"


class Pin:
    """The place of one reader. For one thread at a time."""

    def __init__(self, home: Directory, name: str | None) -> None:
        """
        Hold back everything that is there now.

        Raises:
            Busy: another reader has a pin of that name.
        """
        self._home = home
        self.name = f"{os.getpid()}-{os.urandom(6).hex()}" if name is None else check_consumer_name(name)
        self._file = f"{self.name}{_PIN}"
        self._pid = os.getpid()
        with home.admin():
            if _in_use(home, self._file):
                raise errors.Busy(f"cannot pin {home.path} as {self.name!r}: another reader has a pin of that name")
            fd = files.new_file(home.consumers, _PLACE.size, home.options.mode & 0o600, f"{home.path}/{CONSUMERS}")
            self._lock = _native.Lock(os.dup(fd))
            try:
                self._lock.take()
                files.link_file(fd, home.consumers, self._file, f"{home.path}/{CONSUMERS}")
            except BaseException:
                self._lock.free()
                os.close(fd)
                raise
        self._fd = fd

    def move(self, index: int) -> None:
        """What comes before *index* may go."""
        os.pwrite(self._fd, _PLACE.pack(index), 0)

    def close(self) -> None:
        """Hold nothing back any more. In a forked child it stays the parent's."""
        if self._fd >= 0:
            if os.getpid() == self._pid:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._file, dir_fd=self._home.consumers)
            os.close(self._fd)
            self._fd = -1
            self._lock.free()


def _in_use(home: Directory, file: str) -> bool:
    """Whether somebody holds that pin; one that nobody holds is removed. Under the administrative lock."""
    try:
        fd, _ = home.open(home.consumers, file, writable=True)
    except FileNotFoundError:
        return False
    lock = _native.Lock(fd)
    try:
        if not lock.take():
            return True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=home.consumers)
        return False
    finally:
        lock.free()


def floor(home: Directory, dropped: int) -> int | None:
    """
    The first index that must not be retired; None when nothing is held back. Under the administrative lock.

    *dropped*: what lies before it is dropped for every name.
    """
    places = []
    for file in files.names_in(home.consumers):
        name, ending = os.path.splitext(file)
        if ending == _PIN and _in_use(home, file):
            with contextlib.suppress(FileNotFoundError):
                places.append(_PLACE.unpack(home.read(home.consumers, file, _PLACE.size)[: _PLACE.size])[0])
        elif ending == _HOLD:
            with contextlib.suppress(FileNotFoundError):
                places.append(home.checkpoint(name).floor(dropped))
    return min(places, default=None)


# ---------------------------------------------------------------- of consumer names
def holds(home: Directory, name: str) -> bool:
    """Whether that name holds back what it has not finished."""
    try:
        os.stat(f"{name}{_HOLD}", dir_fd=home.consumers, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def set_hold(home: Directory, name: str, *, on: bool) -> None:
    """Have it do so, or not any more. Under the administrative lock."""
    file = f"{name}{_HOLD}"
    if on:
        path = f"{home.path}/{CONSUMERS}"
        files.make_file(home.consumers, file, HOLD, home.options.mode & 0o600, path)
        sync.directory(home.consumers, "consumers")
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=home.consumers)
