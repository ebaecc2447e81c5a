"""
With no descriptor left: whatever is called says so with the queue and a file that is there, and works afterwards.

Not a list of verbs: everything public that a queue, its consumers, readers, producers and staged sets have.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import resource
import traceback
from typing import Any

import pytest
from support import in_child

import shmq
from shmq.putting.producer import Producer
from shmq.putting.staged import Staged
from shmq.reading.reader import Reader
from shmq.taking.consumer import Consumer
from shmq.taking.group import GroupConsumer

ARGUMENTS: dict[str, Any] = {
    "ack": lambda it: (it.peek() and (),),
    "adopt": lambda it: (it.stage() if isinstance(it, shmq.Queue) else None,),
    "adopted": ("p",),
    "alarm": (lambda: None,),
    "at": (0.0,),
    "at_ns": (0,),
    "commit": (1,),
    "consumer": ("new",),
    "copy": lambda it: (f"{it.path}.copy",),
    "drop_consumer": ("c",),
    "extents": (),
    "get": (0,),
    "get_many": (5, 0),
    "group_place": ("g",),
    "latest": (b"k",),
    "nack": (),
    "put": (bytes(6000),),
    "put_many": ([bytes(4000)] * 3,),
    "rename_consumer": ("c", "d"),
    "repair": (),
    "reserve": (6000,),
    "seek": ("earliest",),
    "skip": (0,),
    "staged": lambda it: (token(it),),
    "take": (0,),
    "take_many": (5, 0),
}
OPTIONS: dict[str, Any] = {"set_bounds": {"max_messages": 1000}, "sweep_staged": {"older_than": 0.0}}
FORWARDING = {"done_below", "forwarded", "have_on_disk", "prepared", "prepared_again", "put_forwarded", "wait_for_disk"}
"""What `forward` asks of a producer with what only it has; tests/unit/test_forward.py does."""
NOT_CALLED = {"ack", "lead_group", "claim", "forget", *FORWARDING}
"""Needs a message; or is for messages alone."""
ENDS = {"close", "shutdown", "adopt", "hand_over"}
NEEDS_ARROW = {"put_arrow", "read_arrow", "take_arrow"}


def token(queue):
    (waiting,) = queue.staged_sets()
    return waiting.token


def opened(path):
    """A queue with something of everything."""
    queue = shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.acked()))
    for number in range(8):
        queue.put(b"%d" % number * 2000)
    queue.consumer("c").close()
    with queue.consumer("g", group=True, ack="explicit") as group:
        assert group.incarnation  # its file is made now
    staged = queue.stage()
    staged.put(b"staged")
    staged.hand_over()
    return queue


KINDS = {
    shmq.Queue: lambda queue: queue,
    Consumer: lambda queue: queue.consumer("c", ack="auto"),
    GroupConsumer: lambda queue: queue.consumer("g", group=True, ack="explicit"),
    Reader: lambda queue: queue.reader(pin=True, follow=True),
    Producer: lambda queue: queue.producer(),
    Staged: lambda queue: queue.stage(),
}
PUBLIC = [
    (kind, name)
    for kind in KINDS
    for name in dir(kind)
    if not name.startswith("_") and name not in NOT_CALLED | NEEDS_ARROW
    if type(inspect.getattr_static(kind, name)).__module__ != "shmq.habits"  # they only say what to use instead
]


def call(it, name):
    value = getattr(it, name)
    if callable(value):
        arguments = ARGUMENTS.get(name, ())
        given = arguments(it) if callable(arguments) else arguments
        with contextlib.suppress(shmq.Empty, shmq.Full):
            value(*given, **OPTIONS.get(name, {}))


def says_where(problem, path):
    """Whether it is an error of ours, or the kernel's about a file that is there; with the queue's path."""
    if path not in str(problem):
        return False
    if isinstance(problem, OSError) and problem.errno is None:  # the core's own words
        return any(os.path.lexists(word.rstrip(":,")) and word.startswith(f"{path}/") for word in str(problem).split())
    if isinstance(problem, OSError):
        return problem.errno == errno.EMFILE and os.path.lexists(problem.filename)
    return isinstance(problem, shmq.ShmqError)


@contextlib.contextmanager
def descriptors(spare):
    """Only so many more can be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = set(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.open("/dev/null", os.O_RDONLY) for _ in range(max(there) + 1 - len(there))]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers, default=max(there)) + 1 + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


def starve(path, kind, name):
    """Call it with none left, with one, and so on until it works: each error that is not as it should be."""
    with opened(f"{path}.before") as queue:  # whatever is imported at the first call
        call(KINDS[kind](queue), name)
    queue = opened(path)
    it = KINDS[kind](queue)
    wrong = []
    for spare in range(-1, 12):
        try:
            with descriptors(spare):
                call(it, name)
            break
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is looked at
            if not says_where(problem, path):
                wrong.append(
                    f"{spare}: {type(problem).__name__}: {problem} at {traceback.format_tb(problem.__traceback__)[-3:]}"
                )
    if name not in ENDS:
        with contextlib.suppress(shmq.NotFound, shmq.Busy, shmq.Unsafe):  # it was done at last
            call(it, name)
        with shmq.open(path) as again:
            again.put(b"works")
            wrong += [str(found) for found in again.verify().problems]
    return wrong


@pytest.mark.parametrize(("kind", "name"), PUBLIC, ids=[f"{kind.__name__}.{name}" for kind, name in PUBLIC])
@pytest.mark.filterwarnings("ignore")
def test_with_no_descriptor_left_the_error_names_the_queue_and_a_file_that_is_there(tmp_path, kind, name):
    """And nothing is lost or half done: with descriptors, the same call works."""
    assert in_child(starve, str(tmp_path / "q"), kind, name) == "[]"
