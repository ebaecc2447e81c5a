"""
A queue at a server for the tasks of one asyncio loop: the verbs of `shmq.net.connect`, awaited.

The link's thread does the work; what it settles is told to the loop.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Self

from shmq import errors
from shmq.net.client import verbs
from shmq.net.client.calls import Call, Put
from shmq.net.client.messages import (
    Fields,
    Hand,
    RemoteMessage,
    are_acked,
    decoded,
    no_holder,
    one,
    several,
)
from shmq.net.client.queue import RemoteQueue, opened
from shmq.net.client.waiting import deadline, left, limit

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType

    import shmq
    from shmq.net.client.consumer import RemoteConsumer
    from shmq.net.client.link import Link
    from shmq.net.client.reader import Place
    from shmq.net.packing import Batch

_VERDICT = 1.0


async def answer(link: Link, call: Call) -> Any:
    """Return what the server answers. A task that is cancelled leaves what was sent to be settled."""
    await _settled(link, call, None)
    return call.result()


async def _settled(link: Link, call: Call, seconds: float | None) -> bool:
    """Whether there is an answer in time."""
    come = asyncio.Event()
    call.when_done(functools.partial(_tell, asyncio.get_running_loop(), come.set))
    link.ask(call)
    try:
        return await _comes(come, seconds) or call.is_done
    except asyncio.CancelledError as cancelled:
        if not call.give_up() and isinstance(call, Put):
            raise asyncio.CancelledError(*cancelled.args) from verbs.left_to_itself(call, link.address)
        raise


async def _comes(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it is set in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


async def aconnect(csp: str, **named: Any) -> AsyncQueue:
    """Open a queue at a server as `connect`, for the loop that runs here."""
    loop = asyncio.get_running_loop()
    return AsyncQueue(await loop.run_in_executor(None, functools.partial(opened, csp, named)))


class AsyncQueue:
    """
    One queue at a server, for tasks. Made by `shmq.aio.open` of a csp, or of a `RemoteQueue`.

    What a local queue has as a plain attribute is awaited here: `await q.next_index`, `await q[-1]`.

    Attributes:
        plain: the `RemoteQueue` beneath, whose verbs block.
    """

    def __init__(self, plain: RemoteQueue) -> None:
        """Have tasks use it."""
        self.plain = plain

    async def _ask(self, call: Call) -> Any:
        return await answer(self.plain.link(), call)

    async def _call(self, name: str, *given: Any) -> Any:
        return await self._ask(Call("call", (name, *given)))

    # ---- putting
    async def put(self, payload: Any, *, timeout: float | None = None, **named: Any) -> int:
        """
        Append *payload* and return its index, as `RemoteQueue.put`. Puts of several tasks go together.

        Cancelled before it was sent, it puts nothing; after that it is put all the same, and the `__cause__` of the
        `CancelledError` is a `SyncPending`.
        """
        found: int = await self._put(self.plain.made(payload, timeout=timeout, **named))
        return found

    async def put_many(self, payloads: Iterable[Any], *, timeout: float | None = None, **named: Any) -> range:
        """Append all *payloads* as one batch, as `RemoteQueue.put_many`; otherwise as `put`."""
        call = self.plain.made_many(payloads, timeout=timeout, **named)
        if not call.payloads:
            return range(0)
        found: range = await self._put(call)
        return found

    async def _put(self, call: Put) -> Any:
        until = deadline(call.timeout)
        link = self.plain.link()
        rest = left(until)
        if not await _settled(link, call, rest):
            more = _VERDICT if call.is_sent and link.is_up else 0
            await asyncio.get_running_loop().run_in_executor(None, call.wait, more)
            if not call.is_done:
                raise verbs.unanswered(call, self.plain.place)
        return call.result()

    async def producer(self) -> Self:
        """What puts: this handle itself."""
        return self

    # ---- getting
    async def consumer(self, name: str | None = None, *, prefetch: int | None = None, **options: Any) -> AsyncConsumer:
        """Open the consumer *name*, as `RemoteQueue.consumer`, in a thread."""
        opens = functools.partial(self.plain.consumer, name, prefetch=prefetch, **options)
        return AsyncConsumer(await asyncio.get_running_loop().run_in_executor(None, opens))

    async def reader(self, start: Any = 0, stop: Any = None, **options: Any) -> AsyncIterator[RemoteMessage]:
        """Read from *start* on, as `RemoteQueue.reader`: `async for m in q.reader(follow=True)`."""
        place: Place = self.plain.place_of(start, stop, **options)
        place.begin(await self._ask(place.call(None)))
        while True:
            while place.here:
                yield place.here.popleft()
            if place.is_over:
                return
            place.take(await self._ask(place.call(20.0)))

    async def __getitem__(self, index: int | slice) -> Any:
        """What is at that index, as of a `RemoteQueue`: `await q[7]`."""
        if isinstance(index, slice):
            return several(await self._call("messages", index.start, index.stop, index.step), self.plain.decode)
        return one(await self._call("message", index), self.plain.decode)

    async def latest(self, key: bytes) -> RemoteMessage | None:
        """The newest message of that *key*."""
        columns = await self._call("latest", key)
        return None if columns is None else one(columns, self.plain.decode)

    async def at(self, time: datetime.datetime | float) -> int:
        """The index of the first message whose time is *time* or later."""
        return int(await self._call("at", verbs.moment(time)))

    async def at_ns(self, time_ns: int) -> int:
        """The same, of a time in ns since 1970."""
        return int(await self._call("at_ns", time_ns))

    # ---- the rest
    async def consumers(self) -> dict[str, shmq.ConsumerStats]:
        """Every name."""
        return verbs.consumer_statistics(await self._call("consumers"))

    async def drop_consumer(self, name: str) -> None:
        """Forget the consumer *name*."""
        self.plain.writable(f"drop consumer {name!r}")
        await self._call("drop_consumer", name)

    async def sync(self) -> None:
        """Return when everything put before is on the server's disk."""
        self.plain.writable("sync")
        await self._call("sync")

    async def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """Refuse puts from now on."""
        self.plain.writable("shut down")
        await self._call("shutdown", immediate)

    async def finish(self) -> None:
        """End the stream for good."""
        self.plain.writable("finish")
        await self._call("finish")

    async def stats(self) -> shmq.Stats:
        """Figures."""
        return verbs.statistics(await self._call("stats"))

    async def length(self) -> int:
        """How many messages there are: what `len` is of a local queue."""
        return int(await self._call("len"))

    @property
    async def first_index(self) -> int:
        """The first index still there."""
        return int(await self._call("first_index"))

    @property
    async def next_index(self) -> int:
        """The index behind the last claimed one."""
        return int(await self._call("next_index"))

    @property
    def place(self) -> str:
        """What opens it again."""
        return self.plain.place

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self.plain.closed

    async def close(self) -> None:
        """Close it, in a thread."""
        await asyncio.get_running_loop().run_in_executor(None, self.plain.close)

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
        return f"<shmq.net.AsyncQueue {self.plain!r}>"


