"""What somebody has and has not finished, read without a change: open claims in a chunk, messages of a group's ring."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native import layout
from shmq._native.core import error
from shmq._native.member import owner_of
from shmq._native.ring import ring_bytes, ring_extent
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

    from shmq._native.chunk import Chunk


_WORDS_MAX = 200_000
"""So many words behind the first open claim of a chunk are looked at."""
_BLOCKS_MAX = 64
"""So many blocks of a side table."""
_TAKEN = (layout.RING_CLAIMED, layout.RING_MOVING, layout.RING_FORWARDING)
_SIDE_TAKEN = (layout.SIDE_CLAIMED, layout.SIDE_MOVING, layout.SIDE_FORWARDING)
_OWNER = (1 << layout.WORD_OWNER_BITS) - 1


class OpenClaim(NamedTuple):
    """A region that is claimed and not committed. *time_ns*: when, by its record; 0 when that is not written yet."""

    at_index: int
    messages: int
    owner: int
    bytes: int
    time_ns: int
    behind: int
    """How many messages were committed behind it, as far as was looked."""


class HeldMessage(NamedTuple):
    """A message of a group that somebody has. *lease_ns*: when its lease ends, since boot; 0 without one."""

    at_index: int
    owner: int
    lease_ns: int


def open_claims(chunk: Chunk) -> list[OpenClaim]:
    """The claims in *chunk* that are open."""
    position, ordinal = _first_open(chunk)
    found: list[OpenClaim] = []
    memory = chunk.map
    for _ in range(_WORDS_MAX):
        if not 0 < position <= len(memory) - layout.RECORD_HEADER_BYTES:
            break
        word = _number(memory, position)
        state, span = word >> layout.WORD_STATE_SHIFT, word & layout.SPAN_MAX
        count = word >> layout.WORD_COUNT_SHIFT & layout.COUNT_MAX
        if state in (layout.WORD_FREE, layout.WORD_SEAL) or not span:
            break
        if state == layout.WORD_CLAIMED:
            owner = word >> layout.WORD_OWNER_SHIFT & _OWNER
            time_ns = _number(memory, position + layout.record.time_ns)
            found.append(OpenClaim(chunk.base + ordinal, count, owner, span * layout.SPAN_UNIT, time_ns, 0))
        elif state == layout.WORD_DONE:
            found = [each._replace(behind=each.behind + 1) for each in found]
        ordinal += count
        position += span * layout.SPAN_UNIT
    return found


def _first_open(chunk: Chunk) -> tuple[int, int]:
    position, index, owner = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("uint32_t *")
    code = int(lib.shmq_resolved(chunk.handle, position, index, owner))
    if code == lib.SHMQ_WAITING:
        return int(position[0]), int(index[0]) - chunk.base
    if code not in (lib.SHMQ_EMPTY, lib.SHMQ_ROLL):
        raise error(code, f"cannot read {chunk.path}")
    return 0, 0


def held_messages(memory: mmap.mmap, head: int) -> list[HeldMessage]:
    """What members of the group have of the ring in *memory*, whose head is *head*: in the window, then parked."""
    window, buckets, cells, blocks = ring_extent(memory)
    term = _number(memory, layout.ring.term)
    small = layout.ring.tenants + 8 * layout.SMALL_SLOTS
    start = small if cells & layout.RING_SMALL else layout.RING_HEADER_BYTES
    leases = start + 8 * window if cells & layout.RING_LEASES else 0
    found = []
    with memoryview(memory) as view, view[start : start + 8 * window].cast("Q") as words:
        for index in range(head, head + window):
            word = words[index % window]
            if (
                word & 7 in _TAKEN
                and word >> layout.RING_TERM_SHIFT == term
                and word >> layout.RING_LAP_SHIFT & (1 << layout.RING_LAP_BITS) - 1
                == index // window & (1 << layout.RING_LAP_BITS) - 1
            ):
                lease = _number(memory, leases + 8 * (index % window)) if leases else 0
                found.append(HeldMessage(index, word >> layout.RING_OWNER_SHIFT & _OWNER, _lease_ns(lease, word)))
    side = ring_bytes(window, buckets, cells, blocks) - blocks * layout.SIDE_BLOCK_BYTES
    for at in _side_entries(side, blocks):
        state = _number(memory, at + layout.ring_side.state)
        if state & 7 in _SIDE_TAKEN:
            index = _number(memory, at + layout.ring_side.index) - 1
            lease = _number(memory, at + layout.ring_side.lease)
            found.append(HeldMessage(index, state >> layout.RING_OWNER_SHIFT & _OWNER, _lease_ns(lease, state)))
    return found


def tenants(memory: mmap.mmap) -> list[int]:
    """The owners of the members of the ring in *memory*: each has entered it, and nobody has had its seat since."""
    _, _, cells, _ = ring_extent(memory)
    slots = layout.SMALL_SLOTS if cells & layout.RING_SMALL else layout.OWNER_SLOTS
    with memoryview(memory) as view, view[layout.ring.tenants :][: 8 * slots].cast("Q") as words:
        seats = list(words)
    return [owner_of(slot, it) for slot, it in enumerate(seats) if 0 < it < layout.RING_TENANT_DEAD]


def putters(chunk: Chunk, first: int, most: int) -> dict[int, int]:
    """Which owner has put how many of up to *most* messages and batches of *chunk* from index *first* on."""
    _, position, ends = chunk.floor(max(first, chunk.base))
    found: dict[int, int] = {}
    memory = chunk.map
    for _ in range(0 if ends else most):
        if not 0 < position <= len(memory) - layout.RECORD_HEADER_BYTES:
            break
        word = _number(memory, position)
        state, span = word >> layout.WORD_STATE_SHIFT, word & layout.SPAN_MAX
        if state in (layout.WORD_FREE, layout.WORD_SEAL) or not span:
            break
        if state == layout.WORD_DONE:
            owner = word >> layout.WORD_OWNER_SHIFT & _OWNER
            found[owner] = found.get(owner, 0) + (word >> layout.WORD_COUNT_SHIFT & layout.COUNT_MAX)
        position += span * layout.SPAN_UNIT
    return found


def next_due(memory: mmap.mmap) -> int | None:
    """When the first parked message of the ring in *memory* is due, since boot; None when none is parked."""
    window, buckets, cells, blocks = ring_extent(memory)
    side = ring_bytes(window, buckets, cells, blocks) - blocks * layout.SIDE_BLOCK_BYTES
    return min(
        (
            _number(memory, at + layout.ring_side.due_ns)
            for at in _side_entries(side, blocks)
            if _number(memory, at + layout.ring_side.state) & 7 == layout.SIDE_LIVE
        ),
        default=None,
    )


def control_word(page: object, at: int, size: int) -> int:
    """A number of the control page as it is now."""
    return int.from_bytes(ffi.buffer(page)[at : at + size], "little")


def _side_entries(side: int, blocks: int) -> Iterator[int]:
    for block in range(min(blocks, _BLOCKS_MAX)):
        for entry in range(1, layout.SIDE_ENTRIES + 1):
            yield side + block * layout.SIDE_BLOCK_BYTES + 64 * entry


def _lease_ns(lease: int, word: int) -> int:
    """When that lease ends; 0 when it is of another word."""
    tag = (1 << layout.LEASE_TAG_BITS) - 1
    same = lease & tag == word >> layout.RING_COUNT_SHIFT & tag
    return lease >> layout.LEASE_TAG_BITS << layout.LEASE_UNIT_SHIFT if same else 0


def _number(memory: mmap.mmap, at: int) -> int:
    return int.from_bytes(memory[at : at + 8], "little")
