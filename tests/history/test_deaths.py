"""Dead and undead owners: killed or stopped inside a claim, robbed of their lock, in other pid namespaces."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from support import lose_locks

import shmq
from tests.history import deaths
from tests.history.processes import PATIENCE, Process, can_unshare

LONG = PATIENCE


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q")


def claim(tell, path, hear=None):
    """Claim, say where, and commit as soon as *hear*, a pipe, is written to."""
    q = shmq.open(path)
    slot = q.reserve(8)
    tell(slot.index)
    if hear is None:
        time.sleep(LONG)
    os.read(hear, 1)
    slot.buffer[:] = b"commits!"
    try:
        tell("committed", slot.commit())
    except shmq.Fenced:
        tell("Fenced")


def consume(tell, path, name, ack="auto"):
    """Say every payload, asleep in between; ends at b"last"."""
    consumer = shmq.open(path).consumer(name, ack=ack)
    tell("ready")
    payload = b""
    while payload != b"last":
        message = consumer.get(timeout=LONG)
        payload = message.payload
        tell(message.index, payload.decode())
        message.ack()


def test_consumers_go_on_when_a_producer_dies_inside_a_claim():
    """One hundred deaths, each with a consumer asleep at the claim and the next message behind it."""
    found = deaths.measure(100)
    print(deaths.summary(found))
    assert len(found) == 100


def test_every_sleeping_consumer_goes_on(path):
    """Death makes no sound: each process that sleeps has a watcher of its own, and each name passes the claim."""
    q = shmq.open(path)
    with (
        Process(consume, path, "a") as a,
        Process(consume, path, "b", "explicit") as b,
        Process(consume, path, "c") as c,
        Process(claim, path) as dead,
    ):
        everybody = (a, b, c)
        assert [each.hear() for each in everybody] == ["ready"] * 3
        assert dead.hear() == "0"
        q.put(b"behind")
        time.sleep(0.05)  # for all to be asleep; if they are not, this tests less
        dead.kill()
        assert [each.hear() for each in everybody] == ["1 behind"] * 3
        time.sleep(0.05)
        q.put(b"last")
        assert [each.hear() for each in everybody] == ["2 last"] * 3
    assert q.stats().padded == 1


def test_a_killed_sleeper_leaves_the_others_awake(path):
    q = shmq.open(path)
    with Process(consume, path, "a") as a, Process(consume, path, "b") as b:
        assert (a.hear(), b.hear()) == ("ready", "ready")
        time.sleep(0.05)
        a.kill()
        a.wait()
        time.sleep(0.05)
        q.put(b"last")
        assert b.hear() == "0 last"


def lose_the_lock(tell, path, hear):
    """Reserve, then unmap the page that says we live, as nobody should."""
    q = shmq.open(path)
    slot = q.reserve(64)
    lose_locks(f"{path}/control.shmq")
    tell(slot.index)
    os.read(hear, 1)
    slot.buffer[:] = b"\xff" * 64
    try:
        slot.commit()
    except shmq.Fenced:
        tell("Fenced")
    else:
        tell("it was committed")
    time.sleep(LONG)


def test_a_zombie_is_fenced_and_changes_nothing(path):
    """
    A producer that lives but has lost its lock is judged dead. Its claim is padded; when it wakes up, its commit fails,
    and all that it wrote lies inside the padding.
    """
    q = shmq.open(path)
    consumer = q.consumer("c")
    for at in range(20):
        hear, wake = os.pipe()
        with Process(lose_the_lock, path, hear) as zombie:
            index = int(zombie.hear())
            q.put(b"behind %d" % at)
            assert consumer.take(timeout=PATIENCE) == b"behind %d" % at
            os.write(wake, b"!")
            assert zombie.hear() == "Fenced"
            with pytest.raises(IndexError, match="padding"):
                q[index]
        os.close(hear)
        os.close(wake)
    assert [m.payload for m in q.reader()] == [b"behind %d" % at for at in range(20)]
    assert len(q) == 20
    assert (q.stats().padded, q.stats().fenced) == (20, 20)


def put_without_a_lock(tell, path):
    """Put, long dead to the others, and say what each put said."""
    q = shmq.open(path)
    lose_locks(f"{path}/control.shmq")
    tell("ready")
    said = []
    for at in range(100):
        payload = at.to_bytes(4, "little") * 100_000  # a claim that is open for longer than consumers spin
        try:
            said.append(f"{at}:{q.put(payload)}")
        except shmq.Fenced:
            said.append(f"{at}:Fenced")
    tell(*said)


def test_a_zombies_put_is_in_the_queue_exactly_if_it_returned(path):
    """
    Consumers pad its claims at the same time as it commits them. One of the two compare-and-swaps wins, and both sides
    agree on which.
    """
    q = shmq.open(path)
    seen = {}
    fenced = 0
    for round_ in range(3):
        with q.consumer(f"c{round_}", start="latest") as consumer, Process(put_without_a_lock, path) as zombie:
            assert zombie.hear() == "ready"
            q.put(b"end of " + str(round_).encode())
            deadline = time.monotonic() + PATIENCE
            while zombie.alive() and time.monotonic() < deadline:
                seen.update({m.index: m.payload for m in take_what_is_there(consumer)})
            seen.update({m.index: m.payload for m in take_what_is_there(consumer)})
            for word in zombie.hear().split():
                at, _, index = word.partition(":")
                if index == "Fenced":
                    fenced += 1
                else:
                    assert seen.pop(int(index), b"lost")[:4] == int(at).to_bytes(4, "little")
    assert {payload[:6] for payload in seen.values()} <= {b"end of"}, "a fenced message was delivered"
    print(f"{fenced} of 300 puts were fenced")


def take_what_is_there(consumer):
    with contextlib.suppress(shmq.Empty):
        while True:
            yield from consumer.get_many(100, timeout=0)


def test_a_producer_stopped_inside_a_claim_holds_consumers_until_it_goes_on(path):
    """Others put meanwhile; a consumer's timeout ends, and says for whom it waits; then all is there, in order."""
    q = shmq.open(path)
    consumer = q.consumer("c")
    hear, wake = os.pipe()
    with Process(claim, path, hear) as stopped:
        assert stopped.hear() == "0"
        stopped.stop()
        os.write(wake, b"!")
        for at in range(50):
            q.put(b"%d" % at)
        with pytest.raises(shmq.Empty, match=rf"claimed by process {stopped.pid} \(.*\), which is stopped"):
            consumer.take(timeout=0.05)
        with pytest.raises(shmq.Empty, match=rf"process {stopped.pid} "):
            consumer.get_many(10, timeout=0)
        assert q.stats().participants == 2
        stopped.go_on()
        assert consumer.take(timeout=PATIENCE) == b"commits!"
        assert stopped.hear() == "committed 0"
    assert [consumer.take(timeout=0) for _ in range(50)] == [b"%d" % at for at in range(50)]


