"""`shmq top` reads what is so: rates, lags, ages, who puts and who takes; real processes, which run, stop and die."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import time
import types
from pathlib import Path

import pytest
from support import Child, flip, hold_until_killed, make_unclean, until

import shmq
from shmq import cli
from shmq.top import facts, places, words


def putting(say, path):
    """Puts without an end."""
    with shmq.open(path) as queue:
        queue.put(b"x")
        say("ready")
        while True:
            queue.put(b"x")
            time.sleep(0.001)


def a_member(say, path):
    consumer = shmq.open(path).consumer("work", group=True, ack="explicit")
    message = consumer.get(timeout=5)
    say(message.index)
    hold_until_killed(say)


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def contents(path):
    return {
        file: (hashlib.sha256(file.read_bytes()).digest(), file.stat().st_mtime_ns, stat.S_IMODE(file.stat().st_mode))
        for file in sorted(Path(path).rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "queue")


@pytest.fixture
def looks(tmp_path):
    with shmq.top.Looks([str(tmp_path)]) as made:
        yield made


def only(looks):
    (one,) = looks.look().queues
    return one


def test_rates_are_differences_of_two_looks(path, looks, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with shmq.open(path) as queue, queue.consumer("billing") as billing, queue.consumer("work", group=True) as work:
        queue.put_many([b"x"] * 100)
        first = only(looks)
        assert (first.put_rate, first.take_rate, [each.rate for each in first.consumers]) == (None, None, [None, None])
        queue.put_many([b"x"] * 50)
        billing.take_many(20)
        work.take_many(30)
        now[0] += 10
        one = only(looks)
        assert (one.put_rate, one.take_rate) == (5.0, 5.0)
        assert {each.name: (each.kind, each.rate, each.lag) for each in one.consumers} == {
            "billing": ("consumer", 2.0, 130),
            "work": ("group", 3.0, 120),
        }
        assert (one.lag, one.first_index, one.next_index) == (130, 0, 150)
        billing.seek("earliest")
        now[0] += 10
        assert {each.name: each.rate for each in only(looks).consumers} == {"billing": 0.0, "work": 0.0}


def test_ages_are_of_the_first_message_that_is_not_finished(path, looks):
    with shmq.open(path) as queue, queue.consumer("billing") as billing:
        for age in (100, 50):
            queue.put(b"x", time_ns=time.time_ns() - age * 10**9)
        assert only(looks).oldest == pytest.approx(100, abs=30)
        billing.take()
        assert only(looks).oldest == pytest.approx(50, abs=30)
        billing.take()
        assert (only(looks).oldest, only(looks).lag) == (None, 0)


def test_of_several_names_the_one_that_is_most_behind_counts(path, looks):
    """And of the ages the greatest, whoever's it is."""
    with shmq.open(path) as queue, queue.consumer("fast") as fast, queue.consumer("slow"):
        for age in (100, 50, 0):
            queue.put(b"x", time_ns=time.time_ns() - age * 10**9)
        fast.take_many(2)
        assert only(looks).lag == 3
        assert only(looks).oldest == pytest.approx(100, abs=30)


def test_what_is_parked_came_back_or_went_to_the_dead_is_told_of_a_group(path, looks):
    with shmq.open(path) as queue, queue.consumer("work", group=True, ack="explicit", max_attempts=5) as work:
        queue.put_many([b"x"] * 4)
        work.get().nack(delay=1000)
        work.get().reject("no such customer")
        work.get()
        work.close()
        (one,) = [each for each in looks.look().queues if each.path == path]  # the dead have a queue of their own
        (name,) = one.consumers
        assert (name.parked, name.dead, name.returned, name.problem) == (1, 1, 1, None)


def test_of_a_damaged_ring_it_is_said_what_is_wrong(path, looks):
    with shmq.open(path) as queue:
        queue.consumer("work", group=True).close()
    flip(Path(path, "consumers", "work.ring"), 0)
    (name,) = only(looks).consumers
    assert "work.ring" in name.problem


def test_who_alone_holds_much_back_is_named(path, looks):
    with shmq.open(path, max_messages=10) as queue, queue.consumer("slow"), queue.consumer("fast") as fast:
        for number in range(6):
            queue.put(b"x")
            fast.take()
            assert only(looks).held_by == ("slow" if number >= 4 else None)  # half of the bound


