"""
One sej directory, read segment by segment from a place that is remembered.

A message that is broken, or not the one expected, ends its segment; the next segment goes on.

The writer creates a segment once the one before it is whole. A listing of many names is not atomic: it may show a
segment and not one that was created before it, so the file that begins with the offset wanted next is looked for by
its name, and what seems to be missing is looked for again, by a listing that begins after the later segment was seen.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, NotFound, TooLarge
from shmq.formats import _files, _locks
from shmq.formats.model import Entry, Problem, make_entry
from shmq.formats.sej.messages import HEAD, HEAD_AND_U32, I32, LONGEST_HEAD, MAX_KEY, SMALLEST, U32
from shmq.formats.sej.names import LOCK, joined, segment_name, segments_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MOST_PROBLEMS = 1000


class Journal:
    """One sej directory, read segment by segment from a place that it remembers."""

    def __init__(
        self,
        root: Path,
        label: str,
        start: int,
        *,
        growing: bool = False,
        as_program: bool = False,
        strict: bool = False,
        max_payload: int = _files.MAX_PAYLOAD,
        labelled: bool = False,
        tell: Callable[[Problem], object] | None = None,
    ) -> None:
        """*tell* is given what a growing journal leaves out; without it, that raises Corrupt."""
        self._root = root
        self._label = label
        self._folder = root / label / "jnl"
        self._start = start
        self._growing = growing
        self._as_program = as_program
        self._strict = strict
        self._max_payload = max_payload
        self._labelled = labelled
        self._tell = tell
        self._source: _files.Source | None = None
        self._listed: list[tuple[int, str]] = []
        self._certain = -1
        """The newest segment that was seen before the last listing began: that one has all that were made before it."""
        self._first = -1
        self._position = 0
        self._next: int | None = None
        self._broken = False
        self._beside = False
        """Whether a living writer holds the lock: then a message that is not whole is one that is to come."""
        self._over = False
        self._key = b""
        self._extra: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.files: list[str] = []

    @property
    def position(self) -> int:
        """Where the next message of the open segment is expected: behind the whole ones."""
        return self._position

    @property
    def broken(self) -> bool:
        """Whether something stands there that is no message, and not only the beginning of one."""
        return self._broken

    def available(self) -> Iterator[Entry]:
        """Deliver what is whole from here on, through all segments that are there."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists of what was read at once; offsets ascend."""
        while not self._over:
            source = self._source
            if source is not None:
                yield from self._messages(source)
            if self._following() is None:
                if self._goes_on():
                    continue
                return
            if source is not None:
                # It may have grown between our last look and the one that showed a later segment.
                yield from self._messages(source)
            following = self._following()
            if following is not None:  # None: that segment has gone again.
                self._leave(source, following[0])
                self._go_on_in(*following)

    def _goes_on(self) -> bool:
        """Judge the end of the newest segment; say whether to look once more."""
        source = self._source
        if source is None or self._broken:
            return False
        if self._growing:
            return self._is_elsewhere(source)
        left = source.size() - self._position
        if left and not self._beside and _locks.holders(self._root / self._label / LOCK):
            self._beside = True
            return True  # A living writer may have finished it since we looked; if not, the rest is to come.
        if left and not self._beside:
            self._report(self._position, f"ends inside a message: {left} bytes are left over")
        return False

    def _is_elsewhere(self, source: _files.Source) -> bool:
        """Say whether the file that is followed has gone, because its writer went on. Raises Corrupt if it did not."""
        if source.is_at(self._root / source.name):
            return False
        if self._following() is None:
            self._refuse(self._position, "the file that was followed has gone, or another one is in its place")
        return True

    def _following(self) -> tuple[int, str] | None:
        """
        Return the next segment: the one that holds the start, or the one after the current.

        What it returns in place of the segment that begins with the next offset, which seems to be missing, is certain
        only if it is asked again after the current segment was read to its end.
        """
        if self._source is None and self._first < 0:
            return self._beginning()
        wanted = self._first if self._next is None else self._next
        found = self._behind()
        if found is not None and found[0] <= max(wanted, self._certain):
            return found
        if wanted > self._first and (self._folder / segment_name(wanted)).is_file():
            return wanted, segment_name(wanted)
        self._certain = self._listed[-1][0] if self._listed else -1
        self._listed = segments_in(self._folder)
        return self._behind()

    def _beginning(self) -> tuple[int, str] | None:
        """Return the segment that holds the start, or the oldest one if none does."""
        name = segment_name(self._start)
        if (self._folder / name).is_file():
            return self._start, name
        found = self._listed = segments_in(self._folder)
        before = [segment for segment in found if segment[0] <= self._start]
        return before[-1] if before else (found[0] if found else None)

    def _behind(self) -> tuple[int, str] | None:
        """Return the first segment behind the current one that the last listing has shown."""
        at = bisect_right(self._listed, self._first, key=itemgetter(0))
        return self._listed[at] if at < len(self._listed) else None

    def _go_on_in(self, first: int, name: str) -> None:
        if self._over:
            return
        try:
            source = _files.Source(self._folder / name, joined(self._label, f"jnl/{name}"))
        except NotFound:
            self._listed = []  # Deleted since we saw it.
            return
        self._open(source, first, name)

    def _open(self, source: _files.Source, first: int, name: str) -> None:
        if self._source is not None:
            self._source.close()
        self._source = source
        self.files.append(self._source.name)
        self._extra = {"segment": name, "dir": self._label} if self._labelled else {"segment": name}
        self._first, self._position, self._broken = first, 0, False
        if self._next is not None and first > self._next:
            self._lose(0, f"begins at offset {first}, but {self._next} is next: what is between is missing")
            self._over = self._as_program
        elif self._next is not None and first < self._next:
            self._report(0, f"begins at offset {first}, but {self._next} is next: what came before is not repeated")
            self._start = max(self._start, self._next)
        elif self._next is None and first > self._start > 0:
            self._lose(0, f"begins at offset {first}, and {self._start} was wanted", at_rest=False)
        self._next = first

    def _messages(self, source: _files.Source) -> Iterator[list[Entry]]:  # noqa: C901  one loop on purpose: a call per message would cost more than the work
        """Deliver the whole messages of the open segment, from the position on."""
        window = _files.WINDOW
        head, u32, make, extra = HEAD_AND_U32.unpack_from, U32.unpack_from, make_entry, self._extra
        expected = self._first if self._next is None else self._next
        start, program, before = self._start, self._as_program, self._key
        while not self._broken:
            if source.size() < self._position:
                self._shrunk(source)
            data = source.read(self._position, window)
            end = len(data) - LONGEST_HEAD
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= end:
                offset, when, kind, key, size = head(data, at)
                if key > 0:
                    begin = at + 22 + key
                    size = u32(data, begin - 4)[0]
                    text = data[at + 18 : begin - 4]
                    if program:
                        before = text  # The real Scanner reuses one message: its key stays when the new one has none.
                elif key:
                    break
                else:
                    begin = at + 22
                    text = before
                # A negative size is a large one here, and runs past the end.
                stop = begin + size
                if stop > end or offset != expected or u32(data, stop)[0] != stop + 4 - at:
                    break
                expected += 1
                at = stop + 4
                add(make((data[begin:stop], offset, when, None, text, kind, None, extra)))
            if found and expected - len(found) < start:
                del found[: start - expected + len(found)]
            self._position += at
            self._next = expected
            self._key = before
            if found:
                yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            entry = self._one(source, expected)
            if entry is None:
                return
            expected += 1
            self._next = expected
            before = self._key
            if expected > start:
                yield [entry]

    def _one(self, source: _files.Source, expected: int) -> Entry | None:  # noqa: C901, PLR0911  one way out per kind of damage
        """Take one message with care: the last ones of a window, large ones, broken ones. None at the end."""
        begin = self._position
        data = source.read(begin, 18 + MAX_KEY + 4)
        if len(data) < 18:
            return None
        offset, when, kind, key = HEAD.unpack_from(data, 0)
        if key < 0:
            self._break(f"a key size of {key} bytes")
            return None
        if offset != expected and not self._as_program:
            self._break(f"offset {offset} where {expected} is next")
            return None
        if self._as_program and key:
            self._key = data[18 : 18 + key].ljust(key, b"\0")  # also of a message that does not become whole
        if len(data) < 18 + key + 4:
            return None
        value = I32.unpack_from(data, 18 + key)[0]
        if value < 0:
            self._break(f"a value size of {value} bytes")
            return None
        size = SMALLEST + key + value
        if begin + size > source.size():
            return None
        if value > self._max_payload:
            msg = f"{source.name} at {begin}: a value of {value} bytes, and max_payload is {self._max_payload}"
            raise TooLarge(msg)
        body = source.read(begin + 18, size - 18)
        if len(body) < size - 18:
            return None
        total = I32.unpack_from(body, len(body) - 4)[0]
        if total != size:
            self._break(f"a size field of {total} behind a message of {size} bytes")
            return None
        if offset != expected:
            self._break(f"offset {offset} where {expected} is next")
            return None
        self._position += size
        text = body[:key]
        if self._as_program:
            self._key = text = text or self._key
        return Entry(body[key + 4 : -4], offset, when, None, text, kind, None, self._extra)

    def _break(self, reason: str) -> None:
        self._broken = True
        newest = segments_in(self._folder)[-1:]
        if self._growing and newest and newest[0][0] == self._first:
            self._refuse(self._position, reason)
        self._lose(self._position, f"{reason}; the rest of this segment cannot be read")
        self._over = self._as_program

    def _leave(self, source: _files.Source | None, following: int) -> None:
        """
        Judge a segment that has a successor, which begins at offset *following*: it must be whole, and not empty.

        At its end the real Scanner looks for the segment that holds the offset it wants. With a few bytes left over
        that is the next one, if all messages came; otherwise the same one, again and again.
        """
        size = -1 if source is None else source.size()
        if size == 0:
            self._report(0, "an empty segment that is not the last (the real program would read it for ever)")
            self._over = self._as_program
        elif not self._broken and self._position < size:
            self._report(self._position, f"ends inside a message: {size - self._position} bytes are left over")
            self._over = self._as_program and self._next != following

    def _shrunk(self, source: _files.Source) -> None:
        self._refuse(source.size(), f"became shorter than the {self._position} bytes that were read")

    def _lose(self, position: int, reason: str, *, at_rest: bool = True) -> None:
        """Report what is left out. Whoever follows hears of it, now."""
        if at_rest:
            self._report(position, reason)
        if not self._growing:
            return
        if self._tell is None:
            self._refuse(position, reason)
        elif self._source is not None:
            self._tell(Problem(self._source.name, position, reason))

    def _report(self, position: int, reason: str) -> None:
        if self._source is None:
            return
        problem = Problem(self._source.name, position, reason)
        if problem in self.problems:
            return
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        if self._strict:
            self._refuse(position, reason)

    def _refuse(self, position: int, reason: str) -> None:
        name = self._source.name if self._source is not None else self._label
        msg = f"{self._root / name} at {position}: {reason}; every message delivered so far is whole"
        raise Corrupt(msg)

    def close(self) -> None:
        """Close the open segment."""
        if self._source is not None:
            self._source.close()
