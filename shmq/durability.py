"""
Having messages on the disk: the group commit, `Queue.sync`, and the thread that `interval` keeps.

Whoever syncs answers all who wait (cffi_build/src/durable/sync.c). The core syncs the newest chunk by itself, and, for
`interval`, the one behind it; what is rarer is done here, by the same leader: older chunks, names, the watermark, the
snapshots of consumers. The order of all this stands in docs/format.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings

from shmq import _native, errors, locks
from shmq._native.layout import SEAL_BYTES
from shmq.hints import TYPE_CHECKING
from shmq.storage import acks, marks, sync, warm, watermark
from shmq.storage.chain import Chain
from shmq.storage.paths import CHUNKS, CONTROL, QUEUE, chunk_name
from shmq.storage.stretches import opened
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.seat import Seat
    from shmq.storage.directory import Directory

MARK_NS = 1_000_000_000
"""The watermark is moved about this often while something is synced."""
_EVERYTHING = (1 << 64) - 1
_KEEPER_BYTE = 1 << 41  # of control.shmq: whoever keeps the interval holds a lock on it
_STANDBY_PAUSE = 0.005
_STANDBY_PATIENCE = 1.0
_PATIENCE_NS = 100_000_000
_TRIES = 100
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF)
"""What says nothing about the disk: it was not asked."""
_PAPERS_PAUSE = 0.008
"""How often to look whether a leader who was overtaken has done with what only one may write."""
_KEPT_MAPPED = 1.0
"""Longer intervals let their chunk go meanwhile."""


class Syncer:
    """
    One handle's way to the disk. Safe to share between threads.

    Attributes:
        mark_due_ns: monotonic; whoever syncs from then on moves the watermark too.
        is_left: whether syncing is left to others, and waiting too: what is not on the disk yet raises `SyncPending`.
    """

    def __init__(
        self, home: Directory, membership: Seat, *, here: bool = False, is_over: Callable[[], bool] | None = None
    ) -> None:
        """
        Nothing is synced yet. With *here*, no follower is waited for, whatever the queue's durability.

        *is_over* tells that the handle was closed, which ends a wait for followers; whoever closes it rings the bell.
        """
        self._home = home
        self._replicates = home.options.durability.kind == "replicated" and not here
        self._known: marks.Followers | None = None
        self._is_over = is_over
        self._membership = membership
        self._member = membership.member
        self._control = membership.control
        self._chain = Chain(home, membership.member)
        self._names = acks.Names(home)
        self.mark_due_ns = time.monotonic_ns() + MARK_NS
        self.is_left = False

    @property
    def built_in_until_ns(self) -> int:
        """Until when the built-in put may wait by itself: which knows of no follower."""
        return 0 if self._replicates else self.mark_due_ns

    def doubt(self) -> None:
        """Go by no word that cannot be true, of the control page or of a follower; for whoever opens the queue."""
        if self._replicates:
            marks.doubt(self._home, self._chain.next_index())
        leading = _native.new_leading()
        try:
            if self._lies() and self._member.try_lead(leading):
                self._forget()
        finally:
            self._member.stop_leading(leading)

    def _lies(self) -> bool:
        """Whether the control page says that more is on the disk than there is: somebody else's bytes are in it."""
        durable, chunk = self._control.durable(), self._control.durable_chunk()
        live = self._chain.names()
        return durable > self._chain.next_index() or chunk > (live[-1][0] if live else self._home.journal.first_live)

    def _forget(self) -> None:
        """As leader: go by the watermark, since the control page lies."""
        mark, live = watermark.read(self._home), self._chain.names()
        known = min(mark.next_index, self._chain.next_index()) if mark else 0
        self._control.reset_durable(known, live[0][0] if live else self._home.journal.first_live)

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

    def wait(self, chunk: _native.Chunk | None, index: int, deadline_ns: int, first: int | None = None) -> None:
        """
        Return when the message at *index*, in *chunk* if that is known, and all before it are on the disk.

        *first*: of a batch of which that is the last, its first, which an exception names.

        Raises:
            SyncPending: the deadline passed, a signal's handler raised, or the disk could not be asked.
            SyncFailed: the disk refused.
        """
        try:
            if self.is_left and not self._is_there(index):
                raise errors.SyncPending(self._late(index + 1))
            self._until(chunk, index + 1, deadline_ns)
            if self._replicates:
                self._await_followers(index + 1, deadline_ns)
        except (errors.SyncFailed, errors.SyncPending) as problem:
            problem.index = index if first is None else first
            raise
        except BaseException as problem:
            raise self.pending(index if first is None else first, problem) from problem

    def pending(self, index: int, problem: BaseException) -> errors.SyncPending:
        """What to raise when *problem* ended a wait for the message at *index*."""
        why = f"{type(problem).__name__}: {problem}".removesuffix(": ")
        return errors.SyncPending(
            f"message {index} is in {self._home.path}, and it is not known whether it is on the disk ({why}). Do not "
            "put it again; sync() waits for it",
            index,
        )

    def sync(self, deadline_ns: int = _native.FOREVER) -> None:
        """
        Return when everything put before is on the disk, and what was acknowledged; and on those of n followers, where
        puts wait for them.

        Raises:
            SyncPending: the deadline passed.
            SyncFailed: the disk refused.
            OSError: it could not be asked (no free descriptor, say). Nothing is known to be wrong: sync again.
        """
        end = _end_of(self._chain)
        self._until(None, end, deadline_ns, mark=True)
        if self._replicates:
            self._await_followers(min(end, end_of_messages(self._home)), deadline_ns)

    # ---- the disks of others
    def _followers(self) -> marks.Followers:
        if self._known is None:
            self._known = marks.Followers(self._home)
        return self._known

    def _is_there(self, index: int) -> bool:
        if self._control.durable() <= index:
            return False
        return not self._replicates or self._followers().sure() > index

    def _await_followers(self, want: int, deadline_ns: int) -> None:
        """Wait until everything below index *want*, which is on the disk here, is on those of n followers."""
        try:
            followers = self._followers()
        except OSError:
            if self._was_closed():  # and its directory with it
                raise errors.SyncPending(self._short_of(want, None, "before this handle was closed")) from None
            raise
        while followers.sure() < want:
            seen = self._member.wait_begin()
            if followers.sure() >= want:
                return
            if self._control.is_shut_down() and self._home.read_journal().flags & _native.JOURNAL_FENCED:
                raise errors.SyncPending(
                    f"message {want - 1} is in {self._home.path}, which was fenced before enough followers had it: a "
                    "follower was promoted. Look there whether it has it before it is put again"
                )
            if self._was_closed():
                raise errors.SyncPending(self._short_of(want, followers, "before this handle was closed"))
            if self._membership.sleep(seen, deadline_ns) == _native.TIMEOUT:
                raise errors.SyncPending(self._short_of(want, followers, "in time"))

    def _was_closed(self) -> bool:
        return self._is_over is not None and self._is_over()

    def _short_of(self, want: int, followers: marks.Followers | None, when: str) -> str:
        told = ""
        if followers is not None:
            told = "; all is there: " + ", ".join(f"{name} before {followers.mark(name):,}" for name in followers.names)
        return (
            f"message {want - 1} is in {self._home.path} and on the disk here, and was not on those of "
            f"{_followers(self._home.options.durability.n)} {when}{told}. Do not put it again; sync() waits for it"
        )

    def mark(self) -> None:
        """As leader: sync what is settled, and move the watermark over it; unless somebody else is at the watermark."""
        papers = _native.new_leading()
        try:
            if self._member.take_papers(papers):
                self._sync_puts(0, mark=True)
        finally:
            self._member.give_papers(papers)

    def tick(self, deadline_ns: int) -> None:
        """
        The same without the acknowledgements, and the watermark only now and then.

        Raises:
            SyncPending: a claim was open all the time; what lies before it is on the disk.
            SyncFailed: the disk refused.
        """
        self._until(None, _end_of(self._chain), deadline_ns)

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
                    _, written = self._commit(mark=False, own=name)
                    self._member.stop_leading(leading)
                    if not written:
                        time.sleep(_PAPERS_PAUSE)
                elif code == _native.SYNC_FAILED:
                    self._note_failure()
                    raise errors.SyncFailed(self._frozen())
                elif code != _native.SIGNAL:
                    raise _native.error(code, f"cannot sync {self._home.path}")
        finally:
            self._member.stop_leading(leading)

    def _until(self, chunk: _native.Chunk | None, want: int, deadline_ns: int, *, mark: bool = False) -> None:
        """Wait until everything below index *want* is on the disk, or do it; with the watermark and all, for *mark*."""
        leading = _native.new_leading()
        seen = None
        try:
            while mark or self._control.durable() < want:
                here = None if self._mark_is_due() or not sync.IN_CORE else chunk
                code = self._member.sync_wait(here, _EVERYTHING if mark else want, deadline_ns, leading)
                if code == _native.LEAD:
                    progress, written = self._commit(mark=mark)
                    self._member.stop_leading(leading)
                    if mark and not written:
                        time.sleep(_PAPERS_PAUSE)
                        continue
                    mark = False
                    code = _native.OK if progress else _native.WAITING
                if self._control.durable() >= want and not (mark and code == _native.SYNC_FAILED):
                    if mark:
                        self.doubt()  # nothing was synced: it is told that all that can ever be put is on the disk
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
            self._member.stop_leading(leading)

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
    def _commit(self, *, mark: bool, own: str | None = None) -> tuple[bool, bool]:
        """
        Sync everything that is resolved, and what was acknowledged by those who wait, name *own* in any case.

        Returns:
            Whether more is durable than before; and whether what is kept beside the messages was written, if it had to
            be: not while a leader who was overtaken is still at it.
        """
        if self._control.sync_failed():
            raise errors.SyncFailed(self._frozen())
        before = self._control.durable()
        mark = mark or self._mark_is_due()
        papers = _native.new_leading()
        try:
            with contextlib.ExitStack() as stack:
                asked = None
                wanted = bool(self._member.acks_begin()) or own is not None or mark
                if wanted and self._member.take_papers(papers):
                    asked = stack.enter_context(self._names.opened(everything=mark, own=own))
                    with self._at_the_disk():
                        asked.write()
                self._sync_puts(before, mark=mark and asked is not None)
                with self._at_the_disk():
                    if asked is not None:
                        asked.sync()
                if mark:
                    self.mark_due_ns = time.monotonic_ns() + MARK_NS
        finally:
            self._member.give_papers(papers)
        return self._control.durable() > before, asked is not None or not wanted

    def _sync_puts(self, before: int, *, mark: bool) -> None:
        """Sync everything that is resolved, if there is more than *before*; for *mark* always, with the watermark."""
        if mark and self._lies():
            self._forget()
        last = self._sync_chunks() if mark or self._chain.next_index() > before else None
        if last is not None:
            self._member.publish_durable(last[1].next_index, last[0].sequence, last[1].position)
        if mark and last is not None:
            with self._at_the_disk():
                watermark.write(self._home, last[0].sequence, last[1].position, last[1].next_index)

    @contextlib.contextmanager
    def _at_the_disk(self) -> Iterator[None]:
        """What fails in here is the disk's refusal, unless this process had nothing to ask it with."""
        try:
            yield
        except OSError as problem:
            if problem.errno in _OURS:
                raise
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
                there = self._chain.names()
                if there and there[-1][0] < self._control.durable_chunk():
                    self._forget()
                live = [name for name in there if name[0] >= self._control.durable_chunk()]
                return self._sync_from(live[0]) if live else None
        first = self._chain.first_index()
        raise errors.Gone(
            f"cannot sync {self._home.path}: its chunks went {_TRIES} times while they were opened; the first index "
            f"still there is {first}",
            first,
        )

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
            warm.settle()  # or what is left here stays open until somebody rolls

    def _sync_chunk(self, chunk: _native.Chunk, found: _native.Resolved) -> bool:
        """
        Sync all of it; but of the one where the last sync ended, only what lies behind that, as the core does.

        Returns:
            Whether it was that one, so that its name is on the disk, too.
        """
        begin, end = self._control.durable_at(chunk.sequence), found.position + SEAL_BYTES
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


