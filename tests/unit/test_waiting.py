"""Waiting: exact deadlines, signals, no CPU while idle, and nobody waits for the dead."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import (
    CLAIMED,
    DEADLINE,
    DONE,
    PAD,
    Child,
    chunk_files,
    hold_until_killed,
    in_child,
    kept_locks,
    lose_locks,
    patch,
    peek,
    states,
    until,
    words,
)

import shmq
from shmq import _native, membership, watcher
from shmq.storage import boots

BELL, SLEEPERS = 64, 128  # in the control page
F_OFD_SETLKW = 38
LOCK_BASE = 1 << 40
SEATS, SINCE = 4096, 32  # in the control page, and in a seat
NOTHING = (1 << 64) - 1


def asleep(path) -> bool:
    """Whether somebody has said that it sleeps."""
    return peek(Path(path, "control.shmq"), SLEEPERS) & 0xFFFFFFFF == 1


def claim_and_stay(say, queue):
    """A producer that is inside a claim, for ever."""
    slot = queue.reserve(64)
    say("claimed")
    hold_until_killed(say)
    slot.commit()


@pytest.mark.parametrize("timeout", [0, 0.05, 0.3])
def test_a_timeout_is_kept(queue, timeout):
    """Empty, never before the time and not long after it; 0 never waits."""
    consumer = queue.consumer("c")
    began = time.monotonic()
    with pytest.raises(shmq.Empty, match="in time"):
        consumer.take(timeout=timeout)
    assert timeout <= time.monotonic() - began < timeout + 5


def test_a_put_wakes_a_sleeper_in_another_process(queue, path):
    """The consumer sleeps without a timeout; the message comes."""

    def wait(say):
        say(queue.consumer("c").take())

    with Child(wait) as child:
        until(lambda: asleep(path))
        queue.put(b"awake")
        assert child.hear() == "b'awake'"
        assert child.join() == 0


def test_every_sleeper_is_woken(queue, path):
    """Eight names in eight threads; one put."""
    got = []
    consumers = [queue.consumer(f"c{i}") for i in range(8)]
    threads = [threading.Thread(target=lambda consumer=each: got.append(consumer.take(DEADLINE))) for each in consumers]
    for thread in threads:
        thread.start()
    until(lambda: asleep(path))
    queue.put(b"x")
    for thread in threads:
        thread.join()
    assert got == [b"x"] * 8


@pytest.mark.usefixtures("uncollected")
def test_a_signal_interrupts_a_wait(queue):
    """Its handler runs at once, and what it raises ends the wait: Ctrl-C works. Nothing was taken."""
    consumer = queue.consumer("c")

    def interrupt(say):
        say(os.getppid())
        time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGINT)

    with Child(interrupt) as child:
        child.hear()
        with pytest.raises(KeyboardInterrupt):
            consumer.take(timeout=DEADLINE)
        child.join()
    queue.put(b"x")
    assert consumer.take(timeout=0) == b"x"


@pytest.mark.usefixtures("uncollected")
def test_a_handled_signal_does_not_shorten_a_wait(queue):
    """The handler returns, and the wait goes on to its own deadline."""
    consumer = queue.consumer("c")
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        began = time.monotonic()
        with pytest.raises(shmq.Empty):
            consumer.take(timeout=0.4)
        assert time.monotonic() - began >= 0.4
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) >= 2


def test_an_idle_wait_costs_no_processor_time(queue, path):
    """One second of waiting, in a process with a watcher and a neighbour, costs less than a twentieth of it."""

    def idle(say):
        consumer = queue.consumer("c")
        before = time.process_time()
        try:
            consumer.take(timeout=1.0)
        except shmq.Empty:
            say(time.process_time() - before)

    with Child(idle) as child:
        assert float(child.hear()) < 0.05
        child.join()


def test_b1_the_death_of_a_producer_inside_a_claim_wakes_the_sleeper(queue, path):
    """
    Rule B1: death makes no sound. A consumer that sleeps behind a claim is woken when the claimer is killed; the claim
    becomes padding and the message behind it is delivered.
    """
    with Child(claim_and_stay, queue) as child:
        child.hear()
        queue.put(b"behind")
        consumer = queue.consumer("c")
        got = []
        thread = threading.Thread(target=lambda: got.append(consumer.take(timeout=DEADLINE)))
        thread.start()
        until(lambda: asleep(path))
        assert got == []
        child.kill()
        thread.join(DEADLINE)
    assert got == [b"behind"]
    assert states(path) == [PAD, DONE]


def test_b1_a_waker_that_dies_before_the_wake_is_replaced_by_its_death(queue, path):
    """
    Rule B1: P clears the sleeper's mark, commits, and is killed before the system call. Its death wakes the sleeper.
    """
    consumer = queue.consumer("c")
    got = []
    thread = threading.Thread(target=lambda: got.append(consumer.take(timeout=DEADLINE)))

    def put_without_a_sound(say):
        queue.producer()  # joining rings the bell
        say("here")
        until(lambda: asleep(path))
        time.sleep(0.05)
        patch(Path(path, "control.shmq"), SLEEPERS, bytes(4))
        queue.put(b"silent")
        hold_until_killed(say)

    with Child(put_without_a_sound) as child:
        child.hear()
        thread.start()
        assert child.hear() == "ready"
        child.kill()
    thread.join(DEADLINE)
    assert got == [b"silent"]


def take_one(queue, _other):
    """A consumer that sleeps for a message."""
    return queue.consumer("c").take(timeout=DEADLINE)


def take_from_the_group(queue, _other):
    """A member of a group that does."""
    return queue.consumer("g", group=True, ack="auto").take(timeout=DEADLINE)


def wait_for_either(queue, other):
    """Who sleeps for several."""
    consumer = queue.consumer("c")
    assert shmq.wait([consumer, other.consumer("c")], timeout=DEADLINE) == [consumer]
    return consumer.take(timeout=0)


@pytest.mark.parametrize("sleep", [take_one, take_from_the_group, wait_for_either])
def test_a_waker_that_is_stopped_before_the_wake_keeps_nobody_asleep(queue, path, tmp_path, sleep):
    """
    P6: P puts, and is stopped when it has cleared the sleeper's mark and has not made the call. Others who put find no
    mark and wake nobody either; the sleeper looks by itself.
    """
    got = []

    def put_without_a_sound(say):
        queue.producer()  # joining rings the bell
        say("here")
        until(lambda: asleep(path))
        time.sleep(0.05)
        patch(Path(path, "control.shmq"), SLEEPERS, bytes(4))
        for _ in range(5):
            queue.put(b"silent")
        hold_until_killed(say)

    with shmq.open(tmp_path / "other") as other, Child(put_without_a_sound) as child:
        child.hear()
        thread = threading.Thread(target=lambda: got.append(sleep(queue, other)))
        thread.start()
        assert child.hear() == "ready"
        child.signal(signal.SIGSTOP)
        thread.join(DEADLINE / 2)
        assert got == [b"silent"]


def test_a_stopped_producer_is_not_a_dead_one(queue, path):
    """SIGSTOP inside a claim holds consumers, and is named in the error; SIGCONT, and its message comes."""

    def claim_then_commit(say):
        with queue.reserve(5) as slot:
            slot.buffer[:] = b"whole"
            os.kill(os.getpid(), signal.SIGSTOP)  # by itself: from outside, it may have gone on before
        hold_until_killed(say)

    consumer = queue.consumer("c")
    with Child(claim_then_commit) as child:
        until(lambda: os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)[0] != 0)
        with pytest.raises(
            shmq.Empty, match=rf"claimed by process {child.pid} .*, which is stopped, and not committed"
        ):
            consumer.take(timeout=0.5)
        assert states(path) == [CLAIMED]
        child.signal(signal.SIGCONT)
        assert consumer.take(timeout=DEADLINE) == b"whole"


def test_a1_a_claim_ends_by_commit_or_pad_and_everybody_agrees(queue, path):
    """
    Rule A1: a living producer loses its lock (somebody unmaps it). The consumer that finds its claim pads it: its
    commit is Fenced, so a put that returned can never be passed over. All consumers see the same.
    """

    def lose_the_lock(say):
        slot = queue.reserve(3)
        slot.buffer[:] = b"abc"
        lose_locks(f"{path}/control.shmq")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            slot.commit()
        except shmq.Fenced:
            os._exit(42)

    queue.producer()  # makes the first chunk
    with Child(lose_the_lock) as child:
        until(lambda: states(path) == [CLAIMED])
        until(lambda: os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)[0] != 0)
        queue.put(b"behind")
        assert queue.consumer("before").take(timeout=DEADLINE) == b"behind"
        assert states(path) == [PAD, DONE]
        child.signal(signal.SIGCONT)
        assert child.join() == 42
    assert queue.consumer("after").take_many(10, timeout=0) == [b"behind"]
    assert (queue.stats().padded, queue.stats().fenced) == (1, 1)


def test_who_closes_all_descriptors_loses_no_lock_and_can_still_tell_the_living_from_the_dead(queue, path):
    """As who daemonises does: a seat and a name are kept by mappings, and what is mapped needs none."""

    def close_all(say):
        consumer = queue.consumer("c")
        assert consumer.take() == b"first"
        slot = queue.reserve(3)
        os.closerange(3, 1 << 20)
        os.kill(os.getpid(), signal.SIGSTOP)
        slot.buffer[:] = b"abc"
        slot.commit()
        os._exit(42 if consumer.take() == b"abc" else 1)

    queue.put(b"first")
    with Child(close_all) as child:
        until(lambda: os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)[0] != 0)
        queue.put(b"behind")
        with pytest.raises(shmq.Busy):
            queue.consumer("c")
        with pytest.raises(
            shmq.Empty, match=rf"claimed by process {child.pid} .*, which is stopped, and not committed"
        ):
            queue.consumer("other", start=1).take(timeout=0)
        child.signal(signal.SIGCONT)
        assert child.join() == 42
    assert queue.consumer("after").take_many(10, timeout=0) == [b"first", b"abc", b"behind"]


def test_a7a_a_claim_of_ones_own_process_is_alive_by_definition(queue, path):
    """Rule A7a: a test through the descriptor that holds the lock says it is free; another thread must not pad us."""
    slot = queue.reserve(1)
    got = []

    def look():
        try:
            got.append(queue.consumer("c").take(timeout=0.05))
        except shmq.Empty as problem:
            got.append(problem)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert isinstance(got[0], shmq.Empty)
    assert states(path) == [CLAIMED]
    slot.commit()
    assert states(path) == [DONE]


def test_a7b_a_child_keeps_no_lock_and_takes_none_away(queue, path):
    """
    Rule A7b: a forked child has nothing that carries its parent's locks, neither the seat's nor a name's; its end frees
    neither.
    """
    consumer = queue.consumer("c")
    slot = queue.reserve(1)

    def openings_with_locks():
        found = []
        for fd in os.listdir("/proc/self/fd"):
            info = Path(f"/proc/self/fdinfo/{fd}")
            if info.exists() and "lock:" in info.read_text():
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return [name for name in found if "/chunks/" not in name] + kept_locks(path)  # a mapper's lock is its child's

    assert len(openings_with_locks()) >= 2
    assert in_child(openings_with_locks) == "[]"

    def judge():
        other = shmq.open(path)
        with pytest.raises(shmq.Empty):
            other.consumer("d").take(timeout=0)
        with pytest.raises(shmq.Busy):
            other.consumer("c")
        return "alive"

    assert in_child(judge) == "alive"
    assert states(path) == [CLAIMED]
    slot.commit()
    assert consumer.take(timeout=0) == b"\0"


def test_a7c_a_waiting_reader_does_not_make_a_dead_owner_look_alive(queue, path):
    """
    Rule A7c: somebody waits with a read lock on the slot's byte, and gets it when its owner dies. Asked with F_RDLCK
    the slot is free all the same, and the claim is padded.
    """

    def wait_for_the_byte(say):
        fd = os.open(Path(path, "control.shmq"), os.O_RDWR)
        say("waiting")
        fcntl.fcntl(fd, F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, LOCK_BASE + 1, 1, 0))
        hold_until_killed(say)

    consumer = queue.consumer("c")
    with Child(claim_and_stay, queue) as owner:
        owner.hear()
        queue.put(b"behind")
        with Child(wait_for_the_byte) as waiter:
            waiter.hear()
            owner.kill()
            assert waiter.hear() == "ready"  # it has the lock now
            assert consumer.take(timeout=DEADLINE) == b"behind"
    assert states(path) == [PAD, DONE]


def test_b12_the_next_tenant_buries_its_predecessors_claims_first(queue, path):
    """
    Rule B12: nobody has read the dead claim; the slot's next tenant pads it before it takes the slot under the next
    generation, so that no reused generation can make it look alive.
    """
    with Child(claim_and_stay, queue) as child:
        child.hear()
        child.kill()
    assert words(path)[0].owner == 1 << 11 | 1

    def put():
        queue.put(b"next tenant")
        return states(path)

    assert in_child(put) == str([PAD, DONE])
    assert words(path)[1].owner == 1 << 11 | 2


def seat_since(path, slot=1):
    """From which chunk on that seat's tenants may have claims open."""
    return peek(Path(path, "control.shmq"), SEATS + 64 * slot + SINCE)


