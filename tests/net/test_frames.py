"""Frames: whole ones come out of whatever pieces come in, and what is none ends it."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmq.net.frames import BadFrame, Frame, Frames, framed

FRAMES = st.lists(
    st.tuples(st.binary(max_size=50), st.booleans(), st.booleans()).map(
        lambda each: Frame(each[0] or b"x", each[1], each[2])
    ),
    max_size=8,
)


def bytes_of(frames):
    return b"".join(framed(each.body, meta=each.meta, more=each.more) for each in frames)


@given(FRAMES, st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_of_any_size_give_the_frames_that_were_sent(frames, data):
    sent = bytes_of(frames)
    frames_in = Frames(100)
    found = []
    at = 0
    while at < len(sent):
        stop = at + data.draw(st.integers(1, 20))
        found += frames_in.feed(sent[at:stop])
        at = stop
    assert found == frames
    assert frames_in.half == 0


def test_the_word_is_the_length_and_two_bits():
    assert framed(b"abc") == bytes.fromhex("03000000") + b"abc"
    assert framed(b"abc", meta=True) == bytes.fromhex("03000040") + b"abc"
    assert framed(b"abc", more=True) == bytes.fromhex("03000080") + b"abc"
    assert framed(b"", meta=True) == bytes.fromhex("00000040")
    with pytest.raises(ValueError, match="0 bytes are not a body"):
        framed(b"")


@pytest.mark.parametrize("word", [0, 0x80000000, 101, 0x3FFFFFFF, 0xFFFFFFFF, 0x40000065])
def test_what_is_no_frame_is_refused_by_its_word_alone(word):
    frames = Frames(100)
    with pytest.raises(BadFrame):
        frames.feed(struct.pack("<I", word))


def test_a_half_frame_is_kept_and_counted():
    frames = Frames(100)
    assert frames.feed(framed(b"abcdef")[:7]) == []
    assert frames.half == 7
    assert frames.feed(b"def" + framed(b"", meta=True)) == [Frame(b"abcdef"), Frame(b"", meta=True)]
    assert frames.half == 0


def test_the_longest_is_taken_and_a_byte_more_is_not():
    assert Frames(100).feed(framed(bytes(100))) == [Frame(bytes(100))]
    with pytest.raises(BadFrame, match="101 bytes; 100 are the most"):
        Frames(100).feed(framed(bytes(101)))
