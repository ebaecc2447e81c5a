"""The verbs import, export, convert, dump, verify, repair: what comes over, what is refused, what is never doubled."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from format_fixtures import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

import shmq
from shmq import formats
from shmq.cli import main
from shmq.formats import Entry
from shmq.formats.transfer import into

T = 1_700_000_000_000_000_000
MS = 1_000_000
FORMATS = ["kestrel", "libkestrel", "sej", "qewqew"]


@pytest.fixture
def run(capfdbinary):
    """Run a verb in this process: (exit status, stdout, stderr)."""

    def run(*words):
        status = main([str(word) for word in words])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def messages(path):
    with shmq.open(path, create=False) as queue:
        return [(m.payload, m.time_ns, m.key, m.type, m.headers) for m in queue.reader()]


def heads(path):
    with shmq.open(path, create=False) as queue:
        return {name: each.head for name, each in queue.consumers().items()}


def source(tmp_path, name, count=10, consumers=None):
    """A foreign queue of that many messages: its path and the words that name it."""
    entries = (Entry(b"%d" % number, None, None if name == "qewqew" else T + number * MS) for number in range(count))
    if name in ("kestrel", "libkestrel"):
        formats.write(tmp_path / "src", entries, name, "jobs", consumers)
    else:
        formats.write(tmp_path / "src", entries, name, None, consumers)
    return tmp_path / "src"


# ---------------------------------------------------------------- import
@pytest.mark.parametrize("name", FORMATS)
def test_an_import_brings_payloads_in_order_with_their_times(tmp_path, run, name):
    status, out, err = run("import", source(tmp_path, name), tmp_path / "q")
    consumers = " and 1 consumer" * (name == "libkestrel")  # one is written if none is given
    assert (status, out, err) == (0, f"imported 10 messages{consumers}, index 0 to 9\n", "")
    found = messages(tmp_path / "q")
    assert [payload for payload, *_ in found] == [b"%d" % number for number in range(10)]
    if name != "qewqew":
        assert [time_ns for _, time_ns, *_ in found] == [T + number * MS for number in range(10)]


def test_what_only_the_source_knew_goes_to_a_header(tmp_path, run):
    entries = [Entry(b"a", 5, T, T + MS, None, None, 3), Entry(b"b", 9, T)]
    formats.write(tmp_path / "src", entries, "libkestrel", "jobs", name_ms=77)
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    one, two = (headers["source"] for *_, headers in messages(tmp_path / "q"))
    assert (one["index"], one["expires_ns"], one["attempts"]) == (5, T + MS, 3)
    assert two["index"] == 9
    assert "expires_ns" not in two


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("sej", {"r": (4, ()), "new": (None, ()), "end": (10, ())}, {"r": 4, "new": 0, "end": 10}),
        ("libkestrel", {"r": (4, ()), "": (10, ()), "b": (0, ())}, {"r": 4, "default": 10, "b": 0}),
        ("kestrel", {"fan": (4, ()), "all": (0, ())}, {"fan": 4, "all": 0}),
    ],
)
def test_consumers_come_along_and_go_back(tmp_path, run, name, theirs, ours):
    with shmq.open(str(tmp_path / "q")) as queue:
        queue.put_many([b"before"] * 3)
    path = source(tmp_path, name, 10, theirs)
    assert run("import", path, tmp_path / "q")[0] == 0
    assert heads(tmp_path / "q") == {called: 3 + at for called, at in ours.items()}

    assert run("import", path, tmp_path / "alone")[0] == 0
    assert run("export", tmp_path / "alone", "--to", name, tmp_path / "back", "--queue", "jobs")[0] == 0
    back = formats.state(tmp_path / "back", "jobs").consumers
    expected = {("jobs/" * (name == "sej")) + each: place for each, place in theirs.items()}
    if name == "sej":
        expected["jobs/new"] = (0, ())
    if name == "libkestrel":  # beside others its program deletes the nameless one
        expected["default"] = expected.pop("")
    assert back == expected


# ---------------------------------------------------------------- several readers of one name
def left(path, name):
    """What a group has still to see, in its order."""
    found = []
    with shmq.open(str(path)) as queue, queue.consumer(name, group=True, ack="explicit") as group:
        while True:
            try:
                message = group.get(timeout=0)
            except shmq.Empty:
                return found
            found.append(message.payload)
            message.ack()


def test_what_a_reader_has_confirmed_out_of_order_does_not_come_again_and_goes_back(tmp_path, run):
    path = source(tmp_path, "libkestrel", 10, {"r": (4, (7, 9)), "plain": (2, ())})
    assert run("import", path, tmp_path / "q")[0] == 0
    with shmq.open(str(tmp_path / "q")) as queue:
        assert queue.consumers()["plain"].group is None
        place = queue.group_place("r")
    assert (place.head, place.done) == (4, (6, 8))
    assert run("export", tmp_path / "q", "--to", "libkestrel", tmp_path / "back", "--queue", "jobs")[0] == 0
    assert (tmp_path / "back/jobs.read.r").read_bytes() == (path / "jobs.read.r").read_bytes()
    assert left(tmp_path / "q", "r") == [b"4", b"5", b"7", b"9"]


def test_ids_confirmed_at_or_below_the_head_change_nothing(tmp_path, run):
    path = source(tmp_path, "libkestrel", 10, {"r": (4, (2, 4, 6))})
    assert run("import", path, tmp_path / "q", "--resume", "--part", 1)[0] == 0
    assert left(tmp_path / "q", "r") == [b"4", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("part", [1, 3, 100])
def test_killed_before_its_consumers_are_named_an_import_names_them_when_it_is_resumed(
    tmp_path, run, monkeypatch, part
):
    path = source(tmp_path, "libkestrel", 10, {"r": (2, (5, 6, 10))})
    whole = into._Import._finish

    def dies(*_):
        raise KeyboardInterrupt

    for _ in range(3):
        monkeypatch.setattr(into._Import, "_finish", dies)
        with contextlib.suppress(KeyboardInterrupt):
            run("import", path, tmp_path / "q", "--resume", "--part", part)
        monkeypatch.setattr(into._Import, "_finish", whole)
    assert run("import", path, tmp_path / "q", "--resume", "--part", part)[0] == 0
    assert left(tmp_path / "q", "r") == [b"2", b"3", b"6", b"7", b"8"]


def test_confirmed_further_ahead_than_a_group_reaches_is_refused_unless_lossy(tmp_path, run):
    path = source(tmp_path, "libkestrel", 66_000, {"r": (0, (2, 65_536, 65_537))})
    status, _, err = run("import", path, tmp_path / "q")
    assert status == 1
    assert "confirmed 1 message more than 65,536 ahead" in err
    assert not (tmp_path / "q").exists()
    assert run("import", path, tmp_path / "q", "--lossy")[0] == 0
    with shmq.open(str(tmp_path / "q")) as queue:
        assert queue.group_place("r").done == (1, 65_535)


def test_open_transactions_are_there_again_for_whoever_comes_first(tmp_path, run):
    """They stand where recovery puts them back: before all others, the lowest id first."""
    entries = [Entry(b"open%d" % xid, None, T, extra={"xid": xid}) for xid in (7, 3, 5)]
    formats.write(tmp_path / "src", [*entries, Entry(b"a", None, T), Entry(b"b", None, T)], "kestrel", "jobs")
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    with shmq.open(str(tmp_path / "q")) as queue:
        assert {name: each.group is not None for name, each in queue.consumers().items()} == {"default": True}
    assert left(tmp_path / "q", "default") == [b"open3", b"open5", b"open7", b"a", b"b"]


def test_without_open_transactions_nobody_is_made_up_and_a_child_may_have_that_name(tmp_path, run):
    assert run("import", source(tmp_path, "kestrel", 3), tmp_path / "q")[0] == 0
    assert heads(tmp_path / "q") == {}
    entries = [Entry(b"open", None, T, extra={"xid": 3}), Entry(b"a", None, T)]
    formats.write(tmp_path / "named", entries, "kestrel", "jobs", {"default": (1, ())})
    assert run("import", tmp_path / "named", tmp_path / "other")[0] == 0
    assert heads(tmp_path / "other") == {"default": 1}


def test_what_a_group_holds_is_open_in_kestrel_and_what_it_has_finished_is_not_there(tmp_path, run):
    with shmq.open(str(tmp_path / "q")) as queue, queue.consumer("default", group=True, ack="explicit") as group:
        queue.put_many([b"%d" % number for number in range(8)])
        queue.consumer("fan", start=1).close()
        held = [group.get() for _ in range(5)]
        held[0].ack()
        held[3].ack()
        queue.consumer("shared", group=True, ack="explicit").skip(2, 6)
        words = ("export", tmp_path / "q", "--to", "kestrel", tmp_path / "out", "--queue", "jobs")
        assert run(*words)[0] == 0
    found = formats.state(tmp_path / "out", "jobs")
    assert {xid: entry.payload for xid, entry in found.open.items()} == {1: b"1", 2: b"2", 3: b"4"}
    assert [entry.payload for entry in formats.read(tmp_path / "out", queue="jobs")] == [
        b"1",
        b"2",
        b"4",
        b"5",
        b"6",
        b"7",
    ]
    children = {
        name: [e.payload for e in formats.read(tmp_path / "out", queue=f"jobs+{name}")] for name in ("fan", "shared")
    }
    assert children["fan"] == [b"%d" % number for number in range(1, 8)]
    assert children["shared"] == [b"0", b"1", b"3", b"4", b"5", b"7"]


def test_what_was_finished_of_open_transactions_does_not_go_back(tmp_path, run):
    entries = [Entry(b"open%d" % xid, None, T, extra={"xid": xid}) for xid in (3, 5, 7)]
    formats.write(tmp_path / "src", [*entries, Entry(b"a", None, T)], "kestrel", "jobs")
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    with shmq.open(str(tmp_path / "q")) as queue, queue.consumer("default", group=True, ack="explicit") as group:
        group.get_many(3)[1].ack()
    assert run("export", tmp_path / "q", "--to", "kestrel", tmp_path / "out", "--queue", "jobs")[0] == 0
    assert {xid: entry.payload for xid, entry in formats.state(tmp_path / "out").open.items()} == {
        3: b"open3",
        7: b"open7",
    }


def test_a_sej_reader_cannot_say_what_is_finished_out_of_order(tmp_path, run):
    with shmq.open(str(tmp_path / "q")) as queue, queue.consumer("g", group=True, ack="explicit") as group:
        queue.put_many([b"a", b"b", b"c"])
        group.skip(1)
    status, _, err = run("export", tmp_path / "q", "--to", "sej", tmp_path / "out")
    assert status == 1
    assert "that consumer 'g' has finished 1 message out of order" in err
    assert run("export", tmp_path / "q", "--to", "sej", tmp_path / "out", "--lossy")[0] == 0
    assert formats.consumers(tmp_path / "out") == {"g": (0, ())}


@pytest.mark.parametrize("name", ["out_of_order", "many_done", "fanout"])
def test_readers_of_the_real_program_come_over_as_they_are_and_go_back(tmp_path, run, name):
    folder = FIXTURES / "libkestrel/given" / name
    if not folder.is_dir():
        pytest.skip(f"no fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    assert run("import", folder, tmp_path / "q")[0] == 0
    assert run("export", tmp_path / "q", "--to", "libkestrel", tmp_path / "back", "--queue", "jobs")[0] == 0
    there, back = (formats.state(each, "jobs") for each in (folder, tmp_path / "back"))
    shift = (there.first or 1) - 1  # an export counts from 1
    moved = {
        each: (head - shift, tuple(index - shift for index in done)) for each, (head, done) in there.consumers.items()
    }
    assert back.consumers == moved
    for reader, (_, done) in there.consumers.items():
        if done:
            wanted = [entry.payload for entry in formats.read(folder, consumer=reader)]
            assert left(tmp_path / "q", reader or "default") == wanted


@pytest.mark.parametrize("name", ["transactions", "packed", "pack_from_checkpoint"])
def test_open_transactions_of_the_real_program_come_over_and_go_back(tmp_path, run, name):
    folder = FIXTURES / "kestrel/given" / name
    if not folder.is_dir():
        pytest.skip(f"no fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    there = formats.state(folder, "cars")
    assert run("import", folder, tmp_path / "q", "--lossy")[0] == 0
    assert run("export", tmp_path / "q", "--to", "kestrel", tmp_path / "back", "--queue", "cars")[0] == 0
    assert formats.state(tmp_path / "back", "cars").open.keys() == there.open.keys()
    if there.open:
        wanted = [entry.payload for entry in formats.read(folder, queue="cars")]
        assert left(tmp_path / "q", "default") == wanted


def test_a_second_import_doubles_nothing(tmp_path, run):
    path = source(tmp_path, "sej")
    assert run("import", path, tmp_path / "q")[0] == 0
    status, _, err = run("import", path, tmp_path / "q")
    assert status == 1
    assert "was imported before, up to index 9; nothing was done" in err
    assert run("import", path, tmp_path / "q", "--resume")[1] == "imported 0 messages\n"
    assert len(messages(tmp_path / "q")) == 10


def test_resume_goes_on_with_what_the_source_has_gained(tmp_path, run):
    entries = [Entry(b"%d" % number, number, T) for number in range(10)]
    formats.write(tmp_path / "src", entries[:7], "sej", segment_bytes=1, consumers={"r": (8, ())})
    assert run("import", tmp_path / "src", tmp_path / "q", "--resume", "--part", 3, "--no-consumers")[0] == 0
    formats.write(tmp_path / "more", entries[7:], "sej", first=7, segment_bytes=1)
    for file in (tmp_path / "more/jnl").iterdir():
        file.replace(tmp_path / "src/jnl" / file.name)
    status, out, _ = run("import", tmp_path / "src", tmp_path / "q", "--resume", "--part", 2)
    assert (status, out) == (0, "imported 3 messages and 1 consumer, index 7 to 9\n")
    assert [payload for payload, *_ in messages(tmp_path / "q")] == [entry.payload for entry in entries]
    assert heads(tmp_path / "q") == {"r": 8}


def test_a_journal_that_has_grown_is_resumed_behind_what_was_imported(tmp_path, run):
    """Also one that a program consumes: the queue still holds what came from it, and that is held against it."""
    path = source(tmp_path, "kestrel", 10)
    assert run("import", path, tmp_path / "q", "--resume", "--part", 4)[0] == 0
    with (path / "jobs").open("ab") as journal:
        journal.write(formats.kestrel.record(2, entry=Entry(b"10", None, T)))
    assert run("import", path, tmp_path / "q")[0] == 1
    assert run("import", path, tmp_path / "q", "--resume")[1] == "imported 1 message, index 10\n"
    assert [payload for payload, *_ in messages(tmp_path / "q")] == [b"%d" % number for number in range(11)]


@pytest.mark.parametrize("part", [4, 100])
@pytest.mark.parametrize("taken", [1, 10])
def test_a_journal_of_which_something_was_taken_is_not_resumed_but_imported_again_if_wanted(tmp_path, run, part, taken):
    """What was its second message is its first: whoever goes on by number would leave one out."""
    path = source(tmp_path, "kestrel", 10)
    assert run("import", path, tmp_path / "q", "--resume", "--part", part)[0] == 0
    with (path / "jobs").open("ab") as journal:
        journal.write(b"\x01" * taken)
        journal.write(b"".join(formats.kestrel.record(2, entry=Entry(b"new%d" % n, None, T)) for n in range(10)))
    status, _, err = run("import", path, tmp_path / "q", "--resume")
    assert (status, "nothing shows that" in err, "--again" in err) == (1, True, True)
    assert len(messages(tmp_path / "q")) == 10
    assert run("import", path, tmp_path / "q", "--again")[0] == 0
    assert len(messages(tmp_path / "q")) == 10 + 20 - taken
    assert run("import", path, tmp_path / "q", "--resume")[1] == "imported 0 messages\n"
    assert run("import", path, tmp_path / "q", "--again", "--no-consumers")[0] == 0
    assert len(messages(tmp_path / "q")) == 10 + 2 * (20 - taken)


def test_a_log_that_has_lost_its_oldest_segments_is_resumed_by_its_numbers(tmp_path, run):
    """libkestrel deletes what all its readers have consumed, so that no count tells how far an import came."""
    entries = [Entry(b"%d" % number, None, T) for number in range(1, 31)]
    formats.write(tmp_path / "all", entries, "libkestrel", "jobs", {"r": (25, ())}, journal_bytes=200, name_ms=10)
    files = sorted((tmp_path / "all").glob("jobs.[0-9]*"))
    path = tmp_path / "src"
    path.mkdir()
    for file in files[:3]:
        (path / file.name).write_bytes(file.read_bytes())
    assert run("import", path, tmp_path / "q", "--no-consumers", "--resume", "--part", 7)[0] == 0
    there = len(messages(tmp_path / "q"))
    for file in files[:2]:
        (path / file.name).unlink()
    for file in [*files[3:], tmp_path / "all/jobs.read.r"]:
        (path / file.name).write_bytes(file.read_bytes())
    status, out, err = run("import", path, tmp_path / "q", "--resume", "--part", 5)
    assert (status, out, err) == (0, f"imported {30 - there} messages and 1 consumer, index {there} to 29\n", "")
    assert [payload for payload, *_ in messages(tmp_path / "q")] == [entry.payload for entry in entries]
    assert heads(tmp_path / "q") == {"r": 25}
    for file in files[3:-1]:
        (path / file.name).unlink()
    formats.write(tmp_path / "more", [Entry(b"later", 99, T)], "libkestrel", "jobs", name_ms=99)
    (tmp_path / "more/jobs.99").rename(path / "jobs.99")
    status, _, err = run("import", path, tmp_path / "q", "--resume")
    assert (status, "behind number 30, " in err, "goes on with 99" in err) == (0, True, True)


@pytest.mark.parametrize("name", ["kestrel", "libkestrel", "qewqew"])
def test_a_source_is_the_same_however_it_is_named(tmp_path, run, name):
    if name == "qewqew":
        (tmp_path / "folder").mkdir()
        path = source(tmp_path / "folder", name).parent
        others = [(path, "--queue", "src"), (path / "src",)]
    else:
        path = source(tmp_path, name)
        others = [(path, "--queue", "jobs"), (next(path.glob("jobs*")),), (path / ".." / path.name,)]
    assert run("import", path, tmp_path / "q")[0] == 0
    for words in others:
        status, _, err = run("import", *words, tmp_path / "q")
        assert (status, "was imported before" in err) == (1, True)


def test_a_sej_root_is_resumed_only_where_it_still_begins_with_what_was_imported(tmp_path, run):
    """Its directories are merged by time: what one of them gains may belong before what was imported."""
    for name, times in (("a.1.000", (1, 3, 5)), ("a.1.001", (2, 4, 6))):
        formats.write(tmp_path / "src", [Entry(b"%d" % at, None, T + at) for at in times], "sej", name)
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    segment = tmp_path / "src/a.1.000/jnl/0000000000000000.jnl"
    before = segment.read_bytes()
    segment.write_bytes(before + formats.sej.message(3, Entry(b"7", None, T + 7)))
    assert run("import", tmp_path / "src", tmp_path / "q", "--resume")[1] == "imported 1 message, index 6\n"
    other = tmp_path / "src/a.1.002"
    formats.write(tmp_path / "src", [Entry(b"late", None, T)], "sej", other.name)
    assert run("import", tmp_path / "src", tmp_path / "q", "--resume")[0] == 1
    assert [payload for payload, *_ in messages(tmp_path / "q")] == [b"%d" % at for at in range(1, 8)]


def start_import(tmp_path, *more):
    words = [sys.executable, "-m", "shmq", "import", str(tmp_path / "src"), str(tmp_path / "q"), *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("more", [(), ("--resume", "--part", "5000")])
def test_killed_anywhere_it_leaves_whole_parts_and_resumed_it_doubles_nothing(tmp_path, run, more):
    source(tmp_path, "libkestrel", 60_000, {"r": (31_000, ())})
    for attempt in range(6):
        child = start_import(tmp_path, *more)
        time.sleep(0.15 + 0.1 * attempt)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if (tmp_path / "q/queue.shmq").exists():
            there = len(messages(tmp_path / "q"))
            assert there in (0, 60_000) if not more else there % 5000 == 0
    assert run("import", tmp_path / "src", tmp_path / "q", "--resume")[0] == 0
    found = [payload for payload, *_ in messages(tmp_path / "q")]
    assert found == [b"%d" % number for number in range(60_000)]
    assert heads(tmp_path / "q") == {"r": 31_000}
    assert os.listdir(tmp_path / "q/staging") == []


def test_damage_is_refused_unless_lossy(tmp_path, run):
    path = source(tmp_path, "sej", 10)
    (file,) = (path / "jnl").iterdir()
    content = bytearray(file.read_bytes())
    content[34] ^= 1  # the second message's offset
    file.write_bytes(content)
    status, _, err = run("import", path, tmp_path / "q")
    assert status == 1
    assert err.count("\n") == 1
    assert "Nothing was imported; --lossy imports all that is whole" in err
    assert not (tmp_path / "q").exists()
    with shmq.open(str(tmp_path / "there")) as queue:
        queue.put(b"mine")
    assert run("import", path, tmp_path / "there")[0] == 1
    assert len(messages(tmp_path / "there")) == 1
    status, _, err = run("import", path, tmp_path / "q", "--lossy")
    assert status == 0
    assert err.startswith(f"shmq: damaged: jnl/{file.name} at 27: offset ")
    status, _, err = run("convert", path, tmp_path / "out", "--to", "sej")
    assert (status, "Nothing was written; --lossy converts" in err, (tmp_path / "out").exists()) == (1, True, False)
    status, _, err = run("convert", path, tmp_path / "out", "--to", "sej", "--lossy")
    assert (status, err.startswith("shmq: damaged: ")) == (0, True)


def test_parts_before_the_damage_stay_and_that_is_said(tmp_path, run):
    path = source(tmp_path, "sej", 10)
    (file,) = (path / "jnl").iterdir()
    with file.open("r+b") as content:
        content.truncate(27 * 8 + 3)
    status, _, err = run("import", path, tmp_path / "q", "--resume", "--part", 3)
    assert (status, "Whole parts before it are in" in err) == (1, True)
    assert len(messages(tmp_path / "q")) == 6
    assert run("import", path, tmp_path / "q", "--resume", "--lossy")[0] == 0
    assert [payload for payload, *_ in messages(tmp_path / "q")] == [b"%d" % number for number in range(8)]


def test_times_beyond_64_bits_of_nanoseconds_become_the_nearest(tmp_path, run):
    far = (1 << 62) * MS
    formats.write(tmp_path / "src", [Entry(b"a", 1, far, far), Entry(b"b", 2, -far)], "libkestrel", "jobs")
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    (_, one, *_, headers), (_, two, *_) = messages(tmp_path / "q")
    assert (one, two, headers["source"]["expires_ns"]) == ((1 << 63) - 1, 1 - (1 << 63), (1 << 63) - 1)


def test_a_sej_root_comes_in_as_one_queue(tmp_path, run):
    entries = [Entry(b"%d" % number, None, T + number, None, b"k%d" % number) for number in range(20)]
    formats.write(tmp_path / "src", entries, "sej", shard_bit=1, consumers={"1.000/r": (3, ()), "1.001/r": (0, ())})
    status, _, err = run("import", tmp_path / "src", tmp_path / "q")
    assert status == 1
    assert "will see the messages of the other directories too" in err
    assert run("import", tmp_path / "src", tmp_path / "q", "--lossy")[0] == 0
    found = messages(tmp_path / "q")
    assert [payload for payload, *_ in found] == [entry.payload for entry in entries]
    mine = [number for number, (*_, headers) in enumerate(found) if headers["source"]["dir"] == "1.000"]
    assert heads(tmp_path / "q")["1.000.r"] == mine[3]


def queues_of(name):
    """(path, queue) of everything that the real program has written."""
    module = importlib.import_module(f"shmq.formats.{name}")
    for folder in sorted(each for each in (FIXTURES / name / "given").glob("*") if each.is_dir()):
        if name == "qewqew":
            yield from ((folder / header, None) for header in module.headers(folder))
        elif name == "sej":
            with contextlib.suppress(shmq.NotFound):
                module.directories(folder)
                yield folder, None
        else:
            yield from ((folder, queue) for queue in module.queues(folder))


@pytest.mark.parametrize("name", FORMATS)
def test_what_the_real_programs_wrote_comes_in_whole(tmp_path, run, name):
    there = list(queues_of(name))
    if not there:
        pytest.skip(f"no fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    for number, (path, queue) in enumerate(there):
        words = ["--queue", queue] if queue else []
        status, _, err = run("import", path, tmp_path / f"q{number}", "--format", name, "--lossy", *words)
        assert status == 0, (path, queue, err)
        with closing(formats.read(path, name, queue)) as entries:
            assert [each[0] for each in messages(tmp_path / f"q{number}")] == [entry.payload for entry in entries]


# ---------------------------------------------------------------- export
@pytest.mark.parametrize(("name", "words"), [("libkestrel", "key"), ("kestrel", "headers"), ("qewqew", "time")])
def test_a_loss_is_said_before_anything_is_written(tmp_path, run, name, words):
    with shmq.open(str(tmp_path / "q")) as queue:
        queue.put(b"a", key=b"k", type=3, headers={"x": 1})
    status, _, err = run("export", tmp_path / "q", "--to", name, tmp_path / "out")
    assert status == 1
    assert f"the {words} of 1 message" in err
    assert not (tmp_path / "out").exists()
    status, _, err = run("export", tmp_path / "q", "--to", name, tmp_path / "out", "--lossy")
    assert status == 0
    assert f"lost: the {words} of 1 message" in err
    assert [entry.payload for entry in formats.read(tmp_path / "out")] == [b"a"]


payloads = st.binary(max_size=300)
times = st.integers(0, 4_000_000_000_000).map(lambda ms: ms * MS)
keys = st.none() | st.binary(min_size=1, max_size=127)
sent = st.lists(st.tuples(payloads, times, keys, st.integers(0, 255)), max_size=30)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None)
@given(sent=sent, padded=st.booleans())
def test_round_trip(name, sent, padded):
    """Payload and order always; times, keys and types as far as the format has them; consumers at their places."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with shmq.open(str(here / "q"), options=shmq.Options(chunk_bytes=16384)) as queue:
            for number, (payload, time_ns, key, kind) in enumerate(sent):
                if padded and number == 1:
                    queue.reserve(8).abort()
                queue.put(payload, time_ns=time_ns, key=key, type=kind)
            queue.consumer("half", start=queue.next_index // 2).close()
        lossy = [] if name == "sej" else ["--lossy"]
        assert main(["export", str(here / "q"), "--to", name, str(here / "there"), *lossy]) == 0
        assert formats.verify(here / "there") == []
        assert main(["import", str(here / "there"), str(here / "back")]) == 0
        found = messages(here / "back")
        assert [each[0] for each in found] == [each[0] for each in sent]
        if name != "qewqew":
            assert [each[1] for each in found] == [each[1] for each in sent]
            at = heads(here / "back")["half"]
            with shmq.open(str(here / "q")) as queue:
                rest = [m.payload for m in queue.reader(heads(here / "q")["half"])]
            assert [each[0] for each in found[at:]] == rest
        if name == "sej":
            assert [each[2:4] for each in found] == [each[2:] for each in sent]


def test_open_transactions_and_expiries_go_back_to_kestrel(tmp_path, run):
    entries = [Entry(b"open", None, T, None, extra={"xid": 5}), Entry(b"b", None, T, T + MS), Entry(b"c", None, T)]
    formats.write(tmp_path / "src", entries, "kestrel", "jobs")
    assert run("import", tmp_path / "src", tmp_path / "q")[0] == 0
    assert run("export", tmp_path / "q", "--to", "kestrel", tmp_path / "out", "--queue", "jobs")[0] == 0
    with closing(formats.read(tmp_path / "out")) as back:
        assert [(e.payload, e.expires_ns) for e in back] == [(b"open", None), (b"b", T + MS), (b"c", None)]
    assert list(formats.state(tmp_path / "out").open) == [5]


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize("name", ["sej", "libkestrel", "kestrel"])
def test_convert_keeps_consumers(tmp_path, run, name):
    path = source(tmp_path, "libkestrel", 10, {"r": (4, ())})
    assert run("convert", path, tmp_path / "out", "--to", name, "--name", "x")[0] == 0
    assert [e.payload for e in formats.read(tmp_path / "out", queue="x")] == [b"%d" % n for n in range(10)]
    consumers = formats.state(tmp_path / "out", "x").consumers
    assert consumers == {"x/r" if name == "sej" else "r": (4, ())}


def test_convert_keeps_what_was_confirmed_out_of_order(tmp_path, run):
    path = source(tmp_path, "libkestrel", 10, {"r": (4, (7, 9))})
    assert run("convert", path, tmp_path / "out", "--to", "libkestrel", "--name", "x")[0] == 0
    assert formats.consumers(tmp_path / "out", "x") == {"r": (4, (7, 9))}
    assert run("convert", path, tmp_path / "kestrel", "--to", "kestrel", "--name", "x")[0] == 0
    rest = [entry.payload for entry in formats.read(tmp_path / "kestrel", queue="x+r")]
    assert rest == [entry.payload for entry in formats.read(path, consumer="r")]
    assert run("convert", path, tmp_path / "sej", "--to", "sej")[0] == 1


def test_dump_verify_and_repair(tmp_path, run):
    path = source(tmp_path, "libkestrel", 3)
    lines = run("dump", path)[1].splitlines()
    assert [json.loads(line)["payload"] for line in lines] == ["0", "1", "2"]
    assert run("dump", path, "--raw", "--limit", 2)[1] == "0\n1\n"
    assert json.loads(run("dump", path, "--state")[1])["messages"] == 3
    assert run("verify", path)[:2] == (0, f"{path}: libkestrel, 0 problems\n")
    (file,) = path.glob("jobs.[0-9]*")
    with file.open("ab") as end:
        end.write(b"\xff")
    status, out, _ = run("verify", path, "--json")
    assert status == 1
    assert len(json.loads(out)["problems"]) == 1
    assert run("repair", path, "--to", tmp_path / "clean")[0] == 0
    assert run("verify", tmp_path / "clean")[0] == 0


@pytest.mark.parametrize("verb", ["dump", "verify", "repair"])
def test_a_shmq_queue_and_a_stranger_are_said_so(tmp_path, run, verb):
    shmq.open(str(tmp_path / "q")).close()
    status, _, error = run(verb, tmp_path / "q")
    assert (status, "is a shmq queue" in error) == ((1, True) if verb == "dump" else (0, False))
    assert "is not there" in run(verb, tmp_path / "nothing")[2]


# ---------------------------------------------------------------- memory
PEAK = """
import resource, sys
from shmq.cli import main
assert main(sys.argv[1:]) == 0
print(open('/proc/self/status').read().split('RssAnon:')[1].split()[0])
"""


def anonymous_kib(*words):
    done = subprocess.run([sys.executable, "-c", PEAK, *map(str, words)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("name", ["sej", "libkestrel"])
def test_memory_is_flat(tmp_path, name):
    used = []
    for count in (10_000, 100_000):
        here = tmp_path / str(count)
        here.mkdir()
        path = source(here, name, count)
        used.append(
            (
                anonymous_kib("import", path, here / "q"),
                anonymous_kib("export", here / "q", "--to", name, here / "out", "--queue", "jobs"),
            )
        )
    for small, large in zip(*used, strict=True):
        assert large < small + 4096


# ---------------------------------------------------------------- sizes and names that the other program is told
def test_only_the_consumer_that_kestrel_cannot_name_stays_behind(tmp_path, run):
    """Its rule for a queue's name is that of a child: no '.', '/' and '~'."""
    formats.write(tmp_path / "src", [Entry(b"x", 1, T)], "libkestrel", "jobs", {"b.c": (1, ()), "b-c": (1, ())})
    run("import", tmp_path / "src", tmp_path / "q")
    for words in (("export", tmp_path / "q"), ("convert", tmp_path / "src")):
        target = tmp_path / words[0]
        status, _, err = run(*words, "--to", "kestrel", target)
        assert (status, target.exists()) == (1, False)
        assert "consumer 'b.c': a fan-out child of Kestrel has no '.', '/' and '~' in its name" in err
        status, _, err = run(*words, "--to", "kestrel", target, "--lossy")
        assert (status, err.count("lost:")) == (0, 1)
        assert list(formats.consumers(target, format="kestrel")) == ["b-c"]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("qewqew", {"target": 2, "target.1": 64, "target.2": 64}),
        ("libkestrel", {"target": 4}),
        ("sej", {"target/jnl": 4}),
    ],
)
def test_files_get_the_size_that_their_program_is_told(tmp_path, run, name, files):
    """A program maps as many bytes as it is told; where the files have fewer or more, it fails or cannot read them."""
    source(tmp_path, "qewqew" if name == "qewqew" else "kestrel", 18)
    run("import", tmp_path / "src", tmp_path / "q")
    for verb, of in (("export", "q"), ("convert", "src")):
        words = [] if verb == "export" or name == "qewqew" else ["--format", "kestrel", "--queue", "jobs"]
        folder = tmp_path / verb
        folder.mkdir()
        size = {"qewqew": 64, "sej": 150}.get(name, 200)
        lossy = ["--lossy"] if name == "qewqew" else []
        option = {"qewqew": "--chunk-bytes", "sej": "--segment-bytes"}.get(name, "--journal-bytes")
        done = run(verb, tmp_path / of, folder / "target", *words, "--to", name, option, size, *lossy)
        assert done[0] == 0, done
        for path, expected in files.items():
            found = folder / path
            assert (len(list(found.iterdir())) if found.is_dir() else found.stat().st_size) == expected
