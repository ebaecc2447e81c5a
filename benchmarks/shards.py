"""
Shards: messages a second through 1, 2, 4 and 8 of them, with 1 and 2 producers and as many members of a group.

    python -m benchmarks.shards [--messages 200000] [--batch 1] [--rebalance]

Each producer puts messages of 64 bytes with one of 1,000 keys; the members share the shards out and acknowledge each
message. The clock runs from the first put to the last acknowledgement. A queue with no shards, one producer and one
consumer, is there to compare with. With --rebalance: how long it takes until a member that joins has its share, and
until one that is killed is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import statistics
import tempfile
import time

import shmq
from benchmarks.peers import FORK

PAYLOAD = b"x" * 64
KEYS = [b"key %d" % number for number in range(1000)]


def put_all(to, messages, batch, go):
    """One producer."""
    go.wait()
    if batch == 1:
        for number in range(messages):
            to.put(PAYLOAD, key=KEYS[number % 1000])
        return
    for first in range(0, messages, batch):
        to.put_many([PAYLOAD] * batch, keys=[KEYS[number % 1000] for number in range(first, first + batch)])


def take_all(opened, batch, left, ready):
    """One member."""
    with opened.consumer("g", group=isinstance(opened, shmq.shards.Shards), ack="explicit") as c:
        ready.set()
        with contextlib.suppress(shmq.ShutDown):
            while True:
                if batch == 1:
                    c.get().ack()
                    done = 1
                else:
                    messages = c.get_many(batch)
                    c.ack(*messages)
                    done = len(messages)
                with left.get_lock():
                    left.value -= done


def rate(opened, pairs, messages, batch):
    """Messages a second with so many producers, and members; and what one costs, in microseconds of processors."""
    before = spent()
    go, left = FORK.Event(), FORK.Value("q", messages)
    members = []
    for _ in range(pairs):
        ready = FORK.Event()
        members.append(FORK.Process(target=take_all, args=(opened, batch, left, ready)))
        members[-1].start()
        ready.wait()
    time.sleep(0.5)  # they share the shards out
    producers = [FORK.Process(target=put_all, args=(opened, messages // pairs, batch, go)) for _ in range(pairs)]
    for each in producers:
        each.start()
    begun = time.perf_counter()
    go.set()
    for each in producers:
        each.join()
    while left.value > 0:
        time.sleep(0.001)
    seconds = time.perf_counter() - begun
    opened.shutdown()
    for each in members:
        each.join()
    return messages / seconds, (spent() - before) / messages * 1e6


def spent():
    """Seconds of processors that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def throughput(folder, messages, batch, runs):
    """Print the table."""
    print(f"{'shards':>8} {'1 pair':>14} {'2 pairs':>14}   messages/s, and µs of processors; batches of {batch}")
    for shards in (0, 1, 2, 4, 8):
        found = []
        for pairs in (1, 2):
            rates = []
            for run in range(runs):
                path = f"{folder}/{shards}-{pairs}-{run}"
                opened = shmq.shards.open(path, shards=shards, prefix="q") if shards else shmq.open(path)
                if not (shards == 0 and pairs == 2):
                    with opened:
                        rates.append(rate(opened, pairs, messages, batch))
                shutil.rmtree(path)
            found.append(
                "-" if not rates else " ".join(f"{statistics.median(each):,.0f}" for each in zip(*rates, strict=True))
            )
        print(f"{shards or 'queue':>8} {found[0]:>14} {found[1]:>14}", flush=True)


# ---------------------------------------------------------------- how soon it is balanced
def follow(opened, say):
    """A member that says what it has."""
    had = None
    with opened.consumer("g", group=True) as c:
        while True:
            with contextlib.suppress(shmq.Empty):
                c.get(timeout=0.05).ack()
            if c.shards != had:
                had = c.shards
                say.send(len(had))


def until_has(pipe, count):
    """Seconds until a member has so many."""
    begun = time.perf_counter()
    while pipe.recv() != count:
        pass
    return time.perf_counter() - begun


def rebalance(folder, runs):
    """Print how soon."""
    with shmq.shards.open(f"{folder}/r", shards=8) as opened:
        joins, deaths = [], []
        here, there = FORK.Pipe(duplex=False)
        FORK.Process(target=follow, args=(opened, there), daemon=True).start()
        until_has(here, 8)
        for _ in range(runs):
            mine, its = FORK.Pipe(duplex=False)
            other = FORK.Process(target=follow, args=(opened, its), daemon=True)
            other.start()
            joins.append(until_has(mine, 4))
            until_has(here, 4)
            os.kill(other.pid, signal.SIGKILL)
            deaths.append(until_has(here, 8))
            other.join()
    for what, times in (("joined", joins), ("killed", deaths)):
        print(f"{what}: balanced after {statistics.median(times) * 1000:.0f} ms (at most {max(times) * 1000:.0f})")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--rebalance", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.rebalance:
            rebalance(folder, arguments.runs)
        else:
            throughput(folder, arguments.messages, arguments.batch, arguments.runs)


if __name__ == "__main__":
    main()
