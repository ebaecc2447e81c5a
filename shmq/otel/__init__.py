"""
OpenTelemetry: spans of what is put, taken, processed and settled, whose context travels in the messages; and figures.

    q = shmq.otel.traced(shmq.open("orders"))
    q.put(order)                                      # a span "put orders"; its context goes along as headers
    for message in q.consumer("billing", group=True, ack="explicit"):
        with message.process():                       # "process orders", perhaps in another process: the same trace
            bill(message.payload)
            message.ack()                             # "ack orders", below it
    shmq.otel.observed(q.queue)                       # how much was put and taken, and who is how far behind

It needs the package opentelemetry-api, pip install 'shmq[otel]', and a program that sets up the SDK; without one all of
it does nothing. What is not asked for costs nothing: queues that are not `traced` know nothing of this.
docs/how-to/metrics.md tells names and attributes, which are those of the semantic conventions for messaging.
"""

from __future__ import annotations

try:
    import opentelemetry.trace as _  # noqa: F401
except ImportError as problem:
    raise ImportError(f"shmq.otel needs opentelemetry ({problem}): pip install 'shmq[otel]'") from None

from shmq.otel.awaited import AwaitedConsumer, AwaitedMessage, AwaitedQueue
from shmq.otel.carrier import context_of, with_context
from shmq.otel.consumer import TracedConsumer, TracedMessage
from shmq.otel.observed import observed
from shmq.otel.queue import TracedQueue, traced

__all__ = [
    "AwaitedConsumer",
    "AwaitedMessage",
    "AwaitedQueue",
    "TracedConsumer",
    "TracedMessage",
    "TracedQueue",
    "context_of",
    "observed",
    "traced",
    "with_context",
]
