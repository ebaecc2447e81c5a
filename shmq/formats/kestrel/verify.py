"""`verify` names every problem; `repair` writes what is whole as a clean journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import Busy
from shmq.formats import _files, _locks
from shmq.formats.kestrel.folder import at
from shmq.formats.kestrel.names import names_of, place_of
from shmq.formats.kestrel.read import read, state
from shmq.formats.kestrel.write import write
from shmq.formats.model import Problem, Repair

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem of *queue*: those of `state`, and files that the program would stumble over."""
    folder, queue = at(path, queue)
    problems = list(state(folder, queue).problems)
    for name in _files.regular_files(folder):
        if name.startswith(f"{queue}~~"):
            problems.append(Problem(name, 0, "a rewrite that was never finished; the program deletes it unread"))
        elif name.startswith(f"{queue}.") and place_of(name, queue) is None:
            problems.append(Problem(name, 0, "its name has no number where a rotated journal has one; ignored here"))
    return problems


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    tell: Callable[[str], object] | None = None,
) -> Repair:
    """
    Write what is in the queue as one clean journal, open transactions still open: what a rewrite would leave.

    It goes to the new directory *to* (default: `<path>.repaired`); the original is not touched. With *in_place* the
    clean file takes the place of all files of this queue, which move into a hidden folder beside it. The program has no
    lock: what nobody can know is said to *tell*.

    Raises:
        Busy: *in_place*, and a process in sight has one of its files open.
    """
    folder, queue = at(path, queue)
    if in_place:
        _unused(folder, queue, tell)
    problems = verify(folder, queue)
    target = Path(to) if to is not None else _files.beside(folder)
    count = write(target, read(folder, queue), queue)
    if not in_place:
        return Repair(target, count, problems, None)
    try:
        _unused(folder, queue, None)  # nor has somebody come meanwhile
    except Busy:
        (target / queue).unlink()
        target.rmdir()
        raise
    kept = _files.set_aside(folder, names_of(folder, queue), queue)
    (target / queue).rename(folder / queue)
    target.rmdir()
    return Repair(folder, count, problems, kept)


def _unused(folder: Path, queue: str, tell: Callable[[str], object] | None) -> None:
    _locks.unused([folder / name for name in names_of(folder, queue)], f"repair {queue} in {folder} in place", tell)
