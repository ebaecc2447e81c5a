"""
A stream from queue to queue whose driver is killed again and again: rows in = rows out, each once, in order.

    python -m tests.spark.chaos --kills 100

A writer keeps putting while the driver, a process with a JVM of its own, is killed with `kill -9`, and all below it;
then it is started again on the same checkpoint. The deaths take turns (`Death`): right before the record that joins a
batch to the queue, right after it, at a moment drawn from the seed; and one of Spark's Pythons, which the driver must
survive or end by. Every fourth time the last commit record is taken away too, so that the last batch is repeated for
certain. `make spark-chaos` runs it.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import shmq
from shmq.spark import setup

if TYPE_CHECKING:
    from collections.abc import Callable

_DRIVER = """
import sys
import shmq
from pyspark.sql.datasource import CaseInsensitiveDict
from shmq.spark import sink
from shmq.spark.source import ShmqDataSource
source, target, checkpoint, scratch, death, mark = sys.argv[1:]
spark = shmq.spark.session("local[2]", **{
    "spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.local.dir": scratch,
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch} "
    + shmq.spark.setup.defaults()["spark.driver.extraJavaOptions"],
})

class Writer(sink.StreamWriter):  # ours, that says where it is and then waits to be killed

    def here(self, where):
        import time
        if where == death:
            open(mark, "x").close()
            time.sleep(86400)

    def commit(self, messages, batchId):
        import shmq
        with shmq.open(self.targets.of("")[0].path, create=False) as queue:
            before = queue.adopted(messages[0].app)
        new = before is None or before[0] < batchId
        if new:
            self.here("before the record")
        super().commit(messages, batchId)
        if new:
            self.here("after the record")

class Mortal(ShmqDataSource):

    @classmethod
    def name(cls):
        return "mortal"

    def streamWriter(self, schema, overwrite):
        return sink._writer(Writer, sink.sink_options(CaseInsensitiveDict(self.options)), schema, "")

