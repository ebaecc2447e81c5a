"""A client: calls by name, from any thread of any process that has it."""

from __future__ import annotations

import asyncio
import copy
import functools
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import shmq
from shmq.rpc import border, crossing, deadlines, running, wire
from shmq.rpc.border import Packing
from shmq.rpc.errors import TimedOut
from shmq.rpc.futures import CallFuture, Pending
from shmq.rpc.inbox import Inbox
from shmq.rpc.links import Link
from shmq.rpc.places import Place
from shmq.rpc.proxies import Namespace, typed
from shmq.rpc.streams import Stream
from shmq.rpc.waiters import Waiter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from types import TracebackType

_Interface = TypeVar("_Interface")
_PAUSE = 0.001


class Client:
    """
    Calls the methods of whoever serves a path. Safe to share between threads; a forked child gets replies of its own.

        client = shmq.rpc.Client("calc/")
        client.call("add", 1, 2, timeout=1.0)
        client.calc.add(1, 2)

    It pickles to its path and options.

    Args:
        path: where servers are, or will be: requests wait for them.
        timeout: seconds for calls that say nothing else; None for as long as it takes.
        trusted: pickle what msgspec does not know, and unpickle what servers send.
        create: whether to make the path when it is absent.
        wait: how it waits for replies, as `shmq.Queue.consumer`: "hybrid", "spin" or "sleep".
        options: of the queue of requests, where it is made.

    Attributes:
        path: where it calls.
        timeout: seconds for calls that say nothing else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        trusted: bool = False,
        create: bool = True,
        wait: str = "hybrid",
        **options: Any,
    ) -> None:
        """Open it; servers learn of it with its first call."""
        place = Place.of(path)
        self.path = place.path
        deadlines.of(timeout)  # refuses what means nothing
        self.timeout = timeout
        self._mode = wire.AT_MOST_ONCE
        self._packing = Packing(trusted=bool(trusted))
        self._given = {"timeout": timeout, "trusted": trusted, "create": create, "wait": wait, **options}
        self._link = Link(functools.partial(_open, place, create, wait, options), place)
        self._link.open()

    def options(self, *, timeout: float | None = None, at_least_once: bool = False) -> Client:
        """
        The same client, whose calls have other options; closing either closes both.

        Args:
            timeout: seconds for calls that say nothing else; None leaves it as it is.
            at_least_once: a call whose server died is begun again, by the next server, as often as servers allow. It
                must not matter that it runs twice.
        """
        deadlines.of(timeout)
        other = copy.copy(self)
        mode = wire.AT_LEAST_ONCE if at_least_once else wire.AT_MOST_ONCE
        vars(other).update(timeout=self.timeout if timeout is None else timeout, _mode=mode)
        return other

    # ---- calls
    def call(self, method: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """
        Have a server run *method*, and return what it returns, or raise what it raises; of a generator, a `Stream`.

        It runs at most once: if its server dies, that is the answer. See `options` for another way.

        Args:
            timeout: seconds to wait, and after which no server begins it; the client's own by default.
            arguments, named: what the method takes.

        Raises:
            TimedOut: nothing came in time; it may have run.
            ServerDied: the server that had it died; it may have run.
            NoSuchMethod, WrongArguments: nothing ran.
            RemoteError: what it raised, when that class is not known here; otherwise that itself.
            TypeError: an argument cannot cross; nothing was asked.
            Full, DiskFull, ShutDown, Closed: nothing was asked.
        """
        return self._call(method, arguments, named, timeout, Any)

    def _call(
        self, method: str, arguments: Sequence[Any], named: dict[str, Any], timeout: float | None, returns: Any
    ) -> Any:
        inbox = self._link.inbox or self._link.open()
        number = next(inbox.numbers)
        deadline_ns = self._deadline(timeout)
        until = _until(deadline_ns)
        head = (inbox.client, number, method, self._mode, deadline_ns)
        request = border.request(self._packing, head, arguments, named)
        waiter = inbox.waiting[number] = Waiter()
        try:
            inbox.ask(request, _left(until))
            inbox.wait_for(waiter, until)
            reply = waiter.reply
            if reply is None:
                raise TimedOut(f"{method}() at {self.path} was not answered in time; it may have run, or may still")
            if reply.kind == wire.VALUE:
                return self._packing.body(reply.body, returns)
            return self._other(reply, (inbox.client, number), method, until, returns)
        except Exception:
            raise
        except BaseException:  # a signal's handler has raised, and nobody waits any more
            self._link.giving.up(inbox.client, number)
            raise
        finally:
            inbox.waiting.pop(number, None)

    def _other(self, reply: wire.Reply, key: tuple[bytes, int], method: str, until: float | None, returns: Any) -> Any:
        """What comes of a reply that is no result."""
        if reply.kind != wire.STREAMS:
            raise crossing.back(reply.body)
        read = functools.partial(self._packing.body, kind=returns)
        return Stream(method, key, read, functools.partial(self._link.giving.up, *key), until)

    def submit(self, method: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> CallFuture:
        """
        As `call`, without waiting: a `concurrent.futures.Future`, whose `cancel` tells the server.

        Its callbacks run in a thread of the client's. With a thousand calls that wait, this one waits for one of them.
        """
        return self._submit(method, arguments, named, timeout, Any)

    def _submit(
        self, method: str, arguments: Sequence[Any], named: dict[str, Any], timeout: float | None, returns: Any
    ) -> CallFuture:
        inbox = self._link.inbox or self._link.open()
        inbox.pump.wait_for_room()
        deadline_ns = self._deadline(timeout)
        return self._begin(inbox, method, arguments, named, deadline_ns, returns, _left(_until(deadline_ns)))

    def _deadline(self, timeout: float | None) -> int:
        return deadlines.of(self.timeout if timeout is None else timeout, running.deadline_ns())

    def _begin(
        self,
        inbox: Inbox,
        method: str,
        arguments: Sequence[Any],
        named: dict[str, Any],
        deadline_ns: int,
        returns: Any,
        room: float | None,
    ) -> CallFuture:
        """Ask, wait up to *room* seconds until that can be, and see to what comes of it."""
        pump = inbox.pump
        number = next(inbox.numbers)
        key = (inbox.client, number)
        future = CallFuture()
        until = _until(deadline_ns)
        request = border.request(self._packing, (*key, method, self._mode, deadline_ns), arguments, named)

        def read(reply: wire.Reply) -> Any:
            if reply.kind == wire.VALUE:
                return self._packing.body(reply.body, returns)
            return self._other(reply, key, method, until, returns)

        pending = Pending(pump, number, until, read, future)

        def give_up() -> None:
            pump.drop(pending)
            self._link.giving.up(*key)

        future.give_up = give_up
        try:
            pump.add(pending, inbox)
            inbox.ask(request, room)
        except BaseException:
            pump.drop(pending)
            raise
        return future

    async def acall(self, method: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """As `call`, awaited, in asyncio. A task that is cancelled meanwhile gives the call up."""
        return await self._acall(method, arguments, named, timeout, Any)

    async def _acall(
        self, method: str, arguments: Sequence[Any], named: dict[str, Any], timeout: float | None, returns: Any
    ) -> Any:
        inbox = self._link.inbox
        if inbox is None:
            inbox = await asyncio.to_thread(self._link.open)
        deadline_ns = self._deadline(timeout)
        while inbox.pump.is_full():  # noqa: ASYNC110  # rare, and over soon
            await asyncio.sleep(_PAUSE)
        while True:
            try:
                future = self._begin(inbox, method, arguments, named, deadline_ns, returns, 0.0)
            except shmq.DiskFull:
                raise
            except shmq.Full:  # by its bounds; the loop goes on while a server makes room
                if inbox.refuses or deadlines.is_over(deadline_ns):
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                return await asyncio.wrap_future(future)

    def tell(self, method: str, /, *arguments: Any, **named: Any) -> None:
        """
        Have a server run *method*, and wait for nothing: when this returns, the request is in the queue, and stays
        there until a server has done it, whatever becomes of this process, and of servers that die with it.

        What it raises is in the log of its server. It may run twice; one that kills its servers is a dead letter.

        Raises:
            TypeError: an argument cannot cross; nothing was asked.
            Full, DiskFull, ShutDown, Closed: nothing was asked.
        """
        inbox = self._link.inbox or self._link.open()
        head = (inbox.client, next(inbox.numbers), method, wire.UNANSWERED, deadlines.NEVER)
        inbox.put(border.request(self._packing, head, arguments, named))

    # ---- other ways to write them
    def __getattr__(self, name: str) -> Namespace:
        """`client.orders.add(7)` is `client.call("orders.add", 7)`; a server's own name may come first."""
        if name.startswith("_"):
            raise AttributeError(f"a Client has no attribute {name!r}")
        return Namespace(self, name)

    def typed(self, interface: Callable[..., _Interface]) -> _Interface:
        """
        Calls by the methods of *interface*, a class or a Protocol whose annotations say what comes back.

            calc = client.typed(Calc)
            calc.add(1, 2)                  an int, or BadFormat

        Methods that are coroutines there are awaited here, and what is said to return an iterator streams. Their bodies
        are not used; it need not be what the server has.
        """
        return typed(interface, self._call, self._acall)

    # ---- the end
    def close(self) -> None:
        """Make no more calls; who waits gets Closed. Closing twice is fine."""
        self._link.close()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> Any:
        """Its path and options; where it is unpickled it has a reply queue of its own."""
        return _remake, (self.path, self._given, self.timeout, self._mode == wire.AT_LEAST_ONCE)

    def __copy__(self) -> Client:
        """The same queues; for `options`."""
        other = object.__new__(Client)
        vars(other).update(vars(self))
        return other

    def __repr__(self) -> str:
        """Its path."""
        return f"<shmq.rpc.Client {self.path}{' (closed)' if self._link.closed else ''}>"


def _remake(path: str, given: dict[str, Any], timeout: float | None, again: bool) -> Client:
    return Client(path, **given).options(timeout=timeout, at_least_once=again)


def _until(deadline_ns: int) -> float | None:
    """That time by the monotonic clock."""
    return None if deadline_ns == deadlines.NEVER else time.monotonic() + deadlines.seconds_to(deadline_ns)


def _left(until: float | None) -> float | None:
    """How many seconds there are until then."""
    return None if until is None else max(until - time.monotonic(), 0.0)


def _open(place: Place, create: bool, wait: str, options: dict[str, Any]) -> Inbox:
    requests = place.requests(create=create, options=options)
    try:
        return Inbox(requests, wait)
    except BaseException:
        requests.close()
        raise
