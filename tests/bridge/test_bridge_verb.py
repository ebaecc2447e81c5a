"""`shmq bridge` as a process: how it is asked, how it ends, and what it says when a server is away."""

from __future__ import annotations

import json
import signal
import sys

import brokers
import pytest
from brokers import contents

import shmq
from shmq import bridge, cli
from shmq.bridge import urls


def test_it_runs_until_it_is_told_to_end(running, a, b, tmp_path):
    url = running("redis").url("ends")
    a.put(b"1")
    with brokers.Bridge(tmp_path / "out", a.path, url) as out:
        brokers.eventually(
            lambda: any(each.head for name, each in a.consumers().items() if name.endswith(".sent")), out
        )
        with brokers.Bridge(tmp_path / "in", url, b.path) as back:
            a.put(b"2")
            brokers.eventually(lambda: len(b) == 2, back)
            assert back.end(signal.SIGINT) == 0
        assert out.end(signal.SIGTERM) == 0
    assert out.said() == back.said() == "carried 2 messages\n"


@pytest.mark.parametrize("kind", ["nats"])
def test_a_server_that_is_away_is_waited_for_and_told_once(own_server, a, tmp_path):
    """It begins without one, and goes on when it comes."""
    own_server.kill()
    a.put(b"1")
    url = own_server.url("away")
    with brokers.Bridge(tmp_path / "out", a.path, url) as out:
        brokers.eventually(lambda: "trying again" in out.said(), out)
        own_server.start()
        brokers.eventually(
            lambda: any(each.head for name, each in a.consumers().items() if name.endswith(".sent")), out
        )
        assert out.end() == 0
    told = out.said().splitlines()
    assert [line.endswith(("trying again until it works", "going on", "carried 1 message")) for line in told] == [
        True
    ] * 3
    assert url in told[0]


def test_it_says_how_much_as_json(running, a, capsys):
    a.put(b"1")
    assert cli.main(["bridge", a.path, running("redis").url("verb-json"), "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"messages": 1}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["a", "b"], 2, "neither of a and b"),
        (["redis://h/x", "mq:/y"], 2, "both of redis://h/x and mq:/y"),
        (["redis://h/x", "a", "--trail", "5"], 2, "--trail is for the way out"),
        (["a", "redis://h/"], 1, "is not like redis://host:6379/STREAM"),
        (["a", "nats:///x"], 1, "is not like nats://host:4222/STREAM"),
        (["a", "redis://h/x?colour=red"], 1, "has no option 'colour'"),
        (["a", "nats://h/two.words"], 1, "not the name of a stream"),
        (["missing", "redis://h/x"], 1, "missing"),
    ],
)
def test_what_means_nothing_is_said(words, status, said, a, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bridge", *words]) == status
    assert said in capsys.readouterr().err
    assert not a.consumers()


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("redis://h/x", "redis", "redis"),
        ("nats://h/x", "nats", "nats"),
        ("kafka://h/x", "confluent_kafka", "kafka"),
        ("mq:/x", "posix_ipc", "mq"),
    ],
)
def test_what_is_not_installed_is_said(url, package, extra, a, monkeypatch, capsys):
    for name in list(sys.modules):
        if name.startswith("shmq.bridge.") and getattr(sys.modules[name], package.partition(".")[0], None):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["bridge", a.path, url]) == 1
    assert f"pip install 'shmq[{extra}]'" in capsys.readouterr().err


def test_a_password_is_not_shown_and_names_nobody():
    with_it = urls.parse("redis://me:secret@h:1/x")
    assert "secret" not in with_it.shown
    assert with_it.consumer("") == urls.parse("redis://h:1/x").consumer("")
    assert with_it.consumer("") != urls.parse("redis://h:1/y").consumer("")


def test_a_name_of_any_length_is_a_consumers(tmp_path):
    long = urls.parse("nats://h/" + "x" * 200)
    with shmq.open(tmp_path / "q") as q, q.consumer(long.consumer("") + ".sent"), q.consumer(long.consumer("in")):
        pass


def test_who_is_not_let_in_is_told(running, tmp_path, a):
    running("redis")
    a.put(b"1")

    class Locked(brokers.Redis):
        def command(self):
            return [*super().command(), "--requirepass", "secret"]

    with Locked(tmp_path / "locked") as server:
        with pytest.raises(bridge.Refused):
            bridge.send(a, server.url("x"), once=True)
        assert bridge.send(a, server.url("x").replace("//", "//:secret@"), once=True) == 1

    class LockedNats(brokers.Nats):
        def command(self):
            return [*super().command(), "--user", "me", "--pass", "secret"]

    running("nats")
    with LockedNats(tmp_path / "nats") as server:
        with pytest.raises(bridge.Refused):
            bridge.send(a, server.url("x"), once=True)
        assert bridge.send(a, server.url("x").replace("//", "//me:secret@"), once=True) == 1
        assert contents(a)
