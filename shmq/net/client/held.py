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


_NEVER = 1 << 63


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

    def __init__(self, cid: int, name: str | None, options: dict[str, Any], clock: packing.Clock) -> None:
        """It is not open yet. *clock*: what is known of the server's."""
        self._clock = clock
        self._late: list[int] = []
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
            self._late.clear()
            self._problem = None
            if self.explicit:
                self._batches.clear()
                self._at = 0
        self._tell()

    def refused(self, problem: Exception) -> None:
        """The server will not have this client now; whoever waits is told, and may wait again."""
        with self._lock:
            self._problem = problem
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
        batch = None if columns is None else packing.unpacked(columns, self._clock)
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
        Return up to *limit* messages that are here: a batch, from where to where in it, and of which incarnation. None
        has expired.

        Raises:
            Exception: what the server has said in their place, said once.
        """
        with self._lock:
            if self.closed:
                return None
            self._pass_late()
            if not self._batches:
                problem, self._problem = self._problem, None
                if problem is not None:
                    raise problem
                return None
            batch, start = self._batches[0], self._at
            stop = min(start + limit, len(batch.indexes))
            if batch.ends:
                now = packing.boottime_ns()
                stop = next((at for at in range(start, stop) if batch.ends.get(at, _NEVER) <= now), stop)
            if stop == len(batch.indexes):
                self._batches.popleft()
                self._at = 0
            else:
                self._at = stop
            return batch, start, stop, self.incarnation

    def _pass_late(self) -> None:
        """Leave behind what has expired since it came, as far as it is the next."""
        while self._batches and (ends := self._batches[0].ends):
            batch, now = self._batches[0], packing.boottime_ns()
            while self._at < len(batch.indexes) and ends.get(self._at, _NEVER) <= now:
                self._late.append(batch.indexes[self._at])
                self._at += 1
            if self._at < len(batch.indexes):
                return
            self._batches.popleft()
            self._at = 0

    def late(self) -> list[int]:
        """Return, once, what had expired before anybody took it, if that is to be said: it is held at the server."""
        if not self._late or not self.explicit:
            return []
        with self._lock:
            late, self._late = self._late, []
        return late

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

    def close(self) -> tuple[int | None, int, list[int] | None]:
        """
        Have those that wait find that it is closed.

        Returns:
            The index of the first message that was handed to nobody, the number of the last batch that has come, and
            all that was handed to nobody, where it is held at the server: from now on none is handed out, and none is
            received.
        """
        with self._lock:
            self.closed = True
            left = self._batches[0].indexes[self._at] if self._batches else None
            unseen = self._late + [index for batch in self._batches for index in batch.indexes]
            if self._batches:
                del unseen[len(self._late) : len(self._late) + self._at]
            received = self.received
        self._tell()
        return left, received, unseen if self.explicit else None
