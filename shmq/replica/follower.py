"""
The side that follows: takes what comes, checks it, has it seen by readers, and has it on the disk.

What it has is where its chunks end: there is no other record of that, so killed anywhere it goes on with what is whole.
"""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors, roles
from shmq.closable import Closable
from shmq.replica import admission, along, aside, history
from shmq.replica.arriving import Checked, Growing, Whole, end_of
from shmq.replica.lock import locked
from shmq.replica.pieces import (
    VERSION,
    Answer,
    Begin,
    Beside,
    Clock,
    Common,
    Data,
    Hello,
    Mark,
    Places,
    Region,
    State,
    There,
    Together,
)
from shmq.replica.seed import seed
from shmq.replica.sets import Sets
from shmq.session import Session
from shmq.storage import ledger, staging, sync, watermark
from shmq.storage.paths import chunk_name

MARK_NS = 1_000_000_000
"""The watermark is moved about this often."""


class Follower(Closable):
    """A queue that follows another one. A context manager, for one thread."""

    def __init__(self, path: str, *, reset: bool = False, rejoin: bool = False) -> None:
        """
        It is opened by `answer`.

        Args:
            path: its directory.
            reset: what it has and the other one has not is set aside, once.
            rejoin: the same; and a queue that is fenced may be it, which follows from then on.
        """
        self.path = os.path.abspath(path)
        self._may_reset, self._rejoins = reset or rejoin, rejoin
        self.was_reset = False
        self._hello: Hello | None = None
        self._session: Session | None = None
        self._lock: _native.Lock | None = None
        self._whole: Whole | None = None
        self._growing: Growing | None = None
        self._sets = Sets()
        self._last: tuple[int, int, int, int] | None = None
        """(sequence, base, position, ordinal) of the end of all that is seen."""
        self._names_dirty = False
        self._marked_ns = 0
        self._took = self._has_begun = False
        self._flushed: tuple[int, int, int] | None = None
        self._identity = ""
        """Which follower it is, where puts wait for it."""

    def close(self) -> None:
        """Have what came on the disk, and let go of it."""
        try:
            if self._session is not None and self._lock is not None:
                with contextlib.suppress(OSError, errors.ShmqError):
                    self.flush(mark=self._took)
        finally:
            self._drop_unfinished()
            self._leave_growing()
            if self._lock is not None:
                self._lock.free()
            if self._session is not None:
                self._session.close()
            self._lock = self._session = None

    # ---- beginning
    def answer(self, hello: Hello) -> Answer:
        """
        Open the queue, or make it if there is none, and tell what is in it.

        Raises:
            Mismatch: it is another queue, or of another version of this protocol.
            Unsafe: it is no follower: somebody puts there.
            Fenced: it is fenced, and is not to follow; or it takes nothing of that one, see `fence`.
            Busy: somebody else writes to it.
        """
        self._hello = hello
        if hello.version != VERSION:
            raise errors.Mismatch(f"cannot follow into {self.path}: version {hello.version} is spoken, {VERSION} here")
        self._drop_unfinished()
        session = self._session or self._open(hello)
        home = session.home
        if home.queue_id != hello.queue_id:
            raise errors.Mismatch(f"cannot follow into {self.path}: it is another queue; nothing was changed")
        role = roles.of(home.read_journal())
        admission.admit(home, hello, role)
        if role == "promoted":
            return Answer(True, history.ids(home, 0), 0, 0, False, 0)
        if role == "fenced":
            return self._told_of_fenced(session)
        if role != "follower":
            raise errors.Unsafe(f"cannot follow into {self.path}: it is a queue of its own; nothing was changed")
        if self._lock is None:
            self._lock = locked(session, "replicate to")
            admission.admit(home, hello, role)  # fenced meanwhile, perhaps
            self._settle()
        self._identity = admission.begin_era(home, hello)
        return self._told()

    def _told_of_fenced(self, session: Session) -> Answer:
        if not self._rejoins:
            raise errors.Fenced(
                f"cannot follow into {self.path}: it is fenced, since a queue that followed it was promoted. With "
                "rejoin it follows, and what only it has is set aside; nothing was changed"
            )
        chain = history.ids(session.home, session.home.read_journal().first_live)
        return Answer(False, chain, 0, 0, False, 0, fenced=True, reset=True, clock_ns=time.time_ns())

    def reset(self, common: Common) -> Answer:
        """
        Set aside what is here and not in the other queue, and tell what is left.

        Raises:
            Unsafe: nobody asked for that here.
            Busy: somebody has it open.
            Corrupt: what is to stay is damaged.
        """
        hello = self._hello
        if hello is None or not self._may_reset:
            raise errors.Unsafe(f"cannot set aside what is in {self.path}: nobody asked for that here")
        self.close()
        self._last = self._flushed = None
        self._took = self._has_begun = self._names_dirty = False
        aside.tell(aside.set_aside(self.path, common))
        self._may_reset = self._rejoins = False
        self.was_reset = True
        return self.answer(hello)

    def _open(self, hello: Hello) -> Session:
        try:
            self._session = Session(self.path, create=False, trusted=True)
        except errors.NotFound:
            seed(self.path, hello)
            self._session = Session(self.path, create=False, trusted=True)
        return self._session

    @property
    def session(self) -> Session:
        """The queue, open."""
        assert self._session is not None  # noqa: S101  # `answer` was called
        return self._session

    def _settle(self) -> None:
        """Begin where the last one ended, however that was."""
        session = self.session
        with session.home.admin():
            ledger.fold(session.home, session.chain())
        for sequence, base in session.chain().names()[-1:]:  # read alone: it may come to nothing
            self._last = sequence, base, *end_of(session.home, sequence, base)[:2]
            session.joined().control.enter(sequence, base)
            if session.home.made_with.durability.kind == "replicated":
                self._have_on_disk(sequence, base)

    def _have_on_disk(self, sequence: int, base: int) -> None:
        """What is there may be in memory alone, and is about to be said to be on the disk, which counts."""
        home = self.session.home
        fd, _ = home.open(home.chunks, chunk_name(base, sequence), writable=False)
        with fd:
            sync.data(fd, "chunk")
        self._sync_names()

    def _go_on(self, sequence: int, base: int) -> Growing:
        self._leave_growing()
        self._growing = growing = Growing(self.session.home, self.session.joined().member, sequence, base)
        self.session.joined().control.enter(sequence, base)
        self._last = sequence, base, growing.position, growing.ordinal
        return growing

    def _leave_growing(self) -> None:
        if self._growing is not None:
            self._growing.close()
            self._growing = None

    def _drop_unfinished(self) -> None:
        """What has come of something that is not seen yet will come again."""
        if self._whole is not None:
            self._whole.close()
            self._whole = None
        self._sets.forget()

    def _told(self) -> Answer:
        self.flush()
        home = self.session.home
        chain = history.ids(home, home.read_journal().first_live)
        if self._last is None:
            return Answer(False, [], 0, 0, False, 0, False, self._may_reset, time.time_ns(), self._identity)
        sequence, base, *_ = self._last
        position, ordinal, sealed = end_of(home, sequence, base)
        digest = history.digest_of(home, sequence, base, position)
        may = self._may_reset
        return Answer(False, chain, position, ordinal, sealed, digest, False, may, time.time_ns(), self._identity)

    # ---- what comes
    def take(self, piece: There) -> None:
        """
        Go on with what came.

        Raises:
            Corrupt: it is not whole, or does not belong there; nothing of it is seen.
            DiskFull: there is no room for it. It can come again.
            OSError: the disk refused.
        """
        if not self._took:  # the other one has said that it may follow
            self._took = True
            self._has_begun = admission.take_part(self.session.home, self._flushed[2] if self._flushed else 0)
        if isinstance(piece, Data):
            self._take_data(piece)
        elif isinstance(piece, Region):
            self._take_region(piece)
        elif isinstance(piece, Begin):
            self._begin(piece)
        elif isinstance(piece, Together):
            self._sets.commit(self.session.home, piece.adoption)
        elif isinstance(piece, Clock):
            along.take_clock(self.session, piece)
        elif isinstance(piece, State):
            along.take_state(self.session, piece)
        elif isinstance(piece, Beside):
            along.take_beside(self.session, piece)
        elif isinstance(piece, Places):
            self.flush()  # what was acknowledged is there
            along.take_places(self.session, piece)
        else:
            raise errors.Corrupt(f"cannot go on with {self.path}: a second hello came")

    def _begin(self, begin: Begin) -> None:
        home = self.session.home
        if self._whole is not None:
            raise errors.Corrupt(f"cannot go on with {self.path}: a chunk begins before the last one has come")
        if begin.adoption:
            self._whole = self._sets.begin(self.session, begin)
            return
        self._refuse_strange(begin)
        self._whole = Whole(home, home.chunks, begin)
        if not begin.whole:
            whole, self._whole = self._whole, None
            with whole:
                self._before_a_name()
                whole.sync()
                whole.name(chunk_name(begin.base, begin.sequence))
            self._named(begin)
            self._go_on(begin.sequence, begin.base)

    def _refuse_strange(self, begin: Begin) -> None:
        """A chunk follows the last one, which is sealed; with the first one, the queue begins."""
        if self._last is None:
            self._begin_at(begin.sequence, begin.base)
            return
        sequence, base, *_ = self._last
        wanted = sequence + 1, self.session.chain().open(sequence, base).sealed()
        if (begin.sequence, begin.base) != wanted:
            raise errors.Corrupt(
                f"cannot go on with {self.path}: chunk {begin.sequence} at index {begin.base} came, and {wanted[0]} "
                f"at {wanted[1]} is next"
            )

    def _begin_at(self, sequence: int, base: int) -> None:
        """Where the source begins may have changed as long as nothing was put there, by a recovery or a purge."""
        home = self.session.home
        with home.admin():
            journal = home.read_journal()
            if (journal.first_live, journal.first_index) != (sequence, base):
                home.write_journal(journal._replace(first_live=sequence, first_index=base))
        self.session.joined().control.raise_first_live(sequence)

    def _take_data(self, data: Data) -> None:
        if self._whole is not None:
            self._whole.take(data)
        else:
            self._grows().take(data)

    def _grows(self) -> Growing:
        """The last chunk, to be written on."""
        if self._growing is None:
            if self._last is None:
                raise errors.Corrupt(f"cannot go on with {self.path}: bytes came before their chunk")
            return self._go_on(*self._last[:2])
        return self._growing

    def _take_region(self, region: Region) -> None:
        whole = self._whole
        if whole is not None and region.sequence == whole.begin.sequence:
            found, begin = whole.finish(region), whole.begin
            self._whole = None
            with whole:
                if begin.adoption:
                    self._sets.add(whole, found)
                    return
                if not found.sealed:
                    raise errors.Corrupt(f"cannot go on with {self.path}: a chunk came whole that is not sealed")
                self._before_a_name()
                self._leave_growing()
                whole.name(chunk_name(begin.base, begin.sequence))
            self._named(begin)
            self._last = begin.sequence, begin.base, region.end, found.ordinal
        elif region.sequence == (growing := self._grows()).sequence:
            found = growing.publish(region)
            self._last = growing.sequence, growing.base, growing.position, growing.ordinal
            if found.sealed:
                growing.finish()
        else:
            raise errors.Corrupt(f"cannot go on with {self.path}: chunk {region.sequence} has not begun")
        if found.adoption:
            self._finish_adoption(found)

    def _before_a_name(self) -> None:
        """What comes before a chunk is on the disk before that has a name."""
        if self._growing is not None:
            self._growing.sync()

    def _named(self, begin: Begin) -> None:
        self._names_dirty = True
        session, journal = self.session, self.session.home.journal
        if begin.epoch > journal.epoch:
            with session.home.admin():
                session.home.write_journal(session.home.read_journal()._replace(epoch=begin.epoch))
        control = session.joined().control
        control.enter(begin.sequence, begin.base)
        control.wake()

    # ---- sets
    def _finish_adoption(self, found: Checked) -> None:
        """The SEAL that names a set is there: have its chunks where they belong."""
        session = self.session
        sequence, base, *_ = self._last or (0, 0)
        self._sets.refuse_unknown(session.home, found.adoption)
        self.flush()
        chunk = session.chain().open(sequence, base)
        control = session.joined().control
        staging.finish(session.home, control, chunk, found.adoption, found.behind)
        del chunk
        self._sets.finish(found.adoption)
        self._names_dirty = True
        self._leave_growing()
        with session.home.admin():
            ledger.fold(session.home, session.chain())
        control.wake()
        sequence, base = session.chain().names()[-1]
        self._last = sequence, base, *end_of(session.home, sequence, base)[:2]

    # ---- the disk
    def flush(self, *, mark: bool = False) -> Mark | None:
        """
        Have all that is seen on the disk, and tell how far that is; None while there is nothing. With *mark*, the
        watermark too.

        Raises:
            OSError: the disk refused.
        """
        if self._last is None:
            return None
        sequence, base, position, ordinal = self._last
        if self._flushed == (sequence, position, base + ordinal) and not mark:
            return Mark(*self._flushed)
        try:
            if self._growing is not None:
                self._growing.sync()
            if self._names_dirty:
                self._sync_names()
        except OSError:
            self._note_failure()
            raise
        self._flushed = sequence, position, base + ordinal
        self._publish(sequence, position, base + ordinal)
        if self._took and not self._has_begun:  # before that is a mark
            self._has_begun = admission.take_part(self.session.home, base + ordinal)
        now = _native.monotonic_ns()
        if mark or now - self._marked_ns >= MARK_NS:
            self._marked_ns = now
            watermark.write(self.session.home, sequence, position, base + ordinal)
        return Mark(sequence, position, base + ordinal)

    def _note_failure(self) -> None:
        """Have whoever opens it next write all of it once more, and look at it."""
        with contextlib.suppress(errors.Busy, OSError), self.session.home.admin(timeout=0):
            journal = self.session.home.read_journal()
            if not journal.flags & _native.JOURNAL_SYNC_FAILED:
                self.session.home.write_journal(journal._replace(flags=journal.flags | _native.JOURNAL_SYNC_FAILED))

    def _sync_names(self) -> None:
        sync.directory(self.session.home.chunks, "chunks")
        self._names_dirty = False

    def _publish(self, sequence: int, position: int, index: int) -> None:
        """Have everybody here know how far the disk agrees."""
        member = self.session.joined().member
        leading = _native.new_leading()
        try:
            if member.try_lead(leading):
                member.publish_durable(index, sequence, position)
        finally:
            member.stop_leading(leading)
