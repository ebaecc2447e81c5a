"""
What kill -9 costs: shmq and others, their producers and consumers killed in three ways.

    python -m benchmarks.kills [--kills 100] [--only shmq] [--json FILE]

1. A producer puts 100,000 messages of 1,000 bytes (10,000 where a put is a transaction of SQLite). All puts return;
   a second later it is killed. How many messages are lost?
2. A worker takes a message and is killed before it is done. Does anybody else get that message?
3. Two producers and two workers, one of the four killed at a random moment and started again, so many times. Do the
   others go on? Which messages, whose put had returned, did no worker ever process?

Rivals that are not installed are left out. A hang is half a minute in which nobody puts or nobody takes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import json
import mmap
import os
import queue
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from benchmarks import report
from benchmarks.peers import FORK

if TYPE_CHECKING:
    from collections.abc import Callable

    Take = Callable[[float], tuple[bytes, Callable[[], Any]]]

MANY, SIZE = 100_000, 1000
HANG = 30.0
LEAD = 2000
"""Producers pause when they are so many messages ahead of the workers."""
NAME = struct.Struct("<II")


def _nothing() -> None:
    """A rival without acknowledgements has nothing to say."""


# ---------------------------------------------------------------- the rivals
class Rival:
    """One queue. Made in the parent; each process asks it for a way to put or to take."""

    label = ""
    package = ""
    share = 1.0
    crowd = True  # whether several producers and workers can share it without another process

    def __init__(self, place: str) -> None:
        """Prepare what the processes share."""
        self.place = place

    def put(self) -> Callable[[bytes], Any]:
        """For one producer."""
        raise NotImplementedError

    def take(self) -> Take:
        """For one worker: a call that gives a message and what to call when it is done, or raises queue.Empty."""
        raise NotImplementedError


class Ours(Rival):
    """A queue in a directory, a group with explicit acknowledgements."""

    label, package = "shmq", "shmq"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        with shmq.open(place) as made:
            made.consumer("workers", group=True, ack="explicit").close()

    def put(self) -> Callable[[bytes], Any]:
        return shmq.open(self.place).put

    def take(self) -> Take:
        consumer = shmq.open(self.place).consumer("workers", group=True, ack="explicit")

        def take(timeout: float) -> tuple[bytes, Callable[[], Any]]:
            message = consumer.get(timeout=timeout)
            return bytes(message.payload), message.ack

        return take


class Multiprocessing(Rival):
    """As the standard library has it."""

    label, package = "multiprocessing.Queue", "multiprocessing"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._queue: Any = FORK.Queue()

    def put(self) -> Callable[[bytes], Any]:
        return self._queue.put

    def take(self) -> Take:
        return lambda timeout: (self._queue.get(timeout=timeout), _nothing)


class FasterFifo(Rival):
    """With room for all messages."""

    label, package = "faster-fifo", "faster_fifo"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401  # as its documentation asks

        self._queue = faster_fifo.Queue(max_size_bytes=2 * MANY * SIZE)

    def put(self) -> Callable[[bytes], Any]:
        return self._queue.put

    def take(self) -> Take:
        return lambda timeout: (self._queue.get(timeout=timeout), _nothing)


class Zmq(Rival):
    """PUSH and PULL, marks that are never reached. Several of both need a process between them."""

    label, package, crowd = "pyzmq PUSH/PULL", "zmq", False

    def _socket(self, kind: str) -> Any:
        import zmq

        socket = zmq.Context().socket(getattr(zmq, kind))
        socket.set_hwm(10 * MANY)
        return socket

    def put(self) -> Callable[[bytes], Any]:
        socket = self._socket("PUSH")
        socket.bind(f"ipc://{self.place}")
        return socket.send

    def take(self) -> Take:
        socket = self._socket("PULL")
        socket.connect(f"ipc://{self.place}")

        def take(timeout: float) -> tuple[bytes, Callable[[], Any]]:
            if not socket.poll(timeout * 1000):
                raise queue.Empty
            return socket.recv(), _nothing

        return take


class DiskCache(Rival):
    """Its Deque, on SQLite."""

    label, package, share = "diskcache.Deque", "diskcache", 0.1

    def _deque(self) -> Any:
        import diskcache

        return diskcache.Deque(directory=self.place)

    def put(self) -> Callable[[bytes], Any]:
        return self._deque().append

    def take(self) -> Take:
        deque = self._deque()
        return _patiently(deque.popleft, IndexError)


def _patiently(one: Callable[[], Any], empty: type[Exception]) -> Take:
    """Ask again and again: the rival has no call that waits for another process."""

    def take(timeout: float) -> Any:
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(empty):
                return one(), _nothing
            if time.monotonic() > end:
                raise queue.Empty
            time.sleep(0.001)

    return take


RIVALS: tuple[type[Rival], ...] = (Ours, Multiprocessing, FasterFifo, Zmq, DiskCache)


# ---------------------------------------------------------------- processes
class Slots:
    """Counters in memory that a killed process leaves as they were: one writer each."""

    def __init__(self, count: int) -> None:
        """All zero."""
        self._map = mmap.mmap(-1, 8 * count)
        self.view = memoryview(self._map).cast("Q")


def start(job: Callable[[], Any]) -> int:
    """Run *job* in a process of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        job()
        status = 0
    except KeyboardInterrupt:
        pass
    except BaseException as problem:  # noqa: BLE001  # a rival's, and the last thing that this process says
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def kill(pid: int) -> None:
    """And wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def wait(what: Callable[[], bool], seconds: float) -> bool:
    """Until it is true, or that long."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


