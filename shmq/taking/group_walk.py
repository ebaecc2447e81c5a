"""
A member's own way through the chunks. The ring says which messages somebody has had; each member walks past those.

What is not there any more (retired, damaged, a gap between two chunks) is passed for the whole group: by `pass_gap`,
which waits for what is before it, or by `retire`, which counts what was lost.
"""

from __future__ import annotations

import contextlib

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.reading.walk import Walk
from shmq.storage import ring as rings
from shmq.storage import space, warm

if TYPE_CHECKING:
    from typing import Any

    from shmq.taking.account import Account


class GroupWalk(Walk):
    """A member's own way through the chunks; the ring says which messages are taken already."""

    ring: _native.Ring
    _name: str
    _called: str
    stopped: int
    """Why there is no going on to the next chunk, as `claim` answers it."""

    def lead_group(self, account: Account, ring: _native.Ring) -> None:
        """Walk for a member with that account, whose ring this is."""
        self._name, self._called, self.ring = account.name, account.called, ring

    def _begin_at(self, first: int) -> None:
        self._start = first
        lost = self.pass_retired(first)
        if lost and not self.only_finished_goes():
            raise self._gone(lost, first)

    def pass_retired(self, first: int) -> int:
        """Have the group go on at *first*, since nothing before it is there any more: how much of that it loses."""
        while (lost := self.ring.retire(first)) == _native.GROW:
            rings.grow(self.home, self._name, self.ring)
        return lost

    def _gone(self, lost: int, first: int) -> errors.Gone:
        self.ring.count_retired(lost)
        return errors.Gone(
            f"{lost} messages of {self.home.path} were retired before {self._called} had finished them; the next "
            f"get goes on at {first}",
            first,
        )

    def _advance(self) -> bool:
        """Go on in the next chunk; False while there is none, or while indexes between the two cannot be passed yet."""
        if self.chunk is None:
            return self._find()
        end = self.chunk.base + int(self.reader.ordinal)
        try:
            following = self.chain.after(self.chunk)
        except errors.Gone as gone:
            first = self.chain.first_index() if gone.first_index is None else gone.first_index
            lost = self.pass_retired(first)
            self.seek(first)
            if not lost:  # others have finished what was retired, or were told
                return self._find()
            raise self._gone(lost, first) from None
        if following is None or (following.base > end and not self._pass(end, following.base)):
            return False
        self._enter(following)
        del following
        self.ring.floor()
        self.membership.forget_retired()
        warm.settle()  # also where somebody else retires: what stays locked here, nobody can use again
        space.passed(self.home, self.chain, self.membership.control, self.chunk)
        return True

    def _pass(self, index: int, following: int) -> bool:
        """Whether indexes that will never be messages are passed; if not, `claim` tells why."""
        code = self.ring.pass_gap(index, following)
        if code != 0:
            self.stopped = code
        return code == 0

    def _pass_damage(self) -> bool:
        """Go on behind what is damaged, for the whole group; False when that must wait for what is before it."""
        assert self.chunk is not None  # noqa: S101  # it was read from
        damage = _native.resync(self.chunk, self.reader)
        if damage is None:
            return self._leap(self.chunk.sequence, self.chunk.base + int(self.reader.ordinal))
        if not self._pass(self.chunk.base + damage.ordinal, self.chunk.base + damage.end_ordinal):
            return False
        return super()._pass_damage()

    def _leap(self, sequence: int, index: int) -> bool:
        for following, base in self.chain.listed():
            if following > sequence and base >= index:
                if not self._pass(index, base):
                    return False
                with contextlib.suppress(errors.Corrupt, FileNotFoundError):
                    chunk = self.chain.open(following, base)
                    self._enter(chunk, start=max(self._start, base), skipped=self._damaged(index, base))
                    return True
        return False

    def claim(self, limit: int, spins: int, taken: Any) -> int:
        """Claim up to *limit* messages that nobody has had: how many, or EMPTY, WAITING, EDGE or GROW."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        self.stopped = _native.EMPTY
        while True:
            if self.chunk is None and not advance():
                return self.stopped
            count = self.ring.take(self.chunk, self.reader, limit, spins, taken)  # type: ignore[arg-type]
            if count > 0:
                return count
            if count == _native.ROLL:
                if advance():
                    continue
                return self.stopped
            if count == _native.CORRUPT and self.skip_corrupt:
                self.stopped = _native.EDGE
                if self._pass_damage():
                    continue
                return self.stopped
            if count == _native.PASSED:  # and signals were heard
                continue
            if count in (_native.EMPTY, _native.WAITING, _native.EDGE, _native.GROW):
                return count
            raise _native.error(count, f"cannot read {self.home.path}")

    def begin(self) -> None:
        """Come to the first chunk there is, if that was not done yet. What is wrong with it, `claim` says."""
        if self.chunk is None:
            with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                self._find()

    def claim_more(self, limit: int, taken: Any) -> int:
        """Claim up to *limit* more of what is there in this chunk: how many. What stops it stops the next `claim`."""
        if limit <= 0 or self.chunk is None:
            return 0
        return max(self.ring.take(self.chunk, self.reader, limit, 0, taken), 0)

    def look_ahead(self) -> int:
        """Whether `claim` would have something, or an error: 1, or 0, or GROW. Nothing is handed out."""
        advance = self._advance_over if self.skip_corrupt else self._advance
        self.stopped = _native.EMPTY
        while self.chunk is not None or advance():
            code = self.ring.glance(self.chunk, self.reader)  # type: ignore[arg-type]
            if code == _native.PASSED:
                continue
            if code == _native.ROLL:
                if not advance():
                    break
            elif code == _native.CORRUPT and self.skip_corrupt:
                if not self._pass_damage():
                    break
            elif code in (_native.EMPTY, _native.WAITING, _native.EDGE):
                self.stopped = code
                break
            else:
                return int(_native.GROW) if code == _native.GROW else 1
        return int(_native.GROW) if self.stopped == _native.GROW else 0  # before indexes that cannot be passed yet
