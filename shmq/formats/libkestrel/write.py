"""`write`: entries become the segments and checkpoints that the real program would have left."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, TooLarge, Unsafe
from shmq.formats import _files
from shmq.formats.libkestrel.names import QUEUE, is_there
from shmq.formats.libkestrel.records import (
    JOURNAL_BYTES,
    MAX_ITEM,
    MOST_DONE,
    PUT,
    PUT_EXPIRING,
    PUT_EXPIRING_FIELDS,
    PUT_EXPIRING_FIXED,
    PUT_FIELDS,
    PUT_FIXED,
    WRITER_MAGIC,
    checkpoint,
)
from shmq.formats.model import MS, Entry, Place

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    first: int | None = None,
    journal_bytes: int = JOURNAL_BYTES,
    name_ms: int | None = None,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as the libkestrel queue *queue* into the folder *path*, and return how many.

    Ids are the entries' own (1, 2, ... where they have none); *first* numbers them anew from there. A put that does
    not fit the segment starts the next one, as the program does with `journalSize` = *journal_bytes*. Segments are
    named *name_ms*, *name_ms* + 1, ... (default: now). *consumers* is {reader: (last consumed id, confirmed ids)};
    None writes the default reader, placed before the first item, because without any checkpoint the program would
    start at the newest item and skip them all.

    Raises:
        TooLarge: a payload over 16 MiB, or one that does not fit *journal_bytes*; an id outside 1 .. 2^63-1.
        Unsafe: the queue is already there, ids do not ascend, or an entry has something that this format cannot
            hold (key, type) and *lossy* is not set. Nothing is left behind.
    """
    if queue is None or not QUEUE.match(queue):
        msg = f"cannot write a libkestrel queue named {queue!r}: the name must be letters, digits, ':', '_' or '-'"
        raise BadFormat(msg)
    folder = Path(path)
    if folder.is_dir() and is_there(folder, queue):
        msg = f"cannot write {queue} into {folder}: files of that queue are there; nothing was changed"
        raise Unsafe(msg)
    with _files.Stage(folder, mode) as stage:
        writer = Writer(stage, queue, journal_bytes, name_ms, first, lossy=lossy)
        for entry in entries:
            writer.put(entry)
        if consumers is None:
            consumers = {"": ((writer.first or 1) - 1, ())}
        for name, place in consumers.items():
            write_checkpoint(stage, queue, name, place)
        writer.close()
        stage.publish()
    return writer.count


@dataclass(slots=True)
class _Open:
    """The segment that is being written."""

    name: str
    file: BinaryIO
    length: int


class Writer:
    """Puts into segments, rolled by size as the program rolls them."""

    def __init__(
        self,
        stage: _files.Stage,
        queue: str,
        journal_bytes: int,
        name_ms: int | None,
        first: int | None,
        *,
        lossy: bool,
    ) -> None:
        self._stage = stage
        self._queue = queue
        self._journal_bytes = journal_bytes
        self._number = time.time_ns() // MS if name_ms is None else name_ms
        self._next = first
        self._lossy = lossy
        self._now = time.time_ns()
        self._last = 0
        self.first: int | None = None
        self.count = 0
        self._segment = self._roll()

    def put(self, entry: Entry) -> None:
        """Append one item, in a new segment if it does not fit."""
        _, index, _, _, key, kind, _, _ = entry
        if index is None or self._next is not None or not self._last < index < 1 << 63:
            index = self._index(entry)
        if (key or kind) and not self._lossy:
            msg = f"cannot write entry {index} to libkestrel: it has a key or a type, which this format cannot hold"
            raise Unsafe(msg)
        record = self._record(entry, index)
        segment = self._segment
        length = segment.length + len(record)
        if length > self._journal_bytes:
            if index != self._last + 1 and self.count:
                self._refuse_gap(index)
            segment = self._segment = self._roll()
            length = segment.length + len(record)
        segment.file.write(record)
        segment.length = length
        self._last = index
        if self.first is None:
            self.first = index
        self.count += 1

    def _index(self, entry: Entry) -> int:
        if self._next is not None:
            index = self._next
            self._next += 1
        else:
            index = self._last + 1 if entry.index is None else entry.index
        if not 0 < index < 1 << 63:
            msg = f"cannot write id {index}: libkestrel's ids are 1 .. 2^63-1; number them anew with first=1"
            raise TooLarge(msg)
        if index <= self._last:
            msg = f"cannot write id {index} after id {self._last}: ids ascend; number them anew with first=1"
            raise Unsafe(msg)
        return index

    def _refuse_gap(self, index: int) -> None:
        msg = (
            f"cannot write id {index} after id {self._last} into the next segment: the real program looks there for "
            f"id {self._last + 1} and would stop; number them anew with first=1, or take a larger journal_bytes"
        )
        raise Unsafe(msg)

    def _record(self, entry: Entry, index: int) -> bytes:
        payload, _, time_ns, expires_ns, _, _, attempts, _ = entry
        size = len(payload)
        errors = attempts or 0
        added = _ms(self._now if time_ns is None else time_ns)
        fixed = PUT_FIXED if expires_ns is None else PUT_EXPIRING_FIXED
        if size > MAX_ITEM or 4 + fixed + size > self._journal_bytes:
            limit = min(MAX_ITEM, self._journal_bytes - 4 - fixed)
            msg = f"cannot write entry {index} to libkestrel: {size} bytes; this queue's limit is {limit}"
            raise TooLarge(msg)
        try:
            if expires_ns is None:
                return PUT_FIELDS.pack(PUT, size, errors, index, added) + payload
            return PUT_EXPIRING_FIELDS.pack(PUT_EXPIRING, size, errors, index, added, _ms(expires_ns)) + payload
        except struct.error as error:
            msg = f"cannot write entry {index} to libkestrel: {error}"
            raise TooLarge(msg) from error

    def _roll(self) -> _Open:
        if self.count:
            self._stage.finish(self._segment.name)
        name = f"{self._queue}.{self._number}"
        self._number += 1
        file = self._stage.create(name)
        file.write(WRITER_MAGIC)
        return _Open(name, file, len(WRITER_MAGIC))

    def close(self) -> None:
        """Finish the last segment."""
        self._stage.finish(self._segment.name)


def checked_reader(reader: str) -> None:
    """Refuse the name of a reader that is none of a file."""
    if "/" in reader or "\0" in reader or "~" in reader:
        msg = f"cannot write the reader {reader!r}: '/' and '~' have no place in a reader's file name"
        raise BadFormat(msg)


def write_checkpoint(stage: _files.Stage, queue: str, reader: str, place: Place) -> None:
    """Write where a reader stands."""
    checked_reader(reader)
    head, done = place
    if len(done) > MOST_DONE:
        msg = f"cannot write the reader {reader!r}: {len(done)} confirmed ids, and {MOST_DONE:,} are the limit"
        raise TooLarge(msg)
    name = f"{queue}.read.{reader}"
    stage.create(name).write(checkpoint(head or 0, done))
    stage.finish(name)


def _ms(ns: int) -> int:
    return ns // MS
