"""The pages beside the chunks: the queue file, with its journal and watermarks, and the control page."""

from __future__ import annotations

import functools
import mmap
import struct

from shmq import errors
from shmq._core import ffi, lib
from shmq._native import layout
from shmq._native.core import CONTROL_BYTES, CONTROL_BYTES_SMALL, PAGE_BYTES, QUEUE_HEADER_BYTES, error, inside
from shmq._native.mapping import map_alone
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_QUEUE = struct.Struct("<QIIII16sqII")  # layout.h, struct queue_file
_JOURNAL = struct.Struct("<QQ16s8QII")  # layout.h, struct journal_slot
_CHANGED = struct.Struct("<II")  # layout.h, struct journal_options, behind which they are
_CHANGED_AT = _JOURNAL.size + _CHANGED.size


def format_queue(queue_id: bytes, created_ns: int, options: bytes) -> bytes:
    """Page 0 of the queue file."""
    page = bytearray(PAGE_BYTES)
    code = lib.shmq_queue_format(ffi.from_buffer(page), queue_id, created_ns, options, len(options))
    if code != lib.SHMQ_OK:
        raise error(code, "cannot store the options")
    return bytes(page)


def check_queue(page: bytes, path: str) -> tuple[bytes, bytes]:
    """The queue's id and its stored options, from page 0 of the queue file."""
    code = lib.shmq_queue_check(page, ffi.NULL, ffi.NULL)
    if code != lib.SHMQ_OK:
        raise error(code, f"cannot read {path}")
    *_, queue_id, _, length, _ = _QUEUE.unpack_from(page)
    return queue_id, page[QUEUE_HEADER_BYTES : QUEUE_HEADER_BYTES + length]


class Journal(NamedTuple):
    """The durable state of the queue: one slot of the queue file. *changed*: the options that were, as JSON."""

    sequence: int
    epoch: int
    ceiling: int
    first_live: int
    first_index: int
    device: int
    inode: int
    max_messages: int
    max_bytes: int
    dropped: int
    flags: int
    boot_id: bytes
    changed: bytes = b""


def format_journal(journal: Journal) -> bytes:
    """A journal slot, and the options that were changed, as a page."""
    page = bytearray(PAGE_BYTES)
    fields = journal._asdict()
    changed = fields.pop("changed")
    slot = ffi.new("shmq_journal *", fields)
    code = lib.shmq_journal_format(ffi.from_buffer(page), slot, changed, len(changed))
    if code != lib.SHMQ_OK:
        raise error(code, "cannot store the options")
    return bytes(page)


def check_journal(page: bytes) -> Journal | None:
    """A journal slot, or None when it is not a valid one."""
    length = lib.shmq_journal_check(page)
    if length < 0:
        return None
    sequence, epoch, boot_id, *numbers, _ = _JOURNAL.unpack_from(page)
    return Journal._make((sequence, epoch, *numbers, boot_id, page[_CHANGED_AT : _CHANGED_AT + length]))


class Watermark(NamedTuple):
    """How far the disk is known to agree: one slot of the queue file. *position* is in chunk *chunk_sequence*."""

    sequence: int
    epoch: int
    chunk_sequence: int
    position: int
    next_index: int


def format_watermark(mark: Watermark) -> bytes:
    """A watermark slot as a page."""
    page = bytearray(PAGE_BYTES)
    lib.shmq_watermark_format(ffi.from_buffer(page), ffi.new("shmq_watermark *", mark._asdict()))
    return bytes(page)


def check_watermark(page: bytes) -> Watermark | None:
    """A watermark slot, or None when it is not a valid one."""
    slot = ffi.new("shmq_watermark *")
    if lib.shmq_watermark_check(page, slot) != lib.SHMQ_OK:
        return None
    return Watermark(**{name: int(getattr(slot, name)) for name in Watermark._fields})


def format_control(queue_id: bytes, *, finished: bool = False, small: bool = False) -> bytes:
    """
    The control file of a new queue; of one that is *finished*, at the beginning of another boot.

    *small*: with few seats.
    """
    page = bytearray(CONTROL_BYTES)
    lib.shmq_control_format(ffi.from_buffer(page), queue_id)
    if finished:
        lib.shmq_set_finished(ffi.from_buffer(page), layout.FINISHED | 1 << layout.FINISHED_SHIFT)
    return bytes(page[:CONTROL_BYTES_SMALL] if small else page)


class Bounds(NamedTuple):
    """The bounds of a queue; 0 is none. *moved* changes when what was computed with them may not hold any more."""

    moved: int
    max_messages: int
    max_bytes: int
    dropped: int
    """What lies before this index was dropped."""


