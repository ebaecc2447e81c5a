"""Exceptions from signal handlers, at every place of a verb: nothing is lost, doubled or left locked."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
import threading

import pytest
from interrupts import Interrupt, Round, places
from support import in_child, kept_locks, peek, turn_is_free, until

import shmq
from shmq import _native
from shmq import durability as durability_of_shmq
from shmq.storage import making, new_chunks
from shmq.taking import dead
from shmq.worker import Worker

# A file whose `with` was not reached closes itself; an error made of its warning would keep the frames and all in them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

FIRST = 25  # not far before a new chunk
LEADER = 392  # in the control page
CHUNK = {"chunk_bytes": 16384, "retention": shmq.Retention.forever()}


@pytest.fixture
def numbered(tmp_path):
    """A way to make small queues of several chunks, one after the other."""
    counter = itertools.count()

    def make(count=60, size=2500, **options):
        queue = shmq.open(str(tmp_path / f"q{next(counter)}"), create=True, options=shmq.Options(**CHUNK, **options))
        queue.put_many([b"%06d" % number + bytes(size - 6) for number in range(count)])
        return queue

    return make


def number(payload):
    """Which message it is."""
    return int(bytes(payload[:6]))


def drain(verb, seen, this):
    """Call *verb* until there is nothing left, once more behind each interruption."""
    while True:
        with this.interrupted():
            try:
                while True:
                    seen.extend(verb())
            except shmq.Empty:
                return


def test_an_interrupted_reader_reads_each_message_once(numbered):
    """Also where it goes on to the next chunk."""
    with numbered(40) as queue:
        for this in places():
            with queue.reader(start=25) as reader:
                seen = []
                done = False
                while not done:
                    with this.interrupted():
                        for message in reader:
                            seen += [message.index]
                        done = True
            assert seen == list(range(25, 40)), this.at


@pytest.mark.parametrize("verb", ["get", "get_many", "take_many"])
def test_an_interrupted_consumer_loses_nothing_that_it_did_not_acknowledge(numbered, verb):
    """Explicit acks: every message comes to the same handle, and the name ends where the queue does."""
    with numbered(30) as queue:
        consumer = queue.consumer("c", ack="explicit")
        one = verb in ("get", "take")

        def step():
            found = getattr(consumer, verb)(timeout=0) if one else getattr(consumer, verb)(7, timeout=0)
            return [found] if one else found

        for this in places():
            consumer.seek(FIRST)
            seen = []
            drain(step, seen, this)
            numbers = [number(each.payload if verb.startswith("get") else each) for each in seen]
            if verb.startswith("get"):
                assert sorted(numbers) == list(range(FIRST, 30)), this.at
                consumer.ack(*seen)
            else:  # what was taken and not returned yet, at most
                assert numbers == sorted(set(numbers)), this.at
                assert len(numbers) >= 30 - FIRST - (1 if one else 7), this.at
            assert (consumer.head, consumer.pending) == (30, 0), this.at


@pytest.mark.parametrize("verb", ["get", "take", "take_many"])
def test_an_interrupted_consumer_takes_nothing_twice_and_goes_on(numbered, verb):
    """Automatic acks: at most what the interrupted call would have returned is missing."""
    with numbered(30) as queue:
        consumer = queue.consumer("c")
        for this in places():
            consumer.seek(FIRST)
            seen = []
            if verb == "take_many":
                drain(lambda: consumer.take_many(5, timeout=0), seen, this)
            else:
                drain(lambda: [getattr(consumer, verb)(timeout=0)], seen, this)
            numbers = [number(each.payload if verb == "get" else each) for each in seen]
            assert numbers == sorted(set(numbers)), this.at
            assert len(numbers) >= 30 - FIRST - (5 if verb == "take_many" else 1), this.at
            assert consumer.head == 30, this.at


def test_an_interrupted_reserve_leaves_no_claim(numbered):
    """In reserve, in the block, at its end: committed, or padding; also where the next chunk is needed first."""
    with numbered(0) as queue:
        kept = []
        for this in places():
            start = queue.next_index
            problem = None
            try:
                with this.interrupted(passing=True), queue.reserve(3000, key=b"k") as slot:
                    kept.append(slot)  # not collected
                    slot.buffer[:] = bytes(3000)
            except Interrupt as raised:
                problem = raised  # its frames live on, as in a notebook
            assert this.raised == (problem is not None)
            found = [message.payload for message in queue.reader(start=start)]  # it ends before a claim that is open
            assert found in ([], [bytes(3000)]), this.at
            assert found or this.raised
            queue.put(b"behind")
            consumer = queue.consumer("c", start=start)
            while consumer.take(timeout=5) != b"behind":
                pass
            consumer.close()
            queue.drop_consumer("c")


def test_an_interrupted_put_is_in_the_queue_once_or_not_at_all(numbered):
    """A batch whole; with dedup, a repeated one is found, and other processes take their turns."""
    with numbered(0) as queue:
        batch = [bytes(1500)] * 3
        for sequence, this in enumerate(places(), 1):
            start = queue.next_index
            with this.interrupted():
                queue.put_many(batch, dedup=("p", sequence))
            found = len(list(queue.reader(start=start)))
            assert found in (0, 3), this.at
            if this.raised:
                again = queue.put_many(batch, dedup=("p", sequence))
                assert len(list(queue.reader(start=start))) == len(again) == 3, this.at
            if sequence % 20 == 0:
                put = in_child(lambda: shmq.open(queue.path).put(b"x", dedup=("other", sequence), timeout=5))  # noqa: B023
                assert int(put) == queue.next_index - 1


@pytest.mark.parametrize("verb", ["get_many", "take_many"])
def test_an_interrupted_member_of_a_group_loses_nothing(numbered, verb):
    """What nobody was handed comes again, to the same member; acks that are interrupted can be repeated."""
    with numbered(30) as queue:
        group = queue.consumer("g", group=True, ack="explicit")
        for this in places():
            group.seek(FIRST + 1)
            seen = []

            def step(seen=seen):
                found = getattr(group, verb)(3, timeout=0)
                seen.extend(found)
                if verb != "take_many":
                    group.ack(*found)
                return []

            drain(step, [], this)
            if verb != "take_many":
                group.ack(*seen)  # again: one of them may have been interrupted
                seen = [message.payload for message in seen]
            numbers = list(map(number, seen))
            missing = set(range(FIRST + 1, 30)) - set(numbers)
            assert len(numbers) == len(set(numbers)), this.at
            assert len(missing) <= (3 if verb == "take_many" else 0), this.at
            assert (group.head, group.pending) == (30, 0), this.at


def test_an_interrupted_sync_leads_no_longer(numbered):
    """Other processes sync, and this one."""
    with numbered(0) as queue:

        def sync():
            with shmq.open(queue.path) as mine:
                mine.put(b"y")
                mine.sync()
                return "synced"

        for turn, this in enumerate(places()):
            queue.put(b"x")
            with this.interrupted():
                queue.sync()
            assert peek(f"{queue.path}/control.shmq", LEADER) == 0, this.at
            if turn % 40 == 0:
                assert in_child(sync) == "synced"


def test_an_interrupted_ack_with_sync_can_be_repeated(numbered):
    """It is no LeaseLost, and nobody leads."""
    with numbered(3, durability=shmq.Durability.SYNC) as queue:
        group = queue.consumer("g", group=True, ack="explicit")
        for this in places():
            queue.put(b"000000")
            message = group.get(timeout=5)
            with this.interrupted():
                message.ack()
            message.ack()
            assert group.pending == 0, this.at


def admin_is_free(queue, at):
    """Nobody holds the administrative lock, although what was raised lives on."""
    with queue._session.home.admin(timeout=0):
        pass
    assert queue._session.home.admin(timeout=0) is not None, at  # and whoever does not use it lets go of it


@pytest.mark.parametrize("verb", ["set_bounds", "reader"])
def test_an_interrupted_administrative_action_holds_no_lock(numbered, verb):
    """Also while its traceback is kept, as a notebook keeps it: other processes can administer at once."""
    with numbered(3) as queue:
        for this in places():
            kept = None
            try:
                with this.interrupted(passing=True):
                    if verb == "set_bounds":
                        queue.set_bounds(max_messages=100)
                    else:
                        queue.reader(pin=True).close()
            except Interrupt as raised:
                kept = raised
            assert this.raised == (kept is not None)
            admin_is_free(queue, this.at)


def test_an_interrupted_ack_of_a_group_can_be_repeated(numbered):
    """Who finished a message itself is not told that it was lost, whoever asked first: one alone, or many."""
    with numbered(3) as queue:
        group = queue.consumer("g", group=True, ack="explicit")
        group._stop()  # the built-in cannot be interrupted
        for count in (1, 2):
            for this in places():
                queue.put_many([b"000000"] * count)
                messages = group.get_many(count, timeout=5)
                with this.interrupted():
                    group.ack(*messages)
                group.ack(*messages)
                assert group.pending == 0, this.at


def opened_below(path):
    """The descriptors that this process has open below that directory, and the locks that it keeps without one."""
    gc.collect()  # a queue and its producer know each other
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += [name for name in [os.readlink(f"/proc/self/fd/{fd}")] if name.startswith(path + "/")]
    return sorted(found + kept_locks(path + "/"))


@pytest.mark.parametrize("group", [False, True])
def test_an_interrupted_close_of_a_consumer_is_finished_by_the_next(numbered, group):
    """The name is free for this process and others, and no seat is left."""
    with numbered(1) as queue:
        for this in places():
            consumer = queue.consumer("c", group=group, ack="explicit")
            before = opened_below(queue.path)
            with this.interrupted():
                consumer.close()
            consumer.close()
            assert len(opened_below(queue.path)) < len(before), this.at
            queue.consumer("c", group=group, ack="explicit").close()


@pytest.mark.parametrize("group", [False, True])
def test_an_interrupted_forward_keeps_no_consumer_from_closing(numbered, tmp_path, group, uncollected):
    """Found by an attack: who was forwarding was counted, and an interrupt beside the counting was for ever."""
    with numbered(1) as queue, shmq.open(f"{tmp_path}/b") as b:
        with queue.consumer("c", group=group, ack="explicit") as first, first.get(timeout=20).forward() as forward:
            forward.put(b, b"y")  # what is done once is done
        for this in places():
            queue.put(b"x")
            consumer = queue.consumer("c", group=group, ack="explicit")
            message = consumer.get(timeout=20)
            with this.interrupted(), message.forward() as forward:
                forward.put(b, b"y")
            consumer.close()
            assert consumer._name_lock.is_free(), this.at


def test_an_interrupted_close_of_a_queue_is_finished_by_the_next(numbered):
    """Its process is no participant any more, and has nothing of it open."""
    with numbered(1) as queue:
        path = queue.path
    for this in places():
        queue = shmq.open(path)
        with this.interrupted():
            queue.close()
        queue.close()
        del queue
        assert opened_below(path) == [], this.at
        assert in_child(lambda: shmq.open(path).stats().participants) == "1", this.at


@pytest.mark.parametrize("verb", ["open", "open read-only", "consumer", "group", "reserve"])
def test_what_is_interrupted_while_it_opens_leaves_no_descriptor(numbered, verb, uncollected):
    """At a share of its places; all of them are tried by tests/points."""

    def run(queue):
        if verb == "open":
            queue.close()
            shmq.open(queue.path).close()
        elif verb == "open read-only":
            shmq.open(queue.path, read_only=True).close()
        elif verb == "reserve":
            with queue.reserve(9) as slot:
                slot.buffer[:] = bytes(9)
        else:
            queue.consumer("c", group=verb == "group").close()

    counting = Round(1 << 30)
    with numbered(1) as queue, counting.interrupted():
        run(queue)
    for place in range(3, counting.seen, max(counting.seen // 12, 1)):
        this = Round(place)
        with numbered(1) as queue, this.interrupted():
            run(queue)
        path = queue.path
        del queue
        assert opened_below(path) == [], this.at


def test_an_interrupted_stage_leaves_no_set(numbered):
    """What it had made of it is taken away."""
    with numbered(1) as queue:
        for this in places():
            staged = None
            with this.interrupted():
                staged = queue.stage()
                staged.close()
            if staged is not None:
                staged.close()
            assert not os.path.isdir(f"{queue.path}/staging") or os.listdir(f"{queue.path}/staging") == [], this.at


def test_a_member_that_was_interrupted_while_it_was_made_has_nothing_open(numbered):
    """Its descriptors are opened when it is known already: at each place of its making."""
    with numbered(1) as queue:
        joined = queue._session.joined()
        file = f"{queue.path}/control.shmq"
        for this in places():
            with open(file, "rb+") as lock_fd, open(file, "rb") as test_fd:
                before = opened_below(queue.path)
                with this.interrupted():
                    _native.Member(joined.control, lock_fd.fileno(), test_fd.fileno())
                assert opened_below(queue.path) == before, this.at


def test_an_interrupted_delete_is_finished_by_the_next(numbered):
    """Nothing of it takes room any more; there is at worst an empty directory."""
    counting = Round(1 << 30)
    queue = numbered(1)
    queue.close()
    with counting.interrupted():
        shmq.delete(queue.path)
    for place in range(counting.seen - 130, counting.seen, 3):  # where it takes away
        queue = numbered(1)
        queue.close()
        this = Round(place)
        with this.interrupted():
            shmq.delete(queue.path)
        with contextlib.suppress(shmq.NotFound):
            shmq.delete(queue.path)
        assert not os.path.exists(queue.path) or os.listdir(queue.path) == [], this.at


def test_an_interrupted_close_of_a_volatile_queue_keeps_nobody_out():
    """It was about to take the queue away, and had locked it; whoever opens it next need not wait for a collection."""
    place = f"shm:interrupted-{os.getpid()}"
    for this in places():
        queue = shmq.open(place)
        with this.interrupted():
            queue.close()
        shmq.open(place).close()
        queue.close()
    assert place not in shmq.volatile_queues()


def test_a_codec_that_raises_takes_and_puts_nothing(tmp_path):
    """What could not be encoded was not put, alone or in a batch; what cannot be decoded comes again."""

    class Refused(BaseException):
        pass

    class Angry:
        def __reduce__(self):
            raise Refused

    path = str(tmp_path / "q")
    with shmq.open(path, codec="pickle", trusted=True) as queue:
        for put in (queue.put, lambda value: queue.put_many([1, value, 2])):
            with pytest.raises(Refused):
                put(Angry())
        assert queue.next_index == 0
        assert queue.put(3) == 0
        for index in range(2):
            with queue.stage() as staged, pytest.raises(Refused):
                staged.put(Angry())
            assert queue.put(4) == index + 1
        with queue.consumer("c", start="earliest", ack="explicit") as consumer:
            real = consumer._decode
            consumer._stop()  # decoding is Python's from now on
            consumer._decode = consumer._handing._decode = lambda data: angry(Refused)(data) if refusing else real(data)
            refusing = True
            for verb in (consumer.take, lambda: consumer.take_many(2)):
                with pytest.raises(Refused):
                    verb()
                assert consumer.head == 0
            refusing = False
            assert (consumer.take(), consumer.take(), consumer.take()) == (3, 4, 4)


def angry(kind):
    """A function that raises."""

    def raises(_):
        raise kind

    return raises


@pytest.mark.parametrize("group", [False, True])
def test_a_loop_over_a_consumer_that_is_left_early_keeps_what_it_had(numbered, group):
    """What the loop's body was given is pending, and nothing behind it was taken."""
    with numbered(3) as queue, queue.consumer("c", start="earliest", ack="explicit", group=group) as consumer:
        for message in consumer:
            assert (message.index, consumer.pending) == (0, 1)
            message.ack()
            break
        assert [consumer.get(timeout=0).index for _ in range(2)] == [1, 2]


