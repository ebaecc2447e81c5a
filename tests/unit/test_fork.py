"""What a fork means: the child opens its own seat; what belongs to the parent alone says Forked."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest
from support import CLAIMED, DONE, Child, in_child, start, states, words

import shmq
from shmq.storage import warm


def test_a_put_in_the_child_signs_with_its_own_seat(queue, path):
    """Queue and producer open themselves anew at first use; the parent's seat stays the parent's."""
    producer = queue.producer()
    producer.put(b"parent")
    assert in_child(lambda: (producer.put(b"child"), queue.put(b"too"), queue.put_many([b"x"]), len(queue))) == (
        "(1, 2, range(3, 4), 4)"
    )
    assert producer.put(b"parent again") == 4
    assert [word.owner >> 11 for word in words(path)] == [0, 1, 1, 1, 0]


def test_a_grandchild_too(queue, path):
    """Each generation of processes sits down for itself."""
    queue.put(b"0")
    assert in_child(lambda: (queue.put(b"1"), in_child(lambda: queue.put(b"2")), queue.put(b"3"))) == "(1, '2', 3)"
    assert [word.owner >> 11 for word in words(path)] == [0, 1, 2, 1]


def test_a_consumer_of_the_parent_is_forked_in_the_child(queue):
    """Every verb; the child may open its own name; the parent's is untouched."""
    queue.put_many([b"a", b"b"])
    consumer = queue.consumer("c", ack="explicit")
    message = consumer.get(timeout=0)

    def refused():
        for verb in (
            lambda: consumer.get(timeout=0),
            lambda: consumer.take(timeout=0),
            lambda: consumer.take_many(1, timeout=0),
            lambda: consumer.get_many(1, timeout=0),
            lambda: consumer.seek(0),
            message.ack,
        ):
            with pytest.raises(shmq.Forked, match="parent process"):
                verb()
        consumer.close()
        with pytest.raises(shmq.Busy):
            queue.consumer("c", ack="explicit")
        return queue.consumer("mine").take(timeout=0)

    assert in_child(refused) == "b'a'"
    message.ack()
    assert (consumer.head, consumer.take(timeout=0)) == (1, b"b")


def test_an_auto_consumer_of_the_parent_is_forked_too(queue):
    """Also on the shortest way."""
    queue.put_many([b"a", b"b"])
    consumer = queue.consumer("c")
    consumer.take(timeout=0)

    def refused():
        for verb in (lambda: consumer.take(timeout=0), lambda: consumer.take(timeout=None)):
            with pytest.raises(shmq.Forked):
                verb()
        return "forked"

    assert in_child(refused) == "forked"
    assert consumer.take(timeout=0) == b"b"


def test_b16_the_childs_copies_end_nothing_of_the_parents(queue, path):
    """
    Rule B16: finalizers ask the fork guard first. The child's copies of an open slot and of a consumer are committed,
    aborted, closed and collected; the parent's claim and name live on.
    """
    slot = queue.reserve(3)
    consumer = queue.consumer("c", start="latest")
    held = [slot, consumer]

    def end_all():
        for verb in (held[0].commit, held[0].abort):
            with pytest.raises(shmq.Forked, match="reserved by the parent process"):
                verb()
        with held[0]:
            pass
        held.clear()
        gc.collect()
        queue.close()
        return states(path)

    slot_of_parent, _ = held
    del slot, consumer
    assert in_child(end_all) == str([CLAIMED])
    slot_of_parent.buffer[:] = b"abc"
    slot_of_parent.commit()
    assert states(path) == [DONE]
    with pytest.raises(shmq.Busy):
        queue.consumer("c")


def test_a_reader_of_the_parent_is_forked(queue):
    """The child makes its own, which is free."""
    queue.put_many([b"a", b"b"])
    reader = queue.reader()
    next(reader)

    def refused():
        with pytest.raises(shmq.Forked):
            next(reader)
        return [message.payload for message in queue.reader()]

    assert in_child(refused) == "[b'a', b'b']"
    assert next(reader).payload == b"b"


