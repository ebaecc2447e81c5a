"""
The four bytes before every document: how long it is, what it is, and whether it is there yet.

A writer fills a document and then its word, in one store, so that a word other than zero means that all of the
document can be read. Documents follow one another on multiples of four, but for the files of version 4.
"""

from __future__ import annotations

import struct

WORD = struct.Struct("<I")
"""A word as it stands in the file."""

LONG = struct.Struct("<q")
"""A number that programs change in place: positions, indices, locks."""

NOT_READY = 1 << 31
"""Set: somebody writes this document, or died over it; the length may be anything."""

META = 1 << 30
"""Set: a header, a page of the index or a user's meta-data; it has no place in the sequence."""

LENGTH = META - 1
"""The bits of a word that hold the length."""

MAX_LENGTH = LENGTH
"""The longest document."""

EOF = NOT_READY | META
"""The word that ends a file for good: exactly this one."""

EOF_TAIL = b"\xc3EOF"
"""What version 5 writes behind it, for whoever looks at the bytes."""


def long(data: bytes) -> int:
    """Return the number in *data*, eight bytes read from a file; 0, as in a hole, where the file ends before them."""
    return int(LONG.unpack(data)[0]) if len(data) == LONG.size else 0


def longs(data: bytes) -> tuple[int, ...]:
    """Return all numbers in *data*."""
    return struct.unpack_from(f"<{len(data) // 8}q", data)


def is_data(word: int) -> bool:
    """Say whether *word* stands before a message that is whole."""
    return 0 < word < META


def is_meta(word: int) -> bool:
    """Say whether *word* stands before meta-data that are whole."""
    return META <= word < NOT_READY


def padding(*, aligned: bool) -> tuple[int, int]:
    """Return (add, mask): the word behind a document that ends at `stop` is at `(stop + add) & mask`."""
    return (3, -4) if aligned else (0, -1)


def after(position: int, word: int, *, aligned: bool) -> int:
    """Return where the next word is, behind the document whose *word* is at *position*."""
    add, mask = padding(aligned=aligned)
    return (position + 4 + (word & LENGTH) + add) & mask
