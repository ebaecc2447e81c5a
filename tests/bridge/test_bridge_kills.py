"""Bridges and servers killed a few times; the campaign does it fifty times and more."""

import pytest
from kills import kill_either


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_kills_lose_and_double_nothing(kind, running, kills):
    running(kind)
    done = kill_either(kind, kills=kills, seed=7, pause=0.4)
    assert done["messages"] > 0
