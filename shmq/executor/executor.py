"""The Executor itself: what programs call."""

from __future__ import annotations

import concurrent.futures
import os
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from shmq import errors
from shmq.executor import keyed, mapping, run_file, submitting
from shmq.executor.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shmq import Durability
    from shmq.executor.future import Future

P = ParamSpec("P")
T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """
    A `concurrent.futures.Executor` on a directory: tasks outlive every process, and a reboot.

    Opening it says that the directory is trusted: what lies there is run. So it must be the user's own, and closed to
    everybody else.

    Attributes:
        path: its directory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        max_attempts: int = 3,
        max_pending: int | None = None,
        lease: float | None = None,
        keep: float | None = None,
        durability: Durability | str | None = None,
    ) -> None:
        """
        Open the directory, make it if there is none, and start workers; they also run what others submit there.

        Args:
            path: the directory; the one above it must exist.
            max_workers: processes to start; as many as there are processors by default. With 0 it only submits, and
                others run it: `shmq worker PATH`.
            mp_context: how they are started, as for ProcessPoolExecutor; forkserver by default.
            initializer, initargs: called in each of them first.
            max_tasks_per_child: a worker is replaced after so many.
            max_attempts: how often a task is begun at most, when workers die in it, or `retry_on` names what it raises.
            max_pending: `submit` waits while so many futures of this object are not done.
            lease: seconds after which a task is given to another worker, too: its own may be stopped. Never by default.
            keep: seconds for which outcomes of tasks with a key are kept; a week by default.
            durability: "process" by default, "sync": what is promised about a power cut, as for any queue.

        Raises:
            Unsafe: the directory is not the user's own, or open to others; nothing in it was read.
            BadFormat: it is something else, or of a newer version.
            Mismatch: it was made with another *lease*, *keep* or *durability*.
        """
        for name, value in (("max_workers", max_workers), ("max_attempts", max_attempts)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise TypeError(f"{name}={value!r}: an int is wanted, not {type(value).__name__}")
        count = (os.cpu_count() or 1) if max_workers is None else max_workers
        if count < 0:
            raise ValueError(f"max_workers={max_workers!r}: 0 or more")
        for name, value in (("max_tasks_per_child", max_tasks_per_child), ("max_pending", max_pending)):
            if value is not None and not isinstance(value, int):
                raise TypeError(f"{name} must be an integer")
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1")
        if max_attempts < 1:
            raise ValueError(f"max_attempts={max_attempts!r}: at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._engine = Engine(
            path,
            count=count,
            max_attempts=max_attempts,
            max_pending=max_pending,
            context=mp_context,
            initializer=initializer,
            initargs=tuple(initargs),
            max_tasks=max_tasks_per_child,
            lease=lease,
            keep=keep,
            durability=durability,
        )
        self._released = weakref.finalize(self, self._engine.release)
        self._released.atexit = False

    @property
    def path(self) -> str:
        """Its directory."""
        return self._engine.directory.path

    @property
    def _broken(self) -> str | bool:
        """As ProcessPoolExecutor has it."""
        return self._engine.broken or False

    # ---- submitting
    def submit(  # type: ignore[override]  # key= is the task's
        self, fn: Callable[..., T], /, *args: Any, key: str | bytes | None = None, **kwargs: Any
    ) -> Future[T]:
        """
        Have `fn(*args, **kwargs)` run in a worker, and return its future.

        With a *key*, it is submitted once: whoever submits it again, in any process, after any reboot, gets the outcome
        of the first one, whatever the arguments are now, until `forget(key)` or until it is no longer kept.

        Raises:
            RuntimeError: it was shut down.
            BrokenProcessPool: its initializer failed.
            Mismatch: the key is another function's.
            TypeError: the key is neither str nor bytes. `task(key=...).submit` passes all keywords on.
            DiskFull: there is no room; nothing was submitted.
        """
        wished = submitting.USUAL if key is None else submitting.wishes(key=key)
        return self._engine.submit(fn, args, kwargs, wished)

    def task(
        self,
        *,
        key: str | bytes | None = None,
        priority: int = 0,
        timeout: float | None = None,
        deadline: float | None = None,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        backoff: float = 1.0,
        max_attempts: int | None = None,
    ) -> Submission:
        """
        Everything else that a task can have: `ex.task(timeout=60).submit(fn, ...)`.

        Args:
            key: as in `submit`.
            priority: 1 before 0 before -1.
            timeout: seconds that one attempt may take; then its worker is killed, and that counts as a death.
            deadline: seconds within which it must have begun; else it fails with TaskExpired.
            retry_on: exceptions after which it is tried again. Without that, an exception is its outcome at once.
            backoff: seconds before the second attempt; doubled for each one after it, up to 5 minutes.
            max_attempts: as the Executor's, for this task.
        """
        wished = submitting.wishes(
            key=key,
            priority=priority,
            timeout=timeout,
            deadline=deadline,
            retry_on=retry_on,
            backoff=backoff,
            max_attempts=max_attempts,
        )
        return Submission(self._engine, wished)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        key: str | None = None,
    ) -> Iterator[T]:
        """
        `fn` of each item, in the items' order.

        Args:
            timeout: seconds from now until when results may come; then TimeoutError.
            chunksize: so many items make one task.
            buffersize: so many tasks are submitted ahead of what was asked for; all by default.
            key: the first part of each task's key: a map that is begun again with it goes on where it was, and runs
                what was cancelled when it was broken off. It goes by the items' numbers, whatever the items are now.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")

        def parts() -> Iterator[mapping.Part]:
            first = 0
            for items in mapping.chunks(iterables, chunksize):
                end = first + len(items)  # in the key: other chunks than last time are other tasks
                yield self._part(fn, items, None if key is None else f"{key}/{first}-{end}")
                first = end

        return iter(mapping.Results(parts(), timeout, buffersize))

    def _part(self, fn: Callable[..., Any], items: list[tuple[Any, ...]], key: str | None) -> mapping.Part:
        def submit() -> Future[list[Any]]:
            return self.submit(mapping.chunk, fn, items, key=key)

        def again() -> Future[list[Any]]:
            assert key is not None  # noqa: S101  # only then
            keyed.forget_cancelled(self._engine.directory, keyed.key_of(key))
            return submit()

        return mapping.Part(submit(), None if key is None else again)

    # ---- by key
    def future(self, key: str | bytes) -> Future[Any]:
        """
        The future of the task with that key, whoever submitted it.

        Raises:
            NotFound: nobody has, or it is no longer kept.
        """
        self._engine.check("find a task")
        stored = keyed.key_of(key, "future")
        found = keyed.find(self._engine.directory, stored)
        if found is None:
            raise errors.NotFound(
                f"no task of {self.path} has key {key!r}: it was never submitted, or forgotten, or ended more than "
                f"{_days(self._engine.directory.keep)} ago"
            )
        return self._engine.submitter.future_of(found, stored)

    def result(self, key: str | bytes, timeout: float | None = None) -> Any:
        """
        What the task with that key returned; waits for it.

        Raises:
            NotFound: nobody has submitted it, or it is no longer kept.
            Whatever the task raised.
        """
        keyed.key_of(key, "result")
        return self.future(key).result(timeout)

    def forget(self, key: str | bytes) -> bool:
        """
        Have that key be as if it had never been submitted; False when it is so already.

        Raises:
            Busy: its task waits, or runs.
            RuntimeError: this was shut down.
        """
        self._engine.check("forget")
        return keyed.forget(self._engine.directory, keyed.key_of(key, "forget"))

    # ---- workers, and the end
    def workers(self) -> list[int]:
        """
        The pids of the workers of this directory that this process can name, whoever started them; also of those that
        are still importing.
        """
        found = set(self._engine.pids())
        for name, seen in run_file.all_seen(self._engine.directory.workers):
            if run_file.is_here(name) and seen.lives():
                found.add(int(name.split(".")[1]))
        return sorted(found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """
        Submit no more. Own workers leave when the last future of this object is done; the tasks of others stay.

        Args:
            wait: for those futures, and for the workers to leave.
            cancel_futures: cancel those that have not begun.
        """
        self._engine.shut(wait=wait, cancel_futures=cancel_futures)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another one of the same directory, which starts no workers."""
        return type(self), (self.path, 0)

    def __repr__(self) -> str:
        """Where it is."""
        return f"<shmq.Executor {self.path!r}, {len(self._engine.pids())} workers of its own>"


class Submission:
    """A task that lacks only its function: made by `Executor.task`."""

    def __init__(self, engine: Engine, wished: submitting.Wishes) -> None:
        """See `Executor.task`."""
        self._engine = engine
        self._wished = wished

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`; all keywords are the function's."""
        return self._engine.submit(fn, args, kwargs, self._wished)

    def __repr__(self) -> str:
        """What it has."""
        return f"<task of {self._engine.directory.path!r}: {self._wished}>"


def _days(seconds: float) -> str:
    return f"{seconds / 86400:g} days" if seconds >= 2 * 86400 else f"{seconds:g} s"
