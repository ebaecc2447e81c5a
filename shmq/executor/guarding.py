"""
Whoever starts workers guards them: it tells how they die and of what, ends those that take too long, and those whose
task is killed. It kills only under the lock by which a worker stays in one task.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from shmq import errors, workers
from shmq.executor import cancelling, names, run_file, task
from shmq.executor.working import BROKEN, RUN, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.executor.directory import Directory

_log = logging.getLogger("shmq.executor")
_BUSY, _IDLE = 0.1, 0.5
"""Seconds between two looks at the workers: while one runs a task, and else."""
_GRACE = 0.5
"""Seconds over its limit after which a task is killed at the latest: first, what it is at is written down."""
_SOON = 0.05
_HOPELESS = 6
"""So many that end by themselves before they begin, and none that ever began: none will."""
_DIES_WITHIN = 1.0
_TRACE_MOST = 16 << 10
"""Bytes of a traceback that are told."""


class _Watched:
    """A worker of ours."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = os.path.join(folder, name)
        self.seen = run_file.Seen(self.path)
        self.why = "died"
        self.traced = 0
        self.peak: int | None = None
        self.peak_of = (b"", 0)
        """The task and the attempt that it was seen at."""

    def has_trace(self) -> bool:
        """Whether something is written there, and no more since the last look."""
        try:
            before, self.traced = self.traced, os.stat(f"{self.path}.trace").st_size
        except FileNotFoundError:
            return False
        return before == self.traced > 0

    def trace(self) -> str:
        """What the interpreter has written on its way out, once."""
        try:
            with open(f"{self.path}.trace", "rb") as file:
                text = file.read(_TRACE_MOST)
            os.unlink(file.name)
        except FileNotFoundError:
            return ""
        return text.decode("utf-8", "replace")

    def close(self) -> None:
        self.seen.unlink()
        self.seen.close()


class Guard:
    """Starts workers of a directory, and guards them."""

    def __init__(
        self,
        directory: Directory,
        *,
        count: int,
        context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks: int | None = None,
        on_broken: Callable[[str], object] | None = None,
        on_nobody: Callable[[], object] | None = None,
    ) -> None:
        """
        Nothing is started yet.

        Args:
            on_broken: called when no worker can begin, with why: none is started any more then.
            on_nobody: called when the last worker has left.
        """
        self.begun = False
        self._directory = directory
        self._on_broken, self._told_of_nobody = on_broken, on_nobody
        self._broken = False
        self._has_begun, self._never_began = False, 0
        self._watched: dict[int, _Watched] = {}
        self._cancelled = cancelling.Cancelled(directory)
        self.workers = workers.Workers(
            work,
            (directory.path, initializer, initargs, max_tasks),
            count=count,
            context=context,
            name="shmq-executor",
            on_end=self._on_end,
            on_left=self._on_end,
            on_word=self._on_word,
            on_turn=self._on_turn,
            on_nobody=self._on_nobody,
        )

    def start(self) -> None:
        """Start them."""
        self.workers.start()
        self.begun = True

    # ---- all in the watching thread
    def _on_word(self, pid: int, word: bytes) -> None:
        if word.startswith(RUN):
            self._has_begun = True
            self._watched[pid] = _Watched(self._directory.workers, word.removeprefix(RUN).decode())
        elif word.startswith(BROKEN):
            self._break(f"its initializer failed:\n{word.removeprefix(BROKEN).decode('utf-8', 'replace')}")

    def _break(self, why: str) -> None:
        self._broken = True
        self.workers.stop(wait=False)
        _log.error("no worker of %s can begin: %s", self._directory.path, why)
        if self._on_broken is not None:
            self._on_broken(why)

    def _on_end(self, ended: workers.Ended) -> bool:
        watched = self._watched.pop(ended.pid, None)
        if watched is None and not self._has_begun and ended.exitcode:
            self._never_began += ended.exitcode > 0  # what kills them may pass; what they raise comes again
            if self._never_began == _HOPELESS and not self._broken:
                self._break(
                    "each worker that was started ended while it imported the program, and what it said is on stderr "
                    '(a program that starts workers needs if __name__ == "__main__": before what it does)'
                )
        if watched is not None:
            try:
                self._report(ended, watched)
            except (errors.ShmqError, OSError) as problem:  # a full disk: then nobody knows how it died
                _log.warning("cannot put down that %s: %s", ended, problem)
            finally:
                watched.close()
        return not self._broken

    def _report(self, ended: workers.Ended, watched: _Watched) -> None:
        said, trace = watched.seen.says(), watched.trace()
        if said.state not in (run_file.STARTING, run_file.RUNNING):
            return
        how = {"limit": f"the last one, {ended.pid}, was killed at its time limit", "kill": f"{ended} on purpose"}
        told = {
            "attempt": said.attempt,
            "pid": ended.pid,
            "exitcode": ended.exitcode,
            "peak": watched.peak if watched.peak_of == (said.id, said.attempt) else None,
            "why": watched.why,
            "how": how.get(watched.why, f"the last time, {ended}"),
            "trace": trace,
        }
        self._directory.queue(names.DEATHS).put(json.dumps(told).encode(), key=said.id)

    def _on_turn(self) -> float:
        pause = _IDLE
        for pid, watched in list(self._watched.items()):
            said = watched.seen.says()
            if said.state != run_file.RUNNING:
                continue
            self._look_at_memory(pid, watched, said)
            pause = min(pause, _BUSY)
            if self._cancelled.how(said.id) == cancelling.KILL:
                self._end(pid, watched, said, "kill")
            elif said.limit:
                left = said.limit - (task.boot_ns() - said.began) / 1e9
                if left <= -_GRACE or (left <= 0 and watched.has_trace()):
                    self._end(pid, watched, said, "limit")
                else:
                    pause = min(pause, max(left, _SOON))
        return pause

    def _end(self, pid: int, watched: _Watched, said: run_file.Said, why: str) -> None:
        """Kill a worker, if it still has that task."""
        with watched.seen.held() as now:
            if now is None or (now.id, now.attempt, now.state) != (said.id, said.attempt, run_file.RUNNING):
                return
            watched.why = why
            self.workers.signal(pid, signal.SIGKILL)
            end = time.monotonic() + _DIES_WITHIN
            while watched.seen.lives() and time.monotonic() < end:  # so long it stays in this task
                time.sleep(0.0005)

    def _look_at_memory(self, pid: int, watched: _Watched, said: run_file.Said) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status", "rb") as file:
            watched.peak = int(file.read().split(b"VmHWM:", 1)[1].split(None, 1)[0]) << 10
            watched.peak_of = (said.id, said.attempt)

    def _on_nobody(self) -> None:
        self._cancelled.close()
        if self._told_of_nobody is not None:
            self._told_of_nobody()
