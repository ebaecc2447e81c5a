"""SIGTERM and Ctrl-C ask a pipeline to stop; and it is asked at whatever moment they come, not only while it runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """
    Whether somebody has asked, from here until this is left. A context manager, of the main thread.

    Elsewhere it hears no signals, and only `ask` asks.
    """

    def __init__(self) -> None:
        """Nobody has asked."""
        self.asked = threading.Event()
        self._before: dict[int, Any] = {}

    def ask(self, *_: object) -> None:
        """Finish what runs, and end. Also a signal handler."""
        self.asked.set()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """
        Within this Ctrl-C waits, and is heard at the end.

        Spark takes it as it starts, and would answer it in the middle of its own talk with the JVM. It does so all the
        same where a thread of another library is given the signal; what that raises is a request to stop, too.
        """
        here = threading.current_thread() is threading.main_thread()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if here else None
        try:
            yield
        except KeyboardInterrupt:
            self.ask()
        finally:
            self.listen()
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def listen(self) -> None:
        """Hear signals; again, where somebody has taken them away."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.signal(number, self.ask)
                self._before.setdefault(number, before)

    def __enter__(self) -> Self:
        """From now on."""
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever heard them before hears them again."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


def deafen() -> None:
    """Hear no signal any more: for a process that ends now, and is done with everything else."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
