"""A put is there once, whatever happens to link, server or client; and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time

import pytest
from remote import cable, payloads, serving
from support import Child, until

import shmq

BATCH = 50


def named(who, batch):
    return [b"%s %d %d" % (who, batch, each) for each in range(BATCH)]


def whole(found, who=b"a"):
    """Check that batches are whole, in order, and there once; how many there are."""
    mine = [payload for payload in found if payload.startswith(who)]
    batches = [mine[at : at + BATCH] for at in range(0, len(mine), BATCH)]
    numbers = [int(batch[0].split()[1]) for batch in batches]
    assert batches == [named(who, number) for number in numbers]
    assert numbers == sorted(set(numbers))
    return numbers


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_link_that_is_cut_in_the_middle_of_batches_doubles_and_loses_nothing(orders, root, way):
    """Requests are cut in the middle, and replies: each batch is sent again as it was, and is there once."""
    rng = random.Random(7)
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        futures = []
        for batch in range(300):
            futures.append(queue.submit_many(named(b"a", batch)))
            if batch % 30 == 9:
                made = link.made
                link.cut_after(rng.randrange(1, 4000 if way == "up" else 120), way)
                link.was_cut(made) if batch % 60 == 9 else time.sleep(0.001)
        ranges = [future.result(30) for future in futures]
    assert link.made > 5
    assert whole(payloads(root / "orders")) == list(range(300))
    assert [each.start for each in ranges] == list(range(0, 300 * BATCH, BATCH))


def test_a_server_that_is_killed_again_and_again_doubles_and_loses_nothing(orders, root):
    """What was answered is there; what was not is put by the next one, at most once."""
    rng = random.Random(11)
    with serving(root) as server, server.connect() as queue, server.connect(client="till-7") as till:
        futures = [[], []]
        for batch in range(150):
            futures[0].append(queue.submit_many(named(b"a", batch)))
            futures[1].append(till.submit_many(named(b"b", batch)))
            if batch % 20 == 9:
                time.sleep(rng.uniform(0, 0.01))
                server.kill()
                server.start()
            if batch % 20 == 19:
                futures[rng.randrange(2)][-1].result(30)
        ranges = [[each.result(30) for each in some] for some in futures]
        found = {index: message.payload for message in queue.reader() for index in [message.index]}
    for who, some in zip((b"a", b"b"), ranges, strict=True):
        assert whole(list(found.values()), who) == list(range(150))
        assert [found[each] for one in some for each in one] == [p for number in range(150) for p in named(who, number)]


def test_a_client_that_is_killed_leaves_what_it_was_told_of_and_whole_batches(orders, root):
    """At any moment, in the middle of a frame too; and others are not disturbed."""
    with serving(root) as server:

        def put(say, who):
            with server.connect() as queue:
                futures = []
                for batch in range(10_000):
                    futures.append(queue.submit_many(named(who, batch)))
                    if len(futures) > 20:
                        futures.pop(0).result()
                        say(batch - 20)

        for each in range(4):
            who = b"client%d" % each
            with Child(put, who) as child:
                told = [int(child.hear()) for _ in range(30 + each * 17)][-1]
                child.signal(signal.SIGKILL)
                with contextlib.suppress(AssertionError):  # it has ended
                    while True:
                        told = int(child.hear())
            with server.connect() as queue:
                queue.put_many(named(b"other%d" % each, 0))
            assert set(range(told + 1)) <= set(whole(payloads(root / "orders"), who))


def test_clients_that_come_at_the_same_time_are_producers_of_their_own(orders, root):
    """They shared a slot, when two threads of the server chose it side by side."""
    with serving(root) as server:
        queues = [server.connect() for _ in range(24)]
        futures = [queue.submit_many(named(b"a%d." % number, 0)) for number, queue in enumerate(queues)]
        assert {future.result(30).start for future in futures} == set(range(0, 24 * BATCH, BATCH))
        assert [queue.put(b"more") for queue in queues] == list(range(24 * BATCH, 24 * BATCH + 24))
        for queue in queues:
            queue.close()
    found = payloads(root / "orders")
    assert [whole(found, b"a%d." % number) for number in range(24)] == [[0]] * 24


def test_single_puts_that_go_together_are_each_there_once(orders, root):
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        futures = [queue.submit(b"%d" % each) for each in range(500)]
        link.cut()
        futures += [queue.submit(b"%d" % each) for each in range(500, 1000)]
        assert [future.result(30) for future in futures] == list(range(1000))
    assert payloads(root / "orders") == [b"%d" % each for each in range(1000)]


def test_a_batch_that_was_refused_is_refused_again_though_later_ones_were_put(orders, root):
    """Its answer may be lost; that it was never put is known by those behind it."""
    with (
        shmq.open(root / "few", max_messages=4, full="raise") as few,
        serving(root) as server,
        cable(server) as link,
        shmq.net.connect(server.csp("few", link.path)) as queue,
    ):
        queue.put(b"0")
        made = link.made
        link.cut_after(0, "down")
        futures = [queue.submit_many([b"too", b"many", b"for", b"this"]), queue.submit_many([b"1", b"2"])]
        until(lambda: few.next_index == 3)
        server.kill()
        server.start()
        link.cut()
        link.was_cut(made)
        with pytest.raises(shmq.Full, match=r"not put|bound"):
            futures[0].result(30)
        assert futures[1].result(30) == range(1, 3)
    assert payloads(root / "few") == [b"0", b"1", b"2"]


def test_a_server_that_has_forgotten_the_session_cannot_tell_and_says_so(orders, root):
    """It is in the queue, or it is not: nobody puts it again for the program."""
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        queue.put(b"known")
        link.silent.set()
        sent = queue.submit(b"sent")
        time.sleep(0.1)
        server.kill()
        shutil.rmtree(root / ".serve" / "sessions")
        link.refuses = True
        link.cut()
        server.start()
        link.silent.clear()
        link.refuses = False
        with pytest.raises(shmq.SyncPending, match="does not know this session") as pending:
            sent.result(30)
        assert pending.value.index is None
        assert queue.put(b"new") == 1
    assert payloads(root / "orders") == [b"known", b"new"]


def test_a_put_that_is_not_answered_in_time_says_whether_it_was_sent(orders, root):
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        queue.put(b"0")
        link.silent.set()
        with pytest.raises(shmq.SyncPending, match="do not put it again"):
            queue.put(b"1", timeout=0.05)
        link.refuses = True
        link.cut()
        until(lambda: not queue.link().is_up)
        with pytest.raises(shmq.Full, match="nothing was put"):
            queue.put(b"2", timeout=0.05)
        link.silent.clear()
        link.refuses = False
        assert queue.put(b"3") == 2
    assert payloads(root / "orders") == [b"0", b"1", b"3"]


def test_ctrl_c_in_a_put_leaves_it_whole(orders, root):
    """The batch keeps its number: it is put, and what comes next is put behind it."""
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        queue.put(b"0")
        link.silent.set()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            queue.put(b"1")
        link.silent.clear()
        link.cut()
        assert queue.put(b"2") == 2
    assert payloads(root / "orders") == [b"0", b"1", b"2"]


def test_a_name_is_one_client_at_a_time_and_the_older_one_is_told(orders, root):
    with serving(root) as server, server.connect(client="till") as old, server.connect(client="till") as new:
        assert old.put(b"old") == 0
        assert new.put(b"new") == 1
        with pytest.raises(shmq.Fenced, match="another client of the name 'till'"):
            old.put(b"old again")
        assert new.put(b"new again") == 2
    assert payloads(root / "orders") == [b"old", b"new", b"new again"]
