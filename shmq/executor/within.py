"""Which worker this process is, for a task that waits for another task of the same directory."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from shmq.executor import run_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_AGAIN = 0.5
"""Seconds between two looks that must agree: a worker may just be getting what it waits for."""


class _Worker(NamedTuple):
    path: str
    file: run_file.RunFile
    pid: int


_worker: _Worker | None = None


@contextlib.contextmanager
def worker(path: str, file: run_file.RunFile) -> Iterator[None]:
    """In this block, this process is a worker of that directory."""
    global _worker  # noqa: PLW0603
    _worker = _Worker(path, file, os.getpid())
    try:
        yield
    finally:
        _worker = None


def is_worker_of(path: str) -> bool:
    """Whether this process works there, so that what it waits for may wait for itself."""
    return _worker is not None and _worker.path == path and _worker.pid == os.getpid()


class Waiting:
    """A task that waits for another one."""

    def __init__(self, folder: str) -> None:
        """In the worker's process."""
        self._folder = folder
        self._since: float | None = None

    def __enter__(self) -> Self:
        """Say that this worker waits."""
        if _worker is not None:
            _worker.file.waits(True)
        return self

    def __exit__(self, *_: object) -> None:
        """It goes on."""
        if _worker is not None:
            _worker.file.waits(False)

    def is_stuck(self) -> bool:
        """Whether every worker there waits, and did so half a second ago: nobody is left to run anything."""
        if not all(said.waits for said in self._living()):
            self._since = None
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since > _AGAIN

    def _living(self) -> Iterator[run_file.Said]:
        for _, seen in run_file.all_seen(self._folder):
            if seen.lives():
                yield seen.says()
