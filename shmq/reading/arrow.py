"""
Messages as Arrow record batches: many at a time, column by column, without a Python object for each.

The core copies what is wanted of a batch into one piece of memory, laid out as Arrow wants it; here it only gets its
names. pyarrow is imported when the first batch is asked for: the extra `shmq[arrow]`.
"""

from __future__ import annotations

import functools
from typing import Any

from shmq import _native, given, later
from shmq.closable import Closable
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from shmq.message import Message
    from shmq.reading.reader import Reader

COLUMNS = ("index", "time", "key", "type", "payload")
"""What a batch has when nothing else is asked for."""
ROWS = 10_000
"""Messages in a batch, unless told otherwise: few enough that it is still in the cache when somebody looks at it."""
BYTES = 16 << 20
"""Bytes of keys, payloads and headers in a batch, unless told otherwise."""
_ROWS_MAX = 1 << 31
_BYTES_MAX = (1 << 63) - 1
_NOW = -(1 << 63)
"""What the core understands as the time of the put."""


@functools.cache
def _pyarrow() -> Any:
    try:
        later.ready("pyarrow")
        import pyarrow  # noqa: PLC0415  # an extra, and a heavy one
    except ImportError as problem:
        raise ImportError(f"record batches need pyarrow ({problem}): pip install 'shmq[arrow]'") from problem
    return pyarrow


@functools.cache
def _types() -> dict[str, Any]:
    arrow = _pyarrow()
    return {
        "index": arrow.uint64(),
        "time": arrow.timestamp("ns", "UTC"),
        "key": arrow.binary(),
        "type": arrow.uint16(),
        "payload": arrow.binary(),
        "headers": arrow.binary(),
        "attempts": arrow.uint16(),
    }


@functools.cache
def _schema(names: tuple[str, ...]) -> Any:
    return _pyarrow().schema([(name, _types()[name]) for name in names])


def check_columns(columns: Iterable[str] | None, *, attempts: bool) -> tuple[str, ...]:
    """
    The columns to read, in the order they were asked for.

    Raises:
        ValueError: one is not there, or asked for twice; or there is none.
        ImportError: pyarrow is not installed.
    """
    known = [name for name in _types() if attempts or name != "attempts"]
    names = COLUMNS if columns is None else given.names("columns", columns)
    strange = [name for name in names if name not in known]
    if strange or not names or len(set(names)) != len(names):
        raise ValueError(f"columns={list(names)}: some of {', '.join(known)}, each once")
    return names


def plan(names: tuple[str, ...], *, rows: int, max_bytes: int | None, **further: Any) -> Any:
    """
    What the core is told of a batch.

    Raises:
        ValueError: there would be no room in it.
    """
    most = BYTES if max_bytes is None else given.whole("max_bytes", max_bytes, 1, _BYTES_MAX)
    return _native.wanted(names, rows=rows, max_bytes=most, **further)


_NUMBERS = {"i": "int", "u": "uint", "f": "float"}
"""Kinds of numpy's that are numbers of Arrow's, too, bit for bit."""
BESIDE = ("index", "time", "type")
"""Columns that there can be beside a record's fields."""


