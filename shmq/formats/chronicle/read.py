"""The verbs that look: `read`, `lists`, `state`, `consumers`, `settings`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from shmq.errors import BadFormat, NotFound
from shmq.formats import _follow
from shmq.formats.chronicle.backward import Backward
from shmq.formats.chronicle.cycles import MAX_CYCLE
from shmq.formats.chronicle.folder import NAME, Folder
from shmq.formats.chronicle.follow import Follower
from shmq.formats.chronicle.store import MAX_PAYLOAD
from shmq.formats.chronicle.walk import Walk
from shmq.formats.model import MS, Entry, Place, Problem, Run, State

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from shmq.formats.chronicle.cycles import RollCycle
    from shmq.formats.chronicle.table import Table


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    index: int | None = None,
    start: int | None = None,
    time_ns: int | None = None,
    cycle: int | None = None,
    consumer: str | None = None,
    backward: bool = False,
    meta: bool = False,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    max_payload: int = MAX_PAYLOAD,
) -> Iterator[Entry]:
    """
    Deliver the messages of the Chronicle queue at *path*, oldest first; `Entry.index` is Chronicle's own index.

    It begins at one of: the message with *index* (or *start*, the word of the other formats), or what comes next
    if that is not there; the cycle that holds the instant *time_ns*; the *cycle* of that number; the place where the
    named tailer *consumer* stands. *backward* goes from there (or from the newest message) to the oldest; with
    *time_ns* or *cycle* it begins with the newest message of that cycle.

    Payloads are as they lie in the file: `decode` makes values of them. *meta* delivers users' meta-data too: their
    index is None, and extra["meta"] is True.

    A file that has no EOF mark though later files are there is passed at its end, where Java's tailer would wait for
    the next appender to mend it; `state` names it, *strict* raises Corrupt there, and *as_program* stops there.
    *follow* waits for more, and for new files, at most *timeout* seconds for each message; it raises Corrupt when a
    file is cut, replaced or written to behind its reader. A payload above *max_payload* bytes raises TooLarge.

    Raises:
        NotFound: no queue is at *path*, or no tailer of that name.
        BadFormat: *path* is no queue, its name (or that of each of its files) is that of no cycle, or it was said in
            two ways where to begin.
    """
    folder = Folder(path, queue)
    if not follow:
        folder.refuse_strays()

    def begin() -> tuple[Bound, Bound]:
        return _begin(folder, index, start, time_ns, cycle, consumer)

    if backward:
        if follow or meta:
            msg = f"cannot read {folder.path} backward and {'follow it' if follow else 'show its meta-data'}"
            raise BadFormat(msg)
        return _follow.once(Backward(folder, begin()[1], strict=strict, max_payload=max_payload))
    options = {"as_program": as_program, "strict": strict, "meta": meta}
    if follow:
        return _follow.follow(Follower(folder, lambda: begin()[0], max_payload=max_payload, **options), timeout)
    return _follow.once(Walk(folder, begin()[0], max_payload=max_payload, **options))


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    folder = Folder(path, queue)
    folder.refuse_strays()
    return _follow.in_lists(Walk(folder, strict=strict))


def runs(
    path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False
) -> Iterator[Run | list[Entry]]:
    """Deliver what `lists` delivers, and users' meta-data: messages without such between them are a `Run`."""
    folder = Folder(path, queue)
    folder.refuse_strays()
    with closing(Walk(folder, strict=strict, meta=True)) as walk:
        yield from walk.runs()


Bound = tuple[int, int]
"""(cycle, sequence)."""


def _begin(
    folder: Folder,
    index: int | None,
    start: int | None,
    time_ns: int | None,
    cycle: int | None,
    consumer: str | None,
) -> tuple[Bound, Bound]:
    """Return where to begin forward, and where backward."""
    if sum(each is not None for each in (index, start, time_ns, cycle, consumer)) > 1:
        msg = f"cannot read {folder.path}: index, start, time_ns, cycle and consumer each say where to begin; give one"
        raise BadFormat(msg)
    index = start if index is None else index
    roll = folder.roll
    last = (1 << roll.shift) - 1
    if time_ns is not None:
        cycle = roll.cycle_at(time_ns // MS, folder.epoch)
    if cycle is not None:
        return (cycle, 0), (cycle, last)
    if consumer is not None:
        index = _tailer(folder, consumer)
    if index is None:
        return (0, 0), (MAX_CYCLE, last)
    place = roll.split(index)
    return place, place


def _tailer(folder: Folder, consumer: str) -> int:
    found = None if folder.table is None else folder.table.tailer(consumer)
    if found is None:
        msg = f"no named tailer {consumer!r} in {folder.path}"
        raise NotFound(msg)
    return found


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk all of the queue and return what its files say.

    A consumer's head is the index of the next message that the named tailer reads; 0 is the beginning.
    """
    folder = Folder(path, queue)
    count, first, last = 0, None, None
    with closing(Walk(folder, as_program=as_program)) as walk:
        for found in walk.lists():
            count += len(found)
            first = found[0].index if first is None else first
            last = found[-1].index
        problems: list[Problem] = [*folder.problems, *folder.stray_problems(), *walk.problems]
        files = walk.files
    table = folder.table
    return State(
        NAME,
        queue,
        {} if table is None else table.tailers(),
        {},
        problems,
        count,
        first,
        last,
        files if table is None else [table.name, *files],
    )


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {name: (index of the next message to read, ())} of the named tailers."""
    table = Folder(path, queue).table
    return {} if table is None else table.tailers()


class Settings(NamedTuple):
    """How a queue is cut into files and indices, and what its table holds."""

    roll_cycle: RollCycle
    epoch: int
    table: Table | None
    """The keys and their values; None where there is no table."""


def settings(path: str | os.PathLike[str], queue: str | None = None) -> Settings:
    """Return the roll cycle, epoch and table of the queue at *path*."""
    folder = Folder(path, queue)
    return Settings(folder.roll, folder.epoch, folder.table)
