"""Readers and looking: any index, forward, without a trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support import DEADLINE, until

import shmq
from shmq import ending


@pytest.fixture
def filled(queue):
    """40 messages over several chunks; index 13 is padding."""
    for i in range(40):
        if i == 13:
            queue.reserve(1).abort()
        else:
            queue.put(b"%d" % i + bytes(2000))
    return queue


def numbers(reader):
    return [int(message.payload.rstrip(b"\0")) for message in reader]


def test_a_reader_sees_everything_and_leaves_no_trace(filled, path):
    """All messages in order; no checkpoint, and not one byte of the chunks changes."""
    chunks = {file: file.read_bytes() for file in Path(path, "chunks").iterdir()}
    assert numbers(filled.reader()) == [i for i in range(40) if i != 13]
    assert filled.consumers() == {}
    assert {file: file.read_bytes() for file in Path(path, "chunks").iterdir()} == chunks


@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (5, 9), (-3, None), (10, -25), (13, 14), (12, 15), (39, None), (40, None), (-100, 2)]
)
def test_a_reader_goes_from_any_index_to_any(filled, start, stop):
    """As a slice would, but for what is padding."""
    assert numbers(filled.reader(start, stop)) == [i for i in range(40)[start:stop] if i != 13]


def test_one_message_by_its_index(filled):
    """From the front and from the end."""
    assert [filled[i].index for i in (0, 7, 39, -1, -40)] == [0, 7, 39, 39, 0]
    assert filled[20].payload.rstrip(b"\0") == b"20"


@pytest.mark.parametrize(("index", "says"), [(40, "from 0 to 39"), (-41, "from 0 to 39"), (13, "padding")])
def test_a_missing_index_says_why(filled, index, says):
    """Beyond the ends, or padding."""
    with pytest.raises(IndexError, match=says):
        filled[index]


def test_an_index_that_is_claimed_is_not_there_yet(queue):
    """IndexError, and the message once it is committed."""
    slot = queue.reserve(1)
    with pytest.raises(IndexError, match="claimed and not committed yet"):
        queue[0]
    slot.commit()
    assert queue[0].payload == b"\0"


def test_len_counts_messages_and_indexes_count_ordinals(filled):
    """Padding has an index, and is no message. An empty queue is true all the same."""
    assert (len(filled), filled.first_index, filled.next_index) == (39, 0, 40)
    assert filled
    stats = filled.stats()
    assert (stats.first_index, stats.next_index, stats.padded, stats.fenced, stats.participants) == (0, 40, 1, 0, 1)
    assert stats.chunks > 1
    assert stats.disk_bytes >= stats.chunks * 16384


def test_a_reader_that_follows_waits_until_the_shutdown(queue):
    """Messages come as they are put; at the shutdown it ends."""
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(numbers(queue.reader(follow=True))))
    thread.start()
    for i in range(5):
        queue.put(b"%d" % i)
    queue.shutdown()
    thread.join(DEADLINE)
    assert seen == [0, 1, 2, 3, 4]


def test_found_a_reader_that_follows_a_deleted_queue_waited_for_ever(tmp_path):
    """Nobody sees it, so nobody can tell it; it looks itself, also where a new queue is at that place."""
    place = tmp_path / "deleted"
    shmq.open(place).close()
    with shmq.open(place, read_only=True) as queue, queue.reader(follow=True) as reader:
        with pytest.raises(shmq.Empty):
            reader.get(timeout=0)
        shmq.delete(place)
        shmq.open(place).close()
        with pytest.raises(shmq.NotFound, match="was removed while it was open"):
            next(reader)


def test_a_reader_that_follows_ends_with_its_queue(queue):
    """close() in another thread ends it, too."""
    ended = threading.Event()
    reader = queue.reader(follow=True)

    def follow():
        list(reader)
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    queue.close()
    thread.join(DEADLINE)
    assert ended.is_set()


def test_found_a_reader_that_waits_ends_when_another_thread_closes_it(queue, monkeypatch):
    """It slept on, until somebody put something."""
    asleep, ended = threading.Event(), threading.Event()
    reader = queue.reader(follow=True)
    sleep = reader._membership.sleep

    def sleeps(*given):
        asleep.set()
        return sleep(*given)

    def follow():
        list(reader)
        ended.set()

    monkeypatch.setattr(reader._membership, "sleep", sleeps)
    threading.Thread(target=follow, daemon=True).start()
    assert asleep.wait(DEADLINE)
    reader.close()
    assert ended.wait(DEADLINE)


def test_a_read_only_handle_reads_and_changes_nothing(filled, path):
    """It sees what others put; every verb that would write says so; not one byte of any file changes by it."""

    def everything():
        return {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}

    before = everything()
    with shmq.open(path, read_only=True) as reading:
        assert len(numbers(reading.reader())) == 39
        assert (len(reading), reading[5].index, reading.stats().participants) == (39, 5, 1)
        for refused in (
            lambda: reading.put(b"x"),
            lambda: reading.put_many([b"x"]),
            lambda: reading.reserve(1),
            reading.producer,
            lambda: reading.consumer("c"),
            lambda: reading.drop_consumer("c"),
            reading.shutdown,
        ):
            with pytest.raises(shmq.Closed, match="read-only"):
                refused()
    assert everything() == before


def test_a_read_only_reader_follows(queue, path):
    """Without a seat it cannot be woken; it looks again by itself."""
    seen = []
    with shmq.open(path, read_only=True) as reading:
        thread = threading.Thread(target=lambda: seen.extend(numbers(reading.reader(follow=True))))
        thread.start()
        queue.put(b"1")
        until(lambda: seen == [1] or not thread.is_alive() or queue.shutdown())
        queue.shutdown()
        thread.join(DEADLINE)
    assert seen == [1]


@pytest.mark.parametrize("read_only", [False, True])
def test_found_what_is_put_just_before_the_shutdown_is_read_by_who_follows(queue, path, monkeypatch, read_only):
    """It looked, then asked whether the queue is over, and never read what had been put in between."""
    real = ending.over

    def over(home, control):
        if not real(home, control):
            queue.put(b"1")
            queue.shutdown()
        return real(home, control)

    with shmq.open(path, read_only=read_only) as reading:
        monkeypatch.setattr(ending, "over", over)
        assert numbers(reading.reader(follow=True)) == [1]


def test_read_only_of_nothing_makes_nothing(tmp_path):
    """NotFound, and no directory."""
    with pytest.raises(shmq.NotFound):
        shmq.open(tmp_path / "none", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_queue_refuses_every_verb(queue):
    """Closed, which says what to do; closing again is fine."""
    queue.put(b"x")
    queue.close()
    queue.close()
    for refused in (
        lambda: queue.put(b"x"),
        lambda: queue.put_many([b"x"]),
        lambda: queue.put_many([]),
        lambda: queue.reserve(1),
        queue.producer,
        lambda: queue.consumer("c"),
        lambda: list(queue.reader()),
        lambda: queue[0],
        lambda: len(queue),
        lambda: queue.next_index,
        lambda: queue.first_index,
        queue.stats,
        queue.consumers,
        lambda: queue.drop_consumer("c"),
        queue.shutdown,
    ):
        with pytest.raises(shmq.Closed, match=r"closed.*open it again"):
            refused()
    assert repr(queue) == f"<shmq.Queue {queue.path} (closed)>"


def test_a_reader_of_a_closed_queue_ends(filled):
    """It raises Closed rather than read on through a closed directory."""
    reader = filled.reader()
    next(reader)
    filled.close()
    with pytest.raises(shmq.Closed):
        list(reader)
