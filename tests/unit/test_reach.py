"""What is missing at either end of a queue is a loss, for verify, repair and skip_corrupt; what was retired is none."""

import os
import shutil

import pytest
from support import SEAL, chunk_files, make_unclean, patch, words

import shmq
from shmq import cli
from shmq.storage import headers, repairing

COUNT = 100
FOREVER = {"chunk_bytes": 16384, "retention": "forever"}


@pytest.fixture
def split(path):
    """A queue of 100 messages in two chunks, closed: where it is, and the first index of the second one."""
    with shmq.open(path, **FOREVER) as queue:
        for number in range(COUNT):
            queue.put(b"%03d" % number * 60)
        queue.consumer("c").close()
    first, second = chunk_files(path)
    assert words(path, 0)[-1].state == SEAL
    assert first.name.startswith("0" * 16)
    return path, int(second.name[:16], 16)


def zero(file, size):
    patch(file, 0, bytes(size))


DAMAGES = {
    "removed": os.unlink,
    "cut": lambda file: os.truncate(file, 100),
    "its beginning zeroed": lambda file: zero(file, 4096),
    "zeroed": lambda file: zero(file, file.stat().st_size),
}


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_found_a_last_chunk_that_is_lost_is_a_loss(split, damage, synced, capsys):
    """It was "complete", with exit status 0; of one that was removed `verify` said that the queue is whole."""
    path, base = split
    if synced:
        with shmq.open(path) as queue:
            queue.sync()
    DAMAGES[damage](chunk_files(path)[-1])
    found, done = shmq.verify(path), shmq.repair(path)
    lost = COUNT - base if synced else 0
    assert not found
    assert (found.messages, found.lost, found.at_least) == (base, lost, True)
    assert (done.messages, done.lost, done.at_least, done.complete, bool(done)) == (base, lost, True, False, False)
    shutil.rmtree(done.path)
    assert cli.main(["verify", path]) == 1
    assert cli.main(["repair", path]) == 3
    assert f"at least {lost} lost" in capsys.readouterr().out
    with shmq.open(done.path) as queue:
        assert [message.index for message in queue.reader()] == list(range(base))
        assert queue.put(b"after") >= COUNT


@pytest.mark.parametrize("damage", DAMAGES)
def test_found_a_first_chunk_that_is_lost_is_counted(split, damage):
    path, base = split
    DAMAGES[damage](chunk_files(path)[0])
    found, done = shmq.verify(path), shmq.repair(path)
    assert not found
    assert (found.messages, found.lost, found.at_least) == (COUNT - base, base, False)
    assert (done.messages, done.lost, done.at_least, done.complete) == (COUNT - base, base, False, False)
    with shmq.open(done.path) as queue:
        assert [message.index for message in queue.reader()] == list(range(base, COUNT))


def test_found_verify_and_repair_count_alike_what_a_missing_chunk_between_others_had(path):
    with shmq.open(path, **FOREVER) as queue:
        while len(chunk_files(path)) < 3:
            queue.put(bytes(180))
        end = queue.next_index
    _, middle, last = chunk_files(path)
    missing = int(last.name[:16], 16) - int(middle.name[:16], 16)
    middle.unlink()
    found, done = shmq.verify(path), shmq.repair(path)
    assert (found.messages, found.lost, found.at_least) == (end - missing, missing, False)
    assert (done.messages, done.lost, done.at_least) == (end - missing, missing, False)


def test_found_after_a_reboot_the_watermark_knows_of_the_last_chunk(split):
    path, base = split
    with shmq.open(path) as queue:
        queue.sync()
    chunk_files(path)[-1].unlink()
    make_unclean(path)
    found, done = shmq.verify(path), shmq.repair(path)
    assert "chunk 1 is missing, where the queue ends" in [problem.reason for problem in found.problems]
    assert (found.lost, done.lost, bool(found), bool(done)) == (COUNT - base, COUNT - base, False, False)


def test_found_a_queue_without_any_chunk_is_not_whole(split):
    path, _ = split
    with shmq.open(path) as queue:
        queue.consumer("c").take_many(30)
    for file in chunk_files(path):
        file.unlink()
    found, done = shmq.verify(path), shmq.repair(path)
    assert (bool(found), found.lost, found.at_least) == (False, 30, True)  # as far as a consumer has come
    assert (bool(done), done.lost, done.at_least) == (False, 30, True)
    with shmq.open(done.path) as queue:
        assert queue.put(b"after") >= COUNT


def test_a_queue_into_which_nothing_was_put_is_whole(path):
    with shmq.open(path, **FOREVER) as queue:
        assert shmq.verify(path)
        assert shmq.repair(path)
        queue.put(b"x")
    make_unclean(path)
    chunk_files(path)[0].unlink()  # as a power cut leaves it: nothing was synced, so nothing was promised
    shmq.open(path).close()
    assert shmq.verify(path)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_found_what_is_retired_while_a_living_queue_is_repaired_is_no_loss(make, monkeypatch, which):
    """Between the listing and the reading of a chunk, by retention that nothing holds back."""
    queue = make(retention=shmq.Retention.bytes(65536))
    real, calls = repairing._write_chunk, []

    def retired_first(*given):
        calls.append(given)
        for _ in range(80 if len(calls) == which else 0):
            queue.put_many([bytes(100)] * 10)
        return real(*given)

    for _ in range(80):
        queue.put_many([bytes(100)] * 10)
    monkeypatch.setattr(repairing, "_write_chunk", retired_first)
    done = shmq.repair(queue.path)  # as who may change nothing, and so holds nothing back
    assert (done.lost, done.problems, done.gone, done.complete) == (0, (), (), True)
    assert done.messages > 0
    assert shmq.verify(done.path).messages == done.messages


