"""`alarm` and `fileno`: who cannot sleep is told when to look."""

from __future__ import annotations

import contextlib
import os
import select
import threading

import pytest
from support import Child, hold_until_killed, in_child, readable, run_python, until

import shmq
from shmq import alarm as alarms

LONG = 60.0
KINDS = [{}, {"group": True}, {"ack": "explicit"}]


@pytest.fixture(params=KINDS, ids=["auto", "group", "lone"])
def consumer(queue, request):
    return queue.consumer("c", **request.param)


@pytest.fixture
def only_rung(monkeypatch):
    """Nobody is called but for a reason."""
    monkeypatch.setattr(alarms, "_LOOK_NS", 10**15)
    yield
    monkeypatch.undo()
    for sleeper in alarms._sleepers:
        sleeper._look_ns = 0


class Bell:
    """An alarm of a handle, and whether it called."""

    def __init__(self, handle) -> None:
        self.rang = threading.Event()
        self.alarm = handle.alarm(self.rang.set)

    def arm(self, look, nothing=shmq.Empty) -> None:
        self.rang.clear()
        self.alarm.begin()
        with pytest.raises(nothing):
            look(timeout=0)
        assert self.alarm.arm()

    def calls(self) -> bool:
        return self.rang.wait(LONG)


def armed() -> int:
    return sum(each is not None for sleeper in alarms._sleepers for each in sleeper._armed)


def test_a_put_calls_once_and_takes_nothing(queue, consumer, only_rung):
    bell = Bell(consumer)
    for turn in (b"1", b"2"):
        bell.arm(consumer.take)
        assert not bell.rang.is_set()
        queue.put(turn)
        assert bell.calls()
        assert armed() == 0
        assert consumer.take(timeout=0) == turn


def test_a_put_of_another_process_calls(queue, consumer, only_rung):
    bell = Bell(consumer)
    bell.arm(consumer.take)
    assert in_child(lambda: queue.put(b"x")) == "0"
    assert bell.calls()


def test_a_put_between_the_last_look_and_the_arming_calls(queue, consumer, only_rung):
    bell = Bell(consumer)
    bell.alarm.begin()
    with pytest.raises(shmq.Empty):
        consumer.take(timeout=0)
    queue.put(b"x")
    assert bell.alarm.arm()
    assert bell.calls()


def test_what_is_disarmed_does_not_call(queue, consumer, only_rung):
    bell, other = Bell(consumer), Bell(consumer)
    bell.arm(consumer.take)
    other.arm(consumer.take)
    bell.alarm.disarm()
    bell.alarm.disarm()
    queue.put(b"x")
    assert other.calls()
    assert not bell.rang.is_set()
    with pytest.raises(RuntimeError, match="begin"):
        bell.alarm.arm()


def test_what_is_delayed_calls_when_it_is_due(queue, consumer, only_rung):
    bell = Bell(consumer)
    queue.put(b"x", delay=0.2)
    bell.arm(consumer.take)
    assert bell.calls()
    assert consumer.take(timeout=LONG) == b"x"


def test_what_a_killed_member_held_calls(queue, only_rung):
    queue.consumer("g", group=True, ack="explicit")

    def hold(say):
        member = queue.consumer("g", group=True, ack="explicit")
        member.get()
        hold_until_killed(say)

    with Child(hold) as child:
        queue.put(b"x")
        assert child.hear() == "ready"
        with queue.consumer("g", group=True, ack="explicit") as member:
            bell = Bell(member)
            bell.arm(member.get)
            child.kill()
            assert bell.calls()
            assert member.get(timeout=LONG).attempts == 2


def test_an_end_calls(queue, consumer, only_rung):
    bell = Bell(consumer)
    bell.arm(consumer.take)
    queue.shutdown()
    assert bell.calls()
    with pytest.raises(shmq.ShutDown):
        consumer.take(timeout=0)


def test_two_who_hold_messages_and_wait_are_told_of_the_end(queue, only_rung):
    """Each waits for what the other holds: both say so while they are armed."""
    ready = [queue.consumer("g", group=True, ack="explicit") for _ in range(2)]
    queue.put_many([b"1", b"2"])
    assert [each.get().index for each in ready] == [0, 1]
    queue.shutdown()
    bells = [Bell(each) for each in ready]
    for bell, each in zip(bells, ready, strict=True):
        bell.alarm.begin()
        with pytest.raises(shmq.Empty):
            each.get(timeout=0)
    assert bells[0].alarm.arm()
    assert not bells[1].alarm.arm(), "both rest: there is an end to be told of"
    with pytest.raises(shmq.ShutDown):
        ready[1].get(timeout=0)


def test_a_close_calls(queue, consumer, only_rung):
    bell = Bell(consumer)
    bell.arm(consumer.take)
    consumer.close()
    assert bell.calls()
    with pytest.raises(shmq.Closed):
        bell.alarm.begin()


