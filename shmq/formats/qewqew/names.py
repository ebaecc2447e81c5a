"""Names of files: header files, and the chunks beside them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files
from shmq.formats.qewqew.chunk import MAX_ELEMENT, NAME

if TYPE_CHECKING:
    import os


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the header files in the folder *path*."""
    return headers(_files.directory(path))


def headers(folder: Path) -> list[str]:
    """Return the names of the header files in *folder*: two bytes, and saying "empty" or having chunks beside them."""
    return [name for name in _files.regular_files(folder) if not name.startswith(".") and detect_file(folder / name)]


def detect_file(path: Path) -> bool:
    """Say whether *path* is a QewQew header file."""
    with suppress(NotFound, BadFormat, PermissionError), _files.Source(path) as source:
        if source.size() == 2:
            return source.read(0, 2) == b"\0\0" or bool(chunk_ids(path))
    return False


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder*, whose files are *names*, holds a QewQew."""
    del names
    return bool(headers(folder))


def header_of(path: str | os.PathLike[str], queue: str | None) -> Path:
    """Return the header file that is meant; its folder will do, if it is the only one there."""
    place = Path(path)
    if queue is not None:
        folder, place = _files.directory(place), place / queue
        if not place.is_file() and not chunk_ids(place):
            msg = f"no QewQew {queue!r} in {folder}; there are {headers(folder)}"
            raise NotFound(msg)
    elif place.is_dir():
        place = place / _files.only_queue(place, headers(place), NAME)
    if not place.parent.is_dir():
        msg = f"cannot read {place}: there is no directory {place.parent}"
        raise NotFound(msg)
    return place


def chunk_ids(header: Path) -> list[int]:
    """Return the ids of all chunk files beside *header*, referred to or not, ascending."""
    pattern = re.compile(re.escape(header.name) + r"\.([1-9][0-9]{0,4})\Z")
    found = (pattern.match(name) for name in _files.regular_files(header.parent))
    return sorted(int(match[1]) for match in found if match and int(match[1]) <= MAX_ELEMENT)
