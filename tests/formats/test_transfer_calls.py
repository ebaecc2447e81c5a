"""Importing, exporting and converting as Python calls: what they return, what they refuse, how they go on."""

import contextlib
import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest

import shmq
from shmq import formats
from shmq.cli import main
from shmq.formats import Entry, Refused
from shmq.formats.transfer.into import _Import

T = 1_700_000_000_000_000_000


def entries(count, first=0):
    return [Entry(b"%d" % number, number, T + number * 1_000_000) for number in range(first, first + count)]


@pytest.fixture
def log(tmp_path):
    """A libkestrel queue of 10 messages: reader `r` has finished 4 of them, and the 6th and 8th."""
    formats.write(tmp_path / "log", entries(10, 1), "libkestrel", "jobs", {"r": (4, (6, 8))})
    return tmp_path / "log"


def payloads(queue):
    with shmq.open(queue, create=False, read_only=True) as opened:
        return [message.payload for message in opened.reader()]


NUMBERS = [b"%d" % number for number in range(1, 11)]


# ---------------------------------------------------------------- what they return
def test_an_import_makes_the_queue_and_says_what_came_in(log, tmp_path):
    done = formats.import_queue(log, tmp_path / "q")
    assert done == ("libkestrel", 10, 0, 9, ["r"], [])
    assert payloads(tmp_path / "q") == NUMBERS
    with shmq.open(tmp_path / "q") as queue:
        place = queue.group_place("r")
        assert (place.head, place.done) == (4, (5, 7))


def test_an_import_goes_into_a_queue_that_is_open_also_a_volatile_one(log):
    with shmq.open(None) as queue:
        queue.put(b"before")
        done = formats.import_queue(log, queue, consumers=False)
        assert (done.first, done.last, done.consumers) == (1, 10, [])
        assert [message.payload for message in queue.reader()] == [b"before", *NUMBERS]
        assert formats.import_queue(log, queue, resume=True) == ("libkestrel", 0, None, None, ["r"], [])


@pytest.mark.parametrize("open_it", [True, False])
def test_an_export_says_what_was_written_and_where(tmp_path, open_it):
    """What is stored goes out, whatever the codec: nothing is decoded."""
    with shmq.open(tmp_path / "orders.q", codec="json") as queue:
        queue.put_many([{"id": 1}, [2]])
        queue.consumer("billing", start=1).close()
    told = []
    source = shmq.open(tmp_path / "orders.q", read_only=True) if open_it else tmp_path / "orders.q"
    done = formats.export_queue(source, tmp_path / "out", "kestrel", progress=lambda *far: told.append(far))
    assert done == (str(tmp_path / "out"), "kestrel", "orders", 2, ["billing"], [])
    assert told == [("looked at", 2), ("exported", 2)]
    assert [entry.payload for entry in formats.read(tmp_path / "out")] == [b'{"id":1}', b"[2]"]
    if open_it:
        assert len(source) == 2
        source.close()


def test_an_export_beside_a_producer_has_what_was_there_when_it_began(tmp_path):
    """The producer goes on between the look and the writing: both see the same messages."""
    with shmq.open(tmp_path / "q") as queue:
        queue.put_many(NUMBERS)
        done = formats.export_queue(queue, tmp_path / "out", "sej", progress=lambda *_: queue.put(b"later"))
        assert (done.messages, queue.next_index) == (10, 12)
    assert [entry.payload for entry in formats.read(tmp_path / "out")] == NUMBERS


def test_a_conversion_says_what_was_written(log, tmp_path):
    told = []
    done = formats.convert_queue(log, tmp_path / "out", "sej", lossy=True, tell=told.append)
    lost = "that consumer 'r' has finished 2 messages out of order"
    assert done == (str(tmp_path / "out"), "sej", None, 10, ["r"], [lost])
    assert told == [f"lost: {lost}"]
    assert formats.consumers(tmp_path / "out") == {"r": (4, ())}
    back = formats.convert_queue(tmp_path / "out", tmp_path / "back", "libkestrel", name="again")
    assert back.queue == "again"
    assert [entry.payload for entry in formats.read(tmp_path / "back")] == NUMBERS


