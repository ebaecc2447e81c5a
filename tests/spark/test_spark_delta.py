"""A pipeline's Delta sink: a batch that is repeated is not appended twice, and one may be of any size."""

from __future__ import annotations

import threading
import types

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")

from shmq.spark import delta, deltasink, pipeline, spec  # noqa: E402


def test_found_batches_are_known_by_the_query_and_not_by_the_pipelines_name_alone(tmp_path, monkeypatch):
    """A checkpoint that was deleted begins with batch 0 again: its rows were taken for old ones, for good."""

    class Query:
        """One of Spark's, as far as a sink needs it, which begins a batch before `start` has returned."""

        def __init__(self, name):
            self.id, self.done = name, None

        def foreachBatch(self, write):  # noqa: N802
            self.done = threading.Thread(target=write, args=(types.SimpleNamespace(), 0))
            return self

        def start(self):
            self.done.start()
            return self

    told = []
    monkeypatch.setattr(deltasink, "append", lambda _, path, by, app, number: told.append((path, by, app, number)))
    sink = spec.Sink("lake", "clean", "delta", path=str(tmp_path / "lake"), partition_by=("kind",))
    for name in ("before", "after"):
        pipeline._start_delta(Query(name), sink, "events-lake").done.join()
    assert told == [(sink.path, ("kind",), f"events-lake-{name}", 0) for name in ("before", "after")]


def test_rows_that_come_as_arrow_are_appended_once_behind_others(tmp_path, monkeypatch):
    """As into an object store, where Spark by itself cannot write."""
    rows = pa.table({"n": pa.array([1, 2], pa.int64())})
    table = delta.Table.create(str(tmp_path / "lake"), rows.schema, [])
    assert table.append(rows, "app", 0)
    assert not table.append(rows, "app", 0)
    deltalake.write_deltalake(table.path, rows, mode="append")  # somebody else, since that was read
    assert table.append(rows, "app", 1)
    assert not table.append(rows, "app", 1)
    assert not delta.Table(table.path).append(rows, "app", 0)
    assert deltalake.DeltaTable(table.path).to_pyarrow_table().num_rows == 6
