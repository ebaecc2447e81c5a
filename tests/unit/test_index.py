"""The index of a chunk, on its bytes; and that whatever stands there, no answer is wrong."""

from __future__ import annotations

import random
import shutil
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DONE, META, PAD, PAGE, Child, chunk_bytes, chunk_files, patch, peek, record_at, words

import shmq

pytestmark = pytest.mark.usefixtures("mebibytes")

CHUNK = 1 << 20
BLOCK = 16 + 512 * 16
SLOTS = PAGE + 16


def blocks(path, which=0):
    """Positions of the index blocks of one chunk, by number."""
    content = chunk_bytes(path, which)
    (count,) = struct.unpack_from("<I", content, PAGE + 12)
    return [struct.unpack_from("<Q", content, SLOTS + 8 * i)[0] for i in range(count)]


def entries(path, which=0):
    """{j: (position, ordinal, time_max)} of what is written."""
    content = chunk_bytes(path, which)
    found = {}
    for number, block in enumerate(blocks(path, which)):
        for j in range(512 if block else 0):
            place, time_max = struct.unpack_from("<Qq", content, block + 16 + 16 * j)
            if place:
                found[number * 512 + j] = (place >> 36 << 3, place & (1 << 36) - 1, time_max)
    return found


def expected(path, spacing, which=0):
    """What the entries must be, from the words and the times."""
    content = chunk_bytes(path, which)
    found, ordinal, running = {}, 0, -(1 << 63)
    for word in words(path, which):
        if word.state == DONE:
            running = max(running, record_at(content, word.position).time_ns)
        for j in range(-(-ordinal // spacing), -(-(ordinal + word.count) // spacing)):
            if j:
                found[j] = (word.position, ordinal, running)
        ordinal += word.count
    return found


def entry_position(path, j, which=0):
    """Where entry j lies in its file."""
    return blocks(path, which)[j // 512] + 16 + 16 * (j % 512)


def wipe(path):
    """Zero every entry of every chunk."""
    for which, file in enumerate(chunk_files(path)):
        for block in blocks(path, which):
            if block:
                patch(file, block + 16, bytes(512 * 16))


def damage(path, seed):
    """Random places in some entries of every chunk: any bits, or any word's position under the entry's own ordinal."""
    noise = random.Random(seed)
    for which, file in enumerate(chunk_files(path)):
        positions = [word.position for word in words(path, which)]
        for j, (_, ordinal, _) in entries(path, which).items():
            if noise.randrange(2):
                named = noise.choice(positions) + noise.choice([0, 0, 8, 40]) >> 3 << 36 | ordinal
                patch(
                    file,
                    entry_position(path, j, which),
                    struct.pack("<Q", noise.choice([noise.getrandbits(64), named])),
                )


@pytest.mark.parametrize("spacing", [1, 64, 1000])
def test_entries_name_each_spacing_th_message_and_the_running_maximum(make, path, spacing):
    """One by one, in batches larger than the spacing, with padding between and times that go up and down."""
    queue = make(chunk_bytes=CHUNK, index_spacing=spacing)
    noise = random.Random(1)
    for _ in range(300):
        queue.put(b"x" * noise.randrange(50), time_ns=noise.randrange(1, 1000))
    queue.put_many([b"y"] * 2500, times_ns=[noise.randrange(1, 2000) for _ in range(2500)])
    queue.reserve(100).abort()
    queue.put_many([b"z"] * 200)
    assert len(chunk_files(path)) == 1
    assert entries(path) == expected(path, spacing)
    assert len(entries(path)) == 3000 // spacing


def test_a_block_is_a_meta_record_that_names_its_number(make, path):
    """Claimed whole at the tail, without ordinals; its position stands in its slot of index2index."""
    queue = make(chunk_bytes=CHUNK, index_spacing=1)
    for _ in range(600):
        queue.put(b"x")
    first, second, *rest = blocks(path)
    assert not any(rest)
    content = chunk_bytes(path)
    metas = [word for word in words(path, meta=True) if word.state == META and word.span * 8 == BLOCK]
    assert [word.position for word in metas] == [first, second]
    assert [struct.unpack_from("<II", content, word.position + 8) for word in metas] == [(3, 0), (3, 1)]
    assert {(word.count, word.owner) for word in metas} == {(0, 0)}


@pytest.mark.parametrize("kind", ["put", "batch", "reserve"])
def test_an_entry_inside_padding_names_the_padding(make, path, kind):
    """A batch that was claimed by a process that died is one PAD of many ordinals: entries in it begin at it."""
    queue = make(chunk_bytes=CHUNK, index_spacing=4)
    queue.put_many([b"a"] * 3)
    queue.reserve(10).abort()  # ordinal 3
    slot = queue.reserve(10)  # ordinal 4: a multiple
    slot.abort()
    {
        "put": lambda: [queue.put(b"b") for _ in range(8)],
        "batch": lambda: queue.put_many([b"b"] * 8),
        "reserve": lambda: [queue.reserve(1).commit() for _ in range(8)],
    }[kind]()
    pad = [word for word in words(path) if word.state == PAD][-1]
    assert entries(path)[1][:2] == (pad.position, 4)
    assert entries(path) == expected(path, 4)
    for missing in (3, 4):
        with pytest.raises(IndexError, match="padding"):
            queue[missing]
    assert [queue[i].index for i in range(5, 13)] == list(range(5, 13))


def test_a_small_chunk_has_no_blocks(make, path):
    """Where a block would take more than a sixteenth, walks are short; every index is found all the same."""
    queue = make(chunk_bytes=65536, index_spacing=1)
    for i in range(2000):
        queue.put(b"%d" % i)
    assert len(chunk_files(path)) > 1
    assert not any(any(blocks(path, which)) for which in range(len(chunk_files(path))))
    assert [int(queue[i].payload) for i in range(0, 2000, 7)] == list(range(0, 2000, 7))
    assert queue.at_ns(0) == 0


def test_no_block_is_begun_where_it_does_not_fit(make, path):
    """A chunk whose tail is too short for a block just goes on without; the seal still fits."""
    queue = make(chunk_bytes=CHUNK, index_spacing=512 * 16)
    queue.put_many([b"x" * 70] * 8000)
    while len(chunk_files(path)) == 1:
        queue.put(b"x" * 70)
    total = queue.next_index
    for i in random.Random(2).sample(range(total), 500):
        assert queue[i].index == i
    for word in words(path, 0, meta=True):
        assert word.position + word.span * 8 <= CHUNK - 8


@pytest.fixture
def indexed(make):
    """1000 messages whose payload is their index, spacing 16, times with their index."""
    queue = make(chunk_bytes=CHUNK, index_spacing=16)
    for i in range(1000):
        queue.put(b"%d" % i, time_ns=1000 + i)
    return queue


def right(queue, total=1000, step=1):
    """Every lookup finds the right message."""
    for i in range(0, total, step):
        message = queue[i]
        assert (message.index, message.payload) == (i, b"%d" % i)
        assert queue.at_ns(1000 + i) == i


def test_lost_entries_cost_a_walk_and_are_put_back(indexed, path):
    """By index the places come back, by time the maxima; by the next producer as well."""
    before = entries(path)
    wipe(path)
    right(indexed)
    assert entries(path) == before
    wipe(path)
    assert indexed[40].payload == b"40"
    assert {j: entry[:2] for j, entry in entries(path).items()} == {j: before[j][:2] for j in (1, 2)}
    assert indexed.at_ns(1999) == 999
    assert entries(path) == before
    file = chunk_files(path)[0]
    patch(file, entry_position(path, 61), bytes(32))
    for i in range(1000, 1040):
        indexed.put(b"%d" % i, time_ns=1000 + i)
    assert entries(path) == expected(path, 16)


def test_a_read_only_handle_finds_everything_and_puts_nothing_back(indexed, path):
    """Not one byte changes."""
    wipe(path)
    before = chunk_bytes(path)
    with shmq.open(path, read_only=True) as reading:
        right(reading, step=13)
    assert chunk_bytes(path) == before


@pytest.mark.parametrize("what", ["garbage", "inside", "before", "behind", "block", "other", "late"])
def test_entries_that_point_anywhere_give_no_wrong_answer(indexed, path, what):
    """Random bits, the inside of a region, before the first message, behind the last, the block itself, and another
    message under a wrong ordinal: every answer is right, and the entries are put right on the way."""
    noise = random.Random(3)
    file, content, truth = chunk_files(path)[0], chunk_bytes(path), entries(path)
    positions = [word.position for word in words(path)]
    anywhere = {
        "garbage": lambda at, ordinal: None,
        "inside": lambda at, ordinal: at + 8 * noise.randrange(1, 6),
        "before": lambda at, ordinal: noise.choice([0, 8, PAGE, SLOTS]),
        "behind": lambda at, ordinal: len(content) - noise.choice([0, 8, 16, 4096]),
        "block": lambda at, ordinal: blocks(path)[0],
        "other": lambda at, ordinal: positions[noise.randrange(len(positions))],
        "late": lambda at, ordinal: positions[min(ordinal + 3, 999)],
    }
    for j, (at, ordinal, _) in truth.items():
        position = anywhere[what](at, ordinal)
        place = noise.getrandbits(64) if position is None else position >> 3 << 36 | ordinal
        patch(file, entry_position(path, j), struct.pack("<Q", place))
    right(indexed, step=3)
    assert [message.index for message in indexed.reader(333)] == list(range(333, 1000))
    assert [message.index for message in indexed.reader(reverse=True)] == list(range(999, -1, -1))


@pytest.mark.parametrize("j", [1, 5, 30, 62])
@pytest.mark.parametrize("time_max", [-5, 1, 1003, 1500, 1 << 62])
def test_one_damaged_time_is_found_out(indexed, path, j, time_max):
    """Its neighbours contradict it."""
    patch(chunk_files(path)[0], entry_position(path, j) + 8, struct.pack("<q", time_max))
    for i in range(0, 1000, 9):
        assert indexed.at_ns(1000 + i) == i


@pytest.mark.parametrize("slot", [0, 1, 8, PAGE, (1 << 64) - 8, CHUNK - 8])
def test_a_slot_of_index2index_that_points_anywhere(indexed, path, slot):
    """No block is there, so there are no entries; the next producer makes a new block."""
    file = chunk_files(path)[0]
    patch(file, SLOTS, struct.pack("<Q", slot))
    right(indexed, step=50)
    for i in range(1000, 1040):
        indexed.put(b"%d" % i, time_ns=1000 + i)
    assert blocks(path)[0] != slot
    right(indexed, 1040, step=13)


def test_a_block_whose_maker_died_is_an_orphan(indexed, path):
    """Its slot still empty, or its kind not written yet: walks step over it."""
    file = chunk_files(path)[0]
    patch(file, blocks(path)[0] + 8, bytes(8))
    right(indexed, step=50)
    patch(file, SLOTS, bytes(8))
    right(indexed, step=50)
    indexed.put_many([b"%d" % i for i in range(1000, 1040)], times_ns=range(2000, 2040))
    right(indexed, 1040, step=13)
    assert {word.span * 8 for word in words(path, meta=True) if word.state == META} > {BLOCK}


def test_an_open_claim_ends_what_is_known_of_times(make, path):
    """Entries behind it have a place and no time; the next producers know it once the claim is resolved."""
    queue = make(chunk_bytes=CHUNK, index_spacing=4)
    queue.put_many([b"a"] * 6, times_ns=[5] * 6)
    slot = queue.reserve(8, time_ns=50)
    for i in range(6):
        queue.put(b"b", time_ns=10 + i)
    assert [entry[2] for entry in entries(path).values()] == [5, 0, 0]
    assert queue.at_ns(10) == 7
    assert queue.at_ns(60) == 13
    slot.commit()
    assert queue.at_ns(10) == 6
    queue.put_many([b"c"] * 4, times_ns=[1] * 4)
    assert entries(path) == expected(path, 4)


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(-20, 20)),
        st.tuples(st.just("batch"), st.lists(st.integers(-20, 20), min_size=1, max_size=200)),
        st.tuples(st.just("pad"), st.just(0)),
        st.tuples(st.just("big"), st.integers(-20, 20)),
        st.tuples(st.just("wipe"), st.just(0)),
        st.tuples(st.just("damage"), st.integers(0, 1 << 32)),
    ),
    max_size=40,
)


