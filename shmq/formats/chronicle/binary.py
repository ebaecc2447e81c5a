"""
BinaryWire: the bytes of a document, as values and as fields with their addresses.

A code of one byte says what follows it: a name, a number, a text, a block of more. Numbers are little-endian. What a
program changes in place (a long, an array of longs) is padded so that it lies on a multiple of its size, which is why
`fields` tells where each value lies. docs/formats/chronicle.md has the table of codes.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
    Hex64,
    History,
    I64Array,
    NotWire,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
    mapping,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_DEPTH = 100
"""Blocks within blocks, and types before types, together. Chronicle's own files need five."""

BYTES_8, BYTES_16, BYTES_32 = 0x80, 0x81, 0x82
HISTORY, U8_ARRAY, I64_ARRAY = 0x86, 0x8A, 0x8D
PADDING_32, PADDING = 0x8E, 0x8F
FLOAT32, FLOAT64 = 0x90, 0x91
DECIMAL_2, DECIMAL_4, DECIMAL_6 = 0x92, 0x94, 0x96
UUID = 0xA0
UINT8, UINT16, UINT32 = 0xA1, 0xA2, 0xA3
INT8, INT16, INT32, INT64, HEX64 = 0xA4, 0xA5, 0xA6, 0xA7, 0xAF
FALSE, TRUE, NULL = 0xB0, 0xB1, 0xBB
TIME, DATE, DATE_TIME, ZONED_DATE_TIME = 0xB2, 0xB3, 0xB4, 0xB5
TYPE_PREFIX, TYPE_LITERAL = 0xB6, 0xBC
FIELD_ANY, STRING_ANY, EVENT_NAME, FIELD_NUMBER, EVENT_OBJECT = 0xB7, 0xB8, 0xB9, 0xBA, 0xBD
COMMENT = 0xBE
FIELD_0, STRING_0 = 0xC0, 0xE0

HISTORY_NUMBER = -1
"""The number of the field that holds a message's history; its name is "history"."""

_BLOCKS = {BYTES_8: struct.Struct("<B"), BYTES_16: struct.Struct("<H"), BYTES_32: struct.Struct("<I")}
NUMBERS: dict[int, struct.Struct] = {
    FLOAT32: struct.Struct("<f"),
    FLOAT64: struct.Struct("<d"),
    UINT8: struct.Struct("<B"),
    UINT16: struct.Struct("<H"),
    UINT32: struct.Struct("<I"),
    INT8: struct.Struct("<b"),
    INT16: struct.Struct("<h"),
    INT32: struct.Struct("<i"),
    INT64: struct.Struct("<q"),
    0xA8: struct.Struct("<B"),
    0xA9: struct.Struct("<H"),
}
_DECIMALS = {DECIMAL_2: 100, DECIMAL_4: 10_000, DECIMAL_6: 1_000_000}
_WHOLE_BLOCK = frozenset({HISTORY, U8_ARRAY, I64_ARRAY})
_CONSTANTS = {FALSE: False, TRUE: True, NULL: None}
_I64 = struct.Struct("<q")
_U32 = struct.Struct("<I")
_U64_PAIR = struct.Struct("<QQ")
_NAME_CODES = frozenset({FIELD_ANY, EVENT_NAME, FIELD_NUMBER, EVENT_OBJECT, *range(FIELD_0, STRING_0)})
_LONGEST_STOP_BIT = 11


class Field(NamedTuple):
    """One value of a document, the name before it, and where its bytes are."""

    name: Any
    """Its name; None where a value stands without one. Any value where an object stands for the name."""
    event: bool
    """Whether the name is that of an event (of a method, of a key) and not that of a field."""
    types: tuple[str, ...]
    """The names of types before the value, the outermost first; nearly always none or one."""
    code: int
    """The value's own code; a code below 0x80 is the number itself."""
    at: int
    """Where that code lies."""
    body: int
    """Where what follows the code begins: the 8 bytes of a long, a block's content behind its length."""
    stop: int
    """The first byte behind the value."""
    value: Any
    """The value; None of a block, whose fields are `fields(data, body, stop)`."""

    @property
    def block(self) -> bool:
        """Whether the value is a block of more fields or values."""
        return self.code in _BLOCKS


