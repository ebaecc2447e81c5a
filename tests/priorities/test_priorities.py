"""Priorities: a few levels, each a queue; what is urgent comes first, and nothing waits for ever."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import pickle
import random
import selectors
import signal
import threading
import time
from pathlib import Path

import pytest
from support import Child, hold_until_killed, in_child, killed_at, until

import shmq
from shmq.priorities.turns import PASSES

LONG = 60.0


def payloads(consumer, count):
    return [consumer.take(timeout=LONG) for _ in range(count)]


# ---------------------------------------------------------------- putting and getting
def test_what_is_urgent_comes_first_and_within_a_level_in_order(jobs):
    """Whatever the order of the puts; a put says where it went."""
    assert jobs.levels == 3
    assert [jobs.put(b"c%d" % n, priority=2) for n in range(3)] == [(2, 0), (2, 1), (2, 2)]
    assert jobs.put_many([b"b0", b"b1"], priority=1, keys=[b"k", None]) == (1, range(2))
    assert jobs.put(b"a0", key=b"k") == (0, 0)
    assert len(jobs) == 6
    with jobs.consumer("w") as c:
        assert payloads(c, 6) == [b"a0", b"b0", b"b1", b"c0", b"c1", b"c2"]
        with pytest.raises(shmq.Empty, match="none of its 3 levels"):
            c.take(timeout=0)


def test_the_first_urgent_one_is_found_behind_many(jobs):
    """However many wait below; also when a member has found nothing at that level before."""
    jobs.put_many([b"low"] * 1000, priority=2)
    with jobs.consumer("w") as c:
        for round_ in range(3):
            assert payloads(c, 5) == [b"low"] * 5
            jobs.put(b"urgent %d" % round_)
            assert c.take(timeout=0) == b"urgent %d" % round_


def test_an_urgent_one_put_by_another_process_is_next(jobs):
    """That it was put before the get is enough."""
    jobs.put_many([b"low"] * 100, priority=1)
    with jobs.consumer("w") as c:
        assert payloads(c, 3) == [b"low"] * 3
        assert in_child(lambda: jobs.put(b"urgent")) == "(0, 0)"
        assert c.take(timeout=0) == b"urgent"


def test_starvation_is_bounded_exactly(jobs):
    """While urgent ones never end, each lower level gets one of so many."""
    for level in range(3):
        jobs.put_many([b"%d" % level] * 2000, priority=level)
    with jobs.consumer("w", ack="explicit") as c:
        took = []
        for _ in range(600):
            message = c.get(timeout=0)
            took.append(message.payload)
            message.ack()
        assert took[: PASSES + 3] == [b"0"] * PASSES + [b"1", b"2", b"0"]
        for level in (b"1", b"2"):
            places = [at for at, each in enumerate(took) if each == level]
            assert max(after - before for before, after in itertools.pairwise(places)) <= PASSES + 3
            assert len(places) >= 600 // (PASSES + 2)


def test_batches_are_of_one_level_and_shared_out_likewise(jobs):
    """A level that is due has one for each PASSES that have passed it by."""
    for level in range(3):
        jobs.put_many([b"%d" % level] * 1000, priority=level)
    with jobs.consumer("w") as c:
        sizes = []
        while len(sizes) < 12:
            batch = c.take_many(160, timeout=0)
            assert len(set(batch)) == 1
            sizes.append((batch[0], len(batch)))
        assert sizes[:4] == [(b"0", 160), (b"1", 10), (b"2", 10), (b"0", 160)]
    with jobs.consumer("other", ack="explicit") as c:
        messages = c.get_many(3)
        assert [m.payload for m in messages] == [b"0"] * 3
        c.ack(*messages)
        assert c.pending == 0


def test_a_payload_that_is_a_list_is_one_message(tmp_path):
    """It is not taken for a batch."""
    with shmq.priorities.open(tmp_path / "j", levels=2, codec="json") as jobs, jobs.consumer("w") as c:
        for level in range(2):
            for _ in range(40):
                jobs.put([level] * 100, priority=level)
        took = [c.take(timeout=0)[0] for _ in range(PASSES + 1)]
        assert took == [0] * PASSES + [1]


# ---------------------------------------------------------------- finishing, giving back
def test_messages_of_all_levels_are_acknowledged_together(jobs):
    """What is acknowledged does not come again, what is given back does."""
    for level in range(3):
        jobs.put(b"%d" % level, priority=level)
    with jobs.consumer("w", ack="explicit") as c:
        messages = [c.get(timeout=0) for _ in range(3)]
        assert c.pending == 3
        c.ack(messages[0], messages[2])
        c.nack(messages[1])
        assert (c.pending, c.lag) == (0, 1)
        again = c.get(timeout=0)
        assert (again.payload, again.attempts) == (b"1", 2)
        with pytest.raises(TypeError, match="ack"):
            c.ack([again])
    assert [each[0].lag for each in [jobs.consumers()["w"]]] == [0]
    assert [each.lag for each in jobs.consumers()["w"]] == [0, 1, 0]


def test_what_was_given_back_at_an_upper_level_is_met_in_time(jobs):
    """Though nothing new was put there: after PASSES further messages at the latest."""
    jobs.put(b"urgent")
    jobs.put_many([b"low"] * 100, priority=2)
    with jobs.consumer("w", ack="explicit") as c, jobs.consumer("w", ack="explicit") as other:
        held = other.get(timeout=0)
        assert held.payload == b"urgent"
        for _ in range(3):
            c.get(timeout=0).ack()
        held.nack()
        took = [c.get(timeout=0) for _ in range(PASSES + 1)]
        assert b"urgent" in [each.payload for each in took]


def test_what_is_delayed_below_waits_without_stopping_others(jobs):
    """And wakes whoever waits when it is due."""
    jobs.put(b"later", priority=1, delay=0.2)
    with jobs.consumer("w") as c:
        with pytest.raises(shmq.Empty):
            c.take(timeout=0)
        jobs.put(b"now", priority=2)
        assert payloads(c, 2) == [b"now", b"later"]


def test_dead_letters_lie_beside_the_levels(jobs):
    """One queue for each level, or one for all where it is named."""
    jobs.put(b"bad", priority=1)
    with jobs.consumer("w", ack="explicit", max_attempts=1) as c:
        c.get(timeout=0).nack()
        with pytest.raises(shmq.Empty):
            c.get(timeout=0)
    with shmq.open(Path(jobs.path, "1.w.dead"), create=False) as dead:
        assert dead[0].payload == b"bad"
    jobs.put(b"bad", priority=1)
    jobs.put(b"worse", priority=0)
    with jobs.consumer("v", ack="explicit", dead_letter="dead") as c:
        for _ in range(3):
            c.get(timeout=0).reject("no")
    with shmq.open(Path(jobs.path, "dead"), create=False) as dead:
        assert sorted(message.payload for message in dead.reader()) == [b"bad", b"bad", b"worse"]


# ---------------------------------------------------------------- waiting
@pytest.mark.parametrize("level", range(3))
def test_a_put_at_any_level_wakes(jobs, level):
    """From another process, while a member sleeps."""
    with jobs.consumer("w", ack="explicit") as c:

        def put(say):
            until(lambda: any(each.consumers for each in jobs.stats()))
            time.sleep(0.05)
            jobs.put(b"x", priority=level)
            say("put")

        with Child(put) as child:
            assert c.get(timeout=LONG).payload == b"x"
            child.hear()


def test_an_urgent_put_between_look_and_sleep_is_seen(jobs, monkeypatch):
    """All levels are armed before the last look."""
    with jobs.consumer("w") as c:
        looked = c._look_everywhere

        def look(*arguments):
            found = looked(*arguments)
            if not found:
                monkeypatch.setattr(c, "_look_everywhere", looked)
                jobs.put(b"between", priority=2)
            return found

        monkeypatch.setattr(c, "_look_everywhere", look)
        assert c.take(timeout=LONG) == b"between"


def test_time_is_up(jobs):
    """Empty, and not before."""
    with jobs.consumer("w") as c:
        before = time.monotonic()
        with pytest.raises(shmq.Empty):
            c.get(timeout=0.1)
        assert time.monotonic() - before >= 0.1


def test_its_descriptor_is_readable_when_a_level_has_something(jobs):
    """In a selector, until Empty."""
    with jobs.consumer("w") as c, selectors.DefaultSelector() as selector:
        selector.register(c, selectors.EVENT_READ)
        for level in (2, 0, 1):
            with pytest.raises(shmq.Empty):
                c.take(timeout=0)
            assert selector.select(0.05) == []
            jobs.put(b"x", priority=level)
            assert selector.select(LONG)
            assert c.take(timeout=0) == b"x"
        selector.unregister(c)
        c.close()
        with pytest.raises(shmq.Closed):
            c.fileno()


def test_closing_ends_whoever_waits(jobs):
    """A loop ends, a get says Closed."""
    c = jobs.consumer("w")
    ended = []
    threads = [threading.Thread(target=lambda: ended.append(list(c)))]
    threads[0].start()
    until(threads[0].is_alive)
    time.sleep(0.05)
    c.close()
    threads[0].join(LONG)
    assert ended == [[]]
    with pytest.raises(shmq.Closed):
        c.get(timeout=0)
    assert list(c) == []
    c.close()


def test_ctrl_c_ends_a_wait_and_loses_nothing(jobs):
    """What comes afterwards is got by the same consumer."""
    with jobs.consumer("w", ack="explicit") as c:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            c.get(timeout=LONG)
        timer.join()
        jobs.put(b"x", priority=1)
        assert c.get(timeout=LONG).payload == b"x"


# ---------------------------------------------------------------- the end
@pytest.mark.parametrize("end", ["shutdown", "finish"])
def test_all_levels_are_drained_before_the_end(jobs, end):
    """Then ShutDown, and loops end; puts are refused at every level."""
    for level in (2, 0):
        jobs.put(b"%d" % level, priority=level)
    with jobs.consumer("w") as c:
        getattr(jobs, end)()
        for level in range(3):
            with pytest.raises(shmq.ShutDown):
                jobs.put(b"no", priority=level)
        assert [message.payload for message in c] == [b"0", b"2"]
        with pytest.raises(shmq.ShutDown, match="all levels"):
            c.get()
        assert jobs.finished == (end == "finish")


def test_one_level_that_is_over_does_not_end_the_others(jobs):
    """A shutdown that was killed in the middle: gets go on, and a second one finishes it."""
    jobs.queues[0].shutdown()
    with jobs.consumer("w") as c:
        with pytest.raises(shmq.Empty):
            c.get(timeout=0.01)
        timer = threading.Timer(0.1, jobs.put, (b"x",), {"priority": 2})
        timer.start()
        assert c.take(timeout=LONG) == b"x"
        timer.join()
        timer = threading.Timer(0.1, jobs.shutdown)
        timer.start()
        with pytest.raises(shmq.ShutDown):
            c.take(timeout=LONG)
        timer.join()


def test_a_level_that_was_finished_and_is_written_again_is_met(jobs):
    """Also by a member that had met its end, and waits for the others."""
    jobs.queues[0].finish()
    with jobs.consumer("w") as c:

        def put_again():
            with shmq.open(jobs.queues[0].path) as again:
                again.put(b"again")

        timer = threading.Timer(0.2, put_again)
        timer.start()
        assert c.take(timeout=LONG) == b"again"
        timer.join()


def test_a_full_level_does_not_keep_out_what_is_urgent(tmp_path):
    """Bounds are each level's own."""
    with shmq.priorities.open(tmp_path / "j", levels=2, max_messages=3, full="raise") as jobs:
        jobs.put_many([b"low"] * 3, priority=1)
        with pytest.raises(shmq.Full):
            jobs.put(b"low", priority=1)
        assert jobs.put(b"urgent") == (0, 0)


