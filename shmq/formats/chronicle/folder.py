"""
The directory of a queue: how it is cut into cycles, which cycles are there, and what else lies in it.

The table says how it is cut; without one (or in version 4) the first file's header or its name does, as Java takes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files
from shmq.formats.chronicle import cycles
from shmq.formats.chronicle.store import MAX_PAYLOAD, Store
from shmq.formats.chronicle.table import Table, read_table, table_name
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmq.formats.chronicle.header import Header, Roll

NAME = "chronicle"

DATA, TABLES = ".cq4", (".cq4", ".cq4t")
"""What the names of files with messages, and of a queue's files, end in."""

_LOOKED_AT = 4
"""Files whose headers are asked how a queue without a table is cut: the first may not be ready."""


class Folder:
    """The directory of one queue."""

    def __init__(self, path: str | os.PathLike[str], queue: str | None = None) -> None:
        """Look at the queue at *path*: its directory, a directory of queues with one called *queue*, or one file."""
        self.path, self.only = _place(Path(path), queue)
        self._cycles: dict[str, int | None] = {}
        self.settle()
        if self.only is not None and self.cycle_of(self.only) is None:
            self._refuse_names([self.only])

    def refuse_strays(self) -> None:
        """
        Go on only where a file can be read, or none is there, or what is damaged may be what says how they are named.

        Raises:
            BadFormat: all are named as no cycle is, and nothing else says which messages are where.
        """
        if self.only is None and not self._is_said and (strays := self.strays()) and not self.listing():
            self._refuse_names(strays)

    def _refuse_names(self, names: list[str]) -> NoReturn:
        which = f"no {self.roll.name} cycle" if self._is_said or cycles.guess(names) else "no cycle of any kind"
        msg = (
            f"cannot read {', '.join(names[:4])} in {self.path}: the name of a file says which cycle's messages it "
            f"holds, and {which} has files of this name; give it back the one that it had"
        )
        raise BadFormat(msg)

    def settle(self) -> None:
        """Find out how the queue is cut, and what its table holds."""
        names = self.names()
        if not any(name.endswith(TABLES) for name in names):
            msg = f"no Chronicle queue in {self.path}: it has no file that ends in .cq4 or .cq4t"
            raise NotFound(msg)
        self.problems: list[Problem] = []
        self.table: Table | None = None
        found = table_name(names)
        if found is not None:
            self.table = read_table(self.path, found)
            self.problems += self.table.problems
        data = [name for name in names if name.endswith(DATA)]
        header, settings = self._settings(data)
        self.epoch = 0 if settings is None else settings.epoch
        self.roll = self._roll_cycle(settings, header, data)
        self._cycles.clear()
        self._is_said = settings is not None
        """Whether a table or a file says how the queue is cut; the names do not."""
        self.settled = settings is not None or bool(data)
        """Whether that is known: not while a queue is being made, and has a table without a header and no more."""

    def names(self) -> list[str]:
        """Return the names of the files that are there now, sorted."""
        return _files.regular_files(self.path)

    def _settings(self, data: list[str]) -> tuple[Header | None, Roll | None]:
        """Return a file's header, if one is needed, and how the queue is cut, if somebody says it."""
        if self.table is not None and self.table.roll is not None:
            settings = self.table.roll
            known = cycles.by_format(settings.format) is not None
            return None if known else self._a_header(data), settings
        header = self._a_header(data)
        return header, None if header is None else header.roll

    def _a_header(self, data: list[str]) -> Header | None:
        for name in data[:_LOOKED_AT]:
            try:
                store = Store(self.path, name, 0, cycles.DEFAULT)
            except NotFound:
                continue  # it has been deleted since
            header = store.ready()
            store.close()
            if header is not None:
                return header
        return None

    def _roll_cycle(self, settings: Roll | None, header: Header | None, data: list[str]) -> cycles.RollCycle:
        if settings is None:
            found = cycles.guess(data)
            if found is None and data:
                self.problems.append(Problem(data[0], 0, "no roll cycle has files of this name, and no table says it"))
            return found or cycles.DEFAULT
        found = cycles.by_format(settings.format, settings.length_ms) or cycles.by_format(settings.format)
        if found is not None:
            return found
        count, spacing = cycles.DEFAULT.index_count, cycles.DEFAULT.index_spacing
        if header is not None and header.indexable:
            count, spacing = header.index_count, header.index_spacing
        custom = cycles.RollCycle(settings.format, settings.format, settings.length_ms, count, spacing)
        try:
            custom.cycle_of(custom.file_name(0))
        except ValueError as error:
            msg = f"cannot read {self.path}: its files are named by a pattern unknown here: {error}"
            raise BadFormat(msg) from error
        return custom

    # ------------------------------------------------------------ cycles
    def cycle_of(self, name: str) -> int | None:
        """Return the cycle whose messages the file *name* holds, None if it is no such file."""
        if name not in self._cycles:
            self._cycles[name] = self.roll.cycle_of(name, self.epoch)
        return self._cycles[name]

    def listing(self) -> list[tuple[int, str]]:
        """
        Return (cycle, name) of the files with messages, by cycle.

        A listing is not made at one moment: of files that came meanwhile it may show a later one and no earlier one.
        What a first listing shows is taken from a second, for whatever is older than it must be in that.
        """
        first = self._listed(self.names())
        if self.only is not None or not first:
            return first
        newest = first[-1][0]
        return [each for each in self._listed(self.names()) if each[0] <= newest]

    def _listed(self, names: Iterable[str]) -> list[tuple[int, str]]:
        found = [
            (cycle, name)
            for name in names
            if (self.only is None or name == self.only)
            and name.endswith(DATA)
            and (cycle := self.cycle_of(name)) is not None
        ]
        return sorted(found)

    def strays(self) -> list[str]:
        """Return the names of files that end as those with messages do and belong to no cycle."""
        if self.only is not None:
            return []
        return [name for name in self.names() if name.endswith(DATA) and self.cycle_of(name) is None]

    def stray_problems(self) -> list[Problem]:
        """Say of each stray that it is not read."""
        return [
            Problem(name, 0, f"no file of a {self.roll.name} queue has this name: it is not read")
            for name in self.strays()
        ]

    def store(
        self,
        cycle: int,
        name: str,
        *,
        meta: bool = False,
        max_payload: int = MAX_PAYLOAD,
        report: Callable[[Problem], None] | None = None,
    ) -> Store:
        """Open one file."""
        return Store(self.path, name, cycle, self.roll, meta=meta, max_payload=max_payload, report=report)

    def stores(self) -> Iterable[Store]:
        """Deliver every file in turn, open until the next one comes."""
        for cycle, name in self.listing():
            try:
                store = self.store(cycle, name)
            except NotFound:
                continue
            try:
                yield store
            finally:
                store.close()


