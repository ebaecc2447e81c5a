"""What consumers hand out: a message whose verbs are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from typing_extensions import TypeVar

    import shmq
    from shmq.aio.line import Held

    T = TypeVar("T", default=Any)
    """What payloads are, for type checkers; anything where nobody says."""
else:
    from typing import TypeVar

    T = TypeVar("T")


class Message(Generic[T]):
    """
    A message of an `aio.Consumer`. It has what `shmq.Message` has; `ack`, `nack`, `reject` and `extend` are awaited.

    Attributes:
        plain: the `shmq.Message`, which supports the buffer protocol.
    """

    __slots__ = ("_consumer", "_syncs", "plain")

    def __init__(self, plain: shmq.Message[T], consumer: Held, *, syncs: bool) -> None:
        """As it was handed out; *syncs*: whether an acknowledgement waits for the disk."""
        self.plain = plain
        self._consumer = consumer
        self._syncs = syncs

    @property
    def payload(self) -> T:
        """What was put, decoded."""
        return self.plain.payload

    @property
    def view(self) -> memoryview:
        """The bytes, where they lie."""
        return self.plain.view

    @property
    def index(self) -> int:
        """Its number in the queue."""
        return self.plain.index

    @property
    def key(self) -> bytes | None:
        """What it belongs to."""
        return self.plain.key

    @property
    def type(self) -> int:
        """The user's own number."""
        return self.plain.type

    @property
    def time(self) -> datetime.datetime:
        """Its time."""
        return self.plain.time

    @property
    def time_ns(self) -> int:
        """The same in ns since 1970."""
        return self.plain.time_ns

    @property
    def headers(self) -> dict[str, Any]:
        """The mapping that it was put with."""
        return self.plain.headers

    @property
    def expires(self) -> datetime.datetime | None:
        """When it expires."""
        return self.plain.expires

    @property
    def attempts(self) -> int:
        """How often it was handed out."""
        return self.plain.attempts

    async def ack(self) -> None:
        """
        Acknowledge it, as `shmq.Message.ack`. Cancelled while it waits for the disk: it is acknowledged all the same.

        Raises:
            LeaseLost, SyncFailed: as there.
        """
        if self._syncs:
            await self._consumer.in_thread(self.plain.ack)
        else:
            self._do(self.plain.ack)

    async def nack(self, delay: float = 0.0) -> None:
        """Give it back, as `shmq.Message.nack`; to come again after *delay* seconds."""
        self._do(self.plain.nack, delay)

    async def reject(self, reason: object = "") -> None:
        """Have it moved to the dead letters, as `shmq.Message.reject`; in a thread, and to its end if cancelled."""
        await self._consumer.in_thread(self.plain.reject, reason)

    async def extend(self, seconds: float) -> None:
        """Hold it for so many seconds more, as `shmq.Message.extend`."""
        self._do(self.plain.extend, seconds)

    def _do(self, verb: Callable[..., None], *given: float) -> None:
        self._consumer.check()
        verb(*given)

    def __repr__(self) -> str:
        """As the plain one."""
        return f"<shmq.aio.Message {self.plain!r}>"
