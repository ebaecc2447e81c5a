"""Faults that these suites found, each with the schedule that showed it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time

import pytest

import shmq
import shmq.membership
import shmq.storage.chain
from tests.history.processes import PATIENCE, Process
from tests.support import start

TINY = shmq.Options(chunk_bytes=16384)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q")


def reserve_and_wait(tell, path):
    with shmq.open(path) as q:
        slot = q.reserve(8)
        tell(slot.index)
        time.sleep(PATIENCE)


def test_whoever_takes_a_dead_claimers_seat_pads_the_claim(path):
    """
    A process that joins takes the dead one's slot and pads its claims first. It did so through a read-only mapping and
    died of SIGSEGV: after one kill inside a claim nobody could open the queue.
    """
    q = shmq.open(path)
    with Process(reserve_and_wait, path) as dead:
        assert dead.hear() == "0"
    with Process(lambda tell: tell(shmq.open(path).put(b"after"))) as next_tenant:
        assert next_tenant.hear() == "1"
        assert next_tenant.wait() == 0
    assert [m.index for m in q.reader()] == [1]


def test_a_child_does_not_keep_its_dead_parent_alive(path):
    """
    A forked child inherits the mapping of the control page. While that was a mapping of the descriptor with the seat's
    lock, the lock lived on in the child: a parent killed inside a claim looked alive, and consumers waited for it.
    """
    q = shmq.open(path)

    def parent(tell):
        with shmq.open(path) as mine:
            slot = mine.reserve(8)
            tell(slot.index, start(time.sleep, PATIENCE))
            time.sleep(PATIENCE)

    with Process(parent) as killed:
        _, child = killed.hear().split()
    try:
        q.put(b"behind the claim")
        assert q.consumer("c").take(timeout=PATIENCE) == b"behind the claim"
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_child_does_not_keep_its_dead_parents_name(path):
    """The same for a consumer's name: the restarted consumer got Busy for as long as a child of the dead one lived."""
    q = shmq.open(path)

    def parent(tell):
        consumer = shmq.open(path).consumer("name")
        tell(consumer.name, start(time.sleep, PATIENCE))
        time.sleep(PATIENCE)

    with Process(parent) as killed:
        _, child = killed.hear().split()
    try:
        q.consumer("name").close()
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_closed_name_is_free_at_once(path):
    """The checkpoint's mapping kept the name's lock until the closed consumer was forgotten as well."""
    q = shmq.open(path)
    first = q.consumer("name")
    first.close()
    second = q.consumer("name")
    with pytest.raises(shmq.Busy, match="this process"):
        q.consumer("name")
    second.close()


def test_what_a_closed_queue_handed_out_stays_usable(path):
    """It used memory that close() had freed, and descriptors that it had closed."""
    q = shmq.open(path, options=TINY)
    consumer, producer, reader, slot = q.consumer("c"), q.producer(), q.reader(), q.reserve(3)
    q.close()
    slot.buffer[:] = b"abc"
    assert slot.commit() == 0
    for at in range(9):
        assert producer.put(bytes(5000)) == at + 1  # through rolls
    with pytest.raises(shmq.Closed):
        next(reader)
    assert consumer.take(timeout=0) == b"abc"
    assert consumer.lag == 9
    consumer.seek(9)
    assert consumer.take(timeout=0) == bytes(5000)
    consumer.close()
    producer.close()
    with Process(lambda tell: tell(shmq.open(path).stats().participants)) as other:
        assert int(other.hear()) <= 2
    with shmq.open(path) as again:
        assert again.stats().participants == 1


def test_a_closed_producer_says_so(path):
    """put() raised TypeError, the other verbs went through."""
    producer = shmq.open(path).producer()
    producer.put(b"before")
    producer.close()
    for put in (
        lambda: producer.put(b"x"),
        lambda: producer.put(b"x", key=b"k"),
        lambda: producer.put_many([b"x"]),
        lambda: producer.reserve(1),
    ):
        with pytest.raises(shmq.Closed):
            put()


