"""
Between shmq queues and foreign formats: what becomes of a message, of a consumer, and what would be lost.

No verb of its own: import, export and convert share it. Only public names of shmq and shmq.formats are used.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import gc
import hashlib
import itertools
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq import formats
from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

FORMATS = formats.HERE
SOURCE = "source"
"""The header that keeps what only the foreign format knew: index, expiry, attempts, segment."""

BATCH, BATCH_BYTES = 4096, 8 << 20
FEW = 1024
"""A batch of fewer messages is not worth the claim, if there are more."""
PART = 1_000_000
FEW_PROBLEMS = 20
"""So many are said; `verify` says all."""
NO_TIME = -(1 << 63)
"""sej's message without a time; such a time is no time for shmq either."""
TIME_MAX = (1 << 63) - 1

REACH = 65_536
"""How far ahead of a group's head messages can be finished."""

LOGS = {"sej", "libkestrel"}
"""Their messages have numbers, which only ascend."""

_EVERY = 0.2
_NAMELESS = "default"
"""What libkestrel's nameless reader is called here."""


# ---------------------------------------------------------------- what the verbs say
def add_source(verb: argparse.ArgumentParser) -> None:
    """The arguments that name a foreign queue."""
    verb.add_argument(
        "source", type=show.place, metavar="SRC", help="the foreign queue: a directory, or QewQew's header file"
    )
    verb.add_argument("--format", choices=FORMATS, help="its format; found out if it is not given")
    verb.add_argument("--queue", metavar="NAME", help="which queue, where a folder holds several")


def format_of(path: str, given: str | None) -> str:
    """
    The format of what is at *path*.

    Raises:
        Problem: it is none of ours, or a shmq queue, which has verbs of its own.
    """
    found = given or formats.detect(path)
    if found == "shmq":
        raise show.Problem(f"{path} is a shmq queue; this verb is for foreign formats: {', '.join(FORMATS)}")
    if found not in FORMATS:
        there = "is in none of the formats" if os.path.exists(path) else "is not there; the formats are"
        raise show.Problem(f"{path} {there} {', '.join(FORMATS)}")
    return found