def test_found_a_conversion_that_leaves_the_consumers_out_does_not_count_them(log, tmp_path, capsys):
    """To QewQew it said "and 1 consumer", which it had just said to be lost."""
    assert main(["convert", str(log), str(tmp_path / "out"), "--to", "qewqew", "--lossy"]) == 0
    assert capsys.readouterr().out == f"converted 10 messages and 0 consumers to {tmp_path / 'out'}\n"


# ---------------------------------------------------------------- a source that was put back
def put_back(place, name, payloads):
    """Make the log at *place* one of these payloads, in one file: its directory stays the same."""
    times = [T + number for number in range(len(payloads))]
    new = place.with_name("new")
    options = {"name_ms": 7} if name == "libkestrel" else {}
    formats.write(
        new, map(Entry, payloads, [None] * len(times), times), name, "jobs" if name == "libkestrel" else None, **options
    )
    for folder, _, files in os.walk(new):
        there = place / Path(folder).relative_to(new)
        there.mkdir(exist_ok=True)
        for file in files:
            shutil.copy(Path(folder) / file, there / file)
    shutil.rmtree(new)


@pytest.mark.parametrize("name", ["sej", "libkestrel", "chronicle"])
@pytest.mark.parametrize("parts", [2, 100])
def test_found_a_log_that_was_put_back_is_refused_and_not_passed_over(tmp_path, name, parts):
    """What it gained then had numbers that were in already, and never came: without a word."""
    old, new = [b"a%d" % number for number in range(5)], [b"b%d" % number for number in range(5)]
    log, q = tmp_path / "log", tmp_path / "q"
    put_back(log, name, old + new)
    assert formats.import_queue(log, q, resume=True, part=parts).messages == 10
    put_back(log, name, old)
    said = refused(shmq.Mismatch, formats.import_queue, log, q, resume=True)
    assert f"{log} was imported up to number " in said
    assert "and ends with number " in said
    assert said.endswith(f"What was imported stays in {q}; nothing was done. again=True imports all that it holds now")
    put_back(log, name, old + [b"Z%d" % number for number in range(7)])
    said = refused(shmq.Mismatch, formats.import_queue, log, q, resume=True)
    assert "now is not what came to index " in said
    assert payloads(q) == old + new
    assert formats.import_queue(log, q, again=True, consumers=False).messages == 12
    assert formats.import_queue(log, q, resume=True).messages == 0


def test_a_log_that_holds_nothing_now_is_told(tmp_path):
    put_back(tmp_path / "log", "chronicle", [b"a", b"b"])
    formats.import_queue(tmp_path / "log", tmp_path / "q")
    for file in (tmp_path / "log").glob("*.cq4"):
        file.unlink()
    told = []
    assert formats.import_queue(tmp_path / "log", tmp_path / "q", resume=True, tell=told.append).messages == 0
    assert [f"{tmp_path / 'log'} holds no messages now; it was imported up to number " in said for said in told] == [
        True
    ]


# ---------------------------------------------------------------- interrupted, and resumed
@pytest.mark.parametrize("named", [0, 1, 2])
@pytest.mark.parametrize("how", [{}, {"resume": True}])
def test_killed_behind_its_messages_an_import_run_again_makes_its_consumers(tmp_path, monkeypatch, named, how):
    """It said that all was imported before, and the places of the consumers were lost."""
    path, q = tmp_path / "log", tmp_path / "q"
    formats.write(path, entries(10, 1), "libkestrel", "jobs", {"a": (4, (6, 8)), "b": (7, ()), "c": (10, ())})
    make = _Import._make

    def dies(work, follower, index):
        if len(work.made) == named:
            raise Stopped
        make(work, follower, index)

    with monkeypatch.context() as patch:
        patch.setattr(_Import, "_make", dies)
        with pytest.raises(Stopped):
            formats.import_queue(path, q)
    assert payloads(q) == NUMBERS
    formats.append(path, [Entry(b"later")])
    told = []
    done = formats.import_queue(path, q, tell=told.append, **how)
    assert done.consumers == ["a", "b", "c"][named:]
    assert payloads(q) == [*NUMBERS, b"later"][: 10 + len(how)]
    assert [said.partition(";")[2] for said in told] == [" what was missing of its consumers is made"] * (not how)
    with shmq.open(q) as queue:
        assert {name: each.head for name, each in queue.consumers().items()} == {"a": 4, "b": 7, "c": 10}
        assert queue.group_place("a").done == (5, 7)
        queue.drop_consumer("b")
    assert "was imported before" in refused(shmq.Mismatch, formats.import_queue, path, q)
    with shmq.open(q) as queue:
        assert sorted(queue.consumers()) == ["a", "c"]


