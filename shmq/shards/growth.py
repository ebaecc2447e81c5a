"""
From 2^n to 2^(n+1) shards, on line.

    1. the new queues are made, with the options of the old ones, and all names in them
    2. the map says that they are opening: from here on, whoever opens the root carries on
    3. each old shard is finished, durably: a put is refused from then on, by handles that were open before
    4. the map says that the old ones are finished, and the new ones open

So no message is put into a child before the last one was put into every parent. Producers that meet the end of step 3
wait for step 4, and take it on themselves where whoever grew it was killed. Consumers begin a child when they have
drained its parent. All is under the root's lock.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import shmq
from shmq.shards import map as maps
from shmq.shards import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.shards.map import Map, Shard

    Opens = Callable[[str], shmq.Queue[Any]]


def begin(found: Map, options: shmq.Options, opens: Opens, *, unsafe_filesystem: bool) -> Map:
    """
    Steps 1 and 2. Under the root's lock.

    Raises:
        ValueError: there are as many shards as there can be.
        ShutDown: the root was finished by its user.
        BadFormat: there is a queue with messages where a shard is to be.
    """
    bit = found.open_bit
    if bit == maps.BIT_MAX:
        raise ValueError(f"{found.path} has {1 << bit} shards already, and there are never more")
    for shard in found.of_bit(bit):
        with opens(shard.path) as queue:
            if queue.finished:
                raise shmq.ShutDown(f"cannot grow {found.path}: it was finished; nothing was changed")
    grown = found.with_states((bit + 1, maps.OPENING))
    for shard in grown.of_bit(bit + 1):
        _remove_empty(found, shard, opens)
        make(shard.path, options, unsafe_filesystem=unsafe_filesystem).close()
    maps.sync_directory(found.path)
    return maps.write(grown)


def _remove_empty(found: Map, shard: Shard, opens: Opens) -> None:
    """What a growth left that was killed before it was begun; its options may have changed since."""
    with contextlib.suppress(shmq.NotFound):
        with opens(shard.path) as queue:
            if len(queue):  # not by its next index: a recovery of an empty one leaves a gap, too
                raise shmq.BadFormat(
                    f"cannot grow {found.path}: there is a queue with messages at {shard.path}; nothing was changed"
                )
        shmq.delete(shard.path)


def carry_on(found: Map, opens: Opens) -> Map:
    """
    Steps 3 and 4, of a growth that was begun. Under the root's lock. It can be repeated.

    Raises:
        SyncFailed, DiskFull, Busy: the disk refused; it can be carried on later, and until then puts wait for it.
    """
    to = found.growing_to
    if to is None:
        return found
    for shard in found.of_bit(to):
        with opens(shard.path) as queue:
            for name, options in {**_others(found, shard, opens), **found.consumers}.items():
                make_consumer(queue, name, options, "earliest")
    for shard in found.of_bit(found.open_bit):
        _finish(shard, opens)
    return maps.write(found.with_states((found.open_bit, maps.FINISHED), (to, maps.OPEN)))


def _others(found: Map, child: Shard, opens: Opens) -> dict[str, dict[str, Any]]:
    """
    Names that the map does not have, of those who read the parent as a queue of its own: Spark's, archives'.

    A follower or a bridge goes with one queue alone, and nobody would ever move its name in another one.
    """
    parent = found.parent(child)
    if parent is None:
        return {}
    of_one = (shmq.replica.PREFIX, shmq.bridge.PREFIX)
    with opens(parent.path) as queue:
        return {
            name: {"ack": "auto", "hold": stats.hold}
            for name, stats in queue.consumers().items()
            if stats.ack == "auto" and not (stats.shared or stats.ephemeral or stats.expires or name.startswith(of_one))
        }


def _finish(shard: Shard, opens: Opens) -> None:
    with opens(shard.path) as queue:
        queue.finish()


def make(path: str, options: shmq.Options | None, *, unsafe_filesystem: bool = False) -> shmq.Queue[Any]:
    """The queue of a shard, which is made if it is not there."""
    queue = shmq.open(path, options=options, trusted=True, unsafe_filesystem=unsafe_filesystem)  # nothing is read here
    if queue.next_index == 0 and not queue.finished:
        queue.producer().close()  # begins the first chunk: to look into a queue without one costs much more
    return queue


def make_consumer(queue: shmq.Queue[Any], name: str, options: dict[str, Any], start: Any) -> None:
    """Have a name there. Who is held has been made."""
    with contextlib.suppress(shmq.Busy):
        queue.consumer(name, start=start, **options).close()


def is_locked_out(path: str, opens: Opens) -> bool:
    """Carry on with a growth, unless somebody else is at it: whether somebody is."""
    with place.locked(path, wait=False) as mine:
        if mine:
            found = maps.read(path)
            if found is not None:
                carry_on(found, opens)
        return not mine
