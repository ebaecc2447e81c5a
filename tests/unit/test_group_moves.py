"""Groups: going to another place, taking another name, passing over damage, catching up, being dropped."""

from __future__ import annotations

import inspect
import os
import typing
from pathlib import Path

import pytest
from support import DEADLINE, DONE, Child, chunk_files, flip, hold_until_killed, make_unclean, patch, words

import shmq
from shmq import _native
from shmq.cli import main
from shmq.storage import files, ring

WAIT = 60


def fill(queue, count):
    queue.put_many([b"%d" % i for i in range(count)], keys=[b"%d" % (i % 3) for i in range(count)])


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, ack="explicit", **options)


def everything(member):
    """All there is for this member, finished as it comes, so that ordered ones come too."""
    found = []
    while True:
        try:
            messages = member.get_many(100, timeout=0)
        except shmq.Empty:
            return found
        found += [int(message.payload) for message in messages]
        member.ack(*messages)


ORDERED = pytest.mark.parametrize("options", [{}, {"ordered_by": "key"}], ids=["free", "ordered"])


# ---------------------------------------------------------------- seek
@ORDERED
def test_seek_moves_the_whole_group(queue, options):
    """Back, and what was finished comes again; forward, and what is passed does not; parked ones too."""
    fill(queue, 20)
    member = join(queue, **options)
    member.get(0).nack(delay=3600)
    assert len(everything(member)) in (13, 19)
    member.seek(5)
    assert (member.head, member.pending) == (5, 0)
    assert sorted(everything(member)) == list(range(5, 20))
    member.seek("earliest")
    assert sorted(everything(member)) == list(range(20))
    member.seek("latest")
    assert (everything(member), member.head, member.lag) == ([], 20, 0)
    member.seek(queue[17].time)
    assert everything(member)
    assert queue.consumers()["g"].group.parked == 0


def test_an_ack_from_before_a_seek_finishes_nothing(queue):
    """The message is handed out anew, with the same counters."""
    fill(queue, 3)
    member = join(queue)
    before = member.get(0)
    member.seek(0)
    again = member.get(0)
    assert (before.index, again.index, again.attempts) == (0, 0, 1)
    with pytest.raises(shmq.LeaseLost):
        before.ack()
    member._account.held.add(before)  # as if it were not known to be over
    with pytest.raises(shmq.LeaseLost):
        before.ack()
    assert member.head == 0
    member._account.held.add(again)
    again.nack()


def test_seek_needs_the_group_alone_and_a_place_that_is_there(queue):
    """Nothing changes otherwise, and the next one may join."""
    fill(queue, 5)
    member, other = join(queue), join(queue)
    with pytest.raises(shmq.Busy, match="somebody else is in it"):
        member.seek(0)
    other.close()
    with pytest.raises(IndexError, match="from 0 to 5"):
        member.seek(6)
    with pytest.raises(IndexError, match="cannot seek to -1"):
        member.seek(-1)
    with pytest.raises(ValueError, match="to='soon': \"earliest\""):
        member.seek("soon")
    assert everything(member) == list(range(5))
    member.seek(2)
    assert everything(join(queue)) == [2, 3, 4]


@pytest.mark.parametrize("call", ["forget", "rebuild"])
@pytest.mark.parametrize("after", [False, True])
def test_a_seek_that_is_killed_leaves_it_here_or_there(queue, call, after):
    """Nothing else, and what was in flight before it is not lost."""
    from shmq import _native

    fill(queue, 10)
    with join(queue) as member:
        for message in member.get_many(4, 0)[1:]:
            message.ack()

    def die(say):
        member = join(queue)
        real = getattr(_native.Ring, call)

        def stop(*arguments):
            if after:
                real(*arguments)
            hold_until_killed(say)

        setattr(_native.Ring, call, staticmethod(stop))
        member.seek(7)

    with Child(die) as child:
        child.hear()
        child.kill()
    found = everything(join(queue))
    assert sorted(found) in ([0, 4, 5, 6, 7, 8, 9], [7, 8, 9])


def test_seek_on_the_command_line(queue, path, capsys):
    """Of a group as of any consumer."""
    fill(queue, 5)
    member = join(queue)
    everything(member)
    assert main(["seek", path, "g", "1"]) == 1
    assert "somebody else is in it" in capsys.readouterr().err
    member.close()
    assert main(["seek", path, "g", "1"]) == 0
    assert capsys.readouterr().out == "g: 5 -> 1 (lag 4)\n"
    assert everything(join(queue)) == [1, 2, 3, 4]


