"""A disk that is full: what all names have finished makes room, whoever has it mapped, and whoever administers."""

import contextlib
import os
import threading
import time

import pytest
from support import Child

import shmq
from shmq.cli import main
from shmq.storage import dedup, spares, staging
from tests.disks import in_memory


@pytest.fixture
def full(tmp_path):
    """A queue on a disk of 1 MiB without room for one chunk more, of which the name "all" has had nothing yet."""
    with in_memory(tmp_path, 1 << 20) as disk, shmq.open(disk / "q", chunk_bytes=16384) as queue:
        queue.consumer("all", group=True, ack="explicit", window=64).close()
        while True:
            try:
                queue.put(bytes(1000), timeout=0)
            except shmq.DiskFull:
                break
        yield queue


def drain(queue):
    member = queue.consumer("all", group=True, ack="explicit")
    while member.lag:
        for message in member.get_many(64, timeout=0):
            message.ack()
    return member


def test_found_what_another_process_had_left_stayed_locked_where_it_could_not_retire(full):
    """Every put was DiskFull for ever: its mappings were let go of only where the administrative lock was free."""

    def work(say):
        with shmq.open(full.path) as queue, queue.consumer("all", group=True, ack="explicit"):
            say("there")
            os.read(go, 1)
            with drain(queue):
                say("done")
                time.sleep(60)

    go, tell = os.pipe()
    child = Child(work)
    try:
        assert child.hear() == "there"
        with full._session.home.admin():
            os.write(tell, b"!")
            assert child.hear() == "done"
        for _ in range(len(full) * 3 // 4):
            full.put(bytes(1000), timeout=0)
    finally:
        child.kill()


def test_found_a_put_on_a_full_disk_did_not_wait_for_who_administered_in_that_moment(full):
    """DiskFull, although everything was finished; the next put found the room."""
    busy, put = threading.Event(), threading.Event()

    def administer():
        with full._session.home.admin():
            busy.set()
            put.wait(30)
            time.sleep(0.05)

    thread = threading.Thread(target=administer)
    thread.start()
    busy.wait(30)
    try:
        drain(full).close()
        put.set()
        full.put(b"there is room", timeout=0)
    finally:
        put.set()
        thread.join()


def test_found_who_slept_in_a_group_had_what_was_retired_mapped(full):
    """Every put was DiskFull for ever, though all was finished: what came back had been looked up, and was mapped."""

    def retire(_):
        with shmq.open(full.path) as queue:
            queue.purge()

    with full.consumer("all", group=True, ack="explicit") as member:
        first = member.get(timeout=0)
        while member.lag > 1:
            for message in member.get_many(64, timeout=0):
                message.ack()
        first.nack()
        del first, message
        member.get(timeout=0).ack()  # the first one, again
        assert Child(retire).join() == 0
        with pytest.raises(shmq.Empty):
            member.get(timeout=0.01)
        spares.drop(full._session.home.chunks)
        assert not [name for name in os.listdir(f"{full.path}/chunks") if name.startswith("retired-")]


def test_found_a_put_with_dedup_was_there_and_said_that_the_disk_was_full(tmp_path):
    """What it notes for the next process, when it is there already, had no page; so much for "nothing was put"."""
    with (
        in_memory(tmp_path, 1 << 20) as disk,
        shmq.open(disk / "q", chunk_bytes=16384, retention=shmq.Retention.forever()) as queue,
    ):
        queue.put(b"first", dedup=("p", 0))
        while queue._producer._tail.sequence <= dedup.NOTE_CHUNKS + 1:
            queue.put(bytes(1000))
        with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        end = queue.next_index
        assert queue.put_many([b"a", b"b"], dedup=("p", 1), timeout=0) == range(end, end + 2)
        assert queue.next_index == end + 2


def free(disk):
    at = os.statvfs(disk)
    return at.f_bavail * at.f_frsize


@pytest.mark.parametrize("pages", range(4))
def test_found_a_rename_that_the_disk_refused_kept_a_ring_for_nobody(tmp_path, pages):
    with in_memory(tmp_path, 1 << 20) as disk, shmq.open(disk / "q", chunk_bytes=16384) as queue:
        before = free(disk)
        queue.consumer("g", group=True, ack="explicit", window=64).close()
        wanted = before - free(disk) - 4096 * (4 - pages)
        with open(disk / "filler", "wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, free(disk) - wanted)
            left = free(disk)
            with pytest.raises(shmq.DiskFull):
                queue.rename_consumer("g", "h")
        assert free(disk) == left
        assert set(queue.consumers()) == {"g"}


@pytest.mark.parametrize(("pages", "chunk_bytes"), [(17, 256 << 10), (25, 64 << 20), (8, 16384)])
def test_found_the_one_chunk_that_all_had_finished_kept_a_full_disk_full(tmp_path, pages, chunk_bytes):
    """The last chunk is never given back, and a smaller one than 64 KiB was not tried behind it: full for ever."""
    with (
        in_memory(tmp_path, 1 << 20) as disk,
        shmq.open(disk / "q", chunk_bytes=chunk_bytes) as queue,
        queue.consumer("a") as consumer,
        open(disk / "filler", "wb") as file,
    ):
        os.posix_fallocate(file.fileno(), 0, free(disk) - 4096 * pages)
        for _ in range(3):
            put = 0
            with contextlib.suppress(shmq.DiskFull):
                while True:
                    queue.put(bytes(1000))
                    put += 1
            assert put > 2
            while consumer.lag:
                consumer.take()


def test_found_a_full_disk_stayed_full_after_many_nacks(full):
    """What this process had looked at and others have retired stayed mapped here, and its space with it."""
    with full.consumer("all", group=True, ack="explicit") as member:
        for _ in range(2):
            for message in [member.get(timeout=0) for _ in range(64)]:
                message.nack()
        while member.lag:
            for message in member.get_many(64, timeout=0):
                assert full[message.index].payload == bytes(1000)
                message.ack()
        for _ in range(300):
            full.put(bytes(1000), timeout=0)


def test_found_the_first_put_on_a_full_disk_of_what_came_back_was_refused(tmp_path):
    """All was finished, and unlinked; but mapped by whoever had looked at it, and so its space was not given back."""
    with (
        in_memory(tmp_path, 4 << 20) as disk,
        shmq.open(disk / "q") as queue,
        queue.consumer("c", ack="explicit", window=64) as consumer,
    ):
        with contextlib.suppress(shmq.DiskFull):
            while True:
                queue.put(bytes(3000), timeout=0)
        with contextlib.suppress(shmq.Empty):
            while True:
                message = consumer.get(0)
                message.nack() if message.index % 10 == 0 and message.attempts == 1 else message.ack()
        del message
        assert queue.put(b"x", timeout=0) > 0


@pytest.mark.parametrize("there", [False, True])
def test_found_a_queue_that_found_no_room_left_its_folders_behind(tmp_path, there):
    """And said that it could still be read, and that finished messages give room; a directory that was there stays."""
    with in_memory(tmp_path, 1 << 16) as disk:
        path = disk / "q"
        if there:
            path.mkdir()
        with pytest.raises(shmq.DiskFull) as caught:
            shmq.open(path)

        room = os.statvfs(disk)
        free = f"{room.f_bavail * room.f_frsize:,} bytes free"
        assert str(caught.value) == (
            f"cannot create a queue in {path}: No space left on device ({free}); nothing was made; make room on that "
            "disk"
        )
        assert [(above, below) for above, _, below in os.walk(disk)] == [(str(disk), [])] + [(str(path), [])] * there


def test_what_lies_in_the_folders_of_a_queue_that_found_no_room_stays(tmp_path, monkeypatch):
    """Whatever came there meanwhile is not ours, and its folder with it."""

    def refuse(*_, **__):
        (path / "chunks" / "somebody's").touch()
        raise OSError(28, os.strerror(28))

    path = tmp_path / "q"
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(shmq.DiskFull):
        shmq.open(path)

    assert os.listdir(path / "chunks") == ["somebody's"]


@pytest.mark.parametrize("more", [[], ["--dedup", "who:1"]])
def test_found_the_command_said_thirteen_times_that_nothing_was_put(tmp_path, capfdbinary, monkeypatch, more):
    """Of 4,096 lines halves are tried, and then their halves, down to the one that fits no more; it is said once."""
    with in_memory(tmp_path, 1 << 20) as disk:
        shmq.open(disk / "q", chunk_bytes=16384).close()
        with open(tmp_path / "lines", "wb+") as lines, monkeypatch.context() as patched:
            lines.write(b"%01023d\n" % 7 * 4096)
            lines.seek(0)
            patched.setattr("sys.stdin", lines)
            assert main(["put", f"{disk}/q", *more]) == 1
        said = capfdbinary.readouterr().err.decode()

        assert said.count("nothing was put") == said.count("\n") == 1
        assert said.startswith("shmq: cannot put into ")


def test_found_a_stage_without_room_was_an_error_of_ours(full, monkeypatch):
    """It closed what it had not made yet: AttributeError, in place of DiskFull."""

    def refuse(_home):
        raise shmq.DiskFull("no room for a folder")

    monkeypatch.setattr(staging, "new_set", refuse)
    with pytest.raises(shmq.DiskFull, match="no room for a folder"):
        full.stage()
