"""A chunk's own words about itself, and the numbers of the format."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files

if TYPE_CHECKING:
    from pathlib import Path

NAME = "qewqew"
KEEPS = frozenset({"payload"})
"""An element is its bytes and nothing else."""

CHUNK_BYTES = 1 << 20
"""Our default chunk size. The real program has none: whoever opens a queue says it, and it is stored nowhere."""

MAX_ELEMENT = 0xFFFF
LAST_ID = 65534
"""Ids run 1 .. 65534 and start again; 65535 is never used."""

HEAD = struct.Struct(">iiH")
U16 = struct.Struct(">H")
FIRST = HEAD.size
"""The position of the first element."""


@dataclass(slots=True)
class Head:
    """A chunk's own words about itself."""

    head: int
    tail: int
    next: int


def head_of(header: Path, chunk: int) -> Head | None:
    """Return what a chunk says of itself; None if it is not there, or too short for that."""
    with suppress(NotFound, BadFormat), _files.Source(header.with_name(f"{header.name}.{chunk}")) as source:
        data = source.read(0, FIRST)
        if len(data) == FIRST:
            return Head(*HEAD.unpack(data))
    return None


def size_of(header: Path, chunk: int) -> int:
    """Return the length of a chunk's file."""
    return header.with_name(f"{header.name}.{chunk}").stat().st_size