def test_two_that_hold_messages_and_wait_for_the_end_do_not_wait_for_each_other(jobs):
    """As in any group: each is told that all is over but what it holds itself."""
    for level in range(2):
        jobs.put(b"x", priority=level)

    def work(say):
        with jobs.consumer("w", ack="explicit") as c:
            held = c.get(timeout=LONG)
            say("has one")
            until(lambda: jobs.finished, LONG)
            with pytest.raises(shmq.ShutDown):
                c.get(timeout=LONG)
            held.ack()
        say("done")

    with Child(work) as one, Child(work) as two:
        for child in (one, two):
            assert child.hear() == "has one"
        jobs.finish()
        for child in (one, two):
            assert child.hear(LONG) == "done"


def test_shutdown_at_once_leaves_what_is_there(jobs):
    """Nothing is drained."""
    jobs.put(b"x", priority=1)
    with jobs.consumer("w") as c:
        jobs.shutdown(immediate=True)
        with pytest.raises(shmq.ShutDown):
            c.take(timeout=LONG)
    assert len(jobs) == 1


# ---------------------------------------------------------------- opening
def test_it_is_found_again_as_it_was_made(tmp_path):
    """The number of levels need not be said, and must not be another."""
    path = tmp_path / "jobs"
    with shmq.priorities.open(path, levels=2, codec="json", max_messages=5) as jobs:
        jobs.put({"a": 1}, priority=1)
    with shmq.priorities.open(str(path)) as jobs:
        assert jobs.levels == 2
        assert [queue.options.max_messages for queue in jobs.queues] == [5, 5]
        assert jobs.consumer("w").take(timeout=0) == {"a": 1}
    for wrong in ({"levels": 3}, {"max_messages": 6}):
        with pytest.raises(shmq.Mismatch):
            shmq.priorities.open(path, **wrong)
    with shmq.priorities.open(tmp_path / "default") as jobs:
        assert jobs.levels == 3


