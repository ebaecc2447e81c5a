"""
BinaryWire written: the bytes of a value, in the codes that Java's own writer takes for it.

A number takes the shortest code that holds it, by Java's rules, which are not always the shortest ones: a long of 2**40
becomes a float, for it fits one. `encode_map` writes numbers as `writeMap` does, each as wide as its class.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

from shmq.errors import TooLarge
from shmq.formats.chronicle import binary as codes
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
    Float32,
    Hex64,
    History,
    I64Array,
    Long,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SHORT = 0x20
"""Names and texts of fewer bytes have their length in their code."""

_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_NUMBER_NAME = re.compile("0|[1-9][0-9]{0,9}")
_MAX_NAME = 0xFF


def encode(value: Any) -> bytes:
    """
    Return the document that holds *value*: a dict as its fields, `Values` one after another, else the one value.

    Codes are those of a Java program that writes the value's `long`, `double`, `String` and so on. Raises TypeError for
    a class that no wire has, and TooLarge for a number that no long can hold.
    """
    return _document(value, _Writer(boxed=False))


def encode_text(text: str) -> bytes:
    """Return what `writeText` writes: the text alone."""
    return encode(text)


def encode_fields(values: Mapping[str, Any]) -> bytes:
    """Return what `writeDocument` writes: names of fields, and their values."""
    return encode({str(name): value for name, value in values.items()})


def encode_map(values: Mapping[Any, Any]) -> bytes:
    """Return what `writeMap` writes: each key as the name of an event, each number as wide as its class in Java."""
    return _document(dict(values), _Writer(boxed=True))


def encode_call(method: str, *arguments: Any, history: History | None = None) -> bytes:
    """Return what a method writer writes for a call: the method's name as an event, and what it was called with."""
    writer = _Writer(boxed=False)
    if history is not None:
        writer.field("history", history)
    value = "" if not arguments else arguments[0] if len(arguments) == 1 else list(arguments)
    writer.field(Event(method), value)
    return bytes(writer.out)


def _document(value: Any, writer: _Writer) -> bytes:
    if isinstance(value, dict | Pairs):
        writer.fields(value)
    elif isinstance(value, Values):
        for one in value:
            writer.value(one)
    else:
        writer.value(value)
    # A document of no bytes does not exist: it gets one byte of padding.
    return bytes(writer.out) or bytes((codes.PADDING,))


def cesu8(text: str) -> bytes:
    """Return *text* in Java's kind of UTF-8: three bytes for each half of a surrogate pair, one for a NUL."""
    if text.isascii():
        return text.encode("ascii")
    return _ASTRAL.sub(_pair, text).encode("utf-8", "surrogatepass")


def _pair(found: re.Match[str]) -> str:
    point = ord(found[0]) - 0x10000
    return chr(0xD800 + (point >> 10)) + chr(0xDC00 + (point & 0x3FF))


def stop_bit(number: int) -> bytes:
    """Return the stop-bit form of *number*: seven bits in a byte, a bit of more to come, a zero byte if negative."""
    out = bytearray()
    rest = ~number if number < 0 else number
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    if number < 0:
        out.append(rest | 0x80)
        rest = 0
    out.append(rest)
    return bytes(out)


