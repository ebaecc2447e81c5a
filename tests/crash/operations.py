"""
The operations that are killed: how to do each through the public API, and what each must leave behind.

An operation is a tuple, its verb first. `Hands` does it; `Model` is the queue in plain Python and says what is true
before and after it. harness.c does the same operations through the C API.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import shmq
from tests.grains import grained

from . import groups, joining, space
from .payloads import Operation, payload


# ---------------------------------------------------------------- what is true
@dataclasses.dataclass
class Name:
    """One consumer name: everything below `head` is finished, everything below `position` was handed out."""

    ack: str
    head: int
    position: int
    pending: list[int] = dataclasses.field(default_factory=list)
    filtered: bool = False
    """Whether it does not want what is put as unwanted."""


class Model(groups.Truth, joining.Truth, space.Truth):
    """The queue as it must be: messages by index, and the names that read it."""

    def __init__(self) -> None:
        self.exists = False
        self.messages: dict[int, bytes] = {}
        self.next = 0
        self.names: dict[str, Name] = {}
        self.keys: dict[int, str] = {}
        self.team: groups.Team | None = None
        self.late: set[int] = set()
        self.dull: set[int] = set()
        self.unwanted: set[int] = set()
        self.once: tuple[int, range] | None = None
        self.waiting: list[list[bytes]] = []
        self.bound = space.BOUND

    def all_names(self) -> set[str]:
        """Plain ones, and the group's."""
        return {*self.names, *([groups.NAME] if self.team is not None else [])}

    def after(self, operation: Operation, number: int) -> Model:
        """What is true once *operation* has returned."""
        model = copy.deepcopy(self)
        getattr(model, "_" + operation[0])(number, *operation[1:])
        return model

    def _add(self, payloads: list[bytes]) -> None:
        for each in payloads:
            self.messages[self.next] = each
            self.next += 1

    def _nothing(self, number: int, *rest: Any) -> None:
        """What other processes are promised is as before."""

    _open = _close = _join = _leave = _seal = _overflow = _shutdown = _grains = _nothing

    def _create(self, number: int) -> None:
        self.exists = True

    def _delete(self, number: int) -> None:
        self.__init__()  # type: ignore[misc]

    def _put(self, number: int, length: int) -> None:
        self._add([payload(number, 0, length)])

    def _put_many(self, number: int, *lengths: int) -> None:
        self._add([payload(number, i, length) for i, length in enumerate(lengths)])

    def _reserve(self, number: int, room: int, length: int) -> None:
        self._put(number, length)

    def _put_unwanted(self, number: int, length: int) -> None:
        self._put_dull(number, length)  # which no group with a filter is handed either
        self.unwanted.add(max(self.messages))

    def _filtered(self, number: int, name: str) -> None:
        self._consumer(number, name)
        self.names[name].filtered = True

    def _abort(self, number: int, length: int) -> None:
        self.next += 1

    def _dead(self, number: int, length: int, count: int = 1) -> None:
        self.next += count

    def _consumer(self, number: int, name: str, ack: str = "auto", start: str = "earliest") -> None:
        if name not in self.names:
            at = self.next if start == "latest" else 0
            self.names[name] = Name(ack, at, at)
        self._release(number, name)

    def _release(self, number: int, name: str) -> None:
        it = self.names[name]
        it.position = it.head
        it.pending = []

    def _drop(self, number: int, name: str) -> None:
        del self.names[name]

    def _take(self, number: int, name: str, limit: int = 1) -> None:
        it = self.names[name]
        unwanted = self.unwanted if it.filtered else set()
        for index in [index for index in sorted(self.messages) if index >= it.position and index not in unwanted][
            :limit
        ]:
            it.position = index + 1
            if it.ack == "auto" or not it.pending:
                it.head = index + 1

    _take_many = _take

    def _get(self, number: int, name: str, limit: int = 1) -> None:
        it = self.names[name]
        ready = [index for index in sorted(self.messages) if index >= it.position][:limit]
        if it.ack == "auto":
            self._take(number, name, limit)
        elif ready:
            it.pending += ready
            it.position = ready[-1] + 1

    def _ack(self, number: int, name: str) -> None:
        it = self.names[name]
        it.pending = []
        it.head = it.position

    def _seek(self, number: int, name: str, index: int) -> None:
        self.names[name] = Name(self.names[name].ack, index, index)


def models(operations: list[Operation], model: Model, number: int) -> list[Model]:
    """What is true after none, one, two ... of *operations*, the first of which has that *number*."""
    found = [model]
    for operation in operations:
        found.append(found[-1].after(operation, number))
        number += 1
    return found


def given_up(before: Model, after: Model) -> Model:
    """What is true when what was claimed between the two has become padding: its indexes are never given again."""
    model = copy.deepcopy(before)
    model.next = max(before.next, after.next)
    return model


