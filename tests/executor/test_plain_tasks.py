"""The few steps of a plain task: futures that make their lock late, kinds of tasks that a worker knows, the way out."""

from __future__ import annotations

import concurrent.futures
import inspect
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import jobs
import pytest
from support import in_child, in_tiny, until

import shmq
from shmq.executor import cancelling, outcome, task
from shmq.executor.directory import Directory
from shmq.executor.future import Future

HERE = Path(__file__).parent


# ---------------------------------------------------------------- futures
def test_a_future_lacks_nothing_that_the_library_makes_of_one():
    """A new CPython that makes more of a future is met here."""
    theirs = vars(concurrent.futures.Future())
    ours = Future(b"id", None, None)
    assert set(theirs) == {"_condition", "_state", "_result", "_exception", "_waiters", "_done_callbacks"}
    for name, value in theirs.items():
        assert type(getattr(ours, name)) is type(value), name
        assert getattr(ours, name) == value or name == "_condition"
    assert ours._condition is ours._condition
    assert not hasattr(ours, "something else")


def test_one_that_was_done_unseen_answers_everything():
    future = Future(b"id", None, None)
    assert future.succeed(7)
    assert "_waiters" not in vars(future)
    called = []
    future.add_done_callback(called.append)
    assert called == [future]
    assert (future.done(), future.running(), future.cancelled(), future.cancel()) == (True, False, False, False)
    assert (future.result(0), future.exception(0)) == (7, None)
    assert concurrent.futures.wait([future]).done == {future}
    assert list(concurrent.futures.as_completed([future, future], timeout=0)) == [future]
    assert not future.succeed(8)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(8)
    assert future.result() == 7


def test_one_that_somebody_has_looked_at_is_left_to_the_library():
    for look in (Future.done, lambda each: each.add_done_callback(print), lambda each: each.cancel()):
        future = Future(b"id", None, None)
        look(future)
        assert not future.succeed(7)


def settle(futures, settled):
    for each in futures:
        if not each.succeed(1):
            try:
                each.set_result(1)
            except concurrent.futures.InvalidStateError:
                continue
        settled.append(each)


def test_done_or_cancelled_and_everybody_hears_of_it():
    """Many at once: an outcome, a cancellation, a callback and a wait, each from a thread of its own."""
    futures = [Future(b"%d" % each, None, None) for each in range(300)]
    called, cancelled, heard, settled = [], [], [], []
    gate = threading.Barrier(4)
    works = (
        lambda: settle(futures, settled),
        lambda: cancelled.extend(each for each in reversed(futures) if each.become_cancelled()),
        lambda: [each.add_done_callback(called.append) for each in futures],
        lambda: heard.extend(concurrent.futures.as_completed(futures, timeout=60)),
    )
    threads = [threading.Thread(target=lambda work=work: (gate.wait(), work())) for work in works]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    finally:
        sys.setswitchinterval(before)
    assert set(settled).isdisjoint(cancelled)
    assert len(settled) + len(cancelled) == len(futures)
    assert sorted(map(id, called)) == sorted(map(id, heard)) == sorted(map(id, futures))


def test_a_forked_child_can_look_at_what_its_parent_is_just_ending():
    from shmq.executor import future as module

    done = Future(b"id", None, None)
    assert done.succeed(7)
    holds, go = threading.Event(), threading.Event()

    def hold():
        with module._UNSEEN:
            holds.set()
            go.wait(0.3)  # for so long whoever forks waits

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait(60)
    try:
        assert in_child(lambda: str(done.result())) == "7"
    finally:
        go.set()
        holder.join()


