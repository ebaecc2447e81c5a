"""What queue and consumer ask, waited for or awaited: calls are made here, and what comes back is read."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import TYPE_CHECKING, Any, cast

import msgspec

import shmq
from shmq import errors
from shmq.net.client.calls import HELD, Call, Put
from shmq.net.client.messages import as_bytes, of_one_hand
from shmq.net.client.waiting import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shmq.net.client.held import Held
    from shmq.net.client.messages import Fields

MESSAGES = 8191
AHEAD = 1000
"""Messages that are sent ahead to a consumer that shares its name with nobody and acknowledges nothing."""
ROOM = 4096
"""Bytes of a frame that are not payloads."""
_PAIR = 2
_SEQUENCE_MAX = (1 << 63) - 1
_NAMES = ("keys", "types", "times_ns", "headers")


def put(
    payload: Any, encode: Callable[[Any], bytes] | None, frame: int, timeout: float | None = None, **given: Any
) -> Put:
    """
    Return the call for one message.

    Raises:
        TypeError, ValueError, TooLarge: it cannot be put; nothing was.
    """
    options = {
        name: [given[one]]
        for name, one in (("keys", "key"), ("types", "type"), ("times_ns", "time_ns"), ("headers", "headers"))
        if given.get(one)
    }
    options |= {name: given[name] for name in ("ttl", "delay", "dedup") if given.get(name) is not None}
    data = payload if encode is None and type(payload) is bytes else (encode or as_bytes)(payload)
    checked = _checked(options, 1)
    return Put(_fitting([data], checked, frame), checked, timeout, is_one=True)


def put_many(
    payloads: Iterable[Any],
    encode: Callable[[Any], bytes] | None,
    frame: int,
    timeout: float | None = None,
    **given: Any,
) -> Put:
    """
    Return the call for a batch.

    Raises:
        TypeError, ValueError, TooLarge, TooMany: it cannot be put; nothing was.
    """
    if isinstance(payloads, (str, bytes, bytearray, memoryview, dict)):
        raise TypeError(f"payloads={payloads!r:.200}: a list of payloads is wanted, not {type(payloads).__name__}")
    if encode is None:
        data = [each if type(each) is bytes else as_bytes(each) for each in payloads]
    else:
        data = [encode(each) for each in payloads]
    if len(data) > MESSAGES:
        raise errors.TooMany(f"a batch of {len(data)} messages; {MESSAGES} are the most; nothing was put")
    options = {name: list(given[name]) for name in _NAMES if given.get(name) is not None}
    options |= {name: given[name] for name in ("ttl", "dedup") if given.get(name) is not None}
    checked = _checked(options, len(data))
    return Put(_fitting(data, checked, frame), checked, timeout, is_one=False)


def _checked(options: dict[str, Any], count: int) -> dict[str, Any] | None:
    """
    What goes with the payloads; None when nothing does.

    Raises:
        TypeError, ValueError: it is nothing that goes with them.
    """
    for name in _NAMES:
        if name in options and len(options[name]) != count:
            raise ValueError(f"{name}: {len(options[name])} of them for {count} payloads; nothing was put")
    kinds: Sequence[tuple[str, Any]] = (("keys", bytes), ("types", int), ("times_ns", int), ("headers", dict))
    for name, kind in kinds:
        if name == "headers" and name in options:
            options[name] = [None if each is None else _headers(each) for each in options[name]]
        for each in options.get(name, ()):
            if each is not None and not isinstance(each, kind):
                raise TypeError(f"{name}: {each!r:.200}: {kind.__name__} is wanted, not {type(each).__name__}")
    for name in ("ttl", "delay"):
        time = options.get(name)
        if time is not None and (not isinstance(time, (int, float)) or not 0 <= time < math.inf):
            raise ValueError(f"{name}={time!r:.200}: a number of seconds is wanted")
    if "dedup" in options:
        options["dedup"] = _once(options["dedup"], count)
    return options or None


def _once(dedup: Any, count: int) -> list[Any]:
    if not isinstance(dedup, (tuple, list)) or len(dedup) != _PAIR:
        raise TypeError(f"dedup={dedup!r:.200}: a pair (producer, sequence) is wanted, not {type(dedup).__name__}")
    sequence = dedup[1]
    if (
        isinstance(sequence, int) and not 0 <= sequence <= _SEQUENCE_MAX
    ):  # what goes over no wire; the server has the rest
        raise ValueError(f"dedup: sequence={sequence!r:.200}: from 0 to {_SEQUENCE_MAX}")
    if not count:
        raise ValueError("nothing to put, and so nothing that says which batch it is; nothing was put")
    return list(dedup)


def _headers(offered: Any) -> dict[str, Any]:
    """
    Those headers, which a local put would take.

    Raises:
        TypeError, ValueError, OverflowError: it would not.
    """
    if not hasattr(offered, "keys"):
        raise TypeError(f"headers={offered!r:.200}: a mapping is wanted, not {type(offered).__name__}")
    found = dict(offered)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"a header's name={name!r:.200}: a str is wanted, not {type(name).__name__}")
    cast("Callable[[Any], bytes]", shmq.codec.codec("msgpack").encode)(found)
    return found


def _fitting(payloads: list[bytes], options: dict[str, Any] | None, frame: int) -> list[bytes]:
    """
    Those payloads, which fit into one frame.

    Raises:
        TooLarge: they do not.
    """
    more = len(msgspec.msgpack.encode(options)) if options else 0
    size = sum(map(len, payloads)) + 5 * len(payloads) + more + ROOM
    if size > frame:
        raise errors.TooLarge(f"{size} bytes do not fit into a frame: this server takes {frame}; nothing was put")
    return payloads


def unanswered(call: Put, address: object) -> Exception:
    """The error for a put whose time is up: it was sent, and then nobody knows; or it was not."""
    if call.give_up():
        return errors.Full(f"cannot put into {address} in time: the server is not reached; nothing was put")
    return errors.SyncPending(
        f"a put into {address} was sent and not answered in time: it is in the queue, or will be when the server is "
        "reached again; do not put it again"
    )


def left_to_itself(call: Put, address: object) -> Exception:
    """Why a put that was sent is not undone when its task is cancelled: the cause of that cancellation."""
    if call.error is not None:
        return call.error
    return errors.SyncPending(
        f"a put into {address} was sent before its task was cancelled: it is in the queue, or will be when there is "
        "room, unless this queue is closed before; do not put it again"
    )


def moment(to: Any) -> str | float | int:
    """Return a place to begin at, as it goes over the wire: a time is seconds since 1970, and a float."""
    if isinstance(to, datetime.datetime):
        return to.timestamp()
    if isinstance(to, bool) or not isinstance(to, (str, int, float)):
        raise TypeError(f'{to!r:.200}: an index, a time, "earliest" or "latest" is wanted, not {type(to).__name__}')
    return to


_LOCAL = frozenset({"wait"})


def consumer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a consumer is opened with, as it goes over the wire."""
    told = {name: value for name, value in options.items() if value is not None and name not in _LOCAL}
    if "filter" in told:
        told["filter"] = _stored(told["filter"])
    if "start" in told:
        told["start"] = moment(told["start"])
    return told


