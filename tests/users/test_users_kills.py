"""A short share of campaign.py; and that it would see what it looks for."""

import random

from tests.users import campaign
from tests.users.people import ALICE, BOB, several

pytestmark = several


def test_what_a_killed_user_left_is_whole_for_the_other_both_ways():
    """Ten kills each; the campaign makes two hundred."""
    found, figures = campaign.run(10, 1)
    assert found == []
    assert all(put > 50 and acked > 10 for _, put, acked in figures), figures


def test_the_campaign_sees_a_loss_and_a_repetition(monkeypatch, tmp_path):
    """Told of a put that nobody made, and of an ack that the other took again."""
    played = campaign.Round(ALICE, BOB, random.Random(1))
    monkeypatch.setattr(campaign, "_verify", lambda say, uid, path: say("whole"))
    monkeypatch.setattr(campaign, "misfits", lambda path: [])
    for line in ('["here"]', '["put", "0.0"]', '["put", "0.1"]', '["took", "0.1"]', '["acked", "0.1"]'):
        played.note(line)
    assert played.problems(tmp_path, {"s.0": 1, "0.0": 1}, 1) == []
    assert "lost: ['0.0']" in played.problems(tmp_path, {"s.0": 1}, 1)
    assert "lost: ['s.1']" in played.problems(tmp_path, {"s.0": 1, "0.0": 1}, 2)
    assert "taken again after an ack: ['0.1']" in played.problems(tmp_path, {"s.0": 1, "0.0": 1, "0.1": 1}, 1)
