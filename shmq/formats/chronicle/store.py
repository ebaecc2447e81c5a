"""
One `.cq4` file, read document by document from a place that is remembered, or found by sequence through its index.

A message whose word is seen before the window that holds it is known to be old may have been written while the window
was read: its payload is read again, after the word. `writePosition`, read before the window, says what is old.
"""

from __future__ import annotations

from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.errors import Corrupt, TooLarge
from shmq.formats import _files
from shmq.formats.chronicle import words
from shmq.formats.chronicle.header import MAX_HEADER, Header, parse_header
from shmq.formats.chronicle.pages import HEAD, Pages, is_page
from shmq.formats.chronicle.values import NotWire
from shmq.formats.model import Entry, Problem, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shmq.formats.chronicle.cycles import RollCycle

MAX_PAYLOAD = 1 << 28
"""The default for `max_payload`. Java's own limit is a quarter of its block, which is 16 MiB where nobody chose one."""


class Why(Enum):
    """Why reading ended where it ended."""

    EOF = "EOF marker"
    """The file is closed; the next one goes on."""
    ZERO = "zero word"
    """Nothing is here yet."""
    NOT_READY = "not-ready word"
    """A document is being written, or was left half-made."""
    TORN = "the document runs past the end of the file"
    NO_HEADER = "no header"
    """The file is not ready yet, or is no `.cq4` file."""


class End(NamedTuple):
    """Where reading ended, and why."""

    at: int
    why: Why
    word: int = 0


class Document(NamedTuple):
    """One document of a file, whatever it is."""

    position: int
    """Of its word."""
    word: int
    payload: bytes

    @property
    def meta(self) -> bool:
        """Whether it is meta-data."""
        return words.is_meta(self.word)


def _between(run: Run, metas: list[tuple[int, Entry]]) -> list[Entry]:
    """Return the messages with meta-data between them: (how many messages come before it, it)."""
    found = run.entries()
    for at, meta in reversed(metas):
        found.insert(at, meta)
    return found


