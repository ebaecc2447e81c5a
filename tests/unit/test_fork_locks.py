"""Locks and forks: whenever another thread forks, no child shares a lock of its parent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time

import pytest
from support import DEADLINE, Child, start

import shmq

FORKS = 60


def idle():
    signal.alarm(int(5 * DEADLINE))  # its own end, if nobody's else
    signal.pause()


def forking(stop, children):
    """Fork idle children without a pause."""
    while not stop.is_set() and len(children) < FORKS:
        children.append(start(idle))
        time.sleep(0.001)


def beside_forks(work):
    """For a child's work: *work* again and again while another thread forks; says which children there are; stays."""

    def job(say):
        stop, children = threading.Event(), []
        thread = threading.Thread(target=forking, args=(stop, children))
        thread.start()
        step = 0
        while thread.is_alive():
            work(step)
            step += 1
        say(" ".join(map(str, children)))
        select.select([], [], [])

    return job


@contextlib.contextmanager
def orphans(work):
    """Forked beside *work*; then their parent is killed."""
    with Child(beside_forks(work)) as parent:
        children = list(map(int, parent.hear().split()))
        try:
            assert len(children) == FORKS
            parent.kill()
            yield
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def place(tmp_path):
    """Of a queue with a few messages."""
    path = str(tmp_path / "q")
    with shmq.open(path, create=True) as queue:
        queue.put_many([b"a", b"b", b"c"])
    return path


def test_no_child_keeps_the_seat_of_a_killed_parent_that_opened_while_it_was_forked(place):
    """Opened and closed again and again; the last opening is killed. Whoever sits then is seen to be alone."""

    def work(step):
        with shmq.open(place) as queue:
            queue.put(b"x")

    with orphans(work), shmq.open(place) as queue:
        assert queue.stats().participants == 1


def test_no_child_keeps_the_claim_of_a_killed_parent_alive(place):
    """What it had reserved is padding for the next consumer, although the children live."""
    held = []

    def work(step):
        queue = shmq.open(place)
        held[:] = [queue.reserve(8)]

    with orphans(work), shmq.open(place) as queue:
        queue.put(b"behind")
        taken = []
        consumer = queue.consumer("c")
        while b"behind" not in taken:
            taken.append(consumer.take(timeout=DEADLINE))


def test_no_child_keeps_a_name_that_its_parent_closed_or_was_killed_with(place):
    """A name that is closed can be opened by the next, and one that was open when its process was killed."""
    held = []

    def work(step):
        if not held:
            held.append(shmq.open(place))
        for consumer in held[1:]:
            consumer.close()
        held[0].consumer("closed").close()
        held[1:] = [held[0].consumer("held")]

    with orphans(work), shmq.open(place) as queue:
        for name in ("held", "closed"):
            queue.consumer(name).close()


def test_no_child_keeps_a_pin_whose_holder_was_killed(place):
    """Nothing is held back by it: a reader may pin under its name."""
    held = []

    def work(step):
        if not held:
            held.append(shmq.open(place))
        for reader in held[1:]:
            reader.close()
        held[1:] = [held[0].reader(pin="mine")]

    with orphans(work), shmq.open(place) as queue, queue.reader(pin="mine") as reader:
        assert next(reader).payload == b"a"


def test_no_child_keeps_the_turn_of_who_puts_once(place):
    """The next put with dedup goes on at once, by whoever."""
    held = []

    def work(step):
        if not held:
            held.append(shmq.open(place))
        held[0].put(b"x", dedup=("p", step + 1))

    with orphans(work), shmq.open(place) as queue:
        queue.put(b"y", dedup=("q", 1), timeout=DEADLINE / 2)


def test_no_child_keeps_the_administrative_lock(place):
    """Names can be made and dropped when its holder was killed."""
    held = []

    def work(step):
        if not held:
            held.append(shmq.open(place))
        held[0].consumer("n").close()
        held[0].drop_consumer("n")

    with orphans(work), shmq.open(place) as queue:
        queue.consumer("after").close()


def test_a_put_with_dedup_opens_nothing(place, monkeypatch):
    """The lock by which it takes its turn is there already."""
    from shmq.storage import files

    with shmq.open(place) as queue:
        queue.put(b"0", dedup=("p", 1))
        opened = []
        real = files.open_file
        monkeypatch.setattr(files, "open_file", lambda *given, **more: opened.append(given[1]) or real(*given, **more))
        for sequence in range(2, 6):
            queue.put(b"x", dedup=("p", sequence))
        assert "control.shmq" not in opened
