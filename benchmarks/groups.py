"""
Groups beside Redis Streams and persist-queue: messages a second with 1, 2 and 4 workers; how soon redelivery comes.

    python -m benchmarks.groups [--messages 20000] [--deaths 200]
    python -m benchmarks.groups --ordered       what order by key costs
    python -m benchmarks.groups --behind 10000000  a group that was away for so many messages

Needs redis-server, and the packages redis and persist-queue; whatever is not there is left out. All of them work off
messages of 64 bytes that are there already. Redis keeps its stream in memory (no appendonly); shmq and persist-queue on
the disk of --folder. Workers beside a producer, and beside faster-fifo and multiprocessing.Queue: sharing.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import shmq
from benchmarks.peers import FORK

PAYLOAD = b"x" * 64
BATCH = 64


# ---------------------------------------------------------------- the rivals
class Shmq:
    """This library."""

    name = "shmq"

    def __init__(self, ack, keys=0, *, ordered=False):
        """With ack "auto" or "explicit", so many different keys, and in their order."""
        self.ack, self.keys, self.ordered_by = ack, keys, "key" if ordered else None

    def prepare(self, folder, count):
        """Put so many messages."""
        with shmq.open(f"{folder}/q") as queue:
            queue.consumer("g", group=True, ack=self.ack, ordered_by=self.ordered_by).close()
            for first in range(0, count, 1000):
                batch = range(first, min(first + 1000, count))
                keys = [b"%d" % (i % self.keys) for i in batch] if self.keys else None
                queue.put_many([PAYLOAD] * len(batch), keys=keys)

    def work(self, folder, batch):
        """Work off all there is."""
        queue = shmq.open(f"{folder}/q")
        with queue.consumer("g", group=True, ack=self.ack) as member, contextlib.suppress(shmq.Empty):
            if self.ordered_by:
                in_order(member, batch)
            explicit = self.ack == "explicit"
            while batch == 1:
                message = member.get(0)
                assert len(message.payload) == 64
                if explicit:
                    message.ack()
            while True:
                messages = member.get_many(batch, 0)
                assert len([message.payload for message in messages]) > 0
                if explicit:
                    member.ack(*messages)

    def close(self):
        """Give back what it holds."""


def in_order(member, batch):
    """Work off all there is; that nothing can be had now need not be the end."""
    while True:
        try:
            while batch == 1:
                message = member.get(0.01)
                assert len(message.payload) == 64
                message.ack()
            while True:
                messages = member.get_many(batch, 0.01)
                assert len([message.payload for message in messages]) > 0
                member.ack(*messages)
        except shmq.Empty:
            if not member.lag:
                return


class Redis:
    """Streams with a consumer group, over its Unix socket."""

    name = "Redis Streams"

    def __init__(self, ack):
        """With ack "auto" or "explicit"."""
        self.ack = ack
        self.server = None

    def prepare(self, folder, count):
        """Put so many messages."""
        socket = f"{folder}/redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
        self.server = subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL)
        while not os.path.exists(socket):
            time.sleep(0.01)
        client = self._client(folder)
        client.xgroup_create("q", "g", id="0", mkstream=True)
        pipe = client.pipeline(transaction=False)
        for at in range(count):
            pipe.xadd("q", {"p": PAYLOAD})
            if at % 1000 == 999:
                pipe.execute()
        pipe.execute()

    def _client(self, folder):
        import redis

        return redis.Redis(unix_socket_path=f"{folder}/redis.sock")

    def work(self, folder, batch):
        """Work off all there is."""
        client, me = self._client(folder), str(os.getpid())
        noack = self.ack == "auto"
        while True:
            found = client.xreadgroup("g", me, {"q": ">"}, count=batch, noack=noack)
            if not found:
                return
            messages = found[0][1]
            assert all(len(fields[b"p"]) == 64 for _, fields in messages)
            if not noack:
                client.xack("q", "g", *(index for index, _ in messages))

    def close(self):
        """Give back what it holds."""
        if self.server:
            self.server.terminate()
            self.server.wait()


class PersistQueue:
    """SQLiteAckQueue: one message at a time."""

    name = "persist-queue"

    def __init__(self, ack):
        """With ack "auto" or "explicit"."""
        self.ack = ack

    def _queue(self, folder):
        import persistqueue

        return persistqueue.SQLiteAckQueue(f"{folder}/p", multithreading=True, auto_commit=True)

    def prepare(self, folder, count):
        """Put so many messages."""
        queue = self._queue(folder)
        for _ in range(count):
            queue.put(PAYLOAD)

    def work(self, folder, batch):
        """Work off all there is."""
        import persistqueue

        if batch > 1:
            raise RuntimeError("it has no batches")
        queue = self._queue(folder)
        with contextlib.suppress(persistqueue.Empty):
            while True:
                item = queue.get(block=False, raw=True)
                assert len(item["data"]) == 64
                queue.ack(id=item["pqid"])

    def close(self):
        """Give back what it holds."""


# ---------------------------------------------------------------- throughput
def _work(rival, folder, batch, ready, go):
    ready.release()
    go.wait()
    rival.work(folder, batch)


def rate(rival, folder, count, workers, batch):
    """Messages a second, from the start of all workers to the end of the last."""
    place = tempfile.mkdtemp(dir=folder)
    try:
        rival.prepare(place, count)
        ready, go = FORK.Semaphore(0), FORK.Event()
        children = [FORK.Process(target=_work, args=(rival, place, batch, ready, go)) for _ in range(workers)]
        for child in children:
            child.start()
        for _ in children:
            ready.acquire()
        begin = time.perf_counter()
        go.set()
        for child in children:
            child.join()
        assert all(child.exitcode == 0 for child in children)
        return count / (time.perf_counter() - begin)
    finally:
        rival.close()
        shutil.rmtree(place)


def available():
    """The rivals that are here."""
    found = [Shmq]
    with contextlib.suppress(ImportError):
        import redis  # noqa: F401

        found += [Redis] if shutil.which("redis-server") else []
    with contextlib.suppress(ImportError):
        import persistqueue  # noqa: F401

        found.append(PersistQueue)
    return found


def throughput(folder, count, rounds):
    """The table; the best of some rounds each, taken in turn."""
    print(
        f"{'ack':9} {'batch':>5} {'workers':>7}  " + "".join(f"{rival.name:>16}" for rival in available()) + "  ratio"
    )
    for ack in ("explicit", "auto"):
        for batch in (1, BATCH):
            for workers in (1, 2, 4):
                rates = []
                for rival in available():
                    if rival is PersistQueue and (batch > 1 or ack == "auto" or workers > 1):
                        rates.append(None)
                        continue
                    share = count // 20 if rival is PersistQueue else count * (5 if batch > 1 else 1)
                    rates.append(max(rate(rival(ack), folder, share, workers, batch) for _ in range(rounds)))
                told = "".join(f"{each:16,.0f}" if each else f"{'-':>16}" for each in rates)
                ratio = f"{rates[0] / rates[1]:5.1f}" if len(rates) > 1 and rates[1] else "-"
                print(f"{ack:9} {batch:5} {workers:7}  {told}  {ratio}", flush=True)


def price_of_order(folder, count, rounds):
    """Messages a second with explicit acks, in order and not, in turn."""
    print(f"{'keys':>6} {'batch':>5} {'workers':>7} {'in no order':>14} {'in order':>14}  ratio")
    for keys in (10_000, 100, 1):
        for batch in (1, BATCH):
            for workers in (1, 2, 4):
                rates = [0.0, 0.0]
                for _ in range(rounds):
                    for ordered in (False, True):
                        rival = Shmq("explicit", keys, ordered=ordered)
                        share = count * (5 if batch > 1 and keys > 1 else 1)
                        rates[ordered] = max(rates[ordered], rate(rival, folder, share, workers, batch))
                print(
                    f"{keys:6} {batch:5} {workers:7} {rates[0]:14,.0f} {rates[1]:14,.0f}  {rates[1] / rates[0]:5.2f}",
                    flush=True,
                )


# ---------------------------------------------------------------- far behind
def behind(folder, count, *, ordered):
    """A group was away for so many messages: how long it takes to catch up, and what it needs."""
    place = tempfile.mkdtemp(dir=folder)
    with shmq.open(f"{place}/q") as queue:
        queue.consumer("g", group=True, ack="explicit", ordered_by="key" if ordered else None).close()
        for first in range(0, count, 8000):
            batch = range(first, min(first + 8000, count))
            queue.put_many([b"12345678"] * len(batch), keys=[b"%d" % (i % 10_000) for i in batch])
        before, begin = memory(), time.perf_counter()
        with queue.consumer("g", group=True, ack="explicit") as member:
            while member.lag:
                member.ack(*member.get_many(1000, 30))
            took, grown = time.perf_counter() - begin, memory() - before
        ring = os.path.getsize(f"{place}/q/consumers/g.ring")
        left = sum(entry.stat().st_size for entry in os.scandir(f"{place}/q/chunks"))
    shutil.rmtree(place)
    print(
        f"{'in' if ordered else 'in no'} order: {count:,} messages in {took:.1f} s, {count / took:,.0f} a second; "
        f"{grown / 1024:.0f} MiB more of memory of its own, {ring / 2**20:.1f} MiB of ring, "
        f"{left / 2**20:.0f} MiB of chunks left",
        flush=True,
    )


def memory():
    """KiB that are this process's alone."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))


