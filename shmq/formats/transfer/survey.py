"""What is in a queue that is to be written as another format: that must be known before, and what would be lost."""

from __future__ import annotations

import bisect
import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.formats.model import NO_TIME
from shmq.formats.transfer.followers import NAMELESS
from shmq.formats.transfer.messages import SOURCE, about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import shmq
    from shmq.formats.model import Place
    from shmq.formats.transfer.batches import Batches
    from shmq.formats.transfer.followers import Follower


class Survey(NamedTuple):
    """What a walk through a queue has found."""

    first: int
    stop: int
    messages: int
    places: dict[str, int]
    """{consumer: how many of the messages come before its head}."""
    done: dict[str, tuple[int, ...]]
    """{consumer: the numbers, counting from 0, of the messages behind its head that it has finished}."""
    opened: dict[int, int]
    """{number: id} of the messages that become open transactions of a Kestrel queue."""
    has: collections.Counter[str]
    """How many messages have a key, a type, ...; or a place in a Chronicle queue that they cannot have again."""
    within: Mapping[str, str] = {}
    """{consumer: "directory/reader"} of those that read one directory of a sej root."""

    def losses(self, format: str) -> list[str]:  # noqa: A002
        """What a format would lose of the queue."""
        lost = [
            f"the {kind} of {self.has[kind]:,} message{'s' * (self.has[kind] != 1)}"
            for kind in _LOST[format]
            if self.has[kind]
        ]
        if self.places and not _keeps_consumers(format):
            lost.append(f"{len(self.places):,} consumer{'s' * (len(self.places) != 1)}")
        elif format == "kestrel":
            lost += [f"consumer {name!r}: {NO_CHILD}" for name in self.places if not _names_a_child(name)]
        if format in _NOTHING_AHEAD:
            lost += [
                f"that consumer {consumer!r} has finished {len(done):,} message{'s' * (len(done) != 1)} out of order"
                for consumer, done in self.done.items()
                if done
            ]
        return lost

    def consumers(self, format: str) -> list[str]:  # noqa: A002
        """Those that go along to a format."""
        if not _keeps_consumers(format):
            return []
        return [name for name in self.places if format != "kestrel" or _names_a_child(name)]

    def places_in(self, format: str) -> dict[str, Place] | None:  # noqa: A002
        """
        Its consumers, as a format places them.

        Kestrel has no such name as "": it is the queue itself. libkestrel has it for a reader that is the only one; of
        several, the real program deletes it.
        """
        shift = 0 if format == "kestrel" else self.first
        is_nameless = {"libkestrel": len(self.places) == 1, "kestrel": NAMELESS in self.done}
        places: dict[str, Place] = {}
        for each in self.consumers(format):
            called = "" if each == NAMELESS and is_nameless.get(format) else each
            done = () if format in _NOTHING_AHEAD else self.done.get(each, ())
            numbers = tuple(shift + (format == "libkestrel") + at for at in done)
            places[called] = shift + self.places[each], numbers
        return places or None

    def placed_in(self, format: str, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
        """Its consumers, as `write` is given them; sej finds those of several directories as it writes."""
        if format == "sej" and (options.get("by_dir") or options.get("shard_bit") is not None):
            return {"passed": {self.within.get(name, name): at for name, at in self.places.items()}}
        return {"consumers": self.places_in(format)}


_LOST = {
    "kestrel": ("key", "type", "attempts", "headers"),
    "libkestrel": ("key", "type", "headers"),
    "sej": ("expiry", "attempts", "headers"),
    "qewqew": ("time", "key", "type", "expiry", "attempts", "headers"),
    "chronicle": ("time", "place", "emptiness", "key", "type", "expiry", "attempts", "headers"),
}
_NOTHING_AHEAD = frozenset({"sej", "chronicle"})
"""The formats whose consumers have one number each, and finish messages in order."""


NO_CHILD = "a fan-out child of Kestrel has no '.', '/' and '~' in its name"


def _names_a_child(name: str) -> bool:
    """Whether Kestrel can have a child of that name: its rule for queues, of which a child is one."""
    return not set(name) & {".", "/", "~", "\0"}


def _keeps_consumers(format: str) -> bool:  # noqa: A002
    return format != "qewqew"


# ---------------------------------------------------------------- of a shmq queue
def survey(queue: shmq.Queue, progress: Callable[[str, int], object]) -> Survey:
    """Walk a shmq queue once."""
    first, stop = queue.first_index, queue.next_index
    heads, groups = {}, {}
    for name, each in queue.consumers().items():
        if each.group is not None:
            groups[name] = queue.group_place(name)
        heads[name] = each.head if each.group is None else groups[name].head
    marks = {*heads.values(), *(index for place in groups.values() for index in place.done)}
    wanted = collections.deque(sorted(mark for mark in marks if first <= mark < stop))
    before: dict[int, int] = {}
    padding: set[int] = set()
    has: collections.Counter[str] = collections.Counter()
    opening = _Opening(groups.get(NAMELESS))
    messages = 0
    for found in queue.read_columns(first, stop, ("index", "key", "type", "headers")):
        indexes = found["index"]
        while wanted and indexes[-1] >= wanted[0]:
            mark = wanted.popleft()
            at = bisect.bisect_left(indexes, mark)
            before[mark] = messages + at
            if indexes[at] != mark:
                padding.add(mark)
        has["key"] += len(indexes) - found["key"].count(None)
        has["type"] += len(indexes) - found["type"].count(0)
        if any(found["headers"]):
            _count_headers(found["headers"], has)
        opening.look(indexes, found["headers"], messages)
        messages += len(indexes)
        progress("looked at", messages)
    has["time"] = messages
    places = {
        name: 0 if head <= first else messages if head >= stop else before.get(head, messages)
        for name, head in heads.items()
    }
    done = {
        name: tuple(before[index] for index in place.done if index in before and index not in padding)
        for name, place in groups.items()
    }
    return Survey(first, stop, messages, places, done, opening.found, has)


class _Opening:
    """
    What of a queue are open transactions for Kestrel: messages at its beginning that came as such, or that are held.

    Its open transactions stand before all other items. So they end at the first message that nobody has.
    """

    def __init__(self, group: Any) -> None:
        """*group* is the place of the group that is the Kestrel queue itself, if there is one."""
        self.found: dict[int, int] = {}
        self._head = group.head if group else 0
        self._done = frozenset(group.done if group else ())
        self._held = frozenset(group.open if group else ())
        self._over = False
        self._given: set[int] = set()
        self._last = 0

    def look(self, indexes: list[int], headers: list[dict[str, Any]], before: int) -> None:
        """Look at messages before which there were so many."""
        if self._over:
            return
        for at, (index, header) in enumerate(zip(indexes, headers, strict=True)):
            if index < self._head or index in self._done:
                continue
            xid = about(header).get("xid")
            if xid is None and index not in self._held:
                self._over = True
                return
            if xid is None or xid in self._given:
                xid = self._free()
            self._given.add(xid)
            self.found[before + at] = xid

    def _free(self) -> int:
        """The next id that none of them has so far."""
        self._last += 1
        while self._last in self._given:
            self._last += 1
        return self._last


_OF_USE = frozenset({"expires_ns", "attempts", "xid", "no_time"})
"""What of the header `source` some format has a place for."""


def _count_headers(found: list[dict[str, Any]], has: collections.Counter[str]) -> None:
    """Count what the headers of some messages hold: by their shapes, of which there are few."""
    outer = collections.Counter(map(tuple, found))
    has["headers"] += sum(count for names, count in outer.items() if names not in {(), (SOURCE,)})
    inner = collections.Counter(map(tuple, map(about, found)))
    for names, count in inner.items():
        has["cycle"] += count * ("cycle" in names)
        if not _OF_USE.isdisjoint(names):
            has["source"] += count
            has["expiry"] += count * ("expires_ns" in names)
            has["attempts"] += count * ("attempts" in names)


# ---------------------------------------------------------------- of a foreign one
def survey_foreign(batches: Batches, found: list[Follower], progress: Callable[[str, int], object]) -> Survey:
    """Walk a foreign queue once, with its consumers."""
    has: collections.Counter[str] = collections.Counter()
    opened: dict[int, int] = {}
    count = timed = 0
    for batch in batches.some():
        for each in found:
            each.look(batch, count)
        for entry in batch:
            timed += entry.time_ns is not None and entry.time_ns != NO_TIME
            has["key"] += bool(entry.key)
            has["type"] += bool(entry.type)
            has["expiry"] += entry.expires_ns is not None
            has["attempts"] += bool(entry.attempts)
            if entry.extra and "xid" in entry.extra:
                opened[len(opened)] = entry.extra["xid"]
        count += len(batch)
        progress("looked at", count)
    has["time"] = timed
    places = {each.called: count if each.at is None else each.at for each in found if each.comes}
    done = {each.called: tuple(each.finished) for each in found if each.comes and each.group}
    within = {each.called: each.name for each in found if each.comes and "/" in each.name}
    return Survey(0, count, count, places, done, opened, has, within)
