"""`shmq replicate` and `shmq promote`, as commands."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

import pytest
from following import content
from support import Child, until

import shmq
from shmq import replica
from shmq.cli import main
from shmq.replica.service import Stop


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM):
        monkeypatch.setattr(signal, "signal", lambda *_: None)  # they are this process's own
        assert number
    with shmq.open("a") as queue:
        queue.put_many([b"1", b"2"])
        yield tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    status = main(list(words))
    return status, *capsys.readouterr()


def test_once_and_promoted(here, capsys):
    assert run(capsys, "replicate", "--once", "a", "b") == (0, "", "")
    assert content(here / "b") == content(here / "a")
    assert run(capsys, "put", "b", "x")[2].startswith("shmq: cannot put: ")
    status, out, _ = run(capsys, "promote", "b")
    assert (status, "a queue of its own, in epoch 2: it has what came before index 2" in out) == (0, True)
    assert run(capsys, "put", "b", "x")[0] == 0
    assert run(capsys, "promote", "b")[0] == 1
    status, _, err = run(capsys, "replicate", "--once", "a", "b")
    assert (status, "is fenced" in err) == (1, True)


def test_what_is_asked_for_wrongly(here, capsys):
    assert run(capsys, "replicate", "b")[0] == 2
    assert run(capsys, "replicate", "--listen", "unix:door", "a", "b")[0] == 2
    status, _, err = run(capsys, "replicate", "--listen", "tcp:127.0.0.1:0", "b")
    assert (status, "without a token" in err) == (1, True)


def test_found_a_link_that_is_not_there_was_not_named(here, capsys, caplog, monkeypatch):
    """The error said `No such file or directory`, and so did the line that says that it is tried again."""
    assert run(capsys, "replicate", "--once", "a", "unix:door") == (
        1,
        "",
        "shmq: unix:door: No such file or directory\n",
    )
    stop = Stop()
    monkeypatch.setattr(stop, "pause", lambda _: stop())
    with caplog.at_level(logging.WARNING, "shmq"):
        replica.replicate("a", "unix:door", stop=stop)
    (line,) = caplog.messages
    assert line.startswith("cannot replicate a to unix:door now: ")
    assert line.endswith("No such file or directory: 'unix:door'; it is tried again")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_commands_and_their_end(tmp_path, monkeypatch, number):
    """One listens, one sends; a signal ends each, and what was put is there."""
    monkeypatch.chdir(tmp_path)
    with shmq.open("a") as queue:
        queue.put_many([b"1", b"2"])
    listening = Child(lambda say: say(main(["replicate", "--listen", "unix:door", "b"])))
    until((tmp_path / "door").exists)
    with listening, Child(lambda say: say(main(["replicate", "a", "unix:door", "--name", "b"]))) as sending:
        until(lambda: (tmp_path / "b").exists() and content(tmp_path / "b") == content(tmp_path / "a"))
        for each in (sending, listening):
            each.signal(number)
            assert each.hear() == "0"


@pytest.mark.parametrize("target", ["bad:addr", "csp://host/b", "shm:b", "tls:host:1"])
def test_what_looks_like_an_address_and_is_none_is_no_directory(here, capsys, target):
    """Unless it says so."""
    for words in (["--once", "a", target], ["--listen", "unix:door", target]):
        status, _, err = run(capsys, "replicate", *words)
        assert (status, "a directory, unix:PATH or tcp:HOST:PORT is wanted" in err) == (1, True)
    assert sorted(file.name for file in here.iterdir()) == ["a"]
    assert run(capsys, "replicate", "--once", "a", "./bad:addr")[0] == 0
    assert content(here / "bad:addr") == content(here / "a")


def test_who_listens_says_where(tmp_path):
    words = ["replicate", "--listen", "unix:door", "b"]
    with subprocess.Popen([sys.executable, "-m", "shmq", *words], stderr=subprocess.PIPE, cwd=tmp_path) as listening:
        assert listening.stderr.readline() == b"shmq: b follows whoever comes to unix:door\n"
        listening.terminate()
        assert listening.wait(60) == 0
