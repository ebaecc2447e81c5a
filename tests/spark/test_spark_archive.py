"""Messages into Parquet before a queue may forget them, and back."""

from __future__ import annotations

import datetime
import json
import math
import os
import signal
import time

import pytest
from support import Child

import shmq

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
import pyarrow.parquet as pq  # noqa: E402

from shmq.cli import archive as command  # noqa: E402
from shmq.cli import main  # noqa: E402
from shmq.spark import archive  # noqa: E402
from shmq.spark.archive import files, merging  # noqa: E402

SOME = 400


@pytest.fixture
def some(make):
    return fill(make(retention=shmq.Retention.forever()))


def fill(queue):
    for start in range(0, SOME, 50):
        numbers = range(start, start + 50)
        queue.put_many(
            [b"%d %s" % (number, b"x" * 100) for number in numbers],
            keys=[b"k%d" % (number % 3) for number in numbers],
            types=list(numbers),
            times_ns=[number * 10**9 + 7 for number in numbers],
            headers=[{"h": b"v"} if number % 100 == 0 else None for number in numbers],
        )
    return queue


@pytest.fixture
def to(tmp_path):
    return str(tmp_path / "archive")


def rows(to):
    there = archive.Archive(to)
    files = there.manifest().of("q", 0)
    return [row for path in there.paths(files) for row in pq.read_table(path).to_pylist()]


def in_parts(queue, to, *stops):
    """A file up to each of these."""
    for stop in stops:
        with queue.consumer("work", ack="explicit") as consumer:
            consumer.seek(stop)
        archive.archive(queue.path, to, behind="work")


def into_one(to):
    """Of all files there are, one is made."""
    return archive.compact(to, file_bytes=sum(each.nbytes for each in archive.Archive(to).manifest().files))


def test_everything_of_a_message_is_in_the_archive(some, to):
    assert archive.archive(some.path, to) == SOME
    found = rows(to)
    assert [row["offset"] for row in found] == list(range(SOME))
    one = found[100]
    assert (one["key"], one["type"], one["topic"], one["partition"]) == (b"k1", 100, "q", 0)
    assert one["value"].startswith(b"100 ")
    assert one["timestamp_ns"] == 100 * 10**9 + 7
    assert one["headers"] == [("h", b"v")] or one["headers"] == [{"key": "h", "value": b"v"}]
    assert archive.verify(to) == []


def test_the_queue_may_forget_what_is_archived_and_not_a_message_more(queue, to):
    some = fill(queue)
    with some.consumer("work") as consumer:
        consumer.seek(SOME)
    first = some.first_index
    archive.archive(some.path, to)
    assert rows(to)[0]["offset"] == first
    assert some.consumers()[archive.CONSUMER].head == SOME
    some.put_many([b"more"] * 300)
    with some.consumer("work") as consumer:
        consumer.seek(some.next_index)
    assert some.first_index <= SOME  # what is new is not archived yet
    assert archive.archive(some.path, to) == 300


@pytest.mark.parametrize("at", range(9))
def test_a_run_that_is_killed_is_done_again_without_a_trace(some, to, at):
    """Before each sync: of folders, the first manifest, the announcement, the file, the manifest that counts it."""
    syncs = iter(range(at))

    def work(_):
        os.fsync = lambda _: next(syncs, None) is not None or os.kill(os.getpid(), signal.SIGKILL)
        archive.archive(some.path, to)

    with Child(work) as child:
        assert child.join() == -signal.SIGKILL
    head = some.consumers()[archive.CONSUMER].head if some.consumers() else 0
    assert head == 0  # nothing may go yet
    assert archive.archive(some.path, to) == (SOME if at < 8 else 0)
    assert [row["offset"] for row in rows(to)] == list(range(SOME))
    assert sorted(os.listdir(to)) == ["lock", "manifest.json", "q-000-0000000000000000-0000000000000400.parquet"]


