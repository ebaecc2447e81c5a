"""`shmq replay` of a queue: into another one, once whatever is killed, or into a function; the source is only read."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest
from support import Child, until

import shmq
from shmq.cli import main

WORDS = ["one", "two", "three", "four"]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Four messages, a second apart, with everything that a message has."""
    monkeypatch.chdir(tmp_path)
    with shmq.open("log", codec="json") as queue:
        for number, word in enumerate(WORDS):
            queue.put(
                word, key=b"ab"[number % 2 :][:1], type=number, time_ns=(number + 1) * 10**9, headers={"n": number}
            )
        yield queue


@pytest.fixture
def handler(tmp_path, monkeypatch):
    """A module in the current directory that keeps what it was given, and fails at "three"."""
    (tmp_path / "kept_handler.py").write_text(
        "got = []\ndef keep(message):\n    got.append(message.payload)\n"
        "    if message.payload == 'three':\n        raise ValueError('no threes')\nasync def later(message): ...\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield lambda: sys.modules["kept_handler"].got
    sys.modules.pop("kept_handler", None)


def fields(queue):
    return [(m.payload, m.key, m.type, m.time_ns, m.headers) for m in queue.reader()]


def replayed(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [m.payload for m in queue.reader()]


def test_a_queue_is_put_into_another_one_with_all_fields_and_once(log, capsys):
    assert main(["replay", "log", "again"]) == 0
    assert "put 4 messages into again" in capsys.readouterr().out
    with shmq.open("again", create=False) as again:
        assert fields(again) == fields(log)
        assert again.options.codec == "json"
    log.put("five")
    assert main(["replay", "log", "again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 1
    assert replayed("again") == [*WORDS, "five"]
    assert log.consumers() == {}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--from", "1", "--to", "3"], ["two", "three"]),
        (["--from", "1970-01-01T00:00:02+00:00", "--to", "4.0"], ["two", "three"]),
        (["--key-prefix", "b"], ["two", "four"]),
        (["--type", "3", "--type", "0"], ["one", "four"]),
        (["--speed", "1000"], WORDS),
        (["--from", "latest"], []),
    ],
)
def test_only_what_was_asked_for_is_put(log, words, found):
    assert main(["replay", "log", "again", *words]) == 0
    assert replayed("again") == found


def test_a_longer_replay_goes_on_and_another_beginning_is_another_replay(log):
    assert main(["replay", "log", "again", "--to", "2"]) == 0
    assert main(["replay", "log", "again"]) == 0
    assert replayed("again") == WORDS
    assert main(["replay", "log", "again", "--from", "3"]) == 0
    assert replayed("again") == [*WORDS, "four"]


def test_messages_come_as_far_apart_as_they_were(log, monkeypatch):
    slept, now = [], [100.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("shmq.cli.again.time.sleep", sleep)
    monkeypatch.setattr("shmq.cli.again.time.monotonic", lambda: now[0])
    assert main(["replay", "log", "again", "--speed", "2"]) == 0
    assert slept == [0.5, 0.5, 0.5]


def test_killed_anywhere_it_goes_on_and_puts_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with shmq.open("log") as queue, shmq.open("again") as again:
        queue.put_many([b"%d" % number for number in range(8000)])
        queue.put_many([b"%d" % number for number in range(8000, 16000)])
        kills = 0
        for part in (1000, 4000, 9000):
            with Child(lambda _: main(["replay", "log", "again"])) as child:
                until(lambda part=part: again.next_index > part)
                child.kill()
                kills += child.join() == -signal.SIGKILL
        assert kills == 3
        assert main(["replay", "log", "again"]) == 0
        assert [m.payload for m in again.reader()] == [b"%d" % number for number in range(16000)]


def test_a_function_gets_each_message_until_it_raises(log, handler, capsys):
    assert main(["replay", "log", "kept_handler:keep"]) == 1
    said = capsys.readouterr()
    assert handler() == ["one", "two", "three"]
    assert "called kept_handler:keep with 3 messages, 1 of which failed" in said.out
    assert "failed at message 2 of log: ValueError: no threes; 2 before it were handled, --from 2 begins" in said.err
    assert main(["replay", "log", "kept_handler:keep", "--from", "3"]) == 0


def test_failures_are_counted_where_that_was_asked_for(log, handler, capsys):
    assert main(["replay", "log", "kept_handler:keep", "--continue", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["messages"], told["failed"], told["next"]) == (4, 1, 4)
    assert handler() == WORDS


def test_step_shows_each_message_and_ends_with_its_input(log, handler, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    assert main(["replay", "log", "kept_handler:keep", "--step", "--format", "repr"]) == 0
    assert handler() == ["one", "two"]
    assert "2  'three'" in capsys.readouterr().out  # it was shown, and not handled


def test_ctrl_c_says_where_it_ended(log):
    words = [sys.executable, "-m", "shmq", "replay", "log", "again", "--speed", "0.001"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: os.path.exists("again/queue.shmq") and replayed("again") == ["one"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "put 1 message into again\n")
    assert err == "shmq: ended before message 1 of log; the same words go on there\n"


@pytest.mark.parametrize("behind", [True, False])
def test_found_a_message_that_was_put_before_ctrl_c_was_not_counted(log, capsys, monkeypatch, behind):
    """It came between the put and the line that counts it: "put 0 messages", and one was there."""
    put = shmq.Queue.put

    def interrupted(queue, payload, **fields):
        if behind:
            put(queue, payload, **fields)
        raise KeyboardInterrupt

    monkeypatch.setattr(shmq.Queue, "put", interrupted)
    assert main(["replay", "log", "again"]) == 130
    out, err = capsys.readouterr()
    assert out == f"put {'1 message' if behind else '0 messages'} into again\n"
    assert f"ended before message {int(behind)} of log" in err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["log", "log"], 2, "is the queue that is replayed"),
        (["log", "again", "--since", "2013-01-01"], 2, "--since: log is a queue"),
        (["log", "again", "--continue"], 2, "is a queue, and no function"),
        (["log", "again", "--from", "soon"], 2, "--from 'soon' is not an index"),
        (["nothing", "kept_handler:keep"], 2, "is not a queue"),
        (["log", "no_such_module:keep"], 1, "cannot import no_such_module"),
        (["log", "kept_handler:missing"], 1, "kept_handler has no missing"),
        (["log", "kept_handler:got"], 1, "nothing that can be called"),
        (["log", "kept_handler:later"], 1, "a coroutine function"),
    ],
)
def test_what_is_asked_for_wrongly_is_said(log, handler, capsys, words, status, said):
    assert main(["replay", *words]) == status
    assert said in capsys.readouterr().err
    assert not os.path.exists("nothing")
