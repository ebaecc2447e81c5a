"""
C5: the real C files of the core over an exploring `atomic.h`. README.md tells what is explored and what is not.

This is the short share; `python -m tests.model.campaign` is the long one.
"""

from __future__ import annotations

import explorer
import pytest
from support import share

BRIEF = (300, 3_000)
"""How far is looked for a schedule that shows what shown.json does not know."""

LONG = {
    "ended_work_of_all_is_seen",
    "grain_behind_a_shorter_one",
    "grain_hides_what_was_left",
    "group_ack_races_redelivery",
    "index_between_two_entries",
    "keyed_laps_do_not_mix",
    "keyed_lease_ends_beside_an_ack",
    "keyed_met_after_a_death",
    "keyed_parked_while_looked_at",
    "keyed_sleeper_is_woken",
    "keyed_straggler_is_parked",
    "keyed_two_meet",
    "keyed_two_park",
    "killed_batch_is_all_or_nothing",
    "killed_producer_is_padded",
    "killed_while_shortening",
    "ring_laps_do_not_mix",
    "ring_padding_of_an_earlier_lap",
    "ring_purged_behind_the_window",
    "ring_skimmed_come_once",
    "ring_skimmed_of_the_dead",
    "second_sleeper_is_woken",
    "side_given_back_is_dropped",
    "side_two_reap_a_move",
    "sync_leader_is_overtaken",
    "two_producers_beside_a_reader",
}
"""Exhausted in more than some two seconds each: the suite draws executions of them at random, as of the large ones."""

pytestmark = pytest.mark.skipif(not explorer.have_compiler(), reason="needs a C compiler")


@pytest.mark.parametrize("name", explorer.named("TEST"))
def test_litmus(name):
    """The memory shows every outcome that C11 allows a known program, and no other."""
    result = explorer.run("--scenario", name)
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.parametrize(
    "name",
    [
        "sleeper_and_waker",
        "pads_chunk_is_added",
        "side_parker_is_killed",
        "waker_killed_before_the_call",
        pytest.param("passing_a_claim_needs_pad", marks=pytest.mark.slow),
        pytest.param("zombie_shortens_too_late", marks=pytest.mark.slow),
    ],
)
def test_reduction_covers_what_it_cuts(name):
    """Run to their ends, executions are exactly as many as the graph of states contains."""
    reduced = explorer.run("--scenario", name).results[0]
    plain = explorer.run("--scenario", name, "--plain").results[0]
    assert plain.outcome == "exhausted"
    assert plain.executions == pytest.approx(reduced.covered, rel=1e-3)  # printed with four digits


def test_the_long_ones_are_there():
    assert set(explorer.named("PLAY")) >= LONG


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] if each in LONG else []) for each in explorer.named("PLAY")]
)
def test_schedule(name):
    """Exhausted: no interleaving, no legal value of a load and no moment of a kill breaks a promise."""
    result = explorer.run("--scenario", name)
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.parametrize("name", [*explorer.named("LARGE"), *sorted(LONG)])
def test_large_schedule_drawn_at_random(name):
    """No fault in some thousand executions; the campaign runs the rest."""
    result = explorer.run("--scenario", name, "--random", "1", "--executions", str(share(20_000)))
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.timeout(900)  # of a site that shown.json does not name, all schedules are looked through
@pytest.mark.parametrize("way", ["step", "split", "blind", "skip"])
@pytest.mark.parametrize("file", explorer.EXPLORED)
def test_each_weakened_site_is_caught(file, way):
    """
    step: every acquire and release made relaxed, every fence left out. split, blind: every read-modify-write made a
    load and a store, or a store alone. skip: every store and addition left out. Each is shown by some schedule.
    """
    weak = [
        site
        for site, _, ways in explorer.sites()
        if site.startswith(f"{file}:") and way in ways and not explorer.harmless(site, way)
    ]
    survivors = [site for site in weak if explorer.caught_by(site, way, BRIEF) is None]
    assert survivors == [], "not within so few executions; `python -m tests.model.campaign --shown` looks further"


def test_every_site_is_weakened():
    """Whatever file of the core has an atomic call site has its sites weakened, or stands in UNEXPLORED."""
    files = {site.split(":")[0] for site, _, _ in explorer.sites()}
    assert files == {*explorer.EXPLORED, *explorer.UNEXPLORED}


def test_every_exception_is_one():
    """No line is excused that is not there any more."""
    keys = {(site.split(":")[0], explorer.key_of(site), way) for site, _, ways in explorer.sites() for way in ways}
    argued = {(file, key, way) for file, key, ways, _ in [*explorer.ARGUED, *explorer.UNSHOWN] for way in ways}
    assert {(file, key) for file, key, _ in argued} - {(file, key) for file, key, _ in keys} == set()
    excused = [(file, words) for file, words, *_ in [*explorer.HARMLESS, *explorer.HARMLESS_TOO]]
    lines = {file: explorer.path_of(file).read_text() for file, _ in excused}
    assert [(file, words) for file, words in excused if words not in lines[file]] == []


def test_a_fault_repeats():
    """The line that a fault prints shows the same fault, step by step."""
    fence = next(site for site, order, _ in explorer.sites() if order == "seq_cst" and site.startswith("wait.c"))
    found = explorer.run("--scenario", "sleeper_and_waker", "--weaken", f"{fence}=step")
    assert found.code == explorer.FAULT
    again = explorer.run(*found.text.split("repeat: explorer ")[1].split())
    assert again.code == explorer.FAULT
    assert "sleeps for ever" in found.text
    assert "sleeps for ever" in again.text
