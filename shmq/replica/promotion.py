"""Making a primary of a follower. Only a person does: nothing here can know that the other one is gone for good."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

from shmq import _native, errors, given
from shmq.replica.lock import locked
from shmq.session import Session
from shmq.storage import records
from shmq.storage.paths import UPSTREAM
from shmq.storage.recover import apply

if TYPE_CHECKING:
    from shmq.storage.directory import Directory
    from shmq.storage.recover.progress import Recovery


_APART_NS = 1_000_000_000
"""Clocks that are no farther apart are one."""


def promote(path: str | os.PathLike[str], *, clock_ok: bool = False) -> Recovery:
    """
    Have the follower at *path* be a queue of its own, which is put into and consumed from, beside whoever reads it.

    It ends where it was whole, and what is put from now on is of a new epoch; indexes that the other queue may have
    given meanwhile are left out. The queue that it followed is fenced when it next meets this one.

    Messages have the times that the clock of the other machine gave them: their `ttl`, and a retention by age, are
    counted by the clock here from now on.

    Args:
        path: the follower.
        clock_ok: promote it though the clocks were more than a second apart when they last met.

    Raises:
        NotFound: there is no queue.
        Mismatch: it follows nobody; or the clocks were apart. Nothing was changed.
        Busy: somebody still replicates to it.
        Corrupt: something in it is damaged; nothing was changed.
    """
    with Session(os.fspath(path), create=False, trusted=True) as session:
        home = session.home
        if not home.read_journal().flags & _native.JOURNAL_FOLLOWER:
            raise errors.Mismatch(f"cannot promote {home.path}: it follows no other queue; nothing was changed")
        if not given.flag("clock_ok", clock_ok):
            _refuse_other_time(home)
        lock = locked(session, "promote")
        try:
            return apply.promote(home, session.joined().control)
        finally:
            lock.free()


def _refuse_other_time(home: Directory) -> None:
    """Where times here are not what they are in the other queue, only a person knows what that means."""
    try:
        ahead_ns, at_ns = records.read_record(home, home.fd, UPSTREAM, home.path)
    except FileNotFoundError:
        return  # it was made, and the two have not talked
    if abs(ahead_ns) > _APART_NS:
        which = "ahead of" if ahead_ns > 0 else "behind"
        when = datetime.datetime.fromtimestamp(at_ns // 1_000_000_000, datetime.UTC)
        raise errors.Mismatch(
            f"cannot promote {home.path}: the clock of its source was {abs(ahead_ns) / 1e9:,.1f} s {which} the one "
            f"here at {when:%Y-%m-%d %H:%M:%S} UTC, so a ttl or an age would be counted wrong. Set the clock and "
            "replicate once more, or say clock_ok; nothing was changed"
        )