def test_found_a_folder_that_is_not_its_own_is_refused_and_nothing_in_it_is_deleted(some, to, capsys):
    """Every *.parquet and *.unfinished that the manifest did not name was removed, the user's own."""
    os.mkdir(to)
    for name in ("mine.parquet", "thesis.unfinished"):
        with open(f"{to}/{name}", "w", encoding="ascii") as file:
            file.write("mine")
    for verb in (archive.archive, lambda _, to: archive.compact(to), lambda _, to: archive.replay(to, f"{to}.q")):
        with pytest.raises(shmq.BadFormat, match=r"is not an archive: .* mine.parquet in it; nothing was changed"):
            verb(some.path, to)
    assert sorted(os.listdir(to)) == ["mine.parquet", "thesis.unfinished"]
    assert some.consumers() == {}


def test_found_with_a_lost_manifest_nothing_is_deleted_and_nothing_is_lost(some, to, tmp_path):
    """The archive itself was removed, and success reported."""
    archive.archive(some.path, to)
    os.rename(f"{to}/manifest.json", tmp_path / "lost")
    some.put(b"more")
    with pytest.raises(shmq.BadFormat, match=r"its manifest\.json is gone; nothing was changed\. Bring it back"):
        archive.archive(some.path, to)
    with pytest.raises(shmq.BadFormat, match=r"its manifest\.json is gone"):
        archive.history(None, to, some.path)
    assert len([name for name in os.listdir(to) if name.endswith(".parquet")]) == 1
    other = f"{to}.other"
    assert archive.archive(some.path, other) == 1  # as the error says: where this one ends
    assert [row["offset"] for row in rows(other)] == [SOME]
    os.rename(tmp_path / "lost", f"{to}/manifest.json")
    assert [row["offset"] for row in rows(to)] == list(range(SOME))


def test_what_others_put_beside_its_files_stays(some, to):
    in_parts(some, to, 200, SOME)
    own = ("mine.parquet", "q-000-0000000000000007-0000000000000009.parquet", "x.unfinished")
    for name in own:
        with open(f"{to}/{name}", "w", encoding="ascii") as file:
            file.write("mine")
    some.put(b"more")
    assert into_one(to) == 1
    assert archive.archive(some.path, to) == 1
    assert set(own) <= set(os.listdir(to))
    some.put(b"and more")
    in_the_way = f"{to}/q-000-0000000000000401-0000000000000402.parquet"
    os.rename(f"{to}/mine.parquet", in_the_way)
    with pytest.raises(shmq.BadFormat, match=r"did not write it; nothing was changed\. Move it away"):
        archive.archive(some.path, to)
    with open(in_the_way, encoding="ascii") as file:
        assert file.read() == "mine"
    os.unlink(in_the_way)
    assert archive.archive(some.path, to) == 1


