"""
The whole queue in plain Python: every verb, every option, what a name may be handed and what it must be.

It answers with what is certain. Where the promises leave two answers open (a group after a power cut; padding that
nobody has walked over yet) it says MAYBE, and the machine accepts both and learns which it was.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

MAYBE = "maybe"
SHORT = 0.02
"""A lease that ends while a test runs, in seconds."""
FRESH, HELD, BACK, LATER, DONE, DEAD, UNSURE = "FRESH", "HELD", "BACK", "LATER", "DONE", "DEAD", "UNSURE"


def now_ns() -> int:
    """The clock that leases go by."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclasses.dataclass
class Entry:
    """
    A message as it was put.

    `expired`: at once; `later`: it is delayed beyond the end of the test; `time_ns`: None for when it was put.
    `more`: so many bytes that its payload has besides.
    """

    payload: Any
    key: bytes | None = None
    type: int = 0
    headers: dict[str, Any] | None = None
    expired: bool = False
    later: bool = False
    time_ns: int | None = None
    more: int = 0


class Alone:
    """A name that one process holds at a time."""

    kind = "exclusive"

    def __init__(self, log: Log, *, explicit: bool, start: int, hold: bool = False) -> None:
        self.log, self.explicit, self.head, self.handed, self.hold = log, explicit, start, start, hold
        self.handle: Any = None
        self.synced = True
        """Whether no seek back was refused by the disk."""
        self.reopen()

    def reopen(self) -> None:
        self.at, self.handed_before = self.head, self.handed
        self.unacked: dict[int, bool] = {}

    def next(self) -> int | None:
        """The index that comes next; None when nothing can be had (what is delayed is waited for)."""
        for index in range(max(self.at, self.log.first()), self.log.next):
            if self.waits_at(index):
                return None if self.log.entries[index].later else index
        return None

    def waits_at(self, index: int) -> bool:
        """Whether nothing behind that index comes before it."""
        entry = self.log.entries.get(index)
        return entry is not None and not entry.expired and index >= self._passed(index)

    def may_come(self, index: int) -> bool:
        """Whether that one may, also when retention has taken it: who has its chunk mapped may have it yet."""
        return index >= self.at and self.waits_at(index) and not self.log.entries[index].later

    def _passed(self, index: int) -> int:
        """What was dropped or purged does not come, but for what this name was handed since it sought."""
        return self.log.dropped if index >= self.handed else 0

    def _gone(self, index: int) -> int:
        """The same, and what retention has taken: there is nothing to wait for."""
        return max(self._passed(index), self.log.retired)

    def hand_out(self, index: int, *, finished: bool = False) -> None:
        if not self.unacked:  # what lies before it was passed
            self.head = max(self.head, index)
        self.at, self.handed = index + 1, max(self.handed, index + 1)
        self.unacked[index] = finished or not self.explicit
        self._settle()

    def ack(self, index: int) -> None:
        if index in self.unacked:
            self.unacked[index] = True
            self._settle()

    def _settle(self) -> None:
        while self.unacked and self.unacked[first := next(iter(self.unacked))]:
            del self.unacked[first]
            self.head = max(self.head, next(iter(self.unacked), self.at))

    def seek(self, index: int) -> None:
        self.head = index
        self.reopen()
        self.handed = min(self.handed, index)

    def forgets(self, head: int) -> None:
        """A power cut: it goes on where the disk has it, and what it finished since may come again."""
        self.head, self.handed = head, max(head, self.handed) if self.explicit else head
        self.reopen()

    def held(self) -> list[int]:
        return [index for index, done in self.unacked.items() if not done]

    def pending(self) -> int:
        return len(self.held())

    def holds(self) -> list[int]:
        """P13: also what it was handed before it was opened again, and never acknowledged."""
        return self.held() + [index for index in self.log.entries if self.at <= index < self.handed]

    def floor(self, *, most: bool = False) -> int:
        """The first index that it needs; *most*: once it has looked as far as it can."""
        index = self.head
        while most and index < self.log.next and (self.log.is_nothing(index) or index < self._gone(index)):
            index += 1
        return index

    def purge(self, end: int) -> None:
        if self.handle is None:  # else it passes what was purged when it looks, but for what it had
            self.head, self.handed = max(self.head, end), max(self.handed, end)
            self.reopen()

    def unfinished(self, slots: list[int], *, known: bool) -> tuple[int, int]:
        """
        What `lag` says: how many are not finished, and how many with what has expired and is not passed.

        *known*: as its holder knows it; others count what was acknowledged out of order, or passed on the way.
        """
        mine = {index for index, done in self.unacked.items() if not done}
        left = [index for index in self._left(slots) if index >= self.at or index in mine]
        least = sum(not self.log.is_nothing(index) or index in slots for index in left)
        return least, len(left) if known else len(self._left(slots))

    def _left(self, slots: list[int]) -> list[int]:
        """What is there from its head on, and was neither dropped nor purged before it had it."""
        first = max(self.head, self.log.first())
        return [index for index in (*self.log.entries, *slots) if index >= first and index >= self._passed(index)]


