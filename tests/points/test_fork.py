"""A child that is forked at a place of a verb, beside a thread that works, holds nothing of the parent's."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest
from interrupts import Round
from support import Child

import shmq
from points.forks import Forks, fork_and_die
from points.verbs import BASE, BY_NAME, World, numbered

VERBS = [
    "open alone",
    "close",
    "consumer",
    "consumer.close",
    "group",
    "group.close",
    "put_many",
    "put dedup",
    "reserve",
    "adopt",
]
SHARE = 3


@pytest.fixture
def world_of(tmp_path):
    """A world of a verb, and how many places it has."""

    def make(name):
        folder = tmp_path / "points"
        folder.mkdir()
        world = World(BY_NAME[name], str(folder))
        counting = Round(1 << 30)
        world.round(counting.interrupted)
        return world, counting.seen

    return make


def shares(count):
    """Some places, spread over so many."""
    share = count if os.environ.get("SHMQ_POINTS") == "all" else SHARE
    return [turn * count // share for turn in range(share)]


@pytest.mark.parametrize("name", VERBS)
def test_a_child_that_is_forked_in_a_verb_and_lives_on_holds_nothing(name, tmp_path, world_of):
    """It ends only after the judge has found every name free and every message there."""
    world, count = world_of(name)
    ended = threading.Event()
    with shmq.open(str(tmp_path / "beside")) as beside:

        def work():
            while not ended.is_set():
                beside.put(b"x", dedup=("p", beside.next_index))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for place in shares(count):
                forks = Forks()
                this = Round(place, forks)
                with forks.ended():
                    world.round(this.interrupted)
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("name", VERBS)
def test_a_child_that_is_forked_in_a_verb_uses_the_queue_by_an_opening_of_its_own(name, world_of):
    """At once, whatever its parent was about to do: it reads, takes under a name, and puts."""
    world, count = world_of(name)

    def work():
        with shmq.open(world.path) as mine:
            assert [message.index for message in mine.reader(start=0, stop=BASE)] == list(range(BASE))
            with mine.consumer("child", start="earliest", ack="explicit") as consumer:
                message = consumer.get(timeout=5)
                assert message.payload == numbered(0)
                message.ack()
            mine.drop_consumer("child")
            if not world.verb.puts:
                mine.put(numbered(7))

    for place in shares(count):
        forks = Forks(work)
        this = Round(place, forks)

        @contextlib.contextmanager
        def happening(this=this, forks=forks):
            with forks.ended(), this.interrupted():
                yield

        world.round(happening)
        assert this.raised


@pytest.mark.parametrize("name", ["open alone", "consumer", "group", "group.close", "put_many", "reserve", "stage"])
def test_a_child_that_outlives_its_killed_parent_holds_nothing(name, world_of):
    """Its parent was killed in the middle of a verb, just after the fork: what it had is free, and ends with it."""
    world, count = world_of(name)

    def work(say, place):
        queue = shmq.open(world.path)
        state = world.verb.ready(queue)
        this = Round(place, lambda: fork_and_die(say))
        with this.interrupted():
            world.verb.run(queue, state)
        say("never there")

    for place in shares(count):
        world.fresh()
        with Child(work, place) as parent:
            child = int(parent.hear())
            try:
                parent.kill()
                world.runs, world.returned = 1, 0
                world.judge()
            finally:
                os.kill(child, signal.SIGKILL)
