"""
Rows without a value, as Kafka has them: of that key there is nothing any more.

A message has bytes, if none, so a tombstone is one without a byte and with a header that tells it from a value which is
empty. What reads it as Kafka's columns gets a null again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = "tombstone"


def nulls(values: Any, headers: Callable[[], Any]) -> Any:
    """*values*, null where the message is a tombstone. *headers* is asked only where some are empty."""
    empty = pc.equal(pc.binary_length(values), 0)
    if not pc.any(empty).as_py():
        return values
    import msgspec  # noqa: PLC0415  # few messages are empty

    unpack = msgspec.msgpack.Decoder().decode
    packed = headers().to_pylist()
    gone = [
        flag and raw is not None and HEADER in unpack(raw) for flag, raw in zip(empty.to_pylist(), packed, strict=True)
    ]
    return pc.if_else(pa.array(gone, pa.bool_()), pa.scalar(None, values.type), values) if any(gone) else values
