"""Groups: one name shared by any number of members, each message with one of them; nothing lost when one dies."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import DONE, Child, chunk_files, hold_until_killed, in_child, patch, until, words

import shmq
from shmq import _native
from shmq.reading import arrow
from shmq.taking import handing

WAIT = 60
"""Seconds after which something that should happen at once is taken not to happen."""


def put_numbers(queue, count, first=0):
    queue.put_many([b"%d" % i for i in range(first, first + count)])


@pytest.fixture
def filled(queue):
    """A queue of b"0" .. b"9"."""
    put_numbers(queue, 10)
    return queue


def join(queue, name="g", ack="explicit", **options):
    return queue.consumer(name, group=True, ack=ack, **options)


def everything(member, limit=1000):
    """All that is there for this member now, in order of delivery."""
    found = []
    while True:
        try:
            found += member.get_many(limit, timeout=0)
        except shmq.Empty:
            return found


def payloads(messages):
    return [message.payload for message in messages]


# ---------------------------------------------------------------- sharing
def test_members_share_the_messages(filled):
    """Each goes to one of them, in order."""
    a, b = join(filled), join(filled)
    assert [a.get(0).payload, b.get(0).payload, a.get(0).payload] == [b"0", b"1", b"2"]
    assert payloads(b.get_many(4, 0)) == [b"3", b"4", b"5", b"6"]
    assert payloads(everything(a)) == [b"7", b"8", b"9"]
    with pytest.raises(shmq.Empty):
        b.get(0)


def test_several_groups_and_plain_consumers_each_see_everything(filled):
    """Fan-out by name, whatever the kind; readers are beside them."""
    a, b = join(filled, "a"), join(filled, "b", ack="auto")
    plain = filled.consumer("plain")
    with pytest.raises(shmq.Busy):
        filled.consumer("plain")
    everyone = [b"%d" % i for i in range(10)]
    assert payloads(everything(a)) == b.take_many(100, 0) == plain.take_many(100, 0) == everyone
    assert [message.payload for message in filled.reader()] == everyone


def test_members_join_and_leave_in_other_processes(filled):
    """A member in a child takes what the parent's does not; what it closed with comes back."""
    mine = join(filled)
    mine.get(0)

    def work():
        with join(filled) as member:
            return len(member.get_many(4, 0))

    assert in_child(work) == "4"
    assert payloads(everything(mine)) == [b"1", b"2", b"3", b"4", *[b"%d" % i for i in range(5, 10)]]


def test_a_group_goes_on_where_it_stopped(filled, make, path):
    """Nobody is in it for a while; what was acknowledged stays so, out of order too."""
    with join(filled) as member:
        messages = member.get_many(6, 0)
        for at in (0, 1, 3, 5):
            messages[at].ack()
        assert member.head == 2
    filled.close()
    with join(make(path)) as member:
        assert sorted(payloads(everything(member))) == [b"2", b"4", b"6", b"7", b"8", b"9"]


def test_start_latest_and_an_index(filled):
    """Where a new group begins."""
    late, third = join(filled, "late", start="latest"), join(filled, "third", start=3)
    filled.put(b"new")
    assert payloads(everything(late)) == [b"new"]
    assert payloads(everything(third))[:2] == [b"3", b"4"]


# ---------------------------------------------------------------- acknowledging
def test_auto_finishes_what_it_hands_out(filled):
    """At most once: a second member, or a later one, never sees it."""
    with join(filled, ack="auto") as member:
        assert member.take_many(4, 0) == [b"0", b"1", b"2", b"3"]
        assert member.get(0).payload == b"4"
        assert (member.head, member.pending) == (5, 0)
    assert join(filled, ack="auto").take(0) == b"5"


def test_acks_in_any_order_and_the_head_moves_over_them(filled):
    """It stands at the first that is missing."""
    member = join(filled)
    messages = member.get_many(5, 0)
    heads = []
    for at in (4, 2, 0, 1, 3):
        messages[at].ack()
        heads.append(member.head)
    assert heads == [0, 0, 1, 3, 5]
    messages[0].ack()
    assert (member.head, member.pending, member.lag) == (5, 0, 5)


