"""
Sums and counts by group, begun in the task that reads: Spark is given a few rows for each batch, and adds them up.

    shmq.spark.aggregate("orders", by=["kind"], sums=["amount"], counts=["*"], schema="kind STRING, amount DOUBLE")

What costs most of a group-by over a source in Python is each row's way into the JVM. Here no row goes it. The result is
that of the plain group-by: nulls, decimals and overflow are as in Spark. A batch whose sum of whole numbers may not fit
in 64 bits is handed on row by row, so that it is Spark that says so.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.spark import setup
from shmq.spark.options import BadOption, SourceOptions, say_foreign, source_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from shmq.spark import plan
    from shmq.spark.rows import Rows

Condition = tuple[str, str, Any]
"""Column, one of `OPERATORS`, value: `("amount", ">", 0)`, `("kind", "in", ["a", "b"])`, `("kind", "is", None)`."""
ALL = "*"
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not")
_BATCH_ROWS = 64_000
_BATCH_RECORDS = 128_000
"""Of fixed records, of which there are only numbers in a batch."""
_TASK_ROWS = 16_000_000
_TASK_BYTES = 1 << 30
"""A task costs Spark what it costs to add up some million rows; and of what it has read it keeps next to nothing."""
_LARGEST = (1 << 63) - 1
_EXACT_DIGITS = 28
"""Decimals of so many digits are added up here: as many as there can be in a batch stay within the 38 there are."""


class Plan(NamedTuple):
    """What is added up. Plain data: it travels to executors."""

    inner: StructType
    """The columns that are read, and no others."""
    by: tuple[str, ...]
    sums: tuple[str, ...]
    counts: tuple[str, ...]
    where: tuple[Condition, ...]

    @property
    def outer(self) -> StructType:
        """What Spark is given: g0.. to group by, s0.. to add up, and the counts n0.., to add up, too."""
        from pyspark.sql.types import LongType, StructField, StructType  # noqa: PLC0415

        groups = [StructField(f"g{n}", self.inner[name].dataType) for n, name in enumerate(self.by)]
        sums = [StructField(f"s{n}", sum_type(name, self.inner[name].dataType)) for n, name in enumerate(self.sums)]
        return StructType([*groups, *sums, *(StructField(f"n{n}", LongType()) for n in range(len(self.counts)))])


def sum_type(name: str, kind: DataType) -> DataType:
    """
    Of a sum over such a column, as Spark has it.

    Raises:
        BadOption: it is none of numbers.
    """
    from pyspark.sql.types import DecimalType, DoubleType, FractionalType, IntegralType, LongType  # noqa: PLC0415

    if isinstance(kind, DecimalType):
        return DecimalType(min(38, kind.precision + 10), kind.scale)
    if isinstance(kind, IntegralType):
        return LongType()
    if isinstance(kind, FractionalType):
        return DoubleType()
    raise BadOption(f"sums: column {name!r} is {kind.simpleString()}, and only numbers are added up")


# ---------------------------------------------------------------- on the driver
def aggregate(
    queue: str,
    *,
    by: Sequence[str] = (),
    sums: Sequence[str] = (),
    counts: Sequence[str] = (),
    where: Sequence[Condition] = (),
    schema: str | StructType | None = None,
    spark: Any = None,
    **options: Any,
) -> Any:
    """
    A DataFrame with a row for each group: the columns of *by*, `sum_X` for each X of *sums*, `count_X` of *counts*.

    Args:
        queue: as for `read`.
        by: columns that make a group; none: one row for all.
        sums: columns of numbers to add up; the sum of nothing but nulls is null.
        counts: columns of which to count what is not null; `"*"` counts rows, in the column `count`.
        where: conditions that all must hold, as Spark's SQL has them: what is compared with a null does not.
        schema: as for `read`: of the payloads' fields with a `value.format`, and of Kafka's columns without. Only the
            columns that are used are read.
        spark: the session; the one there is, or a new one on this machine.
        options: of the source.

    What is there now is what is added up, also when it is asked for later, or again.

    Raises:
        BadOption: a column is not there, or not of a kind that can be added up, compared or grouped by.
        NotFound: there is no such queue.
        Gone: what the options say to begin with is not there any more, and that is to be an error.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    spark = spark or setup.session()
    made = _plan(by, sums, counts, where, schema)
    outer = made.outer
    frame = _partial(spark, made, source_options({**options, "path": queue}))
    adding = [f.sum(f"s{n}").cast(outer[f"s{n}"].dataType).alias(f"sum_{name}") for n, name in enumerate(made.sums)]
    counting = [
        f.coalesce(f.sum(f"n{n}"), f.lit(0).cast("bigint")).alias("count" if name == ALL else f"count_{name}")
        for n, name in enumerate(made.counts)
    ]
    groups = [f.col(f"g{n}").alias(name) for n, name in enumerate(made.by)]
    if not adding and not counting:
        return frame.select(*groups).distinct()
    return frame.groupBy(*groups).agg(*adding, *counting)


