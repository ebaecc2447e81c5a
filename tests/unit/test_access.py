"""Random access as its user sees it: indexes, slices, times, backward; and the cache of mapped chunks behind it."""

from __future__ import annotations

import datetime
import threading

import pytest
from support import Child, begin_at, chunk_files, flip, in_child, make_unclean, until, words

import shmq
from shmq.storage import mapped
from shmq.storage.chain import Chain

UTC = datetime.UTC
BEGAN = datetime.datetime(2024, 1, 1, tzinfo=UTC)


def when(seconds):
    """That many seconds later."""
    return BEGAN + datetime.timedelta(seconds=seconds)


def ns(seconds):
    """The same in ns since 1970."""
    return (int(BEGAN.timestamp()) + seconds) * 1_000_000_000


@pytest.fixture
def flights(make):
    """40 messages, one a second, over several chunks; index 13 is padding."""
    queue = make(retention=shmq.Retention.forever())
    for i in range(40):
        if i == 13:
            queue.reserve(1).abort()
        else:
            queue.put(b"%d" % i + bytes(2000), time_ns=ns(i))
    return queue


def indexes(messages):
    return [message.index for message in messages]


SLICES = [
    slice(10, 20),
    slice(None),
    slice(-3, None),
    slice(30, 99),
    slice(20, 10),
    slice(None, None, 7),
    slice(None, None, -1),
    slice(35, 2, -5),
    slice(0, 40, 70),
]


@pytest.mark.parametrize("wanted", SLICES)
def test_a_slice_is_a_list_of_what_is_there(flights, wanted):
    """As of a list, ends clipped; what is padding is left out."""
    assert indexes(flights[wanted]) == [i for i in range(40)[wanted] if i != 13]
    with pytest.raises(ValueError, match="zero"):
        flights[::0]


def test_what_is_no_index_is_refused(flights):
    """As by a list."""
    with pytest.raises(TypeError):
        flights["1"]


def test_backward_is_forward_reversed(flights):
    """All, and from anywhere to anywhere, over chunks and padding."""
    for start, stop in ((0, None), (5, 9), (-3, None), (12, 15), (39, 40), (40, None), (-100, -2), (9, 5)):
        forward = indexes(flights.reader(start, stop))
        assert indexes(flights.reader(start, stop, reverse=True)) == forward[::-1]
    with pytest.raises(ValueError, match="reverse or follow"):
        flights.reader(reverse=True, follow=True)


def test_backward_raises_at_a_damaged_message_and_not_before(flights, path):
    """What lies behind it is delivered."""
    position = words(path)[3].position
    flip(chunk_files(path)[0], position + 60)
    reader = flights.reader(reverse=True)
    seen = []
    with pytest.raises(shmq.Corrupt):
        seen.extend(message.index for message in iter(reader.__next__, None) if not seen.append(message.index))
    assert seen[-1] == 4
    with pytest.raises(shmq.Corrupt, match="checksum"):
        flights[3]
    assert flights[4].index == 4


def test_a_backward_reader_leaves_out_what_is_not_committed(queue):
    """It does not wait, and does not stop."""
    queue.put(b"a")
    slot = queue.reserve(1)
    queue.put(b"b")
    assert indexes(queue.reader(reverse=True)) == [2, 0]
    slot.commit()
    assert indexes(queue.reader(reverse=True)) == [2, 1, 0]


def test_at_finds_the_first_message_of_a_time(flights):
    """By datetime or ns; before all, after all, and where padding is."""
    assert [flights.at(when(i)) for i in (-5, 0, 7, 12.5, 13, 39, 39.1)] == [0, 0, 7, 14, 14, 39, 40]
    assert flights.at_ns(ns(8)) == 8
    assert flights.at(when(8).astimezone(datetime.timezone(datetime.timedelta(hours=9)))) == 8
    assert flights.at(when(8).astimezone().replace(tzinfo=None)) == 8
    assert (flights.at_ns(-(1 << 70)), flights.at_ns(1 << 70)) == (0, 40)


