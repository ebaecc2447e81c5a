"""Messages as a client has them: a batch that came, and a place in it. What they are asked goes to their consumer."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

import shmq
from shmq import errors
from shmq.net import packing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq.net.packing import Batch

    Decode = Callable[[bytes], Any] | None

_NS = 1_000_000_000
_NEVER = 1 << 63


class Hand(NamedTuple):
    """
    What the messages of one call have in common.

    Attributes:
        decode: what their payloads mean.
        owner: the consumer that was handed them, if they have to be acknowledged there.
        incarnation: of that consumer, at that time.
        acked: the places in their batch of those that were acknowledged.
    """

    decode: Decode
    owner: Any
    incarnation: int
    acked: set[int]


class Fields:
    """
    What a message has, as `shmq.Message`: it was copied, and stays as it is.

    Attributes:
        batch, at: with which others it came, and where it stands there.
        hand: what those have in common that were handed out with it.
    """

    __slots__ = ("at", "batch", "hand")

    def __init__(self, batch: Batch, at: int, hand: Hand) -> None:
        """The message at that place of a batch."""
        self.batch = batch
        self.at = at
        self.hand = hand

    @property
    def index(self) -> int:
        """Its number in the queue."""
        return self.batch.indexes[self.at]

    @property
    def payload(self) -> Any:
        """
        What was put, decoded.

        Raises:
            Corrupt: the codec cannot read it.
        """
        data = self.batch.payload(self.at)
        decode = self.hand.decode
        return data if decode is None else decoded(decode, data, self.index)

    @property
    def view(self) -> memoryview:
        """The bytes."""
        return memoryview(self.batch.payload(self.at))

    def __bytes__(self) -> bytes:
        """The bytes."""
        return self.batch.payload(self.at)

    @property
    def key(self) -> bytes | None:
        """What it belongs to."""
        return None if self.batch.keys is None else self.batch.keys[self.at]

    @property
    def type(self) -> int:
        """The user's own number."""
        return 0 if self.batch.types is None else self.batch.types[self.at]

    @property
    def time_ns(self) -> int:
        """Its time, in ns since 1970."""
        return self.batch.times_ns[self.at]

    @property
    def time(self) -> datetime.datetime:
        """Its time, UTC."""
        return _moment(self.time_ns)

    @property
    def attempts(self) -> int:
        """How often it was handed out, this time included."""
        return 1 if self.batch.attempts is None else self.batch.attempts[self.at]

    def _extra(self) -> Sequence[Any]:
        extras = self.batch.extras
        return (None, None) if extras is None else extras.get(self.at, (None, None))

    @property
    def raw_headers(self) -> bytes | None:
        """The headers as they lie there, msgpack; None when it was put without any."""
        found: bytes | None = self._extra()[0]
        return found

    @property
    def headers(self) -> dict[str, Any]:
        """
        The mapping that it was put with.

        Raises:
            Corrupt: they cannot be read.
        """
        raw = self.raw_headers
        if raw is None:
            return {}
        try:
            return msgspec.msgpack.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, ValueError) as problem:
            raise errors.Corrupt(f"cannot read the headers of message {self.index}: {problem}") from None

    @property
    def expires(self) -> datetime.datetime | None:
        """When it expires, UTC, as the server's clock has it; None when it never does."""
        expires_ns = self._extra()[1]
        return None if expires_ns is None else _moment(expires_ns)

    @property
    def expired(self) -> bool:
        """Whether it has: so much time has passed since it came, whatever this machine's clock shows."""
        ends = self.batch.ends
        return bool(ends) and ends.get(self.at, _NEVER) <= packing.boottime_ns()  # type: ignore[union-attr]

    def __repr__(self) -> str:
        """Index, key and length, for people."""
        key = f", key={self.key!r}" if self.key else ""
        return f"{type(self).__name__}(index={self.index}{key}, {len(self.batch.payload(self.at))} bytes)"


class _Settles(Protocol):
    def settle(self, message: RemoteMessage, verb: str, given: Any) -> None: ...


