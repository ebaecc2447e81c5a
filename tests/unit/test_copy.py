"""Copies of living queues: exact up to one index; and queues that may only be read."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from support import Child, chunk_files, flip, hold_until_killed, words

import shmq
from shmq import cli
from shmq.storage import copying, repairing, target, verify


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


def test_whoever_wants_it_is_told_how_far_a_walk_is(path):
    fill(path)
    walks = [[], [], []]
    with shmq.open(path) as queue:
        queue.copy(f"{path}-copy", progress=lambda *told: walks[0].append(told))
    assert shmq.verify(path, progress=lambda *told: walks[1].append(told))
    assert shmq.repair(path, progress=lambda *told: walks[2].append(told))
    again = walks[2][: len(walks[1])]  # it is verified before it is written
    for doing, walk in zip(
        ("copied", "verified", "verified", "repaired"), [*walks[:2], again, walks[2][len(again) :]], strict=True
    ):
        assert len(walk) > 2
        assert {each[0] for each in walk} == {doing}
        assert walk[-1] == (doing, 1000, 1.0)
        assert walk == sorted(walk)


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
        same = queue._session.home.queue_id == shmq.open(path)._session.home.queue_id
        assert same is not new_id
    assert shmq.verify(copy)
    assert payloads(path)[-1] == b"only here"


@pytest.mark.parametrize("new_id", [False, True])
@pytest.mark.parametrize("write", [shmq.Queue.copy, shmq.Queue.repair])
def test_a_copy_has_its_groups_where_they_stand(path, new_id, write):
    """Whatever of it was on the disk, and of what was put aside, too."""
    fill(path, 8)
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit", max_attempts=7) as member:
        messages = member.get_many(5, 0)
        member.ack(messages[0], messages[2])
        messages[1].nack(delay=0.001)
        messages[3].nack(delay=1000)
        write(queue, f"{path}-copy", **({"new_id": new_id} if write is shmq.Queue.copy else {}))
        messages[4].ack()
    with shmq.open(f"{path}-copy") as copy, copy.consumer("g", group=True, ack="explicit") as member:
        assert member.options["max_attempts"] == 7
        assert copy.recovery.moved == {}
        assert sorted(message.index for message in member.get_many(10, 0)) == [1, 3, 4, 5, 6, 7]


def test_a_copy_has_a_group_in_order_where_it_stands(path):
    with shmq.open(path) as queue, queue.consumer("g", group=True, ack="explicit", ordered_by="key") as member:
        for number in range(20):
            queue.put(b"%d" % number, key=b"%d" % (number % 4))
        held = [member.get(0) for _ in range(4)]
        member.ack(held[0], held[1])
        held[2].nack(delay=1000)
        queue.copy(f"{path}-copy")
    with shmq.open(f"{path}-copy") as copy, copy.consumer("g", group=True) as member:
        assert copy.recovery.moved == {}
        found = []
        while len(found) < 18:
            message = member.get(0)
            found.append(message.index)
            message.ack()
        assert sorted(found) == list(range(2, 20))
        assert [index for index in found if index % 4 == 2] == [2, 6, 10, 14, 18]


@pytest.mark.parametrize("durability", ["process", "sync"])
@pytest.mark.parametrize("write", [shmq.Queue.copy, shmq.Queue.repair])
def test_a_copy_has_its_names_where_they_stand(path, write, durability):
    durable = getattr(shmq.Durability, durability.upper())
    with shmq.open(path, options=shmq.Options(durability=durable)) as queue:
        queue.put_many(numbers(8))
        auto, explicit = queue.consumer("auto"), queue.consumer("explicit", ack="explicit")
        auto.take_many(3, 0)
        explicit.get_many(5, 0)[0].ack()
        write(queue, f"{path}-copy")
        auto.take(0)
    with shmq.open(f"{path}-copy") as copy:
        assert copy.recovery.moved == {}
        assert copy.consumer("auto").get(0).index == 3
        message = copy.consumer("explicit").get(0)
        assert (message.index, message.attempts) == (1, 1)  # attempts are counted anew


@pytest.mark.parametrize("write", [shmq.Queue.copy, shmq.Queue.repair])
def test_what_was_dropped_is_not_in_a_copy(path, write):
    with shmq.open(path, options=shmq.Options(max_messages=5, full="drop_oldest")) as queue:
        queue.consumer("old").close()
        for number in numbers(12):
            queue.put(number)
        write(queue, f"{path}-copy")
    with shmq.open(f"{path}-copy") as copy:
        for how in ({"name": "old"}, {"name": "new"}, {"name": "group", "group": True}):
            assert copy.consumer(**how).take_many(100, 0) == numbers(12)[7:]


# ---------------------------------------------------------------- beside retirement
def retiring(make, monkeypatch, module, function, times=1000):
    """A queue of four chunks in which all there was is retired before each call of that function but the first."""
    queue = make(retention=shmq.Retention.bytes(65536))
    real, calls = getattr(module, function), []

    def put_first(*arguments, **options):
        calls.append(function)
        for _ in range(0 if len(calls) == 1 or len(calls) > times else 80):
            queue.put_many([bytes(100)] * 10)
        return real(*arguments, **options)

    for _ in range(80):
        queue.put_many([bytes(100)] * 10)
    monkeypatch.setattr(module, function, put_first)
    return queue


def test_what_is_retired_while_it_is_copied_is_in_the_copy(make, path, monkeypatch):
    queue = retiring(make, monkeypatch, copying, "_copy_chunk", times=6)
    first = queue.first_index
    done = queue.copy(f"{path}-copy")
    assert done.first_index == first < queue.first_index
    assert shmq.verify(f"{path}-copy")
    assert len(payloads(f"{path}-copy", read_only=True)) == done.messages == done.next_index - first


def test_a_copy_ends_though_others_put_faster_than_it_copies(make, path, monkeypatch):
    queue = retiring(make, monkeypatch, copying, "_copy_chunk")
    end = queue.next_index
    done = queue.copy(f"{path}-copy")
    assert end <= done.next_index < queue.next_index
    assert shmq.verify(f"{path}-copy")
    assert len(payloads(f"{path}-copy", read_only=True)) == done.messages == done.next_index - done.first_index
    with shmq.open(f"{path}-copy") as copy:
        assert (copy.recovery.kept, copy.recovery.aside) == (done.messages, ())
        copy.put(b"goes on")


def test_what_is_adopted_while_it_is_copied_is_in_the_copy_whole_or_not_at_all(make, path, monkeypatch):
    queue = make(retention=shmq.Retention.forever())
    queue.put(b"before")
    real = copying._copy_chunk

    def adopted_first(chunk, *arguments, **options):
        with queue.stage() as staged:
            staged.put_many([bytes(100)] * 50)
            for _ in range(10):
                staged.put_many([bytes(1000)] * 10)
            queue.adopt(staged)
        queue.put(b"behind")
        real(chunk, *arguments, **options)

    monkeypatch.setattr(copying, "_copy_chunk", adopted_first)
    for copy in (f"{path}-one", f"{path}-two"):
        done = queue.copy(copy)
        assert shmq.verify(copy)
        found = payloads(copy)
        assert len(found) == done.messages
        assert found.count(bytes(100)) * 2 == found.count(bytes(1000))
        assert found.count(bytes(100)) % 50 == 0


def test_what_is_retired_while_it_is_repaired_is_not_lost(make, path, monkeypatch):
    queue = retiring(make, monkeypatch, repairing, "_write_chunk", times=6)
    done = queue.repair(f"{path}-copy")
    assert (done.lost, done.problems) == (0, ())
    assert shmq.verify(f"{path}-copy")


def test_a_copy_that_may_hold_nothing_back_begins_anew_until_it_is_whole_or_says_so(make, path, monkeypatch):
    retiring(make, monkeypatch, copying, "_copy_chunk", times=6)
    with shmq.open(path, read_only=True) as looking:
        done = looking.copy(f"{path}-copy")
        assert shmq.verify(f"{path}-copy")
        assert len(payloads(f"{path}-copy", read_only=True)) == done.messages > 0
    monkeypatch.undo()
    os.rename(path, f"{path}-before")
    retiring(make, monkeypatch, copying, "_copy_chunk")
    with shmq.open(path, read_only=True) as looking, pytest.raises(shmq.Gone, match="retired meanwhile"):
        looking.copy(f"{path}-other")
    assert not os.path.exists(f"{path}-other")


@pytest.mark.parametrize("function", ["live", "_verify_chunk"])
def test_what_is_retired_while_it_is_verified_is_no_damage(make, monkeypatch, function):
    queue = retiring(make, monkeypatch, verify, function, times=10)
    assert queue.verify().problems == ()


def test_what_is_retired_between_two_looks_of_a_verify_is_no_damage(make, monkeypatch):
    """Between which chunk is the first, and which there are."""
    queue = make(retention=shmq.Retention.bytes(65536))
    listed, real = [], verify.first_live

    def retired_behind(home):
        first = real(home)
        listed.append(first)
        for _ in range(80 if len(listed) < 5 else 0):
            queue.put_many([bytes(100)] * 10)
        return first

    monkeypatch.setattr(verify, "first_live", retired_behind)
    assert queue.verify().problems == ()
    assert listed[0] < listed[3]


def test_a_chunk_that_is_used_again_while_it_is_verified_is_no_damage(make, monkeypatch):
    queue = make(retention=shmq.Retention.bytes(65536))
    real = verify._verify_chunk

    def zeroed(home, sequence, base, following, known, report):
        for _ in range(80):
            queue.put_many([bytes(100)] * 10)
        report.add("chunks/x", 0, "a hole")
        return real(home, sequence, base, following, known, report)

    monkeypatch.setattr(verify, "_verify_chunk", zeroed)
    queue.put(b"x")
    assert queue.verify().problems == ()


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


def test_it_goes_on_behind_what_the_dead_had_claimed(path, tmp_path):
    """Behind a claim that was open then, so that nobody has met it since; it ended the copy."""
    with shmq.open(path) as queue:
        slot = queue.reserve(8)

        def claim(say):
            claimed = shmq.open(path).reserve(8)
            hold_until_killed(say)
            claimed.abort()

        with Child(claim) as child:
            child.hear()
            child.kill()
        index = queue.put(b"behind")
        slot.abort()
        copied = queue.copy(tmp_path / "copy")
        assert (copied.messages, copied.next_index) == (1, index + 1)


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


def finish_the_rest(member, count):
    """Acknowledge so many that may be had."""
    while count:
        messages = member.get_many(8, 10)
        member.ack(*messages)
        count -= len(messages)


@pytest.mark.parametrize("how", ["held", "nacked", "delayed", "waits for its key"])
@pytest.mark.parametrize("write", [shmq.Queue.copy, lambda queue, target: shutil.copytree(queue.path, target)])
def test_one_message_left_behind_of_a_group_by_key_forgets_no_acknowledgement(path, write, how):
    """However far above it they are; and its own key goes on behind it."""
    with (
        shmq.open(path, durability="sync", chunk_bytes=16384) as queue,
        queue.consumer("g", group=True, ack="explicit", window=64, ordered_by="key") as member,
    ):
        queue.put(b"first", key=b"k", delay=1000 if how == "delayed" else None)
        first = None if how == "delayed" else member.get(0)
        queue.put_many([b"x"] * 300, keys=[b"%d" % at for at in range(300)])
        if how == "nacked":
            first.nack(delay=1000)
        if how == "waits for its key":
            queue.put(b"second", key=b"k")
        finish_the_rest(member, 300)
        write(queue, f"{path}-copy")
    with shmq.open(f"{path}-copy") as copy, copy.consumer("g", group=True) as member:
        assert copy.consumers()["g"].lag == 1 + (how == "waits for its key")
        copy.put(b"last", key=b"k")
        found = []
        while messages := takes(member):
            found += [message.payload for message in messages]
            member.ack(*messages)
    behind = [b"second", b"last"] if how == "waits for its key" else [b"last"]
    assert found == ([] if how == "delayed" else [b"first", *behind])


def takes(member):
    try:
        return member.get_many(100, 0)
    except shmq.Empty:
        return []


def test_a_copy_that_cannot_be_begun_leaves_nothing(path, monkeypatch):
    fill(path, 3)

    def refuse(*_):
        raise OSError(28, "no room")

    monkeypatch.setattr(target.files, "make_directory", refuse)
    with shmq.open(path, create=False) as queue, pytest.raises(OSError, match="no room"):
        queue.copy(f"{path}-copy")
    above, name = os.path.split(path)
    assert [each for each in os.listdir(above) if each.startswith(name) and each != name] == []
