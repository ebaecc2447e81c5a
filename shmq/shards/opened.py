"""The queues of one root, open in this process: each is opened when it is first needed, and the map is read again."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.shards import map as maps

if TYPE_CHECKING:
    from shmq.shards.map import Map, Shard


class Opening(NamedTuple):
    """How each queue is opened: plain data, for other processes."""

    codec: Any
    trusted: bool
    unsafe_filesystem: bool

    def open(self, path: str, options: shmq.Options | None = None) -> shmq.Queue[Any]:
        """The queue at *path*; with *options*, held against them."""
        codec = {} if self.codec is None or options is not None else {"codec": self.codec}
        return shmq.open(
            path,
            create=False,
            options=options,
            trusted=self.trusted,
            unsafe_filesystem=self.unsafe_filesystem,
            **codec,
        )


class Opened:
    """
    The queues and the map. Safe to share between threads, and with a forked child.

    Attributes:
        path: the root.
        opening: how its queues are opened.
        map: what the map said when it was last looked at.
        closed: whether it was closed.
    """

    def __init__(self, path: str, opening: Opening) -> None:
        """No queue is opened yet."""
        self.path = path
        self.opening = opening
        self.closed = False
        self._queues: dict[int, shmq.Queue[Any]] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.map = self._read()

    def _read(self) -> Map:
        found = maps.read(self.path)
        if found is None:
            raise shmq.NotFound(f"cannot use {self.path}: it was deleted")
        return found

    def look(self) -> Map:
        """What the map says now."""
        found = self._read()
        if found.generation != self.map.generation:
            self.map = found
        return self.map

    def queue(self, shard: Shard) -> shmq.Queue[Any]:
        """The queue of one shard of the map; closed with this object."""
        if self._pid != os.getpid():  # whoever had the lock is not here
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self.closed:
                raise shmq.Closed(f"{self.path} was closed; open it again")
            found = self._queues.get(shard.number)
            if found is None:
                found = self._queues[shard.number] = self.opening.open(shard.path)
            return found

    def lag(self, name: str) -> int:
        """How many messages that name has not finished, in all shards."""
        stats = [self.queue(shard).consumers().get(name) for shard in self.look().live()]
        return sum(each.lag for each in stats if each is not None)

    def close(self) -> None:
        """Close the queues."""
        self.closed = True
        with contextlib.ExitStack() as all_of_them:
            for queue in self._queues.values():
                all_of_them.callback(queue.close)
