"""A queue that follows another one, and power cuts of both: a short share of the campaign."""

from __future__ import annotations

import pytest

from . import replicas
from .test_power import cut


@pytest.mark.parametrize(
    ("name", "seed", "cuts"), [("replica process", 1, 5), ("replica sync", 2, 5), ("replica replicated", 3, 5)]
)
def test_a_follower_has_the_beginning_of_its_source_after_a_power_cut(built, record_property, name, seed, cuts):
    """What it had said to have is there, nothing is that its source has lost, and it goes on."""
    cut(built, record_property, "cuts", name, seed, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in replicas.PROFILES])
def test_the_same_a_thousand_times(built, record_property, name):
    """Of several histories."""
    for seed in range(3, 7):
        cut(built, record_property, "cuts", name, seed, 250)
