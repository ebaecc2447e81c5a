"""
shmq in batches beside the limit: a bare ring in shared memory, one producer process, one consumer process.

    python -m benchmarks.limit [--count 1000000] [--rounds 5]

The ring (ring.c, which gcc compiles into a temporary directory) copies 64 bytes in and out, and that is all: no
checksum, nothing that is kept, no second producer. In C alone it is the limit of the machine; as built-ins, which take
lists of bytes and make them, that of any queue for Python. It needs two processors. Rounds are interleaved.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import os
import statistics
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report, trial
from benchmarks.peers import FORK, Channel, End, ShmqInMemory

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE, BATCH = 64, 100


def compiled(directory: str) -> Any:
    """The module in ring.c."""
    target = f"{directory}/ring{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    source = str(Path(__file__).with_name("ring.c"))
    subprocess.run(["gcc", "-std=c11", "-O2", "-fPIC", "-shared", f"-I{include}", source, "-o", target], check=True)
    spec = importlib.util.spec_from_file_location("ring", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_c(ring: Any, count: int, batch: int) -> float:
    """Messages a second without any object."""
    memory = mmap.mmap(-1, ring.BYTES)
    ready = FORK.Barrier(2).wait

    def send() -> int:
        ready()
        began = time.monotonic_ns()
        ring.send(memory, count, batch)
        return began

    def receive() -> int:
        ready()
        wrong = ring.receive(memory, count, batch)
        ended = time.monotonic_ns()
        if wrong:
            raise AssertionError(f"{wrong} messages of {count} were not what was sent")
        return ended

    began, ended = trial.in_processes(send, receive)
    return count / (ended - began) * 1e9


def of_bytes(ring: Any) -> type[Channel]:
    """The ring as a channel like any other."""

    class Ring(Channel):
        label, batches = "the ring, bytes objects", True

        def __init__(self, place: str, size: int, batch: int) -> None:
            super().__init__(place, size, batch)
            self._memory = mmap.mmap(-1, ring.BYTES)

        def sender(self) -> End:
            put_many = functools.partial(ring.put_many, self._memory)
            return End(put_many, put_many)

        def taker(self) -> End:
            take_many = functools.partial(ring.take_many, self._memory, self.batch)
            return End(take_many, take_many)

    return Ring


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages of a trial; default: 1,000,000")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    options = parser.parse_args()
    with trial.workplace(options.directory) as place:
        out = report.Report(options, "/dev/shm")
        if len(os.sched_getaffinity(0)) < 2:
            out.say("There is one processor here: what two processes carry between them is the scheduler's to say.")
        ring = compiled(place)
        count = options.count // BATCH * BATCH
        batches = functools.partial(trial.rate, place=f"{place}/q", size=SIZE, count=count, batch=BATCH)
        runs: dict[str, Callable[[], float]] = {
            "the ring, in C, one at a time": lambda: in_c(ring, 10 * count, 1),
            "the ring, in C": lambda: in_c(ring, 10 * count, BATCH),
            "the ring, bytes objects": lambda: batches(of_bytes(ring)),
            "shmq on /dev/shm": lambda: batches(ShmqInMemory),
        }
        found = measure(runs, options.rounds)
    out.data |= {"rounds": options.rounds, "figures": found}
    rows = [
        (
            label,
            f"{statistics.median(figures) / 1e6:.2f}",
            report.spread([each / 1e6 for each in figures], "{:.2f}"),
            f"{report.median_ratio(found['shmq on /dev/shm'], figures):.2f}",
        )
        for label, figures in found.items()
    ]
    heads = ("", "million messages/s", "min .. max", "shmq is")
    out.table(f"64-byte messages, {BATCH} at a time, between two processes", heads, rows)
    out.write()


def measure(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """One figure a round of each, each time beginning with another one."""
    found: dict[str, list[float]] = {label: [] for label in runs}
    turns = list(runs.items())
    for number in range(rounds):
        for label, run in turns[number % len(turns) :] + turns[: number % len(turns)]:
            found[label].append(run())
    return found


if __name__ == "__main__":
    main()
