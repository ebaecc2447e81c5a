"""TextWire, written: values as the text that Chronicle's own printer makes of them, which `text` reads."""

from __future__ import annotations

import base64
import datetime
import math
import re
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

from shmq.errors import TooLarge
from shmq.formats.chronicle.binary import MAX_DEPTH
from shmq.formats.chronicle.encoder import java_date_time, java_time
from shmq.formats.chronicle.text import ESCAPES, WORDS, scalar
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Hex64,
    History,
    I64Array,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_QUOTED_FIRST = frozenset("?%*&@`0123456789+- ',#:{}[]|>!\\")
_TO_QUOTE = re.compile(r"[?,#:{}\[\]|>\\^\x00-\x1f\x80-\U0010ffff]")
_TO_ESCAPE = re.compile(r"[\x00-\x1f\\\x80-\U0010ffff]")
_SHORT_ESCAPES = {character: f"\\{code}" for code, character in ESCAPES.items()} | {"\\": "\\\\"}
_ISO = re.compile(r"[0-9A-Za-z:.+-]+")
_WHOLE_TYPE = re.compile(r"(?:[\w$.-]|\[\])+", re.ASCII)
_LONE = frozenset({*WORDS, "...", "---"})
"""Texts that would be read as something else. Java writes them without quotes, and reads some of them wrongly."""

_FLAT = 2
"""From this depth on, Java's printer keeps a map on one line."""


def show(value: Any) -> str:
    """
    Return the document that holds *value* as text, as Chronicle prints it: a dict as its events, one on a line.

    `parse` reads it back to an equal value, but for those that the text has no form for: a UUID and a zoned time with
    the name of its zone come back as text, a history as a map.
    """
    return "".join(f"{line}\n" for line in _document(value))


def _document(value: Any) -> Iterable[str]:
    if isinstance(value, dict | Pairs):
        return [f"{_name(name)}: {_shown(one, 0)}" for name, one in _pairs(value)]
    return [_shown(one, 0) for one in (value if isinstance(value, Values) else (value,))]


def _pairs(value: Mapping[Any, Any] | Pairs) -> Iterable[tuple[Any, Any]]:
    return value if isinstance(value, Pairs) else value.items()


def _name(name: Any) -> str:
    return quoted(name) if isinstance(name, str) else f"? {_shown(name, _FLAT)}"


def quoted(text: str) -> str:
    """Return *text* with quotes around it where plain text would not be read as it, and without them elsewhere."""
    if text and text[0] not in _QUOTED_FIRST and not text[-1].isspace() and not _TO_QUOTE.search(text):
        if text in _LONE:
            return f'"{text}"'
        if '"' not in text:
            return text
        if "'" not in text:
            return f"'{text}'"
    return '"' + _TO_ESCAPE.sub(_escape, text).replace('"', '\\"') + '"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    point = ord(character)
    if point > 0xFFFF:
        point -= 0x10000
        return f"\\u{0xD800 + (point >> 10):04X}\\u{0xDC00 + (point & 0x3FF):04X}"
    return f"\\u{point:04X}" if point > 0xFF else f"\\x{point:02X}"


def _shown(value: Any, depth: int) -> str:
    """Return *value*, whose bracket stands at *depth*."""
    if depth > MAX_DEPTH:
        raise TooLarge(f"cannot show a {type(value).__name__} as text: it is nested more than {MAX_DEPTH} deep")
    kind = type(value)
    show_it = _SHOWN_AS.get(kind)
    if show_it is None:
        show_it = next((_SHOWN_AS[each] for each in kind.__mro__ if each in _SHOWN_AS), _refuse)
    return show_it(value, depth)


def _refuse(value: Any, _: int) -> NoReturn:
    raise TypeError(f"cannot show {value!r} as text: a wire has no form for a {type(value).__name__}")


def _mapping(value: Mapping[Any, Any] | Pairs, depth: int) -> str:
    items = [f"{_name(name)}: {_shown(one, depth + 1)}" for name, one in _pairs(value)]
    return _bracketed("{", items, "}", depth, flat=depth >= _FLAT)


