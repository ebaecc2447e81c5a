"""What is saved of a queue, to the last number: by recovery, verify, copy and repair; and what may be let go."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import struct
import types
from pathlib import Path

import pytest
from support import (
    HANDED,
    HEAD,
    Child,
    change_journal,
    chunk_files,
    flip,
    hold_until_killed,
    journal_slots,
    make_unclean,
    patch,
    peek,
    set_watermark,
    until,
    words,
)

import shmq
from shmq import _native, errors
from shmq.storage import (
    boots,
    copying,
    directory,
    floors,
    paths,
    pins,
    reach,
    repairing,
    ring,
    shm,
    space,
    staging,
    stretches,
    sync,
    target,
    verify,
    view,
    volatile,
    watermark,
)
from shmq.storage.recover import apply, asides, consumers, progress
from shmq.storage.recover import plan as plans

FOREVER = shmq.Retention.forever()


def whole(text):
    return f"^{re.escape(text)}$"


def refused(kind, verb):
    with pytest.raises(kind) as caught:
        verb()
    return caught.value.args[0]


@pytest.fixture
def long(make):
    """A queue of four chunks, open."""
    queue = make(retention=FOREVER)
    while len(queue._session.chain().names()) < 4:
        queue.put(b"%d" % queue.next_index + bytes(1000))
    return queue


def payloads(queue):
    return [message.payload for message in queue.reader()]


def damage(path, which, at, by=60):
    """Flip a bit in that message of that chunk."""
    flip(chunk_files(path)[which], words(path, which)[at].position + by)


@pytest.fixture
def events(monkeypatch):
    """What was written and synced."""
    gc.collect()  # what an earlier test has left in a cycle writes when it goes
    seen = []
    write = sync.write
    monkeypatch.setattr(sync, "data", lambda fd, what: seen.append(f"data {what}"))
    monkeypatch.setattr(sync, "directory", lambda fd, what: seen.append(f"directory {what}"))

    def written(fd, content, position, what):
        write(fd, content, position, what)
        seen.append(f"write {what}")

    monkeypatch.setattr(sync, "write", written)
    return seen


# ---------------------------------------------------------------- recovery
def test_the_control_page_after_a_recovery_knows_what_there_is(long):
    path = long.path
    long.reserve(10).abort()
    long.put(b"end")
    long.sync()
    mark = watermark.read(long._session.home)
    end, live = long.next_index, long._session.chain().names()
    long.close()
    make_unclean(path)
    with shmq.open(path) as queue:
        found, control = queue.recovery, queue._session.joined().control
        assert (found.kept, found.end) == (end - 1, end) or (found.kept, found.end) == (end, end)
        assert (control.first_live(), control.newest()) == (0, 3)
        assert (control.newest(), control.newest_base()) == live[-1]
        assert (control.durable(), control.durable_chunk()) == (mark.next_index, mark.chunk_sequence)
        assert (
            control.counters()[0] == found.next_index - found.kept or queue._session.joined().member.padding_doubted()
        )
        assert len(queue) == end - 1
        assert queue._session.home.journal.epoch == 2
        assert queue._session.home.journal.ceiling >= found.next_index
        assert queue._session.home.journal.first_index == 0
        assert queue._session.chain().names() == live


def test_a_recovery_writes_and_syncs_each_thing_before_what_depends_on_it(path, events):
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put_many([b"x"] * 5)
        with queue.consumer("c") as consumer:
            consumer.take_many(3)
    make_unclean(path)
    del events[:]
    with shmq.open(path) as queue:
        seen = [each for each in events if not each.endswith(("queue", "home"))]
    assert seen[:8] == [
        "data chunk", "directory chunks", "write checkpoint", "data checkpoint", "directory consumers",
        "write control", "data control", "write journal",
    ]  # fmt: skip
    assert seen[8] == "data journal"
    make_unclean(path)
    del events[:]
    with shmq.open(path):
        pass
    assert "write checkpoint" not in events  # it says so already
    assert queue.recovery.moved == {}


def test_a_recovery_of_a_copy_syncs_every_chunk(long, tmp_path, monkeypatch):
    copy = shutil.copytree(long.path, str(tmp_path / "copy"))
    synced = []
    monkeypatch.setattr(sync, "data", lambda fd, what: synced.append(what))
    with shmq.open(copy):
        assert synced.count("chunk") == 4
    long.close()
    make_unclean(long.path)
    del synced[:]
    with shmq.open(long.path):
        assert synced.count("chunk") == 1


@pytest.mark.parametrize(("durability", "ack", "snapshot", "head", "handed", "start", "stands"), [
    ("process", "auto", None, 3, 3, 1, (3, 3)), ("process", "auto", None, 4, 3, 1, (1, 1)),
    ("process", "auto", 2, 1, 3, 0, (2, 2)), ("process", "auto", 2, 2, 2, 0, (2, 2)),
    ("process", "auto", None, 9, 9, 0, (5, 5)), ("process", "explicit", None, 2, 4, 0, (0, 0)),
    ("process", "explicit", None, 2, 9, 0, (0, 0)), ("sync", "auto", None, 3, 3, 1, (1, 1)),
    ("sync", "auto", 2, 3, 3, 1, (2, 2)), ("sync", "explicit", 4, 3, 2, 1, (4, 4)),
    ("sync", "auto", 9, 9, 9, 0, (5, 5)),
])  # fmt: skip
def test_where_a_name_stands_after_a_power_cut(path, durability, ack, snapshot, head, handed, start, stands):
    kinds = {"process": shmq.Durability.PROCESS, "sync": shmq.Durability.SYNC}
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, durability=kinds[durability])) as queue:
        queue.put_many([b"x"] * 5)
        queue.consumer("c", ack=ack, start=start).close()
        known = queue._session.home.checkpoint("c", writable=True)
        epoch = queue._session.home.journal.epoch
    file = f"{path}/consumers/c.checkpoint"
    patch(file, 4096, bytes(2 * 12288))
    if snapshot is not None:
        patch(file, 4096, _native.format_snapshot(_native.Snapshot(1, epoch, snapshot)))
    known.head, known.handed, known.holder = head, handed, 77
    known.save_cursor(0, 4352, 0, 0)
    patch(file, 448, struct.pack("<QQQ", 5, 4, 3))
    make_unclean(path)
    with shmq.open(path) as queue:
        assert (peek(file, HEAD), peek(file, HANDED)) == stands
        assert queue.recovery.moved == ({} if stands[0] == head else {"c": (head, stands[0])})
        known = queue._session.home.checkpoint("c")
        assert (known.holder, known.cursor(), known.asked(), known.answered(), known.snapshot_synced()) == (
            0,
            None,
            0,
            0,
            0,
        )


def test_what_is_behind_a_cut_is_set_aside_under_names_of_its_epoch(long):
    path = long.path
    files = [file.name for file in chunk_files(path)]
    bases = [base for _, base in long._session.chain().names()]
    end = long.next_index
    long.close()
    damage(path, 1, 3)
    cut = words(path, 1)[3].position
    make_unclean(path)
    with shmq.open(path) as queue:
        found = queue.recovery
        assert found.kept == found.end == bases[1] + 3
        assert found.where == (f"chunks/{files[1]}", cut)
        assert found.aside == tuple(f"chunks/{name}" for name in files[1:])
        assert found.aside_messages == end - bases[1] - 4
        assert found.next_index >= end
        assert found.cut_bytes > 0
        assert (found.adopted, found.swept, found.from_epoch, found.to_epoch) == (0, 0, 1, 2)
    assert sorted(os.listdir(f"{path}/aside")) == sorted(f"00000001-{name}" for name in files[1:])
    assert shmq.verify(path).aside == {1: tuple(sorted(files[1:]))}
    taken = asides.Aside(directory.Directory(path, read_only=False))
    for turn in range(3):
        Path(path, "chunks", files[2]).write_bytes(b"x")
        taken.take("chunks", files[2])
        assert f"00000002-{files[2]}{f'-{turn}' if turn else ''}" in os.listdir(f"{path}/aside")
    assert taken.names == [f"chunks/{files[2]}"] * 3


def test_what_is_set_aside_is_listed_by_epoch_and_other_files_are_not(queue):
    home = queue._session.home
    assert asides.set_aside(home) == {}
    Path(queue.path, "aside").mkdir(mode=0o700)
    for name in ("0000000a-b", "0000000a-a-1", "00000001-x", "nothing", "1-x", "0000000A-x"):
        Path(queue.path, "aside", name).write_bytes(b"")
    assert asides.set_aside(home) == {10: ("a-1", "b"), 1: ("x",)}


def test_damage_below_the_watermark_is_told_with_all_that_is_known(long):
    path = long.path
    files = chunk_files(path)
    bases = [base for _, base in long._session.chain().names()]
    long.sync()
    mark = watermark.read(long._session.home).next_index
    long.close()
    position = words(path, 3)[0].position
    flip(files[3], position + 60)
    make_unclean(path)
    for flags in ({}, {"read_only": True}):
        said = refused(errors.Corrupt, lambda flags=flags: shmq.open(path, **flags))
        assert said.startswith(f"cannot recover {path}: {path}/chunks/{files[3].name}, position {position}: ")
        assert said.endswith(
            f"; up to index {mark} the disk had agreed to everything, and only what comes before {bases[3]} is whole. "
            "Nothing was changed; `shmq repair` writes a clean copy beside it"
        )
    for file in files:
        file.unlink()
    said = refused(errors.Corrupt, lambda: shmq.open(path))
    assert said.startswith(f"cannot recover {path}: {path}/chunks: {files[0].name} is missing; up to index {mark} ")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_set_whose_manifest_says_nothing_is_not_taken_for_one_that_is_over(path, monkeypatch, damaged):
    """Of one that is over the last SEAL may be missing: a recovery was writing it."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"before")
        with queue.stage() as staged:
            staged.put_many([bytes(200)] * 100)
            with monkeypatch.context() as unremoved:
                unremoved.setattr(staging.Set, "remove", lambda self: None)
                queue.adopt(staged)
    (manifest,) = Path(path, "staging").glob("*/manifest")
    if damaged:
        flip(manifest, manifest.stat().st_size - 1)
    else:
        shutil.rmtree(manifest.parent)
    seal = words(path, -1)[-1]
    patch(chunk_files(path)[-1], seal.position, bytes(8))
    make_unclean(path)
    with shmq.open(path) as queue:
        assert len(queue) == (1 if damaged else 101)


