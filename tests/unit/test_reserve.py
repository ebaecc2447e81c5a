"""reserve: a claim that is filled in place, then committed, shortened, or given up."""

from __future__ import annotations

import gc
import os

import numpy
import pytest
from support import CLAIMED, DONE, PAD, records, states, words

import shmq


def test_a_slot_is_filled_in_place_and_committed_by_the_block(queue, path):
    """The bytes written into the buffer are the message; nobody copied them."""
    with queue.reserve(12, key=b"k", type=3) as slot:
        numpy.frombuffer(slot.buffer, dtype="<f4")[:] = [1, 2, 3]
        assert states(path) == [CLAIMED]
    assert numpy.array([1, 2, 3], "<f4").tobytes() == records(path)[0].payload
    assert (b"k", 3, slot.index) == (records(path)[0].key, records(path)[0].type, 0)


def test_readers_wait_at_a_claim(queue):
    """Nobody passes it, also when a message lies behind it."""
    slot = queue.reserve(1)
    queue.put(b"behind")
    consumer = queue.consumer("c")
    with pytest.raises(shmq.Empty, match=rf"claimed by process {os.getpid()} .*, and not committed"):
        consumer.take(timeout=0)
    slot.commit()
    assert consumer.take_many(10) == [b"\0", b"behind"]


@pytest.mark.parametrize("kept", [0, 1, 8, 63, 64])
def test_c2_a_shorter_commit_leaves_a_filler_and_nothing_is_lost_behind_it(queue, path, kept):
    """
    Rule C2: the filler PAD stands before the commit; a walker never falls on a FREE word inside a region.
    Counts and spans of what a region became add up to those claimed.
    """
    slot = queue.reserve(64)
    claimed = words(path)[0]
    queue.put(b"behind")
    slot.buffer[:] = b"x" * 64
    slot.commit(kept)
    *parts, _ = words(path)
    assert (claimed.span, 1) == (sum(part.span for part in parts), sum(part.count for part in parts))
    assert [DONE, PAD][: len(parts)] == [part.state for part in parts]
    assert [b"x" * kept, b"behind"] == [message.payload for message in queue.reader()]


def test_an_exception_in_the_block_gives_the_room_up(queue, path):
    """It becomes padding; its index stays unused."""
    with pytest.raises(ZeroDivisionError), queue.reserve(10):
        raise ZeroDivisionError
    assert (states(path), queue.put(b"next")) == ([PAD], 1)


def test_a_forgotten_slot_is_given_up(queue, path):
    """The finalizer of the owner aborts."""
    queue.reserve(10)
    gc.collect()
    assert states(path) == [PAD]


def test_a_slot_ends_once(queue):
    """Commit or abort after either: Closed."""
    slot = queue.reserve(1)
    slot.commit()
    with pytest.raises(shmq.Closed, match="cannot commit message 0: it was committed or aborted before"):
        slot.commit()
    with pytest.raises(shmq.Closed, match="cannot abort message 0"):
        slot.abort()


def test_a_commit_of_more_than_was_reserved_is_refused(queue, path):
    """ValueError with both numbers; the claim stays open, and can be committed."""
    slot = queue.reserve(4)
    with pytest.raises(ValueError, match="cannot commit 5 bytes of 4"):
        slot.commit(5)
    assert states(path) == [CLAIMED]
    slot.commit(4)
    assert states(path) == [DONE]


def test_a_slot_outlives_the_queue_handle(make, path):
    """A claim lives as long as its owner sits: closing the handle does not fence it."""
    queue = make()
    slot = queue.reserve(3)
    queue.close()
    slot.buffer[:] = b"abc"
    slot.commit()
    assert records(path)[0].payload == b"abc"