def test_a_kill_between_manifest_and_consumer_doubles_nothing(some, to, monkeypatch):
    before = shmq.Consumer.seek
    monkeypatch.setattr(shmq.Consumer, "seek", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        archive.archive(some.path, to)
    monkeypatch.setattr(shmq.Consumer, "seek", before)
    assert archive.archive(some.path, to) == 0
    assert some.consumers()[archive.CONSUMER].head == SOME
    assert len(rows(to)) == SOME


def test_a_full_disk_leaves_nothing_half_done(some, to, monkeypatch):
    archive.archive(some.path, to)
    some.put(b"more")
    there = sorted(os.listdir(to))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        archive.archive(some.path, to)
    assert sorted(os.listdir(to)) == there
    monkeypatch.undo()
    assert archive.archive(some.path, to) == 1


def test_a_queue_that_is_archived_forgets_nothing_before_whatever_its_retention(make, to):
    queue = make(retention=shmq.Retention.bytes(40_000))
    queue.put(b"first")
    archive.hold(queue.path)
    for _ in range(20):
        queue.put_many([b"x" * 100] * 50)
    assert queue.first_index == 0  # more than 40,000 bytes, and none of it archived
    assert archive.archive(queue.path, to) == 1001
    for _ in range(20):
        queue.put_many([b"x" * 100] * 50)
    assert 0 < queue.first_index <= 1001
    assert archive.archive(queue.path, to) == 1000
    assert [row["offset"] for row in rows(to)] == list(range(2001))


def test_messages_that_went_because_the_name_was_dropped_are_told(make, to):
    queue = make(retention=shmq.Retention.bytes(40_000))
    queue.put(b"first")
    archive.archive(queue.path, to)
    queue.drop_consumer(archive.CONSUMER)
    for _ in range(20):
        queue.put_many([b"x" * 100] * 50)
    with pytest.raises(shmq.Gone, match="were retired before they came"):
        archive.archive(queue.path, to)


def test_another_queue_does_not_come_into_the_same_archive(some, to, tmp_path):
    archive.archive(some.path, to)
    some.close()
    shmq.delete(some.path)
    with shmq.open(some.path) as other:
        other.put(b"x")
    with pytest.raises(shmq.Mismatch, match="another queue"):
        archive.archive(some.path, to)


def test_one_archives_at_a_time(some, to):
    with archive.Archive(to), pytest.raises(shmq.Busy, match="another process"):
        archive.archive(some.path, to)


def test_only_what_is_old_or_finished(some, to):
    with pytest.raises(shmq.NotFound, match="behind 'nobody': it has no such consumer; nothing was archived"):
        archive.archive(some.path, to, behind="nobody")
    with some.consumer("work", ack="explicit") as consumer:
        consumer.seek(100)
    assert archive.archive(some.path, to, behind="work") == 100
    some.put(b"of now")
    assert archive.archive(some.path, to, older_than=3600) == SOME - 100


def test_small_files_become_large_and_readers_are_not_disturbed(some, to):
    in_parts(some, to, 100, 200, 300)
    old = archive.Archive(to).paths(archive.Archive(to).manifest().of("q", 0))
    assert len(old) == 3
    assert into_one(to) == 2
    assert [row["offset"] for row in rows(to)] == list(range(300))
    assert archive.verify(to) == []
    archive.archive(some.path, to)
    assert [row["offset"] for row in rows(to)] == list(range(SOME))
    assert all(os.path.exists(path) for path in old)  # somebody may be reading them


def test_found_replaced_files_stay_for_who_planned_with_them_and_not_for_ever(some, to, monkeypatch):
    """They went with the next cycle, half a minute later, under the queries that read them."""
    in_parts(some, to, 100, 200)
    old = archive.Archive(to).paths(archive.Archive(to).manifest().of("q", 0))
    into_one(to)
    now = time.time_ns()
    for hours, there in ((0, True), (23, True), (25, False)):
        monkeypatch.setattr(files.time, "time_ns", lambda hours=hours: now + hours * 3600 * 10**9)
        archive.archive(some.path, to)
        assert [os.path.exists(path) for path in old] == [there] * 2
    assert len(archive.Archive(to).manifest().leaving) == 0
    assert [row["offset"] for row in rows(to)] == list(range(SOME))


def test_found_compaction_after_each_cycle_writes_each_message_only_a_few_times(some, to):
    """What had been put together was put together with each new file again: 21 times what 40 cycles archived."""
    written, seen = 0, set()
    for stop in range(10, SOME + 1, 10):
        in_parts(some, to, stop)
        archive.compact(to)
        for each in archive.Archive(to).manifest().files:
            written += (each.stop - each.first) * (each.name not in seen)
            seen.add(each.name)
    assert written <= 3 * SOME
    assert len(archive.Archive(to).manifest().files) < 16
    assert [row["offset"] for row in rows(to)] == list(range(SOME))


@pytest.mark.parametrize("nbytes", [1 << 10, 10_000, 1 << 20])
def test_what_is_put_together_is_nearly_full_in_the_end(nbytes):
    """Sizes alone: 2,000 files of 100 bytes come, and what is worth it is put together after each."""
    sizes, written = [], 0
    for _ in range(2000):
        sizes.append(100)
        for first, stop in reversed(merging.runs(sizes, (), nbytes)):
            total = sum(sizes[first:stop])
            written += total
            sizes[first:stop] = [total]
            assert total <= nbytes
    assert written <= 200_000 * (2 + math.log(nbytes / 100, merging.GROWTH))
    assert len(sizes) <= 4 * 200_000 / nbytes + 3 * merging.GROWTH


def test_a_manifest_of_the_version_before_is_read(some, to):
    in_parts(some, to, 100, 200)
    path = f"{to}/manifest.json"
    with open(path, encoding="utf-8") as file:
        stored = json.load(file)
    name = "q-000-0000000000000200-0000000000000300.parquet"
    with open(f"{to}/{name}", "wb"):
        pass
    assert stored.pop("leaving") == []
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**stored, "v": 1, "replaced": [name]}, file)
    assert archive.archive(some.path, to) == SOME - 200
    assert not os.path.exists(f"{to}/{name}")
    assert [row["offset"] for row in rows(to)] == list(range(SOME))


