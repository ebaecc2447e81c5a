"""
This process's seat at each queue it has open: one per queue, shared by all its handles.

Taking a seat proves that its last tenant is dead. Its open claims are padded first, where it takes no time to find
them; else whoever meets one pads it, as of an older generation.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref

from shmq import _native, errors, later, locks, log
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, warm
from shmq.storage.chain import Chain
from shmq.storage.mapped import Mapped
from shmq.storage.paths import CONTROL, QUEUE
from shmq.watcher import Watched, pid_namespace, start_time

if TYPE_CHECKING:
    from typing import Any

    from shmq.durability import Keeper
    from shmq.loan import Loan
    from shmq.storage.directory import Directory

_NEVER = (1 << 64) - 1
_LITTLE = 512 << 10
"""So many bytes of messages are looked through at an opening, for claims that a dead process left open."""
_AT_LEAST_EACH = 256
"""In each so-many-th generation of a seat everything is, long before a generation's number comes again."""


class Members:
    """The handles of this process in one group, which the others of the group know as one."""

    def __init__(self) -> None:
        """None yet."""
        self.lock = locks.Lock()
        self.handles: weakref.WeakSet[Any] = weakref.WeakSet()


class Membership:
    """One process at one queue. `with` is not for this one: handles `join` and `leave`."""

    def __init__(self, home: Directory) -> None:
        """It begins with `open`."""
        self._key = (0, 0)
        self._handles: set[object] = set()
        self._over = False
        self._ending = locks.Lock()
        self._claiming: dict[int, int] = {}
        self.mapped = Mapped()
        """Chunks kept for random access, by all handles of this process."""
        self._queue_id = home.queue_id
        self._members: dict[str, Members] = {}
        self.missing: object = None
        """What backlog.py knows."""
        self._watched: Watched | None = None
        self._keeper: Keeper | None = None
        self._lock = locks.Lock()
        self._home: Directory | None = None
        """What has the directory open in which the seats are asked about."""
        self._syncs = False
        """Whether there is a watermark, to be moved at the end."""
        self._looked_through: _native.Chunk | None = None
        """The last chunk, mapped to be written, once claims of the dead were looked for in it: for the first put."""

    def open(self, home: Directory) -> None:
        """Map the control page; take a seat unless the home is read-only. What is interrupted is ended by `leave`."""
        if home.view is not None:
            self._join_alone(home)
            return
        lock_fd, size = home.open(home.fd, CONTROL, writable=not home.read_only)
        with lock_fd:
            self.control = _native.Control(
                lock_fd, size, home.queue_id, f"{home.path}/{CONTROL}", writable=not home.read_only
            )
            keeps = _native.keeps_locks(lock_fd)
            if keeps:
                self.member = _native.Member(self.control, lock_fd, None)
                self._ask_by_path(home, CONTROL)
            else:
                with _native.Fd.of(os.open, f"/proc/self/fd/{lock_fd.fileno()}", os.O_RDONLY | os.O_CLOEXEC) as test_fd:
                    self.member = _native.Member(self.control, lock_fd, test_fd)
        if home.read_only:
            if keeps:
                self.member.keep()
        else:
            self._sit_down(home, keeps=keeps)
            if home.options.durability.kind != "process":
                later.ready("shmq.durability")
                from shmq import durability  # noqa: PLC0415  # only these modes pay for it

                durability.Syncer(home, self).doubt()
                self._have(home)
                self._syncs = True
                self._keep_interval(home)

    def _have(self, home: Directory) -> None:
        self._home = home
        home.retain(self)

    def _ask_by_path(self, home: Directory, name: str) -> None:
        if home.keeps_descriptor:
            self._have(home)
            self.member.by_path(home.fd.fileno(), name)
        else:
            self.member.by_path(-1, f"{home.path}/{name}")

    def _join_alone(self, home: Directory) -> None:
        """At a queue that was not recovered yet, to read alone: what its control page says means nothing."""
        finished = bool(home.journal.flags & _native.JOURNAL_FINISHED)
        self.control = _native.Control.alone(home.queue_id, home.journal.first_live, finished=finished)
        lock_fd, _ = home.open(home.fd, QUEUE, writable=False)
        test_fd, _ = home.open(home.fd, QUEUE, writable=False)
        with lock_fd, test_fd:
            self.member = _native.Member(self.control, lock_fd, test_fd)

    def _sit_down(self, home: Directory, *, keeps: bool) -> None:
        slot, generation, since = self.member.lock()
        if keeps:
            self.member.keep()
        chain = Chain(home, self.member)
        last = chain.last()
        if generation and since != _NEVER:
            found = self._newest_of(chain, last, since)
            if generation % _AT_LEAST_EACH == 0 or self._is_little(found, last, since):
                padded = self._pad(chain, found, since, _native.owner_of(slot, generation))
                self._tell_of_death(home, slot, f"claims of it that are padding now: {padded}")
            else:
                self.member.leave_open(since)
                self._tell_of_death(home, slot, "its open claims become padding when somebody meets them")
            later.ready("shmq.storage.ring")
            from shmq.storage import ring  # noqa: PLC0415  # only who comes after a death

            ring.bury(home, slot)
            if not home.options.durability.waits:  # those keep a descriptor of it
                self._looked_through = found
        if self.control.is_shut_down() and not self._anybody_else(slot):
            self.control.shut_down(on=False)  # a shutdown lasts until the last participant has left
        since = 0 if last is None else last[0]
        self.member.join(os.getpid(), pid_namespace(), start_time(), boots.boot_tag(home.boot_id), since)

    def _tell_of_death(self, home: Directory, slot: int, what: str) -> None:
        """Before the seat is taken anew."""
        if log.listened(log.INFO):
            pid = next((pid for at, _, pid, *_ in self.control.participants() if at == slot), 0)
            log.say(log.INFO, "%s: process %d ended without closing it; %s", home.path, pid, what)

    @staticmethod
    def _newest_of(chain: Chain, last: tuple[int, int] | None, since: int) -> _native.Chunk | None:
        """The last chunk, where it is all that is to be looked through for open claims from that chunk on."""
        if last is not None and last[0] <= since:
            with contextlib.suppress(FileNotFoundError):  # retired meanwhile: nobody waits for it
                return chain.open(*last, writable=True)
        return None

    @staticmethod
    def _is_little(found: _native.Chunk | None, last: tuple[int, int] | None, since: int) -> bool:
        """Whether it takes no time worth mentioning to look for open claims from that chunk on."""
        if found is None:
            return last is None or last[0] <= since
        return found.filled()[0] <= _LITTLE

    @staticmethod
    def _pad(chain: Chain, found: _native.Chunk | None, since: int, owner: int) -> int:
        """Pad the open claims of that dead one, from that chunk on, of which *found* may be one: how many."""
        if found is not None and found.sequence == since:
            return found.bury(owner)
        padded = 0
        for sequence, base in chain.since(since):
            with contextlib.suppress(FileNotFoundError):  # retired meanwhile: nobody waits for it
                padded += chain.open(sequence, base, writable=True).bury(owner)
        return padded

    def anybody_else(self) -> bool:
        """Whether another process sits here."""
        return self._anybody_else(self.member.owner >> 11)

    def _keep_interval(self, home: Directory) -> None:
        """Have a thread that syncs, if the queue wants one."""
        if home.options.durability.kind == "interval":
            later.ready("shmq.durability")
            from shmq.durability import Keeper  # noqa: PLC0415  # only this mode pays for it

            self._keeper = Keeper(home, self, home.options.durability.seconds)
            self._keeper.start()

    def rolled(self, chunk: _native.Chunk) -> None:
        """A producer of this process went on to that chunk."""
        if self._keeper is not None:
            self._keeper.rolled(chunk)

    def _anybody_else(self, mine: int) -> bool:
        return any(self.member.slot_locked(slot) for slot, *_ in self.control.participants() if slot != mine)

    def sleep(self, seen: int, deadline_ns: int) -> int:
        """Wait for the bell, with a watcher on everybody's life."""
        self.about_to_sleep()
        return self.member.wait(seen, deadline_ns)

    def about_to_sleep(self) -> None:
        """Before a sleep for messages: watch everybody's life, and hold nothing that others want."""
        self.watch()
        self.let_go()  # or what this process sleeps on is room for nobody

    def sleep_for_room(self, seen: int, deadline_ns: int) -> int:
        """Likewise, for the bell that says there may be room."""
        self.watch()
        return self.member.room_wait(seen, deadline_ns)

    def watch(self) -> None:
        """Have the bells rung when somebody dies."""
        with self._lock:
            if self._watched is None:
                self._watched = Watched(self.control, self.member)
            watched = self._watched
            watched.start()
        watched.refresh()

    def claims_from(self, handle: object, sequence: int | None) -> None:
        """
        Note that *handle* claims in that chunk from now on, or None when it claims no more.

        Whoever takes this seat after a kill looks for open claims from the oldest such chunk on, so that opening costs
        the same in a long queue. A claim that a thread had open while another one rolled may be missed: it is of an
        older generation, so whoever meets it pads it all the same.
        """
        with self._lock:
            if sequence is None:
                self._claiming.pop(id(handle), None)
            else:
                self._claiming[id(handle)] = sequence
            if self._claiming and not self.member.forked():
                self.member.since(min(self._claiming.values()))

    def members_of(self, name: str) -> Members:
        """The handles of this process in that group."""
        with self._lock:
            return self._members.setdefault(name, Members())

    def retain(self, handle: object) -> None:
        """One handle more. Whoever calls has one, or the lock."""
        self._handles.add(handle)

    def forget_retired(self) -> None:
        """Let go of chunks that were retired."""
        first = self.control.first_live()
        self.mapped.forget_below(first)
        found = self._looked_through
        if found is not None and found.sequence < first:  # of whoever only takes, and never sleeps
            self._looked_through = None

    def looked_through(self) -> _native.Chunk | None:
        """The last chunk as it was when this was opened, if it is mapped since then; once."""
        with self._lock:
            found, self._looked_through = self._looked_through, None
        return found

    def let_go(self) -> None:
        """The same, and of the locks on what nobody here looks at any more."""
        self.forget_retired()
        self._looked_through = None
        warm.settle()

    def shared(self) -> bool:
        """Whether more than one handle of this process sits here."""
        return len(self._handles) > 1

    def leave(self, handle: object) -> None:
        """Without that handle; when there is none (any more), the seat is given back. It can be repeated."""
        with _registry_lock:
            self._handles.discard(handle)
            if self._handles:
                return
            _live.discard(self)
            if _registry.get(self._key) is self:
                del _registry[self._key]
        with self._ending:
            if not self._over:
                self._end()
                self._over = True

    def _end(self) -> None:
        """Each step can be repeated, as can all of them: a signal's handler may raise in any."""
        if sys.is_finalizing():
            return  # the kernel lets go of everything; threads that would be waited for are gone, and no import works
        member: _native.Member | None = self.__dict__.get("member")  # none where the opening was interrupted early
        mine = member is not None and not member.forked()
        self.mapped.clear()
        self._looked_through = None
        if self._keeper is not None and mine:
            self._keeper.stop()
        if self._home is not None:
            if mine and self._syncs:
                later.ready("shmq.durability")
                from shmq import durability  # noqa: PLC0415  # only these modes pay for it

                durability.mark_at_close(self._home, self)
            self._home.close(self)
        warm.forget(self._queue_id)
        if self._watched is not None and mine:
            self._watched.stop()
        if member is not None:
            member.leave()


