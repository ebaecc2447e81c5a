"""A group's window: high indexes, its edge, stale handles, seats that come again, and numbers that are nonsense."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from pathlib import Path

import pytest
from support import Child, begin_at, hold_until_killed, make_unclean, patch, peek, until

import shmq
from shmq import _native
from shmq.taking.dead import Mover

WAIT = 60
WINDOWS = [64, 65536]
TERM, BOOT_ID, SIDE_BLOCKS, TENANTS, RING_HEADER = 64, 32, 192, 4096, 12288  # in a ring
HEAD, SEATS = 192, 4096  # in a checkpoint, in the control page


def join(queue, name="g", ack="explicit", **options):
    return queue.consumer(name, group=True, ack=ack, **options)


def put_numbers(queue, count):
    queue.put_many([b"%d" % i for i in range(count)])


def finish(member, limit=20):
    """Everything that is there, finished: the indexes."""
    found = []
    with contextlib.suppress(shmq.Empty):
        while True:
            messages = member.get_many(limit, 0)
            found += [message.index for message in messages]
            member.ack(*messages)
    return found


def ring_file(path):
    return Path(path, "consumers", "g.ring")


def queue_from(path, index):
    """A queue that begins at that index."""
    shmq.open(path).close()
    begin_at(path, index)
    return shmq.open(path)


# ---------------------------------------------------------------- indexes as high as they go
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("bit", [6, 16, 22, 27, 28, 37, 38, 44, 53, 61])
def test_a_group_that_begins_at_a_high_index_is_handed_everything(path, bit, window):
    """Around each power of two at which some count of laps begins anew or seems to be the later one."""
    for first in (2**bit - 61, 2**bit + 1):
        with queue_from(f"{path}-{first}", first) as queue, join(queue, window=window) as member:
            put_numbers(queue, 130)
            assert finish(member) == list(range(first, first + 130))
            assert member.head == first + 130


@pytest.mark.parametrize("first", [2**27 + 5, 2**37 + 5, 2**44 + 5])
def test_keys_keep_their_order_at_a_high_index(path, first):
    """What is given back, parked or delayed there, too."""
    with queue_from(path, first) as queue, join(queue, window=64, ordered_by="key") as member:
        queue.put_many([b""] * 200, keys=[b"%d" % (i % 3) for i in range(200)])
        newest, seen = {}, 0
        while seen < 200:
            message = member.get(WAIT)
            if message.attempts == 1 and message.index % 10 == 0:
                message.nack(delay=0.001)
                continue
            assert newest.get(message.key, -1) < message.index
            newest[message.key] = message.index
            message.ack()
            seen += 1


@pytest.mark.parametrize("window", WINDOWS)
def test_a_group_at_a_high_index_goes_on_after_a_reboot(path, window):
    """The ring is cleared, and set by its snapshot: zeros are of no lap."""
    first = 2**37 + 2**27 + 5
    with queue_from(path, first) as queue, join(queue, window=window) as member:
        put_numbers(queue, 200)
        member.ack(*member.get_many(50, 0))
    patch(ring_file(path), BOOT_ID, b"another boot id!")
    with shmq.open(path) as queue, join(queue) as member:
        assert finish(member) == list(range(first + 50, first + 200))
        member.seek(first + 100)
        assert finish(member) == list(range(first + 100, first + 200))


def test_a_ring_of_no_term_is_rebuilt(path):
    """Zeros in its words would seem to be of such a one."""
    with shmq.open(path) as queue, join(queue) as member:
        put_numbers(queue, 5)
        member.get(0).ack()
    assert peek(ring_file(path), TERM) == 1
    for term in (0, 1024, 2**64 - 1):
        patch(ring_file(path), TERM, struct.pack("<Q", term))
        with shmq.open(path) as queue, join(queue) as member:
            assert [member.peek().index, peek(ring_file(path), TERM)] == [1, 1]


@pytest.mark.parametrize("how", ["retired", "a gap"])
@pytest.mark.parametrize("by", [2**27, 2**27 + 64, 2**28 - 64, 2**28, 2**28 + 32, 2**29, 2**30 + 2**28, 129, 192])
def test_a_head_that_jumps_finds_nothing_finished_behind_it(queue, by, how):
    """Also when the words there are of the same lap, counted modulo 2^22."""
    member = join(queue, window=64)
    put_numbers(queue, 64)
    finish(member)
    if how == "retired":
        assert member._ring.retire(by) == by - 64
    else:
        assert member._ring.pass_gap(64, by) == 0
    assert member.head == by
    assert [member._ring.peek(at) for at in (by, by + 63)] == [by, by + 63]


# ---------------------------------------------------------------- the window's edge
def test_what_one_member_holds_stops_no_other(queue):
    """However much it is; its holder can finish it in the end, and is told when it holds too much to get more."""
    holder, other = join(queue, window=64), join(queue)
    put_numbers(queue, 300)
    held = holder.get_many(64, 0)
    with pytest.raises(shmq.Empty, match=r"its window is full, 64 of 64.*holds 64 itself"):
        holder.get(0.05)
    for index in range(64, 300):
        message = other.get(WAIT)
        assert message.index == index
        message.ack()
    assert queue.consumers()["g"].group.pending == 64
    holder.ack(*held)
    with pytest.raises(shmq.Empty):
        other.get(0)
    assert queue.consumers()["g"].group.pending == 0


def test_who_holds_the_whole_window_gets_no_more_however_late_it_asks(queue):
    """It has met the edge when it got what it holds; the head has not moved since."""
    holder = join(queue, window=64)
    put_numbers(queue, 100)
    assert len(holder.get_many(100, 0)) == 64
    time.sleep(0.01)
    with pytest.raises(shmq.Empty, match="its window is full"):
        holder.get(0)


@pytest.mark.parametrize("where", ["in the window", "outside"])
def test_a_member_that_is_stopped_inside_a_reject_stops_no_other(queue, path, monkeypatch, where):
    """Its letter is put when it goes on, once."""
    put_numbers(queue, 1)

    def work(say):
        def stop(self, *given, **how):
            say("rejecting")
            os.kill(os.getpid(), signal.SIGSTOP)
            return put(self, *given, **how)

        put = Mover.put
        monkeypatch.setattr(Mover, "put", stop)
        with shmq.open(path) as mine, join(mine, window=64) as member:
            message = member.get(WAIT)
            if where == "outside":
                message.nack()
                message = member.get(WAIT)
            message.reject("no reason")
            say("rejected")

    with Child(work) as child:
        assert child.hear() == "rejecting"
        until(lambda: "State:\tT" in Path(f"/proc/{child.pid}/status").read_text())
        put_numbers(queue, 300)
        other = join(queue)
        for index in range(1, 301):
            message = other.get(WAIT)
            assert message.index == index
            message.ack()
        child.signal(signal.SIGCONT)
        assert child.hear() == "rejected"
        assert child.join() == 0
    with shmq.open(f"{path}.g.dead", create=False) as letters:
        assert [message.headers["shmq.index"] for message in letters.reader()] == [0]
    with pytest.raises(shmq.Empty):
        other.get(0)
    assert queue.consumers()["g"].group.pending == 0


def test_what_is_held_before_a_gap_stops_no_other(path):
    """A recovery leaves one that is larger than the window."""
    with shmq.open(path) as queue, join(queue, window=64):
        put_numbers(queue, 3)
    make_unclean(path)
    with shmq.open(path) as queue, join(queue) as holder, join(queue) as other:
        behind = queue.put(b"behind")
        assert behind > 64
        held = holder.get_many(3, 0)
        other_got = other.get(WAIT)
        assert other_got.index == behind
        other_got.ack()
        holder.ack(*held)
        until(lambda: not queue.consumers()["g"].group.pending)


def test_what_comes_behind_a_gap_is_there_at_once_for_who_does_not_wait(path):
    """The indexes of the gap are not in flight: they do not make the window look full."""
    with shmq.open(path) as queue, join(queue, window=64):
        put_numbers(queue, 1)
    make_unclean(path)
    with shmq.open(path) as queue, join(queue) as member:
        held = member.get(0)
        behind = queue.put(b"behind")
        assert behind > 64
        assert member.get(0).index == behind
        held.ack()


# ---------------------------------------------------------------- stale handles
@pytest.mark.parametrize("end", ["ack", "nack", "reject", "extend", "ack many"])
def test_what_was_handed_out_anew_cannot_be_ended_by_who_had_it_before(queue, end):
    """Also when the same member has it again."""
    member = join(queue)
    put_numbers(queue, 3)
    before = member.get_many(3, 0)
    for message in before:  # as a lease that ends: the holder does not know
        thief = _native.taken_array(1)
        thief[0] = _native.taken_of(message)[0]
        member._ring.give_back(thief)
    after = member.get_many(3, 0)
    assert [message.attempts for message in after] == [2, 2, 2]
    stale = (lambda: member.ack(*before)) if end == "ack many" else getattr(before[1], end)
    for _ in range(2):
        with pytest.raises(shmq.LeaseLost):
            stale(*([60] if end == "extend" else []))
    assert member.pending == 3
    assert queue.consumers()["g"].group.pending == 3
    for message in after:
        message.ack()
        message.ack()
    assert (queue.consumers()["g"].group.pending, member.pending, member.head) == (0, 0, 3)


# ---------------------------------------------------------------- seats
def test_a_seat_whose_generations_come_round_is_not_taken_for_its_dead_holder(path):
    """As long as somebody sat there in between, member of the group or not."""
    queue = shmq.open(path)
    put_numbers(queue, 2)

    def hold(say):
        with shmq.open(path) as mine:
            say(mine._session.joined().member.owner)
            join(mine).get(0)
            hold_until_killed(say)

    def sit(say):
        with shmq.open(path) as mine:
            say(mine._session.joined().member.owner)
            hold_until_killed(say)

    with Child(hold) as child:
        owner = int(child.hear())
        child.hear()
        child.kill()
    with Child(sit) as child:
        assert int(child.hear()) == owner + 1
    patch(Path(path, "control.shmq"), SEATS + 64 * (owner >> 11), struct.pack("<I", (owner & 2047) - 1))
    with Child(sit) as child:
        assert int(child.hear()) == owner
        member = join(queue)
        found = sorted((message.index, message.attempts) for message in (member.get(WAIT), member.get(WAIT)))
        assert found == [(0, 2), (1, 1)]
    queue.close()


# ---------------------------------------------------------------- numbers that are nonsense
def _nonsense(window, buckets):
    """Where numbers are in a ring: (name, position, bytes)."""
    words = RING_HEADER + 8 * window * 3
    keys = words + 8 * window
    side = keys + 32 * buckets + buckets // 8 if buckets else words
    yield ("tenants", TENANTS, 32)
    yield from (
        ("edge", 256, 8),
        ("side_blocks", SIDE_BLOCKS, 8),
        ("side_hint", 208, 8),
        ("term", TERM, 8),
        ("cells", 56, 8),
    )
    yield from (("words", RING_HEADER, 24), ("leases", RING_HEADER + 8 * window, 24))
    if buckets:
        yield from (("keys", words, 24), ("gates", keys, 32 * buckets))
        yield ("ready", keys + 32 * buckets, buckets // 8)
    yield from ((f"block header {at}", side + 8 * at, 8) for at in range(3))
    for entry in (1, 2):
        yield from ((f"entry {entry}, {at}", side + 56 * entry + 8 * at, 8) for at in range(7))


@pytest.mark.parametrize("order", [None, "key"])
def test_no_number_in_a_ring_makes_a_member_crash(path, monkeypatch, order):
    """It may get nothing, or the wrong thing, or an error in words."""
    monkeypatch.setattr(_native, "RING_BUCKETS", 64)
    monkeypatch.setattr(_native, "SIDE_BLOCKS", 1)
    with shmq.open(path) as queue, join(queue, window=64, lease=60, ordered_by=order) as member:
        queue.put_many([b"x"] * 100, keys=[b"%d" % (i % 5) for i in range(100)])
        for _ in range(4):
            member.get(0).nack(delay=0.01)
        member.get(0)
    content = ring_file(path).read_bytes()

    def work(say):
        queue = shmq.open(path)
        at_rest = False
        for name, position, length in _nonsense(64, 64 if order else 0):
            for value in (2**64 - 1, 0x7FFFFFFF, 0x7FFFFFFFFFFFFF05, 2**64 - 1, 0):
                patch(ring_file(path), 0, content)
                at_rest = not at_rest
                say(f"{name} = {value:#x}, at rest: {at_rest}")
                with contextlib.suppress(shmq.ShmqError):
                    if at_rest:
                        patch(ring_file(path), position, struct.pack("<Q", value) * (length // 8))
                    with join(queue) as member:
                        messages = member.get_many(3, 0)
                        if not at_rest:
                            patch(ring_file(path), position, struct.pack("<Q", value) * (length // 8))
                        with contextlib.suppress(shmq.ShmqError):
                            messages[0].nack()
                            member.ack(*messages[1:])
                            member.get_many(5, 0)
                            queue.consumers()
                            queue.group_place("g")
                            member._snapshot()
        say("done")

    with Child(work) as child:
        told = ""
        while told != "done":
            before = told
            try:
                told = child.hear()
            except AssertionError:
                raise AssertionError(f"it ended, or hangs, with {before}") from None
        assert child.join() == 0


@pytest.mark.parametrize("cells", [0, 1, 2, 7])
def test_a_ring_without_the_cells_that_its_group_needs_is_damage_or_does_without(path, cells):
    """No member reads or writes beyond what there is."""
    with shmq.open(path) as queue:
        join(queue, window=64, lease=60).close()
        patch(ring_file(path), 56, bytes([cells]))
        put_numbers(queue, 10)
        if cells & 1 and cells <= 3:
            assert finish(join(queue)) == list(range(10))
        else:
            with pytest.raises(shmq.Corrupt, match=r"g\.ring"):
                join(queue)


@pytest.mark.parametrize(
    ("options", "kib"),
    [
        ({"ack": "auto"}, 512),
        ({"ack": "explicit"}, 1024),
        ({"ack": "auto", "expire_to": "other"}, 1024),
        ({"ack": "explicit", "lease": 5}, 1536),
        ({"ack": "explicit", "window": 1024}, 16),
    ],
)
def test_a_ring_is_no_larger_than_its_group_needs(path, options, kib):
    """A word a message; attempts where it may come again, leases where there is one; and a block of the side table."""
    with shmq.open(path) as queue:
        put_numbers(queue, 9)
        with queue.consumer("g", group=True, **options) as member:
            first = member.get(0)
            if member.ack_mode == "explicit":
                first.extend(60)
                first.nack()
                while (message := member.get(WAIT)).index != 0:
                    message.ack()
                assert message.attempts == 2
                message.ack()
            else:
                assert first.attempts == 1
                finish(member)
            assert member.lag == 0
        assert os.stat(ring_file(path)).st_size == RING_HEADER + kib * 1024 + 32768


def test_a_head_that_is_nonsense_makes_no_member_crash(path):
    """It is a number of the checkpoint, which is mapped by all."""
    with shmq.open(path) as queue, join(queue, window=64):
        put_numbers(queue, 100)

    def work(say):
        with shmq.open(path) as queue:
            for value in (2**62, 2**63, 2**64 - 1, 2**64 - 65536):
                with contextlib.suppress(shmq.ShmqError), join(queue) as member:
                    patch(Path(path, "consumers", "g.checkpoint"), HEAD, struct.pack("<Q", value))
                    with contextlib.suppress(shmq.ShmqError):
                        member.ack(*member.get_many(5, 0))
                    queue.consumers()
                    member._snapshot()
        say("done")

    with Child(work) as child:
        assert child.hear() == "done"
        assert child.join() == 0


# ---------------------------------------------------------------- the side table
def test_what_is_due_is_drained_one_by_one_without_looking_at_all_of_it_each_time(queue):
    """Thirty times as many must not take longer for each; the factor is for caches, and for a machine that is busy."""
    member = join(queue)

    def each(count, delay):
        for _ in range(0, count, 1000):
            put_numbers(queue, 1000)
            for message in member.get_many(1000, WAIT):
                message.nack(delay=delay)
        time.sleep(delay)
        assert queue.consumers()["g"].group.parked == count
        since = time.perf_counter()
        for _ in range(300):
            member.get(WAIT).ack()
        took = time.perf_counter() - since
        finish(member, 1000)
        return took

    few = max(each(1000, 0.2) for _ in range(3))
    assert each(30_000, 3) < 4 * few
