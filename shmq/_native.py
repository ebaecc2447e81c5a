"""
The one place that touches `ffi` and `lib`: handles, error mapping, the fork guard.

Every other module sees Python types. `put` and `take` in their plain form do not even pass through here: Tail and Head
are built-ins of the same shared object, and one operation crosses into C exactly once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import itertools
import mmap
import os
import struct
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shmq import _core, errors
from shmq._core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EMPTY, ROLL, WAITING, FORKED = lib.SHMQ_EMPTY, lib.SHMQ_ROLL, lib.SHMQ_WAITING, lib.SHMQ_FORKED
SHUT_DOWN = lib.SHMQ_SHUT_DOWN
TIMEOUT, CONTENDED, FULL = lib.SHMQ_TIMEOUT, lib.SHMQ_CONTENDED, lib.SHMQ_FULL
RETIRED, PADDED, CORRUPT = lib.SHMQ_RETIRED, lib.SHMQ_PADDED, lib.SHMQ_CORRUPT
OK, SIGNAL, LEAD, SYNC_FAILED = lib.SHMQ_OK, lib.SHMQ_SIGNAL, lib.SHMQ_LEAD, lib.SHMQ_SYNC_FAILED
EDGE, GROW, LOST = lib.SHMQ_EDGE, lib.SHMQ_GROW, lib.SHMQ_LOST
TO_BE_MOVED = 2
"""Of a glance: only what nobody is handed any more."""
LENGTH_BITS = 30
LENGTH_MASK = (1 << LENGTH_BITS) - 1
"""A place is a payload's position << LENGTH_BITS | its length."""
PAGE_BYTES, QUEUE_BYTES, CONTROL_BYTES = lib.SHMQ_PAGE_BYTES, lib.SHMQ_QUEUE_BYTES, lib.SHMQ_CONTROL_BYTES
QUEUE_HEADER_BYTES, CHECKPOINT_BYTES, BATCH_MAX = (
    lib.SHMQ_QUEUE_HEADER_BYTES,
    lib.SHMQ_CHECKPOINT_BYTES,
    lib.SHMQ_BATCH_MAX,
)
SNAPSHOT_BASE, SNAPSHOT_BYTES = lib.SHMQ_SNAPSHOT_BASE, lib.SHMQ_SNAPSHOT_BYTES
JOURNAL_SYNC_FAILED, JOURNAL_FINISHED = 1, 2  # layout.h, enum journal_flag
SHUT_DOWN_DRAINING, SHUT_DOWN_AT_ONCE = 1, 2  # layout.h, enum shut_down
UNFINISHED, FINISHING, FINISHED = 0, 1, 2  # layout.h, enum finished
_FINISHED_SHIFT, _FINISHED_MASK = 2, 3
CHUNK_BYTES_MAX = 1 << 31
STAGED = (1 << 64) - 1
RECORD_BYTES_MIN = 40  # likewise, RECORD_HEADER_BYTES
NO_LIMIT = (1 << 64) - 1
TAIL_RESERVE = 32  # likewise
_CHUNK_ID_AT = 56  # layout.h, struct chunk_header
NOW = -(1 << 63)
FOREVER = -1

_EXCEPTIONS: dict[int, type[Exception]] = {
    lib.SHMQ_EMPTY: errors.Empty,
    lib.SHMQ_FENCED: errors.Fenced,
    lib.SHMQ_FORKED: errors.Forked,
    lib.SHMQ_CORRUPT: errors.Corrupt,
    lib.SHMQ_TOO_LARGE: errors.TooLarge,
    lib.SHMQ_TOO_MANY: errors.TooMany,
    lib.SHMQ_SHUT_DOWN: errors.ShutDown,
    lib.SHMQ_FORMAT: errors.BadFormat,
    lib.SHMQ_FOREIGN: errors.BadFormat,
    lib.SHMQ_LOST: errors.LeaseLost,
    lib.SHMQ_SYNC_FAILED: errors.SyncFailed,
    lib.SHMQ_FULL: errors.Full,
}


def story() -> str:
    """What the core has to say about this thread's last error."""
    return str(ffi.string(lib.shmq_error()), "utf-8", "replace")


def error(code: int, tried: str) -> Exception:
    """The exception for a negative answer of the core, with what was tried in front of its story."""
    if code == lib.SHMQ_SYSTEM:
        number = lib.shmq_errno()
        return OSError(number, f"{tried}: {story()}: {os.strerror(number)}")
    return _EXCEPTIONS.get(code, errors.ShmqError)(f"{tried}: {story()}")


def _inside(code: int) -> int:
    """The answer about a file inside a queue: one that does not begin as its name says is damaged, not foreign."""
    return int(lib.SHMQ_CORRUPT if code == lib.SHMQ_FOREIGN else code)


# ---------------------------------------------------------------- the hot path: built-ins in the same shared object
def _load_hot() -> Any:
    loader = importlib.machinery.ExtensionFileLoader("shmq._hot", _core.__file__)
    module = loader.create_module(importlib.machinery.ModuleSpec("shmq._hot", loader, origin=_core.__file__))
    loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from shmq._hot import Block as Block  # noqa: PLC0414
    from shmq._hot import Fd as Fd  # noqa: PLC0414
    from shmq._hot import Finder as Finder  # noqa: PLC0414  # exported
    from shmq._hot import Head as Head  # noqa: PLC0414
    from shmq._hot import Kept as Kept  # noqa: PLC0414
    from shmq._hot import Record as Record  # noqa: PLC0414
    from shmq._hot import Shelf as Shelf  # noqa: PLC0414
    from shmq._hot import Tail as Tail  # noqa: PLC0414
    from shmq._hot import strict as strict  # noqa: PLC0414
else:
    _hot = _load_hot()
    Block, Fd, Finder, Head, Kept, Record = _hot.Block, _hot.Fd, _hot.Finder, _hot.Head, _hot.Kept, _hot.Record
    Shelf, Tail, strict = _hot.Shelf, _hot.Tail, _hot.strict
next_many = lib.shmq_next_many
find = lib.shmq_find
"""find(chunk handle, ordinal, record): the message's place, and its record's position; or a negative code."""
new_leading = functools.partial(ffi.new, ffi.typeof("uint32_t *"))
"""What `sync_wait` sets to 1 while this thread leads."""
new_record = functools.partial(ffi.new, ffi.typeof("uint64_t *"))


def start_writing(fd: int) -> None:
    """Have the kernel begin to write what is dirty in a file. Nothing is promised, and nothing waited for."""
    lib.shmq_start_writing(fd)


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C of *data*, continuing *crc*, as fast as the processor can."""
    return int(lib.shmq_crc32c(crc, data, len(data)))


def crc32c_by_table(data: bytes, crc: int = 0) -> int:
    """The same by the portable table; both always agree."""
    return int(lib.shmq_crc32c_table(crc, data, len(data)))


def monotonic_ns() -> int:
    """The clock that deadlines are on."""
    return int(lib.shmq_clock_monotonic_ns())


@contextlib.contextmanager
def _naming(fd: int) -> Iterator[None]:
    """Have a refusal of the kernel name the file, which costs no descriptor: it knows only ours of it."""
    try:
        yield
    except OSError as problem:
        problem.filename = os.readlink(f"/proc/self/fd/{fd}")
        raise


def map_file(fd: int, size: int, *, writable: bool) -> mmap.mmap:
    """Map a whole file, shared. The mapping keeps the open file, and its locks, until the last view of it is gone."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    with _naming(fd):
        return mmap.mmap(fd, size, mmap.MAP_SHARED, access)


def map_private(fd: int, size: int) -> mmap.mmap:
    """Map a whole file, read-only, so that what is written there is seen by nobody else and never reaches the file."""
    with _naming(fd):
        return mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)


def map_alone(fd: int, size: int, *, writable: bool) -> mmap.mmap:
    """
    Map a whole file, shared, without keeping a lock of *fd*.

    A mapping keeps the open file it was made from, in every forked child too, and with it whatever lock that carries.
    The locks of seats and names must end with their holder, so their files are mapped through an opening of their own.
    """
    with _naming(fd):
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    with again:
        return map_file(again, size, writable=writable)


