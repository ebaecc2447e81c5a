"""A thread that shmq keeps beside a program's own: begun once and ended once, whatever interrupts either."""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_PATIENCE = 1.0
"""Seconds for a thread that was asked for to be there: it may have been asked for in the parent of this process."""


class Worker:
    """
    One thread, from `start` to `end`. Both can be repeated: a signal's handler that raises in one of them is in the
    program's own thread, and leaves this one running, or not begun.

    In the program's thread it is begun by one step of the interpreter. `Thread.start` is many: what a handler raises in
    there becomes a KeyError, there or on stderr; so that is called where no handler runs.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        """It begins with `start`; *work* returns soon when `is_ending` says so."""
        self._work = work
        self._name = name
        self._at_work = threading.Lock()
        self._end_of_pause = threading.Lock()
        self._end_of_pause.acquire()
        self._there = threading.Lock()
        self._there.acquire()
        self._threads: list[threading.Thread] = []
        self._ident = 0
        self._begun = False
        self._ending = False

    def start(self) -> None:
        """Begin, unless it has."""
        if not self._begun:
            _thread.start_new_thread(self._begin, ())
            self._begun = True

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        alone = False
        try:
            thread.start()
            self._threads.append(thread)
        except RuntimeError:  # there may be no more threads than this one
            alone = True
        with contextlib.suppress(RuntimeError):  # its start was repeated
            self._there.release()
        if alone:
            self._run()

    def _run(self) -> None:
        if self._at_work.acquire(blocking=False):  # else its start was interrupted and repeated, and this is the second
            self._ident = threading.get_ident()
            try:
                if not self._ending:
                    self._work()
            finally:
                self._at_work.release()

    def is_ending(self) -> bool:
        """Whether it is to return."""
        return self._ending

    def pause(self, seconds: float) -> bool:
        """Sleep, in the thread; whether it is to return."""
        if self._end_of_pause.acquire(timeout=seconds):
            self._end_of_pause.release()
        return self._ending

    def end(self, wake: Callable[[], None]) -> None:
        """Return when it has; *wake* is what it wakes from."""
        self._ending = True
        with contextlib.suppress(RuntimeError):  # released before
            self._end_of_pause.release()
        wake()
        if threading.get_ident() == self._ident:
            return  # it collects garbage, and with that the last handle: it ends when it comes back
        if sys.is_finalizing():
            return  # the interpreter ends: its daemon threads never come back, so nobody may wait for one
        if self._begun and self._there.acquire(timeout=_PATIENCE):
            self._there.release()
        with self._at_work:  # one that has not come so far yet finds at once that it is to end
            pass
        for thread in self._threads:
            thread.join()
