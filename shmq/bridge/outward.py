"""
Out: what is durable in the queue goes to the target, in order, from where the target says it is.

Only what is on the disk is sent: else a power cut here could take back what is there already, and its index would be
given to nobody, or in a copy that took this queue's place to something else.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from shmq.bridge import carried, ends, urls
from shmq.bridge.patience import Patience, tell
from shmq.bridge.trail import Trail
from shmq.errors import Empty, Mismatch, ShutDown

if TYPE_CHECKING:
    import shmq
    from shmq.bridge.ends import Outgoing, Target

TRAIL = 600.0
"""Seconds by which the bridge's name follows the target, unless somebody says otherwise."""


def send(
    queue: shmq.Queue[Any],
    url: str,
    *,
    trail: float = TRAIL,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """
    Carry the messages of *queue* to *url*, until *stop* is set or the queue has ended for good; return how many.

    Payload, key, type, time and headers go; a message whose `ttl` has passed does not, and one with a delay waits, and
    all behind it. While the server is away it is tried again and again, which is said once on stderr.

    Args:
        url: a stream of NATS or Redis, a topic of Kafka, a POSIX message queue; see `shmq bridge --help`.
        trail: seconds for which the queue keeps what the target has confirmed, which a power cut may take from it.
        once: end when all that is there has arrived.

    Raises:
        ImportError: what speaks with such a server is not installed; the text says what to install.
        ValueError: *url* is none, or *trail* is negative.
        Busy: another bridge carries this queue there.
        Mismatch: what is there comes from another queue, or from nobody's bridge; or the target has more than the
            queue, which then is an older copy of itself. Nothing was sent.
        TooLarge, Refused: the target does not take a message; all before it are there.
    """
    if not trail >= 0:
        raise ValueError(f"trail={trail!r}: seconds, 0 or more")
    where = urls.parse(url)
    stop = stop or threading.Event()
    urls.target(where, queue.id, stop).close()  # what is wrong with it is said before anything is held
    with contextlib.closing(Trail(queue, where.consumer(""), trail)) as names:
        return _Bridge(queue, where, names, once=once, stop=stop).run()


class _Bridge:
    def __init__(
        self, queue: shmq.Queue[Any], url: urls.Url, names: Trail, *, once: bool, stop: threading.Event
    ) -> None:
        self._queue = queue
        self._url = url
        self._names = names
        self._once = once
        self._stop = stop
        self._sent = 0
        self._over = False
        self._ahead: shmq.Message[Any] | None = None
        """What was read and waits for its time, or for the next batch."""
        self._told_gap = 0

    def run(self) -> int:
        patience = Patience(self._url.shown, self._stop)
        while not self._stop.is_set():
            with contextlib.closing(urls.target(self._url, self._queue.id, self._stop)) as target:
                try:
                    self._carry(target, self._start(target), patience)
                    break
                except ends.Unreachable as problem:
                    patience.wait(problem)
                except ends.Stopped:
                    break
        return self._sent

    def _start(self, target: Target) -> int:
        """The first index that the target needs."""
        place = target.place()
        if place is None:
            return self._names.begin
        if place == ends.UNKNOWN:
            return self._names.confirmed
        end, first = self._queue.next_index, self._queue.first_index
        if place >= end:
            raise Mismatch(
                f"{self._url.shown} has message {place} of {self._queue.place}, whose messages end before {end}: "
                "this is an older copy of the queue; nothing was sent"
            )
        if place + 1 < first and self._told_gap < first:
            self._told_gap = first
            tell(
                f"{self._url.shown} has {self._queue.place} up to message {place}, and what is left there begins at "
                f"{first}: what was between is gone, and does not arrive"
            )
        self._names.reached(place + 1)
        return place + 1

    def _carry(self, target: Target, start: int, patience: Patience) -> None:
        self._ahead = None
        with contextlib.closing(self._queue.reader(max(start, self._queue.first_index), follow=True)) as reader:
            while not self._stop.is_set():
                batch = self._gather(reader, target.batch)
                if batch:
                    self._have_on_disk(batch[-1].at)
                    target.send(batch)
                    self._sent += len(batch)
                    self._names.reached(batch[-1].at + 1)
                elif self._over or self._once:  # what is not due yet is not there
                    return
                else:
                    target.idle()
                    self._names.move()
                patience.works()

    def _gather(self, reader: shmq.Reader[Any], limit: int) -> list[Outgoing]:
        batch: list[Outgoing] = []
        size = 0
        while len(batch) < limit and size < ends.BATCH_BYTES and not self._stop.is_set():
            message = self._next(reader, wait=not batch)
            if message is None:
                break
            outgoing = ends.Outgoing(message.index, carried.of(message, self._queue.id))
            size += len(outgoing.message.payload)
            batch.append(outgoing)
        return batch

    def _next(self, reader: shmq.Reader[Any], *, wait: bool) -> shmq.Message[Any] | None:
        """The next message whose time has come; None when there is none now."""
        while True:
            message, self._ahead = self._ahead, None
            if message is None:
                try:
                    message = reader.get(timeout=ends.LOOK if wait and not self._once else 0)
                except Empty:
                    return None
                except ShutDown:
                    self._over = True
                    return None
            if message.expired:
                continue
            early = message.due_ns - time.time_ns()
            if early > 0:
                self._ahead = message
                if wait and not self._once:
                    self._stop.wait(min(early / 1e9, ends.LOOK))
                return None
            return message

    def _have_on_disk(self, index: int) -> None:
        if self._queue.durable_index <= index:
            self._queue.sync()
