"""An archive as a Delta table: each message is in it once, whoever is killed, and whoever else commits."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import support

import shmq

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")

from shmq.cli import main  # noqa: E402
from shmq.spark import archive, delta, pipeline, spec  # noqa: E402
from shmq.spark.archive import lake  # noqa: E402

SOME = 400
DAY_NS = 86_400 * 10**9


def fill(queue, start=0, stop=SOME):
    """A message each six hours, so that each commit has several days."""
    numbers = range(start, stop)
    queue.put_many(
        [b'{"n":%d,"kind":"%s"}' % (n, b"ab"[n % 2 : n % 2 + 1]) for n in numbers],
        keys=[b"k%d" % (n % 3) for n in numbers],
        types=list(numbers),
        times_ns=[n // 100 * DAY_NS + n * 1000 + 7 for n in numbers],
        headers=[{"h": b"v"} if n % 100 == 0 else None for n in numbers],
    )
    return queue


@pytest.fixture
def some(make):
    return fill(make(retention=shmq.Retention.forever(), chunk_bytes=1 << 16))


@pytest.fixture
def to(tmp_path):
    return str(tmp_path / "table")


def table(to):
    return deltalake.DeltaTable(to).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])


def offsets(to):
    return table(to)["offset"].to_pylist()


def in_parts(queue, to, *stops, **given):
    """A commit up to each of these."""
    for stop in stops:
        with queue.consumer("work", ack="explicit") as consumer:
            consumer.seek(stop)
        archive.archive(queue.path, to, form="delta", behind="work", **given)


def test_everything_of_a_message_is_in_the_table_by_days_and_shards(some, to):
    assert archive.archive(some.path, to, form="delta") == SOME
    assert archive.archive(some.path, to) == 0
    found = table(to)
    assert found["offset"].to_pylist() == list(range(SOME))
    one = found.to_pylist()[300]
    assert (one["key"], one["type"], one["topic"], one["partition"]) == (b"k0", 300, "q", 0)
    assert one["value"] == some[300].payload
    assert one["timestamp_ns"] == some[300].time_ns
    assert one["date"] == datetime.date(1970, 1, 4)
    assert one["headers"] in ([("h", b"v")], [{"key": "h", "value": b"v"}])
    parts = delta.Table(to).parts()
    assert [each.partition for each in sorted(parts)] == [
        {"date": datetime.date(1970, 1, 1 + n), "partition": 0} for n in range(4)
    ]
    assert sorted((each.low["offset"], each.high["offset"], each.rows) for each in parts) == [
        (n, n + 99, 100) for n in (0, 100, 200, 300)
    ]
    assert archive.verify(to) == []


def test_the_queue_may_forget_what_is_in_the_table_and_not_a_message_more(make, to):
    queue = fill(make(chunk_bytes=1 << 16))
    archive.archive(queue.path, to, form="delta")
    assert queue.consumers()[archive.CONSUMER].head == SOME
    fill(queue, SOME, 2 * SOME)
    assert queue.first_index <= SOME
    assert archive.archive(queue.path, to) == SOME
    assert offsets(to) == list(range(2 * SOME))


# ---------------------------------------------------------------- once
def begun_anew(script, *words):
    """A Python in which deltalake has done nothing yet: its threads do not come through a fork."""
    found = subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(support.__file__),
        timeout=support.DEADLINE * 6,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return [json.loads(line) for line in found.stdout.splitlines()]


AT_EACH_STEP = """
import itertools, json, os, signal, sys
sys.path.insert(0, os.getcwd())
import deltalake, pyarrow.dataset, pyarrow.parquet
import shmq
from shmq.spark import archive, delta
from support import Child

