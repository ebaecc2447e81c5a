"""The door for programs that link nothing: a POSIX message queue."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest
from brokers import contents
from support import until

import shmq
from shmq import bridge

posix_ipc = pytest.importorskip("posix_ipc")


@pytest.fixture
def name(request):
    made = f"/shmq-test-{os.getpid()}-{abs(hash(request.node.name))}"
    try:
        posix_ipc.MessageQueue(made, posix_ipc.O_CREX).close()
    except OSError as problem:
        pytest.skip(f"this system has no POSIX message queues: {problem}")
    yield made
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_message_queue(made)


@pytest.fixture
def door(name):
    """What a program has that links nothing of ours."""
    opened = posix_ipc.MessageQueue(name)
    yield opened
    opened.close()


def test_payload_and_priority_come_in_and_go_out(name, door, a, b):
    door.send(b"low", priority=1)
    door.send(b"high", priority=9)
    assert bridge.receive(f"mq:{name}", a, once=True) == 2
    assert [(each[0], each[2]) for each in contents(a)] == [(b"high", 9), (b"low", 1)]
    a.put(b"clamped", type=65535)
    assert bridge.send(a, f"mq:{name}", once=True) == 3
    assert [door.receive(0) for _ in range(3)] == [(b"clamped", 32767), (b"high", 9), (b"low", 1)]
    assert bridge.send(a, f"mq:{name}", once=True) == 0


def test_a_queue_that_is_full_is_waited_for(name, door, a):
    for number in range(25):
        a.put(b"%d" % number)
    thread = threading.Thread(target=bridge.send, args=(a, f"mq:{name}"), kwargs={"once": True})
    thread.start()
    assert [door.receive(20)[0] for _ in range(25)] == [b"%d" % number for number in range(25)]
    thread.join()


def test_what_is_larger_than_its_limit_is_told(name, door, a):
    a.put(b"x" * door.max_message_size)
    a.put(b"x" * (door.max_message_size + 1))
    with pytest.raises(shmq.TooLarge, match=r"message 1 has 8,193 bytes, and .* takes 8,192 at most"):
        bridge.send(a, f"mq:{name}", once=True)
    assert door.current_messages == 1


def test_what_finds_no_room_in_the_queue_goes_back_when_the_bridge_ends(name, door, tmp_path):
    stop = threading.Event()
    with shmq.open(tmp_path / "full", max_messages=1) as full, full.consumer("holds"):
        full.put(b"full")
        door.send(b"waits", priority=3)
        thread = threading.Thread(target=bridge.receive, args=(f"mq:{name}", full), kwargs={"stop": stop})
        thread.start()
        until(lambda: door.current_messages == 0)
        stop.set()
        thread.join()
        assert door.receive(5) == (b"waits", 3)


def test_it_is_made_to_be_written_and_must_be_there_to_be_read(name, a, b):
    posix_ipc.unlink_message_queue(name)
    with pytest.raises(shmq.NotFound, match="whoever sends makes it"):
        bridge.receive(f"mq:{name}", b, once=True)
    a.put(b"x")
    assert bridge.send(a, f"mq:{name}", once=True) == 1
    made = posix_ipc.MessageQueue(name)
    assert (made.max_messages, made.mode & 0o777) == (10, 0o600)
    made.close()
