"""
What the consumer names of a queue still need: the floor of each, below which it has finished everything.

That of a name of its own is its head. That of a group is its head, or the lowest message that it has parked; nobody
writes it down each time it moves, so whoever needs it (for room, or to retire) looks at the ring.
"""

from __future__ import annotations

import contextlib
import os

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, departures, files, pins, sources
from shmq.storage import ring as rings
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    import mmap

    from shmq.storage.directory import Directory

_ENDING = ".checkpoint"


class Name:
    """A consumer name of one process at a time, as somebody else sees it."""

    def __init__(self, home: Directory, name: str, checkpoint: _native.Checkpoint) -> None:
        """See `Names`."""
        self._home = home
        self._name = name
        self._checkpoint = checkpoint

    def floor(self, dropped: int) -> int:
        """The first index that it has not finished, when all before *dropped* was dropped."""
        return self._checkpoint.floor(dropped)

    def lasting(self, dropped: int) -> int:
        """The same after a power cut, where what goes now would have to come again."""
        return self.floor(dropped)

    def holds(self, target: int) -> bool:
        """Whether something before *target* was handed out and is not finished."""
        return self._checkpoint.head < min(self._checkpoint.handed, target)

    def drop(self, target: int) -> None:
        """Everything before *target* is dropped: whoever has the name passes it."""

    def prepare(self) -> None:
        """Open what the next `drop` needs."""


class Damaged(Name):
    """A name that nobody can open: it may need all that was not dropped for everybody, and has nothing in its hands."""

    def __init__(self) -> None:
        """See `Names`."""

    def floor(self, dropped: int) -> int:
        """As `Name.floor`."""
        return dropped

    def holds(self, target: int) -> bool:  # noqa: ARG002
        """As `Name.holds`."""
        return False


class Group(Name):
    """A group, as somebody sees it who need not be in it."""

    def __init__(self, home: Directory, name: str, checkpoint: _native.Checkpoint, member: _native.Member) -> None:
        """See `Names`."""
        super().__init__(home, name, checkpoint)
        self._member = member
        self._memory: mmap.mmap | None = None
        self._ring: _native.Ring | None = None
        self._ready = False

    def floor(self, dropped: int) -> int:
        """As `Name.floor`. Of a ring that nobody entered in this boot, or that is damaged: what was written down."""
        try:
            ring = self._ring or self._open()
            while ring is not None:
                lowest = ring.lowest()
                if 0 <= lowest < dropped and ring.drop(dropped) == 0:
                    lowest = ring.lowest()  # without what the dead had: nobody else may come to see it
                if lowest != _native.GROW:
                    return lowest
                ring = self._open(grown=True)
        except (errors.Corrupt, errors.BadFormat):
            return max(self._checkpoint.written_floor(), dropped)  # it finishes nothing any more
        return self._checkpoint.written_floor()

    def lasting(self, dropped: int) -> int:
        """As `Name.lasting`: what it has put elsewhere may not be on the disk yet."""
        floor = self.floor(dropped)
        if self._home.volatile or not sources.is_one(self._home, self._name):
            return floor
        return min(floor, max(self._checkpoint.snapshots_floor(), dropped))

    def holds(self, target: int) -> bool:
        """Whether a living member has something before *target*; nobody has, of a ring that is damaged."""
        try:
            ring = self._open()
            while ring is not None:
                lowest = ring.held(target)
                if lowest != _native.GROW:
                    return lowest < target
                ring = self._open(grown=True)
        except (errors.Corrupt, errors.BadFormat):
            return False
        return self._checkpoint.written_floor() < target

    def drop(self, target: int) -> None:
        """Finish what nobody has of what is before *target*, and have the rest finished when it is given back."""
        with contextlib.suppress(errors.Corrupt, errors.BadFormat):  # whoever opens the group is told
            ring = self._ring if self._ready else self._open()
            while ring is not None and ring.drop(target) == _native.GROW:
                ring = self._open(grown=True)

    def prepare(self) -> None:
        """As `Name.prepare`."""
        with contextlib.suppress(errors.Corrupt, errors.BadFormat):
            self._open()
        self._ready = True

    def _open(self, *, grown: bool = False) -> _native.Ring | None:
        """The ring in the term that it has now, mapped anew if it has *grown*; None while it is of another boot."""
        if self._memory is None or grown:
            self._memory = rings.map_ring(self._home, self._name, writable=True)
        where = f"{self._home.path}/{CONSUMERS}/{self._name}.ring"
        if _native.Ring.boot_id(self._memory, self._home.queue_id, where) != boots.boot_id():
            return None
        self._ring = _native.Ring(self._memory, self._home.queue_id, self._checkpoint, self._member, where)
        return self._ring


