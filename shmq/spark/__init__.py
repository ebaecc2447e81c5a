"""
shmq and Apache Spark: read queues as tables and streams, write tables and streams into queues, exactly once.

    spark = shmq.spark.session()                     the traps for newcomers are set right
    spark.read.format("shmq").load("orders")         Kafka's columns; any PySpark session can do this
    shmq.spark.write(df, "results")                  all rows appear at once, or none

A map:
    setup, java                       a session, and what it needs
    options, offsets, names, places, hosts, plan
                                      what is asked for, how far, which queues, on this host and on others, cut into
                                      tasks: without Spark
    schema, ends                      what the columns mean, and where a query begins and ends
    columns, payload, tombstones, rows  messages as Arrow columns, what is in them, and what Spark gets
    objects, values, encoding         JSON and msgpack: from_json's rules, and the way back
    source, stream, sink, intents     what Spark calls; what a batch over hosts is to adopt
    mirror, listener                  the queues know how far Spark is
    spec, checks, stopping            a pipeline's file, what is wrong with it, and when it is to end
    archive, pipeline                 Parquet for ever; the whole way by one TOML

Nothing of Spark is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "BadOption": "options.BadOption",
    "BadPipeline": "spec.BadPipeline",
    "Failed": "pipeline.Failed",
    "Missing": "setup.Missing",
    "NoJava": "java.NoJava",
    "Stopping": "stopping.Stopping",
    "aggregate": "partial.aggregate",
    "archive_form": "archive.form_of",
    "archive_queue": "archive.archive",
    "check_pipeline": "pipeline.check",
    "compact": "archive.compact",
    "deafen": "stopping.deafen",
    "findings": "setup.findings",
    "history": "archive.history",
    "is_automatic_group": "offsets.is_automatic",
    "not_together": "archive.not_together",
    "plan_pipeline": "pipeline.plan",
    "prepare": "setup.prepare",
    "read": "pipeline.read_all",
    "read_pipeline": "spec.read",
    "register": "setup.register",
    "replay": "archive.replay",
    "run": "pipeline.run",
    "seconds": "options.seconds",
    "session": "setup.session",
    "verify_archive": "archive.verify",
    "write": "pipeline.write",
}
"""Names that are none of this package's modules, and where they are defined."""

__all__ = list(_HOMES)  # a list, if not a display


def __getattr__(name: str) -> Any:
    """What stands in the modules of this package, imported when it is first used."""
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(".")
        return getattr(importlib.import_module(f"shmq.spark.{module}"), attribute)
    raise AttributeError(f"module 'shmq.spark' has no attribute {name!r}")
