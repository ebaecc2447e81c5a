"""
Real kill -9, at random nanoseconds: a child works at the queue, is killed, and its survivors look.

What the single-stepper cannot show: several processors, and the kernel's own way of ending a process. The child says in
private memory what had returned; whatever it said must be true in the queue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import random
import signal
import time
import warnings
from typing import Any

import shmq
from tests.support import start

from .recover import check
from .walker import scratch

SIZES = (0, 1, 8, 63, 64, 65, 200, 1000)
ROUNDS_PER_QUEUE = 200
PUT, TAKEN, LIVES = 0, 1, 2


@dataclasses.dataclass
class Killed:
    """What the loop came to."""

    kills: int = 0
    puts: int = 0
    uncounted: int = 0
    takes: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)


def _data(life: int, number: int, message: int) -> bytes:
    size = SIZES[(life + number + message) % len(SIZES)]
    return f"{life}.{number}.{message}.".encode() + bytes([number & 0xFF]) * size


def _live(path: str, inherited: Any, life: int, said: memoryview) -> None:
    """Put and take until killed. Every third process opens the queue anew, the others use what they inherited."""
    queue = shmq.open(path, create=False, unsafe_filesystem=True) if life % 3 == 0 else inherited
    consumer = queue.consumer("child") if life % 2 else None
    said[LIVES] = 1
    number = 0
    while True:
        if number % 5 == 4:
            queue.put_many([_data(life, number, message) for message in range(4)])
        elif number % 7 == 6:
            data = _data(life, number, 0)
            with queue.reserve(len(data) + 40) as slot:
                slot.buffer[: len(data)] = data
                slot.commit(len(data))
        else:
            queue.put(_data(life, number, 0))
        number += 1
        said[PUT] = number
        if consumer is not None:
            consumer.get(timeout=0)
            said[TAKEN] = consumer.head


def _expected(life: int, number: int) -> list[bytes]:
    return [_data(life, number, message) for message in range(4 if number % 5 == 4 else 1)]


def _after(queue: Any, watcher: Any, life: int, said: memoryview, before: int, result: Killed) -> None:
    """What a survivor sees: everything that had returned, then at most one operation more, whole; and all counted."""
    queue.put(b"survivor")
    began = time.monotonic()
    seen = []
    last = -1
    while not seen or seen[-1] != b"survivor":
        message = watcher.get(timeout=30)
        check(message.index > last, "indexes do not ascend", last, message.index)
        last = message.index
        seen.append(message.payload)
    result.slowest = max(result.slowest, time.monotonic() - began)
    returned = [data for number in range(said[PUT]) for data in _expected(life, number)]
    rest = seen[len(returned) : -1]
    check(seen[: len(returned)] == returned, "a put that had returned is lost or damaged", len(returned), len(seen))
    check(rest in ([], _expected(life, said[PUT])), "the put in flight is there in part", rest)
    result.puts += len(returned)
    result.in_flight += bool(rest)
    _count(queue, len(seen), len(rest), before, result)
    with queue.consumer("child") as consumer:
        check(consumer.head >= said[TAKEN], "a consumer went back", consumer.head, said[TAKEN])
        result.takes += said[TAKEN] > 0
        with contextlib.suppress(shmq.Empty):
            first = consumer.get(timeout=0).index
            check(first >= said[TAKEN], "a message came twice", first, said[TAKEN])
        consumer.seek(queue.next_index)


def _count(queue: Any, more: int, in_flight: int, before: int, result: Killed) -> None:
    """Every message that came was counted; those of the put in which somebody was killed may be or not."""
    counted = queue.stats().counts.put_messages - before
    check(more - in_flight <= counted <= more, "so many were put, and so many counted", more, in_flight, counted)
    result.uncounted += more - counted


def kill(kills: int, seed: int) -> Killed:
    """Kill that many processes."""
    warnings.simplefilter("error")  # a consumer that had to be moved is a finding
    chance = random.Random(seed)
    result = Killed()
    began = time.monotonic()
    said = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    life = 0
    while life < kills and len(result.findings) < 20:
        with scratch() as root:
            path = f"{root}/q"
            with (
                shmq.open(path, options=shmq.Options(chunk_bytes=65536)) as queue,
                queue.consumer("watcher") as watcher,
            ):
                queue.consumer("child").close()
                for _ in range(min(ROUNDS_PER_QUEUE, kills - life)):
                    said[PUT] = said[TAKEN] = said[LIVES] = 0
                    before = queue.stats().counts.put_messages
                    child = start(_live, path, queue, life, said)
                    begun = LIVES if life % 4 else PUT  # on a busy machine nobody might come to put anything
                    while not said[begun] and os.waitpid(child, os.WNOHANG) == (0, 0):
                        time.sleep(0.0001)
                    until = time.perf_counter_ns() + chance.randrange(1_500_000)
                    while time.perf_counter_ns() < until:
                        pass
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(child, 0)
                    try:
                        check(said[LIVES] == 1, "the child did not come to live")
                        _after(queue, watcher, life, said, before, result)
                    except (AssertionError, shmq.ShmqError, RuntimeWarning) as problem:
                        again = f"python -m tests.crash.campaign --kills {kills} --seed {seed}"
                        result.findings.append(f"kill {life}: {type(problem).__name__}: {problem}  [{again}]")
                        life += 1
                        break  # this queue has told what it can
                    life += 1
                    result.kills += 1
    result.seconds = time.monotonic() - began
    return result