def sync_pages(memory: mmap.mmap, first: int, size: int) -> None:
    """As `mmap.flush`, which would keep all other threads of the process waiting meanwhile."""
    answer = lib.shmq_sync_mapped(ffi.from_buffer(memory) + first, size)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))


def rename_new(directory: int, old: str, new: str) -> bool:
    """Rename a file within *directory*; False when the new name is taken."""
    code = lib.shmq_rename_new(directory, old.encode(), new.encode())
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot give a file its name")
    return bool(code == lib.SHMQ_OK)


# ---------------------------------------------------------------- pages beside the chunks
def format_queue(queue_id: bytes, created_ns: int, options: bytes) -> bytes:
    """Page 0 of the queue file."""
    page = bytearray(PAGE_BYTES)
    code = lib.shmq_queue_format(ffi.from_buffer(page), queue_id, created_ns, options, len(options))
    if code != lib.SHMQ_OK:
        raise error(code, "cannot store the options")
    return bytes(page)


def check_queue(page: bytes, path: str) -> tuple[bytes, bytes]:
    """The queue's id and its stored options, from page 0 of the queue file."""
    queue_id = bytearray(16)
    length = ffi.new("uint32_t *")
    code = lib.shmq_queue_check(page, ffi.from_buffer(queue_id), length)
    if code != lib.SHMQ_OK:
        raise error(code, f"cannot read {path}")
    return bytes(queue_id), page[QUEUE_HEADER_BYTES : QUEUE_HEADER_BYTES + length[0]]


class Journal(NamedTuple):
    """The durable state of the queue: one slot of the queue file."""

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


def format_journal(journal: Journal) -> bytes:
    """A journal slot as a page."""
    page = bytearray(PAGE_BYTES)
    lib.shmq_journal_format(ffi.from_buffer(page), ffi.new("shmq_journal *", journal._asdict()))
    return bytes(page)


def check_journal(page: bytes) -> Journal | None:
    """A journal slot, or None when it is not a valid one."""
    slot = ffi.new("shmq_journal *")
    if lib.shmq_journal_check(page, slot) != lib.SHMQ_OK:
        return None
    fields = {name: getattr(slot, name) for name in Journal._fields if name != "boot_id"}
    return Journal(**fields, boot_id=bytes(slot.boot_id))


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


class Snapshot(NamedTuple):
    """What is true of an exclusive consumer name after a power cut: one slot of its checkpoint."""

    sequence: int
    epoch: int
    head: int


def format_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot slot, whole."""
    content = bytearray(SNAPSHOT_BYTES)
    lib.shmq_snapshot_format(ffi.from_buffer(content), ffi.new("shmq_snapshot *", snapshot._asdict()))
    return bytes(content)


def check_snapshot(content: bytes) -> Snapshot | None:
    """A snapshot slot, or None when it is not a valid one."""
    slot = ffi.new("shmq_snapshot *")
    if len(content) < SNAPSHOT_BYTES or lib.shmq_snapshot_check(content, slot) != lib.SHMQ_OK:
        return None
    return Snapshot(**{name: int(getattr(slot, name)) for name in Snapshot._fields})


def newest_snapshot(content: bytes) -> Snapshot | None:
    """The newest valid snapshot in the bytes of a checkpoint file; None when there is none."""
    starts = (SNAPSHOT_BASE, SNAPSHOT_BASE + SNAPSHOT_BYTES)
    slots = [check_snapshot(content[start : start + SNAPSHOT_BYTES]) for start in starts]
    return max((slot for slot in slots if slot), key=lambda slot: slot.sequence, default=None)


def format_control(queue_id: bytes, *, finished: bool = False) -> bytes:
    """The control file of a new queue; of one that is *finished*, at the beginning of another boot."""
    page = bytearray(CONTROL_BYTES)
    lib.shmq_control_format(ffi.from_buffer(page), queue_id)
    if finished:
        lib.shmq_set_finished(ffi.from_buffer(page), FINISHED | 1 << _FINISHED_SHIFT)
    return bytes(page)


class Bounds(NamedTuple):
    """The bounds of a queue; 0 is none. *moved* changes when what was computed with them may not hold any more."""

    moved: int
    max_messages: int
    max_bytes: int
    dropped: int
    """What lies before this index was dropped."""


class Control:
    """The mapped control page: who is here, the bell, a few counters."""

    def __init__(self, fd: int, size: int, queue_id: bytes, path: str, *, writable: bool) -> None:
        """Map and check it."""
        if size != CONTROL_BYTES:
            raise errors.Corrupt(f"cannot open {path}: it has {size} bytes instead of {CONTROL_BYTES}")
        self._map = map_alone(fd, size, writable=writable)
        self.page = ffi.from_buffer(self._map)
        code = lib.shmq_control_check(self.page, size, queue_id)
        if code != lib.SHMQ_OK:
            raise error(_inside(code), f"cannot open {path}")

    @classmethod
    def alone(cls, queue_id: bytes, first_live: int, *, finished: bool) -> Control:
        """One of nobody else's, for who reads a queue whose own cannot be believed and must not be changed."""
        made = cls.__new__(cls)
        memory = mmap.mmap(-1, CONTROL_BYTES)
        memory[:] = format_control(queue_id, finished=finished)
        made.page = ffi.from_buffer(memory)
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

    def enter(self, sequence: int) -> None:
        """Remember that the chunk of that sequence exists, before anything is put there."""
        lib.shmq_newest_raise(self.page, sequence + 1)

    def members(self) -> int:
        """A number that changes when somebody joins."""
        return int(lib.shmq_members(self.page))

    def padded_more(self, count: int) -> None:
        """So many indexes without a message came with a set that was adopted."""
        lib.shmq_padded_more(self.page, count)

    def padded_less(self, count: int) -> None:
        """So many of the indexes without a message went with their chunk."""
        lib.shmq_padded_less(self.page, count)

    def counters(self) -> tuple[int, int]:
        """Ordinals that ended as padding; commits that came too late."""
        padded, fenced = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.shmq_counters(self.page, padded, fenced)
        return int(padded[0]), int(fenced[0])

    def shut_down(self, *, on: bool, at_once: bool = False) -> None:
        """Refuse puts from now on, and gets too if it is *at_once*; or allow them again."""
        how = SHUT_DOWN_AT_ONCE if at_once or self.is_shut_down_at_once() else SHUT_DOWN_DRAINING
        lib.shmq_shut_down(self.page, how if on else 0)

    def is_shut_down(self) -> bool:
        """Whether the queue was shut down, one way or the other."""
        return bool(lib.shmq_is_shut_down(self.page))

    def is_shut_down_at_once(self) -> bool:
        """Whether gets are refused as well."""
        return bool(lib.shmq_is_shut_down(self.page) == SHUT_DOWN_AT_ONCE)

    def finished(self) -> tuple[int, int]:
        """Whether it is finished (UNFINISHED, FINISHING or FINISHED), and how often it was in this boot."""
        finished = int(lib.shmq_finished(self.page))
        return finished & _FINISHED_MASK, finished >> _FINISHED_SHIFT

    def set_finished(self, state: int, times: int) -> None:
        """Say so. Under the administrative lock only."""
        lib.shmq_set_finished(self.page, state | times << _FINISHED_SHIFT & 0xFFFFFFFF)

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
        """The bell as it is, for who need not be told of puts."""
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
        values = [ffi.new("uint64_t *") for _ in range(3)]
        moved = int(lib.shmq_bounds(self.page, *values))
        return Bounds(moved, *(int(value[0]) for value in values))

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
        while lib.shmq_participant_at(self.page, slot, seat):
            found.append((slot, seat.generation, seat.pid, seat.pid_namespace, seat.start_time))
            slot += 1
        return found


def _free_member(page: Any, handle: Any) -> None:  # noqa: ARG001  # what the handle points into lives as long as it
    lib.shmq_member_free(handle)


def _free_chunk(memory: Any, member: Member, handle: Any) -> None:  # noqa: ARG001  # likewise
    lib.shmq_chunk_free(handle)


