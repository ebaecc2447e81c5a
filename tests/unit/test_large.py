"""Large messages: to just under 1 GiB, written and read where they lie, and checked while they are copied."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import random
import shutil
import threading
from pathlib import Path

import numpy
import pytest
from support import Child, chunk_files, flip, words

import shmq
from shmq.storage import spares, warm

pytestmark = pytest.mark.usefixtures("mebibytes")

MIB = 1 << 20
PATIENCE = 200.0
"""Seconds for half a gigabyte of fresh pages, on a machine that has other things to do."""
LARGEST = (2**27 - 1) * 8 - 40
"""Bytes of the largest payload: what 27 bits of span can say, without the head."""


def need_room(path, wanted: int) -> None:
    """Skip, visibly, where a payload of that size has no place in memory or on the disk."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    disk = shutil.disk_usage(os.path.dirname(path)).free
    if min(free, disk) < 2 * wanted + 256 * MIB:
        pytest.skip(f"{free >> 20} MiB of memory and {disk >> 20} MiB of disk are free; {2 * wanted >> 20} are wanted")


def private_bytes() -> int:
    """RssAnon of this process: what it has for itself, mapped files left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError


def address_of(view) -> int:
    """Where the bytes of a view lie."""
    return numpy.frombuffer(view, dtype="u1").__array_interface__["data"][0]


def is_mapped_from(address: int, folder: str) -> bool:
    """Whether that address is inside a mapping of a file of that folder."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return folder in line
    return False


def pass_without_copies(make, path, values: int) -> None:
    """Send that many float32 from one process, and look at them in this one."""
    queue = make(chunk_bytes=MIB)
    consumer = queue.consumer("reader")

    def send(say) -> None:
        with shmq.open(path) as mine:
            before = private_bytes()
            with mine.reserve(values * 4) as slot:
                there = numpy.frombuffer(slot.buffer, dtype="f4")
                there[::65536] = numpy.arange(0, values, 65536, dtype="f4")
                told = is_mapped_from(there.__array_interface__["data"][0], f"{path}/chunks")
                del there
            say(f"{told} {private_bytes() - before < 32 * MIB}")

    with Child(send) as child:
        assert child.hear(PATIENCE) == "True True"
        assert child.join(PATIENCE) == 0

    before = private_bytes()
    message = consumer.get(timeout=0)
    seen = numpy.frombuffer(message.view, dtype="f4")
    assert len(seen) == values
    assert (seen[::65536] == numpy.arange(0, values, 65536, dtype="f4")).all()
    assert is_mapped_from(seen.__array_interface__["data"][0], f"{path}/chunks")
    assert private_bytes() - before < 32 * MIB


def test_an_array_of_512_mib_goes_through_without_a_copy(make, path):
    """Filled where it will lie, read where it lies: neither process grows by more than small change."""
    need_room(path, 512 * MIB)
    pass_without_copies(make, path, 128 * MIB)


