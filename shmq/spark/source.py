"""
The source: `spark.read.format("shmq")` and `spark.readStream.format("shmq")`.

On the driver it looks for the ends of the queues and cuts what is between; on the executors it reads pieces and hands
out Arrow batches. Everything that decides anything is in options, places, offsets, plan, columns and payload, which
know nothing of Spark.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import shmq
from shmq.spark import mirror, offsets, places, plan
from shmq.spark.options import EARLIEST, LATEST, BadOption, SourceOptions, source_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from shmq.spark.columns import Columns
    from shmq.spark.offsets import Key
    from shmq.spark.payload import Decoded

NAME = "shmq"
_NO_TIMESTAMP_TYPE = 0  # Kafka's CreateTime

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""What there is without a schema: Kafka's columns, so that a job moves here by two lines."""

_META = {
    **{field.name: field.dataType for field in KAFKA},
    "headers": HEADERS,
    "timestamp_ns": LongType(),
    "type": IntegerType(),
}
_CORRUPT, _ROW = "_corrupt", "_row"


# ---------------------------------------------------------------- what is asked for
class Column(NamedTuple):
    """One column of the result: a field of the message itself, or of its payload."""

    name: str
    meta: str | None
    """Which field of the message; None for one of the payload."""


def columns_of(schema: StructType, kind: str) -> list[Column]:
    """
    What each column of the user's schema means.

    Raises:
        BadOption: there is no such column, or none of that type.
    """
    found = []
    for field in schema.fields:
        meta = _meta_of(field.name, kind)
        if meta is None and kind == "raw":
            raise BadOption(
                f"there is no column {field.name!r}: without value.format there are {', '.join(_META)}; for the fields "
                "of payloads say value.format=json, msgpack, arrow or struct"
            )
        wanted = {**_META, _ROW: IntegerType()}.get(meta or "")
        if wanted is not None and field.dataType != wanted:
            raise BadOption(f"column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}")
        if meta == _CORRUPT and not isinstance(field.dataType, BinaryType | StringType):
            raise BadOption(f"column {_CORRUPT!r} is binary or string, not {field.dataType.simpleString()}")
        if meta is None and kind == "json" and isinstance(field.dataType, MapType):
            raise BadOption(f"column {field.name!r}: JSON is not read into maps; say STRUCT<...>, or raw and from_json")
        found.append(Column(field.name, meta))
    return found


def _meta_of(name: str, kind: str) -> str | None:
    if kind == "raw":
        return name if name in _META else None
    if name in {_CORRUPT, _ROW}:
        return name
    return name[1:] if name.startswith("_") and name[1:] in _META else None


def kind_of(options: SourceOptions, schema: StructType, shards: list[places.Shard]) -> str:
    """What payloads are: as the user says; else raw, unless the schema names other columns and the codec tells."""
    if options.value_format:
        return options.value_format
    if all(field.name in _META for field in schema.fields):
        return "raw"
    codec = places.open_queue(shards[0].path).options.codec
    return codec if codec in {"json", "msgpack"} else "raw"


# ---------------------------------------------------------------- ends
class Ends(NamedTuple):
    """One shard as it is now."""

    queue_id: str
    first: int
    end: int


def ends(shards: Iterable[places.Shard], options: SourceOptions | None = None) -> dict[Key, Ends]:
    """Where each shard begins and ends: what may be read by these options, or all that is decided."""
    found = {}
    for shard in shards:
        queue = places.open_queue(shard.path)
        end = queue.committed_index if options is None else readable_end(queue, durable_only=options.durable_only)
        found[shard.topic, shard.number] = Ends(queue.id, min(queue.first_index, end), end)
    return found


