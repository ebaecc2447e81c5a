"""
The table of a queue, `metadata.cq4t` (`directory-listing.cq4t` in version 4): how it is cut, and its named longs.

Each key has a document of its own, which holds a long that programs change in place: the range of cycles, the locks,
and where the named tailers stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmq.formats import _files
from shmq.formats.chronicle import words
from shmq.formats.chronicle.binary import INT64, fields
from shmq.formats.chronicle.header import MAX_HEADER, Roll, block_of, number, parse_roll
from shmq.formats.chronicle.values import NotWire
from shmq.formats.model import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from shmq.formats.model import Place

TABLE = "metadata.cq4t"
LISTING = "directory-listing.cq4t"
"""What version 4 calls it."""

UNLOCKED = -(1 << 63)
"""The value of a lock that nobody holds, and of a key that nobody has set."""

WRITE_LOCK, APPEND_LOCK = "chronicle.write.lock", "chronicle.append.lock"
LOWEST_CYCLE, HIGHEST_CYCLE, MOD_COUNT = "listing.lowestCycle", "listing.highestCycle", "listing.modCount"

NO_LOWEST, NO_HIGHEST = (1 << 31) - 1, -(1 << 31)
"""Their values while there is no file."""

MAX_TABLE = 1 << 22
"""A table is read as one; Java's has 128 KiB."""

_TAILER = "index."
_REPLICATED = "replicated:"


class TableEntry(NamedTuple):
    """One key of the table."""

    position: int
    """Of its document's word."""
    address: int
    """Of the eight bytes of its value."""
    value: int


class Table(NamedTuple):
    """What a table says."""

    name: str
    roll: Roll | None
    """None in version 4, where each file's header says it."""
    entries: dict[str, TableEntry]
    end: int
    """Where the next key would be written."""
    problems: list[Problem]
    source_id: int = 0

    def value(self, key: str, default: int) -> int:
        """Return the value of *key*, whose letters may be large or small, or *default*."""
        found = self.find(key)
        return default if found is None else found.value

    def find(self, key: str) -> TableEntry | None:
        """Return the entry of *key*, whose letters may be large or small."""
        if key in self.entries:
            return self.entries[key]
        lower = key.lower()
        return next((entry for name, entry in self.entries.items() if name.lower() == lower), None)

    def tailer(self, name: str) -> int | None:
        """Return the index of the next message that the named tailer *name* reads, None if there is none."""
        found = self.find(_TAILER + name)
        return None if found is None or _of_replication(_TAILER + name) else found.value

    def tailers(self) -> dict[str, Place]:
        """Return {name: (index of the next message to read, ())} of the named tailers."""
        return {
            key[len(_TAILER) :]: (entry.value, ())
            for key, entry in self.entries.items()
            if key.startswith(_TAILER) and not _of_replication(key)
        }


def _of_replication(key: str) -> bool:
    """Say whether *key* guards a replicated tailer's index, and is none itself."""
    return key.startswith(_TAILER + _REPLICATED) and key.endswith((".version", ".lock"))


def table_name(names: list[str]) -> str | None:
    """Return which of *names* is the queue's table."""
    return next((name for name in (TABLE, LISTING) if name in names), None)


def read_table(folder: Path, name: str) -> Table:
    """Read the table *name* in *folder*; what is wrong with it is in its problems, and what is whole is there."""
    with _files.Source(folder / name) as source:
        data = source.read(0, MAX_TABLE)
    return parse_table(data, name)


def parse_table(data: bytes, name: str = TABLE) -> Table:
    """Read a table from its bytes."""
    table = Table(name, None, {}, 0, [])
    word = _word(data, 0)
    stop = 4 + (word & words.LENGTH)
    if not words.is_meta(word) or stop > min(len(data), MAX_HEADER):
        table.problems.append(Problem(name, 0, "no header of a table; nothing in this file can be read"))
        return table
    try:
        found = {each.name: each for each in block_of(data[:stop], "STStore")}
        metadata = found.get("metadata")
        if metadata is not None and metadata.block:
            inside = {each.name: each for each in fields(data, metadata.body, metadata.stop)}
            table = table._replace(
                roll=parse_roll(data, inside.get("roll")), source_id=number(inside.get("sourceId"), 0)
            )
    except NotWire as error:
        table.problems.append(Problem(name, 0, f"a header that cannot be read: {error}"))
    return with_more(table._replace(end=words.after(0, word, aligned=True)), data)


def with_more(table: Table, data: bytes) -> Table:
    """Return *table* with the keys that *data*, which is all of it, has behind its end by now."""
    at = table.end
    seen = {name.lower() for name in table.entries}
    while True:
        word = _word(data, at)
        if word == 0 or word >= words.NOT_READY:
            return table._replace(end=at)
        stop = at + 4 + (word & words.LENGTH)
        if stop > len(data):
            table.problems.append(Problem(table.name, at, "a key runs past the end of the file"))
            return table._replace(end=at)
        if words.is_data(word):
            _add(table, seen, data, at, stop)
        at = words.after(at, word, aligned=True)


def _add(table: Table, seen: set[str], data: bytes, at: int, stop: int) -> None:
    try:
        found = next(fields(data, at + 4, stop), None)
    except NotWire as error:
        table.problems.append(Problem(table.name, at, f"a key that cannot be read: {error}"))
        return
    if found is None or found.code != INT64 or not isinstance(found.name, str):
        table.problems.append(Problem(table.name, at, "a document that is not a key with a long"))
    elif found.name.lower() in seen:
        table.problems.append(Problem(table.name, at, f"the key {found.name!r} is here again; the first one counts"))
    else:
        seen.add(found.name.lower())
        table.entries[found.name] = TableEntry(at, found.body, found.value)


def _word(data: bytes, at: int) -> int:
    return int(words.WORD.unpack_from(data, at)[0]) if at + 4 <= len(data) else 0
