"""
The members of one group: who they are, and how they tell each other that something has changed.

They meet at a small queue, `members/<name>`. Each has a consumer of its own there, which goes with its process however
that ends, so the names of that queue are those who live; and what one of them puts there wakes the others.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.shards import place

if TYPE_CHECKING:
    from shmq.shards.map import Map

_LOOK = 1.0
"""Seconds between two counts of those who live, where nothing was told: who is killed tells nothing."""
_QUICK = 0.05
"""Seconds between two looks for what was told."""


class Seats(NamedTuple):
    """How many members there are, and how many have come before this one."""

    rank: int
    members: int

    def share(self, shards: int) -> int:
        """How many of so many shards are this member's: all members together have each shard once."""
        return shards // self.members + (self.rank < shards % self.members)


class Seat:
    """One member's place among the others. A forked child takes one of its own."""

    def __init__(self, root: Map, name: str, *, unsafe_filesystem: bool) -> None:
        """Sit down, and say so."""
        folder = os.path.join(root.path, place.MEMBERS)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        # Whoever is stopped takes nothing, and must not keep others from telling.
        options: dict[str, Any] = {"chunk_bytes": 1 << 16, "max_messages": 1024, "full": "drop_oldest"}
        self._queue = shmq.open(os.path.join(folder, name), unsafe_filesystem=unsafe_filesystem, **options)
        self._name = f"{time.monotonic_ns():016x}-{secrets.token_hex(4)}"  # in the order in which they came
        try:
            self.consumer = self._queue.consumer(self._name, ephemeral=True, start="latest")
        except BaseException:
            self._queue.close()
            raise
        self._look_at = 0.0
        self._count_at = 0.0
        self.tell(b"joined")

    def is_due(self) -> bool:
        """Whether it is time to look what was told; for those who never wait."""
        return time.monotonic() >= self._look_at

    def news(self) -> bool:
        """Whether something has changed, or may have."""
        now = time.monotonic()
        self._look_at = now + _QUICK
        told = False
        with contextlib.suppress(shmq.Empty):
            while self.consumer.take_many(1000, timeout=0):
                told = True
        if now < self._count_at and not told:
            return False
        self._count_at = now + _LOOK
        return True

    def count(self) -> Seats:
        """Who is there. The dead are not."""
        names = sorted(self._queue.consumers())
        if self._name not in names:  # somebody has dropped it
            return Seats(len(names), len(names) + 1)
        return Seats(names.index(self._name), len(names))

    def tell(self, what: bytes) -> None:
        """Have the others look."""
        self._queue.put(what)

    @property
    def pause(self) -> float:
        """Seconds after which to look again at the latest."""
        return _LOOK

    def leave(self) -> None:
        """Get up, and say so."""
        self.consumer.close()
        with contextlib.suppress(shmq.ShmqError, OSError):  # they find out
            self.tell(b"left")
        self._queue.close()