def test_what_cannot_be_made_is_refused_and_nothing_is_left(tmp_path):
    """By the kind of error that fits."""
    path = tmp_path / "jobs"
    for wrong, kind in [
        ({"levels": 1}, ValueError),
        ({"levels": 9}, ValueError),
        ({"levels": "3"}, TypeError),
        ({"levels": True}, TypeError),
        ({"max_messages": -1}, ValueError),
        ({"colour": "red"}, TypeError),
        ({"options": shmq.Options(), "ttl": 1.0}, TypeError),
        ({"create": False}, shmq.NotFound),
    ]:
        with pytest.raises(kind):
            shmq.priorities.open(path, **wrong)
    for wrong, kind in [(None, TypeError), (7, TypeError), ("shm:jobs", ValueError), ("", ValueError)]:
        with pytest.raises(kind, match="directory"):
            shmq.priorities.open(wrong)
    for verb in (shmq.priorities.open, shmq.priorities.delete):  # found: it was taken for a path
        with pytest.raises(
            ValueError, match=r"'csp://h:1/x': that is at a server, where shmq\.open opens one queue; all"
        ):
            verb("csp://h:1/x")
    with pytest.raises(shmq.NotFound, match="above"):
        shmq.priorities.open(tmp_path / "no" / "jobs")
    assert list(tmp_path.iterdir()) == []


