"""A message's headers as what carries a trace: `traceparent`, `tracestate`, and whatever else the propagator writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import propagate
from opentelemetry.context import Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    import shmq


def with_context(headers: Mapping[str, Any] | None = None, context: Context | None = None) -> dict[str, Any] | None:
    """
    The *headers*, and those by which the current trace goes on where the message is read; for any way to put.

    None when there are none of either.

    Args:
        headers: of the message; where they have one of these names, theirs is replaced.
        context: that trace, instead of the current one.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=context)
    found = {**(headers or {}), **carrier}
    return found or None


def context_of(message: shmq.Message) -> Context:
    """
    The trace that a message carries, as a context to go on in; an empty one where it carries none.

    Whatever stands in its headers: what is no trace context is none.
    """
    found = {name: value for name, value in (message.headers or {}).items() if isinstance(value, str)}
    return propagate.extract(found, Context())