def _place(path: Path, queue: str | None) -> tuple[Path, str | None]:
    """Return the queue's directory, and the one file to read if *path* names one."""
    if path.is_file():
        if not path.name.endswith(TABLES):
            msg = f"cannot read {path}: a file of a Chronicle queue ends in .cq4 or .cq4t"
            raise BadFormat(msg)
        return path.parent, path.name if path.name.endswith(DATA) else None
    folder = _files.directory(path)
    if queue:
        if Path(queue).name != queue:
            msg = f"no queue {queue!r} in {folder}: a queue is a directory there"
            raise NotFound(msg)
        return _files.directory(folder / queue), None
    if is_queue(folder):
        return folder, None
    return folder / _files.only_queue(folder, queues(folder), "Chronicle"), None


def is_queue(folder: Path) -> bool:
    """Say whether *folder* is the directory of a queue."""
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(TABLES) and _files.is_file(entry) for entry in entries)


def detect(folder: Path) -> bool:
    """Say whether *folder*, which is no queue's directory, holds directories of some."""
    return bool(_inside(folder))


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return "" if *path* is a queue's directory, else the names of the queues that are directories in it."""
    folder = _files.directory(path)
    if is_queue(folder):
        return [""]
    return _inside(folder)


def _inside(folder: Path) -> list[str]:
    found = []
    for name in _files.subdirectories(folder):
        with suppress(FileNotFoundError, PermissionError):  # gone since, or not ours to look into
            if is_queue(folder / name):
                found.append(name)
    return found


def place_of(path: str | os.PathLike[str], queue: str | None) -> Path:
    """
    Return the directory of the queue to write to: *path*, or the one called *queue* in it.

    Raises:
        BadFormat: *queue* is no name of a directory there.
    """
    if not queue:
        return Path(path)
    if Path(queue).name != queue:
        msg = (
            f"cannot write a Chronicle queue {queue!r} in {os.fspath(path)}: it is a directory there, and has its name"
        )
        raise BadFormat(msg)
    return Path(path) / queue
