"""Threads share a queue, a producer, a consumer: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import signal
import subprocess
import sys
import threading

import pytest
from support import Child

import shmq
from shmq import _native
from shmq.reading import walk
from shmq.storage import sync

FAR = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)


def run(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_put_and_roll_at_once(queue):
    """Six threads, two messages to a chunk: a roll in one never unmaps the chunk that another is putting into."""
    run(*[lambda: [queue.put(bytes(7000)) for _ in range(150)]] * 6)
    assert len(queue) == 900
    assert sum(len(message.payload) for message in queue.reader()) == 900 * 7000


def test_batches_and_slots_of_threads_do_not_mix(queue):
    """Each batch is whole and in one piece, each slot in its place."""

    def batches(mark):
        for i in range(40):
            queue.put_many([b"%c%d" % (mark, i)] * 5)

    def slots():
        for _ in range(60):
            with queue.reserve(300) as slot:
                slot.buffer[:] = b"s" * 300

    run(lambda: batches(ord("a")), lambda: batches(ord("b")), slots)
    payloads = [message.payload for message in queue.reader()]
    assert payloads.count(b"s" * 300) == 60
    at = 0
    while at < len(payloads):
        if payloads[at] == b"s" * 300:
            at += 1
            continue
        assert payloads[at : at + 5] == [payloads[at]] * 5
        at += 5
    assert len(payloads) == 60 + 2 * 40 * 5


def test_threads_share_a_consumer(queue):
    """Every message goes to one of them, once; with take, get, take_many and get_many at the same time."""
    queue.put_many([b"%d" % i for i in range(4000)])
    consumer = queue.consumer("c")
    got = []

    def drain(take):
        try:
            while True:
                got.extend(take())
        except shmq.Empty:
            pass

    run(
        lambda: drain(lambda: [consumer.take(timeout=0)]),
        lambda: drain(lambda: [consumer.get(timeout=0).payload]),
        lambda: drain(lambda: consumer.take_many(7, timeout=0)),
        lambda: drain(lambda: [message.payload for message in consumer.get_many(7, timeout=0)]),
    )
    assert sorted(got, key=int) == [b"%d" % i for i in range(4000)]


def test_found_threads_that_share_a_reader_had_messages_of_another_chunk(path):
    """One went on to the next chunk while another had just found a message in the last: a crash, or other bytes."""

    def produce(say):
        with shmq.open(path) as mine:
            for at in range(1, 3000):
                mine.put(b"%d," % at * (40 if at % 50 else 2000), key=b"%d" % at)
            mine.finish()

    with shmq.open(path, chunk_bytes=1 << 16) as queue, queue.reader(follow=True) as reader:
        queue.put(b"0,", key=b"0")
        got = []
        with Child(produce) as child:
            run(*[lambda: got.extend((each.index, each.key, each.payload) for each in reader)] * 3)
            assert child.join() == 0
    assert sorted(index for index, *_ in got) == list(range(3000))
    assert [index for index, key, payload in got if key != b"%d" % index or not payload.startswith(key + b",")] == []


@pytest.mark.parametrize("keywords", [{}, {"reverse": True}, {"follow": True}, {"stop": FAR}])
def test_threads_share_a_reader_of_any_kind_and_each_message_comes_to_one(path, keywords):
    """A reader backward is a generator, which was found executing already."""
    got, switch = [], sys.getswitchinterval()

    def read():
        mine = []
        if keywords.get("follow"):
            with contextlib.suppress(shmq.Empty):
                while True:
                    mine.append(reader.get(timeout=0))
        else:
            mine.extend(reader)
        got.extend((message.index, message.payload) for message in mine)

    with shmq.open(path, chunk_bytes=16384) as queue:
        for number in range(2000):
            queue.put(b"%d" % number)
        sys.setswitchinterval(1e-6)
        try:
            with queue.reader(**keywords) as reader:
                run(*[read] * 4)
        finally:
            sys.setswitchinterval(switch)
    assert sorted(got) == [(number, b"%d" % number) for number in range(2000)]


def test_threads_acknowledge_each_others_messages(queue):
    """Acks from any thread, in any order; in the end the head is at the end."""
    queue.put_many([b"x"] * 1000)
    consumer = queue.consumer("c", ack="explicit")
    messages = consumer.get_many(1000, timeout=0)
    run(*[lambda part=part: [message.ack() for message in messages[part::4]] for part in range(4)])
    assert (consumer.head, consumer.pending, consumer.lag) == (1000, 0, 0)


def test_open_and_close_in_many_threads(make):
    """Handles come and go; the seat is one; what was put is there."""
    queue = make()

    def come_and_go():
        for _ in range(30):
            with shmq.open(queue.path) as handle:
                handle.put(b"x")

    run(*[come_and_go] * 4)
    assert (len(queue), queue.stats().participants) == (120, 1)


PATIENCE = 20.0


def in_thread(work, seconds=PATIENCE):
    """Have it done by another thread, and wait for that so long at most."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(seconds)
    return thread


