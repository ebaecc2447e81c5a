"""This process's seat at a queue: waiting, the group commit, and locks that no forked child has."""

from __future__ import annotations

import contextlib
import functools
import os

from shmq._core import ffi, lib
from shmq._native.core import Kept, error
from shmq._native.mapping import keeps_locks
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from shmq._native.core import Fd, Handled, Paged
    from shmq._native.pages import Control


def _free_member(page: Any, handle: Any) -> None:  # noqa: ARG001  # what the handle points into lives as long as it
    lib.shmq_member_free(handle)


class Member:
    """This process's seat at one queue."""

    def __init__(self, control: Control, lock_fd: int, test_fd: int | None) -> None:
        """What the descriptors are for says shmq.h; they stay the caller's. None: `by_path` comes next."""
        self.control = control
        handle = lib.shmq_member_new(control.page)
        if handle == ffi.NULL:
            raise error(lib.SHMQ_SYSTEM, "cannot join")
        self.handle = ffi.gc(handle, functools.partial(_free_member, control.page))  # before it has anything open
        lib.shmq_member_seats(self.handle, control.seats)
        code = lib.shmq_member_open(self.handle, lock_fd, -1 if test_fd is None else test_fd)
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

    def by_path(self, directory: int, path: str) -> None:
        """
        Have no descriptor to ask about seats with: each question opens the file anew, by that path from *directory*.

        *directory* stays open as long as this is used; with an absolute path it is not looked at.
        """
        code = lib.shmq_member_by_path(self.handle, directory, os.fsencode(path))
        if code != lib.SHMQ_OK:
            raise error(code, "cannot join")

    def keep(self) -> None:
        """Keep the seat without a descriptor, behind `by_path`."""
        code = lib.shmq_member_keep(self.handle)
        if code != lib.SHMQ_OK:
            raise error(code, "cannot keep a seat")

    def lock(self) -> tuple[int, int, int]:
        """Take a free slot's lock: (slot, its last tenant's generation, the chunk it may have claims from)."""
        since, generation = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        slot = lib.shmq_member_lock(self.handle, since, generation)
        if slot < 0:
            raise error(slot, "cannot join the queue")
        return slot, int(generation[0]), int(since[0])

    def leave_open(self, since: int) -> None:
        """Before `join`: the slot's former tenants may have claims open from chunk *since* on, as it goes on to say."""
        lib.shmq_member_left(self.handle, since)

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

    def is_seated(self) -> bool:
        """Whether this process still has its own seat; a descriptor stays open for the next time."""
        return bool(lib.shmq_member_seated(self.handle))

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
        self.control.count_waits()
        code = int(lib.shmq_wait(self.handle, seen, deadline_ns))
        if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL):
            raise error(code, "cannot wait")
        return code

    def sync_wait(self, chunk: Handled | None, want: int, deadline_ns: int, leading: Any) -> int:
        """
        Wait until every index below *want* is on the disk, leading the group commit when nobody does.

        OK, TIMEOUT, SIGNAL, WAITING (for a living claim), SYNC_FAILED, or LEAD: go on as the leader.
        """
        handle = ffi.NULL if chunk is None else chunk.handle
        return int(lib.shmq_sync_wait(self.handle, handle, want, deadline_ns, leading))

    def sync_keep(self, chunk: Handled, interval_ns: int, mark_due_ns: int, keeper: Any) -> int:
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

    def acks_wait(self, checkpoint: Paged, want: int, leading: Any) -> int:
        """Wait until what *checkpoint* counted as *want* is on the disk: OK, SIGNAL, SYNC_FAILED, or LEAD."""
        return int(lib.shmq_acks_wait(self.handle, checkpoint.page, want, leading))

    def acks_begin(self) -> bool:
        """As leader: whether somebody may have asked for acknowledgements to be on the disk."""
        return bool(lib.shmq_acks_begin(self.handle))

    def ring(self) -> None:
        """Something was put: wake whoever sleeps on that."""
        lib.shmq_wake(self.handle)

    def room_begin(self) -> int:
        """Say that we are about to sleep for room. Look once more, then call `room_wait` with what this returned."""
        return int(lib.shmq_room_begin(self.handle))

    def room_wait(self, seen: int, deadline_ns: int) -> int:
        """Sleep until there may be room, as `wait`."""
        self.control.count_room_waits()
        code = int(lib.shmq_room_wait(self.handle, seen, deadline_ns))
        if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL):
            raise error(code, "cannot wait for room")
        return code

    def bell(self) -> Any:
        """What rings for messages, for `Bells`; valid as long as this is kept."""
        return lib.shmq_bell_of(self.handle)

    def room_bell(self) -> Any:
        """What rings for room, likewise."""
        return lib.shmq_room_bell_of(self.handle)

    def leave(self) -> None:
        """Give the seat back; not in a forked child, where it is the parent's. Chunks can still be read."""
        lib.shmq_member_leave(self.handle)


ANY_MAX = lib.SHMQ_ANY_MAX


def new_nudge() -> Any:
    """A word on which several threads of this process can be woken, once."""
    return ffi.new("uint32_t *")


def new_keeper(directory: Fd) -> Any:
    """What the thread that keeps an interval shares with the others; *directory* is where the chunks are."""
    keeper = ffi.new("shmq_keeper *", {"directory": directory.fileno()})
    return ffi.gc(keeper, functools.partial(_kept_open, directory))


def _kept_open(directory: Fd, keeper: Any) -> None:
    """It had to be open as long as what names it."""


def nudge_keeper(keeper: Any) -> None:
    """Have it end."""
    lib.shmq_nudge(ffi.addressof(keeper, "nudge"))


def rolled(keeper: Any, chunk: Handled | None) -> None:
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
            problem = error(code, "cannot keep a lock")
            if isinstance(problem, OSError):
                problem.filename = os.readlink(f"/proc/self/fd/{fd}")  # which costs no descriptor
            raise problem

    @property
    def handle(self) -> Any:
        """What the core knows it by, for as long as this lives."""
        return self._handle

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

    def keep(self) -> None:
        """Keep what is locked without a descriptor, where that is possible; only `free` lets go of it then."""
        fd = lib.shmq_lock_fd(self._handle)
        if fd >= 0 and keeps_locks(fd):
            code = lib.shmq_lock_keep(self._handle)
            if code != lib.SHMQ_OK:
                raise error(code, "cannot keep a lock")

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


class Once:
    """What is known of one producer's puts with dedup, for the built-in."""

    def __init__(self, producer: bytes, byte: int, turns: Lock) -> None:
        """Of the producer of that identity, whose turns are on that byte, by that lock; nothing is known yet."""
        self._lock = turns
        self._once = ffi.new(
            "shmq_once *",
            {"producer": producer, "byte": byte, "lock": self._lock.handle, "chunk": _NOWHERE},
        )
        self.address = int(ffi.cast("uintptr_t", self._once))

    def stands(self, chunk: int, position: int, ordinal: int, last: tuple[int, int]) -> None:
        """All before that place was looked at; the last put, by now, was of that sequence, and at that index."""
        self._once.position, self._once.ordinal = position, ordinal
        self._once.sequence, self._once.first = last
        self._once.any = True
        self._once.chunk = chunk


_NOWHERE = (1 << 64) - 1
