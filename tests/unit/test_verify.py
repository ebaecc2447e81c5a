"""verify, repair, skip_corrupt: damage is named, what is whole is delivered and saved, and nothing else is."""

import contextlib
import dataclasses
import errno
import json
import os
import random
import resource
import shutil
from pathlib import Path

import pytest
from support import (
    DONE,
    HINT,
    SEAL,
    Child,
    chunk_files,
    flip,
    in_child,
    make_unclean,
    patch,
    records,
    set_watermark,
    words,
)

import shmq
from shmq import cli
from shmq.storage.recover import consumers
from shmq.storage.recover import plan as plans

BATCH = 1500


def fill(path, count=1000):
    options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for number in range(count):
            queue.put(b"%d" % number)


def numbers(count):
    return [b"%d" % number for number in range(count)]


def payloads(path, **flags):
    with shmq.open(path, **flags) as queue:
        return [message.payload for message in queue.reader()]


def damage_all(path, places, what="payload"):
    """Damage the messages at these (chunk, number in it): for each the index that it has, its file and its place."""
    found = []
    for which, message in places:
        word = [word for word in words(path, which) if word.state == DONE][message]
        found.append((chunk_files(path)[which], message, word))
    for file, _, word in found:
        if what == "payload":
            flip(file, word.position + 40)
        elif what == "word":
            patch(file, word.position, b"\x11\x22\x33\x44\x55\x66\x77\xff")
        elif what == "span":
            patch(file, word.position, bytes([(word.span * 5) & 0xFF]))
    return [(int(file.name[:16], 16) + message, file.name, word.position) for file, message, word in found]


def damage(path, which, message):
    return damage_all(path, [(which, message)])[0]


# ---------------------------------------------------------------- verify
def test_a_whole_queue_is_true_and_counted(path):
    fill(path)
    with shmq.open(path) as queue:
        queue.put_many([b"a", b"b"])
        queue.reserve(10).abort()
        with queue.reserve(10), queue.consumer("c") as consumer:
            consumer.take(0)
            found = queue.verify()
            assert found
            assert (found.messages, found.padded, found.open_claims, found.lost) == (1002, 1, 1, 0)
            assert found.chunks == len(chunk_files(path))
    assert shmq.verify(path).problems == ()
    make_unclean(path)
    shmq.open(path).close()
    assert shmq.verify(path)


@pytest.mark.parametrize("what", ["payload", "word", "span"])
def test_each_damaged_place_is_named_and_what_lies_behind_it_is_looked_at(path, what):
    fill(path)
    places = damage_all(path, [(0, 5), (0, 50), (2, 7)], what)
    found = shmq.verify(path)
    assert not found
    assert [(problem.file, problem.position) for problem in found.problems] == [
        (f"chunks/{name}", position) for _, name, position in places
    ]
    assert (found.messages, found.lost) == (997, 3)


def test_a_missing_chunk_a_damaged_header_and_a_second_one_are_named(path):
    fill(path)
    files = chunk_files(path)
    copy = shutil.copytree(path, f"{path}-1")
    os.unlink(chunk_files(copy)[1])
    assert "chunk 1 is missing" in shmq.verify(copy).problems[0].reason
    copy = shutil.copytree(path, f"{path}-2")
    flip(chunk_files(copy)[1], 70)
    (problem,) = shmq.verify(copy).problems
    assert problem.file == f"chunks/{files[1].name}"
    assert "checksum" in problem.reason
    copy = shutil.copytree(path, f"{path}-3")
    shutil.copy(files[1], f"{copy}/chunks/{'0' * 12}ffff-00000001.chunk")
    assert not shmq.verify(copy)


def test_the_files_beside_the_chunks_are_looked_at(path):
    fill(path, 3)
    with shmq.open(path) as queue:
        queue.consumer("c").close()
        with queue.stage() as staged:
            staged.put(b"x")
            queue.adopt(staged, dedup=("p", 1))
    assert shmq.verify(path)
    flip(f"{path}/consumers/c.checkpoint", 50)
    flip(f"{path}/control.shmq", 3)
    flip(f"{path}/ledger.shmq", os.stat(f"{path}/ledger.shmq").st_size - 1)
    assert [problem.file for problem in shmq.verify(path).problems] == [
        "consumers/c.checkpoint",
        "control.shmq",
        "ledger.shmq",
    ]


