"""One segment, read record by record from a position that is remembered, with care for whatever may stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.libkestrel.records import (
    I32,
    I64,
    MAX_ITEM,
    PUT,
    PUT_EXPIRING,
    PUT_EXPIRING_FIXED,
    PUT_FIELDS,
    PUT_FIXED,
    READ_DONE,
    WRITER_MAGIC,
)
from shmq.formats.model import MS, Entry, Problem, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_SKIPPED = 1000
_TORN = "the file ends inside a record; its whole records were kept"


class Segment:
    """One writer file, read record by record from a position that it remembers."""

    def __init__(self, folder: Path, name: str, *, as_program: bool, growing: bool) -> None:
        self.source = _files.Source(folder / name)
        self.name = name
        self.position = len(WRITER_MAGIC)
        self.problem: Problem | None = None
        self.skipped: list[int] = []
        """Where records that are no puts stand, the first thousand of them."""
        self._extra = {"segment": name}
        self._as_program = as_program
        self._growing = growing

    def lists(self) -> Iterator[list[Entry]]:  # noqa: C901  one loop on purpose: a call per record would cost more
        """Deliver the puts from here to the end of what is whole; say in `problem` why it ended, if not well."""
        unpack, make, extra = PUT_FIELDS.unpack_from, make_entry, self._extra
        window = _files.WINDOW
        while True:
            if self.source.size() < self.position:
                self._stop(self.position, "the file became shorter than what was already read")
                return
            data = self.source.read(self.position, window)
            last = len(data) - PUT_EXPIRING_FIXED
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= last:
                command, size, errors, index, added = unpack(data, at)
                start = at + PUT_FIXED
                expires = None
                if command != PUT:
                    if command != PUT_EXPIRING:
                        skipped = _length_of_unknown(command, size)
                        if not skipped or at + skipped > len(data):
                            break
                        self._skip(self.position + at)
                        at += skipped
                        continue
                    expires = I64.unpack_from(data, start)[0] * MS
                    start += 8
                stop = start + size
                if not 0 <= size <= MAX_ITEM or stop > len(data):
                    break
                at = stop
                add(make((data[start:stop], index, added * MS, expires, None, None, errors, extra)))
            self.position += at
            if found:
                yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            more = self._slowly()
            if isinstance(more, Entry):
                yield [more]
            elif not more:
                return

    def entries(self) -> Iterator[Entry]:
        """As `lists`, one by one."""
        for found in self.lists():
            yield from found

    def _slowly(self) -> Entry | bool:  # noqa: PLR0911  one way out per kind of damage
        """
        Take the one record that the fast loop left: a rare one, a large one, or one on the window's edge.

        Returns its entry, True if it was skipped, or False at the end.
        """
        data = self.source.read(self.position, 1 + 4 * 15)
        if not data:
            return False
        command, words = data[0] >> 4, data[0] & 15
        if data[0] == 0:
            return False  # Segments are allocated full of zeros: this is the live end.
        header = 1 + 4 * words
        if len(data) < header:
            return self._torn("truncated header")
        if command < 8:
            self._skip(self.position)
            self.position += header  # Unknown, and READ_HEAD in the wrong kind of file: skipped by its own length.
            return True
        if words == 0:
            return self._stop(self.position, "a command with data, but without a header to hold its size")
        size = I32.unpack_from(data, 1)[0]
        if not 0 <= size <= MAX_ITEM:
            return self._stop(self.position, f"a data size of {size} bytes")
        if self.position + header + size > self.source.size() and not self._misread(command, words):
            return self._torn("truncated entry")
        if command == READ_DONE >> 4 and size % 8:
            return self._stop(self.position, f"a READ_DONE of {size} bytes, which are not whole ids")
        if command != PUT >> 4:
            self._skip(self.position)
            self.position += header + size
            return True
        return self._put(words, size)

    def _skip(self, position: int) -> None:
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(position)

    def _misread(self, command: int, words: int) -> bool:
        return self._as_program and command == PUT >> 4 and words not in (6, 8)

    def _put(self, words: int, size: int) -> Entry | bool:
        """Take one PUT. The document knows headers of 6 and 8 words; the program takes any, and misreads them."""
        if words not in (6, 8) and not self._as_program:
            return self._stop(self.position, f"a PUT with a header of {words} words; 6 or 8 are defined")
        fixed = PUT_EXPIRING_FIXED if words > 6 else PUT_FIXED
        data = self.source.read(self.position, fixed + size)
        if len(data) < fixed + size:
            return self._torn("truncated entry")
        _, _, errors, index, added = PUT_FIELDS.unpack_from(data, 0)
        expires = I64.unpack_from(data, PUT_FIXED)[0] * MS if words > 6 else None
        self.position += fixed + size
        return Entry(data[fixed:], index, added * MS, expires, None, None, errors, self._extra)

    def _torn(self, reason: str) -> bool:
        # While its program writes, a file may end inside a record: the rest is to come.
        return False if self._growing else self._stop(self.position, f"{reason}: {_TORN}")

    def _stop(self, position: int, reason: str) -> bool:
        self.problem = Problem(self.name, position, reason)
        return False


def _length_of_unknown(command: int, size: int) -> int:
    """Return how long a record other than a PUT is, or 0 if that takes a closer look."""
    if command < 0x80:
        return 1 + 4 * (command & 15) if command else 0
    if command < 0x90 or not command & 15 or not 0 <= size <= MAX_ITEM or (command < 0xA0 and size % 8):
        return 0
    return 1 + 4 * (command & 15) + size
