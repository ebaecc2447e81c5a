"""Chunks with a grain: large messages in files that served before, zeroed only where a word may be looked for."""

from __future__ import annotations

import mmap
import os
import random
import struct
import time
from pathlib import Path

import pytest
from grains import SMALL, grained
from support import (
    DONE,
    META,
    PAD,
    SEAL,
    chunk_bytes,
    chunk_files,
    crc32c_by_bits,
    flip,
    make_unclean,
    patch,
    records,
    words,
)

import shmq
from shmq import _native
from shmq.storage import spares, warm

pytestmark = pytest.mark.usefixtures("mebibytes")

MIB, KIB = 1 << 20, 1 << 10
GRAIN_AT, FEATURES_AT = 92, 32  # in a chunk's header
PAGE = 4096


def grain_of(path, which: int = -1) -> int:
    """What the header of a chunk says."""
    (grain,) = struct.unpack_from("<I", chunk_bytes(path, which), GRAIN_AT)
    return grain


def used_up(queue, consumer, size: int, times: int) -> None:
    """Messages of that size, each taken before the next one, so that few files go round."""
    for number in range(times):
        payload = bytes([1 + number % 250]) * size
        queue.put(payload)
        assert consumer.take(timeout=30) == payload


def index_of(path) -> list[tuple[int, int]]:
    """The index of the last chunk, whose blocks stand where they were made with it, and no others."""
    content = chunk_bytes(path, -1)
    (slots,) = struct.unpack_from("<I", content, PAGE + 12)
    made = [block for block in struct.unpack_from(f"<{slots}Q", content, PAGE + 16) if block]
    assert made == [PAGE + 16 + 8 * slots + number * 8208 for number in range(len(made))]
    assert len(made) == len(content) // 64 // 8208
    assert {word.state for word in words(path, -1, meta=True)[2:]} <= {DONE, PAD, META, SEAL}
    entries = [entry for block in made for entry in struct.iter_unpack("<Qq", content[block + 16 : block + 8208])]
    assert sum(place != 0 for place, _ in entries) > 200
    return entries


def until_there_is_one(queue, path) -> None:
    """Put until the last chunk has a grain."""
    queue.put(bytes(5000))
    while not grain_of(path):
        queue.put(bytes(5000))


# ---------------------------------------------------------------- who gets one
def test_large_messages_get_chunks_with_a_grain_and_small_ones_do_not(make, path):
    """As soon as a chunk of large ones is full; and no more once they were followed by small ones."""
    queue = make(chunk_bytes=MIB)
    consumer = queue.consumer("c")
    used_up(queue, consumer, 200 * KIB, 12)
    assert grain_of(path) == PAGE
    while grain_of(path):
        used_up(queue, consumer, 100, 100)
        queue.put_many([b"x" * 100] * 100)
        consumer.take_many(100)
    used_up(queue, consumer, 100, 5)
    assert grain_of(path) == 0
    used_up(queue, consumer, 3 * KIB, 900)
    assert grain_of(path) == 0
    used_up(queue, consumer, 60 * KIB, 40)
    assert grain_of(path) == 1024
    used_up(queue, consumer, 5 * KIB, 500)
    assert grain_of(path) == 256


def test_a_large_message_among_many_small_ones_gets_none(make, path):
    """A small one would take a whole grain."""
    queue = make(chunk_bytes=MIB)
    for _ in range(12):
        queue.put_many([b"x" * 100] * 50)
        queue.put(bytes(200 * KIB))
    assert len(chunk_files(path)) > 2
    assert {grain_of(path, which) for which in range(len(chunk_files(path)))} == {0}


