"""
Calls that nobody waits for yet: a Future each, completed by one thread of the client, begun with the first.

That thread waits for replies as any other would (inbox.py), so a thread that calls meanwhile may take them for it; what
a Future's callbacks do, they do in that thread, which holds nothing then.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import shmq
from shmq.rpc.errors import TimedOut
from shmq.rpc.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.rpc import wire

PENDING_MAX = 1000
"""So many calls of a client may wait for replies this way; then `submit` waits."""
_LOOK = 0.2
"""Seconds: so late a Future learns at most that its time is up."""
_IDLE = 1.0


class CallFuture(concurrent.futures.Future[Any]):
    """The result of a call, some day. `cancel` tells the server, too, and is True until there is a result."""

    give_up: Callable[[], object] | None = None

    def cancel(self) -> bool:
        """Give it up: what was not begun is not, a coroutine is cancelled; whatever it returns is dropped."""
        if not super().cancel():
            return False
        give_up, self.give_up = self.give_up, None
        if give_up is not None:
            give_up()
        return True


class Pending(Waiter):
    """One of them, among those that wait."""

    __slots__ = ("future", "number", "pump", "read", "until")

    def __init__(
        self, pump: Pump, number: int, until: float | None, read: Callable[[wire.Reply], Any], future: CallFuture
    ) -> None:
        """*read* makes a result of a reply, or raises what is to be raised."""
        super().__init__()
        self.pump = pump
        self.number = number
        self.until = until
        self.read = read
        self.future = future

    def answer(self, reply: wire.Reply) -> None:
        """Have the thread complete it; it may be said twice."""
        if self.reply is None:
            self.reply = reply
        self.pump.over(self)

    def complete(self) -> None:
        """With its reply."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            assert self.reply is not None  # noqa: S101  # or it would not be over
            result = self.read(self.reply)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is the call's
            self.future.set_exception(problem)
        else:
            self.future.set_result(result)

    def fail(self, problem: Exception) -> None:
        """Without one."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(problem)


class Waits(Protocol):
    """An inbox, as the thread sees it."""

    closed: bool
    pump: Pump

    def wait_for(self, waiter: Waiter, until: float | None) -> None:
        """Return when *waiter* has its reply, or at that time."""


class Pump(Waiter):
    """
    What completes them, and waits for it: its own "reply" is that one of theirs came.

    Attributes:
        pending: them, by their numbers.
    """

    __slots__ = ("_lock", "_over", "_thread", "_waiting", "pending")

    def __init__(self, waiting: dict[int, Waiter]) -> None:
        """Of an inbox, whose calls that wait are these."""
        super().__init__()
        self._waiting = waiting
        self._over: collections.deque[Pending] = collections.deque()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.pending: dict[int, Pending] = {}

    def wait_for_room(self) -> None:
        """While there are as many as may be, wait for the first one of them; but not in their own thread."""
        while self.is_full() and threading.current_thread() is not self._thread:
            first = next(iter(list(self.pending.values())), None)
            if first is not None:
                concurrent.futures.wait([first.future], _LOOK)

    def is_full(self) -> bool:
        """Whether there are as many as may be."""
        return len(self.pending) >= PENDING_MAX

    def add(self, pending: Pending, inbox: Waits) -> None:
        """See to that one, too."""
        self.pending[pending.number] = self._waiting[pending.number] = pending
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                given = (weakref.ref(inbox), self.made_bell())
                self._thread = threading.Thread(target=_run, args=given, name="shmq-rpc-replies", daemon=True)
                self._thread.start()
        self.ring()

    def drop(self, pending: Pending) -> bool:
        """See to that one no more; whether it was seen to."""
        self._waiting.pop(pending.number, None)
        return self.pending.pop(pending.number, None) is not None

    def over(self, pending: Pending) -> None:
        """Its reply is here; in whatever thread."""
        self._over.append(pending)
        self.reply = pending.reply
        self.ring()

    def turn(self, inbox: Waits) -> None:
        """Wait for one of them, or for a time that is up, and complete what there is to complete."""
        until = min((each.until for each in list(self.pending.values()) if each.until is not None), default=None)
        soon = time.monotonic() + _LOOK
        try:
            inbox.wait_for(self, soon if until is None else min(until, soon))
        except shmq.Closed as problem:
            for pending in list(self.pending.values()):
                self.drop(pending)
                pending.fail(problem)
            return
        self.reply = None  # first: what comes from now on is another turn's
        while self._over:
            pending = self._over.popleft()
            if self.drop(pending):
                pending.complete()
        if until is not None and time.monotonic() >= until:
            self._end_late()

    def _end_late(self) -> None:
        now = time.monotonic()
        for pending in list(self.pending.values()):
            if pending.until is not None and pending.until <= now and pending.reply is None:
                self.drop(pending)
                pending.fail(TimedOut("the call was not answered in time; it may have run, or may still"))


def _run(weak: weakref.ref[Waits], bell: threading.Lock) -> None:
    """The thread. It keeps no client alive, and ends when its own is closed or forgotten."""
    while True:
        inbox = weak()
        if inbox is None or (inbox.closed and not inbox.pump.pending):
            return
        if inbox.pump.pending:
            inbox.pump.turn(inbox)
            continue
        del inbox
        bell.acquire(timeout=_IDLE)
