"""Flows: what goes through the stages, in which order, and what becomes of what fails."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest
from stages import (
    Fails,
    Kills,
    Leaves,
    Notes,
    add_a_million,
    double,
    noted,
    same,
    sizes,
    slow,
    some,
    sums,
    too_few,
    uneven,
    unpicklable,
)
from support import until

import shmq
from shmq import durability
from shmq.flow import tries
from shmq.flow.place import Place
from shmq.flow.progress import Rate, line
from shmq.taking import lasting

LONG = 60.0


# ---------------------------------------------------------------- what comes through
def test_items_go_through_all_stages_each_once(path, out):
    """And the summary says so."""
    flow = shmq.Flow(path).stage(double, workers=2).stage(add_a_million)
    summary = flow.run(range(500))
    assert sorted(out()) == [2 * n + 1_000_000 for n in range(500)]
    assert (summary.items, summary.dead) == (500, 0)
    assert [(each.name, each.items, each.waiting, each.done) for each in summary.stages] == [
        ("double", 500, 0, 500),
        ("add_a_million", 500, 0, 500),
    ]
    assert flow.stats() == summary.stages


def test_none_is_nothing_an_iterator_is_many_and_a_list_is_one(path, out):
    """What is yielded is put as it is, None too."""
    shmq.Flow(path).stage(some, ordered=True).run(range(1, 9))
    assert out() == [1, 2, 3, 5, None, 6, 6, [7, 7]]


def test_a_run_is_over_once_all_that_came_out_is_on_the_disk(path, tmp_path, monkeypatch):
    """Also into a queue of the user's, and where those who leave find somebody else at the last snapshot."""
    monkeypatch.setattr(lasting, "EVERY", 1e6)
    monkeypatch.setattr(lasting.Keeper, "last", lambda _: None)
    end, seen = Place.end, []
    with shmq.open(tmp_path / "sink", codec="pickle", trusted=True) as sink:
        control = sink._session.joined().control
        monkeypatch.setattr(Place, "end", lambda *given: (seen.append(control.durable()), end(*given)))
        shmq.Flow(path, context="fork").stage(double).sink(sink).run(range(20))
        assert seen == [sink.next_index] == [20]


def test_a_directory_goes_on_with_the_durability_it_was_begun_with(path, out):
    """And says so."""
    shmq.Flow(path, durability="sync").stage(double).run(range(3))
    assert out() == [0, 2, 4]
    with shmq.open(f"{path}/0.double", create=False, read_only=True, trusted=True) as queue:
        assert queue.options.durability == shmq.Durability.SYNC
    with pytest.raises(shmq.Mismatch, match="durability"):
        shmq.Flow(path).stage(double).run(range(3))


def test_a_source_waits_for_a_disk_that_is_slower_than_it_is_looked_at(path, out, monkeypatch):
    """With durability="sync": what is in the queue and not on the disk yet is neither an error nor put again."""
    wait, late = durability.Syncer.wait, []

    def waits(*given):
        if not late:
            late.append(True)
            raise shmq.SyncPending("not in time")
        wait(*given)

    monkeypatch.setattr(durability.Syncer, "wait", waits)
    summary = shmq.Flow(path, durability="sync", context="fork").stage(same).run(range(300))
    assert (sorted(out()), summary.items) == ([*range(300)], 300)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_ordered_stage_keeps_the_order(path, out, workers):
    """However long each item takes, and also when some come to nothing, or are tried again."""
    fails = Fails(f"{path}.fails", {17, 40, 41}, times=2)
    flow = shmq.Flow(path).stage(uneven, workers=workers, ordered=True)
    flow.stage(fails, workers=workers, ordered=True, backoff=0.01).run(range(200))
    assert out() == list(range(200))
    assert sorted(noted(f"{path}.fails")) == sorted(["17", "40", "41"] * 3)


