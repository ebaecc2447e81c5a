"""
From a handler that fails somewhere in the log to the failing message and the few before it that it takes.

The first run finds at which message the handler fails. Where only a check afterwards fails, binary search finds the
message after which it does: no check, say, after message 499 and one after 500. Then the others are left out, as long
as the same failure stays: all of them; all of other keys; all before some message, which again is found by binary
search; and last, parts of what is left, smaller and smaller.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq.cli.bisection.runs import Outcome, Runs

_FARTHER = 4
"""How many times as far back the next run begins."""


@dataclasses.dataclass
class Found:
    """A failure, and which messages it takes."""

    outcome: Outcome
    index: int
    """Of the message at which, or after which, it fails."""
    kept: list[tuple[int, int]]
    """The messages that were enough for it, as ranges of indexes; the failing one is the last."""
    steady: bool = True
    """Whether all of them, run again, failed again."""
    whole: bool = False
    """Whether there was no time to leave more out."""


class Search:
    """One search; what is found so far is in `found`, also when it is interrupted."""

    def __init__(
        self, runs: Runs, first: int, stop: int, indexes: Callable[[int, int, bytes | None], list[int]], *, checks: bool
    ) -> None:
        """*indexes* has those of the messages between two indexes, of a key or of all; *checks*: after each run."""
        self._runs = runs
        self._first, self._stop = first, stop
        self._indexes = indexes
        self._checks = checks
        self._known: dict[tuple[tuple[int, int], ...], bool] = {}
        self.found: Found | None = None
        self.handled = 0

    def run(self, key_of: Callable[[int], bytes | None], seconds: float) -> Found | None:
        """
        Search; what was found, or None when nothing fails.

        Args:
            key_of: has the key of the message at an index.
            seconds: how long at most others are left out.
        """
        outcome = self._runs.over([(self._first, self._stop)])
        self.handled = outcome.count
        if not outcome.failed:
            return None
        if self._checks:
            outcome = self._first_bad(outcome)
        assert outcome.index is not None  # noqa: S101  # it failed
        self.found = Found(outcome, outcome.index, [(self._first, outcome.index + 1)])
        if seconds:
            self._shorten(self.found, key_of(outcome.index), time.monotonic() + seconds)
        return self.found

    def _first_bad(self, bad: Outcome) -> Outcome:
        """The outcome of the shortest beginning in which the handler fails, or after which the check does."""
        if (none := self._runs.over([])).failed:
            raise show.Problem(f"the check fails before the first message: {none.what}")
        good = self._first - 1
        while bad.index is not None and bad.index - good > 1:
            middle = (good + bad.index) // 2
            outcome = self._runs.over([(self._first, middle + 1)])
            if outcome.failed:
                bad = outcome
            else:
                good = middle
        return bad

    # ---- fewer messages
    def _shorten(self, found: Found, key: bytes | None, until: float) -> None:
        last = (found.index, found.index + 1)

        def fails(before: Sequence[tuple[int, int]]) -> bool:
            """Whether the same failure stays with only these before the last; then they are what is kept."""
            kept = [*before, last]
            if tuple(kept) not in self._known:
                outcome = self._runs.over(kept)
                self._known[tuple(kept)] = outcome.index == found.index and outcome.is_like(found.outcome)
            if self._known[tuple(kept)]:
                found.kept = kept
            return self._known[tuple(kept)]

        def is_late() -> bool:
            found.whole = time.monotonic() > until
            return found.whole

        if found.index == self._first or fails([]):
            return
        before: list[int] | None = None
        if key:
            before = self._indexes(self._first, found.index, key)
            if not fails(ranges_of(before)):
                before = None
        if before is None:
            start = self._latest_start(found, fails, is_late)
            if start is None:
                found.steady = False
                return
            before = self._indexes(start, found.index, None)
        _leave_out(before, lambda some: fails(ranges_of(some)), is_late)

    def _latest_start(
        self, found: Found, fails: Callable[[Sequence[tuple[int, int]]], bool], is_late: Callable[[], bool]
    ) -> int | None:
        """The last index from which on the failure stays; None when it does not, even from the first one on."""
        good, step = found.index, 1
        while True:
            start = max(self._first, found.index - step)
            if fails([(start, found.index)]):
                break
            if start == self._first:
                return None
            good, step = start, step * _FARTHER
        while good - start > 1 and not is_late():
            middle = (start + good) // 2
            if fails([(middle, found.index)]):
                start = middle
            else:
                good = middle
        return start


def ranges_of(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending indexes as ranges of neighbours."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def _leave_out(items: list[int], fails: Callable[[list[int]], bool], is_late: Callable[[], bool]) -> None:
    """Leave out what *fails* does not need, halves first, single ones last (delta debugging)."""
    parts = 2
    while items and not is_late():
        size = -(-len(items) // parts)
        for at in range(0, len(items), size):
            if is_late():
                return
            rest = items[:at] + items[at + size :]
            if fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return
            parts = min(len(items), 2 * parts)
