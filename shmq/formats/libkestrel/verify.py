"""`verify` names every problem; `repair` writes what is whole as a clean queue."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.formats import _files, _locks
from shmq.formats.libkestrel.names import SEGMENT, at, names_of
from shmq.formats.libkestrel.read import read, state
from shmq.formats.libkestrel.readers import skipped_in
from shmq.formats.libkestrel.records import JOURNAL_BYTES, MAX_SEGMENT, MOST_DONE, PUT, READ_DONE, READ_HEAD
from shmq.formats.libkestrel.segment import Segment
from shmq.formats.libkestrel.write import write
from shmq.formats.model import Place, Problem, Repair, State

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """
    Return every problem of *queue*: those of `state`, and bytes hidden behind an end mark, stray and odd files, and
    records that are skipped because of their commands.
    """
    folder, queue = at(path, queue)
    found = state(folder, queue)
    problems = list(found.problems)
    for name in found.files:
        if name.startswith(f"{queue}.read."):
            skipped = skipped_in(folder / name)
        else:
            problems += _hidden_bytes(folder, name)
            skipped = _skipped(folder, name)
        problems += [Problem(name, position, _out_of_place(command)) for position, command in skipped]
    for name in _files.regular_files(folder):
        if name.startswith(f"{queue}.read.") and "~~" in name:
            problems.append(Problem(name, 0, "a checkpoint that was never finished; the program deletes it unread"))
        elif (match := SEGMENT.match(name)) and match["queue"] == queue and match["more"] and "~" not in name:
            problems.append(Problem(name, 0, "the program takes this copy for a segment, because of the number in it"))
    for name, (head, done) in found.consumers.items():
        if done and head is not None and done[0] <= head:
            problems.append(Problem(f"{queue}.read.{name}", 0, f"confirmed ids at or below the head {head}"))
    return problems


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    journal_bytes: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> Repair:
    """
    Write what is whole as a clean queue: same ids and readers, no damage, no temporary files.

    Where ids are missing or do not ascend, items are numbered anew and the readers move with them: each goes on with
    what it wanted. The real program's readers stop at a hole between two segments, and their heads before any hole.

    It goes to the new directory *to* (default: `<path>.repaired`); the original is not touched. With *in_place* the
    clean files take the place of the damaged ones, which move into a hidden folder beside them. The program has no
    lock: what nobody can know is said to *tell*. Segments are as long as the longest there is, or 16 MiB if that is
    longer; *journal_bytes* is the `journalSize` of the program instead, which does not open a longer one.

    Raises:
        Busy: *in_place*, and a process in sight has one of its files open.
    """
    folder, queue = at(path, queue)
    if in_place:
        _locks.unused([folder / name for name in names_of(folder, queue)], f"repair {queue} in place", tell)
    problems = verify(folder, queue)
    found = state(folder, queue)
    target = Path(to) if to is not None else _files.beside(folder)
    segments = [name for name in found.files if not name.startswith(f"{queue}.read.")]
    first, moved = _numbered_anew(folder, queue, found)
    count = write(
        target,
        read(folder, queue),
        queue,
        moved or found.consumers or None,
        first=first,
        journal_bytes=journal_bytes or _segment_size(folder, segments),
        name_ms=min((int(name.split(".")[1]) for name in segments), default=1),
    )
    if not in_place:
        return Repair(target, count, problems, None)
    kept = _files.set_aside(folder, names_of(folder, queue), queue)
    for name in _files.regular_files(target):
        (target / name).rename(folder / name)
    target.rmdir()
    return Repair(folder, count, problems, kept)


def _segment_size(folder: Path, segments: list[str]) -> int:
    return min(max([JOURNAL_BYTES, *((folder / name).stat().st_size for name in segments)]), MAX_SEGMENT)


def _numbered_anew(folder: Path, queue: str, found: State) -> tuple[int | None, dict[str, Place]]:
    """
    Return the id to count from, and where the readers stand once ids follow one another; None if they do already.

    A reader wants what is above its head and was not confirmed. It stands before the first of those then, and what it
    does not want behind that is confirmed, as far as a checkpoint can say so: the rest comes again.
    """
    first = found.first or 1
    if not 0 < first < (1 << 63) - found.messages:
        first = 1
    wants = {name: (head or 0, frozenset(done)) for name, (head, done) in found.consumers.items()}
    begins: dict[str, int] = {}
    dones: dict[str, list[int]] = {name: [] for name in wants}
    anew = False
    for count, entry in enumerate(read(folder, queue)):
        index = entry.index or 0
        anew = anew or index != first + count
        for name, (head, done) in wants.items():
            if index > head and index not in done:
                begins.setdefault(name, count)
            elif name in begins and len(dones[name]) < MOST_DONE:
                dones[name].append(first + count)
    if not anew:
        return None, {}
    return first, {name: (first - 1 + begins.get(name, found.messages), tuple(dones[name])) for name in wants}


def _out_of_place(command: int) -> str:
    known = {READ_HEAD >> 4: "READ_HEAD", PUT >> 4: "PUT", READ_DONE >> 4: "READ_DONE"}.get(command)
    return f"a record of {known or f'the unknown command {command}'}, which has no place here, is skipped"


def _skipped(folder: Path, name: str) -> list[tuple[int, int]]:
    segment = Segment(folder, name, as_program=False, growing=False)
    with closing(segment.source) as source:
        for _ in segment.entries():
            pass
        return [(position, source.read(position, 1)[0] >> 4) for position in segment.skipped]


def _hidden_bytes(folder: Path, name: str) -> list[Problem]:
    """Find what stands behind the zero byte that ends a segment's data: torn records, or items hidden for ever."""
    segment = Segment(folder, name, as_program=False, growing=False)
    with closing(segment.source) as source:
        for _ in segment.entries():
            pass
        position, size = segment.position, source.size()
        while segment.problem is None and (position := source.next_data(position)) < size:
            data = source.read(position, _files.WINDOW)
            rest = data.lstrip(b"\0")
            if rest:
                where = position + len(data) - len(rest)
                reason = f"bytes behind the end of the data at {segment.position}: a put that was never finished"
                return [Problem(name, where, reason)]
            position += len(data)
    return []
