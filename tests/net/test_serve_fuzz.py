"""Whatever a peer sends: 100,000 frames that are broken, half, huge or nonsense, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest
from peers import META, MORE, Spoken, call, frame, given_frames, serving

import shmq
from shmq.net.frames import BadFrame
from shmq.net.limits import Limits

FRAMES = 100_000
TOGETHER = 500
"""Frames that are given to a session before what came of them is looked at."""


def seeds() -> list[bytes]:
    """What mutations begin with: frames of both wires, and calls that a queue is asked by."""
    texts = [
        call("csp: //host/orders#Queue\ntid: 1", "createTailer: { }"),
        call("csp: //host/orders#appender\ntid: 1", "submit: { a: [ 1, 2.5, true ] }"),
        call("csp: //host/orders#tailer\ntid: 1", "hasNext: { index: 0, batch: 3 }"),
        call("cid: 1234\ntid: 2", "hasNext: { batch: 99999999999 }", "lastWrittenIndex: { }"),
        frame("", META) + frame("heartbeat: 1"),
        frame("header: { wire-formats: [ Text ] }"),
    ]
    try:
        return texts + [bytes.fromhex(each["hex"]) for each in given_frames()]
    except pytest.skip.Exception:  # without the fixtures there is still the text
        return texts


def mutated(chance: random.Random, seed: bytes) -> bytes:
    """One to four changes of a frame's bytes; its length is put right again more often than not."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        way = chance.randrange(6)
        if way == 0 and data:
            data[at] = chance.randrange(256)
        elif way == 1 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif way == 2:
            del data[at : at + chance.randint(1, 8)]
        elif way == 3:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        elif way == 4:
            data[at:at] = chance.choice(
                [b"{", b"[", b'"', b"!!binary ", b"\x82\xff\xff\xff\x7f", b"\xbd", b"\xb6\x01a"]
            )
        else:
            data += data[at : at + 16]
    if len(data) > 4 and chance.random() < 0.9:
        (word,) = struct.unpack_from("<I", data)
        struct.pack_into("<I", data, 0, len(data) - 4 | word & (META | MORE))
    return bytes(data)


def test_a_hundred_thousand_bad_frames_harm_no_other_connection(root, orders):
    """
    Each of them is answered, refused, or ends its connection; another connection's calls are answered all the while.
    """
    orders.put_many([b"a", b"b", b"c"])
    chance = random.Random(20150319)
    seed_frames = seeds()
    bad_frames = [mutated(chance, chance.choice(seed_frames)) for _ in range(FRAMES // 5)]

    async def run(service):
        good, fed, refused = Spoken(service), 0, 0
        await good.create("createTailer", "orders")
        while fed < FRAMES:
            those = [Spoken(service)]
            for each in chance.choices(bad_frames, k=TOGETHER):
                try:
                    those[-1].hear(each)
                except BadFrame:  # its connection is over, and another one goes on
                    refused += 1
                    those.append(Spoken(service))
            fed += TOGETHER
            for bad in those:
                await bad.quiet()
                await bad.session.closed()
            assert await good.ask("cid: 1234", "hasNext: { index: 1 }") == {"index": 1, "reply": [b"b"]}
        await good.session.closed()
        return refused

    with serving(root, limits=Limits(frame=1 << 16, wait=0.0)) as service:
        assert asyncio.run(run(service)) > 10
    assert [each.payload for each in orders[0:3]] == [b"a", b"b", b"c"]
    assert orders.verify()


def test_nonsense_of_any_kind_is_no_more_than_an_exception(root, orders):
    """Random bytes as documents, in frames that are right; and no answer has a word of the disk."""
    chance = random.Random(7)

    async def run(service):
        spoken = Spoken(service)
        for _ in range(2000):
            body = chance.randbytes(chance.randint(1, 60))
            spoken.hear(frame(body, chance.choice([0, META, MORE])))
        await spoken.quiet()
        await spoken.session.closed()
        return bytes(spoken.answered)

    with serving(root) as service:
        answered = asyncio.run(run(service))
    assert answered.count(b"exception") > 500
    assert str(root).encode() not in answered
    assert len(orders) == 0
    with shmq.open(root / "orders", create=False) as queue:
        assert queue.verify()