@pytest.fixture
def long_chunks(monkeypatch):
    """Two messages are more than is looked through at an opening."""
    monkeypatch.setattr(membership, "_LITTLE", 4096 + 128)


def left_in_a_long_chunk(queue, path):
    """A claim that a killed process left open behind others; from which chunk on, as its seat says."""
    queue.put_many([b"in front"] * 3)
    with Child(claim_and_stay, queue) as child:
        child.hear()
        child.kill()
    assert words(path, -1)[-1].state == CLAIMED
    return seat_since(path)


def put_and_close(path):
    with shmq.open(path) as queue:
        queue.put(b"behind")


def test_a_dead_claim_in_a_long_chunk_is_left_to_whoever_meets_it(queue, path, long_chunks):
    """An opening after a kill does not walk through a long chunk: that cost 6 ms, and more where chunks are larger."""
    since = left_in_a_long_chunk(queue, path)
    in_child(put_and_close, path)
    assert [word.state for word in words(path, -1)][-2:] == [CLAIMED, DONE]
    assert seat_since(path) == since  # also after a tenant that left nothing itself, and closed
    consumer = queue.consumer("c")
    assert consumer.take_many(4, timeout=0) == [b"in front"] * 3 + [b"behind"]
    assert [word.state for word in words(path, -1)][-2:] == [PAD, DONE]


