"""An Executor's directory, and Executors that start their workers quickly."""

from __future__ import annotations

import functools

import pytest

import shmq


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs"


@pytest.fixture
def executor(path):
    """Makes Executors there; all are shut down at the end."""
    made = []

    def make(workers=1, method="fork", **options):
        import multiprocessing

        context = multiprocessing.get_context(method) if workers else None
        ex = shmq.Executor(path, workers, context, **options)
        made.append(ex)
        return ex

    yield make
    for each in made:
        each.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def wait_until():
    from support import until

    return functools.partial(until, deadline=30.0)
