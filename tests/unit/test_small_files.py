"""Small files with a checksum, staged sets and the memory of dedup, step by step: what each holds, refuses and says."""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import re
import struct
import subprocess
import sys
import types
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

import shmq
from shmq import _native, errors
from shmq.storage import boots, dedup, files, ledger, paths, records, small_json, spares, staging, sync

DAY_NS = 86_400_000_000_000


def whole(text):
    return f"^{re.escape(text)}$"


@pytest.fixture
def home(queue):
    """The directory of an open queue, with a folder for what is staged."""
    files.make_directory(f"{queue.path}/staging", queue._session.home.fd)
    return queue._session.home


@pytest.fixture
def events(monkeypatch):
    """What was written and synced."""
    gc.collect()  # what an earlier test has left in a cycle writes when it goes
    seen = []
    write = sync.write
    monkeypatch.setattr(sync, "data", lambda fd, what: seen.append(f"data {what}"))
    monkeypatch.setattr(sync, "directory", lambda fd, what: seen.append(f"directory {what}"))
    monkeypatch.setattr(
        sync, "write", lambda fd, content, at, what: (write(fd, content, at, what), seen.append(f"{at} {what}"))
    )
    return seen


def a_set(home, adoption=7, manifest=None, placed=None, lock=True):
    """One below staging/, with what is given."""
    found = staging.Set(home, adoption)
    assert found.begin()
    if not lock:
        os.unlink("lock", dir_fd=found.fd)
    if manifest is not None:
        found.commit_manifest(manifest)
    if placed is not None:
        found.make_room()
        found.place(*placed)
    return found


def manifest_of(producer=b"p", sequence=1, files=("00000000.chunk",), parts=()):
    count = len(files)
    return records.Manifest(
        producer, sequence, list(files), [11 + each for each in range(count)], [5] * count, [99] * count, list(parts)
    )


# ---------------------------------------------------------------- records
def test_a_record_is_on_the_disk_before_it_has_its_name_and_then_its_folder_is(home, events):
    with a_set(home) as found:
        del events[:]
        found.commit_manifest(manifest_of())
        assert events == ["0 manifest", "data manifest", "directory set", "directory staging", "directory home"]
        del events[:]
        found.hand_over(b"me", ["00000000.chunk"], [1], [2], [3])
        assert events == ["0 handed", "data handed", "directory set", "directory staging", "directory home"]
    del events[:]
    ledger.write_ledger(home, {b"p": records.Adopted(1, 2, 3)})
    assert events == ["0 ledger", "data ledger", "directory home", "directory home"]
    del events[:]
    dedup.write_note(home, 3, dedup.Memory())
    assert events == ["0 dedup", "data dedup", "directory home", "directory home"]
    assert not {"ledger.new", "dedup.new"} & set(os.listdir(home.path))
    with open(f"{home.path}/ledger.new", "wb") as left:  # of one who was killed
        left.write(b"half")
    ledger.write_ledger(home, {b"q": records.Adopted(4, 5, 6)})
    assert ledger.ledger(home) == {b"q": records.Adopted(4, 5, 6)}
    assert "ledger.new" not in os.listdir(home.path)


def test_a_record_that_is_there_stays_when_it_is_made(home):
    records.make_record(home, "ledger.shmq", {b"p": [1, 2, 3]}, "ledger")
    records.make_record(home, "ledger.shmq", {b"q": [1, 2, 3]}, "ledger")
    assert ledger.ledger(home) == {b"p": records.Adopted(1, 2, 3)}


def test_a_record_that_is_damaged_anywhere_is_corrupt_and_says_how(home):
    import msgspec

    def read(content):
        with open(f"{home.path}/ledger.shmq", "wb") as file:
            file.write(content)
        os.chmod(f"{home.path}/ledger.shmq", 0o600)
        with pytest.raises(errors.Corrupt) as caught:
            ledger.ledger(home)
        prefix, reason = f"cannot read {home.path}/ledger.shmq: ", caught.value.args[0]
        assert reason.startswith(prefix)
        assert reason.endswith("; nothing was changed")
        return reason[len(prefix) : -len("; nothing was changed")]

    good = records.pack({b"p": [1, 2, 3]})
    assert good == struct.pack("<8sII", b"shmqadpt", len(good) - 16, _native.crc32c(good[16:])) + good[16:]
    sums = "it fails its checksum"
    for bad in (
        b"",
        good[:15],
        good[:-1],
        good + b"\0",
        b"x" + good[1:],
        good[:16],
        good[:-1] + b"x",
        good[:12] + bytes(4) + good[16:],
    ):
        assert read(bad) == sums
    assert read(struct.pack("<8sII", b"shmqadpt", (256 << 20) + 1, 0)) == sums
    for content in ([1], {b"p": [1, 2]}, {b"p": [1, 2, -1]}, {b"p": [1, 2, 1 << 63]}, "text"):
        assert read(records.pack(content)).startswith("it holds something else (")
    assert read(records.with_head(msgspec.msgpack.encode([1])[:-1] + b"\xc1")).startswith("it holds something else (")
    os.unlink(f"{home.path}/ledger.shmq")
    assert ledger.ledger(home) == {}


