"""
A stream from queue to queue whose driver is killed again and again: rows in = rows out, each once, in order.

    python -m tests.spark.chaos --kills 100

A writer keeps putting while the driver, a process with a JVM of its own, is killed with `kill -9` at a moment drawn
from the seed; then it is started again on the same checkpoint. Every fourth time the last commit record is taken away
too, so that the last batch is repeated for certain. In the end two drivers run at once. `make spark-chaos` does it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import shmq

_DRIVER = """
import sys
import shmq
source, target, checkpoint = sys.argv[1:]
spark = shmq.spark.session("local[2]", **{
    "spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions":
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC " + shmq.spark.setup.defaults()["spark.driver.extraJavaOptions"],
})
stream = spark.readStream.format("shmq").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20000")
query = (
    stream.load(source).select("key", "value").writeStream.format("shmq")
    .option("checkpointLocation", checkpoint).start(target)
)
print("running", flush=True)
query.awaitTermination()
"""
_AHEAD = 100_000
"""Rows that the writer may be ahead, so that what is left to do in the end does not depend on the machine."""
_GIVE_UP = 1800.0
"""Seconds without a row, after which something hangs."""


class Chaos:
    """One campaign, in a directory of its own."""

    def __init__(self, top: Path, seed: int) -> None:
        self.source, self.target, self.checkpoint = (str(top / name) for name in ("in", "out", "checkpoint"))
        self.dice = random.Random(seed)
        self.put = 0
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self.queue = shmq.open(self.source, options=shmq.Options(retention=shmq.Retention.forever()))
        shmq.open(self.target, options=shmq.Options(chunk_bytes=1 << 20)).close()

    def _write(self) -> None:
        while not self._stop.is_set():
            self.queue.put_many([b"%d" % n for n in range(self.put, self.put + 500)])
            self.put += 500
            while self.put > self.out() + _AHEAD and not self._stop.is_set():
                time.sleep(0.05)
            time.sleep(0.05)

    def driver(self) -> subprocess.Popen:
        """Start one in a process group of its own: its JVM and workers go with it."""
        words = [sys.executable, "-c", _DRIVER, self.source, self.target, self.checkpoint]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        said = child.stdout.readline()
        if said.strip() != b"running":
            kill_all(child)
            raise RuntimeError("the driver did not come to life; run it by hand to see why")
        return child

    def out(self) -> int:
        with shmq.open(self.target, create=False, read_only=True) as queue:
            return queue.next_index

    def moved_on(self, before: int, child: subprocess.Popen) -> subprocess.Popen:
        """
        Wait until something new has come out, and return the driver that runs then.

        A driver may end by itself, where Spark gives up a worker that a busy machine is slow to start: that is one
        death more, and the next one goes on.
        """
        end = time.monotonic() + _GIVE_UP
        while self.out() <= before:
            if time.monotonic() > end:
                raise RuntimeError(f"nothing has come out for {_GIVE_UP:.0f} s")
            if child.poll() is not None:
                kill_all(child)
                child = self.driver()
            time.sleep(0.05)
        return child

    def forget_last_commit(self) -> bool:
        try:
            numbers = [int(name) for name in os.listdir(f"{self.checkpoint}/commits") if name.isdigit()]
            for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
                os.unlink(f"{self.checkpoint}/commits/{name}")
        except (FileNotFoundError, ValueError):
            return False
        return True

    def run(self, kills: int) -> None:
        """Raises AssertionError when a row is lost, doubled or out of order."""
        self._writer.start()
        drivers: list[subprocess.Popen] = []
        try:
            repeated = self._kills(kills)
            # Two on one checkpoint: Spark may end one of them, or they take turns; each row comes out once.
            drivers += [self.driver(), self.driver()]
            for _ in range(5):
                drivers[0] = self.moved_on(self.out(), drivers[0])
            self._stop.set()
            self._writer.join()
            while self.out() < self.put:
                drivers[0] = self.moved_on(self.out(), drivers[0])
        finally:
            self._stop.set()
            for driver in drivers:
                kill_all(driver)
        self.check_prefix()
        assert self.out() == self.put
        print(f"{self.put:,} rows in, {self.out():,} rows out; {kills} kills, {repeated} commit records taken away")

    def _kills(self, kills: int) -> int:
        """Kill so many drivers; how many commit records were taken away."""
        repeated = 0
        for number in range(kills):
            before = self.out()
            child = self.moved_on(before, self.driver())
            time.sleep(self.dice.uniform(0, 1.5))
            kill_all(child)
            if number % 4 == 3:
                repeated += self.forget_last_commit()
            self.check_prefix()
            print(f"kill {number + 1} of {kills}: {self.out():,} rows out, in order, each once", flush=True)
        return repeated

    def check_prefix(self) -> None:
        with shmq.open(self.target, create=False, read_only=True) as queue:
            for expected, message in enumerate(queue.reader()):
                assert message.payload == b"%d" % expected, (expected, message.payload)


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
