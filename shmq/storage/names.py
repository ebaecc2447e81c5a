"""
What is done to consumer names from outside: dropping one, giving it another name, finishing everything for all.

A name's checkpoint is locked by whoever has it open, so what happens here happens to names that nobody holds, under the
administrative lock.
"""

from __future__ import annotations

import contextlib
import os

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import departures, files, floors, pins, ring, subscriptions, sync
from shmq.storage.paths import CONSUMERS, check_consumer_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.storage.directory import Directory


def _file(name: str) -> str:
    return f"{check_consumer_name(name)}.checkpoint"


@contextlib.contextmanager
def _alone(home: Directory, name: str, tried: str) -> Iterator[None]:
    """Hold a name that nobody holds."""
    try:
        lock = _native.Lock(home.open(home.consumers, _file(name), writable=True)[0])
    except FileNotFoundError:
        raise errors.NotFound(f"{home.path} has no consumer {name!r}") from None
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
        departures.forget(home, name)


def rename(home: Directory, old: str, new: str) -> None:
    """
    Give a name another name; where it stands, and what a group has in flight, is kept. Under the administrative lock.

    Killed in the middle, both are there, at the same place; called again, it finishes.

    Raises:
        NotFound, Busy: there is none; somebody holds it.
        Mismatch: the new name is taken.
    """
    with _alone(home, old, "rename"):
        ring.room_for_snapshots(home, old)
        checkpoint = home.checkpoint(old)
        content = checkpoint.renamed(new)
        path = f"{home.path}/{CONSUMERS}"
        if new not in home.consumer_names():
            pins.set_hold(home, new, hold=pins.holds(home, old))
            subscriptions.make(home, new, subscriptions.read(home, old, checkpoint))
            if checkpoint.ring:
                ring.copy(home, old, new)  # with the checkpoint, which comes last, the group exists
        try:
            made = files.make_file(home.consumers, _file(new), content, path)
        except (errors.DiskFull, OSError):
            if new not in home.consumer_names():  # what it would have had is no use without it
                ring.remove(home, new)
                subscriptions.remove(home, new)
                pins.set_hold(home, new, hold=False)
            raise
        if not made:
            there = home.read(home.consumers, _file(new), _native.CHECKPOINT_BYTES)
            if there != content or old == new:
                raise errors.Mismatch(
                    f"cannot rename consumer {old!r} of {home.path} to {new!r}: there is a consumer of that name; "
                    "nothing was changed"
                )
        os.unlink(_file(old), dir_fd=home.consumers)
        if checkpoint.ring or checkpoint.subscribed:
            sync.directory(home.consumers, "consumers")  # as in `drop`
        ring.remove(home, old)
        subscriptions.remove(home, old)
        pins.set_hold(home, old, hold=False)


@contextlib.contextmanager
def finishing(home: Directory, member: _native.Member) -> Iterator[Callable[[int], None]]:
    """
    What finishes all before an index for every name. All that it needs is open: it fails for want of nothing.

    It drops that for every group, and moves every other head that nobody holds there. Who holds one moves it by itself,
    past what is dropped. One that is damaged stays where it is, and holds nothing of that back.
    """
    names = floors.Names(home, member)
    names.look(all_of_them=True, locked=True)
    names.prepare()
    with contextlib.ExitStack() as held:
        free = [checkpoint for name in home.consumer_names() if (checkpoint := _free(home, name, held)) is not None]

        def finish(end: int) -> None:
            names.drop_from_holders(end)
            for checkpoint in free:
                if checkpoint.head < end:
                    checkpoint.dropped += end - checkpoint.head
                    checkpoint.handed = max(checkpoint.handed, end)
                    checkpoint.head = end

        yield finish


def _free(home: Directory, name: str, held: contextlib.ExitStack) -> _native.Checkpoint | None:
    """The checkpoint of a name of its own, from now on *held*; None where somebody holds it, or it is damaged."""
    checkpoint = home.readable_checkpoint(name)
    if checkpoint is None or checkpoint.ring:
        return None
    with contextlib.suppress(errors.Busy, errors.NotFound):
        held.enter_context(_alone(home, name, "finish"))
        return home.checkpoint(name, writable=True)
    return None
