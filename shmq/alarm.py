"""
Waiting without a sleep: an alarm calls when a handle may have something; one thread of the process sleeps for all.

For event loops, which look themselves and must not be kept from other work meanwhile. Nothing is claimed here. The
thread sleeps on up to 127 bells in one call of the kernel; for more there are more threads. It ends when nothing was
armed for some seconds.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import os
import time

from shmq import _native, given, locks, log
from shmq.deadlines import sooner
from shmq.hints import TYPE_CHECKING
from shmq.where import at
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmq.membership import Membership
    from shmq.storage.directory import Directory

_LOOK_NS = 500_000_000
"""Who is stopped on its way to ring rings nothing: so who waits is called all the same after this (decision 41) ..."""
_LOOKS = 4
"""... but no more than so many of a process each time, those that have waited longest."""
_IDLE_NS = 5_000_000_000
_PAUSE = 0.002
"""Seconds between two looks at the bells where the kernel cannot wait for several (before 5.16, some sandboxes)."""


class Armed:
    """One wait that somebody else sleeps for."""

    def __init__(self, member: _native.Member, bell: Any, seen: int, call: Callable[[], object]) -> None:
        """It begins with `arm`; *seen* was read before the last look that found nothing."""
        self.member = member  # which keeps the page that the bell is in
        self.bell = bell
        self.seen = seen
        self.call = call
        self.due_ns = _native.FOREVER
        self.since_ns = 0
        self.place = -1
        self.by: Sleeper | None = None

    def arm(self, due_ns: int | None) -> None:
        """Have it called once the bell rings, or when it is due (since boot), or anyway after a while."""
        self.since_ns = _native.monotonic_ns()
        self.due_ns = sooner(_native.FOREVER, due_ns)
        with _lock:
            for sleeper in _sleepers:
                if sleeper.take(self):
                    return
            sleeper = Sleeper()
            _sleepers.append(sleeper)
            sleeper.take(self)

    def disarm(self) -> None:
        """Have it not called, unless it is being called just now. It can be repeated."""
        with _lock:
            if self.by is not None:
                self.by.let_go(self)

    def ring(self) -> None:
        """Call; what the call raises is said, and harms no other."""
        try:
            self.call()
        except BaseException:  # noqa: BLE001  # whatever a program's function raises: others wait by this thread
            with contextlib.suppress(BaseException):
                log.say(log.ERROR, "the alarm %r has raised", self.call, exc_info=True)


class Sleeper:
    """One thread, and what it sleeps for. All but `_run` is under the lock; the thread ends by itself."""

    def __init__(self) -> None:
        """It begins with the first `take`."""
        self._bells = _native.Bells()
        self._armed: list[Armed | None] = [None] * _native.ANY_MAX
        self._count = 0
        self._reach = 0  # no place from here on has anything
        self._timed: set[Armed] = set()
        self._asleep = False
        self._look_ns = 0
        self._idle_ns = _native.monotonic_ns()
        self._thread = Worker(self._run, "shmq-sleeper")

    def take(self, armed: Armed) -> bool:
        """Sleep for that one, too; False when there is no place."""
        if self._count == _native.ANY_MAX:
            return False
        armed.place = self._armed.index(None)
        armed.by = self
        if armed.bell is not None:  # else it waits for its time alone
            self._bells.set(armed.place, armed.bell, armed.seen)
        self._armed[armed.place] = armed
        self._count = _native.ANY_MAX - self._armed.count(None)
        self._reach = max(self._reach, armed.place + 1)
        if armed.due_ns != _native.FOREVER:
            self._timed.add(armed)
        self._thread.start()
        if self._asleep:
            self._asleep = False
            self._bells.nudge()
        return True

    def let_go(self, armed: Armed) -> None:
        """Sleep for that one no more."""
        if self._armed[armed.place] is armed:
            self._bells.clear(armed.place)
            self._armed[armed.place] = None
            self._count = _native.ANY_MAX - self._armed.count(None)
            self._timed.discard(armed)
        armed.by = None

    def end(self) -> None:
        """End the thread."""
        self._thread.end(self._bells.nudge)

    def _run(self) -> None:
        while not self._thread.is_ending():
            with _lock:
                rung, kept, deadline_ns = self._before_sleep()
                if not rung:
                    if self._is_idle():
                        _sleepers.remove(self)
                        return
                    self._bells.begin(len(kept))
                    self._asleep = True
            if not rung:
                if self._bells.sleep(len(kept), deadline_ns) == _native.EMPTY:
                    time.sleep(_PAUSE)
                with _lock:
                    self._asleep = False
                    rung = [each for at in self._bells.moved(self._reach) if (each := self._armed[at]) is not None]
                    self._let_all_go(rung)
            del kept
            for each in rung:
                each.ring()
            rung.clear()

    def _is_idle(self) -> bool:
        now = _native.monotonic_ns()
        if self._count:
            self._idle_ns = now
        return now - self._idle_ns >= _IDLE_NS

    def _let_all_go(self, rung: list[Armed]) -> None:
        for each in rung:
            self.let_go(each)

    def _before_sleep(self) -> tuple[list[Armed], list[Armed | None], int]:
        """What is to be called now; else what to sleep for, and until when."""
        if self._count == 0:
            self._reach = 0
        now = _native.monotonic_ns()
        rung = [each for each in self._timed if each.due_ns <= now]
        if now >= self._look_ns:
            self._look_ns = now + _LOOK_NS * max(len(_sleepers) // _LOOKS, 1)
            rung += self._waiting_longest(now, rung)
        self._let_all_go(rung)
        deadline_ns = min([self._look_ns, *(each.due_ns for each in self._timed)])
        return rung, self._armed[: self._reach], deadline_ns

    def _waiting_longest(self, now: int, but: list[Armed]) -> list[Armed]:
        old = [each for each in self._armed if each is not None and now - each.since_ns >= _LOOK_NS and each not in but]
        old.sort(key=lambda each: each.since_ns)
        return old[: max(_LOOKS // len(_sleepers), 1)]


_sleepers: list[Sleeper] = []
_lock = locks.Lock()


def _forget_in_child() -> None:
    _sleepers.clear()  # the threads are the parent's


def _end_all() -> None:
    for sleeper in tuple(_sleepers):  # they remove themselves
        sleeper.end()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(_end_all)


class Alarm:
    """
    Calls when a handle may have something. Made by the `alarm` of a consumer or a producer; for whoever cannot sleep.

        alarm.begin()
        c.get(timeout=0)      # looks once more; goes on here when it raised Empty
        alarm.arm()           # from now on it calls, once

    Not safe to share between threads; what it calls, it calls in a thread of its own.
    """

    def __init__(
        self,
        begin: Callable[[Callable[[], object]], Armed],
        due: Callable[[], tuple[bool, int | None]],
        waited: Callable[[], None],
        call: Callable[[], object],
    ) -> None:
        """See `Consumer.alarm`."""
        self._begin = begin
        self._due = due
        self._waited = waited
        self._call = call
        self._armed: Armed | None = None

    def begin(self) -> None:
        """
        Before the last look: what comes from now on rings.

        Raises:
            Forked: the handle is the parent process's.
        """
        self.disarm()
        self._armed = self._begin(self._call)

    def arm(self) -> bool:
        """
        After a look that found nothing: call once there may be something, or earlier.

        Returns:
            False when there is something to look at already: then nothing is armed.
        """
        armed = self._armed
        if armed is None:
            raise RuntimeError("an alarm is armed after begin() and a look that found nothing")
        sleeps, due_ns = self._due()
        if sleeps:
            armed.arm(due_ns)
        return sleeps

    def disarm(self) -> None:
        """Do not call any more, unless it is about to. It can be repeated."""
        armed, self._armed = self._armed, None
        if armed is not None:
            armed.disarm()
            self._waited()


class Ready:
    """A descriptor that is readable when a consumer may have something: level-triggered, spurious at times."""

    def __init__(self) -> None:
        """Something may be there from the start."""
        self.fd = _native.Fd.of(os.eventfd, 1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.pid = os.getpid()
        self.armed: Armed | None = None
        self._lock = locks.Lock()  # or another thread writes into what has the number of one that was just closed

    def set(self) -> None:
        """Say that there may be something."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.fd.fileno() >= 0 and os.getpid() == self.pid:
                os.eventfd_write(self.fd, 1)

    def drain(self) -> None:
        """Say that there is nothing."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.fd.fileno() >= 0:
                os.eventfd_read(self.fd)

    def close(self) -> None:
        """Let go of it."""
        armed, self.armed = self.armed, None
        if armed is not None and os.getpid() == self.pid:
            armed.disarm()
        with self._lock:
            self.fd.close()


class Awaited:
    """What consumers and readers have for loops of others: `fileno` and `alarm`."""

    _home: Directory
    _membership: Membership
    _ready: Ready | None = None

    @abc.abstractmethod
    def _has_something(self) -> bool:
        """Whether a get would answer at once."""

    @abc.abstractmethod
    def _due_ns(self) -> int | None:
        """When to look again, as it was found by the last look; since boot."""

    @abc.abstractmethod
    def _waited(self) -> None:
        """A wait has ended, of which the looks were not gets."""

    @abc.abstractmethod
    def _check_usable(self) -> None:
        """Raise Closed or Forked where this can be used no more."""

    def alarm(self, call: Callable[[], object]) -> Alarm:
        """
        An alarm that calls *call* once a get may find something, for event loops that `fileno` does not suit.

        Args:
            call: takes nothing; it is called in another thread, and should only tell this one to look.
        """
        if not callable(call):
            raise given.wrong_type("call", call, "a function without arguments")
        return Alarm(self._begin_to_wait, self._may_sleep, self._waited, call)

    def fileno(self) -> int:
        """
        A descriptor to wait for in a selector, readable when a get may find something. It is closed with this consumer.

        It is readable until a get with a timeout has raised Empty: take until then, and without waiting. It may be
        readable although there is nothing. Nobody else reads it.
        """
        self._check_usable()
        ready = self._ready
        if ready is None or ready.pid != os.getpid():
            with at(self._home.path):
                ready = self._ready = Ready()
        return ready.fd.fileno()

    def _close_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()

    def _begin_to_wait(self, call: Callable[[], object]) -> Armed:
        self._check_usable()
        member = self._membership.member
        return Armed(member, member.bell(), member.wait_begin(), call)

    def _may_sleep(self) -> tuple[bool, int | None]:
        """Whether there is nothing to say at once; and when to look again."""
        sleeps = not self._rests_in_vain()
        if sleeps:
            self._membership.about_to_sleep()
        return sleeps, self._due_ns()

    def _rests_in_vain(self) -> bool:
        """Whether there is an end to be told of, though the last look found nothing."""
        return False

    def _is_empty(self) -> None:
        """A get found nothing: from now on the descriptor says when there may be something."""
        ready = self._ready
        if ready is None or ready.pid != os.getpid():
            return
        if ready.armed is not None:
            ready.armed.disarm()
        ready.drain()
        ready.armed = armed = self._begin_to_wait(ready.set)
        if self._has_something():
            ready.set()
            return
        self._may_sleep()
        armed.arm(self._due_ns())
