"""Threads share a queue, a producer, a consumer: nothing lost, nothing doubled."""

from __future__ import annotations

import threading

import shmq


def run(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_put_and_roll_at_once(queue):
    """Six threads, two messages to a chunk: a roll in one never unmaps the chunk that another is putting into."""
    run(*[lambda: [queue.put(bytes(7000)) for _ in range(150)]] * 6)
    assert len(queue) == 900
    assert sum(len(message.payload) for message in queue.reader()) == 900 * 7000


def test_batches_and_slots_of_threads_do_not_mix(queue):
    """Each batch is whole and in one piece, each slot in its place."""

    def batches(mark):
        for i in range(40):
            queue.put_many([b"%c%d" % (mark, i)] * 5)

    def slots():
        for _ in range(60):
            with queue.reserve(300) as slot:
                slot.buffer[:] = b"s" * 300

    run(lambda: batches(ord("a")), lambda: batches(ord("b")), slots)
    payloads = [message.payload for message in queue.reader()]
    assert payloads.count(b"s" * 300) == 60
    at = 0
    while at < len(payloads):
        if payloads[at] == b"s" * 300:
            at += 1
            continue
        assert payloads[at : at + 5] == [payloads[at]] * 5
        at += 5
    assert len(payloads) == 60 + 2 * 40 * 5


def test_threads_share_a_consumer(queue):
    """Every message goes to one of them, once; with take, get, take_many and get_many at the same time."""
    queue.put_many([b"%d" % i for i in range(4000)])
    consumer = queue.consumer("c")
    got = []

    def drain(take):
        try:
            while True:
                got.extend(take())
        except shmq.Empty:
            pass

    run(
        lambda: drain(lambda: [consumer.take(timeout=0)]),
        lambda: drain(lambda: [consumer.get(timeout=0).payload]),
        lambda: drain(lambda: consumer.take_many(7, timeout=0)),
        lambda: drain(lambda: [message.payload for message in consumer.get_many(7, timeout=0)]),
    )
    assert sorted(got, key=int) == [b"%d" % i for i in range(4000)]


def test_threads_acknowledge_each_others_messages(queue):
    """Acks from any thread, in any order; in the end the head is at the end."""
    queue.put_many([b"x"] * 1000)
    consumer = queue.consumer("c", ack="explicit")
    messages = consumer.get_many(1000, timeout=0)
    run(*[lambda part=part: [message.ack() for message in messages[part::4]] for part in range(4)])
    assert (consumer.head, consumer.pending, consumer.lag) == (1000, 0, 0)


def test_open_and_close_in_many_threads(make):
    """Handles come and go; the seat is one; what was put is there."""
    queue = make()

    def come_and_go():
        for _ in range(30):
            with shmq.open(queue.path) as handle:
                handle.put(b"x")

    run(*[come_and_go] * 4)
    assert (len(queue), queue.stats().participants) == (120, 1)
