"""
`verify` names every problem of a queue: of its files, its index, its table and its named tailers.

What Java mends by itself is named too, with what Java does about it: a place that is behind, a mark that is missing,
bytes of a message that was never finished.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.chronicle import words
from shmq.formats.chronicle.folder import Folder
from shmq.formats.chronicle.lock import alive, pid_of
from shmq.formats.chronicle.pages import HEAD, INDEX, Page, parse_page
from shmq.formats.chronicle.store import Store, Why
from shmq.formats.chronicle.table import (
    APPEND_LOCK,
    HIGHEST_CYCLE,
    LOWEST_CYCLE,
    NO_HIGHEST,
    NO_LOWEST,
    TABLE,
    UNLOCKED,
    WRITE_LOCK,
    Table,
)
from shmq.formats.chronicle.walk import Walk
from shmq.formats.model import Entry, Problem, Run

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

VERSION = 5
"""Of the files that have a table beside them."""

_END = 1 << 62
"""More than any sequence."""


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """
    Return every problem of the queue at *path*.

    Beside those of `state`: a header whose place or index disagrees with the messages, bytes behind the end of the
    data, a table that does not fit the files, a lock of a process that is gone, and named tailers that stand where no
    message is or comes.
    """
    folder = Folder(path, queue)
    counts: dict[int, int] = {}
    with closing(_Skim(folder)) as walk:
        for problem in folder.problems:
            walk.hear(problem)
        for _ in walk.lists():
            pass
        for cycle, name in folder.listing():
            store = folder.store(cycle, name, report=walk.hear)
            with closing(store):
                if store.ready() is not None:
                    counts[cycle] = _Check(store).all()
        for problem in (*folder.stray_problems(), *_table(folder), *_tailers(folder, counts)):
            walk.hear(problem)
    return walk.problems


class _Skim(Walk):
    """A walk that hears all problems on the way and loads no message."""

    def _messages(self, store: Store) -> Iterator[Run | list[Entry]]:
        if store.ready() is not None:
            store.walk(_END)
            store.settle()
        yield from ()


class _Check:
    """One file's header and index beside its messages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._header = store.header
        self._root = store.pages().root() if self._header.indexable else None
        self._page: Page | None = None
        self._number = -1
        self._slots: tuple[int, ...] = ()

    def all(self) -> int:
        """Check everything and return how many messages there are."""
        header, store = self._header, self._store
        if not header.indexable:
            cut = f"{header.index_count} by {header.index_spacing}"
            store.problem(0, f"an index of {cut}: both are powers of two, and the first is 8 to 32768")
        count = self._messages()
        self._check_written(count, store.last[0] if count else 0)
        self._check_next_indexed(count)
        if self._root is not None:
            self._check_what_is_beyond(self._root, count)
        if store.end is not None and store.end.why is Why.ZERO:
            self._check_what_is_behind(store.end.at)
        return count

    def _messages(self) -> int:
        """Walk over all messages, look up in the index those that it may know, and return how many there are."""
        store, root, sequence = self._store, self._root, 0
        step = _END if root is None else self._header.index_spacing
        while store.walk(sequence):
            if root is not None:
                self._look_up(root, sequence, store.position)
            sequence += step
        store.settle()
        return store.sequence

    def _look_up(self, root: Page, sequence: int, position: int) -> None:
        number, slot = divmod(sequence // self._header.index_spacing, self._header.index_count)
        if number >= root.capacity:
            return  # More messages than the index can hold: they are stored all the same.
        if number != self._number:
            self._load(root, number)
        page = self._page
        if page is not None and slot < len(self._slots) and self._slots[slot] not in {0, position}:
            reason = f"leads to {self._slots[slot]} for message {sequence}, which is at {position}"
            self._store.problem(page.slots_at + 8 * slot, reason)

    def _load(self, root: Page, number: int) -> None:
        """Load page *number* of the index, if there is one."""
        self._number, self._page = number, None
        store, at = self._store, root.slots_at + 8 * number
        position = words.long(store.source.read(at, 8))
        if not position:
            return
        found = None
        if self._header.end <= position < store.source.size():
            found = parse_page(store.source.read(position, HEAD), position, INDEX)
        if found is None or found.capacity != self._header.index_count or found.stop > store.source.size():
            store.problem(at, f"leads to {position}, where no page of the index is")
            return
        self._page = found
        self._slots = words.longs(store.source.read(found.slots_at, 8 * found.capacity))
        filled = next((slot for slot in range(len(self._slots) - 1, found.used - 1, -1) if self._slots[slot]), None)
        if filled is not None:
            store.problem(found.position, f"{found.used} slots are said to be used, and number {filled} is filled")

    def _check_what_is_beyond(self, root: Page, count: int) -> None:
        """See that the index leads to no message behind the last one."""
        store, spacing = self._store, self._header.index_spacing
        indexed = (count + spacing - 1) // spacing
        number, slot = divmod(indexed, root.capacity)
        if number < root.capacity:
            self._load(root, number)
            self._refuse_filled(slot, number * root.capacity, count)
        slots = words.longs(store.source.read(root.slots_at, 8 * root.capacity))
        beyond = next((page for page in range(number + 1, len(slots)) if slots[page]), None)
        if beyond is not None:
            first = beyond * root.capacity * spacing
            store.problem(root.slots_at + 8 * beyond, f"leads to a page for message {first}, and there are {count}")

    def _refuse_filled(self, slot: int, before: int, count: int) -> None:
        if self._page is None:
            return
        filled = next((each for each in range(slot, len(self._slots)) if self._slots[each]), None)
        if filled is not None:
            sequence = (before + filled) * self._header.index_spacing
            reason = f"leads to {self._slots[filled]} for message {sequence}, and there are {count}"
            self._store.problem(self._page.slots_at + 8 * filled, reason)

    def _check_written(self, count: int, last: int) -> None:
        """See that the pair in the header says where the last message is, and which it is."""
        header, store = self._header, self._store
        if header.write_position_at is None:
            store.problem(0, "the header has no writePosition")
            return
        position, sequence = store.written()
        if position != last:
            reason = f"writePosition is {position}, and the last message is at {last}: the next writer looks for it"
            store.problem(header.write_position_at, reason)
        elif sequence is not None and count and sequence != count - 1:
            reason = f"says that the last message is number {sequence}, which is number {count - 1}"
            store.problem(header.write_position_at + 8, reason)

    def _check_next_indexed(self, count: int) -> None:
        header, store = self._header, self._store
        if header.next_indexed_at is None or not header.indexable:
            return
        following = words.long(store.source.read(header.next_indexed_at, 8))
        if not 0 <= following <= count + header.index_spacing:
            reason = f"lastIndex is {following}, and there are {count} messages: those between would not be indexed"
            store.problem(header.next_indexed_at, reason)

    def _check_what_is_behind(self, position: int) -> None:
        """See that nothing stands behind the end of the data; holes of the file are passed over."""
        source = self._store.source
        size = source.size()
        while (position := source.next_data(position)) < size:
            data = source.read(position, _files.WINDOW)
            rest = data.lstrip(b"\0")
            if rest:
                where = position + len(data) - len(rest)
                self._store.problem(where, "bytes behind the end of the data, of a message that was never finished")
                return
            position += len(data)


def _table(folder: Folder) -> Iterator[Problem]:
    """See that the table fits the files, and that whoever holds a lock is there."""
    table, cycles = folder.table, [cycle for cycle, _ in folder.listing()]
    if table is None:
        fifth = any(store.ready() is not None and store.header.version == VERSION for store in folder.stores())
        if fifth and folder.only is None:
            yield Problem(TABLE, 0, "is missing: the roll cycle was guessed, and named tailers are lost")
        return
    for key, found, unset in (
        (LOWEST_CYCLE, min(cycles, default=NO_LOWEST), NO_LOWEST),
        (HIGHEST_CYCLE, max(cycles, default=NO_HIGHEST), NO_HIGHEST),
    ):
        entry = table.find(key)
        if entry is not None and folder.only is None and entry.value not in {found, UNLOCKED}:
            there = "there is no file" if found == unset else f"the files say {found}"
            yield Problem(table.name, entry.address, f"{key} is {entry.value}, and {there}")
    for key in (WRITE_LOCK, APPEND_LOCK):
        holder = table.value(key, UNLOCKED)
        if holder != UNLOCKED and not alive(pid_of(holder)):
            reason = f"{key} is held by process {pid_of(holder)}, which is gone: the next writer frees it"
            yield Problem(table.name, table.entries[key].address if key in table.entries else 0, reason)


def _tailers(folder: Folder, counts: dict[int, int]) -> Iterator[Problem]:
    """See that the named tailers stand at a message, or where the next one will be."""
    table: Table | None = folder.table
    if table is None or folder.only is not None:
        return
    for name, (index, _) in table.tailers().items():
        if not index:
            continue
        cycle, sequence = folder.roll.split(index)
        reason = None
        if cycle not in counts:
            reason = "no file of that cycle is here: it goes on with the next one"
        elif sequence > counts[cycle]:
            reason = f"its cycle has {counts[cycle]} messages"
        if reason is not None:
            entry = table.entries[f"index.{name}"]
            yield Problem(table.name, entry.address, f"the tailer {name!r} wants index {index:#x}, and {reason}")
