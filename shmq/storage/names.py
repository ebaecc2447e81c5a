"""
What is done to consumer names from outside: dropping one, giving it another name, finishing everything for all.

A name's checkpoint is locked by whoever has it open, so what happens here happens to names that nobody holds, under the
administrative lock.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import files, pins, ring
from shmq.storage.directory import CONSUMERS, check_consumer_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory


def _file(name: str) -> str:
    return f"{check_consumer_name(name)}.checkpoint"


@contextlib.contextmanager
def _alone(home: Directory, name: str, tried: str) -> Iterator[None]:
    """Hold a name that nobody holds."""
    try:
        fd, _ = home.open(home.consumers, _file(name), writable=True)
    except FileNotFoundError:
        raise errors.NotFound(f"{home.path} has no consumer {name!r}") from None
    lock = _native.Lock(fd)
    try:
        if not lock.take():
            raise errors.Busy(f"cannot {tried} consumer {name!r} of {home.path}: somebody holds it")
        yield
    finally:
        lock.free()


def drop(home: Directory, name: str) -> None:
    """
    Forget a name. Under the administrative lock.

    Raises:
        NotFound, Busy: there is none; somebody holds it.
    """
    with _alone(home, name, "drop"):
        os.unlink(_file(name), dir_fd=home.consumers)
        pins.set_hold(home, name, on=False)
        ring.remove(home, name)


def rename(home: Directory, old: str, new: str) -> None:
    """
    Give a name another name; where it stands, and what a group has in flight, is kept. Under the administrative lock.

    Killed in the middle, both are there, at the same place; called again, it finishes.

    Raises:
        NotFound, Busy: there is none; somebody holds it.
        Mismatch: the new name is taken.
    """
    with _alone(home, old, "rename"):
        checkpoint = home.checkpoint(old)
        content = checkpoint.renamed(new)
        path = f"{home.path}/{CONSUMERS}"
        if checkpoint.group and new not in home.consumer_names():
            ring.copy(home, old, new)  # with the checkpoint, which comes last, the group exists
        if not files.make_file(home.consumers, _file(new), content, home.options.mode & 0o600, path):
            there = home.read(home.consumers, _file(new), _native.CHECKPOINT_BYTES)
            if there != content or old == new:
                raise errors.Mismatch(
                    f"cannot rename consumer {old!r} of {home.path} to {new!r}: there is a consumer of that name; "
                    "nothing was changed"
                )
        if pins.holds(home, old):
            pins.set_hold(home, new, on=True)
        os.unlink(_file(old), dir_fd=home.consumers)
        ring.remove(home, old)
        pins.set_hold(home, old, on=False)


def finish_all(home: Directory, end: int) -> None:
    """Move every head that nobody holds to *end*. Who holds one moves it himself, past what is dropped."""
    for name in home.consumer_names():
        with contextlib.suppress(errors.Busy, errors.NotFound), _alone(home, name, "finish"):
            checkpoint = home.checkpoint(name, writable=True)
            if checkpoint.head < end:
                checkpoint.dropped += end - checkpoint.head
                checkpoint.handed = max(checkpoint.handed, end)
                checkpoint.head = end
