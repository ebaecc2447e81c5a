"""The loops that the tests of this folder run in, and what they do in each."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import shmq
import shmq.aio

LONG = 60.0


def run(kind: str, work):
    """What the coroutine function *work* returns in a new loop of that kind."""
    factory = None
    if kind == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(asyncio.wait_for(work(), LONG))


@contextlib.asynccontextmanager
async def opened(path, name: str | None = "c", *, options: dict | None = None, **how):
    """A queue, and one consumer of it."""
    async with await shmq.aio.open(path, **{"chunk_bytes": 16384, **(options or {})}) as queue:
        if name is None:
            yield queue
            return
        async with await queue.consumer(name, **how) as consumer:
            yield queue, consumer


async def waits(consumer, count: int) -> None:
    """Until so many tasks stand in the line of that handle, and the first one sleeps."""
    line = consumer._line
    while len(line._waiting) != count or (count and line._waiting[0].is_set) or not slept(line, count):
        await asyncio.sleep(0.0005)


def slept(line, count: int) -> bool:
    armed = line._alarm._armed
    return not count or (armed is not None and armed.by is not None)
