"""`shmq bisect`: the first message that makes a handler fail, the few that it takes, and the case as a test."""

import datetime
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest
from support import until

import shmq
from shmq.cli import main
from shmq.cli.bisection import case, child
from shmq.cli.bisection.runs import Outcome
from shmq.cli.bisection.search import Search

HANDLERS = """
import os, pathlib, time

accounts, total = {}, 0

def book(message):  # alone, the last message raises something else
    word = message.payload
    if word.startswith("open "):
        accounts[word[5:]] = True
    elif word.startswith("pay "):
        if accounts[word[4:]]:
            raise ValueError(f"{word[4:]} has no cover")

def die(message):
    if message.payload == "pay a":
        os.kill(os.getpid(), 11)

def leave(message):
    if message.payload == "pay a":
        os._exit(0)

def hang(message):
    while message.payload == "pay a":
        pass

def count(message):
    global total
    total += message.payload == "one"

def is_small():
    return total < 5

def once(message):
    if message.payload == "pay a" and not pathlib.Path("seen").exists():
        pathlib.Path("seen").touch()
        raise ValueError("only once")

def slow(message):
    if message.payload == "pay a":
        if message.headers.get("first") or pathlib.Path("seen").exists():
            pathlib.Path("pid").write_text(str(os.getpid()))
            time.sleep(600)
        pathlib.Path("seen").touch()
        raise ValueError("slow the second time")
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Some messages, of which two belong to what fails; the handlers in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs_to_bisect.py").write_text(HANDLERS)
    with shmq.open("log", codec="text") as queue:
        for number in range(16):
            queue.put({9: "open a", 13: "pay a"}.get(number, "one"), time_ns=number + 1)
        yield queue


def bisect(capsys, *words):
    status = main(["bisect", "log", "--shorten", "9999", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def text(path):
    return pathlib.Path(path).read_text()


def pytest_of(path):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", path]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)


def test_the_case_has_only_what_it_takes_and_is_a_test_without_the_queue(log, capsys, tmp_path):
    status, found = bisect(capsys, "jobs_to_bisect:book", "--again", "2")
    assert (status, found["index"], found["needed"], found["case"]) == (0, 13, 2, "test_book_13.py")
    assert found["what"] == "ValueError: a has no cover"
    assert found["failed_again"] == found["again"] == 2
    log.close()
    shmq.delete("log")
    assert [json.loads(line)["index"] for line in text("test_book_13.jsonl").splitlines()] == [9, 13]
    said = pytest_of("test_book_13.py")
    assert said.returncode == 1
    assert "ValueError: a has no cover" in said.stdout
    (tmp_path / "jobs_to_bisect.py").write_text("def book(message):\n    assert message.type == 0\n")
    assert pytest_of("test_book_13.py").returncode == 0


@pytest.mark.parametrize(
    ("handler", "kind", "what"),
    [
        ("die", "signal", "killed by SIGSEGV"),
        ("leave", "exit", "its process ended with status 0"),
        pytest.param("hang", "timeout", "no end after 5 s", marks=pytest.mark.slow),
    ],
)
def test_a_handler_that_ends_its_process_or_hangs_is_found(log, capsys, handler, kind, what):
    status, found = bisect(capsys, f"jobs_to_bisect:{handler}", "--timeout", "5", "--again", "1", "--from", "13")
    assert (status, found["index"], found["kind"], found["what"]) == (0, 13, kind, what)
    assert (found["needed"], found["failed_again"]) == (1, 1)
    if kind != "exit":
        assert f"in {handler}" in found["text"]
    assert f"test_{handler} " in pytest_of(found["case"]).stdout


def test_a_check_that_fails_afterwards_is_searched_for(log, capsys):
    words = ["jobs_to_bisect:count", "--check", "jobs_to_bisect:is_small", "--shorten", "0", "--again", "0"]
    status, found = bisect(capsys, *words)
    assert (status, found["index"], found["kind"]) == (0, 4, "check")
    assert found["runs"] < 10
    assert "assert checks.is_small() is not False" in text(found["case"])


def test_when_nothing_fails_there_is_no_case(log, capsys):
    assert bisect(capsys, "jobs_to_bisect:book", "--from", "10", "--to", "13") == (1, {"failed": False, "messages": 3})
    assert not [name for name in os.listdir() if name.endswith(".jsonl")]


def test_what_does_not_fail_again_is_told(log, capsys):
    status, found = bisect(capsys, "jobs_to_bisect:once", "--from", "12", "--case", "test_flaky.py")
    assert (status, found["index"], found["others_failed_too"], found["failed_again"]) == (0, 13, False, 0)
    os.unlink("seen")
    assert main(["bisect", "log", "jobs_to_bisect:once", "--from", "13"]) == 0
    assert "failed 0 of 3 times: IT DOES NOT FAIL EACH TIME" in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_found_and_leaves_no_process(log):
    words = [sys.executable, "-m", "shmq", "bisect", "log", "jobs_to_bisect:slow"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: os.path.exists("pid") and text("pid"), 200)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (130, "")
    assert "at message 13" in out
    assert "14 are enough, and there was no time" in out
    with pytest.raises(ProcessLookupError):
        os.kill(int(text("pid")), 0)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["missing", "jobs_to_bisect:book"], 1, "missing"),
        (["log", "jobs_to_bisect:nothing"], 1, "jobs_to_bisect has no nothing"),
        (["log", "jobs_to_bisect:book", "--check", "jobs_to_bisect:nothing"], 1, "jobs_to_bisect has no nothing"),
        (["log", "jobs_to_bisect:book", "--case", "jobs_to_bisect.py"], 2, "is left as it is"),
        (["log", "jobs_to_bisect:book", "--case", "no/test_a.py"], 2, "no such directory"),
        (["log", "jobs_to_bisect:book", "--case", "case.txt"], 2, "ends with .py"),
        (["log", "jobs_to_bisect:book", "--from", "soon"], 2, "--from 'soon' is not an index"),
        (["pickles", "jobs_to_bisect:book"], 1, "--trusted"),
    ],
)
def test_what_cannot_be_done_is_said(log, capsys, words, status, said):
    shmq.open("pickles", codec="pickle", trusted=True).close()
    assert main(["bisect", *words]) == status
    assert said in capsys.readouterr().err
    assert not [name for name in os.listdir() if name.endswith(".jsonl")]


# ---------------------------------------------------------------- the files
@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        ("bytes", b"\xff\x00"),
        ("text", 'h\u00e9"\n'),
        ("json", {"n": [1, 2.5, None]}),
        ("msgpack", {"t": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), "b": b"\xff"}),
        ("pickle", {1, 2}),
    ],
)
def test_a_case_hands_over_what_the_queue_did(tmp_path, monkeypatch, codec, payload):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "messages.py").write_text("def handle(message): ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with shmq.open("log", codec=codec, trusted=True) as queue:
        queue.put(payload)
        queue.put(payload, key=b"\xfe", type=9, time_ns=5, headers={"b": b"\xff"})
        queue.put(payload, key=b"eu", headers={"a": [1]})
        told = {"title": "what\x00'''", "story": "", "apart": None}
        case.write("test_case.py", queue, queue.reader(), "messages:handle", None, told)
        fields = [(m.payload, bytes(m.view), m.key, m.type, m.time_ns, m.headers) for m in queue.reader()]
    found = [(m.payload, bytes(m.view), m.key, m.type, m.time_ns, m.headers) for m in child.of_case("test_case.py")]
    assert found == fields
    sys.modules.pop("messages", None)
    sys.modules.pop("_shmq_case", None)


# ---------------------------------------------------------------- the search alone
class Imagined:
    """Runs of a handler that fails at *last* once it has seen all of *needed*, and in another way without."""

    def __init__(self, needed, last):
        self.needed, self.last, self.made = needed, last, 0

    def over(self, ranges):
        self.made += 1
        given = [index for first, stop in ranges for index in range(first, stop) if index <= self.last]
        if self.last not in given:
            return Outcome("none", None, len(given))
        place = "right" if self.needed <= set(given) else "wrong"
        return Outcome("raised", self.last, len(given), "ValueError", "ValueError", place)


@pytest.mark.parametrize("seed", range(40))
def test_the_search_ends_with_exactly_what_is_needed(seed):
    chance = random.Random(seed)
    last = chance.randrange(2000)
    needed = {chance.randrange(last + 1) for _ in range(chance.randrange(4))} - {last}
    keys = {index: b"k%d" % (index % 3) for index in range(2000)}
    runs = Imagined(needed, last)

    def indexes(first, stop, key):
        return [index for index in range(first, stop) if key is None or keys[index] == key]

    found = Search(runs, 0, 2000, indexes, checks=False).run(keys.get, 60.0)
    kept = {index for first, stop in found.kept for index in range(first, stop)}
    assert kept == needed | {last}
    assert runs.made < 150
