"""A reader whose messages are awaited: without a checkpoint, from any index or time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self

import shmq
from shmq.aio.line import Held, Line
from shmq.aio.message import T

if TYPE_CHECKING:
    from types import TracebackType

    from shmq.aio import loops


class Reader(Held, Generic[T]):
    """
    Messages for the tasks of one loop. Made by `aio.Queue.reader`; an asynchronous iterator of `shmq.Message`.

    Attributes:
        plain: the `shmq.Reader` beneath.
    """

    def __init__(self, loop: loops.Loop, plain: shmq.Reader[T], *, follow: bool) -> None:
        """See `aio.Queue.reader`."""
        what = "this reader"
        super().__init__(loop, what)
        self.plain = plain
        self._follow = follow
        self._line = Line(loop, plain, shmq.Empty, what)

    async def get(self, timeout: float | None = None) -> shmq.Message[T]:
        """
        The next message of a reader that follows, as `shmq.Reader.get`. Cancelled while it waits, it has read nothing.

        Raises:
            Empty, ShutDown, Corrupt, Closed, ValueError: as there.
            Forked, RuntimeError: this is another process, or another loop.
        """
        self.check()
        return await self._line.claim(self._get, timeout)

    def _get(self) -> shmq.Message[T]:
        return self.plain.get(timeout=0)

    def _next(self) -> shmq.Message[T] | None:
        return next(self.plain, None)

    def __aiter__(self) -> Self:
        """Return this object."""
        return self

    async def __anext__(self) -> shmq.Message[T]:
        """The next message; the loop ends as that over a `shmq.Reader` does."""
        self.check()
        if not self._follow:
            found = await self._line.claim(self._next, 0)
            if found is None:
                raise StopAsyncIteration
            return found
        try:
            return await self._line.claim(self._get, None)
        except (shmq.ShutDown, shmq.Closed):
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Read no more."""
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
        return f"<shmq.aio.Reader {self.plain!r}>"
