"""One way to start a child: only tests/support.py forks. And what it promises of the child's end."""

from __future__ import annotations

import ast
import collections
import os
import signal
import sys
import threading
import warnings

import pytest
from layout import ROOT
from support import fork, start

SUPPORT = ROOT / "tests" / "support.py"
MODULES = sorted((ROOT / "tests").rglob("*.py"))
FORKS = {f"{module}.{name}" for module in ("os", "posix", "pty") for name in ("fork", "forkpty")}


def forks(source: str) -> list[int]:
    """Lines that fork by themselves; what stands in the text of a child's program does not count."""
    found = []
    if "fork" not in source:  # so it need not be parsed
        return found
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        found += [node.lineno for name in names if name in FORKS]
    return found


def test_only_support_forks():
    """All others call it."""
    assert [module for module in MODULES if forks(module.read_text())] == [SUPPORT]


@pytest.mark.parametrize("source", ["pid = os.fork()", "call = os.fork", "from os import fork", "pty.fork()"])
def test_the_check_of_forks_sees_every_way(source):
    """But neither support's own nor a text."""
    assert forks(source)
    assert not forks(f"support.fork()\nfork()\ncode = {source!r}")


# ---------------------------------------------------------------- what start() promises
def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_has_done_its_work_ends_with_0():
    """It has its arguments, and its words are not lost."""
    read, write = os.pipe()
    assert ended(start(os.write, write, b"done")) == 0
    assert os.read(read, 9) == b"done"
    os.close(read)
    os.close(write)


def test_a_child_whose_work_raises_says_what_and_ends_with_1(capfd):
    """Whatever it is, nothing comes back into the parent's code."""
    for raised in (ValueError("words"), SystemExit(0), KeyboardInterrupt("words")):

        def work(raised=raised):
            raise raised

        assert ended(start(work)) == 1
        assert type(raised).__name__ in capfd.readouterr().err


def test_a_child_that_cannot_say_anything_ends_all_the_same(monkeypatch):
    """Standard output that is broken is no way back, either."""
    assert ended(start(monkeypatch.setattr, sys, "stdout", None)) == 0


def test_what_was_printed_before_is_written_once(capfd):
    """Not by the child again."""
    print("before", end="")
    assert ended(start(print, "after")) == 0
    assert capfd.readouterr().out == "beforeafter\n"


def test_a_child_may_end_as_it_likes():
    """By a status of its own, or killed."""
    assert ended(start(os._exit, 9)) == 9
    assert ended(start(signal.raise_signal, signal.SIGKILL)) == -signal.SIGKILL


def test_a_fork_beside_a_thread_is_no_warning():
    """From Python 3.12 on it would be, and here every warning is an error; the filters stay as they were."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    before = list(warnings.filters)
    try:
        pid = fork()
        if pid == 0:
            os._exit(7)
        assert ended(pid) == 7
    finally:
        stop.set()
        thread.join()
    assert warnings.filters == before


def test_no_two_suites_that_are_no_packages_have_one_name():
    """A child that is spawned imports its test by that name, and would get the other one."""
    suites = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    names = collections.Counter(path.name for path in suites)
    assert [name for name, count in names.items() if count > 1] == []
