"""The source and the sink as Spark calls them, without a JVM: its own classes, real queues, no Spark session."""

from __future__ import annotations

import datetime
import errno
import json
import os
import pickle
import warnings

import pytest
from support import chunk_files, flip, in_child, records

import shmq
from shmq.reading.access import Access
from shmq.storage.directory import Directory

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    from pyspark import TaskContext
    from pyspark.sql import datasource as api
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    from shmq.spark import mirror, offsets, options, places, rows, sink, source
    from shmq.spark.schema import HEADERS

SOME = 300


def struct(**columns):
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


@pytest.fixture(autouse=True)
def close_everything():
    yield
    places.close_all()


@pytest.fixture
def some(queue):
    """300 messages in several chunks, with keys, types, headers and times a second apart."""
    for start in range(0, SOME, 50):
        numbers = range(start, start + 50)
        queue.put_many(
            [b'{"n":%d,"pad":"%s"}' % (number, b"x" * 100) for number in numbers],
            keys=[b"even" if number % 2 == 0 else b"odd" for number in numbers],
            types=list(numbers),
            times_ns=[number * 10**9 for number in numbers],
            headers=[{"h": number} if number == 7 else None for number in numbers],
        )
    return queue


def load(schema=None, **given):
    """Rows, as a batch query reads them; its partitions, too."""
    found = source.ShmqDataSource(api.CaseInsensitiveDict({k.replace("__", "."): str(v) for k, v in given.items()}))
    schema = schema or found.schema()
    reader = pickle.loads(pickle.dumps(found.reader(schema)))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    for batch in batches:
        assert batch.schema == to_arrow_schema(schema, timezone="UTC")  # what Spark insists on
    return [row for batch in batches for row in batch.to_pylist()], partitions


# ---------------------------------------------------------------- batch
def test_without_a_schema_there_are_kafkas_columns(some):
    rows, _ = load(queue=some.path)
    assert len(rows) == SOME
    assert list(rows[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert [row["offset"] for row in rows] == list(range(SOME))
    assert rows[5]["value"] == some[5].payload
    assert rows[5]["key"] == b"odd"
    assert (rows[5]["topic"], rows[5]["partition"]) == (os.path.basename(some.path), 0)
    assert rows[5]["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)


def test_the_schema_is_the_projection(some):
    rows, _ = load(struct(offset=t.LongType(), type=t.IntegerType()), queue=some.path)
    assert rows[7] == {"offset": 7, "type": 7}
    rows, _ = load(queue=some.path, columns="offset,headers")
    assert rows[7]["headers"] == [{"key": "h", "value": b"7"}]
    assert rows[8]["headers"] is None


def test_a_column_that_is_not_there_is_an_error(some):
    with pytest.raises(options.BadOption, match="no column 'user'"):
        load(struct(user=t.LongType()), queue=some.path)
    with pytest.raises(options.BadOption, match="'offset' is bigint, not string"):
        load(struct(offset=t.StringType()), queue=some.path)


def test_partitions_lie_between_chunks_and_together_hold_everything(some):
    rows, partitions = load(queue=some.path, minPartitions=4)
    assert len(partitions) >= 4
    assert [row["offset"] for row in rows] == list(range(SOME))


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ({"startingOffsets": '{"q": {"0": 10}}', "endingOffsets": '{"q": {"0": 20}}'}, 10, 19),
        ({"startingTimestamp": 10_000, "endingTimestamp": 20_000}, 10, 19),
        ({"startingOffsetsByTimestamp": '{"q": {"0": 290000}}'}, 290, 299),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 0, 299),
        ({"startingTimestamp": 5_000, "startingOffsets": "earliest"}, 5, 299),
    ],
)
def test_where_to_begin_and_to_end(some, given, first, last):
    rows, _ = load(queue=some.path, **given)
    assert [row["offset"] for row in rows] == list(range(first, last + 1))


def test_a_time_that_has_not_come_is_an_error_unless_said_otherwise(some):
    with pytest.raises(options.BadOption, match="no message of 999999999 ms"):
        load(queue=some.path, startingTimestamp=999_999_999)
    rows, _ = load(queue=some.path, startingTimestamp=999_999_999, startingOffsetsByTimestampStrategy="latest")
    assert rows == []


def test_what_was_retired_is_an_error_unless_said_otherwise(some):
    with some.consumer("all") as consumer:
        consumer.seek(250)
    first = some.first_index
    assert 0 < first <= 250
    with pytest.raises(shmq.Gone, match=f"begins at {first}"):
        load(queue=some.path, startingOffsets='{"q": {"0": 1}}')
    rows, _ = load(queue=some.path, startingOffsets='{"q": {"0": 1}}', failOnDataLoss="false")
    assert rows[0]["offset"] == first
    rows, _ = load(queue=some.path)
    assert rows[0]["offset"] == first


