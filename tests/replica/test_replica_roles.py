"""Which part a queue has is shown, and no repair takes it away untold."""

from __future__ import annotations

import json
import os

import pytest
from following import content, follow_once
from support import chunk_files

import shmq
from shmq import replica
from shmq.cli import main


@pytest.fixture
def three(tmp_path, monkeypatch):
    """One that is fenced, the one that was promoted over it, and one that follows that."""
    monkeypatch.chdir(tmp_path)
    with shmq.open("old") as queue:
        queue.put_many([b"%d" % number for number in range(10)])
    follow_once("old", "new")
    replica.promote("new")
    with pytest.raises(shmq.Fenced):
        follow_once("old", "new")
    follow_once("new", "copy")
    with shmq.open("plain"):
        pass


def facts(capsys, *words):
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


ROLES = {"copy": "follower", "new": "promoted", "old": "fenced", "plain": None}


def test_each_part_is_shown_where_figures_are(three, capsys):
    assert {each["path"]: each["role"] for each in facts(capsys, "ls", "--json", ".")} == ROLES
    assert {name: facts(capsys, "stat", name, "--json")["role"] for name in ROLES} == ROLES
    main(["ls", "."])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[0]: line[-1] for line in lines} == {"QUEUE": "ROLE"} | {k: v or "-" for k, v in ROLES.items()}
    main(["stat", "copy"])
    assert "follower" in capsys.readouterr().out
    with shmq.open("copy") as queue:
        assert queue.stats().role == "follower"
        replica.promote("copy")
        assert queue.stats().role == "promoted", "as it is now"


def test_a_list_without_parts_has_no_column_for_them(tmp_path, capsys):
    shmq.open(str(tmp_path / "a")).close()
    main(["ls", str(tmp_path)])
    assert "ROLE" not in capsys.readouterr().out


def damage(path) -> None:
    """One byte of the fourth message."""
    file = chunk_files(path)[0]
    at = file.read_bytes().index(b"3", 4096 + 40)
    with open(file, "r+b") as handle:
        handle.seek(at)
        handle.write(b"x")


def test_a_follower_is_not_repaired_in_place(three, tmp_path):
    """What it lost is in its source; elsewhere a queue of its own is written, as ever."""
    damage(tmp_path / "copy")
    before = {name: os.stat(name).st_ino for name in os.listdir(".")}
    with pytest.raises(shmq.Fenced, match="follows another queue, which has what is damaged"):
        shmq.repair("copy", in_place=True)
    assert {name: os.stat(name).st_ino for name in os.listdir(".")} == before
    assert shmq.repair("copy", "elsewhere").lost == 1
    with shmq.open("elsewhere") as queue:
        assert queue.stats().role is None


@pytest.mark.parametrize("name", ["old", "new"])
def test_who_is_fenced_or_promoted_stays_so_over_a_repair(three, tmp_path, name):
    damage(tmp_path / name)
    assert shmq.repair(name, in_place=True).lost == 1
    with shmq.open(name) as queue:
        assert queue.stats().role == ROLES[name]
        if name == "old":
            with pytest.raises(shmq.Fenced):
                queue.put(b"x")
        else:
            queue.put(b"x")
    assert len(content(name)) == 9 + (name == "new")
