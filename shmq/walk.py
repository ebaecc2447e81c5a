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
from shmq.storage import space
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
                chunk = self.chain.open(sequence, base)
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
        if self._checkpoint is not None and self.home.options.retention.kind != "acked":
            raise errors.Gone(
                f"{self.home.path} has no message {lost} any more: what came before {first} was retired; "
                "the next get begins there",
                first,
            )

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
            self.seek(self.chain.first_index() if gone.first_index is None else gone.first_index)
            raise
        if following is None:
            return False
        self._enter(following)
        del following
        if self._checkpoint is not None:  # a consumer has finished a chunk: the one before may go
            self.membership.forget_retired()
            space.retire(self.home, self.chain, self.membership.control)
        return True

    def index(self) -> int:
        """The index of what is looked at next."""
        return self._start if self.chunk is None else max(self._start, self.chunk.base + int(self.reader.ordinal))

    def at_end(self) -> bool:
        """Whether everything there is has been passed."""
        return self.index() >= self.chain.next_index()

    def look(self, spins: int = 0) -> int:
        """The next message's place, or EMPTY or WAITING. Does not wait beyond its spins."""
        while True:
            if self.chunk is None and not self._advance():
                return int(_native.EMPTY)
            place = int(_native.look(self.chunk, self.reader, spins))  # type: ignore[arg-type]
            if place >= 0:
                return place
            if place == _native.ROLL:
                if self._advance():
                    continue
                return int(_native.EMPTY)
            if place in (_native.EMPTY, _native.WAITING):
                return place
            if place != _native.CONTENDED:  # another thread's fast read: over in no time
                raise _native.error(place, f"cannot read {self.home.path}")

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
                self.membership.sleep(seen, deadline_ns)
                place = look(SPINS)
        return place

    @staticmethod
    def _look_or_end(look: Callable[[int], int], ended: Callable[[], Exception | None]) -> int:
        place = look(0)
        if place < 0:
            reason = ended()
            if reason is not None:
                raise reason
        return place

    def _nothing(self, code: int) -> str:
        if code == _native.WAITING:
            return (
                f"nothing to get from {self.home.path} in time: the next message is claimed by participant "
                f"{int(self.reader.waiting_for) >> 11}, who lives and has not committed it"
            )
        return f"nothing to get from {self.home.path} in time"