def test_what_goes_between_planning_and_reading_is_told(some):
    found = source.ShmqDataSource(api.CaseInsensitiveDict({"queue": some.path}))
    lenient = source.ShmqDataSource(api.CaseInsensitiveDict({"queue": some.path, "failOnDataLoss": "false"}))
    readers = [each.reader(each.schema()) for each in (found, lenient)]
    ((part,), (same,)) = (reader.partitions() for reader in readers)
    with some.consumer("all") as consumer:
        consumer.seek(250)
    with pytest.raises(shmq.Gone, match="were retired while Spark was reading"):
        list(readers[0].read(part))
    rows = [row["offset"] for batch in readers[1].read(same) for row in batch.to_pylist()]
    assert rows == list(range(some.first_index, SOME))


@pytest.mark.parametrize("host", ["here", "elsewhere"])
@pytest.mark.parametrize("there", ["none", "another"])
def test_a_task_where_the_queue_is_not_reads_nothing_of_what_is_there_instead(some, there, host):
    """As on another host than the one that planned it: nothing at that path, or somebody else's queue."""
    found = source.ShmqDataSource(api.CaseInsensitiveDict({"queue": some.path}))
    reader = found.reader(found.schema())
    (part,) = reader.partitions()
    if host == "elsewhere":
        reader.rows.origin = places.Origin("elsewhere")
    some.close()
    shmq.delete(some.path)
    if there == "another":
        with shmq.open(some.path) as another:
            another.put_many([b"not yours"] * SOME)
    kind = shmq.NotFound if there == "none" else shmq.Mismatch
    hint = "planned on host elsewhere, and" if host == "elsewhere" else "perhaps made again, since Spark planned"
    with pytest.raises(kind, match=f"cannot read .*/0 on host {places.Origin.here().host}: .*{hint}"):
        list(reader.read(part))


@pytest.mark.parametrize("where", ["a worker of Spark", "anywhere else"])
def test_only_a_worker_of_spark_freezes_what_it_has_imported(some, where):
    """Spark collects garbage after each task, through all of it."""

    def frozen():
        import gc

        rows._spare_the_collector.cache_clear()  # of the process that this one was forked from
        gc.unfreeze()  # likewise
        if where == "a worker of Spark":
            TaskContext._getOrCreate()
        for _ in range(2):
            load(queue=some.path)
        return str(gc.get_freeze_count())

    assert (int(in_child(frozen)) > 0) == (where == "a worker of Spark")


def test_a_gap_of_padding_is_no_loss(queue):
    queue.reserve(5).abort()
    queue.put(b"a")
    queue.reserve(5).abort()
    assert [row["offset"] for row in load(queue=queue.path)[0]] == [1]


def test_what_is_claimed_and_not_committed_is_not_read(some):
    slot = some.reserve(10)
    some.put(b"behind it")
    rows, _ = load(queue=some.path)
    assert len(rows) == SOME
    slot.abort()
    rows, _ = load(queue=some.path)
    assert [row["offset"] for row in rows[-2:]] == [SOME - 1, SOME + 1]


def test_what_the_disk_has_not_is_not_read_from_a_queue_that_syncs(make, monkeypatch):
    queue = make(durability=shmq.Durability.interval(3600))
    queue.put_many([b"x"] * 10)
    slot = queue.reserve(5)
    queue.put(b"behind")
    with monkeypatch.context() as patch:  # the disk is slow
        patch.setattr(shmq.Queue, "durable_index", property(lambda _: 4))
        assert len(load(queue=queue.path)[0]) == 4  # and a sync would wait for the slot
    slot.abort()
    assert len(load(queue=queue.path)[0]) == 11  # looking for the end has synced it
    assert queue.durable_index == 12


def test_only_what_is_durable_also_of_a_queue_that_does_not_sync(some):
    assert some.durable_index == 0
    assert len(load(queue=some.path)[0]) == SOME
    assert some.durable_index == 0
    assert len(load(queue=some.path, durableOnly="true")[0]) == SOME
    assert some.durable_index == SOME


def test_shards_are_partitions(tmp_path):
    for number in range(3):
        with shmq.open(tmp_path / f"1.{number:03x}") as shard:
            shard.put_many([b"%d-%d" % (number, each) for each in range(10)])
    rows, partitions = load(queue=tmp_path)
    assert len(partitions) == 1  # small ones together
    assert {(row["partition"], row["value"]) for row in rows} == {
        (number, b"%d-%d" % (number, each)) for number in range(3) for each in range(10)
    }
    rows, _ = load(struct(partition=t.IntegerType()), queue=tmp_path.parent, assign=json.dumps({tmp_path.name: [2]}))
    assert {row["partition"] for row in rows} == {2}


def test_several_queues_by_name_and_by_pattern(tmp_path):
    for name in ("orders", "bills", "other"):
        with shmq.open(tmp_path / name) as queue:
            queue.put(name.encode())
    assert {row["topic"] for row in load(queue=tmp_path, subscribe="orders,bills")[0]} == {"orders", "bills"}
    assert {row["topic"] for row in load(queue=tmp_path, subscribePattern="o.*")[0]} == {"orders", "other"}
    with pytest.raises(shmq.NotFound, match="no queue in it"):
        load(queue=tmp_path, subscribePattern="z.*")
    with pytest.raises(shmq.NotFound):
        load(queue=tmp_path, subscribe="missing")


JSON = {"n": t.LongType(), "_offset": t.LongType(), "_corrupt": t.StringType()}


