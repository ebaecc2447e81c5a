"""The word and the record: what is put, read from the bytes by the format's own description."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    DONE,
    HINT,
    META,
    PAD,
    PAGE,
    SEAL,
    chunk_bytes,
    chunk_files,
    crc32c_by_bits,
    peek,
    record_at,
    records,
    states,
    words,
)

import shmq


def record_crc(content: bytes, position: int) -> int:
    """The checksum of a record by the words of docs/format.md."""
    epoch, chunk_id = struct.unpack_from("<Q", content, 64)[0], struct.unpack_from("<Q", content, 56)[0]
    record = record_at(content, position)
    place = struct.pack("<QQQII", epoch, chunk_id, position, record.ordinal, record.length)
    return crc32c_by_bits(place + content[position + 16 : position + record.length])


def test_a_chunk_begins_with_its_header_and_index2index(queue, path):
    """Two META words of no ordinals stand before the first message; the header names queue, size, epoch and birth."""
    queue.put(b"x")
    content = chunk_bytes(path)
    header, index2index, first = words(path, meta=True)
    assert header[1:] == (META, 0, 0, PAGE // 8)
    assert index2index[:3] == (PAGE, META, 0)
    assert first.position == PAGE + index2index.span * 8
    magic, order, version, incompatible, compatible = struct.unpack_from("<8sIIII", content, 16)
    assert (magic, order, version, incompatible, compatible) == (b"shmqchnk", 0x01020304, 1, 0, 0)
    assert content[40:56] == chunk_files(path)[0].parent.parent.joinpath("queue.shmq").read_bytes()[24:40]
    assert struct.unpack_from("<QQ", content, 64) == (1, len(content))  # epoch, capacity
    assert struct.unpack_from("<QQ", content, 104) == (0, 0)  # born as 0-0
    assert struct.unpack_from("<I", content, 12)[0] == crc32c_by_bits(content[16:128])


def test_a_message_is_a_done_word_a_header_and_its_bytes(queue, path):
    """Every field that put was given stands where the format says, and the checksum is the format's."""
    index = queue.put(b"payload", key=b"the key", type=513, time_ns=-5, headers={"a": 1})
    (word,) = words(path)
    record = records(path)[0]
    assert index == 0
    assert (word.state, word.count) == (DONE, 1)
    assert word.span == -(-record.length // 8)
    assert (record.payload, record.key, record.type, record.time_ns) == (b"payload", b"the key", 513, -5)
    assert (record.ordinal, record.place, record.batch) == (0, 0, 1)
    assert record.flags == 1 << 6
    assert record.extra == struct.pack("<II", 4, 0) + b"\x81\xa1a\x01" + bytes(4)
    assert record.crc == record_crc(chunk_bytes(path), word.position)


@given(payload=st.binary(max_size=100), key=st.binary(max_size=20), kind=st.integers(0, 65535))
@settings(max_examples=60, deadline=None)
def test_any_message_comes_back_and_lies_on_eights(tmp_path_factory, payload, key, kind):
    """Whatever is put, the payload begins on an 8-byte boundary, and reading gives it back."""
    path = tmp_path_factory.mktemp("word") / "q"
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(payload, key=key, type=kind)
        (message,) = queue.reader()
        assert (payload, key or None, kind) == (message.payload, message.key, message.type)
        (word,) = words(path)
        record = records(path)[0]
        assert (payload, key) == (record.payload, record.key)
        assert (record.length - len(payload)) % 8 == word.position % 8 == 0


def test_the_owner_in_a_word_is_slot_and_generation(queue, path):
    """The first process to sit down signs as slot 0, generation 1."""
    queue.put(b"x")
    assert words(path)[0].owner == 0 << 11 | 1


def test_the_hint_names_the_end_of_the_last_region(queue, path):
    """Position in 8-byte units above, ordinal below; all bytes behind it are zero."""
    queue.put_many([b"a", b"b", b"c"])
    last = words(path)[-1]
    hint = peek(chunk_files(path)[0], HINT)
    assert (last.position + last.span * 8, 3) == ((hint >> 36) * 8, hint & (1 << 36) - 1)
    assert not any(chunk_bytes(path)[last.position + last.span * 8 :])


def test_a_full_chunk_ends_with_a_seal(queue, path):
    """What does not fit seals the chunk: SEAL has neither count nor span nor owner, and stands 8 bytes from the end or
    before; the room for a GAP is kept in front of it."""
    while len(chunk_files(path)) < 2:
        queue.put(bytes(1000))
    assert [DONE] * (len(words(path)) - 1) + [SEAL] == states(path)
    seal = words(path)[-1]
    assert seal[2:] == (0, 0, 0)
    assert seal.position <= len(chunk_bytes(path)) - 32


def test_padding_keeps_its_ordinals(queue, path):
    """An aborted claim becomes PAD with the claim's own count and span; the next message has the next ordinal."""
    slot = queue.reserve(100)
    claimed = words(path)[0]
    slot.abort()
    queue.put(b"after")
    pad, done = words(path)
    assert claimed[2:] == pad[2:]
    assert [pad.state, done.state] == [PAD, DONE]
    assert records(path)[0].ordinal == 1


def test_a_queue_without_checksums_says_so_in_every_message(make, path):
    """checksum=False: CRC 0 and the UNCHECKED flag."""
    make(checksum=False).put(b"x")
    assert (records(path)[0].crc, records(path)[0].flags) == (0, 1 << 15)
