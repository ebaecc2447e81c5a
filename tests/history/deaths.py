"""How long consumers are held up by a producer that is killed inside a claim: from its kill to the next message."""

from __future__ import annotations

import shutil
import tempfile
import time

import shmq
from tests.history.processes import PATIENCE, Process
from tests.history.record import MEMORY


def _claim(tell, path):
    slot = shmq.open(path).reserve(64)
    tell(slot.index)
    time.sleep(PATIENCE)


def _consume(tell, path):
    consumer = shmq.open(path).consumer("c")
    tell("ready")
    while True:
        payload = consumer.take(timeout=PATIENCE)
        tell(time.monotonic_ns())
        if payload == b"last":
            return


def measure(deaths: int) -> list[float]:
    """Seconds for each death, sorted. The consumer sleeps at the claim; the next message lies behind it already."""
    directory = tempfile.mkdtemp(prefix="shmq-deaths-", dir=MEMORY)
    path = f"{directory}/q"
    found = []
    try:
        with shmq.open(path) as queue, Process(_consume, path) as consumer:
            consumer.hear()
            for _ in range(deaths):
                with Process(_claim, path) as claimer:
                    claimer.hear()
                    queue.put(b"behind the claim")
                    time.sleep(0.002)  # long enough for it to be asleep
                    killed = claimer.kill()
                    found.append((int(consumer.hear()) - killed) / 1e9)
            queue.put(b"last")
            consumer.hear()
            consumer.wait()
    finally:
        shutil.rmtree(directory)
    return sorted(found)


def summary(found: list[float]) -> str:
    """In words."""
    median, late = found[len(found) // 2], found[min(len(found) * 99 // 100, len(found) - 1)]
    return (
        f"kill -9 inside a claim to the next message: median {median * 1e3:.2f} ms, p99 {late * 1e3:.2f} ms, "
        f"worst {found[-1] * 1e3:.2f} ms of {len(found)}"
    )
