"""
Objects as payloads, in JSON or msgpack, into typed columns.

There are two ways, and a payload means the same by both. Arrow's own parser reads a whole batch of JSON at once; it is
quick, and knows neither some types of columns nor what to do about a payload with a fault. What it refuses is read one
by one, in a single pass: each payload becomes an object, then the objects become columns, value by value only where a
column has one that is none of its type.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shmq.spark.values import Reading

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable

    from shmq.spark.values import Read

_SPACE = " \t\r\n"
_UNNAMEABLE = {'"', "\\", *map(chr, range(32))}
"""What msgspec takes in no name of a field."""
_WAIT = 64
"""So many batches at most are read payload by payload before all at once is tried again."""
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
_BROKEN = (ValueError, TypeError, RecursionError)
"""What parsers raise; msgspec's own errors are ValueErrors."""


class Objects:
    """The objects of one task's payloads."""

    def __init__(self, kind: str, fields: pa.Schema, zone: datetime.tzinfo | None) -> None:
        """See `payload.Decoder`."""
        self._fields = fields
        self._one_by_one = OneByOne(kind, fields, zone)
        self._at_once = AtOnce(fields, zone) if kind == "json" and AtOnce.can(fields) else None
        self._refused = 0
        self._wait = 0

    def __call__(self, values: pa.Array) -> tuple[pa.Table, pa.Array | None]:
        """The fields of these payloads, and which payloads have a fault; None where none has."""
        if self._wait:
            self._wait -= 1
        elif self._at_once is not None:
            table = self._at_once(values)
            if table is not None:
                self._refused = 0
                return table, None
            # What is refused once is likely to be again: seconds later, by the next version of whoever puts.
            self._refused += 1
            self._wait = min(1 << self._refused, _WAIT) - 1
        return self._one_by_one(values)


