"""
Disks that really are too small: tmpfs and ext4 of a few hundred KiB, with several writers. Root mounts them; without
root the tests are skipped and say so, and a limit on file sizes stands in.
"""

from __future__ import annotations

import collections
import itertools
import os
import resource
import shutil
import subprocess

import pytest
from support import Child, until

import shmq

OPTIONS = {"chunk_bytes": 16384, "retention": shmq.Retention.acked()}
WRITERS = 3


def _mount(tmp_path, *arguments):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid():
        pytest.skip("only root mounts")
    mounted = subprocess.run(["mount", *map(str, arguments), str(disk)], capture_output=True, check=False, timeout=60)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.decode().strip()}")
    return disk


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, tmp_path):
    """A small file system of that kind."""
    if request.param == "tmpfs":
        made = _mount(tmp_path, "-t", "tmpfs", "-o", "size=640k,mode=700", "tmpfs")
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is needed to make a small disk")
        image = tmp_path / "image"
        with open(image, "wb") as file:
            file.truncate(2 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True, timeout=60)
        made = _mount(tmp_path, "-t", "ext4", "-o", "loop", str(image))
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True, timeout=60)


def _fill(say, path, writer):
    """Put until the disk is full; say how many got in."""
    with shmq.open(path, create=False) as queue:
        count = 0
        try:
            while True:
                queue.put(b"%d.%d." % (writer, count) + bytes(700))
                count += 1
        except shmq.DiskFull:
            say(count)


def _read(path):
    with shmq.open(path, create=False) as queue:
        return [message.payload.split(b".")[:2] for message in queue.reader()]


def test_a_full_disk_loses_nothing_of_several_writers(disk):
    """Each gets DiskFull; what had returned is there, once and in order; as chunks are finished, puts go on."""
    path = str(disk / "q")
    with (
        shmq.open(path, options=shmq.Options(**OPTIONS)) as queue,
        queue.consumer("c", ack="explicit", window=64) as consumer,
    ):
        children = [Child(_fill, path, writer) for writer in range(WRITERS)]
        said = [int(child.hear(120)) for child in children]
        assert [child.join(120) for child in children] == [0] * WRITERS
        assert sum(said) > 10
        there = _read(path)
        for writer, count in enumerate(said):
            mine = [int(number) for who, number in there if int(who) == writer]
            assert mine == list(range(count))
        assert len(there) == sum(said)
        while True:  # some room is left in the last chunk
            try:
                queue.put(bytes(700))
                there.append([])
            except shmq.DiskFull:
                break
        for _ in there:
            consumer.get(timeout=0).ack()
        assert queue.put(b"room again" + bytes(700)) == len(there)
        assert consumer.get(timeout=0).payload.startswith(b"room again")


@pytest.fixture
def volume(tmp_path):
    """Six MB in memory: the second chunk of normal growth and the third do not go in together."""
    made = _mount(tmp_path, "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs")
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True, timeout=60)


def _drain(say, path):
    """Another process finishes everything, and stays, with its mappings."""
    with shmq.open(path, create=False) as queue, queue.consumer("c", ack="explicit") as consumer:
        while True:
            try:
                messages = consumer.get_many(500, timeout=120)
            except shmq.ShutDown:
                break
            consumer.ack(*messages)
            if messages[-1].payload == b"last":
                del messages
                say("drained")


def _put_until_full(queue):
    before = queue.next_index
    with pytest.raises(shmq.DiskFull, match="have messages finished"):
        collections.deque(map(queue.put, itertools.repeat(bytes(1000))), 0)
    return queue.next_index - before


def test_a_small_volume_that_was_filled_and_drained_takes_as_much_again(volume):
    """Whoever holds the messages, finishes them later or is another process: what nobody needs is given back first."""
    path = str(volume / "q")
    with shmq.open(path) as queue:
        consumer = queue.consumer("c", ack="explicit", window=8192)
        first = _put_until_full(queue)
        assert first > 5000  # of 6,000 that the volume has room for
        for _ in range(2):
            messages = []
            while messages == [] or consumer.lag > len(messages):
                messages += consumer.get_many(500, timeout=0)
            consumer.ack(*messages)  # all of it at the end: nobody retires on the way
            del messages
            assert _put_until_full(queue) > 5000
        consumer.close()
        with Child(_drain, path) as child:
            for _ in range(2):
                until(lambda: _put(queue, b"last"), 120)
                assert child.hear(120) == "drained"
                assert _put_until_full(queue) > 4000
            queue.shutdown()
            assert child.join(120) == 0


