"""Consumers go on at a promoted follower about where they stood: nothing that was not acknowledged is missing there."""

from __future__ import annotations

import pytest
from following import content, follow_once

import shmq
from shmq import replica
from shmq.replica.follower import Follower
from shmq.replica.pieces import Places, Region
from shmq.replica.source import Source


@pytest.fixture
def pair(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 18) as queue:
        for number in range(200):
            queue.put(b"%d" % number)
        yield queue, a, b


def test_names_go_on_where_they_stood(pair):
    """One of its own, one that acknowledges, a group with something in flight and something done behind it."""
    queue, a, b = pair
    with (
        queue.consumer("alone") as alone,
        queue.consumer("lone", ack="explicit") as lone,
        queue.consumer("group", group=True, ack="explicit") as group,
        queue.consumer("some", filter=shmq.Filter(types=[7]), hold=True),
    ):
        for _ in range(50):
            alone.take()
        held = [lone.get(timeout=0) for _ in range(20)]
        for message in held[:10]:
            message.ack()
        claimed = [group.get(timeout=0) for _ in range(30)]
        for message in claimed[:10] + claimed[20:]:
            message.ack()
        follow_once(a, b)
        with shmq.open(str(b)) as follower, pytest.raises(shmq.Fenced):
            follower.consumer("alone")
        replica.promote(b)
        with shmq.open(str(b)) as promoted:
            assert set(promoted.consumers()) == {"alone", "lone", "group", "some"}
            assert promoted.consumer("alone").get(timeout=0).index == 50
            with promoted.consumer("lone") as there:
                assert there.get(timeout=0).index == 10
            with promoted.consumer("group", group=True) as there:
                again = [there.get(timeout=0).index for _ in range(180)]
                assert again == [*range(10, 20), *range(30, 200)]


def test_no_acknowledgement_is_ahead_of_its_message(pair):
    """R8: places come behind all messages that were there when they were looked at."""
    queue, a, b = pair
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        with queue.consumer("c") as consumer:
            for _ in range(200):
                consumer.take()
            seen, placed = 0, False
            for piece in source.pieces():
                if isinstance(piece, Region):
                    seen = source._base + source._ordinal
                    for _ in range(10):
                        queue.put(b"later")
                        consumer.take()
                elif isinstance(piece, Places):
                    placed = True
                    assert follower.session.next_index >= 200
                follower.take(piece)
            assert placed
            assert seen is not None
        with shmq.open(str(b), read_only=True) as there:
            assert there.consumers()["c"].head <= there.next_index


def test_places_wait_for_the_disk_as_their_messages_do(pair, monkeypatch):
    """What may not be sent yet is not said to be acknowledged."""
    queue, a, b = pair
    with Source(str(a), "b") as source, Follower(str(b)) as follower, queue.consumer("c") as consumer:
        consumer.take_many(200)
        source.begin(follower.answer(source.hello()))
        with monkeypatch.context() as patched:
            patched.setattr(source, "_on_the_disk", lambda *_, **__: False)
            assert not [piece for piece in source.pieces() if isinstance(piece, (Region, Places))]
        kinds = [type(piece) for piece in source.pieces() if isinstance(piece, (Region, Places))]
        assert kinds == [Region, Places]


def test_a_name_that_was_dropped_goes_there_too(pair):
    """And one that comes, comes."""
    queue, a, b = pair
    queue.consumer("one").close()
    follow_once(a, b)
    queue.drop_consumer("one")
    queue.consumer("two", group=True).close()
    follow_once(a, b)
    with shmq.open(str(b), read_only=True) as follower:
        assert set(follower.consumers()) == {"two"}
    assert content(b) == content(a)


@pytest.mark.parametrize("name", ["../queue.shmq", "x.pin", "queue.shmq", ".checkpoint", "a/b.checkpoint", "x"])
def test_only_files_of_consumer_names_are_written(pair, name):
    """Whatever the other side says they are called."""
    _, a, b = pair
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        for changed, there in (([(name, b"x")], []), ([], [name])):
            with pytest.raises(shmq.Corrupt, match="no consumer name"):
                follower.take(Places(changed, there))
