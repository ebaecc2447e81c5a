"""Record batches into a queue: what put_many does, from columns; whatever the columns are slices of."""

from __future__ import annotations

import random
import struct

import msgspec
import pyarrow as pa
import pytest

import shmq
from shmq import _native

SOME = 500
ALL = ["time", "key", "type", "payload", "headers"]


def one(message):
    return bytes(message.view), message.key, message.type, message.time_ns, message.headers


def columns(count, seed=1):
    """Rows of all kinds, also without key and headers, and empty."""
    noise = random.Random(seed)
    return {
        "payload": [noise.randbytes(noise.choice([0, 1, 7, 8, 9, 40, 200])) for _ in range(count)],
        "key": [noise.choice([None, b"k", b"a longer key"]) for _ in range(count)],
        "type": [noise.randrange(65536) for _ in range(count)],
        "time": [noise.randrange(1 << 40) for _ in range(count)],
        "headers": [noise.choice([None, {"n": 1, "s": "x"}]) for _ in range(count)],
    }


def batch_of(given):
    packed = [None if each is None else msgspec.msgpack.encode(each) for each in given["headers"]]
    return pa.record_batch(
        {
            "payload": pa.array(given["payload"], pa.binary()),
            "key": pa.array(given["key"], pa.binary()),
            "type": pa.array(given["type"], pa.uint16()),
            "time": pa.array(given["time"], pa.timestamp("ns", "UTC")),
            "headers": pa.array(packed, pa.binary()),
        }
    )


def expected(given, rows):
    each = zip(*(given[name][rows] for name in ("payload", "key", "type", "time", "headers")), strict=True)
    return [(payload, key, kind, time, headers or {}) for payload, key, kind, time, headers in each]


@pytest.mark.parametrize("checksum", [True, False])
def test_rows_become_messages(make, checksum):
    queue = make(chunk_bytes=1 << 20, checksum=checksum)
    given = columns(SOME)
    queue.put(b"before")
    assert queue.put_arrow(batch_of(given)) == range(1, SOME + 1)
    assert [one(message) for message in queue.reader(1)] == expected(given, slice(None))


def test_a_slice_is_what_it_shows(make):
    queue = make(chunk_bytes=1 << 20)
    given = columns(SOME)
    for start, count in ((3, 10), (100, 1), (0, 0), (SOME - 9, 9)):
        first = queue.next_index
        queue.put_arrow(batch_of(given).slice(start, count))
        assert [one(each) for each in queue.reader(first)] == expected(given, slice(start, start + count))


def test_what_was_read_can_be_put_as_it_is(make, path):
    queue = make()
    given = columns(SOME)
    for start in range(0, SOME, 50):
        queue.put_arrow(batch_of(given).slice(start, 50))
    other = make(path + "-copy")
    for batch in queue.read_arrow(columns=["index", *ALL]):
        other.put_arrow(batch)
    assert [one(each) for each in other.reader()] == expected(given, slice(None))


def test_what_lies_under_a_null_is_not_put(queue):
    """In Arrow a value that is null may have bytes all the same."""
    offsets, data = pa.py_buffer(bytes(pa.array([0, 3, 6, 9], pa.int32()).buffers()[1])), pa.py_buffer(b"abcXYZdef")
    key = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets, data])
    queue.put_arrow(pa.record_batch({"payload": [b"1", b"2", b"3"], "key": key}))
    assert [message.key for message in queue.reader()] == [b"abc", None, b"def"]


def test_other_kinds_that_say_the_same_will_do(queue):
    batch = pa.record_batch(
        {
            "payload": pa.array(["ä", "b"], pa.large_string()),
            "key": pa.array([b"k", b"k"]).dictionary_encode(),
            "type": pa.array([7, None], pa.int64()),
            "time": pa.array([5, None], pa.timestamp("ms")),
        }
    )
    before = queue.put(b"x", time_ns=None)
    queue.put_arrow(batch)
    first, second = queue.reader(1)
    assert (first.payload, first.key, first.type, first.time_ns) == ("ä".encode(), b"k", 7, 5_000_000)
    assert (second.payload, second.type) == (b"b", 0)
    assert second.time_ns >= queue[before].time_ns  # now


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": [b"a"]}, "payload, and perhaps"),
        ({"payload": [b"a"], "colour": [b"a"]}, "payload, and perhaps"),
        ({"payload": [b"a", None]}, "a payload is null"),
        ({"payload": [1.5]}, "column payload is double"),
        ({"payload": [b"a"], "type": [65536]}, "column type is int64"),
        ({"payload": [b"a"], "type": [-1]}, "column type is int64"),
        ({"payload": [b"a"], "headers": [b"\x01"]}, r"headers b'\\x01'"),
        ({"payload": [b"a"], "headers": [b"no map"]}, "headers b'no map'"),
    ],
)
def test_what_is_no_message_is_told_and_nothing_is_put(queue, given, said):
    with pytest.raises(ValueError, match=said):
        queue.put_arrow(pa.record_batch(given))
    assert len(queue) == 0


