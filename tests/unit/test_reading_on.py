"""A walk, and the consumer around it: where it stands, what it passes, what it waits for, and what it says."""

from __future__ import annotations

import os
import re
import threading
import time
import types

import pytest
from support import DEADLINE, Child, chunk_files, flip, hold_until_killed, make_unclean, patch, peek, until, words

import shmq
from shmq import _native, errors
from shmq.deadlines import deadline_of, sooner
from shmq.reading import walk
from shmq.reading.walk import Walk
from shmq.storage import pins, space, warm

AGE = shmq.Retention.age(3600)


def whole(text):
    return f"^{re.escape(text)}$"


def walk_of(queue, *, checkpoint=None, **flags):
    return Walk(queue._session.home, queue._session.joined(), checkpoint, **flags)


def read(of, count=1):
    found = []
    for _ in range(count):
        assert of.look() >= 0
        found.append(int(of.reader.index))
    return found


@pytest.fixture
def long(make):
    """A queue of four chunks."""
    queue = make(retention=shmq.Retention.forever())
    while len(queue._session.chain().names()) < 4:
        queue.put(b"%d" % queue.next_index + bytes(1000))
    return queue


def retire_up_to(queue, chunks):
    """Take away so many chunks, as retention would: the first index that is left."""
    live = queue._session.chain().names()
    home = queue._session.home
    with home.admin():
        home.write_journal(home.read_journal()._replace(first_live=chunks, first_index=live[chunks][1]))
        queue._session.joined().control.raise_first_live(chunks)
    for sequence, base in live[:chunks]:
        home.drop_chunk(base, sequence)
    return live[chunks][1]


# ---------------------------------------------------------------- deadlines
def test_a_deadline_is_so_many_seconds_from_now_or_never(monkeypatch):
    monkeypatch.setattr(_native, "monotonic_ns", lambda: 1000)
    assert deadline_of(None) == _native.FOREVER < 0
    assert deadline_of(0) == 1000
    assert deadline_of(1.5) == 1000 + 1_500_000_000
    assert deadline_of(1e12) == 1000 + 10**18
    with pytest.raises(ValueError, match="timeout"):
        deadline_of(-1)


def test_the_sooner_of_a_deadline_and_a_moment_since_boot(monkeypatch):
    monkeypatch.setattr(_native, "monotonic_ns", lambda: 1000)
    monkeypatch.setattr(_native, "boottime_ns", lambda: 5000)
    assert sooner(1200, None) == 1200
    assert sooner(1200, 5100) == 1100
    assert sooner(1050, 5100) == 1050
    assert sooner(1200, 4000) == 1000
    assert sooner(_native.FOREVER, 5100) == 1100
    assert sooner(_native.FOREVER, None) == _native.FOREVER
    assert sooner(0, 5100) == 0


# ---------------------------------------------------------------- where it stands
@pytest.mark.parametrize("index", [0, 1, 5, 17, 20])
def test_a_remembered_place_is_gone_on_from_and_what_comes_before_the_head_is_not(long, index):
    chain = long._session.chain()
    sequence, base = chain.names()[1]
    chunk = chain.open(sequence, base)
    mine = walk_of(long)
    assert mine.resume(sequence, chunk.first_position(), 0, base + index) is True
    assert mine.index() == base + index
    assert read(mine) == [base + index]


def test_a_place_that_is_not_what_it_was_is_not_gone_on_from(long):
    chain = long._session.chain()
    sequence, base = chain.names()[1]
    chunk = chain.open(sequence, base)
    first, size = chunk.first_position(), chunk.size
    for position in (first - 8, size, size + 8, first + 1, first + 4):
        assert walk_of(long).resume(sequence, position, 0, base) is False, position
    assert walk_of(long).resume(77, first, 0, base) is False
    mine = walk_of(long)
    assert mine.resume(sequence, size - 8, 10**6, base + 10**6) in (True, False)
    chunk_files(long.path)[1].rename(f"{long.path}/away")
    chain = long._session.chain()
    known = walk_of(long)
    known.chain.names = lambda: [(sequence, base)]
    assert known.resume(sequence, first, 0, base) is False


