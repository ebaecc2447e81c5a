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
PART = 1_000_000
NO_TIME = -(1 << 63)
"""sej's message without a time; such a time is no time for shmq either."""
TIME_MAX = (1 << 63) - 1

_LOGS = {"sej", "libkestrel"}
_EVERY = 0.2
_NAMELESS = "default"
"""What libkestrel's nameless reader is called here."""


# ---------------------------------------------------------------- what the verbs say
def add_source(verb: argparse.ArgumentParser) -> None:
    """The arguments that name a foreign queue."""
    verb.add_argument("source", metavar="SRC", help="the foreign queue: a directory, or QewQew's header file")
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
def batches(entries: Iterable[formats.Entry]) -> Iterator[list[formats.Entry]]:
    """The entries in lists that one claim can take."""
    entries = iter(entries)
    while True:
        batch: list[formats.Entry] = []
        add = batch.append
        size = 0
        for entry in itertools.islice(entries, BATCH):
            add(entry)
            size += len(entry[0])
            if size >= BATCH_BYTES:
                break
        if not batch:
            return
        yield batch


def put(staged: shmq.Staged, batch: list[formats.Entry]) -> None:
    """Stage a batch: what shmq has no field for goes into the header `source`."""
    payloads, indexes, times, expiries, keys, kinds, attempts, extras = zip(*batch, strict=True)
    headers: list[dict[str, Any] | None] | None = None
    stamps = None if times.count(None) == len(times) else times
    timeless = NO_TIME in times
    if stamps and (timeless or None in times or max(times) > TIME_MAX or min(times) < -TIME_MAX):
        now = time.time_ns()
        stamps = tuple(now if time_ns is None else _in_range(time_ns) for time_ns in times)
    if timeless or any(expiries) or any(attempts):
        headers = [_source(entry) for entry in batch]
    elif any(extras):
        if indexes[0] is None and extras.count(extras[0]) == len(extras):
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


def _in_range(time_ns: int) -> int:
    """The nearest time that 64 bits of nanoseconds can hold: formats that count milliseconds reach further."""
    return max(-TIME_MAX, min(time_ns, TIME_MAX))


def _source(entry: formats.Entry) -> dict[str, Any] | None:
    about: dict[str, Any] = dict(entry.extra or {})
    expires_ns = None if entry.expires_ns is None else _in_range(entry.expires_ns)
    known = {"index": entry.index, "expires_ns": expires_ns, "attempts": entry.attempts or None}
    about |= {name: value for name, value in known.items() if value is not None}
    if entry.time_ns == NO_TIME:
        about["no_time"] = True
    return {SOURCE: about} if about else None


