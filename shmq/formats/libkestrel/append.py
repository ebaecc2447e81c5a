"""
Appending to a libkestrel queue that nobody has open, and committing for one of its readers.

The program has no lock and keeps the ends of its queue in memory, so this is for a time when it does not run: refused
where a process in sight has one of the files open, and said where nobody can know. Two of ours keep each other out.

What is appended stands in segments of its own, whole when their names appear: the program goes by the first id in a
segment, not by how long it is. Behind the end of another segment nothing is ever written; the program appends at the
length of a file, and what a crash leaves there would hide it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

from shmq.errors import Busy, Corrupt, Mismatch, Unsafe
from shmq.formats import _files, _locks
from shmq.formats.libkestrel.names import at, names_of, reader_files
from shmq.formats.libkestrel.program import Program
from shmq.formats.libkestrel.records import JOURNAL_BYTES, checkpoint
from shmq.formats.libkestrel.write import Writer, checked_reader, write_checkpoint
from shmq.formats.model import MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shmq.formats.model import Entry


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    *,
    journal_bytes: int = JOURNAL_BYTES,
    lossy: bool = False,
    tell: Callable[[str], object] | None = None,
) -> int:
    """
    Put *entries* into a queue that is there, all of them or none, and return how many; ids go on behind its newest.

    *journal_bytes* is the program's `journalSize`. A queue without a checkpoint gets the nameless reader, before its
    oldest item: the program would make it at the newest one.

    Raises:
        Busy: a process in sight has one of its files open.
        Corrupt: its ids do not ascend; `repair` numbers them anew.
        TooLarge, Unsafe: as for `write`.
    """
    folder, queue = at(path, queue)
    with _alone(folder, queue, f"append to {queue}", tell):
        earliest, tail, number = _ends(folder, queue)
        with _files.Stage(folder) as stage:
            writer = Writer(stage, queue, journal_bytes, max(time.time_ns() // MS, number + 1), tail + 1, lossy=lossy)
            for entry in entries:
                writer.put(entry)
            writer.close()
            if not writer.count:
                return 0
            if not reader_files(folder, queue):
                write_checkpoint(stage, queue, "", (earliest - 1, ()))
            stage.publish()
    return writer.count


def commit(
    path: str | os.PathLike[str],
    consumer: str,
    head: int,
    done: Iterable[int] = (),
    queue: str | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> None:
    """
    Say that the reader *consumer* has consumed all up to the id *head*, and the ids *done* behind that.

    A reader that is not there is made.

    Raises:
        Busy: a process in sight has one of the queue's files open.
        Mismatch: an id is not one of the queue's, or not behind *head*.
        Unsafe: it is the nameless reader, and there are others: the program would delete it.
    """
    folder, queue = at(path, queue)
    checked_reader(consumer)
    with _alone(folder, queue, f"commit for {consumer!r} of {queue}", tell):
        earliest, tail, _ = _ends(folder, queue)
        done = sorted(set(done))
        if not earliest - 1 <= head <= tail or (done and not head < done[0] <= done[-1] <= tail):
            msg = f"cannot commit id {head} and {done[:8]} for {consumer!r}: {queue} holds {earliest} to {tail}"
            raise Mismatch(f"{msg}; nothing was changed")
        name = f"{queue}.read.{consumer}"
        others = [other for other in reader_files(folder, queue) if other != name]
        if not consumer and others:
            msg = f"cannot commit for the nameless reader of {queue}: beside others the program deletes it"
            raise Unsafe(f"{msg}; nothing was changed")
        _files.replace(folder / name, checkpoint(head, done), unfinished=f"{name}~~{time.time_ns() // MS}")


@contextlib.contextmanager
def _alone(folder: Path, queue: str, what: str, tell: Callable[[str], object] | None) -> Iterator[None]:
    """Keep others of ours out by a lock of the folder, and go on only if nobody in sight has a file open."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"cannot {what}: another one of ours is at {folder}; nothing was changed"
            raise Busy(msg) from error
        _locks.unused([folder / name for name in names_of(folder, queue)], what, tell)
        yield
    finally:
        os.close(fd)


def _ends(folder: Path, queue: str) -> tuple[int, int, int]:
    """Return the oldest id, the newest one (one less than that in an empty queue), and the highest segment number."""
    with contextlib.closing(Program(folder, queue, None)) as program:
        program.look()
        if program.newest > program.tail:
            msg = f"cannot go on behind id {program.tail} of {queue} in {folder}: {program.newest} comes before it"
            raise Corrupt(f"{msg}; repair numbers them anew; nothing was changed")
        return program.earliest, program.tail, program.number
