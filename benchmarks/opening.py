"""
Opening after kill -9, at queue lengths of a thousand to three million messages; memory of a reading process.

For every length a queue is filled. Then, several times: a process puts and another one takes, and both are killed with
SIGKILL, the putting one while a claim of its is open. A fresh interpreter opens the queue and does one of three things,
timed from `shmq.open` to the first message in hand (importing is import_time.py's business):

    resumed     the consumer that was killed, from where it stood
    earliest    a new consumer, from the first message
    put         no consumer: the first put after the crash

None of the three may grow with the queue: opening looks at one checkpoint, and at the chunk in which the dead producer
may have left a claim.

With --steps nobody is killed, and what is timed is told apart: to open, then the first put, or a new name and its first
message. Processor time too, which a busy machine lengthens less.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from typing import Any

import shmq
from benchmarks import report, trial
from benchmarks.peers import FORK

LENGTHS = (1_000, 100_000, 1_000_000, 3_000_000)
SIZE = 64
BATCH = 1000
RUNNING = 0.03  # seconds that producer and consumer run before they are killed
PAUSE = 0.0005  # seconds between two messages, so that the queue keeps its length
REFILL = 100_000  # up to this length, every crash gets a fresh queue
SPAWN = multiprocessing.get_context("spawn")
WAYS = ("resumed", "earliest", "put")


def fill(path: str, length: int, chunk_bytes: int | None) -> None:
    """A queue of that many messages, and a consumer that has taken half of them."""
    batch = BATCH if chunk_bytes is None else min(BATCH, chunk_bytes // (8 * SIZE))
    some = [bytes(SIZE)] * batch
    with shmq.open(path, **({} if chunk_bytes is None else {"chunk_bytes": chunk_bytes})) as queue:
        for _ in range(length // batch):
            queue.put_many(some)
        with queue.consumer("worker", start=length // 2) as consumer:
            consumer.take()


def keep_putting(path: str, ready: Any) -> None:
    """Put for ever, slowly, with a claim that is open nearly all the time: whoever comes next finds it."""
    queue = shmq.open(path)
    ready.set()
    while True:
        with queue.reserve(SIZE):
            time.sleep(PAUSE)


def keep_taking(path: str, ready: Any) -> None:
    """Take for ever, slowly, from the middle of the queue on."""
    take = shmq.open(path).consumer("worker").take
    take()
    ready.set()
    while True:
        take()
        time.sleep(PAUSE)


def crash(path: str) -> None:
    """Have a producer and a consumer run for a moment, then kill both."""
    processes = []
    try:
        for job in (keep_putting, keep_taking):
            ready = FORK.Event()
            process = FORK.Process(target=job, args=(path, ready))
            process.start()
            processes.append(process)
            if not ready.wait(trial.DEADLINE):
                raise TimeoutError(f"{job.__name__} did not begin")
        time.sleep(RUNNING)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def open_and(way: str, path: str) -> float:
    """Milliseconds from open to the first message in hand, in a process that has not touched the queue before."""
    began = time.perf_counter()
    queue = shmq.open(path, create=False)
    if way == "put":
        queue.put(b"first")
    else:
        name = "worker" if way == "resumed" else f"new-{os.getpid()}"
        queue.consumer(name).take(timeout=0)
    return (time.perf_counter() - began) * 1000


def step_by_step(way: str, path: str) -> list[tuple[float, float]]:
    """Milliseconds of processor time and by the wall: of opening, and of what comes then."""
    clocks = [(time.process_time(), time.perf_counter())]
    queue = shmq.open(path, create=False)
    clocks.append((time.process_time(), time.perf_counter()))
    if way == "put":
        queue.put(b"first")
    else:
        queue.consumer(f"new-{os.getpid()}").take(timeout=0)
    clocks.append((time.process_time(), time.perf_counter()))
    queue.close()
    return [((b[0] - a[0]) * 1000, (b[1] - a[1]) * 1000) for a, b in itertools.pairwise(clocks)]


def steps(length: int, runs: int, directory: str, chunk_bytes: int | None) -> list[list[str]]:
    """The rows of one length."""
    path = f"{directory}/opening"
    trial.in_processes(functools.partial(fill, path, length, chunk_bytes))
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(runs):
        for way, then in (("put", "then the first put"), ("earliest", "or a new name and its first message")):
            ((opened, after),) = trial.in_processes(functools.partial(step_by_step, way, path), start=SPAWN)
            found.setdefault("open", []).append(opened)
            found.setdefault(then, []).append(after)
    with shmq.open(path) as queue:
        chunks = queue.stats().chunks
    shutil.rmtree(path)
    rows = []
    for what, times in found.items():
        processor, wall = zip(*times, strict=True)
        figures = [f"{statistics.median(processor):.2f}", f"{statistics.median(wall):.2f}", f"{min(wall):.2f}"]
        rows.append([f"{length:,}", f"{chunks:,}", what, *figures])
    return rows


def read_all(path: str) -> tuple[int, int, int, int]:
    """Chunks, messages read, and RssAnon in bytes before and after reading all of them."""
    queue = shmq.open(path, create=False)
    chunks = queue.stats().chunks
    consumer = queue.consumer("memory", start="earliest")
    count = len(consumer.take_many(BATCH))
    before = trial.resident("RssAnon")
    try:
        while True:
            count += len(consumer.take_many(BATCH, timeout=0))
    except shmq.Empty:
        return chunks, count, before, trial.resident("RssAnon")


def measure(length: int, runs: int, directory: str, chunk_bytes: int | None) -> dict[str, Any]:
    """All figures at one length."""
    path = f"{directory}/opening"
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            if length <= REFILL:
                shutil.rmtree(path, ignore_errors=True)
            if not os.path.exists(path):
                trial.in_processes(functools.partial(fill, path, length, chunk_bytes))
            crash(path)
            times[way] += trial.in_processes(functools.partial(open_and, way, path), start=SPAWN)
    ((chunks, count, before, after),) = trial.in_processes(functools.partial(read_all, path), start=SPAWN)
    shutil.rmtree(path)
    return {"times": times, "chunks": chunks, "read": count, "anon": [before, after]}


def _steps(options: Any) -> int:
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        rows = [
            row for length in options.lengths for row in steps(length, options.runs, directory, options.chunk_bytes)
        ]
    out.data["steps"] = rows
    out.table(
        "In a fresh process, ms: medians, and the smallest by the wall",
        ("messages", "chunks", "", "processor", "wall", "smallest"),
        rows,
    )
    out.write()
    return 0


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--runs", type=int, default=7, help="crashes for each way and length; default: 7")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--chunk-bytes", type=int, metavar="N", help="small chunks, so that there are many of them")
    parser.add_argument("--steps", action="store_true", help="without a crash, step by step")
    options = parser.parse_args()
    if options.steps:
        return _steps(options)
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        found = {length: measure(length, options.runs, directory, options.chunk_bytes) for length in options.lengths}
    out.data["lengths"] = found
    times, memory = [], []
    for length, at in found.items():
        row = [f"{length:,}", f"{at['chunks']}"]
        for way in WAYS:
            values = at["times"][way]
            row.append(f"{statistics.median(values):.1f} ({min(values):.1f} .. {max(values):.1f})")
        times.append(row)
        before, after = at["anon"]
        memory.append((f"{length:,}", f"{at['read']:,}", f"{before >> 10:,}", f"{after >> 10:,}"))
    out.table(
        "From open to the first message after kill -9, ms: median (min .. max)", ("messages", "chunks", *WAYS), times
    )
    out.table(
        "RssAnon of a reading process, KiB", ("messages", "read", "after the first thousand", "after all"), memory
    )
    out.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
