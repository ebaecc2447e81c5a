"""Numbers in shared pages that cannot be true: each is bounded before it is used, and nobody hangs or dies of it."""

import contextlib
import struct

import pytest
from support import DONE, Child, chunk_files, crc32c_by_bits, make_unclean, patch, peek, words

import shmq
from shmq import _native
from shmq.storage import watermark

SYNC_LEADER, DURABLE, DURABLE_CHUNK, DURABLE_AT = 392, 400, 408, 432
HUGE = [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, 1 << 62, (1 << 64) - 1]
SYNC = {"durability": shmq.Durability.SYNC}


def put_and_sync(say, path, word, value):
    with shmq.open(path) as queue:
        for number in range(3):
            queue.put(b"%d" % number)
        patch(f"{path}/control.shmq", word, struct.pack("<Q", value))
        assert queue.put(b"3", timeout=20) == 3
        queue.sync()
        queue.put(b"4", timeout=20)
    with shmq.open(path) as queue:
        queue.put(b"5", timeout=20)
        queue.sync()
        assert queue._session.joined().control.durable() == 6
    say("done")


@pytest.mark.parametrize("word", [SYNC_LEADER, DURABLE_CHUNK, DURABLE_AT])
@pytest.mark.parametrize("value", HUGE)
def test_a_word_of_the_group_commit_that_cannot_be_true_neither_kills_nor_stops_a_put(path, word, value):
    shmq.open(path, options=shmq.Options(**SYNC)).close()
    with Child(put_and_sync, path, word, value) as child:
        assert child.join(60) == 0
    assert shmq.verify(path)


@pytest.mark.parametrize("value", HUGE)
def test_a_durable_that_is_beyond_the_end_is_gone_by_no_more_once_somebody_opens_or_syncs(path, value):
    with shmq.open(path, options=shmq.Options(**SYNC)) as queue:
        queue.put(b"0")
        patch(f"{path}/control.shmq", DURABLE, struct.pack("<Q", value))
        queue.sync()
        assert queue._session.joined().control.durable() == 1
    patch(f"{path}/control.shmq", DURABLE, struct.pack("<Q", value))
    with shmq.open(path) as queue:
        queue.put(b"1")
        assert queue._session.joined().control.durable() == 2


