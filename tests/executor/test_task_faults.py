"""Faults, done for real: kills at random, a full disk, Ctrl-C, an end in the middle, forks, threads, bad callbacks."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jobs
import pytest
from support import DEADLINE, Child, hold_until_killed, run_python, until

import shmq
from shmq.executor import names, serving
from tests.executor.campaign import Killing

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}:{HERE.parents[1]}"}


def test_whoever_is_killed_nothing_is_lost(path):
    """A short share of the campaign."""
    Killing(str(path), seed=7).run(kills=12)


def submit_and_stay(say, path, seen):
    ex = shmq.Executor(path, 0)
    for each in range(20):
        ex.submit(jobs.note, seen, str(each), key=f"k{each}")
    hold_until_killed(say)


def test_tasks_of_a_submitter_that_is_killed_run_and_are_found_by_their_keys(executor, path, tmp_path):
    seen = str(tmp_path / "seen")
    with Child(submit_and_stay, str(path), seen) as child:
        child.hear()
        child.kill()
    ex = executor(2)
    assert [ex.result(f"k{each}", timeout=30) for each in range(20)] == [str(each) for each in range(20)]
    assert sorted(jobs.lines(seen)) == sorted(str(each) for each in range(20))
    consumers = executor(0)._engine.directory.queue(names.RESULTS).consumers()
    assert len([each for each in consumers if each.startswith(names.SUBMITTER)]) == 2  # the dead one's is dropped


def start_and_stay(say, path):
    import multiprocessing

    ex = shmq.Executor(path, 2, multiprocessing.get_context("fork"))
    say(" ".join(map(str, ex.workers())))
    hold_until_killed(say)


def test_workers_of_a_starter_that_is_killed_finish_and_leave(executor, path, tmp_path):
    ex = executor(0)
    begun, go = str(tmp_path / "begun"), tmp_path / "go"
    with Child(start_and_stay, str(path)) as child:
        child.hear()
        future = ex.submit(jobs.note_and_wait, begun, str(go))
        until(lambda: jobs.lines(begun))
        child.hear()
        child.kill()
    until(lambda: len(ex.workers()) == 1)  # the idle one has left
    go.touch()
    assert future.result(timeout=30) == str(go)
    assert future.attempts == 1
    until(lambda: ex.workers() == [])


def test_a_stopped_worker_keeps_its_task_and_others_go_on(executor, tmp_path):
    ex = executor(2)
    begun, go = str(tmp_path / "begun"), tmp_path / "go"
    slow = ex.submit(jobs.note_and_wait, begun, str(go))
    until(lambda: jobs.lines(begun))
    (pid,) = (int(each) for each in jobs.lines(begun))
    os.kill(pid, signal.SIGSTOP)
    try:
        assert [ex.submit(jobs.double, each).result(timeout=30) for each in range(20)] == [
            2 * each for each in range(20)
        ]
        assert not slow.done()
        go.touch()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert slow.result(timeout=30) == str(go)


def test_with_a_lease_a_stopped_workers_task_goes_to_another_one(executor, tmp_path):
    ex = executor(2, lease=0.5)
    begun = str(tmp_path / "begun")
    (tmp_path / "go").touch()
    future = ex.submit(stop_the_first, begun)
    assert future.result(timeout=60) == 2
    os.kill(int(jobs.lines(begun)[0]), signal.SIGCONT)  # it wakes, has lost its lease, and goes on as a worker
    assert ex.submit(jobs.double, 1).result(timeout=30) == 2
    until(lambda: int(jobs.lines(begun)[0]) in ex.workers())


def stop_the_first(path):
    jobs.note(path, os.getpid())
    number = len(jobs.lines(path))
    if number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


# ---- the disk
FULL = """
import os, shmq, sys
os.environ["TMPDIR"] = "/dev/shm"
sys.path[:0] = [{here!r}, {above!r}]
import jobs
ex = shmq.Executor("/dev/shm/jobs", 0)
futures = [ex.submit(jobs.double, 1, key="small")]
try:
    while True:
        futures.append(ex.submit(len, bytes(300_000)))
except shmq.DiskFull as problem:
    print("full", len(futures) > 1)
import multiprocessing
with shmq.Executor("/dev/shm/jobs", 1, multiprocessing.get_context("fork")) as other:
    print(other.result("small", timeout=60))
    print({{each.result(timeout=60) for each in futures[1:]}})
    print(ex.submit(len, bytes(300_000)).result(timeout=60))
ex.shutdown()
"""


def test_a_full_disk_is_an_error_of_submit_and_nothing_else_is_lost():
    from support import in_tiny

    said = in_tiny(FULL.format(here=str(HERE), above=str(HERE.parent)), "24m")
    assert said.split("\n")[:4] == ["full True", "2", "{300000}", "300000"]


NEVER = """
import sys; sys.path[:0] = [{here!r}, {above!r}]
import multiprocessing, os, time, jobs, shmq
ex = shmq.Executor("/dev/shm/jobs", 1, multiprocessing.get_context("fork"))
try:
    ex.submit(bytes, 60 << 20).result(timeout=60)