def test_found_a_message_came_twice_when_threads_took_for_the_first_time(make, monkeypatch):
    """The built-ins took from the beginning of the chunk while another thread was still on its way to the start."""
    queue = make()
    queue.put_many([b"0", b"1", b"2"])
    consumer = queue.consumer("c")
    taken, threads, seek = [], [], _native.reader_seek

    def meanwhile(*arguments):
        monkeypatch.setattr(walk._native, "reader_seek", seek)
        threads.append(in_thread(lambda: taken.append(consumer.take(timeout=0)), 0.2))
        return seek(*arguments)

    monkeypatch.setattr(walk._native, "reader_seek", meanwhile)
    taken.append(consumer.take(timeout=0))
    threads[0].join(PATIENCE)
    taken.append(consumer.take(timeout=0))
    assert sorted(taken) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("verb", ["get", "peek", "get_many"])
def test_found_a_message_had_the_key_of_another_that_a_thread_took_meanwhile(make, monkeypatch, verb):
    """Its record was asked of the reader, which the built-in of the other thread had moved on."""
    queue = make()
    for number in range(6):
        queue.put(b"%d" % number, key=b"k%d" % number)
    consumer = queue.consumer("c")
    assert consumer.take() == b"0"
    inside = "glance" if verb == "peek" else "take"
    usual = getattr(walk._native, inside)

    def meanwhile(*arguments):
        monkeypatch.setattr(walk._native, inside, usual)
        place = usual(*arguments)
        in_thread(lambda: consumer.take(timeout=0))
        return place

    monkeypatch.setattr(walk._native, inside, meanwhile)
    messages = consumer.get_many(3) if verb == "get_many" else [getattr(consumer, verb)()]
    assert [(each.index, each.key) for each in messages] == [
        (int(each.payload), b"k" + each.payload) for each in messages
    ]
    assert messages[0].payload == b"1"


