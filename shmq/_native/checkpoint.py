"""The checkpoint of a consumer name, and the snapshots of it that outlive a power cut."""

from __future__ import annotations

import mmap
import struct

from shmq import errors
from shmq._core import ffi, lib
from shmq._native.core import CHECKPOINT_BYTES, error, inside
from shmq._native.layout import CHECKPOINT_EXCLUSIVE
from shmq._native.layout import checkpoint as layout
from shmq._native.mapping import map_alone
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shmq._native.member import Member

_LEFT = struct.Struct("<qqQ")  # layout.h, struct field_when
SNAPSHOT_BASE, SNAPSHOT_BYTES = lib.SHMQ_SNAPSHOT_BASE, lib.SHMQ_SNAPSHOT_BYTES


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


def open_in(content: bytes) -> tuple[int, bytes]:
    """Of a group's snapshot: the index below which all is done, but for these runs (begin and end, 8 bytes each)."""
    floor, runs = ffi.new("uint64_t *"), ffi.new("uint64_t[]", 2 * lib.SHMQ_RUNS_MAX)
    count = int(lib.shmq_snapshot_open(content, floor, runs))
    return int(floor[0]), bytes(ffi.buffer(runs, 16 * count))


def newest_snapshot(content: bytes) -> Snapshot | None:
    """The newest valid snapshot in the bytes of a checkpoint file; None when there is none."""
    starts = (SNAPSHOT_BASE, SNAPSHOT_BASE + SNAPSHOT_BYTES)
    slots = [check_snapshot(content[start : start + SNAPSHOT_BYTES]) for start in starts]
    return max((slot for slot in slots if slot), key=lambda slot: slot.sequence, default=None)


class Checkpoint:
    """The mapped checkpoint of one consumer name."""

    def __init__(self, fd: int, size: int, queue_id: bytes, name: str, path: str, *, writable: bool = True) -> None:
        """Map and check it."""
        if size != CHECKPOINT_BYTES:
            raise errors.Corrupt(
                f"cannot open {path}: it has {size} bytes instead of {CHECKPOINT_BYTES}; "
                f"drop_consumer({name!r}) removes it, so that the name can start again"
            )
        self._map: mmap.mmap = map_alone(fd, size, writable=writable)
        self.page = ffi.from_buffer(self._map)
        raw = name.encode()
        code = lib.shmq_checkpoint_check(self.page, size, queue_id, raw, len(raw))
        if code != lib.SHMQ_OK:
            tried = f"cannot open {path} (drop_consumer({name!r}) removes it, so that the name can start again)"
            raise error(inside(code), tried)

    @staticmethod
    def format(
        queue_id: bytes, name: str, *, kind: int, explicit: bool, start: int, created_ns: int, subscribed: bool = False
    ) -> bytes:
        """The checkpoint file of a new name: CHECKPOINT_EXCLUSIVE, CHECKPOINT_GROUP or CHECKPOINT_LONE."""
        page = bytearray(CHECKPOINT_BYTES)
        raw = name.encode()
        code = lib.shmq_checkpoint_format(
            ffi.from_buffer(page), queue_id, raw, len(raw), kind, explicit, subscribed, start, created_ns
        )
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
    def subscribed(self) -> bool:
        """Whether a NAME.subscription says more of it."""
        return bool(lib.shmq_checkpoint_subscribed(self.page))

    def left(self) -> tuple[int, int, int] | None:
        """When it was found that nobody had it: by the wall clock, since that boot, and its tag; None: nobody did."""
        found = _LEFT.unpack_from(self._map, layout.left)
        return found if found[2] else None

    def set_left(self, moment: tuple[int, int, int] | None) -> None:
        """Say so; None: somebody has it. Killed in between, nobody has."""
        _LEFT.pack_into(self._map, layout.left, *(moment[:2] if moment else (0, 0)), 0)
        if moment:
            _LEFT.pack_into(self._map, layout.left, *moment)

    @property
    def kind(self) -> int:
        """CHECKPOINT_EXCLUSIVE, CHECKPOINT_GROUP or CHECKPOINT_LONE."""
        return int(lib.shmq_checkpoint_kind(self.page))

    @property
    def ring(self) -> bool:
        """Whether a ring says what of it is finished: of a group, and of a lone consumer."""
        return self.kind != CHECKPOINT_EXCLUSIVE

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
        if self.ring:
            return self.written_floor()  # what is dropped is finished there
        head, handed = self.head, self.handed
        return head if head < handed else max(head, dropped)  # what was handed out is never dropped

    def written_floor(self) -> int:
        """Of a name with a ring: below it nothing is needed any more, as a member wrote it down last."""
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

    def write_fixed(self, content: bytes) -> int | None:
        """As leader: write a snapshot that was fixed before: its sequence; None when another was written meanwhile."""
        sequence = int(lib.shmq_ring_write_fixed(self.page, content))
        return sequence if sequence >= 0 else None

    def snapshots_floor(self) -> int:
        """Of a group: what is below it is done, whichever of its snapshots counts after a power cut."""
        return int(lib.shmq_snapshots_floor(self.page))

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
