"""A queue that tells of what is put, and hands out consumers that tell of what is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload

from opentelemetry import trace

import shmq
from shmq.otel.awaited import AwaitedQueue
from shmq.otel.carrier import with_context
from shmq.otel.consumer import TracedConsumer
from shmq.otel.conventions import BATCH, ID, PUT, Teller, size_of
from shmq.otel.passing import Passing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from opentelemetry.trace import TracerProvider


@overload
def traced(queue: shmq.Queue, *, tracer_provider: TracerProvider | None = ...) -> TracedQueue: ...
@overload
def traced(queue: shmq.aio.Queue, *, tracer_provider: TracerProvider | None = ...) -> AwaitedQueue: ...
def traced(
    queue: shmq.Queue | shmq.aio.Queue, *, tracer_provider: TracerProvider | None = None
) -> TracedQueue | AwaitedQueue:
    """
    That queue, as one that tells of what is put into it and taken from it through what this returns.

    Args:
        queue: an open queue, or one of `shmq.aio`; it goes on to be of use by itself, untraced.
        tracer_provider: whose spans they are, instead of the program's.
    """
    if not isinstance(queue, (shmq.Queue, shmq.aio.Queue)):
        raise TypeError(f"traced() takes an open shmq.Queue or shmq.aio.Queue, not {type(queue).__name__}")
    teller = Teller(trace.get_tracer("shmq", shmq.__version__, tracer_provider), queue.path)
    return TracedQueue(queue, teller) if isinstance(queue, shmq.Queue) else AwaitedQueue(queue, teller)


class TracedQueue(Passing):
    """
    A queue with spans. Made by `traced`; whatever is not told of here is the queue's own.

    Attributes:
        queue: the queue itself.
    """

    queue: shmq.Queue

    def __init__(self, queue: shmq.Queue, teller: Teller) -> None:
        """See `traced`."""
        self.queue = queue
        self._teller = teller

    def put(self, payload: Any, *, headers: Mapping[str, Any] | None = None, **named: Any) -> int:
        """As `shmq.Queue.put`, in a span whose context goes along with the message."""
        with self._teller.span(PUT, size_of(payload)) as span:
            index = self.queue.put(payload, headers=with_context(headers), **named)
            span.set_attribute(ID, str(index))
            return index

    def put_many(
        self,
        payloads: Iterable[Any],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **named: Any,
    ) -> range:
        """As `shmq.Queue.put_many`, in one span whose context goes along with each message."""
        items = list(payloads)
        with self._teller.span(PUT, {BATCH: len(items)}):
            if headers is None:
                carried: Any = [with_context()] * len(items)
            else:
                carried = [with_context(each) for each in headers]
            return self.queue.put_many(items, headers=carried if any(carried) else headers, **named)

    def consumer(self, name: str | None = None, **named: Any) -> TracedConsumer:
        """As `shmq.Queue.consumer`, in spans."""
        found = self.queue.consumer(name, **named)
        return TracedConsumer(found, self._teller.of(found.name))

    def __enter__(self) -> Self:
        """Return this queue."""
        self.queue.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the queue."""
        self.queue.__exit__(kind, problem, traceback)
