"""
Disks that really are too small: tmpfs and ext4 of a few hundred KiB, with several writers. Root mounts them; without
root the tests are skipped and say so, and a limit on file sizes stands in.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess

import pytest
from support import Child

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
    with shmq.open(path, options=shmq.Options(**OPTIONS)) as queue, queue.consumer("c", ack="explicit") as consumer:
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
