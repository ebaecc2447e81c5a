"""Room in a queue that a group reads: what it has finished makes room, what nobody has can be dropped or purged."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from pathlib import Path

import pytest
from support import Child, chunk_files, flip, hold_until_killed, make_unclean, peek, until, words

import shmq

ROOM_WAITERS = 428  # in the control page
LONG = 60.0
PAYLOAD = b"x" * 24
TAKES = 64
"""Bytes that PAYLOAD takes with its header."""
TEN = [{"max_messages": 10}, {"max_bytes": 10 * TAKES}]


def waiting(path) -> bool:
    """Whether a producer has said that it sleeps for room."""
    return peek(Path(path, "control.shmq"), ROOM_WAITERS) & 0xFFFFFFFF == 1


def put_and_say(say, path, payload=PAYLOAD):
    """A producer that says where its message went."""
    with shmq.open(path) as queue:
        say("begin")
        say(queue.put(payload, timeout=LONG))


def take_and_hold(say, path, count):
    """A member that holds messages until it is killed, or finishes them when it is told to end."""
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as group:
        held = group.get_many(count)
        say(len(held))
        hold_until_killed(say)
        group.ack(*held)


def hold_until_told(say, path, count):
    """A member that holds messages until the queue is shut down, and says what came of their acks."""
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as group:
        held = group.get_many(count)
        say(len(held))
        until(queue._session.joined().control.is_shut_down, LONG)
        lost = 0
        for message in held:
            try:
                message.ack()
            except shmq.LeaseLost:
                lost += 1
        say(lost)


# ---------------------------------------------------------------- what a group has finished makes room
@pytest.mark.parametrize("bound", TEN, ids=lambda bound: next(iter(bound)))
@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_bounded_queue_with_a_group_takes_the_next_put_when_the_group_has_finished(make, bound, ack):
    """By messages and by bytes, whichever way it finishes."""
    queue = make(**bound)
    group = queue.consumer("g", group=True, ack=ack)
    for _ in range(3):
        queue.put_many([PAYLOAD] * 10, timeout=0)
        messages = group.get_many(10)
        if ack == "explicit":
            with pytest.raises(shmq.Full, match="'g' is the furthest behind"):
                queue.put(PAYLOAD, timeout=0)
            group.ack(*messages)


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_producer_that_waits_is_woken_by_the_group_that_finishes(make, path, ack):
    """In another process, by its ack or by being handed a message."""
    queue = make(max_messages=10)
    group = queue.consumer("g", group=True, ack=ack)
    queue.put_many([PAYLOAD] * 10)
    with Child(put_and_say, path) as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        message = group.get()
        if ack == "explicit":
            message.ack()
        assert child.hear(LONG) == "10"


def test_a_producer_that_waits_is_woken_by_the_ack_of_what_was_put_aside(make, path):
    """The head has passed it long before: what moves then is the lowest that is parked."""
    queue = make(max_messages=10)
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put_many([PAYLOAD] * 10)
    first, *rest = group.get_many(10)
    first.nack()
    group.ack(*rest)
    again = group.get(timeout=0)
    assert (again.index, group.head) == (0, 10)
    with pytest.raises(shmq.Full, match="at index 0"):
        queue.put(PAYLOAD, timeout=0)
    with Child(put_and_say, path) as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        again.ack()
        assert child.hear(LONG) == "10"


def test_what_waits_for_its_time_in_a_group_takes_room(make):
    """Until it is finished; then all of it is there again."""
    queue = make(max_messages=10)
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put_many([PAYLOAD] * 10)
    first, *rest = group.get_many(10)
    first.nack(delay=0.05)
    group.ack(*rest)
    with pytest.raises(shmq.Full):
        queue.put(PAYLOAD, timeout=0)
    group.get(timeout=LONG).ack()
    assert queue.put_many([PAYLOAD] * 10, timeout=0) == range(10, 20)


def test_a_new_name_counts_at_once_whoever_makes_it(make):
    """What it has not finished fills the queue; no put goes by a limit from before."""
    for name, group in (("alone", {}), ("g", {"group": True})):
        queue = make(max_messages=10)
        consumer = queue.consumer("c")
        queue.put_many([PAYLOAD] * 10)
        consumer.take_many(10)
        queue.put(PAYLOAD, timeout=0)  # by a limit that has room for nine more
        queue.consumer(name, start=0, **group).close()
        with pytest.raises(shmq.Full, match=f"{name!r} is the furthest behind, at index 0"):
            queue.put(PAYLOAD, timeout=0)
        consumer.close()
        queue.close()
        shmq.delete(queue.path)


def test_a_name_that_was_dropped_and_made_again_is_the_new_one(make):
    """A producer looks at the files that are there, not at those it mapped once."""
    queue = make(max_messages=10)
    for _ in range(3):
        group = queue.consumer("g", group=True, start="latest")
        queue.put_many([PAYLOAD] * 10, timeout=0)
        with pytest.raises(shmq.Full):
            queue.put(PAYLOAD, timeout=0)
        group.take_many(10)
        group.close()
        queue.drop_consumer("g")


def test_a_million_rounds_of_the_window_leave_room(make):
    """A small window, over and over, in a queue that is full each time."""
    queue = make(max_messages=100)
    group = queue.consumer("g", group=True, ack="explicit", window=64)
    for _ in range(50):
        assert len(queue.put_many([PAYLOAD] * 100, timeout=0)) == 100
        left = 100
        while left:
            messages = group.get_many(100, timeout=LONG)
            left -= len(messages)
            group.ack(*messages)


def test_chunks_go_when_what_was_put_aside_in_them_is_finished(make):
    """Whoever retires looks at the group as it is, not as it was when a member rolled last."""
    queue = make(chunk_bytes=16384)
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put_many([bytes(1000)] * 10)
    first, *rest = group.get_many(10)
    first.nack()
    group.ack(*rest)
    first = group.get(timeout=LONG)
    for _ in range(100):
        queue.put(bytes(1000))
    for _ in range(100):
        group.get(timeout=LONG).ack()
    assert queue.first_index == 0
    first.ack()
    queue.consumer("other", start="latest").close()
    queue.drop_consumer("other")  # somebody retires
    assert queue.first_index > 50


# ---------------------------------------------------------------- dropping the oldest
def test_drop_oldest_drops_for_a_group_what_nobody_has(make):
    """It gets the newest, in order, and is told how many it missed; so does a name beside it."""
    queue = make(max_messages=10, full="drop_oldest")
    group, alone = queue.consumer("g", group=True), queue.consumer("c")
    for i in range(25):
        assert queue.put(b"%d" % i, timeout=1) == i
    assert group.take_many(99) == alone.take_many(99) == [b"%d" % i for i in range(15, 25)]
    assert {name: each.dropped for name, each in queue.consumers().items()} == {"c": 15, "g": 15}


def test_drop_oldest_by_bytes_drops_over_many_chunks_and_windows(make):
    """A backlog of more than the window goes at once when one large message comes."""
    queue = make(max_bytes=1000 * TAKES, full="drop_oldest", chunk_bytes=16384)
    group = queue.consumer("g", group=True, window=64)
    for i in range(3000):
        queue.put(b"%024d" % i, timeout=1)
    queue.put(bytes(900 * TAKES), timeout=1)
    got = group.take_many(1024)
    while len(got) < 99:
        got += group.take_many(1024, timeout=1)
    assert got[0] == b"%024d" % (3000 - 99)
    assert got[-1] == b"%024d" % 2999 or len(got[-1]) > 24


def test_drop_oldest_never_drops_what_a_member_holds_and_looks_at_its_deadline(make, path):
    """It waits for the ack instead; and whatever was asked for, the put returns in time."""
    queue = make(max_messages=2, full="drop_oldest")
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put_many([b"a", b"b"])
    first = group.get()
    for timeout in (0, 0.05):
        with pytest.raises(shmq.Full, match="'g' is the furthest behind, at index 0"):
            queue.put(b"c", timeout=timeout)
    with Child(put_and_say, path, b"c") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        first.ack()
        assert child.hear(LONG) == "2"
    assert [message.payload for message in group.get_many(9)] == [b"b", b"c"]
    assert queue.consumers()["g"].dropped == 0


@pytest.mark.parametrize("delay", [0.0, 3600.0])
def test_drop_oldest_drops_what_was_given_back(make, path, delay):
    """Nobody has it any more, also while it waits for its time: the put that waited goes on, and it never comes."""
    queue = make(max_messages=2, full="drop_oldest")
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put_many([b"a", b"b"])
    first = group.get()
    with Child(put_and_say, path, b"c") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        first.nack(delay)
        assert child.hear(LONG) == "2"
    assert [message.payload for message in group.get_many(9)] == [b"b", b"c"]
    with pytest.raises(shmq.Empty):
        group.get(timeout=0)
    assert (queue.consumers()["g"].dropped, queue.consumers()["g"].group.parked) == (1, 0)


def test_drop_oldest_goes_on_when_a_holder_is_killed(make, path):
    """The dead have nothing, also when no member is left to find them."""
    queue = make(max_messages=4, full="drop_oldest")
    queue.put_many([b"0", b"1", b"2", b"3"])
    with Child(take_and_hold, path, 2) as holder:
        assert holder.hear() == "2"
        with pytest.raises(shmq.Full):
            queue.put(b"4", timeout=0)
        with Child(put_and_say, path, b"4") as child:
            assert child.hear() == "begin"
            until(lambda: waiting(path), LONG)
            holder.kill()
            assert child.hear(LONG) == "4"
    group = queue.consumer("g", group=True, ack="explicit")
    assert {group.get(timeout=0).payload for _ in range(4)} == {b"1", b"2", b"3", b"4"}
    assert queue.consumers()["g"].dropped == 1


def test_drop_oldest_keeps_the_order_of_keys(make):
    """A bucket whose messages were dropped hands out the next one."""
    queue = make(max_messages=4, full="drop_oldest")
    group = queue.consumer("g", group=True, ack="explicit", ordered_by="key")
    for i in range(3):
        queue.put(b"%d" % i, key=b"k")
    held = group.get(timeout=0)
    with pytest.raises(shmq.Empty):
        group.get(timeout=0)  # 1 and 2 wait for their key
    held.ack()
    for i in range(3, 9):
        queue.put(b"%d" % i, key=b"k", timeout=1)
    got = []
    for _ in range(4):
        message = group.get(timeout=LONG)
        got.append(message.payload)
        message.ack()
    assert got == [b"5", b"6", b"7", b"8"]
    with pytest.raises(shmq.Empty):
        group.get(timeout=0)


def test_a_group_that_comes_later_begins_behind_what_is_dropped(make):
    """As a name of its own does."""
    queue = make(max_messages=2, full="drop_oldest")
    for i in range(10):
        queue.put(b"%d" % i)
    assert queue.consumer("g", group=True).take_many(9) == [b"8", b"9"]


def drop_and_put(say, path, number):
    """One of several that put into a full queue."""
    with shmq.open(path) as queue:
        for i in range(300):
            queue.put(b"%d %d" % (number, i), timeout=LONG)
    say("done")


def work(say, path):
    """A member that takes what comes until the end."""
    got = []
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as group:
        say("here")
        for message in group:
            if message.payload == b"end":
                message.ack()
                break
            got.append(message.index)
            message.ack()
    say(",".join(map(str, got)))


def test_several_drop_while_several_work_and_each_message_is_had_once_or_dropped(make, path):
    """What was handed out and what was dropped make up everything, whoever does it at the same time."""
    queue = make(max_messages=20, full="drop_oldest")
    queue.consumer("g", group=True, ack="explicit").close()
    workers = [Child(work, path) for _ in range(2)]
    try:
        assert [worker.hear() for worker in workers] == ["here"] * 2
        producers = [Child(drop_and_put, path, number) for number in range(3)]
        try:
            assert [producer.hear(LONG) for producer in producers] == ["done"] * 3
        finally:
            for producer in producers:
                producer.__exit__()
        until(lambda: queue.consumers()["g"].head >= 900, LONG)
        queue.put_many([b"end"] * 2)
        got = [int(index) for worker in workers for index in worker.hear(LONG).split(",") if index]
    finally:
        for worker in workers:
            worker.__exit__()
    dropped = queue.consumers()["g"].dropped
    assert len(got) == len(set(got))
    assert len(got) + dropped == 900


# ---------------------------------------------------------------- purge
def test_purge_beside_members_in_several_processes_hands_out_nothing_of_it_afterwards(make, path):
    """What they hold they finish; new messages come as ever."""
    queue = make()
    queue.consumer("g", group=True, ack="explicit").close()
    queue.put_many([PAYLOAD] * 400)
    with Child(hold_until_told, path, 30) as one, Child(hold_until_told, path, 20) as other:
        assert {one.hear(), other.hear()} == {"30", "20"}
        mine = queue.consumer("g", group=True, ack="explicit")
        assert queue.purge() == 400
        with pytest.raises(shmq.Empty):
            mine.get(timeout=0)
        queue.put(b"new")
        assert mine.get(timeout=LONG).payload == b"new"
        assert queue.consumers()["g"].dropped == 350
        queue.shutdown()
        assert (one.hear(LONG), other.hear(LONG)) == ("0", "0")


@pytest.mark.parametrize("ordered_by", [None, "key"])
def test_what_was_held_at_a_purge_and_is_given_back_is_finished(make, path, ordered_by):
    """By nack, with a delay, by closing, or by a kill: it never comes again."""
    queue = make()
    group = queue.consumer("g", group=True, ack="explicit", ordered_by=ordered_by)
    queue.put_many([PAYLOAD] * 20, keys=[b"%d" % i for i in range(20)])
    closing = queue.consumer("g", group=True, ack="explicit")
    with Child(take_and_hold, path, 3) as child:
        child.hear()
        closing.get()
        nacked, delayed, kept, rejected = group.get_many(4)
        group.get(timeout=0).nack(delay=0.01)
        queue.purge()
        nacked.nack()
        delayed.nack(delay=0.01)
        kept.ack()
        rejected.reject("not mine")
        closing.close()
        child.kill()
        deadline = time.monotonic() + 0.1
        while time.monotonic() < deadline:
            with pytest.raises(shmq.Empty):
                group.get(timeout=0.02)
    assert group.head == 20
    stats = queue.consumers()["g"].group
    assert (stats.pending, stats.returned, stats.parked, stats.waiting) == (0, 0, 0, 0)
    queue.put(b"new", key=b"1")
    assert group.get(timeout=LONG).payload == b"new"


def join_and_leave(say, path):
    """Open a group and a name of its own again and again."""
    with shmq.open(path) as queue:
        say("here")
        for _ in range(100):
            queue.consumer("g", group=True).close()
            queue.consumer("c").close()
    say("done")


def test_joining_beside_a_purge_never_fails(make, path):
    """Whoever administers has a name for a moment only."""
    queue = make()
    queue.consumer("g", group=True).close()
    queue.consumer("c").close()
    with Child(join_and_leave, path) as child:
        assert child.hear() == "here"
        while not child.has_spoken():
            queue.put(b"x")
            queue.purge()
        assert child.hear(LONG) == "done"


def test_purge_of_a_group_that_nobody_is_in_takes_what_is_parked_too(make):
    """Also what waits for its time."""
    queue = make()
    with queue.consumer("g", group=True, ack="explicit") as group:
        queue.put_many([PAYLOAD] * 10)
        group.get().nack(delay=0.01)
        group.get().nack()
    queue.purge()
    with queue.consumer("g", group=True, ack="explicit") as group:
        with pytest.raises(shmq.Empty):
            group.get(timeout=0.05)
        assert (group.head, queue.consumers()["g"].dropped) == (10, 10)


# ---------------------------------------------------------------- retention by age and bytes
def fill(queue, chunks: int) -> None:
    """Put until so many chunks more have been begun."""
    for _ in range(chunks * 16):
        queue.put(bytes(1000))


def test_what_retention_takes_from_a_group_is_told_once_and_counted(make):
    """What nobody had come to, and what was put aside, are one number in the end."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384), chunk_bytes=16384)
    group, other = (queue.consumer("g", group=True, ack="explicit") for _ in range(2))
    for _ in range(10):
        queue.put(bytes(1000))
    parked = group.get()
    parked.nack(delay=3600)
    held = group.get()
    fill(queue, 5)
    first = queue.first_index
    assert first > 10
    told = []
    for member in (group, other, group, other):
        try:
            member.get(timeout=0)
        except shmq.Gone as gone:
            told.append(gone.first_index)
    assert told == [first]
    assert queue.consumers()["g"].group.retired == first
    with pytest.raises(shmq.LeaseLost, match="it was retired before it was finished"):
        held.ack()
    assert queue.consumers()["g"].group.parked == 0


