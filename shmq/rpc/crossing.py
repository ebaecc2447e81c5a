"""
Errors that cross: what a method raises is raised again by the call.

A class comes back as itself if both sides know it without having to import anything: built-in ones, those of shmq, and
those that were registered. Others come back as RemoteError, which says what they were. Nothing is unpickled.
"""

from __future__ import annotations

import builtins
import traceback
from typing import Any, TypeVar

import msgspec

from shmq import errors as _shmq
from shmq.rpc import errors as _rpc
from shmq.rpc.errors import RemoteError, RemoteTraceback

_TEXT_MAX = 16 << 10
_NOT_RAISED = (StopIteration, StopAsyncIteration)
"""What means something else where it is raised again."""

_Class = TypeVar("_Class", bound=type[Exception])
_known: dict[str, type[Exception]] = {}


class Raised(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An error as it crosses."""

    kind: str
    text: str
    arguments: list[Any] | None
    traceback: str
    notes: list[str] = []


_read = msgspec.msgpack.Decoder(Raised).decode
_pack = msgspec.msgpack.Encoder().encode


def register_error(kind: _Class) -> _Class:
    """
    Have errors of that class come back as themselves. A decorator, for both sides; it is made anew from its `args`.

    Raises:
        TypeError: it is no class of exceptions.
    """
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise TypeError(f"register_error({kind!r}): a class of exceptions is wanted")
    _known[_name_of(kind)] = kind
    return kind


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


for _each in (*vars(builtins).values(), *vars(_shmq).values(), *vars(_rpc).values()):
    if isinstance(_each, type) and issubclass(_each, Exception) and not issubclass(_each, _NOT_RAISED):
        register_error(_each)
del _each


def of(problem: BaseException) -> Raised:
    """What crosses of it. It never raises: what cannot be said of it is left out."""
    kind = _name_of(type(problem))
    try:
        text = str(problem)[:_TEXT_MAX]
    except Exception:  # noqa: BLE001  # of a program's own
        text = "(what it says cannot be told: its __str__ raises)"
    try:
        told = "".join(traceback.format_exception(problem))[-_TEXT_MAX:]
    except Exception:  # noqa: BLE001
        told = ""
    notes = [str(each)[:_TEXT_MAX] for each in getattr(problem, "__notes__", ()) if isinstance(each, str)][:8]
    if isinstance(problem, RemoteError):  # of a call that the method made: it stays what it was
        return Raised(problem.kind, problem.text[:_TEXT_MAX], None, told, notes)
    return Raised(kind, text, _plain(problem.args), told, notes)


def _plain(arguments: tuple[Any, ...]) -> list[Any] | None:
    """The arguments it was made from, if they can cross, and are small."""
    try:
        return list(arguments) if len(_pack(arguments)) <= _TEXT_MAX else None
    except Exception:  # noqa: BLE001  # something of a program's own
        return None


def back(body: Any) -> Exception:
    """
    The error in the body of a reply, to be raised.

    Whatever is in there, an exception is what comes of it.
    """
    try:
        raised = _read(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        return _shmq.BadFormat(f"the call raised, and what it raised cannot be read: {problem}")
    found = _made(raised)
    for note in raised.notes:
        found.add_note(note)
    if raised.traceback:
        found.__cause__ = RemoteTraceback(raised.traceback)
    return found


def _made(raised: Raised) -> Exception:
    kind = _known.get(raised.kind)
    if kind is not None and raised.arguments is not None:
        try:
            made = kind(*raised.arguments)
        except Exception:  # noqa: BLE001  # it wants others
            made = None
        if isinstance(made, Exception):
            return made
    return RemoteError(raised.kind, raised.text, raised.traceback)
