"""put_many: one claim, all of it or nothing."""

from __future__ import annotations

import pytest
from support import DONE, PAD, Child, chunk_files, hold_until_killed, records, states, words

import shmq


def test_a_batch_has_consecutive_indexes_and_carries_its_places(queue, path):
    """Each record says its place and the size of its batch, so that no cut need fall inside one."""
    queue.put(b"before")
    assert queue.put_many([b"a", b"bb", b"ccc"]) == range(1, 4)
    assert [(record.payload, record.place, record.batch) for record in records(path)[1:]] == [
        (b"a", 0, 3),
        (b"bb", 1, 3),
        (b"ccc", 2, 3),
    ]
    assert states(path) == [DONE] * 4


def test_fields_of_a_batch_belong_to_their_messages(queue):
    """One entry of keys, types, times and headers for each payload; None where one has none."""
    queue.put_many([b"a", b"b"], keys=[b"k", None], types=[7, 8], times_ns=[1, -1], headers=[None, {"h": 1}])
    a, b = queue.reader()
    assert (a.key, a.type, a.time_ns, a.headers) == (b"k", 7, 1, {})
    assert (b.key, b.type, b.time_ns, b.headers) == (None, 8, -1, {"h": 1})


@pytest.mark.usefixtures("mebibytes")
def test_a_batch_of_8191_is_the_largest(make, path):
    """One more is TooMany, with the limit in its text, and nothing is put."""
    queue = make(chunk_bytes=1 << 20)
    with pytest.raises(shmq.TooMany, match=r"8192 messages.*8191.*nothing was put"):
        queue.put_many([b""] * 8192)
    assert states(path) == []
    assert queue.put_many([b""] * 8191) == range(8191)
    assert words(path)[0].count == 1
    assert len(queue) == 8191


def test_an_empty_batch_puts_nothing(queue):
    """An empty range at the end."""
    queue.put(b"x")
    assert queue.put_many([]) == range(1, 1)


def test_lengths_that_differ_are_refused(queue, path):
    """Two keys for three payloads: ValueError with both numbers, and nothing is put."""
    with pytest.raises(ValueError, match="keys has 2 entries for 3 payloads; nothing was put"):
        queue.put_many([b"a", b"b", b"c"], keys=[b"", b""])
    assert states(path) == []


def test_a_payload_that_cannot_be_encoded_stops_the_whole_batch(make, path):
    """Encoding comes before the claim."""
    with pytest.raises(TypeError):
        make(codec="json").put_many([1, object()])
    assert states(path) == []


def test_a_batch_larger_than_a_chunk_gets_a_chunk_made_to_its_size(queue, path):
    """A batch is never split: the empty chunk is sealed, and a larger one holds all of it."""
    assert queue.put_many([bytes([i]) * 5000 for i in range(10)]) == range(10)
    assert states(path, 1) == [DONE] * 10 + [PAD]  # to the end of its grain


def test_a_batch_whose_producer_died_inside_the_claim_never_was(queue, path):
    """A claim of one region becomes one PAD of all its ordinals; the next message comes after them."""

    def claim_and_stay(say):
        queue.reserve(64)  # the same kind of claim; a batch cannot be stopped half-way from here
        hold_until_killed(say)

    queue.put(b"before")
    with Child(claim_and_stay) as child:
        child.hear()
        child.kill()
    assert queue.put(b"after") == 2
    assert [message.payload for message in queue.reader()] == [b"before", b"after"]
    assert states(path) == [DONE, PAD, DONE]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_messages_of_one_size_are_written_and_read_four_at_a_time(make, count):
    """However many, put and taken in whatever way: each is whole, as whoever looks at one alone finds it."""
    queue = make(codec="bytes")
    sizes = [60] * count + [61] + [7] * count + [3000] * 5 + [0] * count
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    times = list(range(len(sizes)))
    types = [number * 7 for number in times]
    queue.put_many(payloads)
    queue.put_many(payloads, types=types, times_ns=times)
    for payload in payloads:
        queue.put(payload)
    assert [queue[index].payload for index in range(3 * len(sizes))] == payloads * 3
    found = [queue[len(sizes) + number] for number in times]
    assert [(message.type, message.time_ns) for message in found] == list(zip(types, times, strict=True))
    taken = []
    with queue.consumer("c") as consumer:
        while len(taken) < 3 * len(sizes):
            taken += consumer.take_many(1000, timeout=0)
    assert taken == payloads * 3
    assert not queue.verify().problems


@pytest.mark.parametrize("damaged", range(9))
def test_damage_among_four_is_told_of_the_one_that_has_it(make, path, damaged):
    """What comes before it is handed out, whichever of the four it is; itself never."""
    queue = make()
    queue.put_many([b"%d" % number * 50 for number in range(9)])
    consumer = queue.consumer("c")
    spot = words(path)[damaged].position + 45  # in its payload
    with open(chunk_files(path)[0], "r+b") as file:
        file.seek(spot)
        byte = file.read(1)
        file.seek(spot)
        file.write(bytes([byte[0] ^ 1]))
    taken = consumer.take_many(100, timeout=0) if damaged else []
    assert taken == [b"%d" % number * 50 for number in range(damaged)]
    with pytest.raises(shmq.Corrupt):
        consumer.take_many(100, timeout=0)
    assert consumer.head == damaged