def test_a_loop_over_a_reader_that_is_left_early_goes_on_behind_it(numbered):
    """Forward and backward; closed in the middle, it has nothing open."""
    with numbered(3) as queue:
        for options, rest in (({}, [1, 2]), ({"reverse": True}, [1, 0])):
            with queue.reader(start=0, **options) as reader:
                loop = (message.index for message in reader)
                next(loop)
                loop.close()
                assert [message.index for message in reader] == rest


@pytest.mark.parametrize("group", [False, True])
def test_an_interrupt_ends_the_wait_of_the_main_thread_alone(numbered, group):
    """Another thread, which waits for the same queue, goes on and gets what comes."""
    with numbered(0) as queue:
        mine = queue.consumer("mine", group=group)
        other = queue.consumer("other", group=group)
        got = []
        thread = threading.Thread(target=lambda: got.append(other.take(timeout=20)))
        thread.start()
        signal_soon = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        signal_soon.start()
        with pytest.raises(KeyboardInterrupt):
            mine.take(timeout=20)
        signal_soon.join()
        queue.put(b"x")
        thread.join(20)
        assert got == [b"x"]
        assert mine.take(timeout=5) == b"x"
        mine.close()
        other.close()


def test_an_interrupted_reject_can_be_repeated(numbered):
    """It is no LeaseLost, wherever its end was interrupted, and the letter comes once."""
    with numbered(1) as queue, queue.consumer("g", group=True, ack="explicit", start="earliest") as group:
        counting = Round(1 << 30)
        message = group.get(timeout=5)
        with counting.interrupted():
            message.reject("no")
        letters = 1
        for place in range(counting.seen - 40, counting.seen):
            queue.put(b"000000")
            message = group.get(timeout=5)
            this = Round(place)
            with contextlib.suppress(shmq.SyncPending), this.interrupted():
                message.reject("no")
            message.reject("no")
            letters += 1

        def moved():
            with contextlib.suppress(shmq.Empty):
                group.get(timeout=0)
            return group.pending == 0

        until(moved)
        with shmq.open(f"{queue.path}.g.dead") as dead:
            assert len(dead) == letters


