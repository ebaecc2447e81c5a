"""The newest message of each key, from an index that a process keeps on the way."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import Child, chunk_files, flip, hold_until_killed, in_child, until

import shmq
from shmq.reading import latest as module

KEYS = [b"a", b"b", b"c"]


def last(queue, key):
    message = queue.latest(key)
    return None if message is None else message.payload


def test_it_is_the_last_one_of_its_key(queue):
    assert last(queue, b"a") is None
    queue.put_many([b"1", b"2", b"3", b"4"], keys=[b"a", b"b", b"a", None])
    assert [last(queue, key) for key in KEYS] == [b"3", b"2", None]
    queue.put(b"5", key=b"c")
    queue.put(b"6", key=b"a")
    assert [last(queue, key) for key in KEYS] == [b"6", b"2", b"5"]
    assert queue.latest(b"a").index == 5


def test_each_call_walks_only_what_was_put_since(queue):
    queue.put_many([b"x"] * 1000, keys=[b"a"] * 1000)
    assert last(queue, b"a") == b"x"
    latest = queue._latest
    assert latest._upto == 1000
    noted = []

    class Noted(dict):
        def __setitem__(self, key, index):
            noted.append((key, index))
            super().__setitem__(key, index)

    latest._known = Noted(latest._known)
    queue.latest(b"a")
    queue.put(b"y", key=b"b")
    queue.latest(b"a")
    assert noted == [(b"b", 1000)]


def test_what_another_process_puts_is_seen_and_a_child_has_its_own(queue):
    queue.put(b"1", key=b"a")
    assert last(queue, b"a") == b"1"

    def put():
        queue.put(b"2", key=b"a")
        return last(queue, b"a") == b"2"

    assert in_child(put)
    assert last(queue, b"a") == b"2"
    with shmq.open(queue.path, read_only=True) as reading:
        assert last(reading, b"a") == b"2"


def test_what_is_committed_behind_an_open_claim_counts_and_the_claim_later(queue):
    queue.put(b"1", key=b"a")
    slot = queue.reserve(1, key=b"a")
    slot.buffer[:] = b"2"
    queue.put(b"3", key=b"b")
    assert [last(queue, b"a"), last(queue, b"b")] == [b"1", b"3"]
    queue.put(b"4", key=b"a")
    assert last(queue, b"a") == b"4"
    slot.commit()
    assert last(queue, b"a") == b"4"
    assert queue._latest._upto == 4
    other = queue.reserve(1, key=b"b")
    other.buffer[:] = b"5"
    assert last(queue, b"b") == b"3"
    other.commit()
    assert last(queue, b"b") == b"5"


def test_the_claim_of_a_dead_producer_holds_nothing_up(queue):
    def claim(say):
        with shmq.open(queue.path) as mine:
            mine.reserve(1, key=b"a")
            hold_until_killed(say)

    queue.put(b"1", key=b"a")
    with Child(claim) as child:
        child.hear()
        assert last(queue, b"a") == b"1"
        child.kill()
    queue.put(b"2", key=b"b")
    assert [last(queue, b"a"), last(queue, b"b")] == [b"1", b"2"]
    assert queue._latest._upto == 3


def test_what_has_expired_gives_way_to_what_has_not_and_is_not_looked_for_again(queue):
    queue.put(b"1", key=b"a")
    queue.put(b"2", key=b"a", ttl=0.01)
    queue.put(b"3", key=b"b", ttl=0.01)
    until(lambda: queue[1].expired and queue[2].expired)
    assert [last(queue, b"a"), last(queue, b"b")] == [b"1", None]
    assert queue._latest._known == {b"a": 0}


def test_what_was_retired_is_none(make):
    queue = make(chunk_bytes=16384)
    queue.put(b"old", key=b"a")
    assert last(queue, b"a") == b"old"
    with queue.consumer("c") as consumer:
        for number in range(200):
            queue.put(bytes(1000), key=b"b")
            consumer.take_many(10, timeout=0)
            assert queue.latest(b"b").index == number + 1
    assert queue.first_index > 0
    assert last(queue, b"a") is None


def test_what_is_damaged_is_passed_over(queue, path):
    queue.put_many([b"first", b"second", b"third"], keys=[b"a", b"a", b"b"])
    queue.close()
    (chunk,) = chunk_files(path)
    flip(chunk, chunk.read_bytes().index(b"second"))
    with shmq.open(path) as again:
        assert [last(again, b"a"), last(again, b"b")] == [b"first", b"third"]


def test_too_many_keys_are_said_and_those_that_were_retired_are_none(make, monkeypatch):
    monkeypatch.setattr(module, "MOST", 100)
    queue = make(chunk_bytes=16384)
    with queue.consumer("c") as consumer:
        for number in range(400):  # never more than so many that are there
            queue.put(bytes(1000), key=b"%d" % number)
            consumer.take_many(10, timeout=0)
            assert queue.latest(b"%d" % number).index == number
        queue.put_many([b""] * 101, keys=[b"k%d" % number for number in range(101)])
        with pytest.raises(shmq.TooMany, match="it has more than 100 keys"):
            queue.latest(b"a")


def test_threads_share_it(queue):
    stop, wrong = threading.Event(), []

    def look():
        seen = -1
        while not stop.is_set():
            message = queue.latest(b"a")
            if message is not None:
                wrong.extend([message.index] if message.index < seen else [])
                seen = message.index

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        queue.put(b"%d" % number, key=b"a")
        assert last(queue, b"a") == b"%d" % number
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("wrong", ["text", 7, None, bytearray(b"x")])
def test_what_is_no_key_is_said(queue, wrong):
    with pytest.raises(TypeError, match="key="):
        queue.latest(wrong)
    with pytest.raises(ValueError, match="that is not a key"):
        queue.latest(b"")


class Model(RuleBasedStateMachine):
    """Beside a list of all there is."""

    @initialize()
    def begin(self):
        self.queue = shmq.open(None, chunk_bytes=16384, retention="forever")
        self.put, self.slots, self.others = [], [], shmq.open(self.queue.place)

    @rule(key=st.sampled_from([*KEYS, None]), count=st.integers(1, 40), size=st.integers(0, 900))
    def put_some(self, key, count, size):
        first = len(self.put)
        payloads = [b"%d." % number + bytes(size) for number in range(first, first + count)]
        assert self.others.put_many(payloads, keys=[key] * count).start == first
        self.put += [(key, payload) for payload in payloads]

    @precondition(lambda self: len(self.slots) < 3)
    @rule(key=st.sampled_from(KEYS))
    def claim(self, key):
        slot = self.others.reserve(3, key=key)
        slot.buffer[:] = b"abc"
        self.slots.append((slot, key))
        self.put.append(None)

    @precondition(lambda self: self.slots)
    @rule(commits=st.booleans())
    def end_a_claim(self, commits):
        slot, key = self.slots.pop()
        if commits:
            self.put[slot.commit()] = (key, b"abc")
        else:
            slot.abort()

    @rule()
    def forget(self):
        self.queue._latest = None

    @invariant()
    def it_is_the_last_of_its_key(self):
        for key in KEYS:
            wanted = next((found[1] for found in reversed(self.put) if found and found[0] == key), None)
            assert last(self.queue, key) == wanted

    def teardown(self):
        for slot, _ in self.slots:
            slot.abort()
        self.others.close()
        self.queue.close()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


def test_what_is_retired_between_two_looks_is_passed_over_and_nothing_is_held(make):
    queue = make(chunk_bytes=16384)
    queue.put(b"1", key=b"a")
    assert last(queue, b"a") == b"1"
    with queue.consumer("c") as consumer:
        for _ in range(200):
            queue.put(bytes(1000), key=b"b")
        while consumer.lag:
            consumer.take_many(100)
        queue.put(b"2", key=b"c")
        consumer.take()
    assert queue.first_index > 100
    assert [last(queue, b"a"), last(queue, b"c")] == [None, b"2"]
    membership = queue._session.joined()
    queue.close()
    assert not membership._handles
