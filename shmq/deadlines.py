"""Deadlines: until when a call waits, on the clock that no one sets."""

from __future__ import annotations

from shmq import _native, given


def deadline_of(timeout: float | None) -> int:
    """The monotonic deadline in ns; FOREVER for None. Refuses what is no timeout, as `given.timeout` does."""
    time = given.timeout(timeout)
    return _native.FOREVER if time is None else _native.monotonic_ns() + int(min(time, 1e9) * 1e9)


def sooner(deadline_ns: int, due_ns: int | None) -> int:
    """The earlier of a monotonic deadline (FOREVER for none) and a moment since boot, as a monotonic deadline."""
    if due_ns is None:
        return deadline_ns
    due = _native.monotonic_ns() + max(due_ns - _native.boottime_ns(), 0)
    return due if deadline_ns < 0 else min(deadline_ns, due)
