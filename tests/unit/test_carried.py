"""What the built-in `put` carries comes back as what Python carries, and what it does not understand is told."""

import time

import msgspec
import pytest

import shmq

REFUSED = (TypeError, ValueError, shmq.TooLarge)
EVERYTHING = {
    "key": b"k",
    "type": 65535,
    "time_ns": -5,
    "ttl": 100,
    "delay": 0.25,
    "headers": {"a": [1, None, "ä"], "": b"x"},
    "timeout": 0,
}


def fields(message):
    return message.payload, message.key, message.type, message.time_ns, message.headers, message.raw_headers


def moments(message):
    return message.expires and message.expires.timestamp(), message.due_ns / 1e9


@pytest.mark.parametrize("left_out", [None, *EVERYTHING])
@pytest.mark.parametrize("ttl", [None, 50])
def test_what_the_builtin_puts_is_what_python_puts(make, left_out, ttl):
    queue = make(**({} if ttl is None else {"ttl": ttl}))
    carried = {name: value for name, value in EVERYTHING.items() if name != left_out}
    producer = queue.producer()
    by_python = producer._put(0, b"payload", **carried)
    by_builtin = producer.put(b"payload", **carried)
    if left_out == "time_ns":
        assert abs(queue[by_python].time_ns - queue[by_builtin].time_ns) < 60e9
        assert fields(queue[by_python])[4:] == fields(queue[by_builtin])[4:]
    else:
        assert fields(queue[by_python]) == fields(queue[by_builtin])
    assert moments(queue[by_builtin]) == pytest.approx(moments(queue[by_python]), abs=60)
    expires, due = moments(queue[by_builtin])
    assert (expires is None) == (left_out == "ttl" and ttl is None)
    if expires is not None:
        assert expires - time.time() == pytest.approx(50 if left_out == "ttl" else 100, abs=30)
    assert (due == 0) == (left_out == "delay")


def test_no_python_runs_in_the_plain_case(make, monkeypatch):
    """From the second put with headers on."""
    producer = make().producer()
    producer.put(b"", **EVERYTHING)
    monkeypatch.setattr(type(producer), "_put", lambda *_, **__: pytest.fail("it did"))
    for name, value in EVERYTHING.items():
        producer.put(b"", **{name: value})
        producer.put(b"", **{name: None if name != "type" else 0})
    producer.put(b"", **EVERYTHING)
    producer.put(b"", headers={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "text"),
        ("key", bytes(65536)),
        ("type", None),
        ("type", True),
        ("type", -1),
        ("type", 65536),
        ("time_ns", 1 << 63),
        ("time_ns", -(1 << 63)),
        ("time_ns", 1.5),
        ("ttl", -1),
        ("ttl", True),
        ("ttl", float("nan")),
        ("ttl", float("inf")),
        ("ttl", "1"),
        ("delay", -0.1),
        ("headers", []),
        ("headers", {1: 2}),
        ("headers", {"a": {1}}),
        ("headers", {"a": object()}),
        ("headers", {"\ud800": 1}),
        ("timeout", -1),
        ("timeout", "soon"),
        ("dedup", 5),
        ("block", False),
    ],
)
def test_what_means_nothing_is_told_and_nothing_is_put(make, name, value):
    queue = make()
    queue.put(b"", headers={"a": 1})
    with pytest.raises(REFUSED) as by_builtin:
        queue.put(b"", **{name: value})
    with pytest.raises(REFUSED) as by_python:
        queue.producer()._put(0, b"", **{name: value})
    assert (type(by_builtin.value), str(by_builtin.value)) == (type(by_python.value), str(by_python.value))
    assert queue.next_index == 1


@pytest.mark.parametrize("value", [1e9, 10**9, 1e300, 10**400, 1e-9, 0])
def test_a_time_that_nobody_lives_to_see_is_a_time_all_the_same(make, value):
    queue = make()
    queue.put(b"x", ttl=value)
    assert queue.next_index == 1
    assert queue[0].expired is (value < 1e-6)


def test_headers_whose_encoding_closes_the_queue_put_nothing(make):
    """A dict is looked at before it is encoded, and what encodes it may run anything."""
    queue = make()
    queue.put(b"", headers={"a": 1})
    producer = queue.producer()

    def closes(headers):
        producer.close()
        return msgspec.msgpack.encode(headers)

    producer._pack_with(closes)  # for good: it has had no headers yet
    with pytest.raises(shmq.Closed):
        producer.put(b"", headers={"a": 1})
    assert queue.next_index == 1


@pytest.mark.parametrize("kind", [list, tuple])
def test_no_python_runs_for_a_plain_batch(make, monkeypatch, kind):
    producer = make(chunk_bytes=1 << 20).producer()
    monkeypatch.setattr(type(producer), "_put_many", lambda *_, **__: pytest.fail("it did"))
    assert producer.put_many(kind([b"", b"1", bytes(1000)])) == range(3)
    assert producer.put_many(kind([b"x"] * 512), keys=None, timeout=None) == range(3, 515)


@pytest.mark.parametrize(
    "payloads",
    [
        [b"x"] * 513,
        [bytes(20_000)] * 2,
        [bytes(32_768)],
        [bytes(32_769)],
        [bytearray(b"x"), b"y"],
        [memoryview(b"x")],
        (b"%d" % number for number in range(3)),
        [],
        {b"x": 1}.keys(),
    ],
)
def test_a_batch_that_is_not_plain_is_put_all_the_same(make, payloads):
    queue = make()
    payloads = payloads if isinstance(payloads, list) else list(payloads)
    assert queue.put_many(iter(payloads)) == range(len(payloads))
    assert queue.put_many(payloads) == range(len(payloads), 2 * len(payloads))
    assert [message.payload for message in queue.reader()] == 2 * list(map(bytes, payloads))


@pytest.mark.parametrize("payloads", [b"bytes", "text", 5, [b"x", "text"], [b"x", None], {b"x": 1}])
def test_a_batch_that_is_none_is_refused_and_nothing_is_put(make, payloads):
    queue = make()
    queue.put(b"")
    with pytest.raises(TypeError):
        queue.put_many(payloads)
    assert queue.next_index == 1


def test_a_put_that_is_synced_waits_no_longer_than_it_was_told_to(make):
    """Behind a claim that stays open; it has a key, so that the built-in looks at what it was given."""
    queue = make(durability=shmq.Durability.SYNC)
    queue.put(b"")
    with queue.reserve(8) as slot:
        for given in ({}, {"key": b"k"}, {"headers": {"a": 1}}, {"headers": {"a": 1}}):
            with pytest.raises(shmq.SyncPending):
                queue.put(b"x", timeout=0, **given)
        slot.buffer[:] = bytes(8)