def test_json_payloads_become_columns(some):
    rows, _ = load(struct(**JSON), queue=some.path, value__format="json")
    assert rows[5] == {"n": 5, "_offset": 5, "_corrupt": None}


def test_what_becomes_of_payloads_that_do_not_parse(some):
    some.put(b"no json")
    some.put(b'{"n":1}')
    rows, _ = load(struct(**JSON), queue=some.path, value__format="json")
    assert rows[SOME] == {"n": None, "_offset": SOME, "_corrupt": "no json"}
    rows, _ = load(struct(**JSON), queue=some.path, value__format="json", mode="DROPMALFORMED")
    assert [row["_offset"] for row in rows[-2:]] == [SOME - 1, SOME + 1]
    with pytest.raises(shmq.Corrupt, match=f"message {SOME} of .* is no json"):
        load(struct(**JSON), queue=some.path, value__format="json", mode="FAILFAST")


def test_a_column_that_is_not_null_has_none(some):
    """Spark takes its word for it, and would read a zero."""
    some.put(b"no json")
    schema = t.StructType([t.StructField("n", t.LongType(), nullable=False)])
    with pytest.raises(shmq.Corrupt, match=f"messages .* to {SOME} of .*: 1 have no 'n'"):
        load(schema, queue=some.path, value__format="json")
    rows, _ = load(schema, queue=some.path, value__format="json", mode="DROPMALFORMED")
    assert [row["n"] for row in rows] == list(range(SOME))


RECORDS = "n:<i4, x:<f8, big:>i4, index:<u2, time:<i8"


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize(
    "columns",
    [
        {"n": t.LongType()},
        {"x": t.FloatType(), "n": t.IntegerType(), "absent": t.StringType()},
        {"index": t.IntegerType(), "time": t.LongType(), "_offset": t.LongType(), "_timestamp": t.TimestampType()},
        {"n": t.DoubleType(), "_topic": t.StringType(), "_type": t.IntegerType(), "_row": t.IntegerType()},
        {"big": t.IntegerType(), "n": t.IntegerType()},
        {"n": t.IntegerType(), "_corrupt": t.BinaryType()},
        {"n": t.IntegerType(), "_key": t.BinaryType()},
        {"absent": t.LongType()},
    ],
    ids=str,
)
def test_records_are_the_same_whether_the_core_takes_them_apart_or_numpy(queue, monkeypatch, columns, mode):
    import numpy as np

    records = np.zeros(900, dtype=[tuple(each.split(":")) for each in RECORDS.split(", ")])
    records["n"], records["x"], records["index"], records["time"] = (np.arange(900) * each for each in (7, 0.5, 2, 3))
    queue.put_many([each.tobytes() for each in records[:500]], keys=[b"k", None] * 250)
    queue.put_many([b"", b"short", records[0].tobytes() + b"+"], types=[1, 2, 3])
    queue.put_many([each.tobytes() for each in records[500:]], times_ns=range(400))
    given = {"queue": queue.path, "value__format": "struct", "value__dtype": RECORDS, "mode": mode, "batchRows": 333}
    found, _ = load(struct(**columns), **given)
    monkeypatch.setattr(rows.Rows, "_record", lambda _: None)
    expected, _ = load(struct(**columns), **given)
    assert found == expected
    assert len(found) == (903 if mode == "PERMISSIVE" else 900)


def test_records_that_fit_no_record_end_a_query_that_wants_none(queue):
    queue.put_many([bytes(4), bytes(5)])
    given = {"queue": queue.path, "value__format": "struct", "value__dtype": "n:<i4"}
    with pytest.raises(shmq.Corrupt, match=r"message 1 of .* is no struct of struct<n:int>"):
        load(struct(n=t.IntegerType()), mode="FAILFAST", **given)
    never_null = t.StructType([t.StructField("n", t.IntegerType(), nullable=False)])
    with pytest.raises(shmq.Corrupt, match="1 have no 'n'"):
        load(never_null, **given)
    assert load(never_null, mode="DROPMALFORMED", **given)[0] == [{"n": 0}]


def test_a_message_of_many_rows_keeps_its_offset(queue):
    table = pa.table({"a": [1, 2, 3]})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    queue.put(out.getvalue().to_pybytes())
    queue.put(out.getvalue().to_pybytes())
    rows, _ = load(
        struct(a=t.LongType(), _offset=t.LongType(), _row=t.IntegerType()), queue=queue.path, value__format="arrow"
    )
    assert [(row["a"], row["_offset"], row["_row"]) for row in rows] == [
        (a, offset, a - 1) for offset in (0, 1) for a in (1, 2, 3)
    ]


def test_a_damaged_message_is_named_and_never_delivered(some):
    file = chunk_files(some.path)[1]
    damaged = records(some.path, 1)[3]
    assert damaged.payload in file.read_bytes()
    flip(file, file.read_bytes().index(damaged.payload) + 5)
    with pytest.raises(shmq.Corrupt, match=r"while Spark read .*shmq verify"):
        load(queue=some.path)


