"""What is archived and what is live, as one table for Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark import places
from shmq.spark.archive.files import Archive

if TYPE_CHECKING:
    from collections.abc import Sequence


def history(spark: Any, archive_path: str | Sequence[str], queue: str | None = None, **options: Any) -> Any:
    """
    Everything there ever was, as one DataFrame: the archive, natively, and behind it the live queue.

    Args:
        spark: the session.
        archive_path: the archive; or several, of hosts that each archive their own shards to storage that all can see.
        queue: a queue's directory, or one with its shards; None for what is archived alone.
        options: further options of the source, for the live part.

    Raises:
        Gone: messages between the archive and the live queue are in neither.
        NotFound: there is nothing in the archive, and no queue was named.
    """
    archives = [Archive(path) for path in ([archive_path] if isinstance(archive_path, str) else archive_path)]
    manifests = [(there, there.manifest()) for there in archives]
    if queue is None:
        names = [path for there, manifest in manifests for path in there.paths(list(manifest.files))]
        if not names:
            raise shmq.NotFound(f"nothing is archived in {', '.join(each.path for each in archives)}")
        return spark.read.parquet(*names)
    shards = places.shards_of(queue)
    starting: dict[str, dict[str, int]] = {}
    for shard in shards:
        end = max((manifest.end(shard.topic, shard.number) or -2 for _, manifest in manifests), default=-2)
        starting.setdefault(shard.topic, {})[str(shard.number)] = end
    live = spark.read.format("shmq").option("startingOffsets", json.dumps(starting)).options(**options).load(queue)
    topics = {shard.topic for shard in shards}
    names = [
        path
        for there, manifest in manifests
        for path in there.paths([each for each in manifest.files if each.topic in topics])
    ]
    if not names:
        return live
    from pyspark.sql import functions as f  # noqa: PLC0415

    old = spark.read.parquet(*names)
    wanted = [f.lit(0).cast("int").alias(c) if c == "timestampType" else f.col(c) for c in live.columns]
    return old.select(*wanted).unionByName(live)