def test_a_thread_may_roll_while_another_is_in_a_put(path):
    """The chunk that the roller forgot was unmapped under the feet of the thread that was writing into it: SIGSEGV."""

    def work(tell):
        sys.setswitchinterval(1e-5)
        q = shmq.open(path, options=TINY)
        data = os.urandom(6000)
        threads = [threading.Thread(target=lambda: [q.put(data) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell(sum(m.payload == data for m in q.reader()))

    with Process(work) as child:
        assert child.hear() == "2000"


def test_a_forgotten_slot_in_a_cycle_of_garbage_is_given_up(path):
    """Its chunk could be finalized before it: SIGSEGV; and if it was not aborted, consumers would wait for ever."""

    def work(tell):
        q = shmq.open(path)
        for _ in range(50):
            cycle = {"q": shmq.open(path)}
            cycle["slot"] = cycle["q"].reserve(8)
            cycle["consumer"] = cycle["q"].consumer("c")
            cycle["self"] = cycle
            del cycle
            gc.collect()
        q.put(b"behind them")
        tell(q.consumer("c").take(timeout=PATIENCE).decode())

    with Process(work) as child:
        assert child.hear() == "behind them"


def test_a_member_of_a_group_in_a_cycle_of_garbage_gives_back_what_it_held(path):
    """Its ring could be finalized before it, who then wrote into memory that was free: SIGSEGV, somewhere, later."""

    def work(tell):
        q = shmq.open(path)
        q.put(b"given back")
        for _ in range(50):
            member = q.consumer("g", group=True, ack="explicit")
            assert member.get(timeout=PATIENCE).payload == b"given back"
            ring = member._ring
            cycle = [member]
            cycle.append(cycle)
            del member
            gc.collect()  # what the ring leads to is now before what the list leads to, where the collector looks
            del ring, cycle
            gc.collect()
        tell(q.consumer("g", group=True, ack="explicit").take(timeout=PATIENCE).decode())

    with Process(work) as child:
        assert child.hear() == "given back"


@pytest.mark.parametrize("timeout", [0, 0.01, None])
def test_a_consumer_whose_last_indexes_are_padding_is_drained(path, timeout):
    """Its lag never becomes 0, so that after a shutdown it waited for ever; and without waiting it got Empty."""
    q = shmq.open(path)
    q.put(b"a")
    q.reserve(8).abort()
    consumer, explicit = q.consumer("c"), q.consumer("e", ack="explicit")
    q.shutdown()
    assert consumer.take(timeout=0) == b"a"
    assert explicit.get(timeout=0).payload == b"a"
    for each in (consumer, explicit):  # the second has not acknowledged; it has nothing to get all the same
        with pytest.raises(shmq.ShutDown):
            each.get(timeout=timeout)


def test_on_the_way_from_the_cursor_to_the_head_the_head_stays(path):
    """
    A killed consumer's cursor lies up to 256 messages behind its head. Its successor walks from there to the head, and
    moved the head back on that walk: killed in the middle, it let messages come twice with ack="auto".
    """
    q = shmq.open(path)
    for at in range(300):
        q.put(b"%d" % at)

    def killed(tell):
        consumer = shmq.open(path).consumer("c")
        for _ in range(299):
            consumer.take(timeout=0)
        tell(consumer.head)
        time.sleep(PATIENCE)

    with Process(killed) as child:
        assert child.hear() == "299"
    consumer = q.consumer("c")
    assert consumer.head == 299
    assert consumer.take(timeout=0) == b"299"


def test_a_childs_own_locks_survive_what_it_inherited(path):
    """Forgetting an inherited handle closed whatever lay in its place in the table by then: the child's own seat."""
    q = shmq.open(path)
    q.put(b"a")
    inherited = q.consumer("c")

    def child(tell):
        nonlocal q, inherited
        mine = shmq.open(path)
        slot = mine.reserve(8)
        q = inherited = None
        gc.collect()
        tell(slot.index)
        time.sleep(PATIENCE)

    with Process(child) as owner:
        assert owner.hear() == "1"
        q.put(b"behind it")
        assert inherited.take(timeout=0) == b"a"
        with pytest.raises(shmq.Empty, match=rf"claimed by process {owner.pid} "):
            inherited.take(timeout=0.05)


def test_processes_that_share_a_descriptor_list_the_whole_directory(path):
    """
    Forked processes (and threads) share the place in a directory's listing, so that each saw a part of the chunks: the
    end of the queue was 0 for an instant, and a consumer that opened then was moved back to the beginning.
    """
    q = shmq.open(path, options=TINY)
    for _ in range(30):
        q.put(bytes(9000))

    def look(tell):
        seen = {q.next_index for _ in range(100)} | {len(q._session.home.chunk_names()) for _ in range(700)}
        tell(*sorted(seen))

    with Process(look) as a, Process(look) as b, Process(look) as c:
        assert [each.hear() for each in (a, b, c)] == ["30"] * 3


def test_a_newcomer_that_is_stopped_as_it_takes_a_dead_ones_seat_holds_nobody(path, monkeypatch):
    """
    The seat was locked under the dead one's generation until its claims were buried: meanwhile it looked alive, and a
    newcomer that was slow or stopped right there held up every consumer (history 1182 of the campaign).
    """
    q = shmq.open(path)
    with Process(reserve_and_wait, path) as dead:
        dead.hear()
        q.put(b"behind the claim")

    def newcomer(tell):
        def stop(*_):
            tell("locked")
            time.sleep(PATIENCE)

        monkeypatch.setattr(shmq.membership.Membership, "_pad", stop)
        home = shmq.storage.directory.Directory(path, read_only=False)
        shmq.membership.Membership(home).open(home)

    with Process(newcomer) as stopped:
        assert stopped.hear() == "locked"
        assert q.consumer("c").take(timeout=PATIENCE) == b"behind the claim"


def test_an_acknowledgement_after_the_consumer_has_gone_on_to_an_empty_chunk(path):
    """
    A consumer that found nothing in the next chunk had read nothing there: with the last acknowledgement its head fell
    back to 1, and after its death everything came again (history 6150 of the campaign).
    """
    q = shmq.open(path, options=TINY)
    for at in range(5):
        q.put(b"%d" % at)
    consumer = q.consumer("c", ack="explicit")
    messages = consumer.get_many(5, timeout=0)
    slot = q.reserve(15000)  # rolls
    with pytest.raises(shmq.Empty):
        consumer.get(timeout=0)
    consumer.ack(*messages)
    assert consumer.head == 5
    slot.abort()


def test_a_consumer_on_its_way_to_its_head_is_overtaken_by_retention(path):
    """
    Its cursor lies chunks behind its head, and those go while it is on the way: it got Gone, though all that it wants
    is there (history 8016 of the campaign).
    """
    q = shmq.open(path, options=TINY)
    for at in range(9):
        q.put(bytes([at]) * 5000)  # two in a chunk
    consumer = q.consumer("c", ack="explicit")
    consumer.get(timeout=0).ack()
    consumer.close()  # the cursor is in the first chunk
    consumer = q.consumer("c", ack="explicit")
    first, second, third, _ = [consumer.get(timeout=0) for _ in range(4)]
    other = q.consumer("d")
    for _ in range(4):
        other.take(timeout=0)
    consumer.ack(first, second, third)
    consumer.close()  # with something pending: the cursor stays where it was
    consumer = q.consumer("c", ack="explicit")  # stands in the first chunk
    assert other.take(timeout=0)[0] == 4  # and the first two chunks go
    assert q.first_index == 4
    assert consumer.take(timeout=0)[0] == 4


@pytest.mark.parametrize("look", ["put", "next_index", "read"])
def test_what_was_listed_is_retired_before_it_is_opened(path, monkeypatch, look):
    """
    Between a listing and the opening of its last chunk, others filled that chunk, finished and retired it: put() ended
    with FileNotFoundError (soak with chunks of 4 MiB), a reader saw nothing.
    """
    q = shmq.open(path, options=TINY)
    consumer = q.consumer("c")
    for _ in range(2):
        q.put(bytes(5000))
    chain = shmq.storage.chain.Chain
    real = chain.names

    def slow(self):
        listed = real(self)
        monkeypatch.setattr(chain, "names", real)
        for _ in range(9):
            q.put(bytes(5000))
        for _ in range(10):
            consumer.take(timeout=0)
        assert q.first_index > listed[-1][1]
        return listed

    monkeypatch.setattr(chain, "names", slow)
    if look == "put":
        assert q.producer().put(b"x") == 11
    elif look == "next_index":
        assert q.next_index == 11
    else:
        assert next(q.reader()).index == q.first_index
