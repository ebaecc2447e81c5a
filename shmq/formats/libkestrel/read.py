"""The verbs that look: `read`, `lists`, `state`, `consumers`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats import _follow
from shmq.formats.libkestrel.names import at, reader_files
from shmq.formats.libkestrel.program import Program
from shmq.formats.libkestrel.queue import Tail
from shmq.formats.libkestrel.readers import clamped, places, start_of
from shmq.formats.libkestrel.records import NAME
from shmq.formats.model import Entry, Place, Problem, State

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    start: int | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    now_ns: int | None = None,
    tell: Callable[[Problem], object] | None = None,
) -> Iterator[Entry]:
    """
    Deliver the items of *queue* in the folder *path*, oldest first: by first id of the segment, then by position.

    Without *consumer*: every item that the segments hold, or those from the id *start* on. With it: what that reader
    has still to see, which is every id above its head that it has not confirmed (the real program delivers those
    again: `as_program`).
    A segment with damage is read up to the damage, as the program would cut it; then the next one. *strict* raises
    Corrupt at that place instead. Expired items are delivered with their `expires_ns`; given *now_ns*, those that have
    expired by then are dropped.
    *follow* waits for more, at most *timeout* seconds for each item. It leaves nothing out unheard: it raises Corrupt
    before items that are missing or broken, unless *tell* is there to be given the Problem. The program deletes what
    all of its readers have confirmed, and does not know of us: who follows more slowly than they read hears of that.

    Raises:
        NotFound: no such folder, queue or reader.
        BadFormat: *path* is no directory, or holds several queues and none was named.
    """
    folder, queue = at(path, queue)
    head, done = (None, frozenset[int]()) if consumer is None else start_of(folder, queue, consumer, as_program)
    tail: Tail | Program
    if as_program:
        tail = Program(folder, queue, head, growing=follow, strict=strict)
    else:
        since = max(((start or 0) - 1, head), key=lambda last: -1 if last is None else last)
        tail = Tail(folder, queue, as_program=False, growing=follow, strict=strict, since=since, tell=tell)
    entries = _follow.follow(tail, timeout) if follow else _follow.once(tail)
    if now_ns is not None:
        entries = (entry for entry in entries if entry.expires_ns is None or entry.expires_ns > now_ns)
    if start is not None:
        entries = (entry for entry in entries if entry.index is not None and entry.index >= start)
    if head is None or as_program:
        return entries
    return (entry for entry in entries if entry.index > head and entry.index not in done)  # type: ignore[operator]


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(Tail(*at(path, queue), as_program=False, growing=False, strict=strict))


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk all of *queue* and return what its files say.

    A consumer's head is the id of the last item it has consumed (0: none yet), moved into what the segments hold,
    as recovery does it; done are the higher ids it has confirmed. Open reads are not stored by this format. With
    *as_program*, the nameless reader is not there beside others, and is there, at the newest item, without them.
    """
    folder, queue = at(path, queue)
    problems: list[Problem] = []
    tail = Tail(folder, queue, as_program=as_program, growing=False, strict=False)
    count, first, last = 0, None, None
    with closing(tail):
        for entries in tail.lists():
            count += len(entries)
            first = entries[0].index if first is None else first
            last = entries[-1].index
        problems += tail.problems
        files = tail.files
    if as_program:
        return _state_as_program(folder, queue, problems, files)
    first, last = tail.lowest, tail.highest
    readers, broken = places(folder, queue)
    problems += broken
    consumers = {name: clamped(place, first, last, as_program=False) for name, place in readers.items()}
    return State(NAME, queue, consumers, {}, problems, count, first, last, [*files, *reader_files(folder, queue)])


def _state_as_program(folder: Path, queue: str, problems: list[Problem], files: list[str]) -> State:
    readers, broken = places(folder, queue)
    if sum(place is not None for place in readers.values()) > 1:
        readers.pop("", None)
    count, first, last = 0, None, None
    with closing(Program(folder, queue, None)) as program:
        for entries in program.lists():
            count += len(entries)
            first = entries[0].index if first is None else first
            last = entries[-1].index
    consumers = {
        name: clamped(place, program.earliest, program.tail, as_program=True) for name, place in readers.items()
    }
    if not readers:
        consumers[""] = (program.tail, ())
    problems = [*problems, *(problem for problem in program.problems if problem not in problems), *broken]
    return State(NAME, queue, consumers, {}, problems, count, first, last, [*files, *reader_files(folder, queue)])


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {reader: (id of the last item consumed, ids confirmed above it)}, as the checkpoints have it."""
    folder, queue = at(path, queue)
    readers, broken = places(folder, queue)
    if broken:
        msg = f"cannot read {folder}/{broken[0].file}: {broken[0].reason}"
        raise Corrupt(msg)
    return {name: place for name, place in readers.items() if place is not None}
