"""A message is put into other queues and finished by that, as one: after any death all of that, or it comes again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
from support import Child, hold_until_killed, in_child, killed_at, lose_locks, peek, until

import shmq
import shmq.aio
from shmq import durability
from shmq.putting import producer
from shmq.storage import acks, dedup, forgotten, sources
from shmq.storage import ring as rings
from shmq.taking import lasting

STEPS = {
    "shmq_ring_forward",
    "shmq_put_each",
    "shmq_ring_ack",
    "shmq_ring_unforward",
    "shmq_ring_nack",
    "fdatasync",
    "link",
    "rename",
}
"""Calls before each of which a process that forwards may be killed."""


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, **{"ack": "explicit", **options})


def payloads(queue):
    return [bytes(message.view) for message in queue.reader()]


@pytest.fixture
def two(tmp_path):
    """Two queues to put into."""
    with shmq.open(f"{tmp_path}/b") as b, shmq.open(f"{tmp_path}/c") as c:
        yield b, c


def forward(message, *queues, **keywords):
    with message.forward(**keywords) as f:
        for queue in queues:
            f.put(queue, message.view)
    return f.indexes


# ---------------------------------------------------------------- all of it
def test_what_is_put_in_the_block_is_there_at_its_end_and_the_message_is_finished(queue, two):
    b, c = two
    queue.put(b"one")
    with join(queue) as member:
        message = member.get(0)
        with message.forward() as f:
            assert f.put(b, b"x", key=b"k", type=7, headers={"h": 1}, ttl=60.0) is None
            f.put(c, bytearray(b"y"))
            f.put(b, b"z")
            assert (len(b), len(c), member.pending) == (0, 0, 1)
        assert f.indexes == [0, 0, 1]
        assert (member.pending, member.head, member.lag) == (0, 1, 0)
    first = b[0]
    assert (first.payload, first.key, first.type, first.headers) == (b"x", b"k", 7, {"h": 1})
    assert first.expires is not None
    assert (payloads(b), payloads(c)) == ([b"x", b"z"], [b"y"])


def test_a_lone_consumer_forwards_too(queue, two):
    b, _ = two
    queue.put(b"one")
    with queue.consumer("alone", ack="explicit") as lone:
        assert forward(lone.get(0), b) == [0]
        assert (lone.pending, lone.head) == (0, 1)


def test_a_block_that_puts_nothing_finishes_the_message(queue):
    queue.put(b"one")
    with join(queue) as member:
        with member.get(0).forward() as f:
            pass
        assert (f.indexes, member.lag) == ([], 0)


def test_several_messages_are_forwarded_and_what_comes_of_each_is_known_apart(queue, two):
    b, c = two
    queue.put_many([b"0", b"1", b"2"])
    with join(queue) as member:
        messages = member.get_many(3, 0)
        with shmq.forward(*messages) as f:
            for message in messages:
                f.put(b, message.payload, message=message)
                f.put(c, message.payload, message=message)
                f.put(b, message.payload + b"!", message=message)
        assert f.indexes == [0, 0, 1, 2, 1, 3, 4, 2, 5]
        assert member.lag == 0
    assert payloads(b) == [b"0", b"0!", b"1", b"1!", b"2", b"2!"]
    incarnation = sources.read(member._home, "g").incarnation
    assert b._shared_producer().forwarded(incarnation) == {0: (0, 2), 1: (2, 2), 2: (4, 2)}
    assert c._shared_producer().forwarded(incarnation) == {0: (0, 1), 1: (1, 1), 2: (2, 1)}


def test_messages_of_two_groups_are_forwarded_together(queue, two):
    b, c = two
    queue.put(b"one")
    c.put(b"two")
    with join(queue) as here, join(c) as there:
        mine, theirs = here.get(0), there.get(0)
        with shmq.forward(mine, theirs) as f:
            f.put(b, b"of mine", message=mine)
            f.put(b, b"of theirs", message=theirs)
        assert (here.lag, there.lag) == (0, 0)
    assert sorted(payloads(b)) == [b"of mine", b"of theirs"]


def test_the_own_queue_may_be_put_into(queue):
    queue.put(b"one")
    with join(queue) as member:
        assert forward(member.get(0), queue) == [1]
        assert forward(member.get(0), queue) == [2]
        assert member.lag == 1


def test_more_than_one_claim_has_of_several_messages_goes_in_several(queue, two):
    b, _ = two
    queue.put_many([b"0", b"1", b"2"])
    with join(queue) as member:
        messages = member.get_many(3, 0)
        with shmq.forward(*messages) as f:
            for message in messages:
                for _ in range(5000):
                    f.put(b, message.payload, message=message)
        assert f.indexes == list(range(15000))


def test_several_go_one_by_one_into_a_queue_that_never_has_room_for_all(queue, tmp_path):
    queue.put_many([b"0", b"1", b"2"])
    with shmq.open(f"{tmp_path}/small", max_messages=2) as small, join(queue) as member:
        reader = small.consumer("r")
        messages = member.get_many(3, 0)
        thread = threading.Thread(target=lambda: [reader.take(20) for _ in range(3)])
        thread.start()
        with shmq.forward(*messages) as f:
            for message in messages:
                f.put(small, message.payload, message=message)
        thread.join()
        assert (f.indexes, member.lag) == ([0, 1, 2], 0)


def test_what_comes_of_one_and_never_has_room_is_refused_and_comes_again(queue, tmp_path):
    queue.put(b"0")
    with shmq.open(f"{tmp_path}/small", max_messages=1) as small, join(queue) as member:
        small.consumer("r")
        with pytest.raises(shmq.TooMany):
            forward(member.get(0), small, small)
        assert len(small) == 0
        member.get(10).ack()


# ---------------------------------------------------------------- nothing of it
def test_an_exception_in_the_block_puts_nothing_and_the_message_is_still_held(queue, two):
    b, _ = two
    queue.put(b"one")
    with join(queue) as member:
        message = member.get(0)
        with pytest.raises(ZeroDivisionError), message.forward() as f:  # noqa: PT012
            f.put(b, b"x")
            _ = 1 / 0
        assert (len(b), member.pending) == (0, 1)
        assert forward(message, b) == [0]


def test_a_message_that_was_given_to_somebody_else_puts_nothing(queue, two):
    b, _ = two
    queue.put(b"one")
    with join(queue, lease=0.05) as member, join(queue) as other:
        message = member.get(0)
        with pytest.raises(shmq.LeaseLost), message.forward() as f:  # noqa: PT012
            f.put(b, b"late")
            theirs = other.get(5)
        assert len(b) == 0
        assert forward(theirs, b) == [0]


def test_of_several_one_that_was_lost_leaves_the_others_held(queue, two):
    b, _ = two
    queue.put_many([b"0", b"1"])
    with join(queue) as member:
        first, second = member.get_many(2, 0)
        with pytest.raises(shmq.LeaseLost), shmq.forward(first, second) as f:  # noqa: PT012
            f.put(b, b"x", message=first)
            f.put(b, b"y", message=second)
            second.nack()
        assert (len(b), member.pending) == (0, 1)
        first.ack()


ROOM_WAITERS = 428  # in the control page


def test_no_lease_ends_what_is_being_forwarded(queue, tmp_path):
    queue.put(b"one")
    with shmq.open(f"{tmp_path}/full", max_messages=1) as full, join(queue, lease=0.05) as member:
        full.put(b"there")
        reader = full.consumer("r")
        message = member.get(0)

        def work() -> None:
            with message.forward() as f:
                f.put(full, b"x")

        thread = threading.Thread(target=work)
        thread.start()
        with join(queue) as other:
            until(lambda: peek(f"{full.path}/control.shmq", ROOM_WAITERS) & 0xFFFFFFFF == 1)  # it is being forwarded
            time.sleep(0.1)
            with pytest.raises(shmq.Empty):
                other.get(0.1)
        reader.take(0)
        thread.join(20)
        assert not thread.is_alive()
        assert reader.take(5) == b"x"
        assert member.lag == 0


def test_a_queue_without_room_is_full_in_time_and_what_was_put_before_is_not_put_twice(queue, two, tmp_path):
    b, _ = two
    queue.put(b"one")
    with shmq.open(f"{tmp_path}/full", max_messages=1) as full, join(queue) as member:
        full.put(b"there")
        reader = full.consumer("r")
        message = member.get(0)
        with pytest.raises(shmq.Full), message.forward(timeout=0) as f:  # noqa: PT012
            f.put(b, b"x")
            f.put(full, b"y")
        assert payloads(b) == [b"x"]
        assert member.pending == 0
        reader.take(0)
        again = member.get(10)
        with again.forward() as f:
            f.put(b, b"x again")
            f.put(full, b"y")
        assert f.indexes == [0, 1]
        assert (payloads(b), reader.take(0)) == ([b"x"], b"y")


def test_what_no_claim_can_have_is_refused_in_the_block(queue, two):
    b, _ = two
    queue.put(b"one")
    with join(queue) as member:
        message = member.get(0)
        with pytest.raises(shmq.TooLarge), message.forward() as f:
            f.put(b, b"x", key=bytes(70000))
        with pytest.raises(shmq.TooMany), message.forward() as f:  # noqa: PT012
            for _ in range(8192):
                f.put(b, b"x")
        assert (len(b), member.pending) == (0, 1)


def test_what_is_of_asyncio_is_told_with_what_to_take(queue, two, tmp_path):
    """Found by an attack: it spoke of ack, and of an attribute that a Producer does not have."""

    async def tries():
        async with await shmq.aio.open(f"{tmp_path}/a") as a:
            await a.put(b"x")
            consumer = await a.consumer("g", group=True, ack="explicit")
            message = await consumer.get()
            with pytest.raises(TypeError, match=r"of a message of shmq.aio, forward its \.plain"):
                shmq.forward(message)
            with message.plain.forward() as f:
                with pytest.raises(TypeError, match=r"a shmq.aio.Queue's \.plain is one"):
                    f.put(a, b"y")
                f.put(two[0], b"y")

    asyncio.run(tries())
    assert payloads(two[0]) == [b"y"]


def test_what_cannot_be_forwarded_says_why(queue, two):
    b, _ = two
    queue.put_many([b"0", b"1"])
    with pytest.raises(ValueError, match="no message"):
        shmq.forward()
    with pytest.raises(TypeError, match="handed out by nobody"):
        shmq.forward(queue[0])
    with pytest.raises(shmq.Mismatch, match="forward"):
        queue[0].forward()
    with join(queue, "auto", ack="auto") as auto, pytest.raises(shmq.Mismatch, match="acknowledges what it"):
        forward(auto.get(0), b)
    with join(queue) as member:
        first, second = member.get_many(2, 0)
        with pytest.raises(ValueError, match="twice"):
            shmq.forward(first, first)
        with pytest.raises(TypeError, match="which one"), shmq.forward(first, second) as f:
            f.put(b, b"x")
        with pytest.raises(ValueError, match="none of those"), first.forward() as f:
            f.put(b, b"x", message=second)
        with pytest.raises(TypeError, match="a queue that is open"), first.forward() as f:
            f.put("b", b"x")
        with first.forward() as f:
            pass
        with pytest.raises(shmq.Closed), f:
            pass
        with pytest.raises(shmq.Closed):
            f.put(b, b"x")
        with pytest.raises(shmq.LeaseLost, match="finished"):
            forward(first, b)
    with pytest.raises(shmq.Closed):
        forward(second, b)
    assert len(b) == 0


# ---------------------------------------------------------------- deaths
def drain(queue, *targets):
    """Forward all that is left, as a worker that knows of no former try."""
    with join(queue) as member:
        with contextlib.suppress(shmq.Empty):
            while True:
                forward(member.get(0), *targets)
        assert member.lag == 0


@pytest.mark.parametrize("step", range(8))
def test_killed_anywhere_on_the_way_nothing_is_lost_and_nothing_is_there_twice(queue, two, step):
    b, c = two
    queue.put_many([b"%d" % i for i in range(3)])

    def work() -> None:
        with shmq.open(queue.path) as mine, shmq.open(b.path) as first, shmq.open(c.path) as second:
            member = join(mine)
            forward(member.get(0), first, second)
            forward(member.get(0), first, second)

    killed_at(step, work, STEPS)
    drain(queue, b, c)
    assert sorted(payloads(b)) == sorted(payloads(c)) == [b"0", b"1", b"2"]


def test_killed_with_half_of_it_put_the_other_half_follows_and_no_more(queue, two):
    b, c = two
    queue.put(b"one")

    def work() -> None:
        with shmq.open(queue.path) as mine, shmq.open(b.path) as first, shmq.open(c.path) as second:
            forward(join(mine).get(0), first, second)

    assert killed_at(2, work, {"shmq_ring_forward", "shmq_put_each"})
    assert (len(b), len(c)) == (1, 0)
    with join(queue) as member:
        message = member.get(5)
        assert message.attempts == 2
        assert forward(message, b, c) == [0, 0]
    assert (len(b), len(c)) == (1, 1)


def test_what_was_put_before_is_known_also_when_its_chunk_was_retired(queue, tmp_path):
    queue.put(b"one")
    with shmq.open(f"{tmp_path}/b", chunk_bytes=16384) as b:

        def work() -> None:
            with shmq.open(queue.path) as mine, shmq.open(b.path) as first:
                forward(join(mine).get(0), first)

        assert killed_at(2, work, {"shmq_ring_forward", "shmq_put_each", "shmq_ring_ack"})
        assert len(b) == 1
        with b.consumer("r") as reader:
            for _ in range(100):
                b.put(bytes(1000))
                reader.take(0)
            reader.take(0)
        assert b.first_index > 0
        with join(queue) as member:
            assert forward(member.get(5), b) == [0]
        assert payloads(b) == [bytes(1000)] * len(b)


def test_what_is_parked_keeps_that_it_may_have_been_put(queue, two):
    b, c = two
    queue.put(b"one")
    with join(queue) as member:
        c.configure(max_messages=1)
        c.put(b"there")
        reader = c.consumer("r")
        with pytest.raises(shmq.Full):
            forward(member.get(0), b, c, timeout=0)  # it is parked now, for a second
        again = member.get(10)
        again.nack(delay=0.01)  # and once more
        reader.take(0)
        assert forward(member.get(10), b, c) == [0, 1]
    assert payloads(b) == [b"one"]


def test_behind_a_reboot_all_is_looked_for(queue, two, monkeypatch):
    b, _ = two
    queue.put_many([b"0", b"1"])
    with monkeypatch.context() as patch:
        patch.setattr("shmq.storage.acks.write_fixed", lambda *_: False)  # no snapshot: all of it is forgotten
        with join(queue) as member:
            forward(member.get(0), b)
            assert member._ring.again is False
            memory = member._ring._memory
    shmq._native.Ring.forget(memory)  # as another boot finds it
    with join(queue) as member:
        assert forward(member.get(0), b) == [0]
        assert forward(member.get(0), b) == [1]
        assert member._ring.again is True
        queue.put(b"new")
        assert forward(member.get(0), b) == [2]
        assert member._ring.again is False
    assert payloads(b) == [b"0", b"1", b"new"]


def test_a_group_that_is_moved_back_puts_all_of_it_again(queue, two):
    b, _ = two
    queue.put_many([b"0", b"1"])
    with join(queue) as member:
        for _ in range(2):
            forward(member.get(0), b)
        member.seek(0)
        for _ in range(2):
            forward(member.get(0), b)
    assert payloads(b) == [b"0", b"1", b"0", b"1"]


def test_a_renamed_group_is_known_as_before(queue, two):
    b, _ = two
    queue.put(b"one")
    with join(queue) as member:
        forward(member.get(0), b)
        before = sources.read(member._home, "g")
    queue.rename_consumer("g", "h")
    assert sources.read(queue._session.home, "h") == before
    assert sources.read(queue._session.home, "g") is None


def test_a_stopped_forward_keeps_its_message_and_nobody_else(queue, two):
    b, _ = two
    queue.put_many([b"0", b"1"])

    def work(say) -> None:
        with shmq.open(queue.path) as mine:
            account = join(mine).get(0)
            held = account.forward()
            held._inputs[0].account.begin_forward(account, set())
            hold_until_killed(say)

    with Child(work) as child, join(queue, lease=None) as member:
        assert child.hear() == "ready"
        child.signal(signal.SIGSTOP)
        assert forward(member.get(5), b) == [0]
        with pytest.raises(shmq.Empty):
            member.get(0.1)
        child.kill()
        assert forward(member.get(20), b) == [1]
    assert payloads(b) == [b"1", b"0"]


# ---------------------------------------------------------------- forks, threads, closing
def test_a_forward_is_the_parents(queue, two):
    b, _ = two
    queue.put(b"one")
    with join(queue) as member:
        message = member.get(0)

        def work() -> str:
            try:
                forward(message, b)
            except shmq.Forked:
                return "forked"
            return "put"

        with message.forward() as f:
            f.put(b, b"x")
            assert in_child(work) == "forked"
            assert in_child(lambda: _leave(f)) == "Forked"
        assert f.indexes == [0]
    assert len(b) == 1


def _leave(f) -> str:
    try:
        f.__exit__(None, None, None)
    except shmq.ShmqError as problem:
        return type(problem).__name__
    return "put"


def test_another_thread_cannot_end_what_is_being_forwarded(queue, tmp_path):
    queue.put(b"one")
    with shmq.open(f"{tmp_path}/full", max_messages=1) as full, join(queue) as member:
        full.put(b"there")
        reader = full.consumer("r")
        message = member.get(0)
        thread = threading.Thread(target=forward, args=(message, full))
        thread.start()
        until(lambda: len(member._account._forwarding) == 1)
        until(lambda: shmq._native.forwards(shmq._native.taken_of(message)))
        for end in (
            message.ack,
            message.nack,
            message.reject,
            lambda: member.ack(message),
            lambda: forward(message, full),
        ):
            with pytest.raises(shmq.Busy, match="another thread"):
                end()
        member.close()  # which leaves once that is done
        with pytest.raises(shmq.Closed):
            member.get(0)
        reader.take(0)
        thread.join(20)
        assert reader.take(5) == b"one"
    with join(queue) as member:
        assert member.lag == 0


def test_a_closed_target_refuses_before_anything_has_begun(queue, two):
    b, c = two
    queue.put(b"one")
    with join(queue) as member:
        message = member.get(0)
        with shmq.open(c.path) as other, pytest.raises(shmq.Closed), message.forward() as f:  # noqa: PT012
            f.put(b, b"x")
            f.put(other, b"y")
            other.close()
        assert (len(b), member.pending) == (0, 1)


def test_a_signal_in_the_middle_leaves_it_to_come_again(queue, tmp_path, two):
    b, _ = two
    queue.put(b"one")

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with shmq.open(f"{tmp_path}/full", max_messages=1) as full, join(queue) as member:
            full.put(b"there")
            reader = full.consumer("r")
            message = member.get(0)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                forward(message, b, full)
            reader.take(0)
            assert forward(member.get(10), b, full) == [0, 1]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert payloads(b) == [b"one"]


def test_a_process_that_lost_its_seat_puts_nothing(queue, two):
    b, _ = two
    queue.put(b"one")

    def work() -> str:
        with shmq.open(queue.path) as mine, shmq.open(b.path) as first:
            message = join(mine).get(0)
            lose_locks(f"{queue.path}/control.shmq")
            try:
                forward(message, first)
            except shmq.LeaseLost as problem:
                return str(problem)
            return "put"

    assert "lost its seat" in in_child(work)
    assert len(b) == 0


def test_a_signal_while_the_thread_of_its_snapshots_begins_leaves_no_thread(queue, two, monkeypatch):
    b, _ = two
    queue.put(b"0")
    start = lasting.Worker.start

    def interrupted(worker):
        start(worker)
        until(lambda: worker._threads)
        raise KeyboardInterrupt

    with join(queue) as member, monkeypatch.context() as patched:
        patched.setattr(lasting.Worker, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            forward(member.get(0), b)
    assert not [thread for thread in threading.enumerate() if thread.name == "shmq-lasting"]


# ---------------------------------------------------------------- power cuts, and what is forgotten
def snapshot(queue, name="g"):
    """Have what is done by now on the disk, as the thread of a member does once a second."""
    return lasting.Lasting(queue._session.home, queue._session.joined(), name).take()


def reboot(queue, name="g"):
    """Have the group's ring be made anew from its snapshots, as behind a reboot."""
    shmq._native.Ring.forget(rings.map_ring(queue._session.home, name, writable=True))


