"""
Round trips of 64 bytes between two processes, at p50, p99 and p99.9, and what an idle consumer costs.

    spinning    the next message follows at once: whoever waits may not need to sleep
    sleeping    2 ms between messages: both sides are asleep when one comes

Idle: processor time of a consumer that waits 5 s for a message that does not come.
"""

from __future__ import annotations

import functools
import queue as standard_queue
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks import report, trial
from benchmarks.peers import PEERS, Pipe, Shmq, ShmqInMemory, ShmqSleeps, ShmqSpins, Zmq

if TYPE_CHECKING:
    from benchmarks.peers import Channel

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
SCENES = {"spinning": (5000, 0.0), "sleeping": (1000, 0.002)}
SIZE = 64
BESIDE = (Shmq, ShmqSpins, ShmqSleeps, ShmqInMemory, Pipe, Zmq)
IDLE_SECONDS = 5.0


def measure(rounds: int, directory: str, beside: tuple[type[Channel], ...]) -> dict[str, Any]:
    """Scene, rival, percentile: one value a round, in µs."""
    found: dict[str, Any] = {scene: {peer.label: {name: [] for name in SHARES} for peer in beside} for scene in SCENES}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} ...", end="\r", file=sys.stderr, flush=True)
        for scene, (count, pause) in SCENES.items():
            for peer in beside:
                times = trial.round_trips(peer, f"{directory}/trip", size=SIZE, count=count, pause=pause)
                for name, share in SHARES.items():
                    found[scene][peer.label][name].append(trial.percentile(times, share) / 1000)
    return found


def idle(directory: str) -> dict[str, float]:
    """Processor ms of a consumer that waits in vain, for each rival that can wait with a timeout."""

    def shmq_waits() -> None:
        import shmq

        with shmq.open(f"{directory}/idle") as queue, queue.consumer("idle") as consumer:
            try:
                consumer.take(timeout=IDLE_SECONDS)
            except shmq.Empty:
                return

    def zmq_waits() -> None:
        import zmq

        with zmq.Context() as context, context.socket(zmq.PULL) as socket:
            socket.bind(f"ipc://{directory}/idle-socket")
            socket.poll(IDLE_SECONDS * 1000)

    def queue_waits() -> None:
        from benchmarks.peers import FORK

        try:
            FORK.Queue().get(timeout=IDLE_SECONDS)
        except standard_queue.Empty:
            return

    def pipe_waits() -> None:
        from benchmarks.peers import FORK

        reading, _writing = FORK.Pipe(duplex=False)
        reading.poll(IDLE_SECONDS)

    def used_by(waits: Any) -> float:
        before, began = trial.cpu_seconds(), time.perf_counter()
        waits()
        if time.perf_counter() - began < IDLE_SECONDS * 0.99:
            raise AssertionError(f"{waits.__name__} did not wait")
        return (trial.cpu_seconds() - before) * 1000

    jobs = {
        "shmq": shmq_waits,
        "multiprocessing.Pipe": pipe_waits,
        "pyzmq": zmq_waits,
        "multiprocessing.Queue": queue_waits,
    }
    spent = trial.in_processes(*(functools.partial(used_by, waits) for waits in jobs.values()))
    return dict(zip(jobs, spent, strict=True))


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--all", action="store_true", help="beside every rival, not only Pipe and pyzmq")
    options = parser.parse_args()
    beside = PEERS if options.all else BESIDE
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        found = measure(options.rounds, directory, beside)
        spent = idle(directory)
    out.data |= {"figures": found, "idle": spent}
    for scene, (count, pause) in SCENES.items():
        rows: list[list[str]] = []
        for label, by_name in found[scene].items():
            cells = [f"{statistics.median(by_name[name]):,.1f}" for name in SHARES]
            rows.append([label, *cells, report.spread(by_name["p50"], "{:,.1f}")])
        between = f"{pause * 1000:.0f} ms between them" if pause else "one after the other"
        title = f"{scene.capitalize()}: {count:,} round trips, {between}, µs: medians of {options.rounds} rounds"
        out.table(title, ("", *SHARES, "p50: min .. max"), rows)
    out.table(
        f"A consumer waits {IDLE_SECONDS:.0f} s in vain, opening and closing included",
        ("", "processor ms"),
        [(label, f"{value:.1f}") for label, value in spent.items()],
    )
    out.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
