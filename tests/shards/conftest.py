"""Shards in a place of the test's own."""

from __future__ import annotations

import pytest

import shmq


@pytest.fixture
def root(tmp_path):
    """Four shards of small chunks."""
    with shmq.shards.open(tmp_path / "events", shards=4, chunk_bytes=65536) as opened:
        yield opened
