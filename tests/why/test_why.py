"""`shmq why` names who holds a queue up, and what to do: each situation made for real, by processes."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import Child, change_journal, chunk_files, flip, hold_until_killed, make_unclean, until

import shmq
from shmq import cli, replica
from shmq.diagnosis import facts, stack, tried
from shmq.diagnosis import words as said_words
from shmq.storage import dedup


def stop(child):
    child.signal(signal.SIGSTOP)
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0] == "T")


def found(where, kind):
    """The one finding of that kind."""
    (one,) = [each for each in shmq.why(where) if each.kind == kind]
    return one


def contents(path):
    """Every file of a queue, and when it was changed."""
    return {
        file: (hashlib.sha256(file.read_bytes()).digest(), file.stat().st_mtime_ns, stat.S_IMODE(file.stat().st_mode))
        for file in sorted(Path(path).rglob("*"))
        if file.is_file()
    }


def holding_a_slot(say, path):
    with shmq.open(path) as queue, queue.reserve(100):
        hold_until_killed(say)


def holding_a_message(say, path, options):
    queue = shmq.open(path)
    consumer = queue.consumer("work", group=True, ack="explicit", **options)
    message = consumer.get(timeout=5)
    assert message.index == 0
    hold_until_killed(say)


def having_a_name(say, path, wait=None):
    consumer = shmq.open(path).consumer("work")
    say("ready")
    consumer.take(timeout=wait)
    hold_until_killed(say)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What stands stands after a short while, too."""
    monkeypatch.setattr(tried, "_PAUSE", 0.05)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "queue")


def test_a_producer_stopped_inside_a_reserve_is_named_with_whom_it_keeps_waiting(path):
    with shmq.open(path) as queue, queue.consumer("billing"), Child(holding_a_slot, path) as child:
        assert child.hear() == "ready"
        queue.put_many([b"x"] * 3)
        stop(child)
        before = contents(path)
        one = found(path, "claim")
        assert contents(path) == before  # not a byte, nor a time
        assert one.level == "stuck"
        assert one.facts | {"command": "", "age_s": 0} == {
            "pid": child.pid, "command": "", "state": "stopped", "index": 0, "count": 1, "bytes": one.facts["bytes"],
            "age_s": 0, "behind": 3, "waiting": ["billing"],
        }  # fmt: skip
        assert f"process {child.pid} (" in one.sentence.lower()
        assert "'billing' waits for it" in one.sentence
        assert f"kill -CONT {child.pid}" in one.advice
        assert 0 <= one.facts["age_s"] < 60
        child.signal(signal.SIGCONT)
    with shmq.open(path):
        assert not [each for each in shmq.why(path) if each.kind == "claim"]  # of the dead


def test_a_member_that_is_stopped_or_dead_and_what_it_has(path):
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 3)
        with Child(holding_a_message, path, {}) as child:
            child.hear()
            assert found(queue, "held").level == "slow"  # it runs, and nothing is finished
            stop(child)
            one = found(queue, "held")
            assert (one.level, one.facts["index"], one.facts["held"], one.facts["pid"]) == ("stuck", 0, 1, child.pid)
            assert "which is stopped, has 1 message of 'work'" in one.sentence
            child.kill()
            one = found(queue, "held")
            assert (one.level, one.facts["state"]) == ("stuck", "dead")
            assert found(queue, "unread").facts["lag"] == 3


