"""
Cutting a range of messages into tasks: at chunks and index entries, balanced by bytes, small ones together.

A task costs Spark some 40 ms, whatever it does, and a Python worker reads tens of millions of small messages a second:
so a task should be big, and there should be as many as processors, not more. Pure: no queue is opened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SMALL_BYTES = 4 << 20
"""Less than this is not worth a task of its own."""
LARGE_BYTES = 256 << 20
"""More than this in one task is hard to balance, and much to do again when an executor dies."""


class Piece(NamedTuple):
    """A run of one shard's indexes, read in order."""

    topic: str
    number: int
    path: str
    start: int
    stop: int
    nbytes: int
    queue_id: str = ""
    """Of the queue that it was cut from: the host where it is read may have another one under that path."""

    @property
    def rows(self) -> int:
        """Indexes; padding included."""
        return self.stop - self.start


class Run(NamedTuple):
    """A run that lies in one chunk, of which *base* is the first index."""

    base: int
    start: int
    stop: int
    nbytes: int


class Stretch(NamedTuple):
    """What is to be read of one shard."""

    topic: str
    number: int
    path: str
    spacing: int
    """Of its index: every so many messages a reader can begin without a walk."""
    runs: Sequence[Run]
    queue_id: str = ""


def cut(
    stretches: Iterable[Stretch], *, rows: int, nbytes: int = LARGE_BYTES, least: int = 1, processors: int = 1
) -> list[list[Piece]]:
    """
    Tasks, each a list of pieces in the order of topic, shard and index.

    Args:
        rows: at most about so many in a task.
        nbytes: and about so many bytes.
        least: at least so many tasks, as long as there are rows enough.
        processors: one task for each, where there is enough to do.
    """
    stretches = list(stretches)
    total = sum(run.stop - run.start for stretch in stretches for run in stretch.runs)
    if total == 0:
        return []
    there = sum(run.nbytes for stretch in stretches for run in stretch.runs)
    tasks = max(least, -(-total // rows), -(-there // nbytes), min(processors, there // SMALL_BYTES))
    most_rows = min(rows, -(-total // least))
    most_bytes = max(-(-there // tasks), 1)
    pieces = [piece for stretch in stretches for piece in _pieces(stretch, most_rows, most_bytes)]
    return _together(pieces, most_rows, most_bytes)


def _pieces(stretch: Stretch, rows: int, nbytes: int) -> list[Piece]:
    """One shard's runs, cut where they are larger than a task, and joined where they are neighbours in one."""
    found: list[Piece] = []
    for run in stretch.runs:
        start = run.start
        count = run.stop - run.start
        parts = max(-(-count // rows), -(-run.nbytes // nbytes), 1)
        step = max(-(-count // parts), 1)
        while start < run.stop:
            stop = min(start + step, run.stop)
            if stop < run.stop:  # at an index entry, if there is one near
                entry = run.base + round((stop - run.base) / stretch.spacing) * stretch.spacing
                stop = entry if start < entry < run.stop else stop
            size = run.nbytes * (stop - start) // max(count, 1)
            found.append(Piece(stretch.topic, stretch.number, stretch.path, start, stop, size, stretch.queue_id))
            start = stop
    return found


def _together(pieces: Iterable[Piece], rows: int, nbytes: int) -> list[list[Piece]]:
    """Pieces in their order, put together until a task is full."""
    tasks: list[list[Piece]] = []
    there_rows = there_bytes = 0
    slack = 1.1
    for piece in pieces:
        full = there_rows + piece.rows > rows * slack or there_bytes + piece.nbytes > nbytes * slack
        if not tasks or full:
            tasks.append([])
            there_rows = there_bytes = 0
        last = tasks[-1]
        if last and last[-1].path == piece.path and last[-1].stop == piece.start:
            before = last.pop()
            last.append(before._replace(stop=piece.stop, nbytes=before.nbytes + piece.nbytes))
        else:
            last.append(piece)
        there_rows += piece.rows
        there_bytes += piece.nbytes
    return tasks
