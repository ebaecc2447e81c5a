"""Putting once: a repeated (producer, sequence) puts nothing; whoever is killed, races, retires or loses power."""

import contextlib
import json
import os
import random
import signal
import threading

import pytest
from reference import Once
from support import (
    CHANGING,
    DONE,
    Child,
    chunk_files,
    flip,
    hold_until_killed,
    in_child,
    killed_at,
    make_unclean,
    records,
    start,
    strides,
    until,
    words,
)

import shmq
from shmq import _native
from shmq.storage import dedup

CALLS = CHANGING | {
    "shmq_put_record", "shmq_put_many", "shmq_lock_try", "shmq_lock_free", "shmq_first_live_raise",
}  # fmt: skip
BIG = bytes(3000)


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


# ---------------------------------------------------------------- what it does
def test_what_was_put_is_not_put_again(make, path):
    queue = make()
    assert queue.put(b"plain") == 0
    assert queue.put(b"one", dedup=("p", 1), key=b"k", type=3, time_ns=7, headers={"a": 1}) == 1
    assert queue.put(b"again", dedup=(b"p", 1)) == 1
    assert queue.put_many([b"a", b"b"], dedup=("p", 5), keys=[b"x", None]) == range(2, 4)
    assert queue.put_many([b"other"], dedup=("p", 5)) == range(2, 4)
    assert queue.put(b"other", dedup=("p", 5)) == 2
    assert queue.put(b"beside", dedup=("q", 5)) == 4
    with pytest.raises(shmq.Mismatch, match="batch 5 was put or adopted before it"):
        queue.put(b"too late", dedup=("p", 4))
    assert payloads(path) == [b"plain", b"one", b"a", b"b", b"beside"]
    one = queue[1]
    assert (one.key, one.type, one.time_ns, one.headers) == (b"k", 3, 7, {"a": 1})
    assert (queue[2].key, queue[3].key) == (b"x", None)
    assert queue.adopted("p") == (5, range(2, 4))
    assert queue.adopted("nobody") is None
    queue.close()
    with shmq.open(path) as queue:
        assert queue.put(b"again", dedup=("p", 5)) == 2
        assert queue.put(b"next", dedup=("p", 6)) == 5
        assert queue.verify().problems == ()


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_with_a_codec(make, codec):
    queue = make(codec=codec)
    assert [queue.put({"a": 1}, dedup=("p", 1)) for _ in range(2)] == [0, 0]
    assert queue[0].payload == {"a": 1}
    assert [queue.put_many([{"b": 1}, 7], dedup=("p", 2)) for _ in range(2)] == [range(1, 3)] * 2


def test_what_makes_no_sense_is_refused(queue):
    for wrong in (("", 1), ("p", -1), ("p", 1 << 63), ("p" * 1025, 1)):
        with pytest.raises(ValueError):
            queue.put(b"x", dedup=wrong)
    with pytest.raises(ValueError, match="nothing to put"):
        queue.put_many([], dedup=("p", 1))
    with queue.stage() as staged, pytest.raises(ValueError, match="adopt"):
        staged.put(b"x", dedup=("p", 1))
    with pytest.raises(shmq.TooLarge):
        queue.put(b"x", key=bytes(70000), dedup=("p", 1))
    assert len(queue) == 0
    assert queue.put(b"x", dedup=("p", 1)) == 0


def test_put_and_adopt_share_the_sequences(make, path):
    queue = make()

    def adopt(sequence, *messages):
        with queue.stage() as staged:
            staged.put_many(messages)
            return queue.adopt(staged, dedup=("p", sequence))

    assert adopt(1, b"a", b"b") == range(2)
    assert queue.put(b"again", dedup=("p", 1)) == 0
    assert queue.put(b"c", dedup=("p", 2)) == 2
    assert adopt(2, b"x") == range(2, 3)
    assert adopt(1, b"x") == range(2)
    assert adopt(3, b"d") == range(3, 4)
    assert adopt(4) == range(4, 4)
    with pytest.raises(shmq.Mismatch):  # of adoptions, the last one is remembered
        queue.put(b"late", dedup=("p", 3))
    assert queue.put(b"e", dedup=("p", 5)) == 4
    assert payloads(path) == [b"a", b"b", b"c", b"d", b"e"]