except shmq.TooLarge as problem:
    print(problem)
print(ex.submit(jobs.double, 1).result(timeout=60))
waits = ex.submit(bytes, 20 << 20)
with open("/dev/shm/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(1 << 20))
    except OSError:
        pass
pid = ex.workers()[0]
time.sleep(1)  # by now it waits for room
os.kill(pid, 15)
while pid in ex.workers():
    time.sleep(0.01)
os.unlink("/dev/shm/filler")
print(len(waits.result(timeout=60)))
ex.shutdown()
"""


def test_an_outcome_that_never_fits_is_an_error_and_no_worker_waits_for_ever_when_it_is_to_leave():
    """Found by an attack: it waited as an orphan, too, and did not heed SIGTERM."""
    from support import in_tiny

    said = in_tiny(NEVER.format(here=str(HERE), above=str(HERE.parent)), "48m")
    assert "the task has run, and what it returned is lost" in said.split("\n")[0]
    assert said.split("\n")[1:3] == ["2", str(20 << 20)]


# ---- the end of the interpreter, and Ctrl-C
def test_the_end_of_a_program_waits_for_what_it_submitted(path, tmp_path):
    seen = tmp_path / "seen"
    run_python(
        """
import sys, multiprocessing, shmq, jobs
ex = shmq.Executor(sys.argv[1], 1, multiprocessing.get_context("fork"))
for each in "abc":
    ex.submit(jobs.note, sys.argv[2], each)
""",
        path,
        seen,
        env=ENVIRONMENT,
    )
    assert jobs.lines(seen) == ["a", "b", "c"]


def test_the_end_of_a_program_without_workers_leaves_its_tasks(executor, path, tmp_path):
    seen = tmp_path / "seen"
    run_python(
        "import sys, shmq, jobs; shmq.Executor(sys.argv[1], 0).submit(jobs.note, sys.argv[2], 'a', key='k')",
        path,
        seen,
        env=ENVIRONMENT,
    )
    assert not seen.exists()
    assert executor(1).result("k", timeout=30) == "a"


PROGRAM = """
import sys, shmq, jobs, multiprocessing
if __name__ == "__main__":
    with shmq.Executor(sys.argv[1], 1, multiprocessing.get_context(sys.argv[3])) as ex:
        first = ex.submit(jobs.note_and_wait, sys.argv[2] + ".begun", sys.argv[2] + ".go")
        second = ex.submit(jobs.note, sys.argv[2], "b", key="second")
        print("here", flush=True)
        first.result()
"""


def terminal(path, seen, method="fork"):
    """A program in a process group of its own, which a terminal's Ctrl-C reaches as a whole."""
    words = [sys.executable, "-c", PROGRAM, str(path), str(seen), method]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )


def test_one_interrupt_waits_for_the_tasks_and_ends_no_worker(path, tmp_path):
    seen = tmp_path / "seen"
    with terminal(path, seen) as program:
        assert program.stdout.readline() == "here\n"
        until(lambda: jobs.lines(f"{seen}.begun"))
        os.killpg(program.pid, signal.SIGINT)
        time.sleep(0.2)
        assert program.poll() is None
        Path(f"{seen}.go").touch()
        _, said = program.communicate(timeout=DEADLINE)
    assert "KeyboardInterrupt" in said
    assert jobs.lines(seen) == ["b"]
    assert len(jobs.lines(f"{seen}.begun")) == 1


def test_a_second_interrupt_leaves_and_the_tasks_stay(executor, path, tmp_path):
    seen = tmp_path / "seen"
    with terminal(path, seen) as program:
        assert program.stdout.readline() == "here\n"
        until(lambda: jobs.lines(f"{seen}.begun"))
        end = time.monotonic() + DEADLINE
        while program.poll() is None and time.monotonic() < end:
            os.killpg(program.pid, signal.SIGINT)
            time.sleep(0.3)
        assert program.poll() is not None
        Path(f"{seen}.go").touch()  # its worker finishes, and leaves
        program.communicate()
    assert jobs.lines(seen) == []
    until(lambda: executor(0).workers() == [])
    assert executor(1).result("second", timeout=30) == "b"
    assert len(jobs.lines(f"{seen}.begun")) == 1


def test_an_interrupt_at_every_place_of_submit_loses_no_task(executor, tmp_path):
    """Raised at each call of the room in turn: what submit returned from runs, and the Executor goes on."""
    ex = executor(1)
    step = interrupted = 0
    while True:
        left = [step]

        def watch(frame, event, _, left=left):
            if event == "call" and "/shmq/executor/" in frame.f_code.co_filename:
                left[0] -= 1
                if left[0] < 0:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        sys.setprofile(watch)
        try:
            future = ex.submit(jobs.double, step, key=f"k{step}")
            sys.setprofile(None)
        except KeyboardInterrupt:
            interrupted += 1
            future = None
        finally:
            sys.setprofile(None)
        if future is not None and left[0] >= 0:
            break
        again = ex.submit(jobs.double, step, key=f"k{step}")
        assert again.result(timeout=30) == 2 * step
        step += 1
    assert interrupted > 20
    assert future.result(timeout=30) == 2 * step
    ex.shutdown()
    assert ex._engine.follower.count == 0