class Record:
    """
    The fields of payloads that are records, as the core is told of them.

    Attributes:
        fields: as Arrow has them.
        wanted: as the core has.
    """

    def __init__(self, dtype: Any) -> None:
        """
        *dtype* is numpy's.

        Raises:
            TypeError: it is no dtype.
            ValueError: it has no fields, or one that is no number in little-endian.
        """
        if not hasattr(dtype, "fields") or not hasattr(dtype, "itemsize"):
            raise given.wrong_type("record", dtype, "a numpy.dtype with fields")
        if not dtype.fields:
            raise ValueError(f"record={dtype}: a dtype with fields is wanted, like numpy.dtype([('price', '<f8')])")
        known = {name: dtype.fields[name][:2] for name in dtype.names}
        self.fields = [_pyarrow().field(name, self._type(name, kind)) for name, (kind, _) in known.items()]
        self.wanted = _native.Records(dtype.itemsize, {name: (at, kind.itemsize) for name, (kind, at) in known.items()})

    @staticmethod
    def _type(name: str, kind: Any) -> Any:
        if kind.kind not in _NUMBERS or kind.byteorder == ">" or kind.itemsize > 8:
            raise ValueError(f"record: field {name!r} is {kind}; numbers of up to 8 bytes in little-endian are read")
        return getattr(_pyarrow(), f"{_NUMBERS[kind.kind]}{8 * kind.itemsize}")()

    def arrays(self, gathered: _native.Gathered, memory: Any) -> list[Any]:
        """A column of each field."""
        arrow, rows = _pyarrow(), gathered.rows
        found = []
        for field, place in zip(self.fields, gathered.fields, strict=True):
            validity = memory.slice(place.validity, (rows + 7) // 8) if place.absent else None
            buffers = [validity, memory.slice(place.values, place.bytes)]
            found.append(arrow.Array.from_buffers(field.type, rows, buffers, place.absent))
        return found


def check_rows(name: str, rows: int) -> int:
    """
    How many messages a batch may have.

    Raises:
        TypeError, ValueError: so many it cannot have.
    """
    return given.whole(name, rows, 1, _ROWS_MAX)


def batch(gathered: _native.Gathered, names: tuple[str, ...], schema: Any = None, record: Record | None = None) -> Any:
    """The record batch of what was gathered. The memory stays as long as anything of it is used."""
    arrow = _pyarrow()
    rows = gathered.rows
    memory = arrow.foreign_buffer(gathered.address, gathered.nbytes, gathered.memory)
    arrays = []
    for name in names:
        place, kind = gathered.column(name), _types()[name]
        validity = memory.slice(place.validity, (rows + 7) // 8) if place.absent else None
        buffers = [validity, memory.slice(place.values, place.bytes)]
        if place.offsets:
            buffers.insert(1, memory.slice(place.offsets, 4 * (rows + 1)))
        arrays.append(arrow.Array.from_buffers(kind, rows, buffers, place.absent))
    if record is not None:
        arrays += record.arrays(gathered, memory)
    return arrow.RecordBatch.from_arrays(arrays, schema=_schema(names) if schema is None else schema)


def of_messages(names: tuple[str, ...], messages: Sequence[Message]) -> Any:
    """The record batch of messages that were handed out one by one, wherever they lie."""
    arrow = _pyarrow()
    values: dict[str, Callable[[Message], Any]] = {
        "index": lambda each: each.index,
        "time": lambda each: each.time_ns,
        "key": lambda each: each.key,
        "type": lambda each: each.type,
        "payload": lambda each: bytes(each.view),
        "headers": lambda each: each.raw_headers,
        "attempts": lambda each: min(each.attempts, (1 << 16) - 1),
    }
    arrays = [arrow.array(list(map(values[name], messages)), _types()[name]) for name in names]
    return arrow.RecordBatch.from_arrays(arrays, schema=_schema(names))


def check_batch(batch: Any) -> Any:
    """
    The batch itself, if it is one; else it, or a table, of what gives itself as one.

    Raises:
        TypeError: it is none.
        ImportError: pyarrow is not installed.
    """
    arrow = _pyarrow()
    if isinstance(batch, (arrow.RecordBatch, arrow.Table)):
        return batch
    if hasattr(batch, "__arrow_c_stream__"):
        return arrow.table(batch)
    if hasattr(batch, "__arrow_c_array__"):
        return arrow.record_batch(batch)
    raise TypeError(
        f"batch: a pyarrow.RecordBatch, or what gives itself as one to Arrow, is wanted, not {type(batch).__name__}"
    )


def one_batch(found: Any) -> Any:
    """As one batch what `check_batch` found; a table is copied, where it lies in several pieces."""
    if isinstance(found, _pyarrow().RecordBatch):
        return found
    return found.combine_chunks().to_batches()[0]


def to_put(batch: Any, fixed: _native.Fixed) -> _native.ArrowBatch:
    """
    A record batch as the core takes it, all columns at once. Nothing of it is copied that need not be.

    Raises:
        ValueError: a column is missing, strange, or not of its kind; or a payload is null.
        Corrupt: a column's offsets are wrong; nobody makes such a one by accident.
    """
    arrow = _pyarrow()
    known = _types()
    strange = [name for name in batch.schema.names if name not in known]
    if strange or "payload" not in batch.schema.names or len(set(batch.schema.names)) != batch.num_columns:
        raise ValueError(
            f"columns {', '.join(batch.schema.names)}: payload, and perhaps time, key, type and headers, each once; "
            "nothing was put"
        )
    columns = {name: _as(batch, name, known[name]) for name in batch.schema.names if name not in {"index", "attempts"}}
    if columns["payload"].null_count:
        raise ValueError("a payload is null, and a message has one, if it be empty; nothing was put")
    _check_headers(columns.get("headers"))
    parts = {name: _part(columns[name]) for name in ("payload", "key", "headers") if name in columns}
    numbers = {
        "type": _filled(columns.get("type"), arrow.uint32(), 0),
        "time": _filled(columns.get("time"), arrow.int64(), _NOW),
    }
    return _native.ArrowBatch(
        batch.num_rows,
        parts["payload"][0],
        parts["key"][0] if "key" in parts else None,
        _address(numbers["type"], 4),
        _address(numbers["time"], 8),
        parts["headers"][0] if "headers" in parts else None,
        fixed,
        (parts, numbers),
    )


def _as(batch: Any, name: str, kind: Any) -> Any:
    arrow = _pyarrow()
    column = batch.column(name)
    try:
        return column if column.type == kind else column.cast(kind)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as problem:
        raise ValueError(f"column {name} is {column.type}, and not {kind}: {problem}; nothing was put") from None


def _check_headers(column: Any) -> None:
    """Headers are a map; what else could be in there would be met by each reader."""
    if column is None or column.null_count == len(column):
        return
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # only users of headers pay for it

    decoder = msgspec.msgpack.Decoder(dict[str, Any])
    for raw in column.drop_null().to_pylist():
        try:
            decoder.decode(raw)
        except msgspec.MsgspecError as problem:
            raise ValueError(f"headers {raw[:40]!r}: {problem}; nothing was put") from None


def _part(column: Any) -> tuple[_native.Part, Any]:
    """Where a column of bytes lies, and what keeps it there."""
    if column.null_count:  # what lies where there is no value does not matter, but to whoever copies all of it
        column = column.fill_null(b"")
    _, offsets, values = column.buffers()
    start = offsets.address + 4 * column.offset
    return _native.Part(start, start, 0) if values is None else _native.Part(start, values.address, values.size), column


def _filled(column: Any, kind: Any, absent: int) -> Any:
    """A column of numbers without a gap; None if it is not there."""
    if column is None:
        return None
    numbers = column.view(kind) if kind.bit_width == column.type.bit_width else column.cast(kind)
    return numbers.fill_null(absent) if numbers.null_count else numbers


def _address(column: Any, width: int) -> int:
    """Where the numbers of a column begin; 0 when there is none."""
    return 0 if column is None else int(column.buffers()[1].address) + width * int(column.offset)


class Batches(Closable):
    """
    Made by `Queue.read_arrow`; iterates over record batches, in order.

    Attributes:
        schema: of every batch; also when there is none.
    """

    def __init__(
        self, reader: Reader, columns: Iterable[str] | None, max_rows: int, max_bytes: int | None, record: Any = None
    ) -> None:
        """*reader* is ours from now on: it knows where to begin and where to end."""
        self._reader = reader
        self._record = None if record is None else Record(record)
        self._names = check_columns(columns, attempts=False) if self._record is None else self._beside(columns)
        self.schema: Any = _schema(self._names)
        if self._record is not None:
            self.schema = _pyarrow().schema([*self.schema, *self._record.fields])
        stop, stop_time = reader._bounds()  # noqa: SLF001  # ours
        rows = check_rows("max_rows", max_rows)
        self._plan = plan(self._names, rows=rows, max_bytes=max_bytes, stop=stop, stop_time_ns=stop_time)

    def _beside(self, columns: Iterable[str] | None) -> tuple[str, ...]:
        """
        The columns beside a record's fields.

        Raises:
            ValueError: there is no such one, or a field is called so, too.
        """
        names = ("index",) if columns is None else given.names("columns", columns)
        if len(set(names)) != len(names) or not set(names) <= set(BESIDE):
            raise ValueError(f"columns={list(names)}: some of {', '.join(BESIDE)} beside a record, each once")
        for field in self._record.fields if self._record is not None else ():
            if field.name in names:
                raise ValueError(f"record: there would be two columns called {field.name!r}")
        return names

    def __iter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __next__(self) -> Any:
        """
        The next batch, of one message at least.

        Raises:
            StopIteration: the stop or the end is reached, or a message that is claimed and not committed yet.
            Corrupt: the next message is damaged. What came before it was in the batches before.
            Closed: this or its queue was closed.
        """
        walk = self._reader._walk_on()  # noqa: SLF001
        gathered = walk.gather(self._plan, None if self._record is None else self._record.wanted)
        if isinstance(gathered, int):
            raise StopIteration
        return batch(gathered, self._names, self.schema, self._record)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """What is left of it, as a stream of Arrow's C interface: for duckdb, polars, pandas."""
        return _pyarrow().RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Read no more; the batches there are stay. Closing twice is fine; so is forgetting to."""
        self._reader.close()
