"""Tasks: what comes back, in which order, and what happens to those that fail, die, take long, or are cancelled."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jobs
import pytest
from support import until

import shmq
from shmq.executor import RemoteTraceback, TaskDied, TaskExpired, TaskTimedOut
from shmq.executor.future import Future


# ---- what comes back
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_tasks_run_by_each_start_method(executor, method):
    ex = executor(2, method)
    futures = [ex.submit(jobs.double, each) for each in range(20)]
    assert [each.result(timeout=60) for each in futures] == [2 * each for each in range(20)]
    assert {ex.submit(jobs.pid).result() for _ in range(20)} <= set(ex.workers())
    assert {each.attempts for each in futures} == {1}


def test_it_is_an_executor_and_its_futures_are_futures(executor):
    ex = executor()
    future = ex.submit(jobs.double, 4)
    assert isinstance(ex, concurrent.futures.Executor)
    assert isinstance(future, concurrent.futures.Future)
    assert concurrent.futures.wait([future], 30).done == {future}
    assert list(concurrent.futures.as_completed([future])) == [future]
    called = []
    future.add_done_callback(called.append)
    assert called == [future]
    assert not future.running()


def test_an_exception_comes_with_where_it_was_raised(executor):
    with pytest.raises(ValueError, match="on purpose") as caught:
        executor().submit(jobs.fail).result(timeout=30)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "raise kind(text)" in str(caught.value.__cause__)
    assert "turn.py" not in str(caught.value.__cause__)


def test_what_cannot_travel_says_what_it_is(executor, monkeypatch):
    monkeypatch.setattr("shmq.executor.functions.cloudpickle", None)  # which whoever has run the benchmarks has
    ex = executor()
    lost = ex.submit(lambda: 1)
    with pytest.raises(Exception, match=r"(?i)pickle") as caught:
        lost.result(timeout=30)
    assert "the function cannot be pickled" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="stays here") as caught:
        ex.submit(jobs.double, jobs.Unpicklable()).result(timeout=30)
    assert "argument 0" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="stays here") as caught:
        ex.submit(jobs.unpicklable).result(timeout=30)
    assert "jobs.Unpicklable" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match=r"jobs.BadException: this and that; that cannot be sent back"):
        ex.submit(jobs.fail_badly).result(timeout=30)
    assert ex.submit(jobs.double, 1).result(timeout=30) == 2


def test_partials_and_methods_travel_by_pickle(executor):
    ex = executor()
    assert ex.submit(functools.partial(jobs.double, 5)).result(timeout=30) == 10
    assert ex.submit("a-b".split, "-").result(timeout=30) == ["a", "b"]
    assert ex.submit(int, "7").result(timeout=30) == 7


def test_large_buffers_come_back_as_they_went(executor):
    numpy = pytest.importorskip("numpy")
    ex = executor()
    sent = numpy.arange(1 << 16)
    back = ex.submit(jobs.double, sent).result(timeout=30)
    assert (back == 2 * sent).all()
    back[0] = 1  # it is ours


def test_a_function_of_main_is_found_by_its_file(path, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import sys, shmq
def here(x):
    return __name__, x
if __name__ == "__main__":
    with shmq.Executor({str(path)!r}, max_workers=0) as ex:
        print(ex.submit(here, 3).result(timeout=60))
"""
    )
    with Joined(path):
        said = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "('__mp_main__', 3)\n"


def test_a_function_that_was_typed_into_a_session_says_why_no_worker_finds_it(path):
    """It said that `__main__` has no such attribute, and no more."""
    typed = f"""
import shmq
def twice(number): return 2 * number

with shmq.Executor({str(path)!r}, max_workers=1) as ex: print(ex.submit(twice, 2).exception())

"""
    words = [sys.executable, "-i", "-q"]
    done = subprocess.run(words, input=typed, capture_output=True, text=True, check=True)
    assert "has no attribute 'twice': workers find a function by its module and name" in done.stdout
    assert "save it in" in done.stdout