# ---------------------------------------------------------------- death
def _hold(path, pipe):
    queue = shmq.open(path)
    queue.consumer("g", group=True, ack="explicit").get()
    os.write(pipe, b"x")
    signal.pause()


def deaths(folder, count):
    """Seconds from kill -9 of a holder to the message in the hands of one who waits."""
    place = tempfile.mkdtemp(dir=folder)
    queue = shmq.open(f"{place}/q")
    member = queue.consumer("g", group=True, ack="explicit")
    took = []
    read, write = os.pipe()
    for _ in range(count):
        queue.put(PAYLOAD)
        pid = os.fork()
        if pid == 0:
            _hold(queue.path, write)
        os.read(read, 1)
        killer = os.fork()
        if killer == 0:
            time.sleep(0.02)
            os.write(write, time.perf_counter_ns().to_bytes(8, "little"))
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        message = member.get(30)
        now = time.perf_counter_ns()
        took.append((now - int.from_bytes(os.read(read, 8), "little")) / 1e6)
        message.ack()
        os.waitpid(pid, 0)
        os.waitpid(killer, 0)
    queue.close()
    shutil.rmtree(place)
    took.sort()
    print(
        f"from kill -9 to redelivery, of {count}: median {statistics.median(took):.2f} ms, "
        f"p99 {took[int(count * 0.99) - 1]:.2f} ms, largest {took[-1]:.2f} ms"
    )


