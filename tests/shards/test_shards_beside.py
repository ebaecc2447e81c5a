"""What goes with one shard alone, beside its root: followers and bridges, and puts by doors that know of no root."""

from __future__ import annotations

import os
import pickle

import pytest

import shmq
from shmq.cli import main
from shmq.shards import growth


@pytest.fixture
def grown(tmp_path):
    """Two shards that are finished, with a message in one, and four that are open."""
    with shmq.shards.open(tmp_path / "events", shards=2) as root:
        root.put(b"before", key=b"k")
        root.grow()
        yield root


def test_a_growth_copies_no_name_of_a_follower_or_a_bridge(tmp_path):
    """Nobody would move it in the new shard, and producers would wait for it for ever."""
    with shmq.shards.open(tmp_path / "events", shards=2, max_messages=5, full="raise") as root:
        for number, queue in enumerate(root.queues):
            shmq.replica.replicate(queue.path, tmp_path / f"f.1.{number}", once=True)
            queue.consumer("bridge.redis.stream.12345678").close()
            queue.consumer("archive", hold=True).close()
        assert root.grow() == 4
        assert {name for queue in root.queues for name in queue.consumers()} == {"archive"}
        for queue in root.queues:
            queue.drop_consumer("archive")
        with root.consumer("c") as c:
            for number in range(40):
                root.put(b"%d" % number, key=b"k")
                assert c.get(timeout=5.0).payload == b"%d" % number


# ---------------------------------------------------------------- a finished shard stays finished
WAYS = {
    "put": lambda queue: queue.put(b"x"),
    "put_many": lambda queue: queue.put_many([b"x"]),
    "producer": lambda queue: queue.producer().put(b"x"),
    "reserve": lambda queue: queue.reserve(1),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_put_by_another_door_does_not_open_a_finished_shard(grown, way):
    """Its consumers are beyond it, or begin there later: they see what came before, and go on."""
    for shard in grown.map.of_bit(1):
        for _ in range(2):
            with shmq.open(shard.path) as queue:
                with pytest.raises(
                    shmq.ShutDown, match="it is a shard that was finished, and it stays so; nothing was put"
                ):
                    WAYS[way](queue)
                assert queue.finished
    grown.put(b"after", key=b"k")
    with pickle.loads(pickle.dumps(grown)) as again, again.consumer("new") as c:
        assert [c.get(timeout=5.0).payload for _ in range(2)] == [b"before", b"after"]


def test_a_set_is_not_adopted_by_a_finished_shard_either(tmp_path):
    """Handed over before the end, it waits."""
    with shmq.shards.open(tmp_path / "events", shards=2) as root:
        shard = root.map.of_bit(1)[0].path
        with shmq.open(shard) as queue, queue.stage() as staged:
            staged.put(b"x")
            token = staged.hand_over()
        root.grow()
        with shmq.open(shard) as queue:
            with pytest.raises(shmq.ShutDown, match="stays so"):
                queue.adopt(token)
            assert queue.finished
            assert len(queue) == 0
            assert queue.staged(token).token == token


def test_a_growth_under_way_keeps_its_ends_too(grown, monkeypatch):
    """Killed between the ends and the map, a growth has finished shards that the map calls open."""

    def cut(shard, opens):
        finish(shard, opens)
        if shard.index == 3:
            raise InterruptedError

    finish = growth._finish
    monkeypatch.setattr(growth, "_finish", cut)
    with pytest.raises(InterruptedError):
        grown.grow()
    with shmq.open(grown.map.of_bit(2)[0].path) as queue, pytest.raises(shmq.ShutDown):
        queue.put(b"x")


def test_queues_that_are_no_shards_are_opened_again(grown, tmp_path):
    """Dead letters beside them, and what has a shard's name and lies in no root."""
    for place in (f"{grown.map.of_bit(2)[0].path}.dead", tmp_path / "1.000"):
        with shmq.open(place) as queue:
            queue.finish()
        with shmq.open(place) as queue:
            assert queue.put(b"x") == 0


# ---------------------------------------------------------------- a root is no queue
ROOT = "it is a root of shards, and no queue: shmq.shards.open opens it, shmq.shards.delete deletes it"


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (shmq.BadFormat, shmq.open),
        (shmq.NotFound, lambda path: shmq.open(path, create=False)),
        (shmq.NotFound, lambda path: shmq.open(path, read_only=True)),
        (shmq.NotFound, shmq.delete),
        (shmq.NotFound, lambda path: shmq.replica.replicate(path, f"{path}.copy", once=True)),
    ],
)
def test_what_takes_a_queue_says_that_a_root_is_none(grown, kind, call):
    """And what to use."""
    before = sorted(os.listdir(grown.path))
    with pytest.raises(kind, match=ROOT):
        call(grown.path)
    assert sorted(os.listdir(grown.path)) == before
    assert os.listdir(os.path.dirname(grown.path)) == ["events"]


def test_a_bridge_says_so_too(grown, capsys):
    assert main(["bridge", grown.path, "redis://127.0.0.1:1/s"]) == 1
    assert ROOT in capsys.readouterr().err
