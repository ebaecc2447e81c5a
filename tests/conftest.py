"""Fixtures for all suites."""

from __future__ import annotations

import pytest

import shmq


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With -n, tests of one xdist_group run in one process: there is one Spark, not one for each worker."""
    if getattr(config.option, "numprocesses", None) and config.option.dist in {"no", "load"}:
        config.option.dist = "loadgroup"


@pytest.fixture
def path(tmp_path) -> str:
    """Where a queue may be made."""
    return str(tmp_path / "q")


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