# ---------------------------------------------------------------- the three ways
def killed_after_its_puts(rival: Rival) -> dict[str, int]:
    """How many messages, all of whose puts returned, are lost."""
    count, said = int(MANY * rival.share), Slots(1)

    def produce() -> None:
        put = rival.put()
        for number in range(count):
            put(number.to_bytes(SIZE, "little"))
            said.view[0] = number + 1
        time.sleep(600)

    heir = rival.take() if isinstance(rival, Zmq) else None  # it has to be there first
    producer = start(produce)
    returned = wait(lambda: said.view[0] == count, 300)
    time.sleep(1)
    kill(producer)
    if not returned:
        raise TimeoutError(f"{rival.label}: {said.view[0]:,} of {count:,} puts returned in 300 s")
    take, left = heir or rival.take(), 0
    with contextlib.suppress(queue.Empty):
        while True:
            _, done = take(2.0)
            done()
            left += 1
    return {"put": count, "left": left, "lost": count - left}


def killed_with_a_message(rival: Rival) -> bool:
    """Whether the message that a killed worker had comes to another one."""
    said = Slots(2)

    def work() -> None:
        take = rival.take()
        said.view[0] = 1
        take(60.0)
        said.view[1] = 1
        time.sleep(600)

    worker = start(work)
    wait(lambda: said.view[0] == 1, 60)
    put = rival.put()
    put(b"only one")
    wait(lambda: said.view[1] == 1, 60)
    kill(worker)
    try:
        again, done = rival.take()(5.0)
        done()
    except queue.Empty:
        return False
    return again == b"only one"


