"""Consumers of a client that goes, and comes back or does not: they live in time; nothing acknowledged comes again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading

import pytest
from remote import cable, serving
from support import Child, until

import shmq
from shmq.net import packing
from shmq.net.frames import Frames, framed
from shmq.net.shmq1.consuming import Consumer


def explicit(queue, name="g", **options):
    return queue.consumer(name, group=True, ack="explicit", **options)


def test_within_the_grace_all_is_as_before(orders, root):
    """What was handed out is held, what was sent and did not arrive comes, acknowledgements count; in one order."""
    orders.put_many([b"%d" % each for each in range(200)])
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        group, plain = explicit(queue, prefetch=7), queue.consumer("plain", prefetch=5)
        held, seen = group.get_many(5), []
        for cut in range(12):
            made = link.made
            link.cut_after(30 + 37 * cut, "down" if cut % 2 else "up")
            seen += plain.take_many(6, timeout=20)
            group.ack(held.pop(0))
            held.append(group.get(timeout=20))
            if link.made == made:
                link.cut()
            link.was_cut(made)
        assert seen == [b"%d" % each for each in range(len(seen))]
        group.ack(*held)
        assert [m.index for m in held] == list(range(12, 17))
        with explicit(orders) as here:
            assert here.lag == 200 - 17
        assert {message.attempts for message in held} == {1}


def test_what_is_sent_to_a_client_that_came_back_does_not_overtake_what_was_lost():
    """It says first what it has; a batch that came before would have it take the lost one for one that it has."""

    class Awaited:
        ack_mode, plain = "auto", None

    async def room():
        pass

    async def story():
        sent = []
        consumer = Consumer(1, Awaited(), shmq.net.Limits(), lambda message: sent.append(message[3]), room)
        for number in range(1, 6):
            if number == 4:
                consumer.hold_back()
            consumer._hand_out(0, [], shmq.Empty("as good as a batch"))
        assert sent == [1, 2, 3]
        consumer.send_again(1)
        assert sent == [1, 2, 3, 2, 3, 4, 5]
        consumer._hand_out(0, [], shmq.Empty("as good as a batch"))
        assert sent[-1] == 6

    asyncio.run(story())


def test_after_the_grace_what_was_held_is_given_to_others_and_acks_are_lost(orders, root):
    orders.put_many([b"0", b"1", b"2"])
    with (
        serving(root, grace=1.0) as server,
        cable(server) as link,
        shmq.net.connect(server.csp(path=link.path)) as queue,
        server.connect() as other,
    ):
        group, others = explicit(queue), explicit(other)
        first, second = group.get_many(2)
        first.ack()
        alone = queue.consumer("alone")
        link.refuses = True
        link.cut()
        assert [m.index for m in others.get_many(2, timeout=20)] == [2]
        again = others.get(timeout=20)
        assert (again.index, again.attempts) == (1, 2)
        with eventually(lambda: other.consumer("alone")) as taken:
            link.refuses = False
            with pytest.raises(shmq.LeaseLost):
                second.ack()
            with pytest.raises(shmq.Busy):
                alone.take(timeout=20)
            assert taken.take() == b"0"
        again.ack()
        orders.put(b"3")
        assert group.get(timeout=20).payload == b"3"


def test_what_a_killed_server_had_handed_out_comes_again_at_once(orders, root):
    orders.put_many([b"%d" % each for each in range(6)])
    with serving(root) as server, server.connect() as queue:
        group = explicit(queue)
        first, second = group.get_many(2)
        first.ack()
        server.kill()
        server.start()
        assert group.get(timeout=20).index == 1
        with pytest.raises(shmq.LeaseLost, match="begun anew"):
            second.ack()


def test_killed_on_both_sides_nothing_acknowledged_comes_again_and_nothing_is_lost(orders, root):
    """Workers that are killed and a server that is: each message is acknowledged at last, and none after that."""
    total = 4000
    orders.put_many([b"%d" % each for each in range(total)])

    def work(say):
        with server.connect() as queue, explicit(queue) as group:
            while True:
                try:
                    messages = group.get_many(5, timeout=8)
                    group.ack(*messages)
                except shmq.LeaseLost:
                    continue
                except shmq.Empty:
                    return
                say(" ".join(str(message.index) for message in messages))

    with serving(root, grace=1.0) as server:
        acked: list[int] = []
        for turn in range(6):
            with Child(work) as child:
                for _ in range(4):
                    acked += map(int, child.hear().split())
                if turn % 2:
                    server.kill()
                    server.start()
                    acked += map(int, child.hear().split())
                child.signal(signal.SIGKILL)
                with contextlib.suppress(AssertionError):  # it has ended
                    while True:
                        acked += map(int, child.hear().split())
        with Child(work) as last, contextlib.suppress(AssertionError):
            while True:
                acked += map(int, last.hear().split())
    assert len(acked) == len(set(acked))
    with explicit(orders) as here:
        assert here.lag == 0
    # Of a worker that was killed between its acknowledgement and its word, nobody has heard.
    assert total - len(acked) <= 6 * 5


def test_who_reads_nothing_and_who_is_half_open_disturbs_nobody(orders, root):
    """One asks for everything and leaves it unread; one stops in the middle of a frame; one is silent."""
    orders.put_many([bytes(1000)] * 3000)
    with serving(root) as server:
        greedy = greeted(server)
        greedy.settimeout(0.2)
        with contextlib.suppress(TimeoutError):  # nobody reads on from somebody who reads nothing
            for tid in range(2, 800):
                greedy.sendall(framed(packing.encode(["read", tid, 0, None, 1000, None, {}])))
        half = greeted(server)
        half.sendall(framed(packing.encode(["ping", 1]))[:5])
        silent = greeted(server)
        with server.connect() as queue, explicit(queue) as group:
            for each in range(100):
                queue.put(b"%d" % each)
            group.ack(*group.get_many(100, timeout=10))
            assert sum(1 for _ in queue.reader()) == 3100
        for each in (greedy, half, silent):
            each.close()


def eventually(call):
    """What *call* returns when it is not Busy any more."""
    while True:
        with contextlib.suppress(shmq.Busy):
            return call()


def greeted(server):
    """A connection that has said hello, and has read the answer."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(20)
    link.connect(server.path)
    link.sendall(framed(b"header: { wire-formats: [ Shmq1 ] }\n"))
    said = hello(link, {"version": packing.VERSION, "features": [], "session": bytes(16), "queue": "orders"})
    assert said[0] == "ok"
    return link