def fields(data: bytes, start: int = 0, stop: int | None = None) -> Iterator[Field]:
    """
    Walk over the fields and values of data[start:stop], one level of them, and skip padding and comments.

    Of a long (code 0xA7) `body` is the address of its 8 bytes; an array of longs (0x8D) has an `I64Array` with the
    address of its first number as its value. Addresses count from the beginning of *data*. Raises NotWire for what is
    no BinaryWire, and nothing else.
    """
    end = len(data) if stop is None else stop
    at = _past_padding(data, start, end)
    while at < end:
        name: Any = None
        code = data[at]
        if code in _NAME_CODES:
            name, at = _name(data, at, end)
        types, at, body, behind, value = _typed_value(data, at, end)
        yield Field(name, code in {EVENT_NAME, EVENT_OBJECT}, types, data[at], at, body, behind, value)
        at = _past_padding(data, behind, end)


def _past_padding(data: bytes, at: int, end: int) -> int:
    """Return the first byte from *at* on that is neither padding nor a comment."""
    while at < end:
        code = data[at]
        if code == PADDING:
            at += 1
        elif code == PADDING_32:
            _need(at, 5, end, "padding")
            at += 5 + _U32.unpack_from(data, at + 1)[0]
            if at > end:
                raise NotWire(f"padding goes on behind the end at byte {end}")
        elif code == COMMENT:
            _, at = _text(data, at + 1, end)
        else:
            break
    return at


def _need(at: int, nbytes: int, end: int, what: str) -> None:
    if nbytes > end - at:
        raise NotWire(f"byte {at}: {what} needs {nbytes} bytes, and the document ends at byte {end}")


