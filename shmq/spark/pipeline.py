"""
Running a pipeline: sources become views, steps views made of them, and every sink a streaming query of its own.

By default it is a loop of runs that each end when they have done what was there: they stop cleanly between batches,
see new shards, and leave room for the archive. `continuous` keeps the queries running, for lower latency.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from concurrent import futures
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark import archive, checks, deltasink, offsets, places, setup
from shmq.spark.listener import caught_up
from shmq.spark.options import BadOption, source_options
from shmq.spark.spec import BadPipeline, Pipeline, Sink, Source, read
from shmq.spark.stopping import Stopping

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

_LOOK = 0.2
_PATIENCE = 60.0
_ATTEMPTS = 10
_SLOW = "failed to connect back"
"""What Spark says when a Python worker needs more than 10 s to start, which on a busy machine it may."""
_META = "_key BINARY, _offset BIGINT, _timestamp TIMESTAMP, _corrupt BINARY"
_HIDDEN = ("_key", "_offset", "_timestamp", "_corrupt")


class _Enough(Exception):
    """It is to stop, between two files of the archive."""


class Failed(RuntimeError):
    """A sink's query ended with an error. What was done is in the checkpoint: run it again."""


# ---------------------------------------------------------------- before Spark
def plan(pipeline: Pipeline) -> dict[str, Any]:
    """
    What would be read and written, without starting anything: queues, shards, what waits.

    Raises:
        BadPipeline: there is no such queue, or it cannot be read that way; or no archive can be where it is to be.
    """
    sources = {}
    for source in pipeline.sources.values():
        shards = []
        try:
            there = places.find(source_options(source.words()))
        except (shmq.NotFound, BadOption) as problem:
            raise BadPipeline(f"{source.where}: source {source.name}: {problem}") from problem
        for shard in there:
            queue = places.open_queue(shard.path, read_only=True)
            begin = queue.first_index
            for sink in _readers(pipeline, source.name):
                begin = min(_last_offset(pipeline, sink, shard), queue.next_index)
            shards.append({"shard": shard.label, "from": begin, "to": queue.next_index})
        sources[source.name] = {"queue": source.queue, "value": source.value, "shards": shards}
    places.close_all()
    if pipeline.archive is not None:
        _check_archive_waits(pipeline, pipeline.archive.source)
        try:
            archived = places.shards_of(pipeline.sources[pipeline.archive.source].queue)
            archive.check_apart(archived, pipeline.archive.to)
            archive.store(pipeline.archive.to, pipeline.archive.format or None, pipeline.archive.host or None).check()
        except (shmq.NotFound, shmq.BadFormat, shmq.Corrupt, shmq.Mismatch, setup.Missing) as problem:
            raise BadPipeline(f"archive: {problem}") from problem
    return {
        "name": pipeline.name,
        "checkpoint": pipeline.checkpoint,
        "sources": sources,
        "steps": {step.name: list(step.origin) for step in pipeline.steps.values()},
        "sinks": {
            s.name: {"from": s.origin, "format": s.format, "to": s.path or s.queue} for s in pipeline.sinks.values()
        },
        "archive": pipeline.archive.to if pipeline.archive else None,
    }


def _check_archive_waits(pipeline: Pipeline, name: str) -> None:
    """
    What is archived may be forgotten, also what no sink has read, unless they hold the queue, too.

    Raises:
        BadPipeline: they do not.
    """
    source = pipeline.sources[name]
    if source.group or not _readers(pipeline, name):
        return
    for shard in places.shards_of(source.queue):
        with shmq.open(shard.path, create=False, read_only=True, trusted=True) as queue:
            if queue.options.retention.kind == "acked":
                raise BadPipeline(
                    f"{source.where}: source {name}: {source.queue} forgets what is archived, also what a sink has not "
                    f'read yet: say group = "{pipeline.name}" in [source.{name}], and it waits for both'
                )