# ---------------------------------------------------------------- what is in one
def everything(queue, round_: int) -> list[tuple[bytes, bytes | None, dict]]:
    """Every way to put, with odd sizes: payload, key and headers of what is there afterwards."""
    sent = []
    for length in (0, 1, 80, 87, 88, 89, 300, 1000):
        payload = bytes([round_ % 256]) * length
        key, headers = (
            (bytes([65 + length % 7]) * (1 + length % 9), {"n": "x" * (length % 6)}) if length % 2 else (None, {})
        )
        queue.put(payload, key=key, headers=headers or None)
        sent.append((payload, key, headers))
    many = [bytes([round_ % 256, at]) * at for at in range(9)]
    queue.put_many(many)
    sent += [(each, None, {}) for each in many]
    with queue.reserve(500, key=b"r") as slot:
        slot.buffer[:77] = b"r" * 77
        slot.commit(77)
    sent.append((b"r" * 77, b"r", {}))
    slot = queue.reserve(200)
    slot.buffer[:5] = b"never"
    slot.abort()
    return sent


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("grain", [64, SMALL, 512, PAGE])
def test_whatever_is_put_comes_out_of_files_that_served_before(make, path, grain, checksum):
    """Round and round, until every file has been a chunk with other contents before."""
    with grained(grain):
        queue = make(chunk_bytes=256 * KIB, checksum=checksum)
        consumer = queue.consumer("c", ack="explicit")
        seen = set()
        for round_ in range(100):
            sent = everything(queue, round_)
            got = [consumer.get(timeout=5) for _ in sent]
            assert [(each.payload, each.key, each.headers) for each in got] == sent
            got[-1].ack()
            seen |= {file.stat().st_ino for file in chunk_files(path)}
        assert grain_of(path) == grain
        assert len(seen) < 12
        assert shmq.verify(path).problems == ()


def test_claims_begin_at_grains_and_what_they_leave_is_padding_of_no_index(make, path):
    """So a word lies at a grain, or where a walk comes from there."""
    with grained():
        queue = make(chunk_bytes=64 * KIB)
        until_there_is_one(queue, path)
        first = queue.put(bytes(40))
        queue.put_many([bytes(8), bytes(40)])
        queue.put(bytes(SMALL - 40))
    here = words(path, -1)[-5:]
    assert [(word.state, word.count, word.span * 8) for word in here] == [
        *((DONE, 1, 80), (PAD, 0, 48)),
        *((DONE, 1, 48), (DONE, 1, 80)),
        (DONE, 1, 128),
    ]
    assert all(word.position % SMALL == 0 for word in (here[0], here[2], here[4]))
    assert [message.index for message in queue[first : first + 4]] == list(range(first, first + 4))


def test_parts_are_padded_with_zeros_whatever_lay_there(make, path):
    """Nothing of an earlier message stands in a later one."""
    with grained(PAGE):
        queue = make(chunk_bytes=64 * KIB)
        consumer = queue.consumer("c")
        for number in range(200):
            queue.put(b"\xff" * 3000, key=b"k" * 3, headers={"h": number})
            consumer.take()
        queue.put(b"\xff" * 3, key=b"k", headers={"a": 1})
        with queue.reserve(16) as slot:
            slot.buffer[:5] = b"\xff" * 5
            slot.commit(5)
    content = chunk_bytes(path, -1)
    one, two = [word for word in words(path, -1) if word.state == DONE][-2:]
    record = records(path, -1)[-2]
    assert len(record.extra) % 8 == 0
    assert record.extra[8 : 8 + struct.unpack_from("<I", record.extra)[0]].rstrip(b"\0") != b""
    at = one.position + 40 + len(record.extra)
    assert content[at : at + 16] == b"k" + bytes(7) + b"\xff" * 3 + bytes(5)
    assert not any(record.extra[8 + struct.unpack_from("<I", record.extra)[0] :])
    assert content[two.position + 40 : two.position + 48] == b"\xff" * 5 + bytes(3)


# ---------------------------------------------------------------- what is zero, and what is not
def retired(queue, consumer, path) -> Path:
    """A used file that nobody maps, of a chunk with a grain."""
    used_up(queue, consumer, MIB, 60)
    warm.settle()
    return max(Path(path, "chunks").glob("retired-*"), key=lambda file: file.stat().st_ctime_ns)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("grain", [0, PAGE])
