"""
From the source into the first queue.

The source is iterated by whoever calls `run`; a thread puts, so that nothing waits for the next item, and many go
together where they come quickly. Each batch is put with the number of items up to its end, so a run that goes on knows
how many there are, and skips as many of the source.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

import shmq

SOURCE = "source"
_TOGETHER = 256
_PAUSE = 0.1


def fed(first: shmq.Queue[Any]) -> int:
    """How many items of the source are in the first queue, or were."""
    last = first.adopted(SOURCE)
    return 0 if last is None else last[0]


class Feeder:
    """The thread, and what waits for it."""

    def __init__(self, target: shmq.Queue[Any], count: int, bound: int) -> None:
        """Begin; *count* items are in the queue."""
        self.count = count
        self.problem: BaseException | None = None
        self._target = target
        self._together = max(min(_TOGETHER, bound // 2), 1)
        self._items: queue.Queue[list[Any]] = queue.Queue(4 * self._together)  # each in a list: None is an item, too
        self._stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shmq-feeder", daemon=True)
        self._thread.start()

    def offer(self, item: Any) -> bool:
        """
        Have it put; False when there is no room now, for some time.

        Raises:
            What putting has raised.
        """
        self._check()
        try:
            self._items.put([item], timeout=_PAUSE)
        except queue.Full:
            return False
        return True

    def end(self) -> bool:
        """Nothing more comes: whether all is put, after waiting for some time."""
        self._ended.set()
        self._thread.join(_PAUSE)
        self._check()
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Put no more than what is being put."""
        self._stopped = True
        self._thread.join()

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            while not self._stopped:
                items = self._next()
                if items:
                    self._put(items)
                elif self._ended.is_set() and self._items.empty():
                    return
        except BaseException as problem:  # noqa: BLE001  # told to whoever calls run
            self.problem = problem

    def _next(self) -> list[Any]:
        items: list[Any] = []
        try:
            items += self._items.get(timeout=_PAUSE if not self._ended.is_set() else 0.001)
            while len(items) < self._together:
                items += self._items.get_nowait()
        except queue.Empty:
            pass
        return items

    def _put(self, items: list[Any]) -> None:
        while not self._stopped:
            try:
                self._target.put_many(items, dedup=(SOURCE, self.count + len(items)), timeout=_PAUSE)
            except shmq.DiskFull as problem:
                logging.getLogger("shmq.flow").warning("the source waits for room on the disk: %s", problem)
                time.sleep(_PAUSE)
            except (shmq.Full, shmq.SyncPending):  # repeated, what is there already waits for the disk
                continue
            else:
                self.count += len(items)
                return
