"""
Columns into payloads: an object in JSON or msgpack for each row, or an Arrow stream for all of them.

What `objects` reads back is equal. JSON has bytes in base64, days, times and decimals as text, and "NaN" in quotes.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def encoded(kind: str, rows: pa.RecordBatch) -> pa.Array:
    """
    The payloads of some rows.

    Args:
        kind: "json" or "msgpack", a payload for each row; or "arrow", one for all.
        rows: all of their columns go into payloads.
    """
    if kind == "arrow":
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_batch(rows)
        return pa.array([out.getvalue().to_pybytes()], pa.binary())
    import msgspec  # noqa: PLC0415  # only who encodes pays for it

    objects = rows.to_pylist(maps_as_pydicts="strict")
    if kind == "msgpack":
        return pa.array(list(map(msgspec.msgpack.Encoder().encode, objects)), pa.binary())
    if not all(map(_is_json, rows.columns)):
        objects = [_as_json(each) for each in objects]
    return pa.array(list(map(msgspec.json.Encoder().encode, objects)), pa.binary())


def _is_json(column: pa.Array) -> bool:
    """Whether JSON has all of its values: it has no numbers that are none, and no keys but text."""
    if pa.types.is_struct(column.type):
        return all(map(_is_json, column.flatten()))
    if pa.types.is_map(column.type):
        is_number = pa.types.is_floating(column.type.key_type) or pa.types.is_boolean(column.type.key_type)
        return not is_number and _is_json(column.items)
    if pa.types.is_list(column.type):
        return _is_json(column.flatten())
    if not pa.types.is_floating(column.type):
        return True
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _as_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {_as_key(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return value


def _as_key(key: Any) -> Any:
    return str(key).lower() if isinstance(key, bool) else _as_json(key)
