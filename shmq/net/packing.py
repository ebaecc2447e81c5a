"""
What goes between our own client and a server: msgpack arrays `[verb, tid, ...]`, each the body of a frame. No I/O.

A batch carries its payloads as one piece of bytes and the places where each ends, so that a message costs neither side
more than a slice. docs/shmq1.md has every verb.
"""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shmq import errors
from shmq.carried import carried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import shmq

VERSION = 1
WINDOW = 32
"""Batches of a session that may be under way."""
GRACE = 10.0
"""Seconds of silence after which what a client holds is given to others."""
HEARTBEAT = 0.3
"""After which part of the grace a client that has nothing to say says so."""
MESSAGES = 8191
"""In one batch of puts."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class BadRequest(ValueError):
    """What came is nothing that this protocol has. The text is fit for the peer."""


def decode(body: bytes) -> list[Any]:
    """
    Return the parts of one message of the protocol, of which the first two are a verb and a number.

    Raises:
        BadRequest: it is none.
    """
    try:
        parts = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise BadRequest(f"a body that is not msgpack: {problem}") from None
    if not isinstance(parts, list) or len(parts) < 2 or not isinstance(parts[0], str) or not _is_number(parts[1]):
        raise BadRequest("a body that is no [verb, tid, ...]")
    return parts


def _is_number(thing: object) -> bool:
    return isinstance(thing, int) and not isinstance(thing, bool) and thing >= 0


# ---- numbers, as they lie in memory of a little-endian machine
def numbers(kind: str, values: Any) -> bytes:
    """Return *values* as fixed-size numbers, little-endian: *kind* as of `array`."""
    packed = array(kind, values)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def numbers_of(kind: str, data: Any) -> list[int]:
    """
    Return what `numbers` has packed.

    Raises:
        BadRequest: it has packed nothing like that.
    """
    unpacked = array(kind)
    if not isinstance(data, bytes) or len(data) % unpacked.itemsize:
        raise BadRequest("numbers that are not whole")
    unpacked.frombytes(data)
    if sys.byteorder != "little":
        unpacked.byteswap()
    return unpacked.tolist()


# ---- payloads
def joined(payloads: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return where each payload ends, and all of them in one piece."""
    return numbers("I", accumulate(map(len, payloads))), b"".join(payloads)


def cut(ends: Any, data: Any) -> list[bytes]:
    """
    Return the payloads that `joined` has joined.

    Raises:
        BadRequest: it has joined nothing like that.
    """
    stops = numbers_of("I", ends)
    if not isinstance(data, bytes) or (stops[-1] if stops else 0) != len(data):
        raise BadRequest("a batch whose payloads are not as long as it says")
    if any(map(int.__gt__, stops, stops[1:])):
        raise BadRequest("a batch whose payloads end before they begin")
    return [data[start:stop] for start, stop in pairwise((0, *stops))]


# ---- messages
class Batch(NamedTuple):
    """Messages side by side: the n-th of each column is of the n-th message."""

    indexes: Sequence[int]
    times_ns: Sequence[int]
    types: Sequence[int] | None
    attempts: Sequence[int] | None
    keys: Sequence[bytes | None] | None
    extras: dict[int, list[Any]] | None
    """Of some: the headers as msgpack or None, and when it expires, in ns since 1970, or None."""
    stops: Sequence[int]
    data: bytes

    def payloads(self, start: int, stop: int) -> list[bytes]:
        """Return the payloads of those from *start* to *stop*."""
        stops = self.stops[start:stop]
        return [self.data[begin:end] for begin, end in pairwise((self.stops[start - 1] if start else 0, *stops))]

    def payload(self, at: int) -> bytes:
        """Return the payload of the n-th one."""
        return self.data[self.stops[at - 1] if at else 0 : self.stops[at]]


def packed(messages: Sequence[shmq.Message[Any]]) -> list[Any]:
    """Return *messages* as the columns of a batch."""
    keys = [message.key for message in messages]
    types = [message.type for message in messages]
    attempts = [message.attempts for message in messages]
    ends, data = joined(list(map(bytes, messages)))
    return [
        _packed_indexes([message.index for message in messages]),
        numbers("q", [message.time_ns for message in messages]),
        numbers("H", types) if any(types) else None,
        numbers("I", attempts) if set(attempts) != {1} else None,
        keys if any(keys) else None,
        carried(messages) or None,
        ends,
        data,
    ]


def _packed_indexes(indexes: list[int]) -> list[int] | bytes:
    first = indexes[0] if indexes else 0
    if indexes and indexes[-1] - first == len(indexes) - 1 and indexes == list(range(first, first + len(indexes))):
        return [first, len(indexes)]
    return numbers("Q", indexes)


def unpacked(columns: Any) -> Batch:
    """
    Return the batch that `packed` has packed.

    Raises:
        BadRequest: it has packed nothing like that.
    """
    try:
        indexes, times, types, attempts, keys, extras, ends, data = columns
        found = Batch(
            range(indexes[0], indexes[0] + indexes[1]) if isinstance(indexes, list) else numbers_of("Q", indexes),
            numbers_of("q", times),
            None if types is None else numbers_of("H", types),
            None if attempts is None else numbers_of("I", attempts),
            keys,
            extras,
            numbers_of("I", ends),
            data,
        )
    except (TypeError, ValueError, IndexError) as problem:
        raise BadRequest(f"a batch of messages that is none: {problem}") from None
    return found


# ---- errors
_BUILT_IN: dict[str, type[Exception]] = {
    each.__name__: each
    for each in (
        IndexError,
        KeyError,
        NotImplementedError,
        OSError,
        OverflowError,
        PermissionError,
        TypeError,
        ValueError,
    )
}
_WITH_INDEX = {"Gone": "first_index", "SyncFailed": "index", "SyncPending": "index"}


def error(tid: int, problem: Exception, said: Callable[[str], str] = str) -> list[Any]:
    """Return the message that *problem* is; *said* makes of its text one that is fit for the peer."""
    kind = next((each.__name__ for each in type(problem).__mro__ if _known(each.__name__)), "ShmqError")
    return ["error", tid, kind, said(str(problem)), getattr(problem, _WITH_INDEX.get(kind, ""), None)]


def _known(name: str) -> type[Exception] | None:
    found = getattr(errors, name, None) or _BUILT_IN.get(name)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def raised(kind: Any, text: Any, index: Any) -> Exception:
    """Return the exception that a message of the verb "error" tells of."""
    known = _known(str(kind)) or errors.ShmqError
    if kind in _WITH_INDEX:
        return known(str(text), index)
    return known(str(text))