def test_a_float_is_a_time_in_seconds_and_an_int_is_refused(flights):
    """q.at(time.time()) was 0, read as nanoseconds; whole seconds and nanoseconds look alike, so each has its name."""
    seconds = BEGAN.timestamp()
    assert [flights.at(seconds + i) for i in (-5.0, 0.0, 7.0, 12.5, 39.1)] == [0, 0, 7, 14, 40]
    assert (flights.at(float("-inf")), flights.at(float("inf"))) == (0, 40)
    with pytest.raises(TypeError, match=r"float\(time\), for nanoseconds use at_ns\(\)"):
        flights.at(ns(8))
    with pytest.raises(TypeError, match=r"at\(\) takes datetimes and floats"):
        flights.at_ns(seconds)
    with pytest.raises(ValueError, match="nan"):
        flights.at(float("nan"))
    with pytest.raises(TypeError, match="not str"):
        flights.at("2024-01-01")


@pytest.mark.parametrize("group", [False, True])
def test_seek_start_and_reader_take_the_same_places(flights, group):
    """An index, "earliest", "latest", a datetime with a zone or local, a float of seconds."""
    places = {
        "earliest": 0,
        "latest": 40,
        7: 7,
        when(7): 7,
        when(7).astimezone().replace(tzinfo=None): 7,
        BEGAN.timestamp() + 6.5: 7,
        0.0: 0,
    }
    with flights.consumer("c", group=group) as consumer:
        for place, index in places.items():
            consumer.seek(place)
            assert consumer.head == index
            with flights.consumer(f"c{len(flights.consumers())}", group=group, start=place) as other:
                assert other.head == index
            first = next(flights.reader(place), None)
            assert (first is None) if index == 40 else (first.index == index)
    assert indexes(flights.reader(BEGAN.timestamp() + 5, BEGAN.timestamp() + 8)) == [5, 6, 7]
    for wrong in ("soon", None, b"latest"):
        with pytest.raises((TypeError, ValueError), match="start="):
            flights.reader(wrong)


def test_at_of_an_empty_queue(queue):
    """The next index."""
    assert queue.at_ns(0) == 0
    assert queue[:] == []


def test_readers_go_by_time(flights):
    """One stretch of time, forward and backward; a follower ends when the first message of the stop comes."""
    assert indexes(flights.reader(when(10), when(15))) == [10, 11, 12, 14]
    assert indexes(flights.reader(when(10), when(15), reverse=True)) == [14, 12, 11, 10]
    assert indexes(flights.reader(when(38))) == [38, 39]
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(indexes(flights.reader(when(38), when(50), follow=True))))
    thread.start()
    flights.put(b"x", time_ns=ns(49))
    flights.put(b"x", time_ns=ns(50))
    thread.join(20)
    assert seen == [38, 39, 40]


def test_consumers_go_by_time(flights):
    """start= of a new name, and seek."""
    consumer = flights.consumer("c", start=when(20))
    assert consumer.get(timeout=0).index == 20
    consumer.seek(when(12.5))
    assert consumer.get(timeout=0).index == 14
    consumer.seek(when(100))
    with pytest.raises(shmq.Empty):
        consumer.get(timeout=0)


def test_a_start_by_time_misses_no_open_claim(queue):
    """A claim that is not committed may turn out to be of that time: a consumer begins at it, at() does not name it."""
    queue.put(b"a", time_ns=ns(0))
    slot = queue.reserve(1, time_ns=ns(5))
    queue.put(b"b", time_ns=ns(6))
    consumer = queue.consumer("c", start=when(3))
    reader = queue.reader(when(3))
    assert queue.at(when(3)) == 2
    slot.commit()
    assert (consumer.get(timeout=0).index, next(reader).index, queue.at(when(3))) == (1, 1, 1)


def test_a_dead_producers_claim_is_padded_by_a_lookup(queue):
    """By index and by time: nobody waits for the dead."""

    def claim(say):
        slot = queue.reserve(10)
        say("claimed")
        threading.Event().wait()
        slot.abort()

    with Child(claim) as child:
        child.hear()
        queue.put(b"after", time_ns=ns(1))
        with pytest.raises(IndexError, match="not committed yet"):
            queue[0]
        child.kill()
    with pytest.raises(IndexError, match="padding"):
        queue[0]
    assert queue.at(when(0)) == 1


def test_a_retired_index_says_so(make, path):
    """With the first one still there; the cache lets go of the retired chunks, and their files go."""
    queue = make()
    for i in range(60):
        queue.put(b"%d" % i * 1000)
    assert [queue[i].index for i in range(60)] == list(range(60))
    before = len(chunk_files(path))
    consumer = queue.consumer("c")
    while consumer.lag:
        consumer.take_many(60, timeout=0)
    until(lambda: len(chunk_files(path)) < before)
    first = queue.first_index
    assert first > 0
    for gone in (0, first - 1, first - queue.next_index - 1):
        with pytest.raises(IndexError, match=f"retired: the first index still there is {first}|from {first} to"):
            queue[gone]
    assert queue[first].index == first
    assert indexes(queue[0:]) == list(range(first, 60))
    assert queue.at_ns(0) == first


