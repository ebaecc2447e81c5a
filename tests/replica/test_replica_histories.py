"""What has another history is told, and not overwritten; what was retired is told too; a follower can be promoted."""

from __future__ import annotations

import os
import shutil

import pytest
from following import content, files, follow, follow_once
from support import Child, chunk_files, journal_slots, killed_at, make_unclean, until

import shmq
from shmq import replica
from shmq.replica import Stop
from shmq.replica.follower import Follower
from shmq.replica.service import beside
from shmq.replica.source import Source


@pytest.fixture
def pair(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 18) as queue:
        fill(queue, 300)
        follow_once(a, b)
        yield queue, a, b


def fill(queue, count, what=b"%d ") -> None:
    for number in range(count):
        queue.put(what % number * 30)


def refused(error, words, a, b) -> None:
    """That is said, and not a byte of the follower is another one."""
    before = files(b)
    with pytest.raises(error, match=words):
        follow_once(a, b)
    assert files(b) == before


# ---------------------------------------------------------------- divergence
@pytest.mark.parametrize("more", [10, 3000])
def test_a_source_that_comes_from_an_older_copy_is_refused(pair, more):
    """The follower has more than it, in the same chunk or behind it."""
    queue, a, b = pair
    shutil.copytree(a, a.parent / "copy")
    fill(queue, more)
    follow_once(a, b)
    refused(shmq.Mismatch, "no common history", a.parent / "copy", b)
    with shmq.open(str(a.parent / "copy")) as copy:
        fill(copy, 5000)
    refused(shmq.Mismatch, "no common history", a.parent / "copy", b)
    follow_once(a, b)


def test_one_other_message_at_the_same_place_is_another_history(pair, monkeypatch):
    """Though chunks, positions and lengths are the same: each went on by itself from the same bytes."""
    queue, a, b = pair
    at = a.parent / "other"
    shutil.copytree(a, at)
    monkeypatch.setattr("shmq.session.Session._recover", lambda self: None)  # as if nobody had seen that it is a copy
    queue.put(b"one thing")
    follow_once(a, b)
    with shmq.open(str(at)) as other:
        other.put(b"different")
        refused(shmq.Mismatch, "their messages in chunk 0 differ", at, b)
        other.put(b"and on")
        refused(shmq.Mismatch, "their messages in chunk 0 differ", at, b)


def test_both_promoted_find_each_other_out(pair):
    """Each went on as a queue of its own."""
    _, a, b = pair
    c = a.parent / "c"
    follow_once(a, c, "c")
    replica.promote(b)
    with shmq.open(str(b)) as promoted:
        fill(promoted, 10)
    with shmq.open(str(c)) as follower:
        assert follower.next_index == 300
    replica.promote(c)
    refused(shmq.Fenced, "was promoted", b, c)


def test_a_source_is_fenced_though_the_promoted_one_has_retired_all_that_both_had(tmp_path):
    """
    With retention "acked" that is so as soon as its consumers are done: the old one went on taking puts for ever, and
    could not come back.
    """
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a)) as queue:
        queue.put_many([b"both"] * 10)
        follow_once(a, b)
        replica.promote(b)
        with shmq.open(str(b)) as promoted, promoted.consumer("c") as consumer:
            for _ in range(300):
                promoted.put(bytes(1000))
            for _ in range(310):
                consumer.take(timeout=0)
            assert promoted.first_index > 9
        queue.put(b"late")
        refused(shmq.Fenced, "was promoted", a, b)
        with pytest.raises(shmq.ShutDown):
            queue.put(b"later")
    with pytest.raises(shmq.Fenced):
        shmq.open(str(a)).put(b"later")
    follow_once(b, a, rejoin=True)
    assert content(a)[-1] == content(b)[-1]
    assert [each[1] for each in content(tmp_path / "a.aside-1")] == [b"both"] * 10 + [b"late"]


def test_a_follower_lies_beside_its_source_and_not_within(pair):
    """There a delete, or a copy, of the source would take it along."""
    queue, a, _ = pair
    before = sorted(os.listdir(a))
    os.symlink(a, a.parent / "link")
    for target in (a / "copy", a / "chunks" / ".." / "copy", a.parent / "link" / "copy"):
        with pytest.raises(ValueError, match="within the queue that it follows"):
            replica.replicate(a, target, once=True)
    with pytest.raises(TypeError, match="name=7: a str is wanted"):
        replica.replicate(a, a.parent / "c", name=7, once=True)
    assert (sorted(os.listdir(a)), list(queue.consumers())) == (before, ["replica.b"])
    replica.replicate(a, f"{a}.copy", once=True)