def test_a_role_is_the_state():
    """Whether it follows another queue, or is fenced, matters more than that it is shut down."""
    told = types.SimpleNamespace(role="follower", shut_down=True, finished=True)
    assert facts._state(told) == "follower"
    told.role = None
    assert facts._state(told) == "shut down"


def test_who_puts_is_told_by_whose_the_last_messages_are(path, looks):
    with shmq.open(path) as queue, Child(putting, path) as child:
        child.hear()
        only(looks)
        end = queue.next_index
        until(lambda: queue.next_index >= end + 20)
        by_pid = {each.pid: each for each in only(looks).processes}
        assert by_pid[child.pid].share == 1.0
        assert by_pid[child.pid].put_rate > 0
        assert by_pid[os.getpid()].put_rate == 0.0
        child.kill()
        only(looks)
        queue.put_many([b"x"] * 3)
        (mine,) = only(looks).processes  # the dead are not seen
        assert (mine.pid, mine.share, mine.state) == (os.getpid(), 1.0, "runs")
        assert not only(looks).processes[0].put_rate  # nothing was put since


def test_shares_of_two_are_found_also_where_the_last_chunk_has_just_begun(path, looks):
    with shmq.open(path, chunk_bytes=65536) as queue, Child(putting, path) as child:
        child.hear()
        child.signal(signal.SIGSTOP)
        until(lambda: state_of(child.pid) == "T")
        only(looks)
        for _ in range(3):
            queue.put(bytes(30000))
        shares = {each.pid: each.share for each in only(looks).processes}
        assert shares == {child.pid: 0.0, os.getpid(): 1.0}


def test_a_consumer_that_is_stopped_lags_and_one_that_is_killed_is_gone(path, looks):
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 5)
        with Child(a_member, path) as child:
            assert child.hear() == "0"
            child.signal(signal.SIGSTOP)
            until(lambda: state_of(child.pid) == "T")
            one = only(looks)
            (work,) = one.consumers
            assert (work.open, work.pids, work.pending, work.lag) == (True, [child.pid], 1, 5)
            assert {each.pid: (each.state, each.consumers) for each in one.processes} == {
                child.pid: ("stopped", ["work"]),
                os.getpid(): ("runs", []),
            }
            child.kill()
            one = only(looks)
            assert (one.consumers[0].open, one.consumers[0].pids) == (False, [])
            assert [each.pid for each in one.processes] == [os.getpid()]
        with queue.consumer("work", group=True), queue.consumer("alone"):
            assert [each.pids for each in only(looks).consumers] == [[os.getpid()], [os.getpid()]]


def test_looking_changes_not_a_byte(path, looks):
    """Nor a time. The message that a dead member had comes back to whoever gets, not to whoever looks."""
    with shmq.open(path, max_messages=100) as queue:
        queue.put_many([b"x"] * 5)
        with Child(a_member, path) as child:
            child.hear()
            child.kill()
        before = contents(path)
        for _ in range(3):
            assert only(looks).consumers[0].pending == 1
        assert contents(path) == before


def test_a_queue_that_goes_or_is_another_one_or_is_damaged(path, looks, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 100)
    assert only(looks).next_index == 100
    shmq.delete(path)
    now[0] += 1
    assert looks.look().queues == []
    with shmq.open(path) as queue:
        queue.put(b"x")
    now[0] += 100  # it searches again
    one = only(looks)
    assert (one.next_index, one.put_rate, one.problem) == (1, None, None)
    shutil.rmtree(path)
    with shmq.open(path) as queue:  # another one, at once
        queue.put_many([b"x"] * 7)
    now[0] += 1
    assert (only(looks).next_index, only(looks).put_rate) == (7, None)
    for at in (8, 4096 + 8, 2 * 4096 + 8):
        flip(Path(path, "queue.shmq"), at)
    shutil.copytree(path, f"{path}2")
    looks.close()
    looks._search_at = 0.0
    assert all(each.problem is not None and "cannot" in each.problem for each in looks.look().queues)


def test_of_another_boot_it_is_a_view_that_is_not_kept(path, looks):
    """What a recovery will leave is computed; once somebody recovers, nothing of it is true."""
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 3)
    make_unclean(path)
    assert only(looks).problem is None
    assert looks._kept == {}
    with shmq.open(path) as queue:
        queue.put(b"x")
        end = queue.next_index
    assert only(looks).next_index == end
    assert list(looks._kept) == [path]


