"""
What is given up: a client that waits no more says so to all servers, and the one that has the call acts on it.

A request that was not begun is dropped, a coroutine is cancelled, a generator closed; a plain function can ask. A call
that has a deadline needs none of this when its time is up: the server knows.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.rpc import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.rpc.places import Place
    from shmq.rpc.running import Key

_KEPT = 10_000
"""So many are remembered: those that no request has come for, or that another server has."""


class Cancels:
    """
    A server's ear for them: one thread, which sleeps while nothing comes.

    Attributes:
        given_up: the calls that nobody waits for.
        running: what ends a call that runs, by its key.
    """

    def __init__(self) -> None:
        """Nothing is heard before `begin`."""
        self.given_up: dict[Key, None] = {}
        self.running: dict[Key, Callable[[], object]] = {}
        self._reader: shmq.Reader[bytes] | None = None
        self._queue: shmq.Queue[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, place: Place) -> None:
        """Listen from now on."""
        self._queue = queue = place.cancels()
        self._reader = reader = queue.reader(queue.next_index, follow=True, skip_corrupt=True)
        self._thread = threading.Thread(target=self._listen, args=(reader,), name="shmq-rpc-cancels", daemon=True)
        self._thread.start()

    def _listen(self, reader: shmq.Reader[bytes]) -> None:
        while True:
            try:
                message = reader.get()
                said = wire.read_cancel(message.payload)
            except (shmq.Gone, *wire.UNREADABLE):
                continue
            except (shmq.ShmqError, OSError):  # closed, or shut down
                return
            self._hear((said.client, said.sequence))

    def _hear(self, key: Key) -> None:
        self.given_up[key] = None
        end = self.running.get(key)
        if end is not None:
            try:
                end()
            except Exception:
                logging.getLogger("shmq").exception("a call that was given up could not be ended")
        if len(self.given_up) > _KEPT:
            for old in list(itertools.islice(self.given_up, len(self.given_up) - _KEPT)):
                self.given_up.pop(old, None)

    def end(self) -> None:
        """Listen no more."""
        reader, self._reader = self._reader, None
        if reader is not None and self._queue is not None and self._thread is not None:
            reader.close()
            self._thread.join()
            self._queue.close()


class Giving:
    """A client's way to say so; opened when it is needed first."""

    def __init__(self, place: Place) -> None:
        """At that path."""
        self._place = place
        self._lock = threading.Lock()
        self._queue: shmq.Queue[bytes] | None = None
        self._closed = False

    def up(self, client: bytes, number: int) -> None:
        """That call is waited for no more. It is told as well as can be: without room, say, the call goes on."""
        with contextlib.suppress(shmq.ShmqError, OSError), self._lock:
            if self._closed:
                return
            if self._queue is None:
                self._queue = self._place.cancels()
            self._queue.put(wire.pack((client, number)), timeout=0)

    def close(self) -> None:
        """Say nothing more."""
        with self._lock:
            self._closed = True
            queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
