"""The examples of the Spark pages do what they say, on a log like that of a real machine."""

from __future__ import annotations

import ast
import inspect
import json
import runpy
import sys
import textwrap
from pathlib import Path

import pytest

import shmq
from shmq.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
LOG = b"""\
2025-06-24 14:36:25 startup archives unpack
2025-06-24 14:36:25 upgrade libc6:amd64 2.35-1 2.36-9
2025-06-24 14:36:25 status half-configured libc6:amd64 2.35-1
2025-06-24 14:36:26 status installed libc6:amd64 2.36-9
2025-06-24 14:36:27 status installed zlib1g:amd64 1:1.2.13
no line of a log
2025-06-24 17:00:00 status installed curl:amd64 7.88.1
2025-06-24 19:00:00 status installed jq:amd64 1.6"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the example lies, with its queue."""
    (tmp_path / "packages.toml").write_bytes((EXAMPLES / "packages.toml").read_bytes())
    with shmq.open(tmp_path / "packages.q") as queue:
        queue.put_many(LOG.splitlines())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


def test_the_pipeline_on_a_real_log(spark, place, capsys):
    import pyarrow.parquet as pq

    for _ in range(2):  # the second finds nothing new, and closes no window twice
        assert main(["pipeline", "run", "packages.toml", "--once", "--json"]) == 0, capsys.readouterr().err
    history = pq.read_table(place / "packages.parquet").to_pylist()
    assert sorted((row["package"], row["state"], row["version"]) for row in history) == [
        ("curl", "installed", "7.88.1"),
        ("jq", "installed", "1.6"),
        ("libc6", "half-configured", "2.35-1"),
        ("libc6", "installed", "2.36-9"),
        ("zlib1g", "installed", "1:1.2.13"),
    ]
    assert payloads("packages-strange.q") == [b"no line of a log"]
    hours = [json.loads(each) for each in payloads("packages-hours.q")]
    assert sorted((each["hour"][11:13], each["state"], each["n"]) for each in hours) == [
        ("14", "half-configured", 1),
        ("14", "installed", 2),
        ("17", "installed", 1),
    ]


def test_the_notebook_plots(spark, place, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="pip install 'shmq[demo]'")
    with shmq.open(place / "dates") as queue:
        queue.put_many([line for line in LOG.splitlines() if line.startswith(b"2025")])
    monkeypatch.setattr(sys, "argv", ["plot.py", str(place / "dates"), str(place / "hours.png")])
    runpy.run_path(str(EXAMPLES / "plot.py"))
    assert capsys.readouterr().out.splitlines()[-1] == "7 lines of 3 hours"
    assert (place / "hours.png").read_bytes().startswith(b"\x89PNG")


def test_the_numbered_example_prints_what_it_says(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shmq.spark, "session", lambda: spark)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # it is everybody's here
    example = EXAMPLES.parent / "28_spark.py"
    runpy.run_path(str(example))
    said = inspect.cleandoc(ast.get_docstring(ast.parse(example.read_text()))).partition("Prints:\n")[2]
    assert capsys.readouterr().out.splitlines() == textwrap.dedent(said).splitlines()
    assert list(tmp_path.iterdir()) == []


def test_found_the_first_example_of_the_page_runs(spark, tmp_path):
    """Spark refused its stream: "shmq does not support Update mode", as it says of every sink in Python."""
    page = (Path(__file__).parents[2] / "docs" / "spark" / "README.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    for place in ('"orders"', '"totals"', '"checkpoints/totals"'):  # Spark's processes are in the folder they began in
        assert place in example
        example = example.replace(place, f'"{tmp_path}/{place[1:]}')
    with shmq.open(tmp_path / "orders", codec="json") as orders:
        orders.put({"user": 1, "amount": 1.0})
        names: dict[str, object] = {}
        exec(example, names)
        query = names["query"]
        try:
            query.processAllAvailable()  # it has begun, at the end
            for amount in (2.0, 3.0):
                orders.put({"user": 7, "amount": amount})
                query.processAllAvailable()
        finally:
            query.stop()
    assert [json.loads(each) for each in payloads(tmp_path / "totals")] == [
        {"user": 7, "sum(amount)": n} for n in (2.0, 5.0)
    ]


def test_found_a_sink_that_updates_has_each_batch_once(spark, tmp_path, capsys):
    """The dry run recommended mode = "update", and the run ended with what Spark says of it."""
    with shmq.open(tmp_path / "q") as queue:
        queue.put_many([b'{"k":"a"}', b'{"k":"b"}'])
        (tmp_path / "p.toml").write_text("""
            [pipeline]
            name = "counts"
            checkpoint = "checkpoint"
            [source.q]
            queue = "q"
            value = "json"
            schema = "k STRING"
            group = "counts"
            [step.counted]
            from = "q"
            sql = "select k, count(*) as n from q group by k"
            [sink.counts]
            from = "counted"
            format = "shmq"
            queue = "counts"
            mode = "update"
            key = "k"
        """)
        run = ["pipeline", "run", str(tmp_path / "p.toml"), "--once", "--json"]
        expected = [{"k": "a", "n": 1}, {"k": "b", "n": 1}, {"k": "a", "n": 2}]
        for new in ([], [b'{"k":"a"}']):
            queue.put_many(new)
            assert main(run) == 0, capsys.readouterr().err
        for name in ("1", ".1.crc"):  # as if killed before Spark's own record of its last batch
            (tmp_path / "checkpoint" / "counts" / "commits" / name).unlink()
        assert main(run) == 0, capsys.readouterr().err
    found = [json.loads(each) for each in payloads(tmp_path / "counts")]
    assert sorted(found[:2], key=str) == expected[:2]
    assert found[2:] == expected[2:]
    with shmq.open(tmp_path / "counts", create=False, read_only=True) as counts:
        assert counts[2].key == b"a"
