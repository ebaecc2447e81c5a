"""Workers: started by any method, watched, replaced; and what they do when their starter ends, however it does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from support import Child, hold_until_killed, run_python, until

from shmq.workers import Ended, Ending, Workers
from shmq.workers.pace import FREE, LONGEST, QUICK, Pace

METHODS = ("forkserver", "spawn", "fork")


# ---- what workers do: found by name, so that they can be spawned
def idle(life, *_):
    life.say(b"here")
    life.wait(signal.pause)


def write_when_ending(life, path):
    """At work, and not waiting, until it is to end."""
    life.say(b"here")
    while not life.ending:
        time.sleep(0.002)
    Path(path, f"left-{os.getpid()}-{life.orphaned}").touch()


def end_with(life, status):
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def end_when_told(life, path):
    life.say(b"here")
    while not os.path.exists(path):
        time.sleep(0.002)


def raise_at_once(life):
    raise ValueError("on purpose")


class Seen:
    """What the callbacks of a pool were told."""

    def __init__(self, answer=None):
        self.ended: list[Ended] = []
        self.words: list[tuple[int, bytes]] = []
        self.answer = answer

    def on_end(self, ended):
        self.ended.append(ended)
        return self.answer

    def on_word(self, pid, word):
        self.words.append((pid, word))

    def here(self):
        return [pid for pid, word in self.words if word == b"here"]

    def given(self):
        return {"on_end": self.on_end, "on_word": self.on_word}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


# ---- start, watch, replace
def test_as_many_as_asked_for_are_there_and_leave_at_the_end(method):
    seen, left = Seen(), []
    with Workers(idle, count=2, context=method, on_left=left.append, **seen.given()) as workers:
        until(lambda: len(seen.here()) == 2)
        pids = workers.pids()
        assert sorted(seen.here()) == pids
    assert not any(alive(pid) for pid in pids)
    assert workers.pids() == []
    assert sorted((each.pid, each.exitcode) for each in left) == [(pid, 0) for pid in pids]
    assert seen.ended == []


def test_one_that_is_killed_is_replaced_and_told_by_its_signal(method):
    number = signal.SIGSEGV if method == "spawn" else signal.SIGKILL
    seen = Seen()
    with Workers(idle, count=2, context=method, **seen.given()) as workers:
        until(lambda: len(seen.here()) == 2)
        killed = workers.pids()[0]
        os.kill(killed, number)
        until(lambda: len(seen.here()) == 3)
        assert [(each.pid, each.signal) for each in seen.ended] == [(killed, number)]
        assert signal.Signals(number).name in str(seen.ended[0])
        assert len(workers.pids()) == 2
        assert killed not in workers.pids()


def test_one_that_returns_is_not_replaced(tmp_path):
    seen = Seen()
    with Workers(end_when_told, (str(tmp_path / "go"),), count=2, context="fork", **seen.given()) as workers:
        until(lambda: len(seen.here()) == 2)
        (tmp_path / "go").touch()
        until(lambda: workers.pids() == [])
        assert [each.exitcode for each in seen.ended] == [0, 0]
        assert workers.stop(timeout=5)


def test_whether_one_is_replaced_may_be_said(tmp_path):
    seen = Seen(answer=True)
    (tmp_path / "go").touch()
    with Workers(end_when_told, (str(tmp_path / "go"),), count=1, context="fork", **seen.given()):
        until(lambda: len(seen.ended) == 3)  # well ended, so no pause between them
    refused = Seen(answer=False)
    with Workers(end_with, (-9,), count=1, context="fork", **refused.given()) as workers:
        until(lambda: workers.pids() == [])
    assert len(refused.ended) == 1


def test_an_exception_in_every_callback_stops_nothing(caplog):
    def raises(*_):
        raise RuntimeError("on purpose")

    turns = []

    def turn():
        turns.append(1)
        raise SystemExit("on purpose")

    with Workers(idle, count=1, context="fork", on_end=raises, on_word=raises, on_turn=turn) as workers:
        (first,) = workers.pids()
        os.kill(first, signal.SIGKILL)
        until(lambda: workers.pids() not in ([first], []))
    assert "on purpose" in caplog.text
    assert turns


def test_a_turn_comes_when_it_asked_for_it_and_when_it_is_woken():
    turns = []

    def turn():
        turns.append(time.monotonic())
        return 0.01 if len(turns) < 5 else None

    with Workers(idle, count=1, context="fork", on_turn=turn) as workers:
        until(lambda: len(turns) >= 5)
        until(lambda: len(workers.pids()) == 1)
        before = len(turns)
        workers.wake()
        until(lambda: len(turns) > before)


# ---- signals
def test_an_interrupt_of_the_terminal_ends_none(method):
    seen = Seen()
    with Workers(idle, count=1, context=method, **seen.given()) as workers:
        until(lambda: len(seen.here()) == 1)
        (pid,) = workers.pids()
        for _ in range(3):
            os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        until(lambda: seen.ended)
        assert seen.ended[0].exitcode == 0  # by SIGTERM, and well: it was waiting


def test_by_sigterm_one_finishes_what_it_does(tmp_path):
    seen = Seen()
    with Workers(write_when_ending, (str(tmp_path),), count=1, context="fork", **seen.given()) as workers:
        until(lambda: len(seen.here()) == 1)
        (pid,) = workers.pids()
        os.kill(pid, signal.SIGTERM)
        until(lambda: seen.ended)
        assert (tmp_path / f"left-{pid}-False").exists()


def test_only_its_own_workers_get_its_signals():
    with Workers(idle, count=1, context="fork") as workers:
        (pid,) = workers.pids()
        assert not workers.signal(os.getpid(), signal.SIGKILL)
        assert workers.signal(pid, signal.SIGKILL)
        until(lambda: workers.pids() not in ([pid], []))


# ---- the end of the starter
def starter(say, method, path):
    seen = Seen()
    workers = Workers(write_when_ending, (path,), count=2, context=method, **seen.given())
    workers.start()
    until(lambda: len(seen.here()) == 2)
    say(" ".join(map(str, workers.pids())))
    hold_until_killed(say)


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_when_the_starter_is_killed_they_finish_and_leave(method, tmp_path):
    with Child(starter, method, str(tmp_path)) as child:
        pids = [int(each) for each in child.hear().split()]
        child.hear()
        child.kill()
    until(lambda: not any(alive(pid) for pid in pids))
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(f"left-{pid}-True" for pid in pids)


def forks_and_goes_on(say, path):
    workers = Workers(write_when_ending, (path,), count=1, context="fork")
    workers.start()
    with Child(hold_until_killed) as grandchild:
        grandchild.hear()
        say(f"{workers.pids()[0]} {grandchild.pid}")
        hold_until_killed(say)


def test_a_fork_of_the_starter_does_not_keep_them_alive(tmp_path):
    with Child(forks_and_goes_on, str(tmp_path)) as child:
        worker, grandchild = (int(each) for each in child.hear().split())
        child.hear()
        child.kill()
    try:
        until(lambda: not alive(worker))
        assert alive(grandchild)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_the_end_of_the_interpreter_ends_them():
    said = run_python(
        """