@pytest.fixture
def quiet(monkeypatch):
    """No member's thread takes a snapshot by itself."""
    monkeypatch.setattr(lasting, "EVERY", 1e6)
    monkeypatch.setattr(lasting.Keeper, "last", lambda _: None)


@pytest.mark.usefixtures("quiet")
def test_what_is_done_counts_behind_a_reboot_only_once_its_copies_are_on_the_disk(queue, two, monkeypatch):
    b, _ = two
    queue.put_many([b"0", b"1"])
    order = []
    tick, write = durability.Syncer.tick, acks.write_fixed
    monkeypatch.setattr(durability.Syncer, "tick", lambda *given: (order.append("sync"), tick(*given))[1])
    monkeypatch.setattr(acks, "write_fixed", lambda *given: (order.append("write"), write(*given))[1])
    with join(queue) as member:
        forward(member.get(0), b)
        queue._session.chain()
        durability.Syncer(queue._session.home, queue._session.joined()).sync()  # whoever leads knows of no target
    reboot(queue)
    with join(queue) as member:
        assert (member.get(0).index, order) == (0, [])  # it comes again
    assert snapshot(queue)
    with join(queue) as member:
        forward(member.get(0), b)
        queue.sync()  # which is asked for all that was acknowledged
    assert order[-2:] == ["sync", "write"]
    reboot(queue)
    with join(queue) as member:
        assert member.get(0).index == 1
    assert payloads(b) == [b"0"]


