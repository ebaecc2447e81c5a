"""A root with queues, served from this process or by one of its own."""

from __future__ import annotations

import pytest

import shmq


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def orders(root):
    """0 to 4,999, in several chunks."""
    with shmq.open(root / "orders", chunk_bytes=1 << 14, retention="forever") as queue:
        for at in range(0, 5000, 500):
            queue.put_many([b"%d" % n for n in range(at, at + 500)])
        yield queue


@pytest.fixture
def service(root):
    with shmq.flight.serve(root) as served:
        yield served


@pytest.fixture
def client(service):
    with shmq.flight.connect(service.location, patience=1.0) as made:
        yield made