class Member:
    """This process's seat at one queue."""

    def __init__(self, control: Control, lock_fd: int, test_fd: int) -> None:
        """What the descriptors are for says shmq.h; they stay the caller's."""
        self.control = control
        handle = lib.shmq_member_new(control.page)
        if handle == ffi.NULL:
            raise error(lib.SHMQ_SYSTEM, "cannot join")
        self.handle = ffi.gc(handle, functools.partial(_free_member, control.page))  # before it has anything open
        code = lib.shmq_member_open(self.handle, lock_fd, test_fd)
        if code != lib.SHMQ_OK:
            raise error(code, "cannot join")
        self._kept = Kept(self.handle)  # whoever leaves while garbage is collected needs it
        self.stop_leading = functools.partial(lib.shmq_sync_stop, self.handle)
        """
        stop_leading(leading): give the leadership back, if that says we have it, and wake who waits. No function in
        Python, at whose beginning the handler of a signal might keep it from doing so.
        """
        self.give_papers = functools.partial(lib.shmq_papers_give, self.handle)
        """give_papers(held): likewise."""

    def lock(self) -> tuple[int, int, int]:
        """Take a free slot's lock: (slot, its last tenant's generation, the chunk it may have claims from)."""
        since, generation = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        slot = lib.shmq_member_lock(self.handle, since, generation)
        if slot < 0:
            raise error(slot, "cannot join the queue")
        return slot, int(generation[0]), int(since[0])

    def join(self, pid: int, namespace: int, start_time: int, boot_tag: int, since: int) -> None:
        """Sit down in the locked slot, under its next generation."""
        lib.shmq_member_join(self.handle, pid, namespace, start_time, boot_tag, since)

    @property
    def owner(self) -> int:
        """The number that signs this member's claims."""
        return int(lib.shmq_member_owner(self.handle))

    def since(self, sequence: int) -> None:
        """Promise to claim nothing more in chunks before *sequence*."""
        lib.shmq_member_since(self.handle, sequence)

    def forked(self) -> bool:
        """Whether this is the copy that a forked child inherited."""
        return bool(lib.shmq_member_forked(self.handle))

    @contextlib.contextmanager
    def changing_padding(self) -> Iterator[None]:
        """Around a change of how much is padding and of its count: killed in between, it is counted anew."""
        lib.shmq_pads_begin(self.handle)
        try:
            yield
        except BaseException:
            lib.shmq_pads_doubt(self.control.page)
            raise
        finally:
            lib.shmq_pads_end(self.handle)

    def padding_doubted(self) -> bool:
        """Whether somebody was killed in between."""
        return bool(lib.shmq_pads_doubted(self.handle))

    def count_padding(self) -> tuple[int, int] | None:
        """Before padding is counted anew: what `padding_counted` wants to know; None while somebody is in between."""
        doubted, padded = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = lib.shmq_pads_count(self.handle, doubted, padded)
        return None if code != lib.SHMQ_OK else (int(doubted[0]), int(padded[0]))

    def padding_counted(self, begun: tuple[int, int], total: int) -> bool:
        """Say how much there is; False when it may have changed since `count_padding`."""
        return bool(lib.shmq_pads_counted(self.handle, *begun, total) == lib.SHMQ_OK)

    def slot_locked(self, slot: int) -> bool:
        """Whether anybody holds that slot, this member included, in whatever pid namespace."""
        return bool(lib.shmq_slot_locked(self.handle, slot))

    def alive(self, owner: int) -> bool:
        """Whether that owner lives."""
        return bool(lib.shmq_owner_alive(self.handle, owner))

    def wait_begin(self) -> int:
        """Say that we are about to sleep. Look once more, then call `wait` with what this returned."""
        return int(lib.shmq_wait_begin(self.handle))

    def wait(self, seen: int, deadline_ns: int) -> int:
        """Sleep until the bell rings (0), the deadline passes (TIMEOUT) or a signal arrives (its handlers run next)."""
        code = int(lib.shmq_wait(self.handle, seen, deadline_ns))
        if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL):
            raise error(code, "cannot wait")
        return code

    def sync_wait(self, chunk: Chunk | None, want: int, deadline_ns: int, leading: Any) -> int:
        """
        Wait until every index below *want* is on the disk, leading the group commit when nobody does.

        OK, TIMEOUT, SIGNAL, WAITING (for a living claim), SYNC_FAILED, or LEAD: go on as the leader.
        """
        handle = ffi.NULL if chunk is None else chunk.handle
        return int(lib.shmq_sync_wait(self.handle, handle, want, deadline_ns, leading))

    def sync_keep(self, chunk: Chunk, interval_ns: int, mark_due_ns: int, keeper: Any) -> int:
        """
        Sync that chunk, and those this process rolls to, after each interval: OK when nothing was put meanwhile, or
        the keeper was nudged; LEAD: do it here.
        """
        return int(lib.shmq_sync_keep(chunk.handle, interval_ns, mark_due_ns, keeper))

    def publish_durable(self, index: int, chunk: int, position: int) -> None:
        """As leader: everything below *index* is on the disk, and the next sync begins in that chunk, at *position*."""
        lib.shmq_sync_publish(self.handle, index, chunk, position)

    def try_lead(self, leading: Any) -> bool:
        """Lead the group commit if nobody does. *leading* says so; `stop_leading` comes after it, in any case."""
        return bool(lib.shmq_sync_try(self.handle, leading))

    def take_papers(self, held: Any) -> bool:
        """
        As leader, who may have been overtaken: whether nobody else writes the watermark or a snapshot now. *held*, by
        `new_leading`, says so; `give_papers` comes after it, in any case.
        """
        code = int(lib.shmq_papers_take(self.handle, held))
        if code < 0:
            raise error(code, "cannot lock")
        return bool(code)

    def acks_wait(self, checkpoint: Checkpoint, want: int, leading: Any) -> int:
        """Wait until what *checkpoint* counted as *want* is on the disk: OK, SIGNAL, SYNC_FAILED, or LEAD."""
        return int(lib.shmq_acks_wait(self.handle, checkpoint.page, want, leading))

    def acks_begin(self) -> bool:
        """As leader: whether somebody may have asked for acknowledgements to be on the disk."""
        return bool(lib.shmq_acks_begin(self.handle))

    def room_begin(self) -> int:
        """Say that we are about to sleep for room. Look once more, then call `room_wait` with what this returned."""
        return int(lib.shmq_room_begin(self.handle))

    def room_wait(self, seen: int, deadline_ns: int) -> int:
        """Sleep until there may be room, as `wait`."""
        code = int(lib.shmq_room_wait(self.handle, seen, deadline_ns))
        if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL):
            raise error(code, "cannot wait for room")
        return code

    def leave(self) -> None:
        """Give the seat back; not in a forked child, where it is the parent's. Chunks can still be read."""
        lib.shmq_member_leave(self.handle)


ANY_MAX = lib.SHMQ_ANY_MAX


def new_nudge() -> Any:
    """A word on which several threads of this process can be woken, once."""
    return ffi.new("uint32_t *")


def new_keeper(directory: int) -> Any:
    """What the thread that keeps an interval shares with the others; *directory* is where the chunks are."""
    return ffi.new("shmq_keeper *", {"directory": directory})


def nudge_keeper(keeper: Any) -> None:
    """Have it end."""
    lib.shmq_nudge(ffi.addressof(keeper, "nudge"))


def rolled(keeper: Any, chunk: Chunk | None) -> None:
    """This process rolled to that chunk, which the caller keeps until `Member.sync_keep` has returned."""
    lib.shmq_sync_rolled(keeper, ffi.NULL if chunk is None else chunk.handle)


def nudge(word: Any) -> None:
    """Wake whoever sleeps with it."""
    lib.shmq_nudge(word)


def wait_any(begun: Sequence[tuple[Member, int]], word: Any, deadline_ns: int) -> int:
    """
    Sleep until one of the bells rings or *word* is nudged, as `Member.wait`; EMPTY where the kernel cannot.

    Args:
        begun: up to ANY_MAX members, each with what its `wait_begin` returned.
    """
    bells = ffi.new("void *[]", [lib.shmq_bell_of(member.handle) for member, _ in begun])
    seen = ffi.new("uint32_t[]", [mark for _, mark in begun])
    code = int(lib.shmq_wait_any(bells, seen, len(begun), word, deadline_ns))
    if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL, lib.SHMQ_EMPTY):
        raise error(code, "cannot wait")
    return code


