"""How soon a worker that died is followed by another: at once, unless they die as soon as they begin."""

from __future__ import annotations

QUICK = 1.0
"""Seconds; whoever lived for less died quickly."""
FREE = 3
"""So many of those in a row are followed at once."""
FIRST, LONGEST = 0.05, 1.0
"""Seconds before the one after those; doubled each time up to the longest."""


class Pace:
    """Counts quick deaths in a row, of all workers together."""

    def __init__(self) -> None:
        """None yet."""
        self._quick = 0

    def pause(self, lived: float) -> float:
        """Seconds to wait before the next one begins, after one that lived so long."""
        self._quick = self._quick + 1 if lived < QUICK else 0
        over = self._quick - FREE
        return 0.0 if over <= 0 else min(FIRST * 2.0 ** min(over - 1, 30), LONGEST)

    def lives(self) -> None:
        """One lives, or ended as it should: those that died before it count no more."""
        self._quick = 0