def test_a_file_that_had_a_grain_is_zeroed_for_what_it_becomes(make, path, grain, mapped):
    """For one without a grain, whole: also what lay behind the end of the last chunk that it was."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    file = retired(queue, consumer, path)
    assert struct.unpack_from("<I", file.read_bytes(), GRAIN_AT)[0] == PAGE
    size = file.stat().st_size
    patch(file, size - PAGE - 100, b"left by one before")
    for other in set(Path(path, "chunks").glob("retired-*")) - {file}:
        other.unlink()
    folder = os.open(f"{path}/chunks", os.O_RDONLY)
    look = warm.idle(queue._session.home.queue_id) if mapped else {}
    spare = spares.take(folder, PAGE, 64 * MIB, look, spares.Fresh(64, grain))
    os.close(folder)
    assert spare is not None
    with spare:
        assert (spare.map is not None) == mapped
        content = os.pread(spare.fd, spare.size, 0)
    assert not any(content[: 32 * KIB])
    if grain == 0:
        assert not any(content)
    else:
        assert not any(content[at] for at in range(0, size, PAGE) for at in range(at, at + 64))
        assert b"left by one before" in content


def test_only_the_beginnings_of_the_grains_are_zero_behind_the_end(make, path):
    """Or the file would have been zeroed for nothing."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    used_up(queue, consumer, MIB, 64)
    content = chunk_bytes(path, -1)
    end = words(path, -1)[-1]
    end = end.position + end.span * 8
    assert end % PAGE == 0
    assert any(content[end:])
    assert not any(any(content[at : at + 64]) for at in range(end, len(content), PAGE))


# ---------------------------------------------------------------- finding
def test_small_messages_in_one_are_found_by_index_and_by_time(make, path):
    """Its index blocks are there from the beginning, and no others are ever made."""
    with grained(PAGE):
        queue = make(chunk_bytes=2 * MIB, index_spacing=16)
        until_there_is_one(queue, path)
        first, later = queue.next_index, time.time_ns() + 10**12
        for batch in range(0, 4000, 100):
            here = range(batch, batch + 100)
            queue.put_many([b"%d" % n for n in here], times_ns=[later + n for n in here])
        for number in random.Random(7).sample(range(4000), 600):
            assert queue[first + number].payload == b"%d" % number
            assert queue.at_ns(later + number) == first + number
    before = index_of(path)
    queue.close()
    make_unclean(path)
    (slots,) = struct.unpack_from("<I", chunk_bytes(path, -1), PAGE + 12)
    patch(chunk_files(path)[-1], PAGE + 16, bytes(8 * slots + 16))  # and the first block's head
    with shmq.open(path) as again:
        assert index_of(path) == before
        for number in random.Random(8).sample(range(4000), 600):
            assert again[first + number].payload == b"%d" % number
            assert again.at_ns(later + number) == first + number


# ---------------------------------------------------------------- after a power cut
def test_what_earlier_chunks_left_is_no_loss(make, path):
    """A recovery says how much it cut, and that is nothing; and what comes next is in order."""
    with grained():
        queue = make(chunk_bytes=64 * KIB)
        consumer = queue.consumer("c")
        used_up(queue, consumer, 1000, 500)
        kept = [b"%d" % n * 50 for n in range(20)]
        queue.put_many(kept)
        queue.put(b"last")
        assert grain_of(path) == SMALL
        consumer.close()
        queue.close()
        make_unclean(path)
        again = shmq.open(path)
        assert again.recovery.cut_bytes == 0
        assert [message.payload for message in again.reader(start=again.recovery.end - 21)] == [*kept, b"last"]
        again.put(b"more")
        assert shmq.verify(path).problems == ()
        again.close()


# ---------------------------------------------------------------- copies and repairs
def test_a_copy_of_one_is_put_into(make, path, tmp_path):
    """It ends between two grains, and goes on from there."""
    with grained():
        queue = make(chunk_bytes=64 * KIB)
        consumer = queue.consumer("c")
        used_up(queue, consumer, 1000, 300)
        queue.put_many([b"a", b"b"])
        queue.put(b"c" * 100)
        assert grain_of(path) == SMALL
        there = [message.payload for message in queue.reader()]
        queue.copy(tmp_path / "copy")
        with shmq.open(tmp_path / "copy") as copied:
            more = [b"%d" % n * (n % 300) for n in range(500)]
            for payload in more:
                copied.put(payload)
            assert [message.payload for message in copied.reader()] == there + more
            assert shmq.verify(tmp_path / "copy").problems == ()