def owner_of(slot: int, generation: int) -> int:
    """The number that signs the claims of that slot's tenant of that generation."""
    return slot << 11 | generation


class Lock:
    """What carries a lock for as long as its process lives; no forked child has it."""

    def __init__(self, fd: int) -> None:
        """On an opening of its own of the file that *fd* has open."""
        self._handle = ffi.gc(ffi.new("shmq_lock *"), lib.shmq_lock_close)  # before there is anything to give back
        code = lib.shmq_lock_open(self._handle, fd)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot keep a lock of {os.readlink(f'/proc/self/fd/{fd}')}")

    def is_free(self) -> bool:
        """Whether everything was let go of, so that nothing is ever locked by it any more."""
        return bool(self._handle.forks == 0)

    def take(self, byte: int = 0) -> bool:
        """Take it; False when somebody else has it."""
        answer = lib.shmq_lock_try(self._handle, byte)
        if answer < 0:
            raise error(answer, "cannot lock")
        return bool(answer)

    def share(self) -> bool:
        """Take it beside others who share it; False when somebody has it alone."""
        answer = lib.shmq_lock_share(self._handle, 0)
        if answer < 0:
            raise error(answer, "cannot lock")
        return bool(answer)

    def give_back(self, byte: int) -> None:
        """Let go of that byte."""
        lib.shmq_lock_give_back(self._handle, byte)

    def free(self) -> None:
        """Let go of everything."""
        lib.shmq_lock_close(self._handle)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """What holds the lock without this object: at the end of a `with`, or of its life, everything is let go of."""
        held: contextlib.AbstractContextManager[object] = self._handle
        return held


EXPIRES, DELAYED = 1, 2
"""layout.h, enum record_flag: which moments a message's `when` holds, in this order."""
RECORD_DEDUP, LOCK_DEDUP = 1 << 2, 1 << 42
"""layout.h, likewise."""
Fixed = tuple[int, bytes]
"""Optional fields of fixed size: their flags, and their bytes in the order of the flags."""


def header_fields(
    key: bytes | None, record_type: int, time_ns: int | None, headers: bytes | None, fixed: Fixed = (0, b"")
) -> tuple[Any, tuple[bytes, bytes, bytes]]:
    """A message's fields as the core takes them, and what must stay alive as long as they do."""
    key = key or b""
    headers = headers or b""
    key_buffer, headers_buffer = ffi.from_buffer("char[]", key), ffi.from_buffer("char[]", headers)
    moment = NOW if time_ns is None else time_ns
    fixed_buffer = ffi.from_buffer("char[]", fixed[1])
    fields = ffi.new(
        "shmq_fields *",
        (key_buffer, len(key), record_type, moment, headers_buffer, len(headers), fixed[0], fixed_buffer),
    )
    return fields, (key, headers, fixed[1])


def readable(view: memoryview) -> Any:
    """
    A contiguous buffer, as the core's calls take it; for a `with`.

    It must be released: the garbage collector crashes on one that it finds in a cycle, as in the frames of a kept
    exception, when it clears the memoryview first.
    """
    return ffi.from_buffer("char[]", view)


