"""
What a worker says of itself in a page that others read: whether it lives, and which task it runs.

    pid:u32 state:u8 waits:u8 0:u16 attempt:u32 0:u32 began:i64 limit:f64 id:16

Two locks are on the file. One is held as long as the worker lives. The other is held by the worker while it is *not*
in the code of a task, so whoever gets it has the worker in one task, and may kill it without killing another one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import struct
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPORTING, IDLE, STARTING, RUNNING = range(4)
_PAGE = struct.Struct("<IBBHIIqd16s")
_FROM_STATE = struct.Struct("<BBHIIqd16s")
_STATE_AT, _WAITS_AT = struct.calcsize("<I"), struct.calcsize("<IB")
_BYTES = 4096
_NOBODY = bytes(16)
_LOCK = struct.Struct("hhqqi4x")
"""The kernel's `struct flock`: type, whence, start, length, pid."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a run file says."""

    pid: int
    state: int
    waits: bool
    attempt: int
    began: int
    limit: float
    id: bytes


_log = logging.getLogger("concurrent.futures")
"""Theirs, whose last resort is stderr: it is the program's mistake."""

_own: weakref.WeakSet[RunFile] = weakref.WeakSet()


class RunFile:
    """A worker's own, from its start to its end."""

    def __init__(self, folder: str) -> None:
        """Make it."""
        self.name = f"{_namespace()}.{os.getpid()}.{time.monotonic_ns():x}.run"
        self._path = os.path.join(folder, self.name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(self._fd, 0, _BYTES)
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._memory = mmap.mmap(self._fd, _BYTES)
        except BaseException:
            os.close(self._fd)
            os.unlink(self._path)
            raise
        _PAGE.pack_into(self._memory, 0, os.getpid(), IMPORTING, 0, 0, 0, 0, 0, 0.0, _NOBODY)
        _own.add(self)

    def start(self, id_: bytes, attempt: int, began: int, limit: float) -> None:
        """
        Say which task comes next, and let go of the lock: from now on this process may be killed for it.

        The system call stands between this store and whatever is read next, for both sides of a cancellation: see
        `shmq.executor.cancelling`.
        """
        _FROM_STATE.pack_into(self._memory, _STATE_AT, STARTING, 0, 0, attempt, 0, began, limit, id_)
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def run(self) -> None:
        """Its code runs now."""
        self._memory[_STATE_AT] = RUNNING

    def end(self) -> None:
        """Its code has ended: from now on nobody kills this process for it. In a process that it forked, no more."""
        if self._fd < 0:
            _end_here()
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def idle(self) -> None:
        """It has no task."""
        self._memory[_STATE_AT] = IDLE

    def waits(self, waiting: bool) -> None:
        """Whether its task waits for the result of another one."""
        self._memory[_WAITS_AT] = waiting

    def let_go(self) -> None:
        """In a forked child: with the descriptor, the locks would stay when the worker is gone."""
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        """Take it away."""
        _own.discard(self)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._memory.close()
        os.close(self._fd)


def _in_child() -> None:
    for each in list(_own):
        each.let_go()
    _own.clear()


os.register_at_fork(after_in_child=_in_child)


def _end_here() -> NoReturn:
    """The task of a worker forked, and this is the child, in which it came back: the task is its worker's to finish."""
    _log.error(
        "process %d was forked by a task of worker %d, and came back from it; it ends here, and the worker goes on. "
        "What a task forks ends itself, by os._exit",
        os.getpid(),
        os.getppid(),
    )
    os._exit(1)


def _namespace() -> int:
    """Which pids these are."""
    return os.stat("/proc/self/ns/pid").st_ino


def is_here(name: str) -> bool:
    """Whether the pid in a run file's name is of this pid namespace."""
    return name.partition(".")[0] == str(_namespace())


# ---- as others see it
class Seen:
    """Somebody's run file, open to look at it."""

    def __init__(self, path: str) -> None:
        """
        Open it.

        Raises:
            FileNotFoundError: its worker has left.
        """
        self._path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._memory: mmap.mmap | None = None
        try:
            if os.fstat(self.fd).st_size >= _BYTES:
                self._memory = mmap.mmap(self.fd, _BYTES, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self.fd)
            raise

    def lives(self) -> bool:
        """Whether its worker does."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(self.fd, fcntl.F_OFD_GETLK, asked)
        return bool(_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def says(self) -> Said:
        """What it says; it may change at once."""
        if self._memory is None:  # it is being made
            return Said(0, IMPORTING, False, 0, 0, 0.0, _NOBODY)
        while True:
            read = self._memory[: _PAGE.size]
            if read == self._memory[: _PAGE.size]:
                pid, state, waits, _, attempt, _, began, limit, id_ = _PAGE.unpack(read)
                return Said(pid, state, bool(waits), attempt, began, limit, id_)

    @contextlib.contextmanager
    def held(self) -> Iterator[Said | None]:
        """In this block its worker is in one task, and stays there; None where it is in none."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        try:
            yield self.says()
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def unlink(self) -> None:
        """Take it away, for a worker that is dead."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def close(self) -> None:
        """Look no more."""
        if self._memory is not None:
            self._memory.close()
        os.close(self.fd)


def all_seen(folder: str) -> Iterator[tuple[str, Seen]]:
    """Every worker's, living and dead, each open until the next one."""
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".run"):
            continue
        try:
            seen = Seen(os.path.join(folder, name))
        except OSError as problem:
            if problem.errno == errno.ENOENT:  # it has left
                continue
            raise
        try:
            yield name, seen
        finally:
            seen.close()


def sweep(folder: str) -> None:
    """Take away those of workers that are dead, and whose starter did not."""
    for _, seen in all_seen(folder):
        if not seen.lives() and time.time() - os.fstat(seen.fd).st_mtime > 1.0:  # or it is just being made
            seen.unlink()