def _readers(pipeline: Pipeline, source: str) -> list[str]:
    """The sinks that a source's messages come to."""

    def comes_from(name: str) -> bool:
        if name.removesuffix(".corrupt") == source:
            return True
        step = pipeline.steps.get(name)
        return step is not None and any(comes_from(origin) for origin in step.origin)

    return [sink.name for sink in pipeline.sinks.values() if comes_from(sink.origin)]


def _last_offset(pipeline: Pipeline, sink: str, shard: places.Shard) -> int:
    """How far a sink's checkpoint is in a shard; 0 when it is not begun."""
    folder = f"{pipeline.checkpoint}/{sink}/offsets"
    try:
        last = max((int(name) for name in os.listdir(folder) if name.isdigit()), default=None)
        if last is None:
            return 0
        with open(f"{folder}/{last}", encoding="utf-8") as file:
            for line in file:
                if '"queues"' in line:
                    queues = json.loads(line)["queues"]
                    return int(queues.get(shard.topic, {}).get(str(shard.number), {}).get("next", 0))
    except (OSError, ValueError):
        pass
    return 0


# ---------------------------------------------------------------- the tables
def _source_frame(spark: Any, source: Source, pause: str, sink: str) -> Any:
    words = {"pause": pause, **source.words()}
    if source.group:
        words["group"] = f"{source.group}-{sink}"
    stream = spark.readStream.format("shmq").options(**words)
    if source.value == "raw":
        return stream.load()
    return stream.schema(f"{source.schema}, {_META}").load()


def tables(spark: Any, pipeline: Pipeline, pause: str = "", sink: str = "") -> dict[str, Any]:
    """
    A DataFrame for each source and step, known to SQL by its name.

    Args:
        pause: while that file is there, no new batch begins.
        sink: for which sink, where a source has a group: each sink has a progress, and so a name, of its own.
    """
    found: dict[str, Any] = {}
    for source in pipeline.sources.values():
        try:
            frame = _source_frame(spark, source, pause, sink)
        except Exception as problem:
            where = pipeline.lines(f"source.{source.name}", "queue" if source.value == "raw" else "schema")
            raise BadPipeline(f"{where}: source {source.name}: {checks.said(problem)}") from problem
        if source.value != "raw":
            corrupt = frame.where("_corrupt is not null")
            found[f"{source.name}.corrupt"] = corrupt.selectExpr("_key as key", "_corrupt as value")
            frame = frame.where("_corrupt is null").drop("_corrupt")
        found[source.name] = frame
    problems = []
    for step in pipeline.steps.values():
        if all(origin in found for origin in step.origin):  # else what it is made of is told already
            try:
                inputs = {origin: found[origin] for origin in step.origin}
                found[step.name] = checks.step_frame(spark, pipeline, step, inputs)
            except BadPipeline as problem:
                problems.append(str(problem))
    if problems:
        raise BadPipeline("\n".join(problems))
    return found


def check(pipeline: Pipeline, *, master: str | None = None) -> None:
    """
    Have Spark look at every step and sink, without running any.

    Args:
        master: where Spark runs, if none runs yet; one processor of this machine by default.

    Raises:
        BadPipeline: they cannot run as they stand.
        Missing, NoJava: Spark is not installed, or cannot start.
        KeyboardInterrupt: a signal came while Spark started. A JVM whose program ends then never ends itself.
    """
    spark = None
    with Stopping() as stop, stop.starting():
        spark = _session(pipeline, master or "local[1]")
    if stop.asked.is_set():
        raise KeyboardInterrupt
    _check(spark, pipeline)


def _check(spark: Any, pipeline: Pipeline) -> None:
    frames = tables(spark, pipeline)
    checks.check(
        spark, pipeline, frames, {sink.name: _visible(frames[sink.origin]) for sink in pipeline.sinks.values()}
    )