class Claim:
    """A region that is claimed and not yet committed. Made before it is claimed: the core's call itself fills it in."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        """Nothing is claimed."""
        self.at = ffi.new("uint64_t[3]")

    @property
    def word(self) -> int:
        """The claim as it stands in the chunk; 0 while there is none."""
        return int(self.at[0])

    @property
    def record(self) -> int:
        """The position of its word."""
        return int(self.at[1])

    @property
    def payload(self) -> int:
        """The position of its payload."""
        return int(self.at[2])


COPIED_BELOW = 8 << 20
"""Bytes of a slot from which on a second mapping of its pages costs less than a copy."""


class Room:
    """
    Where a claim's payload is filled: memory of its own, or from `COPIED_BELOW` on its pages, through a second mapping.

    Attributes:
        view: the bytes.
    """

    def __init__(self, size: int) -> None:
        """Of *size* bytes: all zeros if they are its own."""
        self.size = size
        self.view = memoryview(bytearray(size if size < COPIED_BELOW else 0))
        self._again: Any = None

    def stands(self, chunk: Chunk, claim: Claim) -> None:
        """That is the claim."""
        if self.size < COPIED_BELOW:
            return
        at = lib.shmq_map_again(chunk._memory + claim.payload, self.size)  # noqa: SLF001  # ours
        if at == ffi.NULL:
            raise OSError(f"cannot map {self.size} bytes of {chunk.path} once more")
        keeping = functools.partial(_unmap_again, self.size, chunk.map)  # the file stays mapped, and locked, as long
        buffer = ffi.buffer(ffi.gc(at, keeping), self.size)
        self.view, self._again = memoryview(buffer), (at, weakref.ref(buffer))

    def commit(self, chunk: Chunk, claim: Claim, length: int) -> int:
        """Publish the claim with the first *length* bytes; nothing that is stored here later changes them."""
        if self._again is None:
            with self.view[:length] as view, ffi.from_buffer("char[]", view) as data:
                lib.shmq_fill(chunk.handle, claim.payload, data, length)
        else:
            self.shut()
        return chunk.commit(claim, length)

    def shut(self) -> None:
        """What is stored here from now on goes nowhere: arrays that still look into it keep what they have."""
        with contextlib.suppress(BufferError):
            self.view.release()
        if self._again is not None:
            at, looked_at = self._again
            kept = looked_at()
            answer = 0 if kept is None else lib.shmq_make_private(at, self.size)
            if answer < 0:
                raise OSError(-answer, os.strerror(-answer))
            self._again = at, lambda: None


def _unmap_again(size: int, keep: Any, at: Any) -> None:  # noqa: ARG001
    lib.shmq_unmap_again(at, size)


class Resolved(NamedTuple):
    """What lies before *position*, of index *next_index*, is settled. *code*: EMPTY, ROLL, or WAITING for *owner*."""

    code: int
    position: int
    next_index: int
    owner: int


_SCAN = 256
_FOUND = struct.Struct("<16sQQQQII")


class DedupScan:
    """Where a scan for puts with dedup leaves what it found."""

    def __init__(self, *, newest: bool) -> None:
        """Nothing. *newest*: of puts of one producer that follow each other, only the last is wanted."""
        self.newest = newest
        self.found = ffi.new("shmq_dedup_found[]", _SCAN)
        self.position, self.ordinal, self.code = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("int *")
        self.count = self.base = 0

    def rows(self) -> Iterator[tuple[bytes, int, int, int, int, int, int]]:
        """(producer, sequence, position, first ordinal, 0, indexes, 0), or with an end instead of 0: an open claim."""
        return _FOUND.iter_unpack(ffi.buffer(self.found)[: self.count * _FOUND.size])


class Chunk:
    """One mapped chunk file. It stays mapped as long as anybody holds a view of it."""

    def __init__(
        self,
        fd: int,
        size: int,
        *,
        base: int,
        sequence: int,
        queue_id: bytes,
        member: Member,
        path: str,
        writable: bool,
        padding: bool,
        checksum: bool,
        ends: tuple[int, int, bool] | None = None,
        memory: mmap.mmap | None = None,
    ) -> None:
        """
        Map and check it, unless *memory* is that mapping; *fd* stays the caller's.

        *ends*: (position, ordinal, torn): map it privately and have it end there, without changing the file.

        *padding*: *fd* is writable and stays open as long as this chunk, so that a dead owner's claim can be padded
        through a momentary window although the chunk is mapped read-only.
        """
        self.base = base
        self.sequence = sequence
        self.size = size
        self.path = path
        self.member = member
        kept = memory is not None
        if memory is None:
            memory = map_file(fd, size, writable=writable) if ends is None else map_private(fd, size)
        self.map = memory
        self._memory = ffi.from_buffer(self.map)
        code = ffi.new("int *")
        handle = lib.shmq_chunk_new(
            self._memory, size, fd if padding else -1, writable, checksum, base, sequence, queue_id, member.handle, code
        )
        if handle == ffi.NULL:
            raise error(_inside(code[0]), f"cannot open {path}")
        if kept:
            lib.shmq_chunk_is_populated(handle)
        # A thread that is inside a call with the handle keeps the memory mapped, whatever others do to this object.
        self.handle = ffi.gc(handle, functools.partial(_free_chunk, self._memory, member))
        self._kept = Kept(self.handle)
        self.address = address(handle)
        self.memory_address = address(self._memory)
        self._fd: Fd | None = None
        if ends is not None:
            position, ordinal, torn = ends
            if torn:
                lib.shmq_end_at(self.handle, position)
            lib.shmq_set_in_order(self.handle, position, ordinal)

    def keep(self, fd: Fd) -> None:
        """Keep *fd* open as long as this chunk."""
        self._fd = fd

    @property
    def fd(self) -> int:
        """A writable descriptor of its file, if it keeps one; else -1."""
        return -1 if self._fd is None else self._fd

    def index_of(self, record: int) -> int:
        """The index of the message whose record is at that position."""
        return self.base + int.from_bytes(self.map[record + 16 : record + 20], "little")  # layout.h, struct record

    @staticmethod
    def format(
        memory: mmap.mmap,
        queue_id: bytes,
        chunk_id: int,
        epoch: int,
        base: int,
        sequence: int,
        spacing: int,
        grain: int,
        now_ns: int,
    ) -> None:
        """Write the first two records of a new chunk."""
        code = lib.shmq_chunk_format(
            ffi.from_buffer(memory), len(memory), queue_id, chunk_id, epoch, base, sequence, spacing, grain, now_ns
        )
        if code != lib.SHMQ_OK:
            raise error(code, "cannot make a chunk")

    @staticmethod
    def clear(memory: mmap.mmap, used: int, spacing: int, grain: int) -> None:
        """Zero what must be in a file that was a chunk, of which so much was *used*, before it is one again."""
        lib.shmq_chunk_clear(ffi.from_buffer(memory), len(memory), used, spacing, grain)

    @staticmethod
    def bytes_for(region: int, spacing: int, grain: int = 0) -> int:
        """How many bytes a chunk must have so that a region of *region* bytes fits."""
        return int(lib.shmq_chunk_bytes_for(region, spacing, grain))

    def put_record(self, fields: Any, payload: Any, length: int) -> int:
        """Append one message with fields: its index or a negative code."""
        return int(lib.shmq_put_record(self.handle, fields, payload, length))

    def put_many(self, batch: Batch) -> int:
        """Append a batch as one claim: its first index or a negative code."""
        return int(lib.shmq_put_many(self.handle, *batch.arguments))

    def reserve(self, claim: Claim, fields: Any, length: int) -> int:
        """Have *claim*, which is empty, claim room for a payload of *length* bytes: its index, or a negative code."""
        at = claim.at
        return int(lib.shmq_reserve(self.handle, fields, length, at, at + 1, at + 2))

    def commit(self, claim: Claim, length: int) -> int:
        """Publish the claim with the first *length* bytes of its payload, which is filled."""
        return int(lib.shmq_commit(self.handle, claim.record, claim.word, length))

    def abort(self, claim: Claim) -> int:
        """Turn the claim into padding."""
        return int(lib.shmq_abort(self.handle, claim.record, claim.word))

    def seal(self) -> None:
        """End this chunk here."""
        code = lib.shmq_seal(self.handle)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot seal {self.path}")

    def seal_adopt(self, adoption: int) -> bool | None:
        """
        End this chunk here, and have the staged chunks of that adoption follow.

        False when it was sealed already, None when this handle's limit forbids it.
        """
        code = lib.shmq_seal_adopt(self.handle, adoption)
        if code == lib.SHMQ_FULL:
            return None
        if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL):
            raise error(code, f"cannot seal {self.path}")
        return bool(code == lib.SHMQ_OK)

    def seal_again(self, adoption: int) -> None:
        """
        Give the SEAL of a staged chunk, which nobody else looks at, another id; 0 for none.

        Raises:
            Corrupt: it is not sealed.
        """
        code = lib.shmq_seal_again(self.handle, adoption)
        if code == lib.SHMQ_EMPTY:
            raise errors.Corrupt(f"cannot adopt {self.path}: it is not sealed")
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")

    def seals_as(self, adoption: int) -> None:
        """Have this handle seal with that id from now on; 0 for plainly."""
        lib.shmq_seals_as(self.handle, adoption)

    def adoption(self) -> int:
        """The id in the SEAL: its successor came by that adoption. 0 when it did not, or there is no SEAL yet."""
        return int(lib.shmq_adoption(self.handle))

    def chunk_id(self) -> int:
        """The random id that it was made with."""
        return int.from_bytes(self.map[_CHUNK_ID_AT : _CHUNK_ID_AT + 8], "little")

    def pads(self) -> int:
        """How many of its indexes are padding."""
        return int(lib.shmq_pads(self.handle))

    def missing(self, position: int, ordinal: int, *, claims: bool = False) -> tuple[int, int, int, int, int]:
        """(code, position, ordinal, first, count) of the next padding from there on, as shmq_next_missing has it."""
        values = ffi.new("uint64_t[4]", (position, ordinal, 0, 0))
        code = int(lib.shmq_next_missing(self.handle, claims, values, values + 1, values + 2, values + 3))
        return code, int(values[0]), int(values[1]), int(values[2]), int(values[3])

    def messages(self) -> int:
        """
        How many messages it holds, after checking each of them as a read would.

        Raises:
            Corrupt: one is damaged.
            Busy: one is claimed and not committed.
        """
        walk = reader(self, 0, None, auto_ack=False)
        count = 0
        while (more := lib.shmq_next_many(self.handle, walk, BATCH_MAX, ffi.NULL, ffi.NULL)) > 0:
            count += more
        if more == lib.SHMQ_WAITING:
            raise errors.Busy(f"a message in {self.path} is reserved and not committed")
        if more not in (lib.SHMQ_EMPTY, lib.SHMQ_ROLL):
            raise error(more, f"cannot read {self.path}")
        return count

    def survey(self) -> Survey:
        """How far it is whole and committed."""
        return _survey(self.handle, self.size, 0, 0, pass_claims=False, singly=False)

    def descriptor(self) -> int | None:
        """One of its file, for as long as this object is there; None when it has none."""
        return self._fd

    def sealed(self) -> int | None:
        """The base of the next chunk, once this one is sealed."""
        base = ffi.new("uint64_t *")
        code = lib.shmq_sealed(self.handle, base)
        if code == lib.SHMQ_EMPTY:
            return None
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(base[0])

    def next_index(self) -> int:
        """The index behind the last claimed region."""
        index, position = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = lib.shmq_tail(self.handle, index, position)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(index[0])

    def resolved(self) -> Resolved:
        """How far everything is settled; claims of the dead are padded on the way."""
        position, index, owner = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("uint32_t *")
        code = int(lib.shmq_resolved(self.handle, position, index, owner))
        if code not in (lib.SHMQ_EMPTY, lib.SHMQ_ROLL, lib.SHMQ_WAITING):
            raise error(code, f"cannot read {self.path}")
        return Resolved(code, int(position[0]), int(index[0]), int(owner[0]))

    def pages(self, begin: int, end: int) -> tuple[mmap.mmap, int, int]:
        """The mapping, and the first byte and number of bytes of the pages that hold *begin* to before *end*."""
        first = begin - begin % mmap.PAGESIZE
        return self.map, first, end - first

    def touch(self) -> None:
        """Write every page as it is, so that the next sync writes all of them. Nobody else may write meanwhile."""
        for at in range(0, self.size, PAGE_BYTES):
            self.map[at] = self.map[at]

    def limit(self, moved: int, ordinals: int, position: int) -> None:
        """Let this handle claim ordinals below *ordinals* and bytes before *position*, while bounds are *moved*."""
        lib.shmq_limit(self.handle, moved, min(ordinals, NO_LIMIT), min(position, NO_LIMIT))

    def floor(self, index: int) -> tuple[int, int, bool]:
        """
        (index, position) of the first message or claim at or behind *index*, and whether the chunk ends before it.

        Raises:
            Corrupt: the way there is damaged.
        """
        ordinal, position = ffi.new("uint64_t *", index - self.base), ffi.new("uint64_t *")
        code = lib.shmq_floor(self.handle, ordinal, position)
        if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL):
            raise error(code, f"cannot read {self.path}")
        return self.base + int(ordinal[0]), int(position[0]), bool(code == lib.SHMQ_ROLL)

    def filled(self, position: int = 0) -> tuple[int, int]:
        """Where the chunk is filled to, and how many bytes of messages and padding lie from *position* to there."""
        end, bytes_there = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = lib.shmq_filled(self.handle, max(position, self.first_position()), end, bytes_there)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(end[0]), int(bytes_there[0])

    def scan_dedup(self, scan: DedupScan, position: int, ordinal: int, until: int = 0) -> tuple[int, int, int]:
        """
        Find the next puts with dedup, and open claims, from *position* on (0: the start) and before *until* (0: no
        end). They are in *scan* then.

        Returns (code, position, ordinal): OK when there may be more; EMPTY or ROLL at the end.

        Raises:
            Corrupt: something before it is damaged.
        """
        scan.position[0], scan.ordinal[0], scan.base = position, ordinal, self.base
        scan.count = int(
            lib.shmq_scan_dedup(
                self.handle, scan.position, scan.ordinal, until, scan.newest, _SCAN, scan.found, scan.code
            )
        )
        code = int(scan.code[0])
        if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY, lib.SHMQ_ROLL):
            raise error(code, f"cannot look for puts with dedup in {self.path}")
        return code, int(scan.position[0]), int(scan.ordinal[0])

    def bury(self, owner: int) -> int:
        """Pad every open claim of a dead owner, or of everybody for 0: how many."""
        buried = lib.shmq_bury(self.handle, owner)
        if buried < 0:
            raise error(buried, f"cannot read {self.path}")
        return int(buried)

    def first_position(self) -> int:
        """Where the first message may begin."""
        return int(lib.shmq_chunk_first_position(self.handle))


class Damage(NamedTuple):
    """From the first place that is in doubt, and its ordinal, to the one behind it from which to go on."""

    position: int
    ordinal: int
    end: int
    end_ordinal: int


def _damage(damage: Any, find: Callable[[Any], int]) -> Damage | None:
    if find(damage) != lib.SHMQ_OK:
        return None
    return Damage._make(int(getattr(damage, name)) for name in Damage._fields)


class Survey(NamedTuple):
    """How far a chunk is whole. shmq.h, shmq_survey, says what each number is."""

    position: int
    ordinal: int
    stopped: int
    stopped_ordinal: int
    messages: int
    bytes: int
    padded: int
    open_padded: int
    claims: int
    gap_position: int
    gap_index: int
    adoption: int
    missing: int
    doubted: int
    code: int = 0
    """EMPTY, ROLL, WAITING or CORRUPT."""
    reason: str = ""
    """After CORRUPT: what is wrong."""


def _survey(handle: Any, trusted: int, position: int, ordinal: int, *, pass_claims: bool, singly: bool) -> Survey:
    found = ffi.new("shmq_survey *", {"position": position, "ordinal": ordinal})
    code = lib.shmq_survey_chunk(handle, found, trusted, pass_claims, singly)
    numbers = [int(getattr(found, name)) for name in Survey._fields[:-2]]
    return Survey._make([*numbers, code, story() if code == lib.SHMQ_CORRUPT else ""])


class Bare:
    """
    A mapped chunk file without a member: to see what is whole in it and, alone with it, to put it in order.

    A context manager. It unmaps at once, so nothing may be kept that points into it.
    """

    def __init__(
        self,
        fd: int,
        size: int,
        *,
        base: int,
        sequence: int,
        queue_id: bytes,
        path: str,
        checksum: bool,
        writable: bool = False,
    ) -> None:
        """
        Map and check it; *fd* stays the caller's.

        Raises:
            Corrupt, BadFormat: it is no chunk of this queue, or not the one of that name.
        """
        self.path = path
        self.base = base
        self.size = size
        if not PAGE_BYTES <= size <= CHUNK_BYTES_MAX:
            raise errors.Corrupt(f"cannot open {path}: it has {size} bytes, and no chunk has so few or so many")
        self._map = map_file(fd, size, writable=writable)
        self._memory = ffi.from_buffer(self._map)
        code = ffi.new("int *")
        self._handle = lib.shmq_chunk_new(
            self._memory, size, -1, writable, checksum, base, sequence, queue_id, ffi.NULL, code
        )
        if self._handle == ffi.NULL:
            problem = error(_inside(code[0]), f"cannot open {path}")
            self.close()
            raise problem

    def __enter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap."""
        self.close()

    def close(self) -> None:
        """Unmap. Closing twice is fine."""
        if self._handle != ffi.NULL:
            lib.shmq_chunk_free(self._handle)
        self._handle = ffi.NULL
        ffi.release(self._memory)
        self._map.close()

    def chunk_id(self) -> int:
        """The random id that it was made with."""
        return int.from_bytes(self._map[_CHUNK_ID_AT : _CHUNK_ID_AT + 8], "little")

    def first_position(self) -> int:
        """Where the first message may begin."""
        return int(lib.shmq_chunk_first_position(self._handle))

    def survey(
        self,
        *,
        trusted: int = 0,
        position: int = 0,
        ordinal: int = 0,
        pass_claims: bool = False,
        singly: bool = False,
    ) -> Survey:
        """
        How far it is whole, from that place on.

        *singly*: of a committed batch, each message counts by itself; else all of them or none.
        """
        return _survey(self._handle, trusted, position, ordinal, pass_claims=pass_claims, singly=singly)

    def indexed(self, ordinals: int) -> bool:
        """Whether its index has every entry up to so many ordinals."""
        return bool(lib.shmq_indexed(self._handle, ordinals))

    def hint(self) -> tuple[int, int]:
        """Position and ordinal of the end of some region that was claimed, as the chunk itself notes it."""
        at, of = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.shmq_hint(self._handle, at, of)
        return int(at[0]), int(of[0])

    def resync(self, survey: Survey) -> Damage | None:
        """What is damaged where that survey stopped, one that was made singly; None when nothing whole is behind it."""
        return _damage(
            ffi.new("shmq_damage *", (survey.stopped, survey.stopped_ordinal)),
            lambda damage: lib.shmq_resync(self._handle, survey.position, survey.ordinal, damage),
        )

    def cut(self, position: int, next_index: int) -> int:
        """
        End it there, for ever; the next chunk begins at *next_index*. How many bytes that were not zero are gone.

        Raises:
            Corrupt: there is no room to end it; nothing was written.
        """
        gone = lib.shmq_cut(self._handle, position, next_index)
        if gone < 0:
            raise error(int(gone), f"cannot recover {self.path}")
        return int(gone)

    def pad_over(self, position: int, end: int, count: int) -> bool:
        """Make padding of what lies between two places; False when no words can say so."""
        return bool(lib.shmq_pad_over(self._handle, position, end, count) == lib.SHMQ_OK)

    def pad_behind(self, position: int, count: int) -> int | None:
        """Make padding of *count* ordinals from there on, over whatever is there: its end; None if there is no room."""
        end = int(lib.shmq_pad_behind(self._handle, position, count))
        return end if end >= 0 else None

    def state(self, position: int) -> int:
        """The state of the word there."""
        return self._map[position + 7] >> 5

    def pad_claim(self, position: int) -> None:
        """Make padding of a claim that nobody will commit."""
        word = int.from_bytes(self._map[position : position + 8], "little")
        self._map[position : position + 8] = (word & ~(7 << 61) | 4 << 61).to_bytes(8, "little")

    def zero_from(self, position: int) -> None:
        """Zeros from there on."""
        lib.shmq_zero_from(self._handle, position)

    def set_in_order(self, position: int, ordinal: int) -> None:
        """Make hints and index anew from its words up to there."""
        lib.shmq_set_in_order(self._handle, position, ordinal)


