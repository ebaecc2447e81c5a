"""
What goes between our own client and a server: msgpack arrays `[verb, tid, ...]`, each the body of a frame. No I/O.

A batch carries its payloads as one piece of bytes and the places where each ends, so that a message costs neither side
more than a slice. docs/shmq1.md has every verb.
"""

from __future__ import annotations

import sys
import time
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
_MINUTE_NS = 60 * 10**9
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
    """Of some: the headers as msgpack or None, and when it expires, in ns since 1970 by the server's clock, or None."""
    ends: dict[int, int] | None
    """Of those that expire: when that is by `boottime_ns` of this machine."""
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
    extras = carried(messages) or None
    attempts = [message.attempts for message in messages]
    ends, data = joined(list(map(bytes, messages)))
    return [
        _packed_indexes([message.index for message in messages]),
        numbers("q", [message.time_ns for message in messages]),
        numbers("H", types) if any(types) else None,
        numbers("I", attempts) if set(attempts) != {1} else None,
        keys if any(keys) else None,
        extras,
        _clock(extras),
        ends,
        data,
    ]


def boottime_ns() -> int:
    """What this machine's clock shows that nobody sets, and that goes on while it sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _clock(extras: dict[int, Any] | None) -> list[int] | None:
    """Return that clock, and what the one that people set is ahead of it; None if none of them expires."""
    if extras is None or all(expires is None for _, expires in extras.values()):
        return None
    now = boottime_ns()
    return [now, time.time_ns() - now]


class Clock:
    """
    How far the server's `boottime_ns` is ahead of this machine's: what it said, less the time that it took to come.

    It is at least what any message says; one that came without delay says it exactly. So the most of the last minute
    or two counts, for no two clocks go alike.
    """

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._most: list[int] = []
        self._since = 0

    def begin(self, server_ns: Any) -> None:
        """Forget what was told; another machine may answer there now."""
        self._most = []
        if isinstance(server_ns, int):
            self.told(server_ns)

    def told(self, server_ns: int) -> int:
        """Take in what the server's clock showed when it sent that; return by how much it is ahead."""
        now = boottime_ns()
        if not self._most or now - self._since > _MINUTE_NS:
            self._most = [*self._most[-1:], server_ns - now]
            self._since = now
        self._most[-1] = max(self._most[-1], server_ns - now)
        return max(self._most)


def _packed_indexes(indexes: list[int]) -> list[int] | bytes:
    first = indexes[0] if indexes else 0
    if indexes and indexes[-1] - first == len(indexes) - 1 and indexes == list(range(first, first + len(indexes))):
        return [first, len(indexes)]
    return numbers("Q", indexes)


def unpacked(columns: Any, clock: Clock | None = None) -> Batch:
    """
    Return the batch that `packed` has packed.

    Args:
        clock: what is known of the server's; without it, the batch is taken to have come without delay.

    Raises:
        BadRequest: it has packed nothing like that.
    """
    try:
        indexes, times, types, attempts, keys, extras, told, ends, data = columns
        found = Batch(
            range(indexes[0], indexes[0] + indexes[1]) if isinstance(indexes, list) else numbers_of("Q", indexes),
            numbers_of("q", times),
            None if types is None else numbers_of("H", types),
            None if attempts is None else numbers_of("I", attempts),
            keys,
            extras,
            None if told is None else _ends(extras, told, clock or Clock()),
            numbers_of("I", ends),
            data,
        )
    except (TypeError, ValueError, IndexError, AttributeError) as problem:
        raise BadRequest(f"a batch of messages that is none: {problem}") from None
    return found


def _ends(extras: dict[int, list[Any]], told: list[int], clock: Clock) -> dict[int, int]:
    server_ns, shift = told
    ahead = clock.told(server_ns)
    return {at: expires - shift - ahead for at, (_, expires) in extras.items() if expires is not None}


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
        TimeoutError,
        TypeError,
        ValueError,
    )
}
_WITH_NUMBER = {"Gone": "first_index", "SyncFailed": "index", "SyncPending": "index"}


def error(tid: int, problem: Exception, said: Callable[[str], str] = str) -> list[Any]:
    """Return the message that *problem* is; *said* makes of its text one that is fit for the peer."""
    kind = next((each.__name__ for each in type(problem).__mro__ if _known(each.__name__)), "ShmqError")
    text, number = str(problem), getattr(problem, _WITH_NUMBER.get(kind, ""), None)
    if isinstance(problem, OSError) and problem.errno is not None:
        text, number = problem.strerror or "", problem.errno  # and no file's name, which is of this machine
    elif isinstance(problem, KeyError) and problem.args:
        text = str(problem.args[0])  # a KeyError shows it in quotes
    return ["error", tid, kind, said(text), number]


def _known(name: str) -> type[Exception] | None:
    found = getattr(errors, name, None) or _BUILT_IN.get(name)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def raised(kind: Any, text: Any, number: Any) -> Exception:
    """Return the exception that a message of the verb "error" tells of."""
    known = _known(str(kind)) or errors.ShmqError
    if kind in _WITH_NUMBER:
        return known(str(text), number)
    if issubclass(known, OSError) and number is not None:
        return known(number, str(text))  # by its number it is a FileNotFoundError, or whatever else
    return known(str(text))