def _put(queue, payload):
    """Whether there was room for it."""
    try:
        queue.put(payload)
    except shmq.DiskFull:
        return False
    return True


def _grow_under_a_limit(say, path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    with shmq.open(path) as queue:
        for _ in range(3000):
            queue.put(bytes(1000))
        say(len(queue))


def test_where_a_chunk_has_no_room_a_smaller_one_does(tmp_path):
    """A limit on file sizes stands in for a disk that has no room for the next size."""
    with Child(_grow_under_a_limit, str(tmp_path / "q")) as child:
        assert child.hear(120) == "3000"


def _stage_too_much(queue):
    with queue.stage() as staged:
        for _ in range(20):
            staged.put_many([bytes(3000)] * 2)
        queue.adopt(staged, dedup=("producer", 1))


def test_a_full_disk_refuses_adoption_as_a_whole(disk):
    """Staged messages that find no room are nowhere; with room, the same batch is adopted."""
    path = str(disk / "q")
    ballast = disk / "ballast"
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"before")
        room = os.statvfs(disk)
        with open(ballast, "wb") as file:
            file.write(bytes(max(room.f_bavail * room.f_frsize - 40_000, 0)))
            file.flush()
            os.fsync(file.fileno())
        with pytest.raises(shmq.DiskFull):
            _stage_too_much(queue)
        assert [message.payload for message in queue.reader()] == [b"before"]
        ballast.unlink()
        os.sync()  # ext4 gives the blocks back when it commits
        with queue.stage() as staged:
            staged.put_many([bytes(3000)] * 20)  # in a larger chunk
            assert queue.adopt(staged, dedup=("producer", 1)) == range(1, 21)


def _limited(say, path):
    with shmq.open(path, options=shmq.Options(**OPTIONS)) as queue:
        queue.put(b"0")
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        try:
            queue.put(bytes(40_000))
        except shmq.DiskFull as refused:
            say("nothing was put" in str(refused))
        say(queue.put(b"1"))
        with queue.stage() as staged:
            try:
                staged.put(bytes(40_000))
            except shmq.DiskFull:
                say("staged nothing")
        say([message.payload for message in queue.reader()])


def test_a_limit_on_file_sizes_needs_no_root(tmp_path):
    """RLIMIT_FSIZE: what needs a larger file is refused, the rest goes on."""
    with Child(_limited, str(tmp_path / "q")) as child:
        assert [child.hear(120) for _ in range(4)] == ["True", "1", "staged nothing", "[b'0', b'1']"]
        assert child.join(120) == 0


def _leave(disk, pages):
    """Fill it but for so many pages."""
    room = os.statvfs(disk)
    with open(disk / "filler", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(room.f_bavail * room.f_frsize - pages * 4096, 1))


def _there(path, **how):
    with shmq.open(path, create=False, **how) as queue:
        return [message.payload for message in queue.reader()]


@pytest.mark.parametrize("handed_over", [False, True])
@pytest.mark.parametrize("before", [[], [b"before"]])
@pytest.mark.parametrize("pages", range(9))
def test_a_set_is_adopted_or_the_disk_is_full_before_anybody_sees_it(disk, pages, before, handed_over):
    """And everybody reads on, whatever room is left; with room again it can be adopted, once."""
    path = str(disk / "q")
    options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        queue.put_many(before)
        staged = queue.stage()
        staged.put(b"set")
        waiting = staged.hand_over(owner="o") if handed_over else staged
        _leave(disk, pages)
        try:
            adopted = queue.adopt(waiting)
        except shmq.DiskFull:
            adopted = None
        there = before if adopted is None else [*before, b"set"]
        assert [message.payload for message in queue.reader()] == there == _there(path, read_only=True)
        assert (len(queue), queue.next_index) == (len(there), len(there))
        assert len(queue.staged_sets("o")) == (handed_over and adopted is None)
        os.unlink(disk / "filler")
        if adopted is None:
            adopted = queue.adopt(waiting)
        assert adopted == range(len(before), len(before) + 1)
        assert queue.put(b"after") == len(before) + 1
    assert _there(path) == [*before, b"set", b"after"]
