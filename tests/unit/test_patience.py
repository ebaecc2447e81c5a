"""How a consumer waits when there is nothing: asleep, looking again and again, or first the one and then the other."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from support import Child, hold_until_killed, run_python, until

import shmq
from shmq import patience

LONG = 30
WAYS = ["spin", "hybrid", "sleep"]
KINDS = {"auto": {}, "lone": {"ack": "explicit"}, "group": {"group": True}, "acks": {"group": True, "ack": "explicit"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_who_waits_gets_what_another_process_puts(queue, way, kind):
    def put(say):
        with shmq.open(queue.path) as mine:
            for _ in range(3):
                os.read(go, 1)
                mine.put(b"x")
            say("done")

    go, tell = os.pipe()
    with queue.consumer("c", wait=way, **KINDS[kind]) as consumer, Child(put) as child:
        for name in ("get", "take"):
            os.write(tell, b"!")
            assert getattr(consumer, name)(timeout=LONG) is not None
        os.write(tell, b"!")
        assert next(iter(consumer)).payload == b"x"
        assert child.hear() == "done"
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0.01)
        queue.shutdown()
        with pytest.raises(shmq.ShutDown):
            consumer.get(timeout=LONG)


@pytest.mark.parametrize("kind", KINDS)
def test_who_spins_does_not_ask_to_be_woken(queue, kind):
    slept = []
    with queue.consumer("c", wait="spin", **KINDS[kind]) as consumer:
        membership = consumer._membership
        membership.sleep = lambda *_: slept.append("slept")
        membership.let_go = lambda: slept.append("let go")
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0.25)
    assert "let go" in slept  # or what it has looked at stays mapped, and its space with it
    assert "slept" not in slept


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_to_sleep_does_not_look_again_before_that(queue, kind):
    with queue.consumer("c", wait="sleep", **KINDS[kind]) as consumer:
        assert consumer._patience.spins == 0
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0.01)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_dead_member_held_comes_to_whoever_waits(queue, way):
    def hold(say):
        with shmq.open(queue.path) as mine, mine.consumer("c", group=True, ack="explicit") as member:
            member.get(timeout=LONG)
            hold_until_killed(say)

    queue.put(b"x")
    with Child(hold) as child:
        child.hear()
        with queue.consumer("c", group=True, ack="explicit", wait=way) as member:
            thread = threading.Timer(0.02, child.kill)
            thread.start()
            assert member.get(timeout=LONG).payload == b"x"
            thread.join()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_ends_the_wait(queue, way, kind):
    def wait(say):
        with shmq.open(queue.path) as mine, mine.consumer("c", wait=way, **KINDS[kind]) as consumer:
            try:
                say("waits")
                consumer.get()
            except KeyboardInterrupt:
                say("interrupted")

    with Child(wait) as child:
        assert child.hear() == "waits"
        # A KeyboardInterrupt that is raised inside the garbage collector is printed and lost: like a user, press again.
        until(lambda: child.signal(signal.SIGINT) or child.speaks_within(0.5))
        assert child.hear() == "interrupted"


def test_another_thread_may_close_what_spins(queue):
    with queue.consumer("c", group=True, wait="spin") as consumer:
        seen = []

        def wait():
            try:
                consumer.get()
            except shmq.Closed as problem:
                seen.append(problem)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: consumer._patience._tidy_at > 0)
        consumer.close()
        thread.join(LONG)
        assert "closed" in str(seen[0])


# ---------------------------------------------------------------- the moment before Python sleeps, in C
LOOKS = (1 << 32) - 1
"""So often that it is not over before something comes."""


def looks_for_long(consumer):
    """Have it look so often, and never come to Python."""
    consumer._wait_with(consumer._lock, LOOKS)
    consumer._take = consumer._get = lambda *_, **__: pytest.fail("the built-in gave up")


@pytest.mark.parametrize("name", ["take", "get"])
@pytest.mark.parametrize("codec", ["bytes", "json"])
def test_what_comes_while_the_built_in_looks_is_handed_out_by_it(path, name, codec):
    with shmq.open(path, codec=codec) as queue, queue.consumer("c") as consumer:
        sent = b"x" if codec == "bytes" else ["x"]
        queue.put(sent)
        consumer.take()  # from now on it stands in a chunk
        looks_for_long(consumer)
        thread = threading.Timer(0.02, queue.put, [sent])
        thread.start()
        found = getattr(consumer, name)()
        thread.join()
        assert (found if name == "take" else found.payload) == sent
        assert consumer.head == 2
        assert name == "take" or (found.index, found.attempts) == (1, 1)


def test_while_the_built_in_looks_other_threads_wait_for_their_turn(queue):
    """Each gets one, and nobody both."""
    queue.put(b"first")
    with queue.consumer("c") as consumer:
        consumer.take()
        consumer._wait_with(consumer._lock, LOOKS)
        found = []
        threads = [threading.Thread(target=lambda: found.append(consumer.take(LONG))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(4):
            queue.put(b"%d" % number)
        for thread in threads:
            thread.join(LONG)
        assert sorted(found) == [b"0", b"1", b"2", b"3"]


def test_who_closes_what_looks_waits_for_it(queue):
    """Or somebody else had the name while this one still takes for it."""
    queue.put(b"first")
    consumer = queue.consumer("c")
    consumer.take()
    looks_for_long(consumer)
    found = []
    taker = threading.Thread(target=lambda: found.append(consumer.take()))
    taker.start()
    until(lambda: is_taken(consumer._lock))
    closer = threading.Thread(target=consumer.close)
    closer.start()
    with pytest.raises(shmq.Busy):
        queue.consumer("c")
    queue.put(b"last")
    taker.join(LONG)
    closer.join(LONG)
    assert found == [b"last"]
    with queue.consumer("c") as other:
        assert other.head == 2


def is_taken(lock):
    """Whether another thread has it: who tries to take it here is not let in for a moment."""
    entered = threading.Event()

    def enter():
        with lock:
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return not entered.wait(0.05)


def test_a_moment_is_long_enough_to_give_way_on_the_only_processor():
    """Who shares the processor with whoever puts, and does not give way, has to be woken for each message."""
    assert patience.SPINS > 127  # pauses of 1, 2, 4, 8 ... 64: it gives way from 8 on
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from shmq import patience; print(patience.SPINS)"
    )
    assert 127 < int(run_python(code)) < 1000
