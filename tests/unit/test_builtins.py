"""The built-ins that stand in for put, take and take_many do what the methods do, and hand on what they cannot."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import random
import sys
import threading
import weakref

import pytest
from support import Child

import shmq


def test_the_plain_verbs_are_builtins(queue):
    """After the first put, `put` is no Python function; nor is `take` of a consumer. They have their documentation."""
    queue.put(b"first")
    consumer = queue.consumer("c")

    for verb in (queue.put, consumer.take, consumer.take_many):
        assert type(verb).__name__ == "builtin_function_or_method"
        assert verb.__doc__
        assert "self" not in inspect.signature(verb).parameters


def test_keywords_arrive_whether_the_builtin_knows_them_or_not(queue):
    """key, type and time_ns are taken by the built-in; headers, None and odd buffers by Python; all look the same."""
    queue.put(b"0", key=b"k", type=65535, time_ns=-5)
    queue.put(b"1", key=b"k", type=7, time_ns=8, headers={"a": 1})
    queue.put(bytearray(b"2"), key=None, type=0, time_ns=None, headers=None)
    queue.put(memoryview(b"x3x")[1:2], key=b"")
    seen = [(m.payload, m.key, m.type, m.headers) for m in queue.reader()]

    assert seen == [(b"0", b"k", 65535, {}), (b"1", b"k", 7, {"a": 1}), (b"2", None, 0, {}), (b"3", None, 0, {})]
    assert [m.time_ns for m in queue.reader()][:2] == [-5, 8]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (((), {}), TypeError),
        (((b"a", b"b"), {}), TypeError),
        (((b"a",), {"nonsense": 1}), TypeError),
        ((("text",), {}), TypeError),
        (((b"a",), {"key": "text"}), TypeError),
        (((b"a",), {"type": -1}), ValueError),
        (((b"a",), {"type": 65536}), ValueError),
        (((b"a",), {"type": 1 << 80}), ValueError),
        (((b"a",), {"time_ns": 1 << 63}), ValueError),
        (((b"a",), {"time_ns": -(1 << 63)}), ValueError),
        (((b"a",), {"key": bytes(65536)}), shmq.TooLarge),
    ],
)
def test_bad_arguments_put_nothing(queue, arguments, error):
    """Each is refused by name, and the queue is as it was."""
    queue.put(b"before")
    positional, keywords = arguments
    with pytest.raises(error):
        queue.put(*positional, **keywords)

    assert queue.next_index == 1
    assert queue.put(b"after") == 1


@pytest.mark.parametrize("codec", ["text", "json", "msgpack"])
def test_codecs_go_through_the_builtins(make, codec):
    """Encoding and decoding are called from the built-ins, one at a time and in lists."""
    queue = make(codec=codec)
    values = ["a", "b", "ü", "d"]
    for value in values:
        queue.put(value, key=b"k")
    consumer = queue.consumer("c")

    assert [consumer.take(), *consumer.take_many(10)] == values


def test_a_codec_that_raises_puts_and_loses_nothing(make):
    """What cannot be encoded raises in the caller, at once; what cannot be decoded raises in its reader."""
    queue = make(codec="json")
    with pytest.raises(TypeError):
        queue.put(object())
    queue.put({"a": 1})
    with pytest.raises(TypeError):
        queue.put({1, object()})

    assert queue.next_index == 1
    assert queue.consumer("c").take() == {"a": 1}


def test_references_are_neither_lost_nor_kept(queue):
    """A million-call program must not leak: counts of payload, key and timeout come back to where they were."""
    payload, key = b"p" * 1000, b"k" * 100
    queue.put(payload, key=key)
    consumer = queue.consumer("c")
    consumer.take()
    before = sys.getrefcount(payload), sys.getrefcount(key)
    for _ in range(200):
        queue.put(payload, key=key)
        assert consumer.take(1.0) == payload
        with pytest.raises(shmq.Empty):
            consumer.take(timeout=0)
        with pytest.raises(TypeError):
            queue.put(payload, key=key, nonsense=payload)
    gc.collect()

    assert (sys.getrefcount(payload), sys.getrefcount(key)) == before


def test_closing_stops_the_builtins(queue):
    """A built-in that was kept says Closed like its owner, and touches no memory that may be gone."""
    queue.put(b"1")
    consumer = queue.consumer("c")
    put, take, take_many = queue.put, consumer.take, consumer.take_many
    consumer.close()
    with pytest.raises(shmq.Closed):
        take()
    with pytest.raises(shmq.Closed):
        take_many(1)
    queue.close()
    with pytest.raises(shmq.Closed):
        put(b"2")


def calls_of(work):
    """The names of the Python functions that run in *work*."""
    called = []
    sys.setprofile(lambda frame, event, argument: called.append((event, frame.f_code.co_name)))
    try:
        work()
    finally:
        sys.setprofile(None)
    return {name for event, name in called if event == "call"}


def test_an_index_is_looked_up_by_a_builtin(make):
    """Once its chunk is mapped, no Python function runs; and a message has all that it has elsewhere."""
    queue = make(codec="json", chunk_bytes=1 << 16, retention=shmq.Retention.forever())
    for i in range(3000):
        queue.put({"i": i}, key=b"k%d" % i)
    for i in range(0, 3000, 100):
        assert queue[i].payload == {"i": i}
    found = []
    assert calls_of(lambda: found.extend([queue[i] for i in range(0, 3000, 100)])) <= {"<listcomp>", "<lambda>"}
    assert [(m.index, m.attempts, m.payload, m.key) for m in found] == [
        (i, 1, {"i": i}, b"k%d" % i) for i in range(0, 3000, 100)
    ]
    with pytest.raises(IndexError, match="has no message 3000: its indexes go from 0 to 2999"):
        queue[3000]
    with pytest.raises(IndexError, match="has no message"):
        queue[1 << 70]
    with pytest.raises(IndexError, match="has no message -3001"):
        queue[-3001]
    with pytest.raises(TypeError):
        queue["0"]
    assert [queue[-1].index, queue[True].index, len(queue[5:9])] == [2999, 1, 4]


@pytest.mark.usefixtures("mebibytes")
def test_a_large_payload_is_put_by_the_builtin(make):
    """With all that it can bring; what waits for the disk goes the long way."""
    queue = make(chunk_bytes=1 << 24)
    for _ in range(6):  # until a full-grown chunk is there, which has room
        queue.put(bytes(1 << 20))
    large = bytes(range(256)) * 4096

    assert calls_of(lambda: queue.put(large, key=b"k", type=7, time_ns=5)) == {"<lambda>"}
    message = queue[6]
    assert (message.payload, message.key, message.type, message.time_ns) == (large, b"k", 7, 5)


def test_threads_put_large_payloads_while_chunks_roll(make):
    """What is copied without the interpreter's lock goes to a chunk that nobody takes away meanwhile."""
    queue = make(chunk_bytes=1 << 20, retention=shmq.Retention.forever())
    payloads = {who: bytes([who]) * 200_000 for who in range(1, 5)}

    def putting(who):
        for n in range(40):
            queue.put(payloads[who], type=n, key=b"%d" % who)

    threads = [threading.Thread(target=putting, args=(who,), daemon=True) for who in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    seen = {who: [] for who in payloads}
    for message in queue.reader():
        who = int(message.key)
        assert message.payload == payloads[who]
        seen[who].append(message.type)
    assert seen == {who: list(range(40)) for who in payloads}


def test_what_an_index_gave_outlives_its_queue(make, path):
    """The chunk stays mapped as long as a message of it is held; a handle that is closed says so."""
    queue = make(chunk_bytes=1 << 16)
    for i in range(3000):
        queue.put(b"%d" % i)
    found = [queue[i] for i in range(0, 3000, 500)]
    found = [queue[i] for i in range(0, 3000, 500)]  # by the built-in
    queue.close()

    assert [message.payload for message in found] == [b"%d" % i for i in range(0, 3000, 500)]
    with pytest.raises(shmq.Closed):
        queue[0]


def test_what_was_retired_is_let_go_by_the_builtin_for_indexes(make):
    """A chunk that was looked into by index is not kept mapped, nor found, when it is retired."""
    queue = make(chunk_bytes=1 << 16)
    for i in range(5000):
        queue.put(b"%d" % i)
    assert queue[7].payload == b"7"
    mapped = weakref.ref(queue._session.access()._mapped.get(0))
    consumer = queue.consumer("c", start="earliest")
    while queue.first_index <= 7:
        consumer.take_many(100)

    with pytest.raises(IndexError, match="was retired"):
        queue[7]
    gc.collect()
    assert mapped() is None
    assert queue[4999].payload == b"4999"


def look_up(queue, seed, total, problems):
    """Random indexes of what is there, until all has been put; what is wrong goes to *problems*."""
    noise, end = random.Random(seed), 0
    while end < total:
        first, end = queue.first_index, queue.next_index
        index = noise.randrange(first, max(end, first + 1))
        try:
            payload = queue[index].payload
        except IndexError:
            continue
        except shmq.ShmqError as problem:
            problems.append(problem)
            return
        if payload != b"%d" % index:
            problems.append(index)


def test_indexes_are_looked_up_while_chunks_come_and_go(make):
    """One thread puts and takes, and so retires; four look up: each finds what was put, or is told that it has gone."""
    queue = make(chunk_bytes=1 << 16)
    queue.put(b"0")
    total, problems = 20000, []
    threads = [threading.Thread(target=look_up, args=(queue, seed, total, problems), daemon=True) for seed in range(4)]
    consumer = queue.consumer("c", start="earliest")
    for thread in threads:
        thread.start()
    for i in range(1, total):
        queue.put(b"%d" % i)
        if i % 1000 == 0:
            consumer.take_many(1000)
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert problems == []


def test_a_forked_child_looks_up_indexes_by_itself(make):
    """What the parent has looked into is not the child's; it maps its own, and gets the same."""
    queue = make(chunk_bytes=1 << 16)
    for i in range(3000):
        queue.put(b"%d" % i)
    assert [queue[i].payload for i in (5, 2900)] == [b"5", b"2900"]

    def child(say):
        say([queue[i].payload for i in (5, 1500, 2900, 5)])

    with Child(child) as other:
        assert other.hear(60) == str([b"5", b"1500", b"2900", b"5"])
        assert other.join() == 0
    assert queue[5].payload == b"5"


def test_a_builtin_for_indexes_keeps_no_references(make):
    """Looked up ten thousand times: nothing of it is left."""
    queue = make()
    queue.put(b"x")
    index = 0
    assert queue[index].index == 0
    chunk = queue._session.access()._mapped.get(0)
    gc.collect()  # or what others have left goes meanwhile
    before = sys.getrefcount(chunk), sys.getrefcount(queue), sys.getrefcount(None)
    for _ in range(10000):
        assert queue[index]
    gc.collect()

    after = sys.getrefcount(chunk), sys.getrefcount(queue), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 5000


def test_threads_share_one_consumer_and_nothing_comes_twice(queue):
    """Eight threads take from one handle while two put: each message goes to exactly one of them."""
    total = 4000
    consumer = queue.consumer("c")
    got: list[bytes] = []

    def take():
        while True:
            value = consumer.take(timeout=20)
            if value == b"end":
                return
            got.append(value)

    def put(first):
        for i in range(first, total, 2):
            queue.put(b"%d" % i)

    takers = [threading.Thread(target=take) for _ in range(8)]
    putters = [threading.Thread(target=put, args=(i,)) for i in range(2)]
    for thread in takers + putters:
        thread.start()
    for thread in putters:
        thread.join()
    for _ in takers:
        queue.put(b"end")
    for thread in takers:
        thread.join()

    assert sorted(map(int, got)) == list(range(total))


def test_a_consumer_that_nobody_holds_gives_its_name_back_at_once(queue):
    """No cycle keeps it: the next statement can open the name again, without a garbage collection."""
    gc.disable()
    try:
        for i in range(3):
            queue.put(b"%d" % i)
            assert queue.consumer("c").take() == b"%d" % i
        queue.put(b"3")
        take = queue.consumer("c").take  # holds its consumer
        assert take() == b"3"
        with pytest.raises(shmq.Busy):
            queue.consumer("c")
        del take
        queue.consumer("c").close()
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["queue", "shm"])
def test_a_message_that_is_pickled_says_where_it_is_and_what_to_pass_on(path, name):
    """It named no queue, where a program may have many."""
    with shmq.open(path if name == "queue" else "shm:test-pickled-message") as queue:
        queue.put_many([b"0", b"1"])
        with queue.consumer("c", ack="explicit") as consumer:
            consumer.get(timeout=0)
            for message in (consumer.get(timeout=0), queue[1]):
                for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                    with pytest.raises(TypeError) as raised:
                        pickle.dumps(message, protocol)
                    assert f"cannot pickle message 1 of {queue.path}: " in str(raised.value)
                    assert "queue[1]" in str(raised.value)
                with pytest.raises(TypeError, match="cannot pickle message 1 of"):
                    copy.copy(message)


@pytest.mark.parametrize("kind", [{"group": True, "ack": "explicit"}, {"ack": "explicit"}])
@pytest.mark.parametrize("last", ["member", "message"])
def test_a_member_that_is_dropped_with_its_unfinished_message_is_gone_at_once(queue, kind, last):
    """Both know each other, in no cycle that waits for the collector; the message comes to the next."""
    queue.put_many([b"0", b"1"])
    gc.disable()
    try:
        member = queue.consumer("c", **kind)
        message, known = member.get(timeout=0), weakref.ref(member)
        kept = member if last == "member" else message
        del member, message
        assert known() is not None  # a message keeps whoever has to finish it
        del kept
        assert known() is None
    finally:
        gc.enable()
    with queue.consumer("c", **kind) as other:
        assert [(each.index, each.attempts) for each in other.get_many(2, timeout=5)] == [(0, 2), (1, 1)]
