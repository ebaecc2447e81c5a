"""Members of a group in processes of their own: they share the shards out, join, leave and are killed."""

from __future__ import annotations

import collections
import contextlib
import signal
import sys

import pytest
from support import Child, in_child, until

import shmq

LONG = 20.0


def member(say, root, name, explicit=True, hold=0):
    """
    Say which shards it has whenever that changes, and what it has done: `+ SHARDS`, `= KEY NUMBER`.

    It acknowledges what it has done *hold* messages later; and all of it when nothing comes, for that may be because
    what it holds is of a shard that it is to give away.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # it leaves as who ends does
    had = None
    held = collections.deque()
    with root.consumer(name, group=True, ack="explicit" if explicit else "auto") as c:
        while True:
            if c.shards != had:
                had = c.shards
                say("+" + ",".join(map(str, had)))
            keep = hold
            try:
                held.append(c.get(timeout=0.05))
                done = held[-1]
                say(f"={done.key.decode()} {done.payload.decode()}")
            except shmq.Empty:
                keep = 0
            while len(held) > keep:
                held.popleft().ack()


class Member(Child):
    """A member that is listened to."""

    def __init__(self, root, name="g", **named):
        super().__init__(lambda say: member(say, root, name, **named))
        self.shards = ()
        self.done = []
        self.gone = False

    def end(self, number):
        """End it by a signal; what it had said is heard."""
        self.signal(number)
        with contextlib.suppress(AssertionError):  # that it has ended
            while True:
                self._hear_one()
        self.gone = True
        self.join()

    def listen(self):
        """What it has said by now."""
        while not self.gone and self.has_spoken():
            self._hear_one()

    def _hear_one(self):
        word = self.hear()
        if word[0] == "+":
            self.shards = tuple(int(each) for each in word[1:].split(",") if each)
        else:
            key, number = word[1:].split()
            self.done.append((key, int(number)))


def shares(members):
    """How many shards each has, the most first; their shards are each in one hand."""
    for each in members:
        each.listen()
    return sorted((len(each.shards) for each in members), reverse=True)


def hands(members):
    """Every shard that somebody says is its; what one has given up and another has may be told by both for a moment."""
    return sorted(shard for each in members for shard in each.shards)


def balanced(members, wanted):
    """Wait until it is so, and all shards are had."""
    until(lambda: shares(members) == wanted and hands(members) == list(range(4)), LONG)


def numbers(members):
    for each in members:
        each.listen()
    found = collections.defaultdict(set)
    for each in members:
        for key, number in each.done:
            found[key].add(number)
    return found


def feed(root, first, stop):
    for number in range(first, stop):
        root.put(b"%d" % number, key=b"%d" % (number % 11))


def all_there(members, stop):
    wanted = {str(key): set(range(key, stop, 11)) for key in range(11)}
    until(lambda: numbers(members) == wanted, LONG)


def in_order(member):
    """Of each key, from the first time it was handed out; a message that comes again after a death comes first."""
    seen = collections.defaultdict(list)
    for key, number in member.done:
        seen[key].append(number)
    return all(each == sorted(each) for each in seen.values())


# ---------------------------------------------------------------- joining, leaving, dying
def test_members_share_the_shards_out_as_they_come_and_go(root):
    """Evenly to one; who leaves and who is killed leaves them to the others."""
    with Member(root) as one:
        balanced([one], [4])
        with Member(root) as two:
            balanced([one, two], [2, 2])
            with Member(root) as three:
                balanced([one, two, three], [2, 1, 1])
                feed(root, 0, 110)
                all_there([one, two, three], 110)
                three.end(signal.SIGKILL)
                balanced([one, two], [2, 2])
            two.end(signal.SIGTERM)
            balanced([one], [4])
        feed(root, 110, 220)
        all_there([one, two, three], 220)
        assert all(in_order(each) for each in (one, two, three))


def test_nothing_is_lost_when_members_are_killed_at_work(root):
    """Again and again, with messages in their hands; each key stays in order in each hand."""
    everybody = [Member(root, hold=3), Member(root, hold=3)]
    try:
        for round_ in range(6):
            feed(root, round_ * 110, round_ * 110 + 110)
            until(lambda: shares(everybody[-2:]) == [2, 2], LONG)
            everybody[-2].end(signal.SIGKILL)
            everybody.append(Member(root, hold=3))
        everybody.append(Member(root))
        for each in everybody[-3:-1]:
            each.end(signal.SIGKILL)
        all_there(everybody, 660)
        assert all(in_order(each) for each in everybody)
    finally:
        for each in everybody:
            each.__exit__()


def test_a_shard_has_one_owner_at_a_time(root):
    """What was handed out before is acknowledged before another member has the shard: nothing comes twice."""
    with Member(root, hold=2) as one:
        balanced([one], [4])
        feed(root, 0, 440)
        with Member(root, hold=2) as two, Member(root, hold=2) as three:
            feed(root, 440, 880)
            all_there([one, two, three], 880)
            every = [done for each in (one, two, three) for done in each.done]
            assert len(every) == len(set(every))


def test_who_gives_a_shard_away_first_finishes_what_it_has_of_it(root):
    """It hands out no more of it; the other member has it once the last message is acknowledged."""
    feed(root, 0, 44)
    with root.consumer("g", group=True) as c:
        held = [c.get(timeout=LONG) for _ in range(44)]
        assert c.pending == 44
        with Member(root) as other:
            until(other.has_spoken, LONG)  # it has a seat, and no shard
            tended(c)
            feed(root, 44, 88)
            count = 0
            with contextlib.suppress(shmq.Empty):
                while True:
                    c.get(timeout=0.1).ack()
                    count += 1
            assert 0 < count < 44
            assert shares([other]) == [0]
            assert len(c.shards) == 4
            c.ack(*held)
            while shares([other]) != [2]:
                with contextlib.suppress(shmq.Empty):
                    c.get(timeout=0.01).ack()
            assert len(c.shards) == 2


def test_more_members_than_shards_wait_for_a_turn(root):
    """And have one as soon as somebody goes."""
    with contextlib.ExitStack() as all_of_them:
        members = [all_of_them.enter_context(Member(root)) for _ in range(5)]
        balanced(members, [1, 1, 1, 1, 0])
        busy = next(each for each in members if each.shards)
        busy.end(signal.SIGKILL)
        members.remove(busy)
        balanced(members, [1, 1, 1, 1])


def test_a_stopped_member_keeps_its_shards_and_no_others(root):
    """Others go on; it has them when it goes on, too."""
    with Member(root) as one, Member(root) as two:
        balanced([one, two], [2, 2])
        one.signal(signal.SIGSTOP)
        feed(root, 0, 110)
        mine = {str(key) for key in range(11) if shmq.shards.shard_of(b"%d" % key, 2) in two.shards}
        until(lambda: set(numbers([two])) == mine, LONG)
        one.signal(signal.SIGCONT)
        all_there([one, two], 110)


def test_messages_that_are_done_when_handed_out_are_shared_likewise(root):
    """With ack="auto" nothing is waited for."""
    with Member(root, explicit=False) as one, Member(root, explicit=False) as two:
        balanced([one, two], [2, 2])
        feed(root, 0, 110)
        all_there([one, two], 110)


def test_a_forked_member_is_a_member_of_its_own(root):
    """It has what the parent gives away."""
    with root.consumer("g", group=True) as c:

        def work(say):
            with contextlib.suppress(shmq.Empty):
                c.get(timeout=0)
            say("in")
            say(c.get(timeout=LONG).payload.decode())

        with Child(work) as child:
            assert child.hear() == "in"
            until(lambda: (tended(c), len(c.shards))[1] == 2)
            other = next(number for number in range(4) if number not in c.shards)
            root.queues[other].put(b"yours")
            assert child.hear() == "yours"


def tended(consumer):
    with contextlib.suppress(shmq.Empty):
        consumer.get(timeout=0.01)


def test_a_group_ends_together(root):
    """Each member's loop, once everything is done, whoever did it."""
    feed(root, 0, 110)

    def work(say):
        with root.consumer("g", group=True) as c:
            say("in")
            count = 0
            for message in c:
                count += 1
                message.ack()
            say(count)

    with Child(work) as one, Child(work) as two:
        assert [one.hear(), two.hear()] == ["in", "in"]
        root.finish()
        assert int(one.hear()) + int(two.hear()) == 110


