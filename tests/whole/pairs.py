"""
Which features have met: how often each pair was at work at the same time.

A feature is a verb, an option the queue or a group was made with, or a state that a verb has left behind. A pair of a
verb and another feature has met when the verb ran while the other was there; a pair that never met fails the suite,
unless IMPOSSIBLE says why it cannot.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

Story = list[tuple[str, dict[str, Any]]]
SAMPLES = 4

IMPOSSIBLE: dict[frozenset[str], str] = {}
"""Pairs that cannot meet, each with its reason."""


def cannot(reason: str, ones: list[str], others: list[str]) -> None:
    """None of *ones* meets any of *others*, for that reason."""
    for one, other in itertools.product(ones, others):
        if one != other:
            IMPOSSIBLE[frozenset((one, other))] = reason


cannot(
    "a volatile queue is gone when nobody has it open, and is not copied: it is in memory already",
    ["volatile"],
    ["copy", "recover", "repair"],
)
cannot("a second shutdown changes nothing", ["shut down", "shut down at once"], ["shut_down"])


class Met:
    """How often each pair met, and how what takes part can be had again."""

    def __init__(self) -> None:
        self.count: collections.Counter[frozenset[str]] = collections.Counter()
        self.verbs: set[str] = set()
        self.others: set[str] = set()
        self.ways: dict[str, list[Story]] = {}
        """Of each feature: short stories behind which it is there; of each verb: behind which it can be done."""
        self.given: dict[str, list[dict[str, Any]]] = {}
        """Of each verb: what it was given when it was done."""

    def verb(self, name: str, given: dict[str, Any], features: set[str], story: Story) -> None:
        """*name* ran behind *story*, while *features* were there."""
        self.way({name}, story)
        self.verbs.add(name)
        self.others |= features
        self.count.update(frozenset((name, other)) for other in features if other != name)
        known = self.given.setdefault(name, [])
        if len(known) < SAMPLES or len(self.others) % 2:
            self.given[name] = [*known[-SAMPLES + 1 :], given]

    def way(self, features: set[str], story: Story) -> None:
        """Behind *story* they are there."""
        for feature in features:
            known = self.ways.setdefault(feature, [])
            if len(known) < SAMPLES or len(story) < len(known[-1]):
                known.append(list(story))
                known.sort(key=len)
                del known[SAMPLES:]

    def add(self, other: Met) -> None:
        """What met in another process."""
        self.count.update(other.count)
        self.verbs |= other.verbs
        self.others |= other.others
        for feature, ways in other.ways.items():
            for way in ways:
                self.way({feature}, way)
        for name, given in other.given.items():
            self.given[name] = (given + self.given.get(name, []))[:SAMPLES]

    def never(self) -> list[tuple[str, str]]:
        """Pairs of a verb and a feature that did not meet and could."""
        return sorted(
            (verb, feature)
            for verb, feature in itertools.product(self.verbs, self.others)
            if verb != feature
            and not self.count[frozenset((verb, feature))]
            and frozenset((verb, feature)) not in IMPOSSIBLE
        )

    def table(self) -> str:
        """A row a feature: how many verbs it met, how often in all, and the verb it met least."""
        lines = [f"{'feature':<24} {'verbs met':>9} {'times':>9}  least"]
        for other in sorted(self.others):
            met = {verb: n for verb in self.verbs if (n := self.count[frozenset((verb, other))])}
            least = min(met, key=met.__getitem__, default="")
            lines.append(
                f"{other:<24} {len(met):>5}/{len(self.verbs):<3} {sum(met.values()):>9}  {least} ({met.get(least, 0)})"
            )
        return "\n".join(lines)