spark.dataSource.register(Mortal)
stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20000")
query = (
    stream.load(source).select("key", "value").writeStream.format("mortal" if mark else "shmq")
    .option("checkpointLocation", checkpoint).start(target)
)
print("running", flush=True)
query.awaitTermination()
"""
_AHEAD = 100_000
"""Rows that the writer may be ahead, so that what is left to do in the end does not depend on the machine."""
_GIVE_UP = 1800.0
"""Seconds without a row, after which something hangs."""


class Death(enum.StrEnum):
    """Where whoever is killed is. The first four take turns, in this order."""

    BEFORE = "before the record"
    AFTER = "after the record"
    ANYTIME = "anytime"
    WORKER = "a Python of Spark's"


class Chaos:
    """One campaign, in a directory of its own."""

    def __init__(self, top: Path, seed: int, ahead: int = _AHEAD) -> None:
        self._ahead = ahead
        self.source, self.target, self.checkpoint = (str(top / name) for name in ("in", "out", "checkpoint"))
        self._scratch, self._mark = top / "scratch", top / "mark"
        self._scratch.mkdir()
        self.dice = random.Random(seed)
        self.put = 0
        self._checked = 0
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self.queue = shmq.open(self.source, options=shmq.Options(retention=shmq.Retention.forever()))
        shmq.open(self.target, options=shmq.Options(chunk_bytes=1 << 20)).close()

    def _write(self) -> None:
        while not self._stop.is_set():
            self.queue.put_many([b"%d" % n for n in range(self.put, self.put + 500)])
            self.put += 500
            while self.put > self.out() + self._ahead and not self._stop.is_set():
                time.sleep(0.05)
            time.sleep(0.05)

    def driver(self, death: Death | None = None) -> subprocess.Popen:
        """Start one in a process group of its own: its JVM and workers go with it."""
        mark = str(self._mark) if death in {Death.BEFORE, Death.AFTER} else ""
        words = [sys.executable, "-c", _DRIVER, self.source, self.target, self.checkpoint, str(self._scratch)]
        words += [str(death), mark]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        said = child.stdout.readline()
        if said.strip() != b"running":
            kill_all(child)
            raise RuntimeError("the driver did not come to life; run it by hand to see why")
        return child

    def out(self) -> int:
        with shmq.open(self.target, create=False, read_only=True) as queue:
            return queue.next_index

    def until(self, met: Callable[[], bool], child: subprocess.Popen, death: Death | None = None) -> subprocess.Popen:
        """
        Wait for something, and return the driver that runs then.

        A driver may end by itself, where Spark gives up a worker that a busy machine is slow to start, or one of its
        Pythons was killed: that is one death more, and the next one goes on.
        """
        end = time.monotonic() + _GIVE_UP
        while not met():
            if time.monotonic() > end:
                raise RuntimeError(f"nothing has happened for {_GIVE_UP:.0f} s")
            if child.poll() is not None:
                kill_all(child)
                child = self.driver(death)
            time.sleep(0.05)
        return child

    def moved_on(self, child: subprocess.Popen) -> subprocess.Popen:
        """Wait until something new has come out."""
        before = self.out()
        return self.until(lambda: self.out() > before, child)

    def forget_last_commit(self) -> bool:
        try:
            numbers = [int(name) for name in os.listdir(f"{self.checkpoint}/commits") if name.isdigit()]
            for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
                os.unlink(f"{self.checkpoint}/commits/{name}")
        except (FileNotFoundError, ValueError):
            return False
        return True

    def run(self, kills: int, *, rivals: bool = True) -> None:
        """Raises AssertionError when a row is lost, doubled or out of order."""
        self._writer.start()
        child = None
        try:
            repeated = self._kills(kills)
            child = self.driver()
            if rivals:
                child = self._rivals(child)
            self._stop.set()
            self._writer.join()
            child = self.until(lambda: self.out() >= self.put, child)
        finally:
            self._stop.set()
            self._writer.join()
            if child is not None:
                kill_all(child)
        self._checked = 0  # once more, all of it
        self.check_prefix()
        assert self.out() == self.put
        print(f"{self.put:,} rows in, {self.out():,} rows out; {kills} kills, {repeated} commit records taken away")

    def _kills(self, kills: int) -> int:
        """Kill so many; how many commit records were taken away."""
        repeated = 0
        for number in range(kills):
            death = list(Death)[number % len(Death)]
            self._kill(death)
            if number % 4 == 2:
                repeated += self.forget_last_commit()
            self.check_prefix()
            told = f"kill {number + 1} of {kills}, {death}: {self.out():,} rows out, in order, each once"
            print(told, flush=True)
        return repeated

    def _kill(self, death: Death) -> None:
        """One death; nothing of this driver is left behind it."""
        before = self.out()
        child = self.driver(death)
        if death in {Death.BEFORE, Death.AFTER}:
            child = self.until(self._mark.exists, child, death)
            self._mark.unlink()
            assert (self.out() > before) == (death is Death.AFTER)
        else:
            child = self.moved_on(child)
            time.sleep(self.dice.uniform(0, 1.5))
        if death is Death.WORKER:
            pythons = [pid for pid in below(child.pid) if b"-m\0pyspark." in command(pid)]
            if pythons:  # none, if the driver has just ended by itself
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.dice.choice(sorted(pythons)), signal.SIGKILL)
            child = self.moved_on(child)
        kill_all(child)

    def _rivals(self, first: subprocess.Popen) -> subprocess.Popen:
        """
        A second driver on one checkpoint: Spark may end one of them, or they take turns; each row comes out once.

        The one that then goes on alone is returned.
        """
        second = self.driver()
        try:
            for _ in range(3):
                first = self.moved_on(first)
        finally:
            kill_all(second)
        self.check_prefix()
        print(f"two drivers at once: {self.out():,} rows out, in order, each once", flush=True)
        return first

    def check_prefix(self) -> None:
        """What has come out since the last look: what is decided in a queue does not change."""
        with shmq.open(self.target, create=False, read_only=True) as queue:
            for message in queue.reader(self._checked):
                assert message.payload == b"%d" % message.index == b"%d" % self._checked, (message, self._checked)
                self._checked += 1


def small() -> dict[str, str]:
    """Settings of a driver that is quick to start: a small heap, and no second compiler."""
    java = setup.defaults()["spark.driver.extraJavaOptions"]
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java}",
    }


def kill_all(child: subprocess.Popen) -> None:
    """It and all below it, at once. Spark's Java leaves our group for one of its own, so it is found by its parent."""
    for group in {child.pid, *_groups_below(child.pid)}:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def command(pid: int) -> bytes:
    """Its words; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def below(pid: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        todo += children
        found += children
    return found


def _groups_below(pid: int) -> set[int]:
    """The process groups of everything below a process, but for our own."""
    found: set[int] = set()
    for child in below(pid):
        try:
            found.add(os.getpgid(child))
        except ProcessLookupError:
            continue
    return found - {os.getpgid(0)}


def main() -> None:
    parser = argparse.ArgumentParser(description="kill a Spark driver again and again")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--dir", help="where to work (a new directory in the temporary one)")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}: python -m tests.spark.chaos --kills {arguments.kills} --seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="shmq-spark-chaos-", dir=arguments.dir) as top:
        Chaos(Path(top), arguments.seed).run(arguments.kills)


if __name__ == "__main__":
    main()
