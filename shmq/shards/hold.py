"""
Which shards one consumer has, and which it is to have.

A shard's name, which one handle holds at a time, is all there is of ownership: so no shard has two owners, and a
death frees it at once. Alone, a consumer has every shard. In a group it has its share: who has more hands out no more
of one, waits until what it handed out of it is acknowledged, and lets go; who has less takes what is free.

A shard that was opened by a growth is begun once its parent is drained.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.shards import map as maps
from shmq.shards.seats import Seat

if TYPE_CHECKING:
    from shmq.shards.map import Shard
    from shmq.shards.opened import Opened

_SOON = 0.05
"""Seconds to wait for what others in this process acknowledge, which nothing tells of."""


class Held:
    """One shard that this consumer has."""

    def __init__(self, shard: Shard, queue: shmq.Queue[Any], consumer: Any) -> None:
        """The *consumer* of its queue."""
        self.shard = shard
        self.queue = queue
        self.consumer = consumer
        self.over = False
        """Whether nothing more comes, unless something is given back."""
        self.looked = 0.0
        """When it was found empty, or over, if nothing was found there since."""


class Hold:
    """The shards of one consumer. Not safe to share between threads; a forked child makes one of its own."""

    def __init__(self, root: Opened, name: str, options: dict[str, Any], *, group: bool) -> None:
        """Take them; of a group, as many as are free and due."""
        self.root = root
        self.name = name
        self.serving: list[Held] = []
        """What messages are handed out of."""
        self.leaving: list[Held] = []
        """What is given away once everything is acknowledged that was handed out of it."""
        self._options = options
        self._drained: set[int] = set()
        self._map = root.map
        self._seen: tuple[int, ...] = ()
        self._seat: Seat | None = None
        self._changed = True
        try:
            unsafe = root.opening.unsafe_filesystem
            self._seat = Seat(self._map, name, unsafe_filesystem=unsafe) if group else None
            self.tend()
        except BaseException:
            self.close()
            raise

    # ---- what to have
    def is_due(self) -> bool:
        """Whether it is time to tend, for a consumer that never waits."""
        return bool(self.leaving) or self._changed or (self._seat is not None and self._seat.is_due())

    def tend(self) -> None:
        """
        Have what is due, and let go of what is not.

        Raises:
            Busy: alone, somebody else has a shard.
        """
        self._read_map()
        self._release()
        if not (self._changed if self._seat is None else self._seat.news() or self._changed):
            return
        wanted = self._wanted()
        share = len(wanted) if self._seat is None else self._seat.count().share(len(wanted))
        self._have(wanted, share)

    def _wanted(self) -> list[Shard]:
        """What may be read, by a map that did not change meanwhile."""
        while True:
            self._changed = False
            try:
                wanted = self._eligible()
            except BaseException:
                self._changed = True  # nobody has looked
                raise
            if not self._changed:
                return wanted

    def _read_map(self) -> None:
        seen = maps.state_of(self.root.path)
        if seen != self._seen:
            self._map = self.root.look()
            self._seen = seen
            self._changed = True

    def _have(self, wanted: list[Shard], share: int) -> None:
        while len(self.serving) > share:
            idle = [each for each in self.serving if not each.consumer.pending]
            given = (idle or self.serving)[-1]
            self.serving.remove(given)
            self.leaving.append(given)
        self._release()
        while self.leaving and len(self.serving) < share:
            self.serving.append(self.leaving.pop())
        mine = {each.shard.number for each in self.serving + self.leaving}
        begin = os.getpid() % max(len(wanted), 1)  # not all of them at the same one
        for shard in wanted[begin:] + wanted[:begin]:
            if len(self.serving) >= share:
                break
            if shard.number not in mine:
                self._take(shard)

    def _take(self, shard: Shard) -> None:
        queue = self.root.queue(shard)
        try:
            consumer = queue.consumer(self.name, **self._options)
        except shmq.Busy:
            if self._seat is None:
                raise
            return
        self.serving.append(Held(shard, queue, consumer))

    def _release(self) -> None:
        done = [each for each in self.leaving if not each.consumer.pending]
        for each in done:
            self.leaving.remove(each)
            each.consumer.close()
        if done and self._seat is not None:
            self._seat.tell(b"free")

    # ---- growth
    def _eligible(self) -> list[Shard]:
        """What may be read now: each shard that is not drained, and whose parent is."""
        return [
            shard
            for shard in self._map.live()
            if shard.number not in self._drained and self._may_begin(shard) and not self._is_drained(shard)
        ]

    def _may_begin(self, shard: Shard) -> bool:
        parent = self._map.parent(shard)
        return parent is None or self._is_drained(parent)

    def _is_drained(self, shard: Shard) -> bool:
        """Whether this name has finished all that will ever be in it, and all that was before it."""
        if shard.number in self._drained:
            return True
        if not self._may_begin(shard) or not self._ended_for_good(shard):
            return False
        self._drained.add(shard.number)
        return True

    def _ended_for_good(self, shard: Shard) -> bool:
        """
        A root that its user has finished is drained by its consumers, not passed over.

        So by the map as it is behind the look: by one from before its growth ended, what the user has finished since
        then would be what the growth ends next.
        """
        queue = self.root.queue(shard)
        if not queue.finished:
            return False
        self._read_map()
        if shard.bit == self._map.open_bit and self._map.growing_to is None:
            return False
        return self._lag(queue) == 0

    def _lag(self, queue: shmq.Queue[Any]) -> int:
        stats = queue.consumers().get(self.name)
        return 0 if stats is None else stats.lag

    def ended(self, held: Held) -> None:
        """Its queue has ended, and nothing is left in it but what this consumer holds itself."""
        held.over = True
        if held.consumer.pending or not self._passed(held):
            return
        self.serving.remove(held)
        held.consumer.close()
        self._drained.add(held.shard.number)
        self._changed = True
        if self._seat is not None:
            self._seat.tell(b"drained")

    def _passed(self, held: Held) -> bool:
        """Whether a growth has ended it, and all is finished."""
        self._read_map()
        return self._ended_for_good(held.shard)

    # ---- the end, and waiting
    def is_over(self) -> bool:
        """Whether nothing more comes from any shard, but for what this consumer gives back itself."""
        if not all(each.over for each in self.serving):
            return False
        mine = {each.shard.number for each in self.serving + self.leaving}
        holds = any(each.consumer.pending for each in self.serving + self.leaving)
        others = [shard for shard in self._map.live() if shard.number not in mine | self._drained]
        return all(self._is_over_for_others(shard, holds=holds) for shard in others)

    def _is_over_for_others(self, shard: Shard, *, holds: bool) -> bool:
        """Who holds messages does not wait for others who may: they would wait for each other."""
        queue = self.root.queue(shard)
        stats = queue.stats()
        if not (stats.finished or stats.shut_down):
            return False
        return holds or self.name not in stats.consumers or stats.consumers[self.name].lag == 0

    def awaited(self) -> list[Any]:
        """The consumers that may have something, and the seat."""
        found = [each.consumer for each in self.serving if not each.over]
        return found if self._seat is None else [*found, self._seat.consumer]

    @property
    def pause(self) -> float | None:
        """Seconds after which to look again, where nothing would ring."""
        if self._changed:
            return 0.0
        if self.leaving or any(each.over for each in self.serving):
            return _SOON
        return None if self._seat is None else self._seat.pause

    def close(self) -> None:
        """Let go of all of it, at once: what was handed out and not acknowledged goes to others."""
        with contextlib.ExitStack() as all_of_them:
            if self._seat is not None:
                all_of_them.callback(self._seat.leave)  # last: whoever hears it finds them free
            for each in self.serving + self.leaving:
                all_of_them.callback(each.consumer.close)
