"""What is archived and what is live, as one table: exactly what was put, on a real Spark."""

from __future__ import annotations

import datetime
import functools
import threading

import pytest
import support

import shmq

pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")

from shmq.spark import archive
from shmq.spark.options import BadOption

DAY = 86_400
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=["parquet", "delta"])
def form(request):
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")
    return request.param


@pytest.fixture
def to(tmp_path):
    return str(tmp_path / "archive")


def fill(queue, start, stop):
    """100 messages a day; one in ten has headers, and one in fifty is no JSON."""
    numbers = range(start, stop)
    queue.put_many(
        [
            b"no json" if n % 50 == 7 else b'{"n":%d,"kind":"%s","offset":1}' % (n, b"ab"[n % 2 : n % 2 + 1])
            for n in numbers
        ],
        keys=[b"k%d" % (n % 3) if n % 4 else None for n in numbers],
        types=[n % 5 for n in numbers],
        times_ns=[n // 100 * DAY * 10**9 + n * 1000 for n in numbers],
        headers=[{"h": b"v%d" % n} if n % 10 == 0 else None for n in numbers],
    )


def in_parts(queue, to, form, *stops, **given):
    for stop in stops:
        with queue.consumer("work", ack="explicit") as consumer:
            consumer.seek(stop)
        archive.archive(queue.path, to, form=form, behind="work", **given)


@pytest.fixture
def some(make):
    """500 messages that stay."""
    queue = make(retention=shmq.Retention.forever(), chunk_bytes=1 << 16)
    fill(queue, 0, 500)
    return queue


def raw(queue):
    """What is in it, as Spark is to say it."""
    return [
        (
            m.index,
            m.key,
            bytes(m.payload),
            "q",
            0,
            m.type,
            EPOCH + datetime.timedelta(microseconds=m.time_ns // 1000),
            m.time_ns,
            [(k, v) for k, v in m.headers.items()] or None,
        )
        for m in queue.reader()
    ]


HEADERS = "headers ARRAY<STRUCT<key STRING, value BINARY>>"
RAW = (
    "offset BIGINT, key BINARY, value BINARY, topic STRING, partition INT, type INT, timestamp TIMESTAMP, "
    f"timestamp_ns BIGINT, {HEADERS}"
)


def rows(frame):
    """All of it, in order, as plain values."""
    return sorted(
        tuple(
            bytes(v)
            if isinstance(v, bytearray)
            else v.astimezone(datetime.UTC)
            if isinstance(v, datetime.datetime)
            else [(h["key"], bytes(h["value"])) for h in v]
            if isinstance(v, list)
            else v
            for v in row
        )
        for row in frame.collect()
    )


@pytest.mark.parametrize("typed", [False, True])
def test_history_is_exactly_what_was_put(spark, some, to, form, typed):
    """Archived in parts, put together, and a tail that is live: nothing is missing, doubled or changed."""
    given = {"schema": "n BIGINT, kind STRING", "value": "json"} if typed else {}
    in_parts(some, to, form, 130, 260, 300, **given)
    archive.compact(to, file_bytes=30_000)
    assert rows(shmq.spark.history(spark, to, some.path, schema=RAW)) == raw(some)
    archived = shmq.spark.history(spark, to)
    prefix = "_" if typed else ""
    assert sorted(row[f"{prefix}offset"] for row in archived.collect()) == list(range(300))
    kafka = shmq.spark.history(spark, to, some.path)
    assert kafka.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert kafka.count() == 500


TYPED = "n BIGINT, kind STRING, _offset BIGINT, _corrupt STRING, _key BINARY, _timestamp TIMESTAMP"


def fields(queue):
    found = []
    for m in queue.reader():
        bad = m.payload == b"no json"
        when = EPOCH + datetime.timedelta(microseconds=m.time_ns // 1000)
        n, kind = (None, None) if bad else (m.index, "ab"[m.index % 2])
        found.append((n, kind, m.index, "no json" if bad else None, m.key, when))
    return sorted(found, key=lambda row: row[2])


def by_offset(frame):
    order = [*frame.columns]
    at = order.index("_offset")
    moved = frame.select("_offset", *(each for each in order if each != "_offset"))
    return [(*row[1 : at + 1], row[0], *row[at + 1 :]) for row in rows(moved)]


def test_a_typed_archive_has_what_the_source_would_have_decoded(spark, some, to, form):
    in_parts(some, to, form, 130, 300, schema="n BIGINT, kind STRING", value="json")
    asked = {"value.format": "json", "schema": TYPED}
    assert by_offset(shmq.spark.history(spark, to, some.path, **asked)) == fields(some)
    good = [row for row in fields(some) if row[3] is None]
    assert by_offset(shmq.spark.history(spark, to, some.path, mode="DROPMALFORMED", **asked)) == good
    with pytest.raises(Exception, match=r"has a payload that does not parse, of offset \d*7"):
        shmq.spark.history(spark, to, some.path, mode="FAILFAST", **asked).collect()
    wider = shmq.spark.history(
        spark,
        to,
        some.path,
        **{"value.format": "json"},
        schema="n DOUBLE NOT NULL, _offset BIGINT",
        mode="DROPMALFORMED",
    )
    assert rows(wider) == [(float(row[0]), row[2]) for row in good]


def test_fields_that_are_not_archived_are_told(spark, some, to, form):
    in_parts(some, to, form, 100)
    with pytest.raises(BadOption, match=r"has payloads as they are, and no column 'n': read it without value.format"):
        shmq.spark.history(spark, to, some.path, **{"value.format": "json"}, schema="n BIGINT")
    in_parts(some, f"{to}.typed", form, 200, schema="n BIGINT", value="json")
    with pytest.raises(BadOption, match=r"has no column 'kind'; it has n, _corrupt"):
        shmq.spark.history(spark, f"{to}.typed", some.path, **{"value.format": "json"}, schema="kind STRING")
    with pytest.raises(BadOption, match="need the column _timestamp"):
        shmq.spark.history(spark, f"{to}.typed", some.path, since=EPOCH, **{"value.format": "json"}, schema="n INT")


def test_found_a_frame_is_read_again_after_the_queue_has_forgotten_its_tail(spark, make, to, form):
    """Half a minute after it was made it was Gone, when the next cycle had archived what was its tail."""
    queue = make(chunk_bytes=1 << 16)  # which forgets what is finished
    fill(queue, 0, 100)
    archive.archive(queue.path, to, form=form)
    fill(queue, 100, 300)
    frames = [shmq.spark.history(spark, to, queue.path, schema=f"offset BIGINT, value BINARY, {HEADERS}") for _ in "ab"]
    before = rows(frames[0])
    archive.archive(queue.path, to)
    while queue.first_index < 300:
        fill(queue, queue.next_index, queue.next_index + 500)
        archive.archive(queue.path, to)
    archive.compact(to, file_bytes=100_000)
    assert rows(frames[0].where("offset < 300")) == rows(frames[1].where("offset < 300")) == before
    found = [row[0] for row in rows(frames[1])]
    assert found == list(range(queue.next_index))


def has_forgotten(queue, index):
    return queue.first_index > index


def test_no_gap_and_no_double_while_queue_and_archive_move(spark, make, to, form):
    queue = make(chunk_bytes=1 << 16)
    archive.hold(queue.path)
    done = threading.Event()

    def put():
        with shmq.open(queue.path) as mine:
            while not done.is_set() and mine.next_index < 20_000:
                fill(mine, mine.next_index, mine.next_index + 50)
                done.wait(0.02)

    def keep():
        while not done.wait(0.1):
            archive.archive(queue.path, to, form=form)
            archive.compact(to, file_bytes=40_000)

    threads = [threading.Thread(target=put), threading.Thread(target=keep)]
    for each in threads:
        each.start()
    try:
        frames = []
        while len(frames) < 3:
            frames.append(shmq.spark.history(spark, to, queue.path))
            least = queue.next_index
            for frame in reversed(
                frames[-3:]
            ):  # Spark looks for the ends when a frame is first read, and keeps to that
                found = sorted(row.offset for row in frame.select("offset").collect())
                assert found == list(range(len(found)))
                assert len(found) >= least
                least = 0
            support.until(functools.partial(has_forgotten, queue, 500 * len(frames)))  # some of their tails
    finally:
        done.set()
        for each in threads:
            each.join()


# ---------------------------------------------------------------- what is not read
def read_rows(spark, frame):
    """How many rows its scans of files have read for it."""
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        frame = frame.select("*")
        frame.collect()
        leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
        metrics = [leaves.apply(n).metrics() for n in range(leaves.size())]
        return sum(each.apply("numOutputRows").value() for each in metrics if each.contains("numFiles"))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)


def test_files_without_what_is_looked_for_are_passed_over(spark, some, to, form):
    in_parts(some, to, form, 100, 200, 300, 400, 500, schema="n BIGINT, kind STRING", value="json")
    whole = shmq.spark.history(spark, to, some.path, **{"value.format": "json"}, schema=TYPED)
    assert read_rows(spark, whole) == 500
    for condition, rows in (
        ("_offset between 250 and 260", 11),
        ("n = 42", 1),
        ("_timestamp >= timestamp'1970-01-05 00:00:00 UTC'", 100),
    ):
        frame = whole.where(condition)
        assert frame.count() == rows
        assert read_rows(spark, frame) == 100, condition
    frame = whole.where("_key = X'6b34'")  # k4, which is between k0 and k9 and not there
    assert (frame.count(), read_rows(spark, frame)) == (0, 0)
    limits = {"since": EPOCH + datetime.timedelta(days=1), "until": EPOCH + datetime.timedelta(days=3)}
    limited = shmq.spark.history(spark, to, some.path, **limits, **{"value.format": "json"}, schema=TYPED)
    assert sorted(row._offset for row in limited.collect()) == list(range(100, 300))
    assert len(limited.inputFiles()) == 2
    nothing = shmq.spark.history(spark, to, since=EPOCH + datetime.timedelta(days=99))
    assert nothing.count() == 0


# ---------------------------------------------------------------- of several hosts
@pytest.fixture
def of_hosts(tmp_path, to):
    """Queues of two hosts, which archive into one table; of each 100 messages more are live."""
    pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")
    opened = {}
    for host, stop in (("007", 300), ("b.example", 150)):  # a name that could be a number is none
        (tmp_path / host).mkdir()
        opened[host] = shmq.open(tmp_path / host / "orders", retention=shmq.Retention.forever())
        fill(opened[host], 0, stop)
        archive.archive(opened[host].path, to, host=host)
        fill(opened[host], stop, stop + 100)
    yield opened
    for each in opened.values():
        each.close()


def test_history_of_several_hosts_is_of_one_or_of_all(spark, of_hosts, to):
    everything = archive.history(spark, to)
    assert {tuple(row) for row in everything.groupBy("host").count().collect()} == {("007", 300), ("b.example", 150)}
    one = archive.history(spark, to, host="b.example")
    assert [(row.host, row.offset) for row in one.orderBy("offset").collect()] == [("b.example", n) for n in range(150)]
    assert all("host=b.example" in name for name in one.inputFiles())
    day = datetime.datetime.fromtimestamp(DAY, datetime.UTC)
    assert archive.history(spark, to, host="007", since=day).count() == 200
    with pytest.raises(shmq.NotFound, match=r"nothing of the host 'c'; it has 007, b\.example"):
        archive.history(spark, to, host="c")
    with pytest.raises(BadOption, match="and not beside a queue"):
        archive.history(spark, to, of_hosts["007"].path, host="007")
    with pytest.raises(BadOption, match="takes a queue of this host"):
        archive.history(spark, to, "grpc+tls://host-a:8815/orders")


def test_history_with_a_queue_is_of_its_own_host(spark, of_hosts, to, tmp_path):
    for queue in of_hosts.values():
        frame = archive.history(spark, to, queue.path)
        rows = frame.orderBy("offset").select("offset", "value").collect()
        assert [tuple(row) for row in rows] == [(m.index, m.payload) for m in queue.reader()]
    (tmp_path / "c").mkdir()
    with shmq.open(tmp_path / "c" / "orders") as queue:  # of which nothing is archived, and others of its name are
        fill(queue, 0, 10)
        assert archive.history(spark, to, queue.path).count() == 10


def test_a_tail_that_went_comes_out_of_the_table_of_several_hosts(spark, make, tmp_path, to):
    """By its own host, though another one has the same offsets of the same name."""
    pytest.importorskip("deltalake", reason="pip install 'shmq[delta]'")
    (tmp_path / "other").mkdir()
    queue = make(chunk_bytes=1 << 16)
    fill(queue, 0, 100)
    archive.archive(queue.path, to, host="b")
    with shmq.open(tmp_path / "other" / "q") as other:
        other.put_many([b"of a"] * 5000)
        archive.archive(other.path, to, host="a")
    fill(queue, 100, 2000)
    wanted = raw(queue)
    frame = archive.history(spark, to, queue.path)
    archive.archive(queue.path, to, host="b")
    fill(queue, 2000, 5000)
    archive.archive(queue.path, to, host="b")
    fill(queue, 5000, 5001)
    assert queue.first_index > 500
    found = frame.where("offset < 2000").orderBy("offset").select("offset", "value").collect()
    assert [tuple(row) for row in found] == [(each[0], each[2]) for each in wanted]
