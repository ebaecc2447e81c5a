"""
What of a message is done in Python: the built-in (cffi_build/src/python/hot_message.c) is told of it once, below.

Times as datetimes, headers, and what is said to people are rare; everything else a message does itself.
"""

from __future__ import annotations

import os
import struct
import time

from shmq import _native, given, later
from shmq._native import LENGTH_MASK
from shmq._native import Message as Message  # noqa: PLC0414  # exported
from shmq.codec import explain
from shmq.errors import Corrupt, Mismatch
from shmq.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Sequence
    from typing import Never

    from shmq._native import Chunk

_HEADER_BYTES = 40
_FIELD = struct.Struct("<II")
_HEADERS_FLAG = 1 << 6
_CARRIED = _HEADERS_FLAG | 1
_FIELD_BYTES = {0: 24, 1: 24, 2: 24, 3: 24, 4: 16}  # optional fields of fixed size, by their flag's bit
_NS = 1_000_000_000


def of_record(chunk: Chunk, index: int, record: int, place: int, decode: Callable[[Any], Any] | None) -> Message:
    """The message of a record that was checked when it was read, with nothing to finish."""
    return _native.message(chunk, chunk.address, index, record, place, decode, None, 1)


def carried(messages: Sequence[Message]) -> dict[int, tuple[bytes | None, int | None]]:
    """
    Of those that have any: the headers as they lie there, and the expiry in ns since 1970, as the wall clock is now.

    For whoever sends messages on, and has many: their flags are looked at, and nothing is made of most.
    """
    flagged = [at for at, message in enumerate(messages) if _native.parts(message)[3] & _CARRIED]
    return {
        at: (messages[at].raw_headers, _wall_ns(messages[at], 0) if _flags(messages[at]) & 1 else None)
        for at in flagged
    }


# ---- its fields
def _moment(time_ns: int) -> datetime.datetime:
    later.ready("datetime")
    import datetime  # noqa: PLC0415  # only users of times pay for it

    seconds, rest = divmod(time_ns, _NS)
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + datetime.timedelta(microseconds=rest // 1000)


def _time(message: Message) -> datetime.datetime:
    return _moment(message.time_ns)


class EncodedHeaders(list[Any]):  # of bytes; any, since it goes where a list of mappings may go
    """The headers of several messages as they lie in their records, MessagePack of maps: taken as they are."""


def _headers(message: Message) -> dict[str, Any]:
    stored = message.raw_headers
    if stored is None:
        return {}
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # only users of headers pay for it

    reason = "they are not a mapping"
    try:
        decoded = msgspec.msgpack.decode(stored)
        if isinstance(decoded, dict):
            return decoded
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as problem:
        reason = str(problem)
    raise Corrupt(f"cannot read the headers of message {message.index} in {_native.parts(message)[0].path}: {reason}")


def _raw_headers(message: Message) -> bytes | None:
    chunk, record, _, flags, *_ = _native.parts(message)
    if not flags & _HEADERS_FLAG:
        return None
    memory, at = chunk.map, record + _HEADER_BYTES
    for bit in range(6):
        if flags >> bit & 1:
            at += _FIELD_BYTES.get(bit, 0) or 8 + -(-_FIELD.unpack_from(memory, at)[0] // 8) * 8
    (length, _) = _FIELD.unpack_from(memory, at)
    return bytes(memory[at + 8 : at + 8 + length])


def _wall_ns(message: Message, at: int) -> int:
    """The moment in the optional field that begins there."""
    later.ready("shmq.putting.when")
    from shmq.putting.when import wall_ns  # noqa: PLC0415  # only users of times pay for it

    chunk, record, *_ = _native.parts(message)
    at += record + _HEADER_BYTES
    return wall_ns(chunk.map[at : at + 24])


def _flags(message: Message) -> int:
    return _native.parts(message)[3]


def _expires(message: Message) -> datetime.datetime | None:
    return _moment(_wall_ns(message, 0)) if _flags(message) & 1 else None


def _expired(message: Message) -> bool:
    return bool(_flags(message) & 1) and _wall_ns(message, 0) <= time.time_ns()


def _due_ns(message: Message) -> int:
    flags = _flags(message)
    return _wall_ns(message, 24 * (flags & 1)) if flags & 2 else 0


def _repr(message: Message) -> str:
    key = f", key={message.key!r}" if message.key else ""
    return f"Message(index={message.index}{key}, {_native.parts(message)[2] & LENGTH_MASK} bytes)"


def _explain(message: Message, problem: Exception) -> Never:
    """What its codec has with its payload."""
    explain(problem, message.index, _native.parts(message)[0])
    raise problem


def _refuse(message: Message, what: str) -> Never:
    raise Mismatch(
        f"cannot {what} message {message.index}: it was not handed out by a consumer that has "
        'to acknowledge it; open one with queue.consumer(name, ack="explicit"), which must be a new name'
    )


def _pickle(message: Message) -> Never:
    queue = os.path.dirname(os.path.dirname(_native.parts(message)[0].path))
    raise TypeError(
        f"cannot pickle message {message.index} of {queue}: it is a place in the queue, and whoever was handed it "
        f"finishes it; pass on what it carries (message.payload, .key, .headers), or the queue and where it is: "
        f"queue[{message.index}]"
    )


def _array(message: Message) -> Any:
    later.ready("shmq.arrays")
    from shmq.arrays import of_message  # noqa: PLC0415  # only users of arrays pay for it

    return of_message(message)


TOLD: dict[str, Callable[..., Any]] = {
    "array": _array,
    "due_ns": _due_ns,
    "expired": _expired,
    "expires": _expires,
    "explain": _explain,
    "headers": _headers,
    "pickle": _pickle,
    "raw_headers": _raw_headers,
    "refuse": _refuse,
    "repr": _repr,
    "time": _time,
}
_native.tell(TOLD)


def no_message(thing: object, verb: str = "ack") -> TypeError:
    """The error for an ack, say, of something else; often a list of messages."""
    if isinstance(thing, Message):
        return TypeError(
            f"{verb}(message): message {thing.index} was handed out by nobody who has to acknowledge it: it comes from "
            'peek(), an index, a reader, or a consumer with ack="auto"'
        )
    hint = f"; write {verb}(*messages)" if isinstance(thing, (list, tuple)) else ""
    if hasattr(thing, "plain"):
        hint = f"; of a message of shmq.aio, {verb} its .plain"
    return given.wrong_type(f"{verb}(message)", thing, "a message that this consumer was handed", hint)


def payloads_of(messages: Iterable[Message]) -> list[Any]:
    """
    Of these messages: of those before one that its codec cannot read, if there are any.

    Raises:
        Corrupt: it cannot read the first one.
    """
    done: list[Any] = []
    try:
        done.extend(message.payload for message in messages)
    except Corrupt:
        if not done:
            raise
    return done
