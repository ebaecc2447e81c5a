"""What is archived and what is live, as one table for Spark."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark import hosts, places
from shmq.spark.archive import forms, messages, owners, stores
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection, Sequence

_ALWAYS_ZERO = {"timestampType", "_timestampType", "_row"}


def history(
    spark: Any,
    archive_path: str | Sequence[str],
    queue: str | None = None,
    *,
    host: str | None = None,
    since: datetime.datetime | int | None = None,
    until: datetime.datetime | int | None = None,
    **options: Any,
) -> Any:
    """
    Everything there ever was, as one DataFrame: the archive, natively, and behind it the live queue.

    Args:
        spark: the session.
        archive_path: the archive; or several, of hosts that each archive their own shards to storage that all can see.
        queue: a queue's directory, or one with its shards; None for what is archived alone. Of a Delta table of several
            hosts there is then what is of this queue's host.
        host: of what is archived alone, what is of this host; None for all of them, with a column that says whose.
        since, until: only messages of this time or later, and before that one: files without any are not opened. A
            datetime without a zone is local, as everywhere in shmq; an int is ns since 1970.
        options: `schema`, and further options of the source; of a typed archive, its `value.format`.

    Raises:
        BadOption: there is no such column in the archive; or a host was named beside a queue, or a queue of another
            host than this one.
        Gone: messages between the archive and the live queue are in neither.
        Mismatch: a host was named, and an archive was made without.
        NotFound: there is nothing in the archive, or of that host, and no queue was named.
        TypeError: since or until is no time.
    """
    times = forms.Times(forms.moment("since", since), forms.moment("until", until))
    _check_queue(queue, host)
    archives = [archive_path] if isinstance(archive_path, str) else list(archive_path)
    snapshots = [stores.store(path).snapshot() for path in archives]  # before the tail, which begins behind them
    if queue is None:
        frames = [_stored(spark, each, times, _only(each, host)) for each in snapshots if each.columns]
        if not frames:
            raise shmq.NotFound(f"nothing is archived in {', '.join(each.path for each in snapshots)}")
        return _together(frames)
    shards = places.shards_of(queue)
    stored = [(each, _stored(spark, each, times, _hosts_of(each, shards))) for each in snapshots if each.columns]
    live = _live(spark, queue, _ends(snapshots, shards, times), [each.path for each in snapshots], dict(options))
    typed = _is_typed(live, options)
    when = "_timestamp" if typed else "timestamp"
    if times != forms.Times() and when not in live.columns:
        raise BadOption(f"since and until of history() need the column {when}: name it in the schema, too")
    mode = str(options.get("mode", "PERMISSIVE")).upper()
    topics = sorted({shard.topic for shard in shards})
    frames = [_as_live(each.path, frame, live, topics, typed=typed, mode=mode) for each, frame in stored]
    return _together([*frames, _of_times(live, when, times)])


def _check_queue(queue: str | None, host: str | None) -> None:
    if queue is None:
        return
    if host is not None:
        raise BadOption(
            f"history() takes host={host!r} of what is archived alone, and not beside a queue, {queue}: of a table of "
            "several hosts it reads what is of the queue's own one"
        )
    if hosts.is_remote(queue):
        raise BadOption(
            f"history() takes a queue of this host, and not {queue}: call it there, or read what is archived alone"
        )


def _only(snapshot: forms.Snapshot, host: str | None) -> Collection[str] | None:
    """The hosts that are asked for; None for all."""
    if host is None:
        return None
    owners.check_there(snapshot.path, host, snapshot.hosts)
    return [host]


def _hosts_of(snapshot: forms.Snapshot, shards: list[places.Shard]) -> Collection[str] | None:
    """The host whose queue that is, as the archive says; none where nothing of it is archived."""
    if snapshot.hosts is None:
        return None
    ids = {places.open_queue(each.path, read_only=True).id for each in shards}
    places.close_all()
    return {host for each in ids if (host := snapshot.host_of(each)) is not None}


def _together(frames: list[Any]) -> Any:
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


# ---------------------------------------------------------------- what is archived
def _stored(spark: Any, snapshot: forms.Snapshot, times: forms.Times, hosts: Collection[str] | None) -> Any:
    """An archive's own columns, of these hosts; None for all of it."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    names = snapshot.names(times, hosts)
    reader = spark.read.option("__globPaths__", "false")  # a name may have stars in it
    if snapshot.schema is not None:  # the day and the shard of a Delta table are in the folders' names
        schema = StructType.fromJson(json.loads(snapshot.schema))
        reader = reader.schema(schema).option("basePath", _for_spark(snapshot.path))
    frame = reader.parquet(*map(_for_spark, names or snapshot.names(forms.Times(), None)[:1]))
    frame = frame.select(*snapshot.columns)
    prefix = messages.prefix_of(snapshot.columns)
    return _of_times(frame if names else frame.where("false"), f"{prefix}timestamp", times)


