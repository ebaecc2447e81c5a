"""Flows that are killed and interrupted, and go on: each output once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from killing import kill_workers
from runs import Running
from stages import noted
from support import in_tiny, until

import shmq
from shmq.flow.bench import Bench

LONG = 60.0
TWO = ".stage(uneven, workers=2).stage(add_a_million, workers=2)"
ORDERED = ".stage(uneven, workers=2, ordered=True).stage(uneven, workers=2, ordered=True)"


def out(path):
    with shmq.open(f"{path}/out", create=False, trusted=True) as queue:
        return [message.payload for message in queue.reader()]


def came_out(path):
    """How many have, so far."""
    with contextlib.suppress(shmq.NotFound), shmq.open(f"{path}/out", create=False, trusted=True) as queue:
        return len(queue)
    return 0


@pytest.mark.parametrize("stages", [TWO, ORDERED], ids=["plain", "ordered"])
def test_all_of_it_is_killed_again_and_again_and_goes_on(path, stages):
    """With SIGKILL, at random moments: in the end each output is there once."""
    count = 250
    chance = random.Random(3)
    killed = 0
    while True:
        run = Running(path, stages, count)
        before = came_out(path)
        if killed < 3:
            with contextlib.suppress(AssertionError):
                until(lambda: came_out(path) > before + 30 or run.process.poll() is not None, LONG)  # noqa: B023
            time.sleep(chance.random() * 0.05)
            run.kill_all()
            killed += 1
            continue
        status, told, problem = run.end()
        assert (status, told) == (0, f"{count} 0\n"), problem
        break
    got = out(path)
    assert sorted(got) == [n + (1_000_000 if stages == TWO else 0) for n in range(count)]
    assert stages == TWO or got == sorted(got)


def test_ctrl_c_once_lets_what_is_there_go_through(path):
    """And nothing more is taken from the source; the next run goes on."""
    run = Running(path, ".stage(uneven, workers=2).stage(slow, workers=2, bound=500)", 100_000, pause=0.001)
    until(lambda: came_out(path) > 20, LONG)
    run.interrupt()
    status, told, problem = run.end()
    assert told == ""
    assert status != 0
    assert "KeyboardInterrupt" in problem
    done = came_out(path)
    assert done > 20
    for name in ("0.uneven", "1.slow"):
        with shmq.open(f"{path}/{name}", create=False, trusted=True) as queue:
            assert queue.consumers()["stage"].lag == 0
    with shmq.open(f"{path}/0.uneven", create=False, trusted=True) as first:
        assert first.adopted("source")[0] == done
    status, told, problem = Running(
        path, ".stage(uneven, workers=2).stage(slow, workers=2, bound=500)", done + 50
    ).end()
    assert (status, told) == (0, f"{done + 50} 0\n"), problem
    assert sorted(out(path)) == list(range(done + 50))


def test_ctrl_c_is_raised_also_when_the_whole_source_was_in_the_queues_already(path):
    """Found by a new user: the run went on to its end, and the program behind it as if nobody had pressed it."""
    stages = ".stage(slow, bound=5000)"
    run = Running(path, stages, 200)
    until(lambda: came_out(path) > 5, LONG)
    run.interrupt()
    status, told, problem = run.end()
    assert (status != 0, told) == (True, "")
    assert "KeyboardInterrupt" in problem
    assert came_out(path) == 200
    assert Running(path, stages, 200).end()[:2] == (0, "200 0\n")


def test_ctrl_c_twice_leaves_at_once_and_can_be_gone_on_with(path):
    """What was in the queues stays there."""
    stages = ".stage(same).stage(slow, bound=5000)"
    run = Running(path, stages, 800)
    until(lambda: came_out(path) > 5, LONG)
    run.interrupt()
    time.sleep(0.3)
    run.interrupt()
    status, told, problem = run.end()
    assert told == ""
    assert status != 0
    assert "KeyboardInterrupt" in problem
    assert came_out(path) < 800
    until(lambda: run.others() == [], LONG)
    status, told, problem = Running(path, ".stage(same).stage(slow, bound=5000, workers=3)", 800).end()
    assert (status, told) == (0, "800 0\n"), problem
    assert sorted(out(path)) == list(range(800))


def test_workers_of_a_starter_that_was_killed_leave(path):
    """Also those that wait for room in a queue that nobody empties any more."""
    stages = f".stage(same, workers=2).sink(Notes({path + '.notes'!r}, pause=0.05), bound=2)"
    run = Running(path, stages, 1000)
    until(lambda: len(noted(f"{path}.notes")) > 2, LONG)
    assert len(run.others()) >= 3
    run.kill_starter()
    until(lambda: run.others() == [], LONG)


def test_an_interpreter_that_ends_in_the_middle_leaves_nobody_behind(path, tmp_path):
    """The flow runs in a daemon thread, which nobody waits for."""
    program = tmp_path / "ends.py"
    program.write_text(
        f"""