def test_what_was_put_aside_and_retired_is_told_when_its_time_comes(make):
    """The head was far beyond it: no walker stands where it was."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384), chunk_bytes=16384)
    group = queue.consumer("g", group=True, ack="explicit")
    queue.put(bytes(1000))
    group.get().nack(delay=1.0)
    for _ in range(4):
        queue.put_many([bytes(1000)] * 20)
        with contextlib.suppress(shmq.Empty):
            while True:
                group.ack(*group.get_many(20, timeout=0))
    assert (queue.first_index > 1, group.head) == (True, 81)
    with pytest.raises(shmq.Gone, match=r"a message of .* would come again to group 'g'"):
        group.get(timeout=LONG)
    with pytest.raises(shmq.Empty):
        group.get(timeout=0)
    assert queue.consumers()["g"].group.retired == 1


@pytest.mark.parametrize("parked", [False, True])
def test_a_group_that_a_power_cut_sets_back_behind_what_all_had_finished_just_goes_on(make, path, parked):
    """As a consumer of its own does: with Retention.acked nothing goes before it was finished, so nothing was lost."""
    queue = make(retention=shmq.Retention.acked(), chunk_bytes=16384)
    checkpoint, ring = (Path(path, "consumers", f"g.{ending}") for ending in ("checkpoint", "ring"))
    with queue.consumer("g", group=True, ack="explicit") as group:
        fill(queue, 2)
        first, *others = group.get_many(20)
        if parked:
            first.nack()
            group.ack(*others)
    before = checkpoint.read_bytes()  # with a snapshot of the member that has left
    with queue.consumer("g", group=True, ack="explicit") as group, contextlib.suppress(shmq.Empty):
        while True:
            group.ack(*group.get_many(100, timeout=0))
    queue.purge()
    gone = queue.first_index
    assert gone > 20
    queue.put(b"next")
    queue.close()
    checkpoint.write_bytes(before)
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    ring.write_bytes(content)
    queue = make(path)
    with queue.consumer("g", group=True, ack="explicit") as group:
        assert group.get(timeout=0).payload == b"next"
    assert queue.consumers()["g"].group.retired == 0


def test_a_group_far_behind_what_was_retired_goes_on_in_no_time(make):
    """Many windows of messages that nobody will see."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384), chunk_bytes=16384)
    group = queue.consumer("g", group=True, window=64)
    for _ in range(20):
        queue.put_many([b""] * 5000)
    first = queue.first_index
    with pytest.raises(shmq.Gone):
        group.get(timeout=0)
    assert group.get(timeout=0).index == first
    assert queue.consumers()["g"].group.retired == first


