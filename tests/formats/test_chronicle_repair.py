"""Repairing Chronicle queues: one promise per test."""

from __future__ import annotations

import json
import os
import shutil
import struct

import pytest
import support
from chronicle_files import cq4, table
from format_fixtures import FIXTURES, place

from shmq import formats
from shmq.errors import BadFormat, Unsafe
from shmq.formats import chronicle
from shmq.formats.chronicle import fresh, words
from shmq.formats.chronicle.table import WRITE_LOCK, read_table
from shmq.formats.model import Entry

GIVEN = FIXTURES / "chronicle" / "given"
DAY_NS = 86_400_000_000_000
CYCLE = 19676


def named():
    """The fixtures of version 5 by the Java of today, or one visible skip."""
    found = sorted(each.parent for each in GIVEN.glob("**/expected.json") if "javaRead" in each.read_text())
    if not found:
        reason = f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)"
        return [pytest.param("", id="no-fixtures", marks=pytest.mark.skip(reason=reason))]
    return [str(each.relative_to(GIVEN)) for each in found]


def queue(path, many=40):
    """Three days of messages, a tailer on the second, in files of 32 slots by 4."""
    times = [CYCLE * DAY_NS, (CYCLE + 1) * DAY_NS, (CYCLE + 3) * DAY_NS]
    entries = [Entry(b"%d" % each, time_ns=times[each * 3 // many]) for each in range(many)]
    entries.insert(5, Entry(b"meta", extra={"meta": True}))
    tailer = (CYCLE + 1 << 32) + 2
    chronicle.write(path, entries, None, {"t": (tailer, ())}, roll_cycle="TEST4_DAILY")
    return path


def all_of(path):
    return [(each.index, each.payload) for each in chronicle.read(path, meta=True)]


@pytest.mark.parametrize("name", named())
def test_of_what_java_left_nothing_is_lost_and_nothing_is_wrong_afterwards(name, tmp_path):
    """Damaged on purpose or not; what was whole is the same byte for byte, the counters of the table aside."""
    folder = tmp_path / "q"
    shutil.copytree(GIVEN / name, folder)
    expected = json.loads((folder / "expected.json").read_text())
    before = all_of(folder)
    clean = [each for each in formats.verify(folder) if each.file != "metadata.cq4t"] == []
    found = formats.repair(folder)
    assert found.path == tmp_path / "q.repaired"
    assert found.messages == len(expected["messages"])
    assert formats.verify(found.path) == []
    assert all_of(found.path) == before
    table, old = (read_table(each, "metadata.cq4t") for each in (found.path, folder))
    assert (table.roll, table.source_id) == (old.roll, old.source_id)
    assert {key: entry.value for key, entry in table.entries.items() if key != WRITE_LOCK} == {
        key: entry.value for key, entry in old.entries.items() if key != WRITE_LOCK
    }
    if clean and name != "bytes":
        for path in folder.glob("*.cq4"):
            assert (found.path / path.name).read_bytes() == path.read_bytes(), path.name


def damage_pair(path):
    support.patch(path / "20231116T4.cq4", 64, struct.pack("<qq", 1 << 50, 77))


def damage_eof(path):
    file = path / "20231116T4.cq4"
    support.patch(file, file.read_bytes().rindex(words.EOF_TAIL) - 4, bytes(8))


def damage_not_ready(path):
    file = path / "20231118T4.cq4"
    data = file.read_bytes().rstrip(b"\0")
    end = len(data) + -len(data) % 4
    support.patch(file, end, words.WORD.pack(words.NOT_READY | 77) + b"leftovers of a dead writer")


def damage_slots(path):
    support.patch(path / "20231115T4.cq4", fresh.store(32, 4).page_slots, struct.pack("<qqq", 0, 8, 1 << 40))


def damage_used(path):
    support.patch(path / "20231115T4.cq4", fresh.store(32, 4).page_slots - 8, struct.pack("<q", 1))


def damage_root(path):
    support.patch(path / "20231115T4.cq4", fresh.store(32, 4).index2index_slots, struct.pack("<q", 9))


def damage_next_indexed(path):
    support.patch(path / "20231115T4.cq4", fresh.store(32, 4).last_index_at, struct.pack("<q", 1 << 30))


def damage_listing(path):
    for key in ("listing.highestCycle", "listing.lowestCycle"):
        support.patch(path / "metadata.cq4t", read_table(path, "metadata.cq4t").entries[key].address, bytes(8))


def damage_lock(path):
    pid = support.start(lambda: None)
    os.waitpid(pid, 0)
    at = read_table(path, "metadata.cq4t").entries[WRITE_LOCK].address
    support.patch(path / "metadata.cq4t", at, struct.pack("<q", pid))


@pytest.mark.parametrize("in_place", [False, True], ids=["beside", "in-place"])
@pytest.mark.parametrize(
    "damage",
    [
        damage_pair,
        damage_eof,
        damage_not_ready,
        damage_slots,
        damage_used,
        damage_root,
        damage_next_indexed,
        damage_listing,
        damage_lock,
    ],
    ids=lambda each: each.__name__,
)
@pytest.mark.filterwarnings("ignore:.*which is dead")
def test_each_damage_is_named_mended_and_costs_no_message(damage, in_place, tmp_path):
    """The repaired files are those that there were before the damage."""
    path = queue(tmp_path / "q")
    before, whole = all_of(path), {each.name: each.read_bytes() for each in path.iterdir()}
    damage(path)
    damaged = {each.name: each.read_bytes() for each in path.iterdir()}
    assert formats.verify(path)
    found = formats.repair(path, in_place=in_place)
    assert found.problems
    assert found.path == (path if in_place else tmp_path / "q.repaired")
    assert {each.name: each.read_bytes() for each in found.path.iterdir() if each.is_file()} == whole
    assert formats.verify(found.path) == []
    assert all_of(found.path) == before
    kept = found.kept if in_place else path
    if damage is not damage_lock or not in_place:  # in place the lock was taken and given back
        assert {each.name: each.read_bytes() for each in kept.iterdir()} == damaged


def test_a_queue_without_a_table_gets_one(tmp_path):
    """Its roll cycle is what its files' names say; named tailers are gone with it."""
    path = queue(tmp_path / "q")
    before = all_of(path)
    (path / "metadata.cq4t").unlink()
    assert formats.verify(path)
    found = formats.repair(path, in_place=True)
    assert formats.verify(path) == []
    assert all_of(path) == before
    with chronicle.Appender(path, clock=lambda: (CYCLE + 3) * 86_400_000) as appender:
        assert appender.roll_cycle.name == "TEST4_DAILY"
    assert found.kept is not None


def test_a_file_whose_header_is_gone_is_left_out_and_named(tmp_path):
    """The other cycles are whole; a tailer that stood in it goes on with the next."""
    path = queue(tmp_path / "q")
    before = all_of(path)
    support.patch(path / "20231116T4.cq4", 0, words.WORD.pack(500) + bytes(196))
    found = formats.repair(path)
    assert {each.file for each in found.problems} == {"20231116T4.cq4", "metadata.cq4t"}
    assert all_of(found.path) == [each for each in before if each[0] is None or each[0] >> 32 != CYCLE + 1]
    assert formats.verify(found.path) == []
    assert chronicle.consumers(found.path) == {"t": ((CYCLE + 3) << 32, ())}


def test_a_tailer_beyond_what_is_left_stands_at_its_end(tmp_path):
    """Where the next message of its cycle will be."""
    path = queue(tmp_path / "q")
    with chronicle.Appender(path, clock=lambda: 0) as appender:
        for name, index in (("far", (CYCLE + 3 << 32) + 999), ("later", CYCLE + 9 << 32), ("start", 0)):
            appender.commit(name, index)
    found = formats.repair(path)
    last = chronicle.state(path).last
    assert chronicle.consumers(found.path) == {
        "t": ((CYCLE + 1 << 32) + 2, ()),
        "far": (last + 1, ()),
        "later": (last + 1, ()),
        "start": (0, ()),
    }
    assert formats.verify(found.path) == []


def test_a_file_with_one_message_more_than_its_index_holds_keeps_it(tmp_path):
    """As Java leaves it: stored, and in no page."""
    folder = GIVEN / "index-full"
    if not folder.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    found = formats.repair(folder, to=tmp_path / "new")
    assert found.messages == 65
    assert (found.path / "20231115T1.cq4").read_bytes() == (folder / "20231115T1.cq4").read_bytes()


def test_in_place_is_refused_while_the_lock_is_held_by_one_who_lives(tmp_path):
    """Either lock; nothing is changed. A copy can be made."""
    path = queue(tmp_path / "q")
    for key in (WRITE_LOCK, "chronicle.append.lock"):
        at = read_table(path, "metadata.cq4t").entries[key].address
        support.patch(path / "metadata.cq4t", at, struct.pack("<q", os.getppid()))
        before = {each.name: each.read_bytes() for each in path.iterdir()}
        with pytest.raises(Unsafe, match=rf"process {os.getppid()}, which lives, holds {key}"):
            formats.repair(path, in_place=True)
        assert {each.name: each.read_bytes() for each in path.iterdir()} == before
        assert [each.name for each in tmp_path.iterdir()] == ["q"]
        support.patch(path / "metadata.cq4t", at, struct.pack("<q", -(1 << 63)))
    assert formats.repair(path).messages == 40


def test_in_place_is_refused_while_somebody_has_a_file_mapped(tmp_path):
    """An appender holds the lock only while it appends; afterwards it would go on in a file that was moved aside."""
    path = queue(tmp_path / "q")

    def work(say):
        with chronicle.Appender(path, clock=lambda: (CYCLE + 3) * 86_400_000):
            say("open")
            support.hold_until_killed(lambda _: None)

    with support.Child(work) as child:
        assert child.hear() == "open"
        with pytest.raises(Unsafe, match=f"mapped by process {child.pid}"):
            formats.repair(path, in_place=True)
        assert formats.repair(path).messages == 40
    assert formats.repair(path, in_place=True).messages == 40


def test_version_four_is_converted_and_not_repaired(tmp_path):
    """The program of version 4 does not read what we would write."""
    folder = GIVEN / "real-libchronicle-cqv4"
    if not folder.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    with pytest.raises(BadFormat, match="version 4"):
        formats.repair(folder, to=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_one_file_of_a_queue_is_not_repaired_alone(tmp_path):
    """Its table, and the EOF that it needs or not, are the queue's."""
    path = queue(tmp_path / "q")
    with pytest.raises(BadFormat, match="alone"):
        formats.repair(path / "20231116T4.cq4")


def test_what_is_there_is_not_replaced(tmp_path):
    """Nor is anything left of the attempt."""
    path = queue(tmp_path / "q")
    other = queue(tmp_path / "other", 3)
    with pytest.raises(Unsafe, match="is there"):
        formats.repair(path, to=other)
    assert len(all_of(other)) == 4


def test_a_table_that_is_cut_right_behind_its_header_is_written_whole(tmp_path):
    """Its header may end where no key can begin: what fills up to the next multiple of four was cut off."""
    data = table((), 86_400_000, b"yyyyMMdd'T1'")
    stop = 4 + (struct.unpack_from("<I", data)[0] & 0xFFFF)
    assert stop % 4
    folder = place(tmp_path / "q", {"20231115T1.cq4": cq4([b"a"]), "metadata.cq4t": data[:stop]})
    done = chronicle.repair(folder, to=tmp_path / "clean")
    assert chronicle.verify(done.path) == []
    assert [entry.payload for entry in chronicle.read(done.path)] == [b"a"]