def idle(folder, seconds):
    """Processor time of ten members that wait."""
    place = tempfile.mkdtemp(dir=folder)
    shmq.open(f"{place}/q").consumer("g", group=True).close()
    code = (
        "import sys, time, shmq\nm = shmq.open(sys.argv[1]).consumer('g', group=True)\n"
        "b = time.process_time()\ntry:\n    m.get(float(sys.argv[2]))\nexcept shmq.Empty:\n    pass\n"
        "print(time.process_time() - b)\n"
    )
    command = [os.sys.executable, "-c", code, f"{place}/q", str(seconds)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    used = [float(child.communicate()[0]) for child in children]
    print(f"ten waiting processes used {sum(used) * 1000:.0f} ms of processor time in {seconds} s, joining included")
    shutil.rmtree(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deaths", type=int, default=200)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--behind", type=int, default=0)
    options = parser.parse_args()
    if options.ordered:
        price_of_order(options.folder, options.messages, options.rounds)
    for ordered in (False, True) if options.behind else ():
        behind(options.folder, options.behind, ordered=ordered)
    if options.ordered or options.behind:
        return
    deaths(options.folder, options.deaths)
    idle(options.folder, 10)
    throughput(options.folder, options.messages, options.rounds)


if __name__ == "__main__":
    main()
