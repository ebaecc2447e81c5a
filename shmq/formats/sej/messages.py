"""
The bytes of one message: a head, the key, the value, and the size of it all at its end.

Big-endian throughout. docs/formats/sej.md has the table.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from shmq.errors import TooLarge
from shmq.formats.model import NO_TIME

if TYPE_CHECKING:
    from shmq.formats.model import Entry

NAME = "sej"
KEEPS = frozenset({"payload", "index", "time_ns", "key", "type"})
"""What a message can hold. Times are kept to the nanosecond; no key and an empty key are the same."""

SEGMENT_BYTES = 1 << 30
"""The real writer's default: a segment is closed once it is at least this long."""

ZERO_TIME = NO_TIME
"""The `time_ns` of a message whose writer gave none (the zero time of the real program)."""

MAX_KEY = 127

HEAD = struct.Struct(">QqBb")
HEAD_AND_U32 = struct.Struct(">QqBbI")
"""A head, and what is behind it: of a message without a key that is the size of its value."""

I32 = struct.Struct(">i")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
SMALLEST = 26
LONGEST_HEAD = 18 + MAX_KEY + 8


def message(offset: int, entry: Entry) -> bytes:
    """Return the bytes of one message. Raises TooLarge for what does not fit its field."""
    payload, _, time_ns, _, key, kind, _, _ = entry
    key = key or b""
    size = SMALLEST + len(key) + len(payload)
    if len(key) > MAX_KEY or size >= 1 << 31:
        msg = f"cannot write offset {offset} to sej: a key of {len(key)} bytes in a message of {size}"
        raise TooLarge(msg + f"; the limits are {MAX_KEY} and 2^31-1")
    try:
        head = HEAD.pack(offset, ZERO_TIME if time_ns is None else time_ns, kind or 0, len(key))
    except struct.error as error:
        msg = f"cannot write offset {offset} to sej: {error}"
        raise TooLarge(msg) from error
    return b"%b%b%b%b%b" % (head, key, I32.pack(len(payload)), payload, I32.pack(size))