@pytest.mark.parametrize("checksum", [True, False])
def test_behind_damage_no_message_of_an_earlier_chunk_comes_back(make, path, tmp_path, checksum):
    """Such lie between the grains, and without checksums nothing else tells them from those that belong there."""
    queue = make(chunk_bytes=64 * KIB, checksum=checksum)
    consumer = queue.consumer("c")
    with grained(0):
        for number in range(5000):
            queue.put(b"old %d" % number)
            consumer.take()
    with grained(PAGE):
        queue.put(bytes(60 * KIB))
        consumer.take()
        new = [b"new %d" % number for number in range(10)]
        first = queue.put(new[0])
        for payload in new[1:]:
            queue.put(payload)
        assert grain_of(path) == PAGE
        damaged = [word for word in words(path, -1) if word.state == DONE][-7]
        queue.close()
    patch(chunk_files(path)[-1], damaged.position, (1 << 61 | 1 << 48).to_bytes(8, "little"))
    assert shmq.verify(path).problems != ()
    shmq.repair(path, tmp_path / "repaired")
    with shmq.open(tmp_path / "repaired") as repaired:
        found = [message.payload for message in repaired.reader(start=first)]
    assert [payload for payload in found if payload not in new] == []
    assert found == [*new[:3], *new[4:]]


# ---------------------------------------------------------------- headers that lie
@pytest.mark.parametrize(("at", "what"), [(GRAIN_AT, "checksum"), (FEATURES_AT + 1, "features")])
def test_a_header_that_lies_is_refused(make, path, at, what):
    """A feature that nobody knows, or a grain that its checksum does not know."""
    with grained():
        queue = make(chunk_bytes=64 * KIB)
        until_there_is_one(queue, path)
        last = queue.next_index - 1
        queue.close()
    flip(chunk_files(path)[-1], at)
    with pytest.raises((shmq.Corrupt, shmq.BadFormat), match=what), shmq.open(path) as again:
        again[last]


@pytest.mark.parametrize(("grain", "features"), [(96, 1), (8, 1), (8192, 1), (0, 1), (PAGE, 0)])
def test_a_grain_that_none_can_be_is_damage_though_its_checksum_agrees(make, path, grain, features):
    """Somebody may have meant it ill: claims would end anywhere."""
    with grained():
        queue = make(chunk_bytes=64 * KIB)
        until_there_is_one(queue, path)
        last = queue.next_index - 1
        queue.close()
    file = chunk_files(path)[-1]
    patch(file, GRAIN_AT, grain.to_bytes(4, "little"))
    patch(file, FEATURES_AT, features.to_bytes(4, "little"))
    patch(file, 12, crc32c_by_bits(file.read_bytes()[16:128]).to_bytes(4, "little"))
    with pytest.raises(shmq.Corrupt, match=f"{file.name}.*impossible grain"), shmq.open(path) as again:
        again[last]


@pytest.mark.parametrize("grain", [1, 63, 96, 8192])
def test_no_chunk_is_made_with_an_impossible_grain(make, grain):
    """A power of two, from 64 to a page."""
    with grained(grain):
        queue = make(chunk_bytes=64 * KIB)
        with pytest.raises(shmq.TooLarge, match="grain"):
            queue.put_many([bytes(5000)] * 12 + [bytes(50 * KIB)])
    queue.put(bytes(5000))


@pytest.mark.parametrize("size", [8 * MIB, 8 * MIB + PAGE])
@pytest.mark.parametrize("grain", [0, 64, 256, PAGE])
def test_a_used_file_is_zeroed_where_a_word_may_stand_through_the_cache_or_past_it(size, grain):
    used, ones = size - 3 * PAGE - 24, b"\1" * PAGE
    memory = mmap.mmap(-1, size)
    memory[:] = b"\1" * size
    _native.Chunk.clear(memory, used, 64, grain)
    if grain in (0, 64):
        end = used if grain == 0 else memory.find(b"\1")
        assert 0 <= end - used < 64
        assert memory[:end] == bytes(end)
        assert memory[end:] == b"\1" * (size - end)
        return
    first = memory.find(b"\1") - 64
    grains = -(-(used - first) // grain)
    assert memory[:first] == bytes(first)
    assert memory[first : first + grains * grain] == (bytes(64) + ones[: grain - 64]) * grains
    assert memory[first + grains * grain :] == b"\1" * (size - first - grains * grain)