def test_a_chunk_that_is_not_the_one_that_was_staged_is_told_and_its_set_goes(path, monkeypatch):
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, checksum=False)) as queue:
        queue.put(b"before")
        with queue.stage() as staged, monkeypatch.context() as unremoved:
            staged.put_many([bytes(200)] * 100)
            unremoved.setattr(staging.Set, "remove", lambda self: None)
            queue.adopt(staged)
    file = chunk_files(path)[-1]
    fd = os.open(file, os.O_RDWR)
    os.pwrite(fd, b"another!", 56)
    target._mend_crc(fd, 12, 16, 128)
    os.close(fd)
    make_unclean(path)
    with shmq.open(path) as queue:
        assert f"chunks/{file.name} is not the chunk that was staged" in queue.recovery.reason
        assert len(queue) == 1


def test_an_index_that_nobody_can_give_is_no_next_one(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
    for ceiling, fits in ((1 << 62, True), ((1 << 62) + 1, False)):
        change_journal(path, 32, ceiling.to_bytes(8, "little"))
        make_unclean(path)
        if fits:
            home = directory.Directory(path, read_only=True)
            assert plans.make_plan(home).next_index == 1 << 62
            home.close()
            continue
        said = f"cannot recover {path}: an index of {ceiling} is beyond all that can be given"
        assert refused(errors.Corrupt, lambda: shmq.open(path)) == said


def test_the_next_index_is_beyond_all_that_any_chunk_there_can_have_given(long):
    path = long.path
    live = long._session.chain().names()
    sizes = [(base, file.stat().st_size) for (_, base), file in zip(live, chunk_files(path), strict=True)]
    long.close()
    most = [base + size // _native.RECORD_BYTES_MIN for base, size in sizes]
    home = directory.Directory(path, read_only=True)
    change_journal(path, 32, bytes(8))
    home.read_journal()
    plan = plans.make_plan(home)
    assert plan.next_index == most[3]
    damage(path, 1, 3)
    assert plans.make_plan(home).next_index == most[3]
    chunk_files(path)[3].unlink()
    assert plans.make_plan(home).next_index == most[2]
    assert plans._most(7, 400) == 7 + 400 // _native.RECORD_BYTES_MIN
    home.close()


def test_a_read_only_look_at_an_unclean_queue_ends_where_its_recovery_will(long):
    path = long.path
    bases = [base for _, base in long._session.chain().names()]
    long.close()
    damage(path, 2, 3)
    make_unclean(path)
    home = directory.Directory(path, read_only=True)
    view = plans.view(home)
    assert view.names() == list(enumerate(bases[:3]))
    for which in (0, 1):
        survey = view.pieces[which].survey
        assert view.ends(which) == (survey.stopped, survey.stopped_ordinal, False)
        assert bases[which] + survey.stopped_ordinal == bases[which + 1]
    assert view.ends(2) == (words(path, 2)[3].position, 3, True)
    home.close()
    with shmq.open(path, read_only=True) as queue:
        assert (queue.next_index, len(queue)) == (bases[2] + 3, bases[2] + 3)


def test_an_empty_view_has_nothing():
    nothing = view.View([])
    assert (nothing.names(), nothing._last) == ([], -1)


def test_who_recovers_tells_how_far_it_is_and_keeps_others_waiting(queue, monkeypatch, caplog):
    clock, beats = [10**12], []
    monkeypatch.setattr(progress.time, "monotonic_ns", lambda: clock[0])
    monkeypatch.setattr(os, "utime", lambda name, dir_fd: beats.append((name, dir_fd)))
    seen = progress.Progress(queue._session.home, 1234, "settling")
    told = []
    monkeypatch.setattr(progress, "_tell", told.append)
    steps = [(249, 0, 0), (1, 1, 0), (249, 1, 0), (1, 2, 0), (4499, 3, 0), (1, 3, 1), (4999, 4, 1), (1, 4, 2)]
    for passed, beaten, said in steps:
        clock[0] += passed * 10**6
        seen.step()
        assert (len(beats), len(told)) == (beaten, said), passed
    assert beats[0] == ("queue.shmq", queue._session.home.fd)
    assert told == [f"recovering {queue.path}: settling chunk {at} of 1,234" for at in (6, 8)]
    queue._session.home.read_only = True
    clock[0] += 10**10
    seen.step()
    assert len(beats) == 4
    queue._session.home.read_only = False


def test_what_lies_aside_is_told_with_its_remedy_and_only_then(queue, monkeypatch):
    told = []
    monkeypatch.setattr(progress, "_tell", told.append)
    found = progress.Recovery(3, 4, 1000, 1000, 2000, 5, None, "why", (), 0, {}, 0, 0)
    progress.tell_of(queue._session.home, None)
    progress.tell_of(queue._session.home, found)
    assert told == []
    import dataclasses

    progress.tell_of(queue._session.home, dataclasses.replace(found, aside_messages=12345))
    said = f"recovering {queue.path} kept 1,000 messages; 12,345 more that were whole lay behind damage (why) and are "
    said += f"in its folder aside/: `shmq repair {queue.path} --aside 3`, or shmq.repair(path, aside=3), makes a queue "
    said += "of them"
    assert told == [said]


def test_somebody_is_there_when_any_seat_is_taken(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
        home = directory.Directory(path, read_only=False)
        assert apply.somebody_is_there(home) is True
    assert apply.somebody_is_there(home) is False
    os.rename(f"{path}/control.shmq", f"{path}/c")
    assert apply.somebody_is_there(home) is False
    os.rename(f"{path}/c", f"{path}/control.shmq")

    def sit(say):
        with shmq.open(path):
            hold_until_killed(say)

    with Child(sit) as child:
        assert child.hear() == "ready"
        make_unclean(path)
        said = f"cannot recover {path}: a process that has it open believes in another boot"
        assert refused(errors.Busy, lambda: shmq.open(path)) == said
        child.kill()
    home.close()


def test_a_queue_that_was_recovered_meanwhile_is_not_recovered_again(path):
    shmq.open(path).close()
    home = directory.Directory(path, read_only=False)
    assert apply.recover(home) is None
    make_unclean(path)
    assert apply.recover(home).to_epoch == 2
    assert apply.recover(home) is None
    home.close()


def test_a_checkpoint_is_whole_when_what_never_changes_is_as_it_was_made(queue):
    queue.consumer("c").close()
    page = Path(queue.path, "consumers", "c.checkpoint").read_bytes()
    home = queue._session.home
    assert consumers.checkpoint_is_whole(page, home.queue_id, "c")
    assert not consumers.checkpoint_is_whole(page, bytes(16), "c")
    assert not consumers.checkpoint_is_whole(page, home.queue_id, "d")
    assert not consumers.checkpoint_is_whole(page[:-1], home.queue_id, "c")
    for at in (0, 7, 16, 31, 32, 36, 48, 56, 60, 63, 64, 100, 127):
        changed = page[:at] + bytes([page[at] ^ 1]) + page[at + 1 :]
        assert not consumers.checkpoint_is_whole(changed, home.queue_id, "c"), at
    for at in (128, 191, HEAD, HANDED, 4000, 5000):
        changed = page[:at] + bytes([page[at] ^ 1]) + page[at + 1 :]
        assert consumers.checkpoint_is_whole(changed, home.queue_id, "c"), at


def test_stretches_end_at_damage_and_count_padding(long):
    path = long.path
    damage(path, 0, 5)
    damage(path, 0, 9)
    home = long._session.home
    with stretches.opened(home, "chunks", chunk_files(path)[0].name, 0, 0) as chunk:
        found = list(stretches.stretches(chunk))
        assert [(each.ordinal, each.survey.messages) for each in found][:2] == [(0, 5), (6, 3)]
        ends = [each.damage and (each.damage.ordinal, each.damage.end_ordinal) for each in found]
        assert ends == [(5, 6), (9, 10), None]
        count = long._session.chain().names()[1][1] - 2
        assert stretches.whole_behind(chunk) == sum(each.survey.messages for each in found) == count
        assert stretches.whole_behind(chunk, found[1].position, 6) == stretches.whole_behind(chunk) - 5
        assert stretches.whole_behind(chunk, found[2].position, 10) == found[2].survey.messages


# ---------------------------------------------------------------- verify
def test_a_report_counts_every_index_once(long):
    path = long.path
    long.reserve(10).abort()
    long.put(b"end")
    end = long.next_index
    bases = [base for _, base in long._session.chain().names()]
    found = shmq.verify(path)
    assert (found.messages, found.chunks, found.padded, found.lost, found.open_claims) == (end - 1, 4, 1, 0, 0)
    slot = long.reserve(10)
    assert shmq.verify(path).open_claims == 1
    slot.abort()
    damage(path, 1, 3)
    damage(path, 1, 4)
    damage(path, 2, 0)
    found = shmq.verify(path)
    assert (found.messages, found.lost, found.more) == (end - 4, 3, 0)
    assert found.problems[0].position == words(path, 1)[3].position
    patch(chunk_files(path)[0], 0, bytes(64))
    found = shmq.verify(path)
    assert (found.messages, found.lost, found.chunks) == (end - 4 - bases[1], 3 + bases[1], 3)
    assert found.problems[0][:2] == (f"chunks/{chunk_files(path)[0].name}", 0)


def test_a_chunk_that_is_missing_or_does_not_fit_is_told_where(long):
    path = long.path
    names = [paths.chunk_name(base, sequence) for sequence, base in long._session.chain().names()]
    long.close()

    def problems(change):
        copy = shutil.copytree(path, f"{path}-{change.__name__}")
        change(Path(copy, "chunks"))
        return [tuple(problem) for problem in shmq.verify(copy).problems]

    def first_gone(chunks):
        (chunks / names[0]).unlink()

    def middle_gone(chunks):
        (chunks / names[1]).unlink()

    def moved(chunks):
        base = int(names[3][:16], 16) + 1
        (chunks / names[3]).rename(chunks / paths.chunk_name(base, 3))

    assert ("chunks", 0, "chunk 0 is missing, where the queue begins") in problems(first_gone)
    assert ("chunks", 0, f"chunk 1 is missing between {names[0]} and {names[2]}") in problems(middle_gone)
    base = int(names[3][:16], 16)
    told = problems(moved)
    said = f"the next chunk should begin at {base}, and begins at {base + 1}"
    assert (f"chunks/{names[2]}", said) in {(file, reason) for file, _, reason in told}


def test_a_chunk_that_is_not_sealed_and_a_hole_at_the_end_are_told(long):
    path = long.path
    names = [paths.chunk_name(base, sequence) for sequence, base in long._session.chain().names()]
    bases = [base for _, base in long._session.chain().names()]
    end = long.next_index
    long.sync()
    last = words(path, 3)[-1]
    seal = words(path, 2)[-1]
    patch(chunk_files(path)[3], last.position, bytes(last.span * 8))
    found = shmq.verify(path)
    assert tuple(found.problems[0]) == (
        f"chunks/{names[3]}", last.position, f"a hole: messages up to index {end} were put here"
    )  # fmt: skip
    assert (found.lost, found.messages) == (1, end - 1)
    patch(chunk_files(path)[2], seal.position, bytes(8))
    found = shmq.verify(path)
    told = [tuple(problem) for problem in found.problems]
    assert (f"chunks/{names[2]}", seal.position, f"it is not sealed, and {names[3]} is there") in told
    assert found.lost == 1
    home = long._session.home
    with stretches.opened(home, "chunks", names[3], 3, bases[3]) as chunk:
        known = reach.reach(home)
        assert reach.known_end(home, chunk, 3, known) == end - bases[3]
        patch(chunk_files(path)[3], 128, bytes(8))
        assert reach.known_end(home, chunk, 3, known) == watermark.read(home).next_index - bases[3]
        assert reach.known_end(home, chunk, 2, known) == 0


def test_files_beside_the_chunks_are_told_with_their_place_and_reason(queue):
    path = queue.path
    queue.put(b"x")
    queue.sync()
    queue.put(b"y")
    queue.sync()
    queue.consumer("c").close()
    queue.consumer("d").close()
    with queue._session.home.admin():
        queue._session.home.write_journal(queue._session.home.read_journal())
    assert shmq.verify(path)
    size = _native.CHECKPOINT_BYTES
    os.truncate(f"{path}/consumers/c.checkpoint", size + 1)
    patch(f"{path}/consumers/d.checkpoint", 50, b"xx")
    for page in (1, 2, 3, 4):
        flip(f"{path}/queue.shmq", page * 4096 + 9)
        told = {tuple(problem) for problem in shmq.verify(path).problems} if page != 2 else set()
        flip(f"{path}/queue.shmq", page * 4096 + 9)
        slot = "a journal slot" if page < 3 else "a watermark slot"
        assert page == 2 or ("queue.shmq", page * 4096, f"{slot} fails its checksum; the other one is used") in told
        if page != 2:
            assert len(told) == 3
    assert {tuple(problem) for problem in shmq.verify(path).problems} == {
        ("consumers/c.checkpoint", 0, f"it has {size + 1} bytes instead of {size}"),
        ("consumers/d.checkpoint", 0, "its header fails its checksum, or it belongs to another name or queue"),
    }
    os.truncate(f"{path}/consumers/c.checkpoint", size - 1)
    assert ("consumers/c.checkpoint", 0, f"it has {size - 1} bytes instead of {size}") in shmq.verify(path).problems
    staged = staging.Set(queue._session.home, 5)
    assert staged.begin()
    Path(staged.path, "manifest").write_bytes(b"x")
    Path(staged.path, "manifest").chmod(0o600)
    assert ("staging/0000000005", 0, "it fails its checksum; nothing was changed") in shmq.verify(path).problems
    staged.remove()
    staged.close()


def test_more_than_a_thousand_problems_are_counted_and_not_told():
    report = verify._Report()
    for at in range(1003):
        report.add("f", at, "r")
    assert (len(report.problems), report.more) == (1000, 3)
    report.messages, report.bytes, report.chunks, report.padded, report.claims, report.lost = range(1, 7)
    sums = verify._Report()
    sums.take(report)
    sums.take(report)
    assert (len(sums.problems), sums.more) == (1000, 1006)
    done = sums.done()
    assert (done.messages, done.bytes, done.chunks, done.padded, done.open_claims, done.lost) == (2, 4, 6, 8, 10, 12)
    assert not done


# ---------------------------------------------------------------- copies
def test_a_copy_has_these_files_and_numbers_and_no_others(long, tmp_path):
    long.reserve(10).abort()
    long.put(b"end")
    end = long.next_index
    with long.consumer("c") as consumer:
        consumer.take_many(7, timeout=0)
    done = long.copy(tmp_path / "copy")
    assert done == copying.Copied(str(tmp_path / "copy"), end - 1, 0, end)
    assert sorted(os.listdir(done.path)) == ["chunks", "consumers", "control.shmq", "queue.shmq"]
    assert os.listdir(f"{done.path}/consumers") == ["c.checkpoint"]
    ((_, slot),) = journal_slots(done.path)
    sequence, epoch, boot, ceiling, first_live, first_index = struct.unpack_from("<QQ16sQQQ", slot)
    last = chunk_files(long.path)[-1]
    most = int(last.name[:16], 16) + last.stat().st_size // _native.RECORD_BYTES_MIN
    assert (sequence, epoch, boot, first_live, first_index) == (2, 1, bytes(16), 0, 0)
    assert ceiling == max(most, end)
    assert shmq.verify(done.path).messages == end - 1
    with shmq.open(done.path) as copy:
        assert payloads(copy) == payloads(long)
        assert copy.consumers()["c"].head == 7


def test_a_copy_is_on_the_disk_with_its_folders_and_its_name(long, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    long.copy(tmp_path / "copy")
    making = {path for path in synced if re.search(r"/copy\.making-[0-9a-f]{8}(/(chunks|consumers))?$", path)}
    assert {path.rpartition("/")[2][:12] for path in making} == {"copy.making-", "chunks", "consumers"}
    assert synced[-1] == str(tmp_path)
    assert len([path for path in synced if "(deleted)" in path]) == 4 + 2  # chunks, control.shmq and queue.shmq


def test_a_copy_is_refused_where_something_is_or_nothing_can_be(queue, tmp_path):
    (tmp_path / "there").write_bytes(b"")
    said = f"cannot write to {tmp_path}/there: something is there; nothing was changed"
    assert refused(errors.Unsafe, lambda: queue.copy(tmp_path / "there")) == said
    said = f"cannot write to {tmp_path}/a/b: the directory above it does not exist"
    assert refused(errors.NotFound, lambda: queue.copy(tmp_path / "a" / "b")) == said
    assert sorted(os.listdir(tmp_path)) == ["q", "there"]


def test_a_place_that_somebody_takes_meanwhile_is_left_to_him(queue, tmp_path, monkeypatch):
    rename = _native.rename_new

    def taken(above, old, new):
        (tmp_path / "copy").mkdir()
        return rename(above, old, new)

    monkeypatch.setattr(_native, "rename_new", taken)
    said = f"cannot write to {tmp_path}/copy: somebody has put something there meanwhile"
    assert refused(errors.Unsafe, lambda: queue.copy(tmp_path / "copy")) == said
    assert sorted(os.listdir(tmp_path)) == ["copy", "q"]


def test_a_damaged_queue_is_not_copied_and_says_where(long, tmp_path):
    damage(long.path, 1, 3)
    said = refused(errors.Corrupt, lambda: long.copy(tmp_path / "copy"))
    assert said.startswith(f"cannot copy {long.path}: {chunk_files(long.path)[1]}: ")
    assert said.endswith("; nothing was written")
    assert os.listdir(tmp_path) == ["q"]


def test_what_was_copied_may_be_retired_and_a_pin_goes_with_the_copy(long, tmp_path, monkeypatch):
    moved = []
    move = pins.Pin.move
    monkeypatch.setattr(pins.Pin, "move", lambda self, index: moved.append(index) or move(self, index))
    long.copy(tmp_path / "copy")
    assert moved == [base for _, base in long._session.chain().names()]
    assert not [name for name in os.listdir(f"{long.path}/consumers") if name.endswith(".pin")]


def test_a_copy_that_cannot_hold_anything_back_begins_anew_twenty_times(long, tmp_path, monkeypatch):
    tries, forgotten = [], []

    def gone(*given):
        tries.append(given)
        raise errors.Gone("gone", 0)

    monkeypatch.setattr(copying, "_copy_chunks", gone)
    monkeypatch.setattr(target.Target, "forget_chunks", lambda self: forgotten.append(True))
    said = f"cannot copy {long.path}: 20 times what was to be copied next was retired meanwhile; nothing was written. "
    said += "Opened for writing, a queue holds back what is being copied"
    assert refused(errors.Gone, lambda: long.copy(tmp_path / "copy")) == said
    assert (len(tries), len(forgotten)) == (20, 20)


@pytest.mark.parametrize("damaged", [(1, 3), (0, 0), (3, 0), (2, -2)])
def test_of_a_damaged_chunk_one_message_is_lost_and_it_stays_the_chain_it_was(long, tmp_path, damaged):
    path = long.path
    live, end = long._session.chain().names(), long.next_index
    which, at = damaged
    lost = [index for index, word in enumerate(w for part in range(4) for w in words(path, part) if w.state == 2)]
    place = words(path, which)[at]
    index = live[which][1] + words(path, which).index(place)
    flip(chunk_files(path)[which], place.position + 60)
    done = shmq.repair(path, tmp_path / "clean")
    assert (done.messages, done.lost, done.kept, done.gone) == (end - 1, 1, "", ())
    assert not done.complete
    assert len(done.problems) == 1
    with shmq.open(done.path) as clean:
        assert [message.index for message in clean.reader()] == [each for each in lost if each != index]
        assert clean._session.chain().names() == live
        assert clean.put(b"after") >= end


def test_a_chunk_that_is_lost_becomes_an_empty_one_and_all_its_indexes_are_lost(long, tmp_path):
    live, end = long._session.chain().names(), long.next_index
    long.close()
    for which, change in ((1, Path.unlink), (2, lambda file: patch(file, 0, bytes(64))), (0, Path.unlink)):
        copy = shutil.copytree(long.path, f"{long.path}-{which}")
        change(chunk_files(copy)[which])
        done = shmq.repair(copy, tmp_path / f"clean-{which}")
        gone = range(live[which][1], live[which + 1][1])
        kept = end - len(gone)
        assert (done.messages, done.lost) == (kept, len(gone)) or (which == 0 and done.messages == kept)
        with shmq.open(done.path) as clean:
            assert [message.index for message in clean.reader()] == [each for each in range(end) if each not in gone]
            assert clean.put(b"x") >= end


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("member", range(5))
@pytest.mark.parametrize("which", [0, 1, 3])
def test_of_a_batch_that_is_damaged_what_is_whole_is_saved_also_at_the_end_of_its_chunk(
    make, tmp_path, which, member, sealed
):
    """A batch that is not whole ends with padding; else the next recovery would cut before it."""
    queue = make(retention=FOREVER)
    while len(queue._session.chain().names()) < 4:
        queue.put_many([b"%d" % queue.next_index + bytes(300)] * 5)
    path, end, bases = queue.path, queue.next_index, [base for _, base in queue._session.chain().names()]
    there = [word for word in words(path, which) if word.state == 2]
    first = len(there) - 5 + member
    position, file = there[first].position, chunk_files(path)[which]
    last = words(path, which)[-1]
    end_of_last = last.position + 8 * last.span
    behind = last.position if sealed and which < 3 else end_of_last if which == 3 else file.stat().st_size
    patch(file, position, b"\xff" * (behind - position))
    lost = range(bases[which] + first, bases[which] + len(there))
    done = shmq.repair(path, tmp_path / "clean")
    assert (done.messages, done.lost) == (end - len(lost), len(lost))
    assert shmq.verify(done.path)
    with shmq.open(done.path) as clean:
        assert [message.index for message in clean.reader()] == [each for each in range(end) if each not in lost]
        assert [base for _, base in clean._session.chain().names()] == bases


def test_what_is_whole_is_not_repaired_in_place_and_beside_it_is_copied(queue, tmp_path):
    path = queue.path
    queue.put_many([b"x"] * 5)
    queue.close()
    done = shmq.repair(path, in_place=True)
    assert done == repairing.Repaired(path, 5, 0, ())
    assert done.complete
    assert not repairing.Repaired(path, 5, 1, ()).complete
    assert not repairing.Repaired(path, 5, 0, (), gone=("f",)).complete
    done = shmq.repair(path)
    assert (done.path, done.messages, done.lost, done.problems) == (f"{path}.repaired", 5, 0, ())
    assert sorted(os.listdir(done.path)) == ["chunks", "consumers", "control.shmq", "queue.shmq"]


def test_damaged_queues_are_kept_under_names_that_are_free(queue):
    path = queue.path
    queue.put_many([b"x"] * 5)
    queue.close()
    for turn in range(3):
        damage(path, 0, 4 - turn, 40)
        kept = f"{path}.damaged{f'-{turn}' if turn else ''}"
        done = shmq.repair(path, in_place=True)
        assert (done.path, done.kept, done.lost) == (path, kept, 1)
        assert os.path.exists(f"{kept}/queue.shmq")
    assert repairing._free_name(f"{path}.free") == f"{path}.free"
    with shmq.open(path) as queue:
        assert payloads(queue) == [b"x"] * 2
        damage(path, 0, 0, 40)
        said = f"cannot repair {path} in place: somebody has it open; nothing was changed"
        assert refused(errors.Busy, lambda: shmq.repair(path, in_place=True)) == said


def source(sequence, base):
    return repairing._Source(sequence, base, 0, "f")


def test_of_doubled_and_hopeless_chunks_one_of_each_sequence_is_taken():
    one_each = repairing._one_each
    assert one_each([source(2, 20), source(1, 10)]) == [source(1, 10), source(2, 20)]
    assert one_each([source(1, 10), source(1, 12), source(2, 20)]) == [source(1, 10), source(2, 20)]
    assert one_each([source(1, 10), source(2, 9), source(3, 10)]) == [source(1, 10), source(3, 10)]
    assert one_each([source(1, 10), source(1001, 10)]) == [source(1, 10), source(1001, 10)]
    assert one_each([source(1, 10), source(1002, 10)]) == [source(1, 10)]
    assert one_each([source(1, 1 << 62), source(2, (1 << 62) + 1)]) == [source(1, 1 << 62)]


def test_checksums_are_mended_of_what_they_are_of(tmp_path):
    content = bytearray(os.urandom(200))
    file = tmp_path / "f"
    file.write_bytes(content)
    file.chmod(0o600)
    fd = os.open(file, os.O_RDWR)
    try:
        target._mend_crc(fd, 12, 16, 128)
        content[12:16] = _native.crc32c(bytes(content[16:128])).to_bytes(4, "little")
        assert file.read_bytes() == content
        target._mend_crc(fd, 60, 0, 128)
        zeroed = content[:60] + bytes(4) + content[64:128]
        content[60:64] = _native.crc32c(bytes(zeroed)).to_bytes(4, "little")
        assert file.read_bytes() == content
        before = file.read_bytes()
        target.give_id(fd, bytes(content[40:56]), 40, (12, 16, 128))
        assert file.read_bytes() == before
        target.give_id(fd, bytes(range(16)), 40, (12, 16, 128))
        content[40:56] = bytes(range(16))
        content[12:16] = _native.crc32c(bytes(content[16:128])).to_bytes(4, "little")
        assert file.read_bytes() == content
    finally:
        os.close(fd)


def test_what_was_set_aside_becomes_a_queue_and_an_epoch_without_is_told(long):
    path = long.path
    bases, end = [base for _, base in long._session.chain().names()], long.next_index
    long.close()
    damage(path, 1, 3)
    make_unclean(path)
    shmq.open(path).close()
    done = shmq.repair(path, aside=1)
    lost = bases[1] + 3
    assert (done.path, done.messages, done.problems, done.gone) == (f"{path}.aside-1", end - bases[1] - 1, (), ())
    assert done.lost == 1
    with shmq.open(done.path) as queue:
        assert [message.index for message in queue.reader()] == [each for each in range(bases[1], end) if each != lost]
    said = f"no recovery of epoch 2 has set a chunk of {path} aside"
    assert refused(errors.NotFound, lambda: shmq.repair(path, aside=2)) == said


# ---------------------------------------------------------------- what may go
def retire(queue):
    space.retire(queue._session.home, queue._session.chain(), queue._session.joined().control)


def test_as_many_chunks_go_as_retention_says_and_never_the_last(long):
    home, chain = long._session.home, long._session.chain()
    live = chain.names()
    sizes = [Path(long.path, "chunks", paths.chunk_name(base, sequence)).stat().st_size for sequence, base in live]

    options = home.options

    def count(kind, limit=None):
        home.options = types.SimpleNamespace(
            checksum=True, durability=options.durability, retention=types.SimpleNamespace(kind=kind, limit=limit)
        )
        return space._may_go(home, chain, kind)[1]

    try:
        assert count("bytes", sum(sizes)) == 0
        assert count("bytes", sum(sizes) - 1) == 1
        assert count("bytes", sum(sizes[1:])) == 1
        assert count("bytes", sizes[3]) == 3
        assert count("bytes", sizes[3] - 1) == 3
        made = [space._created(home, name) for name in live]
        assert made == sorted(made)
        for gone in range(4):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(space.time, "time_ns", lambda gone=gone: made[gone] + 10**9)
                assert count("age", 1.0) == gone
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(space.time, "time_ns", lambda: made[2] + 10**9 - 1)
            assert count("age", 1.0) == 1
        assert count("acked") == 0
        for head, gone in ((0, 0), (live[1][1] - 1, 0), (live[1][1], 1), (live[3][1] - 1, 2), (long.next_index, 3)):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(space, "floor", lambda home, member, head=head: head)
                assert count("acked") == gone
    finally:
        home.options = options


def test_the_floor_is_that_of_the_slowest_name_or_what_was_dropped(queue):
    chain = queue._session.chain()
    queue.put_many([b"x"] * 9)
    assert space.floor(queue._session.home, chain) is None
    queue._session.joined().control.drop_for_all(4)
    assert space.floor(queue._session.home, chain) == 4
    queue.consumer("a", start=7).close()
    assert space.floor(queue._session.home, chain) == 7
    queue.consumer("b", start=5).close()
    assert space.floor(queue._session.home, chain) == 5
    queue.consumer("looks", start=0, hold="nothing").close()
    assert space.floor(queue._session.home, chain) == 5


def test_a_retirement_is_written_down_before_anything_goes_and_counts_padding_down(make, events):
    queue = make(retention=shmq.Retention.acked())
    queue.reserve(10).abort()
    while len(queue._session.chain().names()) < 3:
        queue.put(bytes(1000))
    control = queue._session.joined().control
    live = queue._session.chain().names()
    assert control.counters()[0] == 1
    queue.consumer("c", start=live[1][1]).close()
    queue._session.joined().control.drop_for_all(0)
    del events[:]
    retire(queue)
    assert events == ["write journal", "data journal"] or events[-2:] == ["write journal", "data journal"]
    journal = queue._session.home.read_journal()
    assert (journal.first_live, journal.first_index) == live[1]
    assert control.first_live() == 1
    assert control.counters()[0] == 0
    assert queue._session.chain().names() == live[1:]
    assert len(queue) == queue.next_index - live[1][1]
    del events[:]
    retire(queue)
    assert events == []


def test_what_is_before_a_pin_goes_up_to_the_chunk_that_begins_there(make):
    for beyond in (0, -1):
        queue = make(f"{make().path}{beyond}", retention=shmq.Retention.bytes(16384))
        with queue.reader(0, pin=True):
            while len(queue._session.chain().names()) < 4:
                queue.put(bytes(1000))
            live = queue._session.chain().names()
            pin = pins.Pin(queue._session.home, "mine")
            pin.take()
            pin.move(live[2][1] + beyond)
        retire(queue)
        assert queue._session.chain().names() == live[2 if beyond == 0 else 1 :]
        pin.close()


def test_what_a_slow_roller_brought_back_is_taken_away(make):
    queue = make(retention=shmq.Retention.acked())
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    live = queue._session.chain().names()
    queue.consumer("c", start=live[2][1]).close()
    retire(queue)
    back = Path(queue.path, "chunks", paths.chunk_name(live[0][1], 0))
    back.write_bytes(b"x")
    with queue.consumer("c") as consumer:
        while consumer.lag:
            consumer.take(timeout=0)
    retire(queue)
    assert not back.exists()


def test_what_the_world_refuses_beside_a_call_is_logged(queue, monkeypatch, caplog):
    def refuse(*_, **__):
        raise errors.DiskFull("no room")

    monkeypatch.setattr(space, "_retire", refuse)
    retire(queue)
    space.retire_purged(queue._session.home, queue._session.chain(), queue._session.joined().control)
    later = "no room; the next retirement or purge does it"
    assert [record.getMessage() for record in caplog.records] == [
        f"{queue.path} keeps what retention allows to take away: {later}",
        f"{queue.path} is purged, but its disk space was not given back yet: {later}",
    ]
    with pytest.raises(errors.DiskFull):
        space.make_room(queue._session.home, queue._session.chain(), queue._session.joined().control)


def test_who_retires_waits_for_nobody_and_who_makes_room_a_little(queue, monkeypatch):
    waited = []
    monkeypatch.setattr(space, "_retire_and_reclaim", lambda *given, **how: None)
    monkeypatch.setattr(
        queue._session.home, "admin", lambda timeout: waited.append(timeout) or contextlib.nullcontext()
    )
    given = queue._session.home, queue._session.chain(), queue._session.joined().control
    space.retire(*given)
    space.make_room(*given)
    assert waited == [0, 0.25]
    queue._session.home.read_only = True
    space.retire(*given)
    queue._session.home.read_only = False
    queue._session.home.options = shmq.Options(retention=FOREVER)
    space.retire(*given)
    assert len(waited) == 2


def test_padding_is_counted_anew_when_somebody_died_between_changing_and_counting(long):
    long.reserve(5).abort()
    long.reserve(5).abort()
    long.put(b"x")
    chain, control = long._session.chain(), long._session.joined().control
    assert space.padded(long._session.home, chain) == 2
    control.add_padding(7)
    assert space.padded(long._session.home, chain) == 9  # it is believed
    assert space._count_padding(long._session.home, chain) == 2
    assert control.counters()[0] == 2


# ---------------------------------------------------------------- floors, and what holds back
def test_the_floor_of_a_group_is_its_rings_and_of_a_damaged_one_what_was_written(queue):
    queue.put_many([b"x"] * 9)
    member = queue.consumer("g", group=True, ack="explicit")
    held = member.get_many(4, 0)
    names = floors.Names(queue._session.home, queue._session.joined().member)
    names.look()
    assert names.floors(0) == {"g": 0}
    held[0].ack()
    held[1].ack()
    assert names.floors(0) == {"g": 2}
    held[2].nack(delay=3600)
    held[3].ack()
    for message in member.get_many(9, 0):
        message.ack()
    assert names.floors(0) == {"g": 2}
    group = names._known["g"][1]
    assert (group.holds(2), group.holds(3), group.holds(9)) == (False, False, False)
    names.drop(9)
    assert names.floors(0) == {"g": 9}
    member.close()
    with open(f"{queue.path}/consumers/g.ring", "r+b") as file:
        file.write(b"x")
    names = floors.Names(queue._session.home, queue._session.joined().member)
    names.look()
    written = queue._session.home.checkpoint("g").written_floor()
    assert names.floors(0) == {"g": written}
    assert names.floors(written + 3) == {"g": written + 3}
    group = names._known["g"][1]
    assert group.holds(9) is False
    group.drop(9)
    group.prepare()
    assert names.drop(9) is True


def test_a_name_alone_holds_what_it_was_handed_and_a_damaged_one_nothing(queue):
    queue.put_many([b"x"] * 9)
    consumer = queue.consumer("c", ack="explicit")
    messages = consumer.get_many(4, timeout=0)
    names = floors.Names(queue._session.home, queue._session.joined().member)
    names.look()
    name = names._known["c"][1]
    assert (name.floor(0), name.floor(6)) == (0, 6) or name.floor(0) == 0
    assert [name.holds(target) for target in (0, 1, 4, 9)] == [False, True, True, True]
    assert names.drop(0) is True
    assert names.drop(1) is False
    messages[0].ack()
    assert [name.holds(target) for target in (0, 1, 2)] == [False, False, True]
    consumer.ack(*messages[1:])
    assert [name.holds(target) for target in (4, 9)] == [False, False]
    assert names.drop(9) is True
    damaged = floors.Damaged()
    assert (damaged.floor(7), damaged.holds(9)) == (7, False)


def test_names_are_looked_at_anew_and_one_made_again_is_another(queue):
    queue.consumer("a").close()
    queue.consumer("b").close()
    queue.consumer("looks", hold="nothing").close()
    names = floors.Names(queue._session.home, queue._session.joined().member)
    names.look()
    known = {name: each for name, (_, each) in names._known.items()}
    assert set(known) == {"a", "b"}
    queue.drop_consumer("a")
    names.look()
    assert {name: each for name, (_, each) in names._known.items()} == {"b": known["b"]}
    os.rename(f"{queue.path}/consumers/b.checkpoint", f"{queue.path}/consumers/b.old")
    queue.consumer("b").close()
    names.look()
    assert names._known["b"][1] is not known["b"]
    queue.consumer("g", group=True).close()
    names.look()
    names.prepare()
    assert set(names._known) == {"g"}
    assert names._known["g"][1]._ready


def test_pins_and_archives_hold_back_from_where_they_are(queue):
    home = queue._session.home
    queue.put_many([b"x"] * 20)
    assert pins.floor(home, 0) is None
    pin, other = pins.Pin(home, "mine"), pins.Pin(home, None)
    pin.take()
    assert pins.floor(home, 0) == 0
    pin.move(12)
    assert pins.floor(home, 0) == 12
    other.take()
    other.move(15)
    assert pins.floor(home, 0) == 12
    pin.move(17)
    assert pins.floor(home, 0) == 15
    queue.consumer("c", start=3, hold=True).close()
    assert pins.floor(home, 0) == 3
    assert pins.floor(home, 5) == 5
    queue.consumer("c", hold="nothing").close()
    assert pins.floor(home, 0) == 15
    assert re.fullmatch(rf"{os.getpid()}-[0-9a-f]{{12}}", other.name)
    said = f"cannot pin {queue.path} as 'mine': another reader has a pin of that name"
    assert refused(errors.Busy, pins.Pin(home, "mine").take) == said
    for each in (pin, other):
        each.close()
        each.close()
    assert pins.floor(home, 0) is None
    assert not [name for name in os.listdir(f"{queue.path}/consumers") if name.endswith(".pin")]


def test_a_pin_whose_file_was_replaced_is_left_to_who_did(queue):
    pin = pins.Pin(queue._session.home, "mine")
    pin.take()
    file = Path(queue.path, "consumers", "mine.pin")
    file.rename(file.with_suffix(".old"))
    file.write_bytes(bytes(8))
    pin.close()
    assert file.exists()
    gone = pins.Pin(queue._session.home, "gone")
    gone.take()
    Path(queue.path, "consumers", "gone.pin").unlink()
    gone.close()


def test_how_a_name_holds_is_written_and_synced_and_what_cannot_be_trusted_holds(queue, events):
    home = queue._session.home
    queue.consumer("c").close()
    for hold, content in ((True, b"shmqhold"), ("nothing", b"shmqnone"), (False, None), (True, b"shmqhold")):
        del events[:]
        pins.set_hold(home, "c", hold=hold)
        assert pins.hold_file(home, "c") == content
        assert pins.holds(home, "c") == hold
        assert ("directory consumers" in events) == bool(hold)
        del events[:]
        pins.set_hold(home, "c", hold=hold)
        assert events == []
    Path(queue.path, "consumers", "c.hold").chmod(0o644)
    assert pins.hold_file(home, "c") == b"shmqhold"


# ---------------------------------------------------------------- groups' files
def test_what_a_group_was_made_with_is_believed_only_whole(queue):
    home = queue._session.home
    queue.consumer("g", group=True, ack="explicit", max_attempts=3).close()
    file = f"{queue.path}/consumers/g.group"
    good = Path(file).read_bytes()
    stored = ring.options(home, "g")
    assert stored["max_attempts"] == 3

    def told(content):
        Path(file).write_bytes(content)
        said = refused(errors.Corrupt, lambda: ring.options(home, "g"))
        prefix, remedy = f"cannot open {file}: ", "; drop_consumer('g') removes it"
        assert said.startswith(prefix)
        assert said.endswith(remedy)
        return said[len(prefix) : -len(remedy)]

    def packed(text, queue_id=home.queue_id, magic=good[:8]):
        return magic + queue_id + struct.pack("<II", len(text), _native.crc32c(text)) + text

    assert packed(good[32:]) == good
    assert told(good[:31]) == told(b"") == "it is too short"
    for bad in (good[:32], good + b" ", good[:-1] + b"x", packed(good[32:], magic=b"shmqgrou")):
        assert told(bad) == "it fails its checksum"
    assert told(packed(good[32:], bytes(16))) == "it belongs to another queue"
    assert told(packed(b"[1]")) == told(packed(b"{")) == told(packed(b"[" * 30000)) == "its options are not options"
    os.unlink(file)
    said = f"cannot open {file}: it is missing; drop_consumer('g') removes the rest"
    assert refused(errors.Corrupt, lambda: ring.options(home, "g")) == said
    where = f"{queue.path}/consumers/g.ring"
    os.truncate(where, 4095)
    said = f"cannot open {where}: it has only 4095 bytes; drop_consumer('g') removes it"
    assert refused(errors.Corrupt, lambda: ring.map_ring(home, "g", writable=True)) == said
    os.unlink(where)
    said = f"cannot open {where}: it is missing; drop_consumer('g') removes the rest"
    assert refused(errors.Corrupt, lambda: ring.map_ring(home, "g", writable=True)) == said


@pytest.mark.parametrize(("options", "cells", "buckets"), [
    ({}, 0, False), ({"ack": "explicit"}, 2, False), ({"lease": 1, "ack": "explicit"}, 3, False),
    ({"expire_to": "x"}, 2, False), ({"ordered_by": "key", "ack": "explicit"}, 2, True),
])  # fmt: skip
def test_a_ring_is_as_large_as_its_options_need_and_is_synced_before_its_name(queue, events, options, cells, buckets):
    home = queue._session.home
    Path(queue.path, "consumers", "n.ring").write_bytes(b"left by a creation that was killed")
    Path(queue.path, "consumers", "n.group").write_bytes(b"likewise")
    del events[:]
    ring.make(home, "n", options, 128)
    assert events == ["write group", "data group", "data ring", "directory consumers"]
    size = os.stat(f"{queue.path}/consumers/n.ring").st_size
    wanted = 128, _native.RING_BUCKETS if buckets else 0, cells, _native.SIDE_BLOCKS
    assert size == _native.ring_bytes(*wanted)
    memory = ring.map_ring(home, "n", writable=False)
    assert _native.ring_extent(memory) == wanted
    assert ring.options(home, "n") == options
    assert _native.Ring.boot_id(memory, home.queue_id, "there") == boots.boot_id()
    memory.close()
    del events[:]
    ring.copy(home, "n", "m")
    writes = ["write ring"] * (-(-size // (1 << 20)))
    assert events == [*writes, "data ring", "write group", "data group", "directory consumers"]
    below = Path(queue.path, "consumers")
    for ending in (".ring", ".group"):
        assert (below / f"m{ending}").read_bytes() == (below / f"n{ending}").read_bytes()
    ring.remove(home, "n")
    ring.remove(home, "n")
    assert not [name for name in os.listdir(f"{queue.path}/consumers") if name.startswith("n.")]


def test_a_ring_grows_by_its_side_table_once_for_all_and_not_for_ever(queue, events, monkeypatch):
    member = queue.consumer("g", group=True, ack="explicit", window=1024)
    other = queue.consumer("g", group=True)
    before = member._ring.blocks
    del events[:]
    ring.grow(queue._session.home, "g", member._ring)
    assert events == ["data ring"]
    assert member._ring.blocks == member._ring.side_blocks() == 2 * before
    size = _native.ring_bytes(1024, 0, _native.RING_ATTEMPTS, 2 * before)
    assert os.stat(f"{queue.path}/consumers/g.ring").st_size >= size
    del events[:]
    ring.grow(queue._session.home, "g", other._ring)  # it is mapped anew only
    assert events == []
    assert other._ring.blocks == 2 * before
    monkeypatch.setattr(_native, "SIDE_BLOCKS_MAX", 4 * before - 1)
    said = f"cannot park more messages of group 'g' of {queue.path}: its side table is as large as can be"
    assert refused(errors.TooMany, lambda: ring.grow(queue._session.home, "g", member._ring)) == said
    monkeypatch.setattr(_native, "SIDE_BLOCKS_MAX", 4 * before)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
        said = refused(errors.DiskFull, lambda: ring.grow(queue._session.home, "g", member._ring))
    size = _native.ring_bytes(1024, 0, _native.RING_ATTEMPTS, 4 * before)
    assert said.startswith(f"cannot get {size:,} bytes in {queue.path}/consumers: no space")
    ring.grow(queue._session.home, "g", member._ring)
    assert member._ring.blocks == 4 * before


def test_a_checkpoint_that_is_to_begin_anew_gets_the_slot_that_is_not_the_newest(queue, events):
    queue.consumer("g", group=True).close()
    file = f"{queue.path}/consumers/g.checkpoint"
    patch(file, 4096, bytes(2 * 12288))
    for turn in (1, 2, 3):
        fd, size = queue._session.home.open(queue._session.home.consumers, "g.checkpoint", writable=True)
        with fd:
            del events[:]
            ring.begin_at(fd, os.pread(fd, size, 0), 9, 40 + turn)
            assert events == ["write snapshot", "data snapshot"]
            page = os.pread(fd, size, 0)
        at = 4096 + 12288 * ((turn - 1) % 2)
        assert _native.check_snapshot(page[at : at + 12288])[:3] == (turn, 9, 40 + turn)
        assert _native.newest_snapshot(page).head == 40 + turn


# ---------------------------------------------------------------- in shared memory
def test_notes_of_queues_that_last_as_long_as_others_are_written_once(shm_root):
    with shmq.open("shm:a") as a, shmq.open("shm:b"):
        queue_id = a._session.home.queue_id.hex()
        for _ in range(2):
            volatile.attach("shm:b", "shm:a", queue_id)
        base = Path(shm.base())
        assert (base / "a.users").read_bytes() == b"\nto b\n"
        assert (base / "b.users").read_bytes() == f"\nfor a {queue_id}\n".encode()
        hold = volatile.Hold("shm:b")
        hold._base = volatile._open_base(shm.base(), create=False)
        assert hold._is_used("a", queue_id) is True
        assert hold._is_used("a", "00" * 16) is False
        assert hold._is_used("nobody", queue_id) is False
        hold._base.close()
    assert list(base.iterdir()) == []


def test_a_queue_that_lasts_as_long_as_another_is_shared_by_who_opens_it(shm_root, monkeypatch):
    monkeypatch.setattr(volatile, "_PATIENCE", 0.5)
    with shmq.open("shm:a") as a:
        with shmq.open("shm:b") as b:
            volatile.attach("shm:b", "shm:a", a._session.home.queue_id.hex())
            b.put(b"x")
        with shmq.open("shm:b", create=False) as first, shmq.open("shm:b", create=False) as second:
            assert len(first) == len(second) == 1
    assert volatile.names() == []


def test_a_place_in_shared_memory_that_is_not_ours_alone_is_refused(shm_root):
    base = shm.base()
    os.mkdir(base, 0o700)
    for mode in (0o750, 0o705, 0o500):
        os.chmod(base, mode)
        said = f"cannot use {base}: its mode is {mode:#o}, and must be 0o700; it was not touched"
        assert refused(errors.Unsafe, lambda: shmq.open("shm:q")) == said
    os.chmod(base, 0o700)
    said = "cannot open shm:q: there is no such volatile queue; it ends with its last user"
    assert refused(errors.NotFound, lambda: shmq.open("shm:q", create=False)) == said
    assert os.listdir(base) == []
    for name in ("shm:", "shm:.x", "shm:a/b", f"shm:{'a' * 201}"):
        said = f"{name!r} names no volatile queue: shm: and 1 to 200 of A-Z a-z 0-9 _ . - , no dot in front"
        said += "; or shm:GROUP: and such a name"
        assert refused(ValueError, lambda name=name: volatile.home_of(name)) == said


def test_anonymous_queues_of_the_dead_are_looked_for_once_a_minute(monkeypatch):
    clock, swept = [500.0], []
    monkeypatch.setattr(volatile, "_swept_at", None)
    monkeypatch.setattr(volatile.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(volatile, "gc", lambda *, anonymous_only: swept.append(anonymous_only))
    for at, count in ((500.0, 1), (559.9, 1), (560.0, 2), (600.0, 2), (620.0, 3)):
        clock[0] = at
        volatile.sweep()
        assert swept == [True] * count


def test_whoever_is_left_by_the_dead_is_taken_away_and_the_living_stay(shm_root):
    def die(say):
        with shmq.open("shm:dead"), shmq.open(None):
            hold_until_killed(say)

    with shmq.open("shm:alive"), Child(die) as child:
        assert child.hear() == "ready"
        assert len(volatile.names()) == 3
        assert volatile.gc() == []
        child.kill()
        (anonymous,) = volatile.gc(anonymous_only=True)
        assert anonymous.startswith("shm:anonymous.")
        assert volatile.exists("shm:dead")
        assert volatile.gc() == ["shm:dead"]
        assert not volatile.exists("shm:dead")
        assert volatile.names() == ["shm:alive"]
    until(lambda: volatile.names() == [])


def test_who_makes_a_queue_in_shared_memory_lets_others_in_when_it_is_made(shm_root):
    hold = volatile.Hold("shm:q")
    hold.enter(create=True)
    assert hold.alone
    second = volatile.Hold("shm:q")
    second._base = volatile._open_base(shm.base(), create=False)
    assert second._try_enter(create=True) is False
    hold.settle()
    assert not hold.alone
    os.mkdir(hold.path, 0o700)
    assert second._try_enter(create=False) is True
    assert not second.alone
    hold.leave()
    assert os.path.isdir(hold.path)
    second.leave()
    assert os.listdir(shm.base()) == []
    second.leave()


def test_a_watermark_that_was_set_for_a_test_is_read(path):
    shmq.open(path).close()
    set_watermark(path, 5, 4352, 77)
    home = directory.Directory(path, read_only=True)
    assert watermark.read(home)[2:] == (5, 4352, 77)
    home.close()
