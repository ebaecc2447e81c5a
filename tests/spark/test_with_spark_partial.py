"""Sums and counts that begin in the reading task are those of Spark's own group-by, whatever is in the columns."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
import random
import re
import shutil

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")

import shmq  # noqa: E402
from shmq.spark import options  # noqa: E402

LARGEST = (1 << 63) - 1
SCHEMA = """kind STRING, n BIGINT, i INT, s SMALLINT, d DECIMAL(10,2), e DECIMAL(38,2), x DOUBLE, f FLOAT, b BOOLEAN,
    t TIMESTAMP, day DATE, raw BINARY"""
ARROW = pa.schema(
    [
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("d", pa.decimal128(10, 2)),
        ("e", pa.decimal128(38, 2)),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
    ]
)
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)


def rows(count, seed):
    """Of every kind, with nulls, and with what is at the edge of its kind."""
    dice = random.Random(seed)

    def one_of(*values):
        return None if dice.random() < 0.2 else dice.choice(values)

    return [
        {
            "kind": one_of("a", "b", "", "ä"),
            "n": one_of(-5, 0, 3, -(10**15), 10**15),
            "i": one_of(-(2**31), 2**31 - 1, 7),
            "s": one_of(-(2**15), 2**15 - 1, 1),
            "d": one_of(decimal.Decimal("-99999999.99"), decimal.Decimal("0.01"), decimal.Decimal("12.50")),
            "e": one_of(decimal.Decimal(10) ** 33, decimal.Decimal("-0.01"), decimal.Decimal(7)),
            "x": one_of(1.5, -2.25, 0.0, -0.0, math.inf, math.nan),
            "f": one_of(0.5, -0.25, math.nan),
            "b": one_of(True, False),
            "t": one_of(NOON, NOON - datetime.timedelta(days=20_000), NOON + datetime.timedelta(seconds=1)),
            "day": one_of(NOON.date(), datetime.date(1969, 12, 31)),
            "raw": one_of(b"", b"\xff", b"a"),
        }
        for _ in range(count)
    ]


def put(queue, given):
    """As Arrow, some rows a message."""
    for at in range(0, len(given), 100):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ARROW) as stream:
            stream.write_table(pa.Table.from_pylist(given[at : at + 100], schema=ARROW))
        queue.put(sink.getvalue().to_pybytes())


@pytest.fixture
def sharded(tmp_path):
    """Three shards, of which one is empty."""
    (tmp_path / "q").mkdir()
    for number in range(3):
        with shmq.open(tmp_path / "q" / f"1.00{number}") as queue:
            put(queue, rows(700, number) if number < 2 else [])
    return str(tmp_path / "q")


def plainly(spark, path, by, sums, counts, where):
    """The same by Spark alone."""
    frame = spark.read.format("shmq").option("value.format", "arrow").schema(SCHEMA).load(path)
    frame.where(where or "true").createOrReplaceTempView("plain")
    wanted = [*by, *(f"sum({n}) as sum_{n}" for n in sums)]
    wanted += [f"count({n}) as {'count' if n == '*' else f'count_{n}'}" for n in counts]
    return spark.sql(f"select {', '.join(wanted)} from plain {f'group by {chr(44).join(by)}' if by else ''}")


def ours(spark, path, by, sums, counts, where=()):
    given = {"schema": SCHEMA, "spark": spark, "value.format": "arrow"}
    return shmq.spark.aggregate(path, by=by, sums=sums, counts=counts, where=where, **given)


def content(frame):
    """Its rows in some order that is always the same; floating point as near as sums of it are."""

    def near(value):
        if not isinstance(value, float):
            return value
        return "nan" if math.isnan(value) else value if math.isinf(value) else round(value + 0.0, 6)

    return sorted((tuple(map(near, row)) for row in frame.collect()), key=repr)


ALL_SUMS = ["n", "i", "s", "d", "e", "x", "f"]


@pytest.mark.parametrize(
    ("by", "sums", "counts", "where", "sql"),
    [
        (["kind"], ALL_SUMS, ["*", "n", "x"], [], ""),
        ([], ALL_SUMS, ["*", "kind"], [], ""),
        (["x"], ["n"], ["*"], [], ""),
        (["b", "day", "raw"], ["d"], ["*"], [], ""),
        (["t", "d", "e"], [], ["*"], [], ""),
        (["kind"], ["n"], ["n"], [("n", ">", 0)], "n > 0"),
        (["kind"], ["n", "x"], ["*", "n"], [("n", "is", None), ("x", "is", None)], "n is null and x is null"),
        (["kind"], ["n"], ["*"], [("x", ">=", 1), ("x", "!=", 1.5)], "x >= 1 and x != 1.5"),
        (["kind"], [], ["*"], [("x", "<", 1.5)], "x < 1.5"),
        (["kind"], [], ["*"], [("kind", "in", ["a", "ä"])], "kind in ('a', 'ä')"),
        (["b"], [], ["*"], [("n", "not in", [3, -5])], "n not in (3, -5)"),
        (["b"], [], ["*"], [("kind", "is", None), ("n", "is not", None)], "kind is null and n is not null"),
        (["kind"], [], ["*"], [("b", "=", True), ("f", ">", 0.25)], "b = true and f > 0.25D"),
        (["kind"], [], ["*"], [("t", "<=", NOON)], "t <= timestamp'2024-01-01T12:00:00Z'"),
        (["kind"], [], ["*"], [("day", "<", datetime.date(1970, 1, 1))], "day < date'1970-01-01'"),
        (["kind"], [], ["*"], [("d", "=", decimal.Decimal("12.5")), ("raw", "!=", b"a")], "d = 12.5 and raw != x'61'"),
        (["kind"], [], ["*"], [("d", ">", 0), ("n", "<", 2.5)], "d > 0 and n < 2.5"),
        (["kind"], ["n"], ["*"], [("n", ">", LARGEST - 1)], f"n > {LARGEST - 1}"),
    ],
)
def test_it_is_what_sparks_own_group_by_gives(spark, sharded, by, sums, counts, where, sql):
    found, expected = ours(spark, sharded, by, sums, counts, where), plainly(spark, sharded, by, sums, counts, sql)
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in expected.schema]
    assert content(found) == content(expected)


def test_of_an_empty_queue_there_is_what_spark_has(spark, tmp_path):
    path = str(tmp_path / "q")
    shmq.open(path).close()
    assert ours(spark, path, ["kind"], ["n"], ["*"]).collect() == []
    assert content(ours(spark, path, [], ["n"], ["*", "n"])) == [(None, 0, 0)]
    assert content(plainly(spark, path, [], ["n"], ["*", "n"], "")) == [(None, 0, 0)]


def of(path, **columns):
    ((name, values),) = columns.items()
    empty = dict.fromkeys(ARROW.names)
    with shmq.open(path) as queue:
        put(queue, [{**empty, name: value} for value in values])
    return str(path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", [LARGEST, 1]),
        ("n", [-LARGEST - 1, -1]),
        ("e", [decimal.Decimal("9" * 36), decimal.Decimal(1)]),
    ],
)
def test_a_sum_that_does_not_fit_is_sparks_own_error(spark, tmp_path, name, values):
    path = of(tmp_path / "q", **{name: values})
    for frame in (plainly(spark, path, [], [name], [], ""), ours(spark, path, [], [name], [])):
        with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE"):
            frame.collect()
    exactly = of(tmp_path / "fits", n=[LARGEST - 3, 1, 2])
    assert content(ours(spark, exactly, [], ["n"], [])) == [(LARGEST,)]


def test_kafkas_columns_are_there_without_a_schema(spark, some):
    found = shmq.spark.aggregate(some.path, by=["key", "partition"], sums=["offset"], counts=["*"], spark=spark)
    plain = spark.read.format("shmq").load(some.path)
    assert content(found) == content(
        plain.groupBy("key", "partition")
        .agg({"offset": "sum", "*": "count"})
        .select("key", "partition", "sum(offset)", "count(1)")
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing is asked for"),
        ({"by": ["nothing"]}, "there is no column 'nothing'; there are key"),
        ({"sums": ["key"]}, "only numbers are added up"),
        ({"by": ["headers"]}, "no plain value"),
        ({"sums": ["offset", "offset"]}, "two columns called sum_offset"),
        ({"counts": ["*"], "where": [("offset", "like", 3)]}, "no operator 'like'; there are ="),
        ({"counts": ["*"], "where": [("offset", "=", "3")]}, "'3' is a str, and the column is int64"),
        ({"counts": ["*"], "where": [("offset", "=", None)]}, "say (column, 'is', None)"),
        ({"counts": ["*"], "where": [("offset", "=", 1 << 64)]}, "where ('offset', '=', 18446744073709551616)"),
    ],
)
def test_what_cannot_be_added_up_is_said_before_anything_is_read(spark, some, given, said):
    with pytest.raises(options.BadOption) as problem:
        shmq.spark.aggregate(some.path, spark=spark, **given)
    assert said in str(problem.value)


def put_numbers(path, *numbers):
    with shmq.open(path) as queue:
        put(queue, [{**dict.fromkeys(ARROW.names), "n": number} for number in numbers])
    return str(path)


def test_what_was_there_when_it_was_asked_for_is_added_up(spark, tmp_path):
    path = put_numbers(tmp_path / "q", 1, 2)
    found = ours(spark, path, [], ["n"], ["*"])
    put_numbers(path, 4)
    assert content(found) == [(3, 2)]
    assert content(found) == [(3, 2)]
    assert content(ours(spark, path, [], ["n"], ["*"])) == [(7, 3)]


def test_it_is_cut_where_the_source_is_told_to(spark, sharded):
    given = {"schema": SCHEMA, "spark": spark, "value.format": "arrow", "rowsPerPartition": 3}
    found = shmq.spark.aggregate(sharded, by=["kind"], sums=["n"], **given)
    assert content(found) == content(plainly(spark, sharded, ["kind"], ["n"], [], ""))
    tasks = re.findall(r"Range .*splits=Some\((\d+)\)", found._jdf.queryExecution().toString())
    assert {int(each) >= 6 for each in tasks} == {True}  # seven messages in each of two shards


def test_a_task_adds_up_the_queue_that_was_meant_and_no_other(spark, tmp_path):
    path = put_numbers(tmp_path / "q", 1, 2)
    found = ours(spark, path, [], ["n"], [])
    shutil.rmtree(path)
    put_numbers(path, 4, 8)
    with pytest.raises(Exception, match=r"is meant\. It was deleted, and perhaps made again"):
        found.collect()


def test_what_is_not_there_is_said_at_once(spark, some, tmp_path):
    with pytest.raises(shmq.NotFound, match="there is no queue there"):
        shmq.spark.aggregate(str(tmp_path / "none"), counts=["*"], spark=spark)
    some.purge()
    begin = {"startingOffsets": json.dumps({os.path.basename(some.path): {"0": 0}})}
    with pytest.raises(shmq.Gone, match=r"were retired\. Nothing was read"):
        shmq.spark.aggregate(some.path, counts=["*"], spark=spark, **begin)
    left = shmq.spark.aggregate(some.path, counts=["*"], spark=spark, failOnDataLoss=False, **begin)
    assert content(left) == [(some.next_index - some.first_index,)]
