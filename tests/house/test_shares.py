"""What the suite does of a long sweep: a share that is drawn, and with SHMQ_WHOLE=1 all of it."""

from __future__ import annotations

import itertools

import pytest
import support


@pytest.fixture(params=[1, 3])
def one_in(request, monkeypatch):
    monkeypatch.setattr(support, "ONE_IN", request.param)
    return request.param


def test_what_is_drawn_is_a_share_in_its_order(one_in):
    found = support.drawn(range(64))
    assert len(found) == support.share(64) == (64 if one_in == 1 else 22)
    assert found == sorted(set(found))
    assert set(found) <= set(range(64))


def test_with_the_seed_that_was_printed_the_same_is_drawn_again(one_in, monkeypatch, capsys):
    found = support.drawn(range(1000))
    word, _, seed = capsys.readouterr().out.split()[-1].partition("=")
    monkeypatch.setenv(word, seed)
    assert support.drawn(range(1000)) == found


def test_strides_leave_out_no_more_than_they_say_and_nothing_of_the_whole(one_in):
    found = list(itertools.islice(support.strides(), 3000))
    assert set(found) == set(range(1, 2 * one_in))
    assert abs(sum(found) / len(found) - one_in) < 0.2
