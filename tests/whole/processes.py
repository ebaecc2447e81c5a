"""
Several real processes at one queue, of which one at a time does something: what they do can be compared with a model.

The machine's own process is `Here`. A `Worker` is a child that does what it is asked; what it holds stays with it, and
the machine has a `Far` for it: its calls are made in the worker, and its exceptions are raised here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import pickle
import resource
import signal
import threading
from typing import TYPE_CHECKING, Any

import shmq
from shmq.message import Message
from shmq.putting.producer import Slot
from shmq.putting.staged import Staged
from shmq.queue import Queue
from shmq.reading.reader import Reader
from shmq.taking import waiting
from shmq.taking.consumer import Consumer
from shmq.taking.group import GroupConsumer
from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HANDLES = (Queue, Consumer, GroupConsumer, Message, Slot, Reader, Staged)
PROPERTIES = {
    "next_index", "first_index", "durable_index", "committed_index", "pending", "lag", "head", "finished", "path",
}  # fmt: skip
FACTS = ("index", "payload", "key", "type", "headers", "attempts")


class Far:
    """What a worker holds, seen from here."""

    def __init__(self, worker: Worker, number: int, facts: dict[str, Any]) -> None:
        self.worker, self.number, self.facts = worker, number, facts

    def __getattr__(self, name: str) -> Any:
        if name in self.facts:
            return self.facts[name]
        if name.startswith("__"):
            raise AttributeError(name)
        if name in PROPERTIES:
            return self.worker.ask(getattr, self, name)
        return functools.partial(self.worker.ask, _call, self, name)

    def __len__(self) -> int:
        return self.worker.ask(len, self)

    def __bool__(self) -> bool:
        return True

    def __iter__(self):
        return iter(self.worker.ask(list, self))

    def __getitem__(self, index: int) -> Any:
        return self.worker.ask(_call, self, "__getitem__", index)

    def __repr__(self) -> str:
        return f"<{self.facts or self.number} in process {self.worker.pid}>"


def _call(handle: Any, name: str, *given: Any, **named: Any) -> Any:
    return getattr(handle, name)(*given, **named)


def on(handle: Any, work: Callable[..., Any], *given: Any) -> Any:
    """What *work*(handle, ...) answers in the process that has the handle."""
    return handle.worker.ask(work, handle, *given) if isinstance(handle, Far) else work(handle, *given)


class Here:
    """This process."""

    name = "here"

    def __init__(self, queue: Queue) -> None:
        self.queue: Any = queue
        self.found: int | None = None
        """Which end of the stream its queue found when it was opened."""
        self.sits = True
        """Whether it takes part: a child does from the first use on of what it inherited."""

    def ask(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return work(*given, **named)

    @staticmethod
    def has(handle: Any) -> bool:
        """Whether that handle is this process's."""
        return not isinstance(handle, Far)


class Worker:
    """A child that has the queue open: one of its own, or the one that it inherited."""

    name = "worker"

    def __init__(self, path: str, flags: dict[str, Any], inherited: list[Any], *, own: bool) -> None:
        theirs, self._commands = os.pipe()
        self._results, back = os.pipe()
        self._child = support.Child(_serve, theirs, back, inherited)
        os.close(theirs)
        os.close(back)
        self.pid = self._child.pid
        self.inherited = [Far(self, number, {}) for number in range(len(inherited))]
        self.found: int | None = None
        self.sits = own
        self.queue: Any = self.ask(shmq.open, path, **flags) if own else self.inherited[0]

    def has(self, handle: Any) -> bool:
        return isinstance(handle, Far) and handle.worker is self

    def ask(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What *work* answers there, or the exception that it raises."""
        buffer = io.BytesIO()
        _Out(buffer, self).dump((work, given, named))
        _send(self._commands, buffer.getvalue())
        assert support.readable(self._results, support.DEADLINE), f"process {self.pid} does not end {work}{given}"
        answer = _receive(self._results)
        assert answer is not None, f"process {self.pid} died of {work}{given}"
        went_well, value = _In(io.BytesIO(answer), self).load()
        if not went_well:
            raise value
        return value

    def kill(self) -> None:
        """kill -9: it is gone when this returns."""
        self._child.kill()
        self._close()

    def leave(self) -> None:
        """Have it close its queue and end."""
        self.ask(_close_all)
        _send(self._commands, b"")
        assert self._child.join() == 0
        self._close()

    def _close(self) -> None:
        for fd in (self._commands, self._results):
            os.close(fd)


# ---------------------------------------------------------------- in the worker
_table: list[Any] = []
_PR_SET_PDEATHSIG = 1


def _serve(say: Callable[[object], None], commands: int, results: int, inherited: list[Any]) -> None:
    del say
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody ends it when the machine is killed
    _table[:] = inherited
    while asked := _receive(commands):
        work, given, named = _In(io.BytesIO(asked), None).load()
        try:
            answer = (True, work(*given, **named))
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is raised in the machine
            answer = (False, problem)
        _send(results, _packed(answer))


def _packed(answer: tuple[bool, Any]) -> bytes:
    buffer = io.BytesIO()
    try:
        _Out(buffer, None).dump(answer)
    except Exception as problem:  # noqa: BLE001  # a bug of this file
        buffer = io.BytesIO()
        _Out(buffer, None).dump((False, AssertionError(f"{answer!r} does not travel: {problem!r}")))
    return buffer.getvalue()


def _close_all() -> None:
    """As a program that ends well: consumers and messages first, the queue last."""
    for each in [*(each for each in _table if not isinstance(each, Queue)), *_table]:
        close = getattr(each, "close", None)
        if close is not None:
            with contextlib.suppress(shmq.errors.Forked):
                close()


def leave_descriptors(count: int) -> None:
    """Have this process be able to open so many files more, or as many as it likes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # first: also to look takes one
    while _spare:
        os.close(_spare.pop())
    if count >= 0:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, most))
        with contextlib.suppress(OSError):
            while True:  # no gaps are left
                _spare.append(os.dup(0))
        for _ in range(count):
            os.close(_spare.pop())


