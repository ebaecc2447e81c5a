"""
The interpreter's own tests of multiprocessing's queues (test/_test_multiprocessing.py), with ours in their place, for
all three start methods.

Two of them are about the thread that feeds multiprocessing's pipe, and say that an error of pickling shows there and
nowhere else; ours is raised by `put`. One looks into the pipe of a SimpleQueue. They are left out.
"""

from __future__ import annotations

import multiprocessing
import unittest

import pytest

from shmq import compat

theirs = pytest.importorskip("test._test_multiprocessing", reason="this interpreter came without its tests")

FEEDERS = ("test_queue_feeder_donot_stop_onexc", "test_queue_feeder_on_queue_feeder_error")
PIPE = "test_closed"


class _Ours(theirs._TestQueue):
    """Their tests as they are, with our queues."""

    TYPE = "processes"
    Queue = staticmethod(compat.Queue)
    JoinableQueue = staticmethod(compat.JoinableQueue)


def _with(method: str) -> dict[str, object]:
    context = multiprocessing.get_context(method)
    left_out = dict.fromkeys(FEEDERS)
    return {"Process": context.Process, "Event": staticmethod(context.Event), "__module__": __name__, **left_out}


# In the module, for a child that is spawned imports them.
Fork = type("Fork", (_Ours, unittest.TestCase), _with("fork"))
Spawn = type("Spawn", (_Ours, unittest.TestCase), _with("spawn"))
Forkserver = type("Forkserver", (_Ours, unittest.TestCase), _with("forkserver"))
for each in (Fork, Spawn, Forkserver):
    each.__test__ = False  # pytest would run them with the queues of multiprocessing where they name those


def names_in(case: type[unittest.TestCase]) -> list[str]:
    return [name for name in unittest.TestLoader().getTestCaseNames(case) if name not in FEEDERS]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """One of theirs makes a folder of a fixed name where it stands, and may run in several processes at once."""
    monkeypatch.chdir(tmp_path)


def passes(test: unittest.TestCase, monkeypatch) -> None:
    for name in ("Queue", "JoinableQueue", "SimpleQueue"):
        monkeypatch.setattr(multiprocessing, name, getattr(compat, name))
    result = unittest.TestResult()
    test.run(result)
    assert [text for _, text in result.errors + result.failures] == []
    assert result.testsRun == 1


@pytest.mark.parametrize("case", [Fork, Spawn, Forkserver], ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", names_in(Fork))
def test_their_tests_of_queue_and_joinable_queue_pass(name, case, monkeypatch):
    passes(case(name), monkeypatch)


@pytest.mark.parametrize("name", sorted({*names_in(theirs.TestSimpleQueue)} - {PIPE}))
def test_their_tests_of_simple_queue_pass(name, monkeypatch):
    passes(theirs.TestSimpleQueue(name), monkeypatch)


def test_those_that_are_left_out_are_there():
    assert all(callable(getattr(theirs._TestQueue, name)) for name in FEEDERS)
    assert len(names_in(Fork)) >= 8
    assert callable(getattr(theirs.TestSimpleQueue, PIPE))