def test_what_is_given_up_does_not_stop_the_order(path, out):
    """It lies in the dead letters, with what was raised."""
    fails = Fails(f"{path}.fails", {5, 6, 60})
    summary = shmq.Flow(path).stage(fails, workers=3, ordered=True, attempts=2, backoff=0.01).run(range(100))
    assert out() == [n for n in range(100) if n not in {5, 6, 60}]
    assert [each.dead for each in summary.stages] == [3]
    with shmq.open(f"{path}/0.fails.dead", create=False, trusted=True) as dead:
        assert sorted(message.payload for message in dead.reader()) == [5, 6, 60]
        assert "ValueError: no 5 today" in str([message.headers for message in dead.reader()])


def test_batches_are_lists_and_have_an_answer_for_each(path, out):
    """Or none for all; an aggregate is the answer for one of them."""
    shmq.Flow(path).stage(sizes, batch=10).run(range(100))
    assert len(out()) == 100
    assert max(out()) > 1
    assert max(out()) <= 10
    other = shmq.Flow(f"{path}2").stage(sums, batch=50)
    other.run(range(300))
    with shmq.open(f"{path}2/out", create=False, trusted=True) as queue:
        parts = [message.payload for message in queue.reader()]
    assert sum(parts) == sum(range(300))
    assert len(parts) < 300


def test_a_batch_that_raises_is_tried_item_by_item(path, out):
    """So one that fails is given up alone."""
    fails = Fails(f"{path}.fails", {7})
    summary = shmq.Flow(path).stage(fails, batch=20, attempts=1).run(range(60))
    assert sorted(out()) == [n for n in range(60) if n != 7]
    assert summary.dead == 1


def test_a_batch_with_too_few_answers_is_an_error_of_its_function(path, out):
    """By itself each of them has one."""
    assert shmq.Flow(path).stage(too_few, batch=20).run(range(60)).dead == 0
    assert sorted(out()) == list(range(60))


def test_what_cannot_be_encoded_is_given_up(path, out):
    """As if the function had raised."""
    summary = shmq.Flow(path).stage(unpicklable, attempts=1).run(range(6))
    assert sorted(out()) == [0, 1, 2, 4, 5]
    assert summary.dead == 1


def test_there_are_no_volatile_flows():
    with pytest.raises(ValueError, match="no volatile flows"):
        shmq.Flow("shm:f")


# ---------------------------------------------------------------- what fails, and what kills
def test_what_raises_is_tried_again(path, out):
    """So often, and no more."""
    fails = Fails(f"{path}.fails", {3}, times=2)
    assert shmq.Flow(path).stage(fails, attempts=3, backoff=0.01).run(range(5)).dead == 0
    assert sorted(out()) == list(range(5))
    assert noted(f"{path}.fails") == ["3"] * 3


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_would_end_the_worker_is_a_try_as_well(path, out, kind):
    leaves = Leaves(f"{path}.leaves", {3}, kind)
    summary = shmq.Flow(path).stage(leaves, attempts=2, backoff=0.01).run(range(6))
    assert sorted(out()) == [0, 1, 2, 4, 5]
    assert summary.dead == 1
    assert noted(f"{path}.leaves") == ["3"] * 2


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"batch": 8}], ids=["plain", "ordered", "batch"])
def test_an_item_that_kills_its_workers_is_given_up_and_no_other(path, out, options):
    """Those that were in the same hands go through."""
    kills = Kills(f"{path}.kills", {30})
    summary = shmq.Flow(path).stage(kills, workers=2, attempts=2, **options).run(range(80))
    got = out()
    assert sorted(got) == [n for n in range(80) if n != 30]
    assert not options.get("ordered") or got == sorted(got)
    assert summary.dead == 1
    assert len(noted(f"{path}.kills")) == (3 if "batch" in options else 2)  # in a batch it may have been another


def test_workers_that_cannot_begin_end_the_run(path):
    """And not by starting others for ever; what is in the queues stays."""
    flow = shmq.Flow(path).stage(same)
    fails = os.path.join(os.path.dirname(path), "nowhere")
    Path(fails).mkdir()
    queue = shmq.open(f"{fails}/q")
    flow.sink(queue)
    broken = shmq.Flow(path).stage(same).sink(queue)
    queue.close()
    shmq.delete(f"{fails}/q")
    with pytest.raises(shmq.flow.StageDied, match="sink"):
        broken.run(range(10))
    with shmq.open(f"{path}/0.same", create=False, trusted=True) as first:
        assert first.adopted("source") is not None


