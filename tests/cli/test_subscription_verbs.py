"""What the command line says of filters, of names that go by themselves, and of the one that holds everything back."""

from __future__ import annotations

import json

import pytest

import shmq
from shmq.cli import main


@pytest.fixture
def filled(queue, path):
    """Every tenth message of a hundred is of Europe."""
    for number in range(100):
        queue.put(b"%d" % number, key=b"eu/x" if number % 10 == 0 else b"us/x", type=number % 3)
    return path


def said(capsys, *words, status=0):
    assert main([str(word) for word in words]) == status
    return capsys.readouterr().out


def test_listings_say_what_a_name_wants_and_when_it_goes(filled, queue, capsys):
    queue.consumer("eu", filter=shmq.Filter(key_prefix=b"eu/", headers={"a": None}), expires=7200).close()
    with queue.consumer("mine", ephemeral=True):
        wants = "wants Filter(key_prefix=b'eu/', headers={'a': None}), goes when nobody had it for 2 h"
        for words in (["ls"], ["stat"]):
            told = said(capsys, *words, filled)
            assert f"eu: {wants}" in told
            assert "at most 100" in told
            assert "mine: goes with its holder" in told
        lines = said(capsys, "consumer", "ls", filled).splitlines()
        assert wants in lines[0]
        assert "at most 100 behind" in lines[0]
        assert "goes with its holder" in lines[1]
        known = json.loads(said(capsys, "consumer", "ls", filled, "--json"))
        assert known["eu"]["filter"] == "Filter(key_prefix=b'eu/', headers={'a': None})"
        assert (known["eu"]["expires"], known["mine"]["ephemeral"], known["mine"]["behind"]) == (7200, True, 100)


def test_cat_tail_and_take_show_what_matches(filled, queue, capsys):
    assert said(capsys, "cat", filled, "--key-prefix", "eu/").split() == [str(each) for each in range(0, 100, 10)]
    assert said(capsys, "cat", filled, "--key-prefix", "eu/", "--type", 1, "--type", 2).split() == [
        str(each) for each in range(0, 100, 10) if each % 3
    ]
    assert said(capsys, "tail", filled, "-n", 2, "--key-prefix", "eu/").split() == ["80", "90"]
    assert said(capsys, "take", filled, "c", "-n", 3, "--timeout", 0, "--key-prefix", "eu/").split() == [
        "0",
        "10",
        "20",
    ]
    assert queue.consumers()["c"].filter == shmq.Filter(key_prefix=b"eu/")
    assert said(capsys, "take", filled, "c", "--timeout", 0).split() == ["30"]
    assert main(["take", filled, "c", "--type", "1", "--timeout", "0"]) == 1
    assert "it was made with filter=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["cat", "7", "--key-prefix", "a"], ["cat", "--type", "70000"], ["take", "c", "--type", "-1"]]
)
def test_what_means_nothing_ends_with_2(filled, words, capsys):
    try:
        status = main([words[0], filled, *words[1:]])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert capsys.readouterr().err


def test_who_holds_everything_back_is_told(make, path, capsys):
    queue = make(max_messages=10)
    queue.consumer("slow").close()
    for number in range(6):
        queue.put(b"x")
        queue.consumer("fast").take_many(10)
        words = "slow alone holds back"
        assert (words in said(capsys, "ls", path)) == (number >= 4)
        assert words in said(capsys, "stat", path)
    assert json.loads(said(capsys, "stat", path, "--json"))["held_by"]["name"] == "slow"
