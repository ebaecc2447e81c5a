"""One name at all levels: it takes from the most urgent one that has something, unless another one's turn is due."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import shmq
from shmq.priorities.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

T = TypeVar("T")
_Found = TypeVar("_Found")

_BUSY = -2
"""Of a level: it had something when it was looked at last."""
_UNKNOWN = -1
"""Of a level: it had nothing, and what it ends with was not read before that."""
_LOOK_AGAIN = 1.0
"""Seconds after which to look whether an ended level has come back, while others have not ended."""


class Consumer(Generic[T]):
    """
    One name's way through all levels. Made by `Priorities.consumer`; a context manager, and an iterator.

    Safe to share between threads. In a forked child a group becomes a member of its own.

    Attributes:
        name: the name.
        levels: the consumer of each level, the most urgent first, as `shmq.Queue.consumer` has made it.
    """

    def __init__(
        self,
        path: str,
        name: str,
        queues: Sequence[shmq.Queue[T]],
        levels: Sequence[shmq.Consumer[T] | shmq.GroupConsumer[T]],
    ) -> None:
        """See `Priorities.consumer`."""
        self.name = name
        self.levels = tuple(levels)
        self._path = path
        self._queues = tuple(queues)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin, in this process: a forked child knows nothing of what its parent has passed by."""
        self._pid = os.getpid()
        self._epoll: select.epoll | None = None
        self._lock = threading.Lock()
        self._turns = Turns(len(self.levels))
        self._ends = [_BUSY] * len(self.levels)

    # ---- getting
    def get(self, timeout: float | None = None) -> shmq.Message[T]:
        """
        The next message: of the most urgent level that has something, or of one whose turn is due.

        What was put at level 0 before this was called is not overtaken, unless a turn is due. What was given back, or
        delayed, is met after `turns.PASSES` further messages at the latest.

        Args:
            timeout: seconds to wait; None for as long as it takes, 0 not to wait.

        Raises:
            Empty: the time is up.
            ShutDown: all levels are shut down or finished, and drained, but for what this consumer holds itself; and if
                it holds something, but for what others hold where it holds nothing.
            Closed, Corrupt, Gone, Forked: as `shmq.Consumer.get`, of the level that was looked at.
        """
        return self._claim(_get, None, timeout)

    def take(self, timeout: float | None = None) -> T:
        """The next message's payload, acknowledged at once; otherwise as `get`."""
        payload: T = self._claim(_take, None, timeout)
        return payload

    def get_many(self, limit: int, timeout: float | None = None) -> list[shmq.Message[T]]:
        """
        Between 1 and *limit* messages of one level; otherwise as `get`.

        A level whose turn is due gives one for each `turns.PASSES` that have passed it by.
        """
        return self._claim(_get_many, _checked_limit(limit), timeout)

    def take_many(self, limit: int, timeout: float | None = None) -> list[T]:
        """Between 1 and *limit* payloads of one level, acknowledged at once; otherwise as `get_many`."""
        return self._claim(_take_many, _checked_limit(limit), timeout)

    def _claim(self, look: Callable[[Any, int | None], _Found], limit: int | None, timeout: float | None) -> _Found:
        if timeout is not None:
            _check_timeout(timeout)
        if self._pid != os.getpid():
            self._begin()
        found = self._look(look, limit)
        if found:
            return found[0]
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            over: dict[int, shmq.ShutDown] = {}
            found = self._look_everywhere(look, limit, over)
            if found:
                return found[0]
            if len(over) == len(self.levels) or (over and self._only_others_hold(over)):
                held = ", but for what is held" if len(over) < len(self.levels) or self.pending else ""
                raise shmq.ShutDown(
                    f"all levels of {self._path} are over, and consumer {self.name!r} has drained them{held}"
                ) from min(over.items())[1]
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise shmq.Empty(
                    f"nothing to get for consumer {self.name!r} of {self._path} in time: none of its "
                    f"{len(self.levels)} levels has something"
                )
            self._wait(left, over)

    def _only_others_hold(self, over: dict[int, shmq.ShutDown]) -> bool:
        """
        Whether this member holds messages, and where it has not ended others hold what is left.

        They may wait for the end themselves, and so for us: those who hold messages do not wait for each other.
        """
        holds = {level for level, each in enumerate(self.levels) if each.pending}
        return bool(holds) and all(
            level in over or (level not in holds and self._is_over(level)) for level in range(len(self.levels))
        )

    def _is_over(self, level: int) -> bool:
        """Whether nothing can be put there any more."""
        stats = self._queues[level].stats()
        return stats.finished or stats.shut_down

    def _wait(self, left: float | None, over: dict[int, shmq.ShutDown]) -> None:
        if over:
            left = _LOOK_AGAIN if left is None else min(left, _LOOK_AGAIN)
        shmq.wait([each for level, each in enumerate(self.levels) if level not in over], timeout=left)

    def _look(self, look: Callable[[Any, int | None], _Found], limit: int | None) -> list[_Found]:
        """What there is, in a list; levels in which nothing can be new are passed over."""
        due = self._turns.due()
        for level in due:
            found = self._look_at(level, look, limit and self._turns.share(level, limit), {})
            if found:
                return found
        for level in range(len(self.levels)):
            if level in due:
                continue
            seen = _BUSY
            if self._ends[level] != _BUSY:
                seen = self._end_of(level)
                if seen == self._ends[level] != _UNKNOWN:
                    continue
            found = self._look_at(level, look, limit, {}, seen)
            if found:
                return found
        return []

    def _look_everywhere(
        self, look: Callable[[Any, int | None], _Found], limit: int | None, over: dict[int, shmq.ShutDown]
    ) -> list[_Found]:
        """The same, and none is passed over; those that have ended are noted in *over*."""
        for level in range(len(self.levels)):
            found = self._look_at(level, look, limit, over, self._end_of(level))
            if found:
                return found
        return []

    def _look_at(
        self,
        level: int,
        look: Callable[[Any, int | None], _Found],
        limit: int | None,
        over: dict[int, shmq.ShutDown],
        seen: int = _UNKNOWN,
    ) -> list[_Found]:
        """What one level has; *seen*: its end, read before this."""
        try:
            found = look(self.levels[level], limit)
        except shmq.Empty:
            pass
        except shmq.ShutDown as end:
            over[level] = end
        else:
            with self._lock:
                self._turns.took(level, 1 if limit is None else len(found))  # type: ignore[arg-type]  # a list then
            self._ends[level] = _BUSY
            return [found]
        with self._lock:
            self._turns.was_empty(level)
        self._ends[level] = _UNKNOWN if seen == _BUSY else seen
        return []

    def _end_of(self, level: int) -> int:
        """Behind which index of that level nothing was committed yet; `_UNKNOWN` once its queue was closed here."""
        try:
            return self._queues[level].committed_index
        except shmq.Closed:
            return _UNKNOWN

    def __iter__(self) -> Self:
        """Return this object."""
        return self

    def __next__(self) -> shmq.Message[T]:
        """The next message; the loop ends when all levels are over and drained, or this is closed."""
        if self._closed:
            raise StopIteration
        try:
            return self.get()
        except shmq.ShutDown:
            raise StopIteration from None
        except shmq.Closed:
            if self._closed:
                raise StopIteration from None
            raise

    def fileno(self) -> int:
        """
        A descriptor to wait for in a selector, readable when a get may find something; closed with this consumer.

        As that of `shmq.Consumer`: take without waiting, until Empty is raised; only then it stops being readable.
        """
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._closed:
                raise shmq.Closed(f"consumer {self.name!r} of {self._path} was closed")
            if self._epoll is None:
                self._epoll = select.epoll()
                for each in self.levels:
                    self._epoll.register(each.fileno(), select.EPOLLIN)
            return self._epoll.fileno()

    # ---- finishing
    def ack(self, *messages: shmq.Message[T]) -> None:
        """
        Acknowledge messages of this consumer, of whatever levels.

        Raises:
            LeaseLost: of one of them, after the others were acknowledged.
            TypeError: something in it is no message that a consumer was handed.
        """
        self.levels[0].ack(*messages)

    def nack(self, message: shmq.Message[T], delay: float = 0.0) -> None:
        """Give a message back, to be handed out again after *delay* seconds; as `message.nack`."""
        message.nack(delay)

    # ---- looking
    @property
    def lag(self) -> int:
        """How many messages this name has not finished, at all levels."""
        return sum(each.lag for each in self.levels)

    @property
    def pending(self) -> int:
        """How many messages this consumer holds and has not acknowledged."""
        return sum(each.pending for each in self.levels)

    @property
    def closed(self) -> bool:
        """Whether this consumer was closed."""
        return self._closed

    # ---- closing
    def close(self) -> None:
        """Close it at all levels. What was handed out and not acknowledged goes to others. Closing twice is fine."""
        self._closed = True
        epoll, self._epoll = self._epoll, None
        if epoll is not None:
            epoll.close()
        with contextlib.ExitStack() as all_of_them:  # level 0 last: who has that of an exclusive name can have all
            for each in self.levels:
                all_of_them.callback(each.close)

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Name, path and levels, for people."""
        return f"<shmq.priorities.Consumer {self.name!r} of {self._path} ({len(self.levels)} levels)>"


def _get(consumer: Any, _: int | None) -> Any:
    return consumer.get(timeout=0)


def _take(consumer: Any, _: int | None) -> Any:
    return consumer.take(timeout=0)


def _get_many(consumer: Any, limit: int | None) -> Any:
    return consumer.get_many(limit, timeout=0)


def _take_many(consumer: Any, limit: int | None) -> Any:
    return consumer.take_many(limit, timeout=0)


def _checked_limit(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"limit={limit!r}: an int is wanted, not {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"limit={limit}: 1 or more")
    return limit


def _check_timeout(timeout: object) -> None:
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool):
        raise TypeError(f"timeout={timeout!r}: a number of seconds, or None for as long as it takes, is wanted")
    if not timeout >= 0:
        raise ValueError(f"timeout={timeout!r}: seconds, 0 or more, or None for as long as it takes")
