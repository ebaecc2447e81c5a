"""
Messages as rows of an archive: which columns there are, and how they are filled out of a queue.

A raw archive has the columns of the source, `offset`, `timestamp`, `key`, `value` and so on. A typed one has the fields
of the payloads, decoded once, and beside them the same columns, with an underscore in front: also `_value`, the payload
as it was, so that nothing is lost that the schema does not name, and `_corrupt`, what did not parse.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from shmq.spark.archive import ddl
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    import shmq
    from shmq.spark import places
    from shmq.spark.payload import Decoder

_BATCH_ROWS = 100_000
_WANTED = frozenset({"value", "key", "time", "kind", "headers"})
META = ("offset", "timestamp", "timestamp_ns", "partition", "topic", "type", "key", "value", "headers")
CORRUPT = "_corrupt"
TYPED = ("json", "msgpack", "struct")


class Span(NamedTuple):
    """Which messages: those of a shard from *first* to before *stop*, padding included."""

    topic: str
    shard: int
    queue_id: str
    first: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a row is."""

    kind: str = "raw"
    fields: str = ""
    """Of payloads, in words: user BIGINT, kind STRING."""
    dtype: str = ""

    @property
    def prefix(self) -> str:
        """What stands in front of the names of the message's own columns."""
        return "" if self.kind == "raw" else "_"

    def schema(self) -> pa.Schema:
        """The columns."""
        import pyarrow as pa  # noqa: PLC0415  # heavy, and only for whoever archives

        from shmq.spark import columns  # noqa: PLC0415

        kinds = {
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", "UTC"),
            "timestamp_ns": pa.int64(),
            "partition": pa.int32(),
            "topic": pa.string(),
            "type": pa.int32(),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": columns.HEADERS,
        }
        own = [pa.field(f"{self.prefix}{name}", kinds[name]) for name in META]
        return pa.schema(own if self.kind == "raw" else [*self.payload(), pa.field(CORRUPT, pa.binary()), *own])

    def payload(self) -> pa.Schema:
        """The fields of payloads."""
        return ddl.schema(self.fields)

    def decoder(self) -> Decoder | None:
        """What takes them out of payloads; None where nothing does."""
        from shmq.spark.payload import Decoder  # noqa: PLC0415

        return None if self.kind == "raw" else Decoder(self.kind, self.payload(), self.dtype or None)


RAW = Layout()


def layout(queue: shmq.Queue, value: str | None, schema: str | None, dtype: str | None) -> Layout:
    """
    What the rows of an archive are, by what is said of the payloads.

    Args:
        queue: the one they are of, whose codec tells where *value* is not said.
        value: "json", "msgpack" or "struct".
        schema: the fields; None for payloads as they are.
        dtype: for "struct".

    Raises:
        BadOption: such payloads have no fields, or the schema cannot be.
    """
    if schema is None:
        return RAW
    kind = value or queue.options.codec
    if kind not in TYPED:
        raise BadOption(
            f"an archive with a schema decodes {', '.join(TYPED)}, and {queue.path} has payloads of {kind!r}: say "
            "which of them they are, or leave the schema out"
        )
    if kind == "struct" and not dtype:
        raise BadOption("an archive of value=struct with a schema needs the dtype, like 'price:<f8, size:<i4'")
    found = Layout(kind, schema, dtype or "")
    taken = {CORRUPT, "_date", *(f"_{name}" for name in META)} & set(found.payload().names)
    if taken:
        raise BadOption(f"{min(taken)} is a column of the message itself in an archive; call the field something else")
    return found


def prefix_of(names: list[str]) -> str:
    """What stands in front of the message's own columns, in an archive that has these."""
    return "_" if "_offset" in names else ""


def tables(queue: shmq.Queue, shard: places.Shard, start: int, stop: int, how: Layout) -> Iterator[pa.Table]:
    """The messages from *start* to before *stop* as rows, as Spark and everybody else will read them."""
    import pyarrow as pa  # noqa: PLC0415

    from shmq.spark import columns  # noqa: PLC0415

    schema = how.schema()
    decoder = how.decoder()
    for batch in columns.read(queue, start, stop, _WANTED, _BATCH_ROWS):
        own = {
            "offset": batch.index,
            "timestamp": batch.time.cast(pa.timestamp("us", "UTC"), safe=False),
            "timestamp_ns": batch.time.view(pa.int64()),
            "partition": pa.repeat(pa.scalar(shard.number, pa.int32()), batch.rows),
            "topic": pa.repeat(pa.scalar(shard.topic, pa.string()), batch.rows),
            "type": batch.kind,
            "key": batch.key,
            "value": batch.value,
            "headers": batch.headers,
        }
        found = {f"{how.prefix}{name}": column for name, column in own.items()}
        if decoder is not None:
            found |= _decoded(batch.value, decoder)
        yield pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def _decoded(values: pa.Array, decoder: Decoder) -> dict[str, pa.Array]:
    """The payloads' fields, by the source's own decoder; and those that have none."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    found = decoder(values)
    nothing = pa.scalar(None, pa.binary())
    corrupt = pa.nulls(len(values), pa.binary()) if found.bad is None else pc.if_else(found.bad, values, nothing)
    return {**{name: found.table[name] for name in found.table.schema.names}, CORRUPT: corrupt}


def as_raw(table: pa.Table) -> pa.Table:
    """The message's own columns, by the names that they have in a raw archive."""
    prefix = prefix_of(table.schema.names)
    return table.select([f"{prefix}{name}" for name in META]).rename_columns(list(META))