def _session(pipeline: Pipeline, master: str | None) -> Any:
    conf = {"spark.sql.adaptive.enabled": "false", **pipeline.conf}  # streams cannot have it
    if setup.begins_here(master, conf):  # else Spark makes a folder, which stays empty, wherever it is started
        conf.setdefault("spark.sql.warehouse.dir", str(setup.warehouse()))
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # tells as JSON what we tell in words
    try:
        return setup.session(master, name=f"shmq pipeline {pipeline.name}", **conf)
    except (setup.Missing, RuntimeError):
        raise
    except Exception as problem:
        where = pipeline.lines("pipeline", "conf")
        raise BadPipeline(f"{where}: Spark does not start with these settings: {checks.said(problem)}") from problem


def _visible(frame: Any) -> Any:
    """Without the message's own fields, which only steps see."""
    return frame.drop(*_HIDDEN)


# ---------------------------------------------------------------- the sinks
def _start(frame: Any, sink: Sink, pipeline: Pipeline, trigger: dict[str, Any]) -> Any:
    name = f"{pipeline.name}-{sink.name}"
    frame = _visible(frame)
    if sink.key:
        own = "key" if sink.value_format == "raw" else "_key"
        frame = frame.withColumn(own, frame[sink.key].cast("string"))
    kind = sink.value_format
    if sink.format == "shmq" and kind == "json":
        frame, kind = _json(frame)
    stream = frame.writeStream.queryName(name).outputMode(sink.mode)
    stream = stream.option("checkpointLocation", f"{pipeline.checkpoint}/{sink.name}").trigger(**trigger)
    if sink.format == "parquet":
        return stream.format("parquet").partitionBy(*sink.partition_by).start(sink.path)
    if sink.format == "shmq" and sink.mode == "update":
        return _start_update(stream, sink, name, kind)
    if sink.format == "shmq":
        stream = stream.option("value.format", kind)
        return stream.format("shmq").option("delivery", sink.delivery).start(sink.queue)
    if sink.format == "delta":
        return _start_delta(stream, sink, name)
    return stream.format("console").option("truncate", "false").start()


def _json(frame: Any) -> tuple[Any, str]:
    """What the sink is to write as JSON, and as what it comes to it: Spark makes the JSON where it can."""
    from shmq.spark.by_spark import as_json  # noqa: PLC0415  # needs pyspark

    made = as_json(frame)
    return (frame, "json") if made is None else (made, "raw")


def _start_delta(stream: Any, sink: Sink, name: str) -> Any:
    def write(batch: Any, number: int, app: str) -> None:
        deltasink.append(batch, sink.path, sink.partition_by, app, number)

    return _start_by_batch(stream, name, write)


def _start_update(stream: Any, sink: Sink, name: str, kind: str) -> Any:
    """Spark lets no sink that is in Python have the mode update, and a batch write has none."""

    def write(batch: Any, number: int, app: str) -> None:
        options = {"value.format": kind, "delivery": sink.delivery}
        if sink.delivery == "exactly_once":
            options |= {"txnAppId": app, "txnVersion": str(number)}
        batch.write.format("shmq").options(**options).mode("append").save(sink.queue)

    return _start_by_batch(stream, name, write)


def _start_by_batch(stream: Any, name: str, write: Callable[[Any, int, str], object]) -> Any:
    """Batches are known by the query, whose id is its checkpoint's: another checkpoint begins with batch 0 again."""
    query_id: futures.Future[str] = futures.Future()  # which Spark gives when it has started

    def each(batch: Any, number: int) -> None:
        write(batch, number, f"{name}-{query_id.result(_PATIENCE)}")

    query = stream.foreachBatch(each).start()
    query_id.set_result(query.id)
    return query


