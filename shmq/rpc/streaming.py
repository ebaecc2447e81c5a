"""
Streams, at the server: what a generator yields goes into a queue that its client has made for it, while there is room.

A plain generator has a thread of its own while it runs, an asynchronous one is a task of the loop. Whoever reads it
closes the queue when it has enough, or dies; then the generator is closed where it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq.rpc import crossing, deadlines, places, running, wire
from shmq.rpc.answers import finish
from shmq.rpc.errors import ServerDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.rpc.answers import Answers
    from shmq.rpc.jobs import Job
    from shmq.rpc.state import State

STREAMS_MAX = 64
"""So many plain generators run at a time; each has a thread."""
_OPEN_WITHIN = 10.0
"""Seconds for a client to make the queue it was asked for."""
_LOOK = 0.5
"""Seconds after which whoever waits for room looks whether anybody reads."""
_STOP_WITHIN = 2.0
"""And seconds for it to take the last record, when the server is to stop."""
_PAUSE = 0.001
_PAUSE_MAX = 0.005


class Left(Exception):
    """Nobody reads the stream any more."""


class Pipe:
    """One stream's queue, at the end where it is written."""

    def __init__(self, state: State, job: Job) -> None:
        """Nothing is open yet."""
        self._state = state
        self._job = job
        self._request = job.request
        self._pack = state.packing.pack
        self._queue: shmq.Queue[bytes] | None = None
        self._is_read = False
        self._look_at = 0.0
        self._stop_at = 0.0

    # ---- opening
    def announce(self) -> None:
        """Ask the client to make its queue."""
        self._state.replies.send(self._request.client, wire.pack((self._request.sequence, wire.STREAMS, None)))

    def is_open(self) -> bool:
        """Whether the queue is there, and its client reads; then it is open here."""
        if self._queue is None:
            with contextlib.suppress(shmq.NotFound):
                self._queue = places.stream_of(*self._job.key)
        self._is_read = self._queue is not None and self._queue.next_index > 0
        return self._is_read

    # ---- writing
    def item(self, thing: Any) -> bytes:
        """
        Something that was yielded, as it is put.

        Raises:
            TypeError: it cannot cross.
        """
        return self._pack((self._request.sequence, wire.ITEM, thing))

    def end(self, problem: BaseException | None) -> bytes:
        """The last record: it is over, or *problem* is why."""
        if problem is None:
            return self._pack((self._request.sequence, wire.END, None))
        return self._pack((self._request.sequence, wire.RAISED, crossing.of(problem)))

    def put(self, record: bytes, timeout: float, *, last: bool = False) -> bool:
        """
        Whether there was room for it in time. The *last* one is put although the server is to stop.

        Raises:
            Left: nobody reads it.
            ServerDied: the server is to stop.
            TooLarge: no stream has room for it.
        """
        self.check(last=last)
        assert self._queue is not None  # noqa: S101  # it was opened
        try:
            self._queue.put(record, timeout=timeout)
        except shmq.TooLarge:
            raise
        except shmq.Full:  # or the memory is
            return False
        except (shmq.ShmqError, OSError):  # shut down, or removed
            raise Left from None
        return True

    def check(self, *, last: bool = False) -> None:
        """
        Look whether to go on.

        Raises:
            Left, ServerDied: as `put`.
        """
        if self._job.key in self._state.cancels.given_up or deadlines.is_over(self._request.deadline_ns):
            raise Left
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK
            if self._is_read and self._queue is not None and not places.is_owned(self._queue):
                raise Left
        if self._state.stopping:
            self._stop_at = self._stop_at or now + _STOP_WITHIN
            if not last:
                raise ServerDied(f"the server was shut down while {self._request.method}() streamed")
            if now >= self._stop_at:
                raise Left

    def close(self) -> None:
        """Let go of the queue, which is its client's."""
        if self._queue is not None:
            self._queue.close()


