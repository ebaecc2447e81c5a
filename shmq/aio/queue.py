"""An open queue for the tasks of one loop, and the way to it: `open`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, overload

import shmq
from shmq.aio import loops
from shmq.aio.consumer import Consumer
from shmq.aio.disk import Disk
from shmq.aio.line import Held
from shmq.aio.message import T
from shmq.aio.producer import Producer
from shmq.aio.reader import Reader

if TYPE_CHECKING:
    import datetime
    import os
    from collections.abc import Iterable
    from types import TracebackType

_REMOTE = ("csp://", "acsp://", "csp+unix://", "acsp+unix://")
"""How the address of a queue at a server begins."""


@overload
async def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: Literal["bytes"] = ...,
    **keywords: Any,
) -> Queue[bytes]: ...
@overload
async def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: Literal["text"],
    **keywords: Any,
) -> Queue[str]: ...
@overload
async def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: shmq.codec.Codec[T],
    **keywords: Any,
) -> Queue[T]: ...
@overload
async def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: shmq.Options | None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    **keywords: Any,
) -> Queue[Any]: ...
async def open(  # noqa: A001  # shmq.aio.open, as shmq.open
    path: str | os.PathLike[str] | None,
    *,
    create: bool = True,
    read_only: bool = False,
    options: shmq.Options | None = None,
    trusted: bool = False,
    unsafe_filesystem: bool = False,
    **keywords: Any,
) -> Queue[Any]:
    """
    Open the queue at *path*, as `shmq.open`, in a thread; what comes of it belongs to the loop that runs here.

    Args:
        path, create, read_only, options, trusted, unsafe_filesystem, keywords: as there. Of a queue at a server
            ("acsp://HOST:PORT/NAME") the keywords are those of `shmq.net.connect`, the loop is asyncio's, and what is
            returned is a `shmq.net.AsyncQueue`, which has these verbs.

    Raises:
        As there.
        RuntimeError: no loop of asyncio, uvloop or trio runs here.
    """
    if isinstance(path, str) and path.startswith(_REMOTE):
        return cast("Queue[Any]", await shmq.net.aconnect(path, read_only=read_only, **keywords))
    loop = loops.current()
    opens = functools.partial(
        shmq.open,
        path,
        create=create,
        read_only=read_only,
        options=options,
        trusted=trusted,
        unsafe_filesystem=unsafe_filesystem,
        **keywords,
    )
    return Queue(await loop.open(opens, lambda opened: opened.close()))


class Queue(Held, Generic[T]):
    """
    One queue, open, for the tasks of one loop. Made by `aio.open`, or of a `shmq.Queue` in the loop.

    Attributes:
        plain: the `shmq.Queue` beneath, for all that needs no wait.
    """

    def __init__(self, plain: shmq.Queue[T]) -> None:
        """
        Have the tasks of the loop that runs here use *plain*.

        Raises:
            RuntimeError: no loop of asyncio, uvloop or trio runs here.
        """
        super().__init__(loops.current(), f"queue {plain.place}")
        self.plain = plain
        self._disk = Disk(self._loop, plain)
        self._producer: Producer[T] | None = None

    # ---- putting
    def _shared_producer(self) -> Producer[T]:
        if self._producer is None:
            self._producer = Producer(self._loop, self.plain, self._disk)
        return self._producer

    async def producer(self) -> Producer[T]:
        """A producer of your own, as `shmq.Queue.producer`; `put` uses one that all tasks share."""
        self.check()
        return await self._loop.call(Producer, self._loop, self.plain, self._disk)

    async def put(self, payload: T | shmq.codec.AsBytes, **named: Any) -> int:
        """Append *payload* and return its index; what else it takes, and raises, is told at `aio.Producer.put`."""
        self.check()
        return await self._shared_producer().put(payload, **named)

    async def put_many(self, payloads: Iterable[T | shmq.codec.AsBytes], **named: Any) -> range:
        """Append all *payloads* as one batch, as `aio.Producer.put_many`."""
        self.check()
        return await self._shared_producer().put_many(payloads, **named)

    async def put_arrow(self, batch: Any, **named: Any) -> range:
        """Append the rows of a record batch, as `aio.Producer.put_arrow`."""
        self.check()
        return await self._shared_producer().put_arrow(batch, **named)

    # ---- getting
    async def consumer(self, name: str | None = None, **options: Any) -> Consumer[T]:
        """
        Open the consumer *name*, as `shmq.Queue.consumer` with those *options*; in a thread.

        Cancelled meanwhile, it ends when the thread has, and the name is free.
        """
        self.check()
        opens = functools.partial(self.plain.consumer, name, **options)
        plain = await self._loop.open(opens, lambda opened: opened.close())
        return Consumer(self._loop, plain, syncs=self.plain.options.durability.waits)

    def reader(
        self,
        start: str | float | datetime.datetime = 0,
        stop: float | datetime.datetime | None = None,
        *,
        follow: bool = False,
        **options: Any,
    ) -> Reader[T]:
        """Read from *start* on, as `shmq.Queue.reader` with those *options*: `async for m in q.reader(follow=True)`."""
        self.check()
        return Reader(self._loop, self.plain.reader(start, stop, follow=follow, **options), follow=follow)

    # ---- the rest, in a thread
    async def sync(self) -> None:
        """Return when everything put before is on the disk, as `shmq.Queue.sync`."""
        await self.in_thread(self.plain.sync)

    async def stats(self) -> shmq.Stats:
        """Figures, as `shmq.Queue.stats`."""
        return await self.in_thread(self.plain.stats)

    async def consumers(self) -> dict[str, shmq.ConsumerStats]:
        """Every name, as `shmq.Queue.consumers`."""
        return await self.in_thread(self.plain.consumers)

    async def drop_consumer(self, name: str) -> None:
        """Remove that name, as `shmq.Queue.drop_consumer`."""
        await self.in_thread(self.plain.drop_consumer, name)

    async def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """Have puts refused and gets end, as `shmq.Queue.shutdown`."""
        await self.in_thread(self.plain.shutdown, immediate)

    async def finish(self) -> None:
        """End the stream for good, as `shmq.Queue.finish`."""
        await self.in_thread(self.plain.finish)

    # ---- looking
    @property
    def path(self) -> str:
        """Its directory."""
        return self.plain.path

    @property
    def place(self) -> str:
        """What opens it again: its directory, or shm:NAME."""
        return self.plain.place

    @property
    def options(self) -> shmq.Options:
        """What it was made with."""
        return self.plain.options

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self.plain.closed

    @property
    def first_index(self) -> int:
        """The first index still there."""
        return self.plain.first_index

    @property
    def next_index(self) -> int:
        """The index behind the last claimed one."""
        return self.plain.next_index

    def __len__(self) -> int:
        """How many indexes are there, as of a `shmq.Queue`."""
        return len(self.plain)

    def __getitem__(self, index: int) -> Any:
        """What is at that index, as of a `shmq.Queue`."""
        return self.plain[index]

    # ---- closing
    async def close(self) -> None:
        """Close it, in a thread, as `shmq.Queue.close`; consumers and producers of it are closed by themselves."""
        self.check()
        self._disk.close()
        await self._loop.end(self._close)

    def _close(self) -> None:
        if self._producer is not None:
            self._producer.plain.close()
        self.plain.close()

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
        return f"<shmq.aio.Queue {self.plain!r}>"