class Batch:
    """Messages of one put_many, as the core takes them: end to end, with their lengths."""

    def __init__(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes] | None,
        types: Sequence[int] | None,
        times_ns: Sequence[int] | None,
        headers: Sequence[bytes] | None,
        fixed: Fixed = (0, b""),
    ) -> None:
        """Copies nothing but what must lie end to end."""
        self._fixed = fixed
        self.count = len(payloads)
        self._lengths = ffi.new("uint32_t[]", list(map(len, payloads)))
        self._key_lengths = ffi.NULL if keys is None else ffi.new("uint32_t[]", list(map(len, keys)))
        self._header_lengths = ffi.NULL if headers is None else ffi.new("uint32_t[]", list(map(len, headers)))
        self.arguments = (
            self.count,
            b"".join(payloads),
            self._lengths,
            ffi.NULL if keys is None else b"".join(keys),
            self._key_lengths,
            ffi.NULL if types is None else ffi.new("uint32_t[]", list(types)),
            ffi.NULL if times_ns is None else ffi.new("int64_t[]", list(times_ns)),
            ffi.NULL if headers is None else b"".join(headers),
            self._header_lengths,
            fixed[0],
            fixed[1],
        )

    def region_bytes(self) -> int:
        """Bytes of the region that the batch needs."""
        return int(
            lib.shmq_region_bytes(self.count, self._lengths, self._key_lengths, self._header_lengths, self._fixed[0])
        )


