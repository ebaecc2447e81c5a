"""
How what is submitted lies in a native queue, so that it comes back as it went in.

    bytes       as they are, without a header
    text        UTF-8, header w: "t"
    the rest    BinaryWire, header w: "b"; or TextWire, header w: "x", where BinaryWire would give back something else
                (an empty map within another value, whole numbers that Java's writer rounds to floats)

A payload without that header, put by a local program, is bytes.
"""

from __future__ import annotations

from typing import Any

from shmq.formats import chronicle

HEADER = "w"
_TEXT, _BINARY, _SHOWN = "t", "b", "x"

Stored = tuple[bytes, dict[str, Any] | None]
"""A payload and its headers."""


def stored(value: Any) -> Stored:
    """
    Return what to put for *value*.

    Raises:
        TypeError, TooLarge: no wire has a form for it.
    """
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), {HEADER: _TEXT}
    encoded = chronicle.encode(value)
    if repr(_decoded(encoded)) == repr(
        value
    ):  # which tells 1 from 1.0 and from true, and one NaN is as good as another
        return encoded, {HEADER: _BINARY}
    return chronicle.show(value if isinstance(value, dict) else [value]).encode("utf-8", "surrogatepass"), {
        HEADER: _SHOWN
    }


def _decoded(payload: bytes) -> Any:
    try:
        return chronicle.decode(payload)
    except chronicle.NotWire:
        return None


def value_of(payload: bytes, kind: object) -> Any:
    """Return what was submitted; *kind* is its header. What does not decode (somebody else's header) is bytes."""
    try:
        if kind == _TEXT:
            return payload.decode("utf-8", "surrogatepass")
        if kind == _BINARY:
            return chronicle.decode(payload)
        if kind == _SHOWN:
            shown = chronicle.parse(payload)
            return shown if isinstance(shown, dict) else shown[0]
    except (chronicle.NotWire, UnicodeDecodeError, IndexError, TypeError, KeyError):
        return payload
    return payload
