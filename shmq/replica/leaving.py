"""Chunks that leave, as pieces: how each was made, and its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq._native import layout
from shmq.replica.pieces import DATA_MAX, Begin, Data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq import _native

_HEADER = layout.chunk_header
_HEADER_BYTES = 128


def _number(header: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(header[at : at + size], "little")


def beginning(chunk: _native.DetachedChunk, sequence: int, base: int, *, whole: bool, adoption: int = 0) -> Begin:
    """How that chunk was made. *adoption*: of which set it is, where it goes aside."""
    header = chunk.content(0, _HEADER_BYTES)
    return Begin(
        sequence,
        base,
        chunk.size,
        _number(header, _HEADER.chunk_id),
        _number(header, _HEADER.epoch),
        _number(header, _HEADER.index_spacing, 4),
        _number(header, _HEADER.grain, 4),
        _number(header, _HEADER.created_ns),
        _number(header, _HEADER.born_base),
        _number(header, _HEADER.born_sequence),
        whole,
        adoption,
    )


def data(chunk: _native.DetachedChunk, begin: int, end: int) -> Iterator[Data]:
    """The bytes of it between two places."""
    for at in range(begin, end, DATA_MAX):
        yield Data(at, chunk.content(at, min(at + DATA_MAX, end)))
