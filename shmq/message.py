"""A message as it was read: its fields come straight from the mapped record, decoded when asked for."""

from __future__ import annotations

import datetime
import struct
from typing import TYPE_CHECKING, Any

from shmq import given, later
from shmq._native import LENGTH_BITS, LENGTH_MASK, Record
from shmq.codec import explain
from shmq.errors import Corrupt, Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmq._native import Chunk

_HEADER = struct.Struct("<IIIHHqHHHH")  # layout.h, struct record, from `length` on
_HEADER_BYTES = 40
_FIELD = struct.Struct("<II")
_HEADERS_FLAG = 1 << 6
_FIELD_BYTES = {0: 24, 1: 24, 2: 24, 3: 24, 4: 16}  # optional fields of fixed size, by their flag's bit
_NS = 1_000_000_000


class Message(Record):
    """
    One message.

    Attributes:
        index: its place in the queue; ascending, never reused.
        attempts: how often it was handed out, this time included; exact within a process, at least 2 after a crash.
    """

    __slots__ = ()  # its base has them, so that the core can fill them in (cffi_build/src/python/hot_find.c)

    def __init__(
        self,
        chunk: Chunk,
        index: int,
        record: int,
        place: int,
        decode: Callable[[Any], Any] | None,
        acknowledge: Callable[[Message], None] | None = None,
        attempts: int = 1,
    ) -> None:
        """Of a record that was checked when it was read."""
        self.index = index
        self.attempts = attempts
        self._chunk = chunk
        self._record = record
        self._place = place
        self._decode = decode
        self._acknowledge = acknowledge
        self._fields = None

    def _header(self) -> tuple[int, ...]:
        if self._fields is None:
            self._fields = _HEADER.unpack_from(self._chunk.map, self._record + 8)
        return self._fields

    @property
    def payload(self) -> Any:
        """
        The payload, decoded; each time a copy of its own of what is there now.

        Its checksum was looked at when the message was handed out. Who may write the file can change it behind that;
        what `Consumer.take` returns is the copy that was checked.

        Raises:
            Corrupt: the queue's codec cannot read it; `view` has its bytes.
        """
        start = self._place >> LENGTH_BITS
        data = self._chunk.map[start : start + (self._place & LENGTH_MASK)]
        if self._decode is None:
            return data
        try:
            return self._decode(data)
        except Exception as problem:
            explain(problem, self.index, self._chunk)
            raise

    @property
    def view(self) -> memoryview:
        """The payload's bytes where they are, read-only, without a copy. The chunk stays mapped while it is held."""
        start = self._place >> LENGTH_BITS
        return memoryview(self._chunk.map).toreadonly()[start : start + (self._place & LENGTH_MASK)]

    @property
    def time_ns(self) -> int:
        """When it was put (or what its producer gave as time), in ns since 1970."""
        return self._header()[5]

    @property
    def time(self) -> datetime.datetime:
        """The same as a datetime, UTC, to the microsecond."""
        seconds, rest = divmod(self.time_ns, _NS)
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + datetime.timedelta(microseconds=rest // 1000)

    @property
    def type(self) -> int:
        """The user's type, 0 to 65535."""
        return self._header()[6]

    @property
    def key(self) -> bytes | None:
        """The key; None when it was put without one (or with an empty one)."""
        *_, key_length, extra_words = self._header()
        start = self._record + _HEADER_BYTES + 8 * extra_words
        return self._chunk.map[start : start + key_length] if key_length else None

    @property
    def headers(self) -> dict[str, Any]:
        """
        The headers; empty when it was put without any.

        Raises:
            Corrupt: they are no mapping that msgpack can read.
        """
        stored = self.raw_headers
        if stored is None:
            return {}
        later.ready("msgspec")
        import msgspec  # noqa: PLC0415  # only users of headers pay for it

        reason = "they are no mapping"
        try:
            decoded = msgspec.msgpack.decode(stored)
            if isinstance(decoded, dict):
                return decoded
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            reason = str(problem)
        raise Corrupt(f"cannot read the headers of message {self.index} in {self._chunk.path}: {reason}")

    @property
    def raw_headers(self) -> bytes | None:
        """The headers as they lie there, msgpack; None when it was put without any."""
        flags = self._header()[7]
        if not flags & _HEADERS_FLAG:
            return None
        at = self._record + _HEADER_BYTES
        for bit in range(6):
            if flags >> bit & 1:
                at += _FIELD_BYTES.get(bit, 0) or 8 + -(-_FIELD.unpack_from(self._chunk.map, at)[0] // 8) * 8
        (length, _) = _FIELD.unpack_from(self._chunk.map, at)
        return bytes(self._chunk.map[at + 8 : at + 8 + length])

    @property
    def weight(self) -> int:
        """About how many bytes its key, headers and payload have."""
        return max(int(self._header()[0]) - _HEADER_BYTES, 1)

    @property
    def expires(self) -> datetime.datetime | None:
        """When it expires, UTC, as the wall clock is now; None when it never does."""
        if not self._header()[7] & 1:
            return None
        later.ready("shmq.putting.when")
        from shmq.putting.when import wall_ns  # noqa: PLC0415  # only users of times pay for it

        at = self._record + _HEADER_BYTES
        seconds, rest = divmod(wall_ns(self._chunk.map[at : at + 24]), _NS)
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + datetime.timedelta(microseconds=rest // 1000)

    @property
    def due_ns(self) -> int:
        """Not before this moment, in ns since 1970, as the wall clock is now; 0 when it was put to come at once."""
        flags = self._header()[7]
        if not flags & 2:
            return 0
        later.ready("shmq.putting.when")
        from shmq.putting.when import wall_ns  # noqa: PLC0415  # only users of times pay for it

        at = self._record + _HEADER_BYTES + 24 * (flags & 1)
        return wall_ns(self._chunk.map[at : at + 24])

    @property
    def expired(self) -> bool:
        """Whether its time to live has passed."""
        expires = self.expires
        return expires is not None and expires <= datetime.datetime.now(datetime.UTC)

    @property
    def errors(self) -> int:
        """How often it was handed out before, and not finished."""
        return self.attempts - 1

    def ack(self) -> None:
        """
        Say that this message is finished: it will not come again. A second time it does nothing.

        Raises:
            Closed: its consumer was closed; the message will be handed out again.
            Forked: it was handed to the parent process.
        """
        if self._acknowledge is not None:
            self._acknowledge(self)

    def nack(self, delay: float = 0.0) -> None:
        """Give it back; only messages of a group can be: see `GroupMessage.nack`."""
        raise self._not_of_a_group("give back", delay)

    def reject(self, reason: object = "") -> None:
        """Move it to the dead letters; only messages of a group can be: see `GroupMessage.reject`."""
        raise self._not_of_a_group("reject", reason)

    def extend(self, seconds: float) -> None:
        """Keep it longer; only messages of a group can be: see `GroupMessage.extend`."""
        raise self._not_of_a_group("extend the lease of", seconds)

    def _not_of_a_group(self, what: str, _: object) -> Mismatch:
        return Mismatch(
            f"cannot {what} message {self.index}: it was not handed out by a group; open the consumer with "
            'queue.consumer(name, group=True, ack="explicit"), which must be a new name'
        )

    def __repr__(self) -> str:
        """Index, key and size, for people."""
        key = f", key={self.key!r}" if self.key else ""
        return f"Message(index={self.index}{key}, {self._place & LENGTH_MASK} bytes)"


def no_message(thing: object) -> TypeError:
    """The error for an ack of something else; often a list of messages."""
    hint = "; write ack(*messages)" if isinstance(thing, (list, tuple)) else ""
    return given.wrong_type("ack(message)", thing, "a message that this consumer was handed", hint)


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
