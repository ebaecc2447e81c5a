"""A group's ring: claims, leases, acknowledgements, and what is parked."""

from __future__ import annotations

import functools
import struct

from shmq._core import ffi, lib
from shmq._native.core import GROW, Kept, error, inside, taken
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator
    from typing import Any

    from shmq._native.checkpoint import Checkpoint
    from shmq._native.chunk import Chunk
    from shmq._native.core import Message
    from shmq._native.member import Member

RING_WINDOW, RING_BUCKETS, SIDE_BLOCKS = 65536, 16384, 1
"""Messages in flight at most, buckets of keys where they come in order, and the blocks of a new side table."""
SIDE_BLOCKS_MAX, RING_TENANTS, RING_HEADER_BYTES = 524288, 4096, 12288
"""Blocks of the largest side table; where the tenants are in a ring's header, and how long that is."""
RING_CLAIMED, RING_DONE, RING_MOVING, RING_PARKED, RING_FORWARDING = 1, 2, 4, 5, 6
RING_LEASES, RING_ATTEMPTS, RING_SMALL = 1, 2, 4
TAKEN_MESSAGE, TAKEN_EXPIRED, TAKEN_MOVING = lib.SHMQ_TAKEN_MESSAGE, lib.SHMQ_TAKEN_EXPIRED, lib.SHMQ_TAKEN_MOVING
_INT64_MAX = (1 << 63) - 1
_taken_arrays = functools.partial(ffi.new, ffi.typeof("shmq_taken[]"))


def taken_array(limit: int) -> Any:
    """Room for messages as they are handed out."""
    return _taken_arrays(limit)


_TAKEN = struct.Struct("<5Q2I16x")  # shmq_taken


def taken_rows(taken: Any, count: int) -> list[tuple[int, int, int, int, int, int, int]]:
    """(index, place, record, word, entry, attempts, kind) of the first *count* of them."""
    return list(_TAKEN.iter_unpack(ffi.buffer(taken, count * _TAKEN.size)))


_taken_at = functools.partial(ffi.cast, ffi.typeof("shmq_taken *"))


def taken_at(address: int) -> Any:
    """What the core knows of a message that was handed out, which lies there."""
    return _taken_at(address)


def taken_of(message: Message) -> Any:
    """What the core knows of that message; for as long as that lives."""
    return _taken_at(taken(message))


def forwards(taken: Any) -> bool:
    """Whether it is being put into other queues."""
    return bool(lib.shmq_taken_forwards(taken))


class RingFigures(NamedTuple):
    """What a group is at; layout.h and shmq.h say what each means."""

    head: int
    handed: int
    claimed: int
    returned: int
    parked: int
    waiting: int
    redelivered: int
    expired: int
    moved: int
    unmoved: int
    edges: int
    window: int
    at_edge: int
    retired: int
    dropped_to: int
    to_drop: int


def ring_bytes(window: int, buckets: int, cells: int, blocks: int) -> int:
    """Bytes of a ring file."""
    return int(lib.shmq_ring_bytes(window, buckets, cells, blocks))


def ring_extent(memory: mmap.mmap | bytes) -> tuple[int, int, int, int]:
    """The window, the buckets, the cells and the side blocks that a ring's header names."""
    window, buckets, cells = (int.from_bytes(memory[at : at + 4], "little") for at in (48, 52, 56))
    return window, buckets, cells, int.from_bytes(memory[192:200], "little")


def format_ring(memory: mmap.mmap, queue_id: bytes, boot_id: bytes, extent: tuple[int, int, int, int]) -> None:
    """Write the header of a new ring into zeros: window, buckets (0 = in no order), cells and side blocks."""
    code = lib.shmq_ring_format(ffi.from_buffer(memory), queue_id, boot_id, *extent)
    if code != lib.SHMQ_OK:
        raise error(code, "cannot make a ring")


def _free_ring(memory: Any, member: Any, checkpoint: Any, handle: Any) -> None:  # noqa: ARG001  # they live as long
    lib.shmq_ring_free(handle)


