"""A worker's life: it claims tasks by their priorities, one at a time, until it is to leave."""

from __future__ import annotations

import errno
import faulthandler
import logging
import os
import time
import traceback
from typing import TYPE_CHECKING, Any

import shmq
from shmq import errors
from shmq.executor import names, page, within
from shmq.executor.directory import Directory
from shmq.executor.run_file import RunFile
from shmq.executor.turn import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq import GroupConsumer, Message, Queue, workers

_LOOK_UP = 0.5
LOWEST_EACH = 16
"""So many claims, and the lowest priority is looked at first: it is slow then, and never starved."""
RUN, BROKEN = b"run:", b"broken:"
"""What a worker says first: the name of its run file, and why its initializer failed."""
_ROOM_AGAIN = 0.5
"""Seconds between two looks whether the disk has room for a page."""
_log = logging.getLogger("concurrent.futures")


class Claims:
    """The three queues of tasks, from which one task at a time is claimed."""

    def __init__(self, directory: Directory) -> None:
        """Join the workers of all three."""
        self._stamps = directory.page.stamps
        self._low, self._usual, self._high = (
            _joined(directory.queue(names.TASKS[priority])) for priority in (-1, 0, 1)
        )
        self._all = [self._high, self._usual, self._low]
        self._seen_high = -1
        self._high_has = True
        self._turn = 0

    def next(self) -> Message[bytes] | None:
        """The next task; None when there is none now."""
        self._turn += 1
        stamp = self._stamps[page.HIGH]
        if stamp != self._seen_high:
            self._seen_high, self._high_has = stamp, True
        lowest_first = self._turn % LOWEST_EACH == 0
        if lowest_first and (found := _got(self._low)) is not None:
            return found
        if self._high_has or lowest_first:
            if (found := _got(self._high)) is not None:
                return found
            self._high_has = False
        if (found := _got(self._usual)) is not None:
            return found
        return _got(self._high) or _got(self._low)

    def wait(self) -> None:
        """
        Until there is one, or may be, or half a second has passed.

        On CPython 3.13 a worker that a thread has forked was seen to run no handler of SIGTERM while it sleeps here.
        """
        shmq.wait(self._all, timeout=_LOOK_UP)

    def close(self) -> None:
        """Leave."""
        for each in self._all:
            each.close()


def _joined(queue: Queue[Any]) -> GroupConsumer[bytes]:
    return queue.consumer(names.GROUP, group=True, ack="explicit")


def _got(consumer: GroupConsumer[bytes]) -> Message[bytes] | None:
    try:
        return consumer.get(timeout=0)
    except errors.Empty:
        return None


def work(
    life: workers.Life,
    path: str,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    max_tasks: int | None = None,
) -> None:
    """A worker process, whole."""
    directory = Directory(path, create=False)
    run_file = _begun(life, directory)
    life.say(RUN + run_file.name.encode())
    try:
        path = os.path.join(directory.workers, f"{run_file.name}.trace")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as trace:
            faulthandler.enable(trace)
            if _initialized(life, initializer, initargs):
                _work(life, Turns(directory, run_file, life, trace), directory, run_file, max_tasks)
            faulthandler.disable()
        os.unlink(path)
    finally:
        run_file.close()


def _begun(life: workers.Life, directory: Directory) -> RunFile:
    """Its run file, as soon as there is room for it."""
    while True:
        try:
            return RunFile(directory.workers)
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.EDQUOT) or life.ending:
                raise
            time.sleep(_ROOM_AGAIN)


def _initialized(life: workers.Life, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> bool:
    if initializer is None:
        return True
    try:
        initializer(*initargs)
    except BaseException:  # noqa: BLE001  # whatever it raises, no task may run without it
        _log.critical("Exception in initializer:", exc_info=True)
        life.say(BROKEN + traceback.format_exc().encode())
        return False
    return True


def _work(life: workers.Life, turns: Turns, directory: Directory, run_file: RunFile, max_tasks: int | None) -> None:
    claims = Claims(directory)
    run_file.idle()
    done = 0
    try:
        with within.worker(directory.path, run_file):
            while not life.ending and (max_tasks is None or done < max_tasks):
                message = claims.next()
                if message is None:
                    life.wait(claims.wait)
                    continue
                turns.take(message)
                del message  # which would keep a chunk mapped while it waits
                done += 1
    finally:
        claims.close()
        turns.close()