def test_a_walk_goes_back_to_its_mark_in_the_same_chunk_or_to_the_begin_of_the_next(long):
    mine = walk_of(long)
    assert mine.mark() == (None, 0, 0)
    mine.back_to(mine.mark())
    assert mine.due_ns() is None
    mine.seek(3)
    assert mine.index() == 3
    assert read(mine, 2) == [3, 4]
    mark = mine.mark()
    assert mark == (mine.reader, int(mine.reader.position), 5)
    assert read(mine, 2) == [5, 6]
    mine.back_to(mark)
    assert read(mine, 2) == [5, 6]
    _, base = long._session.chain().names()[1]
    mark = mine.mark()
    assert read(mine, base + 2 - 7)[-1] == base + 1
    mine.back_to(mark)
    assert read(mine, 3) == [base, base + 1, base + 2]


def test_a_walk_is_at_the_end_when_it_has_passed_all(long):
    mine = walk_of(long)
    mine.seek(long.next_index - 1)
    assert mine.at_end() is False
    assert read(mine) == [long.next_index - 1]
    assert mine.at_end() is True
    assert mine.look() == _native.EMPTY
    mine.seek(long.next_index)
    assert mine.at_end() is True


def test_the_built_ins_take_from_where_the_walk_stands_and_from_nowhere_when_it_is_stopped(long):
    moves = []

    class Head:
        def _move(self, *given):
            moves.append(given)

    mine, head = walk_of(long), Head()
    mine.lead(head)
    mine.stop()
    assert moves == [(0, 0, 0, None)]
    mine.go_on_leading()
    assert len(moves) == 1
    mine.seek(0)
    del moves[:]
    read(mine)
    chunk, reader = mine.chunk, mine.reader
    there = (chunk.address, _native.address(reader), chunk.memory_address, (chunk, reader, None))
    assert moves == [(0, 0, 0, None), there]
    mine.go_on_leading()
    assert len(moves) == 2  # it leads
    mine.stop()
    mine.go_on_leading()
    assert moves[3:] == [there]
    mine.seek(5)
    assert moves[4:] == [(0, 0, 0, None)]
    assert mine._led is None
    del head
    mine.stop()


# ---------------------------------------------------------------- what has gone
@pytest.mark.parametrize("kind", ["age", "bytes", "acked", "forever"])
def test_what_was_retired_before_a_name_came_to_it_is_told_once_if_not_all_had_finished_it(make, kind):
    options = {"age": AGE, "bytes": shmq.Retention.bytes(1 << 40), "acked": shmq.Retention.acked()}
    queue = make(retention=options.get(kind, shmq.Retention.forever()))
    consumer = queue.consumer("c")
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    first = retire_up_to(queue, 2)
    assert consumer._walk.only_finished_goes() is (kind in ("acked", "forever"))
    if kind in ("age", "bytes"):
        said = (
            f"{queue.path} has no message 0 any more: what came before {first} was retired; the next get begins there"
        )
        with pytest.raises(errors.Gone, match=whole(said)) as gone:
            consumer.get(timeout=0)
        assert gone.value.first_index == first
    assert consumer.get(timeout=0).index == first
    assert queue._session.home.checkpoint("c").dropped == 0


def test_a_name_that_is_overtaken_on_its_way_is_told_where_it_goes_on(make):
    queue = make(retention=AGE)
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    consumer, reader = queue.consumer("c"), queue.reader()
    _, base = queue._session.chain().names()[1]
    for _ in range(base):
        consumer.get(timeout=0)
        next(reader)
    first = retire_up_to(queue, 3)
    said = (
        f"{queue.path} has no message {base} any more: what came before {first} was retired; the next get begins there"
    )
    with pytest.raises(errors.Gone, match=whole(said)) as gone:
        consumer.get(timeout=0)
    assert gone.value.first_index == first
    assert consumer.get(timeout=0).index == first
    assert consumer._walk.index() == first + 1


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_what_was_dropped_for_room_is_counted_and_not_told(make, dropped):
    """As far as it was dropped: what has gone beyond that is told."""
    queue = make(retention=AGE)
    consumer = queue.consumer("c")
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    first = retire_up_to(queue, 2)
    queue._session.joined().control.drop_for_all(first + dropped - 1)
    if dropped == 0:
        with pytest.raises(errors.Gone):
            consumer._walk.look()
        assert queue._session.home.checkpoint("c").dropped == 0
        return
    consumer._walk.look()
    assert int(consumer._walk.reader.index) == first + dropped - 1
    assert queue._session.home.checkpoint("c").dropped >= first


