"""
Where the time of one put and one take goes, in ns per layer, in one process with nobody at the other end.

Each layer is timed alone, in a loop whose own cost is taken off; the best of several repeats counts, since everything
that disturbs only adds. All of it is processor time, which preemption does not lengthen. What a second process adds
(its cache lines, its faults) is the difference to quick.py.

This one reaches below the public names on purpose: layers are what it measures.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import threading
import time
import timeit
from typing import Any

import shmq
from benchmarks import report, trial
from shmq import _native
from shmq._core import ffi, lib

SIZE = 64
COUNT = 200_000
REPEATS = 7
CLOCK = time.process_time


def per_call(statement: str, names: dict[str, Any], number: int = COUNT, repeats: int = REPEATS) -> float:
    """The ns of one statement, the loop's own taken off."""
    loop = min(timeit.repeat("pass", timer=CLOCK, number=number, repeat=repeats))
    return (
        (min(timeit.repeat(statement, timer=CLOCK, globals=names, number=number, repeat=repeats)) - loop) / number * 1e9
    )


def of_python() -> list[tuple[str, float]]:
    """What the interpreter and cffi cost, without any work of ours."""
    lock, rlock = threading.Lock(), threading.RLock()
    view = memoryview(bytes(1 << 20))

    def nothing(payload: Any, *, key: Any = None, type: int = 0, time_ns: Any = None, headers: Any = None) -> None:  # noqa: A002
        pass

    reader: Any = ffi.new("shmq_reader *")
    words = memoryview(bytearray(64)).cast("Q")
    names = {
        "empty": lib.shmq_crc32c_is_hardware,
        "crc": lib.shmq_crc32c,
        "monotonic": lib.shmq_clock_monotonic_ns,
        "wall": lib.shmq_clock_wall_ns,
        "data": bytes(SIZE),
        "lock": lock,
        "rlock": rlock,
        "nothing": nothing,
        "reader": reader,
        "words": words,
        "view": view,
        "place": 5000 << 32 | SIZE,
        "start": 40000,
        "map": _native.map_file(_anonymous(), 1 << 20, writable=True),
    }
    return [
        ("an empty call into C", per_call("empty()", names)),
        ("the same with three arguments: CRC-32C of nothing", per_call("crc(0, data, 0)", names)),
        ("the same: CRC-32C of 64 bytes", per_call("crc(0, data, 64)", names)),
        ("the wall clock, through C", per_call("wall()", names)),
        ("a Python function with put's signature", per_call("nothing(data)", names)),
        ("with RLock", per_call("with rlock: pass", names)),
        ("with Lock", per_call("with lock: pass", names)),
        ("a field of the reader, through cffi", per_call("reader.index", names)),
        ("storing a 64-bit word through a memoryview", per_call("words[1] = start", names)),
        ("taking a place apart", per_call("start = place >> 32 << 3; end = start + (place & 0xFFFFFFFF)", names)),
        ("a slice of the mapping: 64 bytes, copied", per_call("map[start:start + 64]", names)),
        ("a slice of a memoryview: no copy", per_call("view[start:start + 64]", names)),
    ]


def _anonymous() -> int:
    fd = os.memfd_create("layers")
    os.truncate(fd, 1 << 20)
    return fd


def of_the_queue(directory: str) -> dict[str, tuple[float, float]]:
    """Every layer of put and take, from the core outwards: ns, and how many of them in the kernel; medians."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(REPEATS):
        for name, figures in _once(f"{directory}/layers-{number}").items():
            found.setdefault(name, []).append(figures)
        shutil.rmtree(f"{directory}/layers-{number}")
    return {
        name: (statistics.median(total for total, _ in all_), statistics.median(kernel for _, kernel in all_))
        for name, all_ in found.items()
    }


def _timed(statement: str, names: dict[str, Any], each: int = 1) -> tuple[float, float]:
    """Processor time of one message and the kernel's part of it, in ns; the statement handles *each* of them."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_stime, CLOCK()
    timeit.timeit(statement, globals=names, number=COUNT // each)
    spent, kernel = CLOCK() - began, resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
    return spent / COUNT * 1e9, kernel / COUNT * 1e9


def _once(path: str) -> dict[str, tuple[float, float]]:
    data = bytes(SIZE)
    rows: dict[str, tuple[float, float]] = {}
    with shmq.open(path, options=shmq.Options(chunk_bytes=256 << 20)) as queue, queue.producer() as producer:
        for _ in range(12):  # past the small chunks, so that no roll is measured
            producer.put(bytes(2 << 20))
        first = queue.next_index
        names = {"data": data, "size": SIZE, "some": [data] * 100, "producer": producer, "queue": queue}
        names |= {"core": lib.shmq_put, "handle": producer._tail.handle, "put": producer.put, "queue_put": queue.put}  # noqa: SLF001
        rows["put: shmq_put in the core, through cffi"] = _timed("core(handle, data, size)", names)
        rows["put: Producer.put"] = _timed("put(data)", names)
        rows["put: Queue.put"] = _timed("queue_put(data)", names)
        rows["put: Producer.put with a key"] = _timed("put(data, key=b'k')", names)
        rows["put: Producer.put_many of 100"] = _timed("producer.put_many(some)", names, 100)
        with queue.consumer("core", start=first) as consumer:
            consumer.take()
            walk: Any = consumer._walk  # noqa: SLF001
            names = {"core": lib.shmq_next, "handle": walk.chunk.handle, "reader": walk.reader}
            rows["take: shmq_next in the core, through cffi"] = _timed("core(handle, reader, 0)", names)
        for verb, statement, each in (
            ("take()", "consumer.take()", 1),
            ("get().payload", "consumer.get().payload", 1),
            ("take_many(100)", "consumer.take_many(100)", 100),
        ):
            with queue.consumer(f"by-{len(rows)}", start=first) as consumer:
                rows[f"take: Consumer.{verb}"] = _timed(statement, {"consumer": consumer}, each)
        with queue.consumer("explicit", start=first, ack="explicit") as consumer:
            rows["take: Consumer.get(), ack()"] = _timed("consumer.get().ack()", {"consumer": consumer})
    return rows


def main() -> int:
    options = report.arguments(__doc__).parse_args()
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        python, queue = of_python(), of_the_queue(directory)
    out.data |= {"python": dict(python), "queue": queue}
    out.table("The interpreter and cffi", ("", "ns"), [(name, f"{value:.0f}") for name, value in python])
    rows = [(name, f"{total:.0f}", f"{kernel:.0f}") for name, (total, kernel) in queue.items()]
    out.table("put and take, ns for each message of 64 bytes", ("", "all", "in the kernel"), rows)
    out.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
