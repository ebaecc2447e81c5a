"""Faults that cuts and failing calls have found: each a test of its own."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
from pathlib import Path

import pytest
from support import DONE, Child, chunk_files, make_unclean, patch, words

import shmq
import shmq.shards
from shmq.storage import staging, sync

from .campaign import child
from .judge import another_boot


def test_a_consumer_of_a_queue_that_lost_everything_is_not_told_that_messages_have_gone(path):
    """Nothing was retired: the name goes on with the first message that is put."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"never synced")
        queue.consumer("c").close()
    (chunk,) = Path(path, "chunks").glob("*.chunk")
    chunk.write_bytes(bytes(chunk.stat().st_size))
    make_unclean(path)

    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        assert queue.next_index == queue.first_index == queue.recovery.next_index
        assert len(queue) == 0
        index = queue.put(b"after")
        assert index == queue.recovery.next_index
        assert consumer.get(timeout=0).index == index


@pytest.mark.parametrize("kind", ["process", "interval", "sync"])
def test_a_queue_is_on_the_disk_when_it_was_made_whatever_its_durability(path, monkeypatch, kind):
    """Its folders before its name, and its name before anybody can put into it."""
    durability = {
        "process": shmq.Durability.PROCESS,
        "interval": shmq.Durability.interval(3600),
        "sync": shmq.Durability.SYNC,
    }[kind]
    there_at_sync = []
    real = sync.directory

    def told(fd, what):
        if what == "home":
            there_at_sync.append(set(os.listdir(fd)))
        real(fd, what)

    monkeypatch.setattr(sync, "directory", told)
    shmq.open(path, options=shmq.Options(durability=durability)).close()

    first, second = there_at_sync[:2]
    assert {"chunks", "consumers", "control.shmq"} <= first
    assert "queue.shmq" not in first
    assert "queue.shmq" in second


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(make, monkeypatch):
    """Else a power cut leaves a name with a torn checkpoint, which nobody can open."""
    queue = make()
    synced = []
    real = sync.data

    def told(fd, what):
        if what == "checkpoint":
            synced.append(os.fstat(fd).st_nlink)
        real(fd, what)

    monkeypatch.setattr(sync, "data", told)
    queue.consumer("c").close()
    assert synced == [0]


def test_the_name_of_a_consumer_is_on_the_disk_when_its_user_gets_it(make, monkeypatch):
    """Else acknowledgements that were synced are lost with the name."""
    queue = make(durability=shmq.Durability.SYNC)
    synced = []
    real = sync.directory

    def told(fd, what):
        if what == "consumers":
            synced.append(os.listdir(fd))
        real(fd, what)

    monkeypatch.setattr(sync, "directory", told)
    with queue.consumer("c"):
        assert synced[0] == ["c.checkpoint"]


def test_an_error_of_the_kernel_says_which_queue(queue, path, monkeypatch):
    """The kernel names no file when it has no descriptor left, or names one without its folder."""

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "name")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files") as caught:
            queue.stats()
    assert caught.value.filename.startswith(path)


_HOLDERS = {
    "consumer": lambda queue: queue.consumer("c"),
    "group": lambda queue: queue.consumer("g", group=True),
    "pin": lambda queue: queue.reader(pin=True),
}


