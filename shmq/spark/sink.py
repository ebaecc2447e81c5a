"""
The sink: `df.write.format("shmq")` and `df.writeStream.format("shmq")`. Rows become messages, exactly once.

Each task stages what it has, on the disk and seen by nobody; the driver's commit joins all of it to the queue by one
adoption, under the name of the query and the number of the batch. A batch that Spark repeats after a crash finds its
name in the queue's ledger and is not adopted again. What tasks staged that never came to a commit is swept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

import shmq
from shmq.spark import hosts, intents, places
from shmq.spark.options import BadOption, SinkOptions, check_topic, local_path, say_foreign, sink_options
from shmq.spark.tombstones import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

_CHUNK_BYTES = 1 << 20
"""Of a queue that is made here. A message that is larger gets a chunk that fits."""
_CLAIM, _CLAIM_BYTES = 4096, 8 << 20
"""Messages that are put straight into a queue appear so many at a time."""
_OWN = {
    "key": (BinaryType, StringType),
    "timestamp": (TimestampType,),
    "timestamp_ns": (LongType,),
    "type": (IntegerType, LongType),
    "partition": (IntegerType, LongType),
}
"""Columns that are fields of a message, whatever its payload is. `headers` too, which has a type of its own."""
_PASSED_OVER = {"topic", "offset", "timestampType"}
"""Kafka's columns that a message gets from the queue it comes to."""