def test_what_was_dropped_between_two_chunks_is_counted_by_who_was_on_its_way(make):
    queue = make(retention=AGE)
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    consumer = queue.consumer("c")
    _, base = queue._session.chain().names()[1]
    for _ in range(base):
        consumer.get(timeout=0)
    first = retire_up_to(queue, 3)
    queue._session.joined().control.drop_for_all(first)
    assert consumer.get(timeout=0).index == first
    assert queue._session.home.checkpoint("c").dropped == first - base


def test_what_was_retired_on_the_way_to_where_somebody_goes_is_not_lost_to_him(make):
    queue = make(retention=AGE)
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    consumer = queue.consumer("c")
    _, base = queue._session.chain().names()[2]
    consumer._walk._enter(queue._session.chain().open(0, 0), start=base + 2)
    retire_up_to(queue, 2)
    assert consumer.get(timeout=0).index == base + 2


def test_a_name_that_has_finished_a_chunk_lets_what_is_behind_it_go(long, monkeypatch):
    called = []
    consumer = long.consumer("c")
    membership = long._session.joined()
    monkeypatch.setattr(membership, "forget_retired", lambda: called.append("forget"))
    monkeypatch.setattr(warm, "settle", lambda: called.append("settle"))
    monkeypatch.setattr(space, "retire", lambda *given: called.append(given))
    _, base = long._session.chain().names()[1]
    for _ in range(base):
        consumer.get(timeout=0)
    assert called == []
    consumer.get(timeout=0)
    assert called == ["forget", "settle", (long._session.home, consumer._walk.chain, membership.control)]
    del called[:]
    mine = walk_of(long)
    mine.seek(base - 1)
    read(mine, 3)
    assert called == []  # it is nobody's


# ---------------------------------------------------------------- past damage
def damage(queue, which, at):
    """Flip a bit in the payload of that message of that chunk."""
    flip(chunk_files(queue.path)[which], words(queue.path, which)[at].position + 60)


def test_damage_is_an_error_or_passed_over_and_counted(long):
    live = long._session.chain().names()
    damage(long, 1, 3)
    for verb in ("look", "glance"):
        mine = walk_of(long)
        mine.seek(live[1][1] + 3)
        if verb == "glance":
            assert mine.glance() == _native.CORRUPT
        else:
            with pytest.raises(errors.Corrupt, match=re.escape(long.path)):
                mine.look()
    for start, skipped in ((0, 1), (live[1][1] + 3, 1), (live[1][1] + 4, 0)):
        mine = walk_of(long)
        mine.skip_corrupt = True
        mine.seek(start)
        found = []
        while mine.look() >= 0:
            found.append(int(mine.reader.index))
        assert found == [index for index in range(start, long.next_index) if index != live[1][1] + 3]
        assert mine.skipped == skipped


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_chunk_that_cannot_be_used_is_passed_over_and_its_messages_counted(long, which):
    live = long._session.chain().names()
    patch(chunk_files(long.path)[which], 16, bytes(8))
    behind = live[which + 1][1]
    for start in (0, live[which][1], live[which][1] + 2):
        mine = walk_of(long)
        mine.skip_corrupt = True
        mine.seek(start)
        found = []
        while mine.look() >= 0:
            found.append(int(mine.reader.index))
        lost = range(live[which][1], behind)
        assert found == [index for index in range(start, long.next_index) if index not in lost]
        assert mine.skipped == len([index for index in lost if index >= start])


