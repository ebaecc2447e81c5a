"""A member of a group, step by step: what it says, what it holds, what it gives back, and what it sets aside."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import re
import threading
import types

import pytest
from support import DEADLINE, Child, chunk_files, flip, hold_until_killed, in_child, make_unclean, patch, until, words

import shmq
from shmq import _native, errors, patience
from shmq.message import TOLD
from shmq.storage import acks, pins, space, warm
from shmq.taking import aside, dead, group, group_options

AGE = shmq.Retention.age(3600)


def whole(text):
    return f"^{re.escape(text)}$"


def join(queue, name="g", ack="explicit", **options):
    return queue.consumer(name, group=True, ack=ack, **options)


def put(queue, count, **given):
    for _ in range(count):
        queue.put(b"%d" % queue.next_index, **given)


def refused(kind, verb):
    with pytest.raises(kind) as caught:
        verb()
    return caught.value.args[0]


def retire_up_to(queue, chunks):
    """Take away so many chunks, as retention would: the first index that is left."""
    live, home = dict(queue._session.chain().names()), queue._session.home
    with home.admin():
        home.write_journal(home.read_journal()._replace(first_live=chunks, first_index=live[chunks]))
        queue._session.joined().control.raise_first_live(chunks)
    for sequence in range(min(live), chunks):
        home.drop_chunk(live[sequence], sequence)
    return live[chunks]


def noted(monkeypatch, kind, name, calls):
    """Have the arguments of each call of that method in *calls*."""
    real = getattr(kind, name)

    def call(self, *given):
        calls.append(given)
        return real(self, *given)

    monkeypatch.setattr(kind, name, call)


@pytest.fixture
def long(make):
    """A queue of four chunks, whose retention may take what nobody has finished."""
    queue = make(retention=AGE)
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    return queue


# ---------------------------------------------------------------- options
@pytest.mark.parametrize(("given", "kind", "said"), [
    ({"lease": 0}, ValueError, "lease"), ({"lease": -1}, ValueError, "lease"), ({"lease": "x"}, TypeError, "lease"),
    ({"max_attempts": 0}, ValueError, "max_attempts"), ({"max_attempts": 1 << 16}, ValueError, "max_attempts"),
    ({"max_attempts": 1.5}, TypeError, "max_attempts"), ({"ordered_by": 3}, TypeError, "ordered_by"),
    ({"ordered_by": "time"}, ValueError, "ordered_by='time': \"key\", or None for no order"),
    ({"dead_letter": 3}, TypeError, "dead_letter"), ({"expire_to": b"x"}, TypeError, "expire_to"),
])  # fmt: skip
def test_options_that_mean_nothing_are_refused_by_name(given, kind, said):
    with pytest.raises(kind, match=re.escape(said)):
        group_options.check_options(given)


def test_options_that_mean_something_are_taken_and_none_is_none():
    given = {"lease": 1, "max_attempts": (1 << 16) - 1, "ordered_by": "key", "dead_letter": "d", "expire_to": None}
    assert group_options.check_options(given) == {
        "lease": 1.0,
        "max_attempts": 65535,
        "ordered_by": "key",
        "dead_letter": "d",
    }
    assert group_options.check_options({"max_attempts": 1}) == {"max_attempts": 1}
    assert group_options.check_options({}) == {}


def test_an_order_and_a_lease_need_explicit_acks_and_say_why():
    said = 'ordered_by="key" needs ack="explicit": with "auto" a message is finished when it is handed out, and the '
    with pytest.raises(ValueError, match=whole(f"{said}next of its key would go to another worker at once")):
        group_options.check_order({"ordered_by": "key"}, explicit=False)
    group_options.check_order({"ordered_by": "key"}, explicit=True)
    group_options.check_order({}, explicit=False)
    said = 'lease= needs ack="explicit": with "auto" a message is finished when it is handed out, and nobody keeps it'
    with pytest.raises(ValueError, match=whole(said)):
        group_options.check_lease({"lease": 1.0}, explicit=False)
    group_options.check_lease({"lease": 1.0}, explicit=True)
    group_options.check_lease({}, explicit=False)


def test_a_window_is_a_power_of_two_in_bounds():
    assert [group_options.check_window(each) for each in (None, 64, 128, 65536)] == [None, 64, 128, 65536]
    for wrong in (63, 32, 65537, 131072):
        with pytest.raises(ValueError, match="window"):
            group_options.check_window(wrong)
    for wrong in (65, 96, 65535):
        with pytest.raises(ValueError, match=whole(f"window={wrong}: a power of two from 64 to 65536")):
            group_options.check_window(wrong)


def test_who_joins_otherwise_than_the_group_was_made_is_told_what_differs(queue):
    join(queue, max_attempts=3, window=128).close()
    said = (
        f"cannot open group 'g' of {queue.path} with %s: it was made with %s; leave the option out, or use another name"
    )
    for given, mine, theirs in (
        ({"max_attempts": 4}, "max_attempts=4", "max_attempts=3"),
        ({"lease": 2}, "lease=2", "lease=None"),
        ({"ack": "auto"}, "ack='auto'", "ack='explicit'"),
        ({"window": 64}, "window=64", "window=128"),
    ):
        assert refused(errors.Mismatch, lambda given=given: join(queue, **given)) == said % (mine, theirs)
    assert join(queue, ack=None, max_attempts=3, window=128).options["max_attempts"] == 3
    queue.consumer("c").close()
    said = f"cannot open consumer 'c' of {queue.path} as a group: it was made without group=True, for one process at a "
    assert refused(errors.Mismatch, lambda: join(queue, "c")) == f"{said}time; use another name"


def test_a_group_that_is_being_moved_is_busy(queue, monkeypatch):
    join(queue).close()
    monkeypatch.setattr(_native.Lock, "share", lambda self: False)
    monkeypatch.setattr(group.names, "patiently", lambda home, call: call())
    assert refused(errors.Busy, lambda: join(queue)) == f"group 'g' of {queue.path} is being dropped, renamed or moved"


def test_a_mark_of_what_was_dropped_that_lies_beyond_the_queue_is_corrupt(queue):
    put(queue, 5)
    member = join(queue)
    assert member._dropped("f", 5) == 5
    said = f"cannot open group 'g' of {queue.path}: f says that all before 6 is dropped, and the queue ends before 5"
    assert refused(errors.Corrupt, lambda: member._dropped("f", 6)) == said


def test_a_new_group_begins_where_it_is_told_but_behind_what_was_dropped_or_is_gone(make):
    for kind, expected in ((shmq.Retention.acked(), 3), (shmq.Retention.forever(), 0)):
        queue = make(f"{make().path}-{kind.kind}", retention=kind)
        put(queue, 6)
        session, control = queue._session, queue._session.joined().control
        access = types.SimpleNamespace(first_index=lambda: 3)
        assert [group_options.there(index, session.home, control, access) for index in (0, 5)] == [expected, 5]
        control.drop_for_all(4)
        assert [group_options.there(index, session.home, control, access) for index in (0, 5)] == [4, 5]


def test_a_name_that_was_dropped_leaves_no_hold_to_the_group_of_that_name(queue):
    queue.consumer("g", hold=True).close()
    os.unlink(f"{queue.path}/consumers/g.checkpoint")
    join(queue).close()
    assert pins.holds(queue._session.home, "g") is False


def test_what_a_group_was_made_with_is_all_there(queue):
    assert join(queue, "a", ack=None).options == {**group_options.DEFAULTS, "ack": "auto"}
    member = join(queue, lease=2, max_attempts=3)
    assert member.options == {**group_options.DEFAULTS, "lease": 2.0, "max_attempts": 3, "ack": "explicit"}
    assert (member.ack_mode, member._aside.lease_ns) == ("explicit", 2_000_000_000)
    assert member._ring.figures().window == 65536
    assert join(queue, "forever", lease=1e12)._aside.lease_ns == 10**18


# ---------------------------------------------------------------- what it says when there is nothing
def test_who_gets_nothing_is_told_whether_it_waits_for_itself(queue):
    nothing = f"nothing to get from {queue.path} in time"
    in_group = f"nothing to get from group 'g' of {queue.path} in time"
    member = join(queue, window=64)
    assert refused(errors.Empty, lambda: member.get(0)) == nothing
    put(queue, 70)
    other = join(queue, window=64)
    member.get_many(40, 0)
    other.get_many(24, 0)
    full = f"{in_group}: its window is full, 64 of 64 messages are handed out and not acknowledged"
    assert refused(errors.Empty, lambda: member.get(0)) == f"{full}; this consumer holds 40 itself"


def test_who_holds_nothing_is_told_only_that_the_window_is_full(queue):
    """It gives way to such a member after 2 ms, which one look of one stopped process may take: not of every group."""
    put(queue, 70)
    said = set()
    for name in ("a", "b", "c", "d", "e"):
        member, stranger = join(queue, name, window=64), join(queue, name, window=64)
        member.get_many(64, 0)
        with contextlib.suppress(pytest.fail.Exception):
            said.add(refused(errors.Empty, lambda stranger=stranger: stranger.get(0)))
    full = "its window is full, 64 of 64 messages are handed out and not acknowledged"
    assert said
    assert said <= {f"nothing to get from group '{name}' of {queue.path} in time: {full}" for name in "abcde"}


def test_who_gets_nothing_of_a_group_in_order_is_told_what_waits_for_its_key(queue):
    in_group = f"nothing to get from group 'g' of {queue.path} in time"
    member = join(queue, ordered_by="key", window=64)
    assert refused(errors.Empty, lambda: member.get(0)) == f"nothing to get from {queue.path} in time"
    put(queue, 5, key=b"k")
    member.get(0)
    waits = "4 wait for their keys, until those before them are finished"
    assert refused(errors.Empty, lambda: member.get(0)) == f"{in_group}: {waits}; this consumer holds 1 itself"
    assert refused(errors.Empty, lambda: join(queue).get(0)) == f"{in_group}: {waits}"


def test_a_claim_in_the_way_is_named_as_for_a_name_alone(queue):
    member, slot = join(queue), queue.reserve(1)
    said = refused(errors.Empty, lambda: member.get(0))
    assert said.startswith(
        f"nothing to get from {queue.path} in time: the next message is claimed by process {os.getpid()} ("
    )
    assert said.endswith("), and not committed; `shmq why` says more")
    slot.abort()


def test_a_member_says_what_it_is_and_how_it_ended(queue):
    put(queue, 3)
    member = join(queue)
    assert repr(member) == f"<shmq.GroupConsumer 'g' of {queue.place} (ack=explicit, head 0, holds 0)>"
    member.get(0).ack()
    message = member.get(0)
    assert repr(member).endswith("(ack=explicit, head 1, holds 1)>")
    queue.shutdown()
    member.get(0).ack()
    over = f"{queue.path} was shut down, and group 'g' has drained it"
    assert (
        refused(errors.ShutDown, lambda: member.get(0)) == f"{over}, but for 1 messages that this consumer holds itself"
    )
    message.ack()
    assert refused(errors.ShutDown, lambda: member.get(0)) == over
    queue.shutdown(immediate=True)
    said = f"{queue.path} was shut down at once; what is left in it stays there"
    assert refused(errors.ShutDown, lambda: member.get(0)) == said
    member.close()
    assert repr(member).endswith("(closed)>")
    assert refused(errors.Closed, lambda: member.get(0)) == f"group consumer 'g' of {queue.path} was closed"
    assert str(member._ended()) == f"group consumer 'g' of {queue.path} was closed"


# ---------------------------------------------------------------- what it refuses
VERBS = {
    "acknowledge": lambda message: message.ack(),
    "give back": lambda message: message.nack(),
    "reject": lambda message: message.reject(),
    "keep": lambda message: message.extend(5),
}


@pytest.mark.parametrize("what", VERBS)
def test_a_message_that_is_somebody_elses_is_refused_in_words(queue, what):
    put(queue, 3)
    member, verb = join(queue), VERBS[what]
    message = member.get(0)

    def child():
        return refused(errors.Forked, lambda: verb(message))

    said = f"cannot {what} message 0 of {queue.path}: it was handed to the parent process {os.getpid()}"
    assert in_child(child) == said
    member._account.held.drop(message)
    lost = f"cannot {what} message 0 of {queue.path}: it was handed out again meanwhile, or given back"
    assert refused(errors.LeaseLost, lambda: verb(message)) == lost
    member._account.held.add(message)
    member.close()
    said = f"cannot {what} message 0: group consumer 'g' of {queue.path} was closed, and the message comes again"
    assert refused(errors.Closed, lambda: verb(message)) == said


@pytest.mark.parametrize("what", VERBS)
def test_what_is_finished_by_being_handed_out_can_only_be_acknowledged(queue, what):
    put(queue, 1)
    message = join(queue, ack="auto").get(0)
    if what == "acknowledge":
        message.ack()
        return
    said = (
        f"cannot {what} message 0 of {queue.path}: group 'g' acknowledges what it hands out (ack=\"auto\"), so it is "
        'finished; a group that may have it again is made with ack="explicit"'
    )
    assert refused(errors.Mismatch, lambda: VERBS[what](message)) == said


@pytest.mark.parametrize("first", ["acknowledge", "give back", "reject"])
@pytest.mark.parametrize("what", VERBS)
def test_what_its_holder_has_ended_stays_as_it_is(queue, first, what):
    put(queue, 1)
    member = join(queue)
    message = member.get(0)
    VERBS[first](message)
    assert member.pending == 0
    VERBS[what](message)
    found = member.get_many(5, 0) if first == "give back" else []
    assert [each.attempts for each in found] == [2] * len(found)
    if first != "give back":
        assert refused(errors.Empty, lambda: member.get(0))
        assert member.lag == 0


def test_found_why_a_message_was_lost_was_what_a_finalizer_had_said(queue, monkeypatch):
    """What died on the way closed a group, whose snapshot was looked for: "a snapshot fails its checksum"."""
    put(queue, 1)
    member = join(queue)
    message = member.get(0)
    thief = _native.taken_array(1)
    thief[0] = _native.taken_of(message)[0]
    assert member._ring.ack(thief) == 0
    over = _native.over

    def dies(*given):
        over(*given)
        assert _native.check_snapshot(bytes(_native.SNAPSHOT_BYTES)) is None

    monkeypatch.setattr(_native, "over", dies)
    said = f"cannot acknowledge message 0 of {queue.path}: message 0 was given to somebody else meanwhile, or finished"
    assert refused(errors.LeaseLost, lambda: member._account.finish([message])) == said


@pytest.mark.parametrize("by_python", [False, True])
def test_of_several_some_of_which_are_lost_the_others_are_acknowledged(queue, by_python):
    put(queue, 5)
    member = join(queue)
    messages = member.get_many(3, 0)
    thief = _native.taken_array(1)
    thief[0] = _native.taken_of(messages[1])[0]
    assert member._ring.ack(thief) == 0  # as if it had been given to somebody else, who finished it
    if by_python:
        member._stop()
    said = f"cannot acknowledge message 1 of {queue.path}: message 1 was given to somebody else meanwhile, or finished"
    assert refused(errors.LeaseLost, lambda: member.ack(*messages)) == said
    assert [_native.is_over(message) for message in messages] == [True, False, True]
    assert member.pending == 0
    assert [each.index for each in member.get_many(9, 0)] == [3, 4]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_any_number_is_acknowledged_in_any_order_and_twice(queue, count):
    put(queue, count + 1)
    member = join(queue)
    messages = member.get_many(count, 0)
    while len(messages) < count:
        messages += member.get_many(count - len(messages), 0)
    random.Random(count).shuffle(messages)
    member.ack(*messages, *messages[:3])
    assert (member.pending, member.head) == (0, count)
    member.ack(*messages)
    messages[0].nack()  # it has been ended
    assert [each.index for each in member.get_many(9, 0)] == [count]


def test_nothing_else_is_acknowledged(queue):
    put(queue, 3)
    member = join(queue)
    messages = member.get_many(2, 0)
    for other in (messages, None, messages[0].index):
        with pytest.raises(TypeError, match="a message that this consumer was handed"):
            member.ack(messages[0], other)
        assert member.pending == 2
    with pytest.raises(TypeError, match="message 0 was handed out by nobody who has to acknowledge it"):
        member.ack(messages[0], queue[0])
    assert member.pending == 2


def test_a_member_acknowledges_what_another_was_handed(queue):
    put(queue, 2)
    one, other = join(queue), join(queue)
    mine, its = one.get(0), other.get(0)
    one.ack(mine, its)
    assert (one.pending, other.pending, one.head) == (0, 0, 2)


def test_what_nobody_holds_any_more_stays_held_and_comes_again_at_the_close(queue):
    """Also when its index was handed out anew meanwhile."""
    put(queue, 100)
    with join(queue) as member:
        for _ in range(100):
            member.get(0)
        assert (member.pending, member.head) == (100, 0)
    with join(queue) as member:
        again = member.get_many(100, 0)
        assert sorted(each.index for each in again) == list(range(100))
        assert {each.attempts for each in again} == {2}
        thief = _native.taken_array(1)
        for message in again:
            thief[0] = _native.taken_of(message)[0]
            member._ring.give_back(thief)
        del again, message
        third = member.get_many(100, 0)
        assert (len(third), member.pending) == (100, 100)
        member.ack(*third)
        assert (member.pending, member.head) == (0, 100)


def test_a_dropped_member_is_closed_at_once_although_its_message_was_not_finished(queue):
    put(queue, 1)
    gc.disable()
    try:
        assert join(queue).get(0).attempts == 1
        assert join(queue).get(0).attempts == 2
    finally:
        gc.enable()


def test_what_was_retired_before_it_was_finished_is_told_so(long):
    member = join(long)
    messages = member.get_many(3, 0)
    first = retire_up_to(long, 1)
    member._walk.pass_retired(first)
    said = (
        f"cannot %s message %d of {long.path}: it was retired before it was finished (what comes before {first} has "
        f"gone, retention={AGE!r}); nobody else has it"
    )
    assert refused(errors.LeaseLost, lambda: member.ack(*messages)) == said % ("acknowledge", 2)
    assert member.pending == 0
    one = member.get(0)
    assert one.index == first
    second = retire_up_to(long, 2)
    member._walk.pass_retired(second)
    said = said.replace(f"before {first} has", f"before {second} has")
    assert refused(errors.LeaseLost, one.nack) == said % ("give back", first)


@pytest.mark.parametrize("count", [1, 2])
def test_what_would_come_again_and_was_retired_is_told_once_by_its_number(long, count):
    member = join(long)
    given_back = member.get_many(count, 0)
    for message in given_back:
        message.nack(delay=0.001)
    _, base = long._session.chain().names()[1]
    while member._walk.index() < base:
        message = member.get(0)
        if message.index > given_back[-1].index:
            message.ack()
        else:  # on a slow machine it is due before its chunk was passed
            message.nack(delay=0.001)
    first = retire_up_to(long, 1)
    which = "a message" if count == 1 else f"{count} messages"
    said = f"{which} of {long.path} would come again to group 'g', but what comes before {first} was retired; the next "
    told = []

    def get():
        try:
            return member.get(0).ack() or False
        except errors.Gone as gone:
            told.append((gone.args[0], gone.first_index))
            return True

    until(get)
    assert told == [(f"{said}get goes on", first)]
    assert member._ring.figures().retired == count


def test_what_is_retired_before_a_group_comes_to_it_is_told_once_to_all(long):
    a, b = join(long), join(long)
    a.get(0).ack()
    first = retire_up_to(long, 2)
    said = f"{first - 2} messages of {long.path} were retired before group 'g' had finished them; the next get goes on "
    told = []  # of the chunk that the first one has mapped, it still has one
    for member in (a, b, a, b):
        try:
            member.get(0).ack()
        except errors.Gone as gone:
            told.append((gone.args[0], gone.first_index))
    assert told == [(f"{said}at {first}", first)]
    assert a.get(0).index >= first


def test_where_only_finished_goes_a_group_just_goes_on(make):
    queue = make(retention=shmq.Retention.acked())
    while len(queue._session.chain().names()) < 3:
        queue.put(bytes(1000))
    member = join(queue)
    first = retire_up_to(queue, 1)
    assert member.get(0).index == first


# ---------------------------------------------------------------- getting
def test_no_more_than_a_thousand_come_at_once(make):
    queue = make(chunk_bytes=1 << 20)
    queue.put_many([b"x"] * 3000)
    member = join(queue)
    assert len(member.get_many(5000, 0)) == 1024
    assert len(member.take_many(5000, 0)) == 1024
    assert len(member.get_many(900, 0)) == 900
    for verb in (member.get_many, member.take_many):
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="limit"):
                verb(wrong, 0)


@pytest.mark.parametrize(("durability", "every"), [
    (shmq.Durability.PROCESS, 10.0), (shmq.Durability.SYNC, 1.0), (shmq.Durability.interval(3600), 1.0)
])  # fmt: skip
def test_a_snapshot_is_taken_when_its_time_has_come(make, monkeypatch, durability, every):
    queue = make(durability=durability)
    put(queue, 3)
    clock, taken = [1000.0], []
    monkeypatch.setattr(group, "time", types.SimpleNamespace(monotonic=lambda: clock[0], time_ns=group.time.time_ns))
    path = queue.path  # members that others left as garbage take one as they go
    monkeypatch.setattr(acks, "of_member", lambda *given: given[0].path == path and taken.append(given))
    member = join(queue)
    member._stop()  # the built-ins have a clock of their own, and come by when it is time
    assert (member._snapshot_every, member._snapshot_at) == (every, 1000.0 + every)
    member.get(0)
    clock[0] += every - 0.001
    member.get(0)
    assert taken == []
    clock[0] += 0.001
    member.get(0)
    assert taken == [(queue._session.home, queue._session.joined().member, "g", member._checkpoint, member._ring)]
    assert member._snapshot_at == clock[0] + every
    member.close()
    assert len(taken) == 2


def test_a_snapshot_that_cannot_be_taken_stops_nobody(queue, monkeypatch):
    member = join(queue)
    for problem in (OSError(5, "no"), errors.NotFound("gone")):

        def refuse(*_, problem=problem):
            raise problem

        monkeypatch.setattr(acks, "of_member", refuse)
        member._snapshot()
    put(queue, 1)
    assert member.get(0).index == 0


class Weighs:
    """A message of so many bytes."""

    def __init__(self, weight):
        self.weight = weight


@pytest.mark.parametrize(("limit", "most", "given", "asked"), [
    (1, 1000, [], []), (5000, 100, [], []), (5000, 101, [[100]], [1]), (2, 10**9, [[100]], [1]),
    (5000, 10**9, [[100], [100]], [1024, 1024, 1024]), (5000, 8 * 100 * 7 + 100, [[100], []], [7, 6]),
    (5000, 100 + 8 * 400 * 4, [[400], []], [16, 3]), (3, 10**9, [[1, 1]], [2]),
])  # fmt: skip
def test_more_is_gathered_for_a_batch_as_far_as_its_bytes_go(queue, monkeypatch, limit, most, given, asked):
    member = join(queue)
    answers, limits = [[Weighs(each) for each in part] for part in given] + [[]], []

    def look(batches, some, spins, *, idle, payloads):
        assert (spins, idle, payloads) == (0, False, False)
        limits.append(some)
        return answers.pop(0), None

    monkeypatch.setattr(member, "_look", look)
    messages = [Weighs(100)]
    member._gather(messages, limit, most)
    assert limits == asked
    assert [each.weight for each in messages] == [100, *(each for part in given for each in part)]


def test_a_wait_sleeps_until_what_is_due_or_the_deadline_and_spins_unless_it_must_not(queue, monkeypatch):
    member = join(queue)
    looks, slept = [], []
    monkeypatch.setattr(queue._session.joined(), "sleep", lambda seen, deadline: slept.append(deadline))
    answers = [([], None), ([], None), ([], None), ([], 99), (["m"], None)]

    def look(batches, limit, spins, *, idle, payloads):
        looks.append((limit, spins, idle))
        return answers.pop(0)

    monkeypatch.setattr(member, "_look", look)
    monkeypatch.setattr(group, "sooner", lambda deadline, due: (deadline, due))
    assert member._wait([], 3, None, payloads=False) == ["m"]
    assert looks == [
        (3, patience.SPINS, False),
        (3, 0, True),
        (3, patience.SPINS, False),
        (3, 0, True),
        (3, patience.SPINS, False),
    ]
    assert slept == [(_native.FOREVER, None), (_native.FOREVER, 99)]
    del looks[:]
    answers[:] = [([], None), ([], None)]
    with pytest.raises(errors.Empty):
        member._wait([], 1, 0, payloads=False)
    assert looks == [(1, 0, False), (1, 0, True)]


def test_a_peek_shows_what_a_get_would_have_and_passes_what_is_late_or_over(queue):
    member = join(queue)
    assert member.peek() is None
    queue.put(b"over", ttl=1e-9)
    queue.put(b"later", delay=3600)
    queue.reserve(1).abort()
    assert member.peek() is None
    queue.put(b"now")
    assert (member.peek().payload, member.peek().payload) == (b"now", b"now")
    assert member.get(0).payload == b"now"
    assert member.peek() is None


def test_what_came_back_without_a_limit_of_attempts_is_something(queue):
    put(queue, 1)
    member = join(queue)
    assert member._has_something() is True
    for attempt in (1, 2, 3):
        message = member.get(0)
        assert message.attempts == attempt
        assert member._has_something() is False
        message.nack()
        assert member._has_something() is True
    member.get(0).ack()
    assert member._has_something() is False


@pytest.mark.parametrize("most", [1, 2])
def test_what_was_handed_out_too_often_is_a_letter_and_not_something(queue, most):
    put(queue, 1)
    member = join(queue, max_attempts=most)
    for attempt in range(most):
        message = member.get(0)
        assert message.attempts == attempt + 1
        message.nack()
    assert member._has_something() is False
    assert refused(errors.Empty, lambda: member.get(0))
    with shmq.open(f"{queue.path}.g.dead", create=False) as letters:
        (letter,) = list(letters.reader())
        assert letter.headers["shmq.reason"] == f"it was handed out {most} times and never finished"
        assert (letter.headers["shmq.cause"], letter.headers["shmq.attempts"]) == ("attempts", most)
    assert member._ring.figures().moved == 1


def test_a_killed_holder_of_the_last_attempt_leaves_a_letter_with_as_many_attempts_as_were_made(queue):
    put(queue, 2)
    join(queue, max_attempts=1).close()

    def die(say):
        with join(queue) as holder:
            holder.get(0)
            hold_until_killed(say)

    with Child(die) as child:
        assert child.hear() == "ready"
        child.kill()
    member = join(queue)
    assert member.get(DEADLINE).index == 1
    until(lambda: os.path.exists(f"{queue.path}.g.dead/queue.shmq"))
    with shmq.open(f"{queue.path}.g.dead", create=False) as letters:
        until(lambda: len(letters) == 1)
        (letter,) = list(letters.reader())
        assert letter.headers["shmq.attempts"] == 1


# ---------------------------------------------------------------- finishing
def test_a_nack_goes_behind_what_is_there_or_waits_its_time(queue, monkeypatch):
    put(queue, 3)
    member = join(queue)
    asked = []
    noted(monkeypatch, type(member._ring), "nack", asked)
    monkeypatch.setattr(_native, "boottime_ns", lambda: 10**15)
    member.get(0).nack()
    assert asked[0][1:] == (0, 3)
    member.get(0).nack(delay=1.5)
    assert asked[1][1:] == (10**15 + 1_500_000_000, 0)
    member.get(0).nack(delay=1e15)
    assert asked[2][1:] == (10**15 + 10**18, 0)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="delay"):
            member._aside.nack(None, wrong)


def test_a_message_is_kept_for_so_long_from_now(queue, monkeypatch):
    put(queue, 1)
    member = join(queue, lease=60)
    asked = []
    noted(monkeypatch, type(member._ring), "extend_lease", asked)
    monkeypatch.setattr(_native, "boottime_ns", lambda: 10**15)
    message = member.get(0)
    message.extend(2.5)
    message.extend(1e15)
    assert [ends for _, ends in asked] == [10**15 + 2_500_000_000, 10**15 + 10**18]
    assert member.pending == 1
    message.ack()
    assert member.pending == 0


def test_messages_are_skipped_within_the_window_and_each_answer_is_told(queue):
    put(queue, 200)
    member = join(queue, window=64)
    held = member.get(0)
    assert member.skip() == group.Skipped(0, ())
    assert member.skip(1, 2, 0) == group.Skipped(2, (0,))
    assert member.skip(63) == group.Skipped(1, ())
    said = f"cannot skip index 64 for group 'g' of {queue.path}: its window ends at 64"
    assert refused(errors.TooMany, lambda: member.skip(3, 64)) == said
    said = f"cannot skip index 200 of {queue.path}: the next one is 200"
    assert refused(ValueError, lambda: member.skip(3, 200)) == said
    with pytest.raises(ValueError, match="index"):
        member.skip(-1)
    held.ack()
    assert member.head == 3
    assert member.get(0).index == 3
    assert member.skip(64) == group.Skipped(1, ())


def test_a_group_is_moved_by_its_only_member_and_what_that_held_is_forgotten(queue, monkeypatch):
    put(queue, 6)
    member = join(queue)
    member.get_many(4, 0)
    called = []
    membership = queue._session.joined()
    recount = type(membership.control).recount
    monkeypatch.setattr(type(membership.control), "recount", lambda self: called.append("recount") or recount(self))
    monkeypatch.setattr(membership, "forget_retired", lambda: called.append("forget"))
    monkeypatch.setattr(space, "retire", lambda *given: called.append(given))
    for beyond in (7, -1):
        said = f"cannot seek to {beyond}: {queue.path} has indexes from 0 to 6"
        assert refused(IndexError, lambda beyond=beyond: member.seek(beyond)) == said
    other = join(queue)
    del called[:]
    said = f"cannot move group 'g' of {queue.path}: somebody else is in it"
    assert refused(errors.Busy, lambda: member.seek(1)) == said
    other.close()
    del called[:]
    member.seek(2)
    assert called == ["recount", "forget", (queue._session.home, member._walk.chain, membership.control)]
    assert (member.pending, member.head, member.lag) == (0, 2, 4)
    assert [each.index for each in member.get_many(9, 0)] == [2, 3, 4, 5]
    join(queue).close()  # the name is shared again
    member.seek(6)
    assert refused(errors.Empty, lambda: member.get(0))


def test_head_floor_lag_and_pending_say_where_a_group_stands(queue):
    put(queue, 6)
    member, other = join(queue), join(queue)
    messages = member.get_many(3, 0)
    assert (member.head, member.floor, member.lag, member.pending, other.pending) == (0, 0, 6, 3, 0)
    messages[1].ack()
    assert (member.head, member.floor, member.lag, member.pending) == (0, 0, 5, 2)
    messages[0].nack(delay=3600)
    assert (member.lag, member.pending) == (5, 1)
    messages[2].ack()
    assert member.floor == 0
    assert (member.lag, member.pending) == (4, 0)
    for message in other.get_many(3, 0):
        message.ack()
    assert (member.floor, member.lag) == (0, 1)


def test_a_member_that_leaves_gives_back_what_it_held(queue):
    put(queue, 4)
    member, other = join(queue), join(queue)
    held = member.get_many(3, 0)
    held[0].ack()
    other.get(0)
    member.close()
    member.close()
    assert [(each.index, each.attempts) for each in other.get_many(9, 0)] == [(1, 2), (2, 2)]
    assert member not in queue._session.joined().members_of("g").handles
    assert other in queue._session.joined().members_of("g").handles


def test_a_sync_group_has_its_acks_on_the_disk(make, monkeypatch):
    queue = make(durability=shmq.Durability.SYNC)
    put(queue, 6)
    member = join(queue)
    asked = []
    from shmq.durability import Syncer

    noted(monkeypatch, Syncer, "acknowledge", asked)
    member.get(0).ack()
    assert [name for name, _ in asked] == ["g"]
    member.ack(*member.get_many(2, 0))
    assert len(asked) == 2
    assert member._checkpoint.newest_snapshot().head == 3
    lost = member.get(0)
    member._account.held.clear()
    with pytest.raises(errors.LeaseLost):
        member.ack(lost)
    assert len(asked) == 3
    auto = join(queue, "auto", ack="auto")
    auto.take(0)
    assert len(asked) == 3


@pytest.mark.parametrize("verb", ["take", "take_many"])
def test_what_cannot_be_decoded_is_finished_where_all_is_that_is_handed_out(make, verb):
    queue = make(codec="json")
    with shmq.open(queue.path) as raw:
        dead._Raw(raw._session).put(b"{not json")
    member = join(queue, ack="auto")
    with pytest.raises(errors.Corrupt):
        member.take(0) if verb == "take" else member.take_many(5, 0)
    queue.put(2)
    assert member.take(0) == 2
    with pytest.raises(errors.Empty):
        member.get(0)
    assert (member.lag, member.pending) == (0, 0)


# ---------------------------------------------------------------- to other queues
def test_what_expired_and_goes_nowhere_is_finished_and_counted(queue):
    for ack in ("explicit", "auto"):
        member = join(queue, ack, ack)
        before = member._ring.figures()
        queue.put(b"x", ttl=1e-9)
        queue.put(b"y")
        assert member.get(0).payload == b"y"
        after = member._ring.figures()
        assert after.expired - before.expired == 1
        assert member.pending == (ack == "explicit")


def test_what_cannot_be_rejected_is_still_held_and_says_so(queue, monkeypatch):
    put(queue, 2)
    member = join(queue)
    message = member.get(0)
    moving = member._aside._moving

    def fail_with(problem):
        def carry_out(moves, outcomes):
            outcomes[0] = problem

        monkeypatch.setattr(moving, "carry_out", carry_out)

    still = "%s; message 0 of " + queue.path + " is not a dead letter yet, and this consumer still holds it: reject it "
    still += "again later, give it back or acknowledge it"
    for problem, words_of in ((errors.Full("no room"), "no room"), (errors.Full(), "")):
        fail_with(problem)
        assert refused(errors.Full, message.reject) == still % words_of
        assert (member.pending, member._aside.moves, _native.is_over(message)) == (1, [], False)
    fail_with(OSError(5, "broken"))
    with pytest.raises(OSError, match="broken"):
        message.reject()
    pending = errors.SyncPending("not yet", 7)
    fail_with(pending)
    said = (
        f"not yet; message 0 of {queue.path} is a dead letter now, and this consumer still holds it: reject it again, "
    )
    assert refused(errors.SyncPending, message.reject) == f"{said}which puts no second one"
    fail_with(errors.SyncFailed("refused before"))
    assert refused(errors.SyncFailed, message.reject) == still % "refused before"
    fail_with(None)
    message.reject()
    assert (member.pending, member._aside.moves, _native.is_over(message)) == (0, [], True)
    assert len(member._account.held) == 0
    assert member.get(0).index == 1


@pytest.mark.parametrize("verb", ["reject", "nack"])
def test_what_was_lost_before_it_could_be_moved_is_held_no_more(queue, monkeypatch, verb):
    put(queue, 1)
    member = join(queue, max_attempts=1)
    message = member.get(0)
    monkeypatch.setattr(type(member._ring), "moving", lambda self, taken: _native.LOST)
    what = {"reject": "reject", "nack": "give back"}[verb]
    with pytest.raises(errors.LeaseLost, match=re.escape(f"cannot {what} message 0 of {queue.path}")):
        getattr(message, verb)()
    assert (member.pending, member._aside.moves, _native.is_over(message)) == (0, [], False)


def test_what_could_not_be_moved_waits_a_second_or_as_long_as_its_queue_rests(queue, monkeypatch):
    put(queue, 4)
    member = join(queue, max_attempts=1)
    asked = []
    noted(monkeypatch, type(member._ring), "nack", asked)
    monkeypatch.setattr(_native, "boottime_ns", lambda: 10**15)
    full = {0: errors.Full("no room")}
    monkeypatch.setattr(member._aside._moving, "carry_out", lambda moves, outcomes: outcomes.update(full))
    monkeypatch.setattr(member._aside._moving, "warn", lambda: None)
    message = member.get(0)
    message.nack()
    assert [each[1:] for each in asked] == [(10**15 + 10**9, 0)]
    assert (member.pending, member._aside.moves, _native.is_over(message)) == (0, [], True)
    monkeypatch.setattr(member._aside._moving, "resting_ns", lambda cause: 5 * 10**9)
    second = member.get(0)
    second.nack()
    assert [each[1:] for each in asked[1:]] == [(10**15 + 5 * 10**9, 0)]
    assert (member.pending, member._aside.moves, _native.is_over(second)) == (0, [], True)
    monkeypatch.setattr(member._aside._moving, "resting_ns", lambda cause: 0)
    assert member._ring.figures().unmoved == 2


def test_what_is_set_aside_is_moved_by_a_thread_that_ends_when_nothing_is_left(queue, monkeypatch, tmp_path):
    member = join(queue, expire_to=str(tmp_path / "late"))
    pauses = []
    monkeypatch.setattr(aside, "_WAIT_SECONDS", 0.0)
    for turn in (1, 2):
        queue.put(b"over", ttl=1e-9)
        queue.put(b"now")
        with monkeypatch.context() as patched:
            patched.setattr(member._aside, "move_soon", lambda: pauses.append(len(member._aside)))
            found = member.get_many(5, 0)
        assert [message.payload for message in found] == [b"now"]
        assert pauses == [1] * turn
        assert member._aside._timer is None or member._aside._timer_over
        member._aside.move_soon()
        until(lambda: member._aside._timer_over)
        assert member._aside.moves == []
    with shmq.open(tmp_path / "late") as late:
        assert [(each.payload, each.headers["shmq.cause"]) for each in late.reader()] == [(b"over", "expired")] * 2
        reason = next(iter(late.reader())).headers["shmq.reason"]
        assert reason == "it was not handed out before its time to live had passed"
    member._aside.move_soon()
    assert member._aside._timer_over
    assert aside._WAIT_SECONDS == 0.0


def test_what_expires_while_it_is_held_is_moved_with_that_reason_when_it_comes_back(queue, tmp_path, monkeypatch):
    member = join(queue, expire_to=str(tmp_path / "late"))
    put(queue, 1)
    member.get(0).nack()
    monkeypatch.setitem(TOLD, "expired", lambda _: True)
    with pytest.raises(errors.Empty):
        member.get(0)
    assert (member.lag, member.pending) == (0, 0)
    with shmq.open(tmp_path / "late") as late:
        (letter,) = list(late.reader())
        assert letter.headers["shmq.reason"] == "it was not finished before its time to live had passed"


# ---------------------------------------------------------------- its walk
def test_a_member_that_has_passed_a_chunk_lets_it_go(long, monkeypatch):
    called = []
    member = join(long)
    membership = long._session.joined()
    monkeypatch.setattr(membership, "forget_retired", lambda: called.append("forget"))
    monkeypatch.setattr(warm, "settle", lambda: called.append("settle"))
    monkeypatch.setattr(space, "retire", lambda *given: called.append(given))
    floor = type(member._ring).floor
    monkeypatch.setattr(type(member._ring), "floor", lambda self: called.append("floor") or floor(self))
    _, base = long._session.chain().names()[1]
    while member._walk.index() < base:
        member.get(0).ack()
    del called[:]
    assert member.get(0).index == base
    assert called[-4:] == ["floor", "forget", "settle", (long._session.home, member._walk.chain, membership.control)]


@pytest.mark.parametrize("skip", [False, True])
def test_damage_is_told_or_passed_over_by_the_whole_group(long, skip):
    live = long._session.chain().names()
    flip(chunk_files(long.path)[1], words(long.path, 1)[3].position + 60)
    a, b = join(long, skip_corrupt=skip), join(long, skip_corrupt=skip)
    found = []
    while len(found) < live[1][1] + 3:
        found += [message.index for message in a.get_many(100, 0)]
    if not skip:
        for member in (a, b, a):
            with pytest.raises(errors.Corrupt, match=re.escape(long.path)):
                member.get(0)
        return
    for member in (b, a) * 50:
        try:
            found += [message.index for message in member.get_many(3, 0)]
        except errors.Empty:
            break
    assert sorted(found) == [index for index in range(long.next_index) if index != live[1][1] + 3]
    assert a.skipped + b.skipped >= 1
    assert a.skipped <= 1
    assert b.skipped <= 1


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_chunk_that_cannot_be_used_is_passed_over_by_a_group(long, which):
    live = long._session.chain().names()
    member = join(long, skip_corrupt=True)
    patch(chunk_files(long.path)[which], 16, bytes(8))
    found = []
    while True:
        try:
            found += [message.index for message in member.get_many(100, 0)]
        except errors.Empty:
            break
    lost = range(live[which][1], live[which + 1][1])
    assert found == [index for index in range(long.next_index) if index not in lost]
    assert member.skipped == len(lost)


@pytest.mark.parametrize("how", ["name", "group"])
def test_what_is_damaged_up_to_the_end_of_its_chunk_is_passed_over_and_counted(long, how):
    """Nothing whole is behind it there: the next chunk is where it goes on."""
    live = long._session.chain().names()
    consumer = join(long, skip_corrupt=True) if how == "group" else long.consumer("c", skip_corrupt=True)
    file, position = chunk_files(long.path)[1], words(long.path, 1)[3].position
    patch(file, position, b"\xff" * (file.stat().st_size - position))
    found = []
    while True:
        try:
            found += [message.index for message in consumer.get_many(100, 0)]
        except errors.Empty:
            break
    lost = range(live[1][1] + 3, live[2][1])
    assert found == [index for index in range(long.next_index) if index not in lost]
    assert consumer.skipped == len(lost)


def test_a_forked_child_is_a_member_of_its_own(queue):
    put(queue, 4)
    member = join(queue)
    member.get_many(2, 0)

    def child():
        found = member.get(0).index
        return found, member.pending, member.head, member.skipped

    assert in_child(child) == str((2, 1, 0, 0))
    assert member.pending == 2


def test_who_waits_in_another_thread_ends_with_a_close(queue):
    member, ended = join(queue), []

    def wait():
        ended.extend(message.index for message in member)
        ended.append("over")

    thread = threading.Thread(target=wait)
    thread.start()
    put(queue, 1)
    until(lambda: ended == [0])
    member.close()
    thread.join(DEADLINE)
    assert ended == [0, "over"]


def test_after_a_power_cut_a_delayed_message_waits_again(path):
    with shmq.open(path) as queue, join(queue) as member:
        queue.put(b"later", delay=3600)
        queue.put(b"now")
        member.get(0).ack()
        queue.sync()
    make_unclean(path)
    with shmq.open(path) as queue, join(queue) as member:
        with pytest.raises(errors.Empty):
            member.get(0)
        assert (member.lag, member.pending) == (1, 0)
