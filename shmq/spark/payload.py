"""
Payloads into typed columns: json, msgpack, arrow and fixed records, a column at a time.

A payload with a fault spoils nothing but its own row, and a row means the same whoever its neighbours are.
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shmq.spark.objects import Objects

if TYPE_CHECKING:
    from collections.abc import Mapping


class Decoded(NamedTuple):
    """Columns of the payloads' fields."""

    table: pa.Table
    messages: pa.Array | None
    """For each row, which message it is of; None where each message is one row."""
    bad: pa.Array | None
    """For each row, whether its payload has a fault: what does not fit of it is null. None where none has."""


class Decoder:
    """
    What makes columns of payloads, a batch after the other.

    Attributes:
        fields: what is wanted of them.
    """

    def __init__(
        self,
        kind: str,
        fields: pa.Schema,
        dtype: str | None = None,
        zone: datetime.tzinfo | None = datetime.UTC,
    ) -> None:
        """
        Choose.

        Args:
            kind: "json", "msgpack", "arrow" or "struct".
            fields: what is wanted of the payloads, as Arrow types; fields that one lacks are null.
            dtype: for "struct", numpy's description of one record.
            zone: of times in JSON and msgpack that name none; None for this machine's.
        """
        self._objects = Objects(kind, fields, zone) if kind in {"json", "msgpack"} else None
        self._kind = kind
        self.fields = fields
        self._dtype = dtype or ""

    def __call__(self, values: pa.Array) -> Decoded:
        """The fields of these payloads, which are binary."""
        if self._objects is not None:
            table, bad = self._objects(values)
            return Decoded(table, None, bad)
        if self._kind == "arrow":
            return _arrow(values, self.fields)
        return _struct(values, self.fields, self._dtype)


def _nulls(fields: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, field.type) for field in fields], schema=fields)


# ---------------------------------------------------------------- arrow
def _arrow(values: pa.Array, fields: pa.Schema) -> Decoded:
    """A whole table a message, as an IPC stream: as many rows as it has."""
    tables: list[pa.Table] = []
    messages: list[pa.Array] = []
    bad: list[pa.Array] = []
    for number, value in enumerate(values):
        table = _ipc(value, fields)
        count = 1 if table is None else table.num_rows
        tables.append(_nulls(fields, 1) if table is None else table)
        messages.append(pa.repeat(pa.scalar(number, pa.int64()), count))
        bad.append(pa.repeat(pa.scalar(table is None, pa.bool_()), count))
    if not tables:
        return Decoded(_nulls(fields, 0), pa.array([], pa.int64()), None)
    table = pa.concat_tables(tables).combine_chunks()
    return Decoded(table, pa.concat_arrays(messages), pa.concat_arrays(bad))


def _ipc(value: pa.Scalar, fields: pa.Schema) -> pa.Table | None:
    try:
        with pa.ipc.open_stream(value.as_buffer()) as stream:
            table = stream.read_all()
        table.validate(full=True)  # it may come from anybody
        there = set(table.schema.names)
        columns = [
            table[field.name].cast(field.type) if field.name in there else pa.nulls(table.num_rows, field.type)
            for field in fields
        ]
        return pa.Table.from_arrays(columns, schema=fields)
    except (pa.ArrowException, KeyError, ValueError):
        return None


# ---------------------------------------------------------------- fixed records
def _struct(values: pa.Array, fields: pa.Schema, dtype: str) -> Decoded:
    """One record of numpy's *dtype* a payload: no decoding at all, but for the copy of each column."""
    import numpy as np  # noqa: PLC0415  # only who has such records needs it

    layout = record_dtype(dtype)
    count, size = len(values), layout.itemsize
    if not count:
        return Decoded(_nulls(fields, 0), None, None)
    wrong = np.diff(_offsets(values)) != size
    good = not wrong.any()
    whole = values if good else pc.if_else(pa.array(~wrong), values, pa.scalar(bytes(size), pa.binary()))
    first = int(_offsets(whole)[0])
    records = np.frombuffer(whole.buffers()[2], dtype=np.uint8, count=count * size, offset=first).view(layout)

    def column(field: pa.Field) -> pa.Array:
        if field.name not in (layout.names or ()):
            return pa.nulls(count, field.type)
        numbers = np.ascontiguousarray(records[field.name], dtype=_native(layout[field.name]))
        if good and numbers.dtype.type is _plain(field.type):  # what pa.array() makes of it, in a tenth of the time
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(numbers)], 0)
        found = pa.array(numbers, mask=None if good else wrong)
        return found if found.type == field.type else found.cast(field.type)

    table = pa.Table.from_arrays([column(field) for field in fields], schema=fields)
    return Decoded(table, None, None if good else pa.array(wrong))


def numbers_of(dtype: str, names: frozenset[str]) -> Any:
    """
    What of such records the core can take apart by itself: numpy's dtype of those fields, their names behind a dot.

    None where it can not: a field is no number as Arrow has them, or none is there.
    """
    import numpy as np  # noqa: PLC0415

    layout = record_dtype(dtype)
    there = [name for name in layout.names or () if name in names]
    kinds = [layout[name] for name in there]
    if not there or any(each.kind not in "iuf" or each.byteorder == ">" or each.itemsize > 8 for each in kinds):
        return None
    return np.dtype(
        {
            "names": [f".{name}" for name in there],
            "formats": kinds,
            "offsets": [layout.fields[name][1] for name in there],
            "itemsize": layout.itemsize,
        }
    )


def of_fields(given: Mapping[str, pa.Array], rows: int, fields: pa.Schema) -> Decoded:
    """What `Decoder` gives, of records that the core has taken apart."""

    def column(field: pa.Field) -> pa.Array:
        found = given.get(field.name)
        if found is None:
            return pa.nulls(rows, field.type)
        return found if found.type == field.type else found.cast(field.type)

    some = next(iter(given.values()))
    table = pa.Table.from_arrays([column(field) for field in fields], schema=fields)
    return Decoded(table, None, some.is_null() if some.null_count else None)


def _offsets(values: pa.Array) -> Any:
    """Where each value begins, and where the last one ends."""
    import numpy as np  # noqa: PLC0415

    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


@functools.cache
def _plain(kind: pa.DataType) -> Any:
    """The numpy dtype whose bytes are those of that type of numbers; None where there is none."""
    is_number = (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not pa.types.is_float16(kind)
    return kind.to_pandas_dtype() if is_number else None


def _native(dtype: Any) -> Any:
    return dtype.newbyteorder("=")


@functools.cache
def record_dtype(words: str) -> Any:
    """
    The numpy dtype that words like `price:<f8, size:<i4` mean.

    Raises:
        ValueError: they mean none.
    """
    import numpy as np  # noqa: PLC0415

    fields = []
    for word in words.split(","):
        name, colon, kind = word.partition(":")
        if not colon:
            raise ValueError(f"value.dtype={words!r}: {word.strip()!r} is not a name:type like price:<f8")
        fields.append((name.strip(), kind.strip()))
    try:
        return np.dtype(fields)
    except TypeError as problem:
        raise ValueError(f"value.dtype={words!r}: {problem}") from None
