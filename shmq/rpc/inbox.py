"""
A client's end: the queue of requests, its reply queue, and the calls that wait for something to come there.

Whoever waits may be the one who takes replies, for all: the first one leads, the others sleep until their own reply was
handed to them, or until the leader leaves. No thread of ours is between a reply and the thread that waits for it.

What a signal's handler raises may come behind any call in the main thread. So the lead is taken, and that noted, by one
call; likewise a reply goes from the queue into `box`, and stays there until it was handed over, by the next leader if
need be: one that another thread waits for is not lost. And who sleeps looks now and then whether anybody leads.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import threading
import time
from typing import TYPE_CHECKING

import shmq
from shmq.rpc import places, wire
from shmq.rpc.futures import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.rpc.waiters import Waiter

_AT_ONCE = (False,)
"""What a lock's `acquire` is told, so as not to wait."""
_LOOK = 0.05
"""Seconds after which a follower looks whether anybody leads."""


class Inbox:
    """
    What a client has in one process: open queues, and calls that wait. Safe to share between threads.

    Attributes:
        client: its name.
        waiting: by their number, the calls that have no reply yet.
        numbers: gives each call its number.
        put: appends a request, as `Producer.put`.
        refuses: whether what has no room is refused at once.
    """

    def __init__(self, requests: shmq.Queue[bytes], wait: str) -> None:
        """Make the reply queue; *requests* is closed with it."""
        self.client = places.new_client()
        self.waiting: dict[int, Waiter] = {}
        self.numbers = itertools.count(1)
        self.unreadable = 0
        self._requests = requests
        self._replies = places.own_replies(self.client)
        try:
            self._consumer: shmq.Consumer[bytes] = self._replies.consumer(places.OWNER, skip_corrupt=True, wait=wait)  # type: ignore[call-overload]
            self.put: Callable[..., int] = requests.producer().put
            self.refuses = requests.options.full == "raise"
        except BaseException:
            self._replies.close()
            raise
        self.pump = Pump(self.waiting)
        self._turn = threading.Lock()
        self._box: collections.deque[bytes] = collections.deque()
        self._takes: Iterator[bytes] = iter(self._consumer.take, None)
        self.closed = False

    def ask(self, request: bytes, timeout: float | None) -> None:
        """
        Append a request whose answer is waited for. With SYNC, one that is not on the disk in time is asked all the
        same: it is in the queue, and a power cut would take who waits for the answer, too.

        Raises:
            Full, DiskFull, ShutDown, Closed: nothing was asked.
        """
        with contextlib.suppress(shmq.SyncPending):
            self.put(request, timeout=timeout)

    def wait_for(self, waiter: Waiter, until: float | None) -> None:
        """
        Return when *waiter* has its reply, or at *until*, a time of the monotonic clock.

        Raises:
            Closed: the client was closed meanwhile.
        """
        while waiter.reply is None:
            if self.closed:
                raise self._is_closed()
            leads: list[bool] = []
            try:
                leads.extend(map(self._turn.acquire, _AT_ONCE))
                if leads[0]:
                    self._lead(waiter, until)
            finally:
                if leads and leads[0]:
                    self._turn.release()
                    if len(self.waiting) > 1:
                        self._call_another(waiter)
            if not leads[0]:
                waiter.sleep(_LOOK if until is None else min(max(until - time.monotonic(), 0.0), _LOOK))
            if until is not None and waiter.reply is None and time.monotonic() >= until:
                return

    def _lead(self, mine: Waiter, until: float | None) -> None:
        """Take replies and hand them over, until this one's has come, or it is time."""
        box = self._box
        takes = self._takes
        try:
            while True:
                if box:
                    self._hand_over()
                if mine.reply is not None:
                    return
                if until is not None:
                    takes = iter(functools.partial(self._consumer.take, max(until - time.monotonic(), 0.0)), None)
                box.extend(itertools.islice(takes, 1))
        except shmq.Empty:
            return
        except (shmq.Closed, shmq.ShutDown):
            self.closed = True
            raise self._is_closed() from None

    def _hand_over(self) -> None:
        box = self._box
        while box:
            try:
                reply = wire.read_reply(box[0])
            except wire.UNREADABLE:
                self.unreadable += 1
            else:
                waiter = self.waiting.get(reply.sequence)
                if waiter is not None:  # else its caller waits no more
                    waiter.answer(reply)
            box.popleft()

    def _call_another(self, but: Waiter) -> None:
        """Nobody leads any more: wake somebody who will."""
        if self.pump.pending and self.pump is not but:
            self.pump.ring()
            return
        for waiter in list(self.waiting.values()):
            if waiter is not but and waiter.reply is None and waiter.bell is not None:
                waiter.ring()
                return

    def _is_closed(self) -> shmq.Closed:
        return shmq.Closed("the client was closed while the call waited; it may have run")

    def close(self) -> None:
        """Go. Who waits is told, and servers let go of the reply queue."""
        self.closed = True
        for close in (self._replies.shutdown, self._consumer.close, self._replies.close, self._requests.close):
            with contextlib.suppress(shmq.ShmqError, OSError):  # removed by somebody
                close()
        for waiter in list(self.waiting.values()):
            waiter.ring()
