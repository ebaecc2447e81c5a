"""
The line of those who wait for one handle: first come, first served, and only the first one looks.

What is awaited only says "look". The look itself is made in the frame of the task that asked, and nothing is awaited
between what it takes and its return: so a task that is cancelled while it waits has taken nothing.
"""

from __future__ import annotations

import collections
import math
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.aio import loops

_Found = TypeVar("_Found")
_Given = ParamSpec("_Given")
_AT_ONCE = 64
"""So many looks at most, and so many seconds, before others of the loop run."""
_FOR_SO_LONG = 0.001
_PAUSE = 0.002
"""Seconds between two looks for what no bell tells of: somebody else puts as the same producer."""


class _Alarm(Protocol):
    def begin(self) -> None: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...


class _Waited(Protocol):
    def alarm(self, call: Callable[[], object], /) -> Any: ...


def deadline_of(timeout: float | None) -> float | None:
    """
    Until when to wait, on the monotonic clock.

    Raises:
        TypeError, ValueError: it is no number of seconds.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout={timeout!r}: a number of seconds is wanted, or None to wait as long as it takes")
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(f"timeout={timeout!r}: seconds are not negative; None waits as long as it takes")
    return time.monotonic() + min(timeout, 1e9)


class Held:
    """What all handles of this package have: a loop that they belong to, and a process."""

    def __init__(self, loop: loops.Loop, what: str) -> None:
        """*what*: its name, for errors."""
        self._loop = loop
        self._pid = os.getpid()
        self._what = what

    def check(self) -> None:
        """
        Refuse what comes from elsewhere.

        Raises:
            Forked: this is a child of its process.
            RuntimeError: this is another loop.
        """
        if os.getpid() != self._pid:
            raise shmq.Forked(
                f"{self._what} belongs to a loop of the parent process {self._pid}; open the queue anew in this child"
            )
        if not self._loop.is_here():
            raise RuntimeError(
                f"{self._what} belongs to the event loop in which it was opened, and another one runs here"
            )

    async def in_thread(self, call: Callable[_Given, _Found], /, *given: _Given.args, **named: _Given.kwargs) -> _Found:
        """
        What *call* answers in a thread: `await q.in_thread(q.plain.verify)`. It goes on when the task is cancelled.

        Not for what takes messages: what it has taken then is lost.
        """
        self.check()
        return await self._loop.call(call, *given, **named)


class Line:
    """Those who wait for one handle, in its loop."""

    def __init__(
        self,
        loop: loops.Loop,
        handle: _Waited,
        nothing: type[Exception],
        what: str,
        may_pass: Callable[[Exception], bool] = lambda _: True,
    ) -> None:
        """*nothing*: what a look raises that is worth a wait, unless *may_pass* denies it."""
        self._loop = loop
        self._nothing = nothing
        self._what = what
        self._may_pass = may_pass
        self._waiting: collections.deque[loops.Flag] = collections.deque()
        ring = weakref.WeakMethod(self._ring)  # or a handle that was forgotten waited for the garbage collector

        def call() -> None:
            known = ring()
            if known is not None:
                loop.tell(known)

        self._alarm: _Alarm = handle.alarm(call)
        self._looks = 0
        self._since = time.monotonic()

    async def claim(self, look: Callable[[], _Found], timeout: float | None) -> _Found:
        """What *look* finds, as soon as it finds something and nobody is before this task."""
        until = deadline_of(timeout)
        await self._give_way()
        if not self._waiting:
            try:
                return look()
            except (self._nothing, shmq.Busy) as problem:
                if timeout == 0 or not self._may_pass(problem):
                    raise
        elif timeout == 0:
            raise self._turned_away()
        return await self._wait(look, until)

    async def _give_way(self) -> None:
        self._looks += 1
        must = self._looks > _AT_ONCE or time.monotonic() - self._since > _FOR_SO_LONG
        await self._loop.give_way(must=must)
        if must:
            self._looks, self._since = 1, time.monotonic()

    async def _wait(self, look: Callable[[], _Found], until: float | None) -> _Found:
        mine = self._loop.flag()
        self._waiting.append(mine)
        _awaited.add(self)
        try:
            while self._waiting[0] is not mine:
                await mine.wait(until)
                if self._waiting[0] is not mine and _is_over(until):
                    raise self._turned_away()
            return await self._look_until(look, mine, until)
        finally:
            was_first = self._waiting[0] is mine
            self._waiting.remove(mine)
            if not self._waiting:
                _awaited.discard(self)
            elif was_first:  # also when it was woken and is cancelled: the next one looks
                self._ring()

    async def _look_until(self, look: Callable[[], _Found], mine: loops.Flag, until: float | None) -> _Found:
        try:
            while True:
                mine.clear()
                self._alarm.begin()
                try:
                    return look()
                except (self._nothing, shmq.Busy) as problem:
                    if _is_over(until) or not self._may_pass(problem):
                        raise
                    rings = not isinstance(problem, shmq.Busy)
                if self._alarm.arm():
                    await mine.wait(until if rings else _soon(until))
        finally:
            self._alarm.disarm()
            self._looks, self._since = 0, time.monotonic()

    def _ring(self) -> None:
        if self._waiting:
            self._waiting[0].set()

    def _turned_away(self) -> Exception:
        return self._nothing(f"nothing from {self._what} in time: others were first")


_awaited: set[Line] = set()
"""Those in which somebody waits: a loop keeps no task that waits for something else, so one might be collected."""


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _soon(until: float | None) -> float:
    soon = time.monotonic() + _PAUSE
    return soon if until is None else min(until, soon)