_spare: list[int] = []


# ---------------------------------------------------------------- waiting
_waiters: list[_Waiter] = []


class _Waiter:
    """A thread that waits, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._answer: tuple[bool, Any] = (False, AssertionError("it still waits"))
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._answer = (True, self._work())
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is raised where it is asked for
            self._answer = (False, problem)

    def answer(self, seconds: float) -> Any:
        self.thread.join(seconds)
        went_well, value = self._answer
        if not went_well:
            raise value
        return value


def begin_waiting(handle: Any, how: str, seconds: float) -> int:
    """Have a thread ask that handle for what comes, until it sleeps or has ended; its number."""
    asleep = threading.Event()
    waiter = _Waiter(lambda: _ask(handle, how, seconds))
    _waiters.append(waiter)
    with _noticing(handle._membership, asleep.set):
        waiter.thread.start()
        while waiter.thread.is_alive() and not asleep.wait(0.001):
            pass
    return len(_waiters) - 1


def waited(handle: Any, number: int, seconds: float) -> Any:
    """What that thread was told, or the exception that it met; AssertionError where it waits too long."""
    del handle
    return _waiters[number].answer(seconds)


def _ask(handle: Any, how: str, seconds: float) -> Any:
    calls = {
        "get": lambda: [handle.get(timeout=seconds)],
        "many": lambda: handle.get_many(3, timeout=seconds),
        "take": lambda: [handle.take(timeout=seconds)],
        "arrow": lambda: handle.take_arrow(3, timeout=seconds, columns=["index", "type", "key", "payload", "attempts"]),
        "wait": lambda: shmq.wait([handle], seconds),
        "follow": lambda: next(handle, None),
    }
    while True:
        with contextlib.suppress(shmq.Gone):  # said once
            return calls[how]()


@contextlib.contextmanager
def _noticing(membership: Any, asleep: Callable[[], None]) -> Iterator[None]:
    """Whoever is about to sleep until something rings calls that first."""
    one, any_of = membership.sleep, waiting._sleep

    def sleep(*given: Any) -> Any:
        asleep()
        return one(*given)

    def sleep_for_any(*given: Any) -> Any:
        asleep()
        return any_of(*given)

    membership.sleep, waiting._sleep = sleep, sleep_for_any
    try:
        yield
    finally:
        del membership.sleep
        waiting._sleep = any_of


class _Out(pickle.Pickler):
    """Leaves handles where they are."""

    def __init__(self, file: io.BytesIO, worker: Worker | None) -> None:
        super().__init__(file)
        self._worker = worker

    def persistent_id(self, each: Any) -> Any:
        if self._worker is not None:
            if not isinstance(each, Far):
                return None
            assert each.worker is self._worker, f"{each} is another process's"
            return each.number
        if not isinstance(each, HANDLES):
            return None
        number = next((at for at, known in enumerate(_table) if known is each), len(_table))
        if number == len(_table):
            _table.append(each)
        if isinstance(each, Message):
            return number, {name: getattr(each, name) for name in FACTS}
        return number, {"index": each.index} if isinstance(each, Slot) else {}


class _In(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, worker: Worker | None) -> None:
        super().__init__(file)
        self._worker = worker

    def persistent_load(self, given: Any) -> Any:
        return _table[given] if self._worker is None else Far(self._worker, *given)


def _send(fd: int, data: bytes) -> None:
    data = len(data).to_bytes(8, "little") + data
    while data:
        data = data[os.write(fd, data) :]


def _receive(fd: int) -> bytes | None:
    found = b""
    while len(found) < 8 or len(found) < 8 + int.from_bytes(found[:8], "little"):
        wanted = 8 if len(found) < 8 else 8 + int.from_bytes(found[:8], "little")
        part = os.read(fd, wanted - len(found))
        if not part:
            return None
        found += part
    return found[8:]