# ---------------------------------------------------------------- running
class Run:
    """One `shmq pipeline run`, until it is done or told to stop."""

    def __init__(
        self, pipeline: Pipeline, spark: Any, tell: Callable[[dict[str, Any]], None], stop: threading.Event
    ) -> None:
        """*tell* gets a line of facts for each batch and each archiving; *stop* is set when it is to end."""
        self._pipeline = pipeline
        self._spark = spark
        self._tell = tell
        self._stop = stop
        self._folder = tempfile.mkdtemp(prefix="shmq-pipeline-")
        self._pause = f"{self._folder}/pause"

    def close(self) -> None:
        """Take away what it has made for itself."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def once(self) -> None:
        """What is there now, and no more."""
        self._patiently({"availableNow": True})
        if not self._stop.is_set():
            self._archive()

    def _patiently(self, trigger: dict[str, Any], archive_every: float = 0.0) -> None:
        """Run the queries; what Spark gives up because a worker was slow to start is begun again."""
        for attempt in range(_ATTEMPTS):
            try:
                self._follow(self._queries(trigger), archive_every)
            except Failed as failed:
                if _SLOW not in str(failed) or attempt == _ATTEMPTS - 1 or self._stop.is_set():
                    raise
                self._tell({"pipeline": self._pipeline.name, "again": str(failed)})
            else:
                return

    def loop(self, every: float) -> None:
        """Again and again, every so many seconds."""
        while not self._stop.is_set():
            began = time.monotonic()
            self.once()
            self._stop.wait(max(every - (time.monotonic() - began), 0))

    def continuous(self, every: float) -> None:
        """Keep the queries running; the archive takes its turn beside them."""
        self._patiently({"processingTime": "0 seconds"}, every)

    def _queries(self, trigger: dict[str, Any]) -> dict[str, Any]:
        """Start a query for each sink."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._pause)
        grouped = any(source.group for source in self._pipeline.sources.values())
        found: dict[str, Any] = {}
        frames: dict[str, Any] = {}
        for name, sink in self._pipeline.sinks.items():
            if grouped or not frames:
                frames = tables(self._spark, self._pipeline, self._pause, name)
            try:
                found[name] = _start(frames[sink.origin], sink, self._pipeline, trigger)
            except Exception as problem:
                self._end(found)
                raise self._failed(name, problem) from problem
        return found

    def _follow(self, queries: dict[str, Any], archive_every: float = 0.0) -> None:
        """Until all have ended, telling each batch; when told to stop or one fails, until the batches that run have."""
        told = dict.fromkeys(queries, -1)
        last_archive = time.monotonic()
        try:
            while any(query.isActive for query in queries.values()):
                self._tell_progress(queries, told)
                if self._stop.wait(_LOOK) or any(query.exception() for query in queries.values()):
                    self._end(queries)
                if archive_every and not self._stop.is_set() and time.monotonic() - last_archive >= archive_every:
                    self._archive()
                    last_archive = time.monotonic()
        finally:
            self._tell_progress(queries, told)
            for query in queries.values():
                if query.isActive:
                    query.stop()
                caught_up(query)
        for name, query in queries.items():
            problem = query.exception()
            if problem is not None:
                raise self._failed(name, problem) from problem

    def _failed(self, sink: str, problem: BaseException) -> Failed:
        return Failed(f"{self._pipeline.lines(f'sink.{sink}')}: sink {sink}: {checks.said(problem)}")

    def _tell_progress(self, queries: dict[str, Any], told: dict[str, int]) -> None:
        for name, query in queries.items():
            for progress in query.recentProgress:
                if progress.batchId > told[name] and progress.numInputRows is not None:
                    told[name] = progress.batchId
                    self._tell(
                        {
                            "pipeline": self._pipeline.name,
                            "sink": name,
                            "batch": progress.batchId,
                            "rows": progress.numInputRows,
                            "rows_per_second": round(progress.processedRowsPerSecond or 0),
                            "ms": progress.batchDuration,
                            "behind": _behind(progress),
                        }
                    )

    def _end(self, queries: dict[str, Any]) -> None:
        """Have each query finish the batch that runs, and begin none: the sources see nothing new from here on."""
        with open(self._pause, "w", encoding="ascii"):
            pass
        for query in queries.values():
            with contextlib.suppress(Exception):  # it has failed, which is told later
                query.processAllAvailable()
            query.stop()

    def _archive(self) -> None:
        wanted = self._pipeline.archive
        if wanted is None:
            return
        source = self._pipeline.sources[wanted.source]
        typed: dict[str, Any] = {"schema": wanted.schema, "value": source.value, "dtype": source.dtype}
        rows = merged = 0
        why: dict[str, str] = {}

        def count(done: int) -> None:  # after each file, which is in the archive by then
            nonlocal rows
            rows = done
            if self._stop.is_set():
                raise _Enough

        with contextlib.suppress(_Enough):
            archive.archive(
                source.queue,
                wanted.to,
                form=wanted.format or None,
                host=wanted.host or None,
                older_than=wanted.after or None,
                progress=count,
                **(typed if wanted.schema else {}),
            )
        if wanted.compact_to and not self._stop.is_set():
            try:
                merged = archive.compact(wanted.to, file_bytes=wanted.compact_to, host=wanted.host or None)
            except (OSError, shmq.Busy) as problem:
                why = {"not_merged": archive.not_together(wanted.to, problem)}
        self._tell({"pipeline": self._pipeline.name, "archive": wanted.to, "rows": rows, "files_merged": merged, **why})


