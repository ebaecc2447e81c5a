"""Which metrics there are, what each is called and means, and where in a queue's statistics it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

    import shmq
    from shmq import ConsumerStats, GroupStats, Stats

_FIRST_BUCKET_S = 2**10 / 1e9
"""Where the first bucket of ages ends; each further one ends at twice as much."""


class _Each(NamedTuple):
    """One metric: its name behind `shmq_`, what it means, its value, if there is one, and whether it only rises."""

    name: str
    means: str
    value: Callable[..., float | None]
    counts: bool = False


def _of_counts(name: str, means: str, field: str) -> _Each:
    def value(stats: Stats, _: int) -> float | None:
        return None if stats.counts is None else float(getattr(stats.counts, field))

    return _Each(name, f"{means}, since the boot.", value, counts=True)


QUEUE = (
    _Each("messages", "Messages in the queue, without padding.", lambda _, messages: messages),
    _Each("next_index", "The index of the next put.", lambda stats, _: stats.next_index),
    _Each("first_index", "The first index there is.", lambda stats, _: stats.first_index),
    _Each("disk_bytes", "Bytes that the file system counts for all its files.", lambda stats, _: stats.disk_bytes),
    _Each("chunks", "Chunk files.", lambda stats, _: stats.chunks),
    _Each("padded", "Indexes that are padding.", lambda stats, _: stats.padded),
    _Each("participants", "Processes that have it open.", lambda stats, _: stats.participants),
    _Each("max_messages", "The bound of its messages, if it has one.", lambda stats, _: stats.max_messages),
    _Each("max_bytes", "The bound of its bytes, if it has one.", lambda stats, _: stats.max_bytes),
    _Each("shut_down", "1: puts are refused until all have left.", lambda stats, _: stats.shut_down),
    _Each("finished", "1: the stream has ended for good.", lambda stats, _: stats.finished),
    _Each("damaged_consumers", "Names whose checkpoint cannot be read.", lambda stats, _: len(stats.damaged)),
    _Each("fenced", "Commits that came too late, since the boot.", lambda stats, _: stats.fenced, counts=True),
    _of_counts("put_messages", "Messages that were put", "put_messages"),
    _of_counts("put_bytes", "Bytes of their payloads", "put_bytes"),
    _of_counts(
        "taken_messages", "Messages that consumers were handed, again and again if they came back", "taken_messages"
    ),
    _of_counts("acked_messages", "Messages that were acknowledged, where that is explicit", "acked"),
    _of_counts("nacked_messages", "Messages that their holders gave back", "nacked"),
    _of_counts("waits", "Sleeps until something was put", "waits"),
    _of_counts("room_waits", "Sleeps until there was room", "room_waits"),
    _of_counts("syncs", "Group commits", "syncs"),
)
CONSUMER = (
    _Each("consumer_backlog_messages", "Messages that it has not finished, exactly.", lambda stats: stats.lag),
    _Each("consumer_pending_messages", "Of those, handed out.", lambda stats: stats.pending),
    _Each("consumer_oldest_seconds", "The age of the oldest of them; 0 without.", lambda stats: stats.oldest or 0),
    _Each("consumer_head_index", "The next index that it has not finished.", lambda stats: stats.head),
    _Each("consumer_dropped", "Indexes dropped before it came to them.", lambda stats: stats.dropped, counts=True),
)
GROUP = (
    _Each("consumer_parked_messages", "Wait for their time, or a key, beside the window.", lambda group: group.parked),
    _Each("consumer_returned_messages", "Came back, and nobody has them yet.", lambda group: group.returned),
    _Each("consumer_keyed_messages", "Wait in the window for one of their key.", lambda group: group.waiting),
    _Each("consumer_window_messages", "May be in flight.", lambda group: group.window),
    _Each("consumer_window_full", "1: somebody waits since so many are in flight.", lambda group: group.full),
    _Each(
        "consumer_redelivered",
        "Came back from the dead, or by a lease that ended, since the boot.",
        lambda group: group.redelivered,
        counts=True,
    ),
    _Each("consumer_expired", "Were too old, since the boot.", lambda group: group.expired, counts=True),
    _Each("consumer_dead_letters", "Went to the dead letters, since the boot.", lambda group: group.moved, counts=True),
    _Each(
        "consumer_unmoved", "Tries to move one that failed, since the boot.", lambda group: group.unmoved, counts=True
    ),
    _Each("consumer_retired", "Indexes retired unfinished, since the boot.", lambda group: group.retired, counts=True),
)


class Families:
    """The metrics of all queues of one scrape, each with its queue as a label, and of a consumer with its name."""

    def __init__(self) -> None:
        """None has a value yet."""
        self._up = GaugeMetricFamily("shmq_up", "1: the queue can be read.", labels=["queue"])
        self._found = {
            each.name: (CounterMetricFamily if each.counts else GaugeMetricFamily)(
                f"shmq_{each.name}", each.means, labels=labels
            )
            for some, labels in ((QUEUE, ["queue"]), (CONSUMER, ["queue", "consumer"]), (GROUP, ["queue", "consumer"]))
            for each in some
        }
        self._latency = HistogramMetricFamily(
            "shmq_latency_seconds",
            "Of about one message of 64: from its time to when it was handed out for the first time, since the boot.",
            labels=["queue"],
        )

    def down(self, queue: str) -> None:
        """It cannot be read."""
        self._up.add_metric([queue], 0)

    def add(self, queue: str, stats: Stats, messages: int) -> None:
        """It is at that."""
        self._up.add_metric([queue], 1)
        self._fill(QUEUE, [queue], stats, messages)
        if stats.counts is not None:
            self._add_latency(queue, stats.counts)
        for name, consumer in stats.consumers.items():
            self._add_consumer([queue, name], consumer)

    def all(self) -> Iterable[Metric]:
        """Those that have a value."""
        return [family for family in (self._up, *self._found.values(), self._latency) if family.samples]

    def _add_consumer(self, labels: list[str], consumer: ConsumerStats) -> None:
        self._fill(CONSUMER, labels, consumer)
        if consumer.group is not None:
            group: GroupStats = consumer.group
            self._fill(GROUP, labels, group)

    def _fill(self, some: Iterable[_Each], labels: list[str], *given: object) -> None:
        for each in some:
            value = each.value(*given)
            if value is not None:
                self._found[each.name].add_metric(labels, value)

    def _add_latency(self, queue: str, counts: shmq.Counts) -> None:
        total, buckets = 0, []
        for at, count in enumerate(counts.latency):
            total += count
            last = at == len(counts.latency) - 1
            buckets.append(("+Inf" if last else repr(_FIRST_BUCKET_S * 2**at), float(total)))
        self._latency.add_metric([queue], buckets, counts.latency_seconds)
