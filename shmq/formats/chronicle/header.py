"""
The first document of a `.cq4` file: how its index is cut, and where the numbers are that its writers change.

It is read by the names of its fields. Versions 4, 5 and their releases differ in order, padding and number codes, and
the addresses of the four changing longs follow from those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmq.formats.chronicle import words
from shmq.formats.chronicle.binary import Field, fields
from shmq.formats.chronicle.values import I64Array, NotWire

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HEADER = 1 << 16
"""Java refuses a first document that is longer."""

MAX_INDEX_COUNT = 1 << 15
MAX_INDEX_SPACING = 1 << 30
_MIN_SHIFT = 32


class Roll(NamedTuple):
    """How a queue is cut into files, as `metadata.cq4t` says it, or each file's own header in version 4."""

    length_ms: int
    format: str
    epoch: int = 0
    time: str | None = None
    """The time of day at which days begin, if somebody chose one; *epoch* has it too, and is what counts."""
    zone: str | None = None


class Header(NamedTuple):
    """What the header of a file says. What ends in `_at` is the position of eight bytes, None if they are not there."""

    end: int
    """The position of the word behind the header."""
    aligned: bool
    """Whether documents begin on multiples of four: in all files of version 5."""
    write_position_at: int | None
    """Of the position of the last message's word (0: none yet)."""
    sequence_at: int | None
    """Of that message's sequence with its position, as a check: see `last_written`."""
    index_count: int
    index_spacing: int
    index2index_at: int | None
    """Of the position of the document that leads to the pages of the index (0: there is none)."""
    next_indexed_at: int | None
    """Of what the file calls lastIndex: the next sequence to be indexed."""
    roll: Roll | None
    """Version 4 only."""

    @property
    def version(self) -> int:
        """4 or 5."""
        return 5 if self.roll is None else 4

    @property
    def indexable(self) -> bool:
        """Whether count and spacing are such as an index can have."""
        return _power(self.index_count, 8, MAX_INDEX_COUNT) and _power(self.index_spacing, 1, MAX_INDEX_SPACING)

    @property
    def shift(self) -> int:
        """By how much the position is shifted in the second long of the pair: the file's own numbers decide."""
        indexed = self.index_count * self.index_count * self.index_spacing
        return max(_MIN_SHIFT, indexed.bit_length() - 1)

    def last_written(self, position: int, encoded: int) -> int | None:
        """
        Return the sequence of the message at *position*, given the two longs, or None if they do not belong together.

        A writer stores one after the other, and a crash may come between.
        """
        if position <= 0 or encoded == 0 or not self.indexable:
            return None
        encoded &= (1 << 64) - 1
        belongs = (position << self.shift) & ((1 << 64) - 1)
        return encoded & ((1 << self.shift) - 1) if encoded >> self.shift == belongs >> self.shift else None

    def encoded(self, position: int, sequence: int) -> int:
        """Return what the second long is when the message at *position* has *sequence*, as a signed number."""
        raw = ((position << self.shift) + sequence) & ((1 << 64) - 1)
        return raw - (1 << 64) if raw >> 63 else raw


def parse_header(data: bytes) -> Header:
    """
    Return what the header says that *data*, the beginning of a `.cq4` file, begins with.

    Raises NotWire for whatever is no such header.
    """
    found = {each.name: each for each in block_of(data, "SCQStore")}
    indexing = found.get("indexing")
    inside = {each.name: each for each in fields(data, indexing.body, indexing.stop)} if indexing is not None else {}
    word = words.WORD.unpack_from(data, 0)[0]
    position_at, sequence_at = _pair(found.get("writePosition"))
    aligned = number(found.get("dataFormat"), 0) >= 1
    return Header(
        words.after(0, word, aligned=aligned),
        aligned,
        position_at,
        sequence_at,
        number(inside.get("indexCount"), 0),
        number(inside.get("indexSpacing"), 0),
        _address(inside.get("index2Index")),
        _address(inside.get("lastIndex")),
        parse_roll(data, found.get("roll")),
    )


def block_of(data: bytes, type_name: str) -> Iterator[Field]:
    """The fields of the first document in *data*, which must be a header of the type *type_name*."""
    stop = 4 + (words.WORD.unpack_from(data, 0)[0] & words.LENGTH)
    first = next(fields(data, 4, stop), None)
    if first is None or first.name != "header" or not first.block or first.types != (type_name,):
        msg = f"the first document is not a header of a {type_name}"
        raise NotWire(msg)
    return fields(data, first.body, first.stop)


def parse_roll(data: bytes, field: Field | None) -> Roll | None:
    """Return the roll settings in *field*, None if there are none. Raises NotWire for what makes no sense."""
    if field is None or not field.block:
        return None
    found = {each.name: each for each in fields(data, field.body, field.stop)}
    pattern, length = _text(found.get("format")), number(found.get("length"), 0)
    if not pattern or length <= 0:
        msg = f"roll settings with the format {pattern!r} and a length of {length} ms"
        raise NotWire(msg)
    return Roll(
        length, pattern, number(found.get("epoch"), 0), _text(found.get("rollTime")), _text(found.get("rollTimeZone"))
    )


def number(field: Field | None, default: int) -> int:
    """Return the whole number in *field*, whatever code it was written with: a float too may hold one."""
    if field is None or field.value is None or field.block:
        return default
    value = field.value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int):
        return int(value)
    msg = f"{field.name} is {value!r} and not a number"
    raise NotWire(msg)


def _text(field: Field | None) -> str | None:
    return None if field is None or field.value is None or field.block else str(field.value)


def _address(field: Field | None) -> int | None:
    """Where the eight bytes of a long are; None of a number of fewer bytes, which nobody changes."""
    return field.body if field is not None and isinstance(field.value, int) and field.stop - field.body == 8 else None


def _pair(field: Field | None) -> tuple[int | None, int | None]:
    if field is not None and isinstance(field.value, I64Array):
        at = field.value.address
        return at if field.value.capacity > 0 else None, at + 8 if field.value.capacity > 1 else None
    return _address(field), None


def _power(value: int, least: int, most: int) -> bool:
    return least <= value <= most and value & (value - 1) == 0
