"""Names: which queues a folder has, and which files are one's segments and checkpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files
from shmq.formats.libkestrel.records import NAME, READER_MAGIC, WRITER_MAGIC

if TYPE_CHECKING:
    import os

QUEUE = re.compile(r"[A-Za-z0-9:_-]+\Z")
SEGMENT = re.compile(r"(?P<queue>[A-Za-z0-9:_-]+)\.(?P<number>[0-9]+)(?P<more>\..*)?\Z", re.DOTALL)


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the libkestrel queues in the folder *path*: those with a file that has a libkestrel magic."""
    folder = _files.directory(path)
    found = set()
    for name in _files.regular_files(folder):
        queue, dot, rest = name.partition(".")
        if not dot or "~" in name or not QUEUE.match(queue):
            continue
        if (rest.startswith("read.") or rest.partition(".")[0].isdigit()) and magic_of(folder / name) is not None:
            found.add(queue)
    return sorted(found)


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder*, whose files are *names*, holds a libkestrel queue."""
    return any("." in name for name in names) and bool(queues(folder))


def detect_file(path: Path) -> bool:
    """Say whether *path* is one file of a libkestrel queue."""
    return magic_of(path) is not None


def at(path: str | os.PathLike[str], queue: str | None) -> tuple[Path, str]:
    """Return the folder and the queue that are meant; the path of one of its files will do."""
    place = Path(path)
    if queue is None and place.is_file():
        place, queue = place.parent, place.name.partition(".")[0]
    folder = _files.directory(place)
    return folder, _queue(folder, queue)


def _queue(folder: Path, queue: str | None) -> str:
    if queue is None:
        return _files.only_queue(folder, queues(folder), NAME)
    if not QUEUE.match(queue):
        msg = f"cannot read a libkestrel queue named {queue!r}: letters, digits, ':', '_' and '-' make a name"
        raise BadFormat(msg)
    if not is_there(folder, queue):
        msg = f"no libkestrel queue {queue!r} in {folder}; there are {queues(folder)}"
        raise NotFound(msg)
    return queue


def is_there(folder: Path, queue: str) -> bool:
    """Say whether *folder* has a file of *queue*."""
    return bool(reader_files(folder, queue)) or bool(segment_files(folder, queue, as_program=False))


def segment_files(folder: Path, queue: str, *, as_program: bool) -> list[tuple[int, str]]:
    """Return (number, name) of the segments. The program also takes names with more behind the number."""
    found = []
    for name in _files.regular_files(folder):
        match = SEGMENT.match(name)
        if match and match["queue"] == queue and "~" not in name and (as_program or not match["more"]):
            found.append((int(match["number"]), name))
    return found


def reader_files(folder: Path, queue: str) -> list[str]:
    """Return the names of the checkpoints of *queue*, sorted; unfinished ones are none."""
    prefix = f"{queue}.read."
    return [name for name in _files.regular_files(folder) if name.startswith(prefix) and "~" not in name]


def names_of(folder: Path, queue: str) -> list[str]:
    """Return every file that the program would take for a part of *queue*, temporary ones too."""
    names = {name for _, name in segment_files(folder, queue, as_program=True)}
    names.update(name for name in _files.regular_files(folder) if name.startswith(f"{queue}.read."))
    return sorted(names)


def magic_of(path: Path) -> bytes | None:
    """Return the magic of *path* if it is one of the two, else None."""
    try:
        with _files.Source(path) as source:
            found = source.read(0, 4)
    except (NotFound, BadFormat, PermissionError):
        return None
    return found if found in (WRITER_MAGIC, READER_MAGIC) else None