def test_a_stopped_producer_that_is_killed_after_all_holds_nobody(path):
    q = shmq.open(path)
    with Process(claim, path) as stopped, Process(consume, path, "c") as c:
        assert (stopped.hear(), c.hear()) == ("0", "ready")
        stopped.stop()
        q.put(b"last")
        time.sleep(0.05)
        stopped.kill()
        assert c.hear() == "1 last"


namespaces = pytest.mark.skipif(not can_unshare(), reason="needs the right to make pid namespaces")


@namespaces
def test_the_same_pid_in_two_namespaces(path):
    """Both are pid 1, each in its own namespace. One dies inside a claim: its is padded, the other's is not."""
    q = shmq.open(path)
    hear, wake = os.pipe()
    with (
        contextlib.ExitStack() as stack,
        Process(consume, path, "c") as c,
        Process(claim, path, hear, namespace=True) as living,
    ):
        assert (c.hear(), living.hear()) == ("ready", "0")
        dying = stack.enter_context(Process(claim, path, namespace=True))
        assert dying.hear() == "1"
        q.put(b"last")
        time.sleep(0.05)
        dying.kill()
        dying.wait()
        consumer = q.consumer("another")
        with pytest.raises(shmq.Empty, match="process 1 of another pid namespace"):
            consumer.take(timeout=0.05)
        os.write(wake, b"!")
        assert living.hear() == "committed 0"
        assert [c.hear(), c.hear()] == ["0 commits!", "2 last"]