def test_ack_of_many_in_one_call(filled):
    """A whole batch, parts of it, and a mixture of batches."""
    member = join(filled)
    whole, one, two = member.get_many(4, 0), member.get_many(3, 0), member.get_many(3, 0)
    member.ack(*whole)
    assert member.head == 4
    member.ack(two[1], one[0], one[2])
    assert (member.head, member.pending) == (5, 3)
    member.ack(*one, *two)
    assert (member.head, member.pending) == (10, 0)


def test_take_of_an_explicit_group_acknowledges(filled):
    """Singly and many."""
    member = join(filled)
    assert member.take(0) == b"0"
    assert member.take_many(3, 0) == [b"1", b"2", b"3"]
    assert member.head == 4


def test_a_late_ack_is_told_that_the_lease_was_lost_and_changes_nothing(queue):
    """The message was given to somebody else: its ack counts, and ours does not."""
    queue.put(b"x")
    slow, quick = join(queue, lease=0.02), join(queue)
    late, parallel = slow.get(0), quick.get(WAIT)
    assert (late.index, parallel.index, parallel.attempts) == (0, 0, 2)
    for verb in (late.ack, late.nack, lambda: late.extend(5)):
        with pytest.raises(shmq.LeaseLost, match="given to somebody else"):
            verb()
        slow._account.held.add(late)  # so that the next verb is not told that it is over
    assert quick.head == 0
    parallel.ack()
    assert quick.head == 1


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("how", ["arrow", "payloads"])
def test_found_a_take_in_which_a_lease_ended_lost_what_it_had_acknowledged(queue, monkeypatch, how, lost):
    """What it still had is returned; what somebody else has by then is not, and is an error where that is all."""
    put_numbers(queue, 2)
    slow, quick = join(queue, lease=0.02), join(queue)
    for message in slow.get_many(2):
        message.nack()
    module, name = (arrow, "of_messages") if how == "arrow" else (handing, "payloads_of")
    made, had = getattr(module, name), []

    def after_a_while(*given):
        monkeypatch.undo()
        for message in given[-1][lost:]:
            message.extend(3600)
        had.extend(quick.get(WAIT) for _ in range(lost))
        return made(*given)

    monkeypatch.setattr(module, name, after_a_while)
    with pytest.raises(shmq.LeaseLost) if lost == 2 else contextlib.nullcontext():
        taken = slow.take_arrow(2, 0)["payload"].to_pylist() if how == "arrow" else slow.take_many(2, 0)
        assert taken == [b"1"]
    quick.ack(*had)
    assert (payloads(had), queue.consumers()["g"].lag) == ([b"0", b"1"][:lost], 0)


def test_extend_keeps_a_message_that_has_a_lease(queue):
    """As long as it says; and an extended message can be acknowledged."""
    queue.put(b"x")
    slow, quick = join(queue, lease=0.05), join(queue)
    message = slow.get(0)
    message.extend(3600)
    with pytest.raises(shmq.Empty):
        quick.get(0.3)
    message.ack()
    assert quick.head == 1


def test_a_lease_that_was_extended_by_decades_has_not_ended(queue):
    """What does not fit the bits of a lease is for ever, not for a moment."""
    queue.put(b"x")
    slow, quick = join(queue, lease=0.05), join(queue)
    message = slow.get(0)
    message.extend(2**59 / 1e9)  # 2^35 units of 2^24 ns
    with pytest.raises(shmq.Empty):
        quick.get(0.3)
    message.ack()
    assert quick.head == 1


def test_without_a_lease_the_living_keep_what_they_have(queue):
    """However slow."""
    queue.put(b"x")
    slow, quick = join(queue), join(queue)
    message = slow.get(0)
    with pytest.raises(shmq.Empty):
        quick.get(0.2)
    message.ack()
    assert slow.head == 1


