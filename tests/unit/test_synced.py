"""The group commit to the last word: what it syncs, from where to where, what it believes, and what it says."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import threading
import time
import types
import warnings

import pytest
from support import DEADLINE, Child, hold_until_killed, until

import shmq
from shmq import _native, durability, errors
from shmq.durability import Keeper, Syncer
from shmq.storage import acks, sync, watermark

SYNC = shmq.Durability.SYNC
MARK_NS = durability.MARK_NS


@pytest.fixture
def events(monkeypatch):
    """What was synced, begun and written, in order; the core syncs nothing by itself."""
    gc.collect()  # what an earlier test has left in a cycle writes when it goes
    seen: list[tuple] = []
    write = sync.write

    def written(fd, content, position, what):
        write(fd, content, position, what)
        seen.append(("write", what, position))

    monkeypatch.setattr(sync, "IN_CORE", False)
    monkeypatch.setattr(sync, "data", lambda fd, what: seen.append(("data", what)))
    monkeypatch.setattr(sync, "start", lambda fd, what: seen.append(("start", what)))
    monkeypatch.setattr(sync, "pages", lambda memory, first, size, what: seen.append(("pages", first, size)))
    monkeypatch.setattr(sync, "directory", lambda fd, what: seen.append(("directory", what)))
    monkeypatch.setattr(sync, "write", written)
    return seen


def control(queue):
    return queue._session.joined().control


def syncer_of(queue):
    return Syncer(queue._session.home, queue._session.joined())


def tail_of(queue):
    chain = queue._session.chain()
    return chain.open(*chain.names()[-1], writable=True, syncing=True)


# ---------------------------------------------------------------- how far
def test_what_is_synced_of_the_newest_chunk_begins_where_the_last_sync_ended_and_has_the_word_behind_it(make, events):
    """That word stands in the next page here: with it, the message before it is known to be the last."""
    queue = make()
    queue.put(b"first")
    queue.sync()
    begin = tail_of(queue).resolved().position
    queue.put(bytes((-begin) % 4096 - 40))
    end = tail_of(queue).resolved().position
    assert end % 4096 == 0
    assert control(queue).durable_at(tail_of(queue).sequence) == begin
    del events[:]
    queue.sync()
    (_, first, size) = events[0]
    assert (first, size) == tail_of(queue).pages(begin, end + 8)[1:]
    assert first <= begin
    assert first + size == end + 8
    assert control(queue).durable_at(tail_of(queue).sequence) == end


def test_who_goes_over_to_another_chunk_syncs_both_files_and_the_name_and_then_only_pages(make, events):
    queue = make()
    queue.put(b"first")
    queue.sync()
    while len(queue._session.chain().names()) == 1:
        queue.put(bytes(1000))
    del events[:]
    queue.sync()
    synced = [each for each in events if each[-1] in ("chunk", "chunks") or each[0] == "pages"]
    assert [each[0] for each in synced] == ["pages", "data", "directory"]
    del events[:]
    queue.put(b"more")
    queue.sync()
    assert [each[0] for each in events if each[-1] in ("chunk", "chunks") or each[0] == "pages"] == ["pages"]


def test_a_sync_that_has_nothing_to_do_syncs_nothing_of_the_chunks_but_what_may_be_behind_the_mark(make, events):
    queue = make(durability=SYNC)
    queue.put(b"x")
    syncer, before = syncer_of(queue), control(queue).durable()
    del events[:]
    syncer._sync_puts(before, mark=False)
    assert events == []
    syncer.tick(_native.FOREVER)
    assert events == []


def test_a_queue_without_a_chunk_is_synced_without_a_mark(make, events):
    queue = make()
    del events[:]
    queue.sync()
    assert watermark.read(queue._session.home) is None
    assert not [each for each in events if each[-1] in ("chunk", "chunks", "watermark")]


def test_chunks_that_go_while_they_are_opened_are_looked_for_again_and_then_it_is_said(make, monkeypatch):
    queue = make()
    queue.put(b"x")
    tried = []

    def gone(self, name):
        tried.append(name)
        raise FileNotFoundError

    monkeypatch.setattr(Syncer, "_sync_from", gone)
    said = (
        f"cannot sync {queue.path}: its chunks went 100 times while they were opened; the first index still there is 0"
    )
    with pytest.raises(shmq.Gone, match=f"^{re.escape(said)}$") as lost:
        queue.sync()
    assert tried == [queue._session.chain().names()[0]] * 100
    assert lost.value.first_index == 0


# ---------------------------------------------------------------- what it believes
def test_words_that_may_be_true_are_believed_by_who_opens_and_by_who_syncs(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 3)
    assert control(queue).durable() == queue.next_index == 3
    monkeypatch.setattr(Syncer, "_forget", lambda _: pytest.fail("it was believed"))
    with make(flags={}) as other:
        assert control(other).durable() == 3
        syncer_of(other).doubt()
        other.sync()


@pytest.mark.parametrize("marked", [0, 2, 5])
def test_who_does_not_believe_goes_by_the_watermark_as_far_as_there_are_messages(make, marked):
    queue = make()
    queue.put_many([b"x"] * 3)
    queue.sync()
    queue.put(b"y")
    if marked:
        mark = watermark.read(queue._session.home)
        watermark.write(queue._session.home, mark.chunk_sequence, mark.position + 8, marked)
    control(queue).reset_durable(77, 9)
    syncer_of(queue).doubt()
    assert control(queue).durable() == min(marked or 3, 4)
    assert control(queue).durable_chunk() == 0


def test_who_does_not_believe_and_has_no_watermark_begins_with_the_first_chunk_there(make):
    queue = make(retention=shmq.Retention.bytes(20000))
    while queue.first_index == 0:
        queue.put(bytes(1000))
    (first, _), *_ = queue._session.chain().names()
    assert first > 0
    control(queue).reset_durable(1 << 40, first)
    syncer_of(queue).doubt()
    assert (control(queue).durable(), control(queue).durable_chunk()) == (0, first)
    control(queue).reset_durable(1, 1000)
    syncer_of(queue).doubt()
    assert (control(queue).durable(), control(queue).durable_chunk()) == (0, first)


def test_of_an_empty_queue_that_was_recovered_nothing_is_doubted(make, monkeypatch):
    queue = make(durability=SYNC)
    monkeypatch.setattr(Syncer, "_forget", lambda _: pytest.fail("it was believed"))
    syncer_of(queue).doubt()
    control(queue).reset_durable(0, queue._session.home.journal.first_live)
    syncer_of(queue).doubt()


@pytest.mark.parametrize("messages", [3, 60])
def test_a_sync_that_was_told_of_a_chunk_that_is_not_there_begins_anew(make, messages):
    """Also when the lie came behind the opening, which looks for one."""
    queue = make(retention=shmq.Retention.forever())
    for _ in range(messages):
        queue.put(bytes(1000))
    control(queue).reset_durable(2, 50)
    found = syncer_of(queue)._sync_chunks()
    assert found[1].next_index == messages
    assert control(queue).durable_chunk() == 0


# ---------------------------------------------------------------- when the watermark is moved
class Clock:
    """The two clocks of `durability`, as they are told."""

    def __init__(self, monkeypatch, now_ns):
        self.now_ns = now_ns
        self.wall_ns = 1_700_000_000_000_000_000
        monkeypatch.setattr(durability.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(durability.time, "time_ns", lambda: self.wall_ns)


def test_the_mark_is_due_a_second_after_it_was_written_last_by_whomever(make, monkeypatch):
    queue = make()
    file = f"{queue.path}/queue.shmq"
    clock = Clock(monkeypatch, 10 * MARK_NS)
    syncer = syncer_of(queue)
    assert syncer.mark_due_ns == 11 * MARK_NS
    os.utime(file, ns=(0, clock.wall_ns - 5 * MARK_NS))
    clock.now_ns = 11 * MARK_NS - 1
    assert not syncer._mark_is_due()
    clock.now_ns += 1
    assert syncer._mark_is_due()
    os.utime(file, ns=(0, clock.wall_ns - MARK_NS))
    assert syncer._mark_is_due()
    for age in (MARK_NS - 300, 300 - MARK_NS):  # or the wall clock was put back
        syncer.mark_due_ns = clock.now_ns
        os.utime(file, ns=(0, clock.wall_ns - age))
        assert syncer._mark_is_due() is False
        assert syncer.mark_due_ns == clock.now_ns + 300


def test_who_has_moved_the_mark_waits_a_second_and_who_syncs_meanwhile_does_not_move_it(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"x")
    clock = Clock(monkeypatch, 100 * MARK_NS)
    syncer = syncer_of(queue)
    marks = []
    monkeypatch.setattr(watermark, "write", lambda *given: marks.append(given[3]))
    os.utime(f"{queue.path}/queue.shmq", ns=(0, clock.wall_ns - 50 * MARK_NS))
    syncer._commit(mark=False)
    assert marks == []
    clock.now_ns += 2 * MARK_NS
    syncer._commit(mark=False)
    assert (marks, syncer.mark_due_ns) == ([1], 103 * MARK_NS)
    clock.now_ns += MARK_NS // 2
    syncer._commit(mark=False)
    assert (marks, syncer.mark_due_ns) == ([1], 103 * MARK_NS)
    syncer._commit(mark=True)
    assert marks == [1, 1]


def test_a_commit_says_whether_more_is_on_the_disk_than_before(make):
    queue = make()
    syncer = syncer_of(queue)
    queue.put(b"x")
    assert syncer._commit(mark=False) == (True, True)
    assert syncer._commit(mark=False) == (False, True)


def papers_held(say, path):
    with shmq.open(path) as queue:
        papers = _native.new_leading()
        assert queue._session.joined().member.take_papers(papers)
        hold_until_killed(say)


def test_who_syncs_all_waits_for_a_leader_who_is_at_the_watermark_and_a_put_does_not(make, path, monkeypatch):
    """One who was overtaken may still write it: then nobody else does."""
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 3)
    naps = []
    clock = types.SimpleNamespace(time_ns=time.time_ns, monotonic_ns=time.monotonic_ns)
    clock.sleep = lambda seconds: (naps.append(seconds), time.sleep(seconds))
    monkeypatch.setattr(durability, "time", clock)
    with queue.consumer("c", ack="explicit") as consumer, Child(papers_held, path) as child:
        assert child.hear() == "ready"
        before = watermark.read(queue._session.home)
        assert queue.put(b"y") == 3
        assert control(queue).durable() == 4
        assert naps == []
        assert syncer_of(queue)._commit(mark=True) == (False, False)
        message = consumer.get(timeout=0)
        for work in (queue.sync, message.ack):
            del naps[:]
            thread = threading.Thread(target=work)
            thread.start()
            until(lambda: len(naps) > 2)
            assert thread.is_alive()
            assert set(naps) == {0.008}
            assert watermark.read(queue._session.home) == before
            if work == queue.sync:
                waiting = thread
        child.kill()
        for each in (thread, waiting):
            each.join(DEADLINE)
            assert not each.is_alive()
    assert watermark.read(queue._session.home).next_index == 4


# ---------------------------------------------------------------- what it says
def whole(text):
    return f"^{re.escape(text)}$"


def test_a_put_that_waits_for_another_leader_in_vain_says_which_message_it_is_and_how_far_the_disk_is(make):
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 2)
    member, leading = queue._session.joined().member, _native.new_leading()
    assert member.try_lead(leading)
    said = (
        f"message 2 is in {queue.path}, and was not on the disk in time; everything below 2 is. Do not put it again; "
        "sync() waits for it"
    )
    with pytest.raises(shmq.SyncPending, match=whole(said)) as pending:
        queue.put(b"y", timeout=0.01)
    assert pending.value.index == 2
    member.stop_leading(leading)


def test_who_waits_for_an_open_claim_looks_once_more_before_it_sleeps_and_says_what_was_in_the_way(make):
    queue = make(durability=SYNC)
    syncer = syncer_of(queue)
    seen = syncer._doze(None, _native.FOREVER)
    assert isinstance(seen, int)
    said = f"not on the disk in time: something before it in {queue.path} is claimed and not committed"
    with pytest.raises(shmq.SyncPending, match=whole(said)):
        syncer._doze(seen, 1)
    control(queue).wake()
    assert syncer._doze(seen, _native.FOREVER) is None


def test_a_batch_that_could_not_be_synced_for_want_of_a_descriptor_names_its_first_and_why(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"x")
    monkeypatch.setattr(sync, "IN_CORE", False)
    opened = queue._session.home.open
    problem = OSError(errno.EMFILE, "no more")

    def refuse(*_, **__):
        raise problem

    queue._session.home.open = refuse
    with pytest.raises(shmq.SyncPending) as pending:
        queue.put_many([b"y"] * 3)
    assert pending.value.args[0] == (
        f"message 1 is in {queue.path}, and it is not known whether it is on the disk (OSError: {problem}). Do not put "
        "it again; sync() waits for it"
    )
    assert (pending.value.index, pending.value.__cause__) == (1, problem)
    queue._session.home.open = opened
    assert control(queue).sync_failed() is False


def test_after_a_failure_every_verb_that_needs_the_disk_says_what_helps(make):
    queue = make(durability=SYNC)
    queue.put(b"x")
    consumer = queue.consumer("c", ack="explicit")
    message = consumer.get(timeout=0)
    control(queue).fail_sync(failed=True)
    said = (
        f"cannot sync {queue.path}: an earlier sync of it failed, so what is on the disk is not known. It can be read. "
        "Close it everywhere and open it again: that writes and verifies what is there"
    )
    home = queue._session.home
    for tried in (queue.sync, message.ack):
        home.write_journal(home.read_journal()._replace(flags=0))
        with pytest.raises(shmq.SyncFailed, match=whole(said)):
            tried()
        assert home.read_journal().flags == _native.JOURNAL_SYNC_FAILED
    with pytest.raises(shmq.SyncFailed, match=whole(said)):
        syncer_of(queue)._commit(mark=False)
    with pytest.raises(shmq.SyncFailed, match=whole(f"{said}; nothing was put")):
        queue.put(b"y")


@pytest.mark.parametrize("words", [os.strerror(errno.EIO), ""])
def test_a_disk_that_refuses_is_quoted_and_it_is_noted_once(make, monkeypatch, words):
    queue = make(durability=SYNC)
    written = []
    write = queue._session.home.write_journal
    monkeypatch.setattr(queue._session.home, "write_journal", lambda journal: (written.append(journal), write(journal)))
    problem = OSError(errno.EIO, words) if words else OSError("only words")
    failed = syncer_of(queue)._fail(problem)
    assert failed.args[0] == (
        f"cannot sync {queue.path}: {words or 'only words'}. What was put can be read; how much of it is on the disk "
        "is not known. Close it everywhere and open it again: that writes and verifies it"
    )
    assert control(queue).sync_failed()
    syncer_of(queue)._fail(problem)
    assert [journal.flags for journal in written] == [_native.JOURNAL_SYNC_FAILED]


# ---------------------------------------------------------------- at the end, and after a failure
def test_a_process_that_lets_go_moves_the_mark_only_over_what_is_new_and_never_after_a_failure(make, monkeypatch):
    queue = make(durability=SYNC)
    membership = queue._session.joined()
    moved = []
    monkeypatch.setattr(Syncer, "mark", lambda self: moved.append(True))
    durability.mark_at_close(queue._session.home, membership)
    assert moved == [True]  # there is none yet
    del moved[:]
    monkeypatch.undo()
    queue.put(b"x")
    queue.sync()
    monkeypatch.setattr(Syncer, "mark", lambda self: moved.append(True))
    durability.mark_at_close(queue._session.home, membership)
    assert moved == []
    queue.put(b"y")
    durability.mark_at_close(queue._session.home, membership)
    assert moved == [True]
    control(queue).fail_sync(failed=True)
    durability.mark_at_close(queue._session.home, membership)
    assert moved == [True]
    control(queue).fail_sync(failed=False)
    leading = _native.new_leading()
    assert membership.member.try_lead(leading)
    durability.mark_at_close(queue._session.home, membership)
    membership.member.stop_leading(leading)
    assert moved == [True]
    assert membership.member.try_lead(leading)
    membership.member.stop_leading(leading)


def test_a_verification_writes_every_chunk_anew_syncs_it_and_reads_what_the_disk_has(make, monkeypatch, events):
    queue = make(durability=SYNC)
    while len(queue._session.chain().names()) < 3:
        queue.put(bytes(1000))
    control(queue).fail_sync(failed=True)
    queue._session.home.write_journal(queue._session.home.read_journal()._replace(flags=_native.JOURNAL_SYNC_FAILED))
    for name, of in (("touch", "touch"), ("messages", "read")):
        real = getattr(_native.Chunk, name)
        monkeypatch.setattr(
            _native.Chunk, name, lambda self, real=real, of=of: (events.append((of, self.sequence)), real(self))[1]
        )
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *given: events.append(("forget", *given)))
    del events[:]
    assert durability.verify(queue._session.home, queue._session.joined()) is True
    each = [
        [("touch", at), ("data", "chunk"), ("forget", 0, 0, os.POSIX_FADV_DONTNEED), ("read", at)] for at in range(3)
    ]
    assert events[:13] == [*each[0], *each[1], *each[2], ("directory", "chunks")]
    assert control(queue).sync_failed() is False
    assert queue._session.home.read_journal().flags == 0


def test_a_verification_beside_others_or_on_a_disk_that_refuses_changes_nothing(make, monkeypatch):
    queue = make(durability=SYNC)
    queue.put(b"x")
    control(queue).fail_sync(failed=True)
    membership = queue._session.joined()
    with monkeypatch.context() as patched:
        patched.setattr(membership, "anybody_else", lambda: True)
        assert durability.verify(queue._session.home, membership) is False

    def refuse(*_):
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr(sync, "directory", refuse)
        assert durability.verify(queue._session.home, membership) is False
    assert control(queue).sync_failed()


# ---------------------------------------------------------------- who keeps the interval
class Thread:
    """Stands for the thread of a keeper: it is told when to end, and tells how it paused."""

    def __init__(self, turns):
        self.turns, self.paused, self.ending = turns, [], False

    def is_ending(self):
        self.turns -= 1
        return self.turns < 0

    def pause(self, seconds):
        self.paused.append(seconds)
        return self.ending

    def end(self, wake):
        self.paused.append("ended")
        wake()


@pytest.fixture
def keeper(make, monkeypatch):
    """One that nobody has started; what it does instead of sleeping and syncing is noted in `done`."""
    queue = make()

    def made(seconds=0.5, turns=1):
        keeper = Keeper(queue._session.home, queue._session.joined(), seconds)
        keeper._thread = Thread(turns)
        keeper.done = []
        keeper.queue = queue
        monkeypatch.setattr(keeper, "_sync", lambda: keeper.done.append("sync"))
        monkeypatch.setattr(keeper._membership, "sleep", lambda *given: keeper.done.append(("sleep", *given)))
        opened.callback(keeper._role.free)
        return keeper

    with contextlib.ExitStack() as opened:
        yield made


def test_a_keeper_begins_by_syncing_what_a_dead_one_left_and_goes_on_with_the_interval(keeper, monkeypatch):
    keeps = keeper(turns=10)
    monkeypatch.setattr(keeps, "_keep", lambda: keeps.done.append("keep"))
    locked = []
    take = keeps._role.take
    keeps._role = type(
        "Role", (), {"take": lambda _, byte: (locked.append(byte), take(byte))[1], "free": lambda _: None}
    )()
    keeps._turn()
    seen = keeps._membership.member.wait_begin()
    assert keeps.done == [("sleep", seen, _native.FOREVER)]
    assert locked == [1 << 41]
    keeps.queue.put(b"x")
    keeps._turn()
    assert keeps.done[1:] == ["keep"]
    keeps._keeps, keeps.done = False, []
    keeps._turn()
    assert keeps.done == ["sync", "keep"]
    assert keeps._keeps
    assert locked == [1 << 41] * 2


def test_a_keeper_that_is_to_end_does_not_sleep(keeper):
    keeps = keeper(turns=0)
    keeps._turn()
    assert keeps.done == []


def test_who_does_not_keep_sleeps_until_something_happens_waits_a_moment_and_stands_by(keeper, monkeypatch):
    keeps, stands_by = keeper(), keeper()
    assert keeps._role.take(1 << 41)
    monkeypatch.setattr(stands_by, "_stand_in", lambda: stands_by.done.append("stand in"))
    seen = control(stands_by.queue).bell()
    stands_by._turn()
    assert stands_by.done == [("sleep", seen, _native.FOREVER), "stand in"]
    assert stands_by._thread.paused == [0.005]
    assert not stands_by._keeps


def test_who_stands_by_begins_to_count_anew_when_the_disk_has_more_or_nothing_waits(keeper, monkeypatch):
    stands_by = keeper(seconds=0.1)
    clock = [50.0]
    monkeypatch.setattr(durability.time, "monotonic", lambda: clock[0])
    stands_by._stood = 0, 0.0
    stands_by._stand_in()
    assert (stands_by._stood, stands_by.done) == ((0, 50.0), [])
    stands_by.queue.put(b"x")
    clock[0] = 50.9
    stands_by._stand_in()
    assert (stands_by._stood, stands_by.done) == ((0, 50.0), [])
    clock[0] = 51.0
    stands_by._stand_in()
    assert stands_by.done == ["sync"]
    stands_by.queue.sync()
    stands_by.queue.put(b"y")
    clock[0] = 60.0
    stands_by._stand_in()
    assert (stands_by._stood, stands_by.done) == ((1, 60.0), ["sync"])


@pytest.mark.parametrize(("seconds", "in_core", "known", "expected"), [
    (1.0, True, True, ["core", "sync"]),
    (1.0, True, False, ["sync"]),
    (1.0, False, True, ["sync"]),
    (1.1, True, True, ["sync"]),
])  # fmt: skip
def test_an_interval_of_up_to_a_second_is_kept_by_the_core_if_the_newest_chunk_was_synced(
    keeper, monkeypatch, seconds, in_core, known, expected
):
    keeps = keeper(seconds)
    monkeypatch.setattr(sync, "IN_CORE", in_core)
    monkeypatch.setattr(keeps, "_keep_in_core", lambda chunk: keeps.done.append("core") or _native.LEAD)
    keeps.queue.put(b"x")
    keeps.queue.sync()
    while not known and len(keeps.queue._session.chain().names()) == 1:
        keeps.queue.put(bytes(1000))
    keeps._keep()
    assert keeps.done == expected
    assert keeps._thread.paused == ([] if "core" in expected else [seconds])


def test_what_the_core_has_kept_needs_no_sync_of_ours_nor_does_an_end(keeper, monkeypatch):
    keeps = keeper(0.5)
    keeps.queue.put(b"x")
    keeps.queue.sync()
    monkeypatch.setattr(keeps, "_keep_in_core", lambda chunk: _native.OK)
    keeps._keep()
    assert (keeps.done, keeps._thread.paused) == ([], [])
    keeps._seconds, keeps._thread.ending = 5.0, True
    keeps._keep()
    assert (keeps.done, keeps._thread.paused) == ([], [5.0])


def test_the_core_is_told_how_long_how_late_and_of_chunks_that_a_producer_goes_on_to(keeper, monkeypatch):
    keeps = keeper(0.25)
    keeps.queue.put(b"x")
    told, rolled = [], []
    monkeypatch.setattr(_native, "rolled", lambda shared, chunk: rolled.append(chunk))
    keeps._syncer.mark_due_ns = 4711
    keeps.rolled(chunk := tail_of(keeps.queue))

    def keep(of, *given):
        told.append(given)
        keeps.rolled(chunk)
        assert keeps._rolled == [chunk]
        return _native.OK

    keeps._membership = type(
        "Membership", (), {"member": type("Member", (), {"sync_keep": lambda _, *given: keep(*given)})()}
    )()
    assert keeps._keep_in_core(chunk) == _native.OK
    assert told == [(250_000_000, 4711, keeps._shared)]
    assert rolled == [chunk, None]
    assert keeps._rolled is None
    keeps.rolled(chunk)
    assert rolled == [chunk, None]


def test_only_the_newest_chunk_is_kept_by_the_core_and_only_if_it_was_synced(keeper):
    keeps = keeper()
    assert keeps._newest_synced() is None
    keeps.queue.put(b"x")
    keeps.queue.sync()
    assert keeps._newest_synced().sequence == 0
    while len(keeps.queue._session.chain().names()) == 1:
        keeps.queue.put(bytes(1000))
    assert keeps._newest_synced() is None
    keeps.queue.sync()
    assert keeps._newest_synced().sequence == 1


def test_a_keeper_goes_on_after_what_may_pass_and_ends_with_a_disk_that_refuses(keeper, monkeypatch):
    for seconds, pauses in ((0.5, 1.0), (3.0, 3.0)):
        keeps = keeper(seconds, turns=9)
        problems = [OSError(errno.EMFILE, "no more"), errors.Busy("busy"), errors.SyncFailed("it refused")]

        def turn(problems=problems):
            raise problems.pop(0)

        monkeypatch.setattr(keeps, "_turn", turn)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            keeps._run()
        assert [str(each.message) for each in seen] == [
            f"cannot sync {keeps.queue.path}: [Errno {errno.EMFILE}] no more",
            f"cannot sync {keeps.queue.path}: busy",
            "it refused",
        ]
        assert keeps._thread.paused == [pauses] * 2
        assert problems == []


def test_a_keeper_that_is_to_end_says_nothing_of_what_is_in_the_way(keeper, monkeypatch):
    keeps = keeper(turns=1)
    keeps._thread.ending = True

    def turn():
        raise errors.Busy("busy")

    monkeypatch.setattr(keeps, "_turn", turn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keeps._run()
    assert keeps._thread.turns == -1


@pytest.mark.parametrize(("keeps", "behind"), [(True, True), (True, False), (False, True)])
def test_a_keeper_that_ends_syncs_what_is_left_if_it_keeps_and_lets_others_keep(keeper, monkeypatch, keeps, behind):
    ends = keeper()
    control_of = control(ends.queue)
    woken, nudged = [], []
    monkeypatch.setattr(type(control_of), "wake", lambda self: woken.append(True))
    monkeypatch.setattr(_native, "nudge_keeper", lambda shared: nudged.append(shared is ends._shared))
    if keeps:
        ends._keeps = ends._role.take(1 << 41)
    if behind:
        ends.queue.put(b"x")
    del woken[:]
    ends._home.retain(ends)
    ends.stop()
    assert ends.done == (["sync"] if keeps and behind else [])
    assert ends._thread.paused == ["ended"]
    assert nudged == [True]
    assert len(woken) == 2  # the thread, and those who stand by
    assert ends not in ends._home._users
    assert keeper()._role.take(1 << 41)


def test_a_keeper_keeps_its_queue_open(keeper):
    keeps = keeper()
    keeps._thread.start = lambda: keeps.done.append("started")
    keeps.start()
    assert keeps in keeps._home._users
    assert keeps.done == ["started"]
    keeps._home.close(keeps)


def test_a_keepers_sync_is_patient_with_a_claim_and_no_more(make, monkeypatch):
    queue = make()
    keeps = Keeper(queue._session.home, queue._session.joined(), 0.5)
    monkeypatch.setattr(durability.time, "monotonic_ns", lambda: 1000)
    given = []
    monkeypatch.setattr(keeps._syncer, "tick", given.append)
    keeps._sync()

    def pending(_):
        raise errors.SyncPending("later", 0)

    monkeypatch.setattr(keeps._syncer, "tick", pending)
    keeps._sync()
    assert given == [1000 + 100_000_000]
    keeps._role.free()


# ---------------------------------------------------------------- acknowledgements
def slots_written(events):
    return [
        (each[2] - _native.SNAPSHOT_BASE) // _native.SNAPSHOT_BYTES
        for each in events
        if each[:2] == ("write", "snapshot")
    ]


def take(queue, names, *, only_write=False, **which):
    with names.opened(**which) as asked:
        asked.write()
        if not only_write:
            asked.sync()
        return len(asked._found)


def test_the_two_snapshots_take_turns_and_one_is_on_the_disk_before_the_other_is_written_over(make, events):
    """Who wrote it may have been killed before that."""
    queue = make()
    queue.put_many([b"x"] * 9)
    consumer = queue.consumer("c")
    names = acks.Names(queue._session.home)
    checkpoint = queue._session.home.checkpoint("c")
    del events[:]
    for turn in (1, 2, 3):
        consumer.take(timeout=0)
        assert take(queue, names, own="c") == 1
        assert events == [
            ("write", "snapshot", 4096 + 12288 * ((turn - 1) % 2)),
            ("start", "snapshot"),
            ("data", "snapshot"),
        ]
        snapshot = checkpoint.newest_snapshot()
        assert (snapshot.sequence, snapshot.epoch, snapshot.head) == (turn, queue._session.home.journal.epoch, turn)
        assert checkpoint.snapshot_synced() == turn
        del events[:]
    take(queue, names, own="c")
    assert events == []  # it says so already
    consumer.take(timeout=0)
    take(queue, acks.Names(queue._session.home), own="c", only_write=True)
    assert checkpoint.snapshot_synced() == 3
    consumer.take(timeout=0)
    del events[:]
    take(queue, names, own="c")
    assert events[0] == ("data", "snapshot")
    assert slots_written(events) == [0]
    assert events[-1] == ("data", "snapshot")
    assert checkpoint.snapshot_synced() == 5


def test_a_snapshot_that_nobody_has_synced_is_synced_though_it_says_nothing_new(make, events):
    queue = make()
    queue.put(b"x")
    consumer = queue.consumer("c")
    consumer.take(timeout=0)
    names = acks.Names(queue._session.home)
    take(queue, names, own="c", only_write=True)
    del events[:]
    take(queue, names, own="c")
    assert events == [("data", "snapshot")]
    assert queue._session.home.checkpoint("c").snapshot_synced() == 1


def test_a_head_of_another_epoch_is_written_down_anew(make, events, monkeypatch):
    queue = make()
    queue.consumer("c").close()
    names = acks.Names(queue._session.home)
    take(queue, names, own="c")
    queue._session.home.journal = queue._session.home.journal._replace(epoch=7)
    del events[:]
    take(queue, names, own="c")
    assert slots_written(events) == [1]
    assert queue._session.home.checkpoint("c").newest_snapshot().epoch == 7


def test_only_who_has_asked_or_is_meant_is_looked_at_and_answered_up_to_what_it_asked(make, events):
    queue = make()
    queue.put(b"x")
    for name in ("a", "b"):
        queue.consumer(name, ack="explicit").close()
    names, member = acks.Names(queue._session.home), queue._session.joined().member
    del events[:]
    assert take(queue, names) == 0
    assert events == []
    b = queue._session.home.checkpoint("b", writable=True)
    assert b.ask(member) == 1
    with names.opened() as asked:
        assert b.ask(member) == 2  # too late for this one
        asked.write()
        asked.sync()
    assert (b.asked(), b.answered()) == (2, 1)
    assert take(queue, names) == 1
    assert b.answered() == 2
    assert take(queue, names) == 0
    assert ("directory", "consumers") not in events
    assert take(queue, names, everything=True) == 2
    assert events[-1] == ("directory", "consumers")
    assert take(queue, names, own="a") == 1


def test_with_no_name_there_is_no_directory_to_sync(make, events):
    queue = make()
    del events[:]
    assert take(queue, acks.Names(queue._session.home), everything=True) == 0
    assert events == []


def test_a_name_that_cannot_be_opened_stops_only_who_means_it(make):
    queue = make()
    for name in ("a", "b"):
        queue.consumer(name, ack="explicit").close()
    os.truncate(f"{queue.path}/consumers/a.checkpoint", 100)
    names = acks.Names(queue._session.home)
    assert take(queue, names, everything=True) == 1
    with pytest.raises((shmq.Corrupt, shmq.BadFormat)):
        take(queue, names, own="a")
    take(queue, names, own="b")
    os.unlink(f"{queue.path}/consumers/b.checkpoint")
    with pytest.raises(shmq.NotFound, match=whole(f"consumer 'b' of {queue.path} was dropped")):
        take(queue, names, own="b")


def test_a_name_that_was_dropped_and_made_again_is_the_new_one(make):
    queue = make()
    queue.put_many([b"x"] * 5)
    names = acks.Names(queue._session.home)
    for start in (1, 4):
        queue.consumer("c", start=start).close()
        take(queue, names, own="c")
        assert queue._session.home.checkpoint("c").newest_snapshot().head == start
        queue.drop_consumer("c")


def test_a_groups_snapshot_is_its_rings_also_when_the_side_table_has_grown_since(make, events):
    queue = make()
    queue.put_many([b"x"] * 700)
    with queue.consumer("g", group=True, ack="explicit", window=1024) as member:
        held = member.get_many(700, timeout=0)
        names = acks.Names(queue._session.home)
        member.ack(*held[1:3])
        take(queue, names, own="g")
        snapshot = queue._session.home.checkpoint("g").newest_snapshot()
        assert snapshot.head == 0
        for message in held[3:600]:
            message.nack(delay=3600)
        assert member._ring.blocks > 1
        take(queue, names, own="g")
        assert names._known["g"][1]._ring.blocks == member._ring.blocks
        assert queue._session.home.checkpoint("g").snapshot_synced() == 2


def test_a_members_own_snapshot_syncs_the_one_before_and_only_begins_its_own(make, events):
    queue = make()
    queue.put_many([b"x"] * 5)
    with queue.consumer("g", group=True, ack="explicit") as member:
        given = queue._session.home, queue._session.joined().member, "g", member._checkpoint, member._ring
        del events[:]
        acks.of_member(*given)
        assert events == [("start", "snapshot")]
        assert member._checkpoint.newest_snapshot().sequence == 1
        assert member._checkpoint.snapshot_synced() == 0
        member.get(timeout=0).ack()
        del events[:]
        acks.of_member(*given)
        assert events == [("data", "snapshot"), ("start", "snapshot")]
        assert member._checkpoint.snapshot_synced() == 1
        assert member._checkpoint.newest_snapshot().sequence == 2
        names = acks.Names(queue._session.home)
        take(queue, names, own="g")
        member.get(timeout=0).ack()
        del events[:]
        acks.of_member(*given)
        assert events == [("start", "snapshot")]


def test_a_member_takes_no_snapshot_while_another_leads_and_leaves_the_lead(make, events):
    queue = make()
    queue.put(b"x")
    with queue.consumer("g", group=True, ack="explicit") as consumer:
        member, leading = queue._session.joined().member, _native.new_leading()
        given = queue._session.home, member, "g", consumer._checkpoint, consumer._ring
        assert member.try_lead(leading)
        del events[:]
        acks.of_member(*given)
        assert events == []
        member.stop_leading(leading)
        papers = _native.new_leading()
        assert member.take_papers(papers)
        acks.of_member(*given)
        assert events == []
        member.give_papers(papers)
        acks.of_member(*given)
        assert events == [("start", "snapshot")]
        for held, take_it in ((leading, member.try_lead), (papers, member.take_papers)):
            assert take_it(held)
        member.give_papers(papers)
        member.stop_leading(leading)


def test_a_watermark_never_goes_back_and_is_on_the_disk_before_the_other_is_written_over(make, events):
    queue = make()
    queue.put_many([b"x"] * 3)
    del events[:]
    watermark.write(queue._session.home, 0, 5000, 1)
    assert events == [("write", "watermark", 3 * 4096), ("data", "watermark")]
    for position in (5000, 4992):
        watermark.write(queue._session.home, 0, position, 9)
    assert len(events) == 2
    del events[:]
    watermark.write(queue._session.home, 0, 5008, 2)
    assert events == [("data", "watermark"), ("write", "watermark", 4 * 4096), ("data", "watermark")]
    watermark.write(queue._session.home, 1, 4352, 3)
    assert watermark.read(queue._session.home) == (3, 1, 1, 4352, 3)