def test_another_queue_is_not_overwritten(pair):
    """Nor one of the same id that follows nobody; nor another version of the protocol."""
    queue, a, _ = pair
    other = a.parent / "other"
    shmq.open(str(other)).close()
    refused(shmq.Mismatch, "another queue", a, other)
    copied = a.parent / "copied"
    queue.copy(copied)
    shmq.open(str(copied)).close()
    queue.drop_consumer("replica.b")
    refused(shmq.Unsafe, "a queue of its own", a, copied)
    assert queue.consumers() == {}, "what came to nothing holds nothing back"


# ---------------------------------------------------------------- retention
def drain(queue) -> None:
    with queue.consumer("c") as consumer:
        while consumer.head < queue.next_index:
            consumer.take()


@pytest.mark.parametrize(
    "kind", ["acked", shmq.Retention.bytes(1), shmq.Retention.age(1e-9)], ids=["acked", "bytes", "age"]
)
def test_a_follower_that_has_all_is_not_left_behind_by_a_roll(tmp_path, kind):
    """
    Where it has every message of a chunk, and consumers have too, the next put seals that, and retired it before the
    follower had the SEAL: a source that ran sent nothing more, without a word, and the next one was told `Gone`.
    """
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 14, retention=kind) as queue, queue.consumer("c") as consumer:
        for number in range(30):
            queue.put(bytes(1500))
            consumer.take(timeout=0)
            follow_once(a, b)
            assert content(b)[-1][0] == number
        assert queue.first_index > 7, "what the follower has behind a roll goes, as ever"


def test_a_purge_under_a_replication_ends_it_with_a_word(tmp_path):
    """What the follower lacked of the chunk that it was at is gone; nothing was said, and nothing was sent any more."""
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 14) as queue, Source(str(a), "b") as there, Follower(str(b)) as here:
        fill(queue, 10)
        beside(there, here, Stop(), once=True)
        fill(queue, 1000)
        queue.purge()
        with pytest.raises(shmq.Gone, match="was retired"):
            [list(there.pieces()) for _ in range(3)]  # what a replication that goes on looks at, again and again
    replica.replicate(a, b, once=True, reset=True)
    assert content(b)[-1] == content(a)[-1]


def test_what_a_follower_lacks_is_held_back(pair):
    """Also while nobody replicates; a purge is a purge."""
    queue, a, b = pair
    fill(queue, 6000)
    drain(queue)
    assert queue.first_index == 0
    follow_once(a, b)
    assert content(b)[-1][0] == 6299
    fill(queue, 6000)
    drain(queue)
    assert 0 < queue.first_index <= 6300
    queue.purge()
    fill(queue, 1)
    refused(shmq.Gone, "was retired here", a, b)


def test_no_more_is_held_back_than_was_said(pair):
    """Then its place is given up, and it must be begun anew."""
    queue, a, b = pair
    fill(queue, 6000)
    before = files(b)
    with pytest.raises(shmq.Gone, match="kept for it"):
        replica.replicate(a, b, keep=0, once=True, stop=_Slow())
    assert "replica.b" not in queue.consumers()
    assert before.keys() <= files(b).keys()
    drain(queue)
    assert queue.first_index > 300


