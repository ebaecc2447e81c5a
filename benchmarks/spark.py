"""
The Spark source, sink and archive, as ratios within one session.

    python -m benchmarks.spark --rows 16000000
    python -m benchmarks.spark --rows 4000000 --only faults      # what payloads that do not parse cost
    python -m benchmarks.spark --only aggregate                  # sums by group, begun in the reading task
    python -m benchmarks.spark --rows 4000000 --only history     # what is archived, beside native Parquet

The same rows lie in queues (two shards), in Parquet and in JSON lines, and take turns. Each figure is a median of five.
Absolute numbers move with the machine; the ratios move less, and are what is promised. 16 million rows take some
7 minutes on two idle cores and 9 GB of disk, which are given back in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import shmq
from shmq.spark import archive, listener

FIELDS = "user BIGINT, kind STRING, amount DOUBLE, ts BIGINT"
DTYPE = "user:<i8, kind:<i8, amount:<f8, ts:<i8"
RECORD = "user BIGINT, kind BIGINT, amount DOUBLE, ts BIGINT"
_BATCH = 8000
_ROW_BYTES = 600
"""On the disk at most, of one row in all of its forms at once."""


def rates(works, rounds):
    """
    Rows a second of each work, the median of some rounds.

    All of them take turns: what one of them warms up, and what else the machine does, is for and against all.
    """
    found = {name: [] for name in works}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}: {', '.join(works)}")
        for name, (rows, work) in works.items():
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            if number:  # the first round only warms up
                found[name].append(rows / seconds)
    return {name: statistics.median(each) for name, each in found.items()}


def fill(top, rows, shards=2, kinds=("records", "json")):
    """Two queues of the same rows: fixed records and JSON."""
    import numpy as np

    for kind in kinds:
        (top / kind).mkdir()
        for shard in range(shards):
            with shmq.open(
                top / kind / f"1.{shard:03x}", options=shmq.Options(retention=shmq.Retention.forever())
            ) as queue:
                for start in range(0, rows // shards, _BATCH):
                    count = min(_BATCH, rows // shards - start)
                    n = np.arange(start, start + count)
                    if kind == "records":
                        table = np.zeros(
                            count, dtype=[("user", "<i8"), ("kind", "<i8"), ("amount", "<f8"), ("ts", "<i8")]
                        )
                        table["user"], table["kind"], table["amount"], table["ts"] = n % 1000, n % 7, n * 0.5, n
                        raw = table.tobytes()
                        queue.put_many([raw[at : at + 32] for at in range(0, len(raw), 32)])
                    else:
                        queue.put_many(
                            [
                                b'{"user":%d,"kind":"k%d","amount":%d.5,"ts":%d}' % (each % 1000, each % 7, each, each)
                                for each in n.tolist()
                            ]
                        )


def rows_source():
    """The same records by row tuples, which is what a reader without Arrow would do."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class RowReader(DataSourceReader):
        def __init__(self, options):
            self.path, self.rows = options["path"], int(options["rows"])

        def partitions(self):
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition):
            import struct

            import shmq

            unpack = struct.Struct("<qqdq").unpack
            with shmq.open(f"{self.path}/1.{partition.value:03x}", create=False, read_only=True) as queue:
                for message in queue.reader(0, self.rows // 2):
                    yield unpack(message.view)

    class Rows(DataSource):
        @classmethod
        def name(cls):
            return "shmq_rows"

        def schema(self):
            return RECORD

        def reader(self, schema):  # noqa: ARG002
            return RowReader(self.options)

    return Rows


def row_sink():
    """A sink by rows, without Arrow."""
    from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

    class RowWriter(DataSourceWriter):
        def __init__(self, options):
            self.path = options["path"]

        def write(self, iterator):
            import shmq

            with shmq.open(self.path) as queue:
                batch = []
                for row in iterator:
                    batch.append(bytes(row.value))
                    if len(batch) == 4096:
                        queue.put_many(batch)
                        batch = []
                queue.put_many(batch)
            return WriterCommitMessage()

    class Rows(DataSource):
        @classmethod
        def name(cls):
            return "shmq_row_sink"

        def writer(self, schema, overwrite):  # noqa: ARG002
            return RowWriter(self.options)

    return Rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where to work (a new directory in the temporary one)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["faults", "aggregate", "history"], help="this part alone")
    arguments = parser.parse_args()
    place = arguments.dir or tempfile.gettempdir()
    free, wanted = shutil.disk_usage(place).free, arguments.rows * _ROW_BYTES
    if free < wanted:
        sys.exit(
            f"{place} has {free / 1e9:.1f} GB left and {wanted / 1e9:.1f} are wanted: fewer --rows, or another --dir"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shmq-bench-spark-", dir=arguments.dir) as top:
        work = {"faults": faults, "aggregate": aggregating, "history": history, None: measure}[arguments.only]
        found = work(Path(top), arguments.rows, arguments.rounds)
    found["the whole run (s)"] = round(time.monotonic() - began)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:48} {value:>14,.2f}" if isinstance(value, float) else f"{name:48} {value:>14,}")


