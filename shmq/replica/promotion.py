"""Making a primary of a follower. Only a person does: nothing here can know that the other one is gone for good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.replica.lock import locked
from shmq.session import Session
from shmq.storage.recover import apply

if TYPE_CHECKING:
    from shmq.storage.recover.progress import Recovery


def promote(path: str | os.PathLike[str]) -> Recovery:
    """
    Have the follower at *path* be a queue of its own, which is put into and consumed from, beside whoever reads it.

    It ends where it was whole, and what is put from now on is of a new epoch; indexes that the other queue may have
    given meanwhile are left out. The queue that it followed is fenced when it next meets this one.

    Raises:
        NotFound: there is no queue.
        Mismatch: it follows nobody.
        Busy: somebody still replicates to it.
        Corrupt: something in it is damaged; nothing was changed.
    """
    with Session(os.fspath(path), create=False, trusted=True) as session:
        home = session.home
        if not home.read_journal().flags & _native.JOURNAL_FOLLOWER:
            raise errors.Mismatch(f"cannot promote {home.path}: it follows no other queue; nothing was changed")
        lock = locked(session)
        try:
            return apply.promote(home, session.joined().control)
        finally:
            lock.free()