def test_an_adoption_that_was_killed_before_its_ledger_counts(tmp_path):
    """Its SEAL is met by the put, and nobody has written it down."""
    for how in ("living", "new"):
        path = str(tmp_path / how)
        with shmq.open(path) as living:
            living.put(b"x", dedup=("other", 1))

            def adopt_and_die(say, path=path):
                from shmq._native import Chunk

                seal = Chunk.seal_adopt

                def seal_and_die(self, adoption):
                    seal(self, adoption)
                    os.kill(os.getpid(), signal.SIGKILL)

                Chunk.seal_adopt = seal_and_die
                with shmq.open(path) as queue, queue.stage() as staged:
                    staged.put_many([b"a", b"b"])
                    queue.adopt(staged, dedup=("p", 1))

            with Child(adopt_and_die) as child:
                assert child.join() == -signal.SIGKILL
            if how == "living":
                assert living.put(b"a", dedup=("p", 1)) == 1
            else:
                with shmq.open(path) as queue:
                    assert queue.put(b"a", dedup=("p", 1)) == 1
            assert living.put(b"c", dedup=("p", 2)) == 3
        assert payloads(path) == [b"x", b"a", b"b", b"c"]


def test_a_forked_child_puts_once_too(queue):
    assert queue.put(b"x", dedup=("p", 1)) == 0
    assert in_child(lambda: str([queue.put(b"x", dedup=("p", 1)), queue.put(b"y", dedup=("p", 2))])) == "[0, 1]"
    assert queue.put(b"y", dedup=("p", 2)) == 1


# ---------------------------------------------------------------- claims, room, retiring
def test_an_open_claim_of_somebody_else_is_in_nobodys_way(queue, path):
    with queue.reserve(10) as slot:
        assert queue.put(b"a", dedup=("p", 1)) == 1
        assert queue.put(b"a", dedup=("p", 1)) == 1
        slot.buffer[:] = bytes(10)
    assert queue.put(b"a", dedup=("p", 1)) == 1
    with shmq.open(path) as other:
        assert other.put(b"a", dedup=("p", 1)) == 1


def test_one_that_was_killed_between_claim_and_commit_is_not_there(tmp_path):
    def claim_and_die(say):
        with shmq.open(path) as queue:
            queue.reserve(10)  # what a put is until its commit
            os.kill(os.getpid(), signal.SIGKILL)

    path = str(tmp_path / "q")
    shmq.open(path).close()
    with Child(claim_and_die) as child:
        child.join()
    with shmq.open(path) as queue:
        assert [queue.put(b"a", dedup=("p", 1)) for _ in range(2)] == [1, 1]


def test_a_full_queue_holds_nobody_elses_turn(make):
    """Who waits for room waits outside: the one who makes it may put with dedup itself."""
    queue = make(max_messages=2)
    consumer = queue.consumer("c")
    other = make(max_messages=2)
    queue.put_many([b"1", b"2"])
    done = []
    thread = threading.Thread(target=lambda: done.append(queue.put(b"3", dedup=("p", 1))))
    thread.start()
    with pytest.raises(shmq.Full):  # not Busy: but for moments, nobody has the turn
        other.put(b"4", dedup=("q", 1), timeout=1)
    assert [consumer.take(0), consumer.take(0)] == [b"1", b"2"]
    thread.join(60)
    assert done == [2]
    assert other.put(b"3", dedup=("p", 1), timeout=30) == 2
    assert consumer.take(30) == b"3"
    assert other.put(b"4", dedup=("q", 1), timeout=30) == 3


def test_a_turn_that_never_comes(make, path):
    queue, other = make(), make()
    queue.put(b"x", dedup=("p", 1))
    with dedup.alone(queue._session.home, queue._session.joined().control, b"p", -1, "hold"):
        with pytest.raises(shmq.Busy, match="nothing was put"):
            other.put(b"x", dedup=("p", 2), timeout=0)
        assert other.put(b"y", dedup=("q", 1), timeout=0) == 1
    assert other.put(b"x", dedup=("p", 2)) == 2


def test_a_process_that_is_stopped_inside_its_turn_stops_no_other_producer(make, path, monkeypatch):
    """Only who puts as the same producer; and that one is told which process is stopped."""

    def hold(say):
        with shmq.open(path) as own, dedup.alone(own._session.home, own._session.joined().control, b"p", -1, "hold"):
            hold_until_killed(say)

    queue = make()
    assert queue.put(b"x", dedup=("p", 1)) == 0
    with Child(hold) as child:
        child.hear()
        os.kill(child.pid, signal.SIGSTOP)
        assert queue.put(b"y", dedup=("q", 1)) == 1
        with queue.stage() as staged:
            staged.put(b"z")
            assert queue.adopt(staged, dedup=("r", 1)) == range(2, 3)
        stopped = f"process {child.pid} is stopped; nothing was put"
        until(lambda: _state(child.pid) == "T")
        with pytest.raises(shmq.Busy, match=stopped):
            queue.put(b"x", dedup=("p", 2), timeout=0)
        monkeypatch.setattr(dedup, "_STOPPED_NS", 1_000_000)
        with pytest.raises(shmq.Busy, match=stopped):
            queue.put(b"x", dedup=("p", 2))
        child.kill()
    assert queue.put(b"x", dedup=("p", 2)) == 3


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0]


