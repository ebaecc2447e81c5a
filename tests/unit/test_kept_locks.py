"""Locks without descriptors: what keeps them, who does not inherit them, and what else may be scarce."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time

import pytest
from support import DEADLINE, PAD, Child, hold_until_killed, in_child, kept_locks, start, states

import shmq
from shmq import _native

LONG = int(5 * DEADLINE)


def forking_first(keep, children):
    """As *keep*, but that somebody forks between the lock and the mapping that keeps it."""

    def forked(self):
        children.append(start(time.sleep, LONG))
        keep(self)

    return forked


def open_beside_forks(say, path):
    """Have a seat, a claim, a name, a place in a group and a pin, with a fork in the middle of each; tell of these."""
    children = []
    for kind in (_native.Member, _native.Lock):
        kind.keep = forking_first(kind.keep, children)
    queue = shmq.open(path)
    held = [queue.consumer("alone"), queue.consumer("g", group=True), queue.reader(pin="mine"), queue.reserve(8)]
    say(" ".join(map(str, children)))
    hold_until_killed(say)
    held.clear()


@pytest.mark.parametrize("volatile", [False, True])
def test_a_child_that_is_forked_between_a_lock_and_its_mapping_keeps_nothing(path, volatile):
    """Its parent is killed: seat, claim, name and pin are free at once, though the children live."""
    path = "shm:kept-locks" if volatile else path
    with shmq.open(path) as queue:
        queue.put(b"first")
        with Child(open_beside_forks, path) as parent:
            children = [int(pid) for pid in parent.hear().split()]
            try:
                assert len(children) >= 4
                assert parent.hear() == "ready"
                parent.kill()
                queue.put(b"behind")
                assert queue.stats().participants == 1
                assert queue.consumer("alone").take_many(9, timeout=DEADLINE) == [b"first", b"behind"]
                assert states(queue.path)[1] == PAD
                queue.reader(pin="mine").close()
            finally:
                for pid in children:
                    os.kill(pid, 9)


def test_a_child_has_no_lock_of_its_parent_and_frees_none(queue):
    """Handles that it inherited are closed in it, where other things may be mapped by now."""
    held = [queue.consumer("a"), queue.consumer("g", group=True), queue.reader(pin="p")]
    mine = kept_locks(queue.path)
    assert len(mine) == 4

    def close_all():
        found = kept_locks(queue.path)
        for each in held:
            each.close()
        queue.close()
        return found

    assert in_child(close_all) == "[]"
    assert kept_locks(queue.path) == mine

    def is_busy():
        with pytest.raises(shmq.Busy):
            shmq.open(queue.path).consumer("a")
        return "busy"

    assert in_child(is_busy) == "busy"
    held.clear()


def test_more_queues_than_descriptors(tmp_path):
    """So many volatile ones, put and taken, with so few descriptors; and in directories as many as there are."""

    def work():
        most = max(map(int, os.listdir("/proc/self/fd"))) + 60
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        queues = [shmq.open(None, chunk_bytes=16384) for _ in range(200)]
        groups = [queue.consumer("g", group=True, window=64) for queue in queues]
        for number, queue in enumerate(queues):
            queue.put(b"%d" % number)
        taken = [int(group.take(0)) for group in groups]
        kept = []
        with pytest.raises(OSError, match="Too many open files"):
            kept.extend(shmq.open(f"{tmp_path}/{number}") for number in range(most))
        assert queues[0].put(b"more") == 1
        assert groups[0].take(0) == b"more"
        return taken == list(range(200))

    assert in_child(work) == "True"


def test_with_no_descriptor_left_nobody_is_taken_for_dead(queue):
    """A question that cannot be asked is no answer; when it can, the dead are found."""
    with Child(claim_and_stay, queue) as owner:
        assert owner.hear() == "ready"
        member = queue._session.joined().member
        (slot,) = [slot for slot, *_ in queue._session.joined().control.participants() if slot != member.owner >> 11]
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        owner.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
        try:
            assert member.slot_locked(slot)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        assert not member.slot_locked(slot)


def claim_and_stay(say, queue):
    slot = queue.reserve(8)
    hold_until_killed(say)
    slot.abort()


def test_another_file_of_that_name_is_not_asked(queue, path):
    """Locks on it say nothing about who sits here: they are of another queue."""
    member = queue._session.joined().member
    assert member.slot_locked(0)
    assert not member.slot_locked(7)
    os.rename(f"{path}/control.shmq", f"{path}/moved")
    shutil.copyfile(f"{path}/moved", f"{path}/control.shmq")
    assert member.slot_locked(7)  # as of everybody, where it cannot be known
    os.rename(f"{path}/moved", f"{path}/control.shmq")
    assert not member.slot_locked(7)


def test_a_queue_whose_directory_is_moved_goes_on(queue, path, tmp_path):
    """Its descriptor leads there: chunks, names and seats."""
    queue.put(b"0")
    os.rename(path, tmp_path / "elsewhere")
    consumer = queue.consumer("c")
    queue.put_many([bytes(60_000)] * 20)
    assert [len(consumer.take(timeout=0)) for _ in range(21)] == [1] + [60_000] * 20
    assert not queue._session.joined().member.slot_locked(7)
    os.rename(tmp_path / "elsewhere", path)


@pytest.fixture
def overlay(tmp_path):
    """A folder of an overlay over others, where one may be mounted here; elsewhere the test is skipped."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    below = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    command = ["mount", "-t", "overlay", "overlay", "-o", below, f"{tmp_path}/merged"]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    yield tmp_path / "merged"
    subprocess.run(["umount", "-l", f"{tmp_path}/merged"], check=True)


def test_where_a_mapping_keeps_no_lock_descriptors_do(overlay):
    """Seat, name, pin and chunks: as everywhere, but for the price. Seats are asked about through one, too."""
    path = str(overlay / "q")
    if in_child(lambda: _kept_by_mappings(path)) == "True":
        pytest.skip("this overlay maps what was opened")
    with shmq.open(path) as queue:
        with Child(open_and_stay, path) as owner:
            owner.hear()
            with pytest.raises(shmq.Busy):
                queue.consumer("c")
            assert queue.stats().participants == 2
            owner.kill()
            assert queue.stats().participants == 1
            queue.consumer("c").close()
        held = queue.consumer("c"), queue.reader(pin=True)
        assert kept_locks(path) == []
        names = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")
        ]
        assert sum(name.endswith("/control.shmq") for name in names) == 2
        assert sum("/consumers/" in name for name in names) >= 2
        assert len(held) == 2


def _kept_by_mappings(path):
    with shmq.open(path):
        return bool(kept_locks(path))


def open_and_stay(say, path):
    queue = shmq.open(path)
    consumer = queue.consumer("c")
    hold_until_killed(say)
    consumer.close()