def test_few_chunks_stay_mapped(make, monkeypatch):
    """Those used last."""
    monkeypatch.setattr(mapped, "LIMIT", 3)
    queue = make(retention=shmq.Retention.forever())
    for _ in range(100):
        queue.put(bytes(2000))
    for i in (0, 99, 50, 20, 0, 70, 10, 99):
        assert queue[i].index == i
        assert len(queue._session.joined().mapped._chunks) <= 3
    assert indexes(queue.reader(reverse=True)) == list(range(99, -1, -1))


def test_a_forked_child_looks_up_for_itself(flights):
    """The parent's mappings are not its own."""
    assert flights[5].index == 5
    assert in_child(lambda: (flights[5].index, flights[-1].index, flights.at(when(7)))) == "(5, 39, 7)"


def test_another_handle_made_chunks_meanwhile(make):
    """What was put elsewhere is found."""
    reading, putting = make(), make()
    for i in range(60):
        putting.put(b"%d" % i * 500)
        assert reading[i].index == reading[-1].index == i
        assert reading.next_index == i + 1


def test_killed_producers_leave_no_wrong_index(make):
    """kill -9 in the middle of puts, again and again: all that is there is found, by index and by time."""
    queue = make(chunk_bytes=1 << 18, index_spacing=2, retention=shmq.Retention.forever())

    def putting(say):
        producer = queue.producer()
        n = 0
        while True:
            n += 1
            producer.put(b"x" * (n % 50)) if n % 7 else producer.put_many([b"y"] * (n % 11 + 1))
            if n == 100:
                say("on the way")

    for _ in range(15):
        with Child(putting) as child:
            child.hear()
            child.kill()
    there = {message.index: message.time_ns for message in queue.reader()}
    highest = -1
    for index, time_ns in there.items():
        if index % 13 == 0:
            assert queue[index].time_ns == time_ns
        if time_ns > highest:
            if index % 50 == 0:
                assert queue.at_ns(time_ns) == index
            highest = time_ns
    assert indexes(queue.reader(reverse=True)) == list(there)[::-1]


def test_where_no_message_is_as_late_the_answer_is_the_next_index_also_behind_a_gap_and_before_the_first(make, path):
    """In a queue that begins at a high index and has no message, and when a recovery has left indexes out."""
    make().close()
    begin_at(path, 1000)
    with shmq.open(path) as queue:
        assert queue.at_ns(5) == 1000
        queue.put(b"early", time_ns=1)
    make_unclean(path)
    with shmq.open(path) as queue:
        assert queue.next_index > 1001
        assert queue.at_ns(5) == queue.next_index
        assert queue.at_ns(1) == 1000
        assert queue.put(b"late", time_ns=9) == queue.at_ns(5)


def test_found_committed_index_was_busy_beside_one_writer_who_makes_chunks(path, monkeypatch):
    """Who listed a thousand chunks found one more behind them each time; what there was when asked will do."""
    with shmq.open(path, chunk_bytes=16384, retention="forever") as queue:
        queue.put(bytes(9000))
        names = Chain.names

        def and_one_more(chain):
            live = names(chain)
            queue.put(bytes(9000))
            return live

        queue.extents(0)
        monkeypatch.setattr(Chain, "names", and_one_more)
        before = queue.next_index
        assert queue.committed_index >= before
        assert queue.extents(0)[-1].stop >= before


def test_found_a_chunk_that_begins_behind_what_is_looked_for_in_it_has_it_not(make, monkeypatch):
    """By seed 3000300255 of the living fuzzer: a raw OverflowError."""
    queue = make()
    for number in range(3):
        queue.put(b"%d" % number)
    assert queue[1].payload == b"1"
    access = queue._session.access()
    chunk = access._chunk(*access._chain.names()[0])
    monkeypatch.setattr(chunk, "base", 2)
    monkeypatch.setattr(type(access), "_chunk", lambda *_: chunk)
    with pytest.raises(IndexError, match="has no message 1"):
        access._message(1)