def _plan(
    by: Sequence[str],
    sums: Sequence[str],
    counts: Sequence[str],
    where: Sequence[Condition],
    schema: str | StructType | None,
) -> Plan:
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    from shmq.spark.schema import META  # noqa: PLC0415  # needs pyspark

    whole = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if whole is None:
        whole = StructType([StructField(name, kind) for name, kind in META.items()])
    if not (by or sums or counts):
        raise BadOption("nothing is asked for: say by, sums or counts")
    used = [*by, *sums, *(each for each in counts if each != ALL), *(each[0] for each in where)]
    there = {field.name: field for field in whole.fields}
    for name in used:
        if name not in there:
            raise BadOption(f"there is no column {name!r}; there are {', '.join(there)}")
    names = [*by, *(f"sum_{each}" for each in sums), *("count" if n == ALL else f"count_{n}" for n in counts)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadOption(f"the result would have two columns called {min(twice)}")
    for name in by:
        if there[name].dataType.typeName() in {"array", "map", "struct", "variant"}:
            raise BadOption(f"by: column {name!r} is {there[name].dataType.simpleString()}, and no plain value")
    inner = StructType([field for field in whole.fields if field.name in used])
    made = Plan(inner, tuple(by), tuple(sums), tuple(counts), tuple(where))
    _ = made.outer  # the sums are of numbers
    _try_conditions(made)
    return made


def _try_conditions(made: Plan) -> None:
    """Whether they can be, on no rows at all."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    nothing = to_arrow_schema(made.inner, timezone="UTC").empty_table().to_batches()
    empty = nothing[0] if nothing else pa.RecordBatch.from_pylist([], to_arrow_schema(made.inner, timezone="UTC"))
    for condition in made.where:
        try:
            holds(empty, condition)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
            raise BadOption(f"where {condition!r}: {str(problem).partition(chr(10))[0]}") from None


def _partial(spark: Any, made: Plan, options: SourceOptions) -> Any:
    """
    What the tasks add up, as a DataFrame.

    They are planned here: for a data source Spark would start a Python to ask for its partitions, and one more to make
    it, which takes longer than to read some million rows. A function over a table of one number a task needs neither.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from shmq.spark.source import Reader  # noqa: PLC0415  # needs pyspark

    say_foreign("source", options.foreign)
    said = options.partition_rows != SourceOptions.partition_rows
    options = dataclasses.replace(
        options,
        batch_rows=max(options.batch_rows, _BATCH_RECORDS if options.value_format == "struct" else _BATCH_ROWS),
        partition_rows=options.partition_rows if said else _TASK_ROWS,
        partition_bytes=_TASK_BYTES,
    )
    reader = Reader(options, made.inner)
    tasks = [partition.pieces for partition in reader.partitions()]
    rows = Aggregated(reader.rows, made)

    class Added:
        """What a task of Spark runs: it is sent whole, with the rows and the tasks."""

        def eval(self, numbers: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            for number in numbers.column(0).to_pylist():
                yield from rows.read(tasks[number])

    return f.arrow_udtf(Added, returnType=made.outer)(spark.range(0, len(tasks), 1, len(tasks)).asTable())


# ---------------------------------------------------------------- on the executors
class Aggregated:
    """Rows, added up batch by batch. Plain data until it reads: it travels to executors."""

    def __init__(self, rows: Rows, made: Plan) -> None:
        """Of *rows*, as *made* says."""
        self.rows = rows
        self.plan = made

    def read(self, pieces: Iterable[plan.Piece]) -> Iterator[pa.RecordBatch]:
        """A few rows for each batch, together where they are few."""
        import pyarrow as pa  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        self.outer = to_arrow_schema(self.plan.outer, timezone="UTC")
        waiting: list[pa.Table] = []
        for batch in self.rows.read(pieces):
            table = self._added_up(batch)
            if table.num_rows:
                waiting.append(table)
            if sum(each.num_rows for each in waiting) >= _BATCH_ROWS // 2:
                yield from pa.concat_tables(waiting).combine_chunks().to_batches()
                waiting = []
        if waiting:
            yield from pa.concat_tables(waiting).combine_chunks().to_batches()

    def _added_up(self, batch: pa.RecordBatch) -> pa.Table:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        for condition in self.plan.where:
            batch = batch.filter(holds(batch, condition))  # a null does not hold, either
        made = self.plan
        groups = {f"g{n}": batch[name] for n, name in enumerate(made.by)}
        sums = {f"s{n}": _wide(batch[name], self.outer.field(f"s{n}").type) for n, name in enumerate(made.sums)}
        counted = {f"n{n}": batch[name] for n, name in enumerate(made.counts) if name != ALL}
        if not all(_fits(batch[name]) for name in made.sums):
            return self._each(batch, groups, sums)
        columns = {**groups, **sums, **counted}
        table = pa.table(columns) if columns else pa.Table.from_batches([batch])
        wanted: list[Any] = [(name, "sum", pc.ScalarAggregateOptions(min_count=1)) for name in sums]
        wanted += [
            ([], "count_all") if name == ALL else (f"n{n}", "count", pc.CountOptions(mode="only_valid"))
            for n, name in enumerate(made.counts)
        ]
        added = table.group_by(list(groups), use_threads=False).aggregate(wanted)
        names = {**{name: f"{name}_sum" for name in sums}, **{name: f"{name}_count" for name in counted}}
        return pa.table(
            [added[names.get(field.name, field.name if field.name in groups else "count_all")] for field in self.outer],
            names=self.outer.names,
        ).cast(self.outer)

    def _each(self, batch: pa.RecordBatch, groups: dict[str, Any], sums: dict[str, Any]) -> pa.Table:
        """Row by row, where only Spark can say whether the sum can be."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        one = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        counts = {
            f"n{n}": one if name == ALL else pc.if_else(batch[name].is_valid(), one, pa.scalar(0, pa.int64()))
            for n, name in enumerate(self.plan.counts)
        }
        return pa.table({**groups, **sums, **counts}).cast(self.outer)


def _wide(column: Any, kind: Any) -> Any:
    """A column as its sum will be, where a narrow one could not hold it."""
    import pyarrow as pa  # noqa: PLC0415

    return column.cast(kind) if pa.types.is_decimal(kind) else column


def _fits(column: Any) -> bool:
    """Whether the sum of that column certainly fits in what a sum has."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_decimal(column.type):
        return bool(column.type.precision <= _EXACT_DIGITS)
    if not pa.types.is_int64(column.type):
        return True  # narrower ones are added up in 64 bits, and there are fewer than 2**31 in a batch
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return True
    return bool(max(-ends["min"], ends["max"]) * len(column) <= _LARGEST)


def holds(batch: pa.RecordBatch, condition: Condition) -> Any:
    """
    Of which rows a condition holds, as in Spark's SQL: null where a null is compared; and NaN is more than any number.

    Raises:
        ValueError: there is no such operator, or a value is of another kind.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    name, operator, value = condition
    column = batch[name]
    if operator in {"is", "is not"}:
        if value is not None:
            raise ValueError("`is` and `is not` are for None; = and != compare")
        return column.is_null() if operator == "is" else column.is_valid()
    if operator in {"in", "not in"}:
        found = pc.is_in(column, value_set=pa.array([_typed(each, column.type).as_py() for each in value], column.type))
        known = pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
        return known if operator == "in" else pc.invert(known)
    compare = {
        "=": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }.get(operator)
    if compare is None:
        raise ValueError(f"there is no operator {operator!r}; there are {', '.join(OPERATORS)}")
    found = compare(column, _typed(value, column.type))
    if pa.types.is_floating(column.type) and operator in {">", ">="}:
        return pc.or_(found, pc.is_nan(column))
    return found


def _typed(value: Any, kind: Any) -> Any:
    """
    A value to compare a column of that *kind* with.

    Raises:
        ValueError: it is of another one.
    """
    import pyarrow as pa  # noqa: PLC0415

    if value is None:
        raise ValueError("nothing is equal to None: say (column, 'is', None)")
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if isinstance(value, bool) != pa.types.is_boolean(kind) or (isinstance(value, str) and number):
        raise ValueError(f"{value!r} is a {type(value).__name__}, and the column is {kind}")
    if isinstance(value, float) and pa.types.is_decimal(kind):
        value = decimal.Decimal(repr(value))
    if isinstance(value, float):
        return pa.scalar(value)  # in 64 bits, as a literal in SQL
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    if isinstance(value, decimal.Decimal) or (isinstance(value, int) and pa.types.is_decimal(kind)):
        return pa.scalar(decimal.Decimal(value))
    if isinstance(value, str) and not pa.types.is_string(kind):
        return pa.scalar(value.encode()) if pa.types.is_binary(kind) else pa.scalar(value).cast(kind)
    return pa.scalar(value, kind)
