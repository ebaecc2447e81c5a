"""One name at all shards: messages in order within each shard, from those that this consumer has in turn."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import shmq
from shmq.shards.hold import Hold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from shmq.shards.hold import Held
    from shmq.shards.opened import Opened

T = TypeVar("T")
_Found = TypeVar("_Found")

BURST = 64
"""So many messages, or batches, come from one shard before the next one is looked at."""
_EMPTY_FOR = 0.001
"""Seconds for which a shard that had nothing is passed over while others have something."""


class Consumer(Generic[T]):
    """
    One name's way through all shards. Made by `Shards.consumer`; a context manager, and an iterator.

    Safe to share between threads. In a forked child a member of a group becomes a member of its own.

    Attributes:
        name: the name.
    """

    def __init__(self, root: Opened, name: str, options: dict[str, Any], *, group: bool) -> None:
        """See `Shards.consumer`."""
        self.name = name
        self._root = root
        self._options = options
        self._group = group
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._at = 0
        self._burst = 0
        self._last: Any = None
        """The shard's consumer that handed something out last."""
        self._hold = Hold(self._root, self.name, self._options, group=self._group)

    def _begin_in_child(self) -> None:
        """What it holds is the parent's: a member of a group joins anew."""
        if not self._group:
            raise shmq.Forked(
                f"consumer {self.name!r} of {self._root.path} belongs to the parent process {self._pid}; open one "
                "under another name in this child"
            )
        self._begin()

    # ---- getting
    def get(self, timeout: float | None = None) -> shmq.Message[T]:
        """
        The next message of some shard. Within a shard, and so for each key, they come in order.

        Args:
            timeout: seconds to wait; None for as long as it takes, 0 not to wait.

        Raises:
            Empty: the time is up.
            ShutDown: all shards are shut down or finished, and drained, but for what this consumer holds itself; and if
                it holds something, but for what other members hold.
            Closed, Corrupt, Gone, Forked: as `shmq.Consumer.get`, of the shard that was looked at.
        """
        return self._claim(_get, None, timeout)

    def take(self, timeout: float | None = None) -> T:
        """The next message's payload, acknowledged at once; otherwise as `get`."""
        payload: T = self._claim(_take, None, timeout)
        return payload

    def get_many(self, limit: int, timeout: float | None = None) -> list[shmq.Message[T]]:
        """Between 1 and *limit* messages of one shard; otherwise as `get`."""
        return self._claim(_get_many, _checked_limit(limit), timeout)

    def take_many(self, limit: int, timeout: float | None = None) -> list[T]:
        """Between 1 and *limit* payloads of one shard, acknowledged at once; otherwise as `get`."""
        return self._claim(_take_many, _checked_limit(limit), timeout)

    def _claim(self, look: Callable[[Any, int | None], _Found], limit: int | None, timeout: float | None) -> _Found:
        until = _until(timeout)
        if self._pid != os.getpid() and not self._closed:
            self._begin_in_child()
        begun = time.monotonic()
        with self._lock:
            self._check_open()
            if self._hold.is_due():
                self._hold.tend()
            found = self._look(look, limit, begun, quick=True)
        if found:
            return found[0]
        while True:
            with self._lock:
                self._check_open()
                self._hold.tend()
                found = self._look(look, limit, begun)
                if found:
                    return found[0]
                if self._hold.is_over():
                    raise shmq.ShutDown(f"all shards of {self._root.path} are over, and {self.name!r} has drained them")
                awaited, pause = self._hold.awaited(), self._hold.pause
            if not self._wait(awaited, pause, until):
                begun = time.monotonic()

    def _wait(self, awaited: list[Any], pause: float | None, until: float | None) -> bool:
        """Sleep until there is something, in a shard or for the group: False when that is not known."""
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise shmq.Empty(self._nothing())
        pause = left if pause is None else pause if left is None else min(left, pause)
        if awaited:
            return self._begin_at(shmq.wait(awaited, timeout=pause))
        if pause is not None:
            time.sleep(pause)
        return False

    def _begin_at(self, ready: list[Any]) -> bool:
        """Look where something is, and nowhere else: whether it is anywhere. Who slept has looked at all of them."""
        with self._lock:
            for at, each in enumerate(self._hold.serving):
                if each.consumer in ready:
                    each.looked = 0.0
                    self._at, self._burst = at, 0
        return bool(ready)

    def _nothing(self) -> str:
        held = len(self._hold.serving)
        return (
            f"nothing to get for consumer {self.name!r} of {self._root.path} in time: none of the {held} shards that "
            "it has now has something"
        )

    def _look(
        self, look: Callable[[Any, int | None], _Found], limit: int | None, begun: float, *, quick: bool = False
    ) -> list[_Found]:
        """
        What there is, in a list. What was looked at since this get has *begun* is passed over.

        *quick*: so is what was empty just before that.
        """
        for _ in range(len(self._hold.serving)):
            serving = self._hold.serving
            self._at = self._at if self._at < len(serving) else 0
            held = serving[self._at]
            if held.looked + _EMPTY_FOR > begun or held.over if quick else held.looked >= begun:
                self._next()
                continue
            found = self._look_at(held, look, limit)
            if found:
                return found
            if not self._hold.serving:
                break
        return []

    def _look_at(self, held: Held, look: Callable[[Any, int | None], _Found], limit: int | None) -> list[_Found]:
        now = time.monotonic()
        try:
            found = look(held.consumer, limit)
        except shmq.Empty:
            held.looked = now
            held.over = False
        except shmq.ShutDown:
            held.looked = now
            self._hold.ended(held)
        else:
            held.over = False
            held.looked = 0.0
            self._last = held.consumer
            self._burst += 1
            if self._burst >= BURST:
                self._next()
            return [found]
        self._next()
        return []

    def _next(self) -> None:
        self._at += 1
        self._burst = 0

    def _check_open(self) -> None:
        if self._closed:
            raise shmq.Closed(f"consumer {self.name!r} of {self._root.path} was closed")

    def __iter__(self) -> Self:
        """Return this object."""
        return self

    def __next__(self) -> shmq.Message[T]:
        """The next message; the loop ends when all shards are over and drained, or this is closed."""
        if self._closed:
            raise StopIteration
        try:
            return self.get()
        except shmq.ShutDown:
            raise StopIteration from None
        except shmq.Closed:
            if self._closed:
                raise StopIteration from None
            raise

    # ---- finishing
    def ack(self, *messages: shmq.Message[T]) -> None:
        """
        Acknowledge messages of this consumer, of whatever shards.

        Raises:
            LeaseLost: of one of them, after the others were acknowledged.
            TypeError: something in it is no message that a consumer was handed.
        """
        if self._last is not None:
            self._last.ack(*messages)  # of all: those of its own shard in one go
            return
        for message in messages:
            message.ack()

    def nack(self, message: shmq.Message[T], delay: float = 0.0) -> None:
        """Give a message back, to be handed out again after *delay* seconds: behind what came after it, perhaps."""
        message.nack(delay)

    # ---- looking
    @property
    def shards(self) -> tuple[int, ...]:
        """The numbers of the shards that this consumer has now; of a group, its share of them."""
        with self._lock:
            return tuple(sorted(each.shard.number for each in self._hold.serving + self._hold.leaving))

    @property
    def lag(self) -> int:
        """How many messages this name has not finished, at all shards, whoever has them."""
        return self._root.lag(self.name)

    @property
    def pending(self) -> int:
        """How many messages this consumer holds and has not acknowledged."""
        with self._lock:
            return sum(each.consumer.pending for each in self._hold.serving + self._hold.leaving)

    @property
    def closed(self) -> bool:
        """Whether this consumer was closed."""
        return self._closed

    def seek(self, to: Mapping[int, int]) -> None:
        """
        Go on from there in each shard that is named, forward or back; in the others nothing changes.

        Args:
            to: {number of a shard: an index in it}.

        Raises:
            ValueError: this consumer does not have one of these shards now; nothing was changed.
            IndexError: an index is beyond the end of its shard, or negative.
        """
        with self._lock:
            self._check_open()
            mine = {each.shard.number: each for each in self._hold.serving + self._hold.leaving}
            strange = sorted(set(to) - set(mine))
            if strange:
                raise ValueError(
                    f"cannot seek in shard {strange[0]} of {self._root.path}: consumer {self.name!r} has {sorted(mine)}"
                )
            for number, index in to.items():
                mine[number].consumer.seek(index)
                mine[number].looked = 0.0

    # ---- closing
    def close(self) -> None:
        """Close it at all shards. What was handed out and not acknowledged goes to others. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            with self._lock:
                self._hold.close()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Name, path, and which shards it has, for people."""
        state = "closed" if self._closed else f"shards {', '.join(map(str, self.shards)) or 'none'}"
        return f"<shmq.shards.Consumer {self.name!r} of {self._root.path} ({state})>"


def _get(consumer: Any, _: int | None) -> Any:
    return consumer.get(timeout=0)


def _take(consumer: Any, _: int | None) -> Any:
    return consumer.take(timeout=0)


def _get_many(consumer: Any, limit: int | None) -> Any:
    return consumer.get_many(limit, timeout=0)


def _take_many(consumer: Any, limit: int | None) -> Any:
    return consumer.take_many(limit, timeout=0)


def _checked_limit(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"limit={limit!r}: an int is wanted, not {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"limit={limit}: 1 or more")
    return limit


def _until(timeout: object) -> float | None:
    """Until when to wait; None for as long as it takes."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool):
        raise TypeError(f"timeout={timeout!r}: a number of seconds, or None for as long as it takes, is wanted")
    if not timeout >= 0:
        raise ValueError(f"timeout={timeout!r}: seconds, 0 or more, or None for as long as it takes")
    return time.monotonic() + timeout
