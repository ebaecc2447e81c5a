"""Real kill -9, a few of them; `python -m tests.crash.campaign --kills` does thousands."""

from __future__ import annotations

from .kills import kill


def test_nothing_that_was_put_is_lost_or_uncounted_but_for_the_put_that_was_killed():
    done = kill(40, seed=7)

    assert not done.findings, "\n".join(done.findings)
    assert done.kills == 40
    assert done.puts > 0
    assert done.uncounted <= 4 * done.in_flight  # a batch has four
