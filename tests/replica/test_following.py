"""A queue that follows another one has what that one has: the same messages at the same indexes, while they come."""

from __future__ import annotations

import itertools
import threading

import pytest
from following import content, files, follow, follow_once
from support import SEAL, Child, chunk_files, journal_slots, make_unclean, records, until, words

import shmq
from shmq import _native, replica
from shmq.replica.follower import Follower
from shmq.replica.pieces import Data, Region
from shmq.replica.source import Source
from shmq.storage import files as storage_files
from shmq.storage import sync


@pytest.fixture
def pair(tmp_path):
    with shmq.open(str(tmp_path / "a"), chunk_bytes=1 << 18) as queue:
        yield queue, tmp_path / "a", tmp_path / "b"


def fill(queue, count, size=100) -> None:
    for start in range(0, count, 100):
        queue.put_many([b"%d-" % i * (size // 5) for i in range(start, start + 100)])


def take_all(follower, pieces) -> None:
    for piece in pieces:
        follower.take(piece)


def test_it_has_the_same_messages_at_the_same_indexes(pair):
    """With keys, times, types and headers; in sealed chunks and in the one that grows."""
    queue, a, b = pair
    fill(queue, 6000)
    queue.put(b"one", key=b"k", type=7, time_ns=12345, headers={"h": 1}, ttl=60, delay=1)
    follow_once(a, b)
    assert len(chunk_files(a)) > 2
    assert content(b) == content(a)
    assert [records(b, which) for which in range(len(chunk_files(a)))] == [
        records(a, which) for which in range(len(chunk_files(a)))
    ]
    assert [file.name for file in chunk_files(b)] == [file.name for file in chunk_files(a)]
    with shmq.open(str(b)) as follower:
        assert follower.verify().problems == ()
        assert follower.options == queue.options
        assert follower.id == queue.id
        assert follower[3000].payload == queue[3000].payload
        assert follower.durable_index == queue.next_index


def test_it_goes_on_where_it_stopped(pair):
    """In the same chunk, behind a roll, and when nothing has come."""
    queue, a, b = pair
    for count in (100, 100, 3000, 0, 5000, 100):
        fill(queue, count)
        follow_once(a, b)
        assert content(b) == content(a)


def test_an_empty_queue_is_followed_too(pair):
    """And what comes later."""
    queue, a, b = pair
    follow_once(a, b)
    assert content(b) == []
    queue.put(b"first")
    follow_once(a, b)
    assert content(b) == content(a)


def test_large_messages_and_chunks_with_a_grain(pair):
    """Whatever an earlier chunk left between them."""
    _, a, b = pair
    with shmq.open(str(a.parent / "large"), chunk_bytes=16 << 20) as large:
        for number in range(40):
            large.put(bytes([number]) * (300_000 + number))
            if number == 20:
                follow_once(a.parent / "large", b)
        follow_once(a.parent / "large", b)
        assert content(b) == content(a.parent / "large")


def test_queues_without_checksums_are_followed(tmp_path):
    """Their words are all there is to check."""
    with shmq.open(str(tmp_path / "a"), checksum=False, chunk_bytes=1 << 18) as queue:
        fill(queue, 3000)
        follow_once(tmp_path / "a", tmp_path / "b")
        fill(queue, 3000)
        follow_once(tmp_path / "a", tmp_path / "b")
        assert content(tmp_path / "b") == content(tmp_path / "a")


@pytest.mark.parametrize("behind", [0, 500])
def test_what_was_adopted_comes_as_a_whole(pair, behind):
    """Several sets behind one another, of several chunks each; in a chunk that is there, or comes whole."""
    queue, a, b = pair
    fill(queue, 500)
    follow_once(a, b)
    fill(queue, behind * 10)
    for _ in range(3):
        with queue.stage() as staged:
            for number in range(3000):
                staged.put(b"staged %d" % number * 20)
            queue.adopt(staged)
    fill(queue, behind)
    seen = []
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        with shmq.open(str(b), read_only=True) as reader:
            for piece in source.pieces():
                follower.take(piece)
                seen.append(reader.next_index)
    assert content(b) == content(a)
    with shmq.open(str(b), read_only=True) as reader:
        assert reader.verify().problems == ()
    first = 500 + behind * 10
    ends = {first + 3000 * number for number in range(4)}
    assert {index for index in seen if first <= index <= first + 9000} <= ends, "a part of a set was seen"
    assert not list((b / "staging").iterdir())


def test_what_was_put_once_is_known_there(pair):
    """What was put with dedup, and which batches were adopted."""
    queue, a, b = pair
    queue.put(b"x", dedup=("p", 1))
    with queue.stage() as staged:
        staged.put(b"y")
        queue.adopt(staged, dedup=("s", 5))
    follow_once(a, b)
    with shmq.open(str(b)) as follower:
        assert follower.adopted("p") == queue.adopted("p") == (1, range(1))
        assert follower.adopted("s") == queue.adopted("s")


def test_options_that_change_and_the_end_of_the_stream_come_along(pair):
    """As the journal says them."""
    queue, a, b = pair
    fill(queue, 100)
    follow_once(a, b)
    queue.configure(ttl=5.0, max_messages=10_000)
    queue.finish()
    follow_once(a, b)
    with shmq.open(str(b), read_only=True) as follower:
        assert follower.options == queue.options
        assert follower.finished
        assert len(list(follower.reader(follow=True))) == 100


def test_what_is_retired_there_goes_here_unless_a_reader_pins_it(pair):
    """Never more than there, and never what the follower has last."""
    queue, a, b = pair
    fill(queue, 6000)
    follow_once(a, b)
    before = len(chunk_files(b))
    with shmq.open(str(b)) as follower, follower.reader(0, pin=True):
        with queue.consumer("c") as consumer:
            while consumer.head < queue.next_index:
                consumer.take()
        follow_once(a, b)
        fill(queue, 3000)
        follow_once(a, b)
        assert queue.first_index > 0
        assert follower.first_index == 0
    follow_once(a, b)
    fill(queue, 100)
    follow_once(a, b)
    assert len(chunk_files(b)) < before
    assert content(b) == content(a)


def test_following_alone_retires_nothing(pair):
    """A queue whose consumers are still to come keeps what the follower has."""
    queue, a, b = pair
    fill(queue, 6000)
    follow_once(a, b)
    fill(queue, 6000)
    follow_once(a, b)
    assert queue.first_index == 0
    assert len(queue) == 12000


# ---------------------------------------------------------------- readers
def test_a_reader_beside_sees_it_come(pair):
    """Every message whole and in order, while it is written; the reader sleeps on the follower's bell."""
    queue, a, b = pair
    follow_once(a, b)
    count = 30_000

    def read(say) -> None:
        with shmq.open(str(b), read_only=True) as follower:
            say("ready")
            for expected, message in enumerate(follower.reader(follow=True)):
                assert (message.index, message.payload) == (expected, b"%d-" % expected * 20)
                if expected == count - 1:
                    break
        say("seen")

    with Child(read) as reader, Child(lambda say: follow(a, b)):
        assert reader.hear() == "ready"
        fill(queue, count)
        assert reader.hear() == "seen"
        assert reader.join() == 0


def test_nothing_of_a_region_is_seen_before_all_of_it_is_there(pair):
    """All but its first word is stored; then, behind a fence, that word."""
    queue, a, b = pair
    queue.put(b"before")
    follow_once(a, b)
    fill(queue, 200)
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        growing = follower._grows()
        begin = growing.position
        seen = []

        class Watched:
            """The member of the follower, and what a reader would see when it is asked for a fence."""

            def wait_begin(self):
                there = chunk_files(b)[0].read_bytes()
                whole = chunk_files(a)[0].read_bytes()
                end = whole.index(bytes(64), begin) // 8 * 8
                seen.append(there[begin : begin + 8] == bytes(8) and there[begin + 8 : end] == whole[begin + 8 : end])

            def ring(self):
                there = chunk_files(b)[0].read_bytes()
                hint = int.from_bytes(there[128:136], "little") >> 36
                seen.append(there[begin : begin + 8] != bytes(8) and hint * 8 <= begin)

        growing._member = Watched()
        for piece in source.pieces():
            follower.take(piece)
        assert seen == [True, True]
    assert content(b) == content(a)


# ---------------------------------------------------------------- what may come, and what not
def test_only_what_the_disk_of_the_source_has_is_sent(pair):
    """R4: in a queue that syncs nothing by itself."""
    queue, a, b = pair
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        for _ in range(30):
            fill(queue, 300)
            for piece in source.pieces():
                if isinstance(piece, Region):
                    index = source._base + source._ordinal
                    assert queue.durable_index >= index, "sent before the disk had it"
                follower.take(piece)
                if isinstance(piece, Region):
                    with shmq.open(str(b), read_only=True) as reader:
                        assert queue.durable_index >= reader.next_index, "sent before the disk had it"


def test_a_seal_is_sent_when_a_recovery_leaves_it_where_it_is(pair, monkeypatch):
    """That ends the last chunk anew: so there must be one behind it, and both on the disk."""
    queue, a, b = pair
    synced = []
    data, directory = sync.data, sync.directory
    fill(queue, 100)
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        queue.finish()  # which seals it, and there is none behind it
        take_all(follower, source.pieces())
        assert [word.state for word in words(b)][-1] != SEAL
        queue.close()
        with shmq.open(str(a)) as again:
            again.put(b"again")
        monkeypatch.setattr(sync, "data", lambda fd, what: (synced.append(what), data(fd, what)))
        monkeypatch.setattr(sync, "directory", lambda fd, what: (synced.append(what), directory(fd, what)))
        for piece in source.pieces():
            if isinstance(piece, Region):
                break
        assert synced.count("chunk") >= 2
        assert "chunks" in synced
    follow_once(a, b)
    assert [word.state for word in words(b)][-1] == SEAL
    assert content(b) == content(a)


def test_damage_is_not_sent(pair):
    """Neither it, nor what lies behind it; what comes before it is."""
    queue, a, b = pair
    for number in range(100):
        queue.put(b"message %d" % number)
    before = content(a)
    file = chunk_files(a)[0]
    at = file.read_bytes().index(b"message 50")
    with open(file, "r+b") as handle:
        handle.seek(at)
        handle.write(b"!")
    with pytest.raises(shmq.Corrupt, match="nothing behind it is sent"):
        follow_once(a, b)
    assert content(b) == before[:50]


def test_padding_at_the_end_waits_for_a_message(pair):
    """A recovery of the source would cut there, and a follower that had it would be of another history."""
    queue, a, b = pair
    queue.put(b"x")
    with pytest.raises(KeyError), queue.reserve(100):
        raise KeyError  # which leaves padding
    follow_once(a, b)
    queue.close()
    make_unclean(a)
    with shmq.open(str(a)) as again:
        assert again.recovery.end == 1
        again.put(b"y")
        follow_once(a, b)
    assert content(b) == content(a)
    with shmq.open(str(b)) as follower:
        assert follower.verify().problems == ()


def test_what_a_kill_left_behind_the_end_is_gone_before_more_is_written(pair):
    """It would be taken for words."""
    queue, a, b = pair
    fill(queue, 100)
    follow_once(a, b)
    file = chunk_files(b)[-1]
    end = (len(file.read_bytes().rstrip(b"\0")) + 7) // 8 * 8
    with open(file, "r+b") as handle:
        handle.seek(end + 8)
        handle.write(b"rubbish!" * 1000)
    queue.put(b"x")
    follow_once(a, b)
    assert content(b) == content(a)
    with shmq.open(str(b)) as follower:
        assert follower.verify().problems == ()


def test_a_word_that_was_lost_is_no_end(pair):
    """The hint says that there was more: it is damage, and nothing is written over it."""
    queue, a, b = pair
    fill(queue, 300)
    follow_once(a, b)
    file = chunk_files(b)[-1]
    at = words(b)[100].position  # where a batch begins
    with open(file, "r+b") as handle:
        handle.seek(at)
        handle.write(bytes(8))
    before = files(b)
    with pytest.raises(shmq.Corrupt, match="hole"):
        follow_once(a, b)
    assert files(b) == before


def test_the_end_of_one_chunk_is_on_the_disk_before_the_next_has_a_name(pair, monkeypatch):
    """A power cut leaves no hole."""
    queue, a, b = pair
    fill(queue, 100)
    follow_once(a, b)
    fill(queue, 6000)
    done = []
    data, link = sync.data, storage_files.link_file
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        pieces = list(source.pieces())
        monkeypatch.setattr(sync, "data", lambda fd, what: (done.append(what), data(fd, what)))
        monkeypatch.setattr(
            storage_files, "link_file", lambda fd, at, name, path: (done.append(name), link(fd, at, name, path))[1]
        )
        take_all(follower, pieces)
    names = [name for name in done if name.endswith(".chunk")]
    assert len(names) > 1
    assert done[: done.index(names[0])].count("chunk") >= 2, "the one before, and this one"
    for before, after in itertools.pairwise(names):
        assert "chunk" in done[done.index(before) : done.index(after)]


@pytest.mark.parametrize("sealed", [False, True])
def test_what_was_changed_on_the_way_is_not_written(pair, sealed):
    """The checksum that the producer made is checked here: any bit."""
    queue, a, b = pair
    fill(queue, 100)
    follow_once(a, b)
    before = content(b)
    fill(queue, 6000 if sealed else 100)
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        pieces = list(source.pieces())
        at = next(at for at, piece in enumerate(pieces) if isinstance(piece, Data))
        bad = bytearray(pieces[at].content)
        bad[160] ^= 4
        pieces[at] = Data(pieces[at].position, bytes(bad))
        with pytest.raises(shmq.Corrupt, match="not whole"):
            take_all(follower, pieces)
    assert content(b)[: len(before)] == before == content(b)
    follow_once(a, b)
    assert content(b) == content(a)


def test_a_stopped_claim_holds_up_what_is_behind_it(pair):
    """As it does for consumers; when it is committed, all comes."""
    queue, a, b = pair
    queue.put(b"before")
    with queue.reserve(10) as slot:
        queue.put(b"behind")
        follow_once(a, b)
        assert [each[1] for each in content(b)] == [b"before"]
        slot.buffer[:] = b"0123456789"
    follow_once(a, b)
    assert content(b) == content(a)


def test_what_a_killed_producer_had_claimed_holds_up_nothing(pair):
    """It is padding."""
    queue, a, b = pair

    def claim(say) -> None:
        slot = shmq.open(str(a)).reserve(10)
        slot.__enter__()
        say("claimed")
        threading.Event().wait()

    with Child(claim) as child:
        assert child.hear() == "claimed"
        queue.put(b"behind")
        child.kill()
    follow_once(a, b)
    assert content(b) == content(a) != []


# ---------------------------------------------------------------- what it is
def test_nobody_changes_a_follower(pair):
    """Whatever changes it is refused, by whoever opens it, and says why; readers work."""
    queue, a, b = pair
    fill(queue, 100)
    follow_once(a, b)
    before = files(b)
    with queue.stage() as staged, shmq.open(str(b)) as follower:
        for refused in (
            lambda: follower.put(b"x"),
            lambda: follower.put_many([b"x"]),
            lambda: follower.reserve(3),
            follower.producer,
            follower.stage,
            lambda: follower.adopt(staged),
            lambda: follower.consumer("c"),
            lambda: follower.consumer("c", group=True),
            follower.purge,
            lambda: follower.drop_consumer("c"),
            lambda: follower.rename_consumer("c", "d"),
            lambda: follower.configure(ttl=1.0),
            lambda: follower.set_bounds(max_messages=3),
            follower.finish,
        ):
            with pytest.raises(shmq.Fenced, match="follows another queue"):
                refused()
        assert len(list(follower.reader())) == 100
    assert files(b) == before


def test_after_a_reboot_it_is_cut_where_it_is_whole_and_nothing_else(pair):
    """R9: the same epoch, no gap, and it goes on; whoever opens it first, a reader or who replicates."""
    queue, a, b = pair
    fill(queue, 200)
    follow_once(a, b)
    for first in (lambda: shmq.open(str(b)).close(), lambda: None):
        make_unclean(b)
        file = chunk_files(b)[-1]
        raw = file.read_bytes()
        end = len(raw.rstrip(b"\0")) + 64
        with open(file, "r+b") as handle:  # what a power cut may leave of a region whose first word did not come
            handle.seek(end // 8 * 8)
            handle.write(b"rubbish!" * 10)
        epoch = journal_slots(b)[-1][1][8:16]
        first()
        assert content(b) == content(a)
        fill(queue, 3000)
        follow_once(a, b)
        assert content(b) == content(a)
        assert journal_slots(b)[-1][1][8:16] == epoch
        with shmq.open(str(b)) as follower:
            assert follower.verify().problems == ()
            assert follower.next_index == queue.next_index


def test_the_source_recovers_and_is_followed_on(pair):
    """A new epoch, a gap, the same history."""
    queue, a, b = pair
    fill(queue, 200)
    follow_once(a, b)
    queue.close()
    make_unclean(a)
    with shmq.open(str(a)) as again:
        assert again.recovery.to_epoch == 2
        fill(again, 200)
        follow_once(a, b)
    assert content(b) == content(a)
    assert int.from_bytes(journal_slots(b)[-1][1][8:16], "little") == 2


def test_one_at_a_time(pair):
    """Two who write to one follower, or for one name."""
    _, a, b = pair
    with Source(str(a), "b") as source, Follower(str(b)) as follower:
        source.begin(follower.answer(source.hello()))
        with pytest.raises(shmq.Busy):
            Source(str(a), "b")
        with Source(str(a), "c") as other, Follower(str(b)) as second, pytest.raises(shmq.Busy):
            second.answer(other.hello())


def test_a_volatile_queue_is_not_followed():
    """No disk has it."""
    with shmq.open("shm:not-followed"), pytest.raises(shmq.Mismatch, match="volatile"):
        Source("shm:not-followed", "b")


def test_it_is_a_follower_for_those_who_have_it_open(pair):
    """A wait for what comes is woken, and `until` sees the end."""
    queue, a, b = pair
    follow_once(a, b)
    with shmq.open(str(b)) as follower:
        queue.put(b"x")
        with Child(lambda say: follow(a, b)):
            until(lambda: follower.next_index == 1)
        assert follower[0].payload == b"x"
    assert _native.JOURNAL_FOLLOWER & int.from_bytes(journal_slots(b)[-1][1][96:100], "little")


def test_a_follower_is_not_shut_down(pair):
    """Its readers would end, and its source knows of nothing; a source that is fenced may be."""
    queue, a, b = pair
    queue.put(b"x")
    follow_once(a, b)
    with shmq.open(str(b)) as follower:
        with pytest.raises(shmq.Fenced, match="cannot shut down"):
            follower.shutdown()
        assert not follower.stats().shut_down
    replica.promote(b)
    with pytest.raises(shmq.Fenced):
        follow_once(a, b)
    queue.shutdown()
    assert queue.stats().shut_down
