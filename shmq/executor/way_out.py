"""
How an outcome leaves its worker: with the acknowledgement of its task, as one; slowly, where a disk is nearly full.

A forward that finds no room gives its message back, which costs the task an attempt it is not to blame for. So where
little is left, outcomes are put first, for as long as that takes, and their task is finished then: tasks that are
finished give their room back. A worker that is killed in between has the task run again, and its outcome comes twice;
whoever waits takes the first. A worker that is to leave meanwhile leaves the task to others; what is larger than the
whole disk is refused: one would wait for ever.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from shmq import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq import Message, Queue

    Put = tuple[Queue[Any], bytes, dict[str, Any]]

_log = logging.getLogger("shmq.executor")
_LITTLE = 16 << 20
"""Bytes that are to be left beside what is put."""
_SMALL = 64 << 10
_LOOK_EVERY = 100_000_000
"""Nanoseconds, by the wall clock; when that is set back, one looks at once."""
_AGAIN = 0.2


class WayOut:
    """Of one worker."""

    def __init__(self, path: str, is_ending: Callable[[], bool]) -> None:
        """*path*: the directory, whose disk it is; *is_ending*: whether the worker is to leave."""
        self._path = path
        self._is_ending = is_ending
        self._looked = 0
        self._left = 0

    def hand_over_one(
        self, message: Message[bytes], results: Queue[Any], payload: bytes, key: bytes, kind: int, now: int
    ) -> None:
        """The same of an outcome alone; *now* is the wall clock."""
        if not self._has_room(len(payload), now):
            self.hand_over(message, [(results, payload, {"key": key, "type": kind})])
            return
        try:
            with message.forward() as forward:
                forward.put(results, payload, key=key, type=kind)
        except errors.LeaseLost:
            self._tell_lost()
        except errors.Full as problem:
            self._give_back(message, problem)

    def hand_over(self, message: Message[bytes], puts: Sequence[Put]) -> None:
        """
        Put these and finish the message, as one: after any death, all of it is there, or the task comes again.

        Raises:
            TooLarge: no queue, or not the disk, could ever have it.
        """
        try:
            if self._has_room(sum(len(payload) for _, payload, _ in puts), time.time_ns()):
                with message.forward() as forward:
                    for queue, payload, fields in puts:
                        forward.put(queue, payload, **fields)
            else:
                for queue, payload, fields in puts:
                    self._put_slowly(queue, payload, fields)
                message.ack()
        except errors.LeaseLost:
            self._tell_lost()
        except errors.Full as problem:
            self._give_back(message, problem)

    def _tell_lost(self) -> None:
        _log.warning("a task took longer than the lease of %s: another worker has it, too", self._path)

    def _give_back(self, message: Message[bytes], problem: errors.Full) -> None:
        _log.warning("an outcome found no room, so its task comes again: %s", problem)
        with contextlib.suppress(errors.LeaseLost):  # refused before it was begun, it is still ours
            message.nack(_AGAIN)

    def _has_room(self, size: int, now: int) -> bool:
        if not 0 <= now - self._looked < _LOOK_EVERY or size > _SMALL:
            found = os.statvfs(self._path)
            self._left, self._looked = found.f_bavail * found.f_frsize, now
        return self._left > _LITTLE + 2 * size

    def _put_slowly(self, queue: Queue[Any], payload: bytes, fields: dict[str, Any]) -> None:
        told = False
        while True:
            try:
                queue.put(payload, **fields)
            except errors.DiskFull as problem:
                self._check_fits(payload)
                if self._is_ending():
                    raise
                if not told:
                    _log.warning("an outcome waits for room: %s", problem)
                told = True
                time.sleep(_AGAIN)
            else:
                return

    def _check_fits(self, payload: bytes) -> None:
        disk = os.statvfs(self._path)
        size = disk.f_blocks * disk.f_frsize
        if len(payload) > size:
            raise errors.TooLarge(
                f"an outcome of {len(payload)} bytes fits nowhere on the disk of {self._path}, which has {size}; the "
                "task has run, and what it returned is lost"
            )