def test_a_last_chunk_that_cannot_be_used_ends_the_way_for_now(long):
    live = long._session.chain().names()
    patch(chunk_files(long.path)[3], 16, bytes(8))
    mine = walk_of(long)
    mine.skip_corrupt = True
    mine.seek(live[3][1] - 1)
    assert read(mine) == [live[3][1] - 1]
    assert mine.look() == _native.EMPTY
    assert mine.glance() == _native.EMPTY


# ---------------------------------------------------------------- waiting
def test_who_waits_in_vain_says_for_what(queue):
    nothing = f"nothing to get from {queue.path} in time"
    consumer = queue.consumer("c")
    with pytest.raises(errors.Empty, match=whole(nothing)):
        consumer.get(timeout=0)
    slot = queue.reserve(1)
    claimed = rf"^{re.escape(nothing)}: the next message is claimed by process {os.getpid()} .*, and not committed"
    with pytest.raises(errors.Empty, match=claimed):
        consumer.get(timeout=0)
    slot.abort()
    with pytest.raises(errors.Empty):
        consumer.get(timeout=0)
    queue.put(b"x", delay=3600)
    with pytest.raises(errors.Empty, match=whole(f"{nothing}: the next message is delayed")):
        consumer.get(timeout=0)
    assert consumer._due_ns() > _native.boottime_ns() + 3_000 * 10**9


def test_a_wait_sleeps_until_the_deadline_or_the_next_message_is_due(queue, monkeypatch):
    slept = []
    mine = walk_of(queue)
    mine.seek(0)
    membership = queue._session.joined()

    def sleep(seen, deadline):
        slept.append(deadline)
        queue.put(b"now")

    monkeypatch.setattr(membership, "sleep", sleep)
    assert mine.wait(_native.monotonic_ns() + 10**12, lambda: None) >= 0
    assert slept[0] > _native.monotonic_ns() + 10**11
    mine.seek(queue.next_index)
    assert mine.wait(_native.FOREVER, lambda: None) >= 0
    assert slept[1] == _native.FOREVER
    with queue.consumer("c", start="latest") as consumer:
        due = queue[queue.put(b"later", delay=100)].due_ns

        def asleep(seen, deadline):
            slept.append(deadline)
            raise LookupError

        monkeypatch.setattr(membership, "sleep", asleep)
        with pytest.raises(LookupError):
            consumer.get()
        assert abs(slept[2] - _native.monotonic_ns() - (due - time.time_ns())) < 5 * 10**9


def test_a_wait_looks_longer_before_it_sleeps_than_when_it_knows_that_it_sleeps(queue, monkeypatch):
    spins, answers = [], [-1, -1, -1, -1, 77]
    mine = walk_of(queue)
    monkeypatch.setattr(queue._session.joined(), "sleep", lambda *given: None)
    mine.home = types.SimpleNamespace(read_only=False, path=queue.path)
    mine.membership = queue._session.joined()

    def look(count):
        spins.append(count)
        return answers.pop(0)

    assert mine.wait(_native.FOREVER, lambda: None, look) == 77
    longer = mine._patience.spins
    assert spins == [longer, 0, longer, 0, longer]
    answers, spins[:] = [-1], []
    with pytest.raises(errors.Empty):
        mine.wait(0, lambda: None, look)
    assert spins == [0], "whoever does not wait does not look longer"
    answers, spins[:] = [-1, -1], []
    with pytest.raises(errors.Closed):
        mine.wait(0, lambda: errors.Closed("over"), look)
    assert spins == [0, 0], "once more, when it is known that nothing comes any more"


def test_a_wait_ends_by_what_ends_it_also_at_its_deadline(queue):
    mine = walk_of(queue)
    mine.seek(0)
    for deadline in (_native.FOREVER, 0):
        with pytest.raises(errors.Closed, match="over"):
            mine.wait(deadline, lambda: errors.Closed("over"))