def test_each_256th_tenant_pads_what_was_left_in_long_chunks(queue, path, long_chunks):
    """Before the number of a generation comes again, and a claim of the last one to have it would seem to be alive."""
    left_in_a_long_chunk(queue, path)
    patch(Path(path, "control.shmq"), SEATS + 64, struct.pack("<I", 256))
    in_child(put_and_close, path)
    assert [word.state for word in words(path, -1)][-2:] == [PAD, DONE]
    assert seat_since(path) == NOTHING


def test_a_tenant_that_claims_in_later_chunks_goes_on_to_say_what_was_left(queue, path, long_chunks):
    """So that who buries finds it, however often it was passed on."""
    since = left_in_a_long_chunk(queue, path)

    def roll():
        with shmq.open(path) as other:
            for _ in range(4):
                other.put(bytes(200 << 10))
            return seat_since(path), len(chunk_files(path))

    later, chunks = ast.literal_eval(in_child(roll))
    assert chunks > 1
    assert later == since


def test_b12_generation_0_is_never_an_owner(make, path):
    """Rule B12: after 2,047 comes 1."""
    make().close()
    patch(Path(path, "control.shmq"), SEATS, (2047).to_bytes(4, "little"))
    make().put(b"x")
    assert words(path)[0].owner == 1


