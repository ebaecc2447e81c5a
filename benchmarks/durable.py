"""
Puts a second that are on the disk, as a multiple of what one fdatasync after another gives on the same disk.

    python -m benchmarks.durable [--directory /tmp] [--seconds 1] [--rounds 5] [--producers 1 8 64]
    python -m benchmarks.durable --recover [--directory /tmp] [--megabytes 16 128 512]

In each round: the rate of fdatasync, before and after everything else; shmq with Durability.SYNC from 1, 8 and 64
processes; LMDB (if it is there) with a sync for each message and SQLite with synchronous=FULL from 8; and
interval(10 ms) against PROCESS from one process. Ratios are made within a round, and what is printed are medians of the
rounds.

With --recover: how long the first opening after a power cut takes, by the bytes that lie beyond the watermark, and
how fast `verify` reads what is in memory. Everything is in the page cache; the disk's reading is not part of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import multiprocessing
import os
import resource
import shutil
import sqlite3
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD = b"x" * 100
RIVALS_PRODUCERS = 8
_FORK = multiprocessing.get_context("fork")


def sync_rate(directory: str, seconds: float) -> float:
    """Append 140 bytes to a file whose blocks are there, and fdatasync, one after the other."""
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        os.posix_fallocate(fd, 0, 1 << 20)
        os.fsync(fd)
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            os.pwrite(fd, b"x" * 140, count * 140 % (1 << 20))
            os.fdatasync(fd)
            count += 1
        return count / (time.perf_counter() - begin)


def _shmq(path: str) -> Callable[[], Any]:
    queue = shmq.open(path, options=shmq.Options(durability=shmq.Durability.SYNC))
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


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _produce(make: Callable[[str], Callable[[], Any]], path: str, seconds: float, begin: Any, counts: Any) -> None:
    put = make(path)
    put()
    begin.wait()
    used, start, count = _processor(), time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        put()
        count += 1
    counts.put((count, count / (time.perf_counter() - start), _processor() - used))


class Rate(NamedTuple):
    """Messages a second of all producers together, and the processor time of each message in µs."""

    puts: float
    processor_us: float


def rate(make: Callable[[str], Callable[[], Any]], directory: str, producers: int, seconds: float) -> Rate:
    """What so many processes put into one new queue."""
    path = tempfile.mkdtemp(dir=directory)
    make(path)()
    begin, counts = _FORK.Barrier(producers), _FORK.SimpleQueue()
    work = [_FORK.Process(target=_produce, args=(make, path, seconds, begin, counts)) for _ in range(producers)]
    for process in work:
        process.start()
    found = [counts.get() for _ in work]
    for process in work:
        process.join()
    shutil.rmtree(path)
    return Rate(sum(each[1] for each in found), sum(each[2] for each in found) / sum(each[0] for each in found) * 1e6)


PACE = 1_000_000
"""Puts a second that this machine's disk can take: 150 MB."""


def plain_rate(directory: str, durability: shmq.Durability, seconds: float, pace: float = math.inf) -> float:
    """Puts a second from one process that waits for nothing, or that puts *pace* a second at most."""
    path = tempfile.mkdtemp(dir=directory)
    with shmq.open(path, options=shmq.Options(durability=durability)) as queue, queue.producer() as producer:
        put, begin, count = producer.put, time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds:
            if count > pace * passed:
                time.sleep(0.0005)
                continue
            for _ in range(1000):
                put(PAYLOAD)
            count += 1000
        found = count / (time.perf_counter() - begin)
    shmq.delete(path)
    return found


class Table:
    """Figures by name, one of each round; what is told of them are medians, least and most."""

    def __init__(self) -> None:
        """Empty."""
        self._found: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """One round's."""
        self._found.setdefault(name, []).append(value)

    def told(self, name: str, form: str) -> str:
        """Median (least .. most)."""
        values = self._found[name]
        return f"{statistics.median(values):{form}} ({min(values):{form}} .. {max(values):{form}})"


def sync_round(work: str, table: Table, producers: list[int], seconds: float, rivals: dict[str, Any]) -> None:
    """One round of everything that waits for the disk."""
    base = sync_rate(work, seconds / 2)
    eight = 0.0
    for count in producers:
        found = rate(_shmq, work, count, seconds)
        after = sync_rate(work, seconds / 2)  # before and after: the disk is not ours alone
        table.add(f"shmq {count} puts", found.puts)
        table.add(f"shmq {count} cpu", found.processor_us)
        table.add(f"shmq {count} ratio", found.puts / ((base + after) / 2))
        table.add("fdatasync", (base + after) / 2)
        base = after
        eight = found.puts if count == RIVALS_PRODUCERS else eight
    for name, make in rivals.items():
        found = rate(make, work, RIVALS_PRODUCERS, seconds)
        after = sync_rate(work, seconds / 2)
        table.add(f"{name} puts", found.puts)
        table.add(f"{name} cpu", found.processor_us)
        table.add(f"{name} ratio", found.puts / ((base + after) / 2))
        if eight:
            table.add(f"{name} times", eight / found.puts)
        base = after