def test_who_may_only_read_looks_every_two_milliseconds(queue, monkeypatch):
    naps = []
    with shmq.open(queue.path, read_only=True) as handle:
        mine = walk_of(handle)
        mine.seek(0)
        monkeypatch.setattr(
            walk.time, "sleep", lambda seconds: naps.append(seconds) or (len(naps) == 3 and queue.put(b"x"))
        )
        assert mine.wait(_native.FOREVER, lambda: None) >= 0
        assert naps == [0.002] * 3


# ---------------------------------------------------------------- a name
def checkpoint(queue, name="c"):
    return queue._session.home.checkpoint(name)


def test_a_name_that_is_held_says_by_whom(queue):
    def busy():
        with pytest.raises(errors.Busy) as caught:
            queue.consumer("c")
        return caught.value.args[0]

    said = f"consumer 'c' of {queue.path} is held by %s; use another name, or wait until it is closed"
    with queue.consumer("c") as consumer:
        assert busy() == said % "this process (close it first)"
        assert checkpoint(queue).holder == queue._session.joined().member.owner != 0
        consumer._checkpoint.holder = 0
        assert busy() == said % "another process"
        consumer._checkpoint.holder = queue._session.joined().member.owner ^ 1
        assert busy() == said % "another process"
    assert checkpoint(queue).holder == 0

    def hold(say):
        with queue.consumer("c"):
            hold_until_killed(say)

    with Child(hold) as child:
        assert child.hear() == "ready"
        assert busy() == said % f"process {child.pid}"
        child.kill()


def test_a_name_that_was_made_otherwise_is_a_mismatch_in_words(queue):
    queue.consumer("g", group=True).close()
    said = (
        f"cannot open consumer 'g' of {queue.path} for this process alone: it is a group; open it with group=True, or "
    )
    with pytest.raises(errors.Mismatch, match=whole(f"{said}use another name")):
        queue.consumer("g")
    queue.consumer("c", ack="explicit").close()
    said = (
        f"cannot open consumer 'c' of {queue.path} with ack='auto': it was made with ack='explicit'; leave it out, or "
    )
    with pytest.raises(errors.Mismatch, match=whole(f"{said}use another name")):
        queue.consumer("c", ack="auto")
    queue.consumer("c").close()


def test_a_name_is_told_to_hold_and_that_is_counted_anew(queue, monkeypatch):
    counted = []
    control = queue._session.joined().control
    monkeypatch.setattr(type(control), "recount", lambda self: counted.append(True))
    queue.consumer("c").close()
    assert len(counted) == 1
    queue.consumer("c", hold=False).close()
    assert len(counted) == 2
    queue.consumer("c", hold=True).close()
    assert pins.holds(queue._session.home, "c") is True
    assert len(counted) == 4
    queue.consumer("c").close()
    assert pins.holds(queue._session.home, "c") is True
    queue.consumer("d", hold="nothing").close()
    assert pins.holds(queue._session.home, "d") == "nothing"
    queue.drop_consumer("d")
    queue.consumer("d").close()
    assert pins.holds(queue._session.home, "d") is False


@pytest.mark.parametrize(("head", "handed", "moved"), [(5, 5, None), (6, 6, (5, 5)), (3, 9, (3, 5)), (5, 4, None)])
def test_a_name_beyond_the_end_of_its_queue_is_moved_back_and_said(queue, head, handed, moved):
    queue.put_many([b"x"] * 5)
    queue.consumer("c").close()
    known = queue._session.home.checkpoint("c", writable=True)
    known.head, known.handed = head, handed
    if moved is None:
        queue.consumer("c").close()
        assert (known.head, known.handed) == (head, handed)
        return
    said = (
        f"{queue.path}/consumers/c.checkpoint stood at index {head} and had handed out up to {handed}, beyond the end "
    )
    with pytest.warns(RuntimeWarning, match=whole(f"{said}of the queue at 5; it was moved back to the end")) as seen:
        queue.consumer("c").close()
    assert seen[0].filename == __file__
    assert (known.head, known.handed) == moved