def _sequence(value: Iterable[Any], depth: int) -> str:
    items = [_shown(one, depth + 1) for one in value]
    return _bracketed("[", items, "]", depth, flat=not items or depth > _FLAT)


def _bracketed(opening: str, items: list[str], closing: str, depth: int, *, flat: bool) -> str:
    if flat or not items:
        return f"{opening} {', '.join(items)} {closing}" if items else f"{opening} {closing}"
    indent = "  " * depth
    return f"{opening}\n" + ",\n".join(f"{indent}  {item}" for item in items) + f"\n{indent}{closing}"


def number(value: float) -> str:
    """Return *value* as Chronicle's printer has it: `15E6` for fifteen million, `1.0E-6` for a millionth."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if 1e3 <= size < 1e15:
        for power, exponent in ((1e6, 6), (1e3, 3)):
            if size % power == 0 and size / power < 1 << 31:
                return f"{int(value / power)}E{exponent}"
    if size == 0 or 1e-3 <= size < 1e15:
        return repr(float(value))
    mantissa, _, exponent_text = f"{float(value)!r}".partition("e")
    if not exponent_text:
        # repr has no exponent for these, Java has.
        digits = f"{float(value):.17e}"
        for precision in range(17):
            digits = f"{float(value):.{precision}e}"
            if float(digits) == value:
                break
        mantissa, _, exponent_text = digits.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent_text)}"


def _text_of(value: Time | Date | DateTime | ZonedDateTime, _: int) -> str:
    return value.text if _ISO.fullmatch(value.text) and not isinstance(scalar(value.text), str) else quoted(value.text)


def _typed(value: Typed, depth: int) -> str:
    name = (
        value.type if _WHOLE_TYPE.fullmatch(value.type) else re.sub(r"[^\w$.-]", "_", value.type, flags=re.ASCII) or "_"
    )
    return f"!{name} {_shown(value.value, depth)}"


def _array(value: I64Array, depth: int) -> str:
    """Return an array as Chronicle dumps it: what was set one on a line, the rest on one more."""
    if value.capacity == value.used == len(value.numbers) <= _FLAT:
        return _sequence(value.numbers, depth)
    indent = "  " * depth
    numbers = [str(number_) for number_ in value.numbers]
    rows = numbers[: value.used]
    if rest := numbers[value.used :]:
        rows.append(", ".join(rest))
    return (
        f"[\n{indent}  # length: {value.capacity}, used: {value.used}\n{indent}  "
        + f",\n{indent}  ".join(rows)
        + (f"\n{indent}]")
    )


def _binary(value: bytes | bytearray | memoryview) -> str:
    # Where nothing follows, Java takes the next name for the base64.
    return f"!!binary {base64.b64encode(value).decode() or chr(34) * 2}"


def _history(value: History, depth: int) -> str:
    sources = [one for number_, index in value.sources for one in (number_, Hex64(index))]
    return _mapping({"sources": sources, "timings": list(value.timings)}, depth)


_SHOWN_AS: dict[type, Callable[[Any, int], str]] = {
    type(None): lambda _, __: '!!null ""',
    bool: lambda value, _: "true" if value else "false",
    Hex64: lambda value, _: f"0x{value & 0xFFFFFFFFFFFFFFFF:x}",
    int: lambda value, _: str(value),
    float: lambda value, _: number(value),
    str: lambda value, _: quoted(value),
    bytes: lambda value, _: _binary(value),
    bytearray: lambda value, _: _binary(value),
    memoryview: lambda value, _: _binary(value),
    Time: _text_of,
    Date: _text_of,
    DateTime: _text_of,
    ZonedDateTime: _text_of,
    datetime.time: lambda value, depth: _text_of(Time(java_time(value)), depth),
    datetime.datetime: lambda value, depth: _text_of(DateTime(java_date_time(value)), depth),
    datetime.date: lambda value, depth: _text_of(Date(value.isoformat()), depth),
    uuid.UUID: lambda value, _: str(value),
    Typed: _typed,
    TypeLiteral: lambda value, _: f"!type {quoted(value.name)}",
    History: _history,
    I64Array: _array,
    dict: _mapping,
    Pairs: _mapping,
    Values: _sequence,
    list: _sequence,
    tuple: _sequence,
}
