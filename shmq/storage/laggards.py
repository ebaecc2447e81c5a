"""
The name that alone holds everything back: how much that is, and a word in the log when it is much.

What the others have finished, and it has not, would be retired, or be room, but for it.
"""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors, log
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage.paths import chunk_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

MUCH_BYTES = 1 << 30
"""So much is much; in a queue with bounds, half of one is."""
_AGAIN = 600.0
"""Seconds before this process says the same of the same name again."""
_LOOK = 5.0
"""Seconds before it looks again how much it is: for that each chunk's file is asked for its size."""


class _Look(NamedTuple):
    """What was found when it was looked last; *settled*: there is nothing to be told of it."""

    at: float
    name: str = ""
    floor: int = -1
    settled: bool = True


_NEVER = _Look(-1e9)
_told: dict[tuple[str, str], float] = {}
_looked: dict[str, _Look] = {}


class Held(NamedTuple):
    """
    What one name alone holds back.

    Attributes:
        name: the consumer.
        messages: indexes that it has not finished, and all others have; without others, all behind it.
        bytes: of the chunk files where those are.
        much: whether that is 1 GiB, or half of a bound.
    """

    name: str
    messages: int
    bytes: int
    much: bool


def held(home: Directory, chain: Chain, floors: Mapping[str, int], end: int, bounds: _native.Bounds) -> Held | None:
    """What is held back by one name alone, if anything is. *floors*: where each begins to need what is there."""
    if not floors:
        return None
    (floor, name), (upto, _) = sorted([*((index, name) for name, index in floors.items()), (end, "")])[:2]
    if upto <= floor:
        return None
    size = _bytes(home, chain, floor, upto, end)
    half = bounds.max_messages and 2 * (upto - floor) >= bounds.max_messages
    full = bounds.max_bytes and 2 * size >= bounds.max_bytes
    return Held(name, upto - floor, size, bool(size >= MUCH_BYTES or half or full))


def _bytes(home: Directory, chain: Chain, first: int, upto: int, end: int) -> int:
    live = chain.listed()
    total = 0
    for (sequence, base), following in zip(live, [*(base for _, base in live[1:]), end], strict=False):
        if following > first and base < upto:
            with contextlib.suppress(FileNotFoundError):  # retired since
                total += os.stat(chunk_name(base, sequence), dir_fd=home.chunks).st_size
    return total


def tell(home: Directory, chain: Chain, control: _native.Control, floors: Mapping[str, int]) -> int | None:
    """
    Say in the log who alone holds much back: once a name, process and ten minutes. It raises nothing.

    That a bound is half full is no news where all keep moving: it is told of a name that stands where it stood at the
    last look. Whoever waits for room looks again at the moment (since boot) that this returns, if any.
    """
    now, floor = time.monotonic(), min(floors.values(), default=0)
    before = _looked.get(home.path, _NEVER)
    if now - before.at < _LOOK:
        return None if before.settled else _in(before.at + _LOOK - now)
    found = None
    with contextlib.suppress(OSError, errors.ShmqError):
        found = held(home, chain, floors, chain.next_index(), control.bounds())
    name = "" if found is None else found.name
    settled = found is None or not found.much or now - _told.get((home.path, name), -_AGAIN) < _AGAIN
    if (
        found is not None
        and not settled
        and (found.bytes >= MUCH_BYTES or (name, floor) == (before.name, before.floor))
    ):
        _told[home.path, name] = now
        settled = True
        _say(home.path, found)
    _looked[home.path] = _Look(now, name, floor, settled)
    return None if settled else _in(_LOOK)


def _in(seconds: float) -> int:
    return _native.boottime_ns() + int(seconds * 1e9)


def _say(path: str, found: Held) -> None:
    log.say(
        log.WARNING,
        "%s: consumer %r alone holds back %d messages, in %.1f MiB of chunks; drop_consumer(%r) would give them up",
        path,
        found.name,
        found.messages,
        found.bytes / (1 << 20),
        found.name,
    )
