"""The lock of whoever writes to a queue that follows another one, or promotes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage.paths import CONTROL

if TYPE_CHECKING:
    from shmq.session import Session

LOCK_BYTE = (1 << 41) + 2
"""Of control.shmq: whoever writes to a follower, or promotes it, holds a lock on it."""


def locked(session: Session, what: str) -> _native.Lock:
    """
    Hold what only one may: to write to a follower, or to promote it; *what* says which, for the error.

    Raises:
        Busy: somebody does.
    """
    home = session.home
    lock = _native.Lock(home.open(home.fd, CONTROL, writable=True)[0])
    if not lock.take(LOCK_BYTE):
        lock.free()
        raise errors.Busy(
            f"cannot {what} {home.path}: somebody else replicates to it, or promotes it; end that first. Nothing was "
            "changed"
        )
    return lock
