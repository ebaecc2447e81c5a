"""What the source makes of payloads, beside what Spark's own `from_json` makes of them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
import json_values

import shmq

NUMBERS = {kind: number for number, kind in enumerate(json_values.TYPES)}
SHOWN = [f"cast(c{number} as string) c{number}" for number in range(len(json_values.TYPES))]
SCHEMA = ", ".join(
    [*(f"c{number} {each}" for number, each in enumerate(json_values.TYPES)), "z BIGINT, _corrupt STRING"]
)


@pytest.fixture
def zone(spark):
    """Of times that name none."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", json_values.ZONE)
    yield json_values.ZONE
    spark.conf.set("spark.sql.session.timeZone", before)


def both(spark, queue):
    """Each row as text: of the source, and of `from_json`."""
    from pyspark.sql import functions as f

    source = spark.read.format("shmq")
    raw = source.load(queue.path).orderBy("offset")
    parsed = f.from_json(f.col("value").cast("string"), SCHEMA, {"columnNameOfCorruptRecord": "_corrupt"})
    theirs = raw.select(parsed.alias("parsed")).select("parsed.*").selectExpr(*SHOWN, "z", "_corrupt").collect()
    source = spark.read.format("shmq").option("value.format", "json").schema(f"{SCHEMA}, _offset BIGINT")
    ours = source.load(queue.path).orderBy("_offset").selectExpr(*SHOWN, "z", "_corrupt").collect()
    return ours, theirs


def test_found_every_value_is_read_into_every_type_as_from_json_reads_it(spark, queue, zone):
    """A field that did not fit took its row with it; and numbers as text, seconds as times and local times did not."""
    given = [(kind, value) for kind in json_values.TYPES for value in json_values.VALUES]
    queue.put_many([f'{{"c{NUMBERS[kind]}":{value},"z":7}}'.encode() for kind, value in given] + json_values.WHOLE)
    ours, theirs = both(spark, queue)
    assert len(ours) == len(given) + len(json_values.WHOLE)
    for pair, mine, right in zip([*given, *json_values.WHOLE], ours, theirs, strict=True):
        if pair not in json_values.OTHERWISE:
            assert (pair, mine) == (pair, right)


def test_where_from_json_loses_something_the_payload_is_told(spark, queue, zone):
    queue.put_many([f'{{"c{NUMBERS[kind]}":{value},"z":7}}'.encode() for kind, value in json_values.OTHERWISE])
    queue.put_many(json_values.STRICTER)
    ours, theirs = both(spark, queue)
    for (kind, value), mine, right in zip(json_values.OTHERWISE, ours, theirs, strict=False):
        assert mine != right
        if kind != "STRING":
            assert (mine[NUMBERS[kind]], mine.z, mine["_corrupt"] is None) == (None, 7, False), value
    for payload, mine, right in zip(json_values.STRICTER, ours[-len(json_values.STRICTER) :], theirs[-9:], strict=True):
        assert right["_corrupt"] is None
        assert mine["_corrupt"] == payload.decode("utf-8", "replace")
        assert set(mine[:-1]) == {None}


COLUMNS = {
    "b": ("BINARY", "X'00ff'"),
    "d": ("DATE", "date'2013-01-02'"),
    "n": ("DECIMAL(20,5)", "cast(12345.67890 as DECIMAL(20,5))"),
    "t": ("TIMESTAMP", "timestamp'2013-01-02 03:04:05.678901'"),
    "m": ("MAP<STRING, DOUBLE>", "map('a', 1.5D, 'b', double('NaN'))"),
    "x": ("TIMESTAMP_NTZ", "timestamp_ntz'0001-02-03 04:05:06.789'"),
    "l": (
        "ARRAY<STRUCT<d DATE, k MAP<DATE, BINARY>>>",
        "array(struct(date'2013-01-02' d, map(date'1999-12-31', X'ff') k))",
    ),
}


def some_rows(spark, *names):
    """Two: with values in all of these columns, and with nulls; and their schema."""
    chosen = {name: COLUMNS[name] for name in names or COLUMNS}
    rows = spark.sql(
        f"select {', '.join(f'{value} {name}' for name, (_, value) in chosen.items())} "
        f"union all select {', '.join(f'cast(null as {kind})' for kind, _ in chosen.values())}"
    )
    return rows, ", ".join(f"{name} {kind}" for name, (kind, _) in chosen.items())


def same(rows, others):
    return sorted(map(repr, rows.collect())) == sorted(map(repr, others.collect()))


@pytest.mark.parametrize("kind", ["json", "msgpack", "arrow"])
def test_found_what_the_sink_writes_comes_back_equal(spark, path, kind):
    """Of BINARY, DATE, DECIMAL and MAP, not one did in both formats."""
    rows, schema = some_rows(spark)
    rows.write.format("shmq").option("value.format", kind).mode("append").save(path)
    assert same(spark.read.format("shmq").option("value.format", kind).schema(schema).load(path), rows)


@pytest.mark.parametrize("names", ["bdntmx", "l"])
def test_found_what_spark_itself_makes_json_of_comes_back_equal(spark, path, zone, names):
    """Times lost their microseconds. Maps with days as keys are made in Python: Spark writes numbers there."""
    rows, schema = some_rows(spark, *names)
    rows = rows.selectExpr("*", "'k' as _key", "cast(7 as int) as _type")
    shmq.spark.write(rows, path, value="json")
    with shmq.open(path, create=False, read_only=True) as queue:
        first = max(queue[:], key=lambda message: len(message.payload))
    assert (first.key, first.type) == (b"k", 7)
    assert (b'"n":12345.67890' in first.payload) == (names != "l")
    reader = spark.read.format("shmq").option("value.format", "json").schema(f"{schema}, _key BINARY, _type INT")
    assert same(reader.load(path), rows.withColumn("_key", rows["_key"].cast("binary")))
