"""`write`: payloads become chunks, and the header file that makes them count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, NotFound, TooLarge, Unsafe
from shmq.formats import _files
from shmq.formats.qewqew.chunk import CHUNK_BYTES, FIRST, HEAD, LAST_ID, MAX_ELEMENT, U16
from shmq.formats.qewqew.names import chunk_ids

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from shmq.formats.model import Entry, Place


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    first_chunk: int = 1,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write the payloads of *entries* as a QewQew with the header file *path*, and return how many.

    Every chunk file is *chunk_bytes* long, as the program makes it, and must be opened with that size. The first
    chunk is *first_chunk*. No entry gives a header file that says "empty".

    Raises:
        TooLarge: a payload over min(65,535, *chunk_bytes* - 12) bytes; more than 65,534 chunks.
        Unsafe: the queue is already there; or an entry has a time, an expiry, a key, a type or attempts, or there
            are consumers, none of which QewQew can hold, and *lossy* is not set. Nothing is left behind.
    """
    header = Path(path) / queue if queue is not None else Path(path)
    if not FIRST + 2 <= chunk_bytes < 1 << 31 or not 1 <= first_chunk <= LAST_ID:
        msg = (
            f"cannot write chunks of {chunk_bytes} bytes from id {first_chunk}: sizes are 12 .. 2^31-1, ids 1 .. 65534"
        )
        raise BadFormat(msg)
    if consumers and not lossy:
        msg = f"cannot write the consumers {sorted(consumers)} to QewQew, which has one nameless reader"
        raise Unsafe(msg)
    if not header.parent.is_dir():
        msg = f"cannot write {header}: there is no directory {header.parent}"
        raise NotFound(msg)
    if header.exists() or chunk_ids(header):
        msg = f"cannot write {header}: files of that queue are there; nothing was changed"
        raise Unsafe(msg)
    with _files.Stage(header.parent, mode) as stage:
        writer = Writer(stage, header.name, chunk_bytes, first_chunk, lossy=lossy)
        for entry in entries:
            writer.put(entry)
        writer.close()
        stage.publish(last=[header.name])
    return writer.count


class Writer:
    """Elements into chunks; the header file comes last."""

    def __init__(self, stage: _files.Stage, name: str, chunk_bytes: int, first_chunk: int, *, lossy: bool) -> None:
        self._stage = stage
        self._name = name
        self._chunk_bytes = chunk_bytes
        self._first_chunk = first_chunk
        self._lossy = lossy
        self._chunk = 0
        self._chunks = 0
        self._tail = 0
        self._file: BinaryIO | None = None
        self.count = 0

    def put(self, entry: Entry) -> None:
        """Append one element, in a new chunk if it does not fit."""
        payload, _, when, expires, key, kind, attempts, _ = entry
        if not self._lossy and (when is not None or expires is not None or key or kind or attempts):
            msg = f"cannot write entry {self.count} to QewQew: it has more than a payload, which is all QewQew holds"
            raise Unsafe(msg)
        size = len(payload)
        if size > MAX_ELEMENT or FIRST + 2 + size > self._chunk_bytes:
            limit = min(MAX_ELEMENT, self._chunk_bytes - FIRST - 2)
            msg = f"cannot write entry {self.count} to QewQew: {size} bytes; with these chunks the limit is {limit}"
            raise TooLarge(msg)
        if self._file is None or self._tail + 2 + size > self._chunk_bytes:
            self._roll()
        assert self._file is not None  # noqa: S101  `_roll` has just opened it
        self._file.write(U16.pack(size) + payload)
        self._tail += 2 + size
        self.count += 1

    def _roll(self) -> None:
        if self._chunks == LAST_ID:
            msg = f"cannot write more than {LAST_ID} chunks of {self._chunk_bytes} bytes: take larger ones"
            raise TooLarge(msg)
        following = self._chunk % LAST_ID + 1 if self._chunk else self._first_chunk
        self._finish(following)
        self._chunk = following
        self._chunks += 1
        self._tail = FIRST
        self._file = self._stage.create(f"{self._name}.{following}")
        self._file.write(bytes(FIRST))

    def _finish(self, following: int) -> None:
        if self._file is None:
            return
        self._file.truncate(self._chunk_bytes)
        self._file.seek(0)
        self._file.write(HEAD.pack(FIRST, self._tail, following))
        self._stage.finish(f"{self._name}.{self._chunk}")

    def close(self) -> None:
        """Finish the last chunk and write the header file."""
        self._finish(0)
        self._stage.create(self._name).write(U16.pack(self._first_chunk if self._chunks else 0))
