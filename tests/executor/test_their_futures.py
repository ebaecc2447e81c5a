"""
The interpreter's own tests of concurrent.futures (test/test_concurrent_futures), with an Executor in the place of
ProcessPoolExecutor, for the three start methods.

Left out, each with its reason, are those below. What they are about has tests of its own here, in the other files.
"""

from __future__ import annotations

import importlib
import multiprocessing
import shutil
import sys
import tempfile
import unittest

import pytest

import shmq

PACKAGE = "test.test_concurrent_futures"
pytest.importorskip(PACKAGE, reason="this interpreter came without its tests")

ANOTHER_PROMISE = {
    "test_killed_child": "a killed worker does not break the pool",
    "test_max_workers_negative": "0 workers are an Executor that only submits",
    "test_max_tasks_per_child": "it is for every start method",
    "test_error_at_task_unpickle": "the error is told, and is no broken pool",
    "test_exit_at_task_unpickle": "likewise: SystemExit",
    "test_error_during_result_unpickle_in_result_handler": "likewise, where the result cannot be made again",
    "test_exit_during_result_unpickle_in_result_handler": "likewise: SystemExit",
    "test_python_finalization_error": "workers live in any case: none is started in the middle of a submit",
}
LOOKS_INSIDE = {
    "test_processes_terminate": "_processes",
    "test_context_manager_shutdown": "_processes, and ProcessPoolExecutor by its name",
    "test_del_shutdown": "_executor_manager_thread",
    "test_shutdown_no_wait": "_executor_manager_thread",
    "test_shutdown_deadlock_pickle": "_executor_manager_thread",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "_ExecutorManagerThread",
    "test_saturation": "_processes",
    "test_idle_process_reuse_one": "_processes",
    "test_idle_process_reuse_multiple": "_processes",
    "test_max_tasks_per_child_defaults_to_spawn_context": "_mp_context",
    "test_traceback": "the type of the cause",
    "test_max_workers_too_large": "of Windows",
    "test_interpreter_shutdown": "a program that imports the class from concurrent.futures",
    "test_submit_after_interpreter_shutdown": "likewise",
    "test_hang_gh83386": "likewise",
    "test_hang_issue39205": "likewise",
    "test_submit_keyword": "one of the tests below has what of it applies: key= is the task's",
}
LEFT_OUT = {**ANOTHER_PROMISE, **LOOKS_INSIDE}
LONG = {
    "test_map_timeout",
    "test_crash_big_data",
    "test_first_completed_some_already_completed",
    "test_timeout",
    "test_future_times_out",
    "test_all_completed",
}
"""Some seconds each: once, and not for each start method."""


class Ours(shmq.Executor):
    """Where ProcessPoolExecutor needs no place, a new one."""

    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), **more):
        self._folder = tempfile.mkdtemp(prefix="shmq-cpython-")
        super().__init__(f"{self._folder}/jobs", max_workers, mp_context, initializer, initargs, **more)

    def shutdown(self, wait=True, *, cancel_futures=False):
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            shutil.rmtree(self._folder, ignore_errors=True)


def theirs(module, name):
    """A class of theirs: from 3.12 on, they are a package."""
    package = importlib.import_module(PACKAGE)
    home = importlib.import_module(f"{PACKAGE}.{module}") if hasattr(package, "__path__") else package
    return getattr(home, name)


MIXINS = [
    ("executor", "ExecutorTest"),
    ("test_process_pool", "ProcessPoolExecutorTest"),
    ("test_wait", "WaitTests"),
    ("test_as_completed", "AsCompletedTests"),
    ("test_shutdown", "ProcessPoolShutdownTest"),
    ("test_init", "InitializerMixin"),
    ("test_init", "FailingInitializerMixin"),
    ("test_deadlock", "ExecutorDeadlockTest"),
]


def cases():
    """(test, start method): all with fork; those that are quick and about processes with the others, too."""
    seen = set()
    for module, name in MIXINS:
        mixin = theirs(module, name)
        for test in sorted(unittest.TestLoader().getTestCaseNames(mixin)):
            if test in LEFT_OUT or (name, test) in seen:
                continue
            if name == "ProcessPoolExecutorTest" and hasattr(theirs("executor", "ExecutorTest"), test):
                continue
            seen.add((name, test))
            others = ["spawn", "forkserver"] if name.startswith(("Init", "Failing")) else []
            for method in ["fork", *others]:
                yield pytest.param(
                    module, name, test, method, id=f"{name}.{test}-{method}",
                    marks=[pytest.mark.slow] if test in LONG else [],
                )  # fmt: skip


@pytest.mark.parametrize(("module", "name", "test", "method"), list(cases()))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12 on, of a fork beside threads, which is theirs
def test_their_tests_pass(module, name, test, method):
    mixin, base = theirs(module, name), theirs("util", "BaseTestCase")
    more = () if issubclass(mixin, theirs("util", "ExecutorMixin")) else (theirs("util", "ExecutorMixin"),)
    made = {"executor_type": Ours, "ctx": method, "__module__": mixin.__module__}
    case = type("ShmqTest", (mixin, *more, base), made)
    result = unittest.TestResult()
    case(test).run(result)
    assert [text for _, text in result.errors + result.failures] == []
    assert result.testsRun == 1


def test_futures_are_as_theirs(monkeypatch):
    """Their tests of Future, but for two that look for the log on stderr, from which pytest takes it."""
    from shmq.executor import Future

    module = importlib.import_module(PACKAGE)
    module = importlib.import_module(f"{PACKAGE}.test_future") if hasattr(module, "__path__") else module
    monkeypatch.setattr(module, "Future", lambda: Future(b"\0" * 16, None, None))
    result = unittest.TestResult()
    for name in unittest.defaultTestLoader.getTestCaseNames(module.FutureTests):
        if not name.startswith("test_done_callback_raises"):
            module.FutureTests(name).run(result)
    assert [text for _, text in result.errors + result.failures] == []
    assert result.testsRun >= 18


def test_keywords_are_the_functions_but_for_key():
    """What applies of their test_submit_keyword."""
    from tests.executor import jobs

    with Ours(1, multiprocessing.get_context("fork")) as ex:
        assert ex.submit(jobs.capture, 1, self=2, fn=3).result(timeout=30) == ((1,), {"self": 2, "fn": 3})
        with pytest.raises(TypeError):
            ex.submit(fn=jobs.capture, arg=1)


def test_those_that_are_left_out_are_there():
    names = {
        each
        for module, name in MIXINS
        for each in unittest.TestLoader().getTestCaseNames(theirs(module, name))
    }  # fmt: skip
    if sys.version_info >= (3, 13):
        assert set(LEFT_OUT) - names <= {"test_hang_issue39205"}
    assert len(names - set(LEFT_OUT)) >= 30