class Part(NamedTuple):
    """A column of bytes in the layout of Arrow: where its offsets and its values are, and how many bytes these."""

    offsets: int
    values: int
    nbytes: int


class ArrowBatch(Batch):
    """The same of columns in the layout of Arrow; nothing is copied before the core copies it into the queue."""

    def __init__(
        self,
        count: int,
        payloads: Part,
        keys: Part | None,
        types: int,
        times_ns: int,
        headers: Part | None,
        fixed: Fixed,
        keep: Any,
    ) -> None:
        """
        *types* and *times_ns* are addresses of uint32 and int64, or 0. *keep* has what all of this points into.

        Raises:
            Corrupt: the offsets of a column do not ascend within its values.
        """
        self._fixed = fixed
        self._keep = keep
        self.count = count
        values, self._lengths = _values(count, payloads)
        key_values, self._key_lengths = _values(count, keys)
        header_values, self._header_lengths = _values(count, headers)
        self.arguments = (
            count,
            values,
            self._lengths,
            key_values,
            self._key_lengths,
            ffi.cast("uint32_t *", types),
            ffi.cast("int64_t *", times_ns),
            header_values,
            self._header_lengths,
            fixed[0],
            fixed[1],
        )


def _values(count: int, part: Part | None) -> tuple[Any, Any]:
    """Where the first value of a column begins, and the lengths of all."""
    if part is None:
        return ffi.NULL, ffi.NULL
    lengths = ffi.new("uint32_t[]", count)
    first = lib.shmq_lengths(count, ffi.cast("int32_t *", part.offsets), part.nbytes, lengths)
    if first < 0:
        raise error(first, "cannot put a record batch")
    return ffi.cast("char *", part.values + first), lengths


def record_bytes(fields: Any, length: int) -> int:
    """Bytes of the region that one message needs."""
    return int(lib.shmq_record_bytes(fields, length))


def address(pointer: Any) -> int:
    """Where a structure is, for the calls that take it so; whoever uses it keeps the structure alive."""
    return int(ffi.cast("uintptr_t", pointer))


def reader(chunk: Chunk, start: int, checkpoint: Checkpoint | None, *, auto_ack: bool) -> Any:
    """
    A reader at the beginning of *chunk*, for messages from index *start* on.

    With a *checkpoint* it moves that checkpoint's live words before a message is returned.
    """
    return ffi.new(
        "shmq_reader *",
        {
            "position": chunk.first_position(),
            "start": start,
            "checkpoint": ffi.NULL if checkpoint is None else checkpoint.page,
            "auto_ack": auto_ack,
        },
    )


def look(chunk: Chunk, reader: Any, spins: int) -> int:
    """The next message's place, looking *spins* times, or a negative code."""
    return int(lib.shmq_next(chunk.handle, reader, spins))


def glance(chunk: Chunk, reader: Any) -> int:
    """What `look` would answer now, handing out nothing: the reader stands before it, and names it."""
    return int(lib.shmq_glance(chunk.handle, reader))


def reader_seek(chunk: Chunk, reader: Any, ordinal: int) -> int:
    """Move the reader to the word that holds *ordinal*: 0, ROLL (behind this chunk) or EMPTY (not claimed yet)."""
    code = int(lib.shmq_reader_seek(chunk.handle, reader, ordinal))
    if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL, lib.SHMQ_EMPTY):
        raise error(code, f"cannot read {chunk.path}")
    return code


def resync(chunk: Chunk, reader: Any) -> Damage | None:
    """What is damaged where that reader stopped; None when nothing whole is behind it in that chunk."""
    return _damage(ffi.new("shmq_damage *"), lambda damage: lib.shmq_resync_reader(chunk.handle, reader, damage))


def place_arrays(limit: int) -> tuple[Any, Any]:
    """Room for the places and records that next_many returns."""
    return ffi.new("uint64_t[]", limit), ffi.new("uint64_t[]", limit)


def unpack(array: Any, count: int) -> list[int]:
    """The first *count* numbers of such an array."""
    return ffi.unpack(array, count)  # type: ignore[no-any-return]


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


# ---------------------------------------------------------------- column by column
_COLUMNS = {
    "index": lib.SHMQ_INDEX,
    "time": lib.SHMQ_TIME,
    "key": lib.SHMQ_KEY,
    "type": lib.SHMQ_TYPE,
    "payload": lib.SHMQ_PAYLOAD,
    "headers": lib.SHMQ_HEADERS,
    "attempts": lib.SHMQ_ATTEMPTS,
}


def wanted(
    columns: Sequence[str],
    *,
    rows: int,
    max_bytes: int,
    stop: int | None = None,
    stop_time_ns: int | None = None,
    handed_before: int = 0,
    checked: bool = False,
) -> Any:
    """What a gathering is to bring: shmq.h, shmq_wanted."""
    return ffi.new(
        "shmq_wanted *",
        {
            "columns": sum(1 << _COLUMNS[name] for name in columns),
            "checked": checked,
            "rows": rows,
            "bytes": min(max_bytes, (1 << 31) - 1),
            "stop": (1 << 64) - 1 if stop is None else stop,
            "stop_time_ns": (1 << 63) - 1 if stop_time_ns is None else stop_time_ns,
            "handed_before": handed_before,
        },
    )


class Gathered:
    """
    Messages in columns, in memory of their own.

    Attributes:
        rows: how many, 1 at least.
        first, last: the indexes of the first and the last.
        address, nbytes: the memory; *memory* keeps it.
    """

    __slots__ = ("_columns", "address", "first", "last", "memory", "nbytes", "rows")

    def __init__(self, batch: Any, rows: int) -> None:
        """Takes the memory of a batch that the core has made."""
        self.rows = rows
        self.first, self.last = int(batch.first), int(batch.last)
        self.address = address(batch.memory)
        self.nbytes = int(batch.bytes)
        self.memory = ffi.gc(batch.memory, lib.shmq_gathered_free, self.nbytes)
        self._columns = batch

    def column(self, name: str) -> Any:
        """Where a column lies: shmq.h, shmq_column_place."""
        return self._columns.columns[_COLUMNS[name]]

    def numbers(self, name: str, kind: str) -> list[int]:
        """A column of numbers, which are of that C type."""
        return list(ffi.unpack(ffi.cast(kind, self.address + self.column(name).values), self.rows))

    def pieces(self, name: str) -> list[bytes]:
        """A column of bytes: empty where there is none."""
        place = self.column(name)
        data = bytes(ffi.buffer(ffi.cast("char *", self.address + place.values), place.bytes))
        ends = ffi.unpack(ffi.cast("int32_t *", self.address + place.offsets), self.rows + 1)
        return [data[start:end] for start, end in itertools.pairwise(ends)]


def gather(chunk: Chunk, reader: Any, plan: Any) -> Gathered | int:
    """The messages that are there now, up to what *plan* says; or a negative code when there is none."""
    batch = ffi.new("shmq_gathered *")
    rows = lib.shmq_gather(chunk.handle, reader, plan, batch)
    return Gathered(batch, rows) if rows > 0 else int(rows)


