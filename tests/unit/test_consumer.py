"""Consumers: every name sees every message; at most once with auto, at least once with explicit."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from support import HANDED, HEAD, Child, hold_until_killed, in_child, peek, run_python

import shmq
from shmq import _native
from shmq.taking import names


def checkpoint(path, name="c"):
    return Path(path, "consumers", f"{name}.checkpoint")


@pytest.fixture
def filled(queue):
    """A queue of b"0" .. b"9"."""
    queue.put_many([b"%d" % i for i in range(10)])
    return queue


def test_every_name_sees_every_message_in_order(filled):
    """Fan-out: names do not take from each other."""
    for name in ("a", "b"):
        assert [b"%d" % i for i in range(10)] == filled.consumer(name).take_many(100, timeout=0)


def test_auto_moves_the_head_before_it_hands_out(filled, path):
    """At most once: the checkpoint on disk stands behind the message when take returns."""
    consumer = filled.consumer("c")
    assert consumer.take(timeout=0) == b"0"
    assert (peek(checkpoint(path), HEAD), peek(checkpoint(path), HANDED)) == (1, 1)
    assert len(consumer.get_many(3, timeout=0)) == 3
    assert (consumer.head, consumer.lag, peek(checkpoint(path), HEAD)) == (4, 6, 4)


def test_a_name_goes_on_where_it_stopped(filled):
    """Closed and opened again, also from another handle, after kill -9 of its holder."""
    with filled.consumer("c") as consumer:
        consumer.take(timeout=0)
    with filled.consumer("c") as consumer:
        assert consumer.take(timeout=0) == b"1"

    def take_and_stay(say):
        filled.consumer("c").take(timeout=0)
        hold_until_killed(say)

    with Child(take_and_stay) as child:
        child.hear()
        child.kill()
    assert filled.consumer("c").take(timeout=0) == b"3"


def test_explicit_moves_the_head_over_what_was_acknowledged(filled, path):
    """At least once: acks may come in any order; the head stands at the first that is missing."""
    consumer = filled.consumer("c", ack="explicit")
    first, second, third = consumer.get_many(3, timeout=0)
    second.ack()
    assert (consumer.head, consumer.pending) == (0, 2)
    first.ack()
    assert (consumer.head, consumer.pending) == (2, 1)
    third.ack()
    third.ack()
    assert (consumer.head, consumer.pending, peek(checkpoint(path), HEAD)) == (3, 0, 3)


def test_explicit_hands_out_again_what_was_not_acknowledged(filled):
    """After a close and after kill -9; attempts say that it was handed out before, and not for what was not."""
    with filled.consumer("c", ack="explicit") as consumer:
        messages = consumer.get_many(3, timeout=0)
        assert [message.attempts for message in messages] == [1, 1, 1]
        consumer.ack(messages[0], messages[2])
    with filled.consumer("c", ack="explicit") as consumer:
        again = consumer.get_many(3, timeout=0)
        assert [(message.index, message.attempts) for message in again] == [(1, 2), (3, 1), (4, 1)]

    def get_and_stay(say):
        filled.consumer("d", ack="explicit").get(timeout=0)
        hold_until_killed(say)

    with Child(get_and_stay) as child:
        child.hear()
        child.kill()
    message = filled.consumer("d", ack="explicit").get(timeout=0)
    assert (message.index, message.attempts) == (0, 2)


def test_explicit_take_acknowledges_at_once(filled):
    """take and take_many have nothing to ack later."""
    consumer = filled.consumer("c", ack="explicit")
    consumer.take(timeout=0)
    assert (consumer.head, consumer.pending) == (1, 0)
    consumer.take_many(5, timeout=0)
    assert (consumer.head, consumer.pending) == (6, 0)


def test_the_ack_mode_is_the_names_for_life(filled):
    """The other one is a Mismatch that names both."""
    filled.consumer("c").close()
    with pytest.raises(shmq.Mismatch, match=r"ack='explicit'.*made with ack='auto'"):
        filled.consumer("c", ack="explicit")
    with pytest.raises(ValueError, match="sometimes"):
        filled.consumer("d", ack="sometimes")


@pytest.mark.parametrize(("start", "index"), [("earliest", 0), (4, 4), ("latest", 10)])
def test_a_new_name_begins_where_it_is_told(filled, start, index):
    """Earliest, latest or an index; and a name that exists stays where it is."""
    filled.consumer("c", start=start).close()
    filled.put(b"new")
    assert filled.consumer("c", start="earliest").get(timeout=0).index == index


def test_c9_latest_sees_every_put_that_begins_after_the_consumer_returned(queue):
    """Rule C9: the head is the tail as it is once the name exists, claims of others included."""
    slot = queue.reserve(1)
    consumer = queue.consumer("c", start="latest")
    queue.put(b"after")
    slot.commit()
    assert consumer.take_many(10, timeout=0) == [b"after"]


@pytest.mark.parametrize(
    ("start", "error"),
    [("middle", ValueError), (-1, IndexError), (None, TypeError), ([1], TypeError), (float("nan"), ValueError)],
)
def test_a_start_that_is_none_is_refused(queue, start, error):
    """And no checkpoint is made."""
    with pytest.raises(error, match=r"start=|time=nan"):
        queue.consumer("c", start=start)
    assert queue.consumers() == {}


def test_seek_goes_forward_and_back(filled):
    """What is pending is forgotten; beyond the end is an IndexError that names the ends."""
    consumer = filled.consumer("c")
    consumer.take_many(5, timeout=0)
    consumer.seek(8)
    assert consumer.take(timeout=0) == b"8"
    consumer.seek(0)
    assert (consumer.take(timeout=0), consumer.head) == (b"0", 1)
    consumer.seek(10)
    with pytest.raises(shmq.Empty):
        consumer.take(timeout=0)
    for beyond in (11, -1):
        with pytest.raises(IndexError, match="from 0 to 10"):
            consumer.seek(beyond)


def held(queue, name="c"):
    """The lock of that name, by somebody who does not say so."""
    fd = os.open(checkpoint(queue.path, name), os.O_RDWR)
    lock = _native.Lock(fd)
    os.close(fd)
    assert lock.take()
    return lock


@pytest.mark.parametrize("options", [{}, {"ack": "explicit"}])
def test_a_name_whose_lock_nobody_has_who_sits_here_is_waited_for_and_not_for_ever(filled, options, monkeypatch):
    """A child that was just forked has it until it first runs; on a busy machine the next consumer() was Busy."""
    filled.consumer("c", **options).close()
    lock = held(filled)
    with pytest.raises(shmq.Busy, match="is held by another process"):
        filled.consumer("c", **options)
    lock.free()
    monkeypatch.setattr(names, "_FORK_WITHIN", 60.0)  # so that it is the lock that ends each wait
    timer = threading.Timer(0.05, held(filled).free)
    timer.start()
    filled.consumer("c", **options).close()
    timer.join()
    for work in (lambda: filled.rename_consumer("c", "d"), lambda: filled.drop_consumer("d")):
        timer = threading.Timer(0.05, held(filled, "d" if "d" in filled.consumers() else "c").free)
        timer.start()
        work()
        timer.join()


def test_an_exclusive_name_is_busy_and_says_who_has_it(filled):
    """Held in this process, and in another one; free after the holder's death."""
    with filled.consumer("c"), pytest.raises(shmq.Busy, match=r"'c' of .* is held by this process"):
        filled.consumer("c")

    def hold(say):
        consumer = filled.consumer("c")
        hold_until_killed(say)
        consumer.close()

    with Child(hold) as child:
        child.hear()
        with pytest.raises(shmq.Busy, match=f"held by process {child.pid}"):
            filled.consumer("c")
        with pytest.raises(shmq.Busy, match="cannot drop consumer 'c'"):
            filled.drop_consumer("c")
        child.kill()
    assert filled.consumer("c").take(timeout=0) == b"0"