# ---------------------------------------------------------------- sinks and sources
def test_a_sink_is_called_for_each_item(path):
    """One by one, or in lists."""
    shmq.Flow(path).stage(double, workers=2).sink(Notes(f"{path}.notes"), workers=2).run(range(100))
    assert sorted(map(int, noted(f"{path}.notes"))) == [2 * n for n in range(100)]
    shmq.Flow(f"{path}2").stage(double).sink(Notes(f"{path}.more"), batch=30).run(range(100))
    assert sorted(map(int, noted(f"{path}.more"))) == [2 * n for n in range(100)]
    assert not Path(path, "out").exists()


def test_an_ordered_sink_has_them_in_order_also_when_one_is_tried_again(path):
    """Nothing behind it is given to it before."""
    fails = Fails(f"{path}.notes", range(0, 60, 20), times=1)
    sink = shmq.Flow(path).stage(uneven, workers=2, ordered=True).sink(fails, ordered=True, backoff=0.01)
    sink.run(range(60))
    assert noted(f"{path}.notes") == ["0", "0", "20", "20", "40", "40"]
    assert sink.stats()[1].dead == 0


def test_a_queue_as_sink_has_each_item_once_and_is_not_finished(path, tmp_path):
    """It may have other producers."""
    with shmq.open(tmp_path / "target", codec="json") as target:
        shmq.Flow(path).stage(double).sink(target).run(range(50))
        assert sorted(message.payload for message in target.reader()) == [2 * n for n in range(50)]
        assert not target.finished
        target.put(1)


def test_a_queue_as_source_is_taken_until_it_is_finished(path, tmp_path, out):
    """Each message once, also by a run that goes on."""
    with shmq.open(tmp_path / "source", codec="msgpack") as source:
        source.put_many(range(100))
        flow = shmq.Flow(path).stage(double)
        thread = threading.Thread(target=lambda: flow.run(source))
        thread.start()
        until(lambda: os.path.exists(f"{path}/0.double/queue.shmq") and flow.stats()[0].done >= 100, LONG)
        source.put_many(range(100, 150))
        source.finish()
        thread.join(LONG)
        assert not thread.is_alive()
    assert sorted(out()) == [2 * n for n in range(150)]


def test_who_puts_waits_for_who_takes(path):
    """A stage has no more waiting than its bound."""
    flow = shmq.Flow(path).stage(same, bound=20).sink(Notes(f"{path}.notes", pause=0.005), bound=10)
    most = [0, 0]
    over = threading.Event()

    def look():
        while not over.wait(0.01):
            if os.path.exists(f"{path}/1.notes/queue.shmq"):
                for at, each in enumerate(flow.stats()):
                    most[at] = max(most[at], each.waiting)

    thread = threading.Thread(target=look)
    thread.start()
    flow.run(range(200))
    over.set()
    thread.join()
    assert 5 <= most[0] <= 20
    assert 5 <= most[1] <= 10


# ---------------------------------------------------------------- one directory is one run
def test_a_run_that_is_over_returns_its_summary(path, out):
    """Its source is not looked at; fresh=True begins anew."""
    flow = shmq.Flow(path).stage(double)
    first = flow.run(range(10))

    def never():
        raise AssertionError
        yield

    assert flow.run(never()) == first
    assert sorted(out()) == [2 * n for n in range(10)]
    assert flow.run(range(5), fresh=True).items == 5
    assert sorted(out()) == [2 * n for n in range(5)]
    flow.delete()
    assert not os.path.exists(path)
    with pytest.raises(shmq.NotFound):
        flow.delete()
    Path(path).mkdir(mode=0o700)
    Path(path, "letters").write_text("mine")
    with pytest.raises(shmq.BadFormat, match="letters"):
        flow.delete()
    assert Path(path, "letters").exists()


def test_a_source_that_raises_is_gone_on_with(path, out):
    """What it gave before has gone through when the error is told; the next run skips it."""
    flow = shmq.Flow(path).stage(double, ordered=True)

    def source(upto):
        yield from range(upto)
        if upto < 100:
            raise OSError("the line is dead")

    for upto in (30, 30, 70):
        with pytest.raises(OSError, match="the line is dead"):
            flow.run(source(upto))
        assert out() == [2 * n for n in range(upto)]
    assert flow.run(source(100)).items == 100
    assert out() == [2 * n for n in range(100)]


