"""Servers for the tests of bridges; where one is not here, its tests are skipped and say so."""

from __future__ import annotations

import brokers
import pytest

import shmq
from shmq.bridge import ends

PACKAGES = {"redis": "redis", "nats": "nats", "valkey": "redis"}
KINDS = {"redis": brokers.Redis, "nats": brokers.Nats}


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """One server of each kind for all tests, each of which has streams of its own there."""
    started = {}

    def get(kind):
        pytest.importorskip(PACKAGES[kind])
        if brokers.program(*KINDS[kind].programs) is None:
            pytest.skip(f"there is no {' or '.join(KINDS[kind].programs)} here")
        if kind not in started:
            started[kind] = KINDS[kind](tmp_path_factory.mktemp(kind))
            started[kind].start()
        return started[kind]

    yield get
    for each in started.values():
        each.kill()


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture
def url(running, kind, request):
    """A stream that nobody has used."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return running(kind).url(name[-60:])


@pytest.fixture
def own_server(kind, running, tmp_path):
    """A server of this test alone, which it may kill."""
    running(kind)
    with KINDS[kind](tmp_path / "server") as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Bridges in this process look soon whether there is nothing more."""
    monkeypatch.setattr(ends, "LOOK", 0.05)


@pytest.fixture
def queue(tmp_path):
    """Makes queues, by name, which keep what is in them."""
    opened = []

    def make(name, **options):
        opened.append(shmq.open(tmp_path / name, **{"retention": "forever"} | options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def a(queue):
    return queue("a")


@pytest.fixture
def b(queue):
    return queue("b")
