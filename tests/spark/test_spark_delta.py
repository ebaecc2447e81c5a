"""A pipeline's Delta sink: a batch that is repeated is not appended twice."""

from __future__ import annotations

import threading
import types

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")

from shmq.spark import pipeline, spec  # noqa: E402


def test_a_repeated_batch_is_not_appended_twice_and_that_is_said(tmp_path, caplog):
    sink = spec.Sink("lake", "clean", "delta", path=str(tmp_path / "lake"), partition_by=("kind",))
    first = pa.table({"n": [1, 2], "kind": ["a", "b"]})
    assert pipeline.write_delta(first, sink, "app", 0)
    assert pipeline.write_delta(first, sink, "app", 1)
    assert caplog.records == []
    assert not pipeline.write_delta(first, sink, "app", 1)
    assert f"{sink.path} has batch 1 of 'app' already (the last is 1)" in caplog.records[0].getMessage()
    assert not pipeline.write_delta(first, sink, "app", 0)
    assert pipeline.write_delta(first, sink, "another", 0)
    assert sorted(deltalake.DeltaTable(sink.path).to_pyarrow_table()["n"].to_pylist()) == [1, 1, 1, 2, 2, 2]


def test_found_batches_are_known_by_the_query_and_not_by_the_pipelines_name_alone(tmp_path):
    """A checkpoint that was deleted begins with batch 0 again: its rows were taken for old ones, for good."""

    class Query:
        """One of Spark's, as far as a sink needs it, which begins a batch before `start` has returned."""

        def __init__(self, name):
            self.id, self.done = name, None

        def foreachBatch(self, write):  # noqa: N802
            batch = types.SimpleNamespace(toArrow=lambda: pa.table({"n": [1]}))
            self.done = threading.Thread(target=write, args=(batch, 0))
            return self

        def start(self):
            self.done.start()
            return self

    sink = spec.Sink("lake", "clean", "delta", path=str(tmp_path / "lake"))
    for name in ("before", "after", "after"):
        pipeline._start_delta(Query(name), sink, "events-lake").done.join()
    assert deltalake.DeltaTable(sink.path).to_pyarrow_table()["n"].to_pylist() == [1, 1]
    assert deltalake.DeltaTable(sink.path).transaction_version("events-lake-before") == 0
