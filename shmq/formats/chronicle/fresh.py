"""
The bytes of new files: a `.cq4` before its first message and a `metadata.cq4t`, as the Java program makes them.

Everything in them that changes later is a number of 8 bytes at a multiple of 8, where all who map the file can change
it at once; the padding in front of each is there for that.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.errors import BadFormat
from shmq.formats.chronicle import table as tables
from shmq.formats.chronicle.encoder import encode, stop_bit
from shmq.formats.chronicle.words import MAX_LENGTH, META, WORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmq.formats.chronicle.cycles import RollCycle

NO_HIGHEST, NO_LOWEST = -(1 << 31), (1 << 31) - 1
"""What the listing says while there is no file."""

PAGE = 4096
DEFAULT_BLOCK = 64 << 20
"""What Java maps at a time unless it is told otherwise."""

TABLE_BLOCK = TABLE_OVERLAP = 1 << 16
TABLE_BYTES = TABLE_BLOCK + TABLE_OVERLAP
EMPTY = b"\x8f"
"""The one byte of padding that stands for a document without any."""

_I64 = struct.Struct("<q")
_ARRAY = struct.Struct("<BQQ")

LAST_SYNCED = "chronicle.lastIndexMSynced"

MIN_COUNT, MAX_COUNT = 8, 32768


# ---------------------------------------------------------------- wire
def word(length: int, kind: int = 0) -> bytes:
    """Return the 4 bytes in front of a document of *length* bytes."""
    return WORD.pack(length | kind)


def aligned(position: int) -> int:
    """Return the next multiple of 4."""
    return (position + 3) & ~3


def _name(name: str) -> bytes:
    return bytes([0xC0 + len(name)]) + name.encode("latin-1")


def _event(name: str) -> bytes:
    data = name.encode("latin-1")
    return b"\xb9" + stop_bit(len(data)) + data


def _typed(name: str) -> bytes:
    return b"\xb6" + stop_bit(len(name)) + name.encode("latin-1")


def _text(value: str) -> bytes:
    return bytes([0xE0 + len(value)]) + value.encode("ascii")


def _padding(code_at: int, unit: int) -> bytes:
    """Return what stands in front of the code byte, so that the number behind it is at a multiple of *unit*."""
    many = -(code_at + 1) % unit
    return b"\x8f" * many if many < 5 else b"\x8e" + WORD.pack(many - 5) + bytes(many - 5)


def _block(content: bytes) -> bytes:
    return b"\x82" + WORD.pack(len(content)) + content


# ---------------------------------------------------------------- a data file
@dataclass(frozen=True, slots=True)
class Store:
    """Where everything is in a data file before its first message."""

    index_count: int
    index_spacing: int
    head: bytes
    """The first document with its word, numbers zero but for index2index."""
    write_position_at: int
    sequence_at: int
    """The second number of the pair: the encoded sequence."""
    last_index_at: int
    index2index: int
    """The position of the word of that document."""
    first_page: int
    start: int
    """Where the first message goes."""

    @property
    def shift(self) -> int:
        """By how much the position is shifted in the pair: the file's own count and spacing say it."""
        return max(32, (self.index_count * self.index_count * self.index_spacing).bit_length() - 1)

    @property
    def index2index_slots(self) -> int:
        """Where the slots of index2index begin; its `used` is 8 bytes before."""
        return slots_of(self.index2index, "index2index")

    @property
    def page_slots(self) -> int:
        """Where the slots of the first page begin."""
        return slots_of(self.first_page, "index")

    def whole(self) -> bytes:
        """Return all the bytes of a new file, up to where the first message goes."""
        data = bytearray(self.start)
        data[: len(self.head)] = self.head
        for position, name in ((self.index2index, "index2index"), (self.first_page, "index")):
            front = index_document(position, name, self.index_count)
            data[position : position + len(front)] = front
        at = self.index2index_slots
        data[at - 8 : at + 8] = struct.pack("<qq", 1, self.first_page)
        return bytes(data)


def store(index_count: int, index_spacing: int) -> Store:
    """
    Return the new data file of so many slots in each index, with one for each *index_spacing* messages.

    Raises:
        BadFormat: the format has no such index.
    """
    if not MIN_COUNT <= index_count <= MAX_COUNT or index_count & (index_count - 1):
        msg = f"cannot write an index of {index_count} slots: Chronicle has powers of two, 8 .. 32768"
        raise BadFormat(msg)
    if not 1 <= index_spacing < 1 << 31 or index_spacing & (index_spacing - 1):
        msg = f"cannot write an index of every {index_spacing} messages: Chronicle has powers of two, 1 .. 2^30"
        raise BadFormat(msg)
    front = 4 + len(_event("header") + _typed("SCQStore")) + 5
    pair = _name("writePosition")
    pair += _padding(front + len(pair), 16)
    write_position_at = front + len(pair) + 17
    pair += _ARRAY.pack(0x8D, 2, 2) + bytes(16)
    inner = front + len(pair) + len(_name("indexing") + _typed("SCQSIndexing")) + 5
    indexing = _name("indexCount") + encode(index_count) + _name("indexSpacing") + encode(index_spacing)
    indexing += _name("index2Index")
    indexing += _padding(inner + len(indexing), 8) + b"\xa7"
    index2index_at = inner + len(indexing)
    indexing += bytes(8) + _name("lastIndex")
    indexing += _padding(inner + len(indexing), 8) + b"\xa7"
    last_index_at = inner + len(indexing)
    indexing += bytes(8)
    content = pair + _name("indexing") + _typed("SCQSIndexing") + _block(indexing)
    content += _name("dataFormat") + encode(1)
    payload = _event("header") + _typed("SCQStore") + _block(content)
    head = bytearray(word(len(payload), META) + payload)
    index2index = aligned(len(head))
    _I64.pack_into(head, index2index_at, index2index)
    first_page = aligned(index2index + index_bytes(index2index, "index2index", index_count))
    return Store(
        index_count,
        index_spacing,
        bytes(head),
        write_position_at,
        write_position_at + 8,
        last_index_at,
        index2index,
        first_page,
        aligned(first_page + index_bytes(first_page, "index", index_count)),
    )


