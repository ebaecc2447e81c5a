"""
TextWire, read: documents of the YAML-like text that Chronicle prints, dumps and sends. `printer` writes it.

It is not YAML: a `#` begins a comment inside plain text too, names need no blank behind their colon, types stand before
values and a null has a type of its own. So no YAML library reads or writes it. Names and values are read in one pass
over the text, and nothing that a document says is ever looked up or made into a class.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn

from shmq.formats.chronicle.binary import MAX_DEPTH
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
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
    from collections.abc import Callable

# All repeats are possessive: a text that does not fit must not be tried in ever more ways.
_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_BLANKS = re.compile(r"[ \t]*")
_MARKER = re.compile(r"(?:---|\.\.\.)(?=[ \t\r\n]|\Z)[^\n]*")
"""A line that stands for the four bytes before a document, in the texts that tell about them."""

_NAME = re.compile(r"[^\"'#\x00\r\n{}\[\]:,!?|][^\"#\x00\r\n}\]:,]*(?=:)")
_BEFORE = r"(?=[\x00-\x20!{\"\[]|\Z)"
"""A colon or a comma before one of these ends plain text; another one belongs to it."""

_PLAIN = re.compile(rf"(?:[^\"#\x00\r\n}}\]:,]++|(?![:,]{_BEFORE})[:,])*+")
_PLAIN_IN_BRACKETS = re.compile(rf"(?:[^\"#\x00\r\n}}\]:,]++|(?!:{_BEFORE}):)*+")
_CSP = re.compile(rf"(?:[^\"#\x00\r\n}}\]:,]++|(?<![ \t])#|(?![:,]{_BEFORE})[:,])*+")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]++|\\.|'')*+)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_TYPE = re.compile(r"!+((?:[\w$.-]|\[\])*)", re.ASCII)
_BASE64 = re.compile(r"[^ \t\r\n,}\]]*")
_BLOCK = re.compile(r"\|[+-]?[ \t]*(?:#[^\n]*)?\r?\n")
_DASH_AND_MORE = re.compile(r"-[ \t]")
_DASH = re.compile(r"-(?=[ \t\r\n]|\Z)")

_HEX = re.compile(r"([+-]?)0[xX]([0-9A-Fa-f]{1,16})")
_OCTAL = re.compile(r"([+-]?)0([0-7]{1,22})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?[fFdD]?|[+-](?:Infinity|NaN)", re.ASCII)
_LONGEST_NUMBER = 40
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
_DATE = r"[+-]?[0-9]{4,10}-[0-9]{2}-[0-9]{2}"
_DATES: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(_TIME), Time),
    (re.compile(_DATE), Date),
    (re.compile(f"{_DATE}T{_TIME}"), DateTime),
    (re.compile(rf"{_DATE}T{_TIME}(?:Z|[+-][0-9:]{{2,8}})"), ZonedDateTime),
)
WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
_NUMBER_TYPES = frozenset({"byte", "short", "int", "long", "float", "double"})
_SHOWN = 20


def parse(text: str | bytes) -> Any:
    """
    Return the value of a document of text: a dict of its events, else its one value, or `Values` if there are more.

    `---` and `...` lines are passed over. A type that is not one of the wire's own becomes a `Typed`. Raises NotWire,
    with the line and the column, for what is no TextWire.
    """
    return _Parser(_decoded(text) if isinstance(text, bytes) else text).document()


def _decoded(data: bytes) -> str:
    try:
        return _joined(data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise NotWire(f"line {line}, column {column}: expected text, found a byte that is not UTF-8") from None


def _joined(text: str) -> str:
    """Return *text* with each pair of surrogates made one character; a lone one stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _joined(_ESCAPE.sub(_unescape, text))


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return ESCAPES.get(code, code)


def scalar(text: str) -> Any:
    """Return what plain *text* stands for, by the rules of TextWire: a number, a word, a date, or itself."""
    if text in WORDS:
        return WORDS[text]
    if not text or text[0] not in "0123456789+-":
        return text
    if len(text) <= _LONGEST_NUMBER:
        number = _number(text.replace("_", ""))
        if number is not None:
            return number
    for pattern, kind in _DATES:
        if pattern.fullmatch(text):
            return kind(text)
    return text


def _number(text: str) -> float | None:
    """Return the number that Java reads: with 0x in hexadecimal, with another leading zero in octal digits."""
    whole: int | None = None
    if found := _HEX.fullmatch(text):
        whole = int(found[1] + found[2], 16)
        if not found[1] and whole >= 1 << 63:
            whole -= 1 << 64
    elif found := _OCTAL.fullmatch(text):
        whole = int(found[1] + found[2], 8)
    elif _INTEGER.fullmatch(text):
        whole = int(text)
    if whole is not None and -(1 << 63) <= whole < 1 << 63:
        return whole
    return float(text.rstrip("fFdD")) if _FLOAT.fullmatch(text) else None


