"""
Messages out of a queue, into an archive, before the queue may forget them.

What is archived is on the disk before the consumer name `archive` moves on, which is what lets the queue retire chunks.
So each message is in the queue, or in the archive, at every moment. No Spark is needed for this: one processor does
millions of rows a second.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import shmq
from shmq.spark import delta, places
from shmq.spark.archive import forms, messages, stores
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CONSUMER = "archive"
FILE_BYTES = 256 << 20


def hold(queue: str) -> None:
    """Have *queue* keep everything from now on until it is archived, whatever its retention says."""
    for shard in places.shards_of(queue):
        with (
            shmq.open(shard.path, create=False, trusted=True) as opened,
            contextlib.suppress(shmq.Busy),  # somebody archives now, and so holds it
        ):
            opened.consumer(CONSUMER, hold=True).close()


def archive(
    queue: str,
    to: str,
    *,
    form: str | None = None,
    host: str | None = None,
    schema: str | None = None,
    value: str | None = None,
    dtype: str | None = None,
    older_than: float | None = None,
    behind: str | None = None,
    file_bytes: int = FILE_BYTES,
    progress: Callable[[int], None] | None = None,
) -> int:
    """
    Bring what is new in *queue* into the archive *to*; return how many messages.

    Args:
        queue: a queue's directory, or one with its shards.
        to: the archive's directory; or, for a Delta table, an object store's URL.
        form: "parquet" or "delta", for an archive that is new; plain Parquet by default, a Delta table with *host*.
        host: the name of this one, of several hosts that archive to one Delta table, each its own queues. One that is
            new is made for them then; one that was made for them takes this host's name by default.
        schema: the fields of the payloads, like "user BIGINT, kind STRING", which become columns; None for payloads as
            they are.
        value: what payloads are then: "json", "msgpack" or "struct"; by default what the queue's codec says.
        dtype: for "struct": numpy's description of one record.
        older_than: only what was put so many seconds ago, or longer.
        behind: only what the consumer of that name has finished.
        file_bytes: about how many bytes of messages go into one file.
        progress: told how many messages are done.

    Raises:
        Busy: another process archives to the same place, or holds the name `archive`.
        NotFound: there is no queue, or none called *behind* reads it; nothing was made or archived.
        BadFormat: there are files at *to*, and no archive, or one that has lost its manifest; or it is in the queue's
            own folder. Nothing was changed.
        BadOption: such payloads have no such fields.
        Gone: messages went that were not archived yet. Retention waits for the name `archive`; so somebody dropped or
            moved it, or purged, or the queue is bounded with full="drop_oldest".
        Mismatch: the archive is of another form, of other columns, or of another queue; or it was made without hosts,
            and one was named; or the queue is archived as another host's. Nothing was archived.
        Missing: a Delta table needs the package deltalake.
    """
    shards = places.shards_of(queue)
    check_apart(shards, to)
    layouts = []
    for shard in shards:  # before anything is made
        with shmq.open(shard.path, create=False, trusted=True) as opened:
            _until(opened, older_than, behind)
            layouts.append(messages.layout(opened, value, schema, dtype))
    if host is not None and any("_host" in each.schema().names for each in layouts):
        raise BadOption("_host is the column of hosts in an archive of several; call the field something else")
    done = 0
    with stores.store(to, form, host) as there:
        for shard, how in zip(shards, layouts, strict=True):
            with shmq.open(shard.path, create=False, trusted=True) as opened:
                _check_columns(there, how)
                for count in _shard(there, shard, opened, how, _until(opened, older_than, behind), file_bytes):
                    done += count
                    if progress is not None:
                        progress(done)
    return done


def check_apart(shards: Iterable[places.Shard], to: str) -> None:
    """
    An archive in a queue's own folder would go with it.

    Raises:
        BadFormat: it is to be there.
    """
    folder = os.path.realpath(stores.plain(to))
    for shard in () if delta.is_remote(to) else shards:
        home = os.path.realpath(shard.path)
        if f"{folder}/".startswith(f"{home}/"):
            raise shmq.BadFormat(
                f"cannot archive {shard.path} to {to}: that is in the queue's own folder, and would go with it; "
                "nothing was changed. Archive to a folder beside it"
            )


def _check_columns(there: forms.Store, how: messages.Layout) -> None:
    """
    What was archived before has the same columns, or a field would be lost from here on, without a word.

    Raises:
        Mismatch: it has others.
    """
    found, wanted = there.columns(), how.schema().names
    if found is None or set(found) == set(wanted):
        return
    more, less = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    which = [f"it has no {', '.join(more)}"] if more else []
    which += [f"it has {', '.join(less)}, which the schema does not name"] if less else []
    raise shmq.Mismatch(
        f"{there.path} has other columns: {'; '.join(which)}. Nothing was archived. Give the schema that it was begun "
        "with, or archive to another place"
    )


def _shard(
    there: forms.Store, shard: places.Shard, queue: shmq.Queue, how: messages.Layout, stop: int, nbytes: int
) -> Iterator[int]:
    before = there.end_of(shard.topic, shard.number, queue.id)
    begin = queue.first_index if before is None else before
    with _named(queue, begin) as consumer:
        there.sweep(queue.id)
        before = there.end_of(shard.topic, shard.number, queue.id)  # who held the name may have archived meanwhile
        start = consumer.head if before is None else before
        if consumer.head < start:
            consumer.seek(start)  # killed between the archive and this
        if before is not None and start < queue.first_index:
            raise shmq.Gone(
                f"messages {start} to {queue.first_index - 1} of {shard.path} were retired before they came into "
                f"{there.path}; nothing was archived. The name {CONSUMER!r}, which makes retention wait, was dropped "
                "or moved, the queue was purged, or it is bounded with full='drop_oldest'. Archive to another place, "
                "which goes on behind them; history() takes both",
                queue.first_index,
            )
        while start < stop:
            upto = _file_end(queue, start, stop, nbytes)
            span = messages.Span(shard.topic, shard.number, queue.id, start, upto)
            rows = there.write(messages.tables(queue, shard, start, upto, how), span, how)
            if rows:
                consumer.seek(upto)
                yield rows
            start = upto


def _named(queue: shmq.Queue, begin: int) -> shmq.Consumer:
    try:
        return queue.consumer(CONSUMER, start=begin, hold=True)
    except shmq.Busy as problem:
        raise shmq.Busy(
            f"cannot archive {queue.path}: another archive of this queue runs, for the name {CONSUMER!r} is in use "
            f"({problem}); nothing was archived by this one. One at a time does it, for whom the queue waits"
        ) from None


def _until(queue: shmq.Queue, older_than: float | None, behind: str | None) -> int:
    stop = queue.committed_index
    if older_than is not None:
        stop = min(stop, queue.at_ns(time.time_ns() - int(older_than * 1e9)))
    if behind is not None:
        consumers = queue.consumers()
        if behind not in consumers:
            raise shmq.NotFound(
                f"cannot archive {queue.path} behind {behind!r}: it has no such consumer; nothing was archived. It has "
                f"{', '.join(sorted(consumers)) or 'none'}"
            )
        stop = min(stop, consumers[behind].head)
    return stop


def _file_end(queue: shmq.Queue, start: int, stop: int, nbytes: int) -> int:
    """Where a file that begins at *start* ends."""
    size, end = 0, start
    for extent in queue.extents(start, stop):
        if size and size + extent.nbytes > nbytes:
            return end
        size, end = size + extent.nbytes, extent.stop
    return stop


def compact(to: str, *, file_bytes: int = FILE_BYTES, host: str | None = None) -> int:
    """
    Put neighbouring small files together, up to about *file_bytes* each; return how many files went.

    Readers are not disturbed: the old files stay for a day, and for a week in a Delta table. To call it often costs
    nothing: see `merging.is_worth`. In a Delta table of several hosts each puts its own files together: *host*, or this
    one by its name.

    Raises:
        Busy: another process writes to it.
        OSError: the disk is full, for one; the files are what they were, and nothing is missing. See `not_together`.
    """
    if stores.form_of(to) is None:
        stores.store(to).check()
        return 0
    with stores.store(to, host=host) as there:
        return there.compact(file_bytes)


def not_together(to: str, problem: Exception) -> str:
    """What to say where `compact` failed behind `archive`, of which nothing depends."""
    return (
        f"cannot put files of {to} together: {problem}; everything is archived, in more and smaller files, and the "
        "next run tries it again"
    )


def verify(path: str) -> list[str]:
    """What is wrong with an archive's files: missing, or not as they were written."""
    return stores.store(path).verify()