def test_room_calls(make, path, only_rung):
    queue = make(path, max_messages=1)
    consumer, producer = queue.consumer("c"), queue.producer()
    producer.put(b"1")
    bell = Bell(producer)
    bell.arm(lambda timeout: producer.put(b"2", timeout=timeout), nothing=shmq.Full)
    assert not bell.rang.is_set()
    consumer.take()
    assert bell.calls()
    producer.put(b"2", timeout=0)


@pytest.mark.parametrize("durability", [shmq.Durability.SYNC, shmq.Durability.PROCESS])
def test_a_producer_with_an_alarm_does_not_wait_for_the_disk(make, durability):
    """It is a loop's, and would stop all of it; another handle leads the sync, also with no time to wait."""
    with make(durability=durability) as queue, queue.producer() as mine:
        mine.alarm(list)
        if durability == shmq.Durability.SYNC:
            with pytest.raises(shmq.SyncPending) as pending:
                mine.put(b"0", timeout=0)
            assert (pending.value.index, queue.durable_index) == (0, 0)
        else:
            mine.put(b"0", timeout=0)
        assert queue.put(b"1", timeout=0) == 1
        assert queue.durable_index == 2 or durability != shmq.Durability.SYNC


def test_room_that_a_dropped_name_leaves_is_found_without_a_wait(make, path):
    queue = make(path, max_messages=1)
    queue.consumer("c").close()
    consumer = queue.consumer("d")
    queue.put(b"1")
    consumer.take()
    with pytest.raises(shmq.Full):
        queue.put(b"2", timeout=0)
    in_child(lambda: queue.drop_consumer("c"))
    queue.put(b"2", timeout=0)


def test_who_waits_long_is_called_anyway(consumer, monkeypatch):
    """Somebody may be stopped on its way to ring."""
    monkeypatch.setattr(alarms, "_LOOK_NS", 10**7)
    bell = Bell(consumer)
    bell.arm(consumer.take)
    assert bell.calls()


@pytest.mark.parametrize("kernel", ["can", "cannot"])
def test_more_than_one_sleep_can_watch(make, tmp_path, only_rung, monkeypatch, kernel):
    """Also where the kernel has no sleep for several."""
    if kernel == "cannot":
        monkeypatch.setattr("shmq._native.Bells.sleep", lambda *_: shmq._native.EMPTY)
    queues = [make(str(tmp_path / name)) for name in "ab"]
    consumers = [queue.consumer("c") for queue in queues]
    bells = [Bell(consumers[turn % 2]) for turn in range(300)]
    for turn, bell in enumerate(bells):
        bell.arm(consumers[turn % 2].take)
    assert armed() == 300
    assert len(alarms._sleepers) >= 3
    queues[1].put(b"x")
    assert all(bell.calls() for bell in bells[1::2])
    assert not any(bell.rang.is_set() for bell in bells[::2])
    for bell in bells:
        bell.alarm.disarm()
    assert armed() == 0


def test_the_thread_ends_when_nobody_waits(queue, consumer, monkeypatch):
    monkeypatch.setattr(alarms, "_IDLE_NS", 10**7)
    bell = Bell(consumer)
    for _ in range(3):
        bell.arm(consumer.take)
        bell.alarm.disarm()
        bell.arm(consumer.take)
        queue.put(b"x")
        assert bell.calls()
        consumer.take(timeout=0)
        until(lambda: not alarms._sleepers)
    until(lambda: not any(thread.name == "shmq-sleeper" for thread in threading.enumerate()))


def test_a_forked_child_knows_nothing_of_its_parents_alarms(queue, only_rung):
    consumer = queue.consumer("c")
    bell = Bell(consumer)
    bell.arm(consumer.take)
    descriptor = consumer.fileno()
    assert not drained(consumer)

    def child():
        try:
            consumer.alarm(print).begin()
        except shmq.Forked:
            bell.alarm.disarm()
            consumer.close()
            return queue.put(b"x")

    assert in_child(child) == "0"
    assert bell.calls()
    assert readable(descriptor, LONG)
    assert consumer.take(timeout=0) == b"x"


def test_an_interpreter_ends_with_an_alarm_armed():
    """And whatever it would have called."""
    code = "import shmq; q = shmq.open(None); c = q.consumer('c'); a = c.alarm(print); a.begin(); a.arm(); c.fileno()"
    assert run_python(code) == ""


# ---------------------------------------------------------------- fileno
def drained(consumer) -> bool:
    """Take what is there; whether the descriptor says all the same that there is something: a death, say."""
    with contextlib.suppress(shmq.Empty):
        while True:
            consumer.take(timeout=0)
    return readable(consumer.fileno(), 0)