@pytest.mark.usefixtures("quiet")
def test_a_target_out_of_reach_keeps_what_is_done_from_counting_and_one_that_was_deleted_does_not(
    queue, tmp_path, caplog
):
    queue.put_many([b"0", b"1"])
    away = f"{tmp_path}/disk/away"
    os.mkdir(os.path.dirname(away))
    with join(queue) as member:
        with shmq.open(away) as b:
            forward(member.get(0), b)
        os.rename(f"{tmp_path}/disk", f"{tmp_path}/unmounted")
        assert not snapshot(queue)
        assert "nothing is lost" in caplog.text
        os.rename(f"{tmp_path}/unmounted", f"{tmp_path}/disk")
        assert snapshot(queue)
        with shmq.open(away) as b:
            forward(member.get(0), b)
        shmq.delete(away)
        assert snapshot(queue)
    assert sources.read(queue._session.home, "g").targets == []


@pytest.mark.usefixtures("quiet")
def test_with_sync_a_message_is_done_when_its_copies_are_on_the_disk(tmp_path, two, monkeypatch):
    b, _ = two
    with shmq.open(f"{tmp_path}/s", durability="sync") as queue, join(queue) as member:
        queue.put(b"0")
        seen = []
        end = member._account.end_forward
        monkeypatch.setattr(
            member._account, "end_forward", lambda m: (seen.append(b._session.joined().control.durable()), end(m))[1]
        )
        forward(member.get(0), b)
        assert seen == [1]
        reboot(queue)
    with shmq.open(f"{tmp_path}/s") as queue, join(queue) as member:
        assert member.lag == 0


