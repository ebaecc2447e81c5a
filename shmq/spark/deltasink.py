"""
Batches of a stream into a Delta table, each of them once.

Spark writes the files, task by task, so that a batch may be of any size; the driver sees their names alone, and commits
them with the batch's number. What was written for a batch that was not committed goes when that batch is.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.parse
import uuid
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark import delta, disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NULL = "__HIVE_DEFAULT_PARTITION__"
_TIMES = "spark.sql.parquet.outputTimestampType"


def append(batch: Any, path: str, partition_by: Sequence[str], app: str, number: int) -> bool:
    """
    Append a DataFrame to a table, once: False when that batch is in it already.

    Args:
        batch: the rows; computed once.
        path: the table; made if it is not there.
        partition_by: its columns that folders are named by, where it is made.
        app: who writes.
        number: of the batch.

    Raises:
        Mismatch: the table has other columns; or what tasks have written is not where the driver looks.
        Missing: the package deltalake is not installed.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    from shmq.spark.sink import say_passed_over  # noqa: PLC0415  # both need pyspark

    delta.mend(path)
    table = delta.Table.create(path, to_arrow_schema(batch.schema, timezone="UTC"), partition_by)
    done = table.mark(app)
    if done is not None and done >= number:
        say_passed_over(path, app, number, done)
        return False
    _check_columns(table, batch.schema)
    if delta.is_remote(path):
        return table.append(batch.toArrow(), app, number)
    prefix = f"{re.sub(r'[^A-Za-z0-9.-]', '-', app)}-{number}-"
    folder = f"{prefix}{uuid.uuid4().hex[:12]}"
    try:
        files = list(_written(table, batch, folder))
        actions = [delta.action(table, each, partition) for each, partition in files]
        if not table.once(app, number, actions, {app: number}):  # another driver, in this very moment
            say_passed_over(path, app, number, number)
            shutil.rmtree(f"{table.path}/{folder}", ignore_errors=True)
            return False
    except Exception:
        table.again()
        if not table.has(app, number):
            shutil.rmtree(f"{table.path}/{folder}", ignore_errors=True)
        raise
    for name in os.listdir(table.path):
        if name.startswith(prefix) and name != folder:
            shutil.rmtree(f"{table.path}/{name}", ignore_errors=True)
    return True


def _check_columns(table: delta.Table, wanted: Any) -> None:
    """
    The rows have no column that the table has not, or has of another type.

    Raises:
        Mismatch: there is one.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415

    there = {each.name: each.dataType.simpleString() for each in StructType.fromJson(table.schema()).fields}
    for field in wanted.fields:
        kind = field.dataType.simpleString()
        if there.get(field.name) != kind:
            has = f"has it as {there[field.name]}" if field.name in there else f"has {', '.join(there)}"
            raise shmq.Mismatch(
                f"cannot append to the Delta table {table.path}: the rows have a column {field.name} {kind}, and it "
                f"{has}. Nothing was written. Cast it in the step before, change the table, or write to another one"
            )


def _written(table: delta.Table, batch: Any, folder: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    """
    Have Spark write the rows below that folder: each file that has any, on the disk, and what its folders say.

    Raises:
        Mismatch: there are fewer rows in them than were written.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415
    from pyspark.sql import Observation  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    top = f"{table.path}/{folder}"
    seen = Observation()
    batch.sparkSession.conf.set(_TIMES, "TIMESTAMP_MICROS")  # what Delta has; Spark's own default is older
    rows = batch.observe(seen, f.count(f.lit(1)).alias("rows"))
    rows.write.partitionBy(*table.partition_by()).mode("overwrite").parquet(top)
    found = 0
    for where, _, names in os.walk(top):
        partition = dict(_value(each) for each in os.path.relpath(where, top).split("/") if "=" in each)
        for name in names:
            if not name.endswith(".parquet") or name.startswith("."):
                os.unlink(f"{where}/{name}")  # Spark's own marks and sums
                continue
            count = pq.read_metadata(f"{where}/{name}").num_rows
            found += count
            if count:
                disk.sync_file(f"{where}/{name}")
                yield os.path.relpath(f"{where}/{name}", table.path), partition
        disk.sync_folder(where)
    disk.sync_folder(table.path)
    if found != seen.get["rows"]:
        raise shmq.Mismatch(
            f"cannot append to the Delta table {table.path}: tasks have written {seen.get['rows']} rows, and there are "
            f"{found} where the driver looks. Nothing was committed. On a cluster the table lies where all hosts see it"
        )


def _value(word: str) -> tuple[str, str | None]:
    """What a folder called `kind=a%20b` says."""
    name, _, value = word.partition("=")
    return urllib.parse.unquote(name), None if value == _NULL else urllib.parse.unquote(value)
