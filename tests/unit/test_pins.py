"""What holds chunks back: readers with a pin, and consumers that are archives."""

import os
import random
import signal

import pytest
from support import Child, chunk_files, hold_until_killed, in_child, kept_locks, make_unclean

import shmq
from shmq.storage import space
from shmq.storage.pins import Pin

KINDS = {
    "acked": shmq.Retention.acked(),
    "age": shmq.Retention.age(1e-6),
    "bytes": shmq.Retention.bytes(20_000),
}


def fill(queue, count=200):
    return [queue.put(b"%d" % number + bytes(900)) for number in range(count)]


def retire(queue):
    space.retire(queue._session.home, queue._session.chain(), queue._session.joined().control)
    return queue.first_index


def finish(queue):
    """Have everything acknowledged."""
    with queue.consumer("c", start="latest"):
        pass


def pins(path):
    return [name for name in os.listdir(f"{path}/consumers") if name.endswith(".pin")]


# ---------------------------------------------------------------- readers
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_pinned_is_retired(make, path, kind):
    queue = make(retention=KINDS[kind])
    queue.put(b"first")
    with queue.reader(0, pin=True) as reader:
        fill(queue)
        finish(queue)
        assert retire(queue) == 0
        assert [message.index for message in reader] == list(range(201))
        assert 150 < retire(queue) < 201  # it goes on as the reader does
        assert len(pins(path)) == 1
    assert pins(path) == []
    fill(queue)
    with queue.reader(pin="mine"), pytest.raises(shmq.Busy, match="'mine'"):
        queue.reader(pin="mine")
    assert retire(queue) > 150


def test_it_holds_only_from_its_place_on(make):
    queue = make(retention=KINDS["age"])
    with queue.reader(0, pin=True):
        fill(queue)
        with queue.reader(100, pin=True):
            pass
        assert retire(queue) == 0
        later = queue.reader(100, reverse=True, pin=True)
    assert 80 < retire(queue) <= 100
    assert [message.index for message in later] == list(range(199, 99, -1))
    assert 80 < retire(queue) <= 100
    later.close()
    assert retire(queue) > 180


def test_a_purge_leaves_what_is_pinned(make):
    queue = make(retention=shmq.Retention.forever())
    fill(queue)
    with queue.reader(50, pin=True) as reader:
        queue.purge()
        assert 0 < queue.first_index <= 50
        assert next(reader).index == 50
    queue.purge()
    assert queue.first_index > 180


def test_the_pin_of_who_was_killed_is_nobodys(make, path):
    queue = make(retention=KINDS["age"])
    queue.put(b"first")

    def work(say):
        with shmq.open(path) as mine:
            reader = mine.reader(pin="p")
            say(reader.__class__.__name__)
            hold_until_killed(say)

    with Child(work) as child:
        child.hear()
        fill(queue)
        assert retire(queue) == 0
        child.kill()
        assert retire(queue) > 0
    assert pins(path) == []
    with queue.reader(pin="p"):
        assert pins(path) == ["p.pin"]


def test_a_forked_child_neither_keeps_nor_ends_it(make, path):
    queue = make(retention=KINDS["age"])
    reader = queue.reader(pin=True)
    assert in_child(lambda: str(reader.close())) == "None"
    assert len(pins(path)) == 1
    fill(queue)
    assert retire(queue) == 0
    reader.close()
    assert retire(queue) > 0


def test_a_pin_in_what_must_not_be_changed(make, path):
    make().put(b"x")
    with shmq.open(path, read_only=True) as queue, pytest.raises(shmq.Closed, match="read-only"):
        queue.reader(pin=True)
    with pytest.raises(ValueError):
        make().reader(pin="../x")
    assert pins(path) == []


