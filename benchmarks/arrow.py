"""
Many small messages at once, on one core: as Arrow batches, as bytes objects, and Arrow's own file beside it.

Every figure is the best of some rounds, in processor time; every way reads the same messages and counts them.

    python -m benchmarks.arrow [messages] [bytes of one]
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import shmq
from benchmarks.trial import workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROUNDS = 5
BATCH = 10_000
PUT = 8_000


def fill(queue: shmq.Queue, count: int, size: int) -> None:
    """Messages with a payload of that size each."""
    for first in range(0, count, 5000):
        queue.put_many([number.to_bytes(8, "little") * (size // 8) for number in range(first, first + 5000)])


def to_file(queue: shmq.Queue, path: str) -> None:
    """The same messages as an Arrow file."""
    batches = queue.read_arrow(max_rows=BATCH)
    with pa.ipc.new_file(path, batches.schema) as file:
        for batch in batches:
            file.write_batch(batch)


def file_rows(path: str) -> Iterable[int]:
    """Read it, into memory of its own, as our batches are."""
    with pa.OSFile(path) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number).num_rows


def taken(queue: shmq.Queue, take: Callable[[shmq.Consumer], int]) -> Iterable[int]:
    """Everything, by a consumer."""
    with queue.consumer("bench") as consumer:
        consumer.seek(0)
        try:
            while True:
                yield take(consumer)
        except shmq.Empty:
            return


def put(place: str, parts: list[Any], into: Callable[[shmq.Queue, Any], range]) -> Iterable[int]:
    """Everything, into a new queue."""
    with shmq.open(f"{place}/new") as queue:
        for part in parts:
            yield len(into(queue, part))
    shmq.delete(f"{place}/new")


def best(read: Callable[[], Iterable[int]], count: int) -> float:
    """Millions of messages a second."""
    shortest = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        assert sum(read()) == count
        shortest = min(shortest, time.process_time() - began)
    return count / shortest / 1e6


def main() -> None:
    """Print one line for each way."""
    count, size = (int(word) for word in itertools.islice([*sys.argv[1:], *["2000000", "32"][len(sys.argv) - 1 :]], 2))
    count -= count % 5000
    with (
        workplace(None) as place,
        shmq.open(f"{place}/q", options=shmq.Options(retention=shmq.Retention.forever())) as q,
    ):
        fill(q, count, size)
        to_file(q, f"{place}/file.arrow")
        ways: dict[str, Callable[[], Iterable[int]]] = {
            "read_arrow, the five columns": lambda: (batch.num_rows for batch in q.read_arrow()),
            "read_arrow, payload": lambda: (batch.num_rows for batch in q.read_arrow(columns=["payload"])),
            "read_arrow, index and time": lambda: (batch.num_rows for batch in q.read_arrow(columns=["index", "time"])),
            "consumer.take_arrow": lambda: taken(q, lambda consumer: consumer.take_arrow(BATCH, 0).num_rows),
            "consumer.take_many": lambda: taken(q, lambda consumer: len(consumer.take_many(BATCH, 0))),
            "pyarrow, its own file": lambda: file_rows(f"{place}/file.arrow"),
        }
        batches = list(q.read_arrow(columns=["payload"], max_rows=PUT))
        lists = [batch["payload"].to_pylist() for batch in batches]
        ways |= {
            "put_arrow": lambda: put(place, batches, lambda queue, batch: queue.put_arrow(batch)),
            "put_many": lambda: put(place, lists, lambda queue, items: queue.put_many(items)),
        }
        print(f"{count:,} messages of {size} bytes; load {os.getloadavg()[0]:.1f}")
        for name, read in ways.items():
            print(f"{name:>30} {best(read, count):8.1f} M messages/s", flush=True)


if __name__ == "__main__":
    main()
