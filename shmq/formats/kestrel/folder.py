"""
A folder of journals: which queues it holds, and which one is meant.

There is no magic: a file is a journal if it is named as one and begins as one.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files
from shmq.formats.kestrel.journal import Journal, Rules
from shmq.formats.kestrel.names import QUEUE, in_replay_order, queue_of
from shmq.formats.kestrel.records import ADDX_FIXED, NAME

if TYPE_CHECKING:
    import os


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the Kestrel queues in the folder *path*: those with a file that begins as a journal does."""
    folder = _files.directory(path)
    found = set()
    for name in _files.regular_files(folder):
        queue = queue_of(name)
        if queue is not None and queue not in found and plausible(folder / name) is not None:
            found.add(queue)
    return sorted(found)


def at(path: str | os.PathLike[str], queue: str | None) -> tuple[Path, str]:
    """Return the folder and the queue that are meant; the path of one of its files will do."""
    place = Path(path)
    if queue is None and place.is_file():
        place, queue = place.parent, place.name.partition(".")[0]
    folder = _files.directory(place)
    return folder, queue_in(folder, queue)


def queue_in(folder: Path, queue: str | None) -> str:
    """Return the queue that is meant: the one named, or the only one there is."""
    if queue is None:
        found = queues(folder)
        # Fan-out children come with their parent; the parent is the queue that is meant.
        return _files.only_queue(
            folder, [name for name in found if name.partition("+")[0] not in found or "+" not in name], NAME
        )
    if not QUEUE.match(queue):
        msg = f"cannot read a Kestrel queue named {queue!r}: a name has no '.', '/' and '~'"
        raise BadFormat(msg)
    if not in_replay_order(folder, queue, as_program=False)[0]:
        msg = f"no Kestrel queue {queue!r} in {folder}; there are {queues(folder)}"
        raise NotFound(msg)
    return queue


def children(folder: Path, queue: str) -> list[str]:
    """Return the names of the fan-out children of *queue*, sorted."""
    prefix = f"{queue}+"
    owners = {queue_of(name) for name in _files.regular_files(folder)}
    return sorted(name[len(prefix) :] for name in owners if name is not None and name.startswith(prefix))


def plausible(path: Path) -> bool | None:
    """Say whether *path* begins as a journal: True, or False for an empty file, or None if it does not."""
    with suppress(NotFound, BadFormat, PermissionError):
        journal = Journal(path, Rules())
        with closing(journal.source):
            if not journal.size():
                return False
            if journal.one() is not None:
                for _ in range(3):
                    journal.one()
                ends_well = journal.problem is None or "ends inside" in journal.problem.reason
                return True if ends_well or journal.position > ADDX_FIXED else None
    return None


def detect(folder: Path, names: list[str]) -> bool:
    """
    Say whether *folder*, whose files are *names*, holds Kestrel queues.

    One file that begins as a journal is enough; of empty files, all must be named as one.
    """
    named = [name for name in names if not name.startswith(".")]
    found = [plausible(folder / name) for name in named if queue_of(name) is not None]
    return True in found or (bool(found) and len(found) == len(named) and not any(one is None for one in found))


def detect_file(path: Path) -> bool:
    """Say whether *path* is a Kestrel journal that holds something."""
    return queue_of(path.name) is not None and plausible(path) is True