@namespaces
def test_a_sleeper_sees_the_death_of_its_own_pid_in_another_namespace(path):
    """Consumer and producer are both pid 1. The watcher took the producer for itself, and the consumer slept on."""
    q = shmq.open(path)
    with Process(claim, path, namespace=True) as dying, Process(consume, path, "c", namespace=True) as c:
        assert (dying.hear(), c.hear()) == ("0", "ready")
        q.put(b"last")
        time.sleep(0.05)
        dying.kill()
        assert c.hear() == "1 last"


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def reuse_a_pid(tell, path):
    """In a namespace of our own: a producer dies inside a claim, and somebody else gets its pid and opens the queue."""
    try:
        LAST_PID.write_text("299")
    except OSError:
        tell("cannot choose pids")
        return
    with Process(claim, path) as dead:
        dead.hear()
        pid = dead.pid
        holder = Process(lambda say: (shmq.open(path), say("here"), time.sleep(LONG)))  # keeps the queue busy meanwhile
        holder.hear()
        dead.kill()
        dead.wait()
    LAST_PID.write_text(str(pid - 1))
    with holder, Process(lambda say: (shmq.open(path).put(b"last"), say(os.getpid()), time.sleep(LONG))) as heir:
        tell(pid, heir.hear())
        time.sleep(LONG)


@namespaces
def test_a_pid_that_was_used_again_is_nobody(path):
    """The owner of a claim is a seat and its generation; that a process with its pid lives says nothing."""
    q = shmq.open(path)
    consumer = q.consumer("c")
    with Process(reuse_a_pid, path, namespace=True) as world:
        said = world.hear()
        if said == "cannot choose pids":
            pytest.skip(said)
        pid, heir = said.split()
        assert pid == heir
        assert consumer.take(timeout=PATIENCE) == b"last"


def hold_in_group(tell, path):
    """A member that takes everything there is, and holds it."""
    member = shmq.open(path).consumer("g", group=True, ack="explicit")
    tell(*(message.index for message in member.get_many(100, 0)))
    time.sleep(LONG)


def wait_in_group(tell, path):
    """A member that sleeps until something comes to it."""
    member = shmq.open(path).consumer("g", group=True, ack="explicit")
    tell("ready")
    while True:
        message = member.get()
        tell(message.index, message.attempts)
        message.ack()


@namespaces
def test_a_member_in_another_namespace_dies(path):
    """All are pid 1, each of its own namespace: the sleeper gets what the dead one held, and not what the other has."""
    q = shmq.open(path)
    q.consumer("g", group=True, ack="explicit", ordered_by="key").close()
    q.put(b"a", key=b"a")
    q.put(b"b", key=b"b")
    with Process(hold_in_group, path, namespace=True) as living:
        assert living.hear() == "0 1"
        q.put(b"c", key=b"c")
        q.put(b"a again", key=b"a")
        q.put(b"c again", key=b"c")
        with Process(hold_in_group, path, namespace=True) as dying:
            assert dying.hear() == "2"
            with Process(wait_in_group, path, namespace=True) as m:
                assert m.hear() == "ready"
                dying.kill()
                assert [m.hear(), m.hear()] == ["2 2", "4 1"]
                living.kill()
                assert sorted([m.hear(), m.hear(), m.hear()]) == ["0 2", "1 2", "3 1"]