class _Writer:
    """The bytes so far; *boxed* numbers are as wide as their class."""

    def __init__(self, *, boxed: bool) -> None:
        self.out = bytearray()
        self._boxed = boxed
        self._depth = 0

    def fields(self, pairs: Mapping[Any, Any] | Pairs) -> None:
        for name, value in pairs if isinstance(pairs, Pairs) else pairs.items():
            self.field(name, value)

    def field(self, name: Any, value: Any) -> None:
        if isinstance(value, History) and name == "history":
            self._history(value)
            return
        self._name(name)
        self.value(value)

    def _name(self, name: Any) -> None:
        """Write a name: of a field, of an event, or any value as an object of the event."""
        out = self.out
        if not isinstance(name, str) or (name and max(name) > chr(_MAX_NAME)):
            out.append(codes.EVENT_OBJECT)
            boxed, self._boxed = self._boxed, True
            self.value(name)
            self._boxed = boxed
            return
        raw = name.encode("latin-1")
        if isinstance(name, Event) or self._boxed:
            out.append(codes.EVENT_NAME)
            out += stop_bit(len(raw)) + raw
        elif _NUMBER_NAME.fullmatch(name) and int(name) <= _MAX_INT:
            out.append(codes.FIELD_NUMBER)
            out += stop_bit(int(name))
        elif len(raw) < _SHORT:
            out.append(codes.FIELD_0 + len(raw))
            out += raw
        else:
            out.append(codes.FIELD_ANY)
            out += stop_bit(len(raw)) + raw

    def value(self, value: Any) -> None:
        """Write one value with its code."""
        if value is None:
            self.out.append(codes.NULL)
            return
        kind = type(value)
        write = _WRITERS.get(kind)
        if write is None:
            write = next((_WRITERS[each] for each in kind.__mro__ if each in _WRITERS), _refuse)
        write(self, value)

    # ------------------------------------------------------------ numbers
    def boolean(self, value: bool) -> None:  # it is the value
        self.out.append(codes.TRUE if value else codes.FALSE)

    def integer(self, value: int) -> None:
        if not ~_MAX_LONG <= value <= _MAX_LONG:
            raise TooLarge(f"cannot write {value} to a wire: it needs more than the 64 bits of a long")
        if self._boxed:
            narrow = not isinstance(value, Long) and ~_MAX_INT <= value <= _MAX_INT
            self._number(codes.INT32 if narrow else codes.INT64, value)
            return
        for lowest, highest, code in _LONGS:
            if lowest <= value <= highest:
                self._number(code, value)
                return
        # Java compares as longs, where the float above the largest long becomes the largest long.
        single = _single(value)
        exact = single is not None and min(int(single), _MAX_LONG) == value
        self._number(codes.FLOAT32 if exact else codes.INT64, value)

    def double(self, value: float) -> None:
        if self._boxed:
            self._number(codes.FLOAT64, value)
        elif math.isfinite(value) and value == int(value) and abs(value) <= 1 << 63:
            self._whole(value)
        elif not self._decimal(value, -(1 << 35), 1 << 42):
            exact = math.isnan(value) or _single(value) == value
            self._number(codes.FLOAT32 if exact else codes.FLOAT64, value)

    def _whole(self, value: float) -> None:
        number = int(value)
        for lowest, highest, code in _WHOLE_DOUBLES:
            if lowest <= number <= highest and (code != codes.FLOAT32 or _single(value) == value):
                self._number(code, number if code != codes.FLOAT64 else value)
                return

    def single(self, value: float) -> None:
        if self._boxed:
            self._number(codes.FLOAT32, value)
        elif math.isfinite(value) and value == int(value) and ~0x7FFF <= value <= 0xFFFF:
            self._whole(value)
        elif not self._decimal(value, -(1 << 14), 1 << 21):
            self._number(codes.FLOAT32, value)

    def _decimal(self, value: float, lowest: int, highest: int) -> bool:
        """Write *value* as a whole number of hundredths, or of 10**-4 or 10**-6, if that is exact and not large."""
        if not -highest < value < highest:
            return False
        as_read: Callable[[float], float | None] = _single if isinstance(value, Float32) else float
        millionths = _rounded(value * 1e6)
        if as_read(millionths / 1e6) != value or not lowest < millionths < highest:
            return False
        for code, divisor in ((codes.DECIMAL_2, 100), (codes.DECIMAL_4, 10_000), (codes.DECIMAL_6, 1_000_000)):
            # Java divides towards zero.
            number = int(math.copysign(abs(millionths) // (1_000_000 // divisor), millionths))
            if as_read(number / divisor) == value:
                self.out.append(code)
                self.out += stop_bit(number)
                return True
        return False

    def _number(self, code: int, value: float) -> None:
        self.out.append(code)
        self.out += codes.NUMBERS[code].pack(value)

    def hex64(self, value: Hex64) -> None:
        if not ~_MAX_LONG <= value <= _MAX_LONG:
            raise TooLarge(f"cannot write {value!r} to a wire: it needs more than the 64 bits of a long")
        self.out.append(codes.HEX64)
        self.out += struct.pack("<q", value)

    # ------------------------------------------------------------ texts
    def text(self, value: str) -> None:
        raw = cesu8(value)
        if len(raw) < _SHORT:
            self.out.append(codes.STRING_0 + len(raw))
        else:
            self.out.append(codes.STRING_ANY)
            self.out += stop_bit(len(raw))
        self.out += raw

    def _coded_text(self, code: int, value: str) -> None:
        raw = cesu8(value)
        self.out.append(code)
        self.out += stop_bit(len(raw)) + raw

    def time(self, value: Time | datetime.time) -> None:
        self._coded_text(codes.TIME, value.text if isinstance(value, Time) else java_time(value))

    def date(self, value: Date | datetime.date) -> None:
        self._coded_text(codes.DATE, value.text if isinstance(value, Date) else value.isoformat())

    def date_time(self, value: DateTime | datetime.datetime) -> None:
        if isinstance(value, DateTime):
            self._coded_text(codes.DATE_TIME, value.text)
        else:
            code = codes.DATE_TIME if value.tzinfo is None else codes.ZONED_DATE_TIME
            self._coded_text(code, java_date_time(value))

    def zoned(self, value: ZonedDateTime) -> None:
        self._coded_text(codes.ZONED_DATE_TIME, value.text)

    def uuid(self, value: uuid.UUID) -> None:
        self.out.append(codes.UUID)
        self.out += struct.pack("<QQ", value.int >> 64, value.int & 0xFFFFFFFFFFFFFFFF)

    def type_literal(self, value: TypeLiteral) -> None:
        self._coded_text(codes.TYPE_LITERAL, value.name)

    # ------------------------------------------------------------ what holds others
    def typed(self, value: Typed) -> None:
        self._coded_text(codes.TYPE_PREFIX, value.type)
        self._deeper(value.value)
        self.value(value.value)
        self._depth -= 1

    def raw(self, value: bytes | bytearray | memoryview) -> None:
        data = bytes(value)
        if self._boxed:
            self._coded_text(codes.TYPE_PREFIX, "byte[]")
        self._length(len(data) + 1)
        self.out.append(codes.U8_ARRAY)
        self.out += data

    def _length(self, nbytes: int) -> None:
        """Write the code of a block whose length is known, in as few bytes as hold that length."""
        if nbytes < 1 << 8:
            self.out += struct.pack("<BB", codes.BYTES_8, nbytes)
        elif nbytes < 1 << 16:
            self.out += struct.pack("<BH", codes.BYTES_16, nbytes)
        else:
            self.out += struct.pack("<BI", codes.BYTES_32, nbytes)

    def mapping(self, value: Mapping[Any, Any] | Pairs) -> None:
        at = self._open(value)
        self.fields(value)
        self._close(at)

    def sequence(self, value: Iterable[Any]) -> None:
        at = self._open(value)
        for one in value:
            self.value(one)
        self._close(at)

    def _open(self, value: Any) -> int:
        self._deeper(value)
        self.out.append(codes.BYTES_32)
        self.out += b"\0\0\0\0"
        return len(self.out)

    def _close(self, at: int) -> None:
        self._depth -= 1
        struct.pack_into("<I", self.out, at - 4, len(self.out) - at)

    def _deeper(self, value: Any) -> None:
        self._depth += 1
        if self._depth >= codes.MAX_DEPTH:
            raise TooLarge(f"cannot write a {type(value).__name__} to a wire: it is nested {codes.MAX_DEPTH} deep")

    def _history(self, value: History) -> None:
        self.out.append(codes.FIELD_NUMBER)
        self.out += stop_bit(codes.HISTORY_NUMBER)
        self.history(value)

    def history(self, value: History) -> None:
        sources, times = value.sources, value.timings
        body = struct.pack(f"<BB{len(sources)}i", codes.HISTORY, len(sources), *(number for number, _ in sources))
        body += struct.pack(f"<{len(sources)}q", *(index for _, index in sources))
        body += struct.pack(f"<B{len(times)}q", len(times), *times)
        self.out += struct.pack("<BH", codes.BYTES_16, len(body)) + body

    def i64_array(self, value: I64Array) -> None:
        """Write an array that programs will change, on a multiple of 8 of a document whose word is on one of 4."""
        self.out += bytes((codes.PADDING,)) * (-(len(self.out) + 5) % 8)
        self.out += struct.pack("<BQQ", codes.I64_ARRAY, value.capacity, value.used)
        self.out += struct.pack(f"<{value.capacity}q", *value.numbers)


def _refuse(_: _Writer, value: Any) -> NoReturn:
    raise TypeError(f"cannot write {value!r} to a wire: it has no code for a {type(value).__name__}")


def _single(value: float) -> float | None:
    """Return *value* as a float of 32 bits, or None if it is too large for one."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return found


def _rounded(value: float) -> int:
    """Return the nearest whole number, the upper of two: Java's Math.round."""
    floor = math.floor(value)
    return floor + (value - floor >= 0.5)


def java_time(value: datetime.time | datetime.datetime) -> str:
    """Return the time as Java's LocalTime prints it: without seconds that are zero, in groups of three digits."""
    text = f"{value.hour:02}:{value.minute:02}"
    if value.second or value.microsecond:
        text += f":{value.second:02}"
    if value.microsecond:
        text += f".{value.microsecond:06}" if value.microsecond % 1000 else f".{value.microsecond // 1000:03}"
    return text


def java_date_time(value: datetime.datetime) -> str:
    """Return date and time as Java's LocalDateTime or ZonedDateTime prints them."""
    text = f"{value.date().isoformat()}T{java_time(value)}"
    if value.tzinfo is None:
        return text
    offset = value.strftime("%z")
    zone = getattr(value.tzinfo, "key", None)
    return text + (f"{offset[:3]}:{offset[3:5]}" if int(offset[1:]) else "Z") + (f"[{zone}]" if zone else "")


_LONGS = (
    (0, 0xFF, codes.UINT8),
    (0x100, 0x7FFF, codes.INT16),
    (0x8000, 0xFFFF, codes.UINT16),
    (0x10000, _MAX_INT, codes.INT32),
    (1 << 31, 0xFFFFFFFF, codes.UINT32),
    (-0x80, -1, codes.INT8),
    (-0x8000, -0x81, codes.INT16),
    (~_MAX_INT, -0x8001, codes.INT32),
)
_WHOLE_DOUBLES = (
    (0, 0xFF, codes.UINT8),
    (0x100, 0xFFFF, codes.UINT16),
    (-0x80, -1, codes.INT8),
    (-0x8000, -0x81, codes.INT16),
    (~_MAX_LONG, 1 << 63, codes.FLOAT32),
    (0x10000, 0xFFFFFFFF, codes.UINT32),
    (~_MAX_INT, -0x8001, codes.INT32),
    (~_MAX_LONG, 1 << 63, codes.FLOAT64),
)
_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    bool: _Writer.boolean,
    Hex64: _Writer.hex64,
    int: _Writer.integer,
    Float32: _Writer.single,
    float: _Writer.double,
    str: _Writer.text,
    bytes: _Writer.raw,
    bytearray: _Writer.raw,
    memoryview: _Writer.raw,
    Time: _Writer.time,
    datetime.time: _Writer.time,
    Date: _Writer.date,
    DateTime: _Writer.date_time,
    datetime.datetime: _Writer.date_time,
    datetime.date: _Writer.date,
    ZonedDateTime: _Writer.zoned,
    uuid.UUID: _Writer.uuid,
    Typed: _Writer.typed,
    TypeLiteral: _Writer.type_literal,
    History: _Writer.history,
    I64Array: _Writer.i64_array,
    dict: _Writer.mapping,
    Pairs: _Writer.mapping,
    Values: _Writer.sequence,
    list: _Writer.sequence,
    tuple: _Writer.sequence,
}