def _name(data: bytes, at: int, end: int, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """Return the name at *at* and where the value begins."""
    code = data[at]
    if code == FIELD_NUMBER:
        number, at = stop_bit(data, at + 1, end)
        return "history" if number == HISTORY_NUMBER else str(number), at
    if code == EVENT_OBJECT:
        return _whole_value(data, at + 1, end, depth)
    if code >= FIELD_0:
        size, at = code - FIELD_0, at + 1
    else:
        size, at = stop_bit(data, at + 1, end)
    if size < 0:
        raise NotWire(f"byte {at}: a name of {size} bytes")
    _need(at, size, end, "a name")
    name = data[at : at + size].decode("latin-1")
    return Event(name) if code == EVENT_NAME else name, at + size


def stop_bit(data: bytes, at: int, end: int) -> tuple[int, int]:
    """
    Return the stop-bit integer at *at*, and where it ends.

    Seven bits in each byte, the low ones first; the highest bit says that more follow. A last byte of zero behind
    others means that the bits of the number are to be inverted.
    """
    number = shift = 0
    first = at
    while True:
        _need(at, 1, end, "a stop-bit number")
        byte = data[at]
        at += 1
        if byte < 0x80:
            break
        number |= (byte & 0x7F) << shift
        shift += 7
        if at - first >= _LONGEST_STOP_BIT:
            raise NotWire(f"byte {first}: a stop-bit number of more than {_LONGEST_STOP_BIT} bytes")
    if byte == 0 and shift:
        number = ~number
    else:
        number |= byte << shift
    if not -(1 << 63) <= number < 1 << 63:
        raise NotWire(f"byte {first}: a stop-bit number of more than 64 bits")
    return number, at


def _text(data: bytes, at: int, end: int) -> tuple[str | None, int]:
    """Return the text behind its stop-bit length at *at* (None for the length -1), and where it ends."""
    size, at = stop_bit(data, at, end)
    if size == -1:
        return None, at
    if size < 0:
        raise NotWire(f"byte {at}: a text of {size} bytes")
    _need(at, size, end, "a text")
    return cesu8(data, at, at + size), at + size


def cesu8(data: bytes, start: int, stop: int) -> str:
    """
    Return the text in data[start:stop], in Java's kind of UTF-8: six bytes for what needs a pair of surrogates.

    A surrogate without its other half stays one. Four bytes for one character are refused, as Java refuses them.
    """
    raw = data[start:stop]
    if raw.isascii():
        return raw.decode("ascii")
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise NotWire(f"byte {start + error.start}: a text that is not UTF-8: {error.reason}") from None
    if max(text) > "\uffff":
        raise NotWire(f"byte {start}: a text with a character of four bytes, where Java writes two surrogates")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _typed_value(data: bytes, at: int, end: int, most: int = MAX_DEPTH) -> tuple[tuple[str, ...], int, int, int, Any]:
    """Return (types, at, body, stop, value) of the value at *at*, of which None is the value if it is a block."""
    types: list[str] = []
    while True:
        at = _past_padding(data, at, end)
        if at >= end:
            raise NotWire(f"byte {at}: a name or a type without a value")
        if data[at] != TYPE_PREFIX:
            break
        name, at = _text(data, at + 1, end)
        types.append(name or "")
        if len(types) >= most:
            raise NotWire(f"byte {at}: more than {MAX_DEPTH} types and blocks within one another")
    return (tuple(types), at, *_value(data, at, end))


def _value(data: bytes, at: int, end: int) -> tuple[int, int, Any]:
    """Return (body, stop, value) of the value whose code is at *at*."""
    code = data[at]
    body = at + 1
    if code < BYTES_8:
        return body, body, code
    if code >= STRING_0:
        stop = body + code - STRING_0
        _need(body, code - STRING_0, end, "a text")
        return body, stop, cesu8(data, body, stop)
    layout = NUMBERS.get(code)
    if layout is not None:
        _need(body, layout.size, end, "a number")
        return body, body + layout.size, layout.unpack_from(data, body)[0]
    if code in _BLOCKS:
        layout = _BLOCKS[code]
        _need(body, layout.size, end, "the length of a block")
        size = layout.unpack_from(data, body)[0]
        _need(body + layout.size, size, end, "a block")
        return body + layout.size, body + layout.size + size, None
    if code in _CONSTANTS:
        return body, body, _CONSTANTS[code]
    reader = _OTHERS.get(code)
    if reader is None:
        raise NotWire(f"byte {at}: {code:#04x} is not the code of a value")
    value, stop = reader(data, body, end)
    return body, stop, value


def _decimal(divisor: int) -> Callable[[bytes, int, int], tuple[float, int]]:
    def read(data: bytes, at: int, end: int) -> tuple[float, int]:
        number, stop = stop_bit(data, at, end)
        return number / divisor, stop

    return read


def _string(data: bytes, at: int, end: int) -> tuple[str | None, int]:
    return _text(data, at, end)


def _named(kind: type[Any]) -> Callable[[bytes, int, int], tuple[Any, int]]:
    """Return the reader of a text that is told apart from other texts by its class."""

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        text, stop = _text(data, at, end)
        return (None if text is None else kind(text)), stop

    return read


def _uuid(data: bytes, at: int, end: int) -> tuple[uuid.UUID, int]:
    _need(at, 16, end, "a UUID")
    high, low = _U64_PAIR.unpack_from(data, at)
    return uuid.UUID(int=high << 64 | low), at + 16


def _hex64(data: bytes, at: int, end: int) -> tuple[Hex64, int]:
    _need(at, 8, end, "a number")
    return Hex64(_I64.unpack_from(data, at)[0]), at + 8


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """All bytes to the end of the enclosing block."""
    return data[at:end], end


def _i64_array(data: bytes, at: int, end: int) -> tuple[I64Array, int]:
    _need(at, 16, end, "an array of longs")
    capacity, used = _U64_PAIR.unpack_from(data, at)
    _need(at + 16, 8 * capacity, end, f"an array of {capacity} longs")
    return I64Array(capacity, used, at + 16), at + 16 + 8 * capacity


def with_numbers(data: bytes, array: I64Array) -> I64Array:
    """Return *array*, which `fields` found in *data*, with its numbers."""
    return replace(array, numbers=struct.unpack_from(f"<{array.capacity}q", data, array.address))


def _history(data: bytes, at: int, end: int) -> tuple[History, int]:
    """Two lists with their lengths before them: of the sources (all ids, then all indexes), and of times."""
    _need(at, 1, end, "a history")
    count = data[at]
    at += 1
    _need(at, 12 * count + 1, end, "the sources of a history")
    ids = struct.unpack_from(f"<{count}i", data, at)
    indexes = struct.unpack_from(f"<{count}q", data, at + 4 * count)
    at += 12 * count
    times = data[at]
    at += 1
    _need(at, 8 * times, end, "the times of a history")
    timings = struct.unpack_from(f"<{times}q", data, at)
    return History(tuple(zip(ids, indexes, strict=True)), timings), at + 8 * times


_OTHERS: dict[int, Callable[[bytes, int, int], tuple[Any, int]]] = {
    HISTORY: _history,
    U8_ARRAY: _bytes,
    I64_ARRAY: _i64_array,
    **{code: _decimal(divisor) for code, divisor in _DECIMALS.items()},
    UUID: _uuid,
    HEX64: _hex64,
    TIME: _named(Time),
    DATE: _named(Date),
    DATE_TIME: _named(DateTime),
    ZONED_DATE_TIME: _named(ZonedDateTime),
    TYPE_LITERAL: _named(TypeLiteral),
    STRING_ANY: _string,
}


def _whole_value(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """Return the value at *at* whole, with what is in its blocks, and where it ends."""
    types, at, body, stop, value = _typed_value(data, at, end, depth)
    if data[at] in _BLOCKS:
        value = _block(data, body, stop, depth - len(types) - 1)
    elif data[at] == I64_ARRAY:
        value = with_numbers(data, value)
    for name in reversed(types):
        value = Typed(name, value)
    return value, stop


def _block(data: bytes, start: int, stop: int, depth: int) -> Any:
    """
    Return what is in a block: a map, a sequence, bytes or a history, by its first code.

    An empty block may have been any of them: Java's reader takes it for a sequence, and so does this one.
    """
    if depth <= 0:
        raise NotWire(f"byte {start}: more than {MAX_DEPTH} types and blocks within one another")
    at = _past_padding(data, start, stop)
    if at >= stop:
        return []
    code = data[at]
    if code in _NAME_CODES:
        return _map(data, at, stop, depth)
    if code in _WHOLE_BLOCK:
        value, behind = _whole_value(data, at, stop, depth)
        if _past_padding(data, behind, stop) != stop:
            raise NotWire(f"byte {behind}: something stands behind the value that fills a block")
        return value
    return _sequence(data, at, stop, depth)


def _map(data: bytes, at: int, stop: int, depth: int) -> dict[Any, Any] | Pairs:
    """Return the fields from *at* to *stop*."""
    pairs = []
    while at < stop:
        if data[at] not in _NAME_CODES:
            raise NotWire(f"byte {at}: {data[at]:#04x} stands where the name of a field must")
        name, at = _name(data, at, stop, depth)
        value, at = _whole_value(data, at, stop, depth)
        pairs.append((name, value))
        at = _past_padding(data, at, stop)
    return mapping(pairs)


def _sequence(data: bytes, at: int, stop: int, depth: int) -> list[Any]:
    """Return the values from *at* to *stop*."""
    values = []
    while at < stop:
        value, at = _whole_value(data, at, stop, depth)
        values.append(value)
        at = _past_padding(data, at, stop)
    return values


def decode(payload: bytes) -> Any:
    """
    Return the value of a whole document, or raise NotWire: a message of `writeBytes` may be anything.

    Fields are a dict (of event names, which are `Event`s, too), one value without a name is that value, several are
    `Values`, and a document of nothing but padding is an empty dict.
    """
    end = len(payload)
    at = _past_padding(payload, 0, end)
    if at >= end:
        return {}
    if payload[at] in _NAME_CODES:
        return _map(payload, at, end, MAX_DEPTH)
    if payload[at] < BYTES_8:
        # As Java's own dump does: text of other writers would be a row of numbers otherwise.
        raise NotWire(
            f"byte {at}: a document begins with {payload[at]:#04x}, which is rather a character than a number"
        )
    values = _sequence(payload, at, end, MAX_DEPTH)
    return values[0] if len(values) == 1 else Values(values)
