"""What `submit` returns: a `concurrent.futures.Future` that knows its key and its attempts, and can be killed."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from shmq import errors
from shmq.executor import within

if TYPE_CHECKING:
    from collections.abc import Callable

_PENDING, _CANCELLED, _FINISHED = "PENDING", "CANCELLED", "FINISHED"
"""States, as `concurrent.futures` calls them."""

_MADE_LATER: dict[str, Callable[[], object]] = {
    "_condition": threading.Condition,
    "_waiters": list,
    "_done_callbacks": list,
}
_UNSEEN = threading.RLock()
_UNSEEN_CONDITION = threading.Condition(_UNSEEN)
"""The lock of all that were done before anybody looked."""
os.register_at_fork(before=_UNSEEN.acquire, after_in_parent=_UNSEEN.release, after_in_child=_UNSEEN.release)

T = TypeVar("T")
_LOOK = 0.25
"""Seconds between two looks whether anybody is left to run what a worker waits for."""


class Follower(Protocol):
    """Who brings outcomes: see `shmq.executor.following`."""

    path: str
    workers_folder: str
    pid: int

    def is_running(self, id_: bytes) -> bool:
        """Whether a worker runs that task."""
        ...

    def cancel(self, id_: bytes) -> bool:
        """Have that task not begun any more; False when it has."""
        ...

    def kill(self, id_: bytes) -> None:
        """Have it not begun any more, and ended."""
        ...

    def remove(self, future: Future[Any]) -> None:
        """It waits no more."""
        ...


class Future(concurrent.futures.Future[T], Generic[T]):
    """
    The outcome of a task, here.

    Attributes:
        key: its key, by which any process finds it again; None without one.
        id: which task it is, for logs.
        stored_key: the same, as it is stored.
        attempts: how often it was begun; known when it is done.
    """

    attempts = 0
    _state = _PENDING
    _result = None
    _exception = None

    def __init__(self, id_: bytes, key: bytes | None, follower: Follower | None) -> None:
        """Made by an Executor. Without what `concurrent.futures` makes of one: see `__getattr__`."""
        self.id = id_
        self.stored_key = key
        self._follower = follower

    def __getattr__(self, name: str) -> Any:
        """
        Its lock, and who waits for it or is to be called: made by whoever is the first to want them, in one step.

        Most futures never have them, for they are done when somebody asks; and they are most of the price of one.
        """
        made = _MADE_LATER.get(name)
        if made is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return self.__dict__.setdefault(name, made())

    def succeed(self, value: T) -> bool:
        """
        Its result, as `set_result` has it, for one that nobody has looked at; False for any other one.

        Nobody waits for that, nor is to be called: for that, they would have made its lock. Who comes now finds the one
        that all such have, and waits until this is over.
        """
        with _UNSEEN:
            if self.__dict__.setdefault("_condition", _UNSEEN_CONDITION) is not _UNSEEN_CONDITION:
                return False
            if self._state != _PENDING:
                return False
            self._result = value
            self._state = _FINISHED
        return True

    @property
    def key(self) -> str | bytes | None:
        """Its key, as text where it is some."""
        if self.stored_key is None:
            return None
        try:
            return self.stored_key.decode()
        except UnicodeDecodeError:
            return self.stored_key

    @property
    def name(self) -> str:
        """Its key, or its id: for messages."""
        return self.id.hex() if self.stored_key is None else repr(self.key)

    def running(self) -> bool:
        """Whether a worker runs it now."""
        follower = self._follower_here("ask whether a worker runs")
        if follower is None:  # nobody brings an outcome: as any future
            return super().running()
        return not self.done() and follower.is_running(self.id)

    def cancel(self) -> bool:
        """
        Have it not begun any more; False when its code runs, or has run. True means that it never begins again.

        A worker that died in it may have begun it before: then it does not begin again.
        """
        if self.cancelled():
            return True
        follower = self._follower_here("cancel")
        if follower is None:  # nobody brings an outcome: as any future
            return super().cancel()
        if self.done() or not follower.cancel(self.id):
            return self.cancelled()
        try:
            return self.become_cancelled()
        finally:
            follower.remove(self)

    def kill(self) -> bool:
        """
        Have it not begun any more, and where it runs, its worker killed; False when it is done.

        It is cancelled then: `result()` raises CancelledError.
        """
        follower = self._follower_here("kill")
        if self.done() or follower is None:
            return False
        follower.kill(self.id)
        return True

    def result(self, timeout: float | None = None) -> T:
        """
        As `concurrent.futures`'.

        Raises:
            RuntimeError: this is in a worker, and all workers of its directory wait for tasks that none is left to run.
            Forked: it is a parent's, and was not done when this process was forked.
        """
        self._wait_as_a_worker(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `concurrent.futures`'; in a worker, as `result`."""
        self._wait_as_a_worker(timeout)
        return super().exception(timeout)

    def _follower_here(self, what: str) -> Follower | None:
        """
        Who brings the outcome to this process; None where nobody has to.

        Raises:
            Forked: to its parent, and it is not done.
        """
        follower = self._follower
        if follower is not None and follower.pid != os.getpid() and not self.done():
            raise errors.Forked(
                f"cannot {what} task {self.name} by this future: it is of process {follower.pid}, and its outcome "
                f"comes there; open an Executor of {follower.path} here, whose future(key) finds it"
            )
        return follower

    def _wait_as_a_worker(self, timeout: float | None) -> None:
        follower = self._follower_here("wait for")
        if follower is None or self.done() or not within.is_worker_of(follower.path):
            return
        end = None if timeout is None else time.monotonic() + timeout
        with within.Waiting(follower.workers_folder) as waiting:
            while not self.done():
                left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
                if left <= 0:
                    return
                concurrent.futures.wait([self], left)
                if not self.done() and waiting.is_stuck():
                    raise RuntimeError(
                        f"this task waits for another one of {follower.path}, and so do all workers there: nobody is "
                        "left to run it. Give the Executor more workers, or have the first task end and the second "
                        "one follow it; the second one is still there"
                    )

    # ---- by the follower
    def become_cancelled(self) -> bool:
        """Cancel this object, wherever it stands; whether that was still to be done."""
        if not super().cancel():
            return self.cancelled()
        with self._condition:  # who asked and the follower may both be here: the first one tells those who wait
            if self._state == _CANCELLED:
                self.set_running_or_notify_cancel()
        return True

    def let_go(self) -> None:
        """It is done, and holds nobody."""
        self._follower = None
