"""
What a queue has of a source already, and how an import goes on behind that (decision 27).

The queue remembers, for each source, the number of the last message that is in: its own in a log, which may lose its
oldest ones meanwhile, or else how many there were. These are held against what the queue has then: a source that is
consumed may have changed.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from typing import TYPE_CHECKING

from shmq.formats.transfer.messages import in_range
from shmq.formats.transfer.refusals import Clash

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmq
    from shmq.formats.model import Entry
    from shmq.formats.transfer.batches import Batches
    from shmq.formats.transfer.source import Source

_NO_MORE = (1 << 63) - 1
"""The number of a source that nothing can be told of behind it."""

_index = operator.itemgetter(1)


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

    def number_of(self, batch: list[Entry], read: int, last: int) -> int:
        """The number of the last message of a batch; *last* is that of the one before it in this part."""
        if not self._by_index(batch):
            return read
        indexes = [entry[1] or 0 for entry in batch]
        if last < indexes[0] and indexes[-1] < _NO_MORE and all(map(operator.lt, indexes, indexes[1:])):
            return indexes[-1]
        if self._in_parts:
            raise Clash(
                f"the numbers of {self._source.path} do not ascend; parts before that are in",
                ". Repair it, or import it without {resume}",
            )
        return _NO_MORE

    def _by_index(self, batch: list[Entry]) -> bool:
        """Whether its messages are known by their own numbers: those of a log that is not several, side by side."""
        return self._source.is_log and "dir" not in (batch[0].extra or {})

    def pass_over(
        self, batches: Batches, look: Callable[[list[Entry], int], object], tell: Callable[[str], object]
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
        counted = not self._source.is_log
        for batch in batches.some():
            counted = not self._by_index(batch)
            known = min(len(batch), number - read) if counted else bisect.bisect_right(batch, number, key=_index)
            same += self._same(batch[:known], read) if counted else 0
            look(batch[:known], read)
            read += known
            if known < len(batch):
                batches.back(batch[known:])
                if not counted and batch[known].index != number + 1:
                    tell(f"behind number {number}, {self._source.path} goes on with {batch[known].index}")
            if known < len(batch) or (counted and read == number):
                break
        if counted and (read < number or not same):
            raise self._changed()
        return read

    def _same(self, batch: list[Entry], before: int) -> int:
        """How many messages of a batch are those that were imported last, as far as the queue still has these."""
        first = self._number - len(self.indexes)
        batch = batch[max(0, first - before) :]
        begin = self.indexes.start + max(0, before - first)
        there: dict[int, tuple[bytes, int]] = {}
        for columns in self._queue.read_columns(begin, begin + len(batch), ("index", "payload", "time_ns")):
            pairs = zip(columns["payload"], columns["time_ns"], strict=True)
            there.update(zip(columns["index"], pairs, strict=True))
        for index, entry in enumerate(batch, begin):
            payload, time_ns = there.get(index, (entry.payload, entry.time_ns))
            if payload != entry.payload or (
                entry.time_ns is not None and in_range(entry.time_ns) != in_range(time_ns or 0)
            ):
                raise self._changed()
        return len(there)

    def _changed(self) -> Clash:
        return Clash(
            f"nothing shows that {self._source.path} still begins with what was imported from it; nothing was done",
            ". {again} imports all that it holds now",
        )
