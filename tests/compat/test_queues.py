"""Queue, JoinableQueue and SimpleQueue: what multiprocessing's do, across all ways to start a process."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue as stdlib
import random
import signal
import textwrap
import threading
import time
from pathlib import Path

import numpy
import pytest
from support import DEADLINE, Child, in_child, in_tiny, run_python, until

import shmq
from shmq.compat import JoinableQueue, Queue, SimpleQueue

METHODS = ["fork", "spawn", "forkserver"]
KINDS = [Queue, JoinableQueue, SimpleQueue]


@pytest.fixture(params=KINDS)
def anyqueue(request):
    made = request.param()
    yield made
    made.close()


def started(method, work, *arguments):
    process = multiprocessing.get_context(method).Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def joined(*processes) -> None:
    for each in processes:
        each.join(DEADLINE)
        assert each.exitcode == 0


# ---------------------------------------------------------------- one process
def test_what_is_put_is_got_in_order(anyqueue):
    things = [1, "two", {"three": [3.0, None]}, (4,), b"5", bytearray(b"6"), numpy.arange(3).tolist()]
    for each in things:
        anyqueue.put(each)
    assert [anyqueue.get() for _ in things] == things
    assert anyqueue.empty()


def test_sizes_are_exact():
    mine = Queue(2)
    assert (mine.qsize(), mine.empty(), mine.full()) == (0, True, False)
    mine.put(1)
    mine.put(2)
    assert (mine.qsize(), mine.empty(), mine.full()) == (2, False, True)
    mine.get()
    assert (mine.qsize(), mine.full()) == (1, False)
    assert Queue(0).full() is False
    assert Queue(-1).full() is False


@pytest.mark.parametrize("late", [{"block": False}, {"timeout": 0.01}, {"timeout": -5}, {"timeout": 0}])
def test_what_comes_too_late_is_what_the_standard_library_raises(late):
    mine = Queue(1)
    with pytest.raises(stdlib.Empty):
        mine.get(**late)
    mine.put(1)
    with pytest.raises(stdlib.Full):
        mine.put(2, **late)
    with pytest.raises(stdlib.Full):
        mine.put_nowait(2)
    assert mine.get_nowait() == 1
    with pytest.raises(stdlib.Empty):
        mine.get_nowait()


def test_a_closed_one_says_so_and_the_other_processes_do_not_notice(anyqueue):
    place = pickle.dumps(anyqueue)
    other = pickle.loads(place)  # as another process has it
    anyqueue.put(1)
    anyqueue.close()
    anyqueue.close()
    with pytest.raises(ValueError, match="is closed"):
        anyqueue.put(1)
    with pytest.raises(ValueError, match="is closed"):
        anyqueue.get()
    with pytest.raises(ValueError, match="is closed"):
        anyqueue.empty()
    assert other.get() == 1
    other.close()


def test_a_close_ends_the_get_of_another_thread(anyqueue):
    raised = []

    def wait():
        try:
            anyqueue.get()
        except ValueError as problem:
            raised.append(str(problem))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    anyqueue.close()
    thread.join(DEADLINE)
    assert len(raised) == 1
    assert raised[0].endswith("is closed")


def test_threads_of_multiprocessing_that_there_are_not():
    mine = Queue()
    mine.cancel_join_thread()
    with pytest.raises(AssertionError, match="not closed"):
        mine.join_thread()
    mine.close()
    mine.join_thread()


def test_what_cannot_be_pickled_is_told_by_the_put_and_nothing_is_put(anyqueue):
    with pytest.raises(TypeError) as told:
        anyqueue.put({"cb": [threading.Lock()]})
    assert any('msg["cb"][0]' in note for note in told.value.__notes__)
    assert anyqueue.empty()
    if isinstance(anyqueue, JoinableQueue):
        assert anyqueue.join(timeout=0)


def test_arrays_come_back_as_ones_own(anyqueue):
    array = numpy.arange(100_000)
    anyqueue.put({"a": array, "b": b"x" * 10_000})
    found = anyqueue.get()
    found["a"] += 1
    assert (found["a"] == array + 1).all()
    assert found["b"] == b"x" * 10_000


def test_views_are_read_only_and_outlast_the_queue():
    mine = Queue(views=True)
    array = numpy.arange(100_000)
    mine.put(array)
    mine.put([1])
    found = mine.get()
    assert mine.get() == [1]
    mine.close()
    assert (found == array).all()
    with pytest.raises(ValueError, match="read-only"):
        found += 1


def test_many_large_ones_come_and_go_in_little_memory():
    mine = Queue(4)
    block = numpy.zeros(1 << 20, "u1")
    for turn in range(200):
        block[:] = turn
        mine.put(block)
        assert mine.get()[12345] == turn % 256
    assert sum(file.stat().st_size for file in Path(mine._queue.path).rglob("*")) < 64 << 20


# ---------------------------------------------------------------- shutdown
def test_after_a_shutdown_puts_are_refused_and_gets_drain():
    mine = Queue()
    mine.put(1)
    mine.shutdown()
    with pytest.raises(shmq.ShutDown):
        mine.put(2)
    assert mine.get() == 1
    with pytest.raises(getattr(stdlib, "ShutDown", shmq.ShutDown)):
        mine.get()


@pytest.mark.parametrize("kind", [Queue, JoinableQueue])
def test_an_immediate_shutdown_discards_what_is_left(kind):
    mine = kind()
    mine.put(1)
    mine.put(2)
    if kind is JoinableQueue:
        assert mine.get() == 1
    mine.shutdown(immediate=True)
    with pytest.raises(shmq.ShutDown):
        mine.get()
    assert mine.qsize() == 0
    if kind is JoinableQueue:
        assert mine.join(timeout=0)
        mine.task_done()  # of what was got before


def test_a_shutdown_wakes_who_waits_in_other_processes():
    mine = Queue()
    process = started("fork", wait_for_the_end, mine)
    time.sleep(0.1)
    mine.shutdown()
    joined(process)


def wait_for_the_end(mine):
    with pytest.raises(shmq.ShutDown):
        mine.get()


# ---------------------------------------------------------------- joining
def test_join_waits_for_what_is_not_done():
    mine = JoinableQueue()
    assert mine.join(timeout=0)
    for each in range(3):
        mine.put(each)
    assert not mine.join(timeout=0.01)
    for _ in range(3):
        mine.get()
        assert not mine.join(timeout=0)
        mine.task_done()
    assert mine.join()
    with pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
        mine.task_done()


def test_a_put_that_is_refused_is_nothing_to_be_done():
    mine = JoinableQueue(1)
    mine.put(1)
    with pytest.raises(stdlib.Full):
        mine.put(2, timeout=0)
    mine.get()
    mine.task_done()
    assert mine.join(timeout=0)


@pytest.mark.parametrize("method", METHODS)
def test_what_others_do_is_joined(method):
    mine = JoinableQueue()
    workers = [started(method, do_until_none, mine) for _ in range(2)]
    for each in range(100):
        mine.put(each)
    assert mine.join(timeout=DEADLINE)
    assert mine.empty()
    for _ in workers:
        mine.put(None)
    joined(*workers)


def do_until_none(mine):
    while mine.get() is not None:
        mine.task_done()


def test_a_join_is_woken_and_does_not_look_now_and_then(monkeypatch):
    """Who hears nothing looks after half a second: with a year instead, only who is woken comes back."""
    monkeypatch.setattr("shmq.alarm._LOOK_NS", 365 * 86_400 * 10**9)
    mine = JoinableQueue()
    mine.put(1)
    thread = threading.Thread(target=mine.join, daemon=True)
    thread.start()
    time.sleep(1)  # it is asleep by then, and whoever slept by the old rule has looked
    mine.get()
    mine.task_done()
    thread.join(DEADLINE)
    assert not thread.is_alive()


# ---------------------------------------------------------------- processes
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_crosses_by_whatever_start_method(kind, method):
    there, back = kind(), kind()
    process = started(method, double, there, back)
    for each in range(50):
        there.put(each)
    assert [back.get() for _ in range(50)] == [2 * each for each in range(50)]
    joined(process)


def double(there, back):
    for _ in range(50):
        back.put(2 * there.get())


@pytest.mark.parametrize("method", METHODS)
def test_a_queue_that_its_maker_forgot_waits_for_the_child(method):
    """Process(args=(Queue(),)).start() is all that has it; multiprocessing loses it, issue 94765."""
    back = SimpleQueue()
    process = started(method, tell_of_late, forgotten(), back)
    assert back.get() == ["kept", "too"]
    joined(process)


@pytest.mark.parametrize("method", METHODS)
def test_a_queue_that_its_maker_closed_waits_for_the_child(method):
    back, mine = SimpleQueue(), forgotten()
    process = started(method, tell_of_late, mine, back)
    mine.close()
    assert back.get() == ["kept", "too"]
    joined(process)
    until(lambda: (shmq.gc(), not Path(mine._queue.path).exists())[1])  # it ends without saying so, its locks last


def forgotten():
    mine = Queue()
    mine.put("kept")
    mine.put("too")
    return mine


def tell_of_late(mine, back):
    back.put([mine.get(timeout=1), mine.get(timeout=1)])


def test_what_is_pickled_otherwise_is_a_name_and_says_when_it_is_gone():
    mine = Queue()
    place = pickle.dumps(mine)
    assert len(place) < 1000
    mine.close()
    with pytest.raises(shmq.NotFound, match="ends with its last user"):
        pickle.loads(place)


def test_a_child_that_is_forked_while_others_put_goes_on():
    mine = Queue()
    mine.put(0)
    assert mine.get() == 0
    child = started("fork", put_range, mine, 1, 50)
    assert sorted(mine.get() for _ in range(49)) == list(range(1, 50))
    joined(child)


def put_range(mine, begin, end):
    for each in range(begin, end):
        mine.put(each)


def test_many_of_them_leave_nothing_behind():
    code = """
        import os, sys
        from shmq.compat import Queue, JoinableQueue
        several = [Queue() for _ in range(50)] + [JoinableQueue() for _ in range(10)]
        for each in several:
            each.put(1)
            each.get()
        places = [each._queue.path for each in several]
        print(all(map(os.path.isdir, places)))
        del several, each
        print(sum(map(os.path.exists, places)))
    """
    assert run_python(textwrap.dedent(code)) == "True\n0\n"


# ---------------------------------------------------------------- deaths and stops
KILLS = 200


def test_whoever_is_killed_keeps_nobody_from_putting_or_getting():
    """What a killed getter had just been handed is gone, one object each; nothing else is, and nothing comes twice."""
    mine, told = Queue(64), Queue()
    generator = random.Random(7)
    children: dict[int, Child] = {}
    getters_killed = 0
    for turn in range(KILLS):
        for number in {0, 1, 2, 3} - children.keys():
            children[number] = Child(put_for_ever if number < 2 else pass_on_for_ever, mine, told, (turn, number))
            children[number].hear()
        time.sleep(generator.random() * 0.005)
        victim = generator.randrange(4)
        children.pop(victim).kill()
        getters_killed += victim >= 2
    for number, each in children.items():
        each.kill()
        getters_killed += number >= 2
    found = drained(told) + drained(mine)
    assert len(set(found)) == len(found), "each once"
    last: dict[object, int] = {}
    for who, number in found:
        last[who] = max(last.get(who, 0), number)
    assert len(last) > 20
    missing = sum(number + 1 for number in last.values()) - len(found)
    assert 0 <= missing <= getters_killed
    mine.put(("after", 0), timeout=DEADLINE)
    assert mine.get(timeout=DEADLINE) == ("after", 0)


def drained(some) -> list:
    found = []
    while True:
        try:
            found.append(some.get_nowait())
        except stdlib.Empty:
            return found


def put_for_ever(say, mine, told, who):
    say("begun")
    number = 0
    while True:
        mine.put((who, number))
        number += 1


def pass_on_for_ever(say, mine, told, who):
    say("begun")
    while True:
        told.put(mine.get())


def test_ctrl_c_ends_a_get_and_a_put_and_nothing_is_lost():
    mine = Queue(1)
    with Child(wait_and_tell, mine) as child:
        child.hear()
        time.sleep(0.1)
        child.signal(signal.SIGINT)
        assert child.hear() == "KeyboardInterrupt 0"
    mine.put(1)
    with Child(put_and_tell, mine) as child:
        child.hear()
        time.sleep(0.1)
        child.signal(signal.SIGINT)
        assert child.hear() == "KeyboardInterrupt"
    assert mine.get() == 1
    assert mine.empty()


def wait_and_tell(say, mine):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say("waiting")
    try:
        mine.get()
    except KeyboardInterrupt:
        say(f"KeyboardInterrupt {mine.qsize()}")


def put_and_tell(say, mine):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say("waiting")
    try:
        mine.put(2)
    except KeyboardInterrupt:
        say("KeyboardInterrupt")


def test_an_interpreter_ends_in_the_middle():
    code = """