def test_a_claim_that_was_open_when_another_producer_looked_is_looked_at_again(make):
    """It belonged to somebody who had the turn of another name, and is committed by now; or was given up."""
    queue, other = make(), make()
    producer = queue.producer()
    claims = []
    for number in range(2):
        fields, _ = producer._fields(None, 0, None, None, dedup.field(b"p", number))
        claims.append(_native.Claim())
        assert producer._tail.reserve(claims[-1], fields, 8) == number
    assert other.put(b"x", dedup=("q", 1)) == 2
    assert producer._tail.commit(claims[0], 8) == 0
    producer._tail.abort(claims[1])
    assert other.put(b"y", dedup=("p", 0)) == 0
    assert other.put(b"y", dedup=("p", 1)) == 3
    producer.close()


# ---------------------------------------------------------------- what is remembered
@pytest.mark.parametrize("again", ["same", "opened anew", "noted", "after a reboot"])
def test_each_earlier_put_of_a_producer_returns_its_first_index(make, path, again):
    queue = make(retention=shmq.Retention.forever())
    size = 3000 if again == "noted" else 10
    want = {}
    for number in range(60):
        want["p", number] = queue.put_many([bytes(size)] * 2, dedup=("p", number))
        want["q", number] = queue.put_many([bytes(size)], dedup=("q", number))
    end = queue.next_index
    if again != "same":
        queue.close()
        if again == "after a reboot":
            make_unclean(path)
        queue = make(retention=shmq.Retention.forever())
    if again == "noted":
        assert dedup.read_note(queue._session.home).sequence > 2
    if again == "after a reboot":
        end = queue.next_index
    for (name, number), indexes in want.items():
        assert queue.put_many([b"again"] * 3, dedup=(name, number)) == indexes
    assert queue.put(b"new", dedup=("p", 60)) == end
    assert queue.put(b"again", dedup=("p", 60)) == end
    assert queue.put(b"again", dedup=("p", 7)) == want["p", 7][0]


def test_what_is_remembered_is_bounded_and_says_so(make, path, monkeypatch):
    monkeypatch.setattr(dedup, "PUTS", 20)
    monkeypatch.setattr(dedup, "PRODUCERS", 10)
    queue = make()
    with queue.consumer("c") as consumer:
        for number in range(200):
            assert queue.put(BIG, dedup=(f"p{number}", 1) if number < 100 else ("p", number)) == number
            consumer.take(30)
    note = dedup.read_note(queue._session.home).memory()
    assert (len(note.puts), len(note.last)) == (20, 10)
    with shmq.open(path) as other:
        assert [other.put(BIG, dedup=("p", number)) for number in range(180, 200)] == list(range(180, 200))
        with pytest.raises(shmq.Mismatch, match=r"so long ago that it is forgotten: .*the last 20 of all"):
            other.put(BIG, dedup=("p", 101))
        assert other.put(BIG, dedup=("p1", 1)) == 200  # a producer that was silent for long begins anew


def test_of_each_producer_any_repeat_above_its_floor_is_known_however_much_others_put(make, path, monkeypatch):
    monkeypatch.setattr(dedup, "WINDOW", 50)
    queue = make()
    with queue.consumer("c") as consumer:
        for number in range(100):
            assert queue.put(BIG, dedup=("slow", number)) == number
            consumer.take(30)
        for number in range(400):
            queue.put(BIG, dedup=("quick", number))
            consumer.take(30)
    assert len(dedup.read_note(queue._session.home).memory().puts) <= 100
    with shmq.open(path) as other:
        for each in (queue, other):
            assert [each.put(BIG, dedup=("slow", number)) for number in range(50, 100)] == list(range(50, 100))
            assert [each.put(BIG, dedup=("quick", number)) for number in range(350, 400)] == list(range(450, 500))
        with pytest.raises(shmq.Mismatch, match="from 50 below its last sequence"):
            other.put(BIG, dedup=("slow", 49))


# ---------------------------------------------------------------- the built-in, where nothing unusual is
def by_python(queue, monkeypatch):
    """The puts that the built-in left to Python."""
    left = []
    producer = queue._shared_producer()
    turn = producer._turn
    monkeypatch.setattr(producer, "_turn", lambda dedup: (left.append(dedup), turn(dedup))[1])
    return left


