"""
What waits to be appended to one queue, from all connections: what comes while an append is under way goes with the
next, as one batch, and waits for one sync.

An append that waits for nothing (no sync, no room, no other program's lock) takes some microseconds and is done in the
loop, if it is small; others are done in a thread.
"""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shmq.net.limits import Limits
    from shmq.net.opened import Opened

    Run = Callable[..., Awaitable[Any]]


_HERE_MOST = 1 << 18
"""Bytes that are appended in the loop."""


class Writer:
    """Used in the loop. Each connection's messages are appended in the order in which they were given."""

    def __init__(self, opened: Opened, run: Run, limits: Limits) -> None:
        """*run* has done in another thread what may wait."""
        self._opened = opened
        self._log = opened.log
        self._run = run
        self._limits = limits
        self._waiting: collections.deque[tuple[Any, int, asyncio.Future[int]]] = collections.deque()
        self._work: asyncio.Task[None] | None = None

    def put(self, value: Any, nbytes: int) -> asyncio.Future[int]:
        """Have *value*, of about so many bytes, appended; the future is its index, or raises what was raised."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((value, nbytes, future))
        if self._work is None:
            self._work = asyncio.create_task(self._append())
        return future

    async def sync(self) -> None:
        """Return when all that was appended is on the disk."""
        await self._run(self._log.sync)

    @property
    def works(self) -> bool:
        """Whether something is being appended, or waits for that."""
        return self._work is not None

    def _next(self) -> list[tuple[Any, int, asyncio.Future[int]]]:
        found = [self._waiting.popleft()]
        nbytes = found[0][1]
        while self._waiting and len(found) < self._limits.batch:
            nbytes += self._waiting[0][1]
            if nbytes > self._limits.batch_bytes:
                break
            found.append(self._waiting.popleft())
        return found

    async def _append(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                values = [value for value, _, _ in batch]
                try:
                    if not self._opened.is_there():  # since it was given to us
                        raise names.not_found(self._opened.name)
                    if self._log.slow or sum(nbytes for _, nbytes, _ in batch) > _HERE_MOST:
                        answers = await self._run(self._log.append, values)
                    else:
                        answers = self._log.append(values)
                except Exception as problem:  # noqa: BLE001  # whoever waits is told
                    answers = [problem] * len(batch)
                for (_, _, future), answer in zip(batch, answers, strict=True):
                    _settle(future, answer)
        finally:
            self._work = None
            while self._waiting:  # cancelled: the server ends
                _settle(self._waiting.popleft()[2], errors.Closed("the server ends; it was not appended"))


def _settle(future: asyncio.Future[int], answer: int | Exception) -> None:
    if future.done():  # whoever waited for it is gone
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
        future.exception()  # whoever sends without a tid does not ask
    else:
        future.set_result(answer)