class Checkpoint:
    """The mapped checkpoint of one consumer name."""

    def __init__(self, fd: int, size: int, queue_id: bytes, name: str, path: str, *, writable: bool = True) -> None:
        """Map and check it."""
        if size != CHECKPOINT_BYTES:
            raise errors.Corrupt(
                f"cannot open {path}: it has {size} bytes instead of {CHECKPOINT_BYTES}; "
                f"drop_consumer({name!r}) removes it, so that the name can start again"
            )
        self._map = map_alone(fd, size, writable=writable)
        self.page = ffi.from_buffer(self._map)
        raw = name.encode()
        code = lib.shmq_checkpoint_check(self.page, size, queue_id, raw, len(raw))
        if code != lib.SHMQ_OK:
            tried = f"cannot open {path} (drop_consumer({name!r}) removes it, so that the name can start again)"
            raise error(_inside(code), tried)

    @staticmethod
    def format(
        queue_id: bytes, name: str, *, explicit: bool, start: int, created_ns: int, group: bool = False
    ) -> bytes:
        """The checkpoint file of a new name."""
        page = bytearray(CHECKPOINT_BYTES)
        raw = name.encode()
        make = lib.shmq_checkpoint_format_group if group else lib.shmq_checkpoint_format
        code = make(ffi.from_buffer(page), queue_id, raw, len(raw), explicit, start, created_ns)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot make consumer {name!r}")
        return bytes(page)

    def aside(self) -> Checkpoint:
        """What it says now, in memory of our own, where nobody sees what is changed."""
        copy = object.__new__(Checkpoint)
        copy._map = mmap.mmap(-1, len(self._map))
        copy._map[:] = self._map[:]
        copy.page = ffi.from_buffer(copy._map)
        return copy

    def renamed(self, name: str) -> bytes:
        """The whole file, as that of another name."""
        content = bytearray(self._map[:])
        raw = name.encode()
        code = lib.shmq_checkpoint_rename(ffi.from_buffer(content), raw, len(raw))
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot rename to {name!r}")
        return bytes(content)

    @property
    def explicit(self) -> bool:
        """Whether the name was created with ack="explicit"."""
        return bool(lib.shmq_checkpoint_explicit(self.page))

    @property
    def group(self) -> bool:
        """Whether the name is a group's."""
        return bool(lib.shmq_checkpoint_group(self.page))

    @property
    def head(self) -> int:
        """The next index this name has not finished."""
        return int(lib.shmq_checkpoint_head(self.page))

    @head.setter
    def head(self, index: int) -> None:
        lib.shmq_checkpoint_set_head(self.page, index)

    def raise_head(self, index: int) -> None:
        """Nothing before *index* is left, unless the head is beyond it already."""
        lib.shmq_checkpoint_raise_head(self.page, index)

    @property
    def handed(self) -> int:
        """One more than the largest index ever handed out."""
        return int(lib.shmq_checkpoint_handed(self.page))

    @handed.setter
    def handed(self, index: int) -> None:
        lib.shmq_checkpoint_set_handed(self.page, index)

    @property
    def dropped(self) -> int:
        """How many messages were dropped before this name came to them."""
        return int(lib.shmq_checkpoint_dropped(self.page))

    @dropped.setter
    def dropped(self, count: int) -> None:
        lib.shmq_checkpoint_set_dropped(self.page, count)

    def floor(self, dropped: int) -> int:
        """The first index that this name has not finished, when all before *dropped* was dropped."""
        if self.group:
            return self.written_floor()  # what is dropped for a group is finished in its ring
        head, handed = self.head, self.handed
        return head if head < handed else max(head, dropped)  # what was handed out is never dropped

    def written_floor(self) -> int:
        """Of a group: below it nothing is needed any more, as a member wrote it down last."""
        return min(self.head, int(lib.shmq_checkpoint_floor(self.page)))

    @property
    def holder(self) -> int:
        """The owner that took the name last."""
        return int(lib.shmq_checkpoint_holder(self.page))

    @holder.setter
    def holder(self, owner: int) -> None:
        lib.shmq_checkpoint_set_holder(self.page, owner)

    def ask(self, member: Member) -> int:
        """Say that what was acknowledged is to be on the disk: the number to wait for."""
        return int(lib.shmq_acks_ask(member.handle, self.page))

    def asked(self) -> int:
        """How many have asked."""
        return int(lib.shmq_acks_asked(self.page))

    def answered(self) -> int:
        """How many of them were answered: what they acknowledged is on the disk."""
        return int(lib.shmq_acks_synced(self.page))

    def publish(self, asked: int, sequence: int) -> None:
        """As leader: that snapshot, begun after so many had asked, is on the disk."""
        lib.shmq_acks_publish(self.page, asked, sequence)

    def snapshot_synced(self) -> int:
        """The sequence of the newest snapshot that is known to be on the disk; 0 when none is."""
        return int(lib.shmq_snapshot_synced(self.page))

    def newest_snapshot(self) -> Snapshot | None:
        """The newest valid snapshot; None when there is none."""
        return newest_snapshot(self._map[:CHECKPOINT_BYTES])

    def save_cursor(self, sequence: int, position: int, ordinal: int, index: int) -> None:
        """Remember where *index* lies."""
        lib.shmq_cursor_save(self.page, sequence, position, ordinal, index)

    def cursor(self) -> tuple[int, int, int, int] | None:
        """(sequence, position, ordinal, index) last remembered, if whole."""
        values = [ffi.new("uint64_t *") for _ in range(4)]
        if not lib.shmq_cursor_load(self.page, *values):
            return None
        sequence, position, ordinal, index = (int(value[0]) for value in values)
        return sequence, position, ordinal, index


# ---------------------------------------------------------------- a group's ring
RING_WINDOW, RING_BUCKETS, SIDE_BLOCKS = 65536, 16384, 1
"""Messages in flight at most, buckets of keys where they come in order, and the blocks of a new side table."""
SIDE_BLOCKS_MAX, RING_TENANTS, RING_HEADER_BYTES = 524288, 4096, 12288
"""Blocks of the largest side table; where the tenants are in a ring's header, and how long that is."""
RING_CLAIMED, RING_DONE, RING_MOVING, RING_PARKED = 1, 2, 4, 5
RING_LEASES, RING_ATTEMPTS = 1, 2
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


def boottime_ns() -> int:
    """The clock that leases and delays are on: since boot, going on while the machine sleeps."""
    return int(lib.shmq_clock_boottime_ns())


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
            raise error(_inside(code[0]), f"cannot open {path}")
        self.handle = ffi.gc(handle, functools.partial(_free_ring, memory, member, checkpoint))
        self._kept = Kept(self.handle)
        self._next = ffi.new("int64_t *")
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
            raise error(_inside(code), f"cannot open {path}")
        return bytes(boot)

    @staticmethod
    def rebuild(memory: mmap.mmap, checkpoint: Checkpoint, boot_id: bytes, path: str, first: int = 0) -> None:
        """
        At a new boot: forget what the ring says, and set it by the checkpoint's newest snapshot.

        Nothing is there before index *first*; 0 if that is not known.
        """
        code = lib.shmq_ring_rebuild(ffi.from_buffer(memory), len(memory), checkpoint.page, boot_id, first)
        if code != lib.SHMQ_OK:
            raise error(_inside(code), f"cannot rebuild {path}")

    @staticmethod
    def bury(memory: mmap.mmap, queue_id: bytes, slot: int) -> bool:
        """Note that whoever sat in that seat before is dead; the ring's header is enough. False when it is no ring."""
        return int(lib.shmq_ring_bury(ffi.from_buffer(memory), len(memory), queue_id, slot)) == lib.SHMQ_OK

    @staticmethod
    def forget(memory: mmap.mmap) -> None:
        """Have it speak of no boot: whoever opens it next rebuilds it."""
        lib.shmq_ring_forget(ffi.from_buffer(memory))

    def remap(self, memory: mmap.mmap) -> None:
        """It was mapped again."""
        code = lib.shmq_ring_remap(self.handle, ffi.from_buffer(memory), len(memory))
        if code != lib.SHMQ_OK:
            raise error(_inside(code), f"cannot open {self._path}")
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
