"""
One `.cq4` file that is appended to: where its next message goes, its index, its end.

Everything here is done under the write lock. A document is filled while its word is still 0, and is there when that
word is stored, in one step; what is done after that (the header's numbers, the index) is left undone where a writer is
killed, and the next one finds the end by walking.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Corrupt
from shmq.formats.chronicle import fresh, words
from shmq.formats.chronicle.header import MAX_HEADER, Header, parse_header
from shmq.formats.chronicle.mapped import Mapped
from shmq.formats.chronicle.pages import HEAD, INDEX, INDEX2INDEX, Page, parse_page
from shmq.formats.chronicle.store import Store
from shmq.formats.chronicle.values import NotWire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from shmq.formats.chronicle.cycles import RollCycle

_LAST = 1 << 62
_STEPS = 64
"""Documents that are passed one by one; where more were appended meanwhile, many are read at once."""
_LEFT_BEHIND = 1 << 16
_ZEROS = bytes(_LEFT_BEHIND)
_NOTHING = bytes(8)
"""Behind what is appended, over whatever is there: the next word, wherever within 8 bytes that is."""


class Live:
    """One file of a queue, open for whoever holds the write lock."""

    def __init__(self, folder: Path, name: str, cycle: int, roll: RollCycle) -> None:
        """Map the file *name* of *cycle*, whose header must be ready."""
        self.file = Mapped(folder / name)
        self.name = name
        self.cycle = cycle
        self._folder = folder
        self._roll = roll
        self._place: tuple[int, int] | None = None
        """(position of the next word, sequence of the next message), as it was left."""
        try:
            self.header = self._header()
        except BaseException:
            self.file.close()
            raise
        header = self.header
        self.capacity = roll.capacity(header.index_count, header.index_spacing)
        self._pages: tuple[int, Page] | None = None
        self._root: Page | None = None

    def _header(self) -> Header:
        word = self.file.load32(0)
        stop = 4 + (word & words.LENGTH)
        try:
            if not words.is_meta(word) or stop > min(self.file.size, 4 + MAX_HEADER):
                msg = f"its first word is {word:08x}"
                raise NotWire(msg)
            header = parse_header(self.file.read(0, stop))
        except NotWire as error:
            msg = f"cannot append to {self.file.path}: it has no header that can be read: {error}"
            raise Corrupt(msg) from error
        places = (header.write_position_at, header.sequence_at, header.next_indexed_at)
        if header.version == 4 or not header.aligned or not header.indexable or None in places:
            msg = (
                f"cannot append to {self.file.path}: it is of version 4, or its header lacks what version 5 has; "
                "shmq.formats.convert_queue makes a new queue of it"
            )
            raise BadFormat(msg)
        if any(at is not None and at % 8 for at in places):
            msg = f"cannot append to {self.file.path}: the numbers of its header are at no multiples of 8"
            raise Corrupt(msg)
        self.file.reserve(0, header.end)
        return header

    # ------------------------------------------------------------ where it goes on
    def end(self) -> tuple[int, int]:
        """
        Return (position of the next word, sequence of the next message): from where we were, and else from the index.

        What the header's pair says is not believed: Java stores a number there that is too small after it has rolled
        and given up its first document, while another appends.
        """
        file = self.file
        at, sequence = self._place or self._found()
        steps = 0
        while True:
            if at + 4 > file.size:  # others have made it longer since we mapped it, or it ends with a document
                file.remap()
                file.grow(at + 4)
            word = file.load32(at)
            if word == 0 or word >= words.NOT_READY:
                break
            steps += 1
            if steps > _STEPS:
                at, sequence = self._walked(at, sequence)
                steps = 0
                continue
            stop = at + 4 + (word & words.LENGTH)
            if stop > file.size:
                file.remap()
                if stop > file.size:
                    msg = f"cannot append to {file.path}: the document at {at} runs past the end of the file"
                    raise Corrupt(msg)
            if word < words.META:
                sequence += 1
            at = words.after(at, word, aligned=True)
        self._place = (at, sequence)
        return at, sequence

    def _walked(self, at: int, sequence: int) -> tuple[int, int]:
        """Return the place where the documents end, which is far."""
        with self._reader() as store:
            store.position, store.sequence = at, sequence
            store.walk(_LAST)
            if store.position == at:
                msg = f"cannot append to {self.file.path}: the document at {at} runs past the end of the file"
                raise Corrupt(msg)
            return store.position, store.sequence

    def _found(self) -> tuple[int, int]:
        """Return a place that is not far from the end: what the index leads to, unless the pair disagrees with it."""
        header = self.header
        self.file.remap()
        with self._reader() as store:
            store.position = header.end
            for sequence, position in store.pages().down_from(self.capacity):
                if store.is_message(position):
                    store.sequence, store.position = sequence, position
                    break
            position, said = store.written()
            if said is not None and position >= store.position:
                store.walk(_LAST, position)
                if store.position == position and store.sequence != said:
                    # One of the two is wrong; only all that is before can say which.
                    store.position, store.sequence = header.end, 0
            store.walk(_LAST)
            return store.position, store.sequence

    @contextmanager
    def _reader(self) -> Iterator[Store]:
        store = Store(self._folder, self.name, self.cycle, self._roll)
        try:
            store.ready()
            yield store
        finally:
            store.close()

    def make_ready(self, at: int, word: int) -> None:
        """Have nothing at *at*, where somebody who never finished it left *word*."""
        text = f"{self.file.path} at {at}: a document that was never finished (word {word:08x}) is written over"
        warnings.warn(text, RuntimeWarning, stacklevel=5)
        self.file.reserve(at, at + 4)
        if not self.file.cas32(at, word, 0):
            msg = f"{self.file.path} at {at}: the word changed though the write lock is held; nothing was written"
            raise Corrupt(msg)

    def clean(self, at: int, limit: int) -> None:
        """
        Have nothing but zeros behind *at*, up to *limit* bytes.

        What one who was killed leaves there hurts no reader. But Java makes the pages of its index without filling
        them, and takes what it finds there for positions.
        """
        file = self.file
        stop = min(file.size, at + 4 + limit)
        begin: int | None = at + 4
        while begin is not None and begin < stop:
            begin = file.data_after(begin)
            if begin is None or begin >= stop:
                return
            end = min(stop, begin + _LEFT_BEHIND)
            found = file.read(begin, end)
            if found != _ZEROS[: len(found)]:
                file.reserve(begin, end)
                file.write(begin, _ZEROS[: len(found)])
            begin = end

    # ------------------------------------------------------------ appending
    def append(self, at: int, sequence: int, payloads: Sequence[bytes | bytearray | memoryview], block: int) -> None:
        """
        Append *payloads* at *at*, the first being message *sequence*: all of them are there at once, or none.

        The pages of the index that they need lie among them. *block* says how long the file has to be.
        """
        spacing = self.header.index_spacing
        data = bytearray()
        indexed: list[tuple[int, int]] = []
        pages: list[tuple[int, int]] = []
        last = at
        for payload in payloads:
            last = at + len(data)
            _add(data, payload, 0)
            if not sequence & (spacing - 1):
                indexed.append((sequence, last))
                number = sequence // spacing // self.header.index_count
                if not (pages and pages[-1][0] == number) and not self._has_page(number):
                    pages.append((number, at + len(data)))
                    _add_page(data, at + len(data), self.header.index_count)
            sequence += 1
        self._publish(at, data, fresh.file_bytes(max(last, *(each for _, each in pages[-1:]), 0), block))
        end = at + len(data) - len(_NOTHING)
        header, file = self.header, self.file
        # Not only raised, as Java does it: under the lock this is what is so, whatever stood there.
        file.store64(_known(header.write_position_at), last)
        file.store64(_known(header.sequence_at), header.encoded(last, sequence - 1))
        self._place = (end, sequence)
        for number, position in pages:
            self._enter_page(number, position)
        for number, position in indexed:
            self._enter(number, position)

    def append_meta(self, at: int, payload: bytes | bytearray | memoryview, block: int) -> None:
        """Append a meta-data document at *at*."""
        data = bytearray()
        _add(data, payload, words.META)
        self._publish(at, data, fresh.file_bytes(at, block))
        if self._place is not None:
            self._place = (at + len(data) - len(_NOTHING), self._place[1])

    def _publish(self, at: int, data: bytearray, size: int) -> None:
        """
        Store *data*, and 8 bytes of nothing behind it, and then its first word; that is left in front of it.

        The file is made *size* bytes long if it is not.
        """
        file = self.file
        data += _NOTHING
        stop = at + len(data)
        file.grow(max(size, stop))
        file.reserve(at, stop)
        with memoryview(data) as view:
            file.write(at + 4, view[4:])
        if not file.cas32(at, 0, words.WORD.unpack_from(data)[0]):
            msg = (
                f"{file.path} at {at}: a document was written here while the write lock was held (was it taken away, "
                "or is it another container's?); this one was not appended"
            )
            raise Corrupt(msg)

    # ------------------------------------------------------------ the index
    def _index_root(self) -> Page | None:
        header, file = self.header, self.file
        if self._root is None and header.index2index_at is not None:
            self._root = self._parse_page(file.load64(header.index2index_at), INDEX2INDEX)
        return self._root

    def _parse_page(self, position: int, name: str) -> Page | None:
        if not self.header.end <= position < self.file.size:
            return None
        page = parse_page(self.file.read(position, position + HEAD), position, name)
        fits = page is not None and page.capacity == self.header.index_count and page.stop <= self.file.size
        return page if page is not None and fits and not page.slots_at % 8 else None

    def _slot(self, page: Page, slot: int) -> int:
        at = page.slots_at + 8 * slot
        self.file.reserve(page.slots_at - 8, page.slots_at)
        self.file.reserve(at, at + 8)
        return at

    def _has_page(self, number: int) -> bool:
        if self._pages is not None and self._pages[0] == number:
            return True
        root = self._index_root()
        # Without a root there is no index, and readers walk.
        return root is None or number >= root.capacity or self.file.load64(root.slots_at + 8 * number) != 0

    def _enter_page(self, number: int, position: int) -> None:
        root = self._index_root()
        if root is not None:
            at = self._slot(root, number)
            self.file.raise64(root.slots_at - 8, number + 1)
            self.file.cas64(at, 0, position)

    def _enter(self, sequence: int, position: int) -> None:
        """Enter message *sequence* into its page; a page that is not one is left alone, and readers walk."""
        header, file = self.header, self.file
        number, slot = divmod(sequence // header.index_spacing, header.index_count)
        if self._pages is None or self._pages[0] != number:
            root = self._index_root()
            if root is None or number >= root.capacity:
                return
            page = self._parse_page(file.load64(root.slots_at + 8 * number), INDEX)
            if page is None:
                return
            self._pages = (number, page)
        page = self._pages[1]
        at = self._slot(page, slot)
        # Java does it the other way round; but a hole among the slots that are used is legal, one filled behind is not.
        file.raise64(page.slots_at - 8, slot + 1)
        file.store64(at, position)
        file.raise64(_known(header.next_indexed_at), sequence + header.index_spacing)

    # ------------------------------------------------------------ the end
    def finish(self, timeout: float) -> None:
        """
        Have an EOF behind the last document.

        One that is being written is waited for, *timeout* seconds; then the mark is written over it, as Java does it.
        """
        file = self.file
        deadline = time.monotonic() + timeout
        while True:
            at, sequence = self.end()
            word = file.load32(at)
            if word == words.EOF:
                return
            self.mend_pair(at, sequence)
            if word and time.monotonic() < deadline:
                time.sleep(0.005)
                continue
            file.grow(at + 8)
            file.reserve(at, at + 8)
            if file.cas32(at, word, words.EOF):
                file.write(at + 4, words.EOF_TAIL)
                return

    def mend_pair(self, end: int, sequence: int) -> None:
        """Have the header say which message is the last, before *end*, where message *sequence* would be."""
        header, file = self.header, self.file
        position = file.load64(_known(header.write_position_at))
        whole = header.end <= position < end and not position & 3 and words.is_data(file.load32(position))
        at, last = position if whole else header.end, 0
        while at < end:
            word = file.load32(at)
            if words.is_data(word):
                last = at
            at = words.after(at, word, aligned=True)
        said = header.last_written(position, file.load64(_known(header.sequence_at)))
        if last and (last, sequence - 1) != (position, said):
            file.store64(_known(header.write_position_at), last)
            file.store64(_known(header.sequence_at), header.encoded(last, sequence - 1))

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()


def _add(data: bytearray, payload: bytes | bytearray | memoryview, kind: int) -> None:
    """Add one document to *data*, which begins at a multiple of 4."""
    length = len(payload)
    data += words.WORD.pack(length | kind)
    data += payload
    if length & 3:
        data += bytes(-length & 3)


def _add_page(data: bytearray, position: int, index_count: int) -> None:
    data += fresh.index_document(position, INDEX, index_count)
    data += bytes(8 * index_count)


def _known(at: int | None) -> int:
    """Return *at*, which was seen to be there when the file was opened."""
    return at or 0
