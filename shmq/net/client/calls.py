"""What is asked of a server: handed to the link by one thread, settled by the link's, waited for by whoever asked."""

from __future__ import annotations

import _thread
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SAFE, HELD, PUT = "safe", "held", "put"
"""What becomes of a call when the server knows nothing of what was before: it is asked again; it belongs to what a
consumer held, and is lost; it is put again if the server knows its session, and else nobody can tell."""


class Call:
    """
    One request.

    Attributes:
        verb, given: what is asked.
        kind: SAFE, HELD or PUT.
        tid: its number on the wire, once it was sent.
        value, error: what came of it, when it is done.
    """

    def __init__(self, verb: str, given: tuple[Any, ...], kind: str = SAFE) -> None:
        """Nobody has it yet."""
        self.verb = verb
        self.given = given
        self.kind = kind
        self.tid = 0
        self.value: Any = None
        self.error: Exception | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        self._is_done = False
        self._claimed = _thread.allocate_lock()
        self._callbacks: deque[Callable[[], None]] = deque()

    # ---- in the link's thread
    def claim(self) -> bool:
        """Take it, to send it; whether nobody has given it up before."""
        return self._claimed.acquire(blocking=False)

    def unclaim(self) -> None:
        """It was not sent after all."""
        self._claimed.release()

    def message(self) -> list[Any]:
        """Return what goes over the wire."""
        return [self.verb, self.tid, *self.given]

    def done(self, value: Any = None, error: Exception | None = None) -> None:
        """Settle it, once."""
        if self._is_done:
            return
        self.value, self.error = value, error
        self._is_done = True
        self._done.release()
        self._call_back()

    # ---- in whatever thread asked
    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self._is_done

    @property
    def is_sent(self) -> bool:
        """Whether the link has it, so that it may have been done."""
        return self._claimed.locked()

    def give_up(self) -> bool:
        """Have it not sent; whether it was not."""
        return self._claimed.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the answer; whether there is one. What a signal's handler raises comes out of here."""
        if not self._done.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            return False
        self._done.release()
        return True

    def result(self) -> Any:
        """
        Return the answer, which is there.

        Raises:
            Exception: what the server has answered with.
        """
        if self.error is not None:
            raise self.error
        return self.value

    def when_done(self, callback: Callable[[], None]) -> None:
        """Have that called when there is an answer: at once if there is, else in the link's thread."""
        self._callbacks.append(callback)
        if self._is_done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread was first
                return
            callback()


class Put(Call):
    """
    Messages that go together: visible at once, or not at all.

    Attributes:
        payloads: their bytes.
        options: what else they have, in columns; None for nothing.
        timeout: seconds that the server may wait; None for as long as it takes.
        is_one: of a single message, whose index is the answer.
    """

    def __init__(
        self, payloads: list[bytes], options: dict[str, Any] | None, timeout: float | None, *, is_one: bool
    ) -> None:
        """Nobody has it yet."""
        super().__init__("put", (), PUT)
        self.payloads = payloads
        self.options = options
        self.timeout = timeout
        self.is_one = is_one

    @property
    def joins(self) -> bool:
        """Whether it may go in one batch with others: it is one message, and asks for nothing of its own but a key."""
        return self.is_one and self.timeout is None and (self.options is None or self.options.keys() <= {"keys"})

    def settled(self, first: int, count: int) -> None:
        """It is in the queue, at those indexes."""
        self.done(first if self.is_one else range(first, first + count))


class Sent(Call):
    """One batch on its way, of one put or of several; it is sent as it is, however often."""

    def __init__(self, puts: list[Put], number: int | None) -> None:
        """*number*: which batch of the session it is; None when it has a dedup of its own."""
        super().__init__("put", (), PUT)
        self.puts = puts
        self.number = number
        self._body: list[Any] = []

    def packed(self, joined: Callable[[list[bytes]], tuple[bytes, bytes]]) -> None:
        """Make of the puts what goes over the wire."""
        first = self.puts[0]
        payloads, options = first.payloads, first.options
        if len(self.puts) > 1:
            payloads = [each.payloads[0] for each in self.puts]
            keys = [None if each.options is None else each.options["keys"][0] for each in self.puts]
            options = {"keys": keys} if any(keys) else None
        self._body = [self.number, first.timeout, *joined(payloads), options]

    def message(self) -> list[Any]:
        """Return what goes over the wire."""
        return ["put", self.tid, *self._body]

    def done(self, value: Any = None, error: Exception | None = None) -> None:
        """Settle all that is in it."""
        super().done(value, error)
        if error is not None:
            for each in self.puts:
                each.done(error=error)
            return
        at = value[0]
        for each in self.puts:
            each.settled(at, len(each.payloads))
            at += len(each.payloads)