_registry: dict[tuple[int, int], Membership] = {}
_registry_lock = locks.Lock()
_live: set[Membership] = set()
"""All with handles: a handle that is collected in a cycle leaves, so its membership must not be collected before it."""
_inherited: list[Membership] = []


def _forget_in_child() -> None:
    for membership in _live:
        membership.mapped.clear()
        membership.looked_through()  # which nobody puts into there
    _inherited.extend(_live)  # the parent's handles still point at them, and end in their own time
    _live.clear()
    _registry.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def lent(home: Directory, handle: Loan) -> Membership:
    """What that handle was lent; a new one in a forked child, or where it has none."""
    known = handle.membership
    return known if isinstance(known, Membership) and not known.member.forked() else join(home, handle)


def join(home: Directory, handle: Loan) -> Membership:
    """This process's membership at that queue, lent to one handle more."""
    if home.view is not None:
        return _begin(home, handle)
    try:
        info = os.stat(CONTROL, dir_fd=home.fd, follow_symlinks=False)
    except FileNotFoundError:
        raise errors.Corrupt(f"cannot open {home.path}: its file {CONTROL} is missing; nothing was touched") from None
    if home.read_only:
        return _begin(home, handle)
    key = (info.st_dev, info.st_ino)
    with _registry_lock:
        known = _registry.get(key)
        if known is None:
            return _begin(home, handle, key)
        handle.sit(known)
        return known


def _begin(home: Directory, handle: Loan, key: tuple[int, int] | None = None) -> Membership:
    """A new one, registered under that key, if it is for all handles."""
    made = Membership(home)
    try:
        made.open(home)
        _live.add(made)
        if key is not None:
            made._key = key  # noqa: SLF001
            _registry[key] = made
        handle.sit(made)
    except BaseException:
        made.leave(handle)
        raise
    return made
