"""`--format sej`: journals that sej reads, without gaps, and which index each offset has."""

from __future__ import annotations

import random
import shutil
import time

import pytest
from hubs import Hub, content, push_once, token_of
from support import CHANGING, Child, killed_at, make_unclean, until

import shmq
from shmq import formats, replica
from shmq.formats import sej
from shmq.hub import Map
from shmq.hub.dense import Dense

NAME = "till-1.orders"


def is_dense(source, there, count=None) -> int:
    """The journal is the beginning of the queue: offsets count, and the map has the index of each."""
    if not (there / "jnl").exists() or not (entries := list(sej.read(there, strict=True))):
        return 0
    here = content(source)
    assert [each.index for each in entries] == list(range(len(entries)))
    program = [each.index for each in sej.read(there, as_program=True)]  # of now, which may be more
    assert program[: len(entries)] == list(range(len(entries)))
    where = Map(there)
    found = [(where.index_of(each.index), each.payload, each.key or None, each.time_ns) for each in entries]
    assert found == [(index, payload, key or None, time_ns) for index, payload, key, time_ns in here[: len(found)]]
    assert count in (None, len(found))
    return len(found)


def with_gaps(path, parts=3) -> int:
    """A queue whose indexes jump: it was recovered between. How many messages it has."""
    for part in range(parts):
        with shmq.open(str(path), chunk_bytes=1 << 18) as queue:
            queue.put_many([b"%d %d" % (part, number) for number in range(50)], keys=[b"k" * 127] * 50)
        make_unclean(path)
    indexes = [each[0] for each in content(path)]
    assert (indexes[-1] >= len(indexes)) == (parts > 1)
    return len(indexes)


def test_offsets_have_no_gaps_and_the_map_has_the_indexes(root, clients, tmp_path):
    """As a root of sej's it is one client's directory, which its reader finds whole."""
    count = with_gaps(tmp_path / "a")
    with Hub(root, clients, as_sej=True) as there:
        push_once(tmp_path / "a", there.at, NAME)
        assert is_dense(tmp_path / "a", root / NAME, count) == 150
        with shmq.open(str(tmp_path / "a")) as queue:
            queue.put(b"later")
        push_once(tmp_path / "a", there.at, NAME)
        assert is_dense(tmp_path / "a", root / NAME, count + 1)
    assert sej.queues(root) == [NAME]
    assert list(formats.verify(root, format="sej")) == []


@pytest.mark.parametrize("harm", ["gone", "damaged", "torn"])
def test_a_map_that_is_lost_is_counted_anew(root, clients, tmp_path, harm):
    count = with_gaps(tmp_path / "a")
    with Hub(root, clients, as_sej=True) as there:
        push_once(tmp_path / "a", there.at, NAME)
        file = root / NAME / "shmq.map"
        before = file.read_bytes()
        if harm == "gone":
            file.unlink()
        else:
            file.write_bytes(before + b"x" if harm == "torn" else before[:5] + b"x" + before[6:])
        push_once(tmp_path / "a", there.at, NAME)
        assert file.read_bytes() == before
        assert is_dense(tmp_path / "a", root / NAME, count)


def test_a_map_that_cannot_be_counted_is_said_to_be_lost(root, clients, tmp_path):
    """The journal is another one's."""
    with_gaps(tmp_path / "a")
    with Hub(root, clients, as_sej=True) as there:
        push_once(tmp_path / "a", there.at, NAME)
    (root / NAME / "shmq.map").unlink()
    sej.append(root / NAME, [formats.Entry(b"strange", None, 1)])
    with Hub(root, clients, as_sej=True) as there, pytest.raises(shmq.Corrupt, match="counted anew"):
        push_once(tmp_path / "a", there.at, NAME)


