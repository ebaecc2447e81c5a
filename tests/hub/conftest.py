"""A directory for a hub, its file of clients, and queues of theirs."""

from __future__ import annotations

import pytest
from hubs import clients_file

import shmq


@pytest.fixture
def root(tmp_path):
    """Where the hub gathers."""
    place = tmp_path / "hub"
    place.mkdir(0o700)
    return place


@pytest.fixture
def clients(tmp_path):
    """Its file of clients: till-1 and till-2."""
    return clients_file(tmp_path / "clients", "till-1", "till-2")


@pytest.fixture
def orders(tmp_path):
    """A queue of till-1's, open here."""
    with shmq.open(tmp_path / "orders", chunk_bytes=1 << 18) as queue:
        queue.put_many([b"%d " % number * 30 for number in range(100)])
        yield queue


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """What is tried again is tried again at once."""
    monkeypatch.setattr("shmq.replica.service._PAUSE", 0.02)
    monkeypatch.setattr("shmq.hub.sending._LOOK", 0.02)