# ---------------------------------------------------------------- doing it
def options(chunk_bytes: int, extra: dict[str, Any] | None = None) -> shmq.Options:
    """What the walked queues are made with: nothing is retired, so that everything put can be asked for afterwards."""
    given = {"retention": ("forever",), **(extra or {})}
    given["retention"] = shmq.Retention(*given["retention"])
    return shmq.Options(chunk_bytes=chunk_bytes, **given)


class Hands(groups.Hands, joining.Hands, space.Hands):
    """Does operations at one queue, as a user would."""

    def __init__(self, path: str, chunk_bytes: int, extra: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.path = path
        self.options = options(chunk_bytes, extra)
        self.queue: Any = None
        self.consumers: dict[str, Any] = {}
        self.messages: dict[str, list[Any]] = {}
        self._grained = contextlib.ExitStack()

    def perform(self, operation: Operation, number: int) -> None:
        """Do it; it has returned when this does."""
        getattr(self, "_" + operation[0])(number, *operation[1:])

    def payload(self, number: int, length: int) -> bytes:
        """As the model has it."""
        return payload(number, 0, length)

    def close(self) -> None:
        """Everything, whatever there is."""
        for each in self.consumers.values():
            each.close()
        self.consumers.clear()
        if self.queue is not None:
            self.queue.close()
        self._grained.close()

    def _grains(self, number: int) -> None:
        """From now on, chunks of this process have one."""
        self._grained.enter_context(grained())

    def _create(self, number: int) -> None:
        self.queue = shmq.open(self.path, options=self.options)

    def _open(self, number: int) -> None:
        self.queue = shmq.open(self.path, create=False)

    def _close(self, number: int) -> None:
        self.queue.close()

    def _delete(self, number: int) -> None:
        shmq.delete(self.path)

    def _shutdown(self, number: int) -> None:
        self.queue.shutdown()

    def _put(self, number: int, length: int) -> None:
        self.queue.put(payload(number, 0, length))

    def _put_many(self, number: int, *lengths: int) -> None:
        self.queue.put_many([payload(number, i, length) for i, length in enumerate(lengths)])

    def _reserve(self, number: int, room: int, length: int) -> None:
        with self.queue.reserve(room, key=b"key", type=7, headers={"a": 1}) as slot:
            slot.buffer[:length] = payload(number, 0, length)
            slot.commit(length)

    def _put_unwanted(self, number: int, length: int) -> None:
        self.queue.put(payload(number, 0, length), type=groups.UNWANTED)

    def _filtered(self, number: int, name: str) -> None:
        self.consumers[name] = self.queue.consumer(name, filter=groups.FILTER)

    def _abort(self, number: int, length: int) -> None:
        self.queue.reserve(length).abort()

    def _dead(self, number: int, length: int, count: int = 1) -> None:
        """A process of its own claims a region for that many messages, and dies."""
        where = [str(Path(__file__).with_name("tracee.py")), json.dumps(sys.path), self.path, "16384", "-"]
        steps = [0, [["open"], ["claim", length, count]], []]
        died = subprocess.run([sys.executable, *where], input=json.dumps(steps), text=True, check=False)
        if died.returncode != -signal.SIGKILL:
            raise AssertionError("the process that was to die in its claim did not")

    def _claim(self, number: int, length: int, count: int) -> None:
        slot = self.queue.reserve(length)
        at = slot._claim.record
        word = int.from_bytes(slot._chunk.map[at : at + 8], "little") + ((count - 1) << 48)  # as a batch claims
        slot._chunk.map[at : at + 8] = word.to_bytes(8, "little")
        hint = int.from_bytes(slot._chunk.map[128:136], "little") + (count - 1)
        slot._chunk.map[128:136] = hint.to_bytes(8, "little")
        os.kill(os.getpid(), signal.SIGKILL)

    def _consumer(self, number: int, name: str, ack: str = "auto", start: str = "earliest") -> None:
        given = {"window": groups.WINDOW} if ack == "explicit" else {}  # each state is copied, its ring, too
        self.consumers[name] = self.queue.consumer(name, ack=ack, start=start, **given)

    def _release(self, number: int, name: str) -> None:
        self.consumers.pop(name).close()

    def _drop(self, number: int, name: str) -> None:
        self.queue.drop_consumer(name)

    def _take(self, number: int, name: str) -> None:
        with contextlib.suppress(shmq.Empty):
            self.consumers[name].take(timeout=0)

    def _take_many(self, number: int, name: str, limit: int) -> None:
        with contextlib.suppress(shmq.Empty):
            self.consumers[name].take_many(limit, timeout=0)

    def _get(self, number: int, name: str, limit: int = 1) -> None:
        with contextlib.suppress(shmq.Empty):
            self.messages.setdefault(name, []).extend(self.consumers[name].get_many(limit, timeout=0))

    def _ack(self, number: int, name: str) -> None:
        self.consumers[name].ack(*self.messages.pop(name, []))

    def _seek(self, number: int, name: str, index: int) -> None:
        self.consumers[name].seek(index)
