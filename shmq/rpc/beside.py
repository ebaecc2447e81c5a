"""What runs beside the threads that claim requests: coroutines in a loop, generators in threads; so many at most."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.rpc import awaiting
from shmq.rpc.awaiting import Loop
from shmq.rpc.streaming import Streaming

if TYPE_CHECKING:
    from shmq.rpc.jobs import Job
    from shmq.rpc.state import State

BESIDE_MAX = 1000
"""So many run beside each other; then a server takes no more requests."""
_LOOK = 0.2


class Beside:
    """One server's."""

    def __init__(self, state: State) -> None:
        """Nothing runs yet."""
        self._state = state
        self._streaming = Streaming(state)
        self._loop = Loop(state.answers, state.cancels)
        self._slots = threading.Semaphore(BESIDE_MAX)

    def begin(self, job: Job) -> None:
        """Have it run, once there is a slot."""
        while not self._slots.acquire(timeout=_LOOK):
            if self._state.stopping:
                with contextlib.suppress(shmq.ShmqError):
                    job.message.nack()
                return
        done = self._slots.release
        if not job.method.awaits:
            self._streaming.begin(job, done)
        elif job.method.streams:
            self._loop.begin(job, self._streaming.stream, done)
        else:
            self._loop.begin(job, awaiting.call, done)

    def end(self, *, interrupt: bool) -> None:
        """Return when nothing runs any more, streams being told to stop; *interrupt* cancels coroutines."""
        self._streaming.wait()
        self._loop.end(interrupt=interrupt)
