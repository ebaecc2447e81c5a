"""Chronicle Queue in and out: cycles and sequences that come back, named tailers as consumers, and what is refused."""

import json
import os
import time
from contextlib import closing

import pytest

import shmq
from shmq import formats
from shmq.cli import main
from shmq.formats import Entry, chronicle
from shmq.formats.chronicle import cycles
from shmq.formats.chronicle.store import Store
from tests.formats.format_fixtures import FIXTURES

GIVEN = FIXTURES / "chronicle" / "given"
DAY = 86_400_000_000_000
MS = 1_000_000
T = 20_000 * DAY
"""The first instant of cycle 20,000 of a daily queue."""

needs_fixtures = pytest.mark.skipif(not GIVEN.is_dir(), reason=f"no chronicle fixtures in {FIXTURES}")


def content(path):
    return [(entry.index, entry.payload) for entry in formats.read(path)]


def data_files(path):
    return sorted(name for name in os.listdir(path) if name.endswith(".cq4"))


def sources(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.headers["source"] for message in queue.reader()]


def heads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return {name: each.head for name, each in queue.consumers().items()}


def days(*counts, first=20_000):
    """Entries of a daily queue: so many in each of the days."""
    for day, count in enumerate(counts):
        for number in range(count):
            yield Entry(b"day %d message %d" % (day, number), (first + day << 32) + number)


def own(path, times, **more):
    """A shmq queue with a message at each of the times."""
    with shmq.open(path) as queue:
        queue.producer().put_many([b"message %d" % number for number in range(len(times))], times_ns=times, **more)
    return path


# ---------------------------------------------------------------- in
@needs_fixtures
def test_an_import_keeps_index_cycle_sequence_and_file_in_the_header(tmp_path):
    done = formats.import_queue(GIVEN / "roll", tmp_path / "q")
    assert (done.format, done.messages, done.first, done.last) == ("chronicle", 315, 0, 314)
    told = json.loads((GIVEN / "roll" / "expected.json").read_text())
    wanted = [(int(each["index"], 16), each["seq"], each["file"]) for each in told["messages"]]
    found = sources(tmp_path / "q")
    assert [(each["index"], each["sequence"], each["file"]) for each in found] == wanted
    assert {each["cycle"] for each in found} == {each["cycle"] for each in told["files"]}
    assert "epoch" not in found[0]


@needs_fixtures
def test_named_tailers_become_consumers_at_their_places(tmp_path):
    formats.import_queue(GIVEN / "tailers", tmp_path / "q", ack="explicit")
    assert heads(tmp_path / "q") == {"a": 3, "b": 0, "c": 20, "d": 5, "replicated.r": 2}


def test_a_resumed_import_brings_what_has_come_since_and_tells_of_no_gap_between_days(tmp_path):
    folder, told = tmp_path / "src", []
    formats.write(folder, days(5, 3), "chronicle")
    assert formats.import_queue(folder, tmp_path / "q", resume=True, part=3).messages == 8
    assert formats.import_queue(folder, tmp_path / "q", resume=True).messages == 0
    for name in os.listdir(folder):
        (folder / name).unlink()
    formats.write(folder, days(5, 3, 4), "chronicle")
    assert formats.import_queue(folder, tmp_path / "q", resume=True, tell=told.append).messages == 4
    assert told == []
    assert [each["sequence"] for each in sources(tmp_path / "q")] == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]
    with pytest.raises(formats.Refused, match="imported before"):
        formats.import_queue(folder, tmp_path / "q")


def test_a_resumed_import_goes_on_though_the_oldest_files_are_gone(tmp_path):
    folder = tmp_path / "src"
    formats.write(folder, days(5, 3), "chronicle")
    formats.import_queue(folder, tmp_path / "q")
    for name in os.listdir(folder):
        (folder / name).unlink()
    formats.write(folder, list(days(5, 6, 2))[5:], "chronicle")
    assert formats.import_queue(folder, tmp_path / "q", resume=True).messages == 5
    with shmq.open(tmp_path / "q") as queue:
        payloads = [message.payload for message in queue.reader()]
    assert payloads[-5:] == [
        b"day 1 message 3",
        b"day 1 message 4",
        b"day 1 message 5",
        b"day 2 message 0",
        b"day 2 message 1",
    ]


