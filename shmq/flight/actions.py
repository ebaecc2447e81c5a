"""The actions of the service: what each is asked with, what it needs, and what does it with an open queue."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.flight import names, words

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKENS = 10_000
_EXTENTS = 1 << 20
_PATIENCE = 10.0


class Verb(NamedTuple):
    """An action: what it takes, and what does it; which right it needs, shmq/net/rights.py says."""

    request: type[words.About]
    answer: Callable[[shmq.Queue[Any], Any], Any]
    tried: str
    about: str


def boot() -> str:
    """What tells this boot of this machine from any other."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _ends(queue: shmq.Queue[Any], ask: words.EndsOf) -> words.Ends:
    end = queue.committed_index
    if (ask.durable or queue.options.durability.kind != "process") and not _is_read_only(queue):
        if queue.durable_index < end == queue.next_index:  # else it would wait for whoever is in the middle of a put
            with contextlib.suppress(shmq.Closed, shmq.SyncFailed, shmq.SyncPending):
                queue.sync(_PATIENCE)  # followers may be away for long
        end = min(end, queue.durable_index)
    mark = os.stat(f"{queue.path}/{names.MARK}", follow_symlinks=False)
    return words.Ends(
        id=queue.id,
        first=min(queue.first_index, end),
        next=queue.next_index,
        committed=queue.committed_index,
        durable=queue.durable_index,
        end=end,
        codec=queue.options.codec if isinstance(queue.options.codec, str) else "bytes",
        spacing=queue.options.index_spacing,
        durability=queue.options.durability.kind,
        boot=boot(),
        device=mark.st_dev,
        inode=mark.st_ino,
        place=queue.path if ask.boot == boot() else "",
    )


def _is_read_only(queue: shmq.Queue[Any]) -> bool:
    return not os.access(queue.path, os.W_OK)


def _extents(queue: shmq.Queue[Any], ask: words.Extents) -> list[tuple[int, int, int]]:
    words.check_index("start", ask.start)
    words.check_index("stop", ask.stop)
    found = queue.extents(ask.start, ask.stop)
    if len(found) > _EXTENTS:
        raise shmq.TooMany(f"{len(found):,} chunks, and {_EXTENTS:,} are told at once: ask for less")
    return [(each.first, each.stop, each.nbytes) for each in found]


def _at(queue: shmq.Queue[Any], ask: words.At) -> words.Index:
    return words.Index(queue.at_ns(ask.time_ns))


def _hold(queue: shmq.Queue[Any], ask: words.Hold) -> words.Index:
    if ask.name not in queue.consumers():
        with contextlib.suppress(shmq.Busy):  # somebody makes it now
            queue.consumer(ask.name).close()
    return words.Index(queue.consumers()[ask.name].head)


def _follow(queue: shmq.Queue[Any], ask: words.Follow) -> words.Index:
    words.check_index("to", ask.to)
    to = min(ask.to, queue.next_index)
    with queue.consumer(ask.name, start=to, hold=ask.hold) as consumer:
        if consumer.head < to:
            consumer.seek(to)
        return words.Index(consumer.head)


def _adopt(queue: shmq.Queue[Any], ask: words.Adopt) -> words.Span:
    if len(ask.tokens) > _TOKENS:
        raise shmq.TooMany(f"{len(ask.tokens):,} tokens, and {_TOKENS:,} are adopted at once; nothing was adopted")
    if (ask.producer is None) != (ask.sequence is None):
        raise ValueError("producer and sequence go together; nothing was adopted")
    dedup = None if ask.producer is None or ask.sequence is None else (ask.producer, ask.sequence)
    there = queue.adopt(ask.tokens, dedup=dedup)
    return words.Span(there.start, there.stop)


def _adopted(queue: shmq.Queue[Any], ask: words.Adopted) -> words.Batch | None:
    last = queue.adopted(ask.producer)
    return None if last is None else words.Batch(last[0], last[1].start, last[1].stop)


def _sweep(queue: shmq.Queue[Any], ask: words.Sweep) -> words.Count:
    return words.Count(queue.sweep_staged(owner=ask.owner))


VERBS = {
    "ends": Verb(words.EndsOf, _ends, "look for the ends of", "where a queue begins and ends"),
    "extents": Verb(words.Extents, _extents, "look for the extents of", "where the messages of a range lie"),
    "at": Verb(words.At, _at, "look for a time in", "the index of a time"),
    "hold": Verb(words.Hold, _hold, "hold", "have a consumer name, which retention waits for"),
    "follow": Verb(words.Follow, _follow, "follow", "move that name forward"),
    "adopt": Verb(words.Adopt, _adopt, "adopt into", "append what was staged, all or nothing, once"),
    "adopted": Verb(words.Adopted, _adopted, "look for batches in", "the last batch of a producer"),
    "sweep": Verb(words.Sweep, _sweep, "sweep", "remove what was staged and not adopted"),
}
