"""
What a power cut leaves of the writes in a log: all that a completed flush covers, and of the rest any part, torn.

A write that no flush covered may be kept, lost, or kept in some of its sectors; of several to one sector any may have
been the last to arrive.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator

RECORD = struct.Struct("<QII")
HEADER = struct.Struct("<QQ")
LOG_HEADER = 4096
WRITE, FLUSH = 0, 1
TORN = 0.15
"""Of the writes that are kept."""


@dataclasses.dataclass(frozen=True)
class Write:
    """One write: its number in the log, where it went, and what."""

    number: int
    offset: int
    data: memoryview


class Log:
    """What disk.c wrote down; read when the disk is still, or has gone."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            count, size = HEADER.unpack(file.read(HEADER.size))
            file.seek(LOG_HEADER)
            content = memoryview(file.read(size))
        self.count = count
        """Records in it: a moment is how many of them have happened."""
        self.writes: list[Write] = []
        self.flushes: list[tuple[int, int]] = []
        """(number, how many records it covers), in order."""
        at = 0
        for number in range(count):
            offset, length, kind = RECORD.unpack_from(content, at)
            at += RECORD.size
            if kind == FLUSH:
                self.flushes.append((number, offset))
            else:
                self.writes.append(Write(number, offset, content[at : at + length]))
            at += length

    def covered(self, moment: int) -> int:
        """The records before this one are on the disk, whatever happens at that moment."""
        return max((upto for number, upto in self.flushes if number < moment), default=0)

    def between(self, first: int, behind: int) -> list[Write]:
        """Those writes."""
        return [each for each in self.writes if first <= each.number < behind]

    def moment(self, chance: Generator, first: int) -> int:
        """One to cut at; every other time just before something was flushed, when most is at stake."""
        flushes = [number for number, _ in self.flushes if number >= first]
        if flushes and chance.random() < 0.5:
            return int(chance.choice(flushes))
        return int(chance.integers(first, self.count + 1))


def moment_of(counter: mmap.mmap) -> int:
    """How many records a log has now."""
    return int(HEADER.unpack_from(counter)[0])


def counter(path: str) -> mmap.mmap:
    """The beginning of a log that is being written, for `moment_of`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, LOG_HEADER, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def records(writes: list[Write]) -> bytes:
    """As disk.c takes them for an overlay."""
    parts: list[bytes | memoryview] = []
    for each in writes:
        parts += [RECORD.pack(each.offset, len(each.data), WRITE), each.data]
    return b"".join(parts)


def chosen(writes: list[Write], chance: Generator, sector: int) -> list[Write]:
    """Which of them, in no flush, arrived; in pieces, where they are torn."""
    how = chance.random()
    if how < 0.1:
        return []
    if how < 0.2:
        return writes
    likely = float(chance.choice([0.05, 0.3, 0.5, 0.7, 0.95]))
    kept: list[Write] = []
    for each in writes:
        if chance.random() >= likely:
            continue
        if len(each.data) <= sector or chance.random() >= TORN:
            kept.append(each)
            continue
        sectors = chance.random(len(each.data) // sector) < 0.5
        kept += [
            Write(each.number, each.offset + int(at) * sector, each.data[int(at) * sector : (int(at) + 1) * sector])
            for at in np.flatnonzero(sectors)
        ]
    return kept


class Platter:
    """A file with everything on it that was flushed up to some moment, which only moves forward."""

    def __init__(self, path: str, log: Log) -> None:
        self.path = path
        self._log = log
        self._upto = 0
        self._next = 0
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def advance(self, moment: int) -> list[Write]:
        """Go there; what was written by then and is not flushed."""
        upto = max(self._log.covered(moment), self._upto)
        writes = self._log.writes
        while self._next < len(writes) and writes[self._next].number < upto:
            each = writes[self._next]
            os.pwrite(self._file, each.data, each.offset)
            self._next += 1
        self._upto = upto
        return self._log.between(upto, moment)

    def close(self) -> None:
        """The file stays."""
        os.close(self._file)