class Ring:
    """One handle on a group's mapped ring. For one thread at a time."""

    def __init__(
        self,
        memory: mmap.mmap,
        queue_id: bytes,
        checkpoint: Checkpoint,
        member: Member | None,
        path: str,
        *,
        lease_ns: int = 0,
        finish: bool = False,
        keep_expired: bool = False,
    ) -> None:
        """Check it. Without a member it can only be looked at."""
        self._memory = memory
        self._path = path
        code = ffi.new("int *")
        handle = lib.shmq_ring_new(
            ffi.from_buffer(memory),
            len(memory),
            queue_id,
            checkpoint.page,
            ffi.NULL if member is None else member.handle,
            lease_ns,
            finish,
            keep_expired,
            code,
        )
        if handle == ffi.NULL:
            raise error(inside(code[0]), f"cannot open {path}")
        self.handle = ffi.gc(handle, functools.partial(_free_ring, memory, member, checkpoint))
        self._kept = Kept(self.handle)
        self._next = ffi.new("int64_t *")
        self._again = ffi.new("bool *")
        self.buckets = int(lib.shmq_ring_buckets(self.handle))
        """Of keys; 0 = messages come in no order."""
        self.cells = int(lib.shmq_ring_cells(self.handle))
        """What there is for each message of the window besides its word."""
        self.blocks = self.side_blocks()
        """Of the side table, as many as are mapped here."""

    @staticmethod
    def boot_id(memory: mmap.mmap, queue_id: bytes, path: str) -> bytes:
        """The boot that the ring speaks of."""
        boot = bytearray(16)
        code = lib.shmq_ring_check(ffi.from_buffer(memory), len(memory), queue_id, ffi.from_buffer(boot))
        if code != lib.SHMQ_OK:
            raise error(inside(code), f"cannot open {path}")
        return bytes(boot)

    @staticmethod
    def rebuild(memory: mmap.mmap, checkpoint: Checkpoint, boot_id: bytes, path: str, first: int = 0) -> None:
        """
        At a new boot: forget what the ring says, and set it by the checkpoint's newest snapshot.

        Nothing is there before index *first*; 0 if that is not known.
        """
        code = lib.shmq_ring_rebuild(ffi.from_buffer(memory), len(memory), checkpoint.page, boot_id, first)
        if code != lib.SHMQ_OK:
            raise error(inside(code), f"cannot rebuild {path}")

    @staticmethod
    def bury(memory: mmap.mmap, queue_id: bytes, slot: int) -> bool:
        """Note that whoever sat in that seat before is dead; the ring's header is enough. False when it is no ring."""
        return int(lib.shmq_ring_bury(ffi.from_buffer(memory), len(memory), queue_id, slot)) == lib.SHMQ_OK

    @staticmethod
    def forget(memory: mmap.mmap) -> None:
        """Clear the boot id, so that whoever opens it next rebuilds it."""
        lib.shmq_ring_forget(ffi.from_buffer(memory))

    def remap(self, memory: mmap.mmap) -> None:
        """It was mapped again."""
        code = lib.shmq_ring_remap(self.handle, ffi.from_buffer(memory), len(memory))
        if code != lib.SHMQ_OK:
            raise error(inside(code), f"cannot open {self._path}")
        self._memory = memory
        self.blocks = self.side_blocks()

    def side_blocks(self) -> int:
        """Blocks of the side table, in the file."""
        return int(lib.shmq_ring_side_blocks(self.handle))

    def extend(self, blocks: int) -> None:
        """The file has been made large enough for so many."""
        lib.shmq_ring_extend(self.handle, blocks)

    def join(self) -> int:
        """Enter the group: 0, or GROW when the ring must be mapped anew first."""
        return int(lib.shmq_ring_join(self.handle))

    def leave(self) -> int:
        """Give back what this process has of it and no handle knows of: 0, or GROW when it must be mapped anew."""
        return self._done(lib.shmq_ring_leave(self.handle), "leave")

    def take(self, chunk: Chunk, reader: Any, limit: int, spins: int, taken: Any) -> int:
        """Claim what nobody has had yet: how many, or a negative code."""
        return int(lib.shmq_ring_take(self.handle, chunk.handle, reader, limit, spins, taken))

    def retake(self, limit: int, taken: Any, *, idle: bool) -> tuple[int, int | None]:
        """Claim what came back or is due: how many (or GROW), and when to look again (since boot)."""
        count = int(lib.shmq_ring_retake(self.handle, idle, limit, taken, self._next))
        due = int(self._next[0])
        return count, None if due == _INT64_MAX else due

    def glance(self, chunk: Chunk, reader: Any) -> int:
        """Whether there is something that nobody has had: 1, or a negative code."""
        return int(lib.shmq_ring_glance(self.handle, chunk.handle, reader))

    def glance_back(self, most: int) -> tuple[int, int | None]:
        """
        Whether something came back or is due: 1, 2, 0 or GROW; and when to look again (since boot).

        2 (TO_BE_MOVED): only what is to be moved elsewhere: a dead one had begun that, or it was handed out *most*
        times (0: any).
        """
        answer = int(lib.shmq_ring_glance_back(self.handle, most, self._next))
        due = int(self._next[0])
        return answer, None if due == _INT64_MAX else due

    def peek(self, start: int) -> int:
        """The first index at or behind *start* that nobody has; EMPTY when the window has none."""
        return int(lib.shmq_ring_peek(self.handle, start))

    def skip(self, index: int, following: int) -> bool:
        """Indexes that will never be; False while what is before them is not finished."""
        return bool(lib.shmq_ring_skip(self.handle, index, following) == lib.SHMQ_OK)

    def pass_gap(self, index: int, following: int) -> int:
        """The same, and why not: EDGE, or GROW."""
        return int(lib.shmq_ring_skip(self.handle, index, following))

    def holds(self, count: int, due: int | None) -> int | None:
        """
        How many messages this handle has and has not finished; to be told whenever EDGE is answered.

        When to ask again, since boot: at *due*, or earlier.
        """
        again = int(lib.shmq_ring_holds(self.handle, count))
        again = again if due is None else min(again, due)
        return None if again == _INT64_MAX else again

    def skip_one(self, index: int) -> int:
        """Finish what nobody was handed: OK, EMPTY when it is finished, LOST when somebody has or had it, EDGE."""
        return int(lib.shmq_ring_skip_one(self.handle, index))

    def ack(self, taken: Any) -> int:
        """Finish it: OK, LOST or GROW."""
        return int(lib.shmq_ring_ack(self.handle, taken))

    def ack_many(self, count: int, taken: Any) -> int:
        """Finish as many as are still ours: how many; or GROW, and then again."""
        return int(lib.shmq_ring_ack_many(self.handle, count, taken))

    def give_back(self, taken: Any) -> int:
        """Whoever comes first has it: OK, LOST or GROW."""
        return int(lib.shmq_ring_return(self.handle, taken))

    def undo(self, taken: Any) -> int:
        """The same of what was claimed and handed to nobody: as far as that is known, no attempt. OK, LOST or GROW."""
        return int(lib.shmq_ring_undo(self.handle, taken))

    def nack(self, taken: Any, due_ns: int, behind: int) -> int:
        """Hand it out again later: OK, LOST or GROW."""
        return int(lib.shmq_ring_nack(self.handle, taken, due_ns, behind))

    def extend_lease(self, taken: Any, ends_ns: int) -> int:
        """Keep it longer: OK, LOST or GROW."""
        return int(lib.shmq_ring_extend_lease(self.handle, taken, ends_ns))

    def moving(self, taken: Any) -> int:
        """It goes to another queue: OK, LOST or GROW."""
        return int(lib.shmq_ring_moving(self.handle, taken))

    def forward(self, taken: Any) -> int:
        """It is about to be put into other queues, and nobody else ends that: OK, LOST or GROW."""
        return int(lib.shmq_ring_forward(self.handle, taken, self._again))

    @property
    def again(self) -> bool:
        """Of the last one that `forward` said OK of: whether it may have been put there before."""
        return bool(self._again[0])

    def unforward(self, taken: Any) -> int:
        """Nothing was put; it is held as before: OK or LOST."""
        return int(lib.shmq_ring_unforward(self.handle, taken))

    def unsure(self, end: int, *, known: bool = False) -> None:
        """Of what lies before *end* nobody knows whether it was put elsewhere: behind a rebuild, or *known*."""
        lib.shmq_ring_unsure(self.handle, end, known)

    def count_moved(self, *, expired: bool) -> None:
        """One more has gone to another queue, or was too old."""
        lib.shmq_ring_count_moved(self.handle, expired)

    def count_retired(self, count: int) -> None:
        """So many more were taken by retention before anybody had finished them."""
        lib.shmq_ring_count_retired(self.handle, count)

    def retire(self, first: int) -> int:
        """Everything below was retired: how many of it nobody had finished; or GROW."""
        return self._done(lib.shmq_ring_retire(self.handle, first), "finish what was retired of")

    def drop(self, target: int) -> int:
        """Finish what nobody has of everything below, and have the rest finished when it comes back: OK or GROW."""
        return self._done(lib.shmq_ring_drop(self.handle, target), "drop messages of")

    def held(self, target: int) -> int:
        """The lowest index below *target* that a living member has, or *target*; or GROW."""
        return self._done(lib.shmq_ring_held(self.handle, target), "look at")

    def lowest(self) -> int:
        """The lowest index that is still needed, as it is now; or GROW."""
        return int(lib.shmq_ring_lowest(self.handle))

    def _done(self, answer: int, tried: str) -> int:
        if answer < 0 and answer != GROW:
            raise error(answer, f"cannot {tried} {self._path}")
        return int(answer)

    def count_unmoved(self) -> None:
        """One could not be moved, and is tried again."""
        lib.shmq_ring_count_unmoved(self.handle)

    def rest(self, *, on: bool) -> None:
        """Say that this process holds messages and waits for the end of the stream, or that it does not."""
        lib.shmq_ring_rest(self.handle, on)

    def drained(self, *, holding: bool) -> bool:
        """Whether all that was walked over is finished; *holding*: or with those who said that they wait, and us."""
        return bool(lib.shmq_ring_drained(self.handle, holding))

    def unfinished(self, first: int, end: int) -> tuple[int, int, int]:
        """
        How many indexes between the two are not finished, the head as it was then, and the first of them.

        Padding counts that no member has walked over yet; `open_in` says of how much of some that is so.
        """
        head, lowest = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        count = int(lib.shmq_ring_unfinished(self.handle, first, end, head, lowest))
        return count, int(head[0]), int(lowest[0])

    def open_in(self, head: int, first: int, stop: int) -> int:
        """How many of these indexes are at *head* or behind it and not finished."""
        return int(lib.shmq_ring_open_in(self.handle, head, first, stop))

    def parked(self) -> Iterator[tuple[int, bool]]:
        """(index, whether somebody has it) of each message that is parked and not finished, in no order."""
        entry = ffi.new("uint64_t *")
        indexes, held = ffi.new("uint64_t[]", 512), ffi.new("uint8_t[]", 512)
        while count := int(lib.shmq_ring_parked(self.handle, entry, 512, indexes, held)):
            for at in range(count):
                yield int(indexes[at]), bool(held[at])

    def floor(self) -> int:
        """Nothing below it is needed; noted in the checkpoint."""
        return int(lib.shmq_ring_floor(self.handle))

    def snapshot(self, epoch: int) -> int:
        """As leader: write down what is done, for after a power cut. Its sequence; or GROW: map the ring anew first."""
        code = int(lib.shmq_ring_snapshot(self.handle, epoch))
        if code < 0 and code != GROW:
            raise error(code, f"cannot write a snapshot of {self._path}")
        return code

    def fix(self, epoch: int) -> bytes | None:
        """The content of the next snapshot, which `write_fixed` writes; None: map the ring anew first."""
        content = ffi.new("char[]", lib.SHMQ_SNAPSHOT_BYTES)
        code = lib.shmq_ring_fix(self.handle, epoch, content)
        if code not in (lib.SHMQ_OK, GROW):
            raise error(code, f"cannot write a snapshot of {self._path}")
        return None if code == GROW else bytes(ffi.buffer(content))

    def states(self) -> tuple[int, bytes]:
        """The head, and the RING_ state of each index of the window from it on."""
        states = bytearray(self.figures().window)
        head = int(lib.shmq_ring_states(self.handle, ffi.from_buffer(states)))
        return head, bytes(states)

    def figures(self) -> RingFigures:
        """What the group is at."""
        figures = ffi.new("shmq_ring_figures *")
        lib.shmq_ring_counts(self.handle, figures)
        return RingFigures(*(int(getattr(figures, name)) for name in RingFigures._fields))
