"""Messages gathered in columns, in the layout of Arrow."""

from __future__ import annotations

import itertools

from shmq._core import ffi, lib
from shmq._native.core import address
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from shmq._native.chunk import Chunk

_COLUMNS = {
    "index": lib.SHMQ_INDEX,
    "time": lib.SHMQ_TIME,
    "key": lib.SHMQ_KEY,
    "type": lib.SHMQ_TYPE,
    "payload": lib.SHMQ_PAYLOAD,
    "headers": lib.SHMQ_HEADERS,
    "attempts": lib.SHMQ_ATTEMPTS,
}


def wanted(
    columns: Sequence[str],
    *,
    rows: int,
    max_bytes: int,
    stop: int | None = None,
    stop_time_ns: int | None = None,
    checked: bool = False,
) -> Any:
    """What a gathering is to bring: shmq.h, shmq_wanted."""
    return ffi.new(
        "shmq_wanted *",
        {
            "columns": sum(1 << _COLUMNS[name] for name in columns),
            "checked": checked,
            "rows": rows,
            "bytes": min(max_bytes, (1 << 31) - 1),
            "stop": (1 << 64) - 1 if stop is None else stop,
            "stop_time_ns": (1 << 63) - 1 if stop_time_ns is None else stop_time_ns,
        },
    )


class Gathered:
    """
    Messages in columns, in memory of their own.

    Attributes:
        rows: how many, 1 at least.
        first, last: the indexes of the first and the last.
        address, nbytes: the memory; *memory* keeps it.
        fields: where each field of a record lies, if they are records.
    """

    __slots__ = ("_columns", "address", "fields", "first", "last", "memory", "nbytes", "rows")

    def __init__(self, batch: Any, rows: int, fields: Any = ()) -> None:
        """Takes the memory of a batch that the core has made."""
        self.fields = fields
        self.rows = rows
        self.first, self.last = int(batch.first), int(batch.last)
        self.address = address(batch.memory)
        self.nbytes = int(batch.bytes)
        self.memory = ffi.gc(batch.memory, lib.shmq_gathered_free, self.nbytes)
        self._columns = batch

    def column(self, name: str) -> Any:
        """Where a column lies: shmq.h, shmq_column_place."""
        return self._columns.columns[_COLUMNS[name]]

    def numbers(self, name: str, kind: str) -> list[int]:
        """A column of numbers, which are of that C type."""
        return list(ffi.unpack(ffi.cast(kind, self.address + self.column(name).values), self.rows))

    def pieces(self, name: str) -> list[bytes]:
        """A column of bytes: empty where there is none."""
        place = self.column(name)
        data = bytes(ffi.buffer(ffi.cast("char *", self.address + place.values), place.bytes))
        ends = ffi.unpack(ffi.cast("int32_t *", self.address + place.offsets), self.rows + 1)
        return [data[start:end] for start, end in itertools.pairwise(ends)]


def gather(chunk: Chunk, reader: Any, plan: Any) -> Gathered | int:
    """The messages that are there now, up to what *plan* says; or a negative code when there is none."""
    batch = ffi.new("shmq_gathered *")
    rows = lib.shmq_gather(chunk.handle, reader, plan, batch)
    return Gathered(batch, rows) if rows > 0 else int(rows)


class Records:
    """
    Which numbers are wanted of payloads that are records of one size.

    Attributes:
        names: of the fields, in their order.
    """

    __slots__ = ("_fields", "_size", "names")

    def __init__(self, size: int, fields: Mapping[str, tuple[int, int]]) -> None:
        """*fields*: by name, where in the record each begins, and its bytes."""
        self.names = tuple(fields)
        self._size = size
        self._fields = ffi.new("shmq_field[]", [{"offset": at, "bytes": width} for at, width in fields.values()])

    def gather(self, chunk: Chunk, reader: Any, plan: Any) -> Gathered | int:
        """As `gather`, and their numbers."""
        count = len(self.names)
        batch, places = ffi.new("shmq_gathered *"), ffi.new("shmq_column_place[]", count)
        rows = lib.shmq_gather_records(chunk.handle, reader, plan, self._size, count, self._fields, batch, places)
        return Gathered(batch, rows, places) if rows > 0 else int(rows)