# ---------------------------------------------------------------- rename
@ORDERED
def test_a_renamed_group_goes_on_with_everything(queue, path, options):
    """What is done, what is parked, attempts, options; the old name is gone."""
    fill(queue, 10)
    with join(queue, lease=3600, **options) as member:
        member.get(0).nack(delay=0)
        everything_but = member.get_many(100, 0)
        kept, *others = everything_but
        member.ack(*others)
        kept.nack(delay=3600)
        done = {message.index for message in others}
    assert main(["consumer", "rename", path, "g", "h"]) == 0
    assert list(queue.consumers()) == ["h"]
    assert {each.split(".")[0] for each in os.listdir(Path(path, "consumers"))} == {"h"}
    with join(queue, "h", **options) as member:
        assert member.options["lease"] == 3600
        assert queue.consumers()["h"].group.parked >= 1
        assert not done & set(everything(member))
    fill(queue, 1)
    assert len(everything(join(queue, "h"))) <= 1


def test_a_rename_is_refused_when_it_would_take_something_away(queue):
    """A name that is there; a group somebody is in."""
    fill(queue, 4)
    queue.consumer("plain").close()
    member = join(queue)
    with pytest.raises(shmq.Busy):
        queue.rename_consumer("g", "h")
    member.close()
    with pytest.raises(shmq.Mismatch, match="nothing was changed"):
        queue.rename_consumer("g", "plain")
    assert everything(join(queue)) == [0, 1, 2, 3]


@pytest.mark.parametrize("at", ["copies", "checkpoint", "both"])
def test_a_rename_that_is_killed_can_be_finished(queue, at):
    """Before and behind the checkpoint of the new name: the group is there, under the old one or under both."""
    fill(queue, 6)
    with join(queue) as member:
        for message in member.get_many(3, 0):
            message.ack()

    def die(say):
        if at == "copies":
            ring.files.link_file = lambda *_: hold_until_killed(say)
        elif at == "checkpoint":
            files.make_file = lambda *_: hold_until_killed(say)
        else:
            os.unlink = lambda *_, **__: hold_until_killed(say)
        queue.rename_consumer("g", "h")

    with Child(die) as child:
        child.hear()
        child.kill()
    assert "g" in queue.consumers()
    queue.rename_consumer("g", "h")
    assert list(queue.consumers()) == ["h"]
    assert everything(join(queue, "h")) == [3, 4, 5]


# ---------------------------------------------------------------- past damage
@ORDERED
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_passes_over_damage(queue, path, options, when):
    """If a member is told to; whether the message was handed out before or not."""
    fill(queue, 1000)
    lost = [3, 40, 700]
    member = join(queue, skip_corrupt=True, **options)
    if when == "after":
        handed = member.get_many(3, 0)
        assert [message.index for message in handed] == [0, 1, 2]
        lost = [1, 700]
        for message in handed:
            message.nack()
    found = [(file, word) for which, file in enumerate(chunk_files(path)) for word in words(path, which)]
    records = [(file, word) for file, word in found if word.state == DONE]
    for index in lost:
        flip(records[index][0], records[index][1].position + 40)
    if when == "before":
        with pytest.raises(shmq.Corrupt):
            everything(join(queue, "other"))
    assert sorted(everything(member)) == [i for i in range(1000) if i not in lost]
    assert member.skipped == len(lost)
    assert (member.head, member.lag) == (1000, 0)


