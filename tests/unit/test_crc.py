"""CRC-32C: the processor's instruction and the table are one function, the one of RFC 3720."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import crc32c_by_bits

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
