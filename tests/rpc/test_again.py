"""Requests that outlive their servers: at least once, and with nobody waiting."""

from __future__ import annotations

import os
import pickle
import time

import pytest
from servers import Servers
from support import Child, until

import shmq.rpc

LONG = 20


def test_a_call_that_may_run_again_is_done_by_the_next_server(servers):
    servers.start(3)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        assert client.options(at_least_once=True).call("die_once", "x") == 2
        assert servers.notes() == ["x", "x"]
        with pytest.raises(shmq.rpc.ServerDied):  # the client itself is as it was
            client.call("die_once", "y")


def test_also_when_that_one_is_started_later(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        future = client.options(at_least_once=True).submit("die_once", "x")
        child.join()
        assert not future.done()
        servers.start()
        assert future.result(LONG) == 2


def test_one_that_kills_its_servers_is_a_dead_letter(servers):
    with shmq.rpc.Client(servers.path, timeout=60) as client:
        future = client.options(at_least_once=True).submit("die", "x")
        for number in range(3):
            servers.start(max_attempts=3).join()
            assert servers.notes() == ["x"] * (number + 1)
        servers.start(max_attempts=3)
        with pytest.raises(shmq.rpc.ServerDied, match="begun 3 times, and no server lived to its end"):
            future.result(LONG)
        assert client.call("add", 1, 2) == 3
    until(lambda: os.path.exists(f"{servers.path}/requests.server.dead"))
    with shmq.open(f"{servers.path}/requests.server.dead") as dead:
        (letter,) = list(dead.reader())
        assert "begun 3 times" in str(letter.headers)


def test_what_is_told_outlives_client_and_server(servers):
    def tell(say):
        with shmq.rpc.Client(servers.path) as client:
            client.tell("noted", "one")
            client.tell("die_once", "two")
            client.tell("fail", "value")
            client.tell("noted", word="three")
            say("told")

    with Child(tell) as child:
        assert child.hear() == "told"
        assert child.join() == 0
    servers.start().join()  # it dies
    servers.start()
    until(lambda: servers.notes() == ["one", "two", "two", "three"])


def test_a_request_without_a_deadline_outlives_its_client(servers):
    def ask(say):
        client = shmq.rpc.Client(servers.path)
        client.submit("noted", "x")
        say("asked")
        time.sleep(60)

    with Child(ask) as child:
        child.hear()
        child.kill()
    servers.start()
    until(lambda: servers.notes() == ["x"])
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        assert client.call("add", 1, 2) == 3


def test_options_cross_with_a_client(servers):
    with shmq.rpc.Client(servers.path) as client:
        again = client.options(at_least_once=True, timeout=7)
        with pickle.loads(pickle.dumps(again)) as other:
            assert other.timeout == 7
            assert other._mode == again._mode != client._mode
        assert client.timeout is None
        with pytest.raises(TypeError):
            client.options(timeout="x")
        again.close()
        with pytest.raises(shmq.Closed):
            client.call("add", 1)


def test_in_shared_memory_requests_are_gone_with_their_last_user(tmp_path):
    place = f"shm:test-rpc-again-{os.getpid()}"
    with shmq.rpc.Client(place) as client:
        client.tell("noted", "lost")
    servers = Servers(place, tmp_path / "notes")
    try:
        servers.start()
        with shmq.rpc.Client(place, timeout=LONG) as client:
            assert client.call("noted", "kept") == "kept"
        assert servers.notes() == ["kept"]
    finally:
        servers.kill()