@pytest.mark.parametrize("content", [
    {"files": ["00000000.chunk", "00000001.chunk"]}, {"chunk_ids": [1, 2]}, {"counts": []}, {"sizes": [1, 2]},
    {"files": ["../../x.chunk"]}, {"files": ["0000000.chunk"]}, {"parts": ["nothing"]}, {"parts": ["0" * 11]},
])  # fmt: skip
def test_a_manifest_whose_lists_speak_of_different_chunks_is_none(home, content):
    with a_set(home, manifest=manifest_of()._replace(**content)) as found:
        with pytest.raises(errors.Corrupt, match=whole(f"cannot read {found.path}/manifest: it is not a manifest")):
            found.manifest()
        fields = {"files": ["00000000.chunk"], "chunk_ids": [1], "counts": [1], "sizes": [1]}
        handed = {name: content.get(name, value) for name, value in fields.items()}
        if "parts" in content:
            handed = {name: [] for name in handed}
        found.hand_over(b"", *handed.values())
        said = f"cannot read {found.path}/handed: it says nothing that was handed over"
        with pytest.raises(errors.Corrupt, match=whole(said)):
            found.handed()


def test_what_was_handed_over_is_as_old_as_the_clock_that_nobody_sets_says_or_after_a_reboot_the_wall_clock(
    monkeypatch,
):
    handed = records.Handed(b"", [], [], [], [], boots.boot_id(), 1000, 5_000)
    monkeypatch.setattr(staging.time, "clock_gettime_ns", lambda clock: {staging.time.CLOCK_BOOTTIME: 1700}[clock])
    monkeypatch.setattr(staging.time, "time_ns", lambda: 9_000)
    assert handed.age_ns() == 700
    assert handed._replace(boot=bytes(16)).age_ns() == 4_000


def test_a_set_that_was_handed_over_waits_for_seven_days_and_a_damaged_one_for_its_user(home, monkeypatch):
    with a_set(home) as found:
        assert ledger.forgotten(found)
        found.hand_over(b"", ["00000000.chunk"], [1], [1], [1])
        for age, over in ((0, False), (7 * DAY_NS, False), (7 * DAY_NS + 1, True)):
            monkeypatch.setattr(records.Handed, "age_ns", lambda _, age=age: age)
            assert ledger.forgotten(found) is over
        with open(f"{found.path}/handed", "r+b") as file:
            file.write(b"x")
        assert ledger.forgotten(found) is False


# ---------------------------------------------------------------- sets
def test_a_set_is_begun_once_and_held_until_it_is_closed(home):
    assert staging.Set(home, 0).begin() is False
    with a_set(home, 0xABC) as found:
        assert found.name == "0000000abc"
        assert found.path == f"{home.path}/staging/0000000abc"
        assert os.listdir(found.fd) == ["lock"]
        second = staging.Set(home, 0xABC)
        assert second.begin() is False
        assert second._fd is None
        with staging.open_set(home, "0000000abc") as other:
            assert (other.adoption, other.is_held()) == (0xABC, True)
            found.close()
            assert other.is_held() is False
    with pytest.raises(FileNotFoundError, match="0000000abd"):
        staging.open_set(home, "0000000abd")
    assert staging.names(home) == ["0000000abc"]
    os.mkdir(f"{home.path}/staging/other")
    assert staging.names(home) == ["0000000abc"]


def test_a_folder_without_a_lock_is_being_made_unless_it_is_over(home):
    with a_set(home, lock=False) as found:
        assert found.is_held() is True  # it was empty, and goes
        assert staging.names(home) == []
    with a_set(home, lock=False, placed=(1, 2)) as found:
        assert found.is_held() is False
        assert staging.names(home) == [found.name]


def test_what_was_begun_is_taken_away_however_far_it_came_and_only_once(home):
    found = staging.Set(home, 5)
    found.forget()
    os.mkdir(found.path)
    found.forget()
    assert not os.path.exists(found.path)
    found = a_set(home, 5, manifest_of())
    found.add(0, 0)[0].close()
    found.forget()
    assert not os.path.exists(found.path)
    found.close()
    again = a_set(home, 5)
    found.forget()
    assert os.path.exists(again.path)
    again.close()


def test_chunks_of_a_set_grow_like_those_of_a_queue_and_have_room_for_what_is_asked(home):
    home.options = shmq.Options(chunk_bytes=1 << 30)
    with a_set(home) as found:
        for number, size in ((0, 64 << 10), (1, 256 << 10), (2, 1 << 20), (3, 4 << 20)):
            fd, made, name = found.add(number, 0)
            fd.close()
            assert (made, name) == (size, f"{number:08x}.chunk")
            assert os.stat(f"{found.path}/{name}").st_size == size
        fd, made, _ = found.add(1, 300_000)  # in place of one that nobody used
        fd.close()
        assert made == _native.Chunk.bytes_for(300_000, home.options.index_spacing) > 300_000
        assert os.stat(f"{found.path}/00000001.chunk").st_size == made


def test_where_a_set_belongs_is_written_once_and_everybody_comes_to_the_same(home, events):
    with a_set(home) as found:
        assert found.placed() is None
        del events[:]
        found.make_room()
        assert events == ["0 placed", "data placed"]
        found.make_room()
        assert events == ["0 placed", "data placed"]
        assert found.placed() is None
        del events[:]
        found.place(3, 400)
        assert events == ["0 placed", "data placed"]
        found.place(3, 400)
        assert events[2:] == ["data placed"]
        assert found.placed() == (3, 400)
        with pytest.raises(
            errors.Corrupt, match=whole(f"{found.path} was placed at (3, 400), and a SEAL wants it at (3, 401)")
        ):
            found.place(3, 401)
        content = Path(f"{found.path}/placed").read_bytes()
        assert len(content) == 16 + 20


