"""Acknowledgements of a SYNC queue: on the disk when they return, and many for one group commit."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from support import DEADLINE, Child, make_unclean

import shmq
from shmq import _native
from shmq.storage import acks, sync
from shmq.storage import ring as rings

SYNC = shmq.Durability.SYNC


@pytest.fixture
def queue(make):
    """With ten messages."""
    made = make(durability=SYNC)
    made.put_many([b"%d" % i for i in range(10)])
    return made


def group(queue, name="g", **options):
    return queue.consumer(name, group=True, ack="explicit", **options)


def everything(member):
    """Indexes of all that it gets now, which it finishes."""
    found = []
    with contextlib.suppress(shmq.Empty):
        while True:
            messages = member.get_many(1000, 0)
            member.ack(*messages)
            found += [message.index for message in messages]
    return found


def checkpoint(queue, name):
    return queue._session.home.checkpoint(name)


class Disk:
    """Every sync of a snapshot; the first one waits until it is let go."""

    def __init__(self, monkeypatch, names):
        self.synced = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        real = sync.data

        def data(fd, what):
            if what == "snapshot":
                self.synced.append(os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2])
                if len(self.synced) == names:
                    self.begun.set()
                    assert self.go_on.wait(DEADLINE)
            real(fd, what)

        monkeypatch.setattr(sync, "data", data)


def all_at_once(disk, acknowledging, asked):
    """One acknowledges; while the disk is at it, the others do; then the disk goes on."""
    threads = [threading.Thread(target=each) for each in acknowledging]
    threads[0].start()
    assert disk.begun.wait(DEADLINE)
    for thread in threads[1:]:
        thread.start()
    deadline = _native.monotonic_ns() + int(DEADLINE * 1e9)
    while asked() < len(threads):
        assert _native.monotonic_ns() < deadline
        threading.Event().wait(0.002)
    disk.go_on.set()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


# ---------------------------------------------------------------- many for one
def test_members_of_a_group_that_acknowledge_at_once_share_a_sync(queue, monkeypatch):
    """One by the first, and one for the nine that came while the disk was at it."""
    with group(queue) as member:
        messages = member.get_many(10, 0)
        disk = Disk(monkeypatch, 1)
        all_at_once(disk, [each.ack for each in messages], checkpoint(queue, "g").asked)
        assert disk.synced == ["g.checkpoint"] * 2
        assert checkpoint(queue, "g").answered() == 10


def test_names_that_acknowledge_at_once_share_a_group_commit(queue, monkeypatch):
    """Whoever leads takes the snapshots of all who have asked, and has them written together."""
    names = [f"c{i}" for i in range(4)]
    consumers = [queue.consumer(name, ack="explicit") for name in names]
    messages = [consumer.get(0) for consumer in consumers]
    events = []
    start = sync.start
    disk = Disk(monkeypatch, 1)
    monkeypatch.setattr(sync, "start", lambda fd, what: (events.append(len(disk.synced)), start(fd, what)))

    def commits():
        with open(f"{queue.path}/control.shmq", "rb") as file:
            return int.from_bytes(os.pread(file.fileno(), 4, 416), "little")  # sync_bell

    def asked():
        return sum(checkpoint(queue, name).asked() for name in names)

    before = commits()
    all_at_once(disk, [message.ack for message in messages], asked)
    assert commits() == before + 2
    assert sorted(disk.synced) == [f"{name}.checkpoint" for name in names]
    assert events == [0, 1, 1, 1]  # the writing of all three was begun before any of them was waited for


def test_who_leads_for_an_ack_syncs_what_was_put_too(queue, monkeypatch):
    """And the other way round: a put that takes the long way has the acknowledgements on the disk."""
    control = queue._session.joined().control
    with queue.consumer("c", ack="explicit") as consumer:
        message = consumer.get(0)
        slot = queue.reserve(1)
        with pytest.raises(shmq.SyncPending):
            queue.put(b"behind it", timeout=0)
        monkeypatch.setattr(slot, "_syncer", None)  # committed, and not waited for
        slot.buffer[:] = b"x"
        slot.commit()
        assert control.durable() == 10
        message.ack()
        assert control.durable() == 12


def test_a_put_does_what_acks_wait_for_when_it_leads_in_python(queue, monkeypatch):
    """Asked, and nobody has led yet."""
    monkeypatch.setattr(sync, "IN_CORE", False)
    with group(queue) as member:
        member.get(0)
        page = checkpoint(queue, "g")
        writable = queue._session.home.checkpoint("g", writable=True)
        asked = writable.ask(queue._session.joined().member)
        queue.put(b"x")
        assert page.answered() == asked
        assert page.snapshot_synced() == page.newest_snapshot().sequence


def test_who_puts_in_the_core_hands_the_lead_to_who_acknowledges(queue, path):
    """Acks return while others put without an end."""

    def produce(say):
        with shmq.open(path) as own:
            say("puts")
            while True:
                own.put(b"x")

    children = [Child(produce) for _ in range(2)]
    with children[0], children[1]:
        for child in children:
            assert child.hear() == "puts"
        with group(queue) as member:
            for message in member.get_many(10, 0):
                message.ack()
            assert checkpoint(queue, "g").answered() == checkpoint(queue, "g").asked() == 10
        for child in children:
            child.kill()


def test_a_name_that_was_dropped_and_made_again_is_another_file(queue):
    """What is mapped of the first one is let go."""
    for _ in range(3):
        with group(queue) as member:
            member.get(0).ack()
            assert checkpoint(queue, "g").answered() == 1
        queue.drop_consumer("g")


# ---------------------------------------------------------------- after a power cut
def cut(queue, path, tmp_path):
    """What is on the disk: checkpoints without the live words, rings with nothing."""
    copy = shutil.copytree(path, str(tmp_path / "cut"))
    for file in Path(copy, "consumers").glob("*.checkpoint"):
        content = bytearray(file.read_bytes())
        content[128:4096] = bytes(4096 - 128)
        file.write_bytes(content)
    for file in Path(copy, "consumers").glob("*.ring"):
        content = bytearray(file.read_bytes())
        content[4096:] = bytes(len(content) - 4096)
        file.write_bytes(content)
    make_unclean(copy)
    return copy


def test_what_a_group_acknowledged_one_by_one_does_not_come_again(queue, path, tmp_path):
    """Nor what was given back in order; only what nobody has finished does."""
    with group(queue) as member:
        messages = member.get_many(6, 0)
        for at in (0, 2, 5):
            messages[at].ack()
        messages[1].nack()
        member.ack(*messages[3:5])
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as again, group(again) as member:
        assert sorted(everything(member)) == [1, 6, 7, 8, 9]


def test_what_waits_for_long_does_not_bring_back_what_was_finished_behind_it(make, path, tmp_path):
    """However far behind: it is named in the snapshot, and only it comes again."""
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 300)
    with group(queue, window=64) as member:
        for message in member.get_many(3, 0):
            message.nack(delay=3600)
        for _ in range(5):
            member.ack(*member.get_many(40, 0))
        assert member.head == 203
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as again, group(again) as member:
        assert member.head == 203
        assert sorted(everything(member)) == [0, 1, 2, *range(203, 300)]


def test_more_than_a_snapshot_can_name_wait_for_long(make, path, tmp_path):
    """The others are found by their bits."""
    queue = make(durability=SYNC)
    queue.put_many([b"x"] * 800)
    with group(queue, window=64) as member:
        parked = []
        while member.head < 700:
            messages = member.get_many(10, 0)
            for message in messages[:9]:
                message.nack(delay=3600)
                parked.append(message.index)
            messages[9].ack()
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as again, group(again) as member:
        assert sorted(everything(member)) == [*parked, *range(700, 800)]


def test_what_was_given_back_and_finished_then_does_not_come_again(queue, path, tmp_path):
    """Its ring word says PARKED until the head passes; the table says that it is finished."""
    with group(queue) as member:
        first, second, third = member.get_many(3, 0)
        second.nack()
        third.ack()
        again = member.get_many(10, 0)
        again += member.get_many(10, 0)
        [back] = [message for message in again if message.index == 1]
        back.ack()
        assert first.index == member.head == 0
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as reopened, group(reopened) as member:
        assert sorted(everything(member)) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_what_was_put_to_come_later_comes_later_after_a_power_cut_too(make, path, tmp_path):
    """The ring has forgotten when; the message says it."""
    queue = make(durability=SYNC)
    queue.put(b"later", delay=3600)
    queue.put(b"now")
    with group(queue) as member:
        member.get(0).ack()
        assert member.head == 2
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as again, group(again) as member:
        assert everything(member) == []
        assert again.consumers()["g"].group.parked == 1


def test_a_group_of_a_queue_that_lost_everything_is_not_told_that_messages_have_gone(queue, path, tmp_path):
    """As a name alone is not."""
    group(queue).close()
    copy = cut(queue, path, tmp_path)
    for chunk in Path(copy, "chunks").glob("*.chunk"):
        chunk.unlink()
    watermarks = 3 * 4096
    with open(f"{copy}/queue.shmq", "r+b") as file:
        os.pwrite(file.fileno(), bytes(2 * 4096), watermarks)
    with shmq.open(copy) as again, group(again) as member:
        index = again.put(b"after")
        assert everything(member) == [index]


def test_the_size_of_a_side_table_is_on_the_disk_before_its_header_speaks_of_it(queue, monkeypatch):
    """Else a power cut leaves a ring that is shorter than it says, and nobody can open the group."""
    order = []
    extend, data = _native.Ring.extend, sync.data
    monkeypatch.setattr(_native.Ring, "extend", lambda self, blocks: (order.append("extend"), extend(self, blocks)))
    monkeypatch.setattr(sync, "data", lambda fd, what: (order.append(what), data(fd, what)))
    with group(queue) as member:
        del order[:]
        rings.grow(queue._session.home, "g", member._ring)
    assert order[:2] == ["ring", "extend"]


def test_a_new_group_has_its_files_on_the_disk_before_its_name(queue, monkeypatch):
    """And its name before anybody acknowledges under it."""
    order = []
    data, directory = sync.data, sync.directory

    def synced(fd, what):
        order.append((what, sorted(os.listdir(fd))))
        directory(fd, what)

    monkeypatch.setattr(sync, "data", lambda fd, what: (order.append(what), data(fd, what)))
    monkeypatch.setattr(sync, "directory", synced)
    group(queue).close()
    files = ["g.group", "g.ring"]
    assert order[:5] == ["group", "ring", ("consumers", files), "checkpoint", ("consumers", ["g.checkpoint", *files])]


def test_a_member_whose_place_was_retired_behind_all_others_is_not_told_that_messages_have_gone(make):
    """It slept while the others finished everything, and what they had finished went."""
    queue = make(durability=shmq.Durability.PROCESS, retention=shmq.Retention.acked())
    idle, busy = group(queue), group(queue)
    with idle, busy:
        queue.put(b"x" * 4000)
        idle.get(0).ack()  # its place is in the first chunk
        for _ in range(20):
            queue.put(b"x" * 4000)
        assert len(everything(busy)) == 20
        queue.put(b"last")
        assert queue.first_index > 1
        assert idle.get(0).payload == b"last"


def test_a_group_that_takes_forgets_and_does_not_wait_for_the_disk(queue, monkeypatch):
    """take() has acknowledged before anybody could work: there is nothing to promise."""
    with group(queue) as member, monkeypatch.context() as patched:
        patched.setattr(sync, "data", lambda *_: pytest.fail("synced"))
        assert member.take(0) == b"0"
        assert member.take_many(3, 0) == [b"1", b"2", b"3"]


def test_an_ack_of_what_was_given_to_somebody_else_takes_the_others_to_the_disk(queue):
    """LeaseLost for one; the other is on the disk when it is raised."""
    with group(queue, lease=3600.0) as member, group(queue) as other:
        first, second = member.get_many(2, 0)
        thief = _native.core.ffi.new("shmq_taken[1]", [_native.taken_of(first)[0]])
        assert member._ring.give_back(thief) == 0
        assert other.get(0).index == first.index
        with pytest.raises(shmq.LeaseLost):
            member.ack(second, first)
        assert checkpoint(queue, "g").answered() == checkpoint(queue, "g").asked() == 1


def test_sync_takes_what_a_group_has_acknowledged_in_any_mode(make, path, tmp_path):
    """Not only what its members wrote down a second ago."""
    queue = make()
    queue.put_many([b"x"] * 5)
    with group(queue) as member:
        member.ack(*member.get_many(3, 0))
        queue.sync()
        copy = cut(queue, path, tmp_path)
    with shmq.open(copy) as again, group(again) as member:
        assert [message.index for message in member.get_many(10, 0)] == [3, 4]


# ---------------------------------------------------------------- what goes wrong
def test_a_leader_killed_over_an_ack_is_taken_over(queue, path, monkeypatch):
    """By who waits with it."""

    def die(say):
        monkeypatch.setattr(sync, "data", lambda fd, what: os.kill(os.getpid(), signal.SIGKILL))
        with shmq.open(path) as own, group(own) as member:
            member.get(0).ack()

    with group(queue) as member:
        message = member.get(0)
        with Child(die) as child:
            assert child.join() == -signal.SIGKILL
        message.ack()
        page = checkpoint(queue, "g")
        assert page.answered() == page.asked() == 2
        assert page.newest_snapshot().sequence == 2  # its was synced before the other was written


@pytest.mark.parametrize("kind", ["group", "name"])
def test_an_ack_that_the_disk_refuses_says_so_to_all(queue, monkeypatch, kind):
    """Nothing more counts as durable; reading goes on, and the message is finished in memory."""
    consumer = group(queue) if kind == "group" else queue.consumer("g", ack="explicit")
    with consumer:
        first, second = consumer.get_many(2, 0)

        def refuse(fd, what):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patched:
            patched.setattr(sync, "data", refuse)
            with pytest.raises(shmq.SyncFailed, match="Input/output error"):
                first.ack()
        with pytest.raises(shmq.SyncFailed):
            second.ack()
        assert consumer.head == 2
        assert consumer.get(0).index == 2


def test_an_ack_without_a_descriptor_left_freezes_nothing(queue, monkeypatch):
    """The disk was not asked; the next ack works."""
    with group(queue) as member:
        first, second = member.get_many(2, 0)

        def refuse(self, *_, **__):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patched:
            patched.setattr(type(queue._session.home), "open", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                first.ack()
        second.ack()
        assert not queue._session.joined().control.sync_failed()
        assert checkpoint(queue, "g").answered() == 2


def test_a_snapshot_is_not_taken_by_who_does_not_see_the_whole_side_table(queue):
    """A member that slept while the table grew would call done what is parked in the new part, and let its chunk go."""
    idle, busy = group(queue), group(queue)
    with idle, busy:
        total = _native.SIDE_BLOCKS * 511 + 1
        queue.put_many([b"p"] * (total + 1 - 10))
        for message in busy.get_many(10, 0):
            message.nack(delay=3600)
        while busy.head < total:
            for message in busy.get_many(1000, 0):
                message.nack(delay=3600)
        assert busy._ring.blocks > idle._ring.blocks
        before = checkpoint(queue, "g").newest_snapshot()
        assert idle._ring.snapshot(1) == _native.GROW
        assert checkpoint(queue, "g").newest_snapshot() == before
        assert idle._ring.floor() == 0
        acks.of_member(queue._session.home, queue._session.joined().member, "g", idle._checkpoint, idle._ring)
        assert idle._ring.snapshot(1) > 0
        assert checkpoint(queue, "g").newest_snapshot().head == 404  # and as many are named one by one
        assert idle._ring.floor() == 0


# ---------------------------------------------------------------- dead letters
@pytest.mark.parametrize("target", ["made by the group", "made before"])
@pytest.mark.parametrize("died", [False, True])
def test_a_dead_letter_is_on_the_disk_before_its_message_is_done(queue, path, monkeypatch, target, died):
    """A power cut between the two leaves it in both queues, never in neither; also when its mover died meanwhile."""
    if target == "made before":
        shmq.open(f"{path}.g.dead").close()
    durable_at = []
    real = _native.Ring.ack

    def ack(self, taken):
        with shmq.open(f"{path}.g.dead") as letters:
            durable_at.append((letters._session.joined().control.durable(), letters.next_index))
        return real(self, taken)

    def die(say):
        monkeypatch.setattr(_native.Ring, "ack", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with shmq.open(path) as own, group(own) as member:
            member.get(0).reject("it died over it")

    if died:
        with Child(die) as child:
            assert child.join() == -signal.SIGKILL
    monkeypatch.setattr(_native.Ring, "ack", ack)
    with group(queue) as member:
        message = member.get(0)
        if not died:
            message.reject("no good")
        page = checkpoint(queue, "g")
        assert page.answered() == page.asked() == (0 if died else 1)
    assert durable_at == [(1, 1)]
    with shmq.open(f"{path}.g.dead") as letters:
        assert [letter.payload for letter in letters.reader()] == [b"0"]
        assert letters.options.durability == (SYNC if target == "made by the group" else shmq.Durability.PROCESS)


@pytest.mark.parametrize("synced", ["sync", "finish"])
def test_found_a_seek_back_of_a_name_was_undone_by_a_power_cut(make, path, tmp_path, synced):
    """What the disk had of the name was older, and said that more was finished: nobody was handed the rest again."""
    queue = make(durability=shmq.Durability.PROCESS)
    queue.put_many([b"a", b"b", b"c"])
    name = queue.consumer("n", ack="explicit")
    name.take_many(3)
    getattr(queue, synced)()
    name.seek(1)
    with shmq.open(cut(queue, path, tmp_path)) as after:
        assert after.consumers()["n"].head == 1