GROUP_DAMAGES = {
    "removed": os.unlink,
    "magic": lambda file: patch(file, 0, b"garbage!"),
    "halved": lambda file: os.truncate(file, os.stat(file).st_size // 2),
    "zeroed": lambda file: patch(file, 0, bytes(os.stat(file).st_size)),
}


@pytest.mark.parametrize("ending", ["group", "ring"])
@pytest.mark.parametrize("damage", GROUP_DAMAGES)
def test_found_what_belongs_to_a_group_is_looked_at_and_is_a_loss(path, ending, damage):
    fill(path, 20)
    with shmq.open(path) as queue:
        queue.consumer("whole", group=True).close()
        with queue.consumer("g", group=True, ack="explicit") as member:
            member.ack(*member.get_many(5))
    assert shmq.verify(path)
    file = f"consumers/g.{ending}"
    GROUP_DAMAGES[damage](f"{path}/{file}")
    found, done = shmq.verify(path), shmq.repair(path)
    assert [problem.file for problem in found.problems] == [file]
    assert (done.lost, done.gone, done.complete, bool(done)) == (0, (file,), False, False)
    assert shmq.verify(done.path)
    with shmq.open(done.path) as queue:
        assert list(queue.consumers()) == ["whole"]


def test_found_what_says_that_a_name_holds_may_be_damaged(path):
    """It was whole for verify, and an OSError without a file for repair and copy. It holds, as for the queue itself."""
    fill(path, 20)
    with shmq.open(path) as queue:
        queue.consumer("a", hold=True).close()
        queue.consumer("b", hold="nothing").close()
    assert shmq.verify(path)
    os.truncate(f"{path}/consumers/a.hold", 0)
    (problem,) = shmq.verify(path).problems
    assert problem.file == "consumers/a.hold"
    assert problem.reason.startswith("it does not say whether the name holds back what it has not finished")
    done = shmq.repair(path)
    assert done
    with shmq.open(path) as queue:
        copied = queue.copy(f"{path}.copy")
    for place in (done.path, copied.path):
        assert shmq.verify(place)
        with shmq.open(place) as queue:
            assert {name: stats.hold for name, stats in queue.consumers().items()} == {"a": True, "b": "nothing"}


def test_found_what_was_repaired_is_true_when_nothing_was_lost(path, tmp_path):
    fill(path)
    done = shmq.repair(path, tmp_path / "whole")
    assert done
    assert done.complete is True
    damage(path, 0, 5)
    done = shmq.repair(path, tmp_path / "damaged")
    assert not done
    assert done.complete is False


def test_a_verify_beside_producers_finds_nothing(make, path):
    queue = make()

    def work(say):
        with shmq.open(path) as mine:
            for number in range(3000):
                mine.put_many([b"%d" % number] * 3)

    with Child(work) as child, Child(work) as other:
        for _ in range(20):
            assert queue.verify().problems == ()
        assert child.join(60) == other.join(60) == 0
    assert queue.verify().messages == 18000


# ---------------------------------------------------------------- skip_corrupt
@pytest.mark.parametrize("what", ["payload", "word", "span"])
def test_what_is_whole_is_delivered_and_the_rest_counted(path, what):
    fill(path)
    lost = {each[0] for each in damage_all(path, [(0, 0), (0, 30), (0, 31), (1, 3), (3, 0)], what)}
    wanted = [b"%d" % number for number in range(1000) if number not in lost]
    with shmq.open(path) as queue:
        with pytest.raises(shmq.Corrupt):
            list(queue.reader())
        reader = queue.reader(skip_corrupt=True)
        assert [message.payload for message in reader] == wanted
        assert reader.skipped == 5
        for ack in ("auto", "explicit"):
            with queue.consumer(ack, ack=ack, skip_corrupt=True) as consumer:
                got = []
                while len(got) < len(wanted):
                    got += consumer.take_many(100, 0)
                assert got == wanted
                assert consumer.skipped == 5
                with pytest.raises(shmq.Empty):
                    consumer.take(0)


def test_backward_too(path):
    fill(path)
    lost = {each[0] for each in damage_all(path, [(0, 0), (0, 30), (1, 3)])}
    with shmq.open(path) as queue:
        reader = queue.reader(reverse=True, skip_corrupt=True)
        assert [m.payload for m in reader] == [b"%d" % number for number in range(999, -1, -1) if number not in lost]
        assert reader.skipped == 3


def test_a_chunk_that_cannot_be_opened_is_passed_over(path):
    fill(path)
    files = chunk_files(path)
    first, behind = (int(files[at].name[:16], 16) for at in (1, 2))
    flip(files[1], 70)
    with shmq.open(path) as queue:
        reader = queue.reader(skip_corrupt=True)
        assert [m.payload for m in reader] == numbers(1000)[:first] + numbers(1000)[behind:]
        assert reader.skipped == behind - first


def test_what_a_dead_producer_filled_and_never_put_is_not_delivered_behind_damage(path):
    """Inside a padded batch lie whole messages; a search behind damage must not land on one."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"first")
        queue.put_many([b"never %d" % number for number in range(9)])
        queue.put(b"last")
    batch = words(path)[1:10]
    span = sum(word.span for word in batch)
    pad = 4 << 61 | 9 << 48 | batch[0].owner << 27 | span
    patch(chunk_files(path)[0], batch[0].position, pad.to_bytes(8, "little"))
    assert payloads(path) == [b"first", b"last"]
    patch(chunk_files(path)[0], words(path)[0].position, b"\xff" * 8)
    with shmq.open(path) as queue:
        reader = queue.reader(skip_corrupt=True)
        assert [m.payload for m in reader] == [b"last"]
        assert reader.skipped == 10


# ---------------------------------------------------------------- repair
@pytest.mark.parametrize("what", ["payload", "word", "span"])
def test_a_repaired_queue_is_whole_and_every_message_keeps_its_index(path, what):
    fill(path)
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        consumer.take_many(20)
    lost = {each[0] for each in damage_all(path, [(0, 1), (0, 30), (0, 31), (1, 3), (3, 0)], what)}
    before = {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}
    done = shmq.repair(path)
    assert done.path == f"{path}.repaired"
    assert (done.messages, done.lost, len(done.problems)) == (995, 5, 4)
    assert {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()} == before
    assert shmq.verify(done.path)
    with shmq.open(done.path) as queue:
        assert {m.index: m.payload for m in queue.reader()} == {
            number: b"%d" % number for number in range(1000) if number not in lost
        }
        assert len(queue) == 995
        for index in lost:
            with pytest.raises(IndexError):
                queue[index]
        assert queue.put(b"after") >= 1000
        with queue.consumer("c") as consumer:
            assert consumer.take(0) == b"20"


def test_a_queue_that_cannot_be_opened_can_be_repaired(path):
    fill(path)
    set_watermark(path, 3, words(path, 3)[-1].position, 990)
    damage(path, 3, 9)
    make_unclean(path)
    with pytest.raises(shmq.Corrupt, match="repair"):
        shmq.open(path)
    done = shmq.repair(path)
    assert len(payloads(done.path)) == 999


@pytest.mark.parametrize("lost", ["header", "file", "all"])
def test_a_chunk_that_is_gone_leaves_a_gap(path, lost):
    fill(path)
    files = chunk_files(path)
    first, behind = (int(files[at].name[:16], 16) for at in (1, 2))
    if lost == "file":
        files[1].unlink()
    elif lost == "header":
        patch(files[1], 56, bytes(8))  # its id
    else:
        files[1].write_bytes(b"")
    done = shmq.repair(path)
    assert shmq.verify(done.path)
    assert payloads(done.path) == numbers(1000)[:first] + numbers(1000)[behind:]


def test_in_place_the_damaged_one_is_kept_and_nobody_may_have_it_open(path):
    fill(path)
    damage(path, 1, 9)
    with shmq.open(path), pytest.raises(shmq.Busy, match="nothing was changed"):
        shmq.repair(path, in_place=True)
    done = shmq.repair(path, in_place=True)
    assert (done.path, done.kept) == (path, f"{path}.damaged")
    assert len(payloads(path)) == 999
    assert not shmq.verify(done.kept)
    with pytest.raises(shmq.Unsafe, match="something is there"):
        shmq.repair(path, done.kept)
    with pytest.raises(ValueError):
        shmq.repair(path, f"{path}-x", in_place=True)


def test_at_random_repair_saves_what_skip_corrupt_delivers(path, tmp_path):
    fill(path, 400)
    chance = random.Random(3)
    for number in range(25):
        copy = shutil.copytree(path, str(tmp_path / f"c{number}"))
        for _ in range(chance.randrange(1, 5)):
            file = chance.choice(chunk_files(copy))
            size = chance.choice([1, 8, 200])
            patch(file, chance.randrange(4200, 16384 - size), chance.randbytes(size))
        done = shmq.repair(copy)
        found = shmq.verify(done.path)
        assert found, found.problems
        assert found.messages == done.messages
        with shmq.open(done.path) as queue:
            for message in queue.reader():
                assert message.payload == b"%d" % message.index
        shutil.rmtree(copy)
        shutil.rmtree(done.path)


@pytest.mark.parametrize("what", ["payload", "word", "span", "zeros"])
@pytest.mark.parametrize("members", [[0], [700], [BATCH - 1], [17, 18, 1000]])
def test_of_a_damaged_batch_the_whole_messages_are_saved(path, what, members):
    """All of it was put, and what of it is whole still is; but its first one's word is what said that it was put."""
    with shmq.open(path, options=shmq.Options(retention=shmq.Retention.forever())) as queue:
        queue.put(b"before")
        queue.put_many([b"%d" % number for number in range(BATCH)])
        queue.put(b"after")
    batches = [[record.batch for record in records(path, which)] for which in range(len(chunk_files(path)))]
    which = next(which for which, sizes in enumerate(batches) if BATCH in sizes)  # smaller chunks may be beside it
    first = batches[which].index(BATCH)
    if what == "zeros":
        done = [word for word in words(path, which) if word.state == DONE]
        for member in members:
            patch(chunk_files(path)[which], done[first + member].position, bytes(8))
    else:
        damage_all(path, [(which, first + member) for member in members], what)
    whole = what == "payload" or members != [0]
    lost = len(members) if whole else BATCH
    with shmq.open(path) as queue:
        reader = queue.reader(skip_corrupt=True)
        assert len(list(reader)) == BATCH + 2 - lost
        assert reader.skipped == lost
    found = shmq.verify(path)
    assert not found
    assert (found.messages, found.lost) == (BATCH + 2 - lost, lost)
    done = shmq.repair(path)
    assert (done.messages, done.lost) == (BATCH + 2 - lost, lost)
    assert cli.main(["repair", path, "--to", f"{path}-again"]) == 3
    for _ in range(2):  # a recovery keeps what repair has saved, once and again
        assert shmq.verify(done.path), shmq.verify(done.path)
        with shmq.open(done.path) as queue:
            kept = {message.index: message.payload for message in queue.reader()}
            assert kept == {0: b"before", BATCH + 1: b"after"} | {
                1 + number: b"%d" % number for number in range(BATCH) if whole and number not in members
            }
            assert len(queue) == len(kept)
        make_unclean(done.path)


def test_of_a_damaged_batch_at_the_end_what_comes_before_is_saved(path):
    with shmq.open(path, options=shmq.Options(retention=shmq.Retention.forever())) as queue:
        queue.put_many([b"%d" % number for number in range(100)])
    which = len(chunk_files(path)) - 1
    last = words(path, which)[-1]
    patch(chunk_files(path)[which], last.position, bytes(last.span * 8))
    patch(chunk_files(path)[which], HINT, bytes(8))
    assert shmq.verify(path).lost == 1
    done = shmq.repair(path)
    assert (done.messages, done.lost) == (99, 1)
    for _ in range(2):
        assert payloads(done.path) == [b"%d" % number for number in range(99)]
        make_unclean(done.path)


def test_of_a_damaged_adopted_set_the_whole_messages_are_saved(path):
    with shmq.open(path, options=shmq.Options(retention=shmq.Retention.forever())) as queue:
        queue.put(b"before")
        with queue.stage() as staged:
            staged.put_many([b"%d" % number for number in range(5000)])
            queue.adopt(staged)
        queue.put(b"after")
    which = max(range(len(chunk_files(path))), key=lambda at: len(words(path, at)))
    damage(path, which, 1234)
    assert (shmq.verify(path).messages, shmq.verify(path).lost) == (5001, 1)
    done = shmq.repair(path)
    assert (done.messages, done.lost) == (5001, 1)
    assert payloads(done.path) == [b"before", *(b"%d" % number for number in range(5000) if number != 1234), b"after"]


# ---------------------------------------------------------------- the command
def test_the_verbs(path, capsys):
    fill(path)
    assert cli.main(["verify", path]) == 0
    assert "1,000 messages whole" in capsys.readouterr().out
    _, name, position = damage(path, 1, 9)
    assert cli.main(["verify", path, "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["format"], facts["messages"], facts["lost"]) == ("shmq", 999, 1)
    assert facts["problems"][0]["file"] == f"chunks/{name}"
    assert facts["problems"][0]["position"] == position
    assert cli.main(["repair", path]) == 3
    assert "999 messages, clean; 1 lost" in capsys.readouterr().out
    assert cli.main(["repair", path]) == 1
    assert cli.main(["repair", path, "--in-place", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["kept"] == f"{path}.damaged"
    assert cli.main(["verify", path]) == 0
    assert SEAL in [word.state for word in words(path)]


def test_a_lost_ledger_is_a_loss_that_repair_tells(path, capsys):
    with shmq.open(path) as queue:
        queue.consumer("c").close()
        with queue.stage() as staged:
            staged.put(b"x")
            queue.adopt(staged, dedup=("p", 1))
    flip(f"{path}/ledger.shmq", os.stat(f"{path}/ledger.shmq").st_size - 1)
    done = shmq.repair(path)
    assert (done.messages, done.lost, done.gone) == (1, 0, ("ledger.shmq",))
    assert cli.main(["repair", path, "--to", f"{path}-again"]) == 3
    assert "ledger.shmq is lost: a batch that was adopted can be adopted again" in capsys.readouterr().out
    flip(f"{path}/consumers/c.checkpoint", 50)
    assert shmq.repair(path, f"{path}-more").gone == ("consumers/c.checkpoint", "ledger.shmq")


def test_found_verify_without_a_descriptor_names_no_damage(path):
    """However many there are: it can look at everything, or says that it cannot."""
    fill(path)
    with shmq.open(path) as queue:
        queue.consumer("c", group=True).close()
        queue.put(b"once", dedup=("p", 1))

    def whole(left):
        with shmq.open(path) as queue:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, most))
            fds = []
            with contextlib.suppress(OSError):
                while True:
                    fds.append(os.dup(0))
            for fd in fds[:left]:
                os.close(fd)
            try:
                return queue.verify().problems
            except OSError as problem:
                return errno.errorcode[problem.errno]

    answers = [in_child(lambda left=left: whole(left)) for left in range(12)]
    assert set(answers) == {"EMFILE", "()"}


def test_a_name_whose_checkpoint_is_not_its_own_is_a_loss_that_repair_and_copy_tell(path):
    """Damaged, or of another queue: the name begins anew."""
    fill(path, 3)
    with shmq.open(path) as queue:
        for name in ("damaged", "stranger", "whole"):
            queue.consumer(name).close()
        queue.consumer("g", group=True).close()
        queue_id = queue._session.home.queue_id
    stranger = f"{path}-other"
    with shmq.open(stranger) as other:
        other.consumer("stranger").close()
    shutil.copy(f"{stranger}/consumers/stranger.checkpoint", f"{path}/consumers/stranger.checkpoint")
    flip(f"{path}/consumers/damaged.checkpoint", 50)
    assert not consumers.checkpoint_is_whole(
        Path(path, "consumers/stranger.checkpoint").read_bytes(), queue_id, "stranger"
    )
    os.truncate(f"{path}/consumers/g.ring", 3)
    done = shmq.repair(path, f"{path}-repaired")
    assert sorted(done.gone) == [
        f"consumers/{file}" for file in ("damaged.checkpoint", "g.ring", "stranger.checkpoint")
    ]
    assert "whole.checkpoint" in os.listdir(f"{path}-repaired/consumers")


@pytest.mark.parametrize("in_place", [False, True])
def test_a_repair_whose_work_would_not_be_kept_leaves_the_damaged_one_as_it_was(path, monkeypatch, in_place):
    fill(path, 3)
    os.truncate(f"{path}/control.shmq", 3)
    inode = os.stat(path).st_ino
    plan = plans.make_plan
    monkeypatch.setattr(plans, "make_plan", lambda home: dataclasses.replace(plan(home), pieces=[]))
    with pytest.raises(shmq.Corrupt, match="opening it would keep 0"):
        shmq.repair(path, **({"in_place": True} if in_place else {"to": f"{path}-repaired"}))
    assert os.stat(path).st_ino == inode


@pytest.mark.parametrize("damage", ["a pipe", "cut short"])
@pytest.mark.parametrize("ending", [".group", ".forward", ".checkpoint"])
def test_found_repair_refused_for_a_names_file_that_is_none_and_verify_passed_over_one(path, tmp_path, ending, damage):
    """The messages are whole, and the name is a loss that is told; so is what a group is known by where it forwards."""
    with shmq.open(path) as queue, shmq.open(tmp_path / "to") as to:
        queue.put_many([b"x"] * 3)
        with queue.consumer("g", group=True, ack="explicit") as group, group.get(timeout=0).forward() as forward:
            forward.put(to, b"y")
    file = f"{path}/consumers/g{ending}"
    if damage == "a pipe":
        os.unlink(file)
        os.mkfifo(file, 0o600)
    else:
        os.truncate(file, 20)
    ((named, _),) = [(each.file, each.reason) for each in shmq.verify(path).problems]
    assert named == f"consumers/g{ending}"
    done = shmq.repair(path, tmp_path / "clean")
    assert done.gone == (f"consumers/g{ending}",)
    assert shmq.verify(tmp_path / "clean").problems == ()
    with shmq.open(tmp_path / "clean") as clean:
        assert len(clean) == 3
    if damage == "a pipe":
        assert any(f"g{ending}: it is not a regular file" in each.sentence for each in shmq.why(path))
