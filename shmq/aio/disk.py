"""Waiting for the disk: one sync at a time, in a thread, answers all tasks that wait for one queue."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import time
from typing import TYPE_CHECKING

import shmq

if TYPE_CHECKING:
    from shmq.aio import loops


_A_WHILE = 1.0


class Disk:
    """One queue's way to the disk, for the tasks of one loop."""

    def __init__(self, loop: loops.Loop, plain: shmq.Queue) -> None:
        """Nobody waits yet, and there is no thread before somebody does."""
        self._loop = loop
        self._plain = plain
        self._waiting: set[loops.Flag] = set()
        self._is_busy = False
        self._problem: BaseException | None = None
        self._replicates = plain.options.durability.kind == "replicated"
        self._end_of_sync = 0
        """All before that index is where a put promises it to be, by the last sync of ours."""
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "shmq-aio-disk")

    async def wait(self, pending: shmq.SyncPending, last: int, until: float | None) -> None:
        """
        Return when the message at *last* is on the disk, which *pending* tells of; and on those of followers, where a
        put waits for that. Cancelled, that is its cause.

        Raises:
            SyncPending: it is *until* already.
            SyncFailed: the disk refused.
        """
        mine = self._loop.flag()
        self._waiting.add(mine)
        try:
            while not self._is_there(last):
                mine.clear()
                self._begin()
                await mine.wait(until)
                if self._problem is not None:
                    raise shmq.SyncFailed(str(self._problem), pending.index) from self._problem
                if until is not None and time.monotonic() >= until:
                    raise pending
        except (shmq.SyncFailed, shmq.SyncPending):
            raise
        except BaseException as cancelled:  # in the loop's own words, which are its own
            cancelled.__cause__ = pending
            raise
        finally:
            self._waiting.discard(mine)

    def _is_there(self, last: int) -> bool:
        return (self._end_of_sync if self._replicates else self._plain.durable_index) > last

    def _sync(self) -> None:
        """Once; where it may never end, for a while, so that the thread can."""
        if not self._replicates:
            self._plain.sync()
            return
        end = self._plain.committed_index
        with contextlib.suppress(shmq.SyncPending):
            self._plain.sync(timeout=_A_WHILE)
            self._end_of_sync = max(self._end_of_sync, end)

    def _begin(self) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        loop, end = self._loop, self._end

        def tell(job: concurrent.futures.Future[None]) -> None:
            loop.tell(functools.partial(end, job))

        self._thread.submit(self._sync).add_done_callback(tell)

    def _end(self, job: concurrent.futures.Future[None]) -> None:
        self._is_busy = False
        self._problem = job.exception()
        for each in self._waiting:
            each.set()

    def close(self) -> None:
        """Let its thread go when it has done what it does."""
        self._thread.shutdown(wait=False)
