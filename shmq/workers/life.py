"""
A worker's life, from within: whether it is to end, and how it hears of that while it waits.

Its starter holds the other end of a pipe. A word there asks it to leave; that the pipe is closed says that the starter
is gone, however it went. Both come to the main thread as SIGTERM does, which anybody may send.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

T = TypeVar("T")
LEAVE = b"leave"
"""What a starter says."""
_AGAIN = 0.02
"""Seconds after which a worker that waits is woken again."""
ASKED = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that are blocked while a worker is started, until it knows what to do with them."""


class Ending(BaseException):
    """Raised in what a worker waits for by `Life.wait`: it is to leave. No error, and caught by nobody on its way."""


class Life:
    """
    What a worker's function is given first.

    Attributes:
        ending: whether it is to finish what it does, and return.
        orphaned: whether that is because its starter is gone.
    """

    def __init__(self, starter: Connection) -> None:
        """Begun by `begin`, in the worker's main thread."""
        self.ending = False
        self.orphaned = False
        self._starter = starter
        self._main = threading.get_ident()
        self._waits = False

    def begin(self) -> None:
        """Set up signals, and listen to the starter."""
        signal.set_wakeup_fd(-1)  # a forked one has that of its parent's event loop
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=self._listen, name="shmq-starter", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)

    def wait(self, call: Callable[[], T]) -> T:
        """
        What *call* answers, which may take for ever.

        Raises:
            Ending: this worker is to leave. Anything may be half done in *call*; so it waits, and takes nothing.
        """
        self._waits = True
        try:
            if self.ending:
                raise Ending
            return call()
        finally:
            self._waits = False

    def say(self, word: bytes) -> None:
        """Tell the starter, which `Workers` gives to its `on_word`; a starter that is gone hears nothing."""
        with contextlib.suppress(OSError):
            self._starter.send_bytes(word)

    def end(self) -> None:
        """Finish what is done now, and leave then."""
        self.ending = True
        if self._waits:
            raise Ending

    def _on_signal(self, number: int, frame: object) -> None:  # noqa: ARG002  # a handler's signature
        self.end()

    def _listen(self) -> None:
        try:
            while self._starter.recv_bytes() != LEAVE:
                pass
        except (OSError, EOFError):
            self.orphaned = True
        self.ending = True  # whatever has become of the handler since
        while self._waits:  # a signal that comes just before a sleep does not end it
            signal.pthread_kill(self._main, signal.SIGTERM)
            time.sleep(_AGAIN)


def live(starter: Connection, work: Callable[..., object], args: Sequence[object]) -> None:
    """A worker process, whole."""
    life = Life(starter)
    life.begin()
    with contextlib.suppress(Ending):
        work(life, *args)
