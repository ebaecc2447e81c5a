"""`shmq hub`, and `shmq replicate` to it, as commands."""

from __future__ import annotations

import signal
import subprocess
import sys

from hubs import content, token_of
from support import until

import shmq
from shmq.cli import main


def test_a_hub_and_two_clients_and_their_end(tmp_path, root, clients, orders):
    """A queue and a directory of shards; either signal ends each, and all is there."""
    with shmq.shards.open(tmp_path / "shards", shards=2) as shards:
        shards.put_many([b"a", b"b", b"c"])
    for client in ("till-1", "till-2"):
        (tmp_path / client).write_bytes(token_of(client) + b"\n")
        (tmp_path / client).chmod(0o600)
    command = [sys.executable, "-m", "shmq"]
    words = ["hub", str(root), "--listen", "tcp:127.0.0.1:0", "--token-file", str(clients)]
    there = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
    told = there.stderr.readline().split()
    assert told[:2] == ["shmq:", str(root)]
    pushing = [
        subprocess.Popen([*command, "replicate", str(source), told[-1], "--name", name, "--token-file", str(token)])
        for source, name, token in (
            (orders.path, "till-1.orders", tmp_path / "till-1"),
            (tmp_path / "shards", "till-2", tmp_path / "till-2"),
        )
    ]
    pairs = {"till-1.orders": orders.path, "till-2.1.000": tmp_path / "shards/1.000"}
    with there:
        for name, source in pairs.items():
            until(lambda name=name, source=source: (root / name).exists() and content(root / name) == content(source))
        for each, number in zip((*pushing, there), (signal.SIGINT, signal.SIGTERM, signal.SIGTERM), strict=True):
            each.send_signal(number)
            assert each.wait(20) == 0


def test_the_format_is_handed_on(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # they are this process's own
    monkeypatch.setattr("shmq.hub.serve", lambda *_, **options: given.append(options["as_sej"]))
    words = ["hub", str(tmp_path), "--listen", "tcp:127.0.0.1:0", "--token-file", "clients"]
    assert (main(words), main([*words, "--format", "sej"]), given) == (0, 0, [False, True])


def test_what_is_asked_for_wrongly(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # they are this process's own
    shmq.shards.open(tmp_path / "shards", shards=2).close()
    assert main(["replicate", str(tmp_path / "shards"), "tcp:127.0.0.1:1"]) == 2
    assert main(["hub", str(tmp_path), "--listen", "tcp:127.0.0.1:0", "--token-file", str(tmp_path / "none")]) == 1
    assert "--name CLIENT" in capsys.readouterr().err
