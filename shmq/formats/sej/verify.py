"""`verify` names every problem; `repair` writes what is whole as clean directories."""

from __future__ import annotations

import contextlib
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import Unsafe
from shmq.formats import _files
from shmq.formats._locks import held
from shmq.formats.model import Entry, Place, Problem, Repair
from shmq.formats.sej.journal import Journal
from shmq.formats.sej.messages import SEGMENT_BYTES
from shmq.formats.sej.names import JOURNAL, OFFSETS, SHARD, directories, joined, segments_in
from shmq.formats.sej.offsets import locks_of, offsets_in
from shmq.formats.sej.read import state
from shmq.formats.sej.write import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
    segment_bytes: int = SEGMENT_BYTES,
    tell: Callable[[str], object] | None = None,
) -> Repair:
    """
    Write what is whole as clean directories beside the original (or to *to*), which is not touched.

    A message that is lost leaves no hole: the format has none, and the real Scanner stops at one. What comes after
    it is numbered anew, and the readers' offsets move with it, so that each goes on at the same message. With
    *in_place* the clean `jnl` and `ofs` take the place of the damaged ones, which move into a hidden folder beside the
    original; the locks of the writer and of all readers are held meanwhile, so nothing of it is left to *tell*.
    Segments are closed once they hold at least *segment_bytes*.

    Raises:
        Busy: *in_place*, and somebody writes to it, or is one of its readers.
    """
    del tell
    root = _files.directory(path)
    labels = directories(root, queue)
    if in_place:
        return _repair_in_place(root, queue, labels, segment_bytes)
    problems = verify(root, queue)
    target = Path(to) if to is not None else _beside(root)
    if os.path.lexists(target):
        msg = f"cannot write the repaired copy to {target}: it is already there; nothing was changed"
        raise Unsafe(msg)
    target.mkdir()
    return Repair(target, _repair_all(root, labels, target, segment_bytes), problems, None)


def _beside(root: Path) -> Path:
    """Return a free name beside *root*; beside its parent for one of several shards, whose watcher would read both."""
    root = root.resolve() if SHARD.match(root.resolve().name) else root
    return _files.beside(root.parent.parent / root.name if SHARD.match(root.name) else root)


def _repair_all(root: Path, labels: list[str], target: Path, segment_bytes: int) -> int:
    try:
        return sum(_repair_one(root, label, target, segment_bytes) for label in labels)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _repair_in_place(root: Path, queue: str | None, labels: list[str], segment_bytes: int) -> Repair:
    folders = [root / label for label in labels]
    with held([path for folder in folders for path in locks_of(folder)], f"repair {root} in place") as made:
        problems = verify(root, queue)
        hidden = _files.hidden_beside(root, "damaged")
        clean, kept = hidden / "clean", hidden / (root.resolve().name or "kept")
        try:
            clean.mkdir()
            total = _repair_all(root, labels, clean, segment_bytes)
            _swap(root, labels, clean, kept)
        except BaseException:
            shutil.rmtree(clean, ignore_errors=True)
            with contextlib.suppress(OSError):
                hidden.rmdir()
            raise
        shutil.rmtree(clean)
        for path in made:  # those in the `ofs` that is put aside lock nothing any more
            if path.parent.name == OFFSETS:
                (kept / path.relative_to(root)).unlink(missing_ok=True)
    return Repair(root, total, problems, kept)


def _swap(root: Path, labels: list[str], clean: Path, kept: Path) -> None:
    """Put the clean folders in the place of those there, and these into *kept*: all of them, or none."""
    moved: list[tuple[Path, Path]] = []
    try:
        for label in labels:
            (kept / label).mkdir(parents=True, exist_ok=True)
            for name in (JOURNAL, OFFSETS):
                for source, target in ((root, kept), (clean, root)):
                    if (source / label / name).is_dir():
                        (source / label / name).rename(target / label / name)
                        moved.append((source / label / name, target / label / name))
    except OSError:
        for source, target in reversed(moved):
            target.rename(source)
        shutil.rmtree(kept, ignore_errors=True)
        raise


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


def _repair_one(root: Path, label: str, target: Path, segment_bytes: int) -> int:
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
            target / label if label else target,
            counted(),
            None,
            _Moved(dict.fromkeys(places, (0, ()))),
            segment_bytes=segment_bytes,
            first=first,
        )