def test_a_place_that_is_just_being_written_is_looked_at_again_and_one_that_stays_torn_is_corrupt(home, monkeypatch):
    naps = []
    # Not time.sleep itself: what another test has left running would nap here, without rest.
    monkeypatch.setattr(staging, "time", types.SimpleNamespace(sleep=naps.append))
    with a_set(home, placed=(3, 400)) as found:
        whole_one = Path(f"{found.path}/placed").read_bytes()
        for at in (0, len(whole_one) - 1):  # whoever was killed on the way has left zeros at one of the ends
            torn = bytearray(whole_one)
            torn[at] = 0
            with open(f"{found.path}/placed", "r+b") as file:
                file.write(torn)
            assert found.placed() is None
        assert naps == []
        with open(f"{found.path}/placed", "r+b") as file:
            file.write(whole_one[:20] + b"\xff" + whole_one[21:])
        with pytest.raises(errors.Corrupt):
            found.placed()
        assert naps == [0.001] * 99
        os.truncate(f"{found.path}/placed", len(whole_one) - 1)
        with pytest.raises(errors.Corrupt):
            found.placed()
        os.unlink(f"{found.path}/placed")
        assert found._is_blank() is True


def test_a_set_is_taken_away_with_what_others_need_last(home, monkeypatch):
    with a_set(home, manifest=manifest_of(), placed=(1, 2)) as found:
        found.hand_over(b"", ["00000000.chunk"], [1], [1], [1])
        found.add(0, 0)[0].close()
        gone = []
        unlink = os.unlink
        monkeypatch.setattr(os, "unlink", lambda name, **where: (gone.append(name), unlink(name, **where)))
        found.remove()
        assert gone == ["handed", "manifest", "00000000.chunk", "lock", "placed"]
        assert not os.path.exists(found.path)
        found.remove()  # somebody else has finished it


def test_a_set_that_somebody_puts_a_file_into_is_tried_again_and_another_refusal_comes_out(home, monkeypatch):
    with a_set(home) as found:
        tries = []
        rmdir = os.rmdir

        def refuse(number):
            def fail(*given, **where):
                tries.append(number)
                if len(tries) > 3 and number == errno.ENOTEMPTY:
                    return rmdir(*given, **where)
                raise OSError(number, os.strerror(number))

            return fail

        with monkeypatch.context() as patched:
            patched.setattr(os, "rmdir", refuse(errno.EACCES))
            with pytest.raises(PermissionError):
                found.remove()
        assert len(tries) == 1
        del tries[:]
        monkeypatch.setattr(os, "rmdir", refuse(errno.ENOTEMPTY))
        found.remove()
        assert len(tries) == 4
        assert not os.path.exists(found.path)


def test_a_file_in_a_set_that_was_swept_is_missing_and_any_other_refusal_is_itself(home, monkeypatch):
    with a_set(home) as found:

        def refuse(*_, **__):
            raise OSError(errno.EACCES, "no")

        with monkeypatch.context() as patched:
            patched.setattr(files, "new_file", refuse)
            with pytest.raises(PermissionError):
                found.hold()
        os.unlink(f"{found.path}/lock")
        os.rmdir(found.path)
        with pytest.raises(FileNotFoundError):
            found.hold()
        with pytest.raises(FileNotFoundError):
            found.place(1, 2)


def test_a_manifest_can_be_dropped_and_that_is_seen(home):
    with a_set(home, manifest=manifest_of()) as found:
        assert found.manifest_missing() is False
        found.drop_manifest()
        found.drop_manifest()
        assert found.manifest_missing() is True
        with pytest.raises(FileNotFoundError):
            found.manifest()


def test_names_in_a_manifest_lead_into_its_own_folder_or_a_part():
    assert staging.path_of(0xA, "00000001.chunk") == "staging/000000000a/00000001.chunk"
    assert staging.path_of(0xA, "000000000b/00000001.chunk") == "staging/000000000b/00000001.chunk"
    for name in ("00000001.chunk", "000000000b/00000001.chunk"):
        assert staging.check_file(name) == name
    for name in ("../x", 7, "00000001.chunk/", "x00000001.chunk"):
        with pytest.raises(errors.Corrupt, match=whole(f"a manifest names {name!r}, and no staged chunk is called so")):
            staging.check_file(name)


