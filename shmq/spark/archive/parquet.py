"""Tables of messages as one Parquet file. Knows neither which messages, nor where the file is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_GROUP_ROWS, _GROUP_BYTES = 1_000_000, 64 << 20


class Writer:
    """One file, to which tables are given one by one; nothing is written where there is none. A context manager."""

    def __init__(self, sink: Any) -> None:
        """*sink* takes the bytes."""
        self.rows = 0
        self.earliest_ns: int | None = None
        self.latest_ns: int | None = None
        self._sink = sink
        self._writer: Any = None
        self._some: list[pa.Table] = []
        self._size = [0, 0]

    def __enter__(self) -> Self:
        """Nothing is written yet."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """All of it is, unless there was an error."""
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, table: pa.Table) -> None:
        """Some rows more."""
        self._some.append(table)
        self._size = [self._size[0] + table.num_rows, self._size[1] + table.nbytes]
        if self._size[0] >= _GROUP_ROWS or self._size[1] >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """What there is as one group of rows, which is worth it."""
        import pyarrow as pa  # noqa: PLC0415

        if not sum(each.num_rows for each in self._some):
            return
        table = pa.concat_tables(self._some)
        self._some, self._size = [], [0, 0]
        if self._writer is None:
            self._writer = _writer(table, self._sink)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows
        self._times(table)

    def _times(self, table: pa.Table) -> None:
        import pyarrow.compute as pc  # noqa: PLC0415

        names = table.schema.names
        times = pc.min_max(table["_timestamp_ns" if "_timestamp_ns" in names else "timestamp_ns"]).as_py()
        self.earliest_ns = min(times["min"], times["min"] if self.earliest_ns is None else self.earliest_ns)
        self.latest_ns = max(times["max"], times["max"] if self.latest_ns is None else self.latest_ns)


def _writer(first: pa.Table, sink: Any) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415  # heavy, and only for whoever archives

    names = first.schema.names
    given = {
        "use_dictionary": [each for each in names if each.lstrip("_") in {"key", "topic", "partition", "type"}],
        "column_encoding": {each: "DELTA_BINARY_PACKED" for each in names if each in {"offset", "_offset"}},
    }
    return pq.ParquetWriter(
        sink, first.schema, compression="zstd", compression_level=1, store_schema=False, **given, **_bloom(first)
    )


def _bloom(first: pa.Table) -> dict[str, Any]:
    """A filter by key, for whoever looks for one: keys lie everywhere, so that smallest and largest tell nothing."""
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    key = next((each for each in ("key", "_key") if each in first.schema.names), None)
    if key is None or "bloom_filter_options" not in inspect.signature(pq.ParquetWriter.__init__).parameters:
        return {}  # of an older pyarrow
    different = pc.count_distinct(first[key], mode="only_valid").as_py()
    return {"bloom_filter_options": {key: {"ndv": different, "fpp": 0.01}}} if different > 1 else {}


def groups(paths: Iterable[str]) -> Iterator[pa.Table]:
    """What is in files, a group of rows at a time."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    for path in paths:
        with pq.ParquetFile(path) as opened:
            for group in range(opened.num_row_groups):
                yield opened.read_row_group(group)
