"""Memory that cannot be had, in the middle of a verb: what was promised holds, and the verb can be called again."""

from __future__ import annotations

import os

import pytest
from support import in_child

from points.memory import THERE, Starved
from points.verbs import BY_NAME, World

pytestmark = pytest.mark.skipif(not THERE, reason="this interpreter has no _testcapi, which lets allocations fail")

SHARE = 16
"""Allocations of each verb that CI tries."""
SPREAD = {"open alone": 600, "close": 60, "put": 320, "put_many": 320, "group.get": 200}
"""About how many there are; `python -m tests.points.campaign --happens memory` tries all of them."""


@pytest.mark.parametrize("name", ["put", "put_many", "take", "get", "group.get", "open alone", "close"])
def test_a_verb_that_gets_no_memory_leaves_everything_whole(name, tmp_path):
    """Nothing lost, doubled or held. What the interpreter itself leaks then is not looked for."""
    folder = tmp_path / "points"
    folder.mkdir()
    share = 800 if os.environ.get("SHMQ_POINTS") == "all" else SHARE

    def tried():
        world, told = World(BY_NAME[name], str(folder)), 0
        for turn in range(share):
            this = Starved(turn if share > SHARE else turn * SPREAD.get(name, 60) // share)
            try:
                world.round(this.interrupted, leaks=False)
            except BaseException as problem:
                raise AssertionError(f"{name}, allocation {this.allocation}: {this.at}") from problem
            told += this.raised
        return told

    assert int(in_child(tried)) >= 3  # how many were told; some the interpreter does without
