"""
Every operation, killed at every instruction and recovered from every distinct state (docs/promises.md, P1).

The longer part, with larger payloads, every state's recovery and real kills, is `python -m tests.crash.campaign`.
"""

from __future__ import annotations

import re

import pytest
from support import ONE_IN

from . import group_scenarios, recover, scenarios
from .walker import Scenario, Tools, walk, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

LONG = {
    "core: fill, beside another",
    "python: open consumer",
    "python: seek",
    "python: new consumer",
    "python: get and ack",
    "group: what another holds at the window's edge",
    "group: drop the oldest that were put aside",
    "group: create",
    "group: leave",
    "group: sit down where a dead one sat",
    "group: drop the oldest",
    "group: open where a dead one sat",
    "group: by key: leave",
    "group: by key: nack",
    "group: by key: sit down where a dead one sat",
    "join: adopt several chunks, beside another",
    "space: retire and use again",
}
"""More than half the time of all walks: the campaign has them, and the suite what resembles each of them."""
CORE_FLOOR = (110_000, 1_500)
PYTHON_FLOOR = (120_000, 350)
RECOVERY_FLOOR = (40_000, 90)
"""Instructions stepped and distinct states, at least: so that the suite cannot silently do nothing."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    return Tools(tmp_path_factory.mktemp("tools"))


def add_up(results, floor, record_property):
    """Report, then judge."""
    steps, states = sum(each.steps for each in results), sum(each.states for each in results)
    for each in results:
        print(each.row())
    record_property("kill points", steps)
    record_property("distinct states", states)
    findings = [finding for each in results for finding in each.findings]

    assert not findings, "\n".join(findings)
    assert steps >= floor[0]
    assert states >= floor[1]


def briefly(family):
    """What the suite walks of them."""
    return [scenario for scenario in family if scenario.name not in LONG]


def test_what_is_left_to_the_campaign_is_in_it():
    """By these names."""
    assert {scenario.name for scenario in scenarios.long()} >= LONG


def test_every_operation_of_the_core_killed_at_every_instruction(tools, record_property):
    """Whatever the core was doing, the next process finds what had returned, whole, and goes on."""
    results = [walk(scenario, tools, one_in=ONE_IN) for scenario in briefly(scenarios.short_core())]
    add_up(results, CORE_FLOOR, record_property)
    assert {each.steps == each.instructions for each in results} == {True}


def test_every_operation_of_python_killed_at_every_instruction(tools, record_property):
    """The same through the public API: at every instruction in the core and at every system call."""
    results = [walk(scenario, tools, one_in=ONE_IN) for scenario in briefly(scenarios.short_python())]
    add_up(results, PYTHON_FLOOR, record_property)
    assert min(each.calls for each in results) > 0


BESIDE = {
    group_scenarios.of_groups: (250_000, 200),
    group_scenarios.of_keys: (100_000, 100),
    group_scenarios.of_bounds: (40_000, 120),
    group_scenarios.of_space: (20_000, 150),
    group_scenarios.of_joining: (50_000, 250),
}


@pytest.mark.parametrize("family", BESIDE, ids=lambda family: family.__name__)
def test_every_operation_of_groups_and_space_killed_at_every_instruction(tools, family, record_property):
    """
    Whoever is killed wherever: no message of a group is lost, finished twice or with two, and its head goes on; bounds
    are exact; nothing goes that somebody needs; what was joined is there wholly or not at all, and once.
    """
    add_up([walk(scenario, tools, one_in=ONE_IN) for scenario in briefly(family())], BESIDE[family], record_property)


def test_recovery_killed_at_every_instruction(tools, record_property):
    """A process that recovers what another left may be killed as well, anywhere: the third one finds all the same."""
    known = scenarios.short()
    interrupted = [scenario for scenario in known if scenario.name in scenarios.RECOVERED]
    assert len(interrupted) == len(scenarios.RECOVERED)
    results = []
    for scenario in interrupted:
        images = walk(scenario, tools, keep=True, one_in=1 << 30).images  # recovered in the walks above
        middle = len(images) // 2
        results.append(walk(scenarios.recoveries(scenario, middle), tools, start=images[middle], one_in=ONE_IN))
    record_property("recoveries walked", len(results))
    add_up(results, RECOVERY_FLOOR, record_property)


# ---------------------------------------------------------------- does the suite bite?
def swap(text, pattern, replacement):
    """Exactly one place must match: a mutant that is no mutant proves nothing."""
    changed, count = re.subn(pattern, replacement, text)
    assert count == 1, f"the core has changed: {pattern} matches {count} times"
    return changed


def commit_before_payload(text):
    """A put commits, then copies."""
    text = swap(text, r"    write_payload\(chunk, claim\.position, &record, payload, length\);\n", "")
    commit = r"(    code = commit_word\(chunk, claim\.position, claim\.word, done\);\n)"
    late = "    write_payload(chunk, claim.position, &record, payload, length);\n"
    return swap(text, commit, r"\1" + late)


def commit_before_the_rest_of_the_batch(text):
    """A batch is committed with its first message, the words of the others follow."""
    commit = r"const int code = commit_word\(chunk, claim->position, claim->word, written->first_done\);"
    text = swap(text, commit, "const int code = SHMQ_OK;")
    early = "written->first_done = done;\n        commit_word(chunk, claim->position, claim->word, done);"
    return swap(text, r"written->first_done = done;", early)


def filler_behind_the_commit(text):
    """A reserve that was shortened is committed, and then its filler written."""
    text = swap(text, r"    fill_rest\(chunk, position, claimed, span \* SPAN_UNIT\);\n", "")
    commit = r"    const int code = commit_word\(chunk, position, claimed, word_make\(WORD_DONE, 1, .*\n"
    return swap(text, commit, r"\g<0>    fill_rest(chunk, position, claimed, span * SPAN_UNIT);\n")


def hint_before_the_claim(text):
    """The hint names the end of a region that is not claimed yet."""
    claim = r"            if \(!cas_\w+\(word_at\(chunk, walk\.position\), word, fits \?"
    early = "            if (fits) {\n                hint_raise(chunk, walk.position + bytes, walk.ordinal + count);\n"
    return swap(text, claim, early + r"            }\n\g<0>")


def padding_without_its_ordinals(text):
    """What was claimed and never committed gives its index to the next message."""
    return swap(text, r"word_make\(WORD_PAD, word_count\(claimed\),", "word_make(WORD_PAD, 0,")


MUTANTS = {
    commit_before_payload: ("chunk/put.c", ("put", 63)),
    commit_before_the_rest_of_the_batch: ("chunk/put.c", ("put_many", 1, 2, 3)),
    filler_behind_the_commit: ("chunk/put.c", ("reserve", 64, 8)),
    hint_before_the_claim: ("chunk/put.c", ("put", 1)),
    padding_without_its_ordinals: ("chunk/settle.c", ("abort", 20)),
}


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_a_broken_order_is_found(tools, mutate, monkeypatch):
    """The walk finds a core whose stores come in the wrong order, and passes over none of these."""
    file, operation = MUTANTS[mutate]
    scenario = Scenario("mutant", scenarios.SOME, scenarios.JOIN, (operation, ("put", 5)), core=True)
    broken = tools.harness(mutate, file, mutate.__name__)
    monkeypatch.setattr(recover, "DEADLINE", 0.1)

    assert not walk(scenario, tools).findings
    assert walk(scenario, tools, harness=broken, most=1).findings
