"""
The bytes of one record: ten opcodes, each with its fields. docs/formats/kestrel.md has the table.

Little-endian and signed throughout; a size counts the bytes behind it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from shmq.errors import TooLarge
from shmq.formats.model import MS, SECOND, Entry

NAME = "kestrel"
KEEPS = frozenset({"payload", "time_ns", "expires_ns"})
"""What an item can hold. Times are kept to the millisecond."""

ADD, REMOVE, ADDX, REMOVE_TENTATIVE, SAVE_XID, UNREMOVE, CONFIRM_REMOVE, ADD_XID, CONTINUE, REMOVE_TENTATIVE_XID = (
    range(10)
)
STATE_DUMP = 8
"""The other meaning of opcode 8: one week of the main branch in 2011, in no release."""

MAX_ITEM = (1 << 31) - 1 - 16

ADDX_HEAD = struct.Struct("<Biqq")
OP_AND_SIZE = struct.Struct("<Bi")
I32 = struct.Struct("<i")
I32_PAIR = struct.Struct("<ii")
TIMES = struct.Struct("<qq")
ADDX_FIXED = ADDX_HEAD.size
LENGTHS = {REMOVE: 1, REMOVE_TENTATIVE: 1, SAVE_XID: 5, UNREMOVE: 5, CONFIRM_REMOVE: 5, REMOVE_TENTATIVE_XID: 5}
ADDS = frozenset({ADD, ADDX, ADD_XID, CONTINUE})


class Op(NamedTuple):
    """One record, without its payload."""

    op: int
    begin: int
    xid: int
    start: int
    """Position of the payload."""
    size: int
    added_ms: int | None
    expires_ns: int | None


RUN = -1
"""The opcode of a run of ADDX records, which only count; their number is the xid."""


def record(op: int, *, xid: int | None = None, entry: Entry | None = None, count: int | None = None) -> bytes:
    """
    Return the bytes of one record.

    *xid* goes with opcodes 4 to 9, *entry* with the adding ones (0, 2, 7 and 8 as CONTINUE); *count* makes opcode 8
    the old STATE_DUMP of that many open transactions. Raises TooLarge for what does not fit its field.
    """
    try:
        if op in (REMOVE, REMOVE_TENTATIVE):
            return bytes((op,))
        if count is not None:
            return struct.pack("<Bii", op, xid, count)
        if entry is None:
            return struct.pack("<Bi", op, xid)
        payload = entry.payload
        if op == ADD:
            seconds = 0 if entry.expires_ns is None else entry.expires_ns // SECOND or 1
            return struct.pack("<Bii", op, 4 + len(payload), seconds) + payload
        added = 0 if entry.time_ns is None else entry.time_ns // MS
        expires = 0 if entry.expires_ns is None else entry.expires_ns // MS or 1  # 0 is "never"
        if op == ADDX:
            return ADDX_HEAD.pack(op, 16 + len(payload), added, expires) + payload
        return struct.pack("<Biiqq", op, xid, 16 + len(payload), added, expires) + payload
    except struct.error as error:
        msg = f"cannot write a Kestrel record of opcode {op}: {error}"
        raise TooLarge(msg) from error
