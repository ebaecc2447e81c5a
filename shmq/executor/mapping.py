"""`map`: the function over all items in order, some at a time in one task, and no more waiting than asked for."""

from __future__ import annotations

import collections
import itertools
import time
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shmq.executor.future import Future


def chunk(function: Callable[..., Any], items: list[tuple[Any, ...]]) -> list[Any]:
    """One task of a map, in its worker."""
    return [function(*each) for each in items]


def chunks(iterables: tuple[Iterable[Any], ...], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """The items, so many at a time."""
    items = zip(*iterables, strict=False)
    while part := list(itertools.islice(items, size)):
        yield part


class Part(NamedTuple):
    """
    Some of the items.

    Attributes:
        future: of their task.
        again: with a key, submits them again if an earlier map, which was broken off, had their task cancelled.
    """

    future: Future[list[Any]]
    again: Callable[[], Future[list[Any]]] | None


class Results:
    """What a map yields: an iterator, which cancels what is left when nobody wants it any more."""

    def __init__(
        self,
        submitted: Iterator[Part],
        timeout: float | None,
        ahead: int | None,
    ) -> None:
        """
        Submit all, or so many *ahead* of what was asked for.

        Args:
            submitted: each step submits one more.
            timeout: seconds from now until when results may come.
            ahead: how many wait at a time; None for all.
        """
        self._end = None if timeout is None else time.monotonic() + timeout
        self._submitted = submitted
        self._parts: collections.deque[Part] = collections.deque(itertools.islice(submitted, ahead))

    def __iter__(self) -> Iterator[Any]:
        """One result after the other."""
        return self._all()

    def _all(self) -> Iterator[Any]:
        try:
            while self._parts:
                results = self._next()
                results.reverse()
                while results:
                    yield results.pop()
        finally:
            for each in self._parts:
                each.future.cancel()

    def _next(self) -> list[Any]:
        part = self._parts.popleft()
        try:
            results = self._result(part.future)
        except CancelledError as cancelled:
            if part.again is None:
                raise
            try:
                future = part.again()
            except RuntimeError:  # it was shut down, which has cancelled it
                raise cancelled from None
            results = self._result(future)
        self._parts.extend(itertools.islice(self._submitted, 1))
        return results

    def _result(self, future: Future[list[Any]]) -> list[Any]:
        try:
            return future.result(None if self._end is None else self._end - time.monotonic())
        except FutureTimeout:
            if not future.done():
                future.cancel()
            raise
