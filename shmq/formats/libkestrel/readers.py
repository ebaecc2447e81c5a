"""Where the readers stand: their checkpoints, and what recovery makes of them."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from shmq.errors import NotFound
from shmq.formats import _files
from shmq.formats.libkestrel.names import reader_files
from shmq.formats.libkestrel.records import I32, I64, MAX_ITEM, READ_DONE, READ_HEAD, READER_MAGIC
from shmq.formats.libkestrel.segment import MOST_SKIPPED
from shmq.formats.model import Place, Problem

if TYPE_CHECKING:
    from pathlib import Path


def places(folder: Path, queue: str) -> tuple[dict[str, Place | None], list[Problem]]:
    """Return every reader's place as its file has it, None where the file is broken; and what is broken."""
    readers: dict[str, Place | None] = {}
    problems = []
    for name in reader_files(folder, queue):
        reader = name[len(queue) + len(".read.") :]
        try:
            readers[reader] = _read_checkpoint(folder / name)
        except _BrokenCheckpointError as broken:
            readers[reader] = None
            problems.append(Problem(name, broken.position, broken.reason))
    return readers, problems


class _BrokenCheckpointError(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = f"{reason}; this reader's place is lost"


def skipped_in(path: Path) -> list[tuple[int, int]]:
    """Return (position, command) of records that have no place in a checkpoint; they are skipped."""
    skipped: list[tuple[int, int]] = []
    with contextlib.suppress(_BrokenCheckpointError):
        _read_checkpoint(path, skipped)
    return skipped


def _read_checkpoint(path: Path, skipped: list[tuple[int, int]] | None = None) -> Place:  # noqa: C901  one check per kind of damage
    """Read one reader's file. No record at all is a valid place: nothing consumed."""
    with _files.Source(path) as source:
        if source.read(0, 4) != READER_MAGIC:
            raise _BrokenCheckpointError(0, "no read checkpoint's magic")
        head, done = 0, set[int]()
        position = 4
        while first := source.read(position, 1 + 4 * 15):
            command, words = first[0] >> 4, first[0] & 15
            header = 1 + 4 * words
            if first[0] == 0:
                break
            if len(first) < header:
                raise _BrokenCheckpointError(position, "truncated header")
            size = 0
            if command >= 8:
                size = I32.unpack_from(first, 1)[0] if words else -1
                if not 0 <= size <= MAX_ITEM:
                    raise _BrokenCheckpointError(position, f"a data size of {size} bytes")
                if position + header + size > source.size():
                    raise _BrokenCheckpointError(position, "truncated entry")
            if command == READ_HEAD >> 4:
                if words < 2:
                    raise _BrokenCheckpointError(position, "a READ_HEAD without room for an id")
                head = I64.unpack_from(first, 1)[0]
            elif command == READ_DONE >> 4:
                if size % 8:
                    raise _BrokenCheckpointError(position, f"a READ_DONE of {size} bytes, which are not whole ids")
                done.update(struct.unpack(f"<{size // 8}q", source.read(position + header, size)))
            elif skipped is not None and len(skipped) < MOST_SKIPPED:
                skipped.append((position, command))
            position += header + size
    return head, tuple(sorted(done))


def clamped(place: Place | None, first: int | None, last: int | None, *, as_program: bool) -> Place:
    """Move a place into what the segments hold, as recovery does: not past the newest, not before the oldest."""
    newest = last or 0
    oldest = 0 if first is None else first - 1
    if place is None:
        return (newest if as_program else oldest), ()
    head = max(min(place[0] or 0, newest), oldest)
    return head, tuple(index for index in place[1] if head < index <= newest)


def start_of(folder: Path, queue: str, consumer: str, as_program: bool) -> tuple[int, frozenset[int]]:
    """Return where *consumer* goes on: the last consumed id, and the ids above it that are done."""
    name = f"{queue}.read.{consumer}"
    nothing = -(1 << 63)
    everything = (1 << 63) - 1
    lost = (everything if as_program else nothing), frozenset[int]()
    if not (folder / name).is_file():
        others = sorted(places(folder, queue)[0])
        if consumer or others:
            msg = f"no reader {consumer!r} of {queue} in {folder}; there are {others}"
            raise NotFound(msg)
        return lost
    try:
        head, done = _read_checkpoint(folder / name)
    except _BrokenCheckpointError:
        return lost
    return head or 0, frozenset(() if as_program else done)
