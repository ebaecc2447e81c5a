"""
Threads that share every kind of handle at once, also without the interpreter's lock: nothing lost, nothing doubled, no
bytes of another message, and no lock switched on again.

All of it runs with the lock, too, switching threads as often as it can; what it finds there it finds less often.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import sysconfig
import threading

import pytest

import shmq
from shmq import _core, _native

THREADS = 4
FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _switches_often():
    """With the lock: a switch at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*works):
    """Have them done at once, by a thread each; what one raises comes out here."""
    problems, gate = [], threading.Barrier(len(works))

    def one(work):
        try:
            gate.wait(PATIENCE)
            work()
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=one, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    if problems:
        raise problems[0]


def until_empty(*takes):
    """Threads that take until nothing is there: what each got, in its order."""
    got = [[] for _ in takes]

    def drain(take, mine):
        with contextlib.suppress(shmq.Empty):
            while True:
                mine.extend(take())

    together(*[lambda take=take, mine=mine: drain(take, mine) for take, mine in zip(takes, got, strict=True)])
    return got


def payload(number):
    """One that says which it is in each of its bytes' places."""
    return b"%d," % number * (1 + number % 40)


@pytest.mark.skipif(not FREE, reason="this interpreter has a lock; make PYTHON=python3.14t test goes without one")
def test_the_interpreters_lock_stays_off(queue):
    """Neither the import nor what is used of the core has it switched on again."""
    queue.put(b"x", headers={"a": 1})
    with queue.consumer("c") as consumer, queue.consumer("g", group=True, ack="explicit") as member:
        assert consumer.take() == b"x"
        member.get().ack()
    assert not sys._is_gil_enabled()


def test_the_core_is_built_for_the_stable_abi_where_there_is_one():
    """One file for all interpreters from 3.11 on; where there is no lock, one of this interpreter's own."""
    assert (".abi3." in _core.__file__) is not FREE


def test_puts_through_one_producer_while_it_rolls(make):
    """put, put_many, put with headers and reserve, through chunks that hold little."""
    queue = make(chunk_bytes=1 << 16)

    def puts(first):
        for at in range(first, first + 900, 3):
            queue.put(payload(at), key=b"%d" % at)
            queue.put_many([payload(at + 1)])
            with queue.reserve(len(payload(at + 2))) as slot:
                slot.buffer[:] = payload(at + 2)

    together(*[lambda first=first: puts(first) for first in range(0, 900 * THREADS, 900)])
    found = [message.payload for message in queue.reader()]
    assert sorted(found) == sorted(map(payload, range(900 * THREADS)))
    for first in range(0, 900 * THREADS, 900):  # of one thread: in its order
        mine = [each for each in found if first <= int(each.split(b",")[0]) < first + 900]
        assert mine == list(map(payload, range(first, first + 900)))


@pytest.mark.parametrize("codec", ["bytes", "json"])
def test_takes_through_one_consumer_while_others_put(make, codec):
    """Through many chunks, by all four verbs and a loop: each message to one thread, and of one thread in order."""
    queue = make(chunk_bytes=1 << 16, codec=codec)
    count = 2000
    what = payload if codec == "bytes" else (lambda number: {"number": number, "more": [number] * (number % 20)})
    consumer = queue.consumer("c")

    def produce(first):
        for at in range(first, first + count):
            queue.put(what(at))

    def consume(take, mine):
        with contextlib.suppress(shmq.ShutDown):
            while True:
                mine.extend(take())

    got = [[] for _ in range(5)]

    def loop(mine):
        mine.extend(message.payload for message in consumer)

    def producing():
        together(lambda: produce(0), lambda: produce(count))
        queue.finish()

    together(
        producing,
        lambda: consume(lambda: [consumer.take(timeout=PATIENCE)], got[0]),
        lambda: consume(lambda: [consumer.get(timeout=PATIENCE).payload], got[1]),
        lambda: consume(lambda: consumer.take_many(7, timeout=PATIENCE), got[2]),
        lambda: consume(lambda: [each.payload for each in consumer.get_many(7, timeout=PATIENCE)], got[3]),
        lambda: loop(got[4]),
    )
    everything = [each for mine in got for each in mine]
    key = (lambda each: int(each.split(b",")[0])) if codec == "bytes" else (lambda each: each["number"])
    assert sorted(everything, key=key) == list(map(what, range(2 * count)))
    for mine in got:
        for first in (0, count):
            numbers = [key(each) for each in mine if first <= key(each) < first + count]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("ack", ["auto", "explicit"])
