"""
Messages out of a queue, into an archive, before the queue may forget them.

What is archived is on the disk before the consumer name `archive` moves on, which is what lets the queue retire chunks.
So each message is in the queue, or in the archive, at every moment. No Spark is needed for this: one processor does
millions of rows a second.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import shmq
from shmq.spark import places
from shmq.spark.archive.files import FILE_BYTES, Archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

CONSUMER = "archive"
_BATCH_ROWS = 100_000


def hold(queue: str) -> None:
    """Have *queue* keep everything from now on until it is archived, whatever its retention says."""
    for shard in places.shards_of(queue):
        with (
            shmq.open(shard.path, create=False, trusted=True) as opened,
            contextlib.suppress(shmq.Busy),  # somebody archives now, and so holds it
        ):
            opened.consumer(CONSUMER, ack="explicit", hold=True).close()


def archive(
    queue: str,
    to: str,
    *,
    older_than: float | None = None,
    behind: str | None = None,
    file_bytes: int = FILE_BYTES,
    progress: Callable[[int], None] | None = None,
) -> int:
    """
    Bring what is new in *queue* into the archive *to*; return how many messages.

    Args:
        queue: a queue's directory, or one with its shards.
        older_than: only what was put so many seconds ago, or longer.
        behind: only what the consumer of that name has finished.
        file_bytes: about how many bytes of messages go into one file.
        progress: told how many messages are done.

    Raises:
        Busy: another process archives to the same place, or holds the name `archive`.
        BadFormat: there are files at *to*, and no archive, or one that has lost its manifest; nothing was changed.
        Gone: messages went that were not archived yet. Retention waits for the name `archive`; so somebody dropped or
            moved it, or purged, or the queue is bounded with full="drop_oldest".
    """
    done = 0
    with Archive(to) as there:
        for shard in places.shards_of(queue):
            with shmq.open(shard.path, create=False, trusted=True) as opened:
                for count in _shard(there, shard, opened, older_than, behind, file_bytes):
                    done += count
                    if progress is not None:
                        progress(done)
    return done


def _shard(
    there: Archive, shard: places.Shard, queue: shmq.Queue, older_than: float | None, behind: str | None, nbytes: int
) -> Iterator[int]:
    before = there.manifest().of(shard.topic, shard.number)
    if any(each.queue_id != queue.id for each in before):
        raise shmq.Mismatch(
            f"{there.path} holds messages of another queue that lay at {shard.path} before; nothing was archived. "
            "Archive to another place"
        )
    start = before[-1].stop if before else None
    begin = queue.first_index if start is None else start
    with queue.consumer(CONSUMER, ack="explicit", start=begin, hold=True) as consumer:
        if start is None:
            start = consumer.head
        if consumer.head < start:
            consumer.seek(start)  # killed between the manifest and this
        if start < queue.first_index and before:
            raise shmq.Gone(
                f"messages {start} to {queue.first_index - 1} of {shard.path} were retired before they came into "
                f"{there.path}; nothing was archived. The name {CONSUMER!r}, which makes retention wait, was dropped "
                "or moved, the queue was purged, or it is bounded with full='drop_oldest'",
                queue.first_index,
            )
        stop = _until(queue, older_than, behind)
        while start < stop:
            upto = _file_end(queue, start, stop, nbytes)
            file = there.write(
                _tables(queue, shard, start, upto),
                topic=shard.topic,
                shard=shard.number,
                queue_id=queue.id,
                first=start,
                stop=upto,
            )
            if file is not None:
                consumer.seek(upto)
                yield file.rows
            start = upto


def _until(queue: shmq.Queue, older_than: float | None, behind: str | None) -> int:
    stop = queue.committed_index
    if older_than is not None:
        stop = min(stop, queue.at_ns(time.time_ns() - int(older_than * 1e9)))
    if behind is not None:
        known = queue.consumers().get(behind)
        stop = min(stop, 0 if known is None else known.head)
    return stop


def _file_end(queue: shmq.Queue, start: int, stop: int, nbytes: int) -> int:
    """Where a file that begins at *start* ends."""
    size, end = 0, start
    for extent in queue.extents(start, stop):
        if size and size + extent.nbytes > nbytes:
            return end
        size, end = size + extent.nbytes, extent.stop
    return stop


def _tables(queue: shmq.Queue, shard: places.Shard, start: int, stop: int) -> Iterator[pa.Table]:
    """The messages as Spark and everybody else will read them."""
    import pyarrow as pa  # noqa: PLC0415

    from shmq.spark import columns  # noqa: PLC0415

    wanted = frozenset({"value", "key", "time", "kind", "headers"})
    for batch in columns.read(queue, start, stop, wanted, _BATCH_ROWS):
        yield pa.table(
            {
                "offset": batch.index,
                "timestamp": batch.time.cast(pa.timestamp("us", "UTC"), safe=False),
                "timestamp_ns": batch.time.view(pa.int64()),
                "partition": pa.repeat(pa.scalar(shard.number, pa.int32()), batch.rows),
                "topic": pa.repeat(pa.scalar(shard.topic, pa.string()), batch.rows),
                "type": batch.kind,
                "key": batch.key,
                "value": batch.value,
                "headers": batch.headers,
            }
        )
