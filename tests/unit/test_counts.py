"""What is counted in a queue's control page: exactly, by all processes and threads, and on after their deaths."""

from __future__ import annotations

import fcntl
import itertools
import os
import struct
import threading
import time

import pytest
from support import Child, hold_until_killed, in_child, make_unclean

import shmq
from shmq import _native
from shmq._native import layout
from shmq.stats import Counts

SIZE = 100


def counts(queue) -> Counts:
    found = queue.stats().counts
    assert found is not None
    return found


def differences(queue, before: Counts) -> dict[str, int]:
    """What has changed, but for sleeps and times."""
    now = counts(queue)
    names = ("put_messages", "put_bytes", "taken_messages", "acked", "nacked")
    changed = {name: getattr(now, name) - getattr(before, name) for name in names}
    return {name: by for name, by in changed.items() if by}


def large(queue, size):
    queue.put(bytes(size))
    return size


PUTS = {
    "put": lambda queue: large(queue, 7),
    "put, a large one": lambda queue: large(queue, 100_000),
    "put, one that rolls": lambda queue: large(queue, 5_000_000),
    "put, with all": lambda queue: queue.put(bytes(7), key=b"k", type=3, headers={"a": 1}, ttl=100, delay=0.0) * 0 + 7,
    "put, an array of bytes": lambda queue: queue.put(bytearray(7)) * 0 + 7,
    "reserve": lambda queue: reserve(queue, 9),
}


def reserve(queue, size):
    with queue.reserve(size) as slot:
        slot.buffer[:] = bytes(size)
    return size


@pytest.mark.parametrize("way", PUTS)
def test_each_way_to_put_one_counts_one(queue, way):
    """And its bytes, whichever way it went."""
    queue.put(b"")
    before = counts(queue)
    size = PUTS[way](queue)
    assert differences(queue, before) == {"put_messages": 1, "put_bytes": size}


@pytest.mark.parametrize("size", [65_537, 5_000_000])
def test_large_puts_count_where_they_fit_at_once(tmp_path, size):
    """Those that are copied while other threads run."""
    with shmq.open(tmp_path / "q", chunk_bytes=64 << 20) as queue:
        queue.put(bytes(8 << 20))
        before = counts(queue)
        for _ in range(3):
            queue.put(bytes(size))
        assert differences(queue, before) == {"put_messages": 3, "put_bytes": 3 * size}


@pytest.mark.parametrize("size", [10, 1000])
def test_a_batch_counts_its_messages(queue, size):
    """By the built-in and, of more bytes than that takes, by Python."""
    before = counts(queue)
    queue.put_many([bytes(size)] * SIZE)
    queue.put_many([bytes(size)] * 2, keys=[b"a", b"b"])
    assert differences(queue, before) == {"put_messages": SIZE + 2, "put_bytes": size * (SIZE + 2)}


def test_what_was_put_before_and_what_is_given_up_counts_nothing(queue):
    """A put with dedup that is repeated, by the built-in or Python, a claim that is aborted, a put that is refused."""
    before = counts(queue)
    for _ in range(3):
        queue.put(b"abc", dedup=("p", 1))
        queue.put(b"abc", dedup=("p", 2))
    queue.put_many([b"abc"] * 2, dedup=("p", 3))
    queue.put_many([b"abc"] * 2, dedup=("p", 3))
    queue.reserve(8).abort()
    with pytest.raises(shmq.TooLarge):
        queue.put(bytes(8), key=bytes(70_000))
    assert differences(queue, before) == {"put_messages": 4, "put_bytes": 12}


