"""
The thread that reads outcomes as they come, and hands them to the futures here that wait for them.

It follows the results as a consumer of its own, which holds back what it has not read; one whose process is gone is
dropped by whoever follows next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.executor import cancelling, names, outcome, run_file, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq import Consumer
    from shmq.executor.directory import Directory
    from shmq.executor.future import Future

_log = logging.getLogger("shmq.executor")
_IDLE = 1.0
_LOOK = 0.25
_SWEEP_EVERY = 60.0
_MOST = 256
_NUDGE = b""
"""What is put to wake a follower."""


class Follower:
    """Futures that wait, and who brings their outcomes."""

    def __init__(self, directory: Directory, submitter: int) -> None:
        """Follow from now on: what ends later is not missed."""
        self._directory = directory
        self.path, self.workers_folder, self.pid = directory.path, directory.workers, os.getpid()
        self._queue = directory.queue(names.RESULTS)
        self._name = f"{names.SUBMITTER}{submitter:016x}"
        self._consumer: Consumer[bytes] = self._queue.consumer(self._name, start="latest", hold=True)
        self._changed = threading.Condition()
        self._plain: dict[bytes, Future[Any]] = {}
        """Those without a key, of which each has a task of its own; changed by single steps, without the lock."""
        self._waiting: dict[bytes, list[Future[Any]]] = {}
        """The others."""
        self._strange: dict[bytes, bytes] = {}
        """Ids of tasks of others, and their keys: their outcomes may have come just before this began to follow."""
        self._count = 0
        self._upto = 0
        self._ending = False
        self._problem: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._swept = 0.0
        self.on_empty: Callable[[], object] = _nothing

    # ---- by the submitter
    def add(self, future: Future[Any], *, strange: bool = False) -> None:
        """Hand that future its outcome when it comes."""
        with self._changed:
            if self._problem is not None:
                raise BrokenExecutor(f"cannot submit to {self.path}: {self._problem}") from self._problem
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="shmq-follow", daemon=True)
                self._thread.start()
            self._waiting.setdefault(future.id, []).append(future)
            self._count += 1
            if strange and future.stored_key is not None:
                self._strange[future.id] = future.stored_key

    def add_plain(self, future: Future[Any]) -> None:
        """The same, for one without a key."""
        if self._thread is None:
            self.add(future)
            return
        self._plain[future.id] = future
        if self._problem is not None:  # behind that: `fail` reads them behind it, too
            self._plain.pop(future.id, None)
            raise BrokenExecutor(f"cannot submit to {self.path}: {self._problem}") from self._problem

    def remove(self, future: Future[Any]) -> None:
        """It waits no more: its task was not put after all, or it is cancelled."""
        if self._plain.pop(future.id, None) is not None:
            with self._changed:
                self._changed.notify_all()
            if not self.count:
                self.on_empty()
            return
        with self._changed:
            futures = self._waiting.get(future.id, [])
            if future in futures:
                futures.remove(future)
                self._count -= 1
            if not futures:
                self._waiting.pop(future.id, None)
                self._strange.pop(future.id, None)
            self._changed.notify_all()
        if not self.count:
            self.on_empty()

    def room(self, most: int, timeout: float | None = None) -> bool:
        """Wait until fewer than so many wait."""
        if threading.current_thread() is self._thread:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: self.count < most or self._problem is not None, timeout)

    def wait(self) -> None:
        """Until none waits any more; in a worker, also until nobody is left to run what they wait for."""
        if not within.is_worker_of(self.path):
            self.room(1)
            return
        with within.Waiting(self.workers_folder) as waiting:
            while not self.room(1, _LOOK):
                if waiting.is_stuck():
                    _log.warning("%d tasks of %s are left to others: all workers wait", self.count, self.path)
                    return

    @property
    def count(self) -> int:
        """How many wait."""
        return self._count + len(self._plain)

    def futures(self) -> list[Future[Any]]:
        """Those that wait."""
        with self._changed:
            return [each for some in self._waiting.values() for each in some] + list(self._plain.values())

    def fail(self, problem: BaseException) -> None:
        """No outcome comes any more, for that reason: tell it to all that wait."""
        with self._changed:
            self._problem = problem
            failed = [each for some in self._waiting.values() for each in some] + list(self._plain.values())
            self._waiting.clear()
            self._plain.clear()
            self._count = 0
            self._changed.notify_all()
        for each in failed:
            _tell(each, problem)
        self.on_empty()

    def is_running(self, id_: bytes) -> bool:
        """Whether a worker runs that task."""
        return cancelling.state_of(self._directory, id_) != run_file.IDLE

    def cancel(self, id_: bytes) -> bool:
        """Have that task not begun any more; False when it has."""
        cancelling.ask(self._directory, id_, cancelling.CANCEL)
        if cancelling.has_begun(self._directory, id_):
            return False
        self._catch_up()
        with self._changed:
            return id_ in self._waiting or id_ in self._plain  # else its outcome has come

    def kill(self, id_: bytes) -> None:
        """Have it not begun any more, and ended."""
        cancelling.ask(self._directory, id_, cancelling.KILL)

    def _catch_up(self) -> None:
        """Until all that was put before this call has been handed out."""
        end = self._queue.next_index
        if threading.current_thread() is self._thread:  # in a callback: then by this thread itself, later
            return
        with self._changed:
            self._changed.wait_for(lambda: self._upto >= end or self._problem is not None or self._ending, 30.0)

    def end(self) -> None:
        """Follow no more. What is waiting waits for ever."""
        with self._changed:
            self._ending = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            with contextlib.suppress(errors.ShmqError, OSError):  # a full disk: then it wakes by itself
                self._queue.put(_NUDGE)
            thread.join()
        self._consumer.close()
        with contextlib.suppress(errors.ShmqError, OSError):
            self._queue.drop_consumer(self._name)

    # ---- in the thread
    def _follow(self) -> None:
        try:
            while not self._ending:
                try:
                    payloads = self._consumer.take_many(_MOST, timeout=_IDLE)
                except errors.Empty:
                    self._look_at_strangers()
                    self._sweep()
                    payloads = []
                self._bring_all(payloads)
                del payloads[:]
                if not self._ending:  # by a callback of what was just brought
                    self._progress()
        except BaseException as problem:  # noqa: BLE001  # of the queue: nobody else would hear of it
            _log.exception("cannot follow the results of %s", self.path)
            self.fail(problem)

    def _progress(self) -> None:
        with self._changed:
            self._upto = self._consumer.head
            self._changed.notify_all()

    def _bring_all(self, payloads: list[bytes]) -> None:
        """To those that wait for them."""
        plain = self._plain
        empty = False
        for payload in payloads:
            id_ = outcome.id_in(payload)
            future = plain.pop(id_, None)
            if future is not None:
                _bring(future, payload)
                empty = not plain
            elif id_ in self._waiting:
                self.hand_out(outcome.read(payload))
        if empty and not self.count:
            self.on_empty()

    def hand_out(self, ended: outcome.Outcome) -> None:
        """That outcome, to those that wait for it."""
        with self._changed:
            futures = self._waiting.pop(ended.id, [])
            self._strange.pop(ended.id, None)
            self._count -= len(futures)
            self._changed.notify_all()
        while futures:
            settle(futures.pop(), ended)
        if not self.count:
            self.on_empty()

    def _look_at_strangers(self) -> None:
        """Outcomes of others' tasks that came before this began to follow, and were kept just afterwards."""
        with self._changed:
            strange = list(self._strange.items())
        kept = self._directory.queue(names.KEPT)
        for id_, key in strange:
            found = kept.latest(key)
            if found is not None:
                ended = outcome.read(found.payload)
                if ended.id == id_:
                    self.hand_out(ended)

    def _sweep(self) -> None:
        """Drop the names of submitters that are gone, once a minute."""
        if time.monotonic() - self._swept < _SWEEP_EVERY:
            return
        self._swept = time.monotonic()
        sweep(self._directory)


