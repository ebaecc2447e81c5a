"""
Going from message to message through the chain, and waiting at its end.

Consumers and readers are both a Walk with something around it. A walk belongs to one thread at a time; its owners see
to that.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

from shmq import _native, errors
from shmq.storage import space, warm
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.membership import Membership
    from shmq.storage.directory import Directory

SPINS = 2000 if len(os.sched_getaffinity(0)) > 1 else 0
"""How often to look again before sleeping: some tens of microseconds, where another processor may be writing."""
_READ_ONLY_PAUSE = 0.002


def deadline_of(timeout: float | None) -> int:
    """The monotonic deadline in ns; FOREVER for None."""
    if timeout is None:
        return _native.FOREVER
    if not timeout >= 0:  # NaN too
        raise ValueError(f"timeout={timeout!r}: seconds from now, or None for ever")
    return _native.monotonic_ns() + int(min(timeout, 1e9) * 1e9)


class Walk:
    """A place in the chain, and the way on from it."""

    def __init__(
        self,
        home: Directory,
        membership: Membership,
        checkpoint: _native.Checkpoint | None = None,
        *,
        auto_ack: bool = False,
    ) -> None:
        """Nowhere yet: `seek` first."""
        self.home = home
        self.membership = membership
        self.chain = Chain(home, membership.member)
        self.chunk: _native.Chunk | None = None
        self.reader: Any = None
        self._head: Callable[[], _native.Head | None] = lambda: None
        self._checkpoint = checkpoint
        self._auto_ack = auto_ack
        self._start = 0
        self.skip_corrupt = False
        self.skipped = 0
        """Indexes passed over because what was there is damaged."""

    def seek(self, index: int) -> None:
        """
        Stand before *index*: the next message is the first one at or behind it.

        Where that was retired, a consumer's next look says Gone, once, and it goes on at the first index still there;
        unless all names had finished it, or it is no consumer: then it just goes on there.
        """
        self._start = index
        self.chunk = None
        self.stop()

    def resume(self, sequence: int, position: int, ordinal: int, index: int) -> bool:
        """Stand at a remembered place, if it is still what it was; the first message at or behind *index* is next."""
        for known, base in self.chain.names():
            if known == sequence:
                try:
                    chunk = self.chain.open(sequence, base)
                except FileNotFoundError:
                    return False  # retired since: everything in it was finished
                if chunk.first_position() <= position < chunk.size and position % 8 == 0:
                    self._start = index
                    self._enter(chunk)
                    self.reader.position, self.reader.ordinal = position, ordinal
                    with contextlib.suppress(errors.Corrupt):
                        # From word to word: what lies below the head was handed out, and is not looked at again.
                        _native.reader_seek(chunk, self.reader, index - base)
                        return True
        return False

    def lead(self, head: _native.Head) -> None:
        """Have a consumer's built-ins take from wherever this walk stands, for as long as somebody holds it."""
        self._head = weakref.ref(head)

    def stop(self) -> None:
        """Have the built-ins ask Python, until this walk stands somewhere again."""
        head = self._head()
        if head is not None:
            head._move(0, 0, 0, None)  # noqa: SLF001  # ours

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
                self._enter(self.chain.open(sequence, base))
                break
        _native.reader_seek(self.chunk, self.reader, self._start - base)  # type: ignore[arg-type]
        return True

    def _begin_at(self, first: int) -> None:
        lost, self._start = self._start, first
        if (
            self._checkpoint is not None
            and not self._was_dropped(lost, first)
            and self.home.options.retention.kind != "acked"
        ):
            raise errors.Gone(
                f"{self.home.path} has no message {lost} any more: what came before {first} was retired; "
                "the next get begins there",
                first,
            )

    def _was_dropped(self, lost: int, first: int) -> bool:
        """Whether what has gone between the two was dropped for this name to make room; then it is noted."""
        if self._checkpoint is None or first > self.membership.control.bounds().dropped:
            return False
        self._checkpoint.dropped += max(first - lost, 0)
        return True

    def _enter(self, chunk: _native.Chunk) -> None:
        self.chunk = chunk
        self.reader = _native.reader(chunk, self._start, self._checkpoint, auto_ack=self._auto_ack)
        head = self._head()
        if head is not None:
            keep = (chunk, self.reader)
            head._move(chunk.address, _native.address(self.reader), chunk.memory_address, keep)  # noqa: SLF001  # ours

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
            raise
        if following is None:
            return False
        self._enter(following)
        del following
        if self._checkpoint is not None:  # a consumer has finished a chunk: the one before may go
            self.membership.forget_retired()
            warm.settle()
            space.retire(self.home, self.chain, self.membership.control)
        return True

    # ---- past damage
    def _pass_damage(self) -> bool:
        """Go on behind what is damaged here; False when nothing behind it can be found yet."""
        assert self.chunk is not None  # noqa: S101  # it was read from
        position, ordinal = int(self.reader.position), int(self.reader.ordinal)
        behind = _native.resync(self.chunk, position, ordinal)
        if behind is None:
            return self._leap(self.chunk.sequence, self.chunk.base + ordinal)
        self._count(self.chunk.base + ordinal, self.chunk.base + behind[1])
        self.reader.position, self.reader.ordinal = behind
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
        for later, base in self.chain.listed():
            if later > sequence and base >= index:
                with contextlib.suppress(errors.Corrupt, FileNotFoundError):
                    chunk = self.chain.open(later, base)
                    self._count(index, base)
                    self._start = max(self._start, base)
                    self._enter(chunk)
                    return True
        return False

    def _count(self, first: int, behind: int) -> None:
        self.skipped += max(behind - max(first, self._start), 0)

    def index(self) -> int:
        """The index of what is looked at next."""
        return self._start if self.chunk is None else max(self._start, self.chunk.base + int(self.reader.ordinal))

    def at_end(self) -> bool:
        """Whether everything there is has been passed."""
        return self.index() >= self.chain.next_index()

    def look(self, spins: int = 0) -> int:
        """The next message's place, or EMPTY or WAITING. Does not wait beyond its spins."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        while True:
            if self.chunk is None and not advance():
                return int(_native.EMPTY)
            place = int(_native.look(self.chunk, self.reader, spins))  # type: ignore[arg-type]
            if place >= 0 or place in (_native.EMPTY, _native.WAITING):
                return place
            if place == _native.ROLL:
                going_on = advance()
            elif place == _native.CORRUPT and self.skip_corrupt:
                going_on = self._pass_damage()
            elif place == _native.CONTENDED:  # another thread's fast read: over in no time
                continue
            else:
                raise _native.error(place, f"cannot read {self.home.path}")
            if not going_on:
                return int(_native.EMPTY)

    def gather(self, plan: Any) -> _native.Gathered | int:
        """The messages that are there now, in columns, all of one chunk; or EMPTY or WAITING. Does not wait."""
        while True:
            if self.chunk is None and not self._advance():
                return int(_native.EMPTY)
            gathered = _native.gather(self.chunk, self.reader, plan)  # type: ignore[arg-type]
            if not isinstance(gathered, int):
                return gathered
            if gathered == _native.ROLL:
                if self._advance():
                    continue
                return int(_native.EMPTY)
            if gathered in (_native.EMPTY, _native.WAITING):
                return gathered
            if gathered != _native.CONTENDED:
                raise _native.error(gathered, f"cannot read {self.home.path}")

    def glance(self) -> bool:
        """Whether `look` would answer with a message, or with an error. Nothing is handed out."""
        while True:
            if self.chunk is None and not self._advance():
                return False
            dropped = self.membership.control.bounds().dropped
            if self._checkpoint is not None and self.index() < self._checkpoint.handed:
                dropped = 0  # what was handed out before comes again
            place = _native.glance(self.chunk, self.reader, dropped)  # type: ignore[arg-type]
            if place in (_native.EMPTY, _native.WAITING):
                return False
            if place != _native.ROLL:
                return True
            if not self._advance():
                return False

    def wait(
        self, deadline_ns: int, ended: Callable[[], Exception | None], look: Callable[[int], int] | None = None
    ) -> int:
        """
        The next message's place, as soon as there is one.

        Args:
            deadline_ns: monotonic; FOREVER to wait as long as it takes.
            ended: asked before each sleep; an exception ends the wait.
            look: what to do instead of `look`; negative while there is nothing.

        Raises:
            Empty: the deadline passed.
        """
        look = look or self.look
        place = look(SPINS)
        while place < 0:
            if deadline_ns >= 0 and _native.monotonic_ns() >= deadline_ns:
                raise ended() or errors.Empty(self._nothing(place))
            if self.home.read_only:
                time.sleep(_READ_ONLY_PAUSE)  # may write nothing, not even that it sleeps
                place = self._look_or_end(look, ended)
                continue
            seen = self.membership.member.wait_begin()
            place = self._look_or_end(look, ended)
            if place < 0:
                self.membership.sleep(seen, self._until(deadline_ns))
                place = look(SPINS)
        return place

    def _until(self, deadline_ns: int) -> int:
        """The deadline, or when the next message's time comes."""
        due = 0 if self.reader is None else int(self.reader.due_ns)
        if due == 0:
            return deadline_ns
        due = _native.monotonic_ns() + max(due - _native.boottime_ns(), 0)
        return due if deadline_ns < 0 else min(due, deadline_ns)

    @staticmethod
    def _look_or_end(look: Callable[[int], int], ended: Callable[[], Exception | None]) -> int:
        place = look(0)
        if place < 0:
            reason = ended()
            if reason is not None:
                raise reason
        return place

    def _nothing(self, code: int) -> str:
        if code == _native.WAITING and self.reader.due_ns:
            return f"nothing to get from {self.home.path} in time: the next message is delayed"
        if code == _native.WAITING:
            return (
                f"nothing to get from {self.home.path} in time: the next message is claimed by participant "
                f"{int(self.reader.waiting_for) >> 11}, who lives and has not committed it"
            )
        return f"nothing to get from {self.home.path} in time"
