"""A short share of the campaign of kills."""

from __future__ import annotations

from tests.rpc.campaign import run


def test_nothing_is_lost_or_done_twice_when_processes_are_killed(monkeypatch):
    monkeypatch.setattr("shmq.rpc.state._SWEEP", 1.0)  # in the servers, which are forked from here
    found = run(kills=12, seed=3)
    assert found["answered"] > 0
