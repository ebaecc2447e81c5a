"""Consumers after a power cut: none stands beyond the end, and no acknowledgement is invented."""

from __future__ import annotations

import contextlib
import os
import struct

from shmq import _native, errors
from shmq._native.layout import CHECKPOINT_EXCLUSIVE, checkpoint
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, ring, sync
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    from shmq.storage.directory import Directory
    from shmq.storage.recover.asides import Aside
    from shmq.storage.recover.plan import Plan

_FIXED = checkpoint.pad0
_CRC_AT, _KIND_AT, _EXPLICIT_AT, _START_AT = (
    checkpoint.crc,
    checkpoint.kind,
    checkpoint.explicit_ack,
    checkpoint.start_index,
)
_HEAD_AT, _HANDED_AT, _HOLDER_AT, _CURSOR_AT = (
    checkpoint.head,
    checkpoint.handed,
    checkpoint.holder,
    checkpoint.cursor_sequence,
)
_ACKS_AT, _ACKS_END = checkpoint.acks_asked, checkpoint.left  # what was asked, answered and synced in another boot
_U64 = struct.Struct("<Q")
_EXCLUSIVE = CHECKPOINT_EXCLUSIVE


def _number(page: bytes, at: int) -> int:
    return int(_U64.unpack_from(page, at)[0])


def _number32(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4], "little")


def checkpoint_is_whole(page: bytes, queue_id: bytes, name: str) -> bool:
    """Whether the part of a checkpoint that never changes is as it was made."""
    if len(page) < _native.CHECKPOINT_BYTES or page[:8] != b"shmqckpt" or page[16:32] != queue_id:
        return False
    length = int.from_bytes(page[56:60], "little")
    crc = _native.crc32c(page[:_CRC_AT] + bytes(4) + page[_CRC_AT + 4 : _FIXED])
    return crc == int.from_bytes(page[_CRC_AT : _CRC_AT + 4], "little") and page[64 : 64 + length] == name.encode()


def _snapshot_head(page: bytes) -> int | None:
    """The head in the newest valid snapshot."""
    newest = _native.newest_snapshot(page)
    return None if newest is None else newest.head


def _acks_are_synced(home: Directory) -> bool:
    return bool(home.options.durability.kind != "process")


def _true_head(home: Directory, page: bytes, end: int) -> int:
    """
    Where a name stands after a power cut: an acknowledgement may be forgotten, and none is invented.

    What was synced is the newest snapshot. With durability PROCESS, where little is synced, the live head is used
    when it can be true: it did reach the disk.
    """
    synced = _snapshot_head(page)
    head, handed = _number(page, _HEAD_AT), _number(page, _HANDED_AT)
    exclusive = _number32(page, _KIND_AT) == _EXCLUSIVE
    if exclusive and not _acks_are_synced(home) and (synced or 0) <= head <= handed:
        return min(head, end)
    return min(_number(page, _START_AT) if synced is None else synced, end)


def settle_consumers(home: Directory, plan: Plan, aside: Aside) -> dict[str, tuple[int, int]]:
    """Move back what is ahead: {name: (head before, head now)}."""
    moved = {}
    for name in home.consumer_names():
        file = f"{name}.checkpoint"
        try:
            fd, _ = home.open(home.consumers, file, writable=True)
        except (FileNotFoundError, errors.Unsafe):
            continue
        with fd:
            page = os.pread(fd, _native.CHECKPOINT_BYTES, 0)
            if not checkpoint_is_whole(page, home.queue_id, name):
                if not any(page[:_FIXED]):  # made, and its content never reached the disk
                    aside.take(CONSUMERS, file)
                continue  # damage: whoever opens the name is told
            head = _true_head(home, page, plan.end) if plan.pieces else plan.next_index
            if not plan.pieces and _snapshot_head(page) != head:  # else the next recovery takes the leap for a loss
                ring.begin_at(fd, page, home.journal.epoch, head)
            new = bytearray(page)
            _U64.pack_into(new, _HEAD_AT, head)
            # With ack="auto" nobody holds what is behind the head: it was acknowledged, and that was forgotten.
            held = max(head, min(_number(page, _HANDED_AT), plan.end)) if page[_EXPLICIT_AT] else head
            _U64.pack_into(new, _HANDED_AT, held)
            _U64.pack_into(new, _HOLDER_AT, 0)
            new[_CURSOR_AT : _CURSOR_AT + 32] = bytes(32)
            new[_ACKS_AT:_ACKS_END] = bytes(_ACKS_END - _ACKS_AT)
            if new != page:
                sync.write(fd, bytes(new[_HEAD_AT:_ACKS_END]), _HEAD_AT, "checkpoint")
                sync.data(fd, "checkpoint")
            if _number(page, _HEAD_AT) != head:
                moved[name] = (_number(page, _HEAD_AT), head)
        _renew_ring(home, name, 0 if plan.pieces else plan.next_index)
    sync.directory(home.consumers, "consumers")
    return moved


def _renew_ring(home: Directory, name: str, first: int) -> None:
    """
    A group's ring is the truth of one boot only: what its snapshot does not call done is delivered again.

    In a copied directory too, where it names owners that nobody here is. Nothing is there before *first*.
    """
    path = f"{home.path}/{CONSUMERS}/{name}"
    try:
        fd, _ = home.open(home.consumers, f"{name}.ring", writable=True)
    except (FileNotFoundError, errors.Unsafe):
        return
    with fd, contextlib.suppress(errors.Corrupt, errors.BadFormat):  # damage: whoever opens the name is told
        checkpoint = home.checkpoint(name, writable=True)
        with contextlib.closing(ring.map_ring(home, name, writable=True)) as memory:
            _native.Ring.rebuild(memory, checkpoint, boots.boot_id(), f"{path}.ring", first)
        sync.data(fd, "ring")
