"""
What goes from a queue to one that follows it, and back: msgpack arrays, whose lengths and ranges are checked as they
are read.

    there   Hello, then Clock, and Begin, Data, Region, Together, State, Beside, Places in any number
    back    Answer or Refused, then Mark in any number, and Refused at last where it cannot go on

Where the histories differ, and the Answer says that what differs may be set aside, Common comes behind the Hello, and
is answered by another Answer.

A chunk begins with Begin. Data are bytes of it, which nobody sees; a Region says that what lies between two places has
come, is whole, and may be seen. Chunks that were adopted together come aside, each with the id of their set; Together
says that all of a set have come, and the Region that seals the chunk before them has them seen.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

VERSION = 1
DATA_MAX = 1 << 20
"""Bytes of a chunk in one Data."""
_U64 = Annotated[int, msgspec.Meta(ge=0)]  # msgpack has no larger ones
_Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Position = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
_Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
_Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_U32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]


class _Piece(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True):
    """A piece says by its first element what it is."""


class State(_Piece, frozen=True, array_like=True, tag="state"):
    """What the journal says, of a queue all of whose messages up to then have been sent."""

    epoch: _Index
    ceiling: _Index
    first_live: _Sequence
    first_index: _Index
    max_messages: _Index
    max_bytes: _Index
    dropped: _Index
    flags: _U32
    changed: bytes


class Hello(_Piece, frozen=True, array_like=True, tag="hello"):
    """Who it is that is to be followed."""

    version: int
    name: str
    """What the follower is called there."""
    queue_id: _Id
    options: bytes
    made_ns: _Index
    state: State


class Answer(_Piece, frozen=True, array_like=True, tag="answer"):
    """What the follower has. Without chunks it has nothing, and the rest of it says nothing."""

    promoted: bool
    chain: list[tuple[_Sequence, _Index, _U64]]
    """(sequence, base, id) of each chunk."""
    position: _Position
    """Where the last of them ends: behind its SEAL if it has one."""
    ordinal: _Position
    sealed: bool
    digest: _U32
    """Of that chunk up to there; shmq/replica/history.py."""
    fenced: bool = False
    """It is fenced, and is to follow: what comes behind the chunks says nothing, and something is set aside."""
    reset: bool = False
    """What is not in the other queue may be set aside."""
    clock_ns: _Index = 0
    """The time there when this was sent."""
    identity: str = ""
    """Which follower it is, where puts wait for it: another one at the same place is told from it."""


class Common(_Piece, frozen=True, array_like=True, tag="common"):
    """The last chunk that both have, and a checksum of each region of it here; *there* is False where none is."""

    there: bool
    sequence: _Sequence = 0
    base: _Index = 0
    sums: bytes = b""
    """32 bits each, little-endian."""


class Clock(_Piece, frozen=True, array_like=True, tag="clock"):
    """How far the clock here is before that of the follower."""

    ahead_ns: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Begin(_Piece, frozen=True, array_like=True, tag="begin"):
    """A chunk, as it was made."""

    sequence: _Sequence
    base: _Index
    size: _Position
    chunk_id: _U64
    epoch: _Index
    spacing: _U32
    grain: _U32
    created_ns: _Index
    born_base: _U64
    born_sequence: _U64
    whole: bool
    """It is sealed, and comes as a whole."""
    adoption: _Index = 0
    """The set that it was adopted with, if it comes aside: *sequence* counts its chunks then, and *base* is 0."""


class Data(_Piece, frozen=True, array_like=True, tag="data"):
    """Bytes of the chunk that came last."""

    position: _Position
    content: bytes


class Region(_Piece, frozen=True, array_like=True, tag="region"):
    """What lies between two places of the chunk of that sequence has come. *ordinal* is that of its beginning."""

    sequence: _Sequence
    position: _Position
    end: _Position
    ordinal: _Position


class Together(_Piece, frozen=True, array_like=True, tag="together"):
    """All chunks of that set have come."""

    adoption: _Index


class Beside(_Piece, frozen=True, array_like=True, tag="beside"):
    """A small file that belongs to the queue, as it is now."""

    name: str
    content: bytes


class Places(_Piece, frozen=True, array_like=True, tag="places"):
    """Files of consumer names that have changed, and what all such files are called that there are now."""

    changed: list[tuple[str, bytes]]
    there: list[str]


class Mark(_Piece, frozen=True, array_like=True, tag="mark"):
    """Up to where the follower has all on its disk."""

    sequence: _Sequence
    position: _Position
    index: _Index


class Refused(_Piece, frozen=True, array_like=True, tag="refused"):
    """The follower does not go on, with the name of an error of shmq."""

    error: str
    text: str


There: TypeAlias = Hello | Common | Clock | Begin | Data | Region | Together | State | Beside | Places
Back: TypeAlias = Answer | Mark | Refused
