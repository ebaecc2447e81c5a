"""Messages that are forwarded from queue to queue, flows, and power cuts: a short share of the campaign."""

from __future__ import annotations

import pytest

from . import flows, forwarding
from .campaign import child
from .test_power import cut

NAMES = [each.name for each in (*forwarding.PROFILES, *flows.PROFILES)]
SHORT = [("forward sync", 1, 16), ("forward process", 5, 16), ("flow sync", 1, 8)]
FOUND_BY = {"no look": "forward process", "no copies sync": "forward process"}
"""Which profile shows which of the faults. That the third one, "no note", is not shown is known, and not yet mended."""


@pytest.mark.parametrize(("name", "seed", "cuts"), SHORT)
def test_what_is_forwarded_is_there_once_after_a_power_cut(built, record_property, name, seed, cuts):
    """Whatever the cut leaves of each of the queues."""
    cut(built, record_property, "cuts", name, seed, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_same_a_thousand_times(built, record_property, name):
    """Of several histories."""
    for seed in range(2, 6):
        cut(built, record_property, "cuts", name, seed, 250)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FOUND_BY)
def test_a_library_that_forgets_what_it_forwarded_is_found(built, fault):
    """The suite bites."""
    assert any(
        child("cuts", built, FOUND_BY[fault], seed, 400, "--fault", fault)["findings"] for seed in (3, 5, 7, 11, 13)
    )