def fill(queue, start, stop):
    numbers = range(start, stop)
    queue.put_many([b"%d" % n for n in numbers], times_ns=[n // 100 * 86400 * 10**9 for n in numbers])

def work(say, path, at):
    count = iter(range(at))

    def step(real):
        def instead(*args, **given):
            if next(count, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **given)
        return instead

    os.fsync, os.replace, os.makedirs = step(os.fsync), step(os.replace), step(os.makedirs)
    delta.Table.commit, delta.Table.again = step(delta.Table.commit), step(delta.Table.again)
    shmq.Consumer.seek = step(shmq.Consumer.seek)
    with shmq.open(path) as queue:
        for stop in range(50, 451, 50):
            fill(queue, stop - 50, stop)
            archive.archive(path, path + ".table", form="delta")
    archive.compact(path + ".table", file_bytes=20_000)

def after(say, path):
    with shmq.open(path) as queue:
        fill(queue, queue.next_index, queue.next_index + 50)
        archive.archive(path, path + ".table", form="delta")
        archive.compact(path + ".table", file_bytes=20_000)
        say(json.dumps([queue.next_index, archive.verify(path + ".table")]))

for at in itertools.count(0, int(sys.argv[2])):
    path = f"{sys.argv[1]}/{at}"
    with Child(work, path, at) as child:
        status = child.join()
    with Child(after, path) as child:
        end, problems = json.loads(child.hear())
    print(json.dumps([path, status, end, problems]), flush=True)
    if status == 0:
        break
"""


def test_whoever_is_killed_at_a_step_each_message_is_once_in_the_table(tmp_path):
    """At each sync, each name that is given, before and after each commit, and before the queue may forget."""
    done = begun_anew(AT_EACH_STEP, tmp_path, 11)
    for path, status, end, problems in done:
        assert offsets(f"{path}.table") == list(range(end)), path
        assert problems == []
        assert status in {-signal.SIGKILL, 0}
        left = [name for _, _, names in os.walk(f"{path}.table") for name in names if name.endswith(".unfinished")]
        assert left == []
    assert len(done) > 10
    assert done[-1][1] == 0


WHILE_SOMEBODY_PUTS = """
import json, os, sys
sys.path.insert(0, os.getcwd())
import deltalake, pyarrow.dataset, pyarrow.parquet
import shmq
from shmq.spark import archive
from support import Child

path, kills = sys.argv[1], int(sys.argv[2])

def work(say):
    say("begun")
    while True:
        if archive.archive(path, path + ".table", form="delta"):
            say("some")
        archive.compact(path + ".table", file_bytes=60_000)

def putting(say):
    number = 0
    while True:
        with shmq.open(path) as queue:
            for _ in range(50):
                queue.put_many([b"%d" % n for n in range(number, number + 20)])
                number += 20
        say(number)

with Child(putting) as writer:
    for kill in range(kills):
        with Child(work) as child:
            for _ in range(kill % 4):
                child.hear()
            writer.hear()  # meanwhile it is anywhere
            child.kill()
    writer.kill()
print(json.dumps(kills))
"""


def test_real_processes_are_killed_at_any_moment_while_somebody_puts(tmp_path):
    path = str(tmp_path / "q")
    begun_anew(WHILE_SOMEBODY_PUTS, path, 12)
    archive.archive(path, f"{path}.table", form="delta")
    archive.compact(f"{path}.table", file_bytes=60_000)
    with shmq.open(path) as queue:
        assert queue.next_index > 5000
        there = {message.index for message in queue.reader()}  # the rest was archived, and went
        padding = [index for index in range(queue.first_index, queue.next_index) if index not in there]
        assert sorted([*offsets(f"{path}.table"), *padding]) == list(range(queue.next_index))
    assert len(padding) <= 20, "who is killed in a put leaves no more than its batch"
    assert archive.verify(f"{path}.table") == []


def test_found_a_commit_beside_another_ones_is_not_tried_again_behind_its_marks(some, to, monkeypatch):
    """deltalake by itself tries again without a look at them: what two had written was there twice."""
    in_parts(some, to, 100)
    once = delta.Table.once

    def meanwhile(self, app, version, add, marks, check):
        monkeypatch.setattr(delta.Table, "once", once)
        deltalake.DeltaTable(to).create_write_transaction(  # who was here first, and had written the same
            list(add),
            mode="append",
            schema=deltalake.DeltaTable(to).schema(),
            partition_by=["date", "partition"],
            commit_properties=deltalake.CommitProperties(
                app_transactions=[deltalake.Transaction(name, at) for name, at in marks.items()]
            ),
        )
        return self.once(app, version, add, marks, check)

    monkeypatch.setattr(delta.Table, "once", meanwhile)
    with pytest.raises(shmq.Busy, match="by another process"):
        archive.archive(some.path, to)
    assert offsets(to) == list(range(SOME))
    assert archive.archive(some.path, to) == 0
    assert archive.verify(to) == []


def test_what_others_do_to_the_table_is_no_reason_to_fail(some, to, monkeypatch):
    in_parts(some, to, 100)
    commit = delta.Table.commit

    def meanwhile(self, *args, **given):
        monkeypatch.setattr(delta.Table, "commit", commit)
        deltalake.DeltaTable(to).delete('"offset" < 10')
        return commit(self, *args, **given)

    monkeypatch.setattr(delta.Table, "commit", meanwhile)
    assert archive.archive(some.path, to) == SOME - 100
    assert offsets(to) == list(range(10, SOME))


def test_a_full_disk_leaves_nothing_half_done(some, to, monkeypatch):
    in_parts(some, to, 100)
    there = sorted(os.walk(to))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            archive.archive(some.path, to)
    assert [each[2] for each in sorted(os.walk(to)) if each[2]] == [each[2] for each in there if each[2]]
    assert archive.archive(some.path, to) == SOME - 100


def test_a_commit_that_a_power_cut_left_in_pieces_is_set_aside(some, to, caplog):
    """Nobody was told of it: the queue has forgotten nothing of it."""
    in_parts(some, to, 100)
    version = deltalake.DeltaTable(to).version()
    before = shmq.Consumer.seek
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shmq.Consumer, "seek", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            archive.archive(some.path, to)
    assert shmq.Consumer.seek is before
    with open(f"{to}/_delta_log/{version + 1:020d}.json", "r+b") as file:
        file.truncate(40)
        os.utime(file.fileno(), (0, 0))  # a younger one is waited for
    assert archive.archive(some.path, to) == SOME - 100
    assert "was set aside" in caplog.text
    assert offsets(to) == list(range(SOME))


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_found_the_folder_of_an_archive_is_on_the_disk_itself(some, tmp_path, monkeypatch, form):
    """It was synced, and the folder above it, where its name is, was not: a power cut took all of it."""
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.readlink(f"/proc/self/fd/{fd}")))
    archive.archive(some.path, str(tmp_path / "a" / "b"), form=form)
    wanted = {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    for top, folders, _ in os.walk(tmp_path / "a" / "b"):
        wanted |= {f"{top}/{each}" for each in folders}
    assert wanted <= synced


def test_found_who_is_killed_while_the_table_is_made_is_no_hindrance(some, to):
    """There is a folder for its log, and no commit in it: it was Corrupt, for good."""
    os.makedirs(f"{to}/_delta_log")
    with open(f"{to}/_delta_log/{0:020d}.json#1", "wb"):
        pass
    assert archive.archive(some.path, to, form="delta") == SOME
    version = deltalake.DeltaTable(to).version()
    other = f"{to}.other"
    os.makedirs(f"{other}/_delta_log")
    with open(f"{other}/_delta_log/{0:020d}.json", "wb") as file:
        os.utime(file.fileno(), (0, 0))  # of a power cut
    fill(some, SOME, SOME + 10)
    assert archive.archive(some.path, other, form="delta") == 10
    assert version == 1


# ---------------------------------------------------------------- what is refused
def test_another_queue_of_that_name_is_told(some, to):
    archive.archive(some.path, to, form="delta")
    some.close()
    shmq.delete(some.path)
    with shmq.open(some.path) as other:
        other.put(b"x")
    with pytest.raises(shmq.Mismatch, match="another queue"):
        archive.archive(some.path, to)


def test_a_folder_with_other_files_and_the_other_form_are_refused(some, to, tmp_path):
    os.mkdir(to)
    with open(f"{to}/mine", "w", encoding="ascii"):
        pass
    with pytest.raises(shmq.BadFormat, match=r"no Delta table, and there is mine in it; nothing was changed"):
        archive.archive(some.path, to, form="delta")
    plain, other = str(tmp_path / "plain"), str(tmp_path / "other")
    archive.archive(some.path, plain)
    with pytest.raises(shmq.Mismatch, match="of the form 'parquet', and 'delta' was asked for"):
        archive.archive(some.path, plain, form="delta")
    archive.archive(some.path, other, form="delta", older_than=0)
    assert os.listdir(to) == ["mine"]


@pytest.mark.parametrize("url", ["", "file://"])
def test_found_a_table_that_has_nothing_yet_does_not_become_plain_parquet(make, to, url):
    """To put together what was not there made a manifest, and from then on the table was refused."""
    queue = make()
    words = ["archive", queue.path, url + to, "--form", "delta"]
    assert main([*words, "--after", "6h"]) == 0
    assert main(words) == 0
    queue.put(b"x")
    assert main(words) == 0
    assert offsets(to) == [0]
    assert archive.form_of(url + to) == "delta"


# ---------------------------------------------------------------- fewer files, and back
def test_found_small_files_become_large_without_the_square_of_it(some, to, monkeypatch):
    written = []
    writing = delta.action
    monkeypatch.setattr(
        lake.delta, "action", lambda *args, **given: (written.append(args[1]), writing(*args, **given))[1]
    )
    old = None
    for stop in range(10, SOME + 1, 10):
        in_parts(some, to, stop)
        old = old or deltalake.DeltaTable(to)
        archive.compact(to)
    merged = [each for each in written if "merged" in each]
    assert len(merged) == 4  # of each day once, when eight small ones were there
    assert len(deltalake.DeltaTable(to).file_uris()) <= 3 * 4
    assert offsets(to) == list(range(SOME))
    assert old.to_pyarrow_table().num_rows == 10  # who planned with an older version reads it
    assert archive.compact(to) == 0


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), deltalake.exceptions.DeltaError("full")])
def test_found_a_merge_that_is_not_committed_leaves_no_file_and_does_not_end_the_archive(
    some, to, monkeypatch, problem
):
    """The file stayed for ever, with each attempt another one."""
    in_parts(some, to, *range(10, 101, 10))
    before = sorted(each.path for each in delta.Table(to).parts())

    def full(*_, **__):
        raise problem

    words = ["archive", some.path, to, "--after", "1h"]
    with monkeypatch.context() as patch:
        patch.setattr(delta.Table, "commit", full)
        assert archive.archive(some.path, to, behind="work") == 0
        with pytest.raises(OSError, match=r"No space|deltalake says full"):
            archive.compact(to, file_bytes=6_000)
    assert "merged" not in "".join(name for _, _, names in os.walk(to) for name in names)
    assert sorted(each.path for each in delta.Table(to).parts()) == before
    monkeypatch.setattr(delta.Table, "sync_log", full)  # behind a commit, which counts
    with pytest.raises(OSError, match=r"No space|deltalake says full"):
        archive.compact(to, file_bytes=6_000)
    monkeypatch.undo()
    assert archive.verify(to) == []
    assert main(words) == 0
    assert offsets(to) == list(range(SOME))


def test_replay_brings_everything_back_once_also_behind_a_merge(some, to, tmp_path, capsys):
    again = str(tmp_path / "again")
    in_parts(some, to, 90, 130, 250)
    assert archive.replay(to, again) == 250
    in_parts(some, to, SOME)
    assert archive.compact(to, file_bytes=6_000) > 0
    assert main(["replay", to, again]) == 0
    assert "put 150 messages" in capsys.readouterr().out
    assert archive.replay(to, again) == 0
    with shmq.open(again) as queue:
        assert [m.payload for m in queue.reader()] == [m.payload for m in some.reader()]
        for number in (0, 1, 100, SOME - 1):
            old, new = some[number], queue[number]
            assert (new.key, new.type, new.time_ns) == (old.key, old.type, old.time_ns)
            assert new.headers == {**old.headers, "source": {"topic": "q", "partition": 0, "index": number}}
    assert archive.replay(to, f"{again}.day", since=DAY_NS, until=2 * DAY_NS) == 100


def test_replay_puts_in_order_what_lies_in_the_files_of_several_days(make, to, tmp_path, monkeypatch):
    """Times that go to and fro: each file of a day has offsets from everywhere."""
    queue = make(retention=shmq.Retention.forever())
    for start in range(0, 500, 100):
        queue.put_many(
            [b"%d" % n for n in range(start, start + 100)],
            times_ns=[n * 37 % 5 * DAY_NS for n in range(start, start + 100)],
        )
        archive.archive(queue.path, to, form="delta")
    archive.compact(to, file_bytes=30_000)
    monkeypatch.setattr(lake, "_WINDOW_BYTES", 4000)
    assert archive.replay(to, str(tmp_path / "again")) == 500
    with shmq.open(tmp_path / "again") as again:
        assert [m.payload for m in again.reader()] == [b"%d" % n for n in range(500)]


def test_a_damaged_table_is_told(some, to):
    in_parts(some, to, 100, SOME)
    first, second, *_ = deltalake.DeltaTable(to).file_uris()
    with open(first, "ab") as file:
        file.write(b"x")
    os.unlink(second)
    assert sorted(each.rpartition(" is ")[2][:7] for each in archive.verify(to)) == ["missing", "not wha"]
    assert json.dumps(archive.verify(to))


def test_by_deltalakes_own_way_to_files_as_in_an_object_store_it_is_the_same(some, to, tmp_path, monkeypatch):
    monkeypatch.setattr(delta, "is_remote", lambda path: path == to)
    in_parts(some, to, 90, 130, 250, 300)
    assert archive.compact(to, file_bytes=6_000) > 0
    in_parts(some, to, SOME)
    assert offsets(to) == list(range(SOME))
    assert archive.verify(to) == []
    assert archive.replay(to, str(tmp_path / "again")) == SOME
    with monkeypatch.context() as patch:
        patch.setattr(delta.Table, "once", lambda *_: (_ for _ in ()).throw(OSError("no network")))
        fill(some, SOME, SOME + 10)
        with pytest.raises(OSError, match="no network"):
            archive.archive(some.path, to)
    parts = {each.path for each in delta.Table(to).parts()}
    files = {os.path.relpath(f"{top}/{name}", to) for top, _, names in os.walk(to) for name in names}
    assert parts <= {each for each in files if each.endswith(".parquet")}
    assert f"{SOME:016d}-" not in " ".join(files)  # what was written for nothing is gone
    assert archive.archive(some.path, to) == 10


# ---------------------------------------------------------------- the command
def test_the_command_archives_into_a_delta_table_again_and_again(make, to, tmp_path):
    queue = make()
    queue.put_many([b'{"user":%d}' % n for n in range(100)])
    words = ["archive", queue.path, to, "--schema", "user BIGINT", "--value", "json", "--every", "50ms", "--json"]
    with subprocess.Popen([sys.executable, "-m", "shmq", *words], stdout=subprocess.PIPE, text=True) as command:
        assert json.loads(command.stdout.readline())["rows"] == 100
        queue.put(b'{"user":100}')
        rows = 0
        while not rows:
            rows = json.loads(command.stdout.readline())["rows"]
        command.send_signal(signal.SIGTERM)
        command.stdout.read()
        assert command.wait(support.DEADLINE) == 0
    found = deltalake.DeltaTable(to).to_pyarrow_table().sort_by("_offset")
    assert found["user"].to_pylist() == list(range(101))
    assert found["_value"].to_pylist()[100] == b'{"user":100}'


def test_found_an_empty_queue_makes_no_plain_archive_of_what_is_to_be_a_table(make, to):
    """Nothing was archived, and putting files together made a manifest; from then on it was plain Parquet."""
    queue = make()
    assert main(["archive", queue.path, to]) == 0
    fill(queue)
    assert main(["archive", queue.path, to]) == 0
    assert offsets(to) == list(range(SOME))


def test_the_command_says_what_is_wrong_in_one_line(some, to, capsys):
    assert main(["archive", some.path, to, "--schema", "n BIGNT", "--value", "json"]) == 1
    assert "there is no type BIGNT; there are BIGINT" in capsys.readouterr().err
    assert main(["archive", some.path, to, "--schema", "n BIGINT"]) == 1
    assert "has payloads of 'bytes': say which of them they are" in capsys.readouterr().err
    assert main(["archive", some.path, to]) == 0
    assert "400 messages into" in capsys.readouterr().out
    assert main(["archive", some.path, to, "--schema", "n BIGINT", "--value", "json"]) == 1
    assert "has other columns: it has no _corrupt" in capsys.readouterr().err
    assert offsets(to) == list(range(SOME))


VALUE = """
        value = "json"
        schema = "n BIGINT NOT NULL, more STRING"
"""


def pipeline_of(folder, queue, source, **archive):
    """A pipeline that only archives that queue."""
    said = "".join(f"{name} = {json.dumps(word)}\n" for name, word in archive.items())
    file = folder / "pipeline.toml"
    file.write_text(f"""
        [pipeline]
        name = "p"
        checkpoint = "checkpoint"
        [source.events]
        queue = "{queue.path}"
        {source}
        [archive]
        {said}
    """)
    return spec.read(str(file))


def run_of(planned, told):
    return pipeline.Run(planned, None, told.append, threading.Event())


def test_a_pipeline_archives_as_its_file_says(make, tmp_path):
    queue = make()
    queue.put_many([b'{"n":%d}' % n for n in range(100)])
    said = {"to": "lake", "format": "delta", "schema": "n BIGINT NOT NULL"}
    planned = pipeline_of(tmp_path, queue, VALUE, **said)
    told = []
    run = run_of(planned, told)
    pipeline.plan(planned)
    run._archive()
    run.close()
    assert told[0]["rows"] == 100
    assert deltalake.DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()["n"].to_pylist() == list(range(100))
    pipeline.plan(planned)
    with pytest.raises(spec.BadPipeline, match="of the form 'delta', and 'parquet' was asked for"):
        pipeline.plan(pipeline_of(tmp_path, queue, VALUE, **said | {"format": "parquet"}))


def test_found_a_pipeline_is_told_of_its_archive_and_goes_on_without_room_for_larger_files(make, tmp_path, monkeypatch):
    """It ended where files could not be put together; and took an archive in the folder of its queue."""
    queue = make(retention=shmq.Retention.forever())
    said = {"format": "delta", "compact_to": "1MB"}
    with pytest.raises(spec.BadPipeline, match="is in the queue's own folder"):
        pipeline.plan(pipeline_of(tmp_path, queue, "", to=f"{queue.path}/lake", **said))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lake.Lake, "compact", full)
    told = []
    run = run_of(pipeline_of(tmp_path, queue, "", to="lake", **said), told)
    for count in range(2):
        run._archive()
        queue.put(b"x")
        assert told[-1]["rows"] == count
    run.close()
    assert "not_merged" not in told[0]  # nothing was there
    assert "No space left on device; everything is archived" in told[1]["not_merged"]
