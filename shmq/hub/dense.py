"""
A client's queue as real sej reads it: a journal whose offsets have no gaps, beside the follower with our indexes.

Offsets count messages and indexes do not, so `shmq.map` beside the journal says which offset has which index: where an
index does not follow the one before, it has a record. A record is on the disk before its message is in the journal, and
a message is there before the client is told that it has come: killed anywhere, it goes on where the journal ends.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from shmq import errors
from shmq.closable import Closable
from shmq.formats import sej
from shmq.formats.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

MAP = "shmq.map"
_RECORD = struct.Struct(">QQI")
"""Offset, index, and the CRC-32 of both."""
_PAIR = struct.Struct(">QQ")
_COLUMNS = ("index", "payload", "time_ns", "key", "type", "headers")


class Map:
    """
    Which index a message of such a journal has in the queue that it came from, as its file had it when it was read.

    Attributes:
        path: the file.
        whole: whether nothing in it is damaged; a record that was being written at the end is none.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Read the map in *folder*, the directory of the journal; it is empty where there is none."""
        self.path = Path(folder, MAP)
        content = self.path.read_bytes() if self.path.exists() else b""
        self._pairs: list[tuple[int, int]] = []
        for at in range(0, len(content) - _RECORD.size + 1, _RECORD.size):
            offset, index, mark = _RECORD.unpack_from(content, at)
            if mark != zlib.crc32(content[at : at + _PAIR.size]) or (self._pairs and offset <= self._pairs[-1][0]):
                break
            self._pairs.append((offset, index))
        self.whole = len(self._pairs) == len(content) // _RECORD.size

    def index_of(self, offset: int) -> int:
        """
        The index of the message with that offset.

        Raises:
            IndexError: it is before all that the map knows.
        """
        at = bisect.bisect_right(self._pairs, (offset, 1 << 64)) - 1
        if at < 0:
            raise IndexError(f"{self.path} knows no offset {offset}")
        begin, index = self._pairs[at]
        return index + offset - begin

    def covers(self, offset: int) -> bool:
        """Whether it says anything of that offset."""
        return bool(self._pairs) and self._pairs[0][0] <= offset

    def replace(self, pairs: list[tuple[int, int]]) -> None:
        """Have these in it and no others, on the disk."""
        new = self.path.with_name(f"{MAP}.new")
        with open(new, "wb") as file:
            file.write(b"".join(map(_record, pairs)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self._pairs = pairs

    def end_at(self, offset: int) -> None:
        """Forget what it says of messages that did not come into the journal, which ends before *offset*."""
        kept = [pair for pair in self._pairs if pair[0] < offset]
        if kept != self._pairs or not self.path.exists() or self.path.stat().st_size != len(kept) * _RECORD.size:
            self.replace(kept)

    def add(self, pairs: list[tuple[int, int]]) -> None:
        """Have these in it, too, on the disk."""
        if pairs:
            with open(self.path, "ab") as file:
                file.write(b"".join(map(_record, pairs)))
                file.flush()
                os.fsync(file.fileno())
            self._pairs += pairs


def _record(pair: tuple[int, int]) -> bytes:
    packed = _PAIR.pack(*pair)
    return packed + zlib.crc32(packed).to_bytes(4, "big")


class Dense(Closable):
    """The journal of one queue, written on. A context manager, for one thread."""

    def __init__(self, folder: Path, follower: str) -> None:
        """
        Open the journal in *folder*, or make it; what it lacks is in the queue at *follower*.

        Raises:
            BadFormat: a queue of ours is in *folder*.
            Busy: a writer of sej's has it.
            Corrupt: it is damaged; or so is its map, and the queue does not have all that the journal has.
        """
        if (folder / "queue.shmq").exists():
            raise errors.BadFormat(f"cannot write sej into {folder}: a queue of ours is there; give another root")
        (folder / "jnl").mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            self._queue: shmq.Queue[Any] = opened.enter_context(
                shmq.open(follower, create=False, read_only=True, trusted=True)  # nothing is decoded
            )
            self._journal = opened.enter_context(sej.Appender(folder, cut=True))
            self._map = Map(folder)
            count = self._journal.next
            if not self._map.whole or (count and not self._map.covers(0)):
                self._map.replace(self._counted(folder))
            self._map.end_at(count)
            self._next = self._map.index_of(count - 1) + 1 if count else None
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Let go of it; what is there is on the disk."""
        self._opened.close()

    def catch_up(self) -> None:
        """
        Append what the queue has and the journal has not.

        Raises:
            TooLarge: a key has more than 127 bytes, or something else does not fit; what came before it is there.
            Unsafe: a message has headers, for which sej has no place, likewise.
            OSError: the disk refused.
        """
        wrote = False
        for columns in self._queue.read_columns(self._next or 0, None, _COLUMNS):
            wrote = True
            self._append(zip(*(columns[name] for name in _COLUMNS), strict=True))
        if wrote:
            self._journal.sync()

    def _append(self, messages: Iterator[tuple[Any, ...]]) -> None:
        entries: list[Entry] = []
        jumps: list[tuple[int, int]] = []
        begin, following, problem = self._journal.next, self._next, None
        for index, payload, time_ns, key, kind, headers in messages:
            entry = Entry(payload, None, time_ns, None, key, kind)
            problem = _problem(index, entry, headers)
            if problem is not None:
                break
            if index != following:
                jumps.append((begin + len(entries), index))
            following = index + 1
            entries.append(entry)
        self._map.add(jumps)
        self._journal.append(*entries)
        self._next = following
        if problem is not None:
            self._journal.sync()
            raise problem

    def _counted(self, folder: Path) -> list[tuple[int, int]]:
        """The map anew: the messages of the queue are counted, and each is to be that of the journal."""
        pairs: list[tuple[int, int]] = []
        following = None
        here = (
            each
            for columns in self._queue.read_columns(0, None, _COLUMNS)
            for each in zip(*(columns[name] for name in _COLUMNS), strict=True)
        )
        for offset, entry in enumerate(sej.read(folder, strict=True)):
            there = next(here, None)
            if there is None or entry.index != offset or (entry.payload, entry.time_ns, entry.key, entry.type) != (
                there[1], there[2], there[3] or b"", there[4]
            ):  # fmt: skip
                raise errors.Corrupt(
                    f"cannot go on with {folder}: its {MAP} is damaged or missing, and cannot be counted anew: message "
                    f"{offset} of the journal is not in the queue any more; nothing was changed"
                )
            if there[0] != following:
                pairs.append((offset, there[0]))
            following = there[0] + 1
        return pairs


def _problem(index: int, entry: Entry, headers: dict[str, Any] | None) -> errors.ShmqError | None:
    """Why sej cannot have that message."""
    if headers:
        return errors.Unsafe(f"message {index} has headers, for which sej has no place; the hub goes no further")
    try:
        sej.message(0, entry)
    except errors.TooLarge as problem:
        return errors.TooLarge(f"message {index} does not go into sej: {problem}; the hub goes no further")
    return None
