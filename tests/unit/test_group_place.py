"""Bringing a group over: what was finished elsewhere is skipped, and where a group stands can be looked at."""

import os

import pytest
from support import HEAD, patch

import shmq
from shmq import _native
from shmq.storage import boots
from shmq.storage import ring as rings
from shmq.taking import group_place


def filled(path, count=10, **consumer):
    queue = shmq.open(str(path))
    queue.put_many([b"%d" % number for number in range(count)])
    return queue, queue.consumer("g", group=True, ack="explicit", **consumer)


def rest(consumer):
    found = []
    try:
        while True:
            message = consumer.get(timeout=0)
            found.append(message.index)
            message.ack()
    except shmq.Empty:
        return found


def test_what_is_skipped_is_never_handed_out(tmp_path):
    queue, consumer = filled(tmp_path / "q", start=2)
    with queue, consumer:
        consumer.skip(4, 7, 8)
        place = queue.group_place("g")
        assert (place.head, place.done, place.open) == (2, (4, 7, 8), ())
        assert rest(consumer) == [2, 3, 5, 6, 9]
        assert queue.group_place("g").head == 10


def test_the_head_goes_over_what_was_skipped(tmp_path):
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        consumer.skip(2, 1, 0)
        assert consumer.head == 3
        assert queue.group_place("g") == group_place.GroupPlace(3, (), ())


def test_what_somebody_has_is_left_alone(tmp_path):
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        one = consumer.get()
        consumer.skip(0, 1)
        assert queue.group_place("g") == group_place.GroupPlace(0, (1,), (0,))
        one.ack()
        assert consumer.head == 2


def test_beyond_the_window_and_beyond_the_queue_nothing_is_skipped(tmp_path):
    queue, consumer = filled(tmp_path / "q", 100, window=64)
    with queue, consumer:
        with pytest.raises(shmq.TooMany, match="its window ends at 64"):
            consumer.skip(3, 64)
        with pytest.raises(ValueError, match="the next one is 100"):
            consumer.skip(3, 100)
        assert queue.group_place("g").done == ()


def test_a_place_is_seen_without_opening_the_group_and_after_its_members_have_gone(tmp_path):
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        consumer.skip(5)
        consumer.get()
    with shmq.open(str(tmp_path / "q"), create=False, read_only=True) as looking:
        assert looking.group_place("g") == group_place.GroupPlace(0, (5,), ())
        with pytest.raises(shmq.NotFound):
            looking.group_place("nobody")


def test_a_name_for_one_at_a_time_has_no_such_place(tmp_path):
    with shmq.open(str(tmp_path / "q")) as queue, queue.consumer("one"), pytest.raises(shmq.Mismatch):
        queue.group_place("one")


def test_after_a_reboot_the_snapshot_says_where_a_group_stands(tmp_path, monkeypatch):
    queue, consumer = filled(tmp_path / "q", start=1)
    with queue, consumer:
        consumer.skip(3, 9)
    monkeypatch.setattr(boots, "boot_id", lambda: b"another boot 16b")
    with shmq.open(str(tmp_path / "q"), create=False, read_only=True) as looking:
        assert looking.group_place("g") == group_place.GroupPlace(1, (3, 9), ())


def test_after_a_reboot_a_parked_message_is_not_finished_though_the_head_had_passed_it(tmp_path, monkeypatch):
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        consumer.get().nack(delay=3600)
        assert rest(consumer) == list(range(1, 10))
        assert consumer.head == 10
    monkeypatch.setattr(boots, "boot_id", lambda: b"another boot 16b")
    with shmq.open(str(tmp_path / "q"), create=False, read_only=True) as looking:
        assert looking.group_place("g") == group_place.GroupPlace(0, tuple(range(1, 10)), (), (0,))


def test_before_the_first_snapshot_a_group_of_another_boot_stands_at_its_start(tmp_path, monkeypatch):
    queue, consumer = filled(tmp_path / "q", start=4)
    with queue, consumer:
        monkeypatch.setattr(boots, "boot_id", lambda: b"another boot 16b")
        assert queue.group_place("g") == group_place.GroupPlace(4, (), ())
    assert _native.RING_WINDOW == 65536


def test_a_parked_message_is_not_finished(tmp_path):
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        consumer.get().nack(delay=3600)
        consumer.get().ack()
        place = queue.group_place("g")
        assert (place.head, place.done, place.open) == (0, (1,), ())
        assert rest(consumer) == list(range(2, 10))


def test_chunks_that_others_have_finished_may_be_retired_before_a_member_comes_to_them(tmp_path):
    """Its way leads through empty chunks that are retired together with the one behind them."""
    with shmq.open(str(tmp_path / "q")) as queue:
        for number in range(10):
            with queue.stage() as staged:
                staged.put(b"%d" % number)
                queue.adopt(staged)
        with queue.consumer("g", group=True, ack="explicit", start=4) as consumer:
            consumer.skip(6)
            assert rest(consumer) == [4, 5, 7, 8, 9]


def test_a_head_beyond_the_queue_is_damage_and_not_a_list_of_everything_below_it(tmp_path):
    queue, consumer = filled(tmp_path / "q", window=64)
    with queue, consumer:
        consumer.get().nack(delay=60)
        patch(tmp_path / "q" / "consumers" / "g.checkpoint", HEAD, (1 << 50).to_bytes(8, "little"))
        with pytest.raises(shmq.Corrupt, match=r"the head of group 'g' of .* is 1125899906842624"):
            queue.group_place("g")


def test_a_ring_of_this_boot_is_never_made_anew(tmp_path):
    """Whoever found it of another boot looks once more when it has the administrative lock."""
    queue, consumer = filled(tmp_path / "q")
    with queue, consumer:
        held = consumer.get()
        memory = rings.map_ring(queue._session.home, "g", writable=True)
        before = bytes(memory)
        rings._rebuild(queue._session.home, memory, queue._session.home.checkpoint("g"), "here")
        assert bytes(memory) == before
        held.ack()


def test_whoever_looked_in_vain_and_holds_a_message_does_not_wait_for_the_end(make):
    """So another member is not told that all is over: what the first one has may come back."""
    first, second = (make().consumer("g", group=True, ack="explicit") for _ in range(2))
    with first, second, make() as queue:
        queue.put_many([b"x", b"y"])
        queue.finish()
        message = first.get(timeout=0)
        other = second.get(timeout=0)
        with pytest.raises(shmq.Empty):
            first.get(timeout=0)
        with pytest.raises(shmq.Empty):
            second.get(timeout=0)
        message.nack()
        other.ack()
        assert second.take(timeout=0) == b"x"


def test_a_ring_that_was_cut_short_keeps_nobody_from_a_seat(make, path):
    """Only who opens the group is told."""
    with make() as queue:
        queue.consumer("g", group=True).close()
        queue.put(b"x")
    os.truncate(f"{path}/consumers/g.ring", 3)
    with make() as queue:
        assert queue.put(b"y") == 1
        assert [message.payload for message in queue.reader()] == [b"x", b"y"]
        with pytest.raises(shmq.Corrupt, match=r"g\.ring"):
            queue.consumer("g", group=True)