@given(ops=OPS, spacing=st.sampled_from([1, 3, 64, 65536]), chunk=st.sampled_from([16384, 1 << 18]), seed=st.integers())
@settings(max_examples=60, deadline=None)
def test_everything_as_the_reference(  # noqa: C901  # one case a line
    tmp_path_factory, ops, spacing, chunk, seed
):
    """
    Against a list: by index, from the end, slices, forward and backward, and by time, whatever was put.
    """
    path = tmp_path_factory.mktemp("index") / "q"
    options = shmq.Options(chunk_bytes=chunk, index_spacing=spacing, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        reference = []  # time or None
        for kind, value in ops:
            if kind == "put":
                queue.put(b"x", time_ns=value)
                reference.append(value)
            elif kind == "batch":
                queue.put_many([b"y"] * len(value), times_ns=value)
                reference += value
            elif kind == "pad":
                queue.reserve(9).abort()
                reference.append(None)
            elif kind == "big":
                queue.put(bytes(5000), time_ns=value)
                reference.append(value)
            elif queue.next_index:
                wipe(path) if kind == "wipe" else damage(path, value)
        there = [i for i, time in enumerate(reference) if time is not None]
        assert queue.next_index == len(reference)
        assert [message.index for message in queue.reader()] == there
        assert [message.index for message in queue.reader(reverse=True)] == there[::-1]
        for time in range(-22, 22):
            first = next((i for i in there if reference[i] >= time), len(reference))
            assert queue.at_ns(time) == first
        noise = random.Random(seed)
        for _ in range(20):
            a, b = (noise.randrange(-len(reference) - 2, len(reference) + 3) for _ in range(2))
            step = noise.choice([1, 1, -1, 2, -3, 70, -70])
            wanted = [i for i in range(len(reference))[a:b:step] if reference[i] is not None]
            assert [message.index for message in queue[a:b:step]] == wanted
            if 0 <= a < len(reference):
                if reference[a] is None:
                    with pytest.raises(IndexError, match="padding"):
                        queue[a]
                else:
                    assert (queue[a].index, queue[a].time_ns) == (a, reference[a])
                    assert queue[a - len(reference)].index == a
    shutil.rmtree(path)


@pytest.mark.parametrize("batch", [1, 100])
def test_lookups_beside_producers(make, batch):
    """Three processes put, two more look up random indexes and times: what is found is what was put there."""
    queue = make(chunk_bytes=1 << 18, index_spacing=16, retention=shmq.Retention.forever())
    queue.put(b"0:0")

    def putting(say, who):
        producer = queue.producer()
        for n in range(6000 // batch):
            if batch == 1:
                producer.put(b"%d:%d" % (who, n))
            else:
                producer.put_many([b"%d:%d" % (who, n * batch + i) for i in range(batch)])
            if n % 50 == 0:
                producer.reserve(50).abort()
        say("done")

    def looking(say, seed):
        noise = random.Random(seed)
        seen = {}
        found = 0
        for _ in range(6000):
            end = queue.next_index
            index = noise.randrange(end)
            try:
                message = queue[index]
            except IndexError:
                continue
            assert message.index == index
            assert seen.setdefault(index, bytes(message.payload)) == message.payload
            found += 1
            if found % 100 == 0:
                at = queue.at_ns(message.time_ns)
                assert at <= index
                assert queue[at].time_ns >= message.time_ns
        say(found)

    with Child(putting, 1) as a, Child(putting, 2) as b, Child(looking, 1) as c, Child(looking, 2) as d:
        assert [a.hear(60), b.hear(60)] == ["done", "done"]
        assert int(c.hear(60)) > 1000
        assert int(d.hear(60)) > 1000
        assert [child.join() for child in (a, b, c, d)] == [0] * 4
    assert [message.index for message in queue.reader(reverse=True)] == [m.index for m in queue.reader()][::-1]
    last = [int(m.payload.split(b":")[1]) for m in queue.reader() if m.payload.startswith(b"2:")]
    assert last == list(range(6000))


def test_an_entry_never_lags_by_more_than_the_producers_that_died(make, path):
    """A producer killed between its puts and its entries: the next one goes on where the index stops."""
    queue = make(chunk_bytes=CHUNK, index_spacing=8)
    for i in range(1, 200):
        queue.put(b"%d" % i, time_ns=i)
        if i == 100:
            patch(chunk_files(path)[0], entry_position(path, 10), bytes(16 * 3))
    assert entries(path) == expected(path, 8)
    assert peek(chunk_files(path)[0], SLOTS) == blocks(path)[0]


def test_a6_no_entry_leads_into_a_padded_batch(make, path):
    """
    Rule A6: the inner words of a batch say DONE before it is committed, and for ever when its producer dies. An entry
    that names one is not believed, be its record as right as it can be; one inside a committed batch is.
    """
    queue = make(chunk_bytes=CHUNK, index_spacing=4)
    queue.put_many([b"%d" % i for i in range(3)])
    queue.put_many([b"%d" % i for i in range(3, 23)])
    for i in range(23, 40):
        queue.put(b"%d" % i)
    before = words(path)
    assert queue[5].payload == b"5"
    # As if the second batch had been padded before its commit: PAD over the whole region, inner words as they are.
    span = sum(word.span for word in before[3:23])
    file = chunk_files(path)[0]
    patch(file, before[3].position, struct.pack("<Q", PAD << 61 | 20 << 48 | before[3].owner << 27 | span))
    for j in (1, 2, 3):
        patch(file, entry_position(path, j), struct.pack("<Q", before[4 * j].position >> 3 << 36 | 4 * j))
    with shmq.open(path, read_only=True) as reading:  # a process that has not looked there before
        for i in range(3, 23):
            with pytest.raises(IndexError, match="padding"):
                reading[i]
        assert [reading[i].index for i in (0, 2, 23, 39)] == [0, 2, 23, 39]
        assert [message.index for message in reading.reader(5)] == list(range(23, 40))


def test_a6_a_padded_batch_between_two_entries_is_not_taken_for_committed(make, path):
    """Nor is one that no entry leads into, whose messages lie where they are computed to lie."""
    queue = make(chunk_bytes=CHUNK, index_spacing=64)
    for i in range(140):
        queue.put(b"%07d" % i)
    queue.put_many([b"%07d" % i for i in range(140, 150)])
    for i in range(150, 300):
        queue.put(b"%07d" % i)
    assert [queue[i].payload for i in range(300)] == [b"%07d" % i for i in range(300)]
    first = words(path)[140]
    patch(
        chunk_files(path)[0],
        first.position,
        struct.pack("<Q", PAD << 61 | 10 << 48 | first.owner << 27 | 10 * first.span),
    )
    for i in range(140, 150):
        with pytest.raises(IndexError, match="padding"):
            queue[i]
    assert [queue[i].payload for i in (*range(140), *range(150, 300))] == [
        b"%07d" % i for i in (*range(140), *range(150, 300))
    ]


def test_messages_of_one_size_are_found_behind_damage(make, path):
    """Where they lie is computed from the entries around them: no walk, and no damaged word in its way."""
    queue = make(chunk_bytes=CHUNK, index_spacing=64)
    queue.put_many([b"%07d" % i for i in range(100)])
    for i in range(100, 300):
        queue.put(b"%07d" % i)
    assert queue[220].payload == b"0000220"
    patch(chunk_files(path)[0], words(path)[200].position, bytes([255] * 8))
    for i in range(300):
        if i == 200 or i >= 256:  # behind the last entry there is none to compute from; here, from the next one on
            continue
        assert queue[i].payload == b"%07d" % i
    with pytest.raises(shmq.Corrupt):
        queue[200]


@pytest.mark.parametrize("checksum", [True, False])
def test_a_payload_that_looks_like_a_record_is_not_taken_for_one(make, path, checksum):
    """It stands where the second message would begin if all had the same size, and says that it is the second."""
    queue = make(chunk_bytes=CHUNK, index_spacing=4, checksum=checksum)
    sizes = [104, 48, 48, 56]  # of records: 64 on the average
    flags = 0 if checksum else 1 << 15
    forged = struct.pack("<QIIIHHqHHHH", DONE << 61 | 1 << 48 | 1 << 27 | 64 // 8, 64, 0, 9, 0, 1, 7, 0, flags, 0, 0)
    for group in range(4):
        for i, size in enumerate(sizes):
            real = b"%d" % (4 * group + i)
            payload = (bytes(24) + forged)[: size - 40] if i == 0 else real.ljust(size - 40)
            queue.put(payload)
    queue.put(b"end")
    content = chunk_bytes(path)
    starts = [word.position for word in words(path)]
    assert starts[12] - starts[8] == 256
    assert content[starts[8] + 64 : starts[8] + 72] == forged[:8]  # it does stand there
    assert [queue[i].payload.rstrip() for i in (9, 10, 11)] == [b"9", b"10", b"11"]
