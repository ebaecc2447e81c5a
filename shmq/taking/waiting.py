"""Waiting for any of several consumers, of one queue or of many: one sleep, no thread for up to 127 queues."""

from __future__ import annotations

import time

from shmq import _native, given
from shmq.deadlines import deadline_of, sooner
from shmq.hints import TYPE_CHECKING
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    from shmq.membership import Membership
    from shmq.taking.consumer import Consumer
    from shmq.taking.group import GroupConsumer

    _Any = TypeVar("_Any", "Consumer", "GroupConsumer", "Consumer | GroupConsumer")

_PAUSE = 0.002
"""How often to look where the kernel has no futex_waitv (before Linux 5.16, and in some sandboxes)."""


def wait(consumers: Iterable[_Any], timeout: float | None = None) -> list[_Any]:
    """
    Those of *consumers* that have something, as soon as one has; none when the time is up.

    A consumer has something when its next get would answer at once: with a message, or with the error that says why
    there will be none (it was closed; its queue is over and drained). Nothing is handed out; so what a group has,
    another member may take first.

    Args:
        consumers: of any queues of this process, groups among them.
        timeout: seconds to wait; None for as long as it takes, 0 not to wait.

    Raises:
        TypeError: something in it is no consumer.
        Forked: one of them belongs to the parent process.
        Gone: what came next for one of them was retired; said once.
    """
    if hasattr(consumers, "_has_something"):  # to iterate over it would take its messages
        raise TypeError(f"wait({consumers!r}): a list of consumers is wanted; for one write wait([consumer])")
    if not hasattr(consumers, "__iter__"):
        raise given.wrong_type("consumers", consumers, "a list of consumers")
    every = list(consumers)
    for each in every:
        if not hasattr(each, "_has_something"):
            raise TypeError(f"wait(): {each!r} is not a consumer; get one with queue.consumer(name)")
    try:
        return _wait(every, deadline_of(timeout))
    finally:
        for each in every:
            each._waited()  # noqa: SLF001


def _wait(every: list[_Any], deadline_ns: int) -> list[_Any]:
    while True:
        ready = _ready(every)
        if ready or not every or 0 <= deadline_ns <= _native.monotonic_ns():
            return ready
        queues = {id(each._membership): each._membership for each in every}.values()  # noqa: SLF001
        begun = [(queue.member, queue.member.wait_begin()) for queue in queues]
        ready = _ready(every)
        if ready:
            return ready
        until = deadline_ns
        for each in every:
            until = sooner(until, each._due_ns())  # noqa: SLF001  # what is delayed rings no bell
        _sleep(list(queues), begun, until)


def _ready(consumers: Sequence[_Any]) -> list[_Any]:
    return [each for each in consumers if each._has_something()]  # noqa: SLF001


def _sleep(queues: Sequence[Membership], begun: Sequence[tuple[_native.Member, int]], deadline_ns: int) -> None:
    """Until something rings. What one call of the kernel cannot watch has a thread of its own meanwhile."""
    for queue in queues:
        queue.watch()  # a dead producer's claim ends when somebody looks at it
    parts = [begun[at : at + _native.ANY_MAX] for at in range(0, len(begun), _native.ANY_MAX)]
    nudge = _native.new_nudge()
    helpers = [_helper(part, nudge, deadline_ns) for part in parts[1:]]
    try:
        for helper in helpers:
            helper.start()
        if _native.wait_any(parts[0], nudge, deadline_ns) == _native.EMPTY:
            time.sleep(_PAUSE)
    finally:
        for helper in helpers:
            helper.end(lambda: _native.nudge(nudge))


def _helper(part: Sequence[tuple[_native.Member, int]], nudge: object, deadline_ns: int) -> Worker:
    def run() -> None:
        _native.wait_any(part, nudge, deadline_ns)
        _native.nudge(nudge)

    return Worker(run, "shmq-waiter")
