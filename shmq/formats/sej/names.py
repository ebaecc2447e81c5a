"""Names: which sej directories are at a path, which segments one has, and how shards and hub copies are called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files

if TYPE_CHECKING:
    import os
    from pathlib import Path

MAX_SHARD_BIT = 10
JOURNAL, OFFSETS = "jnl", "ofs"
LOCK = "jnl.lck"
"""What a writer of a sej directory holds by flock."""
SEGMENT = re.compile(r"(?P<first>[0-9a-fA-F]+)\.jnl\Z")
SHARD = re.compile(r"(?:[A-Za-z0-9_-]+\.)?[1-9a]\.[0-3][0-9a-f]{2}\Z")
"""What one of several shards is called."""
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+\Z")
_PREFIX = re.compile(r"[A-Za-z0-9_-]*\Z")


def directories(path: str | os.PathLike[str], queue: str | None = None) -> list[str]:
    """
    Return the sej directories at *path*, relative to it: "" for *path* itself, and its children that are one.

    *queue* narrows it to one child by its name, or to all of one prefix or client: those named `<queue>.*`.
    """
    root = _files.directory(path)
    found = [""] if (root / "jnl").is_dir() else []
    found += [name for name in _files.subdirectories(root) if (root / name / "jnl").is_dir()]
    if queue:
        found = [name for name in found if name == queue or name.startswith(f"{queue}.")]
    if not found:
        what = f"no sej directory {queue!r}" if queue else "no sej directory"
        msg = f"{what} in {root}: there is no jnl folder"
        raise NotFound(msg)
    return found


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the sej directories at *path*: "" for *path* itself, and its children that are one."""
    return directories(path)


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder* is a sej directory or a root of some."""
    del names
    if (folder / "jnl").is_dir():
        return not _files.regular_files(folder / "jnl") or bool(segments_in(folder / "jnl"))
    return any(segments_in(folder / name / "jnl") for name in _files.subdirectories(folder))


def segment_name(first: int) -> str:
    """Return what the writer calls the segment that begins with the offset *first*."""
    return f"{first:016x}.jnl"


def segments_in(folder: Path) -> list[tuple[int, str]]:
    """Return (first offset, name) of every segment, ascending; other names are no segments."""
    if not folder.is_dir():
        return []
    found: dict[int, str] = {}
    for name in _files.regular_files(folder):
        match = SEGMENT.match(name)
        if match is None:
            continue
        first = int(match["first"], 16)
        if first < 1 << 64 and found.get(first) != segment_name(first):
            found[first] = name  # Of two spellings of one number, the writer's own counts.
    return sorted(found.items())


def shard_directory(prefix: str, bit: int, index: int) -> str:
    """Return a shard's directory: `[prefix.]<bit in hex>.<index in three hex digits>`; bit 0 has no suffix."""
    if not _PREFIX.match(prefix) or not 0 <= bit <= MAX_SHARD_BIT or not 0 <= index < 1 << bit:
        msg = f"no shard {index} of 2^{bit} with the prefix {prefix!r}: bits are 0 .. 10, prefixes [a-zA-Z0-9_-]*"
        raise BadFormat(msg)
    if bit == 0:
        return prefix
    return f"{prefix}.{bit:x}.{index:03x}" if prefix else f"{bit:x}.{index:03x}"


def checked_name(name: str) -> str:
    """Refuse directory names that lead elsewhere; the real program's own check lets `../x` pass."""
    if name and (not _PLAIN.match(name) or name.startswith(".")):
        msg = f"cannot write a sej directory named {name!r}: letters, digits, '_', '-' and inner dots make a name"
        raise BadFormat(msg)
    return name


def joined(label: str, name: str) -> str:
    """Return *name*, behind the directory it is in, if it is in one."""
    return f"{label}/{name}" if label else name
