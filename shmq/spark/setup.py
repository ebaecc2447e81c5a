"""
A Spark session without the traps: the right Python for workers, a Java, a quiet log, and our source registered.

    spark = shmq.spark.session()
    spark.read.format("shmq").load("orders").show()

Each setting stands here with its reason. What the user sets explicitly always wins.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import os
import shlex
import sys
import tempfile
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.spark import java

if TYPE_CHECKING:
    import pathlib

    from pyspark.sql import SparkSession

OLDEST = (4, 2)
"""Rate limits and Trigger.AvailableNow for sources in Python came with 4.2."""

_LOG = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
# Says of each stream with a window that adaptive execution is off, and when it goes on that it begins at a snapshot.
appender.console.filter.usual.type = RegexFilter
appender.console.filter.usual.regex = (?s).*(Disabling AQE since|is normal for the first batch of starting query).*
appender.console.filter.usual.onMatch = DENY
appender.console.filter.usual.onMismatch = NEUTRAL
# Says at each start that it found no libhadoop, which nobody here needs.
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
# Says for each stream that adaptive execution is off, which we say already.
logger.resolve.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.resolve.level = error
# Says that a source we register is one that it has found already.
logger.sources.name = org.apache.spark.sql.execution.datasources.DataSourceManager
logger.sources.level = error
"""


_WORKER = """#!/bin/sh
# This Python with the pyspark that is installed, and not the one that is zipped. Written by shmq.
rest=
IFS=:
for each in $PYTHONPATH; do
    case $each in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) rest=$rest${{rest:+:}}$each ;;
    esac
done
unset IFS
PYTHONPATH=$rest
export PYTHONPATH
exec {python} "$@"
"""


class Missing(RuntimeError):
    """Something that Spark needs is not installed; the message says what, and how to get it."""


