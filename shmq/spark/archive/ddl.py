"""
Schemas in Spark's words, `user BIGINT, tags ARRAY<STRING>`, as Arrow schemas. Without Spark, which parses in its JVM.

Columns of an archive may all be null, whatever is said: a payload that does not parse has no fields.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from shmq.spark.options import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")


@functools.cache
def schema(words: str) -> pa.Schema:
    """
    The Arrow schema that such words mean.

    Raises:
        BadOption: they mean none.
    """
    import pyarrow as pa  # noqa: PLC0415

    parser = _Parser(words)
    fields = parser.fields(colon=False, end=None)
    names = [each.name.lower() for each in fields]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise parser.wrong(f"{twice} is there twice")
    return pa.schema(fields)


class _Parser:
    """One such text, token by token."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._tokens: list[str] = []
        at = 0
        while words[at:].strip():
            found = _TOKEN.match(words, at)
            if found is None:
                raise self.wrong(f"nothing is meant by {words[at:].strip()[:20]!r}")
            self._tokens.append(found[1])
            at = found.end()
        self._tokens.reverse()

    def wrong(self, why: str) -> BadOption:
        """That is no schema."""
        return BadOption(f"schema {self._words!r}: {why}; it is like 'user BIGINT, kind STRING, at TIMESTAMP'")

    def fields(self, *, colon: bool, end: str | None) -> list[pa.Field]:
        """Names with types, up to *end*."""
        import pyarrow as pa  # noqa: PLC0415

        found = []
        while True:
            name = self._take("a name")
            if not re.fullmatch(r"`.+`|\w+", name):
                raise self.wrong(f"a name is missing before {name!r}")
            if (colon or self._next() == ":") and self._take("a colon") != ":":
                raise self.wrong(f"a colon is missing behind {name!r}")
            found.append(pa.field(name.strip("`").replace("``", "`"), self._type()))
            if self._next().upper() == "NOT":
                self._take("NOT")
                if self._take("NULL").upper() != "NULL":
                    raise self.wrong("NULL is missing behind NOT")
            if self._next() == (end or ""):
                if end:
                    self._take(end)
                return found
            if self._take("a comma") != ",":
                raise self.wrong(f"a comma is missing behind the type of {name!r}")

    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _take(self, what: str) -> str:
        if not self._tokens:
            raise self.wrong(f"{what} is missing at its end")
        return self._tokens.pop()

    def _expect(self, token: str, after: str) -> None:
        if self._take(token) != token:
            raise self.wrong(f"{token} is missing behind {after}")

    def _type(self) -> pa.DataType:
        import pyarrow as pa  # noqa: PLC0415

        word = self._take("a type").upper()
        if word == "ARRAY":
            self._expect("<", word)
            inner = self._type()
            self._expect(">", word)
            return pa.list_(inner)
        if word == "STRUCT":
            self._expect("<", word)
            return pa.struct(self.fields(colon=False, end=">"))
        if word in {"DECIMAL", "DEC", "NUMERIC"}:
            return pa.decimal128(*self._numbers())
        plain = _plain()
        if word not in plain:
            raise self.wrong(f"there is no type {word}; there are {', '.join(plain)}, DECIMAL, ARRAY and STRUCT")
        return plain[word]

    def _numbers(self) -> tuple[int, int]:
        """(10, 2), which may be left out."""
        if self._next() != "(":
            return 10, 0
        self._take("(")
        found = [self._take("a number")]
        if self._next() == ",":
            self._take(",")
            found.append(self._take("a number"))
        self._expect(")", "the numbers of DECIMAL")
        if not all(each.isdigit() for each in found) or not 0 < int(found[0]) <= 38:  # Spark's most
            raise self.wrong(f"DECIMAL({', '.join(found)})")
        return int(found[0]), int(found[1]) if len(found) > 1 else 0


@functools.cache
def _plain() -> dict[str, pa.DataType]:
    import pyarrow as pa  # noqa: PLC0415

    return {
        "BIGINT": pa.int64(),
        "LONG": pa.int64(),
        "INT": pa.int32(),
        "INTEGER": pa.int32(),
        "SMALLINT": pa.int16(),
        "SHORT": pa.int16(),
        "TINYINT": pa.int8(),
        "BYTE": pa.int8(),
        "DOUBLE": pa.float64(),
        "FLOAT": pa.float32(),
        "REAL": pa.float32(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
    }