def test_replay_brings_everything_back_once(some, to, tmp_path, capsys):
    archive.archive(some.path, to)
    again = str(tmp_path / "again")
    assert main(["replay", to, again]) == 0
    assert "put 400 messages" in capsys.readouterr().out
    assert archive.replay(to, again) == 0  # a second time is no second copy
    with shmq.open(again) as queue:
        assert len(queue) == SOME
        for number in (0, 1, 100, SOME - 1):
            old, new = some[number], queue[number]
            assert (new.payload, new.key, new.type, new.time_ns) == (old.payload, old.key, old.type, old.time_ns)
            assert new.headers == {**old.headers, "source": {"topic": "q", "partition": 0, "index": number}}


def test_found_dead_letters_that_were_replayed_had_bytes_for_text(tmp_path, to, capsys):
    """And so `shmq dead` knew them no more; what an archive has of others' headers is bytes."""
    letters, again = str(tmp_path / "letters"), str(tmp_path / "again")
    with (
        shmq.open(tmp_path / "q") as queue,
        queue.consumer("g", group=True, ack="explicit", dead_letter=letters) as one,
    ):
        queue.put(b"bad", headers={"mine": "text", "shmq.other": b"bytes"})
        one.get().reject(ValueError("no, \u20ac"))
    archive.archive(letters, to)
    archive.replay(to, again)

    with shmq.open(letters) as before, shmq.open(again) as after:
        source = {"topic": "letters", "partition": 0, "index": 0}
        assert after[0].headers == {**before[0].headers, "mine": b"text", "source": source}
    assert main(["dead", "requeue", again, "0"]) == 0
    assert capsys.readouterr().out == f"letter 0 is message 1 of {tmp_path / 'q'}\n"


@pytest.mark.parametrize("name", ["shmq.reason", "shmq.index", "shmq.origin"])
def test_what_is_called_as_of_a_letter_and_is_none_stays_bytes(tmp_path, to, name):
    """Whoever put it can have written anything there."""
    again = str(tmp_path / "again")
    with shmq.open(tmp_path / "q", retention=shmq.Retention.forever()) as queue:
        queue.put(b"x", headers={name: b"\xff{"})
    archive.archive(str(tmp_path / "q"), to)
    archive.replay(to, again)
    with shmq.open(again) as after:
        assert after[0].headers[name] == b"\xff{"


def test_found_replay_after_compaction_puts_only_what_is_new(some, to, tmp_path):
    """A group of rows, part of which was replayed before, was put whole: 6,000 messages, 4,000 of them distinct."""
    again = str(tmp_path / "again")
    in_parts(some, to, 100, 250)
    assert archive.replay(to, again, until=180 * 10**9) == 180
    assert archive.replay(to, f"{again}.all") == 250
    archive.archive(some.path, to)
    assert into_one(to) == 2
    assert archive.replay(to, f"{again}.all") == SOME - 250
    assert archive.replay(to, again, until=180 * 10**9) == 0
    with shmq.open(f"{again}.all") as queue:
        assert [message.payload for message in queue.reader()] == [message.payload for message in some.reader()]