@pytest.mark.parametrize("given", [{}, {"ack": "explicit"}, {"group": True}, {"group": True, "ack": "explicit"}])
def test_each_way_to_take_counts_what_it_hands_out(queue, given):
    """One by one and many, in built-ins and in Python; a reader, a peek and an index take nothing."""
    queue.put_many([b"abc"] * 60)
    before = counts(queue)
    with queue.consumer("c", **given) as consumer:
        assert consumer.peek().payload == queue[0].payload == b"abc"
        assert len(list(itertools.islice(queue.reader(), 10))) == 10
        assert differences(queue, before) == {}
        consumer.take()
        consumer.take_many(9)
        messages = [consumer.get(), *consumer.get_many(9)]
        messages.append(next(consumer))
        if "ack" in given:
            consumer.ack(*messages[:10])
            messages[10].ack()
            messages[10].ack()
        assert differences(queue, before) == {
            "taken_messages": 21,
            **({"acked": 21} if "ack" in given else {}),
        }


def test_what_comes_back_is_counted_each_time(queue):
    """And what was given back."""
    queue.put(b"abc")
    before = counts(queue)
    with queue.consumer("g", group=True, ack="explicit") as group:
        for _ in range(3):
            group.get().nack()
        group.get().ack()
    assert differences(queue, before) == {"taken_messages": 4, "nacked": 3, "acked": 1}


def test_what_is_forwarded_is_taken_put_and_acknowledged(queue, tmp_path):
    """The first by Python, the others by the built-in."""
    with shmq.open(tmp_path / "target") as target, queue.consumer("g", group=True, ack="explicit") as group:
        queue.put_many([b"abc"] * 5)
        here, there = counts(queue), counts(target)
        for _ in range(5):
            with group.get().forward() as forward:
                forward.put(target, b"result")
        assert differences(queue, here) == {"taken_messages": 5, "acked": 5}
        assert differences(target, there) == {"put_messages": 5, "put_bytes": 30}


def test_threads_lose_nothing(tmp_path):
    """Those that run without the interpreter's lock, in large puts and in waits, neither."""
    with shmq.open(tmp_path / "q", chunk_bytes=64 << 20) as queue:
        _put_and_take_in_threads(queue)


