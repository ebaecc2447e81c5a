"""The two wires of a document, text and binary: each is read by its first byte, and answered in itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from shmq.formats import chronicle
from shmq.formats.chronicle import binary

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES = 10_000
"""Names and values that a document may have. Each takes far more memory here than on the wire."""

_QUOTED = re.compile(rb"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'", re.DOTALL)
_ODD = frozenset({binary.EVENT_OBJECT, binary.PADDING_32, binary.COMMENT})
"""What a large document must not have between its values: a name of these holds any number of values itself."""
_SEPARATORS = (b",", b":", b"\n", b"!", b"[", b"{")


class Text:
    """TextWire."""

    name = "Text"

    @staticmethod
    def read(body: bytes) -> Any:
        """
        Return the document.

        Raises:
            NotWire: it is none, or has too many names and values. The text is about the document alone.
        """
        if len(body) > NODES and _separators(body) > NODES and _separators(_QUOTED.sub(b"", body)) > NODES:
            raise chronicle.NotWire(f"a document of more than {NODES} names and values; long texts stand in quotes")
        return chronicle.parse(body)

    @staticmethod
    def write(events: Mapping[str, Any]) -> bytes:
        """Return the document of *events*."""
        return chronicle.show(events).encode("utf-8", "surrogatepass")


class Binary:
    """BinaryWire."""

    name = "Binary"

    @staticmethod
    def read(body: bytes) -> Any:
        """As `Text.read`."""
        if len(body) > NODES:
            _count(body)
        return chronicle.decode(body)

    @staticmethod
    def write(events: Mapping[str, Any]) -> bytes:
        """Return the document of *events*."""
        return chronicle.encode({chronicle.Event(name): value for name, value in events.items()})


Wire = type[Text] | type[Binary]
BY_NAME: dict[str, Wire] = {"Text": Text, "Binary": Binary}


def of(body: bytes) -> Wire:
    """Return the wire in which *body* is written."""
    return Binary if body and body[0] >= binary.BYTES_8 else Text


def _separators(body: bytes) -> int:
    return sum(body.count(each) for each in _SEPARATORS)


def _count(body: bytes) -> None:
    """
    Refuse a document of too many values before anything is made of them.

    Raises:
        NotWire: it has them, or is no document.
    """
    left = NODES
    ahead = [(0, len(body), 0)]
    while ahead:
        start, stop, depth = ahead.pop()
        _refuse_odd(body, start, stop)
        for field in binary.fields(body, start, stop):
            left -= 1
            if not left or depth > binary.MAX_DEPTH:
                raise chronicle.NotWire(f"a document of more than {NODES} names and values")
            if field.block and body[field.body : field.body + 1] != bytes((binary.U8_ARRAY,)):
                ahead.append((field.body, field.stop, depth + 1))
            _refuse_odd(body, field.stop, stop)


def _refuse_odd(body: bytes, at: int, stop: int) -> None:
    """
    Refuse what could hide values from `_count`.

    Raises:
        NotWire: it stands at *at*, or behind padding there.
    """
    while at < stop and body[at] == binary.PADDING:
        at += 1
    if at < stop and body[at] in _ODD:
        raise chronicle.NotWire(f"byte {at}: code {body[at]:#x} in a document of more than {NODES} bytes")


def whole(value: Any) -> int | None:
    """Return *value* as the integer that it is (Java writes some long ones as floats), or None."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
