"""Bounds: never exceeded, whoever puts at once and whoever is killed; and nobody waits for room that is there."""

from __future__ import annotations

import contextlib
import os
import queue as stdlib_queue
import random
import signal
import struct
import threading
from pathlib import Path

import pytest
from support import (
    CLAIMED,
    DONE,
    META,
    PAD,
    Child,
    chunk_files,
    hold_until_killed,
    in_child,
    make_unclean,
    peek,
    until,
    words,
)

import shmq

ROOM_WAITERS, BOUNDS = 428, 512  # in the control page
LONG = 60.0
PAYLOAD = b"x" * 24
TAKES = 64
"""Bytes that PAYLOAD takes with its header."""


def waiting(path) -> bool:
    """Whether a producer has said that it sleeps for room."""
    return peek(Path(path, "control.shmq"), ROOM_WAITERS) & 0xFFFFFFFF == 1


def bytes_behind(path, head: int) -> int:
    """Bytes of messages and padding from index *head* to the end, by the words of the files alone."""
    total = 0
    for which, file in enumerate(chunk_files(path)):
        index = int(file.name[:16], 16)
        for word in words(path, which):
            if word.state in (DONE, PAD):
                total += word.span * 8 if index >= head else 0
                index += word.count
    return total


def put_and_say(say, queue, payload):
    """A producer that says when it waits and what came of it."""
    say("begin")
    say(queue.put(payload, timeout=LONG))


# ---------------------------------------------------------------- what a bound means
def test_a_queue_without_bounds_pays_nothing(queue, path):
    """No word of the control page has moved."""
    queue.put(b"x")
    queue.consumer("c").take()
    assert peek(Path(path, "control.shmq"), BOUNDS) == 0


def test_full_is_said_at_once_or_in_time_and_nothing_was_put(make):
    """Also as queue.Full, as the standard library has it."""
    queue = make(max_messages=2)
    queue.put_many([b"a", b"b"])
    with pytest.raises(shmq.Full, match=r"max_messages=2\); no consumer has a name; nothing was put"):
        queue.put(b"c", timeout=0)
    with pytest.raises(stdlib_queue.Full):
        queue.put_many([b"c"], timeout=0.01)
    with pytest.raises(shmq.Full):
        queue.reserve(1, timeout=0)
    assert queue.next_index == 2
    consumer = queue.consumer("c")
    assert consumer.take() == b"a"
    with pytest.raises(shmq.Full, match="consumer 'c' is the furthest behind, at index 1"):
        queue.put_many([b"c", b"d"], timeout=0)
    assert queue.put(b"c", timeout=0) == 2


def test_found_full_said_that_nobody_has_a_name_where_those_there_hold_nothing(make):
    queue = make(max_messages=2)
    queue.put_many([b"a", b"b"])
    for name in "edcb":
        queue.consumer(name, hold="nothing").close()
    said = (
        r"; no name is there that holds .* by finishing them \('b', 'c', 'd', \.\.\.: hold='nothing'\); nothing was put"
    )
    with pytest.raises(shmq.Full, match=said):
        queue.put(b"c", timeout=0)
    queue.consumer("a").close()
    with pytest.raises(shmq.Full, match="consumer 'a' is the furthest behind, at index 0; nothing was put"):
        queue.put(b"c", timeout=0)


def test_raise_never_waits(make):
    """Whatever the timeout."""
    queue = make(max_messages=1, full="raise")
    queue.put(b"a")
    for timeout in (None, LONG):
        with pytest.raises(shmq.Full):
            queue.put(b"b", timeout=timeout)


@pytest.mark.parametrize("full", ["raise", "drop_oldest"])
@pytest.mark.parametrize("recoveries", [1, 2])
def test_indexes_that_a_recovery_left_out_take_no_room(path, full, recoveries):
    """With 3 messages of 10 before a power cut the queue was full behind it, or dropped all that had been synced."""
    options = shmq.Options(chunk_bytes=16384, max_messages=10, full=full, durability=shmq.Durability.SYNC)
    with shmq.open(path, options=options) as queue, queue.consumer("c", ack="explicit"):
        queue.put_many([b"before"] * 3)
    for _ in range(recoveries):
        make_unclean(path)
        with shmq.open(path) as queue:
            after = [queue.put(b"after") for _ in range(3)]
            assert after[0] == queue.recovery.next_index >= 65536
    with shmq.open(path) as queue:
        there = [message.payload for message in queue.reader()]
        assert there == [b"before"] * 3 + [b"after"] * 3 * recoveries
        for _ in range(10 - len(there)):
            queue.put(b"last", timeout=0)
        with queue.consumer("c", ack="explicit") as consumer:
            if full == "raise":
                with pytest.raises(shmq.Full):
                    queue.put(b"one too many")
            else:
                queue.put_many([b"four", b"more", b"than", b"fit"])
                assert consumer.get(timeout=0).payload == b"after"
                assert consumer.lag == 10


