"""Zeros where something was put are damage, as any other bytes are: named, passed over, counted; no put goes there."""

import shutil

import pytest
from support import DONE, HINT, NEWEST, SEAL, chunk_files, make_unclean, patch, peek, words

import shmq
from shmq import cli

KEEP = {"chunk_bytes": 65536, "retention": shmq.Retention.forever()}
SIZE = 512


def fill(path, count=300, **options):
    with shmq.open(path, options=shmq.Options(**KEEP, **options)) as queue:
        for number in range(count):
            queue.put(b"%d" % number)


def hole(path, which=0, message=120, size=SIZE):
    """Zero *size* bytes from that message's word on: which numbers in the chunk are not whole any more."""
    done = [word for word in words(path, which) if word.state == DONE]
    begin = done[message].position
    patch(chunk_files(path)[which], begin, bytes(size))
    return [number for number, word in enumerate(done) if begin <= word.position < begin + size], begin


def payloads(reader):
    return [message.payload for message in reader]


def numbers(gone, count=300):
    return [b"%d" % number for number in range(count) if number not in gone]


def test_a_hole_is_named_by_verify_and_what_is_behind_it_is_saved_by_repair(path, capsys):
    fill(path)
    gone, position = hole(path)
    found = shmq.verify(path)
    assert [(problem.file, problem.position) for problem in found.problems] == [
        (f"chunks/{chunk_files(path)[0].name}", position)
    ]
    assert "a hole" in found.problems[0].reason
    assert (found.messages, found.lost) == (300 - len(gone), len(gone))
    assert cli.main(["verify", path]) == 1
    assert cli.main(["repair", path]) == 3
    assert f"{300 - len(gone)} messages, clean; {len(gone)} lost" in capsys.readouterr().out
    with shmq.open(f"{path}.repaired") as queue:
        assert {m.index: m.payload for m in queue.reader()} == {
            number: b"%d" % number for number in range(300) if number not in gone
        }


def test_zeros_up_to_the_end_are_a_hole_as_the_hint_tells(path):
    fill(path)
    gone, position = hole(path, message=290, size=1 << 12)
    found = shmq.verify(path)
    assert [problem.position for problem in found.problems] == [position]
    assert (found.messages, found.lost) == (290, 10)
    done = shmq.repair(path)
    assert (done.messages, done.lost) == (290, len(gone)) == (290, 10)


def test_zeros_up_to_the_end_are_a_hole_as_the_watermark_tells(path):
    fill(path)
    with shmq.open(path) as queue:
        queue.sync()
    hole(path, message=290, size=1 << 12)
    make_unclean(path)
    assert shmq.verify(path).lost == 10
    assert shmq.repair(path).lost == 10
    with pytest.raises(shmq.Corrupt, match="up to index 300 the disk had agreed"):
        shmq.open(path)


@pytest.mark.parametrize("which", [0, 1])
def test_readers_consumers_and_groups_say_corrupt_at_a_hole_and_pass_over_it_when_asked(path, which):
    fill(path, 1500)
    first = int(chunk_files(path)[which].name[:16], 16)
    gone = [first + number for number in hole(path, which)[0]]
    wanted = numbers(gone, 1500)
    with shmq.open(path) as queue:
        for read in (
            lambda: payloads(queue.reader()),
            lambda: payloads(queue.reader(reverse=True)),
            lambda: [queue.consumer("c").take(0) for _ in range(1500)],
            lambda: [queue.consumer("g", group=True).take(0) for _ in range(1500)],
            lambda: list(queue.read_arrow()),
            lambda: queue[gone[0]],
        ):
            with pytest.raises(shmq.Corrupt, match="a hole"):
                read()
        reader = queue.reader(skip_corrupt=True)
        assert payloads(reader) == wanted
        assert reader.skipped == len(gone)
        with queue.consumer("d", skip_corrupt=True) as consumer:
            assert [consumer.take(0) for _ in wanted] == wanted
        with queue.consumer("h", group=True, ack="auto", skip_corrupt=True) as group:
            assert [group.take(0) for _ in wanted] == wanted