# ---------------------------------------------------------------- all at once
class AtOnce:
    """JSON by Arrow's parser."""

    def __init__(self, fields: pa.Schema, zone: datetime.tzinfo | None) -> None:
        """Times and bytes are read as text first: the parser knows no zones, and no base64."""
        self._fields = fields
        self._zone = zone
        self._parsed = pa.schema([pa.field(each.name, _parsed(each.type)) for each in fields])

    @staticmethod
    def can(fields: pa.Schema) -> bool:
        """Whether the parser knows such columns."""
        return all(_is_plain(each.type) or _parsed(each.type) != each.type for each in fields)

    def __call__(self, values: pa.Array) -> pa.Table | None:
        """
        The fields, or None if any payload is something that this cannot read, or does not read as it should.

        The payloads are parsed as one text. That each gives exactly its own row is certain when all begin with a brace
        and end with one, and there are as many rows as payloads: no two can run together, for after a closing brace no
        JSON goes on with an opening one (and a line feed within a string is refused). So none makes up for one that
        holds two.
        """
        import pyarrow.json as pj  # noqa: PLC0415  # only who has JSON pays for it

        if not _braced(values):
            values = pc.ascii_trim(values.view(pa.string()), characters=_SPACE).view(pa.binary())
            if not _braced(values):
                return None
        joined = _joined(values)
        try:
            table = pj.read_json(
                pa.BufferReader(joined),
                read_options=pj.ReadOptions(use_threads=False, block_size=max(joined.size, 1)),
                parse_options=pj.ParseOptions(explicit_schema=self._parsed, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != len(values):
                return None
            if not len(self._fields):
                return pa.Table.from_struct_array(pa.array([{}] * len(values), pa.struct([])))
            table = table.select(self._fields.names).combine_chunks()
            table.validate(full=True)  # text that is no UTF-8
            columns = [
                self._column(column.chunk(0), field.type)
                for column, field in zip(table.columns, self._fields, strict=True)
            ]
            return pa.Table.from_arrays(columns, schema=self._fields)
        except _REFUSED:
            return None

    def _column(self, found: pa.Array, kind: pa.DataType) -> pa.Array:
        if pa.types.is_timestamp(kind):
            return times(found, kind, self._zone)
        if pa.types.is_date(kind):
            return found.cast(kind)
        if pa.types.is_binary(kind):
            of = Reading("json", self._zone).reader(kind)
            return pa.array([None if each is None else of(each) for each in found.to_pylist()], kind)
        if not _is_finite(found):
            raise ValueError("NaN is no JSON; payload by payload it is told from Inf, which is nothing at all")
        return found


def _parsed(kind: pa.DataType) -> pa.DataType:
    """As what the parser is to read such a column."""
    as_text = pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_binary(kind)
    return pa.string() if as_text else kind


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_number or pa.types.is_boolean(kind) or pa.types.is_string(kind))


def _is_finite(found: pa.Array) -> bool:
    if pa.types.is_struct(found.type):
        return all(map(_is_finite, found.flatten()))
    if pa.types.is_list(found.type):
        return _is_finite(found.flatten())
    if not pa.types.is_floating(found.type):
        return True
    return bool(pc.all(pc.is_finite(found), min_count=0).as_py())


def _braced(values: pa.Array) -> bool:
    import numpy as np  # noqa: PLC0415

    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    if not (np.diff(offsets) > 1).all():
        return False
    data = np.frombuffer(values.buffers()[2], np.uint8)
    return bool((data[offsets[:-1]] == ord("{")).all() and (data[offsets[1:] - 1] == ord("}")).all())


def _joined(values: pa.Array) -> pa.Buffer:
    """All payloads, a line each."""
    lines = pc.binary_join_element_wise(values, pa.scalar(b"", pa.binary()), pa.scalar(b"\n", pa.binary()))
    _, ends, data = lines.buffers()
    first, last = (int.from_bytes(ends[4 * at : 4 * at + 4].to_pybytes(), "little") for at in (0, len(lines)))
    return data.slice(first, last - first)


def times(found: pa.Array, kind: pa.TimestampType, zone: datetime.tzinfo | None) -> pa.Array:
    """
    Times from text, all of which name a zone, or none of which does; else, and where Spark knows better, a ValueError.

    Those that name none are of *zone*.
    """
    local = pa.timestamp(kind.unit)
    if not kind.tz:
        return found.cast(local)
    with contextlib.suppress(pa.ArrowInvalid):
        return found.cast(kind)
    name = getattr(zone, "key", None) or ("UTC" if str(zone) == "UTC" else None)
    if name is None:
        raise ValueError("a zone without a name, of which Arrow knows none")
    naive = found.cast(local)
    return naive.view(pa.int64()).view(kind) if name == "UTC" else pc.assume_timezone(naive, name).cast(kind)


# ---------------------------------------------------------------- one by one
class OneByOne:
    """JSON or msgpack, a payload at a time and then a column at a time."""

    def __init__(self, kind: str, fields: pa.Schema, zone: datetime.tzinfo | None) -> None:
        """Prepare."""
        import msgspec  # noqa: PLC0415  # only who has objects pays for it

        self._kind = kind
        self._fields = fields
        self._reading = Reading(kind, zone)
        self._readers = [self._reading.reader(field.type) for field in fields]
        self._zone = zone
        # Where a number may be a DECIMAL, all that have a point are: as a double it would be another one.
        self._number = decimal.Decimal if any(map(_has_decimals, fields.types)) else float
        names = [f"f{number}" for number in range(len(fields))]
        self._get: list[Any] = [operator.attrgetter(name) for name in names]
        members = [(name, Any, None) for name in names]
        if _UNNAMEABLE.isdisjoint("".join(fields.names)):
            renamed = dict(zip(names, fields.names, strict=True))
            self._row: Any = msgspec.defstruct("Row", members, rename=renamed, gc=False)
        else:
            self._row = dict
            self._get = [_getter(name) for name in fields.names]
        self._none = self._row()
        if kind == "json":
            self._parsers: list[Any] = [msgspec.json.Decoder(self._row, float_hook=self._number).decode]
        else:
            array = msgspec.defstruct("Array", members, array_like=True, gc=False)
            self._parsers = [msgspec.msgpack.Decoder(each).decode for each in (self._row, array)]

    def __call__(self, values: pa.Array) -> tuple[pa.Table, pa.Array | None]:
        """See `Objects`."""
        import numpy as np  # noqa: PLC0415

        bad: Any = np.zeros(len(values), bool)
        rows = self._rows(values, bad)
        columns = [
            self._column(list(map(get, rows)), read, field.type, bad)
            for get, read, field in zip(self._get, self._readers, self._fields, strict=True)
        ]
        if columns:
            table = pa.Table.from_arrays(columns, schema=self._fields)
        else:
            table = pa.Table.from_struct_array(pa.array([{}] * len(values), pa.struct([])))
        return table, pa.array(bad) if bad.any() else None

    def _rows(self, values: pa.Array, bad: Any) -> list[Any]:
        rows: list[Any] = []
        add, parse = rows.append, self._parsers[0]
        for number, value in enumerate(values.to_pylist()):
            try:
                add(parse(value))
            except _BROKEN:
                row = self._again(value)
                bad[number] = row is None
                add(self._none if row is None else row)
        return rows

    def _again(self, value: bytes) -> Any:
        """What the first parser refused: an array in the order of the fields; or JSON with NaN, which Spark reads."""
        for parse in self._parsers[1:]:
            with contextlib.suppress(*_BROKEN):
                return parse(value)
        if self._kind == "json" and (b"NaN" in value or b"Infinity" in value):
            with contextlib.suppress(*_BROKEN):
                return self._with_nan(value.decode())
        return None

    def _with_nan(self, value: str) -> Any:
        found = json.loads(value, parse_float=self._number)
        if not isinstance(found, dict):
            return None
        json.dumps(found, ensure_ascii=False, default=str).encode()  # an escape may make half a character of text
        if self._row is dict:
            return found
        return self._row(*map(found.get, self._fields.names))

    def _column(self, values: list[Any], read: Read, kind: pa.DataType, bad: Any) -> pa.Array:
        try:
            return self._quick(values, kind)
        except _REFUSED:
            return pa.array(self._slow(values, read, bad), kind)

    def _quick(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """
        The column, if all of its values are of its type as they stand.

        Raises:
            ValueError: one is not; or Arrow's own.
        """
        there = set(map(type, values)) - {type(None)}
        if pa.types.is_timestamp(kind) and kind.tz and there == {int}:
            return pc.multiply_checked(pa.array(values, pa.int64()), 1_000_000).view(kind)
        if not there <= self._as_they_stand(kind):
            raise ValueError("not all of them are of that type")
        if pa.types.is_timestamp(kind):
            return times(pa.array(values, pa.string()), kind, self._zone)
        if pa.types.is_date(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)

    def _as_they_stand(self, kind: pa.DataType) -> set[type]:
        """Of which types all values of such a column may be, to be taken as they stand."""
        if pa.types.is_integer(kind):
            return {int}
        if pa.types.is_floating(kind):
            return {int, float}
        if pa.types.is_decimal(kind):
            return {int, decimal.Decimal}
        if pa.types.is_boolean(kind):
            return {bool}
        if pa.types.is_binary(kind):
            return {bytes} if self._kind == "msgpack" else set()
        return set() if pa.types.is_nested(kind) else {str}

    def _slow(self, values: list[Any], read: Read, bad: Any) -> Iterable[Any]:
        """Value by value: null, and a fault of its payload, where one does not fit."""
        for number, value in enumerate(values):
            try:
                found = None if value is None else read(value)
            except (ValueError, ArithmeticError):
                found, bad[number] = None, True
            if self._reading.spoilt:
                self._reading.spoilt, bad[number] = False, True
            yield found


def _getter(name: str) -> Any:
    return lambda row: row.get(name)


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_decimals(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))
