"""Filters: a name or a reader gets what matches, and what does not is finished by whoever walks over it."""

from __future__ import annotations

import os
import pickle
import random
import select
import threading
import time
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from support import Child, flip, make_unclean, patch, record_at, words

import shmq
from shmq import Filter, _native
from tests.reference import Sent, matches

EU = Filter(key_prefix=b"eu/")
KINDS = {
    "auto": {},
    "lone": {"ack": "explicit"},
    "group": {"group": True},
    "explicit group": {"group": True, "ack": "explicit"},
    "keyed": {"group": True, "ack": "explicit", "ordered_by": "key"},
}
RINGS = [kind for kind in KINDS if kind != "auto"]
kinds = pytest.mark.parametrize("kind", KINDS)
rings = pytest.mark.parametrize("kind", RINGS)
ASKED = [
    {"key_prefix": b"eu/"},
    {"key_prefix": b"eu/1", "types": {1, 3}},
    {"types": {65535, 0}},
    {"headers": {"region": "eu"}},
    {"headers": {"region": "eu", "n": 3}, "types": {1, 2, 3}},
    {"headers": {"on": True}},
    {"headers": {"on": 1}},
    {"headers": {"raw": b"eu"}},
    {"headers": {"none": None}},
    {"key_prefix": b"nobody has it"},
]


def some(count=300, seed=7):
    """Messages of all sorts."""
    draw = random.Random(seed)
    return [
        Sent(
            b"%d" % number,
            key=draw.choice([None, b"eu/%d" % draw.randrange(30), b"us/1", b"e"]),
            type=draw.choice([0, 1, 2, 3, 65535]),
            headers=draw.choice(
                [
                    None,
                    {"region": "eu", "n": 3},
                    {"n": draw.randrange(6), "region": draw.choice(["eu", "us", b"eu"]), "deep": [1, {"region": "eu"}]},
                    {"on": draw.choice([True, False, 1, 1.0]), "raw": draw.choice([b"eu", "eu"])},
                    {"none": draw.choice([None, False, 0, ""]), "region": None},
                ]
            ),
        )
        for number in range(count)
    ]


def put(queue, messages):
    for each in messages:
        queue.put(each.payload, key=each.key, type=each.type, headers=each.headers)
    return messages


def eu(queue, every=10, count=100):
    """Every tenth message matches EU."""
    for number in range(count):
        queue.put(b"%d" % number, key=b"eu/x" if number % every == 0 else b"us/x")


def us(queue, count):
    """None of them does."""
    queue.put_many([b"x"] * count, keys=[b"us/x"] * count)


def drained(consumer, ways="get take get_many take_many"):
    """Payloads that are there, by each of these verbs in turn."""
    found = []
    for turn in range(1 << 30):
        verb = ways.split()[turn % len(ways.split())]
        try:
            got = getattr(consumer, verb)(*([3] if "many" in verb else []), timeout=0)
        except shmq.Empty:
            return found
        for each in got if isinstance(got, list) else [got]:
            found.append(each if isinstance(each, bytes) else each.payload)
            if not isinstance(each, bytes):
                each.ack()
    return found


# ---------------------------------------------------------------- who gets what
@kinds
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: str(list(asked.items()))[:40])
def test_a_name_gets_what_matches_and_nothing_else(queue, kind, asked):
    sent = put(queue, some())
    wanted = [each.payload for each in sent if matches(each, **asked)]
    with queue.consumer("c", filter=Filter(**asked), **KINDS[kind]) as consumer:
        assert consumer.lag == len(wanted)
        assert sorted(drained(consumer), key=int) == wanted
        assert (consumer.lag, consumer.head, consumer.behind) == (0, len(sent), 0)


@kinds
def test_in_batches_of_arrow_too(queue, kind):
    sent = put(queue, some())
    with queue.consumer("c", filter=Filter(types={1}), **KINDS[kind]) as consumer:
        found = []
        while consumer.lag:
            found += consumer.take_arrow(7).column("payload").to_pylist()
        assert sorted(found, key=int) == [each.payload for each in sent if each.type == 1]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: str(list(asked.items()))[:40])