def _for_spark(path: str) -> str:
    """Spark's own name for where that is."""
    return "s3a" + path.removeprefix("s3") if path.startswith("s3://") else path


def _of_times(frame: Any, column: str, times: forms.Times) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415

    if times.since is not None:
        frame = frame.where(f.col(column) >= f.timestamp_micros(f.lit(times.since // 1000)))
    if times.until is not None:
        frame = frame.where(f.col(column) < f.timestamp_micros(f.lit(times.until // 1000)))
    return frame


def _as_live(path: str, frame: Any, live: Any, topics: list[str], *, typed: bool, mode: str) -> Any:
    """
    The columns that the live queue has, out of those of an archive.

    Raises:
        BadOption: one of them is not in it.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    prefix = messages.prefix_of(frame.columns)
    if typed and mode != "PERMISSIVE" and messages.CORRUPT in frame.columns:
        corrupt = f.col(messages.CORRUPT).isNotNull()
        told = f.raise_error(
            f.concat(f.lit(f"mode=FAILFAST: {path} has a payload that does not parse, of offset "), "_offset")
        )
        frame = frame.where(
            ~corrupt if mode == "DROPMALFORMED" else f.when(corrupt, told.cast("boolean")).otherwise(True)
        )
    frame = frame.where(f.col(f"{prefix}topic").isin(topics))
    there = {field.name: field.dataType for field in frame.schema.fields}
    wanted = []
    for field in live.schema.fields:
        name = field.name if typed else f"{prefix}{field.name}"
        if field.name in _ALWAYS_ZERO:
            column = f.lit(0).cast("int")
        elif name in there:
            column = f.col(f"`{name}`")
            column = column if there[name] == field.dataType else column.cast(field.dataType)
        else:
            raise BadOption(_no_column(path, name, frame.columns, prefix))
        wanted.append(column.alias(field.name))
    return frame.select(*wanted)


def _no_column(path: str, name: str, columns: list[str], prefix: str) -> str:
    if not prefix:
        return (
            f"{path} has payloads as they are, and no column {name!r}: read it without value.format, and take them "
            "apart by from_json; or archive with a schema, to another place"
        )
    return f"{path} has no column {name!r}; it has {', '.join(columns)}"


# ---------------------------------------------------------------- what is live
def _ends(snapshots: list[forms.Snapshot], shards: list[places.Shard], times: forms.Times) -> dict[str, dict[str, int]]:
    """Where the tail of each shard begins: behind what is archived, and what is older than all that is wanted."""
    found: dict[str, dict[str, int]] = {}
    for shard in shards:
        queue = places.open_queue(shard.path, read_only=True)
        ends = [each.end_of(shard.topic, shard.number, queue.id) for each in snapshots]
        begin = max((end for end in ends if end is not None), default=queue.first_index)
        begin = begin if times.since is None else max(begin, min(queue.at_ns(times.since), queue.committed_index))
        found.setdefault(shard.topic, {})[str(shard.number)] = begin
    places.close_all()
    return found


def _live(
    spark: Any, queue: str, starting: dict[str, dict[str, int]], archives: list[str], options: dict[str, Any]
) -> Any:
    """The queue behind that."""
    from shmq.spark.archive import tail  # noqa: PLC0415  # needs pyspark

    schema = options.pop("schema", None)
    said = {"startingOffsets": json.dumps(starting), tail.ARCHIVES: json.dumps(archives), **options}
    spark.dataSource.register(tail.TailSource)
    reader = spark.read.format(tail.NAME).options(**said)
    return (reader if schema is None else reader.schema(schema)).load(queue)


def _is_typed(live: Any, options: dict[str, Any]) -> bool:
    """Whether columns are fields of the payloads: as the user says, or because they are called like nothing else."""
    said = options.get("value.format")
    if said is not None:
        return bool(said != "raw")
    return any(each not in {*messages.META, *_ALWAYS_ZERO} for each in live.columns)