def test_a_staged_file_moves_once_and_one_whose_place_is_taken_says_so(home, monkeypatch):
    with a_set(home) as found:
        for number in range(3):
            found.add(number, 0)[0].close()
        chunks = f"{home.path}/chunks"
        staging.move(found, "00000000.chunk", "there.chunk")
        staging.move(found, "00000000.chunk", "there.chunk")  # somebody has
        staging.move(found, "00000000.chunk", "elsewhere.chunk")  # and it may be retired by now
        assert os.listdir(chunks) == ["there.chunk"]
        said = f"cannot move {found.path}/00000001.chunk to {chunks}/there.chunk: "
        with pytest.raises(errors.Corrupt, match=whole(f"{said}its place is taken")):
            staging.move(found, "00000001.chunk", "there.chunk")
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            problem = OSError(number, os.strerror(number))
            monkeypatch.setattr(_native, "rename_new", lambda *_, problem=problem: (_ for _ in ()).throw(problem))
            kind = errors.Corrupt if number == errno.EIO else errors.DiskFull
            with pytest.raises(kind) as caught:
                staging.move(found, "00000001.chunk", "new.chunk")
            if number == errno.EIO:
                assert (
                    caught.value.args[0] == f"cannot move {found.path}/00000001.chunk to {chunks}/new.chunk: {problem}"
                )
            else:
                assert str(caught.value).startswith(f"cannot make a file in {chunks}: ")


def test_the_ledger_keeps_the_newest_of_each_producer_and_of_too_many_those_who_came_last(home, monkeypatch):
    monkeypatch.setattr(ledger, "PRODUCERS", 3)
    batches = {b"%d" % each: records.Adopted(1, 100 - each, 1) for each in range(5)}
    ledger.write_ledger(home, batches)
    assert set(ledger.ledger(home)) == {b"0", b"1", b"2"}
    known = {b"p": records.Adopted(5, 0, 1)}
    ledger.enter(manifest_of(sequence=5, files=["00000000.chunk"] * 2), 40, known)
    assert known == {b"p": records.Adopted(5, 0, 1)}
    ledger.enter(manifest_of(sequence=6, files=["00000000.chunk"] * 2), 40, known)
    assert known == {b"p": records.Adopted(6, 40, 10)}
    ledger.enter(manifest_of(producer=b"", sequence=9), 40, known)
    ledger.enter(manifest_of(producer=b"new", sequence=1), 50, known)
    assert known == {b"p": records.Adopted(6, 40, 10), b"new": records.Adopted(1, 50, 5)}


def test_what_is_adopted_and_not_in_the_ledger_yet_is_known_all_the_same(home):
    ledger.write_ledger(home, {b"p": records.Adopted(1, 0, 5), b"q": records.Adopted(1, 5, 5)})
    with a_set(home, 1, manifest_of(sequence=2), placed=(3, 40)), a_set(home, 2, manifest_of(b"q", 2)):
        assert ledger.batches_of(home) == {b"p": records.Adopted(2, 40, 5), b"q": records.Adopted(1, 5, 5)}


def test_a_fold_enters_what_is_placed_and_removes_it_its_parts_and_orphans(home, queue, events):
    chain = queue._session.chain()
    ledger.fold(home, chain)
    part = a_set(home, 1, lock=True)
    part.hand_over(b"", ["00000000.chunk"], [1], [1], [1])
    part.close()
    a_set(
        home, 2, manifest_of(sequence=4, files=["0000000001/00000000.chunk"], parts=["0000000001"]), placed=(0, 7)
    ).close()
    a_set(home, 3).close()
    waits = a_set(home, 4)
    waits.hand_over(b"", ["00000000.chunk"], [1], [1], [1])
    waits.close()
    held = a_set(home, 5)
    del events[:]
    ledger.fold(home, chain)
    assert sorted(staging.names(home)) == ["0000000004", "0000000005"]
    assert ledger.ledger(home) == {b"p": records.Adopted(4, 7, 5)}
    assert events.count("data ledger") == 1
    del events[:]
    a_set(home, 6, manifest_of(sequence=4), placed=(0, 7)).close()
    del events[:]
    ledger.fold(home, chain)
    assert "data ledger" not in events  # it knows that
    held.close()


def test_sets_that_were_handed_over_are_told_but_for_those_that_are_adopted(home, queue):
    chain = queue._session.chain()
    assert list(ledger.handed_sets(home, chain)) == []
    for adoption in (1, 2, 3):
        found = a_set(home, adoption)
        found.hand_over(b"%d" % adoption, ["00000000.chunk"], [1], [1], [1])
        found.close()
    with open(f"{home.path}/staging/0000000003/handed", "r+b") as file:
        file.write(b"x")
    a_set(home, 4).close()
    a_set(home, 9, manifest_of(files=["0000000001/00000000.chunk"], parts=["0000000001"]), placed=(5, 5)).close()
    a_set(home, 8, manifest_of(files=["0000000002/00000000.chunk"], parts=["0000000002"])).close()  # no SEAL names it
    told = {name: handed and handed.owner for name, handed in ledger.handed_sets(home, chain)}
    assert told == {"0000000002": b"2", "0000000003": None}
    with pytest.raises(FileNotFoundError, match="0000000004"):
        ledger.handed_set(home, "0000000004")
    assert ledger.remove_handed(home, chain, lambda handed: handed is None) == 1
    assert "0000000003" not in staging.names(home)
    assert ledger.remove_handed(home, chain, lambda handed: handed is None) == 0


def test_a_deleted_queue_takes_its_folders_with_all_that_is_in_them(home):
    with a_set(home, manifest=manifest_of()):
        pass
    os.mkdir(f"{home.path}/staging/0000000007/deeper")
    files.remove_all(home.fd, home.path, "staging")
    files.remove_all(home.fd, home.path, "staging")
    assert not os.path.exists(f"{home.path}/staging")


