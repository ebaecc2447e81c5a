"""Streams, at the client: what a generator yields in a server, one after the other, as it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import shmq
from shmq.rpc import crossing, places, wire
from shmq.rpc.errors import ServerDied, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")
_LOOK = 1.0
"""Seconds after which whoever waits for the next one looks whether anybody is there to put it."""


class Stream(Generic[T]):
    """
    An iterator, plain and asynchronous, over what a generator yields. Its server is a few hundred ahead at most.

    Closed, by `close`, a `with` block or its last reference, it has the generator closed. It is of one process, and
    to one thread or task at a time.

    Attributes:
        method: what it was called by.
    """

    def __init__(
        self,
        method: str,
        key: tuple[bytes, int],
        read: Callable[[Any], T],
        give_up: Callable[[], object],
        until: float | None,
    ) -> None:
        """
        Make the queue that its server waits for.

        Args:
            read: unpacks what was yielded.
            give_up: tells the server that nobody reads on.
            until: when the time for all of it is up, on the monotonic clock.
        """
        self.method = method
        self._read = read
        self._give_up = give_up
        self._until = until
        self._is_over = False
        self._alone = 0
        self._queue = places.own_stream(*key)
        try:
            self._consumer: shmq.Consumer[bytes] = self._queue.consumer(places.OWNER, skip_corrupt=True)
            self._queue.put(wire.READY)  # only now: its server looks whether the name is held, and needs it for that
        except BaseException:
            self._queue.close()
            raise

    # ---- one after the other
    def __iter__(self) -> Self:
        """Return this object."""
        return self

    def __next__(self) -> T:
        """
        The next one.

        Raises:
            TimedOut: the time for the whole stream is up.
            ServerDied: the server died, or was shut down.
            Whatever the generator raises.
        """
        while True:
            if self._is_over:
                raise StopIteration
            try:
                record = self._record(self._wait())
            except shmq.Empty:
                self._look()
            except (shmq.Closed, shmq.ShutDown):  # by another thread
                self._is_over = True
            else:
                return self._unpacked(record)

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> T:
        """As `next`, for a task; one that is cancelled has taken nothing."""
        loop = asyncio.get_running_loop()
        there = asyncio.Event()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(there.set)

        alarm = self._consumer.alarm(ring)
        try:
            while not self._is_over:
                there.clear()
                alarm.begin()
                try:
                    return self._unpacked(self._record(0))
                except shmq.Empty:
                    pass
                except (shmq.Closed, shmq.ShutDown):
                    self._is_over = True
                    break
                except StopIteration:
                    break
                if alarm.arm():
                    try:
                        async with asyncio.timeout(self._wait()):
                            await there.wait()
                    except TimeoutError:
                        self._look()
        finally:
            alarm.disarm()
        raise StopAsyncIteration

    def _record(self, timeout: float) -> bytes:
        record = self._consumer.take(timeout)
        return record if record != wire.READY else self._consumer.take(timeout)  # wherever among the others it lies

    def _wait(self) -> float:
        return _LOOK if self._until is None else min(max(self._until - time.monotonic(), 0.0), _LOOK)

    def _look(self) -> None:
        """Nothing came for a while."""
        if self._until is not None and time.monotonic() >= self._until:
            self.close()
            raise TimedOut(f"the stream of {self.method}() was not over in time")
        # Its server has the queue open, or will in a moment: unless it has died, and no other one was there to say so.
        self._alone = self._alone + 1 if self._queue.stats().participants < 2 else 0
        if self._alone >= 2:
            self.close()
            raise ServerDied(f"the server that had {self.method}() died while it streamed")

    def _unpacked(self, record: bytes) -> T:
        try:
            reply = wire.read_reply(record)
        except wire.UNREADABLE as problem:
            self.close()
            raise shmq.BadFormat(f"the stream of {self.method}() cannot be read: {problem}") from problem
        if reply.kind == wire.ITEM:
            return self._read(reply.body)
        self._is_over = True
        self.close()
        if reply.kind == wire.RAISED:
            raise crossing.back(reply.body)
        raise StopIteration

    # ---- the end
    def close(self) -> None:
        """Read no more; the generator is closed where it stands. Closing twice is fine."""
        if not self._is_over:
            self._is_over = True
            self._give_up()
            with contextlib.suppress(shmq.ShmqError, OSError):
                self._queue.shutdown(immediate=True)  # or its server would wait for room
        with contextlib.suppress(shmq.ShmqError, OSError):
            self._consumer.close()
            self._queue.close()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """What it is of."""
        return f"<shmq.rpc.Stream of {self.method}(){' (over)' if self._is_over else ''}>"
