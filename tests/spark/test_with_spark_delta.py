"""The Delta sink on a real Spark: each batch once, of any size, and nothing left of what was not committed."""

from __future__ import annotations

import os

import pytest

import shmq

deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")

from shmq.spark import delta, deltasink  # noqa: E402

KINDS = "array('a b', 'x/y=%', 'é', null)[id % 4] as kind"


def found(path):
    return sorted(row["n"] for row in deltalake.DeltaTable(path).to_pyarrow_table().to_pylist())


def test_a_repeated_batch_is_not_appended_twice_and_that_is_said(spark, tmp_path, caplog):
    path = str(tmp_path / "lake")
    batch = spark.range(0, 8, 1, 3).selectExpr("id as n", KINDS)
    assert deltasink.append(batch, path, ["kind"], "app", 0)
    assert deltasink.append(batch, path, ["kind"], "app", 1)
    assert caplog.records == []
    assert not deltasink.append(batch, path, ["kind"], "app", 1)
    assert f"{path} has batch 1 of 'app' already (the last is 1)" in caplog.records[0].getMessage()
    assert not deltasink.append(batch, path, ["kind"], "app", 0)
    assert deltasink.append(batch, path, ["kind"], "another", 0)
    assert found(path) == sorted(3 * list(range(8)))
    kinds = {row["n"]: row["kind"] for row in deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert [kinds[n] for n in range(4)] == ["a b", "x/y=%", "é", None]


def test_found_a_batch_is_never_on_the_driver(spark, tmp_path, monkeypatch):
    """One that did not fit there failed, and was the same one when the query was started again: for good."""
    from pyspark.sql.classic.dataframe import DataFrame

    monkeypatch.setattr(DataFrame, "toArrow", lambda _: pytest.fail("on the driver"))
    monkeypatch.setattr(DataFrame, "collect", lambda _: pytest.fail("on the driver"))
    path = str(tmp_path / "lake")
    batch = spark.range(0, 100_000, 1, 4).selectExpr("id as n", "timestamp_seconds(id) as at")
    assert deltasink.append(batch, path, [], "app", 0)
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 100_000
    parts = delta.Table(path).parts()
    assert sum(each.rows for each in parts) == 100_000
    assert min(each.low["n"] for each in parts) == 0
    assert max(each.high["at"] for each in parts).timestamp() == 99_999


def test_what_was_written_for_nothing_goes_with_the_batch(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "lake")
    batch = spark.range(0, 8, 1, 1).selectExpr("id as n")

    def killed(*_):
        raise KeyboardInterrupt  # nothing tidies up behind a kill

    with monkeypatch.context() as patch:
        patch.setattr(delta.Table, "once", killed)
        with pytest.raises(KeyboardInterrupt):
            deltasink.append(batch, path, [], "app", 0)
    assert [name for name in os.listdir(path) if name.startswith("app-0-")] != []
    assert deltasink.append(batch, path, [], "app", 0)
    assert len([name for name in os.listdir(path) if name.startswith("app-0-")]) == 1
    assert found(path) == list(range(8))
    once = delta.Table.once

    def behind(*given):
        once(*given)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(delta.Table, "once", behind)
        with pytest.raises(OSError, match="No space"):
            deltasink.append(batch, f"{path}.other", [], "app", 0)
    assert found(f"{path}.other") == list(range(8))
    with monkeypatch.context() as patch:
        patch.setattr(delta.Table, "once", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            deltasink.append(batch, path, [], "app", 1)
    assert [name for name in os.listdir(path) if name.startswith("app-1-")] == []


def test_rows_of_other_columns_are_refused_and_an_empty_batch_is_one(spark, tmp_path):
    path = str(tmp_path / "lake")
    assert deltasink.append(spark.range(0).selectExpr("id as n"), path, [], "app", 0)
    assert not deltasink.append(spark.range(9).selectExpr("id as n"), path, [], "app", 0)
    with pytest.raises(shmq.Mismatch, match="have a column m bigint, and it has n"):
        deltasink.append(spark.range(9).selectExpr("id as m"), path, [], "app", 1)
    with pytest.raises(shmq.Mismatch, match="have a column n string, and it has it as bigint"):
        deltasink.append(spark.range(9).selectExpr("string(id) as n"), path, [], "app", 1)
    assert found(path) == []
