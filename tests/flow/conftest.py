"""Flows in a place of the test's own, and what came out of them."""

from __future__ import annotations

import pytest

import shmq


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "flow")


@pytest.fixture
def out(path):
    """What lies in the queue behind the last stage."""

    def read(name="out"):
        with shmq.open(f"{path}/{name}", create=False, trusted=True) as queue:
            return [message.payload for message in queue.reader()]

    return read
