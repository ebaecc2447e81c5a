"""What the built-in forwards alone is there as Python puts it; and whatever is not the plain case goes to Python."""

from __future__ import annotations

import sys
import time

import pytest
from support import in_child, lose_locks

import shmq
from shmq.storage import sources


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, **{"ack": "explicit", **options})


def payloads(queue):
    return [bytes(message.view) for message in queue.reader()]


@pytest.fixture
def two(tmp_path):
    """Two queues to put into."""
    with shmq.open(f"{tmp_path}/b") as b, shmq.open(f"{tmp_path}/c") as c:
        yield b, c


def learn(queue, member, *targets):
    """Forward one by Python, so that the built-in does the next one."""
    queue.put(b"first")
    with member.get(0).forward() as f:
        for target in targets:
            f.put(target, b"first")


def put_and_get(queue, member, payload=b"one"):
    queue.put(payload)
    return member.get(0)


FIELDS = {"key": b"k", "type": 7, "time_ns": 5, "headers": {"h": [1, 2]}, "ttl": 60.0, "delay": 0.5}


def test_the_second_one_is_put_and_finished_without_python(queue, two):
    b, c = two
    with join(queue) as member:
        learn(queue, member, b, c)
        message = put_and_get(queue, member)
        names = []
        sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
        with message.forward() as f:
            f.put(c, b"x")
            f.put(b, b"y", key=b"k")
            f.put(c, b"z")
        sys.setprofile(None)
        assert names == []
        assert f.indexes == [1, 1, 2]
        assert repr(f) == "<shmq.Forward of 1 (3 puts, over)>"
        assert (member.pending, member.lag, member.head) == (0, 0, 2)
        message.ack()  # over, as behind any forward
        with pytest.raises(shmq.LeaseLost, match="it was finished"), message.forward():
            pass
        with pytest.raises(shmq.Closed, match="has ended"):
            f.put(b, b"late")
        with pytest.raises(shmq.Closed, match="forward twice"), f:
            pass
        assert f.indexes == [1, 1, 2]
    assert (payloads(b), payloads(c)) == ([b"first", b"y"], [b"first", b"x", b"z"])
    incarnation = sources.read(member._home, "g").incarnation
    assert b._shared_producer().forwarded(incarnation) == {0: (0, 1), 1: (1, 1)}
    assert c._shared_producer().forwarded(incarnation) == {0: (0, 1), 1: (1, 2)}


