"""Every message that there is, shard by shard, by a place in each: nothing is finished, and nothing is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import shmq
    from shmq.shards.opened import Opened

T = TypeVar("T")


class Reader(Generic[T]):
    """
    A walk over what was there when it began. Made by `Shards.reader`; it can be iterated over once.

    Attributes:
        place: {number of a shard: index of the next message there}, for each shard; ready for another reader's start.
    """

    def __init__(self, opened: Opened, start: Mapping[int, int]) -> None:
        """See `Shards.reader`."""
        self._opened = opened
        self._shards = opened.look().live()
        strange = sorted(set(start) - {shard.number for shard in self._shards})
        if strange:
            raise ValueError(f"start={dict(start)!r}: {opened.path} has no shard {strange[0]}")
        self._ends = {shard.number: opened.queue(shard).committed_index for shard in self._shards}
        self.place = {shard.number: start.get(shard.number, 0) for shard in self._shards}
        self._left = self._walk()

    def _walk(self) -> Iterator[tuple[int, shmq.Message[T]]]:
        for shard in self._shards:  # the oldest bits first: each key in its order
            number = shard.number
            for message in self._opened.queue(shard).reader(start=self.place[number], stop=self._ends[number]):
                self.place[number] = message.index + 1
                yield number, message
            self.place[number] = max(self.place[number], self._ends[number])

    def __iter__(self) -> Iterator[tuple[int, shmq.Message[T]]]:
        """The number of the shard, and the message."""
        return self._left
