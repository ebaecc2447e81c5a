"""
Any message of a queue: q[i] of random indexes, q.at(time), and reading backward, from 10^3 to 10^7 messages.

The figures are to stay flat: a lookup costs the same wherever it goes, but for what the caches do not hold.

    python -m benchmarks.random_access [directory] [largest power of ten]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import shmq

PAYLOAD = bytes(32)
LOOKUPS = 100_000
LOOPS = 20


def fill(queue: shmq.Queue, count: int) -> None:
    """Messages whose times are their indexes."""
    batch = 1000
    for first in range(0, count, batch):
        queue.put_many([PAYLOAD] * min(batch, count - first), times_ns=range(first, min(first + batch, count)))


def per_call(call, values: list[int]) -> float:
    """The ns of one call: the best of some loops over a part of them each. Processor time: preemption is not ours."""
    best = float("inf")
    part = len(values) // LOOPS
    for loop in range(LOOPS):
        chosen = values[loop * part :][:part]
        began = time.process_time_ns()
        for value in chosen:
            call(value)
        best = min(best, (time.process_time_ns() - began) / part)
    return best


def measure(directory: str, count: int) -> tuple[float, float, float, float]:
    """Ns of q[i], of q[i].payload, of q.at(t), and of one message read backward."""
    options = shmq.Options(retention=shmq.Retention.forever())
    with shmq.open(Path(directory) / f"q{count}", options=options) as queue:
        fill(queue, count)
        noise = random.Random(count)
        indexes = [noise.randrange(count) for _ in range(LOOKUPS)]
        for index in indexes:
            assert queue[index].index == index
        assert queue.at_ns(indexes[0]) == indexes[0]
        one = per_call(queue.__getitem__, indexes)
        payload = per_call(lambda index: queue[index].payload, indexes)
        at = per_call(queue.at_ns, indexes[: LOOKUPS // 20])
        began, read = time.process_time_ns(), 0
        for _ in queue.reader(max(count - LOOKUPS, 0), reverse=True):
            read += 1
        return one, payload, at, (time.process_time_ns() - began) / read


def main() -> None:
    """Print one line for each size."""
    where = sys.argv[1] if len(sys.argv) > 1 else None
    largest = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    print(f"{'messages':>12} {'q[i]':>8} {'.payload':>9} {'q.at(t)':>9} {'backward':>9}   ns")
    for power in [power for power in (3, 5, 6, 7, 8) if power <= largest]:
        with tempfile.TemporaryDirectory(dir=where) as directory:
            one, payload, at, backward = measure(directory, 10**power)
            print(f"{10**power:>12,} {one:>8,.0f} {payload:>9,.0f} {at:>9,.0f} {backward:>9,.0f}", flush=True)


if __name__ == "__main__":
    main()
