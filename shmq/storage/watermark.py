"""
The watermark: how far the disk is known to agree, in two slots of queue.shmq.

Only whoever leads the group commit writes it. The slot that is not the newest valid one is overwritten, and only once
the newest is on the disk, so that a power cut can tear one of them and never both.
"""

from __future__ import annotations

from shmq import _native
from shmq.hints import TYPE_CHECKING
from shmq.storage import sync
from shmq.storage.paths import QUEUE

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

_FIRST_PAGE = 3


def newest(content: bytes) -> _native.Watermark | None:
    """The watermark in the bytes of a queue.shmq; None when there is none."""
    pages = (content[at * _native.PAGE_BYTES :][: _native.PAGE_BYTES] for at in (_FIRST_PAGE, _FIRST_PAGE + 1))
    slots = [slot for page in pages if len(page) == _native.PAGE_BYTES and (slot := _native.check_watermark(page))]
    return max(slots, key=lambda slot: slot.sequence, default=None)


def read(home: Directory) -> _native.Watermark | None:
    """The watermark of that queue; None when there is none yet."""
    return newest(home.read(home.fd, QUEUE, _native.QUEUE_BYTES))


def write(home: Directory, chunk_sequence: int, position: int, index: int) -> None:
    """
    Move the watermark on, synced; never back. As leader of the group commit only.

    Raises:
        OSError: the disk refused. One of the slots still says what it said.
    """
    fd, _ = home.open(home.fd, QUEUE, writable=True)
    with fd:
        before, epoch = read(home), home.journal.epoch
        if before is not None and before[1:4] >= (epoch, chunk_sequence, position):
            return
        if before is not None:
            sync.data(fd, "watermark")  # who wrote it may have been killed before that
        sequence = 1 if before is None else before.sequence + 1
        mark = _native.Watermark(sequence, epoch, chunk_sequence, position, index)
        page = _FIRST_PAGE + 1 - sequence % 2
        sync.write(fd, _native.format_watermark(mark), page * _native.PAGE_BYTES, "watermark")
        sync.data(fd, "watermark")
