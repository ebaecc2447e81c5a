"""The core suites run over both homes of a queue: a directory on the disk, and one in shared memory."""

from __future__ import annotations

import pytest

BOTH_HOMES = {
    "test_producer",
    "test_consumer",
    "test_reader",
    "test_access",
    "test_adopt",
    "test_retention",
    "test_fork",
    "test_shutdown",
    "test_group",
    "test_keyed",
}


def pytest_generate_tests(metafunc) -> None:
    """Each test there that has a queue, twice."""
    if metafunc.module.__name__ in BOTH_HOMES and "path" in metafunc.fixturenames:
        metafunc.parametrize("path", ["directory", "shared memory"], indirect=True)


@pytest.fixture
def mebibytes(monkeypatch):
    """Chunks grow from 1 MiB, for tests of what one chunk holds: many messages, several index blocks."""
    monkeypatch.setattr("shmq.storage.new_chunks.SMALLEST_CHUNK", 1 << 20)
