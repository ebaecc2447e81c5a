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
from shmq.net import names
from shmq.net.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")
_THREADS = 4


class Service:
    """
    The queues of one root, and what works for them. Safe to use from several threads, but for `run`.

    Attributes:
        root: the directory, absolute and without links.
        limits: what a peer may cost.
        create: whether a queue is made that somebody wants to append to or to read.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = False, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self.root = os.path.realpath(root)
        self.create = create
        self.limits = limits or Limits()
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, ...], shmq.Queue[Any]] = {}
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
            found = self._queues.get(parts)
            if found is None or found.closed:
                path = names.path_of(self.root, name)
                if not os.path.exists(os.path.join(path, "queue.shmq")):
                    raise names.not_found(name)
                found = self._queues[parts] = shmq.open(path, create=False)
            return found

    async def run(self, function: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs) -> _Result:
        """Return what *function* returns in one of a few threads. It goes on there if the task is cancelled."""
        work = partial(function, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for what is being done, and close the queues."""
        self._pool.shutdown(wait=True)
        with self._lock:
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()
