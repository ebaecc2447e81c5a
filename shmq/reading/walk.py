"""
Going from message to message through the chain, and waiting at its end.

Consumers and readers are both a Walk with something around it. A walk is moved under its owner's lock; only the
built-ins of other threads may read on meanwhile.
"""

from __future__ import annotations

import contextlib
import time
import weakref

from shmq import _native, errors, later
from shmq.deadlines import sooner
from shmq.hints import TYPE_CHECKING
from shmq.patience import Patience
from shmq.storage import space, warm
from shmq.storage.chain import Chain
from shmq.storage.paths import chunk_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmq.membership import Membership
    from shmq.storage.directory import Directory

_READ_ONLY_PAUSE = 0.002


class Walk:
    """A place in the chain, and the way on from it."""

    def __init__(
        self,
        home: Directory,
        membership: Membership,
        checkpoint: _native.Checkpoint | None = None,
        *,
        patience: Patience | None = None,
        wants: _native.Matcher | None = None,
    ) -> None:
        """Nowhere yet: `seek` first."""
        self._patience = Patience() if patience is None else patience
        self.home = home
        self.membership = membership
        self.chain = Chain(home, membership.member)
        self.chunk: _native.Chunk | None = None
        self.reader: Any = None
        self._led: Any = None  # the reader that the built-ins were given
        self.which = _native.new_which()
        """Record and index of what the last `look` or `glance` found. The reader may have been moved on since."""
        self._head: Callable[[], _native.End | None] = lambda: None
        self._checkpoint = checkpoint
        self._wants = wants
        self.upto: int | None = None
        """Where there is no more passing of what does not match."""
        self._start = 0
        self._left = False
        """Whether a chunk that was passed may still be there to be retired."""
        self.skip_corrupt = False
        self.skipped = 0
        """Indexes passed over because what was there is damaged."""

    def seek(self, index: int) -> None:
        """
        Stand before *index*: the next message is the first one at or behind it.

        Where that was retired, a consumer's next look says Gone, once, and it goes on at the first index still there;
        unless all names had finished it, or it is no consumer: then it just goes on there.
        """
        self.stop()
        vars(self).update(chunk=None, _start=index)

    def resume(self, sequence: int, position: int, ordinal: int, index: int) -> bool:
        """Stand at a remembered place, if it is still what it was; the first message at or behind *index* is next."""
        for _, base in self.chain.named(sequence):
            try:
                chunk = self.chain.open(sequence, base)
            except FileNotFoundError:
                return False  # retired since: everything in it was finished
            if chunk.first_position() <= position < chunk.size and position % 8 == 0:
                self._enter(chunk, start=index, at=(position, ordinal))
                with contextlib.suppress(errors.Corrupt):
                    # From word to word: what lies below the head was handed out, and is not looked at again.
                    _native.reader_seek(chunk, self.reader, index - base)
                    return True
        return False

    def lead(self, head: _native.End) -> None:
        """Have the built-ins of a handle go on from wherever this walk stands, for as long as somebody holds it."""
        self._head = weakref.ref(head)

    def stop(self) -> None:
        """Have the built-ins ask Python, until this walk stands somewhere again."""
        head = self._head()
        if head is not None:
            head._move(0, 0, 0, None)  # noqa: SLF001  # ours
            self._led = None

    def go_on_leading(self) -> None:
        """Have the built-ins take from where this walk stands, also if a signal's handler kept us from saying so."""
        head = self._head()
        if head is not None and self.chunk is not None and self._led is not self.reader:
            chunk, reader = self.chunk, self.reader
            head._move(chunk.address, _native.address(reader), chunk.memory_address, (chunk, reader, self._wants))  # noqa: SLF001  # ours
            self._led = reader

    def _find(self) -> bool:
        """Find the chunk for the start, once there is one."""
        while True:
            found = self.chain.locate(self._start)
            if found is None:
                return False
            sequence, base = found
            if self._start < base:
                self._begin_at(base)
            with contextlib.suppress(FileNotFoundError):  # retired since it was located: look again
                self._enter(self.chain.open(sequence, base), ordinal=self._start - base)
                return True

    def only_finished_goes(self) -> bool:
        """Whether what has gone was finished by all: who does not know was set back, or lost it, by a power cut."""
        self.home.look_at_options()
        return not self.home.loses

    def _begin_at(self, first: int) -> None:
        lost, self._start = self._start, first
        if self._checkpoint is not None and not self._was_dropped(lost, first) and not self.only_finished_goes():
            raise self._passed_by(lost, first)

    def _passed_by(self, lost: int, first: int) -> errors.Gone:
        return errors.Gone(
            f"{self.home.path} has no message {lost} any more: what came before {first} was retired; the next "
            "get begins there",
            first,
        )

    def _was_dropped(self, lost: int, first: int) -> bool:
        """Whether what has gone between the two was dropped for this name to make room; then it is noted."""
        if self._checkpoint is None or first > self.membership.control.bounds().dropped:
            return False
        self._checkpoint.dropped += max(first - lost, 0)
        return True

    def _enter(
        self,
        chunk: _native.Chunk,
        *,
        start: int | None = None,
        at: tuple[int, int] | None = None,
        ordinal: int | None = None,
        skipped: int = 0,
    ) -> None:
        """
        Stand in *chunk*, with what goes with it, in one step: what a signal's handler raises comes before or behind it.

        Args:
            start: where messages begin to count from now on.
            at: position and ordinal, if not the chunk's beginning.
            ordinal: go there before anybody takes from here; where the way is damaged, as far as it leads.
            skipped: how many indexes more were passed over because of damage.
        """
        start = self._start if start is None else start
        reader = _native.reader(chunk, start, self._checkpoint, self._wants)
        if at is not None:
            reader.position, reader.ordinal = at
        try:
            if ordinal is not None:
                _native.reader_seek(chunk, reader, ordinal)
        finally:
            self.stop()  # the built-ins never take from one place while this walk stands at another
            vars(self).update(chunk=chunk, reader=reader, _start=start, skipped=self.skipped + skipped)
            self.go_on_leading()

    def mark(self) -> tuple[Any, int, int]:
        """Where this stands, for `back_to`."""
        reader = self.reader
        return (None, 0, 0) if reader is None else (reader, int(reader.position), int(reader.ordinal))

    def back_to(self, mark: tuple[Any, int, int]) -> None:
        """What was read since then was handed to nobody: read it again."""
        known, position, ordinal = mark
        if self.chunk is None or self.reader is None:
            return
        if self.reader is not known:  # on the way it came to another chunk
            position, ordinal = self.chunk.first_position(), 0
        self.reader.position, self.reader.ordinal = position, ordinal

    def _advance(self) -> bool:
        """Go on in the next chunk; False while there is none."""
        if self.chunk is None:
            return self._find()
        try:
            following = self.chain.after(self.chunk)
        except errors.Gone as gone:
            if self.chain.first_index() <= self.index():
                self.seek(self.index())  # only what was passed on the way, or is not wanted, has gone
                return self._find()
            lost = self.index()
            first = self.chain.first_index() if gone.first_index is None else gone.first_index
            self.seek(first)
            if self._was_dropped(lost, first):
                return self._find()
            raise self._passed_by(lost, first) from None
        if following is None:
            return False
        self._enter(following)
        if self._checkpoint is not None:  # a consumer has finished a chunk: the one before may go
            self.membership.forget_retired()
            warm.settle()
            self._left = not space.passed(self.home, self.chain, self.membership.control, following)
        return True

    # ---- past damage
    def _pass_damage(self) -> bool:
        """Go on behind what is damaged here; False when nothing behind it can be found yet."""
        assert self.chunk is not None  # noqa: S101  # it was read from
        damage = _native.resync(self.chunk, self.reader)
        if damage is None:
            return self._leap(self.chunk.sequence, self.chunk.base + int(self.reader.ordinal))
        skipped = self._damaged(self.chunk.base + damage.ordinal, self.chunk.base + damage.end_ordinal)
        self._enter(self.chunk, at=(damage.end, damage.end_ordinal), skipped=skipped)
        return True

    def _advance_over(self) -> bool:
        """As `_advance`, over chunks that cannot be used."""
        before = self.chunk
        try:
            return self._advance()
        except errors.Corrupt:
            here = self.index()
            if self.chunk is not before and self.chunk is not None:
                return True  # it stands before the damage, on the way to its start
            if self.chunk is not None:
                return self._leap(self.chunk.sequence, here)
            live = self.chain.listed()
            damaged = [sequence for sequence, base in live if base <= here]
            return self._leap(damaged[-1] if damaged else -1, here)

    def _leap(self, sequence: int, index: int) -> bool:
        """Go on in the first chunk behind that one that can be opened."""
        for following, base in self.chain.listed():
            if following > sequence and base >= index:
                with contextlib.suppress(errors.Corrupt, FileNotFoundError):
                    chunk = self.chain.open(following, base)
                    self._enter(chunk, start=max(self._start, base), skipped=self._damaged(index, base))
                    return True
        if self._checkpoint is None:  # a consumer is told instead
            self._pass_the_last(index)
        return False

    def _pass_the_last(self, index: int) -> None:
        """Where the last chunk cannot be opened, and *index* is in it: stand behind all that is known of it."""
        later.ready("shmq.storage.reach")
        from shmq.storage import reach  # noqa: PLC0415  # rare

        sequence, base = (self.chain.listed() or [(-1, 0)])[-1]
        if index < base or (self.chunk is not None and self.chunk.sequence >= sequence):
            return
        known = reach.reach(self.home)
        name = chunk_name(base, sequence)
        end = base + reach.known_in_damaged(self.home, self.home.chunks, name, sequence, base, known)
        if end > index:
            skipped = self._damaged(index, end)
            self.seek(end)
            self.skipped += skipped

    def _damaged(self, first: int, behind: int) -> int:
        """How many indexes between the two were wanted."""
        return max(behind - max(first, self._start), 0)

    def index(self) -> int:
        """The index of what is looked at next."""
        return self._start if self.chunk is None else max(self._start, self.chunk.base + int(self.reader.ordinal))

    def at_end(self) -> bool:
        """Whether everything there is has been passed."""
        return self.index() >= self.chain.next_index()

    def look(self, spins: int = 0) -> int:
        """
        The next message's place, or EMPTY or WAITING. Does not wait beyond its spins.

        Under a lock of the caller's; the built-ins of other threads go on meanwhile.
        """
        which = self.which
        place = _native.take(self.chunk, self.reader, spins, which) if self.chunk is not None else int(_native.ROLL)
        if place < 0 and place not in (_native.EMPTY, _native.WAITING):
            place = self._look(lambda chunk, reader: _native.take(chunk, reader, spins, which))
        if place >= 0 or place in (_native.EMPTY, _native.WAITING):
            return place
        raise _native.error(place, f"cannot read {self.home.path}")

    def _look(self, call: Callable[[_native.Chunk, Any], int]) -> int:
        """What *call* answers behind the ends of chunks and, with skip_corrupt, behind damage."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        while True:
            if self.chunk is None and not advance():
                return int(_native.EMPTY)
            place = call(self.chunk, self.reader)  # type: ignore[arg-type]
            if place == _native.ROLL:
                going_on = advance()
            elif place == _native.CORRUPT and self.skip_corrupt:
                going_on = self._pass_damage()
            elif place == _native.CONTENDED:  # another thread's fast read: over in no time
                continue
            elif place == _native.PASSED:  # and signals were heard
                going_on = self.upto is None or self.index() < self.upto
            else:
                return place
            if not going_on:
                return int(_native.EMPTY)

    def gather(self, plan: Any, records: _native.Records | None = None) -> _native.Gathered | int:
        """The messages that are there now, in columns, all of one chunk; or EMPTY or WAITING. Does not wait."""
        found: list[_native.Gathered] = []
        work = _native.gather if records is None else records.gather

        def call(chunk: _native.Chunk, reader: Any) -> int:
            gathered = work(chunk, reader, plan)
            if isinstance(gathered, int):
                return gathered
            found.append(gathered)
            return 0

        code = self._look(call)
        if code < 0 and code not in (_native.EMPTY, _native.WAITING):
            raise _native.error(code, f"cannot read {self.home.path}")
        return found[0] if found else code

    def glance(self) -> int:
        """As `look`, but nothing is handed out: this stands before it. Damage is an answer, too."""
        return self._look(lambda chunk, reader: _native.glance(chunk, reader, self.which))

    def wait(
        self, deadline_ns: int, ended: Callable[[], Exception | None], look: Callable[[int], int] | None = None
    ) -> int:
        """
        The next message's place, as soon as there is one.

        Args:
            deadline_ns: monotonic; FOREVER to wait as long as it takes.
            ended: asked before each last look; an exception ends the wait where that finds nothing.
            look: what to do instead of `look`; negative while there is nothing.

        Raises:
            Empty: the deadline passed.
        """
        look = look or self.look
        if self._left:
            self._left = False
            space.retire(self.home, self.chain, self.membership.control)
        place = look(0 if 0 <= deadline_ns <= _native.monotonic_ns() else self._patience.spins)
        while place < 0:
            if deadline_ns >= 0 and _native.monotonic_ns() >= deadline_ns:
                if ended() is None:
                    raise errors.Empty(self.nothing(place))
                place = self._look_or_end(look, ended)
                continue
            if self.home.read_only:
                time.sleep(_READ_ONLY_PAUSE)  # may write nothing, not even that it sleeps
                place = self._look_or_end(look, ended)
                continue
            seen = self._patience.begin(self.membership)
            place = self._look_or_end(look, ended)
            if place < 0:
                self._patience.rest(self.membership, seen, self._until(deadline_ns))
                place = look(self._patience.spins)
        return place

    def due_ns(self) -> int | None:
        """When the time of the next message comes, since boot; None when none is delayed."""
        return (None if self.reader is None else int(self.reader.due_ns)) or None

    def _until(self, deadline_ns: int) -> int:
        """The deadline, or when the next message's time comes."""
        return sooner(deadline_ns, self.due_ns())

    @staticmethod
    def _look_or_end(look: Callable[[int], int], ended: Callable[[], Exception | None]) -> int:
        reason = ended()  # before the look: what was put before the end is there by then
        place = look(0)
        if place < 0 and reason is not None:
            try:
                raise reason
            finally:  # its traceback leads here: else a handle that was forgotten waited for the garbage collector
                del reason
        return place

    def nothing(self, code: int) -> str:
        """Why there is nothing to get, in words."""
        if code == _native.WAITING and self.reader.due_ns:
            return f"nothing to get from {self.home.path} in time: the next message is delayed"
        if code == _native.WAITING:
            later.ready("shmq.whose")
            from shmq import whose  # noqa: PLC0415  # only who waited in vain

            owner = int(self.reader.waiting_for)
            process = whose.of_owner(self.membership.control, self.membership.member, owner)
            who = f"participant {owner >> 11}" if process is None else whose.told(process)
            return (
                f"nothing to get from {self.home.path} in time: the next message is claimed by {who}, "
                "and not committed; `shmq why` says more"
            )
        return f"nothing to get from {self.home.path} in time"