@pytest.mark.usefixtures("quiet")
def test_with_sync_what_comes_of_a_message_is_put_once_that_is_on_the_disk(tmp_path, two, monkeypatch):
    """Else a power cut leaves what came of it, and who puts it again makes another one, which is forwarded, too."""
    b, _ = two
    with shmq.open(f"{tmp_path}/s", durability="sync") as queue, join(queue) as member:
        with monkeypatch.context() as patched:
            patched.setattr(durability.Syncer, "wait", lambda *_: None)  # its producer is not so far yet
            queue.put(b"0")
        control = queue._session.joined().control
        assert control.durable() == 0
        seen = []
        put = producer.Producer.put_forwarded
        monkeypatch.setattr(
            producer.Producer, "put_forwarded", lambda *given: (seen.append(control.durable()), put(*given))[1]
        )
        forward(member.get(0), b)
        assert seen == [1]


@pytest.mark.usefixtures("quiet")
def test_what_a_power_cut_may_bring_back_is_not_retired(tmp_path, two):
    b, _ = two
    with shmq.open(f"{tmp_path}/s", chunk_bytes=16384) as queue, join(queue) as member:
        for _ in range(100):
            queue.put(bytes(1000))
            forward(member.get(0), b)
        assert (member.head, queue.first_index) == (100, 0)
        assert snapshot(queue)
        assert queue.first_index > 0
        reboot(queue)
    with shmq.open(f"{tmp_path}/s") as queue, join(queue) as member:
        assert member.lag == 0


