"""Retention: which chunks go, when, and that nobody loses what it looks at."""

from __future__ import annotations

import contextlib
import os
import random
import time

import pytest
import support

import shmq
from shmq.storage import chain, files, space, spares


def chunk_files(path, prefix=""):
    return sorted(name for name in os.listdir(f"{path}/chunks") if name.startswith(prefix))


def live(path):
    return [name for name in chunk_files(path) if name.endswith(".chunk")]


def fill(queue, count=1000, size=100):
    for i in range(count):
        queue.put(i.to_bytes(4, "big").ljust(size, b"."))


def numbers(payloads):
    return [int.from_bytes(payload[:4], "big") for payload in payloads]


def test_with_no_consumer_nothing_is_finished(queue, path):
    """Retention.acked() keeps everything as long as no name exists."""
    fill(queue)

    assert queue.first_index == 0
    assert len(live(path)) > 5


def test_what_all_names_have_finished_goes(queue, path):
    """A chunk goes when the slowest name has passed it, and not before."""
    fill(queue)
    fast, slow = queue.consumer("fast"), queue.consumer("slow")

    assert numbers(fast.take_many(1)) == [0]
    for expected in range(1, 1000):
        assert numbers([fast.take()]) == [expected]
    assert queue.first_index == 0

    assert [numbers([slow.take()])[0] for _ in range(1000)] == list(range(1000))
    assert queue.first_index > 900
    assert len(live(path)) == 1


def test_an_explicit_name_holds_back_what_it_has_not_acknowledged(queue, path):
    """Handed out is not finished."""
    fill(queue)
    consumer = queue.consumer("work", ack="explicit")
    first = consumer.get()
    rest = [consumer.get() for _ in range(999)]

    assert queue.first_index == 0

    consumer.ack(first, *rest)
    fill(queue, 300)
    [consumer.take() for _ in range(300)]
    assert queue.first_index > 900


def test_forever_keeps_everything(make, path):
    """Retention.forever() never retires."""
    queue = make(retention=shmq.Retention.forever())
    fill(queue)
    consumer = queue.consumer("all")
    [consumer.take() for _ in range(1000)]

    assert queue.first_index == 0
    assert queue[17].payload[:4] == (17).to_bytes(4, "big")


def test_by_bytes_the_newest_stay_and_a_late_name_is_told_once(make, path):
    """A name that fell behind gets Gone with the first index still there, once; then it goes on there."""
    queue = make(retention=shmq.Retention.bytes(4 * 16384))
    consumer = queue.consumer("late")
    assert consumer.head == 0
    fill(queue)

    assert len(live(path)) <= 5
    first = queue.first_index
    assert first > 0
    with pytest.raises(shmq.Gone, match=rf"no message 0 any more.*before {first} was retired") as told:
        consumer.take(timeout=0)
    assert told.value.first_index == first
    assert numbers([consumer.take(timeout=0)]) == [first]


def test_a_name_that_is_overtaken_in_the_middle_is_told_once(make):
    """Gone also comes to a name that was reading when what followed went."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384))
    consumer = queue.consumer("late")
    fill(queue, 10)
    assert numbers([consumer.take()]) == [0]
    fill(queue, 2000)

    seen, gone = [], 0
    while len(seen) < 9 or seen[-1] < 2000 - 1:
        try:
            seen += numbers([consumer.take(timeout=0)])
        except shmq.Gone as told:
            lost = f"no message {len(seen) + 1} any more: what came before {queue.first_index} was retired"
            gone += told.first_index == queue.first_index and lost in str(told)
        except shmq.Empty:
            break
    assert gone == 1
    assert seen[:9] == list(range(1, 10))


def test_by_age_old_chunks_go(make, path):
    """What was put before its chunk's successor was made, longer ago than the limit, goes at the next roll."""
    queue = make(retention=shmq.Retention.age(0.05))
    fill(queue, 500)
    before = live(path)
    time.sleep(0.1)  # the limit itself: wall-clock time is what this retention is about
    fill(queue, 200)

    assert live(path)[0] >= before[-1]  # every chunk that had a successor then has gone
    assert queue.first_index >= 400