def readable_end(queue: shmq.Queue, *, durable_only: bool) -> int:
    """
    The index behind the last message that may be read.

    Up to there everything is decided. And where the queue syncs, or only what is durable is wanted, it is on the disk:
    a result must not come from messages that a power cut takes back.
    """
    end = queue.committed_index
    if queue.options.durability.kind == "process" and not durable_only:
        return end
    if queue.durable_index < end == queue.next_index:  # else a sync would wait for who is in the middle of a put
        with contextlib.suppress(shmq.Closed, shmq.SyncFailed):
            queue.sync()
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
    What is misspelt would be read from where such queries begin by default.

    Raises:
        BadOption: a shard is named that is not there.
    """
    there = [(shard.topic, str(shard.number)) for shard in shards]
    named = [(topic, number) for topic, each in said.items() for number in each] if isinstance(said, dict) else []
    for topic, number in named:
        if (topic, number) not in there:
            labels = ", ".join(f"{topic}/{number}" for topic, number in there)
            raise BadOption(f"{option} names shard {topic}/{number}, and this query reads {labels}")


def starts(
    options: SourceOptions, shards: list[places.Shard], there: Mapping[Key, Ends], default: str
) -> dict[Key, int]:
    """
    Where each shard is begun: by time, by offset, or where such queries begin.

    Raises:
        BadOption: a shard is named that is not there, or a time that has not come.
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
                _check_start(options, shard, said, now)
                found[key] = min(max(said, now.first), now.end)
    return found


def _offset(said: str | int, now: Ends) -> int:
    if said in {EARLIEST, -2}:
        return now.first
    if said in {LATEST, -1}:
        return now.end
    return int(said)


def _check_start(options: SourceOptions, shard: places.Shard, start: int, now: Ends) -> None:
    if not options.fail_on_loss:
        return
    if start < now.first:
        raise shmq.Gone(
            f"shard {shard.label} ({shard.path}) is to be read from {start} and begins at {now.first}: the "
            f"{now.first - start:,} messages before it were retired. Nothing was read. Begin at {now.first}, or say "
            "failOnDataLoss=false to go on without them; a consumer name keeps a queue from retiring what is not read",
            now.first,
        )
    if start > now.end:
        raise shmq.Gone(
            f"shard {shard.label} ({shard.path}) is to be read from {start} and ends at {now.end}: it was cut behind "
            "what was read before, or is another queue. Nothing was read. Say failOnDataLoss=false to go on at its "
            "end, or begin a new checkpoint",
            now.first,
        )