def say(what):
    """Where it is: it takes its time."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def session():
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    return shmq.spark.session("local[2]", **conf)


def measure(top, rows, rounds):
    say(f"putting {rows:,} records and {rows:,} JSON objects into queues")
    fill(top, rows)
    spark = session()
    spark.dataSource.register(rows_source())
    spark.dataSource.register(row_sink())
    found = {"rows": rows}
    found |= reading(spark, top, rows, rounds)
    say("sinks")
    found |= sinks(spark, top, rows, rounds)
    say("archive")
    found |= archiving(top, rows)
    found["disk in use (MB)"] = sum(file.stat().st_size for file in top.rglob("*") if file.is_file()) // 1_000_000
    say("streams")
    found |= streams(spark, top)
    spark.stop()
    return found


def aggregating(top, rows, rounds):
    """A sum by group, begun in the task that reads, beside Parquet's: by the clock, and by processor time."""
    fill(top, rows, kinds=("records",))
    spark = session()
    options = {"value.format": "struct", "value.dtype": DTYPE}
    place = str(top / "records")
    spark.read.format("shmq").schema(RECORD).options(**options).load(place).write.parquet(str(top / "parquet"))
    parquet = spark.read.parquet(str(top / "parquet"))
    never_null = "kind BIGINT NOT NULL, amount DOUBLE NOT NULL"

    def plainly():
        frame = spark.read.format("shmq").schema(never_null).options(**options).load(place)
        return sorted(map(tuple, frame.groupBy("kind").sum("amount").collect()))

    def in_the_task():
        given = {"by": ["kind"], "sums": ["amount"], "schema": RECORD, "spark": spark}
        return sorted(map(tuple, shmq.spark.aggregate(place, **given, **options).collect()))

    def by_parquet():
        return sorted(map(tuple, parquet.groupBy("kind").sum("amount").collect()))

    works = {"Parquet": by_parquet, "shmq.spark.aggregate": in_the_task, "groupBy, two columns NOT NULL": plainly}
    assert len({str(work()) for work in works.values()}) == 1
    clock, processor = {name: [] for name in works}, {name: [] for name in works}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}: {', '.join(works)}")
        for name, work in works.items():
            began, used = time.perf_counter(), processor_time()
            work()
            if number:  # the first round only warms up
                clock[name].append(time.perf_counter() - began)
                processor[name].append((processor_time() - used) / rows * 1e9)
    spark.stop()
    found = {"rows": rows}
    for name in works:
        found[f"{name} (ms)"] = statistics.median(clock[name]) * 1000
        found[f"{name} (ns of processor time a row)"] = statistics.median(processor[name])
    for kind, times in (("time", clock), ("processor time", processor)):
        for name in list(works)[1:]:
            ratios = [ours / theirs for ours, theirs in zip(times[name], times["Parquet"], strict=True)]
            found[f"{kind}, {name} / Parquet"] = statistics.median(ratios)
    return found


