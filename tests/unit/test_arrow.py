"""Messages as Arrow batches: the same messages as reader() delivers, in the same order, ending at the same places."""

import datetime
import os
import random
import signal
import struct

import pyarrow as pa
import pytest
from support import Child, chunk_files, flip, in_child, patch, run_python, until, words

import shmq

ALL = ["index", "time", "key", "type", "payload", "headers"]


def rows(batches):
    """Tuples of what is in these batches, each of which is whole and owns its memory."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
        assert not any(each.address % 64 for column in batch.columns for each in column.buffers() if each)
        columns = [
            (column.cast(pa.int64()) if name == "time" else column).to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        found += zip(*columns, strict=True)
    return found


def expected(messages, names=tuple(ALL)):
    """The same tuples, message by message."""
    import msgspec

    take = {
        "index": lambda m: m.index,
        "time": lambda m: m.time_ns,
        "key": lambda m: m.key,
        "type": lambda m: m.type,
        "payload": lambda m: bytes(m.view),
        "headers": lambda m: msgspec.msgpack.encode(m.headers) if m.headers else None,
    }
    return [tuple(take[name](message) for name in names) for message in messages]


def fill(queue, count, seed=1):
    """Messages of all kinds, one by one and in batches, and padding between them."""
    noise = random.Random(seed)
    made = 0
    while made < count:
        kind = noise.randrange(8)
        payload = noise.randbytes(noise.choice([0, 1, 7, 8, 9, 40, 200]))
        if kind == 0:
            slot = queue.reserve(noise.randrange(100))
            slot.abort()
        elif kind < 5:
            headers = {"n": made} if noise.random() < 0.3 else None
            key = noise.choice([None, b"", b"k", b"key of some length"])
            queue.put(payload, key=key, type=noise.randrange(65536), time_ns=noise.randrange(1 << 40), headers=headers)
        else:
            each = noise.randrange(1, 20)
            queue.put_many(
                [noise.randbytes(noise.randrange(30)) for _ in range(each)],
                keys=[noise.choice([None, b"a", b"abcdefgh"]) for _ in range(each)],
                types=range(each),
                headers=[noise.choice([None, {"x": "y"}]) for _ in range(each)],
            )
            made += each
        made += 1


# ---------------------------------------------------------------- reading
@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 1 << 20, "index_spacing": 4}, {"checksum": False}])
def test_batches_hold_what_a_reader_delivers(make, options):
    queue = make(**options)
    fill(queue, 3000)
    messages = list(queue.reader())
    assert rows(queue.read_arrow(columns=ALL)) == expected(messages)
    assert rows(queue.read_arrow()) == expected(messages, ALL[:5])
    noise = random.Random(2)
    for _ in range(30):
        start, stop = sorted(noise.randrange(queue.next_index + 2) for _ in range(2))
        chosen = noise.sample(ALL, noise.randrange(1, len(ALL) + 1))
        limits = {"max_rows": noise.randrange(1, 300), "max_bytes": noise.randrange(1, 3000)}
        got = rows(queue.read_arrow(start, stop, chosen, **limits))
        assert got == expected(queue.reader(start, stop), chosen), (start, stop, chosen, limits)
    assert rows(queue.read_arrow(-20)) == expected(queue.reader(-20), ALL[:5])


def test_the_schema_is_known_before_the_first_batch(queue):
    batches = queue.read_arrow()
    assert batches.schema == pa.schema([
        ("index", pa.uint64()), ("time", pa.timestamp("ns", "UTC")), ("key", pa.binary()), ("type", pa.uint16()),
        ("payload", pa.binary()),
    ])  # fmt: skip
    assert list(batches) == []
    queue.put(b"x")
    assert next(batches).schema == batches.schema
    assert queue.read_arrow(columns=["headers", "index"]).schema.names == ["headers", "index"]


def test_times_bound_it_as_they_bound_a_reader(queue):
    times = [5, 3, 8, 8, 2, 9, 1]
    queue.put_many([b"%d" % time for time in times], times_ns=[time * 1000 for time in times])
    for start in range(11):
        for stop in range(11):
            bounds = [datetime.datetime.fromtimestamp(time / 1e6, datetime.UTC) for time in (start, stop)]
            assert rows(queue.read_arrow(*bounds)) == expected(queue.reader(*bounds), ALL[:5])


def test_batches_are_as_large_as_they_may_be(queue):
    queue.put_many([bytes(10)] * 100, keys=[b"12345"] * 100)
    queue.put(bytes(5000))
    assert [batch.num_rows for batch in queue.read_arrow(max_rows=30)] == [30, 30, 30, 11]
    assert [batch.num_rows for batch in queue.read_arrow(max_bytes=149)] == [9] * 11 + [1, 1]
    assert [batch.num_rows for batch in queue.read_arrow(max_bytes=150)] == [10] * 10 + [1]
    assert [batch.num_rows for batch in queue.read_arrow(columns=["index"], max_bytes=1)] == [101]


def test_it_ends_at_a_claim_and_goes_on_when_it_is_committed(queue):
    queue.put(b"before")
    slot = queue.reserve(5)
    queue.put(b"after")
    batches = queue.read_arrow(columns=["payload"])
    assert rows(batches) == [(b"before",)]
    assert rows(batches) == []
    slot.buffer[:] = b"claim"
    slot.commit()
    assert rows(batches) == [(b"claim",), (b"after",)]


def test_a_dead_producers_claim_is_padded_on_the_way(queue):
    def work(say):
        slot = queue.reserve(5)
        say("claimed")
        until(lambda: slot is None, 60)

    queue.put(b"before")
    with Child(work) as child:
        child.hear()
        queue.put(b"after")
        child.kill()
    assert rows(queue.read_arrow(columns=["index", "payload"])) == [(0, b"before"), (2, b"after")]


def test_where_it_begins_in_what_was_retired_it_goes_on_as_a_reader(queue, path):
    queue.put_many([bytes(200)] * 50)
    reader, batches = queue.reader(), queue.read_arrow(max_rows=1)
    assert next(reader).index == next(batches)["index"][0].as_py() == 0
    kept = next(batches)
    with queue.consumer("c") as consumer:
        for number in range(400):
            queue.put(b"%d" % number + bytes(200))
            consumer.take(0)
        while consumer.lag:
            consumer.take(0)
        first = queue.first_index
        assert first > 0
        assert rows(queue.read_arrow(0, columns=ALL)) == expected(queue.reader(0))
        assert rows(queue.read_arrow(columns=["index"]))[0] == (first,)
        assert rows(queue.read_arrow(0, first)) == []
    outcomes = [_until_gone(lambda: next(reader).index), _until_gone(lambda: next(batches)["index"].to_pylist()[0])]
    assert outcomes[0] == outcomes[1]
    assert kept["index"].to_pylist() == [1]


def _until_gone(step):
    """The last thing a walk delivers before what follows is gone, and what it says."""
    last = None
    try:
        while True:
            last = step()
    except (shmq.Gone, StopIteration) as problem:
        return last, type(problem), str(problem)


@pytest.mark.parametrize("chunk_bytes", [16384, 1 << 20])
def test_a_damaged_message_is_corrupt_after_all_before_it(make, path, chunk_bytes):
    queue = make(chunk_bytes=chunk_bytes)
    queue.put_many([b"message %d" % number for number in range(50)])
    position = words(path)[20].position
    flip(chunk_files(path)[0], position + 40)
    reader = queue.reader()
    before = [next(reader).index for _ in range(20)]
    with pytest.raises(shmq.Corrupt) as said:
        next(reader)
    assert f"position {position}" in str(said.value)
    for columns in (None, ["payload"], ["key"], ["headers"]):
        batches = queue.read_arrow(columns=columns)
        assert next(batches).num_rows == len(before)
        for _ in range(2):
            with pytest.raises(shmq.Corrupt, match=f"position {position}: a message fails its checksum"):
                next(batches)
    # A payload that nobody asked for is not looked at.
    assert rows(queue.read_arrow(columns=["index"])) == [(number,) for number in range(50)]
    assert len(rows(queue.read_arrow(columns=["type", "time"]))) == 50


def test_a_damaged_frame_is_corrupt_whatever_is_asked_for(queue, path):
    queue.put_many([b"message"] * 10)
    flip(chunk_files(path)[0], words(path)[5].position + 16)  # its ordinal
    batches = queue.read_arrow(columns=["index"])
    assert rows([next(batches)]) == [(number,) for number in range(5)]
    with pytest.raises(shmq.Corrupt, match="not the one that belongs here"):
        next(batches)


@pytest.mark.parametrize("length", [40, 0xFFFFFFFF, 0x7FFFFFF8])
def test_headers_that_reach_beyond_their_message_are_corrupt(make, path, length):
    queue = make(checksum=False)
    queue.put(b"good", headers={"a": 1})
    queue.put(b"bad", headers={"a": 1})
    patch(chunk_files(path)[0], words(path)[1].position + 40, struct.pack("<I", length))
    batches = queue.read_arrow(columns=["headers"])
    assert next(batches).num_rows == 1
    with pytest.raises(shmq.Corrupt, match="the optional fields of a message reach beyond it"):
        next(batches)
    assert rows(queue.read_arrow(columns=["payload"])) == [(b"good",), (b"bad",)]


def test_payloads_are_the_bytes_that_were_put_whatever_the_codec(make):
    queue = make(codec="json")
    queue.put({"a": [1, 2]})
    assert rows(queue.read_arrow(columns=["payload"])) == [(b'{"a":[1,2]}',)]


@pytest.mark.parametrize("read_only", [False, True])
def test_what_was_adopted_is_read_also_where_it_lies_aside(queue, path, read_only, monkeypatch):
    from shmq.storage import staging

    queue.put(b"before")
    with queue.stage() as staged:
        for first in range(0, 1000, 100):
            staged.put_many([b"%d" % number for number in range(first, first + 100)])
        with monkeypatch.context() as stopped:
            if read_only:  # as if the adopter had been killed right behind the SEAL
                stopped.setattr(staging, "finish", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    queue.adopt(staged)
            else:
                queue.adopt(staged)
    with shmq.open(path, read_only=read_only) as other:
        assert rows(other.read_arrow(columns=["payload"])) == [
            (b"before",),
            *((b"%d" % number,) for number in range(1000)),
        ]


def test_batches_stay_when_everything_else_is_gone(make, path):
    queue = make()
    queue.put_many([b"%d" % number for number in range(100)])
    batches = queue.read_arrow()
    batch = next(batches)
    payloads = batch["payload"]
    queue.close()
    with pytest.raises(shmq.Closed):
        next(batches)
    shmq.delete(path)
    del batch
    assert payloads.to_pylist() == [b"%d" % number for number in range(100)]


def test_closed_it_reads_no_more(queue):
    queue.put(b"x")
    with queue.read_arrow() as batches:
        assert len(rows(batches)) == 1
    with pytest.raises(shmq.Closed):
        next(batches)
    batches.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"columns": ["nothing"]}, {"columns": []}, {"columns": ["index", "index"]}, {"columns": "no"},
        {"columns": ["attempts"]}, {"max_bytes": 0}, {"max_rows": 0},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(queue, arguments):
    with pytest.raises(ValueError, match=r"columns|max_bytes|max_rows"):
        queue.read_arrow(**arguments)


def test_without_pyarrow_it_says_what_to_install_and_the_rest_works(path):
    code = """
