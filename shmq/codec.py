"""
How objects become payload bytes and come back: bytes, text, json, msgpack; pickle only when told to trust it.

A codec is a pair of plain functions. `None` stands for "the bytes themselves", so that the fast path calls nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.errors import BadFormat, Untrusted

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

NAMES = ("bytes", "text", "json", "msgpack", "pickle")


class Codec(NamedTuple):
    """A name and its two functions; `None` for the bytes themselves."""

    name: str
    encode: Callable[[Any], bytes] | None
    decode: Callable[[Buffer], Any] | None


def _encode_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"codec 'text' takes str, not {type(value).__name__}")
    return value.encode()


def _decode_text(data: Buffer) -> str:
    return str(data, "utf-8")


def _msgspec(name: str) -> Codec:
    import msgspec  # noqa: PLC0415  # 10 ms that only users of these codecs pay

    module = getattr(msgspec, name)
    return Codec(name, module.Encoder().encode, module.Decoder().decode)


def _pickle() -> Codec:
    import pickle  # noqa: PLC0415

    return Codec("pickle", functools.partial(pickle.dumps, protocol=5), pickle.loads)


@functools.cache
def codec(name: str, *, trusted: bool = False) -> Codec:
    """
    The codec of that name.

    Raises:
        Untrusted: it is pickle, and *trusted* was not given: reading a pickle runs whatever its writer liked
            (CVE-2025-69872 is what happens when a library reads pickles from files by default).
        BadFormat: there is no codec of that name.
    """
    if name == "bytes":
        return Codec(name, None, None)
    if name == "text":
        return Codec(name, _encode_text, _decode_text)
    if name in {"json", "msgpack"}:
        return _msgspec(name)
    if name != "pickle":
        raise BadFormat(f"no codec is called {name!r}; there are {', '.join(NAMES)}")
    if not trusted:
        raise Untrusted(
            "its messages are pickles, which run code when read; pass trusted=True if you trust its writers"
        )
    return _pickle()