class _Slow(replica.Stop):
    """Ends the sending after the first piece of each turn, so that the follower stays behind."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def is_set(self) -> bool:
        self._asked += 1
        return self._asked == 4


def test_a_bounded_queue_waits_for_its_follower_no_longer_than_it_must(tmp_path):
    """Producers that wait for room go on as soon as consumers and the follower have what they had put."""
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), max_messages=50) as queue, queue.consumer("c") as consumer:
        with Child(lambda say: follow(a, b)):
            for number in range(500):
                queue.put(b"%d" % number, timeout=10)
                consumer.take()
        follow_once(a, b)
        assert content(b)[-1][1] == b"499"


# ---------------------------------------------------------------- promotion
def test_a_promoted_follower_takes_puts(pair):
    """In a new epoch, at indexes that the other one has not given; and is followed by others."""
    queue, a, b = pair
    fill(queue, 100)
    done = replica.promote(b)
    assert (done.from_epoch, done.to_epoch, done.end) == (1, 2, 300)
    with shmq.open(str(b)) as promoted:
        index = promoted.put(b"here")
        assert index >= queue.next_index
        assert promoted[299].payload == b"299 " * 30
        with promoted.consumer("c") as consumer:
            assert consumer.get(timeout=0).index == 0
        assert promoted.verify().problems == ()
        c = a.parent / "c"
        follow_once(b, c)
        assert content(c) == content(b)
    with pytest.raises(shmq.Mismatch, match="follows no other queue"):
        replica.promote(b)
    follow_once(b, c)


def test_the_old_one_is_fenced_when_it_comes_back(pair):
    """For good, for those who have it open and for whoever opens it; what is in it can be read and taken."""
    queue, a, b = pair
    replica.promote(b)
    with shmq.open(str(b)) as promoted:
        promoted.put(b"here")
    queue.put(b"it cannot know")
    refused(shmq.Fenced, "was promoted", a, b)
    with pytest.raises(shmq.ShutDown):
        queue.put(b"x")
    queue.close()
    for _ in range(2):
        with shmq.open(str(a)) as again:
            for verb in (lambda: again.put(b"x"), again.stage):
                with pytest.raises(shmq.Fenced, match="is fenced"):
                    verb()
            with again.consumer("c") as consumer:
                assert consumer.take() is not None
            assert again[300].payload == b"it cannot know"
        make_unclean(a)
    refused(shmq.Fenced, "is fenced", a, b)
    refused(shmq.Fenced, "is fenced", a, a.parent / "b")


def test_a_follower_of_the_old_one_goes_on_with_the_new_one(pair):
    """If it had no more than that; else it is told."""
    queue, a, b = pair
    c, d = a.parent / "c", a.parent / "d"
    follow_once(a, c, "c")
    fill(queue, 10)
    follow_once(a, d, "d")
    replica.promote(b)
    with shmq.open(str(b)) as promoted:
        fill(promoted, 10)
    follow_once(b, c, "c")
    assert content(c) == content(b)
    before = files(d)
    with pytest.raises(shmq.Mismatch, match="no common history"):
        follow_once(b, d, "d")
    assert files(d) == before


def test_readers_go_on_over_a_promotion(pair):
    """One that follows sees what is put behind it, in the same handle."""
    _, _, b = pair

    def read(say) -> None:
        with shmq.open(str(b), read_only=True) as follower:
            for message in follower.reader(299, follow=True):
                say(message.payload.decode())

    with Child(read) as reader, shmq.open(str(b)) as follower:
        assert reader.hear().startswith("299")
        with pytest.raises(shmq.Fenced):
            follower.put(b"not yet")
        replica.promote(b)
        follower.put(b"behind")
        assert reader.hear() == "behind"
        assert follower.verify().problems == ()


def test_what_was_half_written_is_no_part_of_what_is_promoted(pair):
    """A kill between the body of a region and its first word leaves it there."""
    _, _, b = pair
    file = chunk_files(b)[-1]
    end = (len(file.read_bytes().rstrip(b"\0")) + 64) // 8 * 8
    with open(file, "r+b") as handle:
        handle.seek(end)
        handle.write(b"rubbish!" * 100)
    replica.promote(b)
    with shmq.open(str(b)) as promoted:
        promoted.put(b"x")
        assert len(list(promoted.reader())) == 301
        assert promoted.verify().problems == ()


def test_what_was_put_once_stays_so_over_a_promotion(pair):
    """What the follower has; what it had not, was never put there."""
    queue, a, b = pair
    queue.put(b"one", dedup=("p", 1))
    follow_once(a, b)
    queue.put(b"two", dedup=("p", 2))
    replica.promote(b)
    with shmq.open(str(b)) as promoted:
        assert promoted.put(b"one", dedup=("p", 1)) == 300
        assert promoted.put(b"two", dedup=("p", 2)) > 300
        assert [each[1] for each in content(b)[300:]] == [b"one", b"two"]


def test_nobody_promotes_what_is_replicated_to(pair):
    """It is ended first."""
    queue, a, b = pair
    with Child(lambda say: follow(a, b)):
        queue.put(b"x")
        with shmq.open(str(b), read_only=True) as follower:
            until(lambda: follower.next_index == 301)
        with pytest.raises(shmq.Busy, match=r"cannot promote .*: somebody else replicates to it.*end that first"):
            replica.promote(b)
    replica.promote(b)


def test_a_promotion_that_is_killed_is_done_again(pair, tmp_path):
    """Before every call that changes something: it is a follower still, or a queue of its own."""
    _, _, b = pair
    step = 0
    while True:
        at = tmp_path / f"promoted-{step}"
        shutil.copytree(b, at)
        shmq.open(str(at)).close()  # of a copy
        if not killed_at(step, lambda: replica.promote(at)):  # noqa: B023
            break
        with shmq.open(str(at)) as there:
            try:
                there.put(b"x")
            except shmq.Fenced:
                there.close()
                replica.promote(at)
        with shmq.open(str(at)) as there:
            there.put(b"y")
            assert len(list(there.reader(0, 300))) == 300
            assert there.verify().problems == ()
        step += 1
    assert step > 5
    assert int.from_bytes(journal_slots(at)[-1][1][8:16], "little") == 2
