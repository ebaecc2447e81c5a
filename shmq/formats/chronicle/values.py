"""
What a document of Chronicle's wire formats can hold and Python has no type for.

A wire's map is a dict, its sequence a list, its bytes `bytes`, text and numbers and truth what they are in Python, a
missing value None. The classes here are for the rest; each keeps what the document said, so that it can be written
again, and no class that a document names is ever looked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shmq.errors import BadFormat

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


_FLOAT32 = struct.Struct("<f")


class NotWire(BadFormat):
    """These bytes (or this text) are not a document of Chronicle's wire formats; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A value with the name of its type before it: `!MyType { x: 1 }`. The name is kept and never looked up."""

    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class TypeLiteral:
    """The name of a type, as a value of its own."""

    name: str


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day, as the ISO text that the document has."""

    text: str


@dataclass(frozen=True, slots=True)
class Date:
    """A date, as ISO text: Java's may lie before the year 1 and after 9999, where Python's cannot."""

    text: str


@dataclass(frozen=True, slots=True)
class DateTime:
    """A date and a time without a zone, as ISO text: Java counts nanoseconds."""

    text: str


@dataclass(frozen=True, slots=True)
class ZonedDateTime:
    """A date and a time in a zone, as Java writes it: `2024-01-02T03:04:05Z[Europe/Paris]`."""

    text: str


class Event(str):
    """
    The name of an event, which is a method's name or a key of `writeMap`; other names are names of fields.

    It equals the same name as a plain str, so that a lookup need not know which it was.
    """

    __slots__ = ()


class Values(tuple[Any, ...]):
    """Several values one after another in a document, without names and not in a sequence."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return it as it is made, so that it is not taken for a tuple."""
        return f"Values({super().__repr__()})"


class Hex64(int):
    """An integer of 64 bits that is shown in hexadecimal digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return it with its digits as Chronicle shows them."""
        return f"Hex64({int(self):#x})"


class Float32(float):
    """A number that is to be written as `float` of Java and not as `double`; its value is rounded to one."""

    __slots__ = ()

    def __new__(cls, value: float) -> Self:
        """Round *value* to 32 bits; OverflowError if it is too large for them."""
        return super().__new__(cls, _FLOAT32.unpack(_FLOAT32.pack(value))[0])


class Long(int):
    """A whole number that is to be written as `long` of Java is written, and not as `int`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class I64Array:
    """An array of longs that programs change in place: *capacity* numbers at *address*, of which *used* were set."""

    capacity: int
    used: int
    address: int = field(compare=False)
    numbers: tuple[int, ...] = ()
    """All of them, where they were asked for."""


@dataclass(frozen=True, slots=True)
class History:
    """Where a message came from: (source id, index there) of each queue on its way, and its times in nanoseconds."""

    sources: tuple[tuple[int, int], ...]
    timings: tuple[int, ...]


class Pairs(tuple[tuple[Any, Any], ...]):
    """
    The fields of a map in which a name stands twice, or is a value that no dict can have as a key.

    A document of two calls of one method is such a map. dict() of it keeps the last of each name.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return it as it is made, so that it is not taken for a tuple."""
        return f"Pairs({super().__repr__()})"


def mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any] | Pairs:
    """Return *pairs* as a dict, or as Pairs where a dict would lose some of them."""
    kept = tuple(pairs)
    try:
        found = dict(kept)
    except TypeError:
        return Pairs(kept)
    # 1 == True == 1.0 as keys: counting finds those too.
    return found if len(found) == len(kept) else Pairs(kept)
