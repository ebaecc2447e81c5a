"""
An Executor beside ProcessPoolExecutor, loky, joblib, huey, RQ and Celery.

    python -m benchmarks.executor

    no-op tasks: so many submitted one by one, until the last result is there, with two workers
    tasks of 1 ms, on two workers
    submit: how long a call takes, while workers are at work
    round trip: submit and result, with nothing else to do
    queued: how long it takes to queue a million where nobody runs any, and how much memory that takes in the submitter:
        with all futures of it, and with max_pending= in a program whose workers keep up

Rivals that are not installed are left out and named; RQ and Celery need a redis-server.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import shmq

WORKERS = 2


def noop():
    return None


def busy(seconds=0.001):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


# ---- each rival: submit(function) -> something; result(of that); close()
class Futures:
    """What has the interface of concurrent.futures."""

    def __init__(self, executor):
        self.executor = executor
        self.submit = executor.submit

    def result(self, future):
        return future.result()

    def close(self):
        self.executor.shutdown()


class Shmq(Futures):
    """In a directory of its own."""

    def __init__(self, workers=WORKERS, **more):
        self.folder = tempfile.mkdtemp(prefix="shmq-bench-")
        super().__init__(shmq.Executor(f"{self.folder}/jobs", workers, **more))

    def close(self):
        self.executor.shutdown(cancel_futures=False)
        shutil.rmtree(self.folder)


class Pool(Futures):
    """The standard library's."""

    def __init__(self):
        super().__init__(ProcessPoolExecutor(WORKERS))


class Loky(Futures):
    """What joblib stands on."""

    def __init__(self):
        from loky import ProcessPoolExecutor as LokyExecutor

        super().__init__(LokyExecutor(WORKERS))


def anew(name):
    """That module, for this round's place, which it reads when it is imported."""
    sys.modules.pop(name, None)
    return importlib.import_module(name)


class Huey:
    """SqliteHuey, with its consumer's processes."""

    def __init__(self):
        import huey  # noqa: F401  # whether it is there

        self.folder = tempfile.mkdtemp(prefix="huey-bench-")
        os.environ["BENCH_HUEY"] = f"{self.folder}/huey.db"
        executor_huey = anew("benchmarks.executor_huey")
        self.tasks = {noop: executor_huey.noop, busy: executor_huey.busy}
        words = [
            "-m",
            "huey.bin.huey_consumer",
            "benchmarks.executor_huey.huey",
            "-k",
            "process",
            "-w",
            str(WORKERS),
            "-q",
        ]
        self.process = subprocess.Popen([sys.executable, *words, "-d", "0.001"], stderr=subprocess.DEVNULL)

    def submit(self, function):
        return self.tasks[function]()

    def result(self, task):
        return task.get(blocking=True, backoff=1.0, max_delay=0.01)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


def redis_server():
    """A redis-server of our own: its process and its port."""
    if shutil.which("redis-server") is None:
        raise ImportError("there is no redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--dir"]
    folder = tempfile.mkdtemp(prefix="redis-bench-")
    process = subprocess.Popen([*words, folder], stdout=subprocess.DEVNULL)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process, port
        time.sleep(0.01)


class Rq:
    """With a redis-server of its own."""

    def __init__(self):
        import rq
        from redis import Redis

        self.server, port = redis_server()
        url = f"redis://127.0.0.1:{port}"
        self.queue = rq.Queue("bench", connection=Redis.from_url(url))
        words = [os.path.join(os.path.dirname(sys.executable), "rq"), "worker", "--url", url, "--quiet", "bench"]
        self.workers = [subprocess.Popen(words) for _ in range(WORKERS)]

    def submit(self, function):
        return self.queue.enqueue(f"benchmarks.executor.{function.__name__}", result_ttl=500)

    def result(self, job):
        while (status := str(job.get_status().value)) != "finished":
            if status == "failed":
                raise RuntimeError(f"a job of RQ failed: {job.latest_result()}")
            time.sleep(0.001)

    def close(self):
        for each in [*self.workers, self.server]:
            each.terminate()
            each.wait()