def mark_at_close(home: Directory, membership: Seat) -> None:
    """
    Have the watermark cover what is on the disk, when a process lets go of a queue: below it, damage is told from what
    a power cut took. Whoever leads at the moment does so itself when it closes. A disk that refuses was said before,
    and a queue that was deleted meanwhile needs no mark.
    """
    leading = _native.new_leading()
    try:
        with contextlib.suppress(errors.ShmqError, OSError):
            if membership.control.sync_failed() or not membership.member.try_lead(leading):
                return
            mark = watermark.read(home)
            if mark is None or mark.next_index < membership.control.durable():
                Syncer(home, membership).mark()
    finally:
        membership.member.stop_leading(leading)


def _end_of(chain: Chain) -> int:
    """The index behind what must be on the disk: 0 where there is no chunk, whatever index the next put gets."""
    return chain.next_index() if chain.names() else 0


def _followers(count: int) -> str:
    return "1 follower" if count == 1 else f"{count} followers"


def end_of_messages(home: Directory) -> int:
    """The index behind the last message: what a follower has that has all, for of padding it is told only later."""
    while True:
        names = home.chunk_names()
        if not names:
            return 0
        sequence, base = names[-1]
        with (
            contextlib.suppress(FileNotFoundError),
            opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk,
        ):
            return base + chunk.survey().ordinal


