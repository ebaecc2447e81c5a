"""put = queue.put, taken before the queue has put anything: it becomes the built-in, and says what the method says."""

from __future__ import annotations

import gc
import inspect
import pickle
import sys
import threading
import weakref

import pytest
from support import in_child

import shmq


def lines_of_python(call):
    """How many functions in Python *call*() enters."""
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(entered) - 1  # itself


def test_found_a_put_that_was_taken_early_ran_in_python_for_ever(queue):
    """`put = queue.put` ahead of a loop cost each put three times what it costs behind the first one."""
    put = queue.put
    assert put(b"0") == 0
    assert lines_of_python(lambda: put(b"1")) == 0
    assert lines_of_python(lambda: queue.put(b"2")) == 0
    assert put(b"3", key=b"k", type=7) == 3
    assert [bytes(message.payload) for message in queue.reader(start=0)] == [b"0", b"1", b"2", b"3"]


def test_it_finds_the_producer_that_another_put_has_made(queue):
    put = queue.put
    queue.put(b"0")
    assert put(b"1") == 1
    assert lines_of_python(lambda: put(b"2")) == 0


@pytest.mark.parametrize("first", [False, True], ids=["at its first call", "later"])
@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((b"x", False), {}), ((b"x",), {"block": False}), ((1,), {}), ((b"x",), {"key": 1})]
)
def test_it_refuses_what_the_method_refuses(queue, given, named, first):
    put = queue.put
    if first:
        put(b"0")
    with pytest.raises(TypeError) as early:
        put(*given, **named)
    queue.put(b"1")
    with pytest.raises(TypeError) as late:
        queue.put(*given, **named)
    assert str(early.value).replace("Queue.", "").replace("Producer.", "") == str(late.value).replace("Producer.", "")


def test_it_is_over_when_the_queue_is_closed(make):
    queue = make()
    used, unused = queue.put, queue.put
    used(b"0")
    queue.close()
    for put in (used, unused):
        with pytest.raises(shmq.Closed):
            put(b"1")


def test_it_keeps_its_queue_and_no_circle_does(path):
    gc.collect()
    gc.disable()
    try:
        queue = shmq.open(path)
        put, known = queue.put, weakref.ref(queue)
        put(b"0")
        del queue
        assert put(b"1") == 1
        assert known() is not None
        del put
        assert known() is None
    finally:
        gc.enable()


def test_it_crosses_to_another_process(queue):
    put = pickle.loads(pickle.dumps(queue.put))
    assert put(b"0") == 0
    early = queue.put
    assert in_child(lambda: early(b"1")) == "1"
    assert early(b"2") == 2


def test_threads_that_make_its_first_call_at_once_all_put(queue):
    put, begin = queue.put, threading.Barrier(8)

    def work():
        begin.wait()
        for _ in range(200):
            put(b"x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(queue) == 1600


def test_the_class_has_the_method(queue):
    assert inspect.isfunction(shmq.Queue.put)
    assert "Append *payload*" in shmq.Queue.put.__doc__
    assert "payload" in inspect.signature(queue.put).parameters
    assert shmq.Queue.put(queue, b"0") == 0