import threading
from shmq.compat import Queue
q = Queue()
threading.Thread(target=q.get, daemon=True).start()
q2 = Queue(1)
q2.put(1)
threading.Thread(target=q2.put, args=(2,), daemon=True).start()
print("over")
"""
    assert run_python(code) == "over\n"


def test_a_damaged_payload_is_told():
    mine = Queue()
    mine._queue.put(b"\x00nothing")
    with pytest.raises(shmq.Corrupt, match="neither a pickle nor a frame"):
        mine.get()
    assert in_child(mine.empty) == "True"


def test_a_full_dev_shm_is_waited_for_while_others_take_and_told_of_when_nobody_can():
    """A program may fill its queue before it starts its workers."""
    said = in_tiny(
        """
import multiprocessing, queue, time
from shmq.compat import Queue
q, block = Queue(), bytes(1 << 20)
n = 0
try:
    while True:
        q.put(block)
        n += 1
except shmq.DiskFull as problem:
    print(n >= 4, "--shm-size" in str(problem))
try:
    q.put(block, False)
except queue.Full:
    print(True)

def take():
    time.sleep(0.3)
    for _ in range(n):
        q.get()

child = multiprocessing.get_context("fork").Process(target=take)
child.start()
while q._queue.stats().participants < 2 and child.is_alive():
    time.sleep(0.01)
