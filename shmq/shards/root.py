"""The shards of one directory, open. The ways to them are in `doors`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Generic, Self

import shmq
from shmq.shards import growth, place
from shmq.shards import map as maps
from shmq.shards.consumer import Consumer, T
from shmq.shards.opened import Opened, Opening
from shmq.shards.putting import Place, Putting
from shmq.shards.reader import Reader

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from shmq.shards.map import Map, Shard


_WINDOW = 4096
"""Of each shard's ring. With a queue's 65,536 it takes 0.2 ms for each shard to wait for all of them."""


class Shards(Generic[T]):
    """
    The shards of one directory, open. Made by `shards.open`; a context manager; pickles to its path.

    Safe to share between threads, and with a forked child.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str, opening: Opening) -> None:
        """See `shards.open`."""
        self.path = path
        self._opened = Opened(path, opening)
        self._putting = Putting(self._opened)

    # ---- which shards there are
    @property
    def map(self) -> Map:
        """Which shards there are, as they were when this was last looked at."""
        return self._opened.map

    def look(self) -> Map:
        """Which shards there are now."""
        return self._putting.look()

    @property
    def shards(self) -> int:
        """How many shards are open: what is put goes to one of so many."""
        return len(self._putting.route.shards)

    @property
    def prefix(self) -> str:
        """What the names of the shards' directories begin with."""
        return self.map.prefix

    @property
    def queues(self) -> tuple[shmq.Queue[T], ...]:
        """The queue of each shard that is open, for what is not here. Put only by this object: it knows of growth."""
        return tuple(self.queue(shard) for shard in self._putting.route.shards)

    def queue(self, shard: Shard) -> shmq.Queue[T]:
        """The queue of one shard of the map; closed with this object."""
        return self._opened.queue(shard)

    def check_options(self, options: shmq.Options | None) -> None:
        """
        Hold *options* against what the shards were made with.

        Raises:
            Mismatch: one contradicts them.
        """
        if options is not None:
            self._opened.opening.open(self._putting.route.shards[0].path, options).close()

    # ---- putting
    def put(
        self,
        payload: T | shmq.codec.AsBytes,
        *,
        key: bytes | None = None,
        timeout: float | None = None,
        **named: Any,
    ) -> Place:
        """
        Append *payload* to the shard of its key, and return where it is. Without a key, to each shard in turn.

        What has one key comes in the order in which it was put, also over a growth.

        Args:
            payload: as in `shmq.Queue.put`.
            key: up to 65,535 bytes; its shard is `shard_of(key, bit)`. An empty one is none.
            timeout: seconds to wait for room, for the disk, and for a growth; None for as long as it takes.
            named: type, time_ns, ttl, delay, headers, as in `shmq.Queue.put`. There is no dedup.

        Raises:
            ShutDown: the root was shut down or finished; nothing was put.
            Busy: the shards were growing until the time was up; nothing was put.
            Otherwise as `shmq.Queue.put`.
        """
        return self._putting.put(payload, key, timeout, named)

    def put_many(
        self,
        payloads: Iterable[T | shmq.codec.AsBytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[int] | None = None,
        times_ns: Sequence[int] | None = None,
        headers: Sequence[Any] | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> list[Place]:
        """
        Append all *payloads*, each to the shard of its key, and return where each of them is.

        What goes to one shard becomes visible at once, or not at all. All that has no key goes to one shard.

        Args:
            payloads: as in `shmq.Queue.put_many`; up to 8,191 for one shard.
            keys, types, times_ns, headers: None, or one entry for each payload.
            ttl: of all of them.
            timeout: as in `put`, for all of it.

        Raises:
            ValueError: the lengths differ; nothing was put.
            Otherwise as `put`. The error's attribute `places` has for each payload where it is, and None for those that
            were not put: one shard refused, and others may have had theirs before.
        """
        batch = list(payloads)
        columns = {"keys": keys, "types": types, "times_ns": times_ns, "headers": headers}
        given = {name: column for name, column in columns.items() if column is not None}
        return self._putting.put_many(batch, given, ttl, timeout)

    # ---- growing
    def grow(self) -> int:
        """
        Have twice as many shards, while producers and consumers go on; return how many there are then.

        What is put from then on goes to the new ones. The old ones are finished, and stay: a consumer begins a new
        shard when it has finished the one in which its keys lay before, so each key keeps its order. Puts wait
        meanwhile: for as long as it takes to sync each old shard. Killed in between, it is carried on by whoever opens
        the root next, or waits to put; one that was killed before is carried on, and no other one begun.

        Raises:
            ValueError: there are 1,024 already.
            ShutDown: the root was finished.
            SyncFailed, DiskFull: the disk refused; it is carried on by the next call.
        """
        options = self.queue(self._putting.route.shards[0]).options
        with place.locked(self.path):
            found = self.look()
            if found.growing_to is None:
                opening = self._opened.opening
                found = growth.begin(found, options, opening.open, unsafe_filesystem=opening.unsafe_filesystem)
            growth.carry_on(found, self._opened.opening.open)
        self.look()
        return self.shards

    # ---- consuming
    def consumer(
        self,
        name: str,
        *,
        group: bool = False,
        ack: str | None = None,
        lease: float | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        expire_to: str | None = None,
        window: int | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
    ) -> Consumer[T]:
        """
        Open the consumer *name* at the shards; make it where there is none.

        Args:
            name: as in `shmq.Queue.consumer`, as all that follows.
            group: False: this handle has the name at all shards. True: members in any number of processes share the
                shards out among themselves, as evenly as it goes, and anew when one joins, leaves or dies. A shard has
                one owner at a time. More members than shards wait for their turn.
            ack: None: as the name was made; for a new name "explicit" in a group, else "auto".
            lease, max_attempts, window: of each shard. The window is 4,096 by default: so many messages of a shard may
                be in flight, and whoever waits for many shards looks through the window of each.
            dead_letter, expire_to: beside the shards, in the same directory, unless absolute; by default each shard has
                its own dead letters.
            start: "earliest", "latest" or a time; indexes are each shard's own: see `Consumer.seek`.
            skip_corrupt: of this handle.

        Raises:
            Busy: without *group*: somebody has the name at a shard.
            Mismatch, NotFound, BadFormat, Corrupt: as `shmq.Queue.consumer`.
        """
        if isinstance(start, int):
            raise TypeError(f"start={start!r}: each shard has its own indexes; give a word or a time, or seek()")
        asked = {
            "ack": ack,
            "lease": lease,
            "max_attempts": max_attempts,
            "dead_letter": dead_letter,
            "expire_to": expire_to,
            "window": window,
        }
        options = {option: value for option, value in asked.items() if value is not None}
        known = self.look().consumers.get(name)
        if known is None:
            options = {"ack": "explicit" if group else "auto", **options}
            if options["ack"] == "explicit":
                options = {"window": _WINDOW, **options}
            known = self._make_consumer(name, options, start)
        return Consumer(self._opened, name, {**known, **options, "skip_corrupt": skip_corrupt}, group=group)

    def _make_consumer(self, name: str, options: dict[str, Any], start: Any) -> dict[str, Any]:
        """Have the name at all shards before the map has it: so a growth knows all that there are."""
        with place.locked(self.path):
            found = self.look()
            if name in found.consumers:
                return found.consumers[name]
            for shard in found.live():
                growth.make_consumer(self.queue(shard), name, options, start)
            maps.write(found.with_consumer(name, options))
        self.look()
        return options

    def consumers(self) -> dict[str, dict[int, shmq.ConsumerStats]]:
        """Every name, and what it is at in each shard, by the shard's number."""
        found: dict[str, dict[int, shmq.ConsumerStats]] = {name: {} for name in sorted(self.look().consumers)}
        for shard in self.map.live():
            for name, stats in self.queue(shard).consumers().items():
                if name in found:
                    found[name][shard.number] = stats
        return found

    def lag(self, name: str) -> int:
        """
        How many messages that name has not finished, at all shards.

        Raises:
            NotFound: there is no such name.
        """
        if name not in self.look().consumers:
            raise shmq.NotFound(f"{self.path} has no consumer {name!r}")
        return self._opened.lag(name)

    def drop_consumer(self, name: str) -> None:
        """
        Remove that name at all shards. Repeated, it finishes what was interrupted.

        Raises:
            NotFound: there is no such name.
            Busy: somebody has it open.
        """
        with place.locked(self.path):
            found = self.look()
            if name not in found.consumers:
                raise shmq.NotFound(f"cannot drop consumer {name!r} of {self.path}: there is none")
            for shard in found.live():
                with contextlib.suppress(shmq.NotFound):
                    self.queue(shard).drop_consumer(name)
            maps.write(found.with_consumer(name, None))
        self.look()

    # ---- reading
    def reader(self, start: Mapping[int, int] | None = None) -> Reader[T]:
        """
        Every message that is there now, with the number of its shard; nothing is finished by it.

        Shards come one after the other, those that a growth has finished first: so each key comes in order.

        Args:
            start: {number of a shard: index of the first message there}; from the beginning of those left out. What
                another reader's `place` says, for what has come since.

        Raises:
            ValueError: there is no such shard.
        """
        return Reader(self._opened, {} if start is None else start)

    # ---- looking
    def stats(self) -> dict[int, shmq.Stats]:
        """Figures of each shard, by its number, as `shmq.Queue.stats`."""
        return {shard.number: self.queue(shard).stats() for shard in self.look().live()}

    def __len__(self) -> int:
        """How many messages there are in all shards, for all consumers."""
        return sum(len(self.queue(shard)) for shard in self.look().live())

    def __bool__(self) -> bool:
        """True, also when there are no messages."""
        return True

    # ---- the disk
    def sync(self) -> None:
        """Return when everything put before is on the disk, in all shards."""
        for shard in self.look().live():
            self.queue(shard).sync()

    # ---- ending
    def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """
        Refuse puts from now on, in all shards, as `shmq.Queue.shutdown`; gets drain what is left, then raise ShutDown.

        Killed in the middle, some shards are shut down and others are not; a second call finishes it.
        """
        with place.locked(self.path):
            for shard in self.look().live():
                self.queue(shard).shutdown(immediate)

    def finish(self) -> None:
        """
        End all shards, as `shmq.Queue.finish`; a put is refused from then on, for good.

        Killed in the middle, some have ended and others have not; a second call finishes it.
        """
        with place.locked(self.path):
            growth.carry_on(self.look(), self._opened.opening.open)
            for shard in self.look().live():
                self.queue(shard).finish()

    @property
    def finished(self) -> bool:
        """Whether all shards have ended for good."""
        return all(self.queue(shard).finished for shard in self.look().live())

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._opened.closed

    def close(self) -> None:
        """Close this handle, and the queues of it. Closing twice is fine."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """It pickles to its path, and how it was opened."""
        return Shards, (self.path, self._opened.opening)

    def __repr__(self) -> str:
        """Path and shards, for people."""
        return f"<shmq.Shards {self.path} ({self.shards} shards{', closed' if self.closed else ''})>"