def test_a_reader_gets_it_forward_and_backward(queue, asked):
    sent = put(queue, some())
    wanted = [index for index, each in enumerate(sent) if matches(each, **asked)]
    for start, stop in ((0, None), (0, 150), (77, 201), (0, 0), (299, None)):
        here = [index for index in wanted if start <= index < (300 if stop is None else stop)]
        assert [each.index for each in queue.reader(start, stop, filter=Filter(**asked))] == here
        assert [each.index for each in queue.reader(start, stop, filter=Filter(**asked), reverse=True)] == here[::-1]


def test_a_reader_with_a_stop_passes_no_more_than_it_must(queue):
    eu(queue, every=2000, count=6000)
    reader = queue.reader(0, 1500, filter=EU, follow=True)
    assert next(reader).index == 0
    assert list(reader) == []
    with pytest.raises(shmq.ShutDown, match="the stop is reached"):
        reader.get(timeout=0)
    assert reader._walk.index() < 4000


def test_a_reader_that_follows_waits_for_what_matches(queue):
    reader = queue.reader(filter=EU, follow=True)
    eu(queue, count=25)
    assert [next(reader).payload for _ in range(3)] == [b"0", b"10", b"20"]
    with pytest.raises(shmq.Empty):
        reader.get(timeout=0)
    threading.Timer(0.05, lambda: queue.put(b"late", key=b"eu/")).start()
    assert reader.get(timeout=20).payload == b"late"


def test_a_pin_moves_over_what_its_reader_passes(make):
    queue = make(retention=shmq.Retention.bytes(1))
    queue.put(b"first", key=b"eu/")
    with queue.reader(filter=EU, follow=True, pin=True) as reader:
        next(reader)
        for _ in range(400):
            queue.put(bytes(200), key=b"us/")
        assert queue.first_index == 0
        with pytest.raises(shmq.Empty):
            reader.get(timeout=0)
        for _ in range(200):
            queue.put(bytes(200), key=b"us/")
        assert queue.first_index > 300


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, -32, -33, 127, 128, 255, 256, -128, -129, 65535, 65536, 2**31, 2**32, -(2**63), 2**64 - 1]
    ),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=40),
    st.binary(max_size=40),
)
ANYTHING = st.recursive(
    VALUES | st.floats(allow_nan=False),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=3), inside, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    with shmq.open(tmp_path_factory.mktemp("long") / "q") as queue:
        yield queue


@settings(max_examples=150, deadline=None)
@given(
    headers=st.dictionaries(st.text(max_size=4), ANYTHING, max_size=5),
    asked=st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=8),
    share=st.booleans(),
)
def test_headers_are_compared_as_values(long, headers, asked, share):
    if share:
        headers = headers | asked if len(headers) % 2 else asked | headers
    index = long.put(b"", headers=headers)
    there = {each.index for each in long.reader(index, filter=Filter(headers=asked))}
    assert (index in there) == matches(Sent(b"", headers=long[index].headers), headers=asked)


# ---------------------------------------------------------------- who passes what finishes it
@kinds
def test_the_head_passes_before_a_get_says_that_there_is_nothing(queue, kind):
    eu(queue, every=1000, count=40)
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        assert drained(consumer) == [b"0"]
        assert (consumer.head, consumer.pending) == (40, 0)


@kinds
def test_the_head_passes_each_1024_and_at_the_end_of_a_chunk(make, kind, monkeypatch):
    """Looks go on in the core for that long, and no longer."""
    heads = []
    queue = make(chunk_bytes=65536)
    for _ in range(40):
        us(queue, 100)
    with queue.consumer("c", filter=Filter(types={1}), **KINDS[kind]) as consumer:
        walk = consumer._walk
        forward, index = type(walk)._advance, type(walk).index

        def advance(self):
            if self.chunk is not None:
                heads.append((consumer.head, index(self)))
            return forward(self)

        monkeypatch.setattr(type(walk), "_advance", advance)
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0)
        assert len(heads) >= 3
        assert all(head == at for head, at in heads)


