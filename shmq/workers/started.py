"""One worker as its starter sees it: a process, the pipe to it, and a descriptor that stands for it and nobody else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING, Any

from shmq.workers import ends
from shmq.workers.life import ASKED, LEAVE, live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_STATUS_WITHIN = 2.0
"""Seconds in which a fork server tells how its child ended; it may have been killed itself."""
_AGAIN = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Seconds before a worker is asked for again where the fork server is ending: Ctrl-C ends one that still imports."""
_NO_STATUS = 255
"""What multiprocessing says of the child of a fork server that is gone."""


@dataclass(frozen=True)
class Ended:
    """
    How a worker ended.

    Attributes:
        pid: what it was.
        exitcode: its exit status, or minus the signal that ended it; None when nobody can know.
        lived: for how many seconds.
    """

    pid: int
    exitcode: int | None
    lived: float

    @property
    def signal(self) -> int | None:
        """The signal that ended it, if one did."""
        return -self.exitcode if self.exitcode is not None and self.exitcode < 0 else None

    def __str__(self) -> str:
        """In words."""
        if self.exitcode is None:
            return f"worker {self.pid} ended, and nobody knows how"
        if self.signal is None:
            return f"worker {self.pid} ended with status {self.exitcode}"
        return f"worker {self.pid} was killed by {signal_name(self.signal)}"


def signal_name(number: int) -> str:
    """SIGKILL for 9; "signal 63" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """No SIGINT or SIGTERM reaches this thread, nor what it forks before that can say what to do with them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Started:
    """A worker from its start until its end was noticed."""

    def __init__(self, context: Any, work: Callable[..., object], args: Sequence[object], name: str) -> None:
        """
        Start it.

        Raises:
            Whatever the start method does: what cannot be pickled, no more processes, no memory.
        """
        self._pid = os.getpid()
        context = _usable(context)
        self._method = context.get_start_method()
        with ends.gate:
            self._process = self._begun(context, work, args, name)
            self.pid: int = self._process.pid
            self.pidfd = _pidfd_of(self.pid)
        self.silent = False
        """Whether it says no more: its end of the pipe is closed."""
        self.began = time.monotonic()
        self._ended: Ended | None = None
        self._asked = False

    def _begun(self, context: Any, work: Callable[..., object], args: Sequence[object], name: str) -> Any:
        """A process that has begun; tried again, with a pipe of its own, where the fork server ended meanwhile."""
        for pause in (*_AGAIN, None):
            self.pipe, theirs = context.Pipe()
            ends.keep(self)
            process = context.Process(target=live, args=(theirs, work, args), name=name)
            try:
                with theirs, _signals_wait():
                    process.start()
            except (EOFError, ConnectionError):
                self.pipe.close()  # whatever the server has forked takes it for its starter's end
                if self._method != "forkserver" or pause is None:
                    raise
                time.sleep(pause)  # it is known to be gone once it is a zombie, a moment after its socket is
                context = _usable(context)
            else:
                return process
        raise AssertionError

    def ask_to_leave(self) -> None:
        """Have it finish what it does, and leave. It may be gone."""
        if not self._asked:
            with contextlib.suppress(OSError):
                self.pipe.send_bytes(LEAVE)
            self._asked = True

    def signal(self, number: int) -> None:
        """Send a signal: to it, whoever may have its pid by now. It may be gone."""
        with contextlib.suppress(ProcessLookupError, OSError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)

    def words(self) -> Iterator[bytes]:
        """What it has said since."""
        try:
            while self.pipe.poll():
                yield self.pipe.recv_bytes()
        except (OSError, EOFError):
            self.silent = True

    def ended(self) -> Ended:
        """How it ended, which its pidfd has told."""
        if self._ended is None:
            lived = time.monotonic() - self.began
            self._process.join(_STATUS_WITHIN)
            status = self._process.exitcode
            if self._method == "forkserver" and status == _NO_STATUS:
                status = None
            self._ended = Ended(self.pid, status, lived)
        return self._ended

    def close(self) -> None:
        """Let go of it, dead or alive; a living one takes it for its starter's end."""
        self.let_go()
        # Not its close(): multiprocessing's exit may go through all processes just now, and breaks off at a closed one.
        # A living one it keeps, and waits for.
        del self._process

    def let_go(self) -> None:
        """Close the descriptors; also those that a forked child has."""
        self.pipe.close()
        fd, self.pidfd = getattr(self, "pidfd", -1), -1
        if fd >= 0:
            os.close(fd)


def _usable(context: Any) -> Any:
    """
    That context, or spawn where it is forkserver and there can be none.

    Its server is begun here: it must not inherit the signals that are blocked while a worker is started. In a forked
    child of a process that has one, multiprocessing waits for a process that is not the child's. And so is the tracker
    of resources, which every spawned one is told of: whoever begins it unblocks those signals.
    """
    if context.get_start_method() == "forkserver":
        try:
            forkserver.ensure_running()
        except ChildProcessError:
            context = multiprocessing.get_context("spawn")
    if context.get_start_method() == "spawn":
        resource_tracker.ensure_running()
    return context


def _pidfd_of(pid: int) -> int:
    """
    What becomes readable when it ends, and stands for it alone.

    A child of this process stays a zombie until it is waited for, so its pid is its own. A fork server's may be gone:
    what has that pid then is a stranger, which the pipe below would not have been closed for.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # gone already: a descriptor that is readable at once
        read, write = os.pipe()
        os.close(write)
        return read
