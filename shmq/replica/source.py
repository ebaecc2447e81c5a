"""
The side that is followed: reads a living queue and says what the follower lacks, in the order in which it may be seen.

Only what the disk here has agreed to is said (R4): a power cut must leave no follower with more than its source. And a
chunk that is not sealed ends at a message, for a recovery here would cut what else stands behind that.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from shmq import _native, errors, queue, roles
from shmq._native import layout
from shmq.closable import Closable
from shmq.durability import Syncer
from shmq.replica import history, places
from shmq.replica.holding import PREFIX, Hold
from shmq.replica.known import know, refuse_another, refuse_reset, refuse_unlisted
from shmq.replica.leaving import beginning, data
from shmq.replica.pieces import (
    VERSION,
    Answer,
    Beside,
    Clock,
    Common,
    Hello,
    Mark,
    Places,
    Region,
    State,
    There,
    Together,
)
from shmq.session import Session
from shmq.storage import marks, sync
from shmq.storage.paths import CHUNKS, DEDUP, FORWARDED, LEDGER, QUEUE, chunk_name
from shmq.storage.stretches import opened

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_SMALL_FILES = (DEDUP, LEDGER, FORWARDED)
_LOOK_NS = 500_000_000
"""How often to look whether the journal has changed."""
_PLACES_NS = 1_000_000_000
"""How often to look where consumers stand."""
_PATIENCE_NS = 200_000_000
_LOOK_AT_NAMES = 0.005
"""Seconds between two looks at what others have finished, where producers wait for that."""


class Source(Closable):
    """A queue that is followed. A context manager; for one thread, but for `acknowledged`."""

    def __init__(self, path: str, name: str, keep: int | None = None) -> None:
        """
        Open it, and hold back what that follower, of that *name*, has not got; at most *keep* bytes of it.

        Raises:
            Busy: another one sends to a follower of that name.
            Fenced: it follows another queue itself, or is fenced.
            Mismatch: it is volatile, and on no disk.
        """
        self.name = name
        self._chunk: _native.DetachedChunk | None = None
        self._has_begun = False
        self._session = Session(path, create=False, trusted=True)
        self._queue = queue.Queue(self._session)
        try:
            if self._session.home.volatile:
                raise errors.Mismatch(f"cannot replicate {path}: it is volatile, and no disk has it")
            roles.refuse(self._session.home, "replicate")
            refuse_unlisted(self._session.home, name, keep)
            self._hold = Hold(self._session, self._queue, name, keep)
        except BaseException:
            self._session.close()
            raise
        joined = self._session.joined()
        self._home, self._joined, self._member, self._control = (
            self._session.home,
            joined,
            joined.member,
            joined.control,
        )
        self._chain = self._session.chain()
        self._syncer = Syncer(self._home, joined, here=True)
        self._marks = marks.followers_of(self._home)
        self._sequence = self._base = self._position = self._ordinal = 0
        self._begun = False
        self._known: dict[str, tuple[int, int]] = {}
        self._clock: Clock | None = None
        self._state: State | None = None
        self._told: State | None = None
        self._places: dict[str, bytes] | None = None
        self._told_places: dict[str, bytes] = {}
        self._state_at = self._places_at = self._looked_ns = self._placed_ns = 0
        self._acked = Mark(0, 0, 0)
        self._over = False

    def close(self) -> None:
        """Hold the follower's place, and let go of the queue."""
        self._leave_chunk()
        self._hold.close(self._acked.index, given_up=not self._has_begun)
        self._queue.close()

    # ---- beginning
    def hello(self) -> Hello:
        """What a follower has to know first."""
        content = self._home.read(self._home.fd, QUEUE, _native.QUEUE_BYTES)
        _, stored = _native.check_queue(content[: _native.PAGE_BYTES], self._home.path)
        made_ns = int.from_bytes(content[layout.queue_file.created_ns :][:8], "little")
        state = self._read_state()
        return Hello(VERSION, self.name, self._home.queue_id, bytes(stored), made_ns, state)

    def begin(self, answer: Answer) -> None:
        """
        Go on behind what the follower has.

        Raises:
            Mismatch, Gone: see `history.compare`; nothing was changed.
            Fenced: it was promoted, and this queue is fenced from now on; or puts wait for another one of its name.
        """
        self._clock = Clock(time.time_ns() - answer.clock_ns)  # at once: an answer is waited for, so it has just come
        self._leave_chunk()
        self._over = False
        first_live = self._control.first_live()
        if answer.promoted:
            self._fence()
        if self._marks is not None:
            refuse_another(self._home, self.name, answer, self._marks.mark(self.name))
        history.compare(self._home, first_live, answer)
        if self._marks is not None:
            know(self._home, self.name, answer.identity)
        self._has_begun = True
        self._known.clear()
        self._state = self._told = self._places = None
        self._told_places = {}
        self._looked_ns = self._placed_ns = 0
        if not answer.chain:
            first = self._chain.first()
            self._go_to(*(first or (first_live, self._home.read_journal().first_index)))
            return
        sequence, base, _ = answer.chain[-1]
        if answer.sealed:
            behind = self._chain.open(sequence, base).sealed()
            if behind is None:
                raise errors.Mismatch(f"cannot replicate {self._home.path}: chunk {sequence} is not sealed here")
            self._go_to(sequence + 1, behind)
        else:
            self._go_to(sequence, base)
            self._position, self._ordinal, self._begun = answer.position, answer.ordinal, True
        self.acknowledged(Mark(sequence, answer.position, base + answer.ordinal))

    def common(self, answer: Answer) -> Common:
        """
        What both have, where `begin` refused: all of it is on the disk here.

        Raises:
            SyncFailed: the disk refused.
            Fenced: puts waited for it; nothing that it has promised to have is set aside.
        """
        if self._marks is not None:
            refuse_reset(self._home, self.name, answer)
        self._syncer.sync()
        last = history.last_common(self._home, self._control.first_live(), answer)
        with contextlib.suppress(FileNotFoundError):  # retired meanwhile
            if last is not None:
                return Common(True, *last, history.sums_of(self._home, *last))
        return Common(False)

    def _fence(self) -> None:
        """
        A queue of our id was promoted: nobody puts here any more. Whether they have a chunk in common says nothing, for
        either may have retired all that both had: the id is what a follower had from here.
        """
        with self._home.admin():
            journal = self._home.read_journal()
            self._home.write_journal(journal._replace(flags=journal.flags | _native.JOURNAL_FENCED))
            self._control.shut_down(on=True)  # for those who have it open
        self._control.wake()
        self._control.room()
        roles.refuse(self._home, "replicate")

    def _go_to(self, sequence: int, base: int) -> None:
        self._leave_chunk()
        self._sequence, self._base, self._position, self._ordinal, self._begun = sequence, base, 0, 0, False

    def _leave_chunk(self) -> None:
        if self._chunk is not None:
            self._chunk.close()
            self._chunk = None

    # ---- what there is
    def pieces(self) -> Iterator[There]:
        """
        What the follower lacks and may have now; when that is all, come again after `wait`.

        Raises:
            Gone: what it lacks was retired, beyond what was to be kept.
            Corrupt: a message here is damaged; nothing behind it is sent.
            SyncFailed: the disk here refused.
        """
        if self._clock is not None:
            yield self._clock
            self._clock = None
        self._look_at_state()
        yield from self._news()
        while self._open():
            assert self._chunk is not None  # noqa: S101  # it was opened
            survey = self._chunk.survey(position=self._position, ordinal=self._ordinal)
            if survey.code == _native.WAITING and self._settle_the_dead():
                survey = self._chunk.survey(position=self._position, ordinal=self._ordinal)
            if survey.code == _native.CORRUPT and survey.position == self._position:
                raise errors.Corrupt(f"cannot replicate {self._chunk.path}: {survey.reason}; nothing behind it is sent")
            behind = self._sequence + 1, survey.gap_index or self._base + survey.stopped_ordinal
            rolls = survey.code == _native.ROLL and self._ends_for_good(survey, *behind)
            end, ordinal = survey.position, survey.ordinal
            if rolls:
                end, ordinal = survey.stopped + layout.SEAL_BYTES, survey.stopped_ordinal
            if end == self._position or not self._on_the_disk(self._base + survey.ordinal, rolls=rolls):
                break
            yield from self._news()
            last = None
            if rolls and survey.adoption:
                last = yield from self._adopted(survey.adoption, *behind)
            yield from self._region(self._chunk, end, whole=rolls)
            self._position, self._ordinal, self._begun = end, ordinal, True
            if last is not None:
                self._go_to(last[0], last[1])
                self._position, self._ordinal, self._begun = last[2], last[3], True
            elif rolls:
                self._go_to(*behind)
            else:
                break
        yield from self._told_state()

    def _open(self) -> bool:
        if self._chunk is None:
            try:
                name = chunk_name(self._base, self._sequence)
                self._chunk = opened(self._home, CHUNKS, name, self._sequence, self._base)
            except FileNotFoundError:
                if self._sequence < self._control.first_live():
                    raise errors.Gone(
                        f"cannot replicate {self._home.path} to {self.name}: what it lacks, from index {self._base} "
                        "on, was retired; move the follower away and begin anew, which a reset does",
                        self._home.read_journal().first_index,
                    ) from None
                return False
            self._position = self._position or self._chunk.first_position()
        return True

    def _settle_the_dead(self) -> bool:
        """What a dead process has claimed is padding, and keeps nobody waiting: whether there is nothing else."""
        with contextlib.suppress(FileNotFoundError):
            return self._chain.open(self._sequence, self._base).resolved().code != _native.WAITING
        return True

    def _on_the_disk(self, index: int, *, rolls: bool) -> bool:
        """Have all before *index* on the disk, and the end, where it *rolls*; what was surveyed before that."""
        try:
            if self._control.durable() < index:
                self._syncer.wait(None, index - 1, _native.monotonic_ns() + _PATIENCE_NS)
        except errors.SyncPending:
            return False
        return not rolls or self._sync_end()

    def _ends_for_good(self, survey: _native.Survey, sequence: int, base: int) -> bool:
        """
        Whether the chunk behind it is there. A recovery ends the last chunk anew, with a gap in the place of its SEAL:
        so that is sent only when it is the last one no more, whatever a power cut takes.
        """
        if survey.adoption:
            self._chain.finish()
        return self._chain.is_there(sequence, base) or self._control.first_live() > self._sequence

    def _sync_end(self) -> bool:
        """Have the SEAL on the disk, and that there is a chunk behind it; False where that has just been retired."""
        try:
            behind = self._chain.open(self._sequence, self._base).sealed()
            assert behind is not None  # noqa: S101  # it was surveyed
            for sequence, base in ((self._sequence + 1, behind), (self._sequence, self._base)):
                fd, _ = self._home.open(self._home.chunks, chunk_name(base, sequence), writable=False)
                with fd:
                    sync.data(fd, "chunk")
            sync.directory(self._home.chunks, "chunks")
        except FileNotFoundError:
            self._leave_chunk()  # the next look finds out what was retired, and says so
            return False
        except OSError as problem:
            self._control.fail_sync(failed=True)
            raise errors.SyncFailed(f"cannot sync {self._home.path}: {problem.strerror or problem}") from problem
        return True

    def _region(self, chunk: _native.DetachedChunk, end: int, *, whole: bool) -> Iterator[There]:
        if not self._begun:
            yield beginning(chunk, self._sequence, self._base, whole=whole)
        yield from data(chunk, self._position, end)
        yield Region(self._sequence, self._position, end, self._ordinal)

    def _adopted(self, adoption: int, sequence: int, base: int) -> Generator[There, None, tuple[int, int, int, int]]:
        """
        A set that was adopted, all of it, before the SEAL that has it seen. Its last chunk comes without its own SEAL,
        which may name another set. Returns where that goes on: (sequence, base, position, ordinal).
        """
        number = 0
        while True:
            with opened(self._home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk:
                survey = chunk.survey()
                if survey.code != _native.ROLL:
                    raise errors.Corrupt(f"cannot replicate {chunk.path}: {survey.reason or 'it is not sealed'}")
                last = survey.adoption != adoption
                end = (survey.gap_position or survey.stopped) if last else survey.stopped + layout.SEAL_BYTES
                yield beginning(chunk, number, 0, whole=True, adoption=adoption)
                yield from data(chunk, chunk.first_position(), end)
                yield Region(number, chunk.first_position(), end, 0)
            if last:
                yield Together(adoption)
                return sequence, base, end, survey.stopped_ordinal
            sequence, base, number = sequence + 1, base + survey.stopped_ordinal, number + 1

    # ---- what belongs to it
    def _news(self) -> Iterator[There]:
        """The small files that have changed: looked at behind the messages, since they are written before those."""
        for name in _SMALL_FILES:
            try:
                info = os.stat(name, dir_fd=self._home.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            seen = info.st_ino, info.st_mtime_ns
            if self._known.get(name) != seen:
                self._known[name] = seen
                with contextlib.suppress(FileNotFoundError):
                    yield Beside(name, self._home.read(self._home.fd, name, info.st_size + (1 << 20)))

    def _read_state(self) -> State:
        journal = self._home.read_journal()
        return State(
            journal.epoch,
            journal.ceiling,
            journal.first_live,
            journal.first_index,
            journal.max_messages,
            journal.max_bytes,
            journal.dropped,
            journal.flags,
            journal.changed,
        )

    def _look_at_state(self) -> None:
        now = _native.monotonic_ns()
        if self._state is None and now - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now
            state = self._read_state()
            if state != self._told:
                self._state, self._state_at = state, self._session.next_index
        if self._places is None and now - self._placed_ns >= _PLACES_NS:
            self._placed_ns = now
            found = places.files_of(self._home, PREFIX)
            if found != self._told_places:
                self._places, self._places_at = found, self._session.next_index

    def _told_state(self) -> Iterator[There]:
        """What the journal said, and where consumers stood, once what was there then has been sent."""
        if self._places is not None and self._base + self._ordinal >= self._places_at:
            found, before = self._places, self._told_places
            changed = [(name, content) for name, content in found.items() if before.get(name) != content]
            self._told_places, self._places = found, None
            yield Places(changed, list(found))
        if self._state is not None and self._base + self._ordinal >= self._state_at:
            self._told, self._state = self._state, None
            yield self._told

    # ---- waiting, and what the follower says
    def wait(self, seconds: float) -> None:
        """Sleep until something was put, or `wake` is called, or so long."""
        seen = self._member.wait_begin()
        if self._hold.keeps_waiting(self._acked.index):
            seconds = min(seconds, _LOOK_AT_NAMES)
        if not self._over and not self._more():
            self._joined.sleep(seen, _native.monotonic_ns() + int(seconds * 1e9))

    def _more(self) -> bool:
        if not self._open():
            return False
        assert self._chunk is not None  # noqa: S101  # it was opened
        survey = self._chunk.survey(position=self._position, ordinal=self._ordinal)
        return survey.code in (_native.ROLL, _native.CORRUPT) or survey.position > self._position

    def wake(self) -> None:
        """Have `wait` return; from another thread."""
        self._over = True
        self._control.wake()

    def caught_up(self) -> bool:
        """Whether the follower has all on its disk that was sent."""
        return self._acked.index >= self._base + self._ordinal

    def acknowledged(self, mark: Mark) -> None:
        """The follower has so much on its disk."""
        self._acked = mark
        if self._marks is not None:
            self._marks.store(self.name, mark.index)
            self._control.wake()  # behind it: whoever waits for it looks again

    def tend(self) -> None:
        """
        Now and then: what the follower has may go here, and it holds back no more than it may.

        Raises:
            Gone: it lacks more than is to be kept.
        """
        self._hold.tend(self._acked.index)