def test_on_a_full_disk_a_message_that_cannot_be_put_aside_is_held_and_can_be_acknowledged(queue, monkeypatch):
    """The side table has room for 511; what would be one more says DiskFull, and nothing else needs room."""
    queue.put_many([b"x"] * 520)
    with queue.consumer("g", group=True, ack="explicit") as group:
        messages = group.get_many(520)
        for message in messages[:511]:
            message.nack(delay=3600)
        with monkeypatch.context() as full:
            full.setattr(os, "posix_fallocate", no_room)
            with pytest.raises(shmq.DiskFull):
                messages[511].nack(delay=3600)
            assert group.pending == 9
            messages[511].ack()
            assert group.lag == 519
        messages[512].nack(delay=3600)
        assert (group.pending, group.lag) == (7, 519)


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---------------------------------------------------------------- a purge beyond the window
WINDOW = 64
HUNDRED = [b"%d" % number for number in range(100)]


def drained(group):
    """Every payload that still comes."""
    found = []
    with contextlib.suppress(shmq.Empty):
        while True:
            message = group.get(0)
            found.append(message.payload)
            message.ack()
    return found


@pytest.mark.parametrize("ordered_by", [None, "key"])
@pytest.mark.parametrize("end", ["ack", "nack", "close"])
def test_what_lay_beyond_the_window_at_a_purge_never_comes(make, end, ordered_by):
    queue = make()
    how = {"group": True, "ack": "explicit", "ordered_by": ordered_by}
    group, other = queue.consumer("g", window=WINDOW, **how), queue.consumer("g", **how)
    for number, payload in enumerate(HUNDRED):
        queue.put(payload, key=b"%d" % (number % 7))
    held = [group.get(0), group.get(0)]
    queue.purge()
    queue.put(b"after", key=b"1" if ordered_by else None)
    assert (group.lag, queue.consumers()["g"].dropped) == (3, 98)
    held[1].ack()
    assert other.lag == 2
    assert drained(other) == [b"after"]
    if end == "close":
        group.close()
    else:
        getattr(held[0], end)()
    assert drained(other) == []
    assert (other.lag, other.head) == (0, 101)
    assert queue.consumers()["g"].dropped == (98 if end == "ack" else 99)