@pytest.mark.parametrize("durability", ["process", "sync"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("verb", ["get", "nack", "reject", "close"])
@pytest.mark.filterwarnings("error")
def test_what_a_handler_raises_while_a_letter_is_synced_comes_out(numbered, monkeypatch, verb, kind, durability):
    """No warning and no SyncPending says it instead; and the letter comes, once, though nobody asks again."""

    def until_once(*_, **__):
        monkeypatch.undo()
        raise kind

    with numbered(1, durability=getattr(shmq.Durability, durability.upper())) as queue:
        group = queue.consumer("g", group=True, ack="explicit", start="earliest", max_attempts=1)
        message = group.get(timeout=5)
        if verb in ("get", "close"):  # it comes back once too often
            group.close()
            group = queue.consumer("g", group=True)
        if verb == "close":
            queue.put(b"000001")
            monkeypatch.setattr(group._aside, "move_soon", lambda: None)
            assert number(group.get_many(2, timeout=5)[0].payload) == 1
            monkeypatch.undo()
        monkeypatch.setattr(durability_of_shmq.Syncer, "_until", until_once)
        with pytest.raises(kind) as raised:
            {"get": lambda: group.get(0), "nack": message.nack, "reject": message.reject, "close": group.close}[verb]()
        assert raised.type is kind
        if verb in ("nack", "reject"):
            getattr(message, verb)()  # it is ended, and says nothing
        until(lambda: group.lag == (verb == "close"))
        group.close()
        with shmq.open(f"{queue.path}.g.dead") as letters:
            assert [number(letter.payload) for letter in letters.reader()] == [0]


def test_what_expired_and_was_copied_by_an_interrupted_get_is_not_copied_again(numbered, monkeypatch, tmp_path):
    """Nor by another member: it is not given back, since it is marked as on its way."""

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with numbered(0) as queue:
        group = queue.consumer("g", group=True, ack="explicit", expire_to="old")
        other = queue.consumer("g", group=True)
        queue.put(b"000000", ttl=0)
        monkeypatch.setattr(dead.Mover, "sync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.get(timeout=0)
        with pytest.raises(shmq.Empty):
            other.get(timeout=0)
        until(lambda: group.lag == 0)
        with shmq.open(str(tmp_path / "old")) as old:
            assert len(old) == 1
        other.close()
        group.close()


def test_a_thread_begins_at_one_step_of_the_interpreter():
    """So what a handler raises is no KeyError of the standard library's, and nothing is printed."""
    seen = set()
    worker = Worker(lambda: None, "t")
    before = sys.gettrace()
    sys.settrace(lambda frame, *_: seen.add(frame.f_code.co_qualname))
    try:
        worker.start()
    finally:
        sys.settrace(before)
    worker.end(lambda: None)
    assert seen == {"Worker.start"}


def test_what_a_handler_raises_while_a_thread_begins_comes_out_as_it_is(monkeypatch):
    """At whatever moment; the thread works, or begins when that is repeated."""
    said, armed, over = [], [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", said.append)
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    def handler(*_):
        if armed:
            armed.clear()
            raise TimeoutError

    def shoot():
        while not over.wait(50e-6):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        for _ in range(300):
            done = threading.Event()
            worker = Worker(done.set, "t")
            try:
                armed.append(True)
                worker.start()
                while armed:
                    pass
            except TimeoutError:
                worker.start()
            assert done.wait(60)
            worker.end(lambda: None)
    finally:
        over.set()
        shooter.join()
        signal.signal(signal.SIGUSR1, before)
    assert said == []


def test_whoever_finishes_an_interrupted_delete_is_not_told_that_there_is_none(tmp_path, monkeypatch):
    path = str(tmp_path / "q")
    shmq.open(path).close()

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(making, "_remove", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shmq.delete(path)
    shmq.delete(path)
    assert not os.path.exists(path)
    with pytest.raises(shmq.NotFound):
        shmq.delete(path)


def test_found_an_adopt_interrupted_as_it_closed_what_was_staged_could_not_be_repeated(numbered, monkeypatch):
    """It said Closed, and the set was in the queue: staged once more it was there twice."""
    with numbered(1) as queue:
        staged = queue.stage()
        staged.put(b"x")
        close = staged._set.close

        def interrupted():
            staged._set.close = close
            raise KeyboardInterrupt

        staged._set.close = interrupted
        with pytest.raises(KeyboardInterrupt):
            queue.adopt(staged)
        assert queue.adopt(staged) == range(1, 2)
        with pytest.raises(shmq.Closed):
            queue.adopt(staged)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside others"])
def test_an_interrupted_roll_into_a_used_file_puts_once_or_not_at_all(tmp_path, monkeypatch, alone):
    """The file that this process has mapped becomes a chunk in several steps, under locks; none leaves it half done."""
    monkeypatch.setattr("shmq.storage.spares.WORTH_KEEPING", 0)
    monkeypatch.setattr("shmq.storage.warm._entries", [])  # only so many mappings are watched: not those of other tests
    renewed, real = [], new_chunks.renewed
    monkeypatch.setattr(new_chunks, "renewed", lambda *given: renewed.append(real(*given)) or renewed[-1])
    options = shmq.Options(chunk_bytes=1 << 16)
    with shmq.open(str(tmp_path / "q"), options=options) as queue, queue.consumer("c") as consumer:
        expected, rolled = 0, 0
        for this in places():
            for _ in range(3):  # what was used comes back, and is mapped here
                queue.put(b"%d" % expected)
                _end_the_chunk(queue)
                assert consumer.take(timeout=0) == b"%d" % expected
                expected += 1
            gc.collect()  # what an interrupted roll had in its hands
            renewed.clear()
            if not alone:
                queue._producer._chain._made_last = -1  # then it is somebody's turn
            with this.interrupted():
                queue.put(b"%d" % expected)
            assert turn_is_free(f"{queue.path}/chunks"), this.at
            rolled += any(fd is not None for fd in renewed)
            queue.put(b"%d" % (expected + 1))
            seen = [int(each) for each in iter(lambda: _taken(consumer), None)]
            whole, without = [expected, expected + 1], [expected + 1]
            assert seen == whole or (this.raised and seen == without), this.at
            _end_the_chunk(queue)
            expected += 2
        assert rolled > 40


def _end_the_chunk(queue):
    chain = queue._session.chain()
    chain.open(*chain.names()[-1], writable=True).seal()


def _taken(consumer):
    try:
        return consumer.take(timeout=0)
    except shmq.Empty:
        return None
