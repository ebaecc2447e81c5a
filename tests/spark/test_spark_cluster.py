"""On a cluster of this machine: executors in processes of their own, and a standalone master with a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

import shmq

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pyspark = pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
from shmq.spark import java

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SOME = 10_000

JOB = """
import sys
import shmq
master, source, target, checkpoint = sys.argv[1:]
spark = shmq.spark.session(master, **{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
frame = spark.read.format("shmq").option("minPartitions", "4").load(source)
print(frame.count(), frame.groupBy("key").count().count())
stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").load(source).select("key", "value")
stream = stream.writeStream.format("shmq").option("checkpointLocation", checkpoint).trigger(availableNow=True)
query = stream.start(target)
query.awaitTermination()
spark.stop()
"""


@pytest.fixture
def places(tmp_path):
    with shmq.open(tmp_path / "in") as queue:
        for start in range(0, SOME, 1000):
            numbers = range(start, start + 1000)
            queue.put_many([b"%d" % n for n in numbers], keys=[b"%d" % (n % 7) for n in numbers])
    return [str(tmp_path / name) for name in ("in", "out", "checkpoint")]


def check(master, places):
    done = subprocess.run([sys.executable, "-c", JOB, master, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [str(SOME), "7"]
    with shmq.open(places[1], create=False, read_only=True) as queue:
        assert [int(message.payload) for message in queue.reader()] == list(range(SOME))


def test_executors_in_processes_of_their_own(places):
    check("local-cluster[2,1,1024]", places)


def test_a_standalone_master_and_worker_from_the_package(places, tmp_path):
    env = {**os.environ, "JAVA_HOME": java.find().home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    run = [f"{pyspark.__path__[0]}/bin/spark-class"]
    place = "org.apache.spark.deploy"
    log = open(tmp_path / "log", "wb")  # noqa: SIM115  # both write to it as long as they live
    master = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    processes = [subprocess.Popen([*run, f"{place}.master.Master", *master], env=env, stdout=log, stderr=log)]
    try:
        url = find_url(tmp_path / "log", processes[0])
        worker = [url, "--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", "0"]
        worker += ["--work-dir", str(tmp_path / "work")]
        processes.append(subprocess.Popen([*run, f"{place}.worker.Worker", *worker], env=env, stdout=log, stderr=log))
        check(url, places)
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait()
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