def test_a_sync_of_all_up_to_a_chunk_syncs_those_and_no_other(make, events):
    queue = make()
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    synced = []
    sync.data, before = (lambda fd, what: synced.append(os.fstat(fd).st_ino)), sync.data
    try:
        staging.sync_up_to(queue._session.home, 2)
    finally:
        sync.data = before
    names = [paths.chunk_name(base, sequence) for sequence, base in queue._session.chain().names()]
    assert synced == [os.stat(f"{queue.path}/chunks/{name}").st_ino for name in names[:3]]


def test_the_chunk_of_an_id_is_found_in_the_queue_or_in_a_set_that_has_a_place(home, queue):
    while len(queue._session.chain().names()) < 2:
        queue.put(bytes(1000))
    chain = queue._session.chain()
    for sequence, base in chain.names():
        assert staging.base_of(home, chain.open(sequence, base).chunk_id()) == base
    assert staging.base_of(home, 12) is None
    files_of = ["00000000.chunk", "00000001.chunk", "00000002.chunk"]
    with a_set(home, 1, manifest_of(files=files_of)) as found:
        assert staging.base_of(home, 12) is None
        found.make_room()
        found.place(9, 1000)
        assert [staging.base_of(home, each) for each in (11, 12, 13, 14)] == [1000, 1005, 1010, None]


# ---------------------------------------------------------------- dedup
def batch(sequence, first, count=1):
    return records.Adopted(sequence, first, count)


WHO = [bytes([each]) * 16 for each in range(40)]


def test_the_memory_keeps_the_last_puts_and_the_last_of_each_producer_with_some_slack(monkeypatch):
    monkeypatch.setattr(dedup, "PUTS", 3)
    monkeypatch.setattr(dedup, "PRODUCERS", 2)
    memory = dedup.Memory()
    for at in range(4):
        memory.enter(WHO[at], batch(1, 100 - at))
    assert len(memory.last) == 4
    memory.enter(WHO[4], batch(1, 50))
    assert set(memory.last) == {WHO[0], WHO[1]}
    memory.enter(WHO[0], batch(2, 200))
    assert len(memory.puts) == 6
    memory.enter(WHO[0], batch(3, 201))
    assert memory.puts == {(WHO[0], 1): batch(1, 100), (WHO[0], 2): batch(2, 200), (WHO[0], 3): batch(3, 201)}
    assert memory.last[WHO[0]] == batch(3, 201)
    memory.enter(WHO[0], batch(1, 300))  # an older one changes nothing but itself
    assert memory.last[WHO[0]] == batch(3, 201)


