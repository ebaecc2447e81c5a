"""Tasks as they are put: packed, numbered, and waited for by a future here."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.executor import functions, keyed, names, page, task
from shmq.executor.following import settle
from shmq.executor.future import Future

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.executor.directory import Directory
    from shmq.executor.following import Follower

_MAIN = b"__main__"
_BACKOFF_MOST = 300.0


@dataclass(frozen=True)
class Wishes:
    """What a task can have beside a function and its arguments; see `Executor.task`."""

    key: bytes | None = None
    priority: int = 0
    limit: float = 0.0
    deadline: float | None = None
    policy: bytes = b""
    max_attempts: int | None = None


USUAL = Wishes()


def wishes(
    *,
    key: object = None,
    priority: int = 0,
    timeout: float | None = None,
    deadline: float | None = None,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
    backoff: float = 1.0,
    max_attempts: int | None = None,
) -> Wishes:
    """
    Those, checked.

    Raises:
        TypeError, ValueError: they mean nothing.
    """
    if priority not in names.TASKS:
        raise ValueError(f"priority={priority!r}: 1, 0 or -1")
    for name, value in (("timeout", timeout), ("deadline", deadline)):
        _check_number(name, value, none=True)
        if value is not None and not value > 0:
            raise ValueError(f"{name}={value!r}: seconds, more than 0; None for no limit")
    _check_number("backoff", backoff)
    if not backoff >= 0:
        raise ValueError(f"backoff={backoff!r}: seconds before the first retry, 0 or more")
    if max_attempts is not None and (not isinstance(max_attempts, int) or isinstance(max_attempts, bool)):
        raise TypeError(f"max_attempts={max_attempts!r}: an int is wanted, not {type(max_attempts).__name__}")
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts={max_attempts!r}: at least 1")
    policy = b""
    if retry_on is not None:
        kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        if not kinds or not all(isinstance(each, type) and issubclass(each, BaseException) for each in kinds):
            raise TypeError(f"retry_on={retry_on!r}: an exception class, or a tuple of them")
        policy = pickle.dumps((kinds, float(backoff), max(_BACKOFF_MOST, float(backoff))), 5)
    stored = None if key is None else keyed.key_of(key)
    return Wishes(stored, priority, float(timeout or 0.0), deadline, policy, max_attempts)


def _check_number(name: str, value: object, *, none: bool = False) -> None:
    if (value is None and none) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return
    raise TypeError(f"{name}={value!r}: a number of seconds is wanted, not {type(value).__name__}")


class Submitter:
    """Puts tasks of one Executor."""

    def __init__(self, directory: Directory, follower: Follower, number: int, max_attempts: int) -> None:
        """*number*: which submitter this is, of all that ever were."""
        self._directory, self._follower, self._number = directory, follower, number
        self._max_attempts = max_attempts
        self._numbers = itertools.count()
        self._quick = task.Quick(number, max_attempts)
        self._usual = directory.queue(names.TASKS[0])
        self._pid = os.getpid()

    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wished: Wishes
    ) -> Future[Any]:
        """As `Executor.submit`. What cannot be pickled is in the future, as `ProcessPoolExecutor` has it."""
        number = next(self._numbers)
        id_ = task.id_of(self._number, number)
        try:
            name, content = functions.pack(function, args, kwargs)
        except Exception as problem:  # noqa: BLE001  # of anybody's reducer
            failed: Future[Any] = Future(id_, wished.key, None)
            failed.set_exception(problem)
            return failed
        main = functions.main_path() if name.startswith("__main__:") or _MAIN in content else ""
        if wished is USUAL:
            future: Future[Any] = Future(id_, None, self._follower)
            try:
                self._follower.add_plain(future)
                self._usual.put(self._quick.packed(number, name, main, content))
            except BaseException:
                self._follower.remove(future)
                raise
            return future
        made = self._made(name, content, main, number, wished)
        return self._put_one(made, wished) if wished.key is None else self._put_keyed(made, wished.key, function)

    def _made(self, name: str, content: bytes, main: str, number: int, wished: Wishes) -> task.Task:
        made = task.Task(name, content, self._number, number, main, wished.priority)
        made.max_attempts = wished.max_attempts or self._max_attempts
        made.limit, made.policy, made.keyed = wished.limit, wished.policy, wished.key is not None
        if wished.deadline is not None:
            left = int(wished.deadline * 1e9)
            made.deadline, made.wall, made.boot = task.boot_ns() + left, time.time_ns() + left, task.boot()
        return made

    def _put_one(self, made: task.Task, wished: Wishes) -> Future[Any]:
        future: Future[Any] = Future(made.id, wished.key, self._follower)
        queue = self._directory.queue(names.TASKS[made.priority])
        self._put(future, queue.put, made.packed(), **({} if wished.key is None else {"key": wished.key}))
        if made.priority > 0:
            self._directory.page.change(page.HIGH)
        return future

    def _put(self, future: Future[Any], put: Callable[..., object], payload: bytes, **fields: Any) -> None:
        """Wait for its outcome, and put its task: in this order, for it may have ended when the put returns."""
        try:
            if future.stored_key is None:
                self._follower.add_plain(future)
            else:
                self._follower.add(future)
            put(payload, **fields)
        except BaseException:
            self._follower.remove(future)
            raise

    def _put_keyed(self, made: task.Task, key: bytes, function: Callable[..., Any]) -> Future[Any]:
        with self._directory.exclusively():
            found = keyed.find(self._directory, key)
            if found is None:
                return self._put_one(made, Wishes(key, made.priority))
        if found.name != made.name:
            raise errors.Mismatch(
                f"cannot submit {functions.shown(function)} with key {key!r}: that key of {self._directory.path} is a "
                f"task of {found.name or 'another function'}; nothing was submitted. Another key, or forget({key!r})"
            )
        return self.future_of(found, key)

    def future_of(self, found: keyed.Found, key: bytes) -> Future[Any]:
        """A future here for a task that anybody has submitted."""
        future: Future[Any] = Future(found.id, key, self._follower)
        if found.ended is None:
            self._follower.add(future, strange=True)
            again = keyed.find(self._directory, key)  # it may have ended before it was waited for
            if again is not None and again.id == found.id and again.ended is not None:
                self._follower.hand_out(again.ended)
        else:
            settle(future, found.ended)
        return future