def test_sys_exit_is_an_outcome_and_ends_no_worker(executor):
    ex = executor()
    before = ex.workers()
    with pytest.raises(SystemExit, match="7"):
        ex.submit(jobs.leave_well).result(timeout=30)
    assert ex.workers() == before


# ---- map
def test_map_keeps_the_order_in_chunks_and_with_a_buffer(executor):
    ex = executor(2)
    for chunksize, buffersize in [(1, None), (3, None), (4, 2), (100, 1)]:
        found = list(ex.map(pow, range(10), [2] * 10, chunksize=chunksize, buffersize=buffersize))
        assert found == [each**2 for each in range(10)]
    with pytest.raises(ValueError, match="chunksize"):
        ex.map(jobs.double, [1], chunksize=0)


def test_map_with_a_buffer_takes_no_more_than_that_from_its_source(executor):
    taken = []
    source = (taken.append(each) or each for each in range(100))
    results = executor(1).map(jobs.double, source, buffersize=3)
    assert len(taken) == 3
    assert next(results) == 0
    assert len(taken) == 4


def test_map_gives_up_in_time_and_cancels_what_waits(executor, tmp_path):
    ex = executor(1)
    begun, go = str(tmp_path / "begun"), tmp_path / "go"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        list(ex.map(jobs.note_and_wait, [begun] * 6, [str(go)] * 6, timeout=0.3))
    assert time.monotonic() - began < 25  # the one that runs would give up by itself after 30
    go.touch()
    assert ex.submit(jobs.double, 1).result(timeout=30) == 2
    assert len(jobs.lines(begun)) <= 1


def test_a_map_with_a_key_that_was_broken_off_runs_what_it_had_cancelled(executor, tmp_path):
    ex = executor(1)
    seen, go = str(tmp_path / "seen"), str(tmp_path / "go")
    with pytest.raises(TimeoutError):
        list(ex.map(jobs.wait_for, [go] * 3, key="m", timeout=0.5))
    Path(go).touch()
    assert len(list(ex.map(jobs.wait_for, [go] * 3, key="m"))) == 3
    results = iter(ex.map(jobs.note, [seen] * 40, map(str, range(40)), key="n"))
    assert next(results) == "0"
    del results
    assert list(ex.map(jobs.note, [seen] * 40, map(str, range(40)), key="n")) == [*map(str, range(40))]
    assert sorted(jobs.lines(seen)) == sorted(map(str, range(40)))  # each of them once


def test_a_map_with_a_key_that_is_shut_down_is_cancelled_and_goes_on_elsewhere(executor, path, tmp_path):
    go = str(tmp_path / "go")
    ex = executor(1)
    results = ex.map(jobs.wait_for, [go] * 3, key="m")
    ex.shutdown(wait=False, cancel_futures=True)
    Path(go).touch()
    with pytest.raises(concurrent.futures.CancelledError):
        list(results)
    with shmq.Executor(path, 1, "fork") as other:
        assert len(list(other.map(jobs.wait_for, [go] * 3, key="m"))) == 3


def test_a_map_with_a_key_and_other_chunks_gives_each_item_once(executor):
    ex = executor(1)
    for size, items in [(2, "abc"), (2, "abcd"), (2, "abcde"), (1, "abc"), (3, "abcde")]:
        assert list(ex.map(str.upper, items, key="m", chunksize=size)) == list(items.upper())


