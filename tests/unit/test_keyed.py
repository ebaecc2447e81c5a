"""Groups with ordered_by="key": the messages of one key come in order, one at a time; other keys do not wait."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from support import Child, hold_until_killed, peek, until

import shmq

WAIT = 60
"""Seconds after which something that should happen at once is taken not to happen."""


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, ack="explicit", ordered_by="key", **options)


def put(queue, text):
    """A message for each word: "a1" has key a."""
    for word in text.split():
        queue.put(word.encode(), key=word[:1].encode())


def now(member, limit=1000):
    """What this member can have now, in one call."""
    try:
        return member.get_many(limit, timeout=0)
    except shmq.Empty:
        return []


def everything(member, limit=1000):
    """All there is for it, without finishing any."""
    found = []
    while messages := now(member, limit):
        found += messages
    return found


def words(messages):
    return " ".join(message.payload.decode() for message in messages)


def drain(members, count, seed=0):
    """Finish *count* messages by these members, at random: their payloads in the order of finishing."""
    chance, found, held = random.Random(seed), [], []
    deadline = time.monotonic() + WAIT
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        held += now(chance.choice(members), chance.choice((1, 3, 50)))
        chance.shuffle(held)
        while held and chance.random() < 0.8:
            message = held.pop()
            message.ack()
            found.append(message.payload)
    assert held == []
    return found


# ---------------------------------------------------------------- order
def test_one_of_a_key_at_a_time_and_in_order(queue):
    """The next of a key comes when the one before is finished, to whoever asks; other keys do not wait."""
    put(queue, "a1 a2 b1 a3 c1 b2")
    one, two = join(queue), join(queue)
    held = everything(one)
    assert words(held) == "a1 b1 c1"
    assert everything(two) == []
    held[1].ack()
    assert words(everything(two)) == "b2"
    held[0].ack()
    (second,) = everything(two)
    assert words([second]) == "a2"
    assert everything(one) == []
    second.ack()
    assert words(everything(one)) == "a3"


def test_get_and_get_many_never_hand_out_two_of_a_key(queue):
    """Nor do two threads of one process, nor one handle that asks twice."""
    put(queue, "a1 a2")
    member = join(queue)
    first = member.get(0)
    with pytest.raises(shmq.Empty):
        member.get(0)
    first.ack()
    assert member.get(0).payload == b"a2"


def test_an_empty_says_what_waits_for_its_key(queue):
    """And that whoever asks holds the one before it."""
    put(queue, "a1 a2 a3")
    one, two = join(queue), join(queue)
    held = one.get(0)
    with pytest.raises(shmq.Empty, match=r"2 wait for their keys.*; this consumer holds 1 itself"):
        one.get(0)
    with pytest.raises(shmq.Empty, match=r"2 wait for their keys, until those before them are finished$"):
        two.get(0)
    held.ack()
    assert words([two.get(WAIT)]) == "a2"


def test_messages_without_a_key_come_in_no_order(queue):
    """Each to whoever comes first, as in any group; an empty key is none."""
    queue.put_many([b"1", b"2", b"3"])
    queue.put(b"4", key=b"")
    put(queue, "a1 a2")
    one, two = join(queue), join(queue)
    assert words(everything(one)) == "1 2 3 4 a1"
    assert everything(two) == []


def test_take_finishes_so_one_key_flows(queue):
    """A key's whole backlog through one worker, one by one."""
    put(queue, " ".join(f"a{i}" for i in range(1000)))
    member, found = join(queue), []
    while len(found) < 1000:
        found += member.take_many(7, WAIT)
    assert found == [b"a%d" % i for i in range(1000)]
    assert (member.head, member.lag) == (1000, 0)


@pytest.mark.parametrize("window", [64, 65536])
def test_many_keys_through_many_members_keep_their_order(queue, window):
    """Random acks; each key's finishes ascend, in a small window too."""
    members = [join(queue, window=window) for _ in range(3)]
    chance, count = random.Random(5), 3000
    queue.put_many(
        [b"%d" % i for i in range(count)], keys=[b"%d" % int(chance.paretovariate(0.7)) for _ in range(count)]
    )
    keys = {message.payload: message.key for message in queue.reader()}
    last = {}
    for payload in drain(members, count):
        assert int(payload) > last.get(keys[payload], -1)
        last[keys[payload]] = int(payload)
    assert members[0].lag == 0
    assert queue.consumers()["g"].group.parked == 0


