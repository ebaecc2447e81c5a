"""The administrative lock of a queue: who has it makes, names, retires, renames and removes its files."""

from __future__ import annotations

import contextlib
import os
import stat
import time

from shmq import _native, errors
from shmq.storage import files
from shmq.storage.paths import ADMIN

ADMIN_TIMEOUT = 30.0
_ADMIN_POLL = 0.05


def admin_lock(directory: int, path: str, timeout: float = ADMIN_TIMEOUT) -> contextlib.AbstractContextManager[object]:
    """
    Hold the administrative lock of the queue in that directory: creating, naming, retiring. Never on the data path.

    Its file is found below the descriptor, so those who have the queue open share one lock wherever it was moved to,
    and whatever lies at *path* by now.

    What is returned holds the lock, and is an object of C: its `with` block is entered and left without a line of
    Python, and when nobody has it any more the lock is free. So whatever the handler of a signal raises, and wherever,
    lets go.
    """
    until = time.monotonic() + timeout
    while True:
        files.refuse_removed(directory, path)
        held = _try_admin(directory, path)
        if held is not None:
            return held
        left = until - time.monotonic()
        if left <= 0:
            raise errors.Busy(f"cannot administer {path}: {ADMIN} has been held by somebody for {timeout} s")
        time.sleep(min(left, _ADMIN_POLL))


def _try_admin(directory: int, path: str) -> contextlib.AbstractContextManager[object] | None:
    """The lock, or None when somebody else has it. A new opening: its file may have been deleted meanwhile."""
    with _open_admin(directory, path) as fd:
        mine = os.fstat(fd)
        lock = _native.Lock(fd)
    try:
        with contextlib.suppress(FileNotFoundError):
            if lock.take() and os.path.samestat(os.stat(ADMIN, dir_fd=directory, follow_symlinks=False), mine):
                return lock.held()
        lock.free()
    except BaseException:  # at once: a traceback that somebody keeps would keep the lock
        lock.free()
        raise
    return None


def _open_admin(directory: int, path: str) -> _native.Fd:
    try:
        with contextlib.suppress(FileNotFoundError):
            return files.open_file(directory, ADMIN, path, writable=True, trust_owner=True)[0]
        if files.group_of(directory) is not None:
            files.make_file(directory, ADMIN, b"", path)  # nobody else could give it its rights
        else:
            with contextlib.suppress(FileExistsError):
                os.mknod(ADMIN, stat.S_IFREG | 0o600, dir_fd=directory)
                os.chmod(ADMIN, 0o600, dir_fd=directory)  # not left to the umask
        return files.open_file(directory, ADMIN, path, writable=True, trust_owner=True)[0]
    except OSError as problem:
        files.refuse_removed(directory, path)
        raise files.explained(problem, path, ADMIN) from None
