"""
`dump`: the files of a queue as text, document by document, in the look of Chronicle's own dump.

    --- !!meta-data #binary           what the document is; #binary where its bytes are not text
    header: !SCQStore { ...           what is in it
    # position: 784, header: 0        where the next one's word lies, and the number of the last message
    ...
    # 7284 bytes remaining            the end, and what the file has behind it

What no wire is comes as its bytes, in hexadecimal digits. One document at a time is held.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shmq.formats import _files
from shmq.formats.chronicle import words
from shmq.formats.chronicle.binary import decode, fields
from shmq.formats.chronicle.folder import DATA, TABLES, Folder
from shmq.formats.chronicle.printer import show
from shmq.formats.chronicle.values import NotWire

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_LOOKED_AT = 32
"""So many bytes tell whether a document is text, as in Chronicle's own dump."""

_MOST_SHOWN = 1 << 20
"""Of a longer document only the beginning is shown: its values would take many times its bytes."""

_FEW = 4096
_ROW = 16
_DOT = "\u00b7"


def dump(path: str | os.PathLike[str], queue: str | None = None, *, limit: int | None = None) -> Iterator[str]:
    """
    Deliver the lines of a dump of the Chronicle queue at *path*, or of the one `.cq4` or `.cq4t` file at *path*.

    First comes the table, then each cycle's file. With a *limit*, it ends behind so many messages of the queue.
    """
    place = Path(path)
    if place.is_file() and place.name.endswith(TABLES):
        folder, names = place.parent, [place.name]
    else:
        found = Folder(path, queue)
        folder, names = found.path, [name for _, name in found.listing()] + found.strays()
        names = ([] if found.table is None else [found.table.name]) + names
    left = limit
    for name in names:
        if len(names) > 1:
            yield f"## {name}"
        one = _File(folder, name)
        counts = name.endswith(DATA)
        yield from one.lines(left if counts else None)
        if left is not None and counts:
            left -= one.messages
            if left <= 0:
                return


class _File:
    """One file on its way to text."""

    def __init__(self, folder: Path, name: str) -> None:
        self._source = _files.Source(folder / name)
        self._aligned = True
        self.messages = 0

    def lines(self, limit: int | None) -> Iterator[str]:
        """Deliver the lines of its dump, of *limit* messages at most."""
        at = 0
        with self._source as source:
            while limit is None or self.messages < limit:
                size = source.size()
                word = _word(source.read(at, 4))
                if not word:
                    yield "..."
                    yield f"# {max(0, size - at - 4)} bytes remaining"
                    return
                self.messages += words.is_data(word)
                if at:
                    yield f"# position: {at}, header: {self._number(word)}"
                length = word & words.LENGTH
                if word < words.NOT_READY and at + 4 + length > size:
                    yield f"#  has a 4 byte size prefix, {length} > {max(0, size - at - 4)} len is {length}"
                    return
                if word >= words.NOT_READY:
                    yield f"--- !!not-ready-{'meta-data' if word & words.META else 'data'} #binary"
                    yield "..."
                    yield f"# {max(0, size - at - 4)} bytes remaining"
                    return
                yield from self._document(at, word, source.read(at + 4, min(length, _MOST_SHOWN)))
                at = words.after(at, word, aligned=self._aligned)

    def _number(self, word: int) -> str:
        """Return the number of the last message, as Chronicle counts them: from 0, and -1 before the first."""
        number = self.messages - 1
        if word == words.EOF:
            return f"{number} EOF"
        return f"{number} or {number + 1}" if word >= words.NOT_READY else str(number)

    def _document(self, at: int, word: int, payload: bytes) -> Iterator[str]:
        kind = "data" if words.is_data(word) else "meta-data"
        text = _as_text(payload)
        yield f"--- !!{kind}" + (" #binary" if text is None else "")
        if not at:
            self._aligned = _aligned(payload)
        missing = (word & words.LENGTH) - len(payload)
        if missing:
            yield from _digits(at + 4, payload[:_FEW])
            yield f"# {missing + len(payload) - _FEW} bytes more"
        elif text is not None:
            yield from text.splitlines()
        else:
            try:
                shown = show(decode(payload))
            except NotWire:
                yield from _digits(at + 4, payload)
            else:
                yield from shown.splitlines()


def _word(data: bytes) -> int:
    return int(words.WORD.unpack(data)[0]) if len(data) == words.WORD.size else 0


def _aligned(payload: bytes) -> bool:
    """Say whether documents begin on multiples of four: in all files but the data files of version 4."""
    try:
        header = next(fields(payload), None)
        if header is None or header.types != ("SCQStore",) or not header.block:
            return True
        return any(
            each.name == "dataFormat" and each.value not in {None, 0}
            for each in fields(payload, header.body, header.stop)
        )
    except NotWire:
        return True


def _as_text(payload: bytes) -> str | None:
    """Return the document as text if it is some: not BinaryWire, whose first bytes have no letters only."""
    if any((byte < ord(" ") and byte != ord("\n")) or byte > ord("\x7f") for byte in payload[:_LOOKED_AT]):
        return None
    text = payload.decode("latin-1").rstrip(" ")
    return text if text.replace("\n", "").replace("\t", "").isprintable() else None


def _digits(position: int, data: bytes) -> Iterator[str]:
    """Deliver *data* in rows of 16 bytes, each behind its position in the file."""
    first = position - position % _ROW
    zeros = 0
    for row in range(first, position + len(data), _ROW):
        cells = [data[at - position] if 0 <= at - position < len(data) else None for at in range(row, row + _ROW)]
        zeros = zeros + 1 if not any(cells) and None not in cells else 0
        if zeros == 2:
            yield "........"
        if zeros < 2:
            hexadecimal = [f"{cell:02x}" if cell is not None else "  " for cell in cells]
            letters = [_letter(cell) for cell in cells]
            halves = (slice(0, _ROW // 2), slice(_ROW // 2, _ROW))
            digits = "  ".join(" ".join(hexadecimal[half]) for half in halves)
            yield f"{row:08x} {digits} {' '.join(''.join(letters[half]) for half in halves)}".rstrip()


def _letter(cell: int | None) -> str:
    if cell is None:
        return " "
    return chr(cell) if ord(" ") <= cell < ord("\x7f") else _DOT