def slots_of(position: int, name: str) -> int:
    """Return where the slots begin of an index document whose word is at *position*; `used` is 8 bytes before."""
    code_at = position + 4 + len(_event(name))
    return code_at + len(_padding(code_at, 8)) + 17


def index_bytes(position: int, name: str, index_count: int) -> int:
    """Return the length of an index document at *position*, word included."""
    return slots_of(position, name) + 8 * index_count - position


def index_document(position: int, name: str, index_count: int) -> bytes:
    """Return an index document at *position* with no slot used, up to its slots: those are all zero."""
    front = _event(name)
    front += _padding(position + 4 + len(front), 8)
    length = index_bytes(position, name, index_count) - 4
    return word(length, META) + front + _ARRAY.pack(0x8D, index_count, 0)


# ---------------------------------------------------------------- sizes
def overlap_of(block: int) -> int:
    """Return by how much the mapping of a block reaches into the next: a message has to fit into that."""
    if block < 1 << 16:
        return block
    if block < 1 << 18:
        return 1 << 16
    return block // 4 if block < 1 << 32 else 1 << 30


def block_of(wanted: int, index_count: int) -> int:
    """Return the block that Java maps at a time when it is told *wanted*."""
    return -(-max(wanted, PAGE, 32 * index_count) // PAGE) * PAGE


def most_payload(block: int) -> int:
    """Return the longest message that surely fits, wherever in its block it begins."""
    return min(overlap_of(block) - 16, MAX_LENGTH)


def file_bytes(position: int, block: int) -> int:
    """Return how long a file has to be for whoever writes at *position*."""
    return (position // block + 1) * block + overlap_of(block)


# ---------------------------------------------------------------- the table
def table_head(cycle: RollCycle, epoch: int, roll_time: str | None, source_id: int) -> bytes:
    """Return the first document of `metadata.cq4t`: how the queue rolls."""
    roll = _name("length") + encode(cycle.length_ms) + _name("format") + _text(cycle.pattern)
    roll += _name("epoch") + encode(epoch)
    if roll_time is not None:
        time = roll_time.encode("ascii")
        roll += _name("rollTime") + b"\xb2" + stop_bit(len(time)) + time
        roll += _name("rollTimeZone") + _text("UTC")
    settings = _name("roll") + _typed("SCQSRoll") + _block(roll)
    settings += _name("deltaCheckpointInterval") + encode(64) + _name("sourceId") + encode(source_id)
    content = _name("wireType") + _typed("WireType") + _text("BINARY_LIGHT")
    content += _name("metadata") + _typed("SCQMeta") + _block(settings)
    front = _event("header") + _typed("STStore")
    # The padding to a multiple of 4 is inside the block, and its length says so.
    content += b"\x8f" * (-(len(front) + 5 + len(content)) % 4)
    return word(len(front) + 5 + len(content), META) + front + _block(content)


def table_entry(position: int, key: str, value: int) -> bytes:
    """Return the document of one number of the table, to stand at *position*."""
    front = _event(key)
    front += _padding(position + 4 + len(front), 8)
    return word(len(front) + 9) + front + b"\xa7" + _I64.pack(value)


def table_values(lowest: int | None, highest: int | None, mod_count: int) -> dict[str, int]:
    """Return the numbers that every queue has, in Java's order; None where there is no file."""
    return {
        tables.HIGHEST_CYCLE: NO_HIGHEST if highest is None else highest,
        tables.LOWEST_CYCLE: NO_LOWEST if lowest is None else lowest,
        tables.MOD_COUNT: mod_count,
        tables.WRITE_LOCK: tables.UNLOCKED,
        tables.APPEND_LOCK: tables.UNLOCKED,
        "chronicle.lastIndexReplicated": -1,
        "chronicle.lastAcknowledgedIndexReplicated": -1,
        LAST_SYNCED: -1,
    }


def table(head: bytes, values: Mapping[str, int]) -> bytes:
    """Return the beginning of a `metadata.cq4t` that holds *values*; the rest of its 128 KiB is zero."""
    data = bytearray(head)
    for key, value in values.items():
        data += table_entry(len(data), key, value)
    if len(data) > TABLE_BLOCK:
        msg = f"cannot write {len(values)} numbers into metadata.cq4t: they need {len(data)} bytes of {TABLE_BLOCK}"
        raise BadFormat(msg)
    return bytes(data)
