"""
How whoever has nothing to get waits: asleep, looking again and again, or first the one and then the other.

Looking takes some 3 µs to see what another processor has put, and keeps a processor busy; waking takes 50, and a system
call of whoever puts.
"""

from __future__ import annotations

import os
import time

from shmq import given
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from shmq.membership import Membership

SPINS = 2000 if len(os.sched_getaffinity(0)) > 1 else 128
"""
How long to look again before sleeping, in pauses: some tens of microseconds, where another processor may be writing. On
the only one, long enough to give way a few times: whoever puts goes on in a microsecond, and needs no waking.
"""
WAYS = ("spin", "hybrid", "sleep")
_TIDY_EVERY = 0.1


class Patience:
    """
    One handle's way to wait.

    Attributes:
        spins: how often to look before it rests.
    """

    __slots__ = ("_sleeps", "_tidy_at", "spins")

    def __init__(self, way: str = "hybrid") -> None:
        """
        Wait that *way*: "spin", "hybrid" or "sleep".

        Raises:
            TypeError, ValueError: it is none of them.
        """
        if given.text("wait", way, 'one of "spin", "hybrid" and "sleep"') not in WAYS:
            raise ValueError(f'wait={way!r}: "spin", "hybrid" or "sleep"')
        self.spins = 0 if way == "sleep" else SPINS
        self._sleeps = way != "spin"
        self._tidy_at = 0.0

    def begin(self, membership: Membership) -> int:
        """Before the last look: say that this one will sleep, if it will. For `rest`."""
        return membership.member.wait_begin() if self._sleeps else 0

    def rest(self, membership: Membership, seen: int, until_ns: int) -> None:
        """Nothing was there: sleep until somebody rings, or until *until_ns*; or let others have the processor once."""
        if self._sleeps:
            membership.sleep(seen, until_ns)
            return
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + _TIDY_EVERY
            membership.watch()  # or those who sleep beside this one wait for the dead
            membership.let_go()
        os.sched_yield()
