"""How much of a queue is padding: its count is right whoever was killed between padding something and counting it."""

from __future__ import annotations

import pytest
from support import Child, hold_until_killed, make_unclean

import shmq

LONG = 60.0


def die_between(say, path):
    """A process that has said it is about to pad, and has counted wrongly."""
    with shmq.open(path) as queue:
        queue.reserve(8)
        member = queue._session.joined().member
        with member.changing_padding():
            member.control.add_padding(5)
            hold_until_killed(say)


def die_retiring(say, path):
    """A process that has raised where the queue begins, and not counted yet what went."""
    with shmq.open(path) as queue:
        control = queue._session.joined().control
        control.remove_padding = lambda count: (say(count), hold_until_killed(say))
        queue.purge()


def die_adopting(say, path):
    """A process that has adopted a set with padding in it, and has not counted it."""
    with shmq.open(path) as queue:
        control = queue._session.joined().control
        control.add_padding = lambda count: (say(count), hold_until_killed(say))
        staged = queue.stage()
        staged.put_many([b"s"] * 3)
        staged.reserve(8).abort()
        staged.put(b"s")
        queue.adopt(staged)


def measure(say, path):
    """Another process, which sits down where the dead one sat."""
    with shmq.open(path) as queue:
        say(f"{len(queue)} {queue.stats().padded}")


@pytest.mark.parametrize("who", ["the one that was there", "the next on its seat", "a reader"])
def test_len_is_right_after_a_kill_between_padding_and_counting(queue, path, who):
    """Whoever asks first counts anew, once."""
    queue.put_many([b"x"] * 10)
    with Child(die_between, path) as child:
        child.hear()
        child.kill()
    queue.put(b"y")
    assert len(list(queue.reader())) == 11  # the claim is padding now
    if who == "the next on its seat":
        with Child(measure, path) as child:
            assert child.hear() == "11 1"
    if who == "a reader":
        with shmq.open(path, read_only=True) as other:
            assert (len(other), other.stats().padded) == (11, 1)
    assert (len(queue), queue.stats().padded) == (11, 1)
    assert queue._session.joined().control.counters()[0] == 1
    assert not queue._session.joined().member.padding_doubted()
    queue.reserve(1).abort()
    assert (len(queue), queue.stats().padded) == (11, 2)


def test_len_is_right_after_a_kill_while_chunks_were_retired(make, path):
    """The padding in them went with them."""
    queue = make(chunk_bytes=16384)
    for _ in range(40):
        queue.put(bytes(1000))
        queue.reserve(8).abort()
    with Child(die_retiring, path) as child:
        assert int(child.hear(LONG)) > 0
        child.kill()
    there = len(list(queue.reader()))
    assert 0 < there < 40
    assert len(queue) == there


def test_len_is_right_after_a_kill_while_a_set_was_adopted(queue, path):
    """It is in the queue, with its padding."""
    queue.put(b"x")
    with Child(die_adopting, path) as child:
        assert child.hear(LONG) == "1"
        child.kill()
    assert len(list(queue.reader())) == 5
    assert (len(queue), queue.stats().padded) == (5, 1)


def test_nobody_waits_for_one_that_is_stopped_between_padding_and_counting(queue, path):
    """What is told meanwhile may be off by what it pads; nobody hangs, and it is right when it goes on."""
    queue.put_many([b"x"] * 10)
    with Child(die_between, path) as stopped, Child(die_between, path) as killed:
        stopped.hear()
        killed.hear()
        killed.kill()
        assert len(queue) >= 0
        stopped.kill()
    assert len(list(queue.reader())) == 10
    assert (len(queue), queue.stats().padded) == (10, 2)


def test_len_of_a_queue_that_nobody_has_recovered_yet_is_right_for_who_only_looks(queue, path):
    """The count in the control page is of another boot, and says nothing."""
    queue.put_many([b"x"] * 10)
    for _ in range(3):
        queue.reserve(8).abort()
    queue.put(b"y")
    queue.close()
    make_unclean(path)
    with shmq.open(path, read_only=True) as looking:
        assert (len(looking), looking.stats().padded) == (11, 3)
        assert len(list(looking.reader())) == 11


def test_len_does_not_count_what_a_dead_producer_had_claimed(queue, path):
    """Though nobody has walked over it since."""

    def claim(say):
        with shmq.open(path) as mine:
            mine.put(b"x")
            slot = mine.reserve(8)
            assert slot.index == 1
            hold_until_killed(say)

    with Child(claim) as child:
        child.hear()
        assert len(queue) == 2
        child.kill()
    assert len(queue) == 1
    assert queue.put(b"y") == 2
    assert len(queue) == 2
