"""What a queue is after its operations: which of the items added are left, in which order, and which are open."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shmq.formats.kestrel.records import (
    ADD_XID,
    CONFIRM_REMOVE,
    CONTINUE,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    RUN,
    SAVE_XID,
    UNREMOVE,
)

if TYPE_CHECKING:
    from shmq.formats.kestrel.records import Op


class Replay:
    """
    What a queue is after its operations, in a few numbers: which ordinals are left, and in which order.

    Items are numbered as they are added. What is left is a run at the end (`next` .. `added`), what was put back in
    front of it, and what is open; so the memory is that of the open and the put back ones, not that of the queue.
    """

    def __init__(self, *, as_program: bool) -> None:
        self.next = 0
        self.added = 0
        self.front: deque[int] = deque()
        self.open: dict[int, int] = {}
        self.twice: int | None = None
        """A transaction id that was given out again while it was open, since this was last looked at."""
        self._named: dict[int, int] = {}
        """Items that an ADD_XID has named, until they are taken for the first time."""
        self._taken_name: int | None = None
        self._counter = 0
        self._highest = 0
        self._patience = 5_000_000
        """How many open ids may be passed over in search of the next free one, in all."""
        self._as_program = as_program

    def apply(self, one: Op) -> None:  # noqa: C901  ten operations
        """Do one operation."""
        op = one.op
        if op == RUN:
            self.added += one.xid
        elif op == REMOVE:
            self._take()
        elif op == REMOVE_TENTATIVE_XID:
            self._counter = one.xid
            self._open(one.xid)
        elif op == CONFIRM_REMOVE:
            self.open.pop(one.xid, None)
        elif op == UNREMOVE:
            item = self.open.pop(one.xid, None)
            if item is not None:
                self.front.appendleft(item)
        elif op == REMOVE_TENTATIVE:
            self._open(None)
        elif op == SAVE_XID:
            self._counter = one.xid
        else:
            if op == CONTINUE:
                self.open.pop(one.xid, None)
            elif op == ADD_XID and not self._as_program:
                self._named[self.added] = one.xid
            self.added += 1

    def _take(self) -> int | None:
        if self.front:
            item = self.front.popleft()
        elif self.next < self.added:
            item = self.next
            self.next += 1
        else:
            return None
        if self._named:
            self._taken_name = self._named.pop(item, None)
        return item

    def _open(self, xid: int | None) -> None:
        """Move the head into the open transactions: under *xid*, or the item's own, or the next one."""
        self._taken_name = None
        item = self._take()
        if item is None:
            return
        if xid is None:
            xid = self._next_xid() if self._taken_name is None else self._taken_name
        if xid in self.open:
            self.twice = xid
        self.open[xid] = item
        self._highest = max(self._highest, xid)

    def _next_xid(self) -> int:
        if self._as_program:
            # Head Kestrel reads opcode 3 as "xid 0", for all of them: the later ones replace the earlier.
            self._counter = 0
            return 0
        while self._patience:
            self._counter = -(1 << 31) if self._counter == (1 << 31) - 1 else self._counter + 1
            if self._counter and self._counter not in self.open:
                return self._counter
            self._patience -= 1
        # Only a journal made for it sets the counter back below thousands of open transactions, again and again.
        return self._highest + 1

    def live(self) -> int:
        """Return how many items the queue has, the open ones included."""
        return len(self.open) + len(self.front) + self.added - self.next
