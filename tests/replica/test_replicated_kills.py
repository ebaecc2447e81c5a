"""Puts that wait for followers, and kills: of putters, of followers, and at each step of a promotion."""

from __future__ import annotations

import random
import time

import pytest
from following import content, follow, follow_once
from support import Child, killed_at, until

import shmq
from shmq import replica

NAMES = ("b", "c")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made() -> None:
    durability = shmq.Durability.replicated(1, NAMES, "a")
    shmq.open("a", durability=durability, chunk_bytes=1 << 18, retention="forever").close()


def put_until_killed(say, word: str) -> None:
    """Say each message that was acknowledged: what was said is there, whoever dies."""
    with shmq.open("a") as queue:
        while True:
            payload = b"%s %d " % (word.encode(), queue.next_index) * random.randrange(1, 50)
            say(f"{queue.put(payload)}:{len(payload)}")


def acknowledged(child: Child) -> list[tuple[int, int]]:
    """What it has said by now: (index, length) of each."""
    found = []
    while child.speaks_within(0):
        index, length = child.hear().split(":")
        found.append((int(index), int(length)))
    return found


@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_what_was_acknowledged_is_there_after_kills_and_a_promotion(kills):
    """Putters, followers and whoever replicates to them are killed at random; then the source is gone."""
    made()
    said = []
    followers = {name: Child(lambda say, name=name: follow("a", name, name)) for name in NAMES}
    putter = Child(put_until_killed, "0")
    for number in range(kills):
        time.sleep(random.uniform(0.02, 0.1))
        name = random.choice([*NAMES, "", ""])
        if name:
            followers[name].kill()
            followers[name] = Child(lambda say, name=name: follow("a", name, name))
        else:
            said += acknowledged(putter)
            putter.kill()
            putter = Child(put_until_killed, str(number))
    until(putter.has_spoken)
    for each in (putter, *followers.values()):
        each.kill()
    assert said

    there = promoted()

    lengths = {index: len(payload) for index, payload, *_ in content(there)}
    assert [each for each in said if lengths.get(each[0]) != each[1]] == []


def promoted() -> str:
    """Which of the two was, by the receipt of the other one: as somebody at the keyboard does it."""
    first, other = NAMES
    try:
        receipt = replica.fence(other, give_to=replica.fence(first))
    except shmq.Mismatch as problem:  # it has more
        first, other = other, first
        receipt = replica.fence(other, give_to=str(problem).rsplit(" ", 1)[1])
    replica.promote(first, fenced=[receipt])
    return first


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_each_call_of_a_fence_and_a_promotion(every):
    """It can be said again; and whoever has given its receipt, or signed it, follows the old source no more."""
    made()
    with shmq.open("a") as queue:
        for number in range(20):
            with pytest.raises(shmq.SyncPending):
                queue.put(b"%d" % number, timeout=0)
    for name in NAMES:
        follow_once("a", name, name)
    step = 0
    while killed_at(step, lambda: replica.fence("b")):
        step += every
    mine = replica.fence("b")
    step = 0
    while killed_at(step, lambda: replica.fence("c", give_to=mine)):
        step += every
    receipt = replica.fence("c", give_to=mine)
    assert receipt == replica.fence("c", give_to=mine)
    step = 0
    while killed_at(step, lambda: replica.promote("b", fenced=[receipt])):
        for name in NAMES:
            with pytest.raises(shmq.ShmqError, match=r"fenced|promoted"):
                follow_once("a", name, name)
        step += every
    assert step > 0

    assert content("b") == content("a")
    with shmq.open("b") as queue:
        assert queue.options.durability.followers == ("c", "a")
    follow_once("b", "c", "c")


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_follower_killed_before_each_call_is_the_one_that_its_source_knows(every):
    """Which follower it is is on its disk before the source is told, and on that of the source before a mark counts."""
    made()
    with shmq.open("a") as queue, pytest.raises(shmq.SyncPending):
        queue.put(b"x", timeout=0)
    step = 0
    while killed_at(step, lambda: follow_once("a", "b", "b")):
        step += every
    with shmq.open("a") as queue:
        queue.sync(timeout=30)