import os, sys
from shmq.workers import Workers, Ended
sys.path.insert(0, sys.argv[1])
from test_workers import idle
workers = Workers(idle, count=2, context="spawn")
workers.start()
print(*workers.pids())
""",
        Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    pids = [int(each) for each in said.split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_found_an_interrupt_that_ended_the_fork_server_before_it_had_begun_was_an_eof_error(tmp_path):
    """Which imports then, and hears of the terminal's Ctrl-C as any program does."""
    (tmp_path / "interrupted.py").write_text(
        "import os, signal\n"
        "if not os.path.exists('once'):\n"
        "    os.close(os.open('once', os.O_CREAT))\n"
        "    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    said = run_python(
        """
import multiprocessing, sys
sys.path[:0] = [sys.argv[1], "."]
from shmq.workers import Workers
from test_workers import idle
multiprocessing.set_forkserver_preload(["interrupted"])
with Workers(idle, count=2) as workers:
    print(len(workers.pids()))
""",
        Path(__file__).parent,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert said == "2\n"
    assert (tmp_path / "once").exists()


def test_found_an_interrupt_ended_the_first_one_that_was_spawned_before_it_could_ignore_it(tmp_path):
    """Beginning the tracker of resources, which comes with the first one, unblocks the signals that were to wait."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if any('spawn_main' in each for each in sys.orig_argv):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from shmq.workers import Workers
from test_workers import end_when_told
ended = []
with Workers(end_when_told, (sys.argv[2],), count=1, context="spawn", on_end=ended.append) as workers:
    workers._nobody.wait(60)
print(*[each.exitcode for each in ended])
"""
    where = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    said = run_python(code, Path(__file__).parent, tmp_path, env={**os.environ, "PYTHONPATH": where})
    assert said == "0\n"


def in_a_fork(say, workers):
    say(workers.pids())
    workers.kill()
    say(workers.stop())


def test_a_forked_child_has_none_and_ends_none():
    with Workers(idle, count=1, context="fork") as workers:
        before = workers.pids()
        with Child(in_a_fork, workers) as child:
            assert child.hear() == "[]"
            assert child.hear() == "True"
            assert child.join() == 0
        assert workers.pids() == before
        assert alive(before[0])


# ---- stopping
def test_a_stopped_one_is_waited_for_as_long_as_asked_and_can_be_killed():
    seen = Seen()
    workers = Workers(idle, count=1, context="fork", **seen.given())
    workers.start()
    until(seen.here)
    (pid,) = workers.pids()
    os.kill(pid, signal.SIGSTOP)
    assert not workers.stop(timeout=0.05)
    workers.kill()
    assert workers.stop(timeout=20)
    assert not alive(pid)


def test_what_cannot_be_started_is_raised_and_leaves_nothing_behind():
    threads = threading.active_count()
    workers = Workers(idle, (threading.Lock(),), count=2, context="spawn")
    with pytest.raises(TypeError, match="pickle"):
        workers.start()
    assert workers.pids() == []
    assert threading.active_count() <= threads


def test_a_worker_that_cannot_be_started_again_is_tried_later(monkeypatch, caplog):
    from shmq.workers import pool

    monkeypatch.setattr(pool, "LONGEST", 0.05)
    seen = Seen()
    with Workers(idle, count=1, context="fork", **seen.given()) as workers:
        until(seen.here)
        real, failing = pool.Started, []

        def fail_twice(*arguments):
            failing.append(1)
            if len(failing) <= 2:
                raise BlockingIOError("no more processes, on purpose")
            return real(*arguments)

        monkeypatch.setattr(pool, "Started", fail_twice)
        os.kill(workers.pids()[0], signal.SIGKILL)
        until(lambda: len(seen.here()) == 2)
    assert "no more processes" in caplog.text


# ---- the pace
def test_three_quick_deaths_are_followed_at_once_then_ever_more_slowly():
    pace = Pace()
    pauses = [pace.pause(0.01) for _ in range(12)]
    assert pauses[:FREE] == [0.0] * FREE
    assert pauses[FREE:] == sorted(pauses[FREE:])
    assert pauses[FREE] > 0
    assert pauses[-1] == LONGEST
    assert pace.pause(QUICK) == 0.0
    assert pace.pause(0.01) == 0.0


def test_workers_that_die_at_once_do_not_take_the_machine(capfd):
    seen = Seen()
    with Workers(raise_at_once, count=1, context="fork", **seen.given()):
        until(lambda: len(seen.ended) >= FREE)
        time.sleep(0.5)
        assert len(seen.ended) <= FREE + 5
    assert {each.exitcode for each in seen.ended} == {1}
    assert "on purpose" in capfd.readouterr().err


# ---- Ctrl-C at every place
def test_an_interrupt_anywhere_in_start_leaves_no_worker():
    here = os.getpid()
    for step in range(0, 40, 3):
        calls = [step]

        def watch(frame, event, _, calls=calls):
            if os.getpid() == here and event == "call" and "/shmq/workers/" in frame.f_code.co_filename:
                calls[0] -= 1
                if calls[0] < 0:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        workers = Workers(idle, count=2, context="fork")
        sys.setprofile(watch)
        try:
            workers.start()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        workers.stop(timeout=20)
    until(lambda: not multiprocessing.active_children())


def test_multiprocessing_may_still_join_who_has_left():
    """Its exit goes through all children while the workers leave, and breaks off where one was closed."""
    seen = Seen()
    with Workers(idle, count=2, context="fork", **seen.given()):
        until(lambda: len(seen.here()) == 2)
        known = multiprocessing.active_children()
    assert len(known) == 2
    for each in known:
        each.join()


def test_ending_is_no_exception_of_a_program():
    assert not issubclass(Ending, Exception)