VERBS = {
    "stats": lambda queue: queue.stats(),
    "consumers": lambda queue: queue.consumers(),
    "staged_sets": lambda queue: queue.staged_sets(),
    "extents": lambda queue: queue.extents(),
    "verify": lambda queue: queue.verify(),
    "sync": lambda queue: queue.sync(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_found_a_queue_closed_by_another_thread_raised_what_its_descriptors_said(make, verb):
    """A bare OSError, or FileNotFoundError of a queue that was there; it is Closed."""
    for number in range(12):
        queue = make(f"{make().path}-{number}", max_messages=50, full="drop_oldest")
        queue.consumer("c").close()
        queue.put(b"1")
        seen, begun = [], threading.Event()

        def go_on(queue=queue, seen=seen, begun=begun):
            try:
                while True:
                    begun.set()
                    VERBS[verb](queue)
            except Exception as problem:  # noqa: BLE001  # whatever it is, it is told
                seen.append(problem)

        thread = threading.Thread(target=go_on)
        thread.start()
        begun.wait()
        queue.close()
        thread.join()
        assert isinstance(seen[0], shmq.Closed), repr(seen[0])


def ring_once(handler, seconds=0.05):
    """Have *handler* run in this thread, soon."""
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


@pytest.mark.parametrize("closes", [True, False])
def test_found_what_the_handler_of_a_signal_raised_became_that_the_queue_was_closed(make, closes):
    """A TimeoutError is an OSError; it is neither Closed, if the handler has closed the queue, nor of a file."""
    queue = make()
    slot = queue.reserve(1)  # which a sync waits for

    def too_long(*_):
        if closes:
            queue.close()
        raise TimeoutError("too long")

    before = signal.getsignal(signal.SIGALRM)
    try:
        ring_once(too_long)
        with pytest.raises(TimeoutError) as raised:
            queue.sync()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised.value.args == ("too long",)
    slot.abort()


@pytest.mark.disk
def test_found_a_sync_whose_descriptor_another_thread_closed_was_a_value_error(make, monkeypatch):
    """Nor is it the disk that refuses: nothing is wrong with it, and others go on."""
    other = make()
    queue = shmq.open(other.path)  # not the first one, whose directory this process has open as long as its seat
    queue.put(b"x")
    real = sync.data

    def closed_before_that(fd, what):
        queue.close()
        real(fd, what)

    monkeypatch.setattr(sync, "data", closed_before_that)
    with pytest.raises(shmq.Closed):
        queue.sync()
    monkeypatch.undo()
    assert not other._session.joined().control.sync_failed()
    other.put(b"y")
    other.sync()


@pytest.mark.parametrize("ask", [sync.data, sync.directory])
def test_a_descriptor_that_was_closed_is_refused_as_the_kernel_would(tmp_path, ask):
    fd = _native.Fd.of(os.open, tmp_path, os.O_RDONLY)
    ask(fd, "chunks")
    fd.close()
    with pytest.raises(OSError, match="Bad file descriptor") as refused:
        ask(fd, "chunks")
    assert refused.value.errno == errno.EBADF


def test_found_a_pinned_reader_closed_by_another_thread_wrote_to_a_closed_descriptor(make):
    queue = make(chunk_bytes=1 << 14, retention="forever")
    for _ in range(60):
        queue.put_many([bytes(200)] * 50)
    for _ in range(40):
        reader, seen = queue.reader(pin=True), []

        def go_on(reader=reader, seen=seen):
            try:
                for _ in reader:
                    pass
            except shmq.Closed:
                pass
            except Exception as problem:  # noqa: BLE001  # whatever it is, it is told
                seen.append(problem)

        run(go_on, reader.close)
        assert seen == []


def test_found_a_group_of_a_closed_queue_could_not_seek_and_a_closed_one_could_not_be_waited_for(make):
    queue = make(retention="acked")
    queue.put_many([b"0", b"1"])
    group = queue.consumer("g", group=True)
    queue.close()
    assert group.take(0) == b"0"
    group.seek("earliest")
    assert group.take(0) == b"0"
    group.close()
    assert shmq.wait([group], 0) == [group]


@pytest.mark.parametrize("durability", ["process", "interval", "sync"])
@pytest.mark.parametrize("kept", ["queue", "nothing"])
def test_found_an_interpreter_that_ended_with_a_member_open_waited_for_its_threads(path, durability, kept):
    """A thread that the interpreter had ended already, for ever; or it said that an import failed."""
    ends = f"""if 1:
        import shmq
        kind = {durability!r}
        durability = shmq.Durability.interval(0.05) if kind == "interval" else getattr(shmq.Durability, kind.upper())
        queue = shmq.open({str(path)!r}, durability=durability)
        queue.put_many([b"a"] * 50)
        group = queue.consumer("g", group=True, ack="explicit")
        message = group.get()
        queue.close()
        if {kept!r} == "nothing":
            queue = None
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", ends], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@pytest.mark.parametrize("module", ["os", "sys", "threading", "builtins"])
def test_handles_that_are_kept_in_a_module_of_pythons_end_without_a_word(path, module):
    """They are collected when ours have been taken apart; what was put is there, and nothing is held."""
    code = f"""
import {module}, shmq
queue = shmq.open({str(path)!r})
queue.put_many([b"x", b"y"])
{module}.handles = [
    queue, queue.producer(), queue.consumer("c"), queue.consumer("e", ack="explicit"), queue.reader(follow=True),
    queue.consumer("g", group=True, ack="explicit"), queue.reader(pin=True), queue.stage(),
]
{module}.messages = [each.get(timeout=0) for each in {module}.handles[2:6]]
{module}.slot = queue.reserve(10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with shmq.open(path) as queue, queue.consumer("other") as consumer:
        queue.put(b"z")
        assert [consumer.take(timeout=5) for _ in range(3)] == [b"x", b"y", b"z"]
        assert queue.consumer("e", ack="explicit").get(timeout=5).payload == b"x"
