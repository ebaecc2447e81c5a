"""
Items through two and three stages: a Flow, a pipeline of multiprocessing written by hand with Queues, the plain loop.

    python -m benchmarks.flow [--items 20000] [--turns 3] [--work 0 100]

*work*: microseconds that each stage's function computes. A stage is one process; the pipeline by hand loses what its
processes have when they are killed, and cannot be gone on with.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import resource
import statistics
import tempfile
import time

import shmq

FORK = multiprocessing.get_context("fork")
LAST = None


def compute(seconds, item):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return item + 1


def plain(stages, count, seconds):
    return sum(functools.reduce(lambda item, _: compute(seconds, item), range(stages), item) for item in range(count))


def hand(function, source, target):
    while (item := source.get()) is not LAST:
        target.put(function(item))
    target.put(LAST)


def by_hand(stages, count, seconds):
    queues = [FORK.Queue(1024) for _ in range(stages + 1)]
    processes = [
        FORK.Process(target=hand, args=(functools.partial(compute, seconds), source, target))
        for source, target in itertools.pairwise(queues)
    ]
    feeder = FORK.Process(target=feed, args=(count, queues[0]))
    for each in [*processes, feeder]:
        each.start()
    total = 0
    while (item := queues[-1].get()) is not LAST:
        total += item
    for each in [*processes, feeder]:
        each.join()
    return total


def feed(count, queue):
    for item in range(count):
        queue.put(item)
    queue.put(LAST)


def flow(stages, count, seconds, *, ordered=False, batch=None, durability="process"):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        made = shmq.Flow(f"{place}/flow", context="fork", durability=durability)
        function = functools.partial(compute, seconds)
        if batch:
            function = functools.partial(all_of, function)
        for number in range(stages):
            made.stage(function, name=f"stage{number}", ordered=ordered, batch=batch)
        made.run(range(count), progress=False)
        with shmq.open(f"{place}/flow/out", create=False, trusted=True) as out:
            return sum(message.payload for message in out.reader())


def all_of(function, items):
    return [function(item) for item in items]


KINDS = {
    "plain loop": plain,
    "Queues by hand": by_hand,
    "Flow": flow,
    "Flow, ordered": functools.partial(flow, ordered=True),
    "Flow, batch=64": functools.partial(flow, batch=64),
    "Flow, sync": functools.partial(flow, durability="sync"),
}


def processors():
    """Seconds of processors that this process and those it waited for have had."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--work", type=int, nargs="*", default=[0, 100])
    given = parser.parse_args()
    print(f"{given.items:,} items, {os.cpu_count()} processors, median of {given.turns}")
    print("items a second, and processor time for each")
    for work in given.work:
        for stages in (2, 3):
            for name, kind in KINDS.items():
                took, busy = [], []
                for _ in range(given.turns):
                    before, began = processors(), time.perf_counter()
                    total = kind(stages, given.items, work * 1e-6)
                    took.append(time.perf_counter() - began)
                    busy.append(processors() - before)
                    assert total == sum(range(given.items)) + stages * given.items
                rate = given.items / statistics.median(took)
                each = statistics.median(busy) / given.items * 1e6
                print(f"{stages} stages of {work:3} us   {name:16} {rate:10,.0f}/s {each:8.1f} us", flush=True)


if __name__ == "__main__":
    main()
