"""
`Queue.copy` where the file system can share blocks: XFS and btrfs, in an image that root mounts.

Elsewhere the tests are skipped and say why; what copies then is reading and writing (tests/unit/test_copy.py).
"""

from __future__ import annotations

import fcntl
import os

import pytest
from disks import mounted

import shmq
from shmq.storage import files


@pytest.fixture(params=["xfs", "btrfs"])
def disk(request, tmp_path):
    """A file system of that kind."""
    with mounted(request.param, tmp_path) as made:
        yield made


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
            patched.setattr(files.fcntl, "ioctl", told)
            queue.copy(str(disk / "copy"), new_id=new_id)
        assert sorted(cloned) == sorted(sealed)
        assert {name: (disk / "q" / "chunks" / name).read_bytes() for name in sealed} == before
        with shmq.open(str(disk / "copy")) as copy:
            assert [m.payload for m in copy.reader()] == [m.payload for m in queue.reader()]
            copy.put(b"only there")
            assert len(queue) == 3000