def test_something_else_in_its_place_is_left_alone(tmp_path):
    """A file, a directory with other things, a file of another version, a directory that others may write."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters").write_text("mine")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "levels.json").write_text(json.dumps({"version": 2, "levels": 3}))
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "levels.json").write_text("[")
    for name in ("file", "full", "newer", "odd"):
        with pytest.raises(shmq.BadFormat):
            shmq.priorities.open(tmp_path / name)
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(shmq.Unsafe):
        shmq.priorities.open(tmp_path / "open")
    with shmq.open(tmp_path / "queue"), pytest.raises(shmq.BadFormat):
        shmq.priorities.open(tmp_path / "queue")


def test_there_are_no_other_levels(jobs):
    """Nor what is no number."""
    for wrong, kind in [(3, ValueError), (-1, ValueError), (True, TypeError), (1.0, TypeError), ("0", TypeError)]:
        with pytest.raises(kind, match="priority"):
            jobs.put(b"x", priority=wrong)
    with jobs.consumer("w") as c:
        for wrong, kind in [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)]:
            with pytest.raises(kind, match="timeout"):
                c.get(timeout=wrong)
        for wrong, kind in [(0, ValueError), ("1", TypeError)]:
            with pytest.raises(kind, match="limit"):
                c.get_many(wrong)
    with pytest.raises(TypeError, match="start"):
        jobs.consumer("x", start=5)
    assert len(jobs) == 0


def test_two_that_make_it_at_the_same_time_make_one(tmp_path):
    """And find each other's messages."""
    path = str(tmp_path / "jobs")

    def make(say):
        with shmq.priorities.open(path, levels=4) as jobs:
            say(jobs.put(str(os.getpid()).encode(), priority=3)[1])

    for _ in range(3):
        children = [Child(make) for _ in range(4)]
        assert sorted(int(child.hear()) for child in children) == list(range(4))
        assert [child.join() for child in children] == [0] * 4
        shmq.priorities.delete(path)


