"""A consumer at a server, with the verbs of a local one."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Self

from shmq import errors
from shmq.net import packing
from shmq.net.client import verbs
from shmq.net.client.calls import HELD, Call
from shmq.net.client.messages import Hand, RemoteMessage, are_acked, decoded, one
from shmq.net.client.waiting import deadline, left, limit

if TYPE_CHECKING:
    import datetime
    from types import TracebackType

    from shmq.net.client.held import Held
    from shmq.net.client.link import Link
    from shmq.net.client.messages import Decode, Fields
    from shmq.net.packing import Batch

_VERDICT = 1.0
"""Seconds more than its timeout that a get waits for a server that is reached to say that there is nothing."""


class RemoteConsumer:
    """
    One name's way through a queue of a server. Made by `RemoteQueue.consumer`; safe to share between threads.

    A context manager; iterates until shutdown.

    Attributes:
        name: the name.
        ack_mode: "auto" or "explicit".
    """

    def __init__(self, link: Link, held: Held, options: dict[str, Any], prefetch: int | None, decode: Decode) -> None:
        """Of a consumer that is open at the server."""
        self.link = link
        self.held = held
        self._pid = os.getpid()
        self.decode = decode
        self._ahead = verbs.ahead(prefetch, options, held)
        self.name = held.name
        self.ack_mode = "explicit" if held.explicit else "auto"

    # ---- getting
    def get(self, timeout: float | None = None) -> RemoteMessage:
        """
        The next message, as `shmq.Consumer.get`.

        Raises:
            Empty: *timeout* seconds have passed; with 0 the server is asked, and does not wait.
            ShutDown, Closed, Corrupt, Gone: as there.
            Busy: the server began anew, and somebody else has the name now.
            Forked: this is a forked child.
        """
        return self._messages(*self._find(1, timeout))[0]

    def get_many(self, limit: int, timeout: float | None = None) -> list[RemoteMessage]:
        """Between 1 and *limit* messages: those that are there, or the first that comes; otherwise as `get`."""
        return self._messages(*self._find(limit, timeout))

    def take(self, timeout: float | None = None) -> Any:
        """The next message's payload, acknowledged at once; otherwise as `get`."""
        return self._payloads(*self._find(1, timeout))[0]

    def take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        """Between 1 and *limit* payloads, acknowledged at once; otherwise as `get`."""
        return self._payloads(*self._find(limit, timeout))

    def _messages(self, batch: Batch, start: int, stop: int, incarnation: int) -> list[RemoteMessage]:
        hand = Hand(self.decode, self if self.held.explicit else None, incarnation, set())
        return [RemoteMessage(batch, at, hand) for at in range(start, stop)]

    def _payloads(self, batch: Batch, start: int, stop: int, incarnation: int) -> list[Any]:
        if self.held.explicit:
            self.ack(*self._messages(batch, start, stop, incarnation))
        payloads: list[Any] = batch.payloads(start, stop)
        if self.decode is None:
            return payloads
        return [decoded(self.decode, each, batch.indexes[start + at]) for at, each in enumerate(payloads)]

    def _find(self, count: int, timeout: float | None) -> tuple[Batch, int, int, int]:
        wanted, until = limit(count), deadline(timeout)
        found = self.look(wanted)
        return self._wait(wanted, until, timeout) if found is None else found

    def _wait(self, wanted: int, until: float, timeout: float | None) -> tuple[Batch, int, int, int]:
        come = threading.Event()
        call: Call | None = None
        self.link.waits()
        self.held.wait_with(come.set)
        try:
            while True:
                come.clear()
                found = self.look(wanted, call)
                if found is not None:
                    return found
                rest = left(until)
                if call is None and self.must_ask(timeout):
                    call = self.asking(wanted, rest)
                    call.when_done(come.set)
                    self.link.ask(call)
                elif rest == 0 and (call is None or call.is_done):
                    raise self.nothing()
                elif call is not None and call.is_done:
                    call = None
                    continue
                if not come.wait(self.patience(call, rest)) and rest is not None:
                    raise self.nothing()
        except BaseException:
            self.held.forget(come.set)
            self.withdraw()
            raise
        finally:
            self.held.forget(come.set)
            self.stop(call)

    def look(self, wanted: int, call: Call | None = None) -> tuple[Batch, int, int, int] | None:
        """
        Return what is here, up to *wanted* messages; where some are sent ahead, more are asked for.

        Raises:
            Exception: what the server has said, perhaps to *call*; or this was closed, or is the parent's.
        """
        self.check()
        found = self.held.take(wanted)
        if late := self.held.late():
            self.link.ask(Call("back", (self.held.cid, late), HELD))
        if self._ahead > 1 and self.held.wants(max(self._ahead, wanted)):
            self.link.grant(self.held)
        lost = call is not None and isinstance(call.error, errors.LeaseLost)  # with what was before: it is asked again
        if found is None and call is not None and call.error is not None and not lost:
            raise call.error
        return found

    def must_ask(self, timeout: float | None) -> bool:
        """Whether nothing comes, or it is not known that there is nothing, without a request."""
        return self._ahead <= 1 or timeout == 0

    def asking(self, wanted: int, rest: float | None) -> Call:
        """Return the call by which the server sends something in time, or says that there is nothing."""
        return Call("get", (self.held.cid, self.held.received, wanted, rest), HELD)

    def patience(self, call: Call | None, rest: float | None) -> float | None:
        """Return for how long to wait: a server that was asked says itself that there is nothing."""
        return rest if rest is None or call is None else rest + _VERDICT * self.link.is_up

    def stop(self, call: Call | None) -> None:
        """Nobody waits for that any more: what has not been sent for it is not sent."""
        if call is not None and not call.is_done and not call.give_up():
            self.link.stop(call)

    def withdraw(self) -> None:
        """Nobody waits here any more, with nothing found: the server sends nothing ahead, and it goes to others."""
        if not self.held.closed and self.held.wants_nothing():
            self.link.grant(self.held)

    def nothing(self) -> errors.Empty:
        """The error for a get whose time is up."""
        return verbs.nothing(self.held, self.link.address, up=self.link.is_up)

    def __iter__(self) -> Self:
        """Return this object."""
        return self

    def __next__(self) -> RemoteMessage:
        """The next message; the loop ends when the queue is over and drained, or this is closed."""
        try:
            return self.get()
        except (errors.ShutDown, errors.Closed):
            raise StopIteration from None

    # ---- acknowledging
    def ack(self, *messages: Fields) -> None:
        """
        Acknowledge messages of this consumer, all of them in one request.

        Raises:
            LeaseLost: of some; the others are acknowledged.
            TypeError: something is no message of this consumer.
        """
        self.check()
        call, lost = verbs.acks(self.held, self, messages)
        if call is not None:
            self.link.answer(call)
            are_acked(messages)
        if lost is not None:
            raise lost

    def settle(self, message: RemoteMessage, verb: str, given: Any) -> None:
        """What the verbs of a message do."""
        if verb == "ack":
            self.ack(message)
            return
        self.check()
        self.link.answer(verbs.settling(self.held, message, verb, given))

    # ---- looking, moving
    def peek(self) -> RemoteMessage | None:
        """The next message that this consumer would be sent, as `shmq.Consumer.peek`."""
        self.check()
        columns = self.link.answer(Call("peek", (self.held.cid,)))
        return None if columns is None else one(columns, self.decode)

    def _figures(self) -> list[int]:
        self.check()
        found: list[int] = self.link.answer(Call("figures", (self.held.cid,)))
        return found

    @property
    def lag(self) -> int:
        """How many messages this name has not finished. Where nothing is acknowledged, what was sent ahead is."""
        return self._figures()[0]

    @property
    def pending(self) -> int:
        """How many messages are handed out or sent ahead, and not acknowledged."""
        return self._figures()[1]

    @property
    def head(self) -> int:
        """The next index this name has not finished."""
        return self._figures()[2]

    def seek(self, to: str | float | datetime.datetime) -> None:
        """Go on from there, as `shmq.Consumer.seek`; what was sent ahead is dropped."""
        self.check()
        self.link.answer(Call("seek", (self.held.cid, verbs.moment(to))))
        self.held.drop()

    # ---- closing
    def check(self) -> None:
        """
        Refuse to go on.

        Raises:
            Closed, Forked: this was closed, or is the parent process's.
            Exception: what keeps the server from opening it again.
        """
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"consumer {self.name!r} of {self.link.address} belongs to the parent process {self._pid}; open one in "
                "this child"
            )
        if self.held.closed or self.link.closed:
            raise errors.Closed(f"consumer {self.name!r} of {self.link.address} was closed")
        if self.held.broken is not None:
            raise self.held.broken

    def close(self) -> None:
        """
        Give the name back, or leave the group. Closing twice is fine.

        What was sent ahead and not handed out is there for whoever opens the name next.
        """
        if self.held.closed or os.getpid() != self._pid:
            return
        left = self.held.close()
        if not self.link.closed:
            call = Call("shut", (self.held.cid, *left))
            self.link.ask(call)
            call.wait(packing.GRACE)
        self.link.consumers.pop(self.held.cid, None)

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> Any:
        """It does not pickle: its queue does."""
        raise TypeError(
            f"cannot pickle consumer {self.name!r} of {self.link.address}: it is of the process that opened it; pass "
            f"the queue, and open it there with queue.consumer({self.name!r})"
        )

    def __repr__(self) -> str:
        """Name, queue and ack mode, for people."""
        state = "closed" if self.held.closed else f"ack={self.ack_mode}"
        return f"<shmq.net.RemoteConsumer {self.name!r} of {self.link.address} ({state})>"