def test_two_that_hold_messages_do_not_wait_for_each_other(root):
    """Who acknowledges behind its loop comes to the end of it."""

    def work(say):
        with root.consumer("g", group=True) as c:
            until(lambda: (tended(c), len(c.shards))[1] == 2, LONG)
            say("in")
            held = [c.get(timeout=LONG)]
            say("holds")
            held += list(c)
            c.ack(*held)
            say("done")

    with Child(work) as one, Child(work) as two:
        assert [one.hear(), two.hear()] == ["in", "in"]
        feed(root, 0, 44)
        assert [one.hear(), two.hear()] == ["holds", "holds"]
        root.finish()
        assert [one.hear(), two.hear()] == ["done", "done"]


def test_a_name_that_is_one_handles_is_refused_where_a_group_has_it(root):
    with root.consumer("g", group=True):
        with pytest.raises(shmq.Busy):
            root.consumer("g")
        assert in_child(lambda: len(root.consumer("other", group=True).shards)) == "4"


def test_a_busy_member_notices_who_joins(root):
    """Though it never finds nothing."""
    with root.consumer("g", group=True) as c, Member(root) as other:
        until_noticed = iter(range(20_000))
        while shares([other]) != [2]:
            next(until_noticed)
            for number in c.shards:
                root.queues[number].put(b"0", key=b"k")
            c.get(timeout=LONG).ack()
        assert len(c.shards) == 2
