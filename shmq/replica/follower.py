"""
The side that follows: takes what comes, checks it, has it seen by readers, and has it on the disk.

What it has is where its chunks end: there is no other record of that, so killed anywhere it goes on with what is whole.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.closable import Closable
from shmq.replica import along, history
from shmq.replica.arriving import Checked, Growing, Whole, end_of
from shmq.replica.pieces import (
    VERSION,
    Answer,
    Begin,
    Beside,
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
from shmq.session import Session
from shmq.storage import ledger, staging, sync, watermark
from shmq.storage.paths import CONTROL, chunk_name
from shmq.storage.records import Manifest

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

LOCK_BYTE = (1 << 41) + 2
"""Of control.shmq: whoever writes to a follower, or promotes it, holds a lock on it."""
MARK_NS = 1_000_000_000
"""The watermark is moved about this often."""


def locked(session: Session) -> _native.Lock:
    """
    Hold what only one may: to write to a follower, or to promote it.

    Raises:
        Busy: somebody does.
    """
    home = session.home
    lock = _native.Lock(home.open(home.fd, CONTROL, writable=True)[0])
    if not lock.take(LOCK_BYTE):
        lock.free()
        raise errors.Busy(f"cannot replicate to {home.path}: somebody else does, or promotes it")
    return lock


class _Set:
    """Chunks that were adopted together, as they come."""

    def __init__(self, home: Directory, adoption: int) -> None:
        self.staged = staging.Set(home, adoption)
        self.manifest = Manifest(b"", 0, [], [], [], [])


class Follower(Closable):
    """A queue that follows another one. A context manager, for one thread."""

    def __init__(self, path: str) -> None:
        """It is opened by `answer`."""
        self.path = os.path.abspath(path)
        self._session: Session | None = None
        self._lock: _native.Lock | None = None
        self._whole: Whole | None = None
        self._growing: Growing | None = None
        self._sets: dict[int, _Set] = {}
        self._aside: _Set | None = None
        self._last: tuple[int, int, int, int] | None = None
        """(sequence, base, position, ordinal) of the end of all that is seen."""
        self._names_dirty = False
        self._marked_ns = 0
        self._took = False
        self._flushed: tuple[int, int, int] | None = None

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
            Busy: somebody else writes to it.
        """
        if hello.version != VERSION:
            raise errors.Mismatch(f"cannot follow into {self.path}: version {hello.version} is spoken, {VERSION} here")
        self._drop_unfinished()
        session = self._session or self._open(hello)
        home = session.home
        if home.queue_id != hello.queue_id:
            raise errors.Mismatch(f"cannot follow into {self.path}: it is another queue; nothing was changed")
        journal = home.read_journal()
        if journal.flags & _native.JOURNAL_PROMOTED:
            return Answer(True, history.ids(home, 0), 0, 0, False, 0)
        if not journal.flags & _native.JOURNAL_FOLLOWER:
            raise errors.Unsafe(f"cannot follow into {self.path}: it is a queue of its own; nothing was changed")
        if self._lock is None:
            self._lock = locked(session)
            self._settle()
        return self._told()

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
        for each in self._sets.values():
            each.staged.forget()
            each.staged.close()
        self._sets.clear()
        self._aside = None

    def _told(self) -> Answer:
        self.flush()
        home = self.session.home
        chain = history.ids(home, home.read_journal().first_live)
        if self._last is None:
            return Answer(False, [], 0, 0, False, 0)
        sequence, base, *_ = self._last
        position, ordinal, sealed = end_of(home, sequence, base)
        digest = history.digest_of(home, sequence, base, position)
        return Answer(False, chain, position, ordinal, sealed, digest)

    # ---- what comes
    def take(self, piece: There) -> None:
        """
        Go on with what came.

        Raises:
            Corrupt: it is not whole, or does not belong there; nothing of it is seen.
            DiskFull: there is no room for it. It can come again.
            OSError: the disk refused.
        """
        self._took = True
        if isinstance(piece, Data):
            self._take_data(piece)
        elif isinstance(piece, Region):
            self._take_region(piece)
        elif isinstance(piece, Begin):
            self._begin(piece)
        elif isinstance(piece, Together):
            self._together(piece)
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
            self._begin_aside(begin)
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

    def _begin_aside(self, begin: Begin) -> None:
        home = self.session.home
        there = self._sets.get(begin.adoption)
        if there is None:
            there = _Set(home, begin.adoption)
            if not there.staged.begin():  # left by whoever was killed
                with home.admin():
                    ledger.fold(home, self.session.chain())
                there = _Set(home, begin.adoption)
                if not there.staged.begin():
                    raise errors.Busy(f"cannot go on with {self.path}: somebody holds {there.staged.path}")
            self._sets[begin.adoption] = there
            there.staged.make_room()
        if begin.sequence != len(there.manifest.files):
            raise errors.Corrupt(f"cannot go on with {self.path}: chunk {begin.sequence} of a set came out of turn")
        self._aside = there
        self._whole = Whole(home, there.staged.fd, begin)

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
                    self._add_to_set(whole, found)
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
    def _add_to_set(self, whole: Whole, found: Checked) -> None:
        there = self._aside
        assert there is not None  # noqa: S101  # it began
        name = f"{whole.begin.sequence:08x}.chunk"
        whole.name(name)
        manifest = there.manifest
        manifest.files.append(name)
        manifest.chunk_ids.append(whole.begin.chunk_id)
        manifest.counts.append(found.ordinal)
        manifest.sizes.append(whole.begin.size)

    def _together(self, together: Together) -> None:
        there = self._sets.get(together.adoption)
        if there is None:
            raise errors.Corrupt(f"cannot go on with {self.path}: a set came without chunks")
        sync.directory(there.staged.fd, "set")
        there.staged.commit_manifest(there.manifest)

    def _finish_adoption(self, found: Checked) -> None:
        """The SEAL that names a set is there: have its chunks where they belong."""
        session = self.session
        sequence, base, *_ = self._last or (0, 0)
        if self._sets.get(found.adoption) is None:
            raise errors.Corrupt(f"cannot go on with {self.path}: a set is named that has not come")
        self.flush()
        chunk = session.chain().open(sequence, base)
        control = session.joined().control
        staging.finish(session.home, control, chunk, found.adoption, found.behind)
        del chunk
        self._sets.pop(found.adoption).staged.close()
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
        if self._growing is not None:
            self._growing.sync()
        if self._names_dirty:
            self._sync_names()
        self._flushed = sequence, position, base + ordinal
        self._publish(sequence, position, base + ordinal)
        now = _native.monotonic_ns()
        if mark or now - self._marked_ns >= MARK_NS:
            self._marked_ns = now
            watermark.write(self.session.home, sequence, position, base + ordinal)
        return Mark(sequence, position, base + ordinal)

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
