"""
What a server serves: the queues below one root, each opened once while somebody uses it, and the threads in which
everything that may block is done. The event loop never opens, reads or syncs anything itself.

A queue that was moved, deleted or made anew is found to be gone with the next request for it, or within a second: from
then on nothing is answered from it. What nobody uses is closed after a while, so that it can be deleted.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import shmq
from shmq import formats
from shmq.net import names
from shmq.net.cq4 import Cq4
from shmq.net.limits import Limits
from shmq.net.native import Native
from shmq.net.opened import Opened
from shmq.net.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.log import Log

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")
_THREADS = 4
_DOORS = 64
_UNUSED_MOST = 32
"""Queues that nobody uses and that stay open for a while: however many names are asked for, no more."""


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
        self._opened: dict[tuple[str, ...], Opened] = {}
        self._parting: list[Opened] = []
        """What is not found any more, and closed when the last of its users has let go."""
        self._writers: dict[Opened, Writer] = {}
        self._doors = [threading.Lock() for _ in range(_DOORS)]
        """One of them is held by whoever opens a queue, so that few other names wait for it."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="shmq-serve")

    # ---- the queues
    def hold(self, name: str, *, make: bool = False, ours: bool = False) -> Opened:
        """
        Return the queue called *name*, open, ours or Chronicle's; it stays open until `let_go`. May block.

        Args:
            make: one of ours is made if there is none.
            ours: one of Chronicle's will not do.

        Raises:
            NotFound: there is none, or its name is forbidden. The text has the name, and nothing of the disk.
            shmq.errors.ShmqError, OSError: it cannot be opened. The text tells of the disk: it is not for the peer.
        """
        parts = names.parts_of(name)
        with self._doors[hash(parts) % _DOORS]:
            found = None
            while found is None:
                found = self._taken(parts, self._found(parts, name) or self._open(parts, name, make=make))
        if ours and found.queue is None:
            self.let_go(found)
            raise names.not_found(name)
        self._close_some()
        return found

    def _taken(self, parts: tuple[str, ...], found: Opened) -> Opened | None:
        """Hold it; None if somebody has just put it away, because nobody used it."""
        with self._lock:
            if self._opened.get(parts) is not found:
                return None
            found.users += 1
            return found

    def _found(self, parts: tuple[str, ...], name: str) -> Opened | None:
        """What is open under that name, if it is there still, and of use for whoever comes now."""
        with self._lock:
            found = self._opened.get(parts)
        if found is None:
            return None
        try:
            names.path_of(self.root, name)
        except shmq.NotFound:
            found.gone = True
        if found.is_there() and (found.users or not found.is_finished):
            return found
        with self._lock:
            self._put_away(parts, found)
        return None

    def _put_away(self, parts: tuple[str, ...], found: Opened) -> None:
        """From now on nobody finds it; it is closed when nobody uses it. Under the lock."""
        if self._opened.get(parts) is found:
            del self._opened[parts]
        if found not in self._parting:
            self._parting.append(found)

    def _open(self, parts: tuple[str, ...], name: str, *, make: bool) -> Opened:
        try:
            path = names.path_of(self.root, name)
        except shmq.NotFound:
            if not make:
                raise
            path = names.path_of(self.root, name, make=True)
        if make and not os.path.exists(path):
            shmq.open(path).close()
        opened = Opened("/".join(parts), path, partial(self._made, path, name))
        with self._lock:
            self._opened[parts] = opened
        return opened

    def _made(self, path: str, name: str) -> tuple[Log, shmq.Queue[Any] | None]:
        if not os.path.exists(os.path.join(path, "queue.shmq")):
            if formats.detect(path) == "chronicle":
                return Cq4(path), None
            raise names.not_found(name)
        queue = shmq.open(path, create=False)
        return Native(queue), queue

    async def held(self, name: str, *, make: bool = False, ours: bool = False) -> Opened:
        """As `hold`, in a thread; whoever is cancelled meanwhile holds nothing."""
        work = asyncio.ensure_future(self.run(self.hold, name, make=make, ours=ours))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._drop)
            raise

    def _drop(self, work: asyncio.Future[Opened]) -> None:
        if not work.cancelled() and work.exception() is None:
            self.let_go(work.result())

    def let_go(self, opened: Opened) -> None:
        """Whoever held it does not use it any more."""
        with self._lock:
            opened.users -= 1
            opened.since = time.monotonic()

    async def look(self) -> None:
        """Find what is not there any more, have its users leave it, and close what nobody uses. In the loop."""
        for opened in await self.run(self._look):
            opened.left()

    def _look(self) -> list[Opened]:
        with self._lock:
            known = list(self._opened.items())
        for parts, opened in known:
            if not opened.is_there():
                with self._lock:
                    self._put_away(parts, opened)
        self._close_some()
        with self._lock:
            return [opened for opened in self._parting if opened.gone]

    def _close_some(self) -> None:
        """Close those that nobody uses: what is not found any more, what is over, and what is idle."""
        now = time.monotonic()
        with self._lock:
            closing = [each for each in self._parting if not self._is_used(each)]
            self._parting = [each for each in self._parting if each not in closing]
            unused = [(parts, each) for parts, each in self._opened.items() if not self._is_used(each)]
        unused.sort(key=lambda each: each[1].since)
        for at, (parts, each) in enumerate(unused):
            if now - each.since > self.limits.unused or len(unused) - at > _UNUSED_MOST or each.is_finished:
                closing += self._taken_out(parts, each)
        for each in closing:
            each.close()

    def _taken_out(self, parts: tuple[str, ...], found: Opened) -> list[Opened]:
        """That queue, if nobody uses it still, and it may be closed."""
        if found.must_stay:
            return []
        with self._lock:
            if self._is_used(found) or self._opened.get(parts) is not found:
                return []
            del self._opened[parts]
            return [found]

    def _is_used(self, opened: Opened) -> bool:
        writer = self._writers.get(opened)
        return opened.users > 0 or (writer is not None and writer.works)

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

    def writer(self, opened: Opened) -> Writer:
        """Return what appends to it, for everybody. In the loop."""
        found = self._writers.get(opened)
        if found is None:
            run = self._own_thread(opened) if opened.log.slow else self.run
            found = self._writers[opened] = Writer(opened, run, self.limits)
            opened.closing.append(partial(self._writers.pop, opened))
        return found

    def _own_thread(self, opened: Opened) -> Callable[..., Any]:
        """Return what runs a function in a thread of its own: a disk that is slow holds no other queue up."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="shmq-serve-disk")
        opened.closing.append(partial(thread.shutdown, wait=True))

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
        self._pool.shutdown(wait=True)
        with self._lock:
            opened = [*self._opened.values(), *self._parting]
            self._opened.clear()
            self._parting.clear()
        for each in opened:
            each.close()