# ---------------------------------------------------------------- far behind, and gone
@ORDERED
def test_a_group_that_was_away_for_long_catches_up_and_frees_the_disk(make, path, options):
    """Over several windows, with nothing parked for it, and nothing kept behind it."""
    queue = make(chunk_bytes=1 << 20)
    with join(queue, **options):
        pass
    count, batch = 200_000, 8000
    keys = [b"%d" % (i % 1000) for i in range(batch)]
    for _ in range(count // batch):
        queue.put_many([bytes(8)] * batch, keys=keys)
    member, came = join(queue), 0
    while came < count:
        messages = member.get_many(1000, WAIT)
        member.ack(*messages)
        came += len(messages)
    assert member.lag == 0
    assert queue.first_index > count // 2
    assert os.stat(Path(path, "consumers", "g.ring")).st_size < 4 << 20


@ORDERED
def test_a_group_that_never_comes_back_is_dropped_and_frees_the_disk(queue, path, options, capsys):
    """With what it had parked."""
    with join(queue, **options) as member:
        fill(queue, 3)
        member.get(0).nack(delay=3600)
        reader = queue.consumer("other")
        for _ in range(30):
            fill(queue, 1000)
            reader.take_many(5000, 0)
    while reader.lag:
        reader.take_many(5000, 0)
    before = sum(file.stat().st_blocks for file in Path(path).rglob("*"))
    assert queue.first_index == 0
    assert main(["consumer", "rm", path, "g", "--yes"]) == 0
    assert queue.first_index > 29000
    assert sum(file.stat().st_blocks for file in Path(path).rglob("*")) < before / 2
    capsys.readouterr()


def test_a_wait_maps_a_side_table_that_is_full_anew_to_pass_what_is_missing(make, path, monkeypatch):
    """What is held before a gap that no window reaches over must be parked first."""
    monkeypatch.setattr(_native, "SIDE_BLOCKS", 1)
    queue = make(chunk_bytes=16384)
    for _ in range(2000):
        queue.put(b"x")
    files = chunk_files(path)
    broken, behind = (int(file.name[:16], 16) for file in files[-2:])
    patch(files[-2], 16, bytes(8))
    with queue.consumer("g", group=True, ack="explicit", window=64, skip_corrupt=True) as member:
        for _ in range(511):
            member.get(timeout=0).nack(delay=3600)
        while (message := member.get(timeout=0)).index < broken - 1:
            message.ack()
        assert member._ring.side_blocks() == 1
        assert shmq.wait([member], timeout=DEADLINE) == [member]
        assert member._ring.side_blocks() == 2
        assert member.get(timeout=0).index == behind


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("taken", [0, 3])
def test_what_a_power_cut_took_is_not_called_retired(make, path, group, taken):
    """A queue that retires nothing has lost its beginning: who had not read it goes on behind it, untold."""
    with make(chunk_bytes=16384, retention=shmq.Retention.forever()) as queue:
        for _ in range(1000):
            queue.put(bytes(100))
        with queue.consumer("c", group=group, ack="explicit") as consumer:
            for _ in range(taken):
                consumer.get().ack()
        queue.sync()
    chunk_files(path)[0].unlink()
    make_unclean(path)
    patch(f"{path}/queue.shmq", 3 * 4096, bytes(8192))  # the watermark: all of it was lost
    with shmq.open(path) as queue:
        index = queue.put(b"new")
        assert queue.first_index == index
        for name in ("c", "another"):
            with queue.consumer(name, group=group, ack="explicit", start=0) as consumer:
                assert consumer.lag == 1
                assert consumer.take(timeout=0) == b"new"


def test_what_a_power_cut_took_of_what_a_group_had_put_aside_is_not_called_retired(make, path):
    """It was to come again, and is not there any more; what is behind it comes."""
    with make(chunk_bytes=16384, retention=shmq.Retention.forever()) as queue:
        for _ in range(20):
            queue.put(bytes(100))
        with queue.consumer("g", group=True, ack="explicit") as member:
            for message in member.get_many(20):
                message.nack(delay=0.01)
        queue.sync()
    flip(chunk_files(path)[0], words(path)[10].position + 60)
    make_unclean(path)
    patch(f"{path}/queue.shmq", 3 * 4096, bytes(8192))
    with shmq.open(path) as queue:
        assert queue.recovery.kept == 10
        index = queue.put(b"new")
        with queue.consumer("g", group=True, ack="explicit") as member:
            found = [member.get(timeout=DEADLINE) for _ in range(11)]
            assert [message.index for message in found] in ([*range(10), index], [index, *range(10)])
            with pytest.raises(shmq.Empty):
                member.get(timeout=0)
            assert queue.consumers()["g"].group.retired == 0


def test_a_group_may_be_typed_with_all_that_it_takes():
    """What a type checker knows of a group's options is what there is."""
    *_, of_group = typing.get_overloads(shmq.Queue.consumer)
    known = set(inspect.signature(of_group).parameters)
    assert known == set(inspect.signature(shmq.Queue.consumer).parameters) - {"hold"}