import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import shmq
from shmq.flow.bench import Bench
from stages import *
if __name__ == "__main__":
    flow = shmq.Flow({path!r}).stage(slow, workers=2)
    threading.Thread(target=flow.run, args=(range(1000),), daemon=True).start()
    while not (os.path.exists({path!r} + "/out/queue.shmq") and len(shmq.open({path!r} + "/out", trusted=True)) > 5):
        time.sleep(0.01)
"""
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert 5 < came_out(path) < 1000
    status, _, problem = Running(path, ".stage(slow, workers=2)", 300).end()
    assert status == 0, problem
    assert sorted(out(path))[:300] == list(range(300))


def test_forked_workers_do(path):
    """In a program of one thread."""
    status, told, problem = Running(
        path, ".stage(lambda item: [item]).stage(same, ordered=True)", 50, context="fork"
    ).end()
    assert (status, told) == (0, "50 0\n"), problem
    assert sorted(out(path)) == [[n] for n in range(50)]


def test_a_worker_that_is_asked_to_leave_by_a_stranger_is_replaced(path):
    """SIGTERM is no end of the stage."""
    run = Running(path, ".stage(slow)", 200)
    until(lambda: came_out(path) > 5, LONG)
    workers = [pid for pid in run.others() if "shmq-flow" in Path(f"/proc/{pid}/cmdline").read_text() or True]
    os.kill(max(workers), signal.SIGTERM)
    status, told, problem = run.end()
    assert (status, told) == (0, "200 0\n"), problem
    assert sorted(out(path)) == list(range(200))


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_workers_killed_at_random_lose_and_double_nothing(path, ordered):
    """A short share of the campaign (tests/flow/campaign.py)."""
    kills = kill_workers(path, kills=8, seed=1, ordered=ordered)
    assert kills >= 8


FULL = """
import os, sys, threading, time
sys.path.insert(0, %r)
from stages import *
if __name__ == "__main__":
    flow = shmq.Flow("/dev/shm/flow").stage(same, workers=2).stage(same, bound=100_000)
    with open("/dev/shm/filler", "wb") as filler:
        try:
            while True:
                filler.write(bytes(1 << 16)); filler.flush()
        except OSError:
            pass
    os.truncate("/dev/shm/filler", os.path.getsize("/dev/shm/filler") - (3 << 20))
    thread = threading.Timer(4.0, os.unlink, ("/dev/shm/filler",))
    thread.start()
    items = [bytes(2000) + b"%%d" %% n for n in range(3000)]
    summary = flow.run(items)
    thread.join()
    with shmq.open("/dev/shm/flow/out", create=False, trusted=True) as q:
        got = sorted(m.payload for m in q.reader())
    print(summary.items, summary.dead, got == sorted(items))
"""


def test_a_disk_that_is_full_for_a_while_is_waited_for(tmp_path):
    """Nothing is lost, doubled or given up."""
    assert in_tiny(FULL % str(Path(__file__).parent), "64m").split() == ["3000", "0", "True"]


def test_a_worker_that_finds_no_room_to_begin_waits_for_it(tmp_path):
    """It died, and a stage whose workers die before they can begin is given up: the flow with it."""
    tried = []

    class Opening(Bench):
        def _open(self):
            tried.append(1)
            if len(tried) < 4:
                raise shmq.DiskFull("no room yet")

    life = SimpleNamespace(ending=False, wait=lambda call: call())
    bench = Opening(life, SimpleNamespace(path=tmp_path), 0, SimpleNamespace(name="same"), None)
    with bench:
        assert len(tried) == 4
