"""
What an Executor runs on: directory, follower, submitter, workers. It lives until its last future is done, also when
the Executor itself is gone.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.executor import names
from shmq.executor.directory import Directory
from shmq.executor.following import Follower, sweep
from shmq.executor.guarding import Guard
from shmq.executor.submitting import Submitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.executor.future import Future
    from shmq.executor.submitting import Wishes

_log = logging.getLogger("shmq.executor")
_all: weakref.WeakSet[Engine] = weakref.WeakSet()
_interpreter_ends = False
_process = object()
"""Another one in a forked child: cheaper to look at than the pid."""


def _in_child() -> None:
    global _process  # noqa: PLW0603
    _process = object()


os.register_at_fork(after_in_child=_in_child)


class Engine:
    """Made by an Executor, and let go of by `release`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        count: int,
        max_attempts: int,
        max_pending: int | None,
        context: Any,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        max_tasks: int | None,
        keep: float | None,
        durability: Any,
        lease: float | None,
    ) -> None:
        """Open the directory, and start workers."""
        self._pid = os.getpid()
        self._of = _process
        self._lock = threading.RLock()
        self._shut = False
        self._stopped = False
        self._left = False
        self.broken: str | None = None
        self._max_pending = max_pending
        self.directory = Directory(path, keep=keep, durability=durability, lease=lease)
        number = int.from_bytes(os.urandom(8), "little")
        try:
            sweep(self.directory)
            self.follower = Follower(self.directory, number)
        except BaseException:
            self.directory.close()
            raise
        self.follower.on_empty = self._on_empty
        self.submitter = Submitter(self.directory, self.follower, number, max_attempts)
        self.guard: Guard | None = None
        try:
            if count:
                self._tell_of_earlier()
                self.guard = Guard(
                    self.directory,
                    count=count,
                    context=context,
                    initializer=initializer,
                    initargs=initargs,
                    max_tasks=max_tasks,
                    on_broken=self._on_broken,
                    on_nobody=self.directory.close,
                )
                self.guard.start()
        except BaseException:
            self._stop(wait=False)
            raise
        _all.add(self)

    def _tell_of_earlier(self) -> None:
        waiting = 0
        for name in names.TASKS.values():
            stats = self.directory.queue(name).consumers().get(names.GROUP)
            waiting += 0 if stats is None else stats.lag
        if waiting:
            _log.info("%d tasks of earlier programs wait in %s; they run now", waiting, self.directory.path)

    # ---- submitting
    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wished: Wishes
    ) -> Future[Any]:
        """As `Executor.submit`."""
        if self._shut or self.broken is not None or self._of is not _process or _interpreter_ends:
            self.check("submit")
        if self._max_pending is not None:
            self.follower.room(self._max_pending)
            self.check("submit")
        return self.submitter.submit(function, args, kwargs, wished)

    def check(self, what: str) -> None:
        """
        Refuse what cannot be done any more.

        Raises:
            RuntimeError: it was shut down, or the interpreter ends.
            BrokenProcessPool: its initializer failed.
            Forked: it is another process's.
        """
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"cannot {what}: this Executor of {self.directory.path} is of process {self._pid}, and this one was "
                "forked from it; open one here"
            )
        if self.broken is not None:
            raise BrokenProcessPool(self.broken)
        if self._shut:
            done = "schedule new futures" if what == "submit" else what  # as concurrent.futures has it
            raise RuntimeError(f"cannot {done} after shutdown")
        if _interpreter_ends:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def pids(self) -> list[int]:
        """Of our own workers."""
        return self.guard.workers.pids() if self.guard is not None else []

    # ---- the end
    def _on_broken(self, why: str) -> None:
        self.broken = (
            f"this Executor of {self.directory.path} runs no tasks: {why}. Those that were submitted stay in the "
            "directory, where other workers run them"
        )
        self.follower.fail(BrokenProcessPool(self.broken))

    def _on_empty(self) -> None:
        """No future waits any more."""
        if self._shut:
            self._stop(wait=False)

    def shut(self, *, wait: bool, cancel_futures: bool) -> None:
        """As `Executor.shutdown`."""
        if os.getpid() != self._pid:
            return
        self._shut = True
        if cancel_futures:
            for each in self.follower.futures():
                each.cancel()
        try:
            if wait:
                self.follower.wait()
            if wait or not self.follower.count:
                self._stop(wait=wait)
        except KeyboardInterrupt:
            self._left = True
            raise

    def release(self) -> None:
        """Its Executor is gone."""
        if os.getpid() == self._pid and not self._shut:
            self.shut(wait=False, cancel_futures=False)

    def at_exit(self) -> None:
        """Wait as `concurrent.futures` does; not for what only others can run, nor when a Ctrl-C has left a wait."""
        if os.getpid() == self._pid and not self._stopped and not self._left and self.guard is not None:
            self.shut(wait=True, cancel_futures=False)

    def _stop(self, *, wait: bool) -> None:
        """Let go of everything; workers finish what they do. Their last one takes the directory with it."""
        with self._lock:
            first, self._stopped = not self._stopped, True
        if first:
            self.follower.end()
        if self.guard is not None and self.guard.begun:
            self.guard.workers.stop(wait=wait)
        elif first:
            self.directory.close()


@atexit.register
def _end_of_the_interpreter() -> None:
    global _interpreter_ends  # noqa: PLW0603
    _interpreter_ends = True
    for each in list(_all):
        each.at_exit()