def test_the_same_queue_is_known_by_its_folder_and_by_the_folder_of_queues(tmp_path):
    (tmp_path / "all").mkdir()
    formats.write(tmp_path / "all" / "orders", days(2), "chronicle")
    formats.import_queue(tmp_path / "all", tmp_path / "q", "chronicle", "orders")
    with pytest.raises(formats.Refused, match="imported before"):
        formats.import_queue(tmp_path / "all" / "orders", tmp_path / "q")


def test_a_conversion_keeps_the_source_id_and_the_index_and_tells_of_meta_data(tmp_path):
    source, out = tmp_path / "src", tmp_path / "out"
    given = [Entry(b"one"), Entry(b"\xb9\x04meta\xe1x", extra={"meta": True}), Entry(b"two")]
    formats.write(source, given, "chronicle", source_id=7, index_count=16, index_spacing=4)
    with pytest.raises(shmq.Unsafe, match="would be lost: 1 document of users' meta-data"):
        formats.convert_queue(source, out, "chronicle")
    assert not out.exists()
    done = formats.convert_queue(source, out, "chronicle", lossy=True)
    assert done.lost == ["1 document of users' meta-data"]
    assert [entry.payload for entry in formats.read(out)] == [b"one", b"two"]
    assert formats.chronicle.settings(out).table.source_id == 7
    formats.convert_queue(source, tmp_path / "other", "chronicle", lossy=True, source_id=9, index_count=32)
    (name,) = (each for each in os.listdir(out) if each.endswith(".cq4"))
    cuts = []
    for folder in (source, out, tmp_path / "other"):
        store = Store(folder, name, 0, cycles.DEFAULT)
        header = store.ready()
        store.close()
        cuts.append((header.index_count, header.index_spacing))
    assert cuts == [(16, 4), (16, 4), (32, 4)]
    assert formats.chronicle.settings(tmp_path / "other").table.source_id == 9


@pytest.mark.parametrize("resume", [False, True])
def test_an_import_refuses_to_drop_users_meta_data_untold(tmp_path, resume):
    given = [Entry(b"one"), *2 * [Entry(b"\xb9\x04meta\xe1x", extra={"meta": True})], Entry(b"two")]
    formats.write(tmp_path / "src", given, "chronicle")
    with pytest.raises(formats.Refused, match=r"would be lost: 2 documents of users' meta-data.* imported"):
        formats.import_queue(tmp_path / "src", tmp_path / "q", resume=resume)
    told = []
    done = formats.import_queue(tmp_path / "src", tmp_path / "q", resume=resume, lossy=True, tell=told.append)
    assert (done.messages, done.lost) == (2, ["2 documents of users' meta-data"])
    assert told == ["lost: 2 documents of users' meta-data"]
    with shmq.open(tmp_path / "q", read_only=True) as queue:
        assert [message.payload for message in queue.reader()] == [b"one", b"two"]


# ---------------------------------------------------------------- in, and out again
@needs_fixtures
@pytest.mark.parametrize(
    "name",
    [
        "roll",
        "tailers",
        "custom-index",
        "cycle-MINUTELY",
        "cycle-HUGE_DAILY",
        "real-libchronicle-cqv4",
        "missing-eof/after-java",
    ],
)
def test_an_import_and_an_export_give_the_same_queue(tmp_path, name):
    formats.import_queue(GIVEN / name, tmp_path / "q")
    done = formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle")
    assert done.lost == []
    assert content(tmp_path / "out") == content(GIVEN / name)
    assert data_files(tmp_path / "out") == data_files(GIVEN / name)
    assert formats.consumers(tmp_path / "out") == formats.consumers(GIVEN / name)
    before, after = chronicle.settings(GIVEN / name), chronicle.settings(tmp_path / "out")
    assert (after.roll_cycle, after.epoch) == (before.roll_cycle, before.epoch)
    assert formats.verify(tmp_path / "out") == []