@pytest.mark.parametrize("name", ["sej", "libkestrel", "kestrel"])
def test_found_a_consumer_that_is_new_and_stands_before_the_last_part_is_made_at_its_place(tmp_path, name):
    """It was said to be imported, again and again, and was never there."""
    queue = None if name == "sej" else "jobs"
    given = [Entry(b"%d" % number, None, T) for number in range(9)]
    shift = 0
    with shmq.open(tmp_path / "q") as there:
        for part in (2, 3, 100):
            there.put(b"between")
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
            places = {"late": (1, ()), "end": (8, ())} if part == 100 else None
            options = {"name_ms": 7} if name == "libkestrel" else {}
            formats.write(tmp_path / "new", given[: 3 * part], name, queue, places, **options)
            for folder, _, files in os.walk(tmp_path / "new"):
                to = tmp_path / "log" / Path(folder).relative_to(tmp_path / "new")
                to.mkdir(exist_ok=True)
                for file in files:
                    shutil.copyfile(Path(folder) / file, to / file)
            options = {"consumers": part == 100, "resume": True, "part": part}
            done = formats.import_queue(tmp_path / "log", there, queue=queue, **options)
            shift += 1
        assert sorted({*done.consumers} - {"default"}) == ["end", "late"]
        assert formats.import_queue(tmp_path / "log", there, queue=queue, resume=True).consumers == []
        for called, number in (("late", b"1"), ("end", b"8")):
            with there.consumer(called) as consumer:
                assert consumer.get(timeout=0).payload == number


def test_a_new_consumer_whose_place_was_retired_or_is_not_known_is_made_before_it_or_refused(tmp_path):
    log = tmp_path / "log"
    formats.write(log, entries(3, 0), "sej")
    with shmq.open(tmp_path / "q") as q:
        for again in (False, True):
            formats.import_queue(log, q, again=again)
        formats.append(log, entries(3, 3))
        formats.import_queue(log, q, resume=True)
        formats.commit(log, "late", 1)
        said = refused(shmq.Unsafe, formats.import_queue, log, q, resume=True)
        assert "where consumer 'late' stands" in said
        assert "late" not in q.consumers()
        done = formats.import_queue(log, q, resume=True, lossy=True)
        assert (done.consumers, len(done.lost)) == (["late"], 1)
        with q.consumer("late") as consumer:
            assert consumer.get(timeout=0).payload == b"1"
    with shmq.open(tmp_path / "once", chunk_bytes=65_536) as q:
        formats.write(tmp_path / "big", [Entry(b"%d" % n + bytes(30_000), None, T) for n in range(20)], "sej")
        formats.import_queue(tmp_path / "big", q, resume=True, part=10)
        q.purge()
        assert q.first_index > 1
        formats.commit(tmp_path / "big", "late", 1)
        assert formats.import_queue(tmp_path / "big", q, resume=True).consumers == ["late"]
        with q.consumer("late") as consumer, pytest.raises(shmq.Empty):
            consumer.get(timeout=0)


def test_many_consumers_are_made_without_a_look_at_all_of_them_for_each(tmp_path, monkeypatch):
    formats.write(tmp_path / "log", entries(50, 0), "sej", None, {f"r{number}": (number, ()) for number in range(50)})
    looks = []
    there = shmq.Queue.consumers
    monkeypatch.setattr(shmq.Queue, "consumers", lambda queue: looks.append(1) or there(queue))
    assert len(formats.import_queue(tmp_path / "log", tmp_path / "q").consumers) == 50
    assert len(looks) == 1