# ---------------------------------------------------------------- stream
def stream(queue_path, **given):
    given = {"queue": str(queue_path), "startingOffsets": "earliest", **{k: str(v) for k, v in given.items()}}
    found = source.ShmqDataSource(api.CaseInsensitiveDict(given))
    return found.streamReader(found.schema())


def batch_of(reader, start, end):
    reader_there = pickle.loads(pickle.dumps(reader))
    return [
        row["offset"]
        for part in reader.partitions(start, end)
        for batch in reader_there.read(part)
        for row in batch.to_pylist()
    ]


def nexts(offset):
    return {(topic, number): at["next"] for topic, each in offset["queues"].items() for number, at in each.items()}


def test_a_stream_goes_on_where_it_was_and_a_new_reader_too(some):
    reader = stream(some.path)
    start = reader.initialOffset()
    assert reader.initialOffset() == start  # Spark asks more than once
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert batch_of(reader, start, end) == list(range(100))
    again = stream(some.path)  # a restart: only the checkpoint is left
    assert batch_of(again, start, end) == list(range(100))
    last = again.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())
    assert batch_of(again, end, last) == list(range(100, SOME))
    assert again.latestOffset(last, ReadAllAvailable()) == last


def test_a_stream_begins_at_the_end_unless_told(some):
    reader = stream(some.path, startingOffsets="latest")
    start = reader.initialOffset()
    some.put(b"new")
    assert batch_of(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [SOME]


def test_limits_by_rows_and_bytes(some):
    assert stream(some.path, maxOffsetsPerTrigger=7).getDefaultReadLimit().max_rows == 7
    reader = stream(some.path, maxBytesPerTrigger=5000)
    start = reader.initialOffset()
    (end,) = nexts(reader.latestOffset(start, reader.getDefaultReadLimit())).values()
    assert 5 <= end <= 60


def test_too_little_waits_for_more(some):
    reader = stream(some.path, minOffsetsPerTrigger=1000, maxTriggerDelay="1h")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    some.put_many([b"x"] * 700)
    assert reader.latestOffset(start, ReadAllAvailable()) != start


def test_available_now_ends_where_it_began_to_look(some):
    reader = stream(some.path)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    some.put(b"later")
    assert nexts(reader.latestOffset(start, ReadAllAvailable())) == {("q", "0"): SOME}


def test_a_new_shard_joins_from_its_first_message(tmp_path):
    with shmq.open(tmp_path / "1.000") as shard:
        shard.put(b"a")
    reader = stream(tmp_path, startingOffsets="latest")
    start = reader.initialOffset()
    with shmq.open(tmp_path / "1.001") as shard:
        shard.put_many([b"b", b"c"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch_of(reader, start, end) == [0, 1]
    assert end["group"] == start["group"]


def test_a_group_holds_a_new_shard_from_the_moment_it_is_seen(tmp_path):
    shmq.open(tmp_path / "1.000").close()
    reader = stream(tmp_path, group="reports")
    start = reader.initialOffset()
    with shmq.open(tmp_path / "1.001") as shard:
        shard.put(b"a")
        reader.latestOffset(start, ReadAllAvailable())
        assert shard.consumers()["reports"].head == 0


def test_a_queue_cut_below_the_checkpoint_is_told(some):
    reader = stream(some.path, group="")
    start = reader.initialOffset()
    with some.consumer("all") as consumer:
        consumer.seek(250)
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(shmq.Gone, match="messages before it were retired"):
        reader.partitions(start, end)
    going_on = stream(some.path, group="", failOnDataLoss="false")
    assert batch_of(going_on, start, end) == list(range(some.first_index, SOME))


def test_another_queue_in_its_place_is_told(some):
    reader = stream(some.path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    places.close_all()
    some.close()
    shmq.delete(some.path)
    with shmq.open(some.path) as other:
        other.put(b"new")
    with pytest.raises(shmq.Gone, match="is another queue"):
        stream(some.path).partitions(start, end)
    there = stream(some.path, failOnDataLoss="false")
    assert batch_of(there, end, there.latestOffset(end, ReadAllAvailable())) == [0]


def test_found_a_directory_with_queues_names_them(tmp_path):
    """It was: no queue there, and no shards of one."""
    (tmp_path / "all" / "no-queue").mkdir(parents=True)
    for name in ("a", "b"):
        shmq.open(tmp_path / "all" / name).close()
    with pytest.raises(shmq.NotFound, match=r'a directory with a, b: say which, as \.option\("subscribe", "a,b"\)'):
        load(queue=tmp_path / "all")
    assert load(queue=tmp_path / "all", subscribe="a,b")[0] == []


def test_found_a_name_that_stands_twice_is_refused(some):
    """It was a bare ValueError of a worker."""
    two = t.StructType([t.StructField("i", t.IntegerType()), t.StructField("i", t.StringType())])
    for schema in (two, struct(s=two), struct(a=t.ArrayType(two)), struct(m=t.MapType(t.StringType(), two))):
        with pytest.raises(options.BadOption, match="the schema names 'i' twice"):
            load(schema, queue=some.path, value__format="json")


def test_found_what_only_does_not_fit_is_not_called_damaged(some):
    filled = t.StructType([t.StructField("nothing", t.LongType(), nullable=False)])
    for schema, mode in ((struct(n=t.DateType()), "FAILFAST"), (filled, "PERMISSIVE")):
        with pytest.raises(shmq.Corrupt, match="while Spark read") as problem:
            load(schema, queue=some.path, value__format="json", mode=mode)
        assert "shmq verify" not in str(problem.value)


def made_again(queue, count):
    places.close_all()
    queue.close()
    shmq.delete(queue.path)
    with shmq.open(queue.path) as other:
        other.put_many([b"new"] * count)


def test_found_nothing_is_planned_of_another_queue_before_it_is_told(some):
    """Spark writes the end of a batch down before it asks what is in it: 300 messages of the new queue were "done"."""
    reader = stream(some.path, group="reports")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    made_again(some, 5)
    with pytest.raises(shmq.Gone, match="is another queue"):
        stream(some.path, group="reports").latestOffset(end, ReadAllAvailable())
    with shmq.open(some.path) as other:
        assert other.consumers() == {}  # who fails holds nothing
    going_on = stream(some.path, group="reports", failOnDataLoss="false")
    new = going_on.latestOffset(end, ReadAllAvailable())
    assert batch_of(going_on, end, new) == list(range(5))
    with shmq.open(some.path) as other:
        assert other.consumers()["reports"].head == 0  # held, as any queue that is new
        other.put(b"more")
    assert batch_of(going_on, new, going_on.latestOffset(new, ReadAllAvailable())) == [5]


def test_found_a_batch_of_the_old_queue_takes_nothing_of_the_new_one(some):
    """It was made again when the batch was planned already; the batch and the one behind it read its beginning."""
    reader = stream(some.path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    made_again(some, 5)
    going_on = stream(some.path, failOnDataLoss="false")
    assert batch_of(going_on, start, end) == []
    assert batch_of(going_on, end, going_on.latestOffset(end, ReadAllAvailable())) == list(range(5))


def test_found_what_an_older_shmq_planned_beyond_a_new_queues_end_is_never_done(some):
    reader = stream(some.path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    made_again(some, 5)
    with shmq.open(some.path) as other:
        poisoned = json.loads(json.dumps(end).replace(end["queues"]["q"]["0"]["id"], other.id))
    with pytest.raises(shmq.Gone, match=r"is to be read up to 300.* and ends at 5.*Begin a new checkpoint"):
        stream(some.path, failOnDataLoss="false").partitions(end, poisoned)


def test_found_an_offset_beyond_the_end_is_told_before_anything_is_planned(some):
    """A copy that is older was 'read' up to where the checkpoint was, without a word, however it grew."""
    reader = stream(some.path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    end["queues"]["q"]["0"]["next"] = SOME + 20
    with pytest.raises(shmq.Gone, match=f"was read up to {SOME + 20}.* ends at {SOME}: it was cut"):
        stream(some.path).latestOffset(end, ReadAllAvailable())
    going_on = stream(some.path, failOnDataLoss="false")
    now = going_on.latestOffset(end, ReadAllAvailable())
    assert nexts(now) == {("q", "0"): SOME}
    assert batch_of(going_on, end, now) == []
    some.put_many([b"later"] * 30)
    assert batch_of(going_on, now, going_on.latestOffset(now, ReadAllAvailable())) == list(range(SOME, SOME + 30))


def test_found_planning_a_batch_costs_nothing_that_grows_with_history(queue, monkeypatch):
    """100 ms for 3,000 chunks, and all of them mapped, for a batch of one message."""
    queue.put_many([b"x" * 1000] * 150)
    reader = stream(queue.path, startingOffsets="latest")
    start = reader.initialOffset()
    queue.put(b"first")
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    reader.commit(end)
    looked = []
    monkeypatch.setattr(Access, "_used", lambda *_: looked.append("a chunk") or 0)
    monkeypatch.setattr(Directory, "chunk_names", lambda _: looked.append("all"))
    queue.put(b"second")
    last = reader.latestOffset(end, ReadAllAvailable())
    (part,) = reader.partitions(end, last)
    assert [piece.rows for piece in part.pieces] == [1]
    assert looked == ["a chunk"]


# ---------------------------------------------------------------- the queue knows
def test_the_queue_knows_how_far_a_group_is_and_retention_waits(some):
    reader = stream(some.path, group="reports")
    start = reader.initialOffset()
    assert start["group"] == "reports"
    assert some.consumers()["reports"].lag == SOME
    with some.consumer("quick") as quick:
        quick.seek(SOME)
    assert some.first_index == 0  # the stream has read nothing yet
    end = reader.latestOffset(start, ReadMaxRows(250))
    reader.partitions(start, end)
    assert some.consumers()["reports"].head == 0  # planned is not done
    reader.commit(end)
    assert some.consumers()["reports"].head == 250
    assert 0 < some.first_index <= 250
    mirror.follow_json(start)
    assert some.consumers()["reports"].head == 250  # never back


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_found_a_stream_without_a_group_deletes_nothing(some, starting):
    """The name that shows its lag was the queue's only consumer, and what lay behind its head was retired."""
    reader = stream(some.path, startingOffsets=starting)
    start = reader.initialOffset()
    some.put_many([b"new"] * 100)
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    reader.commit(end)
    assert (some.first_index, len(some)) == (0, SOME + 100)
    (name,) = some.consumers()
    assert offsets.is_automatic(name)
    assert some.consumers()[name].head == SOME + 100
    some.put(b"more")
    assert some.consumers()[name].lag == 1  # and there it is


def test_a_stream_without_a_group_holds_nothing_and_stops_no_producer(make):
    """A notebook's peek: its name stays where it was, and the queue goes on as if it were not there."""
    queue = make(max_messages=10, full="raise", retention=shmq.Retention.acked())
    queue.put(b"first")
    reader = stream(queue.path)
    start = reader.initialOffset()
    reader.commit(reader.latestOffset(start, ReadAllAvailable()))
    with queue.consumer("real") as real:
        for number in range(100):
            queue.put(b"%d" % number)
            real.take(0)
        (name,) = set(queue.consumers()) - {"real"}
        assert queue.consumers()[name].head == 1


def test_found_first_batches_that_fail_leave_no_names(some):
    """Each left one at 0, which held the queue for ever."""
    for _ in range(3):  # killed before Spark wrote the batch down: a start each, of one checkpoint
        reader = stream(some.path)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        reader.partitions(start, end)
    assert some.consumers() == {}
    for _ in range(3):  # killed behind that: the end is in the checkpoint, and the start is asked for again
        again = stream(some.path)
        again.partitions(again.initialOffset(), end)
    assert some.consumers() == {}
    again.commit(end)
    last = again.latestOffset(end, ReadAllAvailable())
    stream(some.path).partitions(end, last)
    assert list(some.consumers()) == [end["group"]]


def test_what_an_older_version_left_holding_is_let_go_of_with_the_next_batch(some):
    reader = stream(some.path)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    some.consumer(end["group"], ack="explicit", start=100).close()
    reader.commit(end)
    assert some.consumers()[end["group"]].hold == "nothing"


def test_a_group_can_be_given_to_a_checkpoint_that_is_there(some):
    reader = stream(some.path)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    reader.commit(end)
    named = stream(some.path, group="reports")
    last = named.latestOffset(end, ReadMaxRows(100))
    assert some.consumers()["reports"].head == 0  # nothing goes from now on
    named.partitions(end, last)
    named.commit(last)
    assert some.consumers()["reports"].head == 200
    assert some.first_index > 0
    with pytest.raises(options.BadOption, match="hold nothing"):
        stream(some.path, group=end["group"])


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_found_a_misspelt_shard_is_an_error_and_not_latest(some, option):
    for named in ({"Q": {"0": 5}}, {"q": {"1": 5}}):
        with pytest.raises(options.BadOption, match=f"{option} names shard .*, and this query reads q/0"):
            load(queue=some.path, **{option: json.dumps(named)})
    with pytest.raises(options.BadOption, match="names shard topc/0"):
        stream(some.path, startingOffsets='{"topc": {"0": 5}}').initialOffset()
    assert some.first_index == 0


@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"]
)
def test_found_a_shard_that_is_left_out_is_an_error_and_not_latest(tmp_path, option):
    """Kafka's source refuses that; here it was read from where such queries begin by default."""
    for number in range(2):
        with shmq.open(tmp_path / f"0.00{number}") as queue:
            queue.put(b"x", time_ns=5_000_000)
    name = tmp_path.name
    with pytest.raises(
        options.BadOption, match=f"says nothing of shard {name}/1, and this query reads {name}/0, {name}/1"
    ):
        load(queue=tmp_path, **{option: json.dumps({name: {"0": 1}})})
    load(queue=tmp_path, **{option: json.dumps({name: {"0": 1, "1": 1}})})


def test_found_what_gone_advises_can_be_followed(some):
    """It said "begin at 5" to a query whose checkpoint says where it begins, and "another queue" of a wrong offset."""
    with pytest.raises(shmq.Gone, match=r"ends at 300\. Nothing was read\. Say 300 at most, or -1"):
        load(queue=some.path, startingOffsets='{"q": {"0": 301}}')
    for starting in ('{"q": {"0": 300}}', '{"q": {"0": -1}}'):
        assert load(queue=some.path, startingOffsets=starting)[0] == []
    assert load(queue=some.path, startingOffsets='{"q": {"0": 301}}', failOnDataLoss="false")[0] == []
    reader = stream(some.path)
    start = reader.initialOffset()
    with some.consumer("all") as consumer:
        consumer.seek(250)
    first = some.first_index
    with pytest.raises(shmq.Gone, match=f"Say {first}, or -2"):
        load(queue=some.path, startingOffsets='{"q": {"0": 1}}')
    for at in (first, -2):
        assert load(queue=some.path, startingOffsets=json.dumps({"q": {"0": at}}))[0][0]["offset"] == first
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(shmq.Gone) as gone:
        reader.partitions(start, end)
    assert "as the checkpoint has it" in str(gone.value)
    assert "Begin at" not in str(gone.value)
    assert batch_of(stream(some.path, failOnDataLoss="false"), start, end)[0] == first


@pytest.mark.parametrize(
    "given",
    [{"startingOffsets": '{"q": {"0": -7}}'}, {"endingOffsets": '{"q": {"0": -2}}'}, {"endingOffsets": "earliest"}],
)
def test_found_offsets_that_are_none_are_refused(some, given):
    with pytest.raises(options.BadOption, match=next(iter(given))):
        load(queue=some.path, **given)


def test_places_may_be_written_as_spark_writes_them(some):
    assert len(load(queue=f"file://{some.path}")[0]) == SOME
    with pytest.raises(options.BadOption, match="a queue is a directory of this machine"):
        load(queue="hdfs://host/q")


def test_the_progress_that_a_listener_sees_is_enough(some):
    reader = stream(some.path, group="reports")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    mirror.follow_json(json.loads(json.dumps(end)))
    assert some.consumers()["reports"].head == 100
    mirror.follow_json({"not": "ours"})
    mirror.follow_json(5)


# ---------------------------------------------------------------- the sink
def writer(path, app="app", schema=None, **given):
    schema = schema or struct(key=t.BinaryType(), value=t.BinaryType())
    given = {"queue": str(path), "txnAppId": app, **{k.replace("__", "."): str(v) for k, v in given.items()}}
    return sink.stream_writer(api.CaseInsensitiveDict(given), schema, overwrite=False)


def task(writer_of, rows, **columns):
    """What one task does, on its executor."""
    columns = columns or {"key": [b"k"] * len(rows), "value": rows}
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer_of)).write(iter([pa.record_batch(columns)]))))


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


def test_nothing_is_seen_before_the_commit_and_all_of_it_after(path):
    mine = writer(path)
    messages = [task(mine, [b"a", b"b"]), task(mine, [b"c"])]
    assert payloads(path) == []
    writer(path).commit(messages, 0)  # Spark makes a new one for each commit
    assert payloads(path) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("there", ["none", "another"])
def test_a_task_where_the_queue_is_not_writes_nothing(path, there, delivery):
    """As on another host than the driver's: nothing at that path, or somebody else's queue."""
    mine = writer(path, delivery=delivery)
    shmq.delete(path)
    if there == "another":
        shmq.open(path).close()
    with pytest.raises(shmq.NotFound if there == "none" else shmq.Mismatch, match=r"cannot write to .*/0 on host"):
        task(mine, [b"a"])
    if there == "another":
        with shmq.open(path) as queue:
            assert (queue.staged_sets(), queue.next_index) == ([], 0)
    else:
        assert not os.path.exists(path)


def test_a_repeated_batch_is_not_put_twice(path):
    for batch, rows in enumerate(([b"a"], [b"b"], [b"b"])):
        mine = writer(path)
        mine.commit([task(mine, rows)], min(batch, 1))
    assert payloads(path) == [b"a", b"b"]
    mine = writer(path)
    mine.commit([task(mine, [b"a"])], 0)  # older still: another driver on the same checkpoint
    assert payloads(path) == [b"a", b"b"]
    with shmq.open(path) as queue:
        assert queue.staged_sets() == []  # what the repeated batches had staged went


def batch_writer(path, **given):
    return sink.batch_writer({"queue": path, **given}, struct(value=t.BinaryType()), overwrite=False)


def test_found_each_batch_write_of_one_application_is_written_and_a_repeated_one_is_said(path, caplog):
    """With txnAppId alone every write after the first was discarded, without a word."""
    for version, value in ((1, b"a"), (2, b"b"), (2, b"again"), (7, b"c"), (3, b"older")):
        mine = batch_writer(path, txnAppId="nightly", txnVersion=str(version))
        mine.commit([task(mine, None, value=[value])])
    assert payloads(path) == [b"a", b"b", b"c"]
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[0] for line in told] == [
        "q/0 has batch 2 of 'nightly' already (the last is 2)",
        "q/0 has batch 3 of 'nightly' already (the last is 7)",
    ]
    with shmq.open(path) as queue:
        assert queue.staged_sets() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"txnAppId": "nightly"}, "go together"),
        ({"txnVersion": "3"}, "go together"),
        ({"txnAppId": "nightly", "txnVersion": "-1"}, "at least 0"),
        ({"txnAppId": "nightly", "txnVersion": "1", "delivery": "at_least_once"}, "needs delivery=exactly_once"),
    ],
)
def test_an_application_and_its_versions_go_together(path, given, said):
    with pytest.raises(options.BadOption, match=said):
        batch_writer(path, **given)
    with pytest.raises(options.BadOption, match="numbers of their own"):
        writer(path, txnVersion="1")


