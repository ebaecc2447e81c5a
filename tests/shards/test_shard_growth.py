"""From 2^n to 2^(n+1) shards on line: each key keeps its order, nothing is lost or doubled, a killed growth goes on."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import pickle
import signal

import pytest
from support import CHANGING, Child, killed_at, until

import shmq
from shmq.shards import growth, hold, read, shard_of
from shmq.shards import map as maps

LONG = 20.0
STEPS = CHANGING | {"replace"}


def feed(root, first, stop):
    for number in range(first, stop):
        root.put(b"%d" % number, key=b"%d" % (number % 11))


def take_all(consumer):
    """Numbers by key, in the order in which they came."""
    found = collections.defaultdict(list)
    with contextlib.suppress(shmq.Empty):
        while True:
            message = consumer.get(timeout=0)
            found[int(message.key)].append(int(message.payload))
            message.ack()
    return found


def in_order(stop):
    return {key: list(range(key, stop, 11)) for key in range(11)}


def grow_gated(say, root, gate, after):
    """Grow, and wait at the gate before the shard of that number is finished."""
    finish = growth._finish

    def gated(shard, opens):
        if shard.number == after:
            say("at the gate")
            with shmq.open(gate) as queue, queue.consumer("c") as c:
                c.take()
        finish(shard, opens)

    growth._finish = gated
    root.grow()
    say("grown")


# ---------------------------------------------------------------- what it does
def test_there_are_twice_as_many_and_the_old_ones_are_finished(root):
    """With the same options; what was put stays where it is, and has its number."""
    before = root.put(b"a", key=b"k")
    assert root.grow() == root.shards == 8
    assert read(root.path).bits == ((2, "finished"), (3, "open"))
    assert [shard.number for shard in root.map.live()] == [*range(4), *(3 << 10 | index for index in range(8))]
    assert {queue.options.chunk_bytes for queue in root.queues} == {65536}
    assert before.shard == shard_of(b"k", 2)
    assert root.put(b"b", key=b"k") == (3 << 10 | shard_of(b"k", 3), 0)
    assert {root.put(b"v").shard & 1023 for _ in range(8)} == set(range(8))
    with shmq.shards.open(root.path, shards=8) as again, again.consumer("c") as c:
        assert again.grow() == 16
        assert again.put(b"c", key=b"k").shard == 4 << 10 | shard_of(b"k", 4)
        assert [m.payload for m in iter(lambda: next_of(c), None) if m.key == b"k"] == [b"a", b"b", b"c"]
        assert len(c.shards) == 16


def next_of(consumer):
    with contextlib.suppress(shmq.Empty):
        return consumer.get(timeout=0)


def test_what_cannot_grow_is_left_alone(root, monkeypatch):
    """At the most there can be; finished; with a queue in the way."""
    shmq.open(os.path.join(root.path, "3.000")).close()
    with shmq.open(os.path.join(root.path, "3.001")) as queue:
        queue.put(b"mine")
    with pytest.raises(shmq.BadFormat, match=r"a queue with messages at .*3\.001"):
        root.grow()
    monkeypatch.setattr(maps, "BIT_MAX", 2)
    with pytest.raises(ValueError, match="has 4 shards already"):
        root.grow()
    monkeypatch.undo()
    root.finish()
    with pytest.raises(shmq.ShutDown, match="it was finished; nothing was changed"):
        root.grow()
    assert read(root.path).bits == ((2, "open"),)


def test_an_empty_queue_in_the_way_is_made_anew(root):
    """What a growth left that was killed before the map had it; its options may be others now."""
    shmq.open(os.path.join(root.path, "3.000")).close()
    root.grow()
    assert {queue.options.chunk_bytes for queue in root.queues} == {65536}


def test_a_handle_that_was_open_goes_on_with_the_new_ones(root):
    """Also for a shard that it never opened: behind its end a queue's own handle would open it again."""
    stale = pickle.loads(pickle.dumps(root))
    used = pickle.loads(pickle.dumps(root))
    with stale, used:
        used.put(b"a", key=b"k")
        root.grow()
        assert stale.put(b"b", key=b"k").shard >= 1024
        assert used.put_many([b"c", b"d"], keys=[b"k", b"other"])[0].shard >= 1024
        assert all(root.queue(shard).finished for shard in root.map.of_bit(2))


