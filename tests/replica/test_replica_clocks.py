"""Clocks that are apart are told before a follower is promoted, since ttl and age count by them."""

from __future__ import annotations

import socket
import threading
import time
import types

import pytest
from following import content, files, follow_once

import shmq
from shmq import replica
from shmq.cli import main
from shmq.replica.follower import Follower
from shmq.replica.link import Link, to_follower, to_source
from shmq.replica.service import Stop, receive, send
from shmq.replica.source import Source

HOUR = 3_600_000_000_000


@pytest.fixture
def a(tmp_path):
    with shmq.open(str(tmp_path / "a")) as queue:
        queue.put_many([b"1", b"2"])
    return tmp_path / "a"


def ahead(monkeypatch, nanoseconds) -> None:
    """The clock of a source is ahead by so much."""
    clock = types.SimpleNamespace(time_ns=lambda: time.time_ns() + nanoseconds)
    monkeypatch.setattr("shmq.replica.source.time", clock)


@pytest.mark.parametrize(("apart", "said"), [(3 * HOUR, "10,800.0 s ahead of"), (-2_000_000_000, "s behind")])
def test_a_follower_of_another_time_is_promoted_only_when_somebody_says_so(a, monkeypatch, capsys, apart, said):
    b = a.parent / "b"
    ahead(monkeypatch, apart)
    follow_once(a, b)
    before = files(b)
    with pytest.raises(shmq.Mismatch, match=said):
        replica.promote(b)
    assert main(["promote", str(b)]) == 1
    assert "or say clock_ok; nothing was changed" in capsys.readouterr().err
    assert files(b) == before
    with shmq.open(str(b)) as follower:
        assert follower.stats().role == "follower"
    assert main(["promote", "--clock-ok", str(b)]) == 0
    with shmq.open(str(b)) as promoted:
        promoted.put(b"3")


def test_what_counts_is_what_they_said_last(a, monkeypatch):
    """Whoever has set the clock replicates once more, also where there is nothing to send."""
    b = a.parent / "b"
    ahead(monkeypatch, -HOUR)
    follow_once(a, b)
    ahead(monkeypatch, 500_000_000)
    follow_once(a, b)
    replica.promote(b)


def test_a_hello_that_waited_makes_no_clock_wrong(a):
    """Through a link to somebody who was busy."""
    near, far = socket.socketpair()
    b = a.parent / "b"
    said = threading.Event()

    def follow() -> None:
        said.wait()
        time.sleep(1.2)
        with Follower(str(b)) as follower, Link(far, to_follower) as link:
            receive(follower, link)

    thread = threading.Thread(target=follow)
    thread.start()
    with Source(str(a), "b") as there, Link(near, to_source) as link:
        said.set()
        send(there, link, Stop(), once=True)
    thread.join()
    assert content(b) == content(a)
    replica.promote(b)


def test_a_note_that_says_nothing_is_told(a):
    b = a.parent / "b"
    follow_once(a, b)
    note = b / "upstream.shmq"
    data = note.read_bytes()
    note.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(shmq.Corrupt, match=r"upstream\.shmq"):
        replica.promote(b)
    replica.promote(b, clock_ok=True)
    shmq.delete(b)
    assert not b.exists()
