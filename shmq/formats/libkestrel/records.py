"""
The bytes of one record, and of a checkpoint: a command byte, a header of 32-bit words, and data.

Little-endian and signed throughout. docs/formats/libkestrel.md has the table.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "libkestrel"

KEEPS = frozenset({"payload", "index", "time_ns", "expires_ns", "attempts"})
"""What a PUT can hold. Times are kept to the millisecond."""
WRITER_MAGIC = b"\x27\x64\x26\x03"
READER_MAGIC = b"\x26\x3c\x26\x03"
PUT, PUT_EXPIRING = 0x86, 0x88
READ_HEAD, READ_DONE = 0x02, 0x91

MAX_ITEM = 16 << 20
"""The record layer's limit for one data block; a larger size is damage."""

MOST_DONE = MAX_ITEM // 8
"""Ids that one checkpoint can hold as confirmed."""

MAX_SEGMENT = (1 << 31) - 1
"""Positions in a segment are 32 bits wide."""

JOURNAL_BYTES = 16 << 20
"""The real program's default segment size."""
PUT_FIXED = 25
PUT_EXPIRING_FIXED = 33
PUT_FIELDS = struct.Struct("<Biiqq")
PUT_EXPIRING_FIELDS = struct.Struct("<Biiqqq")
I32 = struct.Struct("<i")
I64 = struct.Struct("<q")


def checkpoint(head: int, done: Iterable[int] = ()) -> bytes:
    """Return the bytes of a read checkpoint: magic, READ_HEAD, READ_DONE (also when empty), 18 + 8 per id."""
    ids = sorted(done)
    return (
        READER_MAGIC
        + struct.pack("<Bq", READ_HEAD, head)
        + struct.pack("<Bi", READ_DONE, 8 * len(ids))
        + struct.pack(f"<{len(ids)}q", *ids)
    )
