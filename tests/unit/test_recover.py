"""The first opening after a reboot: what is kept, cut and said; and who is killed in it, or comes second."""

import os
import random
import shutil
import signal
import struct
import threading
import time
from pathlib import Path

import pytest
from support import (
    DONE,
    HEAD,
    META,
    SEAL,
    Child,
    change_journal,
    chunk_bytes,
    chunk_files,
    flip,
    journal_slots,
    killed_at,
    make_unclean,
    patch,
    set_watermark,
    strides,
    words,
)

import shmq
from shmq.storage import directory, files, space, staging, stretches
from shmq.storage.recover import apply, progress
from shmq.storage.recover import plan as plans

SMALL = shmq.Options(chunk_bytes=16384)
GAP = 4


def payloads(queue):
    return [message.payload for message in queue.reader()]


def fill(path, count=10, **options):
    """A queue with so many messages b"0", b"1", ..., closed."""
    options.setdefault("retention", shmq.Retention.forever())
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, **options)) as queue:
        for number in range(count):
            queue.put(b"%d" % number)


def numbers(count):
    return [b"%d" % number for number in range(count)]


def tree(path):
    """Every file of a queue with its bytes, but for the lock of the administrators."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(Path(path).rglob("*"))
        if file.is_file() and file.name != "admin.lock"
    }


def reopened(path, **flags):
    make_unclean(path)
    return shmq.open(path, create=False, **flags)


# ---------------------------------------------------------------- nothing is lost
def test_an_orderly_reboot_keeps_everything_and_goes_on_in_a_new_epoch(path):
    fill(path, 1000)
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        consumer.take_many(7)
        assert queue.recovery is None
    with reopened(path) as queue:
        found = queue.recovery
        assert (found.from_epoch, found.to_epoch) == (1, 2)
        assert (found.kept, found.end, found.cut_bytes, found.aside, found.moved) == (1000, 1000, 0, (), {})
        assert found.where[0].startswith("chunks/")
        assert payloads(queue) == numbers(1000)
        assert len(queue) == 1000
        index = queue.put(b"after")
        assert index == found.next_index > 1000
        assert len(queue) == 1001
        assert [queue[at].payload for at in (0, 500, 999, index, -1)] == [b"0", b"500", b"999", b"after", b"after"]
        with pytest.raises(IndexError, match="new epoch"):
            queue[1000]
        with queue.consumer("c") as consumer:
            assert [consumer.take(0) for _ in range(3)] == [b"7", b"8", b"9"]
            consumer.seek(999)
            assert [consumer.take(0), consumer.take(0)] == [b"999", b"after"]
        assert list(reversed([m.payload for m in queue.reader(start=990, reverse=True)])) == [
            *numbers(1000)[990:],
            b"after",
        ]
    with shmq.open(path) as queue:
        assert queue.recovery is None
    with reopened(path) as queue:
        assert payloads(queue) == [*numbers(1000), b"after"]
        assert queue.put(b"more") > index + 1


def test_reboots_without_a_put_in_between_change_no_index(path):
    fill(path)
    ends = set()
    for _ in range(3):
        with reopened(path) as queue:
            ends.add(queue.recovery.next_index)
            assert payloads(queue) == numbers(10)
    assert len(ends) == 1
    assert len(chunk_files(path)) == 1


def test_an_empty_queue_stays_empty(path):
    shmq.open(path, options=SMALL).close()
    with reopened(path) as queue:
        assert queue.recovery.kept == 0
        assert len(queue) == 0
        index = queue.put(b"x")
        assert index >= queue.recovery.next_index
        assert queue[index].payload == b"x"
        assert payloads(queue) == [b"x"]
        assert queue.first_index == index


@pytest.mark.usefixtures("mebibytes")
def test_an_index_is_right_and_fast_afterwards(path):
    """Hints and index blocks that a power cut has left are made anew, and lead to within a spacing of every message."""
    fill(path, 3000)
    with shmq.open(path, options=shmq.Options()) as _:
        pass
    large = f"{path}-large"
    with shmq.open(large, options=shmq.Options(chunk_bytes=1 << 20)) as queue:
        for at in range(0, 12000, 1000):
            queue.put_many([b"%d" % number for number in range(at, at + 1000)])
    (file,) = chunk_files(large)
    blocks = [word.position for word in words(large, meta=True) if word.state == META and word.span == 1026]
    assert blocks
    chance = random.Random(1)
    for block in blocks:
        patch(file, block + 16, chance.randbytes(8192))
    patch(file, 128, chance.randbytes(8))
    patch(file, 4096 + 16, chance.randbytes(8))
    with reopened(large) as queue:
        for at in (0, 63, 64, 65, 11999, 7777):
            assert queue[at].payload == b"%d" % at
        assert queue.recovery.kept == 12000
    content = file.read_bytes()
    ordinals = {}
    for word in words(large):
        if word.state == DONE:
            ordinals[len(ordinals)] = word.position
    (slot,) = struct.unpack_from("<Q", content, 4096 + 16)
    assert slot == blocks[0]
    for entry in range(1, 12000 // 64 + 1):
        place, _ = struct.unpack_from("<Qq", content, slot + 16 + 16 * entry)
        assert place == ordinals[entry * 64] // 8 << 36 | entry * 64
    assert struct.unpack_from("<Q", content, 128)[0] & (1 << 36) - 1 == 12000


# ---------------------------------------------------------------- the cut
def test_it_cuts_at_the_first_message_that_does_not_validate(path):
    fill(path)
    position = words(path)[6].position
    flip(chunk_files(path)[0], position + 40)
    with reopened(path) as queue:
        assert payloads(queue) == numbers(6)
        assert queue.recovery.where == (f"chunks/{chunk_files(path)[0].name}", position)
        assert "checksum" in queue.recovery.reason
        assert queue.recovery.cut_bytes >= 4 * 48
        index = queue.put(b"after")
        assert index >= 10
        assert payloads(queue) == [*numbers(6), b"after"]
    assert [word.state for word in words(path)][-2:] == [DONE, SEAL]
    last = words(path, meta=True)[-2]
    content = chunk_files(path)[0].read_bytes()
    assert (last.state, struct.unpack_from("<I", content, last.position + 8)[0]) == (META, GAP)
    assert not any(content[last.position + 32 :])


@pytest.mark.parametrize("which", range(5))
def test_a_cut_never_falls_inside_a_batch(path, which):
    """A5: the commit shrinks word 1, so on the disk a batch of 5 is five DONE messages."""
    fill(path, 3)
    with shmq.open(path) as queue:
        queue.put_many([b"batch %d" % number for number in range(5)])
        queue.put(b"behind")
    position = words(path)[3 + which].position
    patch(chunk_files(path)[0], position, bytes(64))
    with reopened(path) as queue:
        assert payloads(queue) == numbers(3)
        assert queue.recovery.end == 3


def test_a_claim_that_was_never_committed_is_the_end(path):
    """What lies behind an open claim may be whole: kept, it would leave a hole where a returned put was."""
    fill(path)
    word = words(path)[4]
    claimed = 1 << 61 | 1 << 48 | word.owner << 27 | word.span
    patch(chunk_files(path)[0], word.position, claimed.to_bytes(8, "little"))
    with reopened(path) as queue:
        assert payloads(queue) == numbers(4)
        assert "never committed" in queue.recovery.reason
        assert queue.put(b"x") >= 10


def test_padding_is_believed_when_a_message_behind_it_agrees_and_cut_at_the_end(path):
    with shmq.open(path, options=SMALL) as queue:
        queue.put(b"a")
        queue.reserve(100).abort()
        queue.put(b"b")
        queue.reserve(100).abort()
    with reopened(path) as queue:
        assert [(message.index, message.payload) for message in queue.reader()] == [(0, b"a"), (2, b"b")]
        assert queue.recovery.end == 3
        assert len(queue) == 2
        queue.put(b"c")
        assert len(queue) == 3


def test_a_torn_word_of_padding_is_not_believed(path):
    with shmq.open(path, options=SMALL) as queue:
        queue.put(b"a")
        queue.reserve(100).abort()
        queue.put(b"b")
    pad = words(path)[1]
    patch(chunk_files(path)[0], pad.position, bytes([pad.span + 1]))
    with reopened(path) as queue:
        assert payloads(queue) == [b"a"]


def test_a_chunk_whose_content_never_reached_the_disk_is_absent(path):
    fill(path, 1000)
    files = chunk_files(path)
    assert len(files) == 4
    kept = sum(word.state == DONE for which in range(2) for word in words(path, which))
    files[2].write_bytes(bytes(16384))
    with reopened(path) as queue:
        assert payloads(queue) == numbers(kept)
        assert queue.recovery.aside == (f"chunks/{files[3].name}",)
        assert queue.put(b"x") >= 1000
        assert payloads(queue) == [*numbers(kept), b"x"]
    assert os.listdir(f"{path}/aside") == [f"00000001-{files[3].name}"]
    shmq.delete(path)
    assert not os.path.exists(path)


@pytest.mark.parametrize("lost", range(4))
def test_a_name_that_is_lost_ends_the_chain_before_it(path, lost):
    fill(path, 1000)
    files = chunk_files(path)
    kept = sum(word.state == DONE for which in range(lost) for word in words(path, which))
    files[lost].unlink()
    with reopened(path) as queue:
        assert payloads(queue) == numbers(kept)
        assert len(queue.recovery.aside) == 3 - lost
        index = queue.put(b"x")
        assert index >= int(files[3].name[:16], 16) if lost < 3 else index >= kept
        assert payloads(queue) == [*numbers(kept), b"x"]
        assert queue[index].payload == b"x"


def test_no_index_below_the_ceiling_is_given_again(path):
    """A10: chunks may have been issued and read, and their names lost; only the ceiling knows of them."""
    fill(path)
    change_journal(path, 32, (123456).to_bytes(8, "little"))
    with reopened(path) as queue:
        assert queue.put(b"x") == 123456
    for file in chunk_files(path)[1:]:
        file.unlink()
    change_journal(path, 32, (200000).to_bytes(8, "little"))
    with reopened(path) as queue:  # the GAP that is there says too little now
        assert queue.put(b"y") == 200000
        assert payloads(queue) == [*numbers(10), b"y"]
    for file in chunk_files(path):
        file.unlink()
    change_journal(path, 32, (300000).to_bytes(8, "little"))
    with reopened(path) as queue:
        assert len(queue) == 0
        assert queue.put(b"z") == 300000
        assert payloads(queue) == [b"z"]


def test_a_spare_whose_zeros_may_not_have_reached_the_disk_is_not_used(path):
    fill(path)
    spare = Path(path, "chunks", "retired-0123456789abcdef")
    spare.write_bytes(b"\1" * 16384)
    spare.chmod(0o600)
    with reopened(path):
        assert not spare.exists()


def test_what_retention_had_given_up_is_taken_away(path):
    fill(path, 1000)
    files = chunk_files(path)
    first = int(files[2].name[:16], 16)
    change_journal(path, 40, struct.pack("<QQ", 2, first))
    with reopened(path) as queue:
        assert queue.first_index == first
        assert payloads(queue) == numbers(1000)[first:]
        assert queue.recovery.aside == ()
    assert chunk_files(path)[0].name == files[2].name


# ---------------------------------------------------------------- the watermark
def test_below_the_watermark_everything_validates_or_the_queue_is_corrupt_and_unchanged(path):
    fill(path, 1000)
    end = words(path, 1)[-1]
    base = int(chunk_files(path)[1].name[:16], 16)
    set_watermark(path, 1, end.position, base + len(words(path, 1)) - 1)
    with reopened(path) as queue:
        assert queue.recovery.kept == 1000
    for which in (0, 1):
        copy = f"{path}-{which}"
        shutil.copytree(path, copy)
        position = words(copy, which)[5].position
        flip(chunk_files(copy)[which], position + 40)
        make_unclean(copy)
        before = tree(copy)
        for flags in ({}, {"read_only": True}):
            with pytest.raises(shmq.Corrupt, match=rf"{chunk_files(copy)[which].name}.*position {position}.*checksum"):
                shmq.open(copy, **flags)
        assert tree(copy) == before


def test_padding_below_the_watermark_is_kept(path):
    with shmq.open(path, options=SMALL) as queue:
        queue.put(b"a")
        queue.reserve(100).abort()
        pad = words(path)[1]
    set_watermark(path, 0, pad.position + 8 * pad.span, 2)
    with reopened(path) as queue:
        assert (queue.recovery.end, payloads(queue)) == (2, [b"a"])


def test_a_chunk_that_is_missing_below_the_watermark_is_damage(path):
    fill(path, 1000)
    set_watermark(path, 3, 5000, int(chunk_files(path)[3].name[:16], 16) + 1)
    chunk_files(path)[2].unlink()
    make_unclean(path)
    with pytest.raises(shmq.Corrupt, match="is missing"):
        shmq.open(path)


# ---------------------------------------------------------------- consumers
def test_a_consumer_ahead_of_what_was_kept_is_moved_back_and_said(path):
    fill(path)
    with shmq.open(path) as queue, queue.consumer("c") as consumer, queue.consumer("behind") as other:
        consumer.take_many(9)
        other.take_many(2)
    flip(chunk_files(path)[0], words(path)[5].position + 40)
    with reopened(path) as queue:
        assert queue.recovery.moved == {"c": (9, 5)}
        queue.put(b"after")
        with queue.consumer("c") as consumer:
            assert consumer.take(0) == b"after"
        with queue.consumer("behind") as other:
            assert other.take_many(10) == [b"2", b"3", b"4"]
            assert other.take(0) == b"after"


def test_a_checkpoint_whose_content_never_reached_the_disk_begins_again(path):
    fill(path)
    with shmq.open(path) as queue:
        queue.consumer("c").close()
    file = Path(path, "consumers", "c.checkpoint")
    file.write_bytes(bytes(file.stat().st_size))
    with reopened(path) as queue:
        assert queue.recovery.aside == ("consumers/c.checkpoint",)
        with queue.consumer("c") as consumer:
            assert consumer.take(0) == b"0"


def test_a_live_head_that_cannot_be_true_gives_way_to_the_start(path):
    fill(path)
    with shmq.open(path) as queue, queue.consumer("c", start=2) as consumer:
        consumer.take()
    file = Path(path, "consumers", "c.checkpoint")
    patch(file, HEAD, (7).to_bytes(8, "little"))  # and it has handed out up to 3
    with reopened(path) as queue, queue.consumer("c") as consumer:
        assert consumer.take(0) == b"2"


# ---------------------------------------------------------------- who only reads
def test_a_read_only_opening_reads_what_validates_and_changes_nothing(path):
    fill(path, 1000)
    flip(chunk_files(path)[2], words(path, 2)[7].position + 40)
    kept = int(chunk_files(path)[2].name[:16], 16) + 7
    make_unclean(path)
    patch(f"{path}/control.shmq", 0, os.urandom(4096))
    patch(chunk_files(path)[0], 128, os.urandom(8))
    before = tree(path)
    with shmq.open(path, read_only=True) as queue:
        assert queue.recovery is None
        assert payloads(queue) == numbers(kept)
        assert (queue.next_index, queue[-1].payload, queue[3].payload) == (kept, b"%d" % (kept - 1), b"3")
        assert len(queue) == kept
        assert [m.payload for m in queue.reader(reverse=True)] == numbers(kept)[::-1]
        with pytest.raises(IndexError):
            queue[kept]
        assert queue.stats().chunks == 3
    assert tree(path) == before


# ---------------------------------------------------------------- a copied directory
def test_a_copied_directory_is_recovered_though_it_has_the_same_boot(path):
    fill(path)
    copy = f"{path}-copy"
    shutil.copytree(path, copy)
    with shmq.open(path) as queue:
        assert queue.recovery is None
    with shmq.open(copy) as queue:
        assert queue.recovery.kept == 10
        assert payloads(queue) == numbers(10)
    with shmq.open(copy) as queue:
        assert queue.recovery is None


def test_a_queue_that_somebody_has_open_is_never_taken_for_a_copy(path):
    """Another device number for the same file, as through another mount: its seats are taken, so it is no copy."""
    fill(path)
    with shmq.open(path):
        change_journal(path, 56, struct.pack("<QQ", 1, 1))
        before = tree(path)
        with shmq.open(path) as second:
            assert second.recovery is None
            assert payloads(second) == numbers(10)
        changed = {name for name, content in tree(path).items() if content != before[name]}
        assert changed <= {"control.shmq"}


# ---------------------------------------------------------------- adoption
def staged(path, producer="p", sequence=1, count=300):
    with shmq.open(path, create=False) as queue, queue.stage() as aside:
        for at in range(0, count, 50):
            aside.put_many([b"%05d" % number + bytes(200) for number in range(at, at + 50)])
        return queue.adopt(aside, dedup=(producer, sequence))


BATCH = [b"%05d" % number + bytes(200) for number in range(300)]


def test_a_power_cut_at_every_step_of_an_adoption_all_or_nothing(tmp_path):
    """And the ledger agrees: what is there is not adopted again, what is not comes when it is adopted again."""
    outcomes = []
    step, alive = 0, True
    while alive:
        path = str(tmp_path / f"q{step}")
        fill(path, 3)
        alive = killed_at(step, lambda path=path: staged(path))
        with reopened(path) as queue:
            found = payloads(queue)
            assert found in (numbers(3), numbers(3) + BATCH)
            outcomes.append(len(found) > 3)
            assert not os.path.isdir(f"{path}/staging") or os.listdir(f"{path}/staging") == []
            queue.put(b"after")
        assert len(staged(path)) == 300
        with shmq.open(path) as queue:
            found = payloads(queue)
        assert found.count(BATCH[0]) == found.count(BATCH[-1]) == 1
        shmq.delete(path)
        step += 2
    assert outcomes == sorted(outcomes)
    assert outcomes[0] is False
    assert outcomes[-1] is True


@pytest.mark.parametrize("damage", ["lost", "zero", "torn"])
@pytest.mark.parametrize("which", range(2, 5))
def test_an_adopted_set_that_is_not_whole_goes_as_a_whole(path, which, damage):
    fill(path, 3)
    adopted = staged(path)
    with shmq.open(path) as queue:
        queue.put(b"behind")
    file = chunk_files(path)[which]
    if damage == "lost":
        file.unlink()
    elif damage == "zero":
        file.write_bytes(bytes(file.stat().st_size))
    else:
        flip(file, words(path, which)[2].position + 40)
    with reopened(path) as queue:
        assert payloads(queue) == numbers(3)
        assert queue.recovery.end == 3
        assert queue.recovery.aside
        again = staged(path)
        assert again.start >= adopted.stop
        assert payloads(queue) == [*numbers(3), *BATCH]
        assert queue.adopted("p") == (1, again)


def retired_up_to(path, monkeypatch, read):
    """A set was adopted, and its removal was not synced; what was read before is retired: the queue's first index."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.acked())) as queue:
        queue.put_many(numbers(3))
    with shmq.open(path) as queue, queue.consumer("c", start="earliest", ack="explicit") as consumer:
        with monkeypatch.context() as unsynced:
            unsynced.setattr(staging.Set, "remove", lambda _: None)
            staged(path)
        for _ in range(read):
            consumer.ack(consumer.get(timeout=0))
        space.retire(queue._session.home, queue._session.chain(), queue._session.joined().control)
        return queue.first_index


