"""One Delta table of several hosts: each one's messages are in it once, whoever is killed and whoever else commits."""

from __future__ import annotations

import collections
import json
import os
import socket
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
from shmq.spark.options import BadOption  # noqa: E402

DAY_NS = 86_400 * 10**9
SOME = 300


def fill(queue, start=0, stop=SOME):
    """A hundred messages a day."""
    numbers = range(start, stop)
    queue.put_many([b'{"n":%d}' % n for n in numbers], times_ns=[n // 100 * DAY_NS + n for n in numbers])
    return queue


@pytest.fixture
def on(tmp_path):
    """The queue `orders` of a host, in a directory of its own."""
    opened = []

    def of(host, start=0, stop=SOME, **given):
        os.makedirs(tmp_path / host, exist_ok=True)
        opened.append(shmq.open(tmp_path / host / "orders", **given))
        return fill(opened[-1], start, stop)

    yield of
    for each in opened:
        each.close()


@pytest.fixture
def to(tmp_path):
    return str(tmp_path / "shared" / "lake")


def of_hosts(to):
    """The offsets of each host, in the order of the table sorted by them."""
    found = collections.defaultdict(list)
    table = deltalake.DeltaTable(to).to_pyarrow_table().sort_by([("host", "ascending"), ("offset", "ascending")])
    for host, offset in zip(table["host"].to_pylist(), table["offset"].to_pylist(), strict=True):
        found[host].append(offset)
    assert set(table["topic"].to_pylist()) == {"orders"}
    return dict(found)


def test_each_host_has_its_column_and_its_folders(on, to):
    for host, stop in (("a", SOME), ("b", 120)):
        assert archive.archive(on(host, 0, stop).path, to, host=host) == stop
    assert of_hosts(to) == {"a": list(range(SOME)), "b": list(range(120))}
    table = delta.Table(to)
    assert table.partition_by() == ["host", "date", "partition"]
    assert {each.path.split("/")[0] for each in table.parts()} == {"host=a", "host=b"}
    assert archive.verify(to) == []


def test_a_typed_archive_has_them_with_an_underscore(on, to):
    words = {"schema": "n BIGINT, host STRING", "value": "json"}
    assert archive.archive(on("a").path, to, host="a", **words) == SOME
    assert archive.archive(on("b").path, to, host="b", **words) == SOME
    table = deltalake.DeltaTable(to).to_pyarrow_table()
    assert collections.Counter(table["_host"].to_pylist()) == {"a": SOME, "b": SOME}
    assert set(table["host"].to_pylist()) == {None}  # a field of the payloads
    with pytest.raises(shmq.Mismatch, match="other columns"):
        archive.archive(on("c").path, to, host="c")
    with pytest.raises(BadOption, match="_host is the column of hosts"):
        archive.archive(on("d").path, f"{to}.other", host="d", schema="_host STRING", value="json")
    assert not os.path.exists(f"{to}.other")


def test_a_queue_may_forget_what_its_own_host_has_archived_and_not_a_message_more(on, to):
    small = {"chunk_bytes": 1 << 16}
    a, b = on("a", 0, 100, **small), on("b", 0, 5000, **small)
    archive.archive(a.path, to, host="a")
    archive.archive(b.path, to, host="b")
    fill(a, 100, 5000)
    archive.hold(a.path)
    assert (a.consumers()[archive.CONSUMER].head, b.consumers()[archive.CONSUMER].head) == (100, 5000)
    assert a.first_index <= 100  # though 5,000 of that name are in the table
    archive.archive(b.path, to, host="b")
    assert archive.archive(a.path, to, host="a") == 4900
    assert of_hosts(to) == {"a": list(range(5000)), "b": list(range(5000))}


# ---------------------------------------------------------------- names
def test_a_table_for_several_hosts_takes_this_ones_name_by_default(on, to, monkeypatch):
    archive.archive(on("a").path, to, host="a")
    monkeypatch.setattr(socket, "gethostname", lambda: "b.example")
    b = on("b")
    assert archive.archive(b.path, to) == SOME
    assert list(of_hosts(to)) == ["a", "b.example"]
    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    fill(b, SOME, SOME + 10)
    with pytest.raises(shmq.Mismatch, match=r"as a queue of the host 'b\.example', and not of 'other'.*--host b\.ex"):
        archive.archive(b.path, to)
    assert archive.archive(b.path, to, host="b.example") == 10


def test_a_table_that_was_made_without_stays_as_it_is_and_says_so(on, to):
    a, b = on("a"), on("b")
    archive.archive(a.path, to, form="delta")
    before = delta.Table(to).schema()
    for host, queue in (("a", a), ("b", b)):
        with pytest.raises(shmq.Mismatch, match=f"was made without hosts, and the host {host!r} was named; nothing"):
            archive.archive(queue.path, to, host=host)
    with pytest.raises(shmq.Mismatch, match="without hosts"):
        archive.compact(to, host="a")
    with pytest.raises(shmq.Mismatch, match=r"another queue that was called orders/0 before.*--host"):
        archive.archive(b.path, to)
    fill(a, SOME, SOME + 10)
    assert archive.archive(a.path, to) == 10
    assert delta.Table(to).schema() == before
    assert delta.Table(to).partition_by() == ["date", "partition"]
    assert deltalake.DeltaTable(to).to_pyarrow_table().num_rows == SOME + 10
    assert archive.replay(to, f"{to}.again") == SOME + 10
    with pytest.raises(shmq.Mismatch, match="without hosts"):
        archive.replay(to, f"{to}.other", host="a")


def test_two_hosts_of_one_name_and_a_copy_of_a_queue_are_told(on, to, tmp_path):
    a = on("a")
    archive.archive(a.path, to, host="a")
    with pytest.raises(shmq.Mismatch, match=r"another queue that was called orders/0 on the host 'a' before"):
        archive.archive(on("b").path, to, host="a")
    os.mkdir(tmp_path / "c")
    a.copy(tmp_path / "c" / "orders")
    with pytest.raises(shmq.Mismatch, match=r"a queue of the host 'a', and not of 'c'.*new_id=True"):
        archive.archive(str(tmp_path / "c" / "orders"), to, host="c")
    assert list(of_hosts(to)) == ["a"]


@pytest.mark.parametrize("host", ["", "a/b", "..", "a b", "a=b", "ä"])
def test_what_is_no_name_of_a_host_is_refused(on, to, host):
    with pytest.raises(BadOption, match="letters, digits"):
        archive.archive(on("a").path, to, host=host)
    assert not os.path.exists(to)


def test_plain_parquet_is_of_one_host(on, to):
    with pytest.raises(BadOption, match="plain Parquet, or is to be"):
        archive.archive(on("a").path, to, form="parquet", host="a")
    archive.archive(on("a", 0, 0).path, to)
    with pytest.raises(BadOption, match="plain Parquet, or is to be"):
        archive.archive(on("a").path, to, host="a")


# ---------------------------------------------------------------- at the same time
def just_before(monkeypatch, what, done):
    """Have *done* in the very moment before a commit, when everything was read already; once."""
    real = getattr(delta.Table, what)

    def meanwhile(self, *args, **given):
        monkeypatch.setattr(delta.Table, what, real)
        done()
        return real(self, *args, **given)

    monkeypatch.setattr(delta.Table, what, meanwhile)


def test_a_commit_that_another_host_has_passed_is_tried_again(on, to, monkeypatch):
    a, b = on("a"), on("b")
    archive.archive(a.path, to, host="a")
    fill(a, SOME, 2 * SOME)
    just_before(monkeypatch, "commit", lambda: archive.archive(b.path, to, host="b"))
    assert archive.archive(a.path, to, host="a") == SOME
    assert of_hosts(to) == {"a": list(range(2 * SOME)), "b": list(range(SOME))}
    fill(a, 2 * SOME, 2 * SOME + 10)
    monkeypatch.setattr(delta.time, "sleep", lambda _: None)

    def always(*_, **__):
        raise delta.Raced("somebody else")

    monkeypatch.setattr(delta.Table, "commit", always)
    with pytest.raises(delta.Raced, match="30 times"):
        archive.archive(a.path, to, host="a")
    monkeypatch.undo()
    assert a.consumers()[archive.CONSUMER].head == 2 * SOME
    assert archive.archive(a.path, to, host="a") == 10


@pytest.mark.parametrize("host", [None, "same"])
def test_found_two_queues_of_one_name_that_begin_in_the_same_moment_do_not_come_together(on, to, monkeypatch, host):
    """Who was told that somebody else had committed looked at the marks of its own queue alone, and not of its name."""
    a, b = on("a"), on("b", 0, 50)
    given = {"form": "delta", "host": host}
    just_before(monkeypatch, "commit", lambda: archive.archive(b.path, to, **given))
    with pytest.raises(shmq.Mismatch, match="another queue"):
        archive.archive(a.path, to, **given)
    assert deltalake.DeltaTable(to).to_pyarrow_table().num_rows == 50
    assert a.consumers()[archive.CONSUMER].head == 0
    assert {each.path for each in delta.Table(to).parts()} == files(to)


@pytest.mark.parametrize(("mine", "others"), [("a", None), (None, "b")])
def test_a_table_that_another_one_makes_in_this_moment_is_not_written_to_as_what_it_is_not(
    on, to, monkeypatch, mine, others
):
    a, b = on("a"), on("b")
    create = delta.Table.create

    def made(*args):  # behind a look at what is there, which is nothing
        monkeypatch.undo()
        archive.archive(b.path, to, form="delta", host=others)
        return create(*args)

    monkeypatch.setattr(delta.Table, "create", made)
    with pytest.raises(shmq.Mismatch, match=r"made by another process in this moment|was made without hosts"):
        archive.archive(a.path, to, form="delta", host=mine)
    assert deltalake.DeltaTable(to).to_pyarrow_table().num_rows == SOME
    assert a.consumers()[archive.CONSUMER].head == 0


def files(to):
    """What lies in its folders."""
    found = {os.path.relpath(f"{top}/{name}", to) for top, _, names in os.walk(to) for name in names}
    return {each for each in found if each.endswith(".parquet") and not each.startswith(delta.LOG)}


def in_parts(queue, to, host, *stops):
    for stop in stops:
        with queue.consumer("work", ack="explicit") as consumer:
            consumer.seek(stop)
        archive.archive(queue.path, to, host=host, behind="work")


def test_each_puts_its_own_files_together_also_while_others_commit(on, to, monkeypatch):
    a, b = on("a"), on("b")
    in_parts(a, to, "a", *range(10, 101, 10))
    in_parts(b, to, "b", *range(10, 91, 10))
    of_b = {each.path for each in delta.Table(to).parts() if "host=b" in each.path}
    just_before(monkeypatch, "commit", lambda: in_parts(b, to, "b", 100))
    assert archive.compact(to, host="a") > 0
    parts = {each.path for each in delta.Table(to).parts()}
    assert of_b < parts
    assert len([each for each in parts if "host=a" in each]) < 4
    assert {each.split("/")[0] for each in parts if "merged" in each} == {"host=a"}
    assert of_hosts(to) == {"a": list(range(100)), "b": list(range(100))}

    def rewrites():
        deltalake.DeltaTable(to).delete("host = 'b' AND \"offset\" < 5")

    just_before(monkeypatch, "commit", rewrites)
    assert archive.compact(to, host="b") == 0  # its files are others now
    assert of_hosts(to)["b"] == list(range(5, 100))
    assert archive.compact(to, host="b") > 0
    assert of_hosts(to) == {"a": list(range(100)), "b": list(range(5, 100))}


def test_what_a_killed_one_left_is_swept_by_its_own_host_alone(on, to):
    a = on("a", 0, 100)
    archive.archive(a.path, to, host="a")
    left = [f"{to}/host={host}/.{a.id}-x.parquet.unfinished" for host in ("a", "b")]
    for each in left:
        os.makedirs(os.path.dirname(each), exist_ok=True)
        with open(each, "wb"):
            pass
    lake._swept.clear()
    archive.archive(a.path, to, host="a")
    assert [os.path.exists(each) for each in left] == [False, True]


# ---------------------------------------------------------------- the log of a disk that several hosts see
def torn(to):
    """The last commit, as another host sees it that has not all of it yet; and what it is."""
    last = f"{to}/{delta.LOG}/{delta.Table(to).version:020d}.json"
    with open(last, "rb") as file:
        whole = file.read()
    with open(last, "r+b") as file:
        file.truncate(40)
    return last, whole


def test_a_commit_whose_bytes_are_on_their_way_is_waited_for_and_not_set_aside(on, to, monkeypatch):
    archive.archive(on("a").path, to, host="a")
    last, whole = torn(to)
    looked = threading.Event()

    def comes(_):
        if not looked.is_set():  # other threads of this process sleep, too, and emptied it again
            looked.set()
            with open(last, "wb") as file:
                file.write(whole)

    monkeypatch.setattr(delta.time, "sleep", comes)
    assert archive.archive(on("b").path, to, host="b") == SOME
    assert looked.is_set()
    assert list(of_hosts(to)) == ["a", "b"]


def test_a_commit_that_another_host_has_set_aside_lets_the_queue_forget_nothing(on, to, monkeypatch):
    a = on("a", 0, 100)
    archive.archive(a.path, to, host="a")
    fill(a, 100, 200)
    sync = delta.Table.sync_log

    def aside(self, *args):
        last, _ = torn(to)
        os.utime(last, (0, 0))
        delta.mend(to)
        return sync(self, *args)

    monkeypatch.setattr(delta.Table, "sync_log", aside)
    with pytest.raises(FileNotFoundError):
        archive.archive(a.path, to, host="a")
    monkeypatch.undo()
    assert a.consumers()[archive.CONSUMER].head == 100
    assert archive.archive(a.path, to, host="a") == 100
    assert of_hosts(to) == {"a": list(range(200))}


def test_found_a_commit_is_on_the_disk_also_where_another_one_came_behind_it(on, to, monkeypatch):
    """The last one was synced, which was somebody else's."""
    a, b = on("a"), on("b")
    archive.archive(a.path, to, host="a")
    fill(a, SOME, SOME + 10)
    mine = delta.Table(to).version + 1
    fsync, synced = os.fsync, []

    def behind_it():
        archive.archive(b.path, to, host="b")
        synced.clear()

    just_before(monkeypatch, "commit", lambda: just_before(monkeypatch, "again", behind_it))
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    archive.archive(a.path, to, host="a")
    assert delta.Table(to).version > mine
    assert f"{to}/{delta.LOG}/{mine:020d}.json" in synced


# ---------------------------------------------------------------- back
def test_replay_takes_one_host_or_all_one_after_the_other(on, to, tmp_path, capsys):
    a, b = on("a"), on("b", 0, 150)
    in_parts(a, to, "a", 90, 130, SOME)
    in_parts(b, to, "b", 60, 150)
    one, all_of_it = str(tmp_path / "one"), str(tmp_path / "all")
    assert main(["replay", to, one, "--host", "b"]) == 0
    assert "put 150 messages" in capsys.readouterr().out
    assert archive.replay(to, one, host="b") == 0
    assert archive.replay(to, one) == SOME  # what is there of b is not put twice
    assert archive.replay(to, all_of_it) == SOME + 150
    fill(b, 150, 170)
    in_parts(b, to, "b", 170)
    archive.compact(to, host="b", file_bytes=6_000)
    assert archive.replay(to, all_of_it) == 20
    with shmq.open(all_of_it) as queue:
        sources = [message.headers["source"] for message in queue.reader()]
    assert [(each["host"], each["index"]) for each in sources] == [
        *(("a", n) for n in range(SOME)),
        *(("b", n) for n in range(170)),
    ]
    assert main(["replay", to, one, "--host", "c"]) == 1
    assert "has nothing of the host 'c'; it has a, b" in capsys.readouterr().err


def test_a_pipeline_names_its_host(on, to, tmp_path):
    a = on("a")
    file = tmp_path / "pipeline.toml"
    words = f"""
        [pipeline]
        name = "p"
        checkpoint = "checkpoint"
        [source.events]
        queue = "{a.path}"
        [archive]
        to = "{to}"
    """
    file.write_text(words + 'host = "a"')
    told = []
    run = pipeline.Run(spec.read(str(file)), None, told.append, threading.Event())
    run._archive()
    run.close()
    assert told[0]["rows"] == SOME
    assert of_hosts(to) == {"a": list(range(SOME))}
    archive.archive(fill(a, SOME, SOME + 1).path, f"{to}.old", form="delta")
    file.write_text(words.replace(to, f"{to}.old") + 'host = "a"')
    with pytest.raises(spec.BadPipeline, match="was made without hosts"):
        pipeline.plan(spec.read(str(file)))
    file.write_text(words + 'host = "a b"')
    with pytest.raises(spec.BadPipeline, match="letters, digits"):
        spec.read(str(file))


# ---------------------------------------------------------------- real processes
AGENTS = """
import json, os, random, sys, time
sys.path.insert(0, os.getcwd())
import deltalake, pyarrow.dataset, pyarrow.parquet
import shmq
from shmq.spark import archive, delta
from support import Child

top, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = f"{top}/shared/lake"
chance = random.Random(seed)

def agent(say, host):
    real = delta.Table.commit
    raced = 0
    def commit(self, *args, **given):
        nonlocal raced
        try:
            return real(self, *args, **given)
        except delta.Raced:
            raced += 1
            raise
    delta.Table.commit = commit
    say("begun")
    while True:
        archive.archive(f"{top}/{host}/orders", table, host=host)
        archive.compact(table, file_bytes=60_000, host=host)
        say(raced)

def putting(say, host):
    number = 0
    with shmq.open(f"{top}/{host}/orders", chunk_bytes=1 << 16) as queue:
        while True:
            queue.put_many([b"%s %d%400s" % (host.encode(), n, b"") for n in range(number, number + 20)])
            number += 20
            say(number)
            time.sleep(0.01)

hosts = ["a", "b"]
for host in hosts:
    os.makedirs(f"{top}/{host}")
writers = [Child(putting, host) for host in hosts]
for each in writers:
    each.__enter__()
    each.hear()
agents = {}
raced = {host: 0 for host in hosts}
for host in hosts:
    agents[host] = Child(agent, host)
    agents[host].__enter__()
for kill in range(kills):
    host = hosts[kill % 2] if kill < 2 else chance.choice(hosts)
    for _ in range(chance.randrange(1, 4)):
        heard = agents[host].hear()
        raced[host] += int(heard) if heard != "begun" else 0
    time.sleep(chance.random() * 0.2)
    agents[host].kill()
    agents[host] = Child(agent, host)
    agents[host].__enter__()
def until(number):
    for each in writers:
        while int(each.hear()) < number:
            pass
    return number
until(2000)  # some chunks
for host in hosts:
    for _ in range(3):
        heard = agents[host].hear()
    raced[host] += int(heard)
until(2800)  # and one more, so that those go that are archived
for each in [*writers, *agents.values()]:
    each.kill()
print(json.dumps([kills, raced]))
"""


def killed(top, kills, seed):
    """Agents of two hosts on one table, killed so many times while queues are filled: how often one tried again."""
    found = subprocess.run(
        [sys.executable, "-c", AGENTS, str(top), str(kills), str(seed)],
        check=False,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(support.__file__),
        timeout=support.DEADLINE * (6 + kills),
    )
    assert found.returncode == 0, found.stderr[-3000:]
    done, raced = json.loads(found.stdout)
    assert done == kills
    return sum(raced.values())


def check_each_once(top, to):
    """Every row once, per host in order, with the payloads of that host."""
    for host in ("a", "b"):
        archive.archive(str(top / host / "orders"), to, host=host)
    found = deltalake.DeltaTable(to).to_pyarrow_table()
    for host in ("a", "b"):
        mine = found.filter(pa.compute.equal(found["host"], host)).sort_by("offset")
        with shmq.open(top / host / "orders", create=False) as queue:
            left = {message.index for message in queue.reader()}
            padding = set(range(queue.first_index, queue.next_index)) - left
            assert sorted([*mine["offset"].to_pylist(), *padding]) == list(range(queue.next_index)), host
            assert queue.first_index > 0, "nothing was ever let go"
        assert mine["value"].to_pylist() == [b"%s %d%400s" % (host.encode(), n, b"") for n in range(mine.num_rows)]
        assert len(padding) <= 20
    assert archive.verify(to) == []


def test_agents_of_two_hosts_are_killed_at_any_moment(tmp_path, to):
    killed(tmp_path, 5, 1)
    check_each_once(tmp_path, to)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_agents_of_two_hosts_are_killed_twenty_times(tmp_path, to, seed):
    assert killed(tmp_path, 20, seed) > 0, "no two of them ever committed at the same time"
    check_each_once(tmp_path, to)


def test_the_command_of_two_hosts_at_once(on, to, capsys):
    """Both begin where there is no table yet."""
    queues = {host: on(host) for host in ("a", "b")}
    words = [sys.executable, "-m", "shmq", "archive"]
    running = [
        subprocess.Popen([*words, queue.path, to, "--host", host, "--json"], stdout=subprocess.PIPE, text=True)
        for host, queue in queues.items()
    ]
    for each in running:
        out, _ = each.communicate(timeout=support.DEADLINE * 3)
        assert (each.returncode, json.loads(out)["rows"]) == (0, SOME)
    assert of_hosts(to) == {"a": list(range(SOME)), "b": list(range(SOME))}
    assert main(["archive", queues["a"].path, f"{to}.other", "--host", "a b"]) == 1
    assert "a host's name has letters" in capsys.readouterr().err