def test_a_member_that_comes_after_a_purge_gets_nothing_of_what_lay_beyond_the_window(make):
    queue = make()
    group = queue.consumer("g", group=True, ack="explicit", window=WINDOW)
    queue.put_many(HUNDRED)
    held = group.get_many(3, 0)
    queue.purge()
    with queue.consumer("g", group=True, ack="explicit") as late:
        held[0].ack()
        held[2].ack()
        assert drained(late) == []
        assert group.lag == late.lag == 1
        held[1].ack()
        assert (late.lag, late.head, late.floor) == (0, 100, 100)


def test_what_lay_beyond_the_window_at_a_purge_stays_away_after_a_reboot(make, path):
    queue = make()
    group = queue.consumer("g", group=True, ack="explicit", window=WINDOW)
    queue.put_many(HUNDRED)
    group.get(0)
    queue.purge()
    left = shutil.copytree(path, f"{path}.left")
    make_unclean(left)
    with shmq.open(left) as anew, anew.consumer("g", group=True, ack="explicit") as again:
        assert drained(again) == []
        assert again.lag == 0


def test_a_group_that_nobody_asks_makes_room_when_what_it_held_at_a_purge_is_finished(make):
    queue = make(max_messages=100, full="raise")
    group = queue.consumer("g", group=True, ack="explicit", window=WINDOW)
    queue.put_many(HUNDRED)
    held = group.get(0)
    queue.purge()
    held.ack()
    queue.put_many([b"more"] * 100)
    assert group.lag == 100