@pytest.mark.parametrize(("read", "first"), [(3, 3), (203, 60)])
def test_an_adopted_set_stays_when_what_was_before_it_is_retired_and_its_removal_was_not_synced(
    path, monkeypatch, read, first
):
    """Also when its own first chunks are: the chain begins in the set, and its SEALs name it."""
    begins = retired_up_to(path, monkeypatch, read)
    assert begins >= first
    with reopened(path) as queue:
        assert payloads(queue) == BATCH[begins - 3 :]
        assert (queue.first_index, queue.recovery.end) == (begins, 303)
        assert queue.adopted("p") == (1, range(3, 303))
    assert os.listdir(f"{path}/staging") == []


def test_of_a_set_whose_beginning_is_retired_what_is_whole_is_kept(path, monkeypatch):
    begins = retired_up_to(path, monkeypatch, 203)
    file = chunk_files(path)[-1]
    lost = int(file.name.split("-")[0], 16)
    file.unlink()
    with reopened(path) as queue:
        assert payloads(queue) == BATCH[begins - 3 : lost - 3]
        assert queue.recovery.end == lost


def test_a_seal_that_names_no_set_is_cut(path):
    fill(path, 3)
    with shmq.open(path) as queue:
        queue._session.chain().tail().seal_adopt(0x123456789A)
    with reopened(path) as queue:
        assert "123456789a" in queue.recovery.reason
        assert payloads(queue) == numbers(3)
        queue.put(b"x")
        assert payloads(queue) == [*numbers(3), b"x"]