def test_peek_takes_nothing(filled):
    """Of a group and of a consumer alone; past padding and what has expired."""
    member, plain = join(filled), filled.consumer("plain", ack="explicit")
    for _ in range(2):
        assert member.peek().payload == plain.peek().payload == b"0"
    everything(member)
    assert plain.take(0) == b"0"
    assert (member.peek(), plain.peek().payload) == (None, b"1")
    filled.reserve(8).abort()
    filled.put(b"dead", ttl=0)
    filled.put(b"new")
    assert member.peek().payload == b"new"
    assert member.get(0).payload == b"new"


# ---------------------------------------------------------------- giving back
def test_nack_goes_behind_what_is_there_and_does_not_bounce(filled):
    """Behind everything that was in the queue, also for the one who gave it back."""
    member = join(filled)
    first = member.get(0)
    first.nack()
    filled.put(b"later")
    found = []
    for _ in range(11):
        found.append(member.get(0))
        found[-1].ack()
    assert payloads(found[:9]) == [b"%d" % i for i in range(1, 10)]
    assert sorted(payloads(found[9:])) == [b"0", b"later"]
    assert next(each for each in found if each.payload == b"0").attempts == 2
    assert member.head == 11


def test_a_second_nack_goes_behind_too(filled):
    """What was given back before is no better than what was not."""
    member = join(filled)
    everything(member)
    filled.put(b"bad")
    member.get(0).nack()
    bad = member.get(0)
    put_numbers(filled, 5, 100)
    bad.nack()
    assert payloads(everything(member, 1)) == [b"100", b"101", b"102", b"103", b"104", b"bad"]


def test_nack_with_a_delay_comes_again_in_time(queue):
    """Not before; and whoever sleeps is woken for it."""
    queue.put(b"x")
    member, other = join(queue), join(queue)
    began = time.monotonic()
    member.get(0).nack(delay=0.3)
    again = other.get(WAIT)
    assert time.monotonic() - began > 0.299
    assert (again.payload, again.attempts) == (b"x", 2)
    again.nack(delay=3600)
    assert other.head == 1, "a parked message does not hold the head"
    with pytest.raises(shmq.Empty):
        member.get(0)


def test_a_message_can_be_given_back_many_times(queue):
    """Parked, claimed and parked again; attempts count on."""
    queue.put(b"x")
    member = join(queue)
    for attempt in range(1, 600):
        message = member.get(0)
        assert message.attempts == attempt
        message.nack()
    member.get(0).ack()
    with pytest.raises(shmq.Empty):
        member.get(0)


def test_the_side_table_grows(queue):
    """Thousands parked at once, seen by a member that mapped it smaller."""
    other = join(queue)
    member = join(queue)
    count = 6000
    put_numbers(queue, count)
    for message in everything(member):
        message.nack(delay=0.001)
    assert member.head == count
    found = set()
    while len(found) < count:
        messages = other.get_many(500, WAIT)
        found |= set(payloads(messages))
        other.ack(*messages)
    assert found == {b"%d" % i for i in range(count)}


# ---------------------------------------------------------------- death
def test_what_a_dead_member_held_goes_to_the_others_at_once(filled):
    """Killed with kill -9 while another one waits; attempts grow; what it had acknowledged stays so."""

    def hold(say):
        messages = join(filled).get_many(10, 0)
        messages[1].ack()
        hold_until_killed(say)

    member = join(filled)
    with Child(hold) as child:
        child.hear()
        got = []
        waiter = threading.Thread(target=lambda: got.append(member.get(WAIT)))
        waiter.start()
        child.kill()
        waiter.join(WAIT)
    assert [(got[0].payload, got[0].attempts)] == [(b"0", 2)]
    rest = everything(member)
    assert payloads(rest) == [b"%d" % i for i in range(2, 10)]
    assert {message.attempts for message in rest} == {2}


def test_a_member_that_never_sleeps_finds_the_dead_too(filled):
    """Without a watcher: the next get of somebody who works does it."""

    def hold(say):
        join(filled).get_many(5, 0)
        hold_until_killed(say)

    member = join(filled)
    with Child(hold) as child:
        child.hear()
        child.kill()
    found = []

    def whole():
        found.extend(payloads(everything(member)))
        return len(found) == 10

    until(whole, WAIT)
    assert sorted(found) == [b"%d" % i for i in range(10)]


