"""`verify` names every problem; `repair` writes what is whole as clean directories."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import Unsafe
from shmq.formats import _files
from shmq.formats.model import Entry, Place, Problem, Repair
from shmq.formats.sej.journal import Journal
from shmq.formats.sej.names import directories, joined, segments_in
from shmq.formats.sej.offsets import offsets_in
from shmq.formats.sej.read import state
from shmq.formats.sej.write import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem: those of `state`, unfinished commits, and readers that stand outside of the journal."""
    root = _files.directory(path)
    found = state(root, queue)
    problems = list(found.problems)
    for label in directories(root, queue):
        problems += _verify_readers(root, label)
    return problems


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Repair:
    """
    Write what is whole as clean directories beside the original (or to *to*), which is not touched.

    A message that is lost leaves no hole: the format has none, and the real Scanner stops at one. What comes after
    it is numbered anew, and the readers' offsets move with it, so that each goes on at the same message. With
    *in_place* the clean `jnl` and `ofs` take the place of the damaged ones, which move into a hidden folder.
    """
    root = _files.directory(path)
    labels = directories(root, queue)
    problems = verify(root, queue)
    target = Path(to) if to is not None else _files.beside(root)
    if os.path.lexists(target):
        msg = f"cannot write the repaired copy to {target}: it is already there; nothing was changed"
        raise Unsafe(msg)
    total = 0
    target.mkdir()
    try:
        for label in labels:
            total += _repair_one(root, label, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    if not in_place:
        return Repair(target, total, problems, None)
    kept: Path | None = None
    for label in labels:
        names = [name for name in ("jnl", "ofs") if (root / label / name).is_dir()]
        kept = _files.set_aside(root / label, names, "sej")
        for name in _files.subdirectories(target / label):
            if name in ("jnl", "ofs"):
                (target / label / name).rename(root / label / name)
        if label:
            (target / label).rmdir()
    target.rmdir()
    return Repair(root, total, problems, kept)


def _verify_readers(root: Path, label: str) -> Iterator[Problem]:
    segments = segments_in(root / label / "jnl")
    with closing(Journal(root, label, segments[-1][0] if segments else 0)) as journal:
        count = sum(map(len, journal.lists()))
    first = segments[0][0] if segments else 0
    after = segments[-1][0] + count if segments else 0
    for reader, offset, _ in offsets_in(root / label, label):
        name = joined(label, f"ofs/{reader}.ofs")
        if offset is not None and offset < first:
            yield Problem(name, 0, f"wants offset {offset}, and the oldest left is {first}: it will start there")
        elif offset is not None and offset > after:
            yield Problem(name, 0, f"wants offset {offset}, and the next to be written is {after}")
    if (root / label / "ofs").is_dir():
        for name in _files.regular_files(root / label / "ofs"):
            if name.endswith(".ofs.tmp"):
                yield Problem(joined(label, f"ofs/{name}"), 0, "a commit that was never finished; it does not count")


def _repair_one(root: Path, label: str, target: Path) -> int:
    """Write one clean directory, numbering anew behind every hole and moving the readers along."""
    places = {reader: offset for reader, offset, _ in offsets_in(root / label, label)}
    before = {reader: 0 for reader, offset in places.items() if offset is not None}
    segments = segments_in(root / label / "jnl")
    first = segments[0][0] if segments else 0
    with closing(Journal(root, label, 0)) as journal:

        def counted() -> Iterator[Entry]:
            for entry in journal.available():
                for reader in before:
                    # Each reader goes on at the same message: count what it has already passed.
                    if (entry.index or 0) < (places[reader] or 0):
                        before[reader] += 1
                yield entry._replace(index=None)

        class _Moved(dict[str, Place]):
            """The readers' new places, known only when the last entry has been counted."""

            def items(self) -> Iterable[tuple[str, Place]]:  # type: ignore[override]
                return [(reader, (first + before[reader] if reader in before else None, ())) for reader in places]

        return write(
            target / label if label else target, counted(), None, _Moved(dict.fromkeys(places, (0, ()))), first=first
        )
