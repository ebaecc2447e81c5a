"""
What the processes of the demo do: produce, count, average. Each may be killed with `kill -9` at any moment.

They are written as anybody would write them with `import shmq`. What each has done so far it notes in a small mapped
file (`Notes`), where the process that started them reads it, also after its death.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

import shmq
from demo import flights as data
from demo.checks import Ledger, Sums
from demo.problem import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PRODUCERS = 2
BATCH = 1000
COUNTER, AVERAGER = "count", "delays"
_FULL_PAUSE = 0.01


class Places:
    """Where everything lies below the demo's directory."""

    def __init__(self, top: Path) -> None:
        """Nothing is made yet."""
        self.top = top
        self.queue = top / "flights"
        self.prepared = top / "flights.prepared"
        self.notes = top / "notes"
        self.sums = top / "delays.json"
        self.ledger = top / "ledger.json"
        self.order = top / "ledger.order"
        self.picture = top / "run.svg"

    def files(self) -> list[Path]:
        """Every file that a run leaves beside the queue."""
        return [self.prepared, self.notes, self.sums, self.ledger, self.order, self.picture]


class Notes:
    """Numbers in a mapped file: what is noted stays noted, whoever is killed next."""

    NAMES = (
        *(
            f"{what}{which}"
            for which in range(PRODUCERS)
            for what in ("returned", "bookmark", "found", "began", "ended")
        ),
        *("counted", "count_began", "count_ended"),
        *("summed", "acknowledged", "first_again", "again", "average_began", "average_ended"),
    )
    _AT = {name: struct.calcsize("<q") * at for at, name in enumerate(NAMES)}  # noqa: RUF012
    _NUMBER = struct.Struct("<q")

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Map it; *make* a new one of zeroes first."""
        if make:
            path.write_bytes(bytes(self._NUMBER.size * len(self.NAMES)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, name: str) -> int:
        """That number."""
        number: int = self._NUMBER.unpack_from(self._map, self._AT[name])[0]
        return number

    def __setitem__(self, name: str, number: int) -> None:
        """Note it."""
        self._NUMBER.pack_into(self._map, self._AT[name], number)


def run(job: Callable[..., None], *arguments: Any) -> None:
    """One process: its *job*, and one line instead of a traceback when the world is against it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one; it ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        job(*arguments)
    except (shmq.ShmqError, OSError) as problem:
        print(f"shmq: {job.__name__}: {one_line(problem)}", file=sys.stderr)
        os._exit(1)


def _end_with_parent() -> None:
    """Nobody is left to shut the queue down when the parent was killed: do not wait for that for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# ---------------------------------------------------------------- producers
def produce(queue: shmq.Queue, places: Places, which: int) -> None:
    """
    Put every second flight, one message each.

    A producer that is started again cannot know whether the last put of its predecessor went in, so it asks the queue:
    from the last index that it had noted on, which flights with its own type are there? It goes on behind them.
    """
    notes = Notes(places.notes)
    all_flights = data.Flights(places.prepared)
    mine = which + 1  # the type of its messages
    done = _found_in_queue(queue, mine, notes[f"bookmark{which}"], which)
    notes[f"found{which}"] = done
    returned, bookmark = f"returned{which}", f"bookmark{which}"
    notes[f"began{which}"] = notes[f"began{which}"] or time.monotonic_ns()
    with queue.producer() as producer:
        for number in range(which + done * PRODUCERS, len(all_flights), PRODUCERS):
            flight = all_flights[number]
            index = producer.put(flight, key=flight["carrier"].encode(), type=mine, time_ns=data.hour_ns(flight))
            done += 1
            notes[bookmark] = index
            notes[returned] = done
    notes[f"ended{which}"] = time.monotonic_ns()


def _found_in_queue(queue: shmq.Queue, mine: int, bookmark: int, which: int) -> int:
    """How many flights of this producer are in the queue, known from the last one at or behind its bookmark."""
    last = -1
    for message in queue.reader(start=bookmark):
        if message.type == mine:
            last = message.payload["id"]
    return (last - which) // PRODUCERS + 1 if last >= 0 else 0


def replay(queue: shmq.Queue, places: Places) -> None:
    """Put every flight into a volatile queue; where shared memory is full, wait for the consumer."""
    with data.Flights(places.prepared) as all_flights:
        for first in range(0, len(all_flights), BATCH):
            batch = [all_flights[number] for number in range(first, min(first + BATCH, len(all_flights)))]
            while True:
                try:
                    queue.put_many(batch)
                    break
                except shmq.DiskFull:
                    time.sleep(_FULL_PAUSE)
    queue.close()


# ---------------------------------------------------------------- consumers
def count(queue: shmq.Queue, places: Places) -> None:
    """Count and check every message until the queue is shut down and drained."""
    notes = Notes(places.notes)
    ledger = Ledger(data.Flights(places.prepared))
    notes["count_began"] = time.monotonic_ns()
    with queue.consumer(COUNTER) as consumer:
        for message in consumer:
            ledger.see(message.index, message.type, message.key, message.time_ns, message.payload)
            notes["counted"] = ledger.seen
    notes["count_ended"] = time.monotonic_ns()
    lost = ledger.lost()
    places.order.write_bytes(ledger.order.tobytes())
    findings = ledger.findings
    places.ledger.write_bytes(
        msgspec.json.encode(
            {
                "seen": ledger.seen,
                "lost": lost,
                "doubled": ledger.doubled,
                "findings": findings.count,
                "told": findings.told,
            }
        )
    )


def average(queue: shmq.Queue, places: Places) -> None:
    """
    Sum the arrival delays per carrier until the queue is shut down and drained.

    Messages are acknowledged after their batch is in the file of sums. A kill in between brings some of them again; the
    index that stands with the sums tells which are in already.
    """
    notes = Notes(places.notes)
    sums = Sums.load(places.sums)
    notes["average_began"] = notes["average_began"] or time.monotonic_ns()
    restarted = sums.flights > 0
    with queue.consumer(AVERAGER, ack="explicit") as consumer:
        while True:
            try:
                messages = consumer.get_many(BATCH)
            except shmq.ShutDown:
                break
            if restarted:
                notes["first_again"], restarted = messages[0].index, False
            for message in messages:
                flight = message.payload
                sums.add(message.index, flight["carrier"], flight["arr_delay"], message.attempts)
                notes["summed"] = sums.flights
            sums.save(places.sums)
            consumer.ack(*messages)
            notes["acknowledged"] = messages[-1].index + 1
    notes["average_ended"] = time.monotonic_ns()
