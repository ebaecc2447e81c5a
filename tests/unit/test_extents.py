"""Up to where all is decided, where messages lie, and which queue this is."""

from __future__ import annotations

import pytest
from support import Child, chunk_files, hold_until_killed, until

import shmq
from shmq.reading.access import Access
from shmq.storage.directory import Directory


def fill(queue, count=600):
    for _ in range(0, count, 50):
        queue.put_many([b"x" * 100] * 50)


def test_an_empty_queue_has_nothing_decided_and_lies_nowhere(queue):
    assert queue.committed_index == 0
    assert queue.extents() == []


def test_everything_put_is_decided(queue):
    fill(queue)
    assert queue.committed_index == queue.next_index == 600


def test_an_open_claim_holds_the_end_and_a_commit_or_abort_lets_it_go(queue):
    fill(queue)
    first, second = queue.reserve(5), queue.reserve(5)
    queue.put(b"behind")
    assert queue.committed_index == 600
    first.commit()
    assert queue.committed_index == 601
    second.abort()
    assert queue.committed_index == queue.next_index == 603


def test_an_open_claim_in_a_sealed_chunk_holds_the_end_too(queue):
    slot = queue.reserve(5)
    fill(queue)
    assert len(chunk_files(queue.path)) > 2
    assert queue.committed_index == 0
    slot.commit()
    assert queue.committed_index == 601


def test_a_dead_producers_claim_holds_nothing(queue):
    def claim(say):
        slot = queue.reserve(5)
        hold_until_killed(say)
        slot.abort()

    with Child(claim) as child:
        child.hear()
        assert queue.committed_index == 0
        child.kill()
    until(lambda: queue.committed_index == queue.next_index == 1)


def test_the_last_time_there_is_hides_nothing(queue):
    queue.put(b"a", time_ns=(1 << 63) - 1)
    queue.put(b"b")
    slot = queue.reserve(5)
    assert queue.committed_index == 2
    slot.abort()
    assert queue.committed_index == 3


def test_it_is_seen_through_another_and_a_read_only_handle(queue):
    fill(queue)
    with shmq.open(queue.path, read_only=True) as reader, shmq.open(queue.path) as other:
        assert reader.committed_index == other.committed_index == 600
        fill(queue)
        assert reader.committed_index == other.committed_index == 1200


def test_extents_are_the_chunks_and_cover_every_index_once(queue):
    fill(queue)
    extents = queue.extents()
    assert len(extents) == len(chunk_files(queue.path))
    assert [index for each in extents for index in range(each.first, each.stop)] == list(range(600))
    for each in extents:
        assert 100 * (each.stop - each.first) <= each.nbytes <= 200 * (each.stop - each.first) + 8192


def test_extents_of_a_part(queue):
    fill(queue)
    extents = queue.extents(10, 333)
    assert (extents[0].first, extents[-1].stop) == (10, 333)
    assert sum(each.stop - each.first for each in extents) == 323
    assert queue.extents(5, 5) == []


def test_what_was_put_and_retired_since_is_seen_by_who_looks_again(queue):
    """Also when it is by others, and when all that was known is gone."""
    with shmq.open(queue.path) as other, other.consumer("all") as consumer:
        for turn in range(1, 5):
            fill(other)
            assert (queue.committed_index, queue.next_index) == (600 * turn, 600 * turn)
            assert queue.extents()[-1].stop == 600 * turn
            consumer.seek(600 * turn if turn == 3 else 600 * turn - 400)
            assert queue.first_index == queue.extents()[0].first == other.first_index
            assert queue.extents(0, 600 * turn)[0].first == queue.first_index


def test_a_chunk_that_was_taken_away_is_told_when_it_is_wanted(queue):
    fill(queue)
    with shmq.open(queue.path) as other:
        assert other.next_index == 600
        there = other.extents(500, 600)
        chunk_files(queue.path)[2].unlink()
        assert other.extents(500, 600) == there
        with pytest.raises(shmq.Corrupt, match="missing"):
            other.extents()


def test_found_a_look_at_the_end_costs_nothing_that_grows_with_what_is_there(queue, monkeypatch):
    """All chunks were listed and opened, by each batch of a stream."""
    fill(queue, 3000)
    assert (queue.committed_index, queue.first_index, len(queue.extents(2990))) == (3000, 0, 1)
    looked = []
    monkeypatch.setattr(Directory, "chunk_names", lambda _: looked.append("listed"))
    monkeypatch.setattr(Access, "_used", lambda *_: looked.append("chunk") or 0)
    fill(queue, 100)
    assert (queue.committed_index, queue.first_index) == (3100, 0)
    assert queue.extents(3050)[-1].stop == 3100
    assert looked in (["chunk"], ["chunk", "chunk"])


def test_padding_at_the_end_of_a_chunk_costs_a_guess_and_no_more(queue):
    queue.put(b"x" * 100)
    for _ in range(70):
        queue.reserve(10).abort()
    (extent,) = queue.extents()
    assert (extent.first, extent.stop) == (0, 71)
    assert 0 < extent.nbytes <= 16384


def test_another_queue_at_the_same_place_has_another_id(queue):
    before = queue.id
    assert len(before) == 32
    with shmq.open(queue.path, read_only=True) as reader:
        assert reader.id == before
    queue.close()
    shmq.delete(queue.path)
    with shmq.open(queue.path) as other:
        assert other.id != before


def test_a_seek_lets_go_what_its_name_alone_held_back(queue):
    fill(queue)
    with queue.consumer("a") as slow, queue.consumer("b") as quick:
        quick.seek(600)
        assert queue.first_index == 0
        slow.seek(300)
        assert 0 < queue.first_index <= 300