def test_one_member_of_a_group_in_many_threads(make, ack):
    """Got, acknowledged by whichever thread, given back, dropped: in the end each was handed out and finished once."""
    queue = make(chunk_bytes=1 << 16)
    count = 3000
    queue.put_many(list(map(payload, range(count))))
    done, given_back = [], set()
    with queue.consumer("g", group=True, ack=ack) as member:
        others = []  # messages that another thread finishes

        def get():
            message = member.get(timeout=0)
            if ack == "explicit" and message.index % 7 == 0 and message.index not in given_back:
                given_back.add(message.index)
                message.nack()
                return []
            if ack == "explicit" and message.index % 5 == 0:
                others.append(message)
                return []
            message.ack()
            return [message.payload]

        def get_many():
            messages = member.get_many(16, timeout=0)
            member.ack(*messages)
            return [each.payload for each in messages]

        def finish_others():
            found = []
            while others:
                with contextlib.suppress(IndexError):
                    message = others.pop()
                    found.append(message.payload)
                    message.ack()
                    message.ack()  # a second one does nothing
            return found

        while len(done) < count:
            takes = [get, get_many, lambda: [member.take(timeout=0)], lambda: member.take_many(9, timeout=0)]
            for mine in until_empty(*takes):
                done.extend(mine)
            done.extend(finish_others())
            assert member.pending == len(others) == 0
        assert sorted(done) == sorted(map(payload, range(count)))
        assert (member.lag, member.pending) == (0, 0)


def test_messages_are_let_go_of_while_their_member_closes(make):
    """The last reference of a message goes in one thread while the table that holds it is emptied in another."""
    queue = make()
    queue.put_many([b"x" * 100] * 200)
    for _ in range(10):
        member = queue.consumer("g", group=True, ack="explicit")
        parts = [member.get_many(50, timeout=0) for _ in range(THREADS - 1)]

        def forget(part):
            while part:
                part.pop()

        together(member.close, *[lambda part=part: forget(part) for part in parts])
    with queue.consumer("g", group=True, ack="explicit") as member:
        assert sorted(message.index for message in member.get_many(500, timeout=0)) == list(range(200))


def test_one_message_is_looked_at_and_finished_by_many_threads(make):
    """Its fields stay its own while another thread acknowledges it, twice even."""
    queue = make()
    count = 300
    for at in range(count):
        queue.put(payload(at), key=b"%d" % at, headers={"at": at})
    with queue.consumer("g", group=True, ack="explicit") as member:
        messages = []
        while len(messages) < count:
            messages += member.get_many(count, timeout=PATIENCE)

        def look():
            for at, message in enumerate(messages):
                for _ in range(5):
                    assert (message.index, message.key, message.attempts) == (at, b"%d" % at, 1)
                    assert message.payload == bytes(message.view) == payload(at)

        def ack():
            for message in messages:
                message.ack()

        together(look, look, ack, ack)
        assert (member.pending, member.lag) == (0, 0)


def test_one_reader_in_many_threads_and_any_message_at_once(make):
    """A reader hands each message to one thread; q[i] finds the right one while chunks are retired and mappings go."""
    queue = make(chunk_bytes=1 << 16, retention="forever")
    count = 4000
    for at in range(0, count, 100):
        queue.put_many([payload(each) for each in range(at, at + 100)])

    def look(step):
        for at in range(0, count, step):
            assert queue[at].payload == payload(at)

    got = [[] for _ in range(THREADS)]
    reader = queue.reader()

    def read(mine):
        mine.extend((each.index, each.payload) for each in reader)

    def forget():
        for _ in range(50):
            queue._session.joined().mapped.clear()

    together(*[lambda mine=mine: read(mine) for mine in got], lambda: look(7), lambda: look(11), forget)
    assert sorted(each for mine in got for each in mine) == [(at, payload(at)) for at in range(count)]


