"""Having one queue follow another one: both on this machine, with nothing between them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shmq import errors
from shmq.replica.pieces import Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.replica.follower import Follower
    from shmq.replica.source import Source

FLUSH_BYTES = 32 << 20
"""So many bytes may come before the disk is asked."""
IDLE = 0.5
_PAUSE = 1.0
"""Seconds before what failed for want of room is tried again."""


class Stop:
    """What ends a replication, from another thread or a signal's handler."""

    def __init__(self) -> None:
        """It goes on."""
        self._event = threading.Event()
        self._calls: list[Callable[[], object]] = []

    def __call__(self) -> None:
        """End it, soon."""
        self._event.set()
        for call in self._calls:
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Call that too."""
        self._calls.append(call)

    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._event.is_set()

    def pause(self, seconds: float) -> None:
        """Wait so long, unless it is to end."""
        self._event.wait(seconds)


def beside(source: Source, follower: Follower, stop: Stop, *, once: bool = False) -> None:
    """
    Have *follower* follow *source* until *stop*; with *once*, until it has all that was there.

    Raises:
        Mismatch, Gone, Fenced, Corrupt, SyncFailed: it cannot go on; what it has stays.
    """
    stop.then(source.wake)
    while not stop.is_set():
        source.begin(follower.answer(source.hello()))
        try:
            _follow(source, follower, stop, once=once)
        except errors.DiskFull:
            if once:
                raise
            stop.pause(_PAUSE)
        else:
            return


def _follow(source: Source, follower: Follower, stop: Stop, *, once: bool) -> None:
    while not stop.is_set():
        came = unsynced = 0
        for piece in source.pieces():
            follower.take(piece)
            came += 1
            unsynced += len(piece.content) if isinstance(piece, Data) else 0
            if unsynced >= FLUSH_BYTES:
                _flush(source, follower)
                unsynced = 0
            if stop.is_set():
                break
        if came:
            _flush(source, follower)
        elif once:
            return
        source.tend()
        if not came:
            source.wait(IDLE)


def _flush(source: Source, follower: Follower) -> None:
    mark = follower.flush()
    if mark is not None:
        source.acknowledged(mark)