def test_a_child_is_begun_when_its_parent_is_finished(root, monkeypatch):
    """Whoever has the parent's messages, and however many members there are; other shards go on."""
    root.put(b"a", key=b"k")
    with root.consumer("g", group=True) as c, root.consumer("alone", ack="explicit") as alone:
        held, too = c.get(timeout=LONG), alone.get(timeout=LONG)
        root.grow()
        other = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 2) != shard_of(b"k", 2))
        root.put(b"b", key=b"k")
        root.put(b"c", key=other)
        with root.consumer("g", group=True) as d:
            found = []
            until(lambda: found.extend(filter(None, [next_of(c), next_of(d)])) or found, LONG)
            assert [m.payload for m in found] == [alone.get(timeout=LONG).payload] == [b"c"]
            for each in (c, d, alone):
                with pytest.raises(shmq.Empty):
                    each.get(timeout=0.2)
            held.ack()
            too.ack()
            slept, wait = [], shmq.wait
            monkeypatch.setattr(shmq, "wait", lambda each, timeout: slept.append(timeout) or wait(each, timeout))
            assert alone.get(timeout=LONG).payload == b"b"
            assert not any(slept)  # it is there: nothing would wake it
            monkeypatch.undo()
            until(lambda: found.extend(filter(None, [next_of(c), next_of(d)])) or found[1:], LONG)
            assert [m.payload for m in found] == [b"c", b"b"]


def test_a_grandchild_waits_for_all_before_it(root):
    """Also where the shard between them never had anything."""
    root.put(b"a", key=b"k")
    with root.consumer("c", ack="explicit") as c:
        held = c.get(timeout=LONG)
        root.grow()
        root.grow()
        root.put(b"b", key=b"k")
        with pytest.raises(shmq.Empty):
            c.get(timeout=0.2)
        held.ack()
        assert c.get(timeout=LONG).payload == b"b"


def test_names_stand_in_the_new_shards_before_anything_does(root):
    """So that nothing is retired that one of them has not had; also those of readers of one shard alone."""
    root.consumer("late").close()
    root.queues[1].consumer("by-itself", hold=True).close()
    root.grow()
    for queue in root.queues:
        stats = queue.consumers()
        assert "late" in stats
    assert [("by-itself" in queue.consumers()) for queue in root.queues] == [index % 4 == 1 for index in range(8)]
    assert root.queues[5].consumers()["by-itself"].hold is True
    with root.consumer("quick") as quick, root.consumer("late") as late:
        root.put_many([bytes(4000)] * 100, keys=[b"k"] * 100)
        assert len([quick.take(timeout=LONG) for _ in range(100)]) == 100
        assert len([late.take(timeout=LONG) for _ in range(100)]) == 100


def test_nobody_puts_into_a_child_before_every_parent_is_finished(root, tmp_path):
    """A producer with the old map would put the same key behind it, into the parent."""
    gate = str(tmp_path / "gate")
    key = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 2) == 3)
    first = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 2) == 0)
    with Child(grow_gated, root, gate, 3) as grower:
        assert grower.hear() == "at the gate"
        with shmq.shards.open(root.path) as new:
            assert (new.shards, new.map.growing_to) == (4, 3)
            assert new.put(b"a", key=key).shard == 3
            with pytest.raises(shmq.Busy, match="its shards are growing; nothing was put"):
                new.put(b"b", key=first, timeout=0.05)
            assert root.put(b"b", key=key).shard == 3
        with shmq.open(gate) as queue:
            queue.put(b"go")
        assert grower.hear() == "grown"
        assert root.put(b"c", key=key).shard >= 1024
    with root.consumer("c") as c:
        assert [c.take(timeout=0) for _ in range(3)] == [b"a", b"b", b"c"]


