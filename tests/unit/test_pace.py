"""Producers go on in used files: what was finished comes back several chunks at a time, and is waited for shortly."""

from __future__ import annotations

import os

import pytest
from support import chunk_files

import shmq
from shmq import _native
from shmq.putting import pace
from shmq.storage import space

MIB = 1 << 20
PIECE = bytes(60_000)


def fill(queue, chunks):
    """Put until so many chunks stand there."""
    while len(chunk_files(queue.path)) < chunks:
        queue.put(PIECE)


@pytest.fixture
def queue(make):
    """One whose chunks are large from the beginning."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("shmq.storage.new_chunks.SMALLEST_CHUNK", 4 * MIB)
        patched.setattr("shmq.storage.spares.WORTH_KEEPING", MIB)
        queue = make(chunk_bytes=64 * MIB)
        queue._session.home.kind = "ext4"  # wherever the tests run
        yield queue


def pace_of(queue):
    """Of its producer, as if it had not waited for anybody yet."""
    its = queue._shared_producer()._pace
    its._vain = -1
    return its


def take_all(consumer):
    """How many there were."""
    count = 0
    while consumer.peek() is not None:
        consumer.take()
        count += 1
    return count


def retired(queue):
    return [name for name in os.listdir(f"{queue.path}/chunks") if name.startswith("retired-")]


# ---------------------------------------------------------------- several at a time
@pytest.mark.parametrize(("kind", "each"), [("ext4", {0, 4}), ("tmpfs", {0, 2, 4})])
def test_large_chunks_are_taken_away_several_at_a_time(queue, kind, each):
    """Fewer where nothing is synced for it, so that they are still in the cache when they come back."""
    queue._session.home.kind = kind
    consumer = queue.consumer("c")
    fill(queue, 5)
    firsts = set()
    while consumer.peek() is not None:
        consumer.take()
        firsts.add(queue._session.joined().control.first_live())
    assert firsts == each


@pytest.mark.parametrize("less", ["room_for_spares", "MUCH"])
def test_so_large_ones_that_four_would_be_too_much_are_taken_away_sooner(queue, monkeypatch, less):
    if less == "MUCH":
        monkeypatch.setattr(space, less, 8 * MIB)
    else:
        monkeypatch.setattr(space.new_chunks, less, lambda home: 8 * MIB)
    consumer = queue.consumer("c")
    fill(queue, 4)
    firsts = set()
    while consumer.peek() is not None:
        consumer.take()
        firsts.add(queue._session.joined().control.first_live())
    assert firsts == {0, 2}


def test_a_consumer_with_nothing_to_do_takes_away_what_it_has_left(queue):
    consumer = queue.consumer("c")
    fill(queue, 3)
    take_all(consumer)
    assert len(chunk_files(queue.path)) == 3
    with pytest.raises(shmq.Empty):
        consumer.take(timeout=0)
    assert len(chunk_files(queue.path)) == 1
    assert len(retired(queue)) == 2


def test_a_group_leaves_large_chunks_for_later_too(queue):
    member = queue.consumer("g", group=True)
    fill(queue, 6)
    while queue._session.joined().control.first_live() == 0:
        member.take()
    assert queue._session.joined().control.first_live() == 4


def test_a_producer_takes_away_what_was_finished_before_it_makes_a_new_file(queue):
    consumer = queue.consumer("c")
    fill(queue, 3)
    inodes = {os.stat(name).st_ino for name in chunk_files(queue.path)}
    while consumer.head < queue.next_index - 1:
        consumer.take()
    assert len(chunk_files(queue.path)) == 3
    last = chunk_files(queue.path)[-1]
    while chunk_files(queue.path)[-1] == last:
        queue.put(PIECE)
    assert os.stat(chunk_files(queue.path)[-1]).st_ino in inodes


def test_a_queue_whose_consumer_keeps_up_has_few_files_however_much_went_through(queue):
    consumer = queue.consumer("c")
    seen = set()
    for _ in range(1200):
        queue.put(PIECE)
        consumer.take()
        seen |= {os.stat(name).st_ino for name in chunk_files(queue.path)}
    assert queue._session.joined().control.newest() > 12
    assert len(seen) <= 4


# ---------------------------------------------------------------- waiting for it
class Clock:
    """Time passes only while somebody sleeps, and then something may happen."""

    def __init__(self, monkeypatch, happens):
        self.now, self.sleeps, self.happens = 10**15, 0, happens
        monkeypatch.setattr(pace, "time", self)

    def monotonic_ns(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps += 1
        self.now += int(seconds * 1e9)
        self.happens(self.sleeps)


def test_who_is_about_to_finish_a_chunk_is_waited_for(queue, monkeypatch):
    consumer = queue.consumer("c")
    fill(queue, 2)
    second = queue._session.chain().names()[1][1]
    while consumer.head < second - 9:
        consumer.take()
    clock = Clock(monkeypatch, lambda _: consumer.take())
    assert pace_of(queue).await_used(4 * MIB) is True
    assert clock.sleeps == 10  # one behind the last of the chunk: then it has left it
    assert len(retired(queue)) == 1


@pytest.mark.parametrize("happens", ["nothing", "too little", "something once"])
def test_who_does_not_move_or_too_slowly_is_waited_for_once_until_something_was_retired(queue, monkeypatch, happens):
    consumer = queue.consumer("c")
    fill(queue, 3)
    consumer.take()
    some = {"nothing": lambda _: None, "too little": lambda _: consumer.take()}
    clock = Clock(monkeypatch, some.get(happens, lambda number: consumer.take() if number == 3 else None))
    second = queue._session.chain().names()[1][1]
    slow = 4 * MIB if happens != "too little" else 40 * 4096  # 60 µs: not for 65 more messages
    its = pace_of(queue)
    assert its.await_used(slow) is False
    assert clock.sleeps == {"nothing": 11, "too little": 1, "something once": 3}[happens]
    before = clock.sleeps
    assert its.await_used(slow) is False
    assert clock.sleeps == before
    while consumer.head <= second:
        consumer.take()
    assert its.await_used(4 * MIB) is True  # at once
    assert clock.sleeps == before
    assert its.await_used(4 * MIB) is False
    assert clock.sleeps > before


@pytest.mark.parametrize(("size", "waited"), [(16 * MIB, True), (4 * MIB, False)])
def test_found_who_takes_large_messages_seemed_to_stand_still(queue, monkeypatch, size, waited):
    """One of 16 MiB takes 2 ms, in which its consumer's place does not move: new files were made instead."""
    consumer = queue.consumer("c")
    fill(queue, 2)
    second = queue._session.chain().names()[1][1]
    while consumer.head < second - 1:
        consumer.take()
    Clock(monkeypatch, lambda number: consumer.take() if number % 30 == 0 else None)
    assert pace_of(queue).await_used(size) is waited