class AsyncMessage(Fields):
    """A message from a server, whose verbs are awaited."""

    __slots__ = ()

    async def ack(self) -> None:
        """Acknowledge it, as `RemoteMessage.ack`."""
        if self.hand.owner is not None:
            await self.hand.owner.ack(self)

    async def nack(self, delay: float = 0.0) -> None:
        """Give it back, to come again after *delay* seconds."""
        await self._by("nack", delay)

    async def reject(self, reason: object = "") -> None:
        """Have it moved to the dead letters."""
        await self._by("reject", str(reason))

    async def extend(self, seconds: float) -> None:
        """Hold it for so many seconds more."""
        await self._by("extend", seconds)

    async def _by(self, verb: str, given: Any) -> None:
        if self.hand.owner is None:
            raise no_holder(self, verb)
        await self.hand.owner.settle(self, verb, given)


class AsyncConsumer:
    """
    One name's way through a queue at a server, for tasks. Made by `AsyncQueue.consumer`; an asynchronous iterator.

    A get that is cancelled has taken nothing: what was sent for it comes with the next one.

    Attributes:
        plain: the `RemoteConsumer` beneath, whose verbs block.
    """

    def __init__(self, plain: RemoteConsumer) -> None:
        """Have tasks use it."""
        self.plain = plain
        self.name = plain.name
        self.ack_mode = plain.ack_mode

    # ---- getting
    async def get(self, timeout: float | None = None) -> AsyncMessage:
        """The next message, as `RemoteConsumer.get`."""
        return self._messages(*await self._find(1, timeout))[0]

    async def get_many(self, limit: int, timeout: float | None = None) -> list[AsyncMessage]:
        """Between 1 and *limit* messages: those that are there, or the first that comes."""
        return self._messages(*await self._find(limit, timeout))

    async def take(self, timeout: float | None = None) -> Any:
        """The next message's payload, acknowledged at once."""
        return (await self._payloads(*await self._find(1, timeout)))[0]

    async def take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """Between 1 and *limit* payloads, acknowledged at once."""
        return await self._payloads(*await self._find(limit, timeout))

    def _messages(self, batch: Batch, start: int, stop: int, incarnation: int) -> list[AsyncMessage]:
        hand = Hand(self.plain.decode, self if self.ack_mode == "explicit" else None, incarnation, set())
        return [AsyncMessage(batch, at, hand) for at in range(start, stop)]

    async def _payloads(self, batch: Batch, start: int, stop: int, incarnation: int) -> list[Any]:
        if self.ack_mode == "explicit":
            await self.ack(*self._messages(batch, start, stop, incarnation))
        decode = self.plain.decode
        payloads: list[Any] = batch.payloads(start, stop)
        if decode is None:
            return payloads
        return [decoded(decode, each, batch.indexes[start + at]) for at, each in enumerate(payloads)]

    async def _find(self, count: int, timeout: float | None) -> tuple[Batch, int, int, int]:
        wanted, until = limit(count), deadline(timeout)
        found = self.plain.look(wanted)
        return await self._wait(wanted, until, timeout) if found is None else found

    async def _wait(self, wanted: int, until: float, timeout: float | None) -> tuple[Batch, int, int, int]:
        plain, come = self.plain, asyncio.Event()
        tell = functools.partial(_tell, asyncio.get_running_loop(), come.set)
        call: Call | None = None
        plain.held.wait_with(tell)
        try:
            while True:
                come.clear()
                found = plain.look(wanted, call)
                if found is not None:
                    return found
                rest = left(until)
                if call is None and plain.must_ask(timeout):
                    call = plain.asking(wanted, rest)
                    call.when_done(tell)
                    plain.link.ask(call)
                elif rest == 0 and (call is None or call.is_done):
                    raise plain.nothing()
                elif call is not None and call.is_done:
                    call = None
                    continue
                if not await _comes(come, plain.patience(call, rest)) and rest is not None:
                    raise plain.nothing()
        except BaseException:
            plain.held.forget(tell)
            plain.withdraw()
            raise
        finally:
            plain.held.forget(tell)
            plain.stop(call)

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> AsyncMessage:
        """The next message; the loop ends when the queue is over and drained, or this is closed."""
        try:
            return await self.get()
        except (errors.ShutDown, errors.Closed):
            raise StopAsyncIteration from None

    # ---- acknowledging
    async def ack(self, *messages: Fields) -> None:
        """Acknowledge messages of this consumer, as `RemoteConsumer.ack`."""
        self.plain.check()
        call, lost = verbs.acks(self.plain.held, self, messages)
        if call is not None:
            await answer(self.plain.link, call)
            are_acked(messages)
        if lost is not None:
            raise lost

    async def settle(self, message: Fields, verb: str, given: Any) -> None:
        """What the verbs of a message do."""
        self.plain.check()
        await answer(self.plain.link, verbs.settling(self.plain.held, message, verb, given))

    # ---- looking, moving
    async def figures(self) -> list[int]:
        """lag, pending and head: what are plain attributes of a local one."""
        found: list[int] = await answer(self.plain.link, Call("figures", (self.plain.held.cid,)))
        return found

    async def seek(self, to: str | float | datetime.datetime) -> None:
        """Go on from there."""
        await asyncio.get_running_loop().run_in_executor(None, self.plain.seek, to)

    async def close(self) -> None:
        """Close it, in a thread."""
        await asyncio.get_running_loop().run_in_executor(None, self.plain.close)

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
        return f"<shmq.net.AsyncConsumer {self.plain!r}>"