def test_killed_while_it_is_made_it_can_be_made(tmp_path):
    """Before each call that changes something."""
    step = 0
    while True:
        path = tmp_path / f"jobs{step}"
        killed = killed_at(step, lambda path=path: shmq.priorities.open(path, levels=2).put(b"x", priority=1))
        with shmq.priorities.open(path, levels=2) as jobs:
            assert len(jobs) == (0 if killed else 1)
            jobs.put(b"y")
        shmq.priorities.delete(path)
        assert not path.exists()
        if not killed:
            break
        step += 7
    assert step > 20


# ---------------------------------------------------------------- names
def test_one_handle_holds_an_exclusive_name_at_all_levels(jobs):
    """A group is shared."""
    for level in range(3):
        jobs.put(b"%d" % level, priority=level)
    with jobs.consumer("alone", group=False) as c:
        with pytest.raises(shmq.Busy):
            jobs.consumer("alone", group=False)
        assert payloads(c, 2) == [b"0", b"1"]
    with jobs.consumer("alone", group=False) as c:
        assert payloads(c, 1) == [b"2"]
    with jobs.consumer("careful", group=False, ack="explicit") as c:
        held = [c.get(timeout=0) for _ in range(3)]
        c.ack(*held[:2])
    with jobs.consumer("careful", group=False) as c:
        assert [(m.payload, m.attempts) for m in c.get_many(9)] == [(b"2", 2)]
    with pytest.raises(shmq.Mismatch):
        jobs.consumer("alone")
    jobs.drop_consumer("alone")
    with pytest.raises(shmq.NotFound):
        jobs.drop_consumer("alone")
    assert list(jobs.consumers()) == ["careful"]


def test_a_new_name_can_begin_at_the_end(jobs):
    """Or at a time."""
    jobs.put(b"old", priority=1)
    with jobs.consumer("new", start="latest") as c:
        jobs.put(b"new", priority=2)
        assert c.take(timeout=0) == b"new"
        assert c.lag == 0


# ---------------------------------------------------------------- other processes
def _puts(jobs):
    jobs.put(b"from a child", priority=1)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_it_crosses_to_processes_of_each_start_method(jobs, method):
    """It pickles to its place."""
    process = multiprocessing.get_context(method).Process(target=_puts, args=(jobs,))
    process.start()
    with jobs.consumer("w") as c:
        assert c.take(timeout=LONG) == b"from a child"
    process.join()
    assert process.exitcode == 0
    with pickle.loads(pickle.dumps(jobs)) as again:
        assert (again.path, again.levels) == (jobs.path, jobs.levels)


def test_a_forked_child_is_a_member_of_its_own(jobs):
    """It does not have what its parent holds; an exclusive name stays the parent's."""
    for _ in range(2):
        jobs.put(b"x", priority=2)
    with jobs.consumer("w", ack="explicit") as c, jobs.consumer("alone", group=False) as alone:
        held = c.get(timeout=0)

        def child():
            mine = c.get(timeout=0)
            mine.ack()
            with pytest.raises(shmq.Forked):
                alone.get(timeout=0)
            return mine.index

        assert in_child(child) == "1"
        held.ack()
        assert c.lag == 0


