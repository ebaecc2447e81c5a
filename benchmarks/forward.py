"""
What it costs to forward: messages a second by 1, 2 and 4 workers, beside get + put + ack in the same run.

And a put with dedup, beside a plain one. Messages of 64 bytes, in directories; the ways take turns, and each figure is
the median of some rounds, so that what else runs meanwhile meets all alike.

    python -m benchmarks.forward [messages]
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
BATCH = 64


def one_by_one(member: shmq.GroupConsumer, target: shmq.Queue) -> None:
    """Forward each message alone."""
    while True:
        with member.get(timeout=0).forward() as f:
            f.put(target, PAYLOAD)


def one_by_one_once(member: shmq.GroupConsumer, target: shmq.Queue) -> None:
    """Forward one."""
    with member.get(timeout=0).forward() as f:
        f.put(target, PAYLOAD)


def batches(member: shmq.GroupConsumer, target: shmq.Queue) -> None:
    """Forward many at a time."""
    while True:
        messages = member.get_many(BATCH, timeout=0)
        with shmq.forward(*messages) as f:
            for message in messages:
                f.put(target, PAYLOAD, message=message)


def by_hand(member: shmq.GroupConsumer, target: shmq.Queue) -> None:
    """What is not exactly once."""
    while True:
        message = member.get(timeout=0)
        target.put(PAYLOAD)
        message.ack()


PAYLOAD = bytes(64)
WAYS: dict[str, Callable[[shmq.GroupConsumer, shmq.Queue], None]] = {
    "get + put + ack": by_hand,
    "forward": one_by_one,
    "forward, 64 at a time": batches,
}


def work(root: str, way: str, ready: object, go: object) -> None:
    """A worker, until nothing is left."""
    with (
        shmq.open(f"{root}/a") as source,
        shmq.open(f"{root}/b") as target,
        source.consumer("g", group=True) as member,
        contextlib.suppress(shmq.Empty),
    ):
        one_by_one_once(member, target)  # what a group learns of a queue with the first one, synced, is not in the rate
        ready.release()  # type: ignore[attr-defined]
        go.wait()  # type: ignore[attr-defined]
        WAYS[way](member, target)


def rate(way: str, workers: int, count: int) -> float:
    """Messages a second."""
    root = tempfile.mkdtemp(prefix="shmq-bench-")
    context = multiprocessing.get_context("fork")
    try:
        with shmq.open(f"{root}/a") as source:
            source.consumer("g", group=True, ack="explicit").close()
            for _ in range(0, count, 1000):
                source.put_many([PAYLOAD] * 1000)
        ready, go = context.Semaphore(0), context.Event()
        running = [context.Process(target=work, args=(root, way, ready, go)) for _ in range(workers)]
        for process in running:
            process.start()
        for _ in running:
            ready.acquire()
        began = time.perf_counter()
        go.set()
        for process in running:
            process.join()
        return count / (time.perf_counter() - began)
    finally:
        shutil.rmtree(root)


def once(count: int) -> tuple[float, float]:
    """A plain put, and one with dedup, in us."""
    root = tempfile.mkdtemp(prefix="shmq-bench-")
    try:
        with shmq.open(f"{root}/q") as queue:
            queue.put(PAYLOAD, dedup=("p", 0))
            began = time.perf_counter()
            for _ in range(count):
                queue.put(PAYLOAD)
            between = time.perf_counter()
            for number in range(1, count):
                queue.put(PAYLOAD, dedup=("p", number))
            return (between - began) / count * 1e6, (time.perf_counter() - between) / count * 1e6
    finally:
        shutil.rmtree(root)


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    for workers in (1, 2, 4):
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way in WAYS:
                found[way].append(rate(way, workers, count))
        plain = statistics.median(found["get + put + ack"])
        for way, rates in found.items():
            middle = statistics.median(rates)
            print(f"{workers} workers  {way:24s} {middle:10,.0f}/s  {middle / plain:.2f}")
    rounds = [once(count) for _ in range(ROUNDS)]
    plain, with_dedup = (statistics.median(each) for each in zip(*rounds, strict=True))
    print(f"put {plain:.2f} us, with dedup {with_dedup:.2f} us")


if __name__ == "__main__":
    main()