@pytest.mark.parametrize("offsets", [[0, 5, 2], [-1, 1, 2], [0, 1, 4], [2, 1, 0]])
def test_offsets_that_lie_are_found_before_anything_is_copied(queue, offsets):
    """Who builds an array by hand may write anything into it; it must not become messages, or a crash."""
    memory = bytearray(struct.pack("3i", 0, 1, 3))
    payload = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(memory), pa.py_buffer(b"abc")])
    batch = pa.record_batch([payload], names=["payload"])
    struct.pack_into("3i", memory, 0, *offsets)  # behind the back of Arrow's own checks
    with pytest.raises(shmq.Corrupt, match="do not ascend"):
        queue.put_arrow(batch)
    assert len(queue) == 0


def test_more_than_one_claim_counts_is_refused_and_staged_it_is_not(make, tmp_path):
    queue = make()
    rows = pa.record_batch({"payload": [b"%d" % number for number in range(20_000)]})
    with pytest.raises(shmq.TooMany, match="8191"):
        queue.put_arrow(rows)
    assert len(queue) == 0
    assert queue.put_arrow(rows.slice(0, _native.BATCH_MAX)) == range(_native.BATCH_MAX)
    with queue.stage() as staged:
        assert staged.put_arrow(rows) == range(20_000)
        assert len(queue) == _native.BATCH_MAX
        assert queue.adopt(staged) == range(_native.BATCH_MAX, _native.BATCH_MAX + 20_000)
    assert [int(message.payload) for message in queue.reader(_native.BATCH_MAX)] == list(range(20_000))


def test_large_rows_are_staged_by_parts_that_fit(make):
    queue = make(chunk_bytes=1 << 20)
    rows = pa.record_batch({"payload": [bytes([number]) * (3 << 20) for number in range(7)]})
    with queue.stage() as staged:
        staged.put_arrow(rows)
        queue.adopt(staged)
    assert [(message.payload[0], len(message.payload)) for message in queue.reader()] == [
        (number, 3 << 20) for number in range(7)
    ]


def test_a_repeated_batch_is_not_put_again(queue):
    rows = pa.record_batch({"payload": [b"a", b"b"]})
    assert queue.put_arrow(rows, dedup=("me", 1)) == range(2)
    assert queue.put_arrow(rows, dedup=("me", 1)) == range(2)
    with pytest.raises(ValueError, match="nothing to put"):
        queue.put_arrow(rows.slice(0, 0), dedup=("me", 2))
    assert len(queue) == 2


def test_a_ttl_is_that_of_all_rows(queue):
    with queue.consumer("c", ack="explicit") as consumer:
        queue.put_arrow(pa.record_batch({"payload": [b"old"] * 3}), ttl=1e-9)
        queue.put_arrow(pa.record_batch({"payload": [b"new"]}), ttl=3600)
        assert consumer.take() == b"new"


def test_a_queue_with_a_codec_does_not_take_bytes(make):
    with pytest.raises(ValueError, match="'json' takes objects"):
        make(codec="json").put_arrow(pa.record_batch({"payload": [b"a"]}))


def test_bounds_hold_for_batches_too(make):
    queue = make(max_messages=3, full="raise")
    with pytest.raises(shmq.TooMany):
        queue.put_arrow(pa.record_batch({"payload": [b"a"] * 4}))
    queue.put_arrow(pa.record_batch({"payload": [b"a"] * 3}))
    with pytest.raises(shmq.Full):
        queue.put_arrow(pa.record_batch({"payload": [b"b"]}))
    assert len(queue) == 3