def test_exec_ends_a_membership(filled):
    """The process lives on as another program; its seat's lock went with the exec."""

    def run(say):
        join(filled).get(0)
        say("ready")
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])

    member = join(filled)
    with Child(run) as child:
        child.hear()
        until(lambda: b"0" in payloads(everything(member)), WAIT)


def test_a_held_message_of_the_last_member_comes_to_the_next(filled):
    """Nobody was there when it died: whoever joins later has it."""

    def hold(say):
        join(filled).get_many(3, 0)
        hold_until_killed(say)

    with Child(hold) as child:
        child.hear()
        child.kill()
    member = join(filled)
    assert payloads(everything(member))[:3] == [b"0", b"1", b"2"]


def test_a_parked_message_of_a_dead_member_comes_back(queue):
    """It was handed out of the side table when its holder died."""
    queue.put(b"x")

    def hold(say):
        member = join(queue)
        member.get(0).nack()
        member.get(0)
        hold_until_killed(say)

    with Child(hold) as child:
        child.hear()
        child.kill()
    again = join(queue).get(WAIT)
    assert (again.payload, again.attempts) == (b"x", 3)


def test_a_forked_child_becomes_a_member_of_its_own(filled):
    """What the parent holds is the parent's."""
    member = join(filled)
    message = member.get(0)

    def work():
        with pytest.raises(shmq.Forked):
            message.ack()
        return member.get(0).payload.decode()

    assert in_child(work) == "1"
    message.ack()
    assert payloads(everything(member))[0] == b"1"


def test_close_gives_back_and_ends_a_waiting_get(filled):
    """Of this member only."""
    a, b = join(filled), join(filled)
    a.get_many(2, 0)
    everything(b)
    ended = []

    def wait():
        try:
            while True:
                a.get(WAIT)
        except shmq.Closed:
            ended.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    a.close()
    waiter.join(WAIT)
    assert ended
    assert {b"0", b"1"} <= set(payloads(everything(b)))


@pytest.mark.parametrize("payloads", [False, True])
@pytest.mark.usefixtures("uncollected")
def test_a_get_that_is_interrupted_gives_back(filled, monkeypatch, payloads):
    """Ctrl-C between the claim and the hand-out: nobody was handed the messages, so they come again."""
    member = join(filled)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(member._handing), "_fresh", interrupt)
        with pytest.raises(KeyboardInterrupt):
            member.take_many(4, 0) if payloads else member.get_many(4, 0)
    assert sorted([message.payload for message in everything(member)]) == [b"%d" % i for i in range(10)]


# ---------------------------------------------------------------- options
def test_a_contradicting_member_is_refused(queue):
    """The options are those the group was made with; leaving them out is no contradiction."""
    join(queue, lease=5.0, max_attempts=3)
    join(queue)
    for contradiction in ({"lease": 6.0}, {"max_attempts": 4}, {"ack": "auto"}):
        with pytest.raises(shmq.Mismatch, match="was made with"):
            join(queue, **contradiction)
    with pytest.raises(shmq.Mismatch, match="it is a group"):
        queue.consumer("g", ack="explicit")
    queue.consumer("plain")
    with pytest.raises(shmq.Mismatch, match="without group=True"):
        join(queue, "plain", ack="auto")


@pytest.mark.parametrize(
    "options", [{"lease": 0}, {"lease": "x"}, {"max_attempts": 0}, {"dead_letter": 5}, {"ack": "never"}]
)
def test_options_that_mean_nothing_are_refused(queue, options):
    """Before anything is made."""
    with pytest.raises((ValueError, TypeError)):
        join(queue, **options)
    assert queue.consumers() == {}


def test_a_group_option_without_group_is_refused(queue):
    """One process alone has no use for it."""
    with pytest.raises(TypeError, match="group=True"):
        queue.consumer("c", lease=5.0)


