"""
Who tells sleepers of a death, which makes no sound: one thread a process, begun at the first sleep, for all its queues.

Members of this pid namespace are watched by pidfd, each process once however many queues it shares with us; of members
of others, only the lock can be tested, every 5 ms while there are any. A death rings the bell of each of those queues.
"""

from __future__ import annotations

import os
import select

from shmq import _native, locks
from shmq.hints import TYPE_CHECKING
from shmq.storage import files
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

UNSEEN_POLL_MS = 5
"""How often to test the locks of members in other pid namespaces, while there are any and somebody sleeps."""


def start_time(pid: int | str = "self") -> int:
    """When that process began, in clock ticks since boot; 0 when there is none."""
    try:
        stat = files.small_file(f"/proc/{pid}/stat")
    except OSError:
        return 0
    return int(stat.rpartition(b") ")[2].split()[19])


def pid_namespace() -> int:
    """The inode of this process's pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


class Life:
    """Another process, watched for its end."""

    def __init__(self, fd: _native.Fd, key: tuple[int, int]) -> None:
        self.fd = fd
        self.key = key  # its pid, and when it began
        self.queues: set[Watched] = set()


class Watched:
    """One queue at which somebody sleeps."""

    def __init__(self, control: _native.Control, member: _native.Member) -> None:
        """It begins with `start`."""
        self.control = control
        self.member = member
        self.due = True
        """Whether somebody may have sat down since the last look."""
        self.seen = -1
        self.known: dict[int, tuple[int, ...]] = {}  # slot -> what it said when it was last looked at
        self.unseen: dict[int, int] = {}  # slot -> generation
        self.by: Watcher | None = None
        self._begun = False

    def start(self) -> None:
        """Have it watched, if it is not. It can be repeated, also where it was interrupted."""
        global _watcher  # noqa: PLW0603
        if self._begun:
            return
        with _lock:
            if _watcher is None:
                _watcher = Watcher()
            self.by = _watcher
            _watcher.queues.add(self)
            _watcher.start()
        self._begun = True
        self.by.nudge()

    def refresh(self) -> None:
        """Have it looked who is here, if that changed. A member that died before the look is noticed all the same."""
        if self.control.members() != self.seen and self.by is not None:
            self.due = True
            self.by.nudge()

    def stop(self) -> None:
        """Have it watched no more; the last one's thread ends. It can be repeated."""
        global _watcher  # noqa: PLW0603
        watcher = self.by
        if watcher is None:
            return
        with _lock:
            watcher.forget(self)
            if watcher.queues:
                return
            if _watcher is watcher:
                _watcher = None
        watcher.stop()


class Watcher:
    """
    The thread, and what it waits for.

    Attributes:
        queues: those it watches for.
        lives: the processes it watches, by pid and when they began.
    """

    def __init__(self) -> None:
        """It begins with `start`."""
        self.queues: set[Watched] = set()
        self.lives: dict[tuple[int, int], Life] = {}
        self._by_fd: dict[int, Life] = {}
        self._namespace = pid_namespace()
        self._nudge = _native.Fd.of(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._nudge, select.POLLIN)
        self._thread = Worker(self._run, "shmq-watcher")

    def start(self) -> None:
        """Begin, unless it has."""
        self._thread.start()

    def nudge(self) -> None:
        """Have it look at what is due."""
        if self._nudge.fileno() >= 0:
            os.eventfd_write(self._nudge, 1)

    def stop(self) -> None:
        """End the thread."""
        self._thread.end(self.nudge)
        self._nudge.close()

    def forget(self, queue: Watched) -> None:
        """Ring for that queue no more."""
        self.queues.discard(queue)
        for life in list(self.lives.values()):
            life.queues.discard(queue)
            if not life.queues:
                self._let_go(life)

    def _let_go(self, life: Life) -> None:
        self.lives.pop(life.key, None)
        if self._by_fd.pop(life.fd.fileno(), None) is not None:
            self._poll.unregister(life.fd)
        life.fd.close()

    def _run(self) -> None:
        while not self._thread.is_ending():
            ready = self._poll.poll(UNSEEN_POLL_MS if any(queue.unseen for queue in list(self.queues)) else None)
            with _lock:
                self._serve([fd for fd, _ in ready])

    def _serve(self, ready: Iterable[int]) -> None:
        dead: set[Watched] = set()
        for fd in ready:
            life = self._by_fd.get(fd)
            if life is not None:
                dead |= life.queues
                self._let_go(life)
            elif fd == self._nudge.fileno():
                os.eventfd_read(self._nudge)
        for queue in list(self.queues):
            if queue.due and self._look(queue):
                dead.add(queue)
            for slot in [slot for slot in queue.unseen if not queue.member.slot_locked(slot)]:
                del queue.unseen[slot]
                dead.add(queue)
        for queue in dead:
            queue.control.wake()

    def _look(self, queue: Watched) -> bool:
        """
        Watch whoever sat down since the last look: whether one of them has come and gone meanwhile.

        Who was still sitting down then, so that its seat did not say yet which process it is, is looked at again.
        """
        queue.due = False
        queue.seen = queue.control.members()
        dead = False
        for slot, generation, pid, namespace, began in queue.control.participants():
            if _native.owner_of(slot, generation) == queue.member.owner:
                continue
            witness = (generation, pid, namespace, began)
            if queue.known.get(slot) == witness:
                continue
            queue.known[slot] = witness
            if not queue.member.slot_locked(slot):
                dead = True  # it may have left something behind
            elif namespace == self._namespace and self._watch(queue, pid, began):
                queue.unseen.pop(slot, None)
            else:
                queue.unseen[slot] = generation
        return dead

    def _watch(self, queue: Watched, pid: int, began: int) -> bool:
        life = self.lives.get((pid, began))
        if life is None:
            try:
                pidfd = _native.Fd.of(os.pidfd_open, pid)
            except (OSError, OverflowError):  # gone, or never a pid: what stands in the seat is only a witness
                return False
            if start_time(pid) != began:  # the pid was reused meanwhile
                return False
            life = self.lives[pid, began] = self._by_fd[pidfd.fileno()] = Life(pidfd, (pid, began))
            self._poll.register(pidfd, select.POLLIN)
        life.queues.add(queue)
        return True


_watcher: Watcher | None = None
_lock = locks.Lock()
"""Over all that is watched. The thread looks with it held, so of a queue that was forgotten it knows nothing more."""


def _forget_in_child() -> None:
    global _watcher  # noqa: PLW0603
    _watcher = None  # the thread is the parent's


os.register_at_fork(after_in_child=_forget_in_child)