def test_a_pin_is_no_consumer(make):
    queue = make(max_messages=3, full="raise", retention=KINDS["acked"])
    with queue.consumer("c") as consumer, queue.reader(pin=True):
        for number in range(50):
            queue.put(b"%d" % number + bytes(900))
            consumer.take(0)
        assert queue.consumers().keys() == {"c"}
        assert queue.first_index == 0
    assert retire(queue) > 0


def test_after_a_power_cut_no_pin_is_left(make, path):
    queue = make(retention=KINDS["age"])
    reader = queue.reader(pin="p")
    fill(queue)
    content = (path, os.stat(f"{path}/consumers/p.pin").st_size)
    assert content[1] == 8
    reader.close()
    queue.close()
    with open(f"{path}/consumers/p.pin", "wb") as left:
        left.write(bytes(3))  # as the disk had it
    os.chmod(f"{path}/consumers/p.pin", 0o600)
    make_unclean(path)
    queue = make(retention=KINDS["age"])
    fill(queue, 60)
    assert retire(queue) > 0
    assert pins(path) == []


# ---------------------------------------------------------------- archives
@pytest.mark.parametrize("kind", ["age", "bytes"])
def test_nothing_is_retired_that_an_archive_has_not_passed(make, path, kind):
    queue = make(retention=KINDS[kind])
    queue.consumer("archive", ack="explicit", hold=True).close()
    fill(queue)
    assert retire(queue) == 0
    queue.close()
    queue = make(retention=KINDS[kind])  # whether anybody has it open or not
    fill(queue, 10)
    assert retire(queue) == 0
    with queue.consumer("archive", ack="explicit") as consumer:
        for expected in range(100):
            message = consumer.get(0)
            assert message.index == expected
            message.ack()
        assert 50 < retire(queue) <= 100
    queue.rename_consumer("archive", "parquet")
    assert retire(queue) <= 100
    queue.copy(f"{path}.copy")
    assert os.path.exists(f"{path}.copy/consumers/parquet.hold")
    queue.drop_consumer("parquet")
    assert not [file for file in os.listdir(f"{path}/consumers") if file.startswith(("archive", "parquet"))]
    assert retire(queue) > 150
    queue.consumer("parquet", ack="explicit", start="earliest").close()
    first = queue.first_index
    fill(queue)
    assert retire(queue) > first  # the new one of that name never asked for it


def test_an_archive_that_is_given_up(make):
    queue = make(retention=KINDS["age"])
    queue.consumer("archive", hold=True).close()
    fill(queue)
    queue.consumer("archive").close()
    assert retire(queue) == 0
    queue.consumer("archive", hold=False).close()
    assert retire(queue) > 0


def test_killed_while_it_is_made_it_holds_or_is_not_there(make, path):
    """The marker comes before the checkpoint: no name that was to hold is there without it."""
    queue = make(retention=KINDS["age"])
    queue.put(b"x")

    def work(say):
        from shmq.taking import names

        def die(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)

        names.make_checkpoint = die
        shmq.open(path).consumer("archive", hold=True)

    with Child(work) as child:
        assert child.join() == -signal.SIGKILL
    fill(queue)
    assert retire(queue) > 0  # nobody of that name
    queue.consumer("archive", start="earliest").close()
    first = queue.first_index
    fill(queue)
    assert retire(queue) > first


# ---------------------------------------------------------------- names that are only looked at
def test_a_name_that_holds_nothing_releases_nothing_either(make, path):
    """Alone in the queue, whatever its place, everything stays; beside others, what they have finished goes."""
    queue = make(retention=KINDS["acked"])
    fill(queue)
    with queue.consumer("mirror", ack="explicit", start="latest", hold="nothing") as mirror:
        mirror.seek(150)
        assert retire(queue) == 0
        assert queue.consumers()["mirror"].hold == "nothing"
        assert queue.consumers()["mirror"].lag == 50
    queue.close()
    queue = make(retention=KINDS["acked"])
    assert retire(queue) == 0
    finish(queue)  # another name, at the end
    assert retire(queue) > 190
    with queue.consumer("mirror") as mirror:  # far behind what there is, and moved on all the same
        mirror.seek(200)
    assert queue.consumers()["mirror"].lag == 0