# ---------------------------------------------------------------- the window
def test_the_window_bounds_what_is_in_flight(queue):
    """
    At its edge nothing more is handed out at once, and it says so; an ack makes room, and wakes who waits for it.

    Who holds it all asks: to a member that holds little the window gives way, where its head does not move for 2 ms.
    """
    put_numbers(queue, 100)
    holder = join(queue, window=64)
    held = everything(holder)
    assert len(held) == 64
    with pytest.raises(shmq.Empty, match="its window is full, 64 of 64"):
        holder.get(0)
    got = []
    waiter = threading.Thread(target=lambda: got.append(holder.get(WAIT)))
    waiter.start()
    until(lambda: queue.consumers()["g"].group.full)
    held[0].ack()
    waiter.join(WAIT)
    assert payloads(got) == [b"64"]


def test_one_message_held_for_long_does_not_stop_the_others(queue):
    """Its holder still owns it, outside the window, and can acknowledge it in the end."""
    slow, quick = join(queue, window=64), join(queue)
    put_numbers(queue, 1)
    held = slow.get(0)
    put_numbers(queue, 1000, 1)
    found = []
    while len(found) < 1000:
        messages = quick.get_many(16, WAIT)
        found += payloads(messages)
        quick.ack(*messages)
    assert found == [b"%d" % i for i in range(1, 1001)]
    assert quick.head == 1001
    held.ack()
    slow.close()
    with pytest.raises(shmq.Empty):
        quick.get(0)


def test_a_message_that_was_parked_for_its_holder_comes_back_when_he_dies(queue):
    """As one in the window would."""
    put_numbers(queue, 1)

    def hold(say):
        held = join(queue, window=64).get(0)
        hold_until_killed(say)
        del held

    with Child(hold) as child:
        child.hear()
        quick = join(queue)
        put_numbers(queue, 200, 1)
        done = 0
        while done < 200:
            messages = quick.get_many(16, WAIT)
            quick.ack(*messages)
            done += len(messages)
        child.kill()
    again = quick.get(WAIT)
    assert (again.payload, again.attempts) == (b"0", 2)


@pytest.mark.parametrize("end", ["ack", "ack many", "extend", "nack", "reject", "close"])
def test_a_message_parked_where_its_holder_has_not_mapped_the_table_is_still_his(queue, monkeypatch, end):
    """The side table may have grown since it looked last, and what is parked for it may lie in what came."""
    monkeypatch.setattr(_native, "SIDE_BLOCKS", 1)
    entries, more, mine = 511, 100, 2
    holder, other = join(queue, window=64), join(queue)
    put_numbers(queue, entries)
    for _ in range(entries):
        other.get(0).nack(delay=3600)
    put_numbers(queue, more + mine, entries)
    held = holder.get_many(mine, 0)
    for _ in range(more):
        other.get(0).nack(delay=3600)
    assert other.head == entries + mine + more
    if end == "ack many":
        holder.ack(*held)
    elif end == "close":
        holder.close()
        other.ack(*other.get_many(mine, WAIT))
    else:
        for message in held:
            getattr(message, end)(*([60] if end == "extend" else []))
    figures = queue.consumers()["g"].group
    assert figures.pending == (mine if end == "extend" else 0)
    assert figures.parked == entries + more + (mine if end == "nack" else 0)


def test_padding_is_passed(queue):
    """Of aborted claims, at the head and behind."""
    member = join(queue, window=64)
    for i in range(300):
        if i % 3:
            queue.reserve(8).abort()
        else:
            queue.put(b"%d" % i)
    found = []
    for message in everything(member, 1):
        found.append(message.payload)
        message.ack()
    while len(found) < 100:
        message = member.get(0)
        found.append(message.payload)
        message.ack()
    assert found == [b"%d" % i for i in range(0, 300, 3)]
    assert member.lag <= 2


def test_a_group_far_behind_catches_up(queue):
    """Over many chunks and many windows, with chunks going as it passes them."""
    member, other = join(queue, window=64), join(queue)
    for first in range(0, 20000, 500):
        put_numbers(queue, 500, first)
    found = []
    while len(found) < 20000:
        for each in (member, other):
            try:
                messages = each.get_many(40, 0)
            except shmq.Empty:
                continue
            found += payloads(messages)
            each.ack(*messages)
    assert sorted(map(int, found)) == list(range(20000))
    assert member.lag == 0
    assert queue.first_index > 0, "chunks went"


