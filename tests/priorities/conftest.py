"""Queues with priorities in a place of the test's own."""

from __future__ import annotations

import pytest

import shmq


@pytest.fixture
def jobs(tmp_path):
    """Three levels of small chunks."""
    with shmq.priorities.open(tmp_path / "jobs", levels=3, chunk_bytes=16384) as opened:
        yield opened