def stops(options: SourceOptions, shards: list[places.Shard], there: Mapping[Key, Ends]) -> dict[Key, int]:
    """
    Where each shard is ended, of a batch query.

    Raises:
        BadOption: a shard is named that is not there.
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
    stretches = []
    for shard in shards:
        key = (shard.topic, shard.number)
        start, stop = wanted.start.get(key, 0), wanted.end.get(key, 0)
        if start >= stop:
            continue
        queue = places.open_queue(shard.path)
        bases = {extent.stop: extent for extent in queue.extents(0, stop)}
        runs = [
            plan.Run(bases[extent.stop].first if extent.stop in bases else extent.first, *extent)
            for extent in queue.extents(start, stop)
        ]
        stretches.append(
            plan.Stretch(shard.topic, shard.number, shard.path, queue.options.index_spacing, runs, queue.id)
        )
    processors = len(os.sched_getaffinity(0))
    return plan.cut(stretches, rows=options.partition_rows, least=options.min_partitions, processors=processors)


# ---------------------------------------------------------------- reading, on the executors
class Pieces(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, pieces: list[plan.Piece]) -> None:
        """Plain data: it travels to an executor."""
        self.value = pieces
        self.pieces = pieces


class Rows:
    """How pieces become Arrow batches. Plain data until it reads: it travels to executors."""

    def __init__(self, options: SourceOptions, schema: StructType, kind: str) -> None:
        """See `columns_of`."""
        self.options = options
        self.schema = schema
        self.kind = kind
        self.columns = columns_of(schema, kind)
        self.origin = places.Origin.here()

    def read(self, pieces: Iterable[plan.Piece]) -> Iterator[pa.RecordBatch]:
        """
        All messages of the pieces, in their order.

        Raises:
            Corrupt: one is damaged; or, with mode FAILFAST, does not parse.
            NotFound, Mismatch: this host has no such queue, or another one in its place.
        """
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # needs pyarrow, which the driver may lack

        self.arrow = to_arrow_schema(self.schema, timezone="UTC")
        for piece in pieces:
            yield from self._piece(piece)
        _spare_the_collector()

    def _piece(self, piece: plan.Piece) -> Iterator[pa.RecordBatch]:
        from shmq.spark import columns  # noqa: PLC0415

        metas = {each.meta for each in self.columns}
        wanted = {"value"} if self.kind != "raw" or "value" in metas else set()
        wanted |= {"key"} if "key" in metas else set()
        wanted |= {"time"} if metas & {"timestamp", "timestamp_ns"} else set()
        wanted |= {"kind"} if "type" in metas else set()
        wanted |= {"headers"} if "headers" in metas else set()
        doing = f"read {piece.topic}/{piece.number}"
        queue = self.origin.open(doing, piece.path, piece.queue_id, places.open_to_read)
        start = piece.start
        while True:
            try:
                for batch in columns.read(queue, start, piece.stop, frozenset(wanted), self.options.batch_rows):
                    self._check_nothing_went(queue, piece, start, batch.index[0].as_py())
                    start = batch.index[-1].as_py() + 1
                    yield from self._batches(piece, batch)
                self._check_nothing_went(queue, piece, start, piece.stop)
            except shmq.Gone as gone:
                if self.options.fail_on_loss or gone.first_index is None or gone.first_index <= start:
                    raise
                start = gone.first_index
            except shmq.Corrupt as problem:
                raise shmq.Corrupt(
                    f"{problem} (while Spark read {piece.topic}/{piece.number} from {piece.start} to {piece.stop}). "
                    "`shmq verify` says what else is damaged"
                ) from None
            else:
                return

    def _check_nothing_went(self, queue: shmq.Queue, piece: plan.Piece, start: int, found: int) -> None:
        """
        A gap may be padding; or messages that were retired since the task was planned, which must not go unsaid.

        Raises:
            Gone: they were retired, and that is to be an error.
        """
        first = queue.first_index if found > start and self.options.fail_on_loss else 0
        if start < first:
            raise shmq.Gone(
                f"messages {start} to {min(first, found) - 1} of {piece.path} were retired while Spark was reading; "
                "start the query again, or say failOnDataLoss=false. A consumer name (option group) makes retention "
                "wait",
                first,
            )

    def _batches(self, piece: plan.Piece, batch: Columns) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        decoded, batch = self._decoded(piece, batch)
        arrays = []
        bad = None if decoded is None else decoded.bad
        rows = batch.rows if decoded is None else decoded.table.num_rows
        for column, field in zip(self.columns, self.arrow, strict=True):
            array: Any
            if column.meta is None:
                array = decoded.table[column.name]  # type: ignore[union-attr]
                array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
            elif column.meta == _CORRUPT:
                array = _corrupt(batch.value, bad, field.type)
            elif column.meta == _ROW:
                array = _numbers(decoded, rows)
            else:
                array = self._meta(column.meta, piece, batch, rows)
            if array.type != field.type:
                array = array.cast(field.type)
            arrays.append(array)
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.arrow) if arrays else _empty(rows)
        if bad is not None and self.options.mode == "DROPMALFORMED":
            whole = whole.filter(pc.invert(bad))
        self._check_nulls(piece, batch, whole)
        for at in range(0, whole.num_rows, self.options.batch_rows):
            yield whole.slice(at, self.options.batch_rows)

    def _check_nulls(self, piece: plan.Piece, batch: Columns, whole: pa.RecordBatch) -> None:
        """
        Spark believes that a column which is NOT NULL has none, and would take what lies in their place.

        Raises:
            Corrupt: there is one.
        """
        for field, column in zip(self.arrow, whole.columns, strict=True):
            if not field.nullable and column.null_count:
                first, last = batch.index[0].as_py(), batch.index[-1].as_py()
                raise shmq.Corrupt(
                    f"messages {first} to {last} of {piece.path}: {column.null_count} have no {field.name!r} (or do "
                    "not parse), and the schema says that it is NOT NULL. Leave that out, or say mode=DROPMALFORMED "
                    "for payloads that do not parse"
                )

    def _decoded(self, piece: plan.Piece, batch: Columns) -> tuple[Decoded | None, Columns]:
        """The payloads' fields, and the messages, row for row beside them."""
        if self.kind == "raw":
            return None, batch
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        from shmq.spark import payload  # noqa: PLC0415

        names = {each.name for each in self.columns if each.meta is None}
        fields = pa.schema([field for field in self.arrow if field.name in names])
        decoded = payload.decode(self.kind, batch.value, fields, self.options.dtype)
        if decoded.messages is not None:
            taken = [None if array is None else array.take(decoded.messages) for array in batch[1:]]
            batch = type(batch)(len(decoded.messages), *taken)
        if self.options.mode == "FAILFAST" and decoded.bad is not None and pc.any(decoded.bad).as_py():
            index = batch.index.filter(decoded.bad)[0].as_py()
            shown = batch.value.filter(decoded.bad)[0].as_py()[:80]
            raise shmq.Corrupt(
                f"message {index} of {piece.path} is no {self.kind} of {self.schema.simpleString()}: {shown!r}. "
                "mode=PERMISSIVE reads it as nulls (and the column _corrupt), DROPMALFORMED leaves it out"
            )
        return decoded, batch

    def _meta(self, name: str, piece: plan.Piece, batch: Columns, rows: int) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        if name == "timestamp":
            return batch.time.cast(pa.timestamp("us", "UTC"), safe=False)
        constant = {
            "topic": (piece.topic, pa.string()),
            "partition": (piece.number, pa.int32()),
            "timestampType": (_NO_TIMESTAMP_TYPE, pa.int32()),
        }.get(name)
        if constant is not None:
            return pa.repeat(pa.scalar(*constant), rows)
        return {
            "key": batch.key,
            "value": batch.value,
            "offset": batch.index,
            "timestamp_ns": None if batch.time is None else batch.time.view(pa.int64()),
            "type": batch.kind,
            "headers": batch.headers,
        }[name]


