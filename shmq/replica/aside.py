"""What a queue has, and the one that it is to follow has not: it is set aside, counted, and never deleted."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors
from shmq.replica import history
from shmq.storage import directory, files
from shmq.storage.paths import CHUNKS, chunk_name
from shmq.storage.recover import apply
from shmq.storage.stretches import opened, whole_behind

if TYPE_CHECKING:
    from shmq.replica.pieces import Common
    from shmq.storage.directory import Directory

_log = logging.getLogger("shmq")


class SetAside(NamedTuple):
    """What was set aside of a queue."""

    path: str
    messages: int
    """Whole ones that are not in it any more."""
    end: int
    """Where it goes on behind what both have."""
    epoch: int
    """`repair(path, aside=epoch)` makes a queue of them."""
    moved: str
    """Where all of it is now, as a queue, where both have nothing in common; else empty."""


def set_aside(path: str, common: Common) -> SetAside:
    """
    Have nothing at *path* that is not in the other queue: a follower, which ends with what both have, or nothing at
    all. Killed anywhere, it can be done again.

    Raises:
        Busy: somebody has it open; nothing was changed.
        Corrupt: what is to stay is damaged.
        DiskFull: there is no room for a copy of the chunk that is cut; nothing was cut.
    """
    home = directory.Directory(path, read_only=False)
    with contextlib.closing(home):
        if not common.there:
            return _move(home)
        done = apply.cut_back(home, history.same_until(home, common.sequence, common.base, common.sums))
        return SetAside(home.path, done.aside_messages, done.end, done.from_epoch, "")


def _move(home: Directory) -> SetAside:
    with home.admin():
        if apply.somebody_is_there(home):
            raise errors.Busy(f"cannot move {home.path} aside: somebody has it open; nothing was changed")
        count = _count(home)
        above, name = os.path.split(home.path)
        with files.open_plainly(above) as folder:
            number = 1
            while not _native.rename_new(folder, name, f"{name}.aside-{number}"):
                number += 1
            os.fsync(folder)
        return SetAside(home.path, count, home.journal.first_index, 0, f"{home.path}.aside-{number}")


def _count(home: Directory) -> int:
    """Its whole messages."""
    count, first_live = 0, home.read_journal().first_live
    for sequence, base in home.chunk_names():
        if sequence >= first_live:
            with (
                contextlib.suppress(errors.ShmqError),
                opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk,
            ):
                count += whole_behind(chunk)
    return count


def tell(done: SetAside) -> None:
    """A line in the log."""
    if done.moved:
        _log.warning(
            "%s begins anew: it had nothing in common with the queue that it follows. What was there, %s messages, is "
            "in %s, for readers",
            done.path,
            f"{done.messages:,}",
            done.moved,
        )
    elif done.messages:
        _log.warning(
            "%s follows from index %s on. %s messages that it had there, and that are not in the other queue, are in "
            "its folder aside/: `shmq repair %s --aside %s` makes a queue of them",
            done.path,
            done.end,
            f"{done.messages:,}",
            done.path,
            done.epoch,
        )
    else:
        _log.warning("%s follows from index %s on; it had no message behind that", done.path, done.end)