def test_a_consumer_in_another_pid_namespace_is_not_needed_to_see_a_death(queue, path):
    """A seat whose pid means nothing here is watched by its lock: its death wakes a sleeper all the same."""
    with Child(claim_and_stay, queue) as child:
        child.hear()
        queue.put(b"behind")
        patch(Path(path, "control.shmq"), SEATS + 64 + 4, struct.pack("<IQ", 0xFFFFFFFF, 12345))
        consumer = queue.consumer("c")
        got = []
        thread = threading.Thread(target=lambda: got.append(consumer.take(timeout=DEADLINE)))
        thread.start()
        until(lambda: asleep(path))
        time.sleep(0.05)
        child.kill()
        thread.join(DEADLINE)
    assert got == [b"behind"]


def another_member(joined, path):
    """One more at that queue, as another process would be."""
    fds = [os.open(f"{path}/control.shmq", os.O_RDWR) for _ in range(2)]
    try:
        return _native.Member(joined.control, *fds)
    finally:
        for fd in fds:
            os.close(fd)


def look_again(watched):
    watched.due = True
    watched.by.nudge()


def watched_processes(watched):
    """The pids of those whose death rings at that queue."""
    return {pid for (pid, _), life in list(watched.by.lives.items()) if watched in life.queues}


def test_who_was_looked_at_while_he_sat_down_is_not_polled_for_ever(path):
    """Its seat did not say yet which process it is: the watcher asked for its lock every 5 ms from then on."""
    with shmq.open(path) as queue:
        joined = queue._session.joined()
        joined.watch()
        watched = joined._watched
        other = another_member(joined, path)
        try:
            slot, *_ = other.lock()
            look_again(watched)
            until(lambda: slot in watched.unseen)
            other.join(os.getpid(), membership.pid_namespace(), membership.start_time(), boots.boot_tag(), 0)
            joined.watch()
            until(lambda: slot not in watched.unseen)
            assert os.getpid() in watched_processes(watched)
        finally:
            other.leave()


