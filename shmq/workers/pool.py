"""Workers of one kind, a given number of them: started together, watched by one thread, replaced when they die."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing.util  # whose own end of the interpreter comes behind ours, if it is imported before
import os
import select
import signal
import threading
import time
import weakref
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any, Self

from shmq.workers.pace import LONGEST, Pace
from shmq.workers.started import Ended, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_log = logging.getLogger("shmq.workers")
_MAIN = "__main__"
_started: weakref.WeakSet[Workers] = weakref.WeakSet()


class Workers:
    """
    Processes that run `work(life, *args)`. Begun by `start`, or by a `with` block, which stops them at its end.

    In a forked child it is empty, and does nothing: the workers are its parent's.
    """

    def __init__(
        self,
        work: Callable[..., object],
        args: Sequence[object] = (),
        *,
        count: int,
        context: Any = None,
        name: str = "shmq-worker",
        on_end: Callable[[Ended], bool | None] | None = None,
        on_word: Callable[[int, bytes], object] | None = None,
        on_turn: Callable[[], float | None] | None = None,
        on_left: Callable[[Ended], object] | None = None,
        on_nobody: Callable[[], object] | None = None,
    ) -> None:
        """
        Nothing is started yet.

        The callbacks run in the watching thread. What one raises is logged, and taken for None.

        Args:
            work: a function that the start method can send: one of a module's, by its name.
            args: what it is given behind its `Life`; pickled, unless workers are forked.
            count: how many.
            context: one of multiprocessing's contexts, or its name; "forkserver" by default.
            name: of the processes, before a number.
            on_end: called when one has ended and was not asked to. Whether another is to follow; None for what is
                usual: another, unless it ended with status 0.
            on_left: called instead when one has ended behind `stop` or `kill`.
            on_word: called with what a worker said, and before that with its pid.
            on_turn: called whenever the watching thread has woken; the seconds after which it is to wake again, or
                None for when something happens.
            on_nobody: called when the last one has ended, and none is to follow.
        """
        if count < 1:
            raise ValueError(f"count={count!r}: at least one worker")
        self._work, self._args, self._count, self._name = work, tuple(args), count, name
        self._context = context if hasattr(context, "Process") else multiprocessing.get_context(context or "forkserver")
        self._on_end, self._on_word, self._on_turn = on_end, on_word, on_turn
        self._on_left, self._on_nobody = on_left, on_nobody
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._living: dict[int, Started] = {}
        self._due: list[float] = []
        """When those that are missing are to begin."""
        self._pace = Pace()
        self._numbered = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._bell = -1
        self._nobody = threading.Event()

    # ---- what others call
    def start(self) -> None:
        """
        Start them all, in this thread.

        Raises:
            Whatever the start method does; those that were started leave.
        """
        _preload(self._context, self._work)
        _started.add(self)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            for _ in range(self._count):
                self._start_one()
            self._thread = threading.Thread(target=self._watch, name=f"{self._name}-watch", daemon=True)
            self._thread.start()
        except BaseException:
            self.stop(wait=False)
            if self._thread is None:
                self._let_go()
            raise

    def pids(self) -> list[int]:
        """Of those that live, or are about to begin: they may be importing."""
        if os.getpid() != self._pid:
            return []
        with self._lock:
            return sorted(self._living)

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal to a worker of these; False when there is none with that pid."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            found = self._living.get(pid)
            if found is not None:
                found.signal(number)
        return found is not None

    def wake(self) -> None:
        """Have `on_turn` called soon."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full is rung, too
            if self._bell >= 0 and os.getpid() == self._pid:
                os.eventfd_write(self._bell, 1)

    def stop(self, *, wait: bool = True, timeout: float | None = None) -> bool:
        """
        Have each finish what it does, and leave; none is replaced any more. Whether all have left.

        Args:
            wait: for them to have left; with a *timeout*, up to that.
        """
        if os.getpid() != self._pid:
            return True
        with self._lock:
            self._stopping = True
            self._due.clear()
            for each in self._living.values():
                each.ask_to_leave()
        self.wake()
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            return self._nobody.wait(timeout)
        return not self._living

    def kill(self) -> None:
        """End them at once (SIGKILL), whatever they do; none is replaced any more."""
        self.stop(wait=False)
        with self._lock:
            for each in self._living.values():
                each.signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        """Start them."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop them, and wait until they have left."""
        self.stop()

    # ---- starting
    def _start_one(self) -> None:
        self._numbered += 1
        begun = Started(self._context, self._work, self._args, f"{self._name}-{self._numbered}")
        with self._lock:
            self._living[begun.pid] = begun
            if self._stopping:  # meanwhile
                begun.ask_to_leave()

    def _start_due(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                ready = next((each for each in self._due if each <= now), None)
                if ready is None or self._stopping:
                    return
                self._due.remove(ready)
            try:
                self._start_one()
            except Exception:  # noqa: BLE001  # of the start method, which may raise anything
                _log.exception("cannot start another %s; tried again in %g s", self._name, LONGEST)
                with self._lock:
                    self._due.append(time.monotonic() + LONGEST)
                return

    # ---- watching
    def _watch(self) -> None:
        try:
            pause: float | None = 0.0
            while self._living or (self._due and not self._stopping):
                self._sleep(pause)
                for each in list(self._living.values()):
                    self._hear(each)
                self._start_due()
                pause = self._next_turn()
        finally:
            self._call(self._on_nobody)
            self._nobody.set()
            self._let_go()

    def _sleep(self, pause: float | None) -> None:
        """Until a worker says something or ends, somebody rings, or it is time."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        self._ended: set[int] = set()
        watched: dict[int, int] = {}
        with self._lock:
            for pid, each in self._living.items():
                poll.register(each.pidfd, select.POLLIN)
                watched[each.pidfd] = pid
                if not each.silent:
                    poll.register(each.pipe.fileno(), select.POLLIN)
            due = min(self._due, default=None)
        if due is not None:
            until = max(due - time.monotonic(), 0.0)
            pause = until if pause is None else min(pause, until)
        ready = poll.poll(None if pause is None else pause * 1000 + 1)
        self._ended = {watched[fd] for fd, _ in ready if fd in watched}
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def _hear(self, worker: Started) -> None:
        """What it has said, and whether it has ended, in this order."""
        for word in worker.words():
            self._call(self._on_word, worker.pid, word)
        if worker.pid in self._ended:
            self._bury(worker)

    def _bury(self, worker: Started) -> None:
        ended = worker.ended()
        with self._lock:  # in which others send signals by its descriptor
            del self._living[worker.pid]
            worker.close()
            stopping = self._stopping
        if stopping:
            self._call(self._on_left, ended)
            return
        wanted = self._call(self._on_end, ended)
        well = ended.exitcode == 0
        if wanted is None:
            wanted = not well
        if well:
            self._pace.lives()
        pause = 0.0 if well else self._pace.pause(ended.lived)
        if not well:
            _log.warning("%s: %s", self._name, ended)
        with self._lock:
            if wanted and not self._stopping:
                self._due.append(time.monotonic() + pause)

    def _next_turn(self) -> float | None:
        pause = self._call(self._on_turn)
        return pause if isinstance(pause, (int, float)) else None

    def _call(self, callback: Callable[..., Any] | None, *arguments: object) -> Any:
        """What a callback answers; what it raises is told, and stops nothing."""
        if callback is None:
            return None
        try:
            return callback(*arguments)
        except BaseException:  # noqa: BLE001  # of the user's: the others go on
            _log.exception("%r of %s raised; it goes on", callback, self._name)
            return None

    def _let_go(self) -> None:
        with self._lock:
            bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)


@atexit.register
def _end_of_the_interpreter() -> None:
    """Have them leave: multiprocessing waits for them behind this."""
    for each in list(_started):
        each.stop(wait=False)


def _preload(context: Any, work: Callable[..., object]) -> None:
    """Have the fork server import what workers need, unless it runs, or the program has said what it is to import."""
    if context.get_start_method() != "forkserver":
        return
    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_preload_modules", None) == [_MAIN] and work.__module__ != _MAIN:
        context.set_forkserver_preload([_MAIN, work.__module__])