class Streaming:
    """The streams of one server."""

    def __init__(self, state: State) -> None:
        """None yet."""
        self._state = state
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def begin(self, job: Job, done: Callable[[], object]) -> None:
        """Have a plain generator run in a thread, and *done* called at its end."""
        with self._lock:
            full = len(self._threads) >= STREAMS_MAX
            if not full:
                thread = threading.Thread(target=self._run, args=(job, done), name="shmq-rpc-stream", daemon=True)
                self._threads.add(thread)
        if full:
            what = f"{STREAMS_MAX} streams run in that server already; {job.method.name}() was not called"
            self._state.answers.raised(job.request, shmq.TooMany(what))
            finish(job.message)
            done()
        else:
            thread.start()

    def _run(self, job: Job, done: Callable[[], object]) -> None:
        try:
            running.begin(job.running)
            self._stream(job)
        finally:
            finish(job.message)
            with self._lock:
                self._threads.discard(threading.current_thread())
            done()

    def _stream(self, job: Job) -> None:
        pipe = Pipe(self._state, job)
        with contextlib.closing(pipe):
            if not self._opened(pipe):
                return
            problem: BaseException | None = None
            things: Any = None
            try:
                things = job.method.function(*job.placed, **job.named)
                for thing in things:
                    record = pipe.item(thing)
                    while not pipe.put(record, _LOOK):
                        pass
            except Left:
                return
            except (Exception, SystemExit) as raised:  # noqa: BLE001  # its reader's
                problem = raised
            finally:
                if things is not None:
                    with contextlib.suppress(Exception):  # nobody waits for it
                        things.close()
            with contextlib.suppress(Left):
                end = pipe.end(problem)
                while not pipe.put(end, _LOOK, last=True):
                    pass

    @staticmethod
    def _opened(pipe: Pipe) -> bool:
        """Whether the client has made the queue."""
        until = time.monotonic() + _OPEN_WITHIN
        try:
            pipe.announce()
            while not pipe.is_open():
                pipe.check()
                if time.monotonic() > until:
                    return False
                time.sleep(_PAUSE)
        except (Left, ServerDied, shmq.ShmqError, OSError):
            return False
        return True

    async def stream(self, job: Job) -> None:
        """The same of an asynchronous generator, in the loop."""
        pipe = Pipe(self._state, job)
        try:
            if not await self._opens(pipe):
                return
            problem: BaseException | None = None
            things = job.method.function(*job.placed, **job.named)
            try:
                async for thing in things:
                    record = pipe.item(thing)
                    await _put(pipe, record)
            except Left:
                return
            except (Exception, SystemExit) as raised:  # noqa: BLE001  # its reader's
                problem = raised
            finally:
                with contextlib.suppress(Exception):  # nobody waits for it
                    await things.aclose()
            with contextlib.suppress(Left):
                await _put(pipe, pipe.end(problem), last=True)
        finally:
            pipe.close()

    @staticmethod
    async def _opens(pipe: Pipe) -> bool:
        until = time.monotonic() + _OPEN_WITHIN
        with contextlib.suppress(Left, ServerDied, shmq.ShmqError, OSError):
            pipe.announce()
            while not pipe.is_open():
                pipe.check()
                if time.monotonic() > until:
                    return False
                await asyncio.sleep(_PAUSE)
            return True
        return False

    def wait(self) -> None:
        """Return when none runs any more; they were told to stop."""
        for thread in list(self._threads):
            thread.join()


async def _put(pipe: Pipe, record: bytes, *, last: bool = False) -> None:
    """Put it once there is room; others of the loop run until then."""
    pause = _PAUSE
    while not pipe.put(record, 0.0, last=last):
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX)


def tell_died(answers: Answers, request: wire.Request) -> None:
    """The server that streamed has died: whoever reads there is told."""
    problem = ServerDied(f"the server that had {request.method}() died while it streamed")
    answers.raised(request, problem)
    with contextlib.suppress(shmq.ShmqError, OSError), places.stream_of(request.client, request.sequence) as queue:
        queue.put(wire.pack((request.sequence, wire.RAISED, crossing.of(problem))), timeout=0)