def test_the_slowest_name_counts(make):
    """Room is from the smallest head on; a name that is dropped holds nobody."""
    queue = make(max_messages=4)
    fast, slow = queue.consumer("fast"), queue.consumer("slow")
    queue.put_many([b"x"] * 4)
    fast.take_many(4)
    with pytest.raises(shmq.Full, match="'slow'"):
        queue.put(b"y", timeout=0)
    slow.take()
    queue.put(b"y", timeout=0)
    slow.close()
    queue.drop_consumer("slow")
    assert queue.put_many([b"z"] * 3, timeout=0) == range(5, 8)
    with pytest.raises(shmq.Full):
        queue.put(b"z", timeout=0)


def test_an_explicit_name_makes_room_by_acknowledging(make):
    """Not by being handed a message."""
    queue = make(max_messages=2)
    consumer = queue.consumer("c", ack="explicit")
    queue.put_many([b"a", b"b"])
    first, second = consumer.get(), consumer.get()
    second.ack()
    with pytest.raises(shmq.Full):
        queue.put(b"c", timeout=0)
    first.ack()
    assert queue.put_many([b"c", b"d"], timeout=0) == range(2, 4)


def test_what_lies_behind_a_seek_or_a_new_name_counts_again(make):
    """Nothing goes, and nobody puts until there is less."""
    queue = make(max_messages=3)
    consumer = queue.consumer("c")
    queue.put_many([b"x"] * 3)
    consumer.take_many(3)
    queue.put_many([b"y"] * 3, timeout=0)
    consumer.seek(1)
    with pytest.raises(shmq.Full):
        queue.put(b"z", timeout=0)
    consumer.seek(6)
    queue.put(b"z", timeout=0)
    queue.consumer("late", start=2)
    with pytest.raises(shmq.Full, match="'late' is the furthest behind, at index 2"):
        queue.put(b"z", timeout=0)


def test_padding_in_front_holds_nobody(make, path):
    """A full queue of claims that were given up is empty, with or without a consumer."""
    queue = make(max_messages=3)
    for round_ in range(3):
        slots = [queue.reserve(8, timeout=0) for _ in range(3)]
        with pytest.raises(shmq.Full):
            queue.put(b"x", timeout=0)
        for slot in slots:
            slot.abort()
        if round_ == 1:
            queue.consumer("c").close()
    assert queue.put_many([b"x"] * 3, timeout=0) == range(9, 12)
    assert {word.state for word in words(path)} == {DONE, PAD}


def test_what_can_never_fit_is_refused_by_name(make):
    """However long one would wait."""
    queue = make(max_messages=3, max_bytes=1000)
    with pytest.raises(shmq.TooMany, match="max_messages=3, so there never is room"):
        queue.put_many([b"x"] * 4)
    with pytest.raises(shmq.TooLarge, match="max_bytes=1000, so there never is room"):
        queue.put(bytes(961))
    queue.put(bytes(960))
    assert queue.next_index == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_messages": 0}, ValueError),
        ({"max_bytes": -1}, ValueError),
        ({"max_messages": 1.5}, TypeError),
        ({"max_bytes": True}, TypeError),
        ({"full": "explode"}, ValueError),
    ],
)
def test_bounds_that_mean_nothing_are_refused(options, problem):
    """Before anything is made."""
    with pytest.raises(problem):
        shmq.Options(**options)


# ---------------------------------------------------------------- bytes
def test_bytes_are_counted_as_they_lie_in_the_chunks(make, path):
    """Exactly: up to the bound and no further, over many chunks, index blocks not counted."""
    queue = make(max_bytes=100 * TAKES, index_spacing=1, chunk_bytes=1 << 18)
    consumer = queue.consumer("c")
    for round_ in range(60):
        while True:
            try:
                queue.put(PAYLOAD, timeout=0)
            except shmq.Full:
                break
        assert bytes_behind(path, consumer.head) == 100 * TAKES, round_
        while consumer.lag:
            consumer.take_many(100)
    blocks = [word for word in words(path, len(chunk_files(path)) - 1, meta=True) if word.state == META]
    assert len(blocks) > 2
    assert queue.next_index == 60 * 100


