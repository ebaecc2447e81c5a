"""
Tasks by key: one for each key, whoever submits it, until its outcome is forgotten.

Tasks are looked at first, and outcomes then: in between, a task may end, and its outcome is seen; the other way round
it would be seen in neither place.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq import errors
from shmq.executor import names, outcome, task

if TYPE_CHECKING:
    from shmq import Message, Queue
    from shmq.executor.directory import Directory
    from shmq.executor.outcome import Outcome


def key_of(key: object, verb: str = "submit") -> bytes:
    """
    A key as it is stored.

    Raises:
        TypeError: it is none. `submit` would take it from its function: so the error says how to pass it on.
        ValueError: it is empty, or too long.
    """
    if isinstance(key, str):
        stored = key.encode()
    elif isinstance(key, bytes):
        stored = key
    else:
        if verb != "submit":
            raise TypeError(f"{verb}({key!r}): a task's key is str or bytes, not {type(key).__name__}")
        raise TypeError(
            f"submit(..., key={key!r}): a task's key is str or bytes. To pass key= to the function itself, write "
            "executor.task(key=..., priority=..., timeout=..., deadline=..., retry_on=..., backoff=...)"
            ".submit(function, ...), which passes all keywords on"
        )
    if not 0 < len(stored) < 1 << 16:
        raise ValueError(f"a task's key has 1 to 65,535 bytes, and this one {len(stored)}")
    return stored


class Found(NamedTuple):
    """
    What is known of a key.

    Attributes:
        id: of its task.
        name: the task's function.
        ended: its outcome, when it has one.
    """

    id: bytes
    name: str
    ended: Outcome | None


def find(directory: Directory, key: bytes) -> Found | None:
    """The task of that key: waiting, running or ended; None when there is none, or it was forgotten."""
    waiting = _latest_task(directory, key)
    ended = _kept(directory, key)
    if waiting is None:
        return _of(ended)
    source, message = waiting
    payload = message.payload
    id_ = task.id_in(payload)
    if ended is not None and ended.id == id_:
        return _of(ended)
    if time.time_ns() - message.time_ns > directory.keep * 1e9 and _is_finished(source, message.index):
        ended = _kept(directory, key)  # it may have ended between the looks
        return _of(ended) if ended is not None and ended.id == id_ else None
    return Found(id_, task.name_in(payload), None)


def _of(ended: Outcome | None) -> Found | None:
    if ended is None or ended.state == outcome.FORGOTTEN:
        return None
    return Found(ended.id, ended.name, ended)


def _kept(directory: Directory, key: bytes) -> Outcome | None:
    found = directory.queue(names.KEPT).latest(key)
    return None if found is None else outcome.read(found.payload)


def _latest_task(directory: Directory, key: bytes) -> tuple[Queue[Any], Message[bytes]] | None:
    found = []
    for name in names.TASKS.values():
        queue = directory.queue(name)
        message = queue.latest(key)
        if message is not None:
            found.append((queue, message))
    return max(found, key=lambda each: each[1].time_ns, default=None)


def _is_finished(queue: Queue[Any], index: int) -> bool:
    place = queue.group_place(names.GROUP)
    return index < place.head or index in place.done


def forget(directory: Directory, key: bytes) -> bool:
    """
    Have that key be as if it had never been submitted; False when it is so already.

    Raises:
        Busy: its task waits, or runs.
    """
    with directory.exclusively():
        found = find(directory, key)
        if found is None:
            return False
        if found.ended is None:
            raise errors.Busy(
                f"cannot forget {key!r} of {directory.path}: its task ({found.name or 'no name'}) has not ended; "
                "cancel or kill it first"
            )
        _forget(directory, key, found)
        return True


def forget_cancelled(directory: Directory, key: bytes) -> None:
    """The same, if its outcome is that it was cancelled."""
    with directory.exclusively():
        found = find(directory, key)
        if found is not None and found.ended is not None and found.ended.state == outcome.CANCELLED:
            _forget(directory, key, found)


def _forget(directory: Directory, key: bytes, found: Found) -> None:
    gone = outcome.Outcome(outcome.FORGOTTEN, found.id)
    directory.queue(names.KEPT).put(gone.packed(named=True), key=key)