def test_replay_of_a_time(some, to, tmp_path):
    archive.archive(some.path, to)
    assert archive.replay(to, str(tmp_path / "again"), since=100 * 10**9, until=110 * 10**9) == 10


def test_a_damaged_archive_is_not_replayed(some, to, tmp_path, capsys):
    archive.archive(some.path, to)
    (path,) = archive.Archive(to).paths(archive.Archive(to).manifest().of("q", 0))
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\x00\x01")
    assert main(["replay", to, str(tmp_path / "again")]) == 1
    assert "is not what was written" in capsys.readouterr().err
    os.unlink(path)
    assert "is missing" in archive.verify(to)[0]


# ---------------------------------------------------------------- nothing is made for nothing
def test_found_nothing_is_made_for_a_queue_that_is_not_there(make, tmp_path, capsys):
    """A mistyped name left an archive of plain Parquet behind; as its own archive, at the queue's very path."""
    missing, lake = str(tmp_path / "typo"), str(tmp_path / "lake")
    for to in (lake, missing):
        assert main(["archive", missing, to, "--form", "parquet"]) == 1
        assert "there is no queue there" in capsys.readouterr().err
        assert not os.path.exists(to)


@pytest.mark.parametrize("refused", [["--schema", "user NOTHING"], ["--schema", "user BIGINT", "--value", "struct"]])
def test_found_nothing_is_made_for_a_schema_that_is_refused(some, to, refused):
    """The folder was there afterwards, with a lock and a manifest."""
    assert main(["archive", some.path, to, "--form", "parquet", *refused]) == 1
    with pytest.raises(shmq.NotFound):
        archive.archive(some.path, to, behind="nobody")
    assert not os.path.exists(to)


@pytest.mark.parametrize("inside", ["", "/lake", "/deep/lake"])
def test_found_an_archive_in_the_folder_of_its_queue_is_refused(some, inside):
    """It would go with the queue."""
    there = sorted(os.listdir(some.path))
    with pytest.raises(shmq.BadFormat, match="is in the queue's own folder"):
        archive.archive(some.path, some.path + inside)
    assert sorted(os.listdir(some.path)) == there
    assert archive.archive(some.path, f"{some.path}.lake") == SOME


def test_found_a_file_and_a_lost_manifest_are_told_by_the_command(some, to, capsys):
    """The first was `Not a directory`, and of the second it said that it was no Delta table."""
    with open(f"{to}.file", "wb"):
        pass
    assert main(["archive", some.path, f"{to}.file"]) == 1
    assert "it is a file, and an archive is a folder" in capsys.readouterr().err
    archive.archive(some.path, to)
    os.unlink(f"{to}/manifest.json")
    assert main(["archive", some.path, to]) == 1
    assert "its manifest.json is gone" in capsys.readouterr().err


def test_found_no_room_to_put_files_together_does_not_end_the_archive(make, to, capsys, monkeypatch):
    """It ended with 1, without a word of the messages that it had archived, and so did `--every`."""

    def full(*_):
        raise OSError(28, "No space left on device")

    queue = make(retention=shmq.Retention.forever())
    words = ["archive", queue.path, to, "--form", "parquet"]
    monkeypatch.setattr(files.parquet, "groups", full)
    for _ in range(20):
        queue.put(b"x" * 100)
        assert main(words) == 0
    told = capsys.readouterr()
    assert told.out == f"1 message into {to}\n" * 20
    assert f"cannot put files of {to} together: [Errno 28] No space left on device; everything is archived" in told.err
    assert [row["offset"] for row in rows(to)] == list(range(20))
    monkeypatch.undo()
    assert main(words) == 0
    assert "files together" in capsys.readouterr().out
    assert [row["offset"] for row in rows(to)] == list(range(20))


