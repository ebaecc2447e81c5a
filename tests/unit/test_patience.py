"""How a consumer waits when there is nothing: asleep, looking again and again, or first the one and then the other."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from support import Child, hold_until_killed, until

import shmq

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
        os.kill(child.pid, signal.SIGINT)
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
