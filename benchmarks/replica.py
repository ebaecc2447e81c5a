"""
How fast a follower catches up, and how long after a put a reader of the follower has the message.

    python benchmarks/replica.py [DIRECTORY]

In DIRECTORY (a new one in the working directory by default) on a real disk: all of it is synced, at both ends. Each
number is of one source and one follower on this machine, in one process or with a Unix socket between two.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import tempfile
import time

import shmq
from shmq import replica

MIB = 256
SIZE = 1024
PUTS = 3000
PAUSE = 0.001


def child(work) -> int:
    """Have that done by another process."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def end(*pids: int) -> None:
    """Those have done enough."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_for(path: str) -> None:
    """Until there is something there."""
    while not os.path.exists(path):
        time.sleep(0.001)


def catch_up(root: str, size: int) -> None:
    """All of a queue that was filled before."""
    a, b, door = f"{root}/a", f"{root}/b", f"unix:{root}/door"
    count = (MIB << 20) // size
    with shmq.open(a) as queue:
        for _ in range(count // 1000):
            queue.put_many([os.urandom(size)] * 1000)
        queue.sync()
    for link in (False, True):
        pids = [child(lambda: replica.listen(door, b))] if link else []
        if link:
            wait_for(f"{root}/door")
        begin = time.perf_counter()
        replica.replicate(a, door if link else b, name="b", once=True)
        took = time.perf_counter() - begin
        end(*pids)
        how = "over a Unix socket" if link else "in one process"
        print(f"catching up, messages of {size} bytes, {how}: {MIB / took:,.0f} MiB/s, {count / took:,.0f} messages/s")
        with shmq.open(b, read_only=True) as follower:
            assert follower.next_index == count // 1000 * 1000
        shutil.rmtree(b)
        with shmq.open(a) as queue:
            queue.drop_consumer("replica.b")
    shutil.rmtree(a)


def tail(root: str, durability: str, *, link: bool) -> None:
    """From before a put to the reader at the follower."""
    a, b, door = f"{root}/a", f"{root}/b", f"unix:{root}/door"
    with shmq.open(a, durability=durability) as queue:
        pids = []
        if link:
            pids.append(child(lambda: replica.listen(door, b)))
            wait_for(f"{root}/door")
        pids.append(child(lambda: replica.replicate(a, door if link else b, name="b")))
        wait_for(f"{b}/queue.shmq")
        delays = []

        def put() -> None:
            time.sleep(0.2)
            for _ in range(PUTS):
                queue.put(b"%d" % time.monotonic_ns())
                time.sleep(PAUSE)

        with shmq.open(b, read_only=True) as follower:
            pids.append(child(put))
            for message in follower.reader(0, follow=True):
                delays.append(time.monotonic_ns() - int(message.payload))
                if len(delays) == PUTS:
                    break
        end(*pids)
    cuts = statistics.quantiles(delays, n=100)
    how = "over a Unix socket" if link else "in one process"
    print(f"tailing, {durability}, {how}: p50 {cuts[49] / 1e6:.2f} ms, p99 {cuts[98] / 1e6:.2f} ms")
    for each in (a, b):
        shutil.rmtree(each)


def main() -> None:
    """Print all of it."""
    root = tempfile.mkdtemp(prefix="replica-", dir=sys.argv[1] if len(sys.argv) > 1 else ".")
    try:
        for size in (SIZE, 100):
            catch_up(root, size)
        for durability in ("process", "sync"):
            for link in (False, True):
                tail(root, durability, link=link)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