def test_a_bounded_queue_does_not_wait_for_a_name_that_holds_nothing(make):
    queue = make(max_messages=10, full="raise")
    with queue.consumer("reader") as reader, queue.consumer("mirror", hold="nothing"):
        for number in range(50):
            queue.put(b"%d" % number)
            assert reader.take(0) == b"%d" % number


def test_a_name_is_told_to_hold_nothing_and_to_hold_again(make):
    """Who has the queue open, and waits for room, sees each change."""
    queue = make(max_messages=3, full="raise")
    queue.consumer("other").close()
    queue.consumer("left").close()
    queue.put_many([b"1", b"2", b"3"])
    with queue.consumer("other") as other:
        other.take_many(3, 0)
    with pytest.raises(shmq.Full, match="'left'"):
        queue.put(b"4")
    queue.consumer("left", hold="nothing").close()
    queue.put(b"4")
    queue.consumer("left", hold=False).close()
    with pytest.raises(shmq.Full, match="'left'"):
        queue.put(b"5")


def test_that_it_holds_nothing_goes_along(make, path):
    """To another name and into a copy; and with the name, so that a later one of that name, or a group, holds."""
    queue = make(retention=KINDS["acked"])
    fill(queue)
    queue.consumer("mirror", start=200, hold="nothing").close()
    queue.rename_consumer("mirror", "m")
    queue.copy(f"{path}.copy")
    with shmq.open(f"{path}.copy") as copy:
        assert retire(copy) == 0
        assert copy.consumers()["m"].hold == "nothing"
    queue.drop_consumer("m")
    assert retire(queue) == 0
    with open(f"{path}/consumers/m.hold", "wb") as left:  # as by one that was killed while it dropped it
        left.write(b"shmqnone")
    os.chmod(left.name, 0o600)
    with queue.consumer("m", group=True):
        finish(queue)
        assert retire(queue) == 0


@pytest.mark.parametrize("said", ["never", 1])
def test_what_a_name_holds_is_said_in_one_of_three_ways(queue, said):
    with pytest.raises(TypeError, match='True or False, or "nothing" is wanted'):
        queue.consumer("c", hold=said)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_what_is_held_is_there(make, path, seed):
    """Pins and an archive come, move and go, chunks retire: the first index never passes any of their places."""
    chance = random.Random(seed)
    queue = make(retention=KINDS[chance.choice(["age", "bytes"])])
    archive, readers, place = queue.consumer("archive", hold=True), [], 0
    for _ in range(120):
        what = chance.randrange(5)
        if what == 0:
            fill(queue, 20)
        elif what == 1:
            readers.append(queue.reader(chance.randrange(queue.first_index, queue.next_index + 1), pin=True))
        elif what == 2 and readers:
            readers.pop(chance.randrange(len(readers))).close()
        elif what == 3 and archive.lag:
            place += len(archive.take_many(30, 0))
        elif readers:
            reader = chance.choice(readers)
            at, first = reader._walk.index(), retire(queue)
            assert first <= at
            assert [message.index for _, message in zip(range(15), reader, strict=False)][:1] in ([at], [])
        assert retire(queue) <= min([place, *(reader._walk.index() for reader in readers)])
    for reader in readers:
        reader.close()
    assert len(pins(path)) == 0
    assert len(chunk_files(path)) >= 1


def test_a_pin_has_no_descriptor_open_and_a_closed_one_nothing_mapped(queue):
    fill(queue, 3)
    with queue.reader():  # what every first reader opens is open
        pass
    before, locks = len(os.listdir("/proc/self/fd")), len(kept_locks(queue.path))
    pin = Pin(queue._session.home, "p")
    pin.take()
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(kept_locks(queue.path)) == locks + 1
    pin.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(kept_locks(queue.path)) == locks
