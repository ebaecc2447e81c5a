"""
Names that go by themselves: with their holder, or when nobody had them open for some time.

Whether somebody has a name open its lock says: free, as seen under the administrative lock, is nobody. So that is when
one goes: whoever looks what names still need takes it away. Of a name that expires the first one who finds its lock
free writes down when, unless whoever left has done so; it never goes early, and goes late while nobody looks.
"""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, files, pins, ring, subscriptions, sync

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmq.storage.directory import Directory
    from shmq.storage.subscriptions import Subscription

_BUSY_NS = 50_000_000
"""When to look again where somebody else administers."""


def forget(home: Directory, name: str) -> None:
    """Take away the files of a name. By who holds it alone, under the administrative lock."""
    there = files.names_in(home.consumers)
    beside = any(f"{name}{ending}" in there for ending in (*ring.ENDINGS, subscriptions.ENDING))
    os.unlink(f"{name}.checkpoint", dir_fd=home.consumers)
    if beside or pins.holds(home, name) == pins.NOTHING:
        # Else a power cut may leave a name without its ring, or one that holds something.
        sync.directory(home.consumers, "consumers")
    pins.set_hold(home, name, hold=False)
    ring.remove(home, name)
    subscriptions.remove(home, name)


def some_go(there: Iterable[str]) -> bool:
    """Whether any of what is in the folder of consumers is of a name that may go by itself."""
    return any(file.endswith(subscriptions.ENDING) for file in there)


def sweep(home: Directory, control: _native.Control, *, locked: bool = False) -> int | None:
    """
    Take away every name whose time is over; when to look again (since boot), None when there is nothing to wait for.

    *locked*: the caller has the administrative lock.
    """
    there = files.names_in(home.consumers)
    found = [file.removesuffix(subscriptions.ENDING) for file in there if file.endswith(subscriptions.ENDING)]
    if not found or home.read_only:
        return None
    with contextlib.ExitStack() as held:
        if not locked:
            found = [name for name in found if _may_go(home, name)]
            if not found:
                return None
            try:
                held.enter_context(home.admin(timeout=0))
            except errors.Busy:
                return _native.boottime_ns() + _BUSY_NS
        due = [moment for name in found if (moment := settle(home, name)) is not None]
        if not set(files.names_in(home.consumers)) >= {f"{name}.checkpoint" for name in found}:
            control.recount()  # producers that wait for room need not wait for it any more
        return min(due, default=None)


def _may_go(home: Directory, name: str) -> bool:
    """Whether it is one that goes by itself, as far as can be seen without a lock."""
    with contextlib.suppress(FileNotFoundError, errors.ShmqError):
        return subscriptions.read(home, name, home.checkpoint(name)).goes()
    return False


def settle(home: Directory, name: str) -> int | None:
    """
    Take that name away, if its time is over; else when it may be (since boot), None while somebody has it, or for ever.

    Under the administrative lock. What is damaged stays: whoever opens it is told.
    """
    with contextlib.suppress(FileNotFoundError, errors.Corrupt, errors.BadFormat, errors.Unsafe):
        checkpoint = home.checkpoint(name, writable=True)
        subscription = subscriptions.read(home, name, checkpoint)
        if not subscription.goes():
            return None
        fd, _ = home.open(home.consumers, f"{name}.checkpoint", writable=True)
        with fd:
            lock = _native.Lock(fd)
        try:
            if not lock.take():
                return None
            due = None if subscription.ephemeral else _due(checkpoint, subscription.expires or 0)
            if due is None or due <= _native.boottime_ns():
                forget(home, name)
                return None
            return due
        finally:
            lock.free()
    return None


def _due(checkpoint: _native.Checkpoint, expires: float) -> int:
    """When the time of a name is over that nobody has, since boot."""
    left, now = checkpoint.left(), _native.boottime_ns()
    if left is None or (since := _since(left)) > now:  # nobody wrote it down, or the wall clock was put back
        checkpoint.set_left(_moment())
        since = now
    return since + int(expires * 1e9)


def _moment() -> tuple[int, int, int]:
    return time.time_ns(), _native.boottime_ns(), boots.boot_tag()


def _since(left: tuple[int, int, int]) -> int:
    """A moment as one since boot: by the wall clock, if it is of another boot."""
    wall_ns, boottime_ns, tag = left
    return boottime_ns if tag == boots.boot_tag() else wall_ns - time.time_ns() + _native.boottime_ns()


def holds(checkpoint: _native.Checkpoint) -> None:
    """Somebody has the name: its time begins anew when nobody does. By who holds it."""
    if checkpoint.subscribed and checkpoint.left() is not None:
        checkpoint.set_left(None)


def leave(home: Directory, name: str, subscription: Subscription) -> bool:
    """
    Whether that name went, whose holder has just let go of it; one that expires begins to.

    Where somebody else administers for long it is left to whoever looks next.
    """
    if not subscription.goes():
        return False
    with contextlib.suppress(errors.ShmqError, OSError), home.admin(timeout=_BUSY_NS / 1e9):
        settle(home, name)
        return f"{name}.checkpoint" not in files.names_in(home.consumers)
    return False
