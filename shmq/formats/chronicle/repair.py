"""
`repair`: a clean queue of whatever is whole in a damaged one.

As Java's appender mends what it finds: the place of the last message, EOF marks that are missing, documents that were
never finished, and holes in the index; and beyond that an index that leads astray, a table that is gone or does not
fit the files, and tailers that stand where nothing is. Cycles and sequences stay what they are.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Corrupt, NotFound, Unsafe
from shmq.formats import _files
from shmq.formats.chronicle import fresh, words
from shmq.formats.chronicle.folder import TABLES, Folder
from shmq.formats.chronicle.lock import WriteLock, alive, pid_of
from shmq.formats.chronicle.store import Store, Why
from shmq.formats.chronicle.table import (
    APPEND_LOCK,
    HIGHEST_CYCLE,
    LOWEST_CYCLE,
    TABLE,
    UNLOCKED,
    WRITE_LOCK,
    Table,
)
from shmq.formats.chronicle.table_writer import LiveTable
from shmq.formats.chronicle.verify import verify
from shmq.formats.chronicle.write import Writer, refuse_to_replace
from shmq.formats.model import Repair

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


_SAID_BY_FILES = {HIGHEST_CYCLE, LOWEST_CYCLE, WRITE_LOCK, APPEND_LOCK}
"""Keys whose numbers are not taken from the old table: the files say them, or nobody holds them any more."""


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Repair:
    """
    Write a clean copy of the queue at *path* to *to* (default: beside it), or *in_place*.

    Every message that `read` delivers is in it, at its own index, and so are users' meta-data, named tailers and other
    keys of the table. Locks are free. In place it is refused while a process that lives holds a lock, or has a file of
    the queue mapped as far as we can see: it would go on writing into the files that were moved aside. Processes of
    other users and other containers cannot be seen: that none of those has the queue open has to be known.

    Raises:
        Unsafe: *to* exists; or in place, somebody has the queue open.
        BadFormat: the queue is of version 4, which is converted and not repaired.
    """
    folder = Folder(path, queue)
    if folder.only is not None:
        msg = f"cannot repair {folder.path / folder.only} alone; a queue is repaired, which is its directory"
        raise BadFormat(msg)
    _refuse_version_four(folder)
    target = Path(to) if to is not None else _files.beside(folder.path)
    refuse_to_replace(target)
    problems = verify(folder.path)
    with _alone(folder.path) if in_place else nullcontext():
        count = _copy(folder, target)
        if in_place:
            return Repair(folder.path, count, problems, _move_in(folder.path, target))
    return Repair(target, count, problems, None)


def _move_in(folder: Path, target: Path) -> Path:
    """Have the files of *target* in *folder*, and return where those are that were there."""
    kept = _files.set_aside(
        folder, [name for name in _files.regular_files(folder) if name.endswith(TABLES)], "chronicle"
    )
    for name in sorted(_files.regular_files(target), key=lambda name: name == TABLE):
        (target / name).rename(folder / name)
    target.rmdir()
    return kept


def _refuse_version_four(folder: Folder) -> None:
    for store in folder.stores():
        if store.ready() is not None and store.header.version == 4:
            msg = (
                f"cannot repair {folder.path}: {store.name} is of version 4; shmq.formats.convert_queue makes a queue "
                "of version 5 of what can be read"
            )
            raise BadFormat(msg)
    if folder.table is not None and folder.table.name != TABLE:
        msg = f"cannot repair {folder.path}: its table is {folder.table.name}, of version 4"
        raise BadFormat(msg)


# ---------------------------------------------------------------- the copy
def _copy(folder: Folder, target: Path) -> int:
    """Write everything that is whole in *folder* to *target* and return how many messages that is."""
    roll = folder.roll
    counts: dict[int, int] = {}
    with _files.Stage(target) as stage:
        default = fresh.store(roll.index_count, roll.index_spacing)
        writer = Writer(stage, roll, folder.epoch, default, None, anew=False, lossy=False)
        closed = False
        for cycle, name in folder.listing():
            with closing(folder.store(cycle, name, meta=True, max_payload=words.MAX_LENGTH)) as store:
                if store.ready() is None:
                    continue
                header = store.header
                own = fresh.store(header.index_count, header.index_spacing) if header.indexable else default
                file = writer.begin(cycle, own)
                for found in store.lists():
                    for entry in found:
                        file.add(entry.payload, words.META if entry.index is None else 0)
                counts[cycle] = file.sequence
                closed = _is_closed(store)
        writer.close(eof=closed)
        head, values = _table(folder, counts)
        made = stage.create(TABLE)
        made.write(fresh.table(head, values).ljust(fresh.TABLE_BYTES, b"\0"))
        stage.publish(last=[TABLE])
    return sum(counts.values())


def _is_closed(store: Store) -> bool:
    return store.end is not None and store.end.why is Why.EOF


def _table(folder: Folder, counts: dict[int, int]) -> tuple[bytes, dict[str, int]]:
    """Return the head and the numbers of the new table."""
    table = folder.table
    lowest, highest = min(counts, default=None), max(counts, default=None)
    values = fresh.table_values(lowest, highest, 1 + 2 * len(counts))
    head = fresh.table_head(folder.roll, folder.epoch, None, 0)
    if table is None:
        return head, values
    if table.roll is not None:
        head = _head_of(folder.path / table.name)
    standard = {key.lower(): key for key in values}
    for key, entry in table.entries.items():
        name = standard.get(key.lower(), key)
        if name not in _SAID_BY_FILES:
            values[name] = entry.value
    return head, values | _tailers(folder, table, counts)


def _head_of(path: Path) -> bytes:
    with _files.Source(path) as source:
        word = words.WORD.unpack(source.read(0, 4))[0]
        end = words.after(0, word, aligned=True)
        # A file may be cut right behind its header, where the padding would be.
        return source.read(0, end).ljust(end, b"\0")


def _tailers(folder: Folder, table: Table, counts: dict[int, int]) -> dict[str, int]:
    """Return the places of tailers that stand where nothing is: they go on with what comes next, as Java has them."""
    found: dict[str, int] = {}
    for name, (index, _) in table.tailers().items():
        cycle, sequence = folder.roll.split(index or 0)
        if not index or sequence <= counts.get(cycle, -1):
            continue
        following = min((each for each in counts if each > cycle), default=None)
        if cycle in counts:
            found[f"index.{name}"] = folder.roll.index(cycle, counts[cycle])
        elif following is not None:
            found[f"index.{name}"] = folder.roll.index(following, 0)
        elif counts:
            last = max(counts)
            found[f"index.{name}"] = folder.roll.index(last, counts[last])
        else:
            found[f"index.{name}"] = 0
    return found


# ---------------------------------------------------------------- nobody else
@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the write lock of the queue, if it has a table; nobody else may have it, or have a file of it mapped."""
    users = mapped_by(folder)
    if users:
        named = ", ".join(f"{pid} ({name})" for pid, name in sorted(users.items())[:8])
        msg = (
            f"cannot repair {folder} in place: its files are mapped by process {named}, which would go on with those "
            "that are moved aside. Nothing was changed; a copy (to=) can be made at any time"
        )
        raise Unsafe(msg)
    table = None
    with suppress(NotFound, Corrupt, BadFormat):
        table = LiveTable(folder, 0.0)
    if table is None:
        yield
        return
    with closing(table):
        places = {key: table.at(key) for key in (APPEND_LOCK, WRITE_LOCK)}
        for key, at in places.items():
            value = UNLOCKED if at is None else table.file.load64(at)
            if value != UNLOCKED and alive(pid_of(value)):
                holder = f"process {pid_of(value)}, which lives, holds {key}"
                msg = f"cannot repair {folder} in place: {holder}; nothing was changed"
                raise Unsafe(msg)
        with _held(table, places[WRITE_LOCK]):
            yield


@contextmanager
def _held(table: LiveTable, at: int | None) -> Iterator[None]:
    if at is None:
        yield
        return
    lock = WriteLock(table.file, at)
    try:
        lock.acquire(0.0)
        yield
    finally:
        lock.release()


def mapped_by(folder: Path) -> dict[int, str]:
    """Return {process id: its name} of all that have a file of the queue in *folder* mapped, as far as we may see."""
    inside = (str(folder.resolve()) + "/").encode()
    found = {}
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdigit() and _maps_one(each / "maps", inside):
                found[int(each.name)] = (each / "comm").read_text(encoding="utf-8", errors="replace").strip()
    return found


def _maps_one(maps: Path, inside: bytes) -> bool:
    with maps.open("rb") as lines:
        for line in lines:
            at = line.find(inside)
            if at >= 0 and line[at + len(inside) :].split()[0].endswith((b".cq4", b".cq4t")):
                return True
    return False
