"""
The door: `spark.read.format("shmq")` and `spark.readStream.format("shmq")`, and the reader of a batch query.

On the driver `schema` and `ends` decide what a query reads, and `stream` what a batch of a stream is; on the executors
`rows` reads it.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

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
from pyspark.sql.types import StructField, StructType

from shmq.spark import places
from shmq.spark.ends import Range, ends, starts, stops, tasks_of
from shmq.spark.options import EARLIEST, BadOption, SourceOptions, source_options
from shmq.spark.rows import Pieces, Rows
from shmq.spark.schema import HEADERS, KAFKA, META, kind_of
from shmq.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from shmq.spark.offsets import Key

NAME = "shmq"


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
            known = {**{field.name: field for field in fields}, **{n: StructField(n, t) for n, t in META.items()}}
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
