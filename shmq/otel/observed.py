"""What queues are at, as instruments that OpenTelemetry reads when it likes: the facts of `shmq.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import Observation

import shmq
from shmq.otel.conventions import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.metrics import CallbackOptions, MeterProvider


class _Each(NamedTuple):
    """One instrument: its name, its unit, what it means, and its value."""

    name: str
    unit: str
    means: str
    value: Callable[..., float | None]


def _counted(field: str) -> Callable[[shmq.Stats], float | None]:
    """A count of all processes since the boot, where there are such."""
    return lambda stats: None if stats.counts is None else getattr(stats.counts, field)


_COUNTERS = (  # the first two by the semantic conventions for messaging
    _Each("messaging.client.sent.messages", "{message}", "Messages that were put.", _counted("put_messages")),
    _Each(
        "messaging.client.consumed.messages", "{message}", "Messages that were handed out.", _counted("taken_messages")
    ),
    _Each("shmq.put.payload", "By", "Bytes of the payloads that were put.", _counted("put_bytes")),
    _Each("shmq.acked.messages", "{message}", "Messages that were acknowledged.", _counted("acked")),
    _Each("shmq.nacked.messages", "{message}", "Messages that were given back.", _counted("nacked")),
)
_OF_QUEUE = (
    _Each("shmq.queue.disk", "By", "What the file system counts for its files.", lambda stats: stats.disk_bytes),
    _Each("shmq.queue.participants", "{process}", "Processes that have it open.", lambda stats: stats.participants),
)
_OF_CONSUMER = (
    _Each("shmq.consumer.backlog", "{message}", "Messages that it has not finished.", lambda its: its.lag),
    _Each("shmq.consumer.pending", "{message}", "Of those, handed out.", lambda its: its.pending),
)
_AGE = _Each("shmq.consumer.oldest", "s", "The age of the oldest of them; 0 without.", lambda its: its.oldest or 0)


def observed(*queues: shmq.Queue, meter_provider: MeterProvider | None = None) -> None:
    """
    Have what these queues are at told whenever a reader of OpenTelemetry collects, until they are closed.

    Every figure is of all processes, and is read from the queue's pages at that moment; nothing else is done for it. Do
    it once for a queue: OpenTelemetry takes no instrument back.

    Args:
        queues: open queues; read-only is enough.
        meter_provider: whose instruments they are, instead of the program's.

    Raises:
        TypeError: something else was given.
    """
    for queue in queues:
        if not isinstance(queue, shmq.Queue):
            raise TypeError(f"observed() takes open shmq.Queues, not {type(queue).__name__}")
    meter = metrics.get_meter("shmq", shmq.__version__, meter_provider)
    for each in _COUNTERS:
        meter.create_observable_counter(each.name, [_told(queues, each)], each.unit, each.means)
    for each in _OF_QUEUE:
        meter.create_observable_up_down_counter(each.name, [_told(queues, each)], each.unit, each.means)
    for each in _OF_CONSUMER:
        meter.create_observable_up_down_counter(each.name, [_told_of_names(queues, each)], each.unit, each.means)
    meter.create_observable_gauge(_AGE.name, [_told_of_names(queues, _AGE)], _AGE.unit, _AGE.means)


def _told(queues: tuple[shmq.Queue, ...], each: _Each) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def tell(_: CallbackOptions) -> Iterator[Observation]:
        for stats, about in _stats(queues):
            value = each.value(stats)
            if value is not None:
                yield Observation(value, about)

    return tell


def _told_of_names(queues: tuple[shmq.Queue, ...], each: _Each) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def tell(_: CallbackOptions) -> Iterator[Observation]:
        for stats, about in _stats(queues):
            for name, its in stats.consumers.items():
                yield Observation(each.value(its), {**about, "messaging.consumer.group.name": name})

    return tell


def _stats(queues: tuple[shmq.Queue, ...]) -> Iterator[tuple[shmq.Stats, dict[str, str]]]:
    """Of those that can be read now: of one that is closed, damaged or gone, nothing is told."""
    for queue in queues:
        try:
            stats = queue.stats()
        except (shmq.ShmqError, OSError):
            continue
        yield stats, {"messaging.system": SYSTEM, "messaging.destination.name": queue.path}
