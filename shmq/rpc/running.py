"""What runs here: the request that a method runs for, and what it may know of it."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, NamedTuple

from shmq.rpc import deadlines

if TYPE_CHECKING:
    from collections.abc import Container

    from shmq.rpc import wire

Key = tuple[bytes, int]
"""Who asks, and the number of the call there."""


class Running(NamedTuple):
    """A request at work: how often it was begun, and what its server was told to give up."""

    request: wire.Request
    attempts: int
    given_up: Container[Key]


_here: contextvars.ContextVar[Running | None] = contextvars.ContextVar("shmq.rpc.running", default=None)
begin = _here.set
"""From now on that runs in this context."""


def deadline_ns() -> int:
    """The deadline of what runs here; NEVER without any."""
    running = _here.get()
    return deadlines.NEVER if running is None else running.request.deadline_ns


class Call:
    """The call that a method runs for; `shmq.rpc.current()` has it."""

    def __init__(self, running: Running) -> None:
        """Of that request."""
        self._running = running

    @property
    def attempts(self) -> int:
        """How often it was begun, this time included."""
        return self._running.attempts

    @property
    def seconds_left(self) -> float | None:
        """How long its caller waits yet; None for as long as it takes."""
        deadline = self._running.request.deadline_ns
        return None if deadline == deadlines.NEVER else deadlines.seconds_to(deadline)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more: its caller gave it up, or its time is over."""
        request = self._running.request
        return deadlines.is_over(request.deadline_ns) or (request.client, request.sequence) in self._running.given_up


def current() -> Call | None:
    """The call that runs here; None where no method runs."""
    running = _here.get()
    return None if running is None else Call(running)
