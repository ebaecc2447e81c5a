"""All files of a queue, open as they were at one time, whatever its program does to their names meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.errors import NotFound
from shmq.formats import _files
from shmq.formats.kestrel.names import in_replay_order

if TYPE_CHECKING:
    from pathlib import Path

    from shmq.formats.model import Problem

ATTEMPTS = 10
"""How often it is begun again when files change their names meanwhile."""
MOST_HELD = 128
"""So many files are held open, the newest ones; of a queue that has more, the older ones are found by their names."""


@dataclass(slots=True)
class Held:
    """A file in its place among the others."""

    name: str
    identity: tuple[int, int]
    source: _files.Source | None
    """Open, unless there are too many."""

    def close(self) -> None:
        """Let it go; again is harmless."""
        if self.source is not None:
            self.source.close()
            self.source = None


def open_all(folder: Path, queue: str, *, as_program: bool) -> tuple[list[Held], list[Problem]]:
    """
    Open the files of *queue*, in replay order; and what is wrong with others.

    Raises:
        NotFound: they were renamed or deleted at each of several attempts.
    """
    for attempt in range(ATTEMPTS):
        names, problems = in_replay_order(folder, queue, as_program=as_program)
        held: list[Held] = []
        try:
            hold(folder, names, held)
            if _still_there(folder, queue, held, as_program=as_program) or attempt == ATTEMPTS - 1:
                return held, problems
        except NotFound:
            let_go(held)
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            let_go(held)
            raise
        else:
            let_go(held)
    raise AssertionError  # pragma: no cover  the last attempt returns or raises


def hold(folder: Path, names: list[str], held: list[Held]) -> None:
    """Open each of *names*, and add it to *held*; the newest stay open."""
    for after, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        source = _files.Source(folder / name)
        one = Held(name, source.identity(), source)
        if after >= MOST_HELD:
            one.close()
        held.append(one)


def let_go(held: list[Held]) -> None:
    """Close all of them."""
    for one in held:
        one.close()


def _still_there(folder: Path, queue: str, held: list[Held], *, as_program: bool) -> bool:
    """Whether they have the same names as before, and no other file has come: so they are of one time."""
    names, _ = in_replay_order(folder, queue, as_program=as_program)
    if names != [one.name for one in held]:
        return False
    return all(identity_of(folder / one.name) == one.identity for one in held)


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what stays the same when the file is renamed, or None if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