def test_b14_a_checkpoint_that_was_unlinked_meanwhile_is_no_name(filled, monkeypatch):
    """Rule B14: after locking, the file must still be the one of that name; a ghost's owner is told."""
    real = shmq._native.Lock.take

    def take_late(lock):
        checkpoint(filled.path).unlink()
        return real(lock)

    filled.consumer("c").close()
    monkeypatch.setattr(shmq._native.Lock, "take", take_late)
    with pytest.raises(shmq.NotFound, match="dropped while it was being opened"):
        filled.consumer("c")


def test_names_can_be_listed_and_dropped(filled):
    """With head, lag and mode; a dropped name begins anew."""
    with filled.consumer("a") as consumer:
        consumer.take_many(4, timeout=0)
    filled.consumer("b", ack="explicit").close()
    found = filled.consumers()
    assert found.keys() == {"a", "b"}
    assert found["a"] == shmq.ConsumerStats(head=4, lag=6, ack="auto")
    assert found["b"] == shmq.ConsumerStats(head=0, lag=10, ack="explicit", group=found["b"].group)
    filled.drop_consumer("a")
    assert filled.consumer("a").take(timeout=0) == b"0"
    with pytest.raises(shmq.NotFound, match="no consumer 'z'"):
        filled.drop_consumer("z")


