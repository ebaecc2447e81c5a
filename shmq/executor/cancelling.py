"""
Who is cancelled: a queue of ids that each worker reads to its end before it begins a task.

A worker writes which task it has, and then looks for cancellations. Whoever cancels puts the cancellation, and then
looks which tasks workers have. So one of the two sees the other: a task that no worker has when its cancellation is
there does not begin any more.

When nothing waits and nothing runs, what is there is of tasks that have ended, and goes: see `forget_ended`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmq import errors
from shmq.executor import names, page, run_file

if TYPE_CHECKING:
    from shmq import Queue, Reader
    from shmq.executor.directory import Directory

CANCEL, KILL = b"c", b"k"
_MANY = 1000
"""So many cancellations are kept in any case."""
_LOOK_AGAIN = 0.0005
_BETWEEN = 5.0
"""Seconds after which a worker that is between claim and start is taken to be stopped, and to have begun."""


class Cancelled:
    """The tasks that are cancelled, as far as anybody has asked here."""

    def __init__(self, directory: Directory) -> None:
        """Nothing is read yet."""
        self._page = directory.page
        self._queue: Queue[bytes] = directory.queue(names.CANCELS)
        self._reader: Reader[bytes] = self._queue.reader()
        self._stamp: int | None = None
        self._purged = self._page.stamps[page.PURGED]
        self._known: dict[bytes, bytes] = {}

    def how(self, id_: bytes) -> bytes | None:
        """CANCEL or KILL, where somebody has asked for that; None where nobody has."""
        self._read_on()
        return self._known.get(id_)

    def _read_on(self) -> None:
        stamp = self._page.stamps[page.CANCELS]
        if stamp != self._stamp:
            purged = self._page.stamps[page.PURGED]  # before what is in the queue: whatever comes behind it counts
            if purged != self._purged:
                self._purged = purged
                self._known.clear()
            try:
                self._read_all()
            except errors.Gone:  # they were purged
                self._reader.close()
                self._reader = self._queue.reader()
                self._read_all()
            self._stamp = stamp

    def _read_all(self) -> None:
        for message in self._reader:
            if message.key is not None:
                self._known[message.key] = bytes(message.payload)

    def killed(self) -> dict[bytes, bytes]:
        """All that are known now."""
        self._read_on()
        return self._known

    def close(self) -> None:
        """Read no more."""
        self._reader.close()


def ask(directory: Directory, id_: bytes, how: bytes) -> None:
    """Have that task not begun any more; with KILL, also ended where it runs."""
    with directory.exclusively():
        directory.queue(names.CANCELS).put(how, key=id_)
        directory.page.change(page.CANCELS)


def forget_ended(directory: Directory, least: int = _MANY) -> bool:
    """
    Forget who is cancelled, where that is many, and all tasks that there were have ended; whether that was so.

    Whoever cancels waits meanwhile. So each of these cancellations is of a task that was put before this looks at the
    tasks, and all of those are finished; what is put now is cancelled later.
    """
    queue = directory.queue(names.CANCELS)
    if len(queue) < least:
        return False
    with directory.exclusively():
        for name in names.TASKS.values():
            stats = directory.queue(name).consumers().get(names.GROUP)
            if stats is None or stats.lag:
                return False
        queue.purge()
        directory.page.change(page.PURGED)
        directory.page.change(page.CANCELS)
    return True


def state_of(directory: Directory, id_: bytes) -> int:
    """What a living worker does with that task: IDLE for none, STARTING, RUNNING."""
    for _, seen in run_file.all_seen(directory.workers):
        said = seen.says()
        if said.id == id_ and said.state in (run_file.STARTING, run_file.RUNNING) and seen.lives():
            return said.state
    return run_file.IDLE


def has_begun(directory: Directory, id_: bytes) -> bool:
    """Whether its code runs: a worker that is about to begin it has looked for cancellations when this returns."""
    end = time.monotonic() + _BETWEEN
    while True:
        state = state_of(directory, id_)
        if state != run_file.STARTING:
            return state == run_file.RUNNING
        if time.monotonic() > end:
            return True
        time.sleep(_LOOK_AGAIN)
