"""Waiting for any of several consumers, of one queue or of many: one sleep, no thread for up to 127 queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmq import _native
from shmq.walk import deadline_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Sequence

    from shmq.consumer import Consumer
    from shmq.membership import Membership

_PAUSE = 0.002
"""How often to look where the kernel has no futex_waitv (before Linux 5.16, and in some sandboxes)."""


def wait(consumers: Iterable[Consumer], timeout: float | None = None) -> list[Consumer]:
    """
    Those of *consumers* that have something, as soon as one has; none when the time is up.

    A consumer has something when its next get would answer at once: with a message, or with the error that says why
    there will be none (it was closed; its queue was shut down and is drained). Nothing is handed out.

    Args:
        consumers: of any queues of this process.
        timeout: seconds to wait; None for as long as it takes, 0 not to wait.

    Raises:
        Forked: one of them belongs to the parent process.
        Gone: what came next for one of them was retired; said once.
    """
    every = list(consumers)
    deadline_ns = deadline_of(timeout)
    while True:
        ready = _ready(every)
        if ready or not every or 0 <= deadline_ns <= _native.monotonic_ns():
            return ready
        queues = {id(each._membership): each._membership for each in every}.values()  # noqa: SLF001
        begun = [(queue.member, queue.member.wait_begin()) for queue in queues]
        ready = _ready(every)
        if ready:
            return ready
        _sleep(list(queues), begun, deadline_ns)


def _ready(consumers: Sequence[Consumer]) -> list[Consumer]:
    return [each for each in consumers if each._has_something()]  # noqa: SLF001


def _sleep(queues: Sequence[Membership], begun: Sequence[tuple[_native.Member, int]], deadline_ns: int) -> None:
    """Until something rings. What one call of the kernel cannot watch has a thread of its own meanwhile."""
    for queue in queues:
        queue.watch()  # a dead producer's claim ends when somebody looks at it
    parts = [begun[at : at + _native.ANY_MAX] for at in range(0, len(begun), _native.ANY_MAX)]
    nudge = _native.new_nudge()
    threads = [_helper(part, nudge, deadline_ns) for part in parts[1:]]
    try:
        if _native.wait_any(parts[0], nudge, deadline_ns) == _native.EMPTY:
            time.sleep(_PAUSE)
    finally:
        _native.nudge(nudge)
        for thread in threads:
            thread.join()


def _helper(part: Sequence[tuple[_native.Member, int]], nudge: object, deadline_ns: int) -> threading.Thread:
    import threading  # noqa: PLC0415  # only for very many queues

    def run() -> None:
        _native.wait_any(part, nudge, deadline_ns)
        _native.nudge(nudge)

    thread = threading.Thread(target=run, name="shmq-waiter", daemon=True)
    thread.start()
    return thread