def identity(path: str, name: str, queue: str | None) -> str:
    """
    Who a source is, so that what was imported from it is not imported again.

    A log is what it is wherever its readers stand. Of a queue that is consumed, any change makes another source: what
    was its tenth message may be its first now.
    """
    place = Path(path).resolve()
    info = place.stat()
    about = f"import {name} {place} {queue or ''} {info.st_dev}:{info.st_ino}"
    if name not in _LOGS:
        folder = place if place.is_dir() else place.parent
        start = queue or ("" if place.is_dir() else place.name)
        with os.scandir(folder) as found:
            files = sorted(
                (each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in found if each.is_file()
            )
        about += repr([file for file in files if file[0].startswith(start)])
    return "import " + hashlib.sha256(about.encode()).hexdigest()


class Follower:
    """One consumer of the source on its way into shmq: finds the place of the first message it still wants."""

    def __init__(self, name: str, called: str, wanted: int, label: str | None = None) -> None:
        """*wanted* is its next index in the source's own counting; *label* its directory in a sej root."""
        self.name = name
        self.called = called
        self.at: int | None = None
        """How many of the source's messages come before what it wants, once that is known."""
        self._wanted = wanted
        self._label = label

    def look(self, batch: list[formats.Entry], before: int) -> None:
        """Look for its place in a batch, before which *before* messages were read."""
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
    try:
        places = formats.consumers(path, queue, name)
    except shmq.Corrupt as problem:
        losses.append(f"where a consumer stands, so that it begins at the first message ({problem})")
        places = formats.state(path, queue, name).consumers
    for consumer, (head, done) in places.items():
        called = re.sub(r"[^A-Za-z0-9_.-]", ".", consumer)[-64:].lstrip(".") or _NAMELESS
        label, _, _ = consumer.rpartition("/")
        if done:
            losses.append(f"consumer {consumer!r} has confirmed {len(done)} messages out of order; they come again")
        if head is None and name == "kestrel":
            losses.append(
                f"fan-out child {consumer!r} holds other items than its parent and is left out "
                f"(import {queue}+{consumer} as a queue of its own)"
            )
            continue
        if name == "sej" and label:
            losses.append(f"consumer {consumer!r} will see the messages of the other directories too")
        wanted = 0 if head is None else head + (name == "libkestrel")
        found.append(Follower(consumer, called, wanted, label if name == "sej" and label else None))
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
    opened: int
    """How many messages at the beginning are open transactions of a Kestrel queue."""
    has: collections.Counter[str]
    """How many messages have a key, a type, ..."""


def survey(queue: shmq.Queue, progress: Progress) -> Survey:
    """Walk the queue once."""
    heads = {name: each.head for name, each in queue.consumers().items()}
    first, stop = queue.first_index, queue.next_index
    marks = sorted({head for head in heads.values() if first < head < stop})
    before: dict[int, int] = {}
    has: collections.Counter[str] = collections.Counter()
    messages = opened = 0
    for found in queue.read_columns(first, stop, ("index", "key", "type", "headers")):
        indexes = found["index"]
        while marks and indexes[-1] >= marks[0]:
            mark = marks.pop(0)
            before[mark] = messages + bisect.bisect_left(indexes, mark)
        has["key"] += len(indexes) - found["key"].count(None)
        has["type"] += len(indexes) - found["type"].count(0)
        if any(found["headers"]):
            opened = _survey_headers(found["headers"], messages, opened, has)
        messages += len(indexes)
        progress.at(messages)
    progress.end()
    has["time"] = messages
    places = {
        name: 0 if head <= first else messages if head >= stop else before.get(head, messages)
        for name, head in heads.items()
    }
    return Survey(first, stop, messages, places, opened, has)


_OF_USE = frozenset({"expires_ns", "attempts", "xid", "no_time"})
"""What of the header `source` some format has a place for."""


def _survey_headers(found: list[dict[str, Any]], before: int, opened: int, has: collections.Counter[str]) -> int:
    """Count what the headers of some messages hold; how many open transactions there are at the beginning by then."""
    useless = _OF_USE.isdisjoint
    for count, headers in enumerate(found, before):
        if not headers:
            continue
        about = headers.get(SOURCE)
        if about is None or len(headers) > 1:
            has["headers"] += 1
        if about.__class__ is dict and not useless(about):
            has["source"] += 1
            has["expiry"] += "expires_ns" in about
            has["attempts"] += "attempts" in about
            if "xid" in about and opened == count:
                opened = count + 1
    return opened


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
        lost.append(f"{len(found.places)} consumers")
    return lost


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
            extras = _opened(sources, found.opened - count)
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


def _opened(extras: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any] | None]:
    """What of the first *count* is the format's own: that they are open transactions."""
    opened = ({"xid": extra["xid"]} for extra in extras[: max(0, count)])
    return itertools.chain(opened, itertools.repeat(None))


def places_in(found: Survey, name: str) -> dict[str, formats.Place]:
    """The consumers of a queue, as that format places them."""
    shift = 0 if name == "kestrel" else found.first
    return {
        "" if name == "libkestrel" and each == _NAMELESS else each: (shift + before, ())
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
