"""What the threads of one server have in common."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import shmq
from shmq.rpc.answers import Answers
from shmq.rpc.cancels import Cancels
from shmq.rpc.replies import Replies

if TYPE_CHECKING:
    from shmq.rpc.border import Packing
    from shmq.rpc.methods import Methods

_TIDY = 1.0
_SWEEP = 30.0
"""Seconds after which what killed clients have left in memory, and no server had open, is looked for again."""


class State:
    """
    One server's.

    Attributes:
        methods: what it serves.
        packing: how what they return is packed.
        max_attempts: how often a request is begun.
        replies, answers, cancels: the ways to its clients, and from them.
        stopping: whether its threads are to stop.
        late: how many requests came after their time.
    """

    def __init__(self, methods: Methods, packing: Packing, max_attempts: int) -> None:
        """Nobody serves yet."""
        self.methods = methods
        self.packing = packing
        self.max_attempts = max_attempts
        self.replies = Replies()
        self.answers = Answers(packing, self.replies)
        self.cancels = Cancels()
        self.stopping = False
        self.late = 0
        self._lock = threading.Lock()
        self._tidy_at = self._sweep_at = 0.0

    def tidy(self) -> None:
        """See to the clients, once a second, by one of the threads."""
        if self.replies.owing:
            self.replies.pay()
        if time.monotonic() >= self._tidy_at and self._lock.acquire(blocking=False):
            try:
                self._tidy_at = time.monotonic() + _TIDY
                self.replies.tidy()
                if self._tidy_at >= self._sweep_at:
                    self._sweep_at = self._tidy_at + _SWEEP
                    with contextlib.suppress(shmq.ShmqError, OSError):
                        shmq.gc()
            finally:
                self._lock.release()