# ---------------------------------------------------------------- giving back
def test_nack_keeps_the_place_before_the_later_ones_of_its_key(queue):
    """Behind the messages of other keys, never behind its own."""
    put(queue, "a1 a2 b1 b2")
    member = join(queue)
    first = member.get(0)
    first.nack()
    found = everything(member, 1)
    assert words(found) == "b1 a1"
    assert found[1].attempts == 2
    for message in found:
        message.ack()
    assert sorted(words(everything(member)).split()) == ["a2", "b2"]


def test_nack_with_a_delay_holds_its_key_and_no_other(queue):
    """Until it is due; then it is the first of its key."""
    put(queue, "a1 a2 b1")
    member, other = join(queue), join(queue)
    began = time.monotonic()
    member.get(0).nack(delay=0.3)
    assert words(everything(other)) == "b1"
    again = other.get(WAIT)
    assert time.monotonic() - began > 0.299
    assert (again.payload, again.attempts) == (b"a1", 2)
    again.ack()
    assert other.get(0).payload == b"a2"


def test_a_delayed_message_is_before_the_later_ones_of_its_key(queue):
    """Put with a delay: its key waits for it, others do not."""
    began = time.monotonic()
    queue.put(b"a1", key=b"a", delay=0.3)
    put(queue, "a2 b1")
    member, other = join(queue), join(queue)
    assert words(everything(member)) == "b1"
    assert member.head == 1, "it is parked; what waits for it is not"
    first = other.get(WAIT)
    assert (first.payload, time.monotonic() - began > 0.299) == (b"a1", True)
    first.ack()
    assert member.get(WAIT).payload == b"a2"


def test_a_delayed_message_that_is_met_late_waits_for_its_key(queue):
    """Its time has come; the one before it is still out."""
    put(queue, "a1")
    queue.put(b"a2", key=b"a", delay=0.01)
    time.sleep(0.02)
    put(queue, "a3")
    member, other = join(queue), join(queue)
    first = member.get(0)
    assert (everything(member), everything(other)) == ([], [])
    first.ack()
    assert words(everything(other)) == "a2"
    assert everything(member) == []


def test_an_expired_message_lets_the_next_of_its_key_go(queue):
    """Dropped, or moved to another queue; also one that waited for its key meanwhile."""
    dropped, moved = join(queue), join(queue, "moved", expire_to="old")
    put(queue, "a1")
    held = [dropped.get(0), moved.get(0)]
    queue.put(b"a2", key=b"a", ttl=0.05)
    put(queue, "a3")
    assert everything(dropped) == everything(moved) == []
    until(lambda: queue[1].expired)
    for message in held:
        message.ack()
    for member in (dropped, moved):
        (last,) = everything(member)
        assert last.payload == b"a3"
        last.ack()
        assert (member.head, member.lag) == (3, 0)
    with shmq.open(str(Path(queue.path).parent / "old"), create=False) as old:
        assert words(old.reader()) == "a2"


def test_dead_letters_let_the_next_of_their_key_go(queue, path):
    """Rejected, and given up after so many attempts."""
    put(queue, "a1 a2 a3")
    member = join(queue, max_attempts=2)
    member.get(0).reject("bad")
    for _ in range(2):
        message = member.get(0)
        assert message.payload == b"a2"
        message.nack()
    assert words(everything(member)) == "a3"
    with shmq.open(f"{path}.g.dead", create=False) as dead:
        assert words(dead.reader()) == "a1 a2"


def test_a_lease_that_ends_gives_the_message_and_not_its_key_to_another(queue):
    """The slow one's ack is refused; the next of the key waits for the one who has it now."""
    put(queue, "a1 a2")
    slow, quick = join(queue, lease=0.02), join(queue)
    late, again = slow.get(0), quick.get(WAIT)
    assert (late.payload, again.payload, again.attempts) == (b"a1", b"a1", 2)
    again.extend(3600)
    with pytest.raises(shmq.LeaseLost):
        late.ack()
    assert everything(slow) == everything(quick) == []
    again.ack()
    assert slow.get(0).payload == b"a2"


