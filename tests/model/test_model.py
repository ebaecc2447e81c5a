"""
C5: the real C files of the core over an exploring `atomic.h`. README.md tells what is explored and what is not.

This is the short share; `python -m tests.model.campaign` is the long one.
"""

from __future__ import annotations

import explorer
import pytest

pytestmark = pytest.mark.skipif(not explorer.have_compiler(), reason="needs a C compiler")


@pytest.mark.parametrize("name", explorer.named("TEST"))
def test_litmus(name):
    """The memory shows every outcome that C11 allows a known program, and no other."""
    result = explorer.run("--scenario", name)
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.parametrize(
    "name",
    ["sleeper_and_waker", "passing_a_claim_needs_pad", "zombie_shortens_too_late", "waker_killed_before_the_call"],
)
def test_reduction_covers_what_it_cuts(name):
    """Run to their ends, executions are exactly as many as the graph of states contains."""
    reduced = explorer.run("--scenario", name).results[0]
    plain = explorer.run("--scenario", name, "--plain").results[0]
    assert plain.outcome == "exhausted"
    assert plain.executions == pytest.approx(reduced.covered, rel=1e-3)  # printed with four digits


@pytest.mark.parametrize("name", explorer.named("PLAY"))
def test_schedule(name):
    """Exhausted: no interleaving, no legal value of a load and no moment of a kill breaks a promise."""
    result = explorer.run("--scenario", name)
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.parametrize("name", explorer.named("LARGE"))
def test_large_schedule_drawn_at_random(name):
    """No fault in some thousand executions; the campaign runs the rest."""
    result = explorer.run("--scenario", name, "--random", "1", "--executions", "20000")
    assert result.code == explorer.EXHAUSTED, result.text


@pytest.mark.parametrize("way", ["step", "split", "blind", "skip"])
def test_each_weakened_site_is_caught(way):
    """
    step: every acquire and release made relaxed, every fence left out. split, blind: every read-modify-write made a
    load and a store, or a store alone. skip: every store and addition left out. Each is shown by some schedule.
    """
    weak = [site for site, _, ways in explorer.sites() if way in ways and not explorer.harmless(site, way)]
    survivors = [site for site in weak if explorer.caught_by(site, way) is None]
    assert survivors == []


def test_every_site_is_run():
    """Each atomic call site of the files explored is one that a weakening or a scenario reaches; none is unknown."""
    files = {site.split(":")[0] for site, _, _ in explorer.sites()}
    explored = ["any", "bounds", "chunk", "control", "index", "keyed", "owner", "ring", "side", "sync", "timed", "wait"]
    assert {"ring.h", *(f"{name}.c" for name in explored)} == files - explorer.UNEXPLORED


def test_every_exception_is_one():
    """No line is excused that is not there any more."""
    excused = [(file, words) for file, words, *_ in [*explorer.HARMLESS, *explorer.HARMLESS_TOO, *explorer.UNSHOWN]]
    lines = {file: (explorer.CORE / "src" / file).read_text() for file, _ in excused}
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
