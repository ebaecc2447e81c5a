"""
What a reboot finds, recovered by a process that is killed at every instruction of the core and at both sides of every
system call: the next one makes the same bytes (docs/promises.md, P2 Recovery).

More of it (the recovery of many of the states, other processes at many of them) is `python -m tests.crash.recoveries`.
"""

from __future__ import annotations

import pytest

from . import recoveries, unclean
from .walker import Tools, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

FLOORS = {"torn": (80_000, 60), "open claim": (50_000, 20), "sets": (50_000, 10), "lost": (50_000, 10)}
"""Instructions stepped and distinct states of each case, at least."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    return Tools(tmp_path_factory.mktemp("tools"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", unclean.CASES)
def test_a_recovery_killed_anywhere_makes_the_same_bytes_the_next_time(tools, record_property, case):
    """Also when the next one is killed likewise, and when another process waits for the first, or comes after it."""
    deep = case == "open claim"
    results = recoveries.walk(case, tools, nested=int(deep), openers=int(deep))
    record_property("kill points", sum(each.steps for each in results))
    record_property("distinct states", sum(each.states for each in results))
    record_property("recoveries walked", len(results))
    findings = [finding for each in results for finding in each.findings]

    assert not findings, "\n".join(findings)
    assert results[0].steps >= FLOORS[case][0]
    assert results[0].states >= FLOORS[case][1]
    assert results[0].openers == 2 * deep
    assert len(results) == 1 + deep


def test_a_recovery_that_forgets_a_step_is_found(tools, monkeypatch):
    """The comparison bites: against a recovery that leaves one consumer's head where it was."""
    image = recoveries.made("lost")
    with recoveries.scratch() as root:
        expected = recoveries.recovered(image, f"{root}/state")
    file = "q/consumers/c.checkpoint"
    mode, content = expected[file]
    other = {**expected, file: (mode, content[:192] + bytes(8) + content[200:])}
    assert recoveries.Walk("lost", image, tools, expected=other).go().findings
