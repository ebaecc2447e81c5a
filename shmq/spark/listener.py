"""
Telling the queues how far a session's streams are, as soon as a batch is done.

Spark itself tells a source only when the next batch begins, and never after the last one of a run.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from shmq.spark import mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK = "_shmq_listener"


class Listener(StreamingQueryListener):  # type: ignore[misc]
    """Moves the names of all queries' groups. What goes wrong here must not end a query."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names
        """Nothing is done yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is in the checkpoint: this is sent after that."""
        for source in event.progress.sources:
            with contextlib.suppress(ValueError, TypeError):
                mirror.follow_json(json.loads(source.endOffset))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Its last progress was told before."""


def listen(spark: SparkSession) -> None:
    """Have a session's streams followed, once."""
    if getattr(spark, _MARK, None) is None:
        listener = Listener()
        spark.streams.addListener(listener)
        setattr(spark, _MARK, listener)


def caught_up(query: Any) -> None:
    """After a query has ended: the queues know what its last batch did, whether or not a listener heard of it."""
    progress = query.lastProgress
    if progress is not None:
        for source in progress.sources:
            with contextlib.suppress(ValueError, TypeError):
                mirror.follow_json(json.loads(source.endOffset))
