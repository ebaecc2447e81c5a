"""
What is true of a consumer name after a power cut: the two snapshots in its checkpoint.

The live words of a checkpoint survive the death of a process and carry no checksum, so after a power cut only a
snapshot is believed. It is taken as leader of the group commit: the slot that is not the newest valid one is
overwritten, and only once the newest is on the disk. An acknowledgement later than that is forgotten, none is invented.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import sync

if TYPE_CHECKING:
    from shmq.storage.directory import Directory


def newest(content: bytes) -> _native.Snapshot | None:
    """The newest valid snapshot in the bytes of a checkpoint file; None when there is none."""
    starts = (_native.SNAPSHOT_BASE, _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES)
    slots = [_native.check_snapshot(content[start : start + _native.SNAPSHOT_BYTES]) for start in starts]
    return max((slot for slot in slots if slot), key=lambda slot: slot.sequence, default=None)


def persist(home: Directory, name: str) -> None:
    """
    Have the head of that name, as it is now, on the disk; one that is dropped meanwhile is passed over.

    Raises:
        OSError: the disk refused. One of its snapshots still says what it said.
    """
    with contextlib.suppress(FileNotFoundError, errors.Corrupt):
        checkpoint = home.checkpoint(name)
        head = checkpoint.head
        fd, _ = home.open(home.consumers, f"{name}.checkpoint", writable=True)
        try:
            if checkpoint.group:  # its members write what is done behind the head as well, about once a second
                sync.data(fd, "snapshot")
                return
            before = newest(os.pread(fd, _native.CHECKPOINT_BYTES, 0))
            epoch = home.journal.epoch
            if before is not None and (before.head, before.epoch) == (head, epoch):
                return
            if before is not None:
                sync.data(fd, "snapshot")  # who wrote it may have been killed before that
            sequence = 1 if before is None else before.sequence + 1
            content = _native.format_snapshot(_native.Snapshot(sequence, epoch, head))
            at = _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES * (1 - sequence % 2)
            sync.write(fd, content, at, "snapshot")
            sync.data(fd, "snapshot")
        finally:
            os.close(fd)


def persist_all(home: Directory) -> None:
    """
    The same for every name, and the names themselves.

    Raises:
        OSError: the disk refused.
    """
    names = home.consumer_names()
    for name in names:
        persist(home, name)
    if names:
        sync.directory(home.consumers, "consumers")
