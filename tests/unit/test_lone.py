"""A consumer with explicit acknowledgements that one handle holds at a time: a group of one, in the queue's order."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest
from support import Child, hold_until_killed, in_child, until

import shmq
from shmq import _native
from shmq.storage import names, pins, ring
from shmq.taking.names import make_checkpoint

LONG = 30


def lone(queue, name="c", **given):
    return queue.consumer(name, ack="explicit", **given)


def indexes(messages):
    return [message.index for message in messages]


# ---------------------------------------------------------------- who holds it, and what it is
def test_it_has_the_verbs_of_a_group_and_is_none(queue):
    queue.put(b"x")
    with lone(queue) as consumer:
        assert isinstance(consumer, shmq.LoneConsumer)
        assert repr(consumer) == f"<shmq.LoneConsumer 'c' of {queue.place} (ack=explicit, head 0, holds 0)>"
        stats = queue.stats().consumers["c"]
        assert (stats.ack, stats.shared, stats.group.window) == ("explicit", False, 65536)
        with pytest.raises(shmq.Mismatch, match="as a group: it was made without group=True"):
            queue.consumer("c", group=True)
    assert isinstance(queue.consumer("c"), shmq.LoneConsumer)  # as it was made
    with pytest.raises(shmq.Mismatch, match=r"with ack='auto': it was made with ack='explicit'"):
        queue.consumer("c", ack="auto")
    queue.consumer("a").close()
    with pytest.raises(shmq.Mismatch, match=r"with ack='explicit': it was made with ack='auto'"):
        lone(queue, "a")
    queue.consumer("g", group=True).close()
    for ack in ("explicit", "auto", None):
        with pytest.raises(shmq.Mismatch, match="it is a group; open it with group=True"):
            queue.consumer("g", ack=ack)


def test_options_of_a_name_that_does_not_acknowledge_are_refused(queue):
    with pytest.raises(TypeError, match=r'max_attempts=...\) needs ack="explicit" or group=True'):
        queue.consumer("c", max_attempts=3)
    with lone(queue, max_attempts=3, window=64) as consumer:
        assert consumer.options["max_attempts"] == 3
    with pytest.raises(shmq.Mismatch, match="max_attempts=4: it was made with max_attempts=3"):
        lone(queue, max_attempts=4)


def test_one_handle_holds_it_and_is_named(queue):
    def have(say):
        consumer = lone(queue)
        consumer.close()
        kept.append(lone(queue))
        hold_until_killed(say)

    kept = []
    with Child(have) as child:
        child.hear()
        with pytest.raises(shmq.Busy, match=f"consumer 'c' of .* is held by process {child.pid}"):
            lone(queue)
        child.kill()
    consumer = lone(queue)
    with pytest.raises(shmq.Busy, match="is held by this process"):
        lone(queue)
    assert queue._session.home.checkpoint("c").holder == queue._session.joined().member.owner
    consumer.close()
    assert queue._session.home.checkpoint("c").holder == 0


def test_a_forked_child_is_told_to_open_its_own(queue):
    queue.put_many([b"x"] * 3)
    consumer = lone(queue)
    message = consumer.get()

    def tried():
        for verb in (consumer.get, lambda: consumer.get_many(2), consumer.take, message.ack, lambda: consumer.lag):
            with pytest.raises(shmq.Forked):
                verb()
        return consumer.closed if hasattr(consumer, "closed") else "refused"

    assert in_child(tried) in ("refused", "False")
    message.ack()
    assert consumer.get().index == 1


def test_a_name_that_an_earlier_version_made_is_refused_with_how_to_go_on(queue):
    queue.put_many([b"x"] * 5)
    home = queue._session.home
    with home.admin():
        make_checkpoint(home, "old", 3, explicit=True, kind=_native.CHECKPOINT_EXCLUSIVE)
    for ack in ("explicit", None):
        with pytest.raises(shmq.Mismatch, match=r"start=3\) go on there"):
            queue.consumer("old", ack=ack)
    queue.drop_consumer("old")
    assert lone(queue, "old", start=3).get().index == 3


def test_it_may_hold_chunks_back_until_it_is_told_otherwise(queue):
    lone(queue, hold=True).close()
    assert pins.holds(queue._session.home, "c") is True
    lone(queue).close()
    assert pins.holds(queue._session.home, "c") is True
    lone(queue, hold=False).close()
    assert pins.holds(queue._session.home, "c") is False


# ---------------------------------------------------------------- order, and what comes again
def test_what_a_dead_holder_had_comes_first_in_order_and_what_it_acknowledged_does_not(queue):
    queue.put_many([b"%d" % number for number in range(8)])

    def work(say):
        consumer = lone(queue)
        had = consumer.get_many(5)
        consumer.ack(had[3], had[1])
        hold_until_killed(say)

    with Child(work) as child:
        child.hear()
        child.kill()
    with lone(queue) as consumer:
        assert consumer.lag == 6
        again = consumer.get_many(5)
        assert [(message.index, message.attempts) for message in again] == [(0, 2), (2, 2), (4, 2), (5, 1), (6, 1)]
        consumer.ack(*again)
        assert consumer.get().index == 7


def test_what_was_given_back_and_what_is_fresh_come_in_one_batch(queue):
    queue.put_many([b"%d" % number for number in range(6)])
    with lone(queue) as consumer:
        consumer.get_many(2)
    with lone(queue) as consumer:
        assert indexes(consumer.get_many(4)) == [0, 1, 2, 3]
    with lone(queue) as consumer:
        assert consumer.take_many(9) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert (consumer.head, consumer.lag, consumer.pending) == (6, 0, 0)


def test_what_waits_for_its_time_is_passed_by_the_others(queue):
    queue.put(b"later", delay=0.2)
    queue.put(b"now")
    with lone(queue) as consumer:
        assert consumer.take(timeout=0) == b"now"
        assert consumer.take(timeout=LONG) == b"later"


def test_its_messages_have_all_verbs(queue):
    queue.put_many([b"%d" % number for number in range(4)])
    with lone(queue, max_attempts=2) as consumer:
        back, rejected, kept, last = consumer.get_many(4)
        back.nack()
        rejected.reject("no good")
        kept.extend(60)
        consumer.ack(kept, last)
        assert consumer.get(timeout=LONG).attempts == 2
    with lone(queue) as consumer, pytest.raises(shmq.Empty):
        consumer.get(timeout=0)
    with shmq.open(f"{queue.place}.c.dead", create=False) as dead:
        until(lambda: len(dead) == 2, LONG)
        assert sorted(message.headers["shmq.index"] for message in dead.reader()) == [0, 1]


def test_a_seek_forgets_what_it_has_and_counts_anew(queue):
    queue.put_many([b"x"] * 6)
    with lone(queue) as consumer:
        had = consumer.get_many(4)
        consumer.seek(2)
        assert (consumer.head, consumer.pending, consumer.get().attempts) == (2, 0, 1)
        with pytest.raises(shmq.LeaseLost):
            had[0].ack()
        with pytest.raises(shmq.Busy):  # it is held through it
            queue.consumer("c")


# ---------------------------------------------------------------- threads, and what is dropped
@pytest.mark.parametrize("hold", [None, True, "nothing"])
def test_what_was_purged_does_not_come_whatever_the_name_holds(queue, hold):
    queue.put_many([b"x"] * 3)
    with lone(queue, hold=hold):
        pass
    queue.purge()
    queue.put(b"new")
    with lone(queue) as consumer:
        assert consumer.get_many(9, timeout=0)[0].payload == b"new"


def test_found_a_thread_that_waited_kept_another_one_from_acknowledging(make):
    """With one message at a time it waited for ever: the put for the ack, the ack for the get, the get for the put."""
    queue = make(max_messages=1)
    consumer = lone(queue)
    queue.put(b"first")
    message = consumer.get()
    got = []
    waiting = threading.Thread(target=lambda: got.append(consumer.get(timeout=LONG).payload))
    waiting.start()
    acknowledging = threading.Thread(target=message.ack)
    acknowledging.start()
    acknowledging.join(LONG)
    assert not acknowledging.is_alive()
    queue.put(b"second", timeout=LONG)
    waiting.join(LONG)
    assert got == [b"second"]


def test_where_its_ring_has_no_room_left_it_says_what_it_holds(queue):
    queue.put_many([b"x"] * 100)
    with lone(queue, window=64) as consumer:
        had = [consumer.get(timeout=0) for _ in range(64)]
        with pytest.raises(shmq.Empty, match=r"consumer 'c' .* its window is full, 64 of 64 .*holds 64 itself"):
            consumer.get(timeout=0)
        consumer.ack(*had)
        assert consumer.get(timeout=0).index == 64


def test_found_a_dropped_name_without_its_ring_was_damage_after_a_power_cut(queue, monkeypatch):
    """The checkpoint is gone on the disk before what it needs."""
    lone(queue).close()
    done = []
    remove, sync = ring.remove, names.sync.directory
    monkeypatch.setattr(ring, "remove", lambda *given: done.append("remove") or remove(*given))
    monkeypatch.setattr(names.sync, "directory", lambda *given: done.append("sync") or sync(*given))
    queue.drop_consumer("c")
    assert done.index("sync") < done.index("remove")
    del done[:]
    lone(queue).close()
    del done[:]
    queue.rename_consumer("c", "d")
    assert "remove" in done[1:]
    assert done[len(done) - 1 - done[::-1].index("remove") - 1] == "sync"
    assert os.path.exists(f"{queue.path}/consumers/d.ring")


# ---------------------------------------------------------------- what comes back, and when
@pytest.mark.parametrize("group", [False, True])
def test_what_is_given_back_does_not_starve_where_a_name_is_opened_for_each_batch(queue, group):
    first = queue.put(b"first")
    with queue.consumer("c", group=group, ack="explicit") as consumer:
        consumer.get(timeout=LONG).nack()
    seen = []
    for _ in range(3):
        queue.put(b"another")
        queue.put(b"and one more")
        with queue.consumer("c", group=group, ack="explicit") as consumer:
            message = consumer.get(timeout=LONG)
            seen.append(message.index)
            message.ack()
    assert first in seen[:2]


def test_what_was_given_back_comes_lowest_first_by_whichever_way(queue):
    queue.put_many([b"x"] * 12)

    def give_back_some_and_hang(say):
        with lone(queue) as consumer:
            held = consumer.get_many(10, timeout=LONG)
            for message in reversed(held[4:8]):
                message.nack()
            hold_until_killed(say)

    with Child(give_back_some_and_hang) as child:
        child.hear()
        child.kill()
    with lone(queue) as consumer:
        consumer.get_many(2, timeout=LONG)  # and leaves, with those in its hands
    with lone(queue) as consumer:
        assert indexes(consumer.get_many(12, timeout=LONG)) == list(range(12))


def test_more_than_are_looked_for_at_once_come_lowest_first(queue):
    count = 1_500
    queue.put_many([b"x"] * count)
    with lone(queue) as consumer:
        for message in reversed([message for _ in range(3) for message in consumer.get_many(500, timeout=LONG)]):
            message.nack()
        found = []
        while len(found) < count:
            found += indexes(messages := consumer.get_many(1 + len(found) % 7, timeout=LONG))
            consumer.ack(*messages)
        assert found == list(range(count))
        assert consumer.lag == 0


@pytest.mark.parametrize("group", [False, True])
def test_what_a_call_claimed_and_nobody_was_handed_comes_back_when_the_consumer_closes(queue, group):
    queue.put_many([b"x"] * 3)
    with queue.consumer("c", group=group, ack="explicit") as consumer:
        consumer.get(timeout=LONG).nack(delay=0.001)
        until(lambda: consumer._ring.retake(1, _native.taken_array(1), idle=True)[0] == 1)  # parked, and forgotten
        assert consumer._walk.claim(1, 0, _native.taken_array(1)) == 1  # in the window
        with queue.consumer("c", group=True, ack="explicit") if group else contextlib.nullcontext():
            pass  # one of two does not give back what is the other's
        assert consumer.get(timeout=LONG).index == 2
        assert len(consumer._account.held) == 1
    with queue.consumer("c", group=group, ack="explicit") as consumer:
        found = indexes(consumer.get_many(3, timeout=LONG))
        while len(found) < 3:
            found += indexes(consumer.get_many(3, timeout=LONG))
        assert sorted(found) == [0, 1, 2]


@pytest.mark.parametrize("group", [False, True])
def test_what_nobody_was_handed_is_no_message_to_acknowledge(queue, group):
    queue.put(b"x")
    with queue.consumer("c", group=group, ack="explicit") as consumer:
        for message in (queue[0], consumer.peek(), next(iter(queue.reader()))):
            with pytest.raises(
                TypeError, match=r"message 0 was handed out by nobody .*: it comes from peek\(\), an index"
            ):
                consumer.ack(message)
        with pytest.raises(AttributeError, match=r"has no nack: message.nack\(\)"):
            consumer.nack  # noqa: B018