@dataclasses.dataclass
class Letters:
    """The dead letters of a group, by index: whatever became of the group since, they stay."""

    there: set[int] = dataclasses.field(default_factory=set)
    soon: set[int] = dataclasses.field(default_factory=set)
    """There once the group has been asked again."""
    perhaps: set[int] = dataclasses.field(default_factory=set)
    rests: bool = False
    """Some could not be moved: for up to a minute none is, then."""

    def asked(self) -> None:
        """Some member looked at all there is."""
        if self.rests:
            self.forgotten()
        self.there |= self.soon
        self.soon.clear()

    def all(self) -> set[int]:
        """Those that may be there."""
        return self.there | self.soon | self.perhaps

    def forgotten_at(self, index: int) -> None:
        """That one may never be moved."""
        self.soon.discard(index)
        self.perhaps.add(index)

    def dropped(self, end: int) -> None:
        """All before *end* is dropped, but what somebody has: not what came back, and nobody has asked for since."""
        for index in [index for index in self.soon if index < end]:
            self.forgotten_at(index)

    def forgotten(self) -> None:
        """What was not moved yet may never be."""
        self.perhaps |= self.soon
        self.soon.clear()


class Group:
    """A name that members share."""

    kind = "group"
    lone = hold = False

    def __init__(
        self, log: Log, name: str, *, explicit: bool, start: int, options: dict[str, Any], window: int
    ) -> None:
        self.log, self.explicit, self.start, self.options, self.window = log, explicit, start, options, window
        self.letters = log.letters.setdefault(name, Letters())
        self.state: dict[int, str] = {}
        self.holder: dict[int, int] = {}
        self.attempts: dict[int, int] = {}
        self.members: list[Any] = []
        self.serial = 0
        self.since: dict[int, int] = {}
        """A moment before it was handed out."""
        self.moved: set[int] = set()
        """Of the dead ones, those whose letters were seen: what is set aside is moved a little later, by a thread."""
        self.before = self.letters.all()
        self.uncounted: set[int] = set()
        """What may have been handed out more often than is known."""
        self.kept: set[int] = set()
        """What its holder has extended beyond the end of the test."""

    @property
    def lease(self) -> float | None:
        return self.options.get("lease")

    def is_loose(self, index: int) -> bool:
        """Whether its holder loses it with its lease: it may be anybody's by now, once somebody has looked."""
        return self.of(index) == HELD and self.lease == SHORT and index not in self.kept

    def loose(self) -> list[int]:
        return [index for index in self.log.entries if self.is_loose(index)]

    def has_ended(self, index: int) -> bool:
        """Whether its lease may have ended: no lease ends early."""
        return self.is_loose(index) and now_ns() >= self.since[index] + SHORT * 1e9

    def gives_up(self, index: int) -> bool:
        """Whether it was handed out as often as it may be."""
        most = self.options.get("max_attempts")
        return most is not None and self.explicit and self.attempts.get(index, 0) >= most

    def may_be_over(self, index: int) -> bool:
        """Whether nobody may need what is held: who has it loses it, and then it goes."""
        over = self.gives_up(index) or index in self.uncounted or index < self.log.dropped
        return self.is_loose(index) and over

    def of(self, index: int) -> str:
        return self.state.get(index, FRESH) if index >= self.start else DONE

    def waits(self, index: int, *, surely: bool) -> bool:
        """With ordered_by="key": whether one before it of its key is not finished."""
        key = self.log.entries[index].key
        if self.log.loses and not surely:
            return False  # what was before it may have gone meanwhile
        return (
            self.options.get("ordered_by") == "key"
            and key is not None
            and any(
                other < index
                and self.log.entries[other].key == key
                and (
                    (self.unfinished_at(other) and (surely or not self.may_be_over(other)))
                    or (surely and self.may_have_no_room(other))
                )
                and (surely or self.of(other) != UNSURE)
                for other in self.log.entries
            )
        )

    def unfinished_at(self, index: int) -> bool:
        if self.of(index) == HELD:  # also when it was purged: who has it may finish it
            return True
        return not (self.of(index) in (DONE, DEAD) or self.log.entries[index].expired or index < self._gone(index))

    def may_have_no_room(self, index: int) -> bool:
        """Whether it is to be moved to another queue, and waits on a small disk for room there."""
        return self.log.small and self.of(index) != DONE and (self.of(index) == DEAD or self.log.entries[index].expired)

    def _gone(self, index: int) -> int:
        return self.log.purged if self.of(index) == HELD else self.log.dropped

    def available(self, *, surely: bool = True) -> list[int]:
        """What may be handed out now; *surely*: what must be, if a member keeps asking."""
        found = []
        for index, entry in self.log.entries.items():
            state = self.of(index)
            fits = state in (FRESH, BACK) or (not surely and (state == UNSURE or self.has_ended(index)))
            if not fits or entry.expired or index < self._gone(index):
                continue
            if index < self.log.first() and (surely or not self.log.loses):  # who has its chunk mapped may have it yet
                continue
            if (entry.later and self.attempts.get(index, 0) == 0) or self.waits(index, surely=surely):
                continue
            if self.gives_up(index):
                continue
            found.append(index)
        return found

    def hand_out(self, index: int, member: int) -> int:
        self.attempts[index] = self.attempts.get(index, 0) + 1
        self.state[index] = HELD if self.explicit else DONE
        self.holder[index], self.since[index] = member, self.log.now
        self.kept.discard(index)
        self.uncounted.discard(index)
        if self.may_be_over(index):
            self.letters.perhaps.add(index)
        return self.attempts[index]

    def lose(self, index: int) -> None:
        """Its holder has it no more, and nobody else was handed it. What was purged or dropped is no letter then."""
        self.give_back(index, later=False)
        if index < self.log.dropped or index in self.uncounted:
            self.state[index] = UNSURE
            self.letters.forgotten_at(index)

    def held_by(self, member: int) -> list[int]:
        return [index for index, state in self.state.items() if state == HELD and self.holder[index] == member]

    def holds(self) -> list[int]:
        """P13: also what a member is about to move to another queue, which a thread does a little later."""
        moves = {HELD} | ({DEAD} if self.explicit else set())
        held = [index for index, state in self.state.items() if state in moves and index not in self.moved]
        expires = self.options.get("expire_to") is not None
        return held + [index for index, entry in self.log.entries.items() if expires and entry.expired]

    def give_back(self, index: int, *, later: bool) -> None:
        most = self.options.get("max_attempts")
        if most is not None and self.attempts[index] >= most:
            self.state[index] = DEAD
            self.letters.soon.add(index)
        else:
            self.state[index] = LATER if later else BACK

    def may_have_counted(self) -> None:
        """A get that failed may have claimed what is parked, and given it back: an attempt more (not true yet)."""
        for index in self.available(surely=False) if self.explicit else []:
            if self.attempts.get(index):  # else it was never parked
                self.uncounted.add(index)
                self.letters.perhaps.add(index)
                if self.of(index) != HELD:
                    self.state[index] = UNSURE

    def may_have_lost(self) -> None:
        """Who took for longer than a lease may have lost any of what there was, unless it was quicker than that."""
        if self.lease == SHORT and now_ns() >= self.log.now + SHORT * 1e9:
            for index in self.available(surely=False):
                self.uncounted.add(index)
                self.letters.perhaps.add(index)
                if self.of(index) != HELD:
                    self.state[index] = UNSURE

    def reject(self, index: int) -> None:
        self.state[index] = DEAD
        self.moved.add(index)
        self.letters.there.add(index)

    def seen(self, letters: set[int]) -> None:
        """They are there; those of an index that had one before may be older."""
        self.moved |= {index for index in letters - self.before if self.of(index) == DEAD}

    def leave(self, member: int) -> None:
        for index in self.held_by(member):
            self.lose(index)

    def purge(self, end: int) -> None:
        for index in self.log.entries:
            if index < end and self.of(index) != HELD:
                self.state[index] = DONE if self.of(index) != DEAD else DEAD
        self.letters.forgotten()

    def floor(self, *, most: bool = False) -> int:
        """As `Alone.floor`."""
        over = (DONE, DEAD, UNSURE) if most else (DONE, DEAD)
        unfinished = [
            index
            for index, entry in self.log.entries.items()
            if index >= self.start
            and (self.of(index) not in over or (not most and self.of(index) == DEAD and index not in self.moved))
            and not (most and (entry.expired or index < self._gone(index) or self.may_be_over(index)))
        ]
        return min(unfinished, default=self.log.next)

    def seek(self, index: int) -> None:
        self.letters.forgotten()
        self.start = index
        self.state.clear()
        self.attempts.clear()
        self.holder.clear()
        self.moved.clear()
        self.before = self.letters.all()

    def forgets(self, dropped: range) -> None:
        """A power cut: acknowledgements may be forgotten, none is invented; attempts are not known; nor drops."""
        self.letters.forgotten()
        self.moved.clear()
        self.before = self.letters.all()
        for index, state in list(self.state.items()):
            if state in (DONE, DEAD) or self.may_be_over(index):
                self.state[index] = UNSURE
            elif state in (HELD, BACK, LATER):
                self.state[index] = BACK if state != LATER else UNSURE
        self.state.update((index, UNSURE) for index in self.log.entries if index in dropped and index >= self.start)
        self.attempts.clear()

    def unfinished(self, slots: list[int], *, known: bool) -> tuple[int, int]:
        """
        As `Alone.unfinished`; all members know the same.

        What is unsure may count, also if it was purged: nobody may have looked since its holder died.
        """
        del known
        entries = self.log.entries
        left = [
            index
            for index in (*entries, *slots)
            if index >= max(self.start, self.log.first())
            and self.of(index) != DONE
            and index not in self.moved
            and (self.of(index) in (HELD, UNSURE) or index >= self._gone(index))
        ]
        surely = sum(
            index in slots
            or (
                self.of(index) not in (UNSURE, DEAD)
                and (not entries[index].expired or self.of(index) == HELD)
                and not self.may_be_over(index)
            )
            for index in left
        )
        return surely, len(left)