@kinds
def test_a_look_passes_1024_then_it_says_how_far_it_is(make, kind, mebibytes):
    queue = make(chunk_bytes=1 << 20)
    us(queue, 5000)
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        walk = consumer._walk
        assert walk._find()
        for passed in (1024, 2048, 3072):
            if kind == "auto":
                code = _native.take(walk.chunk, walk.reader, 1000, walk.which)
            else:
                code = consumer._ring.take(walk.chunk, walk.reader, 10, 1000, _native.taken_array(10))
            assert (code, consumer.head, walk.index()) == (_native.PASSED, passed, passed)


@kinds
def test_a_bounded_queue_and_a_name_that_wants_little_never_hang(make, kind):
    """The producer waits for room again and again, and nothing that is put matches but the last."""
    queue = make(max_messages=16)
    consumer = queue.consumer("c", filter=EU, **KINDS[kind])
    queue.consumer("fast").close()
    queue.drop_consumer("fast")
    done = []

    def work():
        for number in range(600):
            queue.put(b"%d" % number, key=b"us/", timeout=20)
        done.append(queue.put(b"last", key=b"eu/", timeout=20))

    thread = threading.Thread(target=work)
    thread.start()
    assert consumer.get(timeout=20).payload == b"last"
    thread.join(20)
    assert done == [600]
    consumer.close()


@kinds
def test_who_waits_for_several_or_by_a_descriptor_passes_too(make, kind):
    queue = make(max_messages=16)
    consumer = queue.consumer("c", filter=EU, **KINDS[kind])
    other = queue.consumer("other", hold=None)

    def work():
        for number in range(100):
            queue.put(b"%d" % number, key=b"us/", timeout=20)
        queue.put(b"last", key=b"eu/", timeout=20)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(50):
        assert other in shmq.wait([consumer, other], timeout=20)
        other.take()
    descriptor, poll = consumer.fileno(), select.poll()
    poll.register(descriptor, select.POLLIN)
    found = None
    while found is None:
        assert poll.poll(20_000)
        try:
            found = consumer.take(timeout=0)
        except shmq.Empty:
            drained(other, "take")
    assert found == b"last"
    thread.join(20)
    drained(other, "take")
    other.close()
    consumer.close()


def test_what_does_not_match_is_no_attempt_and_nobody_holds_it(queue):
    eu(queue, every=2, count=10)
    with queue.consumer("c", ack="explicit", filter=EU) as consumer:
        first = consumer.get()
        assert (consumer.pending, first.attempts) == (1, 1)
        got = consumer.get_many(10, timeout=0)
        assert [each.attempts for each in got] == [1] * 4
        assert (consumer.lag, consumer.pending, consumer.head) == (5, 5, 0)
        first.nack()
        again = consumer.get(timeout=0)
        assert (again.index, again.attempts) == (0, 2)
        consumer.ack(again, *got)
        assert (consumer.lag, consumer.head) == (0, 10)


@rings
def test_the_window_is_no_edge_for_what_does_not_match(make, kind):
    """A thousand that nobody wants, in a window of 64, behind one that somebody holds."""
    queue = make()
    consumer = queue.consumer("c", filter=EU, window=64, **KINDS[kind])
    queue.put(b"held", key=b"eu/1")
    held = consumer.get(timeout=0)
    us(queue, 1000)
    queue.put(b"last", key=b"eu/2")
    held.ack()
    assert consumer.get(timeout=5).index == 1001
    consumer.close()


def test_dead_letters_are_of_what_matches(make, tmp_path):
    queue = make(tmp_path / "q")
    eu(queue, every=3, count=9)
    with queue.consumer("c", ack="explicit", filter=EU, max_attempts=1) as consumer:
        for _ in range(3):
            consumer.get(timeout=5).reject("no")
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0)
        assert consumer.lag == 0
    with shmq.open(tmp_path / "q.c.dead", create=False) as dead:
        assert [each.payload for each in dead.reader()] == [b"0", b"3", b"6"]


