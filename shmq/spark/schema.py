"""
The columns of a source: what each one of the user's schema means, and which there are without one.

Knows Spark's types; opens a queue only to ask for its codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from shmq.spark import places
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    from shmq.spark.options import SourceOptions

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

META = {
    **{field.name: field.dataType for field in KAFKA},
    "headers": HEADERS,
    "timestamp_ns": LongType(),
    "type": IntegerType(),
}
"""The fields of a message; beside fields of payloads each has a `_` before its name."""
CORRUPT, ROW = "_corrupt", "_row"
_READABLE = (
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""Types of columns that JSON and msgpack are read into, and structs, arrays and maps of them."""


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
    twice = _twice(schema)
    if twice:
        raise BadOption(f"the schema names {twice!r} twice: give each column, or field, a name of its own")
    found = []
    for field in schema.fields:
        meta = _meta_of(field.name, kind)
        if meta is None and kind == "raw":
            raise BadOption(
                f"there is no column {field.name!r}: without value.format there are {', '.join(META)}; for the fields "
                "of payloads say value.format=json, msgpack, arrow or struct"
            )
        wanted = {**META, ROW: IntegerType()}.get(meta or "")
        if wanted is not None and field.dataType != wanted:
            raise BadOption(f"column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}")
        if meta == CORRUPT and not isinstance(field.dataType, BinaryType | StringType):
            raise BadOption(f"column {CORRUPT!r} is binary or string, not {field.dataType.simpleString()}")
        if meta is None and kind in {"json", "msgpack"} and not _is_readable(field.dataType):
            raise BadOption(
                f"column {field.name!r}: {kind} is not read into {field.dataType.simpleString()}; say STRING, and let "
                "Spark make something of it"
            )
        found.append(Column(field.name, meta))
    return found


def _twice(kind: DataType) -> str | None:
    """A name that two columns have, or two fields of one of them."""
    if isinstance(kind, ArrayType):
        return _twice(kind.elementType)
    if isinstance(kind, MapType):
        return _twice(kind.keyType) or _twice(kind.valueType)
    if not isinstance(kind, StructType):
        return None
    names = [field.name for field in kind.fields]
    again = (name for name in names if names.count(name) > 1)
    return next(again, None) or next(filter(None, (_twice(field.dataType) for field in kind.fields)), None)


def _is_readable(kind: DataType) -> bool:
    """Whether JSON and msgpack are read into such a column."""
    if isinstance(kind, StructType):
        return all(_is_readable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_readable(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, AtomicType) and _is_readable(kind.keyType) and _is_readable(kind.valueType)
    return isinstance(kind, _READABLE)


def _meta_of(name: str, kind: str) -> str | None:
    if kind == "raw":
        return name if name in META else None
    if name in {CORRUPT, ROW}:
        return name
    return name[1:] if name.startswith("_") and name[1:] in META else None


def kind_of(options: SourceOptions, schema: StructType, shards: list[places.Shard]) -> str:
    """What payloads are: as the user says; else raw, unless the schema names other columns and the codec tells."""
    if options.value_format:
        return options.value_format
    if all(field.name in META for field in schema.fields):
        return "raw"
    codec = places.open_queue(shards[0].path).options.codec
    return codec if codec in {"json", "msgpack"} else "raw"