@pytest.mark.usefixtures("quiet")
def test_bounds_go_by_what_is_done_now(tmp_path, two):
    b, _ = two
    with shmq.open(f"{tmp_path}/s", max_messages=2) as queue, join(queue) as member:
        for _ in range(10):
            queue.put(b"x", timeout=0)
            forward(member.get(0), b)


def noted(queue, name="g"):
    """The indexes of which the queue has a note that something was forwarded."""
    note = dedup.read_note(queue._session.home)
    return {sequence & ~shmq._native.DEDUP_FORWARDED for _, sequence in note.memory().forwarded}


def fill(queue, reader):
    """Put until what was there before is retired."""
    end = queue.next_index
    while queue.first_index < end:
        for _ in range(20):
            queue.put(bytes(1000))
            reader.take(0)


@pytest.mark.usefixtures("quiet")
def test_what_never_comes_again_is_forgotten_and_what_may_is_not(queue, tmp_path):
    queue.put_many([b"%d" % i for i in range(10)])
    with shmq.open(f"{tmp_path}/b", chunk_bytes=16384) as b, b.consumer("r") as reader, join(queue) as member:
        messages = member.get_many(10, 0)
        messages[3].nack(delay=3600)
        for message in (*messages[:3], *messages[4:8]):
            forward(message, b)
            reader.take(0)
        fill(b, reader)
        assert noted(b) == {0, 1, 2, 4, 5, 6, 7}  # no snapshot yet: all of it may come again
        snapshot(queue)
        forward(messages[8], b)
        reader.take(0)
        fill(b, reader)
        assert noted(b) == {8}
        floor = forgotten.floors(b._session.home)[sources.read(queue._session.home, "g").incarnation]
        assert [index for index in range(12) if not floor.is_done(index)] == [3, 8, 9, 10, 11]