def test_what_a_failed_task_staged_is_swept(path):
    mine = writer(path)
    lost = task(mine, [b"lost"])
    mine.abort([lost, None], 0)
    with shmq.open(path) as queue:
        assert queue.staged_sets() == []
    task(mine, [b"first try"])  # its message never came
    mine.commit([task(mine, [b"second try"])], 0)
    assert payloads(path) == [b"second try"]
    with shmq.open(path) as queue:
        assert queue.staged_sets() == []


def test_a_task_that_dies_leaves_nothing(path):
    def die():
        mine = writer(path)

        def rows():
            yield pa.record_batch({"key": [b"k"], "value": [b"v"]})
            os._exit(9)

        mine.write(rows())

    with pytest.raises(AssertionError):  # the child says nothing
        in_child(die)
    mine = writer(path)
    mine.commit([task(mine, [b"whole"])], 0)
    assert payloads(path) == [b"whole"]


def test_a_full_disk_under_the_sink_leaves_nothing_and_the_batch_can_come_again(path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    mine = writer(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(shmq.DiskFull):
            task(mine, [b"a"])
    assert payloads(path) == []
    mine.commit([task(mine, [b"a"])], 0)
    assert payloads(path) == [b"a"]
    with shmq.open(path) as queue:
        assert queue.staged_sets() == []


def test_the_driver_may_die_between_two_shards(tmp_path):
    for number in range(2):
        shmq.open(tmp_path / f"1.{number:03x}").close()
    schema = struct(partition=t.IntegerType(), value=t.BinaryType())
    columns = {"partition": pa.array([0, 1, 0], pa.int32()), "value": [b"a", b"b", b"c"]}

    def tried():
        mine = writer(tmp_path, schema=schema)
        return mine, [task(mine, None, **columns)]

    mine, messages = tried()
    with shmq.open(tmp_path / "1.000") as first:  # what a commit does first; then it is killed
        first.adopt([messages[0].tokens["", 0]], dedup=("app", 0))
    mine, messages = tried()
    mine.commit(messages, 0)
    assert payloads(tmp_path / "1.000") == [b"a", b"c"]
    assert payloads(tmp_path / "1.001") == [b"b"]


def test_rows_carry_key_time_type_and_headers(path):
    kind = HEADERS
    schema = struct(
        key=t.StringType(), value=t.StringType(), timestamp=t.TimestampType(), type=t.IntegerType(), headers=kind
    )
    when = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    mine = writer(path, schema=schema)
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": "k", "value": "v", "timestamp": when, "type": 3, "headers": [{"key": "h", "value": b"1"}]},
            {"key": None, "value": "w", "timestamp": when, "type": 4, "headers": None},
        ],
        schema=to_arrow_schema(schema, timezone="UTC"),
    )
    mine.commit([mine.write(iter([batch]))], 0)
    with shmq.open(path) as queue:
        first, second = queue[0:2]
    assert (first.key, first.payload, first.time, first.type, first.headers) == (b"k", b"v", when, 3, {"h": b"1"})
    assert (second.key, second.type, second.headers) == (None, 4, {})


