"""A consumer that tells of what it takes, and messages that tell of what becomes of them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opentelemetry import trace
from opentelemetry.trace import Link

from shmq.otel.carrier import context_of
from shmq.otel.conventions import ATTEMPTS, BATCH, GET, ID, PROCESS, SETTLE, SIZE, TAKE, Teller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from opentelemetry.trace import Span

    import shmq


class Told(NamedTuple):
    """What a span says of a message that was handed out."""

    attributes: dict[str, Any]
    links: list[Link]


class Settled:
    """A message with spans, whose own verbs are still to be told of; `TracedMessage` and asyncio's have them."""

    def __init__(self, message: Any, teller: Teller) -> None:
        """See `TracedConsumer.get`."""
        self.message = message
        self._teller = teller

    @contextlib.contextmanager
    def process(self, name: str | None = None) -> Iterator[Span]:
        """
        A span around the work with this message, linked to the one that put it.

        It belongs to that trace, too, unless another span is current here already.

        Args:
            name: what is done, instead of "process".
        """
        context, links = _origin(self.message)
        inside = trace.get_current_span().get_span_context().is_valid
        operation = PROCESS if name is None else PROCESS._replace(name=name)
        parent = None if inside or not links else context
        with self._teller.span(operation, told_of(self.message).attributes, context=parent, links=links) as span:
            yield span

    def _settling(self, verb: str) -> AbstractContextManager[Span]:
        links = _origin(self.message)[1]
        return self._teller.span(SETTLE[verb], {ID: str(self.message.index)}, links=links)

    def __getattr__(self, name: str) -> Any:
        """What is the message's own."""
        return getattr(self.message, name)

    def __repr__(self) -> str:
        """As the message, for people."""
        return f"<shmq.otel.{type(self).__name__} of {self.message!r}>"


class TracedMessage(Settled):
    """
    A message with spans. Handed out by a `TracedConsumer`; whatever is not told of here is the message's own.

    Attributes:
        message: the message itself, for whatever takes none but such a one.
    """

    def ack(self) -> None:
        """As `shmq.Message.ack`, in a span."""
        with self._settling("ack"):
            self.message.ack()

    def nack(self, delay: float = 0.0) -> None:
        """As `shmq.Message.nack`, in a span."""
        with self._settling("nack"):
            self.message.nack(delay)

    def reject(self, reason: object = "") -> None:
        """As `shmq.Message.reject`, in a span."""
        with self._settling("reject"):
            self.message.reject(reason)


class TracedConsumer:
    """
    A consumer with spans. Made by `TracedQueue.consumer`; whatever is not told of here is the consumer's own.

    Attributes:
        consumer: the consumer itself.
    """

    def __init__(self, consumer: Any, teller: Teller) -> None:
        """See `TracedQueue.consumer`."""
        self.consumer = consumer
        self._teller = teller

    def get(self, timeout: float | None = None) -> TracedMessage:
        """As the consumer's `get`; a span of it, linked to the one that put the message, from the call to its end."""
        return self._received(lambda: self.consumer.get(timeout))

    def get_many(self, limit: int, timeout: float | None = None) -> list[TracedMessage]:
        """As the consumer's `get_many`, in one span, linked to all that put what it hands out."""
        start_ns = time.time_ns()
        with self._teller.failing(GET, start_ns):
            found = self.consumer.get_many(limit, timeout)
        links = [link for message in found for link in _origin(message)[1]]
        with self._teller.span(GET, {BATCH: len(found)}, links=links, start_ns=start_ns):
            pass
        return [TracedMessage(message, self._teller) for message in found]

    def take(self, timeout: float | None = None) -> Any:
        """As the consumer's `take`, in a span. A payload tells of no trace: where one goes on, use `get`."""
        start_ns = time.time_ns()
        with self._teller.failing(TAKE, start_ns):
            found = self.consumer.take(timeout)
        with self._teller.span(TAKE, start_ns=start_ns):
            return found

    def ack(self, *messages: TracedMessage | shmq.Message) -> None:
        """As the consumer's `ack`, in one span."""
        with self._teller.span(SETTLE["ack"], {BATCH: len(messages)}):
            self.consumer.ack(*map(plain_of, messages))

    def _received(self, call: Callable[[], shmq.Message]) -> TracedMessage:
        start_ns = time.time_ns()
        with self._teller.failing(GET, start_ns):
            message = call()
        told = told_of(message)
        with self._teller.span(GET, told.attributes, links=told.links, start_ns=start_ns):
            return TracedMessage(message, self._teller)

    def __iter__(self) -> TracedConsumer:
        """Return this consumer, as a loop takes from it."""
        return self

    def __next__(self) -> TracedMessage:
        """The next message of a loop, as `get`."""
        return self._received(lambda: next(self.consumer))

    def __getattr__(self, name: str) -> Any:
        """What is the consumer's own."""
        return getattr(self.consumer, name)

    def __enter__(self) -> Self:
        """Return this consumer."""
        self.consumer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the consumer."""
        self.consumer.__exit__(kind, problem, traceback)

    def __repr__(self) -> str:
        """As the consumer, for people."""
        return f"<shmq.otel.TracedConsumer of {self.consumer!r}>"


def told_of(message: Any) -> Told:
    """What stands in the span of a message that was handed out."""
    attributes = {ID: str(message.index), SIZE: message.view.nbytes, ATTEMPTS: message.attempts}
    return Told(attributes, _origin(message)[1])


def plain_of(message: Any) -> Any:
    """The message without spans."""
    return message.message if isinstance(message, Settled) else message


def _origin(message: Any) -> tuple[Any, list[Link]]:
    """The context that it carries, and a link to it, if it carries one."""
    context = context_of(message)
    span = trace.get_current_span(context).get_span_context()
    return context, [Link(span)] if span.is_valid else []
