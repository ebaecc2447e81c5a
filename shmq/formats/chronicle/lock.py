"""
The lock that all who append to a queue share: `chronicle.write.lock`, a number in its table.

It holds the process id of its owner. An owner that lives is waited for, and one that is dead is dispossessed. That is
Java's rule, and its trap: the ids of one container mean nothing in another. Where two containers append to one queue,
each takes the other's owner for dead (or, both being number 1, for itself), unless they share the ids (`--pid=host`).
Nothing in the file tells them apart. But the dead do not give back a lock, and the living do in microseconds: so an
owner that is not to be seen is dispossessed only where the number stays as it is for a while. What remains of the trap
is an owner elsewhere that is stopped in the middle, and Java, which asks once.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from shmq.errors import Busy
from shmq.formats.chronicle.table import UNLOCKED, WRITE_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.formats.chronicle.mapped import Mapped

TIMEOUT = 15.0
"""Seconds that Java waits."""

STILL_SECONDS = 0.25
"""So long the number stays the same where its owner is dead."""

_SPINS = 20
_PAUSES = (0.00005, 0.005)


class _Turn:
    """Whose turn it is among the threads of this process: the number in the table is the same for all of them."""

    def __init__(self) -> None:
        self.lock = threading.Condition()  # which knows its owner from the moment that it has one

    def is_ours(self) -> bool:
        """Whether it is this thread's."""
        try:
            self.lock.notify(0)
        except RuntimeError:  # it is not
            return False
        return True


_turns: WeakValueDictionary[tuple[int, int], _Turn] = WeakValueDictionary()
_turns_lock = threading.Lock()


def _after_fork() -> None:
    """A forked child has its own threads; whatever its parent's were about to do is not its own."""
    global _turns_lock  # noqa: PLW0603
    _turns_lock = threading.Lock()
    _turns.clear()


os.register_at_fork(after_in_child=_after_fork)


class WriteLock:
    """The lock of one table, for one appender."""

    def __init__(self, table: Mapped, at: int) -> None:
        """The number is *at* that place of *table*."""
        self._table = table
        self._at = at
        self._pid = os.getpid()
        self._trying = False
        """From before we take the number until after we give it back: what is ours in between is in the number."""
        with _turns_lock:
            self._turn = _turns.setdefault(table.identity(), _Turn())
        self.robbed = False
        """The last owner was dead, and may have left something half done."""

    def refuse_nested(self) -> None:
        """
        See that this thread is not at it already: a signal's handler may have come in between.

        Raises:
            Busy: it is.
        """
        if self._turn.is_ours():
            msg = f"cannot append to {self._folder}: this very thread is in the middle of it, below a signal's handler"
            raise Busy(msg)

    def acquire(self, timeout: float, check: Callable[[], None] | None = None) -> None:
        """
        Take the lock, within *timeout* seconds, after `refuse_nested`. Whatever comes of it, `release` comes after it.

        *check* raises if the appender is not to go on, as it may have been closed by another thread meanwhile.

        Raises:
            Busy: somebody who lives holds it.
        """
        deadline = time.monotonic() + timeout
        if not self._turn.lock.acquire(timeout=max(0.0, timeout)):
            msg = f"cannot append to {self._folder}: another thread of this process has been at it for {timeout:g} s"
            raise Busy(msg)
        if check is not None:
            check()
        self._take_number(deadline, timeout)

    def _take_number(self, deadline: float, timeout: float) -> None:
        table, at = self._table, self._at
        tries = 0
        dead, since = UNLOCKED, 0.0
        while True:
            found = table.load64(at)
            if found == UNLOCKED:
                dead = UNLOCKED
                self._trying = True
                if table.cas64(at, UNLOCKED, self._pid):
                    return
                self._trying = False
                continue
            owner = pid_of(found)
            if not alive(owner):
                if dead != found:
                    dead, since = found, time.monotonic()
                elif time.monotonic() - since >= STILL_SECONDS:
                    self._dispossess(found, owner)
                    continue
                time.sleep(_PAUSES[0])
                continue
            dead = UNLOCKED
            tries += 1
            if tries <= _SPINS:
                time.sleep(0)
                continue
            if time.monotonic() >= deadline:
                self._refuse(owner, timeout)
            time.sleep(min(_PAUSES[1], _PAUSES[0] * tries))

    def _dispossess(self, found: int, owner: int) -> None:
        if self._table.cas64(self._at, found, UNLOCKED):
            self.robbed = True
            text = f"{self._folder}: {WRITE_LOCK} was held by process {owner}, which is dead; it is free again"
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _refuse(self, owner: int, timeout: float) -> None:
        who = f"process {owner}{_called(owner)}"
        if owner == self._pid:
            who = f"process {owner}, which is this one, though no appender of it does (an earlier process of that id?)"
        msg = (
            f"cannot append to {self._folder}: {WRITE_LOCK} has been held for {timeout:g} s by {who}; nothing was "
            "written. Ids of another container mean nothing here; if it is certain that nobody appends, "
            "shmq.formats.chronicle.unlock() frees the queue"
        )
        raise Busy(msg)

    @property
    def _folder(self) -> Path:
        return self._table.path.parent

    def held(self) -> bool:
        """Say whether the number still says that this process holds the lock."""
        return self._table.load64(self._at) == self._pid

    @contextmanager
    def nobody_else(self) -> Iterator[bool]:
        """Let no other thread of this process append meanwhile; whether this one does, below a signal's handler."""
        if os.getpid() != self._pid:
            yield False
            return
        nested = self._turn.is_ours()
        with self._turn.lock:
            yield nested

    def release(self) -> None:
        """Give back what was taken, as far as it was; again is harmless."""
        try:
            self._give_back()
        except BaseException:  # a signal's handler, that raised in the middle: once more, and it goes on
            self._give_back()
            raise

    def _give_back(self) -> None:
        if not self._turn.is_ours():
            return  # what there is to be given back is another thread's
        if self._trying:
            self._table.cas64(self._at, self._pid, UNLOCKED)
            self._trying = False
        self._turn.lock.release()


def pid_of(value: int) -> int:
    """Return the process id in a lock's number, whose upper half once held a thread's."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def alive(pid: int) -> bool:
    """Say whether a process of that id lives, as far as this process can see; one that cannot be asked lives."""
    if pid <= 0:
        return False
    if not Path(f"/proc/{pid}").exists():
        # It may be hidden from us (hidepid), or /proc not be there.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Say whether nothing of the process is left but its entry, which its parent has not yet taken note of."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in {b"Z", b"X"} and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1
    except (OSError, IndexError):
        return False


def _called(pid: int) -> str:
    with suppress(OSError, ValueError):
        return f" ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8').strip()})"
    return ""