def test_a_late_ack_does_not_free_the_key(queue):
    """It is refused, and whoever puts then does not find the key idle."""
    put(queue, "a1")
    slow, quick = join(queue, lease=0.02), join(queue)
    late, again = slow.get(0), quick.get(WAIT)
    again.extend(3600)
    with pytest.raises(shmq.LeaseLost):
        late.ack()
    put(queue, "a2")
    assert everything(slow) == everything(quick) == []
    again.ack()
    assert words(everything(slow)) == "a2"


def test_a_lease_that_ends_in_the_side_table_keeps_the_order(queue):
    """It was given back once, so it lies there."""
    put(queue, "a1 a2")
    slow, quick = join(queue, lease=0.02), join(queue)
    slow.get(0).nack()
    late, again = slow.get(WAIT), quick.get(WAIT)
    assert (again.payload, again.attempts) == (b"a1", 3)
    again.extend(3600)
    with pytest.raises(shmq.LeaseLost):
        late.ack()
    assert everything(slow) == []
    again.ack()
    assert quick.get(0).payload == b"a2"


def test_close_gives_the_key_to_the_next(queue):
    """What was held comes first."""
    put(queue, "a1 a2")
    one, two = join(queue), join(queue)
    one.get(0)
    assert everything(two) == []
    one.close()
    again = two.get(WAIT)
    assert (again.payload, again.attempts) == (b"a1", 2)


def test_who_sleeps_is_woken_when_a_key_becomes_free(queue):
    """By the ack of another member."""
    put(queue, "a1 a2")
    one, two = join(queue), join(queue)
    first, got = one.get(0), []
    assert everything(two) == []
    put(queue, "b1")  # which clears the mark that the look before has left
    one.take(0)
    waiter = threading.Thread(target=lambda: got.append(two.get(2 * WAIT).payload))
    waiter.start()
    until(lambda: peek(Path(queue.path, "control.shmq"), 128) & 0xFFFFFFFF == 1)  # it is about to sleep
    time.sleep(0.1)  # and most likely does; the test holds if it does not
    first.ack()
    waiter.join(WAIT)
    assert got == [b"a2"]


def test_shutdown_waits_for_what_waits_for_its_key(queue):
    """Drained means everything, in order."""
    put(queue, "a1 a2 a3")
    member, other = join(queue), join(queue)
    held = member.get(0)
    queue.shutdown()
    with pytest.raises(shmq.Empty):
        other.get(0)
    held.ack()
    found = []
    for message in other:
        found.append(message)
        message.ack()
    assert words(found) == "a2 a3"


# ---------------------------------------------------------------- death
def test_a_dead_members_keys_go_on_with_what_it_held(queue):
    """kill -9 while it holds one of each key, in the window and out of the side table."""
    put(queue, "a1 a2 b1 b2")

    def hold(say):
        member = join(queue)
        a = member.get(0)
        a.nack()
        assert len(everything(member)) == 2
        hold_until_killed(say)

    with Child(hold) as child:
        child.hear()
        member = join(queue)
        assert everything(member) == []
        child.kill()
    found = []
    while len(found) < 4:
        message = member.get(WAIT)
        found.append(message)
        message.ack()
    order = words(found).split()
    assert sorted(order) == ["a1", "a2", "b1", "b2"]
    assert order.index("a1") < order.index("a2")
    assert order.index("b1") < order.index("b2")


def test_a_key_whose_mover_died_goes_on(queue, path):
    """Killed between the mark and the copy: the copy is made, and the next of the key comes."""
    put(queue, "a1 a2")

    def die(say):
        from shmq.taking import dead

        dead.Mover.put = lambda *_, **__: hold_until_killed(say)
        join(queue).get(0).reject("bad")

    with Child(die) as child:
        child.hear()
        member = join(queue)
        assert everything(member) == []
        child.kill()
    assert member.get(WAIT).payload == b"a2"
    with shmq.open(f"{path}.g.dead", create=False) as dead:
        assert words(dead.reader()) == "a1"


def test_order_after_a_restart_of_everybody(queue, make, path):
    """Nobody is there for a while; what waited for its key goes on where it was."""
    put(queue, "a1 a2 b1 a3")
    with join(queue) as member:
        held = everything(member)
        assert words(held) == "a1 b1"
        held[0].ack()
    queue.close()
    with join(make(path)) as member:
        assert sorted(words(everything(member)).split()) == ["a2", "b1"]


