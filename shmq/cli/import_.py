"""
Bring a foreign queue in: Kestrel, libkestrel, sej or QewQew.

Examples:
    shmq import /var/spool/kestrel orders --queue orders
    shmq import events.sej events --resume

All of it appears at once, or nothing: a broken import leaves nothing behind, and one that is repeated doubles nothing.
With --resume it appears in parts, and goes on behind the last part when it is run again, also with what the source has
gained meanwhile. With --again all that the source holds now is imported, whatever was imported from it before. The
messages get shmq's own indexes; what the source knew besides goes to the header `source`. Its consumers come along,
each at its place.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
import os
import sys
from typing import TYPE_CHECKING

import shmq
from shmq import formats
from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    transfer.add_source(verb)
    verb.add_argument("target", type=show.place, metavar="QUEUE", help="the shmq queue; made if there is none")
    times = verb.add_mutually_exclusive_group()
    times.add_argument("--resume", action="store_true", help="in parts, behind what was imported before")
    times.add_argument("--again", action="store_true", help="all of it, also what was imported before")
    verb.add_argument("--part", type=int, default=transfer.PART, metavar="N", help="messages in a part")
    verb.add_argument("--no-consumers", action="store_true", help="leave the source's consumers out")
    verb.add_argument("--ack", choices=("auto", "explicit"), default="auto", help="how the consumers acknowledge")
    verb.add_argument("--lossy", action="store_true", help="leave out what is damaged or has no place in shmq")
    verb.add_argument("--json", action="store_true", help="say what was imported as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import, and say what."""
    if arguments.part < 1:
        raise show.Misuse(f"--part {arguments.part}: at least 1")
    name = transfer.format_of(arguments.source, arguments.format)
    found: list[transfer.Follower] = []
    if not arguments.no_consumers:
        found, losses = transfer.followers(arguments.source, name, arguments.queue)
        transfer.refuse_losses(losses, lossy=arguments.lossy)
    lists = formats.lists(arguments.source, name, arguments.queue, strict=not arguments.lossy)
    source = transfer.Batches(lists)
    who = transfer.identity(arguments.source, name, arguments.queue)
    if arguments.lossy:
        transfer.say_damage(arguments.source, name, arguments.queue)
    there = os.path.lexists(arguments.target)
    try:
        with transfer.no_cycles():
            return _import(arguments, name, who, found, source)
    except BaseException as problem:
        if not there:
            _take_back(arguments.target)
        if not isinstance(problem, transfer.Damage):
            raise
        kept = "Whole parts before it are in" if arguments.resume else "Nothing was imported"
        raise show.Problem(
            f"{problem}. {kept}; --lossy imports all that is whole, and shmq repair writes a clean copy"
        ) from problem


def _take_back(path: str) -> None:
    """Delete a queue that was made for an import which has failed, unless something is in it."""
    with contextlib.suppress(shmq.ShmqError):
        with shmq.open(path, create=False, read_only=True) as queue:
            used = queue.next_index
        if not used:
            shmq.delete(path)


def _import(
    arguments: argparse.Namespace,
    name: str,
    who: str,
    found: list[transfer.Follower],
    source: transfer.Batches,
) -> int:
    with shmq.open(arguments.target, trusted=True) as queue:
        if queue.options.codec != "bytes":
            raise show.Problem(f"{queue.path} holds {queue.options.codec}; an import brings bytes")
        count, first, last = _Import(queue, who, found, arguments, name).run(source)
        if arguments.json:
            facts = {
                "count": count,
                "first": first,
                "last": last,
                "consumers": [each.called for each in found if each.comes],
            }
            show.facts({"format": name, **facts})
        else:
            print(f"imported {count:,} messages" + (f", index {first} to {last}" if count else ""))
    return 0


_NO_MORE = (1 << 63) - 1
"""The number of a source that nothing can be told of behind it."""

_index = operator.itemgetter(1)


