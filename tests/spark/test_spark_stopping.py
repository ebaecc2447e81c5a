"""A pipeline that is asked to stop ends well, at whatever moment it is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import shmq
from shmq.spark import spec, stopping

pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")

PIPELINE = """
[pipeline]
name = "test"
checkpoint = "ckpt"

[source.events]
queue = "q"

[archive]
to = "archive"
"""
ASKED = """
import atexit, os, signal, sys
from shmq.cli import main
from shmq.spark import setup

def session(*_, **__):
    atexit.register(os.kill, os.getpid(), signal.SIGTERM)  # as Spark is stopped
    os.kill(os.getpid(), signal.SIGTERM)
    return object()  # none that could do anything

setup.session = session
sys.exit(main(["pipeline", "run", sys.argv[1], "--once"]))
"""

DRY = """
import os, signal, sys
from shmq.cli import main
from shmq.spark import setup

def session(*_, **__):
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    print("started", flush=True)
    return object()  # none that could do anything

setup.session = session
sys.exit(main(["pipeline", "run", sys.argv[1], "--dry-run"]))
"""


@pytest.fixture
def file(tmp_path):
    """A pipeline that archives two shards of 100 messages."""
    (tmp_path / "q").mkdir()
    for number in range(2):
        with shmq.open(tmp_path / "q" / f"0.00{number}") as queue:
            queue.put_many([b"x"] * 100)
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE)
    return path


def test_found_asked_while_spark_starts_it_ends_with_0(file):
    """Signals were heard from the moment that it ran: until then, and while Spark was stopped, they killed it."""
    words = [sys.executable, "-c", ASKED]
    done = subprocess.run([*words, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_found_a_dry_run_that_is_ended_as_spark_starts_leaves_no_jvm(file, name):
    """It ended at once, and a JVM that then cannot say where it listens never ends: now it ends when that is said."""
    words = [sys.executable, "-c", DRY]
    done = subprocess.run([*words, str(file), name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "started\n"), done.stderr


def test_signals_are_heard_also_where_spark_has_taken_them_away_and_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for number in (signal.SIGTERM, signal.SIGINT):
        with stopping.Stopping() as stop:
            assert not stop.asked.is_set()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does
            stop.listen()
            os.kill(os.getpid(), number)
            assert stop.asked.wait(5)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("give", [signal.raise_signal, signal.getsignal], ids=["to us", "to another thread"])
def test_found_ctrl_c_as_spark_starts_asks_and_does_not_break_into_it(give):
    """Spark's own handler answered it in the middle of its talk with the JVM: two tracebacks, and no orderly end."""

    def spark_takes_it(*_):
        raise KeyboardInterrupt

    with stopping.Stopping() as stop:
        begun = False
        with stop.starting():
            signal.signal(signal.SIGINT, spark_takes_it)
            if give is signal.raise_signal:
                give(signal.SIGINT)
            else:
                give(signal.SIGINT)(signal.SIGINT, None)  # as Python does it here, whichever thread was given it
            begun = True
        assert begun == (give is signal.raise_signal)
        assert stop.asked.wait(5)
        assert signal.getsignal(signal.SIGINT) == stop.ask
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_found_asked_while_it_archives_it_stops_between_two_files(file):
    """It went on to the end, which of a long queue took hours."""
    from shmq.spark import archive, pipeline

    told = []
    stop = stopping.Stopping()
    run = pipeline.Run(spec.read(str(file)), None, told.append, stop.asked)
    stop.ask()
    run._archive()
    assert [each["rows"] for each in told] == [100]
    stop.asked.clear()
    run._archive()
    assert [each["rows"] for each in told] == [100, 100]
    run.close()
    assert archive.verify(str(file.parent / "archive")) == []