def test_map_with_a_key_goes_on_where_it_was(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(1)
    assert list(ex.map(jobs.note, [seen] * 4, "abcd", key="run7")) == list("abcd")
    assert list(ex.map(jobs.note, [seen] * 6, "abcdef", key="run7")) == list("abcdef")
    assert jobs.lines(seen) == list("abcdef")


def test_submit_waits_where_so_many_are_pending(executor, tmp_path):
    ex = executor(1, max_pending=2)
    go = tmp_path / "go"
    for _ in range(2):
        ex.submit(jobs.wait_for, str(go))
    third = []
    thread = threading.Thread(target=lambda: third.append(ex.submit(jobs.double, 1)))
    thread.start()
    time.sleep(0.1)
    assert not third
    go.touch()
    thread.join(timeout=30)
    assert third[0].result(timeout=30) == 2


# ---- by key
def test_a_key_is_submitted_once_and_found_by_anybody(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(1)
    first = ex.submit(jobs.note, seen, "once", key="order-7")
    assert first.result(timeout=30) == "once"
    assert first.key == "order-7"
    other = executor(0)
    assert other.submit(jobs.note, seen, "twice", key="order-7").result(timeout=30) == "once"
    assert other.result("order-7", timeout=30) == "once"
    assert other.future(b"order-7").attempts == 1
    assert jobs.lines(seen) == ["once"]


def test_a_key_that_waits_is_one_task_for_all_who_submit_it(executor, tmp_path):
    seen, go = str(tmp_path / "seen"), tmp_path / "go"
    a, b = executor(0), executor(0)
    futures = [ex.submit(jobs.note_and_wait, seen, str(go), key="k") for ex in (a, b, a)]
    futures.append(b.future("k"))
    with pytest.raises(shmq.Busy, match="has not ended"):
        a.forget("k")
    go.touch()
    executor(2)
    assert {each.result(timeout=30) for each in futures} == {str(go)}
    assert len(jobs.lines(seen)) == 1


def test_a_key_that_failed_stays_so_until_it_is_forgotten(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(1)
    for _ in range(2):
        with pytest.raises(OSError, match="time 1"):
            ex.submit(jobs.fail_at_first, seen, 1, "well", key="k").result(timeout=30)
    assert ex.forget("k")
    assert not ex.forget("k")
    with pytest.raises(shmq.NotFound, match="forgotten"):
        ex.future("k")
    assert ex.submit(jobs.fail_at_first, seen, 1, "well", key="k").result(timeout=30) == "well"


def test_a_key_of_another_function_is_refused(executor):
    ex = executor(0)
    ex.submit(jobs.double, 1, key="k")
    with pytest.raises(shmq.Mismatch, match=r"jobs:pid.*jobs:double"):
        ex.submit(jobs.pid, key="k")


def test_a_key_that_is_none_says_how_to_pass_it_on(executor):
    ex = executor(1)
    with pytest.raises(TypeError, match=r"executor.task\(key="):
        ex.submit(sorted, [3, 1], key=abs)
    assert ex.task(priority=0).submit(sorted, [-3, 1], key=abs).result(timeout=30) == [1, -3]
    assert ex.task(key="k").submit(jobs.keyword, key="mine").result(timeout=30) == "mine"


def test_many_submitters_of_one_key_at_once_make_one_task(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(2)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ex.submit(jobs.note, seen, "x", key="k").result(timeout=30)))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == ["x"] * 8
    assert jobs.lines(seen) == ["x"]


# ---- retries and limits
def test_a_worker_that_is_killed_costs_its_task_one_attempt(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(2)
    future = ex.submit(jobs.die_at_first, seen, 2, "there")
    assert future.result(timeout=60) == "there"
    assert future.attempts == 3
    assert len(set(jobs.lines(seen))) == 3


def test_a_task_that_always_kills_is_a_dead_letter_and_says_by_which_signal(executor, path):
    ex = executor(1)
    future = ex.submit(jobs.die, signal.SIGSEGV)
    with pytest.raises(TaskDied, match="SIGSEGV") as caught:
        future.result(timeout=60)
    assert caught.value.signal == signal.SIGSEGV
    assert caught.value.attempts == 3
    assert isinstance(caught.value, concurrent.futures.process.BrokenProcessPool)
    assert ex.submit(jobs.double, 2).result(timeout=30) == 4  # the pool goes on
    with shmq.open(path / "dead") as dead:
        (letter,) = dead.reader()
        assert "in die" in letter.headers["shmq.traceback"]
        assert letter.headers["shmq.exitcode"] == -signal.SIGSEGV
        assert letter.headers["shmq.attempts"] == 4
        assert "SIGSEGV" in letter.headers["shmq.reason"]


def test_a_dead_letter_says_how_much_memory_there_was(executor):
    with pytest.raises(TaskDied, match="MiB at least") as caught:
        executor(1, max_attempts=1).submit(jobs.allocate, 100, 1.5).result(timeout=60)
    assert caught.value.peak > 100 << 20


def test_dead_letters_are_shown_and_put_back(executor, path, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(1, max_attempts=1)
    with pytest.raises(TaskDied):
        ex.submit(jobs.die_at_first, seen, 1, "there", key="k").result(timeout=30)
    shown = command("dead", "ls", path / "dead", "--json")
    (told,) = json.loads(shown)
    assert told["cause"] == "died"
    assert "SIGKILL" in told["reason"]
    command("dead", "requeue", path / "dead", "--all")
    until(lambda: ex.future("k").exception(timeout=30) is None)
    assert ex.result("k") == "there"


def command(*words):
    """What the `shmq` command prints."""
    code = "import sys; from shmq.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_exception_is_tried_again_only_where_that_is_wished(executor, tmp_path):
    ex = executor(1)
    once, often = str(tmp_path / "once"), str(tmp_path / "often")
    with pytest.raises(OSError, match="time 1"):
        ex.task(retry_on=KeyError).submit(jobs.fail_at_first, once, 1, "there").result(timeout=30)
    future = ex.task(retry_on=(KeyError, OSError), backoff=0.01).submit(jobs.fail_at_first, often, 2, "there")
    assert future.result(timeout=30) == "there"
    assert future.attempts == 3


def test_retries_end_in_the_dead_letters_with_the_last_traceback(executor, path, tmp_path):
    ex = executor(1)
    future = ex.task(retry_on=OSError, backoff=0.0, max_attempts=2).submit(
        jobs.fail_at_first, str(tmp_path / "seen"), 9, "there"
    )
    with pytest.raises(OSError, match="time 2"):
        future.result(timeout=30)
    with shmq.open(path / "dead") as dead:
        (letter,) = dead.reader()
        assert "OSError: time 2" in letter.headers["shmq.traceback"]


def test_a_task_that_takes_too_long_is_killed_each_time(executor, path):
    ex = executor(2)
    began = time.monotonic()
    future = ex.task(timeout=0.2, max_attempts=2).submit(jobs.sleep, 60)
    with pytest.raises(TaskTimedOut, match=r"longer than its 0.2 s 2 times"):
        future.result(timeout=30)
    assert time.monotonic() - began < 15
    assert issubclass(TaskTimedOut, TimeoutError)
    with shmq.open(path / "dead") as dead:
        (letter,) = dead.reader()
        assert "in sleep" in letter.headers["shmq.traceback"]
    assert ex.task(timeout=60).submit(jobs.double, 1).result(timeout=30) == 2


def test_a_task_whose_deadline_has_passed_is_not_run(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(0)
    future = ex.task(deadline=0.01).submit(jobs.note, seen)
    later = ex.task(deadline=600).submit(jobs.note, seen)
    time.sleep(0.05)
    executor(1)
    with pytest.raises(TaskExpired, match="not run"):
        future.result(timeout=30)
    assert later.result(timeout=30) == "x"
    assert jobs.lines(seen) == ["x"]


def test_higher_priorities_come_first_and_the_lowest_is_not_starved(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(0)
    futures = [ex.task(priority=each).submit(jobs.note, seen, str(each)) for each in [-1, 0, 1] * 20]
    executor(1)
    concurrent.futures.wait(futures, 60)
    order = [int(each) for each in jobs.lines(seen)]
    assert sorted(order) == [-1] * 20 + [0] * 20 + [1] * 20
    assert sum(order[:20]) > 15
    assert -1 in order[:20]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 2},
        {"timeout": 0},
        {"deadline": -1},
        {"backoff": -1},
        {"retry_on": 3},
        {"max_attempts": 0},
        {"key": 3},
    ],
)
def test_wishes_that_mean_nothing_are_refused(executor, wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        executor(0).task(**wrong)


# ---- cancelled, killed
def test_what_waits_is_cancelled_and_never_runs(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(0)
    first, second = ex.submit(jobs.note, seen, "a"), ex.submit(jobs.note, seen, "b")
    assert first.cancel()
    assert first.cancelled()
    assert first.cancel()
    executor(1)
    assert second.result(timeout=30) == "b"
    with pytest.raises(concurrent.futures.CancelledError):
        first.result(timeout=30)
    assert jobs.lines(seen) == ["b"]


def test_what_runs_is_not_cancelled_but_can_be_killed(executor, tmp_path):
    begun, go = str(tmp_path / "begun"), str(tmp_path / "go")
    ex = executor(1)
    future = ex.submit(jobs.note_and_wait, begun, go)
    until(lambda: jobs.lines(begun))
    assert future.running()
    assert not future.cancel()
    assert not future.cancelled()
    assert future.kill()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(timeout=30)
    assert not future.kill()
    assert not future.running()
    assert len(jobs.lines(begun)) == 1  # it was not begun again
    assert ex.submit(jobs.double, 3).result(timeout=30) == 6


def test_what_is_done_cannot_be_cancelled(executor):
    ex = executor(1)
    future = ex.submit(jobs.double, 3)
    assert future.result(timeout=30) == 6
    assert not future.cancel()
    assert not future.kill()


def test_who_cancels_and_the_follower_that_hears_of_it_may_meet(monkeypatch):
    """Both had cancelled it before either told who waits, and the second one was refused by the first one's work."""
    plain, both = concurrent.futures.Future.cancel, threading.Barrier(2, timeout=20)

    def cancel(future):
        done = plain(future)
        both.wait()
        return done

    monkeypatch.setattr(concurrent.futures.Future, "cancel", cancel)
    future = Future(b"id", None, None)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        meeting = [pool.submit(future.become_cancelled) for _ in range(2)]
        assert [each.result() for each in meeting] == [True, True]
    assert future.cancelled()


def test_cancelled_or_done_and_never_both(executor, tmp_path):
    """Cancellations race with workers: who was told True never ran, and who was told False has an outcome."""
    ex = executor(2)
    for _ in range(10):
        seen = str(tmp_path / "seen")
        futures = [ex.submit(jobs.note, seen, str(each)) for each in range(20)]
        told = [each.cancel() for each in futures]
        ran = {int(jobs.note and each.result(timeout=30)) for each, was in zip(futures, told, strict=True) if not was}
        assert {int(each) for each in jobs.lines(seen)} == ran
        assert ran == {at for at, was in enumerate(told) if not was}
        os.unlink(seen) if os.path.exists(seen) else None


# ---- workers
def test_a_worker_is_replaced_after_so_many_tasks(executor):
    ex = executor(1, max_tasks_per_child=3)
    pids = [ex.submit(jobs.pid).result(timeout=30) for _ in range(9)]
    assert [pids.count(each) for each in dict.fromkeys(pids)] == [3, 3, 3]


def test_an_initializer_is_called_in_each_worker(executor, tmp_path):
    seen = str(tmp_path / "seen")
    ex = executor(2, initializer=jobs.set_up, initargs=(seen, "ready"))
    assert ex.submit(jobs.what_was_set_up).result(timeout=30) == ["ready"]
    os.kill(ex.workers()[0], signal.SIGKILL)
    until(lambda: len(jobs.lines(seen)) == 3)


def test_a_failing_initializer_breaks_its_executor_and_not_the_queue(executor):
    ex = executor(1, initializer=jobs.refuse_to_start)
    future = None
    with contextlib.suppress(concurrent.futures.BrokenExecutor):  # which it may be by now
        future = ex.submit(jobs.double, 4, key="k")
    until(lambda: ex._broken)
    with pytest.raises(concurrent.futures.BrokenExecutor, match="no database"):
        ex.submit(jobs.double, 4)
    if future is not None:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="no database"):
            future.result(timeout=30)
        assert executor(1).submit(jobs.double, 4, key="k").result(timeout=30) == 8


def test_a_task_that_waits_for_another_one_in_the_last_worker_is_told(executor, path):
    with pytest.raises(RuntimeError, match="so do all workers"):
        executor(1).submit(jobs.submit_within, str(path)).result(timeout=60)


def test_a_task_that_waits_for_another_one_is_answered_by_a_second_worker(executor, path):
    assert executor(2).submit(jobs.submit_within, str(path)).result(timeout=60) == 42


class Joined:
    """`shmq worker`, as in another terminal."""

    def __init__(self, path, *more):
        words = [sys.executable, "-c", "import sys; from shmq.cli import main; sys.exit(main())", "worker", str(path)]
        here = os.path.dirname(__file__)
        self.process = subprocess.Popen([*words, "-n", "2", *more], stderr=subprocess.PIPE, text=True, cwd=here)

    def __enter__(self):
        self.said = self.process.stderr.readline()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.rest = self.process.communicate(timeout=30)[1]
        assert self.process.returncode == 0, self.rest


def test_workers_join_from_another_terminal(executor, path):
    ex = executor(0)
    futures = [ex.submit(jobs.double, each) for each in range(10)]
    with Joined(path) as worker:
        assert worker.said.startswith("shmq: 2 workers for ")
        assert [each.result(timeout=60) for each in futures] == [2 * each for each in range(10)]
        pids = ex.workers()
        assert str(pids[0]) in worker.said
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: pids[0] not in ex.workers() and len(ex.workers()) == 2)
    assert ex.workers() == []


# ---- shutdown, pickling
def test_after_shutdown_nothing_is_submitted_and_all_is_done(executor, tmp_path):
    ex = executor(2)
    futures = [ex.submit(jobs.double, each) for each in range(50)]
    ex.shutdown()
    assert all(each.done() for each in futures)
    assert ex.workers() == []
    with pytest.raises(RuntimeError, match="cannot forget after shutdown"):
        ex.forget("key")
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        ex.submit(jobs.double, 1)
    ex.shutdown()


def test_shutdown_without_waiting_lets_what_is_pending_end(executor, tmp_path):
    go = tmp_path / "go"
    ex = executor(1)
    futures = [ex.submit(jobs.wait_for, str(go)), ex.submit(jobs.double, 1)]
    ex.shutdown(wait=False)
    assert not futures[0].done()
    go.touch()
    assert futures[1].result(timeout=30) == 2
    until(lambda: ex._engine._stopped and not ex._engine.pids())


def test_shutdown_leaves_the_tasks_of_others(executor, tmp_path):
    seen = str(tmp_path / "seen")
    other = executor(0)
    future = other.submit(jobs.note, seen)
    ex = executor(0)
    ex.shutdown()
    assert not future.done()
    executor(1)
    assert future.result(timeout=30) == "x"


def test_an_executor_that_nobody_has_any_more_ends_its_workers(executor, path, tmp_path):
    import multiprocessing

    ex = shmq.Executor(path, 1, multiprocessing.get_context("fork"))
    engine = ex._engine
    future = ex.submit(jobs.double, 1)
    del ex
    assert future.result(timeout=30) == 2
    until(lambda: engine._stopped and not engine.pids())


def test_it_pickles_to_its_place(executor):
    ex = executor(1)
    with pickle.loads(pickle.dumps(ex)) as copy:
        assert copy.path == ex.path
        assert copy.submit(jobs.double, 8).result(timeout=30) == 16
    assert "workers of its own" in repr(ex)
