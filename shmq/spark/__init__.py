"""
shmq and Apache Spark: read queues as tables and streams, write tables and streams into queues, exactly once.

    spark = shmq.spark.session()                     the traps for newcomers are set right
    spark.read.format("shmq").load("orders")         Kafka's columns; any PySpark session can do this
    shmq.spark.write(df, "results")                  all rows appear at once, or none

A map:
    setup, java                       a session, and what it needs
    options, offsets, places, plan    what is asked for, how far, which queues, cut into tasks: without Spark
    columns, payload                  messages as Arrow columns, and what is in them
    source, sink                      what Spark calls
    mirror, listener                  the queues know how far Spark is
    archive, pipeline                 Parquet for ever; the whole way by one TOML

Nothing of Spark is imported before it is needed.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "session": "setup",
    "register": "setup",
    "prepare": "setup",
    "findings": "setup",
    "Missing": "setup",
    "NoJava": "java",
    "BadOption": "options",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """What stands in the modules of this package, imported when it is first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"shmq.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'shmq.spark' has no attribute {name!r}")
