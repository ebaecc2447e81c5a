"""Filters, as the core asks them of records."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native.core import Message, error, parts
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq._native.chunk import Chunk
    from shmq._native.core import Handled

_AT_A_TIME = 1 << 16
"""Messages for one call of `count`, between two of which signals are heard."""


class Matcher:
    """What is asked of each record: how its key begins, its type, its headers."""

    def __init__(self, key_prefix: bytes, types: Sequence[int], headers: bytes) -> None:
        """*headers*: a msgpack map, or nothing."""
        found = lib.shmq_filter_new(
            key_prefix, len(key_prefix), ffi.new("uint16_t[]", list(types)), len(types), headers, len(headers)
        )
        if found == ffi.NULL:
            raise MemoryError("no memory for a filter")
        self.handle = ffi.gc(found, lib.shmq_filter_free)

    def wants(self, message: Message) -> bool:
        """Whether that message matches."""
        chunk, record, *_ = parts(message)
        return self.wants_record(chunk, record)

    def wants_record(self, chunk: Chunk, record: int) -> bool:
        """Whether the message matches whose record is there."""
        code = lib.shmq_filter_matches(self.handle, chunk.handle, record)
        if code < 0:
            raise error(code, f"cannot read {chunk.path}")
        return bool(code)

    def count(self, chunk: Chunk, first: int, stop: int, ring: Handled | None = None, head: int = 0) -> int:
        """
        How many of the messages of *chunk* from index *first* to before *stop* match; with *ring*, of those from *head*
        on that are not finished. What is damaged might match, and what is behind it.
        """
        position = ffi.new("uint64_t *", chunk.first_position())
        ordinal, found = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = int(lib.SHMQ_PASSED)
        walk = ffi.new("shmq_reader *", {"position": chunk.first_position()})
        if first > chunk.base:
            lib.shmq_reader_seek(chunk.handle, walk, first - chunk.base)
            position[0], ordinal[0] = walk.position, walk.ordinal
        while code == lib.SHMQ_PASSED:
            at = position, ordinal, first, stop, _AT_A_TIME, found
            if ring is None:
                code = lib.shmq_filter_count(self.handle, chunk.handle, *at)
            else:
                code = lib.shmq_ring_count(ring.handle, head, self.handle, chunk.handle, *at)
        if code == lib.SHMQ_CORRUPT:
            rest = max(min(stop, chunk.next_index()) - max(first, chunk.base + int(ordinal[0])), 0)
            return int(found[0]) + rest
        return int(found[0])
