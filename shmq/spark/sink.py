"""
The sink: `df.write.format("shmq")` and `df.writeStream.format("shmq")`. Rows become messages, exactly once.

Each task stages what it has, on the disk and seen by nobody; the driver's commit joins all of it to the queue by one
adoption, under the name of the query and the number of the batch. A batch that Spark repeats after a crash finds its
name in the queue's ledger and is not adopted again. What tasks staged that never came to a commit is swept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

import shmq
from shmq.spark import places
from shmq.spark.options import BadOption, SinkOptions, sink_options

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
    """What one task has staged: tokens by shard, in order."""

    app: str
    tokens: dict[int, str]
    rows: int


# ---------------------------------------------------------------- rows into messages
class Encoder:
    """How rows become payloads. Plain data: it travels to executors."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """
        Check the columns.

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
        own = {*_OWN, "headers"} if self.kind == "raw" else {"_" + name for name in (*_OWN, "headers")}
        self.prefix = "" if self.kind == "raw" else "_"
        self.own = {name.removeprefix(self.prefix) for name in names if name in own}
        for field in schema.fields:
            name = field.name.removeprefix(self.prefix) if field.name in own else field.name
            allowed = _OWN.get(name) if field.name in own else None
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
            values = batch["value"]
            if values.null_count:
                raise ValueError("a row has no value (null), and a message is bytes: filter them, or coalesce to ''")
            return values
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
        if "headers" in self.own:
            found["headers"] = _packed(batch[self.prefix + "headers"])
        return found


def _packed(headers: pa.Array) -> pa.Array:
    """As messages have them: a map in msgpack, or nothing."""
    import pyarrow as pa  # noqa: PLC0415

    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    import msgspec  # noqa: PLC0415

    pack = msgspec.msgpack.Encoder().encode
    return pa.array(
        [pack({each["key"]: each["value"] for each in row}) if row else None for row in headers.to_pylist()],
        pa.binary(),
    )


def _claims(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same in pieces that can be put at once."""
    at = 0
    while at < messages.num_rows:
        piece = messages.slice(at, _CLAIM)
        while piece.num_rows > 1 and piece.nbytes > _CLAIM_BYTES:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        at += piece.num_rows


# ---------------------------------------------------------------- which shard
def shards(options: SinkOptions) -> list[places.Shard]:
    """Where rows may go; a queue that is not there yet is made."""
    path = os.path.abspath(options.queue)
    try:
        return places.shards_of(path)
    except shmq.NotFound:
        # Each batch is adopted in chunks of its own: large ones would take room for little.
        shmq.open(path, options=shmq.Options(chunk_bytes=_CHUNK_BYTES)).close()
        return places.shards_of(path)


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
        return [_hash(key) % count if key else default % count for key in keys]
    return None


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


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

    def __init__(self, options: SinkOptions, encoder: Encoder, targets: list[places.Shard], app: str) -> None:
        """On the driver. *app*: who writes; empty if only the query will tell."""
        self.options = options
        self.encoder = encoder
        self.targets = targets
        self.app = app
        self.ids = [_id_of(target) for target in targets]
        self.origin = places.Origin.here()

    def stage(self, batches: Iterable[pa.RecordBatch], app: str, default: int) -> Staged:
        """Stage everything, and hand it over to whoever commits."""
        rows = 0
        with contextlib.ExitStack() as stack:
            open_sets: dict[int, shmq.Staged] = {}
            for batch in batches:
                rows += batch.num_rows
                for number, part in parts(batch, self.encoder, len(self.targets), default):
                    if number not in open_sets:
                        queue = stack.enter_context(self._target(number))
                        _check_codec(queue)
                        open_sets[number] = stack.enter_context(queue.stage())
                    open_sets[number].put_arrow(self.encoder.messages(part))
            tokens = {number: staged.hand_over(owner=app) for number, staged in open_sets.items()}
        return Staged(app, tokens, rows)

    def _target(self, number: int) -> shmq.Queue:
        """A shard that rows go to, on an executor."""
        target = self.targets[number]
        return self.origin.open(f"write to {target.label}", target.path, self.ids[number], places.open_to_write)

    def straight(self, batches: Iterable[pa.RecordBatch], default: int) -> Staged:
        """Put everything at once, for delivery=at_least_once."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            for number, part in parts(batch, self.encoder, len(self.targets), default):
                with self._target(number) as queue, queue.producer() as to:
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
        there = [each for each in messages if each is not None]
        apps = {each.app for each in there if each.app} or {self.app}
        if len(apps) > 1:
            raise RuntimeError(f"tasks of different queries, {sorted(apps)}, come to one commit; nothing was adopted")
        app = apps.pop()
        for number, shard in enumerate(self.targets):
            tokens = [each.tokens[number] for each in there if number in each.tokens]
            with shmq.open(shard.path, create=False, trusted=True) as queue:
                before = queue.adopted(app) if app else None
                if tokens and (before is None or before[0] < sequence):
                    queue.adopt(tokens, dedup=(app, sequence))
                elif tokens and before is not None:
                    say_passed_over(shard.label, app, sequence, before[0])
                _drop(queue, app)  # of attempts whose message was lost, and of batches that were there before

    def forget(self, messages: Iterable[Any]) -> None:
        """Sweep what tasks have staged for a batch that is not committed."""
        apps = {each.app for each in messages if each is not None and each.app} or {self.app}
        for shard in self.targets:
            with contextlib.suppress(shmq.ShmqError), shmq.open(shard.path, create=False, trusted=True) as queue:
                for app in apps:
                    _drop(queue, app)


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
    encoder = Encoder(options, schema)
    return kind(options, encoder, shards(options), options.app or app)


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
            '"append" (with a watermark) or "update"'
        )
    options = sink_options(given)
    if options.version is not None:
        raise BadOption("txnVersion is for batch writes: a stream's batches have numbers of their own")
    return _writer(StreamWriter, options, schema, "")  # type: ignore[no-any-return]
