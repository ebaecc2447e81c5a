"""These tests write thousands of small queues; whether the disk obeys is tested once, and not waited for each time."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)  # a package's would last for the rest of the session
def synced():
    """The descriptors' paths that were synced, in order; nothing waits for the disk."""
    paths = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: paths.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
        yield paths