# ---------------------------------------------------------------- the page
def test_the_block_of_the_page_runs(tmp_path):
    """As a program: its functions are those of `__main__`."""
    page = (HERE.parents[1] / "docs/how-to/executor.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "program.py").write_text(block)
    for _ in range(2):  # the second one finds the key's outcome
        done = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout.splitlines() == ["cat.jpg at 640", "a.jpg at 64", "b.jpg at 64", "dog.jpg at 640 1"]
    mentioned = set(re.findall(r"`ex\.(\w+)", page)) | set(re.findall(r"`(?:ex\.)?task\((\w+)=", page))
    assert mentioned <= {*dir(shmq.Executor), *inspect.signature(shmq.Executor.task).parameters}


# ---------------------------------------------------------------- kinds of tasks
def test_what_tasks_have_in_common_is_all_but_number_and_arguments():
    quick = task.Quick(7, 3)
    first, second = (quick.packed(each, "m:f", "/main", b"content %d" % each) for each in (1, 2))
    assert task.read(first) == task.Task("m:f", b"content 1", 7, 1, "/main")
    common = task.plain_of(first)
    assert common is not None
    assert task.plain_of(second) == common
    assert first[task.size_before(common) :] == b"content 1"
    assert (task.id_in(first), task.type_of(first)) == (task.id_of(7, 1), 7)
    for other in (
        quick.packed(1, "m:g", "/main", b""),
        quick.packed(1, "m:f", "", b""),
        task.Quick(7, 4).packed(1, "m:f", "/main", b""),
        task.Task("m:f", b"", 7, 1, "/main", priority=1).packed(),
        task.Task("m:f", b"", 7, 1, "/main", limit=1.0).packed(),
        task.Task("m:f", b"", 7, 1, "/main", keyed=True).packed(),
    ):
        assert task.plain_of(other) != common
    assert task.plain_of(task.Task("m:f", b"", 7, 1, "/main", policy=b"p").packed()) is None
    assert task.plain_of(b"\x02" + first[1:]) is None
    assert task.plain_of(first[:10]) is None


def test_a_value_in_short_is_one_in_full():
    full = outcome.Outcome(outcome.VALUE, bytes(16), 1, 2, 3, 4, b"content")
    assert outcome.packed_value(bytes(16), 2, 3, 4, b"content") == full.packed()
    assert outcome.attempts_for_value(full.packed()) == 1
    assert outcome.attempts_for_value(full.packed(named=True)) == 1
    full.state = outcome.ERROR
    assert outcome.attempts_for_value(full.packed()) == 0


def test_the_second_of_a_kind_is_as_the_first(executor):
    ex = executor(1)
    for number in range(3):
        assert ex.submit(jobs.double, number).result(timeout=30) == 2 * number
        assert ex.submit(os.getpid).result(timeout=30) == ex.workers()[0]
        with pytest.raises(ZeroDivisionError) as caught:
            ex.submit(divmod, 1, 0).result(timeout=30)
        assert "divmod" in str(caught.value.__cause__) or "Traceback" in str(caught.value.__cause__)
        assert ex.submit(dict, a=number).result(timeout=30) == {"a": number}
        with pytest.raises(TypeError, match="pickle"):
            ex.submit(threading.Lock).result(timeout=30)


# ---------------------------------------------------------------- cancellations
def test_cancellations_are_forgotten_when_all_tasks_have_ended(executor, tmp_path):
    ex, seen = executor(1), str(tmp_path / "seen")
    directory = ex._engine.directory
    mine = cancelling.Cancelled(directory)
    for number in range(2):
        begun, go = str(tmp_path / f"begun{number}"), tmp_path / f"go{number}"
        busy = ex.submit(jobs.note_and_wait, begun, str(go))
        until(lambda begun=begun: jobs.lines(begun), deadline=30.0)
        waiting = [ex.submit(jobs.note, seen, "x") for _ in range(3)]
        assert all(each.cancel() for each in waiting)
        assert set(mine.killed()) == {each.id for each in waiting}  # what was before is forgotten
        assert not cancelling.forget_ended(directory, 1)
        go.touch()
        busy.result(timeout=30)
        until(lambda: cancelling.forget_ended(directory, 1), deadline=30.0)
    mine.close()
    assert not os.path.exists(seen)


def test_who_reads_cancellations_late_meets_a_purge(path):
    directory = Directory(path)
    mine = cancelling.Cancelled(directory)
    queue = directory.queue("cancels")
    for _ in range(30):
        queue.put_many([cancelling.CANCEL] * 100, keys=[random.randbytes(16) for _ in range(100)])
    assert cancelling.forget_ended(directory)
    cancelling.ask(directory, b"x" * 16, cancelling.KILL)
    assert mine.how(b"x" * 16) == cancelling.KILL
    mine.close()
    directory.close()


# ---------------------------------------------------------------- the way out
FULL = """
import os, sys, time, shmq, logging
from shmq.executor.way_out import WayOut
logging.disable(logging.CRITICAL)
with shmq.open("/dev/shm/tasks") as tasks, shmq.open("/dev/shm/results") as results:
    with tasks.consumer("workers", group=True, ack="explicit") as member:
        tasks.put(b"task")
        message = member.get(0)
        room = open("/dev/shm/filler", "wb", buffering=0)
        try:
            while True:
                room.write(bytes(4096))
        except OSError:
            pass
        way = WayOut("/dev/shm", lambda: False)
        way._looked, way._left = time.time_ns(), 1 << 40  # what it saw a moment before
        way.hand_over_one(message, results, b"outcome", b"k" * 16, 1, way._looked)
        print(len(results), member.pending)
        room.close()
        os.unlink("/dev/shm/filler")
        again = member.get(30)
        print(again.attempts)
        way.hand_over_one(again, results, b"outcome", b"k" * 16, 1, time.time_ns())
        print([bytes(each.view) for each in results.reader()], member.lag)
"""


def test_an_outcome_that_finds_a_full_disk_gives_its_task_back():
    """The first one of all, which needs more than its own room: it is refused before anything is marked."""
    said = in_tiny(FULL, "2m")
    assert said.split("\n")[:3] == ["0 0", "2", "[b'outcome'] 0"]