# ---------------------------------------------------------------- kills
@pytest.mark.parametrize("every", [25, pytest.param(4, marks=pytest.mark.slow)])
def test_whoever_comes_next_carries_on_what_was_killed(tmp_path, every):
    """Killed at any step: by an opening, by a put of a handle that was open, by another call."""
    for step, by in zip(range(0, 1000, every), itertools.cycle(["open", "put", "grow"])):
        top = tmp_path / str(step)
        with shmq.shards.open(top, shards=2, chunk_bytes=65536) as root:
            root.consumer("c").close()
            feed(root, 0, 22)
            killed = killed_at(step, lambda root=root: root.grow(), STEPS)
            growing = read(top).growing_to
            if by == "open":
                shmq.shards.open(top).close()
                assert read(top).growing_to is None
            elif by == "grow" and growing is not None:
                assert root.grow() == 4
            feed(root, 22, 44)
            with root.consumer("c", start="latest") as c:
                assert take_all(c) == in_order(44)
        if not killed:
            break
    assert step > 20


# ---------------------------------------------------------------- at work
def worker(say, root, log):
    """Log what it does, then acknowledge it."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    say("in")
    with root.consumer("g", group=True) as c, shmq.open(log) as to:
        while True:
            message = c.get()
            to.put(message.payload, key=message.key)
            message.ack()


def producer(say, root, mine, count):
    """Puts its own keys in order."""
    for number in range(count):
        for key in mine:
            root.put(b"%d" % number, key=key)
    say("done")


@pytest.mark.parametrize("kills", [0, 4])
def test_each_key_keeps_its_order_while_all_are_at_work(tmp_path, kills):
    """Producers, members of a group that come and are killed, and two growths: one log has all, each key in order."""
    count, log = 1000, str(tmp_path / "log")
    keys = [b"key %d" % n for n in range(14)]
    with (
        shmq.shards.open(tmp_path / "e", shards=2, chunk_bytes=65536) as root,
        shmq.open(log, chunk_bytes=1 << 20) as to,
        contextlib.ExitStack() as everybody,
    ):
        members = [everybody.enter_context(Child(worker, root, log)) for _ in range(2)]
        producers = [everybody.enter_context(Child(producer, root, keys[part::2], count)) for part in range(2)]
        for growth_at in (count // 3, count):
            until(lambda at=growth_at: len(to) >= at, LONG)
            root.grow()
            for _ in range(kills // 2):
                members.pop(0).kill()
                members.append(everybody.enter_context(Child(worker, root, log)))
        for each in producers:
            assert each.hear(LONG) == "done"
        wanted = len(keys) * count
        until(lambda: to.next_index >= wanted and root.lag("g") == 0, LONG)
        found = collections.defaultdict(list)
        for message in to.reader():
            found[message.key].append(int(message.payload))
        assert {key: sorted(set(each)) for key, each in found.items()} == {key: list(range(count)) for key in keys}
        assert all(each == sorted(each) for each in found.values())
        if not kills:
            assert all(len(each) == count for each in found.values())
        assert root.shards == 8


def test_found_members_waited_for_each_other_where_one_had_read_the_map_of_a_growth_under_way(tmp_path, monkeypatch):
    """
    It took what the user had finished behind the growth, and the other one had drained, for ended by the growth. So of
    two shards it saw one, of which its share was none, and the other one left it to it.
    """
    eligible, found = hold.Hold._eligible, []

    def had(each):
        """Whether all is over; until then there was nothing more at the moment."""
        try:
            while True:
                message = each.get(timeout=0)
                found.append(int(message.payload))
                message.ack()
        except shmq.Empty:
            return False
        except shmq.ShutDown:
            return True

    def late(self):
        if self is second._hold and not found:
            assert self._map.growing_to == 1
            growth.carry_on(self._map, shmq.open)
            with shmq.shards.open(root.path) as other:
                feed(other, 0, 100)
                other.finish()
            until(lambda: had(first) or len(found) > 0)
            assert len(found) < 100
            assert self._map.growing_to == 1
        return eligible(self)

    with contextlib.ExitStack() as all_of_them:
        root = all_of_them.enter_context(shmq.shards.open(tmp_path / "one", shards=1, prefix="s"))
        first, second = (all_of_them.enter_context(root.consumer("c", group=True)) for _ in range(2))
        assert not had(first)
        assert not had(second)
        growth.begin(read(root.path), root.queues[0].options, shmq.open, unsafe_filesystem=False)
        monkeypatch.setattr(hold.Hold, "_eligible", late)
        until(lambda: all([had(second), had(first)]), LONG)
        assert sorted(found) == list(range(100))
