"""What goes over the wire comes out as it went in, and what is none is refused."""

from __future__ import annotations

import msgspec
import pytest

import shmq
from shmq.net import packing


@pytest.mark.parametrize("payloads", [[b""], [b"a", b"", b"ccc"], [bytes(70_000), b"x"], [b"64" * 32] * 1000])
def test_payloads_in_one_piece_are_cut_where_they_were_joined(payloads):
    assert packing.cut(*packing.joined(payloads)) == payloads


@pytest.mark.parametrize(
    ("ends", "data"),
    [(b"\1\0\0", b"x"), (b"\2\0\0\0", b"x"), (b"\2\0\0\0\1\0\0\0", b"x"), (b"", b"x"), (None, b""), (b"\1\0\0\0", "x")],
)
def test_payloads_that_are_not_as_long_as_they_say_are_refused(ends, data):
    with pytest.raises(packing.BadRequest):
        packing.cut(ends, data)


def test_messages_come_out_as_they_went_in(tmp_path):
    with shmq.open(tmp_path / "q") as queue:
        queue.put(b"plain")
        queue.put(b"", key=b"key", type=9, time_ns=-5, headers={"a": 1})
        queue.put(b"old", ttl=1e5, dedup=("p", 1))
        queue.put_many([b"x"] * 3, keys=[b"12345678", None, b"1"])
        messages = [message for message in queue.reader() if message.index != 3]
        found = packing.unpacked(msgspec.msgpack.decode(packing.encode(packing.packed(messages)), strict=False))
        columns = zip(
            messages, found.indexes, found.times_ns, found.types, found.keys, found.payloads(0, 5), strict=True
        )
        for message, *same in columns:
            assert same == [message.index, message.time_ns, message.type, message.key, message.payload]
        assert found.payload(2) == b"old"
        assert found.payloads(1, 3) == [b"", b"old"]
        assert found.extras[1] == [messages[1].raw_headers, None]
        assert abs(found.extras[2][1] - messages[2].expires.timestamp() * 1e9) < 1e9  # two looks at two clocks
        assert found.attempts is None


def test_errors_come_out_as_they_went_in_and_a_strange_one_is_a_plain_one():
    class Strange(Exception):
        pass

    for problem in (shmq.Full("f"), shmq.Gone("g", 7), shmq.SyncPending("s", 3), IndexError("i"), TypeError("t")):
        again = packing.raised(*packing.error(1, problem)[2:])
        assert (type(again), str(again)) == (type(problem), str(problem))
        assert vars(again) == vars(problem)
    assert type(packing.raised(*packing.error(1, Strange("x"))[2:])) is shmq.ShmqError
    assert type(packing.raised("os", "x", None)) is shmq.ShmqError


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x01", b"\x91\xa1a", b"\x92\xa1a\xff", b"\x92\x01\x01", b"\x92\xa1a\xc3"]
)
def test_what_is_no_message_is_refused(body):
    with pytest.raises(packing.BadRequest):
        packing.decode(body)