def test_queues_stay_open_between_looks_up_to_a_number_and_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("shmq.top.looks._KEPT_MAX", 3)
    for number in range(5):
        shmq.open(tmp_path / str(number)).close()
    before = len(os.listdir("/proc/self/fd"))
    with shmq.top.Looks([str(tmp_path)]) as looks:
        for _ in range(3):
            assert len(looks.look().queues) == 5
        assert len(looks._kept) == 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_takes_long_is_done_rarely(looks):
    assert looks.pause() == 1.0
    looks._last = shmq.top.Look(0.0, 2.0, [])
    assert looks.pause() == 8.0


def test_several_who_ask_at_one_time_are_told_of_one_look(path, looks, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", lambda: 5.0)
    shmq.open(path).close()
    first = looks.recent()
    assert looks.recent() is first
    now[0] += 0.9
    assert looks.recent() is first
    now[0] += 0.2
    assert looks.recent() is not first


def test_a_volatile_queue_ends_with_its_last_user_also_while_somebody_looks(shm_root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with shmq.top.Looks() as looks:
        with shmq.open("shm:orders") as queue, shmq.open(tmp_path / "here"):
            queue.put(b"x")
            assert [(each.path, each.next_index) for each in looks.look().queues] == [("here", 0), ("shm:orders", 1)]
        assert shmq.volatile_queues() == []
        assert [each.path for each in looks.look().queues] == ["here"]
    with shmq.open("shm:orders"), shmq.top.Looks(["shm:orders"]) as looks:
        assert [each.path for each in looks.look().queues] == ["shm:orders"]


def test_queues_are_found_below_directories_without_following_links(tmp_path, monkeypatch):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    with shmq.open(tmp_path / "a" / "deep" / "q"), shmq.open(tmp_path / "b"):
        (tmp_path / "loop").symlink_to(tmp_path)
        assert places.below([str(tmp_path)]) == [str(tmp_path / "a" / "deep" / "q"), str(tmp_path / "b")]
        assert places.below([f"{tmp_path}/b/", str(tmp_path / "b")]) == [str(tmp_path / "b")]
    with shmq.shards.open(tmp_path / "events", 2) as root, root.consumer("work"):
        assert len(places.below([str(tmp_path / "events")])) == 2
    with pytest.raises(shmq.NotFound, match=r"cannot look for queues below .*none: it is not a directory"):
        shmq.top.Looks([str(tmp_path / "none")])


def test_bounds_state_and_disk(path, looks):
    with shmq.open(path, max_messages=5, max_bytes=1 << 20, full="raise") as queue:
        queue.put(b"x")
        one = only(looks)
        assert (one.max_messages, one.max_bytes, one.state) == (5, 1 << 20, "")
        assert 0 < one.disk_free <= one.disk_size
        assert one.disk_bytes == queue.stats().disk_bytes
        queue.finish()
        assert only(looks).state == "finished"
        queue.shutdown()
        assert only(looks).state == "shut down"


def test_latencies_are_those_that_the_queue_has_counted(path, looks):
    with shmq.open(path) as queue, queue.consumer("billing", group=True) as billing:
        queue.put_many([b"x"] * 200, times_ns=[time.time_ns() - 3 * 10**9] * 200)
        billing.take_many(200)
        latency = only(looks).latency
        assert sum(number for _, number in latency) == sum(queue.stats().counts.latency) > 0
        assert {bound for bound, number in latency if number} <= {1024e-9 * 2**at for at in range(21, 32)}  # 2.1 s on
        assert latency[0][0] == 1024e-9


def test_quantiles_are_bounds_of_buckets():
    assert words.quantiles([(1e-6, 3), (2e-6, 1)]) == "50% 1 µs 99% 2 µs"
    assert words.quantiles(None) == words.quantiles([]) == words.quantiles([(1.0, 0)]) == "-"


# ---------------------------------------------------------------- what breaks on purpose got by
def test_each_figure_of_a_name_is_where_it_belongs():
    """Each field has a number of its own."""
    group = types.SimpleNamespace(parked=1, returned=2, moved=3, waiting=4, redelivered=5, retired=6)
    its = types.SimpleNamespace(
        shared=True, group=group, lag=10, oldest=20.0, pending=30, head=40, behind=50, problem="no"
    )
    people = {owner: types.SimpleNamespace(pid=pid) for owner, pid in ((7, 900), (8, 70), (9, 8))}
    found = facts._of_consumer("work", its, (True, [7, 8]), people)
    assert found == facts.ConsumerFacts(
        "work", "group", lag=10, oldest=20.0, pending=30, done=80, parked=1, returned=2, dead=3, open=True,
        pids=[70, 900], problem="no",
    )  # fmt: skip


def test_what_is_free_is_what_users_get_of_the_disk(path, looks, monkeypatch):
    """The file system keeps some for root."""
    said = types.SimpleNamespace(f_bavail=1, f_bfree=2, f_blocks=4, f_frsize=8192, f_bsize=1)
    monkeypatch.setattr(facts, "os", types.SimpleNamespace(statvfs=lambda _: said))
    with shmq.open(path):
        assert (only(looks).disk_free, only(looks).disk_size) == (8192, 32768)


def test_whose_the_last_puts_are_is_asked_of_the_last_few_and_no_further_back_than_the_look_before(path, monkeypatch):
    asked = []
    told = {}
    with shmq.open(path, chunk_bytes=16384) as queue:
        for _ in range(10):
            queue.put_many([bytes(1000)] * 8)
        session = queue._session
        bases = [base for _, base in session.chain().listed()]
        assert len(bases) > 4

        def putters(chunk, first, count):
            asked.append((chunk.base, first, count))
            return told.get(chunk.base, {})

        monkeypatch.setattr(facts.holdings, "putters", putters)
        monkeypatch.setattr(facts, "_SAMPLE", 20)
        assert facts._shares(session, bases[-3] + 1, 80) == {}
        assert asked == [(base, max(60, bases[-3] + 1), 20) for base in bases[-1:-4:-1]]
        told[bases[-2]] = {5: 3, 6: 1}
        asked.clear()
        assert facts._shares(session, 79, 80) == {}
        assert asked == [(bases[-1], 79, 20)]
        assert facts._shares(session, 0, 80) == {5: 0.75, 6: 0.25}


def test_a_queue_that_goes_or_cannot_be_read_is_not_kept_open_and_begins_anew(tmp_path, looks, monkeypatch):
    """Else its files would keep their room on the disk, and rates would be of what was before."""

    def opened():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(str(tmp_path) in os.readlink(link) for link in links if os.path.islink(link))

    def look():
        looks._search_at = 0.0
        return {Path(each.path).name: each for each in looks.look().queues}

    for name in "ab":
        shmq.open(tmp_path / name).close()
    look()
    both = opened()
    assert [each.put_rate for each in look().values()] == [0.0, 0.0]
    shutil.rmtree(tmp_path / "a")
    assert list(look()) == ["b"]
    assert opened() == both // 2 > 0
    mark = tmp_path / "b" / "queue.shmq"
    kept, session = mark.read_bytes(), looks._kept[str(tmp_path / "b")].session

    def fail(*_):
        raise shmq.Corrupt("no")

    with monkeypatch.context() as patched:
        patched.setattr(facts, "of_queue", fail)
        assert look()["b"].problem == "no"
    assert (opened(), session.closed) == (0, True)
    assert [look()["b"].put_rate for _ in range(2)] == [None, 0.0]
    mark.write_bytes(b"not ours")
    assert look()["b"].problem is not None
    assert opened() == 0
    mark.write_bytes(kept)
    assert [look()["b"].put_rate for _ in range(2)] == [None, 0.0]


def test_a_queue_that_was_made_anew_has_no_rates_of_the_one_before(path, looks):
    shmq.open(path).close()
    for put_rate in (None, 0.0):
        assert only(looks).put_rate == put_rate
    shmq.delete(path)
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 7)
        assert (only(looks).next_index, looks._last.queues[0].put_rate) == (7, None)
        assert only(looks).put_rate == 0.0


def test_what_is_not_below_any_more_is_forgotten_though_it_is_there(tmp_path, looks):
    """Its directory was moved away with it."""
    (tmp_path / "in").mkdir()
    shmq.open(tmp_path / "in" / "q").close()
    with shmq.top.Looks([str(tmp_path / "in")]) as inside:
        assert len(inside.look().queues) == 1
        inside._tops = (str(tmp_path / "nothing"),)
        inside._search_at = 0.0
        inside.look()
        assert (inside._kept, inside._before) == ({}, {})


def test_a_look_takes_seconds_of_the_processor(path, looks):
    shmq.open(path).close()
    assert 0 <= looks.look().took < 60


def test_where_groups_of_shards_meet_is_no_queue_of_anybody(tmp_path):
    """A directory of that name elsewhere is one as any other."""
    with shmq.shards.open(tmp_path / "events", 2):
        for seats in ("events/members", "members"):
            (tmp_path / seats).mkdir(exist_ok=True)
            shmq.open(tmp_path / seats / "q").close()
        found = {os.path.relpath(each, tmp_path) for each in places.below([str(tmp_path)])}
    assert "members/q" in found
    assert not any(each.startswith("events/members") for each in found)
    assert len(found) == 3


def test_nothing_within_a_queue_is_another_one(tmp_path):
    shmq.open(tmp_path / "q").close()
    shutil.copy(tmp_path / "q" / "queue.shmq", tmp_path / "q" / "chunks")
    assert places.below([str(tmp_path)]) == [str(tmp_path / "q")]


def test_queues_are_found_in_the_order_of_their_names(tmp_path):
    names = [f"{number:02}" for number in range(12)]
    for name in reversed(names):
        (tmp_path / name).mkdir()
        shmq.open(tmp_path / name / "q").close()
    assert places.below([str(tmp_path)]) == [str(tmp_path / name / "q") for name in names]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.rate(5.55), "5.5"),
        (words.rate(0), "0"),
        (words.rate(10), "10"),
        (words.size(0), "0 B"),
        (words.size(1024), "1.0 KiB"),
        (words.size(100 << 10), "100 KiB"),
        (words.size(1 << 60), "1,024 PiB"),
        (words.age(0.001), "1.0 ms"),
        (words.age(0.1), "0.1 s"),
        (words.age(120), "2 min"),
        (words.age(7199), "120 min"),
        (words.age(7200), "2 h"),
        (words.age(172_800), "2 d"),
        (words.count(None), "-"),
        (words.count(1234), "1,234"),
        (words.many(0, "queue"), "0 queues"),
        (words.short("a" * 44), "a" * 44),
        (words.quantile([(1.0, 1), (2.0, 1)], 0.5), 1.0),
        (words.quantile([(1.0, 1), (2.0, 99)], 0.011), 2.0),
        (words.quantile([(1.0, 0), (2.0, 1)], 0.0), 2.0),
    ],
)
def test_figures_at_the_borders_of_their_units(said, expected):
    assert said == expected


