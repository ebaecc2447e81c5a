"""On a cluster of this machine: executors in processes of their own, and a standalone master with two workers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import chaos
import pytest

import shmq
from shmq.spark import setup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SOME = 10_000

JOB = """
import sys
import shmq
master, source, target, checkpoint, limit = sys.argv[1:]
spark = shmq.spark.session(master, **{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
frame = spark.read.format("shmq").option("minPartitions", "4").load(source)
print(frame.count(), frame.groupBy("key").count().count(), flush=True)
stream = spark.readStream.format("shmq").options(startingOffsets="earliest", maxOffsetsPerTrigger=limit).load(source)
stream = stream.select("key", "value").writeStream.format("shmq").option("checkpointLocation", checkpoint)
for attempt in range(20):
    try:
        stream.trigger(availableNow=True).start(target).awaitTermination()
    except Exception as problem:
        if "connect back" not in str(problem):  # which Spark says of workers that are slow to start
            raise
    else:
        break
spark.stop()
"""


@pytest.fixture
def places(tmp_path):
    """A queue of two shards, and where to go from it."""
    (tmp_path / "in").mkdir()
    for shard in range(2):
        with shmq.open(tmp_path / "in" / f"1.{shard:03x}") as queue:
            for start in range(0, SOME, 1000):
                numbers = range(start, start + 1000)
                queue.put_many([b"%d" % (SOME * shard + n) for n in numbers], keys=[b"%d" % (n % 7) for n in numbers])
    return [str(tmp_path / name) for name in ("in", "out", "checkpoint")]


def told(log):
    """What Spark logs, without its chatter."""
    return "\n".join(line for line in log.splitlines() if " INFO " not in line)[-5000:]


def out(path):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [int(message.payload) for message in queue.reader()]


def check_out(path):
    """Each row once, and those of a shard in order."""
    rows = out(path)
    for shard in range(2):
        assert [row for row in rows if row // SOME == shard] == list(range(SOME * shard, SOME * (shard + 1)))
    assert len(rows) == 2 * SOME


def check(master, places):
    words = [sys.executable, "-c", JOB, master, *places, "100000"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, told(done.stderr)
    assert done.stdout.split() == [str(2 * SOME), "7"]
    check_out(places[1])


def test_executors_in_processes_of_their_own(java_home, places):
    check("local-cluster[2,1,1024]", places)


def test_an_executor_is_killed_and_another_one_does_its_work(java_home, places, tmp_path):
    words = [sys.executable, "-c", JOB, "local-cluster[2,1,1024]", *places, "1000"]
    with open(tmp_path / "log", "wb") as log:
        job = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        while True:  # until it is in the middle of its work
            assert job.poll() is None, told((tmp_path / "log").read_text())
            with contextlib.suppress(shmq.NotFound):
                if out(places[1]):
                    break
            time.sleep(0.05)
        executor = next(pid for pid in chaos.below(job.pid) if b"CoarseGrainedExecutorBackend" in chaos.command(pid))
        os.kill(executor, signal.SIGKILL)
        assert job.wait() == 0, told((tmp_path / "log").read_text())
    finally:
        chaos.kill_all(job)
    check_out(places[1])


# ---------------------------------------------------------------- a standalone master and two workers
@pytest.fixture
def master(java_home, tmp_path):
    """Both started from the PyPI package, knowing nothing of this environment but where Java is."""
    import pyspark

    home = pyspark.__path__[0]
    env = {"PATH": "/usr/bin:/bin", "JAVA_HOME": java_home, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = open(tmp_path / "log", "wb")  # noqa: SIM115  # all write to it as long as they live
    processes = []

    def start(kind, *words):
        run = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--webui-port", "0"]
        processes.append(
            subprocess.Popen([*run, *words], env=env, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path)
        )

    try:
        start("master.Master", "--port", "0")
        url = find_url(tmp_path / "log", processes[0])
        for number in range(2):
            start("worker.Worker", url, "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"))
        yield url
    finally:
        for process in processes:
            chaos.kill_all(process)
        log.close()


def find_url(log, process):
    """Where the master listens, as it says itself."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        for word in log.read_text(errors="replace").split():
            if word.startswith("spark://"):
                return word.strip("'\".,")
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_a_standalone_master_and_workers_from_the_package(master, places):
    check(master, places)


SUBMITTED = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
import steps  # by --py-files
source, target = sys.argv[1:]
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("shmq").option("minPartitions", "4").load(source)
lengths = frame.select(udf(steps.length, "bigint", useArrow=False)("value").alias("length"))
print(lengths.groupBy().sum().collect()[0][0], flush=True)
frame.select("key", "value").write.format("shmq").mode("append").save(target)
spark.stop()
"""
STEPS = """
def length(value):
    return len(value)
"""


def test_spark_submit_brings_everything_to_executors_that_have_nothing(master, places, tmp_path):
    """A Python without a single package, on both sides: what the job needs travels with it."""
    bare = sys._base_executable
    env = {**os.environ, "PYSPARK_PYTHON": bare, "PYSPARK_DRIVER_PYTHON": bare, "PYTHONPATH": str(tmp_path / "env")}
    env["SPARK_LOCAL_IP"] = "127.0.0.1"
    for name in ("VIRTUAL_ENV", "PYTHONHOME"):
        env.pop(name, None)
    without = {name: word for name, word in env.items() if name != "PYTHONPATH"}
    missing = subprocess.run([bare, "-c", "import shmq"], env=without, cwd=tmp_path, capture_output=True, check=False)
    assert missing.returncode == 1  # so it proves something
    pack(tmp_path / "env")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(tmp_path / "env", ".")
    with zipfile.ZipFile(tmp_path / "steps.zip", "w") as archive:
        archive.writestr("steps.py", STEPS)
    (tmp_path / "job.py").write_text(SUBMITTED)
    import pyspark

    words = [f"{pyspark.__path__[0]}/bin/spark-submit", "--master", master, "--py-files", "steps.zip"]
    words += ["--archives", "env.tar.gz#env", "--conf", "spark.executorEnv.PYTHONPATH=env"]
    for name in (
        "spark.python.authenticate.socketTimeout",
        "spark.network.timeout",
        "spark.executor.heartbeatInterval",
    ):
        words += ["--conf", f"{name}={setup.defaults()[name]}"]  # as `session` has it
    words += ["job.py", *places[:2]]
    env["SPARK_HOME"] = pyspark.__path__[0]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, told(done.stdout + done.stderr)
    assert done.stdout.split() == [str(sum(len(str(n)) for n in range(2 * SOME)))]
    assert sorted(out(places[1])) == list(range(2 * SOME))
    unpacked = list(tmp_path.glob("work*/*/*/env/shmq/__init__.py"))
    assert unpacked, "the executors had another shmq than the one that was sent"


def pack(to):
    """What `pip install --target env shmq pyarrow numpy` makes, of what is installed here."""
    shutil.copytree(shmq.__path__[0], to / "shmq", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(shmq.__path__[0]).parent / "pyspark_shmq.py", to)
    for name in ("cffi", "msgspec", "numpy", "pyarrow"):
        for file in importlib.metadata.files(name):
            if ".." not in file.parts and "tests" not in file.parts and "include" not in file.parts:
                (to / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), to / file)
