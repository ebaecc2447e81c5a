"""
Methods that are coroutines: an event loop in a thread of its own, begun with the first of them, runs any number beside
each other. One that is given up, or whose time is up, is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from shmq.rpc import deadlines, running
from shmq.rpc.answers import finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shmq.rpc.answers import Answers
    from shmq.rpc.cancels import Cancels
    from shmq.rpc.jobs import Job


class Loop:
    """The loop of one server. What it runs is counted by whoever gives it work."""

    def __init__(self, answers: Answers, cancels: Cancels) -> None:
        """No thread yet."""
        self._answers = answers
        self._cancels = cancels
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupted = False

    def begin(self, job: Job, work: Callable[[Job], Awaitable[Any]], done: Callable[[], object]) -> None:
        """Have *work* of that job awaited in the loop, and *done* called at its end."""
        self._started().call_soon_threadsafe(self._spawn, job, work, done)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(loop,), name="shmq-rpc-loop", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _spawn(self, job: Job, work: Callable[[Job], Awaitable[Any]], done: Callable[[], object]) -> None:
        task = asyncio.get_running_loop().create_task(self._do(job, work))
        self._tasks.add(task)
        key = job.key
        self._cancels.running[key] = lambda: self._give_up(task)
        if key in self._cancels.given_up:
            task.cancel()

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._cancels.running.pop(key, None)
            if task.cancelled():  # before it began
                finish(job.message)
            done()

        task.add_done_callback(over)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(task.cancel)

    async def _do(self, job: Job, work: Callable[[Job], Awaitable[Any]]) -> None:
        """Run it to its end, and answer."""
        request = job.request
        running.begin(job.running)
        limit = asyncio.timeout(
            None if request.deadline_ns == deadlines.NEVER else deadlines.seconds_to(request.deadline_ns)
        )
        try:
            async with limit:
                result = await work(job)
        except asyncio.CancelledError as problem:
            if self._interrupted:
                self._answers.interrupted(job.message, request)
                return
            if job.key not in self._cancels.given_up:  # it has cancelled itself
                self._answers.raised(request, problem)
        except (Exception, SystemExit, KeyboardInterrupt) as problem:  # noqa: BLE001  # its caller's
            if not limit.expired():  # else its caller knows
                self._answers.raised(request, problem)
        else:
            if not job.method.streams:
                self._answers.returned(request, result)
        finish(job.message)

    def end(self, *, interrupt: bool) -> None:
        """Return when nothing runs any more; *interrupt* cancels what does."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._interrupted = interrupt
        asyncio.run_coroutine_threadsafe(self._drain(interrupt=interrupt), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._loop = self._thread = None

    async def _drain(self, *, interrupt: bool) -> None:
        while self._tasks:
            if interrupt:
                for task in list(self._tasks):
                    task.cancel()
            await asyncio.wait(list(self._tasks))


async def call(job: Job) -> Any:
    """What its coroutine returns."""
    return await job.method.function(*job.placed, **job.named)
