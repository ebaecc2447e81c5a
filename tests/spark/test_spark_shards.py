"""Roots of shards under Spark: partitions, where rows go, and what a growth does to both. Without a JVM."""

from __future__ import annotations

import pickle
import warnings

import pytest

import shmq
from shmq.shards import growth

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    from pyspark.sql import datasource as api
    from pyspark.sql import types as t
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from shmq.spark import places, sink, source

KEYS = [b"%d" % number for number in range(40)]


@pytest.fixture(autouse=True)
def close_everything():
    yield
    places.close_all()


@pytest.fixture
def root(tmp_path):
    with shmq.shards.open(tmp_path / "e", shards=2, chunk_bytes=65536) as opened:
        yield opened


def of(path, **given):
    given = {"queue": str(path), "startingOffsets": "earliest", **given}
    return source.ShmqDataSource(api.CaseInsensitiveDict(given))


def rows_of(reader, partitions):
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def batch_of(reader, start, end):
    """(partition, key) of each row of one batch of a stream."""
    return [(row["partition"], row["key"]) for row in rows_of(reader, reader.partitions(start, end))]


def writer(path, **given):
    schema = t.StructType([t.StructField("key", t.BinaryType()), t.StructField("value", t.BinaryType())])
    given = {"queue": str(path), "txnAppId": "app", **given}
    return sink.stream_writer(api.CaseInsensitiveDict(given), schema, overwrite=False)


def task(mine, keys):
    columns = {"key": keys, "value": [b"v" + key for key in keys]}
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(mine)).write(iter([pa.record_batch(columns)]))))


def keys_in(root):
    return {number: sorted(message.key for message in queue.reader()) for number, queue in queues(root).items()}


def all_keys(root):
    return sorted(key for keys in keys_in(root).values() for key in keys)


def queues(root):
    return {shard.number: root.queue(shard) for shard in root.look().live()}


# ---------------------------------------------------------------- the source
def test_shards_are_partitions_by_their_numbers(root):
    """Also those of a single one, and after a growth; what only lies beside them is no matter."""
    root.put_many([b"v"] * 40, keys=KEYS)
    root.consumer("g", group=True).close()  # its members meet in a directory beside the shards
    root.grow()
    root.put_many([b"v"] * 40, keys=KEYS)
    numbers = [0, 1, 2048, 2049, 2050, 2051]
    assert [shard.number for shard in places.shards_of(root.path)] == numbers
    assert [shard.number for shard in places.to_put(root.path)] == numbers[2:]
    found = of(root.path)
    reader = found.reader(found.schema())
    rows = rows_of(reader, reader.partitions())
    assert len(rows) == 80
    assert {row["partition"] for row in rows} <= set(numbers)
    with shmq.shards.open(f"{root.path}-1", shards=1, prefix="only"):
        assert [shard.number for shard in places.shards_of(f"{root.path}-1")] == [0]


def test_what_is_being_opened_is_no_partition_yet(root):
    """Nobody puts there before the map says so."""
    flags = {"unsafe_filesystem": False}
    growth.begin(root.map, root.queues[0].options, lambda path: shmq.open(path, create=False), **flags)
    assert [shard.number for shard in places.shards_of(root.path)] == [0, 1]


def test_a_stream_begins_a_child_when_it_has_passed_its_parent(root):
    """In a later batch: within one, Spark reads partitions in any order."""
    root.put_many([b"v"] * 40, keys=KEYS)
    reader = of(root.path).streamReader(of(root.path).schema())
    start = reader.initialOffset()
    root.grow()
    root.put_many([b"v"] * 40, keys=KEYS)
    middle = reader.latestOffset(start, ReadAllAvailable())
    first = batch_of(reader, start, middle)
    end = reader.latestOffset(middle, ReadAllAvailable())
    second = batch_of(reader, middle, end)
    assert sorted(key for _, key in first) == sorted(key for _, key in second) == sorted(KEYS)
    assert {number for number, _ in first} == {0, 1}
    assert {number & 2048 for number, _ in second} == {2048}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_what_is_there_now_is_all_also_over_a_growth(root):
    """A run that ends with what it found reads the parents, then the children."""
    root.put_many([b"v"] * 40, keys=KEYS)
    root.grow()
    root.put_many([b"v"] * 40, keys=KEYS)
    reader = of(root.path).streamReader(of(root.path).schema())
    reader.prepareForTriggerAvailableNow()
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadAllAvailable())) != at:
        found.append(len(batch_of(reader, at, end)))
        at = end
    assert found == [40, 40]


# ---------------------------------------------------------------- the sink
def test_rows_go_where_a_put_of_their_key_goes(root):
    mine = writer(root.path)
    writer(root.path).commit([task(mine, KEYS)], 0)
    for key in KEYS:
        number = root.put(b"v", key=key).shard
        assert keys_in(root)[number].count(key) == 2


def test_a_batch_that_the_root_outgrew_is_refused_whole(root):
    """Staged for shards that are finished now: it is repeated, and comes once."""
    staged = [task(writer(root.path), KEYS)]
    stale = writer(root.path)
    root.grow()
    with pytest.raises(shmq.Mismatch, match="its shards have grown since the tasks wrote; nothing was put"):
        writer(root.path).commit(staged, 0)
    with pytest.raises(shmq.Mismatch, match="has grown, or was finished, since this was planned"):
        task(stale, KEYS)
    assert all(queue.finished == (number < 2) for number, queue in queues(root).items())
    writer(root.path).commit([task(writer(root.path), KEYS)], 0)
    assert all_keys(root) == sorted(KEYS)
    assert [queue.staged_sets() for queue in queues(root).values()] == [[]] * 6


def test_a_batch_that_was_joined_in_part_before_a_growth_is_not_doubled(root):
    """A shard whose parent has the batch gets nothing of it; the others get theirs."""
    staged = task(writer(root.path), KEYS)
    one = root.queues[1]
    one.adopt([staged.tokens["", 1]], dedup=("app", 0))  # what a commit does; then the driver is killed
    root.grow()
    mine = writer(root.path)
    writer(root.path).commit([task(mine, KEYS)], 0)
    assert all_keys(root) == sorted(KEYS)
    assert all(not queue.next_index for number, queue in queues(root).items() if number >= 2048 and number % 2)


def test_straight_puts_go_to_what_is_open(root):
    """And a plan that a growth has passed by is refused."""
    stale = writer(root.path, delivery="at_least_once")
    root.grow()
    with pytest.raises(shmq.Mismatch, match="has grown"):
        task(stale, KEYS)
    task(writer(root.path, delivery="at_least_once"), KEYS)
    assert all_keys(root) == sorted(KEYS)
