"""
One client of one queue, over all connections that it has: what it holds, what it puts, and what it was answered.

Without a connection it lasts for GRACE seconds. Then its consumers are closed, and what it held goes to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import shmq
from shmq import errors
from shmq.net import names, packing, rights
from shmq.net.shmq1 import asking, reading
from shmq.net.shmq1.consuming import Consumer
from shmq.net.shmq1.putting import Put, Stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shmq.net.service import Service
    from shmq.net.shmq1.shared import OpenQueue

_KEPT = 2048
"""Answers that are kept, in case that they did not arrive: more than a client may have asked for."""
_SMALL = 3
"""Parts of the largest one that is kept. What is larger changes nothing, and is asked again."""


class Line(Protocol):
    """
    A client's connection, as it is used here.

    Attributes:
        peer: who is there: a process of this machine, or an address.
    """

    @property
    def peer(self) -> str:
        """Who is there."""

    def say(self, message: list[Any]) -> None:
        """Send that."""

    def may(self, verb: str, queue: str | None = None) -> bool:
        """Whether who is there may do that, with its own queue or with another one."""

    async def room(self) -> None:
        """Return when who is there reads."""


class Client:
    """In the loop."""

    def __init__(
        self, service: Service, queue: OpenQueue, session: bytes, name: str | None, gone: Callable[[], None]
    ) -> None:
        """It has no connection yet; *gone* is called when it has ended."""
        self.session = session
        self.queue = queue
        self._service = service
        self._name = name
        self._stream = Stream(service, queue, session, name)
        self._putting: set[int] = set()
        self._consumers: dict[int, Consumer] = {}
        self._line: Line | None = None
        self._here = asyncio.Event()
        self._heard = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: OrderedDict[int, list[Any]] = OrderedDict()
        self._ended = False
        self._gone = gone
        self._ending: asyncio.Task[None] | None = None
        queue.opened.leaving.add(self.leave)

    # ---- connections
    def attach(self, line: Line) -> None:
        """It is here, by that connection alone."""
        for consumer in self._consumers.values():
            consumer.hold_back()
        self._line = line
        self._here.set()
        self._heard = time.monotonic()
        self._watch()

    def detach(self, line: Line) -> None:
        """That connection is gone."""
        if self._line is line:
            self._line = None
            self._here.clear()

    def _watch(self) -> None:
        if self._timer is None and not self._ended:
            left = self._heard + packing.GRACE - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(left, 0.1), self._look)

    def _look(self) -> None:
        self._timer = None
        if time.monotonic() - self._heard < packing.GRACE:
            self._watch()
        elif not self._ended:
            self.leave()

    def leave(self) -> None:
        """Have it end, though it has not said so: it is silent, or its queue is not there any more."""
        if not self._ended and self._ending is None:
            self._ending = asyncio.create_task(self.end(for_good=False))

    async def end(self, *, for_good: bool) -> None:
        """Let go of all that it has. *for_good*: it says so itself."""
        if self._ended:
            return
        self._ended = True
        self._gone()
        try:
            await self._end(for_good=for_good)
        finally:
            self.queue.opened.leaving.discard(self.leave)
            self._service.let_go(self.queue.opened)

    async def _end(self, *, for_good: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks.values()):
            if task is not asyncio.current_task():
                task.cancel()
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            self._lets_go_of(consumer)
            with contextlib.suppress(errors.ShmqError, OSError):
                await consumer.close()
        with contextlib.suppress(errors.ShmqError, OSError):
            await self._stream.end(for_good=for_good)
        if self._line is not None:
            self._line.say(["over", 0])

    @property
    def ended(self) -> bool:
        """Whether it was silent for too long, or has said good-bye."""
        return self._ended

    # ---- requests
    def asked(self, verb: str, tid: int, rest: list[Any]) -> None:
        """
        Take one request. What was asked before is not done again, and answered as it was.

        Raises:
            BadRequest: it is none.
        """
        self._heard = time.monotonic()
        if not self.queue.opened.is_there():
            self.leave()
            self.refuse(verb, tid)
            return
        asking.check_number(verb, tid)
        if tid and self._is_known(verb, tid):
            return
        self._check_room(verb)
        if verb not in rights.SHMQ1:  # also one of ours that the table forgot: it is refused, and not free
            raise packing.BadRequest(f"this server has no verb {verb[:40]!r}")
        self._check(verb, rights.SHMQ1[verb] if verb != "credit" else None)
        if verb == "put":
            put = Put(tid, rest, self._answer)
            self._putting.add(tid)
            self._stream.put(put)
        elif verb == "credit":
            asking.check(verb, rest)
            self._credit(*rest)
        elif verb == "stop":
            asking.check(verb, rest)
            self._stop(*rest)
        elif verb == "ack" and not self._syncs():
            asking.check(verb, rest)
            self._done(tid, lambda: self._consumer(rest[0]).ack(rest[1]))
        elif verb == "ping":
            self._say(["pong", tid])
        else:
            asking.check(verb, rest)
            self._tasks[tid] = asyncio.create_task(self._do(tid, _VERBS[verb], rest))

    def _check_room(self, verb: str) -> None:
        """
        Count what is under way, whichever connection it came by.

        Raises:
            BadRequest: it is too much.
        """
        if len(self._tasks) >= self._service.limits.requests:
            raise packing.BadRequest(f"more than {self._service.limits.requests} requests under way")
        if verb == "put" and len(self._putting) >= packing.WINDOW:
            raise packing.BadRequest(f"more than {packing.WINDOW} batches under way")

    def refuse(self, verb: str, tid: int) -> None:
        """It has ended, or will at once: of a batch that comes now it is known that it is not put."""
        if verb == "put" and self.queue.opened.gone:
            self._answer(tid, self.queue.not_there())

    def _credit(self, cid: int, number: int, granted: int) -> None:
        """No answer is waited for: where it is not allowed any more, the consumer tells whoever waits at it."""
        if not self._may(rights.READ):
            told = packing.error(0, self._refusal("credit", rights.READ))[2:]
            self._tell(["messages", 0, cid, 0, None, told, 0])
            return
        consumer = self._consumer(cid)
        consumer.confirm(number)
        consumer.grant(granted)

    def _stop(self, tid: int) -> None:
        """Nobody waits for that answer any more. A get that is stopped has taken nothing."""
        task = self._tasks.get(tid)
        if task is not None:
            task.cancel()
            self._say(["messages", tid, 0, 0, None, None, 0])

    def _is_known(self, verb: str, tid: int) -> bool:
        answer = self._answers.get(tid)
        if answer is not None:
            self._say(answer)
            return True
        if tid in self._tasks or tid in self._putting:
            return True
        return verb == "get" and any(consumer.is_on_its_way(tid) for consumer in self._consumers.values())

    def _syncs(self) -> bool:
        return self.queue.plain.options.durability.waits

    async def _do(self, tid: int, does: Callable[..., Awaitable[Any]], rest: list[Any]) -> None:
        try:
            result = await does(self, tid, *rest)
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # noqa: BLE001  # it is the client's
            self._answer(tid, problem)
        else:
            if result is not _SAID:
                self._answer(tid, result)
        finally:
            self._tasks.pop(tid, None)

    def _done(self, tid: int, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except Exception as problem:  # noqa: BLE001  # it is the client's
            result = problem
        self._answer(tid, result)

    def _answer(self, tid: int, result: Any) -> None:
        failed = isinstance(result, Exception)
        said = str if isinstance(result, names.NoQueue) else self.queue.said  # or a guess of a path is confirmed
        message = packing.error(tid, result, said) if failed else ["ok", tid, result]
        self._putting.discard(tid)
        if not (isinstance(result, dict) or (isinstance(result, list) and len(result) > _SMALL)):
            self._answers[tid] = message
            if len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        self._say(message)

    def _say(self, message: list[Any]) -> None:
        if self._line is not None:
            self._line.say(message)

    def _tell(self, message: list[Any]) -> None:
        """What a consumer sends, whose errors speak of this machine."""
        if message[5] is not None:
            message[5][1] = self.queue.said(message[5][1])
        self._say(message)

    async def _room(self) -> None:
        while self._line is None:
            await self._here.wait()
        await self._line.room()

    def _may(self, right: str) -> bool:
        return self._line is not None and self._line.may(right)

    def _check(self, what: str, right: str | None) -> None:
        if right is not None and not self._may(right):
            raise self._refusal(what, right)

    def _refusal(self, what: str, right: str) -> errors.NotFound:
        """Whoever may do something with a queue knows that it is there, and is told what is not given."""
        if any(map(self._may, rights.ABOUT)):
            return names.NoQueue(f"{what} needs the right {right!r} to {self.queue.name!r}, and you have it not")
        return names.not_found(self.queue.name)

    def _consumer(self, cid: Any) -> Consumer:
        found = self._consumers.get(cid)
        if found is None:
            raise errors.Closed(f"this client has no consumer {cid!r} of {self.queue.name}, or not any more")
        return found

    # ---- what each verb does
    async def producer(self, _: int, again: bool) -> bool:
        """Have a slot."""
        return await self._stream.begin(again=again)

    async def consumer(self, _: int, cid: int, name: str | None, options: dict[str, Any]) -> list[Any]:
        """Open a consumer, or find that it is open: its name, how it acknowledges, and whether it was open."""
        found = self._consumers.get(cid)
        if found is None:
            if len(self._consumers) >= self._service.limits.channels:
                raise errors.TooMany(f"this client has {self._service.limits.channels} consumers, and no more")
            given = await self._fit(options)
            try:
                awaited = await self.queue.awaited.consumer(name, **given)
            except errors.Busy as problem:
                raise self._busy(name, problem) from None
            found = Consumer(cid, awaited, self._service.limits, self._tell, self._room)
            if self._ended:
                await found.close()
                raise errors.Closed("the client has gone")
            self._consumers[cid] = found
            self.queue.holders[awaited.name] = self
            return [awaited.name, awaited.ack_mode, False]
        return [found.awaited.name, found.awaited.ack_mode, True]

    def _busy(self, name: str | None, problem: errors.Busy) -> errors.Busy:
        """Who has the name, for somebody on another machine: "this process" is the server there."""
        holder = None if name is None else self.queue.holders.get(name)
        if holder is None:
            return errors.Busy(
                re.sub(r"held by (process \d+|another process)", r"held by \1 at the server", str(problem))
            )
        who = "this client itself (close it first)" if holder is self else holder.called()
        return errors.Busy(
            f"consumer {name!r} of {self.queue.name} is held by {who}; use another name, or wait until it is closed"
        )

    def called(self) -> str:
        """Return who this is, for another client."""
        where = "which is not connected now" if self._line is None else self._line.peer
        return f"another client of the server{'' if self._name is None else f', {self._name!r}'}, {where}"

    async def _fit(self, options: dict[str, Any]) -> dict[str, Any]:
        """
        Return *options* as the queue takes them: what names another queue names it as clients do, and is its path then.

        Raises:
            BadRequest: consumers of a server have no such option.
            NotFound: there is no such queue, or none that this client may append to.
        """
        strange = options.keys() - _CONSUMING
        if strange:
            raise packing.BadRequest(f"consumers have no option {min(map(str, strange))!r} at a server")
        given = dict(options)
        if given.get("filter") is not None:
            given["filter"] = shmq.Filter.from_stored(given["filter"])
        for option in _QUEUES & {each for each, value in given.items() if value is not None}:
            given[option] = await self._place(option, given[option])
        return given

    async def _place(self, option: str, name: Any) -> str:
        if not isinstance(name, str):
            raise packing.BadRequest(f"{option}: the name of a queue is wanted, not {type(name).__name__}")
        if self._line is None or not self._line.may(rights.APPEND, "/".join(names.parts_of(name))):
            raise names.not_found(name)
        path = await self._service.run(self._service.place, name)
        above, last = os.path.split(path)
        return last if above == os.path.dirname(self.queue.plain.path) else path

    async def get(self, tid: int, cid: int, number: int, count: int, timeout: float | None) -> Any:
        """Send messages in answer."""
        consumer = self._consumer(cid)
        consumer.confirm(number)
        await consumer.get(tid, count, timeout)
        return _SAID

    async def again(self, _: int, cid: int, number: int, granted: int) -> None:
        """Send again what the client has not got."""
        consumer = self._consumer(cid)
        consumer.send_again(number)
        consumer.grant(granted)

    async def ack(self, _: int, cid: int, indexes: list[int]) -> None:
        """Acknowledge."""
        await self._service.run(self._consumer(cid).ack, indexes)

    def _lets_go_of(self, consumer: Consumer) -> None:
        if self.queue.holders.get(consumer.awaited.name) is self:
            del self.queue.holders[consumer.awaited.name]

    async def back(self, _: int, cid: int, indexes: list[int]) -> None:
        """Take back what nobody has seen."""
        self._consumer(cid).take_back(indexes)

    async def settle(self, _: int, cid: int, verb: str, index: int, given: Any) -> None:
        """nack, reject, extend."""
        await self._consumer(cid).settle(verb, index, given)

    async def seek(self, _: int, cid: int, to: str | float) -> None:
        """Move a consumer."""
        await self._consumer(cid).seek(to)

    async def peek(self, _: int, cid: int) -> Any:
        """What comes next."""
        return await self._consumer(cid).peek()

    async def figures(self, _: int, cid: int) -> list[int]:
        """lag, pending, head."""
        return await self._consumer(cid).figures()

    async def shut(self, _: int, cid: int, left: int | None, received: int | None, unseen: list[int] | None) -> None:
        """
        Close a consumer, whose client has what is up to the batch *received*, used what is before *left*, and has shown
        *unseen* to nobody.
        """
        consumer = self._consumers.pop(cid, None)
        if consumer is not None:
            self._lets_go_of(consumer)
            await consumer.close(left, received, unseen or ())

    async def read(self, _: int, start: Any, stop: Any, count: int, wait: float | None, options: Any) -> list[Any]:
        """Messages from an index on; *wait*: seconds, at the end, for more to come."""
        queue, limits = self.queue.plain, self._service.limits
        await self._room()
        found = await self._service.run(reading.read, queue, limits, start, stop, count, options)
        _, place, upto, is_over, _ = found
        if wait is None or not is_over or found[0][-2]:
            return found
        try:
            following = self.queue.awaited.reader(place, upto, follow=True, filter=_filter(options))
            try:
                await following.get(min(wait, limits.wait))
            finally:
                following.plain.close()
        except errors.Empty:
            return [*found[:3], False, found[4]]
        except errors.ShutDown:
            return found
        return await self._service.run(reading.read, queue, limits, place, upto, count, options)

    async def call(self, _: int, name: Any = None, *given: Any) -> Any:
        """What a queue says of itself."""
        right, does = asking.call(name, given)
        self._check(str(name), right)
        return await self._service.run(does, self.queue.plain, *given)


def _filter(options: dict[str, Any]) -> shmq.Filter | None:
    stored = options.get("filter")
    return None if stored is None else shmq.Filter.from_stored(stored)


_QUEUES = frozenset({"dead_letter", "expire_to"})
"""Options of a consumer that name another queue."""
_CONSUMING = _QUEUES | {
    "group",
    "ack",
    "lease",
    "max_attempts",
    "ordered_by",
    "window",
    "start",
    "skip_corrupt",
    "hold",
    "filter",
    "ephemeral",
    "expires",
}
"""Options of a consumer that a client may give. How the server waits is its own affair."""
_SAID = object()
"""Of a request that was answered already."""
_VERBS: dict[str, Callable[..., Awaitable[Any]]] = {
    "producer": Client.producer,
    "consumer": Client.consumer,
    "get": Client.get,
    "again": Client.again,
    "ack": Client.ack,
    "back": Client.back,
    "settle": Client.settle,
    "seek": Client.seek,
    "peek": Client.peek,
    "figures": Client.figures,
    "shut": Client.shut,
    "read": Client.read,
    "call": Client.call,
}
