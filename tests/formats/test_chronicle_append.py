"""Appending to Chronicle queues beside others who do, killed anywhere: one promise per test."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import shutil
import struct
import sys
import threading
import time
import warnings

import pytest
import support
from disks import in_memory
from format_fixtures import FIXTURES

from shmq import formats
from shmq.errors import (
    BadFormat,
    Busy,
    Closed,
    Corrupt,
    DiskFull,
    Forked,
    Full,
    Mismatch,
    NotFound,
    ShutDown,
    TooLarge,
    Unsafe,
)
from shmq.formats import chronicle
from shmq.formats.chronicle import cycles, fresh, lock, words
from shmq.formats.chronicle.mapped import Mapped
from shmq.formats.chronicle.table import UNLOCKED, WRITE_LOCK, read_table
from shmq.formats.model import Entry

GIVEN = FIXTURES / "chronicle" / "given"
DAY = 86_400_000
NOW = 1_700_086_400_000
"""2023-11-15 22:13:20."""

SMALL = 4096


@pytest.fixture(autouse=True)
def all_owners_are_seen(monkeypatch):
    """Those who die here are dead at once: no other container's ids are in these locks."""
    monkeypatch.setattr(lock, "STILL_SECONDS", 0.0)


class Clock:
    """A clock that stands still."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


def opened(path, clock=None, **options):
    """An appender with small files."""
    given = {"roll_cycle": "TEST4_DAILY", "block_bytes": SMALL, "timeout": 5.0}
    return chronicle.Appender(path, clock=clock or Clock(), **{**given, **options})


def payloads(path, **options):
    return [each.payload for each in chronicle.read(path, **options)]


def lock_at(path):
    """Where the number of the write lock is, in the table."""
    return read_table(path, "metadata.cq4t").entries[WRITE_LOCK].address


def set_number(path, key, value):
    support.patch(
        path / "metadata.cq4t", read_table(path, "metadata.cq4t").entries[key].address, struct.pack("<q", value)
    )


def number(path, key):
    return read_table(path, "metadata.cq4t").value(key, 0)


# ---------------------------------------------------------------- as Java does it
def given(name):
    folder = GIVEN / name
    if not folder.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    return folder, json.loads((folder / "expected.json").read_text())


def documents(folder, expected):
    """(cycle, is it meta-data, payload) of everything in the files but the index, in their order."""
    found = []
    for file in expected["files"]:
        data = (folder / file["file"]).read_bytes()
        here = [(each, True) for each in file["metaDocs"] if not {"index", "index2index"} & set(each["value"])]
        here += [(each, False) for each in expected["messages"] if each["file"] == file["file"]]
        for each, meta in sorted(here, key=lambda pair: pair[0]["pos"]):
            found.append((file["cycle"], meta, data[each["pos"] + 4 : each["pos"] + 4 + each["len"]]))
    return found


@pytest.mark.parametrize("many", [False, True], ids=["one-by-one", "in-batches"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("text", {}),
        ("bytes", {}),
        ("roll", {}),
        ("meta", {}),
        ("cycle-HOURLY", {}),
        ("cycle-HUGE_DAILY", {}),
        ("custom-index", {"roll_time": "21:00", "index_count": 16, "index_spacing": 4}),
        ("method", {"source_id": 7}),
    ],
)
def test_appended_files_are_javas_byte_for_byte(name, options, many, tmp_path):
    """The index pages where Java makes them, the numbers of the header, EOF, the files' length."""
    folder, expected = given(name)
    roll_cycle = expected["javaRead"]["rollCycle"]
    clock = Clock()
    with opened(tmp_path / "q", clock, roll_cycle=roll_cycle, **options) as appender:
        held = []
        for cycle, meta, payload in documents(folder, expected):
            now = cycles.CYCLES[roll_cycle].start_ms(cycle, appender.epoch)
            if many and (meta or now != clock.now):
                appender.append_many(held)
                held.clear()
            clock.now = now
            if many and not meta:
                held.append(payload)
            else:
                appender.append(payload, meta=meta)
        appender.append_many(held)
    for file in expected["files"]:
        java = (folder / file["file"]).read_bytes()
        assert (tmp_path / "q" / file["file"]).read_bytes() == java, file["file"]


