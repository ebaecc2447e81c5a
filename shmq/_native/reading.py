"""From message to message in a chunk: readers, places, and look-up by ordinal and by time."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native.core import error
from shmq._native.survey import Damage, damage_of
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from shmq._native.chunk import Chunk

next_many = lib.shmq_next_many
find = lib.shmq_find
"""find(chunk handle, ordinal, record): the message's place, and its record's position; or a negative code."""


def new_which() -> Any:
    """Where `take` and `glance` say which message they found: its `record` and its `index`."""
    return ffi.new("shmq_which *")


def take(chunk: Chunk, reader: Any, spins: int, which: Any) -> int:
    """As `look`, and which message it is."""
    return int(lib.shmq_next_which(chunk.handle, reader, spins, which))


def look(chunk: Chunk, reader: Any, spins: int) -> int:
    """The next message's place, looking *spins* times, or a negative code."""
    return int(lib.shmq_next(chunk.handle, reader, spins))


def glance(chunk: Chunk, reader: Any, which: Any) -> int:
    """What `take` would answer now, handing out nothing: the reader stands before it."""
    return int(lib.shmq_glance(chunk.handle, reader, which))


def reader_seek(chunk: Chunk, reader: Any, ordinal: int) -> int:
    """Move the reader to the word that holds *ordinal*: 0, ROLL (behind this chunk) or EMPTY (not claimed yet)."""
    code = int(lib.shmq_reader_seek(chunk.handle, reader, ordinal))
    if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL, lib.SHMQ_EMPTY):
        raise error(code, f"cannot read {chunk.path}")
    return code


def resync(chunk: Chunk, reader: Any) -> Damage | None:
    """What is damaged where that reader stopped; None when nothing whole is behind it in that chunk."""
    return damage_of(ffi.new("shmq_damage *"), lambda damage: lib.shmq_resync_reader(chunk.handle, reader, damage))


def place_arrays(limit: int) -> tuple[Any, Any]:
    """Room for the places and records that next_many returns."""
    return ffi.new("uint64_t[]", limit), ffi.new("uint64_t[]", limit)


_ROOM = 256
"""Messages that one call of `messages` returns at most."""


def messages(chunk: Chunk, first: int, last: int) -> list[tuple[int, int, int]]:
    """
    (index, record, place) of the messages of ordinals *first* to *last* - 1 that are there now, up to _ROOM of them.

    Raises:
        Corrupt: one is damaged.
    """
    last = min(last, first + _ROOM)
    arrays = [ffi.new("uint64_t[]", _ROOM) for _ in range(3)]
    count = lib.shmq_range(chunk.handle, first, last, *arrays)
    if count < 0:
        raise error(count, f"cannot read {chunk.path}")
    return list(zip(*(ffi.unpack(array, count) for array in arrays), strict=True))


class Found(NamedTuple):
    """Where a chunk has the first message of a time: *code* is 0, EMPTY or ROLL."""

    code: int
    ordinal: int
    open: int | None
    time_max: int


def first_at(chunk: Chunk, time_ns: int) -> Found:
    """
    The first message whose time is *time_ns* or later, and the first claim before it that is not committed yet.

    Raises:
        Corrupt: it is damaged.
    """
    ordinal, claim, time_max = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("int64_t *")
    code = int(lib.shmq_at(chunk.handle, time_ns, ordinal, claim, time_max))
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY, lib.SHMQ_ROLL, lib.SHMQ_RETIRED):
        raise error(code, f"cannot read {chunk.path}")
    still = None if claim[0] == (1 << 64) - 1 else int(claim[0])
    return Found(code, int(ordinal[0]), still, int(time_max[0]))