def sweep(directory: Directory) -> None:
    """Drop names of submitters that are gone, files of workers that are, and cancellations of what has ended."""
    queue = directory.queue(names.RESULTS)
    for name in queue.consumers():
        if name.startswith(names.SUBMITTER):
            with contextlib.suppress(errors.Busy, errors.NotFound):
                queue.drop_consumer(name)
    run_file.sweep(directory.workers)
    cancelling.forget_ended(directory)


def _bring(future: Future[Any], payload: bytes) -> None:
    """Give one its outcome: a value that nobody waits for yet in a few steps, whatever else as `settle` does."""
    attempts = outcome.attempts_for_value(payload)
    if attempts:
        try:
            value = outcome.value_in(payload)
        except BaseException:  # noqa: BLE001  # it is told there
            attempts = 0
        else:
            future.attempts = attempts
            if future.succeed(value):
                future.let_go()
                return
    settle(future, outcome.read(payload))


def settle(future: Future[Any], ended: outcome.Outcome) -> None:
    """Give a future its outcome; what its callbacks raise is told, and stops nothing."""
    try:
        future.attempts = ended.attempts
        if ended.state == outcome.CANCELLED:
            future.become_cancelled()
            return
        try:
            if ended.state == outcome.VALUE:
                value, problem = ended.value(), None
            else:
                value, problem = None, ended.problem()
        except BaseException as refusal:  # noqa: BLE001  # of unpickling, which runs anybody's code
            refusal.add_note(f"the outcome of task {future.name} cannot be unpickled here")
            value, problem = None, refusal
        if problem is None:
            future.set_result(value)
        else:
            future.set_exception(problem)
    except BaseException as problem:  # of a callback, or it was cancelled meanwhile
        if not future.done():
            raise
        if not future.cancelled():
            _log.exception("a callback of task %s raised", future.name, exc_info=problem)
    finally:
        if future.done():
            future.let_go()


def _tell(future: Future[Any], problem: BaseException) -> None:
    with contextlib.suppress(Exception):  # it was cancelled meanwhile
        future.set_exception(problem)


def _nothing() -> None:
    return None