def test_found_times_without_a_zone_are_local_as_for_a_queue(some, to, tmp_path, monkeypatch):
    """They were UTC here, and local there."""
    archive.archive(some.path, to)
    monkeypatch.setenv("TZ", "UTC-5")  # POSIX for five hours east
    time.tzset()
    try:
        since, until = (datetime.datetime.fromisoformat(f"1970-01-01T05:0{minute}:00") for minute in (1, 2))
        assert some.at(since) is not None
        assert archive.replay(to, str(tmp_path / "one"), since=since, until=until) == 60
        assert main(["replay", to, str(tmp_path / "two"), "--since", since.isoformat(), "--until", "1970-01-01"]) == 0
        words = ["--since", since.isoformat(), "--until", until.isoformat()]
        assert main(["replay", to, str(tmp_path / "three"), *words]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    for name, count in (("one", 60), ("two", 0), ("three", 60)):
        with shmq.open(str(tmp_path / name)) as queue:
            assert len(queue) == count
    with shmq.open(str(tmp_path / "one")) as queue:
        assert queue[0].time_ns == some[60].time_ns


@pytest.mark.parametrize("when", [datetime.date(1970, 1, 1), "1970-01-01", 1.5, True])
def test_found_what_is_no_time_is_told(some, to, when):
    """A date was an AttributeError about tzinfo."""
    archive.archive(some.path, to)
    for given in ({"since": when}, {"until": when}):
        for call in (lambda given: archive.history(None, to, **given), lambda given: archive.replay(to, "q", **given)):
            with pytest.raises(TypeError, match=r"(since|until)=.*: a datetime is wanted, or an int of ns since 1970"):
                call(given)


def test_found_a_second_archive_of_a_queue_is_told_so(some, to):
    """The advice was to use another name, and there is no option for one."""
    told = r"another archive of this queue runs, for the name 'archive' is in use"
    with some.consumer(archive.CONSUMER, ack="explicit", hold=True), pytest.raises(shmq.Busy, match=told):
        archive.archive(some.path, to)
    assert archive.archive(some.path, to) == SOME


def test_found_a_queue_that_is_deleted_between_two_cycles_leaves_a_safe_archive(some, to, capsys, monkeypatch):
    """Nothing was said of what had been archived."""
    once = command._once

    def and_delete(*given):
        once(*given)
        some.close()
        shmq.delete(some.path)

    monkeypatch.setattr(command, "_once", and_delete)
    assert main(["archive", some.path, to, "--form", "parquet", "--every", "1ms"]) == 1
    told = capsys.readouterr().err
    assert "there is no queue there" in told
    assert f"what was archived of it is safe in {to}" in told
    assert [row["offset"] for row in rows(to)] == list(range(SOME))
    assert main(["archive", some.path, to]) == 1
    assert "safe" not in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 30])
def test_what_is_purged_and_not_archived_is_told_or_archived_and_another_archive_begins_behind_it(make, to, count):
    """As docs/spark/archive.md has it."""
    queue = make(chunk_bytes=1 << 16)
    queue.put(b"first")
    archive.archive(queue.path, to)
    for _ in range(count):
        queue.put_many([b"x" * 100] * 50)
    end = queue.purge()
    queue.put(b"last")
    other = f"{to}.other"
    if queue.first_index:
        with pytest.raises(shmq.Gone, match=r"the queue was purged, .* Archive to another place"):
            archive.archive(queue.path, to)
    assert archive.archive(queue.path, other) == 1
    assert [row["offset"] for row in rows(other)] == [end]
    if not queue.first_index:
        assert archive.archive(queue.path, to) == 51


def test_found_a_full_disk_is_told_with_the_place_and_what_is_safe(some, to, capsys, monkeypatch):
    """It was `No space left on device`, and no word more."""
    words = ["archive", some.path, to, "--form", "parquet"]
    assert main(words) == 0
    some.put(b"more")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(words) == 1
    assert capsys.readouterr().err == (
        f"shmq: cannot archive {some.path} to {to}: No space left on device; what is archived is safe, and the queue "
        "keeps the rest. Run it again when that is mended\n"
    )
    assert main(words) == 0
    assert [row["offset"] for row in rows(to)] == list(range(SOME + 1))
