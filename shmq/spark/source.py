"""
The door: `spark.read.format("shmq")` and `spark.readStream.format("shmq")`, and the reader of a batch query.

On the driver `schema` and `ends` decide what a query reads, and `stream` what a batch of a stream is; on the executors
`rows` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructField, StructType

from shmq.spark import places
from shmq.spark.ends import Range, ends, starts, stops, tasks_of
from shmq.spark.options import EARLIEST, BadOption, SourceOptions, say_foreign, source_options
from shmq.spark.rows import Pieces, Rows
from shmq.spark.schema import HEADERS, KAFKA, META, kind_of
from shmq.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


NAME = "shmq"


# ---------------------------------------------------------------- batch
class Reader(DataSourceReader):  # type: ignore[misc]
    """
    One `spark.read`.

    It has no `pushFilters`. What such a reader plans for one filter Spark (4.3) keeps with the DataFrame, and reads
    that for another filter, or for none.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """On the driver."""
        self.options = options
        self.schema = schema
        self.shards = places.find(options)
        self.rows = Rows(options, schema, kind_of(options, schema, self.shards))

    def partitions(self) -> list[InputPartition]:
        """What is there now, cut into tasks."""
        places.know(self.options)
        try:
            there = ends(self.shards, self.options)
            wanted = Range(starts(self.options, self.shards, there, EARLIEST), stops(self.options, self.shards, there))
            tasks = tasks_of(self.options, self.shards, wanted)
        finally:
            places.close_all()
        return [Pieces(task) for task in tasks] or [Pieces([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return self.rows.read(partition.pieces)


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
        say_foreign("source", options.foreign)
        return Reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's names
        """For a stream."""
        options = source_options(self.options)
        say_foreign("source", options.foreign)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.write`."""
        from shmq.spark import sink  # noqa: PLC0415

        return sink.batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """For `df.writeStream`."""
        from shmq.spark import sink  # noqa: PLC0415

        return sink.stream_writer(self.options, schema, overwrite=overwrite)
