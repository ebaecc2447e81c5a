"""
Room in a bounded queue: how far a producer may put, and what it does when that is not far enough.

What a bound counts lies between the smallest head of all names and the tail. Nothing is counted anywhere else, so a
process that dies leaves nothing wrong: the limit that is computed here belongs to one handle of one process, and the
core holds each claim against it (cffi_build/src/chunk/bounds.c).
"""

from __future__ import annotations

import contextlib

from shmq import _native, ending, errors, locks
from shmq.deadlines import sooner
from shmq.hints import TYPE_CHECKING
from shmq.storage import floors, laggards

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.membership import Membership
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

_DROPS = 64
"""How often room is made that somebody else takes, before a put looks at its deadline."""


class Room:
    """What one producer knows of the room in its queue."""

    def __init__(self, home: Directory, membership: Membership, chain: Chain) -> None:
        """Nothing is known yet."""
        self._home = home
        self._membership = membership
        self._control = membership.control
        self._chain = chain
        self._lock = locks.Lock()
        self._names = floors.Names(home, membership.member)
        self._names_moved = -1
        self._chunk: _native.Chunk | None = None  # where the smallest head was last
        self._sealed: dict[int, int] = {}  # by sequence: bytes in chunks that are full
        self._left_out: list[tuple[int, int]] | None = None

    def make(
        self, tail: _native.Chunk, count: int, region: int, deadline_ns: int, check_open: Callable[[], None]
    ) -> None:
        """
        Return when *count* messages of *region* bytes may be claimed in *tail*, as far as the bounds go.

        Raises:
            Full: there is no room, and it is not to be waited for (any longer).
            TooMany, TooLarge: there never can be.
        """
        if self._fits(tail, count, region):
            return
        while True:
            self._refuse_the_impossible(count, region)  # each time: the bounds may have been changed meanwhile
            check_open()  # which goes by the options as they are now
            policy = self._home.options.full
            if policy == "drop_oldest" and self._drop_for(tail, count, region, deadline_ns):
                return
            if ending.over(self._home, self._control):
                return  # the next try says so
            late = 0 <= deadline_ns <= _native.monotonic_ns()
            if policy == "raise" or (late and not self._fits(tail, count, region, again=True)):
                raise errors.Full(self._story(count, region))
            look_ns = self._tell_of_laggards()
            seen = self._membership.member.room_begin()
            if self._fits(tail, count, region, again=True):
                return
            if not ending.over(self._home, self._control):
                self._membership.sleep_for_room(seen, sooner(sooner(deadline_ns, self._names.due_ns), look_ns))
            if self._fits(tail, count, region, again=True):
                return

    def _tell_of_laggards(self) -> int | None:
        """When to look again who holds everything back, since boot."""
        with self._lock:
            found = self._names.floors(self._control.bounds().dropped)
        return laggards.tell(self._home, self._chain, self._control, found)

    def allow_set(self, tail: _native.Chunk, count: int, region: int) -> None:
        """
        Have *tail* sealed only where *count* indexes of *region* bytes may follow.

        Raises:
            Full: there is no room for them now.
            TooMany, TooLarge: there never can be.
        """
        if not self._control.bounds().moved:
            return
        self._refuse_the_impossible(count, region)
        if not self._fits(tail, count, region, again=True, ahead=True):
            raise errors.Full(self._story(count, region))

    # ---- the limit
    def _fits(self, tail: _native.Chunk, count: int, region: int, *, again: bool = False, ahead: bool = False) -> bool:
        """Set the limit of *tail*; whether that much may be put there now."""
        with self._lock:
            bounds = self._control.bounds()
            if again:  # we are about to wait for it: no name that has gone may hold us
                self._names_moved = -1
            floor = self._floor(bounds)
            ordinals = position = _native.NO_LIMIT
            if bounds.max_messages:
                ordinals = max(floor + bounds.max_messages - tail.base, 0)
                if tail.next_index() - tail.base + count > ordinals:
                    floor = self._stand(floor)[0]
                    never = sum(size for behind, size in self._gaps() if floor < behind <= tail.base)
                    ordinals = max(floor + never + bounds.max_messages - tail.base, 0)
            end = tail.filled()[0]
            if bounds.max_bytes:
                end, used = self._used(tail, floor)
                position = max(end + bounds.max_bytes - used, 0)
            fits = tail.next_index() - tail.base + count <= ordinals and end + region <= position
            if ahead:  # the limit is for the SEAL in front of them
                ordinals -= count if ordinals != _native.NO_LIMIT else 0
                position -= region if position != _native.NO_LIMIT else 0
            tail.limit(bounds.moved, max(ordinals, 0), max(position, 0))
            return fits

    def _floor(self, bounds: _native.Bounds) -> int:
        """The first index that some name has not finished; without names, 0 or what is not dropped."""
        if bounds.moved != self._names_moved:
            self._names.look()
            self._names_moved = bounds.moved
        return min(self._names.floors(bounds.dropped).values(), default=bounds.dropped)

    def _stand(self, index: int) -> tuple[int, _native.Chunk | None, int]:
        """The first message or claim at or behind *index*: its index, chunk and position."""
        while True:
            chunk = self._chunk
            if chunk is not None and chunk.sequence < self._control.first_live():
                chunk = None  # it is mapped here yet, and holds nothing up: retention has taken it
            with contextlib.suppress(errors.Gone, FileNotFoundError):  # retired meanwhile: look again
                if chunk is None or not chunk.base <= index:
                    found = self._chain.locate(index)
                    if found is None:
                        return index, None, 0
                    chunk = self._chain.open(*found)
                while True:
                    found_index, position, ends = chunk.floor(max(index, chunk.base))
                    following = self._chain.after(chunk) if ends else None
                    if following is None:
                        self._chunk = chunk
                        return found_index, chunk, position
                    chunk = following
            self._chunk = None

    def _gaps(self) -> list[tuple[int, int]]:
        """
        (the first index behind it, its size) of each span of indexes that were never given: no message stands there.

        A recovery leaves one, and no recovery comes while somebody has the queue open: so they stay what they are.
        """
        if self._left_out is None:
            names = self._chain.names() if self._home.journal.epoch > 1 else []
            self._left_out = []
            for sequence, base in names:
                with contextlib.suppress(errors.Gone, FileNotFoundError):  # retired: no head is as low as that
                    chunk = self._chain.open(sequence, base)
                    behind = chunk.sealed()
                    if behind is not None and behind > chunk.next_index():
                        self._left_out.append((behind, behind - chunk.next_index()))
        return self._left_out

    def _used(self, tail: _native.Chunk, floor: int) -> tuple[int, int]:
        """Where *tail* is filled to, and how many bytes lie from the message at *floor* to there."""
        _, chunk, position = self._stand(floor)
        if chunk is None or chunk.sequence > tail.sequence:
            return tail.filled()[0], 0  # it is sealed, and finished
        if chunk.sequence == tail.sequence:
            return tail.filled(position)
        used = chunk.filled(position)[1]
        for sequence, base in self._chain.names() if chunk.sequence + 1 < tail.sequence else ():
            if chunk.sequence < sequence < tail.sequence:
                if sequence not in self._sealed:
                    with contextlib.suppress(FileNotFoundError):  # retired since they were listed: it counts no more
                        self._sealed[sequence] = self._chain.open(sequence, base).filled()[1]
                used += self._sealed.get(sequence, 0)
        self._sealed = {sequence: size for sequence, size in self._sealed.items() if sequence > chunk.sequence}
        end, here = tail.filled()
        return end, used + here

    # ---- dropping
    def _drop_for(self, tail: _native.Chunk, count: int, region: int, deadline_ns: int) -> bool:
        """Whether there is room once the oldest were dropped; not while somebody has them, nor when the time is up."""
        tries = _DROPS
        while self._drop(tail, count, region):
            if self._fits(tail, count, region, again=True):
                return True
            tries -= 1  # somebody else put in its place
            if tries <= 0 and 0 <= deadline_ns <= _native.monotonic_ns():
                return False
        return False

    def _drop(self, tail: _native.Chunk, count: int, region: int) -> bool:
        """Drop the oldest that stand in the way; False when somebody has one of them and has not acknowledged it."""
        with self._lock:
            bounds = self._control.bounds()
            floor, chunk, position = self._stand(self._floor(bounds))
            target = floor
            if bounds.max_messages:
                keep_from = tail.next_index() + count - bounds.max_messages
                for behind, size in reversed(self._gaps()):
                    keep_from -= size if keep_from < behind <= tail.base else 0
                target = max(target, keep_from)
            if bounds.max_bytes and chunk is not None:
                excess = self._used(tail, floor)[1] + region - bounds.max_bytes
                target = max(target, self._behind(chunk, floor, position, excess))
            if not self._names.drop(target):
                return False
            self._control.drop(target)
        return True

    def _behind(self, chunk: _native.Chunk, index: int, position: int, excess: int) -> int:
        """The index before which *excess* bytes lie, counted from the message at *index*."""
        while excess > 0:
            here = chunk.filled(position)[1]
            following = self._chain.after(chunk) if here < excess else None
            if following is not None:
                excess -= here
                chunk = following
                index, position, _ = chunk.floor(chunk.base)
                continue
            index, position, ends = chunk.floor(index + 1)
            excess -= here - chunk.filled(position)[1]
            if ends or position >= chunk.filled(position)[0]:
                break
        return index

    # ---- saying no
    def _refuse_the_impossible(self, count: int, region: int) -> None:
        bounds = self._control.bounds()
        if bounds.max_messages and count > bounds.max_messages:
            raise errors.TooMany(
                f"cannot put {count} messages at once into {self._home.path}: max_messages={bounds.max_messages}, so "
                "there never is room for them; nothing was put"
            )
        if bounds.max_bytes and region > bounds.max_bytes:
            raise errors.TooLarge(
                f"cannot put {region} bytes, with what is kept beside the payload, into {self._home.path}: "
                f"max_bytes={bounds.max_bytes}, so there never is room for them; nothing was put"
            )

    def _story(self, count: int, region: int) -> str:
        bounds = self._control.bounds()
        with self._lock:
            floor = self._floor(bounds)
            behind = [name for name, its in self._names.floors(bounds.dropped).items() if its == floor]
        limits = [f"max_messages={bounds.max_messages}"] if bounds.max_messages else []
        limits += [f"max_bytes={bounds.max_bytes}"] if bounds.max_bytes else []
        who = f"consumer {behind[0]!r} is the furthest behind, at index {floor}" if behind else self._nobody()
        what = "1 message" if count == 1 else f"{count} messages"
        return (
            f"cannot put {what} of {region} bytes into {self._home.path}: there is no room for "
            f"{'it' if count == 1 else 'them'} ({', '.join(limits)}); {who}; nothing was put"
        )

    def _nobody(self) -> str:
        """Why no name's progress makes room."""
        there = [repr(name) for name in self._home.consumer_names()]
        if not there:
            return "no consumer has a name"
        shown = ", ".join(there[:3]) + ", ..." * (len(there) > 3)
        return f"no name is there that holds messages, and so makes room by finishing them ({shown}: hold='nothing')"