def test_a_seat_that_still_names_its_last_tenant_is_looked_at_again(path):
    """It lives, and has left: who watched it would never hear of the new one's death."""
    with shmq.open(path) as queue:
        joined = queue._session.joined()
        joined.watch()
        watched = joined._watched
        with Child(lambda say: (shmq.open(path).close(), say("left"), signal.pause())) as child:
            child.hear()
            other = another_member(joined, path)
            try:
                slot, *_ = other.lock()
                look_again(watched)
                until(lambda: watched.known.get(slot, (0, 0))[1] == child.pid)
                other.join(os.getpid(), membership.pid_namespace(), membership.start_time(), boots.boot_tag(), 0)
                joined.watch()
                until(lambda: watched.known[slot][1] == os.getpid())
                until(lambda: watched_processes(watched) == {child.pid, os.getpid()})
            finally:
                other.leave()


@pytest.mark.parametrize("kind", ["a wait", "an interval"])
def test_a_process_ends_that_closed_a_queue_before_what_had_waited_at_it(path, kind):
    """The last handle goes with the interpreter, whose daemon threads never come back: one was waited for, for ever."""
    waited = "c = queue.consumer('c')\ntry: c.get(timeout=0.05)\nexcept shmq.Empty: pass"
    kept = "p = queue.producer(); p.put(b'x')"
    durability = "PROCESS" if kind == "a wait" else "interval(0.01)"
    program = f"import shmq\nqueue = shmq.open({str(path)!r}, durability=shmq.Durability.{durability})\n"
    program += f"{waited if kind == 'a wait' else kept}\nqueue.close()\n"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---------------------------------------------------------------- one thread watches for all queues
def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "shmq-watcher"]


def watching_descriptors():
    links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sum("eventfd" in link or "pidfd" in link for link in links)


@pytest.fixture
def descriptors():
    """How many more watching descriptors there are than before: a library that an earlier test used may keep some."""
    gc.collect()  # a queue that an earlier test has left in a cycle may be watched
    for left in list(watcher._watcher.queues) if watcher._watcher else ():
        left.stop()  # what an earlier test holds open, too: its thread would be counted before and not after
    before = watching_descriptors()
    return lambda: watching_descriptors() - before


@pytest.fixture
def three(tmp_path, descriptors):
    """Queues at which this process has slept, and another one has a seat: (that one, the queues)."""
    places = [str(tmp_path / f"q{number}") for number in range(3)]
    with contextlib.ExitStack() as stack:
        queues = [stack.enter_context(shmq.open(place)) for place in places]
        child = stack.enter_context(Child(lambda say: (open_all(places), say("here"), signal.pause())))
        child.hear()
        for queue in queues:
            queue._session.joined().watch()
        yield child, queues


opened = []


def open_all(places):
    opened.extend(shmq.open(place) for place in places)
    for queue in opened:
        queue.reserve(8)  # which whoever reads it waits for


def test_one_thread_watches_for_all_queues_and_each_process_once(three, descriptors):
    child, queues = three
    watched = [queue._session.joined()._watched for queue in queues]
    until(lambda: all(child.pid in watched_processes(each) for each in watched))
    assert len(watchers()) == 1
    assert len({each.by for each in watched}) == 1
    until(lambda: descriptors() == 2)  # what wakes the thread, and the process


def test_a_death_is_told_at_each_queue_and_not_at_one_that_was_closed(three, descriptors):
    child, queues = three
    until(lambda: all(child.pid in watched_processes(queue._session.joined()._watched) for queue in queues))
    queues[0].close()
    before = [peek(Path(queue.path, "control.shmq"), BELL) for queue in queues]
    child.kill()
    for queue, bell in zip(queues[1:], before[1:], strict=True):
        until(lambda queue=queue, bell=bell: peek(Path(queue.path, "control.shmq"), BELL) != bell)
    assert peek(Path(queues[0].path, "control.shmq"), BELL) == before[0]
    assert descriptors() == 1


def test_the_thread_ends_with_the_last_queue_and_another_one_begins_with_the_next(three, descriptors):
    child, queues = three
    watched = queues[0]._session.joined()._watched
    until(lambda: child.pid in watched_processes(watched))
    for queue in queues[:2]:
        queue.close()
    assert len(watchers()) == 1
    assert watched.by.queues == {queues[2]._session.joined()._watched}
    queues[2].close()
    assert watchers() == []
    assert descriptors() == 0
    with shmq.open(queues[0].path) as again:
        again._session.joined().watch()
        until(lambda: child.pid in watched_processes(again._session.joined()._watched))
        assert len(watchers()) == 1


def test_a_forked_child_has_a_thread_of_its_own(three):
    child, queues = three
    until(lambda: child.pid in watched_processes(queues[0]._session.joined()._watched))

    def watch():
        joined = queues[0]._session.joined()
        joined.watch()
        until(lambda: {child.pid, os.getppid()} <= watched_processes(joined._watched))
        return len(watchers())

    assert in_child(watch) == "1"
    assert len(watchers()) == 1