def _starved(say, path, what):
    with shmq.open(path) as queue:
        _HOLDERS[what](queue).close()
        gc.collect()  # what was inherited goes now
        before = len(os.listdir("/proc/self/fd"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for room in range(1, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, hard))
            try:
                _HOLDERS[what](queue).close()
            except OSError as problem:
                if path not in str(problem):
                    say(f"{problem} does not say where")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        say(len(os.listdir("/proc/self/fd")) - before)


@pytest.mark.parametrize("what", _HOLDERS)
def test_an_opening_that_fails_leaves_no_descriptor(queue, path, what):
    """Whatever number of descriptors is left when it is tried."""
    queue.put(b"x")
    queue.close()
    with Child(_starved, path, what) as child:
        assert child.hear(120) == "0"
        assert child.join(120) == 0


@pytest.mark.parametrize("handed", [False, True])
def test_a_disk_that_is_full_behind_the_seal_of_an_adoption_loses_nothing(queue, handed, monkeypatch):
    """Only `placed` is left to write: the set is committed, so adopt returns its range; the next one finishes it."""
    queue.put(b"before")
    with contextlib.ExitStack() as opened:
        staged = [opened.enter_context(queue.stage()) for _ in range(2 if handed else 1)]
        staged[0].put(b"a")
        staged[-1].put(b"b")
        what = [each.hand_over() for each in staged] if handed else staged[0]
        adopt_on_a_full_disk(queue, what, monkeypatch)
    assert queue.put(b"after") == 3
    assert [message.payload for message in queue.reader()] == [b"before", b"a", b"b", b"after"]
    assert queue.adopted("producer") == (1, range(1, 3))


def adopt_on_a_full_disk(queue, staged, monkeypatch):
    """Full when the SEAL is there, and only where it belongs is to be written down."""

    def refuse(*_):
        raise shmq.DiskFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(staging.Set, "place", refuse)
        assert queue.adopt(staged, dedup=("producer", 1)) == range(1, 3)


def test_a_letter_may_outlive_its_message_in_a_recovery_that_is_cut(built):
    """The judge took it for another message: with PROCESS a letter is synced before the queue that it came from is."""
    found = child("recoveries", built, "process group", 1795318357, 40)
    assert not found["findings"], "\n".join(found["findings"])


def test_a_group_is_not_told_of_a_message_that_went_with_the_power(path):
    """It was put aside, and the group's snapshot reached the disk before it did: it never was, and none was retired."""
    with (
        shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())) as queue,
        queue.consumer("g", group=True, ack="explicit") as member,
    ):
        for payload in (b"done", b"there", b"lost", b"lost, and done"):
            queue.put(payload)
        done, there, lost, last = member.get_many(10, timeout=0)
        there.nack(delay=3600)
        lost.nack(delay=3600)
        member.ack(done, last)
        member._snapshot()
    (chunk,) = chunk_files(path)
    position = [each.position for each in words(path) if each.state == DONE][lost.index]
    patch(chunk, position, bytes(chunk.stat().st_size - position))
    make_unclean(path)

    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as member:
        assert queue.recovery.end == lost.index
        assert queue.put(b"after") >= 65536
        for payload in (b"there", b"after"):
            message = member.get(timeout=20)
            assert message.payload == payload
            message.ack()
        with pytest.raises(shmq.Empty):
            member.get(timeout=0)
        assert member.lag == 0


def test_what_a_name_took_before_a_power_cut_is_dropped_for_room_after_it(path):
    """It had been acknowledged, which is forgotten, so it comes again; nobody holds it, and a put waited for ever."""
    options = shmq.Options(chunk_bytes=16384, durability=shmq.Durability.SYNC, max_messages=4, full="drop_oldest")
    with shmq.open(path, options=options) as queue:
        consumer = queue.consumer("c")
        for number in range(4):
            queue.put(b"%d" % number)
        assert consumer.take(timeout=0) == b"0"
        consumer.close()
    patch(Path(path, "consumers", "c.checkpoint"), 4096, bytes(2 * 12288))  # no snapshot had reached the disk
    make_unclean(path)

    with shmq.open(path) as queue:
        assert queue.consumers()["c"].head == 0
        queue.put(b"after", timeout=0)
        with queue.consumer("c") as consumer:
            assert consumer.take_many(10, timeout=0) == [b"1", b"2", b"3"]


def test_a_growth_of_shards_that_was_cut_in_its_beginning_can_be_begun_again(tmp_path):
    """A recovery of the new, empty shard leaves a gap in it, which was taken for messages: it never grew again."""
    root = str(tmp_path / "root")
    with shmq.shards.open(root, shards=2) as shards:
        shards.put(b"a", key=b"k")
    with shmq.open(f"{root}/2.000") as child:  # as far as a growth came
        child.producer().close()
    with another_boot():
        with shmq.open(f"{root}/2.000") as child:
            assert child.next_index > 0 == len(child)
        with shmq.shards.open(root) as shards:
            assert shards.grow() == 4
            shards.put(b"b", key=b"k")
            assert [message.payload for _, message in shards.reader()] == [b"a", b"b"]


def test_a_growth_of_shards_does_not_take_the_place_of_a_queue_with_messages(tmp_path):
    root = str(tmp_path / "root")
    with shmq.shards.open(root, shards=2) as shards, shmq.open(f"{root}/2.001") as other:
        other.put(b"precious")
        with pytest.raises(shmq.BadFormat, match=r"a queue with messages at .*2\.001; nothing was changed"):
            shards.grow()
        assert len(other) == 1
        assert shards.shards == 2