class Stopped(BaseException):
    """As a signal's handler raises."""


def stops_at(most):
    def progress(doing, count):
        assert doing == "imported"
        if count > most:
            raise Stopped

    return progress


def test_interrupted_an_import_keeps_whole_parts_and_goes_on_behind_them(log, tmp_path):
    with pytest.raises(Stopped):
        formats.import_queue(log, tmp_path / "q", resume=True, part=3, progress=stops_at(8))
    assert payloads(tmp_path / "q") == NUMBERS[:6]
    done = formats.import_queue(log, tmp_path / "q", resume=True, part=3)
    assert done == ("libkestrel", 4, 6, 9, [], [])
    assert payloads(tmp_path / "q") == NUMBERS
    with shmq.open(tmp_path / "q") as queue:
        place = queue.group_place("r")
        assert (place.head, place.done) == (4, (5, 7))
        assert queue.staged_sets() == []


def test_interrupted_an_import_in_one_part_leaves_nothing(log, tmp_path):
    with shmq.open(tmp_path / "mine") as queue:
        queue.put(b"mine")
        for into in (tmp_path / "made", queue):
            with pytest.raises(Stopped):
                formats.import_queue(log, into, progress=stops_at(0))
        assert (len(queue), list(queue.consumers())) == (1, [])
    assert not (tmp_path / "made").exists()


