"""
How often an item was tried: noted when its function raises, and when its worker dies in it.

What a worker does just now stands in a small mapped file, `hands/STAGE.PID`, which outlives it; whoever started it
reads there whom its death is to be put down to, and appends that to `STAGE.tries`. So no item is given up for another
that was in the same hands. Of a batch nobody knows which item it was: all are suspect, and done one by one then.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING

import shmq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HANDS = "hands"
_NUMBER = struct.Struct("<Q")
_RECORD = struct.Struct("<QQ")
_SUSPECT, _TRY = 0, 1
_BURIAL, _LOOK = 1.0, 0.005
"""Seconds that a burial is waited for, and between two looks."""


def _file(path: str, stage: int) -> str:
    return os.path.join(path, f"{stage}.tries")


def _hand(path: str, stage: int, pid: int) -> str:
    return os.path.join(path, HANDS, f"{stage}.{pid}")


def _append(path: str, stage: int, indexes: Sequence[int], kind: int) -> None:
    """One write, so that those of several processes do not mix. Where the disk is full, it is not counted."""
    with contextlib.suppress(OSError):
        fd = os.open(_file(path, stage), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, b"".join(_RECORD.pack(index, kind) for index in indexes))
        finally:
            os.close(fd)


class Tries:
    """One worker's hands, and what is noted of the items of its stage."""

    def __init__(self, path: str, stage: int, most: int) -> None:
        """
        With up to *most* items in its function at once.

        Raises:
            DiskFull: there is no room to note that.
        """
        self._path, self._stage = path, stage
        self._size = 0
        self._known: dict[int, list[int]] = {}
        size = _NUMBER.size * (1 + most)
        fd = os.open(
            _hand(path, stage, os.getpid()), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            os.posix_fallocate(fd, 0, size)
            self._map = mmap.mmap(fd, size)
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            why = f"cannot begin a worker of the flow {path}: {problem.strerror}; it is tried again"
            raise shmq.DiskFull(why) from None
        finally:
            os.close(fd)

    def begin(self, messages: Sequence[shmq.Message]) -> None:
        """The function has these from now on."""
        for at, message in enumerate(messages, 1):
            _NUMBER.pack_into(self._map, at * 8, message.index)
        _NUMBER.pack_into(self._map, 0, len(messages))

    def settle(self, messages: Sequence[shmq.Message]) -> None:
        """
        Wait a moment for what is to be noted of those that come again: who had one in hand died, and is not buried yet.

        Or it lives and has lost them, and nothing will be noted.
        """
        again = {message.index for message in messages if message.attempts > 1}
        until = time.monotonic() + _BURIAL
        while again and time.monotonic() < until and any(not again.isdisjoint(each) for each in self._others()):
            time.sleep(_LOOK)

    def _others(self) -> Iterator[list[int]]:
        """What other workers of the stage have in their functions, or had when they died."""
        folder, mine = os.path.join(self._path, HANDS), f"{self._stage}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(folder):
                if name.startswith(f"{self._stage}.") and name != mine:
                    yield _held(os.path.join(folder, name))

    def end(self) -> None:
        """It has none any more."""
        _NUMBER.pack_into(self._map, 0, 0)

    def note(self, message: shmq.Message) -> int:
        """That it was tried; how often by now."""
        _append(self._path, self._stage, [message.index], _TRY)
        return self.of(message)

    def of(self, message: shmq.Message) -> int:
        """How often it was tried."""
        return self._read().get(message.index, []).count(_TRY)

    def is_suspect(self, message: shmq.Message) -> bool:
        """Whether it was in hands that died, or was tried."""
        return message.attempts > 1 and message.index in self._read()

    def _read(self) -> dict[int, list[int]]:
        """Kind by kind, of each index; read again where there is more."""
        try:
            with open(_file(self._path, self._stage), "rb") as file:
                file.seek(self._size)
                more = file.read()
        except FileNotFoundError:
            return self._known
        whole = len(more) // _RECORD.size * _RECORD.size
        for index, kind in _RECORD.iter_unpack(more[:whole]):
            self._known.setdefault(index, []).append(kind)
        self._size += whole
        return self._known

    def close(self) -> None:
        """It leaves, and nothing is to be put down to its end."""
        self._map.close()
        with contextlib.suppress(OSError):
            os.unlink(_hand(self._path, self._stage, os.getpid()))


def _held(place: str) -> list[int]:
    """The items in that hand; none where it is gone, or has none yet."""
    try:
        with open(place, "rb") as file:
            content = file.read()
    except OSError:
        return []
    count = _NUMBER.unpack_from(content)[0] if len(content) >= _NUMBER.size else 0
    return [_NUMBER.unpack_from(content, 8 * at)[0] for at in range(1, min(count, len(content) // 8 - 1) + 1)]


def bury(path: str, stage: int, pid: int) -> None:
    """Put down the death of that worker to what it had in its function, if it had something."""
    place = _hand(path, stage, pid)
    indexes = _held(place)
    if indexes:
        _append(path, stage, indexes, _TRY if len(indexes) == 1 else _SUSPECT)
    with contextlib.suppress(OSError):
        os.unlink(place)


def forget_hands(path: str) -> None:
    """Of workers that died with whoever started them nobody knows why they did: it is put down to no item."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.join(path, HANDS), 0o700)
    for name in os.listdir(os.path.join(path, HANDS)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, HANDS, name))