import sys
sys.modules["pyarrow"] = None
import shmq
with shmq.open(sys.argv[1]) as queue:
    queue.put(b"x")
    for call in (queue.read_arrow, lambda: queue.consumer("c").take_arrow(1)):
        try:
            call()
        except ImportError as problem:
            print("pip install 'shmq[arrow]'" in str(problem))
    print(queue.consumer("d").take(0))
"""
    assert run_python(code, path).split() == ["True", "True", "b'x'"]
    assert run_python("import sys, shmq; print('pyarrow' in sys.modules)").strip() == "False"


# ---------------------------------------------------------------- taking
def taken(consumer, total, limit=70, **how):
    found = []
    while len(found) < total:
        found += rows([consumer.take_arrow(limit, 0, **how)])
    return found


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_what_is_taken_is_acknowledged_and_comes_once(queue, path, ack):
    fill(queue, 500)
    messages = expected(queue.reader())
    with queue.consumer("c", ack=ack) as consumer:
        first = rows([consumer.take_arrow(40, 0, columns=ALL)])
        assert consumer.head == first[-1][0] + 1
        middle = [(message.index, bytes(message.view)) for message in consumer.get_many(3, 0)]
        assert middle == [(row[0], row[4]) for row in messages[len(first) :][: len(middle)]]
        rest = taken(consumer, len(messages) - len(first) - len(middle), columns=ALL)
        assert first + rest == messages[: len(first)] + messages[len(first) + len(middle) :]
        with pytest.raises(shmq.Empty):
            consumer.take_arrow(1, 0)
        head = consumer.head
    with queue.consumer("c", ack=ack) as consumer:
        assert consumer.head == head
        if ack == "explicit":  # what was handed out before was not acknowledged
            assert head == middle[0][0]
            assert consumer.take_arrow(1, 0, columns=["index", "attempts"]).to_pylist() == [
                {"index": head, "attempts": 2}
            ]
        else:
            assert head > messages[-1][0]


def test_attempts_tell_what_may_have_come_before(queue, path):
    queue.put_many([b"%d" % number for number in range(6)])

    def work(say):
        with shmq.open(path) as mine:
            mine.consumer("c", ack="explicit").get_many(4, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    with Child(work) as child:
        assert child.join() == -signal.SIGKILL
    with queue.consumer("c", ack="explicit") as consumer:
        batch = consumer.take_arrow(100, 0, columns=["attempts", "payload"])
    assert batch["attempts"].to_pylist() == [2, 2, 2, 2, 1, 1]


def test_one_that_waits_gets_what_comes(queue, path):
    def wait(say):
        with shmq.open(path) as mine, mine.consumer("c") as consumer:
            say("here")
            say(consumer.take_arrow(10, 60)["payload"][0].as_py().decode())
            say("again")
            try:
                consumer.take_arrow(10, 60)
            except shmq.ShutDown:
                say("shut down")

    with Child(wait) as child:
        assert child.hear() == "here"
        queue.put(b"wake up")
        assert [child.hear(60), child.hear(60)] == ["wake up", "again"]
        queue.shutdown()
        assert child.hear(60) == "shut down"


def test_what_is_taken_was_checked_whatever_the_columns(queue, path):
    queue.put_many([b"message"] * 10)
    flip(chunk_files(path)[0], words(path)[5].position + 40)
    with queue.consumer("c") as consumer:
        assert consumer.take_arrow(100, 0, columns=["index"]).num_rows == 5
        with pytest.raises(shmq.Corrupt, match="fails its checksum"):
            consumer.take_arrow(100, 0, columns=["index"])
        assert consumer.head == 5


def test_a_taker_is_refused_where_it_makes_no_sense(queue):
    queue.put(b"x")
    consumer = queue.consumer("c")
    for arguments in ({"limit": 0}, {"limit": 1, "columns": ["no"]}, {"limit": 1, "max_bytes": 0}):
        with pytest.raises(ValueError):
            consumer.take_arrow(**arguments)
    assert in_child(lambda: _refusal(consumer)) == "Forked"
    assert consumer.take_arrow(5, 0).num_rows == 1
    consumer.close()
    assert _refusal(consumer) == "Closed"


def _refusal(consumer):
    try:
        consumer.take_arrow(1, 0)
    except shmq.ShmqError as problem:
        return type(problem).__name__
    return "none"


def test_a_consumer_that_takes_batches_lets_chunks_retire(queue, path):
    queue.put_many([bytes(200)] * 50)
    with queue.consumer("c") as consumer:
        for _ in range(20):
            queue.put_many([bytes(200)] * 50)
            taken(consumer, 50)
    assert queue.first_index > 0


# ---------------------------------------------------------------- a taker has what take has
def payloads(batch):
    return batch["payload"].to_pylist()


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_batch_has_what_take_has_and_nothing_that_is_purged_expired_or_delayed(queue, ack):
    batches, singly = (queue.consumer(name, ack=ack) for name in ("batches", "singly"))
    queue.put_many([b"purged"] * 3)
    queue.purge()
    queue.put(b"1")
    queue.put(b"expired", ttl=1e-6)
    queue.put(b"2")
    queue.put(b"delayed", delay=1000)
    queue.put(b"behind it")
    until(lambda: queue[4].expired, 60)
    found = [b"1", b"2"] if ack == "auto" else [b"1", b"2", b"behind it"]  # others pass what waits for its time
    assert payloads(batches.take_arrow(10, 0)) == found == [singly.take(0) for _ in found]
    for consumer in (batches, singly):
        assert (consumer.head, consumer.lag) == ((6, 2) if ack == "auto" else (8, 1))
    assert [stats.dropped for stats in queue.consumers().values()] == [3, 3]
    for take in (batches.take_arrow, singly.take_many):
        with pytest.raises(shmq.Empty, match="delayed" if ack == "auto" else "nothing to get"):
            take(10, 0)


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_batch_has_nothing_that_a_bound_dropped(make, ack):
    queue = make(max_messages=5, full="drop_oldest")
    consumer = queue.consumer("c", ack=ack)
    for number in range(12):
        queue.put(b"%d" % number)
    assert payloads(consumer.take_arrow(100, 0)) == [b"%d" % number for number in range(7, 12)]
    assert queue.consumers()["c"].dropped == 7


def test_a_batch_that_waits_comes_when_its_first_message_is_due(queue):
    consumer = queue.consumer("c")
    queue.put(b"soon", delay=0.05)
    assert payloads(consumer.take_arrow(10, 60)) == [b"soon"]


def test_a_batch_passes_damage_as_take_does(queue, path):
    queue.put_many([b"message"] * 10)
    flip(chunk_files(path)[0], words(path)[5].position + 40)
    with queue.consumer("c", skip_corrupt=True) as consumer:
        assert consumer.take_arrow(100, 0).num_rows + consumer.take_arrow(100, 0).num_rows == 9
        assert consumer.skipped == 1
