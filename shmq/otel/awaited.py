"""The same for asyncio: each verb that is awaited is in a span, from the call to its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from shmq.otel.carrier import with_context
from shmq.otel.consumer import Settled, plain_of, told_of
from shmq.otel.conventions import BATCH, GET, ID, PUT, SETTLE, TAKE, Teller, size_of
from shmq.otel.passing import Passing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    import shmq


class AwaitedMessage(Settled):
    """
    An `aio.Message` with spans. Handed out by an `AwaitedConsumer`; what is not told of here is the message's own.

    Attributes:
        message: the message itself.
    """

    async def ack(self) -> None:
        """As `shmq.aio.Message.ack`, in a span."""
        with self._settling("ack"):
            await self.message.ack()

    async def nack(self, delay: float = 0.0) -> None:
        """As `shmq.aio.Message.nack`, in a span."""
        with self._settling("nack"):
            await self.message.nack(delay)

    async def reject(self, reason: object = "") -> None:
        """As `shmq.aio.Message.reject`, in a span."""
        with self._settling("reject"):
            await self.message.reject(reason)


class AwaitedConsumer:
    """
    An `aio.Consumer` with spans. Made by `AwaitedQueue.consumer`; what is not told of here is the consumer's own.

    Attributes:
        consumer: the consumer itself.
    """

    def __init__(self, consumer: Any, teller: Teller) -> None:
        """See `AwaitedQueue.consumer`."""
        self.consumer = consumer
        self._teller = teller

    async def get(self, timeout: float | None = None) -> AwaitedMessage:  # noqa: ASYNC109  # as shmq.aio has it
        """As `shmq.aio.Consumer.get`, in a span linked to the one that put the message. Cancelled, it has none."""
        start_ns = time.time_ns()
        with self._teller.failing(GET, start_ns):
            message = await self.consumer.get(timeout)
        return self._received(message, start_ns)

    async def get_many(self, limit: int, timeout: float | None = None) -> list[AwaitedMessage]:  # noqa: ASYNC109
        """As `shmq.aio.Consumer.get_many`, in one span, linked to all that put what it hands out."""
        start_ns = time.time_ns()
        with self._teller.failing(GET, start_ns):
            found = await self.consumer.get_many(limit, timeout)
        links = [link for message in found for link in told_of(message).links]
        with self._teller.span(GET, {BATCH: len(found)}, links=links, start_ns=start_ns):
            return [AwaitedMessage(message, self._teller) for message in found]

    async def take(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """As `shmq.aio.Consumer.take`, in a span. A payload tells of no trace: where one goes on, use `get`."""
        start_ns = time.time_ns()
        with self._teller.failing(TAKE, start_ns):
            found = await self.consumer.take(timeout)
        with self._teller.span(TAKE, start_ns=start_ns):
            return found

    async def ack(self, *messages: AwaitedMessage | shmq.aio.Message) -> None:
        """As `shmq.aio.Consumer.ack`, in one span."""
        with self._teller.span(SETTLE["ack"], {BATCH: len(messages)}):
            await self.consumer.ack(*map(plain_of, messages))

    def _received(self, message: Any, start_ns: int) -> AwaitedMessage:
        told = told_of(message)
        with self._teller.span(GET, told.attributes, links=told.links, start_ns=start_ns):
            return AwaitedMessage(message, self._teller)

    def __aiter__(self) -> Self:
        """Return this consumer, as a loop takes from it."""
        return self

    async def __anext__(self) -> AwaitedMessage:
        """The next message of a loop, as `get`."""
        start_ns = time.time_ns()
        with self._teller.failing(GET, start_ns):
            message = await anext(self.consumer)
        return self._received(message, start_ns)

    def __getattr__(self, name: str) -> Any:
        """What is the consumer's own."""
        return getattr(self.consumer, name)

    async def __aenter__(self) -> Self:
        """Return this consumer."""
        await self.consumer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the consumer."""
        await self.consumer.__aexit__(kind, problem, traceback)

    def __repr__(self) -> str:
        """As the consumer, for people."""
        return f"<shmq.otel.AwaitedConsumer of {self.consumer!r}>"


class AwaitedQueue(Passing):
    """
    An `aio.Queue` with spans. Made by `traced`; whatever is not told of here is the queue's own.

    Attributes:
        queue: the queue itself.
    """

    queue: shmq.aio.Queue

    def __init__(self, queue: shmq.aio.Queue, teller: Teller) -> None:
        """See `traced`."""
        self.queue = queue
        self._teller = teller

    async def put(self, payload: Any, *, headers: Mapping[str, Any] | None = None, **named: Any) -> int:
        """As `shmq.aio.Queue.put`, in a span whose context goes along with the message."""
        with self._teller.span(PUT, size_of(payload)) as span:
            index = await self.queue.put(payload, headers=with_context(headers), **named)
            span.set_attribute(ID, str(index))
            return index

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        **named: Any,
    ) -> range:
        """As `shmq.aio.Queue.put_many`, in one span whose context goes along with each message."""
        items = list(payloads)
        with self._teller.span(PUT, {BATCH: len(items)}):
            carried = [with_context(each) for each in headers or [None] * len(items)]
            return await self.queue.put_many(items, headers=carried if any(carried) else headers, **named)

    async def consumer(self, name: str | None = None, **named: Any) -> AwaitedConsumer:
        """As `shmq.aio.Queue.consumer`, in spans."""
        found = await self.queue.consumer(name, **named)
        return AwaitedConsumer(found, self._teller.of(found.name))

    async def __aenter__(self) -> Self:
        """Return this queue."""
        await self.queue.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the queue."""
        await self.queue.__aexit__(kind, problem, traceback)