class _Import:
    """
    One import under way.

    The queue remembers, for each source, the number of the last message that is in: its own in a log, which may lose
    its oldest ones meanwhile, or else how many there were. These are held against what the queue has then: a queue
    that is consumed may have changed.
    """

    def __init__(
        self, queue: shmq.Queue, who: str, found: list[transfer.Follower], arguments: argparse.Namespace, name: str
    ) -> None:
        """
        Look at what was imported before.

        Raises:
            Problem: it was imported, and not to be resumed; or a consumer of that name is there.
        """
        self._queue = queue
        self._found = found
        self._ack = arguments.ack
        self._source = arguments.source
        self._part = arguments.part if arguments.resume else 0
        self._is_log = name in transfer.LOGS
        self._who, self._before = self._known_as(who, again=arguments.again)
        self._range = self._before[1] if self._before else range(0)
        if self._before and not arguments.resume:
            raise show.Problem(
                f"{self._source} was imported before, up to index {self._range.stop - 1}; nothing was done. "
                "--resume goes on behind that, --again imports all of it once more"
            )
        there = queue.consumers()
        taken = [each.called for each in found if each.called in there and each.comes]
        if taken and not self._before:
            raise show.Problem(
                f"{queue.path} has a consumer {taken[0]!r} already; nothing was imported. "
                "Drop it, or use --no-consumers"
            )

    def _known_as(self, who: str, *, again: bool) -> tuple[str, tuple[int, range] | None]:
        """Who the source is, of the times that it was imported the last or a new one, and what is in of that time."""
        known: tuple[str, tuple[int, range] | None] | None = None
        called = who
        for times in itertools.count(2):
            adopted = self._queue.adopted(called)
            if adopted is None:
                break
            known = called, adopted
            called = f"{who} {times}"
        return (called, None) if again or known is None else known

    def run(self, source: transfer.Batches) -> tuple[int, int | None, int | None]:
        """Count, first and last index of what came in."""
        progress = transfer.Progress("imported")
        passed = read = self._pass_over(source) if self._before else 0
        first, last = None, None
        self._name_consumers(read - len(self._range), self._range)
        while True:
            with self._queue.stage() as staged:
                before, number = read, -1
                for batch in source.some(self._part or None):
                    transfer.put(staged, batch)
                    self._look(batch, read)
                    read += len(batch)
                    number = self._number(batch, read, number)
                    progress.at(read - passed)
                if read == before:
                    break
                self._range = self._queue.adopt(staged, dedup=(self._who, number))
            first = self._range.start if first is None else first
            last = self._range.stop - 1
            self._name_consumers(before, self._range)
            if not self._part:
                break
        progress.end()
        for each in self._found:  # who wants what is still to come
            if each.at is None:
                self._make(each, self._range.stop or self._queue.next_index)
        return read - passed, first, last

    def _by_index(self, batch: list[formats.Entry]) -> bool:
        """Whether its messages are known by their own numbers: those of a log that is not several, side by side."""
        return self._is_log and "dir" not in (batch[0].extra or {})

    def _number(self, batch: list[formats.Entry], read: int, last: int) -> int:
        """The number of the last message of a batch; *last* is that of the one before it in this part."""
        if not self._by_index(batch):
            return read
        indexes = [entry[1] or 0 for entry in batch]
        if last < indexes[0] and indexes[-1] < _NO_MORE and all(map(operator.lt, indexes, indexes[1:])):
            return indexes[-1]
        if self._part:
            raise show.Problem(
                f"the numbers of {self._source} do not ascend; parts before that are in. "
                "Repair it, or import it without --resume"
            )
        return _NO_MORE

    def _pass_over(self, source: transfer.Batches) -> int:
        """What was imported before, looking for the consumers' places only; how many messages the source has of it."""
        number = self._before[0] if self._before else 0
        if number == _NO_MORE:
            raise show.Problem(
                f"the numbers of {self._source} did not ascend when it was imported, so nothing tells what has come "
                "since; nothing was done"
            )
        read = same = 0
        counted = not self._is_log
        for batch in source.some():
            counted = not self._by_index(batch)
            known = min(len(batch), number - read) if counted else bisect.bisect_right(batch, number, key=_index)
            same += self._same(batch[:known], read) if counted else 0
            self._look(batch[:known], read)
            read += known
            if known < len(batch):
                source.back(batch[known:])
                self._say_gap(batch[known], number, counted=counted)
            if known < len(batch) or (counted and read == number):
                break
        if counted and (read < number or not same):
            raise self._changed()
        return read

    def _same(self, batch: list[formats.Entry], before: int) -> int:
        """How many messages of a batch are those that were imported last, as far as the queue still has these."""
        first = (self._before[0] if self._before else 0) - len(self._range)
        batch = batch[max(0, first - before) :]
        begin = self._range.start + max(0, before - first)
        there: dict[int, tuple[bytes, int]] = {}
        for columns in self._queue.read_columns(begin, begin + len(batch), ("index", "payload", "time_ns")):
            pairs = zip(columns["payload"], columns["time_ns"], strict=True)
            there.update(zip(columns["index"], pairs, strict=True))
        for index, entry in enumerate(batch, begin):
            payload, time_ns = there.get(index, (entry.payload, entry.time_ns))
            if payload != entry.payload or (
                entry.time_ns is not None and transfer.in_range(entry.time_ns) != transfer.in_range(time_ns or 0)
            ):
                raise self._changed()
        return len(there)

    def _changed(self) -> show.Problem:
        return show.Problem(
            f"nothing shows that {self._source} still begins with what was imported from it; nothing was done. "
            "--again imports all that it holds now"
        )

    def _say_gap(self, entry: formats.Entry, number: int, *, counted: bool) -> None:
        if not counted and entry.index != number + 1:
            print(f"shmq: behind number {number}, {self._source} goes on with {entry.index}", file=sys.stderr)

    def _look(self, batch: list[formats.Entry], before: int) -> None:
        for each in self._found:
            each.look(batch, before)

    def _name_consumers(self, before: int, indexes: range) -> None:
        """Make those whose place is in the part just adopted, also if that was by a run that was killed then."""
        for each in self._found:
            if each.at is not None and before <= each.at < before + len(indexes):
                self._make(each, indexes.start + each.at - before)
            done = [indexes.start + at - before for at in each.finished if before <= at < before + len(indexes)]
            if done:
                self._finish(each, done)

    def _make(self, follower: transfer.Follower, index: int) -> None:
        if not follower.comes or follower.called in self._queue.consumers():
            return
        if follower.group:
            self._queue.consumer(follower.called, group=True, ack="explicit", start=index).close()
        else:
            self._queue.consumer(follower.called, ack=self._ack, start=index).close()

    def _finish(self, follower: transfer.Follower, indexes: list[int]) -> None:
        """What it had finished out of order does not come again, as far as a group can say so."""
        with self._queue.consumer(follower.called, group=True, ack="explicit") as group:
            reach = group.head + transfer.REACH
            group.skip(*(index for index in indexes if index < reach))