class _Parser:
    """One document; `_at` is where it has come to, `_line` where that line begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 0
        self._depth = 0

    # ------------------------------------------------------------ the document
    def document(self) -> Any:
        """Return the value of it all."""
        pairs: list[tuple[Any, Any]] = []
        values: list[Any] = []
        while self._next_item():
            if self._moment() or not self._name_follows():
                if pairs:
                    self._fail("the name of an event, with a colon behind it")
                values.append(self._value(-1, brackets=False))
            else:
                if values:
                    self._fail("another value, as those before it have no names")
                name, value = self._pair(brackets=False, column=self._column())
                pairs.append((Event(name) if isinstance(name, str) else name, value))
            self._skip_comma()
        if values:
            return values[0] if len(values) == 1 else Values(values)
        return mapping(pairs)

    def _next_item(self) -> bool:
        """Go to the next event or value of the document, past space and the lines that stand for a prefix."""
        while True:
            self._space()
            found = _MARKER.match(self._text, self._at) if self._at == self._line else None
            if found is None:
                return self._at < len(self._text)
            self._at = found.end()

    def _moment(self) -> bool:
        """Say whether a time stands here, whose colons are not those behind a name."""
        if not self._peek().isdigit():
            return False
        text = _PLAIN.match(self._text, self._at)[0].rstrip()  # type: ignore[index] # it matches nothing too
        return ":" in text and not isinstance(scalar(text), str)

    # ------------------------------------------------------------ places
    def _space(self) -> None:
        """Go past blanks, ends of lines and comments."""
        found = _SPACE.match(self._text, self._at)
        if found and found.end() > self._at:
            self._moved(found.end())

    def _moved(self, to: int) -> None:
        """Go to *to*, and remember where its line begins."""
        end_of_line = self._text.rfind("\n", self._at, to)
        if end_of_line >= 0:
            self._line = end_of_line + 1
        self._at = to

    def _skip_comma(self) -> None:
        self._blanks()
        if self._text.startswith(",", self._at):
            self._at += 1

    def _column(self) -> int:
        return self._at - self._line

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _fail(self, expected: str, at: int | None = None) -> NoReturn:
        where = self._at if at is None else at
        line = self._text.count("\n", 0, where) + 1
        column = where - self._text.rfind("\n", 0, where)
        shown = self._text[where : where + _SHOWN].split("\n")[0]
        found = repr(shown) if shown else "the end of the line" if where < len(self._text) else "the end"
        raise NotWire(f"line {line}, column {column}: expected {expected}, found {found}")

    # ------------------------------------------------------------ names
    def _name_follows(self) -> bool:
        """Say whether a name and its colon stand here, without going on."""
        quote = self._peek()
        if quote == "?":
            return self._text[self._at + 1 : self._at + 2] in {" ", "\t"}
        if quote in {'"', "'"}:
            end = self._quoted_end(quote)
            return self._text.startswith(":", _BLANKS.match(self._text, end).end())  # type: ignore[union-attr]
        return not _DASH.match(self._text, self._at) and _NAME.match(self._text, self._at) is not None

    def _quoted_end(self, quote: str) -> int:
        found = (_DOUBLE_QUOTED if quote == '"' else _SINGLE_QUOTED).match(self._text, self._at)
        if found is None:
            self._fail(f"a text that ends with {quote}")
        return found.end()

    def _pair(self, *, brackets: bool, column: int) -> tuple[Any, Any]:
        """Read a name, its colon and its value; *column* is where the names of this map stand."""
        name = self._name(brackets=brackets)
        self._space()
        if self._peek() != ":":
            self._fail("a colon behind the name")
        self._at += 1
        if name == "csp":
            return name, self._service(column, brackets=brackets)
        return name, self._value(column, brackets=brackets)

    def _name(self, *, brackets: bool) -> Any:
        first = self._peek()
        if first == "?" and self._text[self._at + 1 : self._at + 2] in {" ", "\t"}:
            self._at += 1
            return self._value(-1, brackets=brackets)
        if first in {'"', "'"}:
            return self._quoted(first)
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail("a name with a colon behind it")
        self._at = found.end()
        return _unescaped(found[0].rstrip())

    def _service(self, column: int, *, brackets: bool) -> Any:
        """Read the value of `csp`: in an address, a `#` that no blank precedes is part of it."""
        self._blanks()
        if self._peek() not in {"/", "#"}:
            return self._value(column, brackets=brackets)
        return self._plain_text(_CSP)

    # ------------------------------------------------------------ values
    def _value(self, column: int, *, brackets: bool, own_line: bool = False) -> Any:
        """
        Read a value, whose map or whose item begins at *column*.

        Without *brackets* around it, what begins on a line of its own may be a map or a sequence by its columns.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"no more than {MAX_DEPTH} values within one another")
        line = self._line
        self._space()
        own_line = own_line or self._line != line
        first = self._peek()
        if not brackets and (_DASH if own_line else _DASH_AND_MORE).match(self._text, self._at):
            if own_line and self._column() < column:
                self._fail("a value")
            value: Any = self._block_sequence()
        elif first == "{":
            value = self._map()
        elif first == "[":
            value = self._sequence()
        elif first == "!":
            value = self._typed(column, brackets=brackets)
        elif own_line and not brackets and column >= 0:
            value = self._below(column)
        else:
            value = self._scalar(column, brackets=brackets)
        self._depth -= 1
        return value

    def _scalar(self, column: int, *, brackets: bool) -> Any:
        first = self._peek()
        if first in {'"', "'"} and first:
            return self._quoted(first)
        if not brackets and _BLOCK.match(self._text, self._at):
            return self._lines(column)
        return scalar(self._plain_text(_PLAIN_IN_BRACKETS if brackets else _PLAIN))

    def _below(self, column: int) -> Any:
        """Read what stands on a line below its name: a map if it begins with a name, else one value."""
        if self._column() <= column:
            self._fail("a value")
        if self._moment() or not self._name_follows():
            return self._scalar(column, brackets=False)
        here = self._column()
        pairs = []
        while True:
            pairs.append(self._pair(brackets=False, column=here))
            self._skip_comma()
            self._space()
            if self._at >= len(self._text) or self._column() < here:
                return mapping(pairs)
            if self._column() > here or not self._name_follows():
                self._fail(f"a name at column {here + 1}")

    def _block_sequence(self) -> list[Any]:
        here = self._column()
        values = []
        while self._column() == here and _DASH.match(self._text, self._at):
            self._at += 1
            values.append(self._value(here, brackets=False, own_line=True))
            self._skip_comma()
            self._space()
        return values

    def _plain_text(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        text = found[0].rstrip() if found else ""
        if not text:
            self._fail("a value")
        self._at += len(text)
        return text

    def _quoted(self, quote: str) -> str:
        end = self._quoted_end(quote)
        text = self._text[self._at + 1 : end - 1]
        self._moved(end)
        return _unescaped(text.replace("''", "'") if quote == "'" else text)

    def _lines(self, column: int) -> str:
        """Read the lines of a text behind `|`: those that are indented more than *column*, without their indent."""
        self._moved(_BLOCK.match(self._text, self._at).end())  # type: ignore[union-attr] # the caller has seen it
        lines: list[str] = []
        indent = 0
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end].rstrip("\r")
            if bare := line.lstrip(" "):
                indent = indent or len(line) - len(bare)
                if len(line) - len(bare) < max(indent, column + 1, 1):
                    break
            lines.append(line[indent:])
            self._at = self._line = min(end + 1, len(self._text))
        return "\n".join(lines).rstrip("\n") + "\n"

    def _map(self) -> dict[Any, Any] | Pairs:
        self._at += 1
        pairs = []
        while not self._closed("}"):
            pairs.append(self._pair(brackets=True, column=-1))
            self._between("}")
        return mapping(pairs)

    def _sequence(self) -> list[Any]:
        self._at += 1
        values = []
        while not self._closed("]"):
            values.append(self._value(-1, brackets=True))
            self._between("]")
        return values

    def _closed(self, bracket: str) -> bool:
        self._space()
        closed = self._peek() == bracket
        self._at += closed
        return closed

    def _between(self, bracket: str) -> None:
        """Go past the comma behind an item; the last one needs none."""
        self._space()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != bracket:
            self._fail(f"a comma or {bracket}")

    def _typed(self, column: int, *, brackets: bool) -> Any:
        found = _TYPE.match(self._text, self._at)
        name = found[1] if found else ""
        if not found or not name:
            self._fail("the name of a type")
        self._at = found.end()
        if name == "null":
            self._blanks()
            if self._text.startswith(('""', "''"), self._at):
                self._at += 2
            return None
        if name == "binary":
            return self._binary(column, brackets=brackets)
        if name == "type":
            self._blanks()
            quote = self._peek()
            quoted = quote in {'"', "'"} and quote
            return TypeLiteral(self._quoted(quote) if quoted else self._plain_text(_PLAIN_IN_BRACKETS))
        value = self._value(column, brackets=brackets)
        if name in _NUMBER_TYPES and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if name in {"float", "double"} else value
        return Typed(name, value)

    def _blanks(self) -> None:
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr] # it matches nothing too

    def _binary(self, column: int, *, brackets: bool) -> bytes:
        """Read bytes in base64: quoted, on lines of their own behind `|`, or up to a blank or a comma."""
        self._blanks()
        start = self._at
        quote = self._peek()
        if quote in {'"', "'"} and quote:
            text = self._quoted(quote)
        elif not brackets and _BLOCK.match(self._text, self._at):
            text = "".join(self._lines(column).split())
        else:
            text = _BASE64.match(self._text, self._at)[0]  # type: ignore[index] # it matches nothing too
            self._at += len(text)
        text = text.rstrip("=")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            self._fail("bytes in base64", start)
