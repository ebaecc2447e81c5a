"""Bridges and servers killed a few times; the campaign does it fifty times and more."""

from killing import kill_either


def test_kills_lose_and_double_nothing(kind, running):
    running(kind)
    done = kill_either(kind, kills=3, seed=7, pause=0.4)
    assert done["messages"] > 0
