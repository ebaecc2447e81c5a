"""
What a server serves: the queues below one root, each opened once, and the threads in which everything that may block
is done. The event loop never opens, reads or syncs anything itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import shmq
from shmq import formats
from shmq.net import names
from shmq.net.cq4 import Cq4
from shmq.net.limits import Limits
from shmq.net.native import Native
from shmq.net.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.log import Log

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")
_THREADS = 4


class Service:
    """
    The queues of one root, and what works for them. Safe to use from several threads, but for `run`.

    Attributes:
        root: the directory, absolute and without links.
        limits: what a peer may cost.
        create: whether a queue is made that somebody who may append asks for.
        waiting: set by `end`, each of them: whoever waits for messages to come waits no longer.
        ending: whether the server ends.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = False, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self.root = os.path.realpath(root)
        self.create = create
        self.limits = limits or Limits()
        self.waiting: set[asyncio.Event] = set()
        self.ending = False
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, ...], shmq.Queue[Any]] = {}
        self._logs: dict[tuple[str, ...], Log] = {}
        self._writers: dict[int, Writer] = {}
        self._threads: list[ThreadPoolExecutor] = []
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="shmq-serve")

    def queue(self, name: str) -> shmq.Queue[Any]:
        """
        Return the native queue called *name*, open; it is opened once and closed with the service. May block.

        Raises:
            NotFound: there is none, or its name is forbidden. The text has the name, and nothing of the disk.
            shmq.errors.ShmqError, OSError: it cannot be opened. The text tells of the disk: it is not for the peer.
        """
        parts = names.parts_of(name)
        with self._lock:
            return self._queue(parts, name)

    def _queue(self, parts: tuple[str, ...], name: str) -> shmq.Queue[Any]:
        found = self._queues.get(parts)
        if found is None or found.closed:
            path = names.path_of(self.root, name)
            if not os.path.exists(os.path.join(path, "queue.shmq")):
                raise names.not_found(name)
            found = self._queues[parts] = shmq.open(path, create=False)
        return found

    def log(self, name: str, *, make: bool = False) -> Log:
        """
        Return the queue called *name*, ours or Chronicle's; with *make*, one of ours is made if there is none.

        May block.

        Raises:
            As `queue`.
        """
        parts = names.parts_of(name)
        if found := self._logs.get(parts):
            return found
        with self._lock:
            found = self._logs.get(parts)
            if found is None:
                found = self._logs[parts] = self._opened(parts, name, make=make)
            return found

    def _opened(self, parts: tuple[str, ...], name: str, *, make: bool) -> Log:
        try:
            path = names.path_of(self.root, name)
        except shmq.NotFound:
            if not make:
                raise
            path = names.path_of(self.root, name, make=True)
        if make and not os.path.exists(path):
            shmq.open(path).close()
        elif not os.path.exists(os.path.join(path, "queue.shmq")) and formats.detect(path) == "chronicle":
            return Cq4(path)
        return Native(self._queue(parts, name))

    def place(self, name: str) -> str:
        """
        Return where the queue called *name* lies; with `create`, where it would. May block.

        Raises:
            NotFound: there is none, or its name is forbidden. The text has the name, and nothing of the disk.
        """
        if names.parts_of(name)[-1].startswith("shm:"):  # elsewhere that is a queue in memory
            raise names.not_found(name)
        try:
            path = names.path_of(self.root, name)
        except shmq.NotFound:
            if not self.create:
                raise
            path = names.path_of(self.root, name, make=True)
            if os.path.lexists(path):  # and may not be served
                raise
            return path
        if not os.path.exists(os.path.join(path, "queue.shmq")):
            raise names.not_found(name)
        return path

    def writer(self, log: Log) -> Writer:
        """Return what appends to *log*, for everybody. In the loop."""
        found = self._writers.get(id(log))
        if found is None:
            run = self._own_thread() if log.slow else self.run
            found = self._writers[id(log)] = Writer(log, run, self.limits)
        return found

    def _own_thread(self) -> Callable[..., Any]:
        """Return what runs a function in a thread of its own: a disk that is slow holds no other queue up."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="shmq-serve-disk")
        self._threads.append(thread)

        def run(function: Callable[..., Any], *args: Any) -> Any:
            return asyncio.get_running_loop().run_in_executor(thread, partial(function, *args))

        return run

    async def run(self, function: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs) -> _Result:
        """Return what *function* returns in one of a few threads. It goes on there if the task is cancelled."""
        work = partial(function, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def end(self) -> None:
        """Have nobody wait any longer. In the loop."""
        self.ending = True
        for each in self.waiting:
            each.set()

    def close(self) -> None:
        """Wait for what is being done, and close the queues."""
        for pool in (*self._threads, self._pool):
            pool.shutdown(wait=True)
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs.clear()
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()
