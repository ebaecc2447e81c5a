"""
What a client asks of a queue without a consumer: to read from an index on, and figures.

Nothing here is kept between two requests, so a client that comes back goes on wherever it stopped.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

import shmq
from shmq import errors
from shmq.net import packing

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.limits import Limits

_READING = frozenset({"reverse", "skip_corrupt", "filter"})
_BATCH_MAX = 1000


def read(
    queue: shmq.Queue[Any], limits: Limits, start: str | float, stop: float | None, count: int, options: dict[str, Any]
) -> list[Any]:
    """
    Return up to *count* messages from *start* on: as a batch, from where to go on, *stop* as an index, whether that is
    all, and how many were passed over. May block.

    Raises:
        What `shmq.Queue.reader` and what it makes raise, of the first message.
    """
    strange = options.keys() - _READING
    if strange:
        raise packing.BadRequest(f"reading has no option {min(map(str, strange))!r}")
    named = dict(options)
    if named.get("filter") is not None:
        named["filter"] = shmq.Filter.from_stored(named["filter"])
    if isinstance(stop, int) and stop < 0:
        stop += queue.next_index  # what it counts from moves on
    with queue.reader(start, stop, **named) as reader:
        found: list[shmq.Message[Any]] = []
        weight, is_over, upto = 0, True, min(count, limits.batch, _BATCH_MAX)
        try:
            for message in reader:
                found.append(message)
                weight += message.weight
                if len(found) >= upto or weight >= limits.batch_bytes:
                    is_over = False
                    break
        except errors.ShmqError:
            if not found:
                raise
            is_over = False  # the next request meets it again
        skipped = reader.skipped
        place = _behind(queue, start, found, reverse=bool(named.get("reverse")))
        return [packing.packed(found), place, stop, is_over, skipped]


def _behind(queue: shmq.Queue[Any], start: str | float, found: list[shmq.Message[Any]], *, reverse: bool) -> Any:
    if found:
        return found[-1].index if reverse else found[-1].index + 1
    if start == "latest":
        return queue.next_index
    return start


def message(queue: shmq.Queue[Any], index: int) -> list[Any]:
    """Return the message at *index*, as a batch of one."""
    return packing.packed([queue[index]])


def messages(queue: shmq.Queue[Any], start: int | None, stop: int | None, step: int | None) -> list[Any]:
    """Return those of a slice, as a batch."""
    return packing.packed(queue[slice(start, stop, step)])


def _latest(queue: shmq.Queue[Any], key: bytes) -> list[Any] | None:
    found = queue.latest(key)
    return None if found is None else packing.packed([found])


def plain(thing: Any) -> Any:
    """Return *thing* as what msgpack has."""
    return msgspec.to_builtins(thing, builtin_types=(bytes,), enc_hook=_stored)


def _stored(thing: Any) -> Any:
    if isinstance(thing, shmq.Filter):
        return thing.stored()
    if dataclasses.is_dataclass(thing):
        return dataclasses.asdict(thing)  # type: ignore[arg-type]
    if isinstance(thing, range):
        return [thing.start, len(thing)]
    raise TypeError(f"{type(thing).__name__} does not go to a client")


CALLS: dict[str, Callable[..., Any]] = {
    "len": len,
    "first_index": lambda queue: queue.first_index,
    "next_index": lambda queue: queue.next_index,
    "committed_index": lambda queue: queue.committed_index,
    "durable_index": lambda queue: queue.durable_index,
    "finished": lambda queue: queue.finished,
    "at": lambda queue, seconds: queue.at(float(seconds)),
    "at_ns": lambda queue, time_ns: queue.at_ns(time_ns),
    "message": message,
    "messages": messages,
    "latest": _latest,
    "stats": lambda queue: plain(queue.stats()),
    "consumers": lambda queue: plain(queue.consumers()),
    "drop_consumer": lambda queue, name: queue.drop_consumer(name),
    "rename_consumer": lambda queue, old, new: queue.rename_consumer(old, new),
    "adopted": lambda queue, producer: plain(queue.adopted(producer)),
    "sync": lambda queue: queue.sync(),
    "shutdown": lambda queue, immediate: queue.shutdown(immediate),
    "finish": lambda queue: queue.finish(),
}
"""What a client may ask of a queue; by which right: shmq/net/rights.py."""
