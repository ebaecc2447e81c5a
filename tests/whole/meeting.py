"""What chance did not bring together: a story behind which the feature is there, and then the verb."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from tests.whole.steps import MET

if TYPE_CHECKING:
    from tests.whole.machine import Whole
    from tests.whole.pairs import Story

TRIES = 3
"""Ways to one feature that are gone, at most."""


def bring_together(make: type[Whole]) -> int:
    """Have pairs meet that never did, as far as stories are known that lead there; how many stories were told."""
    told = 0
    for feature, verbs in sorted(_wanted().items()):
        for attempt, way in enumerate(MET.ways[feature][:TRIES]):
            told += bool(verbs)
            _tell(make, feature, verbs, way, attempt)
    for feature, verbs in sorted(_wanted().items()):
        for verb in sorted(verbs):
            for attempt in range(TRIES**2):
                way, before = MET.ways[feature], MET.ways[verb]
                both = way[attempt % len(way)] + before[attempt // len(way) % len(before)][1:]
                told += 1
                _tell(make, feature, left := {verb}, both, attempt)
                if not left:
                    break
    return told


def _wanted() -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = {}
    for verb, feature in MET.never():
        wanted.setdefault(feature, set()).add(verb)
    return wanted


def _tell(make: type[Whole], feature: str, verbs: set[str], way: Story, attempt: int) -> None:
    """One story, and behind it as many of the verbs as find the feature there; those that met it are taken off."""
    if not verbs:
        return
    machine = make()
    try:
        for name, given in copy.deepcopy(way):
            getattr(machine, name)(**given)
            machine.agrees()
        for verb in sorted(verbs):
            by = _who(machine, feature)
            if by is None:
                return
            known = MET.given[verb]
            given = copy.deepcopy(known[attempt % len(known)])
            getattr(machine, verb)(**{**given, "by": by})
            machine.agrees()
            if MET.count[frozenset((verb, feature))]:
                verbs.discard(verb)
    finally:
        machine.teardown()


def _who(machine: Whole, feature: str) -> int | None:
    """Which process has it; None when it is gone."""
    for by, process in enumerate(machine.processes):
        machine.at = process
        if feature in machine.features():
            return by
    return None