def test_a_message_past_its_lease_says_so(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
        with Child(holding_a_message, path, {"lease": 0.05}) as child:
            child.hear()
            one = found(queue, "held")
            assert one.facts["past_lease_s"] > 0
            assert "past its lease" in one.sentence


def test_a_name_that_nobody_reads_fills_a_bounded_queue(path):
    with shmq.open(path, max_messages=5, full="raise") as queue:
        queue.consumer("absent").close()
        queue.put_many([b"x"] * 5)
        one = found(path, "full")
        assert one.level == "stuck"
        assert one.facts["unread"] == ["absent"]
        assert f"`shmq consumer rm {path} absent`, or drop_consumer('absent')" in one.advice
        assert found(path, "unread").facts["lag"] == 5
        assert found(path, "kept").facts["messages"] == 5
        queue.consumer("absent").take_many(5)
        assert [each.kind for each in shmq.why(path)] == ["idle"]


def test_a_name_that_waits_for_a_delayed_message_is_told_so(path):
    """It takes in order, alone: the advice to look at what its process does would be wrong."""
    with shmq.open(path) as queue, queue.consumer("work"), queue.consumer("other", ack="explicit") as other:
        queue.put(b"later", delay=600)
        one = found(path, "delayed")
        assert (one.level, one.facts["name"], one.facts["lag"]) == ("note", "work", 1)
        queue.put(b"now")
        one = found(path, "delayed")
        assert (one.level, one.facts["lag"], 590 < one.facts["due_s"] <= 600) == ("slow", 2, True)
        assert "'work' waits for index 0, which is due in 10 min, and 1 message behind it waits, too" in one.sentence
        assert 'ack="explicit"' in one.advice
        assert other.get(timeout=5).payload == b"now"
        assert not [each for each in shmq.why(path) if each.kind in {"behind", "stopped"} and "'work'" in each.sentence]


def test_a_message_that_is_damaged_keeps_nobody_from_an_answer(path):
    """The one that somebody holds, and the one at which a name stands: it ended with Corrupt, and told nothing."""
    with (
        shmq.open(path) as queue,
        queue.consumer("work") as work,
        queue.consumer("group", group=True, ack="explicit") as group,
    ):
        queue.put_many([b"payload" * 9, b"x"])
        held = group.get(timeout=5)
        (file,) = chunk_files(path)
        flip(file, file.read_bytes().index(b"payload"))
        assert (found(path, "held").facts["index"], found(path, "held").facts["age_s"]) == (held.index, None)
        assert found(path, "behind").facts["name"] == work.name


def test_bytes_fill_a_queue_too(path):
    with shmq.open(path, max_bytes=4000, full="raise") as queue:
        queue.consumer("absent").close()
        with contextlib.suppress(shmq.Full):
            while True:
                queue.put(bytes(100))
        assert found(path, "full").facts["bytes"] > 3800


def test_a_name_whose_holder_is_stopped_and_one_that_stands(path):
    with shmq.open(path) as queue, Child(having_a_name, path, 60) as child:
        child.hear()
        assert [each.kind for each in shmq.why(path)] == ["idle"]
        stop(child)
        queue.put_many([b"x"] * 10)
        one = found(path, "stopped")
        assert (one.level, one.facts["pid"], one.facts["lag"]) == ("stuck", child.pid, 10)
    with shmq.open(path) as queue, queue.consumer("work"):
        one = found(path, "behind")
        assert (one.level, one.facts["pid"], one.facts["state"]) == ("slow", os.getpid(), "runs")


def test_only_delayed_messages_is_no_fault(path, capsys):
    with shmq.open(path) as queue, queue.consumer("work", group=True) as consumer:
        queue.put(b"x", delay=60)
        with pytest.raises(shmq.Empty):
            consumer.take(timeout=0)
        one = found(path, "delayed")
        assert (one.level, one.facts["lag"]) == ("note", 1)
        assert 50 < one.facts["due_s"] <= 60
        assert cli.main(["why", path]) == 0
        assert "NOTE (delayed): 'work' has 1 message that waits for its time" in capsys.readouterr().out


def test_dead_letters_are_counted(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
        with queue.consumer("work", group=True, ack="explicit", dead_letter=f"{path}.dead") as consumer:
            consumer.get(timeout=5).reject("no")
            until(lambda: queue.consumers()["work"].group.moved)
            one = found(path, "dead-letters")
        assert (one.level, one.facts["moved"], one.facts["grows"]) == ("note", 1, False)


def test_a_disk_that_is_nearly_full(path, monkeypatch):
    """What the file system says is made up here, for want of one to fill."""
    with shmq.open(path) as queue:
        queue.put(b"x")
        said = SimpleNamespace(f_bavail=10, f_blocks=1 << 20, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda _: said)
        one = found(path, "disk")
        assert (one.level, one.facts["free"], one.facts["size"]) == ("stuck", 40960, 1 << 32)


def test_a_watermark_that_an_open_claim_keeps_back(path):
    with shmq.open(path, durability="sync") as queue, Child(holding_a_slot, path) as child:
        child.hear()
        stop(child)
        with pytest.raises(shmq.ShmqError):
            queue.put(b"x", timeout=0.01)
        one = found(path, "frozen")
        assert (one.level, one.facts["durable"], one.facts["pid"]) == ("stuck", 0, child.pid)


def test_the_administrative_lock_and_who_is_stopped(path):
    def administer(say):
        queue = shmq.open(path)
        with queue._session.home.admin():
            hold_until_killed(say)

    with shmq.open(path), Child(administer) as child:
        child.hear()
        stop(child)
        one = found(path, "admin")
        assert (one.level, one.facts["stopped"]) == ("stuck", [child.pid])
        assert f"process {child.pid} (" in one.sentence


def test_a_queue_that_was_shut_down_or_finished(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
        queue.shutdown()
        assert found(path, "ended").facts == {}


def test_a_queue_that_was_finished_and_drained_is_no_fault(path):
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        queue.put(b"x")
        queue.finish()
        assert found(path, "ended").level == "slow"
        assert consumer.take() == b"x"
    assert found(path, "ended").level == "note"
    assert cli.main(["why", path]) == 0


def test_a_shard_that_a_growth_has_finished_is_no_fault(tmp_path, capsys):
    root = str(tmp_path / "root")
    with shmq.shards.open(root, shards=2) as events:
        events.put(b"x")
        events.grow()
    ended = [each for each in shmq.why(root) if each.kind == "ended"]
    assert [(each.level, "stays so" in each.sentence) for each in ended] == [("note", True)] * 2
    assert cli.main(["why", root]) == 0
    assert "Open it again" not in capsys.readouterr().out


def test_the_names_of_a_follower_are_no_fault_of_it(path, tmp_path, capsys):
    follower = str(tmp_path / "follower")
    with shmq.open(path, max_messages=2) as queue:
        queue.consumer("work").close()
        queue.put_many([b"x"] * 2)
        replica.replicate(path, follower, once=True)
        assert {each.kind for each in shmq.why(path)} >= {"full", "unread"}
    assert [each.kind for each in shmq.why(follower)] == ["role"]
    assert cli.main(["why", follower]) == 0
    assert "drop_consumer" not in capsys.readouterr().out


def test_a_queue_that_is_deleted_meanwhile_keeps_nothing_from_being_told_of_the_others(tmp_path, monkeypatch):
    for name in ("a", "b"):
        shmq.open(tmp_path / name).close()
    monkeypatch.setattr(tried.time, "sleep", lambda _: (tmp_path / "a").exists() and shmq.delete(tmp_path / "a"))
    assert [each.path for each in shmq.why(tmp_path)] == [str(tmp_path / "b")]
    monkeypatch.setattr(tried.time, "sleep", lambda _: (tmp_path / "b").exists() and shmq.delete(tmp_path / "b"))
    with pytest.raises(shmq.NotFound):
        shmq.why(tmp_path)


def test_a_window_that_is_full(path):
    with shmq.open(path) as queue:
        queue.put_many([b"x"] * 100)
        with queue.consumer("work", group=True, ack="explicit", window=64) as consumer:
            assert len(consumer.get_many(100, timeout=0)) == 64
            with pytest.raises(shmq.Empty):
                consumer.get(timeout=0.01)
            assert found(path, "window").facts["window"] == 64


def test_a_turn_with_dedup_that_a_stopped_process_keeps(path):
    def put_as(say):
        session = shmq.open(path)._session
        with dedup.alone(session.home, session.joined().control, b"p", -1, "put into"):
            hold_until_killed(say)

    with shmq.open(path), Child(put_as) as child:
        child.hear()
        stop(child)
        assert found(path, "dedup").facts["stopped"] == [child.pid]


def test_a_sync_that_failed_a_damaged_name_and_a_fenced_queue(path):
    with shmq.open(path, durability="sync") as queue:
        queue.consumer("work").close()
        queue._session.joined().control.fail_sync(failed=True)
        assert found(path, "sync-failed").level == "stuck"
        flip(f"{path}/consumers/work.checkpoint", 0)
        one = found(path, "damaged")
        assert (one.level, "'work'" in one.sentence) == ("stuck", True)
    change_journal(path, 96, (32).to_bytes(4, "little"))
    assert "It is fenced" in found(path, "role").sentence


@pytest.mark.parametrize("name", ["control.shmq", "dedup.shmq", "admin.lock"])
def test_found_nothing_was_said_of_a_pipe_where_a_file_beside_the_chunks_is(path, name):
    """Whoever needs that file is refused, and the queue looked as well as any."""
    with shmq.open(path) as queue:
        queue.put(b"x", dedup=("p", 1))
        queue.consumer("work").close()
    assert not [each for each in shmq.why(path) if each.kind == "damaged"]
    os.rename(f"{path}/{name}", f"{path}.aside")
    os.mkfifo(f"{path}/{name}", 0o600)
    one = found(path, "damaged")
    assert one.level == "stuck"
    assert f"{name}: it is not a regular file, so who needs it is refused" in one.sentence
    assert f"shmq repair {path}" in one.advice
    assert [(each.file, each.reason) for each in shmq.verify(path).problems] == [(name, "it is not a regular file")]


def test_puts_wait_for_followers(path):
    with shmq.open(path, durability=shmq.Durability.replicated(1, ["b", "c"])) as queue:
        with pytest.raises(shmq.SyncPending):
            queue.put(b"x", timeout=0)
        one = found(path, "followers")
        assert (one.level, one.facts["n"]) == ("stuck", 1)
        assert "Puts wait for 1 of b, c: b has all before index 0, c has all" in one.sentence
        shmq.replica.replicate(path, f"{path}.b", name="b", once=True)
        assert "followers" not in [each.kind for each in shmq.why(path)]


def test_letters_that_cannot_be_moved(path):
    with shmq.open(path) as queue:
        queue.put(b"x")
        letters = shmq.open(f"{path}.dead", max_messages=1, full="raise")
        letters.consumer("absent").close()
        letters.put(b"full")
        with (
            letters,
            queue.consumer("work", group=True, ack="explicit", max_attempts=1, dead_letter=f"{path}.dead") as consumer,
        ):
            message = consumer.get(timeout=5)
            with pytest.warns(RuntimeWarning, match="cannot move"):
                message.nack()
            with pytest.raises(shmq.Empty):
                consumer.get(timeout=0)
            assert queue.consumers()["work"].group.unmoved
            assert found(path, "unmoved").facts["times"] >= 1


def test_the_page_has_every_kind():
    root = Path(__file__).parents[2]
    page = (root / "docs/how-to/why.md").read_text()
    tree = ast.parse((root / "shmq/diagnosis/causes.py").read_text())
    kinds = {"admin", "dedup"} | {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_finding"
        if isinstance(node.args[0], ast.Constant)
    }
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == kinds


def test_it_answers_of_every_kind_of_place(tmp_path):
    with shmq.open("shm:why-test") as queue, shmq.open(None) as nameless:
        assert [each.kind for each in shmq.why("shm:why-test")] == ["idle"]
        assert [each.kind for each in shmq.why(queue)] == ["idle"]
        assert [each.kind for each in shmq.why(nameless)] == ["idle"]
    with shmq.shards.open(str(tmp_path / "root"), shards=2):
        assert [each.kind for each in shmq.why(tmp_path / "root")] == ["idle", "idle"]
    with pytest.raises(shmq.NotFound):
        shmq.why(tmp_path / "nothing")
    shmq.open(tmp_path / "old").close()
    make_unclean(tmp_path / "old")
    assert [each.kind for each in shmq.why(tmp_path / "old")] == ["idle"]


def test_the_verb_says_it_for_machines_and_asks_py_spy(path, capsys, tmp_path, monkeypatch):
    """An executable of that name that prints what it was asked stands for py-spy."""
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "stack of $4, $2"\n')
    (tmp_path / "py-spy").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with shmq.open(path) as queue, Child(holding_a_slot, path) as child:
        child.hear()
        queue.put(b"x")
        assert cli.main(["why", path, "--json"]) == 1
        said = json.loads(capsys.readouterr().out)
        assert said["wrong"] is True
        assert said["findings"][0]["facts"]["stack"] == f"stack of {child.pid}, --nonblocking"
        assert cli.main(["why", path]) == 1
        shown = capsys.readouterr().out
        assert shown.startswith(f"STUCK (claim): Process {child.pid} (")
        assert f"    | stack of {child.pid}, --nonblocking\n" in shown


def test_a_py_spy_that_hangs_fails_or_is_missing_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stack.of_process(os.getpid()) is None
    (tmp_path / "py-spy").write_text("#!/bin/sh\nexec /bin/sleep 100\n")
    (tmp_path / "py-spy").chmod(0o700)
    monkeypatch.setattr(stack, "_PATIENCE", 0.05)
    assert stack.of_process(os.getpid()) is None
    (tmp_path / "py-spy").write_text("#!/bin/sh\nexit 1\n")
    assert stack.of_process(os.getpid()) is None


# ---------------------------------------------------------------- what breaks on purpose got by
def kinds(where):
    return [each.kind for each in shmq.why(where)]


def test_who_stands_at_a_claim_waits_for_it_and_nobody_else(path):
    """Whoever is before it has something to read. With nobody there, and nothing behind, it holds nobody up."""
    with shmq.open(path) as queue, queue.producer() as other:
        with queue.reserve(10) as slot:
            assert (found(path, "claim").level, found(path, "claim").facts["waiting"]) == ("note", [])
            slot.abort()
        other.put(b"x")
        queue.consumer("before").close()
        with queue.consumer("at") as at:
            at.take()
            slot = queue.reserve(10)
        with slot:
            one = found(path, "claim")
            assert (one.level, one.facts["waiting"], one.facts["behind"]) == ("stuck", ["at"], 0)


def test_a_claim_that_was_not_there_a_moment_ago_holds_nobody_up(path, monkeypatch):
    """It may have ended by now."""
    with shmq.open(path) as queue, contextlib.ExitStack() as held:
        with monkeypatch.context() as patched:
            patched.setattr(tried.time, "sleep", lambda _: held.enter_context(queue.reserve(10)))
            assert "claim" not in kinds(path)
        assert "claim" in kinds(path)


def test_a_claim_far_from_the_end_is_found_where_a_name_stands(path):
    with (
        shmq.open(path, chunk_bytes=16384) as queue,
        queue.producer() as other,
        queue.consumer("work"),
        queue.reserve(10),
    ):
        for _ in range(facts._CHUNKS * 2 + 4):
            other.put(bytes(7000))
        assert found(path, "claim").facts["waiting"] == ["work"]


def test_a_name_that_holds_nothing_fills_no_queue(path):
    with shmq.open(path, max_messages=5, full="raise") as queue:
        queue.consumer("mirror", hold="nothing").close()
        queue.consumer("absent").close()
        with queue.consumer("ahead") as ahead:
            queue.put_many([b"x"] * 5)
            ahead.take_many(3)
            assert found(path, "full").facts["names"] == ["absent"]
            assert "holds everything back, at index 0" in found(path, "full").sentence


def test_bytes_that_were_taken_fill_no_queue(path):
    with shmq.open(path, max_bytes=4000, full="raise") as queue, queue.consumer("work") as work:
        with contextlib.suppress(shmq.Full):
            while True:
                queue.put(bytes(100))
        assert "full" in kinds(path)
        work.take_many(len(queue) - 1)
        assert "full" not in kinds(path)


def test_of_several_messages_that_somebody_has_the_first_is_told(path):
    with shmq.open(path) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        queue.put_many([b"x"] * 3)
        assert len(work.get_many(3)) == 3
        one = found(path, "held")
        assert (one.facts["index"], one.facts["held"]) == (0, 3)


def test_a_message_that_was_handed_out_a_moment_ago_is_not_held(path, monkeypatch):
    with shmq.open(path) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        queue.put(b"x")
        kept = []
        with monkeypatch.context() as patched:
            patched.setattr(tried.time, "sleep", lambda _: kept.append(work.get()))
            assert "held" not in kinds(path)
        assert "held" in kinds(path)


def test_what_is_held_is_of_this_boot(path, monkeypatch):
    with shmq.open(path) as queue:
        queue.put(b"x")
        with Child(holding_a_message, path, {}) as child:
            child.hear()
            child.kill()
    assert "held" in kinds(path)
    monkeypatch.setattr(facts, "boots", SimpleNamespace(boot_id=lambda: b"another boot id!"))
    assert "held" not in kinds(path)


def test_one_delayed_message_among_others_makes_none_of_them_wait(path):
    with shmq.open(path) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        queue.put_many([b"x"] * 3)
        work.get().nack(delay=60)
        assert kinds(path) == ["behind"]


def test_nobody_is_said_to_have_a_name_that_is_closed(path):
    with shmq.open(path) as queue:
        with queue.consumer("work") as work:
            queue.put_many([b"x"] * 3)
            work.take()
        assert set(found(path, "unread").facts) == {"name", "lag", "oldest_s"}
        with Child(having_a_name, path) as child:
            child.hear()
            child.kill()
        assert set(found(path, "unread").facts) == {"name", "lag", "oldest_s"}  # nor who died with it


def test_followers_that_get_something_are_not_late(path, monkeypatch):
    with shmq.open(path, durability=shmq.Durability.replicated(2, ["b", "c"])) as queue:
        for _ in range(3):
            with pytest.raises(shmq.SyncPending):
                queue.put(b"x", timeout=0)
        for before, now, late in [
            ({"b": 1, "c": 1}, {"b": 2, "c": 2}, False),
            ({"b": 1, "c": 1}, {"b": 1, "c": 2}, True),
            ({"b": 3, "c": 1}, {"b": 3, "c": 1}, True),
            ({"b": 3, "c": 1}, {"b": 3, "c": 2}, False),
        ]:
            told = iter([before, now])
            with monkeypatch.context() as patched:
                patched.setattr(facts.marks, "known", lambda _, told=told: next(told))
                assert ("followers" in kinds(path)) == late, (before, now)


def test_how_far_the_watermark_is_behind_is_said(path):
    with shmq.open(path, durability="sync") as queue, queue.producer() as other:
        assert queue.put(b"x") == 0
        with queue.reserve(10):
            for _ in range(3):
                with pytest.raises(shmq.ShmqError):
                    other.put(b"x", timeout=0)
            one = found(path, "frozen")
            assert (one.facts["durable"], one.facts["next_index"]) == (1, 5)
            assert (
                "The watermark stands at index 1, 4 below the end of the queue: it waits for index 1 of" in one.sentence
            )


def test_a_lock_that_was_free_a_moment_ago_keeps_nobody(path, monkeypatch):
    """Who has one at both looks may have had it all the while."""
    with shmq.open(path) as queue, contextlib.ExitStack() as held:
        session = queue._session

        def meanwhile(_):
            held.enter_context(session.home.admin())
            held.enter_context(dedup.alone(session.home, session.joined().control, b"p", -1, "put into"))

        with monkeypatch.context() as patched:
            patched.setattr(tried.time, "sleep", meanwhile)
            assert kinds(path) == ["idle"]
        assert sorted(kinds(path)) == ["admin", "dedup"]


def test_what_one_name_keeps_is_told_when_it_is_much(path):
    with shmq.open(path, max_messages=10) as queue, queue.consumer("slow"), queue.consumer("fast") as fast:
        for number in range(6):
            queue.put(b"x")
            fast.take()
            if number in {0, 5}:
                assert ("kept" in kinds(path)) == (number == 5)


def test_a_queue_that_was_shut_down_is_none_that_has_come_to_its_end(path):
    with shmq.open(path) as queue:
        queue.shutdown()
        one = found(path, "ended")
        assert (one.level, "shut down" in one.sentence, "when all have closed it" in one.advice) == ("slow", True, True)


def test_of_several_queues_the_worst_is_told_first_with_its_path(tmp_path, capsys):
    with shmq.open(tmp_path / "a"), shmq.open(tmp_path / "b", max_messages=1) as queue:
        queue.consumer("absent").close()
        queue.put(b"x")
        assert [each.level for each in shmq.why(tmp_path)] == ["stuck", "slow", "slow", "note"]
        assert cli.main(["why", str(tmp_path)]) == 1
        shown = capsys.readouterr().out
        assert shown.startswith(f"STUCK (full) {tmp_path}/b: ")
        assert f"\nNOTE (idle) {tmp_path}/a: " in shown
        assert cli.main(["why", str(tmp_path / "b")]) == 1
        assert capsys.readouterr().out.startswith("STUCK (full): ")


def test_what_is_slow_alone_is_wrong_too(path):
    with shmq.open(path) as queue:
        queue.consumer("absent").close()
        queue.put(b"x")
    assert [each.level for each in shmq.why(path)] == ["slow"]
    assert cli.main(["why", path]) == 1


def test_queues_are_looked_for_three_levels_down_and_not_in_what_is_being_made(tmp_path):
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    shmq.open(tmp_path / "1" / "2" / "3" / "far").close()
    shmq.open(tmp_path / "1" / "2" / "q.making-0a").close()
    with pytest.raises(shmq.NotFound):
        shmq.why(tmp_path)
    shmq.open(tmp_path / "1" / "2" / "near").close()
    assert [each.path for each in shmq.why(tmp_path)] == [str(tmp_path / "1" / "2" / "near")]


@pytest.mark.parametrize(("seconds", "told"), [(0.05, "0.1 s"), (119.9, "119.9 s"), (120, "2 min"), (7200, "120 min")])
def test_times_are_said_in_the_unit_that_suits(seconds, told):
    assert said_words.seconds(seconds) == told


def test_an_age_is_in_seconds_and_never_below_none():
    now = time.time_ns()
    assert (said_words.age(0), said_words.age(now + 10**12)) == (None, 0)
    assert 3600 <= said_words.age(now - 3600 * 10**9) < 7200