def verify(home: Directory, membership: Seat) -> bool:
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
                with _native.Fd.of(os.dup, chunk.fd) as fd:
                    del chunk  # what is mapped stays in memory
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
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

    Whoever holds the lock does: it sleeps until something is put, waits t, and syncs. The others try to get the lock
    whenever somebody joins, leaves or dies, and look twice a second: who keeps may be stopped.
    """

    def __init__(self, home: Directory, membership: Seat, seconds: float) -> None:
        """It begins with `start`."""
        self._home = home
        self._membership = membership
        self._seconds = seconds
        self._syncer = Syncer(home, membership)
        self._role = _native.Lock(home.open(home.fd, CONTROL, writable=True)[0])
        self._shared = _native.new_keeper(home.chunks)
        self._rolled: list[_native.Chunk] | None = None  # while the core keeps: what it was told of must live
        self._lock = locks.Lock()
        self._keeps = False
        self._stood = 0, time.monotonic()  # in standby: how far all was on the disk, and since when
        self._thread = Worker(self._run, "shmq-interval")

    def start(self) -> None:
        """Begin, until `stop`."""
        self._home.retain(self)
        self._thread.start()

    def _run(self) -> None:
        while not self._thread.is_ending():
            try:
                self._turn()
            except errors.SyncFailed as problem:
                warnings.warn(str(problem), RuntimeWarning, stacklevel=1)
                return
            except (OSError, errors.ShmqError) as problem:  # what is in the way may go: try again
                if not self._thread.pause(max(self._seconds, 1.0)):
                    warnings.warn(f"cannot sync {self._home.path}: {problem}", RuntimeWarning, stacklevel=1)

    def _turn(self) -> None:
        member, control = self._membership.member, self._membership.control
        seen = control.bell()
        if not self._keeps:
            self._keeps = self._role.take(_KEEPER_BYTE)
            if not self._keeps:
                self._membership.sleep(seen, _native.FOREVER)
                self._thread.pause(_STANDBY_PAUSE)
                self._stand_in()
                return
            if self._behind():  # what a dead one left has waited long enough
                self._sync()
        seen = member.wait_begin()
        if self._behind():
            self._keep()
        elif not self._thread.is_ending():
            self._membership.sleep(seen, _native.FOREVER)

    def _stand_in(self) -> None:
        """Sync what has waited for twice as long as it should; not before a second."""
        durable, now = self._membership.control.durable(), time.monotonic()
        if durable != self._stood[0] or not self._behind():
            self._stood = durable, now
        elif now - self._stood[1] >= max(2 * self._seconds, _STANDBY_PATIENCE):
            self._sync()

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
        if not self._thread.pause(self._seconds):
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
        return _end_of(Chain(self._home, self._membership.member)) > self._membership.control.durable()

    def stop(self) -> None:
        """Sync what is left, and let somebody else keep the interval."""
        self._thread.end(self._wake)
        with contextlib.suppress(errors.ShmqError, OSError):  # said before, or by whoever opens it next
            if self._keeps and self._behind():
                self._sync()
        self._role.free()
        self._membership.control.wake()
        self._home.close(self)

    def _wake(self) -> None:
        _native.nudge_keeper(self._shared)
        self._membership.control.wake()
