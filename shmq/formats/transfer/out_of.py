"""Out of shmq: what is in a queue as a new foreign one, with its consumers."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from shmq.formats import verbs
from shmq.formats.model import NO_TIME, Entry
from shmq.formats.transfer.messages import about
from shmq.formats.transfer.options import check_options, write
from shmq.formats.transfer.refusals import nobody, refuse_losses
from shmq.formats.transfer.results import Written
from shmq.formats.transfer.source import cycled
from shmq.formats.transfer.survey import Survey, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shmq.formats.transfer.cycled import Numbers

_LONG_AGO = -(1 << 62)
"""Before that a time is what older imports made of none."""


def export_queue(
    source: shmq.Queue | str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    name: str | None = None,
    *,
    lossy: bool = False,
    tell: Callable[[str], object] | None = None,
    progress: Callable[[str, int], object] | None = None,
    **options: Any,
) -> Written:
    """
    Write a shmq queue as a new one of the format *to*, with its consumers at their places.

    All or nothing, beside running producers and consumers: what is there when it begins is written, nothing that exists
    is replaced, and *source* is not changed. It is read to see what would be lost, and again to write. Payloads go as
    they are put, whatever the codec. What an import kept in the header `source` goes back where the format has a place
    for it; docs/formats/README.md has the table of what each format keeps. Messages are numbered anew, without gaps.

    Args:
        source: an open queue, read-only is enough, or the path of one.
        target: what to make: a directory, or QewQew's header file. Into a folder of Kestrel or libkestrel that is
            there, another queue may be written.
        to: "kestrel", "libkestrel", "sej", "qewqew" or "chronicle".
        name: of the queue in *target*; made of the name of *source* where the format must have one.
        lossy: leave out what the format cannot hold.
        tell: called with a sentence for everything that is lost, before anything is written.
        progress: called with "looked at", later "exported", and with how many messages.
        options: of the format's own `write`: how large the segments or chunks are of the program that will open it
            (sej's *segment_bytes*, libkestrel's *journal_bytes*, QewQew's *chunk_bytes*); and of sej where the messages
            go: *shard_bit*, *prefix*, *shard_hash*, *client*, or with *by_dir* to the directories that they came from;
            of a Chronicle queue how time is cut: *roll_cycle*, *epoch*, *roll_time*, which are those that it had.

    Raises:
        Refused: something would be lost; nothing was written.
        NotFound: no queue is at *source*.
        BadFormat: *to* is none of the formats, or *name* has no place in it.
        TooLarge: a payload, key or number does not fit its field; nothing was written.
        Unsafe: *target* exists already.
    """
    check_options(verbs.known(to, "write"), options)
    if isinstance(source, shmq.Queue):
        opened: contextlib.AbstractContextManager[shmq.Queue] = contextlib.nullcontext(source)
    else:
        opened = shmq.open(source, create=False, read_only=True, trusted=True)  # nothing is decoded
    tell, progress = tell or nobody, progress or nobody
    with opened as queue:
        found = survey(queue, progress)
        layout = cycled().of_queue(queue, found, options) if to == "chronicle" else None
        lost = layout.losses(found) if layout else found.losses(to)
        refuse_losses(lost, lossy=lossy, tell=tell)
        name = name_in(to, name, queue.place)
        if layout:
            places, options = {"consumers": layout.places(found)}, layout.options
            entries = _in_cycles(queue, found, layout.numbers(), progress)
        else:
            places = found.placed_in(to, options)
            entries = _entries(queue, found, to, progress, by_dir=bool(options.get("by_dir")))
        written = write(target, entries, to, name, lossy=lossy, **places, **options)
    return Written(os.fspath(target), to, name, written, found.consumers(to), lost)


def name_in(to: str, given: str | None, of: str) -> str | None:
    """The name of a queue to write, in the formats whose queues have one."""
    if given is not None or to not in {"kestrel", "libkestrel"}:
        return given
    return re.sub(r"[^A-Za-z0-9_-]", "-", Path(of).resolve().stem) or "queue"


def _in_cycles(
    queue: shmq.Queue, found: Survey, numbers: Numbers, progress: Callable[[str, int], object]
) -> Iterator[Entry]:
    """The messages of a queue as those of a Chronicle queue, which has nothing but their bytes."""
    count = 0
    wanted = ["payload", "time_ns", *["headers"] * bool(found.has["cycle"])]
    for columns in queue.read_columns(found.first, found.stop, wanted):
        payloads = columns["payload"][: found.messages - count]
        times = columns["time_ns"][: len(payloads)]
        sources = map(about, columns["headers"]) if found.has["cycle"] else itertools.repeat(None)
        indexes = numbers.of_batch(times, sources)
        yield from map(Entry, payloads, indexes)
        count += len(payloads)
        progress("exported", count)


def _entries(
    queue: shmq.Queue, found: Survey, to: str, progress: Callable[[str, int], object], *, by_dir: bool
) -> Iterator[Entry]:
    """The messages of a queue as that format's entries, numbered as it wants them."""
    shift = found.first + (to == "libkestrel")
    count = 0
    # What none of them has is not read.
    with_source = bool(found.has["source"]) or by_dir
    wanted = [column for column in ("key", "type") if found.has[column]] + ["headers"] * with_source
    none = itertools.repeat(None)
    for columns in queue.read_columns(found.first, found.stop, ["payload", "time_ns", *wanted]):
        payloads = columns["payload"][: found.messages - count]  # no more than were there when it was surveyed
        many = len(payloads)
        times: Iterable[int | None] = none if to == "qewqew" else columns["time_ns"]
        expiries: Iterable[int | None] = none
        attempts: Iterable[int | None] = none
        extras: Iterable[dict[str, Any] | None] = none
        if with_source:
            sources = [about(headers) for headers in columns["headers"]]
            if to != "qewqew":
                times = [
                    NO_TIME if known.get("no_time") and (to == "sej" or at < _LONG_AGO) else at
                    for at, known in zip(columns["time_ns"], sources, strict=True)
                ]
            expiries = [known.get("expires_ns") for known in sources]
            attempts = [known.get("attempts") for known in sources]
            if by_dir:
                extras = [{"dir": known["dir"]} if "dir" in known else None for known in sources]
        if to == "kestrel" and found.opened and count <= max(found.opened):
            extras = [
                {"xid": found.opened[number]} if number in found.opened else None
                for number in range(count, count + many)
            ]
        # Each directory counts for itself.
        indexes: Iterable[int | None] = none if by_dir else range(shift + count, shift + count + many)
        keys, kinds = columns.get("key") or none, columns.get("type") or itertools.repeat(0)
        fields = zip(payloads, indexes, times, expiries, keys, kinds, attempts, extras)  # noqa: B905  # some never end
        yield from map(Entry._make, fields)
        count += many
        progress("exported", count)