@kinds
def test_times_of_what_does_not_match_hold_nobody_and_are_not_counted(queue, kind):
    queue.put(b"later", key=b"us/", delay=3600)
    queue.put(b"old", key=b"us/", ttl=0.001)
    time.sleep(0.005)
    queue.put(b"now", key=b"eu/")
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        assert consumer.take(timeout=5) == b"now"
        assert consumer.head == 3
        group = queue.consumers()["c"].group
        assert group is None or (group.expired, group.parked) == (0, 0)


@rings
def test_what_is_delayed_and_matches_is_parked_beside_what_is_passed(queue, kind):
    queue.put(b"later", key=b"eu/1", delay=0.2)
    us(queue, 20)
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0)
        assert (consumer.lag, queue.consumers()["c"].group.parked) == (1, 1)
        queue.put(b"now", key=b"eu/2")
        assert {consumer.take(timeout=10), consumer.take(timeout=10)} == {b"now", b"later"}


def test_a_peek_is_at_what_matches(queue):
    eu(queue, every=7, count=20)
    for kind, how in KINDS.items():
        with queue.consumer(kind.replace(" ", "-"), filter=Filter(key_prefix=b"eu/"), start=3, **how) as consumer:
            assert consumer.peek().index == 7
            assert consumer.take(timeout=0) == b"7"


# ---------------------------------------------------------------- damage
def damage(path, index):
    """Spoil the payload of that message, in the first chunk."""
    at = [word for word in words(path) if word.state == 2][index]
    flip(next(Path(path, "chunks").glob("*.chunk")), at.position + at.span * 8 - 8)


@kinds
def test_damage_in_what_does_not_match_is_passed_and_verify_finds_it(queue, path, kind):
    eu(queue, every=2, count=6)
    damage(path, 1)
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        assert drained(consumer) == [b"0", b"2", b"4"]
    assert len(queue.verify().problems) == 1


@kinds
def test_damage_in_what_matches_is_told(queue, path, kind):
    eu(queue, every=2, count=6)
    damage(path, 2)
    with queue.consumer("c", filter=EU, skip_corrupt=True, **KINDS[kind]) as consumer:
        assert drained(consumer) == [b"0", b"4"]
        assert consumer.skipped == 1
    with queue.consumer("d", filter=EU, **KINDS[kind]) as consumer, pytest.raises(shmq.Corrupt):
        drained(consumer)


def test_no_headers_whatever_their_bytes_do_harm(queue, path):
    """What a hostile process may have written there either matches, and fails its checksum, or is passed."""
    headers = {"region": "eu", "n": [1, {"deep": b"x" * 20}], "on": True}
    queue.put(b"p", headers=headers)
    file = next(Path(path, "chunks").glob("*.chunk"))
    at = words(path)[0].position
    stored = msgspec.msgpack.encode(headers)
    begin = file.read_bytes().index(stored)
    room = len(record_at(file.read_bytes(), at).extra) - 8
    draw = random.Random(5)
    wanted = Filter(headers={"region": "eu"})
    verdicts = {True: 0, False: 0}
    for number in range(3000):
        content = bytearray(stored.ljust(room, b"\0"))
        if number % 5 == 0:
            content[:] = draw.randbytes(room)
            content[0] = draw.choice([0xDF, 0xDE, 0x8F, 0x81])
        for _ in range(draw.randrange(1, 3)):
            strange = [draw.randrange(256), 0xDF, 0xDD, 0xC6, 0xDB, 0xC9, 0xC1]
            content[draw.randrange(len(stored))] = draw.choice(strange)
        patch(file, begin, bytes(content))
        try:
            found = msgspec.msgpack.decode(bytes(content[: len(stored)]))
            expected = isinstance(found, dict) and found.get("region") == "eu"
        except Exception:  # noqa: BLE001  # whatever is wrong with it
            expected = None
        try:
            passed = list(queue.reader(filter=wanted)) == []
        except shmq.Corrupt:
            passed = False
        else:
            passed = passed or bytes(content[: len(stored)]) == stored
        if expected is not None and bytes(content[: len(stored)]) != stored:
            assert passed is not expected, bytes(content)
            verdicts[expected] += 1
    assert min(verdicts.values()) > 20