def _put_and_take_in_threads(queue):
    before, rounds = counts(queue), 300

    def put(size):
        for _ in range(rounds):
            queue.put(bytes(size))

    def take():
        with queue.consumer("g", group=True) as group:
            while group.take(timeout=10):
                pass

    threads = [threading.Thread(target=put, args=(size,)) for size in (10, 20, 70_000)]
    threads += [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads[:3]:
        thread.join()
    queue.put_many([b""] * 2)
    for thread in threads[3:]:
        thread.join()
    total = 3 * rounds + 2
    size = rounds * 70_030
    assert differences(queue, before) == {
        "put_messages": total,
        "put_bytes": size,
        "taken_messages": total,
    }


def put_and_die(say, path):
    queue = shmq.open(path)
    for _ in range(10):
        queue.put(b"abc")
    hold_until_killed(say)


def test_a_death_takes_nothing_away_and_the_next_tenant_goes_on(queue):
    """Of a seat that three processes have in turn, each of which is killed."""
    for turn in range(3):
        with Child(put_and_die, queue.path) as child:
            child.hear()
            child.kill()
        assert counts(queue).put_messages == 10 * (turn + 1)


def test_a_child_counts_in_a_line_of_its_own(queue):
    """And its parent goes on in its own: neither writes over what the other has counted."""
    queue.put(b"parent")
    assert (
        in_child(lambda: queue.put_many([b"child"] * 5) and [queue.put(b"child") for _ in range(5)] and "done")
        == "done"
    )
    for _ in range(10):
        queue.put(b"parent")
    assert counts(queue).put_messages == 21
    with open(f"{queue.path}/control.shmq", "rb") as file:
        file.seek(layout.control.counted)
        lines = [struct.unpack("<8Q", file.read(64))[0] for _ in range(layout.COUNTED_SEATS)]
    mine, child, *others = lines
    assert mine == 11
    assert 5 <= child <= 10  # what went through Python, as the first one behind a fork, is in the line of all
    assert not any(others)


def test_a_seat_without_a_line_counts_with_the_others(tmp_path):
    """As those from the 50th on do: the first ones are locked here, by nobody who counts."""
    shmq.open(tmp_path / "q").close()
    with open(tmp_path / "q" / "control.shmq", "r+b") as file:
        seats = layout.COUNTED_SEATS
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE, seats, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        with shmq.open(tmp_path / "q") as queue:
            before = counts(queue)
            queue.put(b"abc")
            with queue.consumer("c") as consumer:
                consumer.take()
            with queue.consumer("g", group=True, ack="explicit") as group:
                group.get().ack()
            assert differences(queue, before) == {
                "put_messages": 1, "put_bytes": 3, "taken_messages": 2, "acked": 1
            }  # fmt: skip
            raw = (tmp_path / "q" / "control.shmq").read_bytes()
    at = layout.control.counted
    assert raw[at : at + 64 * seats] == bytes(64 * seats)


def test_waits_are_counted(queue):
    """Of whoever slept, for messages or for room."""
    with queue.consumer("c") as consumer, pytest.raises(shmq.Empty):
        consumer.take(timeout=0.01)
    assert counts(queue).waits >= 1
    queue.configure(max_messages=1)
    queue.put(b"")
    with pytest.raises(shmq.Full):
        queue.put(b"", timeout=0.01)
    assert counts(queue).room_waits >= 1


@pytest.mark.disk
def test_syncs_are_counted(tmp_path):
    """Each group commit is one."""
    with shmq.open(tmp_path / "q", durability=shmq.Durability.SYNC) as queue:
        queue.put(b"")
        before = counts(queue).syncs
        for _ in range(3):
            queue.put(b"")
        assert counts(queue).syncs - before == 3


@pytest.mark.parametrize("given", [{}, {"group": True}])
@pytest.mark.parametrize("way", ["take", "get", "take_many"])
def test_of_64_messages_one_is_timed_by_its_time(queue, given, way):
    """In the bucket of its age; one from the future is not older than nothing."""
    hour_ago = time.time_ns() - 3600 * 10**9
    queue.put_many([b"x"] * 64, times_ns=[hour_ago] * 64)
    queue.put_many([b"x"] * 64, times_ns=[time.time_ns() + 10**15] * 64)
    with queue.consumer("c", **given) as consumer:
        for _ in range(128 if way != "take_many" else 8):
            getattr(consumer, way)(*([16] if way == "take_many" else []))
    found = counts(queue)
    assert (found.latency[0], found.latency[-1], sum(found.latency)) == (1, 1, 2)
    assert 3600 <= found.latency_seconds < 3700


def test_buckets_double(queue):
    """The first ends at 1,024 ns, and each further one at twice as much."""
    assert len(counts(queue).latency) == layout.LATENCY_BUCKETS
    seconds = (30.0, 100.0, 1000.0)
    for age in seconds:
        queue.put(b"", time_ns=time.time_ns() - int(age * 1e9))
        queue.put_many([b""] * 63)
    with queue.consumer("d") as consumer:
        for _ in range(64 * len(seconds)):
            consumer.take()
    buckets = [at for at, count in enumerate(counts(queue).latency) if count]
    for age in seconds:
        bucket = (int(age * 1e9) >> layout.LATENCY_SHIFT).bit_length()
        assert bucket in buckets or bucket + 1 in buckets


def test_a_boot_begins_at_zero(tmp_path):
    """As the whole page does."""
    path = str(tmp_path / "q")
    with shmq.open(path) as queue:
        queue.put(b"abc")
        assert counts(queue).put_messages == 1
    make_unclean(path)
    with shmq.open(path) as queue:
        assert counts(queue).put_messages == 0


def test_anybody_reads_them_and_what_is_staged_counts_for_nobody(queue):
    """Read-only, without a seat; adopted messages were put elsewhere."""
    with queue.stage() as staged:
        staged.put_many([b"abc"] * 3)
        staged.put(b"abc")
    queue.put(b"abc")
    with shmq.open(queue.path, create=False, read_only=True) as looking:
        assert counts(looking).put_messages == 1


def test_the_names_of_both_sides_agree():
    """What the core sums is what Python tells."""
    assert [name for name in _native.Counted._fields if name != "latency_ns"] == [
        name for name in Counts.__dataclass_fields__ if name != "latency_seconds"
    ]