def test_what_sej_cannot_hold_is_refused_and_what_came_before_is_there(root, clients, tmp_path):
    """A key of 128 bytes; headers."""
    for name, options in (("a", {"key": b"k" * 128}), ("b", {"headers": {"a": 1}})):
        with shmq.open(tmp_path / name) as queue:
            queue.put(b"before")
            queue.put(b"x", **options)
        with Hub(root, clients, as_sej=True) as there:
            with pytest.raises((shmq.TooLarge, shmq.Unsafe), match="the hub goes no further"):
                push_once(tmp_path / name, there.at, f"till-1.{name}x")
            assert is_dense(tmp_path / name, root / f"till-1.{name}x", 1)


def test_killed_before_every_call_that_changes_something(tmp_path):
    """Of map and journal: whoever comes next goes on, and the map has every message that is there."""
    count = with_gaps(tmp_path / "a")
    replica.replicate(tmp_path / "a", tmp_path / "follower", name="b", once=True)

    def write() -> None:
        with Dense(tmp_path / "sej", str(tmp_path / "follower")) as journal:
            journal.catch_up()

    step = 0
    while killed_at(step, write, CHANGING | {"write", "replace", "ftruncate"}):
        is_dense(tmp_path / "a", tmp_path / "sej")
        if step % 3 == 2:  # else what is there already is gone on with
            shutil.rmtree(tmp_path / "sej", ignore_errors=True)
        step += 1
    assert step > 9
    write()
    assert is_dense(tmp_path / "a", tmp_path / "sej", count)


def test_what_a_map_says_of_messages_that_did_not_come_is_forgotten(root, clients, tmp_path):
    """The hub was killed, or its power cut, between map and journal."""
    count = with_gaps(tmp_path / "a")
    with Hub(root, clients, as_sej=True) as there:
        push_once(tmp_path / "a", there.at, NAME)
    Map(root / NAME).add([(count, 1 << 40)])
    with Hub(root, clients, as_sej=True) as there:
        with shmq.open(str(tmp_path / "a")) as queue:
            queue.put(b"later")
        push_once(tmp_path / "a", there.at, NAME)
        assert is_dense(tmp_path / "a", root / NAME, count + 1)


def test_a_root_is_of_one_kind(root, clients, tmp_path):
    with_gaps(tmp_path / "a", 1)
    with Hub(root, clients) as there:
        push_once(tmp_path / "a", there.at, NAME)
    with Hub(root, clients, as_sej=True) as there, pytest.raises(shmq.BadFormat, match="another root"):
        push_once(tmp_path / "a", there.at, NAME)
    assert content(root / NAME) == content(tmp_path / "a")


def put_until_killed(say, path) -> None:
    with shmq.open(str(path), chunk_bytes=1 << 18) as queue:
        say("puts")
        while True:
            queue.put(b"%d " % queue.next_index * random.randrange(1, 200), key=b"k%d" % random.randrange(9))
            time.sleep(0.0005)


def test_hub_client_and_producer_are_killed_again_and_again(root, clients, tmp_path):
    """Each message is in the journal once, in order, at its index."""
    a, there = tmp_path / "a", Hub(root, clients, as_sej=True)
    shmq.open(str(a), chunk_bytes=1 << 18).close()
    work = lambda say: replica.replicate(a, there.at, name=NAME, token=token_of("till-1"))  # noqa: E731
    producer, client = Child(put_until_killed, a), Child(work)
    try:
        before = 0
        for turn in range(15):
            time.sleep(random.uniform(0.0, 0.08))
            if turn % 3 == 0:
                client.kill()
                client = Child(work)
            elif turn % 3 == 1:
                there.kill()
                there = there.again()
            else:
                producer.kill()
                producer = Child(put_until_killed, a)
            now = is_dense(a, root / NAME)
            assert now >= before
            before = now
        until(lambda: is_dense(a, root / NAME) > before)
        producer.kill()
        client.kill()
        push_once(a, there.at, NAME)
        assert is_dense(a, root / NAME, len(content(a)))
    finally:
        for each in (there, producer, client):
            each.__exit__()
