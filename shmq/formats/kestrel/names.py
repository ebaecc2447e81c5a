"""Names of files: which queue a file belongs to, and in which order the files of one are replayed."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = re.compile(r"[^./~\0]+\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_I64_MAX = (1 << 63) - 1


def in_replay_order(folder: Path, queue: str, *, as_program: bool) -> tuple[list[str], list[Problem]]:
    """
    Return the files to replay, oldest first, and what is wrong with the others.

    A pack file stands for every file with its number or a smaller one, which are dead.
    """
    rotated: list[tuple[int, bool, str]] = []
    current: list[str] = []
    for name in _files.regular_files(folder):
        place = place_of(name, queue, any_ending=as_program)
        if place is not None:
            rotated.append((*place, name))
        elif name == queue:
            current = [name]
    rotated.sort()
    packs = [(number, name) for number, packed, name in rotated if packed]
    if not packs:
        return [name for _, _, name in rotated] + current, []
    newest, pack = packs[-1]
    live = [pack] + [name for number, packed, name in rotated if number > newest and not packed]
    problems = []
    if _size(folder / pack) == 0 and len(rotated) > 1:
        dead = ", ".join(name for _, _, name in rotated if name not in live)
        reason = f"an empty pack file: by the format it replaces {dead}, whose items are not delivered"
        problems.append(Problem(pack, 0, reason))
    return live + current, problems


def place_of(name: str, queue: str, *, any_ending: bool = False) -> tuple[int, bool] | None:
    """Return (number, is it a pack) of a rotated file of *queue*. The program looks at the second field only."""
    if not name.startswith(f"{queue}."):
        return None
    number, _, rest = name[len(queue) + 1 :].partition(".")
    if not _NUMBER.match(number) or not -_I64_MAX - 1 <= int(number) <= _I64_MAX:
        return None
    if rest and rest != "pack" and not any_ending:
        return None
    return int(number), name.endswith(".pack")


def queue_of(name: str) -> str | None:
    """Return the queue that the file *name* belongs to, if it is named as a journal."""
    queue = name.partition(".")[0]
    if "~" in name or not queue:
        return None
    return queue if name == queue or place_of(name, queue) is not None else None


def names_of(folder: Path, queue: str) -> list[str]:
    """Return every file that is a part of *queue*, temporary ones too."""
    names = _files.regular_files(folder)
    return [
        name
        for name in names
        if name == queue or name.startswith(f"{queue}~~") or place_of(name, queue, any_ending=True) is not None
    ]


def _size(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return None
