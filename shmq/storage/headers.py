"""
The header of a chunk that is damaged, as it must have been: its checksum proves it.

What the name, the queue and the library say is known: where it begins, of which queue it is, how its format is called.
Of the rest one bit may be wrong: there is one bit at most whose turning makes the checksum right. A file that was cut
short has a whole header, which says how long it was; behind the cut are zeros.
"""

from __future__ import annotations

import mmap
import os

from shmq import _native, errors
from shmq._native.layout import chunk_header
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import new_chunks, spares
from shmq.storage.paths import CHUNKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory

BYTES = chunk_header.hint
_BEFORE_CRC, _CRC = slice(0, chunk_header.crc), slice(chunk_header.crc, chunk_header.magic)
_COVERED = slice(chunk_header.magic, BYTES)
_FORMAT = slice(chunk_header.magic, chunk_header.incompatible)
_QUEUE_ID = slice(chunk_header.queue_id, chunk_header.chunk_id)
_BORN = slice(chunk_header.born_base, chunk_header.reserved1)
_CAPACITY = slice(chunk_header.capacity, chunk_header.index_spacing)
_STAGED = b"\xff" * 16
_BITS = 8 * (_COVERED.stop - _COVERED.start)


def _single_bits() -> dict[int, int]:
    """By what the checksum is wrong when that bit is."""
    zeros = bytes(_BITS // 8)
    right = _native.crc32c(zeros)
    found = {}
    for bit in range(_BITS):
        content = bytearray(zeros)
        content[bit // 8] = 1 << bit % 8
        found[_native.crc32c(bytes(content)) ^ right] = bit
    return found


class Candidate(NamedTuple):
    """A header that a damaged one may have been, and how long the chunk was made by it."""

    header: bytes
    capacity: int


def candidates(home: Directory, fd: int, base: int, sequence: int) -> Iterator[Candidate]:
    """What the header of that file may have been, if a chunk can be as long; none that are any likelier come later."""
    for header in _with_right_checksum(home, os.pread(fd, BYTES, 0), base, sequence):
        capacity = int.from_bytes(header[_CAPACITY], "little")
        if _native.PAGE_BYTES <= capacity <= _native.CHUNK_BYTES_MAX:
            yield Candidate(header, capacity)


def _with_right_checksum(home: Directory, header: bytes, base: int, sequence: int) -> Iterator[bytes]:
    if len(header) < BYTES:
        return
    with mmap.mmap(-1, _native.PAGE_BYTES * 4) as memory:
        new_chunks.format_chunk(home, -1, len(memory), base, sequence, mapped=memory)
        model = memory[:BYTES]
    wrong_by = _single_bits()
    for known in ((), ((_BORN, model[_BORN]),), ((_BORN, _STAGED),)):
        made = bytearray(header)
        made[_BEFORE_CRC] = model[_BEFORE_CRC]
        if known:
            made[_FORMAT], made[_QUEUE_ID] = model[_FORMAT], model[_QUEUE_ID]
        for place, content in known:
            made[place] = content
        stored = int.from_bytes(made[_CRC], "little")
        wrong = stored ^ _native.crc32c(bytes(made[_COVERED]))
        if wrong.bit_count() == 1:  # the checksum itself is
            made[_CRC] = (stored ^ wrong).to_bytes(4, "little")
        elif wrong in wrong_by:
            made[_COVERED.start + wrong_by[wrong] // 8] ^= 1 << wrong_by[wrong] % 8
        elif wrong:
            continue
        yield bytes(made)


class Mended(NamedTuple):
    """A chunk that is read by the header that it must have had, and whether its file is shorter than it was."""

    chunk: _native.DetachedChunk
    is_cut: bool


def mended(home: Directory, directory: int, name: str, sequence: int, base: int) -> Mended | None:
    """
    A chunk that cannot be opened, to be looked at; None where nothing proves what its header was.

    Nothing is changed: a page of it is copied, or all that is left of a file that was cut short.

    Raises:
        FileNotFoundError: it was retired meanwhile.
    """
    fd, size = home.open(directory, name, writable=False)
    with fd:
        spares.hold_as_mapper(fd, name, directory)
        for header, whole in candidates(home, fd, base, sequence):
            memory = _native.map_private(fd, whole) if size >= whole else _filled(fd, size, whole)
            memory[:BYTES] = header
            try:
                return Mended(
                    _native.DetachedChunk(
                        fd,
                        whole,
                        base=base,
                        sequence=sequence,
                        queue_id=home.queue_id,
                        path=f"{home.path}/{CHUNKS}/{name}",
                        checksum=home.options.checksum,
                        memory=memory,
                    ),
                    size < whole,
                )
            except (errors.Corrupt, errors.BadFormat):
                continue
    return None


def _filled(fd: int, size: int, whole: int) -> mmap.mmap:
    """What there is of the file, and zeros behind it."""
    memory = mmap.mmap(-1, whole)
    for at in range(0, size, 1 << 20):
        content = os.pread(fd, min(size - at, 1 << 20), at)
        memory[at : at + len(content)] = content
    return memory
