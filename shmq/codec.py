"""
How objects become payload bytes and come back: bytes, text, json, msgpack; pickle only when told to trust it.

A codec is a pair of plain functions. `None` stands for "the bytes themselves", so that the fast path calls nothing.
What json and msgpack would hand back as something else (but for a tuple, which becomes a list) they refuse.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq import _native, later
from shmq.errors import BadFormat, Corrupt, Untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmq._native import Chunk

NAMES = ("bytes", "text", "json", "msgpack", "pickle")


class Codec(NamedTuple):
    """A name and its two functions; `None` for the bytes themselves."""

    name: str
    encode: Callable[[Any], bytes] | None
    decode: Callable[[bytes], Any] | None


def _encode_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"codec 'text' takes str, not {type(value).__name__}")
    return value.encode()


def _msgspec(name: str) -> Codec:
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # 10 ms that only users of these codecs pay

    encode: Callable[[Any], bytes] = getattr(msgspec, name).Encoder().encode
    times = None
    if name == "msgpack":
        later.ready("datetime")
        import datetime  # noqa: PLC0415

        times = datetime.datetime
    return Codec(name, _native.strict(encode, name, times), getattr(msgspec, name).Decoder().decode)


def _pickle() -> Codec:
    later.ready("pickle")
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
        return Codec(name, _encode_text, bytes.decode)
    if name in {"json", "msgpack"}:
        return _msgspec(name)
    if name != "pickle":
        raise BadFormat(f"no codec is called {name!r}; there are {', '.join(NAMES)}")
    if not trusted:
        raise Untrusted(
            "its messages are pickles, which run code when read; pass trusted=True if you trust its writers"
        )
    return _pickle()


def _is_unreadable(problem: Exception) -> bool:
    """Whether that is what a codec says of bytes, and not what code raises that runs in it."""
    known = isinstance(problem, ValueError | OverflowError | RecursionError | EOFError)
    return known or type(problem).__module__ in {"msgspec", "_pickle"}


def explain(problem: Exception, index: int, chunk: Chunk) -> None:
    """
    Of a *problem* that a codec has with the payload of that message in *chunk*: say which message, and go on raising
    whatever else it is, as a codec that runs code may.

    Raises:
        Corrupt: of that problem.
    """
    if _is_unreadable(problem):
        raise Corrupt(
            f"cannot decode message {index} in {chunk.path}: {type(problem).__name__}: {problem}; its bytes are as "
            f"they were put, and Queue[{index}].view has them"
        ) from problem


def decode_all(
    decode: Callable[[Any], Any],
    payloads: Iterable[bytes],
    chunk: Chunk,
    indexes: Callable[[int], int],
    *,
    first: bool = False,
) -> list[Any]:
    """
    What the payloads of these messages of one chunk mean.

    *indexes* is asked for the index of the n-th, where that cannot be read. *first*: those before one that its codec
    cannot read will do, if there are any.

    Raises:
        Corrupt: of the first that its codec cannot read.
    """
    done: list[Any] = []
    try:
        done.extend(map(decode, payloads))
    except Exception as problem:
        if not (first and done and _is_unreadable(problem)):
            explain(problem, indexes(len(done)), chunk)
            raise
    return done
