"""A caller that sends its call and hears the answer itself, while nothing else is under way; what comes in between."""

from __future__ import annotations

import threading
import time

import pytest
from interrupts import Round
from remote import payloads, serving
from support import DEADLINE, until

import shmq
from shmq.net.client import dial, link


@pytest.fixture
def server(root):
    with serving(root) as made:
        yield made


@pytest.fixture
def few(root):
    """Who takes, here, from a queue that has room for one message."""
    with shmq.open(root / "few", max_messages=1) as queue, queue.consumer("c") as consumer:
        yield consumer


@pytest.fixture
def handed(monkeypatch):
    """The verbs of calls that were handed to the link's thread."""
    found = []
    ask = link.Link.ask
    monkeypatch.setattr(link.Link, "ask", lambda here, call: (found.append(call.verb), ask(here, call))[1])
    return found


def quiet(queue) -> None:
    """Return when nothing is under way, also what nobody waits for any more: the next caller is alone."""
    here = queue._link
    until(
        lambda: (
            here._watch is not None
            and here._is_idle()
            and not (here._turn.is_half_done or here._told_to_wake or here._turn.lock.locked())
        )
    )
    assert not here._batches


def test_who_is_alone_asks_for_nobodys_help(orders, server, handed):
    """But for the first put, before which the session has no slot."""
    with server.connect() as queue:
        queue.put(b"first")
        handed.clear()
        quiet(queue)
        assert [queue.put(b"%d" % number, key=b"k") for number in range(50)] == list(range(1, 51))
        assert queue.next_index == 51
        assert [message.key for message in queue[1:51]] == [b"k"] * 50
        assert handed == []


@pytest.mark.parametrize("verb", ["put", "ask"])
def test_an_interrupted_caller_leaves_a_link_that_goes_on(orders, root, server, verb):
    """What is raised at any place between two instructions: nothing is there twice, and what returned is there."""
    with server.connect() as queue:
        queue.put(b"first")
        returned = [b"first"]
        number = beyond = 0
        while beyond < 3:  # an answer that is there at once has fewer places: one round beyond the last proves nothing
            this = Round(number)
            quiet(queue)
            payload = b"%d" % number
            with this.interrupted():
                if verb == "put":
                    queue.put(payload)
                    returned.append(payload)
                else:
                    assert queue.next_index == len(returned), this.at
            if verb == "ask" or this.raised:
                payload = b"after %d" % number
                queue.put(payload)
                returned.append(payload)
            number, beyond = number + 1, 0 if this.raised else beyond + 1
        assert number > {"put": 80, "ask": 45}[verb]  # an ask has 47 where every answer is there at once, else 52
        quiet(queue)
    found = payloads(root / "orders")
    assert len(found) == len(set(found))
    known = set(returned)
    assert [payload for payload in found if payload in known] == returned


@pytest.mark.parametrize("verb", ["put", "take"])
def test_a_handler_that_asks_for_something_at_any_place_is_answered(orders, root, server, verb):
    """It has interrupted the very caller that has the turn, who would not give it back before the handler returns."""
    with server.connect() as queue, queue.consumer("c") as consumer:
        queue.put(b"first")
        assert consumer.take(timeout=DEADLINE) == b"first"
        put, taken = [b"first"], [b"first"]

        def nested() -> None:
            if verb == "put":
                queue.put(b"nested %d" % number, timeout=DEADLINE)
                put.append(b"nested %d" % number)
            else:
                orders.put(b"nested %d" % number)
                put.append(b"nested %d" % number)
                taken.append(consumer.take(timeout=DEADLINE))

        for number in range(10_000):
            this = Round(number, nested)
            quiet(queue)
            with this.interrupted():
                queue.put(b"%d" % number, timeout=DEADLINE)
            put.append(b"%d" % number)
            if not this.raised:
                break
        assert number > 50
        quiet(queue)
        while len(taken) < len(put):
            taken.append(consumer.take(timeout=DEADLINE))
    assert sorted(payloads(root / "orders")) == sorted(taken) == sorted(put)


def test_whoever_comes_meanwhile_is_not_kept_waiting(few, server, monkeypatch):
    """One caller listens, for ever, for an answer that does not come: there is no room."""
    monkeypatch.setattr(link, "_HERE", 1e6)
    with server.connect("few") as queue:
        queue.put(b"0")
        put = []
        waits = threading.Thread(target=lambda: put.append(queue.put(b"1", timeout=DEADLINE)))
        waits.start()
        until(lambda: queue._link._flight)
        assert queue.next_index == 1
        assert few.take(timeout=DEADLINE) == b"0"
        waits.join(DEADLINE)
        assert put == [1]


