"""Copies of living queues: exact up to one index; and queues that may only be read."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from support import Child, chunk_files, flip, words

import shmq
from shmq import cli


def fill(path, count=1000):
    options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for number in range(count):
            queue.put(b"%d" % number, key=b"k", headers={"n": number} if number % 100 == 0 else None)


def payloads(path, **flags):
    with shmq.open(path, create=False, **flags) as queue:
        return [message.payload for message in queue.reader()]


def numbers(count):
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("new_id", [False, True])
def test_a_copy_has_everything_and_goes_on_by_itself(path, new_id):
    fill(path)
    copy = f"{path}-copy"
    with shmq.open(path) as queue:
        with queue.consumer("c") as consumer:
            consumer.take_many(10)
        with queue.stage() as staged:
            staged.put(b"staged")
            queue.adopt(staged, dedup=("p", 7))
        done = queue.copy(copy, new_id=new_id)
        assert (done.path, done.messages, done.first_index, done.next_index) == (copy, 1001, 0, 1001)
        assert queue.put(b"only here") == 1001
    assert shmq.verify(copy)
    assert payloads(copy, read_only=True) == [*numbers(1000), b"staged"]
    with shmq.open(copy) as queue:
        index = queue.put(b"only there")
        assert index > 1001  # nobody gave it in the other one, nor will in the same epoch
        assert queue.recovery.kept == 1001
        assert [queue[at].payload for at in (0, 999, 1000, index)] == [b"0", b"999", b"staged", b"only there"]
        assert queue[100].headers == {"n": 100}
        assert queue.adopted("p") == (7, range(1000, 1001))
        with queue.consumer("c") as consumer:
            assert consumer.take(0) == b"10"
        same = queue._home.queue_id == shmq.open(path)._home.queue_id
        assert same is not new_id
    assert shmq.verify(copy)
    assert payloads(path)[-1] == b"only here"


@pytest.mark.parametrize("new_id", [False, True])
def test_a_copy_has_its_groups_as_far_as_the_disk_knows_them(path, new_id):
    """A group whose ring and options were left behind could not be opened in the copy."""
    fill(path, 8)
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit", max_attempts=7) as member:
        messages = member.get_many(5, 0)
        member.ack(messages[0], messages[2])
        queue.sync()
        queue.copy(f"{path}-copy", new_id=new_id)
    with shmq.open(f"{path}-copy") as copy, copy.consumer("g", group=True, ack="explicit") as member:
        assert member.options["max_attempts"] == 7
        assert [message.index for message in member.get_many(10, 0)] == [1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("ending", ["ring", "group"])
def test_a_damaged_group_is_left_out_of_a_copy(path, ending):
    """Everything else is there."""
    fill(path, 8)
    with shmq.open(path) as queue:
        queue.consumer("g", group=True, ack="explicit").close()
        queue.consumer("c").close()
        os.truncate(f"{path}/consumers/g.{ending}", 100 if ending == "ring" else 0)
        queue.copy(f"{path}-copy")
    with shmq.open(f"{path}-copy") as copy:
        assert set(copy.consumers()) <= {"c", "g"}
        assert "c" in copy.consumers()
        assert len(copy) == 8


def test_beside_producers_it_is_a_beginning_of_what_was_put(make, path, tmp_path):
    queue = make(retention=shmq.Retention.forever())

    def produce(say):
        with shmq.open(path) as mine:
            say("here")
            for number in range(20_000):  # a disk that copies slowly must not have ever more to copy
                mine.put_many([b"%d.%d" % (number, each) for each in range(3)])
            signal.pause()

    with Child(produce) as child:
        child.hear()
        copies = [queue.copy(str(tmp_path / f"copy{number}")) for number in range(8)]
        child.kill()
    everything = payloads(path)
    for done in copies:
        found = payloads(done.path, read_only=True)
        assert found == everything[: len(found)]
        assert len(found) == done.messages
        assert len(found) % 3 == 0
        assert shmq.verify(done.path)


def test_it_ends_where_somebody_is_about_to_commit(path):
    fill(path, 10)
    copy = f"{path}-copy"
    with shmq.open(path) as queue, queue.reserve(3) as slot:
        queue.put(b"behind")
        assert queue.copy(copy).next_index == 10
        slot.buffer[:] = b"abc"
    assert payloads(copy) == numbers(10)


def test_an_empty_queue_and_a_damaged_one(path):
    shmq.open(path).close()
    with shmq.open(path) as queue:
        queue.copy(f"{path}-empty")
    assert payloads(f"{path}-empty") == []
    shutil.rmtree(path)
    fill(path, 10)
    flip(chunk_files(path)[0], words(path)[3].position + 40)
    with shmq.open(path) as queue:
        before = os.listdir(os.path.dirname(path))
        with pytest.raises(shmq.Corrupt, match="nothing was written"):
            queue.copy(f"{path}-copy")
        assert sorted(os.listdir(os.path.dirname(path))) == sorted(before)
        with pytest.raises(shmq.Unsafe, match="something is there"):
            queue.copy(path)
        with pytest.raises(shmq.NotFound):
            queue.copy(f"{path}/no/where")


def test_the_verb(path, capsys):
    fill(path, 10)
    assert cli.main(["copy", path, f"{path}-1"]) == 0
    assert "10 messages, up to index 10" in capsys.readouterr().out
    assert cli.main(["copy", path, f"{path}-2", "--new-id", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 10
    assert cli.main(["copy", path, f"{path}-2"]) == 1
    assert payloads(f"{path}-2") == numbers(10)


# ---------------------------------------------------------------- where nothing may be written
READ = """
import sys, shmq
with shmq.open(sys.argv[1], read_only=True) as queue:
    print(len(list(queue.reader())), queue[5].payload, queue.verify().messages, queue.stats().next_index)
try:
    shmq.open(sys.argv[1], create=False)
except (OSError, shmq.ShmqError) as problem:
    print("refused")
"""


def test_a_queue_on_a_read_only_mount_can_be_read(path):
    fill(path)
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", path, sys.executable, READ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) here")
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no mounts of our own here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == ["1000 b'5' 1000 1000", "refused"], done.stderr


def test_a_queue_without_write_permission_can_be_read(path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    fill(path)
    folders = [path, f"{path}/chunks", f"{path}/consumers"]
    for folder in folders:
        os.chmod(folder, 0o500)
    for file in [f"{path}/control.shmq", f"{path}/queue.shmq", *chunk_files(path)]:
        os.chmod(file, 0o400)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout.splitlines() == ["1000 b'5' 1000 1000", "refused"], done.stderr
    finally:
        for folder in folders:
            os.chmod(folder, 0o700)