# ---------------------------------------------------------------- the verb
@pytest.mark.parametrize(("given", "every"), [("0", 0.1), ("0.25", 0.25), ("2", 2.0)])
def test_a_look_as_json_has_the_rates_of_so_many_seconds(tmp_path, monkeypatch, capsysbinary, given, every):
    slept = []
    with shmq.open(tmp_path / "q") as queue:
        monkeypatch.setattr(
            "shmq.cli.top.time", types.SimpleNamespace(sleep=lambda it: slept.append((it, queue.put(b"x"))))
        )
        assert cli.main(["top", str(tmp_path), "--json", "--every", given]) == 0
    assert slept == [(every, 0)]
    assert json.loads(capsysbinary.readouterr().out)["put_rate"] > 0


def test_one_queue_that_cannot_be_read_among_others_ends_it_with_1(tmp_path, capsysbinary):
    for name in ("a", "b", "c"):
        shmq.open(tmp_path / name).close()
    (tmp_path / "b" / "queue.shmq").write_bytes(b"not ours")
    assert cli.main(["top", str(tmp_path), "--json", "--every", "0"]) == 1
    lines = [json.loads(line)["problem"] is None for line in capsysbinary.readouterr().out.splitlines()]
    assert lines == [True, False, True]


def test_found_a_volatile_queue_that_is_not_there_was_no_word_and_no_failure(tmp_path, shm_root, capsys):
    """It was named, so that nothing at all was the wrong answer."""
    shmq.open(tmp_path / "q").close()
    words = ["top", str(tmp_path), "shm:there", "shm:not", "--json", "--every", "0"]
    with shmq.open("shm:there"):
        assert cli.main(words) == 1
        out, err = capsys.readouterr()
        assert [json.loads(line)["path"] for line in out.splitlines()] == [str(tmp_path / "q"), "shm:there"]
        assert err == "shmq: cannot look at shm:not: there is no such volatile queue; it ends with its last user\n"
        words.remove("shm:not")
        assert cli.main(words) == 0


