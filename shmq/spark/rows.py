"""
Rows: how messages become the Arrow batches that Spark takes. It runs on the executors.

Messages come as columns (`columns`), their payloads are decoded (`payload`), and here both are put beside each other.
"""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

import shmq
from shmq.spark import hosts, places
from shmq.spark.schema import CORRUPT, ROW, columns_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shmq.spark import plan
    from shmq.spark.columns import Columns
    from shmq.spark.options import SourceOptions
    from shmq.spark.payload import Decoded, Decoder

_NO_TIMESTAMP_TYPE = 0  # Kafka's CreateTime


class Pieces(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, pieces: list[plan.Piece]) -> None:
        """Plain data: it travels to an executor."""
        self.value = pieces
        self.pieces = pieces


class _Unfit(shmq.Corrupt):
    """A message that is as it was put, and not as the schema says."""


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

        places.know(self.options)
        self.arrow = to_arrow_schema(self.schema, timezone="UTC")
        self.decoder = self._decoder()
        self.record = self._record()
        for piece in pieces:
            yield from self._piece(piece)
        _spare_the_collector()

    def _decoder(self) -> Decoder | None:
        """For the payloads, if their fields are wanted."""
        if self.kind == "raw":
            return None
        import pyarrow as pa  # noqa: PLC0415

        from shmq.spark.payload import Decoder  # noqa: PLC0415

        names = {each.name for each in self.columns if each.meta is None}
        fields = pa.schema([pa.field(field.name, field.type) for field in self.arrow if field.name in names])
        return Decoder(self.kind, fields, self.options.dtype, _zone())

    def _record(self) -> Any:
        """Numpy's dtype of the fields, where nothing else of the payloads is wanted, which are not copied then."""
        metas = {each.meta for each in self.columns}
        whole = metas & {"value", "key", "headers", CORRUPT} or self.options.mode == "FAILFAST"  # which shows a payload
        if self.decoder is None or self.kind != "struct" or whole:
            return None
        from shmq.spark.payload import numbers_of  # noqa: PLC0415

        return numbers_of(self.options.dtype or "", frozenset(self.decoder.fields.names))

    def _piece(self, piece: plan.Piece) -> Iterator[pa.RecordBatch]:
        from shmq.spark import columns  # noqa: PLC0415

        doing = f"read {piece.topic}/{piece.number}"
        queue = self.origin.open(doing, piece.path, piece.queue_id, places.open_to_read)
        record = None if hosts.is_remote(queue.path) else self.record  # the whole payload comes from other hosts
        metas = {each.meta for each in self.columns}
        decoded = self.kind != "raw" and record is None
        wanted = {"value"} if decoded or "value" in metas else set()
        wanted |= {"key"} if "key" in metas else set()
        wanted |= {"time"} if metas & {"timestamp", "timestamp_ns"} else set()
        wanted |= {"kind"} if "type" in metas else set()
        wanted |= {"headers"} if "headers" in metas else set()
        start = piece.start
        while start < piece.stop:
            try:
                rows = self.options.batch_rows
                for batch in columns.read(queue, start, piece.stop, frozenset(wanted), rows, record):
                    self._check_nothing_went(queue, piece, start, batch.index[0].as_py())
                    start = batch.index[-1].as_py() + 1
                    yield from self._batches(piece, self._with_tombstones(queue, batch))
                self._check_nothing_went(queue, piece, start, piece.stop)
            except shmq.Gone as gone:
                if gone.first_index is None or gone.first_index <= start:
                    raise
                yield from self._instead(piece, start, gone)
                start = gone.first_index
            except shmq.Corrupt as problem:
                where = f"{piece.topic}/{piece.number} from {piece.start} to {piece.stop}"
                more = "" if isinstance(problem, _Unfit) else ". `shmq verify` says what else is damaged"
                raise shmq.Corrupt(f"{problem} (while Spark read {where}){more}") from None
            else:
                return

    def _instead(self, piece: plan.Piece, start: int, gone: shmq.Gone) -> Iterable[pa.RecordBatch]:  # noqa: ARG002
        """
        What is read in the place of messages from *start* on, that were retired meanwhile.

        Raises:
            Gone: nothing is, and that is to be an error.
        """
        if self.options.fail_on_loss:
            raise gone
        return ()

    def _with_tombstones(self, queue: shmq.Queue, batch: Columns) -> Columns:
        """Null where a message says that of its key there is nothing any more."""
        if self.kind != "raw" or batch.value is None:
            return batch
        from shmq.spark import columns, tombstones  # noqa: PLC0415

        def headers() -> Any:
            return columns.packed_headers(queue, batch.index[0].as_py(), batch.index[-1].as_py() + 1)

        return batch._replace(value=tombstones.nulls(batch.value, headers))

    def _check_nothing_went(self, queue: shmq.Queue, piece: plan.Piece, start: int, found: int) -> None:
        """
        A gap may be padding; or messages that were retired since the task was planned, which must not go unsaid.

        Raises:
            Gone: they were retired, and that is to be an error.
        """
        first = queue.first_index if found > start and self.options.fail_on_loss else 0
        if start < first:
            raise shmq.Gone(
                f"messages {start} to {min(first, found) - 1} of {piece.path} were retired while Spark was reading. "
                "failOnDataLoss=false goes on without them; a stream with the option group, a consumer name, makes "
                "retention wait",
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
            elif column.meta == CORRUPT:
                array = _corrupt(batch.value, bad, field.type)
            elif column.meta == ROW:
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
                raise _Unfit(
                    f"messages {first} to {last} of {piece.path}: {column.null_count} have no {field.name!r} (or do "
                    "not parse), and the schema says that it is NOT NULL. Leave that out, or say mode=DROPMALFORMED "
                    "for payloads that do not parse"
                )

    def _decoded(self, piece: plan.Piece, batch: Columns) -> tuple[Decoded | None, Columns]:
        """The payloads' fields, and the messages, row for row beside them."""
        if self.decoder is None:
            return None, batch
        import pyarrow.compute as pc  # noqa: PLC0415

        if batch.fields is not None:
            from shmq.spark.payload import of_fields  # noqa: PLC0415

            return of_fields(batch.fields, batch.rows, self.decoder.fields), batch
        decoded = self.decoder(batch.value)
        if decoded.messages is not None:
            taken = [None if array is None else array.take(decoded.messages) for array in batch[1:]]
            batch = type(batch)(len(decoded.messages), *taken)
        if self.options.mode == "FAILFAST" and decoded.bad is not None and pc.any(decoded.bad).as_py():
            index = batch.index.filter(decoded.bad)[0].as_py()
            shown = batch.value.filter(decoded.bad)[0].as_py()[:80]
            raise _Unfit(
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


def _zone() -> datetime.tzinfo | None:
    """Spark's own for times that name none; None, this machine's, where the session has not said."""
    from pyspark import TaskContext  # noqa: PLC0415  # here it is loaded already

    from shmq.spark.values import zone_of  # noqa: PLC0415

    context = TaskContext.get()
    name = context.getLocalProperty("spark.sql.session.timeZone") if context else "UTC"
    return zone_of(name) if name else None


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
