"""shmq.wait: one sleep for many queues, ended by whatever ends a get."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from support import Child, hold_until_killed, in_child, peek, until

import shmq

LONG = 60.0
SLEEPERS = 128  # in the control page


def asleep(path) -> bool:
    """Whether somebody has said that he sleeps at that queue."""
    return peek(Path(path, "control.shmq"), SLEEPERS) & 0xFFFFFFFF == 1


@pytest.fixture
def queues(make, tmp_path):
    """Three queues."""
    return [make(str(tmp_path / name)) for name in "abc"]


def test_those_that_have_something_are_named_and_nothing_is_taken(queues):
    """In the order given; also those that were named twice."""
    consumers = [queue.consumer("c") for queue in queues]
    assert shmq.wait(consumers, timeout=0) == []
    assert shmq.wait([], timeout=None) == []
    queues[2].put(b"x")
    queues[0].put(b"y")
    for _ in range(2):
        assert shmq.wait(consumers, timeout=LONG) == [consumers[0], consumers[2]]
    assert consumers[2].take(timeout=0) == b"x"
    assert shmq.wait(consumers) == [consumers[0]]
    with pytest.raises(ValueError, match="timeout"):
        shmq.wait(consumers, timeout=-1)


def test_a_put_anywhere_wakes(queues):
    """Each queue by itself, from another process."""
    consumers = [queue.consumer("c") for queue in queues]
    for queue, consumer in zip(queues, consumers, strict=True):

        def put(say, queue=queue):
            until(lambda: asleep(queue.path), LONG)
            queue.put(b"x")
            say("put")

        with Child(put) as child:
            assert shmq.wait(consumers, timeout=LONG) == [consumer]
            assert child.hear(LONG) == "put"
        assert consumer.take(timeout=0) == b"x"


def test_names_of_one_queue_and_rolls(queue):
    """Only the name that is behind; also when its next message is in a later chunk."""
    fast, slow = queue.consumer("fast"), queue.consumer("slow")
    for _ in range(40):
        queue.put(bytes(1000))
        fast.take()
        assert shmq.wait([fast, slow], timeout=0) == [slow]
    while slow.lag:
        slow.take()
    assert shmq.wait([fast, slow], timeout=0) == []


def test_the_death_of_who_holds_a_claim_wakes(queues):
    """What stands behind it can be had."""

    def claim(say):
        slot = queues[1].reserve(8)
        say("claimed")
        hold_until_killed(say)
        slot.abort()

    consumers = [queue.consumer("c") for queue in queues]
    with Child(claim) as owner:
        assert owner.hear(LONG) == "claimed"
        queues[1].put(b"behind")
        assert shmq.wait(consumers, timeout=0) == []

        def kill():
            until(lambda: asleep(queues[1].path), LONG)
            owner.signal(signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        assert shmq.wait(consumers, timeout=LONG) == [consumers[1]]
        thread.join()
    assert consumers[1].take(timeout=0) == b"behind"


def test_shutdown_and_close_wake(queues):
    """A get there would say so at once."""
    consumers = [queue.consumer("c") for queue in queues]
    for act, which in ((queues[0].shutdown, 0), (consumers[2].close, 2)):

        def later(act=act, which=which):
            until(lambda: asleep(queues[which].path), LONG)
            act()

        others = consumers if which == 0 else consumers[1:]
        thread = threading.Thread(target=later)
        thread.start()
        assert shmq.wait(others, timeout=LONG) == [consumers[which]]
        thread.join()


@pytest.mark.usefixtures("uncollected")
def test_a_signal_interrupts_it(queues):
    """Ctrl-C works."""
    consumers = [queue.consumer("c") for queue in queues]

    def interrupt(say):
        until(lambda: asleep(queues[2].path), LONG)
        os.kill(os.getppid(), signal.SIGINT)
        say("sent")

    with Child(interrupt) as child:
        with pytest.raises(KeyboardInterrupt):
            shmq.wait(consumers, timeout=LONG)
        assert child.hear(LONG) == "sent"


def test_more_queues_than_one_call_takes(make, tmp_path, monkeypatch):
    """Threads take the rest: a message in the first part and in the last one ends the wait."""
    monkeypatch.setattr("shmq._native.ANY_MAX", 2)
    queues = [make(str(tmp_path / f"q{number}")) for number in range(7)]
    consumers = [queue.consumer("c") for queue in queues]
    assert shmq.wait(consumers, timeout=0.01) == []
    for which in (0, 3, 6):

        def put(say, which=which):
            until(lambda: asleep(queues[which].path), LONG)
            queues[which].put(b"x")
            say("put")

        with Child(put) as child:
            assert shmq.wait(consumers, timeout=LONG) == [consumers[which]]
            assert child.hear(LONG) == "put"
        assert consumers[which].take(timeout=0) == b"x"
    assert not [thread for thread in threading.enumerate() if thread.name == "shmq-waiter"]


def test_what_was_dropped_is_not_something(make):
    """Nothing of it would be handed out."""
    queue = make(max_messages=2, full="drop_oldest")
    consumer = queue.consumer("c")
    queue.put_many([b"a", b"b"])
    assert shmq.wait([consumer], timeout=0) == [consumer]
    queue.purge()
    assert shmq.wait([consumer], timeout=0) == []
    queue.put(b"c")
    assert shmq.wait([consumer], timeout=0) == [consumer]


def test_a_forked_child_is_told(queue):
    """The consumer is its parent's."""
    consumer = queue.consumer("c")

    def wait():
        try:
            shmq.wait([consumer], timeout=0)
        except shmq.Forked as problem:
            return type(problem).__name__

    assert in_child(wait) == "Forked"
