"""The end of a stream: everybody who works at it is told, once everything is done, and nobody before."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import queue as stdlib
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest
from support import DEADLINE, Child, in_child, make_unclean, until

import shmq

SOME = 250
EVERY = 100
"""Acknowledged together."""


def work(member, *, every=1, found=None):
    """What a worker does: its loop, and then what it still holds."""
    found = [] if found is None else found
    held = []
    for message in member:
        found.append(message.index)
        held.append(message)
        if len(held) == every:
            member.ack(*held)
            held.clear()
    member.ack(*held)
    return found


def together(queue, count, *, every, **given):
    """So many threads, each with a handle of its own or all with one: what each of them found, when all have ended."""
    shared = given.pop("shared")
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(queue.consumer("g", group=True, **given))
        handles = [
            first if shared else opened.enter_context(queue.consumer("g", group=True, **given)) for _ in range(count)
        ]
        found = [[] for _ in range(count)]
        threads = [
            threading.Thread(target=work, args=(handle,), kwargs={"every": every, "found": mine}, daemon=True)
            for handle, mine in zip(handles, found, strict=True)
        ]
        for thread in threads:
            thread.start()
        queue.put_many([b"x"] * SOME)
        queue.shutdown()
        for thread in threads:
            thread.join(DEADLINE)
        assert not [thread for thread in threads if thread.is_alive()]
        assert not first.lag
    return found


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
@pytest.mark.parametrize("every", [1, EVERY])
@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_a_pool_of_threads_ends_at_a_shutdown(queue, ack, every, shared):
    """Also when each of them holds some, which it acknowledges behind its loop."""
    found = together(queue, 3, every=every, ack=ack, shared=shared)
    assert sorted(itertools.chain(*found)) == list(range(SOME))


@pytest.mark.parametrize("every", [1, EVERY])
@pytest.mark.parametrize("end", ["shutdown", "finish"])
def test_a_pool_of_processes_ends(queue, every, end):
    """All of them, whoever does the last one."""

    def pull(say):
        with queue.consumer("g", group=True, ack="explicit") as member:
            say("here")
            say(" ".join(map(str, work(member, every=every))))

    with contextlib.ExitStack() as children:
        workers = [children.enter_context(Child(pull)) for _ in range(3)]
        for worker in workers:
            worker.hear()
        queue.put_many([b"x"] * SOME)
        getattr(queue, end)()
        found = [index for worker in workers for index in worker.hear().split()]
    assert sorted(map(int, found)) == list(range(SOME))
    assert queue.consumers()["g"].lag == 0


@pytest.mark.parametrize("ack", ["auto", "explicit"])
@pytest.mark.parametrize("group", [False, True])
def test_a_consumer_that_is_forgotten_behind_its_loop_is_closed_at_once(queue, ack, group):
    queue.put(b"x")
    queue.shutdown()
    gc.collect()
    gc.disable()
    try:
        for message in queue.consumer("c", ack=ack, group=group):
            message.ack()
        del message
        member = queue.consumer("c", ack=ack, group=group)
        with pytest.raises(shmq.ShutDown):
            member.get(0)
        taken = weakref.ref(member)
        del member
        assert taken() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("group", [False, True])
def test_a_consumer_that_is_forgotten_behind_an_empty_is_closed_at_once(queue, group):
    gc.collect()
    gc.disable()
    try:
        member = queue.consumer("c", group=group)
        taken = weakref.ref(member)
        with contextlib.suppress(shmq.Empty):
            member.take(0)
        del member
        assert taken() is None
    finally:
        gc.enable()


def test_the_last_ack_wakes_whoever_waits_for_the_end(queue):
    """Nothing else happens then."""
    with (
        queue.consumer("g", group=True, ack="explicit") as holder,
        queue.consumer("g", group=True, ack="explicit") as other,
    ):
        queue.put(b"x")
        message = holder.get(timeout=DEADLINE)
        queue.shutdown()
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (list(other), ended.set()), daemon=True)
        thread.start()
        until(lambda: other._at_end)
        assert not ended.is_set()
        message.ack()
        assert ended.wait(DEADLINE)


def test_what_a_loop_holds_does_not_keep_it_from_ending_and_comes_again_when_it_is_given_back(queue):
    """To whoever waits for the end and holds nothing; or to the next who asks."""
    queue.put_many([b"a", b"b"])
    queue.shutdown()
    with queue.consumer("g", group=True, ack="explicit") as member:
        held = list(member)
        assert [message.index for message in held] == [0, 1]
        with pytest.raises(shmq.ShutDown, match="but for 2 messages that this consumer holds itself"):
            member.get()
        held[0].nack()
        held[1].ack()
        again = member.get()
        assert (again.index, again.attempts) == (0, 2)
        again.ack()
        with pytest.raises(shmq.ShutDown, match=r"has drained it$"):
            member.get()


def test_those_who_hold_and_wait_do_not_wait_for_each_other_but_for_who_works(make):
    """And take over what it held when it is killed."""
    queue = make()
    queue.put_many([b"x"] * 9)

    def pull(say, hold):
        with queue.consumer("g", group=True, ack="explicit") as member:
            held = member.get_many(3)
            say("has some")
            if hold:
                signal.pause()
            until(lambda: queue.stats().shut_down)
            held += list(member)
            say(" ".join(str(message.index) for message in held))
            member.ack(*held)

    with Child(pull, False) as one, Child(pull, False) as other, Child(pull, True) as killed:
        for child in (one, other, killed):
            assert child.hear() == "has some"
        queue.shutdown()
        killed.kill()
        found = f"{one.hear()} {other.hear()}".split()
    assert sorted(map(int, found)) == list(range(9))


def test_what_waits_for_its_time_comes_before_the_end(queue):
    """Put so, or given back so."""
    queue.put(b"later", delay=0.2)
    queue.put(b"now")
    queue.finish()
    with queue.consumer("g", group=True, ack="explicit") as member:
        found = []
        for message in member:
            found.append((message.payload, message.attempts))
            if message.payload == b"now" and message.attempts == 1:
                message.nack(delay=0.2)
            else:
                message.ack()
        assert sorted(found) == [(b"later", 1), (b"now", 1), (b"now", 2)]
    with queue.consumer("alone") as alone:
        assert [message.payload for message in alone] == [b"later", b"now"]


def test_a_shutdown_of_the_dead_letters_does_not_end_the_loop_of_who_works(make, tmp_path):
    """It is said, and the message stays with whoever wanted to reject it."""
    queue = make()
    queue.put(b"bad")
    with queue.consumer("g", group=True, ack="explicit", dead_letter=str(tmp_path / "dead")) as member:
        member.get().reject("once")
        letters = shmq.open(str(tmp_path / "dead"), create=False)
        queue.put(b"worse")
        letters.shutdown()
        with pytest.raises(shmq.ShutDown, match="dead"):
            member.get().reject("twice")
        assert member.pending == 1
        letters.close()


def test_the_list_of_a_batch_belongs_to_who_got_it(queue):
    """What is added to it is acknowledged with it, each by itself."""
    queue.put_many([b"x"] * 6)
    with queue.consumer("g", group=True, ack="explicit") as member:
        held = member.get_many(3)
        held += member.get_many(3)
        member.ack(*held)
        assert (member.head, member.pending) == (6, 0)


# ---------------------------------------------------------------- at once
@pytest.mark.parametrize("given", [{}, {"ack": "explicit"}, {"group": True}, {"group": True, "ack": "explicit"}])
def test_an_immediate_shutdown_lets_nobody_get_anything(queue, given):
    """What is left stays there; readers see it."""
    queue.put_many([b"a", b"b"])
    with queue.consumer("c", **given) as consumer:
        queue.shutdown(immediate=True)
        queue.shutdown()  # takes nothing back
        for refused in (consumer.get, consumer.take, functools.partial(consumer.take_many, 2)):
            with pytest.raises(shmq.ShutDown, match="shut down at once; what is left"):
                refused()
        assert list(consumer) == []
        assert [message.payload for message in queue.reader()] == [b"a", b"b"]
        assert list(queue.reader(follow=True)) == []
        assert consumer.lag == 2


def test_shut_down_is_the_standard_librarys_where_it_has_one():
    """From 3.13 on."""
    assert issubclass(shmq.ShutDown, getattr(stdlib, "ShutDown", Exception))


# ---------------------------------------------------------------- for good
def test_a_finish_outlives_the_process_and_consumers_that_come_later_drain(make):
    """A new name, an old one, a group, a reader: each gets what there is, and then is told."""
    queue = make()
    path = queue.path
    queue.put_many([b"%d" % number for number in range(10)])
    old = queue.consumer("old")
    old.take_many(3)
    queue.finish()
    assert queue.finished
    assert queue.stats().finished
    old.close()
    queue.close()

    def later():
        with shmq.open(path, create=False) as found:
            one, many = found.consumer("new"), found.consumer("g", group=True, ack="explicit")
            told = [
                len(list(one)),
                len(list(found.consumer("old"))),
                len(work(many)),
                len(list(found.reader(follow=True))),
            ]
            with pytest.raises(shmq.ShutDown, match="was finished, and consumer 'new' has drained it"):
                one.take()
            with pytest.raises(shmq.ShutDown, match="was finished, and group 'g' has drained it"):
                many.take()
            return told

    assert in_child(later) == str([10, 7, 10, 10])
    with shmq.open(path, create=False, read_only=True) as looking:
        assert looking.finished
        assert len(list(looking.reader(follow=True))) == 10


def test_handles_that_were_open_may_not_put_and_later_ones_open_it_again(make):
    """Making a producer is enough; from then on everybody may put."""
    queue = make()
    queue.put(b"a")
    own = queue.producer()
    queue.finish()
    queue.finish()
    for refused in (lambda: queue.put(b"x"), lambda: own.put_many([b"x"]), lambda: queue.reserve(1)):
        with pytest.raises(shmq.ShutDown, match=r"the queue was finished.*nothing was put"):
            refused()
    with make() as later:
        assert later.finished
        consumer = later.consumer("c")
        assert [message.payload for message in consumer] == [b"a"]
        assert later.put(b"b") == 1
        assert not later.finished
        assert consumer.take(timeout=DEADLINE) == b"b"
        assert queue.put(b"c") == 2
        later.finish()
        with pytest.raises(shmq.ShutDown):
            later.put(b"x")
        with make() as again:
            again.producer().close()
            assert not again.finished
            assert later.put(b"d") == 3


def test_a_finish_wakes_whoever_waits(make):
    """For a message; for more to read; for room."""
    queue = make(max_messages=1)
    queue.put(b"a")
    consumer = queue.consumer("c")
    assert consumer.take() == b"a"
    queue.put(b"b")

    def put():
        with contextlib.suppress(shmq.ShutDown):
            queue.put(b"c")

    def read():
        list(queue.reader(follow=True))

    def get():
        with queue.consumer("g", group=True, ack="explicit") as member:
            work(member)

    threads = [threading.Thread(target=each, daemon=True) for each in (put, read, get)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    queue.finish()
    for thread in threads:
        thread.join(DEADLINE)
    assert not [thread for thread in threads if thread.is_alive()]


def test_what_was_put_before_with_dedup_opens_nothing(make):
    """It is not put again; what is new is."""
    with make() as queue:
        first = queue.put(b"a", dedup=("p", 1))
        queue.finish()
        with make() as later:
            assert later.put(b"a", dedup=("p", 1)) == first
            assert later.finished
            later.put(b"b", dedup=("p", 2))
            assert not later.finished


def test_a_set_is_adopted_behind_the_end_only_by_who_came_later(make):
    """What was staged before waits."""
    with make() as queue:
        queue.put(b"a")
        with queue.stage() as staged:
            staged.put_many([b"b", b"c"])
            queue.finish()
            with pytest.raises(shmq.ShutDown, match="was finished; nothing was adopted"):
                queue.adopt(staged)
        with make() as later, later.stage() as staged:
            staged.put(b"d")
            later.adopt(staged)
            assert [message.payload for message in later.reader()] == [b"a", b"d"]


def test_it_survives_a_reboot_and_a_copy(tmp_path):
    """A recovery goes on in a new epoch, and the stream has ended all the same."""
    path = str(tmp_path / "q")
    with shmq.open(path) as queue:
        queue.put_many([b"a", b"b"])
        queue.finish()
        queue.copy(tmp_path / "copied")
        queue.copy(tmp_path / "own", new_id=True)
    make_unclean(path)
    with shmq.open(path, create=False, read_only=True) as looking:
        assert len(list(looking.reader(follow=True))) == 2
    for each in (path, str(tmp_path / "copied"), str(tmp_path / "own")):
        with shmq.open(each, create=False) as found:
            assert found.finished
            assert [message.payload for message in found.consumer("c")] == [b"a", b"b"]
            found.put(b"c")
            assert not found.finished


@pytest.mark.parametrize("where", ["before", "behind"])
def test_killed_in_the_middle_it_is_finished_or_not(make, where):
    """Before the journal was written nobody is refused any more; behind it everybody knows, as soon as it looks."""
    queue = make()
    queue.put(b"a")
    consumer = queue.consumer("c")

    def end(say):
        from shmq.storage.directory import Directory

        write = Directory.write_journal

        def killed(self, journal):
            if where == "behind":
                write(self, journal)
            say("there")
            signal.pause()

        Directory.write_journal = killed
        queue.finish()

    with Child(end) as child:
        assert child.hear() == "there"
        assert consumer.take(timeout=0) == b"a"
        waiting = threading.Thread(target=lambda: list(consumer), daemon=True)
        waiting.start()
        child.kill()
    if where == "behind":
        waiting.join(DEADLINE)
        assert not waiting.is_alive()
        assert queue.finished
        with pytest.raises(shmq.ShutDown):
            queue.put(b"x")
    else:
        assert queue.put(b"x") == 1
        assert not queue.finished
        queue.finish()
        waiting.join(DEADLINE)
        assert not waiting.is_alive()


def test_it_waits_for_what_is_reserved(make):
    """Which belongs to the stream."""
    queue = make()
    slot = queue.reserve(1)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (queue.finish(), done.set()), daemon=True)
    thread.start()
    assert not done.wait(0.05)
    slot.commit()
    assert done.wait(DEADLINE)
    assert queue.consumer("c").take(timeout=0) == b"\0"


def test_a_forked_child_knows(queue):
    """It was open before, in its parent."""
    queue.put(b"a")
    queue.finish()

    def put():
        with pytest.raises(shmq.ShutDown):
            queue.put(b"x")
        return [message.payload.decode() for message in queue.consumer("child")]

    assert in_child(put) == "['a']"


def test_no_put_that_returned_lies_behind_an_end_that_was_told(make):
    """Whoever puts while it is finished has put before it, or is refused."""
    queue = make()

    def put(say):
        say("puts")
        count = 0
        with contextlib.suppress(shmq.ShutDown):
            while True:
                queue.put(b"x")
                count += 1
        say(str(count))

    with Child(put) as one, Child(put) as other:
        one.hear(), other.hear()
        consumer = queue.consumer("c")
        for _ in range(100):
            consumer.take()
        queue.finish()
        rest = 0
        with contextlib.suppress(shmq.ShutDown):
            while True:
                rest += len(consumer.take_many(1000))
        assert 100 + rest == int(one.hear()) + int(other.hear())


def test_stat_says_so(make, capsys):
    """For people and as JSON."""
    from shmq.cli import main

    with make() as queue:
        queue.finish()
        if not queue.place.startswith("shm:"):
            assert main(["stat", queue.path]) == 0
            assert "finished" in capsys.readouterr().out
            assert Path(queue.path).exists()