class Counted(NamedTuple):
    """
    What was done at a queue since the boot; layout.h says what each means. *latency*: messages, about one of 64, by how
    old they were when they were first handed out, in buckets of up to 2^10 ns and each twice the one before.
    """

    put_messages: int
    put_bytes: int
    taken_messages: int
    acked: int
    nacked: int
    waits: int
    room_waits: int
    syncs: int
    latency: tuple[int, ...]
    latency_ns: int


class Control:
    """The mapped control page: who is here, the bell, a few counters."""

    def __init__(self, fd: int, size: int, queue_id: bytes, path: str, *, writable: bool) -> None:
        """Map and check it."""
        if size not in (CONTROL_BYTES, CONTROL_BYTES_SMALL):
            raise errors.Corrupt(f"cannot open {path}: it has {size} bytes instead of {CONTROL_BYTES}")
        self._map = map_alone(fd, size, writable=writable)
        self.seats = (size - layout.control.participants) // 64
        self.page = ffi.from_buffer(self._map)
        code = lib.shmq_control_check(self.page, size, queue_id)
        if code != lib.SHMQ_OK:
            raise error(inside(code), f"cannot open {path}")

    @classmethod
    def alone(cls, queue_id: bytes, first_live: int, *, finished: bool) -> Control:
        """One of nobody else's, for whoever reads a queue whose own cannot be believed and must not be changed."""
        made = cls.__new__(cls)
        memory = mmap.mmap(-1, CONTROL_BYTES)
        memory[:] = format_control(queue_id, finished=finished)
        made.page = ffi.from_buffer(memory)
        made.seats = layout.OWNER_SLOTS
        made.raise_first_live(first_live)
        return made

    def first_live(self) -> int:
        """Sequence of the first chunk that belongs to the log."""
        return int(lib.shmq_first_live(self.page))

    def raise_first_live(self, sequence: int) -> None:
        """Nothing before that chunk belongs to the log any more."""
        lib.shmq_raise_first_live(self.page, sequence)

    def newest(self) -> int:
        """Sequence of the last chunk that was entered to put; -1 when none was."""
        return int(lib.shmq_newest(self.page)) - 1

    def newest_base(self) -> int:
        """Where it begins; perhaps, for a moment, the base of one before or behind it."""
        return int(lib.shmq_newest_base(self.page))

    def enter(self, sequence: int, base: int) -> None:
        """Remember that the chunk of that sequence exists, before anything is put there."""
        lib.shmq_newest_raise(self.page, sequence + 1, base)

    def members(self) -> int:
        """A number that changes when somebody joins."""
        return int(lib.shmq_members(self.page))

    def add_padding(self, count: int) -> None:
        """So many indexes without a message came with a set that was adopted."""
        lib.shmq_add_padding(self.page, count)

    def remove_padding(self, count: int) -> None:
        """So many of the indexes without a message went with their chunk."""
        lib.shmq_remove_padding(self.page, count)

    def counters(self) -> tuple[int, int]:
        """Ordinals that ended as padding; commits that came too late."""
        padded, fenced = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.shmq_counters(self.page, padded, fenced)
        return int(padded[0]), int(fenced[0])

    def counts(self) -> Counted:
        """What was done at the queue since the boot, as far as it is counted."""
        sums, latency = ffi.new("uint64_t[]", lib.SHMQ_COUNTS), ffi.new("uint64_t[]", lib.SHMQ_LATENCY_BUCKETS)
        latency_ns = ffi.new("uint64_t *")
        lib.shmq_counts(self.page, sums, latency, latency_ns)
        syncs = int(lib.shmq_syncs(self.page))
        return Counted._make((*map(int, sums), syncs, tuple(map(int, latency)), int(latency_ns[0])))

    def count_waits(self) -> None:
        """One more sleep until something is put."""
        lib.shmq_count(self.page, lib.SHMQ_COUNT_WAITS, 1)

    def count_room_waits(self) -> None:
        """One more sleep until there is room."""
        lib.shmq_count(self.page, lib.SHMQ_COUNT_ROOM_WAITS, 1)

    def count_taken(self, messages: int) -> None:
        """So many more messages that were handed out, without a built-in."""
        lib.shmq_count(self.page, lib.SHMQ_COUNT_TAKEN, messages)

    def count_acked(self) -> None:
        """One more message that was acknowledged, without a built-in."""
        lib.shmq_count(self.page, lib.SHMQ_COUNT_ACKED, 1)

    def count_nacked(self) -> None:
        """One more message that was given back by its holder."""
        lib.shmq_count(self.page, lib.SHMQ_COUNT_NACKED, 1)

    def shut_down(self, *, on: bool, at_once: bool = False) -> None:
        """Refuse puts from now on, and gets too if it is *at_once*; or allow them again."""
        how = layout.SHUT_DOWN_AT_ONCE if at_once or self.is_shut_down_at_once() else layout.SHUT_DOWN
        lib.shmq_shut_down(self.page, how if on else 0)

    def is_shut_down(self) -> bool:
        """Whether the queue was shut down, one way or the other."""
        return bool(lib.shmq_is_shut_down(self.page))

    def is_shut_down_at_once(self) -> bool:
        """Whether gets are refused as well."""
        return bool(lib.shmq_is_shut_down(self.page) == layout.SHUT_DOWN_AT_ONCE)

    def finished(self) -> tuple[int, int]:
        """Whether it is finished (UNFINISHED, FINISHING or FINISHED), and how often it was in this boot."""
        finished = int(lib.shmq_finished(self.page))
        return finished & layout.FINISHED_MASK, finished >> layout.FINISHED_SHIFT

    def set_finished(self, state: int, times: int) -> None:
        """Say so. Under the administrative lock only."""
        lib.shmq_set_finished(self.page, state | times << layout.FINISHED_SHIFT & 0xFFFFFFFF)

    def wake(self) -> None:
        """Have every sleeper look again."""
        lib.shmq_wake_always(self.page)

    # ---- syncing
    def durable(self) -> int:
        """Every index below it is on the disk, as far as this boot knows."""
        return int(lib.shmq_durable(self.page))

    def durable_chunk(self) -> int:
        """Sequence of the chunk where the next sync begins to look."""
        return int(lib.shmq_durable_chunk(self.page))

    def durable_at(self, chunk: int) -> int:
        """A position in the chunk of that sequence before which everything is on the disk; 0 when none is known."""
        return int(lib.shmq_durable_at(self.page, chunk))

    def bell(self) -> int:
        """The bell as it is, for whoever need not be told of puts."""
        return int(lib.shmq_bell(self.page))

    def reset_durable(self, index: int, chunk: int) -> None:
        """As leader, when these words cannot be true: nothing is known but what the watermark says."""
        lib.shmq_durable_reset(self.page, index, chunk)

    def sync_failed(self) -> bool:
        """Whether a sync failed, and nobody has verified since what is on the disk."""
        return bool(lib.shmq_sync_has_failed(self.page))

    def fail_sync(self, *, failed: bool) -> None:
        """Tell every process that a sync failed; or that what is there has been verified."""
        lib.shmq_sync_failed(self.page, failed)

    def bounds(self) -> Bounds:
        """The bounds as they are now. To be looked at before the heads are."""
        values = ffi.new("uint64_t[3]")
        moved = lib.shmq_bounds(self.page, values, values + 1, values + 2)
        return Bounds(moved, *values)

    def set_bounds(self, max_messages: int, max_bytes: int) -> None:
        """Bound the queue from now on; 0 is none."""
        lib.shmq_bounds_set(self.page, max_messages, max_bytes)

    def recount(self) -> None:
        """A head went back, or a name came or went: what producers know of the room is not true any more."""
        lib.shmq_bounds_recount(self.page)

    def room(self) -> None:
        """A head went forward: have producers look that wait for room."""
        lib.shmq_room(self.page)

    @property
    def tell_room(self) -> Callable[[], None]:
        """The same without a function in Python, at whose beginning a signal's handler might keep it from that."""
        return functools.partial(lib.shmq_room, self.page)

    def drop_for_all(self, index: int) -> None:
        """Drop what lies before *index*, in a queue that may never have had bounds."""
        self.drop(index)
        lib.shmq_bounds_begin(self.page)

    def drop(self, index: int) -> None:
        """Drop what lies before *index* for everybody, but what is handed out and not acknowledged."""
        lib.shmq_drop(self.page, index)

    def participants(self) -> list[tuple[int, int, int, int, int]]:
        """(slot, generation, pid, pid namespace, start time) of whoever ever sat here, alive or not."""
        seat = ffi.new("shmq_participant *")
        found = []
        slot = 0
        while slot < self.seats and lib.shmq_participant_at(self.page, slot, seat):
            found.append((slot, seat.generation, seat.pid, seat.pid_namespace, seat.start_time))
            slot += 1
        return found