def test_a_parked_message_keeps_its_chunk(queue):
    """Retention respects the lowest index that is still needed."""
    member = join(queue)
    queue.put(b"precious")
    member.get(0).nack(delay=3600)
    for first in range(0, 5000, 500):
        put_numbers(queue, 500, first)
        member.ack(*everything(member))
    assert queue.first_index == 0
    assert queue[0].payload == b"precious"


def test_dropping_a_group_frees_what_it_held(queue, path):
    """Its files too; not while somebody is in it."""
    member = join(queue)
    everybody = queue.consumer("other")
    for first in range(0, 5000, 500):
        put_numbers(queue, 500, first)
    assert len(everybody.take_many(5000, 0)) > 0
    while everybody.lag:
        everybody.take_many(5000, 0)
    with pytest.raises(shmq.Busy):
        queue.drop_consumer("g")
    member.close()
    assert queue.first_index == 0
    queue.drop_consumer("g")
    assert queue.first_index > 0
    assert [name for name in os.listdir(Path(path, "consumers")) if name.startswith("g.")] == []
    assert "g" not in queue.consumers()


# ---------------------------------------------------------------- ending, and after a power cut
def test_shutdown_waits_for_what_is_held(queue):
    """Drained means finished by everybody; then iteration ends."""
    put_numbers(queue, 2)
    a, b = join(queue), join(queue)
    held = a.get(0)
    b.get(0).ack()
    queue.shutdown()
    with pytest.raises(shmq.Empty):
        b.get(0)
    held.ack()
    assert list(b) == []


def test_a_new_boot_believes_the_snapshot_and_not_the_ring(filled, make, path):
    """What was done stays so, out of order too; what was not is handed out; the ring's own words are gone."""
    with join(filled) as member:
        messages = member.get_many(6, 0)
        for at in (0, 2, 5):
            messages[at].ack()
    filled.close()
    ring = Path(path, "consumers", "g.ring")
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    content[12288:20000] = b"\xaa" * 7712
    ring.write_bytes(content)
    with join(make(path)) as member:
        assert member.head == 1
        assert payloads(everything(member)) == [b"1", b"3", b"4", b"6", b"7", b"8", b"9"]


def test_what_was_parked_comes_again_after_a_power_cut(filled, make, path):
    """The head had passed it; its place in the side table is gone with the ring."""
    with join(filled) as member:
        first, *others = member.get_many(10, 0)
        first.nack(delay=3600)
        member.ack(*others)
        assert member.head == 10
    filled.close()
    ring = Path(path, "consumers", "g.ring")
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    ring.write_bytes(content)
    with join(make(path)) as member:
        assert payloads(everything(member)) == [b"0"]


