"""A job that wrote into Kafka: topics are queues in a directory, rows without a value are tombstones."""

from __future__ import annotations

import os

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")

from pyspark.sql import datasource as api  # noqa: E402
from pyspark.sql import types as t  # noqa: E402

import shmq  # noqa: E402
from shmq.spark import options, places, sink, source  # noqa: E402

VALUE = t.StructType([t.StructField("key", t.BinaryType()), t.StructField("value", t.BinaryType())])
ROUTED = t.StructType([*VALUE.fields, t.StructField("topic", t.StringType())])
ROWS = {"key": [b"1", b"2", b"3", b"4"], "value": [b"a", b"b", b"c", b"d"], "topic": ["x", "y", "x", "z"]}


def writer(root, schema=VALUE, **given):
    given = {"queue": str(root), "txnAppId": "app", **given}
    return sink.stream_writer(api.CaseInsensitiveDict(given), schema, overwrite=False)


def task(mine, **columns):
    return mine.write(iter([pa.record_batch(columns)]))


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


def test_the_option_topic_names_a_queue_in_a_directory(tmp_path):
    mine = writer(tmp_path / "root", topic="orders")
    mine.commit([task(mine, key=[b"k"], value=[b"a"])], 0)
    assert payloads(tmp_path / "root" / "orders") == [b"a"]
    mine = writer(tmp_path / "root", ROUTED, topic="bills")  # it comes before the column
    mine.commit([task(mine, **ROWS)], 0)
    assert payloads(tmp_path / "root" / "bills") == [b"a", b"b", b"c", b"d"]
    with pytest.raises(options.BadOption, match="is a queue itself"):
        writer(tmp_path / "root" / "orders", topic="orders")


def test_a_column_topic_sends_each_row_to_its_queue_and_a_repeated_batch_once(tmp_path):
    shmq.open(tmp_path / "y").close()
    for _ in range(2):
        mine = writer(tmp_path, ROUTED)
        messages = [task(mine, **ROWS), task(mine, key=[b"5"], value=[b"e"], topic=["x"])]
        mine.commit(messages, 0)
        assert payloads(tmp_path / "x") == [b"a", b"c", b"e"]
        assert payloads(tmp_path / "y") == [b"b"]
        assert payloads(tmp_path / "z") == [b"d"]
    for name in "xyz":
        with shmq.open(tmp_path / name) as queue:
            assert queue.staged_sets() == []


def test_a_topic_may_have_shards(tmp_path):
    (tmp_path / "x").mkdir()
    for number in range(2):
        shmq.open(tmp_path / "x" / f"0.00{number}").close()
    schema = t.StructType([*ROUTED.fields, t.StructField("partition", t.IntegerType())])
    mine = writer(tmp_path, schema)
    mine.commit([task(mine, **ROWS, partition=pa.array([0, 0, 1, 0], pa.int32()))], 0)
    assert payloads(tmp_path / "x" / "0.000") == [b"a"]
    assert payloads(tmp_path / "x" / "0.001") == [b"c"]


def test_fields_of_payloads_may_be_called_topic(tmp_path):
    schema = t.StructType([t.StructField("topic", t.StringType()), t.StructField("_topic", t.StringType())])
    mine = writer(tmp_path, schema, **{"value.format": "json"})
    mine.commit([task(mine, topic=["art"], _topic=["x"])], 0)
    assert payloads(tmp_path / "x") == [b'{"topic":"art"}']


def test_straight_into_the_queues_of_their_topics(tmp_path):
    mine = writer(tmp_path, ROUTED, delivery="at_least_once")
    task(mine, **ROWS)
    assert payloads(tmp_path / "x") == [b"a", b"c"]


@pytest.mark.parametrize("name", ["../out", "/out", ".", "..", "", "a/b", "1.000", "p.f.00a", "x" * 250, "a\n"])
def test_no_topic_leads_out_of_the_directory_or_makes_a_shard_of_it(tmp_path, name):
    root = tmp_path / "root"
    root.mkdir()
    mine = writer(root, ROUTED)
    with pytest.raises(options.BadOption, match="is not a topic"):
        task(mine, key=[b"k"], value=[b"a"], topic=[name])
    with pytest.raises(options.BadOption, match="is not a topic"):
        writer(root, topic=name)
    assert os.listdir(tmp_path) == ["root"]
    assert os.listdir(root) == []


def test_what_is_not_clear_is_asked(tmp_path):
    with pytest.raises(options.BadOption, match=r"there is nothing at .*mkdir"):
        writer(tmp_path / "new", ROUTED)
    (tmp_path / "new").mkdir()
    mine = writer(tmp_path / "new", ROUTED)
    with pytest.raises(ValueError, match="a row has no topic"):
        task(mine, key=[b"k"], value=[b"a"], topic=pa.array([None], pa.string()))
    shmq.open(tmp_path / "one").close()
    mine = writer(tmp_path / "one", ROUTED)  # a queue: the column says where rows came from
    mine.commit([task(mine, **ROWS)], 0)
    assert payloads(tmp_path / "one") == [b"a", b"b", b"c", b"d"]


def test_a_new_topic_is_made_where_it_was_planned_and_nowhere_else(tmp_path):
    mine = writer(tmp_path, ROUTED)
    mine.targets.origin = places.Origin("another-host")
    with pytest.raises(shmq.NotFound, match="on host another-host when this was planned"):
        task(mine, **ROWS)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- tombstones
def read(path, **given):
    found = source.ShmqDataSource(api.CaseInsensitiveDict({"queue": str(path), **given}))
    reader = found.reader(found.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("headers", [False, True])
def test_found_a_row_without_a_value_is_a_tombstone_and_comes_back_as_one(tmp_path, headers):
    """It ended the query; Kafka's sink takes it."""
    path = tmp_path / "q"
    fields = [*VALUE.fields, *([t.StructField("headers", source.HEADERS)] if headers else [])]
    more = {"headers": [None, [{"key": "h", "value": b"1"}], [{"key": "h", "value": b"2"}]]} if headers else {}
    mine = writer(path, t.StructType(fields))
    values = pa.array([b"a", None, b""], pa.binary())
    mine.commit([task(mine, key=[b"1", b"2", b"3"], value=values, **more)], 0)
    assert [row["value"] for row in read(path)] == [b"a", None, b""]
    with shmq.open(path) as queue:
        assert [message.payload for message in queue.reader()] == [b"a", b"", b""]
        assert ["tombstone" in message.headers for message in queue.reader()] == [False, True, False]
        if headers:
            assert [message.headers.get("h") for message in queue.reader()] == [None, b"1", b"2"]


# ---------------------------------------------------------------- what is Kafka's alone
def test_options_of_kafkas_alone_are_named_and_passed_over(tmp_path, caplog):
    shmq.open(tmp_path / "q").close()
    given = {"kafka.bootstrap.servers": "host:9092", "groupIdPrefix": "mine"}
    assert read(tmp_path / "q", **given) == []
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "the shmq source does nothing with kafka.bootstrap.servers, groupIdPrefix" in said[0]
    writer(tmp_path / "q", **given, includeHeaders="true")
    assert "the shmq sink does nothing with kafka.bootstrap.servers, groupIdPrefix" in caplog.records[-1].getMessage()
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "0").touch()
    writer(tmp_path / "q", **given, checkpointLocation=str(tmp_path / "checkpoint"))
    assert len(caplog.records) == 2  # once, and not with each batch
    found = options.source_options({"queue": "q", "kafka.group.id": "mine"})
    assert (found.group, found.foreign) == ("mine", ())
