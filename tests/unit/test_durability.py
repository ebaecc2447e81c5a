"""Durability: the three modes, the group commit, the watermark, the ceiling, acknowledgements, and disks that fail."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import resource
import signal
import threading
import time
import weakref

import pytest
from support import DEADLINE, Child, chunk_files, hold_until_killed, in_child, make_unclean, patch, until, words

import shmq
from shmq import _native, durability
from shmq.durability import Keeper
from shmq.storage import directory, making, sync, watermark

SYNC, PROCESS = shmq.Durability.SYNC, shmq.Durability.PROCESS


@pytest.fixture
def events(monkeypatch):
    """What was synced and written, in order, as "data chunk" and so on; the core syncs nothing by itself."""
    seen: list[str] = []
    write = sync.write

    def written(fd, content, position, what):
        write(fd, content, position, what)
        seen.append(f"write {what}")

    monkeypatch.setattr(sync, "IN_CORE", False)
    monkeypatch.setattr(sync, "data", lambda fd, what: seen.append(f"data {what}"))
    monkeypatch.setattr(sync, "pages", lambda memory, first, size, what: seen.append(f"pages {what}"))
    monkeypatch.setattr(sync, "directory", lambda fd, what: seen.append(f"directory {what}"))
    monkeypatch.setattr(sync, "write", written)
    return seen


def control(queue):
    return queue._session.joined().control


def durable(queue):
    return control(queue).durable()


def mark(queue):
    return watermark.read(queue._session.home)


def wait_until(true):
    done = threading.Event()
    deadline = _native.monotonic_ns() + int(DEADLINE * 1e9)
    while not true():
        assert _native.monotonic_ns() < deadline
        done.wait(0.002)


# ---------------------------------------------------------------- the option
@pytest.mark.parametrize("mode", [PROCESS, SYNC, shmq.Durability.interval(0.25)])
def test_the_mode_is_stored_and_a_contradiction_is_a_mismatch(make, path, mode):
    make(durability=mode).close()
    with shmq.open(path) as queue:
        assert queue.options.durability == mode
    shmq.open(path, options=shmq.Options(durability=mode)).close()
    with pytest.raises(shmq.Mismatch, match="durability"):
        shmq.open(path, options=shmq.Options(durability=shmq.Durability.interval(7)))


def test_a_queue_of_before_has_the_default():
    stored = json.loads(json.dumps(shmq.Options().to_json()))
    del stored["durability"]
    assert shmq.Options.from_json(stored).durability == PROCESS


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e9])
def test_an_interval_is_a_time(seconds):
    with pytest.raises(ValueError, match="seconds"):
        shmq.Durability.interval(seconds)


# ---------------------------------------------------------------- SYNC
@pytest.mark.disk
def test_each_put_is_durable_when_it_returns_over_many_chunks(make):
    queue = make(durability=SYNC)
    for i in range(40):
        assert queue.put(b"x" * 1000) == i
        assert durable(queue) > i
    assert queue.put_many([b"y"] * 7) == range(40, 47)
    assert durable(queue) == 47
    with queue.reserve(3) as slot:
        slot.buffer[:] = b"abc"
    assert durable(queue) == 48
    assert len(queue._session.chain().names()) > 2


def test_chunk_and_name_are_synced_before_the_put_returns(make, events):
    queue = make(durability=SYNC)
    del events[:]
    queue.put(b"a")
    assert [event for event in events if "chunk" in event] == ["data chunk", "directory chunks"]
    del events[:]
    queue.put(b"b")
    assert events == ["pages records"]  # one sync, nothing else


def test_process_mode_starts_no_thread_and_syncs_nothing_at_a_put(make, events):
    queue = make()
    before = threading.active_count()
    del events[:]
    queue.put_many([b"x" * 100] * 50)
    assert events == []
    assert threading.active_count() == before
    assert durable(queue) == 0


def test_many_producers_share_syncs(make, path):
    make(durability=SYNC).close()

    def produce(say):
        with shmq.open(path) as queue:
            for _ in range(25):
                index = queue.put(b"x")
                assert durable(queue) > index
        say("done")

    children = [Child(produce) for _ in range(8)]
    for child in children:
        with child:
            assert child.hear() == "done"
            assert child.join() == 0
    with shmq.open(path) as queue:
        assert len(queue) == 200
        assert durable(queue) == 200


def test_a_killed_leader_is_taken_over(make, path, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"before")

    def die(say):
        monkeypatch.setattr(sync, "IN_CORE", False)
        monkeypatch.setattr(sync, "pages", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with shmq.open(path) as own:
            own.put(b"it is in the queue")

    with Child(die) as child:
        assert child.join() == -signal.SIGKILL
    assert durable(queue) == 1
    assert queue.put(b"after") == 2
    assert durable(queue) == 3


def test_a_dead_claim_is_padded_and_does_not_hold_the_disk_up(make, path):
    queue = make(durability=SYNC)

    def die(say):
        own = shmq.open(path)
        own.reserve(10)
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(die) as child:
        assert child.join() == -signal.SIGKILL
    assert queue.put(b"x") == 1
    assert durable(queue) == 2


def test_a_reservation_holds_up_what_lies_behind_it_only(make):
    queue = make(durability=SYNC)
    slot = queue.reserve(10)
    with pytest.raises(shmq.SyncPending) as pending:
        queue.put(b"behind it", timeout=0)
    assert pending.value.index == 1
    assert durable(queue) == 0
    answers = []
    thread = threading.Thread(target=lambda: answers.append(queue.put(b"waits for it")))
    thread.start()
    slot.commit()
    thread.join(DEADLINE)
    assert answers == [2]
    assert durable(queue) == 3
    assert [m.payload for m in queue.reader()][1:] == [b"behind it", b"waits for it"]


def test_a_batch_that_waits_for_the_disk_heeds_its_timeout_too(make):
    queue = make(durability=SYNC)
    with queue.reserve(10):
        with pytest.raises(shmq.SyncPending) as pending:
            queue.put_many([b"behind it"] * 3, timeout=0)
        assert pending.value.index == 1  # where the batch begins
    assert queue.put(b"and on") == 4


def test_what_lies_before_a_reservation_does_not_wait_for_it(make, path):
    queue = make(durability=SYNC)
    assert queue.put(b"before") == 0
    with queue.reserve(10):
        assert durable(queue) == 1
        queue._shared_producer()._syncer.wait(queue._shared_producer()._tail, 0, _native.FOREVER)


def put_until_pending(queue):
    while True:
        try:
            queue.put(b"x")
        except shmq.SyncPending as pending:
            return pending
        except KeyboardInterrupt:
            continue  # it came before the wait, or behind it


@pytest.mark.usefixtures("uncollected")
def test_an_interrupted_wait_says_where_the_message_is(make):
    queue = make(durability=SYNC)
    queue.put(b"first")
    slot = queue.reserve(1)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # until one meets the wait
        pending = put_until_pending(queue)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(pending.__cause__, KeyboardInterrupt)
    slot.commit()
    assert queue[pending.index].payload == b"x"
    assert queue.put(b"and on") > pending.index  # nobody leads for ever


@pytest.mark.usefixtures("uncollected")
def test_an_interrupted_wait_for_another_leader_says_it_too(make):
    queue = make(durability=SYNC)
    queue.put(b"first")

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    member = queue._session.joined().member
    leading = _native.new_leading()
    assert member.try_lead(leading)  # who leads lives, and does not sync
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        pending = put_until_pending(queue)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(pending.__cause__, KeyboardInterrupt)
    assert queue[pending.index].payload == b"x"
    assert durable(queue) == 1
    member.stop_leading(leading)
    assert queue.put(b"and on") > pending.index
    assert durable(queue) > pending.index


def test_the_built_in_put_refuses_after_a_failed_sync_and_puts_nothing(make):
    queue = make(durability=SYNC)
    queue.put(b"good")
    control(queue).fail_sync(failed=True)
    with pytest.raises(shmq.SyncFailed, match="nothing was put"):
        queue.put(b"never")
    assert len(queue) == 1


# ---------------------------------------------------------------- sync() and the watermark
def test_sync_in_any_mode_moves_the_watermark_over_everything(make):
    queue = make()
    assert mark(queue) is None
    queue.sync()
    assert mark(queue) is None  # nothing was put
    for _ in range(60):
        queue.put(b"x" * 1000)
    queue.sync()
    found = mark(queue)
    assert (found.next_index, durable(queue)) == (60, 60)
    sequence, base = queue._session.chain().names()[-1]
    assert found.chunk_sequence == sequence
    chunk = queue._session.chain().open(sequence, base)
    assert (chunk.resolved().position, chunk.resolved().next_index) == (found.position, 60)


def test_the_watermark_never_stands_inside_a_batch_or_behind_a_claim(make):
    queue = make()
    queue.put_many([b"a"] * 5)
    slot = queue.reserve(8)
    queue.put_many([b"b"] * 5)
    thread = threading.Thread(target=queue.sync)
    thread.start()
    wait_until(lambda: mark(queue) is not None)
    assert mark(queue).next_index == 5
    slot.commit()
    thread.join(DEADLINE)
    queue.sync()
    assert mark(queue).next_index == 11


def test_the_two_slots_take_turns_and_a_torn_one_leaves_the_other(make, path):
    queue = make()
    for i in range(1, 5):
        queue.put(b"x")
        queue.sync()
        assert mark(queue).sequence == i
        with open(f"{path}/queue.shmq", "rb") as file:
            content = file.read()
        page = 4096 * (3 + (i + 1) % 2)
        torn = content[: page + 20] + b"\xff" + content[page + 21 :]
        assert watermark.newest(torn) == (
            None
            if i == 1
            else watermark.newest(content)._replace(
                sequence=i - 1, next_index=i - 1, position=watermark.newest(torn).position
            )
        )


def test_data_is_synced_before_the_mark_and_a_slot_before_the_other(make, events):
    queue = make()
    queue.put(b"x")
    queue.sync()
    queue.put(b"x")
    del events[:]
    queue.sync()
    assert events == ["pages records", "data watermark", "write watermark", "data watermark"]


def test_another_handles_puts_are_synced_too(make, path):
    queue = make()

    def produce(say):
        with shmq.open(path) as own:
            own.put_many([b"x"] * 10)

    with Child(produce) as child:
        assert child.join() == 0
    queue.sync()
    assert durable(queue) == 10


def test_read_only_cannot_sync(make, path):
    make().put(b"x")
    with shmq.open(path, read_only=True) as queue, pytest.raises(shmq.Closed, match="read-only"):
        queue.sync()


# ---------------------------------------------------------------- interval
def test_an_interval_syncs_by_itself_and_one_thread_ends_with_the_last_handle(make):
    queue = make(durability=shmq.Durability.interval(0.01))
    queue.put_many([b"x"] * 10)
    wait_until(lambda: durable(queue) == 10)
    assert [t.name for t in threading.enumerate()].count("shmq-interval") == 1
    queue.close()
    assert "shmq-interval" not in [t.name for t in threading.enumerate()]


def test_an_interval_goes_on_while_somebody_puts_and_over_many_chunks(make):
    queue = make(durability=shmq.Durability.interval(0.001))
    for i in range(40):
        queue.put(b"x" * 1000)
        wait_until(lambda i=i: durable(queue) > i)
    assert len(queue._session.chain().names()) > 2


def test_what_the_core_keeps_is_synced_again_and_again_without_the_interpreter(make, monkeypatch):
    monkeypatch.setattr(durability, "MARK_NS", 1 << 60)  # the watermark is moved in Python
    queue = make(durability=shmq.Durability.interval(0.001))
    queue.put(b"first")
    wait_until(lambda: durable(queue) == 1)  # the name of the chunk is on the disk
    monkeypatch.setattr(Keeper, "_sync", lambda self: None)
    for i in range(1, 4):
        queue.put(b"x")
        wait_until(lambda i=i: durable(queue) > i)


def rolled_behind(queue, keeper):
    """Put until the queue goes on to another chunk: the one before, where the last sync ended, and the new one."""
    queue.put(b"first")
    queue.sync()
    chain = queue._session.chain()
    before = chain.open(*chain.names()[-1], writable=True, syncing=True)
    while before.sealed() is None:
        queue.put(bytes(1000))
    queue.put(b"last")
    after = queue._producer._tail
    _native.rolled(keeper, after)
    return before, after


def test_an_interval_goes_over_to_the_next_chunk_without_the_interpreter(make):
    """Which a thread that puts all the time hands over every 5 ms, for each of some forty calls."""
    queue = make(chunk_bytes=16384)
    keeper = _native.new_keeper(queue._session.home.chunks)
    before, after = rolled_behind(queue, keeper)
    assert durable(queue) < after.base
    assert queue._session.joined().member.sync_keep(before, 1000, 1 << 62, keeper) == _native.OK
    assert durable(queue) == queue.next_index
    assert control(queue).durable_chunk() == after.sequence


def test_an_interval_asks_the_interpreter_where_others_rolled_or_the_mark_is_due(make):
    queue = make(chunk_bytes=16384)
    keeper = _native.new_keeper(queue._session.home.chunks)
    before, after = rolled_behind(queue, keeper)
    member, behind = queue._session.joined().member, durable(queue)
    assert member.sync_keep(before, 1000, 0, keeper) == _native.LEAD
    _native.rolled(keeper, before)
    assert member.sync_keep(before, 1000, 1 << 62, keeper) == _native.LEAD
    _native.rolled(keeper, None)
    assert member.sync_keep(before, 1000, 1 << 62, keeper) == _native.LEAD
    assert durable(queue) == behind < after.base


def test_a_keeper_that_is_not_at_it_holds_no_chunk_that_was_rolled_over(make):
    """Else what is retired would stay mapped for as long as the queue is open: here it waits for its minute."""
    queue = make(durability=shmq.Durability.interval(60), chunk_bytes=16384)
    queue.put(b"first")
    seen = []
    for _ in range(5):
        tail = queue._producer._tail
        seen.append(weakref.ref(tail))
        while tail.sealed() is None:
            queue.put(bytes(1000))
        del tail
    queue.put(b"last")
    gc.collect()
    assert [ref() for ref in seen[:-1]] == [None] * 4


def test_a_close_syncs_the_tail_of_an_interval(make, path):
    queue = make(durability=shmq.Durability.interval(3600))
    queue.put(b"x")
    queue.close()
    with shmq.open(path) as again:
        assert durable(again) == 1


def test_a_dead_keepers_role_is_taken_over(make, path):
    make(durability=shmq.Durability.interval(0.01)).close()

    def keep(say):
        own = shmq.open(path)
        own.put(b"x")
        wait_until(lambda: durable(own) == 1)  # it keeps the interval
        say("keeps")
        signal.pause()

    with Child(keep) as child:
        assert child.hear() == "keeps"
        with shmq.open(path) as queue:
            child.kill()
            queue.put(b"y")
            wait_until(lambda: durable(queue) == 2)


def test_what_a_killed_last_one_left_is_synced_by_the_next_opener(make, path):
    make(durability=shmq.Durability.interval(3600)).close()

    def die(say):
        shmq.open(path).put(b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(die) as child:
        assert child.join() == -signal.SIGKILL
    with shmq.open(path) as queue:
        wait_until(lambda: durable(queue) == 1)


# ---------------------------------------------------------------- the ceiling
def raise_by(monkeypatch, indexes):
    """Have the ceiling of queues, new ones too, be so much above what is needed."""
    for module in (directory, making):
        monkeypatch.setattr(module, "CEILING_AHEAD", indexes)


def test_every_index_lies_below_a_ceiling_that_was_synced_before_it(make, path, monkeypatch, events):
    raise_by(monkeypatch, 10)
    queue = make()
    for _ in range(60):
        queue.put(b"x" * 1000)
        with open(f"{path}/queue.shmq", "rb") as file:
            journals = queue._session.home._journals(file.read())
        assert journals[0].ceiling >= queue.next_index
    assert events.count("write journal") >= 2
    after = [events[at + 1] for at, event in enumerate(events[:-1]) if event == "write journal"]
    assert set(after) == {"data journal"}


def test_where_the_journal_is_busy_the_names_are_synced(make, monkeypatch, events):
    raise_by(monkeypatch, 10)
    queue = make()
    with queue._session.home.admin():
        queue.put(b"x" * 1000)
    assert events[-1] == "directory chunks"


def test_adoption_raises_the_ceiling_before_its_seal(make, path, monkeypatch):
    raise_by(monkeypatch, 10)
    queue = make()
    queue.put(b"x")
    seal, seen = _native.Chunk.seal_adopt, []

    def sealing(self, adoption):
        seen.append(queue._session.home.read_journal().ceiling)
        return seal(self, adoption)

    monkeypatch.setattr(_native.Chunk, "seal_adopt", sealing)
    with queue.stage() as staged:
        staged.put_many([b"y"] * 8000)
        assert queue.adopt(staged) == range(1, 8001)
    assert seen[0] >= 8001


# ---------------------------------------------------------------- acknowledgements
def snapshot(path, name="c"):
    with open(f"{path}/consumers/{name}.checkpoint", "rb") as file:
        return _native.newest_snapshot(file.read())


def test_sync_takes_a_snapshot_of_every_name(make, path):
    queue = make()
    queue.put_many([b"x"] * 5)
    with queue.consumer("c") as consumer:
        assert snapshot(path) is None
        consumer.take_many(3)
        queue.sync()
        assert snapshot(path).head == 3
        consumer.take()
        queue.sync()
        assert snapshot(path)[::2] == (2, 4)


def test_an_explicit_ack_of_a_sync_queue_is_on_the_disk_when_it_returns(make, path, events):
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 5)
    with queue.consumer("c", ack="explicit") as consumer:
        consumer.get().ack()
        assert snapshot(path).head == 1
        messages = consumer.get_many(3)
        del events[:]
        consumer.ack(*messages)
        assert snapshot(path).head == 4
        assert events.count("data snapshot") == 1
        assert events[-1] == "data snapshot"


# ---------------------------------------------------------------- disks that fail
def failing(monkeypatch, what, number=errno.EIO, times=1):
    left = [times]

    def fail(*given):
        if given[-1] == what and left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sync, "IN_CORE", False)
    monkeypatch.setattr(sync, "data", fail)
    monkeypatch.setattr(sync, "pages", fail)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_freezes_the_mark_for_everybody_until_a_verified_reopening(make, path, monkeypatch, number):
    queue = make(durability=SYNC)
    queue.put(b"good")
    queue.sync()
    failing(monkeypatch, "records", number)
    with pytest.raises(shmq.SyncFailed, match=re.escape(os.strerror(number))) as failed:
        queue.put(b"unknown")
    assert failed.value.index == 1

    def others(say):
        with shmq.open(path) as own:  # the disk works again, and still nobody believes it
            for tried in (lambda: own.put(b"x"), own.sync, lambda: own.put_many([b"x"]), lambda: own.reserve(1)):
                with pytest.raises(shmq.SyncFailed):
                    tried()
            assert [m.payload for m in own.reader()] == [b"good", b"unknown"]

    with Child(others) as child:
        assert child.join() == 0
    assert mark(queue).next_index == 1
    assert queue._session.home.read_journal().flags & _native.JOURNAL_SYNC_FAILED
    assert queue.consumer("c").take() == b"good"  # reading goes on
    queue.close()


def test_a_reopening_alone_verifies_and_goes_on(make, path, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"good")
    failing(monkeypatch, "records")
    with pytest.raises(shmq.SyncFailed):
        queue.put(b"unknown")
    queue.close()
    with shmq.open(path) as again:
        assert not control(again).sync_failed()
        assert not again._session.home.read_journal().flags & _native.JOURNAL_SYNC_FAILED
        assert again.put(b"after") == 2
        assert durable(again) == 3


def test_a_reopening_that_finds_damage_stays_frozen(make, path, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"lost on the disk")
    failing(monkeypatch, "records")
    with pytest.raises(shmq.SyncFailed):
        queue.put(b"unknown")
    queue.close()
    (name,) = os.listdir(f"{path}/chunks")
    with open(f"{path}/chunks/{name}", "r+b") as file:
        content = file.read()
        file.seek(content.index(b"lost on the disk"))
        file.write(b"L")
    with shmq.open(path) as again, pytest.raises(shmq.SyncFailed):
        again.put(b"after")


def test_a_disk_that_cannot_be_asked_leaves_the_put_pending(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"first")
    monkeypatch.setattr(sync, "IN_CORE", False)
    opened = queue._session.home.open

    def no_more_files(directory, name, *, writable):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    queue._session.home.open = no_more_files
    with pytest.raises(shmq.SyncPending) as pending:
        queue.put(b"second")
    assert pending.value.index == 1
    queue._session.home.open = opened
    assert queue.put(b"third") == 2  # nobody leads for ever, and nothing was frozen
    assert durable(queue) == 3


def test_a_journal_that_cannot_be_synced_puts_nothing(make, path, monkeypatch):
    raise_by(monkeypatch, 0)
    queue = make()
    failing(monkeypatch, "journal", errno.ENOSPC, times=1)
    with pytest.raises(shmq.DiskFull):
        queue.put(b"x")
    assert queue.next_index == 0
    assert queue.put(b"x") == 0


def test_short_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(sync.os, "pwrite", lambda fd, content, at: pwrite(fd, bytes(content[:3]), at))
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    try:
        sync.write(fd, b"0123456789", 2, "journal")
        assert os.pread(fd, 99, 0) == b"\0\0" + b"0123456789"
    finally:
        os.close(fd)


def test_sync_says_that_the_disk_refused_also_when_everything_put_is_durable(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"x")

    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(watermark, "write", refuse)
    for _ in range(3):  # one for each, and it waited for ever
        with pytest.raises(shmq.SyncFailed):
            queue.sync()


@pytest.mark.parametrize("durability", [SYNC, shmq.Durability.interval(0.01)])
def test_a_queue_that_is_durable_can_be_deleted(path, durability):
    with shmq.open(path, options=shmq.Options(durability=durability)) as queue:
        queue.put(b"x")
    shmq.delete(path)
    assert not os.path.exists(path)


# ---------------------------------------------------------------- the table of docs/format.md
def test_every_sync_of_the_code_stands_in_the_table():
    """The power-cut suite is made from it."""
    root = os.path.dirname(shmq.__file__)
    with open(f"{root}/../docs/format.md", encoding="utf-8") as page:
        section = page.read().partition("## What is synced, and in which order")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[1:]]
    told = {call for _, _, calls, _, _ in rows for call in re.findall(r"`((?:data|directory|pages) \w+)`", calls)}
    assert {modes for *_, modes in rows} == {"all", "SYNC", "PROCESS, interval"}
    assert told == CALLS


CALLS = {
    "data aside",
    "directory aside",
    *(
        "data checkpoint",
        "data chunk",
        "data control",
        "data group",
        "data handed",
        "data journal",
        "data ledger",
        "data manifest",
        "data placed",
        "data queue",
        "data ring",
    ),
    *("data snapshot", "data staged", "data subscription", "data watermark"),
    *("directory above", "directory chunks", "directory consumers", "directory home", "directory set"),
    "directory staging",
    "pages records",
}


@pytest.mark.parametrize("durability", [SYNC, shmq.Durability.interval(0.01)])
def test_the_watermark_is_written_when_a_process_closes(path, durability):
    """However short it lived: below it, damage is told from what a power cut took."""
    with shmq.open(path, options=shmq.Options(durability=durability)) as queue:
        for number in range(300):
            queue.put(b"%d" % number)
        if durability is not SYNC:
            wait_until(lambda: durable(queue) == 300)
    with shmq.open(path) as queue:
        assert mark(queue).next_index == 300
        before = mark(queue)
    with shmq.open(path) as queue:
        assert mark(queue) == before  # nothing new: nothing is written
    patch(chunk_files(path)[0], words(path)[150].position, bytes(512))
    make_unclean(path)
    with pytest.raises(shmq.Corrupt, match="up to index 300 the disk had agreed"):
        shmq.open(path)


def test_sync_returns_in_an_empty_queue_whose_indexes_do_not_begin_at_zero(make, path):
    make().close()
    make_unclean(path)
    queue = shmq.open(path)
    assert queue.next_index > 0
    queue.sync()
    queue.close()


# ---------------------------------------------------------------- who leads is stopped
def test_a_leader_that_is_stopped_is_overtaken(path):
    """P6: P leads the group commit, and is stopped. Puts of others wait for a second, once; those after that do not."""
    with shmq.open(path, options=shmq.Options(durability=SYNC)) as queue:
        queue.put(b"first")

        def lead(say):
            leading = _native.new_leading()
            assert queue._session.joined().member.try_lead(leading)
            hold_until_killed(say)

        with Child(lead) as child:
            assert child.hear() == "ready"
            child.signal(signal.SIGSTOP)
            assert queue.put(b"second", timeout=DEADLINE / 2) == 1
            began = time.monotonic()
            for each in range(20):
                queue.put(b"%d" % each, timeout=DEADLINE / 2)
            queue.sync()
            assert queue._session.joined().control.durable() == 22
            assert time.monotonic() - began < 5  # only the first has waited


def test_a_keeper_that_is_stopped_is_stood_in_for(path):
    """P6: P keeps the interval, and is stopped. What others put is on the disk all the same, a little later."""

    def keep(say):
        with shmq.open(path, options=shmq.Options(durability=shmq.Durability.interval(0.05))) as own:
            until(lambda: own._session.joined()._keeper._keeps)
            hold_until_killed(say)

    with Child(keep) as child:
        assert child.hear() == "ready"
        child.signal(signal.SIGSTOP)
        with shmq.open(path) as queue:
            for each in range(100):
                queue.put(b"%d" % each)
            until(lambda: queue._session.joined().control.durable() == 100)


@pytest.mark.parametrize("mode", [shmq.Durability.SYNC, shmq.Durability.PROCESS, shmq.Durability.interval(0.02)])
def test_a_process_without_a_free_descriptor_fails_no_sync_of_others(path, mode):
    """The disk was not asked, so nothing is wrong with it: for others, and for it once it has some."""

    def starve(free):
        with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as member:
            most, fill = max(map(int, os.listdir("/proc/self/fd"))), [os.dup(0)]
            while fill[-1] < most:
                fill.append(os.dup(0))
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (fill[-1] + 1 + free, hard))
            said = set()
            large, small = lambda: queue.put(bytes(3000)), lambda: queue.put_many([bytes(100)] * 200)
            for verb in (large, small, queue.sync, lambda: member.get(0).ack()):
                try:
                    verb()
                except (OSError, shmq.SyncPending) as problem:
                    said.add(getattr(problem, "errno", None) or problem.__cause__.errno)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            queue.sync()
            return sorted(said)

    found = set()
    for free in range(8):
        with shmq.open(path, options=shmq.Options(durability=mode, chunk_bytes=16384)) as queue:
            queue.put(b"healthy")
            found.add(in_child(lambda free=free: starve(free)))
            queue.put(b"as before")
            queue.sync()
    assert str([errno.EMFILE]) in found
    assert found <= {"[]", str([errno.EMFILE])}


def test_who_stands_by_syncs_what_has_waited_for_two_intervals_and_a_second(make, monkeypatch):
    """Not at once: whoever keeps the interval may be about to."""
    queue = make()
    queue.put(b"x")
    keeper = durability.Keeper(queue._session.home, queue._session.joined(), 3.0)
    synced = []
    monkeypatch.setattr(keeper, "_sync", lambda: synced.append(True))
    clock = [100.0]
    monkeypatch.setattr(durability.time, "monotonic", lambda: clock[0])
    keeper._stood = keeper._membership.control.durable(), clock[0]
    for now, expected in ((105.9, 0), (106.0, 1)):
        clock[0] = now
        keeper._stand_in()
        assert len(synced) == expected
    keeper._role.free()
