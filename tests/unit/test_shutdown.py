"""Shutdown: puts raise, gets drain; it lasts until the last participant has left."""

from __future__ import annotations

import threading

import pytest
from support import DEADLINE, Child, hold_until_killed

import shmq


def test_puts_raise_and_gets_drain(queue):
    """Every put says ShutDown and puts nothing; a consumer takes what is left, then ShutDown."""
    queue.put_many([b"a", b"b"])
    consumer = queue.consumer("c")
    queue.shutdown()
    for refused in (lambda: queue.put(b"x"), lambda: queue.put_many([b"x"]), lambda: queue.reserve(1)):
        with pytest.raises(shmq.ShutDown, match=r"cannot put into .*shut down; nothing was put"):
            refused()
    assert consumer.take_many(10, timeout=0) == [b"a", b"b"]
    with pytest.raises(shmq.ShutDown, match="was shut down, and consumer 'c' has drained it"):
        consumer.take()


def test_it_wakes_whoever_waits(queue):
    """In other threads and other processes."""

    def wait(say):
        consumer = queue.consumer("other")
        say("waiting")
        with pytest.raises(shmq.ShutDown):
            consumer.take(timeout=DEADLINE)
        say("told")

    consumer = queue.consumer("c")
    ended = []
    thread = threading.Thread(target=lambda: ended.append(list(consumer)))
    thread.start()
    with Child(wait) as child:
        child.hear()
        queue.shutdown()
        assert child.hear() == "told"
    thread.join(DEADLINE)
    assert ended == [[]]


def test_a_claim_that_was_open_may_still_be_committed(queue):
    """And is drained."""
    slot = queue.reserve(1)
    consumer = queue.consumer("c")
    queue.shutdown()
    with pytest.raises(shmq.Empty):
        consumer.take(timeout=0.01)
    slot.commit()
    assert consumer.take(timeout=0) == b"\0"


def test_it_lasts_until_the_last_participant_has_left(make):
    """Another process that has it open keeps it shut; then it opens as ever."""
    queue = make()

    def stay(say):
        queue.stats()
        hold_until_killed(say)

    with Child(stay) as child:
        child.hear()
        queue.shutdown()
        queue.close()
        with pytest.raises(shmq.ShutDown):
            make().put(b"x")
        child.kill()


def test_it_is_over_when_all_have_left(make):
    """The next to open it may put."""
    queue = make()
    queue.shutdown()
    queue.close()
    assert make().put(b"x") == 0
