"""
Following: the one loop that turns "everything that is there now" into "and everything that comes".

A format that can be followed has a *tail*: an object that remembers where it stands, delivers what is there from
that place on, and names the directories whose change may mean more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from shmq.formats._inotify import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shmq.formats.model import Entry


class Tail(Protocol):
    """A place in a growing queue."""

    tick: float
    """The longest time, in seconds, to rely on notification alone before looking again."""

    def directories(self) -> Iterable[Path]:
        """Return the directories to watch; asked before each look, since new ones may appear."""
        ...

    def available(self) -> Iterator[Entry]:
        """Deliver what is there, from where the last call ended."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


def follow(tail: Tail, timeout: float | None) -> Iterator[Entry]:
    """
    Deliver everything in *tail* as it comes, until nothing has come for *timeout* seconds (None: for ever).

    The directories are watched before they are looked at, so that nothing that happens in between is missed.
    """
    try:
        with Watch() as watch:
            deadline = _deadline(timeout)
            while True:
                for directory in tail.directories():
                    watch.add(directory)
                came = False
                for entry in tail.available():
                    came = True
                    yield entry
                if came:
                    deadline = _deadline(timeout)
                    continue
                left = tail.tick if deadline is None else min(tail.tick, deadline - time.monotonic())
                if left <= 0:
                    return
                watch.wait(left)
    finally:
        tail.close()


class Listed(Protocol):
    """A place in a queue that does not grow."""

    def lists(self) -> Iterator[list[Entry]]:
        """Deliver what is there, in lists of what was read at once: few hundred KiB."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


def in_lists(tail: Listed) -> Iterator[list[Entry]]:
    """Deliver what is there now, in lists, and close."""
    try:
        yield from tail.lists()
    finally:
        tail.close()


def once(tail: Listed) -> Iterator[Entry]:
    """Deliver what is there now, and close: one generator for a list of entries, instead of several for each."""
    try:
        for found in tail.lists():
            yield from found
    finally:
        tail.close()


def those(lists: Iterator[list[Entry]], wanted: Callable[[Entry], bool]) -> Iterator[list[Entry]]:
    """Only the *wanted* entries of lists."""
    for found in lists:
        kept = [entry for entry in found if wanted(entry)]
        if kept:
            yield kept


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
