"""
multiprocessing's queues and the drop-in, side by side: what an object costs, alone and between two processes, and
arrays of 1 MiB.

    python -m benchmarks.compat [--objects 100000] [--arrays 500] [--turns 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time

import numpy

from shmq import compat

KINDS = {"multiprocessing": multiprocessing.Queue, "shmq.compat": compat.Queue}
OBJECT = {"id": 7, "name": "order", "price": 9.5}


def alone(make, count):
    """Seconds for each of put and get in one process, a hundred at a time."""
    queue = make()
    put = got = 0.0
    for _ in range(count // 100):
        began = time.perf_counter()
        for _ in range(100):
            queue.put(OBJECT)
        middle = time.perf_counter()
        for _ in range(100):
            queue.get()
        put += middle - began
        got += time.perf_counter() - middle
    queue.close()
    queue.join_thread()
    return put / count, got / count


def drain(queue, count, ended):
    for _ in range(count):
        queue.get()
    ended.send(time.perf_counter())


def between(make, thing, count):
    """Seconds for each from this process to another one, from the first put to the last get."""
    queue, (ended, tells) = make(100 if isinstance(thing, numpy.ndarray) else 0), multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=drain, args=(queue, count, tells))
    process.start()
    began = time.perf_counter()
    for _ in range(count):
        queue.put(thing)
    took = ended.recv() - began
    process.join()
    queue.close()
    queue.join_thread()
    return took / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--arrays", type=int, default=500)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    array = numpy.arange(1 << 17, dtype="f8")
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(arguments.turns):  # by turns, so that both meet whatever else the machine does
        for name, make in KINDS.items():
            put, got = alone(make, arguments.objects // 5)
            row = {
                "put, alone": put,
                "get, alone": got,
                "an object, between two": between(make, OBJECT, arguments.objects),
                "1 MiB array, between two": between(make, array, arguments.arrays),
            }
            for what, seconds in row.items():
                found.setdefault((what, name), []).append(seconds)
    print(f"load {os.getloadavg()[0]:.1f}, medians of {arguments.turns}, microseconds")
    for what in dict.fromkeys(what for what, _ in found):
        theirs, ours = (statistics.median(found[what, name]) * 1e6 for name in KINDS)
        print(f"{what:28} multiprocessing {theirs:9.2f}   shmq.compat {ours:9.2f}   {theirs / ours:6.2f}x")


if __name__ == "__main__":
    main()