def test_a_source_may_have_nothing(path, out):
    """Then nothing comes out."""
    assert shmq.Flow(path).stage(double).stage(same).run([]).items == 0
    assert out() == []


def test_another_flow_in_its_directory_is_refused(path):
    """And nothing is changed."""
    flow = shmq.Flow(path).stage(double)
    with pytest.raises(ValueError, match="bad"):
        flow.run(_raising())
    for other in (
        shmq.Flow(path).stage(same),
        shmq.Flow(path).stage(double).stage(same),
        shmq.Flow(path).stage(double, ordered=True),
        shmq.Flow(path, codec="json").stage(double),
    ):
        with pytest.raises(shmq.Mismatch, match="fresh"):
            other.run(range(5))
    assert shmq.Flow(path).stage(double, workers=2, bound=7).run(range(5)).items == 5


def _raising():
    yield 0
    raise ValueError("bad")


def test_two_cannot_run_it(path):
    """Neither of one process nor of two."""
    flow = shmq.Flow(path).stage(slow)
    thread = threading.Thread(target=lambda: flow.run(range(100)))
    thread.start()
    until(lambda: os.path.exists(f"{path}/0.slow"), LONG)
    with pytest.raises(shmq.Busy, match="this process"):
        flow.run(range(5))
    with pytest.raises(shmq.Busy, match="this process"):
        flow.delete()
    from support import in_child

    def other():
        from shmq.flow import place

        place._running.clear()
        with pytest.raises(shmq.Busy, match="another process"):
            flow.run(range(5))
        return "refused"

    assert in_child(other) == "refused"
    thread.join(LONG)
    assert flow.run(range(5)).items == 100


def test_a_place_that_is_not_ones_own_is_refused(tmp_path):
    """What is in it would be unpickled."""
    flow = shmq.Flow(tmp_path / "f").stage(same)
    (tmp_path / "f").mkdir(mode=0o755)
    (tmp_path / "f").chmod(0o755)
    with pytest.raises(shmq.Unsafe, match="0700"):
        flow.run([1])
    (tmp_path / "f").rmdir()
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "f").symlink_to(tmp_path / "real")
    with pytest.raises(shmq.Unsafe, match="0700"):
        flow.run([1])
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(shmq.Unsafe, match="everybody"):
        shmq.Flow(tmp_path / "open" / "f").stage(same).run([1])
    with pytest.raises(shmq.NotFound):
        shmq.Flow(tmp_path / "no" / "f").stage(same).run([1])
    (tmp_path / "full").mkdir(mode=0o700)
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(shmq.BadFormat, match="mine"):
        shmq.Flow(tmp_path / "full").stage(same).run([1])


def test_what_means_nothing_is_refused_and_nothing_is_made(path, tmp_path):
    """By the kind of error that fits."""
    flow = shmq.Flow(path)
    for options, kind in [
        ({"workers": 0}, ValueError),
        ({"workers": "2"}, TypeError),
        ({"workers": True}, TypeError),
        ({"batch": 0}, ValueError),
        ({"attempts": 0}, ValueError),
        ({"backoff": -1}, ValueError),
        ({"bound": 0}, ValueError),
        ({"ordered": "yes"}, TypeError),
        ({"ordered": True, "batch": 2}, ValueError),
        ({"name": "a/b"}, ValueError),
        ({"name": ""}, ValueError),
    ]:
        with pytest.raises(kind):
            flow.stage(same, **options)
    with pytest.raises(TypeError):
        flow.stage("same")
    with pytest.raises(ValueError, match="one worker"):
        flow.sink(same, ordered=True, workers=2)
    with pytest.raises(ValueError, match="no stages"):
        flow.run([1])
    flow.stage(same)
    for source in ("text", b"bytes", 7, None):
        with pytest.raises(TypeError, match="source"):
            flow.run(source)
    with pytest.raises(TypeError, match="path"):
        shmq.Flow(7)
    with pytest.raises(ValueError, match="codec"):
        shmq.Flow(path, codec="no such")
    with pytest.raises(TypeError, match="cannot be sent"):
        shmq.Flow(path).stage(lambda item: item).run([1])
    with pytest.raises(ValueError, match="last one"):
        shmq.Flow(path).sink(same).stage(same)
    assert list(tmp_path.iterdir()) == []
    assert repr(flow) == f"<shmq.Flow {path} (same)>"


