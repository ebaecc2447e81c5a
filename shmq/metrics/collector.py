"""The collector: queues, opened to be read and kept open, and what each of them is at whenever somebody scrapes."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.registry import Collector as _Collector

import shmq
from shmq.metrics.families import Families

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

_MARK = "queue.shmq"
"""The file that makes a directory a queue; see docs/format.md."""


_REMOTE = ("csp:", "csp+unix:")
_BEGINNING = 40
"""So many bytes of that file never change, and have the queue's id in them, which no other queue has."""


class _Opened(NamedTuple):
    """A queue that is kept open, and which one it is."""

    queue: shmq.Queue
    identity: bytes


class Collector(_Collector):  # type: ignore[misc]  # of an extra
    """
    What queues are at, for a registry of prometheus_client. Safe to share between threads.

    A queue that cannot be read has shmq_up 0, and nothing else is told of it; it is tried again at the next scrape, and
    the others are not kept back by it.

    Args:
        places: queues that are open here, which stay their owner's; or paths: of a queue, of a directory below which
            all queues are meant that are there at the moment, or "shm:NAME". They are opened to be read only.

    Raises:
        NotFound: a path depends on the current directory, which is gone.
    """

    def __init__(self, *places: str | os.PathLike[str] | shmq.Queue) -> None:
        if not places:
            raise ValueError("Collector(): no queue is named; give a path, or an open queue")
        for place in places:
            if not isinstance(place, (str, os.PathLike, shmq.Queue)):
                raise TypeError(f"a path or an open queue is wanted, not {type(place).__name__}")
            if isinstance(place, str) and place.startswith(_REMOTE):
                raise ValueError(f"{place} is at a server, and is counted where it lies: run shmq metrics on that host")
            if not isinstance(place, shmq.Queue):
                _refuse_removed(os.fspath(place))
        self._places = [place if isinstance(place, shmq.Queue) else os.fspath(place) for place in places]
        self._opened: dict[str, _Opened] = {}
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering opens no queue."""
        return []

    def collect(self) -> Iterable[Metric]:
        """All metrics, as they are now."""
        families = Families()
        with self._lock:
            named = dict(self._named())
            for name in self._opened.keys() - named.keys():
                self._close(name)
            for name, place in named.items():
                self._add(families, name, place)
        return families.all()

    def close(self) -> None:
        """Close what it has opened. It opens it again when it is scraped again."""
        with self._lock:
            for name in list(self._opened):
                self._close(name)

    def _named(self) -> Iterator[tuple[str, str | shmq.Queue]]:
        """Each queue, by what it is called."""
        for place in self._places:
            if isinstance(place, shmq.Queue):
                yield place.path, place
            elif place.startswith("shm:") or os.path.exists(os.path.join(place, _MARK)):
                yield place, place
            else:
                below = list(_below(place))
                yield from ((path, path) for path in below)
                if not below and not os.path.isdir(place):
                    yield place, place

    def _add(self, families: Families, name: str, place: str | shmq.Queue) -> None:
        try:
            queue = place if isinstance(place, shmq.Queue) else self._queue(place)
            stats, messages = queue.stats(), len(queue)
        except (shmq.ShmqError, OSError):
            families.down(_shown(name))
            self._close(name)
        else:
            families.add(_shown(name), stats, messages)
        if name.startswith("shm:"):
            self._close(name)  # it goes with its last user, who is not to be this

    def _queue(self, path: str) -> shmq.Queue:
        """It, open; anew if what is there is another one by now."""
        known = self._opened.get(path)
        if known is not None and known.identity == _identity(known.queue):
            return known.queue
        self._close(path)
        queue = shmq.open(path, create=False, read_only=True, trusted=True)  # whose payloads nobody decodes here
        self._opened[path] = _Opened(queue, _identity(queue))
        return queue

    def _close(self, name: str) -> None:
        known = self._opened.pop(name, None)
        if known is not None:
            with contextlib.suppress(shmq.ShmqError, OSError):
                known.queue.close()


def _refuse_removed(place: str) -> None:
    """Else nothing would be found below it, for ever, and nobody would be told."""
    try:
        if not place.startswith("shm:"):
            os.path.abspath(place)
    except FileNotFoundError:
        raise shmq.NotFound(
            f"cannot look for queues at {place}: the current directory was removed; nothing was done"
        ) from None


def _identity(queue: shmq.Queue) -> bytes:
    """Of what is there now."""
    with contextlib.suppress(OSError):
        # a pipe that was put in its place is not waited for
        fd = os.open(os.path.join(queue.path, _MARK), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, _BEGINNING)
        finally:
            os.close(fd)
    return b""


def _shown(name: str) -> str:
    """A name as a label, which is UTF-8: bytes of a path that are none are written as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _below(top: str) -> Iterator[str]:
    """Every queue below *top*, and *top* itself where we may not look there; links are not followed."""
    refused: list[OSError] = []
    for path, folders, names in os.walk(top, onerror=refused.append):
        folders.sort()
        if shmq.shards.read(path) is not None:
            folders[:] = [name for name in folders if name != "members"]  # where groups meet, and nobody's messages lie
        if _MARK in names:
            folders.clear()
            yield path
    if any(problem.filename == top for problem in refused) and os.path.isdir(top):
        yield top
