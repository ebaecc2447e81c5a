"""
Ends and starts: where each shard of a query begins and ends, where a query does, and what is between, cut into tasks.

It is all on the driver, and knows nothing of Spark.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.spark import hosts, places, plan
from shmq.spark.options import EARLIEST, LATEST, BadOption, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shmq.spark.offsets import Key


class Ends(NamedTuple):
    """One shard as it is now."""

    queue_id: str
    first: int
    end: int


def ends(shards: Iterable[places.Shard], options: SourceOptions | None = None) -> dict[Key, Ends]:
    """Where each shard begins and ends: what may be read by these options, or all that is decided."""
    found = {}
    for shard in shards:
        if hosts.is_remote(shard.path):
            found[shard.topic, shard.number] = _remote_ends(shard, is_checked=options is None)
            continue
        queue = places.open_queue(shard.path)
        end = queue.committed_index if options is None else readable_end(queue, durable_only=options.durable_only)
        found[shard.topic, shard.number] = Ends(queue.id, min(queue.first_index, end), end)
    return found


def _remote_ends(shard: places.Shard, *, is_checked: bool) -> Ends:
    """
    Of a queue on another host only what its disk has is read, whatever its durability.

    A result on one host's disk must not come from messages that a power cut on another one takes back.
    """
    queue: Any = places.open_queue(shard.path)
    now = queue.ends(durable=not is_checked)
    return Ends(queue.id, now.first, now.committed if is_checked else now.end)


_PATIENCE = 10.0


def readable_end(queue: shmq.Queue, *, durable_only: bool) -> int:
    """
    The index behind the last message that may be read.

    Up to there everything is decided. And where the queue syncs, or only what is durable is wanted, it is on the disk:
    a result must not come from messages that a power cut takes back.
    """
    end = queue.committed_index
    if queue.options.durability.kind == "process" and not durable_only:
        return end
    if queue.durable_index < end == queue.next_index:  # else a sync would wait for whoever is in the middle of a put
        with contextlib.suppress(shmq.Closed, shmq.SyncFailed, shmq.SyncPending):
            queue.sync(_PATIENCE)  # followers may be away for long
    return min(end, queue.durable_index)


def _at_time(queue: shmq.Queue, ms: int, end: int) -> int:
    return min(queue.at_ns(ms * 1_000_000), end)


class Range(NamedTuple):
    """What is to be read of each shard."""

    start: dict[Key, int]
    end: dict[Key, int]


def _one(said: Any, key: Key) -> Any:
    """What was said for one shard: for all of them, or for it."""
    if isinstance(said, dict):
        return said.get(key[0], {}).get(str(key[1]))
    return said


def _check_named(option: str, said: Any, shards: list[places.Shard]) -> None:
    """
    What is misspelt or left out would be read from where such queries begin by default, without a word.

    Raises:
        BadOption: a shard is named that is not there, or one that is there is not.
    """
    if not isinstance(said, dict):
        return
    there = [(shard.topic, str(shard.number)) for shard in shards]
    named = [(topic, number) for topic, each in said.items() for number in each]
    labels = ", ".join(f"{topic}/{number}" for topic, number in there)
    for topic, number in named:
        if (topic, number) not in there:
            raise BadOption(f"{option} names shard {topic}/{number}, and this query reads {labels}")
    for topic, number in there:
        if (topic, number) not in named:
            special = "" if "Timestamp" in option else " (-1 is its latest, -2 its earliest)"
            raise BadOption(
                f"{option} says nothing of shard {topic}/{number}, and this query reads {labels}: say where for "
                f"each of them{special}, as for Kafka"
            )


def starts(
    options: SourceOptions, shards: list[places.Shard], there: Mapping[Key, Ends], default: str
) -> dict[Key, int]:
    """
    Where each shard is begun: by time, by offset, or where such queries begin.

    Raises:
        BadOption: a shard is named that is not there, or is not named, or a time that has not come.
        Gone: an offset that is not there.
    """
    _check_named("startingOffsets", options.starting, shards)
    _check_named("startingOffsetsByTimestamp", options.starting_ms, shards)
    found = {}
    for shard in shards:
        key = (shard.topic, shard.number)
        now = there[key]
        ms, said = _one(options.starting_ms, key), _one(options.starting, key)
        if ms is not None:
            index = _at_time(places.open_queue(shard.path), ms, now.end)
            if index >= now.end and options.time_strategy == "error" and now.end > now.first:
                raise BadOption(
                    f"shard {shard.label} has no message of {ms} ms or later yet; "
                    "startingOffsetsByTimestampStrategy=latest begins at its end"
                )
            found[key] = index
        else:
            found[key] = _offset(said if said is not None else default, now)
            if isinstance(said, int) and said >= 0:
                _check_said(options, shard, said, now)
                found[key] = min(max(said, now.first), now.end)
    return found


def _offset(said: str | int, now: Ends) -> int:
    if said in {EARLIEST, -2}:
        return now.first
    if said in {LATEST, -1}:
        return now.end
    return int(said)


def check_start(options: SourceOptions, shard: places.Shard, start: int, now: Ends) -> None:
    """
    What a checkpoint says must lie within its shard, unless what was lost is no matter.

    Raises:
        Gone: it was retired, or never was there.
    """
    if options.fail_on_loss and start < now.first:
        raise shmq.Gone(
            f"shard {shard.label} ({shard.path}) is to be read on from {start}, as the checkpoint has it, and begins "
            f"at {now.first}: the {now.first - start:,} messages before it were retired. Nothing was read. "
            f"failOnDataLoss=false goes on without them. {_KEEP}",
            now.first,
        )
    if options.fail_on_loss and start > now.end:
        raise shmq.Gone(
            f"shard {shard.label} ({shard.path}) was read up to {start}, as the checkpoint has it, and ends at "
            f"{now.end}: it was cut, or is an older copy. Nothing was read. failOnDataLoss=false goes on with what is "
            "put from now on",
            now.first,
        )


_KEEP = (
    "From then on, the option group (a consumer name; in a pipeline, the source's key group) keeps a queue from "
    "retiring what this query has not read"
)


def _check_said(options: SourceOptions, shard: places.Shard, start: int, now: Ends) -> None:
    """What the user says must, too; no checkpoint is there yet, so the user can say another."""
    if options.fail_on_loss and start < now.first:
        raise shmq.Gone(
            f"startingOffsets says {start} for shard {shard.label} ({shard.path}), which begins at {now.first}: the "
            f"{now.first - start:,} messages before it were retired. Nothing was read. Say {now.first}, or -2, which "
            "is the earliest there is; or failOnDataLoss=false, which begins there, too",
            now.first,
        )
    if options.fail_on_loss and start > now.end:
        raise shmq.Gone(
            f"startingOffsets says {start} for shard {shard.label} ({shard.path}), which ends at {now.end}. Nothing "
            f"was read. Say {now.end} at most, or -1, which is the latest; or failOnDataLoss=false, which begins "
            "there, too",
            now.first,
        )


def stops(options: SourceOptions, shards: list[places.Shard], there: Mapping[Key, Ends]) -> dict[Key, int]:
    """
    Where each shard is ended, of a batch query.

    Raises:
        BadOption: a shard is named that is not there, or is not named.
    """
    _check_named("endingOffsets", options.ending, shards)
    _check_named("endingOffsetsByTimestamp", options.ending_ms, shards)
    found = {}
    for shard in shards:
        key = (shard.topic, shard.number)
        now = there[key]
        ms, said = _one(options.ending_ms, key), _one(options.ending, key)
        if ms is not None:
            found[key] = _at_time(places.open_queue(shard.path), ms, now.end)
        else:
            found[key] = now.end if said is None else min(_offset(said, now), now.end)
    return found


def tasks_of(options: SourceOptions, shards: list[places.Shard], wanted: Range) -> list[list[plan.Piece]]:
    """What is between, cut into tasks."""
    stretches: dict[str, list[plan.Stretch]] = {}
    for shard in shards:
        key = (shard.topic, shard.number)
        start, stop = wanted.start.get(key, 0), wanted.end.get(key, 0)
        if start >= stop:
            continue
        queue = places.open_queue(shard.path)
        runs = [plan.Run(extent.first, *extent) for extent in queue.extents(start, stop)]
        host = hosts.addresses(shard.path)[0].location if hosts.is_remote(shard.path) else ""
        stretches.setdefault(host, []).append(
            plan.Stretch(shard.topic, shard.number, shard.path, queue.options.index_spacing, runs, queue.id)
        )
    processors = len(os.sched_getaffinity(0))
    return [  # a task reads from one host, and so waits for one
        task
        for several in stretches.values()
        for task in plan.cut(
            several,
            rows=options.partition_rows,
            nbytes=options.partition_bytes,
            least=-(-options.min_partitions // len(stretches)),
            processors=processors,
        )
    ]
