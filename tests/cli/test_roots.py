"""`shmq verify` and `shmq repair` of a directory of shards: all of them, each under its name, and one answer."""

import json
import os
import shutil

import pytest
from support import chunk_files, flip, records, words

import shmq
from shmq.cli import main
from shmq.cli.repair import LOST


@pytest.fixture
def root(tmp_path):
    """Two shards, and the four that they have grown to."""
    with shmq.shards.open(tmp_path / "events", shards=2) as events:
        for n in range(20):
            events.put(b"%d" % n, key=b"%d" % n)
        events.grow()
        for n in range(20, 40):
            events.put(b"%d" % n, key=b"%d" % n)
    return tmp_path / "events"


def _damage(shard) -> bytes:
    """The payload of a message of that shard, in which a bit is flipped."""
    (word, *_), (record, *_) = (word for word in words(shard) if word.state == 2), records(shard)
    flip(chunk_files(shard)[0], word.position + 40 + len(record.extra) + -(-len(record.key) // 8) * 8)
    return record.payload


def _payloads(path) -> set[bytes]:
    with shmq.shards.open(path, create=False) as events:
        return {message.payload for _, message in events.reader()}


def test_a_whole_root_is_whole(root, capsys):
    assert main(["verify", str(root)]) == 0
    assert capsys.readouterr().out == f"{root}: 6 shards of shmq, 40 messages whole, 0 problems\n"
    assert main(["verify", str(root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["shards"]
    assert [os.path.basename(each["path"]) for each in told] == ["1.000", "1.001", "2.000", "2.001", "2.002", "2.003"]
    assert sum(each["messages"] for each in told) == 40


def test_each_problem_is_told_with_the_shard_that_has_it(root, capsys):
    _damage(root / "1.001")
    shutil.rmtree(root / "2.003")
    assert main(["verify", str(root)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1.001/")
    assert lines[1].startswith("2.003/queue.shmq at 0: ")
    assert lines[-1].endswith("2 problems")


def test_a_clean_root_is_made_of_a_damaged_one(root, capsys):
    lost = _damage(root / "2.002")
    assert main(["repair", str(root)]) == LOST
    assert "2.002: " in capsys.readouterr().out
    clean = f"{root}.repaired"
    assert _payloads(clean) == {b"%d" % n for n in range(40)} - {lost}
    with shmq.shards.open(clean, create=False) as events, events.consumer("c") as consumer:
        events.put(b"more")
        assert consumer.get(timeout=0) is not None
    assert main(["verify", clean]) == 0
    assert main(["repair", str(root)]) == 1
    assert "there is something already; nothing was changed" in capsys.readouterr().err


def test_in_place_the_damaged_shards_are_repaired_and_the_others_left(root, capsys):
    lost = _damage(root / "2.002")
    assert main(["repair", str(root), "--in-place"]) == LOST
    assert sorted(each for each in os.listdir(root) if "damaged" in each) == ["2.002.damaged"]
    assert main(["verify", str(root)]) == 0
    assert _payloads(root) == {b"%d" % n for n in range(40)} - {lost}
    capsys.readouterr()
    assert main(["repair", str(root), "--in-place", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not any(each["kept"] for each in told["shards"])


def test_a_shard_that_is_missing_is_said_to_be_and_no_root_is_made(root, capsys):
    shutil.rmtree(root / "2.003")
    assert main(["repair", str(root), "--to", f"{root}.clean"]) == 1
    out = capsys.readouterr().out
    assert "2.003: it was not repaired: " in out
    assert out.endswith("5 of 6 shards are clean; no root was made of them\n")
    assert not os.path.exists(f"{root}.clean/shards.shmq")


def test_what_was_set_aside_is_asked_of_one_shard(root, capsys):
    assert main(["repair", str(root), "--aside", "3"]) == 2
    assert "what was set aside is in one shard" in capsys.readouterr().err