class Store:
    """One file, and a place in it."""

    def __init__(
        self,
        folder: Path,
        name: str,
        cycle: int,
        roll: RollCycle,
        *,
        meta: bool = False,
        max_payload: int = MAX_PAYLOAD,
        report: Callable[[Problem], None] | None = None,
    ) -> None:
        """Open *name* in *folder*, the file of *cycle*; *report* hears what is wrong with it, as far as it is read."""
        self.path = folder / name
        self.source = _files.Source(self.path)
        self.name = name
        self.cycle = cycle
        self.roll = roll
        self._meta = meta
        self._max_payload = max_payload
        self._report = report
        self._header: Header | None = None
        self._extra: dict[str, Any] = {"file": name, "cycle": cycle}
        self._extra_of_meta = self._extra | {"meta": True}
        self._old = -1
        self.position = 0
        """Of the next word."""
        self.sequence = 0
        """Of the next message."""
        self.last = (-1, 0)
        """(position, word) of the last document that was passed."""
        self.end: End | None = None
        """Where the last look ended."""

    # ------------------------------------------------------------ the header
    def ready(self) -> Header | None:
        """Return the header, or None where there is none (yet); `end` says why."""
        if self._header is None:
            data = self.source.read(0, 4)
            word = words.WORD.unpack(data)[0] if len(data) == words.WORD.size else 0
            if not words.is_meta(word):
                self._no_header(word, damaged=words.is_data(word))
                return None
            stop = 4 + (word & words.LENGTH)
            data = self.source.read(0, stop) if stop <= 4 + MAX_HEADER else b""
            try:
                if len(data) < stop:
                    msg = f"a first document of {stop - 4} bytes"
                    raise NotWire(msg)
                self._header = parse_header(data)
            except NotWire as error:
                self._no_header(word, damaged=True, reason=str(error))
                return None
            self.position = self._header.end
            self.end = None
        return self._header

    @property
    def header(self) -> Header:
        """The header of a file that is ready."""
        found = self.ready()
        if found is None:
            msg = f"{self.path}: its header is not ready"
            raise Corrupt(msg)
        return found

    def _no_header(self, word: int, *, damaged: bool, reason: str = "the first document is not a header") -> None:
        self.end = End(0, Why.NO_HEADER, word)
        if damaged:
            self.problem(0, f"{reason}; nothing in this file can be read")

    @property
    def damaged(self) -> bool:
        """Whether what ended the last look will never become whole."""
        end = self.end
        return end is not None and (
            end.why is Why.TORN or (end.why is Why.NO_HEADER and end.word != 0 and end.word < words.NOT_READY)
        )

    # ------------------------------------------------------------ from here on
    def lists(self) -> Iterator[list[Entry]]:
        """Deliver the messages from the place on, in lists of what was read at once; `end` says why they ended."""
        for found in self.runs():
            yield found.entries() if isinstance(found, Run) else found

    def runs(self) -> Iterator[Run | list[Entry]]:  # noqa: C901  one loop on purpose: a call a message would cost more
        """As `lists`; but what came without meta-data between is a `Run`, which costs less than its entries."""
        header = self.ready()
        if header is None:
            return
        add_to_stop, mask = words.padding(aligned=header.aligned)
        u32, limit = words.WORD.unpack_from, words.LENGTH
        too_long = min(words.META, self._max_payload + 1)
        window = _files.WINDOW
        while True:
            data, body = self._window(header, window)
            end = len(data)
            last = end - 4
            at, before = 0, self.last[0] - self.position
            found: list[bytes] = []
            metas: list[tuple[int, Entry]] = []
            add = found.append
            while at <= last:
                size = u32(data, at)[0]
                start = at + 4
                if 0 < size < too_long:
                    stop = start + size
                    if stop > end:
                        break
                    add(body[start:stop])
                else:
                    stop = start + (size & limit)
                    if size >> 30 != 1 or stop > end:
                        break
                    if self._meta and (meta := self._user_meta(body[at:stop])):
                        metas.append((len(found), meta))
                before = at
                at = (stop + add_to_stop) & mask
            if at:
                self.last = (self.position + before, u32(data, before)[0])
            self.position += at
            run = self._run(found)
            if found or metas:
                yield _between(run, metas) if metas else run
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            more = self._slowly(header)
            if more:
                yield more
            elif more is None:
                return

    def _run(self, payloads: list[bytes]) -> Run:
        """Return the next messages, and count them."""
        found = Run(payloads, self.roll.index(self.cycle, self.sequence), self._extra)
        self.sequence += len(payloads)
        return found

    def _window(self, header: Header, window: int) -> tuple[bytes, bytes]:
        """Return the bytes from the place on, once for the words and once for the payloads: often the same bytes."""
        if header.write_position_at is not None and self.position + window > self._old:
            self._old = words.long(self.source.read(header.write_position_at, 8))
        data = self.source.read(self.position, window)
        if self.position + len(data) <= self._old + 4 or len(data) < 4 or not any(data[:4]):
            return data, data
        body = self.source.read(self.position, len(data))
        if len(body) < len(data):
            self._shrunk()
        return data, body

    def _slowly(self, header: Header) -> Run | list[Entry] | None:
        """Take one document with care: one that fits in no window, or nothing. None at the end, which is said."""
        position, size = self.position, self.source.size()
        if size < position and size < self.last[0] + 4 + (self.last[1] & words.LENGTH):
            self._shrunk()
        word = self._word(position)
        if word == 0 or word >= words.NOT_READY:
            self._ended(position, word)
            return None
        length = word & words.LENGTH
        if position + 4 + length > size:
            self._torn(position, word)
            return None
        found: Run | list[Entry] = []
        if words.is_data(word):
            if length > self._max_payload:
                msg = f"{self.path} at {position}: a message of {length} bytes, and max_payload is {self._max_payload}"
                raise TooLarge(msg)
            found = self._run([self._payload(position, length)])
        elif self._meta and (meta := self._long_meta(position, length)):
            found = [meta]
        self.last = (position, word)
        self.position = words.after(position, word, aligned=header.aligned)
        return found

    def _ended(self, position: int, word: int) -> None:
        self.end = End(position, Why.ZERO if not word else Why.EOF if word == words.EOF else Why.NOT_READY, word)

    def _torn(self, position: int, word: int) -> None:
        self.end = End(position, Why.TORN, word)
        length, size = word & words.LENGTH, self.source.size()
        self.problem(position, f"a document of {length} bytes runs past the end of the file, which has {size}")

    def _word(self, position: int) -> int:
        """Return the word at *position*; behind the end of the file there is none, as in a hole."""
        data = self.source.read(position, 4)
        return int(words.WORD.unpack(data)[0]) if len(data) == words.WORD.size else 0

    def _payload(self, position: int, length: int) -> bytes:
        payload = self.source.read(position + 4, length)
        while len(payload) < length:  # one read moves 2 GiB at most, and a file may be cut meanwhile
            more = self.source.read(position + 4 + len(payload), length - len(payload))
            if not more:
                self._shrunk()
            payload += more
        return payload

    def _user_meta(self, document: bytes) -> Entry | None:
        return None if is_page(document) else Entry(document[4:], extra=self._extra_of_meta)

    def _long_meta(self, position: int, length: int) -> Entry | None:
        if is_page(self.source.read(position, HEAD)) or length > self._max_payload:
            return None
        return Entry(self._payload(position, length), extra=self._extra_of_meta)

    def _shrunk(self) -> None:
        msg = (
            f"{self.path} at {self.source.size()}: became shorter than the {self.position} bytes that were read; "
            "every message delivered so far is whole"
        )
        raise Corrupt(msg)

    # ------------------------------------------------------------ all documents
    def documents(self, position: int | None = None, limit: int = MAX_PAYLOAD) -> Iterator[Document]:
        """
        Deliver every document from *position* on, the header and the index among them, and say in `end` why it ended.

        Of a payload at most *limit* bytes are loaded. The place for `lists` is left alone.
        """
        header = self.ready()
        if header is None:
            return
        at = 0 if position is None else position
        while True:
            word = self._word(at)
            if word == 0 or word >= words.NOT_READY:
                self._ended(at, word)
                return
            length = word & words.LENGTH
            if at + 4 + length > self.source.size():
                self.end = End(at, Why.TORN, word)
                return
            yield Document(at, word, self._payload(at, min(length, limit)))
            at = words.after(at, word, aligned=header.aligned)

    # ------------------------------------------------------------ finding
    def pages(self) -> Pages:
        """Return the index of the file."""
        return Pages(self.source, self.header, self.problem)

    def written(self) -> tuple[int, int | None]:
        """Return (position, sequence) of the last message as the header has it; None for a pair that disagrees."""
        header = self.header
        if header.write_position_at is None:
            return 0, None
        position = words.long(self.source.read(header.write_position_at, 8))
        if header.sequence_at is None:
            return position, None
        encoded = words.long(self.source.read(header.sequence_at, 8))
        return position, header.last_written(position, encoded)

    def seek(self, sequence: int) -> bool:
        """
        Move to message *sequence*: through the index, and at most a spacing's messages from there. True if it is there.

        Otherwise the place is the end of what is whole, where it may come to be.
        """
        if self.ready() is None:
            return False
        self.sequence, self.position = next(self.marks(sequence))
        self.last = (-1, 0)
        return self.walk(sequence)

    def marks(self, sequence: int, apart: int = 0) -> Iterator[tuple[int, int]]:
        """
        Deliver (sequence, position) of messages from *sequence* down to the file's beginning, the nearest first.

        They are those that the index knows, at least *apart* bytes from each other. Each is walked to from the one
        before it: an index can lead to the wrong message (Java's own does, where a writer rolled back beside others),
        and the pair in the header, which is not asked, as well.
        """
        beginning = (0, self.header.end)
        upper: tuple[int, int] | None = None
        for mark in chain(self.pages().down_from(sequence), [beginning]):
            number, position = mark
            if mark is not beginning:
                if upper is not None and upper[1] - position < apart:
                    continue
                if not self.is_message(position):
                    self.problem(position, f"the index leads here for message {number}, and no message is here")
                    continue
            if upper is not None:
                self.sequence, self.position = mark
                if self.walk(upper[0]) and self.position == upper[1]:
                    yield upper
                else:
                    self.problem(upper[1], f"the index leads here for message {upper[0]}, which is not here")
            upper = mark
        yield beginning

    def is_message(self, position: int) -> bool:
        """Say whether a whole message may be at *position*."""
        header = self.header
        if position < header.end or (header.aligned and position & 3):
            return False
        word = self._word(position)
        return words.is_data(word) and position + 4 + word <= self.source.size()

    def walk(self, sequence: int, limit: int = 1 << 63) -> bool:
        """
        Go on to message *sequence*, or to the first at *limit* bytes or more, without loading a payload.

        True if such a one is there. Otherwise the place is the end of what is whole.
        """
        header = self.header
        add, mask = words.padding(aligned=header.aligned)
        window = _files.SMALL_WINDOW
        u32 = words.WORD.unpack_from
        while True:
            data = self.source.read(self.position, window)
            at, last, room, begin = 0, len(data) - 4, self.source.size() - self.position, self.position
            while at <= last:
                word = u32(data, at)[0]
                if word == 0 or word >= words.NOT_READY or at + 4 + (word & words.LENGTH) > room:
                    self.position += at
                    return False
                if word < words.META:
                    if self.sequence == sequence or begin + at >= limit:
                        self.position += at
                        return True
                    self.sequence += 1
                    self.last = (begin + at, word)
                at = (at + 4 + (word & words.LENGTH) + add) & mask
            if not at:
                return False
            self.position += at
            # What follows is near only if messages are small.
            window = _files.WINDOW if at < 2 * window else _files.SMALL_WINDOW

    def settle(self) -> None:
        """Say in `end` why nothing is at the place, without delivering anything."""
        position = self.position
        word = self._word(position)
        if word == 0 or word >= words.NOT_READY:
            self._ended(position, word)
        elif position + 4 + (word & words.LENGTH) > self.source.size():
            self._torn(position, word)

    def changed(self) -> bool:
        """Say whether the last document that was passed is no longer where it was."""
        position, word = self.last
        return position >= 0 and self._word(position) != word

    # ------------------------------------------------------------ problems
    def problem(self, position: int, reason: str) -> None:
        """Say that something is wrong at *position*."""
        if self._report is not None:
            self._report(Problem(self.name, position, reason))

    def close(self) -> None:
        """Close the file; again is harmless."""
        self.source.close()