def test_a_name_goes_on_from_its_cursor_only_where_that_is_not_behind_its_head(long, monkeypatch):
    resumed = []
    resume = Walk.resume
    monkeypatch.setattr(Walk, "resume", lambda self, *given: resumed.append(given) or resume(self, *given))
    with long.consumer("c") as consumer:
        consumer.take_many(7, timeout=0)
    known = long._session.home.checkpoint("c", writable=True)
    sequence, position, ordinal, index = known.cursor()
    assert index == 7
    with long.consumer("c") as consumer:
        assert resumed == [(sequence, position, ordinal, 7)]
        assert consumer.get(timeout=0).index == 7
    known.head = 3
    with long.consumer("c") as consumer:
        assert len(resumed) == 1
        assert consumer.get(timeout=0).index == 3


def test_what_was_handed_out_before_has_a_second_attempt(queue):
    queue.put_many([b"x"] * 4)
    with queue.consumer("c", ack="explicit") as consumer:
        consumer.get_many(2, timeout=0)
    with queue.consumer("c") as consumer:
        again = consumer.get_many(4, timeout=0)
        assert [message.attempts for message in again] == [2, 2, 1, 1]
        consumer.seek(1)
        assert [message.attempts for message in consumer.get_many(3, timeout=0)] == [1, 1, 1]


def test_a_seek_back_is_believed_after_a_power_cut_too(path):
    """The live head is used when it can be true: also 0, of a name that began later."""
    with shmq.open(path) as queue:
        queue.put_many([b"%d" % each for each in range(4)])
        with queue.consumer("c", start=2) as consumer:
            assert consumer.take(timeout=0) == b"2"
            consumer.seek(0)
    make_unclean(path)
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        assert queue.recovery.moved == {}
        assert consumer.take(timeout=0) == b"0"


def test_a_seek_forgets_what_is_pending_counts_anew_and_lets_go_of_what_it_held_back(queue, monkeypatch):
    queue.put_many([b"x"] * 6)
    consumer = queue.consumer("c", ack="explicit")
    consumer.get_many(4, timeout=0)
    called = []
    membership = queue._session.joined()
    monkeypatch.setattr(type(membership.control), "recount", lambda self: called.append("recount"))
    monkeypatch.setattr(membership, "forget_retired", lambda: called.append("forget"))
    monkeypatch.setattr(space, "retire", lambda *given: called.append(given))
    consumer.seek(2)
    assert called == ["recount", "forget", (queue._session.home, consumer._walk.chain, membership.control)]
    assert (consumer.pending, consumer.head) == (0, 2)
    consumer.seek(6)
    assert consumer.head == 6
    for beyond in (7, -1):
        said = f"cannot seek to {beyond}: {queue.path} has indexes from 0 to 6"
        with pytest.raises(IndexError, match=whole(said)):
            consumer.seek(beyond)


def test_lag_counts_what_is_held_and_what_is_behind(queue):
    queue.put_many([b"x"] * 10)
    consumer = queue.consumer("c", ack="explicit")
    assert (consumer.lag, consumer.pending) == (10, 0)
    messages = consumer.get_many(4, timeout=0)
    assert (consumer.lag, consumer.pending) == (10, 4)
    consumer.ack(messages[1], messages[3])
    assert (consumer.lag, consumer.pending) == (8, 2)
    consumer.ack(messages[0])
    assert (consumer.lag, consumer.pending) == (7, 1)
    assert queue.consumers()["c"].lag == 7


def test_a_consumer_says_what_it_is_and_how_it_ended(queue):
    consumer = queue.consumer("c", ack="explicit")
    assert repr(consumer) == f"<shmq.LoneConsumer 'c' of {queue.place} (ack=explicit, head 0, holds 0)>"
    queue.put(b"x")
    consumer.take(timeout=0)
    assert repr(consumer).endswith("(ack=explicit, head 1, holds 0)>")
    queue.shutdown()
    said = f"{queue.path} was shut down, and consumer 'c' has drained it"
    with pytest.raises(errors.ShutDown, match=whole(said)):
        consumer.get(timeout=0)
    consumer.close()
    assert repr(consumer).endswith("(closed)>")
    with pytest.raises(errors.Closed, match=whole(f"consumer 'c' of {queue.path} was closed")):
        consumer.get(timeout=0)


