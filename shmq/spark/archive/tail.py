"""
The live queue behind an archive, as a source of Spark's own: what was planned stays there, though both move on.

A DataFrame may be read long after it was made, and again. Its tail begins where the archive ended then; what was
archived and retired since comes out of the archive.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from shmq.spark import places, plan
from shmq.spark.archive import forms, messages, stores
from shmq.spark.columns import Columns
from shmq.spark.ends import Range, check_start, ends, starts, stops, tasks_of
from shmq.spark.options import EARLIEST, source_options
from shmq.spark.rows import Pieces, Rows
from shmq.spark.source import Reader, ShmqDataSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    import shmq
    from shmq.spark.ends import Ends
    from shmq.spark.offsets import Key
    from shmq.spark.options import SourceOptions

NAME = "shmq_tail"
ARCHIVES = "archives"
"""The option that names them, as JSON."""


class TailRows(Rows):
    """Messages out of the queue; and out of an archive, where they were retired meanwhile."""

    def __init__(self, options: SourceOptions, schema: StructType, kind: str, archives: list[str]) -> None:
        """See `Rows`."""
        super().__init__(dataclasses.replace(options, fail_on_loss=True), schema, kind)  # so that it is noticed
        self._archives = archives
        self._is_lenient = not options.fail_on_loss

    def _instead(self, piece: plan.Piece, start: int, gone: shmq.Gone) -> Iterable[pa.RecordBatch]:
        stop = min(gone.first_index or piece.stop, piece.stop)
        for path in self._archives:
            there = stores.store(path)
            now = there.snapshot()
            end = now.end_of(piece.topic, piece.number, piece.queue_id)
            if end is not None and end >= stop:
                return self._archived(there, now.host_of(piece.queue_id), piece, start, stop)
        return () if self._is_lenient else super()._instead(piece, start, gone)

    def _archived(
        self, there: forms.Store, host: str | None, piece: plan.Piece, start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        for each in there.rows(piece.topic, piece.number, start - 1, forms.Times(), host):
            table = messages.as_raw(each)
            mine = pc.and_(pc.greater_equal(table["offset"], start), pc.less(table["offset"], stop))
            for rows in table.filter(mine).combine_chunks().to_batches(max_chunksize=self.options.batch_rows):
                time = rows["timestamp_ns"].view(pa.timestamp("ns", "UTC"))
                batch = Columns(
                    rows.num_rows, rows["offset"], rows["value"], rows["key"], time, rows["type"], rows["headers"]
                )
                yield from self._batches(piece, batch)


class TailReader(Reader):
    """One `history`."""

    def __init__(self, options: SourceOptions, schema: StructType, archives: list[str]) -> None:
        """On the driver."""
        super().__init__(options, schema)
        self.rows = TailRows(options, schema, self.rows.kind, archives)

    def partitions(self) -> list[InputPartition]:
        """What is there now, cut into tasks; and what is not there any more."""
        lenient = dataclasses.replace(self.options, fail_on_loss=False)
        try:
            there = ends(self.shards, self.options)
            wanted = Range(starts(lenient, self.shards, there, EARLIEST), stops(self.options, self.shards, there))
            went = self._went(there, wanted)
            tasks = tasks_of(self.options, self.shards, wanted)
        finally:
            places.close_all()
        return [Pieces(task) for task in [*([went] if went else []), *tasks]] or [Pieces([])]

    def _went(self, there: dict[Key, Ends], wanted: Range) -> list[plan.Piece]:
        """
        What was retired of each shard since this was begun.

        Raises:
            Gone: a shard was cut behind where this begins.
        """
        found = []
        for shard in self.shards:
            said = self.options.starting
            begun = said.get(shard.topic, {}).get(str(shard.number), -1) if isinstance(said, dict) else -1
            now = there[shard.topic, shard.number]
            if begun > now.end:
                check_start(self.options, shard, begun, now)
            stop = min(wanted.start[shard.topic, shard.number], wanted.end[shard.topic, shard.number])
            if 0 <= begun < stop:
                found.append(plan.Piece(shard.topic, shard.number, shard.path, begun, stop, 0, now.queue_id))
        return found


class TailSource(ShmqDataSource):
    """What `history` reads under the name "shmq_tail"."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return NAME

    def __init__(self, options: dict[str, str]) -> None:
        """With an option more than the source has."""
        self._archives: list[str] = json.loads(options[ARCHIVES])
        super().__init__({name: word for name, word in options.items() if name.lower() != ARCHIVES})

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        return TailReader(source_options(self.options), schema, self._archives)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802  # Spark's name
        """It is for batch queries alone: a stream has a checkpoint, and a name that the queue waits for."""
        raise NotImplementedError(f"{NAME} is what history() reads, a batch; a stream reads format('shmq')")
