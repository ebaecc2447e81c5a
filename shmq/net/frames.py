"""
Frames: a word of four bytes, which says how long the body behind it is and what it is, and that body. No I/O.

    bits 0-29   the length of the body, without the word; 0 only of meta-data
    bit 30      meta-data (whom the next calls are for), else data (a call, or a reply)
    bit 31      more data documents follow for the same request

The word is little-endian. There is nothing between frames.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_WORD = struct.Struct("<I")
_LENGTH, _META, _MORE = (1 << 30) - 1, 1 << 30, 1 << 31


class BadFrame(ValueError):
    """What was sent is no frame, and where the next one would begin cannot be known. The text is fit for the peer."""


class Frame(NamedTuple):
    """One frame, whole."""

    body: bytes
    meta: bool = False
    more: bool = False


class Frames:
    """
    What has come of a stream of bytes, cut into frames.

    Attributes:
        limit: bytes that the body of a frame may have; it can be changed between two feeds.
    """

    def __init__(self, limit: int) -> None:
        """Nothing has come yet."""
        self.limit = limit
        self._rest = bytearray()

    @property
    def half(self) -> int:
        """How many bytes of a frame are here that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """
        Return the frames that are whole with *data*.

        Raises:
            BadFrame: a word of zero, data without a body, or a body longer than the limit. Nothing more can be read.
        """
        rest = self._rest
        rest += data
        found: list[Frame] = []
        at, end = 0, len(rest)
        while end - at >= _WORD.size:
            (word,) = _WORD.unpack_from(rest, at)
            length = word & _LENGTH
            if not length and not word & _META:
                raise BadFrame("a frame without a body that is not meta-data")
            if length > self.limit:
                raise BadFrame(f"a frame of {length} bytes; {self.limit} are the most")
            stop = at + _WORD.size + length
            if stop > end:
                break
            found.append(Frame(bytes(rest[at + _WORD.size : stop]), bool(word & _META), bool(word & _MORE)))
            at = stop
        del rest[:at]
        return found


def framed(body: bytes, *, meta: bool = False, more: bool = False) -> bytes:
    """
    Return *body* behind its word.

    Raises:
        ValueError: it has more bytes than a word can say, or none and is no meta-data.
    """
    if len(body) > _LENGTH or not (body or meta):
        raise ValueError(f"{len(body)} bytes are not a body of a frame")
    return _WORD.pack(len(body) | meta << 30 | more << 31) + body