@contextlib.contextmanager
def no_cycles() -> Iterator[None]:
    """Have the garbage collector rest: what passes through is freed as it goes, and there is much of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Progress:
    """A line on stderr that says how far the work is, where somebody looks at it."""

    def __init__(self, what: str) -> None:
        """Nothing done yet."""
        self._what = what
        self._shown = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _EVERY

    def at(self, count: int) -> None:
        """Say that *count* messages are done, unless it was said a moment ago."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + _EVERY
            rate = count / (now - self._began)
            print(f"\r{self._what} {count:,} messages, {rate:,.0f}/s ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def over(self, entries: Iterable[formats.Entry]) -> Iterator[formats.Entry]:
        """The same entries, counted."""
        for count, entry in enumerate(entries, 1):
            if not count & 0x3FFF:
                self.at(count)
            yield entry
        self.end()


# ---------------------------------------------------------------- into shmq
class Damage(show.Problem):
    """The source is damaged, and that was not allowed."""


def say_damage(path: str, name: str, queue: str | None) -> None:
    """Say on stderr what of a source cannot be read, where it was allowed to be left out."""
    problems = formats.state(path, queue, name).problems
    for file, position, reason in problems[:FEW_PROBLEMS]:
        print(f"shmq: damaged: {file} at {position}: {reason}", file=sys.stderr)
    if len(problems) > FEW_PROBLEMS:
        print(f"shmq: damaged: {len(problems) - FEW_PROBLEMS:,} more; shmq verify names them", file=sys.stderr)


class Batches:
    """Lists of entries as they were read, made into batches that one claim can take."""

    def __init__(self, lists: Iterable[list[formats.Entry]]) -> None:
        """Nothing is read yet."""
        self._lists = iter(lists)
        self._rest: list[formats.Entry] = []
        self._damage: Damage | None = None

    def back(self, batch: list[formats.Entry]) -> None:
        """Take back a batch, or the end of one: it comes next."""
        self._rest = batch + self._rest

    def some(self, most: int | None = None) -> Iterator[list[formats.Entry]]:
        """Batches of the next *most* entries in all, or of all that are left."""
        left = sys.maxsize if most is None else most
        while left > 0:
            batch = self._next(min(left, BATCH))
            if not batch:
                return
            left -= len(batch)
            yield batch

    def _next(self, most: int) -> list[formats.Entry]:
        """Between 1 and *most* of them, none at the end: what was read at once, and more if that was little."""
        batch, self._rest = self._rest, []
        size = 0
        while len(batch) < FEW and size < BATCH_BYTES:
            found = self._read()
            if found is None:
                break
            if len(found) == 1:  # only alone may one be larger than the window it was read through
                size += len(found[0][0])
            batch = batch + found if batch else found
        if not batch and self._damage is not None:
            raise self._damage
        if len(batch) > most:
            batch, self._rest = batch[:most], batch[most:]
        return batch

    def _read(self) -> list[formats.Entry] | None:
        """What is read next; None at the end, and at damage, which is raised once all before it was given out."""
        try:
            return next(self._lists, None)
        except shmq.Corrupt as problem:
            self._damage = Damage(str(problem))
            return None


def put(staged: shmq.Staged, batch: list[formats.Entry]) -> None:
    """Stage a batch: what shmq has no field for goes into the header `source`."""
    payloads, indexes, times, expiries, keys, kinds, attempts, extras = zip(*batch, strict=True)
    headers: list[dict[str, Any] | None] | None = None
    stamps = None if times.count(None) == len(times) else times
    timeless = NO_TIME in times
    if stamps and (timeless or None in times or max(times) > TIME_MAX or min(times) < -TIME_MAX):
        now = time.time_ns()
        stamps = tuple(now if time_ns is None else in_range(time_ns) for time_ns in times)
    if timeless or any(expiries) or any(attempts):
        headers = [_source(entry) for entry in batch]
    elif any(extras):
        alike = extras.count(extras[0]) == len(extras)
        if indexes[0] is None and alike:
            headers = [{SOURCE: extras[0]}] * len(extras)
        elif indexes[0] is None:
            headers = [{SOURCE: extra} if extra else None for extra in extras]
        else:
            headers = [
                {SOURCE: {"index": index, **(extra or {})}} for index, extra in zip(indexes, extras, strict=True)
            ]
    elif indexes[0] is not None:
        headers = [{SOURCE: {"index": index}} for index in indexes]
    staged.put_many(
        payloads,
        keys=keys if any(keys) else None,
        types=[kind or 0 for kind in kinds] if any(kinds) else None,
        times_ns=stamps,
        headers=headers,
    )


def in_range(time_ns: int) -> int:
    """The nearest time that 64 bits of nanoseconds can hold: formats that count milliseconds reach further."""
    return max(-TIME_MAX, min(time_ns, TIME_MAX))


def _source(entry: formats.Entry) -> dict[str, Any] | None:
    about: dict[str, Any] = dict(entry.extra or {})
    expires_ns = None if entry.expires_ns is None else in_range(entry.expires_ns)
    known = {"index": entry.index, "expires_ns": expires_ns, "attempts": entry.attempts or None}
    about |= {name: value for name, value in known.items() if value is not None}
    if entry.time_ns == NO_TIME:
        about["no_time"] = True
    return {SOURCE: about} if about else None


def identity(path: str, name: str, queue: str | None) -> str:
    """
    Who a source is, so that what was imported from it is not imported again: its place, its inode and its name in it.

    However the place is given: by the folder, by the folder and the name, by one of the queue's files.
    """
    place = Path(path).resolve()
    if name in {"kestrel", "libkestrel"} and place.is_file():
        place, queue = place.parent, queue or place.name.partition(".")[0]
    elif queue is None and place.is_dir() and name != "sej":
        there = [each for each in formats.queues(place, name) if name != "kestrel" or "+" not in each]
        queue = there[0] if len(there) == 1 else ""  # reading says what is wrong
    if name == "qewqew" and place.is_dir():
        place, queue = place / (queue or ""), None
    info = place.stat()
    about = f"import {name} {place} {queue or ''} {info.st_dev}:{info.st_ino}"
    return "import " + hashlib.sha256(about.encode()).hexdigest()


class Follower:
    """One consumer of the source on its way into shmq: finds the place of the first message it still wants."""

    def __init__(
        self,
        name: str,
        called: str,
        wanted: int,
        label: str | None = None,
        *,
        done: tuple[int, ...] = (),
        shares: bool = False,
    ) -> None:
        """
        *wanted* is its next index in the source's own counting; *label* its directory in a sej root.

        What it has finished behind that is *done*, in that counting, too. *shares*: it is whoever shares a Kestrel
        queue, and comes along as a group if the queue begins with open transactions.
        """
        self.name = name
        self.called = called
        self.at: int | None = None
        """How many of the source's messages come before what it wants, once that is known."""
        self.finished: list[int] = []
        """The numbers, counting from 0, of those that it has finished behind that, as far as it was looked."""
        self.group = shares or bool(done)
        """Whether it becomes a group: its messages were handed to several, who finish them in any order."""
        self.comes = not shares
        """Whether it comes along; of who shares a Kestrel queue that is known once its first message was seen."""
        self._wanted = wanted
        self._label = label
        self._done = frozenset(index for index in done if index >= wanted)

    def look(self, batch: list[formats.Entry], before: int) -> None:
        """Look for its place in a batch, before which *before* messages were read."""
        if not before and not self.comes:
            self.comes = "xid" in (batch[0].extra or {})
        if self._done:
            self.finished += [before + at for at, entry in enumerate(batch) if entry[1] in self._done]
        if self.at is not None:
            return
        if self._label is not None:
            for number, entry in enumerate(batch):
                if (entry.index or 0) >= self._wanted and (entry.extra or {}).get("dir") == self._label:
                    self.at = before + number
                    return
        elif batch[0].index is None:
            if self._wanted < before + len(batch):
                self.at = max(self._wanted, before)
        elif (batch[-1].index or 0) >= self._wanted:
            self.at = before + bisect.bisect_left([entry.index or 0 for entry in batch], self._wanted)


def followers(path: str, name: str, queue: str | None) -> tuple[list[Follower], list[str]]:
    """The consumers of a foreign queue, and what of them would be lost."""
    found, losses = [], []
    if name == "qewqew":
        return [], []
    if name == "kestrel":
        # What was handed out and never confirmed is there again for whoever of its many readers comes first.
        found.append(Follower("", _NAMELESS, 0, shares=True))
    try:
        places = formats.consumers(path, queue, name)
    except shmq.Corrupt as problem:
        losses.append(f"where a consumer stands, so that it begins at the first message ({problem})")
        places = formats.state(path, queue, name).consumers
    for consumer, (head, done) in places.items():
        called = re.sub(r"[^A-Za-z0-9_.-]", ".", consumer)[-64:].lstrip(".") or _NAMELESS
        label, _, _ = consumer.rpartition("/")
        far = [index for index in done if index - (head or 0) > REACH]
        if far:
            losses.append(
                f"consumer {consumer!r} has confirmed {len(far)} messages more than {REACH:,} ahead of where it "
                "stands; they come again"
            )
        if head is None and name == "kestrel":
            losses.append(
                f"fan-out child {consumer!r} holds other items than its parent and is left out "
                f"(import {queue}+{consumer} as a queue of its own)"
            )
            continue
        if name == "sej" and label:
            losses.append(f"consumer {consumer!r} will see the messages of the other directories too")
        wanted = 0 if head is None else head + (name == "libkestrel")
        found.append(Follower(consumer, called, wanted, label if name == "sej" and label else None, done=done))
    if len(found) > 1 and _NAMELESS in [each.called for each in found[1:]]:
        found = [each for each in found if each.comes]  # a fan-out child has that name
    twice = [called for called, times in collections.Counter(each.called for each in found).items() if times > 1]
    if twice:
        raise show.Problem(f"several consumers of {path} would be called {twice[0]!r}; use --no-consumers")
    return found, losses


def refuse_losses(losses: list[str], *, lossy: bool) -> None:
    """
    Say what would be lost; go on only where that was allowed.

    Raises:
        Problem: it was not.
    """
    for loss in losses if lossy else []:
        print(f"shmq: lost: {loss}", file=sys.stderr)
    if losses and not lossy:
        raise show.Problem(
            f"this would be lost: {'; '.join(losses)}. Nothing was written; --lossy does it all the same"
        )


# ---------------------------------------------------------------- out of shmq
class Survey(NamedTuple):
    """What is in a queue, as an export must know it beforehand."""

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
    """How many messages have a key, a type, ..."""


def survey(queue: shmq.Queue, progress: Progress) -> Survey:
    """Walk the queue once."""
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
    opening = _Opening(groups.get(_NAMELESS))
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
            _survey_headers(found["headers"], has)
        opening.look(indexes, found["headers"], messages)
        messages += len(indexes)
        progress.at(messages)
    progress.end()
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


_OF_USE = frozenset({"expires_ns", "attempts", "xid", "no_time"})
"""What of the header `source` some format has a place for."""


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
            xid = _about(header).get("xid")
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


def _survey_headers(found: list[dict[str, Any]], has: collections.Counter[str]) -> None:
    """Count what the headers of some messages hold: by their shapes, of which there are few."""
    outer = collections.Counter(map(tuple, found))
    has["headers"] += sum(count for names, count in outer.items() if names not in {(), (SOURCE,)})
    inner = collections.Counter(map(tuple, map(_about, found)))
    for names, count in inner.items():
        if not _OF_USE.isdisjoint(names):
            has["source"] += count
            has["expiry"] += count * ("expires_ns" in names)
            has["attempts"] += count * ("attempts" in names)


_LOST = {
    "kestrel": ("key", "type", "attempts", "headers"),
    "libkestrel": ("key", "type", "headers"),
    "sej": ("expiry", "attempts", "headers"),
    "qewqew": ("time", "key", "type", "expiry", "attempts", "headers", "consumers"),
}


def losses_of(found: Survey, name: str) -> list[str]:
    """What a format would lose of a queue."""
    has = found.has
    lost = [f"the {kind} of {has[kind]:,} messages" for kind in _LOST[name] if kind != "consumers" and has[kind]]
    if "consumers" in _LOST[name] and found.places:
        lost.append(show.counted(len(found.places), "consumer"))
    if name == "sej":
        lost += [
            f"that consumer {consumer!r} has finished {len(done):,} messages out of order"
            for consumer, done in found.done.items()
            if done
        ]
    return lost


def consumers_kept(found: Survey, name: str) -> int:
    """How many consumers an export to that format takes along."""
    return 0 if "consumers" in _LOST[name] else len(found.places)


def entries(queue: shmq.Queue, found: Survey, name: str, progress: Progress) -> Iterator[formats.Entry]:
    """The messages of a queue as that format's entries, numbered as it wants them."""
    shift = found.first + (name == "libkestrel")
    count = 0
    # What none of them has is not read.
    wanted = [column for column in ("key", "type") if found.has[column]] + ["headers"] * bool(found.has["source"])
    none = itertools.repeat(None)
    for columns in queue.read_columns(found.first, found.stop, ["payload", "time_ns", *wanted]):
        payloads = columns["payload"][: found.messages - count]  # no more than were there when it was surveyed
        many = len(payloads)
        times: Iterable[int | None] = none if name == "qewqew" else columns["time_ns"]
        expiries: Iterable[int | None] = none
        attempts: Iterable[int | None] = none
        extras: Iterable[dict[str, Any] | None] = none
        if found.has["source"]:
            sources = [_about(headers) for headers in columns["headers"]]
            if name == "sej":
                times = [
                    NO_TIME if about.get("no_time") else at
                    for at, about in zip(columns["time_ns"], sources, strict=True)
                ]
            expiries = [about.get("expires_ns") for about in sources]
            attempts = [about.get("attempts") for about in sources]
        if name == "kestrel" and found.opened and count <= max(found.opened):
            extras = [
                {"xid": found.opened[number]} if number in found.opened else None
                for number in range(count, count + many)
            ]
        indexes = range(shift + count, shift + count + many)
        keys, kinds = columns.get("key") or none, columns.get("type") or itertools.repeat(0)
        fields = zip(payloads, indexes, times, expiries, keys, kinds, attempts, extras)  # noqa: B905  # some never end
        yield from map(formats.Entry._make, fields)
        count += many
        progress.at(count)


def _about(headers: dict[str, Any]) -> dict[str, Any]:
    """What an import knew of a message."""
    about = headers.get(SOURCE)
    return about if isinstance(about, dict) else {}


def places_in(found: Survey, name: str) -> dict[str, formats.Place]:
    """The consumers of a queue, as that format places them. Kestrel has no such name as "": it is the queue itself."""
    shift = 0 if name == "kestrel" else found.first
    nameless = {"libkestrel", "kestrel"} if _NAMELESS in found.done else {"libkestrel"}
    return {
        "" if name in nameless and each == _NAMELESS else each: (
            shift + before,
            () if name == "sej" else tuple(shift + (name == "libkestrel") + at for at in found.done.get(each, ())),
        )
        for each, before in found.places.items()
    }


def write(path: str, name: str, queue: str | None, found: Survey, source: shmq.Queue, *, lossy: bool) -> int:
    """Write the messages of *source* as a new foreign queue; how many."""
    places = None if name == "qewqew" else places_in(found, name) or None
    progress = Progress("exported")
    written = formats.write(path, entries(source, found, name, progress), name, queue, places, lossy=lossy)
    progress.end()
    return written


def queue_name(given: str | None, name: str, of: str) -> str | None:
    """The name of a queue to write, in the formats whose queues have one."""
    if given is not None or name not in {"kestrel", "libkestrel"}:
        return given
    return re.sub(r"[^A-Za-z0-9_-]", "-", Path(of).resolve().stem) or "queue"
