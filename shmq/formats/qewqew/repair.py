"""`repair` writes what is whole as a clean queue."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.model import Entry, Repair
from shmq.formats.qewqew.chunk import FIRST, U16, size_of
from shmq.formats.qewqew.lock import held
from shmq.formats.qewqew.names import chunk_ids, header_of
from shmq.formats.qewqew.read import verify
from shmq.formats.qewqew.walk import Walk, in_order
from shmq.formats.qewqew.walk import orphans as unreferenced
from shmq.formats.qewqew.write import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    orphans: bool | None = None,
    chunk_bytes: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> Repair:
    """
    Write what is whole as a clean queue with the header file *to* (default: `<path>.repaired`).

    When a chunk is missing, the chunks behind it that nothing else refers to follow in the order of their
    references: that is what a crash between deleting a chunk and updating the header leaves. *orphans* True takes
    unreferenced chunks also when the header says that the queue is empty (a `clear` followed by a put leaves that,
    but so does a crash in the middle of a `clear`); False never takes any.

    With *in_place* the clean chunks take the place of the damaged ones, which move into a hidden folder beside them.
    The lock of the queue is held meanwhile, so nothing of it is left to *tell*. Chunks are as long as the longest
    there is; *chunk_bytes* is the size that the program opens the queue with instead.

    Raises:
        Busy: *in_place*, and somebody has the queue open.
    """
    del tell
    header = header_of(path, queue)
    if in_place:
        with held(header, f"repair {header} in place") as fd:
            return _repair_in_place(header, fd, orphans, chunk_bytes)
    problems = verify(header)
    target = Path(to) if to is not None else _files.beside(header)
    return Repair(target, _copy(header, target, orphans, chunk_bytes), problems, None)


def _copy(header: Path, target: Path, with_orphans: bool | None, chunk_bytes: int | None) -> int:
    if chunk_bytes is None:
        sizes = [size_of(header, chunk) for chunk in chunk_ids(header)]
        chunk_bytes = min(max([*sizes, FIRST + 2]), (1 << 31) - 1)
    walk = Walk(header, as_program=False, strict=False)

    def whole() -> Iterator[Entry]:
        for found in walk.lists():
            yield from found
        if with_orphans or (with_orphans is None and walk.cut_off):
            for chunk in in_order(header, unreferenced(header, walk.seen)):
                for found in walk.elements(chunk):
                    yield from found

    with closing(walk):
        return write(target, whole(), chunk_bytes=chunk_bytes)


def _repair_in_place(header: Path, fd: int, with_orphans: bool | None, chunk_bytes: int | None) -> Repair:
    """
    Put clean chunks in the place of those there, whose lock is held: on the header file, which therefore stays.

    It says "empty" meanwhile: who is stopped in the middle leaves a queue that opens, and the damaged files aside.
    """
    problems = verify(header)
    target = _files.beside(header)
    count = _copy(header, target, with_orphans, chunk_bytes)
    kept = _files.set_aside(header.parent, [], header.name)
    (kept / header.name).write_bytes(os.pread(fd, 1 << 16, 0))
    _write_header(fd, 0)
    for chunk in chunk_ids(header):
        _of(header, chunk).rename(kept / f"{header.name}.{chunk}")
    for chunk in chunk_ids(target):
        _of(target, chunk).rename(_of(header, chunk))
    _write_header(fd, U16.unpack(target.read_bytes())[0])
    target.unlink()
    return Repair(header, count, problems, kept)


def _of(header: Path, chunk: int) -> Path:
    return header.with_name(f"{header.name}.{chunk}")


def _write_header(fd: int, chunk: int) -> None:
    os.pwrite(fd, U16.pack(chunk), 0)
    os.ftruncate(fd, U16.size)
    os.fsync(fd)