def test_nobody_waits_who_has_no_time(queue, monkeypatch):
    consumer = queue.consumer("c")
    fill(queue, 2)
    consumer.take()
    clock = Clock(monkeypatch, lambda _: consumer.take())
    its = pace_of(queue)
    its.deadline_ns = clock.now + 1000
    assert its.await_used(4 * MIB) is False
    its.deadline_ns = 0
    assert its.await_used(4 * MIB) is False
    assert clock.sleeps == 0
    queue.put(PIECE, timeout=5)
    assert its.deadline_ns == 0  # only a put that rolls says when it must be done


def test_the_deadline_is_that_of_the_put_that_rolls(queue, monkeypatch):
    queue.consumer("c")
    seen = []
    its = pace_of(queue)
    monkeypatch.setattr(queue._shared_producer()._chain, "await_used", lambda _: seen.append(its.deadline_ns) or False)
    monkeypatch.setattr(_native, "monotonic_ns", lambda: 1000)
    for wanted, timeout in enumerate((0, None), 1):
        while len(seen) < wanted:
            queue.put(PIECE, timeout=timeout)
    assert seen == [1000, _native.FOREVER]


def test_somebody_else_may_retire_it(queue, monkeypatch):
    consumer = queue.consumer("c")
    fill(queue, 2)
    consumer.take()

    def happens(_):
        take_all(consumer)
        with pytest.raises(shmq.Empty):
            consumer.take(timeout=0)

    Clock(monkeypatch, happens)
    assert pace_of(queue).await_used(4 * MIB) is True


@pytest.mark.parametrize("more", [
    {"retention": shmq.Retention.forever()}, {"retention": shmq.Retention.age(3600)},
    {"full": "drop_oldest", "max_messages": 10**6},
])  # fmt: skip
def test_where_other_rules_say_what_goes_nothing_is_waited_for(make, monkeypatch, more):
    monkeypatch.setattr("shmq.storage.new_chunks.SMALLEST_CHUNK", 4 * MIB)
    queue = make(chunk_bytes=64 * MIB, **more)
    queue.consumer("c")
    fill(queue, 2)
    clock = Clock(monkeypatch, lambda _: None)
    assert pace_of(queue).await_used(4 * MIB) is False
    assert clock.sleeps == 0


def test_without_names_and_with_one_chunk_nothing_is_waited_for(queue, monkeypatch):
    queue.put(PIECE)
    clock = Clock(monkeypatch, lambda _: None)
    assert pace_of(queue).await_used(4 * MIB) is False
    assert clock.sleeps == 0
    fill(queue, 2)
    its = pace_of(queue)
    assert its.await_used(4 * MIB) is False
    before = clock.sleeps
    assert its.await_used(4 * MIB) is False
    assert clock.sleeps == before


# ---------------------------------------------------------------- nobody to wait for
def test_after_a_wait_in_vain_nothing_is_listed_until_something_was_retired(queue, monkeypatch):
    queue.consumer("c")
    fill(queue, 2)
    its = pace_of(queue)
    assert its.await_used(4 * MIB) is False
    monkeypatch.setattr(pace.space, "retire", lambda *_: None)  # which looks at them all
    monkeypatch.setattr(type(its._chain), "names", lambda _: pytest.fail("it listed all chunks"))
    assert its.await_used(4 * MIB) is False


def test_a_put_without_time_does_not_keep_the_next_one_from_waiting(queue):
    queue.consumer("c")
    fill(queue, 2)
    its = pace_of(queue)
    its.deadline_ns = 0
    assert its.await_used(4 * MIB) is False
    assert its._vain == -1
