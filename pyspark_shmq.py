"""
What makes `spark.read.format("shmq")` work with no registration: Spark imports every top-level module called pyspark_*.

Every user of Spark in this environment pays for this import, so nothing heavy is done by it.
"""

from shmq.spark.source import ShmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