def test_reading_goes_on_over_chunks_and_padding(queue):
    """Rolls in the middle of a batch of gets, padding between: order and indexes hold."""
    expected = []
    for i in range(60):
        if i % 7 == 3:
            queue.reserve(100).abort()
            continue
        expected.append((i, b"%d" % i * 300))
        queue.put(expected[-1][1])
    consumer = queue.consumer("c")
    got = []
    while len(got) < len(expected):
        got += [(message.index, message.payload) for message in consumer.get_many(7, timeout=0)]
    assert got == expected
    assert consumer.lag == 0  # what is behind it is padding


def test_a_killed_consumer_goes_on_from_its_head_not_from_its_cursor(make):
    """
    The cursor lies up to 256 messages before the head. What is between was handed out: it is not handed out again,
    not even looked at, and the head never goes back over it.
    """
    queue = make(chunk_bytes=1 << 20)
    queue.put_many([b"%d" % i for i in range(400)])

    def take_and_stay(say):
        consumer = queue.consumer("c")
        for _ in range(300):
            consumer.take(timeout=0)
        hold_until_killed(say)

    with Child(take_and_stay) as child:
        child.hear()
        child.kill()
    consumer = queue.consumer("c")
    assert consumer.head == 300
    message = consumer.get(timeout=0)
    assert (message.index, message.payload) == (300, b"300")


def test_iteration_ends_at_shutdown_and_at_close(filled):
    """All that is there comes first."""
    consumer = filled.consumer("c")
    filled.shutdown()
    assert [message.index for message in consumer] == list(range(10))
    consumer.close()
    assert list(consumer) == []


def test_a_shutdown_is_told_behind_padding_and_with_acks_missing(queue):
    """Whatever was handed out is drained, acknowledged or not; padding at the end is nothing to wait for."""
    queue.put(b"x")
    queue.reserve(1).abort()
    auto, explicit = queue.consumer("a"), queue.consumer("e", ack="explicit")
    queue.shutdown()
    for consumer in (auto, explicit):
        assert consumer.get(timeout=5).index == 0
        with pytest.raises(shmq.ShutDown, match="has drained it"):
            consumer.get(timeout=5)


def test_a_closed_consumer_refuses_and_can_be_closed_again(filled):
    """Every verb says Closed; a message of it cannot be acknowledged, and comes again."""
    consumer = filled.consumer("c", ack="explicit")
    message = consumer.get(timeout=0)
    consumer.close()
    consumer.close()
    for refused in (
        lambda: consumer.get(timeout=0),
        lambda: consumer.take(timeout=0),
        lambda: consumer.get_many(1, timeout=0),
        lambda: consumer.take_many(1, timeout=0),
        lambda: consumer.seek(0),
        message.ack,
    ):
        with pytest.raises(shmq.Closed, match=r"'c' of .* was closed"):
            refused()
    assert filled.consumer("c", ack="explicit").get(timeout=0).index == 0


def test_a_consumer_outlives_its_queue_handle(make):
    """Until it is closed itself; it keeps its name."""
    queue = make()
    queue.put_many([b"a", b"b"])
    consumer = queue.consumer("c", ack="explicit")
    queue.close()
    consumer.get(timeout=0).ack()
    assert (consumer.take(timeout=0), consumer.lag) == (b"b", 0)
    with pytest.raises(shmq.Empty):
        consumer.take(timeout=0.01)
    with pytest.raises(shmq.Busy):
        make().consumer("c", ack="explicit")
    consumer.close()
    make().consumer("c", ack="explicit").close()


