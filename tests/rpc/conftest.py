"""Servers for the tests of calls, over both homes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from servers import Servers

import shmq.rpc

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)  # its campaign is tests.rpc.campaign here, too


@pytest.fixture(params=["directory", "shared memory"])
def place(request, tmp_path):
    return (
        str(tmp_path / "calc") if request.param == "directory" else f"shm:test-rpc-{os.getpid()}-{os.urandom(4).hex()}"
    )


@pytest.fixture
def calc(tmp_path):
    """Where most tests call: in a directory."""
    return str(tmp_path / "calc")


@pytest.fixture
def servers(calc, tmp_path):
    with shmq.rpc.Client(calc):  # so that what is served lasts
        made = Servers(calc, tmp_path / "notes")
        yield made
        made.kill()


@pytest.fixture
def client(servers):
    """A client of one server."""
    servers.start()
    with shmq.rpc.Client(servers.path, timeout=20) as made:
        yield made
