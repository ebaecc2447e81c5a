"""
The puts of one client: in the order of their numbers, each once, however often it is sent.

What can be done at once is done in the loop, with a timeout of 0; what has to wait, for room or for its turn, waits in
a task, and what comes behind it with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import shmq
from shmq import errors
from shmq.net import packing

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.service import Service
    from shmq.net.shmq1.shared import OpenQueue
    from shmq.net.shmq1.slots import Slot

_OPTIONS = frozenset({"keys", "types", "times_ns", "headers", "ttl", "delay", "dedup"})
_COLUMNS = {"keys": "key", "types": "type", "times_ns": "time_ns", "headers": "headers"}
"""What a batch has in columns, and what a message calls its own."""
_OURS = "net/"
_NUMBERS = 1 << 40
"""Of batches in a session: so many sessions may have one slot after the other that its sequence never ends."""
_PAIR = 2


class Put:
    """
    One batch, on its way into the queue.

    Attributes:
        until: the moment, on the monotonic clock, after which it does not wait; None for as long as it takes.
        number: which batch of its session it is; None when it says itself what it is, with `dedup`.
        is_one: of a single message.
    """

    def __init__(self, tid: int, asked: list[Any], answer: Callable[[int, Any], None]) -> None:
        """
        Of what the client has *asked*: number, timeout, ends, data, options.

        Raises:
            BadRequest: it is no such thing.
        """
        self.tid = tid
        try:
            self.number, timeout, ends, data, options = asked
            self.until = None if timeout is None else time.monotonic() + float(timeout)
            self.options: dict[str, Any] = dict(options or {})
        except (TypeError, ValueError):
            raise packing.BadRequest("a put without number, timeout, ends, data and options") from None
        if self.number is not None and not (type(self.number) is int and 0 <= self.number < _NUMBERS):
            raise packing.BadRequest(f"the number of a batch is 0 to {_NUMBERS - 1}")
        self.payloads: list[Any] = packing.cut(ends, data)
        strange = self.options.keys() - _OPTIONS
        if strange:
            raise packing.BadRequest(f"puts have no option {min(map(str, strange))!r}")
        if not 0 < len(self.payloads) <= packing.MESSAGES:
            raise errors.TooMany(
                f"a batch of {len(self.payloads)} messages; 1 to {packing.MESSAGES} go; nothing was put"
            )
        columns = [self.payloads, *(self.options[name] for name in _COLUMNS.keys() & self.options.keys())]
        self.is_one = all(isinstance(each, list) and len(each) == 1 for each in columns)
        if "delay" in self.options and not self.is_one:
            raise packing.BadRequest("a delay is that of a single message")
        self._answer = answer

    def left(self) -> float | None:
        """Return the seconds that it may wait."""
        return None if self.until is None else max(self.until - time.monotonic(), 0.0)

    def done(self, result: Any) -> None:
        """Tell the client where it is, or what is wrong."""
        if isinstance(result, int):
            result = range(result, result + 1)
        self._answer(self.tid, [result.start, len(result)] if isinstance(result, range) else result)


class Stream:
    """What one session puts into one queue."""

    def __init__(self, service: Service, queue: OpenQueue, session: bytes, client: str | None) -> None:
        """It has no slot yet."""
        self._service = service
        self._queue = queue
        self._session = session
        self._client = client
        self._slot: Slot | None = None
        self._waiting: deque[Put] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._to_disk: set[asyncio.Task[None]] = set()
        self._decode: Callable[[bytes], Any] | None = None

    async def begin(self, *, again: bool) -> bool:
        """
        Have a slot: whether it is the one that this session had before.

        Args:
            again: the session has put before; only its old slot will do.

        Raises:
            TooMany, OSError: there is none.
            Untrusted, BadFormat: the server cannot encode what this queue holds.
        """
        self._decode = _decoder(self._queue.plain.options.codec)
        slots = await self._service.run(self._queue.slots)
        before = self._slot or slots.find(self._session)
        if before is not None and before.session == self._session:
            self._slot = before
            return True
        if not again:
            busy = self._queue.busy
            self._slot = await self._service.run(slots.take, self._session, self._client, busy)
        return False

    # ---- putting
    def put(self, put: Put) -> None:
        """Put it now, or behind those that wait, into a queue that was there a moment ago."""
        if self._waiting or not self._queue.warm or not self._at_once(put):
            self._waiting.append(put)
            if self._worker is None:
                self._worker = asyncio.create_task(self._work())

    def _at_once(self, put: Put) -> bool:
        """Put it without waiting for anything; False when it has to wait."""
        try:
            put.done(self._try(put, 0))
        except errors.SyncPending as problem:
            if problem.index is None:
                put.done(problem)
                return True
            task = asyncio.create_task(self._have_on_disk(put))
            self._to_disk.add(task)
            task.add_done_callback(self._to_disk.discard)
        except (errors.Full, errors.Busy) as problem:
            if isinstance(problem, errors.DiskFull) or self._queue.plain.options.full == "raise":
                put.done(problem)
            else:
                return False
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is the answer
            put.done(self._told(put, problem))
        return True

    async def _work(self) -> None:
        try:
            while self._waiting:
                put = self._waiting[0]
                if self._queue.warm:
                    await self._wait(put)
                else:
                    await self._first(put)
                self._waiting.popleft()
        finally:
            self._worker = None

    async def _first(self, put: Put) -> None:
        """The first put into a queue looks at what was put before, which may take long."""
        async with self._queue.warming:
            waits = False
            try:
                self._check_place()
                put.done(await self._service.run(self._try, put, 0))
                self._queue.warm = True
            except (errors.Full, errors.Busy, errors.SyncPending):
                self._queue.warm = waits = True
            except Exception as problem:  # noqa: BLE001
                put.done(self._told(put, problem))
        if waits:
            await self._wait(put)

    async def _wait(self, put: Put) -> None:
        try:
            self._check_place()
            call, given = self._call(put, awaited=True)
            put.done(await call(*given, timeout=put.left(), **self._named(put)))
        except Exception as problem:  # noqa: BLE001
            put.done(self._told(put, problem))

    async def _have_on_disk(self, put: Put) -> None:
        """It is in the queue: the same put again waits for the disk, together with all others."""
        await self._wait(put)

    def _try(self, put: Put, timeout: float) -> Any:
        call, given = self._call(put, awaited=False)
        return call(*given, timeout=timeout, **self._named(put))

    def _call(self, put: Put, *, awaited: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        queue: Any = self._queue.awaited if awaited else self._queue.plain
        payloads = put.payloads
        if self._decode is not None:
            payloads = [self._decode(payload) for payload in payloads]
        if put.is_one:  # which costs a fraction of a batch
            return queue.put, (payloads[0],)
        return queue.put_many, (payloads,)

    def _check_place(self) -> None:
        """
        Look whether the queue is there still, after others were waited for.

        Raises:
            NoQueue: it is not.
        """
        if not self._queue.opened.is_there():
            raise self._queue.not_there()

    def _named(self, put: Put) -> dict[str, Any]:
        named = dict(put.options)
        if put.is_one:
            for column in _COLUMNS.keys() & named.keys():
                named[_COLUMNS[column]] = named.pop(column)[0]
        if put.number is None:
            named["dedup"] = _checked(named.get("dedup"))
            return named
        slot = self._slot
        if slot is None and self._client is None:
            raise errors.SyncPending(
                f"the server does not know the session of a batch for {self._queue.name}: the batch is in the queue, "
                "or it is not, so look before you put it again"
            )
        if slot is None or slot.session != self._session:
            raise errors.Fenced(
                f"cannot put into {self._queue.name}: another client {_called(self._client)} puts there now; "
                "nothing was put"
            )
        named["dedup"] = slot.producer, slot.base + put.number
        return named

    def _told(self, put: Put, problem: Exception) -> Exception:
        """What it is for the client: a batch that was refused, and after which others were put, is refused again."""
        if isinstance(problem, errors.Mismatch) and put.number is not None:
            return errors.Full(
                f"the batch was not put into {self._queue.name}: it had been refused when the connection broke, and "
                "later ones were put since"
            )
        return problem

    # ---- ending
    async def end(self, *, for_good: bool) -> None:
        """The client is gone: what waits for room is not put any more. *for_good*: it says so itself."""
        for task in (self._worker, *self._to_disk):
            if task is not None:
                task.cancel()
        slot, slots = self._slot, self._queue.slots
        if slot is not None and slot.session == self._session and not self._queue.opened.gone:  # else it is another's
            await self._service.run(lambda: slots().free(slot) if for_good else slots().seen(slot))


def _called(client: str | None) -> str:
    return "that came later" if client is None else f"of the name {client!r}"


def _checked(dedup: Any) -> tuple[str | bytes, int] | None:
    """
    What a client says itself that a batch is.

    Raises:
        ValueError: it is one of a session's.
    """
    if dedup is None:
        return None
    if not isinstance(dedup, list) or len(dedup) != _PAIR:
        raise packing.BadRequest("dedup: a producer and a sequence are wanted")
    name = dedup[0].encode() if isinstance(dedup[0], str) else dedup[0]
    if isinstance(name, bytes) and name.startswith(_OURS.encode()):
        raise ValueError(f'dedup: a producer whose name begins with "{_OURS}" is the server\'s own')
    return tuple(dedup)


def _decoder(codec: str) -> Callable[[bytes], Any] | None:
    """What makes of the bytes that a client sends what the queue takes, which encodes it again."""
    if codec == "bytes":
        return None
    return shmq.codec.codec(codec).decode