def test_a_descriptor_is_readable_until_a_get_found_nothing(queue, consumer, only_rung):
    assert readable(consumer.fileno(), 0), "there may be something"
    until(lambda: not drained(consumer))
    for turn in range(3):
        in_child(lambda: queue.put_many([b"x", b"y"]))
        assert readable(consumer.fileno(), LONG)
        consumer.take(timeout=0)
        assert readable(consumer.fileno(), 0), "level-triggered"
        if turn % 2:
            assert consumer.take_many(10, timeout=0) == [b"y"]
        until(lambda: not drained(consumer))


def test_a_descriptor_says_what_no_bell_does(queue, consumer, only_rung):
    consumer.fileno()
    queue.put(b"x", delay=0.2)
    until(lambda: not drained(consumer))
    assert readable(consumer.fileno(), LONG)
    assert consumer.take(timeout=LONG) == b"x"
    until(lambda: not drained(consumer))
    queue.shutdown()
    assert readable(consumer.fileno(), LONG)


def test_a_descriptor_ends_with_its_consumer(consumer):
    descriptor = consumer.fileno()
    assert consumer.fileno() == descriptor
    consumer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.eventfd_read(descriptor)
    with pytest.raises(shmq.Closed):
        consumer.fileno()


def test_a_consumer_is_what_a_selector_takes(queue, consumer):
    with select.epoll() as poll:
        poll.register(consumer, select.EPOLLIN)
        queue.put(b"x")
        assert poll.poll(LONG)


def test_a_members_descriptor_is_not_its_childs(queue, only_rung):
    member = queue.consumer("g", group=True)
    member.fileno()
    until(lambda: not drained(member))

    def child():
        found = readable(member.fileno(), 0), drained(member)
        queue.put(b"x")
        return found, member.take(timeout=0)

    assert in_child(child) == "((True, False), b'x')"
    until(lambda: not drained(member))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_reader_that_follows_is_told_likewise(queue, path, only_rung, read_only):
    with shmq.open(path, read_only=read_only) as mine, mine.reader(follow=True, stop=2) as reader:
        bell = Bell(reader)
        for turn in (b"1", b"2"):
            bell.arm(reader.get)
            queue.put(turn)
            assert bell.calls()
            assert reader.get(timeout=LONG).payload == turn
        with pytest.raises(shmq.ShutDown, match="stop is reached"):
            reader.get(timeout=0)
        assert readable(reader.fileno(), 0)
    with pytest.raises(shmq.Closed):
        reader.get(timeout=0)
    with pytest.raises(ValueError, match="follows"):
        queue.reader().get()


def test_a_readers_descriptor_is_readable_until_a_get_found_nothing(queue, only_rung):
    reader = queue.reader(follow=True)
    descriptor = reader.fileno()
    for turn in range(3):
        with pytest.raises(shmq.Empty):
            reader.get(timeout=0)
        assert not readable(descriptor, 0)
        queue.put(b"x")
        assert readable(descriptor, LONG)
        assert reader.get(timeout=0).index == turn


@pytest.mark.parametrize("problem", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_found_an_alarm_that_raised_ended_the_waits_of_all_others(queue, caplog, problem):
    """The thread that sleeps for all of them ended with it."""

    def call():
        raise problem("in an alarm")

    with queue.consumer("a") as one, queue.consumer("b") as other, queue.consumer("c") as third:
        raising, bell = one.alarm(call), Bell(other)
        bell.arm(other.take)
        raising.begin()
        with pytest.raises(shmq.Empty):
            one.take(timeout=0)
        assert raising.arm()
        fd = third.fileno()
        with pytest.raises(shmq.Empty):
            third.take(timeout=0)
        queue.put(b"x")
        assert bell.calls()
        assert select.select([fd], [], [], LONG)[0] == [fd]
        until(lambda: "has raised" in caplog.text)
        assert "in an alarm" in caplog.text


def test_found_what_was_closed_was_written_to_when_its_number_was_somebody_elses(queue, tmp_path):
    """A get drained, and an alarm rang, by the number of a descriptor that another thread had closed."""
    place = tmp_path / "file"
    place.write_bytes(bytes(64))
    for _ in range(300):
        consumer = queue.consumer("a")
        consumer.fileno()

        def look(consumer=consumer):
            with contextlib.suppress(shmq.Closed, shmq.Empty):
                while True:
                    with contextlib.suppress(shmq.Empty):
                        consumer.get(timeout=0)

        thread = threading.Thread(target=look)
        thread.start()
        consumer.close()
        files = [os.open(place, os.O_RDWR) for _ in range(4)]
        thread.join()
        for file in files:
            assert os.lseek(file, 0, os.SEEK_CUR) == 0, "somebody has read or written by it"
            os.close(file)
    assert place.read_bytes() == bytes(64)
