"""Shards that become more, and power cuts: a short share of the campaign."""

from __future__ import annotations

import pytest

from . import sharded
from .test_power import cut


@pytest.mark.parametrize("name", [each.name for each in sharded.PROFILES])
def test_what_was_on_the_disk_is_there_in_order_over_a_growth_that_was_cut(built, record_property, name):
    """Any part of any shard and of the map may be lost; a growth that was begun is carried on."""
    cut(built, record_property, "cuts", name, 1, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in sharded.PROFILES])
def test_the_same_a_thousand_times(built, record_property, name):
    """Of several histories."""
    for seed in range(2, 6):
        cut(built, record_property, "cuts", name, seed, 250)