def _stored(wanted: Any) -> dict[str, str]:
    if not isinstance(wanted, shmq.Filter):
        raise TypeError(f"filter={wanted!r:.200}: a shmq.Filter is wanted, not {type(wanted).__name__}")
    return wanted.stored()


def reading_options(
    reverse: Any = False,
    skip_corrupt: Any = False,
    filter: Any = None,  # noqa: A002  # the field's word
) -> dict[str, Any]:
    """Return what a reader reads with, as it goes over the wire."""
    told: dict[str, Any] = {}
    for name, value in (("reverse", reverse), ("skip_corrupt", skip_corrupt)):
        if value is not True and value is not False:
            raise TypeError(f"{name}={value!r:.200}: True or False is wanted, not {type(value).__name__}")
        if value:
            told[name] = value
    if filter is not None:
        told["filter"] = _stored(filter)
    return told


def ahead(given: int | None, options: Mapping[str, Any], held: Held) -> int:
    """How many messages the server may send ahead: many where nobody is kept from them, else what is asked for."""
    if options.get("group") and not held.explicit:
        return 1  # what is sent is finished, and the others of a group could not be given it back
    if given is not None:
        return given
    return 1 if options.get("group") or held.explicit else AHEAD


def acks(held: Held, owner: object, messages: Sequence[Any]) -> tuple[Call | None, Exception | None]:
    """
    Return the call that acknowledges *messages*, and the error for those that are not held any more.

    Raises:
        TypeError: something is no message of that consumer.
    """
    indexes, lost = of_one_hand(messages, owner, held.incarnation)
    call = Call("ack", (held.cid, indexes), HELD) if indexes else None
    return call, lease_lost(held, lost[0]) if lost else None


def settling(held: Held, message: Fields, verb: str, value: Any) -> Call:
    """
    Return the call that nacks, rejects or extends *message*.

    Raises:
        LeaseLost: it was handed out before the server began anew.
        TypeError, ValueError: the seconds are none; it is held as before.
    """
    if verb != "reject":
        value = seconds("delay", value, none=True) if verb == "nack" else seconds("seconds", value)
    if message.hand.incarnation != held.incarnation:
        raise lease_lost(held, message.index)
    return Call("settle", (held.cid, verb, message.index, value), HELD)


def lease_lost(held: Held, index: int) -> errors.LeaseLost:
    """The error for a message that was handed out before the server began anew."""
    return errors.LeaseLost(
        f"message {index} is not held by consumer {held.name!r} any more: the server has begun anew since, and it was "
        "given to somebody else, or will be"
    )


def nothing(held: Held, address: object, *, up: bool) -> errors.Empty:
    """The error for a get whose time is up."""
    why = "" if up else "; the server is not reached"
    return errors.Empty(f"nothing to get from consumer {held.name!r} of {address} in time{why}")


def statistics(told: dict[str, Any]) -> shmq.Stats:
    """Return figures of a queue, as `shmq.Queue.stats`; `held_by` is left out."""
    known = {name: value for name, value in told.items() if name in _fields(shmq.Stats)}
    aside = {int(which): tuple(reasons) for which, reasons in told.get("aside", {}).items()}
    consumers = consumer_statistics(told["consumers"])
    return shmq.Stats(**{**known, "consumers": consumers, "aside": aside, "held_by": None})


def consumer_statistics(told: dict[str, Any]) -> dict[str, shmq.ConsumerStats]:
    """Return figures of its consumers."""
    return {name: _of_consumer(each) for name, each in told.items()}


def _of_consumer(told: dict[str, Any]) -> shmq.ConsumerStats:
    known = {name: value for name, value in told.items() if name in _fields(shmq.ConsumerStats)}
    if known.get("group") is not None:
        group = known["group"]
        known["group"] = shmq.GroupStats(**{name: group[name] for name in _fields(shmq.GroupStats) & group.keys()})
    if known.get("filter") is not None:
        known["filter"] = shmq.Filter.from_stored(known["filter"])
    return shmq.ConsumerStats(**known)


def _fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}
