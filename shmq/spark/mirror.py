"""
The queue knows how far Spark is: a consumer name whose head follows the checkpoint.

Spark's checkpoint is the truth, and the name never leads it: its head moves to an offset only after Spark has written
that the batch before it is done. `shmq ls` shows its lag. For a name that the user gave (`group`) retention waits like
for any other; an automatic one holds nothing and releases nothing, since looking at a queue must not change it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import shmq
from shmq.spark import hosts, offsets, places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def hold(path: str, group: str) -> None:
    """Make the name at the first message there is, so that nothing is retired from now on. One that is there stays."""
    queue: Any = places.open_queue(path)
    if hosts.is_remote(path):
        queue.hold(group)
    elif group not in queue.consumers():
        with contextlib.suppress(shmq.Busy, shmq.Closed):  # somebody makes it now; or we may only read
            queue.consumer(group).close()


_followed: dict[tuple[str, str, str], int] = {}
"""How far this process has brought each name, by path, queue and name."""


def follow(done: offsets.Offsets, shards: Iterable[places.Shard]) -> None:
    """Move the name's head in each shard to where Spark is; forward only."""
    for shard in shards:
        place = done.places.get((shard.topic, shard.number))
        if place is None:
            continue
        queue: Any = places.open_queue(shard.path)
        if queue.id != place.queue_id:
            continue  # another queue in its place
        known = shard.path, queue.id, done.group
        if _followed.get(known, -1) >= place.next:
            continue
        hold: Literal["nothing"] | None = "nothing" if offsets.is_automatic(done.group) else None
        if hosts.is_remote(shard.path):
            with contextlib.suppress(shmq.Busy):
                _followed[known] = queue.follow(done.group, place.next, hold=hold)
            continue
        with (
            contextlib.suppress(shmq.Busy, shmq.Closed, IndexError),
            queue.consumer(done.group, start=min(place.next, queue.next_index), hold=hold) as consumer,
        ):
            if consumer.head < place.next:
                consumer.seek(place.next)
            _followed[known] = place.next


def follow_json(stored: Mapping[str, Any]) -> None:
    """
    The same for an offset as Spark's progress shows it; one that is not ours is left alone.

    So are other hosts, where this process, which only listens, does not know how to ask them.
    """
    try:
        done = offsets.Offsets.from_json(stored)
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if done.group:
        for topic in {topic for topic, _ in done.places}:
            if hosts.is_remote(done.root):
                if not hosts.is_known(done.root):
                    return
                scheme = done.root.partition("://")[0]
                with contextlib.suppress(shmq.ShmqError, OSError):
                    follow(done, places.shards_of(f"{scheme}://{topic}"))
                continue
            for path in (done.root, f"{done.root}/{topic}"):
                with contextlib.suppress(shmq.ShmqError, OSError):
                    follow(done, places.shards_of(path, topic))
