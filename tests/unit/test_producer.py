"""put: what goes in, what comes back, what is refused before anything is visible."""

from __future__ import annotations

import array
import mmap
import time

import pytest
from support import DONE, HINT, chunk_files, peek, records, states, words

import shmq


def test_put_returns_the_index_that_the_message_has(queue, path):
    """Indexes count from 0 on; the message is whole in its chunk when put returns."""
    assert [queue.put(payload) for payload in (b"a", b"", b"c" * 1000)] == [0, 1, 2]
    assert [record.payload for record in records(path)] == [b"a", b"", b"c" * 1000]


@pytest.mark.parametrize(
    "payload",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"0view0")[1:5],
        array.array("I", [1, 2]),
        memoryview(b"abcdef")[::2],
    ],
)
def test_anything_bytes_like_can_be_put(queue, path, payload):
    """Contiguous or not; its bytes are what lies there."""
    queue.put(payload)
    assert memoryview(payload).tobytes() == records(path)[0].payload


def test_fields_come_back(queue):
    """Key, type, time and headers are what was given."""
    queue.put(b"p", key=b"k", type=65535, time_ns=1_700_000_000_123_456_789, headers={"trace": "x", "n": [1, 2.5]})
    (message,) = queue.reader()
    assert (message.key, message.type, message.time_ns) == (b"k", 65535, 1_700_000_000_123_456_789)
    assert message.headers == {"trace": "x", "n": [1, 2.5]}
    assert (message.time.year, message.time.microsecond) == (2023, 123456)


def test_fields_left_out_are_none_zero_now_and_empty(queue):
    """A plain put: no key, type 0, the time of the put, no headers."""
    before = time.time_ns()
    queue.put(b"p")
    (message,) = queue.reader()
    assert (message.key, message.type, message.headers) == (None, 0, {})
    assert before <= message.time_ns <= time.time_ns()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"type": -1}, ValueError),
        ({"type": 65536}, ValueError),
        ({"key": "text"}, TypeError),
        ({"time_ns": 1 << 63}, ValueError),
        ({"time_ns": -(1 << 63)}, ValueError),
        ({"headers": {"x": object()}}, TypeError),
        ({"key": bytes(65536)}, shmq.TooLarge),
        ({"headers": {"x": bytes(65535 * 8)}}, shmq.TooLarge),
    ],
)
def test_a_field_that_cannot_be_is_refused_and_nothing_is_put(queue, path, fields, problem):
    """Refused by name, in put and in put_many; not one byte of the chunk changes."""
    queue.put(b"before")
    hint = peek(chunk_files(path)[0], HINT)
    with pytest.raises(problem):
        queue.put(b"x", **fields)
    many = {"type": "types", "key": "keys", "time_ns": "times_ns", "headers": "headers"}
    with pytest.raises(problem):
        queue.put_many([b"x"], **{many[name]: [value] for name, value in fields.items()})
    assert ([DONE], hint) == (states(path), peek(chunk_files(path)[0], HINT))


def test_the_largest_key_and_headers_fit(make):
    """65,535 bytes of key; headers that encode to 524,272 bytes."""
    queue = make()
    queue.put(b"p", key=bytes(65535), headers={"x": bytes(65535 * 8 - 8 - 10)})
    (message,) = queue.reader()
    assert (len(message.key), len(message.headers["x"])) == (65535, 65535 * 8 - 18)


def test_a_message_of_a_gigabyte_is_too_large_and_nothing_is_put(queue, path):
    """The largest region is just under 1 GiB; the error names the size and the limit."""
    queue.put(b"before")
    with (
        mmap.mmap(-1, 1 << 30) as gigabyte,
        memoryview(gigabyte) as view,
        pytest.raises(shmq.TooLarge, match=r"cannot put into .*1073741864 bytes.* at most 1073741816.*nothing was put"),
    ):
        queue.put(view)
    for nbytes in ((1 << 30) - 40, 1 << 31, 1 << 70):
        with pytest.raises(shmq.TooLarge):
            queue.reserve(nbytes)
    assert states(path) == [DONE]
    assert queue.put(b"after") == 1


def test_the_wrong_kind_of_payload_is_refused_with_the_remedy(queue):
    """A str in a queue of bytes: TypeError that names the codec option."""
    with pytest.raises(TypeError, match=r"bytes-like.*str.*codec="):
        queue.put("text")
    assert len(queue) == 0


def test_a_producer_of_ones_own(queue, path):
    """Its puts go where the queue's go; closed, it refuses, and the queue goes on."""
    with queue.producer() as producer:
        producer.put(b"mine")
        producer.put_many([b"and", b"more"])
    queue.put(b"theirs")
    for refused in (lambda: producer.put(b"x"), lambda: producer.put_many([b"x"]), lambda: producer.reserve(1)):
        with pytest.raises(shmq.Closed, match="closed"):
            refused()
    assert [record.payload for record in records(path)] == [b"mine", b"and", b"more", b"theirs"]


def test_an_open_producer_outlives_its_queue_handle(make, path):
    """Closing the queue's handle does not pull the ground from under a producer that is still open."""
    queue = make()
    producer = queue.producer()
    queue.close()
    assert producer.put(b"x") == 0
    producer.close()
    assert states(path) == [DONE]


def test_two_handles_of_one_process_share_one_seat(make):
    """The seat is the process's: both handles sign with it, and it is given up with the last of them."""
    one, two = make(), make()
    one.put(b"1")
    two.put(b"2")
    assert one.stats().participants == 1
    one.close()
    assert two.stats().participants == 1
    assert len({word.owner for word in words(two.path)}) == 1


@pytest.mark.parametrize("step", ["_borrow", "_make_chain", "_make_syncer"])
@pytest.mark.parametrize("how", ["producer", "stage"])
def test_found_what_refused_a_producer_was_hidden_by_its_close(queue, how, step, monkeypatch):
    """A full disk was an AttributeError: what close asks for was made behind it."""
    found = shmq.Staged if how == "stage" else shmq.Producer

    def refuse(_):
        raise shmq.DiskFull("no room")

    monkeypatch.setattr(found, step, refuse)
    with pytest.raises(shmq.DiskFull, match="no room"):
        getattr(queue, how)()
