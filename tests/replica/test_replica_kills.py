"""Whoever is killed, and whenever: the follower has the beginning of what its source has, and goes on."""

from __future__ import annotations

import os
import random
import time

import pytest
from disks import in_memory
from following import content, follow, follow_once
from support import Child, killed_at, start, until

import shmq
from shmq.replica.follower import Follower
from shmq.replica.source import Source


def fill(queue, count) -> None:
    for number in range(count):
        queue.put(b"%d " % number * 30)


def put_until_killed(say, path) -> None:
    with shmq.open(str(path), chunk_bytes=1 << 18) as queue:
        say("puts")
        while True:
            for _ in range(10):
                queue.put(b"%d " % queue.next_index * random.randrange(1, 200))
            time.sleep(0.004)  # it is not to grow faster than these tests can look at it


def is_a_beginning(a, b) -> int:
    """How many messages are in the follower, which has them all from the first on and as they are in the source."""
    here, there = content(b), content(a)
    assert here == there[: len(here)]
    return len(here)


@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_the_follower_is_killed_again_and_again(tmp_path, kills):
    """At random, while somebody puts; each time it goes on where it was, and at last it has all."""
    a, b = tmp_path / "a", tmp_path / "b"
    shmq.open(str(a), chunk_bytes=1 << 18).close()
    before = 0
    with Child(put_until_killed, a) as producer:
        producer.hear()
        for _ in range(kills):
            with Child(lambda say: follow(a, b)) as follower:
                time.sleep(random.uniform(0.0, 0.08 if before else 0.8))  # on a busy machine it takes long to begin
                follower.kill()
            if b.exists():
                now = is_a_beginning(a, b)
                assert now >= before
                before = now
    assert before > 0, "it never came to anything"
    follow_once(a, b)
    assert content(b) == content(a)
    with shmq.open(str(b), read_only=True) as there:
        assert there.verify().problems == ()


@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_the_producers_of_the_source_are_killed_again_and_again(tmp_path, kills):
    """At random: their claims become padding, there as here."""
    a, b = tmp_path / "a", tmp_path / "b"
    shmq.open(str(a), chunk_bytes=1 << 18).close()
    with Child(lambda say: follow(a, b)):
        for _ in range(kills):
            with Child(put_until_killed, a) as producer:
                producer.hear()
                time.sleep(random.uniform(0.0, 0.05))
                producer.kill()
        with shmq.open(str(a), read_only=True) as source, shmq.open(str(b), read_only=True) as there:
            source_end = source.reader(0, reverse=True)
            last = next(iter(source_end)).index
            until(lambda: there.next_index > last)
    follow_once(a, b)
    assert content(b) == content(a) != []
    with shmq.open(str(b), read_only=True) as there:
        assert there.verify().problems == ()


def more(queue) -> None:
    """A roll, a set that was adopted, and something behind it."""
    fill(queue, 3000)
    with queue.stage() as staged:
        for number in range(6000):
            staged.put(b"staged %d" % number * 10)
        queue.adopt(staged)
    queue.put(b"once", dedup=("p", 1))


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("begun", [False, True])
def test_killed_before_calls_that_change_something(tmp_path, begun, every):
    """Of the making, and of going on: readers see a beginning, and who comes next goes on."""
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 18) as queue:
        fill(queue, 300)
        if begun:
            follow_once(a, b)
            more(queue)
        step = 0
        while killed_at(step, lambda: follow_once(a, b)):
            if b.exists():
                is_a_beginning(a, b)
                with shmq.open(str(b)) as there:
                    assert there.next_index <= queue.next_index
            step += every
        assert step > 14
        follow_once(a, b)
        assert content(b) == content(a)
        assert not (b / "staging").exists() or not list((b / "staging").iterdir())


def test_a_full_disk_of_the_follower_stops_nobody(tmp_path):
    """What it has stays whole and readable; the source goes on; with room again it goes on by itself."""
    a = tmp_path / "a"
    with shmq.open(str(a), chunk_bytes=1 << 20) as queue, in_memory(tmp_path, 6 << 20) as small:
        b, ballast = small / "b", small / "ballast"
        fill(queue, 1000)
        follow_once(a, b)
        ballast.write_bytes(bytes(3 << 20))
        before = queue.next_index
        with Child(lambda say: follow(a, b)) as child:
            for _ in range(6):
                queue.put_many([bytes(1000) for _ in range(500)])
            until(lambda: is_a_beginning(a, b) > before)
            until(lambda: os.statvfs(small).f_bavail * os.statvfs(small).f_frsize < 1 << 20)
            assert is_a_beginning(a, b) < queue.next_index
            assert queue.put(b"on") == queue.next_index - 1
            ballast.unlink()
            until(lambda: content(b) == content(a))
            assert not child.has_spoken()


def test_a_fork_of_who_replicates_does_nothing(tmp_path):
    """Its child ends, and takes nothing with it."""
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a)) as queue, Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        pid = start(lambda: None)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        queue.put(b"x")
        for piece in source.pieces():
            follower.take(piece)
    assert content(b) == content(a)
