"""
A queue's put that somebody takes ahead of a loop, `put = queue.put`, before there is a producer for it.

From the first put on, the built-in of the queue's producer stands in front of the method. Whoever has taken the method
before that has an object of C that finds the producer at its own first put, and is the built-in from then on.
"""

from __future__ import annotations

from shmq import _native
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Method = TypeVar("Method", bound=Callable[..., Any])


class Early(_native.Early):
    """A queue, and what puts into it as long as there is no producer: its `put` is what somebody has taken."""

    def __reduce__(self) -> tuple[Any, ...]:
        """It can be sent to a process that is started with it, as the queue can."""
        return Early, (self.queue, self.method)


class _EarlyPut:
    """In a class, the method; of a queue, what is to be called."""

    def __init__(self, method: Callable[..., int]) -> None:
        self._method = method

    def __get__(self, queue: object, kind: type | None = None) -> Callable[..., int]:
        """Not asked any more once the queue has its producer's in front of this."""
        return self._method if queue is None else Early(queue, self._method).put


def early_put(method: Method) -> Method:
    """That method, for a queue whose `_producer` is made by the first put."""
    return _EarlyPut(method)  # type: ignore[return-value]  # which behaves so
