"""Readers: their offset files, eight bytes each, which hold the next offset wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound
from shmq.formats import _files
from shmq.formats.model import Problem
from shmq.formats.sej.messages import U64
from shmq.formats.sej.names import LOCK, OFFSETS, joined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def offsets_in(folder: Path, label: str) -> Iterator[tuple[str, int | None, Problem | None]]:
    """Return (reader, next offset, problem) of every offset file; no offset where nothing was ever committed."""
    if not (folder / "ofs").is_dir():
        return
    for name in _files.regular_files(folder / "ofs"):
        if not name.endswith(".ofs"):
            continue
        reader = name.removesuffix(".ofs")
        with _files.Source(folder / "ofs" / name) as source:
            data, size = source.read(0, 9), source.size()
        if len(data) == 8:
            yield reader, U64.unpack(data)[0], None
        elif not data:
            yield reader, None, None
        else:
            reason = f"{size} bytes where 8 hold an offset; this reader's place is lost"
            yield reader, None, Problem(joined(label, f"ofs/{name}"), 0, reason)


def locks_of(folder: Path) -> list[Path]:
    """Return the lock files of a sej directory: its writer's, and one for each reader that has an offset file."""
    readers = [name for name, _, _ in offsets_in(folder, "")]
    return [folder / LOCK, *(folder / OFFSETS / f"{reader}.lck" for reader in readers)]


def offset_of(folder: Path, reader: str) -> int | None:
    """
    Return the next offset that *reader* wants, None if it never committed.

    Raises:
        NotFound: there is no such reader.
        Corrupt: its file does not hold an offset.
    """
    known = {name: (offset, problem) for name, offset, problem in offsets_in(folder, "")}
    if reader not in known:
        msg = f"no reader {reader!r} in {folder}; there are {sorted(known)}"
        raise NotFound(msg)
    offset, problem = known[reader]
    if problem is not None:
        msg = f"{folder / problem.file}: {problem.reason}; the journal itself can be read from any offset"
        raise Corrupt(msg)
    return offset


def split_consumer(consumer: str, labels: list[str]) -> tuple[str, str]:
    """Return the directory, one of *labels*, and the reader that *consumer* means: `reader` or `directory/reader`."""
    label, _, reader = consumer.rpartition("/")
    if not label and labels != [""] and len(labels) == 1:
        label = labels[0]
    if label not in labels:
        msg = f"no reader {consumer!r}: the directories are {labels[:8]}, name a reader as dir/reader"
        raise NotFound(msg)
    return label, reader