def test_bytes_of_all_sizes_never_exceed_the_bound(make, path):
    """What was refused would have been too much, what was not was not."""
    dice = random.Random(7)
    queue = make(max_bytes=20_000)
    consumer = queue.consumer("c")
    for _ in range(600):
        size = dice.randrange(3000)
        takes = 40 + -(-size // 8) * 8
        before = bytes_behind(path, consumer.head)
        if dice.random() < 0.4 and before:
            consumer.take()
            continue
        try:
            queue.put(bytes(size), timeout=0)
        except shmq.Full:
            assert before + takes > 20_000
        else:
            assert bytes_behind(path, consumer.head) == before + takes <= 20_000


def test_a_batch_longer_than_a_chunk_fits_a_bound_that_holds_it(make):
    """The roll in between costs no room."""
    queue = make(max_bytes=64_000)
    consumer = queue.consumer("c")
    for _ in range(5):
        queue.put_many([bytes(960)] * 64, timeout=0)
        with pytest.raises(shmq.Full):
            queue.put(b"", timeout=0)
        assert len(consumer.take_many(64)) == 64


# ---------------------------------------------------------------- waiting for room
@pytest.mark.parametrize("bound", [{"max_messages": 2}, {"max_bytes": 2 * TAKES}], ids=lambda bound: next(iter(bound)))
def test_a_blocked_producer_goes_on_when_a_consumer_does(make, path, bound):
    """It sleeps without looking, and the take wakes it."""
    queue = make(**bound)
    consumer = queue.consumer("c")
    queue.put_many([PAYLOAD] * 2)
    with Child(put_and_say, queue, PAYLOAD) as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        consumer.take()
        assert child.hear(LONG) == "2"


def wakes_by_ack(queue):
    message = queue.consumer("e", ack="explicit").get()
    message.ack()


def wakes_by_drop(queue):
    consumer = queue.consumer("e")
    consumer.close()
    queue.drop_consumer("c")
    queue.consumer("e").take()


def wakes_by_seek(queue):
    queue.consumer("c").seek(1)


def wakes_by_bounds(queue):
    queue.set_bounds(max_messages=2)


def wakes_by_no_bounds(queue):
    queue.set_bounds(max_messages=None)


@pytest.mark.parametrize("way", [wakes_by_seek, wakes_by_bounds, wakes_by_no_bounds, wakes_by_drop])
def test_whatever_makes_room_wakes(make, path, way):
    """Each way by itself."""
    queue = make(max_messages=1)
    queue.consumer("c").close()
    queue.put(b"a")
    with Child(put_and_say, queue, b"b") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        way(queue)
        assert child.hear(LONG) == "1"


def test_an_acknowledgement_wakes(make, path):
    """The head moved in Python."""
    queue = make(max_messages=1)
    queue.put(b"a")
    message = queue.consumer("e", ack="explicit").get()
    with Child(put_and_say, queue, b"b") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        message.ack()
        assert child.hear(LONG) == "1"


def test_the_death_of_a_claim_that_took_the_room_wakes(make, path):
    """It never became a message; the one that waits pads it and goes on, with no consumer about."""
    queue = make(max_messages=2)

    def claim(say):
        slots = [queue.reserve(8), queue.reserve(8)]
        say("claimed")
        hold_until_killed(say)
        del slots

    with Child(claim) as owner:
        assert owner.hear() == "claimed"
        with Child(put_and_say, queue, b"b") as child:
            assert child.hear() == "begin"
            until(lambda: waiting(path), LONG)
            owner.kill()
            assert child.hear(LONG) == "2"


def test_an_aborted_claim_wakes(make, path):
    """Likewise, without a death."""
    queue = make(max_messages=1)
    slot = queue.reserve(8)
    with Child(put_and_say, queue, b"b") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        slot.abort()
        assert child.hear(LONG) == "1"


def test_a_shutdown_ends_the_waiting(make, path):
    """ShutDown, and nothing was put."""
    queue = make(max_messages=1)
    queue.put(b"a")

    def wait(say):
        say("begin")
        try:
            queue.put(b"b", timeout=LONG)
        except shmq.ShutDown as problem:
            say(problem)

    with Child(wait) as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        queue.shutdown()
        assert "nothing was put" in child.hear(LONG)


def test_closing_the_handle_ends_the_waiting(make, path):
    """In another thread."""
    queue = make(max_messages=1)
    queue.put(b"a")
    producer = queue.producer()
    said = []

    def wait():
        try:
            producer.put(b"b")
        except shmq.errors.Closed as problem:
            said.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: waiting(path), LONG)
    producer.close()
    thread.join(LONG)
    assert len(said) == 1