def test_the_control_page_after_a_recovery_says_where_the_next_sync_begins(path):
    """The word is a sequence + 1, as layout.h has it."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())) as queue:
        for number in range(500):
            queue.put(b"%d" % number)
        queue.sync()
        mark = watermark.read(queue._session.home)
    assert mark is not None
    assert mark.chunk_sequence > 0
    make_unclean(path)
    with shmq.open(path) as queue:
        assert peek(f"{path}/control.shmq", DURABLE_CHUNK) == mark.chunk_sequence + 1
        assert queue._session.joined().control.durable_chunk() == mark.chunk_sequence


def survive(say, path):
    for flags in ({"read_only": True}, {}):
        for skip in (False, True):
            try:
                with shmq.open(path, **flags) as queue:
                    list(queue.reader(skip_corrupt=skip))
                    len(queue)
                    queue.at_ns(5)
                    queue.at_ns(1 << 60)
                    [queue[number] for number in range(0, 600, 7)]
                    list(queue.read_arrow())
                    if not flags:
                        queue.consumer("c", skip_corrupt=skip).take_many(9, 0)
                        queue.put(b"x", timeout=5)
                        queue.sync()
            except (shmq.ShmqError, IndexError):
                pass
    shmq.verify(path)
    say("done")


PLACES = {
    "hint": 128,
    "index_hint": 192,
    "time_max": 256,
    "resolved": 320,
    "index2index": 4112,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "value",
    [(1 << 64) - 1, 65536 // 8 << 36, (65536 - 8) // 8 << 36 | 3, (65536 - 16) // 8 << 36, 65536 - 8, 65536 - 8216, 5],
)
def test_a_number_in_a_chunks_header_that_cannot_be_true_kills_nobody(path, place, value):
    with shmq.open(path, options=shmq.Options(chunk_bytes=65536, retention=shmq.Retention.forever())) as queue:
        for number in range(500):
            queue.put(b"%d" % number, time_ns=number)
    patch(chunk_files(path)[0], PLACES[place], struct.pack("<Q", value))
    with Child(survive, path) as child:
        assert child.join(60) == 0


@pytest.mark.parametrize("bytes_before_the_end", [8, 16, 24, 32, 40, 48])
def test_entries_and_words_at_the_very_end_of_a_chunk_kill_nobody(path, bytes_before_the_end):
    """There a record's head reaches beyond the mapping."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=1 << 18, retention=shmq.Retention.forever())) as queue:
        for number in range(4000):
            queue.put(b"%d" % number, time_ns=number)
    file = max(chunk_files(path), key=lambda each: each.stat().st_size)
    size = file.stat().st_size
    block = peek(file, 4112)
    assert block
    at = size - bytes_before_the_end
    for entry in range(1, 40):
        patch(file, block + 16 + 16 * entry, struct.pack("<QQ", at // 8 << 36 | 64 * entry, 64 * entry))
    patch(file, 128, struct.pack("<Q", at // 8 << 36 | 9))
    patch(file, at, struct.pack("<Q", DONE << 61 | 1 << 48 | 1 << 27 | 5))
    with Child(survive, path) as child:
        assert child.join(60) == 0


def test_flags_that_announce_more_than_a_record_has_are_corrupt(path):
    """With its checksum mended: the field would be read from behind the mapping."""
    options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for _ in range(400):
            queue.put(b"")
    last = [word for word in words(path) if word.state == DONE][-1]
    file = chunk_files(path)[0]
    content = bytearray(file.read_bytes())
    struct.pack_into("<H", content, last.position + 34, 3)  # flags: expiry, and delay
    ordinal, length = struct.unpack_from("<I", content, last.position + 16)[0], 40
    seed = crc32c_by_bits(content[64:72] + content[56:64])
    crc = crc32c_by_bits(struct.pack("<QII", last.position, ordinal, length), seed)
    crc = crc32c_by_bits(bytes(content[last.position + 16 : last.position + 40]), crc)
    struct.pack_into("<I", content, last.position + 12, crc)
    file.write_bytes(content)
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        consumer.take_many(401, 0)  # what comes before it
        with pytest.raises(shmq.Corrupt, match="optional fields"):
            consumer.take(0)


def test_nobody_with_a_seat_that_cannot_be_is_alive(path):
    with shmq.open(path) as queue:
        member = queue._session.joined().member
        for owner in (0x7FFFFFFF, 0xFFFFFFFF, 1 << 21):
            assert not _native.core.lib.shmq_owner_alive(member.handle, owner)
        assert not member.slot_locked(0xFFFFFFFF)


@pytest.mark.parametrize("mark", [201, 1000, 0x7FFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize(("file", "at"), [("consumers/g.ring", 352), ("control.shmq", 536)])
def test_a_mark_of_drops_beyond_the_queue_hangs_nobody_and_is_damage_for_who_joins(make, file, at, mark):
    """Not a walk over every index before it, in one call that no signal ends."""
    queue = make(max_messages=1000)
    queue.put_many([b"x"] * 200)
    member = queue.consumer("g", group=True, ack="explicit")
    held = member.get_many(10, 0)
    with open(f"{queue.path}/{file}", "r+b") as opened:
        opened.seek(at)
        opened.write(struct.pack("<Q", mark))
    with contextlib.suppress(shmq.ShmqError):
        member.get_many(3, 0)
    with pytest.raises(shmq.Corrupt, match=rf"{file} says that all before {mark} is dropped, and the queue ends"):
        queue.consumer("g", group=True)
    member.ack(*held)
    assert queue.purge() == 200
    assert queue.put(b"still") == 200
    assert [message.index for message in queue.reader(start=200)] == [200]