def test_a_shutdown_at_once_leaves_what_is_there(queue):
    consumer = queue.consumer("c")
    queue.put(b"x")
    queue.shutdown(immediate=True)
    said = f"{queue.path} was shut down at once; what is left in it stays there"
    assert str(consumer._ended()) == said


def test_a_name_in_a_forked_child_is_its_parents(queue):
    queue.put(b"x")
    consumer = queue.consumer("c")
    parent = os.getpid()
    said = f"consumer 'c' of {queue.path} belongs to the parent process {parent}; open one under another name in this "
    said += "child"

    def tried(say):
        for verb in (lambda: consumer.get(timeout=0), lambda: consumer.lag, lambda: consumer.pending, consumer.peek):
            with pytest.raises(errors.Forked, match=whole(said)):
                verb()
        say("done")

    with Child(tried) as child:
        assert child.hear() == "done"
        assert child.join() == 0


def test_damage_is_what_a_look_says(queue):
    queue.put(bytes(100))
    consumer = queue.consumer("c")
    damage(queue, 0, 0)
    with pytest.raises(errors.Corrupt):
        consumer.peek()
    assert consumer._has_something() is True


def test_many_are_taken_from_one_chunk_up_to_the_limit(long):
    _, base = long._session.chain().names()[1]
    for ack in ("auto", "explicit"):
        consumer = long.consumer(f"c-{ack}", ack=ack)
        assert [message.index for message in consumer.get_many(3, timeout=0)] == [0, 1, 2]
        assert len(consumer.take_many(base + 50, timeout=0)) == base - 3
        assert [message.index for message in consumer.get_many(1, timeout=0)] == [base]


def test_more_than_a_thousand_are_taken_in_one_call(make):
    queue = make(chunk_bytes=1 << 20)
    queue.put_many([b"%d" % each for each in range(2500)])
    consumer = queue.consumer("c")
    assert consumer.take_many(2100, timeout=0) == [b"%d" % each for each in range(2100)]
    assert consumer.head == 2100
    assert len(consumer.take_many(5000, timeout=0)) == 400


def test_a_close_wakes_who_waits_and_writes_the_last_acks_down(make, monkeypatch):
    queue = make(durability=shmq.Durability.interval(3600))
    queue.put_many([b"x"] * 3)
    consumer = queue.consumer("c")
    consumer.take_many(2, timeout=0)
    assert checkpoint(queue).newest_snapshot() is None
    consumer.close()
    assert checkpoint(queue).newest_snapshot().head == 2
    plain = make(f"{queue.path}-2")
    other = plain.consumer("c")
    other.close()
    assert plain._session.home.checkpoint("c").newest_snapshot() is None


def test_who_waits_in_another_thread_is_told_of_a_close(queue):
    consumer = queue.consumer("c")
    ended = []

    def wait():
        try:
            consumer.get()
        except errors.Closed as problem:
            ended.append(str(problem))

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: peek(f"{queue.path}/control.shmq", 128) & 1)
    consumer.close()
    thread.join(DEADLINE)
    assert ended == [f"consumer 'c' of {queue.path} was closed"]


def test_a_purge_moves_the_names_that_nobody_holds_and_counts_what_they_missed(queue):
    queue.put_many([b"x"] * 9)
    for name, start in (("a", 2), ("b", 9), ("mine", 3)):
        queue.consumer(name, start=start).close()
    known = queue._session.home.checkpoint("a", writable=True)
    known.handed = 5
    with queue.consumer("mine") as consumer:
        queue.purge()
        found = {name: queue._session.home.checkpoint(name) for name in ("a", "b", "mine")}
        assert {name: (each.head, each.handed, each.dropped) for name, each in found.items()} == {
            "a": (9, 9, 7), "b": (9, found["b"].handed, 0), "mine": (3, found["mine"].handed, 0)
        }  # fmt: skip
        queue.put(b"after")
        assert consumer.take(timeout=0) == b"after"
        assert queue._session.home.checkpoint("mine").dropped == 6
