"""
Messages as Arrow columns: the one function through which the source reads a queue.

Everything else of the source works on whole columns; what a column costs is paid only if the query names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmq

BATCH_BYTES = 32 << 20
"""An Arrow batch ends at about so many bytes of payload, however few rows it has."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Columns(NamedTuple):
    """Some messages, in order. What was not asked for is None."""

    rows: int
    index: pa.Array
    value: pa.Array | None
    key: pa.Array | None
    time_ns: pa.Array | None
    kind: pa.Array | None
    headers: pa.Array | None


def read(queue: shmq.Queue, start: int, stop: int, wanted: frozenset[str], rows: int) -> Iterator[Columns]:
    """
    The messages from *start* to before *stop*, at most *rows* at a time.

    Args:
        wanted: of "value", "key", "time_ns", "kind" and "headers".

    Raises:
        Corrupt: one is damaged; those before it were handed out.
    """
    batch: list[Any] = []
    nbytes = 0
    with queue.reader(start, stop) as reader:
        for message in reader:
            batch.append(message)
            nbytes += len(message.view)
            if len(batch) >= rows or nbytes >= BATCH_BYTES:
                yield _columns(batch, wanted)
                batch, nbytes = [], 0
    if batch:
        yield _columns(batch, wanted)


def _columns(batch: list[Any], wanted: frozenset[str]) -> Columns:
    return Columns(
        rows=len(batch),
        index=pa.array([each.index for each in batch], pa.int64()),
        value=pa.array([bytes(each.view) for each in batch], pa.binary()) if "value" in wanted else None,
        key=pa.array([each.key for each in batch], pa.binary()) if "key" in wanted else None,
        time_ns=pa.array([each.time_ns for each in batch], pa.int64()) if "time_ns" in wanted else None,
        kind=pa.array([each.type for each in batch], pa.int32()) if "kind" in wanted else None,
        headers=_headers(batch) if "headers" in wanted else None,
    )


def _headers(batch: list[Any]) -> pa.Array:
    return pa.array(
        [[{"key": name, "value": _as_bytes(value)} for name, value in each.headers.items()] for each in batch], HEADERS
    )


def _as_bytes(value: Any) -> bytes:
    """A header's value, which can be anything that msgpack holds: text and bytes as they are, the rest as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    import msgspec  # noqa: PLC0415  # few messages have such headers

    return msgspec.json.encode(value)