def hello(link, told):
    link.sendall(framed(packing.encode(["hello", 1, told])))
    frames, found = Frames(1 << 20), []
    while True:
        found += frames.feed(link.recv(1 << 16))
        for frame in found:
            if frame.body[:1] >= b"\x80":
                return packing.decode(frame.body)


@pytest.mark.parametrize(
    ("told", "named"),
    [({"version": 2}, "version 2"), ({"features": ["compression"]}, "compression"), ({"session": b"short"}, "session")],
)
def test_what_a_server_does_not_know_it_refuses_by_name(orders, root, told, named):
    right = {"version": packing.VERSION, "features": [], "session": bytes(16), "queue": "orders"}
    with serving(root) as server, socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(server.path)
        link.sendall(framed(b"header: { wire-formats: [ Shmq1 ] }\n"))
        verb, tid, kind, text, _ = hello(link, {**right, **told})
        assert (verb, tid, kind) == ("error", 1, "BadFormat" if named != "session" else "ValueError")
        assert named in text


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\x90",
        b"\x92\xa4ping\xa1x",
        ["nothing", 9],
        ["put", 9],
        ["put", 9, 0, None, b"\x01\0\0", b"x", None],
        ["put", 9, 0, None, b"\x02\0\0\0", b"x", None],
        ["put", 9, 0, None, b"\x01\0\0\0", b"x", {"strange": 1}],
        ["put", 9, 0, None, b"\x01\0\0\0", b"x", None],  # it has no slot
        ["put", 9, 0, None, b"", b"", None],
        ["put", 9, None, None, b"\x01\0\0\0", b"x", {"dedup": ["net/0", 1]}],
        ["get", 9, 77, 0, 1, 0],
        ["call", 9, "__class__"],
        ["call", 9, "at_ns"],
        ["credit", 0, 5],
        ["ack", 9, 5, [1]],
        ["read", 9, 0, None, 1, None, {"pin": True}],
        ["consumer", 9, 1, "c", {"strange": 1}],
    ],
    ids=str,
)
def test_a_request_that_is_none_is_an_error_and_the_connection_stays(orders, root, body):
    with serving(root) as server, greeted(server) as link:
        link.sendall(framed(body if isinstance(body, bytes) else packing.encode(body)))
        link.sendall(framed(packing.encode(["call", 10, "next_index"])))
        frames, found = Frames(1 << 20), []
        while len(found) < 2:
            found += [packing.decode(frame.body) for frame in frames.feed(link.recv(1 << 16))]
        assert sorted(message[0] for message in found) == ["error", "ok"]
        assert ["ok", 10, 0] in found


def test_a_program_that_ends_without_a_close_frees_its_names_at_once(orders, root):
    """It parts at its end; only one that is killed leaves them for the grace."""

    def forgets(say):
        queue = server.connect()
        queue.consumer("c")
        import atexit

        atexit._run_exitfuncs()
        say("over")

    with serving(root) as server, Child(forgets) as child:
        assert child.hear() == "over"
        with server.connect() as queue, queue.consumer("c") as consumer:
            assert consumer.name == "c"


def test_ctrl_c_in_a_get_loses_nothing(orders, root):
    with serving(root) as server, server.connect() as queue:
        for options in ({"group": True, "ack": "explicit"}, {}):
            consumer = queue.consumer(f"c{len(options)}", start="latest", **options)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                consumer.get(timeout=20)
            index = orders.put(b"x")
            until(lambda index=index: orders.next_index > index)
            assert consumer.get(timeout=20).payload == b"x"
