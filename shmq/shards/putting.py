"""Putting: which shard a message goes to, and where it goes on once a growth has ended that one."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import shmq
from shmq.shards import growth
from shmq.shards.key import shard_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.shards.map import Map
    from shmq.shards.opened import Opened

_AGAIN = 0.005
"""Seconds between two looks at whether a growth is done, for whoever waits to put."""


class Place(NamedTuple):
    """Where a message is: the number of its shard, and its index there."""

    shard: int
    index: int  # type: ignore[assignment]  # hides what nobody asks of a pair


class Route:
    """Where puts go: the shards that are open, by one map. Their queues are opened when they are needed."""

    def __init__(self, found: Map) -> None:
        self.map = found
        self.bit = found.open_bit
        self.shards = found.of_bit(self.bit)
        self.numbers = [shard.number for shard in self.shards]
        self.queues: list[shmq.Queue[Any] | None] = [None] * len(self.shards)


class Putting:
    """What puts: of one handle. Safe to share between threads."""

    def __init__(self, opened: Opened) -> None:
        """Nothing is opened yet."""
        self.opened = opened
        self.route = Route(opened.map)
        self._turn = itertools.count(os.getpid())

    def look(self) -> Map:
        """Which shards there are now."""
        found = self.opened.look()
        if found.open_bit != self.route.bit:
            self.route = Route(found)
        return found

    def put(self, payload: Any, key: bytes | None, timeout: float | None, named: dict[str, Any]) -> Place:
        """As `Shards.put`."""
        if "dedup" in named:
            _refuse_dedup()
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"key={key!r}: bytes are wanted, not {type(key).__name__}; for text write key.encode()")
        route, until = self.route, None
        while True:
            if timeout is not None:  # a put that is told nothing is a built-in
                named["timeout"] = timeout
            index = shard_of(key, route.bit) if key else next(self._turn) % len(route.queues)
            try:
                queue = route.queues[index] or self._to_put(route, index)
                return Place(route.numbers[index], queue.put(payload, key=key, **named))
            except shmq.ShutDown as end:
                until, timeout = _deadline(until, timeout)
                route = self._rerouted(route, until, end)

    def put_many(
        self, batch: list[Any], given: dict[str, Sequence[Any]], ttl: float | None, timeout: float | None
    ) -> list[Place]:
        """As `Shards.put_many`."""
        for name, column in given.items():
            if len(column) != len(batch):
                raise ValueError(f"{name} has {len(column)} entries for {len(batch)} payloads; nothing was put")
        places: list[Place | None] = [None] * len(batch)
        try:
            self._put_all(batch, given, ttl, timeout, places)
        except Exception as problem:
            problem.places = places  # type: ignore[attr-defined]  # for whoever puts the rest
            raise
        return [each for each in places if each is not None]

    def _put_all(
        self,
        batch: list[Any],
        given: dict[str, Sequence[Any]],
        ttl: float | None,
        timeout: float | None,
        places: list[Place | None],
    ) -> None:
        until, left = _deadline(None, timeout)
        route, turn = self.route, next(self._turn)
        rest = list(range(len(batch)))
        while rest:
            parts = _parts(rest, given.get("keys"), route.bit, turn)
            try:
                for index, rows in parts.items():
                    queue = route.queues[index] or self._to_put(route, index)
                    columns: dict[str, Any] = {name: [column[row] for row in rows] for name, column in given.items()}
                    _, left = _deadline(until, timeout)
                    put = queue.put_many([batch[row] for row in rows], ttl=ttl, timeout=left, **columns)
                    for row, at in zip(rows, put, strict=True):
                        places[row] = Place(route.numbers[index], at)
            except shmq.ShutDown as end:
                route = self._rerouted(route, until, end)
            rest = [row for row in rest if places[row] is None]

    def _to_put(self, route: Route, index: int) -> shmq.Queue[Any]:
        """
        The queue of a shard that is open, for its first put by this handle.

        A handle that was opened behind a queue's end would open it for writing again; so it never puts.
        """
        queue = self.opened.queue(route.shards[index])
        if queue.finished:
            raise shmq.ShutDown(f"cannot put into {queue.path}: it was finished")
        route.queues[index] = queue
        return queue

    def _rerouted(self, route: Route, until: float | None, end: shmq.ShutDown) -> Route:
        """
        Where puts go once a growth is done, for whoever met its end of a shard.

        Raises:
            ShutDown: there is no growth, but an end that was meant.
            Busy: the time is up.
        """
        while True:
            found = self.look()
            if found.open_bit != route.bit:
                return self.route
            if found.growing_to is None:
                raise shmq.ShutDown(f"cannot put into {self.opened.path}: it was shut down or finished") from end
            if not growth.is_locked_out(self.opened.path, self.opened.opening.open):
                continue
            if until is not None and time.monotonic() >= until:
                raise shmq.Busy(f"cannot put into {self.opened.path} in time: its shards are growing; nothing was put")
            time.sleep(_AGAIN)


def _refuse_dedup() -> NoReturn:
    raise TypeError(
        "put(dedup=...): shards have none, for each remembers its own puts alone, and a growth would forget them"
    )


def _deadline(until: float | None, timeout: float | None) -> tuple[float | None, float | None]:
    """Until when to wait, and how long that is from now."""
    if timeout is None:
        return None, None
    now = time.monotonic()
    until = now + timeout if until is None else until
    return until, max(until - now, 0.0)


def _parts(rows: list[int], keys: Sequence[bytes | None] | None, bit: int, turn: int) -> dict[int, list[int]]:
    """The rows of each shard, in their order."""
    if keys is None:
        return {turn % (1 << bit): rows}
    parts: dict[int, list[int]] = {}
    for row in rows:
        key = keys[row]
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"keys[{row}]={key!r}: bytes are wanted, not {type(key).__name__}")
        parts.setdefault(shard_of(key, bit) if key else turn % (1 << bit), []).append(row)
    return parts
