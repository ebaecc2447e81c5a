"""The chain: chunks grow, roll, and follow each other without a hole, whoever finds the last one sealed."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from support import DONE, FIRST_LIVE, NEWEST, PAGE, SEAL, Child, chunk_bytes, chunk_files, patch, peek, states, words

import shmq
from shmq.storage import chain, directory, new_chunks


def names(path):
    return [tuple(int(part, 16) for part in file.stem.split("-")) for file in chunk_files(path)]


def check_chain(path):
    """Every chunk's name follows from its predecessor's name and count; every one but the last is sealed."""
    links = names(path)
    for which, (base, sequence) in enumerate(links[:-1]):
        count = sum(word.count for word in words(path, which))
        assert states(path, which)[-1] == SEAL
        assert links[which + 1] == (base + count, sequence + 1)


def test_chunks_grow_by_four_from_64_kib(make, path):
    """Small queues are small: 64 KiB, 256 KiB, 1 MiB, 4 MiB; and behind five live ones, chunk_bytes."""
    queue = make(chunk_bytes=6 << 20)
    for _ in range(170):
        queue.put(bytes(60_000))
    assert [len(chunk_bytes(path, which)) >> 10 for which in range(6)] == [64, 256, 1024, 4096, 4096, 6144]
    check_chain(path)


def test_a_queue_of_nine_messages_takes_little(make, path):
    """All of its files together, on the disk; and a queue whose consumers keep up settles in a few files."""
    queue = make()
    queue.put_many([b"x"] * 9)
    assert queue.stats().disk_bytes < 200_000
    consumer = queue.consumer("c")
    for _ in range(200):
        queue.put_many([bytes(1000)] * 100)
        consumer.take_many(100)
    assert queue.stats().disk_bytes < 24 << 20


def test_every_byte_is_promised_before_the_name_is_there(queue, path):
    """A chunk has its blocks on disk from the start, and one name; the folder holds nothing else."""
    queue.put(b"x")
    (file,) = Path(path, "chunks").iterdir()
    assert (file.stat().st_blocks * 512 >= 16384, file.stat().st_nlink, file.stat().st_mode & 0o777) == (True, 1, 0o600)


def test_one_message_larger_than_a_chunk_gets_a_chunk_made_to_its_size(queue, path):
    """It comes back whole; the next chunk is of the normal size again."""
    queue.put(b"small")
    large = bytes(range(256)) * 4096
    assert queue.put(large) == 1
    queue.put(b"behind")
    queue.put(bytes(10_000))
    assert [message.payload for message in queue.reader(1, 3)] == [large, b"behind"]
    sizes = [len(chunk_bytes(path, which)) for which in range(len(chunk_files(path)))]
    assert len(large) < sizes[1] < len(large) + 4 * PAGE
    check_chain(path)


def test_a3_an_empty_sealed_chunk_has_its_successor_under_the_same_base(queue, path):
    """
    Rule A3: a message too large for an empty chunk seals it with count 0. The successor has the same base and the next
    sequence, so it is told from its predecessor; every reader goes over the empty one.
    """
    large = bytes(100_000)
    queue.put(b"x")
    for expected in (1, 2):
        queue._shared_producer()._chain.tail().seal()  # as one who wanted more room than is left
        assert queue.put(large) == expected
    queue.put(b"end")
    assert queue.consumer("c").take_many(1, timeout=0) == [b"x"]
    assert [len(message.payload) for message in queue.reader()] == [1, 100_000, 100_000, 3]
    check_chain(path)


def test_a3_small_and_large_find_the_chunk_sealed_at_once(make, path):
    """
    Rule A3: the small one links a normal chunk; the large one finds it empty and too small, seals it, and goes on.
    """
    small, large = make().producer(), make().producer()
    small.put(b"0")
    small._tail.seal()
    small._roll(small._tail, 64)
    assert large.put(bytes(100_000)) == 1
    assert small.put(b"2") == 2
    assert names(path)[:3] == [(0, 0), (1, 1), (1, 2)]
    assert states(path, 1) == [SEAL]
    assert [message.index for message in make().reader()] == [0, 1, 2]
    check_chain(path)


def test_many_find_it_sealed_at_once(make, path):
    """Eight threads with handles of their own roll over many chunks; every index is given once."""
    barrier = threading.Barrier(8)
    got = []

    def put():
        producer = make().producer()
        barrier.wait()
        got.append([producer.put(bytes(3000)) for _ in range(60)])

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(index for each in got for index in each) == list(range(480))
    assert all(each == sorted(each) for each in got)
    check_chain(path)


def test_many_processes_find_it_sealed_at_once(queue, path):
    """Four processes of their own seats."""

    def put(say):
        say(" ".join(str(queue.put(bytes(3000))) for _ in range(100)))

    children = [Child(put) for _ in range(4)]
    got = [int(index) for child in children for index in child.hear().split()]
    assert [child.join() for child in children] == [0] * 4
    assert sorted(got) == list(range(400))
    check_chain(path)


def test_a_roller_that_dies_before_the_link_leaves_nothing(queue, path, monkeypatch):
    """The chain ends with a sealed chunk, which is legal; the next producer makes the successor."""
    queue.put(b"x")

    def die_instead(*_):
        import os

        os._exit(9)

    def roll_and_die(_):
        monkeypatch.setattr("shmq.storage.files.link_file", die_instead)
        queue.put(bytes(16000))

    with Child(roll_and_die) as child:
        assert child.join() == 9
    assert [states(path), len(list(Path(path, "chunks").iterdir()))] == [[DONE, SEAL], 1]
    assert [message.payload for message in queue.reader()] == [b"x"]
    assert queue.put(b"y") == 1
    check_chain(path)


def test_a2_a_slow_roller_finds_its_chunk_retired_and_begins_at_the_live_end(make, path):
    """
    Rule A2: P has found chunk 0 sealed and stops; others roll on twice; chunks 0 and 1 are retired. P's put goes to the
    live end, and no index is given twice.
    """
    slow, others = make().producer(), make()
    slow.put(b"0")
    while len(chunk_files(path)) < 3:
        last = others.put(bytes(4000))
    patch(Path(path, "control.shmq"), FIRST_LIVE, (2).to_bytes(8, "little"))
    for file in chunk_files(path)[:2]:
        file.unlink()
    assert slow.put(b"late") == last + 1
    assert [sequence for _, sequence in names(path)] == [2]


def test_a2_a_chunk_linked_under_a_retired_name_is_unlinked_again(make, path, monkeypatch):
    """
    Rule A2: the successor is retired between P's look at the directory and its link. What P has linked is not the log:
    it is unlinked, and P begins again from the live end.
    """
    slow, others = make().producer(), make()
    slow.put(b"0")
    real = new_chunks.make_chunk

    def retire_then_make(home, base, sequence, *more, **named):
        monkeypatch.setattr(new_chunks, "make_chunk", real)
        while len(chunk_files(path)) < 3:
            others.put(bytes(4000))
        patch(Path(path, "control.shmq"), FIRST_LIVE, (2).to_bytes(8, "little"))
        for file in chunk_files(path)[:2]:
            file.unlink()
        return real(home, base, sequence, *more, **named)

    monkeypatch.setattr(new_chunks, "make_chunk", retire_then_make)
    index = slow.put(bytes(16000))
    assert index == others.next_index - 1
    assert min(sequence for _, sequence in names(path)) == 2


OPEN = {
    "auto": lambda queue: queue.consumer("late", hold="nothing"),
    "group": lambda queue: queue.consumer("late", group=True),
    "reader": lambda queue: queue.reader(follow=True),
}


@pytest.mark.parametrize("kind", OPEN)
def test_found_a2_an_empty_chunk_under_a_retired_name_was_read_and_called_damaged(make, kind):
    """
    Rule A2: a roller that is killed behind its link leaves an empty chunk under a retired name. Whoever came from the
    chunk before it found nothing there, and later chunks: a hole.
    """
    late, others = OPEN[kind](make()), make()
    others.put(b"0")
    messages = iter(late)
    next(messages)
    while len(names(others.path)) < 4:
        others.put(bytes(4000))
    base, sequence = names(others.path)[1]
    others.purge()
    assert new_chunks.make_chunk(others._session.home, base, sequence)
    others.put(b"last")
    with pytest.raises(shmq.Gone) if kind == "reader" else contextlib.nullcontext():
        assert b"last" in (message.payload for message in messages)


def test_c3_a_claim_always_leaves_room_for_gap_and_seal(queue, path):
    """Rule C3: payloads of all sizes fill chunk after chunk; the last 32 bytes never hold a message."""
    for size in range(0, 8000, 13):
        queue.put(bytes(size))
    for which in range(len(chunk_files(path))):
        last = [word for word in words(path, which) if word.state == DONE][-1]
        assert last.position + last.span * 8 <= len(chunk_bytes(path, which)) - 32
    check_chain(path)


def test_the_control_page_names_the_newest_chunk(queue, path):
    """One more than its sequence, before anything is put there: a last chunk that is gone is missed."""
    assert peek(Path(path, "control.shmq"), NEWEST) == 0
    queue.put(bytes(9000))
    assert peek(Path(path, "control.shmq"), NEWEST) == 1
    queue.put(bytes(9000))
    assert peek(Path(path, "control.shmq"), NEWEST) == 2


@pytest.fixture
def long(make):
    """A queue of many chunks, of one message each, that nobody has open."""
    queue = make(retention="forever")
    for number in range(30):
        queue.put(b"%02d" % number + bytes(9000))
    queue.close()
    return queue.path


def test_whoever_opens_a_long_queue_lists_no_chunks(long, monkeypatch):
    """Nor whoever puts there, or takes from its beginning; it took 100 ms with 10,000 chunks."""
    monkeypatch.setattr(chain, "_FEW", 10)
    monkeypatch.setattr(directory.Directory, "chunk_names", lambda _: pytest.fail("it lists"))
    with shmq.open(long) as queue:
        assert queue.put(b"x") == 30
        with queue.consumer("c") as consumer:
            assert [consumer.take(0)[:2] for _ in range(5)] == [b"%02d" % number for number in range(5)]
        with queue.consumer("c") as again:
            assert again.take(0)[:2] == b"05"


def test_whoever_comes_after_a_death_takes_few_names_apart(long, monkeypatch):
    """Those of the chunks in which the dead may have claimed something, of however many there are."""
    with shmq.open(long) as queue:
        links = queue._session.chain()
        assert links.since(29) == [(29, 29)]
        assert links.since(0) == links.names()
        assert links.since(30) == []
        second = Path(long, "chunks", f"{28:016x}-{27:08x}.chunk")
        second.write_bytes(b"")
        with pytest.raises(shmq.Corrupt, match="two chunks of sequence 27"):
            links.since(27)
        second.unlink()
        Path(long, "chunks", "another-0000001c.chunk").write_bytes(b"")
        monkeypatch.setattr(directory.Directory, "chunk_names", lambda _: pytest.fail("it takes all apart"))
        assert links.since(27) == [(27, 27), (28, 28), (29, 29)]


@pytest.mark.parametrize(("newest", "base"), [(30, 7), (29, 29), (0, 0), (12, 11)])
def test_where_the_control_page_names_no_chunk_that_is_there_the_folder_is_listed(long, newest, base):
    """Whoever enters a chunk is killed between two words, or two enter at once; or it is one that is not the last."""
    patch(Path(long, "control.shmq"), NEWEST, newest.to_bytes(8, "little") + base.to_bytes(8, "little"))
    with shmq.open(long) as queue:
        assert (queue.first_index, queue.next_index, len(queue)) == (0, 30, 30)
        assert queue.put(b"x") == 30
        assert [bytes(each.payload[:2]) for each in queue.reader(start=28)] == [b"28", b"29", b"x"]
    check_chain(long)


def test_a_chunk_that_nobody_has_entered_yet_is_found_behind_the_one_that_was(long):
    """Whoever made it was killed before it said so."""
    with shmq.open(long) as queue:
        chain_of = queue._session.chain()
        tail = chain_of.tail()
        tail.seal()
        new_chunks.make_chunk(queue._session.home, tail.sealed(), tail.sequence + 1)
        assert chain_of.last() == (29, 29)
        assert chain_of.names()[-1] == (30, 30)
    with shmq.open(long) as queue:
        assert queue.next_index == 30
        assert queue.put(b"x") == 30
        assert queue._session.chain().last() == (30, 30)
    check_chain(long)


def test_what_is_missing_in_the_middle_of_a_long_chain_is_found_by_whoever_comes_there(long, monkeypatch):
    chunk_files(long)[12].unlink()
    with pytest.raises(shmq.Corrupt, match="is missing"):
        shmq.open(long)  # it is short
    monkeypatch.setattr(chain, "_FEW", 10)
    with shmq.open(long) as queue, queue.consumer("c") as consumer:
        assert queue.put(b"x") == 30
        assert [consumer.take(0)[:2] for _ in range(12)] == [b"%02d" % number for number in range(12)]
        with pytest.raises(shmq.Corrupt, match="is missing"):
            consumer.take(0)
        assert not queue.verify()


@pytest.mark.parametrize("which", [0, 29])
def test_a_long_chain_without_its_first_or_last_chunk_is_not_opened(long, monkeypatch, which):
    monkeypatch.setattr(chain, "_FEW", 10)
    chunk_files(long)[which].unlink()
    with pytest.raises(shmq.Corrupt, match=r"is missing, where the queue (begins|ends)"):
        shmq.open(long)


@pytest.mark.parametrize("spacing", [1, 64, 65536])
def test_any_index_spacing_leaves_room_for_messages(make, path, spacing):
    """index2index grows as spacing shrinks; a chunk of the smallest size works with all."""
    queue = make(index_spacing=spacing)
    for i in range(50):
        queue.put(b"%d" % i * 100)
    assert len(list(queue.reader())) == 50
    queue.put(bytes(200_000))
    assert queue[50].payload == bytes(200_000)
    check_chain(path)


def test_deleting_a_queue_leaves_nothing(make, path):
    """Busy while a handle is open, here or in another process; then the directory is gone."""
    queue = make()
    queue.put(b"x")
    with pytest.raises(shmq.Busy, match=r"cannot delete .*: it is open"):
        shmq.delete(path)
    assert queue.put(b"y") == 1
    queue.close()

    def hold(say):
        held = shmq.open(path)
        say("open")
        while True:
            held.consumer("c").take(timeout=60)

    with Child(hold) as child:
        child.hear()
        with pytest.raises(shmq.Busy):
            shmq.delete(path)
    shmq.delete(path)
    assert not Path(path).exists()
    with pytest.raises(shmq.NotFound):
        shmq.delete(path)


def test_B12_who_takes_a_dead_seat_looks_only_where_its_tenant_could_claim(make, path):  # noqa: N802
    """The seat's `since` follows the producer through the chain, and waits at an open slot."""
    queue = make(retention=shmq.Retention.forever())
    slot = queue.reserve(10)

    def since():
        page = Path(f"{path}/control.shmq").read_bytes()
        return int.from_bytes(page[4096 + 32 : 4096 + 40], "little")

    for _ in range(60):
        queue.put(bytes(1000))
    assert since() == 0
    slot.commit()
    for _ in range(60):
        queue.put(bytes(1000))
    last = len(chunk_files(path)) - 1
    assert last > 5
    assert since() == last
