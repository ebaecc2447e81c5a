"""What is done to names from outside: another name, and everything finished for all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import Child, chunk_files, hold_until_killed

import shmq
from shmq.storage import names


def test_a_renamed_consumer_goes_on_where_it_stood(queue):
    """With its ack mode and what it had not acknowledged."""
    queue.put_many([b"a", b"b", b"c"])
    with queue.consumer("old", ack="explicit") as consumer:
        consumer.get().ack()
        consumer.get()
    queue.rename_consumer("old", "new")
    assert list(queue.consumers()) == ["new"]
    with queue.consumer("new", ack="explicit") as consumer:
        message = consumer.get()
        assert (message.payload, message.attempts) == (b"b", 2)


def test_a_rename_that_cannot_be_says_why(queue):
    """And changes nothing."""
    queue.consumer("taken").close()
    held = queue.consumer("held")
    with pytest.raises(shmq.NotFound, match="no consumer 'none'"):
        queue.rename_consumer("none", "new")
    with pytest.raises(shmq.Busy, match="somebody holds it"):
        queue.rename_consumer("held", "new")
    held.close()
    for new in ("taken", "held"):
        with pytest.raises(shmq.Mismatch, match="nothing was changed"):
            queue.rename_consumer("held", new)
    with pytest.raises(ValueError, match="no consumer name"):
        queue.rename_consumer("held", "../x")
    assert set(queue.consumers()) == {"taken", "held"}


def test_a_rename_that_was_killed_is_finished_by_the_next(queue, path, monkeypatch):
    """Both names are there, at the same place, and hold back what one did."""
    queue.put_many([b"a", b"b"])
    with queue.consumer("old") as consumer:
        consumer.take()

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(names.os, "unlink", die)
        with pytest.raises(Killed):
            queue.rename_consumer("old", "new")
    assert {name: each.head for name, each in queue.consumers().items()} == {"old": 1, "new": 1}
    queue.rename_consumer("old", "new")
    assert {name: each.head for name, each in queue.consumers().items()} == {"new": 1}
    assert os.listdir(Path(path, "consumers")) == ["new.checkpoint"]


@pytest.mark.parametrize("retention", [shmq.Retention.acked(), shmq.Retention.forever(), shmq.Retention.age(3600)])
def test_a_purge_finishes_everything_for_everybody(make, path, retention):
    """Held names and free ones, in this process and another, and names to come; the chunks go."""
    queue = make(retention=retention)
    free, held = queue.consumer("free"), queue.consumer("held")
    free.close()

    def hold(say):
        with shmq.open(path) as mine, mine.consumer("away") as away:
            say("held")
            say(away.take(timeout=60))
            hold_until_killed(say)

    with Child(hold) as child:
        assert child.hear(60) == "held"
        with shmq.open(path) as other:
            for _ in range(20):
                other.put_many([bytes(1000)] * 12)
        assert child.hear(60) == str(bytes(1000))
        assert len(chunk_files(path)) > 10
        assert queue.purge() == 240
        assert len(chunk_files(path)) == 1
        assert queue.first_index > 220
        assert {each.head for name, each in queue.consumers().items() if name == "free"} == {240}
        queue.put(b"after")
        assert held.take(timeout=60) == b"after"
        child.kill()
    for name in ("free", "away", "new"):
        with queue.consumer(name) as consumer:
            assert consumer.take(timeout=0) == b"after"
    told = {name: each.dropped for name, each in queue.stats().consumers.items()}
    assert told["free"] == told["held"] == 240
    assert told["away"] == 239


def test_a_purge_takes_nothing_from_whoever_has_it(queue):
    """Handed out and not acknowledged: it is still theirs, and comes again after a crash; so may what lay behind it."""
    consumer = queue.consumer("c", ack="explicit")
    queue.put_many([b"a", b"b", b"c"])
    message = consumer.get()
    queue.purge()
    assert message.payload == b"a"
    queue.put(b"d")
    assert consumer.get().payload == b"d"
    consumer.close()
    with queue.consumer("c", ack="explicit") as consumer:
        again = [each.payload for each in consumer.get_many(9)]
        assert (again[0], again[-1]) == (b"a", b"d")


def test_a_purge_of_an_empty_queue_is_nothing(queue):
    """Nor is a second one."""
    assert queue.purge() == 0
    queue.put(b"x")
    assert queue.purge() == queue.purge() == 1
    assert queue.consumer("c", start="earliest").lag <= 1