def _behind(progress: Any) -> int | None:
    """How many messages wait behind a batch, as its sources saw it; None if they do not say."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        return sum(
            offsets.behind(json.loads(each.endOffset), json.loads(each.latestOffset)) for each in progress.sources
        )
    return None


def run(
    path: str,
    *,
    how: str = "every",
    every: float | None = None,
    master: str | None = None,
    tell: Callable[[dict[str, Any]], None] | None = None,
    stopping: Stopping | None = None,
) -> None:
    """
    Run the pipeline in the file *path*.

    Args:
        how: "once", "every" (again and again) or "continuous".
        every: seconds, instead of the file's.
        master: where Spark runs; this machine by default.
        tell: gets a line of facts for each batch; printed as JSON by default.
        stopping: who may have been asked to stop already; by default signals are heard from here on.

    Raises:
        BadPipeline: the file cannot be run as it stands; nothing was started.
        Failed: a sink's query ended with an error; run it again to go on.
    """
    with stopping or Stopping() as stop:
        pipeline = read(path)
        plan(pipeline)  # queues that are not there are told before a JVM is started
        spark = None
        with stop.starting():
            spark = None if stop.asked.is_set() else _session(pipeline, master)
        if spark is None or stop.asked.is_set():
            return
        _check(spark, pipeline)
        if pipeline.archive is not None:  # before anything is read, and so could be forgotten
            archive.hold(pipeline.sources[pipeline.archive.source].queue)
        with contextlib.closing(Run(pipeline, spark, tell or _print, stop.asked)) as running:
            seconds = pipeline.every if every is None else every
            if how == "once":
                running.once()
            elif how == "continuous":
                running.continuous(seconds)
            else:
                running.loop(seconds)


def _print(facts: dict[str, Any]) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201  # what a runner of a pipeline reads


def write(frame: Any, queue: str, *, value: str | None = None, **options: Any) -> None:
    """
    Append a DataFrame's rows to *queue*: all of them appear at once, or none.

    Args:
        value: "json" has Spark make an object of each row where it can, which is faster than in Python; None takes the
            column value.
        options: further options of the sink.
    """
    if value == "json":
        frame, value = _json(frame)
    if value is not None:
        options["value.format"] = value
    frame.write.format("shmq").options(**options).mode("append").save(queue)


def read_all(spark: Any, queue: str, **options: Any) -> Any:
    """A batch DataFrame of *queue*; *options* of the source, and `schema`."""
    schema = options.pop("schema", None)
    reader = spark.read.format("shmq").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(queue)