def test_a_conversion_to_the_same_format_keeps_every_place(tmp_path):
    tailers = {"here": ((20_001 << 32) + 2, ()), "end": ((20_001 << 32) + 3, ())}
    formats.write(tmp_path / "src", days(5, 3), "chronicle", consumers=tailers, roll_cycle="LARGE_HOURLY", epoch=7)
    formats.convert_queue(tmp_path / "src", tmp_path / "out", "chronicle")
    assert content(tmp_path / "out") == content(tmp_path / "src")
    assert formats.consumers(tmp_path / "out") == tailers
    assert chronicle.settings(tmp_path / "out")[:2] == chronicle.settings(tmp_path / "src")[:2]


def test_another_roll_cycle_puts_each_message_into_the_cycle_that_its_own_began_in(tmp_path):
    formats.write(tmp_path / "src", days(2, 1), "chronicle")
    formats.import_queue(tmp_path / "src", tmp_path / "q")
    formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle", roll_cycle="HOURLY")
    assert data_files(tmp_path / "out") == ["20241004-00.cq4", "20241005-00.cq4"]
    formats.convert_queue(tmp_path / "src", tmp_path / "converted", "chronicle", roll_cycle="HOURLY")
    assert content(tmp_path / "converted") == content(tmp_path / "out")


def test_messages_whose_place_is_taken_are_named_before_they_move(tmp_path):
    formats.write(tmp_path / "src", days(4), "chronicle")
    formats.import_queue(tmp_path / "src", tmp_path / "q")
    formats.import_queue(tmp_path / "src", tmp_path / "q", again=True)
    with pytest.raises(formats.Refused, match="the place of 4 messages"):
        formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle")
    assert not (tmp_path / "out").exists()
    formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle", lossy=True)
    assert [index & 0xFFFFFFFF for index, _ in content(tmp_path / "out")] == list(range(8))


# ---------------------------------------------------------------- out
def test_times_become_cycles_and_consumers_named_tailers(tmp_path):
    own(tmp_path / "q", [T, T + 5, T + DAY, T + DAY - 1, T + 3 * DAY])
    with shmq.open(tmp_path / "q") as queue:
        for name, start in (("begin", 0), ("third", 2), ("end", 5)):
            queue.consumer(name, ack="explicit", start=start).close()
    with pytest.raises(formats.Refused, match="the time of 5 messages"):
        formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle")
    done = formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle", lossy=True)
    assert done.lost == ["the time of 5 messages"]
    found = [(index >> 32, index & 0xFFFFFFFF) for index, _ in content(tmp_path / "out")]
    # Time may go back, cycles do not.
    assert found == [(20_000, 0), (20_000, 1), (20_001, 0), (20_001, 1), (20_003, 0)]
    assert formats.consumers(tmp_path / "out") == {
        "begin": (0, ()),
        "third": (20_001 << 32, ()),
        "end": ((20_003 << 32) + 1, ()),
    }


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"keys": [b"k", None]}, "the key of 1 message"),
        ({"types": [3, 4]}, "the type of 2 messages"),
        ({"headers": [{"a": 1}, None]}, "the headers of 1 message"),
    ],
)
def test_what_chronicle_cannot_hold_is_refused(tmp_path, more, what):
    own(tmp_path / "q", [T, T], **more)
    with pytest.raises(formats.Refused, match=what):
        formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle")
    assert not (tmp_path / "out").exists()


def test_expiries_and_what_a_group_has_finished_are_refused(tmp_path):
    entries = [Entry(b"a", 1, T, T + MS), Entry(b"b", 2, T), Entry(b"c", 3, T)]
    formats.write(tmp_path / "src", entries, "libkestrel", "jobs", {"r": (0, (2,))})
    with pytest.raises(formats.Refused) as refused:
        formats.convert_queue(tmp_path / "src", tmp_path / "out", "chronicle")
    for what in (
        "the time of 3 messages",
        "the expiry of 1 message",
        "consumer 'r' has finished 1 message out of order",
    ):
        assert what in str(refused.value)
    formats.convert_queue(tmp_path / "src", tmp_path / "out", "chronicle", lossy=True)
    assert [payload for _, payload in content(tmp_path / "out")] == [b"a", b"b", b"c"]