@pytest.mark.usefixtures("uncollected")
def test_a_signal_interrupts_the_waiting(make, path):
    """Ctrl-C works, and nothing was put."""
    queue = make(max_messages=1)
    queue.put(b"a")

    def interrupt(say):
        say("here")
        until(lambda: waiting(path), LONG)
        os.kill(os.getppid(), signal.SIGINT)

    with Child(interrupt) as child:
        assert child.hear() == "here"
        with pytest.raises(KeyboardInterrupt):
            queue.put(b"b", timeout=LONG)
        assert child.join(LONG) == 0
    assert queue.next_index == 1


# ---------------------------------------------------------------- changing them
def test_bounds_change_on_a_live_queue_for_everybody(make, path):
    """What is left out stays; other processes and later openers see it."""
    queue = make()
    assert (queue.stats().max_messages, queue.stats().max_bytes) == (None, None)
    queue.put_many([b"x"] * 5)
    queue.set_bounds(max_messages=3)
    with pytest.raises(shmq.Full):
        queue.put(b"y", timeout=0)
    queue.set_bounds(max_bytes=10_000)
    assert (queue.stats().max_messages, queue.stats().max_bytes) == (3, 10_000)

    def look():
        with shmq.open(path, options=shmq.Options(max_messages=3)) as other:
            return other.options.max_messages, other.options.max_bytes

    assert in_child(look) == "(3, 10000)"
    queue.set_bounds(max_messages=None, max_bytes=None)
    assert queue.put(b"y", timeout=0) == 5
    with pytest.raises(ValueError, match="max_messages=0: from 1 to"):
        queue.set_bounds(max_messages=0)


def test_bounds_that_only_the_journal_knows_are_taken_up(make, path):
    """Whoever set them was killed before everybody could see; or the machine was started again."""
    queue = make(max_messages=1)
    queue.put(b"x")
    queue.close()
    with open(Path(path, "control.shmq"), "r+b") as control:
        control.seek(BOUNDS)
        control.write(bytes(32))
    queue = make()
    with pytest.raises(shmq.Full):
        queue.put(b"y", timeout=0)


# ---------------------------------------------------------------- dropping the oldest
def test_the_oldest_are_dropped_and_counted(make):
    """Each name sees the newest, and is told how many it missed."""
    queue = make(max_messages=3, full="drop_oldest")
    early, late = queue.consumer("early"), queue.consumer("late")
    for i in range(5):
        queue.put(b"%d" % i)
        if i < 2:
            assert early.take() == b"%d" % i
    assert early.take_many(9) == [b"2", b"3", b"4"]
    assert queue.stats().consumers["late"].dropped == 2
    assert late.take_many(9) == [b"2", b"3", b"4"]
    told = {name: each.dropped for name, each in queue.stats().consumers.items()}
    assert told == {"early": 0, "late": 2}


def test_dropping_by_bytes_keeps_as_much_as_fits(make, path):
    """Not one message fewer; over many chunks, which go."""
    queue = make(max_bytes=20 * TAKES, full="drop_oldest")
    consumer = queue.consumer("c")
    for i in range(3000):
        queue.put(b"%024d" % i)
    assert len(chunk_files(path)) <= 2
    assert consumer.take_many(99) == [b"%024d" % i for i in range(2980, 3000)]
    queue.put(bytes(19 * TAKES - 40 + 8))
    assert consumer.take_many(99) == [bytes(19 * TAKES - 40 + 8)]
    assert queue.stats().consumers["c"].dropped == 2980


