"""What is archived, put into a queue again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark.archive import forms, messages, owners, stores

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_TEXTS = frozenset(f"shmq.{name}" for name in ("queue", "group", "cause", "reason", "traceback"))
_OTHERS = frozenset(f"shmq.{name}" for name in ("origin", "index", "attempts"))
"""Headers of a dead letter. An archive has the value of a header as bytes, as Kafka has; of these it is known what they
were, and `shmq dead` needs them so."""


def replay(
    source: str,
    queue: str,
    *,
    since: datetime.datetime | int | None = None,
    until: datetime.datetime | int | None = None,
    shard: int | None = None,
    host: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """
    Put what is archived into *queue* again, in order, with its keys, times, types and headers; return how many.

    Where a message was is in its header `source`: {"topic", "partition", "index"}, and "host" in an archive of several,
    of which one comes after the other. A replay that was killed goes on
    where it was when it is called again, with the same times: what is in the queue already is not put twice. With other
    times it is another replay, which puts what both have a second time.

    Args:
        source: the archive.
        queue: a queue's directory; made if it is not there.
        since, until: only messages of this time or later, and before that one. A datetime without a zone is local, as
            everywhere in shmq; an int is ns since 1970.
        shard: only of this shard.
        host: only of this host; None for all there are.
        progress: told how many messages are done.

    Raises:
        Mismatch: the archive was made without hosts, and one was named.
        NotFound: it has nothing of that host.
        TypeError: since or until is no time.
    """
    times = forms.Times(forms.moment("since", since), forms.moment("until", until))
    there = stores.store(source)
    stored = there.shards() if host is None else owners.only(source, there.shards(), host)
    done = 0
    with shmq.open(queue) as opened:
        for each in stored:
            if shard is None or each.number == shard:
                who = f"replay {each.whose} {each.topic}/{each.number} {times.since}-{times.until}"
                before = opened.adopted(who)
                behind = -1 if before is None else before[0]
                tables = there.rows(each.topic, each.number, behind, times, each.host)
                for count in _replay(tables, opened, who, times, each.host):
                    done += count
                    if progress is not None:
                        progress(done)
    return done


def _replay(
    tables: Iterator[pa.Table], queue: shmq.Queue, who: str, times: forms.Times, host: str | None
) -> Iterator[int]:
    """Each table at once, known by its last offset, which ascends over all that there is of a shard."""
    import pyarrow.compute as pc  # noqa: PLC0415

    for each in tables:
        table = messages.as_raw(each)
        before = queue.adopted(who)
        if before is not None:  # merging may have put what is there, and what is not, into one file
            table = table.filter(pc.greater(table["offset"], before[0]))
        if times.since is not None:
            table = table.filter(pc.greater_equal(table["timestamp_ns"], times.since))
        if times.until is not None:
            table = table.filter(pc.less(table["timestamp_ns"], times.until))
        if not table.num_rows:
            continue
        with queue.stage() as staged:
            for batch in table.to_batches(max_chunksize=4096):
                _put(staged, batch, {} if host is None else {"host": host})
            queue.adopt(staged, dedup=(who, table["offset"][-1].as_py()))
        yield table.num_rows


def _put(staged: shmq.Staged, batch: pa.RecordBatch, whose: dict[str, str]) -> None:
    headers = [
        {
            **{each["key"]: _value(each["key"], each["value"]) for each in kept or ()},
            "source": {**whose, "topic": topic, "partition": partition, "index": index},
        }
        for kept, topic, partition, index in zip(
            batch["headers"].to_pylist(),
            batch["topic"].to_pylist(),
            batch["partition"].to_pylist(),
            batch["offset"].to_pylist(),
            strict=True,
        )
    ]
    values = batch["value"].to_pylist()
    at = 0
    while at < len(values):  # a claim must fit into a chunk
        stop, nbytes = at, 0
        while stop < len(values) and (stop == at or nbytes < 8 << 20):
            nbytes += len(values[stop])
            stop += 1
        staged.put_many(
            values[at:stop],
            keys=batch["key"].to_pylist()[at:stop],
            types=batch["type"].to_pylist()[at:stop],
            times_ns=batch["timestamp_ns"].to_pylist()[at:stop],
            headers=headers[at:stop],
        )
        at = stop


def _value(name: str, kept: bytes) -> Any:
    """The value of a header, as it was where that is known; as bytes where not, or where it is none of that kind."""
    with contextlib.suppress(ValueError):
        if name in _TEXTS:
            return kept.decode()
        if name in _OTHERS:
            import msgspec  # noqa: PLC0415  # few are dead letters

            return msgspec.json.decode(kept)
    return kept