@pytest.mark.parametrize(("more", "port"), [([], 8765), (["--port", "0"], 0), (["--port", "99"], 99)])
def test_the_port_of_the_page_is_the_one_that_was_given(tmp_path, monkeypatch, capsys, more, port):
    asked = []

    def serve(looks, port):
        asked.append((looks.every, port))
        raise ImportError("no more of it")

    monkeypatch.setattr(shmq.top, "serve", serve)
    assert cli.main(["top", str(tmp_path), "--web", "--every", "3", *more]) == 1
    assert asked == [(3.0, port)]


def test_json_is_one_look_a_queue_a_line(tmp_path, capsysbinary):
    odd = tmp_path / os.fsdecode(b"odd\xff\n")
    with shmq.open(tmp_path / "orders") as queue, queue.consumer("billing"), shmq.open(odd):
        queue.put(b"x")
        assert cli.main(["top", str(tmp_path), "--json", "--every", "0"]) == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    by_name = {Path(each["path"]).name: each for each in lines}
    assert set(by_name) == {"orders", odd.name}
    assert by_name["orders"]["put_rate"] == 0.0
    assert (by_name["orders"]["consumers"][0]["name"], by_name["orders"]["lag"]) == ("billing", 1)
    assert by_name["orders"]["processes"][0]["pid"] == os.getpid()