def processor_time():
    """Of this process and all below it, the JVM and its Pythons, in seconds."""
    children, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    todo, total = [os.getpid()], 0.0
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def reading(spark, top, rows, rounds):
    """The same rows out of queues, Parquet and JSON lines; and the queues by row tuples."""
    options = {"value.format": "struct", "value.dtype": DTYPE}
    records = spark.read.format("shmq").schema(RECORD).options(**options).load(str(top / "records"))
    # Spark prunes Parquet's columns by itself, and a Python source's by the schema that the user gives.
    pruned = (
        spark.read.format("shmq").schema("kind BIGINT, amount DOUBLE").options(**options).load(str(top / "records"))
    )
    as_json = spark.read.format("shmq").schema(FIELDS).option("value.format", "json").load(str(top / "json"))
    never_null = (
        spark.read.format("shmq").schema("kind BIGINT NOT NULL, amount DOUBLE NOT NULL").options(**options)
    ).load(str(top / "records"))
    say("the same into Parquet and JSON lines")
    records.write.parquet(str(top / "parquet"))
    as_json.write.json(str(top / "lines"))
    parquet, lines = spark.read.parquet(str(top / "parquet")), spark.read.schema(FIELDS).json(str(top / "lines"))
    few = max(rows // 8, 1)
    tuples = spark.read.format("shmq_rows").option("rows", str(few)).load(str(top / "records"))

    def group(frame):
        return lambda: frame.groupBy("kind").sum("amount").collect()

    def to_parquet(frame):
        return lambda: frame.write.mode("overwrite").parquet(str(top / "out"))

    works = {
        "count, shmq records": (rows, records.count),
        "count, Parquet": (rows, parquet.count),
        "count, JSON lines": (rows, lines.count),
        "groupBy, shmq records": (rows, group(records)),
        "groupBy, shmq records, its two columns": (rows, group(pruned)),
        "groupBy, shmq records, its two columns NOT NULL": (rows, group(never_null)),
        "groupBy, shmq JSON": (rows, group(as_json)),
        "groupBy, Parquet": (rows, group(parquet)),
        "groupBy, JSON lines": (rows, group(lines)),
        "groupBy, row tuples": (few, group(tuples)),
        "to Parquet, shmq records": (rows, to_parquet(records)),
        "to Parquet, Parquet": (rows, to_parquet(parquet)),
        "to Parquet, JSON lines": (rows, to_parquet(lines)),
    }
    rate = rates(works, rounds)
    found = {f"{name} (rows/s)": round(value) for name, value in rate.items()}
    found["groupBy: shmq records / Parquet"] = rate["groupBy, shmq records"] / rate["groupBy, Parquet"]
    found["groupBy: shmq records, its two columns / Parquet"] = (
        rate["groupBy, shmq records, its two columns"] / rate["groupBy, Parquet"]
    )
    found["groupBy: shmq records, its two columns NOT NULL / Parquet"] = (
        rate["groupBy, shmq records, its two columns NOT NULL"] / rate["groupBy, Parquet"]
    )
    found["groupBy: shmq records / JSON lines"] = rate["groupBy, shmq records"] / rate["groupBy, JSON lines"]
    found["groupBy: shmq JSON / JSON lines"] = rate["groupBy, shmq JSON"] / rate["groupBy, JSON lines"]
    found["groupBy: Arrow / row tuples"] = rate["groupBy, shmq records"] / rate["groupBy, row tuples"]
    return found


_SHARES = (0, 1, 50)
"""Per cent of the payloads that have a fault: half of these text where a number should be, half of them no end."""


def faults(top, rows, rounds):
    """JSON payloads of which some have a fault, by the source and by Spark's own `from_json`."""
    from pyspark.sql import functions as f

    def group(frame):  # anew each time: Spark keeps what it has shuffled for a frame
        return lambda: frame.groupBy("kind", f.col("_corrupt").isNull()).sum("amount").collect()

    works = {}
    spark = session()
    for share in _SHARES:
        place = str(top / f"faults{share}")
        put_faulty(place, rows, share)
        reader = spark.read.format("shmq")
        parsed = f.from_json(f.col("value").cast("string"), FIELDS + ", _corrupt STRING")
        theirs = reader.option("columns", "value").load(place).select(parsed.alias("row")).select("row.*")
        reader = spark.read.format("shmq").option("value.format", "json").schema(FIELDS + ", _corrupt STRING")
        for name, frame in (("shmq", reader.load(place)), ("from_json", theirs)):
            works[f"{share} % faults, {name}"] = (rows, group(frame))
    rate = rates(works, rounds)
    spark.stop()
    found = {"rows": rows} | {f"{name} (rows/s)": round(value) for name, value in rate.items()}
    for name in ("shmq", "from_json"):
        for share in _SHARES[1:]:
            found[f"{share} % faults / none, time, {name}"] = (
                rate[f"0 % faults, {name}"] / rate[f"{share} % faults, {name}"]
            )
    return found


def put_faulty(place, rows, share):
    """So many per cent of the payloads, evenly spread, have one of the two faults."""
    with shmq.open(place, options=shmq.Options(retention=shmq.Retention.forever())) as queue:
        for start in range(0, rows, _BATCH):
            payloads = []
            for each in range(start, min(start + _BATCH, rows)):
                good = b'{"user":%d,"kind":"k%d","amount":%d.5,"ts":%d}' % (each % 1000, each % 7, each, each)
                is_bad = each * share // 100 != (each + 1) * share // 100
                no_number = good.replace(b'amount":', b'amount":"').replace(b".5", b'.5"')
                payloads.append(good if not is_bad else good[:-1] if each % 4 < 2 else no_number)
            queue.put_many(payloads)


def sinks(spark, top, rows, rounds):
    """All at once and synced, against a sink that is given rows, and puts them straight away."""
    count, few = rows // 4, rows // 16
    frame = spark.range(0, count, 1, 2).selectExpr("cast(concat('payload of number ', id) as binary) as value").cache()
    less = spark.range(0, few, 1, 2).selectExpr("cast(concat('payload of number ', id) as binary) as value").cache()
    frame.count()
    less.count()
    names = iter(range(1000))

    def to(kind, frame):
        def work():
            place = top / f"sink{next(names)}"
            frame.write.format(kind).mode("append").save(str(place))
            shmq.delete(place)

        return work

    works = {"sink, shmq": (count, to("shmq", frame)), "sink by rows": (few, to("shmq_row_sink", less))}
    rate = rates(works, rounds)
    frame.unpersist()
    return {
        **{f"{name} (rows/s)": round(value) for name, value in rate.items()},
        "sink: shmq / by rows": rate["sink, shmq"] / rate["sink by rows"],
    }


def archiving(top, rows):
    """On one processor, by its own time: Parquet with a manifest, from JSON payloads."""
    began, clock = time.process_time(), time.perf_counter()
    done = archive.archive(str(top / "json"), str(top / "archive"))
    processor, wall = time.process_time() - began, time.perf_counter() - clock
    assert done == rows // 2 * 2
    shutil.rmtree(top / "archive")
    return {
        "archive to Parquet (rows/s of processor time)": round(done / processor),
        "archive (rows/s)": round(done / wall),
    }


_TAIL = 1000
"""So many rows are in the queue alone, of each shard."""
_CYCLES, _CYCLE_ROWS = 40, 8000


def history(top, rows, rounds):
    """What is archived of JSON, typed and as it was, beside native Parquet of the same columns; and what it writes."""
    from pyspark.sql import functions as f

    say(f"putting {rows:,} JSON objects into queues")
    fill(top, rows)
    spark = session()
    queue, place = str(top / "json"), top / "json-parquet"
    shards = sorted(Path(queue).iterdir())
    say("the same JSON into Parquet, and into archives: typed, and as it is")
    found = {"rows": rows}
    for name, given in (("typed", {"schema": FIELDS, "value": "json"}), ("raw", {})):
        for shard in shards:
            with shmq.open(shard) as opened:
                if archive.CONSUMER in opened.consumers():
                    opened.drop_consumer(archive.CONSUMER)
        began = time.process_time()
        done = archive.archive(queue, str(top / name), form="delta", **given)
        found[f"archive to Delta, {name} (rows/s of processor time)"] = round(done / (time.process_time() - began))
    source = {"value.format": "json"}
    live = spark.read.format("shmq").options(**source).schema(FIELDS).load(queue)
    live.write.parquet(str(place))
    for shard in shards:
        with shmq.open(shard) as opened:
            opened.put_many([b'{"user":1,"kind":"k1","amount":0.5,"ts":%d}' % n for n in range(_TAIL)])
    raw = shmq.spark.history(spark, str(top / "raw"), queue)
    frames = {
        "native Parquet": spark.read.parquet(str(place)),
        "history, typed": shmq.spark.history(spark, str(top / "typed"), queue, schema=FIELDS, **source),
        "history, raw, by from_json": raw.select(f.from_json(raw.value.cast("string"), FIELDS).alias("o")).select(
            "o.*"
        ),
        "live queue": live,
    }

    def group(frame):
        return lambda: frame.groupBy("kind").sum("amount").collect()

    rate = rates({name: (rows, group(frame)) for name, frame in frames.items()}, rounds)
    for name in list(frames)[1:]:
        found[f"JSON groupBy, {name}: times native Parquet"] = rate["native Parquet"] / rate[name]
    spark.stop()
    return {**found, **written(top)}


def written(top):
    """Bytes of files that are written, over those that are archived, where small ones are put together each time."""
    say(f"{_CYCLES} cycles of {_CYCLE_ROWS:,} messages")
    found = {}
    for form in ("parquet", "delta"):
        place, sizes = top / f"cycles-{form}", {}
        with shmq.open(top / f"cycles-{form}-queue", retention="forever") as queue:
            for cycle in range(_CYCLES):
                numbers = range(cycle * _CYCLE_ROWS, (cycle + 1) * _CYCLE_ROWS)
                queue.put_many([b'{"user":%d,"amount":%d.5,"ts":%d}' % (n * 7919 % 1000, n, n) for n in numbers])
                archive.archive(queue.path, str(place), form=form)
                archive.compact(str(place))
                sizes |= {file: file.stat().st_size for file in place.rglob("*.parquet")}
        archived = sum(sorted(sizes.values())[:_CYCLES])  # what was put together is larger
        found[f"bytes written over bytes archived, {_CYCLES} cycles, {form}"] = sum(sizes.values()) / archived
    return found


_SHARDS = (1, 8)
_TRICKLE = 480
"""Messages that are put at once, shared out among the shards."""


def streams(spark, top):
    """What a trigger costs, what one more shard adds to it, and how long a message takes from put to done."""
    found, costs = {}, []
    for shards in _SHARDS:
        durations, latencies = trickle(spark, top, shards)
        name = f"{shards} shard{'s' if shards > 1 else ''}"
        costs.append(float(statistics.median(durations)))
        found[f"a trigger of {_TRICKLE} rows, {name} (ms, p50)"] = costs[-1]
        found[f"put to done, {name} (ms, p50)"] = float(statistics.median(latencies))
    found["one more shard (ms a trigger, p50)"] = (costs[1] - costs[0]) / (_SHARDS[1] - _SHARDS[0])
    return found


def trickle(spark, top, shards, seconds=20):
    """Put a few messages, wait until they are done, and again: ms of each trigger, and of each wait, warmed up."""
    place = top / f"live{shards}"
    place.mkdir()
    queues = [shmq.open(place / f"1.{shard:03x}") for shard in range(shards)]
    stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").load(str(place))
    stream = stream.writeStream.format("noop").option("checkpointLocation", str(top / f"checkpoint{shards}"))
    query = stream.start()
    triggers, latencies, total = {}, [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        put = time.monotonic()
        for queue in queues:
            queue.put_many([b"x" * 50] * (_TRICKLE // shards))
        total += _TRICKLE
        while sum(rows for rows, _ in triggers.values()) < total and query.isActive:
            for each in query.recentProgress[-5:]:
                if each.numInputRows:
                    triggers[each.batchId] = each.numInputRows, each.durationMs["triggerExecution"]
            time.sleep(0.002)
        latencies.append((time.monotonic() - put) * 1000)
    query.stop()
    listener.caught_up(query)
    for queue in queues:
        queue.close()
    durations = [ms for _, ms in triggers.values()]
    return durations[len(durations) // 2 :], latencies[len(latencies) // 2 :]


if __name__ == "__main__":
    main()