def test_items_of_other_codecs_are_not_pickled(path, out):
    """A codec of one's own choice is all that is used."""
    shmq.Flow(path, codec="json").stage(double).run([[1], [2]])
    with shmq.open(f"{path}/out", create=False) as queue:
        assert queue.options.codec == "json"
        assert sorted(message.payload for message in queue.reader()) == [[1, 1], [2, 2]]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_each_start_method_does(path, out, method):
    """As the user says; forked ones are tried where nothing else runs (test_flow_kills.py)."""
    shmq.Flow(path, context=method).stage(double).run(range(10))
    assert sorted(out()) == [2 * n for n in range(10)]


# ---------------------------------------------------------------- what people see
def test_progress_is_told_in_lines(path, capfd, monkeypatch):
    """Where it is asked for and there is no terminal."""
    monkeypatch.setattr("shmq.flow.progress._LINES_EVERY", 0.1)
    shmq.Flow(path).stage(slow, name="slowly").run(range(40), progress=True)
    told = capfd.readouterr().err.splitlines()
    assert len(told) >= 2
    assert told[-1].startswith("slowly: 40 done, 0 waiting, ")
    shmq.Flow(f"{path}2").stage(same).run(range(4))
    assert capfd.readouterr().err == ""


def test_progress_is_a_table_where_rich_is(path, monkeypatch):
    """On a terminal."""
    pytest.importorskip("rich")
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    shmq.Flow(path).stage(slow).run(range(20))
    assert "per second" in screen.getvalue()
    assert "slow" in screen.getvalue()


def test_a_rate_is_taken_over_some_seconds():
    """It comes to what it is, and a line says it."""
    rate = Rate()
    assert rate.per_second(0, now=0.0) == 0
    for second in range(1, 60):
        found = rate.per_second(100 * second, now=float(second))
    assert 99 < found < 101
    stage = shmq.flow.StageSummary("parse", 10, 4, 1)
    assert line([(stage, 2.0)]) == "parse: 6 done, 4 waiting, 2/s, 1 dead"


def test_what_it_came_to_is_kept_whole(path):
    """The same again, from its file."""
    summary = shmq.Flow(path).stage(double).run(range(3))
    again = shmq.Flow(path).stage(double).run(range(3))
    assert again == summary
    assert again.seconds > 0
    assert time.monotonic() > 0


def test_a_queue_that_refuses_ends_the_run(path, tmp_path):
    """And what was not put stays in the queues."""
    with shmq.open(tmp_path / "target") as target:
        target.shutdown()
        with pytest.raises(shmq.flow.StageDied, match="shut down"):
            shmq.Flow(path, codec="bytes").sink(target).run([b"x"] * 10)
        with shmq.open(f"{path}/0.sink", create=False) as queue:
            assert queue.consumers()["stage"].lag == 10


def test_a_full_queue_as_sink_is_waited_for_and_counts_as_no_try(path, tmp_path):
    """Also one that raises instead of waiting."""
    with shmq.open(tmp_path / "target", max_messages=5, full="raise") as target, target.consumer("c") as taker:
        thread = threading.Thread(
            target=lambda: shmq.Flow(path, codec="bytes").sink(target, attempts=1).run([b"%d" % n for n in range(12)])
        )
        thread.start()
        got = [taker.take(timeout=LONG) for _ in range(12)]
        thread.join(LONG)
        assert sorted(got, key=int) == [b"%d" % n for n in range(12)]


def test_a_worker_that_died_on_a_full_disk_before_it_began_is_buried(tmp_path):
    """Found by an attack: its hands were a file without a byte."""
    hand = tmp_path / tries.HANDS / "0.7"
    hand.parent.mkdir()
    hand.touch()
    tries.bury(str(tmp_path), 0, 7)
    assert not hand.exists()