class Log:
    """All that was put, who is at it, and what bounds it."""

    def __init__(self, start: int = 0, *, max_messages: int | None = None, full: str = "raise") -> None:
        self.entries: dict[int, Entry] = {}
        self.next, self.begin = start, start
        self.names: dict[str, Alone | Group] = {}
        self.once: dict[str, dict[int, range]] = {}
        self.adopted_once: set[tuple[str, int]] = set()
        self.max_messages, self.full = max_messages, full
        self.purged = self.dropped = 0
        self.loses = False
        """Whether retention takes what no name has finished."""
        self.small = False
        """Whether its disk is soon full."""
        self.retired = start
        """What the queue says is its first index: it may rise, as far as `floor`."""
        self.pads: set[int] = set()
        self.claims_of_the_dead: set[int] = set()
        """Those of `pads` that nobody may have come by yet."""
        self.finished = False
        self.ends = 0
        """How often the stream ended for good."""
        self.letters: dict[str, Letters] = {}
        self.now = now_ns()
        """A moment before what is being done was begun."""

    def first(self) -> int:
        return self.retired

    # ---- putting
    def add(self, entries: list[Entry]) -> range:
        indexes = range(self.next, self.next + len(entries))
        self.entries.update(zip(indexes, entries, strict=True))
        self.next = indexes.stop
        return indexes

    def pad(self, count: int = 1) -> int:
        index = self.next
        self.pads.update(range(index, index + count))
        self.next += count
        return index

    def jump(self, index: int) -> None:
        """A new epoch begins there: indexes between were given to nobody."""
        self.next = index

    def is_nothing(self, index: int) -> bool:
        """Whether no name needs that index: padding, a gap, or what has expired."""
        entry = self.entries.get(index)
        return entry is None or entry.expired

    def floor(self, *, most: bool = False) -> int:
        """What lies below is finished by every name; *most*: as soon as all have looked."""
        floors = [name.floor(most=most) for name in self.names.values()]
        floor = max(min(floors, default=self.retired), self.purged, self.dropped, self.retired)
        if most:
            return floor
        held = [index for name in self.names.values() for index in name.holds()]
        return max(min([floor, *held]), self.retired)  # what somebody has is neither dropped nor purged

    def fits(self, count: int) -> bool | str:
        """Whether *count* messages more are within the bound; MAYBE where who has looked, padding and gaps decide."""
        if self.max_messages is None:
            return True
        if count > self.max_messages:
            return False
        if self.next - self.floor() + count <= self.max_messages:
            return True
        floor = self.floor(most=True)
        surely = sum(floor <= index for index in self.entries)
        return MAYBE if surely + count <= self.max_messages else False

    def purge(self) -> None:
        for name in self.names.values():
            name.purge(self.next)
        self.purged = self.next
        self.dropped = max(self.dropped, self.next)