@pytest.mark.slow
def test_the_largest_payload_goes_through(make, path):
    """Just under 1 GiB."""
    need_room(path, LARGEST)
    pass_without_copies(make, path, LARGEST // 4)


def test_one_byte_more_than_the_largest_is_refused(queue):
    """Before anything is claimed or made."""
    with pytest.raises(shmq.TooLarge, match="nothing was put"):
        queue.reserve(LARGEST + 1)
    assert queue.next_index == 0
    assert queue.put(b"next") == 0


SIZES = [32728 - 1, 32728, 32729, 12288 * 3, 12288 * 3 + 1, 4 * MIB, 4 * MIB + 1]
"""Around the sizes at which another way is taken: through cffi, piece by piece, in one pass, in two."""


@pytest.mark.parametrize("checksum", [True, False])
def test_large_messages_come_out_as_they_went_in(make, checksum):
    """By every way of putting, and every way of getting."""
    queue = make(chunk_bytes=MIB, checksum=checksum)
    takes, gets, many = (queue.consumer(name) for name in ("takes", "gets", "many"))
    sent = [os.urandom(1021) * (size // 1021 + 1) for size in SIZES]
    sent = [payload[:size] for payload, size in zip(sent, SIZES, strict=True)]
    for payload in sent:
        queue.put(payload)
    queue.put_many([*sent, b"small"])
    with queue.reserve(SIZES[0], key=b"k") as slot:
        slot.buffer[:] = sent[0]
    sent = [*sent, *sent, b"small", sent[0]]

    assert [takes.take(timeout=0) for _ in sent] == sent
    got = [gets.get(timeout=0) for _ in sent]
    assert [message.payload for message in got] == sent
    assert [bytes(message.view) for message in got] == sent
    taken = []
    while len(taken) < len(sent):
        taken += many.take_many(5, timeout=0)
    assert taken == sent


def test_a_damaged_large_message_is_never_taken(make, path):
    """It is copied while it is checked, and the copy is thrown away; the head stays before it."""
    queue = make(chunk_bytes=4 * MIB)
    consumer = queue.consumer("c")
    queue.put(b"a" * 100_000)
    queue.put(b"b" * 100_000)
    at = words(path)[1].position + 40 + 99_999
    queue.close()
    flip(chunk_files(path)[0], at)

    assert consumer.take(timeout=0) == b"a" * 100_000
    for _ in range(2):
        with pytest.raises(shmq.Corrupt, match="fails its checksum"):
            consumer.take(timeout=0)
    assert consumer.head == 1


def test_threads_that_take_large_messages_share_them(make):
    """Each comes once, to one of them."""
    queue = make(chunk_bytes=4 * MIB)
    consumer = queue.consumer("c")
    sent = [bytes([number]) * 100_000 for number in range(60)]
    for payload in sent:
        queue.put(payload)
    taken = []

    def work() -> None:
        while True:
            try:
                taken.append(consumer.take(timeout=0))
            except shmq.Empty:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(taken) == sent


# ---------------------------------------------------------------- files that go round, and mappings that wait for them
def inodes(path) -> set[int]:
    """Of everything in the folder of chunks."""
    return {file.stat().st_ino for file in Path(path, "chunks").iterdir()}


def go_round(queue, consumer, times: int) -> None:
    """Messages of 1 MiB, each taken before the next one."""
    for number in range(times):
        payload = bytes([number % 251]) * MIB
        queue.put(payload)
        assert consumer.take(timeout=30) == payload


def test_a_queue_that_is_kept_up_with_lives_in_a_few_files(make, path):
    """The same files, still mapped: no page of them is asked for twice."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 60)
    before = inodes(path)
    go_round(queue, consumer, 60)

    assert len(inodes(path) | before) <= len(before) + 1
    assert sum(file.stat().st_size for file in Path(path, "chunks").iterdir()) <= 64 * MIB
    assert any(entry.idle for entry in warm._entries)


def test_a_mapping_that_waits_holds_no_lock_and_one_with_a_view_does(make, path):
    """So a file comes back only when nobody looks at it any more."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    queue.put(b"v" * MIB)
    view = consumer.get(timeout=0).view
    kept = inodes(path)
    go_round(queue, consumer, 60)

    assert bytes(view) == b"v" * MIB
    assert kept & {file.stat().st_ino for file in Path(path, "chunks").glob("retired-*")}
    del view


def test_a_child_that_looks_at_a_chunk_keeps_it_from_being_used_again(make, path):
    """It shares the locks of its parent, so from the fork on the parent gives none of them back."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 30)
    queue.put(b"v" * MIB)
    looked_at = [consumer.get(timeout=0).view]

    def look(say) -> None:
        say("ready")
        os.read(read, 1)
        say(bytes(looked_at[0]) == b"v" * MIB)

    read, write = os.pipe()
    with Child(look) as child:
        assert child.hear(PATIENCE) == "ready"
        looked_at.clear()
        go_round(queue, consumer, 60)
        os.write(write, b"g")
        assert child.hear(PATIENCE) == "True"
        assert child.join() == 0
    os.close(read)
    os.close(write)


def test_a_queue_that_is_closed_keeps_nothing_mapped(path):
    """Neither memory nor a descriptor, or what is deleted would keep its space."""
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        go_round(queue, consumer, 30)
        assert any(entry.idle for entry in warm._entries)
    del queue, consumer
    gc.collect()  # a handle that was closed still has its last chunk

    assert f"{path}/" not in Path("/proc/self/maps").read_text()
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if f"{path}/" in os.path.realpath(fd)]


def test_a_file_that_is_not_wanted_any_more_gives_its_space_back_although_it_is_mapped(make):
    """Idle mappings, of whatever process, keep nothing on the disk."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 60)
    consumer.close()
    warm.settle()
    home = queue._session.home
    with contextlib.ExitStack() as held:
        files = [
            held.enter_context(file.open("rb"))
            for file in Path(queue.path, "chunks").glob("retired-*")
            if any(entry.idle and entry.key[1] == file.stat().st_ino for entry in warm._entries)
        ]
        assert files
        spares.drop(home.chunks)
        assert [os.fstat(file.fileno()).st_blocks for file in files] == [0] * len(files)


# ---------------------------------------------------------------- a used file is all zeros before it serves again
def retired(queue, consumer, path) -> Path:
    """A chunk file that was filled and retired, and that nobody maps any more."""
    go_round(queue, consumer, 30)
    warm.settle()
    return max(Path(path, "chunks").glob("retired-*"), key=lambda file: file.stat().st_ctime_ns)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_used_file_is_zeroed_before_it_serves_again(make, path, mapped):
    """Through the mapping that is still there, or by writing; as far as it was used."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    retired(queue, consumer, path)
    folder = os.open(f"{path}/chunks", os.O_RDONLY)
    here = warm.idle(queue._session.home.queue_id) if mapped else {}
    spare = spares.take(folder, 4096, 64 * MIB, here, spares.Fresh(64, 0))
    try:
        assert spare is not None
        assert (spare.map is not None) == mapped
        assert not any(os.pread(spare.fd, spare.size, 0))
    finally:
        os.close(folder)
        if spare is not None:
            spare.fd.close()


def test_a_file_whose_zeroing_was_cut_short_is_zeroed_whole(make, path):
    """It begins with the header, which tells how far the file was used: without it, everything counts as used."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    file = retired(queue, consumer, path)
    with file.open("r+b") as cut:
        cut.write(bytes(4096))
        cut.seek(-8, os.SEEK_END)
        cut.write(b"leftover")
    for other in set(Path(path, "chunks").glob("retired-*")) - {file}:
        other.unlink()
    folder = os.open(f"{path}/chunks", os.O_RDONLY)
    spare = spares.take(folder, 4096, 64 * MIB, {}, spares.Fresh(64, 0))
    try:
        assert spare is not None
        assert not any(os.pread(spare.fd, spare.size, 0))
    finally:
        os.close(folder)
        if spare is not None:
            spare.fd.close()


def test_a_disk_that_refuses_the_zeros_costs_a_used_file_and_no_message(make, path, monkeypatch):
    """A new file is made instead, and no descriptor stays open."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    retired(queue, consumer, path)

    def refuse(file, fresh) -> None:
        raise OSError(errno.EIO, "refused")

    before = len(os.listdir("/proc/self/fd"))
    folder = os.open(f"{path}/chunks", os.O_RDONLY)
    monkeypatch.setattr(spares, "_zero", refuse)
    assert spares.take(folder, 4096, 64 * MIB, warm.idle(queue._session.home.queue_id), spares.Fresh(64, 0)) is None
    os.close(folder)
    assert len(os.listdir("/proc/self/fd")) == before
    go_round(queue, consumer, 30)


@pytest.mark.parametrize("length", [256 * 1024, 256 * 1024 + 1, MIB - 63, MIB + 255, 3 * MIB + 7])
def test_what_is_written_past_the_cache_is_whole_and_has_its_sum(make, length):
    """Put, and read in every way there is: copied, viewed and checked in place."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    for shift in range(4):
        payload = random.Random(shift).randbytes(length + shift)
        index = queue.put(payload, key=b"k" * shift)
        assert queue[index].payload == payload
        assert bytes(queue[index].view) == payload
        assert consumer.take(timeout=0) == payload


def test_fresh_pages_are_asked_for_in_one_go(make, path):
    """Ahead of the first message already; once every mapping was said to have been asked for before."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(23)  # MADV_POPULATE_WRITE
        except OSError:
            pytest.skip("this kernel cannot do that")
    queue = make(chunk_bytes=64 * MIB)
    queue.put(b"small")
    resident, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            ours = f"{path}/chunks/" in line and "rw-s" in line
        elif ours and line.startswith("Rss:"):
            resident += int(line.split()[1])
    assert resident >= 128  # KiB; the message and what is before it have a few pages