@dataclasses.dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What one task has staged: tokens by topic and shard, in order."""

    app: str
    tokens: dict[Key, str]
    rows: int


# ---------------------------------------------------------------- rows into messages
class Encoder:
    """How rows become payloads. Plain data: it travels to executors."""

    def __init__(self, options: SinkOptions, schema: StructType, *, routed: bool = False) -> None:
        """
        Check the columns.

        Args:
            options: how payloads are made.
            schema: of the rows.
            routed: whether each row says which queue it goes to.

        Raises:
            BadOption: there is no way to make messages of them.
        """
        names = [field.name for field in schema.fields]
        self.kind = options.value_format or ("raw" if "value" in names else "")
        if not self.kind:
            raise BadOption(
                f"the columns {', '.join(names)} have none called value: say value.format=json (or msgpack, arrow), or "
                "select one"
            )
        if self.kind == "raw":
            strange = [name for name in names if name not in {*_OWN, *_PASSED_OVER, "value", "headers"}]
            if strange or "value" not in names:
                raise BadOption(
                    f"without value.format there is a column value, and perhaps {', '.join(_OWN)}, headers; "
                    f"{'there is no value' if 'value' not in names else f'what should become of {strange[0]}?'}"
                )
        self.prefix = "" if self.kind == "raw" else "_"
        self.topic = f"{self.prefix}topic" if routed else None
        own = {self.prefix + name for name in (*_OWN, "headers", *(("topic",) if routed else ()))}
        self.own = {name.removeprefix(self.prefix) for name in names if name in own}
        for field in schema.fields:
            name = field.name.removeprefix(self.prefix) if field.name in own else field.name
            allowed = {**_OWN, "topic": (StringType,)}.get(name) if field.name in own else None
            if allowed and not isinstance(field.dataType, allowed):
                raise BadOption(f"column {field.name!r} is {field.dataType.simpleString()}, and cannot be a {name}")
            if self.kind == "raw" and name == "value" and not isinstance(field.dataType, BinaryType | StringType):
                raise BadOption(f"column value is {field.dataType.simpleString()}: cast it to binary or string")
        self.fields = [name for name in names if name not in own]

    def messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One for each row, or for "arrow" one for all of them, as `put_arrow` takes them."""
        import pyarrow as pa  # noqa: PLC0415

        columns = {"payload": self._payloads(batch), **({} if self.kind == "arrow" else self._rest(batch))}
        return pa.RecordBatch.from_pydict(columns)

    def _payloads(self, batch: pa.RecordBatch) -> pa.Array:
        if self.kind == "raw":
            import pyarrow as pa  # noqa: PLC0415

            return batch["value"].cast(pa.binary()).fill_null(b"")
        from shmq.spark.encoding import encoded  # noqa: PLC0415  # needs pyarrow, which the driver may lack

        return encoded(self.kind, batch.select(self.fields))

    def _rest(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Keys, times, types and headers."""
        import pyarrow as pa  # noqa: PLC0415

        found = {name: batch[self.prefix + name] for name in ("key", "type") if name in self.own}
        if "timestamp_ns" in self.own:
            found["time"] = batch[self.prefix + "timestamp_ns"].view(pa.timestamp("ns", "UTC"))
        elif "timestamp" in self.own:
            found["time"] = batch[self.prefix + "timestamp"]
        gone = batch["value"].is_null() if self.kind == "raw" and batch["value"].null_count else None
        if "headers" in self.own or gone is not None:
            found["headers"] = _packed(batch[self.prefix + "headers"] if "headers" in self.own else None, gone)
        return found


def _packed(headers: pa.Array | None, gone: pa.Array | None) -> pa.Array:
    """As messages have them: a map in msgpack, or nothing. *gone*: which rows have no value, and so are tombstones."""
    import msgspec  # noqa: PLC0415  # few rows have headers
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    pack = msgspec.msgpack.Encoder().encode
    if headers is None or headers.null_count == len(headers):
        if gone is None:
            return pa.nulls(len(headers or ()), pa.binary())
        return pc.if_else(gone, pa.scalar(pack({HEADER: True}), pa.binary()), pa.scalar(None, pa.binary()))
    marks = [False] * len(headers) if gone is None else gone.to_pylist()
    maps = [
        {each["key"]: each["value"] for each in row or ()} | ({HEADER: True} if mark else {})
        for row, mark in zip(headers.to_pylist(), marks, strict=True)
    ]
    return pa.array([pack(each) if each else None for each in maps], pa.binary())


def _claims(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same in pieces that can be put at once."""
    at = 0
    while at < messages.num_rows:
        piece = messages.slice(at, _CLAIM)
        while piece.num_rows > 1 and piece.nbytes > _CLAIM_BYTES:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        at += piece.num_rows


# ---------------------------------------------------------------- which queue, which shard
Key = tuple[str, int]
"""Topic and shard."""


def routed(options: SinkOptions, names: Iterable[str]) -> bool:
    """
    Whether each row says by its topic which queue it goes to.

    Raises:
        BadOption: it is not clear.
    """
    if hosts.is_remote(options.queue):
        return False
    path = os.path.abspath(options.queue)
    there = bool(_shards_at(path))
    if options.topic is not None:
        if there:
            raise BadOption(f"topic={options.topic}: {path} is a queue itself; topics are queues in a directory")
        return False
    column = "topic" if options.value_format in {None, "raw"} else "_topic"
    if column not in names or there:
        return False
    if os.path.isdir(path):
        return True
    raise BadOption(
        f"there is nothing at {path}, and rows have a column {column}: make that directory (mkdir), and each row goes "
        "to the queue in it that its topic names; or leave the column out, and all go to one queue"
    )


class Targets:
    """
    Where rows may go, as it was planned: one queue, or the queues of a directory, each by its name.

    Plain data: it travels to executors.
    """

    def __init__(self, options: SinkOptions, names: Iterable[str]) -> None:
        """
        On the driver.

        Args:
            options: the queue, or the directory, and perhaps the topic.
            names: of the columns.

        Raises:
            BadOption: it is not clear which is meant.
        """
        self.origin = places.Origin.here()
        path = os.path.abspath(options.queue)
        self.root = path if routed(options, names) else None
        self.shards: dict[str, list[places.Shard]] = {}
        if hosts.is_remote(options.queue):
            places.know(options)
            self.add("", _on_hosts(options.queue))
        elif options.topic is not None:
            os.makedirs(path, exist_ok=True)
            self.add(options.topic, _made(f"{path}/{options.topic}"))
        elif self.root is None:
            self.add("", _made(path))
        else:
            for name in sorted(os.listdir(path)):
                self.add(name, _shards_at(f"{path}/{name}"))
        self.ids = {shard.path: _id_of(shard) for each in self.shards.values() for shard in each}

    def add(self, topic: str, shards: list[places.Shard]) -> None:
        """Know that queue, if it is one."""
        if shards:
            self.shards[topic] = shards

    def of(self, topic: str) -> list[places.Shard]:
        """
        The shards of a topic; of one that is not there yet, the one that will be.

        Raises:
            BadOption: there cannot be a queue of that name.
        """
        if topic not in self.shards:
            self.shards[topic] = _shards_at(f"{self.root}/{check_topic(topic)}") or [
                places.Shard(topic, 0, f"{self.root}/{topic}")
            ]
        return self.shards[topic]

    def open(self, shard: places.Shard) -> shmq.Queue:
        """
        To write to it, on an executor.

        Raises:
            NotFound, Mismatch: this host has no such queue, or another one in its place.
        """
        doing = f"write to {shard.label}"
        if shard.path in self.ids:
            queue = self.origin.open(doing, shard.path, self.ids[shard.path], places.open_to_write)
            try:
                places.check_open(shard, queue, "write to")
            except shmq.Mismatch:
                queue.close()
                raise
            return queue
        if socket.gethostname() != self.origin.host:
            raise shmq.NotFound(
                f"cannot {doing} on host {socket.gethostname()}: there was no such queue on host {self.origin.host} "
                "when this was planned, and only there it is made. Make it first: shmq create"
            )
        _made(shard.path)
        return places.open_to_write(shard.path)


def _on_hosts(word: str) -> list[places.Shard]:
    """
    All shards of all hosts, with numbers over them all: which one a key goes to depends on their order.

    Raises:
        NotFound: one is not there. A queue is made on its own host alone.
    """
    there = [shard for each in word.split(",") for shard in places.shards_of(each.strip())]
    return [places.Shard("", number, shard.path) for number, shard in enumerate(there)]


def _shards_at(path: str) -> list[places.Shard]:
    try:
        return places.to_put(path)
    except shmq.NotFound:
        return []


def _made(path: str) -> list[places.Shard]:
    """The shards of the queue at *path*, which is made if it is not there."""
    if not _shards_at(path):
        # Each batch is adopted in chunks of its own: large ones would take room for little.
        shmq.open(path, options=shmq.Options(chunk_bytes=_CHUNK_BYTES)).close()
    return places.to_put(path)


def by_topic(batch: pa.RecordBatch, column: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """
    The rows of each topic, in their order.

    Raises:
        ValueError: a row has none.
    """
    if column is None:
        yield "", batch
        return
    import pyarrow.compute as pc  # noqa: PLC0415

    topics = batch[column]
    if topics.null_count:
        raise ValueError(f"a row has no {column} (null): filter such rows, or say option topic, for all of them")
    for topic in sorted(pc.unique(topics).to_pylist()):
        yield topic, batch.filter(pc.equal(topics, topic))


def shard_numbers(batch: pa.RecordBatch, encoder: Encoder, count: int, default: int) -> list[int] | None:
    """
    The shard of each row: its partition, or by its key; None when all go to *default*.

    A row must go to the same shard when its batch is repeated, so it never depends on the task that has it.
    """
    import pyarrow as pa  # noqa: PLC0415

    if count == 1:
        return None
    if "partition" in encoder.own:
        return [int(number or 0) % count for number in batch[encoder.prefix + "partition"].to_pylist()]
    if "key" in encoder.own:
        keys = batch[encoder.prefix + "key"].cast(pa.binary()).to_pylist()
        return [shmq.shards.hash_of(key) % count if key else default % count for key in keys]
    return None


def parts(batch: pa.RecordBatch, encoder: Encoder, count: int, default: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each shard, in their order."""
    import pyarrow as pa  # noqa: PLC0415

    numbers = shard_numbers(batch, encoder, count, default)
    if numbers is None:
        yield default % count, batch
        return
    by_shard: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        by_shard.setdefault(number, []).append(row)
    for number, rows in sorted(by_shard.items()):
        yield number, batch.take(pa.array(rows, pa.int64()))


# ---------------------------------------------------------------- writing, on the executors
class Writer:
    """What both writers do. Plain data: it travels to executors."""

    def __init__(self, options: SinkOptions, encoder: Encoder, targets: Targets, app: str) -> None:
        """On the driver. *app*: who writes; empty if only the query will tell."""
        self.options = options
        self.encoder = encoder
        self.targets = targets
        self.app = app

    def _parts(self, batch: pa.RecordBatch, default: int) -> Iterator[tuple[Key, places.Shard, pa.RecordBatch]]:
        """The rows of each queue and shard, in their order."""
        for topic, rows in by_topic(batch, self.encoder.topic):
            name = topic if self.encoder.topic else next(iter(self.targets.shards))
            shards = self.targets.of(name)
            for number, part in parts(rows, self.encoder, len(shards), default):
                yield (name, shards[number].number), shards[number], part

    def stage(self, batches: Iterable[pa.RecordBatch], app: str, default: int) -> Staged:
        """Stage everything, on the host of each queue, and hand it over to whoever commits."""
        places.know(self.options)
        rows = 0
        with contextlib.ExitStack() as stack:
            open_sets: dict[Key, shmq.Staged] = {}
            for batch in batches:
                rows += batch.num_rows
                for key, shard, part in self._parts(batch, default):
                    if key not in open_sets:
                        queue = stack.enter_context(self.targets.open(shard))
                        _check_codec(queue)
                        staged: Any = stack.enter_context(queue.stage())
                        open_sets[key] = staged.for_owner(app) if hosts.is_remote(shard.path) else staged
                    open_sets[key].put_arrow(self.encoder.messages(part))
            tokens = {key: staged.hand_over(owner=app) for key, staged in open_sets.items()}
        return Staged(app, tokens, rows)

    def straight(self, batches: Iterable[pa.RecordBatch], default: int) -> Staged:
        """Put everything at once, for delivery=at_least_once."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            for _, shard, part in self._parts(batch, default):
                with self.targets.open(shard) as queue, queue.producer() as to:
                    _check_codec(queue)
                    for messages in _claims(self.encoder.messages(part)):
                        to.put_arrow(messages)
        return Staged("", {}, rows)

    def adopt(self, messages: Iterable[Any], sequence: int) -> None:
        """
        Join what the tasks have staged to the queue; nothing if this batch was joined before.

        Shards are joined one after the other. Killed in between, the repeated batch finds those that were joined in
        their ledgers, and joins the others.
        """
        places.know(self.options)
        there = [each for each in messages if each is not None]
        apps = {each.app for each in there if each.app} or {self.app}
        if len(apps) > 1:
            raise RuntimeError(f"tasks of different queries, {sorted(apps)}, come to one commit; nothing was adopted")
        app = apps.pop()
        touched = self._touched(there)
        _check_same_shards(there, {key for key, _ in touched}, self.options.queue)
        staged = {shard.path: [each.tokens[key] for each in there if key in each.tokens] for key, shard in touched}
        known = {shard.path: shard for _, shard in touched}
        if self.options.intents is not None and any(staged.values()):
            mine = {path: tokens for path, tokens in staged.items() if tokens}
            staged = {**{path: [] for path in staged}, **intents.agreed(self.options.intents, app, sequence, mine)}
        for path, tokens in staged.items():
            shard = known.get(path) or places.Shard("", 0, path)  # an intent may name one of before
            with places.open_to_write(path) as queue:
                before = _last_of(shard, queue, app)
                if tokens and (before is None or before < sequence):
                    places.check_open(shard, queue, "join what was staged to")
                    queue.adopt(tokens, dedup=(app, sequence))
                elif tokens and before is not None:
                    say_passed_over(shard.label if shard.topic else path, app, sequence, before)
                _drop(queue, app)  # of attempts whose message was lost, and of batches that were there before
            for _, parent in shard.before:
                _drop(places.open_queue(parent), app)

    def _touched(self, messages: Iterable[Any]) -> list[tuple[Key, places.Shard]]:
        """Every queue and shard that was there, or that these tasks have made."""
        for topic in {topic for each in messages for topic, _ in each.tokens}:
            self.targets.of(topic)
        return [((topic, each.number), each) for topic, all_ in self.targets.shards.items() for each in all_]

    def forget(self, messages: Iterable[Any]) -> None:
        """Sweep what tasks have staged for a batch that is not committed; what an intent may name stays, and waits."""
        if self.options.intents is not None:
            return
        places.know(self.options)
        there = [each for each in messages if each is not None]
        apps = {each.app for each in there if each.app} or {self.app}
        for _, shard in self._touched(there):
            with contextlib.suppress(shmq.ShmqError), places.open_to_write(shard.path) as queue:
                for app in apps:
                    _drop(queue, app)


def _check_same_shards(there: list[Any], known: set[Key], path: str) -> None:
    """
    What tasks have staged for shards that a growth has finished meanwhile is for nobody.

    Raises:
        Mismatch: so it is; nothing was adopted.
    """
    if any(key not in known for each in there for key in each.tokens):
        raise shmq.Mismatch(
            f"cannot write to {path}: its shards have grown since the tasks wrote; nothing was put there. Start the "
            "query again, and the batch goes to the shards that are open now"
        )


def _last_of(shard: places.Shard, queue: shmq.Queue, app: str) -> int | None:
    """
    The last batch of *app* that the shard has; or that one had before it in which its keys lay.

    A batch that was joined in part when the root grew: a row that would come to this shard now came to that one.
    """
    if not app:
        return None
    known = [queue.adopted(app)]
    for _, path in shard.before:
        known.append(places.open_queue(path).adopted(app))
    return max((each[0] for each in known if each is not None), default=None)


def say_passed_over(where: str, app: str, sequence: int, last: int) -> None:
    """Of a repeated batch that is as it should be; where it was none, somebody will miss its rows."""
    logging.getLogger("shmq").warning(
        "%s has batch %d of %r already (the last is %d): it is passed over. That is right where a batch is repeated; "
        "new rows need a larger txnVersion, and a new checkpoint another txnAppId",
        where,
        sequence,
        app,
        last,
    )


def _id_of(shard: places.Shard) -> str:
    if hosts.is_remote(shard.path):
        return places.open_queue(shard.path).id
    with shmq.open(shard.path, create=False, read_only=True, trusted=True) as queue:
        return queue.id


def _drop(queue: shmq.Queue, app: str) -> None:
    if app:
        queue.sweep_staged(owner=app)


def _check_codec(queue: shmq.Queue) -> None:
    """Our payloads are bytes already; a queue with a codec would encode them once more."""
    if queue.options.codec != "bytes":
        raise BadOption(
            f"{queue.path} has codec {queue.options.codec!r}, and Spark writes bytes: give the sink a queue made with "
            "codec 'bytes' (the default); value.format=json puts JSON into it"
        )


class BatchWriter(Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """One `df.write`: all rows appear at once, or none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor, one task."""
        if self.options.delivery == "at_least_once":
            return self.straight(iterator, 0)
        return self.stage(iterator, self.app, 0)

    def commit(self, messages: list[Any]) -> None:
        """On the driver, when all tasks are done."""
        self.adopt(messages, self.options.version or 0)

    def abort(self, messages: list[Any]) -> None:
        """On the driver, when one has failed for good."""
        self.forget(messages)


class StreamWriter(Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """One `df.writeStream`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor, one task of one batch."""
        from pyspark import TaskContext  # noqa: PLC0415  # there is one only here

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        default = int(batch or 0)  # without keys, a batch goes to one shard, and the next one to the next
        if self.options.delivery == "at_least_once":
            return self.straight(iterator, default)
        app = self.app or query
        if not app:
            raise RuntimeError(
                "Spark does not say which query this is, so the sink cannot know a batch again: give it a name by "
                "option txnAppId, or say delivery=at_least_once"
            )
        return self.stage(iterator, app, default)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """On the driver, in a process of its own: with this, the batch is in the queue."""
        self.adopt(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002
        """On the driver, when a task has failed for good."""
        self.forget(messages)


# ---------------------------------------------------------------- the doors
def _writer(kind: Callable[..., Any], options: SinkOptions, schema: StructType, app: str) -> Any:
    Encoder(options, schema)  # before anything is made
    targets = Targets(options, [field.name for field in schema.fields])
    encoder = Encoder(options, schema, routed=targets.root is not None)
    return kind(options, encoder, targets, options.app or app)


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """
    For `df.write`.

    Raises:
        BadOption: it cannot be written.
    """
    if overwrite:
        raise BadOption('a queue is not overwritten: say .mode("append"), or delete the queue first')
    options = sink_options(given)
    if (options.app is None) != (options.version is None):
        raise BadOption(
            "txnAppId and txnVersion go together in a batch write: of one application each write has a larger version, "
            "and one that is not larger is passed over, as in Delta. Without both, each write is appended"
        )
    if options.version is not None and options.delivery != "exactly_once":
        raise BadOption(
            "txnVersion needs delivery=exactly_once: what is put straight into a queue cannot be told again"
        )
    say_foreign("sink", options.foreign)
    return _writer(BatchWriter, options, schema, f"spark-batch-{uuid.uuid4().hex}")  # type: ignore[no-any-return]


def stream_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """
    For `df.writeStream`.

    Raises:
        BadOption: it cannot be written.
    """
    if overwrite:
        raise BadOption(
            'outputMode("complete") would write the whole result again with every batch, and a queue only grows: use '
            '"append" (with a watermark), or foreachBatch, as for "update" (docs/spark/writing.md)'
        )
    options = sink_options(given)
    if options.version is not None:
        raise BadOption("txnVersion is for batch writes: a stream's batches have numbers of their own")
    if _is_first_batch(given):
        say_foreign("sink", options.foreign)
    return _writer(StreamWriter, options, schema, "")  # type: ignore[no-any-return]


def _is_first_batch(given: Mapping[str, str]) -> bool:
    """Spark makes a writer for each batch; what is to be said once is said with the first."""
    checkpoint = local_path(given.get("checkpointLocation", ""))
    return not (os.path.isdir(f"{checkpoint}/commits") and os.listdir(f"{checkpoint}/commits"))