def test_an_answer_that_takes_long_comes_to_the_thread(few, server):
    """It is listened for only for a moment, and then waited for as ever."""
    with server.connect("few") as queue:
        queue.put(b"0")
        later = threading.Timer(0.3, few.take)
        later.start()
        assert queue.put(b"1", timeout=DEADLINE) == 1
        later.join(DEADLINE)


def test_what_comes_for_others_meanwhile_reaches_them(orders, server):
    """A consumer is sent messages while a caller listens; threads put, ask and take side by side."""
    with server.connect() as queue, queue.consumer("c") as consumer:
        taken, put = [], [[], [], []]

        def take() -> None:
            while len(taken) < 900:
                taken.append(consumer.take(timeout=DEADLINE))

        def puts(who: int) -> None:
            for number in range(300):
                queue.put(b"%d %d" % (who, number))
                put[who].append(b"%d %d" % (who, number))
                if number % 50 == 0:
                    time.sleep(0.03)  # so that another one is alone for a while

        threads = [threading.Thread(target=take), *(threading.Thread(target=puts, args=(who,)) for who in range(3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * DEADLINE)
        for who in range(3):
            assert [payload for payload in taken if payload.startswith(b"%d " % who)] == put[who]
        assert len(taken) == 900


def test_the_thread_hears_what_comes_after_a_caller_has_listened(orders, root, handed):
    """It has the socket again, and need not wait for its next heartbeat, which is hours away here."""
    with serving(root, grace=1e5) as server, server.connect() as queue, queue.consumer("c") as consumer:
        taken = []
        taker = threading.Thread(target=lambda: taken.append(consumer.take(timeout=DEADLINE)))
        taker.start()
        until(lambda: consumer.held._granted)
        quiet(queue)
        handed.clear()
        assert queue.next_index == 0
        assert handed == []
        orders.put(b"x")
        taker.join(2 * DEADLINE)
        assert taken == [b"x"]


def test_a_server_that_goes_while_a_caller_listens_is_found_again(orders, root, server):
    """The caller hears the end of the connection; its put is there once."""
    with server.connect() as queue:
        queue.put(b"first")
        for number in range(5):
            server.kill()
            server.start()
            assert queue.put(b"%d" % number, timeout=DEADLINE) == number + 1
    assert payloads(root / "orders") == [b"first", *(b"%d" % number for number in range(5))]


def test_who_closes_while_another_listens_is_done_in_time(few, server):
    """The listener's message is put, or it is told; it is not left alone."""
    queue = server.connect("few")
    queue.put(b"0")
    said = []

    def wait() -> None:
        try:
            said.append(queue.put(b"1", timeout=DEADLINE))
        except shmq.ShmqError as problem:
            said.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: queue._link._flight or said)
    assert few.take(timeout=DEADLINE) == b"0"
    queue.close()
    thread.join(DEADLINE)
    assert len(said) == 1


def test_found_the_second_of_two_batches_came_before_the_first_where_a_turn_was_lost(orders, server, monkeypatch):
    """Of an old connection, it was handed to the thread of the new one, and the first, sent again, passed for known."""
    with server.connect() as queue, queue.consumer("c") as consumer:
        queue.put(b"first")
        assert consumer.take(timeout=DEADLINE) == b"first"
        quiet(queue)
        here, listens, original = queue._link, threading.get_ident(), dial.Line.messages

        def messages(line):
            if threading.get_ident() != listens:
                return original(line)
            monkeypatch.setattr(dial.Line, "messages", original)
            found = []
            for count in (1, 2):  # a batch each
                orders.put(b"%d" % count)
                while [message[0] for message in found].count("messages") < count:
                    found += original(line) or ()
            return lose_the_turn_between(found)

        def lose_the_turn_between(found):
            yield from found[:-1]
            here.waits()  # as a handler does that asks for something
            until(lambda: here._line is None)
            yield found[-1]

        monkeypatch.setattr(dial.Line, "messages", messages)
        while dial.Line.messages is messages:  # whoever is not alone after all leaves it to the link's thread
            quiet(queue)
            assert queue.next_index >= 1
        assert consumer.take_many(1, timeout=DEADLINE) + consumer.take_many(1, timeout=DEADLINE) == [b"1", b"2"]
