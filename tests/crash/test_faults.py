"""Faults that the walk, or the way to it, has found: each a test of its own."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import shmq
from tests.support import Child, start

from .operations import Hands


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q")


def test_the_slot_of_one_who_died_in_a_claim_can_be_taken(path):
    """
    The next tenant of a dead producer's slot pads its claims when it opens the queue, whatever it will do there.
    """
    hands = Hands(path, 16384)
    for number, operation in enumerate([("create",), ("put", 5), ("close",), ("dead", 40), ("open",)]):
        hands.perform(operation, number)

    with hands.queue.consumer("any") as consumer:
        assert len(consumer.get_many(9, timeout=0)) == 1
        assert hands.queue.put(b"after") == 2
        assert consumer.take(timeout=0) == b"after"
    hands.close()


def test_a_name_is_given_back_when_its_consumer_is_closed_not_when_it_is_forgotten(path):
    """A closed consumer that somebody still refers to holds no name."""
    with shmq.open(path) as queue:
        closed = queue.consumer("name")
        closed.close()

        queue.consumer("name").close()
        assert closed.head == 0


def test_a_forked_child_does_not_keep_its_dead_parent_alive(path):
    """A producer forks, is killed in a claim, and its child lives on: consumers pass the claim all the same."""
    ends = os.pipe()

    def live_on(slot):
        os.close(ends[1])
        os.read(ends[0], 1)  # until the test ends
        assert slot.index == 1

    def parent(_say):
        own = shmq.open(path)
        start(live_on, own.reserve(8))
        os.kill(os.getpid(), signal.SIGKILL)

    with shmq.open(path) as queue:
        queue.put(b"before")
        with Child(parent) as killed:
            assert killed.join() == -signal.SIGKILL
        try:
            queue.put(b"after")
            with queue.consumer("any") as consumer:
                assert consumer.take(timeout=0) == b"before"
                began = time.monotonic()
                assert consumer.take(timeout=20) == b"after"
                assert time.monotonic() - began < 10
        finally:
            os.close(ends[1])
            os.close(ends[0])


def test_a_deletion_that_was_killed_is_finished_by_the_next_creation(path, monkeypatch):
    """
    Killed behind its first step, a deletion leaves no queue; a new one begins empty, for old names of consumers too.
    """
    with shmq.open(path) as queue, queue.consumer("name"):
        queue.put(b"old")

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("shmq.storage.making._remove_content", kill)
        with pytest.raises(KeyboardInterrupt):
            shmq.delete(path)

    with pytest.raises(shmq.NotFound):
        shmq.open(path, create=False)
    with shmq.open(path) as queue, queue.consumer("name") as consumer:
        assert queue.put(b"new") == 0
        assert consumer.take(timeout=0) == b"new"


def test_a_child_killed_while_it_lists_the_chunks_leaves_its_parent_the_whole_list(path):
    """
    A descriptor inherited by a child has one place for both: where the killed one stopped is not where we begin.
    """
    with shmq.open(path) as queue, queue.consumer("name") as consumer:
        queue.put(b"message")
        assert consumer.take(timeout=0) == b"message"

        def list_them(_say):
            reading = [os.scandir(fd) for fd in (queue._session.home.chunks, queue._session.home.consumers)]
            list(map(next, reading))
            os.kill(os.getpid(), signal.SIGKILL)

        with Child(list_them) as killed:
            assert killed.join() == -signal.SIGKILL
        assert queue.next_index == 1
        assert set(queue.consumers()) == {"name"}


def test_threads_that_list_the_chunks_at_once_all_see_them_all(path):
    """The same place is shared by threads."""
    with shmq.open(path) as queue:
        queue.put(b"message")
        seen = set()
        threads = [
            threading.Thread(target=lambda: seen.update(queue.next_index for _ in range(2000))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == {1}


def test_a_message_that_was_parked_for_its_holder_comes_again_when_both_are_dead(path):
    """
    Killed between parking a message on its holder's behalf and settling its entry, the parker's heir settled it for the
    dead holder, and nobody looked for it again.
    """
    window, entry, owner_bits = 64, 1, 11
    words = 12288  # layout.h: the header, then words and attempts, then the side table
    side = words + window * 16 + entry * 56
    with shmq.open(path) as queue:
        queue.put_many([b"one", b"two"])

        def park(_say):
            member = queue.consumer("g", group=True, ack="explicit", window=window)
            member.get(timeout=0)
            with open(f"{path}/consumers/g.ring", "r+b", buffering=0) as ring:
                claimed = int.from_bytes(os.pread(ring.fileno(), 8, words), "little")
                owner = claimed >> owner_bits & 0x1FFFFF
                prepared = [1, owner << owner_bits | 1, 1 << 32 | owner << owner_bits | 1 << 3 | 3]
                os.pwrite(ring.fileno(), b"".join(each.to_bytes(8, "little") for each in prepared), side)
                os.pwrite(ring.fileno(), (entry << 3 | 5).to_bytes(8, "little"), words)
            os.kill(os.getpid(), signal.SIGKILL)

        with Child(park) as killed:
            assert killed.join() == -signal.SIGKILL
        with queue.consumer("g", group=True, ack="explicit") as member:
            assert sorted(member.take(timeout=20) for _ in range(2)) == [b"one", b"two"]
            assert member.head == 2
