"""What n followers have marked is never lost by a promotion that was not forced: every state of a small machine."""

from __future__ import annotations

import pytest
from replicated_model import FLAWS, Bounds, Model

SOUND = [
    (1, 1, Bounds(puts=2, promotions=2, cuts=1, losses=1, lifts=1)),
    (2, 1, Bounds(puts=2, promotions=2)),
    (2, 2, Bounds(puts=1, promotions=1)),
    (2, 1, Bounds(puts=1, promotions=1, cuts=1)),
    (2, 1, Bounds(puts=1, promotions=1, losses=1, lifts=1)),
    (3, 1, Bounds(puts=1, promotions=1)),
    (3, 2, Bounds(puts=1, promotions=1)),
]
LONG = [
    (2, 2, Bounds(puts=1, promotions=2)),
    (2, 1, Bounds(puts=1, promotions=2, cuts=1, losses=1)),
    (2, 1, Bounds(puts=2, promotions=2, losses=1)),
    (2, 1, Bounds(puts=1, promotions=2, losses=1, lifts=1)),
    (2, 2, Bounds(puts=1, promotions=2, losses=1)),
    (3, 1, Bounds(puts=1, promotions=2)),
    (3, 2, Bounds(puts=1, promotions=1, losses=1)),
    (3, 3, Bounds(puts=1, promotions=1)),
]
CAUGHT = {
    "one receipt too few": (2, 1, Bounds(puts=1, promotions=1)),
    "marked before the sync": (1, 1, Bounds(puts=1, promotions=1, cuts=1)),
    "marked behind the fence": (2, 1, Bounds(puts=1, promotions=1)),
    "for somebody else": (3, 2, Bounds(puts=1, promotions=2)),
    "given twice": (3, 2, Bounds(puts=1, promotions=2)),
    "shorter": (2, 1, Bounds(puts=1, promotions=1)),
    "an older era": (2, 1, Bounds(puts=1, promotions=1)),
    "of an older fence": (2, 1, Bounds(puts=1, promotions=1, lifts=1)),
    "made anew": (2, 1, Bounds(puts=1, promotions=1, losses=1)),
    "before it has all of before": (2, 2, Bounds(puts=1, promotions=2, losses=1)),
}


@pytest.mark.parametrize(
    ("followers", "n", "bounds"), [*SOUND, *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG)]
)
def test_nothing_acknowledged_is_lost_by_a_promotion_that_was_not_forced(followers, n, bounds):
    states, way = Model(followers, n, bounds).loses()

    assert way == []
    assert states > 100


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_protocol_that_is_nearly_right_is_found(flaw):
    """So the machine shows what it is asked."""
    followers, n, bounds = CAUGHT[flaw]
    _, way = Model(followers, n, bounds, flaw).loses()

    assert way, f"{flaw}: nothing was lost"