class Celery:
    """With a redis-server of its own."""

    def __init__(self):
        import celery  # noqa: F401  # whether it is there

        self.server, port = redis_server()
        os.environ["BENCH_CELERY"] = f"redis://127.0.0.1:{port}/0"
        executor_celery = anew("benchmarks.executor_celery")
        self.tasks = {noop: executor_celery.noop, busy: executor_celery.busy}
        words = ["-m", "celery", "-A", "benchmarks.executor_celery", "worker", "-c", str(WORKERS), "-l", "ERROR"]
        self.process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def submit(self, function):
        return self.tasks[function].delay()

    def result(self, task):
        return task.get(timeout=60)

    def close(self):
        for each in (self.process, self.server):
            each.terminate()
            each.wait()


class Joblib:
    """Parallel has no futures: one call for all tasks."""

    def __init__(self):
        from joblib import Parallel, delayed

        self.parallel, self.delayed = Parallel(n_jobs=WORKERS), delayed
        self.made = []

    def run(self, function, count):
        self.parallel(self.delayed(function)() for _ in range(count))

    def close(self):
        self.made.clear()


RIVALS = {
    "shmq.Executor": (Shmq, 20_000),
    "ProcessPoolExecutor": (Pool, 20_000),
    "loky": (Loky, 5_000),
    "joblib": (Joblib, 20_000),
    "huey (SQLite)": (Huey, 1_000),
    "RQ (redis)": (Rq, 300),
    "Celery (redis)": (Celery, 2_000),
}


def many(rival, function, count):
    """Tasks a second, and microseconds of each submit."""
    if isinstance(rival, Joblib):
        began = time.perf_counter()
        rival.run(function, count)
        return count / (time.perf_counter() - began), None
    rival.result(rival.submit(function))
    began = time.perf_counter()
    tasks = [rival.submit(function) for _ in range(count)]
    submitted = time.perf_counter()
    for each in tasks:
        rival.result(each)
    return count / (time.perf_counter() - began), (submitted - began) / count * 1e6


def trips(rival, count):
    """The median of so many round trips, in microseconds."""
    if isinstance(rival, Joblib):
        return None
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        rival.result(rival.submit(noop))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def measure(name, share):
    """One rival, once."""
    make, count = RIVALS[name]
    rival = make()
    try:
        rate, submit = many(rival, noop, max(int(count * share), 50))
        millisecond, _ = many(rival, busy, max(int(count * share / 10), 50))
        trip = trips(rival, max(int(min(count, 1_000) * share), 20))
    finally:
        rival.close()
    return rate, millisecond, submit, trip


def medians(rounds):
    return [None if None in each else statistics.median(each) for each in zip(*rounds, strict=True)]


def resident():
    """MiB of this process that are its own."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024


def queued(count):
    """Seconds to queue so many where nobody runs any, and MiB that this takes."""
    rival = Shmq(workers=0)
    before = resident()
    began = time.perf_counter()
    for _ in range(count):
        rival.submit(noop)
    taken = time.perf_counter() - began
    grown = resident() - before
    rival.executor.shutdown(wait=False)  # its futures stay as they are
    shutil.rmtree(rival.folder)
    return taken, grown


def bounded(count, pending=10_000):
    """The same where no more than some may wait, and workers run them."""
    rival = Shmq(max_pending=pending)
    before = resident()
    began = time.perf_counter()
    for _ in range(count):
        rival.submit(noop)
    taken = time.perf_counter() - began
    grown = resident() - before
    rival.close()
    return taken, grown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the tasks")
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=RIVALS, default=list(RIVALS))
    given = parser.parse_args()
    print(f"{'':22} {'no-op/s':>9} {'1 ms/s':>8} {'submit':>9} {'round trip':>11}    load {os.getloadavg()[0]:.1f}")
    found = {name: [] for name in given.only}
    for _ in range(given.rounds):  # they take turns, so that what else runs meanwhile meets all alike
        for name in list(found):
            try:
                found[name].append(measure(name, given.share))
            except ImportError as problem:
                print(f"{name:22} left out: {problem}")
                del found[name]
    for name, rounds in found.items():
        rate, millisecond, submit, trip = medians(rounds)
        told = [f"{each:.0f} us" if each is not None else "-" for each in (submit, trip)]
        print(f"{name:22} {rate:9,.0f} {millisecond:8,.0f} {told[0]:>9} {told[1]:>11}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    if given.queued:
        taken, grown = queued(given.queued)
        print(f"{given.queued:,} tasks queued by one process in {taken:.1f} s; its memory grew by {grown:.0f} MiB")
        taken, grown = bounded(given.queued)
        print(f"{given.queued:,} tasks submitted with max_pending in {taken:.1f} s; by {grown:.0f} MiB")


if __name__ == "__main__":
    main()
