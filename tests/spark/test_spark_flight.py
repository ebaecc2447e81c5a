"""Queues of several hosts as Spark's classes read and write them, without a JVM: each host is a service here."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import warnings

import pytest

import shmq

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    from pyspark.sql import datasource as api
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    from shmq.spark import hosts, mirror, options, places, sink, source

VALUE = t.StructType([t.StructField("value", t.BinaryType())])
KEYED = t.StructType([t.StructField("key", t.BinaryType()), t.StructField("value", t.BinaryType())])


@pytest.fixture
def two(tmp_path, monkeypatch):
    """The roots of two services, and their locations. What is on this disk is read over the wire all the same."""
    monkeypatch.setattr(shmq.flight.RemoteQueue, "here", lambda _: None)
    with contextlib.ExitStack() as stack:
        found = []
        for name in ("a", "b"):
            root = tmp_path / name
            root.mkdir(mode=0o700)
            found.append((root, stack.enter_context(shmq.flight.serve(root)).location))
        yield found
        for client in hosts._clients.values():
            client.close()
        hosts._clients.clear()
        hosts._access.clear()
        mirror._followed.clear()


def fill(path, start, stop, **given):
    with shmq.open(path, chunk_bytes=1 << 14, **given) as queue:
        for at in range(start, stop, 100):
            queue.put_many([b"%d" % n for n in range(at, min(at + 100, stop))])


def door(**given):
    return source.ShmqDataSource(api.CaseInsensitiveDict({k.replace("__", "."): str(v) for k, v in given.items()}))


def load(schema=None, **given):
    """Rows, as a batch query reads them, and the host of each task."""
    found = door(**given)
    reader = pickle.loads(pickle.dumps(found.reader(schema or found.schema())))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    hosts._access.clear()  # a task is another process
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    for batch in batches:
        assert batch.schema == to_arrow_schema(schema or found.schema(), timezone="UTC")
    return [row for batch in batches for row in batch.to_pylist()], partitions


def both(two, name):
    return ",".join(f"{location}/{name}" for _, location in two)


def payloads(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [int(message.payload) for message in queue.reader()]


# ---------------------------------------------------------------- batch
def test_one_query_reads_the_queues_of_two_hosts(two):
    for number, (root, _) in enumerate(two):
        fill(root / "orders", number * 1000, number * 1000 + 1000)
    rows, partitions = load(queue=both(two, "orders"), minPartitions=4)
    assert sorted(int(row["value"]) for row in rows) == list(range(2000))
    names = [f"{location.removeprefix('grpc://')}/orders" for _, location in two]
    assert {row["topic"] for row in rows} == set(names)
    assert len(partitions) >= 4
    for partition in partitions:  # a task waits for one host alone
        assert len({piece.topic for piece in partition.pieces}) == 1
    ended, _ = load(queue=both(two, "orders"), startingOffsets=f'{{"{names[0]}":{{"0":990}},"{names[1]}":{{"0":-1}}}}')
    assert sorted(int(row["value"]) for row in ended) == list(range(990, 1000))


def test_shards_and_topics_have_their_hosts_names(two):
    for number, (root, _) in enumerate(two):
        (root / "shop" / "orders").mkdir(parents=True, mode=0o700)
        (root / "shop").chmod(0o700)
        for shard in range(2):
            fill(root / "shop" / "orders" / f"1.{shard:03x}", number * 20 + shard * 10, number * 20 + shard * 10 + 10)
        fill(root / "shop" / "pay", 100, 105)
    rows, _ = load(queue=both(two, "shop/orders"))
    assert sorted(int(row["value"]) for row in rows) == list(range(40))
    assert {row["partition"] for row in rows} == {0, 1}
    for given in ({"subscribe": "orders"}, {"subscribePattern": "or.*"}, {"assign": '{"orders":[0,1]}'}):
        assert len(load(queue=both(two, "shop"), **given)[0]) == 40
    label = two[0][1].removeprefix("grpc://") + "/shop/orders"
    assert len(load(queue=both(two, "shop"), assign=f'{{"{label}":[1]}}')[0]) == 10
    with pytest.raises(shmq.NotFound, match="orders, pay"):
        load(queue=both(two, "shop"))
    for given in ({"subscribe": "strange"}, {"subscribePattern": "x"}, {"assign": '{"orders":[0,7]}'}):
        with pytest.raises(shmq.NotFound):
            load(queue=both(two, "shop"), **given)


def test_payloads_are_decoded_and_keys_and_headers_come_too(two):
    with shmq.open(two[0][0] / "orders") as queue:
        queue.put(b'{"n": 7}', key=b"k", type=3, headers={"h": b"1"}, time_ns=1_000_000_000)
        queue.put(b"", headers={"tombstone": True})
    at = f"{two[0][1]}/orders"
    (row, gone), _ = load(queue=at, includeHeaders="true")
    assert (row["key"], row["headers"]) == (b"k", [{"key": "h", "value": b"1"}])
    assert gone["value"] is None
    (first, _), _ = load(t.StructType([t.StructField("n", t.LongType())]), queue=at, value__format="json")
    assert first == {"n": 7}
    with shmq.open(two[0][0] / "prices") as queue:
        queue.put_many([bytes([n, 0, 0, 0]) for n in range(5)])
    schema = t.StructType([t.StructField("price", t.IntegerType())])
    rows, _ = load(schema, queue=f"{two[0][1]}/prices", value__format="struct", value__dtype="price:<i4")
    assert [row["price"] for row in rows] == list(range(5))


def test_what_was_retired_between_planning_and_reading_is_no_silence(two):
    root, location = two[0]
    fill(root / "orders", 0, 1000)
    reader = door(queue=f"{location}/orders").reader(VALUE)
    partitions = reader.partitions()
    with shmq.open(root / "orders") as queue:
        queue.purge()
    with pytest.raises(shmq.Gone):
        [batch for each in partitions for batch in reader.read(each)]


def test_another_queue_than_the_one_that_was_planned_is_not_read(two):
    root, location = two[0]
    fill(root / "orders", 0, 10)
    reader = door(queue=f"{location}/orders").reader(VALUE)
    partitions = reader.partitions()
    shmq.delete(root / "orders")
    fill(root / "orders", 50, 60)
    with pytest.raises(shmq.Mismatch, match="Start the query again"):
        list(reader.read(partitions[0]))


def test_a_queue_that_is_on_this_disk_is_read_from_it(tmp_path, monkeypatch):
    fill(tmp_path / "orders", 0, 10)
    (tmp_path).chmod(0o700)
    with shmq.flight.serve(tmp_path) as service:
        at = f"{service.location}/orders"
        assert places.open_to_read(at).path == str(tmp_path / "orders")
        monkeypatch.setattr(shmq.flight.RemoteQueue, "read_arrow", None)
        assert len(load(queue=at)[0]) == 10
        places.close_all()
        hosts._clients.clear()


def test_tokens_come_from_a_file_of_each_host(two, tmp_path):
    root, _ = two[0]
    fill(root / "orders", 0, 10)
    digest = hashlib.sha256(b"secret").hexdigest()
    rights = tmp_path / "rights"
    rights.write_text(f"{digest} * read never\n")
    rights.chmod(0o600)
    (tmp_path / "token").write_text("secret\n")
    with shmq.flight.serve(root, token_file=str(rights)) as service:
        at = f"{service.location}/orders"
        with pytest.raises(PermissionError):
            load(queue=at)
        assert len(load(queue=at, tokenFile=str(tmp_path / "token"))[0]) == 10


@pytest.mark.parametrize(
    "word", ["grpc://a", "grpc://a:1/b,c", "grpc+unix:///tmp/s", "grpc://a:1/b,grpc://a:1/b", "http://a:1/b"]
)
def test_what_is_no_address_is_told(word):
    with pytest.raises(options.BadOption):
        options.source_options({"queue": word})


# ---------------------------------------------------------------- streams
def stream(two, **given):
    return door(queue=both(two, "in"), startingOffsets="earliest", **given).streamReader(VALUE)


def batch_of(reader, start, end):
    read = pickle.loads(pickle.dumps(reader))
    return sorted(
        int(row["value"]) for part in reader.partitions(start, end) for b in read.read(part) for row in b.to_pylist()
    )


def test_a_stream_goes_over_hosts_and_holds_what_it_has_not_read(two):
    for number, (root, _) in enumerate(two):
        fill(root / "in", number * 1000, number * 1000 + 500, durability="process")
    reader = stream(two, group="spark")
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ReadMaxRows(300))
    first = batch_of(reader, begun, end)
    assert len(first) == 300
    last = reader.latestOffset(end, ReadAllAvailable())
    assert sorted(first + batch_of(reader, end, last)) == [*range(500), *range(1000, 1500)]
    assert batch_of(stream(two, group="spark"), begun, end) == first  # a restart reads the same
    for root, _ in two:
        with shmq.open(root / "in") as queue:
            assert queue.consumers()["spark"].head < 500
    reader.commit(last)
    for root, _ in two:
        with shmq.open(root / "in") as queue:
            assert queue.consumers()["spark"].head == 500
            assert queue.durable_index == 500  # what is read was on the disk first
    with shmq.open(two[0][0] / "in") as queue:
        queue.drop_consumer("spark")
        mirror._followed.clear()
        hosts._access.clear()  # as in a process that only listens
        mirror.follow_json(last)
        assert "spark" not in queue.consumers()
        places.know(reader.options)
        mirror.follow_json(last)
        assert queue.consumers()["spark"].head == 500
    assert {shard.path for shard in places.find(reader.options)} == {f"{location}/in" for _, location in two}


# ---------------------------------------------------------------- the sink
def write(two, numbers, batch, *, tasks=2, **more):
    """One batch of a stream, by several tasks; the writer and what the tasks say."""
    given = api.CaseInsensitiveDict({"queue": both(two, "out"), "txnAppId": "app", **more})
    writer = sink.stream_writer(given, KEYED, overwrite=False)
    rows = [{"key": b"%d" % n, "value": b"%d" % n} for n in numbers]
    schema = to_arrow_schema(KEYED)
    told = [
        pickle.loads(pickle.dumps(writer)).write(iter([pa.RecordBatch.from_pylist(rows[task::tasks], schema=schema)]))
        for task in range(tasks)
    ]
    return writer, told


def outs(two):
    return [payloads(root / "out") for root, _ in two]


@pytest.fixture
def targets(two):
    for root, _ in two:
        shmq.open(root / "out").close()
    return two


def test_rows_go_to_the_hosts_by_their_keys_and_once(targets, monkeypatch):
    monkeypatch.setattr(shmq.flight.remote, "_SET_ROWS", 100)  # several pieces
    writer, told = write(targets, range(1000), 0)
    assert outs(targets) == [[], []]
    writer.commit(told, 0)
    there = outs(targets)
    assert sorted(there[0] + there[1]) == list(range(1000))
    assert min(map(len, there)) > 400
    writer, told = write(targets, range(1000), 0, tasks=3)  # the same batch again, cut otherwise
    writer.commit(told, 0)
    assert outs(targets) == there
    for root, _ in targets:
        with shmq.open(root / "out") as queue:
            assert queue.staged_sets() == []


def test_a_driver_that_is_killed_between_two_hosts_leaves_one_that_is_made_good(targets, monkeypatch):
    writer, told = write(targets, range(100), 0)
    adopt = shmq.flight.RemoteQueue.adopt
    calls = []

    def die(queue, *given, **more):
        if calls:
            raise SystemExit
        calls.append(queue)
        return adopt(queue, *given, **more)

    monkeypatch.setattr(shmq.flight.RemoteQueue, "adopt", die)
    with pytest.raises(SystemExit):
        writer.commit(told, 0)
    monkeypatch.setattr(shmq.flight.RemoteQueue, "adopt", adopt)
    assert sorted(map(bool, outs(targets))) == [False, True]
    writer, told = write(targets, range(100), 0)
    writer.commit(told, 0)
    there = outs(targets)
    assert sorted(there[0] + there[1]) == list(range(100))


def test_a_batch_that_is_repeated_with_other_hosts_adopts_what_was_noted_first(targets, monkeypatch):
    """Without the note, rows of the host that is new would be there twice."""
    shmq.open(targets[1][0] / "intents").close()
    noted = {"intents": f"{targets[1][1]}/intents"}
    adopt, calls = shmq.flight.RemoteQueue.adopt, []

    def die(queue, *given, **more):
        if calls:
            raise SystemExit
        calls.append(queue.name)
        return adopt(queue, *given, **more)

    writer, told = write(targets[:1], range(100), 0, **noted)
    with monkeypatch.context() as dying:
        dying.setattr(shmq.flight.RemoteQueue, "adopt", die)
        with pytest.raises(SystemExit):
            writer.commit(told, 0)
    assert calls == ["intents"]  # noted, and nothing else
    assert outs(targets) == [[], []]
    writer.abort(told, 0)  # which must not sweep what is noted
    for hosts_now in (targets, targets[::-1]):
        writer, told = write(hosts_now, range(100), 0, **noted)
        writer.commit(told, 0)
        assert [sorted(each) for each in outs(targets)] == [list(range(100)), []]
    writer, told = write(targets, range(100, 200), 1, **noted)
    writer.commit(told, 1)
    there = outs(targets)
    assert sorted(there[0] + there[1]) == list(range(200))
    assert there[1]
    for root, _ in targets:
        with shmq.open(root / "out") as queue:
            assert queue.staged_sets() == []


def test_intents_are_for_several_hosts(tmp_path):
    with pytest.raises(options.BadOption):
        options.sink_options({"queue": str(tmp_path / "q"), "intents": "grpc://a:1/intents"})


def test_what_is_aborted_is_swept_on_each_host(targets):
    writer, told = write(targets, range(100), 0)
    writer.abort(told, 0)
    for root, _ in targets:
        with shmq.open(root / "out") as queue:
            assert queue.staged_sets() == []
    assert outs(targets) == [[], []]


def test_a_sink_makes_no_queue_on_another_host(two):
    with pytest.raises(shmq.NotFound):
        write(two, range(3), 0)
    for more in ({"topic": "t"}, {"delivery": "at_least_once"}):
        with pytest.raises(options.BadOption, match="over hosts"):
            options.sink_options({"queue": both(two, "out"), **more})
