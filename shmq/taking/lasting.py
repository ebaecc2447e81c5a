"""
How what a group has forwarded outlives a power cut, and how the queues that it puts into forget it.

A snapshot says what is done, and after a power cut that is believed. So its content is fixed first, then all that was
put into the other queues is had on their disks, then it is written: nothing is done in it whose copy could be lost.
Once it is on the disk, the other queues are told what never comes again. Nobody who leads a group commit can do that
for a group, since leading in two queues at a time they would wait for each other; with SYNC it need not be done, for
there a message is done when its copies are on the disk.
"""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors, later, log
from shmq._native.layout import snapshot as layout
from shmq.hints import TYPE_CHECKING
from shmq.session import Session
from shmq.storage import acks, forgotten, sources, space, volatile
from shmq.storage.chain import Chain
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.membership import Membership
    from shmq.storage.directory import Directory

EVERY = 1.0
"""Seconds between two snapshots."""
_PATIENCE_NS = 5_000_000_000
"""For how long another queue may keep us waiting for what is claimed there and not committed."""
_AGAIN = 0.01
_TRIES = 1000


class Lasting:
    """The snapshots of one group that forwards; by whoever has its queue open, for one thread at a time."""

    def __init__(self, home: Directory, membership: Membership, name: str) -> None:
        """Nothing is mapped yet."""
        self._home = home
        self._membership = membership
        self._name = name
        self._known: acks.Name | None = None
        self._last = b""
        self._said: set[str] = set()

    # ---- one snapshot
    def take(self) -> bool:
        """
        Have what is done by now on the disk; False when somebody else is at it, or another queue is out of reach.

        Raises:
            OSError, ShmqError: the disk refused, or the group was dropped.
        """
        home = self._home
        source = sources.read(home, self._name)
        if source is None or source.renewed:
            return source is None
        if self._known is None:
            self._known = acks.Name(home, self._name)
        content = self._known.fix()
        if _body(content) == self._last:
            return True
        if not self.have_on_disk(source):
            return False
        if not acks.write_fixed(home, self._membership.member, self._name, self._known, content):
            return False
        self._last = _body(content)
        self._tell(source, content)
        self._retire()
        return True

    def take_surely(self) -> None:
        """The same, when it takes some tries; for as long as another queue is not out of reach."""
        for _ in range(_TRIES):
            before = len(self._said)
            if self.take() or len(self._said) > before:
                return
            time.sleep(_AGAIN)

    def have_on_disk(self, source: sources.Source | None = None) -> bool:
        """Have all that was put into the other queues by now on their disks; whether it is."""
        home = self._home
        source = source or sources.read(home, self._name)
        if home.volatile or source is None:
            return True  # nothing is left of it, either
        there = [self._have_one_on_disk(place) for place in source.targets]  # all of them, whatever one says
        return all(there)

    def _have_one_on_disk(self, place: str) -> bool:
        if volatile.is_volatile(place):
            return True
        later.ready("shmq.durability")
        from shmq.durability import Syncer  # noqa: PLC0415  # only who forwards pays for it

        try:
            with contextlib.closing(Session(place, create=False, trusted=True)) as target:
                Syncer(target.home, target.joined()).tick(_native.monotonic_ns() + _PATIENCE_NS)
        except errors.NotFound:
            if not os.path.isdir(os.path.dirname(place)):
                return self._out_of_reach(place, f"there is no directory {os.path.dirname(place)}")
            sources.remove(self._home, self._name, place)  # it was deleted, with all that was put there
        except (errors.ShmqError, OSError) as problem:
            return self._out_of_reach(place, problem)
        return True

    def _out_of_reach(self, place: str, problem: object) -> bool:
        if place not in self._said:
            self._said.add(place)
            log.say(
                log.WARNING,
                "what group %r of %s has forwarded to %s cannot be had on the disk there: %s. Until that can be done, "
                "all of it would come again after a power cut, and what is finished keeps its disk space; nothing is "
                "lost",
                self._name,
                self._home.path,
                place,
                problem,
            )
        return False

    def _tell(self, source: sources.Source, content: bytes) -> None:
        """Tell the other queues what never comes again. Who is not told now is told by the next snapshot."""
        floor, runs = _native.open_in(content)
        for place in source.targets:
            with (
                contextlib.suppress(errors.ShmqError, OSError),
                contextlib.closing(Session(place, create=False, trusted=True)) as target,
            ):
                forgotten.hand_over(target.home, source.incarnation, floor, runs)

    def _retire(self) -> None:
        """What has waited for this may go."""
        member = self._membership.member
        space.retire(self._home, Chain(self._home, member), member.control)


def _body(content: bytes) -> bytes:
    """Without what differs in two snapshots that say the same."""
    return content[layout.epoch : layout.crc] + content[layout.done :]


def take_all(session: Session) -> None:
    """The snapshots of all groups of that queue that forward, as they are now."""
    for name in session.home.consumer_names():
        if sources.is_one(session.home, name):
            with contextlib.suppress(
                errors.NotFound, errors.Corrupt
            ):  # dropped, or damaged, which its members are told
                Lasting(session.home, session.joined(), name).take_surely()


class Keeper:
    """A member's thread that takes them about once a second, unless another member of the group has."""

    def __init__(self, lasting: Lasting, sequence: Callable[[], int]) -> None:
        """*sequence* says that of the newest snapshot. It begins with `start`."""
        self._lasting = lasting
        self._sequence = sequence
        self._worker = Worker(self._work, "shmq-lasting")

    def start(self) -> None:
        """Begin, unless it has: of a start that was interrupted, whoever ends it must know."""
        self._worker.start()

    def _work(self) -> None:
        seen = self._sequence()
        while not self._worker.pause(EVERY):
            now = self._sequence()
            if now == seen:
                with contextlib.suppress(errors.ShmqError, OSError):
                    self._lasting.take()
                now = self._sequence()
            seen = now

    def end(self, wake: Callable[[], None]) -> None:
        """No more of them by this member."""
        self._worker.end(wake)

    def last(self) -> None:
        """One more, behind the end."""
        self._lasting.take()