class Names:
    """All names of a queue that hold anything, as one handle has them mapped; for one thread at a time."""

    def __init__(self, home: Directory, member: _native.Member) -> None:
        """Nothing is known yet."""
        self._home = home
        self._member = member
        self._known: dict[str, tuple[int, Name]] = {}
        self.due_ns: int | None = None
        """When a name may go by itself, since boot: then it is worth another look."""
        self.files: list[str] = []
        """What the last look found in their folder."""

    def look(self, *, all_of_them: bool = False, locked: bool = False) -> None:
        """
        See which names there are now; one that was dropped and made again is another one. Those whose time is over go.

        *all_of_them*: also those that hold nothing. *locked*: the caller has the administrative lock.
        """
        self.due_ns = None
        before, self._known = self._known, {}
        self.files = files.names_in(self._home.consumers)
        if departures.some_go(self.files):
            self.due_ns = departures.sweep(self._home, self._member.control, locked=locked)
            self.files = files.names_in(self._home.consumers)
        there = set(self.files)
        for name in self._home.consumer_names(there):
            with contextlib.suppress(FileNotFoundError):  # dropped since
                idle = pins.hold_name(name) in there and pins.holds(self._home, name) == pins.NOTHING
                if idle and not all_of_them:
                    continue  # it is there to be looked at
                inode = os.stat(f"{name}{_ENDING}", dir_fd=self._home.consumers, follow_symlinks=False).st_ino
                known = before.get(name)
                self._known[name] = known if known and known[0] == inode else (inode, self._open(name))

    def _open(self, name: str) -> Name:
        checkpoint = self._home.readable_checkpoint(name)
        if checkpoint is None:
            return Damaged()
        if checkpoint.ring:
            return Group(self._home, name, self._home.checkpoint(name, writable=True), self._member)
        return Name(self._home, name, checkpoint)

    def floors(self, dropped: int) -> dict[str, int]:
        """The floor of each name, when all before *dropped* was dropped."""
        return {name: each.floor(dropped) for name, (_, each) in self._known.items()}

    def lasting(self, dropped: int) -> int | None:
        """The lowest floor of all, as it is after a power cut; None when there is no name."""
        return min((each.lasting(dropped) for _, each in self._known.values()), default=None)

    def drop(self, target: int) -> bool:
        """
        Drop what lies before *target* for every group; nothing, and False, while somebody has some of it.

        Whoever has a name of its own passes it: what it sees of `dropped` is the caller's business.
        """
        names = [each for _, each in self._known.values()]
        if any(each.holds(target) for each in names):
            return False
        for each in names:
            each.drop(target)
        return True

    def prepare(self) -> None:
        """Open what `drop_from_holders` needs, so that it does not find then that it cannot; only groups need any."""
        self._known = {name: known for name, known in self._known.items() if isinstance(known[1], Group)}
        for _, each in self._known.values():
            each.prepare()

    def drop_from_holders(self, target: int) -> None:
        """The same, whoever has something: that stays there, and is finished when it is given back."""
        for _, each in self._known.values():
            each.drop(target)