# ---- callbacks, threads, forks
def test_an_exception_in_every_callback_is_told_and_stops_nothing(executor, caplog):
    ex = executor(1)

    def fails(future):
        raise SystemExit("out of a callback")

    def fails_too(future):
        raise ValueError("of another one")

    for raises in (fails, fails_too):
        future = ex.submit(jobs.sleep, 0.2)
        future.add_done_callback(raises)
        assert future.result(timeout=30) == 0.2
    assert ex.submit(jobs.double, 3).result(timeout=30) == 6
    assert "of another one" in caplog.text
    assert "out of a callback" in caplog.text


def test_a_callback_may_submit_cancel_and_shut_down(executor):
    ex = executor(1)
    made = []

    def more(future):
        made.append(ex.submit(jobs.double, future.result()))
        made.append(ex.submit(jobs.sleep, 0.0))
        made[1].cancel()

    ex.submit(jobs.sleep, 0.2).add_done_callback(more)
    until(lambda: len(made) == 2)
    assert made[0].result(timeout=30) == 0.4
    concurrent.futures.wait(made, 30)
    last = ex.submit(jobs.sleep, 0.1)
    last.add_done_callback(lambda _: ex.shutdown())
    assert last.result(timeout=30) == 0.1
    until(lambda: ex._engine._stopped and not ex._engine.pids())


def test_many_threads_submit_at_once(executor):
    ex = executor(2)
    found = []

    def submit(first):
        found.extend(each.result(timeout=60) for each in [ex.submit(jobs.double, first + at) for at in range(50)])

    threads = [threading.Thread(target=submit, args=(100 * each,)) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == sorted(2 * (100 * first + at) for first in range(6) for at in range(50))


def in_a_fork(say, ex, future):
    try:
        ex.submit(jobs.double, 1)
    except shmq.Forked as problem:
        say("forked" if "open one here" in str(problem) else problem)
    for verb in (future.result, future.exception, future.cancel, future.kill, future.running):
        with pytest.raises(shmq.Forked, match="its outcome comes there"):
            verb()
    ex.shutdown()
    with shmq.Executor(ex.path, 0) as own:
        say(own.submit(jobs.double, 4).result(timeout=30))


def test_a_forked_child_opens_its_own_and_ends_nothing_of_its_parents(executor):
    ex = executor(1)
    until(lambda: len(ex.workers()) == 1)
    os.kill(ex.workers()[0], signal.SIGSTOP)  # so it is not done when the child is forked
    future = ex.submit(jobs.double, 2)
    with Child(in_a_fork, ex, future) as child:
        assert child.hear() == "forked"
        os.kill(ex.workers()[0], signal.SIGCONT)
        assert child.hear() == "8"
        assert child.join() == 0
    assert future.result(timeout=30) == 4
    assert ex.submit(jobs.double, 5).result(timeout=30) == 10


def test_found_a_child_that_a_task_forked_and_that_came_back_took_its_workers_run_file_away(executor, path, capfd):
    """By which others know that the worker lives, and kill what takes too long; and it ended in a traceback."""
    ex = executor(1, method="spawn")  # which has no handlers of a test
    assert ex.submit(jobs.come_back_twice).result(timeout=30) == 1
    assert ex.submit(jobs.come_back_twice).result(timeout=30) == 1  # of a kind that is known
    (worker,) = ex.workers()
    assert [each.split(".")[1] for each in os.listdir(f"{path}/workers") if each.endswith(".run")] == [str(worker)]
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert f"forked by a task of worker {worker}, and came back from it; it ends here" in said


def test_a_program_without_a_guard_of_main_is_told_and_does_not_start_workers_for_ever(path, tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"import shmq\nwith shmq.Executor({str(path)!r}, 2) as ex:\n    print(ex.submit(pow, 2, 3).result())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "ended while it imported" in done.stderr


def test_a_newer_task_is_left_to_newer_workers(executor, path):
    ex = executor(1)
    with shmq.open(path / "tasks") as tasks:
        tasks.put(b"\xff" + bytes(100))
        assert ex.submit(jobs.double, 1).result(timeout=30) == 2
        until(lambda: tasks.consumers()[names.GROUP].lag == 1)  # it is acknowledged behind its result
        assert not (path / "tasks.workers.dead").exists()


def test_a_task_that_is_none_is_a_dead_letter(executor, path):
    ex = executor(1)
    with shmq.open(path / "tasks") as tasks:
        tasks.put(b"\x01 no task")
        assert ex.submit(jobs.double, 1).result(timeout=30) == 2
        until(lambda: tasks.consumers()[names.GROUP].lag == 0)


def test_an_interrupt_while_workers_are_started_is_no_fault():
    """Ctrl-C ends the process that starts them for us as well."""

    class Guard:
        def start(self):
            raise EOFError("unexpected EOF")

    ends = threading.Event()
    with pytest.raises(EOFError):
        serving._start(Guard(), ends)
    ends.set()
    serving._start(Guard(), ends)
