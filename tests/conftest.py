"""Fixtures for all suites."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from pathlib import Path

import pytest

import shmq
from shmq.storage import shm, sync, volatile


def pytest_configure() -> None:
    """In the background a shell has interrupts ignored, and nohup hang-ups: by all processes of these tests, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def only_processes_are_killed():
    """A pid that is none by mistake, 0 or -1, would have a kill end the whole run, and whoever started it."""
    kill, killpg, own = os.kill, os.killpg, os.getpgrp()

    def kill_one(pid: int, number: int) -> None:
        assert pid > 0, f"os.kill({pid}, {number})"
        kill(pid, number)

    def kill_group(group: int, number: int) -> None:
        assert group not in (0, 1, own), f"os.killpg({group}, {number})"
        killpg(group, number)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "kill", kill_one)
        patched.setattr(os, "killpg", kill_group)
        yield


@pytest.fixture(autouse=True)
def quick_disk(request, monkeypatch):
    """What is not about the disk need not wait for it: only tests marked `disk` sync for real."""
    if request.node.get_closest_marker("disk") is None:
        monkeypatch.setattr(sync, "data", lambda fd, what: None)
        monkeypatch.setattr(sync, "directory", lambda fd, what: None)
        monkeypatch.setattr(sync, "pages", lambda memory, first, size, what: None)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """How large the next chunk is does not depend on how fast this machine fills one."""
    monkeypatch.setattr("shmq.storage.new_chunks.QUICK", 1 << 62)


MANY_FILES = 300
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


LONG = (
    "/spark/test_spark_processes.py",
    "/whole/test_whole.py",
    "/fuzz/test_living.py",
    "/crash/test_every_instruction.py",
    "/power/test_failing.py",
    "/history/test_soak.py",
    "/property/",
)
"""Where single tests take so long that, begun last, they would be waited for by idle processors."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The long ones first, and all others in their order."""
    items.sort(key=lambda item: not any(each in item.nodeid for each in LONG))


def pytest_collection_finish():
    """The garbage collector need not go through thousands of tests each time, here and in forked children."""
    import hypothesis  # noqa: F401  # it asks who refers to what, which nobody can tell of what is frozen

    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def frozen_heap():
    """What earlier modules left for good, too: a test that collects at every step took minutes for it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def few_files():
    """Queues that a test left in a cycle hold their files until they are collected, which may be long after 1,024."""
    yield
    if len(os.listdir("/proc/self/fd")) > MANY_FILES:
        gc.collect()


@pytest.fixture(autouse=True)
def signals_as_before():
    """A handler that a test leaves behind would swallow the interrupts of some later test, far from its cause."""
    before = [signal.getsignal(number) for number in HEARD]
    yield
    for number, handler in zip(HEARD, before, strict=True):
        left = signal.getsignal(number)
        if left is not handler:
            signal.signal(number, handler)
            pytest.fail(f"it left a handler of {signal.Signals(number).name} behind: {left}")


@pytest.fixture
def uncollected():
    """What a signal's handler raises while garbage is collected goes nowhere; so here nothing is."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """
    With -n, tests that use the one Spark session run in one process, and those that start clusters in one.

    So there are never more than a few JVMs at once; and what is published is built once. All others are spread as they
    come: those of LONG first.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if "/spark/test_with_spark" in nodeid:
                return "spark"
            if "/test_packages.py::" in nodeid:
                return "packages"
            if "/test_order.py::test_what" in nodeid or "/test_order.py::test_every" in nodeid:
                return "order"  # of what one run has shown
            return "clusters" if "/test_spark_cluster.py::" in nodeid else nodeid

        def mark_test_complete(self, node, item_index, duration=0):
            """Forgets what is done, through which it would go once more after each of 13,000 tests."""
            super().mark_test_complete(node, item_index, duration)
            work = self.assigned_work[node]
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(work[scope].values()):
                del work[scope]

    return OneSpark(config, log)


def pytest_terminal_summary(terminalreporter):
    """What was not run for want of Spark is told by name: nobody should take it for tested."""
    left_out = [
        (report.nodeid.rpartition("/")[2], report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", [])
        if "/spark/" in report.nodeid and isinstance(report.longrepr, tuple)
    ]
    if left_out:
        terminalreporter.section(f"{len(left_out)} tests on Spark were NOT run")
        for name, why in left_out:
            terminalreporter.line(f"{name}: {why}")


@pytest.fixture
def shm_root(tmp_path, monkeypatch):
    """A place of this test's own where volatile queues live: in /dev/shm, or on the disk where that is missing."""
    root = Path("/dev/shm") if os.path.isdir("/dev/shm") else tmp_path
    root /= f"shmq-test-{os.getpid()}-{os.urandom(6).hex()}"
    root.mkdir()
    monkeypatch.setattr(shm, "ROOT", str(root))
    yield root
    shutil.rmtree(root)


@pytest.fixture
def path(request) -> str:
    """Where a queue may be made. Suites that run over both homes ask for "shared memory" too (unit/conftest.py)."""
    if getattr(request, "param", "directory") == "directory":
        return str(request.getfixturevalue("tmp_path") / "q")
    request.getfixturevalue("shm_root")
    Path(shm.base()).mkdir(0o700)
    return volatile.home_of("shm:q")


@pytest.fixture
def make(path):
    """Open queues of small chunks at *path*, and close them in the end; options and flags as `shmq.open` takes them."""
    opened = []

    def opener(at: str = path, *, flags: dict | None = None, **options):
        options.setdefault("chunk_bytes", 16384)
        queue = shmq.open(at, options=shmq.Options(**options), **(flags or {}))
        opened.append(queue)
        return queue

    yield opener
    for queue in reversed(opened):
        queue.close()


@pytest.fixture
def queue(make):
    """A queue whose chunks hold some 16 KiB each."""
    return make()