class RemoteMessage(Fields):
    """A message from a server, with the verbs of `shmq.Message`; each returns when the server has done it."""

    __slots__ = ()

    def ack(self) -> None:
        """
        Acknowledge it. Of a consumer that acknowledges nothing, it does nothing.

        Raises:
            LeaseLost: it was given to somebody else, or the server began anew.
            Forked: the parent process was handed it.
        """
        self._by("ack", None)

    def nack(self, delay: float = 0.0) -> None:
        """Give it back, to come again after *delay* seconds; raises as `ack`."""
        self._by("nack", delay)

    def reject(self, reason: object = "") -> None:
        """Have it moved to the dead letters; raises as `ack`."""
        self._by("reject", str(reason))

    def extend(self, seconds: float) -> None:
        """Hold it for so many seconds more; raises as `ack`."""
        self._by("extend", seconds)

    def _by(self, verb: str, given: Any) -> None:
        owner: _Settles | None = self.hand.owner
        if owner is not None:
            owner.settle(self, verb, given)
        elif verb != "ack":
            raise no_holder(self, verb)


def no_holder(message: Fields, verb: str) -> errors.Mismatch:
    """The error for what was handed out by nobody who has to acknowledge it."""
    return errors.Mismatch(
        f"cannot {verb} message {message.index}: it was not handed out by a consumer that has to acknowledge it; open "
        'one with queue.consumer(name, ack="explicit"), which must be a new name'
    )


def decoded(decode: Callable[[bytes], Any], data: bytes, index: int) -> Any:
    """
    Return what those bytes mean.

    Raises:
        Corrupt: the codec cannot read them.
    """
    try:
        return decode(data)
    except (ValueError, OverflowError, RecursionError, EOFError) as problem:
        raise errors.Corrupt(f"cannot decode message {index}: {type(problem).__name__}: {problem}") from problem


def coding(name: str) -> tuple[Callable[[Any], bytes] | None, Decode]:
    """
    Return what encodes and decodes the payloads of a queue with that codec.

    Nothing is unpickled here, and a codec of somebody's own is not known: those payloads are bytes.
    """
    if name in {"text", "json", "msgpack"}:
        found = shmq.codec.codec(name)
        return found.encode, found.decode
    return None, None


def as_bytes(payload: Any) -> bytes:
    """
    Return the bytes of a payload for a queue of bytes.

    Raises:
        TypeError: it has none.
    """
    if isinstance(payload, (str, int)):
        raise TypeError(f"payload={payload!r:.200}: something of bytes is wanted, not {type(payload).__name__}")
    try:
        return memoryview(payload).tobytes()
    except TypeError:
        if hasattr(payload, "tobytes") and hasattr(payload, "__array_interface__"):
            return bytes(payload.tobytes())
        raise TypeError(
            f"payload={payload!r:.200}: something of bytes is wanted, not {type(payload).__name__}"
        ) from None


def one(columns: Any, decode: Decode) -> RemoteMessage:
    """Return the message of a batch of one."""
    return several(columns, decode)[0]


def several(columns: Any, decode: Decode) -> list[RemoteMessage]:
    """Return the messages of a batch."""
    batch, hand = packing.unpacked(columns), Hand(decode, None, 0, set())
    return [RemoteMessage(batch, at, hand) for at in range(len(batch.indexes))]


def of_one_hand(messages: Sequence[Any], owner: object, incarnation: int) -> tuple[list[int], list[int]]:
    """
    Return the indexes of those that are to be acknowledged, and of those that were handed out in another incarnation.

    Raises:
        TypeError: something is no message that *owner* was handed.
    """
    held: list[int] = []
    lost: list[int] = []
    for message in messages:
        if not isinstance(message, Fields):
            hint = "; write ack(*messages)" if isinstance(message, (list, tuple)) else ""
            raise TypeError(f"ack({message!r:.200}): a message that this consumer was handed is wanted{hint}")
        hand, at = message.hand, message.at
        if hand.owner is owner and at not in hand.acked:
            (held if hand.incarnation == incarnation else lost).append(message.batch.indexes[at])
        elif hand.owner is not owner and hand.owner is not None:
            raise TypeError(f"ack(message): message {message.index} was handed out by another consumer")
    return held, lost


def are_acked(messages: Sequence[Any]) -> None:
    """Remember that they were: once more does nothing."""
    for message in messages:
        message.hand.acked.add(message.at)


def _moment(time_ns: int) -> datetime.datetime:
    seconds, rest = divmod(time_ns, _NS)
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + datetime.timedelta(microseconds=rest // 1000)
