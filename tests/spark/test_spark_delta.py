"""A pipeline's Delta sink: a batch that is repeated is not appended twice."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")

from shmq.spark import pipeline, spec  # noqa: E402


def test_a_repeated_batch_is_not_appended_twice(tmp_path):
    sink = spec.Sink("lake", "clean", "delta", path=str(tmp_path / "lake"), partition_by=("kind",))
    first = pa.table({"n": [1, 2], "kind": ["a", "b"]})
    assert pipeline.write_delta(first, sink, "app", 0)
    assert pipeline.write_delta(first, sink, "app", 1)
    assert not pipeline.write_delta(first, sink, "app", 1)
    assert not pipeline.write_delta(first, sink, "app", 0)
    assert pipeline.write_delta(first, sink, "another", 0)
    assert sorted(deltalake.DeltaTable(sink.path).to_pyarrow_table()["n"].to_pylist()) == [1, 1, 1, 2, 2, 2]