@pytest.mark.parametrize("kind", ["json", "msgpack", "arrow"])
def test_columns_come_back_as_they_were(path, kind):
    schema = struct(a=t.LongType(), s=t.StringType())
    mine = writer(path, schema=schema, value__format=kind)
    mine.commit([task(mine, None, a=[1, 2, None], s=["x", None, "ä"])], 0)
    rows, _ = load(schema, queue=path, value__format=kind)
    assert rows == [{"a": 1, "s": "x"}, {"a": 2, "s": None}, {"a": None, "s": "ä"}]


def test_straight_into_the_queue_when_once_is_not_needed(path):
    mine = writer(path, delivery="at_least_once")
    messages = [task(mine, [b"a"])]
    assert payloads(path) == [b"a"]
    mine.commit(messages, 0)
    assert payloads(path) == [b"a"]


def test_what_cannot_be_written_is_said_first(path):
    with pytest.raises(options.BadOption, match="none called value"):
        writer(path, schema=struct(a=t.LongType()))
    with pytest.raises(options.BadOption, match="what should become of extra"):
        writer(path, schema=struct(value=t.BinaryType(), extra=t.LongType()))
    with pytest.raises(options.BadOption, match="cast it"):
        writer(path, schema=struct(value=t.LongType()))
    with pytest.raises(options.BadOption, match="complete"):
        sink.stream_writer({"queue": path}, struct(value=t.BinaryType()), overwrite=True)
    with pytest.raises(options.BadOption, match="append"):
        sink.batch_writer({"queue": path}, struct(value=t.BinaryType()), overwrite=True)


def test_a_queue_with_a_codec_is_no_place_for_bytes(make, path):
    make(codec="json")
    mine = writer(path)
    with pytest.raises(options.BadOption, match="codec 'json'"):
        task(mine, [b"a"])


# ---------------------------------------------------------------- shards
def made(top, *names):
    for name in names:
        shmq.open(top / name).close()
    return str(top)


def test_shards_of_one_queue_are_found_by_their_numbers(tmp_path):
    """Also when some were never written to; other directories beside them are no matter."""
    top = made(tmp_path, "events.a.3ff", "events.a.000", "other")
    assert [shard.number for shard in places.shards_of(top)] == [0, 0x3FF]


@pytest.mark.parametrize("names", [("1.000", "2.000"), ("a.1.000", "b.1.001"), ("1.000", "a.1.001")])
def test_shards_of_several_queues_in_one_directory_are_refused(tmp_path, names):
    """They were mixed: number 0 meant two queues, and one hid the other."""
    with pytest.raises(shmq.Mismatch, match=r"shards of 2 queues in it \(.*; give each queue's shards a directory"):
        places.shards_of(made(tmp_path, *names))
