"""
Puts a second that are on the disk, as a multiple of what one fdatasync after another gives on the same disk.

    python -m benchmarks.durable [--directory /tmp] [--seconds 3] [--producers 1 8 64]

In one run: the rate of fdatasync, then shmq with Durability.SYNC from 1, 8 and 64 processes, LMDB (if it is there) with
a sync for each message, SQLite with synchronous=FULL, and interval(10 ms) against PROCESS from one process.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD = b"x" * 100
_FORK = multiprocessing.get_context("fork")


def sync_rate(directory: str, seconds: float) -> float:
    """Append 140 bytes to a file whose blocks are there, and fdatasync, one after the other."""
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        os.posix_fallocate(fd, 0, 1 << 20)
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            os.pwrite(fd, b"x" * 140, count * 140 % (1 << 20))
            os.fdatasync(fd)
            count += 1
        return count / (time.perf_counter() - begin)


def _shmq(path: str) -> Callable[[], Any]:
    queue = shmq.open(path)
    return lambda: queue.put(PAYLOAD)


def _lmdb(path: str) -> Callable[[], Any]:
    import lmdb

    environment = lmdb.open(path, map_size=1 << 30)

    def put() -> None:
        with environment.begin(write=True) as transaction:
            with transaction.cursor() as cursor:
                last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
            transaction.put((last + 1).to_bytes(8, "big"), PAYLOAD)

    return put


def _sqlite(path: str) -> Callable[[], Any]:
    base = sqlite3.connect(f"{path}/q.db", timeout=120, isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=full")
    base.execute("create table if not exists q (id integer primary key, payload blob)")
    return lambda: base.execute("insert into q (payload) values (?)", (PAYLOAD,))


def _produce(make: Callable[[str], Callable[[], Any]], path: str, seconds: float, begin: Any, counts: Any) -> None:
    put = make(path)
    put()
    begin.wait()
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        put()
        count += 1
    counts.put(count)


def rate(make: Callable[[str], Callable[[], Any]], path: str, producers: int, seconds: float) -> float:
    """Messages a second from so many processes."""
    begin, counts = _FORK.Barrier(producers), _FORK.SimpleQueue()
    work = [_FORK.Process(target=_produce, args=(make, path, seconds, begin, counts)) for _ in range(producers)]
    for process in work:
        process.start()
    total = sum(counts.get() for _ in work)
    for process in work:
        process.join()
    return float(total / seconds)


def interval_against_process(directory: str, seconds: float) -> tuple[float, float]:
    """Puts a second from one process, interval(10 ms) and PROCESS, taking turns: the medians."""
    rates: dict[str, list[float]] = {"interval": [], "process": []}
    modes = {"interval": shmq.Durability.interval(0.01), "process": shmq.Durability.PROCESS}
    for _ in range(5):
        for name, mode in modes.items():
            path = tempfile.mkdtemp(dir=directory)
            with shmq.open(path, options=shmq.Options(durability=mode)) as queue:
                put, begin, count = queue.put, time.perf_counter(), 0
                while time.perf_counter() - begin < seconds / 5:
                    for _ in range(1000):
                        put(PAYLOAD)
                    count += 1000
                rates[name].append(count / (time.perf_counter() - begin))
            shmq.delete(path)
    return statistics.median(rates["interval"]), statistics.median(rates["process"])


def main() -> None:
    """Print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=tempfile.gettempdir())
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--only", default="", help="shmq, lmdb, sqlite or interval")
    given = parser.parse_args()
    work = tempfile.mkdtemp(prefix="shmq-durable-", dir=given.directory)
    others: dict[str, Callable[[str], Callable[[], Any]]] = {"shmq": _shmq, "sqlite": _sqlite, "lmdb": _lmdb}
    try:
        for name, make in others.items():
            if given.only not in ("", name):
                continue
            with contextlib.suppress(ImportError):
                if name == "lmdb":
                    __import__("lmdb")
                for producers in given.producers:
                    path = f"{work}/{name}{producers}"
                    os.mkdir(path)
                    if name == "shmq":
                        shmq.open(path, options=shmq.Options(durability=shmq.Durability.SYNC)).close()
                    one = sync_rate(work, given.seconds / 2)
                    puts = rate(make, path, producers, given.seconds)
                    # before and after: the disk is not ours alone
                    one = (one + sync_rate(work, given.seconds / 2)) / 2
                    told = f"{puts:9,.0f} puts/s  {puts / one:6.1f} x {one:,.0f} fdatasync/s"
                    print(f"{name:7} {producers:3} producers {told}", flush=True)
        if given.only in ("", "interval"):
            interval, process = interval_against_process(work, given.seconds)
            print(f"interval(10 ms) {interval:,.0f} puts/s, PROCESS {process:,.0f}: {interval / process:.0%}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
