"""A root with a queue in it."""

import os

import pytest

import shmq


@pytest.fixture
def root(tmp_path):
    """A directory that may be served."""
    place = tmp_path / "root"
    place.mkdir(0o700)
    return place


@pytest.fixture
def orders(root):
    """A queue below it, open here."""
    with shmq.open(root / "orders") as queue:
        yield queue


@pytest.fixture
def given_queue(root):
    """The queue that the RFC's conversations are about."""
    os.mkdir(root / "path", 0o700)
    with shmq.open(root / "path" / "queue-name") as queue:
        yield queue