def test_puts_of_one_producer_after_the_other_are_the_built_ins(make, path, monkeypatch):
    queue = make()
    left = by_python(queue, monkeypatch)
    assert [queue.put(b"x", dedup=("p", number)) for number in range(5)] == list(range(5))
    assert queue.put(b"x", key=b"k", type=3, ttl=60.0, delay=0.0, headers=None, dedup=("p", 5)) == 5
    assert left == [("p", 0)]
    assert queue.put(b"again", dedup=("p", 5)) == 5
    assert queue.put(b"another", dedup=(str(b"p", "ascii"), 6)) == 6
    assert left == [("p", 0)]
    assert queue.put(b"earlier", dedup=("p", 2)) == 2
    assert queue.put(b"x", dedup=("q", 0)) == 7
    assert left == [("p", 0), ("p", 2), ("q", 0)]
    with shmq.open(path) as other:  # what others put meanwhile is seen
        assert other.put(b"x", dedup=("q", 1)) == 8
        assert other.put(b"x", dedup=("r", 9)) == 9
        assert queue.put(b"x", dedup=("q", 1)) == 8
        assert queue.put(b"x", dedup=("q", 2)) == 10
        assert other.put(b"x", dedup=("q", 2)) == 10
    assert len(left) == 3
    first = queue[5]
    assert (first.key, first.type, first.payload) == (b"k", 3, b"x")
    assert len(queue) == 11


def test_the_built_in_goes_on_in_the_next_chunk(make, path, monkeypatch):
    queue = make(retention=shmq.Retention.forever())
    left = by_python(queue, monkeypatch)
    assert [queue.put(BIG, dedup=("p", number)) for number in range(200)] == list(range(200))
    assert 1 < len(left) <= len(chunk_files(path))  # the first in each of them
    assert len(queue) == 200


def test_puts_of_many_producers_in_turn_are_the_built_ins(make, monkeypatch):
    """As of a server's clients: each is left to Python once, a str and the same bytes are not compared."""
    queue = make(chunk_bytes=16 << 20)
    left = by_python(queue, monkeypatch)
    names = [f"p{number}" for number in range(50)] + [b"p%d" % number for number in range(50, 100)]
    for turn in range(3):
        for at, name in enumerate(names):
            assert queue.put(b"x", dedup=(name, turn)) == turn * 100 + at
    assert left == [(name, 0) for name in names]
    assert [queue.put(b"again", dedup=(name, 2)) for name in names] == list(range(200, 300))
    assert [queue.put(b"again", dedup=(name, 1)) for name in names[:3]] == [100, 101, 102]
    assert queue.put(b"again", dedup=(b"p0", 2)) == 200  # which is the same producer
    assert queue.put(b"x", dedup=(b"p0", 3)) == 300
    assert queue.put(b"again", dedup=("p0", 3)) == 300
    assert len(queue) == 301


def test_more_producers_than_are_known_are_left_to_python(make, monkeypatch):
    queue = make(chunk_bytes=16 << 20)
    for turn in range(2):
        for number in range(1500):
            assert queue.put(b"x", dedup=(str(number), turn)) == turn * 1500 + number
    left = by_python(queue, monkeypatch)
    assert queue.put(b"again", dedup=("0", 1)) == 1500
    assert [queue.put(b"x", dedup=("0", turn)) for turn in range(2, 6)] == [3000, 3001, 3002, 3003]
    assert left == [("0", 1), ("0", 2)]


def test_a_producer_behind_which_much_was_put_asks_python(make, monkeypatch):
    """Which has looked at that for all producers: a walk under the interpreter's lock has an end."""
    queue = make(chunk_bytes=16 << 20)
    queue.put_many([b"y"] * 8000)  # the first chunks are small
    first = [queue.put(b"x", dedup=("p", number)) for number in range(2)]
    left = by_python(queue, monkeypatch)
    for others, asked in ((4000, 0), (5000, 1)):
        queue.put_many([b"y"] * others)
        assert queue.put(b"again", dedup=("p", 1)) == first[1]
        assert len(left) == asked
    assert queue.put(b"x", dedup=("p", 2)) == queue.next_index - 1 == queue.put(b"again", dedup=("p", 2))