def test_damage_in_what_was_purged_is_met_by_no_member(make, path):
    queue = make()
    group = queue.consumer("g", group=True, ack="explicit", window=WINDOW)
    queue.put_many(HUNDRED)
    held = group.get_many(2, 0)
    queue.purge()
    flip(chunk_files(path)[0], words(path)[0].position + 40 + 80 * 48)
    held[0].ack()
    assert drained(group) == []


def at(group):
    """Where the head stands, and how many were dropped."""
    return group._checkpoint.head, group._checkpoint.dropped


def test_found_a_group_far_behind_what_is_dropped_went_over_every_index_of_it(make):
    """The mark of a queue that was damaged on purpose lay 2^32 indexes ahead: no signal was heard meanwhile."""
    far = 1 << 50
    with make().consumer("g", group=True, ack="explicit", window=64) as group:
        ring = group._ring
        ring.drop(far)
        assert at(group) == (far, far)
        assert ring.retire(2 * far) == far
        assert at(group) == (2 * far, far)


def test_a_group_far_behind_what_is_dropped_stays_where_somebody_has_something(make):
    far = 1 << 50
    queue = make()
    queue.put_many([b"x"] * 100)
    with queue.consumer("g", group=True, ack="explicit", window=64) as group:
        ring, held = group._ring, group.get_many(2)
        ring.drop(far)
        assert at(group) == (0, 62)
        held[0].nack()
        assert at(group) == (1, 63)
        held[1].ack()
        ring.drop(far)
        assert at(group) == (far, far - 1)
        assert ring.retire(far + 10_000 * 64) == 10_000 * 64


@pytest.mark.parametrize("group", [True, False])
def test_found_a_queue_stayed_full_of_what_was_purged_when_its_holder_had_died(make, group):
    """Every put waited for ever, or until somebody opened the name."""
    queue = make(max_messages=1)
    queue.consumer("g", group=group, ack="explicit").close()
    queue.put(PAYLOAD)

    def hold(say):
        with shmq.open(queue.path) as mine, mine.consumer("g", group=group, ack="explicit") as consumer:
            consumer.get(timeout=LONG)
            hold_until_killed(say)

    with Child(hold) as child:
        child.hear()
        queue.purge()
        child.kill()
    assert queue.put(PAYLOAD, timeout=LONG) == 1
