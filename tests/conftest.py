"""Fixtures for all suites."""

from __future__ import annotations

import pytest

import shmq
from shmq.storage import sync


@pytest.fixture(autouse=True)
def quick_disk(request, monkeypatch):
    """What is not about the disk need not wait for it: only tests marked `disk` sync for real."""
    if request.node.get_closest_marker("disk") is None:
        monkeypatch.setattr(sync, "data", lambda fd, what: None)
        monkeypatch.setattr(sync, "directory", lambda fd, what: None)


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
