"""The bound on starvation, exactly: every adversary, by search over all states of the counting."""

from __future__ import annotations

import itertools

import pytest

from shmq.priorities import turns
from shmq.priorities.turns import Turns


def next_level(state: Turns, full: frozenset[int]) -> int | None:
    """Whom a member takes from, when these levels have something: as the consumer looks, in full."""
    due = state.due()
    for level in (*due, *(each for each in range(len(state._marks)) if each not in due)):
        if level in full:
            return level
        state.was_empty(level)
    return None


def longest_wait(levels: int, passes: int, monkeypatch) -> int:
    """
    The longest that any level which has something is passed by, over all that the others may have from take to take.

    A state is how often each level was passed, which is capped where it is due; so there are few, and all are seen.
    """
    monkeypatch.setattr(turns, "PASSES", passes)
    worst = 0
    for waiting in range(1, levels):
        others = [each for each in range(levels) if each != waiting]
        choices = [
            frozenset({waiting, *some}) for n in range(len(others) + 1) for some in itertools.combinations(others, n)
        ]
        # from every state that can be when the waiting level has just had its turn: any of the others, passed or not
        ahead = {(passed, 0) for passed in itertools.product(range(passes + 1), repeat=levels) if passed[waiting] == 0}
        seen = set(ahead)
        while ahead:
            passed, waited = ahead.pop()
            for full in choices:
                state = Turns(levels)
                state._taken = passes
                state._marks = [passes - each for each in passed]
                state._due_at = min(state._marks) + passes
                level = next_level(state, full)
                if level == waiting:
                    continue
                state.took(level)
                worst = max(worst, waited + 1)
                after = tuple(min(state.passed(each), passes) for each in range(levels)), waited + 1
                assert waited < 10 * passes, "it waits for ever"
                if after not in seen:
                    seen.add(after)
                    ahead.add(after)
    return worst


@pytest.mark.parametrize(("levels", "passes"), [(2, 4), (3, 3), (3, 5), (4, 4)])
def test_no_level_that_has_something_waits_longer_than_is_said(levels, passes, monkeypatch):
    """Whatever the others have: and as long as that it can be, so the bound is exact."""
    assert longest_wait(levels, passes, monkeypatch) == passes + levels - 2


def test_when_all_have_something_each_level_gets_one_of_so_many():
    """And what is urgent the rest."""
    state = Turns(3)
    took = []
    for _ in range(1800):
        took.append(next_level(state, frozenset({0, 1, 2})))
        state.took(took[-1])
    assert took[:20] == [0] * 16 + [1, 2, 0, 0]
    assert took[16:1784] == ([1, 2] + [0] * 15) * 104


def test_a_level_that_had_nothing_has_not_been_passed_by():
    """It begins to wait when it has something."""
    state = Turns(2)
    for _ in range(100):
        assert next_level(state, frozenset({0})) == 0
        state.took(0)
    assert state.passed(1) <= turns.PASSES


def test_batches_are_counted_by_messages():
    """A level that is due has one for each PASSES that passed it by, and no more than was asked for."""
    state = Turns(2)
    state.took(0, 1000)
    assert state.due() == (1,)
    assert state.share(1, 1000) == 1000 // turns.PASSES
    assert state.share(1, 5) == 5
    assert state.share(0, 1000) == 1000
    state.took(1, 62)
    assert state.due() == (0,)
    assert Turns(2).share(1, 1000) == 1
