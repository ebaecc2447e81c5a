"""
Payloads into typed columns: json, arrow, msgpack and fixed records, a column at a time.

A payload that does not parse spoils nothing but its own row: the batch is halved until the bad ones stand alone, with
the same parser, so a row means the same whoever its neighbours are.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable


class Decoded(NamedTuple):
    """Columns of the payloads' fields."""

    table: pa.Table
    messages: pa.Array | None
    """For each row, which message it is of; None where each message is one row."""
    bad: pa.Array | None
    """For each row, whether its payload did not parse; its fields are null then. None where all of them did."""


def decode(kind: str, values: pa.Array, fields: pa.Schema, dtype: str | None = None) -> Decoded:
    """
    The *fields* of these payloads.

    Args:
        kind: "json", "arrow", "msgpack" or "struct".
        values: the payloads, binary.
        fields: what is wanted of them, as Arrow types; fields a payload lacks are null.
        dtype: for "struct", numpy's description of one record.
    """
    if kind == "arrow":
        return _arrow(values, fields)
    if kind == "struct":
        return _struct(values, fields, dtype or "")
    parse = {"json": _json, "msgpack": _msgpack}[kind]
    return _piecewise(values, fields, functools.partial(parse, fields=fields))


# ---------------------------------------------------------------- what does not parse
def _piecewise(values: pa.Array, fields: pa.Schema, parse: Callable[[pa.Array], pa.Table | None]) -> Decoded:
    """Parse all at once if that works, else by halves."""
    tables: list[pa.Table] = []
    bad: list[tuple[int, int]] = []  # runs: bad or not, how many
    todo = [values]
    while todo:
        part = todo.pop()
        table = parse(part) if len(part) else None
        if table is not None:
            tables.append(table)
            bad.append((0, len(part)))
        elif len(part) > 1:
            half = len(part) // 2
            todo += [part.slice(half), part.slice(0, half)]
        elif len(part):
            tables.append(_nulls(fields, 1))
            bad.append((1, 1))
    table = pa.concat_tables(tables).combine_chunks() if tables else _nulls(fields, 0)
    if not any(flag for flag, _ in bad):
        return Decoded(table, None, None)
    return Decoded(table, None, pa.array([bool(flag) for flag, count in bad for _ in range(count)], pa.bool_()))


def _nulls(fields: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, field.type) for field in fields], schema=fields)


# ---------------------------------------------------------------- json
def _json(values: pa.Array, *, fields: pa.Schema) -> pa.Table | None:
    """
    One object a payload; None when any is something else.

    The payloads are parsed as one text. That each gives exactly its own row is certain when all begin with a brace and
    end with one, and there are as many rows as payloads: no two can run together, for after a closing brace no JSON
    goes on with an opening one (and a line feed within a string is refused). So none makes up for one that holds two.
    """
    import pyarrow.json as pj  # noqa: PLC0415  # only who has JSON pays for it

    if not _braced(values):
        values = _stripped(values)
        if values is None:
            return None
    text = _joined(values)
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
            parse_options=pj.ParseOptions(explicit_schema=_as_parsed(fields), unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(values):
            return None
        if not len(fields):
            return _nulls(fields, len(values))
        table = table.select(fields.names).cast(fields)
        if any(pa.types.is_string(field.type) or pa.types.is_nested(field.type) for field in fields):
            table.validate(full=True)  # text that is no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError):
        return None
    return table


def _as_parsed(fields: pa.Schema) -> pa.Schema:
    """Dates are read as text: the parser knows timestamps only."""
    text = {field.name for field in fields if pa.types.is_date(field.type)}
    return pa.schema([pa.field(each.name, pa.string() if each.name in text else each.type) for each in fields])


def _braced(values: pa.Array) -> bool:
    import numpy as np  # noqa: PLC0415

    offsets = _offsets(values)
    if not (np.diff(offsets) > 1).all():
        return False
    data = np.frombuffer(values.buffers()[2], np.uint8)
    return bool((data[offsets[:-1]] == ord("{")).all() and (data[offsets[1:] - 1] == ord("}")).all())


def _stripped(values: pa.Array) -> pa.Array | None:
    """Without white space around; None if that does not leave objects."""
    stripped = pa.array([value.as_py().strip(b" \t\r\n") for value in values], pa.binary())
    return stripped if _braced(stripped) else None


def _joined(values: pa.Array) -> pa.Buffer:
    """All payloads, a line each."""
    lines = pc.binary_join_element_wise(values, pa.scalar(b"", pa.binary()), pa.scalar(b"\n", pa.binary()))
    _, ends, data = lines.buffers()
    first, last = (int.from_bytes(ends[4 * at : 4 * at + 4].to_pybytes(), "little") for at in (0, len(lines)))
    return data.slice(first, last - first)


# ---------------------------------------------------------------- msgpack
def _msgpack(values: pa.Array, *, fields: pa.Schema) -> pa.Table | None:
    """A map a payload, or an array in the order of the fields."""
    import msgspec  # noqa: PLC0415  # only who has msgpack pays for it

    read = msgspec.msgpack.Decoder().decode
    try:
        rows = [read(value) for value in values.to_pylist()]
        if rows and isinstance(rows[0], list):
            rows = [dict(zip(fields.names, row, strict=False)) for row in rows]
        if not all(isinstance(row, dict) for row in rows):
            return None
        return pa.Table.from_pylist(rows, schema=fields)
    except (msgspec.DecodeError, UnicodeDecodeError, pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


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
            raise ValueError(f"value.dtype={words!r}: {word.strip()!r} is no name:type like price:<f8")
        fields.append((name.strip(), kind.strip()))
    try:
        return np.dtype(fields)
    except TypeError as problem:
        raise ValueError(f"value.dtype={words!r}: {problem}") from None