def test_an_empty_queue_that_was_there_stays_when_an_import_fails(log, tmp_path, monkeypatch):
    """Also named from the home directory, where no such path is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    shmq.open(tmp_path / "q").close()
    for into in ("~/q", "~/made"):
        with pytest.raises(Stopped):
            formats.import_queue(log, into, progress=stops_at(0))
    assert (tmp_path / "q/queue.shmq").exists()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["sej", "kestrel"])
def test_a_source_that_its_program_writes_to_is_followed_by_importing_again(tmp_path, name):
    """By its numbers, and where it has none by what is there."""
    total = 2000
    source, queue = tmp_path / "src", tmp_path / "q"
    made = entries(total)
    formats.write(source, made[:10], name, "jobs" if name == "kestrel" else None)
    if name == "sej":
        (journal,) = (source / "jnl").iterdir()
        records = [formats.sej.message(entry.index, entry) for entry in made]
    else:
        journal = source / "jobs"
        records = [formats.kestrel.record(2, entry=entry) for entry in made]

    def goes_on():
        with journal.open("ab", buffering=0) as end:
            for record in records[10:]:
                end.write(record)

    program = threading.Thread(target=goes_on)
    program.start()
    came = None
    while program.is_alive() or came != 0:
        try:
            came = formats.import_queue(source, queue, resume=True, part=64).messages
        except Refused as torn:  # the kernel may show half of a write; what is whole came, and the next one goes on
            assert "ends inside" in str(torn)  # noqa: PT017
            assert program.is_alive() or came != 0
            came = None
    program.join()
    assert payloads(queue) == [entry.payload for entry in made]
    assert formats.import_queue(source, queue, resume=True).messages == 0


# ---------------------------------------------------------------- refused
def refused(kind, call, *words, **options):
    with pytest.raises(kind) as caught:
        call(*words, **options)
    assert isinstance(caught.value, Refused)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    return str(caught.value)


def test_what_was_imported_before_is_refused_in_the_words_of_python(log, tmp_path):
    formats.import_queue(log, tmp_path / "q")
    assert refused(shmq.Mismatch, formats.import_queue, log, tmp_path / "q") == (
        f"{log} was imported before, up to index 9; nothing was done. "
        "resume=True goes on behind that, again=True imports all of it once more"
    )
    formats.import_queue(log, tmp_path / "q", again=True, consumers=False)
    assert payloads(tmp_path / "q") == NUMBERS * 2


def test_a_refusal_can_be_told_in_the_words_of_another_surface():
    problem = Refused("it is so", ". {resume} goes on")
    assert str(problem) == "it is so. resume=True goes on"
    assert problem.told({"resume": "--resume"}) == "it is so. --resume goes on"


def test_a_path_with_braces_is_told_as_it_is(tmp_path):
    path = tmp_path / "{lossy}"
    formats.write(path, entries(3), "sej")
    formats.import_queue(path, tmp_path / "q")
    assert str(path) in refused(shmq.Mismatch, formats.import_queue, path, tmp_path / "q")


def test_a_consumer_of_somebody_elses_is_not_moved(log, tmp_path):
    with shmq.open(tmp_path / "q") as queue:
        queue.consumer("r").close()
        said = refused(shmq.Mismatch, formats.import_queue, log, queue)
        assert said.endswith("has a consumer 'r' already; nothing was imported. Drop it, or use consumers=False")
        assert len(queue) == 0


def test_a_loss_is_refused_or_told_before_anything_is_written(tmp_path):
    formats.write(tmp_path / "src", entries(66_000, 1), "libkestrel", "jobs", {"r": (0, (65_537,))})
    said = refused(shmq.Unsafe, formats.import_queue, tmp_path / "src", tmp_path / "q")
    assert said.startswith("this would be lost: consumer 'r' has confirmed 1 message more than 65,536 ahead")
    assert said.endswith("Nothing was written; lossy=True does it all the same")
    assert not (tmp_path / "q").exists()
    there = []
    done = formats.import_queue(
        tmp_path / "src",
        tmp_path / "q",
        lossy=True,
        tell=lambda said: there.append((said, (tmp_path / "q").exists())),
    )
    assert there == [(f"lost: {done.lost[0]}", False)]


@pytest.mark.parametrize("verb", ["export", "convert"])
def test_what_a_format_cannot_hold_is_refused(log, tmp_path, verb):
    with shmq.open(tmp_path / "q") as queue:
        queue.put(b"a", key=b"k")
    call, source = {"export": (formats.export_queue, tmp_path / "q"), "convert": (formats.convert_queue, log)}[verb]
    said = refused(shmq.Unsafe, call, source, tmp_path / "out", "qewqew")
    assert said.endswith("Nothing was written; lossy=True does it all the same")
    assert not (tmp_path / "out").exists()
    assert call(source, tmp_path / "out", "qewqew", lossy=True).consumers == []


def test_damage_of_the_source_is_refused_and_parts_before_it_stay(tmp_path):
    formats.write(tmp_path / "src", entries(10), "sej")
    (file,) = (tmp_path / "src/jnl").iterdir()
    with file.open("r+b") as content:
        content.truncate(file.stat().st_size - 3)
    said = refused(shmq.Corrupt, formats.import_queue, tmp_path / "src", tmp_path / "q")
    kept = "Nothing was imported; lossy=True imports all that is whole, and shmq.formats.repair writes a clean copy"
    assert said.endswith(kept)
    assert not (tmp_path / "q").exists()
    said = refused(shmq.Corrupt, formats.import_queue, tmp_path / "src", tmp_path / "q", resume=True, part=4)
    assert "Whole parts before it are in; lossy=True" in said
    assert payloads(tmp_path / "q") == [b"%d" % number for number in range(8)]
    said = refused(shmq.Corrupt, formats.convert_queue, tmp_path / "src", tmp_path / "out", "sej")
    assert "Nothing was written; lossy=True converts all that is whole" in said
    assert not (tmp_path / "out").exists()
    assert formats.convert_queue(tmp_path / "src", tmp_path / "out", "sej", lossy=True).messages == 9


def test_damage_of_the_queue_is_not_said_to_be_the_sources(tmp_path):
    with shmq.open(tmp_path / "q") as queue:
        queue.put_many([b"message %d" % number for number in range(100)])
    (chunk,) = (tmp_path / "q/chunks").glob("*.chunk")
    content = bytearray(chunk.read_bytes())
    at = content.find(b"message 50")
    content[at] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(shmq.Corrupt) as caught:
        formats.export_queue(tmp_path / "q", tmp_path / "out", "sej")
    assert not isinstance(caught.value, Refused)
    assert not (tmp_path / "out").exists()


def test_damage_of_what_tells_of_imports_is_not_the_sources(log, tmp_path):
    formats.import_queue(log, tmp_path / "q")
    ledger = tmp_path / "q/ledger.shmq"
    ledger.write_bytes(bytes(ledger.stat().st_size))
    with pytest.raises(shmq.Corrupt, match="ledger") as caught:
        formats.import_queue(log, tmp_path / "q", resume=True)
    assert not isinstance(caught.value, Refused)
    assert payloads(tmp_path / "q") == NUMBERS


def test_only_a_queue_of_bytes_takes_an_import(log, tmp_path):
    shmq.open(tmp_path / "q", codec="pickle", trusted=True).close()
    with pytest.raises(shmq.Mismatch, match="holds pickle; an import brings bytes"):
        formats.import_queue(log, tmp_path / "q")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"part": 0}, "part=0: at least 1"),
        ({"resume": True, "again": True}, "not both"),
        ({"ack": "later"}, "ack='later': 'auto' or 'explicit'"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_made(log, tmp_path, options, said):
    with pytest.raises(ValueError, match=said):
        formats.import_queue(log, tmp_path / "q", **options)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("verb", ["export", "convert"])
@pytest.mark.parametrize(
    ("to", "options", "said"),
    [
        ("chronicle", {"segment_bytes": 100}, "segment_bytes is for sej, and this is chronicle; nothing was written"),
        (
            "sej",
            {"tape": 1},
            "tape is not an option of sej, which has by_dir, client, first, mode, prefix, segment_bytes,",
        ),
        ("libkestrel", {"journal_bytes": 3}, "journal_bytes=3: no message has room in that, the least is 38; nothing"),
    ],
)
def test_found_options_that_a_format_has_not_are_named(log, tmp_path, verb, to, options, said):
    """They were a TypeError, or a limit of less than nothing."""
    formats.import_queue(log, tmp_path / "q")
    call, source = {"export": (formats.export_queue, tmp_path / "q"), "convert": (formats.convert_queue, log)}[verb]
    with pytest.raises(shmq.BadFormat) as caught:
        call(source, tmp_path / "out", to, **options)
    assert str(caught.value).startswith(said)
    assert not (tmp_path / "out").exists()


def test_what_is_too_large_says_that_nothing_was_written_and_what_has_room(tmp_path, capsys):
    with shmq.open(tmp_path / "q") as queue:
        queue.put(bytes(2 << 20))
    options = {"lossy": True, "block_bytes": 1 << 20}
    said = refused(shmq.TooLarge, formats.export_queue, tmp_path / "q", tmp_path / "out", "chronicle", **options)
    assert said.endswith("Nothing was written; block_bytes of a larger size has room for it")
    words = ["export", str(tmp_path / "q"), str(tmp_path / "out"), "--to", "chronicle", "--lossy", "--block-bytes"]
    assert main([*words, "1048576"]) == 1
    assert "Nothing was written; --block-bytes of a larger size" in capsys.readouterr().err
    assert main([*words, str(16 << 20)]) == 0
    assert [len(entry.payload) for entry in formats.read(tmp_path / "out")] == [2 << 20]
    said = refused(shmq.TooLarge, formats.convert_queue, tmp_path / "out", tmp_path / "small", "qewqew", lossy=True)
    assert said.endswith(". Nothing was written")


@pytest.mark.parametrize("bound", [{"max_messages": 5}, {"max_bytes": 65_536}])
def test_bounds_without_room_for_all_of_it_point_to_parts(tmp_path, bound):
    log = tmp_path / "log"
    formats.write(log, [Entry(b"%d" % number + bytes(9_000), None, T) for number in range(12)], "sej")
    with shmq.open(tmp_path / "q", **bound) as queue, queue.consumer("r") as consumer:
        expected = shmq.TooMany if "max_messages" in bound else shmq.TooLarge
        said = refused(expected, formats.import_queue, log, queue)
        assert "so there never is room for them" in said
        assert "Nothing was imported. resume=True with a part that the bounds have room for goes on" in said
        said = refused(shmq.Full, formats.import_queue, log, queue, resume=True, part=2)
        assert "Whole parts before it are imported. resume=True with a part" in said
        found = []
        while len(found) < 12:
            with contextlib.suppress(Refused):
                formats.import_queue(log, queue, resume=True, part=2)
            with contextlib.suppress(shmq.Empty):
                while True:
                    found.append(int(consumer.get(timeout=0).payload.strip(b"\0")))
        assert found == list(range(12))


def test_an_import_counts_the_consumers_that_it_made(log, tmp_path, capsys):
    assert main(["import", str(log), str(tmp_path / "q"), "--resume"]) == 0
    assert capsys.readouterr().out == "imported 10 messages and 1 consumer, index 0 to 9\n"
    assert main(["import", str(log), str(tmp_path / "q"), "--resume"]) == 0
    assert capsys.readouterr().out == "imported 0 messages\n"


def test_what_is_not_there_or_no_format_is_said_so(tmp_path, log):
    for call in (formats.import_queue, lambda *words: formats.convert_queue(*words, "sej")):
        with pytest.raises(shmq.NotFound, match="nothing is there"):
            call(tmp_path / "nothing", tmp_path / "q")
        shmq.open(tmp_path / "ours").close()
        with pytest.raises(shmq.BadFormat, match="shmq: its reader and writer are not part"):
            call(tmp_path / "ours", tmp_path / "q")
    for call in (formats.export_queue, formats.convert_queue):
        with pytest.raises(shmq.BadFormat, match="cannot write 'tape'"):
            call(tmp_path / "ours" if call is formats.export_queue else log, tmp_path / "q", "tape")
    with pytest.raises(shmq.NotFound):
        formats.export_queue(tmp_path / "nothing", tmp_path / "q", "sej")
    assert not (tmp_path / "q").exists()


def test_found_two_consumers_of_one_name_are_refused_with_what_helps(tmp_path):
    """`shmq convert` advised --no-consumers, which it has not."""
    formats.write(tmp_path / "src", entries(3), "sej", consumers={"a b": (1, ()), "a+b": (2, ())})
    said = refused(shmq.Mismatch, formats.import_queue, tmp_path / "src", tmp_path / "q")
    assert said == f"several consumers of {tmp_path / 'src'} would be called 'a.b'; use consumers=False"
    assert formats.import_queue(tmp_path / "src", tmp_path / "q", consumers=False).messages == 3
    said = refused(shmq.Mismatch, formats.convert_queue, tmp_path / "src", tmp_path / "out", "sej")
    assert said.endswith("would be called 'a.b'; import it with consumers=False and export that")


def test_found_a_child_that_is_left_out_is_named_as_it_can_be_imported(tmp_path):
    """Where no queue was named, it advised to import None+fan."""
    formats.write(tmp_path / "src", entries(3), "kestrel", "jobs", {"fan": (0, ())})
    formats.write(tmp_path / "other", entries(2, 7), "kestrel", "jobs")
    (tmp_path / "other/jobs").replace(tmp_path / "src/jobs+fan")
    said = refused(shmq.Unsafe, formats.import_queue, tmp_path / "src", tmp_path / "q")
    assert "(import jobs+fan as a queue of its own)" in said
    assert formats.import_queue(tmp_path / "src", tmp_path / "fan", queue="jobs+fan").messages == 2


def test_an_empty_payload_is_said_to_be_lost_to_chronicle(tmp_path):
    """It has no document without a byte: one becomes the byte 8F, which came back silently as a payload of its own."""
    told = []
    with shmq.open(tmp_path / "q") as queue:
        queue.put_many([b"a", b"", b"c"])
        with pytest.raises(formats.Refused, match="the emptiness of 1 message"):
            formats.export_queue(queue, tmp_path / "c", "chronicle")
        formats.export_queue(queue, tmp_path / "c", "chronicle", lossy=True, tell=told.append)
    assert any("emptiness of 1 message" in each for each in told)
    formats.write(tmp_path / "s", [formats.Entry(b"")], "sej")
    with pytest.raises(formats.Refused, match="the emptiness of 1 message"):
        formats.convert_queue(tmp_path / "s", tmp_path / "d", "chronicle")