def test_a_late_producer_of_a_chunk_retired_by_bytes_is_fenced(make):
    """Its open claim is padded before the chunk goes, so it is told, and not given a dead index."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384))
    slot = queue.reserve(10)
    fill(queue)

    with pytest.raises(shmq.Fenced):
        slot.commit()


@pytest.mark.parametrize("purged", [False, True])
def test_padding_that_was_retired_is_not_missing_from_what_is_there(make, purged):
    """It was subtracted for ever, so that len() came out too small, at last as 0."""
    queue = make(chunk_bytes=16384, retention=shmq.Retention.forever() if purged else shmq.Retention.acked())
    consumer = queue.consumer("c")
    for _ in range(3):
        queue.reserve(10).abort()
    for _ in range(4):
        queue.put(bytes(9000))
    queue.reserve(10).abort()
    assert (len(queue), queue.stats().padded) == (4, 4)
    for _ in range(3):
        consumer.take()
    if purged:
        queue.purge()
    assert queue.first_index > 3
    assert len(queue) == len(list(queue.reader())) > 0
    assert queue.stats().padded == 1


def test_views_and_messages_outlive_their_chunk(queue, path):
    """A chunk is never cut from under a view: its file is not used again while somebody looks at it."""
    fill(queue)
    consumer = queue.consumer("only")
    message = consumer.get()
    view = message.view
    inode = os.stat(f"{path}/chunks/{live(path)[0]}").st_ino
    for _ in range(999):
        consumer.take()
    fill(queue, 3000)
    with contextlib.suppress(shmq.Empty):
        while True:
            consumer.take(timeout=0)

    assert queue.first_index > 3000
    assert inode in {os.stat(f"{path}/chunks/{name}").st_ino for name in chunk_files(path, "retired-")}
    assert bytes(view) == (0).to_bytes(4, "big").ljust(100, b".")
    assert message.payload == bytes(view)


def test_used_chunks_are_used_again(make, path, monkeypatch):
    """A queue whose consumer keeps up lives in a few files, which serve again and again."""
    monkeypatch.setattr(spares, "WORTH_KEEPING", 16384)
    queue = make()
    consumer = queue.consumer("only")
    inodes = set()
    for _ in range(40):
        fill(queue, 200)
        assert numbers(consumer.take() for _ in range(200)) == list(range(200))
        inodes |= {os.stat(f"{path}/chunks/{name}").st_ino for name in chunk_files(path)}
    assert len(chunk_files(path)) <= 4
    assert len(inodes) < 20  # of some 80 chunks


def test_dropping_the_name_that_held_back_frees_the_disk(queue, path):
    """drop_consumer retires what that name alone kept."""
    fill(queue)
    queue.consumer("gone").close()
    consumer = queue.consumer("only")
    [consumer.take() for _ in range(1000)]
    assert queue.first_index == 0

    queue.drop_consumer("gone")

    assert queue.first_index > 900
    assert len(live(path)) == 1


def test_a_reader_goes_on_behind_what_was_retired(queue):
    """A reader has no claim on anything: asked for what is gone, it begins at the first message there is."""
    fill(queue)
    consumer = queue.consumer("only")
    [consumer.take() for _ in range(1000)]

    first = queue.first_index
    assert first > 0
    assert next(iter(queue.reader(0))).index == first
    with pytest.raises(IndexError, match=f"message 0 .* was retired: the first index still there is {first}"):
        queue[0]


def test_a_used_chunk_can_be_opened_as_soon_as_it_has_its_name(queue, path, monkeypatch):
    """Its maker still held the lock of whoever zeroes; so it counted as retired, although it was the newest."""
    monkeypatch.setattr(spares, "WORTH_KEEPING", 16384)
    become, seen = spares.Spare.become, []

    def opened(self, name):
        became = become(self, name)
        if became and name.endswith(".chunk"):
            with shmq.open(path) as other:
                seen.append(other.next_index)
        return became

    monkeypatch.setattr(spares.Spare, "become", opened)
    consumer = queue.consumer("only")
    for _ in range(4):
        fill(queue)
        [consumer.take() for _ in range(1000)]
    assert seen


def test_a_name_is_opened_again_while_the_chunk_it_stood_in_is_retired(queue, path, monkeypatch):
    """Its place was looked up among the names of the chunks, and another process had retired that one by then."""
    fill(queue)
    (_, _), (_, second) = queue._session.chain().names()[:2]
    holder = queue.consumer("holder")
    with queue.consumer("work") as consumer:
        consumer.take_many(second - 1)
        consumer.take()
        assert consumer.head == second
    named, gone = chain.Chain.named, []

    def retired(self, sequence):
        found = named(self, sequence)
        if not gone:
            gone.append(live(path)[0])
            while gone[0] in live(path):
                holder.take()
        return found

    monkeypatch.setattr(chain.Chain, "named", retired)
    with queue.consumer("work") as consumer:
        assert numbers([consumer.take()]) == [second]
    assert gone


def test_A2_a_slow_roller_cannot_bring_a_retired_name_back(queue, path):  # noqa: N802
    """Whoever links a chunk below first_live finds out before its first claim there, and takes it away again."""
    fill(queue, 120)
    stale = queue.producer()
    tail = stale._tail
    fill(queue, 1000)
    consumer = queue.consumer("only")
    [consumer.take() for _ in range(1120)]
    assert queue.first_index > 1000
    before = live(path)

    stale._tail = tail  # as if it had found its chunk sealed and been stopped there
    stale._move(tail.address, 0, 0, tail)
    index = stale.put(b"late")

    assert index == 1120
    assert consumer.take() == b"late"
    assert [name for name in live(path) if name < before[0]] == []


def test_retiring_and_putting_and_naming_race(make, path):
    """Producers, consumers and new names at once, from several processes: every name sees an unbroken run."""
    queue = make()
    consumers = [queue.consumer(f"c{i}") for i in range(2)]
    child = support.start(fill, queue, 4000, 60)
    expected = [0, 0]
    chance = random.Random(5)
    while min(expected) < 4000:
        which = chance.randrange(2)
        for payload in consumers[which].take_many(50, timeout=support.DEADLINE) if expected[which] < 4000 else ():
            assert numbers([payload]) == [expected[which]]
            expected[which] += 1
        if chance.random() < 0.05:
            with queue.consumer("guest") as guest, contextlib.suppress(shmq.Empty):
                seen = numbers(guest.take_many(20, timeout=0))
                assert seen == list(range(seen[0], seen[0] + len(seen)))
    assert os.waitpid(child, 0)[1] == 0
    queue.drop_consumer("guest") if "guest" in queue.consumers() else None


def test_of_what_came_back_after_it_was_retired_a_group_is_told_once(make):
    """However few it asks for at a time, and whichever member asks."""
    queue = make(retention=shmq.Retention.bytes(2 * 16384))
    one, other = (queue.consumer("g", group=True, ack="explicit") for _ in range(2))
    fill(queue, 10)
    held = [one.get(timeout=0) for _ in range(10)]
    later = queue.consumer("g", group=True, ack="explicit")
    fill(queue, 2000)
    assert queue.first_index > held[-1].index
    one.close()

    told, seen = [], []
    while len(seen) < 20:
        for member in (other, later):
            try:
                seen.append(member.get(timeout=0))
            except shmq.Gone as gone:
                told.append(gone.first_index)
    assert told == [queue.first_index]
    assert seen[0].index == queue.first_index
    assert queue.stats().consumers["g"].group.retired == seen[0].index


@pytest.mark.parametrize(("room", "kept"), [(4 * 4096, 4), (3 * 4096, 3), (4 * 4096 - 1, 3)])
def test_more_than_keep_are_kept_as_far_as_the_room_goes(tmp_path, monkeypatch, room, kept):
    """What fills it exactly, too."""
    monkeypatch.setattr(spares, "KEEP", 2)
    for number in range(6):
        (tmp_path / f"retired-{number}").touch(mode=0o600)  # what others may read is no file of ours
        (tmp_path / f"retired-{number}").write_bytes(bytes(4096))
    with files.open_directory(str(tmp_path)) as directory:
        spares.reclaim(directory, 4096, room)
    assert len(os.listdir(tmp_path)) == kept


def test_a_chunk_that_was_cut_short_has_no_age(make, path):
    """Whoever retires by age names the file."""
    queue = make(retention=shmq.Retention.age(3600))
    fill(queue)
    name = live(path)[1]
    os.truncate(f"{path}/chunks/{name}", 20)
    with pytest.raises(shmq.Corrupt, match=f"{name}: it was cut short"):
        space._created(queue._session.home, queue._session.chain().names()[1])


def test_what_comes_back_and_is_not_there_is_told_as_gone_only_where_it_was_retired(make, monkeypatch):
    """Of the first message that is left a power cut may leave the group's snapshot alone; nobody was promised that."""
    queue = make(retention=shmq.Retention.age(3600))
    queue.put(b"x")
    member = queue.consumer("g", group=True, ack="explicit")
    member.get(0).nack()

    def none(index):
        raise IndexError(index)

    monkeypatch.setattr(member._access, "message", none)
    for _ in range(2):
        with pytest.raises(shmq.Empty):
            member.get(0)