q.put(block)
child.join()
print(q.get() == block and q.empty())
""",
        "12m",
    )
    assert said.split() == ["True"] * 4


def test_found_a_queue_that_nobody_has_any_more_waited_for_the_collector():
    """A producer and its chain knew each other; multiprocessing's queues go at once."""
    code = """
        import gc, os, shmq
        gc.disable()
        for kind in (shmq.compat.Queue, lambda: shmq.open(None)):
            mine = kind()
            mine.put(b"x")
            path = getattr(mine, "_queue", mine).path
            del mine
            print(os.path.exists(path))
    """
    assert run_python(textwrap.dedent(code)) == "False\nFalse\n"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_the_short_way_comes_back_as_what_is_put_the_long_way(kind):
    """Small and large by turns, of usual kinds and others; what only multiprocessing pickles; what nobody can."""
    large = {"array": bytearray(100_000), "text": "x" * 10_000}
    receive, send = multiprocessing.Pipe(duplex=False)
    things = [
        {"id": 7},
        large,
        {"id": 8},
        large,
        [1, 2.5, None, "x", b"y"],
        (True,),
        "t",
        1 << 200,
        {1, 2},
        {"small": "again"},
    ]
    with contextlib.closing(kind()) as queue:
        for thing in things:
            queue.put(thing)
        queue.put([send])
        with pytest.raises(TypeError, match="cannot pickle") as raised:
            queue.put({"cb": [threading.Lock()]})
        assert raised.value.__notes__ == ['msg["cb"][0] cannot be pickled: _thread.lock']
        queue.put("last")
        assert [queue.get() for _ in things] == things
        (came,) = queue.get()
        assert came.fileno() != send.fileno()  # one of its own, and not the number of somebody else's
        came.send("through")
        assert receive.recv() == "through"
        assert queue.get() == "last"
    with pytest.raises(ValueError, match="is closed"):
        queue.put({"id": 9})
    with pytest.raises(ValueError, match="is closed"):
        queue.get()
