"""Power cuts: fixed numbers of cuts with fixed seeds, and a share with a fresh seed, which a failure prints."""

from __future__ import annotations

import time

import pytest
from support import WHOLE, share

from .campaign import child
from .history import FAULTS

FIXED = [
    (name, seed, cuts)
    for name, share in {
        "sync": 2,
        "sync acked": 1,
        "sync adopt": 1,
        "sync pending": 1,
        "interval": 1,
        "process": 2,
        "sync group": 2,
        "sync group acked": 1,
        "process group": 1,
        "process bytes": 1,
        "process acked": 1,
        "process adopt": 1,
        "names": 1,
    }.items()
    for seed, cuts in [(each + 1, 450 if "group" not in name else 500) for each in range(share)]
] + [
    (name, 1, 600)
    for name in ("sync once", "process once", "sync drop", "process age", "sync hand over", "process hand over")
]
"""(profile, seed, cuts) of each test: 11,000 cuts in all, of which the suite does a share; campaign.py has more."""
FRESH = ("sync", "process", "sync acked", "sync group")
GROUPS = ("no snapshot sync", "no letters sync")
"""Faults that groups find."""
pytestmark = pytest.mark.timeout(1500)  # it is numbers of cuts that are fixed, not seconds


def cut(built, record_property, module, name, seed, cuts, *more):
    result = child(module, built, name, seed, cuts, *more)
    record_property("power cuts" if module == "cuts" else "recoveries cut", result["cuts"])
    record_property("distinct images judged", result["distinct"])
    assert not result["findings"], "\n".join(result["findings"])
    assert result["cuts"] >= cuts
    return result


@pytest.mark.parametrize(("name", "seed", "cuts"), FIXED)
def test_after_a_power_cut_everything_promised_is_there(built, record_property, name, seed, cuts):
    """Any subset of what was not synced, torn anywhere, names lost, sizes short: the queue opens, and lost nothing."""
    cut(built, record_property, "cuts", name, seed, share(cuts))


@pytest.mark.parametrize("name", FRESH)
def test_the_same_with_a_seed_that_was_never_used(built, record_property, name):
    """A history that nobody has seen yet; a finding says the seed."""
    cut(built, record_property, "cuts", name, time.time_ns() // 1_000_000, share(500 if "group" in name else 1000))


@pytest.mark.parametrize("name", ["sync", "process adopt"])
def test_all_subsets_of_the_last_words(built, record_property, name):
    """At some moments, every subset of the last unsynced words of the chunks: ten, or eight for the suite's share."""
    cut(built, record_property, "cuts", name, 7, 100, "--every", 4, 10 if WHOLE else 8)


@pytest.mark.parametrize("name", ["sync", "sync adopt", "process", "process bytes", "sync acked", "sync group"])
def test_a_recovery_that_is_cut_or_killed_is_done_again(built, record_property, name):
    """Power cuts and kills at each step of a recovery, of the recovery from that, and once more: as one recovery."""
    cut(built, record_property, "recoveries", name, 1, share(300 if "group" in name else 400))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_library_that_forgets_a_sync_is_found(built, fault):
    """The suite bites: with one kind of sync missing, or late, there are findings."""
    found = []
    groups = [("sync group", 1), ("sync group acked", 1)]
    for name, seed in groups if fault in GROUPS else [("sync", 1), ("sync acked", 1), ("process", 1)]:
        found = found or child("cuts", built, name, seed, 1500, "--fault", fault)["findings"]
    assert found