def test_a_power_cut_forgets_acks_and_invents_none(filled, make, path):
    """With neither snapshot valid the group begins where it was made to begin."""
    with join(filled, start=3) as member:
        member.ack(*everything(member))
    filled.close()
    checkpoint, ring = (Path(path, "consumers", f"g.{ending}") for ending in ("checkpoint", "ring"))
    content = bytearray(checkpoint.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    checkpoint.write_bytes(content)
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    ring.write_bytes(content)
    with join(make(path)) as member:
        assert payloads(everything(member)) == [b"%d" % i for i in range(3, 10)]


@pytest.mark.parametrize("ending", ["ring", "group"])
@pytest.mark.parametrize("damage", ["missing", "short", "foreign", "newer"])
def test_damaged_files_are_said_and_not_believed(filled, ending, damage, path):
    """By name, and with the way out."""
    join(filled).close()
    file = Path(path, "consumers", f"g.{ending}")
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "short":
        file.write_bytes(content[:20])
    else:
        content[0 if damage == "foreign" else 12] ^= 0xFF
        file.write_bytes(content)
    with pytest.raises((shmq.Corrupt, shmq.BadFormat), match=rf"g\.{ending}"):
        join(filled)
    filled.drop_consumer("g")
    assert payloads(everything(join(filled))) == [b"%d" % i for i in range(10)]


def test_ten_idle_members_use_no_processor(path):
    """They sleep until there is something; counted in processor time, which a busy machine does not add to."""
    code = (
        "import os, sys, threading, time\nimport shmq\nq = shmq.open(sys.argv[1])\n"
        "members = [q.consumer('g', group=True) for _ in range(10)]\n"
        "def wait(m):\n    try:\n        m.get(2.0)\n    except shmq.Empty:\n        pass\n"
        "threads = [threading.Thread(target=wait, args=(m,)) for m in members]\n"
        "[t.start() for t in threads]\ntime.sleep(0.5)\nbefore = time.process_time()\n"
        "[t.join() for t in threads]\nprint(time.process_time() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, cwd="/", check=True
    )
    assert float(done.stdout) < 0.5


@pytest.mark.parametrize(
    "verb", [lambda m: m.nack(), lambda m: m.nack(delay=1), lambda m: m.reject("no"), lambda m: m.extend(1)]
)
def test_found_what_a_group_with_auto_acks_cannot_do_was_done_without_a_word(queue, verb):
    """A message that was to come again, or to go to the dead letters, was finished."""
    queue.put(b"x")
    with queue.consumer("auto", group=True) as member:
        message = member.get(timeout=0)
        with pytest.raises(shmq.Mismatch, match='made with ack="explicit"'):
            verb(message)
        message.ack()  # is finished anyway


# ---------------------------------------------------------------- what others have had
def so_many(member, count):
    """*count* messages, from as many chunks as they are in."""
    found = []
    while len(found) < count:
        found += member.get_many(count - len(found), 0)
    return found


def test_a_member_goes_over_what_others_have_had_without_reading_it(path):
    """It is found in the window: a chunk that is damaged there was good when the others read it."""
    with shmq.open(path) as queue:
        for number in range(5_000):
            queue.put(b"%d" % number)
        fast, slow = join(queue), join(queue)
        assert slow.get(0).payload == b"0"
        taken = so_many(fast, 3_000)
        damaged = 0
        for number, file in enumerate(chunk_files(path)):
            done = [each for each in words(path, number) if each.state == DONE]
            for each in done[3:5] if len(done) > 2_000 else []:  # a chunk that has an index
                patch(file, each.position, bytes(8))
                damaged += 1
        assert damaged > 0
        assert payloads(so_many(slow, 2)) == [b"3001", b"3002"]
        fast.ack(*taken)
        assert fast.get(0).payload == b"3003"


def test_what_is_given_back_behind_a_member_that_went_over_it_comes(queue):
    """In front of the one that gave it back, and of the one that went over it; and no message comes twice."""
    put_numbers(queue, 1_000)
    a, b = join(queue), join(queue)
    assert b.get(0).payload == b"0"
    of_a = so_many(a, 600)
    assert b.get(0).payload == b"601"
    for each in of_a[100:500:7]:
        each.nack()
    given_back = payloads(of_a[100:500:7])
    rest = payloads(everything(b))
    assert sorted(rest, key=int) == sorted(given_back + [b"%d" % i for i in range(602, 1000)], key=int)
    a.ack(*of_a[:100])


def test_members_that_go_over_each_other_have_each_message_once(queue):
    """Whatever they take at a time, and with messages that are not their time yet, or padding, in between."""
    members = [join(queue) for _ in range(4)]
    dice = random.Random(3)
    had, put = [], 0
    for _ in range(60):
        count = dice.randrange(1, 400)
        put_numbers(queue, count, first=put)
        put += count
        if dice.random() < 0.3:
            queue.put(b"%d" % put, delay=0.001)
            put += 1
        if dice.random() < 0.3:
            queue.reserve(20).abort()
        for member in dice.sample(members, dice.randrange(1, 5)):
            with contextlib.suppress(shmq.Empty):
                messages = member.get_many(dice.randrange(1, 300), timeout=0)
                had += payloads(messages)
                member.ack(*dice.sample(messages, len(messages)))
    until(lambda: had.extend(payloads(everything(members[0]))) or len(had) >= put)
    assert sorted(map(int, had)) == list(range(put))
