"""
Kafka, by librdkafka.

Out: a batch is a transaction of a producer that is named for the queue and the topic, so a bridge that was here before
is fenced off, and readers of committed messages see a batch whole or not. The last ones say which index they have. In:
each partition is a source of its own, and the topic's id is part of its name.
"""

from __future__ import annotations

import collections
import contextlib
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from shmq.bridge import carried, ends
from shmq.errors import Mismatch, NotFound, TooLarge

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from shmq.bridge.carried import Carried
    from shmq.bridge.urls import Url

_OURS = "shmq-"
_LOCAL: dict[str, Any] = {**vars(KafkaError)}
"""Error codes of the library's own, which it names with an underscore."""
_LOOK_BACK = 64
"""Offsets before the end among which the last message is looked for first: those of transactions' ends count, too."""
_FINAL = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        _LOCAL["_AUTHENTICATION"],
    }
)
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, _LOCAL["_UNKNOWN_TOPIC"]})
_NO_IDS = frozenset({KafkaError.UNSUPPORTED_VERSION, _LOCAL["_UNSUPPORTED_FEATURE"]})
_END_OF_PARTITION, _NOBODY = _LOCAL["_PARTITION_EOF"], _LOCAL["_ALL_BROKERS_DOWN"]


class _Cluster:
    """How to reach it, and one topic."""

    def __init__(self, url: Url) -> None:
        self.shown = url.shown
        self.topic = url.name
        self.settings: dict[str, Any] = {
            "client.id": "shmq bridge",
            "log_level": 0,
            **url.options,
            "bootstrap.servers": url.server,
            "error_cb": self._hear,
        }
        self.problem: KafkaError | None = None

    def _hear(self, problem: KafkaError) -> None:
        """What librdkafka tries again for ever, untold."""
        if problem.code() == _NOBODY or problem.code() in _FINAL:
            self.problem = problem

    def made(self, kind: Callable[[dict[str, Any]], Any], **settings: Any) -> Any:
        """
        A producer, say.

        Raises:
            ValueError: the URL has an option that librdkafka does not know.
        """
        try:
            return kind({**self.settings, **{name.replace("_", "."): value for name, value in settings.items()}})
        except KafkaException as problem:
            raise ValueError(f"{self.shown}: {problem.args[0].str()}") from None

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """What the cluster or the way to it has against it, in our words."""
        try:
            yield
        except KafkaException as problem:
            raise self.answered(problem.args[0]) from None
        except TimeoutError:
            raise ends.Unreachable("it does not answer") from None
        self.check()

    def check(self) -> None:
        """
        Raises:
            Unreachable, Refused: librdkafka has told that something is wrong.
        """
        if self.problem is not None:
            raise self.answered(self.problem)

    def answered(self, error: KafkaError) -> Exception:
        """What an error means for a bridge."""
        if error.code() in _FINAL:
            return ends.Refused(f"{self.shown} refused: {error.str()}")
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # of the broker, which allows less than this client
            return TooLarge(f"a message is larger than {self.shown} takes; none of its batch is there")
        if error.code() in _NO_TOPIC:
            return NotFound(f"there is no topic at {self.shown}")
        return ends.Unreachable(error.str())

    def partitions(self, client: Any) -> list[int]:
        """Those of the topic."""
        found = client.list_topics(self.topic, timeout=ends.ANSWER_WITHIN).topics[self.topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def create(self) -> None:
        """Make the topic, with as many partitions as the cluster's own default says."""
        made = self.made(AdminClient).create_topics([NewTopic(self.topic)], request_timeout=ends.ANSWER_WITHIN)
        made[self.topic].result()

    def topic_id(self) -> str:
        """What tells it from a topic that is made anew; "" where the cluster is too old to say (before 2.8)."""
        admin = self.made(AdminClient)
        asked = admin.describe_topics(confluent_kafka.TopicCollection([self.topic]), request_timeout=ends.ANSWER_WITHIN)
        try:
            return str(asked[self.topic].result(ends.ANSWER_WITHIN).topic_id)
        except KafkaException as problem:
            if problem.args[0].code() in _NO_IDS:
                return ""
            raise

    def consumer(self, group: str) -> Any:
        """One that is told where to read, and reads what was committed."""
        return self.made(
            confluent_kafka.Consumer,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            fetch_wait_max_ms=100,  # within which whatever else is asked waits
        )


# ---------------------------------------------------------------- out
class Target(ends.Target):
    """A topic that has the messages of one queue, and no others."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits here
        """See `urls.target`."""
        self._cluster = _Cluster(url)
        self._queue_id = queue_id
        self._producer: Any = None

    def place(self) -> int | None:
        """See `ends.Target`. A topic that is not there is made."""
        cluster = self._cluster
        with cluster.asking():
            self._producer = cluster.made(
                confluent_kafka.Producer,
                transactional_id=f"shmq-{self._queue_id}-{cluster.topic}",
                partitioner="murmur2_random",  # as the clients in Java
                message_timeout_ms=int(ends.ANSWER_WITHIN * 1000),
            )
            try:
                partitions = cluster.partitions(self._producer)
            except KafkaException as problem:
                if problem.args[0].code() not in _NO_TOPIC:
                    raise
                cluster.create()
                partitions = cluster.partitions(self._producer)
            self._producer.init_transactions(ends.ANSWER_WITHIN)  # of a bridge before us nothing is under way any more
            return self._last(partitions)

    def _last(self, partitions: list[int]) -> int | None:
        consumer = self._cluster.consumer(f"shmq-{self._queue_id}")
        try:
            topic = self._cluster.topic
            marks = {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=ends.ANSWER_WITHIN)
                for each in partitions
            }
            found = [self._last_of(consumer, each, *marks[each]) for each in partitions]
        finally:
            consumer.close()
        places = [self._index_of(last) for last in found if last is not None]
        had_some = any(end for _, end in marks.values())
        return max(places) if places else ends.UNKNOWN if had_some else None

    def _last_of(self, consumer: Any, partition: int, first: int, end: int) -> Any:
        back = _LOOK_BACK
        while first < end:
            start = max(first, end - back)
            consumer.assign([TopicPartition(self._cluster.topic, partition, start)])
            last, until = None, time.monotonic() + ends.ANSWER_WITHIN
            while (message := consumer.poll(ends.ANSWER_WITHIN)) is not None and time.monotonic() < until:
                if message.error() is None:
                    last = message
                elif message.error().code() == _END_OF_PARTITION:
                    break
                else:
                    raise KafkaException(message.error())
            else:
                raise TimeoutError
            if last is not None or start == first:
                return last
            back *= 16
        return None

    def _index_of(self, message: Any) -> int:
        headers = dict(message.headers() or [])
        shown = self._cluster.shown
        if headers.get(f"{_OURS}source") != self._queue_id.encode():
            raise Mismatch(
                f"the last message in partition {message.partition()} of {shown} is not of this queue, "
                f"{self._queue_id}; give each queue a topic of its own"
            )
        return carried.number(headers.get(f"{_OURS}index"), f"message {message.offset()} of {shown}")

    def send(self, batch: Sequence[ends.Outgoing]) -> None:
        """See `ends.Target`."""
        producer, done = self._producer, 0
        with self._cluster.asking():
            producer.begin_transaction()
            try:
                for each in batch:
                    self._produce(each)
                    done += 1
                producer.commit_transaction(ends.ANSWER_WITHIN)
            except (KafkaException, BufferError, TooLarge) as problem:
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(ends.ANSWER_WITHIN)
                if isinstance(problem, TooLarge) and done:
                    self.send(batch[:done])
                raise

    def _produce(self, each: ends.Outgoing) -> None:
        at, message = each
        try:
            self._producer.produce(
                self._cluster.topic,
                message.payload,
                key=message.key,
                timestamp=max((message.time_ns or 0) // 1_000_000, 0),
                headers=[*_headers(message), (f"{_OURS}index", str(at).encode())],
            )
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            raise ends.too_large(each, self._cluster.shown) from None
        self._producer.poll(0)

    def idle(self) -> None:
        """See `ends.Target`."""
        self._producer.poll(0)
        self._cluster.check()

    def close(self) -> None:
        """See `ends.Target`."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _headers(message: Carried) -> list[tuple[str, bytes]]:
    plain, packed = carried.apart(message.headers, _fits)
    headers = [(name, text.encode()) for name, text in plain.items()]
    if message.source is not None:
        headers.append((f"{_OURS}source", message.source.encode()))
    if message.type:
        headers.append((f"{_OURS}type", str(message.type).encode()))
    if message.time_ns is not None:
        headers.append((f"{_OURS}time", str(message.time_ns).encode()))
    if packed is not None:
        headers.append((f"{_OURS}headers", packed))
    return headers


def _fits(name: str, text: str) -> bool:
    return bool(name) and "\0" not in name and not name.startswith(_OURS) and carried.is_utf8(name, text)


# ---------------------------------------------------------------- in
class Source(ends.Source):
    """A topic: of each partition what the queue has not."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits for long
        """See `urls.source`."""
        self._cluster = _Cluster(url)
        self._group = f"shmq-{queue_id}"
        self._consumer: Any = None
        self._producers: dict[int, str] = {}
        self._ready: collections.deque[ends.Batch] = collections.deque()
        self._at_end: set[int] = set()

    def begin(self, known: Callable[[str], int | None]) -> None:
        """See `ends.Source`."""
        cluster = self._cluster
        with cluster.asking():
            self._consumer = cluster.consumer(self._group)
            partitions = cluster.partitions(self._consumer)
            topic_id = cluster.topic_id()
            self._producers = {each: f"kafka {cluster.topic} {topic_id} {each}" for each in partitions}
            self._consumer.assign([self._start(each, known(name)) for each, name in self._producers.items()])

    def _start(self, partition: int, number: int | None) -> TopicPartition:
        place = TopicPartition(self._cluster.topic, partition)
        first, end = self._consumer.get_watermark_offsets(place, timeout=ends.ANSWER_WITHIN)
        if number is not None and number >= end:
            raise Mismatch(
                f"partition {partition} of {self._cluster.shown} ends at {end}, and the queue has had {number}: "
                "it has lost what it had, and what comes now would have the numbers of what is known already"
            )
        place.offset = max(first, 0 if number is None else number + 1)
        return place

    def read(self, timeout: float) -> ends.Batch | None:
        """See `ends.Source`."""
        if not self._ready:
            self._fill(timeout)
        if self._ready:
            return self._ready.popleft()
        return None if len(self._at_end) == len(self._producers) else ends.Batch("", [])

    def _fill(self, timeout: float) -> None:
        found: dict[int, list[Any]] = {}
        with self._cluster.asking():
            for message in self._consumer.consume(ends.BATCH, timeout):
                error = message.error()
                if error is None:
                    found.setdefault(message.partition(), []).append(message)
                    self._at_end.discard(message.partition())
                elif error.code() == _END_OF_PARTITION:
                    self._at_end.add(message.partition())
                else:
                    raise KafkaException(error)
        for partition, messages in found.items():
            numbered = [ends.Numbered(each.offset(), self._message(each)) for each in messages]
            behind = TopicPartition(self._cluster.topic, partition, messages[-1].offset() + 1)
            self._ready.append(ends.Batch(self._producers[partition], numbered, receipt=behind))

    def _message(self, message: Any) -> Carried:
        where = f"message {message.offset()} in partition {message.partition()} of {self._cluster.shown}"
        headers = dict(message.headers() or [])
        plain = {
            name: carried.text_or_bytes(value or b"") for name, value in headers.items() if not name.startswith(_OURS)
        }
        kind, moment = message.timestamp()
        time_ns = moment * 1_000_000 if kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE else None
        if f"{_OURS}time" in headers:
            time_ns = carried.number(headers[f"{_OURS}time"], where)
        source = headers.get(f"{_OURS}source")
        return carried.Carried(
            message.value() or b"",
            message.key(),
            carried.number(headers.get(f"{_OURS}type"), where),
            time_ns,
            carried.together(plain, headers.get(f"{_OURS}headers"), where),
            None if source is None else source.decode(errors="replace"),
        )

    def confirm(self, batch: ends.Batch) -> None:
        """See `ends.Source`. For people: a group's lag shows how far the queue is."""
        if batch.receipt is not None:
            with self._cluster.asking():
                self._consumer.commit(offsets=[batch.receipt], asynchronous=True)

    def close(self) -> None:
        """See `ends.Source`."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
