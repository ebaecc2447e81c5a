"""
What is asked and answered beside the record batches: small documents in JSON, so that any Flight client can say them.

A field that is not known is refused, so that a newer client hears of it. `id` in a request is the queue that is meant;
another one in its place is a Mismatch.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import msgspec

_INDEX = (1 << 63) - 1


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request: which queue it is about."""

    queue: str
    id: str = ""


class Names(About, frozen=True, kw_only=True):
    """Action `queues`: which queues there are at or below that name ("" for all)."""

    queue: str = ""


class EndsOf(About, frozen=True, kw_only=True):
    """Action `ends`: where a queue begins and ends. With *durable*, it is synced first. *boot*: of whoever asks."""

    durable: bool = False
    boot: str = ""


class Extents(About, frozen=True, kw_only=True):
    """Action `extents`: where the messages of a range lie."""

    start: int
    stop: int


class At(About, frozen=True, kw_only=True):
    """Action `at`: the index of the first message of that time or later."""

    time_ns: int


class Hold(About, frozen=True, kw_only=True):
    """Action `hold`: have that consumer name, made at the first message there is; retention waits for it."""

    name: str


class Follow(About, frozen=True, kw_only=True):
    """Action `follow`: move that name forward to an index; it is made where it is missing."""

    name: str
    to: int
    hold: Literal["nothing"] | None = None


class Adopt(About, frozen=True, kw_only=True):
    """Action `adopt`: what was staged under these tokens, all of it or nothing; once for each (producer, sequence)."""

    tokens: list[str]
    producer: str | None = None
    sequence: int | None = None


class Adopted(About, frozen=True, kw_only=True):
    """Action `adopted`: the last batch of that producer."""

    producer: str


class Sweep(About, frozen=True, kw_only=True):
    """Action `sweep`: remove what was staged for that owner and not adopted."""

    owner: str


class Read(About, frozen=True, kw_only=True):
    """
    The ticket of `do_get`: the messages from *start* to before *stop*, or to the end.

    With *lossy*, messages that were retired are passed over; else they are a Gone.
    """

    start: int
    stop: int | None = None
    columns: list[str] | None = None
    max_rows: int = 10_000
    max_bytes: int = 4 << 20
    lossy: bool = False


class Put(About, frozen=True, kw_only=True):
    """
    The command of `do_put`: stage the batches that follow, for that owner.

    The last word of the client is a `Whole`; without it what came is thrown away, for a stream that was cut off looks
    like one that has ended. The answer is a `Token`.
    """

    owner: str = ""


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client says behind its last batch: how many rows there were."""

    rows: int


class Token(msgspec.Struct, frozen=True):
    """What was staged, for `adopt`; and how many indexes it takes."""

    token: str
    indexes: int


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """
    A queue as it is now.

    `end` is the index behind what may be read: what is decided, and on the disk where that was asked for. `place` is
    its directory, told only to whoever named this host's boot; `device` and `inode` are of its mark, so that it can be
    found again and told from a copy.
    """

    id: str
    first: int
    next: int
    committed: int
    durable: int
    end: int
    codec: str
    spacing: int
    durability: str
    boot: str
    device: int
    inode: int
    place: str = ""


class Span(msgspec.Struct, frozen=True):
    """A range of indexes."""

    first: int
    stop: int


class Batch(msgspec.Struct, frozen=True):
    """A batch that was adopted; null stands for none."""

    sequence: int
    first: int
    stop: int


class Index(msgspec.Struct, frozen=True):
    """One index."""

    index: int


class Count(msgspec.Struct, frozen=True):
    """How many."""

    count: int


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error: its class, what is said of it, and what it carries."""

    kind: str
    text: str
    first_index: int | None = None
    index: int | None = None


encode = msgspec.json.encode


@functools.cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


def decode(kind: Any, raw: bytes) -> Any:
    """
    The document in these bytes.

    Raises:
        ValueError: they are none of that kind.
    """
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise ValueError(f"this is no {getattr(kind, '__name__', kind)}: {problem}") from None


def check_index(name: str, value: int | None) -> None:
    """
    Indexes have 63 bits.

    Raises:
        ValueError: it is none.
    """
    if value is not None and not 0 <= value <= _INDEX:
        raise ValueError(f"{name}={value}: an index is from 0 to {_INDEX}")
