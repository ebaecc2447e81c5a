"""
An exception from a signal's handler at every place of every verb where the interpreter looks for one.

In CI a share of the places; SHMQ_POINTS=all, or `python -m tests.points.campaign`, for all of them.
"""

from __future__ import annotations

import os

import pytest
from interrupts import Round

from points.verbs import BY_NAME, VERBS, World

pytestmark = pytest.mark.filterwarnings("ignore:group 'g' of .* cannot move")  # the disk was not waited for

SHARE = 5
"""Places of each verb that CI tries: spread over all there are."""
WHOLE = {"consumer.close", "group.close", "producer.close", "reader.close", "group.nack", "group.nack later"}
"""Verbs that are tried at all of them, in CI too."""


def count_places(world: World) -> int:
    """How many there are in one run."""
    this = Round(1 << 30)
    world.round(this.interrupted)
    return this.seen


LONG = {"forward", "forward sync", "forward many"}
"""Each place waits a second, until what was interrupted comes again."""


@pytest.mark.parametrize(
    "name", [pytest.param(verb.name, marks=pytest.mark.slow if verb.name in LONG else ()) for verb in VERBS]
)
def test_a_verb_that_is_interrupted_leaves_nothing_behind(name, tmp_path):
    """Nothing lost, doubled, held or open; by the same handle, a new one, and another process."""
    folder = tmp_path / "points"
    folder.mkdir()
    world = World(BY_NAME[name], str(folder))
    count = count_places(world)
    share = count if name in WHOLE or os.environ.get("SHMQ_POINTS") == "all" else SHARE
    for turn in range(share):
        place = turn * count // share + (turn * 7 % max(count // share, 1))
        this = Round(place)
        try:
            world.round(this.interrupted, elsewhere=turn % 10 == 4)
        except BaseException as problem:
            raise AssertionError(f"{name}, place {place} of {count}: {this.at}") from problem
