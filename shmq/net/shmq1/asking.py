"""What each verb is asked with. What is asked otherwise is refused here, in words for whoever wrote the client."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from shmq.net import packing, rights
from shmq.net.shmq1 import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


def _is_verb_of_messages(given: Any) -> bool:
    return given in ("nack", "reject", "extend")


def _is_list_of_whole(given: Any) -> bool:
    return isinstance(given, list) and all(map(_is_whole, given))


def _or_nil(is_fit: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda given: given is None or is_fit(given)


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_map(given: Any) -> bool:
    return isinstance(given, dict) and all(map(_is_text, given))


def _is_anything(_: Any) -> bool:
    return True


_CID = {"cid": _is_whole}
_ASKED: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "producer": {"again": lambda given: isinstance(given, bool)},
    "consumer": {**_CID, "name": _or_nil(_is_text), "options": _is_map},
    "get": {**_CID, "received": _is_whole, "count": _is_whole, "timeout": _or_nil(_is_number)},
    "credit": {**_CID, "received": _is_whole, "granted": _is_whole},
    "again": {**_CID, "received": _is_whole, "granted": _is_whole},
    "stop": {"tid": _is_whole},
    "ack": {**_CID, "indexes": _is_list_of_whole},
    "back": {**_CID, "indexes": _is_list_of_whole},
    "settle": {**_CID, "verb": _is_verb_of_messages, "index": _is_whole, "value": _is_anything},
    "seek": {**_CID, "to": _is_anything},
    "peek": _CID,
    "figures": _CID,
    "shut": {**_CID, "left": _or_nil(_is_whole), "received": _or_nil(_is_whole), "unseen": _or_nil(_is_list_of_whole)},
    "read": {
        "start": _is_anything,
        "stop": _is_anything,
        "count": _is_whole,
        "wait": _or_nil(_is_number),
        "options": _is_map,
    },
}
"""By verb: what each thing is called, as in docs/shmq1.md, and what it has to be."""
_UNANSWERED = frozenset({"credit", "stop", "ping"})
"""Verbs whose number may be 0: nothing is kept of them. Others are counted, so that nobody has too many at a time."""


def check_number(verb: str, tid: int) -> None:
    """
    Refuse a request that cannot be answered.

    Raises:
        BadRequest: it has no number of its own.
    """
    if not tid and verb not in _UNANSWERED:
        raise packing.BadRequest(f"{verb[:40]!r} is answered, and has a number that is not 0")


def check(verb: str, given: Sequence[Any]) -> None:
    """
    Refuse a request that is none.

    Raises:
        BadRequest: it has more or less than *verb* is asked with, or something of another type.
    """
    asked = _ASKED.get(verb)
    if asked is None:
        return
    if len(given) != len(asked):
        raise packing.BadRequest(f"{verb} is asked with {', '.join(asked)}: {len(asked)} things, not {len(given)}")
    for (name, is_fit), each in zip(asked.items(), given, strict=True):
        if not is_fit(each):
            raise packing.BadRequest(f"{verb}: {name} is not what it has to be, but {type(each).__name__}")


def call(name: Any, given: Sequence[Any]) -> tuple[str, Callable[..., Any]]:
    """
    Return by which right a call is made, and what makes it.

    Raises:
        BadRequest: there is no such call, or it is called with more, or less.
    """
    found = reading.CALLS.get(name) if isinstance(name, str) else None
    if found is None:
        raise packing.BadRequest(f"this server has no call {str(name)[:40]!r}")
    try:
        inspect.signature(found).bind(None, *given)
    except TypeError:
        raise packing.BadRequest(f"the call {name} is not made with {len(given)} things") from None
    return rights.CALLS[name], found
