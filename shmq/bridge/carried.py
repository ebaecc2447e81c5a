"""
What of a message travels, and how its headers fit into those of others.

A header that is plain text goes as a header of the far end, for whoever reads there; what is no text, or has a name
that would not come back the same, goes with others of the kind as one piece of MessagePack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shmq.errors import BadFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import shmq


class Carried(NamedTuple):
    """
    A message between queues. The payload is what lies in the queue, whatever its codec.

    *source* is the id of the queue that it came from, None of one that no bridge has sent.
    """

    payload: bytes
    key: bytes | None = None
    type: int = 0
    time_ns: int | None = None
    headers: Mapping[str, Any] | None = None
    source: str | None = None


def of(message: shmq.Message[Any], source: str) -> Carried:
    """A message of the queue with that id."""
    headers = message.headers
    return Carried(bytes(message.view), message.key, message.type, message.time_ns, headers or None, source)


def apart(headers: Mapping[str, Any] | None, fits: Callable[[str, str], bool]) -> tuple[dict[str, str], bytes | None]:
    """Headers that go as they are, being text that *fits*(name, text); and the others as one piece, if any."""
    plain, rest = {}, {}
    for name, value in (headers or {}).items():
        if isinstance(value, str) and fits(name, value):
            plain[name] = value
        else:
            rest[name] = value
    return plain, msgspec.msgpack.encode(rest) if rest else None


def together(plain: Mapping[str, Any], packed: bytes | None, where: str) -> dict[str, Any] | None:
    """
    The headers of a message that came from *where*; None when it has none.

    Raises:
        BadFormat: what should be the others is no MessagePack of a mapping.
    """
    if packed is None:
        return dict(plain) or None
    try:
        rest = msgspec.msgpack.decode(packed, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise BadFormat(f"cannot read the headers of {where}: {problem}; it was not put") from None
    return {**plain, **rest} or None


def number(word: str | bytes | None, where: str) -> int:
    """
    A whole number that another bridge has written; 0 for none.

    Raises:
        BadFormat: it is none.
    """
    try:
        return int(word or 0)
    except ValueError:
        raise BadFormat(f"{word!r} of {where} is not a whole number; it was not put") from None


def text_or_bytes(value: bytes) -> str | bytes:
    """A header's value that somebody else wrote: text if it is."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def is_utf8(name: str, value: str) -> bool:
    """Whether both can be written at all: a str may hold half a character."""
    try:
        return bool(f"{name}{value}".encode()) or True
    except UnicodeEncodeError:
        return False