@functools.cache
def _spare_the_collector() -> None:
    """
    In a worker of Spark, once: what is there by now stays, and is looked through no more.

    Spark has its workers collect garbage after each task: 10 to 20 ms, nearly all of it for modules, which the next
    task waits for. In any other process that is not for us to decide.
    """
    from pyspark import TaskContext  # noqa: PLC0415  # here it is loaded already

    if TaskContext.get() is not None:
        gc.collect()  # what is garbage now would stay, too
        gc.freeze()


def _empty(rows: int) -> Any:
    """Rows of no columns."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _corrupt(values: Any, bad: Any, kind: Any) -> Any:
    """The payloads that did not parse; as text, if asked for, with what is no UTF-8 replaced."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if bad is None or not pc.any(bad).as_py():
        return pa.nulls(len(values), kind)
    kept = pc.if_else(bad, values, pa.scalar(None, pa.binary()))
    if pa.types.is_binary(kind):
        return kept
    return pa.array([None if each is None else each.decode("utf-8", "replace") for each in kept.to_pylist()], kind)


def _numbers(decoded: Decoded | None, rows: int) -> Any:
    """Each row's number within its message."""
    import pyarrow as pa  # noqa: PLC0415

    if decoded is None or decoded.messages is None:
        return pa.repeat(pa.scalar(0, pa.int32()), rows)
    lengths = decoded.messages.value_counts().field(1).to_pylist()
    return pa.concat_arrays([pa.array(range(length), pa.int32()) for length in lengths] or [pa.array([], pa.int32())])