def test_a_slot_from_before_a_roll_commits_in_its_own_chunk(queue, path):
    """Others may fill and seal the chunk meanwhile."""
    slot = queue.reserve(3)
    for _ in range(20):
        queue.put(bytes(1000))
    slot.buffer[:] = b"abc"
    slot.commit()
    assert records(path)[0].payload == b"abc"
    assert queue[0].payload == b"abc"
    assert len(queue) == 21


def test_reserve_of_nothing_and_of_less(queue):
    """Zero bytes is a message; fewer is a ValueError."""
    with queue.reserve(0):
        pass
    assert queue[0].payload == b""
    with pytest.raises(ValueError, match="-1"):
        queue.reserve(-1)


@pytest.mark.parametrize("count", [4, 3 << 20])
def test_an_array_that_is_kept_changes_no_committed_message(queue, count):
    """What it stores later goes nowhere; the array keeps its own. Copied, and mapped a second time."""
    with queue.reserve(4 * count) as slot:
        kept = numpy.frombuffer(slot.buffer, dtype="<u4")
        kept[:] = 1
        half = memoryview(slot.buffer)[8:]
    kept += 1
    half[:8] = bytes(8)
    queue.put(b"behind")
    consumer = queue.consumer("c")
    assert consumer.take(timeout=0) == numpy.full(count, 1, "<u4").tobytes()
    assert consumer.take(timeout=0) == b"behind"
    assert kept[:4].tolist() == [2, 2, 0, 0]
    assert (kept[4:] == 2).all()


def test_a_large_slot_keeps_its_neighbours_and_keeps_no_page_of_the_file(queue):
    """Whoever puts meanwhile shares its first and last page; behind the commit an array has pages of its own."""

    def mapped():
        with open("/proc/self/maps", "rb") as maps:
            return sum(b".chunk" in line for line in maps)

    queue.put(b"before")
    slot = queue.reserve(9 << 20)
    queue.put(b"behind")
    before = mapped()
    kept = numpy.frombuffer(slot.buffer, dtype="u1")
    kept[:] = 7
    slot.commit(9 << 20)
    assert mapped() < before
    kept[:] = 8
    assert [len(message.payload) for message in queue.reader()] == [6, 9 << 20, 6]
    assert set(queue[1].payload) == {7}


def test_what_an_aborted_slots_array_stores_changes_nothing(queue):
    """Also when the room is somebody else's by then."""
    slot = queue.reserve(16)
    kept = numpy.frombuffer(slot.buffer, dtype="u1")
    slot.abort()
    kept += 1
    assert queue[queue.put(b"x" * 16)].payload == b"x" * 16


def test_the_buffer_of_a_slot_begins_as_zeros(queue):
    """Nothing of another message, or of this process, is sent by whoever fills only a part."""
    for _ in range(40):
        queue.put(b"secret" * 200)
    with queue.reserve(1000) as slot:
        slot.buffer[:1] = b"a"
    assert queue[slot.index].payload == b"a" + bytes(999)


def test_a_commit_behind_an_open_slot_waits_no_longer_than_told(path):
    """With SYNC nothing is on the disk before what was reserved before it; its own thread may never come to that."""
    with shmq.open(path, options=shmq.Options(durability=shmq.Durability.SYNC)) as queue:
        first, second = queue.reserve(1), queue.reserve(1)
        with pytest.raises(shmq.SyncPending) as told:
            second.commit(timeout=0.01)
        assert told.value.index == second.index
        assert first.commit() == 0
        queue.sync()
        assert queue.durable_index == 2


@pytest.mark.parametrize("dedup", [None, ("p", 1)])
def test_a_batch_whose_wait_ends_early_says_where_it_begins(path, dedup):
    with shmq.open(path, options=shmq.Options(durability=shmq.Durability.SYNC)) as queue, queue.reserve(1):
        with pytest.raises(shmq.SyncPending) as told:
            queue.put_many([b"a", b"b", b"c"], timeout=0.01, dedup=dedup)
        assert told.value.index == 1
        assert queue.next_index == 4
