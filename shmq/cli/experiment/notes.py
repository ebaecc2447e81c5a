"""
What a process notes of its own work. A note is in the kernel's hands when the call returns, so a kill takes none away.

Notes are of one size, which divides that of a page; of one that was cut short, the judge sees nothing.
"""

from __future__ import annotations

import os
import random
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TRIED, PUT, GOT, ACKED, BAD = range(1, 6)
"""A put began; it returned; a message came; its acknowledgement returned; what came is no message of ours."""
_NOTE = struct.Struct("<IIqqq")
_HEAD = struct.Struct("<IIq")
_SIZES = (0, 8, 100, 1000, 5000)


class Note(NamedTuple):
    """One note."""

    kind: int
    producer: int
    """Which life of a producer put it; each has a number of its own."""
    number: int
    """Which of its puts."""
    place: int
    """Its index in the queue; of one that was tried, how many were put with it."""
    time_ns: int


class Notebook:
    """The notes of one process, as it writes them."""

    def __init__(self, path: str) -> None:
        """A new one."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def note(self, kind: int, producer: int = 0, number: int = 0, index: int = -1) -> None:
        """Write one."""
        os.write(self._fd, _NOTE.pack(kind, producer, number, index, time.monotonic_ns()))

    def note_all(self, kind: int, producer: int, numbers: Iterable[int], indexes: Iterable[int]) -> None:
        """Write one for each, in one call."""
        now = time.monotonic_ns()
        both = zip(numbers, indexes, strict=True)
        os.write(self._fd, b"".join(_NOTE.pack(kind, producer, number, index, now) for number, index in both))


def read(path: str) -> list[Note]:
    """The whole notes of one process."""
    with open(path, "rb") as file:
        data = file.read()
    return [Note(*each) for each in _NOTE.iter_unpack(data[: len(data) // _NOTE.size * _NOTE.size])]


def payload(producer: int, number: int, together: int = 1) -> bytes:
    """What that producer puts as its n-th message, *together* of them at once; of several sizes, all bytes known."""
    size = _SIZES[random.Random(producer << 32 | number).randrange(len(_SIZES))]  # noqa: S311  # sizes
    return _HEAD.pack(producer, together, number) + bytes([(producer + number) % 256]) * size


def told(data: bytes) -> tuple[int, int, int] | None:
    """Producer, number, and how many were put with it; None when these bytes are no message of an experiment, whole."""
    if len(data) < _HEAD.size:
        return None
    producer, together, number = _HEAD.unpack_from(data)
    return (producer, number, together) if data == payload(producer, number, together) else None
