"""
Messages as Arrow columns: the one function through which the source reads a queue.

What a column costs is paid only if the query names it; no Python runs for a single message, but for its headers.
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
    """int64"""
    value: Any
    key: Any
    time: Any
    """timestamp[ns, UTC]"""
    kind: Any
    """int32"""
    headers: Any
    fields: Any = None
    """By name, of payloads that are records: those of a record, and null where a payload is none."""


_NAMES = {"value": "payload", "key": "key", "time": "time", "kind": "type", "headers": "headers"}


def read(
    queue: shmq.Queue, start: int, stop: int, wanted: frozenset[str], rows: int, record: Any = None
) -> Iterator[Columns]:
    """
    The messages from *start* to before *stop*, at most *rows* at a time.

    Args:
        wanted: of "value", "key", "time", "kind" and "headers"; with a *record* only of "time" and "kind".
        record: numpy's dtype of payloads of which only fields are wanted; their names begin with a dot.

    Raises:
        Corrupt: one is damaged; those before it were handed out.
    """
    names = ["index", *(theirs for ours, theirs in _NAMES.items() if ours in wanted)]
    with queue.read_arrow(start, stop, columns=names, max_bytes=BATCH_BYTES, max_rows=rows, record=record) as batches:
        for batch in batches:
            found = Columns(
                batch.num_rows,
                batch["index"].view(pa.int64()),
                *(_column(batch, ours) if ours in wanted else None for ours in _NAMES),
            )
            yield found if record is None else found._replace(fields={n[1:]: batch[n] for n in record.names})


def packed_headers(queue: shmq.Queue, start: int, stop: int) -> pa.Array:
    """The headers of the messages from *start* to before *stop*, as msgpack."""
    with queue.read_arrow(start, stop, columns=["headers"]) as batches:
        return pa.chunked_array([batch["headers"] for batch in batches], pa.binary()).combine_chunks()


def _column(batch: Any, name: str) -> pa.Array:
    column = batch[_NAMES[name]]
    if name == "kind":
        return column.cast(pa.int32())
    return _headers(column) if name == "headers" else column


def _headers(packed: pa.Array) -> pa.Array:
    """Null where a message has none, as in Kafka's source."""
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), HEADERS)
    import msgspec  # noqa: PLC0415  # few queries want headers

    unpack = msgspec.msgpack.Decoder().decode
    return pa.array(
        [
            None if raw is None else [{"key": name, "value": _as_bytes(value)} for name, value in unpack(raw).items()]
            for raw in packed.to_pylist()
        ],
        HEADERS,
    )


def _as_bytes(value: Any) -> bytes:
    """A header's value, which can be anything that msgpack holds: text and bytes as they are, the rest as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(value)