# ---------------------------------------------------------------- batch
class Reader(DataSourceReader):  # type: ignore[misc]
    """One `spark.read`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """On the driver."""
        self.options = options
        self.schema = schema
        self.shards = places.find(options)
        self.rows = Rows(options, schema, kind_of(options, schema, self.shards))
        self._limits: list[Any] = []

    def partitions(self) -> list[InputPartition]:
        """What is there now, cut into tasks."""
        try:
            there = ends(self.shards, self.options)
            wanted = Range(starts(self.options, self.shards, there, EARLIEST), stops(self.options, self.shards, there))
            shards = self._pruned(wanted)
            tasks = tasks_of(self.options, shards, wanted)
        finally:
            places.close_all()
        return [Pieces(task) for task in tasks] or [Pieces([])]

    def _pruned(self, wanted: Range) -> list[places.Shard]:
        """The shards that Spark's filters leave, with the range narrowed to what they leave of each."""
        kept = []
        for shard in self.shards:
            key = (shard.topic, shard.number)
            if all(_may_hold(limit, shard) for limit in self._limits):
                for limit in self._limits:
                    _narrow(limit, shard, key, wanted)
                kept.append(shard)
        return kept

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return self.rows.read(partition.pieces)


class PushingReader(Reader):
    """
    One that uses Spark's filters on offset, time and partition to read less.

    A class of its own: Spark refuses a reader with `pushFilters` outright while its switch is off.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  # Spark's name
        """Remember what can be used, and give all of them back: Spark checks each row again."""
        names = {each.name: each.meta for each in self.rows.columns}
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            meta = names.get(attribute[0]) if len(attribute) == 1 else None
            if meta in {"offset", "partition", "timestamp", "timestamp_ns", "topic"}:
                self._limits.append((meta, each))
        return filters


def _may_hold(limit: tuple[str, Any], shard: places.Shard) -> bool:
    meta, condition = limit
    mine = {"partition": shard.number, "topic": shard.topic}.get(meta)
    if mine is None:
        return True
    if isinstance(condition, EqualTo | EqualNullSafe):
        return bool(mine == condition.value)
    if isinstance(condition, In):
        return mine in condition.value
    return True


def _narrow(limit: tuple[str, Any], shard: places.Shard, key: Key, wanted: Range) -> None:
    meta, condition = limit
    if meta not in {"offset", "timestamp", "timestamp_ns"}:
        return
    low, high = _bounds(condition)
    if meta == "offset":
        if low is not None:
            wanted.start[key] = max(wanted.start[key], int(low))
        if high is not None:
            wanted.end[key] = min(wanted.end[key], int(high) + 1)
        return
    # Times need not ascend, so only the start can be known from an index by time: before it everything is older.
    if low is not None:
        nanoseconds = low if meta == "timestamp_ns" else _nanoseconds(low)
        if nanoseconds is not None:
            first = places.open_queue(shard.path).at_ns(nanoseconds)
            wanted.start[key] = max(wanted.start[key], min(first, wanted.end[key]))


def _nanoseconds(when: Any) -> int | None:
    if not isinstance(when, datetime.datetime):
        return None
    since = when.astimezone(datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _bounds(condition: Any) -> tuple[Any, Any]:
    """The smallest and largest value that it lets pass; None where it sets no limit. A little too wide is fine."""
    if isinstance(condition, EqualTo | EqualNullSafe) and condition.value is not None:
        return condition.value, condition.value
    if isinstance(condition, In) and condition.value and None not in condition.value:
        return min(condition.value), max(condition.value)
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return condition.value, None
    if isinstance(condition, LessThan | LessThanOrEqual):
        return None, condition.value
    return None, None


# ---------------------------------------------------------------- stream
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One `spark.readStream`, on the driver for as long as the query runs; copies of it read on the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Nothing is opened yet."""
        self.options = options
        shards = places.find(options)
        self.rows = Rows(options, schema, kind_of(options, schema, shards))
        self._pinned: dict[Key, Ends] | None = None
        self._last_batch = time.monotonic()
        self._latest: offsets.Offsets | None = None
        self._initial: dict[str, Any] | None = None

    # ---- offsets
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names from here on
        """Where a new query begins. Spark asks more than once before it writes one answer down: they are the same."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    def _begin(self) -> dict[str, Any]:
        shards = places.find(self.options)
        group = offsets.new_group() if self.options.group is None else self.options.group
        self._hold(group, shards)  # before the ends are looked for, so that nothing is retired in between
        there = ends(shards, self.options)
        begun = starts(self.options, shards, there, LATEST)
        return self._offsets(group, {key: offsets.Place(there[key].queue_id, at) for key, at in begun.items()})

    def _hold(self, group: str, shards: list[places.Shard]) -> None:
        """Nothing of them is retired from now on before Spark has read it, if the user gave the name for that."""
        if group and not offsets.is_automatic(group):
            for shard in shards:
                mirror.hold(shard.path, group)

    def _offsets(self, group: str, where: dict[Key, offsets.Place]) -> dict[str, Any]:
        return offsets.Offsets(group, os.path.abspath(self.options.queue), where).to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """What one batch takes, unless the trigger says otherwise."""
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all there will be; shards that come later are for the next run."""
        self._pinned = ends(places.find(self.options), self.options)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch."""
        begun = offsets.Offsets.from_json(start)
        if self.options.pause and os.path.exists(self.options.pause):
            return start
        shards = places.find(self.options)
        group = begun.group if self.options.group is None else self.options.group  # it may be said later, too
        known = begun.places if group == begun.group else {}
        self._hold(group, [shard for shard in shards if (shard.topic, shard.number) not in known])
        there = self._pinned or ends(shards, self.options)
        where = {key: self._start_of(key, now, begun) for key, now in there.items()}
        end = {key: max(now.end, where[key]) for key, now in there.items()}
        self._latest = offsets.Offsets(
            group, begun.root, {key: offsets.Place(there[key].queue_id, at) for key, at in end.items()}
        )
        end = where if self._should_wait(where, end) else self._limited(shards, where, end, limit)
        kept = {key: place for key, place in begun.places.items() if key not in end}  # a shard that is gone
        placed = {key: offsets.Place(there[key].queue_id, at) for key, at in end.items()}
        if any(end[key] > where[key] for key in end):
            self._last_batch = time.monotonic()
        return self._offsets(group, kept | placed)

    def _start_of(self, key: Key, now: Ends, begun: offsets.Offsets) -> int:
        """How far a shard was read; one that is new begins with its first message, also one in an old one's place."""
        place = begun.places.get(key)
        if place is None or (place.queue_id != now.queue_id and not self.options.fail_on_loss):
            return now.first
        return place.next

    def _should_wait(self, start: Mapping[Key, int], end: Mapping[Key, int]) -> bool:
        """Whether there is too little for a batch yet."""
        if self.options.min_rows is None or self._pinned is not None:
            return False
        rows = sum(end[key] - start[key] for key in end)
        return rows < self.options.min_rows and time.monotonic() - self._last_batch < self.options.max_delay

    def _limited(
        self, shards: list[places.Shard], start: dict[Key, int], end: dict[Key, int], limit: Any
    ) -> dict[Key, int]:
        rows = getattr(limit, "max_rows", None)
        nbytes = getattr(limit, "max_bytes", None) or self.options.max_bytes
        if nbytes is not None:
            sizes = {}
            for shard in shards:
                key = (shard.topic, shard.number)
                if key in end and start[key] < end[key]:
                    extents = places.open_queue(shard.path).extents(start[key], end[key])
                    sizes[key] = sum(extent.nbytes for extent in extents)
            fit = offsets.within_bytes(start, end, sizes, nbytes)
            rows = fit if rows is None else min(rows, fit)
        return offsets.limited(start, end, rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends without any limit, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    # ---- one batch
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What lies between two offsets, cut into tasks."""
        begun, done = offsets.Offsets.from_json(start), offsets.Offsets.from_json(end)
        shards = [shard for shard in places.find(self.options) if (shard.topic, shard.number) in done.places]
        self._check_there(begun, done, shards)
        there = ends(shards)
        wanted = Range({}, {})
        for shard in shards:
            key = (shard.topic, shard.number)
            now = there[key]
            at = self._checked_start(shard, now, begun, done)
            wanted.start[key] = at
            wanted.end[key] = min(done.places[key].next, now.end)
            if done.places[key].next > now.end:
                _check_start(self.options, shard, done.places[key].next, now)
        tasks = tasks_of(self.options, shards, wanted)
        if begun.group and start != self._initial:
            self._mirror(begun)  # a restart looks after its name, too; nothing is done yet of a query that begins
        return [Pieces(task) for task in tasks]

    def _check_there(self, begun: offsets.Offsets, done: offsets.Offsets, shards: list[places.Shard]) -> None:
        """A shard with something to read must still be there."""
        there = {(shard.topic, shard.number) for shard in shards}
        for key, place in done.places.items():
            before = begun.places.get(key)
            if key not in there and (before is None or before.next < place.next) and self.options.fail_on_loss:
                raise shmq.NotFound(
                    f"shard {key[0]}/{key[1]} below {self.options.queue} is gone, and was to be read up to "
                    f"{place.next}. failOnDataLoss=false goes on without it"
                )

    def _checked_start(self, shard: places.Shard, now: Ends, begun: offsets.Offsets, done: offsets.Offsets) -> int:
        key = (shard.topic, shard.number)
        place = begun.places.get(key)
        target = done.places[key]
        if target.queue_id != now.queue_id or (place is not None and place.queue_id != now.queue_id):
            if self.options.fail_on_loss:
                raise shmq.Gone(
                    f"{shard.path} is another queue than the one that was read before: it was deleted and made again. "
                    "Nothing was read. Begin a new checkpoint, or say failOnDataLoss=false to read the new one from "
                    "its beginning",
                    now.first,
                )
            return now.first
        start = now.first if place is None else place.next
        if place is not None and start < target.next:
            _check_start(self.options, shard, start, now)
        return min(max(start, now.first), now.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return self.rows.read(partition.pieces)

    def __getstate__(self) -> dict[str, Any]:
        """What an executor needs."""
        return {**self.__dict__, "_pinned": None, "_latest": None}

    # ---- progress
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished with everything before *end*: the queue may know."""
        done = offsets.Offsets.from_json(end)
        if done.group:
            self._mirror(done)

    def _mirror(self, done: offsets.Offsets) -> None:
        # The mirror is for retention and for eyes; a query does not end because of it.
        with contextlib.suppress(shmq.ShmqError, OSError):
            mirror.follow(done, places.find(self.options))


# ---------------------------------------------------------------- the door
class ShmqDataSource(DataSource):  # type: ignore[misc]
    """What Spark finds under the name "shmq"."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return NAME

    def schema(self) -> StructType:
        """Without the user's schema: Kafka's columns."""
        options = source_options(self.options)
        if options.value_format not in {None, "raw"}:
            raise BadOption(
                f'with value.format={options.value_format} Spark must know the fields: .schema("user BIGINT, ...")'
            )
        fields = list(KAFKA.fields)
        if options.headers:
            fields.append(StructField("headers", HEADERS))
        if options.columns:
            known = {**{field.name: field for field in fields}, **{n: StructField(n, t) for n, t in _META.items()}}
            unknown = [name for name in options.columns if name not in known]
            if unknown:
                raise BadOption(
                    f"columns={','.join(options.columns)}: there is no {unknown[0]}; there are {', '.join(known)}"
                )
            fields = [known[name] for name in options.columns]
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        options = source_options(self.options)
        return (PushingReader if options.pushdown else Reader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's names
        """For a stream."""
        return StreamReader(source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.write`."""
        from shmq.spark import sink  # noqa: PLC0415

        return sink.batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """For `df.writeStream`."""
        from shmq.spark import sink  # noqa: PLC0415

        return sink.stream_writer(self.options, schema, overwrite=overwrite)
