"""
What a queue has of a source already, and how an import goes on behind that (decision 27).

The queue remembers, for each source, the number of the last message that is in: its own in a log, which may lose its
oldest ones meanwhile, or else how many there were. What the source has up to there is held against what the queue has
of it: a source that is consumed may have changed, and a log may have been put back to an older state, or be another.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from typing import TYPE_CHECKING

from shmq.formats.model import NO_TIME, Run
from shmq.formats.transfer.followers import mark_of
from shmq.formats.transfer.messages import about, in_range
from shmq.formats.transfer.refusals import Clash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import shmq
    from shmq.formats.model import Entry
    from shmq.formats.transfer.batches import Batches
    from shmq.formats.transfer.source import Source

_NO_MORE = (1 << 63) - 1
"""The number of a source that nothing can be told of behind it."""
_BEGUN, _MADE = 1, 2
_COMPARED = 4096
"""So many of the messages of a log that were imported last are held against those that it has."""

_index = operator.itemgetter(1)


def _alike(entry: Entry, payload: bytes, time_ns: int | None) -> bool:
    """Whether a message of the source is that one, with the time that it has here, if there is one to compare."""
    if payload != entry.payload or time_ns is None:
        return payload == entry.payload
    return entry.time_ns is None or entry.time_ns == NO_TIME or in_range(entry.time_ns) == time_ns


class Before:
    """What is in of one source, of the times that it was imported the last or a new one."""

    def __init__(self, queue: shmq.Queue, source: Source, who: str, *, again: bool, in_parts: bool) -> None:
        """Look up in the ledger what is in of *who*; with *again*, for a time of which nothing is in yet."""
        self._queue = queue
        self._source = source
        self._in_parts = in_parts
        self.who, found = self._known_as(who, again=again)
        """What the ledger calls it, of that time."""
        self.is_known = found is not None
        """Whether anything of it is in."""
        marked = self._queue.adopted(self._mark) if self.is_known else None
        self.is_unfinished = marked is not None and marked[0] == _BEGUN
        """Whether all of it is in, but perhaps not its consumers: that import was killed between these steps."""
        self._number, self.indexes = found or (0, range(0))
        """`indexes`: what was adopted last of it."""

    def _known_as(self, who: str, *, again: bool) -> tuple[str, tuple[int, range] | None]:
        known: tuple[str, tuple[int, range] | None] | None = None
        called = who
        for times in itertools.count(2):
            adopted = self._queue.adopted(called)
            if adopted is None:
                break
            known = called, adopted
            called = f"{who} {times}"
        return (called, None) if again or known is None else known

    @property
    def _mark(self) -> str:
        """What the ledger calls its consumers: a batch of no messages says how far they are."""
        return f"{self.who} consumers"

    def begin(self) -> None:
        """Write down that consumers are to be made of what is adopted next: all there is."""
        self._say(_BEGUN)
        self.is_unfinished = True

    def finish(self) -> None:
        """Write down that they are made, if that was open."""
        if self.is_unfinished:
            self._say(_MADE)
            self.is_unfinished = False

    def _say(self, step: int) -> None:
        with self._queue.stage() as staged:
            self._queue.adopt(staged, dedup=(self._mark, step))

    def number_of(self, batch: Sequence[Entry], read: int, last: int) -> int:
        """The number of the last message of a batch; *last* is that of the one before it in this part."""
        if not self._by_index(batch):
            return read
        if isinstance(batch, Run) and last < batch.first and batch.indexes[-1] < _NO_MORE:
            return batch.indexes[-1]
        indexes = [entry[1] or 0 for entry in batch]
        if last < indexes[0] and indexes[-1] < _NO_MORE and all(map(operator.lt, indexes, indexes[1:])):
            return indexes[-1]
        if self._in_parts:
            raise Clash(
                f"the numbers of {self._source.path} do not ascend; parts before that are in",
                ". Repair it, or import it without {resume}",
            )
        return _NO_MORE

    def _by_index(self, batch: Sequence[Entry]) -> bool:
        """Whether its messages are known by their own numbers: those of a log that is not several, side by side."""
        return self._source.is_log and "dir" not in (batch[0].extra or {})

    def pass_over(
        self, batches: Batches, look: Callable[[Sequence[Entry], int], object], tell: Callable[[str], object]
    ) -> int:
        """
        What is in, showing it to *look*; how many messages the source still has of it.

        Raises:
            Refused: nothing shows where that ends.
        """
        if not self.is_known:
            return 0
        number = self._number
        if number == _NO_MORE:
            raise Clash(
                f"the numbers of {self._source.path} did not ascend when it was imported, so nothing tells what has "
                "come since; nothing was done",
                "",
            )
        read = same = 0
        last: int | None = None
        counted = not self._source.is_log
        there = self._of_log() if self._source.is_log else {}
        for batch in batches.some():
            counted = not self._by_index(batch)
            known = min(len(batch), number - read) if counted else bisect.bisect_right(batch, number, key=_index)
            if counted:
                same += self._same(batch[:known], read)
            else:
                self._compare(batch[:known], there)
                last = batch[-1].index or 0
            look(batch[:known], read)
            read += known
            if known < len(batch):
                batches.back(batch[known:])
                if not counted and not self._source.goes_on(number, batch[known].index or 0):
                    tell(f"behind number {number}, {self._source.path} goes on with {batch[known].index}")
            if known < len(batch) or (counted and read == number):
                break
        if counted and (read < number or not same):
            raise self._changed()
        if not counted:
            self._check_end(last, tell)
        return read

    def _check_end(self, last: int | None, tell: Callable[[str], object]) -> None:
        """
        Go on only where a log has the number that was imported last; *last* is that of its last message as read so far.

        Raises:
            Refused: it ends before that.
        """
        if last is None:
            tell(f"{self._source.path} holds no messages now; it was imported up to number {self._number}")
        elif last < self._number:
            raise self._another(f"and ends with number {last} now")

    def places(self, marks: set[tuple[int | None, bytes]]) -> dict[tuple[int | None, bytes], list[int]]:
        """{mark: the indexes of all messages, before those that were imported last, that may be the one it marks}."""
        found: dict[tuple[int | None, bytes], list[int]] = {}
        numbers = {number for number, _ in marks}
        wanted = ("index", "payload", "headers")
        for columns in self._queue.read_columns(self._queue.first_index, self.indexes.start, wanted):
            for index, payload, headers in zip(*(columns[name] for name in wanted), strict=True):
                number = about(headers).get("index")
                if number in numbers and (mark := mark_of(number, payload)) in marks:
                    found.setdefault(mark, []).append(index)
        return found

    def _of_log(self) -> dict[int, tuple[int, bytes, int]]:
        """{number: (index, payload, time)} of those messages of a log that were imported last and are here."""
        found: dict[int, tuple[int, bytes, int]] = {}
        begin = max(self.indexes.start, self.indexes.stop - _COMPARED)
        wanted = ("index", "payload", "time_ns", "headers")
        for columns in self._queue.read_columns(begin, self.indexes.stop, wanted):
            for *message, headers in zip(*(columns[name] for name in wanted), strict=True):
                found[about(headers).get("index", -1)] = tuple(message)
        return found

    def _compare(self, batch: Sequence[Entry], there: dict[int, tuple[int, bytes, int]]) -> None:
        """
        Go on only where the messages of a log are those that were imported with these numbers, as far as they are here.

        Raises:
            Refused: another is there.
        """
        if not batch or not there or (batch[-1].index or 0) < min(there):
            return
        for entry in batch:
            index, payload, time_ns = there.get(entry.index or 0, (0, entry.payload, None))
            if not _alike(entry, payload, time_ns):
                raise self._another(f"and what it has as number {entry.index} now is not what came to index {index}")

    def _another(self, now: str) -> Clash:
        return Clash(
            f"{self._source.path} was imported up to number {self._number}, {now}: it was put back to an older state, "
            f"or another is in its place. What was imported stays in {self._queue.path}; nothing was done",
            ". {again} imports all that it holds now",
        )

    def _same(self, batch: Sequence[Entry], before: int) -> int:
        """How many messages of a batch are those that were imported last, as far as the queue still has these."""
        first = self._number - len(self.indexes)
        batch = batch[max(0, first - before) :]
        begin = self.indexes.start + max(0, before - first)
        there: dict[int, tuple[bytes, int]] = {}
        for columns in self._queue.read_columns(begin, begin + len(batch), ("index", "payload", "time_ns")):
            pairs = zip(columns["payload"], columns["time_ns"], strict=True)
            there.update(zip(columns["index"], pairs, strict=True))
        for index, entry in enumerate(batch, begin):
            if not _alike(entry, *there.get(index, (entry.payload, None))):
                raise self._changed()
        return len(there)

    def _changed(self) -> Clash:
        return Clash(
            f"nothing shows that {self._source.path} still begins with what was imported from it; nothing was done",
            ". {again} imports all that it holds now",
        )