def test_what_is_retired_again_and_again_before_it_is_read_is_said(make, monkeypatch):
    queue = make(retention=shmq.Retention.bytes(65536))
    queue.put(b"x")
    monkeypatch.setattr(repairing, "_write_sources", lambda *given: None)
    with pytest.raises(shmq.Gone, match="20 times all that was there was retired before it was written"):
        shmq.repair(queue.path)
    assert not os.path.lexists(f"{queue.path}.repaired")


def test_found_a_reader_that_passes_over_damage_counts_a_last_chunk(split):
    path, base = split
    zero(chunk_files(path)[-1], 64)
    with shmq.open(path) as queue:
        reader = queue.reader(skip_corrupt=True)
        assert [message.index for message in reader] == list(range(base))
        assert reader.skipped == COUNT - base
        assert list(reader) == []
        assert reader.skipped == COUNT - base == shmq.verify(path).lost == shmq.repair(path).lost


# ---------------------------------------------------------------- a damaged header
def flip_bit(file, bit):
    content = file.read_bytes()[bit // 8]
    patch(file, bit // 8, bytes([content ^ 1 << bit % 8]))


def test_found_a_header_with_any_one_bit_wrong_costs_no_message(split):
    """It cost all messages of the chunk, which are untouched."""
    path, _ = split
    for bit in range(0, 8 * headers.BYTES, 23):
        which = bit % 2
        file = chunk_files(path)[which]
        flip_bit(file, bit)
        found = shmq.verify(path)
        assert [problem.file for problem in found.problems] == [f"chunks/{file.name}"], bit
        assert (found.messages, found.lost, found.at_least) == (COUNT, 0, False), bit
        done = shmq.repair(path)
        assert (done.messages, done.lost, done.at_least, done.gone, bool(done)) == (COUNT, 0, False, (), True), bit
        assert shmq.verify(done.path)
        with shmq.open(done.path) as queue:
            assert [message.payload for message in queue.reader()] == [b"%03d" % number * 60 for number in range(COUNT)]
        shutil.rmtree(done.path)
        flip_bit(file, bit)
    assert shmq.verify(path)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("size", [5000, 8192, 12345])
def test_found_of_a_file_that_was_cut_short_all_before_the_cut_is_saved(split, which, size):
    path, base = split
    first = base * which
    behind = [first + number for number, word in enumerate(words(path, which)) if word.position + 8 * word.span > size]
    lost = [index for index in behind if index < (COUNT if which else base)]
    os.truncate(chunk_files(path)[which], size)
    found, done = shmq.verify(path), shmq.repair(path)
    assert lost
    assert (found.messages, found.lost, found.at_least) == (COUNT - len(lost), len(lost), bool(which))
    assert (done.messages, done.lost, done.at_least, bool(done)) == (COUNT - len(lost), len(lost), bool(which), False)
    with shmq.open(done.path) as queue:
        assert [message.index for message in queue.reader()] == [each for each in range(COUNT) if each not in lost]
        assert queue.put(b"after") >= COUNT


def test_what_was_known_of_a_header_is_not_enough_without_its_checksum(split):
    """Fields that are known are mended; what only the header knew is lost with it, and so is the chunk."""
    path, base = split
    file = chunk_files(path)[0]
    whole = file.read_bytes()
    patch(file, 16, b"\xff" * 16)  # its format
    patch(file, 104, b"\xff" * 12)  # where it begins
    assert (shmq.verify(path).messages, shmq.verify(path).lost) == (COUNT, 0)
    patch(file, 0, whole[:128])
    patch(file, 56, bytes(8))  # its id, without which no message agrees with its checksum
    assert (shmq.verify(path).messages, shmq.verify(path).lost) == (COUNT - base, base)
    patch(file, 0, whole[:128])
    other = chunk_files(path)[1].read_bytes()
    patch(file, 0, other[:128])  # whole, and of another chunk
    assert (shmq.verify(path).messages, shmq.verify(path).lost) == (COUNT - base, base)
    done = shmq.repair(path)
    assert (done.messages, done.lost) == (COUNT - base, base)


def test_a_file_that_has_grown_is_read_as_it_was(split):
    path, _ = split
    file = chunk_files(path)[0]
    with file.open("ab") as end:
        end.write(b"\xff" * 5000)
    found, done = shmq.verify(path), shmq.repair(path)
    assert (bool(found), found.messages, found.lost) == (False, COUNT, 0)
    assert (done.messages, done.lost, bool(done)) == (COUNT, 0, True)
    assert shmq.verify(done.path)
