"""What is worth a line in the log `shmq`, and that nobody hears of it who has not asked."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest
from support import Child, hold_until_killed, in_tiny, make_unclean

import shmq
from shmq.cli import main


@pytest.fixture
def said(caplog):
    """(level, line) of each so far, and none is left."""
    caplog.set_level(logging.INFO, logger="shmq")

    def heard() -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "shmq"]
        caplog.clear()
        return found

    return heard


def claim_and_wait(say, path):
    queue = shmq.open(path)
    queue.put(b"there")
    slot = queue.reserve(8)
    hold_until_killed(say)
    slot.abort()


def take_and_wait(say, path):
    queue = shmq.open(path)
    group = queue.consumer("g", group=True, ack="explicit")
    held = group.get_many(2)
    hold_until_killed(say)
    assert held


def test_who_comes_after_a_death_tells_of_it(tmp_path, said):
    """The pid, and how many claims of it are padding; of one that has left in order, nothing."""
    path = str(tmp_path / "q")
    shmq.open(path).close()
    with Child(claim_and_wait, path) as child:
        child.hear()
        child.kill()
    assert said() == []
    with shmq.open(path) as queue:
        queue.put(b"more")
    line = f"{path}: process {child.pid} ended without closing it; claims of it that are padding now: 1"
    assert said() == [("INFO", line)]
    with shmq.open(path) as queue:
        queue.put(b"more")
    assert said() == []


def test_a_recovery_is_told(tmp_path, said):
    """What it keeps, and where it goes on."""
    path = str(tmp_path / "q")
    with shmq.open(path) as queue:
        queue.put_many([b"a"] * 3)
        queue.sync()
    make_unclean(path)
    with shmq.open(path) as queue:
        end = queue.next_index
    line = f"recovered {path}, last open in another boot or elsewhere: it keeps 3 messages, and the next index is {end}"
    assert ("INFO", line) in said()


def test_what_comes_again_is_told_with_its_attempt(queue, said):
    """Of those that a dead member held, in one line."""
    queue.put_many([b"a"] * 3)
    with queue.consumer("g", group=True, ack="explicit") as group:
        with Child(take_and_wait, queue.path) as child:
            child.hear()
            child.kill()
        messages = [group.get(timeout=30) for _ in range(3)]
        assert sorted(message.index for message in messages) == [0, 1, 2]
        told = " ".join(line for level, line in said() if level == "INFO")
        assert "handed again what came back" in told
        assert ("0 (attempt 2)" in told, "1 (attempt 2)" in told, "2 (attempt" in told) == (True, True, False)


def test_a_dead_letter_is_a_warning(queue, said):
    """With its reason; one that was given back too often, likewise."""
    queue.put_many([b"a"] * 2)
    with queue.consumer("g", group=True, ack="explicit", max_attempts=1) as group:
        group.get().reject("no such customer")
        group.get().nack()
    warnings = [line for level, line in said() if level == "WARNING"]
    assert [line.partition(": ")[2] for line in warnings] == [
        "message 0 is a dead letter: no such customer",
        "message 1 is a dead letter: it was handed out 1 times and never finished",
    ]
    assert all(queue.path in line for line in warnings)


def test_what_has_expired_and_goes_elsewhere_is_told(queue, said, tmp_path):
    """As no warning: that was asked for."""
    queue.put(b"a", ttl=0)
    with queue.consumer("g", group=True, ack="explicit", expire_to=str(tmp_path / "late")) as group:
        with pytest.raises(shmq.Empty):
            group.get(timeout=0)
        told = said()
    assert [level for level, line in told if "went where the expired go" in line] == ["INFO"]


ROLL = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
queue = shmq.open("shm:full", max_bytes=None)
try:
    while True:
        queue.put(bytes(60_000))
except shmq.DiskFull as problem:
    print("raised", problem)
"""


def test_a_roll_that_is_refused_is_a_warning():
    """In a shared memory of 8 MiB."""
    warning, raised = in_tiny(ROLL, "8m").splitlines()[-2:]
    assert warning.startswith("WARNING shmq cannot put into ")
    assert raised == "raised " + warning.removeprefix("WARNING shmq ")


SILENT = """
import sys
LISTENS
import shmq
with shmq.open(sys.argv[1]) as queue:
    queue.put_many([b"a"] * 2)
    with queue.consumer("g", group=True, ack="explicit") as group:
        group.get().reject("a warning")
print("logging" in sys.modules)
"""


@pytest.mark.parametrize(
    ("listens", "out", "heard"),
    [
        ("", "False", False),
        ("import logging", "True", False),
        ("import logging; logging.basicConfig()", "True", True),
        ("import logging; logging.basicConfig(level=logging.CRITICAL)", "True", False),
    ],
)
def test_it_is_silent_unless_somebody_listens(tmp_path, listens, out, heard):
    """And logging is not imported for it."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SILENT).replace("LISTENS", listens), str(tmp_path / "q")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == out
    assert ("WARNING:shmq:" in done.stderr) == heard
    assert heard or done.stderr == ""


@pytest.mark.parametrize("surface", ["net", "rpc", "hub", "replica", "executor", "workers", "flow"])
def test_no_surface_is_heard_either(surface):
    """Before any queue is open."""
    code = f"import logging, shmq.{surface}; logging.getLogger('shmq.{surface}').error('heard')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""


def test_the_command_says_warnings_on_stderr(capsys, monkeypatch):
    """As whoever has typed it expects, those of the surfaces, too; and only while it runs."""

    def run(arguments):
        logging.getLogger("shmq").info("no warning")
        logging.getLogger("shmq.net").warning("careful: %s", arguments.path)
        return 0

    monkeypatch.setattr("shmq.cli.stat.run", run)

    def handlers():
        return [each for each in logging.getLogger("shmq").handlers if not isinstance(each, logging.NullHandler)]

    before = handlers()
    assert main(["stat", "somewhere"]) == 0
    assert capsys.readouterr() == ("", "careful: somewhere\n")
    assert handlers() == before