def test_a_put_is_laid_behind_a_hole_and_never_in_it(path):
    fill(path)
    gone, position = hole(path, message=250, size=40 * 8)
    with shmq.open(path) as queue:
        assert queue.put(b"after") == 300
        assert peek(chunk_files(path)[0], position) == 0
        assert len(queue) == 301
        reader = queue.reader(skip_corrupt=True)
        assert payloads(reader) == [*numbers(gone), b"after"]
        assert len(queue) == len(numbers(gone)) + 1 + reader.skipped


def test_sync_says_corrupt_at_a_hole_and_does_not_hang(path):
    with shmq.open(path, options=shmq.Options(**KEEP)) as queue:
        for number in range(300):
            queue.put(b"%d" % number)
        hole(path)
        with pytest.raises(shmq.Corrupt, match="a hole"):
            queue.sync()


def test_a_put_with_dedup_is_refused_where_a_hole_hides_what_was_put(path):
    with shmq.open(path, options=shmq.Options(**KEEP)) as queue:
        for number in range(300):
            queue.put(b"%d" % number, dedup=("p", number))
    hole(path)
    with shmq.open(path) as queue, pytest.raises(shmq.Corrupt, match="a hole"):
        queue.put(b"299", dedup=("p", 299))


def test_a_hole_whose_hint_is_lost_too_is_found_by_the_chunk_behind_it(path):
    fill(path, 1500)
    assert words(path, 0)[-1].state == SEAL
    gone, _ = hole(path, 0)
    patch(chunk_files(path)[0], HINT, bytes(8))
    with shmq.open(path) as queue:
        assert peek(f"{path}/control.shmq", NEWEST) > 1
        with pytest.raises(shmq.Corrupt, match="a hole"):
            payloads(queue.reader())
        assert payloads(queue.reader(skip_corrupt=True)) == numbers(gone, 1500)


def test_more_messages_than_one_word_of_padding_can_stand_for_are_padded_over(path):
    with shmq.open(path, options=shmq.Options(chunk_bytes=1 << 20, retention=shmq.Retention.forever())) as queue:
        for begin in range(0, 15000, 5000):
            queue.put_many([b"%d" % number for number in range(begin, begin + 5000)])
        queue.put(b"last")
    which = max(range(len(chunk_files(path))), key=lambda at: len(words(path, at)))
    done = [word for word in words(path, which) if word.state == DONE]
    assert len(done) > 8500
    patch(chunk_files(path)[which], done[100].position, bytes(done[8600].position - done[100].position))
    repaired = shmq.repair(path)
    assert shmq.verify(repaired.path)
    assert repaired.messages + repaired.lost == 15001
    with shmq.open(repaired.path) as queue:
        assert payloads(queue.reader())[-1] == b"last"


def test_the_end_of_a_queue_is_no_hole(path):
    """Whatever was aborted, given back, cut or recovered before."""
    fill(path, 100)
    for _ in range(3):
        with shmq.open(path) as queue:
            queue.reserve(3000).abort()
            with queue.reserve(3000) as slot:
                slot.commit(3)
            queue.put_many([b"a", b"b"])
            assert len(payloads(queue.reader())) == len(queue)
        assert shmq.verify(path)
        make_unclean(path)


def test_a_hole_in_an_earlier_life_of_a_large_chunk_is_none(path):
    options = shmq.Options(chunk_bytes=1 << 22, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for number in range(30):
            queue.put(bytes([number]) * 300_000)
        assert len(payloads(queue.reader())) == 30
    assert shmq.verify(path)
    copy = shutil.copytree(path, f"{path}-copy")
    make_unclean(copy)
    with shmq.open(copy) as queue:
        assert len(payloads(queue.reader())) == 30
