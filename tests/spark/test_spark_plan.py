"""What is asked for, how far, and cut into tasks: all of the source that needs neither Spark nor a queue."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmq.spark import offsets, options, plan

RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


# ---------------------------------------------------------------- options
def test_an_option_that_is_not_known_names_its_neighbours():
    with pytest.raises(options.BadOption, match="no option 'maxOffsetPerTrigger'; did you mean maxOffsetsPerTrigger"):
        options.source_options({"queue": "q", "maxOffsetPerTrigger": "5"})


def test_options_come_in_lower_case_from_spark():
    found = options.source_options({"path": "/q", "maxoffsetspertrigger": "1_000", "failondataloss": "FALSE"})
    assert (found.queue, found.max_rows, found.fail_on_loss) == ("/q", 1000, False)


def test_what_spark_puts_beside_the_options_is_passed_over():
    found = options.sink_options({"path": "/q", "checkpointlocation": "/c", "queryname": "hours"})
    assert found == options.SinkOptions(queue="/q")


def test_queue_comes_before_path():
    for given_options in ({"queue": "/a", "path": "/b"}, {"path": "/b", "queue": "/a"}):
        assert options.source_options(given_options).queue == "/a"


@pytest.mark.parametrize(
    ("given_options", "said"),
    [
        ({}, "needs to know the queue"),
        ({"queue": "q", "mode": "lenient"}, "one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"queue": "q", "startingOffsets": "yesterday"}, "startingOffsets='yesterday'"),
        ({"queue": "q", "startingOffsets": '{"a": 5}'}, "JSON like"),
        ({"queue": "q", "subscribe": "a", "assign": '{"a": [0]}'}, "one is enough"),
        ({"queue": "q", "value.format": "struct"}, "needs value.dtype"),
        ({"queue": "q", "maxOffsetsPerTrigger": "0"}, "at least 1"),
    ],
)
def test_what_cannot_be_is_said(given_options, said):
    with pytest.raises(options.BadOption) as problem:
        options.source_options(given_options)
    assert said in str(problem.value)


def test_offsets_are_given_as_for_kafka():
    found = options.source_options({"queue": "q", "startingOffsets": '{"orders": {"0": 23, "1": -2}}'})
    assert found.starting == {"orders": {"0": 23, "1": -2}}


@pytest.mark.parametrize(("word", "value"), [("30s", 30), ("15m", 900), ("200ms", 0.2), ("6 hours", 21600), ("7", 7)])
def test_durations(word, value):
    assert options.seconds(word) == pytest.approx(value)


# ---------------------------------------------------------------- offsets
def test_offsets_survive_the_checkpoint():
    mine = offsets.Offsets("g", "/data", {("a", 0): offsets.Place("ff", 7), ("a", 1): offsets.Place("ee", 0)})
    assert offsets.Offsets.from_json(mine.to_json()) == mine
    assert mine.to_json()["queues"]["a"]["0"] == {"id": "ff", "next": 7}


def test_offsets_of_a_newer_version_are_refused():
    with pytest.raises(ValueError, match="version 2"):
        offsets.Offsets.from_json({"v": 2})


SHARDS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


@RELAXED
@given(SHARDS, st.integers(1, 3000))
def test_a_limit_is_kept_and_shared_out_in_proportion(shards, most):
    start = {key: low for key, (low, _) in shards.items()}
    end = {key: low + more for key, (low, more) in shards.items()}
    total = sum(end.values()) - sum(start.values())
    found = offsets.limited(start, end, most)
    taken = {key: found[key] - start[key] for key in found}
    assert sum(taken.values()) == min(most, total)  # a batch is as large as it may be
    for key, stop in end.items():
        waiting = stop - start[key]
        assert 0 <= taken[key] <= waiting
        if total > most:
            assert abs(taken[key] - waiting * most / total) <= len(shards)


def test_no_shard_starves():
    start = {("a", 0): 0, ("a", 1): 0}
    found = offsets.limited(start, {("a", 0): 1_000_000, ("a", 1): 1}, 10)
    assert found == {("a", 0): 9, ("a", 1): 1}


# ---------------------------------------------------------------- planning
def stretch(name, *runs, spacing=64):
    return plan.Stretch(name, 0, f"/{name}", spacing, [plan.Run(*run) for run in runs])


def test_small_shards_become_one_task():
    shards = [stretch(name, (0, 0, 100, 10_000)) for name in "abcdef"]
    tasks = plan.cut(shards, rows=1_000_000, processors=2)
    assert [len(task) for task in tasks] == [6]


def test_neighbouring_chunks_become_one_piece():
    (task,) = plan.cut([stretch("a", (0, 5, 100, 1000), (100, 100, 300, 1000))], rows=1_000_000)
    assert task == [plan.Piece("a", 0, "/a", 5, 300, 2000)]


def test_a_large_chunk_is_cut_at_its_index_entries():
    tasks = plan.cut([stretch("a", (7, 7, 100_007, 64 << 20))], rows=1_000_000, processors=4)
    cuts = [task[0].start for task in tasks[1:]]
    assert len(tasks) == 4
    assert all((cut - 7) % 64 == 0 for cut in cuts)


RUNS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 64 << 20)), min_size=1, max_size=8)


@RELAXED
@given(st.lists(RUNS, min_size=1, max_size=4), st.integers(1, 800), st.integers(1, 6), st.integers(1, 4))
def test_every_index_is_in_exactly_one_task(shards, rows, least, processors):
    stretches, expected = [], {}
    for number, runs in enumerate(shards):
        at, made = 10, []
        for count, nbytes in runs:
            made.append((at, at, at + count, nbytes))
            at += count
        stretches.append(stretch(f"s{number}", *made))
        expected[f"/s{number}"] = list(range(10, at))
    tasks = plan.cut(stretches, rows=rows, least=least, processors=processors)
    seen = {}
    for task in tasks:
        for piece in task:
            seen.setdefault(piece.path, []).extend(range(piece.start, piece.stop))
    assert seen == expected  # each once, and in order
    total = sum(map(len, expected.values()))
    assert len(tasks) >= min(least, total // 64 // 4)


def test_nothing_to_read_is_no_task():
    assert plan.cut([stretch("a")], rows=10) == []


def test_what_waits_is_the_difference_of_two_offsets():
    def at(a, b, other="x"):
        places = {("q", 0): offsets.Place("x", a), ("q", 1): offsets.Place(other, b)}
        return offsets.Offsets("g", "/q", places).to_json()

    assert offsets.behind(at(3, 5), at(10, 6)) == 8
    assert offsets.behind(at(3, 5), at(3, 5)) == 0
    assert offsets.behind(at(3, 5), at(10, 6, "another queue")) == 7


def test_bars_say_what_came_through_and_what_waits(capsys):
    from shmq.cli.pipeline import Bars, bar

    assert bar(50, 50) == "[" + "#" * 15 + "." * 15 + "]  50% 50 of 100"
    assert bar(0, 0).endswith("100% 0 of 0")
    bars = Bars()
    for rows, behind in ((10, 30), (20, 10), (0, 0)):
        bars.batch({"sink": "lake", "rows": rows, "rows_per_second": 5, "behind": behind})
    last = capsys.readouterr().out.splitlines()[-1]
    assert "100% 30 of 30 5 rows/s" in last
