"""
What is put when a task has ended: a fixed head, the function's name where it is kept by key, then what is packed.

    version:u8 state:u8 0:u16 attempts:u32 pid:u32 name:u32 began:i64 ended:i64 id:16
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.executor import packing
from shmq.executor.failures import with_cause

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
VALUE, ERROR, CANCELLED, FORGOTTEN = range(4)
_HEAD = struct.Struct("<BBHIIIqq16s")


@dataclass(slots=True)
class Outcome:
    """
    How a task ended.

    Attributes:
        state: VALUE, ERROR, CANCELLED; FORGOTTEN for a key of which nothing is known any more.
        id: the task's.
        attempts: how often it was begun.
        pid: the worker's, in its own namespace.
        began, ended: in ns since 1970; 0 for what was not begun.
        content: the value, or (exception, traceback), packed.
        name: the function's, where a key is kept.
    """

    state: int
    id: bytes
    attempts: int = 0
    pid: int = 0
    began: int = 0
    ended: int = 0
    content: bytes = b""
    name: str = ""

    def packed(self, *, named: bool = False) -> bytes:
        """As a payload."""
        name = self.name.encode() if named else b""
        head = _HEAD.pack(VERSION, self.state, 0, self.attempts, self.pid, len(name), self.began, self.ended, self.id)
        return b"".join((head, name, self.content))

    def value(self) -> Any:
        """
        What the task returned.

        Raises:
            Whatever unpickling it does.
        """
        return packing.unpack(self.content)

    def problem(self) -> BaseException:
        """
        What it raised, with its traceback as its cause.

        Raises:
            Whatever unpickling it does.
        """
        problem, text, *cause = packing.unpack(self.content)
        if cause and isinstance(cause[0], BaseException):
            problem.__cause__ = cause[0]
            return problem  # type: ignore[no-any-return]
        return with_cause(problem, text)


def read(payload: bytes) -> Outcome:
    """
    The outcome in there.

    Raises:
        BadFormat: it is of a newer version.
        Corrupt: it is none.
    """
    if payload[:1] and payload[0] > VERSION:
        raise errors.BadFormat(f"an outcome of version {payload[0]}; this library knows {VERSION}")
    try:
        version, state, _, attempts, pid, name, began, ended, id_ = _HEAD.unpack_from(payload)
        if version != VERSION or state > FORGOTTEN or _HEAD.size + name > len(payload):
            raise ValueError(f"version {version}, state {state}")
        at = _HEAD.size + name
        return Outcome(state, id_, attempts, pid, began, ended, payload[at:], payload[_HEAD.size : at].decode())
    except (struct.error, ValueError) as problem:
        raise errors.Corrupt(f"a payload of {len(payload)} bytes is not an outcome: {problem}") from problem


def id_in(payload: bytes) -> bytes:
    """The id of its task alone."""
    return payload[_HEAD.size - 16 : _HEAD.size]


_PLAIN = struct.pack("<BB", VERSION, VALUE)
_ATTEMPTS = struct.Struct("<4xI4xI")


def attempts_for_value(payload: bytes) -> int:
    """How often the task was begun, where that is a plain value; else 0."""
    if not payload.startswith(_PLAIN):
        return 0
    attempts, name = _ATTEMPTS.unpack_from(payload)
    return 0 if name else attempts


def value_in(payload: bytes) -> Any:
    """
    That value.

    Raises:
        Whatever unpickling it does.
    """
    return None if payload.endswith(packing.NOTHING, _HEAD.size) else packing.unpack(payload[_HEAD.size :])


def packed_value(id_: bytes, pid: int, began: int, ended: int, content: bytes) -> bytes:
    """As `Outcome.packed` has it, of a value, at the first attempt."""
    return _HEAD.pack(VERSION, VALUE, 0, 1, pid, 0, began, ended, id_) + content


def of_error(problem: BaseException, text: str) -> bytes:
    """
    An exception and its traceback, packed; what cannot be pickled becomes one that says so.

    An exception is unpickled once here: many can be pickled, and not be made again from what they were.
    """
    try:
        content = packing.pack((problem, text))
        packing.unpack(content)
    except Exception as refusal:  # noqa: BLE001  # of its reducer, or of its constructor: anything
        said = RuntimeError(
            f"the task raised {type(problem).__module__}.{type(problem).__qualname__}: {problem!s:.1000}; that cannot "
            f"be sent back: {refusal!s:.1000}"
        )
        content = packing.pack((said, text))
    return content


def unsendable(refusal: Exception, value: object, notes: Sequence[str] = ()) -> BaseException:
    """What is told where the value cannot be pickled: the refusal itself, and a note."""
    refusal.add_note(
        f"the task's result cannot be pickled: it is of type {type(value).__module__}.{type(value).__qualname__}"
    )
    for each in notes:
        refusal.add_note(each)
    return refusal