@pytest.mark.parametrize("name", ["missing-eof", "recover-not-ready", "recover-stale-writeposition"])
def test_what_java_recovers_is_recovered_as_java_does_it(name, tmp_path):
    """The same damage, the same messages appended after it: the same bytes as Java left."""
    after, expected = given(f"{name}/after-java")
    before, had = given(f"{name}/before")
    path = tmp_path / "q"
    shutil.copytree(before, path)
    roll_cycle = cycles.CYCLES[expected["javaRead"]["rollCycle"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        clock = Clock()
        with chronicle.Appender(path, clock=clock, block_bytes=SMALL) as appender:
            for cycle, _, payload in documents(after, expected)[len(had["messages"]) :]:
                clock.now = roll_cycle.start_ms(cycle)
                appender.append(payload)
    for file in expected["files"]:
        assert (path / file["file"]).read_bytes() == (after / file["file"]).read_bytes(), file["file"]
    assert payloads(path, as_program=True) == payloads(after)


def test_a_file_where_the_queue_would_be_is_refused(tmp_path):
    (tmp_path / "q").write_bytes(b"mine")
    with pytest.raises(BadFormat, match=r"cannot append to .*/q: it is not a directory"):
        chronicle.Appender(tmp_path / "q")
    assert (tmp_path / "q").read_bytes() == b"mine"


def test_a_queue_whose_writer_was_killed_goes_on(tmp_path):
    """Its lock is taken from the dead, and its half of a message is written over."""
    folder, expected = given("crash")
    path = tmp_path / "q"
    shutil.copytree(folder, path)
    set_number(path, WRITE_LOCK, dead_pid())
    with pytest.warns(RuntimeWarning, match="which is dead"):
        appender = chronicle.Appender(path, clock=Clock(), block_bytes=SMALL)
    with appender:
        index = appender.append(b"after")
    assert index == int(expected["messages"][-1]["index"], 16) + 1
    data = (path / "20231115F.cq4").read_bytes()
    end = data.rindex(b"after") + 8
    assert not any(data[end:])  # nothing is left of the dead one's bytes
    assert payloads(path)[-1] == b"after"


# ---------------------------------------------------------------- cycles
def test_the_clock_rolls_files_and_every_older_one_gets_its_end(tmp_path):
    """The listing says which cycles there are, and each change is counted."""
    clock = Clock()
    path = tmp_path / "q"
    with opened(path, clock) as appender:
        first = appender.append(b"a")
        clock.now += DAY
        appender.append(b"b")
        clock.now += 3 * DAY
        last = appender.append(b"c")
    assert (first, last) == (0x4CDC00000000, 0x4CE000000000)
    assert payloads(path, as_program=True) == [b"a", b"b", b"c"]
    assert number(path, "listing.lowestCycle") == 19676
    assert number(path, "listing.highestCycle") == 19680
    assert number(path, "listing.modCount") == 7
    assert number(path, "normalisedEOFsTo") == 19677


def test_a_clock_that_goes_back_stays_in_the_newest_file(tmp_path):
    """An index is never smaller than the one before it."""
    clock = Clock()
    with opened(tmp_path / "q", clock) as appender:
        appender.append(b"a")
        clock.now -= DAY
        assert appender.append(b"b") == 0x4CDC00000001
    with opened(tmp_path / "q", clock) as appender:
        assert appender.append(b"c") == 0x4CDC00000002


def test_another_appenders_roll_is_followed(tmp_path):
    """Two in one process, by turns."""
    early, late = Clock(), Clock()
    with opened(tmp_path / "q", early) as one, opened(tmp_path / "q", late) as other:
        one.append(b"a")
        other.append(b"b")
        late.now += DAY
        other.append(b"c")
        assert one.append(b"d") == 0x4CDD00000001
    assert payloads(tmp_path / "q", as_program=True) == [b"a", b"b", b"c", b"d"]


def test_a_file_that_has_its_end_is_not_appended_to(tmp_path):
    """It would be read by nobody."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a")
        file = path / "20231115T4.cq4"
        end = file.read_bytes().rindex(b"a") + 4
        support.patch(file, end, words.WORD.pack(words.EOF))
        with pytest.raises(ShutDown, match="whose clock is ahead"):
            appender.append(b"b")
    assert payloads(path) == [b"a"]


def test_a_damaged_older_file_does_not_stop_the_next_cycle(tmp_path):
    """Its EOF has no place; `verify` names it."""
    clock = Clock()
    path = tmp_path / "q"
    with opened(path, clock) as appender:
        appender.append(b"a")
    (path / "20231114T4.cq4").write_bytes(b"nonsense" * 100)
    file = path / "20231115T4.cq4"
    support.patch(file, file.read_bytes().rindex(b"a") - 4, words.WORD.pack(1 << 29))
    clock.now += DAY
    with opened(path, clock) as appender:
        assert appender.append(b"b") == 0x4CDD00000000


def test_a_file_that_was_made_before_its_time_is_taken(tmp_path):
    """Java's pretoucher calls it .precreated until its cycle begins."""
    clock = Clock()
    path = tmp_path / "q"
    with opened(path, clock) as appender:
        appender.append(b"a")
        made = fresh.store(32, 4).whole()
        (path / "20231116T4.precreated").write_bytes(made + bytes(50_000 - len(made)))
        clock.now += DAY
        appender.append(b"b")
    assert (path / "20231116T4.cq4").stat().st_size == 50_000
    assert not (path / "20231116T4.precreated").exists()


def test_a_file_that_somebody_is_making_is_waited_for(tmp_path):
    """And used once it is ready."""
    path = tmp_path / "q"
    with opened(path) as appender:
        whole = fresh.store(32, 4).whole()
        file = path / "20231115T4.cq4"
        file.write_bytes(words.WORD.pack(words.NOT_READY) + whole[4:] + bytes(4096))
        timer = threading.Timer(0.1, support.patch, [file, 0, whole[:4]])
        timer.start()
        assert appender.append(b"a") == 0x4CDC00000000
        timer.join()
    assert payloads(path) == [b"a"]
    assert not list(path.glob("*.discard"))


def test_a_file_that_nobody_finishes_is_moved_aside(tmp_path):
    """Once in a cycle, and nothing of it is lost; as in Java."""
    path = tmp_path / "q"
    with opened(path, timeout=0.1) as appender:
        (path / "20231115T4.cq4").write_bytes(words.WORD.pack(words.NOT_READY) + b"half of a header")
        assert appender.append(b"a") == 0x4CDC00000000
    (kept,) = path.glob("20231115T4.cq4-*.discard")
    assert b"half of a header" in kept.read_bytes()
    assert payloads(path) == [b"a"]


def test_an_empty_file_that_nobody_began_is_made_where_it_lies(tmp_path):
    """A program was killed between creating it and anything else."""
    path = tmp_path / "q"
    with opened(path) as appender:
        (path / "20231115T4.cq4").touch()
        assert appender.append(b"a") == 0x4CDC00000000
    assert payloads(path) == [b"a"]


def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path):
    """Whatever its name says."""
    path = tmp_path / "q"
    with opened(path) as appender:
        (path / "20231115T4.cq4").write_bytes(b"nonsense" * 100)
        with pytest.raises(Corrupt, match="no header"):
            appender.append(b"a")
    assert (path / "20231115T4.cq4").read_bytes() == b"nonsense" * 100


# ---------------------------------------------------------------- limits
def test_a_cycle_that_is_full_is_refused_before_anything_is_written(tmp_path):
    """Java appends one more, without an entry in the index, and throws: we do not."""
    clock = Clock()
    path = tmp_path / "q"
    with opened(path, clock, roll_cycle="TEST_DAILY") as appender:
        appender.append_many([b"x"] * 60)
        before = (path / "20231115T1.cq4").read_bytes()
        with pytest.raises(Full, match="holds 60 of the 64"):
            appender.append_many([b"y"] * 5)
        assert (path / "20231115T1.cq4").read_bytes() == before
        assert len(appender.append_many([b"x"] * 4)) == 4
        with pytest.raises(Full, match="when the next cycle begins"):
            appender.append(b"y")
        clock.now += DAY
        assert appender.append(b"z") == 0x4CDD00000000
    assert payloads(path) == [b"x"] * 64 + [b"z"]


def test_a_message_that_does_not_fit_the_overlap_is_refused_before_anything_is_written(tmp_path):
    """Which is the block's size in small ones; the largest that fits comes back whole, wherever it begins."""
    path = tmp_path / "q"
    with opened(path) as appender:
        with pytest.raises(TooLarge, match="4080 are the most"):
            appender.append(bytes(4081))
        with pytest.raises(TooLarge, match="nothing was written"):
            appender.append_many([bytes(4081)])
        assert not list(path.glob("*.cq4"))
        sent = [bytes([number]) * size for number, size in enumerate([4080, 1, 4080, 3000, 4080, 2, 4079, 4080])]
        assert len(appender.append_many(sent)) == 8
        for each in sent:
            appender.append(each)
    assert payloads(path) == sent + sent
    for position, size in [(4000, 8192), (4096, 12288)]:
        assert fresh.file_bytes(position, SMALL) == size


def test_an_empty_message_becomes_one_byte(tmp_path):
    """As in Java: a document without any has no word."""
    with opened(tmp_path / "q") as appender:
        appender.append(b"")
        appender.append_many([b"", b"a"])
    assert payloads(tmp_path / "q") == [b"\x8f", b"\x8f", b"a"]


@pytest.fixture
def small_disk(tmp_path):
    with in_memory(tmp_path, 192 << 10) as made:
        yield made


def test_a_full_disk_is_an_error_and_not_a_signal(small_disk):
    """Every append that returned is there, none that did not, and there is room again when the disk has some."""
    path = small_disk / "q"
    with opened(path) as appender:
        sent = []
        filler = small_disk / "filler"
        filler.write_bytes(bytes(80 << 10))

        def fill():
            for number in range(1000):
                appender.append(b"%d" % number * 200)
                sent.append(b"%d" % number * 200)

        with pytest.raises(DiskFull, match="the queue is whole"):
            fill()
        assert len(sent) > 3
        assert payloads(path) == sent
        with pytest.raises(DiskFull):
            appender.append_many([b"many" * 500] * 100)
        assert payloads(path) == sent
        filler.unlink()
        appender.append(b"room")
    assert payloads(path) == [*sent, b"room"]
    assert chronicle.verify(path) == []


def test_a_disk_without_room_for_a_new_file_leaves_none(small_disk):
    """Neither a queue nor a cycle is begun by half."""
    filler = small_disk / "filler"
    with opened(small_disk / "q", Clock()) as appender:
        appender.append(b"a")
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        appender._clock.now += DAY
        with pytest.raises((DiskFull, OSError)):
            appender.append(b"b")
        assert [each.name for each in sorted((small_disk / "q").glob("*cq4*"))] == ["20231115T4.cq4", "metadata.cq4t"]
        with pytest.raises((DiskFull, OSError)):
            opened(small_disk / "other")
        filler.unlink()
        appender.append(b"b")
    assert payloads(small_disk / "q", as_program=True) == [b"a", b"b"]


def test_a_look_into_a_hole_of_a_full_disk_takes_no_page(small_disk):
    """Of a file in memory (tmpfs) it would, through a mapping, and whoever looks would be killed."""
    (small_disk / "file").touch()
    os.truncate(small_disk / "file", 1 << 20)
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as filler:
        while True:
            filler.write(bytes(4096))
            filler.flush()

    def look():
        file = Mapped(small_disk / "file")
        found = file.load32(0), file.load64(1 << 19), file.read(4096, 4100), file.load32(1 << 20)
        with pytest.raises(DiskFull):
            file.reserve(0, 8)
        file.close()
        return found

    assert support.in_child(look) == str((0, 0, bytes(4), 0))


# ---------------------------------------------------------------- the lock
def dead_pid():
    """The id of a process that is dead and whose parent knows it."""
    pid = support.start(lambda: None)
    os.waitpid(pid, 0)
    return pid


def test_a_lock_held_by_one_who_lives_is_waited_for_and_named(tmp_path):
    """Then Busy, and nothing was written; when it is free the same appender goes on."""
    path = tmp_path / "q"
    with support.Child(support.hold_until_killed) as child, opened(path, timeout=0.2) as appender:
        appender.append(b"a")
        set_number(path, WRITE_LOCK, child.pid)
        began = time.monotonic()
        with pytest.raises(Busy, match=rf"held for 0\.2 s by process {child.pid} \(.+\); nothing was written"):
            appender.append(b"b")
        assert time.monotonic() - began >= 0.2
        with pytest.raises(Busy, match=str(child.pid)):
            opened(path, timeout=0.1)
        set_number(path, WRITE_LOCK, UNLOCKED)
        appender.append(b"c")
    assert payloads(path) == [b"a", b"c"]


@pytest.mark.parametrize("upper", [0, 7 << 32], ids=["id", "id-and-thread"])
def test_a_lock_held_by_the_dead_is_free(upper, tmp_path):
    """Also one that holds a thread's number in its upper half; a warning says who it was."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a")
        dead = dead_pid()
        set_number(path, WRITE_LOCK, upper | dead)
        with pytest.warns(RuntimeWarning, match=f"process {dead}, which is dead"):
            appender.append(b"b")
        assert number(path, WRITE_LOCK) == UNLOCKED
    assert payloads(path) == [b"a", b"b"]


def test_a_lock_held_by_a_process_that_was_not_reaped_is_free(tmp_path):
    """It is in /proc still, and will never do anything."""
    path = tmp_path / "q"
    with opened(path) as appender:
        pid = support.start(lambda: None)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            set_number(path, WRITE_LOCK, pid)
            with pytest.warns(RuntimeWarning, match=f"process {pid}"):
                appender.append(b"a")
        finally:
            os.waitpid(pid, 0)


def test_an_owner_that_cannot_be_seen_and_gives_the_lock_back_is_waited_for(tmp_path, monkeypatch):
    """As in another container, whose ids mean nothing here: it has what it wrote under the lock to itself."""
    monkeypatch.setattr(lock, "STILL_SECONDS", 5.0)
    path = tmp_path / "q"
    stop = threading.Event()
    robbed = []
    with opened(path, roll_cycle="FAST_DAILY") as appender, warnings.catch_warnings():
        warnings.simplefilter("error")
        appender.append(b"first")
        other, at, stranger = Mapped(path / "metadata.cq4t"), lock_at(path), dead_pid()

        def hold():
            while not stop.is_set():
                if other.cas64(at, UNLOCKED, stranger):
                    time.sleep(0.002)
                    robbed.append(not other.cas64(at, stranger, UNLOCKED))
                time.sleep(0.001)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            while len(robbed) < 20:
                appender.append(b"more")
                time.sleep(0.001)
        finally:
            stop.set()
            thread.join()
            other.close()
    assert not any(robbed)


def test_a_lock_with_our_own_id_is_never_taken_for_ours(tmp_path):
    """An earlier process may have had it, or one in another container: nobody can know, so it is waited for."""
    path = tmp_path / "q"
    with opened(path, timeout=0.1) as appender:
        set_number(path, WRITE_LOCK, os.getpid())
        with pytest.raises(Busy, match="which is this one, though no appender of it does"):
            appender.append(b"a")
        assert number(path, WRITE_LOCK) == os.getpid()
        assert chronicle.unlock(path) == {WRITE_LOCK: os.getpid()}
        appender.append(b"a")
    assert chronicle.unlock(path) == {}


def test_the_append_lock_is_respected(tmp_path):
    """Whoever replicates into a queue keeps all others out; meta-data of its own process may pass."""
    path = tmp_path / "q"
    with opened(path) as appender:
        set_number(path, "chronicle.append.lock", 1)
        with pytest.raises(Busy, match=r"append\.lock is held by process 1, which lives"):
            appender.append(b"a")
        with pytest.raises(Busy, match="sink of a replication"):
            appender.append(b"a", meta=True)
        set_number(path, "chronicle.append.lock", os.getpid())
        with pytest.raises(Busy):
            appender.append(b"a")
        appender.append(b"m", meta=True)
        assert chronicle.unlock(path) == {"chronicle.append.lock": os.getpid()}
        appender.append(b"b")
    assert payloads(path) == [b"b"]
    assert payloads(path, meta=True) == [b"m", b"b"]


def test_threads_share_an_appender_and_have_their_own(tmp_path):
    """All have one process id, so the number in the table does not tell them apart."""
    path = tmp_path / "q"
    with opened(path, roll_cycle="FAST_DAILY", block_bytes=1 << 20) as shared:

        def work(name):
            with opened(path, roll_cycle="FAST_DAILY", block_bytes=1 << 20) as own:
                for each in range(100):
                    (own if each % 2 else shared).append(b"%d.%d" % (name, each))

        threads = [threading.Thread(target=work, args=[name]) for name in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = payloads(path)
    assert len(found) == 400
    for name in range(4):
        assert [each for each in found if each.startswith(b"%d." % name)] == [b"%d.%d" % (name, n) for n in range(100)]


def test_a_lock_is_given_back_whatever_is_raised_under_it(tmp_path):
    """A signal's handler among it: that runs where a function begins, and where one returns."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a")
        interrupted = 0
        for at in range(1, 200):
            left = [at]

            def handler(frame, event, _arg, left=left):
                frame.f_trace_lines = False
                if "chronicle" in frame.f_code.co_filename and "test" not in frame.f_code.co_filename:
                    left[0] -= event in {"call", "return"}
                    if left[0] == 0:
                        left[0] = -1
                        raise KeyboardInterrupt
                return handler

            sys.settrace(handler)
            try:
                appender.append(b"b")
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            assert number(path, WRITE_LOCK) == UNLOCKED, at
            appender.append(b"c")
    assert interrupted > 40
    assert chronicle.verify(path) == []


def test_a_forked_child_has_no_appender(tmp_path):
    """It opens its own; closing what it inherited hurts nobody."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a")

        def child():
            with pytest.raises(Forked, match=str(os.getppid())):
                appender.append(b"b")
            with pytest.raises(Forked):
                appender.commit("t", 0)
            appender.close()
            with opened(path) as own:
                return own.append(b"c")

        assert support.in_child(child) == str(0x4CDC00000001)
        appender.append(b"d")
    assert payloads(path) == [b"a", b"c", b"d"]


def test_a_child_forked_while_a_thread_appends_can_append(tmp_path):
    """The turn that its parent's thread has is not the child's to wait for."""
    path = tmp_path / "q"
    stop = threading.Event()
    with opened(path, roll_cycle="FAST_DAILY", block_bytes=1 << 20) as appender:

        def work():
            while not stop.is_set():
                appender.append(b"parent")

        thread = threading.Thread(target=work)
        thread.start()

        def child():
            with opened(path, roll_cycle="FAST_DAILY", block_bytes=1 << 20) as own:
                own.append(b"child")
                return "done"

        try:
            assert [support.in_child(child) for _ in range(5)] == ["done"] * 5
        finally:
            stop.set()
            thread.join()
    assert payloads(path).count(b"child") == 5


def test_a_closed_appender_says_so(tmp_path):
    """Again is harmless; nothing of it is left open."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    appender = opened(tmp_path / "q")
    appender.append(b"a")
    appender.close()
    appender.close()
    for use in (lambda: appender.append(b"b"), lambda: appender.commit("t", 1), appender.sync):
        with pytest.raises(Closed):
            use()
    assert len(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------- others at the same time, and killed
def test_processes_append_at_once_and_nothing_is_lost_or_doubled(tmp_path):
    """Each keeps its order; index and position agree for all."""
    path = tmp_path / "q"
    opened(path).close()

    def work(say, name):
        with opened(path) as appender:
            for each in range(60):
                if each % 7:
                    appender.append(b"%d.%d" % (name, each))
                else:
                    appender.append_many([b"%d.%d.%d" % (name, each, part) for part in range(3)])
        say("done")

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(support.Child(work, name)) for name in range(3)]
        for child in children:
            assert child.hear() == "done"
            assert child.join() == 0
    found = list(chronicle.read(path))
    assert [entry.index for entry in found] == [0x4CDC00000000 + each for each in range(len(found))]
    for name in range(3):
        expected = []
        for each in range(60):
            expected += [b"%d.%d" % (name, each)] if each % 7 else [b"%d.%d.%d" % (name, each, n) for n in range(3)]
        assert [entry.payload for entry in found if entry.payload.startswith(b"%d." % name)] == expected
    assert chronicle.verify(path) == []
    for entry in found[::17]:
        assert next(chronicle.read(path, index=entry.index)) == entry


STEPS = frozenset(
    {"shmq_foreign_cas32", "shmq_foreign_cas64", "shmq_foreign_store64", "posix_fallocate", "ftruncate", "link"}
    | {"pwrite", "rename", "unlink", "getppid"}
)
"""Every call by which an appender changes anything; getppid stands in the middle of each larger store."""


def by_halves(file, at, data):
    """As Mapped.write, with places to be killed in front of it and in the middle."""
    half = len(data) // 2
    os.getppid()
    file._memory[at : at + half] = data[:half]
    os.getppid()
    file._memory[at + half : at + len(data)] = data[half:]


def test_killed_at_every_step_the_queue_goes_on(tmp_path):
    """
    What was acknowledged is there, what was not is there whole or not at all, and the next one appends at once.

    A queue is made, appended to, rolled and committed to; each step of it is once the last.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mapped, "write", by_halves)
        step = 0
        onward = support.strides()
        while killed_once(tmp_path / f"q{step}", step):
            step += next(onward)
    assert step > 60


def killed_once(path, step):
    acknowledged = path.with_suffix(".said")
    acknowledged.touch()

    def work():
        clock = Clock()
        with acknowledged.open("ab", buffering=0) as said, opened(path, clock, roll_cycle="TEST_DAILY") as appender:
            for each in range(3):
                appender.append(b"%d" % each)
                said.write(b"%d " % each)
            appender.append_many([b"3", b"4", b"5", b"6", b"7", b"8"])
            said.write(b"3 4 5 6 7 8 ")
            clock.now += DAY
            last = appender.append(b"9")
            said.write(b"9 ")
            appender.commit("t", last)

    killed = support.killed_at(step, work, STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with opened(path, Clock(NOW + DAY), roll_cycle="TEST_DAILY", timeout=1.0) as appender:
            appender.append(b"next")
            appender.append_many([b"and"] * 9)
    found = payloads(path)
    *there, _ = found[: found.index(b"next") + 1]
    said = acknowledged.read_bytes().split()
    assert there[: len(said)] == said, step
    assert there == [b"%d" % each for each in range(len(there))], step
    assert len(there) - len(said) in ((0, 1) if len(said) != 3 else (0, 6)), step
    assert found[len(there) :] == [b"next"] + [b"and"] * 9
    assert payloads(path, as_program=True) == found
    assert chronicle.verify(path) == [], step
    for entry in chronicle.read(path):
        assert next(chronicle.read(path, index=entry.index)) == entry
    shutil.rmtree(path)
    return killed


def test_killed_at_random_while_others_append(tmp_path):
    """With kill -9 from outside, again and again: every acknowledged message is there once, in its writer's order."""
    path = tmp_path / "q"
    opened(path, roll_cycle="TEST8_DAILY").close()

    def work(say, name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            with opened(path, roll_cycle="TEST8_DAILY") as appender:
                for each in range(100_000):
                    appender.append(b"%s.%d" % (name, each))
                    if each % 5 == 4:
                        say(each)

    acknowledged = {}
    for number in range(6):
        name = b"w%d" % number
        with support.Child(work, name) as one, support.Child(work, name + b"b") as other:
            for child, own in ((one, name), (other, name + b"b")):
                acknowledged[own] = int(child.hear())
            time.sleep(0.002 * number)
            for child in (one, other):
                child.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with opened(path, roll_cycle="TEST8_DAILY") as appender:
            appender.append(b"end.0")
    found = payloads(path)
    assert found[-1] == b"end.0"
    for name, last in acknowledged.items():
        own = [each for each in found if each.startswith(name + b".")]
        assert own == [b"%s.%d" % (name, each) for each in range(len(own))]
        assert len(own) > last
    assert chronicle.verify(path) == []


# ---------------------------------------------------------------- what is found in the files
def test_a_document_that_was_never_finished_is_written_over_and_told(tmp_path):
    """As libchronicle leaves it, with its process id in the word."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a")
        file = path / "20231115T4.cq4"
        support.patch(file, file.read_bytes().rindex(b"a") + 4, words.WORD.pack(words.NOT_READY | 4711) + b"garbage")
        with pytest.warns(RuntimeWarning, match="80001267"):
            appender.append(b"b")
    assert payloads(path) == [b"a", b"b"]


@pytest.mark.parametrize(
    "pair",
    [(1 << 40, 0), (6, 6 << 32), (-8, 0), (200, 200 << 32), (784, 5), (784, (784 << 32) + 4_000_000), (0, 0)],
    ids=["beyond", "inside", "negative", "a-page", "stale", "too-many", "none"],
)
def test_a_write_position_that_cannot_be_is_not_believed(pair, tmp_path):
    """The end is found from the index, or by walking, and the pair is right afterwards."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append_many([b"%d" % each for each in range(10)])
    file = path / "20231115T4.cq4"
    support.patch(file, 64, struct.pack("<qq", *pair))
    with opened(path) as appender:
        assert appender.append(b"next") == 0x4CDC0000000A
        position, encoded = struct.unpack_from("<qq", file.read_bytes(), 64)
        assert encoded == (position << 32) + 10
    assert payloads(path) == [b"%d" % each for each in range(10)] + [b"next"]


@pytest.mark.parametrize("lies", ["pair", "slot"])
def test_a_number_that_java_counted_wrong_is_not_gone_on_with(lies, tmp_path):
    """It gives two messages one number, where it had rolled and given up a document while another appended."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append_many([b"%d" % each for each in range(14)])
    file = path / "20231115T4.cq4"
    position = struct.unpack_from("<q", file.read_bytes(), 64)[0]
    if lies == "pair":
        support.patch(file, 72, struct.pack("<q", (position << 32) + 11))
    else:  # the slot of message 12 leads to message 13
        support.patch(file, fresh.store(32, 4).page_slots + 8 * 3, struct.pack("<q", position))
    with opened(path) as appender:
        assert appender.append(b"14") == 0x4CDC0000000E
    assert chronicle.state(path).last == 0x4CDC0000000E


def test_many_that_another_appended_are_passed_at_once(tmp_path):
    """Within one document or a thousand of where we were."""
    path = tmp_path / "q"
    with opened(path) as one, opened(path) as other:
        for many in (1, 63, 64, 65, 1000):
            one.append(b"one")
            other.append_many([b"other"] * many)
        assert one.append(b"end") == 0x4CDC00000000 + 5 + 1 + 63 + 64 + 65 + 1000
    assert chronicle.verify(path) == []


def test_holes_in_the_index_are_legal_and_stay_behind(tmp_path):
    """What somebody who was killed did not enter is found by walking; what comes after is entered."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append_many([b"%d" % each for each in range(200)])
    file = path / "20231115T4.cq4"
    store = fresh.store(32, 4)
    support.patch(file, store.page_slots + 8 * 3, bytes(8))
    support.patch(file, store.index2index_slots + 8, bytes(8))  # the second page
    with opened(path) as appender:
        appender.append_many([b"%d" % each for each in range(200, 300)])
    for each in range(0, 300, 7):
        assert next(chronicle.read(path, index=0x4CDC00000000 + each)).payload == b"%d" % each


def test_an_index_that_is_none_is_left_alone(tmp_path):
    """The messages are there, and readers walk."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"0")
    file = path / "20231115T4.cq4"
    store = fresh.store(32, 4)
    support.patch(file, store.index2index_slots, struct.pack("<q", 7))  # the first page is nowhere
    before = file.read_bytes()
    with opened(path) as appender:
        appender.append_many([b"%d" % each for each in range(1, 9)])
    assert payloads(path) == [b"%d" % each for each in range(9)]
    assert file.read_bytes()[store.index2index : store.start] == before[store.index2index : store.start]


def test_a_queue_of_version_four_is_refused_and_not_touched(tmp_path):
    """Whether its table has the old name, or only its files are old."""
    folder, _ = given("real-libchronicle-cqv4")
    path = tmp_path / "q"
    shutil.copytree(folder, path)
    with pytest.raises(BadFormat, match="version 4"):
        chronicle.Appender(path)
    with pytest.raises(NotFound):
        chronicle.Appender(path, create=False)
    (path / "directory-listing.cq4t").unlink()
    shutil.copy(path / "20211125.cq4", tmp_path / "old")
    (path / "20211125.cq4").unlink()
    now = cycles.CYCLES["DAILY"].start_ms(cycles.CYCLES["DAILY"].cycle_of("20211125.cq4"))
    with chronicle.Appender(path, roll_cycle="DAILY", clock=Clock(now)) as appender:
        shutil.copy(tmp_path / "old", path / "20211125.cq4")
        with pytest.raises(BadFormat, match="version 4"):
            appender.append(b"x")
    assert (path / "20211125.cq4").read_bytes() == (tmp_path / "old").read_bytes()


def test_a_queue_of_an_older_release_is_appended_to(tmp_path):
    """Its table is half as long and lacks keys, and its header has other codes; what was there stays."""
    folder, expected = given("real-libchronicle-cqv5")
    path = tmp_path / "q"
    shutil.copytree(folder, path)
    (path / "cqv5-sample-input.tar.bz2").unlink()
    before = payloads(path)
    assert len(before) == expected["files"][0]["count"]
    fast = cycles.CYCLES["FAST_DAILY"]
    now = fast.start_ms(fast.cycle_of("20211118F.cq4"))
    with chronicle.Appender(path, clock=Clock(now), block_bytes=SMALL) as appender:
        assert appender.append(b"new") == fast.index(fast.cycle_at(now), len(before))
        appender._clock.now += DAY
        appender.append(b"next")
    assert payloads(path, as_program=True) == [*before, b"new", b"next"]
    assert number(path, "chronicle.append.lock") == UNLOCKED
    assert (path / "metadata.cq4t").stat().st_size == 131072
    assert chronicle.verify(path) == []


# ---------------------------------------------------------------- opening, and the table
def test_a_new_queue_is_made_whole_and_what_it_was_made_with_stays(tmp_path):
    """Its table is Java's byte for byte; another roll cycle is refused."""
    path = tmp_path / "deep" / "q"
    with pytest.raises(NotFound, match="no such directory"):
        opened(path, create=False)
    opened(path, roll_cycle="FAST_DAILY").close()
    folder, _ = given("empty")
    assert (path / "metadata.cq4t").read_bytes() == (folder / "metadata.cq4t").read_bytes()
    with pytest.raises(Mismatch, match="FAST_DAILY and not as HOURLY"):
        chronicle.Appender(path, roll_cycle="HOURLY")
    with chronicle.Appender(path) as appender:
        assert appender.roll_cycle.name == "FAST_DAILY"
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound, match="not a queue of version 5"):
        chronicle.Appender(tmp_path / "none", create=False)


def test_the_program_that_is_making_the_table_is_waited_for(tmp_path):
    """And if it does not go on, that is said."""
    path = tmp_path / "q"
    opened(path).close()
    file = path / "metadata.cq4t"
    word = file.read_bytes()[:4]
    support.patch(file, 0, words.WORD.pack(words.NOT_READY))
    with pytest.raises(Corrupt, match="not ready"):
        opened(path, timeout=0.05)
    timer = threading.Timer(0.1, support.patch, [file, 0, word])
    timer.start()
    opened(path).close()
    timer.join()


def test_a_tailers_place_is_committed_and_read_back(tmp_path):
    """A new name is added to the table, a name is the same in small and large letters, and it is stored in place."""
    path = tmp_path / "q"
    with opened(path) as appender:
        first = appender.append(b"a")
        appender.append(b"b")
        appender.commit("t", first + 1)
        size = (path / "metadata.cq4t").stat().st_size
        appender.commit("T", first + 1)
        appender.commit("other", 0)
        assert chronicle.consumers(path) == {"t": (first + 1, ()), "other": (0, ())}
        assert payloads(path, consumer="t") == [b"b"]
        assert (path / "metadata.cq4t").stat().st_size == size


@pytest.mark.parametrize(
    ("name", "index", "kind"),
    [
        ("", 0, BadFormat),
        ("a\nb", 0, BadFormat),
        ("\u20ac", 0, BadFormat),
        ("replicated:a", 0, BadFormat),
        ("a", 1 << 63, TooLarge),
    ],
)
def test_a_place_that_the_table_cannot_hold_is_refused(name, index, kind, tmp_path):
    """And adds no key."""
    with opened(tmp_path / "q") as appender, pytest.raises(kind):
        appender.commit(name, index)
    assert chronicle.consumers(tmp_path / "q") == {}


def test_a_table_that_is_full_is_refused(tmp_path):
    """The keys that are there can still be set."""
    path = tmp_path / "q"
    with opened(path) as appender:

        def fill():
            for each in range(1000):
                appender.commit(f"{each:099d}", each)

        with pytest.raises(BadFormat, match="full with"):
            fill()
        appender.commit(f"{0:099d}", 7)
        appender.append(b"a")
    consumers = chronicle.consumers(path)
    assert consumers[f"{0:099d}"] == (7, ())
    assert len(consumers) > 400
    assert chronicle.state(path).problems == []


def test_keys_that_two_add_at_once_are_added_once(tmp_path):
    """Under the byte that Java locks for it."""
    path = tmp_path / "q"
    opened(path).close()

    def work(say, own):
        with opened(path) as appender:
            for each in range(40):
                appender.commit(f"both{each}", own)
                appender.commit(f"{own}.{each}", each)
        say("done")

    with support.Child(work, 1) as one, support.Child(work, 2) as other:
        assert (one.hear(), other.hear()) == ("done", "done")
    table = read_table(path, "metadata.cq4t")
    assert table.problems == []
    assert len(table.tailers()) == 120


def test_a_key_is_added_to_the_shorter_table_of_an_older_program(tmp_path):
    path = tmp_path / "q"
    opened(path).close()
    os.truncate(path / "metadata.cq4t", 1 << 16)
    with opened(path) as appender:
        index = appender.append(b"first")
        appender.commit("new", index)
    assert chronicle.consumers(path) == {"new": (index, ())}
    assert (path / "metadata.cq4t").stat().st_size == fresh.TABLE_BYTES


def test_a_key_half_written_by_one_who_was_killed_is_written_over(tmp_path):
    """Its word was never stored, or says that it is not ready."""
    path = tmp_path / "q"
    opened(path).close()
    table = read_table(path, "metadata.cq4t")
    support.patch(path / "metadata.cq4t", table.end, words.WORD.pack(words.NOT_READY) + b"\xff" * 60)
    with opened(path) as appender:
        appender.commit("t", 5)
    table = read_table(path, "metadata.cq4t")
    assert table.tailers() == {"t": (5, ())}
    assert table.problems == []


def test_sync_says_what_is_on_the_disk(tmp_path, synced):
    """The file is, and the table tells so."""
    path = tmp_path / "q"
    forced = []
    with pytest.MonkeyPatch.context() as patch, opened(path) as appender:
        patch.setattr(os, "fdatasync", lambda fd: forced.append(os.readlink(f"/proc/self/fd/{fd}")))
        appender.sync()
        assert forced == []
        index = appender.append(b"a")
        appender.sync()
    assert forced == [str(path / "20231115T4.cq4"), str(path / "metadata.cq4t")]
    assert number(path, "chronicle.lastIndexMSynced") == index


def test_files_grow_while_the_whole_of_them_is_locked(tmp_path):
    """Whoever holds that lock is waited for; then it grows to what a program with such blocks would make of it."""
    path = tmp_path / "q"
    with opened(path) as appender:
        appender.append(b"a" * 4000)
        file = path / "20231115T4.cq4"
        assert file.stat().st_size == 8192
        other = Mapped(file)
        with other.locked(0, (1 << 63) - 1):
            thread = threading.Thread(target=appender.append_many, args=[[b"b" * 4000]])
            thread.start()
            time.sleep(0.05)
            assert file.stat().st_size == 8192
            assert thread.is_alive()
        thread.join()
        other.close()
    assert file.stat().st_size == 12288
    assert payloads(path) == [b"a" * 4000, b"b" * 4000]


def test_the_verbs_append_and_commit(tmp_path):
    """As for every format; what Chronicle has no place for is refused, and what is before it is in."""
    path = tmp_path / "q"
    opened(path, Clock(0)).close()
    entries = [Entry(b"a", 7), Entry(b"m", extra={"meta": True}), Entry(b"b", 1)]
    assert formats.append(path, entries) == 2
    assert payloads(path, meta=True) == [b"a", b"m", b"b"]
    for entry in (Entry(b"x", key=b"k"), Entry(b"x", expires_ns=0), Entry(b"")):
        with pytest.raises(Unsafe, match="entry 1 to Chronicle"):
            formats.append(path, [Entry(b"c"), entry])
    assert formats.append(path, [Entry(b"x", key=b"k")], lossy=True) == 1
    assert payloads(path) == [b"a", b"b", b"c", b"c", b"c", b"x"]
    last = chronicle.state(path).last
    formats.commit(path, "t", last)
    assert formats.consumers(path) == {"t": (last, ())}
    with pytest.raises(Unsafe, match="out of order"):
        formats.commit(path, "t", last, [last])
    with pytest.raises(NotFound):
        formats.append(tmp_path / "none", [], format="chronicle")


def test_what_is_exported_is_appended_to(tmp_path):
    """A queue that `write` made goes on where it ended, in its last file, with its index."""
    path = tmp_path / "q"
    entries = [Entry(b"%d" % each, time_ns=NOW * 1_000_000) for each in range(130)]
    chronicle.write(path, entries, roll_cycle="TEST4_DAILY")
    with opened(path) as appender:
        assert appender.append(b"130") == 0x4CDC00000000 + 130
    assert payloads(path) == [b"%d" % each for each in range(131)]


# ---------------------------------------------------------------- threads of one process
def test_an_appender_is_closed_beside_threads_that_append_through_it(tmp_path):
    """Close waits for the call that is running, and the others are Closed; two of them once wrote at one place."""
    for turn in range(4):
        appender, acknowledged, ended = chronicle.Appender(tmp_path / f"{turn}"), {}, []

        def put(number, appender=appender, acknowledged=acknowledged, ended=ended):
            with contextlib.suppress(Closed):
                for each in itertools.count():
                    acknowledged[appender.append(b"%d:%d" % (number, each))] = b"%d:%d" % (number, each)
            ended.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        support.until(lambda acknowledged=acknowledged: len(acknowledged) > 50)
        appender.close()
        for thread in threads:
            thread.join(support.DEADLINE)
        assert sorted(ended) == [0, 1, 2]
        assert {entry.index: entry.payload for entry in formats.read(tmp_path / f"{turn}")} == acknowledged
        with chronicle.Appender(tmp_path / f"{turn}", timeout=0) as other:
            other.append(b"free")


def test_a_thread_that_waited_in_vain_gives_back_nobody_elses_lock(tmp_path):
    inside, go_on, now = threading.Event(), threading.Event(), [0]

    def clock():
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(support.DEADLINE)
        return now[0]

    with chronicle.Appender(tmp_path / "q", timeout=0.05, clock=clock) as appender:
        thread = threading.Thread(target=appender.append, args=(b"first",))
        thread.start()
        inside.wait(support.DEADLINE)
        for _ in range(2):
            with pytest.raises(Busy, match="another thread of this process has been at it"):
                appender.append(b"second")
        go_on.set()
        thread.join(support.DEADLINE)
        assert appender.append(b"third") & 0xFFFFFFFF == 1
    assert [entry.payload for entry in formats.read(tmp_path / "q")] == [b"first", b"third"]


def test_what_a_signals_handler_does_in_the_middle_of_an_append_is_refused_or_left_to_it(tmp_path):
    """An append in there is Busy at once, a close is done by the call that it interrupted."""
    said = []

    def clock():
        if not said:
            said.append("once")
            with pytest.raises(Busy, match="this very thread"):
                appender.append(b"no")
            appender.close()
        return 0

    appender = chronicle.Appender(tmp_path / "q", clock=clock)
    assert appender.append(b"whole") & 0xFFFFFFFF == 0
    with pytest.raises(Closed):
        appender.append(b"no")
    assert [entry.payload for entry in formats.read(tmp_path / "q")] == [b"whole"]


# ---------------------------------------------------------------- files that somebody takes away
@pytest.mark.parametrize("how", ["removed", "replaced", "cut", "table removed", "directory removed"])
def test_what_is_taken_from_under_an_appender_is_told_before_anything_is_written(tmp_path, how):
    """It went on to say that all was well, and wrote into a file that nobody finds; cut, the process died of SIGBUS."""
    folder = tmp_path / "q"
    with chronicle.Appender(folder) as appender:
        appender.append(b"before")
        (data,) = folder.glob("*.cq4")
        if how == "replaced":
            shutil.copy(data, tmp_path / "other")
            (tmp_path / "other").replace(data)
        elif how == "cut":
            os.truncate(data, 4096)
        elif how == "directory removed":
            shutil.rmtree(folder)
        else:
            (folder / "metadata.cq4t" if how == "table removed" else data).unlink()
        with pytest.raises((NotFound, Corrupt), match="nothing was written"):
            appender.append(b"after")
        if "removed" in how and how != "removed":
            with pytest.raises(NotFound):
                appender.commit("reader", 1)