def test_what_is_handed_out_and_not_acknowledged_is_never_dropped(make, path):
    """The put waits for the acknowledgement instead; what was given back may be dropped."""
    queue = make(max_messages=2, full="drop_oldest")
    consumer = queue.consumer("c", ack="explicit")
    queue.put_many([b"a", b"b"])
    first = consumer.get()
    with pytest.raises(shmq.Full):
        queue.put(b"c", timeout=0)
    with Child(put_and_say, queue, b"c") as child:
        assert child.hear() == "begin"
        until(lambda: waiting(path), LONG)
        first.ack()
        assert child.hear(LONG) == "2"
    second = consumer.get()
    assert second.payload == b"b"
    consumer.close()  # it was not acknowledged
    again = queue.consumer("c", ack="explicit")
    message = again.get()
    assert (message.payload, message.attempts) == (b"b", 2)
    with pytest.raises(shmq.Full):
        queue.put(b"d", timeout=0)
    again.close()
    queue.put(b"d", timeout=0)
    with queue.consumer("c") as later:
        assert later.take(timeout=0) == b"c"
        assert queue.consumers()["c"].dropped == 1
        queue.put(b"e", timeout=0)
        assert later.take_many(9) == [b"d", b"e"]
    assert queue.stats().consumers["c"].dropped == 1


def test_without_a_name_the_oldest_are_dropped_for_those_to_come(make):
    """A name that begins at the earliest begins behind them."""
    queue = make(max_messages=2, full="drop_oldest")
    for i in range(1000):
        queue.put(b"%d" % i)
    assert queue.consumer("c").take_many(9) == [b"998", b"999"]


def test_a_consumer_that_stands_still_in_a_chunk_that_goes_is_not_told_gone(make, path):
    """What it misses was dropped, and is counted."""
    queue = make(max_messages=10, full="drop_oldest")
    for ack in ("auto", "explicit"):
        queue.consumer(ack, ack=ack).close()
    consumers = {ack: queue.consumer(ack, ack=ack) for ack in ("auto", "explicit")}
    queue.put(b"first")
    for consumer in consumers.values():
        assert consumer.take() == b"first"
    for i in range(2000):
        queue.put(b"%d" % i)
    for consumer in consumers.values():
        assert consumer.take_many(99) == [b"%d" % i for i in range(1990, 2000)]
    assert {each.dropped for each in queue.stats().consumers.values()} == {1990}


# ---------------------------------------------------------------- adoption
def test_a_set_is_adopted_only_where_there_is_room_for_all_of_it(make):
    """Full, and it can be tried again."""
    queue = make(max_messages=10)
    consumer = queue.consumer("c")
    queue.put_many([b"x"] * 4)
    staged = queue.stage()
    staged.put_many([b"s"] * 7)
    with pytest.raises(shmq.Full):
        queue.adopt(staged)
    assert queue.put(b"y", timeout=0) == 4
    consumer.take_many(2)
    assert queue.adopt(staged) == range(5, 12)
    with pytest.raises(shmq.Full):
        queue.put(b"z", timeout=0)
    assert consumer.take_many(3) == [b"x", b"x", b"y"]
    assert consumer.take_many(99) == [b"s"] * 7
    large = queue.stage()
    large.put_many([b"s"] * 11)
    with pytest.raises(shmq.TooMany):
        queue.adopt(large)


# ---------------------------------------------------------------- retention
def test_what_retention_takes_makes_room(make):
    """By bytes, a chunk goes whether a name has finished it or not."""
    queue = make(max_messages=2000, retention=shmq.Retention.bytes(3 * 16384))
    queue.consumer("c").close()
    for _ in range(3000):
        try:
            queue.put(bytes(100), timeout=0)
        except shmq.Full:
            pytest.fail("the first message still there is less than 2,000 behind")
    queue.set_bounds(max_messages=1)
    with pytest.raises(shmq.Full):
        queue.put(b"x", timeout=0)


def test_what_retention_takes_makes_room_also_for_who_has_it_mapped(make):
    """The producer had looked for room there before, and has the chunk in which the name stands open yet."""
    queue = make(max_messages=12, retention=shmq.Retention.bytes(1 << 16), full="raise")
    queue.put_many([bytes(4000)] * 6)
    with queue.consumer("c") as consumer:
        consumer.take_many(6)
    queue.put_many([bytes(6000)] * 6 + [b"x"] * 6)
    with pytest.raises(shmq.Full):
        queue.put(b"x")
    queue.set_bounds(max_messages=13)
    queue.put(bytes(60_000))
    queue.set_bounds(max_messages=12)
    assert queue.first_index >= 12
    assert len(queue.put_many([b"x"] * 6)) == 6