def test_order_after_a_power_cut(queue, make, path):
    """The ring is gone, buckets and all; the snapshot says what was done."""
    put(queue, "a1 a2 b1 a3 b2")
    with join(queue) as member:
        held = everything(member)
        held[0].ack()
        (second,) = everything(member)
        second.nack(delay=3600)
        held[1].ack()
    queue.close()
    ring = Path(path, "consumers", "g.ring")
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    content[12288:] = b"\xaa" * (len(content) - 12288)
    ring.write_bytes(content)
    with join(make(path)) as member:
        assert words(everything(member)) == "a2 b2"


def test_what_was_done_outside_the_window_is_done_after_a_power_cut(queue, make, path):
    """Before and behind the head; else the message would come again behind the later ones of its key."""
    put(queue, "a1 b1 b2 c1")
    with join(queue) as member:
        a, b, c = everything(member)
        b.nack()
        c.ack()
        for _ in range(2):
            again = member.get(0)
            again.ack()
        assert again.payload == b"b2"
        a.nack(delay=3600)
    queue.close()
    ring = Path(path, "consumers", "g.ring")
    content = bytearray(ring.read_bytes())
    content[32:48] = b"of another boot."
    ring.write_bytes(content)
    with join(make(path)) as member:
        assert words(everything(member)) == "a1"


# ---------------------------------------------------------------- one slow key
def test_a_slow_key_does_not_stop_the_others(queue):
    """Its backlog waits outside the window, more than a new side table holds, and comes in order in the end."""
    slow, quick = join(queue, window=64), join(queue)
    put(queue, "s0")
    held = slow.get(0)
    count, found = 5000, []
    for i in range(1, count):
        queue.put_many([b"s%d" % i, b"o%d" % i], keys=[b"s", b"o%d" % (i % 50)])
    while len(found) < count - 1:
        messages = quick.get_many(16, WAIT)
        found += [message.payload for message in messages]
        quick.ack(*messages)
    assert {each[:1] for each in found} == {b"o"}
    assert queue.consumers()["g"].group.parked >= count - 100
    held.ack()
    assert drain([quick, slow], count - 1) == [b"s%d" % i for i in range(1, count)]
    assert quick.lag == 0


def test_a_lease_that_ends_on_what_waited_outside_the_window(queue):
    """It had no time of its own there, only its key; another gets it all the same."""
    put(queue, " ".join(f"s{i}" for i in range(200)))
    slow, quick = join(queue, window=64, lease=0.05), join(queue)
    first = slow.get(0)
    first.extend(3600)
    put(queue, "o1")
    assert quick.take(WAIT) == b"o1"
    assert queue.consumers()["g"].group.parked >= 190
    first.ack()
    late = slow.get(WAIT)
    again = quick.get(WAIT)
    assert (late.payload, again.payload, again.attempts) == (b"s1", b"s1", 2)


def test_a_window_full_of_waiting_messages_moves_without_another_call(queue):
    """Whoever sleeps at the edge looks again by itself."""
    slow, quick = join(queue, window=64), join(queue)
    put(queue, " ".join(f"s{i}" for i in range(500)))
    slow.get(0)
    put(queue, "o1")
    assert quick.get(WAIT).payload == b"o1"


# ---------------------------------------------------------------- options
def test_the_order_is_fixed_when_the_group_is_made(queue):
    """Who contradicts it is refused; who leaves it out is not."""
    join(queue)
    queue.consumer("g", group=True, ack="explicit")
    queue.consumer("free", group=True, ack="explicit")
    with pytest.raises(shmq.Mismatch, match="ordered_by='key'"):
        join(queue, "free")


@pytest.mark.parametrize("options", [{"ordered_by": "type"}, {"ordered_by": "key", "ack": "auto"}, {"ordered_by": 5}])
def test_orders_that_mean_nothing_are_refused(queue, options):
    """Before anything is made."""
    with pytest.raises((ValueError, TypeError), match="ordered_by"):
        queue.consumer("g", group=True, **{"ack": "explicit", **options})
    assert queue.consumers() == {}


def test_dropping_and_making_again_begins_anew(queue, path):
    """The buckets go with the ring."""
    put(queue, "a1 a2")
    member = join(queue)
    member.get(0)
    member.close()
    queue.drop_consumer("g")
    assert not list(Path(path, "consumers").glob("g.*"))
    assert words(everything(join(queue))) == "a1"
