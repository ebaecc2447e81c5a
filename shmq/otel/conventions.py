"""Names of the semantic conventions for messaging, and spans that are told by them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace import SpanKind, Status, StatusCode

import shmq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Link, Span, Tracer

SYSTEM = "shmq"
BATCH = "messaging.batch.message_count"
SIZE = "messaging.message.body.size"
ID = "messaging.message.id"
ATTEMPTS = "shmq.message.attempts"
_ERROR = "error.type"
_ENDS = (shmq.Empty, shmq.ShutDown, shmq.Closed, StopIteration, StopAsyncIteration, asyncio.CancelledError)
"""What says that nothing was handed out: no operation that has failed, and no span."""


class Operation(NamedTuple):
    """What is done: its name here, its type in the conventions, and which side of it a span is."""

    name: str
    type: str
    kind: SpanKind


PUT = Operation("put", "send", SpanKind.PRODUCER)
GET = Operation("get", "receive", SpanKind.CLIENT)
TAKE = Operation("take", "receive", SpanKind.CLIENT)
PROCESS = Operation("process", "process", SpanKind.CONSUMER)
SETTLE = {name: Operation(name, "settle", SpanKind.CLIENT) for name in ("ack", "nack", "reject")}


class Teller:
    """What makes the spans of one queue, or of one name there."""

    def __init__(self, tracer: Tracer, destination: str, consumer: str | None = None) -> None:
        """Of the queue *destination*."""
        self.tracer = tracer
        self.destination = destination
        self._attributes: dict[str, Any] = {"messaging.system": SYSTEM, "messaging.destination.name": destination}
        if consumer is not None:
            self._attributes["messaging.consumer.group.name"] = consumer

    def of(self, consumer: str) -> Teller:
        """Of that name."""
        return Teller(self.tracer, self.destination, consumer)

    @contextlib.contextmanager
    def span(
        self,
        operation: Operation,
        attributes: dict[str, Any] | None = None,
        *,
        context: Any = None,
        links: list[Link] | None = None,
        start_ns: int | None = None,
    ) -> Iterator[Span]:
        """A span around what is done in the block; what passes through it is its error."""
        with self.tracer.start_as_current_span(
            f"{operation.name} {self.destination}",
            context=context,
            kind=operation.kind,
            attributes={
                **self._attributes,
                "messaging.operation.name": operation.name,
                "messaging.operation.type": operation.type,
                **(attributes or {}),
            },
            links=links,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as problem:
                if isinstance(problem, Exception):
                    span.record_exception(problem)
                span.set_attribute(_ERROR, type(problem).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(problem)))
                raise

    @contextlib.contextmanager
    def failing(self, operation: Operation, start_ns: int) -> Iterator[None]:
        """A span of what fails in the block; that there is nothing to hand out is no failure."""
        try:
            yield
        except _ENDS:
            raise
        except BaseException as problem:
            with self.span(operation, start_ns=start_ns):
                raise problem from problem.__cause__


def size_of(payload: Any) -> dict[str, Any]:
    """The attribute that tells how large a payload is, where that is known before it is encoded."""
    return {SIZE: len(payload)} if isinstance(payload, (bytes, bytearray)) else {}