def test_handles_come_and_go_in_many_threads(make):
    """Queues, consumers and readers are opened, used and closed at once; the seat is one, and is given back."""
    queue = make()
    queue.put(b"first")

    def come_and_go(name):
        for _ in range(15):
            with (
                shmq.open(queue.path) as mine,
                mine.consumer(name) as consumer,
                mine.consumer("g", group=True) as group,
            ):
                mine.put(b"x")
                assert next(mine.reader(stop=1)).payload == b"first"
                assert consumer.take(timeout=PATIENCE)
                with contextlib.suppress(shmq.Empty):  # another thread's had them all
                    group.take_many(100, timeout=0)

    together(*[lambda name=name: come_and_go(f"c{name}") for name in range(THREADS)])
    assert len(queue) == 1 + 15 * THREADS
    assert queue.stats().participants == 1


@pytest.mark.parametrize("turn", range(8))
def test_a_handle_is_closed_while_others_use_it(make, turn):
    """Whoever is inside is done first, or is told; nobody reads what is not mapped any more."""
    queue = make()
    queue.put_many(list(map(payload, range(500))))
    consumer, member, reader = queue.consumer("c"), queue.consumer("g", group=True, ack="explicit"), queue.reader()

    def use(work):
        with contextlib.suppress(shmq.Closed, shmq.Empty, shmq.ShutDown, StopIteration, IndexError):
            while True:
                work()

    together(
        lambda: [handle.close() for handle in (consumer, member, reader, queue)],
        lambda: use(lambda: consumer.take(timeout=0)),
        lambda: use(lambda: member.get(timeout=0).ack()),
        lambda: use(lambda: next(reader).payload),
        lambda: use(lambda: queue[400].payload),
        lambda: use(lambda: queue.put(b"y" * 300)),
    )


def test_a_list_and_a_dict_change_while_they_are_put(make):
    """What is looked through and encoded belongs to its threads: a put of it works, or says so, and nothing worse."""
    queue = make(codec="json")
    shared = {"list": [1, 2, 3], "dict": {"a": 1}}
    over = threading.Event()

    def change():
        at = 0
        while not over.is_set():
            at += 1
            shared["list"] = [object.__repr__(object())] * (at % 9)
            shared["dict"][f"{at % 50}"] = ["x"] * (at % 5)
            if at % 50 == 0:
                shared["dict"].clear()
            del shared["list"][:]

    def put():
        try:
            for _ in range(300):
                with contextlib.suppress(RuntimeError):  # a dict that changed while the encoder iterated over it
                    queue.put(shared, key=b"k")
        finally:
            over.set()

    together(change, put, put)
    for message in queue.reader():
        assert set(message.payload) == {"list", "dict"}


def test_a_mapping_is_closed_while_it_is_read(tmp_path):
    """Bytes, a view and a close at once: the bytes that are there, or an exception."""
    path = tmp_path / "file"
    path.write_bytes(b"z" * 100_000)
    for _ in range(20):
        with open(path, "rb") as file:
            memory = _native.map_file(file.fileno(), 100_000, writable=False)

        def read(memory=memory):
            with contextlib.suppress(ValueError, BufferError):
                while True:
                    assert memory[10:50_000] == b"z" * 49_990
                    assert memory[99_999] == ord("z")

        def view(memory=memory):
            with contextlib.suppress(ValueError, BufferError):
                while True:
                    with memoryview(memory) as seen:
                        assert seen[-1] == ord("z")

        def close(memory=memory):
            while True:
                with contextlib.suppress(BufferError):
                    memory.close()
                    return

        together(read, view, close)


def test_garbage_is_collected_while_threads_use_what_it_finds(make):
    """Messages, and cycles through them, are found by the collector while they are made and let go of."""
    queue = make()
    queue.put_many(list(map(payload, range(2000))))
    consumer = queue.consumer("c")
    over = threading.Event()

    def collect():
        while not over.is_set():
            gc.collect()

    def use():
        try:
            with contextlib.suppress(shmq.Empty):
                while True:
                    messages = consumer.get_many(20, timeout=0)
                    messages.append(messages)  # a cycle
                    assert [int(each.payload.split(b",")[0]) for each in messages[:-1]] == [
                        each.index for each in messages[:-1]
                    ]
        finally:
            over.set()

    together(collect, use, use)
