"""
Requests that are answered in order, one after another: those of one channel. Lines of different channels do not wait
for each other, so a request that waits for messages to come holds up its own channel alone.
"""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

_Job = TypeVar("_Job")


class Lines(Generic[_Job]):
    """All lines of one connection. Used in the loop."""

    def __init__(self, work: Callable[[collections.deque[_Job]], Awaitable[None]]) -> None:
        """*work* takes jobs from the front of its line until there are none; it raises nothing."""
        self._work = work
        self._lines: dict[Hashable, collections.deque[_Job]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: Hashable, job: _Job) -> None:
        """Have *job* done after all that were added with the same *key*."""
        line = self._lines.get(key)
        if line is not None:
            line.append(job)
            return
        self._lines[key] = collections.deque((job,))
        task = asyncio.create_task(self._run(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: Hashable) -> None:
        try:
            while self._lines[key]:
                await self._work(self._lines[key])
        finally:
            del self._lines[key]

    async def close(self) -> None:
        """Do no more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
