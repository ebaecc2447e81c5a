"""
All queues below some directories, looked at again and again: rates are differences of two looks.

Queues stay open between looks, to read only, so that a look costs little. What was deleted, or made anew, is noticed. A
volatile queue is opened for each look alone: it would live as long as somebody looks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors, locks
from shmq.closable import Closable
from shmq.session import Session
from shmq.storage.paths import QUEUE
from shmq.top import facts, places
from shmq.top.facts import QueueFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEPT_MAX = 200
"""So many queues stay open; each has a descriptor."""
_SEARCH_EVERY = 5.0
_SHARE = 4
"""What takes long is done rarely: so many times as long as it takes passes before it is done again."""


class Look(NamedTuple):
    """
    All of them at one moment.

    Attributes:
        time: in seconds since 1970.
        took: how many seconds of processor time the look took.
        queues: each that was found, in the order of the directories.
    """

    time: float
    took: float
    queues: list[QueueFacts]


class _Kept(NamedTuple):
    session: Session
    identity: tuple[int, int, bytes]


class _Before(NamedTuple):
    at: float
    queue_id: bytes
    facts: QueueFacts


class Looks(Closable):
    """
    Looks at the queues at or below some directories. Safe to share between threads.

    Attributes:
        every: seconds between two looks, as far as they take little.
    """

    def __init__(self, tops: Sequence[str] = (), every: float = 1.0) -> None:
        """
        Nothing is opened yet.

        Args:
            tops: queues, directories that have some below them, "shm:NAME"; without any, the directory where we are
                and the volatile queues.
            every: seconds between two looks.

        Raises:
            NotFound: one of them is no directory, or depends on the current one, which is gone.
        """
        places.check(tops)
        self.every = every
        self._tops = tuple(tops)
        self._lock = locks.Lock()
        self._kept: dict[str, _Kept] = {}
        self._before: dict[str, _Before] = {}
        self._places: list[str] = []
        self._search_at = 0.0
        self._last: Look | None = None
        self._last_at = 0.0

    def look(self) -> Look:
        """Look at all of them now."""
        with self._lock:
            self._search()
            began = time.thread_time()
            queues = [self._look_at(place) for place in self._places]
            self._forget(set(self._places))
            took = time.thread_time() - began
            self._last, self._last_at = Look(time.time(), took, [each for each in queues if each]), time.monotonic()
            return self._last

    def recent(self) -> Look:
        """The last look, if it is not older than `pause`; else a new one. For several who look at one time."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last_at >= self.pause():
                return self.look()
            return self._last

    def pause(self) -> float:
        """How many seconds to wait until the next look, so that looking takes a fifth of the time at most."""
        return self.every if self._last is None else max(self.every, _SHARE * self._last.took)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._places = []
            self._forget(set())

    # ---- which
    def _search(self) -> None:
        began = time.monotonic()
        if began >= self._search_at:
            self._places = places.below(self._tops)
            done = time.monotonic()
            self._search_at = done + max(_SEARCH_EVERY, _SHARE * (done - began))

    def _forget(self, there: set[str]) -> None:
        for place in set(self._kept) - there:
            self._kept.pop(place).session.close()
        for place in set(self._before) - there:
            del self._before[place]

    # ---- one
    def _look_at(self, place: str) -> QueueFacts | None:
        """Its figures, or what keeps it from being read; None when it is gone."""
        try:
            with self._opened(place) as session:
                return self._with_rates(place, session)
        except (errors.NotFound, FileNotFoundError):
            problem = None
        except (errors.ShmqError, OSError) as why:
            problem = " ".join(str(why).split()) or type(why).__name__
        kept = self._kept.pop(place, None)
        if kept is not None:
            kept.session.close()
        self._before.pop(place, None)
        return None if problem is None else QueueFacts(place, time.time(), problem)

    @contextlib.contextmanager
    def _opened(self, place: str) -> Iterator[Session]:
        identity = None if place.startswith("shm:") else _identity(place)
        kept = self._kept.get(place)
        if kept is not None and kept.identity == identity:
            yield kept.session
            return
        if kept is not None:
            self._kept.pop(place).session.close()
        session = Session(place, create=False, read_only=True, trusted=True)
        # Of a view of what a recovery will leave, nothing is true when somebody recovers.
        if identity is not None and session.home.view is None and len(self._kept) < _KEPT_MAX:
            self._kept[place] = _Kept(session, identity)
            yield session
            return
        with contextlib.closing(session):
            yield session

    def _with_rates(self, place: str, session: Session) -> QueueFacts:
        before, queue_id = self._before.get(place), session.home.queue_id
        if before is not None and before.queue_id != queue_id:
            before = None
        at = time.monotonic()
        found = facts.of_queue(session, place, None if before is None else before.facts.next_index)
        if before is not None and at > before.at:
            found = _rated(found, before.facts, at - before.at)
        self._before[place] = _Before(at, queue_id, found)
        return found


def _identity(place: str) -> tuple[int, int, bytes]:
    """Its directory, and what the queue there says it is: the file's inode the next one in that place may get."""
    info = os.stat(place)
    # a pipe that was put in its place is not waited for
    fd = os.open(f"{place}/{QUEUE}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return info.st_dev, info.st_ino, os.read(fd, _native.QUEUE_HEADER_BYTES)
    finally:
        os.close(fd)


def _rated(found: QueueFacts, before: QueueFacts, seconds: float) -> QueueFacts:
    """The same with what happened in so many seconds."""
    rate = max(found.next_index - before.next_index, 0) / seconds
    done = {each.name: each.done for each in before.consumers}
    consumers = [
        dataclasses.replace(each, rate=max(each.done - done[each.name], 0) / seconds) if each.name in done else each
        for each in found.consumers
    ]
    return dataclasses.replace(
        found,
        put_rate=rate,
        take_rate=sum((each.rate or 0.0 for each in consumers), 0.0),
        consumers=consumers,
        processes=[dataclasses.replace(each, put_rate=rate * each.share) for each in found.processes],
    )
