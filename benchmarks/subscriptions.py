"""
What a filter costs: ns for each message that does not match, beside a plain walk over the same ones.

Messages of 64 bytes with a key and two headers, in shared memory, read by one process. Every way goes over all of
them; each figure is the median of some rounds, which take turns, so that what else runs meanwhile meets all alike.

    python -m benchmarks.subscriptions [messages]
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq import Filter

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
BATCH = 1000
EVERY = 100
"""One of so many has the key, the type and the header that are asked for."""


def fill(queue: shmq.Queue, count: int) -> None:
    """Messages, one in a hundred of which is wanted."""
    rare = [number % EVERY == 0 for number in range(BATCH)]
    for _ in range(0, count, BATCH):
        queue.put_many(
            [bytes(64)] * BATCH,
            keys=[b"eu/berlin" if each else b"us/boston" for each in rare],
            types=[1 if each else 2 for each in rare],
            headers=[{"tenant": 7, "region": "eu" if each else "us"} for each in rare],
        )


def takes(queue: shmq.Queue, verb: str, **how: Any) -> Callable[[], float]:
    """Everything by that verb, by a name of its own: how many ns of the processor it took."""
    consumer = queue.consumer(ephemeral=True, **how)
    work = getattr(consumer, verb)
    arguments = (BATCH, 0) if verb.endswith("many") else (0,)

    def run() -> float:
        consumer.seek(0)
        begun = time.process_time_ns()
        try:
            while True:
                work(*arguments)
        except shmq.Empty:
            return time.process_time_ns() - begun

    return run


def walked(run: Callable[[], object]) -> Callable[[], float]:
    """How many ns of the processor that takes."""

    def timed() -> float:
        begun = time.process_time_ns()
        run()
        return time.process_time_ns() - begun

    return timed


def ways(queue: shmq.Queue) -> dict[str, Callable[[], float]]:
    """What is measured, by its name."""
    none = {"key_prefix": b"zz"}, {"types": {9}}, {"headers": {"region": "as"}}
    rare = {"key_prefix": b"eu/"}, {"types": {1}}, {"headers": {"region": "eu"}}
    found: dict[str, Callable[[], float]] = {
        "take": takes(queue, "take"),
        "get": takes(queue, "get"),
        "take_many": takes(queue, "take_many"),
        "take of a group": takes(queue, "take", group=True),
    }
    for asked in none:
        found[f"none match, by {next(iter(asked))}"] = takes(queue, "take", filter=Filter(**asked))
    for asked in rare:
        found[f"one in {EVERY} matches, by {next(iter(asked))}"] = takes(queue, "take", filter=Filter(**asked))
    found["none match, by types, a group"] = takes(queue, "take", group=True, filter=Filter(types={9}))
    found["none match, by types, a reader"] = walked(lambda: list(queue.reader(filter=Filter(types={9}))))
    behind = queue.consumer("behind", filter=Filter(types={9}))
    found["lag, by types"] = walked(lambda: behind.lag)
    return found


def measure(count: int) -> dict[str, float]:
    """How many ns each message of the queue takes, by way."""
    with shmq.open(None, retention="forever") as queue:
        fill(queue, count)
        spent: dict[str, list[float]] = {}
        measured = ways(queue)
        for _ in range(ROUNDS):
            for name, run in measured.items():
                spent.setdefault(name, []).append(run() / count)
    return {name: statistics.median(times) for name, times in spent.items()}


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    found = measure(count)
    plain = found["take"]
    print(f"{count:,} messages; ns for each, and how many of those a plain take is")
    for name, each in found.items():
        print(f"{name:40} {each:8.1f} {plain / each:6.1f}x")


if __name__ == "__main__":
    main()