def test_what_is_written_is_cut_as_it_was_said(tmp_path):
    own(tmp_path / "q", [T, T + 22 * DAY // 24])
    options = {"roll_cycle": "DAILY", "roll_time": "21:00", "index_count": 16, "index_spacing": 4, "source_id": 7}
    formats.export_queue(tmp_path / "q", tmp_path / "out", "chronicle", lossy=True, **options)
    found = chronicle.settings(tmp_path / "out")
    assert (found.roll_cycle.name, found.epoch, found.table.source_id) == ("DAILY", 21 * 3_600_000, 7)
    assert [index >> 32 for index, _ in content(tmp_path / "out")] == [19_999, 20_000]
    assert "    indexCount: 16," in list(chronicle.dump(tmp_path / "out"))


def test_a_message_without_a_time_goes_into_the_cycle_of_now(tmp_path):
    formats.write(tmp_path / "src", [Entry(b"a", 0), Entry(b"b", 1, T)], "sej")
    before = time.time_ns() // DAY
    formats.convert_queue(tmp_path / "src", tmp_path / "out", "chronicle", lossy=True)
    (first, _), (second, _) = content(tmp_path / "out")
    assert before <= first >> 32 <= time.time_ns() // DAY
    assert second == first + 1


# ---------------------------------------------------------------- to and from the others
@pytest.mark.parametrize("to", ["sej", "libkestrel", "kestrel"])
def test_a_chronicle_queue_goes_to_the_other_formats_with_its_tailers(tmp_path, to):
    tailers = {"here": ((20_001 << 32) + 2, ()), "begin": (0, ()), "end": ((20_001 << 32) + 3, ())}
    formats.write(tmp_path / "src", days(5, 3), "chronicle", consumers=tailers)
    name = None if to == "sej" else "orders"
    done = formats.convert_queue(tmp_path / "src", tmp_path / "out", to, name=name)
    assert (done.messages, done.lost) == (8, [])
    with closing(formats.read(tmp_path / "out", to, name)) as entries:
        assert [entry.payload for entry in entries] == [payload for _, payload in content(tmp_path / "src")]
    formats.import_queue(tmp_path / "out", tmp_path / "q", to, name)
    assert heads(tmp_path / "q") == {"here": 7, "begin": 0, "end": 8}


def test_a_qewqew_queue_becomes_a_chronicle_queue_without_a_loss(tmp_path):
    formats.write(tmp_path / "src", [Entry(b"a"), Entry(b"b")], "qewqew")
    assert formats.convert_queue(tmp_path / "src", tmp_path / "out", "chronicle").lost == []
    assert [payload for _, payload in content(tmp_path / "out")] == [b"a", b"b"]


# ---------------------------------------------------------------- the commands
@pytest.fixture
def run(capfd):
    """Run a verb in this process: (exit status, stdout, stderr)."""

    def run(*words):
        status = main([str(word) for word in words])
        return (status, *capfd.readouterr())

    return run


def test_the_verbs_know_chronicle(tmp_path, run):
    formats.write(tmp_path / "src", days(5, 3), "chronicle", consumers={"here": ((20_001 << 32) + 2, ())})
    assert run("import", tmp_path / "src", tmp_path / "q") == (
        0,
        "imported 8 messages and 1 consumer, index 0 to 7\n",
        "",
    )
    words = ("export", tmp_path / "q", "--to", "chronicle", tmp_path / "out")
    assert run(*words) == (0, f"exported 8 messages and 1 consumer to {tmp_path / 'out'}\n", "")
    assert content(tmp_path / "out") == content(tmp_path / "src")
    words = ("convert", tmp_path / "src", tmp_path / "hourly", "--to", "chronicle", "--roll-cycle", "HOURLY")
    assert run(*words)[0] == 0
    assert data_files(tmp_path / "hourly") == ["20241004-00.cq4", "20241005-00.cq4"]
    assert run("verify", tmp_path / "out")[0] == 0
    status, _, err = run("export", tmp_path / "q", "--to", "sej", tmp_path / "s", "--roll-cycle", "HOURLY")
    assert (status, "--roll-cycle is for chronicle, and this is sej" in err) == (2, True)
    status, _, err = run("export", tmp_path / "q", "--to", "chronicle", tmp_path / "s", "--roll-cycle", "YEARLY")
    assert (status, "the roll cycle 'YEARLY'" in err) == (1, True)