def test_what_the_killed_held_comes_to_others_most_urgent_first(jobs):
    """Each message is finished, by somebody, and the dead ones' come again."""
    count = 60
    for n in range(count):
        jobs.put(b"%d" % n, priority=n % 3)

    def hold(say):
        with jobs.consumer("w", ack="explicit") as c:
            say(len(c.get_many(3)))
            hold_until_killed(say)

    with jobs.consumer("w", ack="explicit") as c:
        done = []
        for _ in range(5):
            with Child(hold) as child:
                child.hear()
                child.hear()
                message = c.get(timeout=LONG)
                child.kill()
            done.append(message.payload)
            message.ack()
        while c.lag:
            message = c.get(timeout=LONG)
            done.append(message.payload)
            message.ack()
        assert sorted(done, key=int) == [b"%d" % n for n in range(count)]


def test_workers_killed_at_random_lose_nothing(jobs):
    """Each message is acknowledged once, whoever dies in between."""
    count, levels = 400, jobs.levels
    for n in range(count):
        jobs.put(b"%d" % n, priority=n % levels)
    jobs.finish()
    results = shmq.open(Path(jobs.path).parent / "results")

    def work(say):
        with jobs.consumer("w", ack="explicit") as c:
            for message in c:
                results.put(message.payload)
                message.ack()
        say("done")

    chance = random.Random(7)
    finished = False
    kills = 0
    while not finished:
        with Child(work) as child:
            if kills < 8:
                time.sleep(chance.uniform(0, 0.02))
                child.kill()
                kills += 1
            else:
                finished = child.hear(LONG) == "done"
    seen = [message.payload for message in results.reader()]
    assert {int(each) for each in seen} == set(range(count))
    assert len(seen) <= count + kills
    results.close()


# ---------------------------------------------------------------- deleting
def test_it_is_deleted_with_everything_in_it(jobs):
    """Dead letters too; not while somebody has it open, nor when something else lies there."""
    jobs.put(b"x", priority=1)
    with jobs.consumer("w", ack="explicit") as c:
        c.get(timeout=0).reject("no")
    with pytest.raises(shmq.Busy):
        shmq.priorities.delete(jobs.path)
    jobs.close()
    strange = Path(jobs.path, "notes")
    strange.write_text("mine")
    with pytest.raises(shmq.Unsafe, match="notes"):
        shmq.priorities.delete(jobs.path)
    assert sorted(os.listdir(jobs.path)) == ["0", "1", "1.w.dead", "2", "levels.json", "notes"]
    strange.unlink()
    shmq.priorities.delete(jobs.path)
    assert not Path(jobs.path).exists()
    with pytest.raises(shmq.NotFound):
        shmq.priorities.delete(jobs.path)


def test_a_deletion_that_was_killed_is_finished_by_the_next(tmp_path):
    """Before each call that removes something."""
    path = tmp_path / "jobs"
    step, killed = 0, True
    while killed:
        with shmq.priorities.open(path, levels=2) as jobs:
            jobs.put(b"x", priority=1)
        killed = killed_at(step, lambda: shmq.priorities.delete(path))
        if path.exists() and os.listdir(path):
            shmq.priorities.delete(path)
        elif path.exists():
            path.rmdir()
        step += 5
    assert step > 15


def test_people_see_what_it_is(jobs):
    """In a shell."""
    assert repr(jobs) == f"<shmq.Priorities {jobs.path} (3 levels)>"
    with jobs.consumer("w") as c:
        assert repr(c) == f"<shmq.priorities.Consumer 'w' of {jobs.path} (3 levels)>"
        assert [each.participants for each in jobs.stats()] == [1, 1, 1]
    assert jobs
    jobs.sync()
    jobs.close()
    assert jobs.closed
    assert repr(jobs).endswith("closed)>")
