"""
Queue, JoinableQueue and SimpleQueue, as `multiprocessing` has them, over an anonymous volatile queue with one group.

A get is final: what a process was handed and had not done when it was killed is gone, as with multiprocessing. (Where
that will not do: a group with explicit acknowledgements, docs/how-to/workers.md.) But nobody's death blocks anybody
else, nothing that a `put` accepted waits in a thread for a pipe, and there is no thread at all.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any

import shmq
from shmq.compat import packing
from shmq.compat.packing import BESIDE_FROM, CONNECTION, GLOBAL, PLAIN, PROTOCOL, REDUCERS

if TYPE_CHECKING:
    from collections.abc import Callable

_GROUP = "q"
_WINDOW = 64
"""Nothing is in flight: a get is final."""
_NEVER_FULL = 1 << 40
"""With a bound, whoever makes room says so."""
_CONTAINERS = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
"""What is mostly small, and then needs no look at whether it has a large buffer: its pickle would be large."""
_SOON = 0.01
_WARN_AFTER = 1.0


class _IsClosedError(OSError, ValueError):
    """As multiprocessing's: a ValueError when something is put or got, an OSError when it is looked at."""


class _Shared:
    """What the three have in common: a shared queue of pickles, opened in each process that uses it."""

    def __init__(self, maxsize: int = 0, *, views: bool = False) -> None:
        self._maxsize = max(maxsize, 0)
        self._views = views
        self._queue = shmq.open(None, max_messages=self._maxsize or None)
        _opened(self._queue).close()  # what is bounded is what this name has not had
        self._begin()

    def _begin(self) -> None:
        self._closed = False
        self._unused = False
        self._getter: shmq.GroupConsumer[bytes] | None = None
        self._lock = threading.Lock()
        self._was_large = False
        """Whether the pickle of the last object was: then the next one is not made to look how large it is."""

    # ---- putting and getting
    def _put_plainly(self, obj: Any) -> bool:
        """
        Put a small object of a usual kind, and look at nothing else; False where there is more to it.

        It is what `packing.pack` does with such a one.
        """
        if obj.__class__ not in _CONTAINERS or self._was_large or len(REDUCERS) != packing.taught_at:
            return False
        try:
            data = dumps(obj, PROTOCOL)
        except Exception:  # noqa: BLE001  # the other pickler says it again, or can
            return False
        if len(data) >= BESIDE_FROM or (GLOBAL in data and CONNECTION in data):
            return False
        try:
            self._queue.put(data)
        except (shmq.DiskFull, shmq.Closed):
            return False
        return True

    def _put(self, obj: Any, timeout: float | None) -> None:
        if self._closed:
            raise self._is_closed()
        packed = packing.pack(obj)
        self._was_large = not isinstance(packed, bytes) or len(packed) >= BESIDE_FROM
        if isinstance(packed, bytes):
            self._with_room(functools.partial(self._queue.put, packed), timeout)
        else:
            self._with_room(functools.partial(self._put_beside, packed.pieces()), timeout)

    def _put_beside(self, pieces: list[bytes | memoryview], *, timeout: float | None) -> None:
        """Each buffer is copied once, to where it stays."""
        with self._queue.reserve(sum(len(piece) for piece in pieces), timeout=timeout) as slot:
            at = 0
            for piece in pieces:
                slot.buffer[at : at + len(piece)] = piece
                at += len(piece)

    def _with_room(self, put: Callable[..., object], timeout: float | None) -> None:
        """
        Put it; while shared memory itself is full, wait as for any other room, unless nobody else could make some.

        Raises:
            DiskFull: nobody else has the queue open; or the time is up.
        """
        end = None if timeout is None else time.monotonic() + timeout
        warn_at = time.monotonic() + _WARN_AFTER
        while True:
            try:
                put(timeout=None if end is None else max(end - time.monotonic(), 0.0))
            except shmq.DiskFull:
                now = time.monotonic()
                if (end is not None and now >= end) or self._queue.stats().participants < 2:
                    raise
                if now >= warn_at:
                    warn_at = float("inf")
                    logging.getLogger("shmq").warning("%r waits for room in shared memory", self)
                time.sleep(_SOON)
            except shmq.Closed:
                raise self._is_closed() from None
            else:
                return

    def _get(self, timeout: float | None) -> Any:
        if self._closed:
            raise self._is_closed()
        getter = self._getter or self._open_getter()
        try:
            if self._views:
                return packing.unpack(getter.get(timeout=timeout).view, views=True)
            payload = getter.take() if timeout is None else getter.take(timeout)
        except shmq.Closed:
            raise self._is_closed() from None
        plain = payload[:1] == PLAIN
        return loads(payload) if plain else packing.unpack(memoryview(payload))  # noqa: S301  # of ourselves

    def _open_getter(self) -> shmq.GroupConsumer[bytes]:
        with self._lock:
            if self._getter is None:
                self._getter = _opened(self._queue)
            return self._getter

    # ---- looking
    def qsize(self) -> int:
        """How many objects are in the queue; exact while no call runs."""
        self._check_open()
        return (self._getter or self._open_getter()).lag

    def empty(self) -> bool:
        """Whether there is nothing to get."""
        return self.qsize() == 0

    # ---- closing
    def close(self) -> None:
        """This process puts and gets nothing more; others go on. Closing twice is fine."""
        if not self._closed:
            self._unused = self._getter is None and self._queue.next_index == 0
        self._closed = True
        with contextlib.suppress(shmq.ShmqError, OSError):
            if self._getter is not None:
                self._getter.close()
            self._queue.close()

    def _check_open(self) -> None:
        if self._closed:
            raise self._is_closed()

    def _is_closed(self) -> ValueError:
        return _IsClosedError(f"Queue {self!r} is closed")

    # ---- crossing to other processes
    def __getstate__(self) -> dict[str, Any]:
        """Its place."""
        self._check_open()
        return {"_maxsize": self._maxsize, "_views": self._views, "_queue": self._queue}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open it here."""
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        """What it is, and where."""
        return f"<shmq.compat.{type(self).__name__} {self._queue.place}>"


def _opened(queue: shmq.Queue[bytes]) -> shmq.GroupConsumer[bytes]:
    return queue.consumer(_GROUP, group=True, ack="auto", window=_WINDOW)


class Queue(_Shared):
    """
    As `multiprocessing.Queue`, of no start method, and with `shutdown` as `queue.Queue` has it.

    An object is pickled by whoever puts it: what cannot be is told there, with the part of it that cannot. Others can
    get it when `put` returns. Large buffers, such as those of arrays, are copied once by put and once by get.

    Args:
        maxsize: how many objects it holds before `put` waits; without limit when it is not positive.
        ctx: what multiprocessing's contexts give; it is not needed.
        views: give arrays and bytes that lie in the queue's memory, read-only, and copy nothing; each keeps its part of
            the queue's memory until it is collected.
    """

    def __init__(self, maxsize: int = 0, *, ctx: object = None, views: bool = False) -> None:  # noqa: ARG002
        """A new queue, which other processes get as an argument of theirs, or by fork."""
        super().__init__(maxsize, views=views)

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:  # as there
        """
        Put *obj* in; when it is full, wait as long as *timeout* says, if *block* says so.

        Raises:
            queue.Full: there was no room in time.
            ValueError: it was closed here.
            ShutDown: somebody called `shutdown`; from 3.13 on a `queue.ShutDown`.
            Whatever pickling raises.
        """
        if timeout is not None or not block:
            self._put(obj, _timeout(timeout, block=block))
        elif not self._put_plainly(obj):
            self._put(obj, None)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """
        Take the next object out, which nobody else gets; when there is none, wait as `put` does.

        Raises:
            queue.Empty: there was none in time.
            ValueError, ShutDown: as `put`; what was put before a `shutdown` comes first.
            Whatever unpickling raises.
        """
        getter = self._getter
        if timeout is not None or not block or getter is None or self._views:
            return self._get(None if block and timeout is None else _timeout(timeout, block=block))
        try:  # as `_get`, which costs one more call in Python
            payload = getter.take()
        except shmq.Closed:
            raise self._is_closed() from None
        plain = payload[:1] == PLAIN
        return loads(payload) if plain else packing.unpack(memoryview(payload))  # noqa: S301  # of ourselves

    def put_nowait(self, obj: Any) -> None:
        """`put(obj, False)`."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """`get(False)`."""
        return self.get(False)

    def empty(self) -> bool:
        """Whether there is nothing to get; True of one that was closed before it was used."""
        return self._unused or super().empty()

    def full(self) -> bool:
        """Whether a put would wait."""
        return 0 < self._maxsize <= self.qsize()

    def shutdown(self, immediate: bool = False) -> None:
        """
        Refuse all puts from now on, in all processes; gets take what is left, then raise `ShutDown`.

        Args:
            immediate: discard what is left; then gets raise at once.
        """
        self._check_open()
        self._queue.shutdown(immediate=immediate)
        if immediate:
            self._queue.purge()

    def join_thread(self) -> None:
        """Nothing: there is no thread."""
        assert self._closed, f"Queue {self!r} not closed"  # noqa: S101  # as there

    def cancel_join_thread(self) -> None:
        """Nothing: what was put is in the queue, and stays there."""


class JoinableQueue(Queue):
    """As `multiprocessing.JoinableQueue`: a `Queue` that knows how many of its objects are not done yet."""

    def __init__(self, maxsize: int = 0, *, ctx: object = None, views: bool = False) -> None:
        """A new queue, of which nothing is to be done."""
        super().__init__(maxsize, ctx=ctx, views=views)
        self._tasks = _Tasks()

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """As `Queue.put`; one more is to be done."""
        self._check_open()
        self._tasks.add()  # first: whoever gets it may be done with it at once
        try:
            super().put(obj, block, timeout)
        except BaseException:
            with contextlib.suppress(shmq.ShmqError):
                self._tasks.take_one()
            raise

    def task_done(self) -> None:
        """
        One that was got is done.

        Raises:
            ValueError: that was said more often than something was put.
        """
        self._check_open()
        try:
            self._tasks.take_one()
        except shmq.Empty:
            if not self._queue.stats().shut_down:  # which discards what is not done
                raise ValueError("task_done() called too many times") from None

    def join(self, timeout: float | None = None) -> bool:
        """
        Return True when all that was put is done; False when that is not so after *timeout* seconds.

        Whoever got an object and was killed is never done with it: then this waits, as multiprocessing's does.
        """
        self._check_open()
        return self._tasks.until_empty(None if timeout is None else time.monotonic() + timeout)

    def shutdown(self, immediate: bool = False) -> None:
        """As `Queue.shutdown`; *immediate* has every `join` return, too."""
        super().shutdown(immediate)
        if immediate:
            self._tasks.clear()

    def close(self) -> None:
        """As `Queue.close`."""
        super().close()
        self._tasks.close()

    def __getstate__(self) -> dict[str, Any]:
        """As a `Queue`, with what is to be done."""
        return {**super().__getstate__(), "_tasks": self._tasks}


class SimpleQueue(_Shared):
    """As `multiprocessing.SimpleQueue`, but that a `put` never waits for somebody to get."""

    def __init__(self, *, ctx: object = None) -> None:  # noqa: ARG002  # as there
        """A new queue, without a bound."""
        super().__init__()

    def put(self, obj: Any) -> None:
        """Put *obj* in."""
        if not self._put_plainly(obj):
            self._put(obj, None)

    def get(self) -> Any:
        """Take the next object out, as soon as there is one."""
        return self._get(None)


class _Tasks(_Shared):
    """How many objects of a JoinableQueue are not done: so many empty messages."""

    def __init__(self) -> None:
        super().__init__(_NEVER_FULL)

    def add(self) -> None:
        """One more."""
        self._with_room(functools.partial(self._queue.put, b""), None)

    def take_one(self) -> None:
        """
        One fewer.

        Raises:
            Empty: there is none.
        """
        (self._getter or self._open_getter()).take(timeout=0)

    def clear(self) -> None:
        """None at all."""
        self._queue.purge()

    def until_empty(self, end: float | None) -> bool:
        """Whether there was none before *end*, on the monotonic clock."""
        rang = threading.Event()
        with self._queue.producer() as producer:
            alarm = producer.alarm(rang.set)  # whoever takes one makes room
            try:
                while True:
                    rang.clear()
                    alarm.begin()
                    left = None if end is None else end - time.monotonic()
                    if self.empty():
                        return True
                    if left is not None and left <= 0:
                        return False
                    if alarm.arm():
                        rang.wait(left)
            finally:
                alarm.disarm()


def _timeout(timeout: float | None, *, block: bool) -> float | None:
    if not block:
        return 0
    return None if timeout is None else max(timeout, 0)
