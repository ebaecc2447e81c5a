"""shmq.wait: one sleep for many queues, ended by whatever ends a get."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support import Child, chunk_files, flip, hold_until_killed, in_child, peek, until, words

import shmq

LONG = 60.0
SLEEPERS = 128  # in the control page


def asleep(path) -> bool:
    """Whether somebody has said that it sleeps at that queue."""
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


@pytest.mark.parametrize("how", [{}, {"group": True}], ids=["name", "group"])
@pytest.mark.parametrize("ttl", [None, 1e-6], ids=["delayed", "expired"])
def test_what_no_get_would_have_is_not_something(queue, how, ttl):
    """A loop with get(0) behind it would never sleep."""
    consumer = queue.consumer("c", **how)
    queue.put(b"not now", ttl=ttl, delay=None if ttl else 1000)
    assert shmq.wait([consumer], timeout=0.01) == []
    with pytest.raises(shmq.Empty):
        consumer.get(0)


@pytest.mark.parametrize("how", [{}, {"group": True}], ids=["name", "group"])
def test_what_is_delayed_is_something_when_it_is_due(queue, how):
    consumer = queue.consumer("c", **how)
    queue.put(b"soon", delay=0.05)
    assert shmq.wait([consumer], timeout=LONG) == [consumer]
    assert consumer.get(0).payload == b"soon"


def test_a_delayed_message_that_is_purged_keeps_nobody_awake(queue, monkeypatch):
    """Neither whoever waits for one, nor for several."""
    consumer = queue.consumer("c")
    queue.put(b"soon", delay=0.01)
    assert shmq.wait([consumer], timeout=0) == []
    until(lambda: queue[0].due_ns < time.time_ns(), LONG)
    queue.purge()
    assert shmq.wait([consumer], timeout=0) == []
    assert consumer._due_ns() is None


def test_damage_that_is_passed_over_is_not_something(queue, path):
    queue.put_many([b"damaged"])
    flip(chunk_files(path)[0], words(path)[0].position + 40)
    assert shmq.wait([queue.consumer("c")], timeout=0)
    assert shmq.wait([queue.consumer("d", skip_corrupt=True)], timeout=0) == []


# ---------------------------------------------------------------- and what a peek shows is what a get would have
@pytest.mark.parametrize("how", [{}, {"ack": "explicit"}, {"group": True}], ids=["auto", "explicit", "group"])
def test_a_peek_shows_what_the_next_get_has(queue, how):
    consumer = queue.consumer("c", **how)
    queue.put_many([b"purged"] * 3)
    queue.purge()
    assert consumer.peek() is None
    queue.put(b"expired", ttl=1e-6)
    until(lambda: queue[3].expired, LONG)
    assert consumer.peek() is None
    queue.put(b"next")
    queue.put(b"delayed", delay=1000)
    assert consumer.peek().payload == consumer.peek().payload == b"next"
    assert consumer.get(0).payload == b"next"
    assert consumer.peek() is None
    queue.put(b"behind it")
    shown = consumer.peek()
    assert (None if shown is None else shown.payload) == (b"behind it" if how else None)


def test_a_peek_of_a_group_in_order_shows_what_does_not_wait_for_its_key(queue):
    group = queue.consumer("g", group=True, ack="explicit", ordered_by="key")
    for payload, key in ((b"0", b"a"), (b"1", b"a"), (b"2", b"b")):
        queue.put(payload, key=key)
    group.get(0)
    assert group.peek().payload == b"2"


def test_a_peek_says_what_is_damaged(queue, path):
    queue.put_many([b"damaged"])
    flip(chunk_files(path)[0], words(path)[0].position + 40)
    with pytest.raises(shmq.Corrupt):
        queue.consumer("c").peek()


def test_a_group_by_key_whose_rest_was_purged_is_not_named(path):
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit", ordered_by="key") as member:
        queue.put_many([b"1", b"2", b"3"], keys=[b"a", b"a", b"b"])
        held = member.get(0)
        queue.purge()
        assert shmq.wait([member], 0) == []
        held.ack()
        queue.put(b"4", key=b"a")
        assert shmq.wait([member], 10) == [member]
        assert member.get(0).payload == b"4"


def test_a_group_by_key_is_named_when_the_next_of_a_key_may_come_and_not_before(path):
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit", ordered_by="key") as member:
        queue.put_many([b"1", b"2"], keys=[b"a", b"a"])
        held = member.get(0)
        assert shmq.wait([member], 0) == []
        held.ack()
        assert shmq.wait([member], 0) == shmq.wait([member], 0) == [member]
        assert member.get(0).payload == b"2"


@pytest.mark.parametrize("ordered_by", [None, "key"])
def test_a_group_is_not_named_for_what_was_handed_out_too_often(path, ordered_by):
    """It goes to the dead letters meanwhile, and the next of its key comes then, as if for the first time."""
    options = {"group": True, "ack": "explicit", "max_attempts": 1, "ordered_by": ordered_by}
    with shmq.open(path) as queue, queue.consumer("g", **options) as member:
        queue.put(b"1", key=b"a")
        other = queue.consumer("g", **options)
        other.get(0)
        other.close()
        assert shmq.wait([member], 0) == []
        assert queue.consumers()["g"].group.moved == 1
        queue.put(b"2", key=b"a")
        other = queue.consumer("g", **options)
        other.get(0)
        queue.put(b"3", key=b"a")
        if ordered_by:
            other.close()
        assert shmq.wait([member], 10) == [member]
        assert member.get(0).payload == b"3"
