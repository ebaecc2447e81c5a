"""Workers without a submitter: what `shmq worker` runs, in another terminal or another container."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from shmq.executor import run_file
from shmq.executor.directory import Directory
from shmq.executor.guarding import Guard

if TYPE_CHECKING:
    from collections.abc import Callable


def serve(
    path: str | os.PathLike[str],
    count: int | None = None,
    *,
    max_tasks_per_child: int | None = None,
    on_start: Callable[[list[int]], object] | None = None,
) -> None:
    """
    Run tasks of the Executor's directory *path*, with that many workers, until SIGTERM or SIGINT; then finish those
    that run. For a program's main thread. A second signal leaves at once: what runs is finished by its worker.

    Args:
        count: how many; as many as there are processors by default.
        max_tasks_per_child: a worker is replaced after so many.
        on_start: called with the pids, once.
    """
    directory = Directory(path)
    run_file.sweep(directory.workers)
    ends = threading.Event()
    guard = Guard(
        directory, count=count or os.cpu_count() or 1, max_tasks=max_tasks_per_child, on_nobody=directory.close
    )
    before = {number: signal.signal(number, lambda *_: ends.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    if os.getcwd() not in sys.path:  # where the functions are that it is to find
        sys.path.insert(0, os.getcwd())
    try:
        try:
            _start(guard, ends)
            if on_start is not None and not ends.is_set():
                on_start(guard.workers.pids())
            ends.wait()
        finally:
            guard.workers.stop(wait=False)
            for number, handler in before.items():
                signal.signal(number, handler)
        guard.workers.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(guard: Guard, ends: threading.Event) -> None:
    """Start the workers. Ctrl-C ends the process that starts them for us as well, which is no fault then."""
    try:
        guard.start()
    except (EOFError, OSError):
        if not ends.is_set():
            raise
