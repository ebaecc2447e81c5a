"""
A copy of a living queue, exact up to one index.

Chunk files are cloned where the file system can (reflink), else copied by the kernel; never linked, since a retired
chunk is zeroed where it lies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os

from shmq import _native, errors
from shmq._native.layout import checkpoint, chunk_header
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, dedup, files, ledger, pins, records, ring, sources, subscriptions
from shmq.storage.paths import CONSUMERS, DEDUP, LEDGER, chunk_name
from shmq.storage.recover import consumers
from shmq.storage.target import NOWHERE, Target, give_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.given import Progress
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

TRIES = 20
"""How often a copy begins anew that cannot hold back what is retired before it comes to it."""
_HEADER_CRC = (chunk_header.crc, chunk_header.magic, chunk_header.hint)
_CHECKPOINT_CRC = (checkpoint.crc, 0, checkpoint.pad0)


@dataclasses.dataclass(frozen=True)
class Copied:
    """
    A copy that was made.

    Attributes:
        path: where.
        messages: in it.
        first_index, next_index: the indexes that it holds; it is exact up to next_index.
    """

    path: str
    messages: int
    first_index: int
    next_index: int


def copy(home: Directory, chain: Chain, to: str, progress: Progress, *, new_id: bool) -> Copied:
    """
    Copy the queue to the new directory *to*, exactly up to one index, while others go on; tell of it after each chunk.

    Raises:
        Corrupt: a message is damaged; nothing was written. `repair` writes what is whole.
        Unsafe: there is something at *to*.
        DiskFull: there is no room.
    """
    with held_back(home) as pin, Target(home, to, os.urandom(16) if new_id else home.queue_id) as target:
        copy_consumers(home, target)  # first: so none is ahead of what is copied
        first, end, messages, ceiling = _copy_what_is_there(home, chain, target, pin, progress)
        for copy_one in (copy_ledger, copy_dedup):
            copy_one(home, target, end)
        target.finish(first[0], first[1], max(ceiling, end))
        return Copied(target.path, messages, first[1], end)


@contextlib.contextmanager
def held_back(home: Directory) -> Iterator[pins.Pin | None]:
    """Keep what is about to be copied from being retired; who may write nothing cannot."""
    if home.read_only or home.unclean():
        yield None
        return
    pin = pins.Pin(home, None)
    try:
        pin.take()
        yield pin
    finally:
        pin.close()


def _copy_what_is_there(
    home: Directory, chain: Chain, target: Target, pin: pins.Pin | None, progress: Progress
) -> tuple[tuple[int, int], int, int, int]:
    """As `_copy_chunks`; again from the first one that is left, when nothing held back what was retired meanwhile."""
    for _ in range(TRIES):
        try:
            return _copy_chunks(home, chain, target, pin, progress)
        except (errors.Gone, FileNotFoundError):
            target.forget_chunks()
    raise errors.Gone(
        f"cannot copy {home.path}: {TRIES} times what was to be copied next was retired meanwhile; nothing was "
        "written. Opened for writing, a queue holds back what is being copied"
    )


def _copy_chunks(
    home: Directory, chain: Chain, target: Target, pin: pins.Pin | None, progress: Progress
) -> tuple[tuple[int, int], int, int, int]:
    """(sequence and index of the first, the index behind the last message, messages, ceiling)."""
    first = chain.first()
    if first is None:
        start = chain.first_index()
        return (home.journal.first_live, start), start, 0, 0
    upto = chain.next_index()  # as it is now: others may put faster than this copies
    chunk: _native.Chunk | None = chain.open(*first)
    messages = ceiling = end = 0
    while chunk is not None:
        if pin is not None:
            pin.move(chunk.base)  # what was copied may go
        with contextlib.suppress(errors.Corrupt):  # the survey says so
            chunk.resolved()  # what the dead had claimed is padding, and ends no copy
        survey = chunk.survey()
        if survey.code == _native.CORRUPT:
            raise errors.Corrupt(f"cannot copy {home.path}: {chunk.path}: {survey.reason}; nothing was written")
        sealed = survey.code == _native.ROLL
        _copy_chunk(chunk, target, survey, sealed=sealed)
        messages += survey.messages
        end = chunk.base + survey.stopped_ordinal
        ceiling = chunk.base + chunk.size // _native.RECORD_BYTES_MIN
        progress("copied", messages, (end - first[1]) / max(upto - first[1], 1))
        # Where somebody is about to commit, the copy ends: nothing behind it is in it. Of a set that is adopted all is.
        chunk = chain.after(chunk) if sealed and (end < upto or chunk.adoption()) else None
    return first, end, messages, ceiling


def _copy_chunk(chunk: _native.Chunk, target: Target, survey: _native.Survey, *, sealed: bool) -> None:
    with target.file(target.chunks, chunk_name(chunk.base, chunk.sequence), chunk.size) as fd:
        upto = chunk.size if sealed else survey.stopped
        source = chunk.descriptor()
        if source is None:
            os.pwrite(fd, chunk.map[:upto], 0)
        else:
            files.transfer(source, fd, upto, whole=sealed)
        give_id(fd, target.queue_id, chunk_header.queue_id, _HEADER_CRC)
        with target.chunk(fd, chunk.size, chunk.base, chunk.sequence) as made:
            made.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)


def copy_consumers(home: Directory, target: Target) -> None:
    """Every name, with all that belongs to it; of one that is damaged, only that it is gone."""
    for name in home.consumer_names():
        with contextlib.suppress(FileNotFoundError):  # dropped meanwhile
            damaged = _copy_name(home, target, name)
            if damaged and name in home.consumer_names():
                target.gone.append(f"{CONSUMERS}/{damaged}")


def _copy_name(home: Directory, target: Target, name: str) -> str:
    """All that belongs to that name; or nothing, and the file that is damaged."""
    file = f"{name}.checkpoint"
    try:
        content = home.read(home.consumers, file, _native.CHECKPOINT_BYTES)
        if not consumers.checkpoint_is_whole(content, home.queue_id, name):
            return file
        if home.checkpoint(name).ring:
            file = f"{name}.group"
            ring.options(home, name)
            file = f"{name}{sources.ENDING}"
            sources.read(home, name)
            file = f"{name}.ring"
            window, buckets, cells, blocks = ring.extent(home, name)
            extent = window, buckets, cells & ~_native.RING_SMALL, max(blocks, _native.SIDE_BLOCKS)
            _copy_group(home, target, name, extent)
        if home.checkpoint(name).subscribed:
            file = f"{name}{subscriptions.ENDING}"
            subscriptions.read(home, name, home.checkpoint(name))
            target.write(target.consumers, file, subscriptions.content_for(home, name, target.queue_id))
        with target.file(target.consumers, f"{name}.checkpoint", len(content)) as fd:
            os.pwrite(fd, content, 0)
            give_id(fd, target.queue_id, checkpoint.queue_id, _CHECKPOINT_CRC)
            if not home.unclean():
                _take_snapshot(home, target, name, fd)
    except (errors.Corrupt, errors.BadFormat, errors.Unsafe):
        return file
    hold = pins.hold_file(home, name)
    if hold is not None:
        target.write(target.consumers, f"{name}.hold", hold)
    return ""


def _take_snapshot(home: Directory, target: Target, name: str, fd: int) -> None:
    """Have the copied checkpoint say where the name stands in this boot, for the recovery of the copy goes by that."""
    where = f"{target.path}/{CONSUMERS}/{name}.checkpoint"
    copied = _native.Checkpoint(fd, _native.CHECKPOINT_BYTES, target.queue_id, name, where)
    before = copied.newest_snapshot()
    if not copied.ring:
        sequence = 1 if before is None else before.sequence + 1
        content = _native.format_snapshot(_native.Snapshot(sequence, home.journal.epoch, copied.head))
        os.pwrite(fd, content, _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES * (1 - sequence % 2))
        return
    code = _native.GROW
    while code == _native.GROW:  # another part of the side table was made meanwhile
        memory = ring.map_ring(home, name, writable=False)
        path = f"{home.path}/{CONSUMERS}/{name}.ring"
        if _native.Ring.boot_id(memory, home.queue_id, path) != boots.boot_id():
            return  # nobody was in it since the last boot: the snapshot that is there is the truth
        code = _native.Ring(memory, home.queue_id, copied, None, path).snapshot(home.journal.epoch)
    newest = copied.newest_snapshot()
    assert newest is not None  # noqa: S101  # it was taken
    copied.head = newest.head  # in order by key it begins with what is put aside, which is no move


def _copy_group(home: Directory, target: Target, name: str, extent: tuple[int, int, int, int]) -> None:
    """What it was made with, and an empty ring of that size: the first opening sets it by the checkpoint's snapshot."""
    stored = home.read(home.consumers, f"{name}.group", ring.OPTIONS_MAX)
    target.write(target.consumers, f"{name}.group", stored[:8] + target.queue_id + stored[24:])
    if target.queue_id == home.queue_id:  # a queue of its own is another source to those it puts into
        with contextlib.suppress(FileNotFoundError):  # it has never forwarded
            known = home.read(home.consumers, f"{name}{sources.ENDING}", ring.OPTIONS_MAX)
            target.write(target.consumers, f"{name}{sources.ENDING}", known)
    with target.file(target.consumers, f"{name}.ring", _native.ring_bytes(*extent)) as fd:
        size = os.fstat(fd).st_size
        with contextlib.closing(_native.map_file(fd, size, writable=True)) as made:
            _native.format_ring(made, target.queue_id, NOWHERE, extent)


def copy_ledger(home: Directory, target: Target, end: int) -> None:
    """Which batches were adopted, up to that index."""
    batches = {
        producer: list(batch) for producer, batch in ledger.ledger(home).items() if batch.first + batch.indexes <= end
    }
    if batches:
        target.write(target.fd, LEDGER, records.pack(batches))


def copy_dedup(home: Directory, target: Target, end: int) -> None:
    """Which batches were put once, up to that index."""
    note = dedup.read_note(home)
    if note is not None:  # what is in the chunks is looked for anew
        target.write(target.fd, DEDUP, records.pack(dedup.content(0, note.memory().before(end))))