def test_what_lies_before_an_index_is_all_that_ends_before_it():
    memory = dedup.Memory()
    memory.enter(WHO[1], batch(1, 10, 5))
    memory.enter(WHO[1], batch(2, 15, 5))
    memory.last[WHO[2]] = batch(9, 3, 2)
    for end, puts, last in ((14, 0, 0), (15, 1, 1), (19, 1, 1), (20, 2, 1)):
        kept = memory.before(end)
        assert len([who for who, _ in kept.puts if who == WHO[1]]) == puts
        assert (WHO[1] in kept.last) == bool(last)
        assert kept.last[WHO[2]] == batch(9, 3, 2)
    assert memory.before(4).last == {}
    assert memory.before(5).last == {WHO[2]: batch(9, 3, 2)}
    assert memory.before(20).last[WHO[1]] == batch(2, 15, 5)
    other = dedup.Memory()
    assert other != memory
    other.last, other.puts = memory.last, memory.puts
    assert other == memory
    assert memory != 1


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8])
def test_a_note_is_searched_without_unpacking_it(count):
    memory = dedup.Memory()
    for at in range(count):
        memory.enter(WHO[2 * at + 1], batch(at + 1, 10 * at, 3))
    note = dedup.Note(*dedup.content(5, memory))
    assert note.sequence == 5
    for at in range(17):
        known = at % 2 and at // 2 < count
        assert note.last(WHO[at]) == (batch(at // 2 + 1, 10 * (at // 2), 3) if known else None)
    assert note.memory() == memory


def test_what_is_no_note_is_refused(home):
    for given in ((-1, b"", b""), (0, bytes(39), b""), (0, b"", bytes(41))):
        with pytest.raises(ValueError, match=whole("it is not a note")):
            dedup.Note(*given)
    dedup.Note(0, bytes(40), bytes(80))
    assert dedup.read_note(home) is None
    for last, puts in ((bytes(39), b""), (b"", bytes(1)), (bytes(1), bytes(1))):
        records.replace_record(home, "dedup.shmq", "dedup.new", [0, last, puts], "dedup")
        said = f"cannot read {home.path}/dedup.shmq: it is not a note of what was put; nothing was changed"
        with pytest.raises(errors.Corrupt, match=whole(said)):
            dedup.read_note(home)


def test_a_note_has_the_last_of_too_many_by_where_they_are(monkeypatch):
    monkeypatch.setattr(dedup, "PUTS", 2)
    monkeypatch.setattr(dedup, "PRODUCERS", 2)
    memory = dedup.Memory()
    memory.last = {WHO[at]: batch(1, 50 - at) for at in range(3)}
    memory.puts = {(WHO[at], 1): batch(1, 50 - at) for at in range(3)}
    kept = dedup.Note(*dedup.content(0, memory)).memory()
    assert set(kept.last) == {WHO[0], WHO[1]}
    assert set(kept.puts) == {(WHO[0], 1), (WHO[1], 1)}
    assert dedup.newest(dict(list(memory.last.items())[:2])) == dict(list(memory.last.items())[:2])


def test_a_note_is_begun_once_before_the_first_put(home):
    assert dedup.is_used(home) is False
    dedup.begin(home)
    assert dedup.is_used(home) is True
    memory = dedup.Memory()
    memory.enter(WHO[1], batch(1, 0))
    dedup.write_note(home, 3, memory)
    dedup.begin(home)
    assert dedup.read_note(home).sequence == 3


def test_what_is_known_answers_where_it_was_put_and_refuses_what_comes_too_late():
    assert dedup.known(None, b"p", 3, "put into q") is None
    assert dedup.known(batch(2, 10, 5), b"p", 3, "put into q") is None
    assert dedup.known(batch(3, 10, 5), b"p", 3, "put into q") == range(10, 15)
    said = (
        "cannot put into q: it is batch 3 of b'p', and batch 4 was put or adopted before it; sequences ascend. Either "
    )
    said += "it never was, or so long ago that it is forgotten: remembered are the puts of a producer "
    said += "from 65536 below its last sequence on, the last 1048576 of all, and the last adoption of each producer; "
    said += "nothing was changed"
    with pytest.raises(errors.Mismatch, match=whole(said)):
        dedup.known(batch(4, 10, 5), b"p", 3, "put into q")


def filled(make, chunks, **options):
    """A queue of so many chunks, each message put with dedup as one of two producers."""
    queue = make(retention=shmq.Retention.forever(), **options)
    number = 0
    while len(queue._session.chain().names()) < chunks:
        number += 1
        queue.put(bytes(900), dedup=("even" if number % 2 == 0 else "odd", number))
    return queue, number


def test_what_is_noted_is_what_is_in_the_chunks_before_one_and_was_synced(make, monkeypatch):
    queue, _ = filled(make, 4)
    home, chain = queue._session.home, queue._session.chain()
    synced = []
    monkeypatch.setattr(staging, "sync_up_to", lambda home, last: synced.append((last, dedup.read_note(home).sequence)))
    assert dedup.note(home, chain, 2) is True
    assert synced == [(1, 0)]
    note = dedup.read_note(home)
    end = dict(chain.names())[2]
    assert note.sequence == 2
    expected = {sequence: records.Adopted(sequence, sequence - 1, 1) for sequence in range(1, end + 1)}
    assert {each.sequence: each for each in note.memory().puts.values()} == expected
    odd = end if end % 2 else end - 1
    assert note.last(dedup.identity(b"odd")) == expected[odd]
    assert dedup.note(home, chain, 2) is True
    assert dedup.note(home, chain, 1) is True
    assert synced == [(1, 0)]
    assert dedup.note(home, chain, 3) is True
    assert synced == [(1, 0), (2, 2)]
    known = dedup.read_note(home)
    assert (known.sequence, len(known.memory().puts)) == (3, dict(chain.names())[3])


def test_nothing_is_noted_of_a_chunk_with_an_open_claim(make):
    queue = make(retention=shmq.Retention.forever())
    queue.put(b"x", dedup=("p", 1))
    slot = queue.reserve(1)
    while len(queue._session.chain().names()) < 2:
        queue.put(bytes(900), dedup=("p", queue.next_index))
    assert dedup.note(queue._session.home, queue._session.chain(), 1) is False
    assert dedup.read_note(queue._session.home).sequence == 0
    slot.commit()
    assert dedup.note(queue._session.home, queue._session.chain(), 1) is True


def test_a_walk_is_worth_a_note_when_it_has_passed_four_chunks(make):
    queue, last = filled(make, 6)
    known = dedup.Known(queue._session.home, queue._session.chain())
    assert known.worth_noting() == 0
    assert known.last(b"odd").sequence == (last if last % 2 else last - 1)
    assert known._chunk.sequence == 5
    for noted, worth in ((0, 5), (1, 5), (2, 0)):
        known.noted(noted)
        assert known.worth_noting() == worth


def test_who_looks_begins_behind_what_is_noted_and_sees_what_comes(make, monkeypatch):
    queue, last = filled(make, 4)
    with queue._session.home.admin():
        assert dedup.note(queue._session.home, queue._session.chain(), 2)
    walked = []
    walk = dedup.walk
    monkeypatch.setattr(dedup, "walk", lambda chunk, *given: (walked.append(chunk.sequence), walk(chunk, *given))[1])
    known = dedup.Known(queue._session.home, queue._session.chain())
    assert known.find(b"odd", 1, "put") == range(1)
    assert set(walked) == {2, 3}
    even = last if last % 2 == 0 else last - 1
    assert known.find(b"even", even, "put") == range(even - 1, even)
    assert known.find(b"even", even + 2, "put") is None
    with pytest.raises(errors.Mismatch):
        known.find(b"even", 1, "put")  # it was odd
    queue.put(b"new", dedup=("even", last + 10))
    assert known.find(b"even", last + 10, "put") == range(last, last + 1)
    assert known.find(b"even", even, "put") == range(even - 1, even)
    assert known.find(b"nobody", 1, "put") is None


def test_an_earlier_batch_never_takes_the_place_of_a_later_one(make):
    """Whatever order a walk comes by them: claims that were open are looked at again."""
    queue = make(retention=shmq.Retention.forever())
    queue.put(b"x", dedup=("p", 7))
    known = dedup.Known(queue._session.home, queue._session.chain())
    who = dedup.identity(b"p")
    known._put[who] = (9, 50, 1)
    assert known.last(b"p") == records.Adopted(9, 50, 1)
    known._put[who] = (7, 51, 1)
    known._place = [0, 0]
    known._chunk = None
    assert known.last(b"p").first == 51


def test_the_ledger_counts_too_and_is_read_anew_when_it_has_changed(make, monkeypatch):
    queue = make(retention=shmq.Retention.forever())
    queue.put(b"x", dedup=("p", 1))
    known = dedup.Known(queue._session.home, queue._session.chain())
    reads = []
    usual = ledger.ledger
    monkeypatch.setattr(ledger, "ledger", lambda home: reads.append(True) or usual(home))
    assert known.last(b"p") == batch(1, 0)
    ledger.write_ledger(queue._session.home, {b"p": batch(3, 40, 2)})
    assert known.last(b"p") == batch(3, 40, 2)
    assert known.last(b"p") == batch(3, 40, 2)
    assert len(reads) == 1
    assert known.find(b"p", 1, "put") == range(1)
    assert known.find(b"p", 3, "put") == range(40, 42)


def test_of_too_many_producers_the_last_ones_are_known(make, monkeypatch):
    monkeypatch.setattr(dedup, "PRODUCERS", 2)
    queue = make(retention=shmq.Retention.forever(), chunk_bytes=1 << 20)
    for each in range(5):
        queue.put(b"x", dedup=(f"p{each}", 1))
    known = dedup.Known(queue._session.home, queue._session.chain())
    assert known.last(b"p4") == batch(1, 4)
    assert {each[1] for each in known._put.values()} == {3, 4}
    assert known.last(b"p0") is None


def test_a_recovery_forgets_what_is_not_there_any_more_and_looks_for_the_rest_anew(make):
    queue, _ = filled(make, 4)
    home = queue._session.home
    with home.admin():
        assert dedup.note(home, queue._session.chain(), 3)
    before = dedup.read_note(home)
    dedup.rewind(home, 1 << 40, last=3)
    assert dedup.read_note(home).sequence == 3
    dedup.rewind(home, 1 << 40, last=2)
    assert dedup.read_note(home).sequence == 0
    assert dedup.read_note(home).memory() == before.memory()
    dedup.rewind(home, 5, last=3)
    assert len(dedup.read_note(home).memory().puts) == 5
    with open(f"{home.path}/dedup.new", "wb"):
        pass
    with open(f"{home.path}/dedup.shmq", "r+b") as file:
        file.write(b"x")
    dedup.rewind(home, 0, last=0)  # damage is for whoever puts next
    assert not os.path.exists(f"{home.path}/dedup.new")
    os.unlink(f"{home.path}/dedup.shmq")
    dedup.rewind(home, 0, last=0)
    assert not os.path.exists(f"{home.path}/dedup.shmq")


# ---------------------------------------------------------------- taking turns
def test_turns_of_one_producer_are_taken_on_one_byte_in_forty_bits_of_its_identity(queue, monkeypatch):
    turn = dedup._Turn.of(queue._session.home)
    assert dedup._Turn.of(queue._session.home) is turn
    bytes_taken = []
    lock = types.SimpleNamespace(take=lambda byte: bytes_taken.append(byte) or True, give_back=bytes_taken.append)
    monkeypatch.setattr(turn, "_lock", lock)
    with turn.taken(b"p") as ours:
        assert ours
    byte = (1 << 42) + (int.from_bytes(dedup.identity(b"p")[:8], "little") >> 24)
    assert bytes_taken == [byte, byte]
    assert byte < (1 << 42) + (1 << 40)
    monkeypatch.setattr(turn, "pid", -1)
    assert dedup._Turn.of(queue._session.home) is not turn


class Turns:
    """A turn that comes after so many tries, on a clock of its own."""

    def __init__(self, monkeypatch, tries, *, now_ns=10**12):
        self.tries, self.now_ns, self.naps = tries, now_ns, []
        monkeypatch.setattr(dedup._Turn, "of", lambda home: self)
        monkeypatch.setattr(_native, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(dedup, "time", types.SimpleNamespace(sleep=self.sleep))

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now_ns += round(seconds * 1e9)

    def taken(self, producer):
        import contextlib

        self.tries -= 1
        return contextlib.nullcontext(self.tries < 0)


def test_who_waits_for_its_turn_naps_longer_and_longer(queue, monkeypatch):
    turns = Turns(monkeypatch, 12)
    with dedup.alone(queue._session.home, queue._session.joined().control, b"p", -1, "put into"):
        assert turns.naps == [min(0.00005 * 2**at, 0.005) for at in range(12)]


@pytest.mark.parametrize("stopped", [[], [7], [7, 8]])
def test_who_has_waited_for_its_deadline_says_who_is_stopped(queue, monkeypatch, stopped):
    turns = Turns(monkeypatch, 10**9)
    monkeypatch.setattr(dedup, "_stopped", lambda control: stopped)
    who = f"; of those who have the queue open, process {', '.join(map(str, stopped))} is stopped" if stopped else ""
    said = f"cannot put into {queue.path} as b'p': somebody else was at it as the same producer all the time{who}"
    said += "; nothing was put"
    began = turns.now_ns
    with (
        pytest.raises(errors.Busy, match=whole(said)),
        dedup.alone(queue._session.home, queue._session.joined().control, b"p", began + 10**9, "put into"),
    ):
        pass
    assert 10**9 <= turns.now_ns - began < 10**9 + 6_000_000
    with (
        pytest.raises(errors.Busy),
        dedup.alone(queue._session.home, queue._session.joined().control, b"p", turns.now_ns, "put into"),
    ):
        pass
    with (
        pytest.raises(errors.Busy),
        dedup.alone(queue._session.home, queue._session.joined().control, b"p", 0, "put into"),
    ):
        pass


def test_who_waits_without_a_deadline_looks_every_five_seconds_for_one_who_is_stopped(queue, monkeypatch):
    turns = Turns(monkeypatch, 10**9)
    looked = []
    monkeypatch.setattr(dedup, "_stopped", lambda control: looked.append(turns.now_ns) or [9] * (len(looked) == 3))
    began = turns.now_ns
    with (
        pytest.raises(errors.Busy, match="process 9 is stopped"),
        dedup.alone(queue._session.home, queue._session.joined().control, b"p", -1, "put into"),
    ):
        pass
    assert [round((at - began) / 1e9, 1) for at in looked] == [5.0, 10.0, 15.0]


def test_only_a_process_of_here_that_is_the_one_that_joined_and_is_stopped_is_named(monkeypatch, tmp_path):
    space = os.stat("/proc/self/ns/pid").st_ino
    mine = int(Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()[19])
    me = os.getpid()

    def told(*people):
        return dedup._stopped(types.SimpleNamespace(participants=lambda: [(0, 1, *each) for each in people]))

    assert told((me, space, mine)) == []  # it runs
    real = open

    state = b""

    def stat_of(path, *given, **more):
        if path == f"/proc/{me}/stat":
            file = tmp_path / "stat"
            file.write_bytes(b"1 (a) b) " + b" ".join([state, *[b"0"] * 18, b"%d" % mine, b"5"]))
            return real(file, *given, **more)
        return real(path, *given, **more)

    monkeypatch.setattr(dedup, "open", stat_of, raising=False)
    for letter, expected in ((b"T", [me]), (b"t", [me]), (b"S", [])):
        state = letter
        assert told((me, space, mine), (me, space + 1, mine), (me, space, mine + 1), (1 << 30, space, mine)) == expected


def test_the_end_of_an_administrative_action_is_its_patience_from_now(monkeypatch):
    monkeypatch.setattr(_native, "monotonic_ns", lambda: 17)
    assert dedup.admin_deadline() == 17 + 30_000_000_000
    assert spares.KEEP == 2


# ---------------------------------------------------------------- JSON
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)
PLAIN = '{"a":0,"b":{"c":-12,"d":{}},"e":null,"f":true,"g":"x y","h":0.25,"i":false}'


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    VALUES,
    st.integers(0, 400),
    st.sampled_from(["", "{", "}", '"', ",", ":", "0", "-", ".", "\\", " ", "[", "e5", "\x01", "\xe9"]),
)
def test_small_json_is_what_json_reads_also_where_it_is_none(value, at, other):
    """One place is another character, or is missing."""
    for text in (json.dumps(value, separators=(",", ":")), PLAIN):
        spoiled = text[: at % (len(text) + 1)] + other + text[at % (len(text) + 1) + 1 :]
        for stored in (text.encode(), spoiled.encode()):
            assert read_by(small_json.loads, stored) == read_by(json.loads, stored), stored


def read_by(loads, stored):
    try:
        return repr(loads(stored))
    except (ValueError, RecursionError):
        return None


@hypothesis.given(VALUES | st.just(math.inf) | st.just({"a": math.nan}) | st.just({1: 2}), st.booleans())
def test_small_json_is_what_json_writes_also_where_it_is_not_plain(value, in_order):
    written = json.dumps(value, separators=(",", ":"), sort_keys=in_order).encode()
    assert small_json.dumps(value, sort_keys=in_order) == written


def test_making_a_queue_and_a_group_imports_nothing_that_writes_all_of_json(path):
    """To import it took longer than to make both."""
    makes = f"""if 1:
        import sys, shmq
        with shmq.open({str(path)!r}, durability="sync", codec="text", ttl=1.5) as queue:
            queue.consumer("g", group=True).close()
        print("json" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", makes], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_small_json_of_braces_alone_is_no_options():
    with pytest.raises((ValueError, RecursionError)):
        small_json.loads(b'{"a":' * 100_000)


def test_opening_a_queue_imports_nothing_that_reads_all_of_json(make):
    """Nor a codec for a file of letters: both cost more than all the rest."""
    queue = make(durability="sync", codec="text", ttl=1.5, max_messages=7)
    queue.close()
    opens = f"""if 1:
        import sys, shmq
        before = set(sys.modules)
        with shmq.open({queue.path!r}) as queue:
            queue.put("x")
        print(*sorted(each for each in set(sys.modules) - before if not each.startswith("shmq.")))
    """
    done = subprocess.run([sys.executable, "-c", opens], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