# ---------------------------------------------------------------- all at once
def padding_at(path, head: int) -> int:
    """How many indexes from *head* on are padding that nobody has to finish."""
    padded = 0
    for which, file in enumerate(chunk_files(path)):
        index = int(file.name[:16], 16)
        for word in words(path, which):
            if index >= head and word.state in (DONE, CLAIMED):
                return padded
            padded += word.count if word.state == PAD and index >= head else 0
            index += word.count
    return padded


PRODUCERS, EACH = 8, 150


def produce(say, path, number):
    """One of eight."""
    with shmq.open(path) as queue:
        for i in range(EACH):
            queue.put(struct.pack("<II", number, i).ljust(24), timeout=LONG)
    say("done")


def claim_once(say, path):
    """One that is killed with a claim open, in the middle of a put as it were."""
    with shmq.open(path) as queue:
        slot = queue.reserve(24, timeout=LONG)
        say("claimed")
        hold_until_killed(say)
        slot.abort()


@pytest.mark.parametrize("bound", [{"max_messages": 5}, {"max_bytes": 5 * TAKES}], ids=lambda bound: next(iter(bound)))
def test_eight_processes_at_once_never_exceed_a_bound_and_kills_leak_no_room(make, path, bound):
    """While the only head stands still there are never more than five behind it; and at last there is room for five."""
    queue = make(**bound)
    consumer = queue.consumer("c")
    got = {number: [] for number in range(PRODUCERS)}

    def take_one(timeout):
        head = consumer.head
        assert queue.next_index - head <= 5 + padding_at(path, head)
        number, i = struct.unpack_from("<II", consumer.take(timeout))
        got[number].append(i)

    children = [Child(produce, path, number) for number in range(PRODUCERS)]
    try:
        for _ in range(3):
            with Child(claim_once, path) as claimer:
                while not claimer.has_spoken():
                    with contextlib.suppress(shmq.Empty):  # it waits at the claim
                        take_one(0.05)
                claimer.kill()
        for victim in (3, 6):
            for _ in range(100):
                take_one(LONG)
            children[victim].kill()
        while any(len(got[number]) < EACH for number in range(PRODUCERS) if number not in (3, 6)):
            take_one(LONG)
    finally:
        for child in children:
            child.__exit__()
    with contextlib.suppress(shmq.Empty):
        while True:
            take_one(0)
    assert all(sequence == list(range(len(sequence))) for sequence in got.values())
    assert len(queue.put_many([PAYLOAD] * 5, timeout=0)) == 5
    with pytest.raises(shmq.Full):
        queue.put(PAYLOAD, timeout=0)


def test_a_delayed_message_that_was_dropped_is_not_waited_for(make):
    queue = make(max_messages=3, full="drop_oldest")
    queue.put(b"later", delay=3600)
    with queue.consumer("a") as consumer:
        queue.put_many([b"1", b"2", b"3"])
        assert consumer.take_many(9, timeout=0) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("bound", "problem"), [("max_messages", shmq.TooMany), ("max_bytes", shmq.TooLarge)])
def test_a_batch_that_waits_is_refused_when_other_bounds_leave_it_no_room_ever(make, path, bound, problem):
    queue = make(**{bound: 10 if bound == "max_messages" else 640})
    queue.put_many([b"x" * 24] * 10)
    told = []

    def put():
        try:
            queue.put_many([b"x" * 24] * 5)
        except shmq.ShmqError as refused:
            told.append(type(refused))

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    until(lambda: waiting(path), LONG)
    queue.set_bounds(**{bound: 4 if bound == "max_messages" else 256})
    thread.join(LONG)
    assert told == [problem]


def test_a_slot_that_was_dropped_before_it_was_committed_is_counted_as_dropped(make):
    queue = make(max_messages=3, full="drop_oldest")
    consumers = [queue.consumer("c"), queue.consumer("g", group=True)]
    slot = queue.reserve(1)
    for number in range(1, 6):
        queue.put(b"%d" % number)
    assert slot.commit() == 0
    for consumer in consumers:
        assert consumer.take_many(10, 0) == [b"3", b"4", b"5"]
    assert [stats.dropped for stats in queue.consumers().values()] == [3, 3]
