"""
`Queue.copy` where the file system can share blocks: XFS and btrfs, in an image that root mounts.

Elsewhere the tests are skipped and say why; what copies then is `copy_file_range` (tests/unit/test_copy.py).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess

import pytest

import shmq
from shmq.storage import copying

IMAGE_BYTES = 320 << 20
"""Of a sparse file; mkfs.xfs makes nothing smaller than 300 MiB."""


@pytest.fixture(params=["xfs", "btrfs"])
def disk(request, tmp_path):
    """A file system of that kind."""
    if os.geteuid():
        pytest.skip("only root mounts")
    if shutil.which(f"mkfs.{request.param}") is None:
        pytest.skip(f"mkfs.{request.param} is needed to make a file system that can share blocks")
    image, made = tmp_path / "image", tmp_path / "disk"
    made.mkdir()
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    done = subprocess.run([f"mkfs.{request.param}", "-q", str(image)], capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"mkfs.{request.param} refuses: {done.stderr.decode().strip()[-200:]}")
    command = ["mount", "-t", request.param, "-o", "loop", str(image), str(made)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"cannot mount {request.param} here: {done.stderr.decode().strip()}")
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True, timeout=120)


@pytest.mark.parametrize("new_id", [False, True])
def test_sealed_chunks_are_cloned_and_the_rest_is_copied(disk, new_id, monkeypatch):
    """The clone has its own bytes from then on: a copy of an id of its own changes none of the queue's."""
    cloned, real = [], fcntl.ioctl

    def told(target, request, source):
        answer = real(target, request, source)
        cloned.append(os.path.basename(os.readlink(f"/proc/self/fd/{source}")))
        return answer

    with shmq.open(str(disk / "q"), options=shmq.Options(chunk_bytes=1 << 20)) as queue:
        for number in range(3000):
            queue.put(b"%04d" % number + bytes(1000))
        sealed = sorted(os.listdir(disk / "q" / "chunks"), key=lambda name: name.split("-")[1])[:-1]
        assert len(sealed) >= 2
        before = {name: (disk / "q" / "chunks" / name).read_bytes() for name in sealed}
        with monkeypatch.context() as patched:
            patched.setattr(copying.fcntl, "ioctl", told)
            queue.copy(str(disk / "copy"), new_id=new_id)
        assert sorted(cloned) == sorted(sealed)
        assert {name: (disk / "q" / "chunks" / name).read_bytes() for name in sealed} == before
        with shmq.open(str(disk / "copy")) as copy:
            assert [m.payload for m in copy.reader()] == [m.payload for m in queue.reader()]
            copy.put(b"only there")
            assert len(queue) == 3000
