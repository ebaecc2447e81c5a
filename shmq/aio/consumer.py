"""A consumer whose gets are awaited. It claims as the plain one does, on the loop's thread, and waits in a line."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import shmq
from shmq.aio.line import Held, Line
from shmq.aio.message import Message, T

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from shmq.aio import loops

_Found = TypeVar("_Found")


class Consumer(Held, Generic[T]):
    """
    One name's way through a queue, for the tasks of one loop. Made by `aio.Queue.consumer`; an asynchronous iterator.

    A get that is cancelled while it waits has taken nothing. One that returned has taken: whoever must not lose what
    a task was handed uses ack="explicit".

    Attributes:
        plain: the `shmq.Consumer`, `shmq.LoneConsumer` or `shmq.GroupConsumer` beneath.
    """

    def __init__(self, loop: loops.Loop, plain: shmq.Consumer[T] | shmq.GroupConsumer[T], *, syncs: bool) -> None:
        """See `aio.Queue.consumer`; *syncs*: whether an acknowledgement waits for the disk."""
        what = f"consumer {plain.name!r}"
        super().__init__(loop, what)
        self.plain = plain
        self._syncs = syncs and plain.ack_mode == "explicit"
        self._line = Line(loop, plain, shmq.Empty, what)

    # ---- getting
    async def get(self, timeout: float | None = None) -> Message[T]:
        """
        The next message, as `shmq.Consumer.get`.

        Raises:
            Empty: *timeout* seconds have passed; with 0 it does not wait.
            ShutDown, Closed, Corrupt, Gone: as there.
            Forked, RuntimeError: this is another process, or another loop.
        """
        return Message(await self._claim(self._plain_get, timeout), self, syncs=self._syncs)

    async def take(self, timeout: float | None = None) -> T:
        """The next message's payload, acknowledged at once; otherwise as `get`."""
        return await self._claim(self._plain_take, timeout)

    async def get_many(self, limit: int, timeout: float | None = None) -> list[Message[T]]:
        """Between 1 and *limit* messages: those that are there, or the first that comes; otherwise as `get`."""
        found = await self._claim(functools.partial(self.plain.get_many, limit, timeout=0), timeout)
        return [Message(each, self, syncs=self._syncs) for each in found]

    async def take_many(self, limit: int, timeout: float | None = None) -> list[T]:
        """Between 1 and *limit* payloads, acknowledged at once; otherwise as `get`."""
        return await self._claim(functools.partial(self.plain.take_many, limit, timeout=0), timeout)

    async def take_arrow(
        self,
        limit: int,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        """Between 1 and *limit* messages as one pyarrow record batch, as `shmq.Consumer.take_arrow`."""
        look = functools.partial(self.plain.take_arrow, limit, timeout=0, columns=columns, max_bytes=max_bytes)
        return await self._claim(look, timeout)

    def _plain_get(self) -> shmq.Message[T]:
        return self.plain.get(timeout=0)

    def _plain_take(self) -> T:
        return self.plain.take(timeout=0)

    async def _claim(self, look: Callable[[], _Found], timeout: float | None) -> _Found:
        self.check()
        return await self._line.claim(look, timeout)

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> Message[T]:
        """The next message; the loop ends when the queue is over and drained, or this is closed."""
        try:
            return await self.get()
        except (shmq.ShutDown, shmq.Closed):
            raise StopAsyncIteration from None

    def fileno(self) -> int:
        """As `shmq.Consumer.fileno`; nobody needs it in this loop."""
        return self.plain.fileno()

    # ---- acknowledging
    async def ack(self, *messages: Message[T]) -> None:
        """
        Acknowledge messages of this consumer, as `shmq.Consumer.ack`.

        Where that waits for the disk, a thread does; cancelled meanwhile, they are acknowledged all the same.
        """
        plain = [each.plain if isinstance(each, Message) else each for each in messages]
        if self._syncs:
            await self.in_thread(self.plain.ack, *plain)
        else:
            self.check()
            self.plain.ack(*plain)

    # ---- looking, moving
    @property
    def name(self) -> str:
        """The name."""
        return self.plain.name

    @property
    def ack_mode(self) -> str:
        """Either "auto" or "explicit"."""
        return self.plain.ack_mode

    @property
    def head(self) -> int:
        """The next index this name has not finished."""
        return self.plain.head

    @property
    def pending(self) -> int:
        """How many messages are handed out and not acknowledged."""
        return self.plain.pending

    @property
    def lag(self) -> int:
        """How many messages this name has not finished."""
        return self.plain.lag

    async def seek(self, to: str | float | datetime.datetime) -> None:
        """Go on from there, as `shmq.Consumer.seek`; in a thread."""
        await self.in_thread(self.plain.seek, to)

    async def close(self) -> None:
        """Close it, in a thread. Who waits here gets Closed, and a loop ends."""
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
        return f"<shmq.aio.Consumer {self.plain!r}>"
