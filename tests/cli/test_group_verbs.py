"""shmq dead and shmq consumer: what operators do about groups."""

from __future__ import annotations

import json

import pytest

from shmq.cli import main


@pytest.fixture
def dead(queue, path):
    """A queue with three dead letters beside it: their path."""
    queue.put_many([b"a", b"b", b"c"], keys=[b"k"] * 3)
    with queue.consumer("g", group=True, ack="explicit") as member:
        for message in member.get_many(3, 0):
            message.reject(f"no {message.payload.decode()}")
    return f"{path}.g.dead"


def test_dead_ls(dead, capsys):
    """As a table and as JSON; twice, for looking takes nothing."""
    for _ in range(2):
        assert main(["dead", "ls", dead]) == 0
        rows = capsys.readouterr().out.splitlines()
        assert rows[0].split() == ["LETTER", "INDEX", "GROUP", "CAUSE", "ATTEMPTS", "REASON"]
        assert rows[2].split() == ["1", "1", "g", "rejected", "1", "no", "b"]
    assert main(["dead", "ls", dead, "--json"]) == 0
    assert [each["reason"] for each in json.loads(capsys.readouterr().out)] == ["no a", "no b", "no c"]


def test_who_only_looks_leaves_no_name_behind(dead, queue, path, capsys):
    """And a queue of other things is not taken for dead letters."""
    for what in (["ls"], ["show"], ["requeue", "0"]):
        assert main(["dead", what[0], path, *what[1:]]) == 1
        assert "is no queue of dead letters" in capsys.readouterr().err
        assert list(queue.consumers()) == ["g"]


def test_dead_show(dead, capsys):
    """Everything about one."""
    assert main(["dead", "show", dead, "2"]) == 0
    told = capsys.readouterr().out
    assert "reason: no c" in told
    assert "b'c'" in told


def test_dead_requeue_and_drop(dead, queue, capsys):
    """They are gone from the letters; what was put back is as it was."""
    assert main(["dead", "requeue", dead, "1"]) == 0
    assert (queue[3].payload, queue[3].key, queue[3].headers) == (b"b", b"k", {})
    assert main(["dead", "drop", dead, "--all"]) == 0
    capsys.readouterr()
    assert main(["dead", "ls", dead]) == 0
    assert capsys.readouterr().out == "no dead letters\n"
    assert main(["dead", "drop", dead, "1"]) == 1
    assert "no dead letter 1" in capsys.readouterr().err


def test_consumer_ls_and_rm(queue, path, capsys):
    """Of every kind; one that somebody holds stays."""
    queue.consumer("plain").close()
    member = queue.consumer("g", group=True)
    assert main(["consumer", "ls", path]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(":")[0] for row in rows] == ["g", "plain"]
    assert main(["consumer", "ls", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["g"]["group"]["window"] == 65536
    assert main(["consumer", "rm", path, "g"]) == 1
    member.close()
    assert main(["consumer", "rm", path, "g"]) == 0
    assert list(queue.consumers()) == ["plain"]