def test_a_fork_in_the_middle_of_another_threads_put(queue):
    """A thread puts without a pause while this one forks: no child hangs, every put of every process is there."""
    queue.put(b"parent")
    stop = threading.Event()
    put = []

    def keep_putting():
        while not stop.is_set():
            put.append(queue.put(b"p" * 500))
            queue.stats()

    thread = threading.Thread(target=keep_putting)
    thread.start()
    try:
        children = [Child(lambda say: say(queue.put(b"child"))) for _ in range(30)]
        indexes = {int(child.hear()) for child in children}
        assert [child.join() for child in children] == [0] * 30
    finally:
        stop.set()
        thread.join()
    assert len(indexes) == 30
    assert indexes.isdisjoint(put)
    assert {message.index for message in queue.reader() if message.payload == b"child"} == indexes


def test_a_fork_while_another_thread_waits(queue):
    """The waiting thread holds its consumer's lock: in the child the consumer is Forked at once, not deadlocked."""
    consumer = queue.consumer("c")
    thread = threading.Thread(target=lambda: consumer.take(timeout=30))
    thread.start()

    def refused():
        with pytest.raises(shmq.Forked):
            consumer.take(timeout=0)
        return queue.put(b"x")

    assert in_child(refused) == "0"
    thread.join()


def test_a_childs_end_does_not_end_the_parents_seat(queue, path):
    """Children come and go, by exit and by kill; the parent's claim is never judged dead."""
    slot = queue.reserve(1)
    for _ in range(5):
        assert in_child(lambda: os.getpid() and 1) == "1"
    assert in_child(lambda: queue.stats().participants) == "2"
    assert queue.stats().participants == 1
    slot.commit()
    assert states(path) == [DONE]


def test_a_killed_parent_is_dead_although_its_child_lives(queue, path):
    """The child inherited descriptors, and must not keep its parent's seat by them."""

    def parent(say):
        queue.reserve(8)  # forgotten, but for the list below
        held = [queue.reserve(8)]
        say(start(time.sleep, 600))
        while held:
            threading.Event().wait(60)

    with Child(parent) as child:
        grandchild = int(child.hear())
        try:
            child.kill()
            queue.put(b"behind")
            assert queue.consumer("c").take(timeout=20) == b"behind"
        finally:
            os.kill(grandchild, 9)


def test_what_the_parent_holds_is_not_told_as_the_childs(queue):
    """A name is the parent's; of a group the child is a member of its own."""
    queue.put_many([b"x"] * 5)
    alone = queue.consumer("c", ack="explicit", skip_corrupt=True)
    group = queue.consumer("g", group=True, ack="explicit", skip_corrupt=True)
    assert (alone.get_many(2, 0)[0].index, group.get_many(2, 0)[0].index) == (0, 0)
    alone._walk.skipped = group._handing.skipped = 7

    def look():
        told = []
        for name in ("lag", "pending", "skipped"):
            try:
                told.append(getattr(alone, name))
            except shmq.Forked:
                told.append("Forked")
        return " ".join(map(str, [*told, group.lag, group.pending, group.skipped]))

    assert in_child(look) == "Forked Forked Forked 5 0 0"
    assert (alone.lag, alone.pending, alone.skipped) == (5, 2, 7)
    assert (group.lag, group.pending, group.skipped) == (5, 2, 7)


def test_found_a_handler_that_forks_while_mappings_are_settled_is_no_value_error(path, monkeypatch):
    """What waited was forgotten by the fork, and then looked for in the list: points, put_many, place 295."""
    with shmq.open(path) as queue:
        queue.put(b"x")
        forks = []

        def fork_first(_):
            forks.append(in_child(lambda: 7))
            return warm._ALONE

        monkeypatch.setattr(warm.sys, "getrefcount", fork_first)
        warm.settle()
        assert forks[0] == "7"
