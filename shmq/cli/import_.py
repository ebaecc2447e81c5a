"""
Bring a foreign queue in: Kestrel, libkestrel, sej or QewQew.

Examples:
    shmq import /var/spool/kestrel orders --queue orders
    shmq import events.sej events --resume

All of it appears at once, or nothing: a broken import leaves nothing behind, and one that is repeated doubles nothing.
With --resume it appears in parts, and goes on behind the last part when it is run again, also with what the source has
gained meanwhile. The messages get shmq's own indexes; what the source knew besides goes to the header `source`. Its
consumers come along, each at its place.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import shmq
from shmq import formats
from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    transfer.add_source(verb)
    verb.add_argument("target", metavar="QUEUE", help="the shmq queue; made if there is none")
    verb.add_argument("--resume", action="store_true", help="in parts, behind what was imported before")
    verb.add_argument("--part", type=int, default=transfer.PART, metavar="N", help="messages in a part")
    verb.add_argument("--no-consumers", action="store_true", help="leave the source's consumers out")
    verb.add_argument("--ack", choices=("auto", "explicit"), default="auto", help="how the consumers acknowledge")
    verb.add_argument("--lossy", action="store_true", help="leave out what is damaged or has no place in shmq")
    verb.add_argument("--json", action="store_true", help="say what was imported as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import, and say what."""
    if arguments.part < 1:
        raise show.Problem(f"--part {arguments.part}: at least 1")
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
        count, first, last = _Import(queue, who, found, arguments).run(source)
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


class _Import:
    """One import under way."""

    def __init__(
        self, queue: shmq.Queue, who: str, found: list[transfer.Follower], arguments: argparse.Namespace
    ) -> None:
        """
        Look at what was imported before.

        Raises:
            Problem: it was imported, and not to be resumed; or a consumer of that name is there.
        """
        self._queue = queue
        self._who = who
        self._found = found
        self._ack = arguments.ack
        self._part = arguments.part if arguments.resume else 0
        # The number of a part is how many of the source's messages are in once it is.
        self._done, self._range = queue.adopted(who) or (0, range(0))
        if self._done and not arguments.resume:
            raise show.Problem(
                f"{self._done:,} messages were imported from {arguments.source} before, up to index "
                f"{self._range.stop - 1}; nothing was done. --resume goes on behind them"
            )
        there = queue.consumers()
        taken = [each.called for each in found if each.called in there and each.comes]
        if taken and not self._done:
            raise show.Problem(
                f"{queue.path} has a consumer {taken[0]!r} already; nothing was imported. "
                "Drop it, or use --no-consumers"
            )

    def run(self, source: transfer.Batches) -> tuple[int, int | None, int | None]:
        """Count, first and last index of what came in."""
        progress = transfer.Progress("imported")
        self._pass_over(source)
        read, first, last = self._done, None, None
        self._name_consumers(read - len(self._range), self._range)
        while True:
            with self._queue.stage() as staged:
                before = read
                for batch in source.some(self._part or None):
                    transfer.put(staged, batch)
                    self._look(batch, read)
                    read += len(batch)
                    progress.at(read - self._done)
                if read == before:
                    break
                self._range = self._queue.adopt(staged, dedup=(self._who, read))
            first = self._range.start if first is None else first
            last = self._range.stop - 1
            self._name_consumers(before, self._range)
            if not self._part:
                break
        progress.end()
        for each in self._found:  # who wants what is still to come
            if each.at is None:
                self._make(each, self._range.stop or self._queue.next_index)
        return read - self._done, first, last

    def _pass_over(self, source: transfer.Batches) -> None:
        """What was imported before, looking for the consumers' places only."""
        read = 0
        for batch in source.some(self._done):
            self._look(batch, read)
            read += len(batch)
        if read < self._done:
            raise show.Problem(f"the source holds fewer messages than the {self._done:,} that were imported from it")

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