def session(master: str | None = None, *, name: str = "shmq", **conf: Any) -> SparkSession:
    """
    A Spark session that can read and write queues; the one there is, if there is one.

    Args:
        master: where to run; what spark-submit says, or all processors of this machine.
        name: what Spark calls the application.
        conf: settings of Spark, with _ for each dot: `spark_sql_shuffle_partitions=4`. One that has capitals or dashes
            goes in as `**{"spark.sql.adaptive.coalescePartitions.enabled": "false"}`.

    Raises:
        Missing: pyspark or pyarrow is not installed.
        NoJava: there is no Java.
    """
    check_installed()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # 200 ms, and perhaps not there

    running = SparkSession.getActiveSession()
    settings = {key if "." in key else key.replace("_", "."): _word(value) for key, value in conf.items()}
    where = _master(master, settings)
    if running is None and where is not None:
        prepare(local=where.startswith("local"))
    builder = SparkSession.builder.appName(name)
    if where is not None:
        builder = builder.master(where)
    ours = defaults(local=(where or "").startswith("local")) if running is None else {}
    for key, value in {**ours, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    if running is None:
        atexit.register(_end, spark, os.getpid())
    return spark


def _end(spark: SparkSession, pid: int) -> None:
    """
    Stop a session that we have started, as its process ends and not in a child of it.

    Else its JVM tells of the last batches to a listener that is gone, in a hundred lines.
    """
    if os.getpid() == pid:
        with contextlib.suppress(Exception):  # it may be dead
            spark.stop()


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _master(master: str | None, settings: dict[str, str]) -> str | None:
    """Where to run; None if spark-submit has said it, which has started the JVM, too, and knows the workers' Python."""
    said = master or settings.get("spark.master")
    if said is None and not ("PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ):
        return "local[*]"
    return said


def begins_here(master: str | None, settings: dict[str, str]) -> bool:
    """Whether `session` would start Spark, and on this machine alone."""
    check_installed()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # 200 ms, and perhaps not there

    return SparkSession.getActiveSession() is None and (_master(master, settings) or "").startswith("local")


def warehouse() -> pathlib.Path:
    """Where Spark is to have tables of its own, which a pipeline has none of."""
    return java.cache() / "warehouse"


def check_installed() -> None:
    """
    Whether pyspark and pyarrow are here, without importing them.

    Raises:
        Missing: one is not.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise Missing(
            f"shmq.spark needs {' and '.join(missing)}, not installed in {sys.prefix}; "
            "get it with: pip install 'shmq[spark]'"
        )
    version = importlib.metadata.version("pyspark")
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise Missing(f"shmq.spark needs pyspark 4.2 or newer, and this is {version}; pip install -U 'shmq[spark]'")


def prepare(*, local: bool = True) -> java.Java:
    """
    Set what must stand in the environment before the JVM starts; what is set already stays.

    Raises:
        NoJava: there is no Java.
    """
    found = java.find()
    os.environ["JAVA_HOME"] = found.home
    # Workers would be started with the `python3` of PATH, which in an environment that is not activated is another one.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python() if local else sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        # A host name that resolves to 127.0.1.1, as Debian has it, makes Spark complain and then guess.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found


def worker_python() -> str:
    """
    A launcher of this Python for workers on this machine: they start in a third of the time.

    Spark puts its pyspark.zip in front of what is installed, and what comes from a zip is compiled at every start.
    """
    name = f"python-{zlib.crc32(sys.executable.encode()):08x}"
    script = java.cache() / "bin" / name
    java.write_script(script, _WORKER.format(python=shlex.quote(sys.executable)))
    return str(script)


def defaults(*, local: bool = False) -> dict[str, str]:
    """Settings of Spark that we begin with; on this machine alone, if *local*."""
    # Spark's 200 are for a cluster: here each window's small batch would be 200 tasks, and 200 files or staged chunks.
    tasks = {"spark.sql.shuffle.partitions": str(len(os.sched_getaffinity(0)))} if local else {}
    return {
        **tasks,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log_file()}",
        # A machine that is busy takes its time to start a worker, or to answer; that is no reason to fail.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.executor.heartbeatInterval": "60s",
        "spark.network.timeout": "600s",
        "spark.ui.showConsoleProgress": "false",  # it writes over what others write to the terminal
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",  # a crash in C says where
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # batches that writers get
        "spark.sql.session.timeZone": "UTC",  # what a day is must not depend on who computes it
    }


def log_file() -> str:
    """Our log4j configuration, made once per user; another version of ours has another name."""
    cache = java.cache()
    file = cache / f"log4j2-{zlib.crc32(_LOG.encode()):08x}.properties"
    if not file.exists() or file.read_text() != _LOG:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=cache, delete=False) as unfinished:
            unfinished.write(_LOG)
        os.replace(unfinished.name, file)
    return str(file)


def register(spark: SparkSession) -> None:
    """Make `format("shmq")` known to a session, and have the queues see the progress of its streams."""
    from shmq.spark.listener import listen  # noqa: PLC0415  # needs pyspark
    from shmq.spark.source import ShmqDataSource  # noqa: PLC0415

    # Spark finds it by itself, too, by the module pyspark_shmq; but not where shmq is installed editable.
    spark.dataSource.register(ShmqDataSource)
    listen(spark)


# ---------------------------------------------------------------- what `shmq doctor` says
class Finding(NamedTuple):
    """One thing that Spark needs: what, whether it is there, and what was found."""

    check: str
    good: bool
    found: str


def findings() -> list[Finding]:
    """Whether Spark could run here, thing by thing. Starts nothing but `java -version`."""
    found = []
    for name in ("pyspark", "pyarrow"):
        try:
            found.append(Finding(name, good=True, found=importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(name, good=False, found="not installed: pip install 'shmq[spark]'"))
    if not found[0].good:
        return found
    try:
        check_installed()
    except Missing as problem:
        found.append(Finding("pyspark", good=False, found=str(problem)))
    try:
        there = java.find()
        found.append(Finding("Java", good=True, found=f"{there.version}, {there.origin}"))
    except java.NoJava as problem:
        found.append(Finding("Java", good=False, found=str(problem)))
    said = os.environ.get("PYSPARK_PYTHON")
    mine = {os.path.realpath(sys.executable), os.path.realpath(worker_python())}
    if said and os.path.realpath(said) not in mine:
        found.append(Finding("PYSPARK_PYTHON", good=False, found=f"{said}, which is not this Python, {sys.executable}"))
    else:
        found.append(Finding("workers' Python", good=True, found=said or "set by shmq.spark.session()"))
    return found
