"""
A client's consumer: the handle that holds for it, and what was sent and not confirmed yet.

It outlives the connection: what is sent is kept until the client says that it has it, and sent again when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import packing
from shmq.unseen import give_back_unseen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import shmq
    from shmq.net.limits import Limits

_CREDIT_MAX = 10_000
_UNDER_WAY = 4 << 20
"""Bytes that are sent ahead and not confirmed, after which the client is waited for."""
_FIRST = 16
"""Messages in the first batch, before it is known how large they are."""


class Consumer:
    """One consumer of one client, in the loop."""

    def __init__(
        self,
        cid: int,
        awaited: shmq.aio.Consumer[Any],
        limits: Limits,
        send: Callable[[Any], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """
        Of an open handle.

        Args:
            send: takes a message of the protocol, and drops it while there is no connection.
            room: returns when there is a connection, whose peer reads.
        """
        self.cid = cid
        self.awaited = awaited
        self._limits = limits
        self._send = send
        self._room = room
        self._explicit = awaited.ack_mode == "explicit"
        self._held: dict[int, shmq.Message[Any]] = {}
        self._number = 0
        self._unconfirmed: deque[tuple[int, list[Any]]] = deque()
        self._under_way = 0
        self._is_held_back = False
        self._has_room = asyncio.Event()
        """Whether what is sent and not confirmed is less than it may be."""
        self._granted = self._pushed = 0
        self._has_credit = asyncio.Event()
        self._has_room.set()
        self._pump: asyncio.Task[None] | None = None
        self._mean = limits.batch_bytes // _FIRST

    # ---- handing out
    def confirm(self, number: int) -> None:
        """The client has all up to the batch of that number."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._under_way -= _size(self._unconfirmed.popleft()[1])
        if self._under_way < _UNDER_WAY:
            self._has_room.set()

    def hold_back(self) -> None:
        """The client is back, and has not said yet what it has: what is sent now would overtake what was lost."""
        self._is_held_back = True

    def send_again(self, number: int) -> None:
        """The client is back, and has all up to the batch of that number."""
        self.confirm(number)
        self._is_held_back = False
        for _, message in self._unconfirmed:
            self._send(message)

    def is_on_its_way(self, tid: int) -> bool:
        """Whether what that request asked for is sent, and not confirmed."""
        return any(message[1] == tid for _, message in self._unconfirmed)

    def grant(self, granted: int) -> None:
        """Send ahead up to *granted* messages, all told since this was opened: fewer than before takes that back."""
        self._granted = max(self._pushed, granted)
        if self._granted > self._pushed:
            self._has_credit.set()
            if self._pump is None:
                self._pump = asyncio.create_task(self._send_ahead())
        elif self._pump is not None:  # it may wait for messages, and would keep the next one from others
            self._has_credit.clear()
            self._pump.cancel()
            self._pump = None

    async def _send_ahead(self) -> None:
        while True:
            await self._has_credit.wait()
            await self._has_room.wait()
            await self._room()
            try:
                messages = await self._get(min(self._granted - self._pushed, _CREDIT_MAX), None)
            except Exception as problem:  # noqa: BLE001  # it is the client's
                self._pushed = self._granted
                self._hand_out(0, [], problem)
            else:
                self._pushed += len(messages)
                self._hand_out(0, messages)
            await asyncio.sleep(0)
            if self._pushed >= self._granted:
                self._has_credit.clear()

    async def get(self, tid: int, count: int, timeout: float | None) -> None:
        """Send up to *count* messages as the answer to *tid*, in time."""
        seconds = self._limits.wait if timeout is None else min(timeout, self._limits.wait)
        await self._room()
        try:
            messages = await self._get(count, seconds)
        except errors.Empty:
            self._send(["messages", tid, self.cid, 0, None, None, self._pushed])
        except Exception as problem:  # noqa: BLE001
            self._hand_out(tid, [], problem)
        else:
            self._hand_out(tid, messages)

    async def _get(self, count: int, seconds: float | None) -> list[shmq.Message[Any]]:
        """Between 1 and *count* messages: what is there is taken without a turn of the loop."""
        some = self._some(count)
        try:
            return self.awaited.plain.get_many(some, timeout=0)
        except errors.Empty:
            if seconds is not None and seconds <= 0:
                raise
        return [each.plain for each in await self.awaited.get_many(some, seconds)]

    def _some(self, count: int) -> int:
        """As many of *count* as will be some megabyte, if they are like the last ones."""
        return max(1, min(count, self._limits.batch, self._limits.batch_bytes // max(self._mean, 1)))

    def _hand_out(self, tid: int, messages: Sequence[shmq.Message[Any]], problem: Exception | None = None) -> None:
        if self._explicit:
            self._held.update(zip([message.index for message in messages], messages, strict=True))
        self._number += 1
        told = packing.error(tid, problem)[2:] if problem is not None else None
        columns = packing.packed(messages) if messages else None
        if columns is not None:
            self._mean = len(columns[-1]) // len(messages)
        message = ["messages", tid, self.cid, self._number, columns, told, self._pushed]
        self._unconfirmed.append((self._number, message))
        self._under_way += _size(message)
        if self._under_way >= _UNDER_WAY:
            self._has_room.clear()
        if not self._is_held_back:
            self._send(message)

    # ---- what becomes of what was handed out
    def ack(self, indexes: list[int]) -> None:
        """
        Acknowledge what lies at those indexes. Waits for the disk where the queue syncs, and then belongs in a thread.

        Raises:
            LeaseLost: of some, which are somebody else's; the others are acknowledged.
            SyncFailed: as `shmq.Message.ack`.
        """
        found = [self._held.pop(index, None) for index in indexes]
        held = [message for message in found if message is not None]
        if held:
            self.awaited.plain.ack(*held)
        if len(held) < len(indexes):
            raise self._is_lost(next(index for index, each in zip(indexes, found, strict=True) if each is None))

    async def settle(self, verb: str, index: int, given: Any) -> None:
        """
        Do what a message's *verb* does: nack, reject or extend.

        Raises:
            LeaseLost: it is somebody else's.
            TypeError, ValueError: what was given means nothing; it is held as before.
        """
        message = self._held.get(index)
        if message is None:
            raise self._is_lost(index)
        if verb == "extend":
            message.extend(given)
            return
        del self._held[index]
        try:
            if verb == "nack":
                message.nack(given)
            else:
                await self.awaited.in_thread(message.reject, given)
        except (TypeError, ValueError):
            self._held[index] = message
            raise

    def _is_lost(self, index: int) -> errors.LeaseLost:
        return errors.LeaseLost(
            f"message {index} is not held by this client's consumer {self.awaited.name!r} any more: its client was "
            "silent for too long, or the server began anew, and it was given to somebody else, or will be"
        )

    # ---- looking, moving
    async def seek(self, to: str | float) -> None:
        """Go on from there; what was sent ahead is not meant any more."""
        await self.awaited.seek(to)
        self._held.clear()

    async def peek(self) -> list[Any] | None:
        """Return the next message, as a batch of one, without taking it."""
        message = await self.awaited.in_thread(self.awaited.plain.peek)
        return None if message is None else packing.packed([message])

    async def figures(self) -> list[int]:
        """Return its lag, how many messages it holds, and its head."""
        plain = self.awaited.plain
        return await self.awaited.in_thread(lambda: [plain.lag, len(self._held), plain.head])

    def take_back(self, indexes: Iterable[int]) -> None:
        """Have others, or the same, be handed what lies there, of a consumer that acknowledges: nobody has seen it."""
        found = [self._held.pop(index, None) for index in indexes]
        give_back_unseen([each for each in found if each is not None])

    async def close(self, left: int | None = None, received: int | None = None, unseen: Iterable[int] = ()) -> None:
        """
        Close the handle: what it holds goes to others.

        Args:
            left: of a consumer that acknowledges nothing: the first message that came to its client, and was handed to
                nobody there.
            received: the last batch that came to its client; what was sent later was handed to nobody either. None when
                the client does not say so.
            unseen: of one that acknowledges: what else came to its client, and was handed to nobody there.
        """
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump
        behind = [] if received is None else self._behind(received)
        if self._explicit:
            with contextlib.suppress(errors.ShmqError):
                self.take_back([*unseen, *behind])
        elif left is not None or behind:
            with contextlib.suppress(errors.ShmqError, IndexError):
                await self.awaited.seek(behind[0] if left is None else left)
        self._held.clear()
        await self.awaited.close()

    def _behind(self, received: int) -> list[int]:
        """The messages that were sent behind the batch of that number."""
        behind = (message[4] for number, message in self._unconfirmed if number > received and message[4] is not None)
        return [index for columns in behind for index in packing.unpacked(columns).indexes]


def _size(message: list[Any]) -> int:
    """About how many bytes a batch has."""
    columns = message[4]
    return 0 if columns is None else len(columns[-1])
