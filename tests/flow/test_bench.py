"""A worker that is killed at any call it makes: what comes of each item is put once, by it or by the next one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading

import pytest
from stages import double, double_all, some
from support import Child, in_child

import shmq
from shmq import durability
from shmq.flow import tries
from shmq.flow.bench import Bench
from shmq.flow.order import Ordered
from shmq.flow.place import Place
from shmq.flow.plan import Stage

ITEMS = 12
EACH = 31
"""How many calls lie between two that are tried."""


class Life:
    """A worker's, of one that nobody asks to leave."""

    ending = False

    def wait(self, call):
        return call()

    def say(self, word):
        pass


def killed_in(step, bench):
    """Whether a worker that does some items together, in a child, was killed before its n-th call into C."""

    def job(say):
        left = [step]

        def watch(frame, event, function):
            if event == "c_call":
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        with bench:
            bench.each = 0.001
            messages = bench.take()
            assert len(messages) > 1
            sys.setprofile(watch)
            bench.handle(messages)
            sys.setprofile(None)

    with Child(job) as child:
        status = child.join()
        assert status in {0, -signal.SIGKILL}
        return status != 0


class InTurn(Ordered):
    """One that does, and commits, what it is given."""

    def handle(self, messages):
        self._do(messages)
        self._commit_in_turn()


def test_a_wait_for_the_disk_that_ends_early_is_no_try(tmp_path, monkeypatch):
    """As when the worker is to leave: the item comes again, and is given up for nothing that it did."""
    place, stage = Place(tmp_path / "flow", "pickle", shmq.Durability.SYNC), Stage("a", double, attempts=1)
    place.make()
    tries.forget_hands(place.path)
    with place.queue(0, stage, create=True) as queue, place.out(create=True) as out:
        place.consumer(0, stage, queue).close()
        queue.put(1)
        with Bench(Life(), place, 0, stage, None) as bench:
            messages = bench.take()

            def late(*_):
                raise shmq.SyncPending("not in time")

            with monkeypatch.context() as patched:
                patched.setattr(durability.Syncer, "wait", late)
                bench.handle(messages)
            assert (bench.tries.of(messages[0]), place.letters(0, stage)) == (0, 0)
            bench.handle([bench.consumer.get(timeout=20)])
        assert [message.payload for message in out.reader()] == [2]


STAGES = {
    "plain": (Bench, Stage("a", double), [2 * n for n in range(ITEMS)]),
    "ordered": (Ordered, Stage("a", double, ordered=True), [2 * n for n in range(ITEMS)]),
    "batch": (Bench, Stage("a", double_all, batch=5), [2 * n for n in range(ITEMS)]),
    "several": (Bench, Stage("a", some), [1, 2, 3, 5, None, 6, 6, [7, 7], 9, 10, None, 11, 11]),
}


@pytest.mark.parametrize(
    "name", ["plain", "ordered", *(pytest.param(name, marks=pytest.mark.slow) for name in ("batch", "several"))]
)
def test_a_worker_that_is_killed_anywhere_puts_nothing_twice(tmp_path, name):
    """At one of each thirty calls that it makes while it does several items, and finishes them."""
    kind, stage, wanted = STAGES[name]
    chance = random.Random(name)

    def begin(place):
        place.make()
        tries.forget_hands(place.path)
        with place.queue(0, stage, create=True) as queue, place.out(create=True):
            place.consumer(0, stage, queue).close()
            queue.put_many(range(ITEMS))
            queue.finish()

    def run(place):
        with kind(Life(), place, 0, stage, None) as bench:
            bench.run()

    step, killed = chance.randrange(EACH), 0
    while True:
        place = Place(tmp_path / "killed", "pickle")
        begin(place)
        if not killed_in(step, (InTurn if stage.ordered else kind)(Life(), place, 0, stage, None)):
            break
        killed += 1
        in_child(run, place)
        with place.out() as out:
            got = [message.payload for message in out.reader()]
            assert out.finished
        assert got == wanted or sorted(map(str, got)) == sorted(map(str, wanted)), f"killed at call {step}"
        if stage.ordered:
            assert got == wanted
        shutil.rmtree(place.path)
        step += EACH
    assert killed > 3


def test_found_an_item_was_tried_again_before_its_workers_death_was_put_down_to_it(tmp_path):
    """Its messages come back by the queue, and its burial by the one that started it; the next holder waits."""

    class Again:
        index, attempts = 5, 2

    tries.forget_hands(str(tmp_path))
    mine = tries.Tries(str(tmp_path), 0, 8)
    hand = tmp_path / tries.HANDS / "0.7"
    hand.write_bytes(b"".join(number.to_bytes(8, "little") for number in (2, 4, 5)))
    burial = threading.Timer(0.1, tries.bury, (str(tmp_path), 0, 7))
    burial.start()
    mine.settle([Again()])
    assert mine.is_suspect(Again())
    burial.join()
    mine.close()