@pytest.mark.usefixtures("quiet")
def test_an_old_copy_of_the_source_is_refused(queue, two, tmp_path):
    b, _ = two
    queue.put_many([b"0", b"1", b"2"])
    with join(queue) as member:
        forward(member.get(0), b)
        snapshot(queue)
        queue.copy(f"{tmp_path}/old")
        forward(member.get(0), b)
        snapshot(queue)
    with shmq.open(f"{tmp_path}/old") as old, join(old) as member:
        with pytest.raises(shmq.Mismatch, match="old copy"):
            forward(member.get(0), b)
        member.seek(1)
        assert forward(member.get(0), b) == [2]


@pytest.mark.usefixtures("quiet")
def test_a_copy_that_is_a_queue_of_its_own_is_another_source(queue, two, tmp_path):
    """Both forward into one queue: neither is taken for the other's past, and nothing of it is left out."""
    b, _ = two
    queue.put_many([b"0", b"1", b"2"])
    with join(queue) as member:
        forward(member.get(0), b)
    queue.copy(f"{tmp_path}/copy", new_id=True)
    for path in (queue.path, f"{tmp_path}/copy"):
        with shmq.open(path) as each, join(each) as member:
            for message in member.get_many(2, timeout=0):
                forward(message, b)
            assert member.floor == 3
    assert payloads(b) == [b"0", b"1", b"2", b"1", b"2"]


def test_a_move_that_is_killed_leaves_old_place_and_name_or_both_new(queue, two):
    b, _ = two
    queue.put(b"0")
    with join(queue) as member:
        forward(member.get(0), b)
        snapshot(queue)
    moved = set()
    before = sources.read(queue._session.home, "g").incarnation

    def work() -> None:
        with shmq.open(queue.path) as mine:
            join(mine).seek(0)

    for step in range(100):
        killed = killed_at(step, work)
        with join(queue) as member:
            after = sources.read(queue._session.home, "g")
            assert not after.renewed
            assert (after.incarnation != before) is (member.head == 0)
            moved.add(member.head)
            if not killed:
                break
            if member.head == 0:
                forward(member.get(0), b)
                snapshot(queue)
        before = after.incarnation
    assert moved == {0, 1}


def test_members_say_themselves_what_is_done(queue, two, monkeypatch):
    b, _ = two
    monkeypatch.setattr(lasting, "EVERY", 0.01)
    queue.put(b"0")
    with join(queue) as member:
        forward(member.get(0), b)
        until(lambda: forgotten.floors(b._session.home))
