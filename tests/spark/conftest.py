"""The one Spark session, and queues for it. Where Spark is not installed, what needs it is left out, and says why."""

from __future__ import annotations

import json
import os
import warnings

import pytest
from chaos import small

import shmq

SOME = 5000


def pytest_collection_modifyitems(items) -> None:
    """What runs on a real Spark waits for a JVM, on a machine that does other things, too."""
    for item in items:
        if item.path.name.startswith("test_with_spark"):
            item.add_marker(pytest.mark.timeout(1200))
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # Spark's own


@pytest.fixture(scope="session")
def java_home():
    """Where a Java is; without it, or without pyspark, or with SPARK=0, the test is left out."""
    if os.environ.get("SPARK") in {"0", "missing"}:
        pytest.skip("SPARK=0" if os.environ["SPARK"] == "0" else "Spark could not be installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    from shmq.spark import java

    try:
        return java.find().home
    except java.NoJava as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def spark(java_home):
    """One session for all: small, and quick to start. A task may fail three times, as on a cluster."""
    session = shmq.spark.session("local[2,3]", **small())
    yield session
    session.stop()


@pytest.fixture
def some(make):
    """5,000 JSON messages of two kinds in several chunks, with keys."""
    queue = make(chunk_bytes=1 << 16)
    for start in range(0, SOME, 1000):
        queue.put_many(
            [b'{"n":%d,"kind":"%s"}' % (n, b"ab"[n % 2 : n % 2 + 1]) for n in range(start, start + 1000)],
            keys=[b"%d" % (n % 7) for n in range(start, start + 1000)],
        )
    return queue


_ATTEMPTS = 20
_SLOW = "connect back"
"""What Spark says of a worker that needs more than 10 s to start, which on a busy machine it may. No fault of ours."""


class Streams:
    """Streams from queue to queue, on the one session, from one checkpoint."""

    def __init__(self, spark, top) -> None:
        self.spark = spark
        self.target, self.checkpoint = str(top / "out"), str(top / "checkpoint")

    def start(self, source, *, sink="shmq", comment=None, **given):
        """One AvailableNow run, that may be running yet."""
        stream = self.spark.readStream.format("shmq").options(startingOffsets="earliest", **given)
        stream = stream.load(source).select("key", "value").writeStream.format(sink)
        stream = stream if comment is None else stream.option("comment", comment)
        stream = stream.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        return stream.start(self.target)

    def run(self, source, **given):
        """One AvailableNow run to its end."""
        from shmq.spark import listener

        for attempt in range(_ATTEMPTS):
            query = self.start(source, **given)
            try:
                query.awaitTermination()
            except Exception as problem:
                if _SLOW not in str(problem) or attempt == _ATTEMPTS - 1:
                    raise
                continue
            listener.caught_up(query)
            return query
        return None

    def fails(self, source, **given):
        """One that ends with an error: what its user is told."""
        for _ in range(_ATTEMPTS):
            try:
                self.start(source, **given).awaitTermination()
            except Exception as problem:  # noqa: BLE001  # whatever Spark makes of it
                if _SLOW not in str(problem):
                    return str(problem)
            else:
                break
        pytest.fail("it did not fail")

    def out(self):
        """What has come out."""
        with shmq.open(self.target, create=False, read_only=True) as queue:
            return [message.payload for message in queue.reader()]

    def forget_last_commit(self):
        """As if the driver had been killed behind the sink's commit and before Spark's record of it."""
        last = max(int(name) for name in os.listdir(f"{self.checkpoint}/commits") if name.isdigit())
        for name in (str(last), f".{last}.crc"):
            os.unlink(f"{self.checkpoint}/commits/{name}")
        return last


@pytest.fixture
def streams(spark, tmp_path):
    return Streams(spark, tmp_path)


PIPELINE = """
[pipeline]
name = "test"
checkpoint = "checkpoint"
conf = {{ {conf} }}

[source.events]
queue = "{queue}"
value = "json"
schema = "n BIGINT, kind STRING"
group = "pipe"

[step.clean]
from = "events"
sql = "select n, kind, timestamp_seconds(n * 60) as t from events where n >= 0"

[step.hourly]
from = "clean"
watermark = "t 0 minutes"
sql = '''select window(t, '1 hour').start as hour, kind, count(*) as n, sum(n) as total
         from clean group by window(t, '1 hour'), kind'''

[sink.lake]
from = "clean"
format = "parquet"
path = "lake"
partition_by = ["kind"]

[sink.hours]
from = "hourly"
format = "shmq"
queue = "hours"
key = "kind"

[sink.dead]
from = "events.corrupt"
format = "shmq"
queue = "dead"

[archive]
to = "archive"
"""


@pytest.fixture
def pipeline_file(some, tmp_path):
    """A pipeline that reads `some`, with everything that a pipeline can have."""
    file = tmp_path / "pipeline.toml"
    conf = ", ".join(f'"{name}" = "{value}"' for name, value in small().items())
    file.write_text(PIPELINE.format(queue=some.path, conf=conf))
    return file


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [message.payload for message in queue.reader()]


def facts(text):
    """The lines of JSON that a pipeline tells."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
