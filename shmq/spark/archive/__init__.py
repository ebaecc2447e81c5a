"""
Messages for ever: Parquet, before a queue may forget them; and back.

A map:
    messages, ddl     which columns a row has
    intake            out of a queue
    forms             what every archive does: files, plain ones with a manifest; lake, a Delta table
    stores            which of them is at a place
    parquet, merging  how a file is written, and which of them are put together
    playback          into a queue again
    past              with the live queue behind it, as one table for Spark
"""

from shmq.spark.archive.files import Archive
from shmq.spark.archive.intake import CONSUMER, archive, check_apart, compact, hold, not_together, verify
from shmq.spark.archive.past import history
from shmq.spark.archive.playback import replay
from shmq.spark.archive.stores import form_of, store

__all__ = [
    "CONSUMER",
    "Archive",
    "archive",
    "check_apart",
    "compact",
    "form_of",
    "history",
    "hold",
    "not_together",
    "replay",
    "store",
    "verify",
]
