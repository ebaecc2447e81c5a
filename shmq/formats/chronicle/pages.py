"""
The index of a `.cq4` file: one document that leads to pages, and pages that lead to every n-th message.

Nothing in it is taken on trust. Pages lie behind one another in the order of their numbers, and so do the messages
that they lead to; what points back, round in a circle or out of the file is a hole, which the format allows.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from shmq.formats.chronicle import words
from shmq.formats.chronicle.binary import EVENT_NAME, I64_ARRAY, PADDING, PADDING_32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.formats import _files
    from shmq.formats.chronicle.header import Header

INDEX2INDEX, INDEX = "index2index", "index"

HEAD = 96
"""Bytes enough for a page up to its first slot: a word, a name, padding, capacity and used."""

_BLOCK = 64
"""Slots read at a time on the way down."""

_PAIR = Struct("<QQ")


class Page(NamedTuple):
    """One document of the index, without its slots."""

    position: int
    """Of its word."""
    slots_at: int
    capacity: int
    used: int
    stop: int
    """The first byte behind it."""


def parse_page(data: bytes, position: int, name: str) -> Page | None:
    """Return the page that *data*, read at *position*, begins with; None if there is no page called *name*."""
    if len(data) < words.WORD.size:
        return None
    word = words.WORD.unpack_from(data, 0)[0]
    if not words.is_meta(word):
        return None
    stop = 4 + (word & words.LENGTH)
    label = bytes((EVENT_NAME, len(name))) + name.encode()
    at, end = 4 + len(label), min(len(data), stop)
    if data[4:at] != label:
        return None
    while at < end and data[at] == PADDING:
        at += 1
    if at + 5 <= end and data[at] == PADDING_32:
        at += 5 + words.WORD.unpack_from(data, at + 1)[0]
    if at + 17 > end or data[at] != I64_ARRAY:
        return None
    capacity, used = _PAIR.unpack_from(data, at + 1)
    slots = at + 17
    if used > capacity or slots + 8 * capacity > stop:
        return None
    return Page(position, position + slots, capacity, used, position + stop)


def is_page(data: bytes) -> bool:
    """Say whether the document whose word *data* begins with is one of the index: it is nobody's meta-data."""
    return any(parse_page(data, 0, name) is not None for name in (INDEX2INDEX, INDEX))


class Pages:
    """The index of one file, as a way from a sequence down to the nearest message whose position it knows."""

    def __init__(self, source: _files.Source, header: Header, report: Callable[[int, str], None]) -> None:
        """Read the index of *source*; *report* hears of (position, reason) what it cannot be."""
        self._source = source
        self._header = header
        self._report = report
        self._root: Page | None = None

    def down_from(self, sequence: int) -> Iterator[tuple[int, int]]:
        """
        Deliver (sequence, position) of the indexed messages from *sequence* down to the first, the nearest first.

        Each page and each slot is looked at once, and positions only descend: that bounds the work by the file's size.
        """
        header, root = self._header, self._find_root()
        if root is None:
            return
        count, spacing = header.index_count, header.index_spacing
        number, slot = divmod(sequence // spacing, count)
        below = self._source.size()
        for page_number, position in self._descending(root, number):
            page = self._page(position, below)
            if page is None:
                continue
            last = slot if page_number == number else count - 1
            base = page_number * count * spacing
            for each, at in self._descending(page, last):
                if not header.end <= at < below or (header.aligned and at & 3):
                    self._report(page.slots_at + 8 * each, f"leads to {at}, where no message of this page can be")
                    continue
                below = at
                yield base + each * spacing, at
            below = min(below, page.position)

    def root(self) -> Page | None:
        """Return the document that leads to the pages, None if the file has none."""
        return self._find_root()

    def _find_root(self) -> Page | None:
        header = self._header
        if self._root is None and header.index2index_at is not None and header.indexable:
            position = words.long(self._source.read(header.index2index_at, 8))
            if position == 0:
                return None
            page = None
            if header.end <= position < self._source.size():
                page = parse_page(self._source.read(position, HEAD), position, INDEX2INDEX)
            if page is None or page.capacity != header.index_count or page.stop > self._source.size():
                self._report(header.index2index_at, f"leads to {position}, where no index of this file is")
                return None
            self._root = page
        return self._root

    def _page(self, position: int, below: int) -> Page | None:
        """Return the page at *position*; None, and a problem said, if there is none that ends before *below*."""
        if self._header.end <= position < below:
            page = parse_page(self._source.read(position, HEAD), position, INDEX)
            if page is not None and page.capacity == self._header.index_count and page.stop <= below:
                return page
        self._report(position, f"no page of the index is here that ends before {below}")
        return None

    def _descending(self, page: Page, last: int) -> Iterator[tuple[int, int]]:
        """
        Deliver (number, value) of the slots of *page* that are not empty, from *last* or the last used one down.

        Of two neighbours that do not ascend one is wrong, and nothing says which: neither is delivered.
        """
        above = None
        slots = self._slots(page, last + 1)
        here = next(slots, None)
        while here is not None:
            lower = next(slots, None)
            number, value = here
            if (above is None or value < above) and (lower is None or lower[1] < value):
                if number <= last:
                    yield here
            else:
                self._report(page.slots_at + 8 * number, f"{value} is not between the slots beside it")
            above, here = value, lower

    def _slots(self, page: Page, last: int) -> Iterator[tuple[int, int]]:
        """Deliver (number, value) of the slots of *page* that are not empty, from *last* or the last used one down."""
        end = min(last, page.used - 1) + 1
        while end > 0:
            begin = max(0, end - _BLOCK)
            data = self._source.read(page.slots_at + 8 * begin, 8 * (end - begin))
            for at in range(len(data) // 8 - 1, -1, -1):
                value = words.LONG.unpack_from(data, 8 * at)[0]
                if value:
                    yield begin + at, value
            end = begin