class Named(str):
    """A name whose hash is somebody's own business."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


def test_a_name_of_another_kind_is_python_s(make):
    queue = make()
    for number in range(3):
        assert queue.put(b"x", dedup=(Named("p"), number)) == number
    assert queue.put(b"again", dedup=("p", 2)) == 2


def test_while_somebody_has_the_turn_the_built_in_leaves_it_to_python(make, path):
    queue = make()
    queue.put(b"x", dedup=("p", 0))
    queue.put(b"x", dedup=("p", 1))
    with open(f"{path}/control.shmq", "r+b") as control:
        lock = shmq._native.Lock(control.fileno())
    assert lock.take(dedup.turn_byte(b"p"))
    with pytest.raises(shmq.Busy):
        queue.put(b"x", dedup=("p", 2), timeout=0)
    lock.free()
    assert queue.put(b"x", dedup=("p", 2)) == 2


def test_many_put_as_one_producer_and_each_sequence_is_there_once(make, path):
    queue = make()
    queue.close()

    def work() -> None:
        with shmq.open(path) as mine:
            for number in range(300):
                with contextlib.suppress(shmq.Mismatch):
                    mine.put(b"%d" % number, dedup=("p", number))

    children = [start(work) for _ in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    with shmq.open(path) as queue:
        there = [int(message.payload) for message in queue.reader()]
    assert there == sorted(set(there))
    assert there[-1] == 299


def test_a_closed_producer_keeps_no_descriptor_for_its_turns(make):
    def turns() -> int:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.path.lexists(link) and os.readlink(link).endswith("control.shmq") for link in links)

    queue = make()
    queue.put(b"x", dedup=("p", 0))
    before = turns()
    with queue.producer() as producer:
        producer.put(b"x", dedup=("p", 1))
        producer.put(b"x", dedup=("p", 2))
        assert turns() == before + 1
    assert turns() == before


def test_a_note_of_many_names_is_not_unpacked_to_put(make, monkeypatch):
    queue = make()
    queue.put(b"x", dedup=("p", 1))
    memory = dedup.Memory()
    for number in range(2000):
        memory.enter(dedup.identity(b"%d" % number), dedup.records.Adopted(number, number, 1))
    with queue._session.home.admin():
        dedup.write_note(queue._session.home, 0, memory)
    monkeypatch.setattr(dedup.Note, "memory", None)
    with make() as other:
        assert [other.adopted(str(number)) for number in (0, 7, 1999)] == [
            (number, range(number, number + 1)) for number in (0, 7, 1999)
        ]
        assert other.adopted("2000") is None
        assert other.put(b"y", dedup=("p", 2)) == 1


@pytest.mark.parametrize("retention", ["acked", "bytes"])
def test_what_is_retired_is_remembered(make, path, retention):
    queue = make(retention=shmq.Retention.acked() if retention == "acked" else shmq.Retention.bytes(1 << 17))
    with queue.consumer("c") as consumer:
        for number in range(200):
            assert queue.put(BIG, dedup=(f"p{number % 10}", number)) == number
            consumer.take(30)
    assert chunk_files(path)[0].name > "0000000000000080"
    with shmq.open(path) as other:
        for each in (queue, other):
            assert [each.put(BIG, dedup=(f"p{number % 10}", number)) for number in range(190, 200)] == list(
                range(190, 200)
            )
            assert each.put(BIG, dedup=("p3", 3)) == 3
            with pytest.raises(shmq.Mismatch):
                each.put(BIG, dedup=("p3", 4))
        end = other.put(BIG, dedup=("p3", 203))
        assert queue.put(BIG, dedup=("p3", 203)) == end == 200


def test_the_first_put_with_dedup_does_not_wait_for_who_administers(make):
    queue = make()
    with Child(administer_until_killed, str(queue.path)) as child:
        assert child.hear() == "ready"
        os.kill(child.pid, signal.SIGSTOP)
        assert queue.put(b"x", dedup=("p", 1), timeout=0) == 0
        assert queue.put(b"x", dedup=("p", 1), timeout=0) == 0
        with pytest.raises(shmq.Busy):
            queue._session.home.admin(timeout=0)


def administer_until_killed(say, path):
    with shmq.open(path) as queue, queue._session.home.admin():
        hold_until_killed(say)


def test_of_many_first_puts_with_dedup_one_links_the_note(make, monkeypatch):
    queue, other = make(), make()
    begin, is_used = dedup.begin, dedup.is_used

    def late(home):
        used = is_used(home)
        if not used:
            monkeypatch.setattr(dedup, "is_used", is_used)
            begin(other._session.home)
            assert other.put(b"o", dedup=("p", 1)) == 0
        return used

    monkeypatch.setattr(dedup, "is_used", late)
    assert queue.put(b"x", dedup=("p", 1)) == 0
    assert queue.put(b"y", dedup=("q", 1)) == 1


def test_who_adopts_as_a_producer_holds_its_turn_before_anybody_put_with_dedup(make, monkeypatch):
    queue, other = make(), make()
    fold = dedup.ledger.fold

    def put_meanwhile(*arguments):
        with pytest.raises(shmq.Busy):
            other.put(b"x", dedup=("p", 1), timeout=0)
        assert other.put(b"y", dedup=("q", 1), timeout=0) == 0
        return fold(*arguments)

    monkeypatch.setattr(dedup.ledger, "fold", put_meanwhile)
    with queue.stage() as staged:
        staged.put(b"staged")
        assert queue.adopt(staged, dedup=("p", 1)) == range(1, 2)
    assert other.put(b"x", dedup=("p", 1)) == 1


def test_one_who_looks_again_after_all_he_knew_was_retired(make):
    queue, other = make(), make()
    assert other.put(b"x", dedup=("p", 1)) == 0
    with queue.consumer("c") as consumer:
        for number in range(100):
            queue.put(BIG, dedup=("q", number))
            consumer.take(30)
        consumer.take(30)
    assert other.put(b"x", dedup=("p", 1)) == 0
    assert other.put(b"x", dedup=("q", 99)) == 100


def test_nobody_walks_from_the_beginning(make, path, monkeypatch):
    queue = make(retention=shmq.Retention.forever())
    for number in range(200):
        queue.put(BIG, dedup=("p", number))
    assert dedup.read_note(queue._session.home).sequence > 10
    walked = []
    walk = dedup.walk
    monkeypatch.setattr(dedup, "walk", lambda chunk, *rest: (walked.append(chunk.sequence), walk(chunk, *rest))[1])
    with shmq.open(path) as other:
        assert other.put(BIG, dedup=("p", 199)) == 199
    assert 0 < len(walked) <= dedup.NOTE_CHUNKS + 1


def test_found_a_take_failed_where_what_retires_behind_it_was_refused(make, path, caplog):
    """Here by a damaged note; a full disk and too few descriptors did the same. What was asked for is there."""
    queue = make()
    for number in range(40):
        queue.put(BIG, dedup=("p", number))
    flip(f"{path}/dedup.shmq", 20)
    with queue.consumer("c") as consumer:
        assert [consumer.take(timeout=0) for _ in range(40)] == [BIG] * 40
    assert "keeps what retention allows to take away" in caplog.text
    assert len(queue.extents()) > 5


def test_a_damaged_note_is_told(make, path):
    queue = make()
    queue.put(b"x", dedup=("p", 1))
    flip(f"{path}/dedup.shmq", os.stat(f"{path}/dedup.shmq").st_size - 1)
    with shmq.open(path) as other, pytest.raises(shmq.Corrupt, match=r"dedup\.shmq"):
        other.put(b"x", dedup=("p", 2))
    assert [problem.file for problem in queue.verify().problems] == ["dedup.shmq"]


def test_a_copy_and_a_repaired_one_remember_too(make, path, tmp_path):
    queue = make()
    with queue.consumer("c") as consumer:
        for number in range(100):
            queue.put(BIG, dedup=(f"p{number // 10}", number))
            consumer.take(30)
    queue.copy(tmp_path / "copy")
    queue.repair(tmp_path / "repaired")
    for name in ("copy", "repaired"):
        with shmq.open(tmp_path / name) as other:
            assert [other.put(BIG, dedup=(f"p{each}", 10 * each + 9)) for each in range(10)] == list(range(9, 100, 10))


# ---------------------------------------------------------------- at the same time
def test_two_processes_put_the_same_at_the_same_time(tmp_path):
    path = str(tmp_path / "q")
    shmq.open(path, options=shmq.Options(chunk_bytes=16384)).close()

    def work(say):
        with shmq.open(path) as queue:
            say("here")
            found = [queue.put(b"%d" % number + bytes(500), dedup=(f"p{number}", 1)) for number in range(150)]
            say(json.dumps(found))

    with Child(work) as first, Child(work) as second:
        first.hear(), second.hear()
        told = [json.loads(first.hear()), json.loads(second.hear())]
    assert told[0] == told[1]
    assert len(payloads(path)) == len(set(told[0])) == 150


def test_threads_of_one_process(queue, path):
    found = [[] for _ in range(4)]

    def work(mine):
        mine += [queue.put(b"%d" % number, dedup=(f"p{number}", 1)) for number in range(50)]

    threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found[0] == found[1] == found[2] == found[3]
    assert len(payloads(path)) == 50


# ---------------------------------------------------------------- killed at every step
@pytest.mark.parametrize("unclean", [False, True])
def test_killed_at_every_step_it_is_there_once(tmp_path, unclean):
    """Through rolls, retiring and its notes: nothing is there twice, nothing that was answered is missing."""

    def work():
        with shmq.open(path) as queue, queue.consumer("c") as consumer:
            for number in range(1, 4):
                queue.put_many([b"%d" % number + bytes(7000), b"and"], dedup=("p", number))
                consumer.take(0)
                consumer.take(0)

    step, alive, seen = 0, True, set()
    onward = strides()
    while alive:
        path = str(tmp_path / f"q{step}")
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put(b"0" + bytes(9000), dedup=("p", 0))
        alive = killed_at(step, work, CALLS)
        if unclean:
            make_unclean(path)
        with shmq.open(path) as queue:
            last, there = queue.adopted("p")
            seen.add(last)
            rest = [message.payload[:1] for message in queue.reader()]
            if last and rest:  # in a queue that retires, the end of it
                assert rest[-2] == b"%d" % last
            for number in range(last, 5):
                put = queue.put_many([b"%d" % number, b"and"], dedup=("p", number))
                assert (put == there) == (number == last)
            found = [message.payload[:1] for message in queue.reader() if message.payload != b"and"]
            assert found == sorted(set(found))
            assert found[-1:] == [b"4"]
        shmq.delete(path)
        step += next(onward)
    assert seen == {0, 1, 2, 3}
    assert step > 20


# ---------------------------------------------------------------- power cuts
def done(path, which=0):
    """Where the messages of a chunk are."""
    return [word.position for word in words(path, which) if word.state == DONE]


def test_after_a_power_cut_what_is_gone_may_come_again(tmp_path):
    """Cut before each message: what is left is known, what is not is put anew."""
    for kept in range(6):
        path = str(tmp_path / f"q{kept}")
        with shmq.open(path) as queue:
            for number in range(6):
                queue.put(b"%d" % number, dedup=("p", number))
                queue.put(b"x", dedup=("q", number)) if number < 2 else None
        at = [record.payload for record in records(path)].index(b"%d" % kept)
        flip(chunk_files(path)[0], done(path)[at] + 44)
        make_unclean(path)
        with shmq.open(path) as queue:
            end = queue.recovery.end
            known = queue.adopted("p")
            assert known == ((kept - 1, range(end - 1 - (0 < kept <= 2), end - (0 < kept <= 2))) if kept else None)
            if kept:
                assert queue.put(b"again", dedup=("p", kept - 1)) < end
            assert queue.put(b"%d" % kept, dedup=("p", kept)) >= queue.recovery.next_index


def test_a_note_of_what_a_power_cut_took_is_forgotten(make, path):
    """It cannot be, for what is noted is synced; unless the disk lied or the file is damaged."""
    queue = make(retention=shmq.Retention.forever())
    for number in range(60):
        queue.put(b"%d" % number + BIG, dedup=(f"p{number % 3}", number))
    noted = dedup.read_note(queue._session.home).sequence
    assert noted > 2
    queue.close()
    flip(chunk_files(path)[1], done(path, 1)[0] + 60)
    make_unclean(path)
    with shmq.open(path) as queue:
        end = queue.recovery.end
        assert 0 < end < 60
        for number in range(end - 3, end):
            assert queue.put(b"again", dedup=(f"p{number % 3}", number)) == number
        for number in range(end, 60):
            assert queue.put(b"anew", dedup=(f"p{number % 3}", number)) >= queue.recovery.next_index


# ---------------------------------------------------------------- against the reference
@pytest.mark.parametrize("seed", range(5))
def test_as_the_reference_says(make, path, seed):
    chance = random.Random(seed)
    model, queues = Once(), [make(), make()]
    consumer = queues[0].consumer("c")
    for _ in range(300):
        queue = chance.choice(queues)
        name, sequence = chance.choice("pqr"), chance.randrange(40)
        count, kind = chance.randrange(1, 4), chance.choice(["put", "put_many", "adopt", "plain", "reopen", "take"])
        if kind == "plain":
            assert queue.put(b"x") == model.put(1).start
        elif kind == "take":
            consumer.take_many(5, 0) if consumer.lag else None
        elif kind == "reopen":
            at = chance.randrange(1, 2)
            queues[at].close()
            queues[at] = make()
        else:
            count = 1 if kind == "put" else count
            want = model.put_once(name, sequence, count, adopt=kind == "adopt")
            call = {"put": put, "put_many": put_many, "adopt": adopt}[kind]
            if want is None:
                with pytest.raises(shmq.Mismatch):
                    call(queue, count, (name, sequence))
            else:
                got = call(queue, count, (name, sequence))
                assert (got if kind != "put" else range(got, got + len(want))) == want
    for name in "pqr":
        assert queues[1].adopted(name) == model.last.get(name)


def put(queue, count, given):
    return queue.put(bytes(700), dedup=given)


def put_many(queue, count, given):
    return queue.put_many([bytes(700)] * count, dedup=given)


def adopt(queue, count, given):
    with queue.stage() as staged:
        staged.put_many([bytes(700)] * count)
        return queue.adopt(staged, dedup=given)


def test_the_reference_is_used_by_a_long_lived_process_too(queue):
    """A reader that has the queue open sees each message once."""
    seen = []
    reader = queue.reader(follow=True)
    thread = threading.Thread(target=lambda: seen.extend(message.payload for message in reader))
    thread.start()
    for number in range(20):
        for _ in range(2):
            queue.put(b"%d" % number, dedup=("p", number))
    until(lambda: len(seen) == 20)
    queue.shutdown()
    thread.join(60)
    assert seen == [b"%d" % number for number in range(20)]


def test_with_every_other_field(queue):
    """The fields of a record stand in the order of their flags, whichever there are."""
    for number, given in enumerate(({}, {"ttl": 1000.0}, {"delay": 0.0}, {"ttl": 1000.0, "delay": 0.0})):
        put = {"key": b"k", "headers": {"h": number}, "dedup": ("p", number), **given}
        assert [queue.put(b"%d" % number, **put) for _ in range(2)] == [number, number]
        message = queue[number]
        assert (message.payload, message.key, message.headers) == (b"%d" % number, b"k", {"h": number})
    assert queue.put_many([b"a", b"b"], dedup=("p", 9), ttl=1000.0, headers=[{"x": 1}, None]) == range(4, 6)
    assert [queue[at].headers for at in (4, 5)] == [{"x": 1}, {}]
    with queue.consumer("c") as consumer:
        assert consumer.take_many(10, 30) == [b"0", b"1", b"2", b"3", b"a", b"b"]


def test_between_looking_and_putting_nobody_else_puts(make, monkeypatch):
    """The turn lasts from the look to the put."""
    queue, other = make(), make()
    last, refused = dedup.Known.last, []

    def look_and_let_the_other_try(self, producer):
        found = last(self, producer)
        if not refused:
            refused.append(True)
            with pytest.raises(shmq.Busy):
                other.put(b"x", dedup=("p", 1), timeout=0)
        return found

    monkeypatch.setattr(dedup.Known, "last", look_and_let_the_other_try)
    assert queue.put(b"x", dedup=("p", 1)) == 0
    assert other.put(b"x", dedup=("p", 1)) == 0
    assert refused
    assert len(queue) == 1


def test_who_waits_for_a_turn_is_not_refused_because_somebody_is_stopped_before_its_time(make, monkeypatch):
    """Whoever is stopped need not be the one who has the turn."""
    queue, other = make(), make()
    monkeypatch.setattr(dedup, "_stopped", lambda _: [1])
    had, over = threading.Event(), threading.Event()

    def hold():
        with dedup.alone(other._session.home, other._session.joined().control, b"p", -1, "hold"):
            had.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    had.wait()
    naps = []
    monkeypatch.setattr(dedup.time, "sleep", lambda nap: (naps.append(nap), len(naps) > 3 and over.set()))
    assert queue.put(b"x", dedup=("p", 1)) == 0
    holder.join()
    assert len(naps) > 3


def test_as_much_is_remembered_as_is_promised():
    """docs/promises.md, Once."""
    assert (dedup.WINDOW, dedup.PUTS, dedup.PRODUCERS) == (65_536, 1_048_576, 65_536)


def test_more_puts_in_one_chunk_than_one_look_finds_are_noted_when_it_goes(make, path):
    """The note is all that is left of them for the next process."""
    queue = make(chunk_bytes=65536, retention=shmq.Retention.acked())
    name = queue.consumer("c")
    for number in range(400):
        queue.put(b"", dedup=("p", number))
    assert len(chunk_files(path)) == 1
    while queue.first_index == 0:
        queue.put(bytes(20_000))
        name.take_many(500, timeout=0)
    assert queue.first_index >= 400
    assert in_child(lambda: [shmq.open(path).put(b"", dedup=("p", number)) for number in (255, 256, 399)]) == str(
        [255, 256, 399]
    )


@pytest.mark.parametrize("durability", ["process", "sync"])
def test_found_who_puts_with_dedup_keeps_chunks_open_that_it_has_left(path, durability):
    """Up to 64 mappings of old chunks, of two descriptors each; in SYNC one of the newest for each put."""

    def open_chunks():
        found = 0
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing
                found += "/chunks/" in os.readlink(f"/proc/self/fd/{fd}")
        return found

    with shmq.open(path, chunk_bytes=16384, durability=durability, retention="forever") as queue:
        for number in range(40):
            queue.put(bytes(1000), dedup=("p", number))
        before = open_chunks()
        for number in range(40, 320):
            queue.put(bytes(1000), dedup=("p", number))
        assert open_chunks() <= before + 8
        for _ in range(40):
            queue.put(b"x")
            queue.sync()
        assert open_chunks() <= before + 12


def test_threads_that_put_first_at_the_same_time_take_turns_with_one_another(path, monkeypatch):
    """Each made a lock of its own, and both walked through what one of them may walk through at a time."""
    together = threading.Barrier(2)
    made = dedup._Turn.__init__

    def make(self, home):
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.2)
        made(self, home)

    monkeypatch.setattr(dedup._Turn, "__init__", make)
    found = []
    with shmq.open(path) as queue:
        home = queue._session.home
        threads = [threading.Thread(target=lambda: found.append(dedup._Turn.of(home))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found[0] is found[1]
