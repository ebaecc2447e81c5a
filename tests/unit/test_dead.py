"""Dead letters and what expired: moved once, whoever is killed when; put back once, too."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from support import Child, hold_until_killed, until

import shmq
from shmq.cli import main
from shmq.message import TOLD
from shmq.taking import dead

WAIT = 60
"""Seconds after which something that should happen at once is taken not to happen."""


def join(queue, **options):
    return queue.consumer("g", group=True, ack="explicit", **options)


def payloads(path):
    with shmq.open(path, create=False) as queue:
        return [message.payload for message in queue.reader()]


def drain(member, head):
    """Take what there is, and hand nothing on, until the head is there."""

    def is_there():
        try:
            message = member.get(0)
        except shmq.Empty:
            return member.head == head
        raise AssertionError(f"{message.payload} was handed out")

    until(is_there, WAIT)


def stopped(at):
    """Have this process stop where a move is: before or after it marks, copies or finishes."""
    from shmq import _native

    kind, call, after = {
        "before the mark": (_native.Ring, "moving", False),
        "behind the mark": (dead.Mover, "put", False),
        "behind the copy": (dead.Mover, "put", True),
        "behind the end": (_native.Ring, "ack", True),
    }[at]
    real = getattr(kind, call)

    def stop(say):
        def patched(*arguments, **options):
            if after:
                real(*arguments, **options)
            hold_until_killed(say)

        setattr(kind, call, patched)

    return stop


@pytest.mark.parametrize("at", ["before the mark", "behind the mark", "behind the copy", "behind the end"])
def test_a_letter_is_never_lost_and_never_twice(queue, path, at):
    """Killed there; the next member goes on, and an operator who is quick has finished the letter by then."""
    queue.put(b"bad")
    stop = stopped(at)

    def die(say):
        stop(say)
        join(queue, max_attempts=1).get(0).reject("bad")

    with Child(die) as child:
        child.hear()
        child.kill()
    drain(join(queue), 1)
    assert payloads(f"{path}.g.dead") == [b"bad"]


def test_a_letter_that_is_finished_and_gone_is_not_put_again(queue, path):
    """The operator was quicker than whoever took over from the dead mover: nothing is left to look at but the id."""
    queue.put(b"bad")
    stop = stopped("behind the copy")
    operated = shmq.open(f"{path}.g.dead", options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.acked()))

    def die(say):
        stop(say)
        join(queue).get(0).reject("bad")

    with Child(die) as child:
        child.hear()
        child.kill()
    with operated:
        operator = operated.consumer("operator", group=True, ack="explicit")
        operator.get(WAIT).ack()
        while operated.first_index == 0:
            operated.put_many([bytes(100)] * 50)
            operator.ack(*operator.get_many(50, WAIT))
        operator.close()
        drain(join(queue), 1)
        assert b"bad" not in payloads(operated.path)


@pytest.mark.parametrize("at", ["behind the mark", "behind the copy"])
def test_what_expired_is_moved_once_and_is_no_letter(queue, path, tmp_path, at):
    """Whoever takes over from the dead mover knows why it was moved."""
    queue.put(b"old", ttl=0)
    stop = stopped(at)

    def die(say):
        stop(say)
        join(queue, expire_to="old").get(0)

    with Child(die) as child:
        child.hear()
        child.kill()
    drain(join(queue), 1)
    assert payloads(str(tmp_path / "old")) == [b"old"]
    assert not os.path.exists(f"{path}.g.dead")


def test_a_letter_that_expired_meanwhile_is_still_one(queue, path, tmp_path, monkeypatch):
    """It was copied to the letters when its mover died, so it is not copied to what expired as well."""
    queue.put(b"bad", ttl=3600)
    stop = stopped("behind the copy")

    def die(say):
        message = join(queue, expire_to="old").get(0)
        stop(say)
        message.reject("bad")

    with Child(die) as child:
        child.hear()
        child.kill()
    monkeypatch.setitem(TOLD, "expired", lambda _: True)
    drain(join(queue), 1)
    assert payloads(f"{path}.g.dead") == [b"bad"]
    assert not (tmp_path / "old").exists()


def test_movers_that_are_killed_anywhere_move_everything_once(queue, path):
    """At random moments, many times."""
    count, chance = 60, random.Random(7)
    queue.put_many([b"%d" % i for i in range(count)])
    join(queue).close()

    def work(say):
        member = join(queue)
        say("ready")
        while True:
            member.get(WAIT).reject("bad")

    watcher = join(queue)
    deadline = time.monotonic() + WAIT
    while watcher.head < count:
        assert time.monotonic() < deadline
        with Child(work) as child:
            child.hear()
            time.sleep(chance.uniform(0, 0.1))
            child.kill()
    found = payloads(f"{path}.g.dead")
    assert sorted(map(int, found)) == list(range(count))


def test_a_requeue_that_was_killed_puts_it_back_once(queue, path, capsys):
    """Between the put and the end of the letter; asked again, it finishes."""
    queue.put(b"bad")
    with join(queue) as member:
        member.get(0).reject("bad")
    letters = f"{path}.g.dead"

    def die(say):
        enter = shmq.GroupConsumer._enter_ring

        def enter_for_python(self):
            enter(self)
            self._stop()

        shmq.GroupConsumer._enter_ring = enter_for_python
        shmq.GroupConsumer._ack_one = lambda *_: hold_until_killed(say)
        main(["dead", "requeue", letters, "0"])

    with Child(die) as child:
        child.hear()
        child.kill()
    assert main(["dead", "requeue", letters, "0"]) == 0
    assert "letter 0 is message 1" in capsys.readouterr().out
    assert payloads(path) == [b"bad", b"bad"]
    assert main(["dead", "ls", letters]) == 0
    assert "no dead letters" in capsys.readouterr().out


def test_a_letter_that_was_put_back_can_die_again(queue, path):
    """It is another message then, and another letter."""
    queue.put(b"bad")
    member = join(queue)
    letters = f"{path}.g.dead"
    for index in (0, 1):
        member.get(WAIT).reject("bad")
        assert main(["dead", "requeue", letters, str(index)]) == 0
    assert member.get(WAIT).index == 2
    assert payloads(letters) == [b"bad", b"bad"]


@pytest.mark.parametrize("durability", [shmq.Durability.PROCESS, shmq.Durability.SYNC])
def test_a_reject_that_the_disk_did_not_answer_says_that_the_letter_is_there(tmp_path, monkeypatch, durability):
    """Somebody's open claim is before it: the message is still held, and rejected again it is one letter."""
    with shmq.open(str(tmp_path / "q"), durability=durability) as queue:
        queue.put(b"first")
        queue.put(b"bad")
        group = queue.consumer("g", group=True, ack="explicit", start="earliest")
        group.get(0).reject("the queue of letters is there now")
        message = group.get(0)
        with shmq.open(f"{queue.path}.g.dead") as letters:
            slot = letters.reserve(8)
            monkeypatch.setattr(dead, "_DISK_SECONDS", 0.05)
            with pytest.raises(
                shmq.SyncPending, match="is a dead letter now, and this consumer still holds it"
            ) as raised:
                message.reject("bad")
            assert (raised.value.index, group.pending) == (2, 1)
            monkeypatch.undo()
            ends = threading.Timer(0.1, slot.abort)  # who waits is told
            ends.start()
            message.reject("bad")
            ends.join()
            assert (letters[2].payload, letters.next_index) == (b"bad", 3)
        assert (group.lag, group.pending) == (0, 0)
        group.close()
