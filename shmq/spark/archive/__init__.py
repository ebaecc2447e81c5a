"""
Messages for ever: Parquet, before a queue may forget them; and back.

A map:
    intake      out of a queue
    files       Parquet files, and the manifest that says which of them count
    merging     fewer, larger files
    playback    into a queue again
    past        with the live queue behind it, as one table for Spark
"""

from shmq.spark.archive.files import Archive, verify
from shmq.spark.archive.intake import CONSUMER, archive, hold
from shmq.spark.archive.merging import compact
from shmq.spark.archive.past import history
from shmq.spark.archive.playback import replay

__all__ = ["CONSUMER", "Archive", "archive", "compact", "history", "hold", "replay", "verify"]