# ---------------------------------------------------------------- killed in it, and two at once
def damaged(path):
    """A queue with something to do for every step of its recovery."""
    fill(path, 300)
    staged(path, "q", 1, 50)
    with shmq.open(path) as queue:
        for number in range(600):
            queue.put(b"%d" % number)
        with queue.consumer("c") as consumer:
            consumer.seek(queue.next_index)

    def leave_an_orphan(say):
        shmq.open(path).stage().put(b"never")
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(leave_an_orphan) as child:
        child.join()
    assert len(chunk_files(path)) > 4
    flip(chunk_files(path)[-2], words(path, -2)[9].position + 40)
    Path(path, "chunks", "retired-00").write_bytes(bytes(16384))
    make_unclean(path)


def test_killed_at_every_step_and_again_it_makes_the_same_bytes(tmp_path):
    origin = str(tmp_path / "origin")
    damaged(origin)
    copied = shutil.copytree(origin, str(tmp_path / "whole"))
    _as_moved(copied)
    shmq.open(copied).close()
    wanted = _comparable(copied)
    step, alive = 0, True
    onward = strides()
    while alive:
        path = str(tmp_path / f"q{step}")
        shutil.copytree(origin, path)
        _as_moved(path)
        alive = killed_at(step, lambda path=path: shmq.open(path).close())
        if alive:
            killed_at(step // 2, lambda path=path: shmq.open(path).close())  # and the next one, earlier
        shmq.open(path).close()
        assert _comparable(path) == wanted, f"killed at step {step}"
        shutil.rmtree(path)
        step += next(onward)
    assert step > 20


def _as_moved(path):
    """Not taken for a copy: the boot alone says that it is unclean."""
    info = os.stat(f"{path}/control.shmq")
    change_journal(path, 56, struct.pack("<QQ", info.st_dev, info.st_ino))


def _comparable(path):
    """All bytes, but for seats, which every opening takes anew, and the inode that each copy has."""
    found = tree(path)
    found["control.shmq"] = found["control.shmq"][256:384] + found["control.shmq"][400:416]
    slots = [slot[:56] + slot[72:100] for _, slot in journal_slots(path)]
    found["queue.shmq"] = b"".join(slots) + found["queue.shmq"][3 * 4096 :]
    return found


def test_two_openers_at_once_recover_once(tmp_path):
    for number in range(5):
        path = str(tmp_path / f"q{number}")
        damaged(path)
        ready = threading.Barrier(3)
        found = []

        def work(path=path, ready=ready, found=found):
            ready.wait(30)
            with shmq.open(path) as queue:
                found.append((queue.recovery is not None, payloads(queue)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(recovered for recovered, _ in found) == [False, False, True]
        assert found[0][1] == found[1][1] == found[2][1]


# ---------------------------------------------------------------- power cuts, by chance
def test_torn_anywhere_it_is_a_beginning_of_what_was_put(tmp_path):
    """Any 64 bytes of any chunk zero, or as they were at any earlier time: what is left is a prefix, whole."""
    chance = random.Random(7)
    path = str(tmp_path / "q")
    before = []
    log = []
    with shmq.open(path, options=SMALL) as queue:
        for number in range(40):
            if number % 3:
                log.append([b"%d" % number + chance.randbytes(chance.randrange(300))])
                queue.put(log[-1][0])
            else:
                log.append([b"%d.%d" % (number, each) for each in range(chance.randrange(1, 9))])
                queue.put_many(log[-1])
            before.append({file.name: file.read_bytes() for file in chunk_files(path)})
        everything = [payload for batch in log for payload in batch]
    prefixes = [[]]
    for batch in log:
        prefixes.append(prefixes[-1] + batch)
    assert prefixes[-1] == everything
    for number in range(150):
        copy = shutil.copytree(path, str(tmp_path / f"c{number}"))
        for file in chunk_files(copy):
            content = bytearray(file.read_bytes())
            older = chance.choice(before).get(file.name, bytes(len(content)))
            for _ in range(chance.randrange(3)):
                at = chance.randrange(0, len(content), 64)
                size = chance.choice([8, 64, 512, 4096])
                content[at : at + size] = older[at : at + size]
            file.write_bytes(content)
        with shmq.open(copy) as queue:
            found = payloads(queue)
            assert found in prefixes, number
            assert queue.recovery.kept == len(found) == len(queue)
            index = queue.put(b"after")
            assert index >= len(everything) or not found
            assert payloads(queue) == [*found, b"after"]
            for at, payload in enumerate(found):
                assert queue[at].payload == payload
        shutil.rmtree(copy)


# ---------------------------------------------------------------- after a mere process crash
def test_opening_after_a_process_crash_reads_no_chunk(path, monkeypatch):
    """Not a matter of time: what is read is counted."""
    fill(path, 3000)

    def die(say):
        queue = shmq.open(path)
        queue.put(b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(die) as child:
        child.join()
    from shmq import _native

    looked = []
    monkeypatch.setattr(apply, "recover", lambda home: looked.append("recover"))
    map_file = _native.map_file
    monkeypatch.setattr(_native, "map_file", lambda *a, **k: looked.append("map") or map_file(*a, **k))
    with shmq.open(path) as queue:
        assert looked.count("recover") == 0
        assert len(looked) <= 4  # the control page, and the chunks that the dead may have claimed in
        assert queue.recovery is None


def test_the_padding_of_a_gap_goes_with_its_chunk(make, path):
    """len() counts messages, also when the chunk before the gap was retired."""
    fill(path, 10, retention=shmq.Retention.acked())
    with reopened(path) as queue:
        for number in range(400):
            queue.put(b"%d" % number)
        assert len(queue) == 410
        with queue.consumer("c") as consumer:
            while consumer.lag:
                consumer.take_many(100)
        assert queue.first_index > 10
        assert len(queue) == sum(1 for _ in queue.reader())


# ---------------------------------------------------------------- groups
@pytest.mark.parametrize("how", ["rebooted", "copied"])
def test_a_group_goes_on_by_its_snapshot_and_believes_nobody_who_held_anything(path, tmp_path, how):
    """Also in a copy made while somebody holds messages, whose seat somebody else then has."""
    fill(path)
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit") as member:
        held = member.get_many(6, 0)
        for at in (0, 2, 5):
            held[at].ack()
        assert member.get(0).index == 6
        queue.sync()
        if how == "copied":
            copy = shutil.copytree(path, str(tmp_path / "copy"))
    if how == "copied":
        path = copy
    else:
        make_unclean(path)
    with shmq.open(path) as queue:
        assert queue.recovery is not None
        with queue.consumer("g", group=True, ack="explicit") as member:
            found = [message.payload for message in member.get_many(10, 0)]
            while len(found) < 7:
                found += [message.payload for message in member.get_many(10, 0)]
            assert sorted(found) == [b"1", b"3", b"4", b"6", b"7", b"8", b"9"]
            queue.put(b"after")
            assert member.get(0).payload == b"after"


# ---------------------------------------------------------------- what lies behind the cut
def test_what_lies_behind_a_cut_is_set_aside_and_counted_and_can_be_had_again(path):
    """A hole in an older chunk, without a watermark: an unbroken beginning is kept, and nothing is deleted."""
    fill(path, 1000)
    assert len(chunk_files(path)) > 3
    last = len(words(path, 0)) - 2
    patch(chunk_files(path)[1], words(path, 1)[40].position, bytes(8))
    first = int(chunk_files(path)[1].name[:16], 16)
    files = [f"chunks/{file.name}" for file in chunk_files(path)[1:]]
    make_unclean(path)
    with shmq.open(path) as queue:
        recovery = queue.recovery
        assert recovery.kept == recovery.end == first + 40 > last
        assert "a hole" in recovery.reason
        assert sorted(recovery.aside) == files
        assert recovery.aside_messages == 1000 - recovery.end - 1
        assert [message.payload for message in queue.reader()] == [b"%d" % n for n in range(recovery.end)]
    done = shmq.repair(path, aside=recovery.from_epoch)
    assert done.path == f"{path}.aside-{recovery.from_epoch}"
    with shmq.open(done.path) as queue:
        assert {message.index: message.payload for message in queue.reader()} == {
            number: b"%d" % number for number in range(first, 1000) if number != first + 40
        }
    with pytest.raises(shmq.NotFound, match="no recovery of epoch 77"):
        shmq.repair(path, aside=77)


def test_a_tail_that_is_only_torn_sets_nothing_aside(path):
    fill(path, 100)
    flip(chunk_files(path)[-1], words(path, -1)[-1].position + 40)
    make_unclean(path)
    with shmq.open(path) as queue:
        assert (queue.recovery.kept, queue.recovery.aside, queue.recovery.aside_messages) == (99, (), 0)


def test_a_disk_without_room_for_what_lies_behind_a_cut_is_told_and_nothing_is_cut(path, monkeypatch):
    fill(path, 100)
    flip(chunk_files(path)[-1], words(path, -1)[-5].position + 40)
    make_unclean(path)
    before = {file: file.read_bytes() for file in chunk_files(path)}

    def no_room(directory, size, where):
        raise files.disk_full(where, size, OSError(28, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(files, "new_file", no_room)
        with pytest.raises(shmq.DiskFull, match="aside"):
            shmq.open(path)
    assert {file: file.read_bytes() for file in chunk_files(path)} == before
    with shmq.open(path) as queue:
        assert queue.recovery.aside_messages == 4


def test_a_recovery_that_sets_whole_messages_aside_says_so_in_the_log(path, caplog):
    """Else `cat` on a damaged copy prints nothing, and whoever asks `verify` then is told that all is well."""
    fill(path, 100)
    flip(chunk_files(path)[-1], words(path, -1)[-5].position + 40)
    make_unclean(path)
    with shmq.open(path) as queue:
        epoch = queue.recovery.from_epoch
    assert [record.message for record in caplog.records if "aside/" in record.message]
    assert f"--aside {epoch}" in caplog.text
    caplog.clear()
    make_unclean(path)
    shmq.open(path).close()
    assert "aside" not in caplog.text


# ---------------------------------------------------------------- a long queue
def test_a_recovery_looks_only_at_the_ends_of_chunks_below_the_watermark(path, monkeypatch):
    """To all of them the disk has agreed; a damaged message there is found by whoever reads it."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())) as queue:
        for number in range(1000):
            queue.put(b"%d" % number)
        queue.reserve(8).abort()
        for number in range(1001, 1500):
            queue.put(b"%d" % number)
        queue.sync()
        for number in range(1500, 1520):
            queue.put(b"%d" % number)
    first = int(chunk_files(path)[1].name[:16], 16)
    flip(chunk_files(path)[1], words(path, 1)[7].position + 40)
    make_unclean(path)
    looked = []
    survey = stretches._native.DetachedChunk.survey

    def noted(self, **given):
        if not given.get("position"):
            looked.append(self.base)
        return survey(self, **given)

    monkeypatch.setattr(stretches._native.DetachedChunk, "survey", noted)
    with shmq.open(path) as queue:
        assert len(looked) <= 2
        assert queue.recovery.end == 1520
        assert len(queue) == 1519
        with pytest.raises(shmq.Corrupt):
            list(queue.reader())
        assert len(list(queue.reader(skip_corrupt=True))) == 1518
        assert [queue[number].payload for number in (0, first - 1, first + 9, 1519)] == [
            b"%d" % number for number in (0, first - 1, first + 9, 1519)
        ]
    found = shmq.verify(path)
    assert (found.lost, len(found.problems)) == (1, 1)


def test_hints_and_index_that_a_power_cut_took_below_the_watermark_are_made_anew(path):
    with shmq.open(path, options=shmq.Options(chunk_bytes=1 << 18, retention=shmq.Retention.forever())) as queue:
        for number in range(20000):
            queue.put(b"%d" % number)
        queue.sync()
    which = 2
    before = chunk_bytes(path, which)
    patch(chunk_files(path)[which], 128, bytes(8))
    patch(chunk_files(path)[which], 320, bytes(8))
    patch(chunk_files(path)[which], 4112, bytes(8))
    make_unclean(path)
    with shmq.open(path) as queue:
        assert queue.recovery.end == 20000
        assert chunk_bytes(path, which)[4096 : 4096 + 80] == before[4096 : 4096 + 80]
        assert queue[15000].payload == b"15000"


def recovers_slowly(say, path, beats):
    home = directory.Directory(path, read_only=False)
    with home.admin():
        say("held")
        for _ in range(beats):
            time.sleep(0.1)
            os.utime(f"{path}/queue.shmq")
        if not beats:
            time.sleep(60)


def test_an_opener_waits_as_long_as_a_recovery_makes_progress(path, monkeypatch, caplog):
    fill(path, 10)
    make_unclean(path)
    monkeypatch.setattr(progress, "PATIENCE", 2.0)
    with Child(recovers_slowly, path, 30) as child:
        assert child.hear() == "held"
        with shmq.open(path) as queue:
            assert queue.recovery.kept == 10
        assert child.join() == 0
    assert f"waiting to open {path}: somebody recovers it, and makes progress" in caplog.text


def test_an_opener_does_not_wait_for_one_who_makes_no_progress(path, monkeypatch):
    fill(path, 10)
    make_unclean(path)
    monkeypatch.setattr(progress, "PATIENCE", 0.3)
    with Child(recovers_slowly, path, 0) as child:
        assert child.hear() == "held"
        with pytest.raises(shmq.Busy, match="has been held by somebody"):
            shmq.open(path)
        child.kill()


def test_a_recovery_that_takes_long_says_how_far_it_is(path, monkeypatch, caplog):
    fill(path, 1000)
    make_unclean(path)
    monkeypatch.setattr(progress, "_TELL_NS", 0)
    monkeypatch.setattr(progress, "_BEAT_NS", 0)
    before = os.stat(f"{path}/queue.shmq").st_mtime_ns
    with shmq.open(path):
        pass
    assert f"recovering {path}: looking at chunk 2 of" in caplog.text
    assert os.stat(f"{path}/queue.shmq").st_mtime_ns > before


@pytest.mark.parametrize("kind", [{"ack": "explicit"}, {"group": True}], ids=["alone", "group"])
def test_found_a_leap_of_an_empty_queue_was_a_loss_at_the_second_recovery(path, kind):
    """The first one moved the name over indexes that never were messages, and did not have that on the disk."""
    queue = shmq.open(path, retention=shmq.Retention.age(3600))
    queue.consumer("all", **kind).close()
    for payload in (b"first", b"second"):
        queue.close()
        make_unclean(path)
        queue = shmq.open(path)
        queue.put(payload)
    with queue, queue.consumer("all", **kind) as everything:
        assert [everything.get(timeout=0).payload for _ in range(2)] == [b"first", b"second"]


@pytest.mark.parametrize("kept", range(16))
def test_found_a_recovery_that_was_cut_behind_an_adopted_set_had_the_set_go(path, kept):
    """
    Its last chunk gets a GAP in place of its SEAL, and the SEAL behind that; of these words the disk had some. The
    manifest had gone long ago, so nothing said that the set was whole.
    """
    fill(path, 3)
    staged(path)
    assert os.listdir(f"{path}/staging") == []
    file = chunk_files(path)[-1]
    seal = words(path, -1)[-1]
    before = file.read_bytes()
    reopened(path).close()
    assert words(path, -1)[-1].position == seal.position + 24
    for at in range(4):
        if not kept >> at & 1:
            position = seal.position + 8 * at
            patch(file, position, before[position:][:8])
    with reopened(path) as queue:
        assert payloads(queue) == [*numbers(3), *BATCH]
        assert queue.recovery.aside == ()


def test_an_adopted_set_that_no_ledger_knows_yet_is_entered_under_its_own_indexes(path, monkeypatch):
    """Its SEAL was on the disk, and the ledger was not; also when its own first chunks are retired."""
    begins = retired_up_to(path, monkeypatch, 203)
    os.unlink(f"{path}/ledger.shmq")
    with reopened(path) as queue:
        assert payloads(queue) == BATCH[begins - 3 :]
        assert queue.adopted("p") == (1, range(3, 303))


def test_a_set_has_no_more_chunks_than_its_manifest_names(path):
    """A chunk that says it is one more of it is none of it; that is no reason to fall over."""
    fill(path, 3)
    home = directory.Directory(path, read_only=True)
    looker = plans._Looker(home, None)
    sequence, base = next(iter(home.chunk_names()))
    chunk_id = looker.look(sequence, base, 0, 0).chunk_id
    looker.manifests[7] = staging.Manifest(b"", 0, ["1.chunk"], [chunk_id], [3], [16384])
    assert looker.look(sequence, base, 7, 0) is not None
    assert looker.look(sequence, base, 7, 1) is None
    home.close()


def test_who_has_recovered_a_queue_goes_on_in_this_boot(path):
    """What it is asked for next, a copy for one, goes by what processes agree on in memory."""
    fill(path, 3)
    with reopened(path) as queue:
        assert queue.recovery is not None
        assert not queue._session.home.unclean()
        assert queue._session.home.same_boot
