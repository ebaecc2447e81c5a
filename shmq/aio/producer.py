"""A producer whose puts are awaited: for room in a bounded queue, and for the disk in one that syncs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import shmq
from shmq.aio.line import Held, Line, deadline_of
from shmq.aio.message import T

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from pyarrow import RecordBatch

    from shmq.aio import loops
    from shmq.aio.disk import Disk

_Put = TypeVar("_Put", int, range)


class Producer(Held, Generic[T]):
    """
    What `aio.Queue.put` uses. Made by `aio.Queue.producer`; for the tasks of one loop.

    A put that is cancelled while it waits for room has put nothing. With Durability.SYNC, one that is cancelled while
    it waits for the disk is in the queue: the cause of its cancellation is a `SyncPending`, which has the index.

    Attributes:
        plain: the `shmq.Producer` beneath.
    """

    def __init__(self, loop: loops.Loop, queue: shmq.Queue[T], disk: Disk) -> None:
        """See `aio.Queue.producer`."""
        super().__init__(loop, f"a producer of {queue.place}")
        self.plain = plain = queue.producer()
        self._disk = disk

        def may_pass(problem: Exception) -> bool:  # neither a full disk, nor what the queue refuses
            return not isinstance(problem, shmq.DiskFull) and queue.options.full != "raise"

        self._line = Line(loop, plain, shmq.Full, self._what, may_pass)

    async def put(
        self,
        payload: T | shmq.codec.AsBytes,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002  # the field's name everywhere
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> int:
        """
        Append *payload* and return its index, as `shmq.Queue.put`.

        Raises:
            Full, SyncPending, SyncFailed, TooLarge, DiskFull, Mismatch, Busy, Fenced, ShutDown, Closed: as there.
            Forked, RuntimeError: this is another process, or another loop; nothing was put.
        """
        look = functools.partial(
            self.plain.put,
            payload,
            key=key,
            type=type,
            time_ns=time_ns,
            ttl=ttl,
            delay=delay,
            headers=headers,
            dedup=dedup,
            timeout=0,
        )
        return await self._put(look, timeout, _index_of, again=dedup is not None)

    async def put_many(
        self,
        payloads: Iterable[T | shmq.codec.AsBytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[int] | None = None,
        times_ns: Sequence[int] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """Append all *payloads* as one batch, as `shmq.Queue.put_many`; otherwise as `put`."""
        again = payloads if isinstance(payloads, str | bytes | bytearray | memoryview | dict) else _listed(payloads)
        look = functools.partial(
            self.plain.put_many,
            again,
            keys=keys,
            types=types,
            times_ns=times_ns,
            headers=headers,
            ttl=ttl,
            dedup=dedup,
            timeout=0,
        )
        return await self._put(look, timeout, lambda pending: _range_of(pending, len(again)), again=dedup is not None)

    async def put_arrow(
        self,
        batch: RecordBatch,
        *,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """Append the rows of a record batch, as `shmq.Queue.put_arrow`; otherwise as `put`."""
        look = functools.partial(self.plain.put_arrow, batch, ttl=ttl, dedup=dedup, timeout=0)
        return await self._put(look, timeout, lambda pending: _range_of(pending, len(batch)), again=dedup is not None)

    async def _put(
        self,
        look: Callable[[], _Put],
        timeout: float | None,
        put: Callable[[shmq.SyncPending], _Put],
        *,
        again: bool,
    ) -> _Put:
        """What *look* puts; *put* says what that was where it is not on the disk yet, unless asking *again* does."""
        self.check()
        until = deadline_of(timeout)
        try:
            return await self._line.claim(look, timeout)
        except shmq.SyncPending as problem:
            pending = problem.with_traceback(None)  # which leads to this frame, and so to all that this has
        if again:  # perhaps it was put before, as another batch
            await self._disk.wait(pending, _index_of(pending), until)
            return await self._line.claim(look, timeout)
        found = put(pending)
        await self._disk.wait(pending, found if isinstance(found, int) else found[-1], until)
        return found

    async def close(self) -> None:
        """No more puts through this handle, as `shmq.Producer.close`."""
        self.check()
        await self._loop.end(self.plain.close)

    async def __aenter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def __repr__(self) -> str:
        """As the plain one."""
        return f"<shmq.aio.Producer {self.plain!r}>"


def _listed(payloads: Iterable[Any]) -> Any:
    """What can be put more than once; what cannot be put at all is refused by the put."""
    return list(payloads) if hasattr(payloads, "__iter__") else payloads


def _index_of(pending: shmq.SyncPending) -> int:
    assert pending.index is not None  # noqa: S101  # of a put it has one
    return pending.index


def _range_of(pending: shmq.SyncPending, count: int) -> range:
    first = _index_of(pending)
    return range(first, first + count)
