"""
Two names by which a bridge keeps its place in the queue.

The one that trails stands where the target stood some minutes ago: what the target has confirmed and then lost to a
power cut of its own is still here, and is sent again. The other one stands behind what was confirmed last, and holds
nothing; a target that cannot say where it is goes by that. Who holds the former is the bridge, and there is one.
"""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import shmq

_MARKS = 256
"""A trail has about so many steps."""


class Trail:
    """Where the target stands, and stood."""

    def __init__(self, queue: shmq.Queue[Any], name: str, seconds: float) -> None:
        """
        Hold the names.

        Raises:
            Busy: another bridge carries this queue to that target.
        """
        self._seconds = seconds
        self._marks: collections.deque[tuple[float, int]] = collections.deque()
        self._latest = 0
        self._behind = queue.consumer(name)
        try:
            self._confirmed = queue.consumer(f"{name}.sent", hold="nothing")
        except BaseException:
            self._behind.close()
            raise

    @property
    def begin(self) -> int:
        """Where to begin for a target that has nothing of this queue."""
        return self._behind.head

    @property
    def confirmed(self) -> int:
        """Where to go on for a target that does not know where it is."""
        return self._confirmed.head

    def reached(self, index: int) -> None:
        """The target has everything before that index."""
        if index > self._confirmed.head:
            self._confirmed.seek(index)
        self._latest = index
        self.move()

    def move(self) -> None:
        """Have the name that trails go on, if it is time."""
        now = time.monotonic()
        last = self._marks[-1] if self._marks else (-1e9, 0)
        if self._latest > last[1] and now - last[0] >= self._seconds / _MARKS:
            self._marks.append((now, self._latest))
        to = 0
        while self._marks and now - self._marks[0][0] >= self._seconds:
            to = self._marks.popleft()[1]
        if to > self._behind.head:
            self._behind.seek(to)

    def close(self) -> None:
        """Let go of the names."""
        self._behind.close()
        self._confirmed.close()
