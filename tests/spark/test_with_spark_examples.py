"""The examples of the Spark pages do what they say, on a log like that of a real machine."""

from __future__ import annotations

import json
import runpy
import sys
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