def test_json_of_what_cannot_be_read_says_so_and_ends_with_1(tmp_path, capsysbinary):
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "queue.shmq").write_bytes(b"not ours")
    assert cli.main(["top", str(tmp_path), "--json", "--every", "0"]) == 1
    assert "cannot open" in json.loads(capsysbinary.readouterr().out)["problem"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nowhere"], 1, "cannot look for queues below nowhere: it is not a directory"),
        (["--port", "7"], 2, "--port is for --web"),
        ([], 1, "shmq top shows itself on a terminal, and this is none; --json prints one look"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path, monkeypatch, capsys, words, status, said):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["top", *words]) == status
    assert capsys.readouterr().err == f"shmq: {said}\n"


@pytest.mark.parametrize("words", [["--json"], ["--json", "."], ["--web", "--port", "0"]])
def test_found_a_current_directory_that_is_gone_had_no_queues(tmp_path, monkeypatch, capsys, words):
    """Nothing was printed, and all was well."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["top", *words]) == 1
    assert capsys.readouterr() == ("", "shmq: cannot open .: the current directory was removed; nothing was done\n")
    shmq.top.Looks(["shm:orders", str(tmp_path)]).close()  # which do not depend on it


@pytest.mark.parametrize(("words", "needed"), [([], "textual"), (["--web"], "starlette and uvicorn")])
def test_without_the_extra_it_says_what_is_missing(tmp_path, monkeypatch, capsys, words, needed):
    monkeypatch.chdir(tmp_path)
    for name in ("textual", "uvicorn", "shmq.top.screen", "shmq.top.web"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("screen", "web"):
        monkeypatch.delattr(shmq.top, name, raising=False)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert cli.main(["top", *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"shmq: shmq top needs {needed} for that (")
    assert said.endswith("): pip install 'shmq[top]'; --json does without\n")


def test_a_pipe_where_a_queues_file_is_keeps_nobody(path, looks):
    """Opening it to read waits for a writer, which never comes: it is told as what cannot be read."""
    shmq.open(path).close()
    os.remove(f"{path}/queue.shmq")
    os.mkfifo(f"{path}/queue.shmq", 0o600)
    (found,) = looks.look().queues
    assert found.problem is not None
    assert "not a regular file" in found.problem


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else for a while")
def test_json_of_what_we_may_not_enter_says_so_and_ends_with_1(tmp_path, path, capsysbinary):
    """And is not passed over, as if there were no queue."""
    for above in (tmp_path, *tmp_path.parents):
        if not above.stat().st_mode & 0o001:  # one more of them where several workers run the tests
            above.chmod(0o755)
    shmq.open(path).close()
    words = ["top", "--json", path, "--every", "0"]
    assert cli.main(words) == 0  # what it imports may lie where nobody else looks
    capsysbinary.readouterr()
    os.seteuid(65534)
    try:
        status = cli.main(words)
    finally:
        os.seteuid(0)
    line = json.loads(capsysbinary.readouterr().out)
    assert (status, line["path"]) == (1, path)
    assert "Permission denied" in line["problem"]
