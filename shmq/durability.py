"""
Having messages on the disk: the group commit, `Queue.sync`, and the thread that `interval` keeps.

Whoever syncs answers all who wait (cffi_build/src/sync.c). The core syncs the newest chunk by itself, and, for
`interval`, the one behind it; what is rarer is done here, by the same leader: older chunks, names, the watermark, the
snapshots of consumers. The order of all this stands in docs/format.md.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING

from shmq import _native, errors, locks
from shmq.storage import acks, sync, watermark
from shmq.storage.chain import Chain
from shmq.storage.directory import CONTROL, QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.membership import Membership
    from shmq.storage.directory import Directory

MARK_NS = 1_000_000_000
"""The watermark is moved about this often while something is synced."""
_EVERYTHING = (1 << 64) - 1
_KEEPER_BYTE = 1 << 41  # of control.shmq: whoever keeps the interval holds a lock on it
_STANDBY_PAUSE = 0.005
_WORD = 8  # what ends a chunk: FREE or the SEAL
_PATIENCE_NS = 100_000_000
_TRIES = 100
_KEPT_MAPPED = 1.0
"""Longer intervals let their chunk go meanwhile."""


class Syncer:
    """
    One handle's way to the disk. Safe to share between threads.

    Attributes:
        mark_due_ns: monotonic; whoever syncs from then on moves the watermark too.
    """

    def __init__(self, home: Directory, membership: Membership) -> None:
        """Nothing is synced yet."""
        self._home = home
        self._membership = membership
        self._member = membership.member
        self._control = membership.control
        self._chain = Chain(home, membership.member)
        self._names = acks.Names(home)
        self.mark_due_ns = time.monotonic_ns() + MARK_NS

    def check(self) -> None:
        """
        Refuse what could not be made durable.

        Raises:
            SyncFailed: an earlier sync failed; nothing was put.
        """
        if self._control.sync_failed():
            raise errors.SyncFailed(f"{self._frozen()}; nothing was put")

    def _frozen(self) -> str:
        return (
            f"cannot sync {self._home.path}: an earlier sync of it failed, so what is on the disk is not known. It can "
            "be read. Close it everywhere and open it again: that writes and verifies what is there"
        )

    def wait(self, chunk: _native.Chunk | None, index: int, deadline_ns: int) -> None:
        """
        Return when the message at *index*, in *chunk* if that is known, and all before it are on the disk.

        Raises:
            SyncPending: the deadline passed, a signal's handler raised, or the disk could not be asked.
            SyncFailed: the disk refused.
        """
        try:
            self._until(chunk, index + 1, deadline_ns)
        except (errors.SyncFailed, errors.SyncPending) as problem:
            problem.index = index
            raise
        except BaseException as problem:
            raise self.pending(index, problem) from problem

    def pending(self, index: int, problem: BaseException) -> errors.SyncPending:
        """What to raise when *problem* ended a wait for the message at *index*."""
        return errors.SyncPending(
            f"message {index} is in {self._home.path}, and it is not known whether it is on the disk "
            f"({type(problem).__name__}: {problem}). Do not put it again; sync() waits for it",
            index,
        )

    def sync(self) -> None:
        """
        Return when everything put before is on the disk, and what was acknowledged.

        Raises:
            SyncFailed: the disk refused.
        """
        self._until(None, self._chain.next_index(), _native.FOREVER, mark=True)

    def tick(self, deadline_ns: int) -> None:
        """
        The same without the acknowledgements, and the watermark only now and then.

        Raises:
            SyncPending: a claim was open all the time; what lies before it is on the disk.
            SyncFailed: the disk refused.
        """
        self._until(None, self._chain.next_index(), deadline_ns)

    def acknowledge(self, name: str, checkpoint: _native.Checkpoint) -> None:
        """
        Return when what this thread has acknowledged under that name is on the disk: with the next group commit.

        Raises:
            SyncFailed: the disk refused. It is acknowledged; a power cut may bring it again.
            OSError: the disk could not be asked, likewise.
        """
        want = checkpoint.ask(self._member)
        leading = _native.new_leading()
        try:
            while True:
                code = self._member.acks_wait(checkpoint, want, leading)
                if code == _native.OK:
                    return
                if code == _native.LEAD:
                    self._commit(mark=False, own=name)
                    leading[0] = 0
                    self._stop_leading()
                elif code == _native.SYNC_FAILED:
                    self._note_failure()
                    raise errors.SyncFailed(self._frozen())
                elif code != _native.SIGNAL:
                    raise _native.error(code, f"cannot sync {self._home.path}")
        finally:
            if leading[0]:
                self._stop_leading()

    def _stop_leading(self) -> None:
        self._member.stop_leading()
        self._member.acks_answer()

    def _until(self, chunk: _native.Chunk | None, want: int, deadline_ns: int, *, mark: bool = False) -> None:
        """Wait until everything below index *want* is on the disk, or do it; with the watermark and all, for *mark*."""
        leading = _native.new_leading()
        seen = None
        try:
            while mark or self._control.durable() < want:
                here = None if self._mark_is_due() or not sync.IN_CORE else chunk
                code = self._member.sync_wait(here, _EVERYTHING if mark else want, deadline_ns, leading)
                if code == _native.LEAD:
                    progress = self._commit(mark=mark)
                    leading[0] = 0
                    self._stop_leading()
                    mark = False
                    code = _native.OK if progress else _native.WAITING
                if self._control.durable() >= want:
                    continue
                if code == _native.WAITING:
                    seen = self._doze(seen, deadline_ns)
                elif code == _native.TIMEOUT:
                    raise errors.SyncPending(self._late(want))
                elif code == _native.SYNC_FAILED:
                    self._note_failure()
                    raise errors.SyncFailed(self._frozen())
                elif code not in (_native.OK, _native.SIGNAL):
                    raise _native.error(code, f"cannot sync {self._home.path}")
        finally:
            if leading[0]:
                self._stop_leading()

    def _late(self, want: int) -> str:
        return (
            f"message {want - 1} is in {self._home.path}, and was not on the disk in time; everything below "
            f"{self._control.durable()} is. Do not put it again; sync() waits for it"
        )

    def _doze(self, seen: int | None, deadline_ns: int) -> int | None:
        """A living claim is in the way: say that we sleep, look once more, then sleep until something happens."""
        if seen is None:
            return self._member.wait_begin()
        if self._membership.sleep(seen, deadline_ns) == _native.TIMEOUT:
            raise errors.SyncPending(
                f"not on the disk in time: something before it in {self._home.path} is claimed and not committed"
            )
        return None

    # ---- as leader
    def _commit(self, *, mark: bool, own: str | None = None) -> bool:
        """
        Sync everything that is resolved, and what was acknowledged by those who wait, name *own* in any case: whether
        more is durable than before.
        """
        if self._control.sync_failed():
            raise errors.SyncFailed(self._frozen())
        before = self._control.durable()
        mark = mark or self._mark_is_due()
        with contextlib.ExitStack() as stack:
            asked = None
            if self._member.acks_begin() or own is not None or mark:
                asked = stack.enter_context(self._names.opened(everything=mark, own=own))
                with self._at_the_disk():
                    asked.write()
            last = self._sync_chunks() if mark or self._chain.next_index() > before else None
            if last is not None:
                self._member.publish_durable(last[1].next_index, last[0].sequence, last[1].position)
            with self._at_the_disk():
                if mark and last is not None:
                    watermark.write(self._home, last[0].sequence, last[1].position, last[1].next_index)
                if asked is not None:
                    asked.sync()
            if mark:
                self.mark_due_ns = time.monotonic_ns() + MARK_NS
        return self._control.durable() > before

    @contextlib.contextmanager
    def _at_the_disk(self) -> Iterator[None]:
        """What fails in here is the disk's refusal."""
        try:
            yield
        except OSError as problem:
            raise self._fail(problem) from problem

    def _mark_is_due(self) -> bool:
        """Whether it is time. If somebody else has moved it since, our time is later, too."""
        now_ns = time.monotonic_ns()
        if now_ns < self.mark_due_ns:
            return False
        age_ns = abs(time.time_ns() - os.stat(QUEUE, dir_fd=self._home.fd).st_mtime_ns)
        if age_ns >= MARK_NS:
            return True
        self.mark_due_ns = now_ns + MARK_NS - age_ns
        return False

    def _sync_chunks(self) -> tuple[_native.Chunk, _native.Resolved] | None:
        """Every chunk from where the last sync ended, one after the other; each is let go once it is synced."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError, errors.Gone):  # retired meanwhile: look again
                start = self._control.durable_chunk()
                live = [name for name in self._chain.names() if name[0] >= start]
                return self._sync_from(live[0]) if live else None
        raise errors.Gone(f"cannot sync {self._home.path}: its chunks went {_TRIES} times while they were opened")

    def _sync_from(self, name: tuple[int, int]) -> tuple[_native.Chunk, _native.Resolved]:
        while True:
            chunk = self._chain.open(*name, writable=True, syncing=True)
            found = chunk.resolved()  # before its sync begins
            following = self._chain.after(chunk) if found.code == _native.ROLL else None
            with self._at_the_disk():
                known = self._sync_chunk(chunk, found)
                if following is None:
                    if not known:
                        sync.directory(self._home.chunks, "chunks")
                    return chunk, found
            name = following.sequence, following.base
            del chunk, following

    def _sync_chunk(self, chunk: _native.Chunk, found: _native.Resolved) -> bool:
        """
        Sync all of it; but of the one where the last sync ended, only what lies behind that, as the core does.

        Returns:
            Whether it was that one, so that its name is on the disk, too.
        """
        begin, end = self._control.durable_at(), found.position + _WORD
        known = 0 < begin < end and chunk.sequence == self._control.durable_chunk()
        if known:
            sync.pages(*chunk.pages(begin, end), "records")
        else:
            sync.data(chunk.fd, "chunk")
        return known

    def _fail(self, problem: OSError) -> errors.SyncFailed:
        """The disk refused: for every process, until somebody has verified what is there."""
        self._control.fail_sync(failed=True)
        self._note_failure()
        return errors.SyncFailed(
            f"cannot sync {self._home.path}: {problem.strerror or problem}. What was put can be read; how much of "
            "it is on the disk is not known. Close it everywhere and open it again: that writes and verifies it"
        )

    def _note_failure(self) -> None:
        """Keep it in the journal too, if the disk lets us."""
        with contextlib.suppress(errors.Busy, OSError, errors.ShmqError), self._home.admin(timeout=0):
            journal = self._home.read_journal()
            if not journal.flags & _native.JOURNAL_SYNC_FAILED:
                self._home.write_journal(journal._replace(flags=journal.flags | _native.JOURNAL_SYNC_FAILED))


def verify(home: Directory, membership: Membership) -> bool:
    """
    After a sync that failed, for the only process that has the queue open: write everything again, sync it, and read it
    back from the disk. Whether the queue is as good as before.
    """
    chain = Chain(home, membership.member)
    with home.admin():
        if membership.anybody_else():
            return False
        try:
            for sequence, base in chain.names():
                chunk = chain.open(sequence, base, writable=True, syncing=True)
                chunk.touch()  # what the kernel believes to be clean is written once more
                sync.data(chunk.fd, "chunk")
                fd = os.dup(chunk.fd)
                del chunk  # what is mapped stays in memory
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
                chain.open(sequence, base).messages()
            sync.directory(home.chunks, "chunks")
            journal = home.read_journal()
            home.write_journal(journal._replace(flags=journal.flags & ~_native.JOURNAL_SYNC_FAILED))
        except (OSError, errors.Corrupt, errors.Busy):
            return False
        membership.control.fail_sync(failed=False)
    return True


class Keeper:
    """
    The thread of `interval(t)` in one process: of all the processes that have the queue open, one keeps the interval.

    Whoever holds the lock does: it sleeps until something is put, waits t, and syncs. The others sleep until somebody
    joins, leaves or dies, and try to get the lock.
    """

    def __init__(self, home: Directory, membership: Membership, seconds: float) -> None:
        """Start it."""
        self._home = home.retain()
        self._membership = membership
        self._seconds = seconds
        self._syncer = Syncer(home, membership)
        fd, _ = home.open(home.fd, CONTROL, writable=True)
        self._role = _native.Lock(fd)
        self._ended = threading.Event()
        self._shared = _native.new_keeper(home.chunks)
        self._rolled: list[_native.Chunk] | None = None  # while the core keeps: what it was told of must live
        self._lock = locks.Lock()
        self._keeps = False
        self._thread = threading.Thread(target=self._run, name="shmq-interval", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._turn()
            except errors.SyncFailed as problem:
                warnings.warn(str(problem), RuntimeWarning, stacklevel=1)
                return
            except (OSError, errors.ShmqError) as problem:  # what is in the way may go: try again
                if not self._ended.wait(max(self._seconds, 1.0)):
                    warnings.warn(f"cannot sync {self._home.path}: {problem}", RuntimeWarning, stacklevel=1)

    def _turn(self) -> None:
        member, control = self._membership.member, self._membership.control
        seen = control.bell()
        if not self._keeps:
            self._keeps = self._role.take(_KEEPER_BYTE)
            if not self._keeps:
                self._membership.sleep(seen, _native.FOREVER)
                self._ended.wait(_STANDBY_PAUSE)
                return
            if self._behind():  # what a dead one left has waited long enough
                self._sync()
        seen = member.wait_begin()
        if self._behind():
            self._keep()
        elif not self._ended.is_set():
            self._membership.sleep(seen, _native.FOREVER)

    def _keep(self) -> None:
        """
        Wait for the interval and sync. Where it can, the core does so by itself, again and again as long as there is
        something: each turn of this thread takes the interpreter from the threads that put.
        """
        if self._seconds <= _KEPT_MAPPED and sync.IN_CORE:
            chunk = self._newest_synced()
            if chunk is not None:
                if self._keep_in_core(chunk) == _native.LEAD:
                    self._sync()
                return
        if not self._ended.wait(self._seconds):
            self._sync()

    def _keep_in_core(self, chunk: _native.Chunk) -> int:
        with self._lock:
            self._rolled = []
        try:
            interval_ns, due_ns = round(self._seconds * 1e9), self._syncer.mark_due_ns
            return self._membership.member.sync_keep(chunk, interval_ns, due_ns, self._shared)
        finally:
            with self._lock:
                _native.rolled(self._shared, None)
                self._rolled = None

    def rolled(self, chunk: _native.Chunk) -> None:
        """A producer of this process went on to that chunk: the core, if it keeps, may sync over to it without us."""
        with self._lock:
            if self._rolled is not None:
                self._rolled.append(chunk)
                _native.rolled(self._shared, chunk)

    def _newest_synced(self) -> _native.Chunk | None:
        """The chunk that was synced last, if it is the newest: then it is all that is to be synced."""
        chain = Chain(self._home, self._membership.member)
        with contextlib.suppress(FileNotFoundError, errors.Gone):
            for sequence, base in chain.names()[-1:]:
                if sequence == self._membership.control.durable_chunk():
                    return chain.open(sequence, base, writable=True, syncing=True)
        return None

    def _sync(self) -> None:
        with contextlib.suppress(errors.SyncPending):  # a claim is open; what lies before it is on the disk
            self._syncer.tick(time.monotonic_ns() + _PATIENCE_NS)

    def _behind(self) -> bool:
        return Chain(self._home, self._membership.member).next_index() > self._membership.control.durable()

    def stop(self) -> None:
        """Sync what is left, and let somebody else keep the interval."""
        self._ended.set()
        _native.nudge_keeper(self._shared)
        self._membership.control.wake()
        self._thread.join()
        with contextlib.suppress(errors.ShmqError, OSError):  # said before, or by whoever opens it next
            if self._keeps and self._behind():
                self._sync()
        self._role.free()
        self._membership.control.wake()
        self._home.close()