def interval_round(work: str, table: Table, number: int, seconds: float) -> None:
    """interval(10 ms) against PROCESS; they begin in turns. As fast as it goes, and at a pace."""
    modes = {"interval": shmq.Durability.interval(0.01), "PROCESS": shmq.Durability.PROCESS}
    names = list(modes) if number % 2 == 0 else list(modes)[::-1]
    for paced, pace in {"": math.inf, " paced": PACE}.items():
        found = {name: plain_rate(work, modes[name], seconds, pace) for name in names}
        for name, puts in found.items():
            table.add(f"{name}{paced} puts", puts)
        table.add(f"interval{paced} ratio", found["interval"] / found["PROCESS"])


def compare(work: str, producers: list[int], seconds: float, rounds: int) -> None:
    """All rounds, and the tables of them."""
    rivals: dict[str, Any] = {"SQLite": _sqlite}
    if importlib.util.find_spec("lmdb") is not None:
        rivals["LMDB"] = _lmdb
    table = Table()
    for number in range(rounds):
        sync_round(work, table, producers, seconds, rivals)
        interval_round(work, table, number, seconds)
    print(
        f"**Median (least .. most) of {rounds} rounds. "
        f"One fdatasync after the other: {table.told('fdatasync', ',.0f')}/s**\n"
    )
    print(
        "|  | producers | puts/s | x fdatasync | processor µs of a put | shmq is |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    rows = [(f"shmq {count}", "shmq, SYNC", count) for count in producers]
    rows += [(name, name, RIVALS_PRODUCERS) for name in rivals]
    for key, name, count in rows:
        times = table.told(f"{key} times", ".1f") + "x" if key in rivals and RIVALS_PRODUCERS in producers else ""
        told = [table.told(f"{key} puts", ",.0f"), table.told(f"{key} ratio", ".1f"), table.told(f"{key} cpu", ".0f")]
        print(f"| {name} | {count} | {' | '.join(told)} | {times} |")
    if "LMDB" not in rivals:
        print("\nLMDB is not installed: pip install lmdb")
    print("\n|  | puts/s |\n| --- | ---: |")
    for name in ("interval", "PROCESS"):
        print(f"| {name} | {table.told(f'{name} puts', ',.0f')} |")
    print(f"| interval(10 ms) / PROCESS | {table.told('interval ratio', '.2f')} |")
    print(f"| the same, {PACE:,} puts/s wanted | {table.told('interval paced ratio', '.2f')} |")


def _fill(path: str, megabytes: int) -> None:
    """So many MiB of messages beyond the watermark; then as a power cut leaves a queue that lost nothing."""
    with shmq.open(path) as queue:
        queue.put(b"the first")
        queue.sync()
        batch = [b"x" * 1024] * 1024
        for _ in range(megabytes):
            queue.put_many(batch)
        home = queue._session.home  # noqa: SLF001  # nobody else may say that there was another boot
        with home.admin():
            home.write_journal(home.read_journal()._replace(boot_id=b"another boot id!"))


def recover(work: str, megabytes: list[int], rounds: int) -> None:
    """The time of the first opening, and the speed of verify on the largest."""
    print("| MiB beyond the watermark | first opening, ms | again, ms |\n| ---: | ---: | ---: |")
    table = Table()
    path = ""
    for number in range(rounds):
        for size in megabytes:
            path = tempfile.mkdtemp(dir=work)
            _fill(path, size)
            for name in ("first", "again"):
                begin = time.perf_counter()
                with shmq.open(path) as queue:
                    table.add(f"{size} {name}", (time.perf_counter() - begin) * 1000)
                    if len(queue) != 1 + size * 1024 or (queue.recovery is None) == (name == "first"):
                        raise SystemExit(f"{size} MiB: {len(queue)} messages, recovery {queue.recovery}")
            if size == max(megabytes):
                begin = time.perf_counter()
                if not shmq.verify(path):
                    raise SystemExit("damaged")
                table.add("verify", size / 1024 * 1.073741824 / (time.perf_counter() - begin))
            shmq.delete(path)
        if number == rounds - 1:
            for size in megabytes:
                print(f"| {size} | {table.told(f'{size} first', ',.1f')} | {table.told(f'{size} again', ',.1f')} |")
    print(f"\nverify of {max(megabytes)} MiB of payloads, warm: {table.told('verify', '.2f')} GB/s")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="on the disk that is meant, not in memory")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--recover", action="store_true")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[16, 128, 512])
    given = parser.parse_args()
    work = tempfile.mkdtemp(prefix="shmq-durable-", dir=given.directory)
    try:
        if given.recover:
            recover(work, given.megabytes, given.rounds)
        else:
            compare(work, given.producers, given.seconds, given.rounds)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
