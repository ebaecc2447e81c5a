"""
Arrow Flight: what a service hands out and takes in, over loopback and a Unix socket, beside the same on the disk here.

The service is a process of its own. Every figure is the best of some rounds, in MB of payloads a second.

    python -m benchmarks.flight [messages] [bytes of one]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import shmq
from benchmarks.trial import workplace

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
CALLS = 300


def best(work: Callable[[], object], nbytes: int) -> str:
    """Of some rounds, in MB a second."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return f"{nbytes / min(seconds) / 1e6:,.0f}"


def rows(batches: Any) -> int:
    with batches:
        return sum(batch.num_rows for batch in batches)


def staged(queue: Any, table: pa.Table) -> None:
    """Stage and adopt all of it."""
    with queue.stage() as aside:
        for batch in table.to_batches(max_chunksize=8000):
            aside.put_arrow(batch)
        queue.adopt(aside.hand_over())


def measure(queue: Any, target: Any, count: int, table: pa.Table, nbytes: int) -> tuple[str, str]:
    """Reading, and writing."""
    assert rows(queue.read_arrow(0, count, ["payload"])) == count
    read = best(lambda: rows(queue.read_arrow(0, count, ["index", "payload"])), nbytes)
    return read, best(lambda: staged(target, table), table["payload"].nbytes)


def call(client: shmq.flight.Client) -> str:
    """How long one question takes, the median, in microseconds."""
    took = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        client.ends("in")
        took.append(time.perf_counter() - begun)
    return f"{sorted(took)[CALLS // 2] * 1e6:,.0f}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with workplace(None) as top:
        root = f"{top}/root"
        os.mkdir(root, 0o700)
        local, target = shmq.open(f"{root}/in", retention="forever"), shmq.open(f"{root}/out")
        for first in range(0, count, 5000):
            local.put_many([number.to_bytes(8, "little") * (size // 8) for number in range(first, first + 5000)])
        nbytes = count * (size // 8 * 8)
        table = pa.table({"payload": pa.array([bytes(size)] * min(count, 100_000), pa.binary())})
        print(f"{count:,} messages of {size // 8 * 8} bytes, {os.cpu_count()} processors")
        print(f"{'':28}{'read MB/s':>12}{'put MB/s':>12}{'one call us':>14}")
        read, put = measure(local, target, count, table, nbytes)
        print(f"{'on this disk':28}{read:>12}{put:>12}{'':>14}")
        for location in ("grpc://127.0.0.1:0", f"grpc+unix://{top}/socket"):
            words = [sys.executable, "-m", "shmq", "serve", root, "--flight", location]
            with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as service:
                where = service.stderr.readline().split()[-1]  # type: ignore[union-attr]
                with shmq.flight.connect(where) as client:
                    read, put = measure(client.queue("in"), client.queue("out"), count, table, nbytes)
                    print(f"{'by ' + location.partition(':')[0]:28}{read:>12}{put:>12}{call(client):>14}")
                service.terminate()
        local.close()
        target.close()


if __name__ == "__main__":
    main()
