"""
What can go wrong around a stream, on the real Spark: what its user is told, and that rows in are rows out.

The sink's own processes die by SIGKILL at the worst places, through a format "mortal" that is ours but for that.
"""

from __future__ import annotations

import contextlib
import os

import pytest
from support import chunk_files, flip, records

import shmq
from shmq.cli import main
from shmq.spark import places

SOME = 5000


@pytest.fixture
def mortal(spark, tmp_path):
    """Register "mortal": our sink, that comes to grief at a place once, or as long as a file is there."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from shmq.spark import sink
    from shmq.spark.source import ShmqDataSource

    mark = str(tmp_path / "mark")

    # Of this function, so that they travel to the workers whole.
    class Writer(sink.StreamWriter):
        where = ""

        def die(self, where):
            import signal

            if where == self.where and not os.path.exists(mark):
                open(mark, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)

        def write(self, iterator):
            from unittest import mock

            def batches():
                for batch in iterator:
                    yield batch
                    self.die("in a task")

            full = mock.Mock(side_effect=OSError(28, "No space left on device"))
            if self.where == "on a full disk" and os.path.exists(mark):
                with mock.patch.object(os, "posix_fallocate", full):
                    return super().write(batches())
            return super().write(batches())

        def commit(self, messages, batchId):  # noqa: N803
            self.die("before the commit")
            super().commit(messages, batchId)
            self.die("after the commit")

    class Mortal(ShmqDataSource):
        @classmethod
        def name(cls):
            return "mortal"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            given = CaseInsensitiveDict({key: value for key, value in self.options.items() if key != "comment"})
            writer = sink._writer(Writer, sink.sink_options(given), schema, "")
            writer.where = self.options["comment"]
            return writer

    spark.dataSource.register(Mortal)
    return mark


def swept(path):
    with shmq.open(path) as queue:
        return queue.staged_sets() == []


# ---------------------------------------------------------------- deaths
@pytest.mark.parametrize("where", ["before the commit", "after the commit"])
def test_whoever_commits_is_killed_around_the_record(streams, some, mortal, where):
    """Before it nothing is in the queue, and after it all of the batch; the next run puts in what is missing."""
    expected = [message.payload for message in some.reader()]
    given = {"sink": "mortal", "comment": where, "maxOffsetsPerTrigger": "2000"}
    assert "crashed" in streams.fails(some.path, **given)
    assert os.path.exists(mortal)
    assert streams.out() == ([] if where == "before the commit" else expected[:2000])
    streams.run(some.path, **given)
    assert streams.out() == expected
    assert swept(streams.target)


def test_kills_before_the_first_batch_is_logged_leave_no_names(streams, some, spark, tmp_path):
    """Whoever looks for the ends dies before Spark has written anything down, three times; then there is one name."""
    from shmq.spark.source import ShmqDataSource
    from shmq.spark.stream import StreamReader

    deaths = str(tmp_path / "deaths")
    os.mkdir(deaths)

    # Of this function, so that it travels to the workers whole.
    class Reader(StreamReader):
        def latestOffset(self, start, limit):  # noqa: N802
            import signal

            found = super().latestOffset(start, limit)
            if len(os.listdir(deaths)) < 3:
                open(f"{deaths}/{os.getpid()}", "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return found

    class Stillborn(ShmqDataSource):
        @classmethod
        def name(cls):
            return "stillborn"

        def streamReader(self, schema):  # noqa: N802
            from shmq.spark.options import source_options

            return Reader(source_options(self.options), schema)

    spark.dataSource.register(Stillborn)

    def run():
        stream = spark.readStream.format("stillborn").option("startingOffsets", "earliest").load(some.path)
        stream = stream.select("key", "value").writeStream.format("shmq")
        stream = stream.option("checkpointLocation", streams.checkpoint).trigger(availableNow=True)
        stream.start(streams.target).awaitTermination()

    expected = [message.payload for message in some.reader()]
    for _ in range(20):
        if len(os.listdir(deaths)) == 3:
            break
        with pytest.raises(Exception):  # noqa: B017  # whatever Spark makes of it
            run()
        assert os.listdir(f"{streams.checkpoint}/offsets") == []
        assert some.consumers() == {}
    assert len(os.listdir(deaths)) == 3
    streams.run(some.path)
    assert streams.out() == expected
    assert len(some.consumers()) == 1


def test_a_task_that_is_killed_is_done_again_by_spark(streams, some, mortal):
    expected = [message.payload for message in some.reader()]
    streams.run(some.path, sink="mortal", comment="in a task", minPartitions="2")
    assert os.path.exists(mortal)
    assert streams.out() == expected
    assert swept(streams.target)


def test_a_full_disk_ends_the_query_and_the_next_run_goes_on(streams, some, mortal):
    expected = [message.payload for message in some.reader()]
    open(mortal, "x").close()
    assert "No space left on device" in streams.fails(some.path, sink="mortal", comment="on a full disk")
    assert streams.out() == []
    os.unlink(mortal)
    streams.run(some.path, sink="mortal", comment="on a full disk")
    assert streams.out() == expected
    assert swept(streams.target)


def test_a_second_query_on_one_checkpoint_takes_over(streams, some):
    """In one session; two drivers on one checkpoint are in test_spark_processes.py."""
    expected = [message.payload for message in some.reader()]
    first = (
        streams.spark.readStream.format("shmq")
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="1000")
        .load(some.path)
        .select("key", "value")
        .writeStream.format("shmq")
        .option("checkpointLocation", streams.checkpoint)
        .start(streams.target)
    )
    streams.run(some.path)
    with contextlib.suppress(Exception):  # as Spark stops it, in the middle of whatever it does
        first.awaitTermination()
    assert not first.isActive
    assert streams.out() == expected


# ---------------------------------------------------------------- the queue is not what it was
def test_a_queue_cut_below_the_checkpoint_ends_the_query_and_says_what_is_gone(streams, some):
    expected = [message.payload for message in some.reader()]
    streams.run(some.path, group="")
    more = [b"more %d" % n for n in range(SOME)]
    for start in range(0, SOME, 1000):
        some.put_many(more[start : start + 1000], keys=[b"k"] * 1000)
    with some.consumer("all") as consumer:
        consumer.seek(some.next_index)
    first = some.first_index
    assert first > SOME
    said = streams.fails(some.path, group="")
    assert f"the {first - SOME:,} messages before it were retired" in said
    assert "failOnDataLoss=false" in said
    assert streams.out() == expected
    streams.run(some.path, group="", failOnDataLoss="false")
    assert streams.out() == expected + more[first - SOME :]


def test_a_damaged_message_in_the_middle_ends_the_query_and_repair_lets_it_go_on(streams, some, capsys):
    expected = [message.payload for message in some.reader()]
    with some.consumer("holds-everything"):
        file = chunk_files(some.path)[2]
        damaged = records(some.path, 2)[3]
        flip(file, file.read_bytes().index(damaged.payload) + 3)
        said = streams.fails(some.path, maxOffsetsPerTrigger="1000")
    assert "shmq verify" in said
    assert file.stem in said
    damaged_at = expected.index(damaged.payload)
    at = damaged_at // 1000 * 1000  # what one query reads at once
    assert streams.out() == expected[:at]
    some.close()
    places.close_all()
    assert main(["repair", some.path, "--in-place"]) == 3, capsys.readouterr().err
    streams.run(some.path, maxOffsetsPerTrigger="1000")
    assert streams.out() == expected[:damaged_at] + expected[damaged_at + 1 :]


def test_another_schema_than_there_is_is_told(spark, streams, some):
    def read(schema, **given):
        return spark.read.format("shmq").options(**given).schema(schema).load(some.path)

    with pytest.raises(Exception, match="there is no column 'amount'"):
        read("amount DOUBLE").count()
    with pytest.raises(Exception, match="column 'offset' is bigint, not string"):
        read("offset STRING").count()
    typed = read("n STRING, kind BIGINT, _corrupt STRING", **{"value.format": "json"})  # the other way round
    assert typed.where("_corrupt is null").count() == 0
    assert typed.where("_corrupt like '{%'").count() == SOME
    with pytest.raises(Exception, match="is no json of"):
        read("n STRING, kind BIGINT", **{"value.format": "json", "mode": "FAILFAST"}).collect()
    with pytest.raises(Exception, match="none called value"):
        spark.range(3).write.format("shmq").mode("append").save(streams.target)
    with pytest.raises(Exception, match="cast it to binary or string"):
        spark.range(3).selectExpr("id as value").write.format("shmq").mode("append").save(streams.target)
    assert not os.path.exists(streams.target)


def made_again(path, *payloads):
    with shmq.open(f"{path}-new") as queue:
        queue.put_many(list(payloads))
    os.rename(path, f"{path}-old")
    os.rename(f"{path}-new", path)


@pytest.mark.parametrize("given", [{}, {"group": "reports"}])
def test_found_following_what_gone_says_of_another_queue_skips_no_message(streams, tmp_path, given):
    """The run that failed left the new queue's id with the old one's end in Spark's log: 20 messages were "read"."""
    path = str(tmp_path / "q")
    old = [b"old %d" % n for n in range(20)]
    with shmq.open(path) as queue:
        queue.put_many(old)
    streams.run(path, **given)
    there = [b"n%d" % n for n in range(5)]
    made_again(path, *there)
    for _ in range(2):
        assert "is another queue" in streams.fails(path, **given)
    for new in ([], [b"p0", b"p1", b"p2"], [b"r%d" % n for n in range(12)]):
        with shmq.open(path) as queue:
            queue.put_many(new)
        streams.run(path, failOnDataLoss="false", **given)
        there += new
        assert streams.out() == old + there
    assert len(streams.out()) == 40
    streams.run(path, **given)  # and from then on it is the queue that is meant
    assert len(streams.out()) == 40


def test_found_a_stream_that_runs_when_its_queue_is_made_again_skips_no_message(spark, streams, tmp_path):
    path = str(tmp_path / "q")
    with shmq.open(path) as queue:
        queue.put_many([b"old %d" % n for n in range(20)])
    stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").load(path).select("value")
    stream = stream.writeStream.format("shmq").option("checkpointLocation", streams.checkpoint)
    query = stream.trigger(processingTime="0 seconds").start(streams.target)
    try:
        query.processAllAvailable()
        made_again(path, *(b"n%d" % n for n in range(30)))
        with pytest.raises(Exception, match=r"is another queue|there is no queue"):
            query.awaitTermination(60)
    finally:
        query.stop()
    streams.run(path, failOnDataLoss="false")
    assert streams.out()[20:] == [b"n%d" % n for n in range(30)]