# ---------------------------------------------------------------- it stays with the name
@kinds
def test_a_filter_is_kept_with_the_name_and_is_not_contradicted(queue, kind):
    eu(queue)
    queue.consumer("c", filter=EU, **KINDS[kind]).close()
    with queue.consumer("c", **KINDS[kind]) as consumer:
        assert consumer.filter == EU
        assert len(drained(consumer)) == 10
    queue.consumer("c", filter=Filter(key_prefix=b"eu/"), **KINDS[kind]).close()
    with pytest.raises(shmq.Mismatch, match=r"it was made with filter=Filter\(key_prefix=b'eu/'\)"):
        queue.consumer("c", filter=Filter(key_prefix=b"us/"), **KINDS[kind])
    queue.consumer("plain", **KINDS[kind]).close()
    with pytest.raises(shmq.Mismatch, match="it was made with filter=None"):
        queue.consumer("plain", filter=EU, **KINDS[kind])


@kinds
def test_it_goes_with_its_name_into_another_name_and_into_a_copy(queue, path, tmp_path, kind):
    eu(queue)
    everything = Filter(key_prefix=b"eu/", types={0, 7}, headers={"a": None, "b": b"\xff", "c": "é", "d": -(2**63)})
    queue.consumer("old", filter=everything, **KINDS[kind]).close()
    queue.rename_consumer("old", "new")
    queue.copy(tmp_path / "copy")
    queue.copy(tmp_path / "other", new_id=True)
    for at in (tmp_path / "copy", tmp_path / "other", path):
        with shmq.open(at, create=False) as found, found.consumer("new", **KINDS[kind]) as consumer:
            assert consumer.filter == everything
            assert found.verify()
    queue.drop_consumer("new")
    assert os.listdir(Path(path, "consumers")) == []
    with queue.consumer("new", **KINDS[kind]) as consumer:
        assert consumer.filter is None


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda content: content[:20], "too short"),
        (lambda content: content[:-1] + b"x", "checksum"),
        (lambda content: None, "missing"),
    ],
)
@kinds
def test_a_name_whose_filter_is_damaged_is_refused_and_can_be_dropped(queue, path, kind, spoil, why):
    queue.consumer("c", filter=EU, **KINDS[kind]).close()
    file = Path(path, "consumers", "c.subscription")
    content = spoil(file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    with pytest.raises(shmq.Corrupt, match=why):
        queue.consumer("c", **KINDS[kind])
    assert not queue.verify()
    queue.drop_consumer("c")
    queue.consumer("c", **KINDS[kind]).close()
    assert queue.verify()


@kinds
def test_what_was_passed_stays_passed_after_a_power_cut(make, path, kind):
    queue = make()
    us(queue, 30)
    with queue.consumer("c", filter=Filter(types={9}), **KINDS[kind]) as consumer, pytest.raises(shmq.Empty):
        consumer.get(timeout=0)
    queue.close()
    make_unclean(path)
    queue = make()
    with queue.consumer("c", **KINDS[kind]) as consumer:
        assert consumer.head == 30


@kinds
def test_killed_on_its_way_it_is_passed_again(make, path, kind):
    """Whoever comes next finds the same, and the queue is drained of what matches, once."""
    queue = make()
    eu(queue, every=3000, count=9000)

    def work(say):
        with shmq.open(path, create=False) as mine:
            consumer = mine.consumer("c", filter=EU, **KINDS[kind])
            say("in")
            consumer.get()
            say("has one")
            consumer.get_many(100)
            time.sleep(60)

    child = Child(work)
    child.hear()
    child.hear()
    child.kill()
    with queue.consumer("c", **KINDS[kind]) as consumer:
        found = drained(consumer)
        auto = consumer.ack_mode == "auto"
        assert found == [b"0", b"3000", b"6000"][-len(found) :] if auto else len(found) == 3
        assert (consumer.lag, consumer.head) == (0, 9000)


@kinds
def test_a_seek_and_a_purge_mean_what_they_mean(queue, kind):
    eu(queue)
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        assert len(drained(consumer)) == 10
        consumer.seek(35)
        assert consumer.lag == 6
        assert drained(consumer) == [b"40", b"50", b"60", b"70", b"80", b"90"]
        consumer.seek("earliest")
        queue.purge()
        assert drained(consumer) == []
        assert consumer.lag == 0


@kinds
def test_the_oldest_are_dropped_beside_a_name_that_wants_little(make, kind):
    queue = make(max_messages=20, full="drop_oldest")
    with queue.consumer("c", filter=EU, **KINDS[kind]) as consumer:
        eu(queue)
        assert [int(each) for each in drained(consumer)] == [80, 90]
        assert (consumer.lag, consumer.head) == (0, 100)


def test_a_stream_ends_for_a_name_when_nothing_that_matches_is_left(queue):
    eu(queue)
    for kind, how in KINDS.items():
        consumer = queue.consumer(kind.replace(" ", "-"), filter=EU, **how)
        if kind == "explicit group":
            queue.finish()
            found = []
            for message in consumer:
                found.append(message.payload)
                message.ack()
            assert len(found) == 10
        consumer.close()


def test_a_volatile_queue_has_them_too():
    with shmq.open(None) as queue:
        eu(queue)
        with queue.consumer("c", filter=EU) as consumer:
            assert len(drained(consumer)) == 10


# ---------------------------------------------------------------- filters themselves
def test_a_filter_is_a_value():
    one = Filter(key_prefix=b"a", types=[2, 1, 1], headers={"x": 1, "y": None})
    assert one == Filter(headers={"y": None, "x": 1}, types={1, 2}, key_prefix=b"a") == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    assert one != Filter(key_prefix=b"a", types=[2, 1], headers={"x": True, "y": None})
    assert eval(repr(one), {"Filter": Filter}) == one
    assert Filter.from_stored(one.stored()) == one


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        ({}, ValueError, "asks for nothing"),
        ({"key_prefix": "eu/"}, TypeError, r"prefix.encode\(\)"),
        ({"key_prefix": b"x" * 65536}, ValueError, "up to 65535"),
        ({"types": 7}, TypeError, "a set of ints"),
        ({"types": "12"}, TypeError, "a set of ints"),
        ({"types": []}, ValueError, "types is empty"),
        ({"types": {65536}}, ValueError, "from 0 to 65535"),
        ({"types": {True}}, TypeError, "an int"),
        ({"headers": "x"}, TypeError, "a mapping"),
        ({"headers": {1: 2}}, TypeError, "headers: a name"),
        ({"headers": {"x": 1.5}}, TypeError, "'x'"),
        ({"headers": {"x": [1]}}, TypeError, "'x'"),
        ({"headers": {"x": 2**64}}, ValueError, "2\\*\\*64"),
        ({"headers": {"x": "\ud800"}}, ValueError, "surrogates"),
        ({"headers": dict.fromkeys("123456789", 1)}, ValueError, "up to 8"),
    ],
)
def test_what_no_message_can_have_is_refused(wrong, error, why):
    with pytest.raises(error, match=why):
        Filter(**wrong)


def test_only_filters_are_filters(queue):
    with pytest.raises(TypeError, match=r"filter=.*a shmq.Filter is wanted"):
        queue.consumer("c", filter={"key_prefix": b"eu/"})
    with pytest.raises(TypeError, match=r"filter=.*a shmq.Filter is wanted"):
        queue.reader(filter=b"eu/")
    assert queue.consumers() == {}
