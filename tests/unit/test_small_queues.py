"""Anonymous queues take next to nothing: so many fit where a container has little shared memory and few descriptors."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support import Child, hold_until_killed, in_child

import shmq
from shmq._native import layout
from shmq.storage import volatile

KIB = 1024
MANY = """
import json, os, resource, signal, subprocess, sys
import shmq
from shmq import compat
from shmq.storage import volatile
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
if sys.argv[1:] == ["use"]:
    queues = [compat.Queue() for _ in range(1000)]
    for number, queue in enumerate(queues):
        queue.put(number)
    assert [queue.get() for queue in queues] == list(range(1000))
    room = os.statvfs("/dev/shm")
    threads = len(os.listdir("/proc/self/task"))
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    print(json.dumps([len(os.listdir("/proc/self/fd")), threads, used]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
answer = subprocess.run([sys.executable, __file__, "use"], stdout=subprocess.PIPE, text=True)
assert answer.returncode == -signal.SIGKILL, answer.returncode
left = len(volatile.names())
with shmq.open(None):
    print(json.dumps([*json.loads(answer.stdout), left, len(volatile.names())]))
"""


def own(command):
    """To be run with a /dev/shm of its own, of 64 MiB; None where that cannot be."""
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return None
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False)
    return None if tried.returncode else ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


def test_a_thousand_fit_64_mib_and_1024_descriptors_and_one_opening_takes_all_away_when_all_were_killed(tmp_path):
    program = tmp_path / "many.py"
    program.write_text(MANY)
    command = own([sys.executable, str(program)])
    if command is None:
        pytest.skip("no /dev/shm of its own can be mounted here")
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(shmq.__file__).parents[1])
    assert answer.returncode == 0, answer.stderr
    descriptors, threads, used, left, after = json.loads(answer.stdout)
    assert descriptors <= 8
    assert threads == 1
    assert used <= 64 * KIB * 1000 + 4 * KIB * 4
    assert (left, after) == (1000, 1)


def taken_by(queue):
    """Bytes that its files take."""
    files = [file for file in Path(queue.path).rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks * 512 for file in [*files, Path(queue.path).with_suffix(".users")])


def test_what_one_takes_is_promised_but_for_what_it_may_never_need():
    with shmq.open(None) as queue, queue.consumer("g", group=True, window=64, ack="auto") as group:
        assert taken_by(queue) <= 48 * KIB
        queue.put(b"x")
        group.take(0)
        assert taken_by(queue) <= 64 * KIB
        checkpoint = Path(queue.path, "consumers", "g.checkpoint")
        assert checkpoint.stat().st_blocks * 512 == 4 * KIB
        with queue.consumer("alone") as alone:
            alone.take(0)
        queue.rename_consumer("alone", "other")  # which looks at all of a checkpoint
        group.seek(0)  # by way of a snapshot, which gets its room first
        assert checkpoint.stat().st_blocks * 512 == layout.CHECKPOINT_BYTES
        assert group.take(0) == b"x"
        assert queue.consumer("other").lag == 0


def test_a_small_ring_gets_its_side_table_when_something_is_parked():
    """Delayed ones wait there, many of them; all come."""
    with shmq.open(None) as queue, queue.consumer("g", group=True, window=64, ack="explicit") as group:
        ring = Path(queue.path, "consumers", "g.ring")
        assert ring.stat().st_size < 8 * KIB
        for number in range(700):
            queue.put(b"%d" % number, delay=0.2)
        queue.put(b"now")
        taken = [group.take()]
        assert ring.stat().st_size > 32 * KIB
        with queue.consumer("g", group=True, ack="explicit") as second:  # maps it as it is now
            while len(taken) < 701:
                taken += group.take_many(50, timeout=20) if len(taken) % 2 else second.take_many(50, timeout=20)
        assert taken[0] == b"now"
        assert sorted(map(int, taken[1:])) == list(range(700))


def test_a_small_queue_has_so_many_seats_and_no_more_and_each_can_be_in_a_group():
    """Who comes when all are taken is told so; what the last one holds comes back when its process is killed."""
    queue = shmq.open(None)
    group = queue.consumer("g", group=True, window=64, ack="explicit")
    assert os.stat(f"{queue.path}/control.shmq").st_size == layout.CONTROL_BYTES_SMALL
    queue.put_many([b"a", b"b"])

    def sit_last(say):
        taken = take_seats(queue, layout.SMALL_SLOTS - 1)
        held = queue.consumer("g", group=True, ack="explicit")
        assert queue._session.joined().member.owner >> 11 == layout.SMALL_SLOTS - 1
        say(held.get(0).payload.decode())
        hold_until_killed(say)
        held.close()
        os.close(taken)

    def too_many():
        with pytest.raises(shmq.TooMany, match=f"all {layout.SMALL_SLOTS} participant slots"):
            queue.put(b"nobody's")
        return "refused"

    with Child(sit_last) as child:
        assert child.hear() == "a"
        assert child.hear() == "ready"
        assert in_child(too_many) == "refused"
        assert group.take(0) == b"b"
        child.kill()
        assert group.take(20) == b"a"
    queue.close()


def take_seats(queue, end):
    """Hold the locks of all seats behind the first and before that one: a descriptor."""
    fd = os.open(f"{queue.path}/control.shmq", os.O_RDWR)
    everybody = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE + 1, end - 1, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, everybody)
    return fd


def test_a_named_volatile_queue_has_all_seats():
    with shmq.open("shm:small-queues") as queue:
        assert os.stat(f"{queue.path}/control.shmq").st_size == layout.CONTROL_BYTES
        assert volatile.exists("shm:small-queues")


def test_a_small_queue_is_copied_to_a_directory_with_all_that_belongs_to_it(tmp_path):
    """A copy is a queue as any: its groups have tenants for all seats, and a side table."""
    with shmq.open(None) as queue, queue.consumer("g", group=True, window=64, ack="explicit") as group:
        queue.put_many([b"a", b"b", b"c"])
        first, _ = group.get_many(2)
        first.ack()
        queue.copy(tmp_path / "copy")
    with shmq.open(tmp_path / "copy", create=False) as copy:
        assert os.stat(f"{copy.path}/control.shmq").st_size == layout.CONTROL_BYTES
        with copy.consumer("g", group=True, ack="explicit") as group:
            assert group.take_many(9, timeout=5) == [b"b", b"c"]
