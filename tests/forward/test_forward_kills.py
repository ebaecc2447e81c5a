"""The short share of `python -m tests.forward.campaign`."""

from __future__ import annotations

import pytest

from shmq.taking.account import Account
from tests.forward import campaign, sqlite


def test_everything_is_there_once_whoever_is_killed():
    put, wrong = campaign.run(20261125, 30)
    assert put > 100
    assert wrong == []


@pytest.mark.slow
def test_a_worker_that_does_not_look_is_found(monkeypatch):
    """The campaign bites."""
    begin = Account.begin_forward
    monkeypatch.setattr(Account, "begin_forward", lambda *given: begin(*given) and False)
    assert any("twice" in "".join(campaign.run(seed, 60)[1]) for seed in range(5))


def test_a_database_and_a_queue_agree_whoever_is_killed():
    assert sqlite.run(7, 15) == []


@pytest.mark.slow
def test_a_database_and_a_queue_agree_after_a_thousand_kills():
    assert sqlite.run(8, 1000) == []
