"""
A consumer as the link has it: what was sent to it and nobody has taken yet, and what it is opened with, each time.

The link's thread puts in what comes; the program's threads, or tasks, take out. A take that finds nothing leaves a
waiter, which is told of whatever comes next.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from shmq.net import packing

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.packing import Batch


class Held:
    """
    What one consumer has.

    Attributes:
        cid: its number in this session.
        given: the name and the options that it was opened with.
        received: the number of the last batch that has come.
        incarnation: counts how often the server has begun anew: what was handed out before is not held any more.
        name, explicit: as the server says.
        broken: why it could not be opened again.
    """

    def __init__(self, cid: int, name: str | None, options: dict[str, Any]) -> None:
        """It is not open yet."""
        self.cid = cid
        self.given = (name, options)
        self.name = name or ""
        self.explicit = False
        self.received = 0
        self.incarnation = 0
        self.broken: Exception | None = None
        self.closed = False
        self._lock = threading.Lock()
        self._batches: deque[Batch] = deque()
        self._at = 0
        self._problem: Exception | None = None
        self._granted = 0
        self._pushed = 0
        """How many messages the server may have sent ahead since it opened this, and how many it has."""
        self._waiters: set[Callable[[], None]] = set()

    # ---- in the link's thread
    def opened(self, answer: list[Any]) -> None:
        """It is open at the server."""
        self.name, self.explicit = answer[0], answer[1] == "explicit"

    def opened_again(self, answer: list[Any]) -> None:
        """The server has forgotten all that it had before. What acknowledges has not been handed its messages."""
        self.opened(answer)
        with self._lock:
            self.received = 0
            self.incarnation += 1
            self._granted = self._pushed = 0
            if self.explicit:
                self._batches.clear()
                self._at = 0
        self._tell()

    def fails(self, problem: Exception) -> None:
        """It could not be opened again."""
        self.broken = problem
        self._tell()

    def arrived(self, number: int, columns: Any, told: Any, pushed: int) -> None:
        """
        Take a batch in, or an error. What has come before is passed over.

        Args:
            pushed: how much of what was granted is used up.
        """
        if number and number <= self.received:
            return
        batch = None if columns is None else packing.unpacked(columns)
        with self._lock:
            if self.closed:  # what comes now was handed to nobody, and is not received: the server has it back
                return
            if number:
                self.received = number
            if batch is not None:
                self._batches.append(batch)
            if told is not None:
                self._problem = packing.raised(*told)
            self._pushed = pushed
        self._tell()

    def _tell(self) -> None:
        for waiter in list(self._waiters):
            waiter()

    # ---- in whatever thread takes
    def wait_with(self, waiter: Callable[[], None]) -> None:
        """Have that called, in the link's thread, with whatever comes, until `forget`."""
        self._waiters.add(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        """Call it no more."""
        self._waiters.discard(waiter)

    def take(self, limit: int) -> tuple[Batch, int, int, int] | None:
        """
        Return up to *limit* messages that are here: a batch, from where to where in it, and of which incarnation.

        Raises:
            Exception: what the server has said in their place, said once.
        """
        with self._lock:
            if self.closed:
                return None
            if not self._batches:
                problem, self._problem = self._problem, None
                if problem is not None:
                    raise problem
                return None
            batch, start = self._batches[0], self._at
            stop = min(start + limit, len(batch.indexes))
            if stop == len(batch.indexes):
                self._batches.popleft()
                self._at = 0
            else:
                self._at = stop
            return batch, start, stop, self.incarnation

    def wants(self, ahead: int) -> bool:
        """Grant so many more that *ahead* are here or on their way; whether that is to be told."""
        with self._lock:
            here = sum(len(batch.indexes) for batch in self._batches) - self._at
            missing = ahead - here - (self._granted - self._pushed)
            if self._problem is not None or missing < max(ahead // 2, 1):
                return False
            self._granted += missing
            return True

    def wants_nothing(self) -> bool:
        """Take back what was granted and is not here yet, unless others wait for it; whether that is to be told."""
        with self._lock:
            if self._waiters or self._granted <= self._pushed:
                return False
            self._granted = self._pushed  # of what is on its way, the server knows
            return True

    def credit(self) -> tuple[int, int, int]:
        """Return what the server is told: who this is, what has come, and how much it may send ahead in all."""
        return self.cid, self.received, self._granted

    def drop(self) -> None:
        """Forget what nobody has taken."""
        with self._lock:
            self._batches.clear()
            self._at = 0
            self._problem = None

    def close(self) -> tuple[int | None, int]:
        """
        Have those that wait find that it is closed.

        Returns:
            The index of the first message that was handed to nobody, and the number of the last batch that has come:
            from now on none is handed out, and none is received.
        """
        with self._lock:
            self.closed = True
            left = self._batches[0].indexes[self._at] if self._batches else None
            received = self.received
        self._tell()
        return left, received
