"""
Going on in a used file rather than in pages that nobody has touched: what a producer does for that.

A page that was used costs a tenth of a fresh one, and it is consumers who give files back. So whoever would make a new
file of some MiB first takes away what they have finished; and where they are about to finish a chunk, it waits for
that, no longer than the new file would take to fill. Nobody is waited for that does not move, or moves too slowly;
and after a wait in vain there is none until something was retired.
"""

from __future__ import annotations

import time

from shmq import _native
from shmq.hints import TYPE_CHECKING
from shmq.storage import floors, space

if TYPE_CHECKING:
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

_PAUSE = 0.00005
"""Seconds between two looks at those who follow."""
_STILL_NS = 300_000
"""Whoever has not moved for so long, or taken anything away, is not waited for."""
_STEPS = 3
"""Nor for less than such a part of the time: of large messages a chunk has two, and whoever takes one is long at it."""
_FRESH_NS = 1500
"""What a fresh page costs, about."""


class Pace:
    """What one producer knows of those who follow it. For one thread at a time."""

    def __init__(self, home: Directory, chain: Chain, control: _native.Control) -> None:
        """Nothing was waited for yet."""
        self._home = home
        self._chain = chain
        self._control = control
        self._names = floors.Names(home, chain.member)
        self._vain = -1  # what the first live chunk was when a wait was in vain
        self.deadline_ns = _native.FOREVER
        """When the put that rolls must be done."""

    def await_used(self, size: int) -> bool:
        """Whether something was retired, by us or others, after waiting for it if a new file had *size* bytes."""
        options = self._home.options
        if options.retention.kind != "acked" or options.full == "drop_oldest":
            return False  # then it goes by other rules, at each roll
        first = self._control.first_live()
        space.retire(self._home, self._chain, self._control)
        if self._control.first_live() != first:
            return True
        until = time.monotonic_ns() + size // _native.PAGE_BYTES * _FRESH_NS
        if self._vain == first or 0 <= self.deadline_ns < until:
            return False  # and lists nothing: there may be thousands of chunks that nobody takes from
        live = self._chain.names()
        if len(live) < 2:
            return False  # there is only the one that was just sealed
        self._names.look()
        if self._retired(first, live[1][1], until):
            return True
        self._vain = first
        return False

    def _retired(self, first: int, target: int, until: int) -> bool:
        """
        Have what lies before *target* retired as soon as all names are behind that.

        Whether it was before *until*; False at once when it looks as if it would not be.
        """
        began = moved_ns = now = time.monotonic_ns()
        still_ns = max(_STILL_NS, (until - now) // _STEPS)
        floor = begun = self._floor()
        while now < until and now - moved_ns <= still_ns:
            time.sleep(_PAUSE)
            now, before, floor = time.monotonic_ns(), floor, self._floor()
            if floor > target:
                space.retire(self._home, self._chain, self._control)
            if self._control.first_live() != first:
                return True
            if floor != before:
                moved_ns = now
                if now + max(target - floor, 0) * (now - began) // max(floor - begun, 1) > until:
                    return False
        return False

    def _floor(self) -> int:
        """The first index that some name has not finished; 0 where there are no names."""
        return min(self._names.floors(self._control.bounds().dropped).values(), default=0)
