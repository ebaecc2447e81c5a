"""
Which level is looked at first. Level 0 is the most urgent; no level that has something waits for ever.

Pure counting: what a level has, and how it is asked, is the consumer's business.
"""

from __future__ import annotations

PASSES = 16
"""After so many messages from other levels, a level is looked at before those that are more urgent."""


class Turns:
    """
    The turns of one member of a group.

    Whenever a level has had something since it was looked at last, between two messages from it at most
    `PASSES + levels - 2` come from other levels: once `PASSES` have passed it by, it is due; those that are due too
    come before it once, if they are more urgent (once, as long as `PASSES` is not less than there are levels).
    That holds where messages are taken singly; with batches, one batch of each other level is to be added.
    """

    def __init__(self, levels: int) -> None:
        """None is due."""
        self._taken = 0
        self._marks = [0] * levels
        self._natural = tuple(range(levels))
        self._due_at = PASSES

    def due(self) -> tuple[int, ...]:
        """The levels whose turn it is, the most urgent first; mostly none."""
        if self._taken < self._due_at:
            return ()
        return tuple(level for level in self._natural if self.passed(level) >= PASSES)

    def passed(self, level: int) -> int:
        """How many messages came from other levels since this one had its last turn."""
        return self._taken - self._marks[level]

    def share(self, level: int, limit: int) -> int:
        """
        How many of up to *limit* messages a level may give that is due: one for each `PASSES` that passed it by.

        The most urgent one overtakes nobody, and may give them all.
        """
        return limit if level == 0 else min(limit, max(self.passed(level) // PASSES, 1))

    def took(self, level: int, count: int = 1) -> None:
        """So many came from that level, and have passed by all others."""
        self._taken += count
        self.was_empty(level)

    def was_empty(self, level: int) -> None:
        """That level was looked at and had nothing: it has not been passed by."""
        self._marks[level] = self._taken
        self._due_at = min(self._marks) + PASSES