class Crowd:
    """Two producers and two workers, of which one after the other is killed and replaced."""

    def __init__(self, rival: Rival, kills: int, folder: Path) -> None:
        """Start the four. Each process has a number, by which it counts and its messages are named."""
        self._rival, self._folder = rival, folder
        self._put, self._taken, self._stop = Slots(kills + 4), Slots(kills + 4), Slots(1)
        self._alive: dict[int, tuple[int, Callable[[int], None]]] = {}
        for number in range(4):
            self._begin(number, (self._produce, self._work)[number % 2])

    def _begin(self, number: int, job: Callable[[int], None]) -> None:
        self._alive[number] = start(lambda: job(number)), job

    def _produce(self, mine: int) -> None:
        send, number = self._rival.put(), 0
        while not self._stop.view[0]:
            if sum(self._put.view) - sum(self._taken.view) > LEAD:
                time.sleep(0.001)
                continue
            send(NAME.pack(mine, number))
            number += 1
            self._put.view[mine] = number
        time.sleep(600)

    def _work(self, mine: int) -> None:
        take = self._rival.take()
        log = os.open(self._folder / str(mine), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        while True:
            try:
                message, done = take(1.0)
            except queue.Empty:
                continue
            os.write(log, message)
            done()
            self._taken.view[mine] += 1

    def goes_on(self) -> bool:
        """Whether somebody puts and somebody takes."""
        put, taken = sum(self._put.view), sum(self._taken.view)
        return wait(lambda: sum(self._put.view) > put and sum(self._taken.view) > taken, HANG)

    def kill_one(self, number: int) -> None:
        """Any of the four, and start another one like it."""
        victim = random.choice(list(self._alive))
        pid, job = self._alive.pop(victim)
        kill(pid)
        self._begin(number, job)

    def drain(self) -> None:
        """Nobody puts any more; wait until nobody has taken anything for five seconds."""
        self._stop.view[0] = 1
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 5:
            if sum(self._taken.view) != last:
                last, since = sum(self._taken.view), time.monotonic()
            time.sleep(0.1)

    def end(self) -> None:
        """Kill those who are left."""
        for pid, _ in self._alive.values():
            kill(pid)

    def found(self) -> dict[str, int]:
        """What was put and not processed, and what was processed more than once."""
        logs = b"".join(file.read_bytes() for file in self._folder.iterdir())
        seen = collections.Counter(NAME.iter_unpack(logs))
        put = list(self._put.view)
        lost = sum((name, number) not in seen for name, count in enumerate(put) for number in range(count))
        return {"put": sum(put), "lost": lost, "again": seen.total() - len(seen)}


def killed_at_any_moment(rival: Rival, kills: int, folder: Path) -> dict[str, Any]:
    """After which kill the others stopped; else what was lost, and what came twice."""
    crowd = Crowd(rival, kills, folder)
    try:
        for number in range(kills + 1):
            if not crowd.goes_on():
                return {"hangs at kill": number}
            if number < kills:
                time.sleep(random.uniform(0, 0.02))
                crowd.kill_one(number + 4)
        crowd.drain()
    finally:
        crowd.end()
    return crowd.found()


# ---------------------------------------------------------------- what is told
def row(label: str, found: dict[str, Any]) -> list[str]:
    """One rival's line of the table."""
    first, third = found["first"], found["third"]
    if third is None:
        told = "needs a process between them"
    elif "hangs at kill" in third:
        told = f"all hang after kill {third['hangs at kill']}"
    else:
        told = f"{third['lost']:,} of {third['put']:,} lost" + (
            f", {third['again']} came twice" if third["again"] else ""
        )
    return [
        label,
        f"{first['lost']:,} of {first['put']:,} lost",
        "goes to another worker" if found["second"] else "is lost",
        told,
    ]


def main() -> int:
    parser = report.arguments(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=100, help="default: 100")
    parser.add_argument("--only", default="", help="only rivals whose name contains this")
    options = parser.parse_args()
    rivals = [each for each in RIVALS if options.only in each.label and importlib.util.find_spec(each.package)]
    found: dict[str, Any] = {}
    folder = tempfile.mkdtemp(prefix="shmq-kills-", dir=options.directory or "/var/tmp")
    try:
        out = report.Report(options, folder)
        for each in rivals:
            places = [Path(folder) / f"{each.package}-{number}" for number in range(3)]
            logs = Path(folder) / f"{each.package}-logs"
            logs.mkdir()
            third = killed_at_any_moment(each(str(places[2])), options.kills, logs) if each.crowd else None
            found[each.label] = {
                "first": killed_after_its_puts(each(str(places[0]))),
                "second": killed_with_a_message(each(str(places[1]))),
                "third": third,
            }
            print(each.label, json.dumps(found[each.label]), flush=True)
        heads = ["", "all puts returned, producer killed", "a worker killed with a message", f"{options.kills} kills"]
        out.table("kill -9", heads, [row(label, each) for label, each in found.items()])
        out.data |= {"kills": options.kills, "found": found}
        out.write()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