def test_close_ends_a_wait_in_another_thread(queue):
    """The thread that waits gets Closed, whatever its timeout."""
    consumer = queue.consumer("c")
    ended = []

    def wait():
        try:
            consumer.take()
        except shmq.Closed as problem:
            ended.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    consumer.close()
    thread.join(20)
    assert len(ended) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(queue, limit):
    """get_many and take_many return at least one message."""
    consumer = queue.consumer("c")
    for many in (consumer.get_many, consumer.take_many):
        with pytest.raises(ValueError, match="limit="):
            many(limit, timeout=0)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(queue, timeout):
    """Negative and NaN: ValueError, at once."""
    with pytest.raises(ValueError, match="timeout="):
        queue.consumer("c").take(timeout=timeout)


def test_a_view_keeps_the_chunk_mapped(filled):
    """A message's view is read-only and outlives consumer and queue."""
    consumer = filled.consumer("c")
    view = consumer.get(timeout=0).view
    consumer.close()
    filled.close()
    assert (bytes(view), view.readonly) == (b"0", True)


def test_message_repr_is_for_people(queue):
    """Index, key and size."""
    queue.put(b"four", key=b"k")
    assert repr(queue[0]) == "Message(index=0, key=b'k', 4 bytes)"


def test_memory_does_not_grow_with_the_queue(make, path):
    """RssAnon of a process that puts and takes 40 MiB stays where it was, within 8 MiB."""
    code = """
import sys, shmq

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

queue = shmq.open(sys.argv[1], options=shmq.Options(chunk_bytes=1 << 20))
consumer = queue.consumer("c")
payload = bytes(8192)
queue.put(payload), consumer.take()
before = anonymous()
for _ in range(40):
    for _ in range(128):
        queue.put(payload)
    for _ in range(128):
        consumer.take(timeout=0)
print(anonymous() - before)
"""
    assert int(run_python(code, path)) < 8192


@pytest.mark.parametrize("how", [{}, {"group": True}], ids=["name", "group"])
@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_who_opens_a_name_that_is_there_may_leave_out_how_it_acknowledges(queue, how, ack):
    queue.consumer("c", ack=ack, **how).close()
    with queue.consumer("c", **how) as consumer:
        assert consumer.ack_mode == ack
        queue.put(b"x")
        consumer.get(0)
        assert consumer.pending == (ack == "explicit")
    with pytest.raises(shmq.Mismatch, match="leave"):
        queue.consumer("c", ack="auto" if ack == "explicit" else "explicit", **how)
    assert queue.consumer("new", **how).ack_mode == "auto"
    with pytest.raises(ValueError, match="ack="):
        queue.consumer("c", ack="", **how)


def test_who_joins_a_group_in_order_may_leave_out_all_that_it_was_made_with(queue):
    made = queue.consumer("g", group=True, ack="explicit", ordered_by="key", max_attempts=3, window=64)
    joined = queue.consumer("g", group=True)
    assert (joined.ack_mode, joined.options) == ("explicit", made.options)


def test_a_close_remembers_the_place_unless_something_is_pending(filled):
    """The next one need not walk to it."""
    with filled.consumer("c") as consumer:
        consumer.take_many(3, timeout=0)
    *_, ordinal, index = filled._session.home.checkpoint("c").cursor()
    assert (ordinal, index) == (3, 3)
    with filled.consumer("e", ack="explicit") as consumer:
        consumer.get_many(3, timeout=0)
    assert filled._session.home.checkpoint("e").cursor() is None


def test_a_forked_child_that_closes_its_copy_leaves_the_name_to_its_parent(filled):
    consumer = filled.consumer("c")
    consumer.take_many(3, timeout=0)
    before = filled._session.home.checkpoint("c")
    place = before.cursor()
    assert before.holder != 0
    assert place is None or place[2:] == (0, 0)  # where its chunk begins, and not where a close would leave it
    in_child(consumer.close)
    known = filled._session.home.checkpoint("c")
    assert known.holder != 0
    assert known.cursor() == place
    assert consumer.take(timeout=0) == b"3"


def test_found_attempts_behind_a_seek_were_two_until_the_name_was_opened_again(make):
    """They are counted anew, whoever looks."""
    queue = make()
    queue.put_many([b"x"] * 3)
    with queue.consumer("c", ack="explicit") as consumer:
        assert [message.attempts for message in consumer.get_many(3)] == [1, 1, 1]
        consumer.seek(1)
        assert consumer.get().attempts == 1
    with queue.consumer("c", ack="explicit") as consumer:
        assert [message.attempts for message in consumer.get_many(3)] == [2, 1]
