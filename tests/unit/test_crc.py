"""CRC-32C: the processor's instruction and the table are one function, the one of RFC 3720."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DONE, chunk_bytes, chunk_files, crc32c_by_bits, record_at, words

import shmq
from shmq import _native

# RFC 3720, B.4; the last one is the iSCSI read command there. And the check value of every catalogue of CRCs.
VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
        ),
        0xD9963A56,
    ),
]


@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_both_ways_give_what_the_standard_gives(data, crc):
    """The vectors of RFC 3720, by instruction, by table, and bit by bit from the definition."""
    assert [crc] * 3 == [_native.crc32c(data), _native.crc32c_by_table(data), crc32c_by_bits(data)]


@given(st.binary(max_size=300), st.integers(0, 0xFFFFFFFF))
@settings(max_examples=200, deadline=None)
def test_both_ways_agree_on_any_bytes(data, crc):
    """Short inputs at any start value: heads, tails and eight-byte steps."""
    assert _native.crc32c(data, crc) == _native.crc32c_by_table(data, crc) == crc32c_by_bits(data, crc)


@given(st.integers(3000, 20000), st.integers(0, 16), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_both_ways_agree_on_long_bytes_at_any_alignment(length, skip, random):
    """Beyond 3 KiB the instruction runs in three streams; they join to what one would give."""
    data = random.randbytes(length + skip)
    view = bytes(memoryview(data)[skip:])
    assert _native.crc32c(view) == _native.crc32c_by_table(view)


@given(st.integers(0, 1300), st.integers(0, 16), st.integers(0, 0xFFFFFFFF), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_both_ways_agree_where_folding_begins(length, skip, crc, random):
    """From 512 bytes on, or 1,024, vectors fold it; what is left of that is summed up by the instruction."""
    view = random.randbytes(length + skip)[skip:]
    assert _native.crc32c(view, crc) == _native.crc32c_by_table(view, crc)


FOLDED = (500, 511, 512, 513, 639, 640, 767, 1023, 1024, 1025, 1279, 1280, 4095, 4097, 65_536)
PAST_THE_CACHE = ((256 << 10) - 1, 256 << 10, (256 << 10) + 1, (256 << 10) + 63, 1 << 20)


@pytest.mark.parametrize("sizes", [FOLDED, PAST_THE_CACHE], ids=["folded", "past the cache"])
def test_what_is_copied_is_summed_up_as_the_table_does(path, sizes):
    """The sum beside each message, made while it was copied in, is the one of the bytes that are there."""
    dice = random.Random(7)
    payloads = [dice.randbytes(size) for size in sizes]
    with shmq.open(path, options=shmq.Options(chunk_bytes=8 << 20, retention=shmq.Retention.forever())) as queue:
        for payload in payloads:
            queue.put(payload)
        assert [bytes(message.payload) for message in queue.reader(start="earliest")] == payloads
    found = []
    for number in range(len(chunk_files(path))):
        content = chunk_bytes(path, number)
        seed = _native.crc32c_by_table(content[64:72] + content[56:64])  # the epoch, the chunk's id
        for position in [each.position for each in words(path, number) if each.state == DONE]:
            record = record_at(content, position)
            crc = _native.crc32c_by_table(struct.pack("<QII", position, record.ordinal, record.length), seed)
            crc = _native.crc32c_by_table(content[position + 16 : position + record.length], crc)
            found.append((record.payload, record.crc == crc))
    assert found == [(payload, True) for payload in payloads]


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_a_crc_can_be_continued(data, cut):
    """CRC of a whole = CRC of its second part, continuing that of the first."""
    assert _native.crc32c(data) == _native.crc32c(data[cut:], _native.crc32c(data[:cut]))


@given(st.integers(0, 90), st.integers(0, 30), st.integers(0, 0xFFFFFFFF), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_four_side_by_side_are_what_each_is_alone(length, gap, crc, random):
    """Whatever their length, and what lies between them."""
    apart = length + gap
    heads = [random.randbytes(16) for _ in range(4)]
    data = random.randbytes(3 * apart + length)
    alone = [_native.crc32c(data[k * apart : k * apart + length], _native.crc32c(heads[k], crc)) for k in range(4)]
    assert _native.crc32c_four(heads, data, apart, length, crc) == alone
