"""What is done to names from outside: another name, and everything finished for all."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest
from support import Child, chunk_files, hold_until_killed, in_child, make_unclean

import shmq
from shmq import _native
from shmq.storage import dedup, floors, names


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
    with pytest.raises(ValueError, match="not a consumer name"):
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
    """Handed out and not acknowledged: it is still theirs; given back, it is purged, too."""
    consumer = queue.consumer("c", ack="explicit")
    queue.put_many([b"a", b"b", b"c"])
    message = consumer.get()
    queue.purge()
    assert message.payload == b"a"
    queue.put(b"d")
    assert consumer.get().payload == b"d"
    consumer.close()
    with queue.consumer("c", ack="explicit") as consumer:
        assert [each.payload for each in consumer.get_many(9)] == [b"d"]


def test_a_purge_of_an_empty_queue_is_nothing(queue):
    """Nor is a second one."""
    assert queue.purge() == 0
    queue.put(b"x")
    assert queue.purge() == queue.purge() == 1
    assert queue.consumer("c", start="earliest").lag <= 1


def test_what_was_purged_stays_so_after_a_power_cut(make, path):
    """For names that it set back, for one that was not there yet, and for groups."""
    queue = make(retention=shmq.Retention.forever())
    names_ = {
        name: {"group": name.startswith("group"), "ack": "explicit"} for name in ("own", "group", "new", "group2")
    }
    for name in ("own", "group"):
        queue.consumer(name, **names_[name]).close()
    before = {file: file.read_bytes() for file in Path(path, "consumers").glob("*.checkpoint")}
    queue.put_many([b"a"] * 10)
    assert queue.purge() == 10
    queue.put(b"b")
    queue.close()
    for file, content in before.items():
        file.write_bytes(content)
    make_unclean(path)
    with shmq.open(path) as queue:
        assert len(queue) == 11
        for name, options in names_.items():
            with queue.consumer(name, **options) as consumer:
                assert consumer.lag == 1
                assert consumer.take(timeout=0) == b"b"
                with pytest.raises(shmq.Empty):
                    consumer.take(timeout=0)
        assert {each.lag for each in queue.consumers().values()} == {0}


@pytest.mark.parametrize("step", [(floors.Names, "drop_from_holders"), (_native.Control, "drop_for_all")])
def test_a_purge_whose_process_was_killed_is_finished_by_the_next_who_opens(queue, path, monkeypatch, step):
    """Once it is written down, whether its names are finished or not."""
    queue.consumer("c").close()
    queue.put_many([b"a"] * 10)

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*step, die)
        with pytest.raises(Killed):
            queue.purge()
    with shmq.open(path) as other:
        assert other.consumers()["c"].lag == 0
        for name in ("c", "new"):
            with other.consumer(name) as consumer, pytest.raises(shmq.Empty):
                consumer.take(timeout=0)


def test_found_a_purge_on_a_full_disk_is_done_and_gives_the_space_back_later(queue, monkeypatch, caplog):
    """Where there is no room to note what was put with dedup; it raised DiskFull, and had purged."""
    queue.put(b"once", dedup=("p", 1))
    for _ in range(100):
        queue.put(bytes(1000))

    def full(*_):
        raise shmq.DiskFull("no room for 102 bytes")

    with monkeypatch.context() as patched:
        patched.setattr(dedup, "write_note", full)
        assert queue.purge() == queue.next_index
    assert "not given back yet: no room for 102 bytes" in caplog.text
    before = queue.first_index
    with queue.consumer("c") as consumer, pytest.raises(shmq.Empty):
        consumer.take(timeout=0)
    queue.purge()
    assert queue.first_index > before


def test_a_purge_that_finds_no_descriptor_has_done_nothing_and_else_it_is_done(make, path):
    """However many there are: with fewer names than it needs files for, not one of them is finished."""
    queue = make(retention=shmq.Retention.forever())
    for name in ("a", "b"):
        queue.consumer(name, ack="explicit").close()
        queue.consumer(f"group-{name}", group=True, ack="explicit").close()

    def purge(left):
        queue.consumers()  # opens it anew
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, most))
        fds = []
        with contextlib.suppress(OSError):
            while True:
                fds.append(os.dup(0))
        for fd in fds[:left]:
            os.close(fd)
        with contextlib.suppress(OSError):
            return queue.purge()
        return -1

    queue.purge()
    answers = []
    for left in (*range(0, 20, 2), 30):
        before = queue.next_index
        for _ in range(30):
            queue.put(bytes(1000))
        answers.append(int(in_child(lambda left=left: purge(left))))
        done = answers[-1] == queue.next_index
        assert done or answers[-1] == -1
        with shmq.open(path) as another:  # which finishes what is written down
            assert (another._session.joined().control.bounds().dropped > before) == done
            lags = {each.lag for each in another.consumers().values()}
            assert len(lags) == 1
            assert (lags == {0}) == done
    assert answers[0] == -1
    assert answers[-1] == queue.next_index


def test_what_was_dropped_for_room_in_chunks_before_the_last_stays_so_after_a_reboot(make, path):
    """It is written down when a chunk is retired."""
    with make(max_messages=10, full="drop_oldest", chunk_bytes=16384) as queue, queue.consumer("c"):
        for _ in range(1000):
            queue.put(bytes(100))
        dropped = queue._session.home.read_journal().dropped
        assert 0 < dropped <= 990
    make_unclean(path)
    with shmq.open(path) as queue, queue.consumer("new") as consumer:
        assert consumer.get(timeout=0).index >= dropped


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_name_that_went_back_before_a_purge_gets_nothing_that_was_purged(queue, ack):
    """As a group does not."""
    queue.put_many([b"a"] * 10)
    with queue.consumer("c", ack=ack) as consumer:
        messages = consumer.get_many(10)
        consumer.ack(*messages) if ack == "explicit" else None
        consumer.seek(0)
        assert consumer.lag == 10
        queue.purge()
        queue.put(b"b")
        assert consumer.lag == queue.consumers()["c"].lag == 1
        assert queue.consumers()["c"].dropped == 10
        assert consumer.get(timeout=0).payload == b"b"
        assert queue.consumers()["c"].dropped == 10


def test_the_lag_of_a_name_that_is_at_work_does_not_count_what_was_purged(queue):
    """What it holds does."""
    queue.put_many([b"a"] * 10)
    with queue.consumer("c", ack="explicit") as consumer:
        held = consumer.get_many(3)
        queue.purge()
        assert consumer.lag == queue.consumers()["c"].lag == 3
        assert queue.consumers()["c"].pending == 3
        assert queue.consumers()["c"].dropped == 7
        queue.put(b"b")
        queue.reserve(8).abort()
        assert consumer.lag == queue.consumers()["c"].lag == 4
        consumer.ack(*held)
        assert consumer.lag == queue.consumers()["c"].lag == 1
        assert queue.consumers()["c"].floor == 10
        assert consumer.get(timeout=0).payload == b"b"