def test_what_it_carries_is_what_python_has_it_carry(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        for by_python in (True, False, False):
            message = put_and_get(queue, member)
            with message.forward() as f:
                f.put(b, b"x", **FIELDS, **({"message": message} if by_python else {}))
            assert (f._plainly is None) == by_python
    _, first, *others = b.reader()
    for other in others:
        assert (other.key, other.type, other.time_ns, other.headers) == (b"k", 7, 5, {"h": [1, 2]})
        assert abs((other.expires - first.expires).total_seconds()) < 30
        assert abs(other.due_ns - first.due_ns) < 30e9
        assert other.raw_headers == first.raw_headers


def test_a_codec_encodes_what_is_put_when_it_is_put(tmp_path, queue):
    with shmq.open(f"{tmp_path}/j", codec="json") as target, join(queue) as member:
        queue.put(b"first")
        with member.get(0).forward() as f:
            f.put(target, 0)
        value = [1]
        with put_and_get(queue, member).forward() as f:
            f.put(target, value)
            value.append(2)
            with pytest.raises(TypeError):
                f.put(target, object())
        assert f._plainly is not None
        assert [message.payload for message in target.reader()] == [0, [1]]


@pytest.mark.parametrize("strange", [bytearray(b"s"), b"s" * 70_000], ids=["no bytes", "large"])
def test_a_put_that_is_not_plain_takes_the_others_along(queue, two, strange):
    b, c = two
    with join(queue) as member:
        learn(queue, member, b, c)
        with put_and_get(queue, member).forward() as f:
            f.put(b, b"x", **FIELDS)
            f.put(c, b"y")
            f.put(b, strange)
            f.put(b, b"z")
        assert (f._plainly, f.indexes, member.lag) == (None, [1, 1, 2, 3], 0)
    assert payloads(b) == [b"first", b"x", bytes(strange), b"z"]
    assert (b[1].key, b[1].type, b[1].time_ns, b[1].headers) == (b"k", 7, 5, {"h": [1, 2]})
    assert b[1].expires is not None
    assert b[1].due_ns > 0
    incarnation = sources.read(member._home, "g").incarnation
    assert b._shared_producer().forwarded(incarnation) == {0: (0, 1), 1: (1, 3)}


def test_many_puts_go_to_python_too(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        with put_and_get(queue, member).forward() as f:
            for number in range(9):
                f.put(b, b"%d" % number)
        assert f.indexes == list(range(1, 10))
    assert payloads(b)[1:] == [b"%d" % number for number in range(9)]


def test_two_handles_of_one_queue_are_one_claim(queue, two):
    b, _ = two
    with join(queue) as member, shmq.open(b.path) as again:
        learn(queue, member, b)
        learn(queue, member, again)
        with put_and_get(queue, member).forward() as f:
            f.put(b, b"x")
            f.put(again, b"y")
        assert (f._plainly, f.indexes) == (None, [2, 3])
        incarnation = sources.read(member._home, "g").incarnation
        assert b._shared_producer().forwarded(incarnation)[2] == (2, 2)


def test_an_exception_in_the_block_puts_nothing_and_the_message_stays(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        message = put_and_get(queue, member)
        with pytest.raises(ZeroDivisionError), message.forward() as f:  # noqa: PT012  # the block's end raises
            f.put(b, b"x")
            _ = 1 // 0
        assert (f.indexes, payloads(b), member.pending) == ([], [b"first"], 1)
        with message.forward() as f:
            f.put(b, b"x")
        assert (f.indexes, payloads(b), member.lag) == ([1], [b"first", b"x"], 0)


def test_what_was_given_to_somebody_else_meanwhile_puts_nothing(queue, two):
    b, _ = two
    with join(queue, lease=0.05) as member, join(queue) as other:
        learn(queue, member, b)
        message = put_and_get(queue, member)
        with pytest.raises(shmq.LeaseLost), message.forward() as f:  # noqa: PT012  # the block's end raises
            f.put(b, b"x")
            theirs = other.get(10)
        assert payloads(b) == [b"first"]
        with theirs.forward() as f:
            f.put(b, b"theirs")
        assert (payloads(b), member.lag) == ([b"first", b"theirs"], 0)


def test_one_that_was_tried_before_is_looked_for(queue, two):
    """The first try has put into the one queue, and the other one had no room: the built-in leaves it to Python."""
    b, c = two
    with join(queue) as member:
        learn(queue, member, b, c)
        c.consumer("keep").close()
        c.configure(max_messages=1)
        message = put_and_get(queue, member)
        with pytest.raises(shmq.Full), message.forward(timeout=0) as f:  # noqa: PT012  # the block's end raises
            f.put(b, b"x")
            f.put(c, b"y")
        with member.get(10).forward() as f:
            f.put(b, b"x")  # into the queue without bounds alone: the built-in would put it
        assert (f._plainly, f.indexes, member.lag) == (None, [1], 0)
    assert (payloads(b), payloads(c)) == ([b"first", b"x"], [b"first"])


def test_a_queue_without_room_is_waited_for_by_python(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        b.consumer("keep").close()
        b.configure(max_messages=1)
        message = put_and_get(queue, member)
        with pytest.raises(shmq.Full), message.forward(timeout=0) as f:  # the block's end raises
            f.put(b, b"x")
        assert payloads(b) == [b"first"]


def test_chunk_after_chunk(tmp_path, two):
    """What does not fit a chunk goes to Python, which makes the next one: nothing is put twice, or missing."""
    _, c = two
    with (
        shmq.open(f"{tmp_path}/s") as source,
        shmq.open(f"{tmp_path}/t", chunk_bytes=16384) as target,
        join(source) as member,
    ):
        source.put_many([b"%d" % number for number in range(300)])
        plain = 0
        for number in range(300):
            with member.get(0).forward() as f:
                f.put(target, b"%d" % number * 50)
                f.put(c, b"")
            plain += f._plainly is not None
        assert 250 < plain < 300
        assert payloads(target) == [b"%d" % number * 50 for number in range(300)]
        assert (len(c), member.lag) == (300, 0)


def test_a_group_that_was_moved_is_known_by_another_name(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        with put_and_get(queue, member).forward() as f:
            f.put(b, b"x")
        member.seek(1)
        with member.get(0).forward() as f:
            f.put(b, b"again")
        assert (f._plainly, payloads(b)) == (None, [b"first", b"x", b"again"])
        incarnation = sources.read(member._home, "g").incarnation
        assert b._shared_producer().forwarded(incarnation) == {1: (2, 1)}


def test_a_closed_queue_and_a_closed_member_say_so(queue, two):
    b, c = two
    member = join(queue)
    learn(queue, member, b, c)
    message = put_and_get(queue, member)
    with pytest.raises(shmq.Closed), message.forward() as f:  # noqa: PT012  # the block's end raises
        f.put(b, b"x")
        b.close()
    with pytest.raises(shmq.Closed), message.forward() as f:  # noqa: PT012  # the block's end raises
        f.put(c, b"x")
        member.close()
    assert payloads(c) == [b"first"]


def test_a_forked_child_forwards_nothing_of_its_parent(queue, two):
    b, _ = two
    with join(queue) as member:
        learn(queue, member, b)
        message = put_and_get(queue, member)

        def work() -> str:
            try:
                with message.forward() as f:
                    f.put(b, b"x")
            except shmq.Forked as problem:
                return str(problem)
            return "put"

        assert "was handed to the parent process" in in_child(work)
        assert (payloads(b), member.pending) == ([b"first"], 1)


def test_a_process_that_lost_its_seat_puts_nothing(queue, two):
    b, _ = two

    def work() -> str:
        with shmq.open(queue.path) as mine, shmq.open(b.path) as target, join(mine) as member:
            learn(mine, member, target)
            message = put_and_get(mine, member)
            lose_locks(f"{queue.path}/control.shmq")
            time.sleep(0.01)  # an answer is good for a millisecond
            try:
                with message.forward() as f:
                    f.put(target, b"x")
            except shmq.LeaseLost as problem:
                return str(problem)
            return "put"

    assert "lost its seat" in in_child(work)
    assert payloads(b) == [b"first"]
